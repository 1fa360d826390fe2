//! The table: one row a directive. It drives parsing, `CONFIG GET`, `SET` and `REWRITE`, `--help` and `--generate`. Rows
//! of `redis.rs` are about what is not there; the others act, those of the other files of rows among them.

use super::data_rows;
use super::directive::{Directive, Group, field};
use super::durability_rows;
use super::redis;
use super::replication_rows;
use super::tls_rows;
use super::types::{
    AuthSlowdown, ChannelsOfUsers, Choice, DebugCommand, LogLevel, Network, PinShards, PipelineOrder, ScriptScope,
    Supervised, UndeclaredKeys,
};
use super::values::{GIB, I32_MAX, I64_MAX, Kind, MIB};
use super::version::RedisVersion;

/// The row of that name; case does not count.
pub(super) fn find(name: &str) -> Option<&'static Directive> {
    let today = ALIASES.iter().find(|(old, _)| old.eq_ignore_ascii_case(name)).map_or(name, |(_, today)| today);
    DIRECTIVES.iter().find(|directive| directive.name.eq_ignore_ascii_case(today))
}

/// What a directive is called, its former names included.
pub(super) fn names(directive: &Directive) -> impl Iterator<Item = &'static str> + use<> {
    let name = directive.name;
    let former = ALIASES.iter().filter(move |(_, today)| *today == name).map(|(old, _)| *old);
    std::iter::once(name).chain(former)
}

pub const SHARDS_MAX: usize = 256;

/// Former names, and what they are called today.
const ALIASES: &[(&str, &str)] = &[
    ("cluster-slave-no-failover", "cluster-replica-no-failover"),
    ("cluster-slave-validity-factor", "cluster-replica-validity-factor"),
    ("hash-max-ziplist-entries", "hash-max-listpack-entries"),
    ("hash-max-ziplist-value", "hash-max-listpack-value"),
    ("list-max-ziplist-size", "list-max-listpack-size"),
    ("lua-time-limit", "busy-reply-threshold"),
    ("min-slaves-max-lag", "min-replicas-max-lag"),
    ("min-slaves-to-write", "min-replicas-to-write"),
    ("repl-ping-slave-period", "repl-ping-replica-period"),
    ("slave-announce-ip", "replica-announce-ip"),
    ("slave-announce-port", "replica-announce-port"),
    ("slave-ignore-maxmemory", "replica-ignore-maxmemory"),
    ("slave-lazy-flush", "replica-lazy-flush"),
    ("slave-priority", "replica-priority"),
    ("slave-read-only", "replica-read-only"),
    ("slave-serve-stale-data", "replica-serve-stale-data"),
    ("slaveof", "replicaof"),
    ("zset-max-ziplist-entries", "zset-max-listpack-entries"),
    ("zset-max-ziplist-value", "zset-max-listpack-value"),
];

pub const DIRECTIVES: &[Directive] = &{
    const PARTS: [&[Directive]; 6] =
        [OWN, data_rows::ROWS, durability_rows::ROWS, tls_rows::ROWS, replication_rows::ROWS, redis::ROWS];
    const ALL: usize = {
        let (mut all, mut part) = (0, 0);
        while part < PARTS.len() {
            all += PARTS[part].len();
            part += 1;
        }
        all
    };
    let mut all = [OWN[0]; ALL];
    let (mut part, mut row, mut at) = (0, 0, 0);
    while at < all.len() {
        if row < PARTS[part].len() {
            all[at] = PARTS[part][row];
            (row, at) = (row + 1, at + 1);
        } else {
            (part, row) = (part + 1, 0);
        }
    }
    all
};

