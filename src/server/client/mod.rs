//! The state of one connection: its buffers, what keeps its requests waiting, and its session.
//!
//! | file | what |
//! |---|---|
//! | `line.rs` | as CLIENT LIST shows it |
//! | `session.rs` | what its commands know and change |
//! | `multi.rs`, `watched.rs`, `tracks.rs`, `live.rs` | what stands between MULTI and EXEC; keys that are watched; what is tracked; live queries |
//! | `replies.rs` | its replies in order |
//! | `long.rs` | long replies that came from other shards |
//! | `for_disk.rs` | replies that wait for the disk |
//! | `ahead.rs` | what was sent while nobody reads the replies |
//! | `replica.rs` | what is known of a replica |
//! | `relay.rs` | what the primary has said that is being done |
//! | `stepping.rs` | keys of a log's commands that are under way on several shards |

pub mod ahead;
pub mod for_disk;
pub mod line;
pub mod live;
pub mod long;
pub mod multi;
pub mod relay;
pub mod replica;
pub mod replies;
pub mod session;
pub mod stepping;
pub mod tracks;
pub mod watched;

use crate::net::LineId;
use crate::net::tls::Held;
use crate::observe::memory::Transient;
use crate::resp::Parser;
use ahead::Ahead;
use relay::Relay;
use replies::Replies;
use session::{Close, Session};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use stepping::Stepping;

/// What a connection may hold of replies, and of requests that others have and have not answered, before its next
/// request waits.
pub const HELD_BYTES: usize = 1 << 20;
/// The same for strangers: they are told little before they have read it, as in Redis, where a stranger's output past this
/// ends the connection (CVE-2025-21605).
const STRANGER_HELD_BYTES: usize = 1024;
/// Requests that wait before the connection is not read any more.
const INPUT_BYTES: usize = 64 * 1024;

/// What a name takes that a connection has given, here and where it is looked for.
pub fn name_bytes(name: &[u8]) -> usize {
    const ENTRIES_BYTES: usize = 96;
    ENTRIES_BYTES + 2 * name.len()
}

/// A connection as the tasks of its shard share it.
pub struct Client {
    pub id: u64,
    /// Its name in the transport.
    pub line: LineId,
    pub state: RefCell<State>,
    /// Bytes that came from its socket, and that went there.
    pub received_bytes: Cell<u64>,
    pub sent_bytes: Cell<u64>,
    pub closed: Cell<bool>,
    /// It is not read until less waits for other shards.
    pub unread: Cell<bool>,
    /// It has more to do, after the others.
    pub postponed: Cell<bool>,
    pub source: Source,
}

/// Where what a connection says comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Socket,
    /// From a log: it has no socket, and nobody hears the answers.
    Log,
    /// From the server that this one follows, by another task: likewise.
    Primary,
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
    /// Bytes received behind these, while the replies had to be read first.
    pub ahead: Ahead,
    /// What is held for it between its socket and the server: by TLS.
    pub wrapped: Option<Rc<Held>>,
    /// What it held when that was counted last.
    pub counted_bytes: usize,
    /// The same where it might have been ended for it.
    pub counted_evictable_bytes: usize,
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
    /// What of it are names of changed keys, see [`Replies::note_transient`].
    pub transient: Transient,
    /// Shards that run none of this connection's commands until they are told that there is room for the replies.
    pub stalled_shards: SmallVec<[u16; 2]>,
    /// It has not said who it is, although that is asked for.
    pub is_stranger: bool,
    /// Until when its next request waits, which names a password, store microseconds: there were too many wrong ones.
    pub slowed_until_us: Option<u64>,
    /// The other side says no more: what it said is answered, then the connection ends.
    pub finished: bool,
    pub close: Close,
    /// Why a log is not read on, where this connection says what is in it.
    pub refused: Option<Box<str>>,
    /// The commands of that log which are under way on several shards.
    pub stepping: Stepping,
    /// The replies that are open are those of transactions, not of commands on one shard.
    pub transactions: bool,
    /// The target of the last command that went to another shard, for strict order.
    pub last_target: usize,
    /// A script is in the way of the next request: how many there were before it, and since when it waits, store
    /// microseconds.
    pub held_up: Option<(u64, u64)>,
    /// Since when replies that are ready stay until those behind them have come, store microseconds.
    pub early_since_us: Option<u64>,
    /// What the primary has said that the next transaction does.
    pub relay: Option<Relay>,
    /// When the output grew past the soft limit, store microseconds.
    pub soft_since_us: Option<u64>,
}

impl Client {
    /// For commands that no connection has sent.
    pub fn nobody() -> Client {
        Client {
            id: 0,
            line: LineId::default(),
            state: RefCell::new(State::new(Session::of_nobody())),
            received_bytes: Cell::new(0),
            sent_bytes: Cell::new(0),
            closed: Cell::new(false),
            unread: Cell::new(false),
            postponed: Cell::new(false),
            source: Source::Socket,
        }
    }

