//! Sorted sets whose members and keys die, against a map of maps.

use crate::command::trial::{CONDITIONS, Trial, draw_ms, int, texts};
use crate::config::{Limits, NotifyFlags, PackLimits};
use crate::keyspace::{NEVER_MS, Stored, Touch};
use std::collections::{BTreeMap, BTreeSet};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// Steps of one seed; in all of them together 20,000.
const STEPS: usize = 1_250;
const SEEDS: u64 = 16;

/// Whether a condition holds of what is there, a deadline or a score, and of what is to come.
type Holds = fn(Option<i64>, i64) -> bool;

#[derive(Clone, Default)]
struct Zset {
    /// Score and deadline.
    members: BTreeMap<String, (i64, Option<u64>)>,
    deadline_ms: Option<u64>,
}

impl Zset {
    fn sorted(&self) -> Vec<(i64, String)> {
        let mut items: Vec<(i64, String)> =
            self.members.iter().map(|(name, (score, _))| (*score, name.clone())).collect();
        items.sort();
        items
    }

    fn of_scores(scores: BTreeMap<String, i64>) -> Zset {
        Zset { members: scores.into_iter().map(|(name, score)| (name, (score, None))).collect(), deadline_ms: None }
    }
}

struct World {
    trial: Trial,
    model: BTreeMap<String, Zset>,
    rng: fastrand::Rng,
}

fn text(text: impl std::fmt::Display) -> String {
    let text = text.to_string();
    format!("${}\r\n{text}\r\n", text.len())
}

/// Items as an array, with their scores.
fn scored<'a>(items: impl Iterator<Item = &'a (i64, String)>) -> String {
    let all: Vec<String> = items.flat_map(|(score, name)| [text(name), text(score)]).collect();
    format!("*{}\r\n{}", all.len(), all.concat())
}

