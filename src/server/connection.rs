//! One connection: what the transport asks of it, and what is done at the end of its turns.

use super::client::{Client, ClientRef, Close, Session, State};
use super::{Server, dispatch, new_state};
use crate::clock::store_us;
use crate::net::Line;
use crate::resp::Proto;
use glommio::timer::Timer;
use std::cell::Cell;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

/// A connection as it comes from the listener: an open socket that belongs to whoever holds this.
pub struct Accepted {
    /// Ids grow in the order in which connections are accepted.
    pub id: u64,
    pub fd: RawFd,
    /// Its two ends, as CLIENT LIST shows them.
    pub addr: String,
    pub laddr: String,
    /// From this machine.
    pub local: bool,
    pub unix: bool,
}

/// Serves a connection until it ends.
pub fn serve(server: &Rc<Server>, accepted: Accepted) {
    let id = accepted.id;
    let now_us = store_us();
    let session = Session {
        id,
        fd: accepted.fd,
        addr: accepted.addr,
        laddr: accepted.laddr,
        local: accepted.local,
        unix: accepted.unix,
        name: Vec::new(),
        lib_name: Vec::new(),
        lib_ver: Vec::new(),
        db: 0,
        proto: Proto::default(),
        authenticated: server.shard.config().requirepass.is_empty(),
        reply_mode: Default::default(),
        no_evict: false,
        no_touch: false,
        created_us: now_us,
        used_us: now_us,
        last_command: "NULL",
        commands: 0,
        channels: Default::default(),
        patterns: Default::default(),
        close: Close::No,
        multi: None,
        watched: Default::default(),
    };
    let line = server.transport.open(accepted.fd);
    let client =
        Rc::new(Client { id, line, state: new_state(session), closed: Cell::new(false), unread: Cell::new(false) });
    server.register(client.clone());
    server.transport.start(line, Rc::new(Connection { server: server.clone(), client }));
}

struct Connection {
    server: Rc<Server>,
    client: ClientRef,
}

impl Line for Connection {
    fn received(&self, bytes: &[u8]) {
        let stats = &self.server.stats;
        stats.input_bytes.set(stats.input_bytes.get() + bytes.len() as u64);
        dispatch::advance(&self.server, &self.client, bytes);
    }

    fn take_output(&self) -> Option<Vec<u8>> {
        let mut state = self.client.state.borrow_mut();
        if state.replies.out.is_empty() || state.flow.close == Close::Now {
            return None;
        }
        let out = std::mem::take(&mut state.replies.out);
        state.flow.in_flight = out.len();
        Some(out)
    }

    fn sent(&self, bytes: usize, buffer: Option<Vec<u8>>) {
        let stats = &self.server.stats;
        stats.output_bytes.set(stats.output_bytes.get() + bytes as u64);
        let waits = {
            let mut state = self.client.state.borrow_mut();
            let could_run = state.may_run();
            state.flow.in_flight -= bytes;
            !could_run || state.flow.finished || !state.replies.out.is_empty()
        };
        if let Some(buffer) = buffer {
            self.server.keep_buffer(buffer);
        }
        if waits {
            dispatch::advance(&self.server, &self.client, &[]);
        }
    }

    fn finished(&self) {
        {
            let flow = &mut self.client.state.borrow_mut().flow;
            flow.finished = true;
            if flow.paused {
                // As in `Dispatch::pause`: nobody waits for the end of the pause.
                flow.close = Close::AfterReplies;
            }
        }
        if self.server.is_blocked(self.client.id) {
            // Nobody waits for what it waits for.
            self.server.close_now(&self.client);
            return;
        }
        settle(&self.server, &self.client);
    }

    fn ended(&self) {
        self.server.unregister(&self.client);
    }
}

/// The end of a turn: what is ready leaves, the connection is read again or not, or is closed.
pub fn settle(server: &Rc<Server>, client: &ClientRef) {
    if client.closed.get() {
        return;
    }
    let (ready, backlog, reads, over) = {
        let mut state = client.state.borrow_mut();
        if !state.flow.stalled_shards.is_empty() {
            let_stalled_go_on(server, client.id, &mut state);
        }
        let ready = !state.replies.out.is_empty();
        let backlog = state.unsent() > state.replies.out.len();
        (ready, backlog, state.may_read(), state.is_over())
    };
    if over {
        server.transport.shut(client.line);
        return;
    }
    if ready {
        server.transport.mark(client.line);
    }
    if reads && server.shard.is_congested() {
        server.transport.set_reading(client.line, false);
        server.go_on_later(client);
    } else {
        server.transport.set_reading(client.line, reads);
    }
    if backlog {
        server.check_output(client);
    }
}

/// Lets shards go on that have stalled, where there is room for their replies by now.
#[cold]
fn let_stalled_go_on(server: &Server, client: u64, state: &mut State) {
    for target in std::mem::take(&mut state.flow.stalled_shards) {
        if state.has_room_for(target) {
            server.shard.let_go_on(target, client, false);
        } else {
            state.flow.stalled_shards.push(target);
        }
    }
}

/// Lets connections go on that had to wait because too much was on its way to other shards.
pub async fn resume_unread(server: Rc<Server>) {
    loop {
        server.unread_watch.wait().await;
        server.shard.decongested().await;
        let mut unread = server.unread.take().into_iter();
        for client in unread.by_ref() {
            client.unread.set(false);
            dispatch::advance(&server, &client, &[]);
            if server.shard.is_congested() {
                break;
            }
        }
        // Those that have to wait again come after those that had no turn.
        let mut rest: Vec<ClientRef> = unread.collect();
        rest.append(&mut server.unread.borrow_mut());
        if !rest.is_empty() {
            server.unread.replace(rest);
            server.unread_watch.notify();
        }
    }
}

/// Once a second: connections that are idle for longer than `timeout`, output limits that go by time, the peak of
/// memory.
pub async fn look_after(server: Rc<Server>) {
    loop {
        Timer::new(Duration::from_secs(1)).await;
        crate::observe::memory::used_bytes();
        let config = server.shard.config();
        let timed = config.timeout_s > 0;
        let limits = config.client_output_buffer_limit;
        if !timed && limits.pubsub.soft_bytes == 0 && limits.normal.soft_bytes == 0 {
            continue;
        }
        let now_us = store_us();
        for client in server.clients() {
            let (idle_us, waits, unsent) = {
                let state = client.state.borrow();
                let idle_us = now_us.saturating_sub(state.session.used_us);
                (idle_us, state.session.subscriptions() > 0 || state.flow.waits(), state.unsent())
            };
            if timed && !waits && idle_us > config.timeout_s * 1_000_000 {
                crate::observe::log::verbose(format_args!("Closing idle client id={}", client.id));
                server.close_now(&client);
            } else if unsent > 0 {
                server.check_output(&client);
            }
        }
    }
}
