//! What other lifetimes would change: an advisor follows the keys that begin alike, and tells a miss of what has died from a
//! miss of what never was there.
//!
//! ```text
//!  reads  (Keyspace::find) ----------.
//!  writes (Keyspace::commit) ---------+--> Advisor --> OfPrefix: counts, and a sample of marks --> Advice: a curve
//!  deaths, evictions (Effects) ------'
//! ```
//!
//! | file | what |
//! |---|---|
//! | `follow.rs` | what a read, a write or a death does to a mark |
//! | `advice.rs` | what is counted, and what that says of other lifetimes |
//! | `sample.rs` | marks of a sample of keys, in fixed memory |
//! | `spread.rs` | how durations are spread |
//!
//! Of each key of the sample a mark says until when it would live under each of a few lifetimes. So every lifetime is
//! simulated beside the others, exactly for the keys that are followed; the error is that of the sample alone.
//!
//! Nothing of this is kept for longer than the server runs, written to the log or sent to replicas. Where no advisor is on
//! nothing is recorded: reads come here behind the flag that policies and groups with sliding lives are behind
//! ([`Keyspace::note_use`]), changes and deaths as those of the other sinks of [`Effects`](super::Effects).

mod advice;
mod follow;
mod sample;
mod spread;

pub use advice::{Advice, Point};
pub use sample::POINTS_MAX;

use super::change::{Cause, Change, Event};
use super::{Key, Keyspace, Touch};
use crate::clock::{Now, store_us};
use crate::table::{Hasher, NEVER_MS, Slot};
use follow::{Changed, OfPrefix, Seen};
use std::sync::Arc;

/// What an advisor takes for a prefix, on all shards together.
pub const PREFIX_BYTES: usize = 1 << 20;
/// Multiples of the lifetime that a key is given: those under which it is followed where nobody says others.
const FACTORS: [(u64, u64); 7] = [(1, 4), (1, 2), (1, 1), (2, 1), (4, 1), (8, 1), (16, 1)];

/// The lifetimes under which keys are followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Lifetimes {
    /// Multiples of what each key is given.
    #[default]
    Relative,
    /// The same for all keys, milliseconds; no more than [`POINTS_MAX`].
    Of(Box<[u64]>),
}

impl Lifetimes {
    pub fn len(&self) -> usize {
        match self {
            Lifetimes::Relative => FACTORS.len(),
            Lifetimes::Of(lives_ms) => lives_ms.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn factor(&self, point: usize) -> Option<f64> {
        match self {
            Lifetimes::Relative => FACTORS.get(point).map(|(times, parts)| *times as f64 / *parts as f64),
            Lifetimes::Of(_) => None,
        }
    }

    /// A lifetime, where it is known which one is given.
    fn life_ms(&self, point: usize, given_ms: Option<u64>) -> Option<u64> {
        match self {
            Lifetimes::Relative => {
                let (times, parts) = FACTORS.get(point)?;
                Some(given_ms?.saturating_mul(*times) / parts)
            }
            Lifetimes::Of(lives_ms) => lives_ms.get(point).copied(),
        }
    }

    /// Until when a key lives that is written now and given this lifetime, or none ([`NEVER_MS`]).
    fn until_ms(&self, point: usize, given_ms: u64, now_ms: u64) -> u64 {
        let given_ms = Some(given_ms).filter(|given_ms| *given_ms != NEVER_MS);
        self.life_ms(point, given_ms).map_or(NEVER_MS, |life_ms| now_ms.saturating_add(life_ms))
    }
}

/// What an advisor is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advised {
    /// No other has had it.
    pub id: u64,
    pub db: usize,
    pub prefix: Box<[u8]>,
    pub lifetimes: Lifetimes,
}

impl Advised {
    pub fn is_of(&self, db: usize, prefix: &[u8]) -> bool {
        self.db == db && *self.prefix == *prefix
    }
}

/// All that a shard follows.
pub struct Advisor {
    prefixes: Vec<OfPrefix>,
    /// Which keys are followed has nothing to do with which shard they are on.
    hasher: ahash::RandomState,
    /// The latest moment at which anything has happened, store milliseconds.
    latest_ms: u64,
    /// Misses of keys whose deadline had passed, each counted once, however many prefixes it begins with.
    expired_misses: f64,
}

impl Advisor {
    fn new(hasher: &Hasher) -> Advisor {
        let seed = |name: &[u8]| hasher.hash(name);
        let seeds = (seed(b"sampled"), seed(b"by the"), seed(b"advisor's"), seed(b"own hash"));
        Advisor {
            prefixes: Vec::new(),
            hasher: ahash::RandomState::with_seeds(seeds.0, seeds.1, seeds.2, seeds.3),
            latest_ms: 0,
            expired_misses: 0.0,
        }
    }

    /// The prefixes that a key begins with, with the key's hash.
    fn of_key(&mut self, db: usize, key: &[u8]) -> impl Iterator<Item = (u64, &mut OfPrefix)> {
        let Advisor { prefixes, hasher, .. } = self;
        let mut of_key = prefixes.iter_mut().filter(move |of| of.governs(db, key)).peekable();
        let hash = if of_key.peek().is_some() { hasher.hash_one(key) } else { 0 };
        of_key.map(move |of| (hash, of))
    }

    /// The moment as of which something happens. What replicas and the log are told is judged as of no moment.
    fn now_ms(&mut self, now: Now) -> u64 {
        let now_ms = if now.ms == 0 { store_us() / 1000 } else { now.ms };
        self.latest_ms = self.latest_ms.max(now_ms);
        self.latest_ms
    }

