//! Loading keys before the first round, and the rounds of a plain load.

use crate::encode::Command;
use crate::failure::Result;
use crate::flags::Flags;
use crate::metric::{LOAD, load_figures};
use crate::objective::Objective;
use crate::report::{Report, Rounds};
use crate::round::{Plan, Round};
use crate::search;
use crate::template::Template;
use crate::workload::Kind;
use emberdb::measure::client::Client;
use emberdb::measure::target::Target;
use serde_json::json;
use std::io::Write;
use std::time::{Duration, Instant};

/// A generator that is later than this cannot speak for the server.
const LATE_US: f64 = 1_000.0;

/// Sends the command for each key of the plan.
pub fn keys(plan: &Plan, target: &Target, command: &Command) -> Result<()> {
    let mut shown = Instant::now();
    let mut client = Client::open(target, &plan.login)?;
    client.load(0..plan.recipe.keys, command.writer(), |done| {
        if plan.progress && shown.elapsed() >= Duration::from_secs(1) {
            shown = Instant::now();
            // Nothing to be done where standard error is closed.
            let _ = writeln!(std::io::stderr(), "{}: {done} of {} keys loaded", target.name, plan.recipe.keys);
        }
    })?;
    Ok(())
}

/// Rounds of a load at a given rate or in closed loop, targets in turn.
pub fn run(flags: &Flags) -> Result<Report<'_>> {
    let mut plan = Plan::new(flags);
    load_targets(flags, &plan)?;
    plan.set_rate(flags.rate, &flags.targets[0])?;
    let mut targets: Vec<Rounds> = flags.targets.iter().map(Rounds::new).collect();
    for round in 1..=flags.rounds() {
        for rounds in &mut targets {
            if plan.progress {
                // As above.
                let _ = writeln!(std::io::stderr(), "{}, round {round} of {}", rounds.target.name, flags.rounds());
            }
            let result = plan.run(&rounds.target)?;
            keep(rounds, &plan, result, json!({}));
        }
    }
    let mut remarks = Vec::new();
    match plan.rate {
        None => remarks.push(
            "Closed loop: a server that stands still is not asked meanwhile, so latencies say little about stalls; \
             --rate measures those."
                .to_owned(),
        ),
        Some(rate) => {
            remarks.push(
                "Open loop: latency counts from the planned moment of sending. The generator is awake while the next \
                 request is near, so its own CPU time says nothing."
                    .to_owned(),
            );
            remarks.extend(warnings(&targets, rate));
        }
    }
    Ok(Report { flags, title: title(flags, &plan), metrics: LOAD, targets, remarks })
}

/// The search for the greatest rate; figures are those of the round at that rate.
pub fn search<'a>(flags: &'a Flags, objective: &Objective) -> Result<Report<'a>> {
    let plan = Plan::new(flags);
    load_targets(flags, &plan)?;
    let mut targets: Vec<Rounds> = flags.targets.iter().map(Rounds::new).collect();
    let mut remarks = Vec::new();
    for round in 1..=flags.rounds() {
        for rounds in &mut targets {
            let name = rounds.target.name.clone();
            let found = search::search(&plan, &rounds.target, objective)?;
            let probes: Vec<_> = found.probes.iter().map(search::Probe::json).collect();
            let details = json!({ "found_rate": found.rate, "closed_loop_rate": found.closed_rate, "probes": probes });
            match found.round {
                Some(result) => keep(rounds, &plan, result, details),
                None => {
                    let mut figures = vec![f64::NAN; LOAD.len()];
                    figures[0] = 0.0;
                    rounds.figures.push(figures);
                    rounds.details.push(details);
                }
            }
            remarks.push(match found.rate {
                Some(rate) => format!("{name}, search {round}: {objective} holds up to {rate:.0} requests/s."),
                None => format!("{name}, search {round}: {objective} held at no rate that was tried."),
            });
        }
    }
    remarks.push("Figures are those of the greatest rate that held; latency counts from the planned moment.".into());
    Ok(Report { flags, title: title(flags, &plan), metrics: LOAD, targets, remarks })
}

fn load_targets(flags: &Flags, plan: &Plan) -> Result<()> {
    if flags.loads() {
        for target in &flags.targets {
            keys(plan, target, &plan.recipe.load())?;
        }
    }
    Ok(())
}

/// Takes the figures of a round over, and with them what else is to be kept of it.
pub fn keep(rounds: &mut Rounds, plan: &Plan, round: Round, mut details: serde_json::Value) {
    rounds.figures.push(load_figures(&round, plan.rate.is_some() || details.get("probes").is_some()));
    rounds.add_latency("", &round.latency_ns());
    details["offered_rate"] = json!(plan.rate);
    details["seconds"] = json!(round.seconds);
    details["replies"] = json!(round.replies());
    details["timeline"] = json!(round.timeline);
    rounds.details.push(details);
    rounds.first_error = rounds.first_error.take().or(round.outcome.first_error);
}

/// What makes figures of an open loop doubtful.
fn warnings(targets: &[Rounds], rate: f64) -> Vec<String> {
    let at = |name: &str| LOAD.iter().position(|metric| metric.name == name).expect("a metric of the load");
    let (answered, late) = (at("rate"), at("late_p99.9_us"));
    let mut warnings = Vec::new();
    for rounds in targets {
        let name = &rounds.target.name;
        if rounds.figures.iter().any(|figures| figures[answered] < rate * 0.99) {
            warnings.push(format!("{name} did not keep up with {rate:.0} requests/s: its latencies grow with time."));
        }
        if rounds.figures.iter().any(|figures| figures[late] > LATE_US) {
            warnings.push(format!("{name}: the generator itself sent late; its core was not free."));
        }
    }
    warnings
}

/// The command that loads, for titles.
pub fn given(command: &Option<Template>) -> String {
    command.as_ref().map_or("SET".to_owned(), ToString::to_string)
}

pub fn title(flags: &Flags, plan: &Plan) -> String {
    use clap::ValueEnum;
    let workload = flags.workload.to_possible_value().expect("none is hidden");
    let pace = match (&flags.search, plan.rate) {
        (Some(objective), _) => format!("search for {objective}"),
        (None, Some(rate)) => format!("open loop at {rate:.0}/s"),
        (None, None) => "closed loop".to_owned(),
    };
    let length = match flags.requests {
        Some(requests) => format!("{requests} requests"),
        None => format!("{} s", flags.seconds()),
    };
    let rounds = if flags.rounds() == 1 { "round" } else { "rounds" };
    let commands = flags.commands.iter().map(|template| format!(": {template}")).collect::<String>();
    let keys = match flags.workload {
        Kind::Lcs => "pairs",
        Kind::Transaction => "tags",
        _ => "keys",
    };
    let batch = match flags.workload {
        Kind::Mget | Kind::Mset => format!(" of {} keys", flags.batch()),
        Kind::Transaction => format!(" of {} commands", flags.batch()),
        _ => String::new(),
    };
    let idle = if flags.idle() == 0 { String::new() } else { format!(" and {} idle ones", flags.idle()) };
    format!(
        "{}{commands}{batch}, {pace}, {} connections{idle}, pipeline {}, {} {keys}, values of {} bytes, {} {rounds} of {length}",
        workload.get_name(),
        flags.connections,
        flags.pipeline,
        flags.keys(),
        flags.value_size(),
        flags.rounds()
    )
}
