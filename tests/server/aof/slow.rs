//! A disk that takes half a second for a write, or hangs, under `everysec`: no shard waits for it. Replies and deaths go on, what
//! waits is bounded, and when the disk comes back everything is there. One that is slower than those who write holds them up.

use super::disk::{Disk, library};
use crate::common::{Client, Kind, Server, Value, encode, int, wait_until, words};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const FLAGS: [&str; 6] = ["--save", "", "--appendfsync", "everysec", "--notify-keyspace-events", "Ex"];
const SHARDS: [usize; 2] = [1, 3];
const PATIENCE: Duration = Duration::from_secs(20);
const KEYS: usize = 100;
/// So long it is watched that something is not said.
const UNHEARD: Duration = Duration::from_millis(100);

/// A server with a log on such a disk.
fn start(shards: usize, more: &[&str]) -> Option<(Server, Disk)> {
    let (_folder, library) = library("disk.c")?;
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

fn waiting_bytes(server: &Server) -> usize {
    server.info("aof_buffer_length").and_then(|text| text.parse().ok()).expect("a number")
}

/// The most that is seen to wait until something is over.
fn most_that_waits(server: &Server, is_over: impl Fn() -> bool) -> usize {
    let mut most = 0;
    while !is_over() {
        most = most.max(waiting_bytes(server));
        thread::sleep(Duration::from_millis(2));
    }
    most
}

/// Clients that write faster than a disk that is slow and goes on, and wait for no reply, wait for the disk: nothing is refused, and
/// no more waits in memory than may, but for what each of them had sent.
#[test]
fn who_writes_faster_than_the_disk_waits_for_it() {
    /// With what is on its way between shards, and what is taken while it is being counted.
    const BOUND: usize = 8 << 20;
    const WRITERS: usize = 3;
    const WRITES: usize = 80;
    const VALUE: usize = 100_000;
    for (shards, fsync) in [(1, "everysec"), (3, "everysec"), (1, "no"), (3, "always")] {
        let more = ["--appendfsync", fsync, "--aof-buffer-limit", "1mb"];
        let Some((server, disk)) = start(shards, &more) else { return };
        // (So slow that replies do not wait for it, but under `always`.)
        disk.set_delay(30);
        let is_over = AtomicBool::new(false);
        let most = thread::scope(|scope| {
            let look = scope.spawn(|| most_that_waits(&server, || is_over.load(Ordering::Relaxed)));
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let mut client = server.client();
                    let mut stream = client.stream().try_clone().expect("a socket");
                    scope.spawn(move || {
                        for number in 0..WRITES {
                            let value = format!("{number}:{}", "x".repeat(VALUE));
                            stream.write_all(&encode(&["SET", &format!("key{writer}"), &value])).expect("it is read");
                        }
                    });
                    scope.spawn(move || (0..WRITES).for_each(|_| assert_eq!(client.read(), Value::ok())))
                })
                .collect();
            let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            is_over.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|writer| writer.expect("no reply is an error"));
            look.join().expect("it ends")
        });
        assert!(most <= BOUND, "{most} bytes waited: {shards} shards, {fsync}");
        disk.set_delay(0);
        // (What a slow disk had not yet taken when its reply left would be lost with the process.)
        assert!(wait_until(PATIENCE, || waiting_bytes(&server) == 0));
        let server = server.restart(&[&FLAGS[..], &["--appendonly", "yes"]].concat());
        let mut client = server.client();
        for writer in 0..WRITERS {
            assert!(client.call(&format!("GET key{writer}")).text().starts_with(&format!("{}:", WRITES - 1)));
        }
    }
}

/// What its primary says waits as well, where a replica's disk is slower.
#[test]
fn a_replica_does_not_go_ahead_of_its_disk() {
    const WRITES: usize = 150;
    let primary = Server::start(Kind::Ember { shards: 2 }, &["--save", "", "--repl-diskless-sync-delay", "0"]);
    let port = primary.port().to_string();
    let flags = ["--replicaof", "127.0.0.1", &port, "--aof-buffer-limit", "1mb"];
    let Some((replica, disk)) = start(2, &flags) else { return };
    assert!(wait_until(PATIENCE, || replica.info("master_link_status").as_deref() == Some("up")));
    // (So slow that replies do not wait for it.)
    disk.set_delay(30);
    let mut client = primary.client();
    for number in 0..WRITES {
        let value = format!("{number}:{}", "x".repeat(100_000));
        client.send_raw(&encode(&["SET", &format!("key{}", number % 7), &value]));
    }
    (0..WRITES).for_each(|_| assert_eq!(client.read(), Value::ok()));
    let offset = |server: &Server| server.info("master_repl_offset");
    let begun = Instant::now();
    let most = most_that_waits(&replica, || offset(&replica) == offset(&primary) || begun.elapsed() > 2 * PATIENCE);
    assert_eq!(offset(&replica), offset(&primary));
    assert!(most <= 8 << 20, "{most} bytes waited");
    disk.set_delay(0);
    assert!(wait_until(PATIENCE, || waiting_bytes(&replica) == 0));
    let last = format!("GET key{}", (WRITES - 1) % 7);
    assert!(replica.client().call(&last).text().starts_with(&format!("{}:", WRITES - 1)));
}

