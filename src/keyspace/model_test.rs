//! The keyspace against a map: hundreds of thousands of random operations under a manual clock, several databases,
//! each reply compared, and everything compared now and then.
//!
//! A world grows to tens of thousands of keys and shrinks to none several times, so that blocks split and merge and
//! the directory doubles and halves, while the clock jumps by anything from nothing to 60 days: past the reach of the
//! deadline column, so that its bases move. The model keeps a dead key until the keyspace has to bury it: it knows
//! who must be announced as expired, and how late.
//!
//! A failing world prints its seed; `world(seed)` repeats it.

mod model;

use super::*;
use crate::clock::Clock;
use crate::config::NotifyFlags;
use crate::table::block::{EMPTY_BLOCK_BYTES, INTO_REACH_MS, REACH_MS};
use model::{Id, Model, Stored, key_bytes};
use std::collections::BTreeSet;

const DATABASES: usize = 3;
const SECOND_MS: u64 = 1000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;
const YEAR_MS: u64 = 365 * DAY_MS;
/// A command may carry a moment that is this much older than what the shard has seen.
const OLDER_US: u64 = 5_000;
/// Steps between two comparisons of everything.
const AUDIT_EVERY: usize = 6_000;
/// Pointers in the directory of an emptied database, at most.
const DIRECTORY_LEFT: usize = 8;

struct World {
    seed: u64,
    steps: usize,
    rng: fastrand::Rng,
    clock: Clock,
    keyspace: Keyspace,
    model: Model,
    /// Keys are drawn from this many in each database.
    universe: u32,
    /// The notices, counters and lags that the keyspace must show.
    notices: Vec<Id>,
    counters: Counters,
    /// Keys that were alive when their database was flushed.
    flushed: u64,
    lag: Lag,
}

type Op = fn(&mut World);

const GROW: &[(u32, Op)] = &[
    (700, World::insert),
    (60, World::find),
    (60, World::deadline),
    (40, World::rewrite),
    (20, World::remove),
    (40, World::sweep),
    (20, World::look_around),
    (60, World::jump_briefly),
    (1, World::toggle_notices),
];

const CHURN: &[(u32, Op)] = &[
    (2500, World::insert),
    (2000, World::find),
    (2000, World::deadline),
    (1000, World::rewrite),
    (1500, World::remove),
    (1000, World::sweep),
    (500, World::look_around),
    (800, World::jump_briefly),
    (5, World::jump_far),
    (5, World::purge),
    (10, World::purge_prefix),
    (1, World::flush),
    (100, World::collect),
    (20, World::toggle_notices),
];

const SHRINK: &[(u32, Op)] = &[
    (3000, World::remove),
    (100, World::insert),
    (300, World::find),
    (200, World::deadline),
    (1500, World::sweep),
    (100, World::look_around),
    (300, World::jump_briefly),
    (1, World::jump_far),
    (1, World::purge),
    (20, World::collect),
    (1, World::toggle_notices),
];

/// Deaths alone: as time goes by, the cycle sweeps, and nobody deletes.
const DECAY: &[(u32, Op)] = &[
    (3000, World::sweep),
    (100, World::find),
    (30, World::look_around),
    (20, World::jump_briefly),
    (3, World::jump_far),
];

impl World {
    fn new(seed: u64) -> World {
        let mut rng = fastrand::Rng::with_seed(seed);
        // A machine that has just started, or one that has been up for longer than the column reaches.
        let start_ms = if rng.bool() { rng.u64(100..MINUTE_MS) } else { rng.u64(..2 * YEAR_MS) + 100 };
        World {
            seed,
            steps: 0,
            clock: Clock::manual(start_ms),
            keyspace: Keyspace::new(DATABASES, Hasher::new(seed, 1)),
            model: Model::default(),
            universe: 1000,
            notices: Vec::new(),
            counters: Counters::default(),
            flushed: 0,
            lag: Lag::new(),
            rng,
        }
    }

