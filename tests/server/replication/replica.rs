//! EmberDB follows: redis-server, newer servers, and EmberDB.

use super::{
    BREAKS, PATIENCE, PRIMARY, QUICK, STEPS, STRICT, field, replica_of, seed, setting, settle, settles, wait_for,
    wait_for_link,
};
use crate::common::packages::{REDIS_8, VALKEY, peer};
use crate::common::{Client, Kind, Server, Value, bulk, error, have_tool, int, wait_until};
use crate::differential::generate::families::Family;
use crate::propagation::extras::Extras;
use crate::propagation::{play, wait_for_keys};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const DEBUG: &[&str] = &["--enable-debug-command", "yes"];

/// A chain of servers, each of which follows the one before, while the first is changed by random commands.
fn chain(kinds: &[Kind], extras: Extras) {
    let (seed, steps) = (seed(), setting("EMBERDB_REPLICATION_STEPS", STEPS));
    // (What DEBUG POPULATE makes Redis tells nobody.)
    let of_first = if kinds[0].is_ember() { [QUICK, DEBUG].concat() } else { QUICK.to_vec() };
    let mut servers = vec![Server::start(kinds[0], &of_first)];
    let mut client = servers[0].client();
    for number in 0..1000 {
        client.call(&format!("SET before:{number} {number} EX 100000"));
        client.call(&format!("RPUSH list:{number} a b {number}"));
    }
    let library = "#!lua name=l\nredis.register_function{function_name='f', callback=function() return 7 end, flags={'no-writes'}}";
    client.command(&["FUNCTION", "LOAD", library]);
    for kind in &kinds[1..] {
        let flags = if *kind == Kind::Redis { [QUICK, STRICT].concat() } else { [QUICK, DEBUG].concat() };
        let next = replica_of(servers.last().expect("one is there"), *kind, &flags);
        wait_for_link(&next);
        servers.push(next);
    }
    let is_over = AtomicBool::new(false);
    let primary = &servers[0];
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait_for_keys(primary, extras, seed, &is_over));
        let players: Vec<_> = (0..2)
            .map(|nth| seed.wrapping_add(nth))
            .map(|seed| scope.spawn(move || play(primary, Family::Everything, extras, seed, steps / 2)))
            .collect();
        let played: Vec<_> = players.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        waiting.join().expect("the connection that waits");
        played.into_iter().for_each(|result| result.expect("a player"));
    });
    for (replica, kind) in servers[1..].iter().zip(&kinds[1..]) {
        if !settles(primary, replica) {
            return;
        }
        if matches!(kind, Kind::Ember { .. }) {
            // Nobody has broken the link; and what came first is not kept on the disk for as long as it lasts.
            assert!(!replica.output().contains("The link to the primary has ended"), "{}", replica.output());
            let left = std::fs::read_dir(replica.folder()).expect("a folder").flatten();
            assert_eq!(left.filter(|file| file.file_name().to_string_lossy().contains("temp-")).count(), 0);
        }
        assert_eq!(replica.client().call("FCALL_RO f 0"), int(7));
        assert_eq!(field(replica, "master_replid"), field(primary, "master_replid"));
        // (Valkey 9.1 tells its replicas of some LSETs that have failed.)
        let is_told_errors = matches!(kinds[0], Kind::Peer(_));
        assert!(is_told_errors || !replica.output().contains("== CRITICAL =="), "{}", replica.output());
    }
    let mut offsets: Vec<String> = Vec::new();
    let are_equal = wait_until(PATIENCE, || {
        offsets = servers.iter().map(|server| field(server, "master_repl_offset")).collect();
        offsets.iter().all(|offset| *offset == offsets[0])
    });
    assert!(are_equal, "{offsets:?}");
}

#[test]
fn one_shard_follows_redis() {
    if have_tool("redis-server") {
        chain(&[Kind::Redis, Kind::Ember { shards: 1 }], Extras::Everything);
    }
}

#[test]
fn three_shards_follow_redis() {
    if have_tool("redis-server") {
        chain(&[Kind::Redis, Kind::Ember { shards: 3 }], Extras::Everything);
    }
}

