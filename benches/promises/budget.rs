//! Budget: under more deaths than the cycle may handle, its CPU stays within `active-expire-cpu-percent`, and the
//! keys that died first go first.
//!
//! Each key's name holds its deadline, so the subscriber can tell from an event alone how far it ran ahead of the
//! oldest key that was still waiting.

use crate::load::{self, Deadline, VALUE, key, push_set};
use crate::options::Options;
use crate::report::{Experiment, Holds, Promise, Report};
use crate::server::{Kind, Server, Settings, alternating, numbers};
use crate::{Result, lag};
use emberdb::measure::client::Client;
use emberdb::measure::plot::{self, Axis, Line, Scale};
use emberdb::measure::report::Metric;
use emberdb::measure::wall;
use hdrhistogram::Histogram;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const KEYS: u64 = 3_000_000;
const SPREAD_MS: u64 = 4_000;
const CPU_PERCENT: u32 = 5;
const SAMPLE: Duration = Duration::from_millis(50);
const WINDOW_S: f64 = 1.0;
/// Three million deletions with their events at 5 % of a core, generously.
const DRAIN_LIMIT: Duration = Duration::from_secs(180);
/// Key numbers are the deadline's offset in ms times this, plus a serial number.
const SERIALS: u64 = 100_000_000;

static EXPERIMENT: Experiment = Experiment {
    name: "budget",
    setting: "3,000,000 deadlines spread over 4 s, active-expire-cpu-percent 5 (redis-server: effort 1); \
              expire_cycle_cpu_milliseconds read every 50 ms; by how many ms a key's deadline was later than the \
              oldest one not yet announced when its event came.",
    metrics: &[
        Metric::plain("worst 1 s CPU %", 2),
        Metric::plain("mean CPU %", 2),
        Metric::plain("deleted", 0),
        Metric::plain("drained after s", 1),
        Metric::plain("events", 0),
        Metric::plain("ahead p99 ms", 0),
        Metric::plain("ahead max ms", 0),
    ],
    promises: &[Promise {
        text: "cycle CPU in any 1 s <= 5 % and one block (1 ms)",
        limits: &[("worst 1 s CPU %", 5.1)],
        holds: Holds::InTheMedian,
    }],
};

pub fn run(options: &Options) -> Result<()> {
    let mut report = Report::new(options, &EXPERIMENT)?;
    let mut raw = report.raw("budget-samples.csv", "server,round,s after the first deadline,cycle ms,expired_keys")?;
    let mut curves = Vec::new();
    let rounds = options.rounds(5);
    for round in 1..=rounds {
        for &kind in alternating(&options.kinds, round) {
            let observed = load::allowing_time(options, |allowance| observe_round(options, kind, allowance))?;
            report.round(kind, "", observed.columns());
            for sample in &observed.samples {
                let (at_s, cycle_ms, expired) = (sample.at_s, sample.cycle_ms, sample.expired);
                writeln!(raw, "{},{round},{at_s:.4},{cycle_ms:.3},{expired}", kind.name())?;
            }
            if round == rounds {
                curves.push(Line { label: kind.name().to_owned(), points: windows(&observed.samples) });
            }
        }
    }
    raw.flush()?;
    let x = Axis { label: "s after the first deadline", scale: Scale::Linear };
    let y = Axis { label: "% of the second before", scale: Scale::Linear };
    report.plot("budget.svg", &plot::lines("CPU of the expiry cycle, last round", &x, &y, &curves))?;
    report.finish()
}

struct Observed {
    samples: Vec<Sample>,
    order: Order,
    drained_s: f64,
}

/// One reading of INFO.
struct Sample {
    at_s: f64,
    cycle_ms: f64,
    expired: f64,
}

/// In which order deaths were announced.
struct Order {
    /// Deadlines not yet announced, by offset in ms.
    waiting: Vec<u32>,
    oldest: usize,
    ahead_ms: Histogram<u64>,
}

