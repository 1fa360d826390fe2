//! Live queries: LIVE COUNT, KEYS, SUM, NEXT, and what tells them apart from asking again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common::{Client, Server, Value, bulk, encode, error, int, on_embers, simple, wait_until};

/// For something that is to come.
const SOON: Duration = Duration::from_secs(20);
/// For something that is not to come.
const QUIET: Duration = Duration::from_millis(300);
/// How many rounds of random commands there are; more of them take longer.
const ROUNDS: &str = "EMBERDB_TEST_LIVE_ROUNDS";

/// A query that a connection has asked, and what it was told last.
struct Query {
    id: i64,
    result: Value,
}

/// The words of a line, of which one in single quotes is what it is.
fn quoted(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        })
        .collect()
}

#[track_caller]
fn ask(client: &mut Client, line: &str) -> Query {
    let reply = client.command(&quoted(line));
    let items = reply.items();
    assert_eq!(items.len(), 2, "{line}: {reply:?}");
    Query { id: items[0].number(), result: items[1].clone() }
}

/// The number and the result of a message, whichever protocol it has come by.
#[track_caller]
fn told(message: &Value) -> (i64, Value) {
    let items = message.items();
    assert!(items.len() == 3 && items[0] == bulk("live"), "{message:?}");
    (items[1].number(), items[2].clone())
}

/// Reads what is told until a query's result is so.
#[track_caller]
fn expect(client: &mut Client, id: i64, result: &Value) {
    let began = Instant::now();
    let mut last = None;
    while began.elapsed() < SOON {
        let Some(message) = client.read_within(SOON) else { break };
        let (of, now) = told(&message);
        if of == id && now == *result {
            return;
        }
        last = Some((of, now));
    }
    panic!("{result:?} of {id} did not come, the last was {last:?}");
}

fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

#[test]
fn results_are_told_when_they_change() {
    on_embers(&[], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        writer.call("MSET a:1 x a:2 x b:1 x");
        let count = ask(&mut reader, "LIVE COUNT a:");
        let all = ask(&mut reader, "LIVE COUNT ''");
        let keys = ask(&mut reader, "LIVE KEYS a:");
        assert_eq!((count.result, all.result), (int(2), int(3)));
        assert_eq!(keys.result, Value::Array(vec![int(2), Value::bulks(&["a:1", "a:2"])]));
        writer.call("SET a:3 x");
        expect(&mut reader, count.id, &int(3));
        writer.call("RENAME b:1 a:4");
        expect(&mut reader, keys.id, &Value::Array(vec![int(4), Value::bulks(&["a:1", "a:2", "a:3", "a:4"])]));
        writer.call("DEL a:1 a:2 a:3");
        expect(&mut reader, all.id, &int(1));
        writer.call("SET a:4 other");
        writer.call("LPUSH c 1");
        writer.call("LPOP c");
        reader.drain(QUIET);
        assert_eq!(reader.read_within(QUIET), None, "nothing changes, nothing is told");
        writer.call("SET a:9 x");
        expect(&mut reader, count.id, &int(2));
        writer.call("PEXPIRE a:9 20");
        expect(&mut reader, count.id, &int(1));
    });
}

#[test]
fn bytes_and_next_deaths_are_told() {
    on_embers(&[], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        writer.call("SET a:1 x");
        let sum = ask(&mut reader, "LIVE SUM a: BYTES");
        let next = ask(&mut reader, "LIVE NEXT a: 2");
        assert_eq!((sum.result, next.result), (writer.call("MEMORY USAGE a:1"), Value::Array(vec![])));
        writer.call(&format!("SET a:2 {}", "x".repeat(5000)));
        let bytes = writer.call("MEMORY USAGE a:1").number() + writer.call("MEMORY USAGE a:2").number();
        expect(&mut reader, sum.id, &int(bytes));
        let far_ms = wall_ms() + 1_000_000;
        for (key, at_ms) in [("a:1", far_ms + 3), ("a:2", far_ms + 2), ("a:3", far_ms + 1)] {
            writer.call(&format!("SET {key} x PXAT {at_ms}"));
        }
        let pairs = |pairs: &[(&str, i64)]| {
            Value::Array(pairs.iter().flat_map(|(key, at_ms)| [bulk(key), int(*at_ms)]).collect())
        };
        expect(&mut reader, next.id, &pairs(&[("a:3", far_ms + 1), ("a:2", far_ms + 2)]));
        writer.call("PERSIST a:3");
        expect(&mut reader, next.id, &pairs(&[("a:2", far_ms + 2), ("a:1", far_ms + 3)]));
    });
}

