//! Client-side caching: CLIENT TRACKING tells connections when what they have read changes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Client, Kind, Server, Value, bulk, encode, int, on_embers, on_every_server, simple, wait_until};

/// For something that is to come.
const SOON: Duration = Duration::from_secs(10);
/// For something that is not to come.
const QUIET: Duration = Duration::from_millis(100);

fn push(name: &str, rest: Value) -> Value {
    Value::Push(vec![bulk(name), rest])
}

/// What is pushed when keys have changed.
fn invalidate(keys: &[&str]) -> Value {
    push("invalidate", Value::bulks(keys))
}

#[track_caller]
fn expect(client: &mut Client, expected: Value) {
    assert_eq!(client.read_within(SOON), Some(expected));
}

/// Names of all that comes until nothing more does, each once.
fn names(client: &mut Client, quiet: Duration) -> Vec<String> {
    let pushed = client.drain(quiet);
    let mut names: Vec<String> = pushed.iter().flat_map(|push| push.items()[1].items()).map(Value::text).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn who_has_read_a_key_is_told_once_that_it_changed() {
    on_every_server(&[], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        writer.call("MSET a 1 b 2 c 3");
        assert_eq!(reader.call("CLIENT TRACKING ON"), Value::ok());
        reader.call("GET a");
        reader.call("MGET b c missing");
        for key in ["a", "b", "missing"] {
            writer.call(&format!("SET {key} 5"));
            expect(&mut reader, invalidate(&[key]));
        }
        writer.call("SET a 6");
        assert_eq!(reader.read_within(QUIET), None, "it was not read again");
        reader.call("GET a");
        writer.call("DEL a");
        expect(&mut reader, invalidate(&["a"]));
        // Its own changes, too, behind their replies.
        reader.call("GET c");
        reader.send("SET c 1");
        let both = [reader.read(), reader.read()];
        assert!(both.contains(&Value::ok()) && both.contains(&invalidate(&["c"])), "{both:?}");
        // Reading without reading is nothing.
        reader.call("CLIENT TRACKING OFF");
        reader.call("GET c");
        writer.call("SET c 2");
        assert_eq!(reader.read_within(QUIET), None);
    });
}

#[test]
fn commands_over_several_shards_are_tracked_too() {
    on_every_server(&[], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        for set in ["s1", "s2", "s3", "s4", "s5"] {
            writer.call(&format!("SADD {set} a b c"));
        }
        reader.call("CLIENT TRACKING ON");
        reader.call("SINTER s1 s2 s3");
        reader.call("MULTI");
        reader.call("SUNION s4 s5");
        reader.call("EXISTS x1 x2 x3");
        reader.call("EXEC");
        for key in ["s1", "s2", "s3", "s4", "s5", "x1", "x2", "x3"] {
            writer.call(&format!("SADD {key} new"));
            expect(&mut reader, invalidate(&[key]));
        }
        reader.call("SINTER s1 s2 s3 s4 s5");
        writer.call("RENAME s1 s2");
        assert_eq!(names(&mut reader, QUIET), ["s1", "s2"]);
        writer.call("SUNIONSTORE s3 s4 s5");
        expect(&mut reader, invalidate(&["s3"]));
        writer.call("SMOVE s4 s5 a");
        assert!(!names(&mut reader, QUIET).is_empty());
    });
}

#[test]
fn deaths_and_flushes_are_told() {
    on_every_server(&[], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        reader.call("CLIENT TRACKING ON");
        writer.call("SET a 1 PX 30");
        reader.call("GET a");
        expect(&mut reader, invalidate(&["a"]));
        assert_eq!(reader.call("GET a"), Value::Null);
        writer.call("SET a 1");
        expect(&mut reader, invalidate(&["a"]));
        reader.call("GET a");
        for flush in ["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC"] {
            writer.call("SET a 1");
            names(&mut reader, QUIET);
            reader.call("GET a");
            writer.call(flush);
            expect(&mut reader, push("invalidate", Value::Null));
        }
        writer.call("SET a 1");
        assert_eq!(reader.read_within(QUIET), None, "nothing is remembered");
    });
}

