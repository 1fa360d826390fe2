//! EXPIRY FORECAST, HISTOGRAM, SCAN and STATS, beside what a client counts itself.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{Client, Server, Value, bulk, error, int, on_embers, wait_until, words};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// In the middle of a bucket.
const SOME_MINUTES_MS: i64 = 45 * 60_000;

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

fn call_all(client: &mut Client, lines: &[String]) {
    for chunk in lines.chunks(1000) {
        let commands: Vec<Vec<Vec<u8>>> = chunk.iter().map(|line| words(line)).collect();
        assert!(client.pipeline(&commands).iter().all(|reply| !reply.is_error()));
    }
}

/// Keys of two prefixes that die within hours, days and months or never, deadlines of fields, dead keys that nobody
/// deletes, and keys of another database. No deadline is near a bound that is asked for.
fn fill(client: &mut Client) {
    let start_ms = now_ms();
    let mut lines = vec!["SELECT 1".to_owned()];
    lines.extend((0..200).map(|n| format!("SET user:elsewhere:{n} x EX 1800")));
    lines.push("SELECT 0".to_owned());
    for n in 0..600 {
        let at_ms = start_ms + n % 40 * HOUR_MS + SOME_MINUTES_MS + n;
        lines.push(format!("SET user:{n} {} PXAT {at_ms}", "x".repeat(1 + n as usize % 90)));
        lines.push(format!("SET cart:{n} 1 PXAT {}", start_ms + (n % 90) * DAY_MS + DAY_MS * 2 / 3));
        lines.push(format!("SET user:for:ever:{n} 1"));
        lines.push(format!("SET user:dead:{n} 1 PX 1"));
    }
    for n in 0..30 {
        lines.push(format!("HSET user:hash:{n} f 1 g 2"));
        lines.push(format!("HPEXPIRE user:hash:{n} 1800000 FIELDS 1 f"));
        lines.push(format!("RPUSH cart:list:{n} a b c d e"));
        lines.push(format!("PEXPIREAT cart:list:{n} {}", start_ms + SOME_MINUTES_MS));
    }
    lines.push(format!("PEXPIREAT user:hash:7 {}", start_ms + 2 * HOUR_MS + SOME_MINUTES_MS));
    call_all(client, &lines);
    assert!(wait_until(Duration::from_secs(10), || client.call("KEYS user:dead:*").items().is_empty()));
}

/// Every key of the database with its deadline, -1 for none, and its bytes, as a client sees them.
fn counted(client: &mut Client) -> BTreeMap<Vec<u8>, (i64, i64)> {
    let names = client.call("KEYS *");
    let names: Vec<&[u8]> = names.items().iter().filter_map(Value::bytes).collect();
    let mut all = BTreeMap::new();
    for name in names {
        let at_ms = client.command(&[b"PEXPIRETIME", name]).number();
        let bytes = client.command(&[&b"MEMORY"[..], b"USAGE", name]).number();
        all.insert(name.to_vec(), (at_ms, bytes));
    }
    all
}

const IDLE_CYCLE: &[&str] = &["--active-expire-enabled", "no"];

