//! Lag: how long after its deadline a key's `expired` event, or the `hexpired` event of a hash's field (or that of a member
//! of a set or a sorted set), reaches a subscriber.
//!
//! A million keys live on with far deadlines while 1,000 keys, or an element of each of 1,000 collections, die at one moment T.
//! The number that matters is the last event, not the typical one: a server that samples finds the first dead key soon
//! and the last one never.

use crate::Result;
use crate::load::{self, Deadline, VALUE, key, push_set};
use crate::options::Options;
use crate::report::{Experiment, Holds, Promise, Report};
use crate::server::{Contest, Kind, Server, Settings, pin_and_bind_to_parent};
use emberdb::measure::client::Client;
use emberdb::measure::plot::{self, Axis, Line, Scale};
use emberdb::measure::report::{Metric, quantile_of};
use emberdb::measure::resp::{Value, push_command};
use emberdb::measure::wall;
use std::collections::HashSet;
use std::io::{self, Write};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const LIVE_KEYS: u64 = 1_000_000;
const DUE_KEYS: u64 = 1_000;
const LEAD_MS: i64 = 3_000;

static EXPERIMENT: Experiment = Experiment {
    name: "lag",
    setting: "1,000 of 1,001,000 keys are due at the same moment; arrival of each expired event minus that moment, \
              in ms. Quiet; while a client repeats SCAN over everything; while redis-benchmark (-P 16 -c 50, SET and \
              GET) runs at full speed. The same for a field of each of 1,000 hashes, a member of each of 1,000 sets \
              and of 1,000 sorted sets, without redis-server, where those of this version have no deadlines. Beside it the lag the server itself publishes.",
    metrics: &[
        Metric::plain("p50 ms", 1),
        Metric::plain("p99 ms", 1),
        Metric::plain("last ms", 1),
        Metric::plain("in 25 ms", 0),
        Metric::plain("in 100 ms", 0),
        Metric::plain("in the wait", 0),
        Metric::plain("server's p99 ms", 1),
        Metric::plain("server's max ms", 1),
    ],
    promises: &[Promise {
        text: "p99 <= 25 ms and last <= 100 ms in 9 of 10 rounds",
        limits: &[("p99 ms", 25.0), ("last ms", 100.0)],
        holds: Holds::InRounds(0.9),
    }],
};

const VARIANTS: [&str; 7] = ["quiet", "scan", "load", "fields", "fields-load", "members", "scored-members"];

/// What dies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Dying {
    Keys,
    /// One of three of each hash.
    Fields,
    /// One of three of each set, or of each sorted set.
    Members,
    ScoredMembers,
}

impl Dying {
    pub fn of(variant: &str) -> Dying {
        match variant {
            "fields" | "fields-load" => Dying::Fields,
            "members" => Dying::Members,
            "scored-members" => Dying::ScoredMembers,
            _ => Dying::Keys,
        }
    }

    pub fn channel(self) -> &'static [u8] {
        match self {
            Dying::Keys => b"__keyevent@0__:expired",
            Dying::Fields => b"__keyevent@0__:hexpired",
            Dying::Members => b"__keyevent@0__:sexpired",
            Dying::ScoredMembers => b"__keyevent@0__:zexpired",
        }
    }

    /// What is due, each at its moment.
    pub fn load(self, server: &Server, due: Range<u64>, deadline_ms: impl Fn(u64) -> i64) -> Result<()> {
        if self == Dying::Keys {
            return load::pipeline(server, due, |number, out| {
                push_set(out, &key(b"due", number), VALUE, Deadline::AtUnixMs(deadline_ms(number)));
            });
        }
        load::pipeline(server, due.clone(), |number, out| {
            let key = &key(b"due", number)[..];
            match self {
                Dying::Members => push_command(out, &[b"SADD", key, b"stays", b"too", b"goes"]),
                Dying::ScoredMembers => push_command(out, &[b"ZADD", key, b"1", b"stays", b"2", b"goes", b"3", b"too"]),
                _ => push_command(out, &[b"HSET", key, b"stays", VALUE, b"too", VALUE]),
            }
        })?;
        load::pipeline(server, due, |number, out| {
            let (key, deadline) = (&key(b"due", number)[..], deadline_ms(number).to_string());
            let at = deadline.as_bytes();
            match self {
                Dying::Members => push_command(out, &[b"SPEXPIREAT", key, at, b"MEMBERS", b"1", b"goes"]),
                Dying::ScoredMembers => push_command(out, &[b"ZPEXPIREAT", key, at, b"MEMBERS", b"1", b"goes"]),
                _ => push_command(out, &[b"HSETEX", key, b"PXAT", at, b"FIELDS", b"1", b"goes", VALUE]),
            }
        })
    }

    /// The next round starts without what the cycle has not found, and without the collections.
    pub fn clear(server: &Server, due: Range<u64>) -> Result<()> {
        load::pipeline(server, due, |number, out| push_command(out, &[b"DEL", &key(b"due", number)]))
    }
}

