//! A server is killed at a random moment under a load of everything that it can do, and started again with another number
//! of shards. Every client has a database of its own, and knows what was acknowledged there. What is found must be that,
//! or that and the one request more that was under way; of a transaction all or nothing. What somebody was shown of it by
//! others must be there as well.
//!
//! `EMBERDB_CRASH_ROUNDS` and `EMBERDB_CRASH_SEED` make more of it, and repeat it.

use crate::common::{Client, Kind, Server, Value, wait_until, words};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const CLIENTS: usize = 6;
const DATABASES: &str = "32";
const PATIENCE: Duration = Duration::from_secs(30);
/// Keys that die while the test runs live no longer than this.
const SHORT_MS: u64 = 40;

/// A request: what is sent in one go.
type Request = Vec<Vec<Vec<u8>>>;
/// Types, contents and deadlines of all keys of a database.
type Contents = BTreeMap<Vec<u8>, String>;

fn key(rng: &mut Rng, kind: &str) -> String {
    format!("{kind}:{}", rng.u32(..12))
}

fn line(rng: &mut Rng, far_ms: u64) -> String {
    let (value, far) = (rng.u32(..1000), far_ms + rng.u64(..1_000_000));
    let short = rng.u64(1..SHORT_MS);
    let s = |rng: &mut Rng| key(rng, "s");
    match rng.u32(..48) {
        0 => format!("SET {} {value}", s(rng)),
        1 => format!("SET {} {value} PXAT {far}", s(rng)),
        2 => format!("SET once:{} {value} PX {short}", rng.u64(..)),
        3 => format!("INCR {}", key(rng, "n")),
        4 => format!("INCRBYFLOAT {} 0.5", key(rng, "n")),
        5 => format!("APPEND {} x{value}", s(rng)),
        6 => format!("SETRANGE {} 5 {value}", s(rng)),
        7 => format!("GETEX {} PXAT {far}", s(rng)),
        8 => format!("GETDEL {}", s(rng)),
        9 => format!("PERSIST {}", s(rng)),
        10 => format!("GETEX once:{} PX {short}", rng.u64(..)),
        11 => format!("PEXPIREAT {} {far}", key(rng, "z")),
        12 => format!("DEL {} {} {}", s(rng), key(rng, "l"), key(rng, "n")),
        13 => format!("MSET {} {value} {} b {} c", s(rng), s(rng), s(rng)),
        14 => format!("RENAME {} {}", s(rng), s(rng)),
        15 => format!("COPY {} {} REPLACE", key(rng, "h"), key(rng, "h")),
        16 => format!("HSET {} f{} {value} g 1", key(rng, "h"), rng.u32(..20)),
        17 => format!("HDEL {} f{}", key(rng, "h"), rng.u32(..20)),
        18 => format!("HINCRBY {} n 3", key(rng, "h")),
        19 => format!("HSETEX once:{} PX {short} FIELDS 1 g 1", rng.u64(..)),
        20 => format!("HPEXPIREAT {} {far} FIELDS 1 n", key(rng, "h")),
        21 => format!("LPUSH {} a {value} b", key(rng, "l")),
        22 => format!("RPUSH {} c {value}", key(rng, "l")),
        23 => format!("LPOP {} 2", key(rng, "l")),
        24 => format!("LMOVE {} {} LEFT RIGHT", key(rng, "l"), key(rng, "l")),
        25 => format!("LTRIM {} 0 20", key(rng, "l")),
        26 => format!("SADD {} {value} x {}", key(rng, "t"), rng.u32(..9)),
        27 => format!("SMOVE {} {} x", key(rng, "t"), key(rng, "t")),
        28 => format!("SUNIONSTORE {} {} {}", key(rng, "t"), key(rng, "t"), key(rng, "t")),
        29 => format!("SREM {} {value} x", key(rng, "t")),
        30 => format!("ZADD {} {value} m{} 1 n", key(rng, "z"), rng.u32(..30)),
        31 => format!("ZINCRBY {} 2 n", key(rng, "z")),
        32 => format!("ZPOPMIN {} 2", key(rng, "z")),
        33 => format!("ZUNIONSTORE {} 2 {} {}", key(rng, "z"), key(rng, "z"), key(rng, "z")),
        34 => format!("XADD {} MAXLEN ~ 50 {far}-{value} f {value}", key(rng, "x")),
        35 => format!("XTRIM {} MAXLEN 5", key(rng, "x")),
        36 => format!("PFADD {} {value}", key(rng, "p")),
        37 => format!("SETBIT {} {value} 1", key(rng, "b")),
        38 => format!("BLPOP {} {} 0.001", key(rng, "l"), key(rng, "l")),
        39 => format!("SORT {} STORE {} ALPHA", key(rng, "t"), key(rng, "l")),
        40 => format!("MSETNX {} {value} {} 2", s(rng), key(rng, "n")),
        41 => format!("HSETEX {} PXAT {far} FIELDS 2 e 1 f {value}", key(rng, "h")),
        42 => format!("MSETEX 2 {} 1 {} 2 PXAT {far}", s(rng), s(rng)),
        43 => format!("EXPIRE {} -1", s(rng)),
        44 => format!("SPEXPIREAT {} {far} MEMBERS 1 x", key(rng, "t")),
        46 => format!("ZPEXPIREAT {} {far} MEMBERS 2 x n", key(rng, "z")),
        45 => format!("SADDEX {} PXAT {far} MEMBERS 2 x {}", key(rng, "t"), rng.u32(..9)),
        _ => format!("INCRBY {} {value}", key(rng, "n")),
    }
}

