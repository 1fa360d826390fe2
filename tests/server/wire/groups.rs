//! Groups of keys that die together: nobody sees a part of one, whatever else happens meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Client, Kind, Server, Value, bulk, error, int, ok, on_embers, wait_until};

const SOON: Duration = Duration::from_secs(20);

fn set(reply: &Value) -> BTreeSet<String> {
    reply.items().iter().map(Value::text).collect()
}

fn members(client: &mut Client, group: &str) -> BTreeSet<String> {
    set(&client.call(&format!("EXPIRY GROUP MEMBERS {group}")))
}

fn keys(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|key| format!("{prefix}:{key}")).collect()
}

/// Sets keys and adds them to a group.
fn fill(client: &mut Client, group: &str, keys: &[String]) {
    for some in keys.chunks(1_000) {
        let sets: Vec<Vec<&str>> = some.iter().map(|key| vec!["SET", key, "v"]).collect();
        client.pipeline(&sets).iter().for_each(|reply| assert_eq!(*reply, Value::ok()));
    }
    let args: Vec<&str> =
        ["EXPIRY", "GROUP", "ADD", group].into_iter().chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(client.command(&args), int(keys.len() as i64));
}

#[test]
fn a_group_is_made_asked_and_taken_apart() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let all = keys("k", 9);
        fill(&mut client, "g", &all);
        assert_eq!(client.call("EXPIRY GROUP ADD g k:0 k:1 missing"), int(0));
        assert_eq!(members(&mut client, "g"), all.iter().cloned().collect());
        assert_eq!(client.call("EXPIRY GROUP TTL g"), int(-1));
        assert_eq!(client.call("EXPIRY GROUP TTL none"), int(-2));
        assert_eq!(client.call("EXPIRY GROUP TOUCH g"), int(0), "it has no deadline");
        assert_eq!(client.call("EXPIRY GROUP EXPIRE g 1h"), int(9));
        assert!((3_590..=3_600).contains(&client.call("EXPIRY GROUP TTL g").number()));
        for key in &all {
            assert!((3_590_000..=3_600_000).contains(&client.call(&format!("PTTL {key}")).number()));
        }
        // Its own deadline holds where it is the earlier one, and alone when the key is in no group.
        ok(&mut client, "EXPIRE k:1 100");
        ok(&mut client, "EXPIRE k:2 100000");
        ok(&mut client, "SET k:3 w");
        let ttl = |client: &mut Client, key: &str| client.call(&format!("TTL {key}")).number();
        assert!(ttl(&mut client, "k:1") <= 100 && ttl(&mut client, "k:2") <= 3600 && ttl(&mut client, "k:3") > 3500);
        assert_eq!(client.call("EXPIRY GROUP REM g k:2 k:3 k:3 missing"), int(2));
        assert!(ttl(&mut client, "k:2") > 99_000 && ttl(&mut client, "k:3") == -1);
        assert_eq!(client.call("EXPIRY GROUP ADD h k:0 k:2"), int(2));
        assert_eq!(set(&client.call("EXPIRY GROUP OF k:0")), ["g", "h"].map(str::to_owned).into());
        assert_eq!(client.call("EXPIRY GROUP LIST"), Value::Array(vec![bulk("g"), bulk("h")]));
        assert_eq!(client.call("EXPIRY GROUP KILL h"), int(2));
        assert_eq!(client.call("EXISTS k:0 k:2"), int(0));
        assert_eq!(client.call("EXPIRY GROUP LIST"), Value::Array(vec![bulk("g")]));
        assert_eq!(members(&mut client, "g").len(), 6);
        // A name may be that of a key, too.
        ok(&mut client, "SET g v");
        assert_eq!(client.call("EXPIRY GROUP ADD g g"), int(1));
        assert_eq!(client.call("EXPIRY GROUP KILL g"), int(7));
        assert_eq!((client.call("DBSIZE"), client.call("EXPIRY GROUP LIST")), (int(1), Value::Array(Vec::new())));
        // One may have a deadline before it has members.
        assert_eq!(client.call("EXPIRY GROUP EXPIRE early 50s SLIDING"), int(0));
        assert_eq!(client.call("EXPIRY GROUP ADD early k:3"), int(1));
        assert!(ttl(&mut client, "k:3") > 40);
        assert!(client.call("EXPIRY GROUP PTTL early").number() > 40_000);
    });
}

