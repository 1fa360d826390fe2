//! Pub/sub and keyspace notifications over every shard: who is subscribed hears everything once, in the order of its
//! publisher; every write and every death is announced by the events that Redis announces.
//!
//! Connections are spread over the shards, so a handful of them makes publishers and subscribers meet across shards.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use crate::common::{
    Client, Server, Value, bulk, encode, error, int, on_embers, on_every_server, simple, wait_until, words,
};

/// Enough that each of three shards has several.
const SUBSCRIBERS: usize = 9;
/// After so long without a message no more is expected.
const QUIET: Duration = Duration::from_millis(30);
const PATIENCE: Duration = Duration::from_secs(10);

fn array(kind: &str, name: impl AsRef<[u8]>, count: i64) -> Value {
    Value::Array(vec![bulk(kind), bulk(name), int(count)])
}

fn push(kind: &str, name: &str, count: i64) -> Value {
    Value::Push(vec![bulk(kind), bulk(name), int(count)])
}

fn message(channel: &str, payload: impl AsRef<[u8]>) -> Value {
    Value::Array(vec![bulk("message"), bulk(channel), bulk(payload)])
}

fn pmessage(pattern: &str, channel: &str, payload: &str) -> Value {
    Value::Array(vec![bulk("pmessage"), bulk(pattern), bulk(channel), bulk(payload)])
}

/// What one connection listens to costs nobody else much time, nor does its end.
#[test]
fn one_connection_may_listen_to_very_much() {
    on_embers(&["--client-output-buffer-limit", "pubsub 0 0 0"], |server| {
        let (mut listener, mut other) = (server.client(), server.client());
        let mut longest = Duration::ZERO;
        for thousand in 0..100 {
            let names = (0..1_000).map(|n| format!("channel:{thousand}:{n}"));
            let args: Vec<String> = std::iter::once("SUBSCRIBE".to_owned()).chain(names).collect();
            listener.send_raw(&encode(&args));
            (0..1_000).for_each(|_| drop(listener.read()));
            let begin = std::time::Instant::now();
            assert_eq!(other.call("PING"), simple("PONG"));
            longest = longest.max(begin.elapsed());
        }
        assert_eq!(other.call("PUBLISH channel:77:500 hello"), int(1));
        assert_eq!(listener.read(), message("channel:77:500", "hello"));
        drop(listener);
        let gone = || other.call("PUBSUB NUMSUB channel:77:500").items()[1] == int(0);
        assert!(wait_until(PATIENCE, gone));
        eprintln!("others waited for {longest:?} at the most");
    });
}

/// A connection that has subscribed and read the confirmation.
fn subscriber(server: &Server, command: &str) -> Client {
    let mut client = server.client();
    client.send(command);
    for _ in 1..words(command).len() {
        assert!(!client.read().is_error(), "{command}");
    }
    client
}

#[test]
fn a_message_reaches_every_subscriber_on_every_shard() {
    on_every_server(&[], |server| {
        let mut subscribers: Vec<_> = (0..SUBSCRIBERS).map(|_| subscriber(server, "SUBSCRIBE news")).collect();
        let payload = b"binary \0\r\n\xff";
        for _ in 0..4 {
            // A connection of its own, hence from another shard each time.
            let heard = server.client().command(&[&b"PUBLISH"[..], b"news", payload]);
            assert_eq!(heard, int(SUBSCRIBERS as i64));
            for client in &mut subscribers {
                assert_eq!(client.read(), message("news", payload));
            }
        }
        assert_eq!(server.client().call("PUBLISH other x"), int(0));
        assert_eq!(subscribers[0].read_within(QUIET), None);
    });
}

#[test]
fn subscriptions_are_counted_per_connection_and_confirmed_one_by_one() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        client.send("SUBSCRIBE a b a");
        assert_eq!(client.read(), array("subscribe", "a", 1));
        assert_eq!(client.read(), array("subscribe", "b", 2));
        assert_eq!(client.read(), array("subscribe", "a", 2));
        assert_eq!(client.call("PSUBSCRIBE n*"), array("psubscribe", "n*", 3));
        assert_eq!(client.call("UNSUBSCRIBE nothing"), array("unsubscribe", "nothing", 3));
        assert_eq!(client.call("UNSUBSCRIBE a"), array("unsubscribe", "a", 2));
        assert_eq!(client.call("PUNSUBSCRIBE"), array("punsubscribe", "n*", 1));
        assert_eq!(client.call("UNSUBSCRIBE"), array("unsubscribe", "b", 0));
        let none = Value::Array(vec![bulk("unsubscribe"), Value::NullBulk, int(0)]);
        assert_eq!(client.call("UNSUBSCRIBE"), none);
        assert_eq!(client.call("GET k"), Value::NullBulk, "an ordinary connection again");
    });
}

