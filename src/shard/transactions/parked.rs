//! Who waits on this shard, or holds keys: with which locks, from when on, and what becomes of it.

use super::locks::{Change, Locks, Place};
use crate::clock::{Now, sequence_ms};
use crate::command::{Handler, OwnedRequest};
use crate::journal::{self, Shards};
use crate::keyspace::{LATEST, Notice};
use crate::shard::message::{At, Batch, EVERYTHING, Lock, Step, Ticket};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Those who are not done.
#[derive(Default)]
pub(super) struct Parked {
    pub(super) locks: Locks,
    pub(super) pending: Slab<Pending>,
    pub(super) batches: Slab<Held>,
    /// Holds by the shard of their coordinator and its number for them.
    pub(super) holds: HashMap<(usize, u64), usize>,
    /// Batches of which some are done and not answered, and others are not done.
    pub(super) partly_done: Vec<usize>,
    /// Holds that may begin but for the `stopper`.
    pub(super) stopped: Vec<usize>,
    /// Parts and commands that may run but for the replies under way from this shard (`under_way.rs`).
    pub(super) held_back: Vec<usize>,
    /// Holds whose coordinators were done with them before they could start, and which stay nevertheless.
    pub(super) let_go: Vec<usize>,
    /// Have all their locks, or had them when they came here.
    pub(super) ready: VecDeque<usize>,
    /// Have all their locks and wait for the watermark, by their numbers.
    pub(super) early: BTreeSet<(u64, usize)>,
    /// All transactions among those who wait.
    pub(super) transactions: BTreeSet<(u64, usize)>,
    /// A hold that waits until no other one goes on: none begins.
    pub(super) stopper: Option<usize>,
    /// The greatest number that was taken in: a command that waits comes after it.
    pub(super) highest: u64,
    pub(super) arrivals: u64,
}

/// A batch some of whose transactions are not done.
pub(super) struct Held {
    pub(super) batch: Box<Batch>,
    pub(super) unfinished: usize,
    /// Those that are done and not answered.
    pub(super) unanswered: SmallVec<[usize; 4]>,
}

pub(super) struct Pending {
    pub(super) place: Place,
    /// The number whose moment it looks at.
    pub(super) moment: u64,
    /// Locks that are not granted.
    pub(super) missing: usize,
    pub(super) locks: SmallVec<[Lock; 4]>,
    pub(super) what: What,
}

pub(super) enum What {
    Parts {
        held: usize,
        intent: usize,
    },
    Hold(Hold),
    /// Nothing while it runs.
    Command(Option<Box<Deferred>>),
}

/// Keys that a coordinator has here, or is going to have.
pub(super) struct Hold {
    pub(super) origin: usize,
    /// The coordinator's for it.
    pub(super) number: u64,
    /// The coordinator looks itself whether a script keeps it waiting.
    pub(super) is_patient: bool,
    pub(super) started: bool,
    /// Its coordinator is done with it.
    pub(super) is_let_go: bool,
    /// What came before it was started.
    pub(super) steps: Vec<Step>,
    /// What others are to hear of its steps so far.
    pub(super) heard: Heard,
    /// The shards that have something to say to the journal.
    pub(super) writers: Shards,
}

/// What others are to hear of what a hold has done, or what may become one: all of it is told together.
#[derive(Default)]
pub struct Heard {
    pub(super) said: Vec<journal::Command>,
    pub(super) notices: Vec<Notice>,
}

impl Heard {
    /// It was undone. What was found dead is told: what was put back has nothing dead in it.
    pub fn undo(&mut self) {
        self.said.retain(|command| command.is_death);
        self.notices.retain(Notice::is_death);
    }
}

/// Where those stand who have their keys already: before everybody.
pub(super) const BEFORE_ALL: u64 = 0;

/// A command of one shard that found one of its keys locked.
pub struct Deferred {
    pub handler: Handler,
    pub request: OwnedRequest,
    pub at: At,
    pub ticket: Ticket,
    /// The shard of the connection.
    pub origin: usize,
    /// [`Batch::owed`] of the batch in which the reply leaves.
    pub owed: isize,
}

