//! Deaths of groups of keys as entries of streams: each once, whatever happens meanwhile.
//!
//! - `EMBERDB_DEATHS_RUNS`: how many runs with different seeds are killed, with many groups (default 3, with few)
//! - `EMBERDB_DEATHS_SEED`: to run one of them again

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Client, Kind, Server, Value, bulk, encode, error, int, ok, on_embers, setting, wait_until, words};

const SOON: Duration = Duration::from_secs(20);

/// The entries of a stream: the group, the reason, and the number of members.
fn entries(client: &mut Client, stream: &str) -> Vec<(String, String, i64)> {
    let reply = client.call(&format!("XRANGE {stream} - +"));
    let entry = |entry: &Value| {
        let fields = &entry.items()[1];
        let field = |name: &str| fields.field(name).unwrap_or_else(|| panic!("{name} of {fields:?}")).text();
        assert!(field("at").parse::<i64>().expect("a moment") > 1_600_000_000_000);
        (field("group"), field("reason"), field("members").parse().expect("a number"))
    };
    reply.items().iter().map(entry).collect()
}

fn told(client: &mut Client, stream: &str, expected: &[(&str, &str, i64)]) {
    let expected: Vec<_> =
        expected.iter().map(|(group, reason, count)| ((*group).into(), (*reason).into(), *count)).collect();
    let mut found = Vec::new();
    assert!(
        wait_until(SOON, || {
            found = entries(client, stream);
            found.len() >= expected.len()
        }),
        "{found:?}, not {expected:?}"
    );
    thread::sleep(Duration::from_millis(20));
    assert_eq!(entries(client, stream), expected);
}

/// A group with so many members, whose death is written to `deaths`.
fn make(client: &mut Client, group: &str, members: usize) {
    for member in 0..members {
        ok(client, &format!("SET {group}:{member} v"));
        assert_eq!(client.call(&format!("EXPIRY GROUP ADD {group} {group}:{member}")), int(1));
    }
    assert_eq!(client.call(&format!("EXPIRY GROUP EVENTS {group} deaths")), Value::ok());
}

#[test]
fn a_death_is_one_entry() {
    on_embers(&[], |server| {
        let mut client = server.client();
        make(&mut client, "old", 7);
        make(&mut client, "killed", 5);
        make(&mut client, "quiet", 3);
        // Its own deadline is the earlier one: it dies before its group, and not with it.
        ok(&mut client, "PEXPIRE old:0 1");
        assert_eq!(client.call("EXPIRY GROUP EVENTS quiet none"), Value::ok());
        assert_eq!(client.call("EXPIRY GROUP KILL killed"), int(5));
        told(&mut client, "deaths", &[("killed", "killed", 5)]);
        assert!((6..=7).contains(&client.call("EXPIRY GROUP EXPIRE old 60").number()));
        assert!((2..=3).contains(&client.call("EXPIRY GROUP EXPIRE quiet 50").number()));
        told(&mut client, "deaths", &[("killed", "killed", 5), ("old", "expired", 6)]);
        assert!(wait_until(SOON, || client.call("DBSIZE") == int(1)));
        assert_eq!(client.call("EXPIRY GROUP LIST"), Value::Array(Vec::new()));
        // Without members; twice under one name, in one transaction, and a stream that moves.
        ok(&mut client, "DEL deaths");
        for line in
            ["MULTI", "EXPIRY GROUP EVENTS g a", "EXPIRY GROUP EVENTS g deaths MAXLEN 1000", "EXPIRY GROUP KILL g"]
        {
            client.call(line);
        }
        for line in ["EXPIRY GROUP EVENTS g deaths", "EXPIRY GROUP KILL g"] {
            client.call(line);
        }
        assert_eq!(client.call("EXEC").items()[2..], [int(0), Value::ok(), int(0)]);
        told(&mut client, "deaths", &[("g", "killed", 0), ("g", "killed", 0)]);
        assert_eq!(client.call("EXISTS a"), int(0));
        // It stays without members, until it has no stream.
        ok(&mut client, "EXPIRY GROUP EVENTS alone deaths");
        assert_eq!(client.call("EXPIRY GROUP LIST"), Value::bulks(&["alone"]));
        ok(&mut client, "EXPIRY GROUP EVENTS alone NONE");
        assert_eq!(client.call("EXPIRY GROUP LIST"), Value::Array(Vec::new()));
        assert_eq!(client.call("EXPIRY GROUP KILL alone"), int(0));
        // What comes again under its name while the first waits to be told of.
        ok(&mut client, "DEL deaths");
        for _ in 0..20 {
            make(&mut client, "again", 2);
            ok(&mut client, "EXPIRY GROUP EXPIRE again 1");
            thread::sleep(Duration::from_millis(3));
        }
        assert!(wait_until(SOON, || client.call("XLEN deaths") == int(20)));
        assert_eq!(server.info("expiry_events_lost").as_deref(), Some("0"));
        // A key that is no stream.
        ok(&mut client, "SET string v");
        ok(&mut client, "EXPIRY GROUP EVENTS lost string");
        ok(&mut client, "EXPIRY GROUP KILL lost");
        assert!(wait_until(SOON, || server.info("expiry_events_lost").as_deref() == Some("1")));
        assert_eq!(client.call("GET string"), bulk("v"));
    });
}

