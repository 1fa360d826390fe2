//! Deaths of groups as entries of streams, and groups that live on without their deadlines.
//!
//! `EMBERDB_GROUPS=10000` makes as many of 100 keys each die beside readers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Client, Kind, Server, Value, bulk, error, int, on_embers, wait_until};

const SOON: Duration = Duration::from_secs(20);

fn ok(client: &mut Client, line: &str) {
    let reply = client.call(line);
    assert!(!reply.is_error(), "{line}: {reply:?}");
}

/// Sets so many keys, in a group.
fn fill(client: &mut Client, group: &str, count: usize) {
    let keys: Vec<String> = (0..count).map(|key| format!("{group}:{key}")).collect();
    let pairs: Vec<&str> = std::iter::once("MSET").chain(keys.iter().flat_map(|key| [key.as_str(), "v"])).collect();
    assert_eq!(client.command(&pairs), Value::ok());
    let args: Vec<&str> =
        ["EXPIRY", "GROUP", "ADD", group].into_iter().chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(client.command(&args), int(count as i64));
}

/// What a stream says of the deaths of groups: the name, the cause and the number of members of each.
fn told(client: &mut Client, stream: &str) -> Vec<(String, String, String)> {
    let entries = client.call(&format!("XRANGE {stream} - +"));
    let told = entries.items().iter().map(|entry| {
        let fields = &entry.items()[1];
        let field = |name: &str| fields.field(name).map(|value| value.text()).unwrap_or_default();
        if field("cause") == "expired" {
            assert!(field("deadline").parse::<u64>().is_ok() && field("lag").parse::<f64>().is_ok(), "{fields:?}");
        }
        (field("group"), field("cause"), field("members"))
    });
    told.collect()
}

fn entry(group: &str, cause: &str, members: usize) -> (String, String, String) {
    (group.to_owned(), cause.to_owned(), members.to_string())
}

#[test]
fn a_stream_is_told_of_a_group_once() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("EXPIRY GROUP EVENTS none deaths"), int(0));
        fill(&mut client, "none", 2);
        assert_eq!(client.call("EXPIRY GROUP KILL none"), int(2), "nothing was remembered for it");
        assert_eq!(client.call("EXISTS deaths"), int(0));
        for (group, count) in [("g", 9), ("h", 5), ("quiet", 4), ("tag", 6)] {
            fill(&mut client, group, count);
            assert_eq!(client.call(&format!("EXPIRY GROUP EVENTS {group} deaths")), int(count as i64));
        }
        assert_eq!(client.call("EXPIRY GROUP EVENTS quiet"), int(4));
        // What had died before is no member, and what died by itself with it is one.
        ok(&mut client, "PEXPIRE g:0 1");
        ok(&mut client, "DEL g:1");
        ok(&mut client, "EXPIRE g:2 100");
        assert!(wait_until(SOON, || client.call("EXISTS g:0") == int(0)));
        assert_eq!(client.call("EXPIRY GROUP EXPIRE early 1h"), int(0));
        assert_eq!(client.call("EXPIRY GROUP EVENTS early deaths"), int(0), "it has a deadline, and no members");
        assert_eq!(client.call("EXPIRY GROUP EXPIRE early 20"), int(0));
        assert!(wait_until(SOON, || told(&mut client, "deaths") == [entry("early", "expired", 0)]));
        assert_eq!(client.call("EXPIRY GROUP EXPIRE g 60"), int(7));
        assert!(wait_until(SOON, || told(&mut client, "deaths").last() == Some(&entry("g", "expired", 7))));
        assert_eq!(client.call("EXPIRY GROUP KILL h"), int(5));
        assert_eq!(told(&mut client, "deaths").last(), Some(&entry("h", "killed", 5)), "it is there at once");
        assert_eq!(client.call("EXPIRY GROUP KILL h"), int(0));
        assert_eq!(client.call("EXPIRY GROUP KILL quiet"), int(4));
        // One without a deadline that loses its members by themselves has not died, and does not remember its stream.
        assert_eq!(client.call("DEL tag:0 tag:1 tag:2 tag:3 tag:4 tag:5"), int(6));
        assert!(wait_until(SOON, || {
            fill(&mut client, "tag", 6);
            let before = told(&mut client, "deaths").len();
            assert_eq!(client.call("EXPIRY GROUP KILL tag"), int(6));
            told(&mut client, "deaths").len() == before
        }));
        // A group that comes again is another one.
        fill(&mut client, "g", 3);
        assert_eq!(client.call("EXPIRY GROUP EXPIRE g 50"), int(3));
        assert!(wait_until(SOON, || client.call("EXPIRY GROUP TTL g") == int(-2)));
        let of_g = told(&mut client, "deaths").iter().filter(|(group, ..)| group == "g").count();
        assert_eq!(of_g, 1);
        assert!(wait_until(SOON, || client.call("DBSIZE") == int(1)), "members are deleted");
        // In transactions and behind a lease.
        fill(&mut client, "t", 4);
        for line in ["MULTI", "EXPIRY GROUP EVENTS t deaths2 MAXLEN 100", "EXPIRY GROUP KILL t", "GET t:0"] {
            client.call(line);
        }
        assert_eq!(client.call("EXEC"), Value::Array(vec![int(4), int(4), Value::NullBulk]));
        fill(&mut client, "t", 4);
        let token = client.call("LEASE TAKE l 1h").number();
        assert_eq!(client.call(&format!("GUARD l {token} EXPIRY GROUP EVENTS t deaths2")), int(4));
        assert!(client.call(&format!("GUARD l {} EXPIRY GROUP KILL t", token + 1)).text().starts_with("LEASELOST"));
        assert_eq!(client.call(&format!("GUARD l {token} EXPIRY GROUP KILL t")), int(4));
        assert_eq!(told(&mut client, "deaths2"), vec![entry("t", "killed", 4); 2]);
    });
}

