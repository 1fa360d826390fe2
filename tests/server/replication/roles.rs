//! What was admitted before a server becomes a replica is done before, and so in the stream, or not at all.

use super::{PATIENCE, PRIMARY, replica_of, settle, wait_for, wait_for_link};
use crate::common::{Client, Kind, Server, Value, encode, int, words};
use std::time::Duration;

const WRITERS: usize = 40;
const WAITERS: usize = 60;

fn pair() -> (Server, Server) {
    let primary = Server::start(Kind::Ember { shards: 3 }, PRIMARY);
    let replica = replica_of(&primary, Kind::Ember { shards: 2 }, PRIMARY);
    wait_for_link(&replica);
    (primary, replica)
}

fn script(server: &Server, turns: usize, write: &str, keys: &[String]) -> Client {
    let mut client = server.client();
    let count = keys.len().to_string();
    let source = format!("local x = 0 for i = 1, {turns} do x = x + i end redis.call('SET', {write}, 1) return 1");
    let head = ["EVAL".to_owned(), source, count];
    client.send_raw(&encode(&[&head[..], keys].concat()));
    client
}

/// Commands over several shards stand in no queue while a script lasts that holds some of their keys. They ran behind the change of
/// roles, on what was a replica by then, and were answered OK.
#[test]
fn what_waits_for_a_script_is_not_done_on_a_replica() {
    let (primary, replica) = pair();
    let follow = format!("REPLICAOF 127.0.0.1 {}", replica.port());
    for round in 0..3 {
        let mut control = primary.client();
        let keys: Vec<String> = (0..WRITERS).map(|number| format!("source:{number}")).collect();
        keys.iter().for_each(|key| assert!(!control.call(&format!("SADD {key} one:{key}")).is_error()));
        let mut writers: Vec<Client> = keys.iter().map(|_| primary.client()).collect();
        // The first is in nobody's way; since it lasts, others do not stand in queues.
        let mut first = script(&primary, 60_000_000, "KEYS[1]", &["apart".to_owned()]);
        std::thread::sleep(Duration::from_millis(150));
        let mut second = script(&primary, 30_000_000, "'by script'", &keys);
        for (number, writer) in writers.iter_mut().enumerate() {
            let (one, other) = (&keys[number], &keys[(number + 1) % WRITERS]);
            writer.send(&format!("SUNIONSTORE target:{round}:{number} {one} {other}"));
        }
        assert_eq!(control.call(&follow), Value::ok());
        let replies: Vec<Value> = writers.iter_mut().map(Client::read).collect();
        let refused = ["READONLY", "BUSY"];
        let is_refused = |reply: &Value| reply.is_error() && refused.iter().any(|word| reply.text().starts_with(word));
        let is_known = |reply: &Value| *reply == int(2) || is_refused(reply);
        assert!(replies.iter().all(is_known), "{replies:?}");
        drop((first.read(), second.read()));
        assert_eq!(replica.client().call("REPLICAOF NO ONE"), Value::ok());
        wait_for_link(&primary);
        settle(&replica, &primary);
        let done =
            (0..WRITERS).filter(|number| replica.client().call(&format!("EXISTS target:{round}:{number}")) == int(1));
        let answered = replies.iter().filter(|reply| **reply == int(2)).count();
        // (What the other one did not have yet when the link ended is lost, as ever without WAIT: both lack it.)
        assert!(done.count() <= answered, "{replies:?}");
        // And back.
        assert_eq!(primary.client().call("REPLICAOF NO ONE"), Value::ok());
        let follow_again = format!("REPLICAOF 127.0.0.1 {}", primary.port());
        assert_eq!(replica.client().call(&follow_again), Value::ok());
        wait_for_link(&replica);
        settle(&primary, &replica);
    }
    assert!(!primary.output().contains("CRITICAL"), "what is refused is no error of the stream");
}

/// Who was about to wait when the role changed waited on what was a replica by then, and took elements there that came in the
/// stream.
#[test]
fn nobody_waits_on_what_has_become_a_replica() {
    let (primary, replica) = pair();
    let mut control = primary.client();
    let mut waiters: Vec<Client> = (0..WAITERS).map(|_| primary.client()).collect();
    waiters.iter_mut().for_each(|waiter| drop(waiter.call("PING")));
    control.send(&format!("REPLICAOF 127.0.0.1 {}", replica.port()));
    for (number, waiter) in waiters.iter_mut().enumerate() {
        let line = match number % 4 {
            0 => format!("BLPOP queue:{number} other:{number} 0"),
            1 => format!("BLMOVE queue:{number} other:{number} LEFT RIGHT 0"),
            2 => "WAIT 5 0".to_owned(),
            _ => "WAITAOF 0 5 0".to_owned(),
        };
        waiter.send_raw(&encode(&words(&line)));
    }
    assert_eq!(control.read(), Value::ok());
    for (number, waiter) in waiters.iter_mut().enumerate() {
        match waiter.try_read_within(PATIENCE) {
            Ok(reply) => assert!(reply.is_error(), "{number}: {reply:?}"),
            // (The error may be lost with the connection.)
            Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "{number} waits"),
        }
    }
    wait_for(&primary, "blocked_clients", "0");
}
