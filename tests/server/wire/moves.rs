//! LMOVEM and BLMOVEM (Redis 8.10): several elements from one list to another.

use std::time::Duration;

use super::transactions::exec;
use crate::common::{Client, Server, Value, error, int, on_embers, simple, wait_until};

const PATIENCE: Duration = Duration::from_secs(10);
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

fn list(client: &mut Client, key: &str) -> String {
    client.call(&format!("LRANGE {key} 0 -1")).items().iter().map(Value::text).collect()
}

fn fill(client: &mut Client, key: &str, elements: &str) {
    client.call(&format!("DEL {key}"));
    for element in elements.chars() {
        client.call(&format!("RPUSH {key} {element}"));
    }
}

fn joined(value: &Value) -> String {
    value.items().iter().map(Value::text).collect()
}

/// Ends and order; what is answered when two of `abcd` go to `xy`, and what both lists are then.
const CASES: &[(&str, &str, &str, &str)] = &[
    ("LEFT LEFT COUNT 2 OBO", "ba", "cd", "baxy"),
    ("LEFT LEFT COUNT 2 BULK", "ab", "cd", "abxy"),
    ("LEFT RIGHT COUNT 2 OBO", "ab", "cd", "xyab"),
    ("left right count 2 bulk", "ab", "cd", "xyab"),
    ("RIGHT LEFT COUNT 2 OBO", "cd", "ab", "cdxy"),
    ("RIGHT LEFT COUNT 2 BULK", "cd", "ab", "cdxy"),
    ("RIGHT RIGHT COUNT 2 OBO", "dc", "ab", "xydc"),
    ("RIGHT RIGHT EXACTLY 2 BULK", "cd", "ab", "xycd"),
    ("LEFT LEFT", "a", "bcd", "axy"),
    ("RIGHT RIGHT", "d", "abc", "xyd"),
    ("LEFT RIGHT COUNT 9 OBO", "abcd", "", "xyabcd"),
    ("LEFT LEFT EXACTLY 4 OBO", "dcba", "", "dcbaxy"),
    ("LEFT LEFT EXACTLY 5 OBO", "-", "abcd", "xy"),
];

#[test]
fn elements_arrive_in_the_order_that_was_asked_for() {
    on_embers(&[], |server| {
        let mut client = server.client();
        // Together and, with several shards, apart.
        for (source, destination) in [("{k}a", "{k}b"), ("one", "two"), ("three", "four"), ("five", "six")] {
            for (how, moved, left, there) in CASES {
                fill(&mut client, source, "abcd");
                fill(&mut client, destination, "xy");
                let words: Vec<&str> = how.split(' ').collect();
                let (ends, rest) = (words[..2].join(" "), words[2..].join(" "));
                for line in [
                    format!("LMOVEM {source} {destination} {how}"),
                    format!("BLMOVEM {source} {destination} {ends} 0.01 {rest}"),
                ] {
                    let reply = client.call(line.trim_end());
                    match *moved {
                        "-" => assert_eq!(reply, Value::NullArray, "{line}"),
                        moved => assert_eq!(joined(&reply), moved, "{line}"),
                    }
                    assert_eq!(
                        (list(&mut client, source).as_str(), list(&mut client, destination).as_str()),
                        (*left, *there),
                        "{line}"
                    );
                    fill(&mut client, source, "abcd");
                    fill(&mut client, destination, "xy");
                }
                client.call(&format!("DEL {destination}"));
                let line = format!("LMOVEM {source} {destination} {how}");
                let reply = exec(&mut client, &[&line]).items()[0].clone();
                assert_eq!(reply.is_null(), *moved == "-", "{line}");
                assert_eq!(list(&mut client, destination), there.replace("xy", ""), "{line}");
            }
        }
        assert_eq!(server.client3().call("LMOVEM none other LEFT LEFT"), Value::Null);
    });
}

