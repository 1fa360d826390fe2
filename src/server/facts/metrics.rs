//! The facts as metrics, in the text format of Prometheus. Names are those of redis_exporter, so that its dashboards work,
//! where it has one that promtool has no complaint about; what is ours begins with `emberdb_`, in seconds and bytes. No key
//! and no prefix is a label.

use super::{Fact, Facts, Gathered, SECTIONS};
use crate::clock::{realtime_us, store_us};
use crate::config::format_duration;
use crate::expiry::foresight::{HORIZONS_MS, Outlook};
use crate::net::step_back;
use std::collections::HashMap;
use std::fmt::{Display, Write};
use std::rc::Rc;

/// What version 0.0.4 of the format calls itself.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A fact of INFO as a metric: its value times a factor. A word is 1 where it says that all is well.
struct Named {
    fact: &'static str,
    metric: &'static str,
    kind: Kind,
    factor: f64,
    help: &'static str,
}

const fn gauge(fact: &'static str, metric: &'static str, help: &'static str) -> Named {
    Named { fact, metric, kind: Kind::Gauge, factor: 1.0, help }
}

const fn counter(fact: &'static str, metric: &'static str, help: &'static str) -> Named {
    Named { fact, metric, kind: Kind::Counter, factor: 1.0, help }
}

impl Named {
    const fn times(mut self, factor: f64) -> Named {
        self.factor = factor;
        self
    }
}

