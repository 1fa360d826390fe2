//! Mass expiry: a million keys die at once while clients go on reading others.
//!
//! ```text
//!   calibrate   load   | 5 s quiet | 5 s during | until memory is back
//!   (closed loop)      ^ open loop ^ T, half the greatest rate
//! ```
//!
//! The bargain every store must strike: giving memory back fast takes CPU from clients. Hence both sides of it
//! are measured in one run.

use crate::Result;
use crate::generator::{Generator, Observer};
use crate::load::{self, Deadline, VALUE, key, push_set};
use crate::options::Options;
use crate::report::{Experiment, Holds, Promise, Report};
use crate::server::{Kind, Server, Settings, alternating, numbers};
use emberdb::measure::client::Client;
use emberdb::measure::plot::{self, Axis, Line, Scale};
use emberdb::measure::report::Metric;
use emberdb::measure::resp::{info_fields, push_command};
use emberdb::measure::wall;
use hdrhistogram::Histogram;
use std::io::Write;
use std::time::{Duration, Instant};

const DYING_KEYS: u64 = 1_000_000;
const LIVE_KEYS: u64 = 100_000;
const LINKS: usize = 50;
const CALIBRATION: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(1);
const QUIET: Duration = Duration::from_secs(5);
const DURING: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);
/// Width of the slices of time in which the timeline shows the worst latency.
const SLICE: Duration = Duration::from_millis(50);
/// Latencies above it are recorded as it.
const LONGEST_NS: u64 = 60_000_000_000;
/// Memory counts as back when this share of what loading added is left.
const LEFT_SHARE: f64 = 0.1;

static EXPERIMENT: Experiment = Experiment {
    name: "mass-expiry",
    setting: "1,000,000 keys (16-byte keys, 32-byte values) die at once while 50 connections GET others at half the \
              server's greatest rate, open loop; latency in ms in the 5 s before and the 5 s after, seconds until all \
              but 10 % of the memory is back, and how late the generator itself was.",
    metrics: &[
        Metric::plain("GET/s", 0),
        Metric::plain("quiet p99", 3),
        Metric::plain("quiet p99.9", 3),
        Metric::plain("during p99", 3),
        Metric::plain("during p99.9", 3),
        Metric::plain("during max", 3),
        Metric::plain("p99.9 ratio", 2),
        Metric::plain("used_memory s", 1),
        Metric::plain("RSS s", 1),
        Metric::plain("sent late p99.9", 3),
    ],
    promises: &[
        Promise {
            text: "used_memory is back within 3 s",
            limits: &[("used_memory s", 3.0)],
            holds: Holds::InTheMedian,
        },
        Promise { text: "RSS is back within 10 s", limits: &[("RSS s", 10.0)], holds: Holds::InTheMedian },
        Promise {
            text: "p99.9 during is at most 1.5 times the quiet one",
            limits: &[("p99.9 ratio", 1.5)],
            holds: Holds::InTheMedian,
        },
        // Not the server's promise but this program's: without it the other figures say little.
        Promise {
            text: "the generator kept its schedule, 99.9 % sent within 1 ms of it",
            limits: &[("sent late p99.9", 1.0)],
            holds: Holds::InTheMedian,
        },
    ],
};

pub fn run(options: &Options) -> Result<()> {
    let mut report = Report::new(options, &EXPERIMENT)?;
    let mut memory = report.raw("mass-expiry-memory.csv", "server,round,s after T,used_memory,rss")?;
    let mut latency = report.raw("mass-expiry-latency.csv", "server,round,s after T,GETs,worst ms")?;
    let (mut latency_curves, mut memory_curves) = (Vec::new(), Vec::new());
    let rounds = options.rounds(5);
    for round in 1..=rounds {
        for &kind in alternating(&options.kinds, round) {
            let observed = load::allowing_time(options, |allowance| observe_round(options, kind, allowance))?;
            report.round(kind, "", observed.columns());
            for sample in &observed.samples {
                let (at_s, used, rss) = (sample.at_s, sample.used_bytes, sample.rss_bytes);
                writeln!(memory, "{},{round},{at_s:.3},{used},{rss}", kind.name())?;
            }
            for slice in &observed.slices {
                writeln!(latency, "{},{round},{:.3},{},{:.3}", kind.name(), slice.at_s, slice.gets, slice.worst_ms)?;
            }
            if round == rounds {
                latency_curves.push(observed.latency_curve(kind));
                memory_curves.extend(observed.memory_curves(kind));
            }
        }
    }
    memory.flush()?;
    latency.flush()?;
    let x = Axis { label: "s after the deadline", scale: Scale::Linear };
    let y = Axis { label: "worst GET of each 50 ms, ms", scale: Scale::Logarithmic };
    report.plot("mass-expiry-latency.svg", &plot::lines("latency, last round", &x, &y, &latency_curves))?;
    let y = Axis { label: "MB over the level before loading", scale: Scale::Linear };
    report.plot("mass-expiry-memory.svg", &plot::lines("memory, last round", &x, &y, &memory_curves))?;
    report.finish()
}