#[test]
fn what_is_wrong_is_said() {
    on_embers(&[], |server| {
        let mut client = server.client();
        ok(&mut client, "SET k v");
        for (wrong, word) in [
            ("EXPIRY GROUP", "GROUP"),
            ("EXPIRY GROUP FOO g", "FOO"),
            ("EXPIRY group foo", "foo"),
            ("EXPIRY GROUP-ADD g k", "GROUP-ADD"),
            ("EXPIRY GROUP-ADD g k j", "GROUP-ADD"),
            ("EXPIRY G ROUP-ADD g k", "G"),
        ] {
            let said = format!("ERR unknown subcommand '{word}'. Try EXPIRY HELP.");
            assert_eq!(client.call(wrong), error(&said), "{wrong}");
        }
        for (wrong, name) in
            [("ADD g", "add"), ("KILL", "kill"), ("KILL g h", "kill"), ("OF", "of"), ("LIST g", "list")]
        {
            let expected = format!("ERR wrong number of arguments for 'expiry|group-{name}' command");
            assert_eq!(client.call(&format!("EXPIRY GROUP {wrong}")), error(&expected));
        }
        for wrong in ["EXPIRE g -1", "EXPIRE g x", "EXPIRE g 0", "EXPIRE g 9223372036854775808"] {
            assert!(
                client.call(&format!("EXPIRY GROUP {wrong}")).text().starts_with("ERR invalid duration"),
                "{wrong}"
            );
        }
        assert_eq!(client.call("EXPIRY GROUP EXPIRE g 1s SLIDE"), error("ERR syntax error"));
        assert!(client.call("EXPIRY GROUP OWN k -1 g").is_error());
        assert!(client.call("EXPIRY GROUP DATE g 0 5 5 0").is_error());
        for script in
            ["return redis.call('expiry','group','add','g','k')", "return redis.call('expiry','group','kill','g')"]
        {
            let refused = client.command(&["EVAL", script, "1", "k"]).text();
            assert!(refused.contains("not allowed from script"), "{refused}");
        }
        fill(&mut client, "g", &keys("m", 3));
        let listed = client.command(&["EVAL", "return redis.call('expiry','group','members','g')", "0"]);
        assert_eq!(set(&listed).len(), 3);
        assert_eq!(
            client.command(&["EVAL", "return redis.call('expiry','group','of','m:1')", "1", "m:1"]),
            Value::bulks(&["g"])
        );
        let help = client.call("EXPIRY HELP");
        assert!(set(&help).iter().any(|line| line.starts_with("GROUP ADD group key")), "{help:?}");
        let docs = client.call("COMMAND DOCS expiry|group-expire");
        assert!(format!("{docs:?}").contains("SLIDING"), "{docs:?}");
        let got = client.call("COMMAND GETKEYS EXPIRY GROUP ADD g a b");
        assert_eq!(got, Value::bulks(&["a", "b"]));
    });
}

/// What a reader has seen of a group: all of it, or nothing.
fn whole_or_none(reply: &Value, what: &str) -> bool {
    let there = reply.items().iter().filter(|item| !item.is_null()).count();
    assert!(there == 0 || there == reply.items().len(), "{what}: {there} of {}: {reply:?}", reply.items().len());
    there > 0
}

