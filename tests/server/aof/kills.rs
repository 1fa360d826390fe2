//! A server is killed before its nth disk operation, in each procedure that changes which files make the log: it starts again,
//! and has every write that was acknowledged while the log was on; and so once more, when it has gone on and was killed again.
//! In half of the cases the machine loses its power in that moment: then that holds under `always`, and under `everysec` for
//! what was on the disk before.
//!
//! A sample of the operations is tried; `EMBERDB_KILL_POINTS` says of how many a procedure (`all`: of each), and
//! `EMBERDB_KILL_SEED` repeats it.

use super::disk::{Disk, Platters, library};
use crate::common::{Client, Kind, Server, Value, encode, wait_until, words};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const OFF: [&str; 6] = ["--save", "", "--enable-debug-command", "yes", "--appendfsync", "everysec"];
const ON: [&str; 8] =
    ["--save", "", "--enable-debug-command", "yes", "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"];
/// Keys that nobody says to be there before the log has them.
const CROWD: i64 = 20_000;

/// A client of a server that may be killed at any moment.
struct Run {
    server: Server,
    disk: Disk,
    kill_at: i32,
    client: Option<Client>,
    /// What is to be there.
    acknowledged: BTreeMap<String, String>,
    keys: usize,
    /// At least so many keys are to be there.
    crowd: i64,
}

impl Run {
    /// What a server says, unless it was killed.
    fn call(&mut self, line: &str) -> Option<Value> {
        let client = self.client.as_mut()?;
        let reply = client.try_send_raw(&encode(&words(line))).and_then(|()| client.try_read());
        if reply.is_err() {
            self.client = None;
        }
        reply.ok()
    }

    fn field(&mut self, name: &str) -> Option<String> {
        let text = self.call("INFO persistence")?.text();
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(|value| value.trim().to_owned()))
    }

    /// Waits until a field says so, or the server is killed; whether it does.
    fn until(&mut self, name: &str, value: &str) -> bool {
        let mut found = None;
        let is_over = wait_until(PATIENCE, || {
            found = self.field(name);
            found.as_deref().is_none_or(|found| found == value)
        });
        assert!(is_over, "{name} is {found:?}, not {value}");
        found.is_some()
    }

    /// Connects when the server is up, unless it was killed.
    fn connect(&mut self) {
        let port = self.server.port();
        assert!(wait_until(PATIENCE, || {
            self.client = Client::connect(port).ok();
            self.client.is_some() || self.server.has_ended()
        }));
        self.until("loading", "0");
    }

    /// Writes keys; while the log is on those that are acknowledged are to stay.
    fn write(&mut self, keys: usize, is_logged: bool) {
        for _ in 0..keys {
            self.keys += 1;
            let (key, value) = (format!("key:{}", self.keys), format!("value:{}", self.keys));
            match self.call(&format!("SET {key} {value}")) {
                Some(reply) if is_logged => {
                    assert_eq!(reply, Value::ok());
                    self.acknowledged.insert(key, value);
                }
                Some(_) => {}
                None => return,
            }
        }
    }

    /// The log is turned on, and is on where the server lives.
    fn turn_on(&mut self) {
        let before = self.field("aof_rewrites").and_then(|count| count.parse::<u64>().ok());
        self.call("CONFIG SET appendonly yes");
        let Some(before) = before else { return };
        assert!(wait_until(PATIENCE, || {
            let count = self.field("aof_rewrites").and_then(|count| count.parse::<u64>().ok());
            count.is_none_or(|count| count > before)
        }));
        self.until("aof_enabled", "1");
    }

    fn rewrite(&mut self) {
        let Some(reply) = self.call("BGREWRITEAOF") else { return };
        assert!(!reply.is_error(), "{reply:?}");
        self.until("aof_rewrite_in_progress", "0");
    }

    fn arm(&mut self) {
        self.disk.kill_at(self.kill_at);
    }

    /// What a log says is older then than what there is.
    fn arm_with_a_log_that_has_ended(&mut self) {
        self.write(5, true);
        self.call("CONFIG SET appendonly no");
        self.write(5, false);
        self.arm();
    }
}

