//! `maxmemory`: what is answered where memory is short, which keys go and who is told, and that the ceiling holds.

use crate::common::{
    Client, Kind, Server, Value, bulk, encode, error, int, on_embers, on_every_server, simple, wait_until, words,
};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const MIB: u64 = 1 << 20;

fn number(server: &Server, field: &str) -> u64 {
    server.info(field).and_then(|value| value.parse().ok()).expect("a number")
}

/// Sets the ceiling so far above what is used.
fn leave(server: &Server, bytes: u64) -> u64 {
    let ceiling = number(server, "used_memory") + bytes;
    assert_eq!(server.client().call(&format!("CONFIG SET maxmemory {ceiling}")), Value::ok());
    ceiling
}

/// Sets keys of 200 bytes in pipelines; how many were refused.
fn fill(client: &mut Client, prefix: &str, count: usize, end: &str) -> usize {
    let value = "x".repeat(200);
    let mut refused = 0;
    for first in (0..count).step_by(100) {
        let sets: Vec<_> = (first..first + 100).map(|i| words(&format!("SET {prefix}{i} {value}{end}"))).collect();
        for reply in client.pipeline(&sets) {
            assert!(reply == Value::ok() || reply == error(OOM), "{reply:?}");
            refused += usize::from(reply != Value::ok());
        }
    }
    refused
}

#[test]
fn commands_that_may_need_memory_are_refused_where_there_is_none() {
    on_every_server(&[], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        assert_eq!(client.call("SET there 1"), Value::ok());
        assert_eq!(client.call("RPUSH list a b"), int(2));
        assert_eq!(other.call("MULTI"), Value::ok());
        assert_eq!(other.call("SET queued 1"), simple("QUEUED"));
        assert_eq!(client.call("CONFIG SET maxmemory 1"), Value::ok());
        for refused in [
            "SET a b",
            "APPEND there x",
            "INCR there",
            "LPUSH list x",
            "MSET a 1 b 2 c 3 d 4",
            "SADD s a",
            "COPY there here",
            "SORT list ALPHA STORE sorted",
            "SUNIONSTORE s a b c",
            "XADD x * f v",
            "SETBIT a 7 1",
        ] {
            assert_eq!(client.call(refused), error(OOM), "{refused}");
        }
        assert_eq!(client.call("GET there"), bulk("1"));
        assert_eq!(client.call("EXPIRE there 100"), int(1));
        assert_eq!(client.call("LPOP list"), bulk("a"));
        assert_eq!(client.call("PING"), simple("PONG"));
        assert_eq!(other.call("EXEC"), error(&format!("EXECABORT Transaction discarded because of: {OOM}")));
        // Nothing is queued, whatever it is.
        assert_eq!(client.call("MULTI"), Value::ok());
        assert_eq!(client.call("GET there"), error(OOM));
        assert_eq!(client.call("EXEC"), error("EXECABORT Transaction discarded because of previous errors."));
        assert_eq!(client.call("MULTI"), Value::ok());
        assert_eq!(client.call("DISCARD"), Value::ok());
        let set = "return redis.call('set',KEYS[1],'x')";
        let answer = client.command(&["EVAL", set, "1", "a"]).text();
        assert!(answer.starts_with(OOM), "{answer}");
        let read = "return redis.call('get',KEYS[1])";
        assert_eq!(client.command(&["EVAL", read, "1", "there"]), bulk("1"));
        assert_eq!(client.command(&["EVAL", &format!("#!lua\n{set}"), "1", "a"]), error(OOM));
        assert_eq!(client.command(&["EVAL", &format!("#!lua flags=no-writes\n{read}"), "1", "there"]), bulk("1"));
        assert_eq!(client.command(&["EVAL", &format!("#!lua flags=allow-oom\n{set}"), "1", "a"]), simple("OK"));
        assert_eq!(client.call("DEL there a list"), int(3));
        assert_eq!(client.call("CONFIG SET maxmemory 0"), Value::ok());
        assert_eq!(client.call("SET a b"), Value::ok());
    });
}

