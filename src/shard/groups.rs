//! The task that sees to groups of keys: it renews those one of whose members was used, and writes the deaths of those that have
//! died to their streams. Each time that is a transaction over all shards, which nothing runs beside: all members die later from the
//! same moment on, or, where the group has died by then, none; and each death is counted on all shards in one moment.
//!
//! Snapshots have groups as the commands that are said of them, behind the keys.

use super::Shard;
use super::coordinator::Transaction;
use super::message::{At, EVERYTHING, Lock};
use crate::clock::Now;
use crate::command::grouped::{date_command, dead_command, own_command};
use crate::command::groups::{End, death_entry, recall};
use crate::command::spec::Group;
use crate::command::{CommandId, shard_of};
use crate::keyspace::{Counted, Due, GroupName};
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
    /// All that has to be said of groups, so that they are what they are now. `offset_ms`: how far ahead of store time the
    /// times in it are.
    pub(super) fn note_groups(&self, offset_ms: i64) -> Vec<Note> {
        let (mut notes, keyspace) = (Vec::new(), self.keyspace.borrow());
        let wall_ms = |store_ms: u64| (store_ms as i64).saturating_add(offset_ms);
        let now = self.clock.now();
        keyspace.each_group(now, |db, name, span, to| {
            let said = (to.is_some() || span.epoch == 0).then_some(to);
            notes.push(Note { db, bytes: date_command(db, name, span, said, wall_ms).bytes });
        });
        keyspace.each_dead_group(now, |db, name, epoch, counted| {
            notes.push(Note { db, bytes: dead_command(db, name, epoch, &counted, wall_ms).bytes });
        });
        keyspace.each_member(|db, key, said| {
            notes.push(Note { db, bytes: own_command(db, key, &said, wall_ms).bytes });
        });
        notes
    }

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

/// Groups that are renewed, or whose deaths are written, in one transaction.
const LOT: usize = 256;
/// Between two of them as much time passes: they hold up everybody.
const PAUSE: Duration = Duration::from_millis(1);
/// A group that is going to die is looked for as often as this at least.
const LOOKED_AFTER: Duration = Duration::from_secs(3_600);
/// For so many times as long as such a transaction has taken others have their turn, while nothing is urgent.
const SPARED: u32 = 4;
/// While data stand still, and on a replica, it is looked so often whether that is over.
const STILL: Duration = Duration::from_millis(50);

pub(super) async fn see_to_groups(shard: Rc<Shard>, touch: CommandId) {
    loop {
        let is_mine = |name: &[u8]| shard_of(&shard.hasher, name) == shard.id;
        let death_ms = shard.keyspace.borrow().next_group_death_ms(is_mine);
        if !shard.keyspace.borrow().has_news_of_groups() {
            // (It is dead when its deadline has passed.)
            let rest_us = death_ms.saturating_add(1).saturating_mul(1_000).saturating_sub(shard.catch_up().us);
            or(shard.groups_alarm.wait(), sleep(Duration::from_micros(rest_us).min(LOOKED_AFTER))).await;
        }
        // In a pause nothing changes, and on a replica only what it is told.
        let now = shard.catch_up();
        if shard.stands_still(now) {
            {
                let keyspace = &mut *shard.keyspace.borrow_mut();
                keyspace.forget_renewals();
                keyspace.due_group_deaths(0, now, is_mine);
            }
            sleep(STILL).await;
            continue;
        }
        let (used, due, emptied) = {
            let keyspace = &mut *shard.keyspace.borrow_mut();
            let due = keyspace.due_group_deaths(LOT, now, is_mine);
            (keyspace.take_renewals(LOT), due, keyspace.take_emptied_groups(LOT))
        };
        if used.is_empty() && due.is_empty() && emptied.is_empty() {
            continue;
        }
        let at = At { write: true, ..At::unseen(touch, 0, Proto::Resp2) };
        let all = (0..shard.count).map(|target| (target, Lock { hash: EVERYTHING, write: true }));
        let transaction = shard.hold(all).await;
        // The dead come first: with what is left of them others go.
        tell_deaths(&shard, &transaction, at, due).await;
        renew(&shard, &transaction, at, used).await;
        forget_emptied(&shard, &transaction, at, emptied).await;
        drop(transaction);
        // Renewals of groups that have long to live still are in no hurry: they leave most of the time to others.
        let took = Duration::from_micros(shard.catch_up().us.saturating_sub(now.us));
        let spare_ms = shard.keyspace.borrow().first_renewal_ms().saturating_sub(shard.clock.now().ms);
        let most = Duration::from_millis(spare_ms / 8).max(PAUSE);
        sleep((took * SPARED).clamp(PAUSE, most)).await;
    }
}

