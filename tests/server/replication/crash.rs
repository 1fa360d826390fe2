//! Servers with a log that are killed, or whose log is torn: they go on in the stream where their data are, and nowhere else.

use super::{PATIENCE, PRIMARY, field, replica_of, seed, settle, wait_for, wait_for_link};
use crate::common::{Client, Kind, Server, bulk, encode, have_tool, int, wait_until};
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

const LARGE: &[&str] = &["--repl-backlog-size", "100mb"];
const LOG: &[&str] = &["--save", "", "--appendonly", "yes", "--enable-debug-command", "yes"];
const KILLS: usize = 6;

/// Changes none of which may be done twice, or left out: on one shard, on several at once, by scripts, in several databases.
fn write_until(primary: &Server, seed: u64, is_over: &AtomicBool) {
    let (mut client, mut rng) = (primary.client(), fastrand::Rng::with_seed(seed));
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        let lines: Vec<String> = (0..50)
            .flat_map(|_| {
                number += 1;
                let (a, b, n) = (rng.u32(..50), rng.u32(..50), number);
                match rng.u32(..8) {
                    0 => vec!["MULTI".into(), format!("INCR n:{a}"), format!("INCR n:{b}"), "EXEC".into()],
                    1 => vec![format!("RPUSH list:{a} {n}")],
                    2 => vec![format!("APPEND text:{a} {n},")],
                    3 => vec![format!("RENAME list:{a} list:{b}")],
                    4 => vec![format!("LMOVE list:{a} list:{b} LEFT RIGHT")],
                    5 => vec![format!("SELECT {}", a % 3)],
                    6 => vec![format!("PUBLISH channel {n}")],
                    _ => vec![format!("INCR n:{a}")],
                }
            })
            .collect();
        lines.iter().for_each(|line| client.send(line));
        lines.iter().for_each(|_| drop(client.read()));
        let script = "redis.call('INCR', KEYS[1]); redis.call('RPUSH', KEYS[2], ARGV[1])";
        client.command(&["EVAL", script, "2", "n:1", "list:2", &number.to_string()]);
    }
}

fn log_of(server: &Server) -> PathBuf {
    let folder = fs::read_dir(server.folder().join("appendonlydir")).expect("a log").flatten();
    let mut files: Vec<PathBuf> = folder.map(|file| file.path()).collect();
    files.retain(|path| path.to_string_lossy().ends_with(".incr.aof"));
    files.sort_by_key(|path| path.to_string_lossy().len().to_string() + &path.to_string_lossy());
    files.pop().expect("an increment")
}

fn wait_for_log(server: &Server) {
    let has_base = || field(server, "aof_enabled") == "1" && field(server, "aof_rewrite_in_progress") == "0";
    assert!(wait_until(PATIENCE, has_base), "{}", server.output());
}

/// What is said without a change, such as that somebody waits, the log has within a second or two.
fn wait_until_log_knows(primary: &Server) {
    let has_all = || {
        let offset = field(primary, "master_repl_offset");
        let log = fs::read(log_of(primary)).expect("the log");
        let log = String::from_utf8_lossy(&log).into_owned();
        let line = log.lines().rfind(|line| line.starts_with("#EMBERDB ")).expect("a head").to_owned();
        line.contains(&format!("%00{offset}%00"))
    };
    assert!(wait_until(PATIENCE, has_all), "{}", field(primary, "master_repl_offset"));
}

/// A replica needed a snapshot after each restart, however short, where it had a log and no snapshot of its own.
#[test]
fn a_replica_that_is_killed_goes_on_where_its_log_ends() {
    if !have_tool("redis-server") {
        return;
    }
    let seed = seed();
    for (shards, kind, sync) in
        [(3, Kind::Ember { shards: 2 }, "everysec"), (1, Kind::Ember { shards: 3 }, "always"), (3, Kind::Redis, "no")]
    {
        let primary = Server::start(kind, &[if kind.is_ember() { PRIMARY } else { &PRIMARY[..2] }, LARGE].concat());
        let flags = [LOG, &["--appendfsync", sync][..]].concat();
        let mut replica = replica_of(&primary, Kind::Ember { shards }, &flags);
        wait_for_link(&replica);
        wait_for_log(&replica);
        let (of, shards) = (format!("127.0.0.1 {}", primary.port()), shards.to_string());
        let again = [&flags[..], &["--shards", &shards, "--replicaof", &of]].concat();
        let is_over = AtomicBool::new(false);
        let mut rng = fastrand::Rng::with_seed(seed);
        replica = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|nth| {
                    scope.spawn({
                        let (p, o) = (&primary, &is_over);
                        move || write_until(p, seed ^ nth, o)
                    })
                })
                .collect();
            for number in 1..=KILLS {
                std::thread::sleep(std::time::Duration::from_millis(rng.u64(..300)));
                if rng.bool() {
                    replica.client().call("BGREWRITEAOF");
                }
                replica = replica.restart(&again);
                wait_for(&primary, "sync_partial_ok", &number.to_string());
                wait_for_link(&replica);
            }
            is_over.store(true, Ordering::Relaxed);
            writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
            replica
        });
        // (Writers that nobody held up may be a million commands ahead on a slow machine.)
        let offset = |server: &Server| field(server, "master_repl_offset");
        assert!(wait_until(6 * PATIENCE, || offset(&replica) == offset(&primary)), "{}", replica.output());
        settle(&primary, &replica);
        assert_eq!(field(&primary, "sync_full"), "1", "{}", replica.output());
        assert!(!replica.output().contains("CRITICAL"), "{}", replica.output());
    }
}

