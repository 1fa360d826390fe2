//! Expiry policies: what they make of keys on one shard and on several, what they refuse, and the streams of deaths.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Client, Kind, Server, Value, bulk, error, int, ok, on_embers, wait_until};

const SOON: Duration = Duration::from_secs(20);
const REQUIRED: &str = "ERR the expiry policy of this key requires a deadline: set it with the value (SET with EX, PX, \
                        EXAT or PXAT, SETEX, RESTORE with a ttl)";

/// Whether a key has about so long to live.
fn lives(client: &mut Client, key: &str, ms: i64) -> bool {
    let left_ms = client.call(&format!("PTTL {key}")).number();
    if ms < 0 { left_ms == ms } else { (ms - 5_000..=ms).contains(&left_ms) }
}

#[test]
fn policies_are_set_shown_and_taken_back() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("EXPIRY POLICY GET s:"), Value::NullBulk);
        assert_eq!(client.call("EXPIRY POLICY SET s: 30m MAX 1d JITTER 2.5 SLIDING EVENTS d MAXLEN 9"), Value::ok());
        ok(&mut client, "expiry policy set a: none require");
        let shown = server.client3().call("EXPIRY POLICY GET s:");
        for (name, value) in [
            ("policy", bulk("30m MAX 1d JITTER 2.5 SLIDING EVENTS d MAXLEN 9")),
            ("default_ms", int(1_800_000)),
            ("max_ms", int(86_400_000)),
            ("sliding", int(1)),
            ("sliding_last_percent", Value::Double("100".to_owned())),
            ("require", int(0)),
            ("noevict", int(0)),
            ("stale_ms", int(-1)),
            ("events", bulk("d")),
            ("with_value", int(0)),
            ("max_len", int(9)),
        ] {
            assert_eq!(shown.field(name).as_ref(), Some(&value), "{name}");
        }
        let all = [bulk("a:"), bulk("NONE REQUIRE"), bulk("s:"), shown.field("policy").unwrap()];
        assert_eq!(client.call("EXPIRY POLICY LIST"), Value::Array(all.to_vec()));
        assert_eq!(client.call("EXPIRY POLICY DEL s:"), int(1));
        assert_eq!(client.call("EXPIRY POLICY DEL s:"), int(0));
        ok(&mut client, "SET s:k v");
        assert!(lives(&mut client, "s:k", -1));
    });
}

#[test]
fn what_is_wrong_with_a_policy_is_said() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let hint = "use a number with one of the units ms, s, m, h, d, such as 500ms, 30s, 1.5h or 7d";
        for (words, reason) in [
            ("x: 0", format!("ERR invalid duration '0': it is not greater than zero: {hint}")),
            ("x: -5s", format!("ERR invalid duration '-5s': it is not greater than zero: {hint}")),
            ("x: 2w", format!("ERR invalid duration '2w': the unit is unknown: {hint}")),
            ("x: inf", format!("ERR invalid duration 'inf': it is not a number: {hint}")),
            ("x: 1h MAX 1e3s", format!("ERR invalid duration '1e3s': the unit is unknown: {hint}")),
            ("x: 2h MAX 1h", "ERR the default is longer than MAX".to_owned()),
            ("x: 2h JITTER 101", "ERR invalid JITTER '101': it is a percentage from 0 to 100".to_owned()),
            ("x: 2h SLIDING LAST 0", "ERR invalid LAST '0': it is a percentage above 0, up to 100".to_owned()),
            ("x: NONE SLIDING", "ERR SLIDING needs a duration, not NONE".to_owned()),
        ] {
            assert_eq!(client.call(&format!("EXPIRY POLICY SET {words}")), error(&reason));
        }
        for words in ["x: 1h MAX", "x: 1h SLIDING SLIDING", "x: 1h EVENTS", "x: 1h JITTER", "x: 1h y"] {
            let reply = client.call(&format!("EXPIRY POLICY SET {words}")).text();
            assert!(reply.starts_with("ERR syntax error: <prefix> <duration>|NONE"), "{reply}");
        }
        let long = "p".repeat(1025);
        assert!(client.call(&format!("EXPIRY POLICY SET {long} 1h")).is_error());
        assert!(client.command(&[&b"EXPIRY"[..], b"POLICY", b"SET", b"\xff", b"1h"]).is_error());
        assert!(client.call("EXPIRY POLICY SET x:").is_error());
        assert!(client.call("EXPIRY POLICY FOO x:").is_error());
        assert_eq!(client.call("EXPIRY POLICY LIST"), Value::Array(Vec::new()));
    });
}

