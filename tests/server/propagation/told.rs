//! What DEBUG JOURNAL shows: every change once, as a command that makes it again.

use std::time::Duration;

use crate::common::{Client, Server, Value, error, int, on_embers, simple, wait_until};

const DEBUG: &[&str] = &["--enable-debug-command", "yes"];
const SOON: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_millis(50);
const FIRST: [&str; 2] = ["SELECT 0", "SET k v"];

fn follower(server: &Server) -> Client {
    let mut follower = server.client();
    assert_eq!(follower.call("DEBUG JOURNAL"), Value::ok());
    follower
}

/// What is shown until nothing more is, a line a command; times as T.
fn shown(follower: &mut Client) -> Vec<String> {
    shown_at_least(follower, 0)
}

/// The same, where so many lines are waited for however busy the machine is.
fn shown_at_least(follower: &mut Client, lines: usize) -> Vec<String> {
    let is_time = |text: &str| text.len() == 13 && text.bytes().all(|byte| byte.is_ascii_digit());
    let word = |text: String| if is_time(&text) { "T".to_owned() } else { text };
    let line = |value: Value| value.items().iter().map(|arg| word(arg.text())).collect::<Vec<_>>().join(" ");
    let mut values: Vec<Value> = (0..lines).map_while(|_| follower.read_within(SOON)).collect();
    values.extend(follower.drain(QUIET));
    values.into_iter().map(line).collect()
}

/// The same, until a line has come that is waited for.
fn shown_until(follower: &mut Client, is_awaited: impl Fn(&str) -> bool) -> Vec<String> {
    let mut told = Vec::new();
    let has_come = wait_until(SOON, || {
        told.extend(shown(follower));
        told.iter().any(|line| is_awaited(line))
    });
    assert!(has_come, "{told:?}");
    told
}

/// Members that had died are not in what is told, although the others live for ever.
#[test]
fn what_had_died_in_a_payload_is_left_out() {
    on_embers(DEBUG, |server| {
        let mut client = server.client();
        for (add, count, expire) in
            [("SADD", "SCARD", "SPEXPIRE"), ("ZADD", "ZCARD", "ZPEXPIRE"), ("HSET", "HLEN", "HPEXPIRE")]
        {
            let scores = if add == "SADD" { "lives dies" } else { "1 lives 2 dies" };
            client.call(&format!("{add} from {scores}"));
            let word = if add == "HSET" { "FIELDS 1 2" } else { "MEMBERS 1 dies" };
            client.call(&format!("{expire} from 50 {word}"));
            let payload = client.call("DUMP from").bytes().expect("a payload").to_vec();
            assert!(wait_until(SOON, || client.call(&format!("{count} from")) == int(1)));
            client.call("DEL from");
            let mut follower = follower(server);
            client.command(&[&b"RESTORE"[..], b"to", b"0", &payload, b"REPLACE"]);
            let told =
                std::iter::from_fn(|| follower.read_within(SOON)).find(|told| told.items()[0].text() == "RESTORE");
            assert_eq!(told.expect("a payload").items()[3], client.call("DUMP to"), "{add}");
        }
    });
}