/// Which Redis does not tell: what is cached under a name is another database's then.
#[test]
fn a_swap_is_told_as_a_flush() {
    on_embers(&[], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        reader.call("CLIENT TRACKING ON");
        reader.call("GET a");
        writer.call("SWAPDB 0 1");
        expect(&mut reader, push("invalidate", Value::Null));
    });
}

#[test]
fn fields_that_die_are_told() {
    on_embers(&[], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        writer.call("HSET h f 1 g 2");
        writer.call("HPEXPIRE h 30 FIELDS 1 f");
        reader.call("CLIENT TRACKING ON");
        reader.call("HGETALL h");
        expect(&mut reader, invalidate(&["h"]));
        assert_eq!(reader.call("HGET h f"), Value::Null);
    });
    // Before the cycle comes by.
    on_embers(&["--active-expire-enabled", "no"], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        writer.call("HSET h f 1 g 2");
        writer.call("HPEXPIRE h 5 FIELDS 1 f");
        reader.call("CLIENT TRACKING ON");
        reader.call("HGETALL h");
        assert!(wait_until(SOON, || writer.call("HEXISTS h f") == int(0)));
        assert_eq!(writer.call("HDEL h f"), int(0));
        expect(&mut reader, invalidate(&["h"]));
        assert_eq!(server.info("expired_subkeys").as_deref(), Some("1"));
    });
}

#[test]
fn who_wants_no_word_of_its_own_changes_gets_none() {
    on_every_server(&[], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        reader.call("CLIENT TRACKING ON NOLOOP");
        for command in ["SET a 1", "MSET a 1 b 2 c 3", "RENAME a b", "INCR c"] {
            reader.call("MGET a b c");
            reader.call(command);
        }
        assert_eq!(reader.read_within(QUIET), None);
        reader.call("MGET a b c");
        writer.call("SET b 2");
        expect(&mut reader, invalidate(&["b"]));
        let mut listener = server.client3();
        listener.call("CLIENT TRACKING ON BCAST NOLOOP PREFIX n");
        listener.call("SET n1 1");
        writer.call("SET n2 1");
        expect(&mut listener, invalidate(&["n2"]));
        assert_eq!(listener.read_within(QUIET), None);
    });
}

#[test]
fn opting_in_and_out() {
    on_every_server(&[], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        reader.call("CLIENT TRACKING ON OPTIN");
        reader.call("GET a");
        assert_eq!(reader.call("CLIENT CACHING YES"), Value::ok());
        reader.call("GET b");
        reader.call("GET c");
        reader.call("CLIENT CACHING YES");
        reader.call("MULTI");
        reader.call("GET d");
        reader.call("GET e");
        reader.call("EXEC");
        reader.call("GET f");
        ["a", "b", "c", "d", "e", "f"].iter().for_each(|key| drop(writer.call(&format!("SET {key} 1"))));
        assert_eq!(names(&mut reader, QUIET), ["b", "d", "e"]);
        reader.call("CLIENT TRACKING OFF");
        reader.call("CLIENT TRACKING ON OPTOUT");
        reader.call("GET a");
        reader.call("CLIENT CACHING NO");
        reader.call("GET b");
        reader.call("GET c");
        ["a", "b", "c"].iter().for_each(|key| drop(writer.call(&format!("SET {key} 1"))));
        assert_eq!(names(&mut reader, QUIET), ["a", "c"]);
    });
}

/// Where commands go from shard to shard, too.
#[test]
fn caching_within_a_transaction() {
    on_every_server(&[], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        reader.call("CLIENT TRACKING ON OPTIN");
        for command in ["MULTI", "GET a", "CLIENT CACHING YES", "GET b", "SINTER c d e f", "EXEC", "GET g"] {
            reader.call(command);
        }
        "abcdefg".chars().for_each(|key| drop(writer.call(&format!("SET {key} 1"))));
        let told = names(&mut reader, QUIET);
        assert!(told.contains(&"b".to_owned()) && told.contains(&"f".to_owned()), "{told:?}");
        assert!(!told.contains(&"g".to_owned()), "{told:?}");
        reader.call("CLIENT TRACKING OFF");
        reader.call("CLIENT TRACKING ON OPTOUT");
        for command in ["MULTI", "CLIENT CACHING NO", "GET a", "EXEC", "GET b", "CLIENT CACHING NO", "NOSUCH", "GET c"]
        {
            reader.call(command);
        }
        "abc".chars().for_each(|key| drop(writer.call(&format!("SET {key} 1"))));
        assert_eq!(names(&mut reader, QUIET), ["b", "c"]);
    });
}

