//! EXPIRY ADVISOR and EXPIRY ADVISE, with time passing as it does.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{Client, Server, Value, error, int, on_embers, wait_until};

const PATIENCE: Duration = Duration::from_secs(20);

fn advice(client: &mut Client, prefix: &str) -> Value {
    client.command(&[&b"EXPIRY"[..], b"ADVISE", prefix.as_bytes()])
}

fn number(advice: &Value, name: &str) -> i64 {
    advice.field(name).unwrap_or_else(|| panic!("{name} of {advice:?}")).number()
}

fn real(of: &Value, name: &str) -> f64 {
    of.field(name).unwrap_or_else(|| panic!("{name} of {of:?}")).text().parse().expect("a number")
}

/// The share of hits under each lifetime.
fn hit_percents(advice: &Value) -> Vec<f64> {
    let curve = advice.field("curve").expect("a curve");
    curve.items().iter().map(|point| real(point, "hit_percent")).collect()
}

fn info(server: &Server, name: &str) -> i64 {
    let told = server.info(name).unwrap_or_else(|| panic!("{name}"));
    told.parse().expect("a number")
}

/// Waits until no key with the prefix is there, without reading any.
fn wait_for_deaths(client: &mut Client, pattern: &str) {
    assert!(wait_until(PATIENCE, || client.call(&format!("KEYS {pattern}")).items().is_empty()));
}

const KEYS: i64 = 300;

/// A cache whose values die too soon, and whose keys are all read twice.
#[test]
fn it_says_what_a_longer_lifetime_would_have_saved() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("SET page:before x");
        assert_eq!(client.call("EXPIRY ADVISOR ON page: LIFETIMES 1ms 1h 1d").text(), "OK");
        for n in 0..KEYS {
            assert!(client.call(&format!("GET page:{n}")).is_null());
            client.call(&format!("SET page:{n} value PX 20"));
        }
        wait_for_deaths(&mut client, "page:[0-9]*");
        for n in 0..KEYS {
            assert!(client.call(&format!("GET page:{n}")).is_null());
        }
        // A hundred of them are deleted, which no lifetime would change.
        for n in 0..100 {
            client.call(&format!("SET page:{n} value PX 60000"));
            assert_eq!(client.call(&format!("DEL page:{n}")), int(1));
            assert!(client.call(&format!("GET page:{n}")).is_null());
        }
        let told = advice(&mut client, "page:");
        let facts = ["reads", "hits", "misses", "expired_misses", "removed_misses", "cold_misses", "deaths"];
        assert_eq!(facts.map(|name| number(&told, name)), [700, 0, 700, 300, 100, 300, 300]);
        assert_eq!(number(&told, "unread_deaths"), 300);
        assert_eq!((real(&told, "sampled_percent"), real(&told, "hit_percent")), (100.0, 0.0));
        assert_eq!(hit_percents(&told), [0.0, 42.86, 42.86]);
        let curve = told.field("curve").expect("a curve");
        let saved: Vec<f64> = curve.items().iter().map(|point| real(point, "saved_percent")).collect();
        assert_eq!(saved, [0.0, 42.86, 42.86]);
        assert_eq!(curve.items()[1].field("lifetime_ms"), Some(int(3_600_000)));
        assert!(number(&curve.items()[1], "more_bytes") > 0 && number(&curve.items()[0], "more_bytes") < 0);
        assert_eq!(info(server, "expired_misses"), 300);
        assert_eq!(info(server, "advised_prefixes"), 1);
        let own = number(&told, "advisor_bytes");
        assert!((500_000..=1 << 20).contains(&own) && info(server, "mem_advisors") == own, "{own}");
        client.call("CONFIG RESETSTAT");
        assert_eq!(info(server, "expired_misses"), 0);
        assert!(client.call("GET page:200").is_null());
        let told = advice(&mut client, "page:");
        assert_eq!((number(&told, "reads"), number(&told, "expired_misses")), (1, 1), "what is known of keys stays");
        assert_eq!(client.call("EXPIRY ADVISOR OFF page:"), int(1));
        assert_eq!((info(server, "mem_advisors"), info(server, "expired_misses")), (0, 1));
    });
}

