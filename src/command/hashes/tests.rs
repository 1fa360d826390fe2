//! Hashes whose fields and keys die, against a map of maps.

use crate::clock::Clock;
use crate::command::{Ctx, Run, rows};
use crate::config::{Limits, NotifyFlags, PackLimits};
use crate::keyspace::{Hasher, Keyspace};
use crate::resp::{Proto, Reply, Request};
use std::collections::BTreeMap;

#[derive(Clone, Default)]
struct Hash {
    fields: BTreeMap<String, (String, Option<u64>)>,
    deadline_ms: Option<u64>,
}

struct World {
    clock: Clock,
    keyspace: Keyspace,
    rng: fastrand::Rng,
    limits: Limits,
    model: BTreeMap<String, Hash>,
}

impl World {
    fn new(seed: u64) -> World {
        let pack = PackLimits { entries: [4, 128][seed as usize % 2], value_bytes: 12 };
        let mut keyspace = Keyspace::new(2, Hasher::new(seed, 1));
        keyspace.effects.set_wanted(NotifyFlags::HASH | NotifyFlags::GENERIC | NotifyFlags::EXPIRED);
        World {
            clock: Clock::manual(1_000_000),
            keyspace,
            rng: fastrand::Rng::with_seed(seed),
            limits: Limits { string_bytes: 1 << 20, hash: pack, ..Limits::default() },
            model: BTreeMap::new(),
        }
    }

    /// Runs a command through its row; the reply as text.
    fn run(&mut self, args: &[&str]) -> String {
        let row = rows().find(|row| row.spec.name == args[0]).expect("a command");
        let handler = match row.run {
            Run::Key(handler) | Run::Spread(handler, _) | Run::Atomic(handler, _) => handler,
            _ => unreachable!("not used here"),
        };
        let (mut buffer, mut spans) = (Vec::new(), Vec::new());
        for arg in args {
            let start = buffer.len() as u32;
            buffer.extend_from_slice(arg.as_bytes());
            spans.push((start, buffer.len() as u32));
        }
        let mut out = Vec::new();
        let hash = self.keyspace.hasher().hash(args[1].as_bytes());
        let mut ctx = Ctx {
            keyspace: &mut self.keyspace,
            db: 0,
            now: self.clock.now(),
            clock: &self.clock,
            rng: &mut self.rng.clone(),
            reply: Reply::new(&mut out, Proto::Resp2),
            hash,
            limits: &self.limits,
            touch: row.spec.touch(false),
            ends: &mut Vec::new(),
            shards: 1,
        };
        let result = handler(&mut ctx, Request::new(&buffer, &spans));
        result.map_or_else(|error| error.to_string(), |()| String::from_utf8(out).expect("text"))
    }

    /// The model without what is dead.
    fn forget_dead(&mut self) {
        let now_ms = self.clock.now().ms;
        let lives = |deadline_ms: Option<u64>| deadline_ms.is_none_or(|deadline_ms| deadline_ms >= now_ms);
        self.model.retain(|_, hash| {
            hash.fields.retain(|_, (_, deadline_ms)| lives(*deadline_ms));
            lives(hash.deadline_ms) && !hash.fields.is_empty()
        });
    }

    /// Short and long times are equally likely.
    fn time_ms(&mut self, bits: u32) -> u64 {
        let bits = self.rng.u32(1..bits);
        self.rng.u64(1..1 << bits)
    }