#[test]
fn a_chain_of_both_kinds_ends_equal() {
    if have_tool("redis-server") {
        let kinds = [Kind::Redis, Kind::Ember { shards: 3 }, Kind::Ember { shards: 2 }, Kind::Redis];
        chain(&kinds, Extras::Everything);
    }
}

/// Deadlines of fields and members, too.
#[test]
fn ember_follows_ember() {
    for extras in [Extras::Fields, Extras::Members, Extras::ScoredMembers] {
        chain(&[Kind::Ember { shards: 3 }, Kind::Ember { shards: 2 }], extras);
    }
}

#[test]
fn newer_servers_are_followed() {
    for binary in [VALKEY, REDIS_8].into_iter().filter_map(peer) {
        chain(&[Kind::Peer(binary), Kind::Ember { shards: 2 }], Extras::Everything);
    }
}

/// What is read on a replica is what the primary had at some moment: transactions are whole, and later changes are not there
/// without earlier ones.
#[test]
fn who_reads_sees_a_moment_of_the_primary() {
    for kind in [Kind::Redis, Kind::Ember { shards: 2 }] {
        if kind == Kind::Redis && !have_tool("redis-server") {
            continue;
        }
        // (In the order in which a client has said them, also where their keys are on different shards.)
        let strict = if kind.is_ember() { &["--pipeline-order", "strict"][..] } else { &[] };
        let primary = Server::start(kind, &[QUICK, strict].concat());
        let replica = replica_of(&primary, Kind::Ember { shards: 3 }, &[]);
        wait_for_link(&replica);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = primary.client();
                for number in 0..3000 {
                    // First one of three on its own, in turn, then all of them at once.
                    let lines = (0..3).map(|key| format!("SET single:{key} {number}"));
                    let all = ["MULTI".to_owned(), format!("MSET a {number} b {number} c {number}")];
                    let lines: Vec<String> = lines.chain(all).chain(["EXEC".to_owned()]).collect();
                    lines.iter().for_each(|line| client.send(line));
                    lines.iter().for_each(|_| drop(client.read()));
                }
                is_over.store(true, Ordering::Relaxed);
            });
            let (mut client, mut reads) = (replica.client(), 0);
            while !is_over.load(Ordering::Relaxed) {
                let all = client.call("MGET a b c");
                assert!(all.items().windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
                // In the order in which they are written each is as new as the one behind it, and at most one newer.
                let singles = client.call("MGET single:0 single:1 single:2");
                let number = |value: &Value| if value.is_null() { -1 } else { value.text().parse().expect("a number") };
                let singles: Vec<i64> = singles.items().iter().map(number).collect();
                assert!(singles.is_sorted_by(|a, b| a >= b) && singles[0] - singles[2] <= 1, "{singles:?}");
                reads += 1;
            }
            assert!(reads > 10);
        });
    }
}

/// A key is never seen after its deadline, whatever the primary does, and is gone when it says so.
#[test]
fn what_is_dead_is_hidden_until_the_primary_says_that_it_is_gone() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Redis, QUICK);
    let replica = replica_of(&primary, Kind::Ember { shards: 2 }, DEBUG);
    wait_for_link(&replica);
    let (mut client, mut reader) = (primary.client(), replica.client());
    client.call("SET dies 1 PX 3000");
    client.call("SET stays 1");
    client.call("WAIT 1 10000");
    assert_eq!(reader.call("GET dies").text(), "1");
    primary.signal("STOP");
    assert!(wait_until(PATIENCE, || reader.call("EXISTS dies") == int(0)));
    assert_eq!(
        (reader.call("GET dies"), reader.call("DBSIZE"), reader.call("TTL dies")),
        (Value::NullBulk, int(1), int(-2))
    );
    assert_eq!(field(&replica, "expired_keys"), "0");
    primary.signal("CONT");
    client.call("SET dies 2");
    assert_eq!(client.call("WAIT 1 10000"), int(1));
    assert_eq!(reader.call("GET dies").text(), "2");
    assert_eq!(field(&replica, "expired_keys"), "0");
}

