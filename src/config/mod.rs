//! What the operator decides: one table of directives, read from a file, from flags and from `CONFIG SET`.
//!
//! ```text
//!   redis.conf ──┐ words                          ┌── CONFIG GET      get
//!   --name value ├──────► DIRECTIVES ──► Config ──┤
//!   CONFIG SET ──┘        one row each            └── CONFIG REWRITE  rewrite
//!                              └──► --help, --generate
//! ```
//!
//! A new directive is a field of [`Config`] and a row in `directives.rs`, and the row in `redis.rs` is gone that said it
//! was not there; nothing else knows the names.
//!
//! | file | what |
//! |---|---|
//! | `policies.rs` | all expiry policies |
//! | `words.rs` | words as one run of bytes, for files of data |
//! | `rewrite.rs` | `CONFIG REWRITE` |
//! | `file.rs` | the syntax of redis.conf and of the command line; errors at start |
//! | `users.rs` | the `user` lines |
//! | `summary.rs` | what matters of all of it, for `--check` and the log |
//! | `generate/` | `--generate`: pages, man pages, completions, a file for packages |
//! | `help.rs` | `--help` |
//! | `directives.rs` | the table |
//! | `data_rows.rs` | its rows about deadlines, the forms of collections, and memory |
//! | `durability_rows.rs`, `tls_rows.rs`, `replication_rows.rs` | its rows about snapshots and the log, TLS, and replication |
//! | `redis.rs` | its rows about what Redis has and we have not |
//! | `directive.rs` | what a row is |
//! | `eviction.rs` | amounts of memory, and which keys go where it is short |
//! | `primary.rs` | the server that is followed |
//! | `save_points.rs`, `shutdown.rs` | when snapshots are written by themselves; what is done before the end |
//! | `version.rs` | the version of Redis that clients are told |
//! | `tls.rs` | what is said of TLS |
//! | `types.rs` | values with a shape of their own: log levels, event flags, output limits |
//! | `values.rs` | how a value is parsed, bounded and printed: numbers, memory sizes, booleans, choices |
//! | `policy.rs` | an expiry policy |
//! | `duration.rs` | durations with units, such as `1.5h` |
//! | `nearest.rs` | "Did you mean ...?" |
//!
//! Invariants: a value in a `Config` has passed the bounds of its row; `CONFIG SET` applies all of its pairs or
//! none; what nobody set explicitly follows its default, or `active-expire-effort` where that governs it.

mod data_rows;
mod directive;
mod directives;
mod durability_rows;
mod duration;
mod eviction;
mod file;
mod generate;
mod help;
mod nearest;
mod policies;
mod policy;
mod primary;
mod redis;
mod replication_rows;
mod rewrite;
mod save_points;
mod shutdown;
mod summary;
mod tls;
mod tls_rows;
mod types;
mod users;
mod values;
mod version;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub use directive::{Directive, Group};
pub use directives::{DIRECTIVES, SHARDS_MAX};
pub use duration::{LONGEST_MS as LONGEST_DURATION_MS, format_duration, parse_duration};
pub use eviction::{Amount, EvictionOrder, MaxmemoryPolicy};
pub use file::{Place, Reason, Start, StartError, load, split_arguments};
pub use generate::generate;
pub use policies::Policies;
pub use policy::{DeathStream, Policy, PolicyError};
pub use primary::{Follows, Primary};
pub use rewrite::{RewriteError, replace_file};
pub use save_points::{SavePoint, SavePoints};
pub use shutdown::ShutdownFlags;
pub use summary::summary;
pub use tls::{AuthClients, Ciphers, Protocols, Tls};
pub use types::{
    AuthSlowdown, ChannelsOfUsers, CompatVersion, DebugCommand, DisklessLoad, FileMode, Fsync, LogLevel, Network,
    NotifyFlags, OutputLimit, OutputLimits, Percentiles, PinShards, PipelineOrder, ScriptScope, Supervised,
    UndeclaredKeys,
};
pub use users::{UserLine, UserLines};
pub use values::{Kind, ValueError, escape, parse_memory, quote};
pub use version::RedisVersion;
pub use words::{join_words, split_words};

