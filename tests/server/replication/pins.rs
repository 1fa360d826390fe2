//! Pinned keys on replicas of either kind.

use super::{QUICK, STRICT, replica_of, settle, wait_for_link};
use crate::common::{Client, Kind, Server, Value, have_tool, int};
use std::collections::BTreeSet;

fn pinned(client: &mut Client) -> BTreeSet<String> {
    let page = client.call("BLESS SCAN 0 NO-EVICT COUNT 100000");
    assert_eq!(page.items()[0].text(), "0");
    page.items()[1].items().iter().map(Value::text).collect()
}

/// Pins, takes pins away, and moves what is pinned.
fn change(client: &mut Client, prefix: &str) {
    for i in 0..60 {
        client.call(&format!("SET {prefix}{i} v"));
        assert_eq!(client.call(&format!("bless set {prefix}{i} no-evict")), int(1));
    }
    for i in 0..10 {
        client.call(&format!("SET {prefix}plain{i} v"));
        client.call(&format!("BLESS CLEAR {prefix}{i} NO-EVICT"));
        client.call(&format!("DEL {prefix}{}", 10 + i));
        client.call(&format!("SET {prefix}{} w", 10 + i));
        client.call(&format!("RENAME {prefix}{} {prefix}renamed{i}", 20 + i));
        client.call(&format!("RENAME {prefix}plain{i} {prefix}{}", 30 + i));
        client.call(&format!("COPY {prefix}{} {prefix}copy{i}", 40 + i));
        client.call(&format!("SET {prefix}{} w", 50 + i));
    }
}

#[test]
fn a_replica_has_the_same_pins() {
    for (shards, of_replica) in [(1, 3), (3, 2), (3, 1)] {
        let primary = Server::start(Kind::Ember { shards }, QUICK);
        let mut client = primary.client();
        change(&mut client, "before");
        let replica = replica_of(&primary, Kind::Ember { shards: of_replica }, QUICK);
        wait_for_link(&replica);
        change(&mut client, "after");
        settle(&primary, &replica);
        let mut other = replica.client();
        let all = pinned(&mut client);
        assert_eq!(pinned(&mut other), all);
        assert_eq!(all.len(), 2 * 40);
        assert!(other.call("BLESS CLEAR before55 NO-EVICT").text().starts_with("READONLY"));
        assert_eq!(other.call("REPLICAOF NO ONE"), Value::ok());
        assert_eq!(other.call("BLESS CLEAR before55 NO-EVICT"), int(1));
    }
}

/// It knows nothing of pins, and is told nothing of them.
#[test]
fn redis_follows_without_pins() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Ember { shards: 3 }, QUICK);
    let mut client = primary.client();
    change(&mut client, "before");
    let replica = replica_of(&primary, Kind::Redis, STRICT);
    wait_for_link(&replica);
    change(&mut client, "after");
    settle(&primary, &replica);
    assert_eq!(replica.client().call("DBSIZE"), client.call("DBSIZE"));
    assert_eq!(replica.client().call("GET before15").text(), "w");
}
