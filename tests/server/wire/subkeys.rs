//! What listeners hear of the fields and members that events are about: the channels of Redis 8.8, for all three types.

use super::transactions::exec;
use crate::common::{Client, Server, Value, on_embers, wait_until};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

struct Listener(Client);

impl Listener {
    /// Of all these channels, as a pattern says them.
    fn of(server: &Server, patterns: &str) -> Listener {
        let mut client = server.client();
        client.send(&format!("PSUBSCRIBE {patterns}"));
        patterns.split(' ').for_each(|_| drop(client.read()));
        Listener(client)
    }

    /// The next message, its channel without what all of them have.
    fn hear(&mut self) -> String {
        let message = self.0.read();
        let [channel, payload] = [2, 3].map(|index| Value::text(&message.items()[index]));
        format!("{} {payload}", channel.replace("__subkey", "").replace("@0__:", " "))
    }

    #[track_caller]
    fn hears(&mut self, expected: &[&str]) {
        let heard: Vec<String> = expected.iter().map(|_| self.hear()).collect();
        assert_eq!(heard, expected);
    }
}

#[test]
fn each_channel_has_a_letter() {
    on_embers(&["--notify-keyspace-events", "STIVh"], |server| {
        let (mut client, mut listener) = (server.client(), Listener::of(server, "__*"));
        client.call("HSET key one 1 t,w:o 2");
        listener.hears(&[
            "space key hset|3:one,5:t,w:o",
            "event hset 3:key|3:one,5:t,w:o",
            "spaceitem key\none hset",
            "spaceitem key\nt,w:o hset",
            "spaceevent hset|key 3:one,5:t,w:o",
        ]);
        for (letters, expected) in [
            ("Sh", "space key hdel|3:one"),
            ("Th", "event hdel 3:key|3:one"),
            ("Ih", "spaceitem key\none hdel"),
            ("Vh", "spaceevent hdel|key 3:one"),
        ] {
            client.call(&format!("CONFIG SET notify-keyspace-events {letters}"));
            client.call("HDEL key one none");
            listener.hears(&[expected]);
            client.command(&["CONFIG", "SET", "notify-keyspace-events", ""]);
            client.call("HSET key one 1");
        }
        // The class is asked for, too; what is about no element is not told.
        client.call("CONFIG SET notify-keyspace-events STIVsz");
        client.call("HSET key one 1");
        client.call("CONFIG SET notify-keyspace-events SIgh");
        client.call("EXPIRE key 100");
        client.call("DEL key");
        // A key with a line break is on no channel of items.
        client.command(&["HSET", "{t}a\nb", "f", "1"]);
        client.call("HSET {t}last f 1");
        listener.hears(&["space {t}a\nb hset|1:f", "space {t}last hset|1:f", "spaceitem {t}last\nf hset"]);
        assert_eq!(client.call("CONFIG GET notify-keyspace-events").items()[1].text(), "ghSI");
        assert!(client.call("CONFIG SET notify-keyspace-events Sq").is_error());
    });
}

