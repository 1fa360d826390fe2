//! Groups of keys whose server is killed while they die: nobody sees a part of one after the restart, and the death of each is in
//! its stream once, with all of its members.
//!
//! `EMBERDB_GROUP_CRASHES` says how often it is killed, `EMBERDB_CRASH_SEED` repeats that.

use super::kills::{Control, library};
use crate::common::{Client, Kind, Server, Value, encode, wait_until, words};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const MAKERS: usize = 3;
const READERS: usize = 2;
/// Members of a group, on all shards.
const KEYS: usize = 9;
const STREAMS: usize = 3;

/// What a client knows of a group that it has made.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    /// Its commands were under way when the server was killed.
    Perhaps,
    /// It is going to die by its deadline.
    Made,
    /// It was killed, perhaps after its deadline.
    Killed,
}

fn ask(client: &mut Client, line: &str) -> io::Result<Value> {
    client.try_send_raw(&encode(&words(line)))?;
    client.try_read()
}

fn keys_of(group: &str) -> Vec<String> {
    (0..KEYS).map(|key| format!("{group}:{key}")).collect()
}

/// Makes groups that live for some milliseconds, kills some of them, and writes to members of some, dead or alive.
fn make(port: u16, name: &str, seed: u64, known: &Mutex<BTreeMap<String, Known>>) {
    make_some(port, name, seed, known, usize::MAX);
}

/// So many of them.
fn make_some(port: u16, name: &str, seed: u64, known: &Mutex<BTreeMap<String, Known>>, count: usize) {
    let mut rng = Rng::with_seed(seed);
    let Ok(mut client) = Client::connect(port) else { return };
    for number in 0..count {
        // (Who writes to members makes keys that are in no group, where these have died.)
        let (group, writes) = match rng.u32(..3) {
            0 => (format!("w:{name}:{number}"), true),
            _ => (format!("g:{name}:{number}"), false),
        };
        known.lock().unwrap().insert(group.clone(), Known::Perhaps);
        let pairs: Vec<String> = keys_of(&group).iter().map(|key| format!("{key} v")).collect();
        let (keys, life_ms) = (keys_of(&group).join(" "), rng.u64(1..40));
        let lines = [
            "MULTI".to_owned(),
            format!("MSET {}", pairs.join(" ")),
            format!("EXPIRY GROUP ADD {group} {keys}"),
            format!("EXPIRY GROUP EVENTS {group} deaths:{}", number % STREAMS),
            format!("EXPIRY GROUP EXPIRE {group} {life_ms}"),
            "EXEC".to_owned(),
        ];
        for line in &lines {
            match ask(&mut client, line) {
                Ok(reply) => assert!(!reply.is_error(), "{line}: {reply:?}"),
                Err(_) => return,
            }
        }
        known.lock().unwrap().insert(group.clone(), Known::Made);
        if writes {
            for key in keys_of(&group).iter().take(4) {
                thread::sleep(Duration::from_millis(rng.u64(..life_ms / 2 + 2)));
                if ask(&mut client, &format!("SET {key} w")).is_err() {
                    return;
                }
            }
        } else if rng.u32(..4) == 0 {
            known.lock().unwrap().insert(group.clone(), Known::Killed);
            if ask(&mut client, &format!("EXPIRY GROUP KILL {group}")).is_err() {
                return;
            }
        }
    }
}

fn look(client: &mut Client, group: &str) -> io::Result<()> {
    let seen = ask(client, &format!("MGET {}", keys_of(group).join(" ")))?;
    let there = seen.items().iter().filter(|value| !value.is_null()).count();
    assert!(there == 0 || there == KEYS, "{group}: {there} of {KEYS}");
    Ok(())
}

/// Looks at groups that others make, until the server is gone.
fn read(port: u16, seed: u64, known: &Mutex<BTreeMap<String, Known>>) {
    let mut rng = Rng::with_seed(seed);
    let Ok(mut client) = Client::connect(port) else { return };
    loop {
        let groups: Vec<String> =
            known.lock().unwrap().keys().rev().filter(|group| group.starts_with('g')).take(50).cloned().collect();
        let Some(group) = rng.choice(groups.iter()) else {
            thread::yield_now();
            continue;
        };
        if look(&mut client, group).is_err() {
            return;
        }
    }
}

