//! The task that writes deaths to streams. Each lot is one transaction: here the keys are gone, there the streams have
//! their entries, and nobody sees, nor does the journal keep, the one without the other.

use super::Shard;
use super::coordinator::Transaction;
use super::message::{At, Lock};
use super::transactions::client_lock;
use crate::clock::Now;
use crate::command::deaths::{APPEND, entry_of, note_of};
use crate::command::{CommandId, OwnedRequest};
use crate::keyspace::{Death, Taken};
use crate::net::sleep;
use crate::observe::log;
use crate::resp::{Error, Proto};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

/// Deaths that are written in one transaction.
const LOT: usize = 128;
/// The same in bytes of their values.
const LOT_BYTES: usize = 256 << 10;
/// No connection has this number.
const NOBODY: u64 = 0;
/// How long until it is looked again whether a pause is over.
const PAUSED_FOR: Duration = Duration::from_millis(1);
/// How long until it is looked again whether somebody still has the dead.
const DEAD_HELD_FOR: Duration = Duration::from_millis(20);

/// An entry for a stream.
pub(super) struct Entry {
    /// The shard of the stream, and its hash.
    pub target: usize,
    pub hash: u64,
    pub db: usize,
    pub request: OwnedRequest,
}

pub(super) async fn write_deaths(shard: Rc<Shard>, xadd: CommandId) {
    loop {
        shard.deaths_alarm.wait().await;
        // While clients are paused nothing is written, unless this server is about to hand over.
        while shard.has_deaths() {
            match shard.keeps_deaths(shard.catch_up()) {
                true => sleep(PAUSED_FOR).await,
                false => write_lot(&shard, xadd).await,
            }
        }
    }
}

/// Writes the first of those that wait. They wait until nobody else holds their streams: until then they are seen by whoever
/// notes down what waits, and gone where a database is emptied.
async fn write_lot(shard: &Rc<Shard>, xadd: CommandId) {
    let mut dead = Vec::new();
    let mut locks: BTreeMap<(usize, u64), Lock> = BTreeMap::new();
    for death in shard.keyspace.borrow().deaths.first(LOT, LOT_BYTES) {
        let stream = shard.hasher.key(death.to.key.as_bytes());
        locks.insert((shard.hasher.shard_of(stream), stream.hash), Lock { hash: stream.hash, write: true });
        dead.push((death.number, shard.hasher.hash(&death.key)));
    }
    // This shard takes part, with a key that nobody has. While the streams are waited for, clients go on with what is dead, and
    // tell of its death first.
    let nobody = client_lock(NOBODY);
    locks.insert((shard.id, nobody.hash), nobody);
    let locks: Vec<(usize, Lock)> = locks.into_iter().map(|((target, _), lock)| (target, lock)).collect();
    let Ok(transaction) = shard.hold_in_turn(&locks, || None::<Infallible>).await;
    // Somebody may have paused everything meanwhile, or made this server a replica: then nothing is written.
    if shard.keeps_deaths(shard.clock.now()) {
        drop(transaction);
        return sleep(PAUSED_FOR).await;
    }
    // A script or a transaction that has one of the dead tells of its death when it is over. Its entry waits for that: the log,
    // and who takes this server's place, would have the entry, and the death behind it once more.
    let is_free = |hash: &u64| transaction.widen(&[Lock { hash: *hash, write: true }]);
    let numbers: Vec<u64> = dead.iter().filter(|(_, hash)| is_free(hash)).map(|(number, _)| *number).collect();
    if numbers.is_empty() {
        drop(transaction);
        return sleep(DEAD_HELD_FOR).await;
    }
    let entries = shard.entries_of(&numbers);
    let (written, lost) = append_all(&transaction, entries, xadd).await;
    // Who has written to one of the dead meanwhile has told of it first. This is said when the transaction is over, which is
    // now: nobody writes in between.
    transaction.on(shard.id, move |shard, now| shard.take_deaths(&numbers, xadd, now)).await;
    drop(transaction);
    shard.count_entries(written, lost);
}

