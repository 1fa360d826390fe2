//! Directives of redis.conf 7.0 whose feature is not there yet, or to which nothing here corresponds: tools, tests and
//! files of Redis name them. What would turn something on is refused, because somebody would rely on it. Where nothing
//! that a directive promises is lost, any value that Redis takes is kept for CONFIG GET and REWRITE, and has no effect.

use super::directive::{Directive, Field, Group};
use super::types::{Choice, DebugCommand};
use super::values::{I32_MAX, I64_MAX, Kind};

const COUNT: Kind = Kind::Integer { min: 0, max: I32_MAX, unit: "" };
const PORT: Kind = Kind::Integer { min: 0, max: 65535, unit: "" };
const MEMORY: Kind = Kind::Memory { min: 0, max: I64_MAX };
const MEMORY_NOT_0: Kind = Kind::Memory { min: 1, max: I64_MAX };

const FACILITIES: &[&str] = &["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"];

/// Keeps whatever Redis takes.
const fn kept(group: Group, name: &'static str, default: &'static str, kind: Kind, help: &'static str) -> Directive {
    Directive { name, group, default, kind, mutable: true, help, field: Field::Kept }
}

/// Takes one value of those that Redis takes.
const fn only(
    group: Group,
    name: &'static str,
    value: &'static str,
    like: &'static Kind,
    why: &'static str,
    help: &'static str,
) -> Directive {
    kept(group, name, value, Kind::Only { value, like, why }, help)
}

const fn fixed(directive: Directive) -> Directive {
    Directive { mutable: false, ..directive }
}

