//! What reads, writes and deaths do to what is advised, step by step.

use super::*;
use crate::config::Policies as Configured;
use crate::keyspace::{Hasher, Value};

const READS: Touch = Touch::TEST_READ;

struct World {
    keyspace: Keyspace,
    now: Now,
}

impl World {
    /// Keys are followed that begin so, in the first of three databases.
    fn new(prefixes: &[&str], lifetimes: Lifetimes) -> World {
        let mut world = World { keyspace: Keyspace::new(3, Hasher::new(1, 1)), now: Now::from_ms(1_000_000) };
        let advised = |(id, prefix): (usize, &&str)| {
            Arc::new(Advised { id: id as u64, db: 0, prefix: prefix.as_bytes().into(), lifetimes: lifetimes.clone() })
        };
        let asked: Vec<_> = prefixes.iter().enumerate().map(advised).collect();
        world.keyspace.advise(&asked, 1, world.now);
        world
    }

    /// Multiples of what each key is given.
    fn relative() -> World {
        World::new(&["k"], Lifetimes::Relative)
    }

    fn passes(&mut self, ms: u64) {
        self.now = Now::from_ms(self.now.ms + ms);
    }

    fn reads(&mut self, name: &str) -> bool {
        let hasher = self.keyspace.hasher().clone();
        self.keyspace.find(0, hasher.key(name.as_bytes()), self.now, READS).is_some()
    }

    fn sets(&mut self, name: &str, life_ms: Option<u64>) {
        let (hasher, deadline_ms) = (self.keyspace.hasher().clone(), life_ms.map(|life_ms| self.now.ms + life_ms));
        let key = hasher.key(name.as_bytes());
        self.keyspace.insert(0, key, Value::Bytes(b"value"), deadline_ms, self.now);
        self.keyspace.commit(0, key, Event::Set.into(), self.now);
    }

    /// Changes the value as this event tells, and leaves the deadline.
    fn changes(&mut self, name: &str, event: Event) {
        let hasher = self.keyspace.hasher().clone();
        let key = hasher.key(name.as_bytes());
        match self.keyspace.edit(0, key, self.now, Touch::NOTHING) {
            Some(mut edit) => edit.set_value(Value::Bytes(b"other")),
            None => drop(self.keyspace.insert_new(0, key, Value::Bytes(b"other"), None, self.now)),
        }
        self.keyspace.commit(0, key, event.into(), self.now);
    }

    fn expires(&mut self, name: &str, life_ms: u64) {
        let hasher = self.keyspace.hasher().clone();
        let key = hasher.key(name.as_bytes());
        let mut edit = self.keyspace.edit(0, key, self.now, Touch::NOTHING).expect("it is there");
        edit.set_deadline(Some(self.now.ms + life_ms));
        self.keyspace.commit(0, key, Event::Expire.into(), self.now);
    }

    fn deletes(&mut self, name: &str) {
        let hasher = self.keyspace.hasher().clone();
        let key = hasher.key(name.as_bytes());
        assert!(self.keyspace.remove(0, key, self.now));
        self.keyspace.commit(0, key, Event::Del.into(), self.now);
    }

    fn advice(&mut self) -> Advice {
        self.keyspace.advice(0, self.now).expect("advised")
    }

    /// Hits under each lifetime.
    fn hits(&mut self) -> Vec<u64> {
        let advice = self.advice();
        advice.curve().map(|point| (point.hit_share * advice.reads() as f64).round() as u64).collect()
    }
}

#[test]
fn a_miss_is_told_by_why_the_key_is_not_there() {
    let mut world = World::relative();
    assert!(!world.reads("k:never"));
    world.sets("k:dies", Some(1_000));
    world.sets("k:goes", Some(1_000_000));
    world.sets("k:stays", None);
    world.deletes("k:goes");
    assert!(world.reads("k:dies") && world.reads("k:stays") && !world.reads("k:goes"));
    world.passes(1_001);
    assert!(!world.reads("k:dies") && !world.reads("k:dies") && world.reads("k:stays"));
    assert!(!world.reads("other"), "it is not followed");
    let advice = world.advice();
    assert_eq!((advice.reads(), advice.hits(), advice.misses_by_cause()), (7, 3, [2, 1, 1]));
    assert_eq!(world.keyspace.expired_misses(), 2.0);
    assert_eq!(advice.deaths(), [1, 0]);
}

#[test]
fn keys_that_nobody_reads_before_they_die_are_counted() {
    let mut world = World::relative();
    for (name, is_read) in [("k:1", true), ("k:2", false), ("k:3", false)] {
        world.sets(name, Some(1_000));
        assert!(!is_read || world.reads(name));
    }
    world.passes(2_000);
    let now = world.now;
    assert_eq!(world.keyspace.sweep_earliest(0, now.ms, now, 100).deleted, 3);
    assert_eq!(world.advice().deaths(), [3, 2]);
    // A value that nobody reads, behind one that was read.
    world.sets("k:1", Some(1_000));
    assert!(world.reads("k:1"));
    world.sets("k:1", Some(1_000));
    world.passes(2_000);
    assert!(!world.reads("k:1"));
    assert_eq!(world.advice().deaths(), [4, 3]);
}