fn observe_round(options: &Options, kind: Kind, allowance: Duration) -> Result<Observed> {
    let keys = options.scaled(KEYS);
    let server = Server::start(options, kind, Settings { events: true, expire_cpu_percent: Some(CPU_PERCENT) })?;
    let mut subscriber = server.client()?;
    subscriber.call(&[b"SUBSCRIBE", b"__keyevent@0__:expired"])?;

    let first_ms = load::moment_after_loading(keys, allowance) + 1_000;
    let mut rng = fastrand::Rng::with_seed(3);
    let mut waiting = vec![0; SPREAD_MS as usize];
    load::pipeline(&server, 0..keys, |serial, out| {
        let offset_ms = rng.u64(0..SPREAD_MS);
        waiting[offset_ms as usize] += 1;
        let deadline = Deadline::AtUnixMs(first_ms + offset_ms as i64);
        push_set(out, &key(b"bud", offset_ms * SERIALS + serial), VALUE, deadline);
    })?;
    load::check_in_time(first_ms - 1_000)?;

    let first = wall::instant_at(first_ms);
    wall::sleep_until(first - Duration::from_secs(1));
    let order = Order { waiting, oldest: 0, ahead_ms: Histogram::new_with_max(SPREAD_MS, 3)? };
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let listener = scope.spawn(|| order.listen(&mut subscriber, keys, &ended));
        let sampled = sample_until_drained(&server, first, keys);
        ended.store(true, Ordering::Relaxed);
        let order = listener.join().expect("the listener does not panic")?;
        let (samples, drained_s) = sampled?;
        Ok(Observed { samples, order, drained_s })
    })
}

/// Reads INFO at a steady pace until all keys are deleted. Returns the readings, and the seconds from the last
/// deadline to the last deletion: infinite where the limit came first.
fn sample_until_drained(server: &Server, first: Instant, keys: u64) -> Result<(Vec<Sample>, f64)> {
    let mut client = server.client()?;
    let last = first + Duration::from_millis(SPREAD_MS);
    let mut samples = Vec::new();
    let mut next = first - Duration::from_secs(1);
    loop {
        wall::sleep_until(next);
        next += SAMPLE;
        let info = numbers(client.info("stats")?);
        let now = Instant::now();
        let field = |name: &str| info.get(name).copied().ok_or_else(|| format!("INFO has no {name}"));
        let at_s = wall::seconds_since(first, now);
        let expired = field("expired_keys")?;
        samples.push(Sample { at_s, cycle_ms: field("expire_cycle_cpu_milliseconds")?, expired });
        if expired >= keys as f64 {
            return Ok((samples, wall::seconds_since(last, now)));
        }
        if now > last + DRAIN_LIMIT {
            return Ok((samples, f64::INFINITY));
        }
    }
}

/// For each sample the cycle's share of CPU, in per cent, over the shortest window of at least a second up to it.
fn windows(samples: &[Sample]) -> Vec<(f64, f64)> {
    let mut start = 0;
    let mut shares = Vec::new();
    for end in samples {
        while samples.get(start + 1).is_some_and(|next| end.at_s - next.at_s >= WINDOW_S) {
            start += 1;
        }
        let length_s = end.at_s - samples[start].at_s;
        if length_s >= WINDOW_S {
            shares.push((end.at_s, (end.cycle_ms - samples[start].cycle_ms) / (length_s * 10.0)));
        }
    }
    shares
}

impl Observed {
    fn columns(&self) -> Vec<f64> {
        let worst = windows(&self.samples).iter().map(|&(_, share)| share).fold(0.0, f64::max);
        let (start, end) = (&self.samples[0], &self.samples[self.samples.len() - 1]);
        let mean = (end.cycle_ms - start.cycle_ms) / ((end.at_s - start.at_s) * 10.0);
        let ahead_ms = &self.order.ahead_ms;
        vec![
            worst,
            mean,
            end.expired,
            self.drained_s,
            ahead_ms.len() as f64,
            ahead_ms.value_at_quantile(0.99) as f64,
            ahead_ms.max() as f64,
        ]
    }
}

impl Order {
    /// Takes events until all have come, or none for a second after the sampling has ended.
    fn listen(mut self, subscriber: &mut Client, keys: u64, ended: &AtomicBool) -> io::Result<Order> {
        while self.ahead_ms.len() < keys {
            match subscriber.next_before(Instant::now() + Duration::from_secs(1)).map_err(io::Error::other)? {
                Some(event) => {
                    let number = lag::expired_key(&event).and_then(key_number);
                    let number = number.ok_or_else(|| io::Error::other("an event without one of our keys"))?;
                    self.announced((number / SERIALS) as usize);
                }
                None if ended.load(Ordering::Relaxed) => break,
                None => {}
            }
        }
        Ok(self)
    }

    fn announced(&mut self, offset_ms: usize) {
        self.ahead_ms.saturating_record((offset_ms - self.oldest.min(offset_ms)) as u64);
        self.waiting[offset_ms] = self.waiting[offset_ms].saturating_sub(1);
        while self.oldest + 1 < self.waiting.len() && self.waiting[self.oldest] == 0 {
            self.oldest += 1;
        }
    }
}

fn key_number(name: &[u8]) -> Option<u64> {
    std::str::from_utf8(name.get(4..)?).ok()?.parse().ok()
}
