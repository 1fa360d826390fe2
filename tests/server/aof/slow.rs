//! A disk that takes half a second for a write, or hangs, under `everysec`: no shard waits for it. Replies and deaths go on, what
//! waits is bounded, and when the disk comes back everything is there.

use super::kills::library;
use crate::common::{Client, Kind, Server, Value, int, wait_until};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const FLAGS: [&str; 6] = ["--save", "", "--appendfsync", "everysec", "--notify-keyspace-events", "Ex"];
const SHARDS: [usize; 2] = [1, 3];
const PATIENCE: Duration = Duration::from_secs(20);
const KEYS: usize = 100;

struct Disk(File);

impl Disk {
    fn of(server: &Server) -> Disk {
        let path = server.folder().join("slow.ctl");
        let file = File::options().create(true).truncate(true).read(true).write(true).open(path).expect("a file");
        file.set_len(4).expect("a length");
        Disk(file)
    }

    /// How long each operation lasts from now on; below 0: without an end.
    fn set_delay(&self, ms: i32) {
        self.0.write_all_at(&ms.to_ne_bytes(), 0).expect("a file");
    }
}

/// A server with a log on such a disk.
fn start(shards: usize, more: &[&str]) -> Option<(Server, Disk)> {
    let (_folder, library) = library("slow.c")?;
    let flags = [&FLAGS[..], more].concat();
    // (What the library is told stands in the server's folder, which there is once it has run there.)
    let server = Server::start(Kind::Ember { shards }, &flags);
    let disk = Disk::of(&server);
    let server = server.restart_under(&library, &[&flags[..], &["--appendonly", "yes"]].concat());
    let answers = || Client::connect(server.port()).is_ok_and(|mut client| client.call("PING").text() == "PONG");
    assert!(wait_until(PATIENCE, answers));
    Some((server, disk))
}

fn set(client: &mut Client, name: &str) {
    assert_eq!(client.call(&format!("SET {name} {name}")), Value::ok());
    assert_eq!(client.call(&format!("GET {name}")).text(), name);
}

/// So many keys die, and each is told.
fn die(server: &Server, name: &str) {
    let (mut listener, mut client) = (server.client(), server.client());
    listener.call("SUBSCRIBE __keyevent@0__:expired");
    for number in 0..KEYS {
        assert_eq!(client.call(&format!("SET {name}{number} x PX 30")), Value::ok());
    }
    let mut seen = 0;
    assert!(wait_until(PATIENCE, || {
        seen += listener.drain(Duration::from_millis(5)).len();
        seen == KEYS
    }));
}

/// Each write lasts half a second: so would each reply, were one of them to wait.
#[test]
fn a_slow_disk_holds_nobody_up() {
    for shards in SHARDS {
        let Some((server, disk)) = start(shards, &[]) else { return };
        let mut client = server.client();
        set(&mut client, "first");
        disk.set_delay(500);
        let began = Instant::now();
        (0..KEYS).for_each(|number| set(&mut client, &format!("key{number}")));
        die(&server, "dying");
        let lasted = began.elapsed();
        assert!(lasted < Duration::from_secs(10), "{lasted:?}");
        assert!(wait_until(PATIENCE, || server.info("aof_slow_writes").is_some_and(|count| count != "0")));
        disk.set_delay(0);
        // (What a slow disk had not yet taken when its reply left would be lost with the process.)
        assert_eq!(client.call("WAITAOF 1 0 20000").items()[0], int(1));
        let server = server.restart(&[&FLAGS[..], &["--appendonly", "yes"]].concat());
        assert_eq!(server.client().call("DBSIZE"), int(1 + KEYS as i64), "{shards}");
    }
}

#[test]
fn a_disk_that_hangs_holds_nobody_up_until_too_much_waits() {
    for shards in SHARDS {
        let Some((server, disk)) = start(shards, &["--aof-buffer-limit", "1mb"]) else { return };
        let (mut client, mut large) = (server.client(), server.client());
        set(&mut client, "first");
        disk.set_delay(-1);
        (0..KEYS).for_each(|number| set(&mut client, &format!("key{number}")));
        die(&server, "dying");
        // A rewrite begins another file, of which no shard waits for the end of the first.
        assert!(!client.call("BGREWRITEAOF").is_error());
        die(&server, "again");
        set(&mut client, "second");
        let value = "x".repeat(100_000);
        let refused = |reply: &Value| matches!(reply, Value::Error(text) if text.starts_with("MISCONF"));
        let mut written = 0;
        assert!(wait_until(PATIENCE, || {
            let reply = large.call(&format!("SET large{written} {value}"));
            written += usize::from(!refused(&reply));
            refused(&reply)
        }));
        assert!(written < 100, "what waits is bounded: {written}");
        assert_eq!(client.call("GET second").text(), "second");
        disk.set_delay(0);
        assert!(wait_until(PATIENCE, || client.call("SET third third") == Value::ok()));
        assert_eq!(server.info("aof_last_write_status").as_deref(), Some("ok"));
        let keys = client.call("DBSIZE");
        assert_eq!(client.call("WAITAOF 1 0 20000").items()[0], int(1));
        let server = server.restart(&[&FLAGS[..], &["--appendonly", "yes"]].concat());
        assert_eq!(server.client().call("DBSIZE"), keys, "{shards}");
    }
}
