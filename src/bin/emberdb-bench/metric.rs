//! Figures of a round: one list of metrics for each sort of experiment.

use crate::round::Round;
use emberdb::measure::process;
use emberdb::measure::report::Metric;

/// Figures of a load, in this order.
pub const LOAD: &[Metric] = &[
    Metric::new("rate", "requests/s", 1.0, 0, true),
    Metric::new("mean_us", "mean ms", 1e-3, 3, true),
    Metric::new("p50_us", "p50 ms", 1e-3, 3, true),
    Metric::new("p99_us", "p99 ms", 1e-3, 3, true),
    Metric::new("p99.9_us", "p99.9 ms", 1e-3, 3, true),
    Metric::new("p99.99_us", "p99.99 ms", 1e-3, 3, true),
    Metric::new("max_us", "max ms", 1e-3, 3, true),
    Metric::new("max_p50s", "max / p50", 1.0, 1, false),
    Metric::new("server_cpu_us", "server us/req", 1.0, 3, true),
    Metric::new("generator_cpu_us", "generator us/req", 1.0, 3, false),
    Metric::new("generator_cpu_percent", "generator % of CPU", 1.0, 1, false),
    Metric::new("late_p99.9_us", "sent late p99.9 ms", 1e-3, 3, false),
    Metric::new("nils", "nil", 1.0, 0, false),
    Metric::new("unanswered", "unanswered", 1.0, 0, false),
    Metric::new("errors", "errors", 1.0, 0, false),
];

/// Figures of expired events, in ms after the deadline.
pub const LAG: &[Metric] = &[
    Metric::new("lag_p50_ms", "p50 ms", 1.0, 1, true),
    Metric::new("lag_p99_ms", "p99 ms", 1.0, 1, true),
    Metric::new("lag_last_ms", "last ms", 1.0, 1, true),
    Metric::new("events_in_25_ms", "in 25 ms", 1.0, 0, false),
    Metric::new("events_in_100_ms", "in 100 ms", 1.0, 0, false),
    Metric::new("events", "in the wait", 1.0, 0, false),
    Metric::new("server_lag_p50_us", "server's p50 ms", 1e-3, 1, false),
    Metric::new("server_lag_p99_us", "server's p99 ms", 1e-3, 1, false),
    Metric::new("server_lag_max_us", "server's max ms", 1e-3, 1, false),
];

pub const MASS_EXPIRY: &[Metric] = &[
    Metric::new("offered_rate", "GET/s", 1.0, 0, true),
    Metric::new("before_p99_us", "before p99 ms", 1e-3, 3, true),
    Metric::new("before_p99.9_us", "p99.9", 1e-3, 3, true),
    Metric::new("before_max_us", "max", 1e-3, 3, true),
    Metric::new("during_p99_us", "during p99 ms", 1e-3, 3, true),
    Metric::new("during_p99.9_us", "p99.9", 1e-3, 3, true),
    Metric::new("during_max_us", "max", 1e-3, 3, true),
    Metric::new("after_p99_us", "after p99 ms", 1e-3, 3, true),
    Metric::new("after_p99.9_us", "p99.9", 1e-3, 3, true),
    Metric::new("after_max_us", "max", 1e-3, 3, true),
    Metric::new("lag_p50_ms", "events p50 ms", 1.0, 1, true),
    Metric::new("lag_p99_ms", "events p99", 1.0, 1, true),
    Metric::new("lag_last_ms", "events last ms", 1.0, 1, true),
    Metric::new("events", "events", 1.0, 0, false),
    Metric::new("used_memory_back_s", "used_memory back s", 1.0, 1, true),
    Metric::new("rss_back_s", "RSS back s", 1.0, 1, true),
    Metric::new("late_p99.9_us", "sent late p99.9 ms", 1e-3, 3, false),
    Metric::new("errors", "errors", 1.0, 0, false),
];

pub const IDLE: &[Metric] = &[
    Metric::new("idle_connections", "connections", 1.0, 0, false),
    Metric::new("server_cpu_percent", "server % of a core", 1.0, 2, true),
    Metric::new("bytes_a_connection", "bytes a connection", 1.0, 0, true),
];

/// Bytes; a key is one time that the command was sent.
pub const MEMORY: &[Metric] = &[
    Metric::new("used_bytes_a_key", "used_memory a key", 1.0, 1, true),
    Metric::new("rss_bytes_a_key", "RSS a key", 1.0, 1, true),
    Metric::new("used_bytes", "used_memory MB", 1e-6, 1, false),
    Metric::new("rss_bytes", "RSS MB", 1e-6, 1, false),
];

/// What PINGs saw before a command and from it on.
pub const STALL: &[Metric] = &[
    Metric::new("command_ms", "command ms", 1.0, 3, true),
    Metric::new("before_p99_us", "before p99 ms", 1e-3, 3, true),
    Metric::new("before_p99.9_us", "p99.9", 1e-3, 3, true),
    Metric::new("before_max_us", "max", 1e-3, 3, true),
    Metric::new("before_slow", "slow", 1.0, 0, false),
    Metric::new("after_p99_us", "after p99 ms", 1e-3, 3, true),
    Metric::new("after_p99.9_us", "p99.9", 1e-3, 3, true),
    Metric::new("after_max_us", "max", 1e-3, 3, true),
    Metric::new("after_slow", "slow", 1.0, 0, false),
    Metric::new("used_memory_back_s", "used_memory back s", 1.0, 1, true),
    Metric::new("rss_back_s", "RSS back s", 1.0, 1, true),
    Metric::new("late_p99.9_us", "sent late p99.9 ms", 1e-3, 3, false),
    Metric::new("errors", "errors", 1.0, 0, false),
];

/// The figures of [`LOAD`]; what is not known is NaN.
pub fn load_figures(round: &Round, open: bool) -> Vec<f64> {
    let latency = round.latency_ns();
    let us = |ns: u64| ns as f64 / 1e3;
    let replies = round.replies().max(1) as f64;
    let outcome = &round.outcome;
    let late_us = if open { us(outcome.late_ns.value_at_quantile(0.999)) } else { f64::NAN };
    vec![
        round.rate(),
        latency.mean() / 1e3,
        us(latency.value_at_quantile(0.5)),
        us(latency.value_at_quantile(0.99)),
        us(latency.value_at_quantile(0.999)),
        us(latency.value_at_quantile(0.9999)),
        us(latency.max()),
        latency.max() as f64 / latency.value_at_quantile(0.5).max(1) as f64,
        round.cpu.server_ns.map_or(f64::NAN, |ns| us(ns) / replies),
        us(round.cpu.generator_ns) / replies,
        share_percent(round.cpu.generator_ns, round.seconds * process::cores() as f64),
        late_us,
        outcome.nils as f64,
        outcome.unanswered as f64,
        outcome.errors as f64,
    ]
}

/// Percent of so many seconds that so much CPU time is.
pub fn share_percent(cpu_ns: u64, seconds: f64) -> f64 {
    cpu_ns as f64 / 1e7 / seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        // A tenth of a second of CPU time in five seconds on two cores.
        assert!((share_percent(100_000_000, 5.0 * 2.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn names_differ() {
        for table in [LOAD, LAG, MASS_EXPIRY, IDLE, MEMORY, STALL] {
            let mut names: Vec<&str> = table.iter().map(|metric| metric.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), table.len());
        }
    }
}