#[test]
fn what_commands_become() {
    on_embers(DEBUG, |server| {
        let (mut client, mut follower) = (server.client(), follower(server));
        let cases: &[(&str, &[&str])] = &[
            ("SET k v", &["SELECT 0", "SET k v"]),
            ("GET k", &[]),
            ("SET k w NX", &[]),
            ("SET k w XX EX 1000", &["SET k w PXAT T"]),
            ("PSETEX k 1000000 x", &["SET k x PXAT T"]),
            ("SET k y PXAT 1000", &["DEL k"]),
            ("SET k 1 GET", &["SET k 1"]),
            ("EXPIRE k 1000 NX", &["PEXPIREAT k T"]),
            ("EXPIRE k 1000 NX", &[]),
            ("GETEX k PERSIST", &["PERSIST k"]),
            ("INCRBY k 4", &["INCRBY k 4"]),
            ("INCRBYFLOAT k 0.5", &["SET k 5.5 KEEPTTL"]),
            ("GETSET k z", &["SET k z"]),
            ("EXPIRE k -1", &["DEL k"]),
            ("DEL k", &[]),
            ("GETDEL k", &[]),
            ("INCREX k", &["SET k 1 KEEPTTL"]),
            ("INCREX k UBOUND 1", &[]),
            ("INCREX k BYFLOAT 0.5 EX 1000", &["SET k 1.5 PXAT T"]),
            ("INCREX k BYFLOAT 0.5 EX 1 ENX", &["SET k 2 KEEPTTL"]),
            ("INCREX k PERSIST", &["SET k 3"]),
            ("DELIFEQ k 2", &[]),
            ("DELIFEQ k 3", &["DEL k"]),
            ("INCREX k EXAT 1", &[]),
            ("SET k 1 IFDNE 0000000000000000", &["SET k 1"]),
            ("DIGEST k", &[]),
            ("INCREX k EXAT 1", &["DEL k"]),
            ("GETFRESH k COST 1s", &[]),
            ("CL.THROTTLE limit 0 1 1000 0", &[]),
            ("RPUSH l a b c d", &["RPUSH l a b c d"]),
            ("LMPOP 2 none l LEFT", &["LPOP l 1"]),
            ("BRPOP none l 1", &["RPOP l"]),
            ("BLMPOP 1 2 none l LEFT COUNT 5", &["LPOP l 2"]),
            ("RPUSH {l}1 a b c d", &["RPUSH {l}1 a b c d"]),
            ("LMOVEM {l}1 {l}2 LEFT LEFT EXACTLY 5 OBO", &[]),
            ("LMOVEM {l}1 {l}2 LEFT LEFT COUNT 2 BULK", &["MULTI", "LPUSH {l}2 b a", "LPOP {l}1 2", "EXEC"]),
            ("BLMOVEM {l}1 {l}2 RIGHT RIGHT 1", &["MULTI", "RPUSH {l}2 d", "RPOP {l}1", "EXEC"]),
            ("LMOVEM {l}2 {l}2 LEFT LEFT COUNT 2 OBO", &["MULTI", "LPOP {l}2 2", "LPUSH {l}2 a b", "EXEC"]),
            ("LMOVEM {l}2 {l}2 LEFT LEFT COUNT 3 OBO", &["MULTI", "RPUSH {l}2 d a b", "LPOP {l}2 3", "EXEC"]),
            ("SUNIONCARD 2 s none", &[]),
            ("SADD s a b", &["SADD s a b"]),
            ("SPOP s 5", &["DEL s"]),
            ("SADDEX s EX 1000 MEMBERS 2 a b", &["SADDEX s PXAT T MEMBERS 2 a b"]),
            ("SADDEX s MEMBERS 2 a c", &["MULTI", "SADD s a c", "SPERSIST s MEMBERS 1 a", "EXEC"]),
            ("SADDEX s KEEPTTL MEMBERS 2 b d", &["SADD s b d"]),
            ("SADDEX s MNX EX 5 MEMBERS 2 b e", &[]),
            ("SEXPIRE s 1000 NX MEMBERS 3 a b none", &["SPEXPIREAT s T MEMBERS 1 a"]),
            ("SPERSIST s MEMBERS 2 a none", &["SPERSIST s MEMBERS 1 a"]),
            ("SPEXPIREAT s 1000 MEMBERS 2 d none", &["SREM s d"]),
            ("SADDEX s EXAT 1 MEMBERS 2 c none", &["SREM s c"]),
            ("SEXPIRE s 0 MEMBERS 2 a b", &["DEL s"]),
            ("ZADD z 1 a 2 b", &["ZADD z 1 a 2 b"]),
            ("ZMPOP 2 none z MAX COUNT 2", &["ZPOPMAX z 2"]),
            ("ZADD z 1 a 2 b 3 c", &["ZADD z 1 a 2 b 3 c"]),
            ("ZEXPIRE z 1000 NX MEMBERS 3 a b none", &["ZPEXPIREAT z T MEMBERS 2 a b"]),
            ("ZEXPIRE z 1000 XX MEMBERS 1 c", &[]),
            ("ZPERSIST z MEMBERS 2 a none", &["ZPERSIST z MEMBERS 1 a"]),
            ("ZPEXPIREAT z 1000 MEMBERS 2 b none", &["ZREM z b"]),
            ("ZEXPIRE z 0 MEMBERS 2 a c", &["DEL z"]),
            ("HSET h f 1 g 2", &["HSET h f 1 g 2"]),
            ("HEXPIRE h 1000 FIELDS 2 f none", &["HPEXPIREAT h T FIELDS 1 f"]),
            ("HINCRBYFLOAT h f 0.5", &["HSETEX h KEEPTTL FIELDS 1 f 1.5"]),
            ("HINCRBYFLOAT h g 0.5", &["HSET h g 2.5"]),
            ("HGETEX h PERSIST FIELDS 2 f g", &["HPERSIST h FIELDS 1 f"]),
            ("HSETEX h EX 1000 FIELDS 1 f 2", &["HSETEX h PXAT T FIELDS 1 f 2"]),
            ("HSETEX h NX EX 1000 FIELDS 1 f 2", &[]),
            ("HSETEX h XX EX 1000 FIELDS 1 f 2", &["HSETEX h PXAT T FIELDS 1 f 2"]),
            ("HGETDEL h FIELDS 2 f none", &["HDEL h f"]),
            ("HPEXPIREAT h 1000 FIELDS 1 g", &["DEL h"]),
            ("XADD x 7-* f v", &["XADD x 7-0 f v"]),
            ("XADD x MAXLEN 1 8 f v", &["XADD x MAXLEN = 1 8-0 f v"]),
            ("XGROUP CREATE x g 0", &["XGROUP CREATE x g 0"]),
            (
                "XREADGROUP GROUP g c BLOCK 0 STREAMS x >",
                &[
                    "MULTI",
                    "XGROUP CREATECONSUMER x g c",
                    "XCLAIM x g c 0 8-0 TIME T RETRYCOUNT 1 FORCE JUSTID",
                    "XGROUP SETID x g 8-0 ENTRIESREAD 2",
                    "EXEC",
                ],
            ),
            ("XTRIM x MAXLEN 0", &["XTRIM x MAXLEN = 0"]),
            ("XADD x 9 f v", &["XADD x 9-0 f v"]),
            ("XADD x MAXLEN 1 ACKED 10 f v", &["XADD x 10-0 f v"]),
            ("XGROUP SETID x g 10", &["XGROUP SETID x g 10"]),
            ("XADD x MAXLEN 1 ACKED 11 f v", &["XADD x MAXLEN = 1 11-0 f v"]),
            ("XTRIM x MAXLEN ~ 0 DELREF", &["XTRIM x MAXLEN = 0"]),
            ("XADD x 12 f v", &["XADD x 12-0 f v"]),
            ("XDELEX x DELREF IDS 2 12-0 1-0", &["XDEL x 12-0"]),
            ("XAUTOCLAIM x g d 0 0", &["XACK x g 8-0"]),
            ("FLUSHDB", &["FLUSHDB"]),
            ("SWAPDB 0 1", &["SWAPDB 0 1"]),
            ("FLUSHALL ASYNC", &["FLUSHALL ASYNC"]),
        ];
        for (command, expected) in cases {
            assert!(!client.call(command).is_error(), "{command}");
            assert_eq!(shown_at_least(&mut follower, expected.len()), *expected, "{command}");
        }
        assert_eq!(server.info("unreported_changes").as_deref(), Some("0"));
    });
}

