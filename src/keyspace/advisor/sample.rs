//! Marks of a sample of keys, in fixed memory.
//!
//! A key is in the sample where its hash is below a threshold, so that all that happens to it is seen or nothing is
//! (Waldspurger, Park, Garthwaite, Ahmad: Efficient MRC Construction with SHARDS, FAST 2015). When there is no room the
//! threshold falls, and what is seen stands for more from then on. The table is of one size: linear probing, and what is
//! taken out is replaced by those who had to go on because of it (Knuth, The Art of Computer Programming 3, 6.4,
//! algorithm R).

use crate::table::NEVER_MS;

/// How many lifetimes a key is followed under.
pub const POINTS_MAX: usize = 8;

/// What has become of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Alive,
    /// Its deadline has passed.
    Expired,
    /// It was deleted, evicted or flushed.
    Removed,
}

/// What is known of one key of the sample.
#[derive(Clone, Copy)]
pub struct Mark {
    /// Zero where this is nobody's.
    hash: u64,
    /// When its value was changed last; [`NEVER_MS`] where nobody saw that.
    pub changed_ms: u64,
    /// Until when the bytes that it takes are counted.
    pub settled_ms: u64,
    /// [`NEVER_MS`] where it has none, here and below.
    pub deadline_ms: u64,
    /// The lifetime that it was given last.
    pub life_ms: u64,
    pub bytes: u32,
    pub state: State,
    /// It was read since its value was written; one that is gone was missed since then.
    pub is_sought: bool,
    /// The lifetimes, a bit each, under which it would have been missed since it was gone.
    pub missed: u8,
    /// Those under which it would have been written when it was written last.
    pub written: u8,
    /// Until when it would live under each lifetime.
    pub until_ms: [u64; POINTS_MAX],
}

const NOBODY: Mark = Mark {
    hash: 0,
    changed_ms: NEVER_MS,
    settled_ms: 0,
    deadline_ms: NEVER_MS,
    life_ms: NEVER_MS,
    bytes: 0,
    state: State::Removed,
    is_sought: false,
    missed: 0,
    written: 0,
    until_ms: [0; POINTS_MAX],
};

impl Mark {
    /// Whether it lives at this moment, as far as is known.
    pub fn lives(&self, now_ms: u64) -> bool {
        self.state == State::Alive && self.deadline_ms >= now_ms
    }

    /// The key is gone, and would be under every lifetime.
    pub fn remove(&mut self) {
        (self.state, self.is_sought, self.missed) = (State::Removed, false, 0);
        self.until_ms = [0; POINTS_MAX];
    }

    /// The lifetimes, a bit each, under which the key lives at this moment.
    pub fn alive(&self, now_ms: u64) -> u8 {
        let lives = |(point, until_ms): (usize, &u64)| u8::from(*until_ms >= now_ms) << point;
        self.until_ms.iter().enumerate().map(lives).sum()
    }

    /// Whether it tells nothing of what is to come: it is gone, and would be under every lifetime.
    fn is_spent(&self, now_ms: u64) -> bool {
        !self.lives(now_ms) && self.until_ms.iter().all(|until_ms| *until_ms < now_ms)
    }
}

pub struct Sample {
    /// Of which an eighth at least is nobody's.
    slots: Box<[Mark]>,
    len: usize,
    threshold: u64,
}

impl Sample {
    /// One that takes no more memory than this.
    pub fn new(bytes: usize) -> Sample {
        let slots = (bytes / size_of::<Mark>()).max(8);
        Sample { slots: vec![NOBODY; slots].into(), len: 0, threshold: u64::MAX }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// The share of keys that are in the sample.
    pub fn share(&self) -> f64 {
        self.threshold as f64 / u64::MAX as f64
    }

    #[inline]
    pub fn has(&self, hash: u64) -> bool {
        hash < self.threshold
    }

    fn room(&self) -> usize {
        self.slots.len() - self.slots.len() / 8
    }

    pub fn is_full(&self) -> bool {
        self.len >= self.room()
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    fn home(&self, hash: u64) -> usize {
        // Hashes of a sample are alike in their high bits.
        let spread = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(spread) * self.slots.len() as u128) >> 64) as usize
    }