/// In RESP2 nothing tells messages from replies but that a connection listens.
#[test]
fn a_connection_of_resp2_listens() {
    on_embers(&[], |server| {
        let (mut reader, mut writer) = (server.client(), server.client());
        let count = ask(&mut reader, "LIVE COUNT a:");
        assert!(reader.call("GET a:1").text().contains("only (P|S)SUBSCRIBE"));
        assert_eq!(reader.call("PING"), Value::bulks(&["pong", ""]));
        assert_eq!(reader.call("LIVE LIST").items().len(), 1);
        writer.call("SET a:1 x");
        let message = reader.read_within(SOON).expect("a message");
        assert_eq!(message, Value::Array(vec![bulk("live"), int(count.id), int(1)]));
        let (line, id) = (writer.call("CLIENT LIST").text(), count.id);
        assert!(line.contains(" live=1\n") && line.contains("flags=P "), "{line}");
        assert!(writer.call("CLIENT LIST TYPE pubsub").text().contains(" live=1\n"));
        assert_eq!(reader.call(&format!("LIVE STOP {id}")), Value::ok());
        assert_eq!(reader.call("GET a:1"), bulk("x"));
        assert_eq!(reader.call(&format!("LIVE STOP {id}")), error("ERR no such live query"));
    });
}

#[test]
fn databases_are_emptied_and_change_places_beneath() {
    on_embers(&[], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        for i in 0..50 {
            writer.call(&format!("SET a:{i} x"));
        }
        writer.call("SELECT 1");
        writer.call("SET a:other x");
        let here = ask(&mut reader, "LIVE COUNT a:");
        reader.call("SELECT 1");
        let there = ask(&mut reader, "LIVE COUNT a:");
        assert_eq!((here.result, there.result), (int(50), int(1)));
        writer.call("SWAPDB 0 1");
        expect(&mut reader, there.id, &int(50));
        writer.call("MOVE a:1 0");
        expect(&mut reader, there.id, &int(49));
        writer.call("FLUSHDB");
        expect(&mut reader, there.id, &int(0));
        writer.call("SET a:1 x");
        expect(&mut reader, there.id, &int(1));
        for flush in ["FLUSHALL", "FLUSHALL ASYNC", "DEBUG RELOAD"] {
            writer.call("SET a:1 x");
            writer.call("SET a:2 x");
            expect(&mut reader, there.id, &int(2));
            writer.call(flush);
            let left = if flush.starts_with("FLUSH") { 0 } else { 2 };
            assert_eq!(writer.call("DBSIZE"), int(left));
            writer.call("SET a:3 x");
            expect(&mut reader, there.id, &int(left + 1));
            writer.call("DEL a:1 a:2 a:3");
            expect(&mut reader, there.id, &int(0));
        }
    });
}

