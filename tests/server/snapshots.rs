//! Snapshots: files from Redis and to it, restarts, what is wrong with files, and who may see what meanwhile.

#[path = "snapshots/disk.rs"]
mod disk;
#[path = "snapshots/peers.rs"]
mod peers;
#[path = "snapshots/sync.rs"]
mod sync;

use crate::common::server::start_and_fail;
use crate::common::{Client, Kind, Server, Value, bulk, error, have_tool, int, wait_until, words};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];
const FILE: &str = "dump.rdb";

/// Keys of every type, in every form, with deadlines and without, in several databases.
fn fill(client: &mut Client) {
    let text = "some text that is longer than others ".repeat(30);
    let mut commands: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut add = |line: String| commands.push(words(&line));
    for i in 0..2000 {
        add(format!("SET string:{i} value{i}"));
        add(format!("SET number:{i} {} EX {}", i * 7919, 1000 + i));
        add(format!("HSET small:{} field{i} {i}", i % 100));
        add(format!("HSET hash field{i} value{i}"));
        add(format!("SADD set member{i}"));
        add(format!("SADD ints {}", i * 3));
        add(format!("ZADD zset {} member{i}", f64::from(i) / 7.0));
        add(format!("RPUSH list element{i}"));
        add(format!("XADD stream {}-1 field {i} other{} x", i + 1, i % 3));
    }
    for i in 0..50 {
        add(format!("RPUSH lists:{i} a b c {i} {}", &text.replace(' ', "-")[..i * 7]));
        add(format!("SADD sets:{i} a b c {i}"));
        add(format!("SADD int-sets:{i} 1 2 {i} -70000 5000000000"));
        add(format!("ZADD zsets:{i} 1 a 2.5 b inf c -inf d {i} e"));
        add(format!("PEXPIRE lists:{i} {}", 10_000_000 + i));
        add(format!("PFADD hll:{} {i}", i % 5));
    }
    commands.push(vec![b"SET".to_vec(), b"large".to_vec(), text.repeat(100).into_bytes()]);
    commands.push(vec![b"SET".to_vec(), b"\x00\xff\r\n".to_vec(), b"\x00binary\xff".to_vec()]);
    let mut add = |line: &str| commands.push(words(line));
    add("XGROUP CREATE stream group 0");
    add("XREADGROUP GROUP group consumer COUNT 20 STREAMS stream >");
    add("XACK stream group 3-1");
    add("XDEL stream 5-1");
    add("SELECT 9");
    add("SET elsewhere 1");
    add("HSET there f v");
    add("SELECT 0");
    for some in commands.chunks(500) {
        let replies = client.pipeline(some);
        assert!(replies.iter().all(|reply| !reply.is_error()), "{replies:?}");
    }
}

fn digest(server: &Server) -> Value {
    let digest = server.client().call("DEBUG DIGEST");
    assert!(!digest.is_error());
    digest
}

/// Starts a server with a file.
fn start_with(kind: Kind, file: &Path, flags: &[&str]) -> Server {
    Server::start_with_file(kind, &[&DEBUG, flags].concat(), file, FILE)
}

fn saved_by(server: &Server) -> std::path::PathBuf {
    assert_eq!(server.client().call("SAVE"), Value::ok());
    server.folder().join(FILE)
}

#[test]
fn files_go_from_redis_here_and_back() {
    if !have_tool("redis-server") {
        return;
    }
    for flags in [&[][..], &["--hash-max-listpack-entries", "0", "--zset-max-listpack-entries", "0"]] {
        let first = Server::start(Kind::Redis, &[&DEBUG[..], flags].concat());
        fill(&mut first.client());
        let expected = digest(&first);
        let mut file = saved_by(&first);
        let mut servers = vec![first];
        for kind in
            [Kind::Ember { shards: 1 }, Kind::Redis, Kind::Ember { shards: 3 }, Kind::Ember { shards: 2 }, Kind::Redis]
        {
            let server = start_with(kind, &file, &[]);
            assert_eq!(digest(&server), expected, "{kind:?}");
            assert_eq!(server.client().call("XPENDING stream group").items()[0], int(19), "{kind:?}");
            file = saved_by(&server);
            servers.push(server);
        }
    }
}