#[test]
fn what_happens_in_one_moment_is_shown_as_one() {
    on_embers(DEBUG, |server| {
        let (mut client, mut follower) = (server.client(), follower(server));
        client.call("MSET a 1 b 2 c 3 d 4");
        let mut told = shown_at_least(&mut follower, 2);
        assert_eq!(told.remove(0), "SELECT 0");
        if told.len() > 1 {
            assert_eq!((told.remove(0).as_str(), told.pop().as_deref()), ("MULTI", Some("EXEC")));
        }
        let words: Vec<&str> = told.iter().flat_map(|line| line.split(' ').skip(1)).collect();
        let mut pairs: Vec<&[&str]> = words.chunks(2).collect();
        pairs.sort_unstable();
        assert_eq!(pairs, [["a", "1"], ["b", "2"], ["c", "3"], ["d", "4"]]);
        for command in ["MULTI", "SET a 2", "GET b", "FLUSHALL", "SET c 1", "EXEC"] {
            client.call(command);
        }
        assert_eq!(shown_at_least(&mut follower, 5), ["MULTI", "SET a 2", "FLUSHALL", "SET c 1", "EXEC"]);
        client.call("RPUSH l x y");
        client.call("RENAME l m");
        client.call("LMOVE m n LEFT LEFT");
        client.call("SADD s p");
        client.call("SMOVE s t p");
        let is_last = |line: &str| line == "SMOVE s t p" || line == "SADD t p";
        let told = shown_until(&mut follower, is_last).join("\n");
        assert_eq!(client.call("LRANGE n 0 -1"), Value::bulks(&["x"]));
        assert!(told.contains("LMOVE m n LEFT LEFT") || told.contains("LPUSH n x"), "{told}");
    });
}

