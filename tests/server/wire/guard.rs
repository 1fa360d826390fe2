//! GUARD: what runs only while a lease is held, on whichever shards the lease and the keys are.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::leases::take;
use crate::common::{Client, Kind, Server, Value, bulk, encode, error, int, on_embers, simple, wait_until, words};

const SOON: Duration = Duration::from_secs(10);
const LOST: &str = "LEASELOST the lease has ended, or is not of this token";
const NOT_GUARDED: &str = "ERR GUARD is for commands on keys that do not wait, for EXEC, and for scripts and functions";
/// Keys of all shards.
const KEYS: &[&str] = &["a", "b", "c", "d", "e", "f", "g", "h"];

fn lost() -> Value {
    error(LOST)
}

/// MULTI, these commands, and a last line; the reply to that.
fn multi(client: &mut Client, commands: &[&str], last: &str) -> Value {
    let lines = std::iter::once("MULTI").chain(commands.iter().copied()).chain([last]);
    let mut replies = client.pipeline(&lines.map(words).collect::<Vec<_>>());
    replies.pop().expect("the last")
}

#[test]
fn a_write_runs_while_its_lease_is_held() {
    on_embers(&[], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        for lease in ["lease:1", "lease:2", "lease:3"] {
            let token = take(&mut client, lease);
            for key in KEYS {
                assert_eq!(client.call(&format!("GUARD {lease} {token} SET {key} {token}")), Value::ok());
                assert_eq!(client.call(&format!("guard {lease} {token} get {key}")), bulk(token.to_string()));
                assert_eq!(client.call(&format!("GUARD {lease} {} SET {key} x", token + 1)), lost());
                assert_eq!(client.call(&format!("GUARD {lease} {} SET {key} x", token - 1)), lost());
                assert_eq!(client.call(&format!("GUARD {key} {token} SET {key} x")), lost(), "that is no lease");
                assert_eq!(client.call(&format!("GUARD nothing {token} SET {key} x")), lost());
                // Its own errors are what it answers.
                assert!(client.call(&format!("GUARD {lease} {token} LPUSH {key} x")).text().starts_with("WRONGTYPE"));
            }
            let all: Vec<String> = KEYS.iter().map(|key| format!("{key} v")).collect();
            assert_eq!(client.call(&format!("GUARD {lease} {token} MSET {}", all.join(" "))), Value::ok());
            assert_eq!(client.call(&format!("GUARD {lease} {token} MGET {}", KEYS.join(" "))), Value::bulks(&["v"; 8]));
            assert_eq!(client.call(&format!("GUARD {lease} {token} RENAME a z")), Value::ok());
            assert_eq!(client.call(&format!("GUARD {lease} {token} SCAN 0 COUNT 1000")).items().len(), 2);
            assert!(client.call(&format!("GUARD {lease} {token} DBSIZE")).number() > 0);
            // The lease itself may be what is written.
            assert_eq!(client.call(&format!("GUARD {lease} {token} LEASE RENEW {lease} {token} 2h")), Value::ok());
            assert!(client.call(&format!("GUARD {lease} {token} LEASE TAKE other:{lease} 1h")).number() > token);
            // Released, and another one's.
            other.call(&format!("LEASE RELEASE {lease} {token}"));
            assert_eq!(client.call(&format!("GUARD {lease} {token} SET b x")), lost());
            let next = take(&mut other, lease);
            assert_eq!(client.call(&format!("GUARD {lease} {token} MSET a x b x c x d x")), lost());
            assert_eq!(other.call(&format!("GUARD {lease} {next} FLUSHALL")), Value::ok());
            assert_eq!(other.call(&format!("GUARD {lease} {next} SET b x")), lost(), "it went with all keys");
            assert_eq!(client.call("DBSIZE"), int(0));
        }
        client.assert_in_step();
    });
}

#[test]
fn a_write_is_refused_when_its_lease_has_ended() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for key in KEYS {
            let token = client.call("LEASE TAKE short 30").number();
            let write = format!("GUARD short {token} INCR {key}");
            assert!(wait_until(SOON, || client.call(&write) == lost()));
            let count = client.call(&format!("GET {key}"));
            assert_eq!(client.call(&write), lost());
            assert_eq!(client.call(&format!("GET {key}")), count);
            client.call("DEL short");
        }
    });
}

