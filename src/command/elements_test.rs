//! Collections whose elements and keys die, against a map of maps: what the tests of hashes, sets and sorted sets have in
//! common.

use super::trial::{CONDITIONS, Trial, draw_ms, int};
use crate::config::{Limits, NotifyFlags};
use crate::keyspace::{Hasher, Keyspace, NEVER_MS, Stored};
use std::collections::{BTreeMap, BTreeSet};

pub const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// Steps of one seed; in all of them together 20,000.
const STEPS: usize = 1_250;
const SEEDS: u64 = 16;
/// So much of its heap may stay with a database in which nothing is any more.
const LEFT_BYTES: usize = 4 << 10;

/// A type of collections, as its tests know it.
pub trait Family: Sized {
    /// What an element has beside its name and its deadline.
    type Value: Clone;
    /// What the names of its commands and events begin with.
    const LETTER: &'static str;
    /// The word before elements.
    const WORD: &'static str;
    /// Whether a condition may stand behind the elements, too.
    const ANY_ORDER: bool;
    /// The command that counts elements, and that which takes some out, as its event is called.
    const COUNT: &'static str;
    const DELETE: &'static str;
    /// The event of adding some.
    const ADDED: &'static str;
    const CLASS: NotifyFlags;

    /// Some of which let collections of a few elements be large.
    fn limits(seed: u64) -> Limits;
    /// What an element has that was added by [`Family::adding`].
    fn plain() -> Self::Value;
    /// The command that adds elements.
    fn adding(key: &str, names: &[String]) -> String;
    /// One of the commands that only this type has, which changes something.
    fn step(world: &mut World<Self>, step: &Step);
    /// Whether a key holds this, by the commands that show all of it.
    fn compare(world: &mut World<Self>, key: &str, expected: &Collection<Self::Value>);
    /// The same by all other commands that read.
    fn compare_closely(world: &mut World<Self>, key: &str, expected: &Collection<Self::Value>);
}

#[derive(Clone)]
pub struct Collection<V> {
    pub elements: BTreeMap<String, (V, Option<u64>)>,
    pub deadline_ms: Option<u64>,
}

impl<V> Default for Collection<V> {
    fn default() -> Collection<V> {
        Collection { elements: BTreeMap::new(), deadline_ms: None }
    }
}

impl<V> Collection<V> {
    /// What a command makes of other collections: nothing in it dies.
    pub fn of(values: impl IntoIterator<Item = (String, V)>) -> Collection<V> {
        let elements = values.into_iter().map(|(name, value)| (name, (value, None))).collect();
        Collection { elements, deadline_ms: None }
    }

    pub fn names(&self) -> BTreeSet<String> {
        self.elements.keys().cloned().collect()
    }

    pub fn has(&self, name: &str) -> bool {
        self.elements.contains_key(name)
    }

    /// How many of these are there.
    pub fn known(&self, names: &[String]) -> usize {
        names.iter().filter(|name| self.has(name)).count()
    }

    pub fn remove(&mut self, names: &[String]) {
        self.elements.retain(|name, _| !names.contains(name));
    }
}

/// What a step is about: names, each of them once, and keys, perhaps one and the same.
pub struct Step {
    pub key: &'static str,
    pub other: &'static str,
    pub third: &'static str,
    pub names: Vec<String>,
}

impl Step {
    /// The names as words.
    pub fn line(&self) -> String {
        self.names.join(" ")
    }
}

pub struct World<F: Family> {
    pub trial: Trial,
    pub rng: fastrand::Rng,
    model: BTreeMap<String, Collection<F::Value>>,
}

impl<F: Family> World<F> {
    pub fn new(seed: u64) -> World<F> {
        let mut trial = Trial::new(seed, Limits { string_bytes: 1 << 20, ..F::limits(seed) });
        trial.keyspace.effects.set_wanted(F::CLASS | NotifyFlags::GENERIC | NotifyFlags::EXPIRED);
        World { trial, rng: fastrand::Rng::with_seed(seed), model: BTreeMap::new() }
    }

    #[track_caller]
    pub fn say(&mut self, line: &str) -> String {
        self.trial.say(line)
    }

    /// Says something whose reply is known.
    #[track_caller]
    pub fn expect(&mut self, line: &str, expected: &str) {
        assert_eq!(self.say(line), expected, "{line}");
    }

    pub fn now_ms(&self) -> u64 {
        self.trial.now().ms
    }

