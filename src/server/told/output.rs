//! What leaves a connection: the replies of a turn, what is pushed to it between them, and the limits of both.

use crate::clock::store_us;
use crate::config::Config;
use crate::observe::log;
use crate::server::client::replies::Replies;
use crate::server::client::session::Close;
use crate::server::client::{Client, ClientRef, State};
use crate::server::state::Server;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Replies of so many bytes are held to the limits of output at once.
const CHECKED_BYTES: usize = 1 << 20;

/// The end of a turn: what is ready leaves, the connection is read again or not, or is closed.
pub fn settle(server: &Rc<Server>, client: &ClientRef) {
    if client.closed.get() {
        return;
    }
    if client.replays() {
        let state = &mut *client.state.borrow_mut();
        state.replies.out.clear();
        // Nobody reads the replies to a log: there is room for more at once.
        let_stalled_go_on(server, client.id, state);
        server.replayed.notify();
        return;
    }
    let (ready, backlog, reads, over) = {
        let mut state = client.state.borrow_mut();
        if !state.flow.stalled_shards.is_empty() {
            let_stalled_go_on(server, client.id, &mut state);
        }
        hold_for_disk(server, client, &mut state);
        let has_ready = !state.replies.out.is_empty();
        let ready = has_ready && !server.early.keeps(client, &mut state, server.shard.id);
        if ready {
            server.shard.gives(state.replies.out.len());
        }
        server.client_memory.count(&mut state);
        // (What is long may be past the limit before any of it has left.)
        let backlog = state.unsent() > state.replies.out.len() || state.replies.out.len() >= CHECKED_BYTES;
        let reads = state.may_read() || state.is_to_be_kept() && has_room_ahead(server, &state);
        (ready, backlog, reads, state.is_over())
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
        check_output(server, client);
    }
}

/// Whether more may be kept of what a connection sends. Where all have too much it is asked again each second.
fn has_room_ahead(server: &Server, state: &State) -> bool {
    let has_room = state.ahead.may_grow(server.shard.config().client_query_buffer_limit_bytes);
    if !has_room {
        server.awaits_room_ahead.set(true);
    }
    has_room
}

/// What is ready stays where it shows changes that are not settled: on the disk (`appendfsync always`), or in the file; and
/// where something before it does.
#[inline]
pub fn hold_for_disk(server: &Server, client: &ClientRef, state: &mut State) {
    if state.replies.for_disk.concerns_output() {
        hold_what_shows(server, client, state);
    }
}

/// As [`hold_for_disk`]; what leaves waits besides for what the shard has pushed to the log and is not settled there.
#[cold]
pub fn hold_for_settled(server: &Server, client: &ClientRef, state: &mut State) {
    let unsettled = server.logging.unsettled();
    if unsettled > 0 && state.replies.has_fresh() {
        state.replies.for_disk.show((server.shard.id as u16, unsettled));
    }
    hold_for_disk(server, client, state);
}

#[cold]
fn hold_what_shows(server: &Server, client: &ClientRef, state: &mut State) {
    let replies = &mut state.replies;
    if !replies.has_fresh() {
        return;
    }
    server.logging.keep_missing(&mut replies.for_disk.shows);
    if replies.for_disk.shows.is_empty() && replies.for_disk.is_empty() {
        return;
    }
    if replies.for_disk.is_empty() {
        server.logging.waiting.borrow_mut().push(client.clone());
    }
    replies.hold_for_disk();
    // The push that it waits for may be that of this turn, which need not end before something else comes.
    server.shard.end_turn_soon();
    server.logging.await_disk();
    server.global.log.count_held();
    // It may have come before that was said.
    replies.let_out(|shows| server.logging.keep_missing(shows));
}

