//! What becomes of a mark when its key is read, written, or goes.
//!
//! Under each lifetime the key lives from a write on, for so long. A read is a hit there as long as it lives; the reader of
//! a miss writes the value anew, as a cache is used. Whose miss it is decides when: where the key is there in truth and
//! would not be, nobody is going to write it, and it is written at once; where it is not there in truth either, the next
//! write is that of the reader, and it is no write where the key would have been there. A write that nobody had missed the
//! key before is one everywhere.

use super::Advised;
use super::advice::{Advice, Counts};
use super::sample::{Mark, POINTS_MAX, Sample, State};
use crate::keyspace::{Change, Event};
use crate::table::NEVER_MS;
use std::sync::Arc;

const ALL: u8 = u8::MAX;
const _: () = assert!(POINTS_MAX <= u8::BITS as usize, "a mark has a bit for each");

/// What kind of a change it was.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Changed {
    /// Another value has come.
    Value,
    /// The value was changed where it is.
    Part,
    /// The deadline alone.
    Deadline,
}

impl Changed {
    pub fn of(change: &Change) -> Changed {
        let is_date = |event| matches!(event, Event::Expire | Event::Persist);
        match () {
            () if change.events().any(Event::brings_value) => Changed::Value,
            () if change.events().next().is_some() && change.events().all(is_date) => Changed::Deadline,
            () => Changed::Part,
        }
    }
}

/// What is known of the keys with a prefix.
pub(super) struct OfPrefix {
    pub asked: Arc<Advised>,
    sample: Sample,
    counts: Box<Counts>,
}

/// A key as it is.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    bytes: u32,
    /// [`NEVER_MS`] where it has none.
    deadline_ms: u64,
}

impl Seen {
    pub fn new(bytes: usize, deadline_ms: Option<u64>) -> Seen {
        Seen { bytes: bytes.try_into().unwrap_or(u32::MAX), deadline_ms: deadline_ms.unwrap_or(NEVER_MS) }
    }

    /// How long it has to live.
    fn life_ms(&self, now_ms: u64) -> u64 {
        if self.deadline_ms == NEVER_MS { NEVER_MS } else { self.deadline_ms.saturating_sub(now_ms) }
    }
}

impl OfPrefix {
    /// It takes no more memory than this.
    pub fn new(asked: Arc<Advised>, bytes: usize, now_ms: u64) -> OfPrefix {
        let sample = Sample::new(bytes.saturating_sub(size_of::<Counts>()));
        OfPrefix { asked, sample, counts: Box::new(Counts::since(now_ms)) }
    }

    #[inline]
    pub fn governs(&self, db: usize, key: &[u8]) -> bool {
        self.asked.db == db && key.starts_with(&self.asked.prefix)
    }

    pub fn bytes(&self) -> usize {
        self.sample.bytes() + size_of::<Counts>()
    }

    /// How many keys one of the sample stands for.
    fn weight(&self) -> f64 {
        1.0 / self.sample.share()
    }

    pub fn hit(&mut self, hash: u64, see: impl Fn() -> Seen, now_ms: u64) {
        self.counts.reads += 1;
        self.counts.hits += 1;
        if !self.sample.has(hash) {
            return;
        }
        let (weight, seen) = (self.weight(), see());
        let OfPrefix { asked, sample, counts } = self;
        let Some(mark) = sample.get(hash).filter(|mark| mark.lives(now_ms)) else {
            counts.unknown_reads += weight;
            return self.meet(hash, seen, now_ms);
        };
        counts.settle(mark, now_ms, weight);
        if mark.changed_ms != NEVER_MS {
            counts.ages.add(now_ms.saturating_sub(mark.changed_ms), weight);
        }
        (mark.bytes, mark.deadline_ms, mark.is_sought) = (seen.bytes, seen.deadline_ms, true);
        for point in 0..asked.lifetimes.len() {
            if mark.until_ms[point] < now_ms {
                counts.misses_at[point] += weight;
                mark.until_ms[point] = asked.lifetimes.until_ms(point, mark.life_ms, now_ms);
            }
        }
    }