#[test]
fn long_strings_are_compressed_where_that_is_wanted() {
    let server = Server::start(Kind::Ember { shards: 2 }, &[&DEBUG[..], &["--appendonly", "yes"]].concat());
    let mut client = server.client();
    fill(&mut client);
    let mut rng = fastrand::Rng::with_seed(3);
    for (i, len) in [19, 20, 21, 30, 100, 70_000, 3_000_000].into_iter().enumerate() {
        let random: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
        for (kind, value) in [("same", vec![b'x'; len]), ("random", random)] {
            let args = [b"SET".to_vec(), format!("{kind}:{i}").into_bytes(), value.clone()];
            assert_eq!(client.command(&args), Value::ok());
            let args = [b"HSET".to_vec(), format!("hash:{kind}:{i}").into_bytes(), value, b"value".repeat(len / 5)];
            assert_eq!(client.command(&args), int(1));
        }
    }
    let expected = digest(&server);
    let mut sizes = Vec::new();
    for compression in ["yes", "no"] {
        assert_eq!(client.call(&format!("CONFIG SET rdbcompression {compression}")), Value::ok());
        let file = saved_by(&server);
        let rewrites = server.info("aof_rewrites");
        assert!(!client.call("BGREWRITEAOF").is_error());
        assert!(wait_until(PATIENCE, || server.info("aof_rewrites") != rewrites));
        let logs = fs::read_dir(server.folder().join("appendonlydir")).expect("a folder").flatten();
        let bases = logs.map(|file| file.path()).filter(|path| path.to_string_lossy().ends_with(".base.rdb"));
        let written = |path: &std::path::PathBuf| fs::metadata(path).and_then(|of| of.modified()).ok();
        for file in [&file, &bases.max_by_key(written).expect("a base")] {
            sizes.push(fs::metadata(file).expect("a file").len());
            let mut kinds = vec![Kind::Ember { shards: 1 }];
            kinds.extend(have_tool("redis-server").then_some(Kind::Redis));
            for kind in kinds {
                assert_eq!(digest(&start_with(kind, file, &[])), expected, "{compression}, {kind:?}");
            }
        }
    }
    let (least, most) = (sizes.iter().min().expect("a size"), sizes.iter().max().expect("a size"));
    assert!(most - least > 2 * 3_000_000, "{sizes:?}");
}

#[test]
fn a_restart_with_other_shards_finds_everything() {
    let server = Server::start(Kind::Ember { shards: 3 }, &DEBUG);
    let mut client = server.client();
    fill(&mut client);
    assert_eq!(client.call("HSET limits a 1 b 2 c 3"), int(3));
    assert_eq!(client.call("HPEXPIRE limits 100000000 FIELDS 1 b").items(), [int(1)]);
    let library = "#!lua name=lib\nredis.register_function('answer', function() return 42 end)";
    assert_eq!(client.command(&["FUNCTION", "LOAD", library]), bulk("lib"));
    assert_eq!(client.call("EXPIRY POLICY SET sessions: 30m JITTER 10"), Value::ok());
    let ttls = [
        "SPEXPIRETIME set MEMBERS 3 member1 member2 none",
        "SPEXPIRETIME ints MEMBERS 2 3 6",
        "SPEXPIRETIME sets:7 MEMBERS 2 a 7",
        "ZPEXPIRETIME scores MEMBERS 3 a b c",
    ];
    client.call("SEXPIRE set 100000 MEMBERS 1 member1");
    client.call("SEXPIRE ints 200000 MEMBERS 1 3");
    client.call("SADDEX sets:7 EX 300000 MEMBERS 2 a d");
    client.call("ZADD scores 1 a 2.5 b -3 c");
    client.call("ZEXPIRE scores 400000 MEMBERS 2 a c");
    let members = |client: &mut Client| ttls.map(|line| client.call(line));
    let dated = members(&mut client);
    let (expected, deadline) = (digest(&server), client.call("HPEXPIRETIME limits FIELDS 1 b"));
    client.send("SHUTDOWN SAVE");
    let mut server = server;
    assert!(server.wait_for_end(PATIENCE).is_some_and(|(status, _)| status.success()));
    for _ in 0..3 {
        server = server.restart(&DEBUG);
        let mut client = server.client();
        assert_eq!(digest(&server), expected);
        assert_eq!(client.call("HPEXPIRETIME limits FIELDS 1 b"), deadline);
        assert_eq!(members(&mut client), dated);
        assert_eq!(client.call("FCALL answer 0"), int(42));
        assert!(format!("{:?}", client.call("EXPIRY POLICY GET sessions:")).contains("30m"));
        assert_eq!(client.call("DEBUG RELOAD"), Value::ok());
        assert_eq!(digest(&server), expected);
        assert_eq!(client.call("FCALL answer 0"), int(42));
    }
    assert_eq!(server.info("rdb_changes_since_last_save").as_deref(), Some("0"));
    assert_eq!(server.client().call("SET one 1"), Value::ok());
    assert_eq!(server.info("rdb_changes_since_last_save").as_deref(), Some("1"));
}

