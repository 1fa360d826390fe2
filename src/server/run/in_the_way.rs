//! Whether a script that lasts is in the way of a command. One that is busy refuses the command. Before that a command that
//! needs one key waits for the key with all others who do; one that needs more waits where it keeps nobody from anything:
//! in its connection's input, or, if the command has begun already, in its task.

use super::callee;
use super::plan;
use super::split;
use super::turn::Turn;
use crate::clock::store_us;
use crate::command;
use crate::command::CommandId;
use crate::command::spec::flag::{ALLOW_BUSY, WRITE};
use crate::net::sleep;
use crate::resp::{Error, Request, Result};
use crate::server::admit::{Admission, Asked, Conditions, Flags, Standing, admit};
use crate::server::client::multi::Verb;
use crate::server::state::busy::{LastingScript, Needs, busy_text};
use crate::server::state::{Command, Run, Server};
use crate::shard::{EVERYTHING, HELD_FOR, Lock, Space, Transaction};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// So long a script that can be undone may take to let somebody pass who came before the script was known to last: it looks
/// twice meanwhile.
const LET_PASS_WITHIN_US: u64 = 100_000;

/// What becomes of a command that has a script in its way.
pub enum Way {
    Refused(&'static str),
    /// It waits outside of all queues.
    Held,
}

/// What a command needs, and whether that is more than one key.
struct Wants {
    data: bool,
    everything: bool,
    locks: Vec<Lock>,
    is_one: bool,
}

/// Those of somebody who is about to hold everything.
const OF_EVERYTHING: Wants = Wants { data: true, everything: true, locks: Vec::new(), is_one: false };

impl Wants {
    fn script_in_the_way(&self, server: &Server) -> Option<Arc<LastingScript>> {
        let Wants { data, everything, ref locks, .. } = *self;
        server.global.lasting_scripts.in_the_way(&Needs { data, everything, locks }, None)
    }
}

/// What is in the way of a command that is not for such times.
pub fn of(turn: &mut Turn, command: &Command, request: Request) -> Option<Way> {
    if !turn.conditions.busy || command.spec.has(ALLOW_BUSY) {
        return None;
    }
    let (command, request, lease) = match command.run {
        Run::Multi(Verb::Guard) => {
            let (inner, guarded) = callee::guarded(turn.server, request).ok()?;
            (inner, guarded, Some(wants(turn.server, command, request)))
        }
        _ => (command, request, None),
    };
    let (script, is_one) = match (command.run, &turn.session.multi) {
        (Run::Multi(Verb::Exec), Some(multi)) => {
            let commands = || multi.commands().iter().map(|queued| (queued.command, multi.request(*queued)));
            let of_one =
                |(id, request)| wants(turn.server, turn.server.table.get(id), request).script_in_the_way(turn.server);
            // EXEC itself is about no data.
            let of_exec = of_one((command.id, request)).or_else(|| commands().find_map(of_one));
            (of_exec.or_else(|| lease?.script_in_the_way(turn.server)), false)
        }
        _ => {
            let mut wants = wants(turn.server, command, request);
            if let Some(lease) = lease {
                wants.data = true;
                wants.is_one &= wants.locks.first().is_some_and(|lock| lock.hash == lease.locks[0].hash);
                wants.locks.extend(lease.locks);
            }
            (wants.script_in_the_way(turn.server), wants.is_one)
        }
    };
    let script = script?;
    if script.is_busy() {
        return Some(Way::Refused(script.text()));
    }
    // One that is queued waits when it runs.
    let is_queued = turn.session.multi.is_some() && !matches!(command.run, Run::Multi(_));
    if is_one || is_queued {
        return None;
    }
    let (now_us, said) = (store_us(), turn.session.commands);
    let since_us = match turn.flow.held_up {
        Some((of, since_us)) if of == said => since_us,
        _ => now_us,
    };
    turn.flow.held_up = Some((said, since_us));
    if now_us.saturating_sub(since_us) >= threshold_us(turn.server) {
        return Some(Way::Refused(script.text()));
    }
    turn.server.held_up.add(turn.client);
    Some(Way::Held)
}

/// Who is about to hold keys.
#[derive(Clone, Copy)]
pub struct Holder<'a> {
    pub command: CommandId,
    pub request: Request<'a>,
    /// What the log says, or a primary, was admitted there.
    pub replays: bool,
    /// The script that asks, which others may know already.
    pub own: Option<&'a Arc<LastingScript>>,
}

/// Holds keys for a command whose coordinator is about to begin. A script that lasts lets nobody pass who knew of it: then the
/// command waits for its turn here, and is refused when a script in its way is busy.
pub async fn hold(
    server: &Server,
    locks: impl Iterator<Item = (usize, Lock)>,
    holder: Holder<'_>,
) -> Result<Transaction> {
    let shard = &server.shard;
    if !server.global.lasting_scripts.any() {
        return Ok(shard.hold(locks).await);
    }
    let locks: Vec<(usize, Lock)> = locks.collect();
    let needed: Vec<Lock> = locks.iter().map(|(_, lock)| *lock).collect();
    let needs = Needs { data: true, everything: needed.iter().any(|lock| lock.hash == EVERYTHING), locks: &needed };
    let is_apart = locks.iter().any(|(target, _)| *target != locks[0].0);
    loop {
        let busy_us = store_us().saturating_add(threshold_us(server));
        let refusal = || {
            let script = server.global.lasting_scripts.in_the_way(&needs, holder.own);
            let busy = script.filter(|script| script.is_busy() || is_apart && store_us() >= busy_us);
            busy.map(|script| Error::text(script.text()))
        };
        let transaction = shard.hold_in_turn(&locks, refusal).await?;
        match admit_again(server, holder) {
            Admission::Refused(error) => return Err(error),
            Admission::Paused => drop(transaction),
            _ => return Ok(transaction),
        }
        sleep(PAUSED_FOR).await;
    }
}

