//! Sets of all forms against ordered sets.

use crate::command::trial::Trial;
use crate::config::{Limits, PackLimits};
use std::collections::{BTreeMap, BTreeSet};

type Set = BTreeSet<String>;
type Model = BTreeMap<&'static str, Set>;

const KEYS: [&str; 3] = ["a", "b", "c"];

fn limits(seed: u64) -> Limits {
    let [ints, entries, value_bytes] = [[512, 128, 64], [5, 8, 3], [30, 4, 10], [0, 0, 0]][seed as usize % 4];
    Limits {
        intset_entries: ints,
        set: PackLimits { entries, value_bytes },
        string_bytes: 1 << 20,
        ..Limits::default()
    }
}

fn random_member(rng: &mut fastrand::Rng, range: u16) -> String {
    match rng.u8(..6) {
        0 => format!("m{}", rng.u16(..range)),
        1 => format!("0{}", rng.u16(..range)),
        _ => rng.u16(..range).to_string(),
    }
}

/// The bulk strings of a reply.
fn members(reply: &str) -> Vec<String> {
    let mut lines = reply.split("\r\n");
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with('$') && line != "$-1" {
            found.push(lines.next().unwrap_or_default().to_owned());
        }
    }
    found
}

/// The members of a reply, each of which must be there once.
fn distinct(reply: &str) -> Set {
    let found = members(reply);
    let set = Set::from_iter(found.iter().cloned());
    assert_eq!(set.len(), found.len(), "{reply}");
    set
}

fn step(trial: &mut Trial, model: &mut Model, rng: &mut fastrand::Rng, range: u16) {
    let [key, other, third] = [0; 3].map(|_| KEYS[rng.usize(..3)]);
    let list: Vec<String> = (0..rng.usize(1..6)).map(|_| random_member(rng, range)).collect();
    let set = |model: &Model, key| model.get(key).cloned().unwrap_or_default();
    let (old, line) = (set(model, key), list.join(" "));
    let mut new = old.clone();
    match rng.u8(..12) {
        0..5 => {
            new.extend(list);
            assert_eq!(trial.say(&format!("sadd {key} {line}")), format!(":{}\r\n", new.len() - old.len()));
        }
        5 => {
            new.retain(|member| !list.contains(member));
            assert_eq!(trial.say(&format!("srem {key} {line}")), format!(":{}\r\n", old.len() - new.len()));
        }
        6 => {
            let count = rng.usize(..4);
            let popped = distinct(&trial.say(&format!("spop {key} {count}")));
            assert_eq!(popped.len(), count.min(old.len()));
            assert!(popped.is_subset(&old));
            new = &old - &popped;
        }
        7 => {
            let count = rng.usize(..6);
            let drawn = distinct(&trial.say(&format!("srandmember {key} {count}")));
            assert!(drawn.len() == count.min(old.len()) && drawn.is_subset(&old));
            let drawn = members(&trial.say(&format!("srandmember {key} -{count}")));
            assert!(drawn.len() == if old.is_empty() { 0 } else { count });
            assert!(drawn.into_iter().all(|member| old.contains(&member)));
        }
        8 => {
            let moved = old.contains(&list[0]);
            assert_eq!(trial.say(&format!("smove {key} {other} {}", list[0])), format!(":{}\r\n", u8::from(moved)));
            if moved && key != other {
                new.remove(&list[0]);
                model.entry(other).or_default().insert(list[0].clone());
            }
        }
        9 => {
            let sets = [set(model, other), set(model, third)];
            let (name, result) = match rng.u8(..3) {
                0 => ("sinter", &sets[0] & &sets[1]),
                1 => ("sunion", &sets[0] | &sets[1]),
                _ => ("sdiff", &sets[0] - &sets[1]),
            };
            assert_eq!(distinct(&trial.say(&format!("{name} {other} {third}"))), result);
            let stored = trial.say(&format!("{name}store {key} {other} {third}"));
            assert_eq!(stored, format!(":{}\r\n", result.len()));
            new = result;
        }
        10 => {
            let found: String = list.iter().map(|member| format!(":{}\r\n", u8::from(old.contains(member)))).collect();
            assert_eq!(trial.say(&format!("smismember {key} {line}")), format!("*{}\r\n{found}", list.len()));
        }
        _ => {
            let other_set = set(model, other);
            let limit = rng.usize(1..5);
            for (name, count) in [
                ("sintercard", (&old & &other_set).len()),
                ("sunioncard", (&old | &other_set).len()),
                ("sdiffcard", (&old - &other_set).len()),
            ] {
                assert_eq!(trial.say(&format!("{name} 2 {key} {other}")), format!(":{count}\r\n"));
                assert_eq!(trial.say(&format!("{name} 2 {key} {other} limit 0")), format!(":{count}\r\n"));
                let reply = trial.say(&format!("{name} 2 {key} {other} limit {limit}"));
                assert_eq!(reply, format!(":{}\r\n", count.min(limit)));
            }
        }
    }
    model.insert(key, new);
    model.retain(|_, set| !set.is_empty());
}

#[test]
fn commands_do_what_they_do_to_ordered_sets() {
    for seed in 0..80 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut trial = Trial::new(seed, limits(seed));
        let mut model = Model::new();
        let range = [10, 40, 600][seed as usize % 3];
        for _ in 0..500 {
            step(&mut trial, &mut model, &mut rng, range);
            for key in KEYS {
                let set = model.get(key).cloned().unwrap_or_default();
                assert_eq!(distinct(&trial.say(&format!("smembers {key}"))), set);
                assert_eq!(trial.say(&format!("exists {key}")), format!(":{}\r\n", u8::from(!set.is_empty())));
            }
            trial.keyspace.check();
        }
    }
}

/// Members that stay are shown by a walk, whatever comes and goes meanwhile.
#[test]
fn a_walk_shows_what_stays() {
    for seed in 0..10 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut trial = Trial::new(seed, limits(0));
        let stay: Set = (0..[50, 3000][seed as usize % 2]).map(|n| format!("stay:{n}")).collect();
        stay.iter().for_each(|member| drop(trial.say(&format!("sadd a {member}"))));
        let (mut shown, mut cursor) = (Set::new(), "0".to_owned());
        loop {
            let reply = trial.say(&format!("sscan a {cursor} match stay:* count {}", rng.usize(1..50)));
            let mut page = members(&reply).into_iter();
            cursor = page.next().expect("a cursor");
            shown.extend(page);
            if cursor == "0" {
                break;
            }
            let grows = rng.bool();
            for n in 0..rng.usize(..800) {
                trial.say(&format!("{} a go:{n}", if grows { "sadd" } else { "srem" }));
            }
        }
        assert_eq!(shown, stay);
        assert_eq!(trial.say("sscan a 0 count 0"), "ERR syntax error");
        assert_eq!(trial.say("sscan a 0 type set"), "ERR syntax error");
        assert_eq!(trial.say("sscan none 0 type set"), "*2\r\n$1\r\n0\r\n*0\r\n");
    }
}

#[test]
fn no_reply_is_as_long_as_a_number_says() {
    let mut trial = Trial::new(1, limits(0));
    trial.say("sadd a 1");
    let refused = trial.say(&format!("srandmember a -{}", i64::MAX));
    assert!(refused.starts_with("ERR value is out of range"), "{refused}");
    assert_eq!(trial.say("srandmember a -2"), "*2\r\n$1\r\n1\r\n$1\r\n1\r\n");
    assert!(trial.say(&format!("srandmember a {}", i64::MAX)).starts_with("*1\r\n"));
}
