//! What one shard's server knows. What is done with it stands in the folders above.
//!
//! | file | what |
//! |---|---|
//! | `tidying.rs` | what scripts have left is collected |
//! | `crowd.rs` | connections that wait since there is too much of something |
//! | `logging.rs` | what a shard has changed, on its way to the log |
//! | `scripting.rs`, `held_up.rs` | scripts that run; who waits beside those that last |
//! | `client_memory.rs`, `files.rs` | what the connections of a shard hold; how many there may be |
//! | `monitors.rs`, `subscriptions.rs`, `follower.rs`, `waits.rs` | who monitors, listens, follows the journal, waits for a key |
//! | `live.rs` | live queries, and the views that answer them |
//! | `slowlog.rs`, `shown.rs` | slow commands, and how commands are shown |
//! | `early.rs` | replies that stay until those behind them have come from other shards |
//! | `conditions.rs` | what is said at a moment of everybody who asks for something |
//! | `global.rs`, `following.rs`, `snapshots.rs`, `appending.rs` | the little that shards share |
//! | `advised.rs` | prefixes that advisors follow |
//! | `replication.rs` | the servers that follow this one |
//! | `syncs.rs` | replicas that wait for a snapshot |
//! | `pauses.rs` | CLIENT PAUSE, and pauses of the server's own |
//! | `busy.rs` | scripts that last |
//! | `strangers.rs`, `guesses.rs`, `slowed.rs` | who has not said who they are; wrong passwords; who waits for them |
//! | `users.rs` | the users, and what they were refused |

pub mod advised;
pub mod appending;
pub mod busy;
pub mod client_memory;
pub mod conditions;
pub mod crowd;
pub mod early;
pub mod files;
pub mod follower;
pub mod following;
pub mod global;
pub mod guesses;
pub mod held_up;
pub mod live;
pub mod logging;
pub mod monitors;
pub mod pauses;
pub mod replication;
pub mod scripting;
pub mod shown;
pub mod slowed;
pub mod slowlog;
pub mod snapshots;
pub mod strangers;
pub mod subscriptions;
pub mod syncs;
pub mod tidying;
pub mod users;
pub mod waits;

use crate::clock::Now;
use crate::command::spec::Secrets;
use crate::command::{self, CommandId};
use crate::journal;
use crate::net::{Notify, Transport};
use crate::observe::Rates;
use crate::resp::{Proto, Reply, Request, Result};
use crate::server::client::multi::Verb;
use crate::server::client::session::Session;
use crate::server::client::{Client, ClientRef};
use crate::shard::{Shard, Transaction};
use client_memory::ClientMemory;
use crowd::Crowd;
use early::Early;
use follower::Followers;
use global::Global;
use held_up::HeldUp;
use live::Live;
use logging::Logging;
use monitors::Monitors;
use scripting::Scripting;
use slowed::Slowed;
use slowlog::SlowLog;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use strangers::Strangers;
use subscriptions::Subscriptions;
use users::UsersOfShard;
use waits::Waits;

/// How the commands of this room run.
#[derive(Clone, Copy)]
pub enum Run {
    Data(command::Run),
    /// On the connection itself, at once, after everything before it.
    Session(SessionHandler),
    /// A task that may ask other shards, after everything before it.
    Task(fn(TaskCtx) -> TaskFuture),
    /// What brackets a transaction.
    Multi(Verb),
    /// Runs a script or a function.
    Script(Calls),
    Container,
}

/// How a command names what it calls, and what it allows it.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    pub by: By,
    pub read_only: bool,
}

/// What a command's first argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A script.
    Source,
    /// A script's name.
    Digest,
    /// A function's name.
    Function,
}

/// All commands.
pub type Table = command::Table<Run>;
pub type Command = command::Command<Run>;
pub type Found<'t> = command::Found<'t, Run>;

pub type SessionHandler = fn(&mut SessionCtx, Request) -> Result;

/// A command's reply, when it is ready.
pub type TaskFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>>>>>;

/// What a session's command works with.
pub struct SessionCtx<'a> {
    pub server: &'a Rc<Server>,
    pub session: &'a mut Session,
    /// It runs within EXEC.
    pub in_exec: bool,
    /// The moment by which deadlines are judged: within EXEC and scripts that of all their commands.
    pub now: Now,
    pub reply: Reply<'a>,
}