/// Whatever a crash of the machine takes away of the end of the log, the stream goes on behind what is left.
#[test]
fn a_replica_whose_log_is_torn_goes_on_before_that() {
    let mut rng = fastrand::Rng::with_seed(seed());
    let primary = Server::start(Kind::Ember { shards: 2 }, &[PRIMARY, LARGE].concat());
    let mut replica = replica_of(&primary, Kind::Ember { shards: 3 }, LOG);
    wait_for_link(&replica);
    wait_for_log(&replica);
    let of = format!("127.0.0.1 {}", primary.port());
    let again = [LOG, &["--shards", "3", "--replicaof", &of]].concat();
    for number in 1..=KILLS {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| write_until(&primary, rng.u64(..), &is_over));
            std::thread::sleep(std::time::Duration::from_millis(100));
            is_over.store(true, Ordering::Relaxed);
        });
        replica.signal("KILL");
        assert!(replica.wait_for_end(PATIENCE).is_some());
        let file = File::options().write(true).open(log_of(&replica)).expect("the log");
        let bytes = file.metadata().expect("a length").len();
        file.set_len(bytes - rng.u64(..bytes.min(20_000))).expect("it is cut");
        replica = replica.restart(&again);
        wait_for_link(&replica);
        settle(&primary, &replica);
        let (whole, partial) = (field(&primary, "sync_full"), field(&primary, "sync_partial_ok"));
        assert_eq!((whole, partial), ("1".to_owned(), number.to_string()), "{}", replica.output());
    }
}

/// A primary that was killed knows where its data are in the stream: who has the same goes on, who has more does not.
#[test]
fn replicas_go_on_behind_a_crash_of_the_primary() {
    if !have_tool("redis-server") {
        return;
    }
    for (shards, kind) in [(1, Kind::Ember { shards: 2 }), (3, Kind::Redis)] {
        let count = shards.to_string();
        // (A ping that the log does not have yet would take the replica past the log.)
        let flags = [PRIMARY, LOG, &["--repl-ping-replica-period", "3600", "--shards", &count]].concat();
        let primary = Server::start(Kind::Ember { shards }, &flags);
        let replica = replica_of(&primary, kind, &[]);
        wait_for_link(&replica);
        let mut client = primary.client();
        for number in 0..100 {
            client.call("MULTI");
            client.call("SELECT 3");
            client.call(&format!("RPUSH list:{number} a"));
            client.call("INCR n");
            client.call("EXEC");
        }
        assert_eq!(client.call("WAIT 1 10000"), int(1));
        wait_until_log_knows(&primary);
        let primary = primary.restart(&flags);
        wait_for_link(&replica);
        let mut client = primary.client();
        client.call("INCR n");
        settle(&primary, &replica);
        assert_eq!((field(&primary, "sync_full"), field(&primary, "sync_partial_ok")), ("0".into(), "1".into()));
        // Its log has lost what the replica has.
        assert_eq!(client.call("WAIT 1 10000"), int(1));
        let log = log_of(&primary);
        let mut primary = primary;
        primary.signal("KILL");
        assert!(primary.wait_for_end(PATIENCE).is_some());
        let file = File::options().write(true).open(log).expect("the log");
        let bytes = file.metadata().expect("a length").len();
        file.set_len(bytes - 200).expect("it is cut");
        let primary = primary.restart(&flags);
        wait_for_link(&replica);
        primary.client().call("RPUSH other x");
        settle(&primary, &replica);
        assert_eq!(field(&primary, "sync_full"), "1");
    }
}