    /// Returns how many misses of keys whose deadline had passed this one stands for.
    pub fn miss(&mut self, hash: u64, now_ms: u64) -> f64 {
        self.counts.reads += 1;
        if !self.sample.has(hash) {
            return 0.0;
        }
        let weight = self.weight();
        let OfPrefix { asked, sample, counts } = self;
        let Some(mark) = sample.get(hash) else {
            counts.cold_misses += weight;
            counts.misses_at.iter_mut().for_each(|misses| *misses += weight);
            return 0.0;
        };
        counts.settle(mark, now_ms, weight);
        bury(mark, counts, weight, now_ms);
        if mark.state == State::Alive {
            // It went when nobody saw it.
            mark.remove();
        }
        for point in 0..asked.lifetimes.len() {
            if mark.until_ms[point] < now_ms {
                counts.misses_at[point] += weight;
                mark.missed |= 1 << point;
            }
        }
        mark.is_sought = true;
        let is_expired = mark.state == State::Expired;
        let of_cause = if is_expired { &mut counts.expired_misses } else { &mut counts.removed_misses };
        *of_cause += weight;
        if is_expired { weight } else { 0.0 }
    }

    /// `look` sees the key as it is now, unless it is gone.
    pub fn changed(&mut self, hash: u64, changed: Changed, look: impl Fn() -> Option<Seen>, now_ms: u64) {
        if !self.sample.has(hash) {
            return;
        }
        let Some(seen) = look() else {
            return self.removed(hash, now_ms);
        };
        let weight = self.weight();
        let OfPrefix { sample, counts, .. } = self;
        let Some(mark) = sample.get(hash) else {
            return match changed {
                Changed::Deadline => self.meet(hash, seen, now_ms),
                Changed::Value | Changed::Part => self.written(hash, seen, ALL, now_ms),
            };
        };
        counts.settle(mark, now_ms, weight);
        bury(mark, counts, weight, now_ms);
        let alive = mark.alive(now_ms);
        match changed {
            _ if mark.state != State::Alive => {
                let points = if mark.is_sought { mark.missed } else { ALL };
                self.written(hash, seen, points, now_ms);
            }
            // The first deadline of a value, or one that it is given at once, is as if it had come with it.
            Changed::Deadline if mark.deadline_ms == NEVER_MS || mark.changed_ms == now_ms => {
                let points = mark.written;
                self.dated(hash, seen, points, now_ms);
            }
            Changed::Deadline => self.dated(hash, seen, alive, now_ms),
            Changed::Part if mark.deadline_ms == seen.deadline_ms => {
                // A deadline that comes behind this is one everywhere, unless the value waits for its first one.
                let written = if mark.deadline_ms == NEVER_MS { mark.written } else { ALL };
                self.written(hash, seen, !alive, now_ms);
                self.sample.get(hash).into_iter().for_each(|mark| mark.written = written);
            }
            Changed::Part | Changed::Value => self.written(hash, seen, ALL, now_ms),
        }
    }

    /// A key is there that was written when nobody saw it. It is as if it had just been, but for its age.
    fn meet(&mut self, hash: u64, seen: Seen, now_ms: u64) {
        let Some(mark) = self.open(hash, now_ms) else { return };
        (mark.state, mark.is_sought, mark.written, mark.missed) = (State::Alive, true, ALL, 0);
        (mark.changed_ms, mark.life_ms) = (NEVER_MS, seen.life_ms(now_ms));
        self.lives_on(hash, seen, ALL, now_ms);
    }

    /// The value of a key was written, under these lifetimes.
    fn written(&mut self, hash: u64, seen: Seen, points: u8, now_ms: u64) {
        let Some(mark) = self.open(hash, now_ms) else { return };
        (mark.state, mark.is_sought, mark.written, mark.missed) = (State::Alive, false, points, 0);
        mark.changed_ms = now_ms;
        self.dated(hash, seen, points, now_ms);
    }

