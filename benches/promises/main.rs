//! Checks EmberDB's promises about expiry, beside redis-server in the same run.
//!
//! ```text
//!   core 0                         core 1
//!   emberdb or redis-server  <-->  this program: keys in; events, replies, INFO and /proc out
//! ```
//!
//! The servers take turns; the one that waits is stopped, so the other has the core alone. All deadlines of a group
//! are written with `PXAT`, so that they are due at one known moment of the wall clock, which both sides read.
//! Everything is observed from outside (sockets, `/proc`), INFO fields included; only the table's columns named
//! "server's" repeat what a server says of itself.
//!
//! Reading order: this file, `report` (what is printed and kept), `server` (processes), `lag` (the first experiment).
//! Connections, tables and plots are those of `emberdb::measure`, as in the load generator.
//! A new experiment is one file and one row of [`EXPERIMENTS`].
//!
//! Results go to `bench-results/<date>-<machine>/promises/`: `summary.md`, and for each experiment its rounds
//! and raw data as CSV and plots as SVG. A missed promise is reported and does not fail the process.

mod budget;
mod generator;
mod idle;
mod lag;
mod load;
mod mass_expiry;
mod memory;
mod options;
mod report;
#[path = "../shared/results.rs"]
mod results;
mod server;
mod stale;
mod timers;

use options::Options;
use std::process::ExitCode;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Experiment {
    name: &'static str,
    about: &'static str,
    run: fn(&Options) -> Result<()>,
}

const EXPERIMENTS: &[Experiment] = &[
    Experiment { name: "lag", about: "deadline to expired event, beside a million live keys", run: lag::run },
    Experiment { name: "timers", about: "deadlines spread over time, beside ten million live keys", run: timers::run },
    Experiment { name: "mass-expiry", about: "a million keys die at once under half load", run: mass_expiry::run },
    Experiment { name: "budget", about: "CPU share of the cycle, and the order of deaths", run: budget::run },
    Experiment { name: "idle", about: "CPU of a server with nothing to do", run: idle::run },
    Experiment { name: "stale", about: "dead keys in memory in the steady state", run: stale::run },
    Experiment { name: "memory", about: "bytes for a key with a deadline", run: memory::run },
];

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n\n{}", options::usage());
            return ExitCode::from(2);
        }
    };
    if options.experiments.is_empty() {
        print!("{}", options::usage());
        return ExitCode::SUCCESS;
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    if !core_affinity::set_for_current(core_affinity::CoreId { id: options.generator_core }) {
        eprintln!("warning: no core {}: generator and server share cores", options.generator_core);
    }
    for experiment in &options.experiments {
        (experiment.run)(options)?;
        report::write_summary(options)?;
    }
    println!("results: {}", options.out.display());
    Ok(())
}
