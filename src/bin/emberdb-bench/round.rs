//! One round: all threads against one target, from connecting to the last reply.

use crate::engine::{Engine, Orders, Pace};
use crate::failure::{Failure, Result};
use crate::flags::{Flags, Rate};
use crate::recorder::{Interval, Outcome, Recorder, Shared, histogram};
use crate::schedule::Schedule;
use crate::workload::{Cache, Given, Kind, Links, Plain, RateLimit, Recipe, Session, Several, Workload};
use emberdb::measure::client::{Client, Login};
use emberdb::measure::link::Link;
use emberdb::measure::process;
use emberdb::measure::target::Target;
use hdrhistogram::Histogram;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between the last connection and the first request.
const LEAD: Duration = Duration::from_millis(5);
/// Runs that end by a number of requests have no end in time.
const NEVER_NS: u64 = u64::MAX / 4;
/// How long a closed loop takes that says what a server can do.
pub const CLOSED: Duration = Duration::from_secs(2);
/// Slack for threads to hand over their intervals before they are collected.
const COLLECT: Duration = Duration::from_millis(20);

/// What a round is like, whatever the target.
#[derive(Clone)]
pub struct Plan {
    pub recipe: Recipe,
    pub login: Login,
    /// Requests a second in open loop; `None` = closed, until [`Plan::set_rate`].
    pub rate: Option<f64>,
    pub connections: usize,
    pub idle: usize,
    pub pipeline: usize,
    pub threads: usize,
    pub cores: Vec<usize>,
    pub warmup: Duration,
    /// Where the counted phases begin, if not after the warm-up.
    pub begin: Option<Instant>,
    /// Lengths of the phases that are counted.
    pub phases: Vec<Duration>,
    pub requests: Option<u64>,
    pub interval: Duration,
    pub progress: bool,
}

/// What happened in one interval.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct Second {
    /// End of the interval, seconds after the warm-up.
    pub at_s: f64,
    pub rate: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
    pub errors: u64,
}

pub struct Round {
    pub outcome: Outcome,
    /// Counted time.
    pub seconds: f64,
    pub cpu: Cpu,
    pub timeline: Vec<Second>,
}

/// CPU time spent in the counted time.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    pub server_ns: Option<u64>,
    /// All threads of this process.
    pub generator_ns: u64,
}

impl Plan {
    pub fn new(flags: &Flags) -> Plan {
        Plan {
            recipe: flags.recipe(),
            login: flags.login(),
            rate: None,
            connections: flags.connections as usize,
            idle: flags.idle() as usize,
            pipeline: flags.pipeline as usize,
            threads: flags.threads as usize,
            cores: flags.cores.iter().map(|&core| core.into()).collect(),
            warmup: Duration::from_secs_f64(flags.warmup),
            begin: None,
            phases: vec![Duration::from_secs_f64(flags.seconds())],
            requests: flags.requests,
            interval: Duration::from_secs(1),
            progress: flags.progress || std::io::stderr().is_terminal(),
        }
    }

    /// Puts the wanted rate in force. A share is of what `target` does in closed loop, which has to be measured.
    pub fn set_rate(&mut self, rate: Option<Rate>, target: &Target) -> Result<()> {
        self.rate = match rate {
            None => None,
            Some(Rate::PerSecond(rate)) => Some(rate),
            Some(Rate::Share(share)) => {
                let closed = Plan { phases: vec![CLOSED.min(self.phases[0])], progress: false, ..self.clone() };
                Some(closed.run(target)?.rate() * share)
            }
        };
        Ok(())
    }

    /// Bounds of the phases after the first request.
    fn bounds_ns(&self, start: Instant) -> Vec<u64> {
        let warmup = self.begin.map_or(self.warmup, |begin| begin.saturating_duration_since(start));
        let mut bounds_ns = vec![warmup.as_nanos() as u64];
        for phase in &self.phases {
            bounds_ns.push(bounds_ns[bounds_ns.len() - 1] + phase.as_nanos() as u64);
        }
        if self.requests.is_some() {
            bounds_ns.truncate(1);
            bounds_ns.push(NEVER_NS);
        }
        bounds_ns
    }

    pub fn run(&self, target: &Target) -> Result<Round> {
        self.run_over(target, Client::open_all(self.connections, target, &self.login)?)
    }

