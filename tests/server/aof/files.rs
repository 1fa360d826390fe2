//! The files of the log: what Redis makes of them, what is made of Redis's, and what is wrong with them.

use crate::common::server::start_and_fail;
use crate::common::{Client, Kind, Server, Value, bulk, encode, have_tool, int, on_every_server, wait_until, words};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);
const ON: [&str; 4] = ["--appendonly", "yes", "--enable-debug-command", "yes"];

fn folder(server: &Server) -> PathBuf {
    server.folder().join("appendonlydir")
}

fn until_loaded(server: &Server) {
    assert!(wait_until(PATIENCE, || server.info("loading").as_deref() == Some("0")), "it is not loaded");
}

fn fill(client: &mut Client) {
    for line in [
        "SET plain 1",
        "SET late 2 EX 1000",
        "INCR plain",
        "MSET a 1 b 2 c 3 d 4",
        "HSET h f 1 g 2",
        "LPUSH l 1 2 3",
        "SADD s a b c",
        "ZADD z 1 a 2 b",
        "XADD x 5-1 f v",
        "RENAME a a2",
        "SUNIONSTORE s2 s none",
        "EXPIRE h 5000",
        "SELECT 3",
        "SET elsewhere 1",
        "SELECT 0",
        "SWAPDB 3 4",
    ] {
        assert!(!client.call(line).is_error(), "{line}");
    }
    let script = "redis.call('SET', KEYS[1], 1) redis.call('SET', KEYS[2], 2) return 1";
    assert_eq!(client.command(&["EVAL", script, "2", "e1", "e2"]), int(1));
}

fn digest(server: &Server) -> Value {
    server.client().call("DEBUG DIGEST")
}

fn rewrite(server: &Server) {
    assert!(!server.client().call("BGREWRITEAOF").is_error());
    assert!(wait_until(PATIENCE, || server.info("aof_rewrite_in_progress").as_deref() == Some("0")));
    assert_eq!(server.info("aof_last_bgrewrite_status").as_deref(), Some("ok"));
}

/// Ends the server without a word, and starts it with the log on.
pub fn killed(server: Server) -> Server {
    server.signal("KILL");
    let server = server.restart(&ON);
    until_loaded(&server);
    server
}

/// A folder with a copy of the log.
fn copy_of(server: &Server) -> TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    let target = copy.path().join("appendonlydir");
    fs::create_dir(&target).expect("a folder");
    for entry in fs::read_dir(folder(server)).expect("a folder") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), target.join(entry.file_name())).expect("a copy");
    }
    copy
}

fn start_in(home: TempDir, kind: Kind) -> Server {
    let server = Server::start_without_waiting(kind, &ON, home);
    assert!(wait_until(PATIENCE, || Client::connect(server.port()).is_ok()));
    until_loaded(&server);
    server
}

fn redis_finds_the_same(server: &Server) {
    let checked = Command::new("redis-check-aof").arg(folder(server).join("appendonly.aof.manifest")).output();
    let checked = checked.expect("redis-check-aof");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let copy = copy_of(server);
    let expected = digest(server);
    let redis = start_in(copy, Kind::Redis);
    assert_eq!(digest(&redis), expected);
}

/// Collections that are written in parts, and what streams have beside their entries.
fn fill_more(client: &mut Client) {
    for from in (0..3_000).step_by(100) {
        let all = |text: fn(i32) -> String| (from..from + 100).map(text).collect::<Vec<_>>().join(" ");
        for line in [
            format!("RPUSH big:l {}", all(|i| format!("element{i}"))),
            format!("SADD big:s {}", all(|i| format!("member{i}"))),
            format!("ZADD big:z {}", all(|i| format!("{}.5 member{i}", i % 70))),
            format!("HSET big:h {}", all(|i| format!("field{i} value{i}"))),
        ] {
            assert!(!client.call(&line).is_error());
        }
    }
    for i in 1..2_000 {
        assert!(!client.call(&format!("XADD big:x {i}-1 field{} value{i}", i % 3)).is_error());
    }
    for line in [
        "EXPIRE big:l 5000",
        "XDEL big:x 7-1 1999-1",
        "XGROUP CREATE big:x readers 5-0",
        "XREADGROUP GROUP readers one COUNT 30 STREAMS big:x >",
        "XREADGROUP GROUP readers two COUNT 3 STREAMS big:x >",
        "XACK big:x readers 9-1",
        "XGROUP CREATECONSUMER big:x readers idle",
        "XADD empty:x 5-5 a b",
        "XDEL empty:x 5-5",
        "XGROUP CREATE never:x readers $ MKSTREAM",
        "SET text 0",
        "SETRANGE text 2000000 end",
        "SETBIT bits 9000 1",
    ] {
        assert!(!client.call(line).is_error(), "{line}");
    }
}

