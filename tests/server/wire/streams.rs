//! Streams: readers that wait, groups of readers, and streams on several shards.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{Client, Server, Value, bulk, error, int, on_embers, on_every_server, wait_until};

const SOON: Duration = Duration::from_secs(5);
const QUIET: Duration = Duration::from_millis(100);

/// A client that waits already.
fn waiting(server: &Server, line: &str) -> Client {
    let before = blocked(server);
    let mut client = server.client();
    client.send(line);
    assert!(wait_until(SOON, || blocked(server) == before + 1), "{line} does not wait");
    client
}

fn blocked(server: &Server) -> i64 {
    server.info("blocked_clients").and_then(|count| count.parse().ok()).expect("a number of clients")
}

/// An entry with one field.
fn entry(id: &str, field: &str, value: &str) -> Value {
    Value::Array(vec![bulk(id), Value::bulks(&[field, value])])
}

/// What XREAD replies, in RESP2.
fn streams(found: &[(&str, &[Value])]) -> Value {
    let stream = |(key, entries): &(&str, &[Value])| Value::Array(vec![bulk(key), Value::Array(entries.to_vec())]);
    Value::Array(found.iter().map(stream).collect())
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

#[test]
fn readers_wait_for_what_comes_behind_the_id_of_that_moment() {
    on_every_server(&[], |server| {
        let mut writer = server.client();
        writer.call("XADD a 1-1 f old");
        let mut new = waiting(server, "XREAD BLOCK 0 STREAMS a b $ $");
        let mut later = waiting(server, "XREAD BLOCK 0 STREAMS b a 0 5");
        assert_eq!(writer.call("XADD a 2-1 f new"), bulk("2-1"));
        assert_eq!(new.read(), streams(&[("a", &[entry("2-1", "f", "new")])]));
        assert_eq!(later.read_within(QUIET), None);
        writer.call("XADD b 1-1 f other");
        assert_eq!(later.read(), streams(&[("b", &[entry("1-1", "f", "other")])]));
        assert_eq!(new.call("XREAD BLOCK 30 STREAMS a b $ $"), Value::NullArray);
        assert_eq!(blocked(server), 0);
    });
}

#[test]
fn who_waits_gets_all_that_a_transaction_adds() {
    on_every_server(&[], |server| {
        let mut writer = server.client();
        let mut all = waiting(server, "XREAD BLOCK 0 STREAMS s $");
        let mut one = waiting(server, "XREAD COUNT 1 BLOCK 0 STREAMS s $");
        for line in ["MULTI", "XADD s 1-1 f 1", "XADD s 2-1 f 2", "EXEC"] {
            writer.call(line);
        }
        assert_eq!(all.read(), streams(&[("s", &[entry("1-1", "f", "1"), entry("2-1", "f", "2")])]));
        assert_eq!(one.read(), streams(&[("s", &[entry("1-1", "f", "1")])]));
    });
}

#[test]
fn consumers_that_wait_share_what_comes() {
    on_every_server(&[], |server| {
        let mut writer = server.client();
        writer.call("XGROUP CREATE s g $ MKSTREAM");
        writer.call("XGROUP CREATE other g $ MKSTREAM");
        let mut first = waiting(server, "XREADGROUP GROUP g anna BLOCK 0 STREAMS s >");
        let mut second = waiting(server, "XREADGROUP GROUP g bert BLOCK 0 STREAMS other s > >");
        let mut third = waiting(server, "XREADGROUP GROUP g carl BLOCK 0 NOACK STREAMS s >");
        for (id, client) in [("1-1", &mut first), ("2-1", &mut second), ("3-1", &mut third)] {
            assert_eq!(writer.call(&format!("XADD s {id} f v")), bulk(id));
            assert_eq!(client.read(), streams(&[("s", &[entry(id, "f", "v")])]));
        }
        let pending = |name: &str| Value::Array(vec![bulk(name), bulk("1")]);
        assert_eq!(
            writer.call("XPENDING s g"),
            Value::Array(vec![int(2), bulk("1-1"), bulk("2-1"), Value::Array(vec![pending("anna"), pending("bert")])])
        );
    });
}

#[test]
fn nobody_waits_in_a_group_that_is_gone() {
    let key_gone = error("UNBLOCKED the stream key no longer exists");
    let group_gone = error("NOGROUP the consumer group this client was blocked on no longer exists");
    on_every_server(&[], |server| {
        let mut writer = server.client();
        for (end, expected) in [
            ("DEL s", &key_gone),
            ("SET s x", &key_gone),
            ("RENAME s t", &key_gone),
            ("FLUSHALL", &key_gone),
            ("XGROUP DESTROY s g", &group_gone),
            ("RENAME without s", &group_gone),
        ] {
            writer.call("FLUSHALL");
            writer.call("XGROUP CREATE s g $ MKSTREAM");
            writer.call("XADD without 1-1 f v");
            let mut consumer = waiting(server, "XREADGROUP GROUP g anna BLOCK 0 STREAMS s >");
            let mut reader = waiting(server, "XREAD BLOCK 0 STREAMS s 7");
            assert!(!writer.call(end).is_error(), "{end}");
            assert_eq!(consumer.read(), *expected, "{end}");
            assert_eq!(reader.read_within(QUIET), None, "{end}");
            writer.call("DEL s");
            writer.call("XADD s 8-1 f v");
            assert_eq!(reader.read(), streams(&[("s", &[entry("8-1", "f", "v")])]), "{end}");
        }
    });
}

#[test]
fn streams_of_several_shards_are_read_in_one_step_or_not_at_all() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let keys: Vec<String> = (0..16).map(|n| format!("stream:{n}")).collect();
        for key in &keys {
            client.call(&format!("XADD {key} 1-1 f {key}"));
            client.call(&format!("XGROUP CREATE {key} g 0"));
        }
        let line = |command: &str, id: &str| format!("{command} STREAMS {} {}", keys.join(" "), [id; 16].join(" "));
        let found: Vec<Value> = keys.iter().map(|key| entry("1-1", "f", key)).collect();
        let all: Vec<(&str, &[Value])> =
            keys.iter().zip(&found).map(|(key, entry)| (key.as_str(), std::slice::from_ref(entry))).collect();
        assert_eq!(client.call(&line("XREAD", "0")), streams(&all));
        assert_eq!(client.call(&line("XREAD", "1-1")), Value::NullArray);

        client.call("XGROUP DESTROY stream:15 g");
        let refused = "NOGROUP No such key 'stream:15' or consumer group 'g' in XREADGROUP with GROUP option";
        assert_eq!(client.call(&line("XREADGROUP GROUP g anna", ">")), error(refused));
        for key in &keys[..15] {
            assert_eq!(client.call(&format!("XPENDING {key} g - + 10")), Value::Array(vec![]), "{key}");
        }
        client.call("XGROUP CREATE stream:15 g 0");
        assert_eq!(client.call(&line("XREADGROUP GROUP g anna COUNT 5", ">")), streams(&all));
        assert_eq!(client.call(&line("XREADGROUP GROUP g anna", ">")), Value::NullArray);
        assert_eq!(client.call(&line("XREADGROUP GROUP g anna", "0")), streams(&all));
    });
}

