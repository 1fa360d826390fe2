//! The facts, section by section, in the order in which INFO tells them.

use super::{Facts, Gathered, LRU_CLOCK_BITS, Value, human, replication, several};
use crate::acl::log::{REASONS, Reason};
use crate::clock::{realtime_us, store_us};
use crate::observe::{machine, memory};
use crate::persist::Progress;
use crate::server::replication::target;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

type TellSection = fn(&mut Facts, &Gathered);

/// In the order in which they are told.
pub const SECTIONS: &[(&str, TellSection)] = &[
    ("Server", tell_server),
    ("Clients", tell_clients),
    ("Memory", tell_memory),
    ("Persistence", tell_persistence),
    ("Stats", tell_stats),
    ("Replication", replication::tell),
    ("CPU", tell_cpu),
    ("Modules", tell_modules),
    ("Commandstats", tell_commandstats),
    ("Errorstats", tell_errorstats),
    (LATENCYSTATS, tell_latencystats),
    ("Cluster", tell_cluster),
    ("Keyspace", tell_keyspace),
    ("Shards", tell_shards),
];

pub const LATENCYSTATS: &str = "Latencystats";
/// Sections that stand where they are asked for.
pub const ON_REQUEST: [&str; 2] = ["Commandstats", LATENCYSTATS];

fn tell_commandstats(told: &mut Facts, from: &Gathered) {
    for (command, calls) in from.total.statistics.commands() {
        let usec = calls.ns / 1_000;
        let per_call = if calls.calls == 0 { 0.0 } else { calls.ns as f64 / 1e3 / calls.calls as f64 };
        let name = from.server.table.at(command).full_name;
        let value = several([
            ("calls", calls.calls.into()),
            ("usec", usec.into()),
            ("usec_per_call", Value::Real(per_call, 2)),
            ("rejected_calls", calls.rejected.into()),
            ("failed_calls", calls.failed.into()),
        ]);
        told.field(format!("cmdstat_{name}"), value);
    }
}

fn tell_errorstats(told: &mut Facts, from: &Gathered) {
    for (word, count) in from.total.statistics.errors() {
        let word = String::from_utf8_lossy(word);
        told.field(format!("errorstat_{word}"), several([("count", count.into())]));
    }
}

fn tell_latencystats(told: &mut Facts, from: &Gathered) {
    let percentiles = &from.config.latency_percentiles.0;
    for (command, calls) in from.total.statistics.commands() {
        let Some(latency) = calls.latency.as_ref().filter(|latency| !latency.is_empty() && !percentiles.is_empty())
        else {
            continue;
        };
        let of = |percentile: &f64| {
            let us = latency.value_at_quantile(percentile / 100.0) as f64 / 1e3;
            (format!("p{percentile}").into(), Value::Real(us, 3))
        };
        let name = from.server.table.at(command).full_name;
        let value = Value::Several(percentiles.iter().map(of).collect());
        told.field(format!("latency_percentiles_usec_{name}"), value);
    }
}

fn tell_server(told: &mut Facts, from: &Gathered) {
    let (global, config) = (&from.server.global, &from.config);
    let uptime_s = store_us().saturating_sub(global.started_us) / 1_000_000;
    told.field("redis_version", config.redis_version.to_string());
    // The build of redis-server that this is: none.
    told.field("redis_git_sha1", "00000000");
    told.field("redis_git_dirty", 0);
    told.field("redis_build_id", "0000000000000000");
    told.field("emberdb_version", env!("CARGO_PKG_VERSION"));
    told.field("redis_mode", "standalone");
    told.field("os", format!("{} {} {}", kernel("ostype"), kernel("osrelease"), std::env::consts::ARCH));
    told.field("arch_bits", usize::BITS);
    let network = from.server.transport.name();
    told.field("multiplexing_api", if network == "epoll" { "epoll" } else { "io_uring" });
    told.field("network", network);
    told.field("process_id", std::process::id());
    told.field("run_id", global.run_id.as_str());
    told.field("tcp_port", if config.port > 0 { config.port } else { config.tls.port });
    told.field("server_time_usec", realtime_us());
    told.field("uptime_in_seconds", uptime_s);
    told.field("uptime_in_days", uptime_s / (24 * 3600));
    told.field("hz", config.hz);
    told.field("configured_hz", config.hz);
    told.field("lru_clock", (realtime_us() / 1_000_000) & ((1 << LRU_CLOCK_BITS) - 1));
    told.field("executable", global.executable.as_str());
    told.field("config_file", config.file().map(|path| path.display().to_string()).unwrap_or_default());
    told.field("io_threads_active", 0);
    if let Some(us) = global.replication.ends.waits_us() {
        told.field("shutdown_in_milliseconds", us / 1_000);
    }
    told.field("shards", from.shards.len());
}