/// What has written may go on (as long as it does not go on for ever).
#[test]
fn a_script_that_has_written_is_not_stopped_halfway() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("SET {a}x 1"), Value::ok());
        leave(server, 0);
        let pop_and_push = "redis.call('del',KEYS[1]) return redis.call('set',KEYS[2],'x')";
        assert_eq!(client.command(&["EVAL", pop_and_push, "2", "{a}x", "{a}y"]), simple("OK"));
        let fill = "for i = 1, 100000 do redis.call('append', KEYS[1], string.rep('x', 1000)) end";
        let answer = client.command(&["EVAL", fill, "1", "{a}z"]).text();
        assert!(answer.starts_with(OOM), "{answer}");
        assert!(number(server, "used_memory") < number(server, "maxmemory") + 8 * MIB);
    });
}

#[test]
fn the_ceiling_holds_whatever_goes_first() {
    for policy in [
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-lrm",
        "allkeys-random",
        "volatile-lru",
        "volatile-lfu",
        "volatile-lrm",
        "volatile-random",
        "volatile-ttl",
    ] {
        on_embers(&["--maxmemory-policy", policy], |server| {
            let mut client = server.client();
            let ceiling = leave(server, 4 * MIB);
            for round in 0..5 {
                assert_eq!(fill(&mut client, &format!("{round}:"), 20_000, " EX 1000"), 0, "{policy}");
                let settled = || number(server, "used_memory") <= ceiling;
                assert!(wait_until(PATIENCE, settled), "{policy}: {} of {ceiling}", number(server, "used_memory"));
            }
            let mut left = 0;
            let adds_up = wait_until(PATIENCE, || {
                left = client.call("DBSIZE").number() as u64;
                number(server, "evicted_keys") + left == 100_000
            });
            assert!(adds_up, "{policy}: {left} keys are left");
            assert!(left > 13_000, "{policy}: {left} keys of 200 bytes in 4 MiB");
        });
    }
}

/// With the cycle off, on whatever shard they are.
#[test]
fn dead_keys_go_before_live_ones() {
    for policy in ["noeviction", "allkeys-lru", "volatile-ttl"] {
        on_embers(&["--active-expire-enabled", "no", "--maxmemory-policy", policy], |server| {
            let mut client = server.client();
            assert_eq!(fill(&mut client, "dead:", 20_000, " PX 1"), 0);
            assert!(wait_until(PATIENCE, || client.call("KEYS dead:*").items().is_empty()));
            assert_eq!(number(server, "expired_keys"), 0);
            leave(server, MIB);
            // As many as have died: there is room for them all.
            assert_eq!(fill(&mut client, "live:", 18_000, " EX 1000"), 0, "{policy}");
            assert_eq!(number(server, "evicted_keys"), 0, "{policy}");
            assert_eq!(client.call("DBSIZE"), int(18_000), "{policy}");
        });
    }
}

#[test]
fn the_nearest_deadlines_go_first() {
    on_embers(&["--maxmemory-policy", "volatile-ttl"], |server| {
        let mut client = server.client();
        let value = "x".repeat(300);
        for first in (0..10_000).step_by(100) {
            let sets: Vec<_> = (first..first + 100)
                .flat_map(|i| {
                    [
                        words(&format!("SET {i} {value} EX {}", 10_000 + i * 7919 % 10_000)),
                        words(&format!("SET stays:{i} x")),
                    ]
                })
                .collect();
            assert!(client.pipeline(&sets).iter().all(|reply| *reply == Value::ok()));
        }
        let ceiling = number(server, "used_memory") - MIB;
        assert_eq!(client.call(&format!("CONFIG SET maxmemory {ceiling}")), Value::ok());
        assert!(wait_until(PATIENCE, || number(server, "used_memory") <= ceiling));
        let left = client.call("KEYS *");
        let deadline_of = |name: &str| 10_000 + name.parse::<u64>().expect("a number") * 7919 % 10_000;
        let mut left_s: Vec<u64> = left
            .items()
            .iter()
            .map(Value::text)
            .filter(|name| !name.contains(':'))
            .map(|name| deadline_of(&name))
            .collect();
        left_s.sort_unstable();
        assert_eq!(client.call("EXISTS stays:0 stays:1 stays:9999"), int(3));
        assert!((2000..8000).contains(&left_s.len()), "{} are left", left_s.len());
        let shards = if server.kind() == (Kind::Ember { shards: 1 }) { 1 } else { 3 };
        if shards == 1 {
            assert_eq!(left_s, (20_000 - left_s.len() as u64..20_000).collect::<Vec<_>>());
        }
    });
}

