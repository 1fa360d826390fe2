//! EmberDB is followed by redis-server.

use super::{
    PATIENCE, PRIMARY, STEPS, STRICT, field, replica_of, seed, setting, settle, settles, wait_for, wait_for_link,
};
use crate::common::{Kind, Server, Value, encode, error, have_tool, int, wait_until};
use crate::differential::generate::families::Family;
use crate::propagation::extras::Extras;
use crate::propagation::{play, wait_for_keys};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn follows(shards: usize, flags: &[&str]) {
    if !have_tool("redis-server") {
        return;
    }
    let (seed, steps) = (seed(), setting("EMBERDB_REPLICATION_STEPS", STEPS));
    let primary = Server::start(Kind::Ember { shards }, &[PRIMARY, flags].concat());
    let mut client = primary.client();
    for number in 0..1000 {
        client.call(&format!("SET before:{number} {number} EX 100000"));
    }
    let library = "#!lua name=l\nredis.register_function{function_name='f', callback=function() return 7 end, flags={'no-writes'}}";
    assert_eq!(client.command(&["FUNCTION", "LOAD", library]).text(), "l");
    let is_over = AtomicBool::new(false);
    let (mut early, mut late) = (None, None);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait_for_keys(&primary, Extras::Everything, seed, &is_over));
        let players: Vec<_> = (0..2)
            .map(|nth| (seed.wrapping_add(nth), &primary))
            .map(|(seed, primary)| {
                scope.spawn(move || play(primary, Family::Everything, Extras::Everything, seed, steps / 2))
            })
            .collect();
        // One comes while much is changed, another one when it is over.
        early = Some(replica_of(&primary, Kind::Redis, STRICT));
        let played: Vec<_> = players.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        late = Some(replica_of(&primary, Kind::Redis, STRICT));
        is_over.store(true, Ordering::Relaxed);
        waiting.join().expect("the connection that waits");
        played.into_iter().for_each(|result| result.expect("a player"));
    });
    for mut replica in [early, late].into_iter().flatten() {
        if !replica.has_ended() {
            wait_for_link(&replica);
        }
        if !settles(&primary, &replica) {
            continue;
        }
        assert!(!replica.has_ended(), "{}", replica.output());
        assert_eq!(field(&replica, "master_replid"), field(&primary, "master_replid"));
        assert_eq!(replica.client().call("FCALL_RO f 0"), int(7));
    }
    // (Where databases are emptied while a snapshot is made, the replica comes again.)
    let given_up = primary.output().matches("A snapshot for replicas was given up").count();
    assert_eq!(field(&primary, "sync_full"), (2 + given_up).to_string());
}

/// What newer servers have dumped is told in a form that a redis-server 7.0 knows.
#[test]
fn what_newer_servers_dump_reaches_an_older_replica() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Ember { shards: 2 }, PRIMARY);
    let replica = replica_of(&primary, Kind::Redis, STRICT);
    wait_for_link(&replica);
    let mut client = primary.client();
    // (By Valkey 9, whose versions begin at 80.)
    let string = b"\x00\x05helloP\x00\xacX\x16\xe7\xfbfG\xfe";
    let library =
        b"\xf5@A#!lua name=l\nredis.register_function(\"f\",function() return 7 end)\x50\x00\x57\xbc\xe9\x7a\x78\xd7\x17\x77";
    for key in ["a", "b", "c"] {
        assert_eq!(client.command(&[&b"RESTORE"[..], key.as_bytes(), b"0", string]), Value::ok());
    }
    assert_eq!(client.command(&[&b"FUNCTION"[..], b"RESTORE", library]), Value::ok());
    settle(&primary, &replica);
    let mut there = replica.client();
    assert_eq!(there.call("MGET a b c").items().iter().map(Value::text).collect::<Vec<_>>(), ["hello"; 3]);
    assert_eq!(there.call("FUNCTION LIST").items().len(), 1);
}

#[test]
fn redis_server_follows_one_shard() {
    follows(1, &[]);
}

