//! MULTI, EXEC and DISCARD: what is queued, what breaks a transaction, what its commands may do to their connection,
//! and what is left of a client that goes away in the middle.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::server::have_redis;
use crate::common::{Client, Kind, Server, Value, bulk, encode, error, int, on_embers, simple, wait_until, words};

const PATIENCE: Duration = Duration::from_secs(10);
/// Within this a reply that nothing holds back has come.
const AT_ONCE: Duration = Duration::from_secs(5);
/// A reply that has not come by now is held back.
const HELD: Duration = Duration::from_millis(150);

/// Runs `test` against EmberDB with one, two and four shards.
pub fn on_shards(flags: &[&str], test: impl Fn(&Server)) {
    for shards in [1, 2, 4] {
        let kind = Kind::Ember { shards };
        eprintln!("--- against {kind:?}");
        test(&Server::start(kind, flags));
    }
}

/// The same, and against redis-server.
pub fn on_shards_and_redis(flags: &[&str], test: impl Fn(&Server)) {
    on_shards(flags, &test);
    if have_redis() {
        eprintln!("--- against redis-server");
        test(&Server::start(Kind::Redis, flags));
    }
}

fn queued() -> Value {
    simple("QUEUED")
}

/// MULTI, these commands, EXEC; the reply to EXEC. All commands must be queued.
#[track_caller]
pub fn exec(client: &mut Client, commands: &[&str]) -> Value {
    let lines = std::iter::once("MULTI").chain(commands.iter().copied()).chain(["EXEC"]);
    let mut replies = client.pipeline(&lines.map(words).collect::<Vec<_>>());
    let reply = replies.pop().expect("of EXEC");
    assert_eq!(replies[0], Value::ok());
    assert!(replies[1..].iter().all(|reply| *reply == queued()), "{replies:?}");
    reply
}

#[test]
fn exec_runs_what_was_queued_and_discard_forgets_it() {
    on_shards_and_redis(&[], |server| {
        let (mut client, mut other) = (server.client(), server.client());
        assert_eq!(client.call("MULTI"), Value::ok());
        assert_eq!(client.call("SET a 1"), queued());
        assert_eq!(client.call("MSET b 2 c 3 d 4"), queued());
        assert_eq!(client.call("MGET a b c d"), queued());
        assert_eq!(other.call("EXISTS a b c d"), int(0));
        let values = Value::bulks(&["1", "2", "3", "4"]);
        assert_eq!(client.call("EXEC"), Value::Array(vec![Value::ok(), Value::ok(), values]));
        assert_eq!(other.call("EXISTS a b c d"), int(4));
        assert_eq!(client.call("MULTI"), Value::ok());
        assert_eq!(client.call("DEL a b c d"), queued());
        assert_eq!(client.call("DISCARD"), Value::ok());
        assert_eq!(client.call("EXISTS a b c d"), int(4));
        assert_eq!(exec(&mut client, &[]), Value::Array(vec![]));
        assert_eq!(client.call("EXEC"), error("ERR EXEC without MULTI"));
        assert_eq!(client.call("DISCARD"), error("ERR DISCARD without MULTI"));
        client.assert_in_step();
    });
}

#[test]
fn what_cannot_be_queued_breaks_the_transaction() {
    const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        for wrong in [
            "NOSUCHCOMMAND",
            "NOSUCHCOMMAND with arguments",
            "GET",
            "GET a b",
            "SET k",
            "MSET k",
            "CLIENT NOSUCH",
            "CLIENT",
            "CONFIG SET",
            "MULTI 1",
            "DISCARD 1",
            "WATCH",
            "UNWATCH 1",
            "DEL",
        ] {
            assert_eq!(client.call("MULTI"), Value::ok(), "{wrong}");
            assert_eq!(client.call("SET a 1"), queued());
            assert!(client.call(wrong).is_error(), "{wrong}");
            assert_eq!(client.call("SET b 1"), queued(), "after {wrong}");
            assert_eq!(client.call("EXEC"), error(ABORTED), "{wrong}");
            assert_eq!(client.call("EXISTS a b"), int(0), "{wrong}");
            assert_eq!(client.call("EXEC"), error("ERR EXEC without MULTI"), "{wrong}");
            assert_eq!(client.call("MULTI"), Value::ok());
            assert!(client.call(wrong).is_error());
            assert_eq!(client.call("DISCARD"), Value::ok(), "a broken one can be discarded");
        }
        assert_eq!(exec(&mut client, &["PING"]), Value::Array(vec![simple("PONG")]), "nothing stays broken");
    });
}

