//! The task that renews groups of keys one of whose members was used, and the one that writes deaths of groups to their
//! streams. Each renewal is a transaction over all shards, which nothing runs beside: all members die later from the same
//! moment on, or, where the group has died by then, none.
//!
//! Snapshots have groups as the commands that are said of them: each shard says so of all groups that it knows, and of a member beside its key.

use super::Shard;
use super::deaths::{Entry, append_all};
use super::message::At;
use crate::clock::{Now, store_us};
use crate::command::deaths::entry_of_group;
use crate::command::groups::recall;
use crate::command::spec::Group;
use crate::command::{CommandId, shard_of};
use crate::keyspace::{OwedDeath, Span};
use crate::net::sleep;
use crate::resp::{Limits, Parsed, Parser, Proto, Request};
use futures_lite::future::or;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The field in which a snapshot has what is said of a group, or of a member.
pub const GROUP: &str = "emberdb-group";
/// So many are taken in before others have their turn.
const TAKEN_IN: usize = 4_096;

/// What is said of a group or of a member, in a database.
pub struct Note {
    pub db: usize,
    /// The command.
    pub bytes: Box<[u8]>,
}

impl Note {
    /// The value of the field.
    pub fn to_field(&self) -> Vec<u8> {
        [self.db.to_string().as_bytes(), b" ", &self.bytes].concat()
    }

    /// Reads that again; none where it is something else.
    pub fn of_field(field: &[u8], databases: usize) -> Option<Note> {
        let space = field.iter().position(|byte| *byte == b' ')?;
        let db = std::str::from_utf8(&field[..space]).ok()?.parse().ok().filter(|db| *db < databases)?;
        let note = Note { db, bytes: field[space + 1..].into() };
        note.read(|request| request.len() > 4 && request.is(0, "expiry") && request.is(1, "group"))?.then_some(note)
    }

    fn read<R>(&self, work: impl FnOnce(Request) -> R) -> Option<R> {
        let mut parser = Parser::default();
        let limits = Limits { bulk_bytes: self.bytes.len(), authenticated: true };
        match parser.parse(&self.bytes, limits) {
            Ok(Parsed::Request(len)) if len == self.bytes.len() => Some(work(parser.request(&self.bytes))),
            _ => None,
        }
    }
}

impl Shard {
    fn recall(&self, notes: &[Note]) {
        let Some(command) = CommandId::named(&self.specs, "group-own", Group::Generic) else { return };
        for note in notes {
            // No key is dead to it: what has died is told later.
            let at = At { write: true, is_told: true, ..At::unseen(command, note.db, Proto::Resp2) };
            note.read(|request| self.step_of(at, self.clock.now(), |ctx| recall(ctx, request)));
        }
        self.after_commands();
    }

    /// A snapshot has said this of groups, whose members are there. Nobody else changes them.
    pub async fn recall_groups(self: &Rc<Shard>, notes: Vec<Note>) {
        let mut by_shard: Vec<Vec<Note>> = (0..self.count).map(|_| Vec::new()).collect();
        let (of_groups, of_members): (Vec<Note>, Vec<Note>) =
            notes.into_iter().partition(|note| note.read(|request| request.is(2, "date")) == Some(true));
        for note in of_members {
            let target = note.read(|request| shard_of(&self.hasher, request.arg(3)));
            target
                .into_iter()
                .for_each(|target| by_shard[target].push(Note { db: note.db, bytes: note.bytes.clone() }));
        }
        let of_groups: Arc<[Note]> = of_groups.into();
        self.call_all(move |shard| shard.recall(&of_groups)).await;
        for (target, mut notes) in by_shard.into_iter().enumerate() {
            while !notes.is_empty() {
                let some: Vec<Note> = notes.split_off(notes.len().saturating_sub(TAKEN_IN));
                self.call(target, move |shard| shard.recall(&some)).await;
            }
        }
    }
}

/// Groups that are renewed in one transaction.
const LOT: usize = 64;
/// Between two of them as much time passes: they hold up everybody.
const PAUSE: Duration = Duration::from_millis(1);