#[test]
fn a_deadline_is_taken_away() {
    on_embers(&[], |server| {
        let mut client = server.client();
        ok(&mut client, "MSET a 1 b 2 c 3 d 4");
        ok(&mut client, "EXPIRE a 100");
        ok(&mut client, "EXPIRY GROUP ADD g a b c d");
        assert_eq!(client.call("EXPIRY GROUP PERSIST g"), int(0));
        assert_eq!(client.call("EXPIRY GROUP PERSIST none"), int(0));
        ok(&mut client, "EXPIRY GROUP EXPIRE g 50s SLIDING");
        assert!(client.call("TTL a").number() <= 50);
        assert_eq!(client.call("EXPIRY GROUP PERSIST g"), int(1));
        assert_eq!(client.call("EXPIRY GROUP PERSIST g"), int(0));
        assert!(client.call("TTL a").number() > 50);
        assert_eq!((client.call("TTL b"), client.call("EXPIRY GROUP TTL g")), (int(-1), int(-1)));
        assert_eq!(client.call("EXPIRY GROUP TOUCH g"), int(0));
        // One without members is gone by that, one with a stream is not.
        ok(&mut client, "EXPIRY GROUP EXPIRE empty 50s");
        ok(&mut client, "EXPIRY GROUP EXPIRE told 50s");
        ok(&mut client, "EXPIRY GROUP EVENTS told deaths");
        assert_eq!(
            (client.call("EXPIRY GROUP PERSIST empty"), client.call("EXPIRY GROUP PERSIST told")),
            (int(1), int(1))
        );
        assert_eq!(client.call("EXPIRY GROUP LIST"), Value::bulks(&["g", "told"]));
        // It may have one again, and its members join and leave as before.
        ok(&mut client, "EXPIRY GROUP REM g d");
        ok(&mut client, "EXPIRY GROUP ADD g d");
        assert_eq!(client.call("EXPIRY GROUP EXPIRE g 40s"), int(4));
        assert!((30..=40).contains(&client.call("TTL d").number()));
        assert_eq!(client.call("EXPIRY GROUP KILL g"), int(4));
    });
}

#[test]
fn what_is_wrong_with_a_stream_is_said() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for wrong in ["g s MAXLEN", "g s 5 5", "g NONE MAXLEN 5", "g s MAXLEN 5 5"] {
            assert_eq!(client.call(&format!("EXPIRY GROUP EVENTS {wrong}")), error("ERR syntax error"), "{wrong}");
        }
        for wrong in ["g s MAXLEN 0", "g s MAXLEN -1"] {
            let expected = error("ERR MAXLEN must be greater than zero");
            assert_eq!(client.call(&format!("EXPIRY GROUP EVENTS {wrong}")), expected);
        }
        assert!(client.call("EXPIRY GROUP EVENTS g s MAXLEN x").is_error());
        assert!(client.command(&[&b"EXPIRY"[..], b"GROUP", b"EVENTS", b"g", b"\xff"]).text().contains("UTF-8"));
        assert!(client.call("EXPIRY GROUP EVENTS g").text().starts_with("ERR wrong number of arguments"));
        assert_eq!(client.call("EXPIRY GROUP LIST"), Value::Array(Vec::new()));
        for wrong in ["DATE g 0 -1 0 0 s 0", "DATE g 5 -1 0 0 s 0 KILLED", "DATE g 5 5 5 0 s", "DATE g 5 5 5 0 s 0 FOO"]
        {
            assert!(client.call(&format!("EXPIRY GROUP {wrong}")).is_error(), "{wrong}");
        }
        ok(&mut client, "ACL SETUSER u on >p ~a:* +@all");
        let mut user = server.client();
        ok(&mut user, "AUTH u p");
        for refused in ["EVENTS a:g b:s", "EVENTS b:g a:s", "EVENTS b:g NONE", "PERSIST b:g"] {
            assert!(user.call(&format!("EXPIRY GROUP {refused}")).text().starts_with("NOPERM"), "{refused}");
        }
        for allowed in ["EVENTS a:g a:s", "EVENTS a:g NONE", "PERSIST a:g"] {
            ok(&mut user, &format!("EXPIRY GROUP {allowed}"));
        }
        let docs = client.call("COMMAND DOCS expiry|group-events");
        assert!(format!("{docs:?}").contains("MAXLEN"), "{docs:?}");
    });
}