#[test]
fn clients_cannot_write_and_promotion_lets_them_and_the_overdue_die() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Redis, PRIMARY);
    let replica = replica_of(&primary, Kind::Ember { shards: 3 }, &[]);
    wait_for_link(&replica);
    let (mut client, mut reader) = (primary.client(), replica.client());
    // However long this takes, the primary says of none of them that it is dead.
    assert_eq!(client.call("DEBUG SET-ACTIVE-EXPIRE 0"), Value::ok());
    for number in 0..500 {
        client.call(&format!("SET dies:{number} 1 PX 300"));
    }
    client.call("SET stays 1 EX 1000");
    client.call("WAIT 1 10000");
    let read_only = error("READONLY You can't write against a read only replica.");
    assert_eq!(reader.call("SET a 1"), read_only);
    assert_eq!(reader.call("ROLE").items()[0].text(), "slave");
    assert_eq!(reader.call("REPLICAOF 127.0.0.1 x"), error("ERR Invalid master port"));
    let again = reader.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    assert_eq!(again.text(), "OK Already connected to specified master");
    primary.signal("STOP");
    assert!(wait_until(PATIENCE, || reader.call("EXISTS dies:499") == int(0)));
    let (id, offset) = (field(&replica, "master_replid"), field(&replica, "master_repl_offset"));
    // As Sentinel does.
    for line in ["MULTI", "SLAVEOF NO ONE", "CLIENT KILL TYPE normal", "CLIENT KILL TYPE pubsub"] {
        reader.call(line);
    }
    assert_eq!(reader.call("EXEC").items().len(), 3);
    assert_eq!(field(&replica, "role"), "master");
    wait_for(&replica, "master_replid2", &id);
    assert_eq!(field(&replica, "second_repl_offset"), (offset.parse::<u64>().expect("a number") + 1).to_string());
    assert!(wait_until(PATIENCE, || replica.client().call("SET a 1") == Value::ok()));
    assert!(wait_until(PATIENCE, || replica.client().call("DBSIZE") == int(2)));
    wait_for(&replica, "expired_keys", "500");
    assert!(replica.client().call("TTL stays").number() > 900);
    primary.signal("CONT");
    // The former primary follows, and needs no snapshot for what it has.
    let mut client = primary.client();
    client.call(&format!("REPLICAOF 127.0.0.1 {}", replica.port()));
    wait_for_link(&primary);
    settle(&replica, &primary);
}

/// A stream that goes on in another database than the first: replicas of replicas, and one that is restarted, know which.
#[test]
fn the_database_that_was_chosen_is_known() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Redis, QUICK);
    let mut client = primary.client();
    let mut replica = replica_of(&primary, Kind::Ember { shards: 2 }, &[QUICK, DEBUG, &["--save", "3600 1"]].concat());
    wait_for_link(&replica);
    client.call("SELECT 5");
    client.call("SET a 1");
    client.call("WAIT 1 10000");
    let chained = [Kind::Ember { shards: 3 }, Kind::Redis].map(|kind| replica_of(&replica, kind, DEBUG));
    chained.iter().for_each(wait_for_link);
    client.call("INCR a");
    client.call("WAIT 1 10000");
    chained.iter().for_each(|of| settle(&primary, of));
    replica.client().send("SHUTDOWN");
    assert!(replica.wait_for_end(PATIENCE).is_some());
    client.call("INCR a");
    let of = format!("127.0.0.1 {}", primary.port());
    let flags = [QUICK, DEBUG, &["--save", "3600 1", "--shards", "2", "--replicaof", &of]].concat();
    let replica = replica.restart(&flags);
    wait_for_link(&replica);
    client.call("INCR a");
    chained.iter().for_each(wait_for_link);
    settle(&primary, &replica);
    chained.iter().for_each(|of| settle(&primary, of));
    assert_eq!(field(&primary, "sync_full"), "1");
}