#[test]
fn exec_with_arguments_ends_the_transaction() {
    const REFUSED: &str = "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("MULTI"), Value::ok());
        assert_eq!(client.call("SET a 1"), queued());
        assert_eq!(client.call("EXEC 1"), error(REFUSED));
        assert_eq!(client.call("EXEC"), error("ERR EXEC without MULTI"));
        assert_eq!(client.call("EXISTS a"), int(0));
        assert_eq!(client.call("EXEC 1"), error(REFUSED), "without MULTI, too");
    });
}

#[test]
fn errors_that_only_running_shows_are_elements_of_the_reply() {
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("MSET text word n 5"), Value::ok());
        let reply = exec(
            &mut client,
            &["INCR text", "INCR n", "SET a 1 EX 0", "SET b 1 BAD", "SELECT 99", "RENAME nothing x", "SET c 1"],
        );
        let expected = [
            error("ERR value is not an integer or out of range"),
            int(6),
            error("ERR invalid expire time in 'set' command"),
            error("ERR syntax error"),
            error("ERR DB index is out of range"),
            error("ERR no such key"),
            Value::ok(),
        ];
        assert_eq!(reply, Value::Array(expected.to_vec()));
        assert_eq!(client.call("EXISTS a b c"), int(1));
    });
}

#[test]
fn a_value_that_is_missing_at_the_end_of_mset_is_seen_when_it_runs() {
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        for name in ["mset", "msetnx"] {
            let reply = exec(&mut client, &[&format!("{name} a 1 b"), "SET c 1"]);
            let wrong = error(&format!("ERR wrong number of arguments for '{name}' command"));
            assert_eq!(reply, Value::Array(vec![wrong, Value::ok()]));
            assert_eq!(client.call("EXISTS a b c"), int(1));
        }
    });
}

#[test]
fn multi_and_watch_inside_are_refused_and_break_nothing() {
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("MULTI"), Value::ok());
        assert_eq!(client.call("SET a 1"), queued());
        assert_eq!(client.call("MULTI"), error("ERR MULTI calls can not be nested"));
        assert_eq!(client.call("WATCH a"), error("ERR WATCH inside MULTI is not allowed"));
        assert_eq!(client.call("UNWATCH"), queued());
        assert_eq!(client.call("GET a"), queued());
        assert_eq!(client.call("EXEC"), Value::Array(vec![Value::ok(), Value::ok(), bulk("1")]));
    });
}

#[test]
fn help_with_arguments_breaks_the_transaction() {
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        for container in ["object", "client", "config", "command", "pubsub"] {
            assert_eq!(client.call("MULTI"), Value::ok());
            let wrong = error(&format!("ERR wrong number of arguments for '{container}|help' command"));
            assert_eq!(client.call(&format!("{container} HELP me")), wrong);
            assert!(client.call("EXEC").is_error());
        }
    });
}

#[test]
fn debug_that_is_not_allowed_breaks_the_transaction() {
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("MULTI"), Value::ok());
        assert!(client.call("DEBUG SLEEP 0").is_error());
        assert!(client.call("EXEC").is_error());
    });
}

/// A shard that has no key of the pattern answers nothing at all.
#[test]
fn keys_that_match_nothing_are_an_empty_array() {
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        let reply = exec(&mut client, &["KEYS nothing*", "SET a 1", "KEYS *", "KEYS nothing*"]);
        let none = Value::Array(vec![]);
        assert_eq!(reply, Value::Array(vec![none.clone(), Value::ok(), Value::bulks(&["a"]), none]));
    });
}

