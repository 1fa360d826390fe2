//! Sets whose members and keys die, against a map of maps.

use crate::command::trial::{self, CONDITIONS, Trial, draw_ms, int};
use crate::config::{Limits, NotifyFlags, PackLimits};
use crate::keyspace::{NEVER_MS, Stored};
use std::collections::{BTreeMap, BTreeSet};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// Steps of one seed; in all of them together 20,000.
const STEPS: usize = 1_250;
const SEEDS: u64 = 16;

#[derive(Clone, Default)]
struct Set {
    members: BTreeMap<String, Option<u64>>,
    deadline_ms: Option<u64>,
}

struct World {
    trial: Trial,
    model: BTreeMap<String, Set>,
    rng: fastrand::Rng,
}

/// The bulk strings of a reply, each of which has to come once.
fn texts(reply: &str) -> BTreeSet<String> {
    let all = trial::texts(reply);
    let different = BTreeSet::from_iter(all.iter().cloned());
    assert_eq!(different.len(), all.len(), "{reply}");
    different
}

impl World {
    fn new(seed: u64) -> World {
        let [ints, entries] = [[512, 128], [5, 8], [30, 4], [0, 0]][seed as usize % 4];
        let limits = Limits {
            intset_entries: ints,
            set: PackLimits { entries, value_bytes: 10 },
            string_bytes: 1 << 20,
            ..Limits::default()
        };
        let mut trial = Trial::new(seed, limits);
        trial.keyspace.effects.set_wanted(NotifyFlags::SET | NotifyFlags::GENERIC | NotifyFlags::EXPIRED);
        World { trial, model: BTreeMap::new(), rng: fastrand::Rng::with_seed(seed) }
    }

    fn say(&mut self, line: &str) -> String {
        self.trial.say(line)
    }

    fn now_ms(&self) -> u64 {
        self.trial.now().ms
    }

    /// The model without what is dead.
    fn forget_dead(&mut self) {
        let now_ms = self.now_ms();
        let lives = |deadline_ms: Option<u64>| deadline_ms.is_none_or(|deadline_ms| deadline_ms >= now_ms);
        self.model.retain(|_, set| {
            set.members.retain(|_, deadline_ms| lives(*deadline_ms));
            lives(set.deadline_ms) && !set.members.is_empty()
        });
    }

    fn time_ms(&mut self, bits: u32) -> u64 {
        draw_ms(&mut self.rng, bits)
    }

    fn member(&mut self, range: u32) -> String {
        match self.rng.u8(..4) {
            0 => format!("member{}", self.rng.u32(..range)),
            1 => format!("0{}", self.rng.u32(..range)),
            _ => self.rng.u32(..range).to_string(),
        }
    }

    fn of(&self, key: &str) -> Set {
        self.model.get(key).cloned().unwrap_or_default()
    }

