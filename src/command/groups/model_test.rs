//! Groups against a model, on one shard with a clock that stands still until it is moved.

use super::ROWS;
use crate::command::syntax;
use crate::command::trial::Trial;
use crate::config::Limits;
use crate::keyspace::snapshot::{Fill, Frame, Keeper, Kept, Saved};
use crate::keyspace::{GroupName, Membership, Span};
use crate::value::Portion;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const KEYS: u64 = 24;
const GROUPS: u64 = 6;

#[derive(Clone, Default)]
struct Key {
    own_ms: Option<u64>,
    groups: BTreeSet<u64>,
}

#[derive(Clone, Copy, Default)]
struct Group {
    /// The deadline, the life, and whether it slides.
    span: Option<(u64, u64, bool)>,
    /// Its death is written.
    is_told: bool,
}

/// A death of a group: which, whether it was killed, when, and how many members it had.
type Death = (u64, bool, u64, u64);

#[derive(Default)]
struct Model {
    now_ms: u64,
    keys: BTreeMap<u64, Key>,
    groups: BTreeMap<u64, Group>,
    /// Deaths that are not written.
    owed: Vec<Death>,
}

impl Model {
    fn deadline_ms(&self, key: &Key) -> Option<u64> {
        let of_groups = key.groups.iter().filter_map(|group| Some(self.groups.get(group)?.span?.0));
        of_groups.chain(key.own_ms).min()
    }

    /// What has died by now is gone: keys, then groups, and those without a deadline that nobody is in.
    fn pass(&mut self) {
        let dead = |key: &Key| self.deadline_ms(key).is_some_and(|at_ms| at_ms < self.now_ms);
        let dead: Vec<u64> = self.keys.iter().filter(|(_, key)| dead(key)).map(|(name, _)| *name).collect();
        let now_ms = self.now_ms;
        for (name, group) in self.groups.iter().filter(|(_, group)| group.is_told) {
            let Some((at_ms, ..)) = group.span.filter(|(at_ms, ..)| *at_ms < now_ms) else { continue };
            let dies_by_it = |key: &&Key| key.groups.contains(name) && self.deadline_ms(key) == Some(at_ms);
            self.owed.push((*name, false, at_ms, self.keys.values().filter(dies_by_it).count() as u64));
        }
        dead.iter().for_each(|name| drop(self.keys.remove(name)));
        let keys = &self.keys;
        self.groups.retain(|name, group| match group.span {
            Some((at_ms, ..)) => at_ms >= now_ms,
            None => group.is_told || keys.values().any(|key| key.groups.contains(name)),
        });
    }

    /// (One that is that of its groups is not told from theirs.)
    fn set_own(&mut self, name: u64, at_ms: u64) {
        let mut key = self.keys.get(&name).cloned().unwrap_or_default();
        if self.deadline_ms(&key) != Some(at_ms) {
            key.own_ms = Some(at_ms);
        }
        self.keys.insert(name, key);
    }

    fn members(&self, group: u64) -> Vec<u64> {
        self.keys.iter().filter(|(_, key)| key.groups.contains(&group)).map(|(name, _)| *name).collect()
    }

    fn date(&mut self, group: u64, span: (u64, u64, bool)) -> usize {
        self.groups.entry(group).or_default().span = Some(span);
        self.members(group).len()
    }

    fn renew(&mut self, group: u64, only_due: bool) -> usize {
        let Some((at_ms, life_ms, is_sliding)) = self.groups.get(&group).and_then(|group| group.span) else { return 0 };
        let later_ms = self.now_ms + life_ms;
        if only_due && !(is_sliding && later_ms - at_ms > life_ms / 20) {
            return 0;
        }
        self.date(group, (later_ms, life_ms, is_sliding))
    }
}

fn int(n: impl TryInto<i64>) -> String {
    format!(":{}\r\n", n.try_into().ok().expect("small"))
}

/// The items of a reply, in order.
fn items(reply: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = reply.split("\r\n").collect();
    lines
        .iter()
        .filter(|line| !line.is_empty() && !line.starts_with(['$', '*']))
        .map(|line| (*line).to_owned())
        .collect()
}