fn kernel(name: &str) -> String {
    let read = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
    read.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn tell_clients(told: &mut Facts, from: &Gathered) {
    told.field("connected_clients", from.total.connections);
    told.field("cluster_connections", 0);
    told.field("maxclients", from.config.maxclients);
    told.field("blocked_clients", from.total.blocked);
    told.field("tracking_clients", from.total.trackers);
    told.field("pubsub_clients", from.total.subscribers);
    told.field("live_queries", from.total.live_queries);
    told.field("live_views", from.total.live_views);
    told.field("watching_clients", from.total.watchers);
    told.field("clients_in_timeout_table", from.total.blocked_with_timeout);
    told.field("total_watched_keys", from.total.watched_keys);
    told.field("total_blocking_keys", from.total.blocking_keys[0]);
    told.field("total_blocking_keys_on_nokey", from.total.blocking_keys[1]);
}

fn tell_memory(told: &mut Facts, from: &Gathered) {
    let (used_bytes, resident_bytes) = (from.used_bytes, machine::resident_bytes());
    let peak_bytes = memory::peak_bytes();
    let dataset_bytes = from.total.keyspace_bytes;
    told.size("used_memory", used_bytes);
    told.size("used_memory_rss", resident_bytes);
    told.size("used_memory_peak", peak_bytes);
    told.field("used_memory_peak_perc", Value::Percent(percent(used_bytes, peak_bytes)));
    told.field("used_memory_overhead", used_bytes.saturating_sub(dataset_bytes));
    told.field("used_memory_startup", memory::startup_bytes());
    told.field("used_memory_dataset", dataset_bytes);
    told.field("used_memory_dataset_perc", Value::Percent(percent(dataset_bytes, used_bytes)));
    told.size("total_system_memory", machine::physical_bytes());
    tell_script_memory(told, from);
    told.size("maxmemory", from.server.shard.max_bytes());
    told.field("maxmemory_policy", from.config.maxmemory_policy.as_str());
    told.field("mem_fragmentation_ratio", Value::Real(percent(resident_bytes, used_bytes) / 100.0, 2));
    told.field("mem_fragmentation_bytes", resident_bytes as i64 - used_bytes as i64);
    told.field("mem_not_counted_for_evict", from.server.shard.uncounted_bytes());
    let kept_bytes = from.server.global.feed.kept().map_or(0, |(_, bytes)| bytes as u64);
    told.field("mem_replication_backlog", kept_bytes);
    told.field("mem_total_replication_buffers", kept_bytes.max(from.total.replica_bytes));
    told.field("mem_clients_slaves", from.total.replica_bytes);
    told.field("mem_clients_normal", from.total.client_bytes);
    told.field("mem_kept_buffers", from.total.kept_bytes);
    told.field("mem_slowlog", from.total.slowlog_bytes);
    told.field("mem_advisors", from.total.advisor_bytes);
    told.field("mem_cluster_links", 0);
    told.field("mem_aof_buffer", memory::bytes_for_disk());
    told.field("mem_allocator", "jemalloc");
    told.field("active_defrag_running", 0);
    told.field("lazyfree_pending_objects", from.total.garbage_keys);
    told.field("lazyfreed_objects", from.total.counters.freed_lazily);
    let upkeep = from.total.counters.upkeep;
    told.field("table_merges", upkeep.merges);
    told.field("table_compactions", upkeep.compactions);
    told.field("table_upkeep_us", upkeep.ns / 1000);
}

/// What Lua uses on all shards, and the sources of scripts and functions, which they share.
fn tell_script_memory(told: &mut Facts, from: &Gathered) {
    let [scripts_bytes, functions_bytes] = from.total.lua_bytes;
    let (scripts, source_bytes) = from.server.global.scripts.size();
    let catalog = from.server.global.libraries.catalog();
    let library_bytes = catalog.bytes();
    told.field("used_memory_lua", scripts_bytes);
    told.field("used_memory_vm_eval", scripts_bytes);
    told.field("used_memory_lua_human", human(scripts_bytes));
    told.field("used_memory_scripts_eval", source_bytes);
    told.field("number_of_cached_scripts", scripts);
    told.field("number_of_functions", catalog.functions());
    told.field("number_of_libraries", catalog.libraries().len());
    told.field("used_memory_vm_functions", functions_bytes);
    told.size("used_memory_vm_total", scripts_bytes + functions_bytes);
    told.field("used_memory_functions", library_bytes);
    told.size("used_memory_scripts", (source_bytes + library_bytes) as u64);
}

fn tell_persistence(told: &mut Facts, from: &Gathered) {
    let snapshots = &from.server.global.snapshots;
    let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
    told.field("loading", u8::from(snapshots.is_loading()));
    told.field("async_loading", u8::from(!snapshots.is_loading() && snapshots.is_taking_in()));
    // Nothing is copied when written: there is no fork.
    for name in ["peak", "size", "size_age"] {
        told.field(format!("current_cow_{name}"), 0);
    }
    told.field("rdb_changes_since_last_save", from.total.changes.saturating_sub(number(&snapshots.saved_changes)));
    let (began_s, lasted_s) = (number(&snapshots.began_s), number(&snapshots.lasted_s));
    let is_beside = began_s > 0;
    told.field("rdb_bgsave_in_progress", u8::from(is_beside));
    told.field("rdb_last_save_time", number(&snapshots.last_save_s));
    let has_failed = snapshots.has_failed.load(Ordering::Relaxed);
    told.field("rdb_last_bgsave_status", if has_failed { "err" } else { "ok" });
    if has_failed {
        told.field("rdb_last_bgsave_error", snapshots.failure());
    }
    told.field("rdb_last_bgsave_time_sec", i64::try_from(lasted_s).unwrap_or(-1));
    let lasts_s = (realtime_us() / 1_000_000).saturating_sub(began_s) as i64;
    told.field("rdb_current_bgsave_time_sec", if is_beside { lasts_s } else { -1 });
    told.field("rdb_saves", number(&snapshots.saves));
    told.field("rdb_last_cow_size", 0);
    told.field("rdb_last_load_keys_expired", number(&snapshots.loaded_dead));
    told.field("rdb_last_load_keys_loaded", number(&snapshots.loaded_keys));
    tell_log(told, from);
    if snapshots.is_taking_in() {
        tell_loading(told, &snapshots.progress);
    }
}

fn tell_log(told: &mut Facts, from: &Gathered) {
    let (log, appending) = (&from.server.global.log, &from.server.global.appending);
    let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let flag = |of: &AtomicBool| u8::from(of.load(Ordering::Relaxed));
    let (began_s, lasted_s) = (number(&appending.began_s), number(&appending.lasted_s));
    let lasts_s = (realtime_us() / 1_000_000).saturating_sub(began_s) as i64;
    let status = |has_failed: bool| if has_failed { "err" } else { "ok" };
    told.field("aof_enabled", u8::from(log.is_on()));
    told.field("aof_rewrite_in_progress", flag(&appending.is_rewriting));
    told.field("aof_rewrite_scheduled", flag(&appending.is_scheduled));
    told.field("aof_last_rewrite_time_sec", i64::try_from(lasted_s).unwrap_or(-1));
    told.field("aof_current_rewrite_time_sec", if began_s > 0 { lasts_s } else { -1 });
    told.field("aof_last_bgrewrite_status", status(appending.has_failed.load(Ordering::Relaxed)));
    told.field("aof_rewrites", number(&appending.rewrites));
    told.field("aof_rewrites_consecutive_failures", number(&appending.failures));
    let trouble = log.trouble();
    told.field("aof_last_write_status", status(trouble.is_some()));
    told.field("aof_last_cow_size", 0);
    if let Some(trouble) = trouble {
        told.field("aof_last_write_error", trouble.reason);
    }
    if log.is_on() {
        told.field("aof_current_size", number(&log.bytes));
        told.field("aof_base_size", number(&appending.base_bytes));
        told.field("aof_pending_rewrite", 0);
        told.field("aof_buffer_length", log.waiting_bytes());
        told.field("aof_buffer_limit", from.server.shard.config().aof_buffer_limit);
        told.field("aof_buffer_full", u8::from(log.is_full()));
        told.field("aof_pending_bio_fsync", u8::from(log.syncs()));
        told.field("aof_delayed_fsync", number(&log.delayed_syncs));
        told.field("aof_slow_writes", number(&log.slow_writes));
    }
}

/// How far the file is, and how long the rest will take.
fn tell_loading(told: &mut Facts, progress: &Progress) {
    let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let (bytes, of_bytes, began_s) = (number(&progress.bytes), number(&progress.of_bytes), number(&progress.began_s));
    let lasts_s = (realtime_us() / 1_000_000).saturating_sub(began_s);
    told.field("loading_start_time", began_s);
    told.field("loading_total_bytes", of_bytes);
    told.field("loading_rdb_used_mem", 0);
    told.field("loading_loaded_bytes", bytes);
    told.field("loading_loaded_perc", Value::Real(percent(bytes, of_bytes), 2));
    told.field("loading_eta_seconds", (lasts_s * of_bytes.saturating_sub(bytes)).checked_div(bytes).unwrap_or(1));
}

fn tell_stats(told: &mut Facts, from: &Gathered) {
    let (global, total) = (&from.server.global, &from.total);
    told.field("total_connections_received", global.accepted.load(Ordering::Relaxed));
    // Averages over the last three seconds. Commands are told in whole numbers, as in Redis.
    let [commands_per_s, input_per_s, output_per_s, replica_output_per_s] = total.rates;
    told.field("total_commands_processed", total.commands);
    told.field("instantaneous_ops_per_sec", commands_per_s as u64);
    told.field("total_net_input_bytes", total.input_bytes);
    told.field("total_net_output_bytes", total.output_bytes);
    told.field("total_net_repl_input_bytes", global.following.input_bytes());
    told.field("total_net_repl_output_bytes", total.replica_output_bytes);
    let of_clients = [("input", input_per_s), ("output", output_per_s)];
    let of_replicas = [("input_repl", 0.0), ("output_repl", replica_output_per_s)];
    for (name, bytes_per_s) in of_clients.into_iter().chain(of_replicas) {
        told.field(format!("instantaneous_{name}_kbps"), Value::Real(bytes_per_s / 1024.0, 2));
    }
    told.field("rejected_connections", global.rejected.load(Ordering::Relaxed));
    let replication = &global.replication;
    told.field("sync_full", replication.full_syncs.load(Ordering::Relaxed));
    told.field("sync_partial_ok", replication.partial_syncs.load(Ordering::Relaxed));
    told.field("sync_partial_err", replication.refused_partial_syncs.load(Ordering::Relaxed));
    tell_expiry(told, from);
    told.field("evicted_keys", total.counters.evicted);
    told.field("blessed_keys", total.pinned_keys);
    told.field("stale_copies", total.stale_copies[0]);
    told.field("stale_copies_bytes", total.stale_copies[1]);
    told.field("stale_copies_shown", total.counters.stale_shown);
    told.field("evicted_clients", from.server.global.evicted_clients.load(Ordering::Relaxed));
    let (exceeded_us, all_exceeded_us) = from.server.shard.ceiling().exceeded_us();
    told.field("total_eviction_exceeded_time", all_exceeded_us / 1000);
    told.field("current_eviction_exceeded_time", exceeded_us / 1000);
    told.field("keyspace_hits", total.counters.hits);
    told.field("keyspace_misses", total.counters.misses);
    told.field("pubsub_channels", total.channels.len());
    told.field("pubsub_patterns", total.patterns.len());
    told.field("pubsubshard_channels", total.shard_channels.len());
    told.field("latest_fork_usec", 0);
    told.field("total_forks", 0);
    told.field("migrate_cached_sockets", target::cached());
    told.field("slave_expires_tracked_keys", 0);
    let [keys, items, prefixes] = total.tracked;
    told.field("tracking_total_keys", keys);
    told.field("tracking_total_items", items);
    told.field("tracking_total_prefixes", prefixes);
    told.field("total_error_replies", total.statistics.error_replies);
    for reason in REASONS {
        let name = if reason == Reason::Command { "cmd" } else { reason.name() };
        told.field(format!("acl_access_denied_{name}"), global.users.refusals(reason).load(Ordering::Relaxed));
    }
    let of_limits = [("query", &global.past_input_limit), ("output", &global.past_output_limit)];
    for (name, counter) in of_limits {
        told.field(format!("client_{name}_buffer_limit_disconnections"), counter.load(Ordering::Relaxed));
    }
    told.field("total_reads_processed", total.reads);
    told.field("total_writes_processed", total.writes);
    told.field("unreported_changes", total.counters.unreported);
    let held = &from.server.global.scripts_holding_everything;
    told.field("scripts_holding_everything", held.load(Ordering::Relaxed));
}

fn tell_expiry(told: &mut Facts, from: &Gathered) {
    let (total, expiry) = (&from.total, &from.total.expiry);
    // DEBUG SET-ACTIVE-EXPIRE counts, too: every shard has the same.
    let settings = from.server.shard.settings();
    told.field("expired_keys", total.expired());
    told.field("expired_subkeys", total.counters.expired_fields);
    told.field("expired_keys_active", total.counters.expired_by_cycle);
    told.field("expired_bytes", total.counters.expired_bytes);
    // An estimate, and of advised prefixes alone.
    told.field("expired_misses", total.expired_misses.round() as u64);
    told.field("advised_prefixes", total.advised_prefixes);
    told.field("expired_stale_perc", Value::Real(expiry.stale_percent, 2));
    told.field("expired_time_cap_reached_count", expiry.time_caps);
    told.field("expiry_events_written", total.counters.deaths_written);
    told.field("expiry_events_lost", total.counters.deaths_lost);
    told.field("expiry_events_waiting", total.deaths_waiting);
    told.field("expire_cycle_cpu_milliseconds", Value::Real(expiry.cycle_cpu_ms(), 3));
    told.field("expire_lag_p50_us", expiry.lag_us(0.5));
    told.field("expire_lag_p99_us", expiry.lag_us(0.99));
    told.field("expire_lag_max_us", expiry.lag_max_us());
    told.field("expire_lag_promised_us", from.promised_lag_us());
    told.field("expire_oldest_due_us", expiry.oldest_due_us);
    told.field("active_expire_enabled", u8::from(settings.enabled && settings.interval_ms > 0));
    told.field("active_expire_interval_ms", settings.interval_ms);
}

fn tell_cpu(told: &mut Facts, _: &Gathered) {
    for (who, suffix) in [(libc::RUSAGE_SELF, ""), (libc::RUSAGE_CHILDREN, "_children")] {
        let (system_us, user_us) = cpu_us(who);
        for (name, us) in [("sys", system_us), ("user", user_us)] {
            told.field(format!("used_cpu_{name}{suffix}"), Value::Real(us as f64 / 1e6, 6));
        }
    }
}

/// There are none.
fn tell_modules(_: &mut Facts, _: &Gathered) {}

fn tell_cluster(told: &mut Facts, _: &Gathered) {
    told.field("cluster_enabled", 0);
}

fn tell_keyspace(told: &mut Facts, from: &Gathered) {
    for (db, database) in from.total.databases.iter().enumerate().filter(|(_, database)| database.keys > 0) {
        let value = several([
            ("keys", database.keys.into()),
            ("expires", database.with_deadline.into()),
            ("avg_ttl", Value::Real(database.average_ttl_ms, 0)),
        ]);
        told.field(format!("db{db}"), value);
    }
}

fn tell_shards(told: &mut Facts, from: &Gathered) {
    for (index, shard) in from.shards.iter().enumerate() {
        let (counters, expiry) = (&shard.counters, &shard.expiry);
        let value = several([
            ("keys", shard.keys().into()),
            ("expires", shard.with_deadline().into()),
            ("bytes", shard.keyspace_bytes.into()),
            ("connections", shard.connections.into()),
            ("commands", shard.commands.into()),
            ("expired_access", counters.expired_by_access.into()),
            ("expired_cycle", counters.expired_by_cycle.into()),
            ("lag_p99_us", expiry.lag_us(0.99).into()),
            ("lag_max_us", expiry.lag_max_us().into()),
            ("oldest_due_us", expiry.oldest_due_us.into()),
            ("stale_perc", Value::Real(expiry.stale_percent, 2)),
            ("cycle_cpu_ms", Value::Real(expiry.cycle_cpu_ms(), 3)),
            ("cycles", expiry.cycles.into()),
            ("time_caps", expiry.time_caps.into()),
        ]);
        told.field(format!("shard{index}"), value);
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

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

    #[test]
    fn the_process_is_measured() {
        assert!(machine::resident_bytes() > 100_000 && machine::resident_bytes() < machine::physical_bytes());
        let (system_us, user_us) = cpu_us(libc::RUSAGE_SELF);
        assert!(system_us + user_us > 0);
    }
}
