//! Leases: which keys somebody was told to compute anew, and until when nobody else is (`GETFRESH`).
//!
//! They are kept beside the data, so that a read changes no key: nothing is propagated, and a restart forgets them. A lease
//! ends by itself, or when a command changes its key. Keys are known by their hashes, which nobody can choose: where two
//! were alike, one would wait for the other's lease.
//!
//! There is room for [`SETS`] x [`WAYS`] leases a shard, allocated with the first. A key's lease stands in one of the
//! places of its set; where all are held, the lease that would end first gives way, and its key may be computed twice.

use super::swapped;
use crate::clock::Now;

const SETS: usize = 1 << SET_BITS;
const SET_BITS: u32 = 12;
const WAYS: usize = 8;

#[derive(Clone, Copy, Default)]
struct Lease {
    hash: u64,
    /// Store milliseconds; zero where nobody has had this place.
    until_ms: u64,
    db: usize,
}

#[derive(Default)]
pub struct Leases {
    /// Empty before the first.
    sets: Vec<[Lease; WAYS]>,
    /// Places that are taken, perhaps by leases that have ended.
    taken: usize,
}

/// The set of a key (Fibonacci hashing).
fn set_of(hash: u64) -> usize {
    (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SET_BITS)) as usize
}

impl Lease {
    fn is_of(&self, db: usize, hash: u64) -> bool {
        self.until_ms > 0 && (self.db, self.hash) == (db, hash)
    }
}

impl Leases {
    /// Until when somebody has the lease of a key.
    pub fn until_ms(&self, db: usize, hash: u64, now: Now) -> Option<u64> {
        let lease = self.sets.get(set_of(hash))?.iter().find(|lease| lease.is_of(db, hash))?;
        Some(lease.until_ms).filter(|until_ms| *until_ms > now.ms)
    }

    /// Gives the lease of a key away.
    pub fn grant(&mut self, db: usize, hash: u64, until_ms: u64) {
        if self.sets.is_empty() {
            self.sets = vec![<[Lease; WAYS]>::default(); SETS];
        }
        let set = &mut self.sets[set_of(hash)];
        let own = set.iter().position(|lease| lease.is_of(db, hash));
        let earliest = || (0..WAYS).min_by_key(|place| set[*place].until_ms).unwrap_or(0);
        let place = own.unwrap_or_else(earliest);
        self.taken += usize::from(set[place].until_ms == 0);
        set[place] = Lease { hash, until_ms, db };
    }

    /// A command has changed a key: whoever computed it is done, or overtaken.
    #[inline]
    pub fn end(&mut self, db: usize, hash: u64) {
        if self.taken > 0 {
            self.free(|lease| lease.is_of(db, hash), Some(set_of(hash)));
        }
    }

    /// A database was emptied.
    pub fn end_all(&mut self, db: usize) {
        if self.taken > 0 {
            self.free(|lease| lease.until_ms > 0 && lease.db == db, None);
        }
    }

    #[cold]
    fn free(&mut self, ends: impl Fn(&Lease) -> bool, set: Option<usize>) {
        let sets = match set {
            Some(set) => &mut self.sets[set..=set],
            None => &mut self.sets[..],
        };
        for lease in sets.iter_mut().flatten().filter(|lease| ends(lease)) {
            *lease = Lease::default();
            self.taken -= 1;
        }
    }

    /// Two databases have changed places.
    pub fn swap(&mut self, a: usize, b: usize) {
        for lease in self.sets.iter_mut().flatten() {
            lease.db = swapped(a, b)(lease.db);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn at(ms: u64) -> Now {
        Now::from_ms(ms)
    }

    #[test]
    fn a_lease_ends_with_its_time_or_with_a_change() {
        let mut leases = Leases::default();
        leases.end(0, 7);
        assert_eq!(leases.until_ms(0, 7, at(1)), None);
        leases.grant(0, 7, 100);
        leases.grant(1, 7, 200);
        assert_eq!(leases.until_ms(0, 7, at(99)), Some(100));
        assert_eq!(leases.until_ms(0, 7, at(100)), None);
        leases.end(0, 7);
        assert_eq!((leases.until_ms(0, 7, at(1)), leases.until_ms(1, 7, at(1))), (None, Some(200)));
        leases.swap(1, 2);
        assert_eq!(leases.until_ms(2, 7, at(1)), Some(200));
        leases.end_all(1);
        assert_eq!(leases.until_ms(2, 7, at(1)), Some(200));
        leases.end_all(2);
        assert_eq!((leases.until_ms(2, 7, at(1)), leases.taken), (None, 0));
    }

    /// However many are asked for, the room does not grow; those that end first give way.
    #[test]
    fn the_room_is_bounded() {
        let (mut leases, mut rng) = (Leases::default(), fastrand::Rng::with_seed(4));
        for n in 0..20 * SETS as u64 * WAYS as u64 {
            leases.grant(0, rng.u64(..), 1000 + n);
        }
        assert_eq!(leases.taken, SETS * WAYS);
        assert_eq!(leases.sets.len() * size_of::<[Lease; WAYS]>(), 768 << 10);
        leases.grant(0, 5, u64::MAX);
        for _ in 0..SETS * WAYS {
            leases.grant(0, rng.u64(..), 2_000_000);
        }
        assert_eq!(leases.until_ms(0, 5, at(1)), Some(u64::MAX));
    }

    #[test]
    fn a_model_knows_the_same() {
        let (mut leases, mut model, mut rng) = (Leases::default(), HashMap::new(), fastrand::Rng::with_seed(5));
        for now_ms in 1..50_000 {
            let (db, hash) = (rng.usize(..3), rng.u64(..40) << 58 | rng.u64(..8));
            match rng.u32(..100) {
                0 => {
                    leases.end_all(db);
                    model.retain(|(of, _), _| *of != db);
                }
                1..40 => {
                    leases.end(db, hash);
                    model.remove(&(db, hash));
                }
                _ => {
                    let expected = model.get(&(db, hash)).copied().filter(|until_ms| *until_ms > now_ms);
                    assert_eq!(leases.until_ms(db, hash, at(now_ms)), expected);
                    if expected.is_none() {
                        let until_ms = now_ms + rng.u64(1..100);
                        leases.grant(db, hash, until_ms);
                        model.insert((db, hash), until_ms);
                    }
                }
            }
        }
    }
}
