//! What coordinators hold here: steps that run while they do, what is told of all of it at its end.

use super::parked::{Parked, Pending, What};
use super::{Deferred, Heard};
use crate::clock::{Now, sequence_ms};
use crate::journal;
use crate::resp::Error;
use crate::shard::Shard;
use crate::shard::message::{EVERYTHING, Lock, Message, Step};
use std::rc::Rc;

impl Shard {
    /// A step of a coordinator: it runs when its transaction holds its keys here.
    pub(in crate::shard) fn step(self: &Rc<Shard>, origin: usize, number: u64, step: Step) {
        let id = {
            let waiting = &mut *self.transactions.waiting.borrow_mut();
            let id = waiting.holds[&(origin, number)];
            let hold = waiting.pending[id].hold();
            hold.steps.push(step);
            hold.started.then_some(id)
        };
        if let Some(id) = id {
            self.take_steps(id);
        }
    }

    /// Hands the steps that wait to a hold that has started.
    pub(super) fn take_steps(&self, id: usize) {
        let (origin, now, steps) = {
            let waiting = &mut *self.transactions.waiting.borrow_mut();
            let pending = &mut waiting.pending[id];
            let now = Now::from_ms(sequence_ms(pending.moment));
            self.clock.pass(now);
            let hold = pending.hold();
            (hold.origin, now, std::mem::take(&mut hold.steps))
        };
        self.bring_back();
        let mark = self.begin_to_hear();
        let mut may_be_undone = false;
        for step in steps {
            let Step { call, work, .. } = step;
            may_be_undone |= step.may_be_undone;
            let result = work(self, now);
            if origin == self.id {
                self.answered(call, result);
            } else {
                self.post(origin, Message::Answer { call, result });
            }
        }
        let heard = self.end_to_hear(mark);
        self.keep_heard(id, heard, may_be_undone);
    }

    /// What runs from now on is told later.
    pub(in crate::shard) fn begin_to_hear(&self) -> usize {
        self.begin_unit();
        self.keyspace.borrow().effects.mark()
    }

    /// What has run since then.
    pub(in crate::shard) fn end_to_hear(&self, mark: usize) -> Heard {
        let said = self.end_unit();
        let notices = self.keyspace.borrow_mut().effects.take_from(mark);
        Heard { said, notices }
    }

    /// It is told, as a part of this transaction if it is one.
    pub(in crate::shard) fn tell_heard(&self, part_of: Option<journal::Transaction>, Heard { said, notices }: Heard) {
        self.record(part_of, said);
        self.keyspace.borrow_mut().effects.tell_kept(notices);
    }

    /// The journal is told of all that a hold does at once, when it is done. Subscribers hear of each step as soon as it
    /// is done, as they do of one command's effects before its reply, unless it may be undone, or the disk has to have it
    /// before.
    pub(super) fn keep_heard(&self, id: usize, Heard { said, mut notices }: Heard, may_be_undone: bool) {
        if !may_be_undone && !notices.is_empty() && !self.durable.is_kept() {
            self.keyspace.borrow_mut().effects.tell_kept(std::mem::take(&mut notices));
        }
        if !said.is_empty() || !notices.is_empty() {
            let waiting = &mut *self.transactions.waiting.borrow_mut();
            let hold = waiting.pending[id].hold();
            hold.heard.said.extend(said);
            hold.heard.notices.extend(notices);
        }
    }

    /// What a hold has done before it became one.
    pub(in crate::shard) fn heard_in_hold(&self, hold: (usize, u64), heard: Heard, may_be_undone: bool) {
        let id = self.transactions.waiting.borrow().holds[&hold];
        self.keep_heard(id, heard, may_be_undone);
    }

    /// What a hold has done was undone: nobody hears of it. (What it has found dead is.)
    pub fn forget_heard(&self, origin: usize, number: u64) {
        let waiting = &mut *self.transactions.waiting.borrow_mut();
        let id = waiting.holds[&(origin, number)];
        let hold = waiting.pending[id].hold();
        hold.heard.undo();
    }

    /// Those who wait for keys of a hold, with commands of one shard, are answered this error instead.
    pub fn refuse_waiting(&self, origin: usize, number: u64, error: &'static str) {
        let refused: Vec<Box<Deferred>> = {
            let waiting = &mut *self.transactions.waiting.borrow_mut();
            let id = waiting.holds[&(origin, number)];
            let place = waiting.pending[id].place;
            let is_held = |lock: &Lock| waiting.locks.is_in_the_way(place, *lock);
            let waits = |pending: &Pending| {
                matches!(pending.what, What::Command(Some(_)))
                    && pending.missing > 0
                    && pending.locks.iter().any(is_held)
            };
            let ids: Vec<usize> =
                waiting.pending.iter().filter(|(_, pending)| waits(pending)).map(|(id, _)| id).collect();
            let take = |id| {
                let What::Command(deferred) = &mut waiting.pending[id].what else { return None };
                let deferred = deferred.take();
                waiting.leave(id);
                deferred
            };
            ids.into_iter().filter_map(take).collect()
        };
        for deferred in refused {
            self.answer_refused(&deferred, Error::text(error));
        }
        // Whoever waited for one of them, of the same connection, may have its turn.
        self.take_in();
    }