/// Hundreds of groups die, by their deadlines or by KILL, while readers look at all of them, with MGET and in
/// transactions.
#[test]
fn nobody_sees_a_part_of_a_group() {
    const GROUPS: usize = 150;
    const KEYS: usize = 7;
    on_embers(&[], |server| {
        let mut client = server.client();
        let names: Vec<Vec<String>> = (0..GROUPS).map(|group| keys(&format!("g{group}"), KEYS)).collect();
        for (group, keys) in names.iter().enumerate() {
            fill(&mut client, &format!("g{group}"), keys);
        }
        let mut rng = fastrand::Rng::with_seed(7);
        for group in 0..GROUPS {
            let life_ms = rng.u64(500..2_500);
            let sliding = if group % 3 == 0 { " SLIDING" } else { "" };
            let life_ms = if group % 3 == 0 { life_ms / 2 } else { life_ms };
            assert_eq!(client.call(&format!("EXPIRY GROUP EXPIRE g{group} {life_ms}{sliding}")), int(KEYS as i64));
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for reader in 0..3 {
                let (names, is_over) = (&names, &is_over);
                let mut client = server.client();
                scope.spawn(move || {
                    let mut was_gone = [false; GROUPS];
                    while !is_over.load(Ordering::Relaxed) {
                        let commands: Vec<Vec<&str>> = names
                            .iter()
                            .flat_map(|keys| match reader {
                                0 => {
                                    let gets = keys.iter().map(|key| vec!["GET", key]);
                                    std::iter::once(vec!["MULTI"]).chain(gets).chain([vec!["EXEC"]]).collect::<Vec<_>>()
                                }
                                _ => vec![std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect()],
                            })
                            .collect();
                        let replies = client.pipeline(&commands);
                        let seen = replies.iter().filter(|reply| matches!(reply, Value::Array(_)));
                        for (group, reply) in seen.enumerate() {
                            let is_there = whole_or_none(reply, &format!("reader {reader}, group {group}"));
                            assert!(!is_there || !was_gone[group], "group {group} has come back");
                            was_gone[group] |= !is_there;
                        }
                    }
                });
            }
            // Sliding ones are used all the time, and die only when they are killed.
            for group in (0..GROUPS).step_by(6) {
                client.call(&format!("EXPIRY GROUP KILL g{group}"));
            }
            let mortal: Vec<&String> =
                names.iter().enumerate().filter(|(group, _)| group % 3 != 0).flat_map(|(_, keys)| keys).collect();
            let args: Vec<&str> = std::iter::once("EXISTS").chain(mortal.iter().map(|key| key.as_str())).collect();
            assert!(wait_until(SOON, || client.command(&args) == int(0)));
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(wait_until(SOON, || client.call("DBSIZE") == int(0)), "unused ones die");
        assert!(wait_until(SOON, || client.call("EXPIRY GROUP LIST") == Value::Array(Vec::new())));
    });
}

#[test]
fn the_use_of_a_member_renews_all() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let all = keys("s", 6);
        fill(&mut client, "s", &all);
        assert_eq!(client.call("EXPIRY GROUP EXPIRE s 3s SLIDING"), int(6));
        let (began, mut last) = (Instant::now(), Instant::now());
        while began.elapsed() < Duration::from_secs(5) {
            assert_eq!(client.call("GET s:0"), bulk("v"), "{:?} since the last use", last.elapsed());
            last = Instant::now();
            std::thread::sleep(Duration::from_millis(20));
        }
        let mget = format!("MGET {}", all.join(" "));
        let left_ms: BTreeSet<i64> =
            all.iter().map(|key| client.call(&format!("PTTL {key}")).number() / 1_000).collect();
        assert!(left_ms.len() <= 2, "{left_ms:?}");
        // Nobody uses it, so it dies.
        client.call("CLIENT NO-TOUCH ON");
        assert!(wait_until(SOON, || !whole_or_none(&client.call(&mget), "unused")));
        assert_eq!(client.call("DBSIZE"), int(0));
    });
}

#[test]
fn large_groups_and_keys_that_are_named_often() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let all = keys("big", 100_000);
        fill(&mut client, "big", &all);
        assert_eq!(client.call("EXPIRY GROUP EXPIRE big 1h"), int(100_000));
        assert_eq!(members(&mut client, "big").len(), 100_000);
        assert_eq!(client.call("EXPIRY GROUP TOUCH big"), int(100_000));
        assert_eq!(client.call("EXPIRY GROUP KILL big"), int(100_000));
        assert_eq!(client.call("DBSIZE"), int(0));
        ok(&mut client, "SET k v");
        let args: Vec<&str> =
            ["EXPIRY", "GROUP", "ADD", "g"].into_iter().chain(std::iter::repeat_n("k", 1_000)).collect();
        assert_eq!(client.command(&args), int(1));
        let args: Vec<&str> =
            ["EXPIRY", "GROUP", "REM", "g"].into_iter().chain(std::iter::repeat_n("k", 1_000)).collect();
        assert_eq!(client.command(&args), int(1));
        for group in 0..64 {
            assert_eq!(client.call(&format!("EXPIRY GROUP ADD g{group} k")), int(1));
        }
        fill(&mut client, "all", &keys("o", 20));
        let refused = format!("EXPIRY GROUP ADD all2 {} k", keys("o", 20).join(" "));
        assert_eq!(client.call(&refused), error("ERR a key is in no more than 64 groups"));
        assert_eq!(client.call("EXPIRY GROUP TTL all2"), int(-2), "nobody has joined");
        // Who hangs up leaves all of it done or nothing.
        let many = keys("hang", 5_000);
        let sets: Vec<Vec<&str>> = many.iter().map(|key| vec!["SET", key, "v"]).collect();
        client.pipeline(&sets);
        for round in 0..10 {
            let mut other = server.client();
            other.send(&format!("EXPIRY GROUP ADD hang{round} {}", many.join(" ")));
            drop(other);
            let mut count = 0;
            assert!(
                wait_until(SOON, || {
                    count = members(&mut client, &format!("hang{round}")).len();
                    count == 0 || count == many.len()
                }),
                "{count}"
            );
        }
    });
}