/// Does something on all shards, as part of one transaction.
async fn on_all<R: Send + 'static>(
    shard: &Shard,
    transaction: &Transaction,
    work: impl FnOnce(&Shard, Now) -> R + Clone + Send + 'static,
) -> Vec<R> {
    let started: Vec<_> = (0..shard.count).map(|target| transaction.on(target, work.clone())).collect();
    let mut results = Vec::with_capacity(started.len());
    for result in started {
        results.push(result.await);
    }
    results
}

async fn renew(shard: &Shard, transaction: &Transaction, at: At, used: Vec<(usize, GroupName)>) {
    if used.is_empty() {
        return;
    }
    let used: Arc<[_]> = used.into();
    let work = move |shard: &Shard, now: Now| {
        for (db, name) in used.iter() {
            shard.step_of(At { db: *db, ..at }, now, |ctx| ctx.renew_group(name, true));
        }
    };
    on_all(shard, transaction, work).await;
}

/// Writes the deaths of groups to their streams, each with the number of members on all shards.
async fn tell_deaths(shard: &Shard, transaction: &Transaction, at: At, due: Vec<Due>) {
    if due.is_empty() {
        return;
    }
    let due: Arc<[Due]> = due.into();
    let (of_work, of_step) = (due.clone(), at);
    let work = move |shard: &Shard, now: Now| -> Vec<Option<Counted>> {
        let tell = |Due { db, name, epoch }: &Due| {
            shard.step_of(At { db: *db, ..of_step }, now, |ctx| ctx.tell_group_death(name, *epoch)).0
        };
        of_work.iter().map(tell).collect()
    };
    let of_shards = on_all(shard, transaction, work).await;
    let mut appended = Vec::new();
    for (index, Due { db, name, .. }) in due.iter().enumerate() {
        // Where this shard does not know of it any more its database was emptied meanwhile.
        let Some(mut counted) = of_shards[shard.id][index].clone() else { continue };
        counted.members = of_shards.iter().filter_map(|told| Some(told[index].as_ref()?.members)).sum();
        let target = shard_of(&shard.hasher, &counted.to.key);
        let (at, name) = (At { db: *db, ..at }, name.clone());
        appended.push(transaction.on(target, move |shard, now| {
            let lag_us = now.us.saturating_sub(counted.deadline_ms.saturating_mul(1_000));
            let entry = death_entry(&counted.to, &name, &End::Expired(&counted, lag_us), &shard.clock);
            shard.step_of(at, now, |ctx| ctx.append_group_death(&entry));
        }));
    }
    for of_stream in appended {
        of_stream.await;
    }
}

/// Groups without deadlines that have lost their last members are gone, though they have streams.
async fn forget_emptied(shard: &Shard, transaction: &Transaction, at: At, emptied: Vec<(usize, GroupName)>) {
    if emptied.is_empty() {
        return;
    }
    let emptied: Arc<[_]> = emptied.into();
    let of_look = emptied.clone();
    let look = move |shard: &Shard, _: Now| -> Vec<bool> {
        let keyspace = shard.keyspace.borrow();
        of_look.iter().map(|(db, name)| keyspace.is_empty_group(*db, name)).collect()
    };
    let are_empty = on_all(shard, transaction, look).await;
    let is_gone = |index: usize| are_empty.iter().all(|of_shard| of_shard[index]);
    let gone: Vec<bool> = (0..emptied.len()).map(is_gone).collect();
    let forget = move |shard: &Shard, now: Now| {
        for ((db, name), _) in emptied.iter().zip(&gone).filter(|(_, is_gone)| **is_gone) {
            shard.step_of(At { db: *db, ..at }, now, |ctx| ctx.forget_group(name));
        }
    };
    on_all(shard, transaction, forget).await;
}
