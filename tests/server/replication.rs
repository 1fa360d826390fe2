//! Replication, with real servers on either side.
//!
//! - `EMBERDB_REPLICATION_STEPS`: how many commands the tests with random ones send (default [`STEPS`])
//! - `EMBERDB_REPLICATION_BREAKS`: how often the link is broken meanwhile (default [`BREAKS`])
//! - `EMBERDB_REPLICATION_SECONDS`: for how long what replicas show is checked (default [`prefix::SECONDS`])
//! - `EMBERDB_REPLICATION_SEED`: the seed of all that

#[path = "replication/breaks.rs"]
mod breaks;
#[path = "replication/ceiling.rs"]
mod ceiling;
#[path = "replication/crash.rs"]
mod crash;
#[path = "replication/deaths.rs"]
mod deaths;
#[path = "replication/encrypted.rs"]
mod encrypted;
#[path = "replication/groups.rs"]
mod groups;
#[path = "replication/harm.rs"]
mod harm;
#[path = "replication/leases.rs"]
mod leases;
#[path = "replication/loading.rs"]
mod loading;
#[path = "replication/migrate.rs"]
mod migrate;
#[path = "replication/pins.rs"]
mod pins;
#[path = "replication/policies.rs"]
mod policies;
#[path = "replication/prefix.rs"]
mod prefix;
#[path = "replication/primary.rs"]
mod primary;
#[path = "replication/protocol.rs"]
mod protocol;
#[path = "replication/replica.rs"]
mod replica;
#[path = "replication/roles.rs"]
mod roles;
#[path = "replication/sentinel.rs"]
mod sentinel;
#[path = "replication/unfit.rs"]
mod unfit;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use crate::common::{Kind, Server, wait_until};
use crate::propagation::same;

const STEPS: usize = 10_000;
const BREAKS: usize = 10;
/// For a replica to have everything.
const PATIENCE: Duration = Duration::from_secs(30);
/// A primary that waits for no more replicas, and on which tests may do what they want.
const PRIMARY: &[&str] = &["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
const QUICK: &[&str] = &["--repl-diskless-sync-delay", "0"];
/// A redis-server as replica ends where it cannot do what it is told.
const STRICT: &[&str] = &["--propagation-error-behavior", "panic", "--enable-debug-command", "yes"];

fn setting(name: &str, default: usize) -> usize {
    crate::common::setting(name).map_or(default, |value| value as usize)
}

fn seed() -> u64 {
    let seed = crate::common::setting("EMBERDB_REPLICATION_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("EMBERDB_REPLICATION_SEED={seed}");
    seed
}

/// A server that follows another one.
fn replica_of(primary: &Server, kind: Kind, flags: &[&str]) -> Server {
    let port = primary.port().to_string();
    Server::start(kind, &[&["--replicaof", "127.0.0.1", &port], flags].concat())
}

fn field(server: &Server, name: &str) -> String {
    server.info(name).unwrap_or_else(|| panic!("{name} is not told"))
}

fn wait_for(server: &Server, name: &str, value: &str) {
    assert!(wait_until(PATIENCE, || field(server, name) == value), "{name}: {}", field(server, name));
}

fn wait_for_link(replica: &Server) {
    wait_for(replica, "master_link_status", "up");
}

/// Waits until both have the same, for as long as the replica goes on: a million commands take their time on a machine that is busy.
fn settle(primary: &Server, replica: &Server) {
    let offset = || -> u64 { field(replica, "master_repl_offset").parse().expect("a number") };
    let mut before = offset();
    while !wait_until(PATIENCE, || same::differences(primary, replica).is_empty()) {
        let now = offset();
        assert!(now > before + PINGS_BYTES, "{}", same::differences(primary, replica).join("\n"));
        before = now;
    }
}

/// The same for one that may be a redis-server. 7.0 now and then takes what another command has left in `errno` for an error of SORT,
/// be the set one of integers: with [`STRICT`] that one ends, and has nothing to be compared.
fn settles(primary: &Server, replica: &Server) -> bool {
    let settled = catch_unwind(AssertUnwindSafe(|| settle(primary, replica)));
    let panic = settled.err();
    let reason = "One or more scores can't be converted into double' after processing the command 'sort'";
    let has_ended_by_sort = replica.kind() == Kind::Redis && replica.output().contains(reason);
    match panic {
        Some(panic) if !has_ended_by_sort => resume_unwind(panic),
        panic => panic.is_none(),
    }
}

/// What a primary says to a replica that lacks nothing is shorter.
const PINGS_BYTES: u64 = 1000;