    /// A deadline that is near or far.
    pub fn draw_ttl_ms(&mut self) -> u64 {
        draw_ms(&mut self.rng, 40)
    }

    /// What a key holds, alive or not.
    pub fn of(&self, key: &str) -> Collection<F::Value> {
        self.model.get(key).cloned().unwrap_or_default()
    }

    pub fn put(&mut self, key: &str, collection: Collection<F::Value>) {
        self.model.insert(key.to_owned(), collection);
    }

    /// Adds elements that may be there already.
    #[track_caller]
    pub fn add(&mut self, key: &str, names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        self.say(&F::adding(key, &names))
    }

    /// Gives elements a deadline.
    #[track_caller]
    pub fn give(&mut self, key: &str, ttl_ms: u64, names: &[&str]) -> String {
        let (letter, word, count, line) = (F::LETTER, F::WORD, names.len(), names.join(" "));
        self.say(&format!("{letter}pexpire {key} {ttl_ms} {word} {count} {line}"))
    }

    /// Clears deadlines of elements.
    #[track_caller]
    pub fn clear(&mut self, key: &str, names: &[&str]) -> String {
        let (letter, word, count, line) = (F::LETTER, F::WORD, names.len(), names.join(" "));
        self.say(&format!("{letter}persist {key} {word} {count} {line}"))
    }