    /// A key that has a mark was given a deadline, or has the one it had, and under these lifetimes another one.
    fn dated(&mut self, hash: u64, seen: Seen, points: u8, now_ms: u64) {
        let weight = self.weight();
        let OfPrefix { sample, counts, .. } = self;
        let Some(mark) = sample.get(hash) else { return };
        if mark.deadline_ms != seen.deadline_ms {
            mark.life_ms = seen.life_ms(now_ms);
            if mark.life_ms != NEVER_MS {
                counts.lives.add(mark.life_ms, weight);
            }
        }
        self.lives_on(hash, seen, points, now_ms);
    }

    fn lives_on(&mut self, hash: u64, seen: Seen, points: u8, now_ms: u64) {
        let OfPrefix { asked, sample, .. } = self;
        let Some(mark) = sample.get(hash) else { return };
        (mark.bytes, mark.deadline_ms) = (seen.bytes, seen.deadline_ms);
        for point in (0..asked.lifetimes.len()).filter(|point| points & 1 << point != 0) {
            mark.until_ms[point] = asked.lifetimes.until_ms(point, mark.life_ms, now_ms);
        }
    }

    /// The mark of a key, new or not, whose bytes are counted up to now. `None` where the key is not in the sample, now
    /// that there was to be room for it.
    fn open(&mut self, hash: u64, now_ms: u64) -> Option<&mut Mark> {
        if self.sample.get(hash).is_none() {
            if self.sample.is_full() {
                self.settle_all(now_ms);
                self.sample.make_room(now_ms);
            }
            if !self.sample.has(hash) {
                return None;
            }
            self.sample.insert(hash, now_ms);
        }
        let weight = self.weight();
        let OfPrefix { sample, counts, .. } = self;
        let mark = sample.get(hash)?;
        counts.settle(mark, now_ms, weight);
        Some(mark)
    }

    fn settle_all(&mut self, now_ms: u64) {
        let weight = self.weight();
        let OfPrefix { sample, counts, .. } = self;
        sample.marks().for_each(|mark| counts.settle(mark, now_ms, weight));
    }

    /// A key has died, by its deadline or since all that was in it has.
    pub fn died(&mut self, hash: u64, by_deadline: bool, now_ms: u64) {
        if !self.sample.has(hash) {
            return;
        }
        let weight = self.weight();
        let OfPrefix { sample, counts, .. } = self;
        let Some(mark) = sample.get(hash).filter(|mark| mark.state == State::Alive) else { return };
        // The latest moment of which anybody has heard may be before the deadline.
        let at_ms = if by_deadline && mark.deadline_ms != NEVER_MS { now_ms.max(mark.deadline_ms) } else { now_ms };
        counts.settle(mark, at_ms, weight);
        die(mark, counts, weight);
    }

    /// A key was deleted, or evicted.
    pub fn removed(&mut self, hash: u64, now_ms: u64) {
        if !self.sample.has(hash) {
            return;
        }
        let weight = self.weight();
        let OfPrefix { sample, counts, .. } = self;
        if let Some(mark) = sample.get(hash) {
            counts.settle(mark, now_ms, weight);
            mark.remove();
        }
    }

    pub fn forget(&mut self, now_ms: u64) {
        self.settle_all(now_ms);
        self.sample.clear();
    }

    pub fn reset(&mut self, now_ms: u64) {
        self.settle_all(now_ms);
        *self.counts = Counts::since(now_ms);
    }

    pub fn advice(&mut self, now_ms: u64) -> Advice {
        self.settle_all(now_ms);
        let said = (self.asked.lifetimes.clone(), Counts::clone(&self.counts));
        Advice::new(said, now_ms, (self.sample.len(), self.sample.share()), self.bytes())
    }
}

/// A key whose deadline has passed may be there still, hidden, until it is taken out: it is as if it was.
fn bury(mark: &mut Mark, counts: &mut Counts, weight: f64, now_ms: u64) {
    if mark.state == State::Alive && !mark.lives(now_ms) {
        die(mark, counts, weight);
    }
}

fn die(mark: &mut Mark, counts: &mut Counts, weight: f64) {
    counts.deaths += weight;
    counts.unread_deaths += if mark.is_sought { 0.0 } else { weight };
    (mark.state, mark.is_sought, mark.missed) = (State::Expired, false, 0);
}