#[test]
fn keys_of_all_shards_get_their_deadlines() {
    on_embers(&[], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        ok(&mut client, "EXPIRY POLICY SET s: 1h MAX 2h");
        ok(&mut client, "EXPIRY POLICY SET s:short: 10m");
        ok(&mut other, "MSET s:1 a s:2 a s:3 a s:4 a s:short:1 a free a");
        for key in ["s:1", "s:2", "s:3", "s:4"] {
            assert!(lives(&mut other, key, 3_600_000));
        }
        assert!(lives(&mut other, "s:short:1", 600_000));
        assert!(lives(&mut other, "free", -1));
        for n in 0..12 {
            for line in [
                format!("SET free:{n} a"),
                format!("RENAME free:{n} s:renamed:{n}"),
                format!("COPY free s:copied:{n}"),
                format!("SADD set:{n} a b"),
                format!("SUNIONSTORE s:union:{n} set:{n} other"),
                format!("RPUSH list:{n} a b"),
                format!("LMOVE list:{n} s:list:{n} LEFT LEFT"),
                format!("SMOVE set:{n} s:set:{n} a"),
                format!("EVAL redis.call('SET',KEYS[1],'x') 1 s:script:{n}"),
                format!("SET s:far:{n} x EX 100000"),
            ] {
                ok(&mut other, &line);
            }
            for key in ["renamed", "copied", "union", "list", "set", "script"] {
                assert!(lives(&mut other, &format!("s:{key}:{n}"), 3_600_000), "{key}");
            }
            assert!(lives(&mut other, &format!("s:far:{n}"), 7_200_000));
        }
        ok(&mut other, "MULTI");
        (0..4).for_each(|n| ok(&mut other, &format!("SET s:exec:{n} x")));
        ok(&mut other, "EXEC");
        assert!((0..4).all(|n| lives(&mut other, &format!("s:exec:{n}"), 3_600_000)));
        ok(&mut other, "SELECT 5");
        ok(&mut other, "SET s:1 x");
        assert!(lives(&mut other, "s:1", 3_600_000), "a policy is for all databases");
    });
}

#[test]
fn what_is_refused_is_refused_as_a_whole() {
    on_embers(&[], |server| {
        let mut client = server.client();
        ok(&mut client, "EXPIRY POLICY SET s: NONE REQUIRE");
        ok(&mut client, "RPUSH list a");
        ok(&mut client, "SADD set a");
        let refused = error(REQUIRED);
        for n in 0..8 {
            for line in [
                format!("MSET free:{n} 1 other:{n} 2 s:{n} 3"),
                format!("MSETNX free:{n} 1 other:{n} 2 s:{n} 3"),
                format!("MSETEX 3 free:{n} 1 other:{n} 2 s:{n} 3"),
                format!("RENAME list s:{n}"),
                format!("COPY list s:{n}"),
                format!("LMOVE list s:{n} LEFT LEFT"),
                format!("BLMOVE list s:{n} LEFT LEFT 1"),
                format!("SMOVE set s:{n} a"),
                format!("SUNIONSTORE s:{n} set"),
                format!("ZUNIONSTORE s:{n} 1 set"),
                format!("SORT list BY nosort STORE s:{n}"),
                format!("HSET s:{n} f v"),
            ] {
                assert_eq!(client.call(&line), refused, "{line}");
            }
            ok(&mut client, "MULTI");
            ok(&mut client, &format!("MSET free:{n} 1 other:{n} 2 s:{n} 3"));
            ok(&mut client, &format!("MSETEX 2 a:{n} 1 s:{n} 3 EX 100"));
            assert_eq!(client.call("EXEC"), Value::Array(vec![refused.clone(), int(1)]));
            let script = format!("return redis.pcall('MSET','free:{n}','1','s:{n}','3')");
            let called = client.command(&["EVAL", &script, "2", &format!("free:{n}"), &format!("s:{n}")]);
            assert_eq!(called, refused);
            assert_eq!(client.call(&format!("EXISTS free:{n} other:{n}")), int(0));
            assert!(lives(&mut client, &format!("s:{n}"), 100_000));
            assert_eq!(client.call(&format!("PERSIST s:{n}")), refused);
        }
        // Keys of whichever shards, among them none of the first's.
        for n in 0..40 {
            let script = "return redis.pcall('MSET',KEYS[1],'1',KEYS[2],'3')";
            let keys = [format!("x:{n}"), format!("s:x:{n}")];
            assert_eq!(client.command(&["EVAL", script, "2", &keys[0], &keys[1]]), refused);
            ok(&mut client, "MULTI");
            ok(&mut client, &format!("MSET {} 1 {} 2", keys[0], keys[1]));
            ok(&mut client, &format!("RENAMENX list list:{n}"));
            ok(&mut client, &format!("RENAMENX list:{n} list"));
            assert_eq!(client.call("EXEC"), Value::Array(vec![refused.clone(), int(1), int(1)]));
        }
        assert_eq!(client.call("XGROUP CREATE s:stream g $ MKSTREAM"), refused);
        assert_eq!(client.call("HPEXPIRE s:nothing 10 FIELDS 1 f"), Value::Array(vec![int(-2)]));
        assert_eq!(client.call("LRANGE list 0 -1"), Value::bulks(&["a"]));
        assert_eq!(client.call("SMEMBERS set"), Value::bulks(&["a"]));
    });
}

