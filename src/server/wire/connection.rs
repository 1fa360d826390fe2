//! One connection: its bytes, from the transport to requests and back, and its end.

use super::journal;
use crate::clock::store_us;
use crate::config::PipelineOrder;
use crate::net::tls::{Held, Layer, TlsLine};
use crate::net::{Line, Transport, rung_outside, sleep};
use crate::observe::{log, memory};
use crate::resp::{Error, Limits};
use crate::server::admit::Gate;
use crate::server::client::ahead::Ahead;
use crate::server::client::replies::Replies;
use crate::server::client::session::{Close, Peer, Session};
use crate::server::client::{Client, ClientRef, Source, State};
use crate::server::run::dispatch;
use crate::server::run::received::{End, Received};
use crate::server::run::replayed::REPLAYED_BYTES;
use crate::server::run::turn::{Progress, Turn};
use crate::server::run::watch::unwatch;
use crate::server::state::conditions::of_the_past;
use crate::server::state::{Server, crowd};
use crate::server::told::live;
use crate::server::told::monitor;
use crate::server::told::output::{check_output, close_now, condemn, hold_for_settled, settle};
use crate::server::told::pubsub::publish_counts;
use crate::server::told::tracking;
use crate::shard::Pace;
use futures_lite::future::or;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Serves a connection until it ends. Where it is under TLS its handshake is over, and it may have said something already.
pub fn serve(server: &Rc<Server>, peer: Peer, under_tls: Option<(Layer, Vec<u8>)>) {
    let (id, line) = (peer.id, server.transport.open(peer.fd));
    let session = Session::new(peer, store_us(), Some(server.users.get().default_user().clone()));
    let mut state = State::new(session);
    let held = under_tls.is_some().then(Rc::<Held>::default);
    state.wrapped = held.clone();
    let client = Rc::new(Client { id, line, state: RefCell::new(state), ..Client::nobody() });
    server.add_client(client.clone());
    if !client.state.borrow().session.authenticated {
        server.strangers.add(id, store_us());
    }
    let connection = Rc::new(Connection { server: server.clone(), client: client.clone() });
    let Some((layer, held)) = under_tls.zip(held) else {
        server.transport.start(line, connection);
        return;
    };
    let is_transient = move || client.state.try_borrow().is_ok_and(|state| state.flow.transient.bytes() > 0);
    let tls = TlsLine::new(connection, (server.transport.clone(), line), layer, (held, Box::new(is_transient)));
    server.transport.start(line, tls.clone());
    server.shard.defer(move || tls.begin());
}

struct Connection {
    server: Rc<Server>,
    client: ClientRef,
}

impl Line for Connection {
    fn received(&self, bytes: &[u8]) {
        let stats = &self.server.stats;
        stats.input_bytes.set(stats.input_bytes.get() + bytes.len() as u64);
        stats.reads.set(stats.reads.get() + 1);
        self.client.received_bytes.set(self.client.received_bytes.get() + bytes.len() as u64);
        advance(&self.server, &self.client, bytes);
    }

    fn take_output(&self) -> Option<Vec<u8>> {
        if matches!(self.server.transport, Transport::Sockets(_)) {
            // The ring sends when a turn is over. Here a turn may go on, and what was changed in it must be handed over to
            // the log before it is acknowledged.
            self.server.shard.hand_over_records();
        }
        let mut state = self.client.state.borrow_mut();
        // Some of it may have been made since the end of the connection's last turn.
        if self.server.logging.has_unsettled() || state.replies.for_disk.concerns_output() {
            hold_for_settled(&self.server, &self.client, &mut state);
        }
        if state.replies.out.is_empty() || state.flow.close == Close::Now {
            return None;
        }
        let out = state.replies.take_out();
        state.flow.in_flight = out.len();
        state.flow.transient = std::mem::take(&mut state.replies.transient);
        Some(out)
    }