macro_rules! kept {
    ($group:ident $name:literal $default:literal $kind:expr, $help:literal) => {
        kept(Group::$group, $name, $default, $kind, $help)
    };
}
macro_rules! only {
    ($group:ident $name:literal $value:literal $like:expr, $why:literal, $help:literal) => {
        only(Group::$group, $name, $value, &$like, $why, $help)
    };
}

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    kept!(Persistence "rdb-del-sync-files" "no" Kind::YesNo, "delete snapshots that were made for replicas"),
    kept!(Persistence "aof-disable-auto-gc" "no" Kind::YesNo, "keep old files of the log"),
    fixed(kept!(Persistence "aof_rewrite_cpulist" "" Kind::Text, "cores of the process that rewrites the log")),
    fixed(kept!(Persistence "bgsave_cpulist" "" Kind::Text, "cores of the process that writes snapshots")),


    fixed(only!(Cluster "cluster-enabled" "no" Kind::YesNo,
        "cluster is not available yet: only cluster-enabled no is accepted", "be a node of a cluster")),
    fixed(kept!(Cluster "cluster-config-file" "nodes.conf" Kind::Text, "the file in which a node keeps its state")),
    fixed(kept!(Cluster "cluster-port" "0" PORT, "port for other nodes; 0 = port + 10000")),
    kept!(Cluster "cluster-node-timeout" "15000" Kind::Integer { min: 0, max: I64_MAX, unit: "ms" },
        "silence after which a node counts as gone"),
    kept!(Cluster "cluster-replica-validity-factor" "10" COUNT, "how stale a replica may be and become primary"),
    kept!(Cluster "cluster-replica-no-failover" "no" Kind::YesNo, "never become primary by itself"),
    kept!(Cluster "cluster-migration-barrier" "1" COUNT, "replicas that a primary keeps"),
    kept!(Cluster "cluster-allow-replica-migration" "yes" Kind::YesNo, "let replicas move to other primaries"),
    kept!(Cluster "cluster-require-full-coverage" "yes" Kind::YesNo, "refuse everything while slots are missing"),
    kept!(Cluster "cluster-allow-reads-when-down" "no" Kind::YesNo, "allow reads all the same"),
    kept!(Cluster "cluster-allow-pubsubshard-when-down" "yes" Kind::YesNo, "allow sharded messages all the same"),
    kept!(Cluster "cluster-link-sendbuf-limit" "0" MEMORY, "unsent output to another node; 0 = no limit"),
    kept!(Cluster "cluster-announce-ip" "" Kind::Text, "address that others are told"),
    kept!(Cluster "cluster-announce-hostname" "" Kind::Text, "name that others are told"),
    kept!(Cluster "cluster-announce-port" "0" PORT, "port that others are told"),
    kept!(Cluster "cluster-announce-tls-port" "0" PORT, "port for TLS that others are told"),
    kept!(Cluster "cluster-announce-bus-port" "0" PORT, "port for nodes that others are told"),
    kept!(Cluster "cluster-preferred-endpoint-type" "ip" Kind::Choice(&["ip", "hostname", "unknown-endpoint"]),
        "how clients are sent to other nodes"),
    only!(Cluster "tls-cluster" "no" Kind::YesNo, "cluster is not available yet: only tls-cluster no is accepted",
        "TLS to other nodes"),

    kept!(Later "replica-ignore-disk-write-errors" "no" Kind::YesNo, "go on where the disk refuses a write"),
    kept!(Later "propagation-error-behavior" "ignore" Kind::Choice(&["ignore", "panic", "panic-on-replicas"]),
        "what to do where a replica cannot run what it is sent"),
    fixed(kept!(Later "enable-module-command" "no" Kind::Choice(DebugCommand::NAMES),
        "who may use MODULE, which is not there")),
    only!(Later "activedefrag" "no" Kind::YesNo, "active defragmentation is not available: only activedefrag no is accepted",
        "move values together where memory is fragmented; free pages go back to the system after a second"),
    kept!(Later "active-defrag-ignore-bytes" "100mb" MEMORY_NOT_0, "waste below which that does nothing"),
    kept!(Later "active-defrag-threshold-lower" "10" Kind::Integer { min: 0, max: 1000, unit: "percent" },
        "waste below which that does nothing"),
    kept!(Later "active-defrag-threshold-upper" "100" Kind::Integer { min: 0, max: 1000, unit: "percent" },
        "waste at which that does the most"),
    kept!(Later "active-defrag-cycle-min" "1" Kind::Integer { min: 1, max: 99, unit: "percent" },
        "the least time that may take"),
    kept!(Later "active-defrag-cycle-max" "25" Kind::Integer { min: 1, max: 99, unit: "percent" },
        "the most time that may take"),
    kept!(Later "active-defrag-max-scan-fields" "1000" Kind::Integer { min: 1, max: I64_MAX, unit: "" },
        "collections with more elements are looked at later"),
    fixed(only!(Later "syslog-enabled" "no" Kind::YesNo,
        "logging to syslog is not available: only syslog-enabled no is accepted; a supervisor takes what is logged to \
         standard output", "log to syslog")),
    fixed(kept!(Later "syslog-ident" "redis" Kind::Text, "the name under which syslog knows it")),
    fixed(kept!(Later "syslog-facility" "local0" Kind::Choice(FACILITIES), "the facility of syslog")),
    only!(Later "crash-log-enabled" "no" Kind::YesNo,
        "reports of crashes are not available: only crash-log-enabled no is accepted",
        "log registers and stacks after a crash; standard error says what a panic was about"),
    only!(Later "crash-memcheck-enabled" "no" Kind::YesNo,
        "a test of memory after a crash is not available: only crash-memcheck-enabled no is accepted",
        "test the memory after a crash"),
    only!(Later "oom-score-adj" "no" Kind::Choice(&["no", "yes", "relative", "absolute"]),
        "oom-score-adj is not available: only no is accepted; systemd's OOMScoreAdjust= does it",
        "tell the kernel what to end first when memory is short"),
    kept!(Later "oom-score-adj-values" "0 200 800" Kind::Numbers { count: 3, min: -2000, max: 2000 },
        "what to tell it, for primaries, replicas, children"),
    fixed(only!(Later "server_cpulist" "" Kind::Text,
        "server_cpulist is not available: only \"\" is accepted; taskset chooses cores, pin-shards gives each shard one",
        "cores of the server's threads")),
    fixed(only!(Later "bio_cpulist" "" Kind::Text, "bio_cpulist is not available: only \"\" is accepted; taskset chooses cores",
        "cores of threads beside the shards")),
    fixed(only!(Later "socket-mark-id" "0" Kind::Integer { min: 0, max: u32::MAX as u64, unit: "" },
        "marks of sockets are not available: only socket-mark-id 0 is accepted", "the mark of sockets; 0 = none")),

    fixed(kept!(Hint "io-threads" "1" Kind::Integer { min: 1, max: 128, unit: "" },
        "each shard reads, runs and writes on its own thread: shards says how many there are")),
    fixed(kept!(Hint "io-threads-do-reads" "no" Kind::YesNo, "each shard reads on its own thread")),
    kept!(Hint "loading-process-events-interval-bytes" "2097152" Kind::Integer { min: 1024, max: I32_MAX, unit: "" },
        "who asks something while a snapshot is loaded is answered at once"),
    kept!(Hint "use-exit-on-panic" "no" Kind::YesNo, "nothing is written where the server ends by an error of its own"),
    kept!(Hint "dynamic-hz" "no" Kind::YesNo, "work in the background costs the same however many clients there are"),
    kept!(Hint "activerehashing" "yes" Kind::YesNo, "large hash tables grow a block at a time, with what is written"),
    kept!(Hint "lazyfree-lazy-eviction" "yes" Kind::YesNo, "what is large is freed in slices either way"),
    kept!(Hint "lazyfree-lazy-expire" "yes" Kind::YesNo, "what is large is freed in slices either way"),
    kept!(Hint "lazyfree-lazy-server-del" "yes" Kind::YesNo, "what is large is freed in slices either way"),
    kept!(Hint "lazyfree-lazy-user-del" "yes" Kind::YesNo, "DEL and UNLINK do the same: what is large is freed in slices"),
    kept!(Hint "replica-lazy-flush" "no" Kind::YesNo, "what is large is freed in slices either way"),
    kept!(Hint "lazyfree-lazy-user-flush" "yes" Kind::YesNo, "FLUSHALL empties at once and frees in slices either way"),
    kept!(Hint "jemalloc-bg-thread" "yes" Kind::YesNo, "threads of jemalloc always give free pages back"),
    kept!(Hint "sanitize-dump-payload" "yes" Kind::Choice(&["no", "yes", "clients"]),
        "RESTORE always checks all of a payload"),
    fixed(kept!(Hint "always-show-logo" "no" Kind::YesNo, "there is no logo")),
    fixed(kept!(Hint "set-proc-title" "no" Kind::YesNo, "ps shows the command line as it was given")),
    kept!(Hint "proc-title-template" "{title} {listen-addr} {server-mode}" Kind::Text,
        "ps shows the command line as it was given"),
    kept!(Hint "ignore-warnings" "" Kind::Text, "the warning that it could silence, ARM64-COW-BUG, is not there"),
];
