//! Whether a script that has run for long is in the way of a command: then it is refused, rather than kept waiting.

use crate::command;
use crate::command::spec::flag::{ALLOW_BUSY, WRITE};
use crate::resp::Request;
use crate::server::busy::{BusyScript, Needs};
use crate::server::multi::Verb;
use crate::server::plan;
use crate::server::server::{Command, Run};
use crate::server::split;
use crate::server::turn::Turn;
use crate::shard::Lock;
use std::sync::Arc;

/// The script in the way of a command that is not for such times.
pub fn of(turn: &Turn, command: &Command, request: Request) -> Option<Arc<BusyScript>> {
    if !turn.conditions.busy || command.spec.has(ALLOW_BUSY) {
        return None;
    }
    match (command.run, &turn.session.multi) {
        (Run::Multi(Verb::Exec), Some(multi)) => {
            let commands = || multi.commands().iter().map(|queued| (queued.command, multi.request(*queued)));
            let of_one = |(id, request)| of_one(turn, turn.server.table.get(id), request);
            // EXEC itself is about no data.
            of_one((command.id, request)).or_else(|| commands().find_map(of_one))
        }
        _ => of_one(turn, command, request),
    }
}

fn of_one(turn: &Turn, command: &Command, request: Request) -> Option<Arc<BusyScript>> {
    let run = plan::run_of(turn.server, command, request);
    let data = match run {
        // What they show is not held.
        Run::Data(command::Run::Cursor(..) | command::Run::Container) => false,
        Run::Data(_) | Run::Script(_) => true,
        _ => false,
    };
    let everything = matches!(run, Run::Data(command::Run::Everywhere(..) | command::Run::Coordinated(_)));
    let write = command.spec.has(WRITE) || matches!(run, Run::Script(_));
    let routes = split::routes(&turn.server.shard.hasher, command.spec.keys, request);
    let locks: Vec<Lock> = routes.iter().map(|&(hash, _)| Lock { hash, write }).collect();
    turn.server.global.busy_scripts.in_the_way(&Needs { data, everything, locks: &locks })
}
