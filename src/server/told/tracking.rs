//! CLIENT TRACKING: who is told that what it has read has changed.
//!
//! Each shard knows who has read its keys (`keyspace/tracking.rs`), and sends the names of those that have changed in a
//! turn to the shards of these connections. There they are put behind every reply that is still open, since one of these
//! may have what has changed.

use super::{on_shard, output};
use crate::keyspace::{Invalidated, Names, Told};
use crate::observe::memory::Transient;
use crate::resp::{Proto, Reply};
use crate::server::client::ClientRef;
use crate::server::client::session::Session;
use crate::server::client::tracks::{Mode, Tracks};
use crate::server::state::Server;
use crate::shard::Shard;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A connection tracks from now on, or in another way: it wants to hear of these prefixes, too.
pub async fn start(server: &Rc<Server>, client: &ClientRef, mut tracks: Tracks, added: Vec<Box<[u8]>>) {
    if client.closed.get() {
        return;
    }
    let tracker = tracks.tracker(client.id, server.shard.id);
    let all = {
        let session = &mut client.state.borrow_mut().session;
        let before = session.tracks.take();
        count(server, before.is_some(), true);
        let is_other = before.as_ref().is_some_and(|before| before.no_loop != tracks.no_loop);
        tracks.prefixes = before.map(|before| before.prefixes).unwrap_or_default();
        tracks.prefixes.extend(added.iter().cloned());
        let all = if is_other { tracks.prefixes.iter().cloned().collect() } else { added };
        session.set_tracks(Some(Box::new(tracks)), server.shard.id);
        all
    };
    for some in all.chunks(PREFIXES_A_TURN) {
        let some: Arc<[Box<[u8]>]> = some.into();
        let listen = move |shard: &Rc<Shard>| {
            let effects = &mut shard.keyspace.borrow_mut().effects;
            some.iter().for_each(|name| effects.listen(name, tracker));
        };
        server.shard.call_all(listen).await;
        if client.closed.get() {
            // What ended it did not know of these.
            stop_listening(server.clone(), client.id, all.clone()).await;
            return;
        }
    }
}

/// A connection does not track any more, if it did. When it is told nothing more, others know of it for a moment.
pub async fn stop(server: &Rc<Server>, client: &ClientRef) {
    let prefixes = take(server, &mut client.state.borrow_mut().session);
    stop_listening(server.clone(), client.id, prefixes).await;
}

/// The same for one that has ended, or begins anew: what it asks for next comes behind that everywhere.
pub fn end(server: &Server, session: &mut Session) {
    let (id, shard) = (session.peer.id, &server.shard);
    for some in take(server, session).chunks(PREFIXES_A_TURN) {
        let some: Arc<[Box<[u8]>]> = some.into();
        for target in (0..shard.count).filter(|target| *target != shard.id) {
            let some = some.clone();
            shard.tell(target, move |shard| forget(shard, &some, id));
        }
        forget(shard, &some, id);
    }
}

fn forget(shard: &Shard, prefixes: &[Box<[u8]>], client: u64) {
    let effects = &mut shard.keyspace.borrow_mut().effects;
    prefixes.iter().for_each(|name| effects.stop_listening(name, client));
}

fn take(server: &Server, session: &mut Session) -> Vec<Box<[u8]>> {
    let Some(tracks) = session.tracks.take() else { return Vec::new() };
    session.set_tracks(None, server.shard.id);
    count(server, true, false);
    tracks.prefixes.into_iter().collect()
}

async fn stop_listening(server: Rc<Server>, client: u64, prefixes: Vec<Box<[u8]>>) {
    for some in prefixes.chunks(PREFIXES_A_TURN) {
        let some: Arc<[Box<[u8]>]> = some.into();
        server.shard.call_all(move |shard| forget(shard, &some, client)).await;
    }
}

/// So many prefixes are noted by a shard before others have their turn.
const PREFIXES_A_TURN: usize = 1_000;

fn count(server: &Server, before: bool, after: bool) {
    let trackers = &server.global.trackers[server.shard.id];
    match (before, after) {
        (false, true) => drop(trackers.fetch_add(1, Ordering::Release)),
        (true, false) => drop(trackers.fetch_sub(1, Ordering::Release)),
        _ => {}
    }
}

/// Sends the names of what has changed on this shard to those who want to know.
#[cold]
pub fn hand_out(server: &Rc<Server>, Invalidated { by_shard, flushed }: Invalidated) {
    let shard = &server.shard;
    for (target, told) in by_shard {
        on_shard(server, target, move |server| tell(server, &told));
    }
    // Every shard is flushed in the same moment: one of them says so.
    if flushed && shard.id == 0 {
        let has_some = |target: &usize| server.global.trackers[*target].load(Ordering::Acquire) > 0;
        (0..shard.count).filter(has_some).for_each(|target| on_shard(server, target, tell_all));
    }
}

