//! Connections of other shards that have stalled here: commands of theirs have come, and none of them may run now.
//!
//! A command runs here before its connection's shard knows how large the reply is. Where a connection was answered with
//! much, it stalls until its shard says that there is room for more ([`Message::GoOn`]), which it does when enough has
//! left. It stalls, too, while one of its commands waits for a key that a transaction has locked, so that its commands
//! keep their order; and until there is room for a command, which others are about to make. The queue is the
//! connection's own, and whoever stands in it has locked nothing: a reader that never reads holds nobody up.
//!
//! [`Message::GoOn`]: super::Message::GoOn

use super::message::{At, Batch, Message, PART_BYTES, Part, Ticket};
use super::pace::Pace;
use super::transactions::{Deferred, HELD_FOR};
use super::{Later, Shard, Space};
use crate::clock::Now;
use crate::command::{Handler, OwnedRequest};
use crate::net::{Notify, sleep, step_back};
use crate::resp::{Error, Reply, Request};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// Bytes of replies to one connection, one after the other, with which it stalls.
const MUCH_BYTES: usize = 64 * 1024;

#[derive(Default)]
pub(super) struct Stalled {
    /// The commands that wait, by connection.
    queues: RefCell<HashMap<u64, VecDeque<Deferred>, ahash::RandomState>>,
    any: Cell<bool>,
    /// Connections that go on when there is room.
    for_room: RefCell<Vec<u64>>,
    for_room_alarm: Notify,
}

impl Stalled {
    fn insert(&self, client: u64, queue: VecDeque<Deferred>) {
        self.queues.borrow_mut().insert(client, queue);
        self.any.set(true);
    }

    fn await_room(&self, client: u64, queue: VecDeque<Deferred>) {
        self.insert(client, queue);
        self.for_room.borrow_mut().push(client);
        self.for_room_alarm.notify();
    }

    fn remove(&self, client: u64) -> VecDeque<Deferred> {
        let mut queues = self.queues.borrow_mut();
        let queue = queues.remove(&client).unwrap_or_default();
        self.any.set(!queues.is_empty());
        queue
    }
}

/// Counts what one connection after the other is answered.
#[derive(Default)]
pub(super) struct Answered {
    client: u64,
    bytes: usize,
}

impl Answered {
    /// Whether the connection was answered with much, this reply included.
    #[inline]
    pub fn is_much(&mut self, client: u64, reply_bytes: usize) -> bool {
        if self.client != client {
            *self = Answered { client, bytes: 0 };
        }
        self.bytes += reply_bytes;
        self.bytes > MUCH_BYTES
    }
}

impl Shard {
    #[inline]
    pub(super) fn is_stalled(&self, client: u64) -> bool {
        self.stalled.any.get() && self.stalled.queues.borrow().contains_key(&client)
    }

    /// Returns when nothing of what a connection of another shard has sent here waits, be it behind others of that shard.
    pub async fn let_run(&self, origin: usize, client: u64) {
        loop {
            if self.is_stalled(client) {
                sleep(HELD_FOR).await;
            } else if !self.unfinished.borrow()[origin].is_empty() {
                step_back().await;
            } else {
                return;
            }
        }
    }

    pub(super) fn stall(&self, client: u64) {
        self.stalled.insert(client, VecDeque::new());
    }

    /// Puts a command behind those of its connection that wait. Its batch is answered without it, so it counts against
    /// its connection only and not against all that its shard has sent.
    pub(super) fn hold_back(&self, handler: Handler, request: Request, at: At, ticket: Ticket, origin: usize) {
        let (request, owed) = (OwnedRequest::of(request), -(PART_BYTES as isize));
        let deferred = Deferred { handler, request, at, ticket, origin, owed };
        self.stalled.queues.borrow_mut().entry(ticket.client).or_default().push_back(deferred);
    }

    /// A command for which there is no room yet waits, and so does what its connection sends behind it.
    #[cold]
    pub(super) fn wait_for_room(&self, handler: Handler, request: Request, at: At, ticket: Ticket, origin: usize) {
        self.stalled.await_room(ticket.client, VecDeque::new());
        self.hold_back(handler, request, at, ticket, origin);
    }

    /// Lets a connection of this shard go on that has stalled on another, or drops its commands there.
    pub fn let_go_on(&self, target: u16, client: u64, ended: bool) {
        self.post(usize::from(target), Message::GoOn { client, ended });
    }

    pub(super) fn drop_stalled(&self, client: u64) {
        self.stalled.remove(client);
    }