    pub fn events(&mut self) -> Vec<&'static str> {
        self.trial.keyspace.effects.take().into_iter().map(|notice| notice.event.name()).collect()
    }

    pub fn is_packed(&self, key: &str) -> bool {
        let key = self.trial.keyspace.hasher().key(key.as_bytes());
        matches!(self.trial.keyspace.peek(0, key, self.trial.now()), Some(Stored::Packed(..)))
    }

    /// The model without what is dead.
    fn forget_dead(&mut self) {
        let now_ms = self.now_ms();
        let lives = |deadline_ms: Option<u64>| deadline_ms.is_none_or(|deadline_ms| deadline_ms >= now_ms);
        self.model.retain(|_, collection| {
            collection.elements.retain(|_, (_, deadline_ms)| lives(*deadline_ms));
            lives(collection.deadline_ms) && !collection.elements.is_empty()
        });
    }

    fn draw_name(&mut self, range: u32) -> String {
        match self.rng.u8(..4) {
            0 => format!("member{}", self.rng.u32(..range)),
            1 => format!("0{}", self.rng.u32(..range)),
            _ => self.rng.u32(..range).to_string(),
        }
    }

    fn draw(&mut self, range: u32) -> Step {
        let [key, other, third] = [0; 3].map(|_| KEYS[self.rng.usize(..KEYS.len())]);
        let names: BTreeSet<String> = (0..self.rng.usize(1..6)).map(|_| self.draw_name(range)).collect();
        Step { key, other, third, names: names.into_iter().collect() }
    }

    fn step(&mut self, range: u32) {
        self.forget_dead();
        let step = self.draw(range);
        match self.rng.u8(..27) {
            0..13 => F::step(self, &step),
            13..17 => self.step_expire(&step),
            17 => self.step_persist(&step),
            18 => self.step_expire_in_the_past(&step),
            19 | 20 => self.step_key(step.key),
            21 | 22 => self.carry(step.key, step.other),
            23..25 => {
                let step_ms = draw_ms(&mut self.rng, 35);
                self.trial.pass_ms(step_ms);
            }
            _ => {
                let limit = self.rng.usize(1..50);
                self.trial.sweep(limit);
            }
        }
    }

    /// What each name answers, in turn.
    #[track_caller]
    fn say_of_names(&mut self, line: &str, answers: &[i64]) {
        let all: String = answers.iter().map(|answer| int(*answer)).collect();
        self.expect(line, &format!("*{}\r\n{all}", answers.len()));
    }

    fn step_expire(&mut self, step: &Step) {
        let (ttl_ms, mut collection) = (self.draw_ttl_ms(), self.of(step.key));
        let deadline_ms = self.now_ms() + ttl_ms;
        let (condition, holds) = CONDITIONS[self.rng.usize(..CONDITIONS.len())];
        let elements = format!("{} {} {}", F::WORD, step.names.len(), step.line());
        let rest =
            if F::ANY_ORDER && self.rng.bool() { [elements, condition.into()] } else { [condition.into(), elements] };
        let line = format!("{}pexpire {} {ttl_ms} {}", F::LETTER, step.key, rest.join(" ").trim());
        let mut answer = |name: &String| match collection.elements.get_mut(name) {
            None => -2,
            Some((_, old)) if holds(*old, deadline_ms) => {
                *old = Some(deadline_ms);
                1
            }
            Some(_) => 0,
        };
        let answers: Vec<i64> = step.names.iter().map(&mut answer).collect();
        self.say_of_names(&line, &answers);
        self.put(step.key, collection);
    }

    fn step_persist(&mut self, step: &Step) {
        let mut collection = self.of(step.key);
        let mut answer = |name: &String| match collection.elements.get_mut(name) {
            None => -2,
            Some((_, old)) => old.take().map_or(-1, |_| 1),
        };
        let answers: Vec<i64> = step.names.iter().map(&mut answer).collect();
        let line = format!("{}persist {} {} {} {}", F::LETTER, step.key, F::WORD, step.names.len(), step.line());
        self.say_of_names(&line, &answers);
        self.put(step.key, collection);
    }

    fn step_expire_in_the_past(&mut self, step: &Step) {
        let mut collection = self.of(step.key);
        let answers: Vec<i64> = step.names.iter().map(|name| if collection.has(name) { 2 } else { -2 }).collect();
        let line = format!("{}pexpireat {} 1 {} {} {}", F::LETTER, step.key, F::WORD, step.names.len(), step.line());
        self.say_of_names(&line, &answers);
        collection.remove(&step.names);
        self.put(step.key, collection);
    }

    /// The key's own deadline.
    fn step_key(&mut self, key: &str) {
        let (ttl_ms, mut collection) = (self.draw_ttl_ms(), self.of(key));
        if self.rng.bool() {
            self.expect(&format!("persist {key}"), &int(collection.deadline_ms.take().is_some().into()));
        } else {
            self.expect(&format!("pexpire {key} {ttl_ms}"), &int((!collection.elements.is_empty()).into()));
            collection.deadline_ms = Some(self.now_ms() + ttl_ms);
        }
        self.put(key, collection);
    }

    /// What keeps elements keeps their deadlines.
    fn carry(&mut self, key: &str, to: &str) {
        let Some(collection) = self.model.get(key).cloned().filter(|_| key != to) else { return };
        match self.rng.u8(..4) {
            0 => {
                self.expect(&format!("rename {key} {to}"), "+OK\r\n");
                self.model.remove(key);
                self.put(to, collection);
            }
            1 => {
                self.expect(&format!("copy {key} {to} replace"), &int(1));
                self.put(to, collection);
            }
            2 => {
                self.trial.restore(key.as_bytes(), to.as_bytes());
                self.put(to, Collection { deadline_ms: None, ..collection });
            }
            _ => {
                self.expect(&format!("del {key}"), &int(1));
                self.model.remove(key);
            }
        }
    }

    fn compare(&mut self) {
        self.forget_dead();
        let now = self.trial.now();
        assert_eq!(self.trial.keyspace.live_len(0, now), self.model.len());
        let with_deadline = self.model.values().filter(|collection| collection.deadline_ms.is_some()).count();
        assert_eq!(self.trial.keyspace.live_with_deadline(0, now), with_deadline);
        for key in KEYS {
            let collection = self.of(key);
            let (count, exists) = (collection.elements.len(), !collection.elements.is_empty());
            self.expect(&format!("{} {key}", F::COUNT), &int(count as i64));
            self.expect(&format!("exists {key}"), &int(exists.into()));
            let ttl_ms = collection.deadline_ms.map_or(-1, |deadline_ms| deadline_ms as i64 - now.ms as i64);
            self.expect(&format!("pttl {key}"), &int(if exists { ttl_ms } else { -2 }));
            F::compare(self, key, &collection);
        }
        let key = KEYS[self.rng.usize(..KEYS.len())];
        let collection = self.of(key);
        F::compare_closely(self, key, &collection);
        self.compare_deadline(key, &collection);
    }

    /// How long one of the elements lives on.
    fn compare_deadline(&mut self, key: &str, collection: &Collection<F::Value>) {
        let nth = self.rng.usize(..collection.elements.len().max(1));
        let Some((name, (_, deadline_ms))) = collection.elements.iter().nth(nth) else { return };
        let (letter, word, now_ms) = (F::LETTER, F::WORD, self.now_ms());
        let ttl_ms = deadline_ms.map_or(-1, |deadline_ms| deadline_ms as i64 - now_ms as i64);
        self.say_of_names(&format!("{letter}pttl {key} {word} 2 {name} none"), &[ttl_ms, -2]);
        let ttl_s = if ttl_ms < 0 { -1 } else { (ttl_ms + 999) / 1000 };
        self.say_of_names(&format!("{letter}ttl {key} {word} 1 {name}"), &[ttl_s]);
    }
}

