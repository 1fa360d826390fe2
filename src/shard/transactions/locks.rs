//! Who waits for which key on this shard: a queue for each locked key. The table is empty nearly always: what can run at
//! once never enters it.
//!
//! ```text
//!  hash of a key   write #5 | read #7  read #8 | write #9 | command
//!                  granted
//! ```
//!
//! Everybody has one place in one order, whatever the queue: so nobody can wait for somebody who waits for him.
//!
//! Keys are known by their hash alone, in all databases together: keys that share one wait for each other, which is
//! rare and harmless. Everybody is also in the queue of [`EVERYTHING`]; who locks the whole shard is there as a writer.
//!
//! After VLL (Ren, Thomson, Abadi: Lightweight Locking for Main Memory Database Systems, VLDB 2012), with queues in
//! place of its counters, so that those who wait know each other's order.

use crate::observe::GiveBack;
use crate::shard::message::{EVERYTHING, Lock};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

/// Where somebody stands: behind all with smaller numbers, and behind those with the same number who came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub sequence: u64,
    pub arrival: u64,
}

#[derive(Default)]
pub struct Locks {
    queues: HashMap<u64, Queue, ahash::RandomState>,
    /// How many lock the whole shard.
    of_everything: usize,
}

/// The entries up to `granted` hold the key: one writer, or readers.
#[derive(Default)]
struct Queue {
    entries: BTreeMap<Place, Entry>,
    granted: Option<Place>,
}

#[derive(Clone, Copy)]
struct Entry {
    owner: usize,
    write: bool,
}

/// What a change did to those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Granted(usize),
    /// Granted before, and now behind another: only for those that have not started.
    Revoked(usize),
}

impl Locks {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Whether somebody who came now, after all others, would have to wait for this lock.
    pub fn is_taken(&self, lock: Lock) -> bool {
        self.queues.get(&lock.hash).is_some_and(|queue| !queue.takes(lock.write))
    }

    /// The same for several.
    #[inline]
    pub fn are_taken(&self, locks: &[Lock]) -> bool {
        !self.is_empty() && (self.is_everything_taken() || locks.iter().any(|lock| self.is_taken(*lock)))
    }

    /// Whether everybody who comes now has to wait.
    pub fn is_everything_taken(&self) -> bool {
        self.of_everything > 0
    }

    /// Whether somebody who stands before this place locks the whole shard, or waits for that.
    pub fn is_everything_taken_before(&self, place: Place) -> bool {
        let is_before = |queue: &Queue| queue.entries.range(..place).any(|(_, entry)| entry.write);
        self.is_everything_taken() && self.queues.get(&EVERYTHING).is_some_and(is_before)
    }

    /// Who has a key to write it, or is the first to get it.
    pub fn first_writer(&self, hash: u64) -> Option<usize> {
        let (_, first) = self.queues.get(&hash)?.entries.first_key_value()?;
        first.write.then_some(first.owner)
    }

    /// Whether somebody at this place has entered the queue of a key.
    pub fn has_entered(&self, place: Place, hash: u64) -> bool {
        self.queues.get(&hash).is_some_and(|queue| queue.entries.contains_key(&place))
    }

    /// Whether somebody at this place has a key, or waits for it, so that who wants this lock has to wait behind.
    pub fn is_in_the_way(&self, place: Place, lock: Lock) -> bool {
        let entry = self.queues.get(&lock.hash).and_then(|queue| queue.entries.get(&place));
        entry.is_some_and(|entry| entry.write || lock.write)
    }

    /// Whom somebody at this place waits for in a lock's queue first of all: the last writer before it, or all readers since
    /// then. Those wait for whoever is before them.
    pub fn right_before(&self, place: Place, lock: Lock) -> Vec<usize> {
        let Some(queue) = self.queues.get(&lock.hash) else { return Vec::new() };
        let before = || queue.entries.range(..place).rev().map(|(_, entry)| *entry);
        let readers: Vec<usize> = before().take_while(|entry| !entry.write).map(|entry| entry.owner).collect();
        if lock.write && !readers.is_empty() {
            return readers;
        }
        before().find(|entry| entry.write).map(|entry| entry.owner).into_iter().collect()
    }

    /// What is locked, as long as that is no more than so much.
    pub fn hashes(&self, max: usize) -> Option<impl Iterator<Item = u64>> {
        (self.queues.len() <= max).then(|| self.queues.keys().copied().filter(|hash| *hash != EVERYTHING))
    }

    /// Takes a place in the queue of each lock, which are all different. Returns how many were not granted.
    pub fn enter(&mut self, owner: usize, place: Place, locks: &[Lock], mut tell: impl FnMut(Change)) -> usize {
        let mut missing = 0;
        for lock in locks {
            self.of_everything += usize::from(lock.hash == EVERYTHING && lock.write);
            let queue = self.queues.entry(lock.hash).or_default();
            missing += usize::from(!queue.insert(place, Entry { owner, write: lock.write }, &mut tell));
        }
        missing
    }