/// Redis 7.0 knows of no deadlines of members, nor of fields: it is told of these alone, and of their deaths, and of nothing
/// that it would not understand.
#[test]
fn redis_server_is_told_of_members_without_their_deadlines() {
    if !have_tool("redis-server") {
        return;
    }
    for shards in [1, 3] {
        let primary = Server::start(Kind::Ember { shards }, PRIMARY);
        let mut client = primary.client();
        client.call("SADDEX before EX 1000 MEMBERS 2 a b");
        client.call("SADD before c");
        client.call("ZADD sorted 1 a 2 b");
        client.call("ZEXPIRE sorted 1000 MEMBERS 1 a");
        let replica = replica_of(&primary, Kind::Redis, STRICT);
        wait_for_link(&replica);
        client.call("SADDEX s PX 20 MEMBERS 2 a 1");
        client.call("SADDEX s EX 100 MEMBERS 2 c d");
        client.call("SEXPIRE s 200 MEMBERS 1 c");
        client.call("SPERSIST s MEMBERS 1 c");
        client.call("HSETEX h EX 100 FIELDS 2 f 1 g 2");
        client.call("SADDEX gone PX 20 MEMBERS 1 a");
        client.call("ZADD z 1 a 2 b 3 c 4 d");
        client.call("ZPEXPIRE z 20 MEMBERS 2 b d");
        client.call("ZEXPIRE z 100 MEMBERS 1 a");
        client.call("ZPERSIST z MEMBERS 1 a");
        client.call("ZEXPIRE z 200 MEMBERS 1 c");
        client.call("ZADD went 1 a");
        client.call("ZPEXPIRE went 20 MEMBERS 1 a");
        for number in 0..10 {
            client.call(&format!("COPY s copy{number}"));
            client.call(&format!("COPY h hash{number}"));
            client.call(&format!("COPY z zset{number}"));
            client.call(&format!("SMOVE copy{number} moved{number} d"));
            client.call(&format!("RENAME copy{number} renamed{number}"));
        }
        let payload = client.call("DUMP before");
        let payload = payload.bytes().expect("a payload");
        assert_eq!(client.command(&[&b"RESTORE"[..], b"restored", b"0", payload]), Value::ok());
        assert!(wait_until(PATIENCE, || client.call("EXISTS gone went") == int(0)));
        assert!(wait_until(PATIENCE, || client.call("ZCARD z") == int(2)));
        assert!(wait_until(PATIENCE, || client.call("ZCARD zset7") == int(2)));
        settle(&primary, &replica);
        let mut reader = replica.client();
        assert_eq!(reader.call("SCARD s"), int(2));
        assert_eq!(reader.call("SCARD before"), int(3));
        assert_eq!(reader.call("ZCARD sorted"), int(2));
        assert_eq!(reader.call("ZRANGE z 0 -1"), Value::bulks(&["a", "c"]));
        assert_eq!(reader.call("ZRANGE zset7 0 -1"), Value::bulks(&["a", "c"]));
        assert_eq!(reader.call("EXISTS went"), int(0));
        assert_eq!(reader.call("SCARD restored"), int(3));
        assert_eq!(reader.call("SISMEMBER moved3 d"), int(1));
        assert_eq!(reader.call("HLEN hash4"), int(2));
        assert_eq!(client.call("STTL moved3 MEMBERS 1 d").items().len(), 1);
    }
}