/// Whatever shard the key is on for which the connection waits.
#[test]
fn who_waits_for_a_key_is_told_at_once() {
    on_every_server(&[], |server| {
        let mut writer = server.client();
        for queue in ["q1", "q2", "q3", "q4"] {
            let mut reader = server.client3();
            reader.call("CLIENT TRACKING ON");
            reader.call("MGET a b c");
            reader.send(&format!("BLPOP {queue} other{queue} 0"));
            "abc".chars().for_each(|key| drop(writer.call(&format!("SET {key} 1"))));
            let mut told = Vec::new();
            wait_until(SOON, || {
                told.extend(names(&mut reader, Duration::from_millis(10)));
                told.len() == 3
            });
            assert_eq!(told.len(), 3, "{told:?}");
            writer.call(&format!("RPUSH {queue} x"));
            assert_eq!(reader.read(), Value::bulks(&[queue, "x"]));
        }
    });
}

#[test]
fn listeners_hear_of_all_keys_with_their_prefixes() {
    on_every_server(&[], |server| {
        let (mut all, mut some, mut writer) = (server.client3(), server.client3(), server.client());
        all.call("CLIENT TRACKING ON BCAST");
        assert_eq!(some.call("CLIENT TRACKING ON BCAST PREFIX user: PREFIX item:1"), Value::ok());
        some.call("GET other");
        let commands =
            ["SET user:1 1", "SET item:1 1", "SET item:15 1", "SET item:2 1", "MSET user:2 2 other 3", "DEL user:1"];
        commands.iter().for_each(|command| drop(writer.call(command)));
        assert_eq!(names(&mut some, QUIET), ["item:1", "item:15", "user:1", "user:2"]);
        assert_eq!(names(&mut all, QUIET), ["item:1", "item:15", "item:2", "other", "user:1", "user:2"]);
        some.call("CLIENT TRACKING OFF");
        writer.call("SET user:1 1");
        assert_eq!(some.read_within(QUIET), None);
        assert_eq!(server.info("tracking_clients").as_deref(), Some("1"));
        assert_eq!(server.info("tracking_total_prefixes").as_deref(), Some("1"));
        drop(all);
        assert!(wait_until(SOON, || server.info("tracking_total_prefixes").as_deref() == Some("0")));
    });
}

/// What it read before it tracked in another way was noted, and was told a second time.
#[test]
fn who_listens_now_is_not_told_of_what_it_had_read() {
    on_every_server(&[], |server| {
        let (mut client, mut writer) = (server.client3(), server.client());
        client.call("CLIENT TRACKING ON");
        client.call("MGET user:1 item:1");
        client.call("CLIENT TRACKING OFF");
        client.call("CLIENT TRACKING ON BCAST PREFIX user:");
        writer.call("SET user:1 1");
        expect(&mut client, invalidate(&["user:1"]));
        writer.call("SET item:1 1");
        assert_eq!(client.read_within(QUIET), None);
        // Nor is it told less where it wants no word of its own changes.
        client.call("CLIENT TRACKING OFF");
        client.call("CLIENT TRACKING ON BCAST PREFIX user: NOLOOP");
        writer.call("SET user:1 2");
        expect(&mut client, invalidate(&["user:1"]));
    });
}

