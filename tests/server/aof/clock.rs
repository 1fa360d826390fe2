//! The wall clock is set while a log is written: lifetimes go on as they were, also in what is read of the log later.

use super::kills::library;
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
struct Wall {
    file: File,
    ahead_ms: i64,
}

impl Wall {
    fn of(server: &Server) -> Wall {
        let path = server.folder().join("clock.ctl");
        let file = File::options().create(true).truncate(true).write(true).open(path).expect("a file");
        file.set_len(4096).expect("a length");
        Wall { file, ahead_ms: 0 }
    }

    /// Sets the clock, and waits until the log's manifest says so.
    fn step(&mut self, server: &Server, by_ms: i64) {
        let manifest = || fs::read_to_string(server.folder().join("appendonlydir/appendonly.aof.manifest"));
        let before = manifest().expect("a manifest");
        self.ahead_ms += by_ms;
        self.file.write_all_at(&self.ahead_ms.to_ne_bytes(), 0).expect("a file");
        let mut after = String::new();
        assert!(wait_until(PATIENCE, || {
            after = manifest().expect("a manifest");
            after != before
        }));
        assert!(self.ahead_ms == 0 || after.contains("#EMBER CLOCK "), "{after}");
    }
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
            assert!((800..=1000).contains(&ttl), "{key}:{name} lives for {ttl} s");
        }
        let Value::Array(ttl) = client.call(&format!("HTTL hash:{name} FIELDS 1 field")) else { panic!("no array") };
        assert!((800..=1000).contains(&ttl[0].number()), "a field of hash:{name} lives for {ttl:?} s");
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
    let rewrites = server.info("aof_rewrites");
    client.call("BGREWRITEAOF");
    assert!(wait_until(PATIENCE, || server.info("aof_rewrites") != rewrites));
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