impl World {
    fn new(seed: u64) -> World {
        let limits = Limits {
            zset: PackLimits { entries: [128, 8, 4, 0][seed as usize % 4], value_bytes: 10 },
            string_bytes: 1 << 20,
            ..Limits::default()
        };
        let mut trial = Trial::new(seed, limits);
        trial.keyspace.effects.set_wanted(NotifyFlags::ZSET | NotifyFlags::GENERIC | NotifyFlags::EXPIRED);
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
        self.model.retain(|_, zset| {
            zset.members.retain(|_, (_, deadline_ms)| lives(*deadline_ms));
            lives(zset.deadline_ms) && !zset.members.is_empty()
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

    fn of(&self, key: &str) -> Zset {
        self.model.get(key).cloned().unwrap_or_default()
    }

    fn step(&mut self, range: u32) {
        self.forget_dead();
        let [key, other, third] = [0; 3].map(|_| KEYS[self.rng.usize(..4)]);
        let several: BTreeSet<String> = (0..self.rng.usize(1..6)).map(|_| self.member(range)).collect();
        let list = several.iter().cloned().collect::<Vec<_>>();
        let (line, count) = (list.join(" "), list.len());
        let (now_ms, mut zset) = (self.now_ms(), self.of(key));
        match self.rng.u8(..28) {
            0..7 => self.add(key, &mut zset, &list),
            7 => {
                let (name, by) = (&list[0], self.rng.i64(-3..4));
                let member = zset.members.entry(name.clone()).or_default();
                member.0 += by;
                assert_eq!(self.say(&format!("zincrby {key} {by} {name}")), text(member.0));
            }
            8 => {
                let known = list.iter().filter(|name| zset.members.contains_key(*name)).count();
                assert_eq!(self.say(&format!("zrem {key} {line}")), int(known as i64));
                zset.members.retain(|name, _| !several.contains(name));
            }
            9..13 => {
                let ttl_ms = self.time_ms(40);
                let (option, holds) = CONDITIONS[self.rng.usize(..5)];
                let parts = [format!("members {count} {line}"), option.to_owned()];
                let rest = if self.rng.bool() { parts.join(" ") } else { format!("{} {}", parts[1], parts[0]) };
                let reply = self.say(format!("zpexpire {key} {ttl_ms} {}", rest.trim()).trim());
                let mut answer = |name: &String| match zset.members.get_mut(name) {
                    None => int(-2),
                    Some((_, old)) if holds(*old, now_ms + ttl_ms) => {
                        *old = Some(now_ms + ttl_ms);
                        int(1)
                    }
                    Some(_) => int(0),
                };
                assert_eq!(reply, format!("*{count}\r\n{}", list.iter().map(&mut answer).collect::<String>()));
            }
            13 => {
                let mut answer = |name: &String| match zset.members.get_mut(name) {
                    None => int(-2),
                    Some((_, old)) => int(if old.take().is_some() { 1 } else { -1 }),
                };
                let expected: String = list.iter().map(&mut answer).collect();
                let reply = self.say(&format!("zpersist {key} members {count} {line}"));
                assert_eq!(reply, format!("*{count}\r\n{expected}"));
            }
            14 => {
                // In the past.
                let answer = |name: &String| int(if zset.members.contains_key(name) { 2 } else { -2 });
                let expected: String = list.iter().map(answer).collect();
                let reply = self.say(&format!("zpexpireat {key} 1 members {count} {line}"));
                assert_eq!(reply, format!("*{count}\r\n{expected}"));
                zset.members.retain(|name, _| !several.contains(name));
            }
            15 | 16 => self.take(key, &mut zset),
            17 => {
                let (start, stop) = (self.rng.i64(-6..6), self.rng.i64(-6..6));
                let source = self.of(other).sorted();
                let kept = by_rank(&source, start, stop);
                let stored = self.say(&format!("zrangestore {key} {other} {start} {stop}"));
                assert_eq!(stored, int(kept.len() as i64));
                zset = Zset::of_scores(kept.iter().map(|(score, name)| (name.clone(), *score)).collect());
            }
            18 => {
                let [left, right] = [other, third].map(|key| self.of(key).members);
                let mut result: BTreeMap<String, i64> =
                    left.iter().map(|(name, (score, _))| (name.clone(), *score)).collect();
                let name = match self.rng.u8(..3) {
                    0 => {
                        result.retain(|name, score| {
                            right.get(name).is_some_and(|(of_right, _)| {
                                *score += of_right;
                                true
                            })
                        });
                        "zinterstore"
                    }
                    1 => {
                        right.iter().for_each(|(name, (score, _))| *result.entry(name.clone()).or_default() += score);
                        "zunionstore"
                    }
                    _ => {
                        result.retain(|name, _| !right.contains_key(name));
                        "zdiffstore"
                    }
                };
                assert_eq!(self.say(&format!("{name} {key} 2 {other} {third}")), int(result.len() as i64));
                zset = Zset::of_scores(result);
            }
            19 => {
                let ttl_ms = self.time_ms(40);
                assert_eq!(self.say(&format!("pexpire {key} {ttl_ms}")), int((!zset.members.is_empty()).into()));
                zset.deadline_ms = Some(now_ms + ttl_ms);
            }
            20 | 21 => return self.carry(key, other),
            22..25 => {
                let step_ms = self.time_ms(35);
                self.trial.pass_ms(step_ms);
            }
            _ => {
                let limit = self.rng.usize(1..50);
                self.trial.sweep(limit);
            }
        }
        self.model.insert(key.to_owned(), zset);
    }

    /// A member that is there keeps its deadline, whatever becomes of its score.
    fn add(&mut self, key: &str, zset: &mut Zset, list: &[String]) {
        let (options, holds): (&str, Holds) = [
            ("", (|_, _| true) as Holds),
            ("", |_, _| true),
            ("nx ", |old, _| old.is_none()),
            ("xx ", |old, _| old.is_some()),
            ("gt ", |old, new| old.is_none_or(|old| new > old)),
            ("xx lt ", |old, new| old.is_some_and(|old| new < old)),
        ][self.rng.usize(..6)];
        let ch = self.rng.bool();
        let pairs: Vec<(i64, &String)> = list.iter().map(|name| (self.rng.i64(-3..9), name)).collect();
        let mut count = 0;
        for (score, name) in &pairs {
            let old = zset.members.get(*name).map(|(old, _)| *old);
            if holds(old, *score) {
                count += i64::from(old.is_none() || ch && old != Some(*score));
                zset.members.entry((*name).clone()).or_default().0 = *score;
            }
        }
        let pairs: Vec<String> = pairs.iter().map(|(score, name)| format!("{score} {name}")).collect();
        let line = format!("zadd {key} {options}{}{}", if ch { "ch " } else { "" }, pairs.join(" "));
        assert_eq!(self.say(&line), int(count), "{line}");
    }

    /// Members are taken from the ends, or by their scores or ranks.
    fn take(&mut self, key: &str, zset: &mut Zset) {
        let (sorted, count) = (zset.sorted(), self.rng.usize(1..4));
        let taken: Vec<(i64, String)> = match self.rng.u8(..5) {
            0 => {
                let taken = sorted[..count.min(sorted.len())].to_vec();
                assert_eq!(self.say(&format!("zpopmin {key} {count}")), scored(taken.iter()));
                taken
            }
            1 => {
                let taken: Vec<_> = sorted.iter().rev().take(count).cloned().collect();
                assert_eq!(self.say(&format!("zpopmax {key} {count}")), scored(taken.iter()));
                taken
            }
            2 => {
                let (start, stop) = (self.rng.i64(-5..5), self.rng.i64(-5..5));
                let taken = by_rank(&sorted, start, stop).to_vec();
                let line = format!("zremrangebyrank {key} {start} {stop}");
                assert_eq!(self.say(&line), int(taken.len() as i64), "{line}");
                taken
            }
            3 => {
                let (min, max) = (self.rng.i64(-3..9), self.rng.i64(-3..9));
                let taken: Vec<_> = sorted.iter().filter(|(score, _)| (min..=max).contains(score)).cloned().collect();
                let line = format!("zremrangebyscore {key} {min} {max}");
                assert_eq!(self.say(&line), int(taken.len() as i64), "{line}");
                taken
            }
            _ => {
                let taken: Vec<_> = sorted.iter().rev().take(count).cloned().collect();
                let reply = self.say(&format!("zmpop 2 none {key} max count {count}"));
                assert_eq!(texts(&reply).len(), if taken.is_empty() { 0 } else { 1 + 2 * taken.len() });
                taken
            }
        };
        zset.members.retain(|name, _| !taken.iter().any(|(_, other)| other == name));
    }

    /// What keeps members keeps their deadlines.
    fn carry(&mut self, key: &str, to: &str) {
        let Some(zset) = self.model.get(key).cloned().filter(|_| key != to) else { return };
        match self.rng.u8(..4) {
            0 => {
                assert_eq!(self.say(&format!("rename {key} {to}")), "+OK\r\n");
                self.model.remove(key);
                self.model.insert(to.to_owned(), zset);
            }
            1 => {
                assert_eq!(self.say(&format!("copy {key} {to} replace")), int(1));
                self.model.insert(to.to_owned(), zset);
            }
            2 => {
                self.trial.restore(key.as_bytes(), to.as_bytes());
                self.model.insert(to.to_owned(), Zset { deadline_ms: None, ..zset });
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
        let with_deadline = self.model.values().filter(|zset| zset.deadline_ms.is_some()).count();
        assert_eq!(self.trial.keyspace.live_with_deadline(0, now), with_deadline);
        for key in KEYS {
            let zset = self.of(key);
            let sorted = zset.sorted();
            assert_eq!(self.say(&format!("zcard {key}")), int(sorted.len() as i64));
            assert_eq!(self.say(&format!("zrange {key} 0 -1 withscores")), scored(sorted.iter()));
            assert_eq!(self.say(&format!("exists {key}")), int((!sorted.is_empty()).into()));
            let ttl_ms = zset.deadline_ms.map_or(-1, |deadline_ms| deadline_ms as i64 - now.ms as i64);
            assert_eq!(self.say(&format!("pttl {key}")), int(if sorted.is_empty() { -2 } else { ttl_ms }));
        }
        let key = KEYS[self.rng.usize(..4)];
        let zset = self.of(key);
        self.compare_ranges(key, &zset);
        self.compare_closely(key, &zset);
    }

    /// What asks for ranks and ranges.
    fn compare_ranges(&mut self, key: &str, zset: &Zset) {
        let sorted = zset.sorted();
        let (start, stop) = (self.rng.i64(-9..9), self.rng.i64(-9..9));
        let line = format!("zrange {key} {start} {stop} withscores");
        assert_eq!(self.say(&line), scored(by_rank(&sorted, start, stop).iter()), "{line}");
        let back: Vec<(i64, String)> = sorted.iter().rev().cloned().collect();
        let line = format!("zrevrange {key} {start} {stop} withscores");
        assert_eq!(self.say(&line), scored(by_rank(&back, start, stop).iter()), "{line}");
        let (min, max) = (self.rng.i64(-4..9), self.rng.i64(-4..9));
        let between = || sorted.iter().filter(|(score, _)| *score > min && *score <= max);
        assert_eq!(self.say(&format!("zcount {key} ({min} {max}")), int(between().count() as i64));
        let line = format!("zrange {key} ({min} {max} byscore limit 1 3 withscores");
        assert_eq!(self.say(&line), scored(between().skip(1).take(3)), "{line}");
        let line = format!("zrange {key} {max} ({min} byscore rev limit 0 2 withscores");
        assert_eq!(self.say(&line), scored(between().rev().take(2)), "{line}");
        let Some(rank) = (!sorted.is_empty()).then(|| self.rng.usize(..sorted.len())) else { return };
        let (score, name) = &sorted[rank];
        assert_eq!(self.say(&format!("zrank {key} {name}")), int(rank as i64));
        assert_eq!(self.say(&format!("zrevrank {key} {name}")), int((sorted.len() - 1 - rank) as i64));
        assert_eq!(self.say(&format!("zmscore {key} none {name}")), format!("*2\r\n$-1\r\n{}", text(score)));
        let deadline_ms = zset.members[name].1;
        let ttl_ms = deadline_ms.map_or(-1, |deadline_ms| deadline_ms as i64 - self.now_ms() as i64);
        assert_eq!(self.say(&format!("zpttl {key} members 2 {name} none")), format!("*2\r\n{}:-2\r\n", int(ttl_ms)));
        let ttl_s = if ttl_ms < 0 { -1 } else { (ttl_ms + 999) / 1000 };
        assert_eq!(self.say(&format!("zttl {key} members 1 {name}")), format!("*1\r\n{}", int(ttl_s)));
    }

    /// The rest of what reads sorted sets.
    fn compare_closely(&mut self, key: &str, zset: &Zset) {
        let names = BTreeSet::from_iter(zset.members.keys().cloned());
        let drawn = BTreeSet::from_iter(texts(&self.say(&format!("zrandmember {key} 5"))));
        assert!(drawn.len() == names.len().min(5) && drawn.is_subset(&names));
        let drawn = BTreeSet::from_iter(texts(&self.say(&format!("zrandmember {key} -5"))));
        assert!(drawn.is_empty() == names.is_empty() && drawn.is_subset(&names));
        assert_eq!(BTreeSet::from_iter(texts(&self.say(&format!("sort {key} alpha")))), names);
        let by_score: Vec<String> = zset.sorted().into_iter().map(|(_, name)| name).skip(1).take(2).collect();
        assert_eq!(texts(&self.say(&format!("sort {key} by nosort limit 1 2"))), by_score);
        let a = BTreeSet::from_iter(self.of("a").members.into_keys());
        assert_eq!(self.say(&format!("zintercard 2 a {key}")), int((&a & &names).len() as i64));
        assert_eq!(BTreeSet::from_iter(texts(&self.say(&format!("zunion 2 a {key}")))), &a | &names);
        assert_eq!(BTreeSet::from_iter(texts(&self.say(&format!("zdiff 2 a {key}")))), &a - &names);
        let walked: BTreeSet<String> =
            self.trial.pages("zscan", key, "count 50 noscores").iter().flat_map(|page| texts(page)).collect();
        assert_eq!(walked, names);
    }

    fn events(&mut self) -> Vec<&'static str> {
        self.trial.keyspace.effects.take().into_iter().map(|notice| notice.event.name()).collect()
    }
}

/// Those of these ranks, counted from the end where negative.
fn by_rank(items: &[(i64, String)], start: i64, stop: i64) -> &[(i64, String)] {
    let len = items.len() as i64;
    let at = |rank: i64| if rank < 0 { rank + len } else { rank };
    let (start, end) = (at(start).max(0), (at(stop) + 1).min(len));
    if start < end { &items[start as usize..end as usize] } else { &[] }
}

#[test]
fn members_and_keys_die_when_they_should() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        let range = [6, 60, 1500][seed as usize % 3];
        if range > 1000 {
            // One is large from the beginning.
            for n in 0..1200 {
                world.say(&format!("zadd a {} {n}", n % 7));
                world.model.entry("a".to_owned()).or_default().members.insert(n.to_string(), (n % 7, None));
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
fn a_sorted_set_without_deadlines_is_not_looked_at() {
    let mut world = World::new(0);
    for n in 0..3000 {
        world.say(&format!("zadd large {n} m{n}"));
    }
    world.say("zadd packed 1 a 2 b");
    assert_eq!(world.trial.keyspace.next_due_hint_ms(), NEVER_MS);
    let is_packed = |world: &mut World| {
        let key = world.trial.keyspace.hasher().key(b"packed");
        matches!(world.trial.keyspace.peek(0, key, world.trial.now()), Some(Stored::Packed(..)))
    };
    // What gives no deadline changes no form.
    world.say("zpersist packed members 1 a");
    world.say("zexpire packed 10 members 1 none");
    world.say("zexpire packed 10 xx members 1 a");
    assert!(is_packed(&mut world));
    // A member without a deadline takes as much in a sorted set that had one as in one that never had.
    let bytes = |world: &mut World| {
        let (key, now) = (world.trial.keyspace.hasher().key(b"large"), world.trial.now());
        world.trial.keyspace.find(0, key, now, Touch::NOTHING).expect("it is there").bytes()
    };
    let before = bytes(&mut world);
    world.say("zexpire large 10 members 2 m1 m2");
    assert_ne!(bytes(&mut world), before);
    world.say("zpersist large members 2 m1 m2");
    assert_eq!(bytes(&mut world), before);
    world.say("zexpire packed 10 members 1 a");
    assert!(!is_packed(&mut world));
    // The cycle has nothing to look at again when the last deadline is cleared.
    world.say("zpersist packed members 1 a");
    assert_eq!(world.trial.keyspace.with_deadline(0), 0);
    world.trial.pass_ms(10_001);
    world.trial.sweep(10);
    assert_eq!(world.say("zcard packed"), ":2\r\n");
}

#[test]
fn the_events_of_members() {
    let mut world = World::new(0);
    world.say("zadd z 1 a 2 b 3 c");
    world.say("zpexpire z 10 members 1 c");
    world.say("zpersist z members 2 a b");
    assert_eq!(world.events(), ["zadd", "zexpire"]);
    world.trial.pass_ms(11);
    world.trial.sweep(10);
    assert_eq!(world.events(), ["zexpired"]);
    world.say("zpexpire z 10 members 2 a b");
    world.say("zpersist z members 1 a");
    world.say("zpexpire z 10 members 1 a");
    assert_eq!(world.events(), ["zexpire", "zpersist", "zexpire"]);
    world.trial.pass_ms(11);
    assert_eq!(world.say("zscore z a"), "$-1\r\n");
    assert_eq!(world.events(), ["zexpired", "del"], "somebody looks before the cycle comes");
    // One comes back, one is removed, before they are taken out.
    world.say("zadd z 1 a 2 b 3 c 4 d");
    world.say("zpexpire z 10 members 3 a b d");
    world.events();
    world.trial.pass_ms(11);
    assert_eq!(world.say("zrem z a"), ":0\r\n");
    assert_eq!(world.events(), ["zexpired"]);
    assert_eq!(world.say("zadd z xx 5 b"), ":0\r\n");
    assert_eq!(world.events(), ["zexpired"]);
    assert_eq!(world.say("zincrby z 7 d"), "$1\r\n7\r\n", "from nothing");
    assert_eq!(world.events(), ["zexpired", "zincr"]);
    assert_eq!(world.say("zpttl z members 1 d"), "*1\r\n:-1\r\n");
    // The last that lives goes, in each way.
    for line in ["zrem z c d", "zpopmin z 9", "zremrangebyrank z 0 -1", "zremrangebyscore z -inf +inf"] {
        world.say("del z");
        world.say("zadd z 2 a 3 c 4 d");
        world.say("zpexpire z 10 members 1 a");
        world.trial.pass_ms(11);
        world.events();
        world.say(line);
        assert_eq!(world.events().last(), Some(&"del"), "{line}");
        assert_eq!(world.say("exists z"), ":0\r\n");
    }
    assert_eq!(world.say("zexpire z 10 members 1 b"), "*1\r\n:-2\r\n");
    assert!(world.events().is_empty());
}

/// What all lasts for a while is taken out in slices, and nobody sees it meanwhile.
#[test]
fn many_members_of_one_deadline_go_in_slices() {
    const MEMBERS: usize = 300_000;
    let mut world = World::new(0);
    for first in (0..MEMBERS).step_by(1000) {
        let pairs: Vec<String> = (first..first + 1000).map(|n| format!("{n} {n}")).collect();
        world.say(&format!("zadd z {}", pairs.join(" ")));
        let names: Vec<String> = (first..first + 1000).map(|n| n.to_string()).collect();
        world.say(&format!("zpexpire z 100000 members 1000 {}", names.join(" ")));
    }
    world.say("zadd z 77 lives");
    world.trial.pass_ms(100_001);
    let now = world.trial.now();
    let mut slices = 0;
    while world.trial.keyspace.next_due_hint_ms() < now.ms {
        assert!(world.trial.keyspace.sweep_earliest(0, now.ms, now, 500).deleted <= 500);
        slices += 1;
        if slices % 60 == 0 {
            assert_eq!(world.say("zcard z"), ":1\r\n");
            assert_eq!(world.say("zrange z 0 -1"), "*1\r\n$5\r\nlives\r\n");
            assert_eq!(world.say("zrank z lives"), ":0\r\n");
            assert_eq!(world.say("zrandmember z"), "$5\r\nlives\r\n");
            assert_eq!(world.say("zcount z 78 +inf"), ":0\r\n");
            assert_eq!(world.say("zscore z 299999"), "$-1\r\n");
        }
    }
    assert!(slices >= MEMBERS / 500, "{slices}");
    assert_eq!(world.trial.keyspace.counters.expired_fields, MEMBERS as u64);
    world.trial.keyspace.check();
}

#[test]
fn wrong_arguments_are_told_as_those_of_sets() {
    let mut world = World::new(0);
    world.say("set string 1");
    world.say("zadd z 1 a");
    for (line, expected) in [
        ("zexpire string x members 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("zexpire z x members 1 a", "ERR value is not an integer or out of range"),
        ("zexpire z -1 members 1 a", "ERR invalid expire time, must be >= 0"),
        ("zexpire z 9223372036854775807 members 1 a", "ERR invalid expire time in 'zexpire' command"),
        ("zpexpireat z 70368744177664 members 1 a", "ERR invalid expire time in 'zpexpireat' command"),
        ("zexpire z 1 members 0 a", "ERR Parameter `numMembers` should be greater than 0"),
        ("zexpire z 1 members 9223372036854775807 a", "ERR Parameter `numMembers` should be greater than 0"),
        ("zexpire z 1 members 2 a", "ERR wrong number of arguments"),
        ("zexpire z 1 members 1 a b", "ERR unknown argument: b"),
        ("zexpire z 1 nx lt members 1 a", "ERR Multiple condition flags specified"),
        ("zexpire z 1 nx xx gt lt", "ERR missing MEMBERS argument"),
        ("zexpire z 1 members 1 a members 1 a", "ERR MEMBERS keyword specified multiple times"),
        ("zttl string members 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("zttl z 1 a members", "ERR Mandatory argument MEMBERS is missing or not at the right position"),
        ("zttl z members 0 a", "ERR Number of members must be a positive integer"),
        ("zpersist z members 1 a b", "ERR The `nummembers` parameter must match the number of arguments"),
    ] {
        assert_eq!(world.say(line), expected, "{line}");
    }
    // A member that is named several times; one that is there keeps its deadline under another score.
    assert_eq!(world.say("zexpire z 100 members 2 a a nx"), "*2\r\n:1\r\n:0\r\n");
    assert_eq!(world.say("zadd z 2.5 a"), ":0\r\n");
    assert_eq!(world.say("zincrby z 1 a"), "$3\r\n3.5\r\n");
    assert_eq!(world.say("zadd z nan a"), "ERR value is not a valid float");
    assert_eq!(world.say("zttl z members 2 a b"), "*2\r\n:100\r\n:-2\r\n");
    assert_eq!(world.say("zpersist z members 2 a a"), "*2\r\n:1\r\n:-1\r\n");
}
