//! A log is read at the start: under other limits, with commands that others have written, and while somebody asks for
//! something.

use crate::common::server::{Port, have_redis, start_and_fail};
use crate::common::{Client, Kind, Server, Value, bulk, encode, int, ok, wait_until};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);
const ON: [&str; 2] = ["--appendonly", "yes"];

/// Commands as redis-server writes them, by their words.
fn log_of(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| encode(&line.split(' ').collect::<Vec<_>>())).collect()
}

/// The folder of a server, with a log whose only file has still to be made.
fn home() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("appendonlydir");
    fs::create_dir(&folder).expect("a folder");
    let manifest = "file appendonly.aof.1.incr.aof seq 1 type i\n";
    fs::write(folder.join("appendonly.aof.manifest"), manifest).expect("a manifest");
    (home, folder.join("appendonly.aof.1.incr.aof"))
}

fn start(kind: Kind, log: &[u8]) -> Server {
    let (home, file) = home();
    fs::write(file, log).expect("a log");
    started(Server::start_without_waiting(kind, &ON, home))
}

fn started(server: Server) -> Server {
    assert!(wait_until(PATIENCE, || Client::connect(server.port()).is_ok()), "{}", server.output());
    let is_loaded = || server.info("loading").as_deref() == Some("0");
    assert!(wait_until(PATIENCE, is_loaded), "{}", server.output());
    server
}

fn embers_and_redis() -> Vec<Kind> {
    let mut kinds: Vec<Kind> = [1, 2, 4].map(|shards| Kind::Ember { shards }).into();
    kinds.extend(have_redis().then_some(Kind::Redis));
    kinds
}

