//! A script is one moment, whichever keys it has and on however many shards they are.

use super::eval;
use crate::common::{Kind, Server, Value, bulk, encode, int, on_embers, wait_until};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const ACCOUNTS: usize = 12;
const EACH: i64 = 1_000;

fn account(index: usize) -> String {
    format!("account:{index}")
}

/// Some add all balances up while others move money, each in several ways.
#[test]
fn the_sum_of_all_accounts_never_differs() {
    for shards in [1, 3] {
        let server = Server::start(Kind::Ember { shards }, &[]);
        let mut client = server.client();
        (0..ACCOUNTS).for_each(|index| assert_eq!(client.call(&format!("SET {} {EACH}", account(index))), Value::ok()));
        let names: Vec<String> = (0..ACCOUNTS).map(account).collect();
        let wanted: u64 =
            std::env::var("EMBERDB_TEST_TRANSFERS").ok().and_then(|count| count.parse().ok()).unwrap_or(4_000);
        let (is_over, moved) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (server, names, is_over, moved) = (&server, &names, &is_over, &moved);
            for nth in 0..4 {
                scope.spawn(move || {
                    let mut client = server.client();
                    let declared: Vec<&str> = names.iter().map(String::as_str).collect();
                    let sum = "local sum = 0 for i = 1, #KEYS do sum = sum + redis.call('GET', KEYS[i]) end return sum";
                    let undeclared = "local sum = 0 for i = 1, #ARGV do sum = sum + redis.call('GET', ARGV[i]) end return sum";
                    let at_once = "local sum = 0 for _, n in ipairs(redis.call('MGET', unpack(KEYS))) do sum = sum + n end \
                                   for i = 1, 20000 do end return sum";
                    while !is_over.load(Ordering::Relaxed) {
                        let sum = match nth {
                            0 => eval(&mut client, sum, &declared, &[]),
                            1 => eval(&mut client, undeclared, &[], &declared),
                            _ => eval(&mut client, at_once, &declared, &[]),
                        };
                        assert_eq!(sum, int(EACH * ACCOUNTS as i64), "adder {nth}, {shards} shards");
                    }
                });
            }
            let movers: Vec<_> = (0..4)
                .map(|nth| {
                    scope.spawn(move || {
                        let mut client = server.client();
                        let mut rng = fastrand::Rng::with_seed(nth);
                        let script =
                            "redis.call('DECRBY', KEYS[1], ARGV[1]) redis.call('INCRBY', KEYS[2], ARGV[1]) return 1";
                        let undeclared =
                            "redis.call('DECRBY', KEYS[1], ARGV[1]) redis.call('INCRBY', ARGV[2], ARGV[1]) return 1";
                        while moved.fetch_add(1, Ordering::Relaxed) < wanted {
                            let (from, to) = (&names[rng.usize(..ACCOUNTS)], &names[rng.usize(..ACCOUNTS)]);
                            let amount = rng.u32(1..50).to_string();
                            let done = match nth {
                                0 => eval(&mut client, script, &[from, to], &[&amount]),
                                1 => eval(&mut client, undeclared, &[from], &[&amount, to]),
                                2 => {
                                    client.call("MULTI");
                                    client.command(&["DECRBY", from, &amount]);
                                    client.command(&["EVAL", script, "2", to, to, "0"]);
                                    client.command(&["INCRBY", to, &amount]);
                                    let done = client.call("EXEC");
                                    done.items()[1].clone()
                                }
                                _ => {
                                    let commands = [
                                        vec!["MULTI"],
                                        vec!["DECRBY", from, &amount],
                                        vec!["INCRBY", to, &amount],
                                        vec!["EXEC"],
                                    ];
                                    client.pipeline(&commands);
                                    int(1)
                                }
                            };
                            assert_eq!(done, int(1), "mover {nth}");
                        }
                    })
                })
                .collect();
            movers.into_iter().for_each(|mover| mover.join().expect("a mover"));
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

/// What a script wrote before it left its keys is not seen, not told and not there twice.
#[test]
fn a_script_that_leaves_its_keys_begins_again() {
    for shards in [1, 3] {
        let server = Server::start(Kind::Ember { shards }, &["--notify-keyspace-events", "KA"]);
        let (mut client, mut listener) = (server.client(), server.client());
        listener.call("PSUBSCRIBE __keyspace@0__:*");
        for round in 0..20 {
            let (mine, other) = (format!("mine:{round}"), format!("other:{round}"));
            // Another text each time, of which nobody knows yet that it strays.
            let script = format!(
                "redis.call('RPUSH', KEYS[1], 'x') redis.call('HSET', KEYS[1]..'h', 'f', {round}) \
                 redis.call('INCR', ARGV[1]) return redis.call('LLEN', KEYS[1])"
            );
            assert_eq!(eval(&mut client, &script, &[&mine], &[&other]), int(1));
            assert_eq!(client.call(&format!("GET {other}")), bulk("1"));
            let told = listener.drain(Duration::from_millis(30));
            let told: Vec<String> = told.iter().map(|push| push.items()[3].text()).collect();
            let mut sorted = told.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, ["hset", "incrby", "rpush"], "{told:?}");
        }
    }
}

/// A field that a script has found dead is told once, and does not come back with what is put back.
#[test]
fn a_field_dies_once_though_its_script_begins_again() {
    for shards in [1, 3] {
        let flags = ["--notify-keyspace-events", "KA", "--active-expire-enabled", "no"];
        let server = Server::start(Kind::Ember { shards }, &flags);
        let (mut client, mut listener) = (server.client(), server.client());
        listener.call("PSUBSCRIBE __keyspace@0__:*");
        for round in 0..10 {
            let (mine, other) = (format!("mine:{round}"), format!("other:{round}"));
            client.call(&format!("HSET {mine} f 1 g 1"));
            assert_eq!(client.call(&format!("HPEXPIRE {mine} 5 FIELDS 1 f")).items(), [int(1)]);
            std::thread::sleep(Duration::from_millis(10));
            listener.drain(Duration::from_millis(30));
            let script = format!(
                "redis.call('HSET', KEYS[1], 'f', {round}) redis.call('INCR', ARGV[1]) return redis.call('HLEN', KEYS[1])"
            );
            assert_eq!(eval(&mut client, &script, &[&mine], &[&other]), int(2));
            let told = listener.drain(Duration::from_millis(30));
            let mut told: Vec<String> = told.iter().map(|push| push.items()[3].text()).collect();
            told.sort_unstable();
            assert_eq!(told, ["hexpired", "hset", "incrby"]);
        }
    }
}

/// Time stands still, whatever the clock does.
#[test]
fn a_key_does_not_die_while_a_script_looks() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for keys in [&["k"][..], &["k", "other:1", "other:2"]] {
            client.call("SET k v PX 30");
            let script = "local first = redis.call('PTTL', KEYS[1]) \
                          if redis.call('GET', KEYS[1]) == false then return {'dead', 'dead', 0} end \
                          for i = 1, 2e7 do end \
                          return {redis.call('GET', KEYS[1]), redis.call('EXISTS', KEYS[1]), redis.call('PTTL', KEYS[1]) - first}";
            let answer = eval(&mut client, script, keys, &[]);
            let alive = Value::Array(vec![bulk("v"), int(1), int(0)]);
            let dead = Value::Array(vec![bulk("dead"), bulk("dead"), int(0)]);
            assert!(answer == alive || answer == dead, "{answer:?}");
            assert!(wait_until(Duration::from_secs(10), || client.call("EXISTS k") == int(0)));
        }
    });
}