/// Every directive's present value. Field names are the directives' names, units last.
#[derive(Clone, Debug)]
pub struct Config {
    pub bind: Vec<String>,
    /// 0: no TCP listener.
    pub port: u16,
    pub metrics_bind: Vec<String>,
    /// 0: no listener for metrics.
    pub metrics_port: u16,
    pub metrics_tls: bool,
    /// Empty: none.
    pub unixsocket: String,
    pub unixsocketperm: FileMode,
    pub tcp_backlog: u32,
    /// 0: off.
    pub tcp_keepalive_s: u64,
    /// Idle time after which a client is disconnected; 0: never.
    pub timeout_s: u64,
    pub maxclients: u32,
    /// From the connection to the end of AUTH, where a password is asked for; 0: for ever.
    pub auth_timeout_s: u64,
    pub auth_slowdown: AuthSlowdown,
    pub protected_mode: bool,

    /// 0: as many as the process may use cores.
    pub shards: usize,
    pub databases: usize,
    pub daemonize: bool,
    pub supervised: Supervised,
    pub pidfile: String,
    pub loglevel: LogLevel,
    /// Empty: standard output.
    pub logfile: String,
    /// As it was written. Who changes the process's directory may store the absolute path here.
    pub dir: String,
    pub network: Network,
    pub pin_shards: PinShards,
    pub spin_us: u64,
    pub hz: u32,
    pub pipeline_order: PipelineOrder,
    pub enable_debug_command: DebugCommand,
    pub enable_protected_configs: DebugCommand,
    pub disable_thp: bool,
    pub redis_version: RedisVersion,

    pub tls: Tls,

    /// Empty: no password.
    pub requirepass: String,
    /// Empty: users stand in the configuration.
    pub aclfile: String,
    /// Which channels a new user may use.
    pub acl_pubsub_default: ChannelsOfUsers,
    /// Refusals that ACL LOG keeps.
    pub acllog_max_len: u64,
    pub users: UserLines,

    pub limits: Limits,
    pub client_query_buffer_limit_bytes: usize,
    pub client_output_buffer_limit: OutputLimits,

    /// 0 bytes: no ceiling.
    pub save: SavePoints,
    pub stop_writes_on_bgsave_error: bool,
    pub shutdown_on_sigint: ShutdownFlags,
    pub shutdown_on_sigterm: ShutdownFlags,
    pub dbfilename: String,
    pub rdbcompression: bool,
    pub rdbchecksum: bool,
    pub rdb_save_incremental_fsync: bool,
    pub follows: Follows,
    pub masterauth: String,
    pub masteruser: String,
    pub replica_read_only: bool,
    pub replica_serve_stale_data: bool,
    /// A replica evicts nothing.
    pub replica_ignore_maxmemory: bool,
    pub replica_priority: u64,
    pub replica_announced: bool,
    pub replica_announce_ip: String,
    pub replica_announce_port: u16,
    pub repl_disable_tcp_nodelay: bool,
    pub bind_source_addr: String,
    pub repl_timeout_s: u64,
    pub repl_backlog_bytes: u64,
    pub repl_backlog_ttl_s: u64,
    pub repl_diskless_sync: bool,
    pub repl_diskless_sync_delay_s: u64,
    pub repl_diskless_sync_max_replicas: u64,
    pub repl_diskless_load: DisklessLoad,
    pub rdb_key_save_delay_us: i64,
    pub key_load_delay_us: i64,
    pub repl_ping_replica_period_s: u64,
    pub min_replicas_to_write: u64,
    pub min_replicas_max_lag_s: u64,
    pub repl_compat_version: CompatVersion,
    pub shutdown_timeout_s: u64,
    /// What has died while the server was down is told after a snapshot is loaded.
    pub expired_while_down: bool,
    pub appendonly: bool,
    pub appendfsync: Fsync,
    pub appendfilename: String,
    pub appenddirname: String,
    pub no_appendfsync_on_rewrite: bool,
    pub auto_aof_rewrite_percentage: u64,
    pub auto_aof_rewrite_min_size: u64,
    pub aof_load_truncated: bool,
    pub aof_load_corrupt_tail_max_size: u64,
    pub aof_buffer_limit: u64,
    pub aof_use_rdb_preamble: bool,
    pub aof_timestamp_enabled: bool,
    pub aof_rewrite_incremental_fsync: bool,
    pub maxmemory: Amount,
    pub maxmemory_clients: Amount,
    pub maxmemory_policy: MaxmemoryPolicy,
    pub maxmemory_samples: u32,
    pub maxmemory_eviction_tenacity: u32,
    pub lfu_log_factor: u64,
    /// 0: counts of uses do not decay.
    pub lfu_decay_time_min: u64,