/// One shard's keys must go so that another's may come.
#[test]
fn a_shard_may_use_what_another_does_not() {
    let server = Server::start(Kind::Ember { shards: 3 }, &["--maxmemory-policy", "volatile-lru"]);
    let mut client = server.client();
    // Whoever has the tag's keys has no others.
    assert_eq!(fill(&mut client, "{a}volatile:", 20_000, " EX 1000"), 0);
    leave(&server, 0);
    let mut refused = 0;
    for tag in 0..20 {
        refused += fill(&mut client, &format!("{{b{tag}}}stays:"), 500, "");
    }
    assert_eq!(refused, 0);
    // (They may go a little behind what comes.)
    assert!(wait_until(PATIENCE, || number(&server, "evicted_keys") > 5_000));
}

/// Many small keys of one shard must go for each large one of others, faster than it can: who writes waits for it.
#[test]
fn nobody_is_refused_while_another_shard_has_keys_to_give() {
    for policy in ["allkeys-lru", "allkeys-random", "volatile-ttl"] {
        let server = Server::start(Kind::Ember { shards: 3 }, &["--maxmemory-policy", policy]);
        let mut client = server.client();
        assert_eq!(fill(&mut client, "{a}small:", 60_000, " EX 1000"), 0);
        let ceiling = leave(&server, 0);
        let value = "x".repeat(100_000);
        // Those without deadlines, which volatile-ttl spares, are fewer bytes than those that may go.
        for first in (0..100).step_by(50) {
            let sets: Vec<_> = (first..first + 50)
                .flat_map(|i| match i % 3 {
                    0 => vec![words(&format!("SET {i} {value} EX 1000"))],
                    1 => vec![words(&format!("MSET {i} {value} other{i} x"))],
                    _ => vec![words("MULTI"), words(&format!("LPUSH {i} {value}")), words("EXEC")],
                })
                .collect();
            let replies = client.pipeline(&sets);
            let error = replies.iter().find(|reply| reply.is_error());
            assert!(error.is_none(), "{policy}: {error:?}");
        }
        assert!(wait_until(PATIENCE, || number(&server, "used_memory") <= ceiling), "{policy}");
    }
}

/// A ceiling that is nearly reached by what there is beside keys: those that fit are kept, whatever has been between shards.
#[test]
fn buffers_of_a_burst_do_not_take_the_place_of_keys() {
    on_embers(&["--maxmemory-policy", "allkeys-random"], |server| {
        let mut client = server.client();
        leave(server, 2 * MIB);
        for round in 0..3 {
            assert_eq!(fill(&mut client, &format!("{round}:"), 20_000, ""), 0);
        }
        assert_eq!(client.call("FLUSHALL"), Value::ok());
        let kept = || number(server, "mem_kept_buffers");
        // One that is in use all the time stays, however large it once had to be.
        assert!(wait_until(PATIENCE, || kept() < 1 << 20), "{} bytes are kept", kept());
        assert_eq!(fill(&mut client, "again:", 4_000, ""), 0);
        assert!(client.call("DBSIZE").number() > 2_000);
    });
}