#[test]
fn deaths_are_shown_before_what_finds_them() {
    on_embers(&["--enable-debug-command", "yes", "--active-expire-enabled", "no"], |server| {
        let (mut client, mut follower) = (server.client(), follower(server));
        client.call("SET {t}k 1 PX 5");
        client.call("HSET {t}h f 1 g 2");
        client.call("HPEXPIRE {t}h 5 FIELDS 1 f");
        client.call("SADD {t}s a b c");
        client.call("SPEXPIRE {t}s 5 MEMBERS 2 a b");
        shown(&mut follower);
        assert!(wait_until(SOON, || client.call("HEXISTS {t}h f") == int(0)));
        assert!(wait_until(SOON, || client.call("SCARD {t}s") == int(1)));
        assert!(wait_until(SOON, || client.call("PTTL {t}k").number() < 0));
        assert_eq!(shown_at_least(&mut follower, 1), ["DEL {t}k"]);
        client.call("SETNX {t}k 2");
        client.call("HSETNX {t}h f 3");
        assert_eq!(
            shown_at_least(&mut follower, 5),
            ["SETNX {t}k 2", "MULTI", "HDEL {t}h f", "HSETNX {t}h f 3", "EXEC"]
        );
        client.call("SADD {t}s a");
        assert_eq!(shown_at_least(&mut follower, 4), ["MULTI", "SREM {t}s a", "SADD {t}s a", "EXEC"]);
        client.call("ZADD {t}z 1 a 2 b 3 c 4 d 5 e");
        client.call("ZPEXPIRE {t}z 5 MEMBERS 2 a b");
        assert!(wait_until(SOON, || client.call("ZCARD {t}z") == int(3)));
        shown(&mut follower);
        client.call("ZADD {t}z XX 7 a 8 d");
        assert_eq!(shown_at_least(&mut follower, 4), ["MULTI", "ZREM {t}z a", "ZADD {t}z XX 7 a 8 d", "EXEC"]);
        client.call("ZPOPMIN {t}z");
        assert_eq!(shown_at_least(&mut follower, 1), ["ZREM {t}z c"]);
        client.call("ZREMRANGEBYRANK {t}z 0 0");
        assert_eq!(shown_at_least(&mut follower, 1), ["ZREM {t}z e"]);
        client.call("ZRANGESTORE {t}r {t}z 0 -1");
        assert_eq!(shown_at_least(&mut follower, 4), ["MULTI", "ZREM {t}z b", "ZRANGESTORE {t}r {t}z 0 -1", "EXEC"]);
        client.call("SUNIONSTORE {t}u {t}s");
        assert_eq!(shown_at_least(&mut follower, 4), ["MULTI", "SREM {t}s b", "SUNIONSTORE {t}u {t}s", "EXEC"]);
        // Who asks for ranks takes those out who are many.
        let names: Vec<String> = (0..200).map(|n| format!("m{n}")).collect();
        client.call(&format!("ZADD {{t}}y 7 lives 1 {}", names.join(" 1 ")));
        client.call(&format!("ZPEXPIRE {{t}}y 5 MEMBERS 200 {}", names.join(" ")));
        assert!(wait_until(SOON, || client.call("ZCARD {t}y") == int(1)));
        shown_at_least(&mut follower, 2);
        assert_eq!(client.call("ZRANK {t}y lives"), int(0));
        let told = shown_at_least(&mut follower, 1);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("ZREM {t}y m") && told[0].split(' ').count() == 202, "{told:?}");
        assert_eq!(client.call("ZRANK {t}y lives"), int(0));
        assert!(shown(&mut follower).is_empty());
    });
    on_embers(DEBUG, |server| {
        let (mut client, mut follower) = (server.client(), follower(server));
        client.call("SET k 1 PX 5");
        client.call("HSET h f 1 g 2");
        client.call("HPEXPIRE h 5 FIELDS 2 f g");
        let mut told = Vec::new();
        // One command may tell of several.
        let dead = |told: &[String]| {
            let dels = told.iter().filter_map(|line| line.strip_prefix("DEL "));
            let mut keys: Vec<String> = dels.flat_map(|keys| keys.split(' ')).map(str::to_owned).collect();
            keys.sort_unstable();
            keys
        };
        let all_told = wait_until(SOON, || {
            told.extend(shown(&mut follower));
            dead(&told) == ["h", "k"]
        });
        assert!(all_told, "{told:?}");
    });
}