#[test]
fn fields_are_told_as_in_redis() {
    on_embers(&["--notify-keyspace-events", "Sh"], |server| {
        let (mut client, mut listener) = (server.client(), Listener::of(server, "__subkeyspace@0__:*"));
        for (line, expected) in [
            ("HSET h a 1 a 2 b 1", &["space h hset|1:a,1:a,1:b"][..]),
            ("HSETNX h c 1", &["space h hset|1:c"]),
            ("HSETNX h c 1", &[]),
            ("HMSET h d 1", &["space h hset|1:d"]),
            ("HINCRBY h n 3", &["space h hincrby|1:n"]),
            ("HINCRBYFLOAT h n 1.5", &["space h hincrbyfloat|1:n"]),
            ("HEXPIRE h 100 FIELDS 3 a b none", &["space h hexpire|1:a,1:b"]),
            ("HEXPIRE h 100 NX FIELDS 2 a c", &["space h hexpire|1:c"]),
            ("HPERSIST h FIELDS 3 a d none", &["space h hpersist|1:a"]),
            ("HGETEX h EX 100 FIELDS 1 d", &["space h hexpire|1:d"]),
            ("HGETEX h PERSIST FIELDS 2 d a", &["space h hpersist|1:d"]),
            ("HSETEX h EX 100 FIELDS 2 e 1 f 1", &["space h hset|1:e,1:f", "space h hexpire|1:e,1:f"]),
            ("HSETEX h EXAT 1 FIELDS 2 e 1 none 1", &["space h hdel|1:e"]),
            ("HGETDEL h FIELDS 2 f none", &["space h hdel|1:f"]),
            ("HEXPIRE h 0 FIELDS 2 n none", &["space h hdel|1:n"]),
            ("HDEL h none", &[]),
            ("HDEL h a none b c", &["space h hdel|1:a,1:b,1:c"]),
            ("HPEXPIRE h 1 FIELDS 1 d", &["space h hexpire|1:d", "space h hexpired|1:d"]),
        ] {
            assert!(!client.call(line).is_error(), "{line}");
            listener.hears(expected);
        }
        exec(&mut client, &["HSET h a 1", "HSET h b 1"]);
        listener.hears(&["space h hset|1:a", "space h hset|1:b"]);
        client.command(&["EVAL", "return redis.call('HSET', KEYS[1], 's', 1)", "1", "h"]);
        listener.hears(&["space h hset|1:s"]);
    });
}

#[test]
fn members_are_told_alike() {
    on_embers(&["--notify-keyspace-events", "Ssz"], |server| {
        let (mut client, mut listener) = (server.client(), Listener::of(server, "__subkeyspace@0__:*"));
        for (line, expected) in [
            ("SADD s a b 1", &["space s sadd|1:a,1:b,1:1"][..]),
            ("SADD s a c", &["space s sadd|1:c"]),
            ("SADD s a", &[]),
            ("SEXPIRE s 100 MEMBERS 2 a none", &["space s sexpire|1:a"]),
            ("SPERSIST s MEMBERS 2 a b", &["space s spersist|1:a"]),
            ("SADDEX s EX 100 MEMBERS 2 a d", &["space s sadd|1:d", "space s sexpire|1:a,1:d"]),
            ("SREM s d none", &["space s srem|1:d"]),
            ("SEXPIRE s 0 MEMBERS 1 a", &["space s srem|1:a"]),
            ("SPOP s 9", &["space s spop|1:b,1:1,1:c"]),
            ("SADDEX s PX 1 MEMBERS 1 a", &["space s sadd|1:a", "space s sexpire|1:a", "space s sexpired|1:a"]),
            ("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f 7 g", &["space z zadd|1:a,1:b,1:c,1:d,1:e,1:f,1:g"]),
            ("ZADD z 1 a 9 b", &["space z zadd|1:b"]),
            ("ZADD z NX 9 a", &[]),
            ("ZINCRBY z 2 a", &["space z zincr|1:a"]),
            ("ZEXPIRE z 100 MEMBERS 2 a none", &["space z zexpire|1:a"]),
            ("ZPERSIST z MEMBERS 2 a b", &["space z zpersist|1:a"]),
            ("ZREM z a none", &["space z zrem|1:a"]),
            ("ZPOPMIN z", &["space z zpopmin|1:c"]),
            ("ZMPOP 1 z MAX", &["space z zpopmax|1:b"]),
            ("ZREMRANGEBYRANK z 0 0", &["space z zremrangebyrank|1:d"]),
            ("ZREMRANGEBYSCORE z 5 6", &["space z zremrangebyscore|1:e,1:f"]),
            ("ZPEXPIRE z 1 MEMBERS 1 g", &["space z zexpire|1:g", "space z zexpired|1:g"]),
        ] {
            assert!(!client.call(line).is_error(), "{line}");
            if line.starts_with("SPOP") {
                let (heard, mut names) = (listener.hear(), vec!["1:b", "1:1", "1:c"]);
                assert!(heard.starts_with("space s spop|"), "{heard}");
                names.retain(|name| !heard.contains(name));
                assert!(names.is_empty(), "{heard}");
                continue;
            }
            listener.hears(expected);
        }
        assert!(wait_until(PATIENCE, || client.call("DBSIZE").number() == 0));
    });
}