/// They were alive in the file, and are dead now: nobody sees them, and each is told as a death.
#[test]
fn what_has_died_meanwhile_is_hidden_and_told() {
    for (flags, told) in [(&[][..], 300), (&["--expired-while-down", "no"], 0)] {
        let server = Server::start(Kind::Ember { shards: 2 }, &["--active-expire-enabled", "no"]);
        let mut client = server.client();
        for i in 0..300 {
            assert_eq!(client.call(&format!("SET short:{i} 1 PX 1")), Value::ok());
            assert_eq!(client.call(&format!("SET long:{i} 1 EX 1000")), Value::ok());
        }
        let file = saved_by(&server);
        assert!(wait_until(PATIENCE, || client.call("EXISTS short:299") == int(0)));
        let again = start_with(Kind::Ember { shards: 3 }, &file, flags);
        let mut client = again.client();
        assert_eq!(client.call("DBSIZE"), int(300));
        assert!(client.call("KEYS short:*").items().is_empty());
        assert!(wait_until(PATIENCE, || again.info("expired_keys") == Some(told.to_string())));
        assert_eq!(again.info("rdb_last_load_keys_expired").as_deref(), Some("300"));
        assert_eq!(again.info("rdb_last_load_keys_loaded").as_deref(), Some("300"));
    }
}

/// The file comes slowly: it is a pipe.
#[test]
fn nobody_sees_data_before_all_is_there() {
    let source = Server::start(Kind::Ember { shards: 1 }, &DEBUG);
    fill(&mut source.client());
    let (expected, bytes) = (digest(&source), fs::read(saved_by(&source)).expect("a file"));
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join(FILE);
    assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    let server = Server::start_without_waiting(Kind::Ember { shards: 2 }, &DEBUG, folder);
    let mut file = fs::File::options().write(true).open(&pipe).expect("the server reads");
    file.write_all(&bytes[..bytes.len() / 2]).expect("a reader");
    assert!(wait_until(PATIENCE, || Client::connect(server.port()).is_ok()));
    let loading = error("LOADING Redis is loading the dataset in memory");
    let mut client = server.client();
    let no_data = ["PING", "GET string:1", "SET a 1", "EVAL return(1) 0", "DBSIZE", "SYNC", "PSYNC ? -1", "WATCH a"];
    for refused in no_data.into_iter().chain(["CONFIG SET repl-diskless-load swapdb"]) {
        assert_eq!(client.call(refused), loading, "{refused}");
    }
    assert_eq!(client.call("MULTI"), Value::ok());
    assert_eq!(client.call("GET string:1"), loading);
    assert!(client.call("EXEC").text().starts_with("EXECABORT"));
    assert_eq!(server.info("loading").as_deref(), Some("1"));
    assert!(server.info("loading_loaded_bytes").is_some());
    file.write_all(&bytes[bytes.len() / 2..]).expect("a reader");
    drop(file);
    assert!(wait_until(PATIENCE, || client.call("PING") != loading));
    assert_eq!(server.info("loading").as_deref(), Some("0"));
    assert_eq!(digest(&server), expected);
}

#[test]
fn files_that_are_wrong_are_said_to_be_and_change_nothing_else() {
    let server = Server::start(Kind::Ember { shards: 2 }, &DEBUG);
    let mut client = server.client();
    fill(&mut client);
    let path = saved_by(&server);
    let whole = fs::read(&path).expect("a file");
    let mut rng = fastrand::Rng::with_seed(17);
    let mut reload = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("a file");
        client.call("DEBUG RELOAD NOSAVE NOFLUSH MERGE")
    };
    let wrong = error("ERR Error trying to load the RDB dump");
    for _ in 0..100 {
        let mut bytes = whole.clone();
        match rng.u8(..4) {
            0 => bytes.truncate(rng.usize(..whole.len())),
            1 => drop(bytes.drain(rng.usize(9..500)..rng.usize(500..whole.len()))),
            2 => drop(bytes.splice(9..9, whole[rng.usize(..100)..200].iter().copied())),
            _ => bytes[rng.usize(..whole.len() - 8)] ^= 1 << rng.u8(..8),
        }
        if bytes != whole {
            assert_eq!(reload(&bytes), wrong);
        }
    }
    assert_eq!(reload(b""), wrong);
    assert_eq!(reload(b"REDIS0099"), wrong);
    assert_eq!(reload(b"no such file at all"), wrong);
    // A string of 2^60 bytes, of which there are five.
    assert_eq!(reload(b"REDIS0010\x00\x01k\x81\x10\x00\x00\x00\x00\x00\x00\x00hello"), wrong);
    assert_eq!(reload(&whole), Value::ok());
    assert_eq!(client.call("GET string:7"), bulk("value7"));
}