/// Replica, primary, replica of another: in any order and at any speed the last word counts.
#[test]
fn roles_may_change_quickly() {
    let servers = [(); 2].map(|()| Server::start(Kind::Ember { shards: 2 }, &[QUICK, DEBUG].concat()));
    let subject = Server::start(Kind::Ember { shards: 3 }, &[QUICK, DEBUG].concat());
    for (number, server) in servers.iter().enumerate() {
        server.client().call(&format!("SET of {number}"));
    }
    let mut client = subject.client();
    let mut rng = fastrand::Rng::with_seed(seed());
    for _ in 0..40 {
        let line = match rng.usize(..3) {
            2 => "REPLICAOF NO ONE".to_owned(),
            of => format!("REPLICAOF 127.0.0.1 {}", servers[of].port()),
        };
        client.send(&line);
        if rng.bool() {
            std::thread::sleep(Duration::from_millis(rng.u64(..30)));
        }
    }
    (0..40).for_each(|_| drop(client.read()));
    // (While a snapshot is being loaded the answer is LOADING, as Redis's is.)
    let last = format!("REPLICAOF 127.0.0.1 {}", servers[1].port());
    assert!(wait_until(PATIENCE, || client.call(&last).text().starts_with("OK")));
    wait_for_link(&subject);
    settle(&servers[1], &subject);
    client.call("REPLICAOF NO ONE");
    assert_eq!(client.call("SET mine 1 PX 20"), Value::ok());
    assert!(wait_until(PATIENCE, || subject.client().call("DBSIZE") == int(1)));
    let replica = replica_of(&subject, Kind::Ember { shards: 2 }, DEBUG);
    wait_for_link(&replica);
    client.call("SET more 1");
    settle(&subject, &replica);
}

#[test]
fn links_break_and_are_mended_without_a_snapshot() {
    if !have_tool("redis-server") {
        return;
    }
    let (seed, breaks) = (seed(), setting("EMBERDB_REPLICATION_BREAKS", BREAKS));
    let flags = [QUICK, &["--repl-backlog-size", "100mb"]].concat();
    let primary = Server::start(Kind::Redis, &flags);
    let replica = replica_of(&primary, Kind::Ember { shards: 3 }, &flags);
    let chained = replica_of(&replica, Kind::Ember { shards: 2 }, DEBUG);
    [&replica, &chained].into_iter().for_each(wait_for_link);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let player = scope.spawn(|| {
            let mut seed = seed;
            while !is_over.load(Ordering::Relaxed) {
                play(&primary, Family::Everything, Extras::Everything, seed, 1000);
                seed = seed.wrapping_add(1);
            }
        });
        let mut rng = fastrand::Rng::with_seed(seed);
        let mended = (1..=breaks).all(|_| {
            let of = if rng.bool() { &primary } else { &replica };
            let before: usize = field(of, "sync_partial_ok").parse().expect("a number");
            let again = || field(of, "sync_partial_ok").parse::<usize>().is_ok_and(|count| count > before);
            wait_until(PATIENCE, || of.client().call("CLIENT KILL TYPE replica") == int(1))
                && wait_until(PATIENCE, again)
        });
        is_over.store(true, Ordering::Relaxed);
        assert!(mended, "{} {}", primary.output(), replica.output());
        player.join().expect("a player");
    });
    [&replica, &chained].into_iter().for_each(|replica| settle(&primary, replica));
    assert_eq!((field(&primary, "sync_full"), field(&replica, "sync_full")), ("1".to_owned(), "1".to_owned()));
}

/// With a log, a replica that is restarted has what it had, and comes back to its primary.
#[test]
fn a_replica_is_restarted() {
    if !have_tool("redis-server") {
        return;
    }
    for flags in [&["--appendonly", "yes"][..], &["--save", "3600 1"]] {
        let primary = Server::start(Kind::Redis, QUICK);
        let mut client = primary.client();
        client.call("SET before 1");
        let mut replica = replica_of(&primary, Kind::Ember { shards: 2 }, &[flags, DEBUG].concat());
        wait_for_link(&replica);
        client.call("SET behind 1 EX 1000");
        client.call("WAIT 1 10000");
        assert!(wait_until(PATIENCE, || field(&replica, "aof_rewrite_in_progress") == "0"));
        replica.client().send("SHUTDOWN");
        assert!(replica.wait_for_end(PATIENCE).is_some());
        client.call("SET meanwhile 1");
        let of = format!("127.0.0.1 {}", primary.port());
        let replica = replica.restart(&[flags, DEBUG, &["--shards", "2", "--replicaof", &of]].concat());
        wait_for_link(&replica);
        settle(&primary, &replica);
        // Its snapshot, or its log, says where in the stream that was.
        assert_eq!(field(&primary, "sync_full"), "1", "{}", replica.output());
    }
}

