//! MIGRATE: single keys move between servers, and stay where something goes wrong.

use super::{PATIENCE, PRIMARY, STRICT, replica_of, settle, wait_for_link};
use crate::common::server::{Port, have_redis};
use crate::common::{Kind, Server, Value, bulk, error, int, on_embers, on_every_server, simple, wait_until, words};
use crate::propagation::same;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

const PAIRS: &[(Kind, Kind)] = &[
    (Kind::Ember { shards: 1 }, Kind::Redis),
    (Kind::Ember { shards: 3 }, Kind::Redis),
    (Kind::Redis, Kind::Ember { shards: 1 }),
    (Kind::Redis, Kind::Ember { shards: 3 }),
    (Kind::Ember { shards: 3 }, Kind::Ember { shards: 1 }),
    (Kind::Ember { shards: 1 }, Kind::Ember { shards: 3 }),
];

/// Of every type, small and large.
const VALUES: &[&str] = &[
    "SET string value",
    "SET number 12345",
    "RPUSH list a b c 1 2 3",
    "SADD ints 1 2 3",
    "SADD set a b c",
    "HSET hash a 1 b 2",
    "ZADD zset 1 a 2.5 b -inf c",
    "XADD stream 1-1 a b",
    "XGROUP CREATE stream group 0",
    "PFADD hll a b c",
];
const NAMES: &str = "string number list ints set hash zset stream hll";

fn moving(target: &Server, key: &str, rest: &str) -> String {
    let quoted = if key.is_empty() { "\"\"" } else { key };
    format!("MIGRATE 127.0.0.1 {} {quoted} {rest}", target.port())
}

/// The same with an empty key, which no line of words can have.
fn migrate(source: &Server, port: u16, rest: &str) -> Value {
    migrate_key(source, port, "", rest)
}

fn migrate_key(source: &Server, port: u16, key: &str, rest: &str) -> Value {
    let mut args = words(&format!("MIGRATE 127.0.0.1 {port}"));
    args.push(key.as_bytes().to_vec());
    args.extend(words(rest));
    source.client().command(&args)
}

fn on_pairs(test: impl Fn(&Server, &Server)) {
    if !have_redis() {
        return;
    }
    for (source, target) in PAIRS {
        eprintln!("--- from {source:?} to {target:?}");
        test(&Server::start(*source, PRIMARY), &Server::start(*target, &["--enable-debug-command", "yes"]));
    }
}

#[test]
fn keys_of_every_type_move() {
    on_pairs(|source, target| {
        let mut client = source.client();
        VALUES.iter().for_each(|line| assert!(!client.call(line).is_error(), "{line}"));
        let copied = migrate(source, target.port(), &format!("0 5000 COPY KEYS {NAMES}"));
        assert_eq!(copied, simple("OK"));
        let differences = same::differences(source, target);
        assert!(differences.is_empty(), "{}", differences.join("\n"));
        let busy = error("ERR Target instance replied with error: BUSYKEY Target key name already exists.");
        assert_eq!(migrate(source, target.port(), &format!("0 5000 KEYS {NAMES}")), busy);
        assert_eq!(client.call("DBSIZE"), int(9), "what is there already does not move");
        let moved = migrate(source, target.port(), &format!("0 5000 REPLACE KEYS {NAMES}"));
        assert_eq!(moved, simple("OK"));
        assert_eq!(client.call("DBSIZE"), int(0));
        assert_eq!(target.client().call("DBSIZE"), int(9));
        assert_eq!(migrate(source, target.port(), &format!("0 5000 KEYS {NAMES}")), simple("NOKEY"));
    });
}

#[test]
fn deadlines_move_with_their_keys() {
    on_pairs(|source, target| {
        let mut client = source.client();
        client.call("SET long v PX 100000");
        client.call("SET forever v");
        client.call("SET dead v PX 1");
        assert!(wait_until(PATIENCE, || client.call("EXISTS dead") == int(0)));
        assert_eq!(migrate(source, target.port(), "3 5000 KEYS dead long forever nosuch"), simple("OK"));
        let mut there = target.client();
        there.call("SELECT 3");
        let left = there.call("PTTL long").number();
        assert!((1..=100_000).contains(&left) && left > 60_000, "{left}");
        assert_eq!(there.call("PTTL forever"), int(-1));
        assert_eq!(there.call("DBSIZE"), int(2));
        assert_eq!(client.call("DBSIZE"), int(0));
    });
}

