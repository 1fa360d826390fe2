//! Walks in slices: block after block, in the order of positions, which no split or merge changes.

use super::block::Block;
use super::table::Table;

impl Table {
    /// Shows the slots of the block at `position`, those from there on, unless all that it has is due later than
    /// `until_ms`. Returns the position of the next block; none after the last.
    pub fn walk(&self, position: u64, until_ms: u64, mut each: impl FnMut(&Block, usize)) -> Option<u64> {
        let block = self.block_of(position);
        if self.minimum_ms(block.id()) <= until_ms {
            // Blocks may have merged since the position was left.
            let is_ahead =
                |slot: &usize| block.position() >= position || self.position_of(block.entry(*slot).key()) >= position;
            block.full_slots().filter(is_ahead).for_each(|slot| each(block, slot));
        }
        block.next_position()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::entry::Value;
    use crate::table::hash::Hasher;
    use crate::table::table::NO_FIELDS;
    use std::collections::HashMap;

    /// Others come and go between the slices, so that blocks split and merge under the walk.
    #[test]
    fn what_stays_is_shown_once() {
        for seed in 0..if cfg!(miri) { 1 } else { 30 } {
            let (hasher, mut rng) = (Hasher::new(seed, 1), fastrand::Rng::with_seed(seed));
            let mut table = Table::new(hasher.clone(), NO_FIELDS);
            let stay = rng.usize(..8000);
            for i in 0..stay {
                table.insert(hasher.key(format!("stay{i}").as_bytes()), Value::Int(1), 0);
            }
            let (mut seen, mut others): (HashMap<Vec<u8>, usize>, Vec<String>) = Default::default();
            let (mut position, mut growing) = (Some(0), rng.bool());
            while let Some(from) = position {
                position = table.walk(from, u64::MAX, |block, slot| {
                    *seen.entry(block.entry(slot).key().to_vec()).or_default() += 1;
                });
                growing ^= rng.u32(..4) == 0;
                for _ in 0..rng.usize(..4000) {
                    if growing {
                        let key = format!("other{}", rng.u64(..));
                        table.insert(hasher.key(key.as_bytes()), Value::Int(2), 0);
                        others.push(key);
                    } else if !others.is_empty() {
                        let key = others.swap_remove(rng.usize(..others.len()));
                        let slot = table.find(hasher.key(key.as_bytes())).expect("it was inserted");
                        table.remove(slot);
                    }
                }
            }
            for i in 0..stay {
                assert_eq!(seen.get(format!("stay{i}").as_bytes()), Some(&1), "seed {seed}, key {i}");
            }
            assert!(seen.values().all(|times| *times == 1), "seed {seed}");
        }
    }
}