/// Nothing may go that a script holds, and it holds everything: others are served all the same, and it ends.
#[test]
fn a_script_that_fills_memory_stops_nobody() {
    for policy in ["allkeys-lru", "noeviction", "volatile-ttl"] {
        on_embers(&["--maxmemory-policy", policy], |server| {
            let (mut client, mut other) = (server.client(), server.client());
            assert_eq!(fill(&mut client, "there:", 5_000, " EX 1000"), 0);
            leave(server, MIB);
            client.send_raw(&encode(&[
                "EVAL",
                "for i = 1, 200000 do redis.call('set', 'k' .. i, string.rep('x', 100)) end",
                "0",
            ]));
            for _ in 0..20 {
                assert_eq!(other.call("PING"), simple("PONG"), "{policy}");
            }
            let answer = client.read();
            assert!(answer.is_null() || answer.text().starts_with("OOM"), "{policy}: {answer:?}");
            assert!(number(server, "used_memory") < number(server, "maxmemory") + 8 * MIB, "{policy}");
        });
    }
}

/// Dead keys that cannot go while keys are held.
#[test]
fn keys_that_are_held_stop_nobody_else() {
    let flags = ["--active-expire-enabled", "no", "--enable-debug-command", "yes"];
    on_embers(&flags, |server| {
        let (mut client, mut other) = (server.client(), server.client());
        assert_eq!(fill(&mut client, "dead:", 5_000, " PX 1"), 0);
        let hold = "local n = 0 for i = 1, 20000000 do n = n + i end redis.call('set', KEYS[1], n) return 'done'";
        client.send_raw(&encode(&["EVAL", hold, "1", "held"]));
        assert_eq!(other.call("CONFIG SET maxmemory 1"), Value::ok());
        for _ in 0..20 {
            assert_eq!(other.call("PING"), simple("PONG"));
            assert!(!other.call("SET a 1").text().is_empty());
        }
        let answer = client.read();
        assert!(answer == bulk("done") || answer.text().starts_with("OOM"), "{answer:?}");
        assert_eq!(other.call("CONFIG SET maxmemory 0"), Value::ok());
        assert_eq!(other.call("SET a 1"), Value::ok());
    });
}

/// They have no deadline of their own, and so do not go.
#[test]
fn hashes_whose_fields_alone_have_deadlines_do_not_go() {
    for policy in ["volatile-lru", "volatile-ttl", "volatile-random"] {
        on_embers(&["--maxmemory-policy", policy], |server| {
            let mut client = server.client();
            for i in 0..500 {
                assert_eq!(client.call(&format!("HSET h{i} f v")), int(1));
                assert_eq!(client.call(&format!("HEXPIRE h{i} 1000 FIELDS 1 f")).items(), [int(1)]);
            }
            assert_eq!(client.call("CONFIG SET maxmemory 1"), Value::ok());
            for _ in 0..50 {
                assert_eq!(client.call("SET a b"), error(OOM));
                assert_eq!(client.call("PING"), simple("PONG"));
            }
            assert_eq!(client.call("CONFIG SET maxmemory 0"), Value::ok());
            assert_eq!(client.call("DBSIZE"), int(500));
        });
    }
}

/// Few keys may go, among many that may not.
#[test]
fn those_that_may_go_are_found_wherever_they_are() {
    for policy in ["volatile-lru", "volatile-random", "volatile-ttl"] {
        let server = Server::start(Kind::Ember { shards: 1 }, &["--maxmemory-policy", policy]);
        let mut client = server.client();
        let value = "x".repeat(1000);
        for first in (0..20_000).step_by(100) {
            let sets: Vec<_> = (first..first + 100)
                .map(|i| words(&format!("SET k{i} {value}{}", if i % 40 == 7 { " EX 1000" } else { "" })))
                .collect();
            assert!(client.pipeline(&sets).iter().all(|reply| *reply == Value::ok()));
        }
        leave(&server, 0);
        for i in 0..300 {
            assert_eq!(client.call(&format!("SET more{i} {value}")), Value::ok(), "{policy}: {i}");
        }
        assert!(number(&server, "evicted_keys") >= 250);
    }
}