/// It answers from a connection's own shard, wherever the keys of the others are.
#[test]
fn help_runs_beside_commands_on_every_shard() {
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        for key in 0..16 {
            let reply = exec(&mut client, &[&format!("SET key:{key} v"), "OBJECT HELP", &format!("GET key:{key}")]);
            let [set, help, get] = reply.items() else { panic!("{reply:?}") };
            assert_eq!((set, get), (&Value::ok(), &bulk("v")));
            assert!(help.items().len() > 5, "{help:?}");
        }
        let reply = exec(&mut client, &["OBJECT HELP", "MSET key:1 a key:2 b key:3 c key:4 d", "CLIENT HELP"]);
        assert_eq!(reply.items().len(), 3);
        // The reply of one shard is not wanted, as a key on another has changed.
        for key in 0..16 {
            assert_eq!(client.call(&format!("WATCH key:{key}")), Value::ok());
            assert_eq!(client.call(&format!("SET key:{key} w")), Value::ok());
            let reply = exec(&mut client, &["OBJECT HELP", &format!("GET key:{key}")]);
            assert_eq!(reply, Value::NullArray);
        }
    });
}

/// MSETEX names its keys by a count. One that names none used to be without a lock, and to be run by a coordinator.
#[test]
fn a_command_that_names_no_key_runs_beside_commands_that_need_a_coordinator() {
    on_shards(&[], |server| {
        let mut client = server.client();
        let invalid = error("ERR invalid numkeys value");
        let keys: Vec<String> = (0..16).map(|i| format!("key:{i}")).collect();
        assert_eq!(client.call("SET key:0 v"), Value::ok());
        for pair in keys.windows(2) {
            let rename = format!("RENAME {} {}", pair[0], pair[1]);
            let reply = exec(&mut client, &["MSETEX 0 k v", &rename, "MSETEX x k v"]);
            assert_eq!(reply, Value::Array(vec![invalid.clone(), Value::ok(), invalid.clone()]));
        }
        let reply = exec(&mut client, &["MSETEX 0 k v", "CONFIG SET hz 10"]);
        assert_eq!(reply, Value::Array(vec![invalid, Value::ok()]));
        assert_eq!(client.call("GET key:15"), bulk("v"));
        for key in &keys {
            assert_eq!(client.call(&format!("WATCH {key}")), Value::ok());
            assert_eq!(client.call(&format!("SET {key} w")), Value::ok());
            assert_eq!(exec(&mut client, &["MSETEX 0 k v", &format!("GET {key}")]), Value::NullArray);
        }
    });
}

#[test]
fn commands_of_every_kind_run_inside() {
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("MSET a 1 b 2 c 3"), Value::ok());
        let reply = exec(
            &mut client,
            &["RENAME a z", "DBSIZE", "COPY b y", "EXISTS a b c y z", "MOVE c 1", "SWAPDB 0 1", "DBSIZE", "GET c"],
        );
        let replies = [Value::ok(), int(3), int(1), int(4), int(1), Value::ok(), int(1), bulk("3")];
        assert_eq!(reply, Value::Array(replies.to_vec()));
        let reply = exec(&mut client, &["SET only 1", "RANDOMKEY", "FLUSHALL", "RANDOMKEY", "KEYS *", "SCAN 0"]);
        let items = reply.items();
        assert!([bulk("only"), bulk("c")].contains(&items[1]), "{reply:?}");
        assert_eq!(items[2..5], [Value::ok(), Value::NullBulk, Value::Array(vec![])]);
        assert_eq!(items[5].items().len(), 2);
    });
}

#[test]
fn the_session_changes_while_a_transaction_runs() {
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("SET k zero"), Value::ok());
        let reply = exec(
            &mut client,
            &[
                "PING",
                "ECHO hello",
                "CLIENT SETNAME bob",
                "CLIENT GETNAME",
                "CONFIG SET hz 20",
                "CONFIG GET hz",
                "SELECT 1",
                "SET k one",
                "SELECT 99",
                "GET k",
                "SELECT 0",
                "GET k",
                "PUBLISH nobody x",
            ],
        );
        let replies = [
            simple("PONG"),
            bulk("hello"),
            Value::ok(),
            bulk("bob"),
            Value::ok(),
            Value::bulks(&["hz", "20"]),
            Value::ok(),
            Value::ok(),
            error("ERR DB index is out of range"),
            bulk("one"),
            Value::ok(),
            bulk("zero"),
            int(0),
        ];
        assert_eq!(reply, Value::Array(replies.to_vec()));
        assert_eq!(exec(&mut client, &["SELECT 1"]), Value::Array(vec![Value::ok()]));
        assert_eq!(client.call("GET k"), bulk("one"), "SELECT outlives the transaction");
        assert_eq!(client.call("MULTI"), Value::ok());
        assert_eq!(client.call("SELECT 0"), queued());
        assert_eq!(client.call("DISCARD"), Value::ok());
        assert_eq!(client.call("GET k"), bulk("one"), "it was not run");
    });
}