#[test]
fn another_connection_is_told_instead() {
    on_every_server(&[], |server| {
        let (mut reader, mut told, mut writer) = (server.client(), server.client(), server.client());
        let id = told.call("CLIENT ID").number();
        told.call("SUBSCRIBE __redis__:invalidate");
        assert_eq!(reader.call(&format!("CLIENT TRACKING ON REDIRECT {id}")), Value::ok());
        assert_eq!(reader.call("CLIENT GETREDIR"), int(id));
        reader.call("GET a");
        writer.call("SET a 1");
        let message = |rest| Value::Array(vec![bulk("message"), bulk("__redis__:invalidate"), rest]);
        expect(&mut told, message(Value::bulks(&["a"])));
        reader.call("GET a");
        writer.call("FLUSHALL");
        let told_of_flush = told.read_within(SOON).expect("a message");
        assert!(told_of_flush.items()[2].is_null(), "{told_of_flush:?}");
        // In RESP3 it is a push, whatever it listens to.
        let (mut reader3, mut told3) = (server.client3(), server.client3());
        let id = told3.call("CLIENT ID").number();
        reader3.call(&format!("CLIENT TRACKING ON REDIRECT {id}"));
        reader3.call("GET a");
        writer.call("SET a 1");
        expect(&mut told3, invalidate(&["a"]));
        drop(told3);
        let gone = || !server.client().call("CLIENT LIST").text().contains(&format!("id={id} "));
        assert!(wait_until(SOON, gone));
        reader3.call("GET a");
        writer.call("SET a 2");
        expect(&mut reader3, push("tracking-redir-broken", int(id)));
        let info = reader3.call("CLIENT TRACKINGINFO");
        let flags = info.field("flags").expect("flags");
        assert!(flags.items().contains(&bulk("broken_redirect")), "{info:?}");
    });
}

#[test]
fn what_is_asked_for_wrongly() {
    on_every_server(&[], |server| {
        let mut client = server.client3();
        let id = client.call("CLIENT ID").number();
        let overlap = "Prefixes for a single client must not overlap.";
        let cases = [
            ("CLIENT TRACKING MAYBE", "ERR syntax error".to_owned()),
            ("CLIENT TRACKING ON WHAT", "ERR syntax error".to_owned()),
            ("CLIENT TRACKING ON REDIRECT", "ERR syntax error".to_owned()),
            ("CLIENT TRACKING ON REDIRECT x", "ERR value is not an integer or out of range".to_owned()),
            (
                "CLIENT TRACKING ON REDIRECT 123456789",
                "ERR The client ID you want redirect to does not exist".to_owned(),
            ),
            ("CLIENT TRACKING ON PREFIX a", "ERR PREFIX option requires BCAST mode to be enabled".to_owned()),
            ("CLIENT TRACKING ON BCAST OPTIN", "ERR OPTIN and OPTOUT are not compatible with BCAST".to_owned()),
            ("CLIENT TRACKING ON OPTIN OPTOUT", "ERR You can't specify both OPTIN mode and OPTOUT mode".to_owned()),
            (
                "CLIENT TRACKING ON BCAST PREFIX a PREFIX ab",
                format!("ERR Prefix 'a' overlaps with another provided prefix 'ab'. {overlap}"),
            ),
            (
                "CLIENT CACHING YES",
                "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode \
                 enabled"
                    .to_owned(),
            ),
        ];
        for (command, error) in cases {
            assert_eq!(client.call(command), crate::common::error(&error), "{command}");
        }
        let twice = format!("CLIENT TRACKING ON REDIRECT {id} REDIRECT {id}");
        let error = "ERR A client can only redirect to a single other client";
        assert_eq!(client.call(&twice), crate::common::error(error));
        assert_eq!(client.call("CLIENT GETREDIR"), int(-1));
        let info = |client: &mut Client| {
            let info = client.call("CLIENT TRACKINGINFO");
            ["flags", "redirect", "prefixes"].map(|field| info.field(field).expect("a field"))
        };
        assert_eq!(info(&mut client), [Value::Set(vec![bulk("off")]), int(-1), Value::bulks::<&str>(&[])]);
        assert_eq!(client.call("CLIENT TRACKING ON OPTIN"), Value::ok());
        let switched = "before disabling tracking for this client, and then re-enabling it with a different mode.";
        for (command, error) in [
            ("CLIENT TRACKING ON OPTOUT", format!("ERR You can't switch OPTIN/OPTOUT mode {switched}")),
            ("CLIENT TRACKING ON BCAST", format!("ERR You can't switch BCAST mode on/off {switched}")),
            (
                "CLIENT CACHING NO",
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.".to_owned(),
            ),
            ("CLIENT CACHING PERHAPS", "ERR syntax error".to_owned()),
        ] {
            assert_eq!(client.call(command), crate::common::error(&error), "{command}");
        }
        client.call("CLIENT CACHING YES");
        let flags = Value::Set(["on", "optin", "caching-yes"].map(bulk).to_vec());
        assert_eq!(info(&mut client), [flags, int(0), Value::bulks::<&str>(&[])]);
        client.call("CLIENT TRACKING OFF");
        client.call("CLIENT TRACKING ON BCAST PREFIX user: PREFIX b NOLOOP");
        assert_eq!(
            client.call("CLIENT TRACKING ON BCAST PREFIX user:1"),
            crate::common::error(&format!("ERR Prefix 'user:1' overlaps with an existing prefix 'user:'. {overlap}"))
        );
        let flags = Value::Set(["on", "bcast", "noloop"].map(bulk).to_vec());
        assert_eq!(info(&mut client), [flags, int(0), Value::bulks(&["b", "user:"])]);
        assert_eq!(client.call("RESET"), simple("RESET"));
        client.call("HELLO 3");
        assert_eq!(info(&mut client)[0], Value::Set(vec![bulk("off")]));
    });
}

