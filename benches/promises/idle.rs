//! Idle: what a server costs that holds a million deadlines, all far, and no client.

use crate::Result;
use crate::load;
use crate::options::Options;
use crate::report::{Experiment, Holds, Promise, Report};
use crate::server::{Contest, Settings};
use emberdb::measure::report::Metric;
use std::time::{Duration, Instant};

const KEYS: u64 = 1_000_000;
const CALM: Duration = Duration::from_secs(2);

static EXPERIMENT: Experiment = Experiment {
    name: "idle",
    setting: "1,000,000 keys with deadlines 2 to 24 hours ahead and no client; CPU time of the process over wall time.",
    metrics: &[Metric::plain("CPU %", 4)],
    promises: &[Promise { text: "CPU <= 0.1 %", limits: &[("CPU %", 0.1)], holds: Holds::InTheMedian }],
};

pub fn run(options: &Options) -> Result<()> {
    let keys = options.scaled(KEYS);
    let mut report = Report::new(options, &EXPERIMENT)?;
    let contest = Contest::start(options, Settings::default(), |server| load::far_deadlines(server, 0..keys))?;
    for round in 1..=options.rounds(5) {
        contest.round(round, |server| {
            std::thread::sleep(CALM);
            let (start, cpu_before) = (Instant::now(), server.cpu_time()?);
            std::thread::sleep(Duration::from_secs(options.seconds(10)));
            let cpu = server.cpu_time()?.saturating_sub(cpu_before);
            report.round(server.kind(), "", vec![cpu.as_secs_f64() / start.elapsed().as_secs_f64() * 100.0]);
            Ok(())
        })?;
    }
    report.finish()
}