#[test]
fn the_protocol_changes_while_a_transaction_runs() {
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        let reply = exec(&mut client, &["GET nothing", "HELLO 3", "GET nothing", "MGET nothing no"]);
        let items = reply.items();
        assert_eq!(items[0], Value::NullBulk);
        assert_eq!(items[1].field("proto"), Some(int(3)));
        assert_eq!(items[2..], [Value::Null, Value::Array(vec![Value::Null, Value::Null])]);
        assert_eq!(client.call("WATCH k"), Value::ok());
        assert_eq!(client.call("SET k 1"), Value::ok());
        assert_eq!(exec(&mut client, &["GET k"]), Value::Null, "no array, but null");
        let reply = exec(&mut client, &["CONFIG GET hz", "HELLO 2", "CONFIG GET hz"]);
        assert!(matches!(reply.items()[0], Value::Map(_)), "{reply:?}");
        assert!(matches!(reply.items()[2], Value::Array(_)), "{reply:?}");
        assert_eq!(client.call("WATCH k"), Value::ok());
        assert_eq!(client.call("SET k 1"), Value::ok());
        assert_eq!(exec(&mut client, &["GET k"]), Value::NullArray);
    });
}

#[test]
fn reset_and_quit_are_not_queued() {
    on_shards_and_redis(&[], |server| {
        let mut client = server.client3();
        assert_eq!(client.call("SELECT 3"), Value::ok());
        assert_eq!(client.call("WATCH k"), Value::ok());
        assert_eq!(client.call("MULTI"), Value::ok());
        assert_eq!(client.call("SET k 1"), queued());
        assert_eq!(client.call("RESET"), simple("RESET"));
        assert_eq!(client.call("EXEC"), error("ERR EXEC without MULTI"));
        assert_eq!(client.call("SET k 2"), Value::ok());
        assert_eq!(client.call("GET nothing"), Value::NullBulk, "RESP2 again");
        assert_eq!(exec(&mut client, &["GET k"]), Value::Array(vec![bulk("2")]), "RESET has unwatched");
        assert_eq!(client.call("MULTI"), Value::ok());
        assert_eq!(client.call("SET k 3"), queued());
        assert_eq!(client.call("QUIT"), Value::ok());
        assert!(client.is_closed_by_server());
        assert_eq!(server.client().call("GET k"), bulk("2"));
    });
}

#[test]
fn subscribe_inside_takes_effect() {
    on_shards_and_redis(&[], |server| {
        let (mut client, mut publisher) = (server.client(), server.client());
        let reply = exec(&mut client, &["SET k 1", "SUBSCRIBE news", "GET k"]);
        let subscribed = Value::Array(vec![bulk("subscribe"), bulk("news"), int(1)]);
        assert_eq!(reply, Value::Array(vec![Value::ok(), subscribed, bulk("1")]));
        assert_eq!(exec(&mut publisher, &["SET k 2", "PUBLISH news x"]), Value::Array(vec![Value::ok(), int(1)]));
        assert_eq!(client.read(), Value::bulks(&["message", "news", "x"]));
        assert!(client.call("MULTI").is_error(), "it is a subscriber now");
        assert_eq!(client.call("UNSUBSCRIBE news"), Value::Array(vec![bulk("unsubscribe"), bulk("news"), int(0)]));
        assert_eq!(exec(&mut client, &["GET k"]), Value::Array(vec![bulk("2")]));
    });
}