#[test]
fn forecasts_are_what_a_client_counts() {
    on_embers(IDLE_CYCLE, |server| {
        let mut client = server.client();
        assert_eq!(client.call("EXPIRY FORECAST 1h"), Value::Array(vec![bulk("keys"), int(0), bulk("bytes"), int(0)]));
        fill(&mut client);
        let all = counted(&mut client);
        for (text, within_ms) in [
            ("1h", HOUR_MS),
            ("1.5d", 36 * HOUR_MS),
            ("7200000", 2 * HOUR_MS),
            ("30d", 30 * DAY_MS),
            ("1000d", 1000 * DAY_MS),
        ] {
            for prefix in ["", "user:", "cart:l", "none"] {
                let end_ms = now_ms() + within_ms;
                let dying = all.iter().filter(|(name, (at_ms, _))| {
                    name.starts_with(prefix.as_bytes()) && *at_ms >= 0 && *at_ms <= end_ms
                });
                let (keys, bytes) = dying.fold((0, 0), |(keys, sum), (_, (_, bytes))| (keys + 1, sum + bytes));
                let asked = match prefix {
                    "" => format!("EXPIRY FORECAST {text}"),
                    prefix => format!("EXPIRY FORECAST {text} PREFIX {prefix}"),
                };
                let forecast = client.call(&asked);
                let expected = Value::Array(vec![bulk("keys"), int(keys), bulk("bytes"), int(bytes)]);
                assert_eq!(forecast, expected, "{asked}");
            }
        }
        client.call("SELECT 1");
        assert_eq!(client.call("EXPIRY FORECAST 1h").items()[1], int(200));
        let as_map = server.client3().call("EXPIRY FORECAST 1d PREFIX none");
        assert_eq!(as_map, Value::Map(vec![(bulk("keys"), int(0)), (bulk("bytes"), int(0))]));
    });
}

#[test]
fn histograms_are_what_a_client_counts() {
    on_embers(IDLE_CYCLE, |server| {
        let mut client = server.client();
        let field = |reply: &Value, name: &str| reply.field(name).expect("a field").number();
        let nothing = client.call("EXPIRY HISTOGRAM");
        assert_eq!((field(&nothing, "keys_with_deadline"), field(&nothing, "longest_ms")), (0, -1));
        fill(&mut client);
        let all = counted(&mut client);
        for prefix in ["", "user:", "cart:"] {
            let asked = if prefix.is_empty() { String::new() } else { format!(" PREFIX {prefix}") };
            let before_ms = now_ms();
            let histogram = client.call(&format!("EXPIRY HISTOGRAM{asked}"));
            let named =
                || all.iter().filter(|(name, _)| name.starts_with(prefix.as_bytes())).map(|(_, (at_ms, _))| *at_ms);
            let lives: Vec<i64> = named().filter(|at_ms| *at_ms >= 0).map(|at_ms| at_ms - before_ms).collect();
            assert_eq!(field(&histogram, "keys_with_deadline"), lives.len() as i64);
            assert_eq!(field(&histogram, "keys_without_deadline"), (named().count() - lives.len()) as i64);
            let is_near = |name: &str, expected: i64| (field(&histogram, name) - expected).abs() < 5000;
            assert!(is_near("shortest_ms", *lives.iter().min().unwrap()), "{histogram:?}");
            assert!(is_near("longest_ms", *lives.iter().max().unwrap()), "{histogram:?}");
            assert!(is_near("average_ms", lives.iter().sum::<i64>() / lives.len() as i64), "{histogram:?}");
            let buckets = histogram.field("remaining").expect("buckets");
            let shown = |name: &str| field(&buckets, name);
            let within =
                |over_ms, up_to_ms| lives.iter().filter(|ms| (over_ms + 1..=up_to_ms).contains(*ms)).count() as i64;
            assert_eq!(shown("1h"), within(HOUR_MS / 2, HOUR_MS), "{histogram:?}");
            assert_eq!(shown("6h"), within(HOUR_MS, 6 * HOUR_MS));
            assert_eq!(shown("12h"), within(6 * HOUR_MS, 12 * HOUR_MS));
            assert_eq!(shown("7d"), within(DAY_MS, 7 * DAY_MS));
            assert_eq!(shown("30d"), within(7 * DAY_MS, 30 * DAY_MS));
            assert_eq!(shown("longer"), within(30 * DAY_MS, i64::MAX));
            assert_eq!(buckets.items().chunks(2).map(|pair| pair[1].number()).sum::<i64>(), lives.len() as i64);
        }
    });
}