    fn sent(&self, bytes: usize, buffer: Option<Vec<u8>>) {
        let stats = &self.server.stats;
        let is_replica = self.client.state.borrow().session.replica.is_some();
        let output_bytes = if is_replica { &stats.replica_output_bytes } else { &stats.output_bytes };
        output_bytes.set(output_bytes.get() + bytes as u64);
        stats.writes.set(stats.writes.get() + 1);
        self.client.sent_bytes.set(self.client.sent_bytes.get() + bytes as u64);
        let (waits, is_transient) = {
            let mut state = self.client.state.borrow_mut();
            let is_transient = state.flow.transient.bytes() > 0;
            let could_run = state.may_run();
            state.flow.in_flight -= bytes;
            if state.replies.pushed_bytes > 0 && state.unsent() == 0 {
                state.replies.pushed_bytes = 0;
            }
            if state.flow.in_flight == 0 {
                state.flow.transient.set(0);
            }
            if state.unsent() == 0 {
                state.flow.soft_since_us = None;
            }
            self.server.client_memory.count(&mut state);
            let waits = !could_run || state.flow.finished || !state.replies.out.is_empty();
            (waits, is_transient)
        };
        if let Some(buffer) = buffer
            && !is_transient
        {
            self.server.keep_buffer(buffer);
        }
        if waits {
            advance(&self.server, &self.client, &[]);
        }
        if is_replica {
            // There is room for more of the stream.
            journal::show(&self.server);
        }
    }

    fn finished(&self) {
        {
            let flow = &mut self.client.state.borrow_mut().flow;
            flow.finished = true;
            if flow.paused {
                // As in `Turn::pause`: nobody waits for the end of the pause.
                flow.close = Close::AfterReplies;
            }
        }
        if self.server.waits.has(self.client.id) {
            // Nobody waits for what it waits for.
            close_now(&self.server, &self.client);
            return;
        }
        settle(&self.server, &self.client);
    }

    fn ended(&self) {
        forget(&self.server, &self.client);
    }
}

/// Forgets a connection whose socket is closed.
fn forget(server: &Server, client: &Client) {
    client.closed.set(true);
    server.waits.withdraw(client.id);
    {
        let session = &mut client.state.borrow_mut().session;
        unwatch(&server.shard, session.watched.take());
        server.pubsub.borrow_mut().remove_all(session);
        monitor::end(server, session);
        journal::end(server, session);
        tracking::end(server, session);
        live::end(server, session);
    }
    publish_counts(server);
    server.remove_client(client.id);
    server.strangers.remove(client.id);
    leave_nothing(server, client);
    server.global.connections[server.shard.id].fetch_sub(1, Ordering::Relaxed);
}

/// Gives back what a closed connection holds, although others may know it for some time.
fn leave_nothing(server: &Server, client: &Client) {
    let mut state = client.state.borrow_mut();
    if std::mem::take(&mut state.flow.paused) {
        server.paused.borrow_mut().retain(|paused| paused.id != client.id);
    }
    for target in std::mem::take(&mut state.flow.stalled_shards) {
        server.shard.let_go_on(target, client.id, true);
    }
    let_go_of_input(&mut state);
    state.replies = Replies::default();
    state.flow.transient.set(0);
    server.client_memory.forget(&mut state);
}

/// Runs what a connection has sent, `fresh` included, as far as it can run now, and sends the replies.
pub fn advance(server: &Rc<Server>, client: &ClientRef, fresh: &[u8]) {
    if client.closed.get() {
        return;
    }
    // What comes in then may answer this connection, too.
    server.shard.begin_turn();
    server.shard.durable.take_shown();
    {
        let mut state = client.state.borrow_mut();
        let state = &mut *state;
        if state.replies.is_idle() {
            state.flow.barrier = false;
        }
        if state.replies.out.capacity() == 0 {
            state.replies.out = server.spare_buffer();
        }
        let mut pace = Pace::new(server.shard.clock.now().us);
        if client.replays() {
            take_in(server, client, state, fresh, &mut pace);
        } else if state.flow.close != Close::No {
            let_go_of_input(state);
        } else if client.postponed.get() {
            // Its turn comes after the others', however much it says.
            match state.runs_later() {
                true => state.ahead.push(fresh),
                false => state.input.extend_from_slice(fresh),
            }
            state.flow.waiting = true;
        } else if state.runs_later() {
            state.ahead.push(fresh);
            take_in(server, client, state, &[], &mut pace);
            go_ahead(server, client, state, &mut pace);
        } else {
            take_in(server, client, state, fresh, &mut pace);
        }
        if state.flow.is_stranger {
            trim_input(state);
        }
        state.parser.trim();
        state.replies.for_disk.show((server.shard.id as u16, server.shard.durable.take_shown()));
        if !client.replays() {
            check_input(server, state);
        }
        if state.replies.out.is_empty() {
            server.keep_buffer(std::mem::take(&mut state.replies.out));
        }
    }
    server.shard.after_commands();
    if matches!(server.transport, Transport::Sockets(_)) {
        // The ring reads the clock when it has worked on all connections; nothing else would before the next comes.
        server.shard.meter.lap_noted();
    }
    monitor::send_shown(server);
    if server.users.has_refused() {
        server.log_refused();
    }
    settle(server, client);
}

