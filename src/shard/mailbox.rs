//! Messages between shards. Commands for another shard are gathered in one batch for each target and turn; the
//! target runs it and sends the same box back with the replies.
//!
//! Receivers never await: what a full channel does not take waits in a queue, which a task of its own empties. When
//! that queue grows long, connections of this shard are not read until it has shrunk.

use super::{At, Notify, Shard};
use crate::command::Handler;
use crate::resp::{Request, Span};
use glommio::GlommioError;
use glommio::channels::shared_channel::{self, ConnectedReceiver, ConnectedSender, SharedReceiver, SharedSender};
use glommio::timer::Timer;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// Messages that wait for a full channel before connections are not read any more.
const CONGESTED_AT: usize = 64;
/// Boxes kept for reuse, and the largest that is kept.
const POOLED: usize = 64;
const POOLED_BYTES: usize = 256 * 1024;

pub type Result = Box<dyn Any + Send>;
pub type CallFuture = Pin<Box<dyn Future<Output = Result>>>;

type WorkNow = Box<dyn FnOnce(&Rc<Shard>) -> Result + Send>;
type Order = Box<dyn FnOnce(&Rc<Shard>) + Send>;

/// What a call does on its target.
pub enum Work {
    Now(WorkNow),
    Later(Box<dyn FnOnce(Rc<Shard>) -> CallFuture + Send>),
}

pub enum Message {
    Batch(Box<Batch>),
    Replies(Box<Batch>),
    /// Work whose result is waited for.
    Call {
        call: u64,
        origin: usize,
        work: Work,
    },
    Answer {
        call: u64,
        result: Result,
    },
    /// Work whose result nobody waits for.
    Tell(Order),
}

/// Commands on their way to a shard, and their replies on the way back.
#[derive(Default)]
pub struct Batch {
    pub origin: usize,
    pub buffer: Vec<u8>,
    pub spans: Vec<Span>,
    pub parts: Vec<Part>,
    pub out: Vec<u8>,
    /// Ends of the items of partial replies, counted as positions in `out`.
    pub ends: Vec<u32>,
}

/// One command in a batch.
pub struct Part {
    pub handler: Handler,
    pub at: At,
    pub ticket: Ticket,
    /// Ranges of the batch's spans, output and item ends.
    pub spans: (u32, u32),
    pub out: (u32, u32),
    pub ends: (u32, u32),
}

/// Where the reply belongs, for the origin.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    pub client: u64,
    pub sequence: u64,
    /// Which part of the command's reply this is.
    pub part: u32,
}

impl Part {
    pub fn new(handler: Handler, at: At, ticket: Ticket) -> Part {
        Part { handler, at, ticket, spans: (0, 0), out: (0, 0), ends: (0, 0) }
    }
}

impl Batch {
    fn clear(&mut self) {
        self.buffer.clear();
        self.spans.clear();
        self.parts.clear();
        self.out.clear();
        self.ends.clear();
    }

    fn capacity_bytes(&self) -> usize {
        self.buffer.capacity() + self.out.capacity()
    }
}

/// A shard's ends of the channels to and from each other shard, before its executor runs.
pub struct Endpoints {
    senders: Vec<Option<SharedSender<Message>>>,
    receivers: Vec<Option<SharedReceiver<Message>>>,
}

/// A shard's ends of the channels, by the other shard; none to itself.
pub struct Mail {
    senders: Vec<Option<ConnectedSender<Message>>>,
    receivers: Vec<Option<ConnectedReceiver<Message>>>,
}

/// Messages a channel between two shards holds.
const CHANNEL_MESSAGES: usize = 256;
/// How often a shard looks whether the others have connected their ends.
const CONNECT_TICK: Duration = Duration::from_millis(1);

/// A channel from every shard to every other.
pub fn mesh(shards: usize) -> Vec<Endpoints> {
    let none =
        || Endpoints { senders: (0..shards).map(|_| None).collect(), receivers: (0..shards).map(|_| None).collect() };
    let mut ends: Vec<Endpoints> = (0..shards).map(|_| none()).collect();
    for from in 0..shards {
        for to in (0..shards).filter(|to| *to != from) {
            let (sender, receiver) = shared_channel::new_bounded(CHANNEL_MESSAGES);
            ends[from].senders[to] = Some(sender);
            ends[to].receivers[from] = Some(receiver);
        }
    }
    ends
}