/// The shard renews what was used, as its task does.
fn renew(trial: &mut Trial, model: &mut Model) {
    for (_, name) in trial.keyspace.take_renewals(usize::MAX) {
        let group: u64 = std::str::from_utf8(&name).unwrap()[1..].parse().unwrap();
        let now = trial.now();
        let renewed = trial.keyspace.renew_group(0, &name, true, now).is_some();
        let before = model.groups.get(&group).and_then(|group| group.span);
        model.renew(group, true);
        assert_eq!(renewed, model.groups.get(&group).and_then(|group| group.span) != before, "{group}");
    }
}

/// The shard writes the deaths that are due, as its task does.
fn tell(trial: &mut Trial, model: &mut Model, at: &str) {
    let now = trial.now();
    let mut told: Vec<Death> = Vec::new();
    for owed in trial.keyspace.owed_deaths(usize::MAX, now) {
        let (span, members) = trial.keyspace.settle_death(owed.db, &owed.name, owed.epoch).expect("it is there");
        let group = std::str::from_utf8(&owed.name).unwrap()[1..].parse().unwrap();
        told.push((group, span.is_killed, span.deadline_ms.unwrap(), members));
        assert!(trial.keyspace.settle_death(owed.db, &owed.name, owed.epoch).is_none(), "{at}: once");
    }
    let (mut due, later): (Vec<Death>, Vec<Death>) = model.owed.drain(..).partition(|death| death.2 < now.ms);
    model.owed = later;
    told.sort_unstable();
    due.sort_unstable();
    assert_eq!(told, due, "{at}");
}

/// What a snapshot says of groups and of members.
#[derive(Clone, Debug, Default, PartialEq)]
struct Said {
    /// Of each name, the groups that have or had it, in order.
    groups: BTreeMap<Vec<u8>, Vec<Span>>,
    /// With the deadline that each has in the table.
    members: BTreeMap<Vec<u8>, (Membership, Option<u64>)>,
}

impl Said {
    /// Whoever reads a member's groups, and how they live, finds the deadline that the member had.
    fn check(&self, at: &str) {
        for (key, (said, deadline_ms)) in &self.members {
            let deadline_of = |(name, epoch): &(GroupName, u64)| {
                let spans = self.groups.get(&name[..])?;
                spans.iter().find(|span| span.epoch == *epoch)?.deadline_ms
            };
            let found_ms = said.groups.iter().filter_map(deadline_of).chain(said.own_ms).min();
            assert_eq!(found_ms, *deadline_ms, "{at}: {}: {said:?}", key.escape_ascii());
        }
    }
}

struct Recorder(Rc<RefCell<Said>>);

impl Recorder {
    fn member(&self, kept: &Kept) {
        let Some(mut said) = kept.membership.clone() else { return };
        said.groups.sort_unstable();
        let twice = self.0.borrow_mut().members.insert(kept.key.into(), (said, kept.deadline_ms));
        assert!(twice.is_none());
    }
}

impl Keeper for Recorder {
    fn group(&mut self, _: usize, name: &[u8], span: &Span) {
        let said = &mut *self.0.borrow_mut();
        let is_in_another = |(member, _): &(Membership, _)| {
            member.groups.iter().any(|(of, epoch)| **of == *name && *epoch != span.epoch)
        };
        assert!(!said.members.values().any(is_in_another), "who reads that in order takes its members for this one's");
        said.groups.entry(name.into()).or_default().push(span.clone());
    }

    fn key(&mut self, _: usize, kept: Kept) {
        self.member(&kept);
    }

    fn parts_strings(&self) -> bool {
        false
    }

    fn frame(&self, _: usize, kept: &Kept) -> Frame {
        self.member(kept);
        Frame::default()
    }

    fn encode(&self, _: &Frame, _: Portion, _: &mut Vec<u8>) {}

    fn part(&mut self, _: usize, _: &Frame, fill: &mut Fill) -> bool {
        fill(&mut |_| ())
    }
}

/// A snapshot that is made a step at a time, and what it has to say in the end.
struct Making {
    said: Rc<RefCell<Said>>,
    expected: Said,
}

impl Making {
    fn begin(trial: &mut Trial, at: &str) -> Making {
        let begin = |trial: &mut Trial| {
            let said: Rc<RefCell<Said>> = Rc::default();
            let now = trial.now();
            trial.keyspace.begin_saving(now, now, Box::new(Recorder(said.clone())));
            said
        };
        let at_once = begin(trial);
        while trial.keyspace.save_some(|| true) == Saved::Some {}
        let expected = at_once.borrow().clone();
        expected.check(at);
        Making { said: begin(trial), expected }
    }

