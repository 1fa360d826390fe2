//! Links that break, and replicas that were away.

use super::{BREAKS, PATIENCE, PRIMARY, STRICT, field, replica_of, seed, setting, settle, wait_for, wait_for_link};
use crate::common::{Kind, Server, Value, encode, have_tool, int, wait_until};
use crate::differential::generate::families::Family;
use crate::propagation::extras::Extras;
use crate::propagation::play;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whatever breaks the link, the replica goes on where it was.
#[test]
fn a_link_that_breaks_is_mended_without_a_snapshot() {
    if !have_tool("redis-server") {
        return;
    }
    let (seed, breaks) = (seed(), setting("EMBERDB_REPLICATION_BREAKS", BREAKS));
    let primary = Server::start(Kind::Ember { shards: 3 }, &[PRIMARY, &["--repl-backlog-size", "100mb"]].concat());
    let replica = replica_of(&primary, Kind::Redis, STRICT);
    wait_for_link(&replica);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let player = scope.spawn(|| {
            let mut seed = seed;
            while !is_over.load(Ordering::Relaxed) {
                play(&primary, Family::Everything, Extras::Everything, seed, 1000);
                seed = seed.wrapping_add(1);
            }
        });
        let mut rng = fastrand::Rng::with_seed(seed);
        let mended = (1..=breaks).all(|number| {
            match rng.u32(..3) {
                0 => drop(primary.client().call("CLIENT KILL TYPE replica")),
                1 => drop(replica.client().call("CLIENT KILL TYPE master")),
                _ => {
                    let mut client = primary.client();
                    client.call("CLIENT KILL TYPE replica");
                    client.call("CLIENT KILL TYPE replica");
                }
            }
            let again = || field(&primary, "sync_partial_ok").parse::<usize>().is_ok_and(|count| count >= number);
            wait_until(PATIENCE, again) && wait_until(PATIENCE, || field(&replica, "master_link_status") == "up")
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(mended, "{}", primary.output());
        player.join().expect("a player");
    });
    settle(&primary, &replica);
    assert_eq!(field(&primary, "sync_full"), "1");
    assert_eq!(field(&primary, "sync_partial_err"), "0");
}

/// What was kept was not enough: a snapshot, and all is well.
#[test]
fn a_replica_that_was_away_for_too_long_gets_a_snapshot() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Ember { shards: 2 }, &[PRIMARY, &["--repl-backlog-size", "20kb"]].concat());
    let replica = replica_of(&primary, Kind::Redis, STRICT);
    wait_for_link(&replica);
    replica.signal("STOP");
    let mut client = primary.client();
    client.call("CLIENT KILL TYPE replica");
    for number in 0..100 {
        client.call(&format!("SET k{number} {}", "x".repeat(1000)));
    }
    replica.signal("CONT");
    wait_for(&primary, "sync_full", "2");
    wait_for_link(&replica);
    settle(&primary, &replica);
    assert_eq!(field(&primary, "sync_partial_err"), "1");
}

/// When there was no replica for long nothing is kept, and the data get another name.
#[test]
fn what_is_kept_is_let_go_without_replicas() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Ember { shards: 2 }, &[PRIMARY, &["--repl-backlog-ttl", "1"]].concat());
    let replica = replica_of(&primary, Kind::Redis, STRICT);
    wait_for_link(&replica);
    let name = field(&primary, "master_replid");
    assert_eq!(field(&primary, "repl_backlog_active"), "1");
    drop(replica);
    wait_for(&primary, "repl_backlog_active", "0");
    assert_ne!(field(&primary, "master_replid"), name);
    primary.client().call("SET a 1");
    let replica = replica_of(&primary, Kind::Redis, STRICT);
    wait_for_link(&replica);
    settle(&primary, &replica);
}

/// Databases are emptied while a snapshot is sent.
#[test]
fn everything_may_be_flushed_while_a_replica_comes() {
    if !have_tool("redis-server") {
        return;
    }
    for diskless in ["yes", "no"] {
        let primary =
            Server::start(Kind::Ember { shards: 2 }, &[PRIMARY, &["--repl-diskless-sync", diskless]].concat());
        let mut client = primary.client();
        client.call("DEBUG POPULATE 300000 key 50");
        let replica = replica_of(&primary, Kind::Redis, STRICT);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = primary.client();
                for number in 0..20 {
                    client.call("FLUSHALL");
                    client.call(&format!("SET a {number}"));
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                is_over.store(true, Ordering::Relaxed);
            });
        });
        assert!(is_over.load(Ordering::Relaxed));
        wait_for_link(&replica);
        settle(&primary, &replica);
        client.call("SET b 1");
        assert_eq!(client.call("WAIT 1 20000"), int(1));
    }
}

