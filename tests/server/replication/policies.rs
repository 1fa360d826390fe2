//! Expiry policies on replicas: those of the primary.

use super::{PATIENCE, QUICK, STRICT, field, replica_of, settle, wait_for, wait_for_link};
use crate::common::{Client, Kind, Server, Value, have_tool, ok, wait_until};

fn policies(client: &mut Client) -> String {
    format!("{:?}", client.call("EXPIRY POLICY LIST"))
}

fn settle_policies(primary: &Server, replica: &Server) {
    let (mut client, mut other) = (primary.client(), replica.client());
    let is_same = wait_until(PATIENCE, || policies(&mut client) == policies(&mut other));
    assert!(is_same, "{} and {}", policies(&mut client), policies(&mut other));
}

/// Once a promoted replica had none of the policies that were set on the primary, so that tokens never died.
#[test]
fn a_replica_has_the_policies_of_its_primary() {
    for (shards, of_replica) in [(1, 3), (3, 2)] {
        let primary = Server::start(Kind::Ember { shards }, &[QUICK, &["--expiry-policy", "named: 1h"]].concat());
        let (mut client, mut second) = (primary.client(), primary.client());
        ok(&mut client, "EXPIRY POLICY SET before: 100s SLIDING");
        client.call("EXPIRY POLICY DEL named:");
        let own = ["--expiry-policy", "own: 5s", "--expiry-policy", "before: 1s"];
        let replica = replica_of(&primary, Kind::Ember { shards: of_replica }, &[QUICK, &own].concat());
        wait_for_link(&replica);
        let of_its_own = replica_of(&replica, Kind::Ember { shards: 1 }, QUICK);
        wait_for_link(&of_its_own);
        settle_policies(&primary, &replica);
        // Nobody waits for replies, and two say it at the same time.
        for n in 0..50 {
            client.send(&format!("EXPIRY POLICY SET p{}: {}s", n % 7, 100 + n));
            second.send(&format!("EXPIRY POLICY SET p{}: {}s JITTER 10%", n % 7, 200 + n));
            second.send(&format!("EXPIRY POLICY DEL p{}:", n % 5));
        }
        (0..50).for_each(|_| assert_eq!(client.read(), Value::ok()));
        (0..100).for_each(|_| assert!(!second.read().is_error()));
        let words =
            ["EXPIRY", "POLICY", "SET", "odd\r\n \0'\"\u{e9}", "NONE", "NOEVICT", "EVENTS", "a stream", "WITHVALUE"];
        assert_eq!(client.command(&words), Value::ok());
        let lines = ["MULTI", "SET p:1 x", "EXPIRY POLICY SET p: 200s MAX 300s", "SET p:2 x", "EXEC"];
        lines.iter().for_each(|line| assert!(!client.call(line).is_error()));
        settle(&primary, &replica);
        settle_policies(&primary, &replica);
        settle_policies(&primary, &of_its_own);
        // What they do stands in the stream, and is done once.
        let mut other = replica.client();
        assert_eq!(other.call("TTL p:1").number(), -1);
        assert!(other.call("TTL p:2").number() > 100);
        for line in ["EXPIRY POLICY SET p: 1s", "EXPIRY POLICY SET p: 1s APPLY", "EXPIRY POLICY DEL p:"] {
            assert!(other.call(line).text().starts_with("READONLY"), "{line}");
        }
        assert!(!other.call("EXPIRY POLICY GET p:").is_error());
        assert_eq!(field(&replica, "master_link_status"), "up");
        // They hold from the promotion on, and its former primary has them as they are by then.
        ok(&mut other, "REPLICAOF NO ONE");
        ok(&mut other, "SET p:after x");
        assert!(wait_until(PATIENCE, || other.call("TTL p:after").number() > 100));
        ok(&mut other, "EXPIRY POLICY SET later: 10s");
        ok(&mut client, &format!("REPLICAOF 127.0.0.1 {}", replica.port()));
        wait_for_link(&primary);
        settle_policies(&replica, &primary);
        settle_policies(&replica, &of_its_own);
    }
}

