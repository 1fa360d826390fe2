//! What a command costs, in time and in memory, whatever its arguments are. Times are those of commands that do the same
//! kind of work, in the same test: how fast the machine is does not matter.

use std::time::{Duration, Instant};

use super::transactions::on_shards;
use crate::common::{Client, Kind, Server, Value, bulk, encode, error, int, simple, wait_until};

/// So many keys are on different shards, some of them.
const HASHED_APART: usize = 16;

/// The least time of several runs.
fn time(client: &mut Client, request: &[u8]) -> (Duration, Value) {
    let run = |client: &mut Client| {
        let begin = Instant::now();
        client.send_raw(request);
        let reply = client.read();
        (begin.elapsed(), reply)
    };
    let mut runs: Vec<(Duration, Value)> = (0..3).map(|_| run(client)).collect();
    runs.sort_by_key(|(time, _)| *time);
    runs.swap_remove(0)
}

fn request(head: &[&str], args: impl Iterator<Item = String>) -> Vec<u8> {
    encode(&head.iter().map(|arg| arg.to_string()).chain(args).collect::<Vec<_>>())
}

/// Runs a command that takes any number of arguments, some of them at a time.
fn fill(client: &mut Client, head: &[&str], args: impl Iterator<Item = String>) {
    let args: Vec<String> = args.collect();
    for some in args.chunks(10_000) {
        client.send_raw(&request(head, some.iter().cloned()));
        assert!(!client.read().is_error());
    }
}

fn peak_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a process has a peak");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

/// The finest steps there are, 2^40 of them, and all keys asked for.
#[test]
fn a_scan_ends_whatever_its_cursor_and_its_count() {
    on_shards(&["--enable-debug-command", "yes"], |server| {
        let mut client = server.client();
        fill(&mut client, &["SADD", "set"], (0..20_000).map(|n| format!("m{n}")));
        fill(&mut client, &["HSET", "hash"], (0..20_000).flat_map(|n| [format!("m{n}"), "v".into()]));
        fill(&mut client, &["ZADD", "zset"], (0..20_000).flat_map(|n| ["1".into(), format!("m{n}")]));
        for cursor in ["206848", "18446744073709551615", "131072", "4095"] {
            for scan in ["SCAN", "SSCAN set", "HSCAN hash", "ZSCAN zset"] {
                for count in ["1", "9223372036854775807"] {
                    let reply = client.call(&format!("{scan} {cursor} COUNT {count}"));
                    assert_eq!(reply.items().len(), 2, "{scan} {cursor} COUNT {count}");
                }
            }
        }
        // Of few bits, with a part that is not the first: such a step is the whole table.
        let halves = "131328";
        assert_eq!(client.call("DEBUG POPULATE 300000"), Value::ok());
        for (scan, most) in [("SCAN", 600), ("SSCAN set", 600), ("HSCAN hash", 2 * 600), ("ZSCAN zset", 2 * 600)] {
            let shown = client.call(&format!("{scan} {halves} COUNT 1")).items()[1].items().len();
            assert!(shown <= most, "{scan} shows {shown}");
        }
        let all = client.call("SSCAN set 0 COUNT 100000").items()[1].items().len();
        assert_eq!(all, 20_000, "what is asked for is shown");
    });
}

/// Each of the keys was compared with all before it.
#[test]
fn watching_many_keys_costs_little_more_than_looking_at_them() {
    on_shards(&[], |server| {
        let mut client = server.client();
        let keys = || (0..50_000).map(|n| format!("key:{n}"));
        let (looked, _) = time(&mut client, &request(&["EXISTS"], keys()));
        let (watched, reply) = time(&mut client, &request(&["WATCH"], keys()));
        assert_eq!(reply, Value::ok());
        assert!(watched < looked * 30, "WATCH took {watched:?}, EXISTS {looked:?}");
        assert!(client.call("CLIENT INFO").text().contains("watch=50000"));
        // The one that changes is found.
        client.call("MULTI");
        client.call("PING");
        server.client().call("SET key:25000 v");
        assert_eq!(client.call("EXEC"), Value::NullArray);
    });
}

