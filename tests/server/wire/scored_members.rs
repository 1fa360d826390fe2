//! Members of sorted sets that die: what is told of them, and what everything else that is done to sorted sets makes of them.

use super::members::survives_restarts;
use super::transactions::exec;
use crate::common::{Client, Value, bulk, int, on_embers, wait_until, words};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const NO_CYCLE: [&str; 2] = ["--active-expire-interval-ms", "0"];

fn members(client: &mut Client, key: &str) -> Vec<String> {
    client.call(&format!("ZRANGE {key} 0 -1")).items().iter().map(Value::text).collect()
}

/// Until this member of a sorted set is dead.
#[track_caller]
fn wait_for_death(client: &mut Client, key: &str, member: &str) {
    assert!(wait_until(PATIENCE, || client.call(&format!("ZSCORE {key} {member}")).is_null()));
}

#[test]
fn listeners_hear_of_members() {
    on_embers(&["--notify-keyspace-events", "KEA"], |server| {
        let (mut client, mut listener) = (server.client(), server.client());
        listener.call("PSUBSCRIBE __keyevent@*__:*");
        let mut hear = |count: usize| -> Vec<String> {
            let mut all = Vec::new();
            for _ in 0..count {
                let message = listener.read();
                let event = message.items()[2].text().replace("__keyevent@0__:", "");
                all.push(format!("{event} {}", message.items()[3].text()));
            }
            all
        };
        client.call("ZADD z 1 a 2 b 3 c");
        client.call("ZEXPIRE z 100 MEMBERS 2 a b");
        client.call("ZPERSIST z MEMBERS 1 a");
        client.call("ZPEXPIRE z 10 MEMBERS 1 c");
        assert_eq!(hear(5), ["zadd z", "zexpire z", "zpersist z", "zexpire z", "zexpired z"]);
        client.call("ZEXPIRE z 0 MEMBERS 1 b");
        client.call("ZPEXPIRE z 10 MEMBERS 1 a");
        assert_eq!(hear(4), ["zrem z", "zexpire z", "zexpired z", "del z"]);
        assert!(wait_until(PATIENCE, || server.info("expired_subkeys").as_deref() == Some("2")));
        assert_eq!(client.call("DBSIZE"), int(0));
    });
}