const MOVE: &str = "local v = redis.call('INCR', KEYS[1]); redis.call('SET', KEYS[2], v); \
                    redis.call('RPUSH', KEYS[3], v); return v";

fn request(rng: &mut Rng, far_ms: u64) -> Request {
    match rng.u32(..30) {
        0 => vec![
            words(&format!("EVAL {} 3 {} {} {}", "?", key(rng, "n"), key(rng, "s"), key(rng, "l")))
                .into_iter()
                .map(|word| if word == b"?" { MOVE.as_bytes().to_vec() } else { word })
                .collect(),
        ],
        1 => vec![words("FLUSHDB")],
        // What dies soon has a name of its own: whether it is alive when something is done to it would be a matter of time.
        2 => {
            let (once, short) = (rng.u64(..), rng.u64(1..SHORT_MS));
            let lines = [
                "MULTI".to_owned(),
                format!("HSET h:once:{once} e 1 f 2 g 3"),
                format!("HPEXPIRE h:once:{once} {short} FIELDS 1 g"),
                format!("RPUSH once:{once} a b"),
                format!("PEXPIRE once:{once} {short}"),
                "EXEC".to_owned(),
            ];
            lines.iter().map(|line| words(line)).collect()
        }
        3..7 => {
            let mut all = vec![words("MULTI")];
            all.extend((0..rng.usize(1..6)).map(|_| words(&line(rng, far_ms))));
            all.push(words("EXEC"));
            all
        }
        _ => vec![words(&line(rng, far_ms))],
    }
}

/// What a database holds.
fn contents(client: &mut Client, db: usize) -> Contents {
    assert_eq!(client.call(&format!("SELECT {db}")), Value::ok());
    let mut all = Contents::new();
    for name in client.call("KEYS *").items() {
        let Value::Bulk(name) = name else { panic!("{name:?}") };
        let mut ask = |parts: &[&[u8]]| format!("{:?}", client.command(parts));
        let mut said = ask(&[b"DEBUG", b"DIGEST-VALUE", name]) + &ask(&[b"PEXPIRETIME", name]);
        if name.starts_with(b"t:") {
            said += &ask(&[b"SPEXPIRETIME", name, b"MEMBERS", b"4", b"x", b"1", b"2", b"3"]);
        }
        if name.starts_with(b"h:") {
            said += &ask(&[b"HPEXPIRETIME", name, b"FIELDS", b"4", b"e", b"f", b"g", b"n"]);
        }
        all.insert(name.clone(), said);
    }
    all
}