    /// Whether parts of transactions that change something on several shards wait for what a hold has. The other parts may have
    /// run: then the journal has nothing of what follows them on their shards before these have run, too. Or whether coordinators
    /// do that did not know of the hold.
    ///
    /// A part may wait behind somebody who waits for the hold, too: so does, for all that is known, each that was here when somebody
    /// looked before (`before`: how many had come by then). Whether there is one, and how many have come by now.
    pub fn keeps_others_waiting(&self, origin: usize, number: u64, before: u64) -> (bool, u64) {
        let waiting = &*self.transactions.waiting.borrow();
        let place = waiting.pending[waiting.holds[&(origin, number)]].place;
        let is_held = |lock: &Lock| waiting.locks.is_in_the_way(place, *lock);
        let any = waiting.pending.iter().any(|(_, pending)| {
            let waits_for_it = || pending.locks.iter().any(is_held);
            let is_kept = match &pending.what {
                What::Parts { held, intent } => {
                    let writers = waiting.batches[*held].batch.transactions[*intent].writers;
                    let is_apart = writers.len() > 1 && writers.contains(self.id);
                    is_apart && (pending.place.arrival < before || waits_for_it())
                }
                What::Hold(hold) => !hold.is_patient && !hold.is_let_go && waits_for_it(),
                What::Command(_) => false,
            };
            pending.missing > 0 && is_kept
        });
        (any, waiting.arrivals)
    }

    /// A coordinator lets go of its keys here.
    pub(in crate::shard) fn release(&self, origin: usize, number: u64) {
        self.bring_back();
        {
            let waiting = &mut *self.transactions.waiting.borrow_mut();
            let id = waiting.holds[&(origin, number)];
            let hold = waiting.pending[id].hold();
            if hold.started {
                self.end_hold(waiting, id);
            } else {
                hold.is_let_go = true;
                waiting.let_go.push(id);
            }
        }
        // Before anybody else has the keys.
        self.serve_waiters();
        // Who may go on now goes by a watermark that is not newer than what was taken in.
        self.take_in();
    }

    /// Ends a hold that has just started, if its coordinator was done with it before; whether it was.
    pub(super) fn end_if_let_go(&self, id: usize) -> bool {
        let is_let_go = {
            let waiting = &mut *self.transactions.waiting.borrow_mut();
            let is_let_go = waiting.pending[id].hold().is_let_go;
            if is_let_go {
                self.end_hold(waiting, id);
            }
            is_let_go
        };
        if is_let_go {
            self.serve_waiters();
        }
        is_let_go
    }

    /// Ends holds that have not started and whose coordinators are done: they need not wait for their keys.
    ///
    /// Whoever has everything may turn the journal on, or off, shard by shard. What each shard says of a hold stands before
    /// that on all shards, or behind it on all: else parts of the hold would be missing in the journal. So a hold stays
    /// where somebody before it has everything, or may still come.
    pub(super) fn end_let_go(&self, watermark: u64) {
        let mut any = false;
        {
            let waiting = &mut *self.transactions.waiting.borrow_mut();
            for id in waiting.let_go.clone() {
                if !waiting.may_follow_everything(id, watermark) {
                    self.end_hold(waiting, id);
                    any = true;
                }
            }
        }
        if any {
            self.serve_waiters();
        }
    }

    fn end_hold(&self, waiting: &mut Parked, id: usize) {
        if waiting.stopper == Some(id) {
            waiting.let_holds_begin();
        }
        let pending = &mut waiting.pending[id];
        let number = pending.place.sequence;
        let hold = pending.hold();
        let of_coordinator = (hold.origin, hold.number);
        let part_of = journal::Transaction { number, shards: hold.writers };
        let heard = std::mem::take(&mut hold.heard);
        if self.durable.is_kept() && !heard.said.is_empty() {
            for lock in pending.locks.iter().filter(|lock| lock.write) {
                self.durable.told_late((lock.hash != EVERYTHING).then_some(lock.hash));
            }
        }
        self.tell_heard(Some(part_of), heard);
        self.serve_released(&waiting.pending[id].locks);
        waiting.holds.remove(&of_coordinator).expect("it is there until it ends");
        waiting.let_go.retain(|of| *of != id);
        waiting.leave(id);
    }
}