    /// Whether it goes on.
    fn step(&self, trial: &mut Trial, at: &str) -> bool {
        let saved = trial.keyspace.save_some(|| false);
        if saved == Saved::All {
            assert_eq!(*self.said.borrow(), self.expected, "{at}");
        }
        saved == Saved::Some
    }
}

fn run(seed: u64, steps: usize) {
    let mut trial = Trial::new(seed, Limits { string_bytes: 1 << 20, ..Limits::default() });
    let mut making: Option<Making> = None;
    let (mut model, mut rng) = (Model { now_ms: trial.now().ms, ..Model::default() }, fastrand::Rng::with_seed(seed));
    for step in 0..steps {
        let (key, group) = (rng.u64(..KEYS), rng.u64(..GROUPS));
        let at = format!("seed {seed}, step {step}");
        let now_ms = model.now_ms;
        making = match making.take() {
            None if step % 40 == 0 => Some(Making::begin(&mut trial, &at)),
            None => None,
            Some(making) => making.step(&mut trial, &at).then_some(making),
        };
        let (said, expected) = match rng.u32(..100) {
            0..15 => {
                let found = model.keys.entry(key).or_default();
                found.own_ms = None;
                (format!("set k{key} v"), "+OK\r\n".to_owned())
            }
            15..22 => {
                let ttl_ms = rng.u64(1..3_000);
                model.set_own(key, now_ms + ttl_ms);
                (format!("set k{key} v px {ttl_ms}"), "+OK\r\n".to_owned())
            }
            22..28 => {
                let ttl_ms = rng.u64(1..3_000);
                let is_there = model.keys.contains_key(&key);
                if is_there {
                    model.set_own(key, now_ms + ttl_ms);
                }
                (format!("pexpire k{key} {ttl_ms}"), int(is_there as i64))
            }
            28..31 => {
                let own_ms = model.keys.get_mut(&key).and_then(|found| found.own_ms.take());
                (format!("persist k{key}"), int(own_ms.is_some() as i64))
            }
            31..36 => (format!("del k{key}"), int(model.keys.remove(&key).is_some() as i64)),
            36..40 => {
                let to = rng.u64(..KEYS);
                let Some(found) = model.keys.get(&key).cloned() else { continue };
                if to != key {
                    // It goes with the deadline that it has, and into no group.
                    let own_ms = model.deadline_ms(&found);
                    model.keys.remove(&key);
                    model.keys.insert(to, Key { own_ms, groups: BTreeSet::new() });
                }
                (format!("rename k{key} k{to}"), "+OK\r\n".to_owned())
            }
            40..58 => {
                let keys: Vec<u64> = (0..rng.usize(1..6)).map(|_| rng.u64(..KEYS)).collect();
                let mut added = 0;
                for key in &keys {
                    let joined = model.keys.get_mut(key).is_some_and(|key| key.groups.insert(group));
                    added += i64::from(joined);
                }
                if added > 0 {
                    model.groups.entry(group).or_default();
                }
                let keys: Vec<String> = keys.iter().map(|key| format!("k{key}")).collect();
                (format!("expiry group add g{group} {}", keys.join(" ")), int(added))
            }
            58..63 => {
                let removed = model.keys.get_mut(&key).is_some_and(|key| key.groups.remove(&group));
                (format!("expiry group rem g{group} k{key} k{key}"), int(removed as i64))
            }
            63..69 => {
                let (life_ms, is_sliding) = (rng.u64(1..4_000), rng.bool());
                let members = model.date(group, (now_ms + life_ms, life_ms, is_sliding));
                let sliding = if is_sliding { " sliding" } else { "" };
                (format!("expiry group expire g{group} {life_ms}{sliding}"), int(members as i64))
            }
            69..72 => (format!("expiry group touch g{group}"), int(model.renew(group, false) as i64)),
            72..74 => {
                let members = model.members(group);
                members.iter().for_each(|key| drop(model.keys.remove(key)));
                if model.groups.remove(&group).is_some_and(|group| group.is_told) {
                    model.owed.push((group, true, now_ms, members.len() as u64));
                }
                (format!("expiry group kill g{group}"), int(members.len() as i64))
            }
            74 => {
                let before = model.groups.get_mut(&group).and_then(|group| group.span.take());
                (format!("expiry group persist g{group}"), int(before.is_some() as i64))
            }
            75..78 => {
                model.groups.entry(group).or_default().is_told = true;
                (format!("expiry group events g{group} stream"), "+OK\r\n".to_owned())
            }
            78 => {
                model.groups.entry(group).or_default().is_told = false;
                (format!("expiry group events g{group} NONE"), "+OK\r\n".to_owned())
            }
            79..84 => {
                let expected = if model.keys.contains_key(&key) { "$1\r\nv\r\n" } else { "$-1\r\n" };
                (format!("get k{key}"), expected.to_owned())
            }
            84..98 => {
                let ms = rng.u64(..400);
                trial.pass_ms(ms);
                model.now_ms += ms;
                model.pass();
                if rng.bool() {
                    trial.sweep(3);
                }
                if rng.bool() {
                    tell(&mut trial, &mut model, &at);
                }
                continue;
            }
            98 if step % 7 == 0 => {
                model.keys.clear();
                model.groups.clear();
                model.owed.clear();
                (("flushdb").to_owned(), "+OK\r\n".to_owned())
            }
            _ => continue,
        };
        assert_eq!(trial.say(&said), expected, "{at}: {said}");
        model.pass();
        renew(&mut trial, &mut model);
        let found = model.keys.get(&key);
        let left = found.map_or(-2, |key| model.deadline_ms(key).map_or(-1, |at_ms| (at_ms - model.now_ms) as i64));
        assert_eq!(trial.say(&format!("pttl k{key}")), int(left), "{at}: {said}: k{key}");
        let of_key = found.iter().flat_map(|key| &key.groups).map(|group| format!("g{group}")).collect();
        assert_eq!(items(&trial.say(&format!("expiry group of k{key}"))), of_key, "{at}: {said}");
        let members: BTreeSet<String> = model.members(group).iter().map(|key| format!("k{key}")).collect();
        assert_eq!(items(&trial.say(&format!("expiry group members g{group}"))), members, "{at}: {said}");
        let now = trial.now();
        let names: BTreeSet<Vec<u8>> = trial.keyspace.group_names(0, now).iter().map(|name| name.to_vec()).collect();
        let expected: BTreeSet<Vec<u8>> = model.groups.keys().map(|group| format!("g{group}").into_bytes()).collect();
        assert_eq!(names, expected, "{at}: {said}");
        if step % 50 == 0 {
            trial.keyspace.check();
        }
    }
    trial.pass_ms(1_000_000);
    model.now_ms += 1_000_000;
    model.pass();
    trial.sweep(100);
    tell(&mut trial, &mut model, &format!("seed {seed}, at the end"));
    trial.keyspace.check();
}

