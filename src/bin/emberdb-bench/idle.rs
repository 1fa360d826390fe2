//! What connections cost that say nothing (`idle`): CPU time and resident memory of the server's process.

use crate::failure::{Failure, Result};
use crate::flags::Flags;
use crate::metric::{IDLE, share_percent};
use crate::report::{Report, Rounds};
use crate::round::{Plan, server_pid};
use emberdb::measure::client::Client;
use emberdb::measure::process;
use serde_json::json;
use std::time::{Duration, Instant};

/// Rounds of silence, targets in turn.
pub fn run(flags: &Flags) -> Result<Report<'_>> {
    let plan = Plan::new(flags);
    let mut targets = Vec::new();
    for target in &flags.targets {
        let pid = server_pid(target, &plan.login)?;
        let pid = pid.ok_or_else(|| Failure::Unfit(format!("{target}: idle looks at a process of this machine")))?;
        // Before the first connection of all rounds: what a server keeps from one round is not missing in the next.
        targets.push((Rounds::new(target), pid, resident_bytes(pid)?));
    }
    for _ in 0..flags.rounds() {
        for (rounds, pid, before_bytes) in &mut targets {
            let mut connections = Vec::new();
            for _ in 0..flags.idle() {
                let mut connection = Client::open(&rounds.target, &plan.login)?;
                // Accepted and served once, as those of real clients are.
                connection.call(&[b"PING"])?;
                connections.push(connection);
            }
            std::thread::sleep(plan.warmup);
            let (begin, cpu_ns) = (Instant::now(), process::cpu_ns(*pid));
            std::thread::sleep(Duration::from_secs_f64(flags.seconds()));
            let (seconds, cpu_after_ns) = (begin.elapsed().as_secs_f64(), process::cpu_ns(*pid));
            let resident_bytes = resident_bytes(*pid)?;
            let cpu_ns = cpu_ns.zip(cpu_after_ns).map(|(before, after)| after.saturating_sub(before));
            rounds.figures.push(vec![
                connections.len() as f64,
                cpu_ns.map_or(f64::NAN, |cpu_ns| share_percent(cpu_ns, seconds)),
                (resident_bytes as f64 - *before_bytes as f64) / connections.len() as f64,
            ]);
            rounds.details.push(json!({ "rss_before": before_bytes, "rss": resident_bytes }));
        }
    }
    let title = format!("{} idle connections, {} rounds of {} s", flags.idle(), flags.rounds(), flags.seconds());
    let remarks = vec![
        "CPU time of the server as a share of one core. Bytes: resident memory at the end of a round less that before \
         the first round, which says something where the server was started for this run; sockets are the kernel's."
            .to_owned(),
    ];
    let targets = targets.into_iter().map(|(rounds, ..)| rounds).collect();
    Ok(Report { flags, title, metrics: IDLE, targets, remarks })
}

fn resident_bytes(pid: u32) -> Result<u64> {
    process::resident_bytes(pid).ok_or_else(|| Failure::Unfit(format!("there is no process {pid}")))
}