    /// Repeats operations of a mix until `done`, or until it has been enough.
    fn run(&mut self, mix: &[(u32, Op)], steps_max: usize, done: impl Fn(&World) -> bool) {
        let weights: u32 = mix.iter().map(|(weight, _)| weight).sum();
        for _ in 0..steps_max {
            if done(self) {
                break;
            }
            let mut drawn = self.rng.u32(..weights);
            let op = mix.iter().find(|(weight, _)| {
                let found = drawn < *weight;
                drawn = drawn.wrapping_sub(*weight);
                found
            });
            op.expect("the weights add up").1(self);
            self.settle();
            self.steps += 1;
            if self.steps.is_multiple_of(AUDIT_EVERY) {
                self.audit();
            }
        }
        self.audit();
    }

    /// The moment of a command: the shard's clock, or a little before it, as in a transaction that began elsewhere.
    fn now(&mut self) -> Now {
        let us = self.clock.now().us + self.rng.u64(..1000);
        Now::from_us(if self.rng.u8(..8) == 0 { us - self.rng.u64(..OLDER_US) } else { us })
    }

    fn db(&mut self) -> usize {
        if self.rng.u8(..10) < 8 { 0 } else { self.rng.usize(1..DATABASES) }
    }

    /// A key that is there (if any is), or just one of the universe.
    fn some_key(&mut self) -> Id {
        let (db, n) = (self.db(), self.rng.u32(..self.universe));
        let id = (db, key_bytes(n));
        if self.rng.u8(..4) == 0 {
            return id;
        }
        self.model.keys.range(id.clone()..).next().map_or(id, |(id, _)| id.clone())
    }

    fn some_value(&mut self) -> Stored {
        let bytes = match self.rng.u32(..2000) {
            0 => self.rng.usize((1 << 20) - 2..(1 << 20) + 1000),
            1..100 => self.rng.usize(100..3000),
            100..600 => return Stored::Int(self.rng.i64(..)),
            _ => self.rng.usize(..48),
        };
        Stored::Bytes(vec![self.rng.u8(..); bytes])
    }

    fn some_deadline(&mut self, now: Now) -> Option<u64> {
        let around = |at_ms: u64, rng: &mut fastrand::Rng| at_ms - 2 + rng.u64(..5);
        let ttl_ms = match self.rng.u8(..20) {
            0..5 => return None,
            5 => 0,
            6..8 => self.rng.u64(..SECOND_MS),
            8..12 => self.rng.u64(..10 * MINUTE_MS),
            12..14 => self.rng.u64(..60 * DAY_MS),
            14 => around(REACH_MS, &mut self.rng),
            15 => around(INTO_REACH_MS, &mut self.rng),
            16 => around(REACH_MS + INTO_REACH_MS, &mut self.rng),
            _ => self.rng.u64(..100 * YEAR_MS),
        };
        Some(now.ms + ttl_ms)
    }

    /// What the key holds for a command at `now`; a dead one is buried by the keyspace's next look at it.
    fn expect(&mut self, id: &Id, now: Now) -> Option<(Stored, Option<u64>)> {
        let (stored, deadline_ms) = self.model.keys.get(id)?.clone();
        if deadline_ms.is_some_and(|at_ms| now.ms > at_ms) {
            self.counters.expired_by_access += 1;
            self.bury(id, now);
            return None;
        }
        Some((stored, deadline_ms))
    }

    fn bury(&mut self, id: &Id, now: Now) {
        let (_, deadline_ms) = self.model.take(id).expect("who dies was there");
        let deadline_ms = deadline_ms.expect("who dies had a deadline");
        assert!(now.ms > deadline_ms, "{id:?} died alive");
        self.lag.record(now, deadline_ms);
        if self.keyspace.effects.wanted == NotifyFlags::EXPIRED {
            self.notices.push(id.clone());
        }
    }