/// Sends commands, of which some may not be answered, in one write.
fn say(client: &mut Client, lines: &str) {
    client.send_raw(&lines.split('|').flat_map(|line| encode(&words(line))).collect::<Vec<u8>>());
}

#[test]
fn client_reply_off_and_skip_work_around_and_inside() {
    on_shards_and_redis(&[], |server| {
        let mut client = server.client();
        say(&mut client, "CLIENT REPLY OFF|MULTI|SET k 5|MSET a 1 b 2 c 3|EXEC|CLIENT REPLY ON|MGET k a b c");
        assert_eq!(client.read(), Value::ok());
        assert_eq!(client.read(), Value::bulks(&["5", "1", "2", "3"]));
        say(&mut client, "CLIENT REPLY SKIP|MULTI|MSET k 6 a 6 b 6|EXEC|GET k");
        assert_eq!(client.read(), queued());
        assert_eq!(client.read(), Value::Array(vec![Value::ok()]));
        assert_eq!(client.read(), bulk("6"));
        client.assert_in_step();
        say(&mut client, "WATCH k|SET k 7|MULTI|SET k 8|CLIENT REPLY OFF|EXEC|GET k");
        assert_eq!(client.read(), Value::ok());
        assert_eq!(client.read(), Value::ok());
        assert_eq!(client.read(), Value::ok());
        assert_eq!(client.read(), queued());
        assert_eq!(client.read(), queued(), "it is queued, so that EXEC is answered");
        assert_eq!(client.read(), Value::NullArray);
        assert_eq!(client.read(), bulk("7"));
        client.assert_in_step();
    });
}

/// Against a model: commands on one key, on keys of several shards, and transactions of both, in one pipeline.
#[test]
fn pipelines_may_mix_everything() {
    on_shards_and_redis(&[], |server| {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut client = server.client();
        for _ in 0..30 {
            assert_eq!(client.call("FLUSHALL"), Value::ok());
            let mut model = HashMap::new();
            let (mut commands, mut expected) = (Vec::new(), Vec::new());
            for _ in 0..60 {
                if rng.u8(..3) > 0 {
                    let (command, reply) = one_of_the_mix(&mut rng, &mut model);
                    commands.push(words(&command));
                    expected.push(reply);
                    continue;
                }
                commands.push(words("MULTI"));
                expected.push(Value::ok());
                let inside: Vec<_> = (0..rng.usize(..6)).map(|_| one_of_the_mix(&mut rng, &mut model)).collect();
                commands.extend(inside.iter().map(|(command, _)| words(command)));
                expected.extend(inside.iter().map(|_| queued()));
                commands.push(words("EXEC"));
                expected.push(Value::Array(inside.into_iter().map(|(_, reply)| reply).collect()));
            }
            assert_eq!(client.pipeline(&commands), expected);
        }
    });
}

/// A command, and what it answers by this model.
fn one_of_the_mix(rng: &mut fastrand::Rng, model: &mut HashMap<u8, String>) -> (String, Value) {
    const KEYS: u8 = 12;
    let (a, b, c) = (rng.u8(..KEYS), rng.u8(..KEYS), rng.u8(..KEYS));
    let value = rng.u16(..).to_string();
    let shown = |value: Option<&String>| value.map_or(Value::NullBulk, bulk);
    match rng.u8(..8) {
        0 => {
            model.insert(a, value.clone());
            (format!("SET key:{a} {value}"), Value::ok())
        }
        1 => (format!("GET key:{a}"), shown(model.get(&a))),
        2 => {
            for key in [a, b, c] {
                model.insert(key, value.clone());
            }
            (format!("MSET key:{a} {value} key:{b} {value} key:{c} {value}"), Value::ok())
        }
        3 => {
            let values = [a, b, c].iter().map(|key| shown(model.get(key))).collect();
            (format!("MGET key:{a} key:{b} key:{c}"), Value::Array(values))
        }
        4 => {
            let gone = [a, b].iter().filter(|key| model.remove(key).is_some()).count();
            (format!("DEL key:{a} key:{b}"), int(gone as i64))
        }
        5 => {
            let reply = match model.remove(&a) {
                None => error("ERR no such key"),
                Some(value) => {
                    model.insert(b, value);
                    Value::ok()
                }
            };
            (format!("RENAME key:{a} key:{b}"), reply)
        }
        6 => {
            let free = !model.contains_key(&a) && !model.contains_key(&b);
            if free {
                model.insert(a, value.clone());
                model.insert(b, value.clone());
            }
            (format!("MSETNX key:{a} {value} key:{b} {value}"), int(free.into()))
        }
        _ => (format!("ECHO {value}"), bulk(value)),
    }
}