/// The base is a file of commands where that is wanted, which redis-server reads as well.
#[test]
fn the_base_may_be_commands() {
    let server = Server::start(Kind::Ember { shards: 3 }, &[&ON[..], &["--aof-use-rdb-preamble", "no"]].concat());
    until_loaded(&server);
    let mut client = server.client();
    fill(&mut client);
    fill_more(&mut client);
    rewrite(&server);
    assert_eq!(client.call("SET after 1"), Value::ok());
    if have_tool("redis-server") {
        redis_finds_the_same(&server);
    }
    // (Fields of hashes with deadlines are none of redis-server 7.0's.)
    assert!(!client.call("HPEXPIRE big:h 10000000 FIELDS 2 field1 field2").is_error());
    rewrite(&server);
    let base = folder(&server).join("appendonly.aof.3.base.aof");
    let bytes = fs::read(&base).expect("the base");
    assert!(bytes.starts_with(b"#EMBERDB "));
    let asked = [
        "XINFO STREAM empty:x",
        "XINFO GROUPS big:x",
        "XPENDING big:x readers",
        "XPENDING big:x readers - + 100 two",
        "XINFO GROUPS never:x",
        "PEXPIRETIME big:l",
        "HPEXPIRETIME big:h FIELDS 3 field1 field2 field3",
    ];
    let shown = |server: &Server| {
        let mut client = server.client();
        let mut replies: Vec<String> = asked.iter().map(|line| format!("{:?}", client.call(line))).collect();
        // How long ago entries were delivered goes on.
        replies[3] = replies[3].split("Int").filter(|part| !part.contains("Bulk")).count().to_string();
        replies
    };
    let (expected, replies) = (digest(&server), shown(&server));
    server.signal("KILL");
    let server = server.restart(&[&ON[..], &["--shards", "2"]].concat());
    until_loaded(&server);
    assert_eq!((digest(&server), shown(&server)), (expected, replies));
    server.signal("KILL");
    // All of it was there before it was the base, so that no crash has torn it.
    let folder = server.folder().to_owned();
    for (from, to) in [(bytes.len() / 2, bytes.len() / 2 + 1), (bytes.len() - 20, bytes.len())] {
        let mut damaged = bytes.clone();
        damaged[from..to].iter_mut().for_each(|byte| *byte ^= 1);
        fs::write(&base, &damaged).expect("a file");
        let dir = folder.to_str().expect("a name");
        let failed =
            start_and_fail(Kind::Ember { shards: 2 }, 0, &[&ON[..], &["--dir", dir, "--unixsocket", "s"]].concat());
        assert!(failed.output.contains("damaged at byte"), "{}", failed.output);
    }
}

#[test]
fn a_restart_finds_everything_and_so_does_redis() {
    for shards in [1, 3] {
        let server = Server::start(Kind::Ember { shards }, &ON);
        until_loaded(&server);
        fill(&mut server.client());
        let (expected, late) = (digest(&server), server.client().call("PEXPIRETIME late"));
        server.signal("KILL");
        let server = server.restart(&["--appendonly", "yes", "--enable-debug-command", "yes", "--shards", "2"]);
        until_loaded(&server);
        assert_eq!(digest(&server), expected);
        assert_eq!(server.client().call("PEXPIRETIME late"), late);
        if !have_tool("redis-server") {
            continue;
        }
        for rewritten in [false, true] {
            if rewritten {
                let mut client = server.client();
                rewrite(&server);
                // The database is empty by then, and full again.
                assert_eq!(client.call("FLUSHALL"), Value::ok());
                fill(&mut client);
            }
            redis_finds_the_same(&server);
        }
    }
}