/// A replica that goes on in the stream has what its configuration said once; a primary may have a new configuration.
#[test]
fn policies_outlast_restarts_of_either_side() {
    let log = ["--appendonly", "yes"];
    let commands = ["--appendonly", "yes", "--aof-use-rdb-preamble", "no"];
    for (shards, of_replica, flags) in [(1, 3, &log[..]), (3, 1, &commands[..]), (2, 2, &[])] {
        let flags = [QUICK, flags].concat();
        let mut primary =
            Server::start(Kind::Ember { shards }, &[&flags[..], &["--expiry-policy", "gone: 1h"]].concat());
        let mut client = primary.client();
        ok(&mut client, "EXPIRY POLICY SET p: 100s");
        let of = format!("127.0.0.1 {}", primary.port());
        let of_replica = of_replica.to_string();
        let own =
            ["--shards", &of_replica, "--replicaof", &of, "--expiry-policy", "p: 1s", "--expiry-policy", "gone: 1s"];
        let own = [&flags[..], &own].concat();
        let mut replica = Server::start(Kind::Ember { shards: 1 }, &own);
        wait_for_link(&replica);
        client.call("EXPIRY POLICY DEL gone:");
        ok(&mut client, "EXPIRY POLICY SET q: 10s");
        settle_policies(&primary, &replica);
        if flags.len() > QUICK.len() {
            replica.rewrite_log();
        }
        let before = field(&primary, "sync_partial_ok");
        replica.client().send("SHUTDOWN SAVE");
        assert!(replica.wait_for_end(PATIENCE).is_some());
        client.call("EXPIRY POLICY DEL q:");
        ok(&mut client, "EXPIRY POLICY SET meanwhile: 10s");
        replica = replica.restart(&own);
        wait_for_link(&replica);
        settle_policies(&primary, &replica);
        assert_ne!(field(&primary, "sync_partial_ok"), before, "{}", replica.output());
        // The primary's turn.
        client.send("SHUTDOWN SAVE");
        assert!(primary.wait_for_end(PATIENCE).is_some());
        let port = primary.port().to_string();
        let shards = shards.to_string();
        let again = ["--shards", &shards, "--port", &port, "--expiry-policy", "new: 7s"];
        primary = primary.restart(&[&flags[..], &again].concat());
        client = primary.client();
        wait_for_link(&replica);
        settle_policies(&primary, &replica);
        assert!(policies(&mut client).contains("new:"));
        assert_eq!(field(&primary, "sync_full"), "0", "{}", primary.output());
    }
}

#[test]
fn who_may_write_on_a_replica_may_set_policies_there() {
    for shards in [1, 3] {
        let primary = Server::start(Kind::Ember { shards }, QUICK);
        let replica = replica_of(&primary, Kind::Ember { shards }, &[QUICK, &["--replica-read-only", "no"]].concat());
        wait_for_link(&replica);
        let (mut client, mut other): (Client, Client) = (primary.client(), replica.client());
        ok(&mut client, "SET p:before x");
        ok(&mut other, "EXPIRY POLICY SET p: 100s");
        assert!(other.call("EXPIRY POLICY SET p: 100s APPLY").text().starts_with("READONLY"));
        ["SET p:key x", "HSET p:hash f v"].iter().for_each(|line| assert!(!client.call(line).is_error()));
        settle(&primary, &replica);
        for key in ["p:before", "p:key", "p:hash"] {
            assert_eq!(other.call(&format!("PTTL {key}")).number(), -1, "{key}");
        }
        ok(&mut other, "REPLICAOF NO ONE");
        ok(&mut other, "SET p:after x");
        assert!(wait_until(PATIENCE, || other.call("TTL p:after").number() > 90));
    }
}

/// Redis knows nothing of policies, and an EmberDB that follows Redis has its own.
#[test]
fn redis_is_told_of_no_policies() {
    if !have_tool("redis-server") {
        return;
    }
    let primary = Server::start(Kind::Ember { shards: 3 }, QUICK);
    let redis = replica_of(&primary, Kind::Redis, STRICT);
    wait_for_link(&redis);
    let beside = replica_of(&primary, Kind::Ember { shards: 2 }, QUICK);
    wait_for_link(&beside);
    let mut client = primary.client();
    for line in ["EXPIRY POLICY SET p: 100s", "SET p:1 x", "MULTI", "SET p:2 x", "EXPIRY POLICY SET q: 10s", "EXEC"] {
        assert!(!client.call(line).is_error());
    }
    client.call("EXPIRY POLICY DEL q:");
    settle(&primary, &redis);
    assert!(redis.client().call("TTL p:1").number() > 90);
    drop(redis);
    // (From here on everything is told again.)
    wait_for(&primary, "connected_slaves", "1");
    settle_policies(&primary, &beside);

    let redis = Server::start(Kind::Redis, STRICT);
    let own = [QUICK, &["--expiry-policy", "own: 100s"]].concat();
    let replica = replica_of(&redis, Kind::Ember { shards: 2 }, &own);
    wait_for_link(&replica);
    let mut other = replica.client();
    assert!(policies(&mut other).contains("own:"));
    ok(&mut other, "REPLICAOF NO ONE");
    ok(&mut other, "SET own:1 x");
    assert!(other.call("TTL own:1").number() > 90);
}

/// A policy is a change like any other: whoever hands over, or pauses writes, is not overtaken by one.
#[test]
fn policies_wait_for_the_end_of_a_pause() {
    for shards in [1, 3] {
        let primary = Server::start(Kind::Ember { shards }, QUICK);
        let replica = replica_of(&primary, Kind::Ember { shards }, QUICK);
        wait_for_link(&replica);
        let (mut client, mut other) = (primary.client(), primary.client());
        ok(&mut client, "CLIENT PAUSE 100000 WRITE");
        other.send("EXPIRY POLICY SET p: 100s");
        assert_eq!(other.read_within(std::time::Duration::from_millis(100)), None);
        ok(&mut client, "CLIENT UNPAUSE");
        assert_eq!(other.read(), Value::ok());
        settle_policies(&primary, &replica);
    }
}