/// A reader's replies come from all shards; what it is told of a key must not overtake the reply that has the old value.
#[test]
fn what_is_told_takes_its_place_behind_the_replies_that_are_open() {
    let server = Server::start(Kind::Ember { shards: 3 }, &["--enable-debug-command", "yes"]);
    let (mut reader, mut writer) = (server.client3(), server.client());
    server.delay_shards(300);
    let keys: Vec<String> = (0..12).map(|n| format!("key{n}")).collect();
    keys.iter().for_each(|key| drop(writer.call(&format!("SET {key} 0"))));
    reader.call("CLIENT TRACKING ON");
    let (mut cached, mut version): (HashMap<String, i64>, i64) = (HashMap::new(), 0);
    for _ in 0..200 {
        keys.iter().for_each(|key| reader.send(&format!("GET {key}")));
        version += 1;
        for key in keys.iter().rev() {
            writer.send(&format!("SET {key} {version}"));
        }
        keys.iter().for_each(|_| assert_eq!(writer.read(), Value::ok()));
        let mut open = keys.iter();
        let mut expected = open.next();
        while let Some(key) = expected {
            match reader.read() {
                Value::Push(items) => forget(&mut cached, &items[1]),
                value => {
                    cached.insert(key.clone(), value.text().parse().expect("a number"));
                    expected = open.next();
                }
            }
        }
        for late in reader.drain(Duration::from_millis(20)) {
            forget(&mut cached, &late.items()[1]);
        }
        for (key, value) in &cached {
            assert_eq!(writer.call(&format!("GET {key}")).text(), value.to_string(), "{key} is cached");
        }
    }
}

fn forget(cached: &mut HashMap<String, i64>, names: &Value) {
    for name in names.items() {
        cached.remove(&name.text());
    }
}

/// Once it is quiet no cache holds a value that the server does not.
#[test]
fn no_cache_holds_what_the_server_does_not() {
    let server = Server::start(Kind::Ember { shards: 3 }, &[]);
    let (is_over, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    let end = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let server = &server;
            scope.spawn(move || write(server, seed, end));
        }
        let modes = ["ON", "ON NOLOOP", "ON BCAST", "ON BCAST PREFIX k PREFIX h", "ON OPTOUT"];
        for mode in modes {
            let (server, is_over, hits) = (&server, &is_over, &hits);
            scope.spawn(move || read_cached(server, mode, is_over, hits));
        }
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(hits.load(Ordering::Relaxed) > 0, "the caches were of no use");
}

const CACHED_KEYS: u32 = 40;