/// Walks to the end; keys with their deadlines, in the order in which they came.
fn scan(client: &mut Client, options: &str) -> Vec<(Vec<u8>, i64)> {
    let (mut cursor, mut found, mut calls) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let page = client.call(&format!("EXPIRY SCAN {cursor} {options} WITHDEADLINES"));
        for pair in page.items()[1].items().chunks_exact(2) {
            found.push((pair[0].bytes().expect("a key").to_vec(), pair[1].number()));
        }
        cursor = page.items()[0].text();
        calls += 1;
        assert!(calls < 10_000, "a walk ends");
        if cursor == "0" {
            return found;
        }
    }
}

#[test]
fn scans_list_every_key_of_a_window_once() {
    on_embers(IDLE_CYCLE, |server| {
        let mut client = server.client();
        assert_eq!(client.call("EXPIRY SCAN 0"), Value::Array(vec![bulk("0"), Value::Array(Vec::new())]));
        fill(&mut client);
        let all = counted(&mut client);
        let edge_ms = all[&b"user:3"[..]].0;
        let windows = [
            (String::new(), 0, i64::MAX),
            (format!("BEFORE {edge_ms}"), 0, edge_ms),
            (format!("AFTER {edge_ms}"), edge_ms, i64::MAX),
            (format!("AFTER {edge_ms} BEFORE {}", edge_ms + 10 * DAY_MS), edge_ms, edge_ms + 10 * DAY_MS),
            ("AFTER 5d BEFORE 30d".to_owned(), now_ms() + 5 * DAY_MS, now_ms() + 30 * DAY_MS),
            ("BEFORE 1000".to_owned(), 0, 1000),
        ];
        for (window, after_ms, before_ms) in windows {
            for (prefix, count) in [("", 10), ("user:", 100), ("cart:list", 7), ("", 100_000)] {
                let options = match prefix {
                    "" => format!("{window} COUNT {count}"),
                    prefix => format!("COUNT {count} PREFIX {prefix} {window}"),
                };
                let mut found = scan(&mut client, &options);
                found.sort_unstable();
                let is_in = |name: &[u8], at_ms: i64| {
                    name.starts_with(prefix.as_bytes()) && at_ms >= 0 && at_ms > after_ms && at_ms <= before_ms
                };
                let all = all.iter().map(|(name, (at_ms, _))| (name.clone(), *at_ms));
                let expected: Vec<_> = all.filter(|(name, at_ms)| is_in(name, *at_ms)).collect();
                assert_eq!(found, expected, "{options}");
            }
        }
        let bare = client.call("EXPIRY SCAN 0 PREFIX cart:list:7 COUNT 100000 BEFORE 1h");
        assert_eq!(bare, Value::Array(vec![bulk("0"), Value::bulks(&["cart:list:7"])]));
    });
}

/// While others come and go.
#[test]
fn scans_are_exact_while_others_write() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let stay = |n: i64| format!("SET stay:{n} x PX {}", HOUR_MS + n);
        call_all(&mut client, &(0..3000).map(stay).collect::<Vec<_>>());
        let (mut cursor, mut found, mut round) = ("0".to_owned(), Vec::new(), 0);
        loop {
            let page = client.call(&format!("EXPIRY SCAN {cursor} COUNT 100 BEFORE 2h PREFIX stay:"));
            found.extend(page.items()[1].items().iter().map(Value::text));
            cursor = page.items()[0].text();
            if cursor == "0" {
                break;
            }
            let change =
                |n| if round % 20 < 10 { format!("SET other:{n} x EX 3600") } else { format!("DEL other:{n}") };
            call_all(&mut client, &(round % 10 * 300..round % 10 * 300 + 300).map(change).collect::<Vec<_>>());
            round += 1;
        }
        found.sort_unstable();
        let mut expected: Vec<String> = (0..3000).map(|n| format!("stay:{n}")).collect();
        expected.sort_unstable();
        assert_eq!(found, expected);
    });
}