#[test]
fn keys_that_are_there_are_brought_under_a_policy() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let commands: Vec<Vec<String>> = (0..3000)
            .map(|n| ["SET".to_owned(), format!("{}:{n}", ["s", "free", "s:short"][n % 3]), "v".to_owned()].to_vec())
            .collect();
        client.pipeline(&commands);
        ok(&mut client, "EXPIRY POLICY SET s:short: 10m");
        ok(&mut client, "EXPIRE s:3 100000");
        assert!(lives(&mut client, "s:0", -1));
        ok(&mut client, "EXPIRY POLICY SET s: 1h MAX 2h APPLY");
        for n in (0..3000).step_by(3) {
            let life = if n == 3 { 7_200_000 } else { 3_600_000 };
            assert!(lives(&mut client, &format!("s:{n}"), life));
        }
        // It was set without APPLY, and governs these alone: they belong to the walk of the shorter prefix, too.
        assert!(lives(&mut client, "s:short:2", 600_000));
        assert!(lives(&mut client, "free:1", -1));
        ok(&mut client, "MULTI");
        ok(&mut client, "EXPIRY POLICY SET free: 1h APPLY");
        assert_eq!(client.call("EXEC").items()[0], error("ERR APPLY isn't allowed within EXEC"));
    });
}

/// How many keys have deadlines.
fn with_deadline(client: &mut Client) -> usize {
    let said = client.call("INFO keyspace").text();
    let count = said.split("expires=").nth(1).and_then(|rest| rest.split(',').next());
    count.map_or(0, |count| count.parse().expect("a number"))
}

/// Brings keys under a policy, and says the line when some are: who has asked for that, how many keys there are, and how many had
/// deadlines when the line was answered. There are more keys each time the line came too late, or took effect too late.
fn in_the_middle_of_applying(
    server: &Server,
    line: &str,
    takes_effect: impl Fn(&mut Client) -> bool,
) -> (Client, usize, usize) {
    let mut other = server.client();
    for keys in [300_000, 600_000, 1_200_000] {
        let mut client = server.client();
        ok(&mut other, "FLUSHALL");
        ok(&mut other, &format!("DEBUG POPULATE {keys} p"));
        client.send("EXPIRY POLICY SET p: 1h APPLY");
        assert!(wait_until(SOON, || with_deadline(&mut other) > 0));
        ok(&mut other, line);
        let done = with_deadline(&mut other);
        if done < keys && takes_effect(&mut client) {
            return (client, keys, done);
        }
        ok(&mut other, "CLIENT UNPAUSE");
        ok(&mut other, "REPLICAOF NO ONE");
        ok(&mut other, "EXPIRY POLICY SET p: NONE");
    }
    panic!("it is applied before anybody can say something");
}

/// Once deadlines went on changing while a pause was to keep all as it was, as FAILOVER asks for.
#[test]
fn no_policy_is_applied_in_a_pause() {
    on_embers(&["--enable-debug-command", "yes"], |server| {
        let (mut client, keys, done) = in_the_middle_of_applying(server, "CLIENT PAUSE 60000 WRITE", |_| true);
        let mut other = server.client();
        // Each walks over all keys, and so takes as long as some slices of the other walk.
        (0..3).for_each(|_| drop(other.call("EXPIRY STATS p:")));
        assert_eq!(with_deadline(&mut other), done);
        ok(&mut other, "CLIENT UNPAUSE");
        assert_eq!(client.read(), Value::ok());
        assert_eq!(with_deadline(&mut other), keys);
    });
}

