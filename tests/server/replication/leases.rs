//! Leases on replicas, and tokens after a failover.

use super::{PATIENCE, QUICK, replica_of, settle, wait_for_link};
use crate::common::{Kind, Server, Value, have_tool, int, wait_until};
use std::fs;

fn take(server: &Server, key: &str) -> i64 {
    match server.client().call(&format!("LEASE TAKE {key} 1h OWNER me")) {
        Value::Int(token) => token,
        other => panic!("no token: {other:?}"),
    }
}

/// A replica that becomes a primary gives greater tokens than its primary gives, those included of which it hears nothing,
/// since they are given later, though its clock says nothing of that: the primary's tokens are years ahead.
#[test]
fn a_promoted_replica_gives_greater_tokens() {
    for shards in [1, 3] {
        let primary = Server::start(Kind::Ember { shards }, QUICK);
        fs::write(primary.folder().join("lease-tokens"), format!("{:016}\n", 1_u64 << 52)).expect("a disk");
        let primary = primary.restart(QUICK);
        let replica = replica_of(&primary, Kind::Ember { shards: 2 }, QUICK);
        wait_for_link(&replica);
        let first = take(&primary, "a");
        assert!(first > 1 << 52);
        settle(&primary, &replica);
        assert_eq!(replica.client().call("LEASE GET a").field("token"), Some(int(first)));
        assert!(replica.client().call("LEASE TAKE b 1h").text().starts_with("READONLY"));
        assert_eq!(replica.client().call("REPLICAOF NO ONE"), Value::ok());
        let last = (0..100).map(|n| take(&primary, &format!("late:{n}"))).max().expect("some");
        assert!(take(&replica, "b") > last);
        // The old primary comes back as a replica, and is promoted itself.
        let last = take(&replica, "c");
        let old = primary.restart(&[QUICK, &["--replicaof", "127.0.0.1", &replica.port().to_string()]].concat());
        wait_for_link(&old);
        settle(&replica, &old);
        assert_eq!(old.client().call("REPLICAOF NO ONE"), Value::ok());
        assert!(take(&old, "d") > last);
    }
}

#[test]
fn redis_follows_leases() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Ember { shards: 3 }, QUICK);
    let replica = replica_of(&primary, Kind::Redis, QUICK);
    wait_for_link(&replica);
    let token = take(&primary, "a");
    let mut client = replica.client();
    assert!(wait_until(PATIENCE, || client.call("GET a").bytes() == Some(format!("{token} me").as_bytes())));
    assert!(client.call("PTTL a").number() > 3_500_000);
    primary.client().call(&format!("LEASE RENEW a {token} 2h"));
    assert!(wait_until(PATIENCE, || client.call("PTTL a").number() > 3_600_000));
    primary.client().call(&format!("LEASE RELEASE a {token}"));
    assert!(wait_until(PATIENCE, || client.call("EXISTS a") == int(0)));
    // And the other way round: a server that follows redis-server has the clock.
    let follower = replica_of(&replica, Kind::Ember { shards: 2 }, QUICK);
    wait_for_link(&follower);
    assert_eq!(follower.client().call("REPLICAOF NO ONE"), Value::ok());
    assert!(take(&follower, "a") > token);
}