#[test]
fn what_redis_has_written_is_read() {
    if !have_tool("redis-server") {
        return;
    }
    for preamble in ["yes", "no"] {
        let redis = Server::start(Kind::Redis, &[&ON[..], &["--aof-use-rdb-preamble", preamble]].concat());
        let mut client = redis.client();
        fill(&mut client);
        assert!(!client.call("BGREWRITEAOF").is_error());
        assert!(wait_until(PATIENCE, || redis.info("aof_rewrite_in_progress").as_deref() == Some("0")));
        assert_eq!(client.call("INCR plain"), int(3));
        let expected = digest(&redis);
        assert_eq!(client.call("CONFIG SET appendfsync always"), Value::ok());
        let copy = copy_of(&redis);
        let server = start_in(copy, Kind::Ember { shards: 2 });
        assert_eq!(digest(&server), expected);
        // It goes on in the same files.
        assert_eq!(server.client().call("INCR plain"), int(4));
        let server = killed(server);
        assert_eq!(server.client().call("GET plain"), bulk("4"));
    }
}

#[test]
fn an_old_single_file_is_taken_over() {
    let home = tempfile::tempdir().expect("a folder");
    fs::write(
        home.path().join("appendonly.aof"),
        "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n",
    )
    .expect("a file");
    let server = start_in(home, Kind::Ember { shards: 2 });
    assert_eq!(server.client().call("GET a"), bulk("1"));
    assert!(folder(&server).join("appendonly.aof").exists());
    assert!(!server.folder().join("appendonly.aof").exists());
}

/// Files that somebody has joined by hand, or cut: each begins in the first database, as in Redis.
#[test]
fn each_file_begins_in_the_first_database() {
    for kind in [Kind::Redis, Kind::Ember { shards: 2 }] {
        if kind == Kind::Redis && !have_tool("redis-server") {
            continue;
        }
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("appendonlydir");
        fs::create_dir(&folder).expect("a folder");
        let manifest = "file a.aof seq 1 type b\nfile b.aof seq 1 type i\nfile c.aof seq 2 type i\n";
        for (name, lines) in
            [("a.aof", &["SELECT 3", "SET a 1"][..]), ("b.aof", &["SET b 1", "SELECT 4"]), ("c.aof", &["SET c 1"])]
        {
            let bytes: Vec<u8> = lines.iter().flat_map(|line| encode(&words(line))).collect();
            fs::write(folder.join(name), bytes).expect("a file");
        }
        fs::write(folder.join("appendonly.aof.manifest"), manifest).expect("a file");
        let server = start_in(home, kind);
        let mut client = server.client();
        for (db, names) in [(0, 2), (3, 1), (4, 0)] {
            client.call(&format!("SELECT {db}"));
            assert_eq!(client.call("DBSIZE"), int(names), "{kind:?}: {db}");
        }
    }
}

fn last_increment(server: &Server) -> PathBuf {
    let text = fs::read_to_string(folder(server).join("appendonly.aof.manifest")).expect("a manifest");
    let line = text.lines().rfind(|line| line.ends_with("type i")).expect("an increment");
    folder(server).join(line.split(' ').nth(1).expect("a name"))
}