    fn insert(&mut self) {
        let n = self.rng.u32(..self.universe);
        let id = (self.db(), key_bytes(n));
        let (now, stored) = (self.now(), self.some_value());
        let deadline_ms = self.some_deadline(now);
        let was = self.expect(&id, now);
        let key = self.keyspace.hasher().key(&id.1);
        // Twice, since one key alone is not asked for.
        self.keyspace.prefetch([Lookup::key(id.0, key.hash); 2].into_iter());
        if was.is_none() && self.rng.bool() {
            assert!(self.keyspace.find(id.0, key, now, Touch::NOTHING).is_none());
            self.keyspace.insert_new(id.0, key, stored.value(), deadline_ms, now);
        } else {
            self.keyspace.insert(id.0, key, stored.value(), deadline_ms, now);
        }
        self.model.put(id, stored, deadline_ms);
    }

    fn find(&mut self) {
        let (id, now) = (self.some_key(), self.now());
        let expected = self.expect(&id, now);
        let touch = Touch::new(self.rng.bool(), self.rng.bool(), self.rng.bool());
        if touch.counts() {
            *(if expected.is_some() { &mut self.counters.hits } else { &mut self.counters.misses }) += 1;
        }
        let key = self.keyspace.hasher().key(&id.1);
        let found = self.keyspace.find(id.0, key, now, touch);
        let found = found.map(|live| (Stored::of(live.value()), live.deadline_ms()));
        assert_eq!(found, expected, "{id:?}");
    }

    /// EXPIRE and PERSIST.
    fn deadline(&mut self) {
        let (id, now) = (self.some_key(), self.now());
        let deadline_ms = self.some_deadline(now);
        let expected = self.expect(&id, now);
        let key = self.keyspace.hasher().key(&id.1);
        let live = self.keyspace.edit(id.0, key, now, Touch::NOTHING);
        assert_eq!(live.is_some(), expected.is_some(), "{id:?}");
        let (Some(mut live), Some((stored, old_ms))) = (live, expected) else { return };
        assert_eq!(live.deadline_ms(), old_ms);
        live.set_deadline(deadline_ms);
        assert_eq!((live.deadline_ms(), Stored::of(live.value())), (deadline_ms, stored.clone()));
        self.model.put(id, stored, deadline_ms);
    }

    /// SET over a live key, SET KEEPTTL, APPEND and SETRANGE.
    fn rewrite(&mut self) {
        let (id, now, new) = (self.some_key(), self.now(), self.some_value());
        let new_ms = self.some_deadline(now);
        let expected = self.expect(&id, now);
        let key = self.keyspace.hasher().key(&id.1);
        let live = self.keyspace.edit(id.0, key, now, Touch::NOTHING);
        assert_eq!(live.is_some(), expected.is_some(), "{id:?}");
        let (Some(mut live), Some((stored, deadline_ms))) = (live, expected) else { return };
        let (stored, deadline_ms) = match self.rng.u8(..3) {
            0 => {
                live.replace(new.value(), new_ms);
                (new, new_ms)
            }
            1 => {
                live.set_value(new.value());
                assert!(!live.is_raw());
                (new, deadline_ms)
            }
            _ => {
                let mut bytes = match stored {
                    Stored::Int(n) => n.to_string().into_bytes(),
                    Stored::Bytes(bytes) => bytes,
                };
                let wide = self.rng.u16(..300) == 0;
                bytes.resize(self.rng.usize(..if wide { 3 << 20 } else { 200 }), 0);
                let written = live.resize(bytes.len());
                assert!(written == bytes, "{id:?}");
                if let Some(last) = bytes.last_mut() {
                    *last = self.rng.u8(..);
                    written[written.len() - 1] = *last;
                }
                assert!(live.is_raw());
                (Stored::Bytes(bytes), deadline_ms)
            }
        };
        self.model.put(id, stored, deadline_ms);
    }

