//! Commands and options that are newer than the redis-server beside which the differential test runs.

use crate::common::{Value, bulk, error, int, on_embers};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn set_compares_before_it_stores() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("SET k new IFEQ old"), Value::NullBulk, "nothing is there");
        assert_eq!(client.call("SET k 1 IFNE other"), Value::ok(), "nothing is not equal");
        assert_eq!(client.call("SET k 2 IFNE 1"), Value::NullBulk);
        assert_eq!(client.call("SET k 2 IFEQ 1 EX 100"), Value::ok());
        assert_eq!(client.call("TTL k"), int(100));
        assert_eq!(client.call("SET k 3 ifeq 2 KEEPTTL GET"), bulk("2"));
        assert_eq!(client.call("TTL k"), int(100));
        assert_eq!(client.call("SET k 4 IFEQ 2 GET"), bulk("3"), "what is there comes back though nothing is stored");
        assert_eq!(client.call("GET k"), bulk("3"));
        assert_eq!(client.call("SET k text IFEQ 3"), Value::ok());
        assert_eq!(client.call("TTL k"), int(-1));
        assert_eq!(client.call("SET k x IFEQ Text"), Value::NullBulk, "bytes are compared");
        for wrong in [
            "SET k v IFEQ",
            "SET k v IFEQ a IFNE b",
            "SET k v IFDEQ",
            "SET k v IFDEQ 0 IFDNE 0",
            "SET k v NX IFEQ a",
            "SET k v IFEQ a XX",
            "SET k v NX XX",
        ] {
            assert_eq!(client.call(wrong), error("ERR syntax error"), "{wrong}");
        }
        assert_eq!(client.call("GET k"), bulk("text"));
    });
}

#[test]
fn delex_compares_before_it_deletes() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("DELEX k"), int(0));
        assert_eq!(client.call("SET k token"), Value::ok());
        assert_eq!(client.call("DELEX k IFEQ other"), int(0));
        assert_eq!(client.call("DELEX k IFNE token"), int(0));
        assert_eq!(client.call("DELEX k IFEQ token"), int(1));
        assert_eq!(client.call("DELEX k IFNE token"), int(0), "nothing is there to delete");
        assert_eq!(client.call("SET k 7"), Value::ok());
        assert_eq!(client.call("DELEX k IFNE 8"), int(1));
        assert_eq!(client.call("SET k 7"), Value::ok());
        assert_eq!(client.call("DELEX k"), int(1));
        assert_eq!(client.call("SET k 7"), Value::ok());
        for wrong in ["DELEX k IFEQ", "DELEX k IFEQ 1 2", "DELEX none IFEQ"] {
            assert_eq!(client.call(wrong), error("ERR wrong number of arguments for 'delex' command"), "{wrong}");
        }
        assert_eq!(client.call("DELEX k IF 1"), error("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"));
        assert_eq!(client.call("DELEX none IF 1"), int(0));
        client.call("RPUSH l a");
        let no_string = error("ERR Key should be of string type if conditions are specified");
        assert_eq!(client.call("DELEX l IFEQ a"), no_string);
        assert_eq!(client.call("DELEX l"), int(1));
    });
}

#[test]
fn delifeq_deletes_what_is_equal() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("DELIFEQ lock token"), int(0));
        client.call("SET lock token");
        assert_eq!(client.call("DELIFEQ lock other"), int(0));
        assert_eq!(client.call("DELIFEQ lock token"), int(1));
        assert_eq!(client.call("EXISTS lock"), int(0));
        client.call("SET lock 17");
        assert_eq!(client.call("DELIFEQ lock 017"), int(0), "bytes are compared");
        assert_eq!(client.call("DELIFEQ lock 17"), int(1));
        client.call("RPUSH lock token");
        assert_eq!(client.call("DELIFEQ lock token"), error(WRONG_TYPE));
    });
}

