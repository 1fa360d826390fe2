//! Batches of commands that other shards have sent.

use super::execute::{Laps, Meter};
use super::message::{Batch, PART_BYTES, Part};
use super::pace::Pace;
use super::stalled::Answered;
use super::transactions::Deferred;
use super::under_way::ANSWERED_AT_BYTES;
use super::{Later, Shard, Space};
use crate::command::OwnedRequest;
use crate::command::spec::flag;
use crate::keyspace::{Lookup, PREFETCHED};
use smallvec::SmallVec;

/// Commands of another shard of which the first `done` are answered.
pub(super) struct Unfinished {
    pub batch: Box<Batch>,
    pub done: usize,
}

impl Unfinished {
    /// Moves what is answered to another box.
    fn take_done(&mut self, mut answered: Box<Batch>, meter: &Meter) -> Box<Batch> {
        answered.origin = self.batch.origin;
        answered.target = self.batch.target;
        for part in &mut self.batch.parts[..self.done] {
            if part.deferred {
                // What the reply will count for was taken from what this batch counts for, which is never less than nothing: so the
                // part counts here, too.
                self.batch.owed += PART_BYTES as isize;
                continue;
            }
            let request = meter.is_slow(part.ns).then(|| part.request(&self.batch.buffer, &self.batch.spans));
            answered.answer(*part, request);
        }
        self.batch.parts.drain(..self.done);
        std::mem::swap(&mut answered.out, &mut self.batch.out);
        std::mem::swap(&mut answered.ends, &mut self.batch.ends);
        self.done = 0;
        answered
    }
}

impl Shard {
    /// Runs the commands of a batch in their order. Where they take long, the replies that are there leave, and the rest
    /// waits until others had their turn.
    pub(super) fn run_batch(&self, mut unfinished: Unfinished) {
        if self.must_hold_back() {
            return self.put_back(unfinished);
        }
        let began = self.clock.now();
        self.durable.take_shown();
        let Batch { origin, target, buffer, spans, parts, out, ends, owed, .. } = &mut *unfinished.batch;
        let mut pace = Pace::new(began.us);
        let mut answered = Answered::default();
        *target = self.id as u16;
        let mut laps = Laps::new(unfinished.done);
        while unfinished.done < parts.len() {
            let next = unfinished.done;
            if next.is_multiple_of(PREFETCHED) {
                let lookups = parts[next..].iter().take(PREFETCHED).map(|part| {
                    let request = part.request(buffer, spans);
                    let spec = self.spec(part.at.command);
                    let element = spec.group.sought().element(request);
                    Lookup { db: part.at.db, hash: part.at.hash, element, writes: spec.has(flag::WRITE) }
                });
                let lookups: SmallVec<[Lookup; PREFETCHED]> = lookups.collect();
                self.keyspace.borrow().prefetch(lookups.iter().copied());
            }
            let part = &mut parts[next];
            let request = part.request(buffer, spans);
            part.out.0 = out.len();
            part.ends.0 = ends.len();
            let Part { handler, at, ticket, .. } = *part;
            laps.before(self, parts, next);
            let part = &mut parts[next];
            if self.is_stalled(ticket.client) {
                part.deferred = true;
                self.hold_back(handler, request, at, ticket, *origin);
            } else if self.must_wait(&at, request, ticket.client) {
                part.deferred = true;
                let bytes = request.bytes() as isize;
                *owed -= bytes + PART_BYTES as isize;
                let request = OwnedRequest::of(request);
                self.defer_command(Deferred { handler, request, at, ticket, origin: *origin, owed: bytes });
                self.stall(ticket.client);
            } else if at.is_script {
                let bytes = request.bytes() as isize;
                let now = self.clock.now();
                if !self.front().script(request, at, now, out, Later { ticket, origin: *origin, owed: bytes }) {
                    part.deferred = true;
                    *owed -= bytes + PART_BYTES as isize;
                    self.stall(ticket.client);
                } else if answered.is_much(ticket.client, out.len() - part.out.0) {
                    part.stalls = true;
                    self.stall(ticket.client);
                }
                self.serve_waiters();
            } else if self.space_for(&at, request) == Space::Soon {
                part.deferred = true;
                self.wait_for_room(handler, request, at, ticket, *origin);
            } else {
                self.execute_alone(handler, request, at, began, out, ends);
                self.serve_waiters();
                if answered.is_much(ticket.client, out.len() - part.out.0) {
                    part.stalls = true;
                    self.stall(ticket.client);
                }
            }
            part.out.1 = out.len();
            part.ends.1 = ends.len();
            laps.after(self, parts, next);
            unfinished.done += 1;
            if (pace.is_long() || out.len() >= ANSWERED_AT_BYTES) && unfinished.done < parts.len() {
                laps.end(self, &mut parts[..=next]);
                let mut answered = unfinished.take_done(self.outbox.empty_batch(), &self.meter);
                answered.shows = self.durable.take_shown();
                self.tell_events();
                self.post_replies(answered);
                return self.put_back(unfinished);
            }
        }
        laps.end(self, parts);
        unfinished.batch.shows = self.durable.take_shown();
        self.tell_events();
        self.post_replies(unfinished.batch);
    }

    /// A batch goes on before those that have come behind it.
    fn put_back(&self, unfinished: Unfinished) {
        self.unfinished.borrow_mut()[unfinished.batch.origin].push_front(unfinished);
        self.unfinished_batches.set(self.unfinished_batches.get() + 1);
    }

    /// Each other shard's oldest unfinished batch goes on; whether there was one.
    pub(super) fn go_on_with_batches(&self) -> bool {
        if self.unfinished_batches.get() == 0 || self.is_held_back() {
            return false;
        }
        for origin in 0..self.count {
            let Some(batch) = self.unfinished.borrow_mut()[origin].pop_front() else { continue };
            self.unfinished_batches.set(self.unfinished_batches.get() - 1);
            self.begin_turn();
            self.run_batch(batch);
            self.after_commands();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Table, rows};
    use crate::shard::message::{At, Ticket};

    /// Where the replies to parts that had to wait came before the rest of their batch, that was counted as less than nothing, and
    /// the shard that had sent the batch ended the process.
    #[test]
    fn what_is_not_answered_counts_for_something() {
        let table = Table::new(rows().copied());
        let (command, _) = table.by_full_name(b"get").expect("declared");
        let at = At::unseen(command.id, 0, crate::resp::Proto::Resp2);
        let mut batch = Box::<Batch>::default();
        for reply in 0..6 {
            batch.buffer.push(b'x');
            batch.parts.push(Part::new(|_, _| Ok(()), at, Ticket { client: reply, reply, part: 0 }));
        }
        let (all, waiting) = (batch.unanswered_bytes(), 1 + PART_BYTES as isize);
        for part in &mut batch.parts[..4] {
            part.deferred = true;
            batch.owed -= waiting;
        }
        let mut unfinished = Unfinished { batch, done: 5 };
        let answered = unfinished.take_done(Box::default(), &Meter::default());
        let rest = unfinished.batch.unanswered_bytes();
        assert_eq!(answered.unanswered_bytes() + rest + 4 * waiting, all);
        assert!(answered.parts.len() == 1 && rest >= PART_BYTES as isize, "{rest}");
    }
}
