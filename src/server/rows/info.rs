//! INFO: what the server tells of itself, in sections of `name:value` lines. Each shard takes a [`Snapshot`]; the
//! shard that was asked adds them up and writes.

mod snapshot;

use super::LRU_CLOCK_BITS;
use crate::clock::{realtime_us, store_us};
use crate::command::spec::flag::{LOADING, STALE};
use crate::command::spec::{Group, Keys, Row, Spec, tip};
use crate::config::Config;
use crate::observe::{machine, memory};
use crate::persist::Progress;
use crate::resp::{Request, Result};
use crate::server::state::global::ID_DIGITS;
use crate::server::state::{Run, Server, TaskCtx};
pub use snapshot::Snapshot;
use std::fmt::{Display, Write};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub const ROWS: &[Row<Run>] = &[Row::new(
    Spec {
        name: "info",
        arity: -1,
        flags: LOADING | STALE,
        keys: Keys::NONE,
        group: Group::Server,
        since: "1.0.0",
        complexity: "O(1), and O(n) in the number of dead keys not deleted yet and of connections",
        summary: "Tells about the server, by section.",
        syntax: "[section]...",
    },
    Run::Task(|ctx| Box::pin(info(ctx))),
)
.tips(&[tip::NONDETERMINISTIC_OUTPUT, tip::ASK_ALL_SHARDS, tip::REPLY_SPECIAL])];

/// What the sections are written from.
struct Facts {
    server: Rc<Server>,
    /// Memory before all of this was gathered.
    used_bytes: u64,
    config: Rc<Config>,
    shards: Vec<Snapshot>,
    total: Snapshot,
}

type WriteSection = fn(&mut Text, &Facts);

/// In the order in which they are written.
const SECTIONS: &[(&str, WriteSection)] = &[
    ("Server", write_server),
    ("Clients", write_clients),
    ("Memory", write_memory),
    ("Persistence", write_persistence),
    ("Stats", write_stats),
    ("Replication", write_replication),
    ("CPU", write_cpu),
    ("Modules", write_modules),
    ("Commandstats", write_commandstats),
    ("Errorstats", write_errorstats),
    (LATENCYSTATS, write_latencystats),
    ("Cluster", write_cluster),
    ("Keyspace", write_keyspace),
    ("Shards", write_shards),
];

/// Sections that stand where they are asked for, and words that stand for all of the others, or for all.
const ON_REQUEST: [&str; 2] = ["Commandstats", LATENCYSTATS];
const LATENCYSTATS: &str = "Latencystats";
const DEFAULT: &str = "default";
const EVERY_SECTION: [&str; 2] = ["all", "everything"];

async fn info(ctx: TaskCtx) -> Result<Vec<u8>> {
    let used_bytes = memory::used_bytes();
    let with_latency = is_wanted(ctx.request.as_request(), LATENCYSTATS);
    let shards = ctx.server.shard.call_all(move |shard| Snapshot::take(shard, with_latency)).await;
    let (server, config, total) = (ctx.server.clone(), ctx.server.shard.config(), Snapshot::sum(&shards));
    let facts = Facts { server, used_bytes, config, total, shards };
    let text = write_sections(ctx.request.as_request(), &facts);
    Ok(ctx.reply(|reply| reply.verbatim("txt", &text)))
}

fn write_sections(request: Request, facts: &Facts) -> String {
    let mut text = Text::default();
    for (name, write) in SECTIONS.iter().filter(|(name, _)| is_wanted(request, name)) {
        text.begin(name);
        write(&mut text, facts);
    }
    text.0
}

fn is_wanted(request: Request, section: &str) -> bool {
    let is_default = !ON_REQUEST.contains(&section);
    let names = |index| {
        request.is(index, section)
            || is_default && request.is(index, DEFAULT)
            || EVERY_SECTION.iter().any(|word| request.is(index, word))
    };
    request.len() == 1 && is_default || (1..request.len()).any(names)
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn begin(&mut self, section: &str) {
        if !self.0.is_empty() {
            self.0.push_str("\r\n");
        }
        self.line(format_args!("# {section}"));
    }

    fn field(&mut self, name: &str, value: impl Display) {
        self.line(format_args!("{name}:{value}"));
    }

    /// A size, and the same for people.
    fn size(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        self.line(format_args!("{name}_human:{}", human(bytes)));
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "{line}\r\n");
    }
}

