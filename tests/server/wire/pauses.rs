//! While clients are paused data stand still: what dies meanwhile is hidden, and goes when the pause is over.

use crate::common::{Client, Server, Value, bulk, int, on_embers, on_every_server, wait_until};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const FLAGS: [&str; 4] = ["--notify-keyspace-events", "KEA", "--enable-debug-command", "yes"];
const PAUSE: &str = "CLIENT PAUSE 1000000 WRITE";

fn number(server: &Server, field: &str) -> u64 {
    server.info(field).and_then(|number| number.parse().ok()).expect("a number")
}

/// Reads as often as it takes until nothing is under a key.
fn until_hidden(client: &mut Client, key: &str) {
    assert!(wait_until(PATIENCE, || client.call(&format!("EXISTS {key}")) == int(0)));
}

#[test]
fn what_dies_in_a_pause_is_hidden_and_goes_when_it_is_over() {
    on_every_server(&FLAGS, |server| {
        let (mut client, mut listener) = (server.client(), server.client());
        let keys: Vec<String> = (0..8).map(|i| format!("key:{i}")).collect();
        assert_eq!(client.call("DEBUG SET-ACTIVE-EXPIRE 0"), Value::ok());
        for key in &keys {
            assert_eq!(client.call(&format!("SET {key} v PX 30")), Value::ok());
        }
        assert_eq!(client.call("SET stays v"), Value::ok());
        assert_eq!(client.call(PAUSE), Value::ok());
        listener.call("PSUBSCRIBE __keyevent@0__:expired __keyevent@0__:del");
        listener.read();
        for _ in 0..2 {
            for key in &keys {
                until_hidden(&mut client, key);
                for (read, expected) in [("GET", Value::NullBulk), ("TTL", int(-2)), ("STRLEN", int(0))] {
                    assert_eq!(client.call(&format!("{read} {key}")), expected, "{read} {key}");
                }
                // In a transaction, and in a script that only reads.
                assert_eq!(client.call("MULTI"), Value::ok());
                client.call(&format!("GET {key}"));
                assert_eq!(client.call("EXEC"), Value::Array(vec![Value::NullBulk]));
                let script = "return{redis.call('exists',KEYS[1]),redis.call('get',KEYS[1])}";
                let expected = Value::Array(vec![int(0), Value::NullBulk]);
                assert_eq!(client.call(&format!("EVAL_RO {script} 1 {key}")), expected);
            }
            assert_eq!(client.call("SCAN 0 COUNT 1000").items()[1], Value::bulks(&["stays"]));
            assert_eq!(client.call("RANDOMKEY"), bulk("stays"));
        }
        assert_eq!(number(server, "expired_keys"), 0);
        assert_eq!(client.call("CLIENT UNPAUSE"), Value::ok());
        // The first death is told behind the pause only: nothing else was told before.
        for key in &keys {
            assert_eq!(client.call(&format!("GET {key}")), Value::NullBulk);
        }
        let mut told: Vec<String> = (0..keys.len()).map(|_| listener.read().items()[3].text()).collect();
        told.sort();
        assert_eq!(told, keys);
        assert_eq!(number(server, "expired_keys"), keys.len() as u64);
        assert_eq!(client.call("DBSIZE"), int(1));
    });
}

/// With fields of hashes, the cycle, the log, and whatever else takes out what is dead.
#[test]
fn nothing_goes_in_a_pause_and_everything_behind_it() {
    let flags = [&FLAGS[..], &["--appendonly", "yes", "--appendfsync", "always"]].concat();
    on_embers(&flags, |server| {
        let (mut client, mut purger) = (server.client(), server.client());
        assert!(wait_until(PATIENCE, || server.info("aof_enabled").as_deref() == Some("1")));
        assert_eq!(client.call("DEBUG SET-ACTIVE-EXPIRE 0"), Value::ok());
        for i in 0..8 {
            client.call(&format!("SET key:{i} v PX 30"));
            client.call(&format!("HSET hash:{i} a 1 b 2"));
            client.call(&format!("HPEXPIRE hash:{i} 30 FIELDS 1 a"));
            client.call(&format!("HSET gone:{i} a 1"));
            client.call(&format!("HPEXPIRE gone:{i} 30 FIELDS 1 a"));
        }
        assert_eq!(client.call(PAUSE), Value::ok());
        let expired = || number(server, "expired_keys");
        let log_bytes = number(server, "aof_current_size");
        assert_eq!(client.call("DEBUG SET-ACTIVE-EXPIRE 1"), Value::ok());
        for i in 0..8 {
            until_hidden(&mut client, &format!("key:{i}"));
            until_hidden(&mut client, &format!("gone:{i}"));
            assert!(wait_until(PATIENCE, || client.call(&format!("HGETALL hash:{i}")) == Value::bulks(&["b", "2"])));
            assert_eq!(client.call(&format!("HLEN hash:{i}")), int(1));
        }
        purger.send("EXPIRY PURGE");
        assert_eq!(purger.read_within(Duration::from_millis(30)), None, "a write");
        assert_eq!((expired(), number(server, "aof_current_size")), (0, log_bytes));
        assert_eq!(client.call("CLIENT UNPAUSE"), Value::ok());
        assert!(wait_until(PATIENCE, || expired() >= 8));
        assert!(purger.read().number() >= 0);
        assert_eq!(client.call("DBSIZE"), int(8));
        assert!(wait_until(PATIENCE, || number(server, "aof_current_size") > log_bytes));
    });
}

/// EXEC that was held up runs behind the pause, and finds dead what is dead.
#[test]
fn what_was_held_up_finds_what_is_dead_gone() {
    on_every_server(&FLAGS, |server| {
        let (mut client, mut writer) = (server.client(), server.client());
        assert_eq!(client.call("SET key v PX 30"), Value::ok());
        assert_eq!(client.call(PAUSE), Value::ok());
        for line in ["MULTI", "INCR key", "PTTL key", "EXEC"] {
            writer.send(line);
        }
        until_hidden(&mut client, "key");
        assert_eq!(client.call("CLIENT UNPAUSE"), Value::ok());
        (0..3).for_each(|_| drop(writer.read()));
        assert_eq!(writer.read(), Value::Array(vec![int(1), int(-1)]));
        assert_eq!(client.call("GET key"), bulk("1"));
        assert_eq!(number(server, "expired_keys"), 1);
    });
}