/// Appends entries to their streams; how many, and how many could not be.
pub(super) async fn append_all(transaction: &Transaction, entries: Vec<Entry>, xadd: CommandId) -> (u64, u64) {
    let mut by_shard: BTreeMap<usize, Vec<Entry>> = BTreeMap::new();
    entries.into_iter().for_each(|entry| by_shard.entry(entry.target).or_default().push(entry));
    let (mut written, mut lost) = (0, 0);
    let mut results = Vec::new();
    for (target, entries) in by_shard {
        results.push(transaction.on(target, move |shard, now| shard.append_deaths(entries, xadd, now)));
    }
    for result in results {
        let (more, errors) = result.await;
        written += more;
        lost += errors.len() as u64;
        if let Some(error) = errors.first() {
            log::warning(format_args!("{} deaths could not be written to their stream: {error}", errors.len()));
        }
    }
    (written, lost)
}

impl Shard {
    /// Whether deaths wait to be written.
    pub fn has_deaths(&self) -> bool {
        !self.keyspace.borrow().deaths.is_empty()
    }

    /// A server that is about to hand over to a replica writes the deaths that wait, in a pause too: the replica has no other
    /// way to know of those keys that are gone already.
    pub fn write_deaths_in_pause(&self, wants: bool) {
        self.writes_deaths_in_pause.set(wants);
    }

    /// Whether deaths wait on at this moment.
    fn keeps_deaths(&self, now: Now) -> bool {
        let has_others_data = self.is_following() || self.is_replaying.get();
        self.stands_still(now) && (has_others_data || !self.writes_deaths_in_pause.get())
    }

    pub(super) fn count_entries(&self, written: u64, lost: u64) {
        let counters = &mut self.keyspace.borrow_mut().counters;
        counters.deaths_written += written;
        counters.deaths_lost += lost;
    }

    /// The entries of those of these deaths that still wait.
    fn entries_of(&self, numbers: &[u64]) -> Vec<Entry> {
        let keyspace = self.keyspace.borrow();
        let entry = |death: &Death| {
            let stream = self.hasher.key(death.to.key.as_bytes());
            let target = self.hasher.shard_of(stream);
            Entry { target, hash: stream.hash, db: death.db, request: entry_of(death, &self.clock) }
        };
        keyspace.deaths.these(numbers).map(entry).collect()
    }

    /// They are written, and wait no more: the journal is told of those that it does not know of.
    fn take_deaths(&self, numbers: &[u64], xadd: CommandId, now: Now) {
        let at = At { write: true, ..At::unseen(xadd, 0, Proto::Resp2) };
        self.step_of(at, now, |ctx| {
            for Taken { death, is_untold } in ctx.keyspace.deaths.take(numbers) {
                if is_untold {
                    ctx.keyspace.effects.said.died(death.db, &death.key);
                }
                if death.is_noted {
                    ctx.say_written(death.number);
                }
            }
        });
    }

    /// Appends entries to streams of this shard; how many, and the errors of the others.
    fn append_deaths(&self, entries: Vec<Entry>, xadd: CommandId, now: Now) -> (u64, Vec<Error>) {
        let (mut written, mut errors) = (0, Vec::new());
        for Entry { hash, db, request, .. } in entries {
            let at = At { write: true, hash, ..At::unseen(xadd, db, Proto::Resp2) };
            // It is no client's write: nothing is asked of policies.
            match self.step_of(at, now, |ctx| APPEND(ctx, request.as_request())).0 {
                Ok(()) => written += 1,
                Err(error) => errors.push(error),
            }
        }
        (written, errors)
    }

    /// Another server has the keys of which nobody was told that they are dead, and tells of their deaths itself.
    pub fn leave_deaths(&self) {
        let mut keyspace = self.keyspace.borrow_mut();
        let is_journaled = keyspace.effects.is_journaled();
        keyspace.deaths.forget_untold(is_journaled);
    }

    /// All deaths that wait, as a log or a snapshot has them.
    pub(super) fn note_deaths(&self) -> Vec<Vec<u8>> {
        self.keyspace.borrow_mut().deaths.note_all().map(|death| note_of(death, &self.clock)).collect()
    }

    /// A log or a snapshot had this death of a key of this shard, whose entry is still to be written.
    pub fn put_back_death(&self, death: Death) {
        self.keyspace.borrow_mut().deaths.put_back(death);
        self.deaths_alarm.notify();
    }
}
