//! SCAN's promise: a key that was there from the first call to the last is returned exactly once, whatever is added or
//! deleted meanwhile, and a scan ends even while a writer is faster than it. (Redis promises "at least once".)

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::common::{Client, Server, Value, error, int, on_embers, on_every_server, wait_until, words};

/// Keys that are there throughout.
const STABLE_KEYS: usize = 5_000;
/// Commands that a writer keeps in one pipeline.
const PIPELINE: usize = 100;
/// Generous; what is measured is whether a scan ends at all.
const SCAN_LIMIT: Duration = Duration::from_secs(60);

fn stable_key(i: usize) -> String {
    format!("stable:{i}")
}

fn fill(client: &mut Client, keys: impl Iterator<Item = String>) {
    let keys: Vec<String> = keys.collect();
    for some in keys.chunks(1_000) {
        let commands: Vec<_> = some.iter().map(|k| words(&format!("SET {k} v"))).collect();
        client.pipeline(&commands);
    }
}

/// A whole scan with these options: how often each key came, and the number of calls.
fn scan(client: &mut Client, options: &str) -> (BTreeMap<String, usize>, usize) {
    let begin = Instant::now();
    let mut seen = BTreeMap::new();
    let mut cursor = "0".to_string();
    for calls in 1.. {
        assert!(begin.elapsed() < SCAN_LIMIT, "no end after {calls} calls");
        let reply = client.call(&format!("SCAN {cursor} {options}"));
        cursor = reply.items()[0].text();
        assert!(cursor.parse::<u64>().is_ok(), "a cursor is a number: {cursor}");
        for key in reply.items()[1].items() {
            *seen.entry(key.text()).or_insert(0) += 1;
        }
        if cursor == "0" {
            return (seen, calls);
        }
    }
    unreachable!("the loop returns")
}

#[track_caller]
fn assert_each_stable_key_once(seen: &BTreeMap<String, usize>) {
    let (mut missing, mut repeated) = (Vec::new(), Vec::new());
    for key in (0..STABLE_KEYS).map(stable_key) {
        match seen.get(&key) {
            None => missing.push(key),
            Some(1) => {}
            Some(_) => repeated.push(key),
        }
    }
    let (m, r) = (missing.len(), repeated.len());
    missing.truncate(10);
    repeated.truncate(10);
    assert!(m + r == 0, "{m} keys missing ({missing:?}), {r} returned more than once ({repeated:?})");
}

/// Clients of JavaScript keep cursors in doubles, and so do scripts, which print 14 digits of them.
#[test]
fn cursors_survive_as_doubles() {
    const WALK: &str = "local seen, cursor = {}, '0' \
         repeat \
             local command = {ARGV[1], cursor} \
             if KEYS[1] then table.insert(command, 2, KEYS[1]) end \
             local reply = redis.call(unpack(command)) \
             for index = 1, #reply[2], tonumber(ARGV[2]) do seen[#seen + 1] = reply[2][index] end \
             cursor = tostring(tonumber(reply[1])) \
             assert(redis.call(ARGV[1], unpack(KEYS[1] and {KEYS[1], tonumber(reply[1])} or {tonumber(reply[1])}))) \
         until cursor == '0' \
         return seen";
    on_every_server(&[], |server| {
        let mut client = server.client();
        let names = || (0..10_000).map(|n| format!("name:{n:04}"));
        for (add, value) in [("SADD set", ""), ("HSET hash", " 1"), ("ZADD sorted", "")] {
            let score = if add.starts_with('Z') { "1 " } else { "" };
            let elements: Vec<String> = names().map(|name| format!("{score}{name}{value}")).collect();
            client.call(&format!("{add} {}", elements.join(" ")));
        }
        let mut walk = |keys: &[&str], scan: &str, step: &str| {
            let count = keys.len().to_string();
            let args = [&["EVAL", WALK, &count], keys, &[scan, step]].concat();
            let reply = client.command(&args);
            let mut seen: Vec<String> = reply.items().iter().map(Value::text).collect();
            seen.sort_unstable();
            seen
        };
        let expected: Vec<String> = names().collect();
        for (scan, key, step) in [("SSCAN", "set", "1"), ("HSCAN", "hash", "2"), ("ZSCAN", "sorted", "2")] {
            assert_eq!(walk(&[key], scan, step), expected, "{scan}");
        }
        fill(&mut server.client(), (0..STABLE_KEYS).map(stable_key));
        let seen = walk(&[], "SCAN", "1");
        (0..STABLE_KEYS).map(stable_key).for_each(|key| assert!(seen.binary_search(&key).is_ok(), "{key}"));
    });
}