#[test]
fn a_torn_end_is_cut_and_damage_in_the_middle_is_not() {
    let server = Server::start(Kind::Ember { shards: 2 }, &[&ON[..], &["--appendfsync", "always"]].concat());
    until_loaded(&server);
    let mut client = server.client();
    for i in 0..20 {
        assert_eq!(client.call(&format!("SET key:{i} {i}")), Value::ok());
    }
    server.signal("KILL");
    let path = last_increment(&server);
    // Room was made ahead of what was written: the batches end before it.
    let mut whole = fs::read(&path).expect("a file");
    let written = whole.iter().rposition(|&byte| byte != 0).expect("a batch") + 1;
    whole.truncate(written);
    let mut torn = server;
    for (lost, left) in [(1, 19), (40, 19), (100, 19)] {
        fs::write(&path, &whole[..whole.len() - lost]).expect("a file");
        torn = torn.restart(&ON);
        until_loaded(&torn);
        let found = torn.client().call("DBSIZE");
        assert!(found == int(left) || found == int(left - 1), "{lost} bytes less: {found:?}");
        assert!(torn.output().contains("short read while loading the AOF file"), "{}", torn.output());
        // What is written now stands behind what is whole.
        assert_eq!(torn.client().call("SET again 1"), Value::ok());
        torn = killed(torn);
        assert_eq!(torn.client().call("GET again"), bulk("1"));
        torn.signal("KILL");
    }
    // Zeros at the end are room that was made.
    fs::write(&path, [&whole[..], &[0; 5000]].concat()).expect("a file");
    torn = torn.restart(&ON);
    until_loaded(&torn);
    assert_eq!(torn.client().call("DBSIZE"), int(20));
    torn.signal("KILL");
    for at in [10, whole.len() / 2] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(&path, &damaged).expect("a file");
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("appendonlydir");
        fs::create_dir(&target).expect("a folder");
        for entry in fs::read_dir(path.parent().expect("a folder")).expect("a folder") {
            let entry = entry.expect("an entry");
            fs::copy(entry.path(), target.join(entry.file_name())).expect("a copy");
        }
        let mut server = Server::start_without_waiting(Kind::Ember { shards: 2 }, &ON, folder);
        let (status, _) = server.wait_for_end(PATIENCE).expect("it does not start");
        assert!(!status.success());
        let output = server.output();
        assert!(output.contains("is damaged at byte") && output.contains("incr.aof"), "{output}");
        assert_eq!(fs::read(last_increment(&server)).expect("a file"), damaged, "nothing was changed");
    }
}