#[test]
fn exec_is_guarded_as_a_whole() {
    on_embers(&[], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        let token = take(&mut client, "lease");
        let exec = format!("GUARD lease {token} EXEC");
        for key in KEYS {
            let set = format!("SET {key} 1");
            assert_eq!(multi(&mut client, &[&set, "INCR n"], &exec).items()[0], Value::ok());
        }
        assert_eq!(multi(&mut client, &["MSET a 2 b 2 c 2 d 2", "MGET a b c d"], &exec).items().len(), 2);
        assert_eq!(multi(&mut client, &[], &exec), Value::Array(vec![]));
        assert_eq!(multi(&mut client, &["SELECT 1", "SET in:1 x", "SELECT 0", "RENAME a b"], &exec).items().len(), 4);
        assert_eq!(client.call(&exec), error("ERR EXEC without MULTI"));
        let wrong = format!("GUARD lease {} EXEC", token + 1);
        for commands in [&["SET a x"][..], &["MSET a x b x c x d x"], &["RENAME b a"], &["SELECT 3", "SET a x"], &[]] {
            assert_eq!(multi(&mut client, commands, &wrong), lost());
            assert_eq!(client.call("EXEC"), error("ERR EXEC without MULTI"), "it is over");
        }
        assert_eq!(client.call("EXISTS a"), int(0));
        // Watched keys, too.
        for key in KEYS {
            assert_eq!(client.call(&format!("WATCH {key}")), Value::ok());
            assert_eq!(multi(&mut client, &["SET b 3"], &exec), Value::Array(vec![Value::ok()]));
            client.call(&format!("WATCH {key}"));
            other.call(&format!("SET {key} changed"));
            assert_eq!(multi(&mut client, &["SET b 4"], &exec), Value::NullArray);
            client.call(&format!("WATCH {key}"));
            other.call(&format!("SET {key} again"));
            assert_eq!(multi(&mut client, &["SET b 4"], &wrong), Value::NullArray, "watched keys are asked for first");
            assert_eq!(multi(&mut client, &["SET c 1"], "EXEC"), Value::Array(vec![Value::ok()]), "nothing is watched");
            // What is guarded alone leaves what is watched alone.
            client.call(&format!("WATCH {key}"));
            client.call(&format!("GUARD lease {token} SET other 1"));
            other.call(&format!("SET {key} changed"));
            assert_eq!(multi(&mut client, &["SET b 4"], "EXEC"), Value::NullArray);
        }
        client.assert_in_step();
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    on_embers(&["--enable-debug-command", "yes"], |server| {
        let mut client = server.client();
        let token = take(&mut client, "lease");
        for inner in [
            "GUARD lease 1 SET a b",
            "MULTI",
            "DISCARD",
            "WATCH a",
            "UNWATCH",
            "SUBSCRIBE a",
            "PSUBSCRIBE a",
            "BLPOP a 0",
            "BLMOVE a b LEFT LEFT 0",
            "BZPOPMIN a 0",
            "WAIT 0 0",
            "SELECT 1",
            "AUTH x",
            "HELLO 3",
            "QUIT",
            "RESET",
            "PING",
            "CLIENT REPLY OFF",
            "CONFIG SET maxmemory 1",
            "SAVE",
            "MONITOR",
            "DEBUG SLEEP 0",
            "SHUTDOWN NOSAVE",
            "OBJECT HELP",
            "MIGRATE 127.0.0.1 1 a 0 10",
            "PUBLISH a b",
            "EXPIRY PURGE",
            "REPLICAOF NO ONE",
        ] {
            assert_eq!(client.call(&format!("GUARD lease {token} {inner}")), error(NOT_GUARDED), "{inner}");
        }
        assert_eq!(client.call("GUARD lease 1"), error("ERR wrong number of arguments for 'guard' command"));
        assert_eq!(client.call("GUARD"), error("ERR wrong number of arguments for 'guard' command"));
        let wrong = error("ERR wrong number of arguments for 'set' command");
        assert_eq!(client.call(&format!("GUARD lease {token} SET a")), wrong);
        assert_eq!(
            client.call(&format!("GUARD lease {token} MSET a 1 b")),
            error("ERR wrong number of arguments for 'mset' command")
        );
        assert_eq!(
            client.call(&format!("GUARD lease {token} SEET a")),
            error("ERR unknown command 'SEET' behind GUARD")
        );
        assert_eq!(
            client.call(&format!("GUARD lease {token} OBJECT NOTHING a")),
            error("ERR unknown command 'OBJECT' behind GUARD")
        );
        for token in ["x", "-1", "1.0", "99999999999999999999", ""] {
            let reply = client.command(&["GUARD", "lease", token, "SET", "a", "b"]);
            assert_eq!(reply, error("ERR value is not an integer or out of range"), "{token}");
        }
        assert_eq!(client.call("EXISTS a"), int(0));
        // Between MULTI and EXEC a command is not guarded alone, and the transaction is broken.
        const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";
        for line in
            [format!("GUARD lease {token} SET a b"), "GUARD lease x SET a b".to_owned(), "GUARD lease 1".to_owned()]
        {
            client.call("MULTI");
            assert!(client.call(&line).is_error());
            assert_eq!(client.call(&format!("GUARD lease {token} EXEC")), error(ABORTED));
        }
        client.call("MULTI");
        client.call("SET a b");
        let text = "EXECABORT Transaction discarded because of: value is not an integer or out of range";
        assert_eq!(client.call("GUARD lease x EXEC"), error(text));
        assert_eq!(client.call("EXEC"), error("ERR EXEC without MULTI"));
        // A script guards nothing within itself.
        let reply = client.command(&[
            "EVAL",
            "return redis.call('GUARD', KEYS[1], ARGV[1], 'SET', 'a', 'b')",
            "1",
            "lease",
            "1",
        ]);
        assert!(reply.is_error(), "{reply:?}");
        assert_eq!(client.call("EXISTS a"), int(0));
        client.assert_in_step();
    });
}

#[test]
fn scripts_and_functions_are_guarded() {
    const SET: &str = "for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1]) end return #KEYS";
    const UNDECLARED: &str = "redis.call('SET', ARGV[1], 'x') redis.call('SET', ARGV[2], 'x') return 'done'";
    const LONG: &str = "for n = 1, 30000 do redis.call('INCR', KEYS[1]) end return redis.call('GET', KEYS[1])";
    const LIBRARY: &str = "#!lua name=l\nredis.register_function('put', function(keys, args) \
                           for _, key in ipairs(keys) do redis.call('SET', key, args[1]) end return 'put' end)";
    on_embers(&[], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        client.command(&["FUNCTION", "LOAD", LIBRARY]);
        let digest = client.command(&["SCRIPT", "LOAD", SET]).text();
        for lease in ["lease:1", "lease:2", "lease:3"] {
            let token = take(&mut client, lease).to_string();
            let guard = |client: &mut Client, token: &str, line: &[&str]| {
                client.command(&[&["GUARD", lease, token], line].concat())
            };
            let wrong = "1";
            for round in 0..3 {
                let value = format!("{lease}:{round}");
                for key in KEYS {
                    let eval = ["EVAL", SET, "1", key, &value];
                    assert_eq!(guard(&mut client, &token, &eval), int(1));
                    assert_eq!(client.call(&format!("GET {key}")), bulk(&value));
                    assert_eq!(guard(&mut client, &token, &["FCALL", "put", "1", key, &value]), bulk("put"));
                    assert_eq!(guard(&mut client, wrong, &["EVAL", SET, "1", key, "x"]), lost());
                    assert_eq!(guard(&mut client, wrong, &["FCALL", "put", "1", key, "x"]), lost());
                    assert_eq!(client.call(&format!("GET {key}")), bulk(&value));
                }
                let several = ["EVALSHA", &digest, "4", "a", "b", "c", "d", &value];
                assert_eq!(guard(&mut client, &token, &several), int(4));
                assert_eq!(guard(&mut client, wrong, &several), lost());
                let undeclared = ["EVAL", UNDECLARED, "0", "u:1", "u:2"];
                assert_eq!(guard(&mut client, wrong, &undeclared), lost());
                assert_eq!(guard(&mut client, &token, &undeclared), bulk("done"));
            }
            assert_eq!(
                guard(&mut client, &token, &["EVALSHA", "x", "0"]),
                error("NOSCRIPT No matching script. Please use EVAL.")
            );
            // One that lasts has its lease to its end: who ends it meanwhile waits, and who was first has kept it from beginning.
            client.call("DEL long");
            client.send_raw(&encode(&["GUARD", lease, &token, "EVAL", LONG, "1", "long"]));
            assert_eq!(other.call(&format!("LEASE RELEASE {lease} {token}")), int(1));
            let left = other.call("GET long");
            let reply = client.read();
            let is_whole = reply == bulk("30000") && left == bulk("30000");
            assert!(is_whole || reply == lost() && left == Value::NullBulk, "{reply:?}, {left:?}");
            assert_eq!(guard(&mut client, &token, &["EVAL", SET, "1", "a", "x"]), lost());
            // Within a transaction, too.
            let token = take(&mut client, lease);
            client.call("MULTI");
            client.command(&["EVAL", SET, "2", "a", "b", "in multi"]);
            assert_eq!(client.call(&format!("GUARD {lease} {token} EXEC")), Value::Array(vec![int(2)]));
        }
        client.assert_in_step();
    });
}