/// What one shard's connections have others do counts as well.
#[test]
fn parts_of_transactions_find_the_ceiling_too() {
    let server = Server::start(Kind::Ember { shards: 3 }, &[]);
    let value = "x".repeat(1000);
    for (number_of, tag) in ["{a}", "{b}", "{c}", "{d}", "{e}"].into_iter().enumerate() {
        let mut client = server.client();
        let ceiling = leave(&server, MIB);
        let mut refused = false;
        for i in 0..20_000 {
            let transaction = [words("MULTI"), words(&format!("SET {tag}{i} {value}")), words("EXEC")];
            refused = client.pipeline(&transaction).iter().any(Value::is_error);
            if refused {
                break;
            }
        }
        assert!(refused, "{number_of}");
        let used = number(&server, "used_memory");
        assert!(used < ceiling + 6 * MIB, "{number_of}: {used} of {ceiling}");
        assert_eq!(client.call("CONFIG SET maxmemory 0"), Value::ok());
        assert_eq!(client.call("FLUSHALL"), Value::ok());
    }
}

/// Each copy is more than what comes back while a command waits.
#[test]
fn large_collections_do_not_outrun_what_is_freed() {
    on_embers(&["--maxmemory-policy", "allkeys-lru"], |server| {
        let mut client = server.client();
        for first in (0..50_000).step_by(1000) {
            let members: Vec<String> = (first..first + 1000).map(|i| format!("member{i}")).collect();
            assert!(!client.call(&format!("SADD set {}", members.join(" "))).is_error());
        }
        let ceiling = leave(server, 20 * MIB);
        for i in 0..100 {
            let reply = client.call(&format!("COPY set copy{i}"));
            assert!(reply == int(1) || reply == int(0) || reply == error(OOM), "{reply:?}");
            let used = number(server, "used_memory");
            assert!(used < ceiling + 12 * MIB, "{i}: {used} of {ceiling}");
        }
    });
}

#[test]
fn evictions_are_changes() {
    on_embers(&["--maxmemory-policy", "allkeys-random", "--notify-keyspace-events", "Ee"], |server| {
        let mut subscriber = server.client();
        subscriber.send("SUBSCRIBE __keyevent@0__:evicted");
        assert!(!subscriber.read().is_error());
        let (mut watcher, mut reader, mut client) = (server.client(), server.client3(), server.client());
        assert_eq!(client.call("SET k 1"), Value::ok());
        assert_eq!(watcher.call("WATCH k"), Value::ok());
        assert_eq!(reader.call("CLIENT TRACKING ON"), Value::ok());
        assert_eq!(reader.call("GET k"), bulk("1"));
        assert_eq!(client.call("CONFIG SET maxmemory 1"), Value::ok());
        assert!(wait_until(PATIENCE, || client.call("EXISTS k") == int(0)));
        assert_eq!(client.call("CONFIG SET maxmemory 0"), Value::ok());
        assert_eq!(watcher.call("MULTI"), Value::ok());
        assert_eq!(watcher.call("PING"), simple("QUEUED"));
        assert!(watcher.call("EXEC").is_null());
        assert_eq!(reader.read(), Value::Push(vec![bulk("invalidate"), Value::bulks(&["k"])]));
        assert_eq!(number(server, "evicted_keys"), 1);
        assert_eq!(subscriber.read(), Value::bulks(&["message", "__keyevent@0__:evicted", "k"]));
    });
}

/// Ten connections have a copy of each key, and are told which ones go. That takes ten times the memory that comes back.
#[test]
fn telling_of_evicted_keys_evicts_no_more_of_them() {
    const KEYS: usize = 300;
    on_embers(&["--maxmemory-policy", "allkeys-lru"], |server| {
        let mut client = server.client();
        let mut readers: Vec<Client> = (0..10).map(|_| server.client3()).collect();
        readers.iter_mut().for_each(|reader| assert_eq!(reader.call("CLIENT TRACKING ON"), Value::ok()));
        let name = |n: usize| format!("{n}{}", "x".repeat(1_000));
        for n in 0..KEYS {
            assert_eq!(client.call(&format!("SET {} x", name(n))), Value::ok());
            readers.iter_mut().for_each(|reader| assert_eq!(reader.call(&format!("GET {}", name(n))), bulk("x")));
        }
        let ceiling = number(server, "used_memory") - 40_000;
        assert_eq!(client.call(&format!("CONFIG SET maxmemory {ceiling}")), Value::ok());
        assert!(wait_until(PATIENCE, || number(server, "used_memory") <= ceiling));
        assert!(number(server, "evicted_keys") > 0);
        assert!(client.call("DBSIZE").number() > KEYS as i64 / 2);
    });
}