fn tell(server: &Rc<Server>, Told { readers, listeners, .. }: &Told) {
    // What a connection has read before it asked for prefixes is still noted where it was read, and means nothing now. (Who
    // asks for prefixes and wants no word of its own changes is told in the way of those that read.)
    let reads = |tracks: &Tracks| tracks.mode != Mode::Broadcast || tracks.no_loop;
    let listens = |tracks: &Tracks| tracks.mode == Mode::Broadcast;
    let each = readers.iter().filter_map(|(id, names)| Some((tracking(server, *id, reads)?, names)));
    let all = listeners.iter().flat_map(|(ids, names)| ids.iter().map(move |id| (*id, &**names)));
    let all = all.filter_map(|(id, names)| Some((tracking(server, id, listens)?, names)));
    for (client, names) in each.chain(all) {
        push(server, &client, Some(names));
    }
    output::send_pushed(server);
}

/// A connection, where it tracks like that.
fn tracking(server: &Server, id: u64, like: impl Fn(&Tracks) -> bool) -> Option<ClientRef> {
    let client = server.client(id)?;
    let is_like = client.state.borrow().session.tracks.as_deref().is_some_and(like);
    is_like.then_some(client)
}

fn tell_all(server: &Rc<Server>) {
    server.clients().iter().for_each(|client| push(server, client, None));
    output::send_pushed(server);
}

/// Tells a connection, if it still wants to know, or the one that is told instead; without names, that nothing it
/// remembers holds.
fn push(server: &Rc<Server>, client: &ClientRef, names: Option<&Names>) {
    let (proto, redirect, together) = {
        let session = &client.state.borrow().session;
        let Some(tracks) = &session.tracks else { return };
        (session.proto, tracks.redirect, tracks.mode == Mode::Broadcast)
    };
    match redirect {
        None if proto == Proto::Resp3 => output::push_names_behind(server, client, &invalidate(names, together)),
        None => {}
        Some((to, target)) => {
            let (names, from) = (names.cloned(), (client.id, server.shard.id));
            let transient = Transient::new(names.as_ref().map_or(0, |names| names.bytes.capacity()));
            on_shard(server, target, move |server| {
                redirected(server, to, from, names.as_ref(), together);
                drop(transient);
            });
        }
    }
}

fn invalidate(names: Option<&Names>, together: bool) -> Vec<u8> {
    let begin = |reply: &mut Reply| {
        reply.push(2);
        reply.bulk(b"invalidate");
    };
    messages(Proto::Resp3, names, together, begin)
}

/// One message with all names, or one for each of them: as in Redis, who hears of prefixes is sent them together, and who hears of
/// what it has read one by one. (There are clients that take two names of one MGET in one message for an error.)
fn messages(proto: Proto, names: Option<&Names>, together: bool, begin: impl Fn(&mut Reply)) -> Vec<u8> {
    /// Of a message, before its only name.
    const HEAD_BYTES: usize = 48;
    let (count, bytes) = names.map_or((1, 0), |names| (if together { 1 } else { names.count }, names.bytes.len()));
    let mut out = Vec::with_capacity(count * HEAD_BYTES + bytes);
    let mut reply = Reply::new(&mut out, proto);
    let mut message = |names: Option<(usize, &[u8])>| {
        begin(&mut reply);
        match names {
            Some((count, bytes)) => {
                reply.array(count);
                reply.raw(bytes);
            }
            None => reply.nil(),
        }
    };
    match names {
        Some(names) if !together => names.each().for_each(|name| message(Some((1, name)))),
        names => message(names.map(|names| (names.count, &names.bytes[..]))),
    }
    out
}

/// Tells a connection of what another one has read. In RESP2 it is a message for those that listen.
fn redirected(server: &Rc<Server>, to: u64, (client, shard): (u64, usize), names: Option<&Names>, together: bool) {
    let Some(told) = server.client(to) else {
        on_shard(server, shard, move |server| has_broken(server, client, to));
        return;
    };
    let (proto, listens) = {
        let session = &told.state.borrow().session;
        (session.proto, session.subscriptions() > 0)
    };
    if proto == Proto::Resp3 {
        output::push_names_behind(server, &told, &invalidate(names, together));
    } else if listens {
        let begin = |reply: &mut Reply| {
            reply.array(3);
            reply.bulk(b"message");
            reply.bulk(b"__redis__:invalidate");
        };
        output::push_names_behind(server, &told, &messages(proto, names, together, begin));
    }
    output::send_pushed(server);
}

/// The connection that was to be told instead is gone.
fn has_broken(server: &Rc<Server>, client: u64, to: u64) {
    let Some(client) = server.client(client) else { return };
    let proto = {
        let session = &mut client.state.borrow_mut().session;
        let Some(tracks) = session.tracks.as_mut().filter(|tracks| tracks.redirect.is_some_and(|(id, _)| id == to))
        else {
            return;
        };
        tracks.is_broken = true;
        session.proto
    };
    if proto == Proto::Resp3 {
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, proto);
        reply.push(2);
        reply.bulk(b"tracking-redir-broken");
        reply.int(to as i64);
        output::push_names_behind(server, &client, &out);
        output::send_pushed(server);
    }
}
