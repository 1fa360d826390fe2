//! SAVE: all shards write what they have, while nobody changes anything, into one file.

use super::server::Server;
use crate::clock::realtime_us;
use crate::net::{next_from_outside, sleep};
use crate::observe::{log, memory};
use crate::persist::writing::{self, How, Offered, Pieces};
use crate::rdb::file;
use crate::resp::{Error, Result};
use crate::shard::snapshot::Sizes;
use crate::shard::{EVERYTHING, Lock, Shard, Transaction};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long to wait for the disk.
const FULL: Duration = Duration::from_millis(1);
/// The field in which a policy stands: its prefix and its words, with zero bytes between them.
pub const POLICY: &str = "emberdb-policy";
/// The version of Redis that understands what is written.
const REDIS_VERSION: &[u8] = b"7.0.15";

/// Nobody but this transaction touches anything, on any shard.
pub async fn hold_everything(shard: &Rc<Shard>) -> Transaction {
    let all = (0..shard.count).map(|target| (target, Lock { hash: EVERYTHING, write: true }));
    let transaction = shard.hold(all).await;
    for target in 0..shard.count {
        // Until it is this transaction's turn there.
        transaction.on(target, |_, _| ()).await;
    }
    transaction
}

/// Writes the file that `dbfilename` names, as of one moment of all shards.
pub async fn save(server: &Rc<Server>) -> Result {
    let transaction = hold_everything(&server.shard).await;
    let saved = save_held(server).await;
    drop(transaction);
    saved
}

/// The same for somebody who holds everything.
pub async fn save_held(server: &Rc<Server>) -> Result {
    let snapshots = &server.global.snapshots;
    if snapshots.is_saving.swap(true, Ordering::Relaxed) {
        return Err(Error::text("ERR Background save already in progress"));
    }
    let saved = write(server).await;
    snapshots.is_saving.store(false, Ordering::Relaxed);
    snapshots.has_failed.store(saved.is_err(), Ordering::Relaxed);
    match saved {
        Ok(changes) => {
            snapshots.saved_changes.store(changes, Ordering::Relaxed);
            snapshots.last_save_s.store(realtime_us() / 1_000_000, Ordering::Relaxed);
            snapshots.saves.fetch_add(1, Ordering::Relaxed);
            log::notice(format_args!("DB saved on disk"));
            Ok(())
        }
        Err(reason) => {
            log::warning(format_args!("Error saving DB on disk: {reason}"));
            Err(Error::err(format_args!("Error saving DB on disk: {reason}")))
        }
    }
}

/// How many changes the file has.
async fn write(server: &Rc<Server>) -> std::result::Result<u64, String> {
    let (shard, config) = (&server.shard, server.shard.config());
    let is_ours = server.global.snapshots.claim(&config.dir, &config.dbfilename).map_err(|error| error.to_string())?;
    if !is_ours {
        return Err(format!("'{}' in '{}' belongs to another server that runs", config.dbfilename, config.dir));
    }
    let sizes = shard.call_all(|shard| shard.sizes()).await;
    let how = How { checksum: config.rdbchecksum, in_steps: config.rdb_save_incremental_fsync };
    let (bells, me) = (server.global.bells.clone(), shard.id);
    let begun = writing::begin(&config.dbfilename, how, move || bells[me].ring_from_outside());
    let (pieces, outcome) = begun.map_err(|error| error.to_string())?;
    if send(&pieces, head(server, &sizes)).await {
        let of_all = pieces.clone();
        let written = shard.call_all_later(move |shard| shard.write_down(of_all)).await;
        while written.iter().all(|written| *written) && !pieces.end() {
            sleep(FULL).await;
        }
    }
    drop(pieces);
    match next_from_outside(&outcome).await {
        Some(Ok(_)) => Ok(sizes.iter().map(|sizes| sizes.changes).sum()),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("the thread that writes it has ended".to_owned()),
    }
}

async fn send(pieces: &Pieces, mut bytes: Vec<u8>) -> bool {
    loop {
        match pieces.offer(bytes) {
            Offered::Taken => return true,
            Offered::Over => return false,
            Offered::Full(again) => {
                bytes = again;
                sleep(FULL).await;
            }
        }
    }
}

/// What stands before the keys.
fn head(server: &Server, sizes: &[Sizes]) -> Vec<u8> {
    let mut out = Vec::new();
    let has_field_deadlines = sizes.iter().any(|sizes| sizes.has_field_deadlines);
    file::write_head(&mut out, if has_field_deadlines { file::VERSION_OF_FIELD_DEADLINES } else { file::VERSION });
    file::write_field(&mut out, "redis-ver", REDIS_VERSION);
    file::write_field(&mut out, "redis-bits", b"64");
    file::write_field(&mut out, "ctime", (realtime_us() / 1_000_000).to_string().as_bytes());
    file::write_field(&mut out, "used-mem", memory::used_bytes().to_string().as_bytes());
    file::write_field(&mut out, "aof-base", b"0");
    file::write_field(&mut out, "emberdb-ver", env!("CARGO_PKG_VERSION").as_bytes());
    for (prefix, policy) in &*server.shard.config().expiry_policies.lock() {
        let words: Vec<String> = std::iter::once(prefix.to_string()).chain(policy.words()).collect();
        file::write_field(&mut out, POLICY, words.join("\0").as_bytes());
    }
    for library in server.scripting.functions.catalog().libraries() {
        file::write_library(&mut out, &library.code);
    }
    let databases = sizes.first().map_or(0, |sizes| sizes.databases.len());
    for db in 0..databases {
        let of_all = sizes.iter().map(|sizes| sizes.databases[db]);
        let (keys, with_deadline) = of_all.fold((0, 0), |all, of| (all.0 + of.0, all.1 + of.1));
        if keys > 0 {
            file::write_db(&mut out, db);
            file::write_sizes(&mut out, keys, with_deadline);
        }
    }
    out
}