impl Pending {
    pub(super) fn hold(&mut self) -> &mut Hold {
        match &mut self.what {
            What::Hold(hold) => hold,
            What::Parts { .. } | What::Command(_) => unreachable!("it is a hold"),
        }
    }
}

impl Parked {
    /// The first number that the watermark has to pass before somebody can go on who waits for nothing else.
    pub(super) fn first_stuck(&self, watermark: u64) -> Option<u64> {
        let early = self.early.first().map(|(sequence, _)| *sequence);
        let let_go = self.let_go.iter().map(|id| self.pending[*id].place.sequence);
        let_go.filter(|sequence| *sequence >= watermark).chain(early).min()
    }

    /// Whether somebody who is before this one has everything here or waits for that, or may still come.
    pub(super) fn may_follow_everything(&self, id: usize, watermark: u64) -> bool {
        let place = self.pending[id].place;
        place.sequence >= watermark || self.locks.is_everything_taken_before(place)
    }

    /// Whether a hold has changed something of which nobody has been told.
    pub(super) fn has_heard(&self) -> bool {
        let heard = |id: &usize| matches!(&self.pending[*id].what, What::Hold(hold) if !hold.heard.said.is_empty());
        self.holds.values().any(heard)
    }

    /// The earliest moment of those who wait.
    pub(super) fn seen_from(&self) -> Now {
        self.transactions.first().map_or(LATEST, |(number, _)| Now::from_ms(sequence_ms(*number)))
    }

    /// The moment for somebody with these locks and this place who runs now: not later than that of a transaction behind it
    /// that wants one of its keys. Else it could find a key dead which that transaction finds alive after it.
    pub(super) fn moment_before(&self, locks: &[Lock], place: Place, now: Now) -> Now {
        let clashes = |lock: &Lock, other: &Lock| lock.hash == other.hash && (lock.write || other.write);
        let is_behind = |pending: &Pending| {
            pending.place > place && locks.iter().any(|lock| pending.locks.iter().any(|other| clashes(lock, other)))
        };
        let earlier = self.transactions.iter().take_while(|(number, _)| sequence_ms(*number) < now.ms);
        let mut behind = earlier.filter(|(_, id)| is_behind(&self.pending[*id]));
        behind.next().map_or(now, |(number, _)| Now::from_ms(sequence_ms(*number)))
    }

    /// Takes places in the queues; duplicates among the locks become one.
    pub(super) fn enter(&mut self, sequence: u64, moment: u64, mut locks: SmallVec<[Lock; 4]>, what: What) -> usize {
        if !locks.iter().any(|lock| lock.hash == EVERYTHING) {
            locks.push(Lock { hash: EVERYTHING, write: false });
        }
        locks.sort_unstable_by_key(|lock| (lock.hash, !lock.write));
        locks.dedup_by_key(|lock| lock.hash);
        let id = self.pending.vacant_key();
        let place = Place { sequence, arrival: self.arrivals };
        self.arrivals += 1;
        let mut changes: SmallVec<[Change; 4]> = SmallVec::new();
        let missing = self.locks.enter(id, place, &locks, |change| changes.push(change));
        if !matches!(what, What::Command(_)) {
            self.transactions.insert((moment, id));
        }
        self.pending.insert(Pending { place, moment, missing, locks, what });
        if missing == 0 {
            self.ready.push_back(id);
        }
        self.apply(&changes);
        id
    }

    pub(super) fn leave(&mut self, id: usize) {
        let pending = self.pending.remove(id);
        let mut changes: SmallVec<[Change; 4]> = SmallVec::new();
        self.locks.leave(pending.place, &pending.locks, |change| changes.push(change));
        self.early.remove(&(pending.place.sequence, id));
        self.transactions.remove(&(pending.moment, id));
        self.apply(&changes);
    }

    pub(super) fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match *change {
                Change::Granted(id) => {
                    self.pending[id].missing -= 1;
                    if self.pending[id].missing == 0 {
                        self.ready.push_back(id);
                    }
                }
                Change::Revoked(id) => {
                    debug_assert!(
                        !matches!(&self.pending[id].what, What::Hold(hold) if hold.started),
                        "nothing comes before what the watermark is past"
                    );
                    self.pending[id].missing += 1;
                    self.early.remove(&(self.pending[id].place.sequence, id));
                }
            }
        }
    }
}