    fn step(&mut self, range: u32) {
        self.forget_dead();
        let [key, other, third] = [0; 3].map(|_| KEYS[self.rng.usize(..4)]);
        let several: BTreeSet<String> = (0..self.rng.usize(1..6)).map(|_| self.member(range)).collect();
        let (list, member) = (several.iter().cloned().collect::<Vec<_>>(), self.member(range));
        let (line, count) = (list.join(" "), list.len());
        let (now_ms, mut set) = (self.now_ms(), self.of(key));
        let known = |set: &Set| several.iter().filter(|name| set.members.contains_key(*name)).count();
        match self.rng.u8(..26) {
            0..6 => {
                let new = several.iter().filter(|name| !set.members.contains_key(*name)).count();
                assert_eq!(self.say(&format!("sadd {key} {line}")), int(new as i64));
                for name in several {
                    set.members.entry(name).or_default();
                }
            }
            6 => {
                assert_eq!(self.say(&format!("srem {key} {line}")), int(known(&set) as i64));
                set.members.retain(|name, _| !several.contains(name));
            }
            7..11 => {
                let ttl_ms = self.time_ms(40);
                let (option, holds) = CONDITIONS[self.rng.usize(..5)];
                let parts = [format!("members {count} {line}"), option.to_owned()];
                let rest = if self.rng.bool() { parts.join(" ") } else { format!("{} {}", parts[1], parts[0]) };
                let reply = self.say(format!("spexpire {key} {ttl_ms} {}", rest.trim()).trim());
                let mut answer = |name: &String| match set.members.get_mut(name) {
                    None => int(-2),
                    Some(old) if holds(*old, now_ms + ttl_ms) => {
                        *old = Some(now_ms + ttl_ms);
                        int(1)
                    }
                    Some(_) => int(0),
                };
                assert_eq!(reply, format!("*{count}\r\n{}", list.iter().map(&mut answer).collect::<String>()));
            }
            11 => {
                let mut answer = |name: &String| match set.members.get_mut(name) {
                    None => int(-2),
                    Some(old) => int(if old.take().is_some() { 1 } else { -1 }),
                };
                let expected: String = list.iter().map(&mut answer).collect();
                let reply = self.say(&format!("spersist {key} members {count} {line}"));
                assert_eq!(reply, format!("*{count}\r\n{expected}"));
            }
            12 => {
                // In the past.
                let answer = |name: &String| int(if set.members.contains_key(name) { 2 } else { -2 });
                let expected: String = list.iter().map(answer).collect();
                let reply = self.say(&format!("spexpireat {key} 1 members {count} {line}"));
                assert_eq!(reply, format!("*{count}\r\n{expected}"));
                set.members.retain(|name, _| !several.contains(name));
            }
            13..16 => self.add_and_expire(key, &mut set, &list),
            16 => {
                let moves = set.members.get(&member).copied();
                assert_eq!(self.say(&format!("smove {key} {other} {member}")), int(moves.is_some().into()));
                if let Some(deadline_ms) = moves.filter(|_| key != other) {
                    set.members.remove(&member);
                    self.model.entry(other.to_owned()).or_default().members.entry(member).or_insert(deadline_ms);
                }
            }
            17 => {
                let count = self.rng.usize(..4);
                let popped = texts(&self.say(&format!("spop {key} {count}")));
                assert_eq!(popped.len(), count.min(set.members.len()));
                assert!(popped.iter().all(|name| set.members.remove(name).is_some()));
            }
            18 => {
                let [left, right] = [other, third].map(|key| self.of(key).members.into_keys().collect::<BTreeSet<_>>());
                let (name, result) = match self.rng.u8(..3) {
                    0 => ("sinterstore", &left & &right),
                    1 => ("sunionstore", &left | &right),
                    _ => ("sdiffstore", &left - &right),
                };
                assert_eq!(self.say(&format!("{name} {key} {other} {third}")), int(result.len() as i64));
                set = Set { members: result.into_iter().map(|name| (name, None)).collect(), deadline_ms: None };
            }
            19 => {
                let ttl_ms = self.time_ms(40);
                assert_eq!(self.say(&format!("pexpire {key} {ttl_ms}")), int((!set.members.is_empty()).into()));
                set.deadline_ms = Some(now_ms + ttl_ms);
            }
            20 => return self.carry(key, other),
            21..24 => {
                let step_ms = self.time_ms(35);
                self.trial.pass_ms(step_ms);
            }
            _ => {
                let limit = self.rng.usize(1..50);
                self.trial.sweep(limit);
            }
        }
        self.model.insert(key.to_owned(), set);
    }

    fn add_and_expire(&mut self, key: &str, set: &mut Set, list: &[String]) {
        let ttl_ms = self.time_ms(40);
        let (options, deadline_ms) = match self.rng.u8(..4) {
            0 => (String::new(), None),
            1 => ("keepttl ".to_owned(), None),
            _ => (format!("px {ttl_ms} "), Some(self.now_ms() + ttl_ms)),
        };
        let known = list.iter().filter(|name| set.members.contains_key(*name)).count();
        let (condition, holds) = [("", true), ("mnx ", known == 0), ("mxx ", known == list.len())][self.rng.usize(..3)];
        let line = format!("saddex {key} {condition}{options}members {} {}", list.len(), list.join(" "));
        assert_eq!(self.say(&line), int(holds.into()), "{line}");
        for name in list.iter().filter(|_| holds) {
            let member = set.members.entry(name.clone()).or_default();
            if !options.starts_with("keepttl") {
                *member = deadline_ms;
            }
        }
    }