    /// Runs the commands of a connection that has stalled, until it does so again.
    pub(super) fn go_on_with_stalled(&self, client: u64) {
        if self.is_stalled(client) && self.must_hold_back_client(client) {
            return;
        }
        let mut queue = self.stalled.remove(client);
        if queue.is_empty() {
            return;
        }
        let mut batch = self.outbox.empty_batch();
        let (mut answered, mut pace) = (Answered::default(), Pace::new(self.clock.now().us));
        while let Some(deferred) = queue.pop_front() {
            if self.must_wait(&deferred.at, deferred.request.as_request(), client) {
                self.defer_command(deferred);
                self.stalled.insert(client, queue);
                break;
            }
            if self.space_for(&deferred.at, deferred.request.as_request()) == Space::Soon {
                queue.push_front(deferred);
                self.stalled.await_room(client, queue);
                break;
            }
            let now = self.clock.now();
            let Some(reply_bytes) = self.run_deferred(&deferred, now, &mut batch) else {
                self.stalled.insert(client, queue);
                break;
            };
            self.serve_waiters();
            let is_much = answered.is_much(client, reply_bytes);
            if is_much || pace.is_long() {
                batch.parts.last_mut().expect("ran just now").stalls = true;
                self.stalled.insert(client, queue);
                break;
            }
        }
        if !batch.parts.is_empty() {
            self.send_answers(batch);
        }
    }

    /// Runs a command that had to wait; its reply leaves with `batch`. Returns how long the reply is, or nothing where it is
    /// a script that lasts.
    pub(super) fn run_deferred(&self, deferred: &Deferred, now: Now, batch: &mut Batch) -> Option<usize> {
        let Deferred { handler, request, at, ticket, origin, owed } = deferred;
        batch.origin = *origin;
        batch.target = self.id as u16;
        batch.owed += owed;
        let mut part = Part::new(*handler, *at, *ticket);
        part.out.0 = batch.out.len();
        part.ends.0 = batch.ends.len();
        if at.is_script {
            let later = Later { ticket: *ticket, origin: *origin, owed: *owed };
            if !self.front().script(request.as_request(), *at, now, &mut batch.out, later) {
                batch.owed -= owed;
                return None;
            }
        } else {
            let run = || self.execute_alone(*handler, request.as_request(), *at, now, &mut batch.out, &mut batch.ends);
            ((), part.ns) = self.measured(run);
        }
        part.out.1 = batch.out.len();
        part.ends.1 = batch.ends.len();
        let reply_bytes = part.out.1 - part.out.0;
        batch.answer(part, self.meter.is_slow(part.ns).then(|| request.as_request()));
        Some(reply_bytes)
    }

    /// Sends the reply of a script that has lasted. Its connection has stalled here until now.
    pub fn answer_script(&self, at: At, later: Later, reply: &[u8], ns: u64) {
        self.answer_alone(at, later, ns, |out| out.extend_from_slice(reply));
        self.go_on_with_stalled(later.ticket.client);
        self.after_commands();
    }

    /// Answers a command that is not going to run.
    pub(super) fn answer_refused(&self, deferred: &Deferred, error: Error) {
        let &Deferred { at, ticket, origin, owed, .. } = deferred;
        self.meter.rejected(Some(at.command), &error.to_bytes());
        self.answer_alone(at, Later { ticket, origin, owed }, 0, |out| Reply::new(out, at.proto).error(error));
        if origin != self.id {
            self.go_on_with_stalled(ticket.client);
        }
    }

    /// Sends one reply that does not leave with those of its batch.
    fn answer_alone(&self, at: At, later: Later, ns: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let mut batch = self.outbox.empty_batch();
        batch.origin = later.origin;
        batch.target = self.id as u16;
        batch.owed += later.owed;
        write(&mut batch.out);
        let mut part = Part::new(|_, _| Ok(()), at, later.ticket);
        part.out = (0, batch.out.len());
        part.ns = ns;
        batch.answer(part, None);
        self.send_answers(batch);
    }

    /// Runs a command whose locks were granted; whether its connection may go on.
    pub(super) fn run_granted(&self, deferred: &Deferred, now: Now) -> bool {
        let mut batch = self.outbox.empty_batch();
        let Some(reply_bytes) = self.run_deferred(deferred, now, &mut batch) else { return false };
        // This shard's own connections have one such command open, and see for themselves.
        let stalls = deferred.origin != self.id && Answered::default().is_much(deferred.ticket.client, reply_bytes);
        batch.parts[0].stalls = stalls;
        self.send_answers(batch);
        deferred.origin != self.id && !stalls
    }
}

/// The task in which connections go on that have waited for room.
pub(super) async fn go_on_with_room(shard: Rc<Shard>) {
    loop {
        shard.stalled.for_room_alarm.wait().await;
        for client in shard.stalled.for_room.take() {
            shard.room_made().await;
            shard.catch_up();
            shard.go_on_with_stalled(client);
            shard.after_commands();
            step_back().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_is_counted_for_one_connection_after_the_other() {
        let mut answered = Answered::default();
        assert!(!answered.is_much(1, MUCH_BYTES));
        assert!(answered.is_much(1, 1));
        assert!(!answered.is_much(2, MUCH_BYTES));
        assert!(!answered.is_much(1, 1));
        assert!(answered.is_much(3, MUCH_BYTES + 1));
    }
}