#[test]
fn what_is_wrong_is_said() {
    on_embers(&[], |server| {
        let mut client = server.client();
        fill(&mut client, "g", 5);
        for wrong in ["deaths MAXLEN", "deaths MAX 5", "deaths MAXLEN 5 6", "deaths MAXLEN 1 MAXLEN 1"] {
            assert_eq!(client.call(&format!("EXPIRY GROUP EVENTS g {wrong}")), error("ERR syntax error"), "{wrong}");
        }
        for wrong in ["x", "-1", "9223372036854775808"] {
            assert!(client.call(&format!("EXPIRY GROUP EVENTS g deaths MAXLEN {wrong}")).is_error(), "{wrong}");
        }
        assert!(client.command(&["EXPIRY", "GROUP", "EVENTS", "g", ""]).is_error());
        for (wrong, name) in [("EVENTS", "events"), ("PERSIST", "persist"), ("PERSIST g h", "persist")] {
            let expected = format!("ERR wrong number of arguments for 'expiry|group-{name}' command");
            assert_eq!(client.call(&format!("EXPIRY GROUP {wrong}")), error(&expected));
        }
        for wrong in ["LEFT k g 1", "LEFT k g 0 1 5 s -1", "LEFT k g 1 1 5 s", "TOLD g x", "DATE g 0 5 5 0 s -1"] {
            assert!(client.call(&format!("EXPIRY GROUP {wrong}")).is_error(), "{wrong}");
        }
        let script = "return redis.call('expiry','group','events','g','s')";
        assert!(client.command(&["EVAL", script, "0"]).text().contains("not allowed from script"));
        // Where there is no stream, the group dies all the same.
        ok(&mut client, "SET deaths text");
        assert_eq!(client.call("EXPIRY GROUP EVENTS g deaths"), int(5));
        assert_eq!(client.call("EXPIRY GROUP KILL g"), int(5));
        fill(&mut client, "g", 5);
        assert_eq!(client.call("EXPIRY GROUP EVENTS g deaths"), int(5));
        assert_eq!(client.call("EXPIRY GROUP EXPIRE g 20"), int(5));
        assert!(wait_until(SOON, || server.info("expiry_events_lost").as_deref() == Some("2")));
        assert!(wait_until(SOON, || client.call("DBSIZE") == int(1)));
        // The stream may be a member itself.
        fill(&mut client, "own", 3);
        ok(&mut client, "XADD s 1-1 a b");
        assert_eq!(client.call("EXPIRY GROUP ADD own s"), int(1));
        assert_eq!(client.call("EXPIRY GROUP EVENTS own s"), int(4));
        assert_eq!(client.call("EXPIRY GROUP EXPIRE own 20"), int(4));
        assert!(wait_until(SOON, || told(&mut client, "s") == [entry("own", "expired", 4)]));
        // It is bounded.
        for round in 0..300 {
            let group = format!("b{round}");
            fill(&mut client, &group, 1);
            assert_eq!(client.call(&format!("EXPIRY GROUP EVENTS {group} bounded MAXLEN 10")), int(1));
            assert_eq!(client.call(&format!("EXPIRY GROUP KILL {group}")), int(1));
        }
        assert!(client.call("XLEN bounded").number() < 250);
        // The rights of users hold for the stream.
        ok(&mut client, "ACL SETUSER u on >p ~a:* %R~b:* +@all -@dangerous");
        fill(&mut client, "a:g", 2);
        let mut other = server.client();
        ok(&mut other, "AUTH u p");
        for refused in [
            "EVENTS a:g b:s",
            "EVENTS a:g c:s MAXLEN 1",
            "EVENTS b:g a:s",
            "PERSIST b:g",
            "TOLD a:g 1",
            "LEFT a:k a:g 1 1",
        ] {
            let reply = other.call(&format!("EXPIRY GROUP {refused}"));
            assert!(reply.text().starts_with("NOPERM"), "{refused}: {reply:?}");
        }
        assert_eq!(other.call("EXPIRY GROUP EVENTS a:g a:s"), int(2));
        assert_eq!(other.call("EXPIRY GROUP KILL a:g"), int(2));
    });
}

