//! A replica with a ceiling of its own.

use super::{PATIENCE, PRIMARY, field, replica_of, wait_for_link};
use crate::common::{Kind, Server, Value, bulk, have_tool, int, wait_until};
use std::time::Duration;

/// As in Redis a replica evicts where it is told to, down to its own ceiling, and is told of all that changes.
#[test]
fn a_replica_evicts_where_it_does_not_ignore_its_ceiling() {
    let kinds = [Kind::Ember { shards: 1 }, Kind::Ember { shards: 3 }, Kind::Redis];
    for kind in kinds.into_iter().filter(|kind| kind.is_ember() || have_tool("redis-server")) {
        let primary = Server::start(Kind::Ember { shards: 2 }, PRIMARY);
        let mut client = primary.client();
        let replica = replica_of(&primary, kind, &["--maxmemory-policy", "allkeys-lru"]);
        wait_for_link(&replica);
        let value = "x".repeat(1000);
        let fill = |client: &mut crate::common::Client, from: usize| {
            (from..from + 20_000).for_each(|number| client.send(&format!("SET key:{number} {value}")));
            (0..20_000).for_each(|_| assert_eq!(client.read(), Value::ok()));
            assert_eq!(client.call("WAIT 1 20000"), int(1));
        };
        fill(&mut client, 0);
        let mut other = replica.client();
        let used: u64 = field(&replica, "used_memory").parse().expect("a number");
        assert_eq!(other.call(&format!("CONFIG SET maxmemory {}", used - (5 << 20))), Value::ok());
        fill(&mut client, 20_000);
        assert_eq!((other.call("DBSIZE"), field(&replica, "evicted_keys")), (int(40_000), "0".to_owned()));
        assert_eq!(other.call("CONFIG SET replica-ignore-maxmemory no"), Value::ok());
        // (It takes place when something is done.)
        let below = || {
            client.call("INCR n");
            field(&replica, "used_memory").parse::<u64>().expect("a number") < used - (4 << 20)
        };
        assert!(wait_until(PATIENCE, below), "{}", field(&replica, "used_memory"));
        assert_ne!(field(&replica, "evicted_keys"), "0");
        let keys = other.call("DBSIZE").number();
        assert!((5_000..30_000).contains(&keys), "{keys}");
        // It goes on, and evicts nothing once it is told not to.
        fill(&mut client, 40_000);
        assert!(other.call("DBSIZE").number() < 30_000);
        client.call("SET last 1");
        assert!(wait_until(PATIENCE, || other.call("GET last") == bulk("1")));
        assert_eq!(other.call("CONFIG SET replica-ignore-maxmemory yes"), Value::ok());
        std::thread::sleep(Duration::from_millis(200));
        let (keys, evicted) = (other.call("DBSIZE").number(), field(&replica, "evicted_keys"));
        fill(&mut client, 60_000);
        assert_eq!((other.call("DBSIZE").number(), field(&replica, "evicted_keys")), (keys + 20_000, evicted));
        assert_eq!(client.call("DBSIZE"), int(80_002));
    }
}
