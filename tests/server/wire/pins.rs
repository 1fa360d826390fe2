//! Keys that are never evicted (`BLESS`, and policies with `NOEVICT`): what is said, what keeps a pin, and that they stay.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::common::{Client, Kind, Server, Value, bulk, error, int, on_embers, wait_until, words};

const SOON: Duration = Duration::from_secs(20);
const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

fn number(server: &Server, field: &str) -> u64 {
    server.info(field).and_then(|value| value.parse().ok()).expect("a number")
}

fn is_pinned(client: &mut Client, key: &str) -> bool {
    match client.call(&format!("BLESS GET {key}")) {
        Value::Array(flags) if flags.is_empty() => false,
        flags if flags == Value::Array(vec![bulk("NO-EVICT")]) => true,
        other => panic!("{key}: {other:?}"),
    }
}

/// All pages of a walk; each key is shown once.
fn pinned(client: &mut Client, options: &str) -> BTreeSet<String> {
    let (mut all, mut cursor) = (BTreeSet::new(), "0".to_owned());
    loop {
        let page = client.call(&format!("BLESS SCAN {cursor} NO-EVICT {options}"));
        for key in page.items()[1].items() {
            assert!(all.insert(key.text()), "{key:?} again");
        }
        cursor = page.items()[0].text();
        if cursor == "0" {
            return all;
        }
    }
}

fn pin(client: &mut Client, key: &str) {
    assert_eq!(client.call(&format!("BLESS SET {key} NO-EVICT")), int(1), "{key}");
}

/// Sets keys of 500 bytes, pinned or not.
fn fill(client: &mut Client, prefix: &str, count: usize, pins: bool, end: &str) {
    let value = "x".repeat(500);
    for first in (0..count).step_by(100) {
        let sets: Vec<_> = (first..first + 100).map(|i| words(&format!("SET {prefix}{i} {value}{end}"))).collect();
        client.pipeline(&sets);
        if pins {
            let pins: Vec<_> =
                (first..first + 100).map(|i| words(&format!("BLESS SET {prefix}{i} NO-EVICT"))).collect();
            client.pipeline(&pins).iter().for_each(|reply| assert_eq!(*reply, int(1)));
        }
    }
}

#[test]
fn keys_are_pinned_shown_and_let_go() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for verb in ["SET", "CLEAR"] {
            assert_eq!(client.call(&format!("BLESS {verb} none NO-EVICT")), error("ERR no such key"));
        }
        assert_eq!(client.call("BLESS GET none"), error("ERR no such key"));
        client.call("SET k v");
        for wrong in ["SET k bogus", "CLEAR k none", "SCAN 0 bogus", "SCAN 0 NO-EVICT COUNT"] {
            assert_eq!(client.call(&format!("BLESS {wrong}")), error("ERR syntax error"), "{wrong}");
        }
        for wrong in ["SET k", "SET k NO-EVICT x", "CLEAR k", "SCAN 0", "GET", "GET k x"] {
            assert!(client.call(&format!("BLESS {wrong}")).text().contains("wrong number of arguments"), "{wrong}");
        }
        assert_eq!(client.call("BLESS SCAN x NO-EVICT"), error("ERR invalid cursor"));
        assert!(!is_pinned(&mut client, "k"));
        assert_eq!(client.call("BLESS SET k NO-EVICT"), int(1));
        assert_eq!(client.call("bless set k no-evict"), int(0));
        assert!(is_pinned(&mut client, "k"));
        assert_eq!(client.call("BLESS CLEAR k NO-EVICT"), int(1));
        assert_eq!(client.call("BLESS CLEAR k NO-EVICT"), int(0));
        assert!(!is_pinned(&mut client, "k"));
        fill(&mut client, "many:", 2_000, true, "");
        let all: BTreeSet<String> = (0..2_000).map(|i| format!("many:{i}")).collect();
        for options in ["", "COUNT 7", "COUNT 1000000", "MATCH * COUNT 50"] {
            assert_eq!(pinned(&mut client, options), all, "{options}");
        }
        assert_eq!(pinned(&mut client, "MATCH many:99?").len(), 10);
        assert_eq!(number(server, "blessed_keys"), 2_000);
        assert_eq!(client.call("MULTI"), Value::ok());
        client.call("BLESS SET k NO-EVICT");
        client.call("BLESS GET k");
        client.call("BLESS SCAN 0 NO-EVICT COUNT 10");
        let replies = client.call("EXEC");
        assert_eq!((&replies.items()[0], replies.items()[1].items().len()), (&int(1), 1));
        let script = "return redis.call('bless','clear',KEYS[1],'no-evict')";
        assert_eq!(client.command(&["EVAL", script, "1", "k"]), int(1));
        client.call("SELECT 1");
        assert_eq!(pinned(&mut client, "").len(), 0);
    });
}