    /// A key has died, or was evicted: nobody's doing.
    pub(super) fn gone(&mut self, db: usize, key: &[u8], change: Change) {
        let now_ms = self.latest_ms;
        // An element of a collection may have died and left others.
        if change.events().any(Event::takes_key) {
            let by_deadline = change.events().any(|event| event == Event::Expired);
            self.of_key(db, key).for_each(|(hash, of)| match change.cause {
                Cause::Expired => of.died(hash, by_deadline, now_ms),
                Cause::Command | Cause::Evicted => of.removed(hash, now_ms),
            });
        }
    }

    /// A database was emptied, or is another one: nothing is known of its keys.
    pub(super) fn forget(&mut self, db: usize, now: Now) {
        let now_ms = self.now_ms(now);
        self.prefixes.iter_mut().filter(|of| of.asked.db == db).for_each(|of| of.forget(now_ms));
    }
}

impl Keyspace {
    /// Follows these from now on, and no others. On so many shards.
    pub fn advise(&mut self, asked: &[Arc<Advised>], shards: usize, now: Now) {
        let mut advisor = self.effects.take_advisor().unwrap_or_else(|| Box::new(Advisor::new(&self.hasher)));
        self.counters.expired_misses += std::mem::take(&mut advisor.expired_misses);
        let now_ms = advisor.now_ms(now);
        advisor.prefixes.retain(|of| asked.iter().any(|asked| asked.id == of.asked.id));
        for asked in asked {
            if advisor.prefixes.iter().all(|of| of.asked.id != asked.id) {
                advisor.prefixes.push(OfPrefix::new(asked.clone(), PREFIX_BYTES / shards.max(1), now_ms));
            }
        }
        // The longest first: what is counted once is counted there.
        advisor.prefixes.sort_by_key(|of| std::cmp::Reverse(of.asked.prefix.len()));
        if !advisor.prefixes.is_empty() {
            self.effects.put_advisor(advisor);
        }
        self.follows_uses = self.slides || self.effects.is_advised();
    }

    /// What is to be said of one that is followed.
    pub fn advice(&mut self, id: u64, now: Now) -> Option<Advice> {
        let advisor = self.effects.advisor_mut()?;
        let now_ms = advisor.now_ms(now);
        advisor.prefixes.iter_mut().find(|of| of.asked.id == id).map(|of| of.advice(now_ms))
    }

    /// How many prefixes are followed, and the bytes that takes.
    pub fn advised(&self) -> (usize, usize) {
        let prefixes = self.effects.advisor().map_or(&[][..], |advisor| &advisor.prefixes);
        (prefixes.len(), prefixes.iter().map(OfPrefix::bytes).sum())
    }

    /// Misses of keys with advised prefixes whose deadline had passed, since the last CONFIG RESETSTAT.
    pub fn expired_misses(&self) -> f64 {
        self.counters.expired_misses + self.effects.advisor().map_or(0.0, |advisor| advisor.expired_misses)
    }

    /// What is counted begins anew; what is known of keys stays.
    pub fn reset_advice(&mut self, now: Now) {
        let Some(advisor) = self.effects.advisor_mut() else { return };
        let now_ms = advisor.now_ms(now);
        advisor.expired_misses = 0.0;
        advisor.prefixes.iter_mut().for_each(|of| of.reset(now_ms));
    }

    /// A key that is there was read.
    pub(super) fn advise_hit(&mut self, db: usize, key: Key, slot: Slot, touch: Touch, now: Now) {
        let Some(advisor) = self.effects.advisor_mut().filter(|_| touch.counts()) else { return };
        let now_ms = advisor.now_ms(now);
        let (table, nodes) = (&self.dbs[db], &self.nodes);
        for (hash, of) in advisor.of_key(db, key.bytes) {
            of.hit(hash, || Seen::new(nodes.bytes_of_key(table.entry(slot)), table.deadline_ms(slot)), now_ms);
        }
    }

    /// A key was to be read, and is not there.
    #[inline(never)]
    pub(super) fn advise_miss(&mut self, db: usize, key: Key, now: Now) {
        let Some(advisor) = self.effects.advisor_mut() else { return };
        let now_ms = advisor.now_ms(now);
        let mut expired = None;
        advisor.of_key(db, key.bytes).for_each(|(hash, of)| {
            let of_prefix = of.miss(hash, now_ms);
            expired = expired.or(Some(of_prefix));
        });
        advisor.expired_misses += expired.unwrap_or(0.0);
    }

    /// A command, or a policy, has changed a key.
    #[inline(never)]
    pub(super) fn advise_change(&mut self, db: usize, key: Key, change: Change, now: Now) {
        let Some(advisor) = self.effects.advisor_mut() else { return };
        let now_ms = advisor.now_ms(now);
        let (table, nodes) = (&self.dbs[db], &self.nodes);
        let look = || {
            let slot = table.find(key).filter(|slot| !table.is_dead(*slot, now_ms))?;
            Some(Seen::new(nodes.bytes_of_key(table.entry(slot)), table.deadline_ms(slot)))
        };
        let changed = Changed::of(&change);
        for (hash, of) in advisor.of_key(db, key.bytes) {
            of.changed(hash, changed, look, now_ms);
        }
    }
}

#[cfg(test)]
mod model_test;
#[cfg(test)]
mod tests;