pub(super) async fn renew_groups(shard: Rc<Shard>, touch: CommandId) {
    loop {
        shard.groups_alarm.wait().await;
        loop {
            // In a pause nothing changes, and on a replica only what it is told.
            if shard.stands_still(shard.catch_up()) {
                shard.keyspace.borrow_mut().forget_renewals();
            }
            let used = shard.keyspace.borrow_mut().take_renewals(LOT);
            if used.is_empty() {
                break;
            }
            let transaction = shard.hold(shard.everything()).await;
            // Somebody may have paused everything meanwhile, or made this server a replica.
            if transaction.on(shard.id, |shard, _| shard.stands_still(shard.clock.now())).await {
                continue;
            }
            let used: Arc<[_]> = used.into();
            let mut renewed = Vec::new();
            for target in 0..shard.count {
                let used = used.clone();
                renewed.push(transaction.on(target, move |shard, now| {
                    for (db, name) in used.iter() {
                        let at = At { write: true, ..At::unseen(touch, *db, Proto::Resp2) };
                        shard.step_of(at, now, |ctx| ctx.renew_group(name, true));
                    }
                }));
            }
            for of_shard in renewed {
                of_shard.await;
            }
            drop(transaction);
            sleep(PAUSE).await;
        }
    }
}

/// Deaths of groups that are written in one transaction.
const TOLD_TOGETHER: usize = 128;
/// The shortest time until the clock is looked at again that has to reach a deadline.
const SOON: Duration = Duration::from_micros(50);

/// Writes deaths of groups to their streams, on one shard for all: every shard knows those groups. Each lot is one
/// transaction over all shards: in the journal a group is no more in the moment in which its entry is there.
pub(super) async fn tell_deaths(shard: Rc<Shard>, xadd: CommandId, told: CommandId) {
    loop {
        let now = shard.catch_up();
        let due_ms = shard.keyspace.borrow().next_owed_ms();
        // Only an earlier deadline wakes this task before its time.
        shard.telling_wakes_ms.set(due_ms);
        let due_us = match shard.stands_still(now) {
            true => shard.still_until_us(),
            // A group lives to the end of the millisecond that is its deadline.
            false => due_ms.saturating_add(1).saturating_mul(1000),
        };
        if due_ms == u64::MAX || due_us == u64::MAX {
            shard.telling_alarm.wait().await;
        } else if due_us > now.us {
            let rest = Duration::from_micros(due_us.saturating_sub(store_us())).max(SOON);
            or(shard.telling_alarm.wait(), sleep(rest)).await;
        } else {
            tell_lot(&shard, xadd, told).await;
            sleep(PAUSE).await;
        }
    }
}

async fn tell_lot(shard: &Rc<Shard>, xadd: CommandId, told: CommandId) {
    let transaction = shard.hold(shard.everything()).await;
    let look = |shard: &Shard, now| match shard.stands_still(shard.clock.now()) {
        true => Vec::new(),
        false => shard.keyspace.borrow().owed_deaths(TOLD_TOGETHER, now),
    };
    let dead: Arc<[OwedDeath]> = transaction.on(shard.id, look).await.into();
    if dead.is_empty() {
        return;
    }
    let of_shards: Vec<_> = (0..shard.count)
        .map(|target| {
            let dead = dead.clone();
            transaction.on(target, move |shard, now| shard.settle_deaths(&dead, told, now))
        })
        .collect();
    let mut settled: Vec<Option<(Span, u64)>> = vec![None; dead.len()];
    for of_shard in of_shards {
        for (sum, found) in settled.iter_mut().zip(of_shard.await) {
            let Some((span, members)) = found else { continue };
            sum.get_or_insert((span, 0)).1 += members;
        }
    }
    let entry = |(death, settled): (&OwedDeath, Option<(Span, u64)>)| {
        let (span, members) = settled?;
        let to = span.to.clone()?;
        let stream = shard.hasher.key(to.key.as_bytes());
        let request = entry_of_group(&to, &death.name, &span, members, &shard.clock);
        Some(Entry { target: shard.hasher.shard_of(stream), hash: stream.hash, db: death.db, request })
    };
    let entries: Vec<Entry> = dead.iter().zip(settled).filter_map(entry).collect();
    let (written, lost) = append_all(&transaction, entries, xadd).await;
    drop(transaction);
    shard.count_entries(written, lost);
}

impl Shard {
    /// These deaths are written; how the groups lived, and how many members they had here.
    fn settle_deaths(&self, dead: &[OwedDeath], told: CommandId, now: Now) -> Vec<Option<(Span, u64)>> {
        let settle = |OwedDeath { db, name, epoch }: &OwedDeath| {
            let at = At { write: true, ..At::unseen(told, *db, Proto::Resp2) };
            self.step_of(at, now, |ctx| ctx.settle_death(name, *epoch)).0
        };
        dead.iter().map(settle).collect()
    }
}