const NAMED: &[Named] = &[
    gauge("uptime_in_seconds", "redis_uptime_in_seconds", "Seconds since the start."),
    gauge("connected_clients", "redis_connected_clients", "Connections of clients."),
    gauge("process_id", "redis_process_id", "The process."),
    gauge("maxclients", "redis_max_clients", "Connections that there may be."),
    gauge("maxclients", "redis_config_maxclients", "Connections that there may be."),
    gauge("cluster_connections", "redis_cluster_connections", "Connections of other nodes."),
    gauge("blocked_clients", "redis_blocked_clients", "Connections that wait for a key."),
    gauge("tracking_clients", "redis_tracking_clients", "Connections that track what they read."),
    gauge("pubsub_clients", "redis_pubsub_clients", "Connections with subscriptions."),
    gauge("live_queries", "emberdb_live_queries", "Live queries of all connections."),
    gauge("live_views", "emberdb_live_views", "Different views that answer them."),
    gauge("watching_clients", "redis_watching_clients", "Connections that watch keys."),
    gauge("clients_in_timeout_table", "redis_clients_in_timeout_table", "Waits that end by themselves."),
    gauge("total_watched_keys", "redis_total_watched_keys", "Keys that are watched."),
    gauge("total_blocking_keys", "redis_total_blocking_keys", "Keys for which somebody waits."),
    gauge("used_memory", "redis_memory_used_bytes", "Memory that was allocated."),
    gauge("used_memory_rss", "redis_memory_used_rss_bytes", "Resident memory."),
    gauge("used_memory_peak", "redis_memory_used_peak_bytes", "The most memory that was ever allocated."),
    gauge("used_memory_overhead", "redis_memory_used_overhead_bytes", "Memory that is not the data's."),
    gauge("used_memory_startup", "redis_memory_used_startup_bytes", "Memory that was allocated at the start."),
    gauge("used_memory_dataset", "redis_memory_used_dataset_bytes", "Memory of the data."),
    gauge("used_memory_lua", "redis_memory_used_lua_bytes", "Memory that scripts use."),
    gauge("used_memory_scripts", "redis_memory_used_scripts_bytes", "Memory of the sources of scripts and functions."),
    gauge("number_of_cached_scripts", "redis_number_of_cached_scripts", "Scripts that are kept."),
    gauge("number_of_functions", "redis_number_of_functions", "Functions."),
    gauge("number_of_libraries", "redis_number_of_libraries", "Libraries of functions."),
    gauge("maxmemory", "redis_memory_max_bytes", "The ceiling of memory; 0 is none."),
    gauge("maxmemory", "redis_config_maxmemory", "The ceiling of memory; 0 is none."),
    gauge("mem_fragmentation_ratio", "redis_mem_fragmentation_ratio", "Resident memory for each allocated byte."),
    gauge("mem_fragmentation_bytes", "redis_mem_fragmentation_bytes", "Resident memory beyond what is allocated."),
    gauge("mem_clients_slaves", "redis_mem_clients_slaves", "Bytes that connections of replicas hold."),
    gauge("mem_clients_normal", "redis_mem_clients_normal", "Bytes that connections hold."),
    gauge(
        "mem_not_counted_for_evict",
        "redis_mem_not_counted_for_eviction_bytes",
        "Bytes that no eviction gives back.",
    ),
    gauge("lazyfree_pending_objects", "redis_lazyfree_pending_objects", "Keys that are gone and still hold memory."),
    gauge("loading", "redis_loading_dump_file", "Data is being loaded."),
    gauge("rdb_changes_since_last_save", "redis_rdb_changes_since_last_save", "Changes that no snapshot has."),
    gauge("rdb_bgsave_in_progress", "redis_rdb_bgsave_in_progress", "A snapshot is being written."),
    gauge("rdb_last_save_time", "redis_rdb_last_save_timestamp_seconds", "When the last snapshot was written."),
    gauge("rdb_last_bgsave_status", "redis_rdb_last_bgsave_status", "The last snapshot was written as a whole."),
    counter("rdb_saves", "redis_rdb_saves_total", "Snapshots that were written."),
    gauge("aof_enabled", "redis_aof_enabled", "There is a log."),
    gauge("aof_rewrite_in_progress", "redis_aof_rewrite_in_progress", "The log is being made anew."),
    gauge("aof_rewrite_scheduled", "redis_aof_rewrite_scheduled", "The log is to be made anew."),
    gauge("aof_last_bgrewrite_status", "redis_aof_last_bgrewrite_status", "The log was made anew as a whole."),
    gauge("aof_last_write_status", "redis_aof_last_write_status", "The log takes what is written to it."),
    gauge("aof_current_size", "redis_aof_current_size_bytes", "Bytes of the log."),
    gauge("aof_base_size", "redis_aof_base_size_bytes", "Bytes of the log when it was made anew."),
    gauge("aof_buffer_length", "redis_aof_buffer_length", "Bytes that wait to be written to the log."),
    gauge("aof_delayed_fsync", "redis_aof_delayed_fsync", "Times that the log had to wait for the disk."),
    counter("total_connections_received", "redis_connections_received_total", "Connections so far."),
    counter("total_commands_processed", "redis_commands_processed_total", "Commands so far."),
    counter("rejected_connections", "redis_rejected_connections_total", "Connections that were refused."),
    counter("total_net_input_bytes", "redis_net_input_bytes_total", "Bytes that came."),
    counter("total_net_output_bytes", "redis_net_output_bytes_total", "Bytes that went."),
    gauge("instantaneous_ops_per_sec", "emberdb_commands_per_second", "Commands a second, over three seconds."),
    counter("expired_keys", "redis_expired_keys_total", "Keys that have died."),
    counter(
        "expired_subkeys",
        "redis_expired_subkeys_total",
        "Fields of hashes and members of sets and sorted sets that have died.",
    ),
    counter("expired_time_cap_reached_count", "redis_expired_time_cap_reached_total", "Cycles that had no time left."),
    gauge("expired_stale_perc", "redis_expired_stale_percentage", "Share of the dead among keys with deadlines."),
    counter("evicted_keys", "redis_evicted_keys_total", "Keys that went since memory was short."),
    gauge("blessed_keys", "redis_blessed_keys", "Keys that are never evicted, by BLESS."),
    gauge("stale_copies", "emberdb_stale_copies", "Copies of dead keys that GETFRESH shows."),
    gauge("stale_copies_bytes", "emberdb_stale_copies_bytes", "Bytes of these copies."),
    counter("stale_copies_shown", "emberdb_stale_copies_shown_total", "Times that GETFRESH has shown one of them."),
    counter("evicted_clients", "redis_evicted_clients_total", "Connections that went since they held too much."),
    counter(
        "client_query_buffer_limit_disconnections",
        "redis_client_query_buffer_limit_disconnections_total",
        "Connections that went since too much waited that they had sent.",
    ),
    counter(
        "client_output_buffer_limit_disconnections",
        "redis_client_output_buffer_limit_disconnections_total",
        "Connections that went since they had too much to read.",
    ),
    counter("acl_access_denied_auth", "redis_acl_access_denied_auth_total", "Names and passwords that were wrong."),
    counter("acl_access_denied_cmd", "redis_acl_access_denied_cmd_total", "Commands that users may not run."),
    counter("acl_access_denied_key", "redis_acl_access_denied_key_total", "Keys that users may not touch."),
    counter("acl_access_denied_channel", "redis_acl_access_denied_channel_total", "Channels that users may not use."),
    counter("keyspace_hits", "redis_keyspace_hits_total", "Keys that were looked for and found."),
    counter("keyspace_misses", "redis_keyspace_misses_total", "Keys that were looked for and not found."),
    gauge("pubsub_channels", "redis_pubsub_channels", "Channels with subscribers."),
    gauge("pubsub_patterns", "redis_pubsub_patterns", "Patterns with subscribers."),
    gauge("pubsubshard_channels", "redis_pubsubshard_channels", "Sharded channels with subscribers."),
    gauge("tracking_total_keys", "redis_tracking_total_keys", "Keys that connections track."),
    gauge("tracking_total_items", "redis_tracking_total_items", "Keys that are tracked, for each connection."),
    gauge("tracking_total_prefixes", "redis_tracking_total_prefixes", "Prefixes that connections track."),
    gauge("connected_slaves", "redis_connected_slaves", "Replicas."),
    gauge("master_repl_offset", "redis_master_repl_offset", "How far the stream for replicas is."),
    gauge("second_repl_offset", "redis_second_repl_offset", "How far the stream was before this was its source."),
    gauge("repl_backlog_active", "redis_repl_backlog_is_active", "Some of the stream is kept for replicas."),
    gauge("repl_backlog_size", "redis_replication_backlog_bytes", "How much of the stream is kept."),
    gauge("repl_backlog_first_byte_offset", "redis_repl_backlog_first_byte_offset", "Where what is kept begins."),
    gauge("repl_backlog_histlen", "redis_repl_backlog_history_bytes", "How much of the stream there is to keep."),
    counter("used_cpu_sys_children", "redis_cpu_sys_children_seconds_total", "CPU time of children in the kernel."),
    counter("used_cpu_user_children", "redis_cpu_user_children_seconds_total", "CPU time of children outside of it."),
    counter("used_cpu_sys", "redis_cpu_sys_seconds_total", "CPU time in the kernel."),
    counter("used_cpu_user", "redis_cpu_user_seconds_total", "CPU time outside of the kernel."),
    gauge("cluster_enabled", "redis_cluster_enabled", "This is a node of a cluster."),
    gauge("shards", "emberdb_shards", "Shards."),
    counter("expired_keys_active", "emberdb_expired_keys_by_cycle_total", "Keys that the cycle has deleted."),
    counter("expired_bytes", "emberdb_expired_bytes_total", "Bytes that the dead have given back."),
    counter("expired_misses", "emberdb_expired_misses_total", "Misses of advised keys whose deadlines had passed."),
    gauge("advised_prefixes", "emberdb_advised_prefixes", "Prefixes that advisors follow."),
    gauge("mem_advisors", "emberdb_memory_advisors_bytes", "Memory that advisors use."),
    counter("expiry_events_written", "emberdb_deaths_written_total", "Deaths that were written to streams."),
    counter("expiry_events_lost", "emberdb_deaths_lost_total", "Deaths that could not be written to streams."),
    gauge("expiry_events_waiting", "emberdb_deaths_waiting", "Deaths that are still to be written to streams."),
    counter("expire_cycle_cpu_milliseconds", "emberdb_expire_cycle_cpu_seconds_total", "CPU time of the cycle.")
        .times(1e-3),
    gauge("expire_oldest_due_us", "emberdb_expire_oldest_due_seconds", "How late the oldest dead key is.").times(1e-6),
    gauge("active_expire_enabled", "emberdb_active_expire_enabled", "The cycle is on."),
    gauge("rdb_last_bgsave_time_sec", "emberdb_snapshot_last_duration_seconds", "How long the last snapshot took."),
    gauge("aof_last_rewrite_time_sec", "emberdb_log_last_rewrite_duration_seconds", "How long making it anew took."),
    counter("aof_slow_writes", "emberdb_log_slow_writes_total", "Writes to the log that no reply waited for."),
    gauge("aof_buffer_limit", "emberdb_log_buffer_limit_bytes", "Bytes that may wait to be written to the log."),
    counter("total_error_replies", "emberdb_error_replies_total", "Replies that were errors."),
    counter("total_reads_processed", "emberdb_reads_processed_total", "Times that sockets were read."),
    counter("total_writes_processed", "emberdb_writes_processed_total", "Times that sockets were written to."),
    counter("scripts_holding_everything", "emberdb_scripts_holding_everything_total", "Scripts that left their keys."),
    gauge("mem_aof_buffer", "emberdb_memory_log_bytes", "Memory of what waits to be written to the log."),
    gauge("mem_kept_buffers", "emberdb_memory_kept_buffers_bytes", "Memory of buffers that are kept for reuse."),
    gauge("mem_slowlog", "emberdb_memory_slowlog_bytes", "Memory of the slow log."),
    gauge("used_memory_vm_total", "emberdb_memory_scripting_bytes", "Memory that scripts and functions use."),
    counter("table_compactions", "emberdb_table_compactions_total", "Blocks that were made anew."),
    counter("table_merges", "emberdb_table_merges_total", "Blocks that were put together."),
];