#[test]
fn a_lowered_ceiling_drains_while_others_are_served() {
    on_embers(&["--maxmemory-policy", "allkeys-lru"], |server| {
        let mut client = server.client();
        assert_eq!(fill(&mut client, "", 100_000, ""), 0);
        assert_eq!(client.command(&[&b"SET"[..], b"large", &vec![b'x'; 5 << 20]]), Value::ok());
        let ceiling = number(server, "used_memory") - 15 * MIB;
        assert_eq!(client.call(&format!("CONFIG SET maxmemory {ceiling}")), Value::ok());
        assert_eq!(client.call("PING"), simple("PONG"));
        assert!(wait_until(PATIENCE, || number(server, "used_memory") <= ceiling));
        assert!(client.call("DBSIZE").number() > 5_000);
        // A value that is larger than the ceiling finds no room, nor does anything else while it is there.
        let huge = vec![b'x'; ceiling as usize + 1];
        let reply = client.command(&[&b"SET"[..], b"huge", &huge]);
        assert!(reply == Value::ok() || reply == error(OOM));
        assert!(wait_until(PATIENCE, || client.call("SET small 1") == Value::ok()));
    });
}

/// A ceiling that changes all the time: answers, and no end.
#[test]
fn the_ceiling_may_change_at_any_time() {
    on_embers(&["--maxmemory-policy", "allkeys-lfu"], |server| {
        let mut operator = server.client();
        let mut client = server.client();
        let begin = Instant::now();
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (0..10).map(|round| fill(&mut client, &format!("{round}:"), 5_000, " EX 100")).sum::<usize>()
            });
            while !writer.is_finished() && begin.elapsed() < PATIENCE {
                for ceiling in ["1", "5mb", "1gb", "0", "50%", "18446744073709551615"] {
                    assert_eq!(operator.call(&format!("CONFIG SET maxmemory {ceiling}")), Value::ok());
                }
            }
        });
        assert_eq!(operator.call("CONFIG SET maxmemory 0"), Value::ok());
        assert_eq!(operator.call("SET a 1"), Value::ok());
    });
}

#[test]
fn clocks_say_what_the_policy_wants() {
    const NO_IDLE: &str = "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching \
                           between policies at runtime LRU and LFU data will take some time to adjust.";
    on_every_server(&["--maxmemory-policy", "allkeys-lfu", "--lfu-log-factor", "0"], |server| {
        let mut client = server.client();
        assert_eq!(client.call("SET k 1"), Value::ok());
        assert_eq!(client.call("OBJECT FREQ k"), int(5));
        (0..20).for_each(|_| assert_eq!(client.call("GET k"), bulk("1")));
        assert_eq!(client.call("OBJECT FREQ k"), int(25));
        assert_eq!(client.call("OBJECT IDLETIME k"), error(NO_IDLE));
        assert!(client.call("OBJECT FREQ none").is_null());
        let payload = client.call("DUMP k").bytes().expect("a payload").to_vec();
        let restore: [&[u8]; 6] = [b"RESTORE", b"again", b"0", &payload, b"FREQ", b"200"];
        assert_eq!(client.command(&restore), Value::ok());
        assert_eq!(client.call("OBJECT FREQ again"), int(200));
        assert_eq!(client.call("CONFIG SET maxmemory-policy allkeys-lru"), Value::ok());
        assert!(client.call("OBJECT FREQ k").is_error());
        assert!(!client.call("OBJECT IDLETIME k").is_error());
    });
}