/// TIME is the moment by which deadlines are judged: nothing outlives its deadline by TIME's word.
#[test]
fn time_stands_still_in_scripts_and_transactions() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let script = "local before = redis.call('TIME')
                      if KEYS[1] then redis.call('SET', KEYS[1], 'v', 'PX', 1000) end
                      for i = 1, 2e6 do end
                      if ARGV[1] then redis.call('SET', ARGV[1], 'v') end
                      local after = redis.call('TIME')
                      local ms = after[1] * 1000 + math.floor(after[2] / 1000)
                      if KEYS[1] and redis.call('PEXPIRETIME', KEYS[1]) ~= ms + 1000 then return 'another moment' end
                      return {before[1] .. '.' .. before[2], after[1] .. '.' .. after[2]}";
        let keys = ["one", "two", "three"];
        for (keys, args) in [(&keys[..0], &[][..]), (&keys[..1], &[]), (&keys[..], &[]), (&keys[..1], &["undeclared"])]
        {
            let answer = eval(&mut client, script, keys, args);
            let Value::Array(times) = &answer else { panic!("{keys:?} {args:?}: {answer:?}") };
            assert_eq!(times[0], times[1], "{keys:?} {args:?}");
        }
        for key in ["one", "two", "three"] {
            client.call("MULTI");
            for command in ["TIME", &format!("SET {key} v PX 1000"), &format!("PEXPIRETIME {key}")] {
                assert_eq!(client.call(command).text(), "QUEUED");
            }
            client.command(&["EVAL", "for i = 1, 2e6 do end return redis.call('TIME')", "0"]);
            client.call("TIME");
            let answer = client.call("EXEC");
            let Value::Array(answers) = &answer else { panic!("{answer:?}") };
            assert!(answers[0] == answers[3] && answers[0] == answers[4], "{answers:?}");
            let Value::Array(time) = &answers[0] else { panic!("{answers:?}") };
            let number = |index: usize| time[index].text().parse::<i64>().expect("a number");
            assert_eq!(answers[2], int(number(0) * 1_000 + number(1) / 1_000 + 1_000));
        }
    });
}

