//! The server: connections and their sessions, publish/subscribe, and the commands about the server itself.
//!
//! ```text
//!  socket ── connection.rs ── dispatch.rs ──┬── handler here ───────┐
//!              (bytes)        (requests)    ├── part to a shard ────┼── replies.rs ── socket
//!                                           └── task (coordinator) ─┘   (in order)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `listen.rs` | listening sockets, dealing connections out to the shards |
//! | `connection.rs` | one connection between the transport and its requests |
//! | `client.rs`, `replies.rs` | its state; its replies in order |
//! | `batch.rs`, `dispatch.rs` | requests looked up together; from a request to whoever runs it |
//! | `several.rs`, `split.rs` | commands with several keys or on every shard; taking them apart |
//! | `transaction.rs` | MULTI, EXEC, WATCH |
//! | `blocking.rs` | connections that wait for a key |
//! | `pubsub.rs` | who listens to what on this shard |
//! | `slowlog.rs` | commands that took long |
//! | `global.rs`, `files.rs` | the little that shards share; how many clients there may be |
//! | `rows/` | the commands of this room, a file a family |

mod batch;
mod blocking;
pub mod client;
mod connection;
mod dispatch;
mod files;
mod global;
pub mod listen;
mod pubsub;
mod replies;
mod rows;
mod several;
mod slowlog;
mod split;
mod stop;
mod transaction;

pub use files::make_room_for;
pub use global::Global;
pub use stop::watch_signals;

use crate::clock::store_us;
use crate::command::spec::Row;
use crate::command::{self, CommandId};
use crate::keyspace::Notice;
use crate::net::{Notify, Transport};
use crate::resp::{Proto, Reply, Request, Result};
use crate::shard::{Batch, Claim, Front, News, Shard, Ticket};
use client::{Client, ClientRef, Close, Session, State};
use replies::{Answer, Replies};
use slowlog::SlowLog;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How the commands of this room run.
#[derive(Clone, Copy)]
pub enum Run {
    Data(command::Run),
    /// On the connection itself, at once, after everything before it.
    Session(fn(&mut SessionCtx, Request) -> Result),
    /// A task that may ask other shards, after everything before it.
    Task(fn(TaskCtx) -> TaskFuture),
    /// What brackets a transaction.
    Multi(transaction::Verb),
    Container,
}

/// All commands.
pub type Table = command::Table<Run>;
pub type Command = command::Command<Run>;
pub type Found<'t> = command::Found<'t, Run>;

/// The table of all commands: those on data first.
pub fn table() -> Table {
    Table::new(command::rows().map(on_data).chain(rows::all().copied()))
}

/// A row of the command room among those of this one. Made once for the life of the process.
fn on_data(row: &'static Row<command::Run>) -> Row<Run> {
    let subcommands: Vec<Row<Run>> = row.subcommands.iter().map(on_data).collect();
    Row { spec: row.spec, run: Run::Data(row.run), subcommands: Box::leak(subcommands.into_boxed_slice()) }
}

/// A command's reply, when it is ready.
pub type TaskFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>>>>>;

/// What a session's command works with.
pub struct SessionCtx<'a> {
    pub server: &'a Rc<Server>,
    pub session: &'a mut Session,
    pub reply: Reply<'a>,
}

/// What a task works with: its request, and the session as it was.
pub struct TaskCtx {
    pub server: Rc<Server>,
    pub client: ClientRef,
    pub request: command::OwnedRequest,
    pub db: usize,
    pub proto: Proto,
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
}

/// One shard's part of the server.
pub struct Server {
    pub shard: Rc<Shard>,
    pub global: Arc<Global>,
    pub table: Arc<Table>,
    /// EXEC's number.
    exec: CommandId,
    clients: RefCell<HashMap<u64, ClientRef, ahash::RandomState>>,
    pubsub: RefCell<pubsub::Subscriptions>,
    pub stats: Stats,
    pub transport: Transport,
    /// Buffers for replies that no connection needs at the moment.
    spare: RefCell<Vec<Vec<u8>>>,
    /// Connections that wait, and are not read, because too much is on its way to other shards.
    unread: RefCell<Vec<ClientRef>>,
    unread_watch: Notify,
    paused: RefCell<Vec<ClientRef>>,
    postponed: RefCell<Vec<ClientRef>>,
    /// Connections that something was pushed to in this turn.
    pushed: RefCell<Vec<ClientRef>>,
    pub slowlog: RefCell<SlowLog>,
    /// Connections that wait for a key.
    blocked: RefCell<HashMap<u64, Rc<blocking::Blocked>>>,
    pause_watch: Notify,
    me: Weak<Server>,
}