#[test]
fn guarded_commands_keep_their_places_in_a_pipeline() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let token = take(&mut client, "lease");
        let mut lines = Vec::new();
        for n in 0..300 {
            lines.push(words(&format!("GUARD lease {token} SET key:{n} {n}")));
            lines.push(words(&format!("GET key:{n}")));
            lines.push(words(&format!("GUARD lease 1 SET key:{n} wrong")));
            lines.push(words(&format!("GUARD lease {token} MGET key:{n} key:{}", n / 2)));
        }
        let replies = client.pipeline(&lines);
        for (n, of_round) in replies.chunks(4).enumerate() {
            let (text, half) = (n.to_string(), (n / 2).to_string());
            assert_eq!(of_round, [Value::ok(), bulk(&text), lost(), Value::bulks(&[&text, &half])], "{n}");
        }
        // Nothing is answered that nobody wants to hear.
        client.call("SET a 1");
        client.send("CLIENT REPLY OFF");
        for line in [
            "GUARD lease 1 INCR a".to_owned(),
            format!("GUARD lease {token} INCR a"),
            format!("GUARD lease {token} INCR b"),
        ] {
            client.send(&line);
        }
        client.send("CLIENT REPLY ON");
        assert_eq!(client.read(), Value::ok());
        assert_eq!(client.call("MGET a b"), Value::bulks(&["2", "1"]));
        // And in RESP3.
        let mut client = server.client3();
        assert_eq!(client.call(&format!("GUARD lease {token} HSET h f v")), int(1));
        assert_eq!(client.call(&format!("GUARD lease {token} HGETALL h")), Value::Map(vec![(bulk("f"), bulk("v"))]));
        assert_eq!(client.call(&format!("GUARD lease {token} GET nothing")), Value::Null);
        assert_eq!(client.call("GUARD lease 1 HSET h f v"), lost());
    });
}

