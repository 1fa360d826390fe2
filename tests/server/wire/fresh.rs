//! GETFRESH: one of many clients computes what is missing, or about to die.

use std::time::Duration;

use crate::common::{Client, Kind, Server, Value, bulk, error, int, on_embers, wait_until, words};

const SOON: Duration = Duration::from_secs(10);

fn reply(value: Value, advice: &str, pttl: i64, lease_ms: i64) -> Value {
    Value::Array(vec![value, bulk(advice), int(pttl), int(lease_ms)])
}

/// What a reader is told to do.
fn advice(reply: &Value) -> String {
    reply.items()[1].text()
}

#[test]
fn one_client_is_told_to_compute_what_is_missing() {
    on_embers(&[], |server| {
        let (mut first, mut second) = (server.client(), server.client());
        let asked = "GETFRESH page:1 COST 250ms LEASE 1h";
        assert_eq!(first.call(asked), reply(Value::NullBulk, "refresh", -2, 3_600_000));
        let waits = second.call(asked);
        assert_eq!(advice(&waits), "wait");
        assert!((3_590_000..=3_600_000).contains(&waits.items()[3].number()), "{waits:?}");
        assert_eq!(advice(&first.call(asked)), "wait", "a lease belongs to nobody in particular");
        first.call("SET page:1 text PX 600000");
        let hit = second.call(asked);
        assert_eq!((&hit.items()[0], advice(&hit).as_str()), (&bulk("text"), "hit"));
        assert!((590_000..=600_000).contains(&hit.items()[2].number()), "{hit:?}");
        assert_eq!(hit.items()[3], int(0));
        assert_eq!(advice(&second.call("GETFRESH page:1 COST 1000d BETA 0")), "hit", "never early");
        first.call("PERSIST page:1");
        assert_eq!(second.call(asked), reply(bulk("text"), "hit", -1, 0));
    });
}

/// Told so early that every read is early: one of the readers, and again when it does not come back.
#[test]
fn one_client_is_told_before_the_deadline() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("SET k v PX 3600000");
        let early = "GETFRESH k COST 1000d LEASE 200ms";
        let told = client.call(early);
        assert_eq!((&told.items()[0], advice(&told).as_str()), (&bulk("v"), "refresh"));
        assert_eq!(advice(&client.call("GETFRESH k COST 1000d LEASE 1h")), "hit");
        assert!(wait_until(SOON, || advice(&client.call(early)) == "refresh"), "the lease ends by itself");
        client.call("SET k w PX 3600000");
        let told = client.call("GETFRESH k COST 1000d LEASE 1h");
        assert_eq!((&told.items()[0], advice(&told).as_str()), (&bulk("w"), "refresh"), "a write ends it");
        assert_eq!(advice(&client.call(early)), "hit");
    });
}

#[test]
fn options_are_said_once() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for twice in ["COST 1s COST 2s", "COST 1s BETA 1 BETA 2", "COST 1s LEASE 1s LEASE 2s"] {
            assert_eq!(client.call(&format!("GETFRESH k {twice}")), error("ERR syntax error"), "{twice}");
        }
    });
}

#[test]
fn leases_know_databases_transactions_and_scripts() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let asked = "GETFRESH k COST 1h";
        let ask = |client: &mut crate::common::Client| advice(&client.call(asked));
        assert_eq!(ask(&mut client), "refresh");
        client.call("SELECT 1");
        assert_eq!(ask(&mut client), "refresh", "another key");
        assert_eq!(ask(&mut client), "wait");
        client.call("SWAPDB 0 1");
        client.call("FLUSHDB");
        assert_eq!(ask(&mut client), "refresh", "nothing is left of it");
        client.call("SELECT 0");
        assert_eq!(ask(&mut client), "wait", "it has come from the other database");
        client.call("FLUSHALL");
        client.call("MULTI");
        client.call(asked);
        client.call("SET k v");
        client.call(asked);
        let replies = client.call("EXEC");
        assert_eq!((advice(&replies.items()[0]), advice(&replies.items()[2])), ("refresh".into(), "hit".into()));
        client.call("DEL k");
        let script = ["EVAL_RO", "return redis.call('GETFRESH', KEYS[1], 'COST', '1s')", "1", "k"];
        assert_eq!(client.command(&script), reply(Value::NullBulk, "refresh", -2, 10_000));
        assert_eq!(ask(&mut client), "wait");
        client.call("SET other v");
        client.call("RENAME other k");
        assert_eq!(ask(&mut client), "hit");
        client.call("DEL k");
        assert_eq!(ask(&mut client), "refresh");
    });
}

