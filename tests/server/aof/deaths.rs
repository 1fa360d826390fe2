//! Each death that a policy wants in a stream is there exactly once, whatever was under way when the server was killed.
//!
//! `EMBERDB_CRASH_ROUNDS` and `EMBERDB_CRASH_SEED` make more of it, and repeat it.

use crate::common::{Client, Kind, Server, Value, bulk, encode, int, wait_until, words};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const CLIENTS: usize = 5;
/// No key lives longer than this.
const LIFE_MS: u64 = 15;
/// Every prefix has a policy; the streams are on different shards.
const PREFIXES: [&str; 4] = ["a", "b", "c", "d"];

/// What a client knows of a key.
#[derive(Default, Clone)]
struct Known {
    /// The values with which it has died.
    died: Vec<String>,
    /// The value it has, or has died with.
    value: Option<String>,
}

impl Known {
    /// A command has found what was there, or nothing.
    fn found(&mut self, found: bool) {
        if let Some(value) = self.value.take()
            && !found
        {
            self.died.push(value);
        }
    }

    fn deaths(&self) -> Vec<String> {
        self.died.iter().chain(&self.value).cloned().collect()
    }
}

/// What one client has been told, and what may be after the request that was under way.
#[derive(Default)]
struct Told {
    keys: BTreeMap<String, Known>,
    under_way: Option<(String, Vec<Known>)>,
}

fn ask(client: &mut Client, line: &str) -> io::Result<Value> {
    client.try_send_raw(&encode(&words(line)))?;
    client.try_read()
}

fn load(port: u16, db: usize, seed: u64, requests: usize) -> Told {
    let (mut rng, mut told) = (Rng::with_seed(seed), Told::default());
    let Ok(mut client) = Client::connect(port) else { return told };
    if ask(&mut client, &format!("SELECT {db}")).is_err() {
        return told;
    }
    for number in 0..requests {
        let key = format!("{}:{}", rng.choice(PREFIXES).expect("a prefix"), rng.u32(..6));
        let known = told.keys.entry(key.clone()).or_default();
        let (value, life_ms) = (format!("{db}-{number}"), rng.u64(1..LIFE_MS));
        let next = (rng.u32(..5) > 0).then_some(value);
        let line = match &next {
            Some(value) => format!("SET {key} {value} PX {life_ms} GET"),
            None => format!("DEL {key}"),
        };
        let asked = match rng.u32(..4) {
            0 => ask(&mut client, "MULTI")
                .and_then(|_| ask(&mut client, &line))
                .and_then(|_| ask(&mut client, &format!("SET other:{} 1", rng.u32(..50))))
                .and_then(|_| ask(&mut client, "EXEC"))
                .map(|reply| reply.items()[0].clone()),
            _ => ask(&mut client, &line),
        };
        match asked {
            Ok(reply) => {
                assert!(!reply.is_error(), "{line}: {reply:?}");
                known.found(!matches!(reply, Value::NullBulk | Value::Int(0)));
                known.value = next;
            }
            Err(_) => {
                let either = [true, false].map(|found| {
                    let mut known = known.clone();
                    known.found(found);
                    Known { value: next.clone(), ..known }
                });
                told.under_way = Some((key, either.into()));
                return told;
            }
        }
        if rng.u32(..6) == 0 {
            thread::sleep(Duration::from_millis(rng.u64(..LIFE_MS)));
        }
    }
    told
}

/// The values with which keys have died, as the streams say, in their order.
fn in_streams(client: &mut Client, db: usize) -> BTreeMap<String, Vec<String>> {
    assert_eq!(client.call(&format!("SELECT {db}")), Value::ok());
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for prefix in PREFIXES {
        for entry in client.call(&format!("XRANGE ended:{prefix} - +")).items() {
            let fields = &entry.items()[1];
            let field = |name: &str| fields.field(name).map(|value| value.text()).unwrap_or_default();
            all.entry(field("key")).or_default().push(field("value"));
        }
    }
    all
}

fn until_loaded(server: &Server) {
    assert!(wait_until(PATIENCE, || server.info("loading").as_deref() == Some("0")), "it is not loaded");
}

fn until_told(server: &Server, client: &mut Client, dbs: &[usize]) {
    let is_over = || {
        let is_empty = |db: &usize| {
            assert_eq!(client.call(&format!("SELECT {db}")), Value::ok());
            PREFIXES.iter().all(|prefix| (0..6).all(|n| client.call(&format!("EXISTS {prefix}:{n}")) == int(0)))
        };
        dbs.iter().all(is_empty) && server.info("expiry_events_waiting").as_deref() == Some("0")
    };
    assert!(wait_until(PATIENCE, is_over), "deaths are not told");
}

