//! Holds of this shard's own: what has begun at once, on keys that nobody had, and lasts.

use super::Heard;
use super::locks::Change;
use super::parked::{BEFORE_ALL, Hold, Parked, What};
use crate::clock::{Now, first_number_at, sequence_ms};
use crate::journal::Shards;
use crate::shard::Shard;
use crate::shard::message::{EVERYTHING, Lock};
use smallvec::SmallVec;

impl Shard {
    /// Holds keys of this shard from now on, which nobody has: what has run on them in this moment goes on later, as one.
    /// `now` is the moment that it looks at.
    pub(in crate::shard) fn hold_here(&self, number: u64, locks: &[Lock], now: Now) {
        let waiting = &mut *self.transactions.waiting.borrow_mut();
        let what = What::Hold(Hold {
            origin: self.id,
            number,
            is_patient: false,
            started: true,
            is_let_go: false,
            steps: Vec::new(),
            heard: Heard::default(),
            writers: Shards::default(),
        });
        let id = waiting.enter(BEFORE_ALL, first_number_at(now.ms), locks.into(), what);
        debug_assert_eq!(waiting.pending[id].missing, 0, "nobody has these keys");
        waiting.holds.insert((self.id, number), id);
        self.transactions.busy.set(true);
        self.keyspace.borrow_mut().seen_from = waiting.seen_from();
    }

    /// A hold of this shard's that has started gets more keys, if nobody has them or waits for them.
    pub(in crate::shard) fn widen(&self, number: u64, locks: &[Lock]) -> bool {
        let waiting = &mut *self.transactions.waiting.borrow_mut();
        let id = waiting.holds[&(self.id, number)];
        let place = waiting.pending[id].place;
        let mut new = locks.iter().filter(|lock| !waiting.locks.has_entered(place, lock.hash));
        if new.any(|lock| waiting.locks.is_taken(*lock)) {
            return false;
        }
        for lock in locks {
            // A command may name a key twice.
            if !waiting.locks.has_entered(place, lock.hash) {
                let missing = waiting.locks.enter(id, place, &[*lock], |_| ());
                debug_assert_eq!(missing, 0, "nobody has these keys");
                waiting.pending[id].locks.push(*lock);
            }
        }
        true
    }

    /// A hold of this shard's that has started gets everything, if it is the only one that has: see
    /// [`Transaction::take_everything`](super::Transaction::take_everything).
    pub(in crate::shard) fn take_everything(&self, number: u64) -> bool {
        let taken = {
            let waiting = &mut *self.transactions.waiting.borrow_mut();
            let id = waiting.holds[&(self.id, number)];
            let goes_on =
                |of: &usize| *of != id && matches!(&waiting.pending[*of].what, What::Hold(hold) if hold.started);
            let taken = !waiting.holds.values().any(goes_on);
            waiting.stopper = Some(id);
            if taken {
                waiting.widen_to_everything(id);
            }
            taken
        };
        if taken {
            self.take_in();
        }
        taken
    }

    /// Runs something for a hold of this shard's that has started.
    pub(in crate::shard) fn in_hold<R>(&self, number: u64, may_be_undone: bool, work: impl FnOnce(Now) -> R) -> R {
        let (id, now) = {
            let waiting = self.transactions.waiting.borrow();
            let id = waiting.holds[&(self.id, number)];
            (id, Now::from_ms(sequence_ms(waiting.pending[id].moment)))
        };
        self.bring_back();
        let mark = self.begin_to_hear();
        let result = work(now);
        let heard = self.end_to_hear(mark);
        self.keep_heard(id, heard, may_be_undone);
        result
    }
}

impl Parked {
    /// A hold that has started, in front of all others, locks everything in place of what it has: those who wait in front of
    /// it for nothing but their turn wait for it from now on.
    fn widen_to_everything(&mut self, id: usize) {
        let place = self.pending[id].place;
        let locks: SmallVec<[Lock; 4]> = SmallVec::from_elem(Lock { hash: EVERYTHING, write: true }, 1);
        let held = std::mem::replace(&mut self.pending[id].locks, locks.clone());
        let mut changes: SmallVec<[Change; 4]> = SmallVec::new();
        self.locks.leave(place, &held, |change| changes.push(change));
        let missing = self.locks.enter(id, place, &locks, |change| changes.push(change));
        debug_assert_eq!(missing, 0, "nobody stands before it");
        self.apply(&changes);
        self.let_holds_begin();
    }

    pub(super) fn let_holds_begin(&mut self) {
        self.stopper = None;
        self.ready.extend(self.stopped.drain(..));
    }
}