    fn remove(&mut self) {
        let (id, now) = (self.some_key(), self.now());
        let expected = self.expect(&id, now).is_some();
        let key = self.keyspace.hasher().key(&id.1);
        let removed = if self.rng.bool() {
            self.keyspace.remove(id.0, key, now)
        } else {
            self.keyspace.edit(id.0, key, now, Touch::NOTHING).map(KeyEdit::remove).is_some()
        };
        assert_eq!(removed, expected, "{id:?}");
        self.model.take(&id);
    }

    /// One slice of a cycle.
    fn sweep(&mut self) {
        let now = Now::from_us(self.clock.now().us + self.rng.u64(..1000));
        let before_ms = now.ms - self.rng.u64(..20);
        let limit = self.rng.usize(1..100);
        if self.rng.u8(..4) == 0 {
            let earliest_ms = Some(self.model.earliest_ms()).filter(|at_ms| *at_ms < now.ms);
            assert_eq!(self.keyspace.oldest_due_ms(now), earliest_ms);
        }
        let Some((at_ms, db, block)) = self.keyspace.earliest() else {
            assert!(self.model.by_deadline.is_empty());
            return;
        };
        assert!(at_ms <= self.model.earliest_ms());
        if at_ms >= before_ms {
            return;
        }
        // Only the notices tell who was in the block.
        let wanted = self.keyspace.effects.wanted;
        self.keyspace.effects.set_wanted(NotifyFlags::EXPIRED);
        let swept = if self.rng.bool() {
            self.keyspace.sweep_earliest(db, before_ms, now, limit)
        } else {
            self.keyspace.sweep(db, block, before_ms, now, limit)
        };
        let notices = self.keyspace.effects.take();
        assert!(swept.deleted <= limit);
        assert_eq!(swept.deleted, notices.len());
        let mut bytes_min = 0;
        for notice in notices {
            let id = (notice.db, notice.key.to_vec());
            let (stored, deadline_ms) = self.model.keys.get(&id).expect("who dies was there").clone();
            assert!(deadline_ms.is_some_and(|at_ms| at_ms < before_ms), "{id:?} at {deadline_ms:?}");
            bytes_min += id.1.len() + if let Stored::Bytes(bytes) = &stored { bytes.len() } else { 8 };
            self.bury(&id, now);
        }
        assert!(swept.bytes >= bytes_min);
        self.counters.expired_by_cycle += swept.deleted as u64;
        self.notices.clear();
        self.keyspace.effects.set_wanted(wanted);
    }

    /// EXPIRY PURGE: everything that is due, in finite time, and nothing else.
    fn purge(&mut self) {
        let now = self.clock.now();
        let dead: Vec<Id> =
            self.model.by_deadline.range(..(now.ms, (0, Vec::new()))).map(|(_, id)| id.clone()).collect();
        dead.iter().for_each(|id| self.bury(id, now));
        let (mut deleted, mut idle) = (0, 0);
        let idle_max = 3 * (0..DATABASES).map(|db| self.blocks(db)).sum::<usize>();
        while let Some((at_ms, db, block)) = self.keyspace.earliest().filter(|(at_ms, ..)| *at_ms < now.ms) {
            let swept = self.keyspace.sweep_earliest(db, now.ms, now, 64);
            deleted += swept.deleted;
            idle += usize::from(swept.deleted == 0);
            assert!(idle <= idle_max, "block {block} goes on being due at {at_ms}, now {}", now.ms);
        }
        assert_eq!(deleted, dead.len());
        assert_eq!(self.keyspace.oldest_due_ms(now), None);
        self.counters.expired_by_cycle += deleted as u64;
        self.expect_told_in_any_order();
    }

    /// EXPIRY PURGE PREFIX.
    fn purge_prefix(&mut self) {
        let now = self.clock.now();
        let prefix = format!("key{}", self.rng.u8(1..10)).into_bytes();
        let dead = self.model.by_deadline.range(..(now.ms, (0, Vec::new()))).map(|(_, id)| id);
        let dead: Vec<Id> = dead.filter(|(_, key)| key.starts_with(&prefix)).cloned().collect();
        dead.iter().for_each(|id| self.bury(id, now));
        let (mut walk, mut deleted, limit) = (DeadWalk::default(), 0, self.rng.usize(1..200));
        while let Some(swept) = self.keyspace.sweep_prefix(&mut walk, &prefix, now, limit) {
            assert!(swept <= limit);
            deleted += swept;
        }
        assert_eq!(deleted, dead.len());
        self.counters.expired_by_cycle += deleted as u64;
        self.expect_told_in_any_order();
    }