#[test]
fn a_group_lives_on_without_its_deadline() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("EXPIRY GROUP PERSIST g"), int(0));
        fill(&mut client, "g", 6);
        assert_eq!(client.call("EXPIRY GROUP PERSIST g"), int(0), "it has none");
        ok(&mut client, "EXPIRE g:0 100");
        ok(&mut client, "EXPIRE g:1 100000");
        ok(&mut client, "EXPIRY POLICY SET g:2 50s");
        assert_eq!(client.call("EXPIRY GROUP EXPIRE g 1h SLIDING"), int(6));
        assert_eq!(client.call("EXPIRY GROUP PERSIST g"), int(6));
        assert_eq!(client.call("EXPIRY GROUP TTL g"), int(-1));
        let ttls: Vec<i64> = (0..6).map(|key| client.call(&format!("TTL g:{key}")).number()).collect();
        assert!(ttls[0] <= 100 && ttls[1] > 99_000 && (1..=50).contains(&ttls[2]), "{ttls:?}");
        assert_eq!(ttls[3..], [-1, -1, -1]);
        assert_eq!(client.call("EXPIRY GROUP EXPIRE empty 1h"), int(0));
        assert_eq!(client.call("EXPIRY GROUP PERSIST empty"), int(0));
        assert_eq!(client.call("EXPIRY GROUP LIST"), Value::bulks(&["g"]));
        assert_eq!(client.call("EXPIRY GROUP KILL g"), int(6));
        assert_eq!(client.call("DBSIZE"), int(0));
    });
}

/// Streams of groups, and groups that have lost their deadlines, are in the log and in snapshots.
#[test]
fn a_restart_keeps_streams() {
    for (before, after) in [("1", "3"), ("3", "2"), ("3", "3")] {
        for how in ["log", "rewritten", "snapshot"] {
            let of_log: &[&str] = if how == "snapshot" { &[] } else { &["--appendonly", "yes"] };
            let server = Server::start(Kind::Ember { shards: before.parse().expect("a number") }, of_log);
            let mut client = server.client();
            for group in ["tag", "timed", "persisted", "killed", "quiet"] {
                fill(&mut client, group, 5);
                ok(&mut client, &format!("EXPIRY GROUP EVENTS {group} deaths MAXLEN 1000"));
            }
            ok(&mut client, "EXPIRY GROUP EVENTS quiet");
            for group in ["timed", "persisted", "killed"] {
                assert_eq!(client.call(&format!("EXPIRY GROUP EXPIRE {group} 1h")), int(5));
            }
            assert_eq!(client.call("EXPIRY GROUP PERSIST persisted"), int(5));
            assert_eq!(client.call("EXPIRY GROUP KILL killed"), int(5));
            fill(&mut client, "plain", 5);
            assert_eq!(client.call("EXPIRY GROUP EXPIRE plain 1h"), int(5));
            assert_eq!(client.call("EXPIRY GROUP PERSIST plain"), int(5));
            match how {
                "rewritten" => {
                    ok(&mut client, "BGREWRITEAOF");
                    assert!(wait_until(SOON, || server.info("aof_rewrite_in_progress").as_deref() == Some("0")
                        && server.info("aof_rewrite_scheduled").as_deref() == Some("0")));
                }
                "snapshot" => ok(&mut client, "SAVE"),
                _ => {}
            }
            let server = server.restart(&[&["--shards", after], of_log].concat());
            let mut client = server.client();
            let what = format!("{how}, {before} and {after} shards");
            let listed = client.call("EXPIRY GROUP LIST");
            assert_eq!(listed, Value::bulks(&["persisted", "plain", "quiet", "tag", "timed"]), "{what}");
            assert_eq!((client.call("TTL persisted:0"), client.call("TTL plain:0")), (int(-1), int(-1)), "{what}");
            for group in ["tag", "persisted", "quiet", "plain"] {
                assert_eq!(client.call(&format!("EXPIRY GROUP KILL {group}")), int(5), "{what}");
            }
            assert_eq!(client.call("EXPIRY GROUP EXPIRE timed 20"), int(5));
            let expected = [
                entry("killed", "killed", 5),
                entry("tag", "killed", 5),
                entry("persisted", "killed", 5),
                entry("timed", "expired", 5),
            ];
            assert!(
                wait_until(SOON, || told(&mut client, "deaths").len() == 4),
                "{what}: {:?}",
                told(&mut client, "deaths")
            );
            assert_eq!(told(&mut client, "deaths"), expected, "{what}");
        }
    }
}