#[test]
fn a_model_knows_the_same() {
    (0..if cfg!(miri) { 1 } else { 8 }).for_each(|seed| run(seed, if cfg!(miri) { 300 } else { 10_000 }));
}

#[test]
fn rows_keep_the_notation() {
    for row in ROWS {
        let arguments = syntax::parse(row.spec.syntax);
        assert!(arguments.is_ok(), "{}: {:?}", row.spec.name, arguments.err());
        assert!(row.spec.summary.ends_with('.') && !row.spec.complexity.is_empty() && row.is_two_words);
    }
    assert!(ROWS.is_sorted_by(|a, b| a.spec.name < b.spec.name));
}

#[test]
fn nothing_is_left_of_groups_that_are_over() {
    let mut trial = Trial::new(1, Limits { string_bytes: 1 << 20, ..Limits::default() });
    for round in 0..100 {
        trial.say(&format!("set k{round} v"));
        assert_eq!(trial.say(&format!("expiry group add g{round} k{round}")), ":1\r\n");
        assert_eq!(trial.say(&format!("expiry group expire g{round} 10")), ":1\r\n");
        assert_eq!(trial.say(&format!("expiry group expire empty{round} 10")), ":0\r\n");
    }
    trial.pass_ms(11);
    trial.sweep(100);
    trial.say("set k v");
    trial.say("expiry group add g k");
    trial.say("del k");
    assert_eq!(trial.say("expiry group members g"), "");
    let now = trial.now();
    trial.keyspace.end_groups(0, now);
    assert!(trial.keyspace.group_names(0, now).is_empty());
    trial.keyspace.check();
}

