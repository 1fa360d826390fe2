//! Room that a table has and does not need.
//!
//! A table whose entries clients make keeps its room when they are gone. Who has named very many keys once, and has hung up, would
//! have taken that memory from everybody for good: it counts against the ceiling, and no eviction gives it back.

use indexmap::IndexMap;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// A table that has room for no more than this is left as it is.
const ROOM_KEPT: usize = 1_024;
/// It is made smaller when it has room for so many times what is in it ...
const MOSTLY_EMPTY: usize = 8;
/// ... and has room for so many times that then.
const ROOM_LEFT: usize = 2;

/// A table that can give room back. To be asked behind whatever takes entries out: that costs, over all entries, a part of what it
/// has cost to put them in.
pub trait GiveBack {
    fn give_back(&mut self);
}

/// For how many entries room is to be left, if some is to be given back.
fn room_left(len: usize, room: usize) -> Option<usize> {
    (room > ROOM_KEPT && len < room / MOSTLY_EMPTY).then_some(len * ROOM_LEFT)
}

impl<K: Eq + Hash, V, S: BuildHasher> GiveBack for HashMap<K, V, S> {
    fn give_back(&mut self) {
        if let Some(room) = room_left(self.len(), self.capacity()) {
            self.shrink_to(room);
        }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> GiveBack for IndexMap<K, V, S> {
    fn give_back(&mut self) {
        if let Some(room) = room_left(self.len(), self.capacity()) {
            self.shrink_to(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_was_large_once_gives_its_room_back_in_few_steps() {
        let mut table: HashMap<u32, u32> = (0..100_000).map(|n| (n, n)).collect();
        let mut indexed: IndexMap<u32, u32> = (0..100_000).map(|n| (n, n)).collect();
        let mut steps = [0, 0];
        for n in 0..100_000 {
            // (What is taken out may leave a mark that counts against the room.)
            let before = [table.capacity(), indexed.capacity()];
            table.remove(&n);
            indexed.swap_remove(&n);
            table.give_back();
            indexed.give_back();
            for (step, (now, before)) in steps.iter_mut().zip([table.capacity(), indexed.capacity()].iter().zip(before))
            {
                *step += usize::from(*now < before / 2);
            }
            assert!(table.capacity() <= ROOM_KEPT.max(MOSTLY_EMPTY * (table.len() + 1)));
        }
        assert!(table.capacity() <= ROOM_KEPT && indexed.capacity() <= ROOM_KEPT);
        assert!(steps.iter().all(|steps| (1..10).contains(steps)), "{steps:?}");
    }

    #[test]
    fn what_is_small_stays_as_it_is() {
        let mut table: HashMap<u32, u32> = (0..500).map(|n| (n, n)).collect();
        let before = table.capacity();
        table.clear();
        table.give_back();
        assert_eq!(table.capacity(), before);
    }
}