    fn step(&mut self) {
        self.forget_dead();
        let key = format!("key{}", self.rng.u32(..4));
        let field = format!("field{}", self.rng.u32(..[6, 40, 900][self.rng.clone().usize(..3)]));
        let now_ms = self.clock.now().ms;
        let int = |n: i64| format!(":{n}\r\n");
        let known = self.model.get(&key).and_then(|hash| hash.fields.get(&field)).cloned();
        match self.rng.u32(..16) {
            0..5 => {
                let value = ["7", "short", "a value that is not packed"][self.rng.usize(..3)].to_owned();
                assert_eq!(self.run(&["hset", &key, &field, &value]), int(known.is_none().into()));
                self.model.entry(key).or_default().fields.insert(field, (value, None));
            }
            5 => {
                assert_eq!(self.run(&["hdel", &key, &field]), int(known.is_some().into()));
                self.model.entry(key).or_default().fields.remove(&field);
            }
            6..9 => {
                let ttl_ms = self.time_ms(40);
                let reply = self.run(&["hpexpire", &key, &ttl_ms.to_string(), "fields", "1", &field]);
                assert_eq!(reply, format!("*1\r\n{}", int(if known.is_some() { 1 } else { -2 })));
                if let Some((_, deadline_ms)) = self.model.entry(key).or_default().fields.get_mut(&field) {
                    *deadline_ms = Some(now_ms + ttl_ms);
                }
            }
            9 => {
                let had = known.map(|(_, deadline_ms)| deadline_ms.is_some());
                let answer = had.map_or(-2, |had| if had { 1 } else { -1 });
                let reply = self.run(&["hpersist", &key, "fields", "1", &field]);
                assert_eq!(reply, format!("*1\r\n{}", int(answer)));
                if let Some((_, deadline_ms)) = self.model.entry(key).or_default().fields.get_mut(&field) {
                    *deadline_ms = None;
                }
            }
            10 => {
                let ttl_ms = self.time_ms(40);
                let known = self.model.contains_key(&key);
                assert_eq!(self.run(&["pexpire", &key, &ttl_ms.to_string()]), int(known.into()));
                if let Some(hash) = self.model.get_mut(&key) {
                    hash.deadline_ms = Some(now_ms + ttl_ms);
                }
            }
            11 => {
                let had = self.model.get(&key).is_some_and(|hash| hash.deadline_ms.is_some());
                assert_eq!(self.run(&["persist", &key]), int(had.into()));
                if let Some(hash) = self.model.get_mut(&key) {
                    hash.deadline_ms = None;
                }
            }
            12 => self.carry(&key),
            13 => {
                let step_ms = self.time_ms(35);
                self.clock.advance_ms(step_ms);
            }
            _ => self.sweep(),
        }
        self.forget_dead();
        self.compare();
    }

    fn carry(&mut self, key: &str) {
        let to = format!("key{}", self.rng.u32(..4));
        let Some(hash) = self.model.get(key).cloned().filter(|_| key != to) else { return };
        match self.rng.u32(..3) {
            0 => {
                assert_eq!(self.run(&["rename", key, &to]), "+OK\r\n");
                self.model.remove(key);
                self.model.insert(to, hash);
            }
            1 => {
                assert_eq!(self.run(&["copy", key, &to, "replace"]), ":1\r\n");
                self.model.insert(to, hash);
            }
            _ => {
                assert_eq!(self.run(&["del", key]), ":1\r\n");
                self.model.remove(key);
            }
        }
    }

    /// The cycle takes what is due, and only that.
    fn sweep(&mut self) {
        let now = self.clock.now();
        let limit = self.rng.usize(1..50);
        while self.keyspace.next_due_hint_ms() < now.ms {
            let swept = self.keyspace.sweep_earliest(0, now.ms, now, limit);
            assert!(swept.deleted <= limit);
        }
        assert_eq!(self.keyspace.oldest_due_ms(now), None);
        while self.keyspace.collect_garbage(100) {}
    }

    fn compare(&mut self) {
        let now = self.clock.now();
        assert_eq!(self.keyspace.live_len(0, now), self.model.len());
        let with_deadline = self.model.values().filter(|hash| hash.deadline_ms.is_some()).count();
        assert_eq!(self.keyspace.live_with_deadline(0, now), with_deadline);
        for number in 0..4 {
            let key = format!("key{number}");
            let hash = self.model.get(&key).cloned().unwrap_or_default();
            assert_eq!(self.run(&["hlen", &key]), format!(":{}\r\n", hash.fields.len()));
            assert_eq!(self.run(&["exists", &key]), format!(":{}\r\n", u32::from(!hash.fields.is_empty())));
            let ttl_ms = match (hash.fields.is_empty(), hash.deadline_ms) {
                (true, _) => -2,
                (false, None) => -1,
                (false, Some(deadline_ms)) => deadline_ms as i64 - now.ms as i64,
            };
            assert_eq!(self.run(&["pttl", &key]), format!(":{ttl_ms}\r\n"));
            let Some((field, (value, deadline_ms))) =
                hash.fields.iter().nth(self.rng.usize(..hash.fields.len().max(1)))
            else {
                continue;
            };
            assert_eq!(self.run(&["hget", &key, field]), format!("${}\r\n{value}\r\n", value.len()));
            let ttl_ms = deadline_ms.map_or(-1, |deadline_ms| deadline_ms as i64 - now.ms as i64);
            assert_eq!(self.run(&["hpttl", &key, "fields", "1", field]), format!("*1\r\n:{ttl_ms}\r\n"));
        }
    }
}