/// As in Redis 8.12: a pin goes with its key, and stays whatever is put under it.
#[test]
fn what_keeps_a_pin_and_what_does_not() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("SADD members a b");
        client.call("ZADD scores 1 a");
        client.call("RPUSH numbers 3 1 2");
        for change in [
            "SET k w",
            "SET k w EX 1000",
            "GETSET k w",
            "MSET k 1 other 2",
            "APPEND k x",
            "EXPIRE k 1000",
            "PERSIST k",
            "BITOP NOT k k",
            "SUNIONSTORE k members",
            "ZUNIONSTORE k 1 scores",
            "SORT numbers STORE k",
        ] {
            client.call("SET k v");
            client.call("BLESS SET k NO-EVICT");
            let reply = client.call(change);
            assert!(!reply.is_error(), "{change}: {reply:?}");
            assert!(is_pinned(&mut client, "k"), "{change}");
        }
        for end in ["DEL k", "UNLINK k", "GETDEL k", "EXPIRE k -1", "SUNIONSTORE k none", "FLUSHDB", "FLUSHALL ASYNC"] {
            client.call("DEL k");
            client.call("SET k v");
            pin(&mut client, "k");
            let reply = client.call(end);
            assert!(!reply.is_error(), "{end}: {reply:?}");
            assert_eq!(number(server, "blessed_keys"), 0, "{end}");
            client.call("SET k v");
            assert!(!is_pinned(&mut client, "k"), "{end}");
        }
        // It dies in its time.
        client.call("SET k v PX 10");
        pin(&mut client, "k");
        assert!(wait_until(SOON, || client.call("EXISTS k") == int(0) && number(server, "blessed_keys") == 0));
        // It moves and is copied with its key, over whatever is there; twenty times, over shards and not.
        for i in 0..20 {
            client.call("FLUSHALL");
            client.call(&format!("MSET from{i} v to{i} w plain{i} x"));
            pin(&mut client, &format!("from{i}"));
            assert_eq!(client.call(&format!("COPY from{i} copy{i}")), int(1));
            assert_eq!(client.call(&format!("RENAME from{i} to{i}")), Value::ok());
            assert_eq!(pinned(&mut client, ""), [format!("copy{i}"), format!("to{i}")].into());
            assert_eq!(client.call(&format!("RENAME plain{i} to{i}")), Value::ok());
            assert_eq!(pinned(&mut client, ""), [format!("copy{i}")].into());
            assert_eq!(client.call(&format!("MOVE copy{i} 3")), int(1));
            assert_eq!(pinned(&mut client, "").len(), 0);
            assert_eq!(client.call("SWAPDB 0 3"), Value::ok());
            assert_eq!(pinned(&mut client, ""), [format!("copy{i}")].into());
        }
        // DUMP says nothing of it; RESTORE leaves what is there.
        client.call("FLUSHALL");
        client.call("SET k v");
        pin(&mut client, "k");
        let Value::Bulk(payload) = client.call("DUMP k") else { panic!("a payload") };
        assert_eq!(client.command(&[&b"RESTORE"[..], b"other", b"0", &payload]), Value::ok());
        assert_eq!(client.command(&[&b"RESTORE"[..], b"k", b"0", &payload, b"REPLACE"]), Value::ok());
        assert_eq!(pinned(&mut client, ""), ["k".to_owned()].into());
    });
}