/// What shows nothing waits for no disk, also where a write was under way when `always` began. Once CONFIG SET itself waited.
#[test]
fn always_begins_while_the_disk_hangs() {
    for shards in SHARDS {
        let Some((server, disk)) = start(shards, &[]) else { return };
        let mut writers: Vec<Client> = (0..4).map(|_| server.client()).collect();
        let (mut client, mut other) = (server.client(), server.client());
        set(&mut client, "first");
        disk.set_delay(-1);
        for (nth, writer) in writers.iter_mut().enumerate() {
            writer.send(&format!("SET key{nth} x"));
        }
        assert_eq!(client.call("CONFIG SET appendfsync always"), Value::ok());
        assert_eq!(other.call("PING").text(), "PONG");
        disk.set_delay(0);
        writers.iter_mut().for_each(|writer| assert_eq!(writer.read(), Value::ok()));
    }
}

/// What is said within a transaction is heard when the disk has what the transaction has changed, on every shard: messages
/// left when the shards had handed over what they had changed before.
#[test]
fn nobody_hears_of_what_the_disk_does_not_have() {
    const TWO: &str = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[1]) \
                       redis.call('PUBLISH', 'news', ARGV[1]) return 1";
    const STRAYING: &str = "redis.call('SET', ARGV[2], ARGV[1]) redis.call('PUBLISH', 'news', ARGV[1]) \
                            redis.call('SET', ARGV[3], ARGV[1]) return 1";
    for shards in SHARDS {
        let Some((server, disk)) = start(shards, &[]) else { return };
        let (mut listener, mut client) = (server.client(), server.client());
        assert_eq!(client.call("CONFIG SET appendfsync always"), Value::ok());
        assert_eq!(client.call("CONFIG SET notify-keyspace-events E$"), Value::ok());
        let mut watcher = server.client();
        listener.call("SUBSCRIBE news");
        watcher.call("SUBSCRIBE __keyevent@0__:set");
        for nth in 0..16 {
            let (a, b, said) = (format!("a{nth}"), format!("b{nth}"), format!("said{nth}"));
            let line = |text: String| words(&text);
            let script = |source: &str, keys: usize| {
                let counts = keys.to_string();
                let names = [&a, &b].map(|name| name.clone().into_bytes());
                let (names, rest) = names.split_at(keys);
                [&words("EVAL"), &[source.into(), counts.into()][..], names, &[said.clone().into()], rest].concat()
            };
            let set = |key: &str| line(format!("SET {key} {said}"));
            let publish = line(format!("PUBLISH news {said}"));
            let requests = match nth % 4 {
                0 => vec![words("MULTI"), set(&a), set(&b), publish, words("EXEC")],
                1 => vec![words("MULTI"), publish, set(&a), line(format!("COPY {a} {b}")), words("EXEC")],
                2 => vec![script(TWO, 2)],
                _ => vec![script(STRAYING, 0)],
            };
            let mut writer = server.client();
            disk.set_delay(-1);
            writer.send_raw(&requests.iter().flat_map(|args| encode(args)).collect::<Vec<u8>>());
            assert_eq!(listener.read_within(UNHEARD), None, "{shards} shards, {nth}");
            assert_eq!(watcher.read_within(UNHEARD / 5), None, "{shards} shards, {nth}");
            disk.set_delay(0);
            assert_eq!(listener.read().items()[2].text(), said);
            requests.iter().for_each(|_| assert!(!writer.read().is_error()));
            assert!([&a, &b].contains(&&watcher.read().items()[2].text()));
            watcher.drain(UNHEARD / 5);
            assert_eq!(client.call(&format!("MGET {a} {b}")), Value::bulks(&[&said, &said]));
        }
    }
}

/// A library that somebody has loaded, or a policy that somebody has set, is shown when the disk has it.
#[test]
fn nobody_is_shown_a_library_or_a_policy_that_the_disk_does_not_have() {
    for shards in SHARDS {
        let Some((server, disk)) = start(shards, &[]) else { return };
        let mut client = server.client();
        assert_eq!(client.call("CONFIG SET appendfsync always"), Value::ok());
        for nth in 0..16 {
            let name = format!("lib{nth}");
            let code = format!("#!lua name={name}\nredis.register_function('f{nth}', function() return 1 end)");
            let seconds = format!("{}s", nth + 1);
            let (asked, change): (_, &[&str]) = match nth % 4 {
                0 => ("FUNCTION LIST", &["FUNCTION", "LOAD", &code]),
                1 => ("FUNCTION DUMP", &["FUNCTION", "LOAD", &code]),
                2 => ("EXPIRY POLICY LIST", &["EXPIRY", "POLICY", "SET", "p:", &seconds]),
                _ => ("EXPIRY POLICY GET p:", &["EXPIRY", "POLICY", "SET", "p:", &seconds]),
            };
            let (mut reader, mut writer) = (server.client(), server.client());
            let before = reader.call(asked);
            let shows = |reply: &Value| *reply != before;
            disk.set_delay(-1);
            writer.send_raw(&encode(change));
            // It answers without the change, or waits for the disk.
            let waits = wait_until(PATIENCE, || {
                reader.send(asked);
                let reply = reader.read_within(UNHEARD);
                assert!(!reply.as_ref().is_some_and(shows), "{shards} shards: {asked}");
                reply.is_none()
            });
            assert!(waits, "{shards} shards: {asked}");
            disk.set_delay(0);
            reader.read();
            assert!(wait_until(PATIENCE, || shows(&reader.call(asked))));
            assert!(!writer.read().is_error());
        }
    }
}