/// Nothing that the connection has said, or says, runs any more.
fn let_go_of_input(state: &mut State) {
    state.input = Vec::new();
    state.at = 0;
    state.ahead = Ahead::default();
}

/// Runs what was received, behind what was received before.
fn take_in(server: &Rc<Server>, client: &ClientRef, state: &mut State, fresh: &[u8], pace: &mut Pace) {
    if state.input.is_empty() {
        let used = run(server, client, state, fresh, pace);
        state.input.extend_from_slice(&fresh[used..]);
    } else {
        if state.input.capacity() - state.input.len() < fresh.len() {
            make_room(state, fresh.len());
        }
        state.input.extend_from_slice(fresh);
        let input = std::mem::take(&mut state.input);
        state.at += run(server, client, state, &input[state.at..], pace);
        state.input = input;
        tidy_input(state);
    }
}

/// Runs what was kept while nobody read the replies, as far as it can run now.
#[cold]
fn go_ahead(server: &Rc<Server>, client: &ClientRef, state: &mut State, pace: &mut Pace) {
    while state.may_run() && !state.flow.waiting {
        let Some(piece) = state.ahead.pop() else { break };
        take_in(server, client, state, &piece, pace);
        if !state.ahead.is_empty() && !state.flow.waiting && pace.is_long() {
            state.flow.waiting = true;
            server.postpone(client);
        }
    }
}

/// Input that a connection may keep allocated while it has nothing to say.
const KEPT_INPUT_BYTES: usize = 4 * 1024;
/// Input of this length is made room for with care.
const LONG_INPUT_BYTES: usize = 1 << 20;

/// Drops what was used of the input, without moving the rest each time.
fn tidy_input(state: &mut State) {
    if state.at == state.input.len() {
        state.input.clear();
        state.input.shrink_to(KEPT_INPUT_BYTES);
        state.at = 0;
    } else if state.at > state.input.len() / 2 {
        state.input.drain(..state.at);
        state.at = 0;
    }
}

/// What a stranger has said in one go may have taken more room than the rest of it needs.
#[cold]
fn trim_input(state: &mut State) {
    if state.input.capacity() > 2 * state.input.len().max(KEPT_INPUT_BYTES) {
        state.input.shrink_to(state.input.len());
    }
}

/// Makes room for all of a long argument once a good part of it is there: a vector that doubles again and again moves it as
/// often, the last time nearly all of it at once.
#[cold]
fn make_room(state: &mut State, fresh_bytes: usize) {
    let len = state.input.len();
    if len < LONG_INPUT_BYTES {
        return;
    }
    let end = state.parser.end_of_argument(&state.input[state.at..]).map_or(0, |end| state.at + end);
    // What somebody only says will come takes no memory.
    if end > len && end / 16 <= len {
        // (With the argument the begin of the next request may have come.)
        state.input.reserve_exact((end - len).max(fresh_bytes));
    }
}

fn check_input(server: &Server, state: &mut State) {
    let queued_bytes = state.session.multi.as_ref().map_or(0, |multi| multi.bytes());
    // A connection that is not read until its next request runs is not ended for what had come by then; what is kept while nobody
    // reads the replies has a bound of its own, see `State::is_to_be_kept`.
    let is_held = !state.flow.waits() && (state.flow.waiting || !state.may_run());
    let input_bytes = if is_held { 0 } else { state.input_bytes() };
    if input_bytes + queued_bytes > server.shard.config().client_query_buffer_limit_bytes {
        log::warning(format_args!(
            "Closing client that reached max query buffer length: id={} addr={}",
            state.session.peer.id, state.session.peer.addr
        ));
        server.global.past_input_limit.fetch_add(1, Ordering::Relaxed);
        condemn(server, state.session.peer.id, state);
    }
}