#[test]
fn it_is_turned_on_and_off_while_the_server_runs() {
    let server = Server::start(Kind::Ember { shards: 2 }, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    fill(&mut client);
    assert_eq!(client.call("CONFIG SET appendonly yes"), Value::ok());
    assert!(wait_until(PATIENCE, || server.info("aof_rewrites").as_deref() == Some("1")));
    assert_eq!(client.call("SET behind 1"), Value::ok());
    assert_eq!(client.call("WAITAOF 1 0 0").items(), [int(1), int(0)]);
    let expected = digest(&server);
    let server = killed(server);
    assert_eq!(digest(&server), expected);
    let mut client = server.client();
    assert_eq!(client.call("CONFIG SET appendonly no"), Value::ok());
    assert_eq!(server.info("aof_enabled").as_deref(), Some("0"));
    assert_eq!(client.call("SET unlogged 1"), Value::ok());
    assert!(client.call("WAITAOF 1 0 0").is_error());
    let server = killed(server);
    assert_eq!(digest(&server), expected);
}

#[test]
fn it_can_be_written_once_while_it_is_off() {
    for preamble in ["yes", "no"] {
        let options = ["--enable-debug-command", "yes", "--aof-use-rdb-preamble", preamble];
        let server = Server::start(Kind::Ember { shards: 2 }, &options);
        let mut client = server.client();
        fill(&mut client);
        let expected = digest(&server);
        for _ in 0..2 {
            rewrite(&server);
            assert_eq!(server.info("aof_enabled").as_deref(), Some("0"));
            let names =
                fs::read_dir(folder(&server)).expect("a folder").map(|entry| entry.expect("an entry").file_name());
            let names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
            assert!(!names.iter().any(|name| name.contains(".incr.")), "{names:?}");
            assert_eq!(names.iter().filter(|name| name.contains(".base.")).count(), 1, "{names:?}");
            redis_finds_the_same(&server);
        }
        assert_eq!(client.call("SET unlogged 1"), Value::ok());
        let server = killed(server);
        assert_eq!(digest(&server), expected);
        assert_eq!(server.client().call("SET behind 1"), Value::ok());
        let expected = digest(&server);
        let server = killed(server);
        assert_eq!(digest(&server), expected);
    }
}

/// Its files, or a snapshot, are being written when the log is turned on.
#[test]
fn it_is_turned_on_while_something_is_written() {
    for writes in ["BGREWRITEAOF", "BGSAVE"] {
        let server = Server::start(Kind::Ember { shards: 2 }, &["--enable-debug-command", "yes"]);
        let mut client = server.client();
        assert_eq!(client.call("DEBUG POPULATE 200000"), Value::ok());
        assert!(!client.call(writes).is_error());
        assert_eq!(client.call("CONFIG SET appendonly yes"), Value::ok());
        let is_on = || server.info("aof_enabled").as_deref() == Some("1");
        let is_there = || server.info("aof_rewrite_in_progress").as_deref() == Some("0");
        assert!(wait_until(PATIENCE, || is_on() && is_there()), "{writes}");
        assert_eq!(client.call("SET behind 1"), Value::ok());
        assert_eq!(client.call("WAITAOF 1 0 0").items(), [int(1), int(0)]);
        let expected = digest(&server);
        let server = killed(server);
        assert_eq!(digest(&server), expected);
    }
}

#[test]
fn it_is_off_where_it_was_turned_off_while_it_began() {
    let server = Server::start(Kind::Ember { shards: 2 }, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    assert_eq!(client.call("DEBUG POPULATE 200000"), Value::ok());
    assert_eq!(client.call("CONFIG SET appendonly yes"), Value::ok());
    assert_eq!(client.call("CONFIG SET appendonly no"), Value::ok());
    let is = |field: &str| server.info(field).as_deref() == Some("1");
    assert!(wait_until(PATIENCE, || !is("aof_enabled") && !is("aof_rewrite_in_progress")));
    assert_eq!(client.call("CONFIG SET appendonly yes"), Value::ok());
    assert!(wait_until(PATIENCE, || is("aof_enabled") && !is("aof_rewrite_in_progress")));
}

#[test]
fn a_second_server_does_not_write_the_same_files() {
    let server = Server::start(Kind::Ember { shards: 1 }, &ON);
    until_loaded(&server);
    let other = Server::start(Kind::Ember { shards: 1 }, &["--enable-protected-configs", "yes"]);
    let mut client = other.client();
    let dir = server.folder().display().to_string();
    assert_eq!(client.command(&["CONFIG", "SET", "dir", &dir]), Value::ok());
    assert!(client.call("CONFIG SET appendonly yes").is_error());
    assert_eq!(other.info("aof_enabled").as_deref(), Some("0"));
    assert_eq!(client.call("CONFIG GET appendonly").items()[1], bulk("no"));
}

/// Once who was told that the log cannot begin had changed the password all the same.
#[test]
fn nothing_else_is_set_where_the_log_cannot_begin() {
    on_every_server(&[], |server| {
        fs::write(folder(server), "no folder").expect("a file");
        let mut client = server.client();
        assert_eq!(client.call("ACL SETUSER default resetpass >two"), Value::ok());
        let asked = ["CONFIG GET hz", "CONFIG GET requirepass", "CONFIG GET save", "CONFIG GET appendonly"];
        let before = asked.map(|line| client.call(line));
        let all = ["CONFIG", "SET", "requirepass", "zz", "hz", "50", "save", "7 9", "appendonly", "yes"];
        assert!(client.command(&all).is_error());
        assert_eq!(asked.map(|line| client.call(line)), before);
        // (redis-server lets everybody in then.)
        if server.kind().is_ember() {
            let mut other = server.client();
            assert!(other.call("PING").is_error());
            assert_eq!(other.call("AUTH two"), Value::ok());
        }
    });
}

#[test]
fn functions_and_policies_are_there_again() {
    let server = Server::start(Kind::Ember { shards: 2 }, &ON);
    until_loaded(&server);
    let mut client = server.client();
    let library =
        |name: &str| format!("#!lua name={name}\nredis.register_function('{name}', function() return 42 end)");
    for name in ["one", "two"] {
        assert_eq!(client.command(&["FUNCTION", "LOAD", &library(name)]), bulk(name));
    }
    assert_eq!(client.call("FUNCTION DELETE two"), Value::ok());
    assert_eq!(client.call("EXPIRY POLICY SET sessions: 30m"), Value::ok());
    assert_eq!(client.call("EXPIRY POLICY SET gone: 30m"), Value::ok());
    assert_eq!(client.call("EXPIRY POLICY DEL gone:"), int(1));
    // Names of any bytes that are text.
    for (prefix, stream) in [("a\0b", "s\0t"), ("\0", "\0\0"), ("\u{ff}%00\n", "plain"), ("none\0", "x")] {
        let policy = ["EXPIRY", "POLICY", "SET", prefix, "30m", "EVENTS", stream, "WITHVALUE"];
        assert_eq!(client.command(&policy), Value::ok());
    }
    assert_eq!(client.command(&["EXPIRY", "POLICY", "DEL", "none\0"]), int(1));
    assert_eq!(client.call("SET sessions:1 x"), Value::ok());
    assert_eq!(client.call("SET sessions:2 x"), Value::ok());
    assert!(!client.call("PERSIST sessions:2").is_error());
    let (policies, late) = (client.call("EXPIRY POLICY LIST"), client.call("PEXPIRETIME sessions:1"));
    let mut server = server;
    for base in [None, Some("no"), Some("yes")] {
        if let Some(preamble) = base {
            assert_eq!(server.client().call(&format!("CONFIG SET aof-use-rdb-preamble {preamble}")), Value::ok());
            rewrite(&server);
        }
        server = killed(server);
        let mut client = server.client();
        assert_eq!(client.call("FCALL one 0"), int(42));
        assert!(client.call("FCALL two 0").is_error());
        assert_eq!(client.call("EXPIRY POLICY LIST"), policies);
        assert_eq!(client.call("PEXPIRETIME sessions:1"), late);
    }
}

#[test]
fn what_has_died_meanwhile_stays_dead_and_is_told() {
    let server = Server::start(Kind::Ember { shards: 2 }, &ON);
    until_loaded(&server);
    let mut client = server.client();
    // A number that counts on while it is alive, and dies while nobody is there. (A machine that stands still for a moment must not
    // see it die before.)
    assert_eq!(client.call("SET count 1 PX 2000"), Value::ok());
    for i in 2..50 {
        assert_eq!(client.call("INCR count"), int(i));
    }
    assert_eq!(client.call("SET kept 1 PX 2000"), Value::ok());
    assert_eq!(client.call("PERSIST kept"), int(1));
    server.signal("KILL");
    std::thread::sleep(Duration::from_millis(2_050));
    let server = server.restart(&[&ON[..], &["--notify-keyspace-events", "Ex"]].concat());
    until_loaded(&server);
    let mut client = server.client();
    assert_eq!(client.call("GET count"), Value::NullBulk);
    assert_eq!(client.call("GET kept"), bulk("1"));
    assert!(wait_until(PATIENCE, || server.info("expired_keys").as_deref() == Some("1")));
    // Its death is in the log by now.
    let server = killed(server);
    assert_eq!(server.client().call("DBSIZE"), int(1));
}

#[test]
fn the_log_is_loaded_in_place_of_what_there_is() {
    let server = Server::start(Kind::Ember { shards: 3 }, &ON);
    until_loaded(&server);
    let mut client = server.client();
    fill(&mut client);
    for line in ["RPUSH queue 1", "LPOP queue", "RPUSH other 1", "LPOP other"] {
        assert!(!client.call(line).is_error(), "{line}");
    }
    let mut waiting = server.client();
    waiting.send("BLPOP queue other 0");
    assert!(wait_until(PATIENCE, || server.info("blocked_clients").as_deref() == Some("1")));
    let expected = digest(&server);
    for round in 1..4 {
        assert_eq!(client.call("DEBUG LOADAOF"), Value::ok());
        assert_eq!(digest(&server), expected, "round {round}");
    }
    // Nobody was given what the log has pushed and taken again.
    assert_eq!(server.info("blocked_clients").as_deref(), Some("1"));
    assert_eq!(client.call("RPUSH queue 2"), int(1));
    assert_eq!(waiting.read().items(), [bulk("queue"), bulk("2")]);
    assert_eq!(digest(&server), expected);
    assert_eq!(client.call("SELECT 4"), Value::ok());
    assert_eq!(client.call("SET behind 1"), Value::ok());
    let expected = digest(&server);
    let server = killed(server);
    assert_eq!(digest(&server), expected);
    let mut client = server.client();
    assert_eq!(client.call("CONFIG SET appendonly no"), Value::ok());
    assert!(client.call("DEBUG LOADAOF").is_error());
}

#[test]
fn a_wait_for_the_disk_ends() {
    let server = Server::start(Kind::Ember { shards: 2 }, &ON);
    until_loaded(&server);
    let mut client = server.client();
    let blocked = |expected: &str| wait_until(PATIENCE, || server.info("blocked_clients").as_deref() == Some(expected));
    let mut waiting = server.client();
    let id = waiting.call("CLIENT ID").number();
    // There is no replica that it could wait for.
    assert_eq!(waiting.call("WAITAOF 0 1 10").items(), [int(1), int(0)]);
    waiting.send("WAITAOF 1 1 0");
    assert!(blocked("1"));
    assert_eq!(client.call(&format!("CLIENT UNBLOCK {id}")), int(1));
    assert_eq!(waiting.read().items(), [int(1), int(0)]);
    waiting.send("WAITAOF 1 1 0");
    assert!(blocked("1"));
    assert_eq!(client.call(&format!("CLIENT UNBLOCK {id} ERROR")), int(1));
    assert_eq!(waiting.read().text(), "UNBLOCKED client unblocked via CLIENT UNBLOCK");
    waiting.send("WAITAOF 1 1 0");
    assert!(blocked("1"));
    drop(waiting);
    assert!(blocked("0"));
    let mut waiting = server.client();
    waiting.send("WAITAOF 1 1 0");
    assert!(blocked("1"));
    assert_eq!(client.call("CONFIG SET appendonly no"), Value::ok());
    assert!(waiting.read().is_error());
}

/// What redis-check-aof cuts off behind a moment is not read, and what is left is whole.
#[test]
fn times_are_in_the_log_and_it_can_be_cut_at_one() {
    let times = ["--aof-timestamp-enabled", "yes"];
    let server = Server::start(Kind::Ember { shards: 2 }, &[&ON[..], &times].concat());
    until_loaded(&server);
    let mut client = server.client();
    let second = |client: &mut Client| client.call("TIME").items()[0].text().parse::<u64>().expect("a time");
    assert_eq!(client.call("SET before 1"), Value::ok());
    let began_s = second(&mut client);
    assert!(wait_until(PATIENCE, || second(&mut client) > began_s + 1));
    for i in 0..20 {
        assert_eq!(client.call(&format!("SET behind:{i} 1")), Value::ok());
    }
    server.signal("KILL");
    let text = fs::read(last_increment(&server)).expect("a file");
    assert!(text.starts_with(b"#TS:"), "{}", text.escape_ascii());
    let server = server.restart(&ON);
    until_loaded(&server);
    assert_eq!(server.client().call("DBSIZE"), int(21));
    server.signal("KILL");
    if !have_tool("redis-check-aof") {
        return;
    }
    let manifest = folder(&server).join("appendonly.aof.manifest");
    let mut command = Command::new("redis-check-aof");
    let checked = command.args(["--truncate-to-timestamp", &began_s.to_string()]).arg(manifest).output();
    let checked = checked.expect("redis-check-aof");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let server = server.restart(&ON);
    until_loaded(&server);
    assert_eq!(server.client().call("DBSIZE"), int(1));
    assert!(!server.output().contains("Warning"), "{}", server.output());
}

/// Where somebody says how much may be lost, a damaged log is read up to the damage.
#[test]
fn a_damaged_end_is_given_up_where_that_is_allowed() {
    let server = Server::start(Kind::Ember { shards: 2 }, &[&ON[..], &["--appendfsync", "always"]].concat());
    until_loaded(&server);
    let mut client = server.client();
    for i in 0..20 {
        assert_eq!(client.call(&format!("SET key:{i} {i}")), Value::ok());
    }
    server.signal("KILL");
    let path = last_increment(&server);
    let mut damaged = fs::read(&path).expect("a file");
    let at = memchr::memmem::find(&damaged, b"key:7").expect("it is there");
    damaged[at] ^= 1;
    fs::write(&path, &damaged).expect("a file");
    let server = server.restart(&[&ON[..], &["--aof-load-corrupt-tail-max-size", "1mb"]].concat());
    until_loaded(&server);
    assert_eq!(server.client().call("DBSIZE"), int(7));
    let output = server.output();
    assert!(output.contains("is damaged at byte") && output.contains("incr.aof"), "{output}");
    assert_eq!(server.client().call("SET again 1"), Value::ok());
    let server = killed(server);
    assert_eq!(server.client().call("DBSIZE"), int(8));
}