/// Many die in one turn; some are found by who looks for them.
#[test]
fn all_that_die_are_named() {
    on_embers(&["--notify-keyspace-events", "Ihsz"], |server| {
        let (mut client, mut listener) = (server.client(), Listener::of(server, "__subkeyspaceitem@0__:*"));
        let names: Vec<String> = (0..500).map(|n| format!("m{n}")).collect();
        client.call(&format!("SADD s {} lives", names.join(" ")));
        (0..501).for_each(|_| drop(listener.hear()));
        client.call(&format!("SPEXPIRE s 20 MEMBERS 500 {}", names.join(" ")));
        (0..500).for_each(|_| drop(listener.hear()));
        let mut died: Vec<String> = (0..500).map(|_| listener.hear()).collect();
        died.sort();
        let mut expected: Vec<String> = names.iter().map(|name| format!("spaceitem s\n{name} sexpired")).collect();
        expected.sort();
        assert_eq!(died, expected);
    });
    on_embers(&["--notify-keyspace-events", "Shsz", "--active-expire-interval-ms", "0"], |server| {
        let (mut client, mut listener) = (server.client(), Listener::of(server, "__subkeyspace@0__:*"));
        client.call("HSET h a 1 b 2");
        client.call("HPEXPIRE h 1 FIELDS 2 a b");
        assert!(wait_until(PATIENCE, || client.call("HLEN h").number() == 0));
        listener.hears(&["space h hset|1:a,1:b", "space h hexpire|1:a,1:b", "space h hexpired|1:a,1:b"]);
        client.call("ZADD z 1 a 2 b");
        client.call("ZPEXPIRE z 1 MEMBERS 1 a");
        assert!(wait_until(PATIENCE, || client.call("ZCARD z").number() == 1));
        client.call("ZADD z 3 a");
        listener.hears(&["space z zadd|1:a,1:b", "space z zexpire|1:a", "space z zexpired|1:a", "space z zadd|1:a"]);
    });
}

/// A collection goes, or gets another name, while some of its elements are dead and nobody has found them: each of these is told
/// of once, under the name that it died under.
#[test]
fn what_has_died_is_told_of_before_its_key_goes() {
    let flags = ["--notify-keyspace-events", "Shsz", "--active-expire-enabled", "no"];
    on_embers(&flags, |server| {
        let (mut client, mut listener) = (server.client(), Listener::of(server, "__subkeyspace@0__:{t}k"));
        let fields = ("HSET {t}k dead 1 live 1", "HPEXPIRE {t}k 1 FIELDS 1 dead", "hexpired", "HLEN {t}k");
        let members = ("SADD {t}k dead live", "SPEXPIRE {t}k 1 MEMBERS 1 dead", "sexpired", "SCARD {t}k");
        let scored = ("ZADD {t}k 1 dead 2 live", "ZPEXPIRE {t}k 1 MEMBERS 1 dead", "zexpired", "ZCARD {t}k");
        for ((add, expire, died, lives), takes) in [
            (fields, &["HDEL {t}k live", "HGETDEL {t}k FIELDS 1 live", "HPEXPIRE {t}k 0 FIELDS 1 live"][..]),
            (members, &["SREM {t}k live", "SPOP {t}k", "SMOVE {t}k {t}other live", "SUNIONSTORE {t}k {t}none"]),
            (scored, &["ZREM {t}k live", "ZPOPMAX {t}k", "BZPOPMIN {t}k 1", "ZREMRANGEBYRANK {t}k 0 -1"]),
        ] {
            let whole = [
                "DEL {t}k",
                "UNLINK {t}k",
                "SET {t}k v",
                "RENAME {t}k {t}new",
                "COPY {t}k {t}new REPLACE",
                "MOVE {t}k 1",
            ];
            let others = ["RENAME {t}other {t}k", "COPY {t}other {t}k REPLACE", "PEXPIRE {t}k 0", "MSET {t}k v"];
            for take in takes.iter().chain(&whole).chain(&others) {
                client.call("FLUSHALL");
                client.call("SET {t}other v");
                if take.starts_with("SMOVE") {
                    client.call("DEL {t}other");
                }
                client.call(add);
                client.call(expire);
                listener.hear();
                listener.hear();
                // (It is dead once it is counted nowhere; that finds it for nobody.)
                assert!(wait_until(PATIENCE, || client.call(lives).number() == 1));
                assert!(!client.call(take).is_error(), "{take}");
                let heard = listener.hear();
                assert_eq!(heard, format!("space {{t}}k {died}|4:dead"), "{take}");
                listener.0.drain(Duration::from_millis(1));
            }
        }
    });
}

