//! Members of sets that die: what is told of them, and what everything else that is done to sets makes of them.

use super::transactions::exec;
use crate::common::{Client, Kind, Server, Value, bulk, int, on_embers, wait_until, words};
use std::collections::BTreeSet;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const NO_CYCLE: [&str; 2] = ["--active-expire-interval-ms", "0"];

fn members(client: &mut Client, key: &str) -> BTreeSet<String> {
    client.call(&format!("SMEMBERS {key}")).items().iter().map(Value::text).collect()
}

fn set(members: &[&str]) -> BTreeSet<String> {
    members.iter().map(|member| (*member).to_owned()).collect()
}

/// Until this member of a set is dead.
#[track_caller]
fn wait_for_death(client: &mut Client, key: &str, member: &str) {
    assert!(wait_until(PATIENCE, || client.call(&format!("SISMEMBER {key} {member}")) == int(0)));
}

#[test]
fn listeners_hear_of_members() {
    on_embers(&["--notify-keyspace-events", "KEA"], |server| {
        let (mut client, mut listener) = (server.client(), server.client());
        listener.call("PSUBSCRIBE __keyevent@*__:*");
        client.call("SADDEX s EX 100 MEMBERS 2 a b");
        client.call("SADD s c");
        client.call("SPERSIST s MEMBERS 1 a");
        client.call("SPEXPIRE s 10 MEMBERS 1 c");
        let mut told = Vec::new();
        let mut hear = |count: usize| {
            for _ in 0..count {
                let message = listener.read();
                told.push(format!(
                    "{} {}",
                    message.items()[2].text().replace("__keyevent@0__:", ""),
                    message.items()[3].text()
                ));
            }
            std::mem::take(&mut told)
        };
        assert_eq!(hear(6), ["sadd s", "sexpire s", "sadd s", "spersist s", "sexpire s", "sexpired s"]);
        client.call("SEXPIRE s 0 MEMBERS 1 b");
        client.call("SPEXPIRE s 10 MEMBERS 1 a");
        assert_eq!(hear(4), ["srem s", "sexpire s", "sexpired s", "del s"]);
        assert!(wait_until(PATIENCE, || server.info("expired_subkeys").as_deref() == Some("2")));
        assert_eq!(client.call("DBSIZE"), int(0));
    });
}

/// Nobody has taken the dead out when the commands come.
#[test]
fn dead_members_are_nowhere() {
    on_embers(&NO_CYCLE, |server| {
        let mut client = server.client();
        for key in 0..6 {
            client.call(&format!("SADD k{key} a b c {key}"));
            client.call(&format!("SADDEX k{key} PX 1 MEMBERS 2 dead 77"));
            wait_for_death(&mut client, &format!("k{key}"), "dead");
        }
        assert_eq!(members(&mut client, "k0"), set(&["a", "b", "c", "0"]));
        assert_eq!(client.call("SINTER k0 k1 k2").items().len(), 3);
        assert_eq!(client.call("SUNION k0 k1 k2").items().len(), 6);
        assert_eq!(client.call("SDIFF k0 k1").items(), [bulk("0")]);
        assert_eq!(client.call("SINTERCARD 3 k0 k1 k2"), int(3));
        assert_eq!(client.call("SUNIONCARD 3 k0 k1 k2"), int(6));
        assert_eq!(client.call("SUNIONCARD 3 k0 k1 k2 APPROX"), int(6));
        assert_eq!(client.call("SUNIONSTORE all k0 k1 k2 k3 k4 k5"), int(9));
        assert_eq!(client.call("ZUNIONSTORE z 2 k0 k1"), int(5));
        assert_eq!(client.call("SORT k0 ALPHA STORE l"), int(4));
        assert_eq!(client.call("SRANDMEMBER k1 100").items().len(), 4);
        assert_eq!(client.call("SSCAN k1 0").items()[1].items().len(), 4);
        assert_eq!(client.call("SMOVE k1 k2 dead"), int(0));
        assert_eq!(client.call("SREM k1 dead a"), int(1));
        assert_eq!(client.call("SADD k1 77"), int(1));
        assert_eq!(client.call("STTL k1 MEMBERS 2 77 dead").items(), [int(-1), int(-2)]);
        assert_eq!(client.call("SPOP k2 100").items().len(), 4);
        assert_eq!(client.call("EXISTS k2"), int(0));
        assert_eq!(client.call("COPY k3 k2"), int(1));
        assert_eq!(client.call("SCARD k2"), int(4));
        let script = "return {redis.call('SCARD', KEYS[1]), redis.call('SADD', KEYS[1], 'dead')}";
        assert_eq!(client.command(&["EVAL", script, "1", "k4"]).items(), [int(4), int(1)]);
        assert_eq!(exec(&mut client, &["SCARD k5", "SADD k5 dead", "SCARD k5"]).items(), [int(4), int(1), int(5)]);
        // The last that lives goes.
        assert_eq!(client.call("SREM k3 a b c 3"), int(4));
        assert_eq!(client.call("EXISTS k3"), int(0));
        assert_eq!(client.call("TYPE k3"), Value::Simple("none".into()));
    });
}