/// Buffers for replies that are kept, and the largest that is.
const SPARE_BUFFERS: usize = 64;
const SPARE_BYTES: usize = 64 * 1024;

impl Server {
    pub fn new(shard: Rc<Shard>, global: Arc<Global>, table: Arc<Table>, transport: Transport) -> Rc<Server> {
        let (exec, _) = table.by_full_name(b"exec").expect("declared");
        let exec = exec.id;
        let server = Rc::new_cyclic(|me| Server {
            shard: shard.clone(),
            global,
            table,
            exec,
            clients: RefCell::default(),
            pubsub: RefCell::default(),
            stats: Stats::default(),
            transport,
            spare: RefCell::default(),
            unread: RefCell::default(),
            unread_watch: Notify::default(),
            paused: RefCell::default(),
            postponed: RefCell::default(),
            pushed: RefCell::default(),
            slowlog: RefCell::default(),
            blocked: RefCell::default(),
            pause_watch: Notify::default(),
            me: me.clone(),
        });
        shard.set_front(server.clone());
        server
    }

    /// Starts the tasks that are not about one connection.
    pub fn start(self: &Rc<Server>) {
        glommio::spawn_local(dispatch::resume_paused(self.clone())).detach();
        glommio::spawn_local(connection::look_after(self.clone())).detach();
        glommio::spawn_local(connection::resume_unread(self.clone())).detach();
    }

    /// The server of the shard on which a call runs.
    pub fn of(shard: &Rc<Shard>) -> Rc<Server> {
        let server = shard.front().as_any().downcast_ref::<Server>().expect("the server is the only front");
        server.me.upgrade().expect("the shard keeps its front")
    }

    pub fn client(&self, id: u64) -> Option<ClientRef> {
        self.clients.borrow().get(&id).cloned()
    }

    /// The connections of this shard, oldest first.
    pub fn clients(&self) -> Vec<ClientRef> {
        let mut clients: Vec<ClientRef> = self.clients.borrow().values().cloned().collect();
        clients.sort_unstable_by_key(|client| client.id);
        clients
    }

    fn register(&self, client: ClientRef) {
        self.clients.borrow_mut().insert(client.id, client);
    }