#[test]
fn transactions_are_seen_whole() {
    const RESULTS: usize = 50;
    on_embers(&["--live-interval-ms", "1"], |server| {
        let mut reader = server.client3();
        let count = ask(&mut reader, "LIVE COUNT t:");
        let names: Vec<String> = (0..8).map(|i| format!("t:{i}")).collect();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for wide in [true, false] {
                let (mut writer, names, is_over) = (server.client(), &names, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        if wide {
                            writer.call("MULTI");
                            names.iter().for_each(|name| drop(writer.call(&format!("SET {name} x"))));
                            writer.call("EXEC");
                            writer.call(&format!("DEL {}", names.join(" ")));
                        } else {
                            let pairs: Vec<String> = names.iter().map(|name| format!("{name} y")).collect();
                            writer.call(&format!("MSET {}", pairs.join(" ")));
                            let line = format!("EVAL 'return redis.call(\"DEL\",unpack(KEYS))' 8 {}", names.join(" "));
                            writer.command(&quoted(&line));
                        }
                    }
                });
            }
            let messages: Vec<Option<Value>> = (0..RESULTS).map(|_| reader.read_within(SOON)).collect();
            is_over.store(true, Ordering::Relaxed);
            for message in messages {
                let (id, result) = told(&message.expect("a result beside transactions that do not end"));
                assert_eq!(id, count.id);
                assert!(result == int(0) || result == int(8), "{result:?}");
            }
        });
    });
}

#[test]
fn counts_are_zero_soon_after_the_last_death() {
    const ROUNDS: usize = 10;
    /// On a machine that has much else to do for a while.
    const ROUNDS_MAX: usize = 60;
    const LIMIT_MS: i64 = 60;
    on_embers(&[], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        let count = ask(&mut reader, "LIVE COUNT s:");
        let mut late_ms = Vec::new();
        let is_soon = |late_ms: &[i64]| {
            let last = &late_ms[late_ms.len().saturating_sub(ROUNDS)..];
            last.len() == ROUNDS && last.iter().filter(|late_ms| **late_ms <= LIMIT_MS).count() * 10 >= ROUNDS * 9
        };
        while late_ms.len() < ROUNDS_MAX && !is_soon(&late_ms) {
            // (Where all were dead before the first result, nothing would be told.)
            writer.call("SET s:first x");
            expect(&mut reader, count.id, &int(1));
            let last_ms = wall_ms() + 300;
            let sets: Vec<Vec<String>> = (0..2_000)
                .map(|i| format!("SET s:{i} x PXAT {}", last_ms - i % 100).split(' ').map(str::to_owned).collect())
                .collect();
            writer.pipeline(&sets);
            writer.call("DEL s:first");
            expect(&mut reader, count.id, &int(0));
            late_ms.push(wall_ms() - last_ms);
        }
        assert!(is_soon(&late_ms), "{late_ms:?}");
    });
}

/// The last of what each query was told.
fn last_results(client: &mut Client, results: &mut BTreeMap<i64, Value>) {
    for message in client.drain(QUIET) {
        let (id, result) = told(&message);
        results.insert(id, result);
    }
}

fn random_command(rng: &mut fastrand::Rng) -> String {
    let prefixes = ["a:", "a:b:", "c", "d:e"];
    let mut name = || format!("{}{}", prefixes[rng.usize(..prefixes.len())], rng.u32(..60));
    let (key, other) = (name(), name());
    let (n, ms) = (rng.u32(..40), rng.u32(1..400));
    match rng.u32(..40) {
        0..6 => format!("SET {key} {}", "x".repeat(n as usize * 7)),
        6..9 => format!("SET {key} x PX {ms}"),
        9 => format!("APPEND {key} {}", "y".repeat(n as usize)),
        10 => format!("PEXPIRE {key} {ms}"),
        11 => format!("PERSIST {key}"),
        12..15 => format!("DEL {key} {other}"),
        15 => format!("RENAME {key} {other}"),
        16 => format!("COPY {key} {other} REPLACE"),
        17 => format!("UNLINK {key}"),
        18 => format!("GETDEL {key}"),
        19 => format!("INCR {key}"),
        20..22 => format!("RPUSH {key} {}", "element ".repeat(1 + n as usize).trim_end()),
        22 => format!("LPOP {key} 5"),
        23 => format!("LREM {key} 0 element"),
        24..26 => format!("HSET {key} f{n} {} g {n}", "v".repeat(n as usize)),
        26 => format!("HPEXPIRE {key} {ms} FIELDS 2 f{n} g"),
        27 => format!("HDEL {key} g f{n}"),
        28 => format!("SADD {key} {n} m{n} {ms}"),
        29 => format!("SPEXPIRE {key} {ms} MEMBERS 2 {n} m{n}"),
        30 => format!("SPOP {key} 3"),
        31 => format!("ZADD {key} {n} m{n} {ms} m{ms}"),
        32 => format!("ZPOPMIN {key} 2"),
        33 => format!("XADD {key} * field {n}"),
        34 => format!("SUNIONSTORE {key} {other} {key}"),
        35 => format!("MSET {key} 1 {other} 2"),
        36 => {
            format!("EVAL 'redis.call(\"SET\",KEYS[1],ARGV[1]) return redis.call(\"DEL\",KEYS[2])' 2 {key} {other} {n}")
        }
        37 => format!("SETRANGE {key} {} z", n * 20),
        38 => format!("SETBIT {key} {} 1", n * 9),
        _ => match n {
            0 => "FLUSHDB".to_owned(),
            1 => "SWAPDB 0 0".to_owned(),
            _ => format!("GETEX {key} PX {ms}"),
        },
    }
}

