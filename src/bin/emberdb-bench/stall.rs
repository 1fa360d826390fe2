//! How long one command keeps others waiting (`stall`): PINGs in open loop before it is sent and from then on.
//!
//! What the command is about is loaded anew in each round. Where it expires or is freed in the background that is part
//! of the second phase, if that is long enough.

use crate::failure::Result;
use crate::flags::{Flags, Rate};
use crate::load;
use crate::memory::{Added, Memory};
use crate::metric::STALL;
use crate::report::{Report, Rounds};
use crate::round::{Plan, Round, server_pid};
use emberdb::measure::client::Client;
use emberdb::measure::target::Target;
use serde_json::json;
use std::time::{Duration, Instant};

/// Where no rate is given.
const PINGS: Rate = Rate::PerSecond(10_000.0);
/// From the beginning of the second phase to the command: a PING that waits for it was planned in that phase.
const LEAD: Duration = Duration::from_millis(5);
/// For connecting, before the first phase.
const CONNECT: Duration = Duration::from_millis(200);
/// Replies that took longer are counted.
const SLOW_NS: u64 = 1_000_000;

pub fn run(flags: &Flags) -> Result<Report<'_>> {
    let mut plan = Plan::new(flags);
    plan.set_rate(Some(flags.rate.unwrap_or(PINGS)), &flags.targets[0])?;
    let phase = plan.phases[0];
    plan.phases = vec![phase; 2];
    let mut targets: Vec<Rounds> = flags.targets.iter().map(Rounds::new).collect();
    for _ in 0..flags.rounds() {
        for rounds in &mut targets {
            let target = rounds.target.clone();
            run_round(flags, &plan, &target, rounds)?;
        }
    }
    let commands: Vec<String> = flags.commands.iter().map(ToString::to_string).collect();
    let title = format!(
        "{} after {} times {}: {:.0} PINGs a second (open loop)",
        commands.join(", "),
        flags.keys(),
        load::given(&flags.load_command),
        plan.rate.unwrap_or(f64::NAN)
    );
    let remarks = vec![format!(
        "Phases of {} s, before the command and from it on. Slow: more than {} ms.",
        flags.seconds(),
        SLOW_NS / 1_000_000
    )];
    Ok(Report { flags, title, metrics: STALL, targets, remarks })
}

fn run_round(flags: &Flags, plan: &Plan, target: &Target, rounds: &mut Rounds) -> Result<()> {
    let pid = server_pid(target, &plan.login)?;
    let mut client = Client::open(target, &plan.login)?;
    let before = Memory::read(&mut client, pid)?;
    if !flags.no_load {
        load::keys(plan, target, &plan.recipe.load())?;
    }
    let loaded = Memory::read(&mut client, pid)?;
    let begin = Instant::now() + CONNECT + plan.warmup;
    let second = begin + plan.phases[0];
    let pings = Plan { begin: Some(begin), ..plan.clone() };
    let asked = target.clone();
    let pings = std::thread::spawn(move || pings.run(&asked));
    let dead = second + LEAD;
    std::thread::sleep(dead.saturating_duration_since(Instant::now()));
    let sent = Instant::now();
    for template in &flags.commands {
        let words: Vec<&[u8]> = template.words().map(str::as_bytes).collect();
        client.call(&words)?;
    }
    let took = sent.elapsed();
    let back = Added { before, loaded, dead }.watch(&mut client, pid, second + plan.phases[1])?;
    let round = pings.join().expect("the load does not panic")?;
    let mut figures = vec![took.as_secs_f64() * 1e3];
    figures.extend(phase_figures(&round));
    figures.extend([back.used_s, back.rss_s]);
    figures.push(round.outcome.late_ns.value_at_quantile(0.999) as f64 / 1e3);
    figures.push(round.outcome.errors as f64);
    rounds.figures.push(figures);
    rounds.details.push(json!({
        "timeline": round.timeline,
        "memory": back.json(),
        "memory_before": [before.used, before.rss],
        "memory_loaded": [loaded.used, loaded.rss],
    }));
    for (label, phase) in ["before", "after"].into_iter().zip(&round.outcome.phases) {
        rounds.add_latency(label, &phase.latency_ns);
    }
    rounds.first_error = rounds.first_error.take().or(round.outcome.first_error);
    Ok(())
}

fn phase_figures(round: &Round) -> Vec<f64> {
    let us = |ns: u64| ns as f64 / 1e3;
    let of_phase = |latency: &hdrhistogram::Histogram<u64>| {
        let slow = latency.count_between(SLOW_NS, u64::MAX);
        [us(latency.value_at_quantile(0.99)), us(latency.value_at_quantile(0.999)), us(latency.max()), slow as f64]
    };
    round.outcome.phases.iter().flat_map(|phase| of_phase(&phase.latency_ns)).collect()
}