/// The lease is read, and what is guarded is asked for as ever.
#[test]
fn users_need_the_lease_and_what_is_guarded() {
    on_embers(&[], |server| {
        let (mut admin, mut client) = (server.client(), server.client());
        let token = take(&mut admin, "lease:x");
        admin.call("ACL SETUSER u on nopass +guard +set +get +multi +exec +eval ~data:* %R~lease:*");
        client.call("AUTH u x");
        let guard = |client: &mut Client, line: &str| client.call(&format!("GUARD lease:x {token} {line}"));
        let key = error("NOPERM this user has no permissions to access one of the keys used as arguments");
        assert_eq!(guard(&mut client, "SET data:1 x"), Value::ok());
        assert_eq!(guard(&mut client, "SET other x"), key);
        assert_eq!(guard(&mut client, "SET lease:x x"), key, "it may be read");
        assert_eq!(
            guard(&mut client, "INCR data:2"),
            error("NOPERM this user has no permissions to run the 'incr' command")
        );
        assert_eq!(client.call(&format!("GUARD elsewhere {token} SET data:1 x")), key);
        client.call("MULTI");
        client.call("SET data:2 x");
        assert_eq!(guard(&mut client, "EXEC"), Value::Array(vec![Value::ok()]));
        let eval = ["GUARD", "lease:x", &token.to_string(), "EVAL", "return redis.call('SET', KEYS[1], 1)", "1"];
        assert_eq!(client.command(&[&eval[..], &["data:3"]].concat()), simple("OK"));
        assert!(client.command(&[&eval[..], &["other"]].concat()).is_error());
        let mut dry = |line: &str| admin.call(&format!("ACL DRYRUN u GUARD lease:x {token} {line}"));
        assert_eq!(dry("SET data:1 x"), Value::ok());
        assert_eq!(dry("SET other x"), bulk("This user has no permissions to access the 'other' key"));
        assert_eq!(dry("INCR data:2"), bulk("This user has no permissions to run the 'incr' command"));
        assert_eq!(dry("NOTHING x"), error("ERR unknown command 'NOTHING' behind GUARD"));
        admin.call("ACL SETUSER u -guard");
        assert_eq!(
            guard(&mut client, "SET data:1 x"),
            error("NOPERM this user has no permissions to run the 'guard' command")
        );
        assert_eq!(admin.call("EXISTS other"), int(0));
    });
}