#[test]
fn a_list_is_turned_in_itself() {
    on_embers(&["--notify-keyspace-events", "EAn"], |server| {
        let (mut client, mut listener) = (server.client(), server.client());
        for (how, moved, left) in [
            ("LEFT LEFT COUNT 2 OBO", "ba", "bacd"),
            ("LEFT LEFT COUNT 2 BULK", "ab", "abcd"),
            ("LEFT RIGHT COUNT 2 BULK", "ab", "cdab"),
            ("RIGHT LEFT COUNT 3 OBO", "bcd", "bcda"),
            ("RIGHT RIGHT COUNT 3 OBO", "dcb", "adcb"),
            ("LEFT LEFT COUNT 9 OBO", "dcba", "dcba"),
            ("RIGHT RIGHT COUNT 9 OBO", "dcba", "dcba"),
            ("RIGHT LEFT EXACTLY 4 BULK", "abcd", "abcd"),
        ] {
            fill(&mut client, "k", "abcd");
            client.call("EXPIRE k 1000");
            let line = format!("LMOVEM k k {how}");
            assert_eq!(joined(&client.call(&line)), moved, "{line}");
            assert_eq!(list(&mut client, "k"), left, "{line}");
            assert_eq!(client.call("TTL k"), int(1000), "{line}");
        }
        listener.call("PSUBSCRIBE __keyevent@0__:*");
        client.call("LMOVEM k k LEFT RIGHT COUNT 4 OBO");
        let event =
            |listener: &mut Client| listener.read().items()[2].text().trim_start_matches("__keyevent@0__:").to_owned();
        assert_eq!([event(&mut listener), event(&mut listener)], ["lpop", "rpush"]);
        client.call("LMOVEM k {k}other RIGHT LEFT COUNT 4 OBO");
        let events: Vec<String> = (0..4).map(|_| event(&mut listener)).collect();
        assert_eq!(events, ["new", "lpush", "rpop", "del"]);
    });
}

#[test]
fn what_is_wrong_moves_nothing() {
    on_embers(&[], |server| {
        let mut client = server.client();
        fill(&mut client, "a", "123");
        client.call("SET text x");
        let count = "ERR count should be greater than 0";
        for (command, text) in [
            ("LMOVEM a b LEFT", "ERR wrong number of arguments for 'lmovem' command"),
            ("BLMOVEM a b LEFT LEFT", "ERR wrong number of arguments for 'blmovem' command"),
            ("LMOVEM a b LEFT RIGHT COUNT 0 BULK", count),
            ("LMOVEM a b LEFT RIGHT EXACTLY 0 BULK", count),
            ("LMOVEM a b LEFT RIGHT COUNT -1 BULK", count),
            ("BLMOVEM a b LEFT RIGHT 0 COUNT x OBO", count),
            ("LMOVEM a b LEFT RIGHT COUNT 2", "ERR syntax error"),
            ("LMOVEM a b LEFT RIGHT OBO", "ERR syntax error"),
            ("LMOVEM a b LEFT RIGHT COUNT 2 OBO BULK", "ERR syntax error"),
            ("LMOVEM a b LEFT RIGHT ALL 2 OBO", "ERR syntax error"),
            ("LMOVEM a b LEFT RIGHT COUNT 2 ANY", "ERR syntax error"),
            ("LMOVEM a b UP RIGHT COUNT 2 OBO", "ERR syntax error"),
            ("LMOVEM a b LEFT DOWN", "ERR syntax error"),
            ("BLMOVEM a b LEFT RIGHT -1", "ERR timeout is negative"),
            ("BLMOVEM a b LEFT RIGHT x COUNT 2 OBO", "ERR timeout is not a float or out of range"),
            ("LMOVEM text b LEFT RIGHT", WRONG_TYPE),
            ("LMOVEM a text LEFT RIGHT COUNT 2 BULK", WRONG_TYPE),
            ("BLMOVEM a text LEFT RIGHT 0 COUNT 2 BULK", WRONG_TYPE),
        ] {
            assert_eq!(client.call(command), error(text), "{command}");
        }
        assert_eq!(client.call("LMOVEM a text LEFT RIGHT EXACTLY 4 BULK"), Value::NullArray, "there is too little");
        assert_eq!(list(&mut client, "a"), "123");
        assert_eq!(client.call("EXISTS b"), int(0));
        let many = "EVAL return(redis.call('LMOVEM',KEYS[1],KEYS[2],'LEFT','LEFT','COUNT','2','OBO')) 2 a b";
        assert_eq!(joined(&client.call(many)), "21");
        let none = "EVAL return(redis.call('BLMOVEM',KEYS[1],KEYS[2],'LEFT','LEFT','0','EXACTLY','2','OBO')) 2 a b";
        assert_eq!(client.call(none), Value::NullBulk, "a script does not wait");
        let of = |key, uses: &[&str]| {
            Value::Array(vec![
                Value::bulks(&[key]).items()[0].clone(),
                Value::Array(uses.iter().map(|word| simple(word)).collect()),
            ])
        };
        for command in ["LMOVEM a b LEFT LEFT", "BLMOVEM a b LEFT LEFT 0"] {
            let uses = client.call(&format!("COMMAND GETKEYSANDFLAGS {command}"));
            assert_eq!(uses, Value::Array(vec![of("a", &["RW", "access", "delete"]), of("b", &["RW", "insert"])]));
        }
    });
}

