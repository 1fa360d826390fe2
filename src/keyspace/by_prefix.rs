//! What is known by a prefix, where there are many of them: a hash table that can be asked ahead.
//!
//! A slot is a cache line and has all of an entry in it, so that where a prefix will be looked for can be said without
//! waiting for memory. Collisions go to the next slot (linear probing), and whoever is taken out is replaced by those who
//! had to go on because of it (Knuth, The Art of Computer Programming 3, 6.4, algorithm R). Prefixes that are too long for a
//! slot are in a table of their own.

use crate::observe::GiveBack;
use crate::table::block::prefetch;
use std::collections::HashMap;

/// Bytes of a prefix that find room in a slot.
const SHORT: usize = 47;
/// The fewest slots.
const SLOTS_MIN: usize = 16;

#[repr(align(64))]
struct Slot<V> {
    value: Option<V>,
    len: u8,
    prefix: [u8; SHORT],
}

impl<V> Slot<V> {
    fn empty() -> Slot<V> {
        Slot { value: None, len: 0, prefix: [0; SHORT] }
    }

    fn prefix(&self) -> &[u8] {
        &self.prefix[..usize::from(self.len)]
    }
}

fn empty_slots<V>(count: usize) -> Vec<Slot<V>> {
    std::iter::repeat_with(Slot::empty).take(count).collect()
}

pub(super) struct ByPrefix<V> {
    /// A power of two, of which at least a quarter is empty.
    slots: Vec<Slot<V>>,
    count: usize,
    long: HashMap<Box<[u8]>, V, ahash::RandomState>,
    state: ahash::RandomState,
}

impl<V> Default for ByPrefix<V> {
    fn default() -> ByPrefix<V> {
        ByPrefix {
            slots: empty_slots(SLOTS_MIN),
            count: 0,
            long: HashMap::default(),
            state: ahash::RandomState::default(),
        }
    }
}

impl<V> ByPrefix<V> {
    pub fn len(&self) -> usize {
        self.count + self.long.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where a short prefix belongs.
    #[inline]
    fn home(&self, prefix: &[u8]) -> usize {
        self.state.hash_one(prefix) as usize & (self.slots.len() - 1)
    }

    /// Where a short prefix is, or would be.
    #[inline]
    fn place(&self, prefix: &[u8]) -> usize {
        let mut at = self.home(prefix);
        while self.slots[at].value.is_some() && self.slots[at].prefix() != prefix {
            at = self.next(at);
        }
        at
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// Asks the cache for what [`ByPrefix::get`] will look at.
    #[inline]
    pub fn prefetch(&self, prefix: &[u8]) {
        if prefix.len() <= SHORT {
            prefetch(&raw const self.slots[self.home(prefix)]);
        }
    }

    #[inline]
    pub fn get(&self, prefix: &[u8]) -> Option<&V> {
        if prefix.len() > SHORT {
            return self.long.get(prefix);
        }
        self.slots[self.place(prefix)].value.as_ref()
    }

    pub fn get_mut(&mut self, prefix: &[u8]) -> Option<&mut V> {
        if prefix.len() > SHORT {
            return self.long.get_mut(prefix);
        }
        let at = self.place(prefix);
        self.slots[at].value.as_mut()
    }

    /// Returns what was there.
    pub fn insert(&mut self, prefix: &[u8], value: V) -> Option<V> {
        if prefix.len() > SHORT {
            return self.long.insert(prefix.into(), value);
        }
        if 4 * (self.count + 1) > 3 * self.slots.len() {
            self.resize(2 * self.slots.len());
        }
        let at = self.place(prefix);
        let slot = &mut self.slots[at];
        let before = slot.value.replace(value);
        if before.is_none() {
            slot.len = prefix.len() as u8;
            slot.prefix[..prefix.len()].copy_from_slice(prefix);
            self.count += 1;
        }
        before
    }

    pub fn remove(&mut self, prefix: &[u8]) -> Option<V> {
        if prefix.len() > SHORT {
            let before = self.long.remove(prefix);
            self.long.give_back();
            return before;
        }
        let mut gap = self.place(prefix);
        let before = self.slots[gap].value.take()?;
        self.count -= 1;
        let mut at = self.next(gap);
        while self.slots[at].value.is_some() {
            let home = self.home(self.slots[at].prefix());
            // It may lie where it was looked for before it was found where it is.
            let distance = |from: usize| at.wrapping_sub(from) & (self.slots.len() - 1);
            if distance(home) >= distance(gap) {
                self.slots.swap(gap, at);
                gap = at;
            }
            at = self.next(at);
        }
        if self.slots.len() > SLOTS_MIN && 8 * self.count < self.slots.len() {
            self.resize(self.slots.len() / 2);
        }
        Some(before)
    }

    fn resize(&mut self, slots: usize) {
        for slot in std::mem::replace(&mut self.slots, empty_slots(slots)) {
            if slot.value.is_some() {
                let at = self.place(slot.prefix());
                self.slots[at] = slot;
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &V)> {
        let short = self.slots.iter().filter_map(|slot| Some((slot.prefix(), slot.value.as_ref()?)));
        short.chain(self.long.iter().map(|(prefix, value)| (&**prefix, value)))
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut()).chain(self.long.values_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_slot_is_a_cache_line() {
        assert_eq!(size_of::<Slot<(std::sync::Arc<u64>, Option<Box<u64>>)>>(), 64);
    }

    #[test]
    fn like_any_other_map() {
        let mut rng = fastrand::Rng::with_seed(5);
        let (mut map, mut model) = (ByPrefix::default(), BTreeMap::new());
        for step in 0..if cfg!(miri) { 1_000 } else { 100_000 } {
            // It grows, and shrinks again.
            let (most, removes) = [(500, 1), (5_000, 2), (100, 7)][step / 1_000 % 3];
            let mut prefix = rng.u32(..most).to_string().into_bytes();
            prefix.resize([prefix.len(), SHORT, SHORT + 1][usize::from(rng.u8(..3))], b'x');
            if rng.u8(..10) < removes {
                assert_eq!(map.remove(&prefix), model.remove(&prefix));
            } else {
                assert_eq!(map.insert(&prefix, step), model.insert(prefix, step));
            }
            let asked = rng.u32(..most).to_string();
            map.prefetch(asked.as_bytes());
            assert_eq!(map.get(asked.as_bytes()), model.get(asked.as_bytes()));
            assert_eq!(map.get_mut(asked.as_bytes()), model.get_mut(asked.as_bytes()));
            assert_eq!(map.len(), model.len());
        }
        let all: BTreeMap<Vec<u8>, usize> = map.iter().map(|(prefix, value)| (prefix.to_vec(), *value)).collect();
        assert_eq!(all, model);
        assert_eq!(map.values_mut().count(), model.len());
        model.keys().for_each(|prefix| assert!(map.remove(prefix).is_some()));
        assert!(map.is_empty() && map.slots.len() == SLOTS_MIN);
    }
}