    /// Leaves the queues again, granted or not.
    pub fn leave(&mut self, place: Place, locks: &[Lock], mut tell: impl FnMut(Change)) {
        for lock in locks {
            self.of_everything -= usize::from(lock.hash == EVERYTHING && lock.write);
            let queue = self.queues.get_mut(&lock.hash).expect("entered before");
            queue.remove(place, &mut tell);
            if queue.entries.is_empty() {
                self.queues.remove(&lock.hash);
            }
        }
        self.queues.give_back();
    }
}

impl Queue {
    fn is_read(&self) -> bool {
        self.entries.first_key_value().is_none_or(|(_, first)| !first.write)
    }

    /// Whether one more at the end would be granted at once.
    fn takes(&self, write: bool) -> bool {
        let last = self.entries.last_key_value().map(|(place, _)| *place);
        last.is_none() || !write && self.granted == last && self.is_read()
    }

    fn before(&self, place: Place) -> Option<Place> {
        self.entries.range(..place).next_back().map(|(place, _)| *place)
    }

    /// Whether the entry was granted.
    fn insert(&mut self, place: Place, entry: Entry, tell: &mut impl FnMut(Change)) -> bool {
        let among_granted = self.before(place) <= self.granted;
        let reads = among_granted && !entry.write && self.is_read();
        self.entries.insert(place, entry);
        if reads {
            self.granted = self.granted.max(Some(place));
            return true;
        }
        if let Some(granted) = self.granted.filter(|granted| *granted > place) {
            let behind = self.entries.range((Excluded(place), Excluded(granted))).map(|(_, entry)| entry.owner);
            behind.chain([self.entries[&granted].owner]).for_each(|owner| tell(Change::Revoked(owner)));
            self.granted = self.before(place);
        }
        let first = self.before(place).is_none();
        if first {
            self.granted = Some(place);
        }
        first
    }

    fn remove(&mut self, place: Place, tell: &mut impl FnMut(Change)) {
        self.entries.remove(&place).expect("entered before");
        if self.granted == Some(place) {
            self.granted = self.before(place);
        }
        self.grant(tell);
    }