/// What a task works with: its request, and the session as it was.
pub struct TaskCtx {
    pub server: Rc<Server>,
    pub client: ClientRef,
    pub command: CommandId,
    pub request: command::OwnedRequest,
    pub db: usize,
    pub proto: Proto,
    /// It runs within EXEC, which may hold keys.
    pub in_exec: bool,
    /// The transaction that it is a part of, which has not told the journal yet what it has changed.
    pub transaction: Option<Rc<Transaction>>,
}

impl TaskCtx {
    pub fn reply(&self, write: impl FnOnce(&mut Reply)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut Reply::new(&mut out, self.proto));
        out
    }
}

/// Counters of one shard's server since the last CONFIG RESETSTAT.
#[derive(Default)]
pub struct Stats {
    pub commands: Cell<u64>,
    pub input_bytes: Cell<u64>,
    pub output_bytes: Cell<u64>,
    /// What replicas were sent, which is not among those.
    pub replica_output_bytes: Cell<u64>,
    /// How often something was received, and how often something was sent.
    pub reads: Cell<u64>,
    pub writes: Cell<u64>,
    /// Of commands, of bytes received and sent, and of bytes sent to replicas.
    pub rates: RefCell<Rates<4>>,
}

impl Stats {
    /// Once a second.
    pub fn sample(&self, now_us: u64) {
        let counts = [&self.commands, &self.input_bytes, &self.output_bytes, &self.replica_output_bytes].map(Cell::get);
        self.rates.borrow_mut().sample(now_us, counts);
    }

    pub fn reset(&self) {
        for counter in [
            &self.commands,
            &self.input_bytes,
            &self.output_bytes,
            &self.replica_output_bytes,
            &self.reads,
            &self.writes,
        ] {
            counter.set(0);
        }
        self.rates.borrow_mut().reset();
    }
}

/// One shard's part of the server.
pub struct Server {
    pub shard: Rc<Shard>,
    pub global: Arc<Global>,
    pub table: Arc<Table>,
    /// EXEC's number.
    pub exec: CommandId,
    pub stats: Stats,
    pub transport: Transport,
    pub slowlog: RefCell<SlowLog>,
    pub scripting: Scripting,
    pub users: UsersOfShard,
    pub monitors: Monitors,
    pub pubsub: RefCell<Subscriptions>,
    pub live: Live,
    pub following: Followers,
    /// Connections that wait for a key.
    pub waits: Waits,
    pub client_memory: ClientMemory,
    pub logging: Logging,
    clients: RefCell<HashMap<u64, ClientRef, ahash::RandomState>>,
    /// Connections that wait, and are not read, because too much is on its way to other shards.
    pub unread: Crowd,
    /// Connections whose next request changes something, while more waits to be written to the log than may.
    pub unlogged: Crowd,
    /// Some connections are not read until others, too, keep less, see [`crate::server::client::ahead`].
    pub awaits_room_ahead: Cell<bool>,
    /// The connection that replays a log had its turn.
    pub replayed: Notify,
    /// Connections whose next request waits for the end of CLIENT PAUSE.
    pub paused: RefCell<Vec<ClientRef>>,
    pub pause_watch: Notify,
    /// Connections that have more to do, when the others had their turn.
    pub postponed: RefCell<Vec<ClientRef>>,
    pub held_up: HeldUp,
    pub early: Early,
    pub slowed: Slowed,
    pub strangers: Strangers,
    /// Connections that something was pushed to in this turn.
    pub pushed: RefCell<Vec<ClientRef>>,
    /// Whose commands those are that no connection has sent.
    nobody: ClientRef,
    me: Weak<Server>,
}

impl Server {
    pub fn new(shard: Rc<Shard>, global: Arc<Global>, table: Arc<Table>, transport: Transport) -> Rc<Server> {
        let (exec, _) = table.by_full_name(b"exec").expect("declared");
        let exec = exec.id;
        Rc::new_cyclic(|me| Server {
            scripting: Scripting::new(&global),
            users: UsersOfShard::new(global.users.newest()),
            client_memory: ClientMemory::new(global.clone(), shard.id),
            logging: Logging::new(global.clone(), shard.id),
            global,
            table,
            exec,
            stats: Stats::default(),
            transport,
            slowlog: RefCell::default(),
            monitors: Monitors::new(shard.count),
            pubsub: RefCell::default(),
            live: Live::default(),
            following: Followers::default(),
            waits: Waits::default(),
            clients: RefCell::default(),
            unread: Crowd::default(),
            unlogged: Crowd::default(),
            awaits_room_ahead: Cell::new(false),
            replayed: Notify::default(),
            paused: RefCell::default(),
            pause_watch: Notify::default(),
            postponed: RefCell::default(),
            held_up: HeldUp::default(),
            early: Early::default(),
            slowed: Slowed::default(),
            strangers: Strangers::default(),
            pushed: RefCell::default(),
            nobody: Rc::new(Client::nobody()),
            me: me.clone(),
            shard,
        })
    }