#[test]
fn a_pattern_and_a_channel_deliver_the_message_twice() {
    on_every_server(&[], |server| {
        let mut client = subscriber(server, "SUBSCRIBE news.art");
        client.call("PSUBSCRIBE news.*");
        client.call("PSUBSCRIBE n?ws.[a-c]rt");
        client.call("PSUBSCRIBE other*");
        assert_eq!(server.client().call("PUBLISH news.art x"), int(3));
        assert_eq!(client.read(), message("news.art", "x"));
        let mut patterns = [client.read(), client.read()];
        patterns.sort();
        let expected = ["n?ws.[a-c]rt", "news.*"].map(|p| pmessage(p, "news.art", "x"));
        assert_eq!(patterns, expected);
        assert_eq!(client.read_within(QUIET), None);
    });
}

#[test]
fn sharded_channels_are_a_world_of_their_own() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("SUBSCRIBE news"), array("subscribe", "news", 1));
        assert_eq!(client.call("PSUBSCRIBE *"), array("psubscribe", "*", 2));
        client.send("SSUBSCRIBE news other news");
        for (name, count) in [("news", 1), ("other", 2), ("news", 2)] {
            assert_eq!(client.read(), array("ssubscribe", name, count), "counted for themselves");
        }
        let mut publisher = server.client();
        assert_eq!(publisher.call("SPUBLISH news x"), int(1));
        assert_eq!(client.read(), Value::bulks(&["smessage", "news", "x"]));
        assert_eq!(publisher.call("SPUBLISH nowhere x"), int(0));
        assert_eq!(publisher.call("PUBLISH news y"), int(2));
        assert_eq!(client.read(), message("news", "y"));
        assert_eq!(client.read(), pmessage("*", "news", "y"));

        let counts = Value::Array(vec![bulk("news"), int(1), bulk("nowhere"), int(0)]);
        assert_eq!(publisher.call("PUBSUB SHARDNUMSUB news nowhere"), counts);
        assert_eq!(publisher.call("PUBSUB SHARDCHANNELS o*"), Value::bulks(&["other"]));
        let refused = "ERR unknown subcommand or wrong number of arguments for 'SHARDCHANNELS'. Try PUBSUB HELP.";
        assert_eq!(publisher.call("PUBSUB SHARDCHANNELS o* n*"), error(refused));
        assert_eq!(publisher.call("PUBSUB CHANNELS"), Value::bulks(&["news"]));
        assert_eq!(server.info("pubsubshard_channels").as_deref(), Some("2"));
        assert!(publisher.call("CLIENT LIST TYPE pubsub").text().contains(" sub=1 psub=1 ssub=2 "));

        assert_eq!(client.call("SUNSUBSCRIBE nothing"), array("sunsubscribe", "nothing", 2));
        assert_eq!(client.call("SUNSUBSCRIBE news"), array("sunsubscribe", "news", 1));
        assert_eq!(client.call("SUNSUBSCRIBE"), array("sunsubscribe", "other", 0));
        let none = Value::Array(vec![bulk("sunsubscribe"), Value::NullBulk, int(0)]);
        assert_eq!(client.call("SUNSUBSCRIBE"), none);
        assert_eq!(publisher.call("PUBSUB SHARDCHANNELS"), Value::Array(vec![]));

        client.call("SSUBSCRIBE again");
        assert_eq!(client.call("RESET"), simple("RESET"));
        assert_eq!(publisher.call("SPUBLISH again x"), int(0));
        assert_eq!(client.call("MULTI"), Value::ok());
        for line in ["SSUBSCRIBE a", "SPUBLISH a b"] {
            assert_eq!(client.call(line), simple("QUEUED"));
        }
        let refused = error("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client");
        assert_eq!(client.call("EXEC"), Value::Array(vec![refused, int(0)]));
    });
}

#[test]
fn a_sharded_message_reaches_every_shard() {
    on_every_server(&[], |server| {
        let mut subscribers: Vec<_> = (0..SUBSCRIBERS).map(|_| subscriber(server, "SSUBSCRIBE news")).collect();
        assert_eq!(server.client().call("SPUBLISH news x"), int(SUBSCRIBERS as i64));
        for client in &mut subscribers {
            assert_eq!(client.read(), Value::bulks(&["smessage", "news", "x"]));
        }
        let mut client = server.client3();
        assert_eq!(client.call("SSUBSCRIBE news"), push("ssubscribe", "news", 1));
        assert_eq!(server.client().call("SPUBLISH news y"), int(SUBSCRIBERS as i64 + 1));
        assert_eq!(client.read(), Value::Push(vec![bulk("smessage"), bulk("news"), bulk("y")]));
    });
}