/// What streams lose by the words of Redis 8.2 is said in those of Redis 7.0.
#[test]
fn redis_server_is_told_what_streams_lose() {
    if !have_tool("redis-server") {
        return;
    }
    for shards in [1, 3] {
        let primary = Server::start(Kind::Ember { shards }, PRIMARY);
        let replicas =
            [replica_of(&primary, Kind::Redis, STRICT), replica_of(&primary, Kind::Ember { shards: 2 }, PRIMARY)];
        replicas.iter().for_each(wait_for_link);
        let mut client = primary.client();
        for number in 1..=9 {
            client.call(&format!("XADD x {number} f v"));
        }
        for line in [
            "XGROUP CREATE x g 0",
            "XGROUP CREATE x h 0",
            "XREADGROUP GROUP g c COUNT 7 STREAMS x >",
            "XREADGROUP GROUP h d COUNT 7 STREAMS x >",
            "XACK x g 2-0 3-0",
            "XACK x h 2-0",
            "XDELEX x IDS 2 1-0 77-0",
            "XDELEX x ACKED IDS 3 1-0 2-0 3-0",
            "XDELEX x DELREF IDS 2 4-0 1-0",
            "XACKDEL x g IDS 1 5-0",
            "XACKDEL x g ACKED IDS 1 6-0",
            "XACKDEL x h DELREF IDS 1 6-0",
            "XREADGROUP GROUP g c STREAMS x >",
            "XREADGROUP GROUP h d STREAMS x >",
            "XACK x g 8-0",
            "XACK x h 8-0",
            // The one that is pending stays, and the one behind it goes.
            "XTRIM x MAXLEN 0 ACKED",
            "XADD x 10 f v",
            "XGROUP SETID x g 10",
            "XGROUP SETID x h 10",
            "XADD x MAXLEN 1 ACKED 11 f v",
            "XADD x MAXLEN 2 DELREF 12 f v",
            "XTRIM x MAXLEN 0 DELREF",
            "XDELEX x DELREF IDS 1 1-0",
        ] {
            assert!(!client.call(line).is_error(), "{line}");
            replicas.iter().for_each(|replica| settle(&primary, replica));
        }
        assert_eq!(client.call("XPENDING x g").items()[0], int(0));
    }
}

#[test]
fn redis_server_follows_three_shards() {
    follows(3, &[]);
}

/// The snapshot goes through a file, and there is a log as well.
#[test]
fn redis_server_follows_by_way_of_the_disk() {
    follows(2, &["--repl-diskless-sync", "no", "--appendonly", "yes"]);
}

#[test]
fn mass_expiry_is_told_to_replicas() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Ember { shards: 3 }, PRIMARY);
    let replica = replica_of(&primary, Kind::Redis, STRICT);
    wait_for_link(&replica);
    let mut client = primary.client();
    let sets: Vec<Vec<String>> =
        (0..5000).map(|n| ["SET", &format!("k{n}"), "v", "PX", "700"].map(str::to_owned).to_vec()).collect();
    client.pipeline(&sets);
    assert_eq!(client.call("WAIT 1 10000"), int(1));
    assert!(wait_until(PATIENCE, || client.call("DBSIZE") == int(0)));
    // (DBSIZE of redis-server counts what is dead and was not deleted.)
    assert!(wait_until(PATIENCE, || replica.client().call("DBSIZE") == int(0)));
    // It has deleted none by itself.
    assert_eq!(field(&replica, "expired_keys"), "0");
    settle(&primary, &replica);
}

#[test]
fn wait_counts_replicas_that_have_what_was_written() {
    if !have_tool("redis-server") {
        return;
    }
    for shards in [1, 3] {
        let primary = Server::start(Kind::Ember { shards }, PRIMARY);
        let mut client = primary.client();
        assert_eq!(client.call("WAIT 0 0"), int(0));
        assert_eq!(client.call("WAIT 1 10"), int(0));
        assert_eq!(client.call("WAIT 1 x"), error("ERR timeout is not an integer or out of range"));
        assert_eq!(client.call("WAIT 1 -1"), error("ERR timeout is negative"));
        let replicas = [(); 2].map(|()| replica_of(&primary, Kind::Redis, STRICT));
        replicas.iter().for_each(wait_for_link);
        for number in 0..200 {
            client.call(&format!("SET key:{number} {number}"));
            assert_eq!(client.call("WAIT 2 20000"), int(2), "write {number}");
            for replica in &replicas {
                assert_eq!(replica.client().call(&format!("GET key:{number}")).text(), number.to_string());
            }
        }
        // In a transaction nobody waits.
        client.call("MULTI");
        client.call("SET a b");
        client.call("WAIT 5 0");
        assert!(matches!(client.call("EXEC").items(), [_, Value::Int(0..=2)]));
        replicas[0].signal("STOP");
        client.call("SET stopped 1");
        let began = Instant::now();
        assert_eq!(client.call("WAIT 2 300"), int(1));
        assert!(began.elapsed() >= Duration::from_millis(300));
        replicas[0].signal("CONT");
        assert_eq!(client.call("WAIT 2 20000"), int(2));
        let mut other = primary.client();
        other.call("SET more 1");
        assert_eq!(other.call("WAIT 2 20000"), int(2));
        other.send("WAIT 3 0");
        wait_for(&primary, "blocked_clients", "1");
        let id = client.call("CLIENT LIST").text();
        let id = id.lines().find(|line| line.contains("cmd=wait")).expect("it waits").split(['=', ' ']).nth(1);
        assert_eq!(client.call(&format!("CLIENT UNBLOCK {}", id.expect("an id"))), int(1));
        assert_eq!(other.read(), int(2));
    }
}