fn check(found: &BTreeMap<String, Vec<String>>, told: &Told) -> Result<(), String> {
    let none = Vec::new();
    for (key, known) in &told.keys {
        let found = found.get(key).unwrap_or(&none);
        let under_way = told.under_way.iter().filter(|(of, _)| of == key).flat_map(|(_, either)| either);
        let mut options = std::iter::once(known).chain(under_way).map(Known::deaths);
        if !options.any(|deaths| deaths == *found) {
            let expected = known.deaths();
            let differs = found.iter().zip(&expected).position(|(one, other)| one != other);
            let from = differs.unwrap_or(found.len().min(expected.len())).saturating_sub(2);
            return Err(format!(
                "{key}: {} deaths and not {}: from {from} on {:?} and not {:?}; under way {:?}",
                found.len(),
                expected.len(),
                &found[from.min(found.len())..],
                &expected[from..],
                told.under_way.as_ref().map(|(key, _)| key)
            ));
        }
    }
    Ok(())
}

fn flags(shards: usize, more: &[&str]) -> Vec<String> {
    let shards = shards.to_string();
    let mut flags: Vec<&str> = ["--databases", "32", "--enable-debug-command", "yes", "--shards", &shards].into();
    for policy in [
        ["a:", "NONE", "EVENTS", "ended:a", "WITHVALUE"],
        ["b:", "NONE", "EVENTS", "ended:b", "WITHVALUE"],
        ["c:", "NONE", "EVENTS", "ended:c", "WITHVALUE"],
        ["d:", "NONE", "EVENTS", "ended:d", "WITHVALUE"],
    ] {
        flags.push("--expiry-policy");
        flags.extend(policy);
    }
    flags.extend(more);
    flags.into_iter().map(str::to_owned).collect()
}

fn start(server: Option<Server>, flags: &[String]) -> Server {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = match server {
        Some(server) => server.restart(&flags),
        None => Server::start(Kind::Ember { shards: 2 }, &flags),
    };
    until_loaded(&server);
    server
}

fn rounds() -> usize {
    std::env::var("EMBERDB_CRASH_ROUNDS").map_or(10, |rounds| rounds.parse().expect("a number"))
}

fn seed() -> u64 {
    let seed =
        std::env::var("EMBERDB_CRASH_SEED").map_or_else(|_| Rng::new().u64(..), |seed| seed.parse().expect("a seed"));
    println!("EMBERDB_CRASH_SEED={seed}");
    seed
}

/// Each round begins with empty databases, and the shards do not hear of each other at once.
fn begin_round(server: &Server, rng: &mut Rng, dbs: &[usize]) {
    let mut client = server.client();
    for db in dbs {
        assert_eq!(client.call(&format!("SELECT {db}")), Value::ok());
        assert_eq!(client.call("FLUSHDB"), Value::ok());
    }
    server.delay_shards([0, 200, 2_000][rng.usize(..3)]);
}

fn check_round(server: &Server, dbs: &[usize], told: &[Told], what: &str) {
    let mut client = server.client();
    until_told(server, &mut client, dbs);
    assert!(!server.output().contains("has answered"), "{what}: {}", server.output());
    for (&db, told) in dbs.iter().zip(told) {
        if let Err(reason) = check(&in_streams(&mut client, db), told) {
            panic!("{what}, db {db}: {reason}");
        }
    }
}

#[test]
fn deaths_are_in_their_streams_once_after_a_crash() {
    let seed = seed();
    let (mut rng, mut shards) = (Rng::with_seed(seed), 2);
    let log = ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-min-size", "100kb"];
    let mut server = start(None, &flags(shards, &log));
    for round in 0..rounds() {
        let dbs: Vec<usize> = (0..CLIENTS).map(|client| 1 + (round % 4) * CLIENTS + client).collect();
        begin_round(&server, &mut rng, &dbs);
        let (port, lasts) = (server.port(), Duration::from_millis(rng.u64(20..300)));
        let between = ["BGREWRITEAOF", "BGSAVE", "PING"][rng.usize(..3)];
        let seeds: Vec<u64> = dbs.iter().map(|_| rng.u64(..)).collect();
        let told = thread::scope(|scope| {
            let loads: Vec<_> = dbs
                .iter()
                .zip(&seeds)
                .map(|(&db, &seed)| scope.spawn(move || load(port, db, seed, usize::MAX)))
                .collect();
            thread::sleep(lasts / 2);
            server.client().call(between);
            thread::sleep(lasts / 2);
            server.signal("KILL");
            loads.into_iter().map(|load| load.join().expect("a load")).collect::<Vec<Told>>()
        });
        shards = rng.usize(1..5);
        let base = ["--aof-use-rdb-preamble", ["yes", "no"][rng.usize(..2)]];
        server = start(Some(server), &flags(shards, &[&log[..], &base].concat()));
        check_round(&server, &dbs, &told, &format!("seed {seed}, round {round}, {between}"));
    }
}