#[test]
fn resp2_allows_few_commands_while_subscribed() {
    on_every_server(&[], |server| {
        let mut client = subscriber(server, "SUBSCRIBE news");
        let refused = |name: &str| {
            error(&format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed \
                 in this context"
            ))
        };
        assert_eq!(client.call("GET k"), refused("get"));
        assert_eq!(client.call("SET k v"), refused("set"));
        assert_eq!(client.call("PUBLISH news x"), refused("publish"));
        assert_eq!(client.call("CLIENT ID"), refused("client|id"));
        assert_eq!(client.call("PING"), Value::bulks(&["pong", ""]));
        assert_eq!(client.call("PING hello"), Value::bulks(&["pong", "hello"]));
        assert_eq!(client.call("NOSUCH"), error("ERR unknown command 'NOSUCH', with args beginning with: "));
        assert_eq!(client.call("RESET"), simple("RESET"));
        assert_eq!(client.call("GET k"), Value::NullBulk);
        client.call("SUBSCRIBE news");
        assert_eq!(client.call("QUIT"), Value::ok());
        assert!(client.is_closed_by_server());
    });
}

#[test]
fn resp3_pushes_messages_between_ordinary_replies() {
    on_every_server(&[], |server| {
        let mut client = server.client3();
        assert_eq!(client.call("SUBSCRIBE news"), push("subscribe", "news", 1));
        assert_eq!(client.call("PSUBSCRIBE n*"), push("psubscribe", "n*", 2));
        assert_eq!(client.call("SET k v"), Value::ok(), "commands go on as before");
        assert_eq!(client.call("PING"), simple("PONG"));
        assert_eq!(server.client().call("PUBLISH news x"), int(2));
        let expected = Value::Push(vec![bulk("message"), bulk("news"), bulk("x")]);
        assert_eq!(client.read(), expected);
        let expected = ["pmessage", "n*", "news", "x"].map(bulk).to_vec();
        assert_eq!(client.read(), Value::Push(expected));
        assert_eq!(client.call("GET k"), bulk("v"));
        assert_eq!(client.call("PUNSUBSCRIBE n*"), push("punsubscribe", "n*", 1));
        assert_eq!(client.call("UNSUBSCRIBE"), push("unsubscribe", "news", 0));
    });
}

/// As in Redis 7.2: 7.0 pushes before the reply, but for EXEC.
#[test]
fn what_one_tells_oneself_in_resp3_comes_behind_the_reply() {
    on_embers(&["--notify-keyspace-events", "KA"], |server| {
        let mut client = server.client3();
        client.call("SUBSCRIBE news");
        client.call("SSUBSCRIBE news");
        let own = |kind: &str, text: &str| Value::Push(vec![bulk(kind), bulk("news"), bulk(text)]);
        client.send("PUBLISH news x");
        assert_eq!([client.read(), client.read()], [int(1), own("message", "x")]);
        client.send("SPUBLISH news x");
        assert_eq!([client.read(), client.read()], [int(1), own("smessage", "x")]);
        // Whose keys are on whichever shard.
        for key in 0..6 {
            let script = format!(
                "redis.call('publish', 'news', 'a') redis.call('set', KEYS[1], 1) return redis.call('publish', 'news', '{key}')"
            );
            client.send_raw(&encode(&["EVAL", &script, "1", &format!("key:{key}")]));
            let expected = [int(1), own("message", "a"), own("message", &key.to_string())];
            assert_eq!([client.read(), client.read(), client.read()], expected, "key:{key}");
        }
        for line in ["MULTI", "PUBLISH news x", "PING"] {
            client.call(line);
        }
        client.send("EXEC");
        let expected = [Value::Array(vec![int(1), simple("PONG")]), own("message", "x")];
        assert_eq!([client.read(), client.read()], expected);
        // In a pipeline each behind its own reply.
        let line = |i: usize| encode(&words(&format!("PUBLISH news {i}")));
        client.send_raw(&(0..20).flat_map(line).collect::<Vec<u8>>());
        for i in 0..20 {
            assert_eq!([client.read(), client.read()], [int(1), own("message", &i.to_string())]);
        }
        client.assert_in_step();
    });
}