/// While a script holds the stream the deaths wait, hidden, and everything that can become of databases meanwhile does.
#[test]
fn deaths_that_wait_go_where_their_database_goes() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for round in ["SWAPDB 0 1", "FLUSHDB", "FLUSHALL", "RENAME deaths other", "EXPIRY GROUP KILL g"] {
            ok(&mut client, "FLUSHALL");
            fill(&mut client, "g", 6);
            assert_eq!(client.call("EXPIRY GROUP EVENTS g deaths"), int(6));
            assert_eq!(client.call("EXPIRY GROUP EXPIRE g 150"), int(6));
            let mut holds = server.client();
            let busy = "local t = redis.call('TIME') local till = t[1] * 1000 + t[2] / 1000 + 400 \
                        repeat t = redis.call('TIME') until t[1] * 1000 + t[2] / 1000 > till";
            holds.send_raw(&crate::common::encode(&["EVAL", busy, "0"]));
            // This comes behind the script, and may come before the entry, or behind it.
            let mut reply = Value::ok();
            assert!(wait_until(SOON, || {
                reply = client.call(round);
                !matches!(&reply, Value::Error(text) if text.starts_with("BUSY"))
            }));
            assert!(!reply.is_error() || round.starts_with("RENAME"), "{round}: {reply:?}");
            holds.read();
            let db = if round.starts_with("SWAP") { 1 } else { 0 };
            ok(&mut client, &format!("SELECT {db}"));
            assert!(wait_until(SOON, || client.call("EXPIRY GROUP TTL g") == int(-2)), "{round}");
            assert!(wait_until(SOON, || client.call("EXISTS g:0 g:1 g:2 g:3 g:4 g:5") == int(0)), "{round}");
            if db == 1 {
                assert!(wait_until(SOON, || told(&mut client, "deaths") == [entry("g", "expired", 6)]), "{round}");
            }
            // What comes next is not in the way of what was.
            let entries = told(&mut client, "deaths").len() + told(&mut client, "other").len();
            assert!(entries <= 1, "{round}");
            fill(&mut client, "g", 2);
            assert_eq!(client.call("EXPIRY GROUP KILL g"), int(2));
            ok(&mut client, "SELECT 0");
        }
        assert!(server.info("expired_keys").is_some());
    });
}