fn equal_what_is_asked(server: &Server, results: &BTreeMap<i64, Value>, queries: &[(i64, &str, &str)]) {
    let mut client = server.client();
    let reply = client.command(&["KEYS", "*"]);
    let names: BTreeSet<String> = reply.items().iter().map(Value::text).collect();
    assert_eq!(client.call("DBSIZE"), int(names.len() as i64));
    for (id, what, prefix) in queries {
        let of_prefix: Vec<&String> = names.iter().filter(|name| name.starts_with(prefix)).collect();
        let result = &results[id];
        match *what {
            "count" => assert_eq!(result, &int(of_prefix.len() as i64), "{prefix}"),
            "sum" => {
                let bytes =
                    of_prefix.iter().map(|name| client.command(&["MEMORY", "USAGE", name, "SAMPLES", "0"]).number());
                assert_eq!(result, &int(bytes.sum()), "{prefix}");
            }
            "keys" => {
                let [count, shown] = result.items() else { panic!("{result:?}") };
                assert_eq!(count, &int(of_prefix.len() as i64), "{prefix}");
                let shown: BTreeSet<String> = shown.items().iter().map(Value::text).collect();
                assert_eq!(shown.len(), of_prefix.len().min(20), "{prefix}");
                assert!(shown.iter().all(|name| of_prefix.contains(&name)), "{prefix}");
            }
            _ => {
                let dated = of_prefix.iter().map(|name| (client.command(&["PEXPIRETIME", name]).number(), *name));
                let mut dated: Vec<(i64, &String)> = dated.filter(|(at_ms, _)| *at_ms > 0).collect();
                dated.sort();
                let expected = dated.iter().take(5).flat_map(|(at_ms, name)| [bulk(name), int(*at_ms)]);
                assert_eq!(result, &Value::Array(expected.collect()), "{prefix}");
            }
        }
    }
}

