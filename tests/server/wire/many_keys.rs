//! Commands on keys of several shards: MSETEX, thousands of keys at once, the events that they send, and that nobody
//! sees half of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::transactions::{exec, on_shards, on_shards_and_redis};
use crate::common::{Client, Value, bulk, encode, error, int, simple, wait_until, words};

const QUIET: Duration = Duration::from_millis(100);

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()
}

#[test]
fn msetex_refuses_what_it_does_not_understand() {
    on_shards(&[], |server| {
        let mut client = server.client();
        let cases = [
            ("MSETEX 0 a 1", "ERR invalid numkeys value"),
            ("MSETEX -1 a 1", "ERR invalid numkeys value"),
            ("MSETEX x a 1", "ERR invalid numkeys value"),
            ("MSETEX 1.5 a 1", "ERR invalid numkeys value"),
            ("MSETEX 2147483648 a 1", "ERR invalid numkeys value"),
            ("MSETEX 9223372036854775808 a 1", "ERR invalid numkeys value"),
            ("MSETEX 2 a 1", "ERR wrong number of key-value pairs"),
            ("MSETEX 2 a 1 b", "ERR wrong number of key-value pairs"),
            ("MSETEX 2147483647 a 1", "ERR wrong number of key-value pairs"),
            ("MSETEX 1073741824 a 1", "ERR wrong number of key-value pairs"),
            ("MSETEX 2 a 1 EX 100", "ERR syntax error"),
            ("MSETEX 1 a 1 b 2", "ERR syntax error"),
            ("MSETEX 1 a 1 NX XX", "ERR syntax error"),
            ("MSETEX 1 a 1 XX NX", "ERR syntax error"),
            ("MSETEX 2 a 1 b 2 EX 10 PX 10", "ERR syntax error"),
            ("MSETEX 2 a 1 b 2 EX 10 KEEPTTL", "ERR syntax error"),
            ("MSETEX 2 a 1 b 2 KEEPTTL PXAT 10", "ERR syntax error"),
            ("MSETEX 2 a 1 b 2 EX", "ERR syntax error"),
            ("MSETEX 2 a 1 b 2 GET", "ERR syntax error"),
            ("MSETEX 2 a 1 b 2 IFEQ x", "ERR syntax error"),
            ("MSETEX 2 a 1 b 2 PERSIST", "ERR syntax error"),
            ("MSETEX 2 a 1 b 2 FOO", "ERR syntax error"),
            ("MSETEX 2 a 1 b 2 EX 0", "ERR invalid expire time in 'msetex' command"),
            ("MSETEX 2 a 1 b 2 PX -1", "ERR invalid expire time in 'msetex' command"),
            ("MSETEX 2 a 1 b 2 EXAT 0", "ERR invalid expire time in 'msetex' command"),
            ("MSETEX 2 a 1 b 2 EX 9223372036854775807", "ERR invalid expire time in 'msetex' command"),
            ("MSETEX 2 a 1 b 2 EX x", "ERR value is not an integer or out of range"),
            ("MSETEX 2 a", "ERR wrong number of arguments for 'msetex' command"),
            ("MSETEX", "ERR wrong number of arguments for 'msetex' command"),
        ];
        for (command, refusal) in cases {
            // "EX 100" taken for a pair would store a key.
            if command != "MSETEX 2 a 1 EX 100" {
                assert_eq!(client.call(command), error(refusal), "{command}");
            }
            assert_eq!(client.call("DBSIZE"), int(0), "{command}");
        }
        assert_eq!(client.call("MSETEX 2 a 1 EX 100"), int(1), "a key may have any name");
        assert_eq!(client.call("MGET a EX"), Value::bulks(&["1", "100"]));
    });
}

