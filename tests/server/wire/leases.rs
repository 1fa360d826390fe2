//! LEASE: who has a lease, and tokens that only ever grow.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use crate::common::{Client, Kind, Server, Value, bulk, error, int, on_embers, wait_until};

const SOON: Duration = Duration::from_secs(10);
const LOST: &str = "LEASELOST the lease has ended, or is not of this token";

#[track_caller]
pub fn take(client: &mut Client, key: &str) -> i64 {
    token(&client.call(&format!("LEASE TAKE {key} 1h")))
}

#[track_caller]
fn token(reply: &Value) -> i64 {
    match reply {
        Value::Int(token) => *token,
        other => panic!("no token: {other:?}"),
    }
}

#[test]
fn one_has_a_lease_until_it_ends() {
    on_embers(&[], |server| {
        let (mut first, mut second) = (server.client(), server.client());
        let token = token(&first.call("LEASE TAKE job 1h OWNER worker-1"));
        assert!(token < 1 << 53);
        assert_eq!(second.call("LEASE TAKE job 1h OWNER worker-2"), Value::NullBulk);
        assert_eq!(first.call("lease take job 1h OWNER worker-1"), Value::NullBulk, "he has it already");
        let held = second.call("LEASE GET job");
        let facts = [held.field("token"), held.field("owner")].map(Option::unwrap);
        assert_eq!(facts, [int(token), bulk("worker-1")]);
        let ttl_ms = held.field("ttl_ms").expect("a field").number();
        assert!((3_590_000..=3_600_000).contains(&ttl_ms), "{ttl_ms}");
        assert_eq!(second.call(&format!("LEASE RENEW job {} 1h", token + 1)), error(LOST));
        assert_eq!(second.call(&format!("LEASE RELEASE job {}", token + 1)), int(0));
        assert_eq!(first.call(&format!("LEASE RENEW job {token} 2h")), Value::ok());
        assert!(first.call("PTTL job").number() > 3_600_000);
        assert_eq!(first.call(&format!("LEASE RELEASE job {token}")), int(1));
        assert_eq!(first.call(&format!("LEASE RELEASE job {token}")), int(0));
        assert_eq!(first.call(&format!("LEASE RENEW job {token} 1h")), error(LOST));
        assert_eq!(first.call("LEASE GET job"), Value::NullArray);
        let next = take(&mut second, "job");
        assert!(next > token);
        assert_eq!(second.call("LEASE GET job").field("owner"), Some(bulk("")), "nobody in particular");
        // It ends by itself.
        assert_eq!(second.call(&format!("LEASE RENEW job {next} 20")), Value::ok());
        assert!(wait_until(SOON, || !first.call("LEASE TAKE job 1m").is_null()));
        assert_eq!(second.call(&format!("LEASE RENEW job {next} 1h")), error(LOST), "another one has it");
        first.call("DEL job");
        assert!(!first.call("LEASE TAKE short 1ms").is_error());
        assert!(wait_until(SOON, || second.call("LEASE GET short") == Value::NullArray));
    });
}

/// Whoever asks for a lease that somebody has does not let it live on, though a policy renews what is used.
#[test]
fn a_sliding_policy_renews_no_lease() {
    on_embers(&[], |server| {
        let (mut holder, mut rival) = (server.client(), server.client());
        holder.call("EXPIRY POLICY SET job: 10m SLIDING");
        let token = token(&holder.call("LEASE TAKE job:1 5m"));
        for line in ["LEASE TAKE job:1 5m", "LEASE GET job:1", "LEASE RENEW job:1 0 5m", "LEASE RELEASE job:1 0"] {
            rival.call(line);
            assert!(holder.call("PTTL job:1").number() <= 300_000, "{line}");
        }
        assert_eq!(holder.call(&format!("LEASE RELEASE job:1 {token}")), int(1));
        // So it is with locks of other kinds.
        for (lock, asks) in [
            (
                "SET job:2 me PX 300000 NX",
                &["SET job:2 you PX 300000 NX", "SETNX job:2 you", "MSETNX job:2 you job:3 you"][..],
            ),
            ("SET job:4 me PX 300000", &["EXPIRE job:4 600 NX", "PERSIST other", "MSETEX 1 job:4 you EX 60 NX"]),
            (
                "HSET job:5 f v",
                &["HTTL job:5 FIELDS 1 f", "HEXPIRE job:5 60 XX FIELDS 1 f", "HPERSIST job:5 FIELDS 1 f"],
            ),
        ] {
            holder.call(lock);
            let key = lock.split(' ').nth(1).expect("a key");
            holder.call(&format!("PEXPIRE {key} 300000"));
            for ask in asks {
                rival.call(ask);
                assert!(holder.call(&format!("PTTL {key}")).number() <= 300_000, "{ask}");
            }
        }
        // Whoever reads the value uses the key.
        rival.call("GET job:2");
        assert!(holder.call("PTTL job:2").number() > 300_000);
    });
}

