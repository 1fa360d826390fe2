//! The fencing test in the manner of Jepsen: holders of a lease that sleep beyond its end, a wall clock that is set by an hour and
//! back, and a server that is killed. No guarded write of an older holder is ever accepted behind a newer one's, nothing that was
//! acknowledged is lost, and tokens only grow.
//!
//! `EMBERDB_FENCING_ROUNDS` says how often the server is killed, `EMBERDB_CRASH_SEED` repeats what was drawn.

use super::clock::Wall;
use super::disk::library;
use crate::common::{Client, Kind, Server, Value, encode, wait_until, words};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const CLIENTS: usize = 5;
const HOUR_MS: i64 = 3_600_000;
const LOST: &str = "LEASELOST the lease has ended, or is not of this token";
/// What is guarded, on all shards: each holder appends its token.
const HISTORIES: [&str; 4] = ["h:a", "h:b", "h:c", "h:d"];

/// What clients know of one history, by tokens: how many writes were acknowledged, and how many were perhaps made.
type Writes = BTreeMap<(usize, i64), (u64, u64)>;

/// What all clients know.
#[derive(Default)]
struct Known {
    writes: Mutex<Writes>,
    /// No token that was given to anybody is greater.
    greatest: AtomicI64,
    refused: AtomicI64,
    is_over: AtomicBool,
}

impl Known {
    fn count(&self, history: usize, token: i64, is_certain: bool) {
        let mut writes = self.writes.lock().unwrap();
        let (acknowledged, perhaps) = writes.entry((history, token)).or_default();
        *(if is_certain { acknowledged } else { perhaps }) += 1;
    }
}

fn ask<T: AsRef<[u8]>>(client: &mut Client, words: &[T]) -> io::Result<Value> {
    client.try_send_raw(&encode(words))?;
    client.try_read()
}

fn say(client: &mut Client, line: &str) -> io::Result<Value> {
    ask(client, &words(line))
}