/// Who listens to nothing looked at all channels when it left.
#[test]
fn a_connection_that_ends_does_not_walk_the_subscriptions_of_others() {
    on_shards(&[], |server| {
        let mut client = server.client();
        let resets = encode(&["RESET"]).repeat(200);
        let mut reset = || {
            let begin = Instant::now();
            client.send_raw(&resets);
            (0..200).for_each(|_| drop(client.read()));
            begin.elapsed()
        };
        let before = (0..3).map(|_| reset()).min().expect("three");
        let mut listeners: Vec<Client> = (0..4).map(|_| server.client()).collect();
        for (n, listener) in listeners.iter_mut().enumerate() {
            listener.send_raw(&request(&["SUBSCRIBE"], (0..50_000).map(|channel| format!("{n}:{channel}"))));
            (0..50_000).for_each(|_| drop(listener.read()));
        }
        let beside = (0..3).map(|_| reset()).min().expect("three");
        assert!(beside < before * 50, "{beside:?} beside subscriptions, {before:?} before");
        drop(listeners);
        let gone = || client.call("PUBSUB NUMSUB 0:7").items()[1] == int(0);
        assert!(wait_until(Duration::from_secs(30), gone));
    });
}

#[test]
fn a_set_that_is_named_many_times_is_read_once() {
    on_shards(&[], |server| {
        let mut client = server.client();
        fill(&mut client, &["SADD", "set"], (0..50_000).map(|n| format!("m{n}")));
        fill(&mut client, &["ZADD", "zset"], (0..50_000).flat_map(|n| ["1".into(), format!("m{n}")]));
        for (command, key) in [("SINTERCARD", "set"), ("ZINTERCARD", "zset")] {
            let named = |times: usize| {
                let other = (0..HASHED_APART).map(|n| format!("{key}{n}"));
                let keys = other.chain(std::iter::repeat_n(key.to_string(), times));
                request(&[command, &(HASHED_APART + times).to_string()], keys)
            };
            for n in 0..HASHED_APART {
                let copy = client.call(&format!("COPY {key} {key}{n} REPLACE"));
                assert_eq!(copy, int(1));
            }
            let (once, expected) = time(&mut client, &named(1));
            let (many, count) = time(&mut client, &named(1000));
            assert_eq!((&count, &expected), (&int(50_000), &int(50_000)));
            assert!(many < once * 8, "{command}: {many:?} for many names, {once:?} for one");
            let (limited, count) = time(&mut client, &encode(&[command, "2", key, &format!("{key}0"), "LIMIT", "1"]));
            assert_eq!(count, int(1));
            assert!(limited < once, "{command} LIMIT 1: {limited:?}, without {once:?}");
        }
        for (command, members) in [("SUNION", 50_000), ("SINTER", 50_000), ("SDIFF", 0)] {
            assert_eq!(client.call(&format!("{command} set set set0 set")).items().len(), members, "{command}");
        }
        for (command, sum) in [("ZUNION", Some("5")), ("ZINTER", Some("5")), ("ZDIFF", None)] {
            let weights = if sum.is_some() { " WEIGHTS 1 2 1 1" } else { "" };
            let reply = client.call(&format!("{command} 4 zset zset zset0 zset{weights} WITHSCORES"));
            assert_eq!(reply.items().get(1), sum.map(bulk).as_ref(), "{command}");
        }
    });
}

/// It went to each key in turn, wherever that was.
#[test]
fn zmpop_looks_for_its_keys_all_at_once() {
    on_shards(&[], |server| {
        let mut client = server.client();
        let missing = |command: &str, tail: &str| {
            request(&[command, "5000"], (0..5000).map(|n| format!("missing:{n}")).chain([tail.to_string()]))
        };
        let (lists, _) = time(&mut client, &missing("LMPOP", "LEFT"));
        let (zsets, reply) = time(&mut client, &missing("ZMPOP", "MIN"));
        assert_eq!(reply, Value::NullArray);
        assert!(zsets < lists * 6, "ZMPOP took {zsets:?}, LMPOP {lists:?}");
        assert_eq!(client.call("ZADD missing:4999 1 a"), int(1));
        assert_eq!(client.call("ZADD missing:4000 2 b 1 a"), int(2));
        client.send_raw(&missing("ZMPOP", "MIN"));
        assert_eq!(client.read().items()[0], bulk("missing:4000"));
        assert_eq!(client.call("ZCARD missing:4000"), int(1));
        client.call("SET missing:5 x");
        client.send_raw(&missing("ZMPOP", "MIN"));
        assert_eq!(client.read(), error("WRONGTYPE Operation against a key holding the wrong kind of value"));
    });
}

