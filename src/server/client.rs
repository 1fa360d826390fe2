//! One connection: its buffers and what the session knows.

use super::replies::Replies;
use super::transaction::{Multi, WatchedKey};
use crate::net::LineId;
use crate::resp::{Parser, Proto};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::rc::Rc;

/// Replies that wait to be sent before the connection's requests wait, too.
pub const OUT_BYTES: usize = 1 << 20;
/// Requests that wait before the connection is not read any more.
const INPUT_BYTES: usize = 64 * 1024;

/// A connection as the tasks of its shard share it.
pub struct Client {
    pub id: u64,
    /// Its name in the transport.
    pub line: LineId,
    pub state: RefCell<State>,
    pub closed: Cell<bool>,
    /// It is not read until less waits for other shards.
    pub unread: Cell<bool>,
}

pub type ClientRef = Rc<Client>;

pub struct State {
    pub session: Session,
    pub replies: Replies,
    pub parser: Parser,
    pub flow: Flow,
    /// Bytes received and not yet used, from `at` on.
    pub input: Vec<u8>,
    pub at: usize,
}

/// What keeps a connection's requests waiting.
#[derive(Default)]
pub struct Flow {
    /// A command that nothing may overtake is on its way.
    pub barrier: bool,
    /// That command waits for a key.
    pub blocked: bool,
    /// CLIENT PAUSE holds the next request.
    pub paused: bool,
    /// The next request waits until everything before it is answered.
    pub waiting: bool,
    /// Bytes of the output that the transport has and has not sent yet.
    pub in_flight: usize,
    /// The other side says no more: what it said is answered, then the connection ends.
    pub finished: bool,
    pub close: Close,
    /// The replies that are open are those of transactions, not of commands on one shard.
    pub transactions: bool,
    /// The target of the last command that went to another shard, for strict order.
    pub last_target: usize,
    /// When the output grew past the soft limit, store microseconds.
    pub soft_since_us: Option<u64>,
}

impl Flow {
    /// Whether the next request may run, while so many bytes wait to be sent.
    #[inline]
    pub fn may_run(&self, out_bytes: usize) -> bool {
        !self.barrier && !self.paused && self.close == Close::No && out_bytes + self.in_flight < OUT_BYTES
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Close {
    #[default]
    No,
    /// When everything is sent.
    AfterReplies,
    Now,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    #[default]
    On,
    Off,
    /// Nothing is answered to the next command.
    SkipNext,
}

/// What commands know and change of their connection.
pub struct Session {
    pub id: u64,
    pub fd: RawFd,
    pub addr: String,
    pub laddr: String,
    /// From this machine.
    pub local: bool,
    /// Through the Unix domain socket.
    pub unix: bool,
    pub name: Vec<u8>,
    pub lib_name: Vec<u8>,
    pub lib_ver: Vec<u8>,
    pub db: usize,
    pub proto: Proto,
    pub authenticated: bool,
    pub reply_mode: ReplyMode,
    pub no_evict: bool,
    pub no_touch: bool,
    pub created_us: u64,
    pub used_us: u64,
    pub last_command: &'static str,
    pub commands: u64,
    pub channels: BTreeSet<Box<[u8]>>,
    pub patterns: BTreeSet<Box<[u8]>>,
    pub close: Close,
    /// Commands between MULTI and EXEC.
    pub multi: Option<Box<Multi>>,
    pub watched: Vec<WatchedKey>,
}

impl Session {
    pub fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }
}

impl State {
    pub fn new(session: Session) -> State {
        State {
            session,
            replies: Replies::default(),
            parser: Parser::default(),
            flow: Flow::default(),
            input: Vec::new(),
            at: 0,
        }
    }

    /// Whether the next request may run.
    #[inline]
    pub fn may_run(&self) -> bool {
        self.flow.may_run(self.replies.out.len())
    }

    pub fn may_read(&self) -> bool {
        let wants_more = self.may_run() && !self.flow.waiting;
        let has_room = self.flow.close == Close::No && self.input.len() - self.at < INPUT_BYTES;
        !self.flow.finished && (wants_more || has_room)
    }

    /// Whether the connection is to be closed now.
    pub fn is_over(&self) -> bool {
        let answered = || self.unsent() == 0 && self.replies.is_idle();
        match self.flow.close {
            Close::Now => true,
            Close::AfterReplies => answered(),
            Close::No => {
                let flow = &self.flow;
                flow.finished && !flow.barrier && !flow.paused && !flow.waiting && answered()
            }
        }
    }

    pub fn unsent(&self) -> usize {
        self.replies.out.len() + self.flow.in_flight
    }

    /// Bytes this connection holds.
    pub fn memory_bytes(&self) -> usize {
        let queued = self.session.multi.as_ref().map_or(0, |multi| multi.bytes());
        size_of::<State>() + self.input.capacity() + self.replies.out.capacity() + self.flow.in_flight + queued
    }
}