    fn flush(&mut self) {
        let (db, now) = (self.db(), self.clock.now());
        let live = self.model.live(db, now).len() as u64;
        let before = self.keyspace.effects.dirty;
        self.keyspace.flush(db, now);
        assert_eq!(self.keyspace.effects.dirty - before, live);
        self.flushed += live;
        let flushed: Vec<Id> = self.model.of_db(db).map(|(id, _)| id.clone()).collect();
        flushed.iter().for_each(|id| drop(self.model.take(id)));
        assert_eq!(self.keyspace.live_len(db, now), 0);
    }

    fn collect(&mut self) {
        let before_bytes = self.keyspace.bytes();
        let limit = self.rng.usize(1..2000);
        let had = self.keyspace.has_garbage();
        let left = self.keyspace.collect_garbage(limit);
        assert_eq!(left, self.keyspace.has_garbage());
        assert!(self.keyspace.bytes() < before_bytes || !had);
    }

    fn look_around(&mut self) {
        let (db, now, size) = (self.db(), self.now(), self.rng.usize(1..30));
        let first_dead = self.model.earliest_ms() < now.ms;
        match self.keyspace.random(db, &mut self.rng, now) {
            Some(key) => {
                let (_, deadline_ms) = self.model.keys.get(&(db, key.to_vec())).expect("it was there");
                assert!(deadline_ms.is_none_or(|at_ms| now.ms <= at_ms));
            }
            None => assert!(self.model.live(db, now).is_empty()),
        }
        let sample = self.keyspace.sample(db, size, &mut self.rng, now);
        assert!(sample.seen <= size && sample.dead <= sample.seen);
        assert!(sample.dead == 0 || first_dead);
    }

    fn jump_briefly(&mut self) {
        let ms = match self.rng.u8(..10) {
            0..3 => 0,
            3..7 => self.rng.u64(1..20),
            7..9 => self.rng.u64(..2 * SECOND_MS),
            _ => self.rng.u64(..MINUTE_MS),
        };
        self.clock.advance_ms(ms);
    }

    fn jump_far(&mut self) {
        let most_ms = if self.rng.bool() { 60 * DAY_MS } else { DAY_MS };
        self.clock.advance_ms(self.rng.u64(..most_ms));
    }

    fn toggle_notices(&mut self) {
        let is_told = self.keyspace.effects.wanted != NotifyFlags::NONE;
        self.keyspace.effects.set_wanted(if is_told { NotifyFlags::NONE } else { NotifyFlags::EXPIRED });
    }

    fn blocks(&self, db: usize) -> usize {
        self.keyspace.dbs[db].blocks().count()
    }

    /// The order between databases and within a block is the keyspace's own.
    fn expect_told_in_any_order(&mut self) {
        let mut told: Vec<Id> = self.keyspace.effects.take().into_iter().map(|one| (one.db, one.key.into())).collect();
        told.sort_unstable();
        self.notices.sort_unstable();
        assert!(told == self.notices);
        self.notices.clear();
    }

    /// What must hold after each operation.
    fn settle(&mut self) {
        let told = self.keyspace.effects.take();
        assert!(told.iter().all(|one| one.event == Event::Expired));
        let told: Vec<Id> = told.into_iter().map(|one| (one.db, one.key.into())).collect();
        assert_eq!(told, std::mem::take(&mut self.notices));
        assert!(self.keyspace.next_due_hint_ms() <= self.model.earliest_ms());
    }

