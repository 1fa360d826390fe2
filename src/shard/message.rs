//! What shards send each other. Commands for another shard are gathered in one batch for each target and turn; the target
//! runs it and sends the same box back with the replies.

use super::Shard;
use super::pool::Kept;
use crate::clock::Now;
use crate::command::{CommandId, Handler};
use crate::journal::Shards;
use crate::keyspace::{Touch, Tracker};
use crate::resp::{Proto, Request, Span};
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// What each command of a batch counts for beside its arguments.
pub const PART_BYTES: usize = size_of::<Part>();

/// What a call brings back, whatever it is.
pub type AnyResult = Box<dyn Any + Send>;
pub type CallFuture = Pin<Box<dyn Future<Output = AnyResult>>>;

type WorkNow = Box<dyn FnOnce(&Rc<Shard>) -> AnyResult + Send>;
type StepWork = Box<dyn FnOnce(&Shard, Now) -> AnyResult + Send>;
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
        result: AnyResult,
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
    /// See [`Transaction::may_be_undone`](super::Transaction::may_be_undone).
    pub may_be_undone: bool,
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
    /// What its replies show is on the disk when this push of the shard that ran it is ([`super::Durable`]).
    pub shows: u64,
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
    pub reply: u64,
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

    pub fn clear(&mut self) {
        self.buffer.clear();
        self.spans.clear();
        self.parts.clear();
        self.out.clear();
        self.ends.clear();
        self.transactions.clear();
        self.locks.clear();
        self.owed = 0;
        self.shows = 0;
    }

    /// What its commands count for while they are not answered.
    pub fn unanswered_bytes(&self) -> isize {
        (self.buffer.len() + self.parts.len() * PART_BYTES) as isize + self.owed
    }

    /// The share of the transaction that is being written.
    pub fn last_intent(&mut self) -> &mut Intent {
        self.transactions.last_mut().expect("written to")
    }
}

impl Kept for Box<Batch> {
    fn capacity_bytes(&self) -> usize {
        size_of::<Batch>()
            + self.buffer.capacity()
            + self.spans.capacity() * size_of::<Span>()
            + self.parts.capacity() * PART_BYTES
            + self.out.capacity()
            + self.ends.capacity() * size_of::<usize>()
            + self.transactions.capacity() * size_of::<Intent>()
            + self.locks.capacity() * size_of::<Lock>()
    }
}

/// One transaction's share in a batch.
#[derive(Clone, Copy, Debug)]
pub struct Intent {
    /// Its number is the batch's first and this.
    pub order: u32,
    /// Ranges of the batch's parts and locks.
    pub parts: (u32, u32),
    pub locks: (u32, u32),
    /// The coordinator's number for a hold, else 0.
    pub hold: u64,
    /// The coordinator looks itself whether a script keeps it waiting.
    pub is_patient: bool,
    /// The shards that may write.
    pub writers: Shards,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    pub hash: u64,
    pub write: bool,
}

/// The lock of the whole shard. (A key with this hash waits for more than it must.)
pub const EVERYTHING: u64 = 0;

/// In which place a handler runs.
#[derive(Clone, Copy, Debug)]
pub struct At {
    pub db: usize,
    pub proto: Proto,
    pub touch: Touch,
    /// The hash of the first key.
    pub hash: u64,
    pub command: CommandId,
    /// Whether it may change its keys.
    pub write: bool,
    /// Whether it takes about as long as reading the clock.
    pub is_quick: bool,
    /// It comes from the server that this one follows, to which no key is dead before it says so.
    pub is_told: bool,
    /// It is a script's call, which the room above runs ([`super::Front::script`]).
    pub is_script: bool,
    /// A script says it.
    pub in_script: bool,
    /// Whose command it is, where that one tracks what it reads.
    pub tracker: Option<Tracker>,
}

impl At {
    /// Where a command only looks, and leaves nothing behind.
    pub fn unseen(command: CommandId, db: usize, proto: Proto) -> At {
        At {
            db,
            proto,
            touch: Touch::NOTHING,
            hash: 0,
            command,
            write: false,
            is_quick: true,
            is_told: false,
            is_script: false,
            in_script: false,
            tracker: None,
        }
    }
}
