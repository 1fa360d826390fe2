//! Commands over several shards take effect at one moment, or not at all: what concurrent clients see is what one
//! thread could have answered.
//!
//! - *Histories*: clients record what they send and see, in random order from a seed, while shards are delayed;
//!   `linearizability/check.rs` looks for an order that explains it. Where there is none, the history is written to a
//!   file, and `replay` checks it again alone.
//! - *Transfers*: the sum of all accounts never differs, whoever leaves in the middle.
//! - *Sums*: the same where scripts and functions pay, whatever they have declared, in values of several types.
//! - *Contention*: everybody gets their turn on two keys that all want.
//!
//! Settings, as environment variables:
//! - `EMBERDB_TEST_SEED`: the first seed; a failure prints the one that it used
//! - `EMBERDB_TEST_HISTORIES`: how many histories each test records (default [`HISTORIES`])
//! - `EMBERDB_TEST_HISTORY`: a file for `replay`
//! - `EMBERDB_TEST_SUMS`: how many sums each test of those reads (default [`sums::READS`])
//! - `EMBERDB_TEST_TRANSFERS`: how many transfers are made (default [`transfers::TRANSFERS`])

#[path = "linearizability/check.rs"]
mod check;
#[path = "linearizability/check_test.rs"]
mod check_test;
#[path = "linearizability/contention.rs"]
mod contention;
#[path = "linearizability/history.rs"]
mod history;
#[path = "linearizability/keys.rs"]
mod keys;
#[path = "linearizability/model.rs"]
mod model;
#[path = "linearizability/sums.rs"]
mod sums;
#[path = "linearizability/transfers.rs"]
mod transfers;
#[path = "linearizability/workload.rs"]
mod workload;

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;
use std::{env, fs};

use crate::common::{Client, Kind, Server, Value, have_tool, setting};
use check::Verdict;
use history::History;
use keys::Keys;
use workload::Mix;

const HISTORIES: u64 = 3;
const KEYS: usize = 8;
/// A message waits for half of it on average: long against the way of a message, short enough for thousands.
const DELAY_US: u64 = 400;
/// So many histories may pass before one shows that parts of commands run on arrival.
const UNORDERED_HISTORIES: u64 = 20;

#[test]
fn one_shard_is_linearizable() {
    record_and_check(Kind::Ember { shards: 1 }, Mix::All);
}

#[test]
fn two_shards_are_linearizable() {
    record_and_check(Kind::Ember { shards: 2 }, Mix::All);
}

#[test]
fn four_shards_are_linearizable() {
    record_and_check(Kind::Ember { shards: 4 }, Mix::All);
}

#[test]
fn four_shards_are_linearizable_without_transactions() {
    record_and_check(Kind::Ember { shards: 4 }, Mix::WithoutTransactions);
}

#[test]
fn scripts_are_linearizable_on_one_shard() {
    record_and_check(Kind::Ember { shards: 1 }, Mix::Scripts);
}

#[test]
fn scripts_are_linearizable_on_two_shards() {
    record_and_check(Kind::Ember { shards: 2 }, Mix::Scripts);
}

#[test]
fn scripts_are_linearizable_on_four_shards() {
    record_and_check(Kind::Ember { shards: 4 }, Mix::Scripts);
}

/// The test's own test: where this one fails, the model or the search is at fault, not EmberDB.
#[test]
fn redis_is_linearizable() {
    if have_tool("redis-server") {
        record_and_check(Kind::Redis, Mix::All);
    }
}

/// The search finds what it is there for: without the order of transactions, halves of commands are seen.
#[test]
fn shards_without_an_order_of_transactions_are_not_linearizable() {
    let server = start(Kind::Ember { shards: 2 });
    debug(&mut server.client(), "DEBUG SET-TRANSACTION-ORDER 0");
    let keys = Keys::on_every_shard(&server, KEYS);
    server.delay_shards(DELAY_US);
    for seed in seeds(UNORDERED_HISTORIES) {
        let history = workload::record(&server, &keys, seed, Mix::All);
        if let Verdict::Violation { places, why } = check::check(&history) {
            eprintln!("seed {seed}: after {places} places {why}");
            return;
        }
    }
    panic!("no violation in {UNORDERED_HISTORIES} histories");
}

#[test]
#[ignore = "checks the history in the file that EMBERDB_TEST_HISTORY names"]
fn replay() {
    let path = env::var("EMBERDB_TEST_HISTORY").expect("EMBERDB_TEST_HISTORY names a file");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let history: History = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
    match check::check(&history) {
        Verdict::Linearizable { places } => println!("{path} is linearizable, found after {places} places"),
        Verdict::Violation { places, why } => panic!("{path} is not linearizable, after {places} places {why}"),
        Verdict::Undecided => panic!("{path}: the search gave up"),
    }
}

fn record_and_check(kind: Kind, mix: Mix) {
    let server = start(kind);
    let keys = Keys::on_every_shard(&server, KEYS);
    if kind.is_ember() {
        server.delay_shards(DELAY_US);
    }
    for seed in seeds(setting("EMBERDB_TEST_HISTORIES").unwrap_or(HISTORIES)) {
        // Every other history leaves what is dead to those who look at it.
        debug(&mut server.client(), &format!("DEBUG SET-ACTIVE-EXPIRE {}", seed % 2));
        let begin = Instant::now();
        let history = workload::record(&server, &keys, seed, mix);
        let recorded = begin.elapsed();
        let verdict = check::check(&history);
        let checked = begin.elapsed() - recorded;
        let fail = |why: &str| {
            let path = kept(&history, seed);
            panic!(
                "{kind:?}, EMBERDB_TEST_SEED={seed}: {why}\nagain: EMBERDB_TEST_HISTORY={} cargo test --test \
                 linearizability replay -- --ignored",
                path.display()
            );
        };
        match verdict {
            Verdict::Linearizable { places } => eprintln!(
                "{kind:?}, seed {seed}: {} operations, recorded in {recorded:.0?}, {places} places, checked in \
                 {checked:.0?}",
                history.operations.len()
            ),
            Verdict::Violation { places, why } => fail(&format!("after {places} places {why}")),
            Verdict::Undecided => fail("the search gave up"),
        }
    }
}

fn start(kind: Kind) -> Server {
    Server::start(kind, &["--enable-debug-command", "yes"])
}

#[track_caller]
fn debug(client: &mut Client, command: &str) {
    assert_eq!(client.call(command), Value::ok(), "{command}");
}

/// Seeds from the one that is asked for, or from a random one.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let first = setting("EMBERDB_TEST_SEED").unwrap_or_else(|| fastrand::u64(..u64::MAX / 2));
    first..first + count
}

/// The history in a file that stays.
fn kept(history: &History, seed: u64) -> PathBuf {
    let mut file = tempfile::Builder::new()
        .prefix(&format!("emberdb-history-{seed}-"))
        .suffix(".txt")
        .tempfile()
        .expect("a temporary file");
    write!(file, "{history}").expect("the history is written");
    file.keep().expect("the file stays").1
}