    pub notify_keyspace_events: NotifyFlags,

    /// Negative: no command is slow.
    pub slowlog_log_slower_than_us: i64,
    pub slowlog_max_len: u64,
    pub tracking_table_max_keys: u64,
    pub live_interval_ms: u64,
    pub latency_tracking: bool,
    /// 0: no event is counted.
    pub latency_monitor_threshold_ms: u64,
    pub latency_percentiles: Percentiles,

    /// A script that runs for longer is in the way of others.
    pub busy_reply_threshold_ms: u64,
    pub busy_script_scope: ScriptScope,
    pub script_undeclared_keys: UndeclaredKeys,
    /// Of the scripts of one shard, and of its functions.
    pub script_memory_bytes: usize,
    /// Of one run; 0: no limit.
    pub script_instructions: u64,
    /// Scripts see getfenv, setfenv and newproxy.
    pub lua_enable_deprecated_api: bool,

    pub active_expire_enabled: bool,
    /// 0: no automatic cycle.
    pub active_expire_interval_ms: u64,
    pub active_expire_cpu_percent: u32,
    pub active_expire_fast_us: u64,
    pub active_expire_sample_size: u32,
    pub active_expire_acceptable_stale_percent: u32,
    pub active_expire_effort: u32,
    pub expiry_policies: Policies,
    /// No longer value is written to the streams of policies.
    pub expiry_event_value_bytes: usize,

    /// Values without effect, as they are shown.
    kept: BTreeMap<&'static str, String>,
    /// Names set by the file, a flag or `CONFIG SET`.
    explicit: BTreeSet<&'static str>,
    /// The file it was started from, absolute.
    file: Option<PathBuf>,
    /// The directory it was started in. Relative includes count from here, whatever `dir` did since.
    started_in: PathBuf,
    /// What came by the standard input, where the configuration is that.
    pub input: Option<Vec<u8>>,
}

/// What commands on data have to keep to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// The longest string there may be.
    pub string_bytes: usize,
    pub hash: PackLimits,
    pub set: PackLimits,
    pub zset: PackLimits,
    /// Elements of one pack of a list, or its bytes where negative: -1 to -5 are 4 to 64 KiB.
    pub list_size: i32,
    /// Chunks at either end of a list that are not compressed while all others are; 0: none is.
    pub list_compress_depth: u32,
    pub intset_entries: usize,
    /// 0: no limit.
    pub stream_node_bytes: usize,
    pub stream_node_entries: usize,
    /// Bytes from which on a HyperLogLog is dense.
    pub hll_sparse_bytes: usize,
    /// The longest reply of one command on one shard; an error takes the place of a longer one. Nothing else would bound
    /// it: one key may be named a million times.
    pub reply_bytes: usize,
}

/// The longest reply where `client-output-buffer-limit` sets no limit.
const REPLY_BYTES_MAX: usize = 1 << 30;

impl Config {
    /// The folder of the append-only log.
    pub fn log_folder(&self) -> PathBuf {
        Path::new(&self.dir).join(&self.appenddirname)
    }

    /// Bytes of the stream that are kept for replicas, where one is kept.
    pub fn repl_backlog(&self) -> usize {
        usize::try_from(self.repl_backlog_bytes).unwrap_or(usize::MAX)
    }

    /// The limits as far as they can be followed: the members of a pack are counted in 16 bits, and a reply that
    /// no connection may have to read is not written.
    pub fn feasible_limits(&self) -> Limits {
        let mut limits = self.limits;
        for entries in
            [&mut limits.hash.entries, &mut limits.set.entries, &mut limits.zset.entries, &mut limits.intset_entries]
        {
            *entries = (*entries).min(PACKED_ENTRIES_MAX);
        }
        let OutputLimits { normal, pubsub, .. } = self.client_output_buffer_limit;
        limits.reply_bytes = if normal.hard_bytes > 0 && pubsub.hard_bytes > 0 {
            // Those who subscribe with RESP3 have the limit of subscribers, and may send commands.
            normal.hard_bytes.max(pubsub.hard_bytes) as usize
        } else {
            REPLY_BYTES_MAX
        };
        limits
    }
}

const PACKED_ENTRIES_MAX: usize = u16::MAX as usize - 1;