#[test]
fn pause_for_writes_holds_transactions_that_write() {
    on_shards_and_redis(&[], |server| {
        let mut admin = server.client();
        for (commands, held) in [
            (["SET a 1", "GET a"], true),
            (["GET a", "MSET b 1 c 2 d 3"], true),
            (["GET a", "RENAME a b"], true),
            (["MGET a b c d", "PUBLISH nobody x"], true),
            (["GET a", "MGET a b c d"], false),
            (["PING", "CLIENT GETNAME"], false),
        ] {
            assert_eq!(admin.call("SET a 1"), Value::ok());
            let mut client = server.client();
            assert_eq!(client.call("MULTI"), Value::ok());
            commands.iter().for_each(|command| assert_eq!(client.call(command), queued()));
            assert_eq!(admin.call("CLIENT PAUSE 100000 WRITE"), Value::ok());
            client.send("EXEC");
            if held {
                assert_eq!(client.read_within(HELD), None, "{commands:?}");
                assert_eq!(admin.call("CLIENT UNPAUSE"), Value::ok());
            }
            let reply = client.read_within(AT_ONCE).unwrap_or_else(|| panic!("{commands:?} is held"));
            assert_eq!(reply.items().len(), 2, "{commands:?}");
            assert_eq!(admin.call("CLIENT UNPAUSE"), Value::ok());
        }
    });
}

#[test]
fn pause_for_writes_holds_writes_before_they_are_queued() {
    on_shards_and_redis(&[], |server| {
        let (mut client, mut admin) = (server.client(), server.client());
        assert_eq!(client.call("MULTI"), Value::ok());
        assert_eq!(admin.call("CLIENT PAUSE 100000 WRITE"), Value::ok());
        assert_eq!(client.call("GET a"), queued());
        client.send("SET a 1");
        let held = client.read_within(HELD);
        assert_eq!(admin.call("CLIENT UNPAUSE"), Value::ok());
        assert_eq!(held, None);
        assert_eq!(client.read(), queued());
        assert_eq!(client.call("EXEC"), Value::Array(vec![Value::NullBulk, Value::ok()]));
    });
}

/// Only what a script has promised before it runs counts.
#[test]
fn pause_for_writes_holds_scripts_that_may_write() {
    on_shards_and_redis(&[], |server| {
        let mut admin = server.client();
        let library = "#!lua name=l\nredis.register_function{function_name='reads', callback=function(keys) return \
                       redis.call('get', keys[1]) end, flags={'no-writes'}}\n\
                       redis.register_function('writes', function() return 1 end)";
        assert_eq!(admin.command(&["FUNCTION", "LOAD", library]), bulk("l"));
        let reads = "#!lua flags=no-writes\nreturn redis.call('get', KEYS[1])";
        assert_eq!(admin.call("SET a 1"), Value::ok());
        for (call, what, held) in [
            ("EVAL", reads, false),
            ("FCALL", "reads", false),
            ("FCALL_RO", "reads", false),
            ("EVAL_RO", "return redis.call('get', KEYS[1])", false),
            ("EVAL", "return redis.call('get', KEYS[1])", true),
            ("EVAL", "#!lua\nreturn redis.call('get', KEYS[1])", true),
            ("FCALL", "writes", true),
            ("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", true),
        ] {
            let mut alone = server.client();
            let mut queued_before = server.client();
            assert_eq!(queued_before.call("MULTI"), Value::ok());
            assert_eq!(queued_before.command(&[call, what, "1", "a"]), queued());
            assert_eq!(admin.call("CLIENT PAUSE 100000 WRITE"), Value::ok());
            alone.send_raw(&encode(&[call, what, "1", "a"]));
            queued_before.send("EXEC");
            if held {
                assert_eq!(alone.read_within(HELD), None, "{call} {what}");
                assert_eq!(queued_before.read_within(HELD), None, "{call} {what} in EXEC");
                assert_eq!(admin.call("CLIENT UNPAUSE"), Value::ok());
            }
            assert!(alone.read_within(AT_ONCE).is_some(), "{call} {what}");
            assert!(queued_before.read_within(AT_ONCE).is_some(), "{call} {what} in EXEC");
            assert_eq!(admin.call("CLIENT UNPAUSE"), Value::ok());
        }
    });
}