/// A connection that runs commands in the background until it is dropped.
struct Writer {
    stop: Arc<AtomicBool>,
    batches: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Runs `batch(0)`, `batch(1)`, ... as pipelines, as fast as they are answered.
    fn start(server: &Server, batch: impl Fn(usize) -> Vec<String> + Send + 'static) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let batches = Arc::new(AtomicUsize::new(0));
        let mut client = server.client();
        let (stopped, done) = (stop.clone(), batches.clone());
        let thread = thread::spawn(move || {
            for nth in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let commands: Vec<_> = batch(nth).iter().map(|line| words(line)).collect();
                let replies = client.pipeline(&commands);
                assert!(!replies.iter().any(Value::is_error), "{replies:?}");
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let writer = Writer { stop, batches, thread: Some(thread) };
        let limit = Duration::from_secs(10);
        assert!(wait_until(limit, || writer.batches() > 0), "the writer writes");
        writer
    }

    fn batches(&self) -> usize {
        self.batches.load(Ordering::Relaxed)
    }

    fn finish(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("finished once");
        thread.join().expect("the writer does not fail");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_quiet_keyspace_is_returned_exactly_once() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        fill(&mut client, (0..STABLE_KEYS).map(stable_key));
        for options in ["", "COUNT 1", "COUNT 10", "COUNT 1000", "COUNT 1000000"] {
            let (seen, _) = scan(&mut client, options);
            assert_eq!(seen.len(), STABLE_KEYS, "{options}");
            assert_each_stable_key_once(&seen);
        }
    });
}

#[test]
fn an_empty_keyspace_ends_a_scan() {
    on_every_server(&[], |server| {
        let (seen, _) = scan(&mut server.client(), "COUNT 100");
        assert!(seen.is_empty());
    });
}

/// They may be on any shard.
#[test]
fn few_keys_come_in_one_step() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let step = |client: &mut Client, line: &str| {
            let reply = client.call(line);
            (reply.items()[0].text(), reply.items()[1].items().len())
        };
        fill(&mut client, (0..5).map(stable_key));
        assert_eq!(step(&mut client, "SCAN 0"), ("0".to_string(), 5));
        fill(&mut client, (5..100).map(stable_key));
        assert_eq!(step(&mut client, "SCAN 0 COUNT 1000"), ("0".to_string(), 100));
        assert_eq!(step(&mut client, "SCAN 0 COUNT 1000 MATCH nothing*"), ("0".to_string(), 0));
        assert_eq!(step(&mut client, "SCAN 0 COUNT 1000 TYPE list"), ("0".to_string(), 0));
    });
}

#[test]
fn count_sets_the_size_of_a_step() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        fill(&mut client, (0..STABLE_KEYS).map(stable_key));
        for (count, calls_max) in [(10, STABLE_KEYS), (100, STABLE_KEYS / 10), (1_000, 60)] {
            let (_, calls) = scan(&mut client, &format!("COUNT {count}"));
            assert!(calls <= calls_max, "COUNT {count}: {calls} calls");
        }
        let one = client.call("SCAN 0 COUNT 1");
        assert!(one.items()[1].items().len() < 200, "a small step stays small");
    });
}

#[test]
fn match_and_type_choose_among_the_keys() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        fill(&mut client, (0..STABLE_KEYS).map(stable_key));
        fill(&mut client, (0..100).map(|i| format!("other:{i}")));
        let (seen, _) = scan(&mut client, "MATCH other:* COUNT 100");
        assert_eq!(seen.len(), 100);
        assert!(seen.values().all(|times| *times == 1));
        let (seen, _) = scan(&mut client, "MATCH stable:[1-4]?7 TYPE string COUNT 1000");
        assert_eq!(seen.len(), 40);
        let (seen, _) = scan(&mut client, "TYPE hash COUNT 1000");
        assert!(seen.is_empty());
        let (seen, _) = scan(&mut client, "COUNT 1000 TYPE STRING");
        assert_eq!(seen.len(), STABLE_KEYS + 100);
        assert_eq!(client.call("SCAN x"), error("ERR invalid cursor"));
        assert_eq!(client.call("SCAN 0 COUNT 0"), error("ERR syntax error"));
    });
}

#[test]
fn a_scan_sees_one_database() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        fill(&mut client, (0..100).map(|i| format!("zero:{i}")));
        client.call("SELECT 9");
        fill(&mut client, (0..50).map(|i| format!("nine:{i}")));
        let (seen, _) = scan(&mut client, "COUNT 7");
        assert_eq!(seen.len(), 50);
        assert!(seen.keys().all(|key| key.starts_with("nine:")));
    });
}