/// A script that waits for time to pass ends, as in Redis 8; what it sees does not die meanwhile.
#[test]
fn time_passes_in_scripts_that_last() {
    on_embers(&["--busy-reply-threshold", "100"], |server| {
        let mut client = server.client();
        let script = "local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end
                      redis.call('SET', KEYS[1], 'v', 'PX', 50)
                      local first, last = now(), 0
                      repeat last = now() until last ~= first
                      return {last - first, redis.call('GET', KEYS[1])}";
        let answer = eval(&mut client, script, &["k"], &[]);
        let items = answer.items();
        assert!(items[0].number() > 100_000, "{answer:?}");
        assert_eq!(items[1], bulk("v"));
        assert_eq!(client.call("GET k"), Value::NullBulk);
    });
}

#[test]
fn scripts_wake_those_who_wait() {
    on_embers(&[], |server| {
        let (mut waiting, mut client) = (server.client(), server.client());
        waiting.send_raw(&encode(&["BLPOP", "queue", "0"]));
        assert!(wait_until(Duration::from_secs(10), || server.info("blocked_clients").as_deref() == Some("1")));
        // Nobody is served in the middle.
        let script = "redis.call('RPUSH', KEYS[1], 'a', 'b') return redis.call('LLEN', KEYS[1])";
        assert_eq!(eval(&mut client, script, &["queue"], &[]), int(2));
        assert_eq!(waiting.read(), Value::bulks(&["queue", "a"]));
        assert_eq!(client.call("LRANGE queue 0 -1"), Value::bulks(&["b"]));
    });
}

#[test]
fn keys_that_were_not_declared_can_be_denied() {
    on_embers(&["--script-undeclared-keys", "deny"], |server| {
        let mut client = server.client();
        let denied =
            "ERR Script attempted to access keys that it has not declared, which script-undeclared-keys denies";
        assert_eq!(eval(&mut client, "return redis.call('SET', KEYS[1], ARGV[1])", &["a"], &["1"]), Value::ok());
        assert_eq!(eval(&mut client, "return redis.call('MGET', KEYS[2], KEYS[1])", &["a", "b"], &[]).items().len(), 2);
        for script in [
            "return redis.call('SET', 'b', 1)",
            "return redis.call('MGET', KEYS[1], 'b')",
            "return redis.call('DBSIZE')",
            "return redis.call('SCAN', 0)",
            "return redis.call('SORT', KEYS[1], 'BY', 'x*')",
            "return redis.call('RANDOMKEY')",
        ] {
            let error = eval(&mut client, script, &["a"], &[]).text();
            assert!(error.starts_with(denied), "{script}: {error}");
        }
        let caught = "return redis.pcall('GET', 'b').err";
        assert!(eval(&mut client, caught, &["a"], &[]).text().contains("has not declared"));
        // What concerns no key, and what cannot be undone, is done in place.
        assert_eq!(
            eval(&mut client, "redis.call('SET', KEYS[1], 2) return redis.call('PUBLISH', 'c', 'm')", &["a"], &[]),
            int(0)
        );
        let held = server.info("scripts_holding_everything").expect("counted");
        assert_eq!(held, "0");
    });
}

/// A script over several shards keeps copies of what it writes; a large value is not copied.
#[test]
fn large_values_are_written_without_copies() {
    on_embers(&[], |server| {
        let mut client = server.client();
        let push = "redis.call('INCR', KEYS[2]) return redis.call('RPUSH', KEYS[1], ARGV[1])";
        let filled = "for i = 1, 20000 do redis.call('RPUSH', KEYS[1], 'element of the list ' .. i) end";
        eval(&mut client, filled, &["list"], &[]);
        for n in 1..=20 {
            let keys = ["list".to_owned(), format!("other:{n}")];
            let reply = eval(&mut client, push, &[&keys[0], &keys[1]], &["more"]);
            assert_eq!(reply, int(20_000 + n));
            // What was written before the large one was found is written once.
            assert_eq!(client.call(&format!("GET other:{n}")), bulk("1"));
        }
        let leaves =
            "redis.call('RPUSH', KEYS[1], 'x') redis.call('SET', 'undeclared', 1) return redis.call('LLEN', KEYS[1])";
        assert_eq!(eval(&mut client, leaves, &["list"], &[]), int(20_021));
        assert_eq!(client.call("LLEN list"), int(20_021));
    });
}
