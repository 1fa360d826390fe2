//! CLUSTER, READONLY, READWRITE, ASKING: there is no cluster, which clients hear in the words of Redis without one.

use super::container_spec;
use crate::command::spec::flag::{ADMIN, FAST, LOADING, NO_ASYNC_LOADING, NO_SCRIPT, STALE};
use crate::command::spec::{Group, Keys, Row, Spec, tip};
use crate::resp::{Error, Request, Result};
use crate::server::state::{Run, SessionCtx};

pub const ROWS: &[Row<Run>] = &[
    Row::container(
        Spec {
            summary: "Groups questions about the nodes of a cluster.",
            group: Group::Cluster,
            ..container_spec("cluster", "3.0.0")
        },
        // HELP, too.
        Run::Session(disabled),
        CLUSTER_ROWS,
    ),
    of_connection("readonly", LOADING | STALE | FAST, "Lets a connection to a replica of a cluster read."),
    of_connection("readwrite", LOADING | STALE | FAST, "Takes READONLY back."),
    of_connection("asking", FAST, "Asks a node that a slot moves to for a key of it."),
];

/// What Redis 7.0 has; it looks at the name and at the number of arguments before it says that there is no cluster.
const CLUSTER_ROWS: &[Row<Run>] = &[
    change("addslots", -3, "3.0.0", "Takes hash slots.", "slot:integer..."),
    change("addslotsrange", -4, "7.0.0", "Takes ranges of hash slots.", SLOT_RANGES),
    change("bumpepoch", 2, "3.0.0", "Advances the epoch of the configuration.", "")
        .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    question("count-failure-reports", 3, ADMIN, "3.0.0", "Counts the reports that a node has failed.", "node-id")
        .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    question("countkeysinslot", 3, 0, "3.0.0", "Counts the keys of a hash slot.", "slot:integer"),
    change("delslots", -3, "3.0.0", "Gives hash slots away.", "slot:integer..."),
    change("delslotsrange", -4, "7.0.0", "Gives ranges of hash slots away.", SLOT_RANGES),
    change("failover", -2, "3.0.0", "Lets a replica become the primary.", "[options:(FORCE|TAKEOVER)]"),
    change("flushslots", 2, "3.0.0", "Forgets which hash slots are whose.", ""),
    change("forget", 3, "3.0.0", "Forgets a node.", "node-id"),
    question("getkeysinslot", 4, 0, "3.0.0", "Returns keys of a hash slot.", "slot:integer count:integer")
        .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    question("info", 2, 0, "3.0.0", "Tells about the state of the node.", "").tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    question("keyslot", 3, 0, "3.0.0", "Returns the hash slot of a key.", "key:string"),
    question("links", 2, 0, "7.0.0", "Lists the connections to other nodes.", "").tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    change("meet", -4, "3.0.0", "Makes another node known.", "ip port:integer [cluster_bus_port:integer]"),
    question("myid", 2, 0, "3.0.0", "Returns the id of the node.", ""),
    question("myshardid", 2, 0, "7.2.0", "Returns the id of the shard that the node is part of.", "")
        .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    question("nodes", 2, 0, "3.0.0", "Lists the nodes and their hash slots.", "").tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    question("replicas", 3, ADMIN, "5.0.0", "Lists the replicas of a node.", "node-id")
        .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    change("replicate", 3, "3.0.0", "Makes the node a replica of another.", "node-id"),
    question("reset", -2, ADMIN | NO_SCRIPT, "3.0.0", "Resets the node.", "[hard_soft:(HARD|SOFT)]"),
    change("saveconfig", 2, "3.0.0", "Writes the state of the node to disk.", ""),
    change("set-config-epoch", 3, "3.0.0", "Sets the epoch of a new node.", "config-epoch:integer"),
    change(
        "setslot",
        -4,
        "3.0.0",
        "Says whose a hash slot is.",
        "slot:integer subcommand:(IMPORTING node-id|MIGRATING node-id|NODE node-id|STABLE)",
    ),
    question("shards", 2, 0, "7.0.0", "Lists the hash slots with their nodes.", "")
        .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    question("slaves", 3, ADMIN, "3.0.0", "Lists the replicas of a node.", "node-id")
        .deprecated("5.0.0", "`CLUSTER REPLICAS`")
        .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    question("slots", 2, 0, "3.0.0", "Lists the hash slots with their nodes.", "")
        .deprecated("7.0.0", "`CLUSTER SHARDS`")
        .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
];

const SLOT_RANGES: &str = "start-slot_end-slot:(start-slot:integer end-slot:integer)...";

/// A subcommand that would change something.
const fn change(
    name: &'static str,
    arity: i32,
    since: &'static str,
    summary: &'static str,
    syntax: &'static str,
) -> Row<Run> {
    question(name, arity, ADMIN | NO_ASYNC_LOADING, since, summary, syntax)
}

const fn question(
    name: &'static str,
    arity: i32,
    flags: u32,
    since: &'static str,
    summary: &'static str,
    syntax: &'static str,
) -> Row<Run> {
    let flags = flags | STALE;
    refused(Spec { name, arity, flags, summary, syntax, since, ..EMPTY })
}

const fn of_connection(name: &'static str, flags: u32, summary: &'static str) -> Row<Run> {
    refused(Spec { name, flags, summary, ..EMPTY })
}

const EMPTY: Spec = Spec {
    name: "",
    arity: 1,
    flags: 0,
    keys: Keys::NONE,
    group: Group::Cluster,
    since: "3.0.0",
    complexity: "O(1)",
    summary: "",
    syntax: "",
};

const fn refused(spec: Spec) -> Row<Run> {
    Row::new(spec, Run::Session(disabled))
}

fn disabled(_: &mut SessionCtx, _: Request) -> Result {
    Err(Error::text("ERR This instance has cluster support disabled"))
}