#[test]
fn who_asks_wrongly_is_told_so() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for wrong in ["GETFRESH k COST 1s BETA", "GETFRESH k LEASE 1s", "GETFRESH k COST 1s NX 1"] {
            assert_eq!(client.call(wrong), error("ERR syntax error"), "{wrong}");
        }
        assert_eq!(client.call("GETFRESH k"), error("ERR wrong number of arguments for 'getfresh' command"));
        let text = "ERR invalid duration '5w': the unit is unknown: use a number with one of the units ms, s, m, h, d, \
                    such as 500ms, 30s, 1.5h or 7d";
        assert_eq!(client.call("GETFRESH k COST 5w"), error(text));
        client.call("RPUSH l x");
        let wrong_type = error("WRONGTYPE Operation against a key holding the wrong kind of value");
        assert_eq!(client.call("GETFRESH l COST 1s"), wrong_type);
    });
}

/// What a reader is shown, and told to do.
fn shown(reply: &Value) -> (Value, String) {
    (reply.items()[0].clone(), advice(reply))
}

/// All others are shown what was there, and nobody else sees it.
#[test]
fn what_has_died_is_shown_as_stale() {
    on_embers(&["--notify-keyspace-events", "KEA"], |server| {
        let (mut first, mut second, mut listener) = (server.client(), server.client(), server.client());
        assert_eq!(first.call("EXPIRY POLICY SET page: 1h MAX 1d REQUIRE STALE 1h"), Value::ok());
        listener.call("PSUBSCRIBE __keyevent@*__:expired");
        for i in 0..20 {
            assert_eq!(first.call(&format!("SET page:{i} text{i} PX 20")), Value::ok());
        }
        (0..20).for_each(|_| drop(listener.read()));
        for i in 0..20 {
            let (ask, text) = (format!("GETFRESH page:{i} COST 1s LEASE 1h"), bulk(format!("text{i}")));
            assert_eq!(first.call(&ask), reply(text.clone(), "refresh", -2, 3_600_000));
            assert_eq!(shown(&second.call(&ask)), (text.clone(), "stale".to_owned()));
            assert_eq!(shown(&first.call(&ask)), (text.clone(), "stale".to_owned()));
            first.call("MULTI");
            first.call(&ask);
            first.call(&format!("EXISTS page:{i}"));
            let replies = first.call("EXEC");
            assert_eq!(
                (shown(&replies.items()[0]), &replies.items()[1]),
                ((text.clone(), "stale".to_owned()), &int(0))
            );
            let script = "return redis.call('getfresh',KEYS[1],'cost','1s')";
            assert_eq!(shown(&first.command(&["EVAL", script, "1", &format!("page:{i}")])), (text, "stale".to_owned()));
        }
        for gone in ["DBSIZE", "EXISTS page:1", "SCAN 0 COUNT 1000", "KEYS *", "RANDOMKEY", "GET page:1", "TTL page:1"]
        {
            let reply = first.call(gone);
            let is_gone = match &reply {
                Value::Int(number) => *number <= 0,
                Value::Array(items) => items.iter().all(|item| *item == bulk("0") || *item == Value::Array(vec![])),
                other => *other == Value::NullBulk,
            };
            assert!(is_gone, "{gone}: {reply:?}");
        }
        assert_eq!(server.info("stale_copies").as_deref(), Some("20"));
        assert_eq!(server.info("stale_copies_shown").as_deref(), Some("100"));
        // It has its database.
        assert_eq!(first.call("SWAPDB 0 1"), Value::ok());
        assert_eq!(first.call("GETFRESH page:1 COST 1s").items()[0], Value::NullBulk);
        first.call("SELECT 1");
        assert_eq!(shown(&first.call("GETFRESH page:1 COST 1s")), (bulk("text1"), "stale".to_owned()));
        assert_eq!(first.call("SET page:1 new EX 100"), Value::ok());
        assert_eq!(shown(&first.call("GETFRESH page:1 COST 1ms")), (bulk("new"), "hit".to_owned()));
        first.call("SET other w EX 100");
        assert_eq!(first.call("RENAME other page:2"), Value::ok());
        assert_eq!(first.call("DEL page:1 page:2 page:3"), int(2));
        for i in 1..4 {
            assert_eq!(first.call(&format!("GETFRESH page:{i} COST 1s")).items()[0], Value::NullBulk, "{i}");
        }
        assert_eq!(server.info("stale_copies").as_deref(), Some("17"));
        assert_eq!(first.call("FLUSHALL"), Value::ok());
        assert_eq!(server.info("stale_copies").as_deref(), Some("0"));
    });
}

