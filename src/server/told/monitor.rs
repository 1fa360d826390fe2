//! MONITOR: connections that see every command of all shards, as it is taken.
//!
//! Each shard writes a line for each command of its own connections, and hands the lines of a turn to its own monitors
//! and to the shards that have some, in their order.

use super::output::{self, close_now};
use crate::clock::realtime_us;
use crate::command::spec::Secrets;
use crate::command::spec::flag::{ADMIN, SKIP_MONITOR};
use crate::observe::log;
use crate::resp::Request;
use crate::server::client::ClientRef;
use crate::server::client::session::{Close, Session};
use crate::server::state::monitors::By;
use crate::server::state::{Command, Server};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// From now on a connection sees all commands.
pub fn begin(server: &Server, session: &mut Session) {
    let Some(client) = server.client(session.peer.id) else { return };
    session.monitors = true;
    server.monitors.clients.borrow_mut().push(client);
    server.global.monitors[server.shard.id].fetch_add(1, Ordering::Release);
}

/// It does not any more, if it did.
pub fn end(server: &Server, session: &mut Session) {
    if std::mem::take(&mut session.monitors) {
        server.monitors.clients.borrow_mut().retain(|client| client.id != session.peer.id);
        server.global.monitors[server.shard.id].fetch_sub(1, Ordering::Release);
    }
}

/// Shows a command, which has been taken. Commands for administrators are not shown, as in Redis.
#[cold]
pub fn show(server: &Server, session: &Session, db: usize, command: &Command, request: Request) {
    if command.spec.flags & (ADMIN | SKIP_MONITOR) == 0 {
        let shown = (command.row.secrets, request);
        server.monitors.write(By::Client(&session.peer), db, shown, realtime_us(), output::most_pushed_bytes(server));
    }
}

/// Shows that a script is called, before what it does.
#[cold]
pub fn show_call(server: &Server, session: &Session, request: Request) {
    let (db, most) = (session.db, output::most_pushed_bytes(server));
    server.monitors.write(By::Client(&session.peer), db, (Secrets::None, request), realtime_us(), most);
}

/// Shows a command of a script's.
#[cold]
pub fn show_script(server: &Server, db: usize, command: &Command, request: Request) {
    if command.spec.flags & (ADMIN | SKIP_MONITOR) == 0 {
        let shown = (command.row.secrets, request);
        server.monitors.write(By::Script, db, shown, realtime_us(), output::most_pushed_bytes(server));
    }
}

/// Hands out what was shown; to be called when no connection is in use.
#[inline]
pub fn send_shown(server: &Rc<Server>) {
    if server.monitors.has_lines() {
        hand_out(server);
    }
}

#[cold]
fn hand_out(server: &Rc<Server>) {
    let lines = server.monitors.take_lines();
    for target in (0..server.shard.count).filter(|target| *target != server.shard.id) {
        if server.global.monitors[target].load(Ordering::Acquire) > 0 {
            hand_to(server, target, lines.clone());
        }
    }
    see(server, &lines);
}

fn hand_to(server: &Server, target: usize, lines: Arc<[u8]>) {
    let bytes = lines.len();
    let on_their_way = server.monitors.on_their_way[target].clone();
    let before = on_their_way.fetch_add(bytes, Ordering::Relaxed);
    let lines = (before <= output::most_pushed_bytes(server)).then_some(lines);
    server.shard.tell(target, move |shard| {
        on_their_way.fetch_sub(bytes, Ordering::Relaxed);
        let server = Server::of(shard);
        match lines {
            Some(lines) => see(&server, &lines),
            None => end_all(&server),
        }
    });
}

/// This shard's monitors see what some shard's connections did.
fn see(server: &Rc<Server>, lines: &[u8]) {
    if lines.len() > output::most_pushed_bytes(server) {
        // Nobody may hold that.
        end_all(server);
        return;
    }
    let monitors = server.monitors.clients.borrow().clone();
    monitors.iter().for_each(|client| output::push(server, client, lines));
    output::send_pushed(server);
}

/// They have missed something.
fn end_all(server: &Server) {
    let is_open = |client: &ClientRef| client.state.borrow().flow.close != Close::Now;
    let monitors: Vec<ClientRef> = server.monitors.clients.borrow().iter().filter(|of| is_open(of)).cloned().collect();
    for client in monitors {
        log::warning(format_args!("Client id={} closed: it could not be told all that it monitors.", client.id));
        close_now(server, &client);
    }
}
