//! Sorted sets whose members and keys die, against a map of maps.

use crate::clock::Now;
use crate::command::elements_test::{self, Collection, Family, Step, World};
use crate::command::trial::{int, texts};
use crate::config::{Limits, NotifyFlags, PackLimits};
use crate::keyspace::Touch;
use std::collections::{BTreeMap, BTreeSet};

struct SortedSets;

type Zset = Collection<i64>;

/// Whether members are added, by the score that they have and the new one.
type Holds = fn(Option<i64>, i64) -> bool;

fn sorted(zset: &Zset) -> Vec<(i64, String)> {
    let mut items: Vec<(i64, String)> = zset.elements.iter().map(|(name, (score, _))| (*score, name.clone())).collect();
    items.sort();
    items
}

fn scores(zset: Zset) -> BTreeMap<String, i64> {
    zset.elements.into_iter().map(|(name, (score, _))| (name, score)).collect()
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

/// Those of these ranks, counted from the end where negative.
fn by_rank(items: &[(i64, String)], start: i64, stop: i64) -> &[(i64, String)] {
    let len = items.len() as i64;
    let at = |rank: i64| if rank < 0 { rank + len } else { rank };
    let (start, end) = (at(start).max(0), (at(stop) + 1).min(len));
    if start < end { &items[start as usize..end as usize] } else { &[] }
}

impl Family for SortedSets {
    /// The score.
    type Value = i64;
    const LETTER: &'static str = "z";
    const WORD: &'static str = "members";
    const ANY_ORDER: bool = true;
    const COUNT: &'static str = "zcard";
    const DELETE: &'static str = "zrem";
    const ADDED: &'static str = "zadd";
    const CLASS: NotifyFlags = NotifyFlags::ZSET;

    fn limits(seed: u64) -> Limits {
        let entries = [128, 8, 4, 0][seed as usize % 4];
        Limits { zset: PackLimits { entries, value_bytes: 10 }, ..Limits::default() }
    }

    fn plain() -> i64 {
        7
    }

    fn adding(key: &str, names: &[String]) -> String {
        let pairs: Vec<String> = names.iter().map(|name| format!("7 {name}")).collect();
        format!("zadd {key} {}", pairs.join(" "))
    }

    fn step(world: &mut World<SortedSets>, step: &Step) {
        let (key, mut zset) = (step.key, world.of(step.key));
        match world.rng.u8(..13) {
            0..7 => add(world, step, &mut zset),
            7 => {
                let (name, by) = (&step.names[0], world.rng.i64(-3..4));
                let (score, _) = zset.elements.entry(name.clone()).or_default();
                *score += by;
                world.expect(&format!("zincrby {key} {by} {name}"), &text(*score));
            }
            8 => {
                world.expect(&format!("zrem {key} {}", step.line()), &int(zset.known(&step.names) as i64));
                zset.remove(&step.names);
            }
            9 | 10 => take(world, key, &mut zset),
            11 => {
                let (start, stop) = (world.rng.i64(-6..6), world.rng.i64(-6..6));
                let source = sorted(&world.of(step.other));
                let kept = by_rank(&source, start, stop);
                world.expect(&format!("zrangestore {key} {} {start} {stop}", step.other), &int(kept.len() as i64));
                zset = Zset::of(kept.iter().map(|(score, name)| (name.clone(), *score)));
            }
            _ => zset = combine(world, step),
        }
        world.put(key, zset);
    }

    fn compare(world: &mut World<SortedSets>, key: &str, expected: &Zset) {
        world.expect(&format!("zrange {key} 0 -1 withscores"), &scored(sorted(expected).iter()));
    }

    fn compare_closely(world: &mut World<SortedSets>, key: &str, expected: &Zset) {
        compare_ranges(world, key, &sorted(expected));
        let names = expected.names();
        let drawn = BTreeSet::from_iter(texts(&world.say(&format!("zrandmember {key} 5"))));
        assert!(drawn.len() == names.len().min(5) && drawn.is_subset(&names));
        let drawn = BTreeSet::from_iter(texts(&world.say(&format!("zrandmember {key} -5"))));
        assert!(drawn.is_empty() == names.is_empty() && drawn.is_subset(&names));
        assert_eq!(BTreeSet::from_iter(texts(&world.say(&format!("sort {key} alpha")))), names);
        let by_score: Vec<String> = sorted(expected).into_iter().map(|(_, name)| name).skip(1).take(2).collect();
        assert_eq!(texts(&world.say(&format!("sort {key} by nosort limit 1 2"))), by_score);
        let a = world.of("a").names();
        world.expect(&format!("zintercard 2 a {key}"), &int((&a & &names).len() as i64));
        assert_eq!(BTreeSet::from_iter(texts(&world.say(&format!("zunion 2 a {key}")))), &a | &names);
        assert_eq!(BTreeSet::from_iter(texts(&world.say(&format!("zdiff 2 a {key}")))), &a - &names);
        let pages = world.trial.pages("zscan", key, "count 50 noscores");
        assert_eq!(BTreeSet::from_iter(pages.iter().flat_map(|page| texts(page))), names);
    }
}

/// A member that is there keeps its deadline, whatever becomes of its score.
fn add(world: &mut World<SortedSets>, step: &Step, zset: &mut Zset) {
    let (options, holds): (&str, Holds) = [
        ("", (|_, _| true) as Holds),
        ("", |_, _| true),
        ("nx ", |old, _| old.is_none()),
        ("xx ", |old, _| old.is_some()),
        ("gt ", |old, new| old.is_none_or(|old| new > old)),
        ("xx lt ", |old, new| old.is_some_and(|old| new < old)),
    ][world.rng.usize(..6)];
    let ch = world.rng.bool();
    let pairs: Vec<(i64, &String)> = step.names.iter().map(|name| (world.rng.i64(-3..9), name)).collect();
    let mut count = 0;
    for (score, name) in &pairs {
        let old = zset.elements.get(*name).map(|(old, _)| *old);
        if holds(old, *score) {
            count += i64::from(old.is_none() || ch && old != Some(*score));
            zset.elements.entry((*name).clone()).or_default().0 = *score;
        }
    }
    let pairs: Vec<String> = pairs.iter().map(|(score, name)| format!("{score} {name}")).collect();
    let line = format!("zadd {} {options}{}{}", step.key, if ch { "ch " } else { "" }, pairs.join(" "));
    world.expect(&line, &int(count));
}

/// Members are taken from the ends, or by their scores or ranks.
fn take(world: &mut World<SortedSets>, key: &str, zset: &mut Zset) {
    let (sorted, count) = (sorted(zset), world.rng.usize(1..4));
    let taken: Vec<(i64, String)> = match world.rng.u8(..5) {
        0 => {
            let taken = sorted[..count.min(sorted.len())].to_vec();
            world.expect(&format!("zpopmin {key} {count}"), &scored(taken.iter()));
            taken
        }
        1 => {
            let taken: Vec<_> = sorted.iter().rev().take(count).cloned().collect();
            world.expect(&format!("zpopmax {key} {count}"), &scored(taken.iter()));
            taken
        }
        2 => {
            let (start, stop) = (world.rng.i64(-5..5), world.rng.i64(-5..5));
            let taken = by_rank(&sorted, start, stop).to_vec();
            world.expect(&format!("zremrangebyrank {key} {start} {stop}"), &int(taken.len() as i64));
            taken
        }
        3 => {
            let (min, max) = (world.rng.i64(-3..9), world.rng.i64(-3..9));
            let taken: Vec<_> = sorted.iter().filter(|(score, _)| (min..=max).contains(score)).cloned().collect();
            world.expect(&format!("zremrangebyscore {key} {min} {max}"), &int(taken.len() as i64));
            taken
        }
        _ => {
            let taken: Vec<_> = sorted.iter().rev().take(count).cloned().collect();
            let reply = world.say(&format!("zmpop 2 none {key} max count {count}"));
            assert_eq!(texts(&reply).len(), if taken.is_empty() { 0 } else { 1 + 2 * taken.len() });
            taken
        }
    };
    zset.elements.retain(|name, _| !taken.iter().any(|(_, other)| other == name));
}

/// What is made of two others.
fn combine(world: &mut World<SortedSets>, step: &Step) -> Zset {
    let (mut result, right) = (scores(world.of(step.other)), scores(world.of(step.third)));
    let name = match world.rng.u8(..3) {
        0 => {
            result.retain(|name, _| right.contains_key(name));
            result.iter_mut().for_each(|(name, score)| *score += right[name]);
            "zinterstore"
        }
        1 => {
            right.into_iter().for_each(|(name, score)| *result.entry(name).or_default() += score);
            "zunionstore"
        }
        _ => {
            result.retain(|name, _| !right.contains_key(name));
            "zdiffstore"
        }
    };
    let line = format!("{name} {} 2 {} {}", step.key, step.other, step.third);
    world.expect(&line, &int(result.len() as i64));
    Zset::of(result)
}

/// What asks for ranks and ranges.
fn compare_ranges(world: &mut World<SortedSets>, key: &str, sorted: &[(i64, String)]) {
    let (start, stop) = (world.rng.i64(-9..9), world.rng.i64(-9..9));
    let line = format!("zrange {key} {start} {stop} withscores");
    world.expect(&line, &scored(by_rank(sorted, start, stop).iter()));
    let back: Vec<(i64, String)> = sorted.iter().rev().cloned().collect();
    let line = format!("zrevrange {key} {start} {stop} withscores");
    world.expect(&line, &scored(by_rank(&back, start, stop).iter()));
    let (min, max) = (world.rng.i64(-4..9), world.rng.i64(-4..9));
    let between = || sorted.iter().filter(|(score, _)| *score > min && *score <= max);
    world.expect(&format!("zcount {key} ({min} {max}"), &int(between().count() as i64));
    let line = format!("zrange {key} ({min} {max} byscore limit 1 3 withscores");
    world.expect(&line, &scored(between().skip(1).take(3)));
    let line = format!("zrange {key} {max} ({min} byscore rev limit 0 2 withscores");
    world.expect(&line, &scored(between().rev().take(2)));
    let Some(rank) = (!sorted.is_empty()).then(|| world.rng.usize(..sorted.len())) else { return };
    let (score, name) = &sorted[rank];
    world.expect(&format!("zrank {key} {name}"), &int(rank as i64));
    world.expect(&format!("zrevrank {key} {name}"), &int((sorted.len() - 1 - rank) as i64));
    world.expect(&format!("zmscore {key} none {name}"), &format!("*2\r\n$-1\r\n{}", text(score)));
}

#[test]
fn members_and_keys_die_when_they_should() {
    elements_test::elements_and_keys_die_when_they_should::<SortedSets>();
}

#[test]
fn a_sorted_set_without_deadlines_is_not_looked_at() {
    elements_test::what_has_no_deadlines_is_not_looked_at::<SortedSets>();
    let mut world = World::<SortedSets>::new(0);
    world.say("zadd packed 1 a 2 b");
    world.say("zexpire packed 10 members 1 a");
    assert!(!world.is_packed("packed"));
}

/// A member without a deadline takes as much in a sorted set that had one as in one that never had.
#[test]
fn only_members_with_deadlines_take_more() {
    let mut world = World::<SortedSets>::new(0);
    for n in 0..3000 {
        world.say(&format!("zadd large {n} m{n}"));
    }
    let bytes = |world: &mut World<SortedSets>| {
        let (key, now) = (world.trial.keyspace.hasher().key(b"large"), world.trial.now());
        world.trial.keyspace.find(0, key, now, Touch::NOTHING).expect("it is there").bytes()
    };
    let before = bytes(&mut world);
    world.say("zexpire large 10 members 2 m1 m2");
    assert_ne!(bytes(&mut world), before);
    world.say("zpersist large members 2 m1 m2");
    assert_eq!(bytes(&mut world), before);
}

#[test]
fn the_events_of_members() {
    elements_test::deaths_are_told::<SortedSets>();
    let mut world = World::<SortedSets>::new(0);
    world.say("zadd z 2 b 3 c 4 d");
    world.say("zpexpire z 10 members 2 b d");
    world.events();
    world.trial.pass_ms(11);
    world.expect("zadd z xx 5 b", ":0\r\n");
    assert_eq!(world.events(), ["zexpired"]);
    assert_eq!(world.say("zincrby z 7 d"), "$1\r\n7\r\n", "from nothing");
    assert_eq!(world.events(), ["zexpired", "zincr"]);
    world.expect("zpttl z members 1 d", "*1\r\n:-1\r\n");
    // The last one that lives goes, in each way.
    for line in ["zrem z c d", "zpopmin z 9", "zremrangebyrank z 0 -1", "zremrangebyscore z -inf +inf"] {
        world.say("del z");
        world.say("zadd z 2 a 3 c 4 d");
        world.say("zpexpire z 10 members 1 a");
        world.trial.pass_ms(11);
        world.events();
        world.say(line);
        assert_eq!(world.events().last(), Some(&"del"), "{line}");
        world.expect("exists z", ":0\r\n");
    }
}

#[test]
fn many_members_of_one_deadline_go_in_slices() {
    elements_test::those_of_one_deadline_go_in_slices::<SortedSets>(
        300_000,
        &[
            ("zunion 1 k", "*1\r\n$5\r\nlives\r\n"),
            ("zmscore k 5 lives", "*2\r\n$-1\r\n$1\r\n7\r\n"),
            ("zscore k 299999", "$-1\r\n"),
        ],
    );
}

/// Each of a million dead that stand among others had to be looked for by everybody who asked for a rank until the cycle
/// had come to it: seconds in which such a command took hundreds of milliseconds.
#[test]
fn who_asks_for_ranks_takes_many_dead_out() {
    let mut world = World::<SortedSets>::new(0);
    for first in (0..100_000).step_by(1000) {
        let names: Vec<String> = (first..first + 1000).map(|n| n.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        world.add("k", &names);
        world.give("k", 100_000, &names);
    }
    world.say("zadd k 6 first 8 last");
    world.trial.pass_ms(100_001);
    world.events();
    let ask = |world: &mut World<SortedSets>| {
        world.expect("zrank k last", ":1\r\n");
        world.expect("zrevrange k 0 0", "*1\r\n$4\r\nlast\r\n");
        world.expect("zrange k 7 +inf byscore", "*1\r\n$4\r\nlast\r\n");
        world.expect("zcount k -inf 7", ":1\r\n");
        world.expect("zcard k", ":2\r\n");
        assert_eq!(texts(&world.say("zrandmember k 5")).len(), 2);
        world.trial.keyspace.counters.expired_fields
    };
    // Where data stand still, or somebody who is older waits, they are passed over.
    world.trial.keyspace.still_until_us = u64::MAX;
    assert_eq!(ask(&mut world), 0);
    world.trial.keyspace.still_until_us = 0;
    let nobody_waits = std::mem::replace(&mut world.trial.keyspace.seen_from, Now::from_ms(1_000_000));
    assert_eq!(ask(&mut world), 0);
    world.trial.keyspace.seen_from = nobody_waits;
    assert!(world.events().is_empty());
    world.expect("zrank k last", ":1\r\n");
    assert_eq!(world.events(), ["zexpired"]);
    let taken = world.trial.keyspace.counters.expired_fields;
    assert!((30_000..50_000).contains(&taken), "{taken}");
    assert_eq!(ask(&mut world), 100_000);
    world.expect("zpopmin k 5", &scored([(6, "first".to_owned()), (8, "last".to_owned())].iter()));
    world.expect("exists k", ":0\r\n");
    world.trial.keyspace.check();
}

#[test]
fn wrong_arguments_are_told_as_those_of_sets() {
    elements_test::members_are_asked_for_alike::<SortedSets>();
    let mut world = World::<SortedSets>::new(0);
    world.say("zadd z 1 a");
    world.say("zexpire z 100 members 1 a");
    // A member that is there keeps its deadline under another score.
    for (line, expected) in [
        ("zadd z 2.5 a", ":0\r\n"),
        ("zincrby z 1 a", "$3\r\n3.5\r\n"),
        ("zadd z nan a", "ERR value is not a valid float"),
        ("zttl z members 2 a b", "*2\r\n:100\r\n:-2\r\n"),
    ] {
        world.expect(line, expected);
    }
}