#[test]
fn writes_are_refused_without_enough_replicas() {
    if !have_tool("redis-server") {
        return;
    }
    let refused = error("NOREPLICAS Not enough good replicas to write.");
    let primary = Server::start(Kind::Ember { shards: 2 }, &[PRIMARY, &["--min-replicas-max-lag", "2"]].concat());
    let mut client = primary.client();
    client.call("SET a 1");
    assert_eq!(client.call("CONFIG SET min-replicas-to-write 1"), Value::ok());
    assert_eq!(client.call("SET a 2"), refused);
    let script = "return redis.call('set', KEYS[1], 1)";
    assert!(client.command(&["EVAL", script, "1", "a"]).text().contains("NOREPLICAS"));
    assert_eq!(client.call("GET a").text(), "1");
    assert_eq!(field(&primary, "min_slaves_good_slaves"), "0");
    let replica = replica_of(&primary, Kind::Redis, STRICT);
    wait_for_link(&replica);
    assert!(wait_until(PATIENCE, || client.call("SET a 3") == Value::ok()));
    assert_eq!(field(&primary, "min_slaves_good_slaves"), "1");
    replica.signal("STOP");
    assert!(wait_until(PATIENCE, || client.call("SET a 4") == refused));
    replica.signal("CONT");
    assert!(wait_until(PATIENCE, || client.call("SET a 5") == Value::ok()));
}

#[test]
fn a_replica_is_shown_as_redis_shows_one() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Ember { shards: 2 }, PRIMARY);
    let mut client = primary.client();
    assert_eq!(client.call("ROLE"), Value::Array(vec![crate::common::bulk("master"), int(0), Value::Array(vec![])]));
    let replica = replica_of(&primary, Kind::Redis, STRICT);
    wait_for_link(&replica);
    client.call("SET a 1");
    assert_eq!(client.call("WAIT 1 20000"), int(1));
    let port = replica.port().to_string();
    let told = field(&primary, "slave0");
    assert!(told.starts_with(&format!("ip=127.0.0.1,port={port},state=online,offset=")), "{told}");
    assert!(told.ends_with(",lag=0") || told.ends_with(",lag=1"), "{told}");
    assert_eq!((field(&primary, "connected_slaves"), field(&primary, "role")), ("1".to_owned(), "master".to_owned()));
    let role = client.call("ROLE");
    let [_, offset, replicas] = role.items() else { panic!("{role:?}") };
    assert_eq!(offset.number().to_string(), field(&primary, "master_repl_offset"));
    assert_eq!(replicas.items()[0].items()[1].text(), port);
    let list = client.call("CLIENT LIST TYPE replica").text();
    assert!(list.lines().count() == 1 && list.contains(" flags=S "), "{list}");
    assert_eq!(client.call("CLIENT KILL TYPE slave"), int(1));
    wait_for(&primary, "sync_partial_ok", "1");
    wait_for_link(&replica);
    // It does not count as a client.
    assert_eq!(field(&primary, "connected_clients"), "2");
}

/// A replica that does not read costs nobody anything, and is given up when too much waits for it.
#[test]
fn a_replica_that_hangs_is_given_up() {
    if !have_tool("redis-server") {
        return;
    }
    let limits = ["--client-output-buffer-limit", "replica 8mb 0 0"];
    let primary = Server::start(Kind::Ember { shards: 2 }, &[PRIMARY, &limits].concat());
    let replica = replica_of(&primary, Kind::Redis, STRICT);
    let healthy = replica_of(&primary, Kind::Redis, STRICT);
    [&replica, &healthy].into_iter().for_each(wait_for_link);
    replica.signal("STOP");
    let mut client = primary.client();
    let value = "x".repeat(100_000);
    let mut peak = 0;
    for number in 0..1000 {
        assert_eq!(client.call(&format!("SET k{} {value}", number % 10)), Value::ok());
        if number % 100 == 0 {
            let waiting: u64 = field(&primary, "mem_clients_slaves").parse().expect("a number");
            peak = peak.max(waiting);
        }
    }
    assert!(wait_until(PATIENCE, || field(&primary, "connected_slaves") == "1"));
    assert!(peak < 20 << 20, "{peak}");
    assert_eq!(client.call("WAIT 1 20000"), int(1));
    settle(&primary, &healthy);
    replica.signal("CONT");
    wait_for_link(&replica);
    settle(&primary, &replica);
}