/// Runs requests from `bytes` until one must wait; returns how many bytes are done with.
fn run(server: &Rc<Server>, client: &ClientRef, state: &mut State, bytes: &[u8], pace: &mut Pace) -> usize {
    if server.client_memory.is_bounded() && must_wait_for_memory(server, client, state, bytes) {
        state.flow.waiting = true;
        server.go_on_later(client);
        return 0;
    }
    if server.shard.gives_much() && !client.replays() {
        state.flow.waiting = true;
        server.postpone(client);
        return 0;
    }
    let config = server.shard.config();
    let space = server.shard.space();
    let conditions = if client.replays() { of_the_past() } else { server.conditions(space) };
    // (Nobody sees the order between the shards in which a log is done.)
    let strict = config.pipeline_order == PipelineOrder::Strict && client.source != Source::Log;
    state.session.gate = match state.flow.stepping.is_empty() {
        true => Gate::of(state.session.standing(), &conditions),
        false => Gate::closed(),
    };
    state.session.used_us = server.shard.clock.now().us;
    state.flow.waiting = false;
    state.flow.is_stranger = !state.session.authenticated && conditions.has_password;
    let (mut used, mut received) = (0, Received::none());
    while state.may_run() {
        let State { session, replies, parser, flow, .. } = &mut *state;
        let authenticated = session.authenticated || !conditions.has_password;
        flow.is_stranger = !authenticated;
        let bulk_bytes = if client.replays() { REPLAYED_BYTES } else { config.limits.string_bytes };
        let limits = Limits { bulk_bytes, authenticated };
        received.read(server, session.db, parser, &bytes[used..], limits);
        let mut turn = Turn { server, client, session, replies, flow, conditions, strict };
        for (index, item) in received.items.iter().enumerate() {
            if !turn.flow.may_run(turn.replies.bytes()) {
                parser.start_anew();
                return used;
            }
            let rest = &bytes[used..];
            let request = if item.inline { parser.request(rest) } else { parser.request_at(item.spans, rest) };
            if let Some(found) = &item.found
                && dispatch::request(&mut turn, request, found, item.key) == Progress::NotYet
            {
                turn.flow.waiting = true;
                parser.start_anew();
                return used;
            }
            used += item.len;
            let more = index + 1 < received.items.len() || matches!(received.end, End::Full);
            if more && pace.is_long() {
                turn.flow.waiting = true;
                parser.start_anew();
                server.postpone(client);
                return used;
            }
        }
        match std::mem::replace(&mut received.end, End::Full) {
            End::Full => {}
            End::Incomplete => break,
            // What came before it decides: it may be read again under other limits, or never.
            End::Error(_) if !turn.flow.may_run(turn.replies.bytes()) => {
                parser.start_anew();
                break;
            }
            End::Error(error) => {
                turn.reply(false, |reply| reply.error(Error::err(error)));
                turn.flow.close = Close::AfterReplies;
                break;
            }
        }
    }
    used
}

/// Whether a connection has to wait until others are ended that hold too much.
fn must_wait_for_memory(server: &Server, client: &Client, state: &State, bytes: &[u8]) -> bool {
    let session = &state.session;
    let is_spared = client.replays() || session.no_evict || session.follows || session.replica.is_some();
    !is_spared && server.client_memory.must_wait(bytes.len(), state.unsent())
}

/// Lets paused connections go on when the time has come.
pub async fn resume_paused(server: Rc<Server>) {
    loop {
        server.pause_watch.wait().await;
        loop {
            let until_us = server.global.pauses.until_us();
            let rest_us = until_us.saturating_sub(store_us());
            if rest_us == 0 || server.paused.borrow().is_empty() {
                break;
            }
            or(server.pause_watch.wait(), sleep(Duration::from_micros(rest_us + 100))).await;
        }
        let waiting = server.paused.take();
        for client in waiting {
            client.state.borrow_mut().flow.paused = false;
            advance(&server, &client, &[]);
        }
    }
}

/// Lets connections go on that had to wait because too much was on its way to other shards, or memory was short,
/// or connections held too much.
pub async fn resume_unread(server: Rc<Server>) {
    let (shard, memory) = (&server.shard, &server.client_memory);
    loop {
        server.unread.gathers().await;
        shard.decongested().await;
        shard.room_made().await;
        memory.not_full().await;
        let is_too_much = || shard.is_congested() || shard.awaits_room() || memory.is_full();
        server.unread.let_go_on(|client| advance(&server, client, &[]), is_too_much);
    }
}

/// Lets connections go on whose next request would have changed something while too much was to be written to the log.
pub async fn resume_unlogged(server: Rc<Server>) {
    let log = &server.global.log;
    let go_on = |client: &ClientRef| {
        advance(&server, client, &[]);
        // What this one has changed counts for the next one.
        server.shard.hand_over_records();
    };
    loop {
        server.unlogged.gathers().await;
        crowd::relief_of(log).await;
        server.unlogged.let_go_on(go_on, || crowd::must_wait_for(log));
    }
}