#[test]
fn whole_databases_take_their_groups_along() {
    on_embers(&[], |server| {
        let mut client = server.client();
        fill(&mut client, "g", &keys("k", 6));
        ok(&mut client, "EXPIRY GROUP EXPIRE g 1h");
        ok(&mut client, "SWAPDB 0 1");
        assert_eq!((client.call("EXPIRY GROUP TTL g"), members(&mut client, "g").len()), (int(-2), 0));
        ok(&mut client, "SELECT 1");
        assert!(client.call("EXPIRY GROUP TTL g").number() > 3_590);
        assert_eq!(members(&mut client, "g").len(), 6);
        // One key leaves by going elsewhere.
        assert_eq!(client.call("MOVE k:0 0"), int(1));
        ok(&mut client, "RENAME k:1 other");
        ok(&mut client, "COPY k:2 copy");
        let payload = client.call("DUMP k:3");
        assert_eq!(client.command(&[&b"RESTORE"[..], b"restored", b"0", payload.bytes().expect("bytes")]), Value::ok());
        assert_eq!(members(&mut client, "g"), ["k:2", "k:3", "k:4", "k:5"].map(str::to_owned).into());
        assert!(client.call("TTL other").number() > 3_500, "it keeps the deadline that it had");
        assert_eq!(client.call("TTL restored"), int(-1));
        ok(&mut client, "FLUSHDB");
        assert_eq!(
            (client.call("EXPIRY GROUP TTL g"), client.call("EXPIRY GROUP LIST")),
            (int(-2), Value::Array(Vec::new()))
        );
        fill(&mut client, "h", &keys("k", 6));
        assert_eq!(client.call("EXPIRY GROUP TTL h"), int(-1));
        ok(&mut client, "FLUSHALL");
        assert_eq!(client.call("EXPIRY GROUP TTL h"), int(-2));
        // Within transactions.
        for line in [
            "MULTI",
            "MSET a 1 b 2 c 3",
            "EXPIRY GROUP ADD t a b c",
            "EXPIRY GROUP EXPIRE t 1h",
            "EXPIRY GROUP MEMBERS t",
            "EXPIRY GROUP TTL t",
            "EXPIRY GROUP LIST",
            "EXPIRY GROUP REM t b",
            "EXPIRY GROUP KILL t",
        ] {
            client.call(line);
        }
        let replies = client.call("EXEC");
        let replies = replies.items();
        assert_eq!(replies[1..3], [int(3), int(3)]);
        assert_eq!(set(&replies[3]).len(), 3);
        assert_eq!(replies[4..], [int(3600), Value::bulks(&["t"]), int(1), int(2)]);
        assert_eq!(client.call("MGET a b c"), Value::Array(vec![Value::NullBulk, bulk("2"), Value::NullBulk]));
        // A lease may guard it.
        let token = client.call("LEASE TAKE l 1h").number();
        assert_eq!(client.call(&format!("GUARD l {token} EXPIRY GROUP ADD t b")), int(1));
        assert!(client.call(&format!("GUARD l {} EXPIRY GROUP KILL t", token + 1)).text().starts_with("LEASELOST"));
        assert_eq!(client.call(&format!("GUARD l {token} EXPIRY GROUP KILL t")), int(1));
    });
}

