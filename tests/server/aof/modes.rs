//! The log is turned on and off, and set to other ways of reaching the disk, while clients write and wait for it.

use super::files::killed;
use crate::common::seccomp::is_ring_refused;
use crate::common::{Kind, Server, Value, bulk, int, simple, wait_until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const WRITERS: i64 = 12;
const WRITES: i64 = 1_500;

/// EXEC held its keys while CONFIG SET waited for everything, those keys included: nobody was answered any more.
#[test]
fn a_transaction_can_end_the_log() {
    for shards in [1, 2] {
        let server = Server::start(Kind::Ember { shards }, &["--appendonly", "yes"]);
        let (mut client, mut other) = (server.client(), server.client());
        for line in ["MULTI", "INCR {a}n", "INCR {b}n"] {
            client.call(line);
        }
        client.call("CONFIG SET appendonly no");
        client.call("CONFIG SET hz 20");
        assert_eq!(client.call("EXEC"), Value::Array(vec![int(1), int(1), Value::ok(), Value::ok()]));
        assert_eq!(other.call("DBSIZE"), int(2));
        assert!(wait_until(PATIENCE, || server.info("aof_enabled").as_deref() == Some("0")));

        client.call("MULTI");
        client.call("CONFIG SET appendonly yes");
        client.call("INCR {a}n");
        client.call("CONFIG SET appendonly no appendfsync always");
        client.call("CONFIG SET appendonly yes");
        assert_eq!(client.call("EXEC"), Value::Array(vec![Value::ok(), int(2), Value::ok(), Value::ok()]));
        assert!(wait_until(PATIENCE, || server.info("aof_enabled").as_deref() == Some("1")));
        assert_eq!(other.call("INCR {b}n"), int(2));
    }
}

/// A reply waits for the push in which its change will be. Where the log ended, or did not hold replies any more, before
/// that push, the reply waited for ever.
#[test]
fn no_reply_is_forgotten_while_the_log_is_set_otherwise() {
    for shards in [1, 2] {
        let flags = ["--appendonly", "yes", "--appendfsync", "always"];
        let server = Server::start(Kind::Ember { shards }, &flags);
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let mut client = server.client();
                thread::spawn(move || {
                    (1..=WRITES).for_each(|n| assert_eq!(client.call(&format!("INCR n:{number}")), int(n)))
                })
            })
            .collect();
        let mut client = server.client();
        let mut round = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            let fsync = ["everysec", "always", "no", "always"][round % 4];
            assert_eq!(client.call(&format!("CONFIG SET appendfsync {fsync}")), Value::ok());
            if round % 10 == 9 {
                assert_eq!(client.call("CONFIG SET appendonly no"), Value::ok());
                assert_eq!(client.call("CONFIG SET appendonly yes"), Value::ok());
            }
            round += 1;
        }
        for writer in writers {
            writer.join().expect("every reply comes");
        }
        assert_eq!(client.call("PING"), simple("PONG"));
    }
}

/// Over glommio's sockets nothing ended a turn but what came next: what was acknowledged was not in the log until then, and
/// a reply that waited for the disk waited for that.
#[test]
fn a_turn_over_sockets_ends_without_another_one() {
    if is_ring_refused() {
        return;
    }
    for shards in [1, 2] {
        for fsync in ["everysec", "no", "always"] {
            let flags = ["--network", "glommio", "--appendonly", "yes", "--appendfsync", fsync, "--save", ""];
            let mut server = Server::start(Kind::Ember { shards }, &flags);
            for n in 1..=4 {
                let mut client = server.client();
                assert_eq!(client.call("INCR n"), int(n), "{fsync}");
                assert!(!client.call(&format!("XGROUP CREATE s:{n} g $ MKSTREAM")).is_error());
                // What changes nothing that the log has to say.
                assert!(client.call(&format!("XREADGROUP GROUP g c STREAMS s:{n} >")).is_null());
                assert_eq!(client.call(&format!("SET last {n}")), Value::ok());
                server.signal("KILL");
                server = server.restart(&flags);
                assert_eq!(server.client().call("GET last").text(), n.to_string(), "{fsync}");
            }
        }
    }
}