/// Between two looks whether a pause is over.
const PAUSED_FOR: Duration = Duration::from_millis(10);

/// Who has waited outside of all queues was overtaken by what comes behind all that was admitted: this server may be a replica by
/// now, or load, or be about to hand over.
fn admit_again(server: &Server, holder: Holder) -> Admission {
    if holder.replays {
        return Admission::Runs;
    }
    let command = server.table.get(holder.command);
    server.shard.catch_up();
    let Conditions { paused, loading, arriving, read_only, .. } = server.conditions(Space::Enough);
    admit(&Asked {
        full_name: command.full_name,
        flags: Flags::of(callee::flags_of(server, command, holder.request)),
        standing: Standing { authenticated: true, ..Standing::default() },
        conditions: Conditions { paused, loading, arriving, read_only, ..Conditions::default() },
        log_trouble: &String::new,
        denied: &|| None,
    })
}

/// For how long somebody waits before an answer says that a script is in the way, in microseconds.
pub fn threshold_us(server: &Server) -> u64 {
    server.shard.config().busy_reply_threshold_ms.saturating_mul(1_000)
}

fn wants(server: &Server, command: &Command, request: Request) -> Wants {
    let run = plan::run_of(server, command, request);
    let keys = command.spec.keys;
    let routes = split::routes(&server.shard.hasher, keys, request);
    let data = match run {
        // What they show is not held.
        Run::Data(command::Run::Cursor(..) | command::Run::Container) => false,
        Run::Data(_) | Run::Script(_) => true,
        // WATCH.
        _ => !routes.is_empty(),
    };
    let everything = match run {
        Run::Data(command::Run::Everywhere(..)) => true,
        Run::Data(command::Run::Coordinated(_)) => routes.is_empty(),
        Run::Data(command::Run::Atomic(..)) => keys.name_others(request),
        Run::Script(calls) => callee::find(server, calls, request).is_ok_and(|(callee, _)| callee.strays()),
        _ => false,
    };
    let write = command.spec.has(WRITE) || matches!(run, Run::Script(_));
    let locks: Vec<Lock> = routes.iter().map(|&(hash, _)| Lock { hash, write }).collect();
    let is_one = !everything && (locks.len() == 1 || locks.iter().all(|lock| lock.hash == locks[0].hash));
    Wants { data, everything, locks, is_one }
}

/// Waits until no script is in the way of somebody who is about to hold everything; the error where that takes too long.
pub async fn let_pass(server: &Server) -> Result {
    let until_us = store_us().saturating_add(threshold_us(server));
    while let Some(script) = OF_EVERYTHING.script_in_the_way(server) {
        if script.is_busy() || store_us() >= until_us {
            return Err(Error::text(script.text()));
        }
        sleep(HELD_FOR).await;
    }
    Ok(())
}

/// Waits until no script runs as a task, or is going to, for somebody who has seen to it that no other begins; the error
/// where that takes too long.
pub async fn let_scripts_end(server: &Server) -> Result {
    let until_us = store_us().saturating_add(threshold_us(server));
    while server.global.scripts_under_way.load(Ordering::Acquire) > 0 {
        if store_us() >= until_us {
            return Err(Error::text(busy_text(false)));
        }
        sleep(HELD_FOR).await;
    }
    Ok(())
}

/// [`let_pass`] for those who have all the time that it takes.
pub async fn let_all_pass(server: &Server) {
    while let_pass(server).await.is_err() {
        sleep(HELD_FOR).await;
    }
}

/// Nobody but this transaction touches anything, on any shard, and it is its turn everywhere; the error where a script is in
/// its way for too long.
pub async fn hold_everything(server: &Server) -> Result<Transaction> {
    loop {
        let_pass(server).await?;
        if let Some(transaction) = hold_everything_now(server).await {
            return Ok(transaction);
        }
    }
}

/// [`hold_everything`] for those who have all the time that it takes.
pub async fn hold_everything_at_last(server: &Server) -> Transaction {
    loop {
        let_all_pass(server).await;
        if let Some(transaction) = hold_everything_now(server).await {
            return transaction;
        }
    }
}

/// None where a script has begun to last that does not let this pass, since the script cannot be undone: everybody would wait
/// behind this until the script ends.
async fn hold_everything_now(server: &Server) -> Option<Transaction> {
    let shard = &server.shard;
    let transaction = shard.hold(shard.everything()).await;
    let seen: RefCell<Option<(Arc<LastingScript>, u64)>> = RefCell::default();
    let stays = || {
        let (script, now_us) = (OF_EVERYTHING.script_in_the_way(server)?, store_us());
        let mut seen = seen.borrow_mut();
        match &*seen {
            Some((before, since_us)) if Arc::ptr_eq(before, &script) => {
                (now_us.saturating_sub(*since_us) >= LET_PASS_WITHIN_US).then_some(())
            }
            _ => {
                *seen = Some((script, now_us));
                None
            }
        }
    };
    transaction.turn_unless(stays).await.ok()?;
    Some(transaction)
}