#[test]
fn rules_of_users_look_at_groups_as_at_keys() {
    on_embers(&[], |server| {
        let mut admin = server.client();
        ok(&mut admin, "ACL SETUSER u on >p ~a:* %R~b:* +@all -@dangerous");
        ok(&mut admin, "MSET a:1 v a:2 v b:1 v c:1 v");
        let mut client = server.client();
        ok(&mut client, "AUTH u p");
        assert_eq!(client.call("EXPIRY GROUP ADD a:g a:1 a:2"), int(2));
        for refused in [
            "EXPIRY GROUP ADD c:g a:1",
            "EXPIRY GROUP ADD b:g a:1",
            "EXPIRY GROUP ADD a:g b:1",
            "EXPIRY GROUP REM c:g a:1",
            "EXPIRY GROUP EXPIRE b:g 1s",
            "EXPIRY GROUP KILL c:g",
            "EXPIRY GROUP TOUCH c:g",
            "EXPIRY GROUP MEMBERS c:g",
            "EXPIRY GROUP TTL c:g",
            "EXPIRY GROUP OF c:1",
            "EXPIRY GROUP OWN a:1 -1 a:g 0",
            "EXPIRY GROUP DATE a:g 1 1 1 1",
        ] {
            assert!(client.call(refused).text().starts_with("NOPERM"), "{refused}: {:?}", client.call(refused));
        }
        for allowed in [
            "EXPIRY GROUP MEMBERS b:g",
            "EXPIRY GROUP TTL b:g",
            "EXPIRY GROUP OF b:1",
            "EXPIRY GROUP EXPIRE a:g 1h",
            "EXPIRY GROUP KILL a:g",
        ] {
            ok(&mut client, allowed);
        }
        ok(&mut admin, "ACL SETUSER v on >p ~* -@all +expiry|group-of");
        let mut client = server.client();
        ok(&mut client, "AUTH v p");
        ok(&mut client, "EXPIRY GROUP OF b:1");
        assert!(client.call("EXPIRY GROUP TTL b:g").text().starts_with("NOPERM"));
    });
}

/// Deaths are told as such, deletions as such, and writers of policies' streams hear of them.
#[test]
fn deaths_of_groups_are_told() {
    on_embers(&["--notify-keyspace-events", "Exg"], |server| {
        let mut client = server.client();
        ok(&mut client, "EXPIRY POLICY SET d: NONE EVENTS deaths");
        fill(&mut client, "g", &keys("d", 5));
        fill(&mut client, "h", &keys("e", 5));
        let mut listener = server.client();
        listener.call("SUBSCRIBE __keyevent@0__:expired __keyevent@0__:del");
        listener.read();
        assert_eq!(client.call("EXPIRY GROUP KILL h"), int(5));
        let mut told: Vec<(String, String)> = Vec::new();
        let mut hear = |listener: &mut Client, count: usize| {
            for _ in 0..count {
                let message = listener.read_within(SOON).expect("a message");
                told.push((message.items()[1].text(), message.items()[2].text()));
            }
        };
        hear(&mut listener, 5);
        assert_eq!(client.call("EXPIRY GROUP EXPIRE g 50"), int(5));
        hear(&mut listener, 5);
        let of = |event: &str, prefix: &str| {
            keys(prefix, 5).into_iter().map(move |key| (format!("__keyevent@0__:{event}"), key)).collect::<Vec<_>>()
        };
        told.sort();
        assert_eq!(told, [of("del", "e"), of("expired", "d")].concat());
        assert!(wait_until(SOON, || client.call("XLEN deaths") == int(5)));
    });
}

#[test]
fn forecasts_know_of_groups() {
    on_embers(&[], |server| {
        let mut client = server.client3();
        fill(&mut client, "g", &keys("k", 12));
        assert_eq!(client.call("EXPIRY FORECAST 2h").field("keys"), Some(int(0)));
        ok(&mut client, "EXPIRY GROUP EXPIRE g 1h");
        assert_eq!(client.call("EXPIRY FORECAST 2h").field("keys"), Some(int(12)));
        ok(&mut client, "EXPIRY GROUP TOUCH g");
        assert_eq!(client.call("EXPIRY FORECAST 30m").field("keys"), Some(int(0)));
    });
}

/// Groups as they are told by a client, so that two servers can be compared.
fn state(client: &mut Client) -> Vec<String> {
    let mut all = Vec::new();
    for group in client.call("EXPIRY GROUP LIST").items() {
        let name = group.text();
        let has_deadline = client.call(&format!("EXPIRY GROUP PTTL {name}")).number() >= 0;
        all.push(format!("{name}: {has_deadline} {:?}", members(client, &name)));
    }
    all
}

