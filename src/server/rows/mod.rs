//! The commands about connections and the server, a file a family.

mod acl;
mod admin;
mod advisor;
mod client;
mod cluster;
mod config;
mod connection;
mod debug;
mod expiry;
mod functions;
mod info;
mod latency;
mod live;
mod lolwut;
mod memory;
mod migrate;
mod modules;
mod monitor;
mod persistence;
mod policy;
mod pubsub;
mod replication;
mod scripting;
mod slowlog;
mod transactions;

use super::state::Run;
use crate::command::spec::{Group, Keys, Row, Spec};

/// A walk over all keys gives way to others when a slice has lasted so long. One block is looked at in less than that
/// again.
const SLICE_US: u64 = 200;

/// A command about the server, without keys; what is empty is said by its row.
const fn server_spec(
    name: &'static str,
    arity: i32,
    flags: u32,
    since: &'static str,
    complexity: &'static str,
) -> Spec {
    Spec { name, arity, flags, keys: Keys::NONE, group: Group::Server, since, complexity, summary: "", syntax: "" }
}

/// A command that only groups others.
const fn container_spec(name: &'static str, since: &'static str) -> Spec {
    server_spec(name, -2, 0, since, "Depends on the subcommand")
}

pub fn all() -> impl Iterator<Item = &'static Row<Run>> {
    let of_all = [
        connection::ROWS,
        client::ROWS,
        transactions::ROWS,
        config::ROWS,
        pubsub::ROWS,
        info::ROWS,
        debug::ROWS,
        admin::ROWS,
        expiry::ROWS,
        latency::ROWS,
        live::ROWS,
        memory::ROWS,
        persistence::ROWS,
        replication::ROWS,
        migrate::ROWS,
        slowlog::ROWS,
        monitor::ROWS,
        lolwut::ROWS,
        scripting::ROWS,
        functions::ROWS,
        cluster::ROWS,
        modules::ROWS,
        acl::ROWS,
    ];
    of_all.into_iter().flatten()
}