#[test]
fn events_of_ones_own_commands_come_behind_their_replies() {
    on_embers(&["--notify-keyspace-events", "KA", "--enable-debug-command", "yes"], |server| {
        server.delay_shards(200);
        let mut client = server.client3();
        client.call("PSUBSCRIBE __keyspace*");
        for round in 0..30 {
            let key = format!("key:{round}");
            let event = |name: &str| {
                let channel = format!("__keyspace@0__:{key}");
                Value::Push(["pmessage", "__keyspace*", &channel, name].map(bulk).to_vec())
            };
            client.send(&format!("SET {key} 1"));
            assert_eq!([client.read(), client.read()], [Value::ok(), event("set")]);
            client.send(&format!("DEL {key} other:{round}"));
            assert_eq!([client.read(), client.read()], [int(1), event("del")]);
        }
    });
}

/// On one shard the first message of a script came twice: the script had begun again.
/// Who begins to listen was told what a command before that had caused.
#[test]
fn who_begins_to_listen_hears_what_happens_from_then_on() {
    on_every_server(&["--notify-keyspace-events", "KEA"], |server| {
        // Somebody on every shard listens already.
        let _listening: Vec<Client> = (0..8).map(|_| subscriber(server, "SUBSCRIBE other")).collect();
        for round in 0..50 {
            let mut client = server.client();
            let lines = [
                format!("SET before:{round} v"),
                format!("SET {{before}}:{round} v"),
                "SUBSCRIBE __keyevent@0__:set".to_owned(),
                "PSUBSCRIBE __keyspace@0__:*".to_owned(),
                "PING".to_owned(),
            ];
            client.send_raw(&lines.iter().flat_map(|line| encode(&words(line))).collect::<Vec<u8>>());
            assert_eq!((client.read(), client.read()), (Value::ok(), Value::ok()));
            assert_eq!(client.read(), array("subscribe", "__keyevent@0__:set", 1));
            assert_eq!(client.read(), array("psubscribe", "__keyspace@0__:*", 2));
            assert_eq!(client.read(), Value::bulks(&["pong", ""]));
            server.client().call("SET after v");
            assert_eq!(client.read(), pmessage("__keyspace@0__:*", "__keyspace@0__:after", "set"));
            assert_eq!(client.read(), message("__keyevent@0__:set", "after"));
        }
    });
}

#[test]
fn what_a_script_publishes_is_told_once() {
    on_every_server(&[], |server| {
        let mut listener = subscriber(server, "SUBSCRIBE news");
        let mut client = server.client();
        let publish = |text: &str| format!("redis.call('publish', 'news', '{text}')");
        let set = |key: &str| format!("redis.call('set', {key}, redis.call('incr', 'runs'))");
        let scripts = [
            vec![publish("a"), publish("b")],
            vec![publish("a"), set("KEYS[1]"), publish("b"), set("KEYS[1]"), publish("c")],
            vec![set("KEYS[1]"), publish("a"), set("'other'"), publish("b")],
            vec![publish("a"), set("'other'"), "return redis.error_reply('no')".to_owned()],
        ];
        for script in scripts {
            client.send_raw(&encode(&["EVAL", &script.join(" "), "1", "key"]));
            client.read();
            for text in script.iter().filter_map(|line| line.strip_prefix("redis.call('publish', 'news', '")) {
                let expected = Value::Array(vec![bulk("message"), bulk("news"), bulk(&text[..1])]);
                assert_eq!(listener.read(), expected, "{script:?}");
            }
        }
        assert_eq!(client.call("PUBLISH news end"), int(1));
        assert_eq!(listener.read(), Value::Array(["message", "news", "end"].map(bulk).to_vec()));
        assert_eq!(client.call("GET runs"), bulk("5"));
    });
}

/// It may be long until a command that waits has its reply.
#[test]
fn who_waits_for_a_key_hears_messages_meanwhile() {
    on_every_server(&[], |server| {
        let (mut client, mut other) = (server.client3(), server.client());
        client.call("SUBSCRIBE news");
        client.send("BLPOP nothing 0");
        assert!(wait_until(PATIENCE, || server.info("blocked_clients").as_deref() == Some("1")));
        assert_eq!(other.call("PUBLISH news x"), int(1));
        assert_eq!(client.read(), Value::Push(["message", "news", "x"].map(bulk).to_vec()));
        assert_eq!(other.call("RPUSH nothing y"), int(1));
        assert_eq!(client.read(), Value::bulks(&["nothing", "y"]));
    });
}