#[test]
fn digests_stand_for_values() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("DIGEST k"), Value::NullBulk);
        assert_eq!(server.client3().call("DIGEST k"), Value::Null);
        client.call("SET k hello");
        assert_eq!(client.call("DIGEST k"), bulk("9555e8555c62dcfd"));
        assert_eq!(client.call("SET k 1 IFDEQ 0000000000000000"), Value::NullBulk);
        assert_eq!(client.call("SET k 1 IFDNE 9555E8555C62DCFD"), Value::NullBulk, "in either case");
        assert_eq!(client.call("SET k 123 IFDEQ 9555e8555c62dcfd GET"), bulk("hello"));
        assert_eq!(client.call("DIGEST k"), bulk("404a763b3f4c8c9a"));
        assert_eq!(client.call("SET none 1 IFDEQ 404a763b3f4c8c9a"), Value::NullBulk, "nothing has no digest");
        assert_eq!(client.call("SET none 1 IFDNE 404a763b3f4c8c9a EX 100"), Value::ok());
        assert_eq!(client.call("TTL none"), int(100));
        let not_a_digest = error("ERR must be exactly 16 hexadecimal characters");
        assert_eq!(client.call("SET k 1 IFDEQ 404a763b3f4c8c9"), not_a_digest);
        assert_eq!(client.call("DELEX k IFDNE 404a763b3f4c8c9a1"), not_a_digest);
        assert_eq!(client.call("DELEX k IFDNE 404a763b3f4c8c9a"), int(0));
        assert_eq!(client.call("DELEX k IFDEQ zzzzzzzzzzzzzzzz"), int(0));
        assert_eq!(client.call("DELEX k IFDEQ 404a763b3f4c8c9a"), int(1));
        client.call("RPUSH l a");
        assert_eq!(client.call("DIGEST l"), error(WRONG_TYPE));
        assert_eq!(client.call("SET l 1 IFDNE 404a763b3f4c8c9a"), error(WRONG_TYPE));
    });
}

/// Two numbers: what a counter is, and what was added.
fn sum(value: i64, applied: i64) -> Value {
    Value::Array(vec![int(value), int(applied)])
}

/// What Redis's own test of the command expects.
#[test]
fn increx_counts_within_bounds() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("INCREX k"), sum(1, 1));
        assert_eq!(client.call("INCREX k BYINT 99"), sum(100, 99));
        assert_eq!(client.call("INCREX k BYINT -5 LBOUND 95"), sum(95, -5));
        assert_eq!(client.call("INCREX k BYINT -5 LBOUND 95"), sum(95, 0));
        assert_eq!(client.call("INCREX k LBOUND 0 BYINT 10 UBOUND 97 SATURATE"), sum(97, 2));
        assert_eq!(client.call("GET k"), bulk("97"));
        assert_eq!(client.call("INCREX none UBOUND 0"), sum(0, 0));
        assert_eq!(client.call("EXISTS none"), int(0), "what is refused stores nothing");
        assert_eq!(client.call("INCREX k BYFLOAT 0.25"), Value::bulks(&["97.25", "0.25"]));
        assert_eq!(client.call("INCREX k BYFLOAT 10 UBOUND 100"), Value::bulks(&["97.25", "0"]));
        let doubles = [Value::Double("100".into()), Value::Double("2.75".into())];
        assert_eq!(server.client3().call("INCREX k BYFLOAT 10 UBOUND 100 SATURATE"), Value::Array(doubles.into()));
        assert_eq!(client.call("INCREX k"), sum(101, 1), "a decimal number that is an integer");
        client.call("SET k 9223372036854775800");
        assert_eq!(client.call("INCREX k BYINT 9223372036854775800"), sum(9223372036854775800, 0));
        assert_eq!(client.call("INCREX k BYINT 9223372036854775800 SATURATE"), sum(i64::MAX, 7));
        let overflow = error("ERR the applied increment would overflow");
        assert_eq!(client.call("INCREX k SATURATE UBOUND -9223372036854775808"), overflow);
    });
}