/// Upper bounds of the latencies' buckets, in microseconds.
const BUCKETS_US: [u64; 15] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 50_000, 250_000, 1_000_000];
/// Of so many commands the latencies are told at once.
const COMMANDS_A_SLICE: usize = 16;

#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, metric: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.line(format_args!("# HELP {metric} {help}"));
        self.line(format_args!("# TYPE {metric} {kind}"));
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn one(&mut self, metric: &str, kind: Kind, help: &str, value: impl Display) {
        self.head(metric, kind, help);
        self.line(format_args!("{metric} {value}"));
    }

    /// A metric with one label.
    fn each<L: AsRef<str>, V: Display>(
        &mut self,
        (metric, kind, help): (&str, Kind, &str),
        label: &str,
        all: impl Iterator<Item = (L, V)>,
    ) {
        let mut is_told = false;
        for (of, value) in all {
            if !std::mem::replace(&mut is_told, true) {
                self.head(metric, kind, help);
            }
            self.line(format_args!("{metric}{{{label}=\"{}\"}} {value}", escaped(of.as_ref())));
        }
    }
}

/// As a label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// All metrics, in slices: others have their turns in between.
/// An outlook is one of the moment beside it.
pub async fn text(from: &Gathered, outlook: Option<(u64, Rc<Outlook>)>) -> String {
    let mut facts = Facts::default();
    for (_, tell) in SECTIONS {
        tell(&mut facts, from);
    }
    let by_name: HashMap<&str, &Fact> = facts.0.iter().map(|fact| (&*fact.name, fact)).collect();
    let find = |name: &str| by_name.get(name).copied();
    step_back().await;
    let mut text = Text::default();
    text.one("redis_up", Kind::Gauge, "The server answers.", 1);
    tell_instance(&mut text, find);
    for Named { fact, metric, kind, factor, help } in NAMED {
        if let Some(value) = find(fact).and_then(number) {
            text.one(metric, *kind, help, value * factor);
        }
    }
    step_back().await;
    tell_times(&mut text, from);
    tell_databases(&mut text, from);
    step_back().await;
    tell_commands(&mut text, from);
    step_back().await;
    tell_latencies(&mut text, from).await;
    tell_shards(&mut text, from);
    if let Some((from_ms, outlook)) = outlook {
        tell_outlook(&mut text, from_ms, &outlook);
    }
    text.0
}