/// The same where the command's other keys are on whichever shards.
#[test]
fn what_has_died_is_told_of_before_its_key_goes_to_another_shard() {
    let flags = ["--notify-keyspace-events", "Shsz", "--active-expire-enabled", "no"];
    on_embers(&flags, |server| {
        let (mut client, mut listener) = (server.client(), Listener::of(server, "__subkeyspace@0__:k"));
        for other in ["a", "b", "c", "d", "e"] {
            let takes = [
                format!("SMOVE k {other} live"),
                format!("SUNIONSTORE k {other} none"),
                format!("SDIFFSTORE k none {other}"),
                format!("ZUNIONSTORE k 1 {other}"),
                format!("ZRANGESTORE k {other} 0 -1"),
                format!("GEOSEARCHSTORE k {other} FROMLONLAT 0 0 BYRADIUS 1 m"),
                format!("SORT {other} STORE k"),
                format!("BITOP OR k none {other}"),
                format!("RENAME k {other}"),
                format!("COPY k {other} REPLACE"),
                format!("MSET {other} v k v"),
                format!("DEL none {other} k"),
            ];
            for take in takes {
                client.call("FLUSHALL");
                client.call("SADD k dead live");
                client.call("SPEXPIRE k 1 MEMBERS 1 dead");
                listener.hear();
                listener.hear();
                assert!(wait_until(PATIENCE, || client.call("SCARD k").number() == 1));
                assert!(!client.call(&take).is_error(), "{take}");
                assert_eq!(listener.hear(), "space k sexpired|4:dead", "{take}");
                listener.0.drain(Duration::from_millis(1));
            }
        }
        // As many as die are told of, and counted.
        client.call("FLUSHALL");
        let names: Vec<String> = (0..40_000).map(|n| n.to_string()).collect();
        client.call(&format!("SADD many live {}", names.join(" ")));
        let before: u64 = server.info("expired_subkeys").and_then(|text| text.parse().ok()).expect("a number");
        client.call(&format!("SPEXPIRE many 1 MEMBERS 40000 {}", names.join(" ")));
        assert!(wait_until(PATIENCE, || client.call("SCARD many").number() == 1));
        client.call("DEL many");
        assert_eq!(server.info("expired_subkeys"), Some((before + 40_000).to_string()));
    });
}

/// A field is no key: what counts keys that have died counts none for its fields.
#[test]
fn dead_elements_count_as_no_keys() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for line in ["HSET h a 1 b 1 c 1", "SADD s a b", "HPEXPIRE h 1 FIELDS 2 a b", "SPEXPIRE s 1 MEMBERS 2 a b"] {
            client.call(line);
        }
        let expired = |name: &str| server.info(name).and_then(|text| text.parse::<u64>().ok()).expect("a number");
        assert!(wait_until(PATIENCE, || expired("expired_subkeys") == 4));
        assert_eq!(expired("expired_keys"), 0);
        assert_eq!(client.call("EXPIRY PURGE"), crate::common::int(0));
    });
}