/// A primary that came back said nothing of deadlines of fields until it knew who its replicas are, and when it was killed again
/// nobody remembered that; who came for a snapshot meanwhile got one without them.
#[test]
fn deadlines_of_fields_survive_crashes_of_the_primary() {
    for shards in [1, 3] {
        let count = shards.to_string();
        let flags = [PRIMARY, LOG, &["--repl-ping-replica-period", "3600", "--shards", &count]].concat();
        let mut primary = Server::start(Kind::Ember { shards }, &flags);
        let replica = replica_of(&primary, Kind::Ember { shards: 2 }, &[]);
        wait_for_link(&replica);
        let live = |server: &Server, key: &str| {
            let left = server.client().call(&format!("HTTL {key} FIELDS 2 a b"));
            assert!(left.items().iter().all(|left| left.number() > 500), "{key}: {left:?}");
        };
        for round in 0..2 {
            let mut client = primary.client();
            client.call(&format!("HSET h:{round} a 1 b 1 c 1"));
            client.call(&format!("HEXPIRE h:{round} 1000 FIELDS 1 a"));
            assert_eq!(client.call("WAIT 1 10000"), int(1));
            wait_until_log_knows(&primary);
            primary = primary.restart(&flags);
            primary.client().call(&format!("HEXPIRE h:{round} 1000 FIELDS 1 b"));
            wait_for_link(&replica);
            settle(&primary, &replica);
            (0..=round).for_each(|round| live(&replica, &format!("h:{round}")));
            assert_eq!((field(&primary, "sync_full"), field(&primary, "sync_partial_ok")), ("0".into(), "1".into()));
        }
        wait_until_log_knows(&primary);
        primary = primary.restart(&flags);
        let late = replica_of(&primary, Kind::Ember { shards: 3 }, &[]);
        wait_for_link(&late);
        settle(&primary, &late);
        live(&late, "h:1");
        assert_eq!(field(&primary, "sync_full"), "1");
    }
}

/// What a replica has written to its log is its primary's, and after a promotion its own.
#[test]
fn a_promoted_replica_that_is_killed_knows_what_it_has() {
    let primary = Server::start(Kind::Ember { shards: 2 }, PRIMARY);
    let promoted = replica_of(&primary, Kind::Ember { shards: 3 }, LOG);
    let other = replica_of(&promoted, Kind::Ember { shards: 2 }, &[]);
    wait_for_link(&promoted);
    wait_for_link(&other);
    wait_for_log(&promoted);
    let mut client = primary.client();
    client.call("INCR n");
    assert!(wait_until(PATIENCE, || other.client().call("GET n") == bulk("1")));
    promoted.client().call("REPLICAOF NO ONE");
    wait_for_link(&other);
    assert_eq!(promoted.client().call("INCR n"), int(2));
    // The former primary follows, and goes on where both had the same.
    client.call(&format!("REPLICAOF 127.0.0.1 {}", promoted.port()));
    wait_for_link(&primary);
    settle(&promoted, &primary);
    assert!(wait_until(PATIENCE, || other.client().call("GET n") == bulk("2")));
    assert!(wait_until(PATIENCE, || {
        let log = fs::read(log_of(&promoted)).expect("the log");
        let name = field(&promoted, "master_replid");
        String::from_utf8_lossy(&log).contains(&name)
    }));
    let promoted = promoted.restart(&[LOG, &["--shards", "3"]].concat());
    wait_for_link(&primary);
    wait_for_link(&other);
    assert_eq!(promoted.client().call("INCR n"), int(3));
    settle(&promoted, &primary);
    settle(&promoted, &other);
}

/// The log says nothing of the stream any more once it has something that no stream had.
#[test]
fn what_no_stream_had_is_no_part_of_one() {
    let primary = Server::start(Kind::Ember { shards: 1 }, &[PRIMARY, LOG, &["--repl-backlog-ttl", "1"]].concat());
    let mut client: Client = primary.client();
    let replica = replica_of(&primary, Kind::Ember { shards: 1 }, &[]);
    wait_for_link(&replica);
    client.call("SET a 1");
    settle(&primary, &replica);
    drop(replica);
    wait_for(&primary, "repl_backlog_active", "0");
    client.send_raw(&encode(&["SET", "b", "1"]));
    client.read();
    let primary = primary.restart(&[PRIMARY, LOG].concat());
    assert_eq!(
        (field(&primary, "repl_backlog_active"), field(&primary, "master_repl_offset")),
        ("0".into(), "0".into())
    );
}