fn is_waiting(server: &Server, clients: &str) -> bool {
    wait_until(PATIENCE, || server.info("blocked_clients").as_deref() == Some(clients))
}

#[test]
fn it_waits_until_there_is_enough() {
    on_embers(&[], |server| {
        let (mut waiter, mut second, mut other) = (server.client(), server.client(), server.client());
        for (source, destination) in [("{k}a", "{k}b"), ("one", "two"), ("three", "four"), ("five", "six")] {
            other.call("FLUSHALL");
            waiter.send(&format!("BLMOVEM {source} {destination} LEFT RIGHT 0 COUNT 5 BULK"));
            assert!(is_waiting(server, "1"));
            other.call(&format!("RPUSH {source} a b"));
            assert_eq!(joined(&waiter.read()), "ab");
            assert_eq!(list(&mut other, destination), "ab");

            for (grow, moved) in [
                ("RPUSH SOURCE 3", "123"),
                ("LINSERT SOURCE BEFORE 1 0", "012"),
                ("LMOVE feed SOURCE LEFT RIGHT", "129"),
                ("LMOVEM feed SOURCE LEFT LEFT", "912"),
                ("SORT feed STORE SOURCE", "789"),
            ] {
                other.call("FLUSHALL");
                fill(&mut other, "feed", "978");
                waiter.send(&format!("BLMOVEM {source} {destination} LEFT RIGHT 0 EXACTLY 3 BULK"));
                assert!(is_waiting(server, "1"));
                // Whoever waits behind it for less is served.
                second.send(&format!("BLMOVEM {source} {destination}2 RIGHT RIGHT 0"));
                assert!(is_waiting(server, "2"));
                other.call(&format!("RPUSH {source} first"));
                assert_eq!(joined(&second.read()), "first");
                fill(&mut other, source, "12");
                assert_eq!(waiter.read_within(Duration::from_millis(20)), None, "there are not enough");
                assert_eq!(list(&mut other, source), "12");
                let line = grow.replace("SOURCE", source);
                assert!(!other.call(&line).is_error(), "{line}");
                assert_eq!(joined(&waiter.read()), moved, "{line}");
                assert_eq!(list(&mut other, destination), moved, "{line}");
                assert_eq!(other.call(&format!("EXISTS {source}")), int(0));
            }
            fill(&mut other, source, "12");
            waiter.send(&format!("BLMOVEM {source} {destination} LEFT RIGHT 0.05 EXACTLY 3 BULK"));
            assert_eq!(waiter.read(), Value::NullArray, "its time is over");
            let line = format!("BLMOVEM {source} {destination} LEFT RIGHT 0 EXACTLY 3 BULK");
            assert_eq!(exec(&mut other, &[&line]), Value::Array(vec![Value::NullArray]));
        }
    });
}

/// A client that waits for more than there is must neither be called in vain over and over nor keep others waiting.
#[test]
fn who_waits_for_more_costs_nothing_and_holds_nobody_up() {
    on_embers(&[], |server| {
        let mut other = server.client();
        let mut patient: Vec<Client> = (0..5).map(|_| server.client()).collect();
        for (nth, waiter) in patient.iter_mut().enumerate() {
            waiter.send(&format!("BLMOVEM source into:{nth} LEFT RIGHT 0 EXACTLY {} OBO", 10 + nth));
            // (Those of different shards would come in any order.)
            assert!(is_waiting(server, &(nth + 1).to_string()));
        }
        other.call("RPUSH source 1 2 3");
        let mut hasty = server.client();
        hasty.send("BLPOP source 0");
        assert_eq!(hasty.read(), Value::bulks(&["source", "1"]));
        let commands = || server.info("total_commands_processed").expect("a number").parse::<u64>().expect("a number");
        let before = commands();
        std::thread::sleep(Duration::from_millis(50));
        assert!(commands() - before < 5, "nothing runs");
        for n in 0..30 {
            other.call(&format!("RPUSH source {n}"));
        }
        assert_eq!(patient[0].read().items().len(), 10);
        assert_eq!(patient[1].read().items().len(), 11);
        assert!(is_waiting(server, "3"));
        assert_eq!(other.call("LLEN source"), int(11));
    });
}