#[test]
fn msetex_stores_all_or_none() {
    on_shards(&[], |server| {
        let mut client = server.client();
        let pairs = |value: &str| (0..16).map(|i| format!(" key:{i} {value}")).collect::<String>();
        let names = (0..16).map(|i| format!(" key:{i}")).collect::<String>();
        let values = |client: &mut Client| client.call(&format!("MGET{names}")).items().to_vec();
        for there in 0..16 {
            assert_eq!(client.call("FLUSHALL"), Value::ok());
            assert_eq!(client.call(&format!("SET key:{there} old")), Value::ok());
            assert_eq!(client.call(&format!("MSETEX 16{} NX EX 100", pairs("new"))), int(0));
            assert_eq!(client.call("DBSIZE"), int(1));
            assert_eq!(client.call(&format!("GET key:{there}")), bulk("old"));
            assert_eq!(client.call(&format!("TTL key:{there}")), int(-1));
            assert_eq!(client.call(&format!("MSETEX 16{}", pairs("x"))), int(1));
            assert_eq!(client.call(&format!("DEL key:{there}")), int(1));
            assert_eq!(client.call(&format!("MSETEX 16{} XX", pairs("y"))), int(0));
            assert_eq!(values(&mut client).iter().filter(|value| **value == bulk("x")).count(), 15);
            let absent = format!("MSETEX 1 key:{there} z NX PX 100000");
            assert_eq!(client.call(&absent), int(1));
            assert_eq!(client.call(&format!("MSETEX 16{} XX EX 100", pairs("y"))), int(1));
            assert_eq!(values(&mut client), vec![bulk("y"); 16]);
        }
    });
}

#[test]
fn msetex_sets_and_keeps_deadlines() {
    on_shards(&[], |server| {
        let mut client = server.client();
        let keys = ["a", "b", "c", "d"];
        let mut ttls = |line: &str| -> Vec<i64> {
            assert_eq!(client.call(line), int(1), "{line}");
            keys.map(|key| client.call(&format!("PTTL {key}")).number()).to_vec()
        };
        let near = |ttls: Vec<i64>, ttl_ms: i64| ttls.iter().all(|ttl| (ttl_ms - 5_000..=ttl_ms).contains(ttl));
        assert!(near(ttls("MSETEX 4 a 1 b 2 c 3 d 4 EX 100"), 100_000));
        assert!(near(ttls("MSETEX 4 a 1 b 2 c 3 d 4 KEEPTTL"), 100_000));
        assert!(near(ttls("MSETEX 4 a 1 b 2 c 3 d 4 px 200000"), 200_000));
        assert!(near(ttls("MSETEX 4 a 1 b 2 c 3 d 4 PX 300000 XX"), 300_000));
        assert_eq!(ttls("MSETEX 4 a 1 b 2 c 3 d 4"), [-1; 4], "as SET does");
        assert!(near(ttls(&format!("MSETEX 4 a 1 b 2 c 3 d 4 EXAT {}", now_ms() / 1000 + 400)), 400_000));
        let at_ms = now_ms() + 500_000;
        assert!(near(ttls(&format!("MSETEX 4 a 1 b 2 c 3 d 4 XX PXAT {at_ms}")), 500_000));
        for key in keys {
            assert_eq!(client.call(&format!("PEXPIRETIME {key}")), int(at_ms as i64));
        }
        assert_eq!(client.call("MSETEX 3 a 1 a 2 a 3 EX 100"), int(1));
        assert_eq!(client.call("GET a"), bulk("3"), "the last one stays");
        assert_eq!(client.call("MSETEX 4 a 1 b 2 c 3 d 4 PXAT 1"), int(1));
        assert_eq!(client.call("EXISTS a b c d"), int(0), "it is over already");
        assert_eq!(client.call("MSETEX 4 a 1 b 2 c 3 d 4 PX 20"), int(1));
        assert!(wait_until(Duration::from_secs(10), || client.call("EXISTS a b c d") == int(0)));
    });
}