/// They end by themselves, and give their memory back.
#[test]
fn what_is_stale_ends() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("EXPIRY POLICY SET page: NONE STALE 300ms"), Value::ok());
        for i in 0..500 {
            client.call(&format!("SET page:{i} text PX 10"));
        }
        assert!(wait_until(SOON, || client.call("DBSIZE") == int(0)));
        assert!(wait_until(SOON, || server.info("stale_copies").as_deref() == Some("0")));
        assert_eq!(server.info("stale_copies_bytes").as_deref(), Some("0"));
        assert_eq!(client.call("GETFRESH page:1 COST 1s").items()[0], Value::NullBulk);
    });
}

/// Nothing that lives is evicted while there are copies, on whichever shard, and they do not keep a ceiling from holding.
#[test]
fn what_is_stale_goes_before_what_lives() {
    for policy in ["allkeys-lru", "noeviction"] {
        on_embers(&["--maxmemory-policy", policy], |server| {
            let mut client = server.client();
            assert_eq!(client.call("EXPIRY POLICY SET page: NONE STALE 1h"), Value::ok());
            let value = "x".repeat(1000);
            let sets = |client: &mut Client, prefix: &str, count: usize, end: &str| {
                for first in (0..count).step_by(500) {
                    let sets: Vec<_> =
                        (first..first + 500).map(|i| words(&format!("SET {prefix}{i} {value}{end}"))).collect();
                    client.pipeline(&sets).iter().for_each(|reply| assert_eq!(*reply, Value::ok()));
                }
            };
            sets(&mut client, "page:", 20_000, " PX 1500");
            assert!(wait_until(SOON, || client.call("DBSIZE") == int(0)));
            let number = |field: &str| server.info(field).and_then(|value| value.parse::<u64>().ok()).expect(field);
            // (What has died counts no more, and becomes a copy when it is deleted.)
            assert!(wait_until(SOON, || number("stale_copies") > 15_000));
            let ceiling = number("used_memory") + (1 << 20);
            assert_eq!(client.call(&format!("CONFIG SET maxmemory {ceiling}")), Value::ok());
            sets(&mut client, "live:", 10_000, "");
            assert_eq!(number("evicted_keys"), 0, "{policy}");
            assert_eq!(client.call("DBSIZE"), int(10_000));
            assert!(number("stale_copies") < 15_000, "{policy}");
            assert!(number("used_memory") < ceiling + (4 << 20), "{policy}");
        });
    }
}

/// Neither files nor replicas have what is stale.
#[test]
fn what_is_stale_is_in_memory_alone() {
    for flags in [&[][..], &["--appendonly", "yes"]] {
        let server = Server::start(Kind::Ember { shards: 2 }, flags);
        let mut client = server.client();
        assert_eq!(client.call("EXPIRY POLICY SET page: NONE STALE 1h"), Value::ok());
        client.call("SET page:1 text PX 10");
        client.call("SET page:2 text");
        assert!(wait_until(SOON, || client.call("DBSIZE") == int(1)));
        assert_eq!(client.call("GETFRESH page:1 COST 1s").items()[0], bulk("text"));
        let port = server.port().to_string();
        let replica = Server::start(Kind::Ember { shards: 1 }, &["--replicaof", "127.0.0.1", &port]);
        let mut other = replica.client();
        assert!(wait_until(SOON, || other.call("GET page:2") == bulk("text")));
        assert_eq!(other.call("GETFRESH page:1 COST 1s").items()[0], Value::NullBulk);
        drop(replica);
        assert_eq!(client.call("SAVE"), Value::ok());
        let server = server.restart(flags);
        let mut client = server.client();
        assert_eq!(client.call("GETFRESH page:1 COST 1s").items()[0], Value::NullBulk);
        assert_eq!(client.call("GET page:2"), bulk("text"));
    }
}