    /// What keeps members keeps their deadlines.
    fn carry(&mut self, key: &str, to: &str) {
        let Some(set) = self.model.get(key).cloned().filter(|_| key != to) else { return };
        match self.rng.u8(..4) {
            0 => {
                assert_eq!(self.say(&format!("rename {key} {to}")), "+OK\r\n");
                self.model.remove(key);
                self.model.insert(to.to_owned(), set);
            }
            1 => {
                assert_eq!(self.say(&format!("copy {key} {to} replace")), int(1));
                self.model.insert(to.to_owned(), set);
            }
            2 => {
                self.trial.restore(key.as_bytes(), to.as_bytes());
                self.model.insert(to.to_owned(), Set { deadline_ms: None, ..set });
            }
            _ => {
                assert_eq!(self.say(&format!("del {key}")), int(1));
                self.model.remove(key);
            }
        }
    }

    fn compare(&mut self) {
        self.forget_dead();
        let now = self.trial.now();
        assert_eq!(self.trial.keyspace.live_len(0, now), self.model.len());
        let with_deadline = self.model.values().filter(|set| set.deadline_ms.is_some()).count();
        assert_eq!(self.trial.keyspace.live_with_deadline(0, now), with_deadline);
        for key in KEYS {
            let set = self.of(key);
            let names: BTreeSet<String> = set.members.keys().cloned().collect();
            assert_eq!(self.say(&format!("scard {key}")), int(names.len() as i64));
            assert_eq!(texts(&self.say(&format!("smembers {key}"))), names);
            assert_eq!(self.say(&format!("exists {key}")), int((!names.is_empty()).into()));
            let ttl_ms = set.deadline_ms.map_or(-1, |deadline_ms| deadline_ms as i64 - now.ms as i64);
            assert_eq!(self.say(&format!("pttl {key}")), int(if names.is_empty() { -2 } else { ttl_ms }));
        }
        let key = KEYS[self.rng.usize(..4)];
        let set = self.of(key);
        self.compare_closely(key, &set);
    }

    /// The rest of what reads sets.
    fn compare_closely(&mut self, key: &str, set: &Set) {
        let (now_ms, names) = (self.now_ms(), BTreeSet::from_iter(set.members.keys().cloned()));
        let drawn = texts(&self.say(&format!("srandmember {key} 5")));
        assert!(drawn.len() == names.len().min(5) && drawn.is_subset(&names));
        let sorted = texts(&self.say(&format!("sort {key} alpha")));
        assert_eq!(sorted, names);
        for (command, count) in [("sintercard 2 a", 0), ("sunioncard 2 a", 1), ("sdiffcard 2 a", 2)] {
            let a = BTreeSet::from_iter(self.of("a").members.into_keys());
            let expected = [(&a & &names).len(), (&a | &names).len(), (&a - &names).len()][count];
            assert_eq!(self.say(&format!("{command} {key}")), int(expected as i64), "{command}");
        }
        let union = texts(&self.say(&format!("zunion 1 {key}")));
        assert_eq!(union, names);
        let walked: BTreeSet<String> =
            self.trial.pages("sscan", key, "count 50").iter().flat_map(|page| texts(page)).collect();
        assert_eq!(walked, names);
        let Some((name, deadline_ms)) = set.members.iter().nth(self.rng.usize(..names.len().max(1))) else { return };
        assert_eq!(self.say(&format!("sismember {key} {name}")), int(1));
        let ttl_ms = deadline_ms.map_or(-1, |deadline_ms| deadline_ms as i64 - now_ms as i64);
        assert_eq!(self.say(&format!("spttl {key} members 2 {name} none")), format!("*2\r\n{}:-2\r\n", int(ttl_ms)));
        assert_eq!(self.say(&format!("smismember {key} none {name}")), "*2\r\n:0\r\n:1\r\n");
        let ttl_s = if ttl_ms < 0 { -1 } else { (ttl_ms + 999) / 1000 };
        assert_eq!(self.say(&format!("sttl {key} members 1 {name}")), format!("*1\r\n{}", int(ttl_s)));
    }

    fn events(&mut self) -> Vec<&'static str> {
        self.trial.keyspace.effects.take().into_iter().map(|notice| notice.event.name()).collect()
    }
}

#[test]
fn members_and_keys_die_when_they_should() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        let range = [6, 60, 1500][seed as usize % 3];
        if range > 1000 {
            // One is large from the beginning.
            for first in (0..1200).step_by(100) {
                let list: Vec<String> = (first..first + 100).map(|n| n.to_string()).collect();
                world.say(&format!("sadd a {}", list.join(" ")));
                world.model.entry("a".to_owned()).or_default().members.extend(list.into_iter().map(|n| (n, None)));
            }
        }
        for _ in 0..STEPS {
            world.step(range);
            world.compare();
        }
        world.trial.keyspace.check();
        world.trial.pass_ms(1 << 41);
        world.trial.sweep(100);
        world.compare();
        KEYS.iter().for_each(|key| drop(world.say(&format!("del {key}"))));
        world.trial.sweep(100);
        world.trial.keyspace.check();
    }
}