/// What one client has done: all that was acknowledged, and what was under way.
struct Done {
    acknowledged: Vec<Request>,
    under_way: Option<Request>,
}

fn say(client: &mut Client, request: &Request) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    request.iter().for_each(|command| bytes.extend_from_slice(&crate::common::encode(command)));
    client.try_send_raw(&bytes)?;
    for _ in request {
        client.try_read()?;
    }
    Ok(())
}

fn load(port: u16, db: usize, seed: u64, far_ms: u64) -> Done {
    let mut rng = Rng::with_seed(seed);
    let mut done = Done { acknowledged: Vec::new(), under_way: None };
    let Ok(mut client) = Client::connect(port) else { return done };
    if say(&mut client, &vec![words(&format!("SELECT {db}"))]).is_err() {
        return done;
    }
    loop {
        let request = request(&mut rng, far_ms);
        match say(&mut client, &request) {
            Ok(()) => done.acknowledged.push(request),
            Err(_) => {
                done.under_way = Some(request);
                return done;
            }
        }
    }
}

/// Reads what others count, and remembers the most that it was shown.
fn watch(port: u16, shown: &AtomicU64, ends: &AtomicBool) {
    let Ok(mut client) = Client::connect(port) else { return };
    while !ends.load(Ordering::Relaxed) {
        match client.try_send_raw(b"*2\r\n$3\r\nGET\r\n$7\r\ncounter\r\n").and_then(|()| client.try_read()) {
            Ok(Value::Bulk(text)) => {
                let count = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).expect("a number");
                shown.fetch_max(count, Ordering::Relaxed);
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

fn count(port: u16) -> u64 {
    let Ok(mut client) = Client::connect(port) else { return 0 };
    let mut counted = 0;
    while let Ok(Value::Int(count)) =
        client.try_send_raw(b"*2\r\n$4\r\nINCR\r\n$7\r\ncounter\r\n").and_then(|()| client.try_read())
    {
        counted = count as u64;
    }
    counted
}

fn until_loaded(server: &Server) {
    assert!(wait_until(PATIENCE, || server.info("loading").as_deref() == Some("0")), "it is not loaded");
}

fn rounds() -> usize {
    std::env::var("EMBERDB_CRASH_ROUNDS").map_or(20, |rounds| rounds.parse().expect("a number"))
}

/// What is wrong with the database of one client.
fn check(found: &Contents, oracle: &mut Client, db: usize, done: &Done) -> Result<(), String> {
    for request in &done.acknowledged {
        say(oracle, request).map_err(|error| error.to_string())?;
    }
    thread::sleep(Duration::from_millis(2 * SHORT_MS));
    let expected = contents(oracle, db);
    if expected == *found {
        return Ok(());
    }
    if let Some(request) = &done.under_way {
        say(oracle, request).map_err(|error| error.to_string())?;
        thread::sleep(Duration::from_millis(2 * SHORT_MS));
        if contents(oracle, db) == *found {
            return Ok(());
        }
    }
    let differs = |of: &Contents, other: &Contents| -> Vec<String> {
        of.iter()
            .filter(|(key, said)| other.get(*key) != Some(said))
            .map(|(key, said)| format!("{} {said}", key.escape_ascii()))
            .collect()
    };
    let show = |request: &Request| {
        request.iter().map(|command| command.join(&b' ').escape_ascii().to_string()).collect::<Vec<_>>().join("; ")
    };
    let last: Vec<String> = done.acknowledged.iter().rev().take(5).map(show).collect();
    Err(format!(
        "db {db}: expected {:?}, found {:?}; the last requests, newest first: {last:?}; under way: {:?}",
        differs(&expected, found),
        differs(found, &expected),
        done.under_way.as_ref().map(show)
    ))
}

#[test]
fn nothing_that_was_acknowledged_is_lost() {
    let seed =
        std::env::var("EMBERDB_CRASH_SEED").map_or_else(|_| Rng::new().u64(..), |seed| seed.parse().expect("a seed"));
    let mut rng = Rng::with_seed(seed);
    println!("EMBERDB_CRASH_SEED={seed}");
    let flags = |shards: usize| -> Vec<String> {
        let shards = shards.to_string();
        let flags = ["--databases", DATABASES, "--enable-debug-command", "yes", "--shards", &shards];
        flags.into_iter().map(str::to_owned).collect()
    };
    let with_log = |shards: usize, preamble: bool| -> Vec<String> {
        let more = ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-min-size", "200kb"];
        let base = ["--aof-use-rdb-preamble", if preamble { "yes" } else { "no" }];
        flags(shards).into_iter().chain(more.into_iter().chain(base).map(str::to_owned)).collect()
    };
    let start = |server: Option<Server>, flags: &[String]| {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let server = match server {
            Some(server) => server.restart(&flags),
            None => Server::start(Kind::Ember { shards: 2 }, &flags),
        };
        until_loaded(&server);
        server
    };
    let mut server = start(None, &with_log(2, true));
    let oracle = start(None, &flags(1));
    let mut counted = 0;
    for round in 0..rounds() {
        // Each round has databases of its own, and begins with empty ones.
        let dbs: Vec<usize> = (0..CLIENTS).map(|client| 1 + (round % 4) * CLIENTS + client).collect();
        for db in &dbs {
            for of in [&server, &oracle] {
                let mut client = of.client();
                assert_eq!(client.call(&format!("SELECT {db}")), Value::ok());
                assert_eq!(client.call("FLUSHDB"), Value::ok());
            }
        }
        let far_ms = now_ms() + 100_000_000;
        let (port, shown, ends) = (server.port(), AtomicU64::new(0), AtomicBool::new(false));
        let seeds: Vec<u64> = dbs.iter().map(|_| rng.u64(..)).collect();
        let lasts = Duration::from_millis(rng.u64(20..400));
        let rewrites = rng.bool();
        let (done, last_count) = thread::scope(|scope| {
            let loads: Vec<_> =
                dbs.iter().zip(&seeds).map(|(&db, &seed)| scope.spawn(move || load(port, db, seed, far_ms))).collect();
            scope.spawn(|| watch(port, &shown, &ends));
            let counts = scope.spawn(move || count(port));
            if rewrites {
                thread::sleep(lasts / 2);
                server.client().call("BGREWRITEAOF");
            }
            thread::sleep(lasts);
            server.signal("KILL");
            let done: Vec<Done> = loads.into_iter().map(|load| load.join().expect("a load")).collect();
            ends.store(true, Ordering::Relaxed);
            (done, counts.join().expect("a count"))
        });
        counted = last_count.max(counted);
        let requests: usize = done.iter().map(|done| done.acknowledged.len()).sum();
        server = start(Some(server), &with_log(rng.usize(1..5), rng.bool()));
        thread::sleep(Duration::from_millis(2 * SHORT_MS));
        let mut client = server.client();
        let output = server.output();
        assert!(!output.contains("has answered"), "seed {seed}, round {round}: {output}");
        for (&db, done) in dbs.iter().zip(&done) {
            let found = contents(&mut client, db);
            let mut oracle = oracle.client();
            assert_eq!(oracle.call(&format!("SELECT {db}")), Value::ok());
            if let Err(reason) = check(&found, &mut oracle, db, done) {
                panic!("seed {seed}, round {round}, {requests} requests: {reason}");
            }
        }
        assert_eq!(client.call("SELECT 0"), Value::ok());
        let found = match client.call("GET counter") {
            Value::Bulk(text) => std::str::from_utf8(&text).expect("text").parse().expect("a number"),
            _ => 0,
        };
        let shown = shown.load(Ordering::Relaxed);
        assert!(
            found >= counted && found >= shown,
            "seed {seed}, round {round}: {found}, acknowledged {counted}, shown {shown}"
        );
    }
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.expect("after 1970").as_millis()).expect("a time")
}