#[test]
fn a_key_is_in_no_more_groups_than_it_may_be() {
    let mut trial = Trial::new(1, Limits { string_bytes: 1 << 20, ..Limits::default() });
    trial.say("mset k v j v");
    for group in 0..64 {
        assert_eq!(trial.say(&format!("expiry group add g{group} k k k")), ":1\r\n");
    }
    assert_eq!(trial.say("expiry group add g0 k j"), ":1\r\n", "it is in that one");
    assert_eq!(trial.say("expiry group add more j k"), "ERR a key is in no more than 64 groups");
    assert_eq!(trial.say("expiry group members more"), "", "nobody has joined");
    trial.say("expiry group rem g0 k");
    assert_eq!(trial.say("expiry group add more j k"), ":2\r\n");
    trial.keyspace.check();
}

/// What overwrites a value keeps its key in its groups; what takes the key away, or puts another one there, does not.
#[test]
fn a_member_stays_while_its_key_does() {
    for (commands, stays) in [
        ("set k w", true),
        ("set k w px 100", true),
        ("getset k w", true),
        ("append k w", true),
        ("mset k w", true),
        ("rename k j; set k w", false),
        ("rename other k", false),
        ("copy other k replace", false),
        ("copy k j", true),
        ("del k; set k w", false),
        ("getdel k; set k w", false),
        ("unlink k; set k w", false),
        ("pexpire k -1; set k w", false),
        ("sunionstore k none; set k w", false),
    ] {
        let mut trial = Trial::new(1, Limits { string_bytes: 1 << 20, ..Limits::default() });
        trial.say("mset k v other v");
        trial.say("expiry group add g k");
        commands.split("; ").for_each(|command| drop(trial.say(command)));
        let members = items(&trial.say("expiry group members g"));
        assert_eq!(members.contains("k"), stays, "{commands}");
        assert_eq!(items(&trial.say("expiry group of j")), BTreeSet::new(), "{commands}");
        trial.keyspace.check();
    }
}

/// A collection whose elements die goes with the last of them.
#[test]
fn what_dies_by_its_elements_leaves() {
    for sweeps in [false, true] {
        let mut trial = Trial::new(1, Limits { string_bytes: 1 << 20, ..Limits::default() });
        trial.say("hset h f v");
        trial.say("hpexpire h 10 fields 1 f");
        trial.say("expiry group add g h");
        trial.pass_ms(11);
        if sweeps {
            trial.sweep(100);
        } else {
            assert_eq!(trial.say("hget h f"), "$-1\r\n");
            assert_eq!(trial.say("exists h"), ":0\r\n");
        }
        trial.keyspace.check();
        assert!(!sweeps || trial.keyspace.membership(0, b"h").is_none());
    }
}

#[test]
fn reading_and_writing_are_uses() {
    for (command, uses) in [("get k", true), ("set k w", true), ("append k w", true), ("ttl k", false)] {
        let mut trial = Trial::new(1, Limits { string_bytes: 1 << 20, ..Limits::default() });
        trial.say("set k v");
        trial.say("expiry group add g k");
        trial.say("expiry group expire g 1000 sliding");
        trial.say(command);
        assert!(!trial.keyspace.wants_renewals(), "{command}: it has only begun");
        trial.pass_ms(500);
        trial.say(command);
        assert_eq!(trial.keyspace.wants_renewals(), uses, "{command}");
    }
}

#[test]
fn policies_and_groups_hold_together() {
    use crate::config::Policies;
    let mut trial = Trial::new(1, Limits { string_bytes: 1 << 20, ..Limits::default() });
    for line in ["s: 10s SLIDING", "d: 30s"] {
        let (prefix, policy, _) = Policies::parse(line.split(' ')).unwrap();
        trial.keyspace.set_policy(prefix.as_bytes(), Some(policy));
    }
    trial.say("mset s:k v d:k v");
    trial.say("expiry group add g s:k d:k");
    trial.say("expiry group expire g 12000");
    assert_eq!((trial.say("pttl s:k"), trial.say("pttl d:k")), (":10000\r\n".into(), ":12000\r\n".into()));
    trial.pass_ms(5_000);
    trial.say("get s:k");
    assert_eq!(trial.say("pttl s:k"), ":7000\r\n", "it lives on until its group dies");
    trial.say("expiry group rem g s:k d:k");
    assert_eq!((trial.say("pttl s:k"), trial.say("pttl d:k")), (":10000\r\n".into(), ":25000\r\n".into()));
    trial.keyspace.check();
}