/// What is in a snapshot are keys that are going to be told of, deaths that wait for their streams, and entries: each life
/// one of them.
#[test]
fn a_snapshot_has_every_death_once() {
    let seed = seed();
    let (mut rng, mut shards) = (Rng::with_seed(seed), 2);
    let mut server = start(None, &flags(shards, &[]));
    for round in 0..rounds() {
        let dbs: Vec<usize> = (0..CLIENTS).map(|client| 1 + (round % 4) * CLIENTS + client).collect();
        begin_round(&server, &mut rng, &dbs);
        let (port, requests) = (server.port(), rng.usize(10..300));
        let seeds: Vec<u64> = dbs.iter().map(|_| rng.u64(..)).collect();
        let told = thread::scope(|scope| {
            let loads: Vec<_> = dbs
                .iter()
                .zip(&seeds)
                .map(|(&db, &seed)| scope.spawn(move || load(port, db, seed, requests)))
                .collect();
            loads.into_iter().map(|load| load.join().expect("a load")).collect::<Vec<Told>>()
        });
        // What dies while it is written, or after that, dies again.
        let mut client = server.client();
        let saves = if rng.bool() { "SAVE" } else { "BGSAVE" };
        assert!(!client.call(saves).is_error());
        thread::sleep(Duration::from_millis(rng.u64(..LIFE_MS)));
        assert!(wait_until(PATIENCE, || server.info("rdb_bgsave_in_progress").as_deref() == Some("0")));
        server.signal("KILL");
        shards = rng.usize(1..5);
        server = start(Some(server), &flags(shards, &[]));
        check_round(&server, &dbs, &told, &format!("seed {seed}, round {round}, {saves}"));
    }
}

/// A script over dead keys tells of their deaths when it is over. Their entries were written while it ran, and again after a
/// restart, since the log had them before the deaths that they are of.
#[test]
fn deaths_that_a_script_finds_are_in_their_stream_once() {
    for (shards, is_over) in [(1, false), (1, true), (2, false), (2, true)] {
        let count = shards.to_string();
        let flags = ["--appendonly", "yes", "--appendfsync", "always", "--shards", &count];
        let server = Server::start(Kind::Ember { shards }, &[&flags[..], &["--active-expire-enabled", "no"]].concat());
        let (mut client, mut scripts) = (server.client(), server.client());
        assert_eq!(client.call("EXPIRY POLICY SET d: NONE EVENTS ended"), Value::ok());
        let names: Vec<String> = (0..6).map(|number| format!("d:{number}")).collect();
        names.iter().for_each(|name| assert_eq!(client.call(&format!("SET {name} old PX 1")), Value::ok()));
        thread::sleep(Duration::from_millis(20));
        let script = "for _, k in ipairs(KEYS) do redis.call('SET', k, 'new') end for i = 1, 5e6 do end return 1";
        let words: Vec<&str> = ["EVAL", script, "6"].into_iter().chain(names.iter().map(String::as_str)).collect();
        scripts.send_raw(&encode(&words));
        match is_over {
            true => assert_eq!(scripts.read(), int(1)),
            false => thread::sleep(Duration::from_millis(100)),
        }
        let server = server.restart(&flags);
        until_loaded(&server);
        let mut client = server.client();
        assert!(wait_until(PATIENCE, || client.call("XLEN ended").number() >= 6), "{shards} shards, {is_over}");
        thread::sleep(Duration::from_millis(100));
        assert_eq!(client.call("XLEN ended"), int(6), "{shards} shards, {is_over}");
    }
}

/// A key that was written again while the death of the one before waits: the log has both.
#[test]
fn deaths_wait_in_the_log_while_their_stream_is_held() {
    let log = ["--appendonly", "yes"];
    let mut server = start(None, &flags(3, &log));
    for round in 0..5 {
        let mut client = server.client();
        let (again, once) = (format!("a:{round}"), format!("a:once:{round}"));
        for key in [&again, &once] {
            assert_eq!(client.call(&format!("SET {key} first PX 200")), Value::ok());
        }
        // A script that has the stream, and nothing else.
        let mut holds = server.client();
        holds.send_raw(&encode(&["EVAL", "while true do end", "1", "ended:a"]));
        // (Where the script runs the cycle may have left the other one where it is.)
        assert!(wait_until(PATIENCE, || server.info("expiry_events_waiting").as_deref() != Some("0")));
        assert!(wait_until(PATIENCE, || [&again, &once]
            .iter()
            .all(|key| client.call(&format!("EXISTS {key}")) == int(0))));
        assert_eq!(client.call(&format!("SET {again} second GET")), Value::NullBulk);
        if round == 3 {
            assert_eq!(client.call(&format!("DEL {again}")), int(1));
        }
        if round == 4 {
            // They move with their keys' database.
            client.send("SWAPDB 0 1");
            assert_eq!(client.read_within(Duration::from_millis(100)), None, "the script is done first");
        }
        server.signal("KILL");
        server = start(Some(server), &flags(1 + round % 3, &log));
        let mut client = server.client();
        assert!(wait_until(PATIENCE, || client.call("XLEN ended:a") == int(2 * round as i64 + 2)), "{round}");
        let told = in_streams(&mut client, 0);
        assert_eq!((&told[&again][..], &told[&once][..]), (&["first".to_owned()][..], &["first".to_owned()][..]));
        let expected = if round == 3 { Value::NullBulk } else { bulk("second") };
        assert_eq!(client.call(&format!("GET {again}")), expected);
        assert_eq!(server.info("expiry_events_waiting").as_deref(), Some("0"));
    }
}
