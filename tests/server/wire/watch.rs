//! WATCH: which changes make EXEC fail and which do not, wherever they come from and wherever the keys are.

use std::time::Duration;

use super::transactions::{exec, on_shards, on_shards_and_redis};
use crate::common::{Client, Server, Value, bulk, error, int, wait_until};

const PATIENCE: Duration = Duration::from_secs(10);

/// As many connections as to find one on each shard.
fn clients(server: &Server) -> Vec<Client> {
    (0..8).map(|_| server.client()).collect()
}

#[track_caller]
fn assert_aborts(client: &mut Client, aborts: bool, why: &str) {
    let reply = exec(client, &["PING"]);
    assert_eq!(reply == Value::NullArray, aborts, "{why}: {reply:?}");
}

/// What another client does to `a`, `b` and `c`, of which `a` and `b` are there and `b` has a deadline; and whether
/// somebody who watches all three is to see it.
const CHANGES: &[(&str, bool)] = &[
    ("GET a", false),
    ("TTL b", false),
    ("TOUCH a b c", false),
    ("SET other 1", false),
    ("SET a 1", true),
    ("SET c 1", true),
    ("SET a 1 NX", false),
    ("SET c 1 XX", false),
    ("SETNX a 1", false),
    ("MSET other 1 a 2", true),
    ("MSETNX other 1 a 2", false),
    ("MSETNX other 1 c 2", true),
    ("APPEND a x", true),
    ("SETRANGE a 0 x", true),
    ("INCR a", true),
    ("GETSET a 2", true),
    ("GETDEL a", true),
    ("GETDEL c", false),
    ("GETEX a", false),
    ("GETEX a EX 100", true),
    ("GETEX b PERSIST", true),
    ("GETEX a PERSIST", false),
    ("DEL a", true),
    ("DEL c", false),
    ("DEL c other b", true),
    ("UNLINK b", true),
    ("EXPIRE a 100", true),
    ("EXPIRE a 100 XX", false),
    ("EXPIRE b 100 NX", false),
    ("EXPIRE c 100", false),
    ("PEXPIREAT a 1", true),
    ("PERSIST b", true),
    ("PERSIST a", false),
    ("RENAME a other", true),
    ("RENAME other2 c", true),
    ("RENAME other2 other", false),
    ("RENAME c other", false),
    ("RENAME a a", false),
    ("RENAMENX other2 a", false),
    ("RENAMENX other2 c", true),
    ("COPY a other", false),
    ("COPY other2 a", false),
    ("COPY other2 a REPLACE", true),
    ("COPY other2 c", true),
    ("COPY other2 a DB 1", false),
    ("MOVE a 1", true),
    ("MOVE c 1", false),
    ("MOVE other2 1", false),
    ("FLUSHDB", true),
    ("FLUSHALL", true),
    ("FLUSHALL ASYNC", true),
    ("SWAPDB 0 1", true),
    ("SWAPDB 1 0", true),
    ("SWAPDB 0 0", false),
    ("SWAPDB 1 2", false),
    ("INCR other3", false),
    ("SETRANGE c 0 ", false),
];

fn prepare(client: &mut Client) {
    assert_eq!(client.call("FLUSHALL"), Value::ok());
    assert_eq!(client.call("MSET a 1 b 2 other2 text"), Value::ok());
    assert_eq!(client.call("EXPIRE b 1000"), int(1));
}

#[test]
fn changes_by_others_are_seen() {
    on_shards_and_redis(&[], |server| {
        for (index, mut client) in clients(server).into_iter().enumerate() {
            for (round, (change, aborts)) in CHANGES.iter().enumerate() {
                // Those who change come from another shard each time.
                let mut others = clients(server);
                let other = &mut others[(index + round) % 8];
                prepare(other);
                assert_eq!(client.call("WATCH a b c"), Value::ok());
                let _ = other.call(change);
                assert_aborts(&mut client, *aborts, change);
                assert_aborts(&mut client, false, "EXEC has unwatched");
                if index > 0 && round > 10 {
                    break;
                }
            }
        }
    });
}

#[test]
fn changes_by_oneself_are_seen() {
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        for (change, aborts) in CHANGES {
            prepare(&mut client);
            assert_eq!(client.call("WATCH a b c"), Value::ok());
            let _ = client.call(change);
            assert_aborts(&mut client, *aborts, change);
        }
        // Inside the transaction, by itself.
        prepare(&mut client);
        assert_eq!(client.call("WATCH a b c"), Value::ok());
        let reply = exec(&mut client, &["SET a 5", "DEL b", "GET a"]);
        assert_eq!(reply, Value::Array(vec![Value::ok(), int(1), bulk("5")]));
    });
}