/// How each group has died, as the streams say.
fn told(client: &mut Client) -> BTreeMap<String, Vec<(String, String)>> {
    let mut all: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for stream in 0..STREAMS {
        for entry in client.call(&format!("XRANGE deaths:{stream} - +")).items() {
            let fields = &entry.items()[1];
            let field = |name: &str| fields.field(name).map(|value| value.text()).unwrap_or_default();
            all.entry(field("group")).or_default().push((field("cause"), field("members")));
        }
    }
    all
}

/// After a restart: no group is there in part, and each death is told once; how many are.
fn check(server: &Server, known: &BTreeMap<String, Known>, what: &str) -> usize {
    let mut client = server.client();
    for group in known.keys().filter(|group| group.starts_with('g')) {
        look(&mut client, group).expect("an answer");
    }
    let made = |known: &Known| *known != Known::Perhaps;
    let is_over = || {
        let told = told(&mut client);
        known.iter().filter(|(_, known)| made(known)).all(|(group, _)| told.contains_key(group))
            && client.call("EXPIRY GROUP LIST").items().is_empty()
    };
    let over = wait_until(PATIENCE, is_over);
    let told = told(&mut client);
    for (group, known) in known {
        let entries = told.get(group).map_or(&[][..], |entries| entries);
        let causes: &[&str] = match known {
            Known::Perhaps | Known::Made => &["expired"],
            Known::Killed => &["expired", "killed"],
        };
        assert!(entries.len() <= 1 && (entries.len() == 1 || !made(known)), "{what}, {group} {known:?}: {entries:?}");
        for (cause, members) in entries {
            assert!(causes.contains(&cause.as_str()), "{what}, {group} {known:?}: {entries:?}");
            assert_eq!(members, &KEYS.to_string(), "{what}, {group} {known:?}");
        }
    }
    assert!(over, "{what}: deaths are not told");
    assert!(!server.output().contains("has answered"), "{what}: {}", server.output());
    told.len()
}

/// A server is killed before its nth disk operation, while groups die, are killed and written to, and the log is rewritten.
#[test]
fn groups_die_once_wherever_the_server_is_killed() {
    let Some((_folder, library)) = library("kills.c") else { return };
    let points = std::env::var("EMBERDB_KILL_POINTS").unwrap_or_else(|_| "3".to_owned());
    let mut rng = Rng::new();
    let log = ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"];
    let run_once = |kill_at: i32| {
        let bare = Server::start(Kind::Ember { shards: 3 }, &log);
        let control = Control::of(&bare);
        let server = bare.restart_under(&library, &log);
        let is_up = || Client::connect(server.port()).is_ok() && server.info("loading").as_deref() == Some("0");
        assert!(wait_until(PATIENCE, is_up));
        control.kill_at(kill_at);
        let known = Mutex::new(BTreeMap::new());
        let port = server.port();
        let rewriting = thread::spawn(move || {
            let mut client = Client::connect(port).ok()?;
            thread::sleep(Duration::from_millis(40));
            ask(&mut client, "BGREWRITEAOF").ok()?;
            Some(())
        });
        make_some(port, "k", kill_at as u64, &known, 12);
        rewriting.join().expect("a thread");
        let is_rewritten = || {
            let Ok(mut client) = Client::connect(port) else { return true };
            ask(&mut client, "INFO persistence").map_or(true, |info| info.text().contains("aof_rewrite_in_progress:0"))
        };
        assert!(wait_until(PATIENCE, is_rewritten));
        let operations = control.operations();
        let server = server.restart(&[&log[..], &["--shards", "2"]].concat());
        assert!(wait_until(PATIENCE, || server.info("loading").as_deref() == Some("0")), "it is not loaded");
        check(&server, &known.into_inner().unwrap(), &format!("killed at {kill_at}"));
        operations
    };
    let operations = run_once(0);
    let mut all: Vec<i32> = (1..=operations).collect();
    if points != "all" {
        rng.shuffle(&mut all);
        all.truncate(points.parse().expect("EMBERDB_KILL_POINTS is a number, or all"));
    }
    println!("{operations} disk operations, killed at {all:?}");
    for kill_at in all {
        run_once(kill_at);
    }
}