#[test]
fn foresight_works_in_transactions_and_says_what_is_wrong() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("SET k v EX 60");
        client.call("MULTI");
        for command in
            ["EXPIRY FORECAST 5m", "EXPIRY HISTOGRAM", "EXPIRY SCAN 0 COUNT 100", "SET k w", "EXPIRY FORECAST 5m"]
        {
            assert_eq!(client.call(command).text(), "QUEUED", "{command}");
        }
        let replies = client.call("EXEC");
        assert_eq!(replies.items()[0].items()[1], int(1));
        assert_eq!(replies.items()[2].items()[1], Value::bulks(&["k"]));
        assert_eq!(replies.items()[4].items()[1], int(0));
        for wrong in [
            "EXPIRY FORECAST 5m PREFIX",
            "EXPIRY FORECAST 5m MATCH x",
            "EXPIRY HISTOGRAM PREFIX",
            "EXPIRY SCAN 0 BEFORE",
            "EXPIRY SCAN 0 MATCH x",
            "EXPIRY SCAN 0 COUNT 0",
        ] {
            assert_eq!(client.call(wrong), error("ERR syntax error"), "{wrong}");
        }
        assert_eq!(client.call("EXPIRY SCAN x"), error("ERR invalid cursor"));
        assert_eq!(client.call("EXPIRY SCAN 0 COUNT x"), error("ERR value is not an integer or out of range"));
        for (wrong, why) in [
            ("EXPIRY FORECAST 0s", "it is not greater than zero"),
            ("EXPIRY FORECAST -1h", "it is not greater than zero"),
            ("EXPIRY FORECAST inf", "it is not a number"),
            ("EXPIRY FORECAST 1w", "the unit is unknown"),
            ("EXPIRY FORECAST 99999999999d", "it is longer than 3650000d"),
            ("EXPIRY SCAN 0 BEFORE 1x", "the unit is unknown"),
        ] {
            let text = client.call(wrong).text();
            assert!(text.starts_with("ERR invalid duration '") && text.contains(why), "{wrong}: {text}");
            assert!(text.contains("ms, s, m, h, d"), "{wrong}: {text}");
        }
        let help = client.call("EXPIRY HELP").items().iter().map(Value::text).collect::<Vec<_>>().join("\n");
        for subcommand in
            ["FORECAST duration [PREFIX prefix]", "HISTOGRAM", "PURGE", "SCAN cursor [BEFORE before]", "STATS"]
        {
            assert!(help.contains(subcommand), "{help}");
        }
    });
}

#[test]
fn statistics_of_all_deadlines() {
    let field = |server: &Server, name: &str| {
        let stats = server.client().call("EXPIRY STATS");
        stats.field(name).unwrap_or_else(|| panic!("{name} of {stats:?}")).number()
    };
    on_embers(IDLE_CYCLE, |server| {
        let mut client = server.client();
        call_all(&mut client, &(0..300).map(|n| format!("SET long:{n} x EX 1000")).collect::<Vec<_>>());
        call_all(&mut client, &(0..100).map(|n| format!("SET {n} x")).collect::<Vec<_>>());
        call_all(&mut client, &(0..50).map(|n| format!("SET short:{n} x PX 1")).collect::<Vec<_>>());
        assert!(wait_until(Duration::from_secs(10), || field(server, "stale_keys") == 50));
        assert_eq!((field(server, "keys"), field(server, "keys_with_deadline")), (400, 300));
        assert_eq!((field(server, "cycle_enabled"), field(server, "cycle_interval_ms")), (0, 10));
        assert!(field(server, "lag_max_us") > 0);
        client.call("GET short:1");
        assert_eq!((field(server, "expired_by_access"), field(server, "stale_keys")), (1, 49));
        client.call("EXPIRY PURGE");
        assert_eq!((field(server, "expired_by_cycle"), field(server, "stale_keys")), (49, 0));
        assert!(field(server, "expired_bytes") > 0);
        for name in ["average_ttl_ms", "lag_p50_us", "lag_p99_us", "cycle_cpu_us", "time_caps_reached"] {
            assert!(field(server, name) >= 0);
        }
    });
}

