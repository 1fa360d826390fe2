//! Which keys go where memory is short, of those of all shards: the same as if there were one shard, nearly.
//!
//! `EMBERDB_TEST_EVICTIONS=N` makes the loads N times as large, and tries one to four shards.

use crate::common::{Client, Kind, Server, Value, wait_until, words};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
/// Keys that are there when the ceiling is set.
const KEYS: usize = 20_000;
const VALUE_BYTES: usize = 300;

/// Of a hundred victims so many may be out of order, or hot; the rest of the bounds is for a machine that is busy.
const OUT_OF_ORDER: usize = 10;
const HOT: usize = 5;

fn scale() -> Option<usize> {
    let text = std::env::var("EMBERDB_TEST_EVICTIONS").ok()?;
    Some(text.parse().expect("EMBERDB_TEST_EVICTIONS is a number"))
}

fn on_shards(flags: &[&str], test: impl Fn(&Server, usize)) {
    let all: &[usize] = if scale().is_some() { &[1, 2, 3, 4] } else { &[1, 3] };
    for shards in all {
        eprintln!("--- {shards} shards");
        test(&Server::start(Kind::Ember { shards: *shards }, flags), KEYS * scale().unwrap_or(1));
    }
}

fn used(server: &Server) -> u64 {
    server.info("used_memory").and_then(|value| value.parse().ok()).expect("a number")
}

fn set_ceiling(client: &mut Client, bytes: u64) {
    assert_eq!(client.call(&format!("CONFIG SET maxmemory {bytes}")), Value::ok());
}

/// A deadline that looks like any between 3 and 6 hours from now, another for each number.
fn life_s(number: usize) -> u64 {
    10_000 + (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % 10_000
}

/// Sends what `commands` says of each number, some at a time.
fn send(client: &mut Client, count: usize, commands: impl Fn(usize) -> Vec<String>) {
    for first in (0..count).step_by(100) {
        let all: Vec<_> = (first..first + 100).flat_map(&commands).map(|line| words(&line)).collect();
        let replies = client.pipeline(&all);
        let error = replies.iter().find(|reply| reply.is_error());
        assert!(error.is_none(), "{error:?}");
    }
}

/// The names of the keys that are left when memory is below the ceiling.
fn left(server: &Server, client: &mut Client, ceiling: u64) -> HashSet<String> {
    assert!(wait_until(PATIENCE, || used(server) <= ceiling), "{} of {ceiling}", used(server));
    // The answer to KEYS needs memory, too.
    set_ceiling(client, 0);
    client.call("KEYS *").items().iter().map(Value::text).collect()
}

/// How many of those that are gone should have outlived others that are left.
fn assert_in_order(server: &Server, lives_s: &HashMap<String, u64>, left: &HashSet<String>) {
    let mut gone_s: Vec<u64> =
        lives_s.iter().filter(|(name, _)| !left.contains(*name)).map(|(_, life_s)| *life_s).collect();
    let mut all_s: Vec<u64> = lives_s.values().copied().collect();
    gone_s.sort_unstable();
    all_s.sort_unstable();
    let last_s = all_s[gone_s.len() - 1];
    let early = gone_s.iter().filter(|life_s| **life_s > last_s + 1).count();
    let (gone, kind) = (gone_s.len(), server.kind());
    eprintln!("{early} of {gone} victims are out of order");
    assert!(gone * 10 > lives_s.len(), "{kind:?}: {gone} victims");
    assert!(early * 100 <= gone * OUT_OF_ORDER, "{kind:?}: {early} of {gone} victims are out of order");
}

#[test]
fn nearest_deadlines_of_all_shards_go_first_where_the_ceiling_is_lowered() {
    on_shards(&["--maxmemory-policy", "volatile-ttl"], |server, count| {
        let mut client = server.client();
        let value = "x".repeat(VALUE_BYTES);
        send(&mut client, count, |i| vec![format!("SET {i} {value} EX {}", life_s(i))]);
        let ceiling = used(server) - (count * VALUE_BYTES / 3) as u64;
        set_ceiling(&mut client, ceiling);
        let left = left(server, &mut client, ceiling);
        assert_in_order(server, &(0..count).map(|i| (i.to_string(), life_s(i))).collect(), &left);
    });
}

/// One shard has all that comes; what is to go is everywhere.
#[test]
fn nearest_deadlines_of_all_shards_go_first_where_one_shard_writes() {
    on_shards(&["--maxmemory-policy", "volatile-ttl"], |server, count| {
        let mut client = server.client();
        let value = "x".repeat(VALUE_BYTES);
        let name = |i: usize| if i < count { i.to_string() } else { format!("{{a}}{i}") };
        let set = |i: usize| vec![format!("SET {} {value} EX {}", name(i), life_s(i))];
        send(&mut client, count, set);
        let ceiling = used(server);
        set_ceiling(&mut client, ceiling);
        send(&mut client, count, |i| set(count + i));
        let left = left(server, &mut client, ceiling);
        assert_in_order(server, &(0..2 * count).map(|i| (name(i), life_s(i))).collect(), &left);
    });
}

/// Hot keys come to one shard, which has next to no cold ones soon; the others have nothing else.
#[test]
fn cold_keys_of_other_shards_go_before_hot_ones() {
    for policy in ["allkeys-lru", "allkeys-lrm", "allkeys-lfu"] {
        on_shards(&["--maxmemory-policy", policy], |server, count| {
            let mut client = server.client();
            let value = "x".repeat(VALUE_BYTES);
            send(&mut client, count, |i| vec![format!("SET {i} {value}")]);
            if policy != "allkeys-lfu" {
                // The clocks tick in seconds.
                let last = count - 1;
                let idle_s = |client: &mut Client| client.call(&format!("OBJECT IDLETIME {last}")).number();
                assert!(wait_until(PATIENCE, || idle_s(&mut client) >= 3));
            }
            let ceiling = used(server);
            set_ceiling(&mut client, ceiling);
            let hot = count / 2;
            send(&mut client, hot, |i| {
                let set = format!("SET {{a}}{i} {value}");
                let uses = if policy == "allkeys-lfu" { 5 } else { 0 };
                std::iter::once(set).chain((0..uses).map(|_| format!("GET {{a}}{i}"))).collect()
            });
            let left = left(server, &mut client, ceiling);
            let cold_gone = (0..count).filter(|i| !left.contains(&i.to_string())).count();
            let hot_gone = (0..hot).filter(|i| !left.contains(&format!("{{a}}{i}"))).count();
            let (gone, kind) = (cold_gone + hot_gone, server.kind());
            eprintln!("{policy}: {hot_gone} of {gone} victims are hot");
            assert!(gone * 4 > hot, "{kind:?} {policy}: {gone} victims");
            assert!(hot_gone * 100 <= gone * HOT, "{kind:?} {policy}: {hot_gone} of {gone} victims are hot");
        });
    }
}