/// Nothing takes a token back: not what becomes of the key, nor of all keys, nor another shard, name or database.
#[test]
fn tokens_grow_whatever_becomes_of_keys() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let mut last = 0;
        for line in ["DEL a", "FLUSHALL", "FLUSHDB", "RENAME a b", "SWAPDB 0 1", "SET a x EX 1", "COPY a c", "UNLINK a"]
        {
            for key in ["a", "b", "c", "d", "e", "f"] {
                client.call(&format!("DEL {key}"));
                let token = take(&mut client, key);
                assert!(token > last, "{token} after {last} ({line})");
                last = token;
            }
            let reply = client.call(line);
            assert!(!reply.is_error(), "{line}: {reply:?}");
        }
        // Many at once: all are different, and each client's grow.
        let all: Vec<Vec<i64>> = std::thread::scope(|scope| {
            let taking = |nth: usize| {
                let mut client = server.client();
                move || (0..200).map(|n| take(&mut client, &format!("many:{nth}:{n}"))).collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..4).map(|nth| scope.spawn(taking(nth))).collect();
            threads.into_iter().map(|thread| thread.join().expect("tokens")).collect()
        });
        assert!(all.iter().all(|tokens| tokens.is_sorted() && tokens[0] > last));
        assert_eq!(all.iter().flatten().collect::<BTreeSet<_>>().len(), 800);
    });
}

#[test]
fn of_many_that_want_a_lease_one_gets_it() {
    on_embers(&[], |server| {
        for round in 0..20 {
            let got: usize = std::thread::scope(|scope| {
                let want = || {
                    let mut client = server.client();
                    move || usize::from(!client.call(&format!("LEASE TAKE wanted:{round} 1h")).is_null())
                };
                let threads: Vec<_> = (0..6).map(|_| scope.spawn(want())).collect();
                threads.into_iter().map(|thread| thread.join().expect("a reply")).sum()
            });
            assert_eq!(got, 1);
        }
    });
}

#[test]
fn what_is_wrong_is_said() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for line in
            ["LEASE TAKE a", "LEASE RENEW a 1", "LEASE RELEASE a", "LEASE GET", "LEASE GET a b", "LEASE RELEASE a 1 2"]
        {
            let name = line.split(' ').nth(1).expect("a word").to_lowercase();
            let text = format!("ERR wrong number of arguments for 'lease|{name}' command");
            assert_eq!(client.call(line), error(&text), "{line}");
        }
        for line in ["LEASE TAKE a 1s OWNER", "LEASE TAKE a 1s HOLDER x", "LEASE TAKE a 1s OWNER x y"] {
            assert_eq!(client.call(line), error("ERR syntax error"), "{line}");
        }
        for ttl in ["0", "-1", "x", "9223372036854775808", "99999999999999999999999d", "1.5.5s", ""] {
            for line in [vec!["LEASE", "TAKE", "a", ttl], vec!["LEASE", "RENEW", "a", "1", ttl]] {
                let reply = client.command(&line);
                assert!(reply.text().starts_with("ERR invalid duration"), "{line:?}: {reply:?}");
            }
        }
        for token in ["x", "-1", "", "99999999999999999999", "1.0"] {
            let expected = error("ERR value is not an integer or out of range");
            assert_eq!(client.command(&["LEASE", "RENEW", "a", token, "1s"]), expected, "{token}");
            assert_eq!(client.command(&["LEASE", "RELEASE", "a", token]), expected, "{token}");
        }
        assert_eq!(client.call("EXISTS a"), int(0), "nothing was taken by mistake");
        assert!(!client.call("LEASE TAKE a 3650000d").is_error(), "as long as there are dates");
        // What is no lease is not taken for one.
        client.call("RPUSH list x");
        client.call("SET text hello");
        client.call("SET number 17");
        for key in ["list", "text", "number"] {
            for line in [format!("LEASE TAKE {key} 1s"), format!("LEASE GET {key}")] {
                assert!(client.call(&line).text().starts_with("WRONGTYPE"), "{line}");
            }
            assert_eq!(client.call(&format!("LEASE RENEW {key} 17 1s")), error(LOST));
            assert_eq!(client.call(&format!("LEASE RELEASE {key} 17")), int(0));
            assert_eq!(client.call(&format!("EXISTS {key}")), int(1));
        }
        client.assert_in_step();
    });
}

