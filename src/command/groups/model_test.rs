//! Groups against a model, on one shard with a clock that stands still until it is moved.

use super::ROWS;
use crate::command::syntax;
use crate::command::trial::Trial;
use crate::config::Limits;
use crate::keyspace::Due;
use std::collections::{BTreeMap, BTreeSet};

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
    has_stream: bool,
}

#[derive(Default)]
struct Model {
    now_ms: u64,
    keys: BTreeMap<u64, Key>,
    groups: BTreeMap<u64, Group>,
    /// Groups that have died, with the number of their members, and that nobody was told of.
    deaths: Vec<(String, u64)>,
    /// Groups that were killed since the database was empty, and that a stream was told of.
    killed: i64,
}

impl Model {
    fn deadline_ms(&self, key: &Key) -> Option<u64> {
        let of_groups = key.groups.iter().filter_map(|group| Some(self.groups.get(group)?.span?.0));
        of_groups.chain(key.own_ms).min()
    }

    /// What has died by now is gone: keys, then groups, and those without a deadline that nobody is in.
    fn pass(&mut self) {
        for (name, group) in &self.groups {
            let Some((at_ms, ..)) = group.span.filter(|(at_ms, ..)| group.has_stream && *at_ms < self.now_ms) else {
                continue;
            };
            let dies = |key: &&Key| key.groups.contains(name) && self.deadline_ms(key) == Some(at_ms);
            self.deaths.push((format!("g{name}"), self.keys.values().filter(dies).count() as u64));
        }
        let dead = |key: &Key| self.deadline_ms(key).is_some_and(|at_ms| at_ms < self.now_ms);
        let dead: Vec<u64> = self.keys.iter().filter(|(_, key)| dead(key)).map(|(name, _)| *name).collect();
        dead.iter().for_each(|name| drop(self.keys.remove(name)));
        let now_ms = self.now_ms;
        let keys = &self.keys;
        self.groups.retain(|name, group| match group.span {
            Some((at_ms, ..)) => at_ms >= now_ms,
            None => keys.values().any(|key| key.groups.contains(name)),
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

fn run(seed: u64, steps: usize) {
    let mut trial = Trial::new(seed, Limits { string_bytes: 1 << 20, ..Limits::default() });
    let (mut model, mut rng) = (Model { now_ms: trial.now().ms, ..Model::default() }, fastrand::Rng::with_seed(seed));
    for step in 0..steps {
        let (key, group) = (rng.u64(..KEYS), rng.u64(..GROUPS));
        let at = format!("seed {seed}, step {step}");
        let now_ms = model.now_ms;
        // Of a group that has no deadline is known that it has no members when the dead ones are found.
        if model.groups.values().any(|group| group.has_stream && group.span.is_none()) || rng.bool() {
            tell(&mut trial, &mut model, &at);
            trial.sweep(100);
            forget_emptied(&mut trial);
        }
        let (said, expected) = match rng.u32(..112) {
            100..105 => {
                let stream = *rng.choice(["", " deaths", " deaths maxlen 5"].iter()).expect("one");
                if let Some(group) = model.groups.get_mut(&group) {
                    group.has_stream = !stream.is_empty();
                }
                (format!("expiry group events g{group}{stream}"), int(model.members(group).len() as i64))
            }
            105..109 => {
                let members = model.members(group).len();
                let found = model.groups.get_mut(&group);
                let had = found.and_then(|group| group.span.take()).is_some();
                (format!("expiry group persist g{group}"), int(if had { members as i64 } else { 0 }))
            }
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
                let has = model.keys.get(&key).and_then(|found| model.deadline_ms(found)).is_some();
                if let Some(found) = model.keys.get_mut(&key).filter(|_| has) {
                    found.own_ms = None;
                }
                (format!("persist k{key}"), int(has as i64))
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
                let killed = model.groups.remove(&group);
                model.killed += i64::from(killed.is_some_and(|group| group.has_stream));
                (format!("expiry group kill g{group}"), int(members.len() as i64))
            }
            74..84 => {
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
                continue;
            }
            98 if step % 7 == 0 => {
                model.keys.clear();
                model.groups.clear();
                model.deaths.clear();
                model.killed = 0;
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
        let told = trial.say("xlen deaths");
        // (It is bounded where that was said last.)
        assert!(told == int(model.killed) || model.killed > 5 && told == int(5), "{at}: {told} of {}", model.killed);
        if step % 50 == 0 {
            while trial.keyspace.collect_garbage(100) {}
            trial.keyspace.check();
        }
    }
    trial.pass_ms(1_000_000);
    model.now_ms += 1_000_000;
    model.pass();
    tell(&mut trial, &mut model, "the end");
    trial.sweep(100);
    trial.keyspace.check();
}

/// The deaths of groups are written, as the shard's task does.
fn tell(trial: &mut Trial, model: &mut Model, at: &str) {
    let now = trial.now();
    let due = trial.keyspace.due_group_deaths(usize::MAX, now, |_| true);
    let told = due.into_iter().map(|Due { db, name, epoch }| {
        let counted = trial.keyspace.tell_group_death(db, &name, epoch).expect("it has died");
        (String::from_utf8(name.to_vec()).unwrap(), counted.members)
    });
    let (mut told, mut expected) = (told.collect::<Vec<_>>(), std::mem::take(&mut model.deaths));
    told.sort();
    expected.sort();
    assert_eq!(told, expected, "{at}");
    assert!(trial.keyspace.held_from_ms() >= now.ms);
}

fn forget_emptied(trial: &mut Trial) {
    for (db, name) in trial.keyspace.take_emptied_groups(usize::MAX) {
        if trial.keyspace.is_empty_group(db, &name) {
            trial.keyspace.forget_group(db, &name);
        }
    }
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

/// What has died with a group is counted with it, whoever writes to it before that; and what died before it is not.
#[test]
fn all_members_are_counted_that_die_with_a_group() {
    for journaled in [false, true] {
        let mut trial = Trial::new(1, Limits { string_bytes: 1 << 20, ..Limits::default() });
        trial.keyspace.effects.set_journaled(journaled);
        trial.say("mset a v b v c v d v");
        trial.say("set e v px 50");
        assert_eq!(trial.say("expiry group add g a b c d e"), ":5\r\n");
        assert_eq!(trial.say("expiry group expire g 100"), ":5\r\n");
        assert_eq!(trial.say("expiry group events g deaths"), ":5\r\n");
        trial.say("del d");
        trial.pass_ms(101);
        trial.keyspace.buries = true;
        trial.say("set a w");
        trial.say("append b w");
        trial.keyspace.buries = false;
        assert_eq!(trial.say("get c"), "$-1\r\n");
        trial.sweep(100);
        assert_eq!(trial.keyspace.len(0), 3, "what died with it waits");
        let now = trial.now();
        let due = trial.keyspace.due_group_deaths(9, now, |_| true);
        assert_eq!((due.len(), due[0].name.as_ref()), (1, &b"g"[..]));
        trial.say("expiry group add g a");
        let counted = trial.keyspace.tell_group_death(0, &due[0].name, due[0].epoch).expect("it has died");
        assert_eq!((counted.members, counted.to.key.as_ref()), (3, &b"deaths"[..]));
        assert_eq!(trial.keyspace.tell_group_death(0, &due[0].name, due[0].epoch), None, "once");
        trial.sweep(100);
        assert_eq!((trial.say("dbsize"), trial.say("expiry group members g")), (":2\r\n".into(), "$1\r\na\r\n".into()));
        let said = trial.keyspace.effects.said.take();
        let left = said.iter().filter(|command| memchr::memmem::find(&command.bytes, b"LEFT").is_some()).count();
        assert_eq!(left, if journaled { 2 } else { 0 });
        trial.keyspace.check();
    }
}

/// A snapshot of the moment between the death of a group and its entry says how many members it had.
#[test]
fn a_snapshot_has_what_was_counted() {
    let mut trial = Trial::new(1, Limits { string_bytes: 1 << 20, ..Limits::default() });
    trial.say("mset a v b v");
    trial.say("expiry group add g a b");
    trial.say("expiry group expire g 100");
    trial.say("expiry group events g deaths maxlen 7");
    let mut notes = Vec::new();
    trial.keyspace.each_dead_group(trial.now(), |_, name, epoch, counted| notes.push((name.to_vec(), epoch, counted)));
    assert!(notes.is_empty());
    trial.pass_ms(101);
    trial.keyspace.each_dead_group(trial.now(), |_, name, epoch, counted| notes.push((name.to_vec(), epoch, counted)));
    assert_eq!((notes.len(), notes[0].2.members), (1, 2));
    let mut again = Trial::new(2, Limits { string_bytes: 1 << 20, ..Limits::default() });
    again.say("set other v");
    again.say("expiry group add g other");
    for _ in 0..2 {
        let (epoch, said) = (notes[0].1, format!("expiry group left g g {} 2 1 deaths 7", notes[0].1));
        assert_eq!(again.say(&said), "+OK\r\n");
        assert_eq!(again.say(&format!("expiry group left k g {epoch} 1")), "+OK\r\n", "all are counted");
    }
    assert_eq!(again.say("expiry group members g"), "$5\r\nother\r\n", "the one of its name lives");
    again.pass_ms(101);
    let now = again.now();
    let due = again.keyspace.due_group_deaths(9, now, |_| true);
    let counted = again.keyspace.tell_group_death(0, &due[0].name, due[0].epoch).expect("it has died");
    assert_eq!((due.len(), counted.members, counted.to.max_len), (1, 4, Some(7)), "each shard says what it knows");
    again.keyspace.check();
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
