//! A connection that is shown every change of all shards, as commands in one order (DEBUG JOURNAL).
//!
//! Each shard hands the records of a turn to the shard of the connection, which brings them into one order. That begins
//! in one moment on all shards, so that no transaction is seen by some of them only.

use crate::journal::Record;
use crate::observe::log;
use crate::resp::{Error, Result};
use crate::server::client::session::Session;
use crate::server::run::in_the_way::let_pass;
use crate::server::state::Server;
use crate::server::state::follower::Follower;
use crate::server::told::output::{self, close_now};
use crate::shard::{EVERYTHING, Lock, Shard};
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// From now on a connection is shown all changes. There is one such connection at a time.
pub async fn begin(server: &Rc<Server>, client: u64) -> Result {
    let_pass(server).await?;
    let here = server.client(client).ok_or(Error::text("ERR the connection is gone"))?;
    let taken = server.global.journal_follower.compare_exchange(0, client, Ordering::AcqRel, Ordering::Acquire);
    if taken.is_err() {
        return Err(Error::text("ERR another connection is shown the journal already"));
    }
    {
        let mut state = here.state.borrow_mut();
        state.session.follows = true;
        // What is shown comes behind this command's reply.
        state.replies.hold_pushes();
    }
    let shard = &server.shard;
    *server.following.follower.borrow_mut() = Some(Follower::new(here, shard.count));
    let locks = (0..shard.count).map(|target| (target, Lock { hash: EVERYTHING, write: true }));
    let transaction = shard.hold(locks).await;
    let origin = shard.id;
    let begin = move |shard: &Shard| {
        Server::of(shard).following.target.set(Some((origin, client)));
        shard.set_journaled(true);
    };
    let begun: Vec<_> = (0..shard.count).map(|target| transaction.on(target, move |shard, _| begin(shard))).collect();
    for done in begun {
        done.await;
    }
    drop(transaction);
    if server.client(client).is_none() {
        // It has ended meanwhile.
        end_everywhere(server, client);
    }
    Ok(())
}

/// It is not any more, if it was.
pub fn end(server: &Server, session: &mut Session) {
    if std::mem::take(&mut session.follows) {
        server.following.follower.take();
        end_everywhere(server, session.peer.id);
        server.global.journal_follower.store(0, Ordering::Release);
    }
}

fn end_everywhere(server: &Server, client: u64) {
    let end = move |shard: &Shard| {
        let following = &Server::of(shard).following;
        if following.target.get().is_some_and(|(_, of)| of == client) {
            following.target.set(None);
            shard.set_journaled(false);
        }
    };
    for target in (0..server.shard.count).filter(|target| *target != server.shard.id) {
        server.shard.tell(target, move |shard| end(shard));
    }
    end(&server.shard);
}

/// Sends what this shard has changed to who follows.
#[cold]
pub fn hand_out(server: &Rc<Server>, records: Vec<Record>) {
    let Some((target, client)) = server.following.target.get() else { return };
    let (from, shard) = (server.shard.id, &server.shard);
    if target == from {
        // The connection may be in use.
        let server = server.clone();
        shard.clone().defer(move || show(&server, client, from, records));
        return;
    }
    let bytes = records.iter().flat_map(|record| &record.commands).map(|command| command.bytes.len()).sum();
    let on_their_way = server.following.on_their_way.clone();
    let before = on_their_way.fetch_add(bytes, Ordering::Relaxed);
    let records = (before <= output::most_pushed_bytes(server)).then_some(records);
    shard.tell(target, move |shard| {
        on_their_way.fetch_sub(bytes, Ordering::Relaxed);
        let server = Server::of(shard);
        match records {
            Some(records) => show(&server, client, from, records),
            None => give_up(&server, client),
        }
    });
}

fn show(server: &Rc<Server>, client: u64, from: usize, records: Vec<Record>) {
    let shown = match server.following.follower.borrow_mut().as_mut().filter(|follower| follower.client.id == client) {
        Some(follower) => (follower.client.clone(), follower.take_in(from, records)),
        None => return,
    };
    output::push(server, &shown.0, &shown.1);
    output::send_pushed(server);
}

/// It has missed something.
fn give_up(server: &Server, client: u64) {
    if let Some(client) = server.client(client) {
        log::warning(format_args!("Client id={} closed: it could not be shown all changes.", client.id));
        close_now(server, &client);
    }
}