#[test]
fn fields_and_keys_die_when_they_should() {
    for seed in 0..12 {
        let mut world = World::new(seed);
        for _ in 0..2500 {
            world.step();
        }
        world.keyspace.check();
        world.clock.advance_ms(1 << 41);
        world.forget_dead();
        world.sweep();
        world.compare();
        (0..4).for_each(|number| drop(world.run(&["del", &format!("key{number}")])));
        world.sweep();
        // A little of its heap stays with each database.
        let empty_bytes = Keyspace::new(2, Hasher::new(seed, 1)).bytes();
        assert!(world.keyspace.bytes() <= empty_bytes + 2 * 1024, "all memory is given back");
    }
}

/// Where no field has a deadline the cycle has nothing to look at, however large the hash.
#[test]
fn a_large_hash_without_deadlines_is_not_looked_at() {
    let mut world = World::new(2);
    for number in 0..5000 {
        world.run(&["hset", "key", &format!("field{number}"), "1"]);
    }
    assert_eq!(world.keyspace.with_deadline(0), 0);
    assert_eq!(world.keyspace.next_due_hint_ms(), crate::keyspace::NEVER_MS);
}

/// A hash that is looked at for its fields is told apart from one that is dead.
#[test]
fn the_events_of_a_field_that_dies() {
    let mut world = World::new(1);
    world.run(&["hset", "key", "a", "1", "b", "2"]);
    world.run(&["hpexpire", "key", "10", "fields", "1", "a"]);
    world.run(&["hpexpire", "key", "30", "fields", "1", "b"]);
    world.keyspace.effects.take();
    world.clock.advance_ms(11);
    world.sweep();
    let events =
        |world: &mut World| world.keyspace.effects.take().into_iter().map(|notice| notice.event.name()).collect();
    let seen: Vec<&str> = events(&mut world);
    assert_eq!(seen, ["hexpired"]);
    world.clock.advance_ms(20);
    world.sweep();
    let seen: Vec<&str> = events(&mut world);
    assert_eq!(seen, ["hexpired", "del"]);
    // The same where somebody looks before the cycle comes.
    world.run(&["hset", "key", "a", "1"]);
    world.run(&["hpexpire", "key", "10", "fields", "1", "a"]);
    world.keyspace.effects.take();
    world.clock.advance_ms(11);
    assert_eq!(world.run(&["exists", "key"]), ":0\r\n");
    let seen: Vec<&str> = events(&mut world);
    assert_eq!(seen, ["hexpired", "del"]);
}

/// Where nearly all fields are dead, and not taken out yet, those that live are found all the same, and soon.
#[test]
fn random_fields_are_found_among_the_dead() {
    let mut world = World::new(3);
    for number in 0..3000 {
        world.run(&["hset", "key", &format!("dies{number}"), "1"]);
        world.run(&["hpexpire", "key", "10", "fields", "1", &format!("dies{number}")]);
    }
    world.run(&["hset", "key", "lives", "1"]);
    world.clock.advance_ms(11);
    assert_eq!(world.run(&["hrandfield", "key"]), "$5\r\nlives\r\n");
    assert_eq!(world.run(&["hrandfield", "key", "500"]), "*1\r\n$5\r\nlives\r\n");
    assert_eq!(world.run(&["hrandfield", "key", "-2"]), "*2\r\n$5\r\nlives\r\n$5\r\nlives\r\n");
}

/// The lag of a hash that is found dead is that of its fields, however far its own deadline is.
#[test]
fn a_dead_hash_is_as_late_as_its_fields() {
    let mut world = World::new(4);
    world.run(&["hset", "key", "field", "1"]);
    world.run(&["pexpire", "key", "20000000000000000"]);
    world.run(&["hpexpire", "key", "1", "fields", "1", "field"]);
    world.clock.advance_ms(101);
    assert_eq!(world.run(&["exists", "key"]), ":0\r\n");
    assert!((99_000..102_000).contains(&world.keyspace.lag.max_us()), "{}", world.keyspace.lag.max_us());
}
