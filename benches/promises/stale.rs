//! Stale: the share of dead keys among all keys in memory while keys come and die at a steady pace.
//!
//! No server lets its dead keys be counted from outside, but the generator knows every deadline:
//! stale = deadlines passed so far - `expired_keys`, and keys in memory = keys written - `expired_keys`.
//! Deadlines go on while a server is stopped, so here the servers run one after the other, each for all its rounds.

use crate::Result;
use crate::load::{self, Deadline, VALUE, key, push_set};
use crate::options::Options;
use crate::report::{Experiment, Holds, Promise, Report};
use crate::server::{Kind, Server, Settings, numbers};
use emberdb::measure::client::Client;
use emberdb::measure::plot::{self, Axis, Line, Scale};
use emberdb::measure::report::Metric;
use emberdb::measure::wall;
use std::io::Write;
use std::time::{Duration, Instant};

const KEYS: u64 = 5_000_000;
const BIRTHS_A_SECOND: u64 = 9_500;
const LONGEST_LIFE_MS: i64 = 600_000;
/// New keys live at least so long that none is dead when it arrives.
const SHORTEST_LIFE_MS: i64 = 1_000;
const CPU_PERCENT: u32 = 1;
const TURN: Duration = Duration::from_millis(10);
const SAMPLE: Duration = Duration::from_millis(100);

static EXPERIMENT: Experiment = Experiment {
    name: "stale",
    setting: "5,000,000 keys, lifetimes spread evenly over 10 minutes, 9,500 new ones a second, about as many deaths; \
              active-expire-cpu-percent 1 (redis-server: effort 1). Warm-up as long as the measurement; each round \
              is a part of it.",
    metrics: &[
        Metric::plain("stale %", 4),
        Metric::plain("worst %", 4),
        Metric::plain("deaths/s", 0),
        Metric::plain("million keys", 3),
        Metric::plain("cycle CPU %", 2),
        Metric::plain("process CPU %", 2),
    ],
    promises: &[Promise { text: "stale <= 0.2 %", limits: &[("stale %", 0.2)], holds: Holds::InTheMedian }],
};

pub fn run(options: &Options) -> Result<()> {
    let mut report = Report::new(options, &EXPERIMENT)?;
    let mut raw = report.raw("stale-samples.csv", "server,s,written,due,expired_keys")?;
    let mut curves = Vec::new();
    for &kind in &options.kinds {
        let rounds = options.rounds(5);
        let measured = Duration::from_secs(options.seconds(60));
        let mut steady = load::allowing_time(options, |allowance| SteadyState::start(options, kind, allowance))?;
        let mut samples = steady.run(measured)?;
        for _ in 0..rounds {
            let cpu_before = steady.server.cpu_time()?;
            let part = steady.run(measured / rounds as u32)?;
            let cpu = steady.server.cpu_time()?.saturating_sub(cpu_before);
            report.round(kind, "", columns(&part, cpu));
            samples.extend(part);
        }
        for sample in &samples {
            let (at_s, written, due, expired) = (sample.at_s, sample.written, sample.due, sample.expired);
            writeln!(raw, "{},{at_s:.3},{written},{due},{expired}", kind.name())?;
        }
        let points = samples.iter().map(|sample| (sample.at_s, sample.stale_percent()));
        curves.push(Line { label: kind.name().to_owned(), points: points.collect() });
    }
    raw.flush()?;
    let x = Axis { label: "s", scale: Scale::Linear };
    let y = Axis { label: "% of keys in memory", scale: Scale::Logarithmic };
    report.plot("stale.svg", &plot::lines("dead keys in memory", &x, &y, &curves))?;
    report.finish()
}

struct SteadyState {
    server: Server,
    client: Client,
    start: Instant,
    deadlines: Deadlines,
    written: u64,
    born: u64,
    births_a_second: f64,
    rng: fastrand::Rng,
}

/// One reading of INFO beside what the generator knows at that moment.
struct Sample {
    at_s: f64,
    written: u64,
    due: u64,
    expired: u64,
    cycle_ms: f64,
}

/// How many deadlines fall into each millisecond, and how many have passed.
struct Deadlines {
    first_ms: i64,
    by_ms: Vec<u32>,
    counted_ms: usize,
    passed: u64,
}