#[test]
fn ages_are_those_of_values() {
    let mut world = World::relative();
    world.sets("k", Some(100_000));
    world.passes(8_000);
    assert!(world.reads("k"));
    // A new deadline makes no value younger; a change does.
    world.expires("k", 100_000);
    world.passes(8_000);
    assert!(world.reads("k"));
    world.changes("k", Event::Append);
    assert!(world.reads("k"));
    let advice = world.advice();
    assert_eq!(advice.age_ms(0.1), Some(0));
    let near = |ms: Option<u64>, expected: u64| ms.is_some_and(|ms| ms.abs_diff(expected) <= expected / 8);
    assert!(near(advice.age_ms(0.5), 8_000) && near(advice.age_ms(1.0), 16_000), "{:?}", advice.age_ms(0.5));
    assert!(near(advice.median_life_ms(), 100_000));
}

/// Lifetimes are 250, 500, 1000, 2000, ... ms.
#[test]
fn a_write_after_a_miss_is_one_only_where_it_was_a_miss() {
    let mut world = World::relative();
    world.sets("k", Some(1_000));
    world.passes(1_500);
    assert!(!world.reads("k"));
    world.sets("k", Some(1_000));
    world.passes(600);
    // 2100 after the first write: under 2000 it is dead, which would not have been written again.
    assert!(world.reads("k"));
    assert_eq!(world.hits(), [0, 0, 1, 1, 2, 2, 2]);
    world.sets("k", Some(1_000));
    world.passes(900);
    assert!(world.reads("k"));
    assert_eq!(world.hits(), [0, 0, 2, 2, 3, 3, 3], "a write that nobody missed the key before is one everywhere");
}

/// A hash that is filled, and then given its lifetime.
#[test]
fn a_deadline_behind_the_first_write_comes_with_it() {
    let mut world = World::relative();
    world.changes("k", Event::HSet);
    world.expires("k", 1_000);
    world.passes(1_500);
    assert!(!world.reads("k"));
    world.changes("k", Event::HSet);
    world.changes("k", Event::HSet);
    world.passes(1);
    world.expires("k", 1_000);
    world.passes(600);
    assert!(world.reads("k"));
    assert_eq!(world.hits(), [0, 0, 1, 1, 2, 2, 2]);
}

#[test]
fn a_renewal_renews_only_what_is_alive() {
    let mut world = World::relative();
    world.sets("k", Some(1_000));
    world.passes(600);
    world.expires("k", 1_000);
    world.passes(600);
    // Under 250 and 500 it was dead when it was renewed.
    assert!(world.reads("k"));
    assert_eq!(world.hits(), [0, 0, 1, 1, 1, 1, 1]);
    // What changes in place keeps its deadline, where it has one.
    world.passes(300);
    world.changes("k", Event::Append);
    world.passes(60);
    assert!(world.reads("k"));
    assert_eq!(world.hits(), [1, 1, 2, 2, 2, 2, 2]);
    // A hash that is changed and renewed at once.
    world.changes("k", Event::HSet);
    world.expires("k", 1_000);
    world.passes(900);
    assert!(world.reads("k"));
    assert_eq!(world.hits(), [1, 1, 3, 3, 3, 3, 3]);
}

#[test]
fn a_policy_that_slides_renews_and_one_that_gives_deadlines_writes() {
    let mut world = World::relative();
    let (_, policy, _) = Configured::parse(["k", "1s", "SLIDING"].into_iter()).expect("a policy");
    world.keyspace.set_policy(b"k", Some(policy));
    let hasher = world.keyspace.hasher().clone();
    world.sets("k", None);
    assert!(world.keyspace.govern(0, hasher.key(b"k"), world.now).is_some());
    for _ in 0..3 {
        world.passes(800);
        assert!(world.reads("k"));
        for used in world.keyspace.take_used() {
            world.keyspace.renew(&used, world.now, world.now);
        }
    }
    assert_eq!(world.hits(), [0, 0, 3, 3, 3, 3, 3]);
}

#[test]
fn what_is_deleted_is_gone_under_every_lifetime() {
    let mut world = World::relative();
    world.sets("k", Some(1_000));
    world.deletes("k");
    assert!(!world.reads("k"));
    world.sets("k", Some(1_000));
    assert!(world.reads("k"));
    world.passes(3_000);
    assert!(!world.reads("k"));
    assert_eq!(world.hits(), [1, 1, 1, 1, 2, 2, 2]);
}