#[test]
fn what_keeps_members_keeps_their_deadlines() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let at = "4102444800123";
        client.call(&format!("SADDEX s PXAT {at} MEMBERS 2 a 1"));
        client.call("SADD s b");
        let times = |client: &mut Client, key: &str| client.call(&format!("SPEXPIRETIME {key} MEMBERS 3 a 1 b"));
        let expected = Value::Array(vec![int(4_102_444_800_123), int(4_102_444_800_123), int(-1)]);
        let mut last = "s".to_owned();
        for number in 0..8 {
            let next = format!("next{number}");
            assert_eq!(client.call(&format!("RENAME {last} {next}")), Value::ok());
            assert_eq!(client.call(&format!("COPY {next} copy{number}")), int(1));
            assert_eq!(times(&mut client, &next), expected);
            assert_eq!(times(&mut client, &format!("copy{number}")), expected);
            last = next;
        }
        client.call(&format!("MOVE {last} 3"));
        client.call("SWAPDB 3 0");
        assert_eq!(times(&mut client, &last), expected);
        // A member takes its deadline along; one that is there keeps its own.
        for number in 0..8 {
            let to = format!("to{number}");
            client.call(&format!("SADD {to} there 1"));
            assert_eq!(client.call(&format!("SMOVE {last} {to} 1")), int(1));
            assert_eq!(client.call(&format!("SPEXPIRETIME {to} MEMBERS 2 there 1")).items(), [int(-1), int(-1)]);
            client.call(&format!("DEL {to}"));
            assert_eq!(client.call(&format!("SMOVE {last} {to} a")), int(1));
            assert_eq!(client.call(&format!("SEXPIRETIME {to} MEMBERS 1 a")).items(), [int(4_102_444_801)]);
            client.call(&format!("SADDEX {last} PXAT {at} MEMBERS 2 a 1"));
        }
        assert_eq!(client.call(&format!("SUNIONSTORE {last} {last} to1")), int(3));
        assert_eq!(times(&mut client, &last).items(), [int(-1), int(-1), int(-1)]);
        client.call("FLUSHALL");
        assert_eq!(times(&mut client, &last).items(), [int(-2), int(-2), int(-2)]);
    });
}

