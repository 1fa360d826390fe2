//! Who waits for which key on this shard: a queue for each locked key, in the order of the sequence. The table is empty
//! nearly always: what can run at once never enters it.
//!
//! ```text
//!  hash of a key   write #5 | read #7  read #8 | write #9 | command
//!                  granted
//! ```
//!
//! Keys are known by their hash alone, in all databases together: keys that share one wait for each other, which is
//! rare and harmless. Everybody is also in the queue of [`EVERYTHING`]; who locks the whole shard is there as a writer.
//!
//! After VLL (Ren, Thomson, Abadi: Lightweight Locking for Main Memory Database Systems, VLDB 2012), with queues in
//! place of its counters, so that those who wait know each other's order.

use std::collections::{HashMap, VecDeque};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    pub hash: u64,
    pub write: bool,
}

/// The lock of the whole shard. (A key with this hash waits for more than it must.)
pub const EVERYTHING: u64 = 0;

/// The sequence of a command, which comes after whatever is there.
pub const LAST: u64 = u64::MAX;

#[derive(Default)]
pub struct Locks {
    queues: HashMap<u64, Queue, ahash::RandomState>,
    /// How many lock the whole shard.
    of_everything: usize,
}

/// The first `granted` entries hold the key: one writer, or readers.
#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    granted: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    owner: usize,
    sequence: u64,
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

    /// Takes a place in the queue of each lock, which are all different. The lock of the shard is not taken here.
    /// Returns how many of the locks were not granted.
    pub fn enter(&mut self, owner: usize, sequence: u64, locks: &[Lock], mut tell: impl FnMut(Change)) -> usize {
        let mut missing = 0;
        for lock in locks {
            self.of_everything += usize::from(lock.hash == EVERYTHING && lock.write);
            let queue = self.queues.entry(lock.hash).or_default();
            let granted = queue.insert(Entry { owner, sequence, write: lock.write }, &mut tell);
            missing += usize::from(!granted);
        }
        missing
    }

    /// Leaves the queues again, granted or not.
    pub fn leave(&mut self, owner: usize, locks: &[Lock], mut tell: impl FnMut(Change)) {
        for lock in locks {
            self.of_everything -= usize::from(lock.hash == EVERYTHING && lock.write);
            let queue = self.queues.get_mut(&lock.hash).expect("entered before");
            queue.remove(owner, &mut tell);
            if queue.entries.is_empty() {
                self.queues.remove(&lock.hash);
            }
        }
    }
}

impl Queue {
    /// Whether one more at the end would be granted at once.
    fn takes(&self, write: bool) -> bool {
        !write && self.granted == self.entries.len() && !self.entries[0].write
    }

    /// Whether the entry was granted.
    fn insert(&mut self, entry: Entry, tell: &mut impl FnMut(Change)) -> bool {
        // Commands (LAST) keep their places: they were there before whatever comes later, whatever its number is.
        let later = |other: &Entry| other.sequence != LAST && other.sequence > entry.sequence;
        let at = self.entries.iter().position(later).unwrap_or(self.entries.len());
        let among_readers = at <= self.granted && self.entries.front().is_none_or(|front| !front.write);
        self.entries.insert(at, entry);
        if among_readers && !entry.write {
            self.granted += 1;
            return true;
        }
        (at..self.granted).for_each(|index| tell(Change::Revoked(self.entries[index + 1].owner)));
        self.granted = if at == 0 { 1 } else { self.granted.min(at) };
        at == 0
    }

    fn remove(&mut self, owner: usize, tell: &mut impl FnMut(Change)) {
        let at = self.entries.iter().position(|entry| entry.owner == owner).expect("entered before");
        self.entries.remove(at);
        if at < self.granted {
            self.granted -= 1;
        }
        self.grant(tell);
    }