#[test]
fn deaths_of_groups_go_where_their_database_goes() {
    on_embers(&[], |server| {
        let mut client = server.client();
        make(&mut client, "g", 4);
        ok(&mut client, "EXPIRY GROUP EXPIRE g 100");
        ok(&mut client, "SWAPDB 0 1");
        ok(&mut client, "SELECT 1");
        told(&mut client, "deaths", &[("g", "expired", 4)]);
        make(&mut client, "flushed", 4);
        ok(&mut client, "EXPIRY GROUP EXPIRE flushed 100");
        ok(&mut client, "FLUSHDB");
        make(&mut client, "h", 4);
        ok(&mut client, "EXPIRY GROUP EXPIRE h 200");
        told(&mut client, "deaths", &[("h", "expired", 4)]);
        ok(&mut client, "FLUSHALL");
        thread::sleep(Duration::from_millis(50));
        assert_eq!(client.call("DBSIZE"), int(0));
    });
}

/// From a log, or from a snapshot; on other numbers of shards.
#[test]
fn a_group_that_dies_while_the_server_is_down_is_told_of() {
    for logs in [&["--appendonly", "yes", "--appendfsync", "always"][..], &[]] {
        for (before, after) in [("1", "3"), ("3", "2"), ("3", "3"), ("2", "1")] {
            for rewrites in [false, true] {
                let flags = |shards| [&["--shards", shards], logs].concat();
                let server = Server::start(Kind::Ember { shards: before.parse().expect("a number") }, logs);
                let mut client = server.client();
                make(&mut client, "down", 6);
                make(&mut client, "killed", 3);
                make(&mut client, "later", 3);
                make(&mut client, "kept", 3);
                ok(&mut client, "EXPIRY GROUP EVENTS kept others MAXLEN 5");
                ok(&mut client, "EXPIRY GROUP EXPIRE kept 1h");
                ok(&mut client, "EXPIRY GROUP PERSIST kept");
                ok(&mut client, "EXPIRY GROUP EXPIRE later 1h SLIDING");
                ok(&mut client, "EXPIRY GROUP KILL killed");
                told(&mut client, "deaths", &[("killed", "killed", 3)]);
                ok(&mut client, "EXPIRY GROUP EXPIRE down 300");
                match (logs.is_empty(), rewrites) {
                    (true, _) => ok(&mut client, "SAVE"),
                    (false, true) => ok(&mut client, "BGREWRITEAOF"),
                    (false, false) => {}
                }
                server.signal("KILL");
                thread::sleep(Duration::from_millis(400));
                let server = server.restart(&flags(after));
                let mut client = server.client();
                let is_told = || client.call("XLEN deaths") == int(2);
                assert!(
                    wait_until(SOON, is_told),
                    "{logs:?} {before} {after} {rewrites}: {:?}",
                    entries(&mut client, "deaths")
                );
                let all = entries(&mut client, "deaths");
                assert_eq!((&all[1].0[..], &all[1].1[..]), ("down", "expired"));
                assert_eq!(client.call("EXPIRY GROUP LIST"), Value::bulks(&["kept", "later"]));
                assert_eq!(client.call("EXPIRY GROUP TTL kept"), int(-1));
                ok(&mut client, "EXPIRY GROUP KILL kept");
                told(&mut client, "others", &[("kept", "killed", 3)]);
                ok(&mut client, "EXPIRY GROUP KILL later");
                assert!(wait_until(SOON, || client.call("XLEN deaths") == int(3)));
                if logs.is_empty() {
                    ok(&mut client, "SAVE");
                }
                let server = server.restart(&flags(before));
                let mut client = server.client();
                thread::sleep(Duration::from_millis(50));
                assert_eq!((client.call("XLEN deaths"), client.call("XLEN others")), (int(3), int(1)));
                assert_eq!(client.call("EXPIRY GROUP LIST"), Value::Array(Vec::new()));
            }
        }
    }
}