#[test]
fn pubsub_reports_channels_and_patterns_of_all_shards() {
    on_every_server(&[], |server| {
        let subscribers: Vec<_> =
            (0..SUBSCRIBERS).map(|i| subscriber(server, &format!("SUBSCRIBE shared own.{i}"))).collect();
        let patterns: Vec<_> =
            (0..SUBSCRIBERS).map(|i| subscriber(server, &format!("PSUBSCRIBE shared* p{}*", i % 2))).collect();
        let mut client = server.client();
        let channels = |client: &mut Client, command: &str| {
            let mut names: Vec<String> = client.call(command).items().iter().map(Value::text).collect();
            names.sort();
            names
        };
        let mut expected: Vec<String> = (0..SUBSCRIBERS).map(|i| format!("own.{i}")).collect();
        assert_eq!(channels(&mut client, "PUBSUB CHANNELS own.*"), expected);
        expected.push("shared".into());
        assert_eq!(channels(&mut client, "PUBSUB CHANNELS"), expected);
        let all = SUBSCRIBERS as i64;
        assert_eq!(
            client.call("PUBSUB NUMSUB shared own.3 nothing"),
            Value::Array(vec![bulk("shared"), int(all), bulk("own.3"), int(1), bulk("nothing"), int(0)])
        );
        assert_eq!(client.call("PUBSUB NUMPAT"), int(3), "patterns, not subscriptions");
        assert_eq!(client.call("PUBLISH shared x"), int(2 * all));
        drop((subscribers, patterns));
        let forgotten = || {
            let mut client = server.client();
            client.call("PUBSUB CHANNELS").items().is_empty()
                && client.call("PUBSUB NUMPAT") == int(0)
                && client.call("PUBLISH shared x") == int(0)
        };
        assert!(wait_until(PATIENCE, forgotten), "those who left are forgotten");
    });
}

#[test]
fn messages_of_one_publisher_keep_their_order() {
    on_every_server(&[], |server| {
        const PUBLISHERS: usize = 4;
        const MESSAGES: usize = 1_000;
        let mut subscribers: Vec<_> = (0..SUBSCRIBERS)
            .map(|i| match i % 2 {
                0 => subscriber(server, "SUBSCRIBE news"),
                _ => subscriber(server, "PSUBSCRIBE ne*"),
            })
            .collect();
        let publishers: Vec<_> = (0..PUBLISHERS)
            .map(|publisher| {
                let mut client = server.client();
                thread::spawn(move || {
                    let commands: Vec<_> =
                        (0..MESSAGES).map(|i| words(&format!("PUBLISH news {publisher}:{i}"))).collect();
                    client.pipeline(&commands)
                })
            })
            .collect();
        for client in &mut subscribers {
            let mut next = [0; PUBLISHERS];
            for _ in 0..PUBLISHERS * MESSAGES {
                let received = client.read();
                let payload = received.items().last().expect("a payload").text();
                let (publisher, i) = payload.split_once(':').expect("publisher:number");
                let publisher: usize = publisher.parse().expect("a number");
                assert_eq!(i, next[publisher].to_string(), "of publisher {publisher}");
                next[publisher] += 1;
            }
        }
        for publisher in publishers {
            let replies = publisher.join().expect("no publisher fails");
            assert!(replies.iter().all(|r| *r == int(SUBSCRIBERS as i64)));
        }
    });
}

#[test]
fn a_subscriber_that_never_reads_holds_up_nobody() {
    on_every_server(&[], |server| {
        const PAYLOAD_BYTES: usize = 100_000;
        const MESSAGES: usize = 3_000; // 300 MB, far past the limit for subscribers
        const KEPT_BYTES_MAX: u64 = 160 << 20;
        let before = server.resident_bytes();
        let _deaf = subscriber(server, "SUBSCRIBE news");
        let mut listening = subscriber(server, "SUBSCRIBE news");
        let mut publisher = server.client();
        let payload = vec![b'x'; PAYLOAD_BYTES];
        for _ in 0..MESSAGES {
            let heard = publisher.command(&[&b"PUBLISH"[..], b"news", &payload]);
            assert!(heard == int(1) || heard == int(2), "{heard:?}");
            assert!(listening.read() == message("news", &payload));
        }
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < KEPT_BYTES_MAX, "{grown} bytes wait for a deaf subscriber");
    });
}