    /// Everything.
    fn audit(&mut self) {
        self.keyspace.check();
        let now = self.now();
        for db in 0..DATABASES {
            let live = self.model.live(db, now);
            let deadlines = |all: &mut dyn Iterator<Item = Option<u64>>| all.flatten().count();
            let stored = deadlines(&mut self.model.of_db(db).map(|(_, (_, deadline_ms))| *deadline_ms));
            assert_eq!(self.keyspace.live_len(db, now), live.len());
            assert_eq!(self.keyspace.with_deadline(db), stored);
            let alive = deadlines(&mut live.values().map(|(_, deadline_ms)| *deadline_ms));
            assert_eq!(self.keyspace.live_with_deadline(db, now), alive);

            let mut shown = 0;
            self.keyspace.for_each(db, now, |key, value, deadline_ms| {
                let expected = live.get(key).expect("what is shown lives");
                assert!(value.value() == expected.0.value() && deadline_ms == expected.1, "{key:?}: {deadline_ms:?}");
                shown += 1;
            });
            assert_eq!(shown, live.len());

            let mut seen = BTreeSet::new();
            let mut cursor = Some(Cursor::start(0));
            while let Some(at) = cursor {
                let count = self.rng.usize(1..500);
                cursor = self.keyspace.scan(db, at, count, 1, now, |key, kind| {
                    assert!(live.contains_key(key) && kind == Kind::String);
                    assert!(seen.insert(key.to_vec()), "twice: {key:?}");
                });
            }
            assert_eq!(seen.len(), live.len());
        }
        let (counters, expected) = (self.keyspace.counters, self.counters);
        assert_eq!((counters.hits, counters.misses), (expected.hits, expected.misses));
        assert_eq!(counters.expired_by_access, expected.expired_by_access);
        assert_eq!(counters.expired_by_cycle, expected.expired_by_cycle);
        let deaths = expected.expired_by_access + expected.expired_by_cycle;
        assert_eq!((self.keyspace.lag.count(), self.keyspace.effects.dirty), (deaths, deaths + self.flushed));
        for share in [0.0, 0.5, 0.99, 1.0] {
            assert_eq!(self.keyspace.lag.quantile_us(share), self.lag.quantile_us(share));
        }
    }

    /// With nothing left, each database keeps one block and a directory of eight pointers at most.
    fn check_empty(&mut self) {
        while self.keyspace.collect_garbage(1000) {}
        assert!(self.model.keys.is_empty());
        for db in 0..DATABASES {
            assert_eq!((self.keyspace.live_len(db, self.clock.now()), self.blocks(db)), (0, 1));
        }
        let pointers = DIRECTORY_LEFT * size_of::<usize>();
        assert!(self.keyspace.bytes() <= DATABASES * (EMPTY_BLOCK_BYTES + pointers), "{}", self.keyspace.bytes());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, step {}, {} keys", self.seed, self.steps, self.model.keys.len());
        }
    }
}

fn world(seed: u64) {
    let mut world = World::new(seed);
    // Still a split and a merge.
    let less = if cfg!(miri) { 60 } else { 1 };
    for (peak, shrink) in [(50_000, SHRINK), (1_000, DECAY), (12_000, SHRINK), (25_000, DECAY)] {
        let peak = peak / less;
        world.universe = 2 * peak as u32;
        world.run(GROW, 4 * peak, |world| world.model.keys.len() >= peak);
        assert!(world.model.keys.len() >= peak * 9 / 10, "{} of {peak} keys", world.model.keys.len());
        world.run(CHURN, 40_000 / less, |_| false);
        world.run(shrink, 60_000 / less, |world| world.model.keys.is_empty());
        world.universe = 1;
        world.run(SHRINK, usize::MAX, |world| world.model.keys.is_empty());
        world.check_empty();
    }
}

#[test]
fn the_keyspace_is_a_map_with_deadlines_a() {
    (1..=2).for_each(world);
}

#[test]
fn the_keyspace_is_a_map_with_deadlines_b() {
    (3..=4).for_each(world);
}