pub fn run(options: &Options) -> Result<()> {
    if let Some(unknown) = options.variants.iter().find(|&name| !VARIANTS.contains(&name.as_str())) {
        return Err(format!("--variants {unknown}: not one of {}", VARIANTS.join(", ")).into());
    }
    let live_keys = options.scaled(LIVE_KEYS);
    let mut report = Report::new(options, &EXPERIMENT)?;
    let mut raw = report.raw("lag-events.csv", "server,variant,round,lags in ms (absent: not within the wait)")?;
    let mut curves = Vec::new();
    for variant in VARIANTS {
        if !options.variants.is_empty() && !options.variants.iter().any(|name| name == variant) {
            continue;
        }
        let settings = Settings { events: true, ..Settings::default() };
        let contest = Contest::start(options, settings, |server| {
            load::far_deadlines(server, 0..live_keys)?;
            expect_keys(server, live_keys)
        })?;
        let dying = Dying::of(variant);
        let takes_part = |kind: Kind| kind == Kind::Ember || dying == Dying::Keys;
        let mut pooled: Vec<(Kind, Vec<f64>)> = options.kinds.iter().map(|&kind| (kind, Vec::new())).collect();
        for round in 1..=options.rounds(10) {
            contest.round(round, |server| {
                if !takes_part(server.kind()) {
                    return Ok(());
                }
                let disturbance = Disturbance::start(options, server, variant)?;
                let observed = observe_round(server, dying, round, options.wait)?;
                drop(disturbance);
                let lags: Vec<String> = observed.lags_ms.iter().map(|lag| format!("{lag:.3}")).collect();
                writeln!(raw, "{},{variant},{round},{}", server.kind().name(), lags.join(","))?;
                report.round(server.kind(), variant, observed.columns());
                let pool = pooled.iter_mut().find(|(kind, _)| *kind == server.kind());
                pool.expect("a pool for each server").1.extend(observed.lags_ms);
                Ok(())
            })?;
        }
        let rounds = options.rounds(10);
        let pooled = pooled.into_iter().filter(|(kind, _)| takes_part(*kind));
        curves.extend(pooled.map(|(kind, lags)| curve(kind, variant, lags, rounds)));
    }
    raw.flush()?;
    let x = Axis { label: "ms after the deadline", scale: Scale::Logarithmic };
    let y = Axis { label: "% of events", scale: Scale::Linear };
    report.plot("lag.svg", &plot::lines("expired events that have arrived", &x, &y, &curves))?;
    report.finish()
}

/// What a server is kept busy with during a round.
pub enum Disturbance {
    Quiet,
    Scan { stop: Arc<AtomicBool>, scanner: Option<JoinHandle<io::Result<()>>> },
    Load(Child),
}

struct Observed {
    /// Sorted; shorter than the number of due keys where some did not come.
    lags_ms: Vec<f64>,
    server_p99_ms: f64,
    server_max_ms: f64,
}

impl Disturbance {
    pub fn start(options: &Options, server: &Server, variant: &str) -> Result<Disturbance> {
        match variant {
            "scan" => {
                let stop = Arc::new(AtomicBool::new(false));
                let client = server.client()?;
                let seen_by_scanner = Arc::clone(&stop);
                let scanner = std::thread::spawn(move || scan_until(client, &seen_by_scanner));
                Ok(Disturbance::Scan { stop, scanner: Some(scanner) })
            }
            "load" | "fields-load" => {
                let mut command = Command::new("nice");
                // At the lowest priority, or it would keep our own subscriber, on the same core, from the events.
                command.args(["-n", "19"]).arg(&options.redis_benchmark);
                command.args(["-p", &server.port().to_string(), "-P", "16", "-c", "50", "-t", "get,set"]);
                command.args(["-d", "32", "-r", "100000", "-n", "1000000", "-l", "-q"]);
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                pin_and_bind_to_parent(&mut command, options.generator_core);
                Ok(Disturbance::Load(command.spawn()?))
            }
            _ => Ok(Disturbance::Quiet),
        }
    }
}