/// Once a replica changed the deadlines of its primary's keys like that.
#[test]
fn no_policy_is_applied_any_more_where_a_server_has_become_a_replica() {
    on_embers(&["--enable-debug-command", "yes"], |server| {
        // (It is answered before it is a replica.)
        let is_refused = |client: &mut Client| client.read().text().starts_with("READONLY");
        let (_, keys, _) = in_the_middle_of_applying(server, "REPLICAOF 127.0.0.1 1", is_refused);
        let mut other = server.client();
        assert!(with_deadline(&mut other) < keys);
        ok(&mut other, "REPLICAOF NO ONE");
    });
}
#[test]
fn use_renews_late_in_a_life_where_that_is_said() {
    on_embers(&[], |server| {
        let mut client = server.client();
        ok(&mut client, "EXPIRY POLICY SET s: 1h SLIDING LAST 25%");
        assert_eq!(client.call("EXPIRY POLICY LIST"), Value::bulks(&["s:", "1h SLIDING LAST 25"]));
        for (seconds, renewed) in [(3_000, false), (1_000, false), (850, true), (10, true), (9_000, false)] {
            ok(&mut client, &format!("SET s:a v EX {seconds}"));
            assert_eq!(client.call("GET s:a"), bulk("v"));
            let left_s = client.call("TTL s:a").number();
            assert_eq!((3_590..=3_600).contains(&left_s), renewed, "{seconds} s: {left_s} s");
        }
        // Whoever reads by a script, or without asking for the value, uses it as much.
        let script = ["EVAL", "return redis.call('GET', KEYS[1])", "1", "s:a"];
        for use_it in [&script[..], &["MGET", "s:a", "s:b"], &["TOUCH", "s:a"]] {
            ok(&mut client, "SET s:a v EX 100");
            client.command(use_it);
            assert!(client.call("TTL s:a").number() > 3_500, "{use_it:?}");
            ok(&mut client, "SET s:a v EX 1000");
            client.command(use_it);
            assert!(client.call("TTL s:a").number() <= 1_000, "{use_it:?}");
        }
    });
}