    /// Who says what is in a log.
    pub fn replaying(id: u64) -> Client {
        Client { id, source: Source::Log, ..Client::nobody() }
    }

    /// Who says what the server says that this one follows.
    pub fn of_primary(id: u64) -> Client {
        let client = Client { id, source: Source::Primary, ..Client::nobody() };
        client.state.borrow_mut().session.is_primary = true;
        client
    }

    /// It has no socket.
    #[inline]
    pub fn replays(&self) -> bool {
        self.source != Source::Socket
    }
}

impl Flow {
    /// Whether the next request may run, while replies and open requests count for so many bytes.
    #[inline]
    pub fn may_run(&self, held_bytes: usize) -> bool {
        let most = if self.is_stranger { STRANGER_HELD_BYTES } else { HELD_BYTES };
        !self.barrier && !self.paused && self.close == Close::No && held_bytes + self.in_flight < most
    }

    /// Whether the connection counts as blocked: it waits for a key, or for the end of a pause.
    pub fn waits(&self) -> bool {
        self.blocked || self.paused
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
            ahead: Ahead::default(),
            wrapped: None,
            counted_bytes: 0,
            counted_evictable_bytes: 0,
        }
    }

    /// Whether the next request may run.
    #[inline]
    pub fn may_run(&self) -> bool {
        self.flow.may_run(self.replies.bytes())
    }

    /// Bytes that were received and are not used yet.
    pub fn input_bytes(&self) -> usize {
        self.input.len() - self.at + self.ahead.bytes()
    }

    /// Whether what comes in now is only kept: the replies have to be read first, and enough is here for when they are.
    #[inline]
    pub fn runs_later(&self) -> bool {
        !self.ahead.is_empty() || self.input.len() - self.at >= INPUT_BYTES && self.to_be_read() >= HELD_BYTES
    }

    /// Bytes that wait for nothing but the other side. (What waits for other shards, or the disk, comes to them without it.)
    fn to_be_read(&self) -> usize {
        self.replies.out.len() + self.flow.in_flight
    }

    /// Whether the connection is to be read. While it waits for a key, or for the end of a pause, it is, however much it
    /// has said (up to `client-query-buffer-limit`, as in Redis): nothing else would tell that it has hung up. A stranger is
    /// not: what strangers say is held in little memory, and `auth-timeout` ends them.
    pub fn may_read(&self) -> bool {
        let wants_more = self.may_run() && !self.flow.waiting;
        let waits = self.flow.waits() && !self.flow.is_stranger;
        let has_room = match self.flow.close {
            Close::No => waits || self.input_bytes() < INPUT_BYTES,
            // As below; what it says is let go.
            Close::AfterReplies => self.to_be_read() > 0,
            Close::Now => false,
        };
        !self.flow.finished && (wants_more || has_room)
    }

    /// Whether a connection that need not be read is to be, where there is room: its replies have to be read before the next
    /// request runs, and it may be writing all of a pipeline before it reads.
    pub fn is_to_be_kept(&self) -> bool {
        self.to_be_read() >= HELD_BYTES && !self.flow.is_stranger && !self.flow.finished && self.flow.close == Close::No
    }

    /// Whether the connection is to be closed now.
    pub fn is_over(&self) -> bool {
        let answered = || self.unsent() == 0 && self.replies.is_idle();
        match self.flow.close {
            Close::Now => true,
            Close::AfterReplies => answered(),
            Close::No => {
                let flow = &self.flow;
                let waits = flow.barrier || flow.paused || flow.waiting || !self.ahead.is_empty();
                flow.finished && !waits && answered()
            }
        }
    }

    /// Bytes of replies and pushes that were not sent yet, whatever they wait for.
    pub fn unsent(&self) -> usize {
        self.replies.bytes_here() + self.flow.in_flight
    }

    /// Whether a shard that has stalled may send more replies. Where the connection's replies wait for that shard there
    /// is no way around it, as long as what is ready leaves.
    pub fn has_room_for(&self, target: u16) -> bool {
        let leaves = self.to_be_read() < HELD_BYTES;
        leaves && (self.unsent() < HELD_BYTES || self.replies.awaited_shard() == Some(target))
    }

    /// Whether it may be ended where connections hold too much in all.
    pub fn may_be_evicted(&self) -> bool {
        !self.session.no_evict
            && !self.session.follows
            && self.session.replica.is_none()
            && self.flow.close != Close::Now
    }

    /// Bytes this connection holds.
    pub fn memory_bytes(&self) -> usize {
        size_of::<State>()
            + self.input.capacity()
            + self.ahead.memory_bytes()
            + self.replies.memory_bytes()
            + self.flow.in_flight
            + self.session.memory_bytes()
            + self.wrapped.as_ref().map_or(0, |held| held.bytes.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stops_sending_is_served_what_is_kept() {
        let mut state = State::new(Session::of_nobody());
        state.flow.finished = true;
        assert!(state.is_over());
        state.ahead.push(b"PING\r\n");
        assert!(!state.is_over());
        state.ahead.pop();
        assert!(state.is_over());
    }
}