#[test]
fn results_are_what_is_asked_when_it_is_quiet() {
    let rounds = std::env::var(ROUNDS).map_or(2, |rounds| rounds.parse().expect("a number"));
    for (flags, evicts) in
        [(&["--live-interval-ms", "5"][..], false), (&["--maxmemory-policy", "allkeys-random"], true)]
    {
        on_embers(flags, |server| {
            let mut reader = server.client3();
            let mut writers: Vec<Client> = (0..3).map(|_| server.client()).collect();
            writers[0].call("EXPIRY POLICY SET d:e 5s SLIDING");
            let mut results = BTreeMap::new();
            let mut queries = Vec::new();
            for prefix in ["", "a:", "a:b:", "c", "d:e", "none"] {
                for (what, line) in [
                    ("count", format!("LIVE COUNT '{prefix}'")),
                    ("sum", format!("LIVE SUM '{prefix}' BYTES")),
                    ("keys", format!("LIVE KEYS '{prefix}' LIMIT 20")),
                    ("next", format!("LIVE NEXT '{prefix}' 5")),
                ] {
                    let query = ask(&mut reader, &line);
                    queries.push((query.id, what, prefix));
                    results.insert(query.id, query.result);
                }
            }
            for seed in 0..rounds {
                let mut rng = fastrand::Rng::with_seed(seed);
                for step in 0..1_500 {
                    let writer = rng.usize(..3);
                    writers[writer].command(&quoted(&random_command(&mut rng)));
                    if evicts && step % 500 == 499 {
                        let bytes: u64 = server.info("used_memory").expect("used_memory").parse().expect("bytes");
                        writers[0].call(&format!("CONFIG SET maxmemory {}", bytes - bytes / 200));
                        let evicted = server.info("evicted_keys");
                        wait_until(Duration::from_secs(2), || server.info("evicted_keys") != evicted);
                        writers[0].call("CONFIG SET maxmemory 0");
                    }
                }
                // Until nothing dies any more, but by the policy.
                writers[0].call("EXPIRY POLICY DEL d:e");
                let mut left = writers[0].command(&["KEYS", "*"]).items().to_vec();
                left.truncate(100_000);
                for key in left {
                    let name = key.text();
                    writers[0].command(&["PEXPIREAT", &name, &(wall_ms() + 600_000).to_string(), "GT"]);
                }
                thread::sleep(Duration::from_millis(500));
                last_results(&mut reader, &mut results);
                equal_what_is_asked(server, &results, &queries);
                writers[0].call("EXPIRY POLICY SET d:e 5s SLIDING");
            }
        });
    }
}

#[test]
fn who_does_not_read_is_told_only_the_newest() {
    on_embers(&["--live-interval-ms", "1"], |server| {
        let (mut slow, mut writer) = (server.client3(), server.client());
        let filler = "k".repeat(200);
        for i in 0..900 {
            writer.call(&format!("SET {filler}{i} x"));
        }
        let keys = ask(&mut slow, "LIVE KEYS k LIMIT 1000");
        let bytes = keys.result.items()[1].items().len() * 200;
        let began = Instant::now();
        let (mut changes, mut most) = (0, 0);
        while began.elapsed() < Duration::from_secs(3) {
            writer.call(&format!("SET {filler}new{} x", changes % 90));
            writer.call(&format!("DEL {filler}new{} {filler}{changes}", changes % 90));
            changes += 1;
            if changes % 50 == 0 {
                let list = writer.call("CLIENT LIST").text();
                let line = list.lines().find(|line| line.ends_with(" live=1")).expect("it is there").to_owned();
                let memory = line.split("tot-mem=").nth(1).and_then(|rest| rest.split(' ').next());
                most = most.max(memory.expect("tot-mem").parse::<usize>().expect("bytes"));
            }
        }
        assert!(most < 4 * bytes + (1 << 20), "{most} bytes for results of {bytes}");
        let left = writer.call("DBSIZE").number();
        let mut results = BTreeMap::new();
        last_results(&mut slow, &mut results);
        assert_eq!(results[&keys.id].items()[0], int(left), "after {changes} changes");
    });
}