/// 20,000 random steps.
pub fn elements_and_keys_die_when_they_should<F: Family>() {
    for seed in 0..SEEDS {
        let mut world = World::<F>::new(seed);
        let range = [6, 60, 1500][seed as usize % 3];
        if range > 1000 {
            // One is large from the beginning.
            for first in (0..1200).step_by(100) {
                let names: Vec<String> = (first..first + 100).map(|n| n.to_string()).collect();
                world.say(&F::adding("a", &names));
                let elements = &mut world.model.entry("a".to_owned()).or_default().elements;
                elements.extend(names.into_iter().map(|name| (name, (F::plain(), None))));
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
        let empty_bytes = Keyspace::new(1, Hasher::new(seed, 1)).bytes();
        let bytes = world.trial.keyspace.bytes();
        assert!(bytes <= empty_bytes + LEFT_BYTES, "all memory is given back: {bytes}, {empty_bytes} when it was new");
    }
}

/// Where no element has a deadline the cycle has nothing to look at, however large the collection.
pub fn what_has_no_deadlines_is_not_looked_at<F: Family>() {
    let mut world = World::<F>::new(0);
    for n in 0..3000 {
        world.add("large", &[&format!("m{n}")]);
    }
    world.add("packed", &["a", "b"]);
    let (letter, word) = (F::LETTER, F::WORD);
    assert_eq!(world.trial.keyspace.with_deadline(0), 0);
    // What gives no deadline changes no form.
    world.clear("packed", &["a"]);
    world.give("packed", 10, &["none"]);
    world.say(&format!("{letter}expire packed 10 xx {word} 1 a"));
    assert!(world.is_packed("packed"));
    assert_eq!(world.trial.keyspace.next_due_hint_ms(), NEVER_MS);
    // The cycle has nothing to look at again when the last deadline is cleared, unless what is packed has kept its moment.
    for (key, name) in [("large", "m1"), ("packed", "a")] {
        world.give(key, 10, &[name]);
        assert_eq!(world.trial.keyspace.with_deadline(0), 1, "{key}");
        world.clear(key, &[name]);
        assert_eq!(world.trial.keyspace.with_deadline(0), usize::from(world.is_packed(key)), "{key}");
    }
    // When an element is removed it hears of that when it comes, at the latest.
    world.give("packed", 10, &["a"]);
    world.expect(&format!("{} packed a", F::DELETE), &int(1));
    world.trial.pass_ms(11);
    world.trial.sweep(10);
    assert_eq!(world.trial.keyspace.with_deadline(0), 0);
    world.expect(&format!("{} packed", F::COUNT), &int(1));
}

/// A collection that is looked at for its elements is told apart from one that is dead.
pub fn deaths_are_told<F: Family>() {
    let mut world = World::<F>::new(0);
    let names = ["expire", "persist", "expired"].map(|event| [F::LETTER, event].concat());
    let [expire, persist, expired] = [0, 1, 2].map(|index| names[index].as_str());
    world.add("k", &["a", "b", "c"]);
    world.give("k", 10, &["c"]);
    world.clear("k", &["a", "b"]);
    assert_eq!(world.events(), [F::ADDED, expire]);
    world.trial.pass_ms(11);
    world.trial.sweep(10);
    assert_eq!(world.events(), [expired]);
    world.give("k", 10, &["a", "b"]);
    world.clear("k", &["a"]);
    world.give("k", 10, &["a"]);
    assert_eq!(world.events(), [expire, persist, expire]);
    world.trial.pass_ms(11);
    world.expect(&format!("{} k", F::COUNT), &int(0));
    assert_eq!(world.events(), [expired, "del"], "somebody looks before the cycle comes");
    // One comes back, one is removed, before they are taken out.
    world.add("k", &["a", "b", "c", "d"]);
    world.give("k", 10, &["a", "b", "d"]);
    world.events();
    world.trial.pass_ms(11);
    world.expect(&format!("{} k a", F::DELETE), &int(0));
    assert_eq!(world.events(), [expired]);
    assert_eq!(world.add("k", &["b"]), int(1));
    assert_eq!(world.events(), [expired, F::ADDED]);
    world.expect(&format!("{}ttl k {} 1 b", F::LETTER, F::WORD), "*1\r\n:-1\r\n");
    // The last one that lives goes, and of the one that is dead is told before.
    world.expect(&format!("{} k b c", F::DELETE), &int(2));
    assert_eq!(world.events(), [expired, F::DELETE, "del"]);
    world.expect("exists k", &int(0));
    assert_eq!(world.give("k", 10, &["b"]), "*1\r\n:-2\r\n");
    assert!(world.events().is_empty());
}

/// What all lasts for a while is taken out in slices, and nobody sees it meanwhile: there are lines with their replies
/// about a key `k`, in which only `lives` does.
pub fn those_of_one_deadline_go_in_slices<F: Family>(elements: usize, asked: &[(&str, &str)]) {
    let mut world = World::<F>::new(0);
    for first in (0..elements).step_by(1000) {
        let names: Vec<String> = (first..first + 1000).map(|n| n.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(world.add("k", &names), int(1000));
        world.give("k", 100_000, &names);
    }
    world.add("k", &["lives"]);
    world.trial.pass_ms(100_001);
    let now = world.trial.now();
    let mut slices = 0;
    while world.trial.keyspace.next_due_hint_ms() < now.ms {
        assert!(world.trial.keyspace.sweep_earliest(0, now.ms, now, 500).deleted <= 500);
        slices += 1;
        if slices % (elements / 5_000) == 0 {
            world.expect(&format!("{} k", F::COUNT), &int(1));
            asked.iter().for_each(|(line, expected)| world.expect(line, expected));
        }
    }
    assert!(slices >= elements / 500, "{slices}");
    assert_eq!(world.trial.keyspace.counters.expired_fields, elements as u64);
    world.trial.keyspace.check();
}

/// Arguments of commands on members, and their errors: those of sets are those of sorted sets.
pub fn members_are_asked_for_alike<F: Family>() {
    let mut world = World::<F>::new(0);
    world.say("set string 1");
    world.add("k", &["a"]);
    let line = |pattern: &str| pattern.replace('?', F::LETTER);
    for (pattern, expected) in [
        ("?expire string x members 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("?expire k x members 1 a", "ERR value is not an integer or out of range"),
        ("?expire k -1 members 1 a", "ERR invalid expire time, must be >= 0"),
        ("?expire k 9223372036854775807 members 1 a", "ERR invalid expire time in '?expire' command"),
        ("?pexpireat k 70368744177664 members 1 a", "ERR invalid expire time in '?pexpireat' command"),
        ("?expire k 1 members 0 a", "ERR Parameter `numMembers` should be greater than 0"),
        ("?expire k 1 members 9223372036854775807 a", "ERR Parameter `numMembers` should be greater than 0"),
        ("?expire k 1 members 2 a", "ERR wrong number of arguments"),
        ("?expire k 1 members 1 a b", "ERR unknown argument: b"),
        ("?expire k 1 nx lt members 1 a", "ERR Multiple condition flags specified"),
        ("?expire k 1 nx xx gt lt", "ERR missing MEMBERS argument"),
        ("?expire k 1 members 1 a members 1 a", "ERR MEMBERS keyword specified multiple times"),
        ("?expire k 1 nx lt members", "ERR MEMBERS requires at least nummembers and one member argument"),
        ("?ttl string members 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("?ttl k 1 a members", "ERR Mandatory argument MEMBERS is missing or not at the right position"),
        ("?ttl k members 0 a", "ERR Number of members must be a positive integer"),
        ("?ttl k members 2 a", "ERR The `nummembers` parameter must match the number of arguments"),
        ("?persist k members 1 a b", "ERR The `nummembers` parameter must match the number of arguments"),
        // A member that is named several times.
        ("?expire k 100 members 2 a a nx", "*2\r\n:1\r\n:0\r\n"),
        ("?ttl k members 2 a b", "*2\r\n:100\r\n:-2\r\n"),
        ("?persist k members 2 a a", "*2\r\n:1\r\n:-1\r\n"),
        ("?pexpireat k 1 members 2 a a", "*2\r\n:2\r\n:-2\r\n"),
        ("exists k", ":0\r\n"),
    ] {
        world.expect(&line(pattern), &line(expected));
    }
}