impl Drop for Disturbance {
    fn drop(&mut self) {
        match self {
            Disturbance::Quiet => {}
            Disturbance::Scan { stop, scanner } => {
                stop.store(true, Ordering::Relaxed);
                match scanner.take().map(JoinHandle::join) {
                    None | Some(Ok(Ok(()))) => {}
                    outcome => eprintln!("warning: the scan ended early: {outcome:?}"),
                }
            }
            Disturbance::Load(process) => {
                if let Ok(Some(status)) = process.try_wait() {
                    eprintln!("warning: redis-benchmark ended early: {status}");
                }
                // Fails only where it has ended, which was just said.
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}

impl Observed {
    fn columns(&self) -> Vec<f64> {
        let within = |limit_ms: f64| self.lags_ms.iter().filter(|&&lag| lag <= limit_ms).count() as f64;
        let [p50, p99, last] = [0.5, 0.99, 1.0].map(|share| quantile_of(&self.lags_ms, DUE_KEYS, share));
        let arrived = self.lags_ms.len() as f64;
        vec![p50, p99, last, within(25.0), within(100.0), arrived, self.server_p99_ms, self.server_max_ms]
    }
}

fn observe_round(server: &Server, dying: Dying, round: usize, wait: Duration) -> Result<Observed> {
    let mut client = server.client()?;
    client.call(&[b"CONFIG", b"RESETSTAT"])?;
    let mut subscriber = server.client()?;
    subscriber.call(&[b"SUBSCRIBE", dying.channel()])?;

    let first = round as u64 * DUE_KEYS;
    let due = first..first + DUE_KEYS;
    let deadline_ms = wall::unix_ms() + LEAD_MS;
    dying.load(server, due.clone(), |_| deadline_ms)?;
    load::check_in_time(deadline_ms)?;

    let names: HashSet<[u8; 16]> = due.clone().map(|number| key(b"due", number)).collect();
    let limit = wall::instant_at(deadline_ms) + wait;
    let mut lags_ms = Vec::with_capacity(names.len());
    while lags_ms.len() < names.len() {
        let Some(event) = subscriber.next_before(limit)? else {
            break;
        };
        let lag_ms = (wall::unix_us() - deadline_ms * 1_000) as f64 / 1e3;
        if expired_key(&event).is_some_and(|name| names.contains(name)) {
            lags_ms.push(lag_ms);
        }
    }
    lags_ms.sort_by(f64::total_cmp);

    let info = server.info("everything")?;
    let published_ms = |field: &str| info.get(field).map_or(f64::NAN, |lag_us| lag_us / 1e3);
    let (server_p99_ms, server_max_ms) = (published_ms("expire_lag_p99_us"), published_ms("expire_lag_max_us"));
    Dying::clear(server, due)?;
    Ok(Observed { lags_ms, server_p99_ms, server_max_ms })
}

/// The key of an `expired` event.
pub fn expired_key(event: &Value) -> Option<&[u8]> {
    match event {
        Value::List(parts) if parts.len() == 3 => parts[2].text(),
        _ => None,
    }
}

pub fn expect_keys(server: &Server, expected: u64) -> Result<()> {
    match load::dbsize(server)? {
        keys if keys == expected => Ok(()),
        keys => Err(format!("{} holds {keys} keys after loading {expected}", server.kind().name()).into()),
    }
}

fn scan_until(mut client: Client, stop: &AtomicBool) -> io::Result<()> {
    let mut cursor = b"0".to_vec();
    while !stop.load(Ordering::Relaxed) {
        let reply = client.call(&[b"SCAN", &cursor, b"COUNT", b"100"]).map_err(io::Error::other)?;
        let next = match &reply {
            Value::List(parts) => parts.first().and_then(Value::text),
            _ => None,
        };
        cursor = next.ok_or_else(|| io::Error::other("SCAN did not answer with a cursor"))?.to_vec();
    }
    Ok(())
}

/// The share of events that had arrived by each moment, over all rounds.
fn curve(kind: Kind, variant: &str, mut lags_ms: Vec<f64>, rounds: usize) -> Line {
    lags_ms.sort_by(f64::total_cmp);
    let due = (DUE_KEYS as usize * rounds) as f64;
    let step = (lags_ms.len() / 500).max(1);
    let points = lags_ms.iter().enumerate().step_by(step).map(|(at, &lag)| (lag, (at + 1) as f64 / due * 100.0));
    Line { label: format!("{} {variant}", kind.name()), points: points.collect() }
}