#[test]
fn a_delivery_can_be_said_to_have_been_at_any_time() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        client.call("XADD s 1-1 f v");
        client.call("XGROUP CREATE s g 0");
        client.call("XREADGROUP GROUP g anna STREAMS s >");
        let mut idle_after = |options: &str| {
            client.call(&format!("XCLAIM s g bert 0 1-1 {options}"));
            client.call("XPENDING s g - + 1").items()[0].items()[2].number()
        };
        assert!((60_000..61_000).contains(&idle_after("IDLE 60000")));
        let hour_ago = now_ms() - 3_600_000;
        assert!((3_600_000..3_601_000).contains(&idle_after(&format!("TIME {hour_ago}"))));
        assert!(idle_after(&format!("TIME {}", now_ms() + 60_000)) < 1000, "what is to come is now");
        let since_the_epoch = idle_after("TIME 0");
        assert!((now_ms() - 5000..=now_ms()).contains(&since_the_epoch), "long before the machine was started");
        let full = client.call("XINFO STREAM s FULL");
        let group = full.field("groups").expect("groups").items()[0].clone();
        assert_eq!(group.field("pending").expect("pending").items()[0].items()[2], int(0));
        let seen_ms =
            group.field("consumers").expect("consumers").items()[1].field("seen-time").expect("seen").number();
        assert!((now_ms() - 5000..=now_ms()).contains(&seen_ms));
    });
}

/// The reply of Redis 7.0 lacks these fields.
#[test]
fn consumers_are_idle_since_they_asked_and_inactive_since_they_got_something() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("XGROUP CREATE s g $ MKSTREAM");
        client.call("XGROUP CREATECONSUMER s g anna");
        let of_consumer = |client: &mut Client, field: &str| {
            client.call("XINFO CONSUMERS s g").items()[0].field(field).expect("a field").number()
        };
        assert_eq!(of_consumer(&mut client, "inactive"), -1);
        client.call("XADD s 1-1 f v");
        client.call("XREADGROUP GROUP g anna STREAMS s >");
        std::thread::sleep(Duration::from_millis(50));
        client.call("XREADGROUP GROUP g anna STREAMS s >");
        assert!(of_consumer(&mut client, "inactive") >= 50);
        assert!(of_consumer(&mut client, "idle") < of_consumer(&mut client, "inactive"));
        let full = client.call("XINFO STREAM s FULL");
        let consumer =
            full.field("groups").expect("groups").items()[0].field("consumers").expect("them").items()[0].clone();
        let time = |name: &str| consumer.field(name).expect("a time").number();
        assert!(time("active-time") < time("seen-time"));
    });
}