#[test]
fn a_password_is_said_and_a_wrong_one_is_told_in_the_log() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Redis, &[QUICK, &["--requirepass", "secret", "--masterauth", "x"]].concat());
    let replica = replica_of(&primary, Kind::Ember { shards: 2 }, &["--masterauth", "wrong"]);
    assert!(wait_until(PATIENCE, || replica.output().contains("Unable to AUTH to MASTER")));
    assert_eq!(field(&replica, "master_link_status"), "down");
    replica.client().call("CONFIG SET masterauth secret");
    wait_for_link(&replica);
    assert!(!replica.output().contains("secret"));
}

#[test]
fn old_data_are_not_shown_where_that_is_not_wanted() {
    let primary = Server::start(Kind::Ember { shards: 1 }, QUICK);
    primary.client().call("SET a 1");
    let replica = replica_of(&primary, Kind::Ember { shards: 2 }, &["--replica-serve-stale-data", "no"]);
    wait_for_link(&replica);
    let mut reader = replica.client();
    assert_eq!(reader.call("GET a").text(), "1");
    drop(primary);
    assert!(wait_until(PATIENCE, || reader.call("GET a").text().starts_with("MASTERDOWN")));
    assert_eq!(reader.call("ROLE").items()[0].text(), "slave");
    reader.call("CONFIG SET replica-serve-stale-data yes");
    assert_eq!(reader.call("GET a").text(), "1");
}

/// A primary that sends something else than it should: the replica keeps what it has, and says why.
#[test]
fn what_a_hostile_primary_sends_is_refused() {
    let (good, mark) = (b"REDIS0010\xff\0\0\0\0\0\0\0\0".to_vec(), "m".repeat(40));
    let head = format!("+FULLRESYNC {} 0\r\n", "a".repeat(40));
    let cut = format!("{head}${}\r\nREDIS0010", good.len());
    let flipped = [head.as_bytes(), b"$18\r\nREDIS0010\xff\x01\x02\x03\x04\x05\x06\x07\x08"].concat();
    let of_other = [head.as_bytes(), b"$5\r\nhello"].concat();
    let no_stream = [head.as_bytes(), format!("$EOF:{mark}\r\n").as_bytes(), &good, mark.as_bytes()].concat();
    let answers: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (b"-ERR no\r\n".to_vec(), vec![]),
        (b"HTTP/1.1 400\r\n".to_vec(), vec![]),
        (vec![b'x'; 10_000], vec![]),
        (b"+CONTINUE\r\n".to_vec(), b"garbage without an end\n*x\r\n".to_vec()),
        (cut.into_bytes(), vec![]),
        (flipped, vec![]),
        (of_other, vec![]),
        (no_stream, b"*1\r\n$-5\r\n".to_vec()),
    ];
    let (loadable, in_file, beside) = (answers.len() - 1, "disabled", "swapdb");
    let tries =
        [in_file, beside].into_iter().flat_map(|how| answers.iter().enumerate().map(move |answer| (how, answer)));
    for (how, (number, (answer, stream))) in tries {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let replica = Server::start(Kind::Ember { shards: 2 }, &[DEBUG, &["--repl-diskless-load", how]].concat());
        let mut client = replica.client();
        client.call("SET mine 1");
        client.call(&format!("REPLICAOF 127.0.0.1 {port}"));
        let (mut link, _) = listener.accept().expect("it comes");
        link.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // (Each question waits for its answer.)
        loop {
            let mut bytes = [0; 1000];
            let count = link.read(&mut bytes).expect("a question");
            match String::from_utf8_lossy(&bytes[..count]) {
                asked if asked.contains("PSYNC") => break,
                asked if asked.contains("PING") => link.write_all(b"+PONG\r\n").expect("it reads"),
                _ => link.write_all(b"+OK\r\n").expect("it reads"),
            }
        }
        link.write_all(answer).expect("it reads");
        std::thread::sleep(Duration::from_millis(50));
        let _ = link.write_all(stream);
        drop(link);
        assert!(
            wait_until(PATIENCE, || replica.output().contains("The link to the primary has ended")),
            "{}",
            replica.output()
        );
        assert_eq!(client.call("PING").text(), "PONG");
        if how == beside && number != loadable {
            assert!(wait_until(PATIENCE, || client.call("GET mine") == bulk("1")), "{}", replica.output());
        }
        client.call("REPLICAOF NO ONE");
        assert!(wait_until(PATIENCE, || client.call("SET mine 2") == Value::ok()), "{}", replica.output());
        let left = std::fs::read_dir(replica.folder()).expect("a folder").flatten();
        assert!(left.filter(|file| file.file_name().to_string_lossy().contains("temp-")).count() == 0);
    }
}

