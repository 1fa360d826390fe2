//! Messages on their way out.
//!
//! Receivers never await: what a full link does not take waits in a queue. When that queue grows long, connections
//! of this shard are not read until it has shrunk.

use super::message::{Batch, Message, PART_BYTES, Part};
use super::pool::{Limits, Pool};
use crate::net::{Notify, Transport};
use crate::resp::Request;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

/// Messages that wait for a full link before connections are not read any more ...
const CONGESTED_AT: usize = 64;
/// ... or bytes of commands that were written for others, or wait for their turn here, and were not answered.
const UNANSWERED_BYTES: usize = 4 << 20;
/// Boxes kept for reuse.
const POOLED: Limits = Limits { count: 64, item_bytes: 512 * 1024, bytes: 2 << 20 };

pub struct Outbox {
    id: usize,
    batches: RefCell<Vec<Option<Box<Batch>>>>,
    /// Boxes that travel between shards, kept as such.
    pub pool: Pool<Box<Batch>>,
    pub queues: Vec<RefCell<VecDeque<Message>>>,
    pub waiting: Cell<usize>,
    /// Bytes of batches that are on their way.
    unanswered_bytes: Cell<usize>,
    room: Notify,
    /// What carries the mail.
    transport: OnceCell<Transport>,
}

impl Outbox {
    pub fn new(id: usize, shards: usize) -> Outbox {
        Outbox {
            id,
            batches: RefCell::new((0..shards).map(|_| None).collect()),
            pool: Pool::new(POOLED),
            queues: (0..shards).map(|_| RefCell::default()).collect(),
            waiting: Cell::new(0),
            unanswered_bytes: Cell::new(0),
            room: Notify::default(),
            transport: OnceCell::new(),
        }
    }

    /// From now on this carries the mail.
    pub fn set_transport(&self, transport: Transport) {
        assert!(self.transport.set(transport).is_ok(), "a shard has one transport");
    }

    pub fn set_spin(&self, spin: Duration) {
        if let Some(transport) = self.transport.get() {
            transport.set_spin(spin);
        }
    }

    pub fn kick(&self) {
        if let Some(transport) = self.transport.get() {
            transport.kick();
        }
    }

    pub fn add(&self, target: usize, request: Request, mut part: Part) {
        self.count_unanswered(PART_BYTES + request.bytes());
        let mut batches = self.batches.borrow_mut();
        let batch = batches[target].get_or_insert_with(|| {
            self.kick();
            self.empty_batch()
        });
        part.spans.0 = batch.spans.len() as u32;
        for arg in request.from(0) {
            let start = batch.buffer.len() as u32;
            batch.buffer.extend_from_slice(arg);
            batch.spans.push((start, batch.buffer.len() as u32));
        }
        part.spans.1 = batch.spans.len() as u32;
        batch.parts.push(part);
        // Spans are 32 bits: a batch that has grown large leaves at once.
        if batch.buffer.len() > u32::MAX as usize / 4 {
            let batch = batches[target].take();
            drop(batches);
            self.send_batch(target, batch);
        }
    }

    /// An empty box, from the pool where there is one.
    pub fn empty_batch(&self) -> Box<Batch> {
        self.pool.take().unwrap_or_default()
    }

    /// So many bytes of commands are written for others, or wait for their turn here.
    pub fn count_unanswered(&self, bytes: usize) {
        self.unanswered_bytes.set(self.unanswered_bytes.get() + bytes);
    }

    fn send_batch(&self, target: usize, batch: Option<Box<Batch>>) {
        if let Some(mut batch) = batch {
            batch.origin = self.id;
            self.post(target, Message::Batch(batch));
        }
    }

    pub fn send_batches(&self) {
        for target in 0..self.queues.len() {
            let batch = self.batches.borrow_mut()[target].take();
            self.send_batch(target, batch);
        }
    }

    /// Messages to one shard arrive in the order in which they are posted, batches of the turn included.
    pub fn post(&self, target: usize, message: Message) {
        debug_assert_ne!(target, self.id);
        if !matches!(message, Message::Batch(_) | Message::Replies(_)) {
            let batch = self.batches.borrow_mut()[target].take();
            self.send_batch(target, batch);
        }
        self.queues[target].borrow_mut().push_back(message);
        self.waiting.set(self.waiting.get() + 1);
        self.kick();
    }

    /// All replies that are about to leave wait for this push.
    #[cold]
    pub fn replies_show(&self, push: u64) {
        for queue in &self.queues {
            for message in queue.borrow_mut().iter_mut() {
                if let Message::Replies(batch) = message {
                    batch.shows = batch.shows.max(push);
                }
            }
        }
    }

    /// A batch of this shard's has come back with its replies.
    pub fn recycle(&self, mut batch: Box<Batch>) {
        let answered = batch.unanswered_bytes();
        self.relieve(|| self.unanswered_bytes.set(self.unanswered_bytes.get().strict_sub_signed(answered)));
        batch.clear();
        self.pool.put(batch);
    }

    /// Whether anything waits to be sent, a batch that is being filled included.
    pub fn has_outgoing(&self) -> bool {
        self.waiting.get() > 0 || self.batches.borrow().iter().any(Option::is_some)
    }

    pub fn is_congested(&self) -> bool {
        self.waiting.get() >= CONGESTED_AT || self.unanswered_bytes.get() >= UNANSWERED_BYTES
    }

    pub async fn decongested(&self) {
        while self.is_congested() {
            self.room.wait().await;
        }
        // Whoever else waits has its turn, too.
        self.room.notify();
    }

    pub fn sent(&self) {
        self.relieve(|| self.waiting.set(self.waiting.get() - 1));
    }

    /// Something less is on its way: who waits for room may go on.
    fn relieve(&self, change: impl FnOnce()) {
        let congested = self.is_congested();
        change();
        if congested && !self.is_congested() {
            self.room.notify();
        }
    }
}