/// A script that keeps to its keys at first is undone when it leaves them. What it has found dead is dead all the same.
#[test]
fn deaths_that_an_undone_script_has_found_are_shown() {
    for policy in [None, Some("EXPIRY POLICY SET k NONE EVENTS deaths")] {
        on_embers(&["--enable-debug-command", "yes", "--active-expire-enabled", "no"], |server| {
            let (mut client, mut follower) = (server.client(), follower(server));
            policy.into_iter().for_each(|policy| assert_eq!(client.call(policy), Value::ok()));
            let script =
                "redis.call('HSET', KEYS[1], 'f', '1') for _, key in ipairs(ARGV) do redis.call('GET', key) end";
            let call = |client: &mut Client, key: &str, others: &[&str]| {
                let args = [&["EVAL", script, "1", key], others].concat();
                assert!(!client.command(&args).is_error());
            };
            (0..3).for_each(|_| call(&mut client, "other", &[]));
            for n in 0..6 {
                let key = format!("k{n}");
                for name in [&key, "witness"] {
                    client.call(&format!("HSET {name} gone 1"));
                    client.call(&format!("PEXPIRE {name} 5"));
                }
                assert!(wait_until(SOON, || client.call("EXISTS witness") == int(0)));
                shown(&mut follower);
                call(&mut client, &key, &["a", "b", "c", "d"]);
                let set = format!("HSET {key} f 1");
                let told = shown_until(&mut follower, |line| line == set);
                let place = |line: &str| told.iter().position(|told| told == line);
                let (died, set) = (place(&format!("DEL {key}")), place(&set));
                assert!(died.is_some() && died < set, "{told:?}");
            }
        });
    }
}