/// What is about all data is said by each shard and stands in the log once: nothing of it is counted as waiting afterwards.
#[test]
fn what_all_shards_say_once_does_not_count_for_ever() {
    let server = Server::start(Kind::Ember { shards: 3 }, &[&FLAGS[..], &["--appendonly", "yes"]].concat());
    let mut client = server.client();
    for line in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "EVAL return(redis.call('FLUSHALL')) 0"] {
        for number in 0..20 {
            client.call(&format!("SET key{number} value"));
            assert!(!client.call(line).is_error(), "{line}");
            client.pipeline(&[vec!["MULTI"], vec!["SWAPDB", "0", "1"], vec!["FLUSHDB"], vec!["EXEC"]]);
        }
    }
    assert!(wait_until(PATIENCE, || waiting_bytes(&server) == 0), "{} bytes", waiting_bytes(&server));
}

/// How much may wait is taken over while the server runs; and what one client of a crowd has changed counts for the next one.
#[test]
fn the_bound_is_that_of_the_moment_for_each_of_many() {
    const CLIENTS: usize = 90;
    const VALUE: usize = 300_000;
    // What came in one turn of each shard waits, too: on a busy machine a third of all.
    const BOUND: usize = 12 << 20;
    for shards in SHARDS {
        let Some((server, disk)) = start(shards, &["--aof-buffer-limit", "100mb"]) else { return };
        assert_eq!(server.client().call("CONFIG SET aof-buffer-limit 1mb"), Value::ok());
        disk.set_delay(150);
        let value = "x".repeat(VALUE);
        let is_over = AtomicBool::new(false);
        let most = thread::scope(|scope| {
            let look = scope.spawn(|| most_that_waits(&server, || is_over.load(Ordering::Relaxed)));
            let clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
            let ask = |(number, mut client): (usize, Client)| {
                let value = &value;
                scope.spawn(move || client.command(&["SET", &format!("key{number}"), value]))
            };
            let asked: Vec<_> = clients.into_iter().enumerate().map(ask).collect();
            let ended: Vec<_> = asked.into_iter().map(thread::ScopedJoinHandle::join).collect();
            is_over.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|reply| assert_eq!(reply.expect("a reply"), Value::ok()));
            look.join().expect("it ends")
        });
        assert!(most <= BOUND, "{most} bytes waited: {shards} shards");
    }
}

/// A client whose request waits for the log, or whose reply does, is not idle.
#[test]
fn who_waits_for_the_disk_is_not_closed_as_idle() {
    const CLIENTS: usize = 40;
    for fsync in ["everysec", "always"] {
        let more = ["--aof-buffer-limit", "1mb", "--timeout", "1", "--appendfsync", fsync];
        let Some((server, disk)) = start(1, &more) else { return };
        disk.set_delay(100);
        let value = "x".repeat(400_000);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (mut client, value) = (server.client(), &value);
                    scope.spawn(move || {
                        client.send_raw(&encode(&["SET", &format!("key{number}"), value]));
                        client.try_read()
                    })
                })
                .collect();
            for client in clients {
                assert_eq!(client.join().expect("it ends").expect("the connection stays"), Value::ok(), "{fsync}");
            }
        });
    }
}

/// Changes of policies are written in forms of their own: they count as much as they are.
#[test]
fn changes_of_policies_wait_for_the_disk_too() {
    const CHANGES: usize = 20_000;
    let Some((server, disk)) = start(1, &["--aof-buffer-limit", "1mb"]) else { return };
    let mut client = server.client();
    set(&mut client, "before");
    disk.set_delay(-1);
    let changes = (0..CHANGES).map(|number| encode(&["EXPIRY", "POLICY", "SET", &format!("prefix{number}:"), "1h"]));
    let bytes: Vec<u8> = changes.flatten().collect();
    let mut stream = client.stream().try_clone().expect("a socket");
    thread::scope(|scope| {
        scope.spawn(move || stream.write_all(&bytes).expect("it is read"));
        let mut refused = 0;
        for _ in 0..CHANGES {
            let reply = client.read();
            refused += usize::from(reply.is_error());
            assert!(reply == Value::ok() || reply.text().starts_with("MISCONF"), "{reply:?}");
        }
        assert!(refused > CHANGES / 2, "{refused} were refused");
        disk.set_delay(0);
    });
}