/// A primary that ends and starts again has another name, and knows that it is the same data: nobody needs a snapshot. What
/// has died meanwhile replicas are told.
#[test]
fn replicas_go_on_behind_a_restart_of_the_primary() {
    if !have_tool("redis-server") {
        return;
    }
    for shards in [1, 3] {
        let primary = Server::start(Kind::Ember { shards }, &[PRIMARY, &["--save", "3600 1"]].concat());
        let replica = replica_of(&primary, Kind::Redis, STRICT);
        wait_for_link(&replica);
        let mut client = primary.client();
        for number in 0..100 {
            client.call(&format!("SET stays:{number} {number}"));
            client.call(&format!("SET dies:{number} {number} PX 1"));
        }
        client.call("SET dies:later 1 PX 500");
        client.send("SHUTDOWN SAVE");
        let shards = shards.to_string();
        let flags = [PRIMARY, &["--save", "3600 1", "--shards", &shards]].concat();
        let mut primary = primary;
        assert!(primary.wait_for_end(PATIENCE).is_some());
        let primary = primary.restart(&flags);
        wait_for(&primary, "sync_partial_ok", "1");
        wait_for_link(&replica);
        primary.client().call("SET behind 1");
        settle(&primary, &replica);
        assert_eq!((field(&primary, "sync_full"), field(&replica, "expired_keys")), ("0".to_owned(), "0".to_owned()));
        // Redis's own tests count from here on.
        assert_eq!(primary.client().call("CONFIG RESETSTAT"), Value::ok());
        for counter in ["sync_full", "sync_partial_ok", "sync_partial_err"] {
            assert_eq!(field(&primary, counter), "0", "{counter}");
        }
        assert!(wait_until(PATIENCE, || replica.client().call("DBSIZE") == int(101)));
    }
}

/// The end of the server waits until replicas have everything, and writes wait meanwhile.
#[test]
fn the_end_waits_for_replicas() {
    if !have_tool("redis-server") {
        return;
    }
    let mut primary = Server::start(Kind::Ember { shards: 2 }, &[PRIMARY, &["--shutdown-timeout", "60"]].concat());
    let replica = replica_of(&primary, Kind::Redis, STRICT);
    wait_for_link(&replica);
    let (mut client, mut other, mut writer) = (primary.client(), primary.client(), primary.client());
    replica.signal("STOP");
    client.call("SET a 1");
    client.send("SHUTDOWN NOSAVE");
    assert!(wait_until(PATIENCE, || primary.output().contains("Waiting for replicas before shutting down.")));
    writer.send("SET b 1");
    assert_eq!(writer.read_within(std::time::Duration::from_millis(100)), None);
    assert_eq!(other.call("GET a").text(), "1");
    assert_eq!(other.call("SHUTDOWN ABORT"), crate::common::Value::ok());
    assert!(client.read().text().starts_with("ERR Errors trying to SHUTDOWN"));
    assert_eq!(writer.read(), crate::common::Value::ok());
    assert!(other.call("SHUTDOWN ABORT").text().starts_with("ERR No shutdown in progress"));
    client.send("SHUTDOWN NOSAVE");
    assert!(wait_until(PATIENCE, || primary.output().matches("Waiting for replicas").count() == 2));
    replica.signal("CONT");
    assert!(primary.wait_for_end(PATIENCE).is_some());
    assert_eq!(
        replica.client().call("MGET a b").items().iter().map(|value| value.text()).collect::<Vec<_>>(),
        ["1", "1"]
    );
}

/// FAILOVER: a replica takes over, and nothing is lost, whichever of the two it is.
#[test]
fn a_primary_hands_over_to_a_replica_and_follows_it() {
    if !have_tool("redis-server") {
        return;
    }
    for kind in [Kind::Ember { shards: 3 }, Kind::Redis] {
        let primary = Server::start(Kind::Ember { shards: 2 }, PRIMARY);
        let mut client = primary.client();
        assert!(client.call("FAILOVER").text().starts_with("ERR FAILOVER requires connected replicas"));
        let replica = replica_of(&primary, kind, if kind == Kind::Redis { STRICT } else { PRIMARY });
        wait_for_link(&replica);
        for number in 0..1000 {
            client.send(&format!("SET key:{number} {number} EX 1000"));
        }
        (0..1000).for_each(|_| drop(client.read()));
        assert!(client.call("FAILOVER TO 127.0.0.1 1 TIMEOUT 100").text().contains("is not a replica"));
        assert!(client.call("FAILOVER ABORT").text().starts_with("ERR No failover"));
        assert_eq!(client.call("FAILOVER").text(), "OK");
        wait_for(&replica, "role", "master");
        wait_for(&primary, "role", "slave");
        wait_for_link(&primary);
        wait_for(&primary, "master_failover_state", "no-failover");
        assert!(client.call("SET a 1").text().starts_with("READONLY"));
        assert_eq!(replica.client().call("SET a 1").text(), "OK");
        settle(&replica, &primary);
        assert_eq!(replica.client().call("DBSIZE"), int(1001));
        assert_eq!(field(&primary, "sync_full"), "1", "nobody needed a snapshot for that");
        // And back.
        assert_eq!(replica.client().call("FAILOVER").text(), "OK");
        wait_for(&primary, "role", "master");
        wait_for_link(&replica);
        settle(&primary, &replica);
    }
}