fn write(server: &Server, seed: u64, end: Instant) {
    let (mut client, mut rng) = (server.client(), fastrand::Rng::with_seed(seed));
    while Instant::now() < end {
        let [a, b] = [rng.u32(..CACHED_KEYS), rng.u32(..CACHED_KEYS)];
        let n = rng.u32(..);
        let command = match rng.u32(..100) {
            0..50 => format!("SET k{a} {n}"),
            50..60 => format!("SET k{a} {n} PX {}", rng.u32(1..20)),
            60..70 => format!("MSET k{a} {n} k{b} {n}"),
            70..80 => format!("DEL k{a} k{b}"),
            80..85 => format!("RENAME k{a} k{b}"),
            85..95 => format!("PEXPIRE k{a} {}", rng.u32(1..20)),
            95 => "FLUSHALL".to_owned(),
            _ => format!("GETDEL k{a}"),
        };
        client.call(&command);
    }
}

/// A client with a cache, as libraries have one.
fn read_cached(server: &Server, mode: &str, is_over: &AtomicBool, hits: &AtomicU64) {
    let (mut client, mut rng) = (server.client3(), fastrand::Rng::new());
    assert_eq!(client.call(&format!("CLIENT TRACKING {mode}")), Value::ok());
    let mut cache: HashMap<String, Value> = HashMap::new();
    let hear = |cache: &mut HashMap<String, Value>, push: &Value| match &push.items()[1] {
        Value::Null => cache.clear(),
        names => names.items().iter().for_each(|name| drop(cache.remove(&name.text()))),
    };
    while !is_over.load(Ordering::Relaxed) {
        let key = format!("k{}", rng.u32(..CACHED_KEYS));
        if cache.contains_key(&key) {
            hits.fetch_add(1, Ordering::Relaxed);
            if rng.u32(..20) > 0 {
                continue;
            }
        }
        client.send(&format!("GET {key}"));
        loop {
            match client.read() {
                push @ Value::Push(_) => hear(&mut cache, &push),
                value => break drop(cache.insert(key, value)),
            }
        }
    }
    // Until nothing dies any more, and all has been told.
    client.drain(Duration::from_millis(500)).iter().for_each(|push| hear(&mut cache, push));
    let mut other = server.client3();
    for (key, value) in cache {
        assert_eq!(other.call(&format!("GET {key}")), value, "{key} is cached by {mode}");
    }
}

#[test]
fn who_never_reads_is_held_to_the_limit_of_those_who_listen() {
    on_embers(&["--client-output-buffer-limit", "pubsub 1mb 0 0"], |server| {
        let (mut silent, mut writer) = (server.client3(), server.client());
        silent.call("CLIENT TRACKING ON BCAST");
        // Each has another name: a name that comes again before it is sent is told once.
        let sets: Vec<u8> = (0..1000).flat_map(|n| encode(&["SET", &format!("{n:01000}"), "1"])).collect();
        let is_gone = || server.info("tracking_clients").as_deref() == Some("0");
        let mut sent = 0;
        // The kernel keeps some MB for it, on some machines 40.
        let gone = wait_until(SOON, || {
            writer.send_raw(&sets);
            (0..1000).for_each(|_| assert_eq!(writer.read(), Value::ok()));
            sent += 1000;
            is_gone()
        });
        assert!(gone, "after {sent} keys");
    });
}

/// redis-py takes two names of one MGET that it remembers in one message for an error, and goes on with what was.
#[test]
fn who_has_read_keys_hears_of_them_one_by_one() {
    on_every_server(&[], |server| {
        let (mut reader, mut listener, mut writer) = (server.client3(), server.client3(), server.client());
        let (mut told, mut asks) = (server.client(), server.client());
        reader.call("CLIENT TRACKING ON");
        listener.call("CLIENT TRACKING ON BCAST");
        let id = told.call("CLIENT ID").number();
        told.call("SUBSCRIBE __redis__:invalidate");
        asks.call(&format!("CLIENT TRACKING ON REDIRECT {id}"));
        for client in [&mut reader, &mut asks] {
            client.call("MGET {t}a {t}b");
        }
        assert_eq!(writer.call("MSET {t}a 1 {t}b 2"), Value::ok());
        for key in ["{t}a", "{t}b"] {
            expect(&mut reader, invalidate(&[key]));
            let message = [bulk("message"), bulk("__redis__:invalidate"), Value::bulks(&[key])];
            assert_eq!(told.read().items(), message);
        }
        expect(&mut listener, invalidate(&["{t}a", "{t}b"]));
    });
}