#[test]
fn keys_without_a_deadline_live_for_ever_unless_lifetimes_are_given() {
    for (lifetimes, hits) in [(Lifetimes::Relative, vec![1; 7]), (Lifetimes::Of([500, 5_000].into()), vec![0, 1])] {
        let mut world = World::new(&["k"], lifetimes);
        world.sets("k", None);
        world.passes(1_000);
        assert!(world.reads("k"));
        assert_eq!(world.hits(), hits);
        assert_eq!(world.advice().median_life_ms(), None);
    }
}

#[test]
fn of_keys_that_were_there_before_nothing_is_said_but_from_now_on() {
    let mut world = World::new(&[], Lifetimes::Relative);
    world.sets("k", Some(1_000));
    world.passes(900);
    let asked = Arc::new(Advised { id: 0, db: 0, prefix: b"k"[..].into(), lifetimes: Lifetimes::Relative });
    world.keyspace.advise(&[asked], 1, world.now);
    assert!(world.reads("k"));
    let (advice, now) = (world.advice(), world.now.ms);
    assert_eq!((advice.reads(), advice.hits(), advice.age_ms(0.5), advice.median_life_ms()), (1, 1, None, None));
    world.passes(101);
    assert!(!world.reads("k"), "{now}");
    assert_eq!(world.advice().misses_by_cause(), [1, 0, 0]);
}

#[test]
fn bytes_are_those_of_lives() {
    let mut world = World::relative();
    world.sets("k", Some(1_000));
    let hasher = world.keyspace.hasher().clone();
    let bytes = world.keyspace.find(0, hasher.key(b"k"), world.now, Touch::NOTHING).expect("there").bytes() as u64;
    world.passes(4_000);
    let advice = world.advice();
    assert_eq!((advice.counted_ms, advice.bytes()), (4_000, (bytes as f64 / 4.0).round() as u64));
    let expected: Vec<u64> =
        [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0].map(|s: f64| (bytes as f64 * s / 4.0).round() as u64).into();
    assert_eq!(advice.curve().map(|point| point.bytes).collect::<Vec<_>>(), expected);
    let more = (bytes as f64 * 3.0 / 4.0).round() as i64;
    assert_eq!(advice.curve().last().map(|point| point.more_bytes), Some(more));
}

#[test]
fn a_database_that_is_emptied_or_has_another_place_is_forgotten() {
    for swaps in [false, true] {
        let mut world = World::relative();
        world.sets("k", Some(1_000));
        world.passes(2_000);
        if swaps {
            world.keyspace.swap(0, 1, world.now);
        } else {
            world.keyspace.flush(0, world.now);
        }
        assert!(!world.reads("k"));
        assert_eq!(world.advice().misses_by_cause(), [0, 0, 1], "{swaps}");
        assert_eq!(world.advice().sampled_keys, 0);
    }
}

#[test]
fn prefixes_may_overlap_and_are_followed_each_by_itself() {
    let mut world = World::new(&["", "k", "kk"], Lifetimes::Relative);
    world.sets("kk", Some(1_000));
    world.sets("k", Some(1_000));
    world.passes(2_000);
    assert!(!world.reads("kk") && !world.reads("k") && !world.reads("x"));
    let now = world.now;
    let reads = |id| world.keyspace.advice(id, now).expect("advised").reads();
    assert_eq!([0, 1, 2].map(reads), [3, 2, 1]);
    assert_eq!(world.keyspace.expired_misses(), 2.0, "each is counted once");
    assert_eq!(world.keyspace.advised().0, 3);
    world.keyspace.reset_advice(now);
    assert_eq!((world.advice().reads(), world.keyspace.expired_misses()), (0, 0.0));
    world.keyspace.advise(&[], 1, now);
    assert_eq!(world.keyspace.advised(), (0, 0));
    assert!(!world.keyspace.follows_uses && !world.keyspace.effects.is_advised());
}

#[test]
fn what_does_not_count_or_use_is_no_read() {
    let mut world = World::relative();
    world.sets("k", Some(1_000));
    let hasher = world.keyspace.hasher().clone();
    for touch in [Touch::NOTHING, Touch::new(true, false, true), Touch::new(false, true, true)] {
        assert!(world.keyspace.find(0, hasher.key(b"k"), world.now, touch).is_some());
        assert!(world.keyspace.find(0, hasher.key(b"kk"), world.now, touch).is_none());
    }
    assert_eq!(world.advice().reads(), 0);
}

#[test]
fn many_more_keys_than_find_room_are_estimated() {
    let mut world = World::relative();
    for number in 0..100_000 {
        world.sets(&format!("k:{number}"), Some(1_000_000));
    }
    world.passes(500_000);
    for number in 0..100_000 {
        assert!(world.reads(&format!("k:{number}")));
    }
    assert_eq!(world.keyspace.advised().1, world.advice().own_bytes);
    assert!(world.advice().own_bytes <= PREFIX_BYTES);
    let (hits, share) = (world.hits(), world.advice().sampled_share);
    assert!(hits[0] < 5_000 && hits[6] == 100_000 && share < 0.1, "{hits:?} {share}");
}