/// What there is of connections other than the one that asks, which is watched by nobody.
fn assert_nobody_is_left(server: &Server) {
    let mut client = server.client();
    let alone = wait_until(PATIENCE, || client.call("CLIENT LIST").text().lines().count() == 1);
    let list = client.call("CLIENT LIST").text();
    assert!(alone && list.contains(" watch=0 ") && list.contains(" multi=-1 "), "{list}");
}

#[test]
fn who_leaves_in_the_middle_of_a_transaction_leaves_nothing() {
    const KEYS: usize = 12;
    on_shards(&["--enable-debug-command", "yes"], |server| {
        let names: Vec<String> = (0..KEYS).map(|i| format!("key:{i}")).collect();
        let all = names.join(" ");
        let mset = |value: &str| names.iter().fold("MSET".to_string(), |line, key| format!("{line} {key} {value}"));
        let bytes = |lines: &[&str]| lines.iter().flat_map(|line| encode(&words(line))).collect::<Vec<u8>>();
        server.delay_shards(2_000);
        let mut rng = fastrand::Rng::with_seed(11);
        let mut watcher = server.client();
        assert_eq!(watcher.call("WATCH untouched"), Value::ok());
        assert_eq!(watcher.call(&mset("start")), Value::ok());
        for round in 0..60 {
            let (watch, mset) = (format!("WATCH {all}"), mset(&round.to_string()));
            let [a, b] = [rng.usize(..KEYS), rng.usize(..KEYS)].map(|key| &names[key]);
            let (back, forth) = (format!("RENAME {a} {b}"), format!("COPY {b} {a} REPLACE"));
            let said = match round % 6 {
                0 => bytes(&[&watch, "MULTI", &mset]),
                1 => bytes(&[&watch, "MULTI", &mset, "EXEC"]),
                2 => bytes(&["MULTI", &back, &forth, "EXEC"]),
                3 => bytes(&[&back]),
                4 => bytes(&[&watch, "MULTI", &mset, &back, "EXEC", &watch]),
                _ => {
                    let whole = bytes(&[&watch, "MULTI", &mset, &back, "EXEC", &forth, &back]);
                    whole[..rng.usize(..whole.len())].to_vec()
                }
            };
            let mut client = server.client();
            client.send_raw(&said);
            thread::sleep(Duration::from_micros(rng.u64(..3_000)));
            if rng.bool() {
                let _ = client.read_within(Duration::from_millis(1));
            }
            drop(client);
            if round % 10 == 9 {
                server.delay_shards(0);
                let mut bystander = server.client();
                for key in &names {
                    bystander.send(&format!("APPEND {key} ."));
                    assert!(bystander.read_within(AT_ONCE).is_some(), "{key} is locked after round {round}");
                }
                bystander.send(&format!("MGET {all}"));
                assert!(bystander.read_within(AT_ONCE).is_some(), "keys are locked after round {round}");
                server.delay_shards(2_000);
            }
        }
        server.delay_shards(0);
        let list = server.client().call("CLIENT LIST").text();
        assert_eq!(list.matches(" watch=1 ").count(), 1, "{list}");
        assert_eq!(exec(&mut watcher, &["GET untouched"]), Value::Array(vec![Value::NullBulk]));
        drop(watcher);
        assert_nobody_is_left(server);
    });
}