/// What a script has done is taken back where it has to begin again, and what MULTI has watched has changed.
#[test]
fn a_pin_is_a_change_of_its_key() {
    on_embers(&["--notify-keyspace-events", "KEA"], |server| {
        let (mut client, mut other, mut listener) = (server.client(), server.client(), server.client());
        client.call("SET k v");
        client.call("WATCH k");
        client.call("MULTI");
        client.call("GET k");
        pin(&mut other, "k");
        assert_eq!(client.call("EXEC"), Value::NullArray);
        listener.call("PSUBSCRIBE __keyevent@0__:*bless");
        assert_eq!(other.call("BLESS CLEAR k NO-EVICT"), int(1));
        pin(&mut other, "k");
        for event in ["unbless", "bless"] {
            let message = listener.read();
            assert_eq!(message.items()[2].text(), format!("__keyevent@0__:{event}"));
        }
    });
}

#[test]
fn pinned_keys_stay_whatever_the_policy() {
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-random", "volatile-ttl"] {
        on_embers(&["--maxmemory-policy", policy], |server| {
            let mut client = server.client();
            // Those that the policy would let go first.
            fill(&mut client, "pinned:", 2_000, true, " EX 1000");
            assert_eq!(client.call("EXPIRY POLICY SET governed: NONE NOEVICT"), Value::ok());
            fill(&mut client, "governed:", 1_000, false, " EX 1000");
            let ceiling = number(server, "used_memory") + (1 << 20);
            assert_eq!(client.call(&format!("CONFIG SET maxmemory {ceiling}")), Value::ok());
            fill(&mut client, "other:", 20_000, false, " EX 100000");
            assert!(number(server, "evicted_keys") > 5_000, "{policy}");
            for (prefix, count) in [("pinned:", 2_000), ("governed:", 1_000)] {
                let exists: Vec<String> = (0..count).map(|i| format!("{prefix}{i}")).collect();
                let args: Vec<&str> = ["EXISTS"].into_iter().chain(exists.iter().map(String::as_str)).collect();
                assert_eq!(client.command(&args), int(count), "{policy} {prefix}");
            }
        });
    }
}

/// The search for keys that may go ends, quickly, where there are none, and finds the few that there are.
#[test]
fn a_ceiling_that_pinned_keys_fill_refuses_and_lets_go() {
    for policy in ["allkeys-lru", "volatile-ttl", "volatile-random"] {
        on_embers(&["--maxmemory-policy", policy], |server| {
            let mut client = server.client();
            fill(&mut client, "pinned:", 20_000, true, " EX 100000");
            let ceiling = number(server, "used_memory") - (8 << 20);
            assert_eq!(client.call(&format!("CONFIG SET maxmemory {ceiling}")), Value::ok());
            assert!(wait_until(SOON, || client.call("SET refused v EX 100") == error(OOM)), "{policy}");
            let (began, mut refused) = (Instant::now(), 0);
            for i in 0..200 {
                // Each is a change, behind which there might be a key to go.
                assert_eq!(client.call(&format!("EXPIRE pinned:{i} 90000")), int(1));
                // (While it is sought, a command may run that a lowered ceiling would let run.)
                refused += usize::from(client.call("SET refused v EX 100") == error(OOM));
            }
            assert!(began.elapsed() < SOON, "{policy}: {:?}", began.elapsed());
            assert!(refused > 150, "{policy}: {refused}");
            assert!(wait_until(SOON, || client.call("BLESS SET pinned:1 NO-EVICT") == error(OOM)), "{policy}");
            assert_eq!(pinned(&mut client, "COUNT 5000").len(), 20_000, "{policy}");
            // Room comes with the pins that are taken away.
            for first in (0..19_900).step_by(100) {
                let clears: Vec<_> =
                    (first..first + 100).map(|i| words(&format!("BLESS CLEAR pinned:{i} NO-EVICT"))).collect();
                client.pipeline(&clears);
            }
            assert!(wait_until(SOON, || client.call("SET taken v EX 100") == Value::ok()), "{policy}");
            assert!(wait_until(SOON, || number(server, "used_memory") <= ceiling + (1 << 20)), "{policy}");
            assert_eq!(number(server, "blessed_keys"), 100);
            assert_eq!(pinned(&mut client, "").len(), 100);
        });
    }
}

