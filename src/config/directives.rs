//! The table: one row a directive. It drives parsing, `CONFIG GET`, `SET` and `REWRITE`, `--help` and the README. Rows
//! of `redis.rs` are about what is not there; the others act.

use super::directive::{Directive, Field, Group};
use super::eviction::MaxmemoryPolicy;
use super::redis;
use super::shutdown::ShutdownFlags;
use super::types::{
    Choice, DebugCommand, Fsync, LogLevel, Network, PinShards, PipelineOrder, ScriptScope, UndeclaredKeys,
};
use super::values::{Kind, Setting};
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

macro_rules! field {
    ($($name:tt).+) => {
        Field::Own {
            show: |config| config.$($name).+.show(),
            line: |config, kind| config.$($name).+.line(kind),
            read: |config, kind, args| Setting::read(&mut config.$($name).+, kind, args),
        }
    };
}

const MIB: u64 = 1 << 20;
/// Upper bounds: arguments are found by 32-bit positions in a request.
const GIB: u64 = 1 << 30;
/// Redis keeps these in a signed 32-bit integer.
const SECONDS_MAX: u64 = i32::MAX as u64;

const ENTRIES_MAX: u64 = i64::MAX as u64;
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
    let mut all = [OWN[0]; OWN.len() + redis::ROWS.len()];
    let mut at = 1;
    while at < all.len() {
        all[at] = if at < OWN.len() { OWN[at] } else { redis::ROWS[at - OWN.len()] };
        at += 1;
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
        kind: Kind::Integer { min: 0, max: SECONDS_MAX, unit: "" },
        mutable: false,
        help: "connections that may wait to be accepted",
        field: field!(tcp_backlog),
    },
    Directive {
        name: "tcp-keepalive",
        group: Group::Network,
        default: "300",
        kind: Kind::Integer { min: 0, max: SECONDS_MAX, unit: "s" },
        mutable: true,
        help: "silence after which a connection is probed; 0 = never",
        field: field!(tcp_keepalive_s),
    },
    Directive {
        name: "timeout",
        group: Group::Network,
        default: "0",
        kind: Kind::Integer { min: 0, max: SECONDS_MAX, unit: "s" },
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
        help: "sockets: a ring of our own (Linux 6.1 or newer), glommio's, or the ring where it is to be had",
        field: field!(network),
    },
    Directive {
        name: "spin-us",
        group: Group::Network,
        default: "0",
        kind: Kind::Integer { min: 0, max: 1000, unit: "us" },
        mutable: true,
        help: "how long a shard's ring looks for something to come before it sleeps: latency for CPU",
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
        kind: Kind::Only {
            value: "no",
            like: &Kind::YesNo,
            why: "running in the background is not available yet: start it under a supervisor such as systemd, with daemonize no",
        },
        mutable: false,
        help: "go into the background",
        field: Field::Kept,
    },
    Directive {
        name: "supervised",
        group: Group::General,
        default: "no",
        kind: Kind::Only {
            value: "no",
            like: &Kind::Choice(&["upstart", "systemd", "auto", "no"]),
            why: "talking to a supervisor is not available yet: it runs in the foreground, which systemd and upstart accept with supervised no",
        },
        mutable: false,
        help: "tell the supervisor when it is ready",
        field: Field::Kept,
    },
    Directive {
        name: "pidfile",
        group: Group::General,
        default: "",
        kind: Kind::Text,
        mutable: false,
        help: "file that holds the process id while it runs; empty = none",
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
        help: "password that clients send with AUTH; empty = none",
        field: field!(requirepass),
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
        kind: Kind::Integer { min: 0, max: ENTRIES_MAX, unit: "" },
        mutable: true,
        help: "keys whose readers CLIENT TRACKING remembers; 0 = no limit",
        field: field!(tracking_table_max_keys),
    },
    Directive {
        name: "notify-keyspace-events",
        group: Group::Events,
        default: "",
        kind: Kind::NotifyFlags,
        mutable: true,
        help: "events to publish: K and/or E, with classes out of g$lshzxetdmn, A = g$lshzxetd; empty = none",
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
    Directive {
        name: "active-expire-enabled",
        group: Group::Expiry,
        default: "yes",
        kind: Kind::YesNo,
        mutable: true,
        help: "delete dead keys in the background; access never shows a dead key either way",
        field: field!(active_expire_enabled),
    },
    Directive {
        name: "active-expire-interval-ms",
        group: Group::Expiry,
        default: "10",
        kind: Kind::Integer { min: 0, max: 60000, unit: "ms" },
        mutable: true,
        help: "time after which expiry goes on that had no time for all that was due; 0 = no automatic cycle",
        field: field!(active_expire_interval_ms),
    },
    Directive {
        name: "active-expire-cpu-percent",
        group: Group::Expiry,
        default: "25",
        kind: Kind::Integer { min: 1, max: 99, unit: "percent" },
        mutable: true,
        help: "share of a shard's time that expiry may use",
        field: field!(active_expire_cpu_percent),
    },
    Directive {
        name: "active-expire-fast-us",
        group: Group::Expiry,
        default: "1000",
        kind: Kind::Integer { min: 0, max: 100000, unit: "us" },
        mutable: true,
        help: "longest fast cycle, run before a shard sleeps if the last cycle ran out of time; 0 = none",
        field: field!(active_expire_fast_us),
    },
    Directive {
        name: "active-expire-sample-size",
        group: Group::Expiry,
        default: "20",
        kind: Kind::Integer { min: 1, max: 1000, unit: "" },
        mutable: true,
        help: "keys with a deadline looked at in one random sample",
        field: field!(active_expire_sample_size),
    },
    Directive {
        name: "active-expire-acceptable-stale",
        group: Group::Expiry,
        default: "10",
        kind: Kind::Integer { min: 0, max: 100, unit: "percent" },
        mutable: true,
        help: "share of dead keys in a sample above which the cycle goes on",
        field: field!(active_expire_acceptable_stale_percent),
    },
    Directive {
        name: "active-expire-effort",
        group: Group::Expiry,
        default: "1",
        kind: Kind::Integer { min: 1, max: 10, unit: "" },
        mutable: true,
        help: "one knob for the four rows above: sets those that nobody has set explicitly",
        field: field!(active_expire_effort),
    },
    Directive {
        name: "expiry-policy",
        group: Group::Expiry,
        default: "",
        kind: Kind::ExpiryPolicy,
        mutable: false,
        help: "a prefix and what holds for the deadlines of its keys, such as `sessions: 30m SLIDING`, a line for each \
               prefix; `EXPIRY POLICY` shows and changes them",
        field: field!(expiry_policies),
    },
    Directive {
        name: "expiry-event-value-limit",
        group: Group::Expiry,
        default: "64kb",
        kind: Kind::Memory { min: 0, max: 16 * MIB },
        mutable: true,
        help: "bytes of a key and its value up to which the streams of policies with WITHVALUE get what has died",
        field: field!(expiry_event_value_bytes),
    },
    Directive {
        name: "hash-max-listpack-entries",
        group: Group::Packing,
        default: "512",
        kind: Kind::Integer { min: 0, max: ENTRIES_MAX, unit: "" },
        mutable: true,
        help: "hashes with more fields than this are not packed",
        field: field!(limits.hash.entries),
    },
    Directive {
        name: "hash-max-listpack-value",
        group: Group::Packing,
        default: "64",
        kind: Kind::Memory { min: 0, max: GIB },
        mutable: true,
        help: "hashes with a longer field or value than this are not packed",
        field: field!(limits.hash.value_bytes),
    },
    Directive {
        name: "list-max-listpack-size",
        group: Group::Packing,
        default: "-2",
        kind: Kind::Signed { min: i32::MIN as i64, max: i32::MAX as i64 },
        mutable: true,
        help: "elements packed together in a list; -1 to -5: 4, 8, 16, 32 or 64 KiB",
        field: field!(limits.list_size),
    },
    Directive {
        name: "list-compress-depth",
        group: Group::Packing,
        default: "0",
        kind: Kind::Integer { min: 0, max: i32::MAX as u64, unit: "" },
        mutable: true,
        help: "compress all of a new list but so many packs at either end; 0 = nothing",
        field: field!(limits.list_compress_depth),
    },
    Directive {
        name: "set-max-intset-entries",
        group: Group::Packing,
        default: "512",
        kind: Kind::Integer { min: 0, max: ENTRIES_MAX, unit: "" },
        mutable: true,
        help: "sets of integers with more members than this are not packed",
        field: field!(limits.intset_entries),
    },
    Directive {
        name: "set-max-listpack-entries",
        group: Group::Packing,
        default: "128",
        kind: Kind::Integer { min: 0, max: ENTRIES_MAX, unit: "" },
        mutable: true,
        help: "sets with more members than this are not packed",
        field: field!(limits.set.entries),
    },
    Directive {
        name: "set-max-listpack-value",
        group: Group::Packing,
        default: "64",
        kind: Kind::Memory { min: 0, max: GIB },
        mutable: true,
        help: "sets with a longer member than this are not packed",
        field: field!(limits.set.value_bytes),
    },
    Directive {
        name: "zset-max-listpack-entries",
        group: Group::Packing,
        default: "128",
        kind: Kind::Integer { min: 0, max: ENTRIES_MAX, unit: "" },
        mutable: true,
        help: "sorted sets with more members than this are not packed",
        field: field!(limits.zset.entries),
    },
    Directive {
        name: "zset-max-listpack-value",
        group: Group::Packing,
        default: "64",
        kind: Kind::Memory { min: 0, max: GIB },
        mutable: true,
        help: "sorted sets with a longer member than this are not packed",
        field: field!(limits.zset.value_bytes),
    },
    Directive {
        name: "stream-node-max-bytes",
        group: Group::Packing,
        default: "4kb",
        kind: Kind::Memory { min: 0, max: GIB },
        mutable: true,
        help: "bytes of entries kept together in a stream; 0 = no limit",
        field: field!(limits.stream_node_bytes),
    },
    Directive {
        name: "stream-node-max-entries",
        group: Group::Packing,
        default: "100",
        kind: Kind::Integer { min: 0, max: ENTRIES_MAX, unit: "" },
        mutable: true,
        help: "entries kept together in a stream; 0 = no limit",
        field: field!(limits.stream_node_entries),
    },
    Directive {
        name: "hll-sparse-max-bytes",
        group: Group::Packing,
        default: "3000",
        kind: Kind::Memory { min: 0, max: GIB },
        mutable: true,
        help: "a HyperLogLog that would need more bytes than this to be sparse is dense",
        field: field!(limits.hll_sparse_bytes),
    },
    Directive {
        name: "save",
        group: Group::Snapshots,
        default: "",
        kind: Kind::SavePoints,
        mutable: true,
        help: "seconds and changes after which a snapshot is written, as in `3600 1 300 100`; each line adds some, an empty one clears them",
        field: field!(save),
    },
    Directive {
        name: "stop-writes-on-bgsave-error",
        group: Group::Snapshots,
        default: "yes",
        kind: Kind::YesNo,
        mutable: true,
        help: "refuse writes after one has failed that was written by itself, until another succeeds",
        field: field!(stop_writes_on_bgsave_error),
    },
    Directive {
        name: "shutdown-on-sigint",
        group: Group::Snapshots,
        default: "default",
        kind: Kind::Words(ShutdownFlags::WORDS),
        mutable: true,
        help: "what that signal means: save before the end, where there are save points or always or never, and end where that fails",
        field: field!(shutdown_on_sigint),
    },
    Directive {
        name: "shutdown-on-sigterm",
        group: Group::Snapshots,
        default: "default",
        kind: Kind::Words(ShutdownFlags::WORDS),
        mutable: true,
        help: "the same for the signal that service managers send",
        field: field!(shutdown_on_sigterm),
    },
    Directive {
        name: "dbfilename",
        group: Group::Snapshots,
        default: "dump.rdb",
        kind: Kind::FileName,
        mutable: true,
        help: "the file that SAVE writes, and that is loaded at the start, in the folder of dir",
        field: field!(dbfilename),
    },
    Directive {
        name: "rdbcompression",
        group: Group::Snapshots,
        default: "yes",
        kind: Kind::YesNo,
        mutable: true,
        help: "compress its strings of more than 20 bytes where that makes them shorter",
        field: field!(rdbcompression),
    },
    Directive {
        name: "rdbchecksum",
        group: Group::Snapshots,
        default: "yes",
        kind: Kind::YesNo,
        mutable: false,
        help: "end it with its checksum, and look at that of what is loaded",
        field: field!(rdbchecksum),
    },
    Directive {
        name: "rdb-save-incremental-fsync",
        group: Group::Snapshots,
        default: "yes",
        kind: Kind::YesNo,
        mutable: true,
        help: "bring it to the disk piece by piece",
        field: field!(rdb_save_incremental_fsync),
    },
    Directive {
        name: "repl-timeout",
        group: Group::Snapshots,
        default: "60",
        kind: Kind::Integer { min: 1, max: SECONDS_MAX, unit: "s" },
        mutable: true,
        help: "time without reading after which a connection is closed that has asked for a snapshot (SYNC)",
        field: field!(repl_timeout_s),
    },
    Directive {
        name: "expired-while-down",
        group: Group::Snapshots,
        default: "yes",
        kind: Kind::YesNo,
        mutable: true,
        help: "tell of keys that died between the snapshot and the start, as soon as connections are served; else they are left out",
        field: field!(expired_while_down),
    },
    Directive {
        name: "appendonly",
        group: Group::Log,
        default: "no",
        kind: Kind::YesNo,
        mutable: true,
        help: "keep a log of every change, from which everything is there again after a restart or a crash",
        field: field!(appendonly),
    },
    Directive {
        name: "appendfsync",
        group: Group::Log,
        default: "everysec",
        kind: Kind::Choice(Fsync::NAMES),
        mutable: true,
        help: "when it is on the disk for certain: before a change is acknowledged, a second later, or when the system writes it",
        field: field!(appendfsync),
    },
    Directive {
        name: "appendfilename",
        group: Group::Log,
        default: "appendonly.aof",
        kind: Kind::FileName,
        mutable: false,
        help: "begin of the names of its files",
        field: field!(appendfilename),
    },
    Directive {
        name: "appenddirname",
        group: Group::Log,
        default: "appendonlydir",
        kind: Kind::FileName,
        mutable: false,
        help: "the folder of its files, in the folder of dir",
        field: field!(appenddirname),
    },
    Directive {
        name: "no-appendfsync-on-rewrite",
        group: Group::Log,
        default: "no",
        kind: Kind::YesNo,
        mutable: true,
        help: "leave everysec out while it is rewritten",
        field: field!(no_appendfsync_on_rewrite),
    },
    Directive {
        name: "auto-aof-rewrite-percentage",
        group: Group::Log,
        default: "100",
        kind: Kind::Integer { min: 0, max: ENTRIES_MAX, unit: "" },
        mutable: true,
        help: "growth since it was rewritten, in percent, after which it is rewritten again; 0 = never",
        field: field!(auto_aof_rewrite_percentage),
    },
    Directive {
        name: "auto-aof-rewrite-min-size",
        group: Group::Log,
        default: "64mb",
        kind: Kind::Memory { min: 0, max: u64::MAX / 2 },
        mutable: true,
        help: "size below which it is not",
        field: field!(auto_aof_rewrite_min_size),
    },
    Directive {
        name: "aof-load-truncated",
        group: Group::Log,
        default: "yes",
        kind: Kind::YesNo,
        mutable: true,
        help: "begin with a log whose end a crash has torn, without that end",
        field: field!(aof_load_truncated),
    },
    Directive {
        name: "aof-load-corrupt-tail-max-size",
        group: Group::Log,
        default: "0",
        kind: Kind::Memory { min: 0, max: u64::MAX / 2 },
        mutable: true,
        help: "begin with a log that is damaged, without what stands there and behind it, where that is not longer; 0 = never",
        field: field!(aof_load_corrupt_tail_max_size),
    },
    Directive {
        name: "aof-use-rdb-preamble",
        group: Group::Log,
        default: "yes",
        kind: Kind::YesNo,
        mutable: true,
        help: "begin a rewritten log with a snapshot, which is shorter and loaded sooner; else with commands",
        field: field!(aof_use_rdb_preamble),
    },
    Directive {
        name: "aof-timestamp-enabled",
        group: Group::Log,
        default: "no",
        kind: Kind::YesNo,
        mutable: true,
        help: "write the time into it, a line a second in which something changes, for redis-check-aof --truncate-to-timestamp",
        field: field!(aof_timestamp_enabled),
    },
    Directive {
        name: "aof-rewrite-incremental-fsync",
        group: Group::Log,
        default: "yes",
        kind: Kind::YesNo,
        mutable: true,
        help: "bring a rewritten log to the disk piece by piece",
        field: field!(aof_rewrite_incremental_fsync),
    },
    Directive {
        name: "maxmemory",
        group: Group::Eviction,
        default: "0",
        kind: Kind::Amount,
        mutable: true,
        help: "memory of the process beyond which keys are evicted or writes refused; a part is one of the machine's, or of its control group's; 0 = no limit",
        field: field!(maxmemory),
    },
    Directive {
        name: "maxmemory-clients",
        group: Group::Eviction,
        default: "0",
        kind: Kind::Amount,
        mutable: true,
        help: "memory of all connections beyond which those that hold most are ended; a part is one of maxmemory; 0 = no limit",
        field: field!(maxmemory_clients),
    },
    Directive {
        name: "maxmemory-policy",
        group: Group::Eviction,
        default: "noeviction",
        kind: Kind::Choice(MaxmemoryPolicy::NAMES),
        mutable: true,
        help: "which keys go where it is reached: all or those with deadlines, the least recently used or modified, the least frequently used, any, or those that die first",
        field: field!(maxmemory_policy),
    },
    Directive {
        name: "maxmemory-samples",
        group: Group::Eviction,
        default: "5",
        kind: Kind::Integer { min: 1, max: 64, unit: "" },
        mutable: true,
        help: "how many keys are compared for one that goes: three for each of these",
        field: field!(maxmemory_samples),
    },
    Directive {
        name: "maxmemory-eviction-tenacity",
        group: Group::Eviction,
        default: "10",
        kind: Kind::Integer { min: 0, max: 100, unit: "" },
        mutable: true,
        help: "how long a command may be kept waiting by evictions: 50 us for each of the first ten, 15 % more for each beyond, 100 = without limit",
        field: field!(maxmemory_eviction_tenacity),
    },
    Directive {
        name: "lfu-log-factor",
        group: Group::Eviction,
        default: "10",
        kind: Kind::Integer { min: 0, max: SECONDS_MAX, unit: "" },
        mutable: true,
        help: "how slowly the count of a key's uses grows",
        field: field!(lfu_log_factor),
    },
    Directive {
        name: "lfu-decay-time",
        group: Group::Eviction,
        default: "1",
        kind: Kind::Integer { min: 0, max: SECONDS_MAX, unit: "min" },
        mutable: true,
        help: "minutes after which that count is lowered by one; 0 = never",
        field: field!(lfu_decay_time_min),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn names_are_unique_and_plain() {
        for (index, row) in DIRECTIVES.iter().enumerate() {
            let plain = |letter: char| letter.is_ascii_lowercase() || matches!(letter, '-' | '_');
            assert!(row.name.chars().all(plain), "{}", row.name);
            let same = |other: &Directive| other.name == row.name;
            assert!(!DIRECTIVES[..index].iter().any(same), "{}", row.name);
        }
    }

    #[test]
    fn groups_stand_together() {
        let mut seen: Vec<Group> = Vec::new();
        for row in DIRECTIVES {
            if seen.last() != Some(&row.group) {
                assert!(!seen.contains(&row.group), "{} stands apart", row.name);
                seen.push(row.group);
            }
        }
    }

    #[test]
    fn each_has_help_on_one_line() {
        for row in DIRECTIVES {
            assert!(row.help.len() > 10, "{}", row.name);
            assert!(!row.help.contains(['\n', '|']), "{}", row.name);
            assert!(!row.help.ends_with('.'), "{}", row.name);
        }
    }

    #[test]
    fn each_default_parses_and_prints_back_to_itself() {
        for row in DIRECTIVES {
            let mut config = Config::default();
            row.read(&mut config, &row.split(row.default)).unwrap_or_else(|error| panic!("{}: {error}", row.name));
            let line = row.line(&config).replace("\"\"", "");
            assert_eq!(line.replace('"', ""), format!("{} {}", row.name, row.default));

            let shown = row.show(&config);
            row.read(&mut config, &row.split(&shown)).unwrap_or_else(|error| panic!("{} {shown}: {error}", row.name));
            assert_eq!(row.show(&config), shown);
        }
    }

    /// A row whose `field!` names another row's field would pass every test above.
    #[test]
    fn no_two_rows_share_a_field() {
        let other = |row: &Directive| match row.kind {
            Kind::Integer { max, .. } => Some(max.to_string()),
            Kind::Signed { max, .. } => Some(max.to_string()),
            Kind::Memory { .. } => Some("7mb".to_string()),
            Kind::YesNo if row.default == "yes" => Some("no".to_string()),
            Kind::Octal => Some("755".to_string()),
            Kind::YesNo => Some("yes".to_string()),
            Kind::Choice(names) => names.iter().find(|name| **name != row.default).map(|name| name.to_string()),
            Kind::Text | Kind::Secret | Kind::FileName | Kind::Addresses => Some("elsewhere".to_string()),
            Kind::OutputLimits => Some("normal 1 2 3".to_string()),
            Kind::NotifyFlags => Some("KEA".to_string()),
            Kind::Numbers { count: 0, .. } => Some("1 2".to_string()),
            Kind::Numbers { .. } => Some("1 2 3".to_string()),
            Kind::Words(names) => names.last().map(|name| name.to_string()),
            Kind::ExpiryPolicy => Some("a: 1h".to_string()),
            Kind::Amount => Some("75%".into()),
            Kind::SavePoints => Some("60 1".into()),
            Kind::Only { .. } => None,
        };
        for row in DIRECTIVES {
            let Some(value) = other(row) else { continue };
            let before = Config::default();
            let mut after = Config::default();
            row.read(&mut after, &row.split(&value)).unwrap();
            let changed: Vec<_> =
                DIRECTIVES.iter().filter(|row| row.show(&before) != row.show(&after)).map(|row| row.name).collect();
            assert_eq!(changed, [row.name]);
        }
    }

    #[test]
    fn find_ignores_case() {
        assert_eq!(find("TCP-Backlog").unwrap().name, "tcp-backlog");
        assert!(find("tcp_backlog").is_none());
        assert!(find("").is_none());
    }
}
