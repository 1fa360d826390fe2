//! What is due, what is hidden, what a change leaves open: the keyspace beside its model.

use super::*;
use crate::config::NotifyFlags;

const DAY_MS: u64 = 24 * 3600 * 1000;

fn keyspace() -> Keyspace {
    Keyspace::new(3, Hasher::new(5, 1))
}

fn insert(keyspace: &mut Keyspace, db: usize, name: &str, deadline_ms: u64, now: Now) {
    let hasher = keyspace.hasher().clone();
    keyspace.insert(db, hasher.key(name.as_bytes()), Value::Int(1), Some(deadline_ms), now);
}

#[test]
fn the_oldest_due_key_is_found_behind_minima_that_are_too_early() {
    let mut keyspace = keyspace();
    let now = Now::from_ms(1_000_000);
    let hasher = keyspace.hasher().clone();
    for i in 0..5000 {
        insert(&mut keyspace, 0, &format!("key{i}"), 1_000_010 + i, now);
    }
    insert(&mut keyspace, 2, "oldest", 1_000_005, now);
    assert_eq!(keyspace.oldest_due_ms(now), None);
    let later = Now::from_ms(1_003_000);
    assert_eq!(keyspace.oldest_due_ms(later), Some(1_000_005));
    // The minima stay where they were when these go, or live longer.
    assert!(keyspace.remove(2, hasher.key(b"oldest"), now));
    for i in 0..2000 {
        let slot = keyspace.dbs[0].find(hasher.key(format!("key{i}").as_bytes())).unwrap();
        keyspace.dbs[0].set_deadline(slot, Some(2_000_000), later.ms);
    }
    assert_eq!(keyspace.oldest_due_ms(later), Some(1_002_010));
    assert_eq!(keyspace.oldest_due_ms(Now::from_ms(1_002_010)), None, "not dead yet");
    assert_eq!(keyspace.counters.expired_by_cycle, 0, "asking deletes nothing");
    keyspace.check();
}

/// Handlers are held to this wherever debug assertions are on: see `Shard::execute`.
#[test]
fn a_change_of_which_nothing_is_said_stays_open() {
    let (mut keyspace, now) = (keyspace(), Now::from_ms(DAY_MS));
    let hasher = keyspace.hasher().clone();
    let (key, other) = (hasher.key(b"key"), hasher.key(b"other"));
    insert(&mut keyspace, 0, "key", 2 * DAY_MS, now);
    assert!(!keyspace.effects.is_closed());
    keyspace.commit(0, other, Change::of(Event::Set), now);
    keyspace.commit(1, key, Change::of(Event::Set), now);
    assert!(!keyspace.effects.is_closed(), "another key, another database");
    keyspace.commit(0, key, Change::of(Event::Set), now);
    assert!(keyspace.effects.is_closed());
    assert_eq!(keyspace.effects.dirty, 3);

    let edit = keyspace.edit(0, key, now, Touch::NOTHING).expect("it is there");
    assert_eq!(edit.deadline_ms(), Some(2 * DAY_MS));
    assert!(keyspace.effects.is_closed(), "nothing was changed");
    assert!(keyspace.remove(0, key, now));
    assert!(!keyspace.effects.is_closed());
    keyspace.commit(0, key, Change::of(Event::Del), now);

    insert(&mut keyspace, 0, "other", DAY_MS + 1, now);
    keyspace.commit(0, other, Change::of(Event::Set), now);
    assert!(keyspace.find(0, other, Now::from_ms(DAY_MS + 2), Touch::NOTHING).is_none());
    assert!(keyspace.effects.is_closed(), "deaths are told where they happen");
}

/// Whoever makes the same changes again has it there.
#[test]
fn what_a_swap_finds_dead_has_died_where_it_was() {
    let (mut keyspace, now) = (keyspace(), Now::from_ms(DAY_MS));
    keyspace.effects.set_wanted(NotifyFlags::EXPIRED);
    insert(&mut keyspace, 0, "key", DAY_MS + 1, now);
    keyspace.effects.wait_for(1, b"key");
    keyspace.swap(0, 1, Now::from_ms(DAY_MS + 2));
    let died = Notice { db: 0, event: Event::Expired, key: b"key".as_slice().into(), elements: Box::default() };
    assert_eq!(keyspace.effects.take(), [died]);
}

#[test]
fn what_is_hidden_for_those_who_are_older_goes_where_a_writer_finds_it() {
    let (mut keyspace, now) = (keyspace(), Now::from_ms(DAY_MS));
    insert(&mut keyspace, 0, "key", DAY_MS + 1, now);
    keyspace.effects.close_all();
    keyspace.effects.set_journaled(true);
    keyspace.seen_from = now;
    let (key, later) = (keyspace.hasher().clone().key(b"key"), Now::from_ms(DAY_MS + 2));
    assert!(keyspace.find(0, key, later, Touch::NOTHING).is_none());
    assert_eq!((keyspace.len(0), keyspace.effects.said.take().len()), (1, 0), "somebody may look at it");
    keyspace.buries = true;
    assert!(keyspace.find(0, key, later, Touch::NOTHING).is_none());
    assert_eq!((keyspace.len(0), keyspace.effects.said.take().len()), (0, 1));
}