impl Mail {
    /// Connects a shard's ends; returns when all others have connected theirs.
    pub async fn connect(ends: Endpoints) -> Mail {
        // All begin at once: each waits for its peer. glommio does not wake an executor when a peer connects (nor does
        // its mesh builder), so this one keeps itself awake meanwhile.
        let senders: Vec<_> =
            ends.senders.into_iter().map(|end| end.map(|end| glommio::spawn_local(end.connect()))).collect();
        let receivers: Vec<_> =
            ends.receivers.into_iter().map(|end| end.map(|end| glommio::spawn_local(end.connect()))).collect();
        let connect = async {
            let mut mail = Mail { senders: Vec::new(), receivers: Vec::new() };
            for task in senders {
                mail.senders.push(match task {
                    Some(task) => Some(task.await),
                    None => None,
                });
            }
            for task in receivers {
                mail.receivers.push(match task {
                    Some(task) => Some(task.await),
                    None => None,
                });
            }
            mail
        };
        let awake = async {
            loop {
                Timer::new(CONNECT_TICK).await;
            }
        };
        futures_lite::future::or(connect, awake).await
    }
}

pub(super) struct Outbox {
    id: usize,
    batches: RefCell<Vec<Option<Box<Batch>>>>,
    /// Boxes that travel between shards, kept as such.
    #[allow(clippy::vec_box)]
    pool: RefCell<Vec<Box<Batch>>>,
    queues: Vec<Queue>,
    flush: Notify,
    waiting: Cell<usize>,
    room: Notify,
}

#[derive(Default)]
struct Queue {
    messages: RefCell<VecDeque<Message>>,
    ready: Notify,
}

impl Outbox {
    pub fn new(id: usize, shards: usize) -> Outbox {
        Outbox {
            id,
            batches: RefCell::new((0..shards).map(|_| None).collect()),
            pool: RefCell::default(),
            queues: (0..shards).map(|_| Queue::default()).collect(),
            flush: Notify::default(),
            waiting: Cell::new(0),
            room: Notify::default(),
        }
    }

    pub fn add(&self, target: usize, request: Request, mut part: Part) {
        let mut batches = self.batches.borrow_mut();
        let batch = batches[target].get_or_insert_with(|| {
            self.flush.notify();
            self.pool.borrow_mut().pop().unwrap_or_default()
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

    fn send_batch(&self, target: usize, batch: Option<Box<Batch>>) {
        if let Some(mut batch) = batch {
            batch.origin = self.id;
            self.post(target, Message::Batch(batch));
        }
    }

    fn send_batches(&self) {
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
        let queue = &self.queues[target];
        queue.messages.borrow_mut().push_back(message);
        self.waiting.set(self.waiting.get() + 1);
        queue.ready.notify();
    }

    pub fn recycle(&self, mut batch: Box<Batch>) {
        let mut pool = self.pool.borrow_mut();
        if pool.len() < POOLED && batch.capacity_bytes() <= POOLED_BYTES {
            batch.clear();
            pool.push(batch);
        }
    }

    pub fn is_congested(&self) -> bool {
        self.waiting.get() >= CONGESTED_AT
    }

    pub async fn decongested(&self) {
        while self.is_congested() {
            self.room.wait().await;
        }
        // Whoever else waits has its turn, too.
        self.room.notify();
    }

    fn sent(&self) {
        self.waiting.set(self.waiting.get() - 1);
        if self.waiting.get() + 1 == CONGESTED_AT {
            self.room.notify();
        }
    }
}

/// The tasks behind a shard's mailbox: one that sends the turn's batches, one a target that sends, one a source that
/// receives.
pub(super) fn start(shard: &Rc<Shard>, mail: Mail) {
    let flusher = shard.clone();
    glommio::spawn_local(async move {
        loop {
            flusher.outbox.flush.wait().await;
            flusher.outbox.send_batches();
        }
    })
    .detach();
    for (target, sender) in mail.senders.into_iter().enumerate() {
        let Some(sender) = sender else { continue };
        let shard = shard.clone();
        glommio::spawn_local(async move {
            let queue = &shard.outbox.queues[target];
            loop {
                queue.ready.wait().await;
                loop {
                    let Some(message) = queue.messages.borrow_mut().pop_front() else { break };
                    if !send(&sender, message).await {
                        return;
                    }
                    shard.outbox.sent();
                }
            }
        })
        .detach();
    }
    for receiver in mail.receivers.into_iter().flatten() {
        let shard = shard.clone();
        glommio::spawn_local(async move {
            while let Some(message) = receiver.recv().await {
                shard.receive(message);
                glommio::executor().yield_if_needed().await;
            }
        })
        .detach();
    }
}

/// False where the other side is gone, which happens when the process ends.
async fn send(sender: &ConnectedSender<Message>, message: Message) -> bool {
    match sender.try_send(message) {
        Ok(()) => true,
        Err(GlommioError::WouldBlock(glommio::ResourceType::Channel(message))) => sender.send(message).await.is_ok(),
        Err(_) => false,
    }
}