fn make(client: &mut Client) {
    fill(client, "forever", &keys("f", 5));
    fill(client, "hour", &keys("h", 5));
    ok(client, "EXPIRE h:0 100000");
    ok(client, "EXPIRE h:1 100");
    ok(client, "EXPIRY GROUP EXPIRE hour 1h");
    ok(client, "EXPIRY GROUP ADD forever h:2 h:3");
    ok(client, "EXPIRY GROUP EXPIRE early 1h SLIDING");
    ok(client, "EXPIRY GROUP ADD early f:0");
    ok(client, "EXPIRY GROUP ADD gone h:4 f:1");
    ok(client, "EXPIRY GROUP REM gone h:4 f:1");
    fill(client, "killed", &keys("x", 5));
    ok(client, "EXPIRY GROUP EXPIRE killed 1h");
    ok(client, "EXPIRY GROUP KILL killed");
    ok(client, "EXPIRY GROUP EXPIRE empty 1h");
    ok(client, "SET h:3 other");
    ok(client, "DEL f:4");
    ok(client, "SELECT 3");
    fill(client, "third", &keys("t", 5));
    ok(client, "EXPIRY GROUP EXPIRE third 2h SLIDING");
    ok(client, "SELECT 0");
}

/// What was made is still so, deadlines of keys' own included.
fn check(client: &mut Client, before: &[String]) {
    assert_eq!(state(client), before);
    assert!(client.call("TTL h:1").number() <= 100);
    let left = client.call("TTL h:0").number();
    assert!((1..=3_600).contains(&left), "{left}");
    assert_eq!(client.call("EXPIRY GROUP REM hour h:0 h:2"), int(2));
    assert!(client.call("TTL h:0").number() > 90_000);
    assert_eq!(client.call("TTL h:2"), int(-1));
    ok(client, "SELECT 3");
    let shown = client.call("EXPIRY GROUP TTL third").number();
    assert!((7_000..=7_200).contains(&shown), "{shown}");
    // It still slides.
    assert_eq!(client.call("EXPIRY GROUP EXPIRE third 60 SLIDING"), int(5));
    assert!(wait_until(SOON, || client.call("DBSIZE") == int(0)));
    ok(client, "SELECT 0");
    assert_eq!(client.call("EXPIRY GROUP KILL forever"), int(6));
    assert_eq!(client.call("EXPIRY GROUP KILL early"), int(0));
}

#[test]
fn a_restart_with_a_log_keeps_groups() {
    for preamble in ["yes", "no"] {
        for (before, after) in [("1", "3"), ("3", "2"), ("3", "3")] {
            for rewrites in [false, true] {
                let of_log = ["--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", preamble];
                let flags = |shards| [&["--shards", shards], &of_log[..]].concat();
                let server = Server::start(Kind::Ember { shards: before.parse().expect("a number") }, &of_log);
                let mut client = server.client();
                make(&mut client);
                if rewrites {
                    server.rewrite_log();
                    ok(&mut client, "SET later v");
                    ok(&mut client, "EXPIRY GROUP ADD late later");
                }
                let is = state(&mut client);
                let server = server.restart(&flags(after));
                check(&mut server.client(), &is);
                // What was done since is in the log as well.
                let mut client = server.client();
                let is = state(&mut client);
                let server = server.restart(&flags(before));
                assert_eq!(state(&mut server.client()), is);
            }
        }
    }
}

#[test]
fn a_restart_with_a_snapshot_keeps_groups() {
    for (before, after) in [("1", "3"), ("3", "2"), ("3", "3")] {
        let server = Server::start(Kind::Ember { shards: before.parse().expect("a number") }, &[]);
        let mut client = server.client();
        make(&mut client);
        let is = state(&mut client);
        assert_eq!(client.call("SAVE"), Value::ok());
        ok(&mut client, "EXPIRY GROUP KILL hour");
        let server = server.restart(&["--shards", after]);
        check(&mut server.client(), &is);
    }
}

