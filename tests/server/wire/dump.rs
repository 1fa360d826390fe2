//! DUMP, RESTORE and what can be asked about a key: options, errors and their order.

use crate::common::{Client, Kind, Server, Value, bulk, error, int, on_embers, on_every_server};

fn dump(client: &mut Client, key: &str) -> Vec<u8> {
    let payload = client.command(&["DUMP", key]);
    payload.bytes().unwrap_or_else(|| panic!("{payload:?} is no payload")).to_vec()
}

fn restore(client: &mut Client, key: &str, ttl: &str, payload: &[u8], options: &str) -> Value {
    let mut args = vec![b"RESTORE".to_vec(), key.into(), ttl.into(), payload.to_vec()];
    args.extend(options.split_whitespace().map(|option| option.as_bytes().to_vec()));
    client.command(&args)
}

#[test]
fn restore_checks_options_then_the_key_then_the_ttl_then_the_payload() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        client.call("SET k hello");
        let payload = dump(&mut client, "k");
        let idle = error("ERR Invalid IDLETIME value, must be >= 0");
        let freq = error("ERR Invalid FREQ value, must be >= 0 and <= 255");
        let (busy, syntax) = (error("BUSYKEY Target key name already exists."), error("ERR syntax error"));
        let not_an_integer = error("ERR value is not an integer or out of range");
        for (key, ttl, value, options, expected) in [
            ("k", "x", &b"y"[..], "IDLETIME -1", &idle),
            ("k", "x", b"y", "IDLETIME x", &not_an_integer),
            ("k", "x", b"y", "IDLETIME", &syntax),
            ("k", "x", b"y", "FREQ 256", &freq),
            ("k", "x", b"y", "FREQ -1", &freq),
            ("k", "x", b"y", "FREQ 5 IDLETIME 5", &syntax),
            ("k", "x", b"y", "IDLETIME 5 FREQ 5", &syntax),
            ("k", "x", b"y", "ABSTTL KEEP", &syntax),
            ("k", "x", b"y", "ABSTTL", &busy),
            ("k", "x", b"y", "replace", &not_an_integer),
            ("k", "-1", b"y", "REPLACE", &error("ERR Invalid TTL value, must be >= 0")),
            ("k", "0", b"y", "REPLACE", &error("ERR DUMP payload version or checksum are wrong")),
            (
                "k",
                "0",
                &payload[..payload.len() - 1],
                "REPLACE",
                &error("ERR DUMP payload version or checksum are wrong"),
            ),
            ("k", "0", &payload, "REPLACE absttl IDLETIME 5 IDLETIME 7", &Value::ok()),
        ] {
            assert_eq!(restore(&mut client, key, ttl, value, options), *expected, "{ttl} {options}");
        }
        assert_eq!(client.call("GET k"), bulk("hello"));
        assert_eq!(client.call("OBJECT IDLETIME k"), int(0), "GET has used it");
        assert_eq!(restore(&mut client, "k", "0", &payload, "REPLACE IDLETIME 1000"), Value::ok());
        assert!((1000..1005).contains(&client.call("OBJECT IDLETIME k").number()));
        assert_eq!(restore(&mut client, "k", "0", &payload, "REPLACE FREQ 255"), Value::ok());
        assert!(client.call("OBJECT FREQ k").is_error(), "no policy counts how often keys are used");
        assert_eq!(client.call("DUMP nothing"), Value::NullBulk);
    });
}