#[test]
fn increx_sets_keeps_and_takes_deadlines() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("INCREX k EX 100 ENX");
        assert_eq!(client.call("TTL k"), int(100));
        assert_eq!(client.call("INCREX k EX 500 ENX"), sum(2, 1));
        assert_eq!(client.call("TTL k"), int(100));
        client.call("INCREX k");
        assert_eq!(client.call("TTL k"), int(100));
        assert_eq!(client.call("INCREX k UBOUND 3 EX 500"), sum(3, 0));
        assert_eq!(client.call("TTL k"), int(100), "what is refused leaves the deadline");
        client.call("INCREX k PX 500000");
        assert_eq!(client.call("TTL k"), int(500));
        client.call("INCREX k PERSIST");
        assert_eq!(client.call("TTL k"), int(-1));
        assert_eq!(client.call("INCREX k EXAT 1"), sum(6, 1));
        assert_eq!(client.call("EXISTS k"), int(0));
        assert_eq!(client.call("INCREX k PXAT 1"), sum(1, 1));
        assert_eq!(client.call("EXISTS k"), int(0));
        client.call("SET k 1 EX 100");
        assert_eq!(client.call("INCREX k EXAT 1 ENX"), sum(2, 1));
        assert_eq!(client.call("TTL k"), int(100), "it has one already");
    });
}

#[test]
fn increx_says_what_is_wrong() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("SET k 5");
        for wrong in [
            "FOO",
            "BYINT",
            "BYINT 1 FOO",
            "BYINT 1 BYFLOAT 1.5",
            "BYINT 1 BYINT 1",
            "LBOUND 0 LBOUND 1",
            "SATURATE SATURATE",
            "ENX ENX EX 1",
            "PERSIST PERSIST",
            "PERSIST ENX",
            "EX 10 PERSIST",
            "EX 10 PX 5000",
            "EX 10 EX 10",
        ] {
            assert_eq!(client.call(&format!("INCREX k {wrong}")), error("ERR syntax error"), "{wrong}");
        }
        for (wrong, text) in [
            ("ENX", "ERR ENX flag requires an expiration"),
            ("BYINT 1.5", "ERR Increment is not an integer or out of range"),
            ("BYFLOAT abc", "ERR Increment is not a valid float"),
            ("BYFLOAT -inf", "ERR BYFLOAT increment cannot be Infinity"),
            ("LBOUND 10 UBOUND 5", "ERR LBOUND can't be greater than UBOUND"),
            ("BYFLOAT 0.5 LBOUND 10.5 UBOUND 1.5", "ERR LBOUND can't be greater than UBOUND"),
            ("LBOUND 1.5", "ERR LBOUND is not an integer or out of range"),
            ("BYFLOAT 1 UBOUND x", "ERR UBOUND is not a valid float"),
            ("EX 0", "ERR invalid expire time in 'increx' command"),
            ("PX x", "ERR value is not an integer or out of range"),
        ] {
            assert_eq!(client.call(&format!("INCREX k {wrong}")), error(text), "{wrong}");
        }
        assert_eq!(client.call("GET k"), bulk("5"));
        client.call("SET k hello");
        assert_eq!(client.call("INCREX k"), error("ERR value is not an integer or out of range"));
        assert_eq!(client.call("INCREX k BYFLOAT 1"), error("ERR value is not a valid float"));
        client.call("SET k inf");
        assert_eq!(client.call("INCREX k BYFLOAT 1"), error("ERR value cannot be Infinity"));
        client.call("RPUSH l a");
        assert_eq!(client.call("INCREX l"), error(WRONG_TYPE));
    });
}

#[test]
fn increx_tells_what_redis_tells() {
    on_embers(&["--notify-keyspace-events", "EA"], |server| {
        let (mut client, mut listener) = (server.client(), server.client());
        listener.call("PSUBSCRIBE __keyevent@0__:*");
        for command in [
            "INCREX k",
            "INCREX k BYFLOAT 0.5",
            "SET k 10 EX 100",
            "INCREX k PERSIST",
            "INCREX k PERSIST",
            "INCREX k EX 100",
            "INCREX k EX 200 ENX",
            "INCREX k UBOUND 0",
            "INCREX k EXAT 1",
            "INCREX k EXAT 1",
            "SET k 1",
            "DELIFEQ k 1",
        ] {
            assert!(!client.call(command).is_error(), "{command}");
        }
        client.call("RPUSH {k}end x");
        let mut told = Vec::new();
        loop {
            let message = listener.read();
            let event = message.items()[2].text().trim_start_matches("__keyevent@0__:").to_owned();
            if event == "rpush" {
                break;
            }
            told.push(event);
        }
        let of_floats = ["incrby", "incrbyfloat", "set", "expire", "incrby", "persist", "incrby"];
        let of_times = ["incrby", "expire", "incrby", "del", "set", "del"];
        assert_eq!(told, [&of_floats[..], &of_times].concat());
    });
}