/// Runs `commands` and returns the events that a subscriber of everything hears, as `class key event`, with the classes
/// `K` (keyspace) and `E` (keyevent). Events of one key keep their order; keys are sorted, because those of different
/// shards come in either order.
fn events_of(server: &Server, commands: &[&str]) -> Vec<String> {
    let mut subscriber = server.client3();
    assert_eq!(subscriber.call("PSUBSCRIBE __key*__:*"), push("psubscribe", "__key*__:*", 1));
    let mut client = server.client();
    for command in commands {
        let reply = client.call(command);
        assert!(!reply.is_error(), "{command}: {reply:?}");
    }
    // Every shard has a part in the first reply, and sends it behind its events. These come behind that reply where it was
    // asked for before they were there, and before the next one.
    let mut events: Vec<Value> = Vec::new();
    for marker in ["DBSIZE", "PING"] {
        subscriber.send(marker);
        let received = std::iter::from_fn(|| Some(subscriber.read()));
        events.extend(received.take_while(|received| matches!(received, Value::Push(_))));
    }
    let mut events: Vec<(String, String)> = events
        .iter()
        .map(|received| {
            let [_, _, channel, payload] = received.items() else {
                panic!("a pmessage, not {received:?}");
            };
            let (channel, payload) = (channel.text(), payload.text());
            let (class, name) = channel.split_once("@0__:").expect("__class@0__:name");
            match class {
                "__keyspace" => (name.to_string(), format!("K {name} {payload}")),
                "__keyevent" => (payload.clone(), format!("E {payload} {name}")),
                _ => panic!("no class of events: {channel}"),
            }
        })
        .collect();
    events.sort_by(|(a, _), (b, _)| a.cmp(b));
    events.into_iter().map(|(_, event)| event).collect()
}

/// The events that come as keyevents, as `key event`.
fn keyevents(server: &Server, commands: &[&str]) -> Vec<String> {
    let events = events_of(server, commands);
    let events = events.iter().filter_map(|event| event.strip_prefix("E "));
    events.map(String::from).collect()
}

#[test]
fn nothing_is_announced_unless_asked_for() {
    on_every_server(&[], |server| {
        let commands = ["SET a 1", "EXPIRE a 100", "DEL a"];
        assert!(events_of(server, &commands).is_empty());
    });
}

#[test]
fn every_write_announces_its_event() {
    on_every_server(&["--notify-keyspace-events", "EA"], |server| {
        let check = |commands: &[&str], expected: &[&str]| {
            assert_eq!(keyevents(server, commands), expected, "{commands:?}");
        };
        check(&["SET a 1"], &["a set"]);
        check(&["SET a 1 EX 100"], &["a set", "a expire"]);
        check(&["SET a 1 KEEPTTL", "SET b 1 XX", "SET a 1 NX"], &["a set"]);
        check(&["SETEX a 100 1"], &["a set", "a expire"]);
        check(&["PSETEX a 100000 1"], &["a set", "a expire"]);
        check(&["SETNX a 1", "SETNX b 1"], &["b set"]);
        check(&["GETSET b 2"], &["b set"]);
        check(&["MSET a 1 b 2"], &["a set", "b set"]);
        check(&["MSETNX a 1 c 1", "MSETNX c 1"], &["c set"]);
        check(&["APPEND a 1"], &["a append"]);
        check(&["SETRANGE a 1 xx"], &["a setrange"]);
        check(&["SET n 1", "INCR n", "DECR n"], &["n set", "n incrby", "n incrby"]);
        check(&["INCRBY n 5", "DECRBY n 2"], &["n incrby", "n incrby"]);
        check(&["INCRBYFLOAT n 0.5"], &["n incrbyfloat"]);
        check(&["EXPIRE a 100", "PEXPIRE a 100000"], &["a expire", "a expire"]);
        check(&["EXPIREAT a 9999999999", "PEXPIREAT a 9999999999000"], &["a expire", "a expire"]);
        check(&["EXPIRE a 100 NX", "EXPIRE nothing 100"], &[]);
        check(&["PERSIST a", "PERSIST a"], &["a persist"]);
        check(&["GETEX a EX 100", "GETEX a", "GETEX a PERSIST"], &["a expire", "a persist"]);
        check(&["GETDEL a", "GETDEL a"], &["a del"]);
        check(&["DEL b nothing c"], &["b del", "c del"]);
        check(&["SET a 1", "UNLINK a"], &["a set", "a del"]);
        check(&["SET a 1", "RENAME a b"], &["a set", "a rename_from", "b rename_to"]);
        check(&["RENAMENX b a"], &["a rename_to", "b rename_from"]);
        check(&["COPY a b", "COPY a b"], &["b copy_to"]);
        check(&["GET a", "TTL a", "TOUCH a", "TYPE a"], &[]);
        check(&["EXPIRE a -1"], &["a del"]);
        check(&["SET a 1", "EXPIREAT a 1"], &["a set", "a del"]);
        check(&["FLUSHALL"], &[]);
    });
}