/// Whatever reads a value is a read, whatever type it has and wherever it runs; what asks about keys is none.
#[test]
fn reads_are_what_reads_values() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("EXPIRY ADVISOR ON {k}");
        client.call("SET {k}s 1");
        client.call("HSET {k}h f 1");
        client.call("SADD {k}t a");
        client.call("RPUSH {k}l a b");
        client.call("ZADD {k}z 1 a");
        client.call("XADD {k}x 1-1 f v");
        let mut so_far = 0;
        for (reads, command) in [
            (1, "GET {k}s"),
            (3, "MGET {k}s {k}s {k}none"),
            (1, "GETEX {k}s EX 100"),
            (1, "STRLEN {k}s"),
            (1, "HGETALL {k}h"),
            (1, "HGET {k}h f"),
            (1, "SMEMBERS {k}t"),
            (1, "LRANGE {k}l 0 -1"),
            (1, "ZRANGE {k}z 0 -1"),
            (1, "XRANGE {k}x - +"),
            (1, "EVAL return(redis.call('get',KEYS[1])) 1 {k}s"),
            (0, "TTL {k}s"),
            (0, "TYPE {k}s"),
            (0, "OBJECT ENCODING {k}s"),
            (0, "APPEND {k}s 2"),
            (0, "SET {k}s 2"),
            (0, "EXPIRE {k}s 100"),
            (0, "KEYS *"),
            (0, "GET other"),
        ] {
            client.call(command);
            let told = number(&advice(&mut client, "{k}"), "reads");
            assert_eq!(told - so_far, reads, "{command}");
            so_far = told;
        }
        client.call("CLIENT NO-TOUCH ON");
        client.call("GET {k}s");
        assert_eq!(number(&advice(&mut client, "{k}"), "reads"), so_far, "who touches nothing is no reader");
        client.call("CLIENT NO-TOUCH OFF");
        client.call("MULTI");
        client.call("GET {k}s");
        client.call("GET {k}none");
        client.call("EXEC");
        assert_eq!(number(&advice(&mut client, "{k}"), "reads"), so_far + 2);
    });
}

#[test]
fn advisors_are_of_one_database_and_forget_what_was_flushed() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("EXPIRY ADVISOR ON k");
        client.call("SELECT 1");
        let none = "ERR no advisor is on for this prefix in this database: EXPIRY ADVISOR ON begins";
        assert_eq!(advice(&mut client, "k"), error(none));
        client.call("EXPIRY ADVISOR ON k LIFETIMES 5000");
        client.call("GET k1");
        let listed = client.call("EXPIRY ADVISOR LIST");
        let of = |index: usize, name: &str| listed.items()[index].field(name).expect("a field");
        assert_eq!((of(0, "db"), of(1, "db")), (int(0), int(1)));
        assert_eq!((of(0, "lifetimes_ms").items(), of(1, "lifetimes_ms").items()), (&[][..], &[int(5_000)][..]));
        client.call("SELECT 0");
        assert_eq!(number(&advice(&mut client, "k"), "reads"), 0);
        for emptied in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 5"] {
            client.call("SET k1 v PX 1");
            wait_for_deaths(&mut client, "k1");
            client.call("GET k1");
            let before = advice(&mut client, "k");
            client.call(emptied);
            client.call("GET k1");
            let told = advice(&mut client, "k");
            let grown = |name| number(&told, name) - number(&before, name);
            assert_eq!(["cold_misses", "expired_misses"].map(grown), [1, 0], "{emptied}");
            assert_eq!(number(&told, "sampled_keys"), 0);
        }
    });
}