/// How much a run has.
#[derive(Clone, Copy)]
struct Size {
    groups: usize,
    keys: usize,
    /// No group lives longer.
    life_ms: u64,
}

const STREAMS: usize = 4;
/// What was written is in the file by then, where it is not waited for.
const WRITTEN_WITHIN: Duration = Duration::from_millis(2_200);

#[test]
fn the_streams_have_every_death_of_a_group_once() {
    let runs = setting("EMBERDB_DEATHS_RUNS");
    let size = match runs {
        None => Size { groups: 300, keys: 20, life_ms: 4_000 },
        Some(_) => Size { groups: 10_000, keys: 100, life_ms: 60_000 },
    };
    for run in 0..runs.unwrap_or(3) {
        let seed = setting("EMBERDB_DEATHS_SEED").unwrap_or_else(|| fastrand::u64(..).wrapping_add(run));
        let sync = ["always", "everysec"][run as usize % 2];
        eprintln!("EMBERDB_DEATHS_SEED={seed}, {sync}");
        one_run(seed, size, sync);
    }
}

fn mget(group: usize, keys: usize) -> Vec<String> {
    std::iter::once("MGET".to_owned()).chain((0..keys).map(|key| format!("g{group}:{key}"))).collect()
}

fn parts(line: String) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn fill(client: &mut Client, size: Size) {
    for some in (0..size.groups).collect::<Vec<_>>().chunks(20) {
        let commands = some.iter().flat_map(|group| {
            let names = || (0..size.keys).map(move |key| format!("g{group}:{key}"));
            let sets = std::iter::once("MSET".to_owned()).chain(names().flat_map(|name| [name, "v".to_owned()]));
            let adds = parts(format!("EXPIRY GROUP ADD g{group}")).into_iter().chain(names());
            let events = parts(format!("EXPIRY GROUP EVENTS g{group} deaths:{}", group % STREAMS));
            [sets.collect::<Vec<String>>(), adds.collect(), events]
        });
        let commands: Vec<Vec<String>> = commands.collect();
        client.pipeline(&commands).iter().for_each(|reply| assert!(!reply.is_error(), "{reply:?}"));
    }
}

/// Reads groups until the server is gone or `is_over`: each is there as a whole, or not at all.
fn read(port: u16, seed: u64, size: Size, is_over: &AtomicBool) {
    let Ok(mut client) = Client::connect(port) else { return };
    let mut rng = fastrand::Rng::with_seed(seed);
    while !is_over.load(Ordering::Relaxed) {
        let group = rng.usize(..size.groups);
        if client.try_send_raw(&encode(&mget(group, size.keys))).is_err() {
            return;
        }
        let Ok(reply) = client.try_read() else { return };
        // (One that is being loaded answers so.)
        if reply.is_error() {
            continue;
        }
        let there = reply.items().iter().filter(|item| !item.is_null()).count();
        assert!(there == 0 || there == size.keys, "group {group}: {there} of {}", size.keys);
    }
}

fn ask(client: &mut Client, line: &str) -> io::Result<Value> {
    client.try_send_raw(&encode(&words(line)))?;
    client.try_read()
}

/// Kills groups until the server is gone or `is_over`; those of which that is certain.
fn kill(port: u16, seed: u64, size: Size, is_over: &AtomicBool) -> Vec<usize> {
    let (mut rng, mut killed) = (fastrand::Rng::with_seed(seed), Vec::new());
    let Ok(mut client) = Client::connect(port) else { return killed };
    while !is_over.load(Ordering::Relaxed) {
        let group = rng.usize(..size.groups);
        match ask(&mut client, &format!("EXPIRY GROUP KILL g{group}")) {
            Ok(Value::Int(count)) if count > 0 => {
                assert_eq!(count, size.keys as i64, "group {group}");
                killed.push(group);
            }
            Ok(_) => {}
            Err(_) => return killed,
        }
        thread::sleep(Duration::from_millis(rng.u64(..20)));
    }
    killed
}