    /// Grants what the front of the queue allows.
    fn grant(&mut self, tell: &mut impl FnMut(Change)) {
        while let Some(next) = self.entries.get(self.granted) {
            let fits = self.granted == 0 || !next.write && !self.entries[0].write;
            if !fits {
                return;
            }
            self.granted += 1;
            tell(Change::Granted(next.owner));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const fn lock(hash: u64, write: bool) -> Lock {
        Lock { hash, write }
    }

    #[test]
    fn writers_wait_for_each_other_and_readers_share() {
        let mut locks = Locks::default();
        let none = |change: Change| panic!("{change:?}");
        assert_eq!(locks.enter(1, 1, &[lock(7, false)], none), 0);
        assert!(!locks.is_taken(lock(7, false)) && locks.is_taken(lock(7, true)) && !locks.is_taken(lock(8, true)));
        assert_eq!(locks.enter(2, 2, &[lock(7, false)], none), 0);
        assert_eq!(locks.enter(3, 3, &[lock(7, true), lock(8, true)], none), 1);
        assert_eq!(locks.enter(4, LAST, &[lock(7, false)], none), 1, "nobody overtakes a writer that waits");
        locks.leave(1, &[lock(7, false)], none);
        let mut told = Vec::new();
        locks.leave(2, &[lock(7, false)], |change| told.push(change));
        assert_eq!(told, [Change::Granted(3)]);
        told.clear();
        locks.leave(3, &[lock(7, true), lock(8, true)], |change| told.push(change));
        assert_eq!(told, [Change::Granted(4)]);
        locks.leave(4, &[lock(7, false)], none);
        assert!(locks.is_empty());
    }

    #[test]
    fn an_earlier_transaction_goes_before_later_ones_that_have_not_started() {
        let mut locks = Locks::default();
        let mut told = Vec::new();
        assert_eq!(locks.enter(9, 9, &[lock(7, true)], |change| told.push(change)), 0);
        assert_eq!(locks.enter(0, LAST, &[lock(7, true)], |change| told.push(change)), 1);
        assert_eq!(locks.enter(5, 5, &[lock(7, true)], |change| told.push(change)), 0);
        assert_eq!(told, [Change::Revoked(9)]);
        told.clear();
        assert_eq!(locks.enter(7, 7, &[lock(7, true)], |change| told.push(change)), 1);
        for (owner, next) in [(5, 7), (7, 9), (9, 0)] {
            locks.leave(owner, &[lock(7, true)], |change| told.push(change));
            assert_eq!(told, [Change::Granted(next)]);
            told.clear();
        }
    }

    /// Against the rule itself: an entry holds its key where everybody before it is a reader and so is it, or where
    /// nobody is before it.
    #[test]
    fn grants_follow_the_rule_whatever_comes_and_goes() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut locks = Locks::default();
            let mut model: Vec<Entry> = Vec::new();
            let mut holds: BTreeMap<usize, bool> = BTreeMap::new();
            for owner in 0..60 {
                let apply = |change: Change, holds: &mut BTreeMap<usize, bool>| match change {
                    Change::Granted(owner) => assert!(!holds.insert(owner, true).unwrap(), "granted twice"),
                    Change::Revoked(owner) => assert!(holds.insert(owner, false).unwrap(), "revoked, but not granted"),
                };
                let key = lock(7, rng.u8(..3) == 0);
                let sequence = if rng.u8(..4) == 0 { LAST } else { rng.u64(..1000) };
                let would_wait = locks.is_taken(key);
                let granted = locks.enter(owner, sequence, &[key], |change| apply(change, &mut holds)) == 0;
                if sequence == LAST {
                    assert_eq!(granted, !would_wait);
                }
                holds.insert(owner, granted);
                let later = |other: &Entry| other.sequence != LAST && other.sequence > sequence;
                let at = model.iter().position(later).unwrap_or(model.len());
                model.insert(at, Entry { owner, sequence, write: key.write });
                while model.len() > rng.usize(1..12) {
                    let gone = model.remove(rng.usize(..model.len()));
                    holds.remove(&gone.owner);
                    let left = [lock(7, gone.write)];
                    locks.leave(gone.owner, &left, |change| apply(change, &mut holds));
                }
                for (index, entry) in model.iter().enumerate() {
                    let alone = index == 0 || !entry.write && model[..index].iter().all(|before| !before.write);
                    assert_eq!(holds[&entry.owner], alone, "seed {seed}, owner {owner}, at {index}");
                }
            }
        }
    }
}