fn number(fact: &Fact) -> Option<f64> {
    match &fact.value {
        super::Value::Text(text) if text == "ok" => Some(1.0),
        super::Value::Text(text) if text == "err" => Some(0.0),
        value => value.number(),
    }
}

fn tell_instance<'a>(text: &mut Text, find: impl Fn(&str) -> Option<&'a Fact>) {
    const LABELS: [&str; 8] =
        ["role", "redis_version", "emberdb_version", "redis_mode", "os", "maxmemory_policy", "tcp_port", "run_id"];
    let label = |name: &str| Some(format!("{name}=\"{}\"", escaped(&find(name)?.value.to_string())));
    let labels: Vec<String> = LABELS.iter().filter_map(|name| label(name)).collect();
    text.head("redis_instance_info", Kind::Gauge, "What the server is.");
    text.line(format_args!("redis_instance_info{{{}}} 1", labels.join(",")));
    if let Some(network) = label("network") {
        text.head("emberdb_network_info", Kind::Gauge, "What carries the connections: ring, glommio or epoll.");
        text.line(format_args!("emberdb_network_info{{{network}}} 1"));
    }
}

fn tell_times(text: &mut Text, from: &Gathered) {
    let up_s = store_us().saturating_sub(from.server.global.started_us) / 1_000_000;
    let started_s = (realtime_us() / 1_000_000).saturating_sub(up_s);
    text.one("redis_start_time_seconds", Kind::Gauge, "When the server was started.", started_s);
    let expiry = &from.total.expiry;
    for (share, us) in [("p50", expiry.lag_us(0.5)), ("p99", expiry.lag_us(0.99)), ("max", expiry.lag_max_us())] {
        let help = "How long after their deadlines keys were deleted.";
        text.one(&format!("emberdb_expire_lag_{share}_seconds"), Kind::Gauge, help, us as f64 / 1e6);
    }
    let help = "The lag that is promised, beside the work on what is due.";
    text.one("emberdb_expire_lag_promised_seconds", Kind::Gauge, help, from.promised_lag_us() as f64 / 1e6);
    let policies = from.config.expiry_policies.lock().len();
    text.one("emberdb_policies", Kind::Gauge, "Policies for prefixes.", policies);
    let slow = from.server.global.slow_commands.load(std::sync::atomic::Ordering::Relaxed);
    let entries = from.total.slowlog_entries;
    text.one("redis_slowlog_length", Kind::Gauge, "Commands in the slow log.", entries);
    text.one("emberdb_slow_commands_total", Kind::Counter, "Commands that came to the slow log.", slow);
}