#[test]
fn reading_renews_what_slides() {
    on_embers(&["--notify-keyspace-events", "Kg"], |server| {
        let mut client = server.client();
        ok(&mut client, "EXPIRY POLICY SET s: 400ms SLIDING");
        for n in 0..6 {
            ok(&mut client, &format!("HSET s:{n} f v"));
        }
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(1200) {
            for n in 0..6 {
                assert_eq!(client.call(&format!("HGET s:{n} f")), bulk("v"), "a pause of 400 ms in this test?");
                ok(&mut client, "MGET s:0 s:1 s:2 s:3");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(wait_until(SOON, || client.call("PTTL s:0").number() == -2), "asking for its life does not renew it");
        // A limiter's deadline is its own.
        ok(&mut client, "EXPIRY POLICY SET limit: 1h SLIDING");
        ok(&mut client, "CL.THROTTLE limit:a 0 1 1");
        ok(&mut client, "CL.THROTTLE limit:a 0 1 1");
        assert!(client.call("PTTL limit:a").number() < 2000);
        // Whoever watches a key is not told that it was renewed.
        ok(&mut client, "EXPIRY POLICY SET s: 1h SLIDING");
        ok(&mut client, "SET s:w v EX 100");
        ok(&mut client, "WATCH s:w");
        assert_eq!(client.call("GET s:w"), bulk("v"));
        ok(&mut client, "MULTI");
        ok(&mut client, "PTTL s:w");
        assert!(client.call("EXEC").items()[0].number() > 3_590_000);
    });
}

#[test]
fn statistics_of_a_prefix() {
    on_embers(&["--active-expire-enabled", "no"], |server| {
        let mut client = server.client();
        let fact = |client: &mut Client, prefix: &str, name: &str| {
            client.call(&format!("EXPIRY STATS {prefix}")).field(name).map(|value| value.number())
        };
        for name in ["has_policy", "keys", "keys_with_deadline", "expired_by_access", "stale_keys", "lag_max_us"] {
            assert_eq!(fact(&mut client, "nothing:", name), Some(0), "{name}");
        }
        assert_eq!(fact(&mut client, "nothing:", "default_ms"), None);
        ok(&mut client, "EXPIRY POLICY SET s: 1h");
        for n in 0..30 {
            ok(&mut client, &format!("SET s:{n} v"));
            ok(&mut client, &format!("SET s:dead:{n} v PX 1"));
            ok(&mut client, &format!("SET other:{n} v"));
        }
        assert!(wait_until(SOON, || fact(&mut client, "s:", "stale_keys") == Some(30)));
        assert_eq!(fact(&mut client, "s:", "default_ms"), Some(3_600_000));
        assert_eq!(
            (fact(&mut client, "s:", "keys"), fact(&mut client, "s:", "keys_with_deadline")),
            (Some(30), Some(30))
        );
        assert!((3_590_000..=3_600_000).contains(&fact(&mut client, "s:", "average_ttl_ms").unwrap()));
        (0..10).for_each(|n| ok(&mut client, &format!("GET s:dead:{n}")));
        assert_eq!(client.call("EXPIRY PURGE"), int(20));
        assert_eq!(fact(&mut client, "s:", "expired_by_access"), Some(10));
        assert_eq!(fact(&mut client, "s:", "expired_by_cycle"), Some(20));
        assert!(fact(&mut client, "s:", "expired_bytes").unwrap() > 0);
        assert!(fact(&mut client, "s:", "lag_max_us").unwrap() > 0);
        assert_eq!(fact(&mut client, "other:", "keys_with_deadline"), Some(0));
        ok(&mut client, "CONFIG RESETSTAT");
        assert_eq!(fact(&mut client, "s:", "expired_by_cycle"), Some(0));
    });
}

#[test]
fn policies_stand_in_the_configuration_file() {
    for shards in [1, 3] {
        let folder = std::env::temp_dir().join(format!("emberdb-policies-{}-{shards}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("ember.conf");
        std::fs::write(&path, "expiry-policy sessions: 30m\nexpiry-policy \"\" NONE MAX 30d\n").unwrap();
        let file = path.to_str().unwrap();
        let server = Server::start(Kind::Ember { shards }, &["--include", file]);
        let mut client = server.client();
        ok(&mut client, "SET sessions:1 v");
        assert!(lives(&mut client, "sessions:1", 1_800_000));
        ok(&mut client, "EXPIRE other 1");
        assert_eq!(client.call("CONFIG GET expiry-policy").items()[1], bulk("\"\" NONE MAX 30d; sessions: 30m"));
        ok(&mut client, "EXPIRY POLICY DEL sessions:");
        assert_eq!(client.call("CONFIG GET expiry-policy").items()[1], bulk("\"\" NONE MAX 30d"));
        // A prefix, and the name of a stream, may have any bytes that are text.
        let named = ["EXPIRY", "POLICY", "SET", "a\0b", "1h", "EVENTS", "s\0t"];
        assert_eq!(client.command(&named), Value::ok());
        let line = client.call("CONFIG GET expiry-policy").items()[1].text();
        assert_eq!(line, r#""" NONE MAX 30d; "a\x00b" 1h EVENTS "s\x00t""#);
        std::fs::write(&path, format!("expiry-policy {}\n", line.replace("; ", "\nexpiry-policy "))).unwrap();
        let again = Server::start(Kind::Ember { shards }, &["--include", file]);
        assert_eq!(again.client().call("EXPIRY POLICY LIST"), client.call("EXPIRY POLICY LIST"));
        drop(server);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// The entries of a stream, as the fields of each.
fn entries(client: &mut Client, stream: &str) -> Vec<BTreeMap<String, String>> {
    let reply = client.call(&format!("XRANGE {stream} - +"));
    let fields = |entry: &Value| {
        let fields = entry.items()[1].items();
        fields.chunks(2).map(|pair| (pair[0].text(), pair[1].text())).collect()
    };
    reply.items().iter().map(fields).collect()
}

#[test]
fn every_death_is_written_once() {
    on_embers(&[], |server| {
        let mut client = server.client();
        ok(&mut client, "EXPIRY POLICY SET s: 1h EVENTS deaths WITHVALUE");
        let mut expected = BTreeMap::new();
        for n in 0..300 {
            let key = format!("s:{n}");
            let life_ms = 1 + n % 50;
            match n % 5 {
                0 => ok(&mut client, &format!("SET {key} value{n} PX {life_ms}")),
                1 => {
                    // Written anew, perhaps over the dead one.
                    ok(&mut client, &format!("SET {key} first PX 1"));
                    std::thread::sleep(Duration::from_millis(2));
                    ok(&mut client, &format!("SET {key} value{n} PX {life_ms}"));
                }
                2 => {
                    ok(&mut client, &format!("SET from:{n} value{n} PX 10000"));
                    ok(&mut client, &format!("RENAME from:{n} {key}"));
                    ok(&mut client, &format!("PEXPIRE {key} {life_ms}"));
                }
                3 => {
                    ok(&mut client, &format!("HSET {key} f v g w"));
                    ok(&mut client, &format!("HPEXPIRE {key} 1 FIELDS 1 f"));
                    ok(&mut client, &format!("PEXPIRE {key} {}", life_ms + 20));
                }
                _ => {
                    ok(&mut client, &format!("SET {key} gone PX 100000"));
                    ok(&mut client, &format!("DEL {key}"));
                }
            }
            let deaths = [1, 2, 1, 1, 0][n % 5];
            if deaths > 0 {
                expected.insert(key, deaths);
            }
        }
        let total: usize = expected.values().sum();
        assert!(wait_until(SOON, || client.call("XLEN deaths").number() as usize >= total));
        let found = entries(&mut client, "deaths");
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for entry in &found {
            *counts.entry(entry["key"].clone()).or_default() += 1;
            let n: usize = entry["key"][2..].parse().unwrap();
            match (n % 5, counts[&entry["key"]]) {
                (1, 1) => assert_eq!(entry["value"], "first", "in the order in which they have died"),
                (3, _) => assert_eq!(entry["type"], "hash"),
                _ => assert_eq!(entry["value"], format!("value{n}")),
            }
            assert!(entry["lag"].parse::<f64>().is_ok() && entry["deadline"].parse::<i64>().is_ok());
        }
        assert_eq!(counts, expected);
        assert_eq!(server.info("expiry_events_written"), Some(total.to_string()));
        assert_eq!(server.info("expiry_events_lost").as_deref(), Some("0"));
        // What DUMP would have given.
        let hash = found.iter().find(|entry| entry["type"] == "hash").unwrap();
        assert!(!hash["value"].is_empty());
        // Groups replay them.
        ok(&mut client, "XGROUP CREATE deaths g 0");
        let read = client.call("XREADGROUP GROUP g c COUNT 1 STREAMS deaths >");
        assert_eq!(read.items()[0].items()[1].items().len(), 1);
    });
}

#[test]
fn deaths_go_on_without_their_stream() {
    on_embers(&[], |server| {
        let mut client = server.client();
        ok(&mut client, "SET deaths no-stream");
        ok(&mut client, "EXPIRY POLICY SET s: NONE EVENTS deaths WITHVALUE MAXLEN 100");
        for n in 0..20 {
            ok(&mut client, &format!("SET s:{n} v PX 1"));
        }
        let lost = || server.info("expiry_events_lost").and_then(|text| text.parse::<i64>().ok());
        assert!(wait_until(SOON, || lost() == Some(20)));
        assert_eq!(client.call("GET deaths"), bulk("no-stream"));
        assert_eq!(client.call("DBSIZE"), int(1));
        ok(&mut client, "DEL deaths");
        // Too long to be written, and under the prefix of its own policy.
        ok(&mut client, "EXPIRY POLICY SET s: 1h EVENTS s:deaths WITHVALUE");
        ok(&mut client, "CONFIG SET expiry-event-value-limit 1000");
        ok(&mut client, &format!("SET s:long {} PX 1", "x".repeat(2000)));
        assert!(wait_until(SOON, || client.call("XLEN s:deaths") == int(1)));
        let found = entries(&mut client, "s:deaths");
        assert!(found[0]["value_too_long"].parse::<usize>().unwrap() >= 2000 && !found[0].contains_key("value"));
        assert!(lives(&mut client, "s:deaths", -1), "no policy governs where deaths are written");
        ok(&mut client, "EXPIRY POLICY SET s: 1h SLIDING EVENTS s:deaths WITHVALUE");
        ok(&mut client, "EXPIRE s:deaths 100");
        ok(&mut client, "XRANGE s:deaths - +");
        assert!(lives(&mut client, "s:deaths", 100_000), "nor renews it");
        ok(&mut client, "RENAME s:deaths elsewhere");
        ok(&mut client, "SET s:next v PX 1");
        assert!(wait_until(SOON, || client.call("XLEN s:deaths") == int(1)));
    });
}