#[test]
fn msetex_runs_inside_transactions() {
    on_shards(&[], |server| {
        let mut client = server.client();
        let commands =
            ["MSETEX 3 a 1 b 2 c 3 EX 100 NX", "MSETEX 2 c 4 d 5 NX", "MGET a b c d", "MSETEX 2 a x", "TTL b"];
        let reply = exec(&mut client, &commands);
        let values = Value::Array(vec![bulk("1"), bulk("2"), bulk("3"), Value::NullBulk]);
        let wrong = error("ERR wrong number of key-value pairs");
        assert_eq!(reply, Value::Array(vec![int(1), int(0), values, wrong, int(100)]));
    });
}

/// A subscriber to everything in all databases, and what it has heard since it was last asked: event and channel.
struct Events(Client);

impl Events {
    fn of(server: &crate::common::Server) -> Events {
        let mut client = server.client();
        assert_eq!(client.call("PSUBSCRIBE __keyevent@*").items().len(), 3);
        Events(client)
    }

    fn heard(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        while let Some(message) = self.0.read_within(QUIET) {
            let [_, _, channel, key] = message.items() else { panic!("{message:?}") };
            let channel = channel.text();
            heard.push(format!("{} {}", channel.trim_start_matches("__keyevent@"), key.text()));
        }
        heard
    }
}

#[test]
fn commands_over_shards_send_their_events() {
    on_shards_and_redis(&["--notify-keyspace-events", "EA"], |server| {
        let mut client = server.client();
        let mut events = Events::of(server);
        let cases: &[(&str, &[&str])] = &[
            ("MSET a 1 b 2", &["0__:set a", "0__:set b"]),
            ("RENAME a z", &["0__:rename_from a", "0__:rename_to z"]),
            ("RENAME b z", &["0__:rename_from b", "0__:rename_to z"]),
            ("MSETNX z 1 y 2", &[]),
            ("MSETNX w 1 y 2", &["0__:set w", "0__:set y"]),
            ("COPY z x", &["0__:copy_to x"]),
            ("COPY z x", &[]),
            ("COPY z x REPLACE", &["0__:copy_to x"]),
            ("COPY z q DB 3", &["3__:copy_to q"]),
            ("MOVE z 2", &["0__:move_from z", "2__:move_to z"]),
            ("MOVE z 2", &[]),
            ("RENAMENX x y", &[]),
            ("RENAMENX x v", &["0__:rename_from x", "0__:rename_to v"]),
            ("DEL v w y nothing", &["0__:del v", "0__:del w", "0__:del y"]),
            ("SWAPDB 0 2", &[]),
            ("FLUSHALL", &[]),
        ];
        let sorted = |mut lines: Vec<String>| {
            lines.sort();
            lines
        };
        for (command, expected) in cases {
            assert!(!client.call(command).is_error(), "{command}");
            let mut heard = events.heard();
            // That there was no such key before is the class of events that 7.0 calls `n` and does not send by `A`.
            heard.retain(|line| !line.contains(":new "));
            let expected: Vec<String> = expected.iter().map(|line| line.to_string()).collect();
            assert_eq!(sorted(heard), sorted(expected), "{command}");
        }
        assert_eq!(exec(&mut client, &["MSET a 1 b 2", "RENAME a c", "DEL b c"]).items().len(), 3);
        let all = ["0__:del b", "0__:del c", "0__:rename_from a", "0__:rename_to c", "0__:set a", "0__:set b"];
        assert_eq!(sorted(events.heard()), all);
    });
}

#[test]
fn msetex_sends_set_and_expire() {
    on_shards(&["--notify-keyspace-events", "EA"], |server| {
        let mut client = server.client();
        let mut events = Events::of(server);
        assert_eq!(client.call("MSETEX 3 a 1 b 2 c 3 EX 100"), int(1));
        let heard = events.heard();
        for key in ["a", "b", "c"] {
            let mine: Vec<&String> = heard.iter().filter(|line| line.ends_with(&format!(" {key}"))).collect();
            assert_eq!(mine, [&format!("0__:set {key}"), &format!("0__:expire {key}")], "in this order");
        }
        assert_eq!(client.call("MSETEX 3 a 1 b 2 c 3 KEEPTTL"), int(1));
        assert_eq!(events.heard().len(), 3);
        assert_eq!(client.call("MSETEX 3 a 1 b 2 c 3 NX"), int(0));
        assert_eq!(events.heard(), Vec::<String>::new());
    });
}