#[test]
fn events_name_the_database_and_both_kinds_of_channel() {
    on_every_server(&["--notify-keyspace-events", "KEA"], |server| {
        let mut subscriber = subscriber(server, "PSUBSCRIBE __key*@3__:*");
        let mut client = server.client();
        client.call("SET k 0");
        client.call("SELECT 3");
        client.call("SET k 3");
        let pattern = "__key*@3__:*";
        assert_eq!(subscriber.read(), pmessage(pattern, "__keyspace@3__:k", "set"));
        assert_eq!(subscriber.read(), pmessage(pattern, "__keyevent@3__:set", "k"));
        assert_eq!(subscriber.read_within(QUIET), None);
    });
}

#[test]
fn flags_choose_kinds_and_classes_of_events() {
    on_every_server(&["--enable-debug-command", "yes"], |server| {
        let mut client = server.client();
        let commands = ["SET k 1", "EXPIRE k 100", "DEL k", "GET k"];
        let mut heard = |flags: &str| {
            let set = ["CONFIG", "SET", "notify-keyspace-events", flags];
            assert_eq!(client.command(&set), Value::ok());
            events_of(server, &commands)
        };
        assert!(heard("").is_empty());
        assert!(heard("A").is_empty(), "neither K nor E");
        assert!(heard("KE").is_empty(), "no class");
        assert_eq!(heard("K$"), ["K k set"]);
        assert_eq!(heard("E$"), ["E k set"]);
        assert_eq!(heard("Eg"), ["E k expire", "E k del"]);
        assert_eq!(heard("Kg$"), ["K k set", "K k expire", "K k del"]);
        assert_eq!(heard("Ex"), [""; 0], "no death so far");
        assert_eq!(heard("EA"), ["E k set", "E k expire", "E k del"]);
        assert_eq!(heard("Em"), ["E k keymiss"]);
        assert_eq!(heard("En$"), ["E k new", "E k set"]);
        assert_eq!(heard("KEg$"), ["K k set", "E k set", "K k expire", "E k expire", "K k del", "E k del"]);
        let bad = client.call("CONFIG SET notify-keyspace-events Q");
        assert!(bad.is_error(), "{bad:?}");
    });
}

#[test]
fn what_takes_the_place_of_another_key_is_new() {
    on_every_server(&["--notify-keyspace-events", "Eng$"], |server| {
        for (command, event) in [("RENAME {k}a {k}b", "rename_to"), ("COPY {k}a {k}b REPLACE", "copy_to")] {
            server.client().pipeline(&["SET {k}a 1", "SET {k}b 2"].map(words));
            let events = keyevents(server, &[command]);
            assert_eq!(events[events.len() - 2..], ["{k}b new".to_string(), format!("{{k}}b {event}")]);
        }
    });
}

/// The keys in `__keyevent@0__:expired` messages, with how often each came.
fn expired_events(subscriber: &mut Client, count: usize) -> BTreeMap<String, usize> {
    let mut keys = BTreeMap::new();
    for _ in 0..count {
        let received = subscriber.read();
        let key = received.items().last().expect("a key").text();
        *keys.entry(key).or_insert(0) += 1;
    }
    assert_eq!(subscriber.read_within(QUIET), None, "one event too many");
    keys
}

fn once_each(count: usize) -> BTreeMap<String, usize> {
    (0..count).map(|i| (format!("key:{i}"), 1)).collect()
}

#[test]
fn each_key_that_dies_untouched_is_announced_exactly_once() {
    on_every_server(&["--notify-keyspace-events", "Ex"], |server| {
        const KEYS: usize = 2_000;
        let mut subscribers: Vec<_> = (0..3).map(|_| subscriber(server, "SUBSCRIBE __keyevent@0__:expired")).collect();
        let mut client = server.client();
        let commands: Vec<_> = (0..KEYS)
            .flat_map(|i| {
                [words(&format!("SET key:{i} v PX {}", 20 + i % 50)), words(&format!("SET live:{i} v EX 1000"))]
            })
            .collect();
        client.pipeline(&commands);
        for subscriber in &mut subscribers {
            assert_eq!(expired_events(subscriber, KEYS), once_each(KEYS));
        }
        assert_eq!(client.call("DBSIZE"), int(KEYS as i64));
        assert_eq!(server.info("expired_keys"), Some(KEYS.to_string()));
    });
}

