//! What leaves a connection: the replies of a turn, what is pushed to it between them, and the limits of both.

use super::client::{Client, ClientRef, State};
use super::server::Server;
use super::session::Close;
use crate::clock::store_us;
use crate::observe::log;
use std::rc::Rc;

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
        check_output(server, client);
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

/// Puts pushed bytes behind what the connection is about to be sent; they leave with [`send_pushed`].
pub fn push(server: &Server, client: &ClientRef, bytes: &[u8]) {
    if client.closed.get() {
        return;
    }
    {
        let mut state = client.state.borrow_mut();
        if state.flow.close == Close::Now {
            return;
        }
        state.replies.push(bytes);
    }
    let mut pushed = server.pushed.borrow_mut();
    if pushed.last().is_none_or(|last| last.id != client.id) {
        pushed.push(client.clone());
    }
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
    let limits = server.shard.config().client_output_buffer_limit;
    let over = {
        let mut state = client.state.borrow_mut();
        if state.flow.close == Close::Now {
            return;
        }
        let limit = if state.session.is_told() { limits.pubsub } else { limits.normal };
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
        log::warning(format_args!("Client id={} closed for overcoming of output buffer limits.", client.id));
        close_now(server, client);
    }
}

/// Ends a connection: what it still had to say or to hear is lost.
pub fn close_now(server: &Server, client: &Client) {
    server.waits.give_up(client.id);
    client.state.borrow_mut().flow.close = Close::Now;
    server.transport.shut(client.line);
}