#[test]
fn a_large_list_and_many_keys_move() {
    on_pairs(|source, target| {
        let mut client = source.client();
        for first in (0..100_000).step_by(1_000) {
            let elements: Vec<String> = (first..first + 1_000).map(|n| format!("element:{n}")).collect();
            client.call(&format!("RPUSH large {}", elements.join(" ")));
        }
        let names: Vec<String> = (0..1_000).map(|n| format!("key:{n}")).collect();
        let sets: Vec<Vec<Vec<u8>>> = names.iter().map(|name| words(&format!("SET {name} {name}"))).collect();
        client.pipeline(&sets);
        assert_eq!(migrate_key(source, target.port(), "large", "0 20000"), simple("OK"));
        assert_eq!(migrate(source, target.port(), &format!("0 20000 KEYS {}", names.join(" "))), simple("OK"));
        let mut there = target.client();
        assert_eq!(there.call("LLEN large"), int(100_000));
        assert_eq!(there.call("LINDEX large 77777"), bulk("element:77777"));
        assert_eq!(there.call("GET key:999"), bulk("key:999"));
        assert_eq!((client.call("DBSIZE"), there.call("DBSIZE")), (int(0), int(1_001)));
    });
}

/// What redis-server says, EmberDB says; and the same keys have moved.
#[test]
fn replies_are_those_of_redis() {
    if !have_redis() {
        return;
    }
    let open = Server::start(Kind::Redis, &[]);
    let closed = Server::start(Kind::Redis, &["--requirepass", "secret"]);
    let nobody = Port::claim();
    let sources: Vec<Server> = [Kind::Redis, Kind::Ember { shards: 1 }, Kind::Ember { shards: 3 }]
        .map(|kind| Server::start(kind, &["--lua-time-limit", "5000"]))
        .into();
    let thousand = vec!["a"; 1_000].join(" ");
    let requests: Vec<(u16, &str, String)> = vec![
        (open.port(), "a", "0 1000".into()),
        (open.port(), "a", "0 1000".into()),
        (open.port(), "nosuch", "0 1000".into()),
        (open.port(), "b", "0 1000 KEYS a".into()),
        (open.port(), "b", "0 1000 KEYS".into()),
        (open.port(), "", "0 1000 KEYS".into()),
        (open.port(), "b", "0 1000 NOSUCH".into()),
        (open.port(), "b", "0 1000 AUTH".into()),
        (open.port(), "b", "0 1000 AUTH2 a".into()),
        (open.port(), "b", "x 1000".into()),
        (open.port(), "b", "0 x".into()),
        (open.port(), "b", "x x".into()),
        (open.port(), "b", "99 1000".into()),
        (open.port(), "b", "0 1000 AUTH wrong".into()),
        (open.port(), "c", "0 0 REPLACE".into()),
        (open.port(), "d", "0 -5 COPY replace".into()),
        (open.port(), "", "0 1000 KEYS e f e".into()),
        (open.port(), "", "0 1000 REPLACE KEYS f d f".into()),
        (open.port(), "", format!("0 1000 REPLACE KEYS {thousand}")),
        (closed.port(), "g", "0 1000".into()),
        (closed.port(), "g", "0 1000 AUTH wrong".into()),
        (closed.port(), "g", "0 1000 AUTH2 default wrong".into()),
        (closed.port(), "g", "0 1000 AUTH2 default secret".into()),
        (closed.port(), "h", "2 1000 AUTH secret".into()),
        (closed.port(), "i", "2 1000 AUTH secret".into()),
        (nobody.number(), "j", "0 1000".into()),
        (0, "j", "0 1000".into()),
    ];
    let run = |source: &Server| -> Vec<String> {
        for (server, password) in [(&open, None), (&closed, Some("secret"))] {
            let mut client = server.client();
            password.into_iter().for_each(|password| drop(client.call(&format!("AUTH {password}"))));
            client.call("FLUSHALL");
        }
        let mut client = source.client();
        let mut said = Vec::new();
        for (nth, (port, key, rest)) in requests.iter().enumerate() {
            if nth == 0 || rest.ends_with(&thousand) {
                "abcdefghij".chars().for_each(|name| drop(client.call(&format!("SET {name} {name}"))));
            }
            let reply = migrate_key(source, *port, key, rest);
            let left: Vec<String> =
                ('a'..='j').map(|name| client.call(&format!("EXISTS {name}")).number().to_string()).collect();
            let rest: String = rest.chars().take(40).collect();
            // Whether it is told of a port on which nobody listens when it connects or when it writes is up to the system.
            let reply = format!("{reply:?}").replace("connecting to the client", "writing to target instance");
            said.push(format!("{nth} {key:?} {rest}: {reply}, left {}", left.concat()));
        }
        said
    };
    let theirs = run(&sources[0]);
    for source in &sources[1..] {
        let ours = run(source);
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{:?}", source.kind());
        }
    }
}

