//! A script that runs long holds its keys and nobody else.

use super::eval;
use crate::common::{Value, bulk, encode, int, on_embers, wait_until};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

#[test]
fn others_are_served_while_a_script_runs() {
    on_embers(&[], |server| {
        let (mut client, mut other, mut waiting) = (server.client(), server.client(), server.client());
        assert_eq!(other.call("SET held before"), Value::ok());
        let script = "redis.call('SET', KEYS[1], 'half') while redis.call('EXISTS', KEYS[1]) == 1 do end";
        client.send_raw(&encode(&["EVAL", script, "1", "held"]));
        // Whoever wants the key waits; all others do not.
        assert!(wait_until(LONG, || other.call("SCRIPT KILL").text().starts_with("UNKILLABLE")));
        waiting.send_raw(&encode(&["GET", "held"]));
        for n in 0..200 {
            assert_eq!(other.call(&format!("SET free:{n} {n} PX 50")), Value::ok());
            assert_eq!(
                eval(&mut other, "return redis.call('GET', KEYS[1])", &[&format!("free:{n}")], &[]),
                bulk(n.to_string())
            );
        }
        assert_eq!(waiting.read_within(Duration::from_millis(50)), None);
        // Deaths go on, too.
        assert!(wait_until(LONG, || server
            .info("db0")
            .is_some_and(|db| db.contains("keys=1,") || !db.contains("expires"))));
        drop(client);
        assert!(other.call("SCRIPT KILL").text().starts_with("UNKILLABLE"));
    });
}

#[test]
fn a_script_that_has_not_written_can_be_killed() {
    on_embers(&[], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        assert_eq!(other.call("SCRIPT KILL").text(), "NOTBUSY No scripts in execution right now.");
        other.call("SET k v");
        client.send_raw(&encode(&["EVAL", "while redis.call('GET', KEYS[1]) do end", "1", "k"]));
        assert!(wait_until(LONG, || other.call("SCRIPT KILL") == Value::ok()));
        assert!(client.read().text().starts_with("ERR Script killed by user with SCRIPT KILL"));
        assert_eq!(other.call("DEL k"), int(1));
        assert_eq!(other.call("SCRIPT KILL").text(), "NOTBUSY No scripts in execution right now.");
    });
}