/// Appends the token to histories, guarded; whether the lease was not lost.
fn write(client: &mut Client, rng: &mut Rng, token: i64, known: &Known) -> io::Result<bool> {
    let (one, other) = (rng.usize(..HISTORIES.len()), rng.usize(..HISTORIES.len()));
    let (key, second) = (HISTORIES[one], HISTORIES[other]);
    let (reply, written) = match rng.u8(..3) {
        0 => (say(client, &format!("GUARD lease {token} RPUSH {key} {token}")), vec![one]),
        1 => {
            let script = "redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.call('RPUSH', KEYS[2], ARGV[1])";
            let token = token.to_string();
            let request = ["GUARD", "lease", &token, "EVAL", script, "2", key, second, &token];
            (ask(client, &request), vec![one, other])
        }
        _ => {
            let lines = ["MULTI".to_owned(), format!("RPUSH {key} {token}"), format!("RPUSH {second} {token}")];
            for line in &lines {
                say(client, line)?;
            }
            (say(client, &format!("GUARD lease {token} EXEC")), vec![one, other])
        }
    };
    let accepted = match &reply {
        Ok(Value::Error(text)) => {
            assert_eq!(text, LOST);
            known.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        accepted => accepted.is_ok(),
    };
    written.iter().for_each(|history| known.count(*history, token, accepted));
    reply.map(|_| true)
}

/// Takes the lease, writes, sleeps, perhaps beyond its end, and writes again.
fn hold(client: &mut Client, rng: &mut Rng, known: &Known) -> io::Result<()> {
    let (life_ms, floor) = (rng.u64(2..12), known.greatest.load(Ordering::SeqCst));
    let Value::Int(token) = say(client, &format!("LEASE TAKE lease {life_ms}ms"))? else {
        thread::sleep(Duration::from_micros(rng.u64(..500)));
        return Ok(());
    };
    assert!(token > floor, "{token} was given behind {floor}");
    known.greatest.fetch_max(token, Ordering::SeqCst);
    for _ in 0..rng.u64(1..8) {
        if !write(client, rng, token, known)? && rng.bool() {
            return Ok(());
        }
        match rng.u8(..6) {
            0 => thread::sleep(Duration::from_millis(rng.u64(..2 * life_ms))),
            1 => drop(say(client, &format!("LEASE RENEW lease {token} {life_ms}ms"))?),
            2 => drop(say(client, &format!("LEASE RELEASE lease {token}"))?),
            _ => {}
        }
    }
    Ok(())
}

fn client(port: u16, seed: u64, known: &Known) {
    let mut rng = Rng::with_seed(seed);
    let Ok(mut client) = Client::connect(port) else { return };
    while hold(&mut client, &mut rng, known).is_ok() {
        if known.is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// The histories grow, and have what was acknowledged.
fn check(client: &mut Client, known: &Known, what: &str) {
    let mut found: BTreeMap<(usize, i64), u64> = BTreeMap::new();
    for (history, key) in HISTORIES.iter().enumerate() {
        let items = client.call(&format!("LRANGE {key} 0 -1"));
        let tokens: Vec<i64> = items.items().iter().map(|token| token.text().parse().expect("a token")).collect();
        let wrong = tokens.windows(2).find(|pair| pair[0] > pair[1]);
        assert!(wrong.is_none(), "{what}, {key}: written by an older holder behind a newer one: {wrong:?}");
        tokens.iter().for_each(|token| *found.entry((history, *token)).or_default() += 1);
    }
    let writes = known.writes.lock().unwrap();
    for (of, (acknowledged, perhaps)) in &*writes {
        let found = found.remove(of).unwrap_or_default();
        let expected = *acknowledged..=acknowledged + perhaps;
        assert!(expected.contains(&found), "{what}, {of:?}: {found} writes, and {expected:?} were acknowledged");
    }
    assert!(found.is_empty(), "{what}: nobody has written {found:?}");
}

#[test]
fn no_older_holder_writes_whatever_becomes_of_clock_and_server() {
    let Some((_folder, library)) = library("clock.c") else { return };
    let rounds = std::env::var("EMBERDB_FENCING_ROUNDS").map_or(5, |rounds| rounds.parse().expect("a number"));
    let seed: u64 =
        std::env::var("EMBERDB_CRASH_SEED").map_or_else(|_| Rng::new().u64(..), |seed| seed.parse().expect("a seed"));
    println!("EMBERDB_CRASH_SEED={seed}");
    let (mut rng, known) = (Rng::with_seed(seed), Known::default());
    let log = ["--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes"];
    let bare = Server::start(Kind::Ember { shards: 1 }, &log);
    let mut wall = Wall::of(&bare);
    let mut server = bare.restart_under(&library, &log);
    for round in 0..rounds {
        let is_up = || Client::connect(server.port()).is_ok() && server.info("loading").as_deref() == Some("0");
        assert!(wait_until(PATIENCE, is_up));
        let (what, mut first) = (format!("seed {seed}, round {round}"), server.client());
        check(&mut first, &known, &what);
        // (Where the clock was set while nobody saw it, whoever had the lease may have it for an hour.)
        first.call("DEL lease");
        known.is_over.store(false, Ordering::Relaxed);
        let (port, seeds) = (server.port(), (0..CLIENTS).map(|_| rng.u64(..)).collect::<Vec<u64>>());
        thread::scope(|scope| {
            let known = &known;
            for seed in seeds {
                scope.spawn(move || client(port, seed, known));
            }
            for _ in 0..rng.u64(2..6) {
                thread::sleep(Duration::from_millis(rng.u64(20..150)));
                match rng.u8(..4) {
                    0 => wall.set(HOUR_MS),
                    1 => wall.set(-HOUR_MS),
                    2 => drop(first.call("BGREWRITEAOF")),
                    _ => server.delay_shards([0, 200, 1_000][rng.usize(..3)]),
                }
            }
            server.signal("KILL");
            known.is_over.store(true, Ordering::Relaxed);
        });
        if rng.bool() {
            wall.set([HOUR_MS, -HOUR_MS][rng.usize(..2)]);
        }
        let shards = ["1", "3"][rng.usize(..2)];
        let preamble = ["yes", "no"][rng.usize(..2)];
        let flags = [&log[..], &["--shards", shards, "--aof-use-rdb-preamble", preamble]].concat();
        server = server.restart_under(&library, &flags);
    }
    assert!(wait_until(PATIENCE, || Client::connect(server.port()).is_ok()
        && server.info("loading").as_deref() == Some("0")));
    check(&mut server.client(), &known, &format!("seed {seed}, the end"));
    let (writes, refused) = (known.writes.lock().unwrap(), known.refused.load(Ordering::Relaxed));
    let accepted: u64 = writes.values().map(|(acknowledged, _)| acknowledged).sum();
    println!("{rounds} crashes, {accepted} writes were accepted and {refused} refused");
    assert!(accepted > 0 && refused > 0, "{accepted} {refused}");
}