#[test]
fn what_is_asked_is_bounded() {
    on_embers(&[], |server| {
        let mut client = server.client3();
        for (line, answer) in [
            ("LIVE COUNT", "ERR wrong number of arguments"),
            ("LIVE SUM a: KEYS", "ERR syntax error"),
            ("LIVE SUM a:", "ERR wrong number of arguments"),
            ("LIVE KEYS a: LIMIT", "ERR syntax error"),
            ("LIVE KEYS a: COUNT 5", "ERR syntax error"),
            ("LIVE KEYS a: LIMIT 0", "ERR a live query shows 1 to 1000 names"),
            ("LIVE KEYS a: LIMIT 1001", "ERR a live query shows 1 to 1000 names"),
            ("LIVE KEYS a: LIMIT 9223372036854775808", "ERR value is not an integer"),
            ("LIVE NEXT a: 9223372036854775807", "ERR a live query shows 1 to 1000 names"),
            ("LIVE NEXT a: -1", "ERR a live query shows 1 to 1000 names"),
            ("LIVE STOP 1", "ERR no such live query"),
            ("LIVE STOP -1", "ERR no such live query"),
            ("LIVE STOP x", "ERR value is not an integer"),
            ("LIVE WHAT", "ERR unknown subcommand"),
            ("EVAL 'return redis.call(\"LIVE\",\"COUNT\",\"a\")' 0", "not allowed from script"),
        ] {
            let reply = client.command(&quoted(line));
            assert!(reply.is_error() && reply.text().contains(answer), "{line}: {reply:?}");
        }
        let long = client.call(&format!("LIVE COUNT {}", "p".repeat(1025)));
        assert!(long.is_error(), "{long:?}");
        client.call("MULTI");
        assert!(client.call("LIVE COUNT a:").is_error());
        client.call("DISCARD");
        let lines: Vec<Vec<String>> =
            (0..10_000).map(|i| vec!["LIVE".to_owned(), "COUNT".to_owned(), format!("p{i}")]).collect();
        let replies: Vec<Value> = lines.chunks(500).flat_map(|some| client.pipeline(some)).collect();
        assert_eq!(replies.iter().filter(|reply| !reply.is_error()).count(), 1_000);
        assert_eq!(replies[9_999], error("ERR too many live queries"));
        assert_eq!(server.info("live_queries").as_deref(), Some("1000"));
        assert_eq!(server.info("live_views").as_deref(), Some("1000"));
        // All of them at once.
        let mut writer = server.client();
        let pairs: Vec<String> = (0..1_000).map(|i| format!("p{i}: x")).collect();
        writer.call(&format!("MSET {}", pairs.join(" ")));
        let mut results = BTreeMap::new();
        last_results(&mut client, &mut results);
        assert_eq!(results.len(), 1_000);
        assert_eq!(results[&replies[7].items()[0].number()], int(111), "p7, p70 ..., p700 ...");
        drop(client);
        assert!(wait_until(SOON, || server.info("live_views").as_deref() == Some("0")));
        assert_eq!(server.info("live_queries").as_deref(), Some("0"));
    });
}

/// Names that queries show were counted for nobody: one connection's 1,000 queries took 0.9 GB where 256 KB of keys are.
#[test]
fn long_names_have_a_bound() {
    const BOUND: u64 = 30 << 20;
    let used =
        |server: &Server| server.info("used_memory").and_then(|bytes| bytes.parse::<u64>().ok()).expect("a number");
    for flags in [["--maxmemory", "31457280"], ["--maxmemory-clients", "31457280"]] {
        on_embers(&flags, |server| {
            let mut writer = server.client();
            writer.call("CLIENT NO-EVICT ON");
            let names: Vec<String> = (0..64).map(|key| format!("{}{key:06}", "a".repeat(3_990))).collect();
            for name in &names {
                assert_eq!(writer.command(&["SET", name, "x", "EX", "10000"]), Value::ok());
            }
            let (mut asker, mut is_bounded) = (server.client3(), false);
            for length in 1..600 {
                let asked = ["LIVE", "NEXT", &names[0][..length], "1000"];
                let asked = asker.try_send_raw(&encode(&asked)).and_then(|()| asker.try_read());
                is_bounded =
                    asked.is_err() || asked.is_ok_and(|reply| reply.is_error() && reply.text().starts_with("OOM"));
                if is_bounded {
                    break;
                }
            }
            assert!(is_bounded && used(server) < 3 * BOUND, "{} bytes are used", used(server));
            drop(asker);
            assert!(wait_until(SOON, || used(server) < BOUND / 2));
            assert_eq!(writer.call("PING"), simple("PONG"));
        });
    }
}