/// As in Redis 7.4.
#[test]
fn a_plus_stands_for_the_last_entry() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let last = "XREAD STREAMS a b c + + +";
        assert_eq!(client.call(last), Value::NullArray);
        for line in
            ["XADD a 1-1 f 1", "XADD a 2-1 f 2", "XADD b 5-5 f 5", "XADD b 6-6 f 6", "XDEL b 6-6", "XADD c 1-1 f x"]
        {
            client.call(line);
        }
        client.call("XDEL c 1-1");
        let found: [(&str, &[Value]); 2] = [("a", &[entry("2-1", "f", "2")]), ("b", &[entry("5-5", "f", "5")])];
        assert_eq!(client.call(last), streams(&found));
        let mut waits = waiting(server, "XREAD BLOCK 0 STREAMS c d + +");
        client.call("XADD c 7-7 f y");
        assert_eq!(waits.read(), streams(&[("c", &[entry("7-7", "f", "y")])]));
    });
}

#[test]
fn a_stream_comes_back_from_its_dump_with_its_groups() {
    on_every_server(&["--enable-debug-command", "yes"], |server| {
        let mut client = server.client();
        for n in 1..=300 {
            client.call(&format!("XADD s {n}-{} f{} {n} same value", n % 3, n % 7));
        }
        client.call("XDEL s 1-1 2-2 150-0");
        client.call("XGROUP CREATE s g 0");
        client.call("XGROUP CREATE s late 100 ENTRIESREAD 100");
        client.call("XREADGROUP GROUP g anna COUNT 3 STREAMS s >");
        client.call("XREADGROUP GROUP g bert COUNT 2 STREAMS s >");
        client.call("XCLAIM s g bert 0 3-0 TIME 1000 RETRYCOUNT 7");
        let payload = client.call("DUMP s");
        client.command(&[&b"RESTORE"[..], b"copy", b"0", payload.bytes().expect("a payload")]);
        for question in ["XRANGE s - +", "XPENDING s g", "XPENDING s g - + 10 anna", "XINFO GROUPS s", "XINFO STREAM s"]
        {
            let of_copy = question.replacen(" s", " copy", 1);
            let (original, copy) = (client.call(question), client.call(&of_copy));
            if question.contains("10 anna") {
                assert_eq!(original.items().len(), copy.items().len());
            } else {
                assert_eq!(original, copy, "{question}");
            }
        }
        let times = |client: &mut Client, key: &str| {
            let full = client.call(&format!("XINFO STREAM {key} FULL"));
            full.field("groups").expect("groups").items()[0].field("pending")
        };
        assert_eq!(times(&mut client, "s"), times(&mut client, "copy"));
        let digests = client.call("DEBUG DIGEST-VALUE s copy nothing");
        assert_eq!(digests.items()[0], digests.items()[1]);
        assert_ne!(digests.items()[0], digests.items()[2]);
    });
}

/// XDEL keeps an entry's place for a while; XSETID lets smaller ids, or the same, come after it.
#[test]
fn ids_that_are_given_out_again_are_found() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        for line in [
            "XADD s 5-0 a 1",
            "XADD s 10-0 a 1",
            "XGROUP CREATE s g 0",
            "XREADGROUP GROUP g anna STREAMS s >",
            "XDEL s 10-0",
            "XSETID s 10-0 ENTRIESADDED 2 MAXDELETEDID 1-0",
            "XSETID s 6-0",
            "XADD s 7-0 a 2",
            "XADD s 10-0 a 3",
        ] {
            assert!(!client.call(line).is_error(), "{line}");
        }
        let (seven, ten) = (entry("7-0", "a", "2"), entry("10-0", "a", "3"));
        assert_eq!(client.call("XRANGE s 7 7"), Value::Array(vec![seven.clone()]));
        assert_eq!(client.call("XREVRANGE s 10 6"), Value::Array(vec![ten.clone(), seven.clone()]));
        assert_eq!(client.call("XREAD STREAMS s 6"), streams(&[("s", &[seven.clone(), ten.clone()])]));
        assert_eq!(client.call("XCLAIM s g bert 0 7-0 FORCE"), Value::Array(vec![seven.clone()]));
        assert_eq!(client.call("XCLAIM s g bert 0 10-0"), Value::Array(vec![ten.clone()]));
        let claimed = client.call("XAUTOCLAIM s g anna 0 6");
        assert_eq!(claimed.items()[1..], [Value::Array(vec![seven, ten]), Value::Array(Vec::new())]);
        assert_eq!(client.call("XDEL s 7-0 10-0"), int(2));
        assert_eq!(client.call("XLEN s"), int(1));
    });
}