/// EXPIRY GROUP KILL means gone: nothing of what was in the group when it died is shown as stale any more.
#[test]
fn a_kill_takes_what_is_stale_along() {
    on_embers(&[], |server| {
        let mut client = server.client();
        ok(&mut client, "EXPIRY POLICY SET p: NONE STALE 1h");
        let advice = |client: &mut Client, key: &str| {
            client.call(&format!("GETFRESH {key} COST 1h LEASE 1ms")).items()[0].clone()
        };
        let copies = |expected: &str| wait_until(SOON, || server.info("stale_copies").as_deref() == Some(expected));
        fill(&mut client, "p:tag", 6);
        fill(&mut client, "p:all", 3);
        fill(&mut client, "p:other", 2);
        assert_eq!(client.call("EXPIRY GROUP ADD p:tag p:other:0"), int(1));
        assert_eq!(client.call("EXPIRY GROUP REM p:tag p:tag:5"), int(1));
        for key in ["p:tag:0", "p:tag:1", "p:tag:5", "p:other:0", "p:other:1", "p:all:0", "p:all:1", "p:all:2"] {
            ok(&mut client, &format!("PEXPIRE {key} 1"));
        }
        assert!(copies("8"));
        assert_eq!(advice(&mut client, "p:tag:0"), bulk("v"));
        assert_eq!(client.call("EXPIRY GROUP KILL p:tag"), int(3), "those that live are counted");
        assert_eq!(server.info("stale_copies").as_deref(), Some("5"));
        for (key, shown) in [("p:tag:0", false), ("p:other:0", false), ("p:other:1", true), ("p:tag:5", true)] {
            assert_eq!(advice(&mut client, key) == bulk("v"), shown, "{key}");
        }
        // Also where all of its members had died, and the group with them.
        assert_eq!(advice(&mut client, "p:all:1"), bulk("v"));
        assert_eq!(client.call("EXPIRY GROUP KILL p:all"), int(0));
        assert_eq!(advice(&mut client, "p:all:1"), Value::NullBulk);
        fill(&mut client, "p:timed", 4);
        assert_eq!(client.call("EXPIRY GROUP EXPIRE p:timed 20"), int(4));
        assert!(wait_until(SOON, || client.call("DBSIZE") == int(0)));
        // What was dead and not deleted leaves nothing, either.
        assert_eq!(client.call("EXPIRY GROUP KILL p:timed"), int(0));
        assert_eq!(advice(&mut client, "p:timed:2"), Value::NullBulk);
        // A new value, and a database that moves.
        fill(&mut client, "p:new", 2);
        ok(&mut client, "PEXPIRE p:new:0 1");
        ok(&mut client, "PEXPIRE p:new:1 1");
        assert!(copies("4"));
        ok(&mut client, "SET p:new:0 w");
        ok(&mut client, "SWAPDB 0 1");
        assert_eq!(client.call("EXPIRY GROUP KILL p:new"), int(0));
        ok(&mut client, "SELECT 1");
        assert_eq!(advice(&mut client, "p:new:1"), bulk("v"));
        assert_eq!(client.call("EXPIRY GROUP KILL p:new"), int(0));
        assert_eq!((advice(&mut client, "p:new:1"), client.call("GET p:new:0")), (Value::NullBulk, bulk("w")));
    });
}

/// Many groups of many keys die while clients read: nobody ever sees a part of one, and each is told once.
#[test]
fn groups_die_whole_beside_readers() {
    let groups: usize = std::env::var("EMBERDB_GROUPS").map_or(300, |groups| groups.parse().expect("a number"));
    let keys = if groups > 1_000 { 100 } else { 20 };
    let server = Server::start(Kind::Ember { shards: 3 }, &[]);
    let mut client = server.client();
    let began = Instant::now();
    let mut rng = fastrand::Rng::with_seed(5);
    // They die within two seconds, when all are there.
    let last_ms = 2_000 + groups as u64 * keys as u64 / 20;
    for group in 0..groups {
        fill(&mut client, &format!("g{group}"), keys);
        ok(&mut client, &format!("EXPIRY GROUP EVENTS g{group} deaths"));
        let left_ms = (last_ms + rng.u64(..2_000)).saturating_sub(began.elapsed().as_millis() as u64).max(1);
        assert_eq!(client.call(&format!("EXPIRY GROUP EXPIRE g{group} {left_ms}")), int(keys as i64));
    }
    let (is_over, looks) = (AtomicBool::new(false), std::sync::atomic::AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for reader in 0..3_u64 {
            let (is_over, looks, mut client) = (&is_over, &looks, server.client());
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(reader);
                while !is_over.load(Ordering::Relaxed) {
                    let group = rng.usize(..groups);
                    let names: Vec<String> = (0..keys).map(|key| format!("g{group}:{key}")).collect();
                    let seen = if reader == 0 {
                        let gets = names.iter().map(|name| vec!["GET", name]);
                        let all: Vec<Vec<&str>> =
                            std::iter::once(vec!["MULTI"]).chain(gets).chain([vec!["EXEC"]]).collect();
                        client.pipeline(&all).last().cloned().expect("a reply")
                    } else {
                        let args: Vec<&str> = std::iter::once("MGET").chain(names.iter().map(String::as_str)).collect();
                        client.command(&args)
                    };
                    let there = seen.items().iter().filter(|value| !value.is_null()).count();
                    assert!(there == 0 || there == keys, "group {group}: {there} of {keys}");
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let patience = SOON.max(Duration::from_millis(3 * last_ms));
        assert!(wait_until(patience, || client.call("XLEN deaths") == int(groups as i64)));
        assert!(wait_until(patience, || client.call("DBSIZE") == int(1)));
        is_over.store(true, Ordering::Relaxed);
    });
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    for (group, cause, members) in told(&mut client, "deaths") {
        assert_eq!((cause.as_str(), members), ("expired", keys.to_string()), "{group}");
        *all.entry(group).or_default() += 1;
    }
    assert!(all.len() == groups && all.values().all(|times| *times == 1));
    println!("{groups} groups of {keys} keys, {} looks", looks.into_inner());
}