    /// Grants what the front of the queue allows.
    fn grant(&mut self, tell: &mut impl FnMut(Change)) {
        let reads = self.is_read();
        loop {
            let from = self.granted.map_or(Unbounded, Excluded);
            let Some((place, next)) = self.entries.range((from, Unbounded)).next() else { return };
            if self.granted.is_some() && (next.write || !reads) {
                return;
            }
            self.granted = Some(*place);
            tell(Change::Granted(next.owner));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn lock(hash: u64, write: bool) -> Lock {
        Lock { hash, write }
    }

    const fn place(sequence: u64, arrival: u64) -> Place {
        Place { sequence, arrival }
    }

    #[test]
    fn writers_wait_for_each_other_and_readers_share() {
        let mut locks = Locks::default();
        let none = |change: Change| panic!("{change:?}");
        assert_eq!(locks.enter(1, place(1, 0), &[lock(7, false)], none), 0);
        assert!(!locks.is_taken(lock(7, false)) && locks.is_taken(lock(7, true)) && !locks.is_taken(lock(8, true)));
        assert_eq!(locks.enter(2, place(2, 1), &[lock(7, false)], none), 0);
        assert_eq!(locks.enter(3, place(3, 2), &[lock(7, true), lock(8, true)], none), 1);
        assert_eq!(locks.enter(4, place(3, 3), &[lock(7, false)], none), 1, "nobody overtakes a writer that waits");
        locks.leave(place(1, 0), &[lock(7, false)], none);
        let mut told = Vec::new();
        locks.leave(place(2, 1), &[lock(7, false)], |change| told.push(change));
        assert_eq!(told, [Change::Granted(3)]);
        told.clear();
        locks.leave(place(3, 2), &[lock(7, true), lock(8, true)], |change| told.push(change));
        assert_eq!(told, [Change::Granted(4)]);
        locks.leave(place(3, 3), &[lock(7, false)], none);
        assert!(locks.is_empty());
    }

    #[test]
    fn each_waits_for_those_right_before_it() {
        let mut locks = Locks::default();
        for (owner, write) in [(1, true), (2, false), (3, false), (4, true), (5, true)] {
            locks.enter(owner, place(owner as u64, 0), &[lock(7, write)], |_| ());
        }
        let before = |owner: u64, write| locks.right_before(place(owner, 0), lock(7, write));
        assert!(before(1, true).is_empty());
        assert_eq!((before(2, false), before(3, false)), (vec![1], vec![1]));
        assert_eq!((before(4, true), before(5, true)), (vec![3, 2], vec![4]));
    }

    /// A command waited behind a transaction, and the next of its connection behind that command. A transaction with a
    /// smaller number came then: before the first in one queue, it must not be behind the second in another.
    #[test]
    fn an_earlier_transaction_goes_before_all_that_have_not_started() {
        let mut locks = Locks::default();
        let mut told = Vec::new();
        let (one, two, client) = (lock(1, true), lock(2, true), lock(3, true));
        assert_eq!(locks.enter(9, place(9, 0), &[one], |change| told.push(change)), 0);
        assert_eq!(locks.enter(10, place(9, 1), &[one, client], |change| told.push(change)), 1);
        assert_eq!(locks.enter(11, place(9, 2), &[two, client], |change| told.push(change)), 1);
        assert_eq!(locks.enter(5, place(5, 3), &[one, two], |change| told.push(change)), 0);
        assert_eq!(told, [Change::Revoked(9), Change::Revoked(11)]);
        told.clear();
        locks.leave(place(5, 3), &[one, two], |change| told.push(change));
        locks.leave(place(9, 0), &[one], |change| told.push(change));
        locks.leave(place(9, 1), &[one, client], |change| told.push(change));
        let granted = [Change::Granted(9), Change::Granted(11), Change::Granted(10), Change::Granted(11)];
        assert_eq!(told, granted);
    }

    /// Against the rule itself: an entry holds its key where everybody before it is a reader and so is it, or where
    /// nobody is before it.
    #[test]
    fn grants_follow_the_rule_whatever_comes_and_goes() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut locks = Locks::default();
            let mut model: BTreeMap<Place, Entry> = BTreeMap::new();
            let mut holds: BTreeMap<usize, bool> = BTreeMap::new();
            for owner in 0..60 {
                let apply = |change: Change, holds: &mut BTreeMap<usize, bool>| match change {
                    Change::Granted(owner) => assert!(!holds.insert(owner, true).unwrap(), "granted twice"),
                    Change::Revoked(owner) => assert!(holds.insert(owner, false).unwrap(), "revoked, but not granted"),
                };
                let key = lock(7, rng.u8(..3) == 0);
                let highest = model.last_key_value().map_or(0, |(place, _)| place.sequence);
                let sequence = if rng.u8(..4) == 0 { highest } else { rng.u64(..1000) };
                let would_wait = locks.is_taken(key);
                let at = place(sequence, owner as u64);
                let granted = locks.enter(owner, at, &[key], |change| apply(change, &mut holds)) == 0;
                if sequence >= highest {
                    assert_eq!(granted, !would_wait);
                }
                holds.insert(owner, granted);
                model.insert(at, Entry { owner, write: key.write });
                while model.len() > rng.usize(1..12) {
                    let gone = *model.keys().nth(rng.usize(..model.len())).unwrap();
                    let entry = model.remove(&gone).unwrap();
                    holds.remove(&entry.owner);
                    locks.leave(gone, &[lock(7, entry.write)], |change| apply(change, &mut holds));
                }
                for (index, entry) in model.values().enumerate() {
                    let alone = index == 0 || !entry.write && model.values().take(index).all(|before| !before.write);
                    assert_eq!(holds[&entry.owner], alone, "seed {seed}, owner {}, at {index}", entry.owner);
                }
            }
        }
    }

    /// Whoever runs leaves; with any set of locks somebody can always run.
    #[test]
    fn nobody_waits_for_ever() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut locks = Locks::default();
            let mut waiting: BTreeMap<Place, (usize, Vec<Lock>)> = BTreeMap::new();
            let mut missing: BTreeMap<usize, usize> = BTreeMap::new();
            for owner in 0..40 {
                let highest = waiting.keys().map(|place| place.sequence).max().unwrap_or(0);
                let at = place(if rng.bool() { highest } else { rng.u64(..100) }, owner as u64);
                let mut of_owner: Vec<Lock> = (0..rng.usize(1..4)).map(|_| lock(rng.u64(..5), rng.bool())).collect();
                of_owner.sort_by_key(|lock| (lock.hash, !lock.write));
                of_owner.dedup_by_key(|lock| lock.hash);
                let mut changes = Vec::new();
                let lacks = locks.enter(owner, at, &of_owner, |change| changes.push(change));
                missing.insert(owner, lacks);
                count(&mut missing, &changes);
                waiting.insert(at, (owner, of_owner));
            }
            while !waiting.is_empty() {
                let able = waiting.iter().find(|(_, (owner, _))| missing[owner] == 0).map(|(place, _)| *place);
                let able = able.unwrap_or_else(|| panic!("seed {seed}: {} wait for each other", waiting.len()));
                let (_, of_owner) = waiting.remove(&able).unwrap();
                let mut changes = Vec::new();
                locks.leave(able, &of_owner, |change| changes.push(change));
                count(&mut missing, &changes);
            }
            assert!(locks.is_empty());
        }
    }

    fn count(missing: &mut BTreeMap<usize, usize>, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Granted(owner) => *missing.get_mut(owner).unwrap() -= 1,
                Change::Revoked(owner) => *missing.get_mut(owner).unwrap() += 1,
            }
        }
    }
}