#[test]
fn a_value_that_is_too_long_for_a_number_is_refused_unread() {
    on_shards(&[], |server| {
        let mut client = server.client();
        client.command(&["SETRANGE", "{k}long", "33554432", "x"]);
        client.command(&["SETRANGE", "other", "33554432", "x"]);
        let value = client.command(&["GET", "{k}long"]);
        client.command(&[&b"HSET"[..], b"hash", b"f", value.bytes().expect("a string")]);
        let (looked, _) = time(&mut client, &encode(&["STRLEN", "{k}long"]));
        for args in [
            &["INCRBYFLOAT", "{k}long", "1"][..],
            &["HINCRBYFLOAT", "hash", "f", "1"],
            &["CL.THROTTLE", "{k}long", "1", "1", "1"],
            &["LCS", "{k}long", "{k}long"],
            &["LCS", "{k}long", "other"],
        ] {
            let (took, reply) = time(&mut client, &encode(args));
            assert!(reply.is_error(), "{args:?}: {reply:?}");
            let copied = time(&mut client, &encode(&["GETRANGE", "{k}long", "0", "8388607"])).0;
            assert!(took < looked * 20 || took < copied, "{args:?} took {took:?}, a look {looked:?}");
        }
    });
}

/// Each mention was fetched for itself: 60 of 64 MB took 4 GB.
#[test]
fn a_coordinator_brings_no_string_together_twice() {
    on_shards(&[], |server| {
        let mut client = server.client();
        client.command(&["SETRANGE", "big", "8388607", "x"]);
        let before = peak_bytes(server);
        for n in 0..HASHED_APART {
            let sources = std::iter::repeat_n("big".to_string(), 61);
            client.send_raw(&request(&["BITOP", "XOR", &format!("result:{n}")], sources));
            assert_eq!(client.read(), int(8_388_608));
            let last = client.command(&["GETRANGE", &format!("result:{n}"), "-1", "-1"]);
            assert_eq!(last, bulk("x"));
            client.call(&format!("DEL result:{n}"));
        }
        let more = peak_bytes(server).saturating_sub(before);
        assert!(more < 200 << 20, "{more} bytes");
    });
}

/// Every change of a key that is held left its waiters to be looked at once more, all of them after each command.
#[test]
fn a_waiter_for_a_key_that_is_held_is_looked_at_once() {
    on_shards(&[], |server| {
        let mut client = server.client();
        let mut exec = || {
            client.send_raw(&encode(&["MULTI"]));
            // It needs a coordinator, which holds all keys.
            client.send_raw(&encode(&["RANDOMKEY"]));
            client.send_raw(&encode(&["RPUSH", "list", "v"]).repeat(6000));
            (0..6002).for_each(|_| drop(client.read()));
            let (took, reply) = {
                let begin = Instant::now();
                client.send_raw(&encode(&["EXEC"]));
                let reply = client.read();
                (begin.elapsed(), reply)
            };
            assert_eq!(reply.items().len(), 6001);
            client.call("DEL list");
            took
        };
        let alone = exec().min(exec());
        let mut waiter = server.client();
        waiter.send("BLPOP list 0");
        let blocked = || server.info("blocked_clients").as_deref() == Some("1");
        assert!(wait_until(Duration::from_secs(30), blocked));
        let waited_for = exec();
        assert_eq!(waiter.read(), Value::bulks(&["list", "v"]));
        assert!(waited_for < alone * 8, "{waited_for:?} with somebody who waits, {alone:?} without");
    });
}