/// Proxies are told all keys.
#[test]
fn keys_of_both_are_told() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("COMMAND GETKEYS GUARD lease 1 MSET a 1 b 2"), Value::bulks(&["lease", "a", "b"]));
        assert_eq!(client.call("COMMAND GETKEYS GUARD lease 1 EVAL x 2 a b c"), Value::bulks(&["lease", "a", "b"]));
        assert_eq!(client.call("COMMAND GETKEYS GUARD lease 1 EXEC"), Value::bulks(&["lease"]));
        assert_eq!(client.call("COMMAND GETKEYS LEASE TAKE lease 1s"), Value::bulks(&["lease"]));
        let told = client.call("COMMAND GETKEYSANDFLAGS GUARD lease 1 SET a 1");
        let uses: Vec<&[Value]> = told.items().iter().map(|of_key| of_key.items()[1].items()).collect();
        assert_eq!(uses, [&[simple("RO"), simple("access")][..], &[simple("OW"), simple("update")]]);
    });
}

/// Whether it may run now is asked of what is guarded.
#[test]
fn what_is_guarded_is_admitted_as_such() {
    on_embers(&["--maxmemory-policy", "noeviction"], |server| {
        let mut client = server.client();
        let token = take(&mut client, "lease");
        let guard = |client: &mut Client, line: &str| client.call(&format!("GUARD lease {token} {line}"));
        client.call("SET a 1");
        client.call("CONFIG SET maxmemory 1");
        assert!(guard(&mut client, "SET b x").text().starts_with("OOM"));
        assert_eq!(guard(&mut client, "GET a"), bulk("1"));
        assert_eq!(guard(&mut client, "DEL a"), int(1));
        assert!(client.call("LEASE TAKE other 1h").text().starts_with("OOM"));
        client.call("CONFIG SET maxmemory 0");
        client.call("REPLICAOF 127.0.0.1 1");
        assert!(guard(&mut client, "SET b x").text().starts_with("READONLY"));
        assert!(client.call("LEASE TAKE other 1h").text().starts_with("READONLY"));
        client.call("REPLICAOF NO ONE");
        assert_eq!(guard(&mut client, "SET b x"), Value::ok());
        // A pause of writes.
        let mut other = server.client();
        other.call("CLIENT PAUSE 100000 WRITE");
        client.send(&format!("GUARD lease {token} SET b y"));
        assert_eq!(other.call("GET b"), bulk("x"));
        other.call("CLIENT UNPAUSE");
        assert_eq!(client.read(), Value::ok());
    });
}

/// What is guarded is what is told, to the log and to replicas.
#[test]
fn the_log_knows_nothing_of_guards() {
    for shards in [1, 3] {
        let flags = ["--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", "no"];
        let server = Server::start(Kind::Ember { shards }, &flags);
        let mut client = server.client();
        let token = take(&mut client, "lease");
        for key in KEYS {
            assert_eq!(client.call(&format!("GUARD lease {token} SET {key} {key}")), Value::ok());
            let key = format!("GUARD lease {token} EVAL redis.call('INCR',KEYS[1]) 1 n:{key}");
            assert!(!client.call(&key).is_error());
        }
        multi(&mut client, &["SET x 1", "SET y 1"], &format!("GUARD lease {token} EXEC"));
        let folder = server.folder().join("appendonlydir");
        let files = std::fs::read_dir(folder).expect("a folder").flatten();
        let text: Vec<u8> = files.flat_map(|file| std::fs::read(file.path()).expect("a file")).collect();
        let text = String::from_utf8_lossy(&text).to_lowercase();
        assert!(text.contains("lease") && !text.contains("guard") && !text.contains("eval"), "{text}");
        let server = server.restart(&flags);
        let mut client = server.client();
        assert_eq!(client.call(&format!("MGET {}", KEYS.join(" "))), Value::bulks(KEYS));
        assert_eq!(client.call("MGET x y n:a"), Value::bulks(&["1", "1", "1"]));
        assert_eq!(client.call(&format!("GUARD lease {token} SET a x")), Value::ok(), "the lease is there still");
    }
}

