//! The wall clock is set while a log is written: lifetimes go on as they were, also in what is read of the log later.

use super::disk::library;
use crate::common::{Client, Kind, Server, Value, wait_until};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
const HOUR_MS: i64 = 3_600_000;
const ON: [&str; 8] =
    ["--save", "", "--enable-debug-command", "yes", "--appendonly", "yes", "--appendfsync", "everysec"];

/// What the library is told.
pub struct Wall {
    file: File,
    ahead_ms: i64,
}

impl Wall {
    pub fn of(server: &Server) -> Wall {
        let path = server.folder().join("clock.ctl");
        let file = File::options().create(true).truncate(true).write(true).open(path).expect("a file");
        file.set_len(4096).expect("a length");
        Wall { file, ahead_ms: 0 }
    }

    pub fn set(&mut self, by_ms: i64) {
        self.ahead_ms += by_ms;
        self.file.write_all_at(&self.ahead_ms.to_ne_bytes(), 0).expect("a file");
    }

    /// Sets the clock, and waits until the log's manifest says so.
    fn step(&mut self, server: &Server, by_ms: i64) {
        let before = manifest(server);
        self.set(by_ms);
        let mut after = String::new();
        assert!(wait_until(PATIENCE, || {
            after = manifest(server);
            after != before
        }));
        assert!(self.ahead_ms == 0 || after.contains("#EMBER CLOCK "), "{after}");
    }
}

fn manifest(server: &Server) -> String {
    fs::read_to_string(server.folder().join("appendonlydir/appendonly.aof.manifest")).expect("a manifest")
}

/// How often the server has said that somebody set the clock.
fn seen(server: &Server) -> usize {
    server.output().matches("The clock was set by ").count()
}

fn rewrite(server: &Server, client: &mut Client, meanwhile: impl FnOnce()) {
    let rewrites = server.info("aof_rewrites");
    client.call("BGREWRITEAOF");
    meanwhile();
    assert!(wait_until(PATIENCE, || server.info("aof_rewrites") != rewrites));
}

fn ready(server: &Server) -> Client {
    let is_up = || server.info("loading").as_deref() == Some("0");
    assert!(wait_until(PATIENCE, || Client::connect(server.port()).is_ok() && is_up()));
    server.client()
}

