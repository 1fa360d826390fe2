//! The task that writes deaths to streams. Each lot is one transaction: here the keys are gone, there the streams have
//! their entries, and nobody sees, nor does the journal keep, the one without the other.

use super::Shard;
use super::message::{At, Lock};
use crate::clock::Now;
use crate::command::deaths::{APPEND, entry_of};
use crate::command::{CommandId, OwnedRequest};
use crate::keyspace::Death;
use crate::net::sleep;
use crate::observe::log;
use crate::resp::{Error, Proto};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Deaths that are written in one transaction.
const LOT: usize = 128;
/// The same in bytes of their values.
const LOT_BYTES: usize = 256 << 10;
/// How long until it is looked again whether a pause is over.
const PAUSED_FOR: Duration = Duration::from_millis(1);

/// The entries for one shard: each a database, the hash of the stream and the request.
type Entries = Vec<(usize, u64, OwnedRequest)>;

pub(super) async fn write_deaths(shard: Rc<Shard>, xadd: CommandId) {
    loop {
        shard.deaths_alarm.wait().await;
        loop {
            // While clients are paused nothing is written.
            while shard.catch_up().us < shard.hold_until_us.get() {
                sleep(PAUSED_FOR).await;
            }
            let deaths = shard.keyspace.borrow_mut().deaths.take(LOT, LOT_BYTES);
            if deaths.is_empty() {
                break;
            }
            write_lot(&shard, deaths, xadd).await;
        }
    }
}

async fn write_lot(shard: &Rc<Shard>, deaths: Vec<Death>, xadd: CommandId) {
    let mut by_shard: BTreeMap<usize, Entries> = BTreeMap::new();
    let mut locks: Vec<(usize, Lock)> = Vec::new();
    for death in &deaths {
        let stream = shard.hasher.key(death.to.key.as_bytes());
        let target = shard.hasher.shard_of(stream);
        let entries = by_shard.entry(target).or_default();
        if !entries.iter().any(|(_, hash, _)| *hash == stream.hash) {
            locks.push((target, Lock { hash: stream.hash, write: true }));
        }
        entries.push((death.db, stream.hash, entry_of(death, &shard.clock)));
    }
    if shard.is_journaled() {
        // Who writes to such a key meanwhile tells of its death first, and needs not wait.
        locks.push((shard.id, Lock { hash: deaths[0].hash, write: true }));
    }
    let transaction = shard.hold(locks.into_iter()).await;
    if transaction.shards.contains(&shard.id) {
        let names: Vec<(usize, u64)> = deaths.iter().map(|death| (death.db, death.hash)).collect();
        transaction.on(shard.id, move |shard, now| shard.tell_of_deaths(&names, xadd, now)).await;
    }
    let (mut written, mut lost) = (0, 0);
    let mut results = Vec::new();
    for (target, entries) in by_shard {
        results.push(transaction.on(target, move |shard, now| shard.append_deaths(entries, xadd, now)));
    }
    for result in results {
        let (more, errors) = result.await;
        written += more;
        lost += errors.len() as u64;
        if let Some(error) = errors.first() {
            log::warning(format_args!("{} deaths could not be written to their stream: {error}", errors.len()));
        }
    }
    let mut keyspace = shard.keyspace.borrow_mut();
    keyspace.counters.deaths_written += written;
    keyspace.counters.deaths_lost += lost;
}

impl Shard {
    /// Tells the journal of deaths that it does not know of yet.
    fn tell_of_deaths(&self, names: &[(usize, u64)], xadd: CommandId, now: Now) {
        let at = At { write: true, ..At::unseen(xadd, 0, Proto::Resp2) };
        self.step_of(at, now, |ctx| {
            for &(db, hash) in names {
                if let Some(key) = ctx.keyspace.deaths.tell(db, hash) {
                    ctx.keyspace.effects.said.died(db, &key);
                }
            }
        });
    }

    /// Appends entries to streams of this shard; how many, and the errors of the others.
    fn append_deaths(&self, entries: Entries, xadd: CommandId, now: Now) -> (u64, Vec<Error>) {
        let (mut written, mut errors) = (0, Vec::new());
        for (db, hash, request) in entries {
            let at = At { write: true, hash, ..At::unseen(xadd, db, Proto::Resp2) };
            // It is no client's write: nothing is asked of policies.
            match self.step_of(at, now, |ctx| APPEND(ctx, request.as_request())).0 {
                Ok(()) => written += 1,
                Err(error) => errors.push(error),
            }
        }
        (written, errors)
    }
}