fn make(client: &mut Client) -> BTreeSet<String> {
    for i in 0..300 {
        client.call(&format!("SET k{i} v"));
        client.call(&format!("HSET h{i} a 1 b 2"));
    }
    client.command(&["SET", "long", &"x".repeat(3 << 20)]);
    let members: Vec<String> = (0..20_000).map(|i| format!("member:{i}")).collect();
    client.command(&["SADD", "large"].into_iter().chain(members.iter().map(String::as_str)).collect::<Vec<_>>());
    let mut all: BTreeSet<String> = (0..300).step_by(3).flat_map(|i| [format!("k{i}"), format!("h{i}")]).collect();
    all.extend(["long".to_owned(), "large".to_owned()]);
    all.iter().for_each(|key| pin(client, key));
    client.call("SELECT 2");
    client.call("SET k1 v");
    pin(client, "k1");
    client.call("SELECT 0");
    all
}

fn check(server: &Server, all: &BTreeSet<String>) {
    let mut client = server.client();
    assert_eq!(pinned(&mut client, ""), *all);
    assert_eq!(client.call("STRLEN long"), int(3 << 20));
    assert_eq!(client.call("SCARD large"), int(20_000));
    client.call("SELECT 2");
    assert_eq!(pinned(&mut client, ""), ["k1".to_owned()].into());
}

#[test]
fn a_restart_keeps_pins() {
    for (before, after) in [("1", "3"), ("3", "2")] {
        let shards = before.parse().expect("a number");
        let server = Server::start(Kind::Ember { shards }, &[]);
        let all = make(&mut server.client());
        assert_eq!(server.client().call("SAVE"), Value::ok());
        check(&server.restart(&["--shards", after]), &all);
        for preamble in ["yes", "no"] {
            let of_log = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble];
            let server = Server::start(Kind::Ember { shards }, &of_log);
            let mut client = server.client();
            let mut all = make(&mut client);
            // What the base of a log has, and what stands behind it.
            server.rewrite_log();
            assert_eq!(client.call("BLESS CLEAR k3 NO-EVICT"), int(1));
            all.remove("k3");
            pin(&mut client, "k1");
            all.insert("k1".to_owned());
            assert_eq!(client.call("RENAME k6 renamed"), Value::ok());
            all.remove("k6");
            all.insert("renamed".to_owned());
            let server = server.restart(&[&["--shards", after], &of_log[..]].concat());
            check(&server, &all);
        }
    }
}

/// A snapshot has what is pinned at its moment, whatever becomes of that while it is written.
#[test]
fn a_snapshot_beside_changes_has_one_moment() {
    let server = Server::start(Kind::Ember { shards: 3 }, &["--rdb-key-save-delay", "500"]);
    let mut client = server.client();
    let all = make(&mut client);
    assert!(!client.call("BGSAVE").is_error());
    for i in 0..300 {
        client.call(&format!("BLESS SET k{i} NO-EVICT"));
        client.call(&format!("BLESS CLEAR h{i} NO-EVICT"));
    }
    client.call("DEL long");
    assert!(wait_until(SOON, || server.info("rdb_bgsave_in_progress").as_deref() == Some("0")));
    assert_eq!(server.info("rdb_last_bgsave_status").as_deref(), Some("ok"));
    check(&server.restart(&["--save", ""]), &all);
}

#[test]
fn users_need_the_right_to_what_is_dangerous() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("ACL SETUSER u on nopass ~k* +@all -@dangerous"), Value::ok());
        client.call("MSET k v other w");
        let mut user = server.client();
        assert_eq!(user.call("AUTH u x"), Value::ok());
        assert!(user.call("BLESS SET k NO-EVICT").text().starts_with("NOPERM"));
        assert_eq!(user.call("BLESS GET k"), Value::Array(Vec::new()));
        assert!(user.call("BLESS GET other").text().starts_with("NOPERM"));
        assert_eq!(client.call("COMMAND GETKEYS BLESS SET k NO-EVICT"), Value::Array(vec![bulk("k")]));
    });
}
