//! Timers: how late each of many deaths is told whose moments are spread over ten seconds, beside ten million live keys.
//!
//! People build delayed jobs and timeouts on the death of a key. What counts for them is each single event, not how soon
//! a crowd that dies together is gone.

use crate::Result;
use crate::lag::{Disturbance, Dying, expect_keys, expired_key};
use crate::load::{self, key};
use crate::options::Options;
use crate::report::{Experiment, Holds, Promise, Report};
use crate::server::{Contest, Kind, Server, Settings};
use emberdb::measure::report::{Metric, quantile_of};
use emberdb::measure::wall;
use std::collections::HashMap;
use std::io::Write;

const LIVE_KEYS: u64 = 10_000_000;
const DUE_KEYS: u64 = 1_000;
const LEAD_MS: i64 = 2_000;
const SPREAD_MS: i64 = 10_000;

static EXPERIMENT: Experiment = Experiment {
    name: "timers",
    setting: "1,000 keys due at moments spread evenly over 10 s beside ten million live ones; arrival of each expired \
              event minus its key's deadline, in ms, of which the first is the millisecond in which the key still \
              lives. Quiet; while a client repeats SCAN over everything; while redis-benchmark (-P 16 -c 50, SET and \
              GET) runs at full speed. The same for a field of each of 1,000 hashes, a member of each of 1,000 sets and of \
              1,000 sorted sets.",
    metrics: &[Metric::plain("p50 ms", 1), Metric::plain("p99 ms", 1), Metric::plain("last ms", 1)],
    promises: &[Promise {
        text: "p99 <= 3 ms and last <= 10 ms in 9 of 10 rounds",
        limits: &[("p99 ms", 3.0), ("last ms", 10.0)],
        holds: Holds::InRounds(0.9),
    }],
};

const VARIANTS: [&str; 6] = ["quiet", "scan", "load", "fields", "members", "scored-members"];

pub fn run(options: &Options) -> Result<()> {
    let live_keys = options.scaled(LIVE_KEYS);
    let mut report = Report::new(options, &EXPERIMENT)?;
    let mut raw = report.raw("timers-events.csv", "server,variant,round,lags in ms (absent: not within the wait)")?;
    let settings = Settings { events: true, ..Settings::default() };
    let contest = Contest::start(options, settings, |server| {
        if server.kind() == Kind::Ember {
            load::far_deadlines(server, 0..live_keys)?;
            expect_keys(server, live_keys)?;
        }
        Ok(())
    })?;
    for variant in VARIANTS {
        if !options.variants.is_empty() && !options.variants.iter().any(|name| name == variant) {
            continue;
        }
        for round in 1..=options.rounds(10) {
            contest.round(round, |server| {
                // What redis-server does with such timers is in `lag`: it finds next to none of them.
                if server.kind() != Kind::Ember {
                    return Ok(());
                }
                let disturbance = Disturbance::start(options, server, variant)?;
                let lags_ms = observe_round(server, Dying::of(variant), round, options)?;
                drop(disturbance);
                let lags: Vec<String> = lags_ms.iter().map(|lag| format!("{lag:.3}")).collect();
                writeln!(raw, "{},{variant},{round},{}", server.kind().name(), lags.join(","))?;
                let columns = [0.5, 0.99, 1.0].map(|share| quantile_of(&lags_ms, DUE_KEYS, share));
                report.round(server.kind(), variant, columns.to_vec());
                Ok(())
            })?;
        }
    }
    raw.flush()?;
    report.finish()
}

/// How late each event was, sorted.
fn observe_round(server: &Server, dying: Dying, round: usize, options: &Options) -> Result<Vec<f64>> {
    let mut subscriber = server.client()?;
    subscriber.call(&[b"SUBSCRIBE", dying.channel()])?;
    let first = round as u64 * DUE_KEYS;
    let due = first..first + DUE_KEYS;
    let start_ms = wall::unix_ms() + LEAD_MS;
    let deadline_ms = |number: u64| start_ms + (number - first) as i64 * SPREAD_MS / DUE_KEYS as i64;
    dying.load(server, due.clone(), deadline_ms)?;
    load::check_in_time(start_ms)?;
    let deadlines: HashMap<[u8; 16], i64> =
        due.clone().map(|number| (key(b"due", number), deadline_ms(number))).collect();
    let limit = wall::instant_at(start_ms + SPREAD_MS) + options.wait;
    let mut lags_ms = Vec::with_capacity(deadlines.len());
    while lags_ms.len() < deadlines.len() {
        let Some(event) = subscriber.next_before(limit)? else {
            break;
        };
        let arrived_us = wall::unix_us();
        if let Some(deadline_ms) = expired_key(&event).and_then(|name| deadlines.get(name)) {
            lags_ms.push((arrived_us - deadline_ms * 1_000) as f64 / 1e3);
        }
    }
    Dying::clear(server, due)?;
    lags_ms.sort_by(f64::total_cmp);
    Ok(lags_ms)
}