/// Until when a collection is packed.
#[derive(Clone, Copy, Debug, Default)]
pub struct PackLimits {
    /// Members, or fields.
    pub entries: usize,
    /// Bytes of the longest of them, or of their values.
    pub value_bytes: usize,
}

/// Why a `CONFIG SET` changed nothing, in the words of Redis 7. The caller puts `ERR ` before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    #[error("Unknown option or number of arguments for CONFIG SET - '{name}'")]
    Unknown { name: String },
    #[error("CONFIG SET failed (possibly related to argument '{name}') - can't set immutable config")]
    Immutable { name: String },
    #[error("CONFIG SET failed (possibly related to argument '{name}') - can't set protected config")]
    Protected { name: String },
    #[error("CONFIG SET failed (possibly related to argument '{name}') - duplicate parameter")]
    Duplicate { name: String },
    #[error("CONFIG SET failed (possibly related to argument '{name}') - {error}")]
    Value { name: &'static str, error: ValueError },
}

/// Where files are written is for the operator to say, not for whoever found the way in.
const PROTECTED: &[&str] = &["dir", "dbfilename"];

impl Default for Config {
    fn default() -> Config {
        let mut config = Config::blank();
        for directive in DIRECTIVES {
            directive
                .read(&mut config, &directive.split(directive.default))
                .expect("every default in the table is valid: a unit test reads them all");
        }
        config
    }
}

/// What stands in the place of a password wherever others see it.
pub const REDACTED: &str = "(redacted)";

/// Whether nobody is to be shown what the directive of this name says, who has not asked for it.
pub fn is_secret_directive(name: &[u8]) -> bool {
    std::str::from_utf8(name).ok().and_then(directives::find).is_some_and(|directive| directive.kind.is_secret())
}

impl Config {
    /// `CONFIG GET`: the directives whose name `matches`, each once, with the value as Redis prints it. Names are
    /// in lower case, so fold a glob pattern's case before matching.
    pub fn get(&self, matches: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
        self.get_those(|name, _| matches(name))
    }

    pub fn get_those(&self, matches: impl Fn(&str, &Directive) -> bool) -> Vec<(&'static str, String)> {
        DIRECTIVES
            .iter()
            .flat_map(|directive| directives::names(directive).map(move |name| (name, directive)))
            .filter(|(name, directive)| matches(name, directive))
            .map(|(name, directive)| (name, directive.show(self)))
            .collect()
    }

    /// `CONFIG SET` of several pairs, from this machine or not: all or nothing.
    pub fn set(&mut self, pairs: &[(&str, &str)], local: bool) -> Result<(), SetError> {
        // Redis judges every name before the first value, and so decides which error a client sees.
        let mut chosen: Vec<&'static Directive> = Vec::with_capacity(pairs.len());
        for (name, _) in pairs {
            let name = || name.to_string();
            let directive = directives::find(&name()).ok_or_else(|| SetError::Unknown { name: name() })?;
            if !directive.mutable {
                return Err(SetError::Immutable { name: name() });
            }
            if PROTECTED.contains(&directive.name) && !self.enable_protected_configs.allows(local) {
                return Err(SetError::Protected { name: name() });
            }
            if chosen.iter().any(|other| other.name == directive.name) {
                return Err(SetError::Duplicate { name: name() });
            }
            chosen.push(directive);
        }

        let mut changed = self.clone();
        for (directive, (_, value)) in chosen.into_iter().zip(pairs) {
            if matches!(directive.kind, Kind::SavePoints) {
                // Lines of a file add up; this is all of them.
                changed.save = SavePoints::default();
            }
            changed
                .assign(directive, &directive.split(value))
                .map_err(|error| SetError::Value { name: directive.name, error })?;
        }
        *self = changed;
        Ok(())
    }

    /// `CONFIG REWRITE`: brings the file it was started from up to date. Comments, order and lines whose value is
    /// still true stay as they are; what has changed is replaced; what the file does not say and is not implied is
    /// appended. Atomic: after a crash the file is the old one or the new one.
    pub fn rewrite(&self) -> Result<(), RewriteError> {
        rewrite::rewrite(self)
    }