fn give_lives(client: &mut Client, name: &str) {
    for line in [
        "SET lock:NAME o EX 1000",
        "HSETEX hash:NAME EX 1000 FIELDS 1 field value",
        "SADD set:NAME member",
        "EXPIRE set:NAME 1000",
    ] {
        let reply = client.call(&line.replace("NAME", name));
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
    let script = "return redis.call('SET', KEYS[1], 'x', 'PX', 1000000)";
    assert_eq!(client.command(&["EVAL", script, "1", &format!("script:{name}")]), Value::ok());
}

fn check(client: &mut Client, names: &[&str]) {
    for name in names {
        for key in ["lock", "set", "script"] {
            let ttl = client.call(&format!("TTL {key}:{name}")).number();
            // (A base says in seconds when it was begun.)
            assert!((800..=1001).contains(&ttl), "{key}:{name} lives for {ttl} s");
        }
        let Value::Array(ttl) = client.call(&format!("HTTL hash:{name} FIELDS 1 field")) else { panic!("no array") };
        assert!((800..=1001).contains(&ttl[0].number()), "a field of hash:{name} lives for {ttl:?} s");
    }
}

fn steps(library: &Path, preamble: &str) {
    let flags = [&ON[..], &["--aof-use-rdb-preamble", preamble]].concat();
    let bare = Server::start(Kind::Ember { shards: 2 }, &flags);
    let mut wall = Wall::of(&bare);
    let mut server = bare.restart_under(library, &flags);
    let mut client = ready(&server);
    give_lives(&mut client, "first");
    wall.step(&server, HOUR_MS);
    give_lives(&mut client, "second");
    check(&mut client, &["first", "second"]);
    server = server.restart_under(library, &flags);
    client = ready(&server);
    check(&mut client, &["first", "second"]);
    // A server that has read them writes on in the same file.
    give_lives(&mut client, "third");
    wall.step(&server, -5 * HOUR_MS);
    give_lives(&mut client, "fourth");
    rewrite(&server, &mut client, || {});
    give_lives(&mut client, "fifth");
    wall.step(&server, 2 * HOUR_MS);
    give_lives(&mut client, "sixth");
    let all = ["first", "second", "third", "fourth", "fifth", "sixth"];
    check(&mut client, &all);
    assert!(!client.call("DEBUG LOADAOF").is_error());
    check(&mut client, &all);
    server = server.restart_under(library, &flags);
    client = ready(&server);
    check(&mut client, &all);
}

/// A lock of 100 s was gone, or lived for another hour, where the clock was set before the server was killed.
#[test]
fn lifetimes_in_the_log_go_on_when_the_wall_clock_is_set() {
    let Some((_folder, library)) = library("clock.c") else { return };
    for preamble in ["yes", "no"] {
        steps(&library, preamble);
    }
}

/// A base that was begun before the server had seen the step was given the step twice, and one that was under way then was
/// never given it.
#[test]
fn a_base_says_the_time_in_which_it_was_begun() {
    let Some((_folder, library)) = library("clock.c") else { return };
    for preamble in ["yes", "no"] {
        let flags = [&ON[..], &["--aof-use-rdb-preamble", preamble]].concat();
        let bare = Server::start(Kind::Ember { shards: 2 }, &flags);
        let mut wall = Wall::of(&bare);
        let mut server = bare.restart_under(&library, &flags);
        let mut client = ready(&server);
        client.call("DEBUG POPULATE 200000 filler 100");
        give_lives(&mut client, "first");
        for (round, by_ms) in [HOUR_MS, -3 * HOUR_MS].into_iter().enumerate() {
            // Not seen yet.
            let before = seen(&server);
            wall.set(by_ms);
            rewrite(&server, &mut client, || {});
            give_lives(&mut client, "second");
            assert!(wait_until(PATIENCE, || seen(&server) > before), "round {round}");
            server = server.restart_under(&library, &flags);
            client = ready(&server);
            check(&mut client, &["first", "second"]);
            // While the base is written, as a rule.
            let before = seen(&server);
            rewrite(&server, &mut client, || {
                wall.set(by_ms);
                assert!(wait_until(PATIENCE, || seen(&server) > before), "round {round}");
            });
            server = server.restart_under(&library, &flags);
            client = ready(&server);
            check(&mut client, &["first", "second"]);
        }
    }
}

/// A machine without a battery begins in 1970, and knows the time when the network is there.
#[test]
fn a_clock_that_is_behind_at_the_start_is_not_believed() {
    let Some((_folder, library)) = library("clock.c") else { return };
    let bare = Server::start(Kind::Ember { shards: 2 }, &ON);
    let mut wall = Wall::of(&bare);
    let mut server = bare.restart_under(&library, &ON);
    let mut client = ready(&server);
    give_lives(&mut client, "first");
    rewrite(&server, &mut client, || {});
    give_lives(&mut client, "second");
    let days_ms = 20_000 * 24 * HOUR_MS;
    wall.set(-days_ms);
    server = server.restart_under(&library, &ON);
    client = ready(&server);
    assert!(server.output().contains("ms behind the moment at which the base"));
    check(&mut client, &["first", "second"]);
    give_lives(&mut client, "third");
    rewrite(&server, &mut client, || {});
    give_lives(&mut client, "fourth");
    wall.set(days_ms);
    let all = ["first", "second", "third", "fourth"];
    check(&mut client, &all);
    server = server.restart_under(&library, &ON);
    client = ready(&server);
    check(&mut client, &all);
}

#[test]
fn a_stream_that_a_client_restores_goes_on_too() {
    let Some((_folder, library)) = library("clock.c") else { return };
    let bare = Server::start(Kind::Ember { shards: 1 }, &ON);
    let mut wall = Wall::of(&bare);
    let server = bare.restart_under(&library, &ON);
    let mut client = ready(&server);
    for line in ["XADD from 1-1 field value", "XGROUP CREATE from group 0", "XREADGROUP GROUP group me STREAMS from >"]
    {
        assert!(!client.call(line).is_error(), "{line}");
    }
    wall.step(&server, -HOUR_MS);
    let payload = client.call("DUMP from").bytes().expect("a payload").to_vec();
    assert_eq!(client.command(&[&b"RESTORE"[..], b"to", b"0", &payload]), Value::ok());
    let server = server.restart_under(&library, &ON);
    let mut client = ready(&server);
    for key in ["from", "to"] {
        let pending = client.call(&format!("XPENDING {key} group - + 1"));
        let idle_ms = pending.items()[0].items()[2].number();
        assert!((0..600_000).contains(&idle_ms), "{key}: {idle_ms}");
    }
}
