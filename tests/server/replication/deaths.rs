//! The deaths that a promoted replica tells.

use super::{PATIENCE, QUICK, replica_of, settle, wait_for, wait_for_link};
use crate::common::{Client, Kind, Server, Value, encode, int, wait_until};

const KEYS: usize = 200;

/// Once a replica of several shards that became a primary told of no key that was overdue.
#[test]
fn a_promoted_replica_tells_of_all_that_is_overdue() {
    for shards in [1, 3] {
        let primary = Server::start(Kind::Ember { shards }, QUICK);
        let replica = Server::start(Kind::Ember { shards }, QUICK);
        let (mut client, mut other) = (primary.client(), replica.client());
        assert_eq!(client.call("EXPIRY POLICY SET ev: NONE EVENTS deaths"), Value::ok());
        assert_eq!(other.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port())), Value::ok());
        wait_for_link(&replica);
        (0..KEYS).for_each(|n| assert_eq!(client.call(&format!("SET ev:{n} v PX 2000")), Value::ok()));
        assert_eq!(client.call("WAIT 1 20000"), int(1));
        primary.signal("KILL");
        assert!(wait_until(PATIENCE, || other.call(&format!("EXISTS ev:{}", KEYS - 1)) == int(0)));
        assert_eq!(other.call("REPLICAOF NO ONE"), Value::ok());
        let told = wait_until(PATIENCE, || other.call("XLEN deaths") == int(KEYS as i64));
        assert!(told, "{shards} shards: {:?} of {KEYS}", other.call("XLEN deaths"));
    }
}

/// Once FAILOVER left behind the deaths whose stream was held meanwhile: the keys were gone on the replica, told by nobody.
#[test]
fn a_server_that_hands_over_writes_the_deaths_that_wait_first() {
    for shards in [1, 3] {
        let primary = Server::start(Kind::Ember { shards }, QUICK);
        let replica = replica_of(&primary, Kind::Ember { shards }, QUICK);
        wait_for_link(&replica);
        let (mut client, mut holder, mut other): (Client, Client, Client) =
            (primary.client(), primary.client(), replica.client());
        assert_eq!(client.call("EXPIRY POLICY SET ev: NONE EVENTS deaths"), Value::ok());
        (0..KEYS).for_each(|n| assert_eq!(client.call(&format!("SET ev:{n} v PX 300")), Value::ok()));
        let script = "local till = os.clock() + 2 while os.clock() < till do end return redis.call('XLEN', KEYS[1])";
        holder.send_raw(&encode(&["EVAL", script, "1", "deaths"]));
        assert!(wait_until(PATIENCE, || client.call(&format!("EXISTS ev:{}", KEYS - 1)) == int(0)));
        // Whoever writes over what is dead tells the journal of its death; its entry still waits.
        (0..KEYS).for_each(|n| assert_eq!(client.call(&format!("SET ev:{n} w")), Value::ok()));
        assert_eq!(client.call("FAILOVER"), Value::ok());
        wait_for(&replica, "role", "master");
        assert!(!holder.read().is_error());
        let told = || other.call("XLEN deaths") == int(KEYS as i64);
        assert!(wait_until(PATIENCE, told), "{shards} shards: {:?} of {KEYS}", other.call("XLEN deaths"));
        wait_for_link(&primary);
        settle(&replica, &primary);
        assert_eq!(primary.client().call("XLEN deaths"), int(KEYS as i64));
        (0..KEYS).for_each(|n| assert_eq!(other.call(&format!("GET ev:{n}")).text(), "w"));
    }
}