#[test]
fn a_thousand_keys_twice_each() {
    const KEYS: usize = 1_000;
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        let names: Vec<String> = (0..KEYS).chain(0..KEYS).map(|i| format!("key:{i}")).collect();
        let with = |name: &str| std::iter::once(name.to_string()).chain(names.iter().cloned()).collect::<Vec<_>>();
        let mset: Vec<String> = std::iter::once("MSET".to_string())
            .chain(names.iter().enumerate().flat_map(|(at, key)| [key.clone(), at.to_string()]))
            .collect();
        let inside: [Vec<String>; 6] = [mset, with("MGET"), with("EXISTS"), with("TOUCH"), with("DEL"), with("MGET")];
        let values = Value::bulks(&(0..2 * KEYS).map(|at| (KEYS + at % KEYS).to_string()).collect::<Vec<_>>());
        let expected = [
            Value::ok(),
            values,
            int(2 * KEYS as i64),
            int(2 * KEYS as i64),
            int(KEYS as i64),
            Value::Array(vec![Value::NullBulk; 2 * KEYS]),
        ];
        assert_eq!(client.pipeline(&inside), expected);
        client.send_raw(&encode(&words("MULTI")));
        inside.iter().for_each(|args| client.send_raw(&encode(args)));
        client.send_raw(&encode(&words("EXEC")));
        assert_eq!(client.read(), Value::ok());
        inside.iter().for_each(|_| assert_eq!(client.read(), simple("QUEUED")));
        assert_eq!(client.read(), Value::Array(expected.to_vec()));
        let mut watch = with("WATCH");
        assert_eq!(client.command(&watch), Value::ok());
        watch.swap(1, KEYS);
        assert_eq!(client.command(&watch), Value::ok());
        assert_eq!(client.call("SET key:999 1"), Value::ok());
        assert_eq!(exec(&mut client, &["PING"]), Value::NullArray);
    });
}

#[test]
fn keys_with_one_deadline_die_in_one_moment() {
    const ROUNDS: usize = 3_000;
    on_shards(&[], |server| {
        let names: Vec<String> = (0..8).map(|i| format!("key:{i}")).collect();
        let pairs: String = names.iter().map(|key| format!(" {key} v")).collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for reader in 0..3 {
                let (names, done) = (&names, &done);
                let mut client = server.client();
                scope.spawn(move || {
                    let all = names.join(" ");
                    let (mut alive, mut dead) = (0, 0);
                    while !done.load(Ordering::Relaxed) {
                        let replies = match reader {
                            0 => vec![client.call(&format!("MGET {all}"))],
                            1 => exec(&mut client, &[&format!("MGET {all}")]).items().to_vec(),
                            _ => {
                                let gets: Vec<String> = names.iter().map(|key| format!("GET {key}")).collect();
                                let gets: Vec<&str> = gets.iter().map(String::as_str).collect();
                                vec![exec(&mut client, &gets)]
                            }
                        };
                        let values = replies[0].items();
                        assert!(
                            values.windows(2).all(|pair| pair[0] == pair[1]),
                            "one moment, two answers: {values:?}"
                        );
                        match values[0] {
                            Value::NullBulk => dead += 1,
                            _ => alive += 1,
                        }
                    }
                    assert!(alive > 0 && dead > 0, "reader {reader} saw {alive} alive and {dead} dead");
                });
            }
            let mut client = server.client();
            for round in 0..ROUNDS {
                let ttl_ms = 1 + round % 5;
                let reply = client.call(&format!("MSETEX 8{pairs} PX {ttl_ms}"));
                if reply != int(1) {
                    done.store(true, Ordering::Relaxed);
                }
                assert_eq!(reply, int(1));
                if round % 3 == 0 {
                    std::thread::sleep(Duration::from_millis(ttl_ms as u64));
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}