/// How a folder is made ready, by a server without a log; how one under the library is started in it, and what it is asked.
struct Procedure {
    prepare: fn(&Server) -> BTreeMap<String, String>,
    flags: &'static [&'static str],
    /// It may be killed from its start on; else when `ask` arms that.
    from_start: bool,
    ask: fn(&mut Run),
}

fn nothing(_: &Server) -> BTreeMap<String, String> {
    BTreeMap::new()
}

fn pairs(names: &str) -> BTreeMap<String, String> {
    names.split(' ').map(|name| (name.to_owned(), format!("of {name}"))).collect()
}

fn commands(pairs: &BTreeMap<String, String>) -> Vec<u8> {
    let mut bytes = encode(&words("SELECT 0"));
    pairs.iter().for_each(|(key, value)| bytes.extend(encode(&["SET", key, value])));
    bytes
}

fn check(run: &Server, acknowledged: &BTreeMap<String, String>, crowd: i64, what: &str) {
    let mut client = run.client();
    for (key, value) in acknowledged {
        assert_eq!(client.command(&["GET", key]), crate::common::bulk(value), "{what}: {key}");
    }
    let count = client.call("DBSIZE").number();
    assert!(count >= crowd, "{what}: {count} keys, not {crowd}");
}

/// Runs a procedure once; how many disk operations it had. With `power` the machine loses its power where the process ends.
fn run_once(library: &Path, procedure: &Procedure, fsync: &str, kill_at: i32, power: Option<&mut Rng>) -> i32 {
    let what = format!("killed at {kill_at} under {fsync}, power {}", if power.is_some() { "cut" } else { "on" });
    let bare = Server::start(Kind::Ember { shards: 2 }, &OFF);
    let prepared = (procedure.prepare)(&bare);
    let disk = Disk::of(&bare);
    let mut platters = Platters::of(bare.folder());
    Platters::note(bare.folder());
    if procedure.from_start {
        disk.kill_at(kill_at);
    }
    let flags = [procedure.flags, &["--appendfsync", fsync]].concat();
    let server = bare.restart_under(library, &flags);
    let acknowledged = prepared.clone();
    let mut run = Run { server, disk, kill_at, client: None, acknowledged, keys: 0, crowd: 0 };
    run.connect();
    (procedure.ask)(&mut run);
    let Run { mut server, disk, mut acknowledged, mut crowd, .. } = run;
    let operations = disk.operations();
    if let Some(rng) = power {
        // (Nobody can send a signal to a server that has ended and been waited for, as one that never listened was.)
        if !server.has_ended() {
            server.signal("KILL");
        }
        assert!(wait_until(PATIENCE, || server.has_ended()), "{what}");
        platters.read(server.folder());
        platters.cut_power(server.folder(), rng);
        if fsync != "always" {
            // No more was promised.
            (acknowledged, crowd) = (prepared, 0);
        }
    }
    for round in 0..2 {
        server = server.restart(&[&ON[..], &["--appendfsync", fsync]].concat());
        assert!(wait_until(PATIENCE, || server.info("loading").as_deref() == Some("0")), "{what}");
        check(&server, &acknowledged, crowd, &what);
        let (key, value) = (format!("again:{round}"), round.to_string());
        assert_eq!(server.client().command(&["SET", &key, &value]), Value::ok());
        acknowledged.insert(key, value);
    }
    server = server.restart(&ON);
    assert!(wait_until(PATIENCE, || server.info("loading").as_deref() == Some("0")), "{what}");
    check(&server, &acknowledged, crowd, &what);
    operations
}

fn try_all(procedure: &Procedure) {
    let Some((_folder, library)) = library("disk.c") else { return };
    let seed = std::env::var("EMBERDB_KILL_SEED")
        .map_or_else(|_| Rng::new().u64(..), |seed| seed.parse().expect("EMBERDB_KILL_SEED is a number"));
    let points = std::env::var("EMBERDB_KILL_POINTS").unwrap_or_else(|_| "3".to_owned());
    println!("EMBERDB_KILL_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    for fsync in ["always", "everysec"] {
        let operations = run_once(&library, procedure, fsync, 0, None);
        let mut all: Vec<i32> = (1..=operations).collect();
        if points != "all" {
            rng.shuffle(&mut all);
            all.truncate(points.parse().expect("EMBERDB_KILL_POINTS is a number, or all"));
        }
        println!("{operations} disk operations under {fsync}, killed at {all:?}");
        for kill_at in all {
            let ends: &[bool] = match points.as_str() {
                "all" => &[false, true],
                _ => &[rng.bool()],
            };
            for cuts_power in ends {
                run_once(&library, procedure, fsync, kill_at, cuts_power.then_some(&mut rng));
            }
        }
    }
}

