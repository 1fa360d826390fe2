//! Scripts that touch keys which they have not declared: what they have done by then is undone, also beside their keys, and they
//! begin again with everything held.

use super::eval;
use crate::common::{Kind, Server, Value, bulk, encode, int, wait_until};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);
/// Each time it begins it writes or it does not, and it begins twice.
const WRITES_SOMETIMES: &str = "local wrote = 0
    if math.random() < 0.5 then redis.call('SET', KEYS[1], 'new') wrote = 1 end
    redis.call('GET', 'un' .. 'declared') return wrote";

/// A script whose like nobody has seen, so that nobody knows that it strays.
fn new(script: &str, number: usize) -> String {
    format!("{script} -- {number}")
}

fn advice(reply: &Value) -> String {
    reply.items()[1].text()
}

/// Once the lease that the first run was given stayed: the second was told to wait, and nobody computed.
#[test]
fn a_lease_that_was_given_is_taken_back() {
    for (shards, runs) in [(1, 6), (3, 30)] {
        let server = Server::start(Kind::Ember { shards }, &[]);
        let mut client = server.client();
        for number in 0..runs {
            let asked = number % 2;
            // (On one shard only a script that lasts begins again.)
            let script = new(
                &format!(
                    "local told = redis.call('GETFRESH', KEYS[{}], 'COST', '2s') for _ = 1, {} do end
                     redis.call('GET', 'un' .. 'declared') return told[2]",
                    asked + 1,
                    if shards == 1 { 3_000_000 } else { 1 }
                ),
                number,
            );
            let keys = [format!("page:{number}"), format!("other:{number}")];
            assert_eq!(eval(&mut client, &script, &[&keys[0], &keys[1]], &[]), bulk("refresh"), "{shards} {number}");
            assert_eq!(advice(&client.call(&format!("GETFRESH {} COST 2s", keys[asked]))), "wait");
        }
    }
}

/// Once the write that was undone had ended the lease, and taken the stale copy away.
#[test]
fn what_stands_beside_a_key_is_put_back() {
    let server = Server::start(Kind::Ember { shards: 3 }, &[]);
    let mut client = server.client();
    assert_eq!(client.call("EXPIRY POLICY SET page: NONE STALE 1h"), Value::ok());
    for number in 0..40 {
        let key = format!("page:{number}");
        assert_eq!(client.call(&format!("SET {key} old PX 1")), Value::ok());
        assert!(wait_until(SOON, || client.call(&format!("EXISTS {key}")) == int(0)));
        let ask = format!("GETFRESH {key} COST 2s");
        let told = client.call(&ask);
        assert_eq!((&told.items()[0], &advice(&told)[..]), (&bulk("old"), "refresh"));
        let wrote = eval(&mut client, &new(WRITES_SOMETIMES, number), &[&key], &[]) == int(1);
        let told = client.call(&ask);
        let expected = if wrote { (bulk("new"), "hit") } else { (bulk("old"), "stale") };
        assert_eq!((told.items()[0].clone(), &advice(&told)[..]), expected, "{number}");
    }
}

/// Once the library that a function had changed was kept where the function could not begin again at once, since replies before its
/// own were on their way.
#[test]
fn locals_of_a_library_are_undone_behind_a_pipeline() {
    let server = Server::start(Kind::Ember { shards: 3 }, &[]);
    for number in 0..30 {
        let mut client = server.client();
        let library = format!(
            "#!lua name=library{number}\nlocal runs = 0
             redis.register_function('run{number}', function(keys, args)
                 runs = runs + 1
                 if args[1] == 'stray' then redis.call('GET', 'un' .. 'declared') end
                 return runs
             end)"
        );
        assert_eq!(client.command(&["FUNCTION", "LOAD", &library]), bulk(format!("library{number}")));
        let (name, key) = (format!("run{number}"), format!("key:{number}"));
        (0..3).for_each(|_| drop(client.command(&["FCALL", &name, "1", &key, "stay"])));
        let behind = number % 2 * 20;
        let mut bytes: Vec<u8> = (0..behind).flat_map(|read| encode(&["GET", &format!("read:{read}")])).collect();
        bytes.extend(encode(&["FCALL", &name, "1", &key, "stray"]));
        client.send_raw(&bytes);
        (0..behind).for_each(|_| assert_eq!(client.read(), Value::NullBulk));
        assert_eq!(client.read(), int(1), "{number}");
    }
}
