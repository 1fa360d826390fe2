//! The rows about replication.

use super::directive::{Directive, Group, field};
use super::types::{Choice, CompatVersion};
use super::values::Kind;

const I32_MAX: u64 = i32::MAX as u64;
const I64_MAX: u64 = i64::MAX as u64;

pub(super) const ROWS: &[Directive] = &[
    Directive {
        name: "repl-timeout",
        group: Group::Replication,
        default: "60",
        kind: Kind::Integer { min: 1, max: I32_MAX, unit: "s" },
        mutable: true,
        help: "silence, or time without reading, after which the other end of a replication link counts as gone",
        field: field!(repl_timeout_s),
    },
    Directive {
        name: "repl-backlog-size",
        group: Group::Replication,
        default: "1mb",
        kind: Kind::Memory { min: 1, max: I64_MAX },
        mutable: true,
        help: "what is kept of the stream for replicas that were away for a while and go on from there",
        field: field!(repl_backlog_bytes),
    },
    Directive {
        name: "repl-backlog-ttl",
        group: Group::Replication,
        default: "3600",
        kind: Kind::Integer { min: 0, max: I64_MAX, unit: "s" },
        mutable: true,
        help: "how long that is kept while there are no replicas; 0 = for ever",
        field: field!(repl_backlog_ttl_s),
    },
    Directive {
        name: "repl-diskless-sync",
        group: Group::Replication,
        default: "yes",
        kind: Kind::YesNo,
        mutable: true,
        help: "send a snapshot to replicas as it is made; else it is made on the disk, and sent then",
        field: field!(repl_diskless_sync),
    },
    Directive {
        name: "repl-diskless-sync-delay",
        group: Group::Replication,
        default: "5",
        kind: Kind::Integer { min: 0, max: I32_MAX, unit: "s" },
        mutable: true,
        help: "how long to wait for more replicas before that",
        field: field!(repl_diskless_sync_delay_s),
    },
    Directive {
        name: "repl-diskless-sync-max-replicas",
        group: Group::Replication,
        default: "0",
        kind: Kind::Integer { min: 0, max: I32_MAX, unit: "" },
        mutable: true,
        help: "replicas after which nobody waits for more; 0 = the delay alone counts",
        field: field!(repl_diskless_sync_max_replicas),
    },
    Directive {
        name: "repl-ping-replica-period",
        group: Group::Replication,
        default: "10",
        kind: Kind::Integer { min: 1, max: I32_MAX, unit: "s" },
        mutable: true,
        help: "how often replicas are told that their primary is there",
        field: field!(repl_ping_replica_period_s),
    },
    Directive {
        name: "min-replicas-to-write",
        group: Group::Replication,
        default: "0",
        kind: Kind::Integer { min: 0, max: I32_MAX, unit: "" },
        mutable: true,
        help: "replicas without which writes are refused; 0 = none are needed",
        field: field!(min_replicas_to_write),
    },
    Directive {
        name: "min-replicas-max-lag",
        group: Group::Replication,
        default: "10",
        kind: Kind::Integer { min: 0, max: I32_MAX, unit: "s" },
        mutable: true,
        help: "silence after which a replica does not count for that",
        field: field!(min_replicas_max_lag_s),
    },
    Directive {
        name: "repl-compat-version",
        group: Group::Replication,
        default: "auto",
        kind: Kind::Choice(CompatVersion::NAMES),
        mutable: true,
        help: "which Redis replicas are told as: 7.0 knows of no deadlines of fields; auto = 7.0 unless a replica says that it knows",
        field: field!(repl_compat_version),
    },
    Directive {
        name: "shutdown-timeout",
        group: Group::Replication,
        default: "10",
        kind: Kind::Integer { min: 0, max: I32_MAX, unit: "s" },
        mutable: true,
        help: "how long the end of the server waits for replicas to have everything, while writes wait",
        field: field!(shutdown_timeout_s),
    },
];