/// A server that follows itself, or a ring of servers, goes nowhere, and harms nobody.
#[test]
fn rings_are_harmless() {
    let flags = [QUICK, DEBUG].concat();
    let servers = [(); 2].map(|()| Server::start(Kind::Ember { shards: 2 }, &flags));
    let follow = |client: &mut Client, of: &Server| client.call(&format!("REPLICAOF 127.0.0.1 {}", of.port()));
    let mut clients: Vec<Client> = servers.iter().map(Server::client).collect();
    clients[0].call("SET a 1");
    let own = follow(&mut clients[0], &servers[0]);
    assert_eq!(own, Value::ok());
    assert_eq!(clients[0].call("GET a").text(), "1");
    follow(&mut clients[0], &servers[1]);
    follow(&mut clients[1], &servers[0]);
    assert_eq!(clients[0].call("GET a").text(), "1");
    clients[1].call("REPLICAOF NO ONE");
    assert!(wait_until(PATIENCE, || clients[1].call("SET b 1") == Value::ok()));
    wait_for_link(&servers[0]);
    settle(&servers[1], &servers[0]);
    wait_for(&servers[1], "connected_slaves", "1");
}

/// CONFIG REWRITE keeps whom it follows; promotion takes it out.
#[test]
fn whom_it_follows_is_kept_in_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("emberdb.conf");
    std::fs::write(&file, "shards 2\n").expect("a file");
    let primary = Server::start(Kind::Ember { shards: 1 }, QUICK);
    let replica = Server::start_with_file(Kind::Ember { shards: 2 }, &["emberdb.conf"], &file, "emberdb.conf");
    let mut client = replica.client();
    client.call(&format!("REPLICAOF localhost {}", primary.port()));
    wait_for_link(&replica);
    let line = format!("localhost {}", primary.port());
    assert_eq!(client.call("CONFIG GET replicaof").items()[1].text(), line);
    if client.call("CONFIG REWRITE") == Value::ok() {
        let text = std::fs::read_to_string(replica.folder().join("emberdb.conf")).expect("a file");
        assert!(text.contains(&format!("replicaof {line}")), "{text}");
    }
    client.call("REPLICAOF NO ONE");
    assert_eq!(client.call("CONFIG GET replicaof").items()[1].text(), "");
    let _ = PRIMARY;
}

/// What a replica says of its disk is what WAITAOF counts, for as long as the replica keeps a log.
#[test]
fn what_is_on_the_disk_of_a_replica_is_counted() {
    let log = ["--appendonly", "yes", "--appendfsync", "everysec"];
    for shards in [1, 3] {
        let primary = Server::start(Kind::Ember { shards: 2 }, QUICK);
        let (mut client, is_counted) = (primary.client(), [int(0), int(1)]);
        client.call("SET before 1");
        let kind = Kind::Ember { shards };
        let replica = replica_of(&primary, kind, &[QUICK, &log].concat());
        wait_for_link(&replica);
        for key in 0..20 {
            client.send(&format!("SET {key} {key}"));
            client.send("WAITAOF 0 1 0");
            client.read_within(PATIENCE);
            assert_eq!(client.read_within(PATIENCE).as_ref().map(Value::items), Some(&is_counted[..]), "{key}");
        }
        assert_eq!(replica.client().call("CONFIG SET appendonly no"), Value::ok());
        client.call("SET last 1");
        client.call("WAIT 1 0");
        assert_eq!(client.call("WAITAOF 0 1 50").items(), [int(0), int(0)]);
        assert_eq!(replica.client().call("CONFIG SET appendonly yes"), Value::ok());
        client.send("SET last 2");
        client.send("WAITAOF 0 1 0");
        client.read_within(PATIENCE);
        assert_eq!(client.read_within(PATIENCE).as_ref().map(Value::items), Some(&is_counted[..]));
    }
}