#[test]
fn a_start_with_a_wrong_file_fails_and_leaves_it_alone() {
    let server = Server::start(Kind::Ember { shards: 2 }, &[]);
    fill(&mut server.client());
    let whole = fs::read(saved_by(&server)).expect("a file");
    for (bytes, reason) in [
        (&whole[..whole.len() / 2], "Unexpected EOF reading RDB file"),
        (b"REDIS0099 and more".as_slice(), "Can't handle RDB format version"),
        (b"something else".as_slice(), "Wrong signature"),
        (b"".as_slice(), "Unexpected EOF reading RDB file"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(FILE), bytes).expect("a file");
        let dir = folder.path().to_str().expect("a name");
        let failed = start_and_fail(Kind::Ember { shards: 2 }, 0, &["--dir", dir, "--unixsocket", &format!("{dir}/s")]);
        assert!(!failed.status.success() && failed.output.contains(reason), "{reason}: {}", failed.output);
        assert_eq!(fs::read(folder.path().join(FILE)).expect("a file"), bytes);
    }
}

#[test]
fn a_save_that_fails_leaves_the_old_file_and_the_server() {
    let server = Server::start(Kind::Ember { shards: 2 }, &["--enable-protected-configs", "yes"]);
    let mut client = server.client();
    assert_eq!(client.call("SET k old"), Value::ok());
    let path = saved_by(&server);
    let old = fs::read(&path).expect("a file");
    fs::create_dir(server.folder().join("folder")).expect("a folder");
    fs::write(server.folder().join("folder/x"), "").expect("a file");
    assert_eq!(client.call("CONFIG SET dbfilename folder"), Value::ok());
    let failed = client.call("SAVE").text();
    assert!(failed.starts_with("ERR Error saving DB on disk: "), "{failed}");
    assert_eq!(client.call("SET k new"), Value::ok());
    assert_eq!(fs::read(&path).expect("a file"), old);
    let left = || fs::read_dir(server.folder()).expect("a folder").flatten().map(|of| of.file_name());
    assert!(left().all(|name| !name.to_string_lossy().starts_with("temp")), "{:?}", left().collect::<Vec<_>>());
    let wrong = client.call("CONFIG SET dbfilename a/b").text();
    assert!(wrong.contains("dbfilename can't be a path, just a filename"), "{wrong}");
    assert_eq!(client.call("CONFIG SET dbfilename dump.rdb"), Value::ok());
    assert_eq!(client.call("SAVE"), Value::ok());
    assert_ne!(fs::read(&path).expect("a file"), old);
}

#[test]
fn a_file_has_one_server() {
    let first = Server::start(Kind::Ember { shards: 1 }, &[]);
    let dir = first.folder().to_str().expect("a name").to_owned();
    let second = Server::start(Kind::Ember { shards: 2 }, &["--dir", &dir]);
    let mut client = second.client();
    assert_eq!(first.client().call("SAVE"), Value::ok());
    let refused = client.call("SAVE").text();
    assert!(refused.contains("belongs to another server"), "{refused}");
    assert_eq!(client.call("SET a 1"), Value::ok());
    let flags = ["--dir", &dir, "--save", "60 1", "--unixsocket", "third"];
    let failed = start_and_fail(Kind::Ember { shards: 1 }, 0, &flags);
    assert!(!failed.status.success() && failed.output.contains("belongs to another server"), "{}", failed.output);
}