fn write_commandstats(text: &mut Text, facts: &Facts) {
    for (command, calls) in facts.total.statistics.commands() {
        let usec = calls.ns / 1_000;
        let per_call = if calls.calls == 0 { 0.0 } else { calls.ns as f64 / 1e3 / calls.calls as f64 };
        text.line(format_args!(
            "cmdstat_{}:calls={},usec={usec},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
            facts.server.table.at(command).full_name,
            calls.calls,
            calls.rejected,
            calls.failed
        ));
    }
}

fn write_errorstats(text: &mut Text, facts: &Facts) {
    for (word, count) in facts.total.statistics.errors() {
        text.line(format_args!("errorstat_{}:count={count}", String::from_utf8_lossy(word)));
    }
}

fn write_latencystats(text: &mut Text, facts: &Facts) {
    let percentiles = &facts.config.latency_percentiles.0;
    for (command, calls) in facts.total.statistics.commands() {
        let Some(latency) = calls.latency.as_ref().filter(|latency| !latency.is_empty() && !percentiles.is_empty())
        else {
            continue;
        };
        let shown: Vec<String> = percentiles
            .iter()
            .map(|percentile| {
                format!("p{percentile}={:.3}", latency.value_at_quantile(percentile / 100.0) as f64 / 1e3)
            })
            .collect();
        text.line(format_args!(
            "latency_percentiles_usec_{}:{}",
            facts.server.table.at(command).full_name,
            shown.join(",")
        ));
    }
}

fn write_server(text: &mut Text, facts: &Facts) {
    let (global, config) = (&facts.server.global, &facts.config);
    let uptime_s = store_us().saturating_sub(global.started_us) / 1_000_000;
    text.field("redis_version", config.redis_version);
    // The build of redis-server that this is: none.
    text.field("redis_git_sha1", "00000000");
    text.field("redis_git_dirty", 0);
    text.field("redis_build_id", "0000000000000000");
    text.field("emberdb_version", env!("CARGO_PKG_VERSION"));
    text.field("redis_mode", "standalone");
    text.field("os", format_args!("{} {} {}", kernel("ostype"), kernel("osrelease"), std::env::consts::ARCH));
    text.field("arch_bits", usize::BITS);
    text.field("multiplexing_api", "io_uring");
    text.field("process_id", std::process::id());
    text.field("run_id", &global.run_id);
    text.field("tcp_port", config.port);
    text.field("server_time_usec", realtime_us());
    text.field("uptime_in_seconds", uptime_s);
    text.field("uptime_in_days", uptime_s / (24 * 3600));
    text.field("hz", config.hz);
    text.field("configured_hz", config.hz);
    text.field("lru_clock", (realtime_us() / 1_000_000) & ((1 << LRU_CLOCK_BITS) - 1));
    text.field("executable", &global.executable);
    text.field("config_file", config.file().map(|path| path.display().to_string()).unwrap_or_default());
    text.field("io_threads_active", 0);
    text.field("shards", facts.shards.len());
}