#[test]
fn what_is_asked_wrongly_is_said() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for wrong in ["EXPIRY ADVISOR ON k LIFETIMES", "EXPIRY ADVISOR ON k 5s", "EXPIRY ADVISOR ON k TIMES 5s"] {
            assert_eq!(client.call(wrong), error("ERR syntax error"), "{wrong}");
        }
        for wrong in
            ["EXPIRY ADVISOR ON", "EXPIRY ADVISOR OFF", "EXPIRY ADVISOR LIST k", "EXPIRY ADVISE", "EXPIRY ADVISE k k"]
        {
            assert!(client.call(wrong).text().starts_with("ERR wrong number of arguments"), "{wrong}");
        }
        for wrong in ["9223372036854775808", "18446744073709551616", "0", "-5s", "1w", "99999999999d"] {
            let text = client.call(&format!("EXPIRY ADVISOR ON k LIFETIMES 1s {wrong}")).text();
            assert!(text.starts_with("ERR invalid duration '"), "{wrong}: {text}");
        }
        let many = "EXPIRY ADVISOR ON k LIFETIMES 1 2 3 4 5 6 7 8 9";
        assert_eq!(client.call(many), error("ERR an advisor follows keys under 8 lifetimes at most"));
        let unknown = "ERR unknown action of EXPIRY ADVISOR: it is ON, OFF or LIST";
        assert_eq!(client.call("EXPIRY ADVISOR SET k"), error(unknown));
        let long = vec![b'k'; 10 << 20];
        let refused = client.command(&[&b"EXPIRY"[..], b"ADVISOR", b"ON", &long]);
        assert_eq!(refused, error("ERR a prefix has no more than 1024 bytes"));
        assert!(client.command(&[&b"EXPIRY"[..], b"ADVISE", &long]).is_error());
        let script = client.call("EVAL return(redis.call('EXPIRY','ADVISOR','ON','k')) 0").text();
        assert!(script.contains("not allowed from script"), "{script}");
        assert!(client.call("EXPIRY ADVISOR LIST").items().is_empty());
        // The longest lifetime there is.
        client.call("EXPIRY ADVISOR ON k LIFETIMES 3650000d");
        client.call("SET k1 v");
        client.call("GET k1");
        assert_eq!(hit_percents(&advice(&mut client, "k")), [100.0]);
    });
}

#[test]
fn there_are_sixteen_prefixes_which_may_overlap() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let prefixes: Vec<String> = (0..16).map(|n| "k".repeat(n)).collect();
        for prefix in &prefixes {
            assert_eq!(client.command(&[&b"EXPIRY"[..], b"ADVISOR", b"ON", prefix.as_bytes()]).text(), "OK");
        }
        for n in 0..1_000 {
            let text = client.call(&format!("EXPIRY ADVISOR ON more:{n}")).text();
            assert_eq!(text, "ERR advisors are on for 16 prefixes, and for no more");
        }
        // The same again begins anew.
        client.call("GET kk");
        assert_eq!(client.call("EXPIRY ADVISOR ON k").text(), "OK");
        client.call("GET kkk");
        let reads = |client: &mut Client, prefix: &str| number(&advice(client, prefix), "reads");
        let told: Vec<i64> = ["", "k", "kk", "kkk", "kkkk"].map(|prefix| reads(&mut client, prefix)).into();
        assert_eq!(told, [2, 1, 2, 1, 0]);
        assert!(info(server, "mem_advisors") <= 16 << 20);
        let listed = client.call("EXPIRY ADVISOR LIST");
        let listed: BTreeSet<String> =
            listed.items().iter().map(|of| of.field("prefix").expect("a prefix").text()).collect();
        assert_eq!(listed, prefixes.iter().cloned().collect());
        for prefix in &prefixes {
            assert_eq!(client.command(&[&b"EXPIRY"[..], b"ADVISOR", b"OFF", prefix.as_bytes()]), int(1));
        }
        assert_eq!(client.call("EXPIRY ADVISOR OFF k"), int(0));
        assert_eq!((info(server, "advised_prefixes"), info(server, "mem_advisors")), (0, 0));
    });
}