const OWN: &[Directive] = &[
    Directive {
        name: "bind",
        group: Group::Network,
        default: "127.0.0.1",
        kind: Kind::Addresses,
        mutable: false,
        help: "addresses to listen on: `*` = all IPv4, `::*` = all IPv6, a leading `-` = none if not there",
        field: field!(bind),
    },
    Directive {
        name: "port",
        group: Group::Network,
        default: "6379",
        kind: Kind::Integer { min: 0, max: 65535, unit: "" },
        mutable: false,
        help: "TCP port to listen on; 0 = none",
        field: field!(port),
    },
    Directive {
        name: "metrics-port",
        group: Group::Network,
        default: "0",
        kind: Kind::Integer { min: 0, max: 65535, unit: "" },
        mutable: false,
        help: "TCP port on which a live page (/), /metrics (for Prometheus), /healthz and /readyz are served over HTTP; \
               0 = none. Where there is a `requirepass` the page and /metrics ask for it, as basic or bearer authentication",
        field: field!(metrics_port),
    },
    Directive {
        name: "metrics-bind",
        group: Group::Network,
        default: "127.0.0.1",
        kind: Kind::Addresses,
        mutable: false,
        help: "addresses of that listener, as for `bind`",
        field: field!(metrics_bind),
    },
    Directive {
        name: "metrics-tls",
        group: Group::Network,
        default: "no",
        kind: Kind::YesNo,
        mutable: false,
        help: "serve them over HTTPS, with the certificate of `tls-cert-file`, to those whom `tls-auth-clients` lets in",
        field: field!(metrics_tls),
    },
    Directive {
        name: "unixsocket",
        group: Group::Network,
        default: "",
        kind: Kind::Text,
        mutable: false,
        help: "path of a Unix domain socket to listen on; empty = none",
        field: field!(unixsocket),
    },
    Directive {
        name: "unixsocketperm",
        group: Group::Network,
        default: "0",
        kind: Kind::Octal,
        mutable: false,
        help: "permissions of that socket; 0 = what the umask leaves",
        field: field!(unixsocketperm),
    },
    Directive {
        name: "tcp-backlog",
        group: Group::Network,
        default: "511",
        kind: Kind::Integer { min: 0, max: I32_MAX, unit: "" },
        mutable: false,
        help: "connections that may wait to be accepted",
        field: field!(tcp_backlog),
    },
    Directive {
        name: "tcp-keepalive",
        group: Group::Network,
        default: "300",
        kind: Kind::Integer { min: 0, max: I32_MAX, unit: "s" },
        mutable: true,
        help: "silence after which a connection is probed; 0 = never",
        field: field!(tcp_keepalive_s),
    },
    Directive {
        name: "timeout",
        group: Group::Network,
        default: "0",
        kind: Kind::Integer { min: 0, max: I32_MAX, unit: "s" },
        mutable: true,
        help: "idle time after which a client is disconnected; 0 = never",
        field: field!(timeout_s),
    },
    Directive {
        name: "maxclients",
        group: Group::Network,
        default: "10000",
        kind: Kind::Integer { min: 1, max: u32::MAX as u64, unit: "" },
        mutable: true,
        help: "clients connected at the same time",
        field: field!(maxclients),
    },
    Directive {
        name: "protected-mode",
        group: Group::Network,
        default: "yes",
        kind: Kind::YesNo,
        mutable: true,
        help: "while no password is set, only this machine may connect",
        field: field!(protected_mode),
    },
    Directive {
        name: "network",
        group: Group::Network,
        default: "auto",
        kind: Kind::Choice(Network::NAMES),
        mutable: false,
        help: "sockets: a ring of our own (Linux 6.1 or newer), glommio's (5.8), epoll (3.15, no io_uring), or the first of \
               these that is to be had",
        field: field!(network),
    },
    Directive {
        name: "spin-us",
        group: Group::Network,
        default: "0",
        kind: Kind::Integer { min: 0, max: 1000, unit: "us" },
        mutable: true,
        help: "how long a shard looks for something to come before it sleeps (not over glommio's sockets): latency for CPU",
        field: field!(spin_us),
    },
    Directive {
        name: "shards",
        group: Group::General,
        default: "0",
        kind: Kind::Integer { min: 0, max: SHARDS_MAX as u64, unit: "" },
        mutable: false,
        help: "threads that own a part of the keys each; 0 = as many as the process may use cores",
        field: field!(shards),
    },
    Directive {
        name: "pin-shards",
        group: Group::General,
        default: "auto",
        kind: Kind::Choice(PinShards::NAMES),
        mutable: false,
        help: "keep each shard's thread on one core: fast where nobody else works there, starved where others do; \
               auto = where there is a core for each of several shards",
        field: field!(pin_shards),
    },
    Directive {
        name: "databases",
        group: Group::General,
        default: "16",
        kind: Kind::Integer { min: 1, max: 1024, unit: "" },
        mutable: false,
        help: "databases for SELECT",
        field: field!(databases),
    },
    Directive {
        name: "daemonize",
        group: Group::General,
        default: "no",
        kind: Kind::YesNo,
        mutable: false,
        help: "go into the background; not under a supervisor (supervised)",
        field: field!(daemonize),
    },
    Directive {
        name: "supervised",
        group: Group::General,
        default: "no",
        kind: Kind::Choice(Supervised::NAMES),
        mutable: false,
        help: "tell whoever has started it when it is ready: systemd (Type=notify), upstart, or the one that the environment \
               names",
        field: field!(supervised),
    },
    Directive {
        name: "pidfile",
        group: Group::General,
        default: "",
        kind: Kind::Text,
        mutable: false,
        help: "file that holds the process id while it runs; empty = none, in the background /var/run/emberdb.pid",
        field: field!(pidfile),
    },
    Directive {
        name: "loglevel",
        group: Group::General,
        default: "notice",
        kind: Kind::Choice(LogLevel::NAMES),
        mutable: true,
        help: "how much is logged",
        field: field!(loglevel),
    },
    Directive {
        name: "logfile",
        group: Group::General,
        default: "",
        kind: Kind::Text,
        mutable: false,
        help: "file to log to; empty = standard output",
        field: field!(logfile),
    },
    Directive {
        name: "dir",
        group: Group::General,
        default: ".",
        kind: Kind::Text,
        mutable: true,
        help: "working directory, where files are written",
        field: field!(dir),
    },
    Directive {
        name: "hz",
        group: Group::General,
        default: "10",
        kind: Kind::Integer { min: 1, max: 500, unit: "" },
        mutable: true,
        help: "background work: rounds a second",
        field: field!(hz),
    },
    Directive {
        name: "pipeline-order",
        group: Group::General,
        default: "relaxed",
        kind: Kind::Choice(PipelineOrder::NAMES),
        mutable: true,
        help: "commands of one pipeline on different shards: in either order, or strictly one after the other",
        field: field!(pipeline_order),
    },
    Directive {
        name: "enable-debug-command",
        group: Group::General,
        default: "no",
        kind: Kind::Choice(DebugCommand::NAMES),
        mutable: false,
        help: "who may use DEBUG: nobody, connections from this machine, everybody",
        field: field!(enable_debug_command),
    },
    Directive {
        name: "enable-protected-configs",
        group: Group::General,
        default: "no",
        kind: Kind::Choice(DebugCommand::NAMES),
        mutable: false,
        help: "who may change dir and dbfilename with CONFIG SET: nobody, connections from this machine, everybody",
        field: field!(enable_protected_configs),
    },
    Directive {
        name: "disable-thp",
        group: Group::General,
        default: "yes",
        kind: Kind::YesNo,
        mutable: false,
        help: "do without huge pages, whose clearing stops a shard for milliseconds",
        field: field!(disable_thp),
    },
    Directive {
        name: "redis-version",
        group: Group::General,
        default: RedisVersion::DEFAULT_TEXT,
        kind: Kind::Text,
        mutable: false,
        help: "the version of Redis that clients, scripts and snapshots are told",
        field: field!(redis_version),
    },
    Directive {
        name: "requirepass",
        group: Group::Security,
        default: "",
        kind: Kind::Secret,
        mutable: true,
        help: "password of the default user, which clients send with AUTH; empty = none",
        field: field!(requirepass),
    },
    Directive {
        name: "aclfile",
        group: Group::Security,
        default: "",
        kind: Kind::Text,
        mutable: false,
        help: "file with users, for ACL LOAD and ACL SAVE; empty = `user` lines of the configuration",
        field: field!(aclfile),
    },
    Directive {
        name: "acl-pubsub-default",
        group: Group::Security,
        default: "resetchannels",
        kind: Kind::Choice(ChannelsOfUsers::NAMES),
        mutable: true,
        help: "which channels a new user may use: allchannels, or none",
        field: field!(acl_pubsub_default),
    },
    Directive {
        name: "auth-timeout",
        group: Group::Security,
        default: "60",
        kind: Kind::Integer { min: 0, max: I32_MAX, unit: "s" },
        mutable: true,
        help: "where a password is asked for, time after which a client is disconnected that has not sent it; 0 = never",
        field: field!(auth_timeout_s),
    },
    Directive {
        name: "auth-slowdown",
        group: Group::Security,
        default: "remote",
        kind: Kind::Choice(AuthSlowdown::NAMES),
        mutable: true,
        help: "addresses from which 20 wrong passwords have come wait a second for each further try: none, those that are not \
               of this machine, all",
        field: field!(auth_slowdown),
    },
    Directive {
        name: "acllog-max-len",
        group: Group::Security,
        default: "128",
        kind: Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" },
        mutable: true,
        help: "refusals that ACL LOG keeps",
        field: field!(acllog_max_len),
    },
    Directive {
        name: "proto-max-bulk-len",
        group: Group::Limits,
        default: "512mb",
        kind: Kind::Memory { min: MIB, max: GIB },
        mutable: true,
        help: "longest single argument of a command",
        field: field!(limits.string_bytes),
    },
    Directive {
        name: "client-query-buffer-limit",
        group: Group::Limits,
        default: "1gb",
        kind: Kind::Memory { min: MIB, max: 2 * GIB },
        mutable: true,
        help: "unprocessed input a client may accumulate before it is disconnected",
        field: field!(client_query_buffer_limit_bytes),
    },
    Directive {
        name: "client-output-buffer-limit",
        group: Group::Limits,
        default: "normal 0 0 0 slave 256mb 64mb 60 pubsub 32mb 8mb 60",
        kind: Kind::OutputLimits,
        mutable: true,
        help: "unread output before a client is disconnected, by class: hard limit, soft limit, seconds above the soft one; 0 = none",
        field: field!(client_output_buffer_limit),
    },
    Directive {
        name: "tracking-table-max-keys",
        group: Group::Limits,
        default: "1000000",
        kind: Kind::Integer { min: 0, max: I64_MAX, unit: "" },
        mutable: true,
        help: "keys whose readers CLIENT TRACKING remembers; 0 = no limit",
        field: field!(tracking_table_max_keys),
    },
    Directive {
        name: "live-interval-ms",
        group: Group::Events,
        default: "50",
        kind: Kind::Integer { min: 1, max: 60000, unit: "ms" },
        mutable: true,
        help: "shortest time between two results of a live query",
        field: field!(live_interval_ms),
    },
    Directive {
        name: "notify-keyspace-events",
        group: Group::Events,
        default: "",
        kind: Kind::NotifyFlags,
        mutable: true,
        help: "events to publish: K, E, and S, T, I, V with the elements they are about; with classes out of g$lshzxetdmnoc, A = g$lshzxetd; empty = none",
        field: field!(notify_keyspace_events),
    },
    Directive {
        name: "slowlog-log-slower-than",
        group: Group::Observation,
        default: "10000",
        kind: Kind::Signed { min: -1, max: i64::MAX },
        mutable: true,
        help: "microseconds after which a command is put into the slow log; 0 = all, -1 = none",
        field: field!(slowlog_log_slower_than_us),
    },
    Directive {
        name: "slowlog-max-len",
        group: Group::Observation,
        default: "128",
        kind: Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" },
        mutable: true,
        help: "commands that the slow log keeps, as long as they take less than 64 MB a shard",
        field: field!(slowlog_max_len),
    },
    Directive {
        name: "latency-monitor-threshold",
        group: Group::Observation,
        default: "0",
        kind: Kind::Integer { min: 0, max: i64::MAX as u64, unit: "ms" },
        mutable: true,
        help: "milliseconds after which an event is counted for LATENCY LATEST and HISTORY; 0 = none",
        field: field!(latency_monitor_threshold_ms),
    },
    Directive {
        name: "latency-tracking",
        group: Group::Observation,
        default: "yes",
        kind: Kind::YesNo,
        mutable: true,
        help: "keep a histogram of how long each command takes",
        field: field!(latency_tracking),
    },
    Directive {
        name: "latency-tracking-info-percentiles",
        group: Group::Observation,
        default: "50 99 99.9",
        kind: Kind::Numbers { count: 0, min: 0, max: 100 },
        mutable: true,
        help: "percentiles of these histograms that INFO shows",
        field: field!(latency_percentiles),
    },
    Directive {
        name: "busy-reply-threshold",
        group: Group::Scripts,
        default: "5000",
        kind: Kind::Integer { min: 0, max: i64::MAX as u64, unit: "ms" },
        mutable: true,
        help: "milliseconds after which a script that still runs is in the way of others, who are told BUSY",
        field: field!(busy_reply_threshold_ms),
    },
    Directive {
        name: "busy-script-scope",
        group: Group::Scripts,
        default: "keys",
        kind: Kind::Choice(ScriptScope::NAMES),
        mutable: true,
        help: "who is told BUSY by then: those who need the keys that it holds, or, as in Redis, everybody",
        field: field!(busy_script_scope),
    },
    Directive {
        name: "script-undeclared-keys",
        group: Group::Scripts,
        default: "allow",
        kind: Kind::Choice(UndeclaredKeys::NAMES),
        mutable: true,
        help: "what becomes of scripts that touch keys which they have not declared: with several shards they hold everything, or the command is refused",
        field: field!(script_undeclared_keys),
    },
    Directive {
        name: "script-memory-limit",
        group: Group::Scripts,
        default: "1gb",
        kind: Kind::Memory { min: MIB, max: 64 * GIB },
        mutable: true,
        help: "memory that the scripts of one shard may use, and its functions",
        field: field!(script_memory_bytes),
    },
    Directive {
        name: "script-instruction-limit",
        group: Group::Scripts,
        default: "0",
        kind: Kind::Integer { min: 0, max: i64::MAX as u64, unit: "" },
        mutable: true,
        help: "Lua instructions after which a script is ended, counted in tens of thousands; 0 = no limit",
        field: field!(script_instructions),
    },
    Directive {
        name: "lua-enable-deprecated-api",
        group: Group::Scripts,
        default: "no",
        kind: Kind::YesNo,
        mutable: false,
        help: "let scripts see `getfenv`, `setfenv` and `newproxy`, by which they can change what other code of theirs sees",
        field: field!(lua_enable_deprecated_api),
    },
];

#[cfg(test)]
mod tests;
