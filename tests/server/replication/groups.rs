//! Groups of keys on replicas of either kind.

use super::{PATIENCE, QUICK, STRICT, replica_of, settle, wait_for_link};
use crate::common::{Client, Kind, Server, Value, have_tool, int, wait_until};
use std::collections::BTreeSet;

fn members(client: &mut Client, group: &str) -> BTreeSet<String> {
    let reply = client.call(&format!("EXPIRY GROUP MEMBERS {group}"));
    reply.items().iter().map(Value::text).collect()
}

fn fill(client: &mut Client, group: &str, count: usize) {
    for key in 0..count {
        client.call(&format!("SET {group}:{key} v"));
        assert_eq!(client.call(&format!("EXPIRY GROUP ADD {group} {group}:{key}")), int(1));
    }
}

/// Full and running synchronization; what a replica has when it becomes a primary.
#[test]
fn a_replica_has_the_same_groups() {
    for (shards, of_replica) in [(1, 3), (3, 2), (3, 1)] {
        let primary = Server::start(Kind::Ember { shards }, QUICK);
        let mut client = primary.client();
        fill(&mut client, "before", 6);
        client.call("EXPIRE before:0 100000");
        assert_eq!(client.call("EXPIRY GROUP EXPIRE before 1h SLIDING"), int(6));
        let replica = replica_of(&primary, Kind::Ember { shards: of_replica }, QUICK);
        wait_for_link(&replica);
        fill(&mut client, "after", 6);
        fill(&mut client, "killed", 6);
        assert_eq!(client.call("EXPIRY GROUP EXPIRE after 1h"), int(6));
        assert_eq!(client.call("EXPIRY GROUP EXPIRE killed 1h"), int(6));
        assert_eq!(client.call("EXPIRY GROUP ADD both before:1 after:1"), int(2));
        assert_eq!(client.call("EXPIRY GROUP KILL killed"), int(6));
        client.call("SET after:2 w");
        client.call("DEL after:3");
        assert_eq!(client.call("EXPIRY GROUP REM after after:4"), int(1));
        // A group that has died comes again under its name.
        fill(&mut client, "again", 3);
        assert_eq!(client.call("EXPIRY GROUP EXPIRE again 1"), int(3));
        assert!(wait_until(PATIENCE, || client.call("EXISTS again:0 again:1 again:2") == int(0)));
        fill(&mut client, "again", 2);
        settle(&primary, &replica);
        let mut other = replica.client();
        for group in ["before", "after", "killed", "both", "again"] {
            assert_eq!(members(&mut other, group), members(&mut client, group), "{group}");
            let (ours, theirs) =
                [&mut client, &mut other].map(|of| of.call(&format!("EXPIRY GROUP TTL {group}")).number()).into();
            assert!((ours - theirs).abs() <= 1, "{group}: {ours} {theirs}");
        }
        assert!(other.call("EXPIRY GROUP KILL before").text().starts_with("READONLY"));
        assert_eq!(other.call("GET before:2").text(), "v", "its use changes nothing here");
        assert_eq!(other.call("REPLICAOF NO ONE"), Value::ok());
        assert_eq!(other.call("EXPIRY GROUP REM before before:0"), int(1));
        assert!(other.call("TTL before:0").number() > 90_000);
        assert_eq!(other.call("EXPIRY GROUP EXPIRE before 1 SLIDING"), int(5));
        assert!(wait_until(PATIENCE, || members(&mut other, "before").is_empty()));
        assert_eq!(other.call("EXISTS before:1 before:2 before:3 before:4 before:5"), int(0));
        assert_eq!(other.call("EXPIRY GROUP KILL again"), int(2));
    }
}

/// It knows nothing of groups, and is told what becomes of keys.
#[test]
fn redis_follows_groups() {
    if !have_tool("redis-server") {
        return;
    }
    for at_first in [false, true] {
        let primary = Server::start(Kind::Ember { shards: 3 }, QUICK);
        let mut client = primary.client();
        fill(&mut client, "early", 6);
        assert_eq!(client.call("EXPIRY GROUP EXPIRE early 1h"), int(6));
        let replica = replica_of(&primary, Kind::Redis, STRICT);
        wait_for_link(&replica);
        if at_first {
            settle(&primary, &replica);
        }
        fill(&mut client, "late", 6);
        assert_eq!(client.call("EXPIRY GROUP EXPIRE late 2h SLIDING"), int(6));
        assert_eq!(client.call("EXPIRY GROUP TOUCH early"), int(6));
        assert_eq!(client.call("EXPIRY GROUP REM late late:0"), int(1));
        settle(&primary, &replica);
        let mut other = replica.client();
        assert!(other.call("TTL late:1").number() > 7_000);
        assert_eq!(other.call("TTL late:0"), int(-1));
        assert!(other.call("TTL early:1").number() > 3_000);
        assert_eq!(client.call("EXPIRY GROUP KILL late"), int(5));
        assert_eq!(client.call("EXPIRY GROUP EXPIRE early 1"), int(6));
        assert!(wait_until(PATIENCE, || other.call("DBSIZE") == int(1)));
        settle(&primary, &replica);
    }
}
