//! `emberdb-bench`: the load generator. It runs the same load against any RESP server and tells how long requests
//! really take.
//!
//! ```text
//!  main       flags -> one of these, or summary
//!  load       rounds of a plain load, targets in turn      deaths    keys that die: lag and mass-expiry
//!  idle       connections that say nothing                 foreign   keys of another shard than the connection's
//!  memory     what keys take                               stall     how long one command keeps others waiting
//!  search     the greatest rate under an objective         summary   summary.md from many results
//!  round      threads against one target                   report    table, result.json, .hgrm (hgrm), plot
//!  engine     the loop of one thread over its links        metric    which figures there are
//!  workload   what is asked (keys, encode, template)       recorder  histograms by phase and interval
//!  schedule   when it is asked                             setting   a directive changed for a while
//!  said       what is printed
//! ```
//!
//! Connections, tables and plots are those of `emberdb::measure`, and nothing else of the library is used: any RESP
//! server can be measured.
//!
//! Latency in open loop counts from the moment a request was planned, so a server that stands still is charged for
//! every request that was due meanwhile: see `schedule`.

mod deaths;
mod encode;
mod engine;
mod failure;
mod flags;
mod foreign;
mod hgrm;
mod idle;
mod keys;
mod load;
mod memory;
mod metric;
mod objective;
mod recorder;
mod report;
mod round;
mod said;
mod schedule;
mod search;
mod setting;
mod stall;
mod summary;
mod template;
mod timer;
mod workload;

use clap::CommandFactory;
use flags::Flags;
use std::process::ExitCode;
use workload::Kind;

fn main() -> ExitCode {
    let flags = Flags::from_command_line();
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            said::complain(failure);
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> failure::Result<()> {
    if let Some(what) = flags.generate {
        said::say(what.text(Flags::command()).trim_end());
        return Ok(());
    }
    if let Some(folder) = &flags.summary {
        return summary::write(folder);
    }
    // Threads start where this one is, and it should not wander to the server's core: it ends up on the first.
    for core in flags.cores.iter().rev() {
        if !core_affinity::set_for_current(core_affinity::CoreId { id: (*core).into() }) {
            return Err(failure::Failure::Unfit(format!("cannot run on core {core} (--cores)")));
        }
    }
    raise_open_files();
    let report = match &flags.search {
        Some(objective) => load::search(flags, objective)?,
        None => match flags.workload {
            Kind::Lag | Kind::MassExpiry => deaths::run(flags)?,
            Kind::Idle => idle::run(flags)?,
            Kind::ForeignKey => foreign::run(flags)?,
            Kind::Memory => memory::run(flags)?,
            Kind::Stall => stall::run(flags)?,
            _ => load::run(flags)?,
        },
    };
    report.finish()
}

/// As many open files as the hard limit allows: connections are that.
fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid place to write to.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: a valid limit; what cannot be raised stays as it is.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}