/// Renewals go on while a snapshot is made: what it has is as of one moment.
#[test]
fn a_snapshot_beside_renewals_has_one_moment() {
    let server = Server::start(Kind::Ember { shards: 3 }, &["--rdb-key-save-delay", "200"]);
    let mut client = server.client();
    fill(&mut client, "g", &keys("k", 3_000));
    assert_eq!(client.call("EXPIRY GROUP EXPIRE g 1h"), int(3_000));
    ok(&mut client, "BGSAVE");
    for _ in 0..10 {
        ok(&mut client, "EXPIRY GROUP EXPIRE g 2h");
    }
    assert!(wait_until(SOON, || server.info("rdb_bgsave_in_progress").as_deref() == Some("0")));
    let server = server.restart(&["--save", ""]);
    let mut client = server.client();
    assert_eq!(members(&mut client, "g").len(), 3_000);
    assert_eq!(client.call("EXPIRY GROUP EXPIRE g 5h"), int(3_000));
    let left: BTreeSet<i64> =
        keys("k", 3_000).iter().map(|key| client.call(&format!("TTL {key}")).number() / 100).collect();
    assert!(left.iter().all(|left| (179..=180).contains(left)), "{left:?}");
}

/// What has died by a group, and is not deleted yet, stays dead behind a start, whatever else it was in; and the next group of that
/// name takes no harm.
#[test]
fn members_of_dead_groups_stay_dead_behind_a_restart() {
    const NAMES: usize = 200;
    let each = |line: &str| -> Vec<Vec<String>> {
        let of = |i: usize| line.replace('#', &i.to_string()).split(' ').map(str::to_owned).collect();
        (0..NAMES).map(of).collect()
    };
    for base in ["yes", "no", "snapshot"] {
        for shards in [1, 3] {
            let of_log = ["--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", base];
            let of_log = if base == "snapshot" { &[] } else { &of_log[..] };
            let flags = [&["--enable-debug-command", "yes"], of_log].concat();
            let server = Server::start(Kind::Ember { shards }, &flags);
            let mut client = server.client();
            ok(&mut client, "DEBUG SET-ACTIVE-EXPIRE 0");
            for line in ["SET dies:# v", "EXPIRY GROUP ADD tag dies:#", "EXPIRY GROUP ADD g:# dies:#"] {
                client.pipeline(&each(line));
            }
            client.pipeline(&each("EXPIRY GROUP EXPIRE g:# 10"));
            assert!(wait_until(SOON, || members(&mut client, "tag").is_empty()));
            // (On shards where the name does not come again it is still the dead group's.)
            for line in ["SET lives:# v", "EXPIRY GROUP ADD g:# lives:#"] {
                client.pipeline(&each(line));
            }
            if base == "snapshot" {
                ok(&mut client, "SAVE");
            } else {
                server.rewrite_log();
            }
            let number = shards.to_string();
            let server = server.restart(&[&["--shards", &number], &flags[..]].concat());
            let mut client = server.client();
            let what = format!("{base}, {shards} shards");
            assert_eq!(members(&mut client, "tag"), BTreeSet::new(), "{what}");
            for i in 0..NAMES {
                assert_eq!(client.call(&format!("EXISTS dies:{i}")), int(0), "{what}: {i}");
                assert_eq!(client.call(&format!("EXPIRY GROUP PTTL g:{i}")), int(-1), "{what}: {i}");
                let alive = BTreeSet::from([format!("lives:{i}")]);
                assert_eq!(members(&mut client, &format!("g:{i}")), alive, "{what}: {i}");
            }
        }
    }
}

/// PERSIST is about a key's own deadline: where it has none but that of its groups nothing changes.
#[test]
fn a_member_without_a_deadline_of_its_own_has_none_to_lose() {
    on_embers(&["--notify-keyspace-events", "KEA"], |server| {
        let (mut client, mut watcher) = (server.client(), server.client());
        client.call("SET k v");
        client.call("EXPIRY GROUP ADD g k");
        client.call("EXPIRY GROUP EXPIRE g 100s");
        watcher.call("WATCH k");
        assert_eq!(client.call("PERSIST k"), int(0));
        assert!(client.call("TTL k").number() > 0);
        watcher.call("MULTI");
        watcher.call("PING");
        assert!(!watcher.call("EXEC").is_null(), "nothing has changed");
        client.call("EXPIRE k 50");
        assert_eq!(client.call("PERSIST k"), int(1));
        assert_eq!(client.call("PERSIST k"), int(0));
        assert!(client.call("TTL k").number() > 50);
    });
}