    /// What the file or a flag has set to something else than the default, and has no effect.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let default = Config::default();
        let rows = DIRECTIVES.iter().filter(|row| !row.acts() && row.show(self) != row.show(&default));
        rows.map(|row| row.name).collect()
    }

    /// Whether the file, a flag or `CONFIG SET` has set this directive. Names in lower case.
    pub fn is_explicit(&self, name: &str) -> bool {
        self.explicit.contains(name)
    }

    /// The configuration file it was started from, absolute; none without a file or from standard input.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Sets one directive on somebody's explicit wish.
    fn assign(&mut self, directive: &'static Directive, args: &[&str]) -> Result<(), ValueError> {
        directive.read(self, args)?;
        self.explicit.insert(directive.name);
        self.follow_effort();
        Ok(())
    }

    /// `active-expire-effort` decides the four knobs of the cycle that nobody has set explicitly.
    fn follow_effort(&mut self) {
        let steps = self.active_expire_effort.saturating_sub(1);
        if !self.is_explicit("active-expire-sample-size") {
            self.active_expire_sample_size = 20 + 5 * steps;
        }
        if !self.is_explicit("active-expire-fast-us") {
            self.active_expire_fast_us = 1000 + 250 * u64::from(steps);
        }
        if !self.is_explicit("active-expire-cpu-percent") {
            self.active_expire_cpu_percent = 25 + 2 * steps;
        }
        if !self.is_explicit("active-expire-acceptable-stale") {
            self.active_expire_acceptable_stale_percent = 10u32.saturating_sub(steps);
        }
    }

    /// Before the table's defaults have been read into it.
    fn blank() -> Config {
        Config {
            bind: Vec::new(),
            metrics_bind: Vec::new(),
            metrics_port: 0,
            metrics_tls: false,
            port: 0,
            unixsocket: String::new(),
            unixsocketperm: FileMode::default(),
            tcp_backlog: 0,
            tcp_keepalive_s: 0,
            timeout_s: 0,
            maxclients: 0,
            auth_timeout_s: 0,
            auth_slowdown: AuthSlowdown::No,
            protected_mode: false,
            shards: 0,
            databases: 0,
            supervised: Supervised::No,
            daemonize: false,
            pidfile: String::new(),
            loglevel: LogLevel::Notice,
            logfile: String::new(),
            dir: String::new(),
            network: Network::Auto,
            pin_shards: PinShards::Auto,
            spin_us: 0,
            hz: 0,
            pipeline_order: PipelineOrder::Relaxed,
            enable_debug_command: DebugCommand::No,
            enable_protected_configs: DebugCommand::No,
            disable_thp: false,
            redis_version: RedisVersion::DEFAULT,
            tls: Tls::default(),
            requirepass: String::new(),
            aclfile: String::new(),
            acl_pubsub_default: ChannelsOfUsers::None,
            acllog_max_len: 0,
            users: UserLines::default(),
            limits: Limits::default(),
            client_query_buffer_limit_bytes: 0,
            client_output_buffer_limit: OutputLimits::default(),
            notify_keyspace_events: NotifyFlags::NONE,
            slowlog_log_slower_than_us: 0,
            slowlog_max_len: 0,
            tracking_table_max_keys: 0,
            live_interval_ms: 0,
            latency_tracking: false,
            latency_monitor_threshold_ms: 0,
            latency_percentiles: Percentiles::default(),
            busy_reply_threshold_ms: 0,
            busy_script_scope: ScriptScope::Keys,
            script_undeclared_keys: UndeclaredKeys::Allow,
            script_memory_bytes: 0,
            script_instructions: 0,
            lua_enable_deprecated_api: false,
            save: SavePoints::default(),
            stop_writes_on_bgsave_error: false,
            shutdown_on_sigint: ShutdownFlags::default(),
            shutdown_on_sigterm: ShutdownFlags::default(),
            dbfilename: String::new(),
            rdbcompression: false,
            rdbchecksum: false,
            rdb_save_incremental_fsync: false,
            follows: Follows::default(),
            masterauth: String::new(),
            masteruser: String::new(),
            replica_read_only: false,
            replica_serve_stale_data: false,
            replica_ignore_maxmemory: false,
            replica_priority: 0,
            replica_announced: false,
            replica_announce_ip: String::new(),
            replica_announce_port: 0,
            repl_disable_tcp_nodelay: false,
            bind_source_addr: String::new(),
            repl_timeout_s: 0,
            repl_backlog_bytes: 0,
            repl_backlog_ttl_s: 0,
            repl_diskless_sync: false,
            repl_diskless_sync_delay_s: 0,
            repl_diskless_sync_max_replicas: 0,
            repl_diskless_load: DisklessLoad::Disabled,
            rdb_key_save_delay_us: 0,
            key_load_delay_us: 0,
            repl_ping_replica_period_s: 0,
            min_replicas_to_write: 0,
            min_replicas_max_lag_s: 0,
            repl_compat_version: CompatVersion::default(),
            shutdown_timeout_s: 0,
            expired_while_down: false,
            appendonly: false,
            appendfsync: Fsync::EverySecond,
            appendfilename: String::new(),
            appenddirname: String::new(),
            no_appendfsync_on_rewrite: false,
            auto_aof_rewrite_percentage: 0,
            auto_aof_rewrite_min_size: 0,
            aof_load_truncated: false,
            aof_load_corrupt_tail_max_size: 0,
            aof_buffer_limit: 128 << 20,
            aof_use_rdb_preamble: false,
            aof_timestamp_enabled: false,
            aof_rewrite_incremental_fsync: false,
            maxmemory: Amount::default(),
            maxmemory_clients: Amount::default(),
            maxmemory_policy: MaxmemoryPolicy::default(),
            maxmemory_samples: 0,
            maxmemory_eviction_tenacity: 0,
            lfu_log_factor: 0,
            lfu_decay_time_min: 0,
            active_expire_enabled: false,
            active_expire_interval_ms: 0,
            active_expire_cpu_percent: 0,
            active_expire_fast_us: 0,
            active_expire_sample_size: 0,
            active_expire_acceptable_stale_percent: 0,
            active_expire_effort: 0,
            expiry_policies: Policies::default(),
            expiry_event_value_bytes: 0,
            kept: BTreeMap::new(),
            explicit: BTreeSet::new(),
            file: None,
            started_in: PathBuf::new(),
            input: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(config: &Config, name: &str) -> String {
        let found = config.get(|candidate| candidate == name);
        assert_eq!(found.len(), 1, "{name}");
        found[0].1.clone()
    }

    fn refused(pairs: &[(&str, &str)]) -> String {
        Config::default().set(pairs, false).unwrap_err().to_string()
    }

    #[test]
    fn set_then_get() {
        let mut config = Config::default();
        config.set(&[("HZ", "100"), ("proto-max-bulk-len", "1gb")], false).unwrap();
        assert_eq!(config.hz, 100);
        assert_eq!(value(&config, "hz"), "100");
        assert_eq!(value(&config, "proto-max-bulk-len"), "1073741824");
        assert!(config.is_explicit("hz"));
        assert!(!config.is_explicit("timeout"));
    }

    #[test]
    fn a_set_that_fails_changes_nothing() {
        let mut config = Config::default();
        let error = config.set(&[("hz", "100"), ("timeout", "soon")], false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed into an integer"
        );
        assert_eq!(config.hz, 10);
        assert!(!config.is_explicit("hz"));
    }

    /// The left side was sent to redis-server 7.0.15, the right side is what it answered (bounds are ours).
    #[test]
    fn errors_of_set_read_as_in_redis() {
        let related =
            |name: &str, reason: &str| format!("CONFIG SET failed (possibly related to argument '{name}') - {reason}");
        let unknown = "Unknown option or number of arguments for CONFIG SET - 'nosuch'";
        let cases: &[(&[(&str, &str)], String)] = &[
            (&[("nosuch", "1")], unknown.into()),
            (&[("hz", "20"), ("nosuch", "2")], unknown.into()),
            (&[("nosuch", "3"), ("daemonize", "yes")], unknown.into()),
            (&[("daemonize", "yes"), ("nosuch", "3")], related("daemonize", "can't set immutable config")),
            (&[("Databases", "3")], related("Databases", "can't set immutable config")),
            (&[("hz", "10"), ("HZ", "20")], related("HZ", "duplicate parameter")),
            (&[("hz", "abc"), ("hz", "3")], related("hz", "duplicate parameter")),
            (&[("HZ", "abc")], related("hz", "argument couldn't be parsed into an integer")),
            (&[("hz", "0")], related("hz", "argument must be between 1 and 500 inclusive")),
            (&[("timeout", "-1")], related("timeout", "argument must be between 0 and 2147483647 inclusive")),
            (
                &[("maxclients", "4294967296")],
                related("maxclients", "argument must be between 1 and 4294967295 inclusive"),
            ),
            (&[("protected-mode", "maybe")], related("protected-mode", "argument must be 'yes' or 'no'")),
            (
                &[("proto-max-bulk-len", "1")],
                related("proto-max-bulk-len", "argument must be between 1048576 and 1073741824 inclusive"),
            ),
            (&[("proto-max-bulk-len", "2zb")], related("proto-max-bulk-len", "argument must be a memory value")),
            (
                &[("pipeline-order", "loose")],
                related("pipeline-order", "argument(s) must be one of the following: relaxed, strict"),
            ),
            (
                &[("notify-keyspace-events", "KEZ")],
                related("notify-keyspace-events", "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."),
            ),
        ];
        for (pairs, text) in cases {
            assert_eq!(&refused(pairs), text, "{pairs:?}");
        }
    }

    #[test]
    fn what_is_not_there_yet_says_so() {
        assert!(refused(&[("save", "60")]).ends_with("Invalid save parameters"));
        assert!(refused(&[("crash-log-enabled", "yes")]).contains("not available"));
        assert!(refused(&[("maxmemory", "lots")]).ends_with("argument must be a memory or percent value"));
        Config::default().set(&[("save", ""), ("appendonly", "no")], false).unwrap();
    }

    #[test]
    fn what_has_no_effect_is_kept_under_both_of_its_names() {
        let mut config = Config::default();
        assert_eq!(config.without_effect(), [""; 0]);
        config.set(&[("slave-lazy-flush", "yes"), ("propagation-error-behavior", "panic")], false).unwrap();
        assert_eq!(
            (value(&config, "replica-lazy-flush"), value(&config, "slave-lazy-flush")),
            ("yes".into(), "yes".into())
        );
        let mut without = config.without_effect().to_vec();
        without.sort_unstable();
        assert_eq!(without, ["propagation-error-behavior", "replica-lazy-flush"]);
        assert!(refused(&[("slave-lazy-flush", "high")]).ends_with("argument must be 'yes' or 'no'"));
    }

    #[test]
    fn protected_directives_are_for_those_who_may() {
        let mut config = Config::default();
        let error = config.set(&[("dir", "/tmp")], true).unwrap_err().to_string();
        assert_eq!(error, "CONFIG SET failed (possibly related to argument 'dir') - can't set protected config");
        for (who, local) in [(DebugCommand::Local, true), (DebugCommand::Yes, false)] {
            config.enable_protected_configs = who;
            config.set(&[("dir", "/tmp"), ("dbfilename", "x.rdb")], local).unwrap();
        }
        config.enable_protected_configs = DebugCommand::Local;
        assert!(config.set(&[("dbfilename", "y.rdb")], false).is_err());
    }

    #[test]
    fn effort_sets_what_nobody_set_explicitly() {
        let mut config = Config::default();
        config.set(&[("active-expire-fast-us", "7")], false).unwrap();
        config.set(&[("active-expire-effort", "10")], false).unwrap();
        assert_eq!(config.active_expire_sample_size, 65);
        assert_eq!(config.active_expire_cpu_percent, 43);
        assert_eq!(config.active_expire_acceptable_stale_percent, 1);
        assert_eq!(config.active_expire_fast_us, 7);

        config.set(&[("active-expire-effort", "2"), ("active-expire-sample-size", "20")], false).unwrap();
        assert_eq!(config.active_expire_sample_size, 20);
        assert_eq!(config.active_expire_cpu_percent, 27);
        assert_eq!(config.active_expire_acceptable_stale_percent, 9);
    }

    #[test]
    fn effort_one_is_the_default_of_what_it_governs() {
        let mut config = Config::default();
        let before = config.get(|_| true);
        config.follow_effort();
        assert_eq!(before, config.get(|_| true));
    }

    #[test]
    fn output_limits_change_class_by_class() {
        let mut config = Config::default();
        let name = "client-output-buffer-limit";
        assert_eq!(value(&config, name), "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60");
        config.set(&[(name, "replica 1mb 2kb 3 PUBSUB 1 2 3")], false).unwrap();
        assert_eq!(value(&config, name), "normal 0 0 0 slave 1048576 2048 3 pubsub 1 2 3");
        config.set(&[(name, "")], false).unwrap();
        assert_eq!(config.client_output_buffer_limit.pubsub.soft_s, 3);
    }
}
