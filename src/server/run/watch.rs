//! WATCH: a watched key is known to its shard, with the number of its last change. EXEC compares that number under the
//! locks of its transaction.

use super::in_the_way::{self, Holder};
use crate::clock::Now;
use crate::command::{self, Ctx, OwnedRequest};
use crate::keyspace::Watch;
use crate::resp::{Error, Request, Result};
use crate::server::admit::IS_LOADING;
use crate::server::client::watched::{WatchedKey, by_shard};
use crate::server::state::TaskCtx;
use crate::shard::{Lock, Shard, Transaction};
use crate::value::number::parse_u64;
use ahash::RandomState;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

/// Forgets watched keys, here and on other shards.
pub fn unwatch(shard: &Rc<Shard>, watched: Vec<WatchedKey>) {
    for (target, keys) in by_shard(watched) {
        let forget = move |shard: &Rc<Shard>| {
            let mut keyspace = shard.keyspace.borrow_mut();
            keys.iter().for_each(|of| keyspace.unwatch(of.db, &of.key));
        };
        if target == shard.id {
            forget(shard);
        } else {
            shard.tell(target, forget);
        }
    }
}

/// WATCH. What changes from now on makes EXEC fail.
pub async fn watch(ctx: TaskCtx) -> Result<Vec<u8>> {
    if ctx.client.state.borrow().session.multi.is_some() {
        return Err(Error::text("ERR WATCH inside MULTI is not allowed"));
    }
    if ctx.server.global.snapshots.is_loading() {
        // What is loaded holds everything, and EXEC would answer this anyhow.
        return Err(IS_LOADING);
    }
    let shard = &ctx.server.shard;
    let keys = ctx.request.as_request();
    let route =
        |key: &[u8]| (command::shard_of(&shard.hasher, key), Lock { hash: shard.hasher.hash(key), write: false });
    // What a transaction is about to change counts as changed before, so it is waited for.
    let now = shard.catch_up();
    let here = |key| matches!(route(key), (target, lock) if target == shard.id && !shard.is_locked(lock));
    let transaction = match keys.from(1).all(here) {
        true => None,
        false => {
            let holder = Holder { command: ctx.command, request: keys, replays: ctx.client.replays(), own: None };
            Some(in_the_way::hold(&ctx.server, keys.from(1).map(route), holder).await?)
        }
    };
    let mut of_shard: BTreeMap<usize, Vec<Box<[u8]>>> = BTreeMap::new();
    let mut named = HashSet::with_hasher(RandomState::new());
    for key in keys.from(1) {
        let is_known = ctx.client.state.borrow().session.watched.contains(ctx.db, key);
        if !is_known && named.insert(key) {
            of_shard.entry(route(key).0).or_default().push(key.into());
        }
    }
    let db = ctx.db;
    for (target, keys) in of_shard {
        let look = move |shard: &Shard, now: Now| {
            let mut keyspace = shard.keyspace.borrow_mut();
            let watch = |key: Box<[u8]>| WatchedKey { db, watch: keyspace.watch(db, &key, now), key, shard: shard.id };
            keys.into_iter().map(watch).collect::<Vec<WatchedKey>>()
        };
        let found = match &transaction {
            Some(transaction) => transaction.on(target, look).await,
            None => look(shard, now),
        };
        if ctx.client.closed.get() {
            // Nobody else would forget them.
            unwatch(shard, found);
        } else {
            let watched = &mut ctx.client.state.borrow_mut().session.watched;
            found.into_iter().for_each(|key| watched.add(key));
        }
    }
    shard.after_commands();
    Ok(ctx.reply(|reply| reply.ok()))
}

const CHANGED: Error = Error::text("ABORT a watched key has changed");

/// The guard of a transaction, on the shard of the watched keys: they are as they were, and are forgotten. Its
/// arguments are four for each key: database, key, the number of its last change, and 0 where it was not there, else one
/// more than the fields it had.
pub fn check_watched(ctx: &mut Ctx, request: Request) -> Result {
    let number = |index| parse_u64(request.arg(index)).expect("written by ourselves");
    let watched = (0..request.len()).step_by(4).map(|index| {
        let watch = Watch { version: number(index + 2), fields: number(index + 3).checked_sub(1) };
        (number(index) as usize, request.arg(index + 1), watch)
    });
    if ctx.keyspace.end_watches(watched, ctx.now) { Ok(()) } else { Err(CHANGED) }
}

pub fn watched_args(watched: &[WatchedKey]) -> OwnedRequest {
    let mut args = OwnedRequest::default();
    for WatchedKey { db, key, watch, .. } in watched {
        args.push(db.to_string().as_bytes());
        args.push(key);
        args.push(watch.version.to_string().as_bytes());
        args.push(watch.fields.map_or(0, |fields| fields + 1).to_string().as_bytes());
    }
    args
}

/// Whether all watched keys are as they were. They are forgotten.
pub async fn are_unchanged(transaction: &Rc<Transaction>, watched: Vec<WatchedKey>) -> bool {
    let mut answers = Vec::new();
    for (target, watched) in by_shard(watched) {
        let check = move |shard: &Shard, now: Now| {
            shard.keyspace.borrow_mut().end_watches(watched.iter().map(WatchedKey::seen), now)
        };
        answers.push(transaction.on(target, check));
    }
    let mut same = true;
    for answer in answers {
        same &= answer.await;
    }
    same
}