/// A rewrite that was under way when the log ended turned it on again, without files: replies waited for ever, and what was
/// acknowledged was in no log.
#[test]
fn a_rewrite_begins_no_log_that_has_ended() {
    let asks = ["BGREWRITEAOF", "CONFIG SET appendonly no", "CONFIG SET appendonly yes", "INCR n"];
    for (shards, seed) in [(1, 1), (1, 2), (3, 3)] {
        let mut rng = fastrand::Rng::with_seed(seed);
        let flags = ["--appendonly", "yes", "--appendfsync", "always"];
        let server = Server::start(Kind::Ember { shards }, &flags);
        let mut client = server.client();
        for round in 0..100 {
            let mut lines: Vec<&str> = (0..6).map(|_| asks[rng.usize(..asks.len())]).collect();
            lines.extend(["CONFIG SET appendonly yes", "SET last"]);
            let (last, lines) = lines.split_last().expect("there are some");
            lines.iter().for_each(|line| client.send(line));
            client.send(&format!("{last} {round}"));
            (0..=lines.len()).for_each(|_| drop(client.read()));
        }
        let has_begun = || server.info("aof_enabled").as_deref() == Some("1");
        assert!(wait_until(PATIENCE, || has_begun() && server.info("aof_rewrite_in_progress").as_deref() == Some("0")));
        assert_eq!(server.info("aof_last_bgrewrite_status").as_deref(), Some("ok"));
        assert_eq!(client.call("SET last kept"), Value::ok());
        let server = killed(server);
        assert_eq!(server.client().call("GET last"), bulk("kept"));
    }
}

/// A rewrite went on for as long as its base took, for a log that had ended, and snapshots were refused meanwhile.
#[test]
fn a_rewrite_ends_with_its_log() {
    for shards in [1, 3] {
        let server = Server::start(Kind::Ember { shards }, &["--appendonly", "yes"]);
        let mut client = server.client();
        (0..600).for_each(|number| assert_eq!(client.call(&format!("SET key:{number} 1")), Value::ok()));
        assert!(wait_until(PATIENCE, || server.info("aof_rewrite_in_progress").as_deref() == Some("0")));
        // (Each key takes a second.)
        client.call("CONFIG SET rdb-key-save-delay 1000000");
        assert!(!client.call("BGREWRITEAOF").is_error());
        assert!(wait_until(PATIENCE, || server.info("aof_rewrite_in_progress").as_deref() == Some("1")));
        assert_eq!(client.call("CONFIG SET appendonly no"), Value::ok());
        assert!(wait_until(PATIENCE, || server.info("aof_rewrite_in_progress").as_deref() == Some("0")));
        client.call("CONFIG SET rdb-key-save-delay 0");
        assert!(!client.call("BGSAVE").is_error());
        assert!(wait_until(PATIENCE, || server.info("rdb_bgsave_in_progress").as_deref() == Some("0")));
        assert_eq!(server.info("rdb_last_bgsave_status").as_deref(), Some("ok"));
    }
}

/// Scripts that ask for nothing are done with their keys before they have these. Where the log was turned on meanwhile, one
/// shard told of the end of such a hold and another one did not, and everything in the log waited for the missing part.
#[test]
fn a_hold_that_never_began_leaves_no_gap_in_a_log_that_begins() {
    const ROUNDS: usize = 30;
    const SCRIPTS: usize = 20;
    let server = Server::start(Kind::Ember { shards: 4 }, &["--appendonly", "yes", "--appendfsync", "always"]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..8 {
            let (mut client, is_over) = (server.client(), &is_over);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut key = || rng.u32(..100).to_string();
                while !is_over.load(Ordering::Relaxed) {
                    let script = |_| ["EVAL", "return 1", "2", &key(), &key()].map(str::to_owned).to_vec();
                    let scripts: Vec<Vec<String>> = (0..SCRIPTS).map(script).collect();
                    assert!(client.pipeline(&scripts).iter().all(|reply| *reply == int(1)));
                }
            });
        }
        let mut client = server.client();
        for round in 0..ROUNDS {
            for line in ["CONFIG SET appendonly no", "CONFIG SET appendonly yes"] {
                assert_eq!(client.call(line), Value::ok());
            }
            assert!(wait_until(PATIENCE, || server.info("aof_enabled").as_deref() == Some("1")));
            client.send(&format!("SET last {round}"));
            assert_eq!(client.read_within(PATIENCE), Some(Value::ok()), "in round {round}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