    /// Where a key's mark is, or would be.
    fn place(&self, hash: u64) -> usize {
        let mut at = self.home(hash);
        while self.slots[at].hash != 0 && self.slots[at].hash != hash {
            at = self.next(at);
        }
        at
    }

    pub fn get(&mut self, hash: u64) -> Option<&mut Mark> {
        let at = self.place(hash.max(1));
        Some(&mut self.slots[at]).filter(|mark| mark.hash != 0)
    }

    /// The mark of a key that has none yet. There must be room.
    pub fn insert(&mut self, hash: u64, now_ms: u64) -> &mut Mark {
        let hash = hash.max(1);
        let at = self.place(hash);
        debug_assert!(self.slots[at].hash == 0 && !self.is_full());
        self.len += 1;
        self.slots[at] = Mark { hash, settled_ms: now_ms, ..NOBODY };
        &mut self.slots[at]
    }

    pub fn marks(&mut self) -> impl Iterator<Item = &mut Mark> {
        self.slots.iter_mut().filter(|mark| mark.hash != 0)
    }

    /// Forgets what tells nothing any more, and where that is not enough whatever is beyond a lower threshold. The bytes
    /// of all have to be counted before.
    pub fn make_room(&mut self, now_ms: u64) {
        self.retain(|mark| !mark.is_spent(now_ms));
        while self.len > self.room() / 8 * 7 {
            let threshold = self.threshold / 8 * 7;
            self.threshold = threshold;
            self.retain(|mark| mark.hash < threshold);
        }
    }

    fn retain(&mut self, keep: impl Fn(&Mark) -> bool) {
        let mut at = 0;
        while at < self.slots.len() {
            if self.slots[at].hash == 0 || keep(&self.slots[at]) {
                at += 1;
            } else {
                // Another may come here, which is looked at then.
                self.remove(at);
            }
        }
    }

    fn remove(&mut self, at: usize) {
        self.len -= 1;
        let (mut hole, mut at) = (at, self.next(at));
        while self.slots[at].hash != 0 {
            let home = self.home(self.slots[at].hash);
            // Whether the hole is on the way from home to here, round the end.
            let is_on_the_way = if home <= at { home <= hole && hole < at } else { home <= hole || hole < at };
            if is_on_the_way {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.next(at);
        }
        self.slots[hole] = NOBODY;
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.slots.fill(NOBODY);
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_is_a_map_of_what_is_below_the_threshold() {
        let mut rng = fastrand::Rng::with_seed(3);
        let (mut sample, mut model) = (Sample::new(97 * size_of::<Mark>()), BTreeMap::new());
        for now_ms in 1..30_000_u64 {
            let hash = rng.u64(..) >> rng.u32(..8);
            if !sample.has(hash) {
                continue;
            }
            if sample.is_full() {
                sample.make_room(now_ms);
                model.retain(|hash, mark: &mut Mark| sample.has(*hash) && !mark.is_spent(now_ms));
                assert_eq!(sample.len(), model.len());
                assert!(!sample.is_full());
            }
            if sample.has(hash) && !model.contains_key(&hash) {
                let mark = sample.insert(hash, now_ms);
                mark.until_ms[0] = now_ms + rng.u64(..3_000);
                model.insert(hash, *mark);
            }
            for (hash, mark) in &model {
                assert_eq!(sample.get(*hash).map(|found| found.until_ms[0]), Some(mark.until_ms[0]));
            }
        }
        assert!(sample.share() < 1.0 && sample.share() > 0.0);
        assert_eq!(sample.marks().count(), model.len());
        sample.clear();
        assert_eq!((sample.len(), sample.marks().count()), (0, 0));
    }
}