#[test]
fn a_large_reply_is_not_held_to_that_limit() {
    on_embers(&["--client-output-buffer-limit", "pubsub 1mb 0 0"], |server| {
        let (mut reader, mut writer) = (server.client3(), server.client());
        let value = vec![b'v'; 4 << 20];
        writer.command(&[b"SET", &b"large"[..], &value]);
        reader.call("CLIENT TRACKING ON");
        reader.send("GET large");
        assert!(wait_until(SOON, || server.info("tracking_total_keys").as_deref() == Some("1")));
        writer.call("SET large 1");
        assert_eq!(reader.read().bytes().map(<[u8]>::len), Some(value.len()));
        expect(&mut reader, invalidate(&["large"]));
    });
}

#[test]
fn a_table_of_tracked_keys_is_bounded() {
    on_embers(&["--tracking-table-max-keys", "900"], |server| {
        let mut reader = server.client3();
        reader.call("CLIENT TRACKING ON");
        let gets: Vec<u8> = (0..10_000).flat_map(|n| encode(&["GET", &format!("key{n}")])).collect();
        reader.send_raw(&gets);
        let (mut replies, mut told) = (0, 0);
        while replies < 10_000 {
            match reader.read() {
                Value::Push(items) => told += items[1].items().len(),
                _ => replies += 1,
            }
        }
        told += reader.drain(QUIET).iter().map(|push| push.items()[1].items().len()).sum::<usize>();
        let kept: usize = server.info("tracking_total_keys").and_then(|keys| keys.parse().ok()).expect("a number");
        assert_eq!(told + kept, 10_000);
        assert!((800..=902).contains(&kept), "{kept}");
        let mut writer = server.client();
        assert_eq!(writer.call("CONFIG SET tracking-table-max-keys 0"), Value::ok());
    });
}

#[test]
fn ten_thousand_prefixes() {
    on_embers(&[], |server| {
        let (mut listener, mut writer) = (server.client3(), server.client());
        let mut args: Vec<String> = ["CLIENT", "TRACKING", "ON", "BCAST"].map(str::to_owned).to_vec();
        for n in 0..10_000 {
            args.extend(["PREFIX".to_owned(), format!("{n:05}:{}", "x".repeat(n % 50))]);
        }
        assert_eq!(listener.command(&args), Value::ok());
        writer.call("SET 00007:xxxxxxx1 1");
        expect(&mut listener, invalidate(&["00007:xxxxxxx1"]));
        writer.call("SET 00007:y 1");
        assert_eq!(listener.read_within(QUIET), None);
        args.extend(["PREFIX", "00007:xxx"].map(str::to_owned));
        let mut other = server.client3();
        assert!(other.command(&args).is_error(), "it overlaps");
        assert_eq!(server.info("tracking_total_prefixes").as_deref(), Some("10000"));
        drop(listener);
        assert!(wait_until(SOON, || server.info("tracking_total_prefixes").as_deref() == Some("0")));
    });
}

/// Each shard remembers who has read a key until it changes, whatever has become of the reader.
#[test]
fn connections_that_come_and_go_leave_little() {
    on_embers(&["--tracking-table-max-keys", "30"], |server| {
        for _ in 0..600 {
            let mut reader = server.client3();
            reader.call("CLIENT TRACKING ON");
            reader.call("GET hot");
        }
        let items: usize = server.info("tracking_total_items").and_then(|items| items.parse().ok()).expect("a number");
        assert!(items <= 31 * 8, "{items}");
        assert!(wait_until(SOON, || server.info("tracking_clients").as_deref() == Some("0")));
    });
}