/// What waits for a replica that does not read is bounded by the replica's own limit: no data goes for that, and nothing is
/// refused. When the replica is given up, nothing of that is left.
#[test]
fn what_waits_for_a_replica_that_hangs_evicts_nothing() {
    if !have_tool("redis-server") {
        return;
    }
    let flags = ["--maxmemory", "40mb", "--maxmemory-policy", "allkeys-lru", "--repl-backlog-size", "1mb"];
    let primary = Server::start(Kind::Ember { shards: 2 }, &[PRIMARY, &flags].concat());
    let replica = replica_of(&primary, Kind::Redis, STRICT);
    wait_for_link(&replica);
    replica.signal("STOP");
    let mut client = primary.client();
    let value = "x".repeat(100_000);
    for number in 0..800 {
        assert_eq!(client.call(&format!("SET k{} {value}", number % 10)), Value::ok());
    }
    let count = |name| field(&primary, name).parse::<u64>().expect("a number");
    assert!(count("mem_not_counted_for_evict") > 40 << 20, "{}", count("mem_not_counted_for_evict"));
    assert!(count("used_memory") > 60 << 20, "{}", count("used_memory"));
    assert_eq!((count("evicted_keys"), client.call("DBSIZE")), (0, int(10)));
    assert_eq!(client.call("CLIENT KILL TYPE replica"), int(1));
    assert!(wait_until(PATIENCE, || count("mem_not_counted_for_evict") < 1 << 20));
    replica.signal("CONT");
    wait_for_link(&replica);
    settle(&primary, &replica);
}

/// Several that come at once share one snapshot.
#[test]
fn replicas_that_come_together_share_a_snapshot() {
    if !have_tool("redis-server") {
        return;
    }
    let flags = ["--repl-diskless-sync-delay", "60", "--repl-diskless-sync-max-replicas", "3"];
    let primary = Server::start(Kind::Ember { shards: 2 }, &flags);
    primary.client().call("SET a 1");
    let replicas: Vec<Server> = (0..3).map(|_| replica_of(&primary, Kind::Redis, STRICT)).collect();
    replicas.iter().for_each(wait_for_link);
    assert_eq!(primary.output().matches("Starting BGSAVE for SYNC").count(), 1, "{}", primary.output());
    replicas.iter().for_each(|replica| settle(&primary, replica));
}

/// Who listens on a replica hears what is published here, behind what was changed before it.
#[test]
fn messages_reach_replicas() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Ember { shards: 3 }, PRIMARY);
    let replica = replica_of(&primary, Kind::Redis, STRICT);
    wait_for_link(&replica);
    let (mut listener, mut reader, mut client) = (replica.client(), replica.client(), primary.client());
    listener.call("SUBSCRIBE news");
    for number in 0..200 {
        client.send(&format!("SET key {number}"));
        match number % 3 {
            0 => client.send(&format!("PUBLISH news {number}")),
            1 => {
                let script = "return redis.call('publish', 'news', ARGV[1])";
                client.send_raw(&encode(&["EVAL", script, "0", &number.to_string()]));
            }
            _ => ["MULTI", &format!("PUBLISH news {number}"), "EXEC"].into_iter().for_each(|line| client.send(line)),
        }
        assert_eq!(client.read(), Value::ok());
        let replies = if number % 3 == 2 { 3 } else { 1 };
        (0..replies).for_each(|_| drop(client.read()));
        let message = listener.read();
        assert_eq!(message.items()[2].text(), number.to_string());
        let seen: i64 = reader.call("GET key").text().parse().expect("a number");
        assert!(number % 3 == 2 || seen >= number, "{seen} {number}");
    }
    // None of it stands in a log.
    settle(&primary, &replica);
}