#[test]
fn each_key_found_dead_by_access_is_announced_exactly_once() {
    on_embers(&["--notify-keyspace-events", "Ex", "--active-expire-enabled", "no"], |server| {
        const KEYS: usize = 300;
        let mut subscriber = subscriber(server, "SUBSCRIBE __keyevent@0__:expired");
        let mut client = server.client();
        for i in 0..KEYS {
            client.call(&format!("SET key:{i} v PX 1"));
        }
        client.call("SET later v PX 20 GET");
        let later = || server.client().call("EXISTS later") == int(0);
        assert!(wait_until(PATIENCE, later));
        let first = subscriber.read();
        assert_eq!(first, message("__keyevent@0__:expired", "later"));
        assert_eq!(subscriber.read_within(QUIET), None, "nobody touched the others");
        let touches = [
            "GET",
            "TTL",
            "EXISTS",
            "TYPE",
            "STRLEN",
            "PERSIST",
            "DEL",
            "INCR",
            "GETDEL",
            "TOUCH",
            "OBJECT ENCODING",
            "MGET",
        ];
        for i in 0..KEYS {
            client.call(&format!("{} key:{i}", touches[i % touches.len()]));
            client.call(&format!("GET key:{i}"));
        }
        assert_eq!(expired_events(&mut subscriber, KEYS), once_each(KEYS));
    });
}

#[test]
fn a_deadline_that_was_moved_or_removed_is_not_announced() {
    on_every_server(&["--notify-keyspace-events", "Ex"], |server| {
        let mut subscriber = subscriber(server, "SUBSCRIBE __keyevent@0__:expired");
        let mut client = server.client();
        client.pipeline(&[
            words("SET moved v PX 500"),
            words("SET persisted v PX 500"),
            words("SET replaced v PX 500"),
            words("SET deleted v PX 500"),
            words("SET renamed v PX 500"),
            words("SET kept v PX 500"),
            words("EXPIRE moved 1000"),
            words("PERSIST persisted"),
            words("SET replaced w"),
            words("DEL deleted"),
            words("RENAME renamed elsewhere"),
            words("SET kept w KEEPTTL"),
        ]);
        // Until then a machine has the time to run the whole pipeline.
        let mut dead = [subscriber.read(), subscriber.read()].map(|m| m.items()[2].text());
        dead.sort();
        assert_eq!(dead, ["elsewhere", "kept"]);
        // Its deadline is later than every one above, so that a wrong event would have come first.
        client.call("SET last v PX 20");
        assert_eq!(subscriber.read(), message("__keyevent@0__:expired", "last"));
        assert_eq!(client.call("EXISTS moved persisted replaced"), int(3));
    });
}

#[test]
fn the_expired_event_comes_when_the_key_is_gone() {
    on_every_server(&["--notify-keyspace-events", "Ex"], |server| {
        let mut subscriber = subscriber(server, "SUBSCRIBE __keyevent@0__:expired");
        let mut client = server.client();
        for i in 0..50 {
            client.call(&format!("SET key:{i} v PX {}", 5 + i));
        }
        for _ in 0..50 {
            let key = subscriber.read().items()[2].text();
            assert_eq!(client.call(&format!("EXISTS {key}")), int(0));
        }
    });
}

#[test]
fn a_subscription_in_mid_pipeline_takes_effect_there() {
    on_every_server(&[], |server| {
        let mut client = server.client3();
        let bytes: Vec<u8> = ["PUBLISH c 1", "SUBSCRIBE c", "PUBLISH c 2", "UNSUBSCRIBE c", "PUBLISH c 3"]
            .iter()
            .flat_map(|line| encode(&words(line)))
            .collect();
        client.send_raw(&bytes);
        let mut received: Vec<Value> = (0..6).map(|_| client.read()).collect();
        let own = Value::Push(vec![bulk("message"), bulk("c"), bulk("2")]);
        let at = received.iter().position(|value| *value == own);
        received.remove(at.expect("the second message"));
        assert_eq!(received, [int(0), push("subscribe", "c", 1), int(1), push("unsubscribe", "c", 0), int(0)]);
        client.assert_in_step();
    });
}

#[test]
fn a_message_reaches_those_alone_who_listen() {
    on_every_server(&[], |server| {
        let mut subscribers: Vec<_> = (0..60).map(|i| subscriber(server, &format!("SUBSCRIBE channel:{i}"))).collect();
        let mut publisher = server.client();
        let commands: Vec<_> = (0..60).map(|i| words(&format!("PUBLISH channel:{i} {i}"))).collect();
        assert!(publisher.pipeline(&commands).iter().all(|reply| *reply == int(1)));
        for (i, client) in subscribers.iter_mut().enumerate() {
            assert_eq!(client.read(), message(&format!("channel:{i}"), i.to_string()));
            assert_eq!(client.read_within(Duration::from_millis(1)), None);
        }
    });
}