#[test]
fn a_replica_tells_in_its_log_where_it_cannot_do_what_the_primary_did() {
    for shards in [1, 3] {
        let primary = Server::start(Kind::Ember { shards: 2 }, QUICK);
        let kind = Kind::Ember { shards };
        let replica = replica_of(&primary, kind, &[QUICK, &["--replica-read-only", "no"]].concat());
        wait_for_link(&replica);
        let mut own = replica.client();
        own.call("RPUSH mine a");
        for _ in 0..30 {
            primary.client().call("INCR mine");
        }
        settle_link(&primary);
        let output = replica.output();
        assert!(output.contains("== CRITICAL == A write on this replica, incr, has answered -WRONGTYPE"), "{output}");
        // Not one line each, once there are many.
        assert_eq!(output.matches("CRITICAL").count(), 11, "{output}");
        assert_eq!(own.call("LRANGE mine 0 -1").items().len(), 1);
    }
}

/// The replica has everything.
fn settle_link(primary: &Server) {
    let mut client = primary.client();
    client.send("WAIT 1 0");
    assert_eq!(client.read_within(PATIENCE), Some(int(1)));
}

/// Redis 7.0 takes an ID that is smaller than one that was deleted; newer servers, and this one, refuse it from clients.
#[test]
fn what_an_older_primary_allows_is_done() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Redis, QUICK);
    let replica = replica_of(&primary, Kind::Ember { shards: 2 }, QUICK);
    wait_for_link(&replica);
    for line in ["XADD s 5-0 a 1", "XADD s 9-0 a 1", "XDEL s 9-0", "XSETID s 6-0"] {
        assert!(!primary.client().call(line).is_error(), "{line}");
    }
    settle(&primary, &replica);
    assert!(!replica.output().contains("CRITICAL"), "{}", replica.output());
    let own = Server::start(Kind::Ember { shards: 1 }, &[]);
    for line in ["XADD s 5-0 a 1", "XADD s 9-0 a 1", "XDEL s 9-0"] {
        own.client().call(line);
    }
    assert!(own.client().call("XSETID s 6-0").is_error());
}

/// A replica that is paused reads the stream and does nothing of it until the pause is over, as Redis's.
#[test]
fn a_pause_is_one_of_the_stream_too() {
    for shards in [1, 3] {
        let primary = Server::start(Kind::Ember { shards: 3 }, QUICK);
        let replica = replica_of(&primary, Kind::Ember { shards }, QUICK);
        wait_for_link(&replica);
        let (mut writer, mut reader) = (primary.client(), replica.client());
        for pause in ["CLIENT PAUSE 100000 WRITE", "CLIENT PAUSE 300"] {
            assert_eq!(writer.call("SET k before"), Value::ok());
            settle(&primary, &replica);
            let before = field(&replica, "slave_repl_offset");
            let mut pausing = replica.client();
            assert_eq!(pausing.call(pause), Value::ok());
            assert_eq!(writer.call("SET k behind"), Value::ok());
            let has_come = || field(&replica, "slave_read_repl_offset") == field(&primary, "master_repl_offset");
            if pause.ends_with("WRITE") {
                assert!(wait_until(PATIENCE, has_come));
                assert_eq!(field(&replica, "slave_repl_offset"), before);
                assert_eq!(reader.call("GET k"), bulk("before"));
                assert_eq!(pausing.call("CLIENT UNPAUSE"), Value::ok());
            }
            assert!(wait_until(PATIENCE, || reader.call("GET k") == bulk("behind")));
        }
    }
}