/// A target that says these lines, one for each read, and then hangs up, or says nothing any more.
fn target_that_says(lines: &'static [&'static str], hangs_up: bool) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let read = stream.read(&mut [0; 4096]);
            if read.is_ok() {
                lines.iter().for_each(|line| drop(stream.write_all(line.as_bytes())));
            }
            if hangs_up {
                let _ = stream.shutdown(Shutdown::Both);
            }
            open.push(stream);
        }
    });
    port
}

#[test]
fn keys_stay_where_the_target_fails() {
    on_embers(&[], |source| {
        let mut client = source.client();
        let set = |client: &mut crate::common::Client| {
            ["a", "b", "c"].iter().for_each(|key| drop(client.call(&format!("SET {key} v"))));
        };
        let reading = error("IOERR error or timeout reading to target instance");
        // SELECT comes first: its reply, and then those of the keys.
        for hangs_up in [true, false] {
            for (lines, left) in [
                (&[][..], 3),
                (&["+O"][..], 3),
                (&["+OK\r\n"][..], 3),
                (&["+OK\r\n", "+OK"][..], 3),
                (&["+OK\r\n", "+OK\r\n"][..], 2),
                (&["+OK\r\n", "+OK\r\n+OK\r\n"][..], 1),
            ] {
                set(&mut client);
                let port = target_that_says(lines, hangs_up);
                assert_eq!(migrate(source, port, "0 100 KEYS a b c"), reading, "{lines:?} {hangs_up}");
                assert_eq!(client.call("EXISTS a b c"), int(left), "{lines:?} {hangs_up}");
            }
        }
        set(&mut client);
        // An error is told although the link breaks behind it; what has arrived before it is gone.
        let port = target_that_says(&["+OK\r\n+OK\r\n-ERR \u{7}no\r\n"], true);
        let refused = migrate(source, port, "0 100 KEYS a b c");
        assert!(
            matches!(&refused, Value::Error(text) if text.starts_with("ERR Target instance replied with error: ERR"))
        );
        assert_eq!(client.call("EXISTS a"), int(0));
        assert_eq!(client.call("EXISTS b c"), int(2));
        // What never ends is no line.
        let endless: &'static str = Box::leak("x".repeat(1 << 20).into_boxed_str());
        let port = target_that_says(Box::leak(Box::new([endless])), false);
        assert_eq!(migrate(source, port, "0 1000 KEYS b c"), reading);
        assert_eq!(client.call("EXISTS b c"), int(2));
    });
}

/// go-redis expects the text that Redis has for a port on which nobody listens.
#[test]
fn a_target_that_is_not_there_is_told_as_redis_tells_it() {
    on_every_server(&[], |source| {
        source.client().call("SET k v");
        let nobody = Port::claim();
        let reply = migrate_key(source, nobody.number(), "k", "0 1000");
        assert_eq!(reply, error("IOERR error or timeout writing to target instance"));
        let reply = source.client().command(&["MIGRATE", "nowhere.invalid", "1", "k", "0", "1000"]);
        assert_eq!(reply, error("IOERR error or timeout connecting to the client"));
        assert_eq!(source.client().call("GET k"), bulk("v"));
    });
}

/// Whoever wants the key waits for the end; all others are served.
#[test]
fn only_the_keys_that_move_are_held() {
    on_embers(&[], |source| {
        let mut client = source.client();
        client.call("SET held v");
        let port = target_that_says(&[], false);
        let (began, is_over) = (Instant::now(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let reply = migrate_key(source, port, "held", "0 1500");
                assert_eq!(reply, error("IOERR error or timeout reading to target instance"));
                is_over.store(true, Ordering::SeqCst);
            });
            // It has begun when the key does not answer.
            let mut writer = source.client();
            let waits = wait_until(PATIENCE, || {
                writer.send("APPEND held w");
                let waits = writer.read_within(Duration::from_millis(50)).is_none();
                waits || is_over.load(Ordering::SeqCst)
            });
            assert!(waits && !is_over.load(Ordering::SeqCst));
            for n in 0..100 {
                assert_eq!(client.call(&format!("SET other:{n} v")), simple("OK"));
            }
            assert!(!is_over.load(Ordering::SeqCst), "they were served meanwhile");
            assert!(matches!(writer.read(), Value::Int(2..)), "it has the key when that stays");
        });
        assert!(began.elapsed() < PATIENCE);
        assert!(client.call("GET held").text().starts_with("vw"));
    });
}