/// MEMORY USAGE, EXPIRY FORECAST and what is counted when a key dies, found by the cycle or by a reader, in one policy's and
/// in all, take the size of a key from the same books.
#[test]
fn all_agree_on_the_size_of_a_key() {
    let many = |verb: &str, each: fn(usize) -> String| {
        let items: Vec<String> = (0..3000).map(each).collect();
        format!("{verb} k:1 {}", items.join(" "))
    };
    let values = [
        "SET k:1 5".to_owned(),
        "SET k:1 abc".to_owned(),
        format!("SET k:1 {}", "x".repeat(100_000)),
        "HSET k:1 f v".to_owned(),
        many("SADD", |n| format!("member{n}")),
        many("HSET", |n| format!("f{n} v{n}")),
        many("ZADD", |n| format!("{n} m{n}")),
        many("RPUSH", |n| format!("element{n}")),
        "XADD k:1 * f v".to_owned(),
    ];
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("EXPIRY POLICY SET k: 1h");
        let of_policy = |client: &mut Client| {
            let stats = client.call("EXPIRY STATS k:");
            stats.field("expired_bytes").unwrap_or_else(|| panic!("{stats:?}")).number()
        };
        let of_all = |client: &mut Client| client.call("EXPIRY STATS").field("expired_bytes").expect("it").number();
        for by_cycle in [true, false] {
            for value in &values {
                assert!(!client.call(value).is_error());
                let usage = client.call("MEMORY USAGE k:1").number();
                let forecast = client.call("EXPIRY FORECAST 2h").field("bytes").expect("bytes").number();
                assert_eq!(forecast, usage, "{value:.20}");
                let before = (of_policy(&mut client), of_all(&mut client));
                client.call(&format!("CONFIG SET active-expire-enabled {}", if by_cycle { "yes" } else { "no" }));
                client.call("PEXPIRE k:1 1");
                assert!(wait_until(Duration::from_secs(10), || {
                    if !by_cycle {
                        client.call("EXISTS k:1");
                    }
                    of_all(&mut client) > before.1
                }));
                let died = (of_policy(&mut client) - before.0, of_all(&mut client) - before.1);
                assert_eq!(died, (usage, usage), "{value:.20}, by the cycle: {by_cycle}");
            }
        }
    });
}

/// It was an average of samples, nothing for a second, and that of keys long gone.
#[test]
fn the_average_life_is_that_of_the_keys_there_are() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let average = |server: &crate::common::Server| -> i64 {
            let text = server.client().call("INFO keyspace").text();
            let line = text.lines().find(|line| line.starts_with("db0:")).unwrap_or("db0:avg_ttl=0");
            line.rsplit_once("avg_ttl=").expect("it").1.parse().expect("a number")
        };
        let of_stats = |client: &mut Client| client.call("EXPIRY STATS").field("average_ttl_ms").expect("it").number();
        client.call("SET immortal x");
        assert_eq!((average(server), of_stats(&mut client)), (0, 0));
        call_all(&mut client, &(0..100).map(|n| format!("SET {n} x PX 1000000")).collect::<Vec<_>>());
        call_all(&mut client, &(0..100).map(|n| format!("SET more:{n} x PX 3000000")).collect::<Vec<_>>());
        for average_ms in [average(server), of_stats(&mut client)] {
            assert!((1_900_000..=2_000_000).contains(&average_ms), "{average_ms}");
        }
        client.call("FLUSHALL");
        assert_eq!((average(server), of_stats(&mut client)), (0, 0));
        client.call("SET one x PX 500000");
        assert!((400_000..=500_000).contains(&average(server)));
        call_all(&mut client, &(0..20_000).map(|n| format!("SET {n} x PX 500000")).collect::<Vec<_>>());
        assert!((300_000..=500_000).contains(&average(server)), "of more keys than are looked at");
    });
}