/// Nobody has taken the dead out when the commands come.
#[test]
fn dead_members_are_nowhere() {
    on_embers(&NO_CYCLE, |server| {
        let mut client = server.client();
        for key in 0..11 {
            client.call(&format!("ZADD k{key} 1 a 2 dead 3 b 4 c 5 77 {key} k{key}"));
            client.call(&format!("ZPEXPIRE k{key} 1 MEMBERS 2 dead 77"));
            wait_for_death(&mut client, &format!("k{key}"), "dead");
        }
        assert_eq!(members(&mut client, "k0"), ["k0", "a", "b", "c"]);
        assert_eq!(client.call("ZRANK k0 b"), int(2));
        assert_eq!(client.call("ZREVRANK k0 b"), int(1));
        assert!(client.call("ZRANK k0 dead").is_null());
        assert_eq!(client.call("ZCOUNT k0 1 5"), int(3));
        assert_eq!(client.call("ZRANGE k0 2 5 BYSCORE LIMIT 1 5").items(), [bulk("c")]);
        assert_eq!(client.call("ZREVRANGE k0 0 1").items(), [bulk("c"), bulk("b")]);
        assert_eq!(client.call("ZINTER 3 k0 k1 k2").items().len(), 3);
        assert_eq!(client.call("ZUNION 3 k0 k1 k2").items().len(), 6);
        assert_eq!(client.call("ZDIFF 2 k0 k1").items(), [bulk("k0")]);
        assert_eq!(client.call("ZINTERCARD 3 k0 k1 k2"), int(3));
        assert_eq!(client.call("ZUNIONSTORE all 2 k7 k8"), int(5));
        assert_eq!(client.call("ZRANGESTORE range k9 0 -1"), int(4));
        assert_eq!(client.call("SORT k10 ALPHA STORE l"), int(4));
        assert_eq!(client.call("ZRANDMEMBER k1 100").items().len(), 4);
        assert_eq!(client.call("ZRANDMEMBER k1 -100").items().len(), 100);
        assert_eq!(client.call("ZSCAN k1 0").items()[1].items().len(), 8);
        assert_eq!(client.call("ZREM k1 dead a"), int(1));
        assert_eq!(client.call("ZADD k1 XX 9 77"), int(0));
        assert_eq!(client.call("ZADD k1 NX 9 77"), int(1));
        assert_eq!(client.call("ZINCRBY k1 2.5 dead"), bulk("2.5"));
        assert_eq!(client.call("ZTTL k1 MEMBERS 3 77 dead none").items(), [int(-1), int(-1), int(-2)]);
        assert_eq!(client.call("ZPOPMIN k2 2").items(), [bulk("a"), bulk("1"), bulk("k2"), bulk("2")]);
        assert_eq!(client.call("ZMPOP 1 k2 MAX COUNT 9").items()[1].items().len(), 2);
        assert_eq!(client.call("EXISTS k2"), int(0));
        assert_eq!(client.call("BZPOPMAX k3 0").items()[1], bulk("c"));
        assert_eq!(client.call("ZREMRANGEBYRANK k3 0 0"), int(1));
        assert_eq!(members(&mut client, "k3"), ["b", "k3"]);
        assert_eq!(client.call("COPY k3 k2"), int(1));
        assert_eq!(client.call("ZCARD k2"), int(2));
        let script = "return {redis.call('ZCARD', KEYS[1]), redis.call('ZADD', KEYS[1], 1, 'dead')}";
        assert_eq!(client.command(&["EVAL", script, "1", "k4"]).items(), [int(4), int(1)]);
        assert_eq!(exec(&mut client, &["ZCARD k5", "ZADD k5 1 dead", "ZCARD k5"]).items(), [int(4), int(1), int(5)]);
        // The last that lives goes.
        assert_eq!(client.call("ZREMRANGEBYSCORE k6 -inf +inf"), int(4));
        assert_eq!(client.call("EXISTS k6"), int(0));
        assert_eq!(client.call("TYPE k6"), Value::Simple("none".into()));
        // Where all scores are equal, and where they are points.
        client.call("ZADD lex 0 a 0 b 0 c 0 d");
        client.call("ZPEXPIRE lex 1 MEMBERS 2 b d");
        wait_for_death(&mut client, "lex", "b");
        wait_for_death(&mut client, "lex", "d");
        assert_eq!(client.call("ZLEXCOUNT lex - +"), int(2));
        assert_eq!(client.call("ZRANGE lex [b + BYLEX").items(), [bulk("c")]);
        assert_eq!(client.call("ZREMRANGEBYLEX lex [b [c"), int(1));
        client.call("GEOADD geo 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 2.35 48.85 Paris");
        client.call("ZPEXPIRE geo 1 MEMBERS 1 Catania");
        wait_for_death(&mut client, "geo", "Catania");
        assert!(client.call("GEOPOS geo Catania").items()[0].is_null());
        assert!(client.call("GEODIST geo Palermo Catania").is_null());
        let search = "GEOSEARCH geo FROMLONLAT 15 37 BYRADIUS 300 km ASC";
        assert_eq!(client.call(search).items(), [bulk("Palermo")]);
        assert_eq!(client.call("GEOSEARCHSTORE near geo FROMLONLAT 15 37 BYRADIUS 300 km"), int(1));
        assert!(client.call("GEOSEARCH geo FROMMEMBER Catania BYRADIUS 300 km").is_error());
    });
}

/// Somebody who waits for a member gets none that is dead.
#[test]
fn those_who_wait_get_what_lives() {
    on_embers(&NO_CYCLE, |server| {
        let (mut client, mut waiting) = (server.client(), server.client());
        client.call("ZADD z 1 dead");
        client.call("ZPEXPIRE z 1 MEMBERS 1 dead");
        wait_for_death(&mut client, "z", "dead");
        waiting.send("BZPOPMIN z 0");
        assert!(wait_until(PATIENCE, || server.info("blocked_clients").as_deref() == Some("1")));
        client.call("ZADD z 2 lives");
        assert_eq!(waiting.read().items(), [bulk("z"), bulk("lives"), bulk("2")]);
        assert_eq!(client.call("EXISTS z"), int(0));
    });
}

