//! SUNIONCARD and SDIFFCARD (Redis 8.10), beside SINTERCARD: on one shard and on several.

use super::transactions::exec;
use crate::common::{Value, error, int, on_embers};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn members_of_unions_and_differences_are_counted() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("SADD a 1 2 3 x y");
        client.call("SADD b 3 4 y z");
        client.call("SADD c 1 5");
        for (command, count) in [
            ("SUNIONCARD 3 a b c", 8),
            ("SUNIONCARD 1 a", 5),
            ("SUNIONCARD 2 a a", 5),
            ("SUNIONCARD 3 a none b", 7),
            ("SUNIONCARD 2 none nothing", 0),
            ("SUNIONCARD 3 a b c LIMIT 0", 8),
            ("SUNIONCARD 3 a b c LIMIT 6", 6),
            ("SUNIONCARD 3 a b c limit 100", 8),
            ("SUNIONCARD 3 a b c LIMIT 2 LIMIT 4", 4),
            ("SUNIONCARD 3 a b c APPROX", 8),
            ("SUNIONCARD 3 a b c APPROX LIMIT 6", 6),
            ("SUNIONCARD 3 a b c LIMIT 6 approx", 6),
            ("SUNIONCARD 1 none APPROX", 0),
            ("SDIFFCARD 3 a b c", 2),
            ("SDIFFCARD 1 a", 5),
            ("SDIFFCARD 2 a a", 0),
            ("SDIFFCARD 2 none a", 0),
            ("SDIFFCARD 2 a none", 5),
            ("SDIFFCARD 2 a c LIMIT 3", 3),
            ("SDIFFCARD 2 a c LIMIT 0", 4),
            ("SINTERCARD 2 a b LIMIT 0", 2),
        ] {
            assert_eq!(client.call(command), int(count), "{command}");
        }
        let both = exec(&mut client, &["SADD c new", "SUNIONCARD 2 b c", "SDIFFCARD 2 c a"]);
        assert_eq!(both, Value::Array(vec![int(1), int(7), int(2)]));
        let script =
            "EVAL return{redis.call('SUNIONCARD',2,KEYS[1],KEYS[2]),redis.call('SDIFFCARD',2,KEYS[1],KEYS[2])} 2 a b";
        assert_eq!(client.call(script), Value::Array(vec![int(7), int(3)]));
    });
}

#[test]
fn what_is_wrong_is_said_as_by_sintercard() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call("SADD a 1");
        client.call("SET text 1");
        for name in ["SINTERCARD", "SUNIONCARD", "SDIFFCARD"] {
            let arity = format!("ERR wrong number of arguments for '{}' command", name.to_lowercase());
            for (rest, text) in [
                ("1", arity.as_str()),
                ("0 a", "ERR numkeys should be greater than 0"),
                ("x a", "ERR numkeys should be greater than 0"),
                ("3 a b", "ERR Number of keys can't be greater than number of args"),
                ("1 a LIMIT -1", "ERR LIMIT can't be negative"),
                ("1 a LIMIT x", "ERR LIMIT can't be negative"),
                ("1 a LIMIT", "ERR syntax error"),
                ("1 a b", "ERR syntax error"),
                ("1 a LIMIT 1 b", "ERR syntax error"),
                ("2 a text", WRONG_TYPE),
                ("2 none text", WRONG_TYPE),
            ] {
                assert_eq!(client.call(&format!("{name} {rest}")), error(text), "{name} {rest}");
            }
        }
        for name in ["SINTERCARD", "SDIFFCARD"] {
            assert_eq!(client.call(&format!("{name} 1 a APPROX")), error("ERR syntax error"));
        }
        assert_eq!(client.call("COMMAND GETKEYS SUNIONCARD 2 a b APPROX"), Value::bulks(&["a", "b"]));
        assert_eq!(client.call("COMMAND GETKEYS SDIFFCARD 1 a LIMIT 5"), Value::bulks(&["a"]));
    });
}

#[test]
fn large_sets_are_counted_in_pieces_and_estimated_well() {
    const MEMBERS: i64 = 30_000;
    on_embers(&[], |server| {
        let mut client = server.client();
        for (key, first) in [("a", 0), ("b", MEMBERS / 2), ("c", MEMBERS)] {
            let members = (first..first + MEMBERS).map(|n| format!("member:{n}"));
            let args: Vec<String> = ["SADD".to_owned(), key.to_owned()].into_iter().chain(members).collect();
            assert_eq!(client.command(&args), int(MEMBERS));
        }
        assert_eq!(client.call("SUNIONCARD 3 a b c"), int(2 * MEMBERS));
        assert_eq!(client.call("SUNIONCARD 3 a b c LIMIT 50000"), int(50_000));
        assert_eq!(client.call("SDIFFCARD 2 a b"), int(MEMBERS / 2));
        assert_eq!(client.call("SDIFFCARD 3 b a c"), int(0));
        assert_eq!(client.call("SDIFFCARD 2 a c LIMIT 12345"), int(12_345));
        let estimate = client.call("SUNIONCARD 3 a b c APPROX").number();
        assert!((estimate - 2 * MEMBERS).abs() < MEMBERS / 15, "{estimate}");
        assert_eq!(client.call("SUNIONCARD 3 a b c APPROX LIMIT 1000"), int(1000));
    });
}