fn kernel(name: &str) -> String {
    let read = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
    read.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn write_clients(text: &mut Text, facts: &Facts) {
    text.field("connected_clients", facts.total.connections);
    text.field("cluster_connections", 0);
    text.field("maxclients", facts.config.maxclients);
    text.field("blocked_clients", facts.total.blocked);
    text.field("tracking_clients", facts.total.trackers);
    text.field("pubsub_clients", facts.total.subscribers);
    text.field("watching_clients", facts.total.watchers);
    text.field("clients_in_timeout_table", facts.total.blocked_with_timeout);
    text.field("total_watched_keys", facts.total.watched_keys);
    text.field("total_blocking_keys", facts.total.blocking_keys[0]);
    text.field("total_blocking_keys_on_nokey", facts.total.blocking_keys[1]);
}

fn write_memory(text: &mut Text, facts: &Facts) {
    let (used_bytes, resident_bytes) = (facts.used_bytes, machine::resident_bytes());
    let peak_bytes = memory::peak_bytes();
    let dataset_bytes = facts.total.keyspace_bytes;
    text.size("used_memory", used_bytes);
    text.size("used_memory_rss", resident_bytes);
    text.size("used_memory_peak", peak_bytes);
    text.field("used_memory_peak_perc", format_args!("{:.2}%", percent(used_bytes, peak_bytes)));
    text.field("used_memory_overhead", used_bytes.saturating_sub(dataset_bytes));
    text.field("used_memory_startup", memory::startup_bytes());
    text.field("used_memory_dataset", dataset_bytes);
    text.field("used_memory_dataset_perc", format_args!("{:.2}%", percent(dataset_bytes, used_bytes)));
    text.size("total_system_memory", machine::physical_bytes());
    write_script_memory(text, facts);
    text.size("maxmemory", facts.server.shard.max_bytes());
    text.field("maxmemory_policy", facts.config.maxmemory_policy.as_str());
    text.field("mem_fragmentation_ratio", format_args!("{:.2}", percent(resident_bytes, used_bytes) / 100.0));
    text.field("mem_fragmentation_bytes", resident_bytes as i64 - used_bytes as i64);
    text.field("mem_not_counted_for_evict", facts.server.shard.uncounted_bytes());
    // There are no replicas yet, and no other nodes.
    for name in ["mem_replication_backlog", "mem_total_replication_buffers", "mem_clients_slaves"] {
        text.field(name, 0);
    }
    text.field("mem_clients_normal", facts.total.client_bytes);
    text.field("mem_kept_buffers", facts.total.kept_bytes);
    text.field("mem_slowlog", facts.total.slowlog_bytes);
    text.field("mem_cluster_links", 0);
    text.field("mem_aof_buffer", facts.server.global.log.waiting_bytes());
    text.field("mem_allocator", "jemalloc");
    text.field("active_defrag_running", 0);
    text.field("lazyfree_pending_objects", facts.total.garbage_keys);
    text.field("lazyfreed_objects", facts.total.counters.freed_lazily);
    let upkeep = facts.total.counters.upkeep;
    text.field("table_merges", upkeep.merges);
    text.field("table_compactions", upkeep.compactions);
    text.field("table_upkeep_us", upkeep.ns / 1000);
}

/// What Lua uses on all shards, and the sources of scripts and functions, which they share.
fn write_script_memory(text: &mut Text, facts: &Facts) {
    let [scripts_bytes, functions_bytes] = facts.total.lua_bytes;
    let (scripts, source_bytes) = facts.server.global.scripts.size();
    let catalog = facts.server.global.libraries.catalog();
    let library_bytes = catalog.bytes();
    text.field("used_memory_lua", scripts_bytes);
    text.field("used_memory_vm_eval", scripts_bytes);
    text.line(format_args!("used_memory_lua_human:{}", human(scripts_bytes)));
    text.field("used_memory_scripts_eval", source_bytes);
    text.field("number_of_cached_scripts", scripts);
    text.field("number_of_functions", catalog.functions());
    text.field("number_of_libraries", catalog.libraries().len());
    text.field("used_memory_vm_functions", functions_bytes);
    text.size("used_memory_vm_total", scripts_bytes + functions_bytes);
    text.field("used_memory_functions", library_bytes);
    text.size("used_memory_scripts", (source_bytes + library_bytes) as u64);
}

fn write_persistence(text: &mut Text, facts: &Facts) {
    let snapshots = &facts.server.global.snapshots;
    let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
    text.field("loading", u8::from(snapshots.is_loading()));
    text.field("async_loading", 0);
    // Nothing is copied when written: there is no fork.
    for name in ["peak", "size", "size_age"] {
        text.line(format_args!("current_cow_{name}:0"));
    }
    text.field("rdb_changes_since_last_save", facts.total.changes.saturating_sub(number(&snapshots.saved_changes)));
    let (began_s, lasted_s) = (number(&snapshots.began_s), number(&snapshots.lasted_s));
    let is_beside = began_s > 0;
    text.field("rdb_bgsave_in_progress", u8::from(is_beside));
    text.field("rdb_last_save_time", number(&snapshots.last_save_s));
    let has_failed = snapshots.has_failed.load(Ordering::Relaxed);
    text.field("rdb_last_bgsave_status", if has_failed { "err" } else { "ok" });
    if has_failed {
        text.field("rdb_last_bgsave_error", snapshots.failure());
    }
    text.field("rdb_last_bgsave_time_sec", i64::try_from(lasted_s).unwrap_or(-1));
    let lasts_s = (realtime_us() / 1_000_000).saturating_sub(began_s) as i64;
    text.field("rdb_current_bgsave_time_sec", if is_beside { lasts_s } else { -1 });
    text.field("rdb_saves", number(&snapshots.saves));
    text.field("rdb_last_cow_size", 0);
    text.field("rdb_last_load_keys_expired", number(&snapshots.loaded_dead));
    text.field("rdb_last_load_keys_loaded", number(&snapshots.loaded_keys));
    write_log(text, facts);
    if snapshots.is_loading() {
        write_loading(text, &snapshots.progress);
    }
}

fn write_log(text: &mut Text, facts: &Facts) {
    let (log, appending) = (&facts.server.global.log, &facts.server.global.appending);
    let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let flag = |of: &AtomicBool| u8::from(of.load(Ordering::Relaxed));
    let (began_s, lasted_s) = (number(&appending.began_s), number(&appending.lasted_s));
    let lasts_s = (realtime_us() / 1_000_000).saturating_sub(began_s) as i64;
    let status = |has_failed: bool| if has_failed { "err" } else { "ok" };
    text.field("aof_enabled", u8::from(log.is_on()));
    text.field("aof_rewrite_in_progress", flag(&appending.is_rewriting));
    text.field("aof_rewrite_scheduled", flag(&appending.is_scheduled));
    text.field("aof_last_rewrite_time_sec", i64::try_from(lasted_s).unwrap_or(-1));
    text.field("aof_current_rewrite_time_sec", if began_s > 0 { lasts_s } else { -1 });
    text.field("aof_last_bgrewrite_status", status(appending.has_failed.load(Ordering::Relaxed)));
    text.field("aof_rewrites", number(&appending.rewrites));
    text.field("aof_rewrites_consecutive_failures", number(&appending.failures));
    let trouble = log.trouble();
    text.field("aof_last_write_status", status(trouble.is_some()));
    text.field("aof_last_cow_size", 0);
    if let Some(trouble) = trouble {
        text.field("aof_last_write_error", trouble.reason);
    }
    if log.is_on() {
        text.field("aof_current_size", number(&log.bytes));
        text.field("aof_base_size", number(&appending.base_bytes));
        text.field("aof_pending_rewrite", 0);
        text.field("aof_buffer_length", log.waiting_bytes());
        text.field("aof_buffer_limit", facts.server.shard.config().aof_buffer_limit);
        text.field("aof_buffer_full", u8::from(log.is_full()));
        text.field("aof_pending_bio_fsync", u8::from(log.syncs()));
        text.field("aof_delayed_fsync", number(&log.delayed_syncs));
    }
}

/// How far the file is, and how long the rest will take.
fn write_loading(text: &mut Text, progress: &Progress) {
    let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let (bytes, of_bytes, began_s) = (number(&progress.bytes), number(&progress.of_bytes), number(&progress.began_s));
    let lasts_s = (realtime_us() / 1_000_000).saturating_sub(began_s);
    text.field("loading_start_time", began_s);
    text.field("loading_total_bytes", of_bytes);
    text.field("loading_rdb_used_mem", 0);
    text.field("loading_loaded_bytes", bytes);
    text.field("loading_loaded_perc", format_args!("{:.2}", percent(bytes, of_bytes)));
    text.field("loading_eta_seconds", (lasts_s * of_bytes.saturating_sub(bytes)).checked_div(bytes).unwrap_or(1));
}

fn write_stats(text: &mut Text, facts: &Facts) {
    let (global, total) = (&facts.server.global, &facts.total);
    text.field("total_connections_received", global.accepted.load(Ordering::Relaxed));
    // Averages over the last three seconds. Commands are told in whole numbers, as in Redis.
    let [commands_per_s, input_per_s, output_per_s] = total.rates;
    text.field("total_commands_processed", total.commands);
    text.field("instantaneous_ops_per_sec", commands_per_s as u64);
    text.field("total_net_input_bytes", total.input_bytes);
    text.field("total_net_output_bytes", total.output_bytes);
    // There are no replicas yet.
    text.field("total_net_repl_input_bytes", 0);
    text.field("total_net_repl_output_bytes", 0);
    let of_clients = [("input", input_per_s), ("output", output_per_s)];
    let of_replicas = [("input_repl", 0.0), ("output_repl", 0.0)];
    for (name, bytes_per_s) in of_clients.into_iter().chain(of_replicas) {
        text.line(format_args!("instantaneous_{name}_kbps:{:.2}", bytes_per_s / 1024.0));
    }
    text.field("rejected_connections", global.rejected.load(Ordering::Relaxed));
    text.field("sync_full", 0);
    text.field("sync_partial_ok", 0);
    text.field("sync_partial_err", 0);
    write_expiry(text, facts);
    text.field("evicted_keys", total.counters.evicted);
    text.field("evicted_clients", facts.server.global.evicted_clients.load(Ordering::Relaxed));
    let (exceeded_us, all_exceeded_us) = facts.server.shard.ceiling().exceeded_us();
    text.field("total_eviction_exceeded_time", all_exceeded_us / 1000);
    text.field("current_eviction_exceeded_time", exceeded_us / 1000);
    text.field("keyspace_hits", total.counters.hits);
    text.field("keyspace_misses", total.counters.misses);
    text.field("pubsub_channels", total.channels.len());
    text.field("pubsub_patterns", total.patterns.len());
    text.field("pubsubshard_channels", total.shard_channels.len());
    text.field("latest_fork_usec", 0);
    text.field("total_forks", 0);
    text.field("slave_expires_tracked_keys", 0);
    let [keys, items, prefixes] = total.tracked;
    text.field("tracking_total_keys", keys);
    text.field("tracking_total_items", items);
    text.field("tracking_total_prefixes", prefixes);
    text.field("total_error_replies", total.statistics.error_replies);
    text.field("total_reads_processed", total.reads);
    text.field("total_writes_processed", total.writes);
    text.field("unreported_changes", total.counters.unreported);
    let held = &facts.server.global.scripts_holding_everything;
    text.field("scripts_holding_everything", held.load(Ordering::Relaxed));
}

fn write_expiry(text: &mut Text, facts: &Facts) {
    let (total, expiry) = (&facts.total, &facts.total.expiry);
    // DEBUG SET-ACTIVE-EXPIRE counts, too: every shard has the same.
    let settings = facts.server.shard.settings();
    text.field("expired_keys", total.expired());
    text.field("expired_subkeys", total.counters.expired_fields);
    text.field("expired_keys_active", total.counters.expired_by_cycle);
    text.field("expired_bytes", total.counters.expired_bytes);
    text.field("expired_stale_perc", format_args!("{:.2}", expiry.stale_percent));
    text.field("expired_time_cap_reached_count", expiry.time_caps);
    text.field("expiry_events_written", total.counters.deaths_written);
    text.field("expiry_events_lost", total.counters.deaths_lost);
    text.field("expiry_events_waiting", total.deaths_waiting);
    text.field("expire_cycle_cpu_milliseconds", format_args!("{:.3}", expiry.cycle_cpu_ms()));
    text.field("expire_lag_p50_us", expiry.lag_us(0.5));
    text.field("expire_lag_p99_us", expiry.lag_us(0.99));
    text.field("expire_lag_max_us", expiry.lag_max_us());
    text.field("expire_oldest_due_us", expiry.oldest_due_us);
    text.field("active_expire_enabled", u8::from(settings.enabled));
    text.field("active_expire_interval_ms", settings.interval_ms);
}

/// There are no replicas yet: what Redis says that has never had one.
fn write_replication(text: &mut Text, facts: &Facts) {
    text.field("role", "master");
    text.field("connected_slaves", 0);
    text.field("master_failover_state", "no-failover");
    text.field("master_replid", facts.server.global.replication_id());
    text.field("master_replid2", "0".repeat(ID_DIGITS));
    text.field("master_repl_offset", 0);
    text.field("second_repl_offset", -1);
    text.field("repl_backlog_active", 0);
    text.field("repl_backlog_size", 1024 * 1024);
    text.field("repl_backlog_first_byte_offset", 0);
    text.field("repl_backlog_histlen", 0);
}

fn write_cpu(text: &mut Text, _: &Facts) {
    for (who, suffix) in [(libc::RUSAGE_SELF, ""), (libc::RUSAGE_CHILDREN, "_children")] {
        let (system_us, user_us) = cpu_us(who);
        for (name, us) in [("sys", system_us), ("user", user_us)] {
            text.line(format_args!("used_cpu_{name}{suffix}:{}.{:06}", us / 1_000_000, us % 1_000_000));
        }
    }
}

/// There are none.
fn write_modules(_: &mut Text, _: &Facts) {}

fn write_cluster(text: &mut Text, _: &Facts) {
    text.field("cluster_enabled", 0);
}

fn write_keyspace(text: &mut Text, facts: &Facts) {
    for (db, database) in facts.total.databases.iter().enumerate().filter(|(_, database)| database.keys > 0) {
        text.line(format_args!(
            "db{db}:keys={},expires={},avg_ttl={:.0}",
            database.keys, database.with_deadline, database.average_ttl_ms
        ));
    }
}

fn write_shards(text: &mut Text, facts: &Facts) {
    for (index, shard) in facts.shards.iter().enumerate() {
        let (counters, expiry) = (&shard.counters, &shard.expiry);
        text.line(format_args!(
            "shard{index}:keys={},expires={},bytes={},connections={},commands={},expired_access={},expired_cycle={},\
             lag_p99_us={},lag_max_us={},oldest_due_us={},stale_perc={:.2},cycle_cpu_ms={:.3},cycles={},time_caps={}",
            shard.keys(),
            shard.with_deadline(),
            shard.keyspace_bytes,
            shard.connections,
            shard.commands,
            counters.expired_by_access,
            counters.expired_by_cycle,
            expiry.lag_us(0.99),
            expiry.lag_max_us(),
            expiry.oldest_due_us,
            expiry.stale_percent,
            expiry.cycle_cpu_ms(),
            expiry.cycles,
            expiry.time_caps
        ));
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// As Redis prints sizes: `1.50K`.
pub(super) fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let (mut size, mut unit) = (bytes as f64 / 1024.0, 0);
    const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.2}{}", UNITS[unit])
}

/// The resident set, as the kernel counts it.
/// CPU time used so far: in the kernel, and outside of it.
fn cpu_us(who: libc::c_int) -> (u64, u64) {
    // SAFETY: all-zero bytes are a valid `rusage` (integers only).
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place to write to.
    unsafe { libc::getrusage(who, &mut usage) };
    let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    (us(usage.ru_stime), us(usage.ru_utime))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::OwnedRequest;

    #[test]
    fn sections_are_chosen_by_name() {
        let chosen = |line: &str| {
            let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
            let names = SECTIONS.iter().map(|(name, _)| *name);
            names.filter(|name| is_wanted(request.as_request(), name)).collect::<Vec<_>>()
        };
        assert_eq!(chosen("info").len(), SECTIONS.len() - ON_REQUEST.len());
        assert_eq!(chosen("info default errorstats"), chosen("info"));
        assert_eq!(chosen("info nosuch ALL").len(), SECTIONS.len());
        assert_eq!(chosen("info KeySpace server nosuch"), ["Server", "Keyspace"]);
        assert!(chosen("info nosuch").is_empty());
    }

    #[test]
    fn sizes_read_as_in_redis() {
        let sizes = [(0, "0B"), (1023, "1023B"), (1361192, "1.30M"), (12382208, "11.81M"), (25274793984, "23.54G")];
        for (bytes, text) in sizes {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn the_process_is_measured() {
        assert!(machine::resident_bytes() > 100_000 && machine::resident_bytes() < machine::physical_bytes());
        let (system_us, user_us) = cpu_us(libc::RUSAGE_SELF);
        assert!(system_us + user_us > 0);
    }
}