/// Deaths that nobody's command has found are told under the database in which they were at that moment: a transaction
/// that has exchanged databases, and is not over, comes before them or behind them, never between.
#[test]
fn deaths_beside_databases_that_change_places() {
    on_embers(&["--enable-debug-command", "yes", "--active-expire-enabled", "no"], |server| {
        let (mut client, mut other, mut follower) = (server.client(), server.client(), follower(server));
        client.call("MSET a 1 b 1 c 1 d 1");
        (0..40).for_each(|n| drop(client.call(&format!("SET dead:{n}: 1 PX 5"))));
        client.call("SET witness 1 PX 5");
        assert!(wait_until(SOON, || client.call("EXISTS witness") == int(0)));
        shown(&mut follower);
        server.delay_shards(20_000);
        let commands = ["MULTI", "SWAPDB 0 1", "RENAME a e", "RENAME b f", "RENAME c g", "RENAME d h", "EXEC"];
        commands.iter().for_each(|command| client.send(command));
        (0..40).for_each(|n| drop(other.call(&format!("EXPIRY PURGE PREFIX dead:{n}:"))));
        commands.iter().for_each(|_| drop(client.read()));
        server.delay_shards(0);
        let (mut told, mut db) = (Vec::new(), "0");
        let is_swap = |line: &String| line == "SWAPDB 0 1";
        assert!(wait_until(SOON, || {
            told.extend(shown(&mut follower));
            told.iter().any(is_swap)
        }));
        let swap = told.iter().position(is_swap).expect("it was told");
        for (nth, line) in told.iter().enumerate() {
            if let Some(chosen) = line.strip_prefix("SELECT ") {
                db = ["0", "1"].into_iter().find(|name| *name == chosen).expect("one of two");
            }
            if line.starts_with("DEL dead:") {
                assert_eq!(db, if nth < swap { "0" } else { "1" }, "{told:?}");
            }
        }
    });
}

#[test]
fn who_is_shown_the_journal() {
    on_embers(DEBUG, |server| {
        let mut client = server.client();
        let mut follower = follower(server);
        let mut second = server.client();
        assert_eq!(second.call("DEBUG JOURNAL"), Value::ok());
        assert_eq!(second.call("DEBUG JOURNAL"), error("ERR this connection is shown the journal already"));
        client.call("SET k v");
        assert_eq!(
            (shown(&mut follower), shown(&mut second)),
            (FIRST.map(str::to_owned).into(), FIRST.map(str::to_owned).into())
        );
        let commands = ["MULTI", "DEBUG JOURNAL", "DEBUG POPULATE 3", "EXEC"];
        let [.., within] = commands.map(|command| client.call(command));
        let refused = ["JOURNAL", "POPULATE"].map(|of| error(&format!("ERR DEBUG {of} isn't allowed within EXEC")));
        assert_eq!(within.items(), refused);
        drop((follower, second));
        let mut next = server.client();
        assert_eq!(next.call("DEBUG JOURNAL"), Value::ok());
        client.call("SET k v");
        assert_eq!(shown_at_least(&mut next, 2), FIRST);
        assert_eq!(next.call("RESET"), simple("RESET"));
        client.call("SET k v");
        assert_eq!(shown(&mut next), [""; 0]);
    });
}

/// Who follows the journal is one reader of what changes, and the log is another.
#[test]
fn the_log_goes_on_when_nobody_follows_any_more() {
    on_embers(&[DEBUG, &["--save", "", "--appendonly", "yes"]].concat(), |server| {
        let mut client = server.client();
        let mut follower = follower(server);
        client.call("SET k v");
        assert_eq!(shown_at_least(&mut follower, 2), FIRST);
        assert_eq!(follower.call("RESET"), simple("RESET"));
        let bytes = || server.info("aof_current_size").and_then(|bytes| bytes.parse::<u64>().ok()).expect("a number");
        let before = bytes();
        client.call("SET k w");
        assert!(wait_until(SOON, || bytes() > before));
        assert_eq!(client.call("DEBUG LOADAOF"), Value::ok());
        assert_eq!(client.call("GET k").text(), "w");
    });
}