/// Ids that repeat, that nobody has, and that somebody has on another shard.
#[test]
fn clients_are_listed_by_many_ids_in_one_look() {
    on_shards(&[], |server| {
        let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
        let ids: Vec<String> = clients.iter_mut().map(|client| client.call("CLIENT ID").number().to_string()).collect();
        let named = |count: usize| {
            // Every other one is unknown.
            let id = |n: usize| {
                if n.is_multiple_of(2) { ids[n / 2 % ids.len()].clone() } else { (1_000_000 + n).to_string() }
            };
            (0..count).map(id)
        };
        let client = &mut clients[0];
        let (few, _) = time(client, &request(&["CLIENT", "LIST", "ID"], named(1_000)));
        let (many, reply) = time(client, &request(&["CLIENT", "LIST", "ID"], named(10_000)));
        let shown: Vec<String> =
            reply.text().lines().map(|line| line.split([' ', '=']).nth(1).expect("an id").to_string()).collect();
        let expected: Vec<String> = named(10_000).step_by(2).collect();
        assert!(shown == expected, "{} lines", shown.len());
        assert!(many < few * 50, "{many:?} for 10,000 ids, {few:?} for 1,000");
        let nobody = client.call("CLIENT LIST ID 1000000 1000001 1000000");
        assert_eq!(nobody.text(), "");
    });
}

/// What a coordinator brings together is a multiple of what one argument may be.
#[test]
fn what_keys_of_several_shards_bring_together_is_bounded() {
    const MEMBERS: usize = 200;
    const MEMBER_BYTES: usize = 1000;
    let too_long = || error("ERR value is out of range, the reply exceeds proto-max-bulk-len");
    for shards in [2, 4] {
        let server = Server::start(Kind::Ember { shards }, &["--proto-max-bulk-len", "1mb"]);
        let mut client = server.client();
        let member = |n: usize, i: usize| format!("{n}:{i}:{}", "x".repeat(MEMBER_BYTES));
        for n in 0..HASHED_APART {
            fill(&mut client, &["SADD", &format!("set{n}")], (0..MEMBERS).map(|i| member(n, i)));
            fill(&mut client, &["ZADD", &format!("zset{n}")], (0..MEMBERS).flat_map(|i| ["1".into(), member(n, i)]));
            client.command(&["SETRANGE", &format!("string{n}"), &(MEMBERS * MEMBER_BYTES).to_string(), "x"]);
            client.call(&format!("RPUSH list {n}"));
        }
        let keys = |kind: &str, count: usize| (0..count).map(|n| format!("{kind}{n} ")).collect::<String>();
        let all = HASHED_APART;
        let commands = [
            format!("SUNION {}", keys("set", all)),
            format!("SUNIONSTORE dest {}", keys("set", all)),
            format!("ZUNIONSTORE dest {all} {}", keys("zset", all)),
            format!("ZUNION {all} {}", keys("zset", all)),
            "SORT list BY string* ALPHA".to_string(),
            "SORT list GET string*".to_string(),
            "SORT list GET string* STORE dest".to_string(),
        ];
        for command in &commands {
            assert_eq!(client.call(command), too_long(), "{command}");
            client.call("MULTI");
            assert_eq!(client.call(command), simple("QUEUED"));
            client.call("DBSIZE");
            let reply = client.call("EXEC");
            assert_eq!(reply.items(), [too_long(), int(3 * all as i64 + 1)], "{command}");
        }
        // What is not brought together at once, or is short enough, is not refused.
        let len = client.call(&format!("BITOP XOR dest {}", keys("string", all))).number();
        assert_eq!(len, (MEMBERS * MEMBER_BYTES + 1) as i64);
        assert_eq!(client.call(&format!("SUNIONSTORE dest {}", keys("set", 3))), int(3 * MEMBERS as i64));
        assert_eq!(client.call(&format!("ZUNIONSTORE dest 3 {}", keys("zset", 3))), int(3 * MEMBERS as i64));
        assert_eq!(client.call(&format!("SDIFFSTORE dest {}", keys("set", all))), int(MEMBERS as i64));
        assert_eq!(client.call("SORT list LIMIT 0 3 GET string*").items().len(), 3);
    }
}

