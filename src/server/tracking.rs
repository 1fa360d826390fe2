//! CLIENT TRACKING: who is told that what it has read has changed.
//!
//! Each shard knows who has read its keys (`keyspace/tracking.rs`), and sends the names of those that have changed in a
//! turn to the shards of these connections. There they are put behind every reply that is still open, since one of these
//! may have what has changed.

use super::client::ClientRef;
use super::output;
use super::server::Server;
use super::session::Session;
use super::tracks::Tracks;
use crate::keyspace::{Invalidated, Names, Told};
use crate::resp::{Proto, Reply};
use crate::shard::Shard;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A connection tracks from now on in another way, or not any more.
pub async fn change(server: &Rc<Server>, client: &ClientRef, tracks: Option<Tracks>) {
    let (id, before) = (client.id, client.state.borrow_mut().session.tracks.take());
    let names = |tracks: Option<&Tracks>| tracks.map(|tracks| tracks.prefixes.clone()).unwrap_or_default();
    let (old, new) = (names(before.as_deref()), names(tracks.as_ref()));
    let tracker = tracks.as_ref().map(|tracks| tracks.tracker(id, server.shard.id));
    count(server, before.is_some(), tracks.is_some());
    client.state.borrow_mut().session.set_tracks(tracks.map(Box::new), server.shard.id);
    if old.is_empty() && new.is_empty() {
        return;
    }
    let (old, new) = (Arc::new(old), Arc::new(new));
    let of_shard = move |shard: &Rc<Shard>| {
        let effects = &mut shard.keyspace.borrow_mut().effects;
        old.iter().filter(|name| !new.contains(*name)).for_each(|name| effects.stop_listening(name, id));
        if let Some(tracker) = tracker {
            new.iter().for_each(|name| effects.listen(name, tracker));
        }
    };
    server.shard.call_all(of_shard).await;
    if client.closed.get() {
        // It has ended meanwhile.
        end(server, &mut client.state.borrow_mut().session);
    }
}

fn count(server: &Server, before: bool, after: bool) {
    let trackers = &server.global.trackers[server.shard.id];
    match (before, after) {
        (false, true) => drop(trackers.fetch_add(1, Ordering::Release)),
        (true, false) => drop(trackers.fetch_sub(1, Ordering::Release)),
        _ => {}
    }
}

/// A connection does not track any more, if it did.
pub fn end(server: &Server, session: &mut Session) {
    let Some(tracks) = session.tracks.take() else { return };
    session.set_tracks(None, server.shard.id);
    count(server, true, false);
    if tracks.prefixes.is_empty() {
        return;
    }
    let (id, prefixes) = (session.peer.id, Arc::new(tracks.prefixes));
    let stop = move |shard: &Shard| {
        let effects = &mut shard.keyspace.borrow_mut().effects;
        prefixes.iter().for_each(|name| effects.stop_listening(name, id));
    };
    for target in (0..server.shard.count).filter(|target| *target != server.shard.id) {
        let stop = stop.clone();
        server.shard.tell(target, move |shard| stop(shard));
    }
    stop(&server.shard);
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

/// Does something on a shard, when none of its connections is in use.
fn on_shard(server: &Rc<Server>, target: usize, work: impl FnOnce(&Rc<Server>) + Send + 'static) {
    if target == server.shard.id {
        let here = server.clone();
        server.shard.defer(move || work(&here));
    } else {
        server.shard.tell(target, move |shard| work(&Server::of(shard)));
    }
}

fn tell(server: &Rc<Server>, Told { readers, listeners }: &Told) {
    let each = readers.iter().map(|(id, names)| (*id, names));
    let all = listeners.iter().flat_map(|(ids, names)| ids.iter().map(|id| (*id, &**names)));
    for (id, names) in each.chain(all) {
        if let Some(client) = server.client(id) {
            push(server, &client, Some(names));
        }
    }
    output::send_pushed(server);
}

fn tell_all(server: &Rc<Server>) {
    server.clients().iter().for_each(|client| push(server, client, None));
    output::send_pushed(server);
}

/// Tells a connection, if it still wants to know, or the one that is told instead; without names, that nothing it
/// remembers holds.
fn push(server: &Rc<Server>, client: &ClientRef, names: Option<&Names>) {
    let (proto, redirect) = {
        let session = &client.state.borrow().session;
        let Some(tracks) = &session.tracks else { return };
        (session.proto, tracks.redirect)
    };
    match redirect {
        None if proto == Proto::Resp3 => output::push_behind(server, client, &invalidate(names)),
        None => {}
        Some((to, target)) => {
            let (names, from) = (names.cloned(), (client.id, server.shard.id));
            on_shard(server, target, move |server| redirected(server, to, from, names.as_ref()));
        }
    }
}

fn invalidate(names: Option<&Names>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, Proto::Resp3);
    reply.push(2);
    reply.bulk(b"invalidate");
    write_names(&mut reply, names);
    out
}

fn write_names(reply: &mut Reply, names: Option<&Names>) {
    match names {
        Some(names) => {
            reply.array(names.count);
            reply.raw(&names.bytes);
        }
        None => reply.nil(),
    }
}

/// Tells a connection of what another one has read. In RESP2 it is a message for those that listen.
fn redirected(server: &Rc<Server>, to: u64, (client, shard): (u64, usize), names: Option<&Names>) {
    let Some(told) = server.client(to) else {
        on_shard(server, shard, move |server| has_broken(server, client, to));
        return;
    };
    let (proto, listens) = {
        let session = &told.state.borrow().session;
        (session.proto, session.subscriptions() > 0)
    };
    if proto == Proto::Resp3 {
        output::push_behind(server, &told, &invalidate(names));
    } else if listens {
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, proto);
        reply.array(3);
        reply.bulk(b"message");
        reply.bulk(b"__redis__:invalidate");
        write_names(&mut reply, names);
        output::push_behind(server, &told, &out);
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
        output::push_behind(server, &client, &out);
        output::send_pushed(server);
    }
}
