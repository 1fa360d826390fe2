//! What a walk that writes down one moment remembers of what has changed meanwhile, in small portions: one large set or
//! vector would stop its shard whenever it grows, since all of it is moved then.

use super::hash::spread;
use ahash::RandomState;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// So many things of the walk share a set.
const TOGETHER: usize = 2048;
const SETS_MAX: usize = 1 << 16;
/// What [`Lots`] give out at a time.
const LOT: usize = 256;

type Set = HashSet<(u64, u64), BuildHasherDefault<OneOfThem>>;

/// Things that have changed, by two hashes: two that are alike in both are not to be expected. There is a set for each
/// stretch of positions, so that the walk leaves behind what it does not ask for any more.
pub struct Changed {
    sets: Box<[Set]>,
    /// The sets before this one were given up.
    first: usize,
    /// Anything has changed.
    has_any: bool,
    hashes: RandomState,
}

impl Changed {
    /// For a walk through so many things.
    pub fn among(things: usize) -> Changed {
        let sets = (things / TOGETHER).clamp(1, SETS_MAX);
        Changed {
            sets: (0..sets).map(|_| HashSet::default()).collect(),
            first: 0,
            has_any: false,
            hashes: RandomState::default(),
        }
    }

    /// Whether it is the first change of this one.
    pub fn insert(&mut self, hash: u64, name: &[u8]) -> bool {
        let name_hash = self.hashes.hash_one(name);
        self.has_any = true;
        let set = self.set_at(spread(hash));
        self.sets[set].insert((hash, name_hash))
    }

    pub fn contains(&self, hash: impl FnOnce() -> u64, name: &[u8]) -> bool {
        if !self.has_any {
            return false;
        }
        let hash = hash();
        let set = &self.sets[self.set_at(spread(hash))];
        !set.is_empty() && set.contains(&(hash, self.hashes.hash_one(name)))
    }

    /// Nobody asks for what lies before this position any more.
    pub fn forget_before(&mut self, position: u64) {
        let first = self.set_at(position);
        self.sets[self.first..first.max(self.first)].iter_mut().for_each(|set| *set = HashSet::default());
        self.first = self.first.max(first);
    }

    fn set_at(&self, position: u64) -> usize {
        ((u128::from(position) * self.sets.len() as u128) >> 64) as usize
    }
}

/// The second of two hashes is good enough a hash of both.
#[derive(Default)]
struct OneOfThem(u64);

impl Hasher for OneOfThem {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = self.0.rotate_left(32) ^ hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Things that are given out a lot at a time, the last ones first.
pub struct Lots<T>(Vec<Vec<T>>);

impl<T> Default for Lots<T> {
    fn default() -> Lots<T> {
        Lots(Vec::new())
    }
}

impl<T> Lots<T> {
    pub fn push(&mut self, thing: T) {
        match self.0.last_mut().filter(|lot| lot.len() < LOT) {
            Some(lot) => lot.push(thing),
            None => self.0.push(vec![thing]),
        }
    }

    pub fn pop(&mut self) -> Option<Vec<T>> {
        self.0.pop()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Hasher;

    #[test]
    fn what_has_changed_is_found_until_it_is_forgotten() {
        for things in [0, 1, 5_000, 100_000] {
            let (hasher, mut changed) = (Hasher::new(7, 1), Changed::among(things));
            let names: Vec<String> = (0..things).map(|i| format!("name{i}")).collect();
            let hash = |name: &String| hasher.hash(name.as_bytes());
            for name in names.iter().step_by(3) {
                assert!(changed.insert(hash(name), name.as_bytes()));
                assert!(!changed.insert(hash(name), name.as_bytes()));
            }
            for at in [0, u64::MAX / 3, u64::MAX / 2] {
                changed.forget_before(at);
                let ahead = |name: &&String| spread(hash(name)) >= at;
                for (i, name) in names.iter().enumerate().filter(|(_, name)| ahead(name)) {
                    assert_eq!(changed.contains(|| hash(name), name.as_bytes()), i % 3 == 0, "{name}");
                }
            }
            let (kept, most) = (changed.sets.iter().map(HashSet::len).sum::<usize>(), things / 3 + 1);
            assert!(kept <= most * 2 / 3 + TOGETHER, "{kept} of {most}");
            assert!(changed.sets.iter().all(|set| set.len() < TOGETHER), "none is large");
        }
    }

    #[test]
    fn lots_are_given_out_from_the_end() {
        let mut lots = Lots::default();
        (0..600).for_each(|i| lots.push(i));
        let mut seen = Vec::new();
        while let Some(lot) = lots.pop() {
            assert!(lot.len() <= LOT);
            seen.extend(lot);
        }
        assert!(lots.is_empty());
        seen.sort_unstable();
        assert_eq!(seen, (0..600).collect::<Vec<_>>());
    }
}