impl SteadyState {
    /// Loads the server and returns at the moment from which lifetimes count.
    fn start(options: &Options, kind: Kind, allowance: Duration) -> Result<SteadyState> {
        let keys = options.scaled(KEYS);
        let settings = Settings { events: false, expire_cpu_percent: Some(CPU_PERCENT) };
        let server = Server::start(options, kind, settings)?;
        let start_ms = load::moment_after_loading(keys, allowance);
        let mut deadlines = Deadlines { first_ms: start_ms, by_ms: Vec::new(), counted_ms: 0, passed: 0 };
        let mut rng = fastrand::Rng::with_seed(5);
        load::pipeline(&server, 0..keys, |number, out| {
            let deadline_ms = start_ms + rng.i64(1..=LONGEST_LIFE_MS);
            deadlines.add(deadline_ms);
            push_set(out, &key(b"old", number), VALUE, Deadline::AtUnixMs(deadline_ms));
        })?;
        load::check_in_time(start_ms)?;
        let start = wall::instant_at(start_ms);
        wall::sleep_until(start);
        let client = server.client()?;
        let births_a_second = options.scaled(BIRTHS_A_SECOND) as f64;
        Ok(SteadyState { server, client, start, deadlines, written: keys, born: 0, births_a_second, rng })
    }

    /// Writes new keys at their pace and reads INFO in between.
    fn run(&mut self, length: Duration) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        let mut next_turn = Instant::now();
        let end = next_turn + length;
        let mut next_sample = next_turn;
        while next_turn < end {
            wall::sleep_until(next_turn);
            next_turn += TURN;
            self.write_births()?;
            if Instant::now() >= next_sample {
                next_sample += SAMPLE;
                samples.push(self.sample()?);
            }
        }
        Ok(samples)
    }

    fn write_births(&mut self) -> Result<()> {
        let wanted = (self.start.elapsed().as_secs_f64() * self.births_a_second) as u64;
        let now_ms = wall::unix_ms();
        let mut batch = Vec::new();
        for number in self.born..wanted {
            let deadline_ms = now_ms + self.rng.i64(SHORTEST_LIFE_MS..=LONGEST_LIFE_MS);
            self.deadlines.add(deadline_ms);
            push_set(&mut batch, &key(b"new", number), VALUE, Deadline::AtUnixMs(deadline_ms));
        }
        self.client.send(&batch)?;
        for _ in self.born..wanted {
            self.client.reply()?;
        }
        self.written += wanted - self.born;
        self.born = wanted;
        Ok(())
    }

    fn sample(&mut self) -> Result<Sample> {
        let info = numbers(self.client.info("stats")?);
        let field = |name: &str| info.get(name).copied().ok_or_else(|| format!("INFO has no {name}"));
        Ok(Sample {
            at_s: self.start.elapsed().as_secs_f64(),
            written: self.written,
            due: self.deadlines.passed_by(wall::unix_ms()),
            expired: field("expired_keys")? as u64,
            cycle_ms: field("expire_cycle_cpu_milliseconds")?,
        })
    }
}

impl Sample {
    fn keys(&self) -> u64 {
        self.written - self.expired
    }

    fn stale_percent(&self) -> f64 {
        self.due.saturating_sub(self.expired) as f64 / self.keys() as f64 * 100.0
    }
}

impl Deadlines {
    fn add(&mut self, deadline_ms: i64) {
        let at = (deadline_ms - self.first_ms) as usize;
        if at >= self.by_ms.len() {
            self.by_ms.resize(at + 1, 0);
        }
        self.by_ms[at] += 1;
    }

    /// Deadlines before `now_ms`, which may not go back.
    fn passed_by(&mut self, now_ms: i64) -> u64 {
        let now = ((now_ms - self.first_ms).max(0) as usize).clamp(self.counted_ms, self.by_ms.len());
        let newly_passed = &self.by_ms[self.counted_ms..now];
        self.passed += newly_passed.iter().map(|&deadlines| u64::from(deadlines)).sum::<u64>();
        self.counted_ms = now;
        self.passed
    }
}

fn columns(samples: &[Sample], process_cpu: Duration) -> Vec<f64> {
    let (first, last) = (&samples[0], &samples[samples.len() - 1]);
    let length_s = last.at_s - first.at_s;
    let shares = || samples.iter().map(Sample::stale_percent);
    vec![
        shares().sum::<f64>() / samples.len() as f64,
        shares().fold(0.0, f64::max),
        (last.due - first.due) as f64 / length_s,
        last.keys() as f64 / 1e6,
        (last.cycle_ms - first.cycle_ms) / (length_s * 10.0),
        process_cpu.as_secs_f64() / length_s * 100.0,
    ]
}
