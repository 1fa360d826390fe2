//! The disk of either side is full, or its clock is set: in the end both have the same.

use super::{PATIENCE, PRIMARY, field, settle, wait_for_link};
use crate::aof::disk::library;
use crate::common::{Client, Kind, Server, Value, int, wait_until};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const LOG: &[&str] = &["--save", "", "--appendonly", "yes", "--enable-debug-command", "yes"];

/// A disk without room: nothing of the data is given up for what cannot be had, and all goes on when there is room.
#[test]
fn a_disk_may_be_full_on_either_side() {
    let flags = ["--save", "", "--enable-debug-command", "yes", "--repl-diskless-load", "disabled"];
    let value = "x".repeat(10_000);
    let fill = |server: &Server| {
        let mut client = server.client();
        (0..2_000).for_each(|number| client.send(&format!("SET key:{number} {value}{number}")));
        (0..2_000).for_each(|_| assert_eq!(client.read(), Value::ok()));
    };
    let uncompressed = [PRIMARY, &["--rdbcompression", "no"]].concat();
    // The replica's.
    let primary = Server::start(Kind::Ember { shards: 2 }, &uncompressed);
    fill(&primary);
    let Some(replica) = Server::start_on_own_disk(Kind::Ember { shards: 3 }, &flags, 4, None) else { return };
    let mut client = replica.client();
    client.call("SET mine 1");
    client.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    assert!(wait_until(PATIENCE, || replica.output().contains("No space left on device")), "{}", replica.output());
    assert_eq!(client.call("GET mine").text(), "1");
    replica.remount_own_disk("size=100m");
    wait_for_link(&replica);
    settle(&primary, &replica);
    // The primary's, which makes a file of the snapshot.
    let more = [&uncompressed[..], &["--repl-diskless-sync", "no", "--save", ""]].concat();
    let Some(primary) = Server::start_on_own_disk(Kind::Ember { shards: 2 }, &more, 4, None) else { return };
    fill(&primary);
    let replica = Server::start(Kind::Ember { shards: 3 }, &[]);
    let mut client = replica.client();
    client.call("SET mine 1");
    client.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    assert!(wait_until(PATIENCE, || primary.output().contains("No space left on device")), "{}", primary.output());
    assert_eq!((client.call("GET mine").text(), primary.client().call("SET a 1").text()), ("1".into(), "OK".into()));
    primary.remount_own_disk("size=100m");
    wait_for_link(&replica);
    settle(&primary, &replica);
    // The log of a replica cannot be written: what its primary says is done all the same, and the log goes on later.
    let primary = Server::start(Kind::Ember { shards: 2 }, &uncompressed);
    let of = format!("127.0.0.1 {}", primary.port());
    let of = [LOG, &["--replicaof", &of]].concat();
    let Some(replica) = Server::start_on_own_disk(Kind::Ember { shards: 3 }, &of, 4, None) else { return };
    wait_for_link(&replica);
    fill(&primary);
    assert!(wait_until(PATIENCE, || replica.output().contains("No space left on device")), "{}", replica.output());
    settle(&primary, &replica);
    replica.remount_own_disk("size=200m");
    assert!(wait_until(PATIENCE, || field(&replica, "aof_last_write_status") == "ok"), "{}", replica.output());
    primary.client().call("SET last 1");
    settle(&primary, &replica);
}

/// A file by which a library is told something.
fn control(server: &Server, name: &str) -> File {
    let path = server.folder().join(name);
    let file = File::options().create(true).truncate(true).read(true).write(true).open(path).expect("a file");
    file.set_len(4096).expect("a length");
    file
}

fn step(wall: &File, by_ms: i64) {
    wall.write_all_at(&by_ms.to_ne_bytes(), 0).expect("a file");
}

fn start_under(library: &Path, shards: usize, flags: &[&str]) -> (Server, File) {
    let bare = Server::start(Kind::Ember { shards }, flags);
    let wall = control(&bare, "clock.ctl");
    let server = bare.restart_under(library, flags);
    let answers = || Client::connect(server.port()).is_ok_and(|mut client| client.call("PING").text() == "PONG");
    assert!(wait_until(PATIENCE, answers));
    (server, wall)
}

/// The clock of one side is set by an hour, either way: no key is lost for that, none lives on, and a full sync under it ends equal.
#[test]
fn a_clock_may_be_set_on_either_side() {
    let Some((_folder, library)) = library("clock.c") else { return };
    const HOUR_MS: i64 = 3_600_000;
    for sets_primary in [false, true] {
        for by_ms in [HOUR_MS, -HOUR_MS] {
            let (primary, of_primary) = start_under(&library, 2, &[PRIMARY, &["--shards", "2"]].concat());
            let of = format!("127.0.0.1 {}", primary.port());
            let (replica, of_replica) = start_under(&library, 3, &["--shards", "3", "--replicaof", &of]);
            wait_for_link(&replica);
            let (mut client, mut other) = (primary.client(), replica.client());
            let give = |client: &mut Client, name: &str| {
                client.call(&format!("SET {name}:short 1 PX 300"));
                client.call(&format!("SET {name}:long 1 EX 1000"));
                client.call(&format!("SET {name}:day 1 EX 86400"));
                client.call(&format!("SET {name}:ever 1"));
                assert_eq!(client.call("WAIT 1 10000"), int(1));
            };
            give(&mut client, "before");
            step(if sets_primary { &of_primary } else { &of_replica }, by_ms);
            give(&mut client, "behind");
            // Seen by whoever looks once a second.
            std::thread::sleep(Duration::from_millis(1500));
            give(&mut client, "later");
            assert!(wait_until(PATIENCE, || client.call("DBSIZE") == int(9)), "{:?}", client.call("KEYS *"));
            // Where the replica's clock is ahead of the primary's it hides what the primary says to die within that hour.
            let is_ahead = sets_primary == (by_ms < 0);
            let shows = |other: &mut Client, hidden: i64| {
                let all = || if is_ahead { int(9 - hidden) } else { int(9) };
                let keys = "return #redis.call('KEYS', '*')";
                let is_so = wait_until(PATIENCE, || other.command(&["EVAL_RO", keys, "0"]) == all());
                assert!(is_so, "{sets_primary} {by_ms}: {:?}", other.call("KEYS *"));
            };
            shows(&mut other, 2);
            for name in ["before", "behind", "later"] {
                assert_eq!(
                    other.call(&format!("EXISTS {name}:short {name}:day {name}:ever")),
                    int(2),
                    "{sets_primary} {by_ms}"
                );
            }
            // Another replica, and one whose clock goes wrong, get a snapshot now.
            other.call("REPLICAOF NO ONE");
            other.call("FLUSHALL");
            other.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
            wait_for_link(&replica);
            shows(&mut other, 3);
            assert_eq!(client.call("EXISTS before:day behind:day later:day later:ever"), int(4));
        }
    }
}