fn tell_databases(text: &mut Text, from: &Gathered) {
    let all = || from.total.databases.iter().enumerate().map(|(db, database)| (format!("db{db}"), database));
    let keys = ("redis_db_keys", Kind::Gauge, "Live keys.");
    text.each(keys, "db", all().map(|(db, database)| (db, database.keys)));
    let expiring = ("redis_db_keys_expiring", Kind::Gauge, "Live keys with deadlines.");
    text.each(expiring, "db", all().map(|(db, database)| (db, database.with_deadline)));
    let ttl = ("redis_db_avg_ttl_seconds", Kind::Gauge, "How long keys with deadlines still live, on average.");
    let with_keys = all().filter(|(_, database)| database.keys > 0);
    text.each(ttl, "db", with_keys.map(|(db, database)| (db, database.average_ttl_ms.round() / 1e3)));
}

fn tell_commands(text: &mut Text, from: &Gathered) {
    let name = |command: usize| from.server.table.at(command).full_name;
    let all = || from.total.statistics.commands();
    let calls = ("redis_commands_total", Kind::Counter, "Calls of commands.");
    text.each(calls, "cmd", all().map(|(command, calls)| (name(command), calls.calls)));
    let seconds = ("redis_commands_duration_seconds_total", Kind::Counter, "How long calls of commands took.");
    // (In whole microseconds, as INFO tells them.)
    text.each(seconds, "cmd", all().map(|(command, calls)| (name(command), (calls.ns / 1_000) as f64 / 1e6)));
    let rejected = ("redis_commands_rejected_calls_total", Kind::Counter, "Calls that were refused.");
    text.each(rejected, "cmd", all().map(|(command, calls)| (name(command), calls.rejected)));
    let failed = ("redis_commands_failed_calls_total", Kind::Counter, "Calls that answered an error.");
    text.each(failed, "cmd", all().map(|(command, calls)| (name(command), calls.failed)));
    let errors = ("redis_errors_total", Kind::Counter, "Errors, by their first word.");
    text.each(
        errors,
        "err",
        from.total.statistics.errors().map(|(word, count)| (String::from_utf8_lossy(word).into_owned(), count)),
    );
}