/// What these lines have made, of which `large` has to lose `dead3` first, is the same for who asks this, through a log of each kind and a
/// snapshot.
pub fn survives_restarts(lines: &[Vec<Vec<u8>>], asked: &[String], wait_for_death: fn(&mut Client, &str, &str)) {
    for (shards, preamble) in [(1, "yes"), (3, "no"), (3, "yes"), (1, "no")] {
        let flags = ["--appendonly", "yes", "--aof-use-rdb-preamble", preamble, "--enable-debug-command", "yes"];
        let server = Server::start(Kind::Ember { shards }, &flags);
        let mut client = server.client();
        assert!(client.pipeline(lines).iter().all(|reply| !reply.is_error()));
        wait_for_death(&mut client, "large", "dead3");
        let shown = |server: &Server| {
            let mut client = server.client();
            let mut replies: Vec<Value> = asked.iter().map(|line| client.call(line)).collect();
            replies.push(client.call("DEBUG DIGEST"));
            replies
        };
        let expected = shown(&server);
        // From the increments alone; then from a base that is a snapshot or commands; then on other shards.
        let server = server.restart(&flags);
        wait_until(PATIENCE, || server.info("loading").as_deref() == Some("0"));
        assert!(shown(&server) == expected, "{shards} shards, {preamble}: the log");
        server.rewrite_log();
        let server = server.restart(&[&flags[..], &["--shards", "2"]].concat());
        wait_until(PATIENCE, || server.info("loading").as_deref() == Some("0"));
        assert!(shown(&server) == expected, "{shards} shards, {preamble}: a base");
        assert_eq!(server.client().call("DEBUG RELOAD"), Value::ok());
        assert!(shown(&server) == expected, "{shards} shards, {preamble}: a snapshot");
    }
}

/// Packed sets, sets of integers and large ones.
#[test]
fn deadlines_of_members_survive_restarts() {
    let mut lines = Vec::new();
    for n in 0..3000 {
        lines.push(words(&format!("SADD large m{n} {n}")));
        lines.push(words(&format!("SADD small:{} a{n} {n}", n % 300)));
        if n % 3 == 0 {
            lines.push(words(&format!("SPEXPIRE large {} MEMBERS 2 m{n} {n}", 10_000_000 + n)));
            lines.push(words(&format!("SADDEX small:{} EX {} MEMBERS 1 t{n}", n % 300, 100_000 + n)));
        }
    }
    lines.push(words("SADDEX large PX 1 MEMBERS 3 dead1 dead2 dead3"));
    let ask = |n: usize| {
        let small = n % 300;
        [format!("SPEXPIRETIME large MEMBERS 2 m{n} {n}"), format!("SPEXPIRETIME small:{small} MEMBERS 2 t{n} a{n}")]
    };
    let asked: Vec<String> = (0..3000).step_by(7).flat_map(ask).collect();
    survives_restarts(&lines, &asked, wait_for_death);
}

/// A hundred thousand members die at once while others are served.
#[test]
fn many_members_die_while_others_are_served() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let lines: Vec<_> = (0..100)
            .map(|first| {
                let list: Vec<String> = (0..1000).map(|n| (first * 1000 + n).to_string()).collect();
                words(&format!("SADDEX s PX 3600000 MEMBERS 1000 {}", list.join(" ")))
            })
            .collect();
        assert!(client.pipeline(&lines).iter().all(|reply| *reply == int(1)));
        client.call("SADD s lives");
        // All of them get one deadline that is near.
        let lines: Vec<_> = (0..100)
            .map(|first| {
                let list: Vec<String> = (0..1000).map(|n| (first * 1000 + n).to_string()).collect();
                words(&format!("SPEXPIREAT s 1 MEMBERS 1000 {}", list.join(" ")))
            })
            .collect();
        let at = client.call("TIME").items()[0].text().parse::<u64>().expect("seconds") * 1000 + 3_000;
        let near: Vec<_> = lines
            .into_iter()
            .map(|mut line| {
                line[2] = at.to_string().into_bytes();
                line
            })
            .collect();
        assert!(client.pipeline(&near).iter().all(|reply| !reply.is_error()));
        assert!(wait_until(PATIENCE, || {
            let (count, seen) = (client.call("SCARD s"), client.call("SISMEMBER s lives"));
            assert_eq!(seen, int(1));
            count == int(1)
        }));
        assert_eq!(members(&mut client, "s"), set(&["lives"]));
        assert!(wait_until(PATIENCE, || server.info("expired_subkeys").as_deref() == Some("100000")));
        let bytes = client.call("MEMORY USAGE s").number();
        assert!(bytes < 20_000, "{bytes} bytes are left");
    });
}