/// A file that is read no further than the test has written.
fn pipe_in_place_of(path: &Path) {
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

fn write_to(pipe: &Path, bytes: &[u8]) -> File {
    let mut file = File::options().write(true).open(pipe).expect("the server reads it");
    file.write_all(bytes).expect("room");
    file
}

/// Once a server of several shards answered LOADING for ever where commands in its log answered with more than 64 KB at a time: a
/// shard that has answered with much waits until it is told that there is room, and nobody told it.
#[test]
fn a_log_of_commands_with_long_replies_is_loaded() {
    let (long, short) = ("v".repeat(70_000), "w".repeat(5_000));
    let mut log = Vec::new();
    for n in 0..20 {
        let lines = [format!("RPUSH l{n} {long} {long}"), format!("LPOP l{n}"), format!("SET s{n} 1")];
        let queue = (0..40).flat_map(|_| [format!("RPUSH q{} {short}", n % 5), format!("LPOP q{}", n % 5)]);
        let moved = [&format!("SET g{n} {long}"), "MULTI", &format!("GETDEL g{n}"), &format!("GETDEL l{n}:"), "EXEC"];
        let moved = moved.map(str::to_owned);
        let all: Vec<String> = lines.into_iter().chain(queue).chain(moved).collect();
        log.extend(log_of(&all.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    for kind in embers_and_redis() {
        let server = start(kind, &log);
        let mut client = server.client();
        assert_eq!(client.call("DBSIZE"), int(40), "{kind:?}");
        assert_eq!(client.call("LLEN l19"), int(1), "{kind:?}");
    }
}

/// Once what died while the base was being written was left out of it, so that commands behind its moment, which had read that,
/// found nothing at the next start.
#[test]
fn what_dies_while_the_base_is_written_is_in_it() {
    const NAMES: usize = 40;
    for (shards, preamble) in [(1, "yes"), (3, "yes"), (2, "no")] {
        let flags = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble];
        let server = Server::start(Kind::Ember { shards }, &flags);
        let mut client = server.client();
        (0..2000).for_each(|n| client.send(&format!("SET other:{n} x")));
        (0..2000).for_each(|_| assert_eq!(client.read(), Value::ok()));
        let large: String = (0..600).map(|n| format!(" {n}")).collect();
        let mut tell = |lines: &[&str]| {
            for n in 0..NAMES {
                lines.iter().for_each(|line| ok(&mut client, &line.replace('@', &n.to_string())));
            }
        };
        tell(&["SET t@ x", "SADD s@ a b", "ZADD z@ 1 a 2 b", "HSET h@ a 1 b 2", &format!("SADD l@ a{large}")]);
        tell(&["PEXPIRE t@ 800", "SPEXPIRE s@ 800 MEMBERS 1 a", "ZPEXPIRE z@ 800 MEMBERS 1 a"]);
        tell(&["HPEXPIRE h@ 800 FIELDS 1 a", "SPEXPIRE l@ 800 MEMBERS 1 a"]);
        let mut other = server.client();
        other.call("CONFIG SET rdb-key-save-delay 1500");
        assert!(!other.call("BGREWRITEAOF").is_error());
        tell(&["BITOP OR to:t@ t@", "SUNIONSTORE to:s@ s@", "ZUNIONSTORE to:z@ 1 z@", "SUNIONSTORE to:l@ l@"]);
        tell(&["COPY h@ to:h@", "HPERSIST to:h@ FIELDS 1 a"]);
        let has_base = || server.info("aof_rewrite_in_progress").as_deref() == Some("0");
        assert!(wait_until(PATIENCE, has_base), "{}", server.output());
        let all = |client: &mut Client| {
            let mut sorted = |line: &str, n: usize| {
                let reply = client.call(&line.replace('@', &n.to_string()));
                let mut texts: Vec<String> = reply.items().iter().map(|item| format!("{item:?}")).collect();
                texts.sort();
                texts
            };
            let lines = ["MGET to:t@", "SMEMBERS to:s@", "ZRANGE to:z@ 0 -1", "SMEMBERS to:l@", "HGETALL to:h@"];
            (0..NAMES).map(|n| lines.map(|line| sorted(line, n))).collect::<Vec<_>>()
        };
        let before = all(&mut other);
        let mut server = server;
        server.signal("KILL");
        assert!(server.wait_for_end(PATIENCE).is_some());
        let count = shards.to_string();
        let server = server.restart(&[&flags[..], &["--shards", &count]].concat());
        assert_eq!(all(&mut server.client()), before, "{shards} shards, preamble {preamble}");
    }
}

/// What a range by names finds where scores differ depends on how a sorted set is kept: once the log said the command, and the start
/// took away, or stored, something else.
#[test]
fn ranges_by_names_are_kept_as_they_were_found() {
    for shards in [1, 3] {
        let flags = ["--appendonly", "yes"];
        let server = Server::start(Kind::Ember { shards }, &flags);
        let mut client = server.client();
        for key in ["taken", "source"] {
            for line in ["ZADD @ 6 e 7 b", "ZEXPIRE @ 100 MEMBERS 1 e", "ZPERSIST @ MEMBERS 1 e"] {
                assert!(!client.call(&line.replace('@', key)).is_error(), "{line}");
            }
        }
        server.rewrite_log();
        client.call("ZREMRANGEBYLEX taken [a [c");
        // What is overwritten keeps its pin and its group.
        for place in 0..10 {
            for line in ["SET place:@ x", "BLESS SET place:@ NO-EVICT", "EXPIRY GROUP ADD places place:@"] {
                assert!(!client.call(&line.replace('@', &place.to_string())).is_error(), "{line}");
            }
            client.call(&format!("ZRANGESTORE place:{place} source [a [c BYLEX"));
        }
        let all = |client: &mut Client| {
            let places = (0..10).map(|place| format!("place:{place}"));
            let keys = places.chain(["taken".to_owned(), "source".to_owned()]);
            let lines = ["ZRANGE @ 0 -1 WITHSCORES", "BLESS GET @", "EXPIRY GROUP OF @"];
            let of_key = |key: String| lines.map(|line| client.call(&line.replace('@', &key)));
            keys.map(of_key).collect::<Vec<_>>()
        };
        let before = all(&mut client);
        assert_eq!(before[0][1..], [Value::Array(vec![bulk("NO-EVICT")]), Value::Array(vec![bulk("places")])]);
        let mut server = server;
        server.signal("KILL");
        assert!(server.wait_for_end(PATIENCE).is_some());
        let server = server.restart(&[&flags[..], &["--shards", &shards.to_string()]].concat());
        assert_eq!(all(&mut server.client()), before, "{shards} shards");
    }
}

/// Each shard does its part of such a command when its turn comes, and nobody waits for the others: what stands before a command
/// in the log comes before it on each shard all the same.
#[test]
fn commands_with_keys_on_several_shards_keep_their_places_in_a_log() {
    let mut lines: Vec<String> = Vec::new();
    let mut rng = fastrand::Rng::with_seed(37);
    for n in 0..4_000 {
        let mut key = || format!("k{}", rng.u32(..30));
        let (a, b, c, d) = (key(), key(), key(), key());
        lines.push(match n % 11 {
            0 => format!("MSET {a} {n} {b} {n}b {c} {n}c"),
            1 => format!("DEL {a} {b}"),
            2 => format!("UNLINK {a} {c}"),
            3 => format!("APPEND {d} {n}"),
            4 => "MULTI".to_owned(),
            5 => format!("MSET {d} {n} {b} {n}"),
            6 => format!("APPEND {b} x"),
            7 => "EXEC".to_owned(),
            8 => format!("COPY {a} {b} REPLACE"),
            9 => format!("APPEND {a} y"),
            _ if n % 1_001 == 10 => "FLUSHDB".to_owned(),
            _ if n % 1_001 == 21 => "SWAPDB 0 1".to_owned(),
            _ => format!("MSETNX {c} {n} {d} {n}"),
        });
    }
    let log = log_of(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let values = |kind| {
        let server = start(kind, &log);
        let mut client = server.client();
        let keys = (0..30).map(|n| format!("k{n}"));
        let get: Vec<Value> = keys.map(|key| client.call(&format!("GET {key}"))).collect();
        (client.call("DBSIZE"), get)
    };
    let expected = values(Kind::Ember { shards: 1 });
    assert_ne!(expected.0, int(0));
    for kind in embers_and_redis() {
        assert_eq!(values(kind), expected, "{kind:?}");
    }
}

/// A command that goes from one shard to another waits for none before it, and none with other keys waits for it: those with one of
/// its keys do, and those whose keys nobody knows.
#[test]
fn commands_that_go_from_shard_to_shard_keep_their_places_in_a_log() {
    let mut lines: Vec<String> = Vec::new();
    let mut rng = fastrand::Rng::with_seed(38);
    for n in 0..6_000 {
        let (a, b, c) = (rng.u32(..12), rng.u32(..12), rng.u32(..12));
        let member = rng.u32(..9);
        lines.push(match rng.u32(..24) {
            0 => format!("RENAME k{a} k{b}"),
            1 => format!("RENAMENX k{a} k{b}"),
            2 => format!("COPY k{a} k{b} REPLACE"),
            3 => format!("COPY k{a} k{b} DB 1"),
            4 => format!("BITOP XOR k{a} k{b} k{c}"),
            5 | 6 => format!("APPEND k{a} {n}"),
            7 => format!("MSET k{a} {n} k{b} {n} k{c} {n}"),
            8 => format!("SADD s{a} {member} {n}"),
            9 => format!("SMOVE s{a} s{b} {member}"),
            10 => format!("SUNIONSTORE s{a} s{b} s{c}"),
            11 => format!("SDIFFSTORE s{a} s{b} s{c}"),
            12 => format!("SREM s{a} {member}"),
            13 | 14 => format!("RPUSH l{a} {n}"),
            15 => format!("LMOVE l{a} l{b} LEFT RIGHT"),
            16 => format!("SORT l{a} STORE l{b}"),
            17 => format!("ZADD z{a} {n} {member}"),
            18 => format!("ZUNIONSTORE z{a} 2 z{b} z{c}"),
            19 => format!("ZRANGESTORE z{a} z{b} 0 5"),
            20 => format!("PFADD p{a} {n}"),
            21 => format!("PFMERGE p{a} p{b} p{c}"),
            _ if n % 7 > 0 => format!("DEL k{a} s{b} l{c} z{a}"),
            22 => format!("SORT s{a} BY k* ALPHA STORE l{b}"),
            _ if n % 35 > 0 => format!("SELECT {}", n % 2),
            _ => "SWAPDB 0 1".to_owned(),
        });
    }
    let log = log_of(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let values = |kind| {
        let server = start(kind, &log);
        let mut client = server.client();
        let mut all = Vec::new();
        for db in 0..2 {
            client.call(&format!("SELECT {db}"));
            all.push(client.call("DBSIZE"));
            for n in 0..12 {
                let reads = ["GET k", "SORT s ALPHA", "LRANGE l 0 -1", "ZRANGE z 0 -1 WITHSCORES", "PFCOUNT p"];
                let of_key = |read: &str| {
                    let (verb, rest) = read.split_once(' ').expect("a command and a key");
                    let (key, options) = rest.split_once(' ').unwrap_or((rest, ""));
                    format!("{verb} {key}{n} {options}")
                };
                all.extend(reads.map(|read| client.call(of_key(read).trim_end())));
            }
        }
        all
    };
    let expected = values(Kind::Ember { shards: 1 });
    assert!(expected[0] != int(0) && expected.iter().all(|value| !value.is_error()));
    for kind in embers_and_redis() {
        assert_eq!(values(kind), expected, "{kind:?}");
    }
}

/// What is before such a command may be on its way for long: a shard runs so many commands at a time, and stops where the replies
/// are long, which a log's are though nobody reads them.
#[test]
fn commands_that_go_from_shard_to_shard_come_behind_whatever_is_before_them() {
    let mut lines: Vec<String> = Vec::new();
    let long = "x".repeat(8_000);
    for n in 0..60 {
        lines.extend((0..400).map(|field| format!("HSET h{n} f{field} {field}")));
        lines.push(format!("RENAME h{n} done{n}"));
        lines.extend((0..16).map(|_| format!("RPUSH l{n} {long}")));
        lines.extend((0..16).map(|_| format!("LPOP l{n}")));
        lines.extend([format!("RPUSH l{n} {n}"), format!("LMOVE l{n} moved{n} LEFT LEFT")]);
    }
    // As many keys as nobody follows one by one.
    let sources: Vec<String> = (0..100).map(|n| format!("s{n}")).collect();
    lines.extend(sources.iter().map(|source| format!("SADD {source} {source}")));
    lines.push(format!("SUNIONSTORE all {}", sources.join(" ")));
    lines.push(format!("DEL {}", sources.join(" ")));
    let log = log_of(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    for shards in [1, 2, 4] {
        let server = start(Kind::Ember { shards }, &log);
        let mut client = server.client();
        for n in 0..60 {
            assert_eq!(client.call(&format!("HLEN done{n}")), int(400), "{shards} shards");
            assert_eq!(client.call(&format!("LRANGE moved{n} 0 -1")), Value::Array(vec![bulk(n.to_string())]));
        }
        assert_eq!(client.call("SCARD all"), int(100));
        assert_eq!(client.call("DBSIZE"), int(121));
    }
}

/// Deadlines may lie before the start of the machine that loads a log, and so before everything that its clocks can say: what stands
/// behind them in the log finds their keys all the same.
#[test]
fn deadlines_before_the_start_of_the_machine_take_nothing_away_early() {
    let log_of = |lines: &[&str]| {
        let lines: Vec<String> = lines.iter().map(|line| line.replace('@', "1000000000000")).collect();
        log_of(&lines.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let log = log_of(&[
        "INCR rate",
        "PEXPIREAT rate @",
        "INCR rate",
        "SET text v PXAT @",
        "APPEND text w",
        "HSET hash f 1",
        "PEXPIREAT hash @",
        "HSET hash g 2",
        "RPUSH list a",
        "PEXPIREAT list @",
        "RENAME list other",
        "RPUSH other b",
        "SET kept v PXAT @",
        "PERSIST kept",
        "APPEND kept w",
    ]);
    for kind in embers_and_redis() {
        let server = start(kind, &log);
        let mut client = server.client();
        for key in ["rate", "text", "hash", "list", "other"] {
            assert_eq!(client.call(&format!("EXISTS {key}")), int(0), "{key}: {kind:?}");
        }
        assert_eq!(client.call("GET kept"), bulk("vw"), "{kind:?}");
        assert_eq!(client.call("PTTL kept"), int(-1), "{kind:?}");
    }
    let log = log_of(&[
        "HSET hash f 1 g 1",
        "HPEXPIREAT hash @ FIELDS 1 f",
        "HINCRBY hash f 1",
        "HPERSIST hash FIELDS 1 f",
        "HPEXPIREAT hash @ FIELDS 1 g",
        "SADD set a b",
        "SPEXPIREAT set @ MEMBERS 1 a",
        "SPERSIST set MEMBERS 1 a",
        "SPEXPIREAT set @ MEMBERS 1 b",
    ]);
    for shards in [1, 3] {
        let server = start(Kind::Ember { shards }, &log);
        let mut client = server.client();
        assert_eq!(client.call("HGETALL hash"), Value::Array(vec![bulk("f"), bulk("2")]));
        assert_eq!(client.call("SMEMBERS set"), Value::Array(vec![bulk("a")]));
    }
}

/// A script that has stayed within its keys once is trusted to, and begins again where it does not: what stands behind it in a log
/// waits for that.
#[test]
fn scripts_of_a_log_that_leave_their_keys_keep_their_places() {
    let script = "if ARGV[1] then redis.call('APPEND', ARGV[1], 's') end redis.call('APPEND', KEYS[1], 'x')";
    let mut log = log_of(&["SELECT 0"]);
    let mut say = |words: &[&str]| log.extend(encode(words));
    for n in 0..100 {
        let (key, other) = (format!("k{n}"), format!("o{n}"));
        say(&["EVAL", script, "1", &key]);
        say(&["EVAL", script, "1", &key, &other]);
        say(&["APPEND", &other, "p"]);
    }
    for shards in [1, 2, 4] {
        let server = start(Kind::Ember { shards }, &log);
        let mut client = server.client();
        let of = |first| (0..100).map(|n| format!("{first}{n}")).collect::<Vec<_>>().join(" ");
        assert_eq!(client.call(&format!("MGET {}", of("o"))), Value::Array(vec![bulk("sp"); 100]), "{shards} shards");
        assert_eq!(client.call(&format!("MGET {}", of("k"))), Value::Array(vec![bulk("xx"); 100]), "{shards} shards");
    }
}

/// Where the keys of a log's commands were on one shard when they ran, they are on one when the log is loaded.
#[test]
fn a_start_places_keys_as_they_were_when_the_log_was_written() {
    let seed = |server: &Server| {
        let text =
            fs::read_to_string(server.folder().join("appendonlydir/appendonly.aof.manifest")).expect("a manifest");
        text.lines().find(|line| line.starts_with("#EMBER HASH ")).expect("a seed").to_owned()
    };
    let server = Server::start(Kind::Ember { shards: 2 }, &ON);
    let first = seed(&server);
    server.rewrite_log();
    assert_eq!(seed(&server), first);
    let server = server.restart(&[&ON[..], &["--shards", "3"]].concat());
    assert_eq!(seed(&server), first);
    server.rewrite_log();
    assert_eq!(seed(&server), first, "what this one hashes with");
    assert_ne!(seed(&Server::start(Kind::Ember { shards: 2 }, &ON)), first, "nobody can know it");
}

/// Once a base of commands said of a set, all of whose members were dead and not deleted yet, that it is never evicted, and nothing
/// else: the start told of a command that had answered an error.
#[test]
fn collections_without_a_living_element_are_hidden_behind_the_base() {
    for preamble in ["yes", "no"] {
        for shards in [1, 3] {
            let count = shards.to_string();
            let flags = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble, "--enable-debug-command", "yes"];
            let server = Server::start(Kind::Ember { shards }, &flags);
            let mut client = server.client();
            ok(&mut client, "DEBUG SET-ACTIVE-EXPIRE 0");
            for members in [1, 2_000] {
                let names: Vec<String> = (0..members).map(|n| n.to_string()).collect();
                let all = names.join(" ");
                let pairs = names.iter().map(|n| format!("{n} {n}")).collect::<Vec<_>>().join(" ");
                let ends = format!("10 MEMBERS {members} {all}");
                ok(&mut client, &format!("SADD s{members} {all}"));
                ok(&mut client, &format!("ZADD z{members} {pairs}"));
                ok(&mut client, &format!("HSET h{members} {pairs}"));
                for key in ["s", "z", "h"].map(|letter| format!("{letter}{members}")) {
                    ok(&mut client, &format!("BLESS SET {key} NO-EVICT"));
                    ok(&mut client, &format!("EXPIRY GROUP ADD g {key}"));
                }
                ok(&mut client, &format!("SPEXPIRE s{members} {ends}"));
                ok(&mut client, &format!("ZPEXPIRE z{members} {ends}"));
                ok(&mut client, &format!("HPEXPIRE h{members} {}", ends.replace("MEMBERS", "FIELDS")));
            }
            ok(&mut client, "SET other 1");
            let is_dead = || client.call("KEYS *").items() == [bulk("other")];
            assert!(wait_until(PATIENCE, is_dead));
            server.rewrite_log();
            let server = started(server.restart(&[&flags[..], &["--shards", &count]].concat()));
            assert_eq!(server.client().call("KEYS *").items(), [bulk("other")]);
            assert!(!server.output().contains("answered"), "{}", server.output());
        }
    }
}

/// Elements whose deadlines in the base had passed by the start were left out of it, so that what had given them more time since
/// found nothing: they were lost.
#[test]
fn elements_that_were_given_more_time_since_the_base_are_there() {
    for (shards, preamble) in [(1, "yes"), (3, "yes"), (2, "no")] {
        let flags = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble];
        let server = Server::start(Kind::Ember { shards }, &flags);
        let mut client = server.client();
        for line in ["HSET h a 1 b 1 c 1", "SADD s a b c", "ZADD z 1 a 2 b 3 c"] {
            assert_eq!(client.call(line), int(3));
        }
        let large: String = (0..1000).map(|n| format!(" f{n} {n}")).collect();
        client.call(&format!("HSET large a 1 b 1 c 1{large}"));
        let of = |key: &str| {
            if ["h", "large"].contains(&key) {
                ("H", "FIELDS")
            } else {
                (if key == "s" { "S" } else { "Z" }, "MEMBERS")
            }
        };
        let keys = ["h", "large", "s", "z"];
        for key in keys {
            let (letter, word) = of(key);
            assert_eq!(
                client.call(&format!("{letter}PEXPIRE {key} 1500 {word} 3 a b c")).items(),
                [int(1), int(1), int(1)]
            );
        }
        assert!(!client.call("BGREWRITEAOF").is_error());
        let has_base = || server.info("aof_rewrite_in_progress").as_deref() == Some("0");
        assert!(wait_until(PATIENCE, has_base), "{}", server.output());
        for key in keys {
            let (letter, word) = of(key);
            assert_eq!(client.call(&format!("{letter}EXPIRE {key} 1000 {word} 1 a")).items(), [int(1)]);
            assert_eq!(client.call(&format!("{letter}PERSIST {key} {word} 1 b")).items(), [int(1)]);
        }
        let mut server = server;
        server.signal("KILL");
        assert!(server.wait_for_end(PATIENCE).is_some());
        // (The deadlines pass while the server is down.)
        std::thread::sleep(Duration::from_millis(1600));
        let count = shards.to_string();
        let server = server.restart(&[&flags[..], &["--shards", &count]].concat());
        let mut client = server.client();
        for key in keys {
            let (letter, word) = of(key);
            let left = client.call(&format!("{letter}TTL {key} {word} 3 a b c"));
            let left: Vec<i64> = left.items().iter().map(Value::number).collect();
            assert!((900..=1000).contains(&left[0]) && left[1..] == [-1, -2], "{key}: {left:?}");
        }
        assert_eq!(
            (client.call("HLEN large"), client.call("ZCARD z"), client.call("SCARD s")),
            (int(1002), int(2), int(2))
        );
    }
}

/// A part of the data took the place of the snapshot.
#[test]
fn who_ends_while_the_log_is_loaded_leaves_the_snapshot_as_it_is() {
    for how in ["SIGTERM", "SHUTDOWN", "SHUTDOWN SAVE"] {
        let (home, file) = home();
        pipe_in_place_of(&file);
        let snapshot = home.path().join("dump.rdb");
        fs::write(&snapshot, "what was saved last").expect("a file");
        let flags = [&ON[..], &["--save", "3600 1"]].concat();
        let mut server = Server::start_without_waiting(Kind::Ember { shards: 2 }, &flags, home);
        let pipe = write_to(&file, &log_of(&["SELECT 0", "SET a 1", "SET b 2"]));
        assert!(wait_until(PATIENCE, || Client::connect(server.port()).is_ok()));
        assert_eq!(server.info("loading").as_deref(), Some("1"));
        if how == "SIGTERM" {
            server.signal("TERM");
        } else {
            let _ = server.client().try_send_raw(&encode(&how.split(' ').collect::<Vec<_>>()));
        }
        let ended = server.wait_for_end(PATIENCE);
        assert!(ended.is_some_and(|(status, _)| status.success()), "{how}: {}", server.output());
        assert_eq!(fs::read_to_string(&snapshot).expect("a file"), "what was saved last", "{how}");
        drop(pipe);
    }
}

/// The process ended since the log had no files.
#[test]
fn a_log_that_is_turned_on_while_a_snapshot_is_loaded_begins_behind_it() {
    let first = Server::start(Kind::Ember { shards: 2 }, &[]);
    let mut client = first.client();
    client.call("MSET a 1 b 2 c 3");
    assert_eq!(client.call("SAVE"), Value::ok());
    let saved = fs::read(first.folder().join("dump.rdb")).expect("a snapshot");
    let home = tempfile::tempdir().expect("a folder");
    let path = home.path().join("dump.rdb");
    pipe_in_place_of(&path);
    let server = Server::start_without_waiting(Kind::Ember { shards: 2 }, &[], home);
    let mut pipe = write_to(&path, &saved[..saved.len() / 2]);
    assert!(wait_until(PATIENCE, || Client::connect(server.port()).is_ok()));
    assert_eq!(server.client().call("CONFIG SET appendonly yes appendfsync always"), Value::ok());
    pipe.write_all(&saved[saved.len() / 2..]).expect("room");
    drop(pipe);
    let server = started(server);
    assert!(wait_until(PATIENCE, || server.info("aof_enabled").as_deref() == Some("1")), "{}", server.output());
    assert_eq!(server.client().call("INCR a"), int(2));
    fs::remove_file(&path).expect("the pipe");
    let server = started(server.restart(&ON));
    assert_eq!(server.client().call("MGET a b c"), Value::Array(["2", "2", "3"].map(bulk).into()));
}

/// Loading waited for ever, without a word.
#[test]
fn limits_of_clients_do_not_hold_for_what_a_log_says() {
    for shards in [1, 2] {
        let server = Server::start(Kind::Ember { shards }, &[&ON[..], &["--appendfsync", "always"]].concat());
        let mut client = server.client();
        let long = "x".repeat(5_000_000);
        assert_eq!(client.command(&["SET", "long", &long]), Value::ok());
        assert_eq!(client.command(&["APPEND", "long", &long]), int(10_000_000));
        assert_eq!(client.call("SETRANGE long 10000000 tail"), int(10_000_004));
        let many = "for i = 1, 200 do redis.call('SET', 'k' .. i, string.rep('x', 20000)) end return 1";
        assert_eq!(client.command(&["EVAL", many, "0"]), int(1));
        let small = ["--proto-max-bulk-len", "1mb", "--client-query-buffer-limit", "1mb"];
        let server = started(server.restart(&[&ON[..], &small].concat()));
        let mut client = server.client();
        assert_eq!(client.call("STRLEN long"), int(10_000_004));
        assert_eq!(client.call("DBSIZE"), int(201));
        assert!(client.call("SETRANGE long 20000000 tail").is_error(), "limits hold again");
    }
}

#[test]
fn what_others_have_written_is_done_as_redis_does_it() {
    let log = log_of(&[
        "SELECT 0",
        "SET a 1",
        "BLPOP nothing 0",
        "XREAD BLOCK 0 STREAMS nothing $",
        "LPUSH a wrong",
        "EXEC",
        "MULTI",
        "SET b 2",
        "LPUSH b wrong",
        "SELECT 3",
        "RENAME nothing else",
        "SET c 3",
        "EXEC",
        "SELECT 0",
        "RPUSH list 1 2",
        "BLPOP list 0",
        "MULTI",
        "INCR a",
        "BLPOP list 0",
        "BLPOP list 0",
        "EXEC",
        "PUBLISH channel text",
        "SUBSCRIBE channel",
        "SET d 4",
    ]);
    for kind in embers_and_redis() {
        // (redis-server 7.0.15 ends with an assertion at a WAIT.)
        let waits = if kind.is_ember() { log_of(&["WAIT 1 0"]) } else { Vec::new() };
        let server = start(kind, &[waits, log.clone()].concat());
        let mut client = server.client();
        let found = client.call("MGET a b d");
        assert_eq!(found, Value::Array(["2", "2", "4"].map(bulk).into()), "{kind:?}");
        assert_eq!(client.call("EXISTS list c"), int(0), "{kind:?}");
        client.call("SELECT 3");
        assert_eq!(client.call("GET c"), bulk("3"), "{kind:?}");
        if kind.is_ember() {
            let output = server.output();
            assert!(output.contains("3 commands of the append only log have answered errors"), "{output}");
        }
    }
}

/// Once what scripts of a log write was refused where clients may not write: on a replica, at the ceiling.
#[test]
fn scripts_of_a_log_write_whoever_may_write_now() {
    let log = log_of(&[
        "EVAL redis.call('set',KEYS[1],'100') 1 foo",
        "EVAL redis.call('incr',KEYS[1]) 1 foo",
        "MULTI",
        "EVAL redis.call('incr','foo') 0",
        "EXEC",
    ]);
    let circumstances: [&[&str]; 3] =
        [&["--replicaof", "127.0.0.1", "0"], &["--maxmemory", "100kb"], &["--min-replicas-to-write", "1"]];
    // (redis-server 7.0.15 ends in some of them.)
    for kind in [1, 2, 4].map(|shards| Kind::Ember { shards }) {
        for flags in circumstances {
            let (home, file) = home();
            fs::write(file, &log).expect("a log");
            let server = started(Server::start_without_waiting(kind, &[&ON, flags].concat(), home));
            assert_eq!(server.client().call("GET foo"), bulk("102"), "{kind:?} {flags:?}: {}", server.output());
        }
    }
}

/// Such commands were left out, and a transaction with one of them as a whole; behind a SELECT that was, others wrote into
/// another database.
#[test]
fn what_cannot_be_done_keeps_the_server_from_starting() {
    let cases: [(&[&str], &str); 8] = [
        (&["NOSUCH x 1"], "Unknown command 'NOSUCH' reading the append only file"),
        (&["MULTI", "SET b 2", "NOSUCH x", "EXEC"], "Unknown command 'NOSUCH' reading the append only file"),
        (&["CONFIG NOSUCH x"], "Unknown command 'CONFIG|NOSUCH' reading the append only file"),
        (&["SET b"], "Command 'SET' reading the append only file: ERR wrong number of arguments for 'set' command"),
        (&["EVAL return"], "Command 'EVAL' reading the append only file: ERR wrong number of arguments"),
        (&["SELECT 99"], "SELECT 99 reading the append only file: ERR DB index is out of range"),
        (&["MULTI", "SET b 2", "DISCARD", "EXEC"], "DISCARD reading the append only file"),
        (&["QUIT"], "a command in it ends its connection"),
    ];
    for (lines, expected) in cases {
        for shards in [1, 2] {
            let (home, file) = home();
            let log = log_of(&[&["SELECT 0", "SET a 1"], lines, &["SET c 3"]].concat());
            fs::write(&file, &log).expect("a log");
            let dir = home.path().display().to_string();
            let port = Port::claim();
            let kind = Kind::Ember { shards };
            let failed = start_and_fail(kind, port.number(), &[&ON[..], &["--dir", &dir]].concat());
            assert!(!failed.status.success());
            assert!(failed.output.contains(expected), "{lines:?}: {}", failed.output);
            assert_eq!(fs::read(&file).expect("a log"), log, "nothing is changed");
        }
    }
}

/// They counted from a moment before the machine was started.
#[test]
fn relative_times_count_from_the_start() {
    let log = log_of(&[
        "SELECT 0",
        "SET set v EX 100",
        "SETEX setex 100 v",
        "PSETEX psetex 100000 v",
        "SET expire v",
        "EXPIRE expire 100",
        "SET pexpire v",
        "PEXPIRE pexpire 100000",
        "SET getex v",
        "GETEX getex EX 100",
        "EVAL redis.call('SETEX',KEYS[1],100,'v') 1 eval",
        "XADD stream * f v",
    ]);
    let keys = ["set", "setex", "psetex", "expire", "pexpire", "getex", "eval"];
    for kind in embers_and_redis() {
        let server = start(kind, &log);
        let mut client = server.client();
        for key in keys {
            let Value::Int(left_s) = client.call(&format!("TTL {key}")) else { panic!("{kind:?}: {key}") };
            assert!((1..=100).contains(&left_s), "{kind:?}: {key} lives for {left_s} seconds");
        }
        let entries = client.call("XRANGE stream - +");
        let Value::Bulk(id) = &entries.items()[0].items()[0] else { panic!("{kind:?}: {entries:?}") };
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
        let id_s: u64 = String::from_utf8_lossy(&id[..10]).parse().expect("seconds");
        assert!(now_s.abs_diff(id_s) < 3_600, "{kind:?}: {entries:?}");
    }
    // Fields have deadlines in Redis 7.4.
    let server = start(Kind::Ember { shards: 2 }, &log_of(&["HSET h f v g v", "HEXPIRE h 100 FIELDS 1 f"]));
    let left = server.client().call("HTTL h FIELDS 2 f g");
    assert!(matches!(left.items()[..], [Value::Int(1..=100), Value::Int(-1)]), "{left:?}");
}

/// Others were answered LOADING, which was said of the log's commands.
#[test]
fn errors_of_others_are_not_those_of_the_log() {
    let (home, file) = home();
    pipe_in_place_of(&file);
    let server = Server::start_without_waiting(Kind::Ember { shards: 2 }, &ON, home);
    let pipe = write_to(&file, &log_of(&["SELECT 0", "SET a 1"]));
    assert!(wait_until(PATIENCE, || Client::connect(server.port()).is_ok()));
    let mut client = server.client();
    assert!(client.call("GET a").is_error());
    assert!(client.call("CONFIG SET nosuch 1").is_error());
    // The name is that of a file from here on.
    fs::remove_file(&file).expect("the pipe");
    fs::write(&file, log_of(&["SELECT 0", "SET a 1"])).expect("a log");
    drop(pipe);
    let server = started(server);
    assert_eq!(server.client().call("GET a"), bulk("1"));
    assert!(!server.output().contains("answered"), "{}", server.output());
}

/// A pause that ended while a log was loaded ended what keeps keys from dying until the log has said all: keys that had been given
/// more time were lost, and loading could stand still.
#[test]
fn pauses_that_end_while_a_log_is_loaded_let_nothing_die() {
    for pause in ["CLIENT UNPAUSE", "CLIENT PAUSE 1 WRITE"] {
        let (home, file) = home();
        pipe_in_place_of(&file);
        let server = Server::start_without_waiting(Kind::Ember { shards: 2 }, &ON, home);
        let names: Vec<String> = (0..20).map(|n| format!("key:{n}")).collect();
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
        let dead = |name: &String| [format!("SET {name} 1"), format!("PEXPIREAT {name} {}", now_ms + 300)];
        // (What is read is handed on in large pieces.)
        let filler = "x".repeat(2000);
        let others = (0..1000).map(|n| format!("SET other:{n} {filler}"));
        let first: Vec<String> =
            ["SELECT 0".to_owned()].into_iter().chain(names.iter().flat_map(dead)).chain(others).collect();
        let persist = |name: &String| format!("PERSIST {name}");
        let rest: Vec<String> = names.iter().map(persist).collect();
        let log = |lines: &[String]| log_of(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let mut pipe = write_to(&file, &log(&first));
        assert!(wait_until(PATIENCE, || Client::connect(server.port()).is_ok()));
        let mut client = server.client();
        assert_eq!(client.call(pause), Value::ok());
        // Where the cycle may, it takes such keys within milliseconds.
        wait_until(Duration::from_millis(700), || server.info("expired_keys").as_deref() != Some("0"));
        fs::remove_file(&file).expect("the pipe");
        fs::write(&file, [log(&first), log(&rest)].concat()).expect("a log");
        pipe.write_all(&log(&rest)).expect("room");
        drop(pipe);
        let server = started(server);
        let mut client = server.client();
        for name in &names {
            assert_eq!(client.call(&format!("GET {name}")), bulk("1"), "{pause}");
        }
    }
}