#[test]
fn what_ends_watching_and_what_does_not() {
    on_shards_and_redis(&[], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        let cases: &[(&[&str], bool)] = &[
            (&["UNWATCH"], false),
            (&["MULTI", "DISCARD"], false),
            (&["MULTI", "EXEC"], false),
            (&["MULTI", "NOSUCH", "EXEC"], false),
            (&["MULTI", "NOSUCH", "DISCARD"], false),
            (&["RESET"], false),
            (&["EXEC"], true),
            (&["DISCARD"], true),
            (&["SELECT 1"], true),
            (&["WATCH k"], true),
            (&["WATCH other"], true),
            (&["UNWATCH 1"], true),
        ];
        for (lines, still) in cases {
            assert_eq!(client.call("WATCH k"), Value::ok());
            lines.iter().for_each(|line| drop(client.call(line)));
            assert!(other.call("APPEND k x").number() > 0);
            assert_aborts(&mut client, *still, &format!("{lines:?} before the change"));
            // The same after the change: it is not forgotten, or it is.
            assert_eq!(client.call("SELECT 0"), Value::ok());
            assert_eq!(client.call("WATCH k"), Value::ok());
            assert!(other.call("APPEND k x").number() > 0);
            lines.iter().for_each(|line| drop(client.call(line)));
            assert_aborts(&mut client, *still, &format!("{lines:?} after the change"));
            assert_eq!(client.call("SELECT 0"), Value::ok());
        }
        assert_eq!(client.call("WATCH k"), Value::ok());
        assert!(other.call("APPEND k x").number() > 0);
        assert_eq!(exec_broken(&mut client), error("EXECABORT Transaction discarded because of previous errors."));
    });
}

fn exec_broken(client: &mut Client) -> Value {
    assert_eq!(client.call("MULTI"), Value::ok());
    assert!(client.call("NOSUCH").is_error());
    client.call("EXEC")
}

#[test]
fn keys_are_watched_in_the_database_they_were_named_in() {
    on_shards_and_redis(&[], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        assert_eq!(client.call("SELECT 1"), Value::ok());
        assert_eq!(client.call("WATCH k"), Value::ok());
        assert_eq!(client.call("SELECT 0"), Value::ok());
        assert_eq!(other.call("SET k 1"), Value::ok());
        assert_aborts(&mut client, false, "a change in database 0");
        assert_eq!(client.call("SELECT 1"), Value::ok());
        assert_eq!(client.call("WATCH k"), Value::ok());
        assert_eq!(client.call("SELECT 0"), Value::ok());
        assert_eq!(other.call("MOVE k 1"), int(1));
        assert_aborts(&mut client, true, "it came from another database");
        // It is there in both.
        assert_eq!(other.call("SET k 2"), Value::ok());
        assert_eq!(client.call("WATCH k"), Value::ok());
        assert_eq!(other.call("SWAPDB 0 1"), Value::ok());
        assert_aborts(&mut client, true, "the databases were exchanged");
        assert_eq!(other.call("COPY k x DB 5"), int(1));
        assert_eq!(client.call("WATCH x"), Value::ok());
        assert_eq!(other.call("SWAPDB 5 9"), Value::ok());
        assert_aborts(&mut client, false, "other databases were exchanged");
        assert_eq!(client.call("WATCH x"), Value::ok());
        assert_eq!(other.call("SWAPDB 0 9"), Value::ok());
        assert_aborts(&mut client, true, "it appeared with its database");
        assert_eq!(client.call("WATCH nothing"), Value::ok());
        assert_eq!(other.call("SWAPDB 0 9"), Value::ok());
        assert_eq!(other.call("FLUSHALL"), Value::ok());
        assert_aborts(&mut client, false, "it was in none");
    });
}

#[test]
fn a_deadline_that_comes_between_watch_and_exec_is_a_change() {
    on_shards_and_redis(&["--enable-debug-command", "yes"], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        for active in ["0", "1"] {
            assert_eq!(client.call(&format!("DEBUG SET-ACTIVE-EXPIRE {active}")), Value::ok());
            for looked_at in [false, true] {
                assert_eq!(client.call("MSET a 1 b 1 c 1"), Value::ok());
                // (A busy machine may be late with WATCH, and what is dead by then is no change.)
                assert_eq!(client.call("PEXPIRE b 300"), int(1));
                assert_eq!(client.call("WATCH a b c"), Value::ok());
                if looked_at {
                    assert!(wait_until(PATIENCE, || other.call("EXISTS b") == int(0)));
                } else {
                    // Nobody touches the key itself.
                    std::thread::sleep(Duration::from_millis(350));
                }
                assert_aborts(&mut client, true, &format!("active {active}, looked at {looked_at}"));
                // A deadline that has not come is none.
                assert_eq!(client.call("PEXPIRE a 100000"), int(1));
                assert_eq!(client.call("WATCH a b c"), Value::ok());
                assert_aborts(&mut client, false, "nothing happened");
            }
        }
    });
}