/// One shard hears of nothing for a while: whoever waits for it gets no reply, and others none for the same keys.
#[test]
fn an_abandoned_exec_is_done_whole_or_not_at_all() {
    on_shards(&["--enable-debug-command", "yes"], |server| {
        let names: Vec<String> = (0..10).map(|i| format!("key:{i}")).collect();
        let all = names.join(" ");
        let mut reader = server.client();
        for round in 0..40 {
            server.delay_shards(if round % 2 == 0 { 1_000 } else { 0 });
            let mset = names.iter().fold("MSET".to_string(), |line, key| format!("{line} {key} {round}"));
            let mut client = server.client();
            // CONFIG SET needs a coordinator.
            let middle = if round % 4 < 2 { "PING" } else { "CONFIG SET hz 10" };
            let lines = ["MULTI", &mset, middle, &format!("INCR {}", names[0]), &format!("DECR {}", names[0]), "EXEC"];
            client.send_raw(&lines.iter().flat_map(|line| encode(&words(line))).collect::<Vec<u8>>());
            drop(client);
            for _ in 0..10 {
                let values = reader.call(&format!("MGET {all}"));
                assert!(values.items().windows(2).all(|pair| pair[0] == pair[1]), "half of it: {values:?}");
            }
        }
        server.delay_shards(0);
        drop(reader);
        assert_nobody_is_left(server);
    });
}

#[test]
fn connections_that_end_inside_multi_or_with_watched_keys_cost_no_memory() {
    const ROUNDS: usize = 10_000;
    const WARM_UP: usize = 2_000;
    const GROWN_BYTES_MAX: u64 = 16 << 20;
    for shards in [1, 4] {
        let server = Server::start(Kind::Ember { shards }, &[]);
        let mut before = 0;
        for round in 0..ROUNDS + WARM_UP {
            if round == WARM_UP {
                before = server.resident_bytes();
            }
            let lines: &[&str] = match round % 3 {
                0 => &["MULTI", "SET a 1", "MSET b 2 c 3 d 4"],
                1 => &["WATCH a b c d e f g h"],
                _ => &["WATCH a b c d e f g h", "MULTI", "MSET b 2 c 3 d 4", "EXEC", "WATCH a b"],
            };
            let mut client = server.client();
            let bytes: Vec<u8> = lines.iter().flat_map(|line| encode(&words(line))).collect();
            client.send_raw(&bytes);
            if round % 2 == 0 {
                assert_eq!(client.read(), Value::ok());
            }
        }
        assert_nobody_is_left(&server);
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < GROWN_BYTES_MAX, "{grown} bytes more after {ROUNDS} connections");
    }
}

/// A client that queues without end is disconnected, and what it had queued is given back.
#[test]
fn what_one_connection_may_queue_is_bounded() {
    const LIMIT_BYTES: usize = 4 << 20;
    for shards in [1, 4] {
        let limit = LIMIT_BYTES.to_string();
        let server = Server::start(Kind::Ember { shards }, &["--client-query-buffer-limit", &limit]);
        let before = server.resident_bytes();
        for _ in 0..10 {
            let mut client = server.client();
            // The server stops reading, and the rest is not taken.
            client.stream().set_write_timeout(Some(HELD)).expect("a timeout");
            assert_eq!(client.call("MULTI"), Value::ok());
            let set = encode(&[b"SET".to_vec(), b"k".to_vec(), vec![b'v'; 64 << 10]]);
            let _ = (0..4 * LIMIT_BYTES / set.len()).try_for_each(|_| client.try_send_raw(&set));
            assert!(client.is_closed_by_server());
        }
        assert_nobody_is_left(&server);
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < 16 * LIMIT_BYTES as u64, "{grown} bytes more");
        assert_eq!(server.client().call("EXISTS k"), int(0));
    }
}

/// A coordinator's task is woken by its own shard's sending, right before that would wait.
#[test]
fn a_transaction_in_steps_does_not_wait_for_anything_else_to_happen() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let begin = Instant::now();
        for _ in 0..20 {
            for line in ["MULTI", "SET key 1", "PUBLISH channel message"] {
                client.call(line);
            }
            assert_eq!(client.call("EXEC"), Value::Array(vec![Value::ok(), int(0)]));
        }
        // It would take half a second each, on average, until the next timer.
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    });
}
