//! GETFRESH: one of many clients computes what is missing, or about to die.

use std::time::Duration;

use crate::common::{Value, bulk, error, int, on_embers, wait_until};

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