#[test]
fn restore_sets_the_deadline_or_none() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        client.call("SET source hello EX 100");
        let payload = dump(&mut client, "source");
        assert_eq!(restore(&mut client, "k", "0", &payload, ""), Value::ok());
        assert_eq!(client.call("PTTL k"), int(-1));
        assert_eq!(restore(&mut client, "k", "5000", &payload, "REPLACE"), Value::ok());
        assert!((4000..=5000).contains(&client.call("PTTL k").number()));
        assert_eq!(restore(&mut client, "k", "4102444800123", &payload, "REPLACE ABSTTL"), Value::ok());
        assert_eq!(client.call("PEXPIRETIME k"), int(4_102_444_800_123));
        assert_eq!(restore(&mut client, "k", "0", &payload, "REPLACE ABSTTL"), Value::ok());
        assert_eq!(client.call("PTTL k"), int(-1));
        // Past already: nothing is stored, and what was there is gone.
        assert_eq!(restore(&mut client, "k", "1", &payload, "REPLACE ABSTTL"), Value::ok());
        assert_eq!(client.call("EXISTS k"), int(0));
    });
}

#[test]
fn restore_tells_of_a_key_stored_or_deleted() {
    on_every_server(&["--notify-keyspace-events", "AKE"], |server| {
        let (mut client, mut listener) = (server.client(), server.client());
        client.call("SET source hello");
        let payload = dump(&mut client, "source");
        listener.call("PSUBSCRIBE __keyevent@0__:*");
        restore(&mut client, "{t}k", "0", &payload, "");
        restore(&mut client, "{t}k", "0", &payload, "REPLACE");
        restore(&mut client, "{t}k", "1", &payload, "REPLACE ABSTTL");
        restore(&mut client, "{t}k", "1", &payload, "REPLACE ABSTTL");
        client.call("SET {t}last 1");
        let events: Vec<String> = (0..4).map(|_| listener.read().items()[2].text()).collect();
        assert_eq!(events, ["restore", "restore", "del", "set"].map(|event| format!("__keyevent@0__:{event}")));
    });
}

/// A value whose frame is right and which is none itself.
#[test]
fn restore_refuses_what_is_no_value() {
    let server = Server::start(Kind::Ember { shards: 1 }, &[]);
    let mut client = server.client();
    // Their footers are Redis': an unknown type, a listpack that is cut, a hash that names a field twice, an empty set.
    for value in [&b"\x1f\x00"[..], b"\x10\x05\x07\x00\x00\x00\x01", b"\x04\x02\x01a\x011\x01a\x012", b"\x02\x00"] {
        let mut payload = value.to_vec();
        emberdb::rdb::payload::seal(&mut payload);
        assert_eq!(restore(&mut client, "k", "0", &payload, ""), error("ERR Bad data format"));
        assert_eq!(client.call("EXISTS k"), int(0));
    }
}

/// Redis 7.4 has deadlines of fields, and a type of its own for them.
#[test]
fn deadlines_of_fields_are_dumped_and_restored() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("HSET h a 1 b 2 c 3");
        client.call("HPEXPIREAT h 4102444800123 FIELDS 1 a");
        client.call("HEXPIRE h 1000 FIELDS 1 b");
        let expected = client.call("HPEXPIRETIME h FIELDS 3 a b c");
        let payload = dump(&mut client, "h");
        assert_eq!(payload[payload.len() - 10..payload.len() - 8], [12, 0], "the version of 7.4");
        assert_eq!(restore(&mut client, "k", "0", &payload, ""), Value::ok());
        assert_eq!(client.call("HPEXPIRETIME k FIELDS 3 a b c"), expected);
        assert_eq!(client.call("HGETALL k"), client.call("HGETALL h"));
        client.call("HPERSIST h FIELDS 2 a b");
        let payload = dump(&mut client, "h");
        assert_eq!(payload[payload.len() - 10..payload.len() - 8], [10, 0], "nothing that 7.0 does not know");
        // All its fields have died since.
        let dead = b"\x16\x02\x43\xe8\x01a\xc0\x01\x43\xe9\x01b\xc0\x02";
        let mut payload = dead.to_vec();
        emberdb::rdb::payload::seal(&mut payload);
        assert_eq!(restore(&mut client, "k", "0", &payload, "REPLACE"), Value::ok());
        assert_eq!(client.call("EXISTS k"), int(0));
    });
}