#[test]
fn the_first_start() {
    let prepare = |server: &Server| {
        let pairs = pairs("one two three");
        let mut client = server.client();
        pairs.iter().for_each(|(key, value)| assert_eq!(client.command(&["SET", key, value]), Value::ok()));
        assert_eq!(client.call("SAVE"), Value::ok());
        pairs
    };
    try_all(&Procedure { prepare, flags: &ON, from_start: true, ask: |run| run.write(10, true) });
}

#[test]
fn the_start_behind_a_log_of_redis() {
    let prepare = |server: &Server| {
        let folder = server.folder().join("appendonlydir");
        fs::create_dir(&folder).expect("a folder");
        let (base, increment) = (pairs("one two three"), pairs("four five"));
        fs::write(folder.join("appendonly.aof.1.base.aof"), commands(&base)).expect("a file");
        fs::write(folder.join("appendonly.aof.1.incr.aof"), commands(&increment)).expect("a file");
        let manifest = "file appendonly.aof.1.base.aof seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n";
        fs::write(folder.join("appendonly.aof.manifest"), manifest).expect("a file");
        base.into_iter().chain(increment).collect()
    };
    try_all(&Procedure { prepare, flags: &ON, from_start: true, ask: |run| run.write(10, true) });
}

#[test]
fn the_start_over_an_old_single_file() {
    let prepare = |server: &Server| {
        let pairs = pairs("one two three");
        fs::write(server.folder().join("appendonly.aof"), commands(&pairs)).expect("a file");
        pairs
    };
    try_all(&Procedure { prepare, flags: &ON, from_start: true, ask: |run| run.write(10, true) });
}

#[test]
fn rewrites() {
    let ask = |run: &mut Run| {
        run.write(20, true);
        run.arm();
        for _ in 0..2 {
            run.call("BGREWRITEAOF");
            run.write(20, true);
            run.until("aof_rewrite_in_progress", "0");
            run.write(3, true);
        }
    };
    try_all(&Procedure { prepare: nothing, flags: &ON, from_start: false, ask });
}

#[test]
fn turning_it_on_and_off() {
    let ask = |run: &mut Run| {
        run.arm_with_a_log_that_has_ended();
        for _ in 0..2 {
            run.turn_on();
            run.write(5, true);
            run.call("CONFIG SET appendonly no");
            run.write(5, false);
        }
        run.turn_on();
        run.write(5, true);
    };
    try_all(&Procedure { prepare: nothing, flags: &ON, from_start: false, ask });
}

#[test]
fn rewrites_while_it_is_off() {
    let ask = |run: &mut Run| {
        run.arm_with_a_log_that_has_ended();
        for _ in 0..2 {
            run.rewrite();
            run.write(5, false);
        }
        run.turn_on();
        run.write(5, true);
        run.rewrite();
    };
    try_all(&Procedure { prepare: nothing, flags: &ON, from_start: false, ask });
}

/// What is emptied meanwhile makes it begin anew.
#[test]
fn turning_it_on_while_databases_are_emptied() {
    let ask = |run: &mut Run| {
        run.call(&format!("DEBUG POPULATE {CROWD}"));
        run.arm();
        run.call("CONFIG SET appendonly yes");
        for _ in 0..3 {
            for line in ["SELECT 5", "SET some 1", "FLUSHDB", "SELECT 0"] {
                run.call(line);
            }
        }
        run.until("aof_enabled", "1");
        run.until("aof_rewrite_in_progress", "0");
        if run.field("aof_last_bgrewrite_status").as_deref() == Some("ok") {
            run.crowd = CROWD;
            run.write(5, true);
        }
    };
    try_all(&Procedure { prepare: nothing, flags: &OFF, from_start: false, ask });
}