#[test]
fn groups_die_whole_and_once_though_the_server_is_killed() {
    let rounds = std::env::var("EMBERDB_GROUP_CRASHES").map_or(2, |rounds| rounds.parse().expect("a number"));
    let seed: u64 =
        std::env::var("EMBERDB_CRASH_SEED").map_or_else(|_| Rng::new().u64(..), |seed| seed.parse().expect("a seed"));
    println!("EMBERDB_CRASH_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let log = ["--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes"];
    let mut server = Server::start(Kind::Ember { shards: 3 }, &log);
    let mut deaths = 0;
    for round in 0..rounds {
        let mut client = server.client();
        assert_eq!(client.call("FLUSHALL"), Value::ok());
        server.delay_shards([0, 200, 2_000][rng.usize(..3)]);
        let known = Mutex::new(BTreeMap::new());
        let (port, lasts) = (server.port(), Duration::from_millis(rng.u64(50..600)));
        let between = ["BGREWRITEAOF", "BGSAVE", "PING"][rng.usize(..3)];
        let seeds: Vec<u64> = (0..MAKERS + READERS).map(|_| rng.u64(..)).collect();
        thread::scope(|scope| {
            let known = &known;
            for (index, &seed) in seeds.iter().enumerate() {
                scope.spawn(move || match index < MAKERS {
                    true => make(port, &format!("{index}"), seed, known),
                    false => read(port, seed, known),
                });
            }
            thread::sleep(lasts / 2);
            server.client().call(between);
            thread::sleep(lasts / 2);
            server.signal("KILL");
        });
        let shards = rng.usize(1..5).to_string();
        let preamble = ["yes", "no"][rng.usize(..2)];
        server = server.restart(&[&log[..], &["--shards", &shards, "--aof-use-rdb-preamble", preamble]].concat());
        assert!(wait_until(PATIENCE, || server.info("loading").as_deref() == Some("0")), "it is not loaded");
        let known = known.into_inner().unwrap();
        let what = format!("seed {seed}, round {round}, {between}");
        deaths += check(&server, &known, &what);
    }
    println!("{rounds} crashes, {deaths} deaths");
}

/// The disk is full when groups die: they die whole and are told all the same, and the log has all of it when there is room again.
#[test]
fn groups_die_beside_a_full_disk() {
    const GROUPS: usize = 30;
    let log = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--enable-debug-command", "yes"];
    let Some(server) = Server::start_on_own_disk(Kind::Ember { shards: 3 }, &log, 8, None) else { return };
    let mut client = server.client();
    for group in 0..GROUPS {
        let (group, stream) = (format!("g:{group}"), format!("deaths:{}", group % STREAMS));
        let pairs: Vec<String> = keys_of(&group).iter().map(|key| format!("{key} v")).collect();
        for line in [
            format!("MSET {}", pairs.join(" ")),
            format!("EXPIRY GROUP ADD {group} {}", keys_of(&group).join(" ")),
            format!("EXPIRY GROUP EVENTS {group} {stream}"),
            format!("EXPIRY GROUP EXPIRE {group} 1500"),
        ] {
            assert!(!client.call(&line).is_error(), "{line}");
        }
    }
    let filler = server.own_disk().join("filler");
    // (As much as there is room for.)
    let _ = std::fs::write(&filler, vec![b'x'; 16 << 20]);
    let mut nth = 0;
    assert!(wait_until(PATIENCE, || {
        nth += 1;
        client.call(&format!("SET large:{} {}", nth % 50, "x".repeat(10_000))).text().starts_with("MISCONF")
    }));
    for group in 0..GROUPS {
        look(&mut client, &format!("g:{group}")).expect("an answer");
    }
    assert!(wait_until(PATIENCE, || told(&mut client).len() == GROUPS), "{}", told(&mut client).len());
    assert!(client.call("EXPIRY GROUP KILL g:0").text().starts_with("MISCONF"));
    std::fs::remove_file(&filler).expect("the filler");
    assert!(wait_until(PATIENCE, || client.call("SET room v") == Value::ok()));
    assert!(!client.call("DEBUG LOADAOF").is_error());
    let told = told(&mut client);
    assert_eq!(told.len(), GROUPS);
    let once = vec![("expired".to_owned(), KEYS.to_string())];
    assert!(told.values().all(|entries| *entries == once), "{told:?}");
    assert_eq!(client.call("EXISTS g:0:0 g:1:1 g:2:2"), Value::Int(0));
}