    /// Which arguments of a command nobody is shown.
    pub fn secrets(&self, command: CommandId) -> Secrets {
        self.table.get(command).row.secrets
    }

    /// Replicas are told a command that has changed no data. (A replica tells its own what its primary tells it. What this shard
    /// says once it follows may come into the stream of the primary.)
    pub fn tell_replicas<'a>(&self, words: impl ExactSizeIterator<Item = &'a [u8]>) {
        let feed = &self.global.feed;
        if feed.is_streamed() && !feed.is_relayed() && !self.shard.is_following() {
            self.shard.record_command(journal::Command::said(journal::Command::new(0, words).bytes));
        }
    }

    /// A shard hands over what it changes, for the log or whoever reads the journal, or does not any more, and its replies wait
    /// for the disk, or do not.
    pub fn follow_log(shard: &Rc<Shard>) {
        let server = Server::of(shard);
        let log = &server.global.log;
        shard.hand_over_records();
        // (What a log says that is read was told when it happened.)
        let is_wanted = server.logging.hands_over() && !shard.is_replaying();
        shard.set_journaled(is_wanted);
        let is_kept = log.holds_replies();
        match is_kept {
            true => server.logging.await_shown(),
            false if log.is_on() => server.logging.await_all(),
            false => {}
        }
        shard.durable.set_kept(is_kept, log.pushed(shard.id));
    }

    /// The server of the shard on which a call runs.
    pub fn of(shard: &Shard) -> Rc<Server> {
        let server = shard.front().as_any().downcast_ref::<Server>().expect("the server is the only front");
        server.me.upgrade().expect("the shard keeps its front")
    }

    /// The handle to this very server, unless it ends.
    pub fn me(&self) -> Option<Rc<Server>> {
        self.me.upgrade()
    }

    pub fn client(&self, id: u64) -> Option<ClientRef> {
        self.clients.borrow().get(&id).cloned()
    }

    pub fn nobody(&self) -> ClientRef {
        self.nobody.clone()
    }

    /// The connections of this shard, oldest first.
    pub fn clients(&self) -> Vec<ClientRef> {
        let mut clients: Vec<ClientRef> =
            self.clients.borrow().values().filter(|client| !client.replays()).cloned().collect();
        clients.sort_unstable_by_key(|client| client.id);
        clients
    }

    /// The link to the primary, while it is up.
    pub fn link(&self) -> Option<ClientRef> {
        let clients = self.clients.borrow();
        let mut replaying = clients.values().filter(|client| client.replays());
        let is_link = |client: &&ClientRef| {
            let session = &client.state.borrow().session;
            session.is_primary && !session.peer.addr.is_empty()
        };
        replaying.find(is_link).cloned()
    }

    pub fn add_client(&self, client: ClientRef) {
        self.clients.borrow_mut().insert(client.id, client);
    }

    pub fn remove_client(&self, id: u64) {
        self.clients.borrow_mut().remove(&id);
    }

    pub fn spare_buffer(&self) -> Vec<u8> {
        self.shard.spare.take().unwrap_or_default()
    }

    pub fn keep_buffer(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.shard.spare.put(buffer);
    }

    /// A connection goes on, and is read again, when less waits for other shards, and there is memory for it.
    pub fn go_on_later(&self, client: &ClientRef) {
        if !client.unread.replace(true) {
            self.unread.add(client);
        }
    }

    /// A connection goes on when less is to be written to the log.
    pub fn go_on_with_log(&self, client: &ClientRef) {
        if !client.unread.replace(true) {
            self.unlogged.add(client);
        }
    }

    /// A connection has more to do, after the others.
    pub fn postpone(&self, client: &ClientRef) {
        if !client.postponed.replace(true) {
            self.postponed.borrow_mut().push(client.clone());
            self.shard.postpone();
        }
    }

    /// The connection's next request waits until CLIENT PAUSE is over.
    pub fn wait_for_unpause(&self, client: &ClientRef) {
        self.paused.borrow_mut().push(client.clone());
        self.pause_watch.notify();
    }

    /// CLIENT PAUSE is over, or has been changed.
    pub fn unpause(&self) {
        self.pause_watch.notify();
    }
}
