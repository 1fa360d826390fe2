//! What is said of memory: MEMORY and INFO, and that the books of the keyspace are what the allocator has counted.

use crate::common::{Client, Kind, Server, Value, error, on_embers, on_every_server, wait_until, words};
use std::collections::BTreeMap;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

fn number(server: &Server, field: &str) -> i64 {
    server.info(field).and_then(|value| value.parse().ok()).expect("a number")
}

/// A reply of names and values.
fn pairs(reply: &Value) -> BTreeMap<String, Value> {
    reply.items().chunks(2).map(|pair| (pair[0].text(), pair[1].clone())).collect()
}

fn fill(client: &mut Client, count: usize, command: impl Fn(usize) -> String) {
    for first in (0..count).step_by(100) {
        let commands: Vec<_> = (first..first + 100).map(|i| words(&command(i))).collect();
        assert!(client.pipeline(&commands).iter().all(|reply| !reply.is_error()));
    }
}

#[test]
fn the_books_say_what_the_allocator_counts() {
    type Kind<'a> = (&'a str, usize, &'a dyn Fn(usize) -> String);
    let long = "x".repeat(300);
    on_embers(&[], |server| {
        let mut client = server.client();
        let kinds: [Kind; 10] = [
            ("numbers", 100_000, &|i| format!("SET n{i} {i} EX 10000")),
            ("strings", 50_000, &|i| format!("SET s{i} {}", &long[i % 300..])),
            ("large strings", 500, &|i| format!("SET large{i} {}", long.repeat(20))),
            ("small hashes", 20_000, &|i| format!("HSET h{i} a {i} b {i} c {i}")),
            ("a large hash", 50_000, &|i| format!("HSET hash field{i} {i}")),
            ("a large set", 50_000, &|i| format!("SADD set member{i}")),
            ("a large sorted set", 50_000, &|i| format!("ZADD zset {i} member{i}")),
            ("a list", 50_000, &|i| format!("RPUSH list element{i}")),
            ("a stream", 20_000, &|i| format!("XADD stream * field {i}")),
            ("sets", 10_000, &|i| format!("SADD set{i} a b c {i}")),
        ];
        // Buffers that connections keep.
        fill(&mut client, 2_000, |i| format!("GET {i}{}", long.repeat(20)));
        // Those that shards keep grow with a burst, and go after it.
        let used = || number(server, "used_memory") - number(server, "mem_kept_buffers");
        for (name, count, command) in kinds {
            let before = (used(), number(server, "used_memory_dataset"));
            fill(&mut client, count, command);
            let counted = used() - before.0;
            let said = number(server, "used_memory_dataset") - before.1;
            assert!((counted - said).abs() < counted / 20 + 500_000, "{name}: {said} said, {counted} counted");
        }
        assert_eq!(client.call("FLUSHALL"), Value::ok());
    });
}

/// Who replaces a collection again and again, or flushes a database, makes garbage as fast as the server works: freed a slice a
/// turn, it grew by 100 to 250 MB a second, and went on growing when whoever made it had hung up.
#[test]
fn what_is_replaced_is_freed_as_fast() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let members: Vec<String> = (0..5_000).map(|number| format!("member{number}")).collect();
        client.call(&format!("SADD {{s}} {}", members.join(" ")));
        let before = number(server, "used_memory");
        for again in [&["COPY {s} {s}2 REPLACE"][..], &["SUNIONSTORE {s}3 {s} {s}4"]] {
            let commands: Vec<_> = again.iter().cycle().take(1_500).map(|line| words(line)).collect();
            assert!(client.pipeline(&commands).iter().all(|reply| !reply.is_error()));
            let peak = number(server, "used_memory_peak");
            assert!(peak < before + (160 << 20), "{again:?}: {peak}");
        }
        // A database that is filled and flushed again and again.
        let keys: Vec<String> = (0..5_000).map(|number| format!("k{number} {}", "x".repeat(300))).collect();
        let (fill, flush) = (words(&format!("MSET {}", keys.join(" "))), words("FLUSHALL"));
        for _ in 0..10 {
            let commands: Vec<_> = [fill.clone(), flush.clone()].iter().cycle().take(40).cloned().collect();
            assert!(client.pipeline(&commands).iter().all(|reply| !reply.is_error()));
        }
        let peak = number(server, "used_memory_peak");
        assert!(peak < before + (160 << 20), "{peak}");
        assert!(wait_until(PATIENCE, || number(server, "used_memory") < before + (8 << 20)));
    });
}