#[test]
fn memory_usage_is_that_of_key_and_value() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        client.command(&["SET", "k", &"x".repeat(10_000)]);
        assert!((10_000..15_000).contains(&client.call("MEMORY USAGE k").number()));
        assert_eq!(client.call("MEMORY USAGE k SAMPLES 0 samples 7"), client.call("MEMORY USAGE k"));
        assert_eq!(client.call("MEMORY USAGE nothing"), Value::NullBulk);
        for wrong in ["k SAMPLES", "k SAMPLES -1", "nothing SAMPLES -1", "k FOO 1"] {
            assert_eq!(client.call(&format!("MEMORY USAGE {wrong}")), error("ERR syntax error"), "{wrong}");
        }
        let not_an_integer = error("ERR value is not an integer or out of range");
        assert_eq!(client.call("MEMORY USAGE nothing SAMPLES x"), not_an_integer);
        let small = client.call("MEMORY USAGE k").number();
        for field in 0..1000 {
            client.command(&["HSET", "k2", &format!("field{field}"), &"y".repeat(100)]);
        }
        assert!(client.call("MEMORY USAGE k2 SAMPLES 0").number() > 100_000 + small / 100);
    });
}

/// The key was gone, and the answer OK.
#[test]
fn restore_refuses_a_life_that_ends_past_all_time() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("SET k old");
        let payload = dump(&mut client, "k");
        let refused = error("ERR invalid expire time in 'restore' command");
        for options in ["REPLACE", "REPLACE IDLETIME 5"] {
            assert_eq!(restore(&mut client, "k", "9223372036854775807", &payload, options), refused);
        }
        assert_eq!(restore(&mut client, "new", "9223372036854775807", &payload, ""), refused);
        assert_eq!(client.call("EXISTS new"), int(0));
        assert_eq!((client.call("GET k"), client.call("TTL k")), (bulk("old"), int(-1)));
        let end = &i64::MAX.to_string();
        assert_eq!(restore(&mut client, "k", end, &payload, "REPLACE ABSTTL"), Value::ok());
        assert_eq!(client.call("PEXPIRETIME k"), int(i64::MAX), "a moment is no sum");
        assert_eq!(restore(&mut client, "k", "9000000000000000000", &payload, "REPLACE"), Value::ok());
        assert!(client.call("PTTL k").number() > 8_999_999_999_999_000_000);
    });
}

/// Each relative time of each command: one that passes the end of time is an error, and nothing has changed.
#[test]
fn no_relative_time_passes_the_end_of_time() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("SET k old");
        client.call("HSET h f old");
        for line in [
            "SETEX k TIME new",
            "PSETEX k TIME new",
            "SET k new EX TIME",
            "SET k new PX TIME",
            "GETEX k EX TIME",
            "GETEX k PX TIME",
            "EXPIRE k TIME",
            "PEXPIRE k TIME",
            "MSETEX 1 k new EX TIME",
            "MSETEX 1 k new PX TIME",
            "INCREX n EX TIME",
            "INCREX n PX TIME",
            "HEXPIRE h TIME FIELDS 1 f",
            "HPEXPIRE h TIME FIELDS 1 f",
            "HGETEX h EX TIME FIELDS 1 f",
            "HGETEX h PX TIME FIELDS 1 f",
            "HSETEX h EX TIME FIELDS 1 f new",
            "HSETEX h PX TIME FIELDS 1 f new",
            "CL.THROTTLE n 1 1 TIME",
            "CLIENT PAUSE TIME",
        ] {
            let line = line.replace("TIME", "9223372036854775807");
            assert!(client.call(&line).is_error(), "{line}");
        }
        assert_eq!((client.call("GET k"), client.call("TTL k")), (bulk("old"), int(-1)));
        assert_eq!(
            (client.call("HGET h f"), client.call("HTTL h FIELDS 1 f")),
            (bulk("old"), Value::Array(vec![int(-1)]))
        );
        assert_eq!(client.call("EXISTS n"), int(0));
    });
}