/// Lets connections go on whose next request had a script in its way.
pub async fn look_at_held(server: Rc<Server>) {
    let mut took = Duration::ZERO;
    loop {
        let held = server.held_up.next(took).await;
        let began_us = store_us();
        held.iter().for_each(|client| advance(&server, client, &[]));
        took = Duration::from_micros(store_us().saturating_sub(began_us));
    }
}

/// Lets connections go on that had to wait since there were too many wrong passwords where they come from.
pub async fn look_at_slowed(server: Rc<Server>) {
    loop {
        let due = server.slowed.next().await;
        due.iter().for_each(|client| advance(&server, client, &[]));
    }
}

/// Lets replies leave that have stayed for those behind them.
pub async fn let_early_go(server: Rc<Server>) {
    loop {
        let due = server.early.next().await;
        due.iter().for_each(|client| server.transport.mark(client.line));
    }
}

/// Lets connections go on as the disk does.
pub async fn follow_disk(server: Rc<Server>) {
    let mut looked = 0;
    loop {
        rung_outside(&mut looked).await;
        journal::show(&server);
        if !server.logging.is_awaited() {
            continue;
        }
        server.logging.await_disk();
        server.logging.sound_alarms();
        let waiting = server.logging.waiting.take();
        for client in waiting {
            let (is_ready, waits_on) = {
                let replies = &mut client.state.borrow_mut().replies;
                let is_ready = replies.let_out(|shows| server.logging.keep_missing(shows));
                (is_ready, !replies.for_disk.is_empty())
            };
            if waits_on && !client.closed.get() {
                server.logging.waiting.borrow_mut().push(client.clone());
            }
            if is_ready {
                advance(&server, &client, &[]);
            }
        }
    }
}

/// Lets connections go on where the disk, or another shard, lets what they show wait for too long.
pub async fn follow_late(server: Rc<Server>) {
    loop {
        server.logging.settles_late().await;
        server.global.log.look();
    }
}

/// Once a second: strangers that have had `auth-timeout`, connections that are idle for longer than `timeout`, output limits
/// that go by time, room for what is kept of pipelines, the peak of memory, the rates that INFO tells.
pub async fn look_after(server: Rc<Server>) {
    server.stats.sample(store_us());
    loop {
        sleep(Duration::from_secs(1)).await;
        server.stats.sample(store_us());
        memory::used_bytes();
        server.shard.trim_kept();
        let config = server.shard.config();
        end_late_strangers(&server, config.auth_timeout_s);
        if server.awaits_room_ahead.take() {
            server.clients().iter().for_each(|client| settle(&server, client));
        }
        let timed = config.timeout_s > 0;
        let limits = config.client_output_buffer_limit;
        if !timed && limits.pubsub.soft_bytes == 0 && limits.normal.soft_bytes == 0 {
            continue;
        }
        let now_us = store_us();
        for client in server.clients() {
            let (idle_us, waits, unsent) = {
                let mut state = client.state.borrow_mut();
                // What has not left by now is read by nobody.
                state.flow.transient.set(0);
                if let Some(held) = &state.wrapped {
                    held.transient.borrow_mut().set(0);
                }
                let idle_us = now_us.saturating_sub(state.session.used_us);
                let session = &state.session;
                let is_replica = session.replica.is_some();
                // Who is not read since there is too much of something, or waits for a reply that the disk holds, is not idle.
                let is_kept_waiting = state.replies.waits_for_disk() || client.unread.get();
                let waits = session.is_told()
                    || is_replica
                    || session.is_sent_snapshot
                    || state.flow.waits()
                    || is_kept_waiting;
                (idle_us, waits, state.unsent())
            };
            if timed && !waits && !client.replays() && idle_us > config.timeout_s * 1_000_000 {
                log::verbose(format_args!("Closing idle client id={}", client.id));
                close_now(&server, &client);
            } else if unsent > 0 {
                check_output(&server, &client);
            }
        }
    }
}

/// Ends those who should have said by now who they are.
fn end_late_strangers(server: &Server, timeout_s: u64) {
    let now_us = store_us();
    if !server.users.asks_for_password() {
        // Should a password be asked for later, they have all the time from then on.
        server.strangers.begin_anew(now_us);
        return;
    }
    if timeout_s == 0 {
        return;
    }
    for id in server.strangers.late(now_us, timeout_s * 1_000_000) {
        if let Some(client) = server.client(id) {
            log::verbose(format_args!("Closing client that has not authenticated in time: id={id}"));
            close_now(server, &client);
        }
    }
}