/// What a reply shows that was made of what several shards have said: whatever they have handed over by now.
pub fn show_everything(server: &Server, state: &mut State) {
    state.replies.for_disk.show((server.shard.id as u16, server.shard.durable.everything()));
    if server.logging.is_on() {
        server.logging.pushed_by_others().for_each(|push| state.replies.for_disk.show(push));
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

/// Puts pushed bytes behind what the connection is about to be sent, before replies that are still open; they leave with
/// [`send_pushed`].
pub fn push(server: &Server, client: &ClientRef, bytes: &[u8]) {
    push_with(server, client, |replies| replies.push(bytes));
}

/// The same for what waits for no disk: the stream that replicas are sent.
pub fn push_unheld(server: &Server, client: &ClientRef, bytes: &[u8]) {
    if client.closed.get() || client.state.borrow().flow.close == Close::Now {
        return;
    }
    client.state.borrow_mut().replies.push(bytes);
    note_pushed(server, client);
}

fn note_pushed(server: &Server, client: &ClientRef) {
    let mut pushed = server.pushed.borrow_mut();
    if pushed.last().is_none_or(|last| last.id != client.id) {
        pushed.push(client.clone());
    }
}

fn push_with(server: &Server, client: &ClientRef, push: impl FnOnce(&mut Replies)) {
    if client.closed.get() {
        return;
    }
    {
        let mut state = client.state.borrow_mut();
        if state.flow.close == Close::Now {
            return;
        }
        push(&mut state.replies);
        if state.flow.blocked && is_past_limits(server, &mut state) {
            // What it waits for may come before the end of this turn.
            note_past_limits(server, client);
            condemn(server, client.id, &mut state);
        } else {
            show_everything(server, &mut state);
        }
    }
    note_pushed(server, client);
}

/// The same behind every reply that is still open, since what is pushed may come of the commands that these answer; but
/// for that of a command that waits for a key: it may be long until that is there.
pub fn push_behind(server: &Server, client: &ClientRef, bytes: &[u8]) {
    let waits = client.state.borrow().flow.blocked && !server.waits.is_over(client.id);
    push_with(server, client, |replies| put_behind(replies, waits, bytes));
}

fn put_behind(replies: &mut Replies, waits: bool, bytes: &[u8]) {
    if waits {
        replies.push(bytes);
    } else {
        replies.push_behind(bytes);
    }
}

/// The same for names of keys that have changed. The reply of a command that waits may be on its way, and have what is not
/// true any more.
pub fn push_names_behind(server: &Server, client: &ClientRef, bytes: &[u8]) {
    let waits = client.state.borrow().flow.blocked && !server.waits.is_decided(client.id);
    push_with(server, client, |replies| {
        let before_bytes = replies.memory_bytes();
        put_behind(replies, waits, bytes);
        // If keys had to go for the names of keys that have gone, there would be no end of it.
        if server.shard.max_bytes() > 0 {
            replies.note_transient(before_bytes);
        }
    });
}

/// What somebody who is told of what others do may hold, and what may be on its way to him.
pub fn most_pushed_bytes(server: &Server) -> usize {
    match server.shard.config().client_output_buffer_limit.pubsub.hard_bytes {
        0 => usize::MAX,
        bytes => usize::try_from(bytes).unwrap_or(usize::MAX),
    }
}

/// What may wait for a replica: as in Redis no less than what is kept for those that were away, since what such a one is
/// given at once is as much.
pub fn most_bytes_of_replica(config: &Config) -> usize {
    match config.client_output_buffer_limit.replica.hard_bytes {
        0 => usize::MAX,
        bytes => usize::try_from(bytes.max(config.repl_backlog_bytes)).unwrap_or(usize::MAX),
    }
}

/// Ends a replica for which too much waits.
pub fn end_slow_replica(server: &Server, client: &Client) {
    log::warning(format_args!(
        "Client id={} (a replica) scheduled to be closed ASAP for overcoming of output buffer limits.",
        client.id
    ));
    close_now(server, client);
}

/// Whether more has waited for a replica than the soft limit allows, for as long as it allows. To be asked each second.
pub fn is_slow_replica(server: &Server, client: &Client) -> bool {
    let limit = server.shard.config().client_output_buffer_limit.replica;
    let waits = server.following.waiting(client.id) as u64;
    let flow = &mut client.state.borrow_mut().flow;
    if limit.soft_bytes == 0 || waits <= limit.soft_bytes {
        flow.soft_since_us = None;
        return false;
    }
    let now_us = store_us();
    let since_us = *flow.soft_since_us.get_or_insert(now_us);
    now_us.saturating_sub(since_us) > limit.soft_s * 1_000_000
}

/// Sends what was pushed, once for each connection and turn; one that does not read is ended.
pub fn send_pushed(server: &Rc<Server>) {
    let pushed = server.pushed.take();
    for client in &pushed {
        settle(server, client);
        check_output(server, client);
    }
}

/// Ends connections whose output is past their class's limit.
pub fn check_output(server: &Server, client: &Client) {
    let over = is_past_limits(server, &mut client.state.borrow_mut());
    if over && !client.closed.get() {
        note_past_limits(server, client);
        close_now(server, client);
    }
}

fn note_past_limits(server: &Server, client: &Client) {
    server.global.past_output_limit.fetch_add(1, Ordering::Relaxed);
    log::warning(format_args!("Client id={} closed for overcoming of output buffer limits.", client.id));
}

/// Whether a connection that goes on has more to be sent than it may.
fn is_past_limits(server: &Server, state: &mut State) -> bool {
    if state.flow.close == Close::Now || state.session.is_sent_snapshot || state.session.replica.is_some() {
        // Of a snapshot, and of the stream, it is sent no more than it reads.
        return false;
    }
    let limits = server.shard.config().client_output_buffer_limit;
    let limit = if state.session.is_told() { limits.pubsub } else { limits.normal };
    let unsent = state.unsent() as u64;
    // What nobody asked for just now is held to the limit of those who listen, whatever else a connection is sent.
    let pushed = unsent.min(state.replies.pushed_bytes as u64);
    let now_us = store_us();
    let is_over = |limit: u64, bytes: u64| limit > 0 && bytes > limit;
    let soft = is_over(limit.soft_bytes, unsent) || is_over(limits.pubsub.soft_bytes, pushed);
    let soft_s = if is_over(limit.soft_bytes, unsent) { limit.soft_s } else { limits.pubsub.soft_s };
    let since_us = *state.flow.soft_since_us.get_or_insert(now_us);
    if !soft {
        state.flow.soft_since_us = None;
    }
    is_over(limit.hard_bytes, unsent)
        || is_over(limits.pubsub.hard_bytes, pushed)
        || soft && now_us.saturating_sub(since_us) > soft_s * 1_000_000
}

/// Ends a connection: what it still had to say or to hear is lost.
pub fn close_now(server: &Server, client: &Client) {
    condemn(server, client.id, &mut client.state.borrow_mut());
    server.transport.shut(client.line);
}

/// The same from within its turn, or where others have theirs: the socket is closed when [`settle`] is called. It is served
/// nothing from now on (see `shard/waiters.rs`). A connection whose own command is running does not wait, and needs but
/// be marked.
pub fn condemn(server: &Server, client: u64, state: &mut State) {
    server.waits.withdraw(client);
    state.flow.close = Close::Now;
    server.client_memory.count(state);
}