/// Holders that pause, whose leases end meanwhile: no write of an older holder is ever accepted behind a newer one's. Each
/// writes its token, and is told what was there before.
#[test]
fn no_write_of_an_older_holder_is_accepted() {
    on_embers(&[], |server| {
        let (is_over, accepted, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for nth in 0..6_u64 {
                let (is_over, accepted, refused) = (&is_over, &accepted, &refused);
                scope.spawn(move || {
                    let mut client = server.client();
                    let mut rng = fastrand::Rng::with_seed(nth);
                    while !is_over.load(Ordering::Relaxed) {
                        let Value::Int(token) = client.call("LEASE TAKE lease 3ms") else { continue };
                        for _ in 0..rng.u64(1..12) {
                            let key = KEYS[rng.usize(..KEYS.len())];
                            let line = match rng.u8(..3) {
                                0 => words(&format!("GUARD lease {token} SET {key} {token} GET")),
                                1 => {
                                    let script = "return redis.call('SET', KEYS[1], ARGV[1], 'GET')";
                                    ["GUARD", "lease", &token.to_string(), "EVAL", script, "1", key, &token.to_string()]
                                        .map(|word| word.as_bytes().to_vec())
                                        .to_vec()
                                }
                                _ => {
                                    client.call("MULTI");
                                    client.call(&format!("SET {key} {token} GET"));
                                    client.call("INCR writes");
                                    words(&format!("GUARD lease {token} EXEC"))
                                }
                            };
                            let reply = client.command(&line);
                            let before = match &reply {
                                Value::Error(text) => {
                                    assert_eq!(text, LOST);
                                    refused.fetch_add(1, Ordering::Relaxed);
                                    break;
                                }
                                Value::Array(items) => items[0].clone(),
                                before => before.clone(),
                            };
                            accepted.fetch_add(1, Ordering::Relaxed);
                            if !before.is_null() {
                                let before: i64 = before.text().parse().expect("a token");
                                assert!(before <= token, "{token} was written behind {before}");
                            }
                        }
                    }
                });
            }
            let enough = || accepted.load(Ordering::Relaxed) > 1500 && refused.load(Ordering::Relaxed) > 50;
            let were_enough = wait_until(Duration::from_secs(60), enough);
            is_over.store(true, Ordering::Relaxed);
            assert!(were_enough, "{accepted:?} {refused:?}");
        });
    });
}

/// A server that is killed while a lease is taken: whether that was done or not, one token is valid at the most, and no older one.
#[test]
fn after_a_crash_the_lease_is_what_the_log_says() {
    for shards in [1, 3] {
        let flags = ["--appendonly", "yes", "--appendfsync", "always"];
        let mut server = Server::start(Kind::Ember { shards }, &flags);
        let mut old: Vec<i64> = Vec::new();
        for round in 0..6 {
            let mut client = server.client();
            client.call("DEL lease");
            let token = take(&mut client, "lease");
            assert!(old.iter().all(|older| *older < token));
            for key in KEYS {
                for older in &old {
                    assert_eq!(client.call(&format!("GUARD lease {older} SET {key} {older}")), lost());
                }
                assert_eq!(client.call(&format!("GUARD lease {token} SET {key} {token}")), Value::ok());
            }
            client.send("DEL lease");
            client.send("LEASE TAKE lease 1h");
            if round % 2 == 0 {
                client.read();
                client.read();
            }
            server = server.restart(&flags);
            let mut client = server.client();
            let held = client.call("LEASE GET lease").field("token").map(|token| token.number());
            if round % 2 == 0 {
                assert!(held.is_some_and(|held| held > token), "it was acknowledged");
            }
            let expected = if held == Some(token) { Value::ok() } else { lost() };
            assert_eq!(client.call(&format!("GUARD lease {token} SET a {token}")), expected);
            old.push(token);
            old.extend(held);
            old.sort_unstable();
        }
    }
}
