//! Waiting for keys: what comes at the same moment, and requests of unusual size. Orders of service are compared with
//! Redis in `tests/server/differential/blocking.rs`.

use std::time::Duration;

use crate::common::{Server, Value, bulk, error, int, on_every_server, wait_until};

const PATIENCE: Duration = Duration::from_secs(10);

fn blocked_clients(server: &Server) -> Option<String> {
    server.info("blocked_clients")
}

#[test]
fn who_is_unblocked_gets_nothing_and_who_gets_something_is_not_unblocked() {
    on_every_server(&[], |server| {
        let (mut waiter, mut pusher, mut unblocker) = (server.client(), server.client(), server.client());
        let id = waiter.call("CLIENT ID").number();
        for round in 0..200 {
            let key = format!("key:{}", round % 7);
            waiter.send(&format!("BLPOP {key} 0"));
            assert!(wait_until(PATIENCE, || blocked_clients(server).as_deref() == Some("1")));
            pusher.send(&format!("RPUSH {key} {round}"));
            unblocker.send(&format!("CLIENT UNBLOCK {id} ERROR"));
            let (_, unblocked, reply) = (pusher.read(), unblocker.read(), waiter.read());
            if unblocked == int(1) {
                assert_eq!(reply, error("UNBLOCKED client unblocked via CLIENT UNBLOCK"));
                assert_eq!(waiter.call(&format!("LPOP {key}")), bulk(round.to_string()));
            } else {
                assert_eq!(reply, Value::bulks(&[&key, &round.to_string()]));
            }
        }
        assert_eq!(unblocker.call(&format!("CLIENT UNBLOCK {id}")), int(0));
    });
}

#[test]
fn one_can_wait_for_very_many_keys() {
    on_every_server(&[], |server| {
        let (mut waiter, mut other) = (server.client(), server.client());
        // Each twice.
        let keys: Vec<String> = (0..20_000).map(|n| format!("key:{}", n % 10_000)).collect();
        let with_keys = |before: &[&str], after: &[&str]| -> Vec<String> {
            let (before, after) = (before.iter(), after.iter());
            before.map(ToString::to_string).chain(keys.clone()).chain(after.map(ToString::to_string)).collect()
        };
        assert_eq!(waiter.command(&with_keys(&["BLPOP"], &["0.01"])), Value::NullArray);
        assert_eq!(waiter.command(&with_keys(&["LMPOP", "20000"], &["LEFT"])), Value::NullArray);
        assert_eq!(waiter.command(&with_keys(&["BZMPOP", "0.01", "20000"], &["MIN"])), Value::NullArray);
        waiter.send_raw(&crate::common::encode(&with_keys(&["BRPOP"], &["0"])));
        assert!(wait_until(PATIENCE, || blocked_clients(server).as_deref() == Some("1")));
        assert_eq!(other.call("RPUSH key:9999 there"), int(1));
        assert_eq!(waiter.read(), Value::bulks(&["key:9999", "there"]));
        assert_eq!(blocked_clients(server).as_deref(), Some("0"));
        // The first that is there answers, whatever comes behind it.
        for key in ["key:5000", "key:70", "key:800"] {
            other.call(&format!("RPUSH {key} {key}"));
        }
        assert_eq!(waiter.command(&with_keys(&["BLPOP"], &["0"])), Value::bulks(&["key:70", "key:70"]));
        other.call("SET key:3 text");
        let wrong = error("WRONGTYPE Operation against a key holding the wrong kind of value");
        assert_eq!(waiter.command(&with_keys(&["BLPOP"], &["0"])), wrong);
    });
}