fn one_run(seed: u64, size: Size, sync: &str) {
    let what = format!("EMBERDB_DEATHS_SEED={seed}, {sync}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let log = ["--appendonly", "yes", "--appendfsync", sync, "--auto-aof-rewrite-min-size", "1mb"];
    let mut server = Server::start(Kind::Ember { shards: 3 }, &log);
    let mut client = server.client();
    fill(&mut client, size);
    let least_ms = WRITTEN_WITHIN.as_millis() as u64 + size.groups as u64;
    let dates: Vec<Vec<String>> = (0..size.groups)
        .map(|group| parts(format!("EXPIRY GROUP EXPIRE g{group} {}", least_ms + rng.u64(..size.life_ms))))
        .collect();
    for some in dates.chunks(100) {
        client.pipeline(some).iter().for_each(|reply| assert_eq!(*reply, int(size.keys as i64), "{what}"));
    }
    thread::sleep(WRITTEN_WITHIN);
    let (mut killed, mut crashes) = (Vec::new(), rng.usize(1..4));
    loop {
        let (port, is_over) = (server.port(), AtomicBool::new(false));
        let seeds: Vec<u64> = (0..4).map(|_| rng.u64(..)).collect();
        let lasts = Duration::from_millis(rng.u64(size.life_ms / 20..size.life_ms / 3));
        let between = ["BGREWRITEAOF", "PING"][rng.usize(..2)];
        thread::scope(|scope| {
            let is_over = &is_over;
            for seed in seeds[1..].iter().copied() {
                scope.spawn(move || read(port, seed, size, is_over));
            }
            let of_kills = seeds[0];
            let kills = scope.spawn(move || kill(port, of_kills, size, is_over));
            if crashes > 0 {
                thread::sleep(lasts / 2);
                client.call(between);
                thread::sleep(lasts / 2);
                server.signal("KILL");
            } else {
                let until = Instant::now() + 2 * SOON + Duration::from_millis(2 * size.life_ms);
                let count = |client: &mut Client| -> i64 {
                    (0..STREAMS).map(|stream| client.call(&format!("XLEN deaths:{stream}")).number()).sum()
                };
                while count(&mut client) < size.groups as i64 && Instant::now() < until {
                    thread::sleep(Duration::from_millis(50));
                }
                thread::sleep(Duration::from_millis(100));
                is_over.store(true, Ordering::Relaxed);
            }
            killed.extend(kills.join().expect("who kills"));
        });
        if crashes == 0 {
            break;
        }
        crashes -= 1;
        server = server.restart(&log);
        assert!(wait_until(SOON + SOON, || server.info("loading").as_deref() == Some("0")), "{what}");
        client = server.client();
    }
    check(&mut client, size, if sync == "always" { &killed } else { &[] }, &what);
    assert!(!server.output().contains("has answered"), "{what}: {}", server.output());
    // It is so after another start, too.
    let server = server.restart(&log);
    assert!(wait_until(SOON + SOON, || server.info("loading").as_deref() == Some("0")), "{what}");
    thread::sleep(Duration::from_millis(100));
    check(&mut server.client(), size, &[], &what);
}

fn check(client: &mut Client, size: Size, killed: &[usize], what: &str) {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for stream in 0..STREAMS {
        for (group, reason, members) in entries(client, &format!("deaths:{stream}")) {
            assert!((0..=size.keys as i64).contains(&members), "{what}: {members}");
            assert!(group[1..].parse::<usize>().expect("a group") % STREAMS == stream);
            found.entry(group).or_default().push(reason);
        }
    }
    let wrong: Vec<(usize, Option<&Vec<String>>)> = (0..size.groups)
        .map(|group| (group, found.get(&format!("g{group}"))))
        .filter(|(_, reasons)| reasons.is_none_or(|reasons| reasons.len() != 1))
        .collect();
    assert!(wrong.is_empty(), "{what}: {} of {}: {:?}", wrong.len(), size.groups, &wrong[..wrong.len().min(10)]);
    for group in killed {
        assert_eq!(found[&format!("g{group}")], ["killed"], "{what}: {group}");
    }
    assert!(wait_until(SOON, || client.call("DBSIZE") == int(STREAMS as i64)), "{what}");
    assert_eq!(client.call("EXPIRY GROUP LIST"), Value::Array(Vec::new()), "{what}");
}