#[test]
fn queries_end_with_what_asks_them() {
    on_embers(&[], |server| {
        let (mut other, mut client) = (server.client(), server.client3());
        let views = |views: &str| wait_until(SOON, || server.info("live_views").as_deref() == Some(views));
        ask(&mut client, "LIVE COUNT a");
        ask(&mut client, "LIVE COUNT a");
        let third = ask(&mut client, "LIVE COUNT b");
        assert!(views("2"));
        assert_eq!(client.call(&format!("LIVE STOP {}", third.id)), Value::ok());
        assert!(views("1"));
        client.call("RESET");
        assert!(views("0"));
        assert_eq!(other.call("SET a x"), Value::ok());
        assert_eq!(client.read_within(QUIET), None);
        assert_eq!(client.call("LIVE LIST"), Value::Array(vec![]));
        // Who hangs up before the first result.
        for i in 0..50 {
            let mut short = server.client3();
            short.send(&format!("LIVE COUNT {i}"));
        }
        assert!(views("0"));
        assert_eq!(server.info("live_queries").as_deref(), Some("0"));
    });
}

#[test]
fn a_user_is_shown_only_what_is_his() {
    on_embers(&[], |server| {
        let mut admin = server.client();
        admin.call("ACL SETUSER ann on nopass +@all ~ann:*");
        let mut client = server.client3();
        client.call("AUTH ann any");
        for line in ["LIVE COUNT ''", "LIVE KEYS a", "LIVE NEXT bob: 5", "LIVE SUM ann BYTES"] {
            assert!(client.command(&quoted(line)).text().starts_with("NOPERM"), "{line}");
        }
        let query = ask(&mut client, "LIVE COUNT ann:");
        admin.call("SET ann:1 x");
        expect(&mut client, query.id, &int(1));
        admin.call("ACL SETUSER ann resetkeys ~bob:*");
        assert!(client.is_closed_by_server(), "what it is shown is not its own any more");
        assert!(wait_until(SOON, || server.info("live_views").as_deref() == Some("0")));
    });
}

#[test]
fn very_many_may_die_at_once_beneath() {
    on_embers(&[], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        let count = ask(&mut reader, "LIVE COUNT m:");
        let next = ask(&mut reader, "LIVE NEXT m: 3");
        let keys = ask(&mut reader, "LIVE KEYS m: LIMIT 10");
        writer.call("DEBUG SET-ACTIVE-EXPIRE 0");
        let at_ms = wall_ms() + 2_000;
        for lot in 0..100 {
            let sets: Vec<Vec<String>> = (0..2_000)
                .map(|i| format!("SET m:{} x PXAT {at_ms}", lot * 2_000 + i).split(' ').map(str::to_owned).collect())
                .collect();
            writer.pipeline(&sets);
        }
        wait_until(SOON, || wall_ms() > at_ms);
        writer.call("DEBUG SET-ACTIVE-EXPIRE 1");
        let mut results = BTreeMap::new();
        let is_zero = |results: &BTreeMap<i64, Value>| {
            results.get(&count.id) == Some(&int(0))
                && results.get(&next.id) == Some(&Value::Array(vec![]))
                && results.get(&keys.id).is_some_and(|keys| keys.items()[0] == int(0))
        };
        let began = Instant::now();
        while !is_zero(&results) && began.elapsed() < SOON {
            if let Some(message) = reader.read_within(Duration::from_secs(1)) {
                let (id, result) = told(&message);
                results.insert(id, result);
            }
            assert_eq!(writer.call("PING"), simple("PONG"));
        }
        assert!(is_zero(&results), "{results:?}");
    });
}

/// A script that lasts is waited for, and nobody waits behind that.
#[test]
fn a_script_that_lasts_holds_up_results_and_nobody_else() {
    on_embers(&[], |server| {
        let (mut reader, mut writer, mut scripter) = (server.client3(), server.client(), server.client());
        let count = ask(&mut reader, "LIVE COUNT k:");
        let script = "redis.call('SET',KEYS[1],1) for i=1,30000000 do end redis.call('DEL',KEYS[1]) return 1";
        scripter.send_raw(&encode(&["EVAL", script, "1", "k:script"]));
        let mut longest = Duration::ZERO;
        for i in 0..200 {
            let began = Instant::now();
            writer.call(&format!("SET k:{i} x"));
            longest = longest.max(began.elapsed());
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(scripter.read(), int(1));
        expect(&mut reader, count.id, &int(200));
        assert!(longest < Duration::from_secs(2), "{longest:?}");
    });
}