#[test]
fn a_set_without_deadlines_is_not_looked_at() {
    let mut world = World::new(0);
    for n in 0..3000 {
        world.say(&format!("sadd large {n} m{n}"));
    }
    world.say("sadd packed a b");
    world.say("sadd ints 1 2");
    assert_eq!(world.trial.keyspace.next_due_hint_ms(), NEVER_MS);
    let forms = |world: &mut World| {
        ["packed", "ints"].map(|key| {
            let key = world.trial.keyspace.hasher().key(key.as_bytes());
            matches!(world.trial.keyspace.peek(0, key, world.trial.now()), Some(Stored::Packed(..)))
        })
    };
    // What gives no deadline changes no form.
    world.say("saddex packed keepttl members 1 c");
    world.say("saddex ints members 1 3");
    world.say("spersist packed members 1 a");
    world.say("sexpire packed 10 members 1 none");
    world.say("sexpire ints 10 xx members 1 1");
    assert_eq!(forms(&mut world), [true, true]);
    world.say("sexpire packed 10 members 1 a");
    world.say("sexpire ints 10 members 1 1");
    assert_eq!(forms(&mut world), [false, false]);
    // The cycle has nothing to look at again when the last deadline is cleared.
    world.say("spersist packed members 1 a");
    world.say("srem ints 1");
    assert_eq!(world.trial.keyspace.with_deadline(0), 1, "of what is removed the cycle hears when it comes");
    world.trial.pass_ms(10_001);
    world.trial.sweep(10);
    assert_eq!(world.trial.keyspace.with_deadline(0), 0);
    assert_eq!(world.say("scard packed"), ":3\r\n");
}

#[test]
fn the_events_of_members() {
    let mut world = World::new(0);
    world.say("saddex s ex 100 members 2 a b");
    assert_eq!(world.events(), ["sadd", "sexpire"]);
    world.say("sadd s c");
    world.say("spexpire s 10 members 1 c");
    world.say("spersist s members 2 a b");
    assert_eq!(world.events(), ["sadd", "sexpire", "spersist"]);
    world.trial.pass_ms(11);
    world.trial.sweep(10);
    assert_eq!(world.events(), ["sexpired"]);
    world.say("spexpire s 10 members 2 a b");
    world.events();
    world.trial.pass_ms(11);
    assert_eq!(world.say("sismember s a"), ":0\r\n");
    assert_eq!(world.events(), ["sexpired", "del"], "somebody looks before the cycle comes");
    // One comes back, one is removed, before they are taken out.
    world.say("saddex s px 10 members 2 a b");
    world.say("sadd s c");
    world.events();
    world.trial.pass_ms(11);
    assert_eq!(world.say("srem s a"), ":0\r\n");
    assert_eq!(world.events(), ["sexpired"]);
    assert_eq!(world.say("sadd s b"), ":1\r\n");
    assert_eq!(world.events(), ["sexpired", "sadd"]);
    assert_eq!(world.say("spttl s members 1 b"), "*1\r\n:-1\r\n");
    // The last that lives goes.
    world.say("spexpire s 10 members 1 b");
    world.events();
    world.trial.pass_ms(11);
    assert_eq!(world.say("srem s c"), ":1\r\n");
    assert_eq!(world.events(), ["srem", "del"]);
    assert_eq!(world.say("exists s"), ":0\r\n");
    assert_eq!(world.say("sexpire s 10 members 1 b"), "*1\r\n:-2\r\n");
    assert_eq!(world.say("saddex s exat 1 members 1 b"), ":1\r\n", "what is dead already is never stored");
    assert_eq!(world.say("exists s"), ":0\r\n");
    assert!(world.events().is_empty());
}