#[test]
fn nothing_that_lists_or_counts_shows_a_dead_key() {
    on_embers(&["--active-expire-enabled", "no"], |server| {
        let mut client = server.client();
        for i in 0..500 {
            client.call(&format!("SET dead:{i} v PX 1"));
            client.call(&format!("SET live:{i} v EX 1000"));
        }
        client.call("SET later v PX 20");
        let later = || client.call("EXISTS later") == int(0);
        assert!(wait_until(Duration::from_secs(10), later));
        let mut client = server.client();
        assert_eq!(client.call("DBSIZE"), int(500));
        let (seen, _) = scan(&mut client, "COUNT 10");
        assert_eq!(seen.len(), 500);
        assert!(seen.keys().all(|key| key.starts_with("live:")));
        assert_eq!(client.call("KEYS *").items().len(), 500);
        for _ in 0..50 {
            assert!(client.call("RANDOMKEY").text().starts_with("live:"));
        }
    });
}

#[test]
fn keys_there_throughout_come_exactly_once_while_the_keyspace_grows() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for options in ["COUNT 1", "COUNT 1 TYPE string", "COUNT 10", "COUNT 1000"] {
            // Each scan starts with the same keys: what the writer adds before it is keys to scan like others.
            client.call("FLUSHALL");
            fill(&mut client, (0..STABLE_KEYS).map(stable_key));
            // Without end, until the scan is through: the table splits many times under it.
            let writer = Writer::start(server, |nth| {
                (0..PIPELINE).map(|i| format!("SET new:{} v", nth * PIPELINE + i)).collect()
            });
            let (seen, _) = scan(&mut client, options);
            assert_each_stable_key_once(&seen);
            writer.finish();
        }
    });
}

#[test]
fn keys_there_throughout_come_exactly_once_while_others_come_and_go() {
    on_embers(&[], |server| {
        let mut client = server.client();
        for options in ["COUNT 1", "COUNT 10", "COUNT 1000", "COUNT 10 MATCH stable:*"] {
            client.call("FLUSHALL");
            fill(&mut client, (0..STABLE_KEYS).map(stable_key));
            let grower = Writer::start(server, |nth| {
                (0..PIPELINE).map(|i| format!("SET new:{} v", nth * PIPELINE + i)).collect()
            });
            let deleter =
                Writer::start(server, |nth| (0..PIPELINE).map(|i| format!("DEL new:{}", nth * PIPELINE + i)).collect());
            let dying = Writer::start(server, |nth| {
                (0..PIPELINE).map(|i| format!("SET dying:{} v PX {}", nth * PIPELINE + i, 1 + i % 20)).collect()
            });
            let (seen, _) = scan(&mut client, options);
            assert_each_stable_key_once(&seen);
            if options.contains("MATCH") {
                assert_eq!(seen.len(), STABLE_KEYS);
            }
            for writer in [grower, deleter, dying] {
                writer.finish();
            }
        }
    });
}

#[test]
fn rewriting_a_key_does_not_move_it_in_a_scan() {
    on_embers(&[], |server| {
        let mut client = server.client();
        fill(&mut client, (0..STABLE_KEYS).map(stable_key));
        let writer = Writer::start(server, |nth| {
            (0..PIPELINE)
                .map(|i| {
                    let key = stable_key((nth * PIPELINE + i) * 7919 % STABLE_KEYS);
                    match i % 4 {
                        0 => format!("SET {key} {}", "longer".repeat(1 + nth % 50)),
                        1 => format!("EXPIRE {key} 1000"),
                        2 => format!("APPEND {key} x"),
                        _ => format!("PERSIST {key}"),
                    }
                })
                .collect()
        });
        for options in ["COUNT 1", "COUNT 10", "COUNT 1000"] {
            let (seen, _) = scan(&mut client, options);
            assert_eq!(seen.len(), STABLE_KEYS);
            assert_each_stable_key_once(&seen);
        }
        writer.finish();
    });
}

#[test]
fn two_scans_at_once_do_not_disturb_each_other() {
    on_embers(&[], |server| {
        let mut clients = [server.client(), server.client()];
        fill(&mut clients[0], (0..STABLE_KEYS).map(stable_key));
        let threads = clients.map(|mut client| {
            thread::spawn(move || {
                let (seen, _) = scan(&mut client, "COUNT 10");
                assert_each_stable_key_once(&seen);
            })
        });
        for thread in threads {
            thread.join().expect("each scan is complete");
        }
    });
}

#[test]
fn a_scan_ends_while_several_writers_write() {
    on_embers(&[], |server| {
        let mut client = server.client();
        fill(&mut client, (0..STABLE_KEYS).map(stable_key));
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                Writer::start(server, move |nth| {
                    (0..PIPELINE).map(|i| format!("SET {writer}:{} v", nth * PIPELINE + i)).collect()
                })
            })
            .collect();
        let (seen, _) = scan(&mut client, "COUNT 10");
        assert_each_stable_key_once(&seen);
        for writer in writers {
            writer.finish();
        }
    });
}