    /// A round over connections that are there already.
    pub fn run_over(&self, target: &Target, connections: Vec<Client>) -> Result<Round> {
        let pid = server_pid(target, &self.login)?;
        let _idle = Client::open_all(self.idle, target, &self.login)?;
        let mut links: Vec<Vec<Link>> = (0..self.threads).map(|_| Vec::new()).collect();
        for (at, connection) in connections.into_iter().enumerate() {
            links[at % self.threads].push(Link::new(connection.into_socket()?, self.pipeline, self.recipe.replies()));
        }
        let start = Instant::now() + LEAD;
        let bounds_ns = self.bounds_ns(start);
        let stop = Arc::new(AtomicBool::new(false));
        let shared: Vec<Shared> = (0..self.threads).map(|_| Arc::new(Mutex::new(Interval::new()))).collect();
        let mut threads = Vec::new();
        for (thread, links) in links.into_iter().enumerate() {
            let end_ns = bounds_ns[bounds_ns.len() - 1];
            let quota = self.requests.map_or(u64::MAX, |requests| {
                let (all, of) = (self.threads as u64, thread as u64);
                requests / all + u64::from(of < requests % all)
            });
            let orders = Orders {
                target: target.to_string(),
                pace: match self.rate {
                    None => Pace::Closed,
                    Some(rate) => Pace::Open(Schedule::new(rate, thread, self.threads, end_ns)),
                },
                pipeline: self.pipeline,
                start,
                end_ns,
                requests: quota,
                counted_from_ns: bounds_ns[0],
                stop: stop.clone(),
            };
            let recorder = Recorder::new(bounds_ns.clone(), self.interval.as_nanos() as u64, shared[thread].clone());
            threads.push(self.spawn(thread, orders, links, recorder)?);
        }
        let watched = self.watch(start + Duration::from_nanos(bounds_ns[0]), pid, &shared, &threads);
        let mut sum = Outcome::new(bounds_ns.len() - 1);
        let mut failure = None;
        for thread in threads {
            match thread.join().expect("a generator thread does not panic") {
                Ok(outcome) => sum.add(&outcome),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let seconds = match self.requests {
            Some(_) => sum.last_reply_ns.saturating_sub(bounds_ns[0]) as f64 / 1e9,
            None => (bounds_ns[bounds_ns.len() - 1] - bounds_ns[0]) as f64 / 1e9,
        };
        match failure {
            Some(error) => Err(error),
            None => {
                Ok(Round { outcome: sum, seconds: seconds.max(1e-9), cpu: watched.cpu, timeline: watched.timeline })
            }
        }
    }

    fn spawn(&self, thread: usize, orders: Orders, links: Vec<Link>, recorder: Recorder) -> Result<Thread> {
        let own = links.len();
        let among = Links { first: thread, threads: self.threads, total: self.connections };
        let core = (!self.cores.is_empty()).then(|| self.cores[thread % self.cores.len()]);
        let recipe = self.recipe.clone();
        let run = move || -> Result<Outcome> {
            if let Some(core) = core {
                core_affinity::set_for_current(core_affinity::CoreId { id: core });
            }
            let stop = orders.stop.clone();
            let outcome = match recipe.kind {
                Kind::Session => run(orders, Session::new(&recipe, thread, among, own), links, recorder),
                Kind::Cache => run(orders, Cache::new(&recipe, thread, own), links, recorder),
                Kind::Ratelimit => run(orders, RateLimit::new(&recipe, thread, own), links, recorder),
                Kind::Command => run(orders, Given::new(&recipe, thread, own), links, recorder),
                Kind::Mget | Kind::Mset | Kind::Transfer => run(orders, Several::new(&recipe, thread), links, recorder),
                _ => run(orders, Plain::new(&recipe, thread), links, recorder),
            };
            if outcome.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            outcome
        };
        std::thread::Builder::new()
            .name(format!("load-{thread}"))
            .spawn(run)
            .map_err(|error| Failure::Unfit(format!("cannot start a thread: {error}")))
    }

    /// Collects intervals and CPU time while the threads run.
    fn watch(&self, begin: Instant, pid: Option<u32>, shared: &[Shared], threads: &[Thread]) -> Watched {
        let whole: Duration = self.phases.iter().sum();
        let end = self.requests.is_none().then(|| begin + whole);
        let is_over = || threads.iter().all(JoinHandle::is_finished);
        sleep_until(begin, is_over);
        let clocks = Clocks::read(pid);
        let mut cpu = None;
        let mut timeline = Vec::new();
        let (mut interval, mut merged, mut last) = (1, Interval::new(), begin);
        loop {
            let next = begin + self.interval * interval;
            if let Some(end) = end.filter(|&end| end <= next && cpu.is_none()) {
                sleep_until(end, is_over);
                cpu = Some(clocks.spent());
            }
            sleep_until(next + COLLECT, is_over);
            let over = is_over();
            if over && cpu.is_none() {
                cpu = Some(clocks.spent());
            }
            merged.clear();
            for one in shared {
                let mut one = one.lock().expect("nobody panics with it");
                merged.latency_ns.add(&one.latency_ns).expect("equal bounds");
                merged.errors += one.errors;
                one.clear();
            }
            let now = if over { Instant::now() } else { next };
            let second = Second::new(&merged, begin, last, now);
            last = now;
            if !merged.latency_ns.is_empty() || !over {
                timeline.push(second);
                self.tell(&second);
            }
            if let (true, Some(cpu)) = (over, cpu) {
                return Watched { timeline, cpu };
            }
            interval += 1;
        }
    }

    fn tell(&self, second: &Second) {
        if self.progress {
            // Nothing to be done where standard error is closed.
            let _ = writeln!(
                std::io::stderr(),
                "{:7.1} s {:10.0}/s  p50 {:8.3} ms  p99 {:8.3} ms  {} errors",
                second.at_s,
                second.rate,
                second.p50_us / 1e3,
                second.p99_us / 1e3,
                second.errors
            );
        }
    }
}

type Thread = JoinHandle<Result<Outcome>>;

struct Watched {
    timeline: Vec<Second>,
    cpu: Cpu,
}

/// What the clocks of CPU time said at one moment.
struct Clocks {
    pid: Option<u32>,
    server_ns: Option<u64>,
    own_ns: u64,
}

impl Clocks {
    fn read(pid: Option<u32>) -> Clocks {
        let server_ns = pid.and_then(process::cpu_ns);
        Clocks { pid, server_ns, own_ns: process::own_cpu_ns() }
    }

    /// What was spent since.
    fn spent(&self) -> Cpu {
        let now = Clocks::read(self.pid);
        Cpu {
            server_ns: self.server_ns.zip(now.server_ns).map(|(before, after)| after.saturating_sub(before)),
            generator_ns: now.own_ns - self.own_ns,
        }
    }
}

impl Second {
    fn new(interval: &Interval, begin: Instant, from: Instant, to: Instant) -> Second {
        let latency = &interval.latency_ns;
        let length_s = to.saturating_duration_since(from).as_secs_f64().max(1e-6);
        let quantile_us = |quantile| latency.value_at_quantile(quantile) as f64 / 1e3;
        Second {
            at_s: to.saturating_duration_since(begin).as_secs_f64(),
            rate: latency.len() as f64 / length_s,
            p50_us: quantile_us(0.5),
            p99_us: quantile_us(0.99),
            max_us: latency.max() as f64 / 1e3,
            errors: interval.errors,
        }
    }
}

impl Round {
    /// Latency over all phases.
    pub fn latency_ns(&self) -> Histogram<u64> {
        let mut sum = histogram();
        self.outcome.phases.iter().for_each(|phase| sum.add(&phase.latency_ns).expect("equal bounds"));
        sum
    }

    /// Replies within the counted time.
    pub fn replies(&self) -> u64 {
        self.outcome.phases.iter().map(|phase| phase.replies).sum()
    }

    pub fn rate(&self) -> f64 {
        self.replies() as f64 / self.seconds
    }
}

fn run<W: Workload>(orders: Orders, workload: W, links: Vec<Link>, recorder: Recorder) -> Result<Outcome> {
    Engine::new(orders, workload, links, recorder)?.run()
}

/// The process of a local server: as given, or as INFO says if such a process is here.
pub fn server_pid(target: &Target, login: &Login) -> Result<Option<u32>> {
    if let Some(pid) = target.pid {
        return match process::exists(pid) {
            true => Ok(Some(pid)),
            false => Err(Failure::Unfit(format!("{target}: there is no process {pid}"))),
        };
    }
    if !target.address.is_local() {
        return Ok(None);
    }
    let info = Client::open(target, login)?.info("everything")?;
    Ok(info.get("process_id").and_then(|pid| pid.parse().ok()).filter(|&pid| process::exists(pid)))
}

fn sleep_until(moment: Instant, is_over: impl Fn() -> bool) {
    const STEP: Duration = Duration::from_millis(100);
    while !is_over() {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(STEP));
    }
}