/// A command at random, on keys of all types, of which the large ones last.
fn any_command(rng: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let key = |rng: &mut fastrand::Rng, kind: &str| format!("{kind}:{}", rng.u32(..40));
    let n = rng.u32(..100_000);
    let line = match rng.u32(..48) {
        0 => format!("SET {} value{n}", key(rng, "s")),
        1 => format!("SET {} {n} EX {}", key(rng, "s"), 1000 + n),
        2 => format!("APPEND {} x{n}", key(rng, "a")),
        3 => format!("INCRBY {} {n}", key(rng, "n")),
        4 => format!("SETRANGE {} {} x{n}", key(rng, "a"), n % 300),
        5 => format!("GETDEL {}", key(rng, "s")),
        6 => format!("DEL {} {}", key(rng, "s"), key(rng, "h")),
        7 => format!("EXPIRE {} {}", key(rng, "s"), 1000 + n),
        8 => format!("PERSIST {}", key(rng, "s")),
        9 => format!("HSET {} f{} v{n}", key(rng, "h"), n % 1000),
        10 => format!("HDEL {} f{}", key(rng, "h"), n % 1000),
        11 => format!("HINCRBY {} count {n}", key(rng, "h")),
        12 => format!("HPEXPIRE {} {} FIELDS 1 f{}", key(rng, "h"), 10_000_000 + n, n % 1000),
        13 => format!("RPUSH {} e{n} f{n}", key(rng, "l")),
        14 => format!("LPOP {} 3", key(rng, "l")),
        15 => format!("LSET {} 0 changed{n}", key(rng, "l")),
        16 => format!("LMOVE {} {} LEFT RIGHT", key(rng, "l"), key(rng, "l")),
        17 => format!("SADD {} m{n} {n}", key(rng, "t")),
        18 => format!("SPOP {}", key(rng, "t")),
        19 => format!("SUNIONSTORE {} {} {}", key(rng, "t"), key(rng, "t"), key(rng, "t")),
        20 => format!("ZADD {} {n} m{}", key(rng, "z"), n % 1000),
        21 => format!("ZPOPMIN {}", key(rng, "z")),
        22 => format!("ZINCRBY {} 3 m{}", key(rng, "z"), n % 1000),
        23 => format!("XADD {} * f {n}", key(rng, "x")),
        24 => format!("XTRIM {} MAXLEN {}", key(rng, "x"), n % 50),
        25 => format!("RENAME {} {}", key(rng, "s"), key(rng, "s")),
        26 => format!("COPY {} {} REPLACE", key(rng, "h"), key(rng, "h")),
        27 => format!("SETBIT {} {} 1", key(rng, "b"), n % 3000),
        28 => format!("PFADD {} {n}", key(rng, "p")),
        29 => format!("MSET {} 1 {} 2 {} 3", key(rng, "s"), key(rng, "s"), key(rng, "n")),
        30 => format!("HSET huge-h f{} v{n}", n % 40_000),
        31 => format!("ZADD huge-z {n} m{}", n % 40_000),
        32 => format!("LREM huge-l 1 e{n}"),
        33 => format!("HDEL huge-h f{}", n % 40_000),
        34 if n.is_multiple_of(2) => format!("SPEXPIRE huge-t {} MEMBERS 1 m{}", 10_000_000 + n, n % 40_000),
        35 if n.is_multiple_of(2) => format!("ZPEXPIRE huge-z {} MEMBERS 1 m{}", 10_000_000 + n, n % 40_000),
        34 => format!("HPEXPIRE huge-h {} FIELDS 1 f{}", 10_000_000 + n, n % 40_000),
        35 => format!("ZREM huge-z m{}", n % 40_000),
        36 => format!("ZREMRANGEBYRANK huge-z {} {}", n % 20_000, n % 20_000 + 50),
        37 => format!("LSET huge-l {} changed{n}", n % 10_000),
        38 => format!("LINSERT huge-l BEFORE e{} inserted", n % 30_000),
        39 => format!("LPOP huge-l {}", n % 30),
        40 => format!("RPUSH huge-l e{n} f{n} g{n}"),
        41 => format!("SADD huge-t m{n}"),
        42 => format!("SREM huge-t m{n}"),
        43 => format!("XADD huge-x * f {n}"),
        44 => format!("XDEL huge-x {}-1", n % 10_000),
        45 => format!("SETRANGE huge-s {} changed{n}", n * 20),
        46 if n < 3_000 => format!("RENAME huge-t{} huge-t{}", "x".repeat(n as usize % 3), "x".repeat(n as usize % 2)),
        46 if n < 5_000 => {
            ["DEL huge-z", "XTRIM huge-x MAXLEN 2000", "SET huge-s x", "LTRIM huge-l 100 -1"][n as usize % 4].into()
        }
        _ => format!("DEL key:{n}"),
    };
    words(&line)
}