/// What all lasts for a while is taken out in slices, and nobody sees it meanwhile.
#[test]
fn many_members_of_one_deadline_go_in_slices() {
    const MEMBERS: usize = 1_000_000;
    let mut world = World::new(0);
    for first in (0..MEMBERS).step_by(1000) {
        let list: Vec<String> = (first..first + 1000).map(|n| n.to_string()).collect();
        assert_eq!(world.say(&format!("saddex s px 100000 members 1000 {}", list.join(" "))), ":1\r\n");
    }
    world.say("sadd s lives");
    world.trial.pass_ms(100_001);
    let now = world.trial.now();
    let mut slices = 0;
    while world.trial.keyspace.next_due_hint_ms() < now.ms {
        assert!(world.trial.keyspace.sweep_earliest(0, now.ms, now, 500).deleted <= 500);
        slices += 1;
        if slices % 200 == 0 {
            assert_eq!(world.say("scard s"), ":1\r\n");
            assert_eq!(world.say("smembers s"), "*1\r\n$5\r\nlives\r\n");
            assert_eq!(world.say("srandmember s"), "$5\r\nlives\r\n");
            assert_eq!(world.say("srandmember s -2"), "*2\r\n$5\r\nlives\r\n$5\r\nlives\r\n");
            assert_eq!(world.say("sismember s 999999"), ":0\r\n");
        }
    }
    assert!(slices >= MEMBERS / 500, "{slices}");
    assert_eq!(world.trial.keyspace.counters.expired_fields, MEMBERS as u64);
    world.trial.keyspace.check();
}

#[test]
fn wrong_arguments_are_told_as_redis_tells_them() {
    let mut world = World::new(0);
    world.say("set string 1");
    world.say("sadd s a");
    for (line, expected) in [
        ("sexpire string x members 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("sexpire s x members 1 a", "ERR value is not an integer or out of range"),
        ("sexpire s -1 members 1 a", "ERR invalid expire time, must be >= 0"),
        ("sexpire s 9223372036854775807 members 1 a", "ERR invalid expire time in 'sexpire' command"),
        ("sexpire s 1 members 0 a", "ERR Parameter `numMembers` should be greater than 0"),
        ("sexpire s 1 members 9223372036854775807 a", "ERR Parameter `numMembers` should be greater than 0"),
        ("sexpire s 1 members 2 a", "ERR wrong number of arguments"),
        ("sexpire s 1 members 1 a b", "ERR unknown argument: b"),
        ("sexpire s 1 nx lt members 1 a", "ERR Multiple condition flags specified"),
        ("sexpire s 1 nx xx gt lt", "ERR missing MEMBERS argument"),
        ("sexpire s 1 members 1 a members 1 a", "ERR MEMBERS keyword specified multiple times"),
        ("sexpire s 1 nx lt members", "ERR MEMBERS requires at least nummembers and one member argument"),
        ("sttl string members 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("sttl s 1 a members", "ERR Mandatory argument MEMBERS is missing or not at the right position"),
        ("sttl s members 0 a", "ERR Number of members must be a positive integer"),
        ("sttl s members 2 a", "ERR The `nummembers` parameter must match the number of arguments"),
        ("spersist s members 1 a b", "ERR The `nummembers` parameter must match the number of arguments"),
        ("saddex string ex x members 1 a", "ERR value is not an integer or out of range"),
        ("saddex string ex 1 members 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("saddex s mnx mxx members 1 a", "ERR Only one of MXX or MNX arguments can be specified"),
        (
            "saddex s ex 1 keepttl members 1 a",
            "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        ("saddex s ex 1 members", "ERR wrong number of arguments for 'saddex' command"),
        ("saddex s members 1 a ex", "ERR missing expire time"),
        ("saddex s members 0 a", "ERR invalid number of members"),
        ("saddex s members 3 a b", "ERR wrong number of arguments"),
        ("saddex s 10 a b", "ERR unknown argument: 10"),
        ("saddex s ex 1 keepttl", "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified"),
    ] {
        assert_eq!(world.say(line), expected, "{line}");
    }
    assert_eq!(world.say("smembers s"), "*1\r\n$1\r\na\r\n");
    // A member that is named several times; options behind the members.
    assert_eq!(world.say("sexpire s 100 members 2 a a nx"), "*2\r\n:1\r\n:0\r\n");
    assert_eq!(world.say("saddex s members 3 b b a px 100000 mnx"), ":0\r\n");
    assert_eq!(world.say("saddex s members 2 b b px 100000 mnx"), ":1\r\n");
    assert_eq!(world.say("sttl s members 3 a b c"), "*3\r\n:100\r\n:100\r\n:-2\r\n");
}