    /// Forgets a connection whose socket is closed.
    fn unregister(&self, client: &Client) {
        client.closed.set(true);
        self.give_up(client.id);
        {
            let session = &mut client.state.borrow_mut().session;
            transaction::unwatch(&self.shard, session.watched.take());
            self.pubsub.borrow_mut().remove_all(session);
        }
        self.publish_counts();
        self.clients.borrow_mut().remove(&client.id);
        self.leave_nothing(client);
        self.global.connections[self.shard.id].fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives back what a closed connection holds, although others may know it for some time.
    fn leave_nothing(&self, client: &Client) {
        let mut state = client.state.borrow_mut();
        if std::mem::take(&mut state.flow.paused) {
            self.paused.borrow_mut().retain(|paused| paused.id != client.id);
        }
        for target in std::mem::take(&mut state.flow.stalled_shards) {
            self.shard.let_go_on(target, client.id, true);
        }
        state.input = Vec::new();
        state.at = 0;
        state.replies = Replies::default();
    }

    /// Ends a connection: what it still had to say or to hear is lost.
    pub fn close_now(&self, client: &Client) {
        client.state.borrow_mut().flow.close = Close::Now;
        self.transport.shut(client.line);
    }

    fn spare_buffer(&self) -> Vec<u8> {
        self.spare.borrow_mut().pop().unwrap_or_default()
    }

    fn keep_buffer(&self, mut buffer: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        if buffer.capacity() > 0 && buffer.capacity() <= SPARE_BYTES && spare.len() < SPARE_BUFFERS {
            buffer.clear();
            spare.push(buffer);
        }
    }

    /// A connection goes on, and is read again, when less waits for other shards.
    fn go_on_later(&self, client: &ClientRef) {
        if !client.unread.replace(true) {
            self.unread.borrow_mut().push(client.clone());
            self.unread_watch.notify();
        }
    }

    /// Puts pushed bytes behind what the connection is about to be sent; they leave with [`Server::send_pushed`].
    fn push(&self, client: &ClientRef, bytes: &[u8]) {
        if client.closed.get() {
            return;
        }
        client.state.borrow_mut().replies.push(bytes);
        let mut pushed = self.pushed.borrow_mut();
        if pushed.last().is_none_or(|last| last.id != client.id) {
            pushed.push(client.clone());
        }
    }

    /// Sends what was pushed, once for each connection and turn; one that does not read is ended.
    fn send_pushed(self: &Rc<Server>) {
        let pushed = self.pushed.take();
        for client in &pushed {
            connection::settle(self, client);
            self.check_output(client);
        }
    }

    /// Tells other shards how many subscriptions there are here.
    fn publish_counts(&self) {
        self.global.subscriptions[self.shard.id].store(self.pubsub.borrow().len(), Ordering::Release);
    }

    /// Ends connections whose output is past their class's limit.
    fn check_output(&self, client: &Client) {
        let limits = self.shard.config().client_output_buffer_limit;
        let over = {
            let mut state = client.state.borrow_mut();
            let limit = if state.session.subscriptions() > 0 { limits.pubsub } else { limits.normal };
            let unsent = state.unsent() as u64;
            let now_us = store_us();
            let soft = limit.soft_bytes > 0 && unsent > limit.soft_bytes;
            let since_us = *state.flow.soft_since_us.get_or_insert(now_us);
            if !soft {
                state.flow.soft_since_us = None;
            }
            limit.hard_bytes > 0 && unsent > limit.hard_bytes
                || soft && now_us.saturating_sub(since_us) > limit.soft_s * 1_000_000
        };
        if over && !client.closed.get() {
            crate::observe::log::warning(format_args!(
                "Client id={} closed for overcoming of output buffer limits.",
                client.id
            ));
            self.close_now(client);
        }
    }
}

impl Front for Server {
    fn replies(&self, batch: &Batch) {
        let Some(server) = self.me.upgrade() else { return };
        let mut touched: Vec<ClientRef> = Vec::new();
        for part in batch.parts.iter().filter(|part| !part.deferred) {
            if touched.last().is_none_or(|client| client.id != part.ticket.client) {
                let Some(client) = self.client(part.ticket.client) else {
                    if part.stalls {
                        self.shard.let_go_on(batch.target, part.ticket.client, true);
                    }
                    continue;
                };
                touched.push(client);
            }
            let Some(client) = touched.last() else { continue };
            let bytes = &batch.out[part.out.0..part.out.1];
            let ends = &batch.ends[part.ends.0..part.ends.1];
            let ends = ends.iter().map(|end| end - part.out.0);
            let mut state = client.state.borrow_mut();
            let Ticket { sequence, part: number, .. } = part.ticket;
            let answer = Answer { sequence, part: number, bytes, command: part.at.command, ns: part.ns };
            state.replies.fill(&self.shard.meter, answer, ends);
            if self.shard.meter.is_slow(part.ns) {
                self.log_slow(
                    &state.session,
                    part.at.command,
                    part.ns,
                    SlowLog::args(part.request(&batch.buffer, &batch.spans)),
                );
            }
            if part.stalls {
                state.flow.stalled_shards.push(batch.target);
            }
        }
        for client in touched {
            dispatch::advance(&server, &client, &[]);
        }
    }

    fn resume(&self) {
        let Some(server) = self.me.upgrade() else { return };
        let mut postponed = self.postponed.take().into_iter();
        for client in postponed.by_ref() {
            dispatch::advance(&server, &client, &[]);
            if self.shard.has_lasted_long() {
                break;
            }
        }
        let mut later: Vec<ClientRef> = postponed.collect();
        if !later.is_empty() {
            // Those that were postponed again come after them.
            later.append(&mut self.postponed.borrow_mut());
            self.postponed.replace(later);
            self.shard.postpone();
        }
    }

    fn notices(&self, notices: Vec<Notice>) {
        if let Some(server) = self.me.upgrade() {
            pubsub::announce(&server, notices);
        }
    }

    fn waited(&self, client: u64, claim: &Arc<Claim>, news: News) {
        self.news_of(client, claim, news);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The state of a connection that was accepted just now.
fn new_state(session: Session) -> RefCell<State> {
    RefCell::new(State::new(session))
}