/// Values that are written in parts.
fn fill_huge(client: &mut Client) {
    let mut commands = vec![words(&format!("SETRANGE huge-s {} x", 3 << 20))];
    for from in (0..40_000).step_by(100) {
        let all = |text: fn(i32) -> String| (from..from + 100).map(text).collect::<Vec<_>>().join(" ");
        commands.push(words(&format!("RPUSH huge-l {}", all(|i| format!("e{i}")))));
        commands.push(words(&format!("SADD huge-t {}", all(|i| format!("m{i}")))));
        commands.push(words(&format!("ZADD huge-z {}", all(|i| format!("{i} m{i}")))));
        commands.push(words(&format!("HSET huge-h {}", all(|i| format!("f{i} v{i}")))));
    }
    (1..10_000).for_each(|i| commands.push(words(&format!("XADD huge-x {i}-1 f {i}"))));
    for some in commands.chunks(500) {
        assert!(client.pipeline(some).iter().all(|reply| !reply.is_error()));
    }
}

/// While it is written everything goes on changing, in every way; the file has what was there when BGSAVE was answered.
#[test]
fn a_file_is_what_was_there_when_it_began() {
    let begun = Value::Simple("Background saving started".into());
    for (shards, seed) in [(1, 1), (3, 2), (2, 3)] {
        let server = Server::start(Kind::Ember { shards }, &DEBUG);
        let mut client = server.client();
        assert_eq!(client.call("DEBUG POPULATE 150000 key 40"), Value::ok());
        fill_huge(&mut client);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut load = |client: &mut Client, count: usize| {
            let commands: Vec<_> = (0..count).map(|_| any_command(&mut rng)).collect();
            client.pipeline(&commands);
        };
        let mut meanwhile = 0;
        for round in 0..4 {
            (0..20).for_each(|_| load(&mut client, 100));
            let expected = digest(&server);
            assert_eq!(client.call("BGSAVE"), begun);
            while server.info("rdb_bgsave_in_progress").as_deref() == Some("1") {
                load(&mut client, 200);
                meanwhile += 200;
            }
            assert_eq!(server.info("rdb_last_bgsave_status").as_deref(), Some("ok"));
            let read = start_with(Kind::Ember { shards: 2 }, &server.folder().join(FILE), &[]);
            assert_eq!(digest(&read), expected, "round {round} on {shards} shards");
        }
        assert!(meanwhile > 0, "nothing has changed while it was written");
    }
}

/// There is nothing any more of what was to be written: it begins anew, with what is there then.
#[test]
fn databases_may_be_emptied_and_change_places_meanwhile() {
    let server = Server::start(Kind::Ember { shards: 2 }, &DEBUG);
    let mut client = server.client();
    for command in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 3"] {
        // So much that the disk is behind.
        assert_eq!(client.call("DEBUG POPULATE 100000 key 500"), Value::ok());
        assert_eq!(client.call("SET other 1"), Value::ok());
        let saves = server.info("rdb_saves");
        assert!(!client.call("BGSAVE").is_error());
        assert_eq!(client.call("SAVE"), error("ERR Background save already in progress"));
        assert_eq!(client.call(command), Value::ok());
        assert_eq!(client.call("SET last 1"), Value::ok());
        assert!(wait_until(PATIENCE, || server.info("rdb_bgsave_in_progress").as_deref() == Some("0")));
        assert_ne!(server.info("rdb_saves"), saves);
        let read = start_with(Kind::Ember { shards: 1 }, &server.folder().join(FILE), &[]);
        assert_eq!(read.client().call("EXISTS key:7"), int(0), "{command}");
        assert_eq!(client.call("FLUSHALL"), Value::ok());
    }
}

/// Redis makes a snapshot beside the rewrite of its log. Here there is one at a time, and it is said which.
#[test]
fn what_is_under_way_is_said() {
    let server = Server::start(Kind::Ember { shards: 2 }, &[&DEBUG[..], &["--appendonly", "yes"]].concat());
    let mut client = server.client();
    assert_eq!(client.call("DEBUG POPULATE 100000 key 500"), Value::ok());
    assert!(!client.call("BGREWRITEAOF").is_error());
    assert_eq!(client.call("SAVE"), error("ERR Background append only file rewriting already in progress"));
    assert!(wait_until(PATIENCE, || server.info("aof_rewrite_in_progress").as_deref() == Some("0")));
    assert_eq!(client.call("SAVE"), Value::ok());
}