#[test]
fn memory_stats_add_up() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        fill(&mut client, 5_000, |i| format!("SET key{i} {}", "x".repeat(200)));
        let stats = pairs(&client.call("MEMORY STATS"));
        let number = |name: &str| stats.get(name).unwrap_or_else(|| panic!("{name}")).number();
        assert_eq!(number("keys.count"), 5_000);
        let (all, dataset) = (number("total.allocated"), number("dataset.bytes"));
        assert!(dataset > 1_000_000 && dataset < all && all <= number("peak.allocated"));
        assert!(number("startup.allocated") > 0 && number("startup.allocated") < all);
        assert!((200..2_000).contains(&number("keys.bytes-per-key")));
        for name in [
            "replication.backlog",
            "clients.slaves",
            "clients.normal",
            "cluster.links",
            "aof.buffer",
            "lua.caches",
            "functions.caches",
            "overhead.total",
            "fragmentation.bytes",
        ] {
            number(name);
        }
        for name in ["dataset.percentage", "peak.percentage", "fragmentation"] {
            assert!(stats[name].text().parse::<f64>().is_ok_and(|ratio| ratio > 0.0), "{name}");
        }
    });
}

#[test]
fn memory_is_told_of_and_given_back() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("MEMORY PURGE"), Value::ok());
        assert!(!client.call("MEMORY MALLOC-STATS").text().is_empty());
        assert!(!client.call("MEMORY DOCTOR").text().is_empty());
        assert!(client.call("MEMORY HELP").items().len() > 5);
        assert_eq!(client.call("SET k v"), Value::ok());
        assert!(client.call("MEMORY USAGE k").number() > 5);
        assert!(client.call("MEMORY USAGE k SAMPLES 0").number() > 5);
        assert!(client.call("MEMORY USAGE none").is_null());
        assert_eq!(client.call("MEMORY USAGE k SAMPLES"), error("ERR syntax error"));
        let unknown = client.call("MEMORY NONE").text();
        assert!(unknown.starts_with("ERR unknown subcommand 'NONE'. Try MEMORY HELP."), "{unknown}");
    });
}

#[test]
fn the_doctor_sees_a_ceiling_that_is_reached() {
    let server = Server::start(Kind::Ember { shards: 1 }, &["--maxmemory-policy", "allkeys-lru"]);
    let mut client = server.client();
    fill(&mut client, 50_000, |i| format!("SET key{i} {}", "x".repeat(100)));
    let ceiling = number(&server, "used_memory");
    assert_eq!(client.call(&format!("CONFIG SET maxmemory {ceiling}")), Value::ok());
    let report = client.call("MEMORY DOCTOR").text();
    assert!(report.contains("maxmemory"), "{report}");
}

/// Once the tables in which such names are kept stayed as large as they had been: who waited for 60,000 keys, and hung up, had taken
/// 24 MB from everybody, under a ceiling for good.
#[test]
fn names_of_clients_that_are_gone_take_no_memory() {
    on_embers(&[], |server| {
        let ask = |count: usize, (field, first, last): (&str, &str, &str)| {
            let names: String = (0..count).map(|n| format!(" name:{n:08}")).collect();
            let mut client = server.client();
            client.call("HELLO 3");
            if field == "tracking_clients" {
                client.call("CLIENT TRACKING ON");
            }
            let last = if last == "$" { " $".repeat(count) } else { last.to_owned() };
            client.send(&format!("{first}{names}{last}"));
            if first == "MGET" || first == "WATCH" {
                client.read();
            }
            assert!(wait_until(PATIENCE, || number(server, field) == 1), "{first}");
            drop(client);
            assert!(wait_until(PATIENCE, || number(server, field) == 0), "{first}");
            server.client().call("FLUSHALL");
        };
        let asked = [
            ("blocked_clients", "BLPOP", " 0"),
            ("blocked_clients", "XREAD BLOCK 0 STREAMS", "$"),
            ("watching_clients", "WATCH", ""),
            ("pubsub_clients", "SUBSCRIBE", ""),
            ("pubsub_clients", "SSUBSCRIBE", ""),
            ("tracking_clients", "MGET", ""),
        ];
        let used = || number(server, "used_memory") - number(server, "mem_kept_buffers");
        asked.into_iter().for_each(|form| ask(2_000, form));
        let before = used();
        for form in asked {
            ask(100_000, form);
            let is_given_back = wait_until(PATIENCE, || used() < before + 3_000_000);
            assert!(is_given_back, "{}: {before} bytes have become {}", form.1, used());
        }
    });
}