/// One round, all of it.
struct Observed {
    gets_a_second: f64,
    quiet_ns: Histogram<u64>,
    during_ns: Histogram<u64>,
    late_ns: Histogram<u64>,
    /// Infinite until memory is back.
    used_back_s: f64,
    rss_back_s: f64,
    samples: Vec<MemorySample>,
    slices: Vec<Slice>,
}

/// Memory above the level before loading.
struct MemorySample {
    at_s: f64,
    used_bytes: f64,
    rss_bytes: f64,
}

#[derive(Clone, Default)]
struct Slice {
    at_s: f64,
    gets: u64,
    worst_ms: f64,
}

#[derive(Clone, Copy)]
struct Memory {
    used_bytes: f64,
    rss_bytes: f64,
}

/// Watches latency and memory from within the generator's loop, so that nothing else runs on its core.
struct Watch<'a> {
    server: &'a Server,
    info: Client,
    info_in_flight: bool,
    info_due: Instant,
    death: Instant,
    wait: Duration,
    before: Memory,
    growth: Memory,
    observed: Observed,
}

impl Memory {
    fn of(server: &Server) -> Result<Memory> {
        let used_bytes = server.info("memory")?.get("used_memory").copied().ok_or("INFO has no used_memory")?;
        Ok(Memory { used_bytes, rss_bytes: server.settled_rss_bytes()? as f64 })
    }
}

fn observe_round(options: &Options, kind: Kind, allowance: Duration) -> Result<Observed> {
    let (live_keys, dying_keys) = (options.scaled(LIVE_KEYS), options.scaled(DYING_KEYS));
    let server = Server::start(options, kind, Settings::default())?;
    load::pipeline(&server, 0..live_keys, |number, out| {
        push_set(out, &key(b"liv", number), VALUE, Deadline::Never);
    })?;
    let mut generator = Generator::connect(&server, LINKS, b"liv", live_keys)?;
    let greatest_rate = generator.closed_loop(CALIBRATION)?;
    let before = Memory::of(&server)?;

    let loaded_ms = load::moment_after_loading(dying_keys, allowance);
    let deadline_ms = loaded_ms + (WARM_UP + QUIET).as_millis() as i64;
    load::pipeline(&server, 0..dying_keys, |number, out| {
        push_set(out, &key(b"die", number), VALUE, Deadline::AtUnixMs(deadline_ms));
    })?;
    let after = Memory::of(&server)?;
    load::check_in_time(loaded_ms)?;
    let growth =
        Memory { used_bytes: after.used_bytes - before.used_bytes, rss_bytes: after.rss_bytes - before.rss_bytes };

    let death = wall::instant_at(deadline_ms);
    let gets_a_second = greatest_rate / 2.0;
    let mut watch = Watch::new(&server, death, options.wait, before, growth, gets_a_second)?;
    wall::sleep_until(death - QUIET - WARM_UP);
    generator.open_loop(gets_a_second, &mut watch)?;
    Ok(watch.observed)
}