#[test]
fn leases_are_taken_in_transactions_and_scripts() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let first = take(&mut client, "before");
        for line in ["MULTI", "LEASE TAKE a 1h OWNER x", "SET unrelated 1", "LEASE TAKE a 1h", "LEASE GET a", "EXEC"] {
            client.send(line);
        }
        let replies = (0..6).map(|_| client.read()).last().expect("of EXEC");
        let second = token(&replies.items()[0]);
        assert!(second > first);
        assert_eq!(replies.items()[2], Value::NullBulk);
        assert_eq!(replies.items()[3].field("token"), Some(int(second)));
        let script = "local token = redis.call('LEASE', 'TAKE', KEYS[1], '1h', 'OWNER', ARGV[1]) \
                      redis.call('SET', KEYS[2], token) \
                      return {token, redis.call('LEASE', 'GET', KEYS[1])[4], redis.call('LEASE', 'RENEW', KEYS[1], token, '2h')}";
        let reply = client.command(&["EVAL", script, "2", "b", "c", "script"]);
        let third = token(&reply.items()[0]);
        assert!(third > second);
        assert_eq!(reply.items()[1..], [bulk("script"), Value::ok()]);
        assert_eq!(client.call("GET c"), bulk(third.to_string()));
        // Keys that it has not declared.
        let script = "return redis.call('LEASE', 'TAKE', ARGV[1], '1h')";
        assert!(token(&client.command(&["EVAL", script, "0", "d"])) > third);
        // And with another database.
        client.call("SELECT 1");
        assert!(take(&mut client, "a") > third);
    });
}

/// A crash loses no token that anybody was given, and nobody's clock matters.
#[test]
fn tokens_grow_over_restarts() {
    for shards in ["1", "3"] {
        for flags in [&["--appendonly", "yes", "--appendfsync", "always"][..], &["--save", ""]] {
            let flags = [&["--shards", shards, "--enable-debug-command", "yes"], flags].concat();
            let mut server = Server::start(Kind::Ember { shards: shards.parse().expect("a number") }, &flags);
            let mut last = 0;
            for round in 0..4 {
                let mut client = server.client();
                for key in ["a", "b", "c", "d"] {
                    client.call(&format!("DEL {key}"));
                    let token = take(&mut client, key);
                    assert!(token > last, "{token} after {last}");
                    last = token;
                }
                let held = client.call("LEASE GET a").field("token");
                if round == 1 {
                    assert_eq!(client.call("DEBUG RELOAD"), Value::ok());
                    assert_eq!(client.call("LEASE GET a").field("token"), held);
                    client.call("DEL a");
                    let token = take(&mut client, "a");
                    assert!(token > last);
                    last = token;
                }
                let held = client.call("LEASE GET a").field("token");
                server = server.restart(&flags);
                if flags.contains(&"--appendonly") {
                    assert_eq!(server.client().call("LEASE GET a").field("token"), held);
                }
            }
        }
    }
}

/// Another server is given the snapshot, and not the file beside it: a backup that comes back.
#[test]
fn a_snapshot_says_how_far_tokens_reach() {
    let server = Server::start(Kind::Ember { shards: 3 }, &[]);
    let far = (1_u64 << 52).to_string();
    fs::write(server.folder().join("lease-tokens"), format!("{far:0>16}\n")).expect("a disk");
    let server = server.restart(&[]);
    let mut client = server.client();
    let last = take(&mut client, "a");
    assert!(last > 1 << 52);
    assert_eq!(client.call("SAVE"), Value::ok());
    fs::remove_file(server.folder().join("lease-tokens")).expect("written before any token was given");
    let server = server.restart(&[]);
    let mut client = server.client();
    assert_eq!(client.call("LEASE GET a").field("token"), Some(int(last)));
    assert!(take(&mut client, "b") > last);
    // A file that nobody can make sense of: no token is given rather than an old one.
    fs::write(server.folder().join("lease-tokens"), "what is this").expect("a disk");
    let server = server.restart(&[]);
    let mut client = server.client();
    let refused = client.call("LEASE TAKE c 1h");
    assert!(refused.text().starts_with("ERR Tokens of leases cannot be saved (lease-tokens)"), "{refused:?}");
    assert_eq!(client.call("EXISTS c"), int(0));
    assert_eq!(client.call(&format!("LEASE RELEASE a {last}")), int(1), "what needs no new token goes on");
}

/// What is in the log and in the stream are SET, PEXPIREAT and DEL, so that servers of any kind follow.
#[test]
fn leases_are_told_as_strings() {
    on_embers(&["--notify-keyspace-events", "KEA", "--appendonly", "yes"], |server| {
        let (mut client, mut listener) = (server.client(), server.client());
        listener.call("PSUBSCRIBE __keyspace@0__:job");
        let token = take(&mut client, "job");
        client.call(&format!("LEASE RENEW job {token} 2h"));
        client.call(&format!("LEASE RELEASE job {token}"));
        let events: Vec<String> = (0..4).map(|_| listener.read().items()[3].text()).collect();
        assert_eq!(events, ["set", "expire", "expire", "del"]);
        take(&mut client, "job");
        assert_eq!(client.call("TYPE job"), Value::Simple("string".into()));
        assert_eq!(
            client.call("GET job"),
            bulk(format!("{} ", client.call("LEASE GET job").field("token").expect("held").number()))
        );
    });
}