/// What is not there is asked for, too: nothing but the request says how often.
#[test]
fn sort_is_bounded_by_what_it_is_asked_for() {
    const ELEMENTS: usize = 100_000;
    const PEAK_BYTES_MAX: u64 = 300 << 20;
    on_shards(&[], |server| {
        let mut client = server.client();
        fill(&mut client, &["RPUSH", "list"], (0..ELEMENTS).map(|n| n.to_string()));
        let read = error("ERR value is out of range, the reply exceeds proto-max-bulk-len");
        let told = error(
            "ERR the reply is longer than a client may have to read (client-output-buffer-limit); the command was run",
        );
        let gets = |get: &str, count: usize| format!(" GET {get}").repeat(count);
        let long = format!("*{}", "x".repeat(10_000));
        for (options, without_store, with_store) in [
            (format!("BY nosort{}", gets("none_*", 400)), &read, &read),
            (format!("BY nosort{}", gets("none_*->field", 400)), &read, &read),
            (format!("BY nosort{}", gets(&long, 2)), &read, &read),
            (format!("BY {long}"), &read, &read),
            (format!("BY nosort{}", gets("none", 4_000)), &told, &read),
            (format!("BY nosort{}", gets("#", 4_000)), &told, &read),
        ] {
            let shown = &options[..options.len().min(30)];
            assert_eq!(client.call(&format!("SORT list {options}")), *without_store, "{shown}");
            assert_eq!(client.call(&format!("SORT_RO list {options}")), *without_store, "{shown}");
            assert_eq!(client.call(&format!("SORT list {options} STORE dest")), *with_store, "{shown}");
            let args: Vec<&str> = options.split(' ').collect();
            // As many as a script can pass on.
            if args.len() < 1_000 {
                let script = "return redis.pcall('SORT_RO', KEYS[1], unpack(ARGV))";
                let reply = client.command(&[&["EVAL", script, "1", "list"], &args[..]].concat());
                assert_eq!(reply, *without_store, "{shown}");
            }
        }
        assert_eq!(client.call("EXISTS dest"), int(0));
        let bytes = peak_bytes(server);
        assert!(bytes < PEAK_BYTES_MAX, "{} MB", bytes >> 20);
    });
}

/// They are read in portions, where they are on several shards.
#[test]
fn sort_gives_the_values_of_many_keys() {
    const ELEMENTS: usize = 20_000;
    on_shards(&[], |server| {
        let mut client = server.client();
        fill(&mut client, &["RPUSH", "list"], (0..ELEMENTS).map(|n| n.to_string()));
        fill(&mut client, &["MSET"], (0..ELEMENTS).step_by(3).flat_map(|n| [format!("v_{n}"), format!("value {n}")]));
        fill(&mut client, &["MSET"], (0..ELEMENTS).flat_map(|n| [format!("w_{n}"), format!("-{n}")]));
        let row = |n: usize| {
            let value = if n.is_multiple_of(3) { bulk(format!("value {n}")) } else { Value::NullBulk };
            [bulk(n.to_string()), value, Value::NullBulk, bulk(format!("-{n}"))]
        };
        let expected = Value::Array((0..ELEMENTS).rev().flat_map(row).collect());
        let command = "SORT list BY w_* GET # GET v_* GET none GET w_*";
        assert!(client.call(command) == expected, "another reply");
        let script =
            "return redis.call('SORT', KEYS[1], 'BY', 'w_*', 'GET', '#', 'GET', 'v_*', 'GET', 'w_*', 'LIMIT', 1, 1)";
        let n = ELEMENTS - 2;
        let reply = client.command(&["EVAL", script, "1", "list"]);
        let [element, value, _, weight] = row(n);
        assert_eq!(reply, Value::Array(vec![element, value, weight]));
        assert_eq!(client.call(&format!("{command} STORE dest")), int(4 * ELEMENTS as i64));
        let last = Value::bulks(&["1", "", "", "-1", "0", "value 0", "", "-0"]);
        assert_eq!(client.call("LRANGE dest -8 -1"), last);
    });
}