/// A replica that is not there in time ends the attempt, and writes go on.
#[test]
fn a_failover_that_takes_too_long_is_given_up() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Ember { shards: 2 }, PRIMARY);
    let replica = replica_of(&primary, Kind::Redis, STRICT);
    wait_for_link(&replica);
    replica.signal("STOP");
    let (mut client, mut writer) = (primary.client(), primary.client());
    client.call("SET a 1");
    assert_eq!(client.call("FAILOVER TIMEOUT 300").text(), "OK");
    assert_eq!(field(&primary, "master_failover_state"), "waiting-for-sync");
    writer.send("SET b 1");
    assert!(client.call("FAILOVER").text().contains("already in progress"));
    assert!(client.call("REPLICAOF 127.0.0.1 1").text().contains("not allowed while failing over"));
    assert_eq!(writer.read().text(), "OK");
    wait_for(&primary, "master_failover_state", "no-failover");
    assert_eq!(client.call("FAILOVER").text(), "OK");
    assert_eq!(client.call("FAILOVER ABORT").text(), "OK");
    wait_for(&primary, "master_failover_state", "no-failover");
    assert_eq!(client.call("SET c 1").text(), "OK");
    replica.signal("CONT");
}

/// A long transaction looks for several turns which keys it needs, and wrote behind the hand-over, on what was a replica by then: the
/// new primary had none of it.
#[test]
fn a_long_transaction_before_a_failover_is_handed_over() {
    const SETS: usize = 20_000;
    for shards in [1, 3] {
        let primary = Server::start(Kind::Ember { shards }, PRIMARY);
        let replica = replica_of(&primary, Kind::Ember { shards }, PRIMARY);
        wait_for_link(&replica);
        let (mut client, mut other) = (primary.client(), primary.client());
        client.send("MULTI");
        (0..SETS).for_each(|number| client.send(&format!("SET k:{number} v")));
        (0..=SETS).for_each(|_| drop(client.read()));
        client.send("EXEC");
        assert_eq!(other.call("FAILOVER"), Value::ok());
        let answer = client.read();
        wait_for(&replica, "role", "master");
        wait_for_link(&primary);
        settle(&replica, &primary);
        let count = if answer.is_error() { 0 } else { answer.items().len() };
        assert_eq!(replica.client().call("DBSIZE"), int(count as i64), "{shards} shards");
    }
}

/// When the time was over a FAILOVER handed over all the same, and what still ran was lost on both sides.
#[test]
fn a_failover_that_waits_too_long_for_what_runs_is_given_up() {
    for shards in [1, 3] {
        let flags = [PRIMARY, &["--busy-reply-threshold", "100"]].concat();
        let primary = Server::start(Kind::Ember { shards }, &flags);
        let replica = replica_of(&primary, Kind::Ember { shards }, PRIMARY);
        wait_for_link(&replica);
        let (mut client, mut other) = (primary.client(), primary.client());
        let script = "local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end
                      redis.call('SET', KEYS[1], 'v')
                      local began = now()
                      repeat until now() - began > 4000000
                      for i = 1, 5000 do redis.call('APPEND', KEYS[1], 'vvvv') end
                      return 'done'";
        client.send_raw(&encode(&["EVAL", script, "1", "k"]));
        // (Sooner or later the script is there.)
        assert!(wait_until(PATIENCE, || other.call("SET k w").is_error()));
        assert_eq!(other.call("FAILOVER TIMEOUT 300"), Value::ok());
        assert_eq!(client.read().text(), "done");
        assert!(wait_until(PATIENCE, || other.call("FAILOVER ABORT").text() == "ERR No failover in progress."));
        assert_eq!(field(&primary, "role"), "master", "{shards} shards");
        assert_eq!(other.call("STRLEN k"), int(20_001));
        settle(&primary, &replica);
    }
}