/// No write to a key that moves is lost, and none is there twice.
#[test]
fn writers_to_a_key_that_moves_lose_nothing() {
    let target = Server::start(Kind::Ember { shards: 3 }, &[]);
    on_embers(&[], |source| {
        target.client().call("FLUSHALL");
        let (written, is_over) = (AtomicI64::new(0), AtomicBool::new(false));
        let mut moved = 0;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut client = source.client();
                    while !is_over.load(Ordering::Relaxed) {
                        assert!(!client.call("INCR counter").is_error());
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let (mut client, mut there) = (source.client(), target.client());
            let mut moves = 0;
            while moves < 200 {
                match client.call(&moving(&target, "counter", "0 5000")) {
                    Value::Simple(text) if text == b"OK" => {
                        moved += there.call("GETDEL counter").text().parse::<i64>().expect("a number");
                        moves += 1;
                    }
                    reply => assert_eq!(reply, simple("NOKEY")),
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let left = source.client().call("GET counter");
        let left = if left.is_null() { 0 } else { left.text().parse::<i64>().expect("a number") };
        assert_eq!(moved + left, written.load(Ordering::Relaxed));
    });
}

#[test]
fn keys_move_within_transactions_and_scripts() {
    let target = Server::start(Kind::Ember { shards: 1 }, &[]);
    on_embers(&[], |source| {
        target.client().call("FLUSHALL");
        let mut client = source.client();
        client.call("MULTI");
        client.call("SET a 1");
        client.call("SET b 2");
        client.call(&moving(&target, "a", "0 1000"));
        client.call("EXISTS a b");
        let replies = client.call("EXEC");
        assert_eq!(replies.items(), [simple("OK"), simple("OK"), simple("OK"), int(1)]);
        let port = target.port();
        let script = format!("return redis.call('MIGRATE', '127.0.0.1', {port}, KEYS[1], 0, 1000)");
        assert_eq!(client.command(&["EVAL", &script, "1", "b"]), simple("OK"));
        assert_eq!(client.call("DBSIZE"), int(0));
        assert_eq!(target.client().call("MGET a b"), Value::bulks(&["1", "2"]));
    });
}

#[test]
fn connections_are_kept_and_a_closed_one_is_replaced() {
    let target = Server::start(Kind::Ember { shards: 1 }, &[]);
    on_embers(&[], |source| {
        let mut client = source.client();
        let mut there = target.client();
        there.call("FLUSHALL");
        let cached = || source.info("migrate_cached_sockets");
        assert_eq!(cached().as_deref(), Some("0"));
        let before = target.info("total_connections_received");
        let before: u64 = before.and_then(|count| count.parse().ok()).expect("a number");
        for n in 0..10 {
            client.call(&format!("SET {n} v"));
            assert_eq!(client.call(&moving(&target, &n.to_string(), "0 1000")), simple("OK"));
            assert_eq!(cached().as_deref(), Some("1"));
        }
        let after = target.info("total_connections_received");
        let after: u64 = after.and_then(|count| count.parse().ok()).expect("a number");
        // (One of them has just asked.)
        assert_eq!(after - before, 2);
        there.call("CLIENT KILL TYPE normal SKIPME yes");
        client.call("SET last v");
        assert_eq!(client.call(&moving(&target, "last", "0 1000")), simple("OK"));
        // Nobody uses what another one's password has opened.
        there.call("ACL SETUSER other on >secret +@all ~*");
        client.call("SET as-other v");
        assert_eq!(client.call(&moving(&target, "as-other", "0 1000 AUTH2 other secret")), simple("OK"));
        assert_eq!(cached().as_deref(), Some("2"));
        assert_eq!(there.call("DBSIZE"), int(12));
    });
}

#[test]
fn replicas_hear_that_moved_keys_are_gone() {
    if !have_redis() {
        return;
    }
    let target = Server::start(Kind::Redis, &[]);
    on_embers(PRIMARY, |source| {
        target.client().call("FLUSHALL");
        let replica = replica_of(source, Kind::Redis, STRICT);
        wait_for_link(&replica);
        let mut client = source.client();
        ["a", "b", "c"].iter().for_each(|key| drop(client.call(&format!("SET {key} v"))));
        target.client().call("SET b there");
        let refused = migrate(source, target.port(), "0 1000 KEYS a b c");
        assert!(refused.is_error());
        assert_eq!(client.call("KEYS *"), Value::bulks(&["b"]));
        settle(source, &replica);
    });
}

#[test]
fn restore_asking_is_restore() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("SET a v");
        let payload = client.call("DUMP a").bytes().expect("a payload").to_vec();
        let restore = [&b"RESTORE-ASKING"[..], b"b", b"100000", &payload];
        assert_eq!(client.command(&restore), simple("OK"));
        assert_eq!(client.call("GET b"), bulk("v"));
        assert!(client.call("PTTL b").number() > 0);
        assert_eq!(client.command(&restore), error("BUSYKEY Target key name already exists."));
    });
}