#[test]
fn what_dies_in_a_pause_is_hidden_until_it_is_over() {
    let (mut keyspace, now) = (keyspace(), Now::from_ms(DAY_MS));
    let hasher = keyspace.hasher().clone();
    ["read", "written"].iter().for_each(|name| insert(&mut keyspace, 0, name, DAY_MS + 1, now));
    keyspace.effects.close_all();
    keyspace.effects.set_wanted(NotifyFlags::EXPIRED);
    let (later, end) = (Now::from_ms(DAY_MS + 2), Now::from_ms(DAY_MS + 3));
    keyspace.still_until_us = end.us;
    for name in [b"read".as_slice(), b"written"] {
        assert!(keyspace.find(0, hasher.key(name), later, Touch::NOTHING).is_none());
        assert!(!keyspace.remove(0, hasher.key(name), later));
    }
    assert_eq!((keyspace.len(0), keyspace.live_len(0, later), keyspace.effects.take()), (2, 0, Vec::new()));
    insert(&mut keyspace, 0, "written", 2 * DAY_MS, later);
    let died =
        |name: &str| Notice { db: 0, event: Event::Expired, key: name.as_bytes().into(), elements: Box::default() };
    assert_eq!((keyspace.len(0), keyspace.effects.take()), (2, vec![died("written")]), "by a command under way");
    assert!(keyspace.find(0, hasher.key(b"read"), end, Touch::NOTHING).is_none());
    assert_eq!((keyspace.len(0), keyspace.effects.take()), (1, vec![died("read")]));
}

#[test]
fn deadlines_at_the_end_of_time_are_averaged() {
    let (mut keyspace, now, end_ms) = (keyspace(), Now::from_ms(DAY_MS), i64::MAX as u64);
    (0..20).for_each(|i| insert(&mut keyspace, 0, &format!("key{i}"), end_ms, now));
    let (average_ms, left_ms) = (keyspace.average_ttl_ms(0, now), (end_ms - DAY_MS) as f64);
    assert!((average_ms / left_ms - 1.0).abs() < 1e-9);
}

#[test]
fn a_far_deadline_whose_block_wants_to_be_looked_at_is_not_due() {
    let mut keyspace = keyspace();
    let now = Now::from_ms(DAY_MS);
    insert(&mut keyspace, 0, "far", 101 * DAY_MS, now);
    insert(&mut keyspace, 0, "old", 2 * DAY_MS, now);
    assert_eq!(keyspace.oldest_due_ms(Now::from_ms(90 * DAY_MS)), Some(2 * DAY_MS));
    let hasher = keyspace.hasher().clone();
    assert!(keyspace.remove(0, hasher.key(b"old"), now));
    assert_eq!(keyspace.oldest_due_ms(Now::from_ms(90 * DAY_MS)), None);
    assert_eq!(keyspace.oldest_due_ms(Now::from_ms(102 * DAY_MS)), Some(101 * DAY_MS));
    keyspace.check();
}

/// Keys come and go between the slices, so that blocks split and merge under the walk.
#[test]
fn a_sweep_by_prefix_deletes_the_dead_that_match_and_nothing_else() {
    let mut rng = fastrand::Rng::with_seed(11);
    for round in 0..if cfg!(miri) { 2 } else { 20 } {
        let mut keyspace = keyspace();
        let now = Now::from_ms(1_000_000);
        let count = [3, 500, 20_000][round % 3];
        for i in 0..count {
            let db = i % 3;
            insert(&mut keyspace, db, &format!("token:{i}"), 1_000_001, now);
            insert(&mut keyspace, db, &format!("session:{i}"), 1_000_001, now);
            insert(&mut keyspace, db, &format!("token:live:{i}"), 9_000_000, now);
        }
        let later = Now::from_ms(1_000_002);
        let (mut walk, mut deleted, mut others) = (DeadWalk::default(), 0, 0);
        while let Some(swept) = keyspace.sweep_prefix(&mut walk, b"token:", later, 64) {
            assert!(swept <= 64);
            deleted += swept;
            for _ in 0..rng.usize(..200) {
                let hasher = keyspace.hasher().clone();
                let db = rng.usize(..3);
                if rng.bool() {
                    keyspace.insert(db, hasher.key(format!("new:{others}").as_bytes()), Value::Int(1), None, later);
                    others += 1;
                } else {
                    keyspace.remove(db, hasher.key(format!("token:live:{}", rng.usize(..count)).as_bytes()), later);
                }
            }
        }
        assert_eq!(deleted, count);
        assert_eq!(keyspace.counters.expired_by_cycle, count as u64);
        assert_eq!((0..3).map(|db| keyspace.dbs[db].count_dead(later.ms)).sum::<usize>(), count, "the sessions");
        assert_eq!(keyspace.sweep_prefix(&mut walk, b"", later, 64), None);
        keyspace.check();
    }
}