#[test]
fn a_key_that_is_dead_when_it_is_watched_is_none() {
    on_shards_and_redis(&["--enable-debug-command", "yes"], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        assert_eq!(client.call("DEBUG SET-ACTIVE-EXPIRE 0"), Value::ok());
        let dead = |client: &mut Client| {
            assert_eq!(client.call("SET k 1 PX 10"), Value::ok());
            std::thread::sleep(Duration::from_millis(40));
            assert_eq!(client.call("WATCH k"), Value::ok());
        };
        dead(&mut client);
        assert_aborts(&mut client, false, "nothing happened");
        dead(&mut client);
        assert_eq!(other.call("GET k"), Value::NullBulk);
        assert_aborts(&mut client, false, "it was deleted, which changes nothing");
        dead(&mut client);
        assert_eq!(other.call("DEL k"), int(0));
        assert_aborts(&mut client, false, "DEL found nothing");
        dead(&mut client);
        assert_eq!(other.call("FLUSHALL"), Value::ok());
        assert_aborts(&mut client, false, "FLUSHALL found nothing");
        dead(&mut client);
        assert_eq!(other.call("SET k 2"), Value::ok());
        assert_aborts(&mut client, true, "it is there again");
        dead(&mut client);
        assert_eq!(other.call("SET k 2"), Value::ok());
        assert_eq!(other.call("DEL k"), int(1));
        assert_aborts(&mut client, true, "it was there in between");
    });
}

#[test]
fn keys_of_all_shards_are_watched() {
    const KEYS: usize = 40;
    on_shards_and_redis(&[], |server| {
        let mut others = clients(server);
        let names: Vec<String> = (0..KEYS).map(|i| format!("key:{i}")).collect();
        let watch = format!("WATCH {}", names.join(" "));
        for (index, mut client) in clients(server).into_iter().enumerate() {
            for (at, key) in names.iter().enumerate() {
                assert_eq!(client.call(&watch), Value::ok());
                let other = &mut others[(at + index) % 8];
                assert_eq!(other.call(&format!("SET {key} {index}")), Value::ok());
                // One key, several shards, a coordinator.
                let commands: &[&str] = match at % 3 {
                    0 => &["SET result 1"],
                    1 => &["MSET result 1 r2 1 r3 1", "GET key:0"],
                    _ => &["MSET result 1 r2 1 r3 1", "RENAME result r4", "CONFIG SET hz 10"],
                };
                assert_eq!(exec(&mut client, commands), Value::NullArray, "{key}");
                assert_eq!(other.call("EXISTS result r2 r3 r4"), int(0));
            }
            assert_eq!(client.call(&watch), Value::ok());
            assert_ne!(exec(&mut client, &["MSET result 1 r2 1 r3 1", "DEL result r2 r3"]), Value::NullArray);
        }
    });
}

/// The use that WATCH was made for: read, compute, write, and begin again if somebody was faster.
#[test]
fn no_increment_is_lost() {
    const WORKERS: usize = 6;
    const ROUNDS: usize = 60;
    on_shards_and_redis(&[], |server| {
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    let mut client = server.client();
                    for _ in 0..ROUNDS {
                        loop {
                            assert_eq!(client.call("WATCH left right"), Value::ok());
                            let read = client.call("MGET left right");
                            let value = |index: usize| -> i64 {
                                read.items()[index].bytes().map_or(0, |text| {
                                    std::str::from_utf8(text).expect("a number").parse().expect("a number")
                                })
                            };
                            assert_eq!(value(0), -value(1), "one moment");
                            let set = format!("MSET left {} right {}", value(0) + 1, value(1) - 1);
                            if exec(&mut client, &[&set]) != Value::NullArray {
                                break;
                            }
                        }
                    }
                });
            }
        });
        let total = (WORKERS * ROUNDS).to_string();
        assert_eq!(server.client().call("MGET left right"), Value::bulks(&[&total, &format!("-{total}")]));
    });
}

/// Redis 7.0 has no deadlines of fields.
#[test]
fn fields_that_were_dead_before_are_no_change() {
    on_shards(&["--active-expire-interval-ms", "0"], |server| {
        let mut client = server.client();
        for (far, aborts, why) in [("", false, "dead before"), ("50", true, "dead meanwhile")] {
            client.call("DEL h");
            client.call("HSET h a 1 b 2 c 3");
            client.call("HPEXPIRE h 1 FIELDS 1 a");
            let died = wait_until(PATIENCE, || client.call("HGET h a").is_null());
            assert!(died);
            if !far.is_empty() {
                client.call(&format!("HPEXPIRE h {far} FIELDS 1 b"));
            }
            client.call("WATCH h");
            if aborts {
                assert!(wait_until(PATIENCE, || client.call("HGET h b").is_null()));
            }
            // It is taken out between WATCH and EXEC.
            server.client().call("EXPIRY PURGE");
            assert_aborts(&mut client, aborts, why);
        }
    });
}