#[test]
fn what_keeps_members_keeps_their_deadlines() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let at = "4102444800123";
        client.call("ZADD z 1 a 2 1 3 b");
        client.call(&format!("ZPEXPIREAT z {at} MEMBERS 2 a 1"));
        let times = |client: &mut Client, key: &str| client.call(&format!("ZPEXPIRETIME {key} MEMBERS 3 a 1 b"));
        let expected = Value::Array(vec![int(4_102_444_800_123), int(4_102_444_800_123), int(-1)]);
        let mut last = "z".to_owned();
        for number in 0..8 {
            let next = format!("next{number}");
            assert_eq!(client.call(&format!("RENAME {last} {next}")), Value::ok());
            assert_eq!(client.call(&format!("COPY {next} copy{number}")), int(1));
            assert_eq!(times(&mut client, &next), expected);
            assert_eq!(times(&mut client, &format!("copy{number}")), expected);
            let payload = client.call(&format!("DUMP {next}"));
            let payload = payload.bytes().expect("a payload").to_vec();
            let restored = format!("restored{number}");
            assert_eq!(client.command(&[&b"RESTORE"[..], restored.as_bytes(), b"0", &payload]), Value::ok());
            assert_eq!(times(&mut client, &restored), expected);
            last = next;
        }
        client.call(&format!("MOVE {last} 3"));
        client.call("SWAPDB 3 0");
        // Another score, too.
        client.call(&format!("ZADD {last} 7 a"));
        client.call(&format!("ZINCRBY {last} 7 1"));
        client.call(&format!("ZADD {last} XX INCR 7 b"));
        assert_eq!(times(&mut client, &last), expected);
        assert_eq!(client.call(&format!("ZEXPIRETIME {last} MEMBERS 1 a")).items(), [int(4_102_444_801)]);
        assert_eq!(client.call(&format!("ZRANGESTORE {last} {last} 0 -1")), int(3));
        assert_eq!(times(&mut client, &last).items(), [int(-1), int(-1), int(-1)]);
        client.call("FLUSHALL");
        assert_eq!(times(&mut client, &last).items(), [int(-2), int(-2), int(-2)]);
    });
}

/// Small sorted sets and large ones.
#[test]
fn deadlines_of_members_survive_restarts() {
    let mut lines = Vec::new();
    for n in 0..3000 {
        lines.push(words(&format!("ZADD large {n} m{n} {}.5 {n}", n % 100)));
        lines.push(words(&format!("ZADD small:{} {n} a{n} 0.25 {n}", n % 300)));
        if n % 3 == 0 {
            lines.push(words(&format!("ZPEXPIRE large {} MEMBERS 2 m{n} {n}", 10_000_000 + n)));
            lines.push(words(&format!("ZEXPIRE small:{} {} MEMBERS 1 a{n}", n % 300, 100_000_000 + n)));
        }
    }
    lines.push(words("ZADD large 3 dead1 4 dead2 5 dead3"));
    lines.push(words("ZPEXPIRE large 1 MEMBERS 3 dead1 dead2 dead3"));
    let ask = |n: usize| {
        let small = n % 300;
        [
            format!("ZPEXPIRETIME large MEMBERS 2 m{n} {n}"),
            format!("ZPEXPIRETIME small:{small} MEMBERS 2 {n} a{n}"),
            format!("ZRANK large m{n}"),
        ]
    };
    let asked: Vec<String> = (0..3000).step_by(7).flat_map(ask).collect();
    survives_restarts(&lines, &asked, wait_for_death);
}

/// A hundred thousand members die at once while others are served.
#[test]
fn many_members_die_while_others_are_served() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let names = |first: usize| (0..1000).map(move |n| first * 1000 + n);
        let lines: Vec<_> = (0..100)
            .map(|first| {
                let pairs: Vec<String> = names(first).map(|n| format!("{n} {n}")).collect();
                words(&format!("ZADD z {}", pairs.join(" ")))
            })
            .collect();
        assert!(client.pipeline(&lines).iter().all(|reply| *reply == int(1000)));
        client.call("ZADD z 50000.5 lives");
        // All of them get one deadline that is near.
        let at = client.call("TIME").items()[0].text().parse::<u64>().expect("seconds") * 1000 + 4_000;
        let near: Vec<_> = (0..100)
            .map(|first| {
                let list: Vec<String> = names(first).map(|n| n.to_string()).collect();
                words(&format!("ZPEXPIREAT z {at} MEMBERS 1000 {}", list.join(" ")))
            })
            .collect();
        // Where that takes long the last of them are removed instead.
        let replies = client.pipeline(&near);
        let given = replies.iter().flat_map(Value::items).filter(|answer| **answer == int(1)).count();
        let begin = Instant::now();
        loop {
            assert_eq!(client.call("ZSCORE z lives"), bulk("50000.5"));
            assert_eq!(client.call("ZCOUNT z 50000.5 50000.5"), int(1));
            if client.call("ZCARD z") == int(1) {
                break;
            }
            assert!(begin.elapsed() < PATIENCE);
        }
        assert_eq!(members(&mut client, "z"), ["lives"]);
        assert!(wait_until(PATIENCE, || server.info("expired_subkeys") == Some(given.to_string())));
        let bytes = client.call("MEMORY USAGE z").number();
        assert!(bytes < 20_000, "{bytes} bytes are left");
    });
}