/// A prefix whose lifetimes a policy says, and one within it that has another policy.
#[test]
fn lifetimes_of_policies_are_followed() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("EXPIRY POLICY SET page: 20ms");
        client.call("EXPIRY POLICY SET page:long: 1h SLIDING");
        assert_eq!(client.call("EXPIRY ADVISOR ON page:").text(), "OK");
        for n in 0..KEYS {
            client.call(&format!("SET page:{n} value"));
            client.call(&format!("SET page:long:{n} value PX 1000"));
        }
        wait_for_deaths(&mut client, "page:[0-9]*");
        for n in 0..KEYS {
            assert!(client.call(&format!("GET page:{n}")).is_null());
            assert!(!client.call(&format!("GET page:long:{n}")).is_null(), "its use has renewed it");
        }
        let told = advice(&mut client, "page:");
        let facts = ["reads", "hits", "expired_misses", "cold_misses", "unread_deaths"];
        assert_eq!(facts.map(|name| number(&told, name)), [2 * KEYS, KEYS, KEYS, 0, KEYS]);
        let curve = told.field("curve").expect("a curve");
        let times: Vec<f64> = curve.items().iter().map(|point| real(point, "times")).collect();
        assert_eq!(times, [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0]);
        let hits = hit_percents(&told);
        assert!(hits.is_sorted() && (hits[2] - 50.0).abs() < 3.0, "{hits:?}");
        // Another lifetime of the policy holds from the next write on.
        client.call("EXPIRY POLICY SET page: 1h");
        client.call("EXPIRY ADVISOR ON page:");
        for n in 0..KEYS {
            client.call(&format!("SET page:{n} value"));
            client.call(&format!("GET page:{n}"));
        }
        let told = advice(&mut client, "page:");
        let median_ms = number(&told, "median_lifetime_ms");
        assert!((3_300_000..=3_900_000).contains(&median_ms), "{median_ms}");
        assert_eq!((number(&told, "hits"), number(&told, "deaths")), (KEYS, 0));
    });
}

/// More keys than find room: the memory stays, and the estimate is near. (`EMBERDB_ADVISED_KEYS` makes more of them.)
#[test]
fn many_keys_are_sampled() {
    on_embers(&[], |server| {
        let many: i64 = std::env::var("EMBERDB_ADVISED_KEYS").map_or(100_000, |keys| keys.parse().expect("a number"));
        let mut client = server.client();
        client.call("EXPIRY ADVISOR ON k: LIFETIMES 1h");
        for first in (0..many).step_by(1_000) {
            let keys: Vec<String> = (first..first + 1_000).map(|n| format!("k:{n} v")).collect();
            client.call(&format!("MSET {}", keys.join(" ")));
        }
        for first in (0..2 * many).step_by(1_000) {
            let keys: Vec<String> = (first..first + 1_000).map(|n| format!("k:{n}")).collect();
            client.call(&format!("MGET {}", keys.join(" ")));
        }
        let told = advice(&mut client, "k:");
        assert_eq!((number(&told, "reads"), number(&told, "hits")), (2 * many, many));
        assert!(number(&told, "advisor_bytes") <= 1 << 20);
        let (hits, sampled) = (hit_percents(&told)[0], real(&told, "sampled_percent"));
        assert!((hits - 50.0).abs() < 3.0 && sampled < 10.0, "{hits} {sampled}");
        let cold = number(&told, "cold_misses");
        assert!((cold - many).abs() < many / 20, "{cold}");
    });
}

#[test]
fn they_work_in_transactions_and_with_maps() {
    on_embers(&[], |server| {
        let mut client = server.client3();
        client.call("MULTI");
        for queued in ["EXPIRY ADVISOR ON k", "SET k1 v EX 100", "GET k1", "EXPIRY ADVISE k", "EXPIRY ADVISOR OFF k"] {
            assert_eq!(client.call(queued).text(), "QUEUED");
        }
        let replies = client.call("EXEC");
        assert_eq!(replies.items()[0].text(), "OK");
        assert!(matches!(replies.items()[3], Value::Map(_)), "{replies:?}");
        assert_eq!(number(&replies.items()[3], "reads"), 1);
        assert_eq!(replies.items()[4], int(1));
    });
}

#[test]
fn users_ask_about_keys_that_they_may_read() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("ACL SETUSER ann on nopass ~a:* +@all");
        client.call("ACL SETUSER bob on nopass ~* +@read");
        client.call("EXPIRY ADVISOR ON b:");
        let mut ann = server.client();
        ann.call("AUTH ann x");
        assert_eq!(ann.call("EXPIRY ADVISOR ON a:").text(), "OK");
        assert!(ann.call("EXPIRY ADVISE a:").field("reads").is_some());
        for refused in ["EXPIRY ADVISOR ON b:", "EXPIRY ADVISE b:", "EXPIRY ADVISE a"] {
            assert!(ann.call(refused).text().starts_with("NOPERM"), "{refused}");
        }
        let mut bob = server.client();
        bob.call("AUTH bob x");
        assert!(bob.call("EXPIRY ADVISE b:").field("reads").is_some());
        assert!(bob.call("EXPIRY ADVISOR ON b:").text().starts_with("NOPERM"));
    });
}
