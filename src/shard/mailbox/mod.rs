//! Messages between shards. Commands for another shard are gathered in one batch for each target and turn; the
//! target runs it and sends the same box back with the replies.
//!
//! Receivers never await: what a full link does not take waits in a queue. When that queue grows long, connections
//! of this shard are not read until it has shrunk.
//!
//! Messages travel over queues between two threads each (`links.rs`), which the transport looks at in its turns.

mod links;

pub use links::{Links, Mail, links};

use super::transactions::{Intent, Lock, TransactionLinks};
use super::{At, Notify, Shard};
use crate::clock::Now;
use crate::command::Handler;
use crate::net::Transport;
use crate::resp::{Request, Span};
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// Messages that wait for a full link before connections are not read any more ...
const CONGESTED_AT: usize = 64;
/// ... or bytes of commands that were written for others, or wait for their turn here, and were not answered.
const UNANSWERED_BYTES: usize = 4 << 20;
/// What each of these commands counts for beside its arguments.
pub(super) const PART_BYTES: usize = size_of::<Part>();
/// Boxes kept for reuse, the largest that is kept, and the bytes of all of them.
const POOLED: usize = 64;
const POOLED_BYTES: usize = 256 * 1024;
const POOL_BYTES: usize = 1 << 20;

pub type Result = Box<dyn Any + Send>;
pub type CallFuture = Pin<Box<dyn Future<Output = Result>>>;

type WorkNow = Box<dyn FnOnce(&Rc<Shard>) -> Result + Send>;
type StepWork = Box<dyn FnOnce(&Shard, Now) -> Result + Send>;
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
    /// A step of a transaction that a coordinator holds, by the coordinator's shard and its number there.
    Step {
        origin: usize,
        number: u64,
        step: Step,
    },
    /// The coordinator is done.
    Release {
        origin: usize,
        number: u64,
    },
    /// The commands of a connection that has stalled go on, or are dropped where it has ended.
    GoOn {
        client: u64,
        ended: bool,
    },
}

/// Work within a transaction, whose result is waited for.
pub struct Step {
    pub call: u64,
    pub work: StepWork,
}

/// Commands on their way to a shard, and their replies on the way back.
#[derive(Default)]
pub struct Batch {
    pub origin: usize,
    /// The shard that ran it.
    pub target: u16,
    pub buffer: Vec<u8>,
    pub spans: Vec<Span>,
    pub parts: Vec<Part>,
    pub out: Vec<u8>,
    /// Ends of the items of partial replies, counted as positions in `out`.
    pub ends: Vec<usize>,
    /// For a batch of transactions: their shares, their locks, and the number of the first that left with it.
    pub transactions: Vec<Intent>,
    pub locks: Vec<Lock>,
    pub first: u64,
    /// What its commands count for beside what it holds: negative for those whose replies come later, in a batch for
    /// which it is positive.
    pub owed: isize,
}

/// One command in a batch.
#[derive(Clone, Copy)]
pub struct Part {
    pub handler: Handler,
    pub at: At,
    pub ticket: Ticket,
    /// Ranges of the batch's spans, output and item ends.
    pub spans: (u32, u32),
    pub out: (usize, usize),
    pub ends: (usize, usize),
    /// How long it took.
    pub ns: u64,
    /// The parts of its transaction on this shard that are behind it run only where it answers no error.
    pub guard: bool,
    /// Its reply travels in another batch: it has to wait for its turn on the target, or others of this batch have.
    pub deferred: bool,
    /// The target runs nothing more of this connection before it hears that there is room for the replies.
    pub stalls: bool,
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
        Part {
            handler,
            at,
            ticket,
            spans: (0, 0),
            out: (0, 0),
            ends: (0, 0),
            ns: 0,
            guard: false,
            deferred: false,
            stalls: false,
        }
    }

    /// The command, in the buffer of its batch.
    #[inline]
    pub fn request<'b>(&self, buffer: &'b [u8], spans: &'b [Span]) -> Request<'b> {
        Request::new(buffer, &spans[self.spans.0 as usize..self.spans.1 as usize])
    }
}

impl Batch {
    /// Takes in a part that was answered elsewhere, with its request where the slow log wants that. (Which counts where
    /// it was sent.)
    pub fn answer(&mut self, part: Part, request: Option<Request>) {
        let start = self.spans.len() as u32;
        for arg in request.iter().flat_map(|request| request.from(0)) {
            let from = self.buffer.len() as u32;
            self.buffer.extend_from_slice(arg);
            self.spans.push((from, self.buffer.len() as u32));
            self.owed -= arg.len() as isize;
        }
        self.parts.push(Part { spans: (start, self.spans.len() as u32), ..part });
    }

    fn clear(&mut self) {
        self.buffer.clear();
        self.spans.clear();
        self.parts.clear();
        self.out.clear();
        self.ends.clear();
        self.transactions.clear();
        self.locks.clear();
        self.owed = 0;
    }

    fn capacity_bytes(&self) -> usize {
        self.buffer.capacity() + self.out.capacity()
    }

    /// What its commands count for while they are not answered.
    fn unanswered_bytes(&self) -> isize {
        (self.buffer.len() + self.parts.len() * PART_BYTES) as isize + self.owed
    }
}

pub(super) struct Outbox {
    id: usize,
    batches: RefCell<Vec<Option<Box<Batch>>>>,
    /// Boxes that travel between shards, kept as such.
    #[allow(clippy::vec_box)]
    pool: RefCell<Vec<Box<Batch>>>,
    pool_bytes: Cell<usize>,
    queues: Vec<RefCell<VecDeque<Message>>>,
    waiting: Cell<usize>,
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
            pool: RefCell::default(),
            pool_bytes: Cell::new(0),
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
        let batch = self.pool.borrow_mut().pop().unwrap_or_default();
        self.pool_bytes.set(self.pool_bytes.get() - batch.capacity_bytes());
        batch
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
        self.queues[target].borrow_mut().push_back(message);
        self.waiting.set(self.waiting.get() + 1);
        self.kick();
    }

    /// A batch of this shard's has come back with its replies.
    pub fn recycle(&self, mut batch: Box<Batch>) {
        let answered = batch.unanswered_bytes();
        self.relieve(|| self.unanswered_bytes.set(self.unanswered_bytes.get().strict_sub_signed(answered)));
        let mut pool = self.pool.borrow_mut();
        let bytes = batch.capacity_bytes();
        let pool_bytes = self.pool_bytes.get() + bytes;
        if pool.len() < POOLED && bytes <= POOLED_BYTES && pool_bytes <= POOL_BYTES {
            batch.clear();
            pool.push(batch);
            self.pool_bytes.set(pool_bytes);
        }
    }

    /// Whether anything waits to be sent, a batch that is being filled included.
    fn has_outgoing(&self) -> bool {
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

    fn sent(&self) {
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