impl<'a> Watch<'a> {
    fn new(
        server: &'a Server,
        death: Instant,
        wait: Duration,
        before: Memory,
        growth: Memory,
        gets_a_second: f64,
    ) -> Result<Watch<'a>> {
        let info = server.client()?;
        info.set_nonblocking()?;
        let slices = (QUIET + DURING).as_millis() / SLICE.as_millis();
        let slice_at = |at: u128| at as f64 * SLICE.as_secs_f64() - QUIET.as_secs_f64();
        let observed = Observed {
            gets_a_second,
            quiet_ns: Histogram::new_with_max(LONGEST_NS, 3)?,
            during_ns: Histogram::new_with_max(LONGEST_NS, 3)?,
            late_ns: Histogram::new_with_max(LONGEST_NS, 3)?,
            used_back_s: f64::INFINITY,
            rss_back_s: f64::INFINITY,
            samples: Vec::new(),
            slices: (0..slices).map(|at| Slice { at_s: slice_at(at), ..Slice::default() }).collect(),
        };
        let info_due = death - QUIET;
        Ok(Watch { server, info, info_in_flight: false, info_due, death, wait, before, growth, observed })
    }

    fn measures(&self, planned: Instant) -> bool {
        planned >= self.death - QUIET && planned < self.death + DURING
    }

    fn sample_memory(&mut self, used_bytes: f64, now: Instant) -> Result<()> {
        let rss_bytes = self.server.rss_bytes()? as f64 - self.before.rss_bytes;
        let used_bytes = used_bytes - self.before.used_bytes;
        let at_s = wall::seconds_since(self.death, now);
        let observed = &mut self.observed;
        observed.samples.push(MemorySample { at_s, used_bytes, rss_bytes });
        if at_s > 0.0 && used_bytes <= LEFT_SHARE * self.growth.used_bytes {
            observed.used_back_s = observed.used_back_s.min(at_s);
        }
        if at_s > 0.0 && rss_bytes <= LEFT_SHARE * self.growth.rss_bytes {
            observed.rss_back_s = observed.rss_back_s.min(at_s);
        }
        Ok(())
    }
}

impl Observer for Watch<'_> {
    fn sent(&mut self, planned: Instant, late: Duration) {
        if self.measures(planned) {
            self.observed.late_ns.saturating_record(late.as_nanos() as u64);
        }
    }

    fn answered(&mut self, planned: Instant, latency: Duration) {
        if !self.measures(planned) {
            return;
        }
        let since_start = planned - (self.death - QUIET);
        let slice = &mut self.observed.slices[(since_start.as_nanos() / SLICE.as_nanos()) as usize];
        slice.gets += 1;
        slice.worst_ms = slice.worst_ms.max(latency.as_secs_f64() * 1e3);
        let phase = if planned < self.death { &mut self.observed.quiet_ns } else { &mut self.observed.during_ns };
        phase.saturating_record(latency.as_nanos() as u64);
    }

    fn go_on(&mut self, now: Instant) -> Result<bool> {
        if self.info_in_flight {
            if let Some(reply) = self.info.poll()? {
                self.info_in_flight = false;
                let used_bytes = numbers(info_fields(&reply)).get("used_memory").copied();
                self.sample_memory(used_bytes.ok_or("INFO has no used_memory")?, now)?;
            }
        } else if now >= self.info_due {
            let mut request = Vec::new();
            push_command(&mut request, &[b"INFO", b"memory"]);
            self.info.send(&request)?;
            self.info_in_flight = true;
            self.info_due = now + POLL;
        }
        let memory_is_back = self.observed.used_back_s.is_finite() && self.observed.rss_back_s.is_finite();
        Ok(now < self.death + DURING || (!memory_is_back && now < self.death + self.wait))
    }
}

impl Observed {
    fn columns(&self) -> Vec<f64> {
        let ms = |latency_ns: &Histogram<u64>, share: f64| latency_ns.value_at_quantile(share) as f64 / 1e6;
        vec![
            self.gets_a_second,
            ms(&self.quiet_ns, 0.99),
            ms(&self.quiet_ns, 0.999),
            ms(&self.during_ns, 0.99),
            ms(&self.during_ns, 0.999),
            ms(&self.during_ns, 1.0),
            ms(&self.during_ns, 0.999) / ms(&self.quiet_ns, 0.999),
            self.used_back_s,
            self.rss_back_s,
            ms(&self.late_ns, 0.999),
        ]
    }

    fn latency_curve(&self, kind: Kind) -> Line {
        let points = self.slices.iter().map(|slice| (slice.at_s, slice.worst_ms)).collect();
        Line { label: kind.name().to_owned(), points }
    }

    fn memory_curves(&self, kind: Kind) -> [Line; 2] {
        let curve = |label: &str, bytes: fn(&MemorySample) -> f64| Line {
            label: format!("{} {label}", kind.name()),
            points: self.samples.iter().map(|sample| (sample.at_s, bytes(sample) / 1e6)).collect(),
        };
        [curve("used_memory", |sample| sample.used_bytes), curve("RSS", |sample| sample.rss_bytes)]
    }
}