async fn tell_latencies(text: &mut Text, from: &Gathered) {
    let metric = "emberdb_command_duration_seconds";
    text.head(metric, Kind::Histogram, "How long calls of commands took.");
    for (index, (command, calls)) in from.total.statistics.commands().enumerate() {
        if index % COMMANDS_A_SLICE == COMMANDS_A_SLICE - 1 {
            step_back().await;
        }
        let Some(latency) = &calls.latency else { continue };
        let (cmd, mut below) = (from.server.table.at(command).full_name, 0);
        let mut rest = latency.iter_recorded().peekable();
        for bound_us in BUCKETS_US {
            while let Some(step) = rest.next_if(|step| step.value_iterated_to() <= bound_us * 1_000) {
                below += step.count_since_last_iteration();
            }
            text.line(format_args!("{metric}_bucket{{cmd=\"{cmd}\",le=\"{}\"}} {below}", bound_us as f64 / 1e6));
        }
        text.line(format_args!("{metric}_bucket{{cmd=\"{cmd}\",le=\"+Inf\"}} {}", latency.len()));
        text.line(format_args!("{metric}_sum{{cmd=\"{cmd}\"}} {}", calls.ns as f64 / 1e9));
        text.line(format_args!("{metric}_count{{cmd=\"{cmd}\"}} {}", latency.len()));
    }
}

/// Keys that were to die, by when.
fn tell_outlook(text: &mut Text, from_ms: u64, outlook: &Outlook) {
    let all = || HORIZONS_MS.iter().map(|ms| format_duration(*ms)).zip(&outlook.within);
    let keys = ("emberdb_forecast_keys", Kind::Gauge, "Keys that die within a time, as things stood.");
    text.each(keys, "within", all().map(|(within, forecast)| (within, forecast.keys)));
    let bytes = ("emberdb_forecast_bytes", Kind::Gauge, "Bytes of the keys that die within a time.");
    text.each(bytes, "within", all().map(|(within, forecast)| (within, forecast.bytes)));
    let help = "When it was last looked what is to die.";
    text.one("emberdb_forecast_timestamp_seconds", Kind::Gauge, help, from_ms as f64 / 1e3);
}

fn tell_shards(text: &mut Text, from: &Gathered) {
    let all = || from.shards.iter().enumerate().map(|(index, shard)| (index.to_string(), shard));
    let mut tell = |metric: &str, kind: Kind, help: &str, value: &dyn Fn(&super::Snapshot) -> f64| {
        text.each((metric, kind, help), "shard", all().map(|(index, shard)| (index, value(shard))));
    };
    tell("emberdb_shard_keys", Kind::Gauge, "Live keys.", &|shard| shard.keys() as f64);
    tell("emberdb_shard_keyspace_bytes", Kind::Gauge, "Memory of the keyspace.", &|shard| shard.keyspace_bytes as f64);
    tell("emberdb_shard_connections", Kind::Gauge, "Connections.", &|shard| shard.connections as f64);
    tell("emberdb_shard_commands_total", Kind::Counter, "Commands.", &|shard| shard.commands as f64);
    tell("emberdb_shard_expired_keys_total", Kind::Counter, "Keys that have died.", &|shard| shard.expired() as f64);
    tell("emberdb_shard_evicted_keys_total", Kind::Counter, "Keys that went since memory was short.", &|shard| {
        shard.counters.evicted as f64
    });
    tell("emberdb_shard_expire_lag_p99_seconds", Kind::Gauge, "The lag that one of a hundred passes.", &|shard| {
        shard.expiry.lag_us(0.99) as f64 / 1e6
    });
    tell("emberdb_shard_expire_lag_max_seconds", Kind::Gauge, "The longest lag.", &|shard| {
        shard.expiry.lag_max_us() as f64 / 1e6
    });
    tell("emberdb_shard_expire_cycle_cpu_seconds_total", Kind::Counter, "CPU time of the cycle.", &|shard| {
        shard.expiry.cycle_cpu_ms() / 1e3
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_told_once_and_as_prometheus_wants_them() {
        let mut names = HashSet::new();
        for Named { metric, kind, help, .. } in NAMED {
            assert!(names.insert(metric), "{metric}");
            assert_eq!(metric.ends_with("_total"), matches!(kind, Kind::Counter), "{metric}");
            assert!(help.ends_with('.') && metric.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
        }
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), r#"a\"b\\c\nd"#);
    }
}