/// Those who write while it is written see it as one moment.
#[test]
fn a_file_is_of_one_moment() {
    let server = Server::start(Kind::Ember { shards: 3 }, &DEBUG);
    let mut client = server.client();
    const ACCOUNTS: usize = 300;
    for i in 0..ACCOUNTS {
        assert_eq!(client.call(&format!("SET account:{i} 1000")), Value::ok());
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let (mut client, mut rng) = (server.client(), fastrand::Rng::with_seed(seed));
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let (from, to, sum) = (rng.usize(..ACCOUNTS), rng.usize(..ACCOUNTS), rng.u32(1..50));
                    let transfer = [
                        words("MULTI"),
                        words(&format!("DECRBY account:{from} {sum}")),
                        words(&format!("INCRBY account:{to} {sum}")),
                        words("EXEC"),
                    ];
                    assert!(client.pipeline(&transfer).iter().all(|reply| !reply.is_error()));
                }
            });
        }
        for round in 0..10 {
            let file = match round % 2 {
                0 => saved_by(&server),
                _ => {
                    assert!(!client.call("BGSAVE").is_error());
                    let goes_on = || server.info("rdb_bgsave_in_progress").as_deref() == Some("1");
                    assert!(wait_until(PATIENCE, || !goes_on()));
                    server.folder().join(FILE)
                }
            };
            let folder = tempfile::tempdir().expect("a folder");
            let copy = folder.path().join(FILE);
            fs::copy(&file, &copy).expect("a copy");
            let read = start_with(Kind::Ember { shards: 2 }, &copy, &[]);
            let mut client = read.client();
            let sum: i64 = (0..ACCOUNTS)
                .map(|i| client.call(&format!("GET account:{i}")).text().parse::<i64>().expect("a number"))
                .sum();
            assert_eq!(sum, 1000 * ACCOUNTS as i64);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn save_points_write_by_themselves() {
    let server = Server::start(Kind::Ember { shards: 2 }, &["--save", "3600 1", "--save", "1 3"]);
    let mut client = server.client();
    assert_eq!(client.call("CONFIG GET save").items()[1], bulk("3600 1 1 3"));
    assert_eq!(client.call("MSET a 1 b 2 c 3 d 4"), Value::ok());
    assert!(wait_until(PATIENCE, || server.info("rdb_saves").as_deref() == Some("1")));
    assert!(server.output().contains("3 changes in 1 seconds. Saving..."));
    assert_eq!(server.info("rdb_changes_since_last_save").as_deref(), Some("0"));
    for wrong in ["CONFIG SET save x", "CONFIG SET save 60"] {
        assert!(client.call(wrong).text().contains("Invalid save parameters"), "{wrong}");
    }
    assert_eq!(client.command(&["CONFIG", "SET", "save", ""]), Value::ok());
    assert_eq!(client.call("CONFIG GET save").items()[1], bulk(""));
    assert_eq!(client.command(&["CONFIG", "SET", "save", "900 1 300 10"]), Value::ok());
    // Whoever asks it to end has it saved.
    assert_eq!(client.call("SET last 1"), Value::ok());
    let mut server = server;
    server.signal("TERM");
    assert!(server.wait_for_end(PATIENCE).is_some_and(|(status, _)| status.success()));
    let again = server.restart(&[]);
    assert_eq!(again.client().call("GET last"), bulk("1"));
}

/// With and without save points, and with a folder in the file's place.
#[test]
fn signals_save_as_they_are_told_to() {
    let ends = |flags: &[&str], signal: &str, setting: &str, is_in_the_way: bool| {
        let flags = [flags, &["--enable-protected-configs", "yes"]].concat();
        on_every_kind(&flags, |mut server| {
            let mut client = server.client();
            let name = if signal == "INT" { "shutdown-on-sigint" } else { "shutdown-on-sigterm" };
            assert_eq!(client.command(&["CONFIG", "SET", name, setting]), Value::ok());
            assert_eq!(client.command(&["CONFIG", "GET", name]).items()[1], bulk(setting));
            if is_in_the_way {
                fs::create_dir(server.folder().join("folder")).expect("a folder");
                fs::write(server.folder().join("folder/x"), "").expect("a file");
                assert_eq!(client.call("CONFIG SET dbfilename folder"), Value::ok());
            }
            assert_eq!(client.call("SET a 1"), Value::ok());
            server.signal(signal);
            if is_in_the_way && setting == "default" {
                assert!(wait_until(PATIENCE, || server.output().contains("can't exit")));
                assert_eq!(client.call("GET a"), bulk("1"));
                return None;
            }
            assert!(server.wait_for_end(PATIENCE).is_some_and(|(status, _)| status.success()));
            Some(server.folder().join(FILE).exists())
        })
    };
    let points: &[&str] = &["--save", "3600 100000"];
    for (flags, signal, setting, is_saved) in [
        (points, "TERM", "default", true),
        (points, "TERM", "nosave", false),
        (points, "INT", "nosave now", false),
        (&[], "TERM", "default", false),
        (&[], "INT", "save", true),
    ] {
        for saved in ends(flags, signal, setting, false) {
            assert_eq!(saved, Some(is_saved), "{flags:?} {signal} {setting}");
        }
    }
    assert!(ends(points, "TERM", "default", true).into_iter().all(|saved| saved.is_none()));
    assert!(ends(points, "TERM", "force", true).into_iter().all(|saved| saved == Some(false)));
}

fn on_every_kind<T>(flags: &[&str], with: impl Fn(Server) -> T) -> Vec<T> {
    let redis = crate::common::server::have_redis().then_some(Kind::Redis);
    let kinds = [Kind::Ember { shards: 1 }, Kind::Ember { shards: 2 }].into_iter().chain(redis);
    kinds.map(|kind| with(Server::start(kind, flags))).collect()
}

/// What FLUSHALL has deleted does not come back from an older file, however far away the next save point is.
#[test]
fn what_was_deleted_with_all_keys_does_not_come_back() {
    let mut server = Server::start(Kind::Ember { shards: 2 }, &["--save", "3600 100000"]);
    let mut client = server.client();
    assert_eq!(client.call("MSET a 1 b 2 c 3 d 4"), Value::ok());
    assert_eq!(client.call("SAVE"), Value::ok());
    assert_eq!(client.call("FLUSHALL"), Value::ok());
    assert!(wait_until(PATIENCE, || server.info("rdb_saves").as_deref() == Some("2")));
    assert_eq!(server.info("rdb_changes_since_last_save").as_deref(), Some("0"));
    server.signal("KILL");
    assert!(server.wait_for_end(PATIENCE).is_some());
    let again = server.restart(&[]);
    assert_eq!(again.client().call("DBSIZE"), int(0));
}

/// Where what is written would not come to the disk, nothing is, until it does.
#[test]
fn writes_stop_after_a_snapshot_has_failed() {
    let flags = ["--save", "1 1", "--enable-protected-configs", "yes"];
    let server = Server::start(Kind::Ember { shards: 2 }, &flags);
    let mut client = server.client();
    fs::create_dir(server.folder().join("folder")).expect("a folder");
    fs::write(server.folder().join("folder/x"), "").expect("a file");
    assert_eq!(client.call("CONFIG SET dbfilename folder"), Value::ok());
    assert_eq!(client.call("SET a 1"), Value::ok());
    let misconf =
        |reply: &Value| reply.is_error() && reply.text().starts_with("MISCONF Redis is configured to save RDB");
    assert!(wait_until(PATIENCE, || misconf(&client.call("SET other 2"))));
    assert_eq!(server.info("rdb_last_bgsave_status").as_deref(), Some("err"));
    assert!(misconf(&client.call("PING")) && misconf(&client.call("DEL a")));
    assert!(client.command(&["EVAL", "return redis.call('set', KEYS[1], 1)", "1", "a"]).text().starts_with("MISCONF"));
    assert_eq!(client.call("GET a"), bulk("1"));
    assert_eq!(client.call("CONFIG SET stop-writes-on-bgsave-error no"), Value::ok());
    assert_eq!(client.call("SET a 2"), Value::ok());
    assert_eq!(client.call("CONFIG SET stop-writes-on-bgsave-error yes"), Value::ok());
    assert!(misconf(&client.call("SET a 3")));
    assert_eq!(client.call("CONFIG SET dbfilename dump.rdb"), Value::ok());
    assert!(!client.call("BGSAVE").is_error());
    assert!(wait_until(PATIENCE, || client.call("SET a 3") == Value::ok()));
    assert_eq!(server.info("rdb_last_bgsave_status").as_deref(), Some("ok"));
}