#[test]
fn hsetex_asks_whether_the_key_is_there() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("HSETEX h XX FIELDS 1 f 1"), int(0));
        assert_eq!(client.call("EXISTS h"), int(0));
        assert_eq!(client.call("HSETEX h NX EX 100 FIELDS 1 f 1"), int(1));
        assert_eq!(client.call("HTTL h FIELDS 1 f"), Value::Array(vec![int(100)]));
        assert_eq!(client.call("HSETEX h nx FIELDS 1 g 2"), int(0));
        assert_eq!(client.call("HSETEX h NX FNX FIELDS 1 g 2"), int(0));
        assert_eq!(client.call("HSETEX h XX FXX FIELDS 1 g 2"), int(0), "the key is there, the field is not");
        assert_eq!(client.call("HSETEX h FXX XX KEEPTTL FIELDS 1 f 3"), int(1));
        assert_eq!(client.call("HSETEX h FNX XX FIELDS 1 g 4"), int(1));
        assert_eq!(client.call("HMGET h f g"), Value::bulks(&["3", "4"]));
        assert_eq!(client.call("HTTL h FIELDS 2 f g"), Value::Array(vec![int(100), int(-1)]));
        assert_eq!(client.call("HSETEX none NX PXAT 1 FIELDS 1 f 1"), int(1));
        assert_eq!(client.call("EXISTS none"), int(0));
        let one = error("ERR Only one of NX or XX arguments can be specified");
        for wrong in ["NX XX", "XX XX", "NX FNX XX"] {
            assert_eq!(client.call(&format!("HSETEX h {wrong} FIELDS 1 f 1")), one, "{wrong}");
        }
        assert_eq!(client.call("HGETEX h NX FIELDS 1 f"), error("ERR unknown argument: nx"));
        client.call("SET text 1");
        assert_eq!(client.call("HSETEX text NX FIELDS 1 f 1"), error(WRONG_TYPE));
    });
}

#[test]
fn zscan_shows_members_without_scores() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("ZADD z 1 a 2 b");
        client.call("SADD s a");
        client.call("HSET h f v");
        let page = |items: &[&str]| Value::Array(vec![bulk("0"), Value::bulks(items)]);
        assert_eq!(client.call("ZSCAN z 0 NOSCORES"), page(&["a", "b"]));
        assert_eq!(client.call("ZSCAN z 0 noscores MATCH b COUNT 5"), page(&["b"]));
        assert_eq!(client.call("ZSCAN z 0"), page(&["a", "1", "b", "2"]));
        assert_eq!(client.call("HSCAN h 0 NOVALUES"), page(&["f"]));
        for n in 0..1000 {
            client.call(&format!("ZADD large {n} {n}"));
        }
        let reply = client.call("ZSCAN large 0 COUNT 1000000 NOSCORES");
        assert_eq!(reply.items()[1].items().len(), 1000);
        for (command, text) in [
            ("SSCAN s 0 NOSCORES", "ERR NOSCORES option can only be used in ZSCAN"),
            ("HSCAN h 0 NOSCORES", "ERR NOSCORES option can only be used in ZSCAN"),
            ("SCAN 0 NOSCORES", "ERR NOSCORES option can only be used in ZSCAN"),
            ("ZSCAN z 0 NOVALUES", "ERR NOVALUES option can only be used in HSCAN"),
            ("SCAN 0 COUNT 5 NOVALUES", "ERR NOVALUES option can only be used in HSCAN"),
            ("ZSCAN z 0 NOSCORES COUNT", "ERR syntax error"),
        ] {
            assert_eq!(client.call(command), error(text), "{command}");
        }
    });
}
