//! Keys drawn at random.

use super::block::{Block, SLOTS_END_MAX};
use super::table::{Slot, Table};

impl Table {
    /// A key chosen uniformly among the slots for which `wanted` holds: slots are drawn until one fits. `None` where
    /// `tries` draws found nothing.
    pub fn random(
        &self,
        rng: &mut fastrand::Rng,
        tries: usize,
        wanted: impl Fn(&Block, usize) -> bool,
    ) -> Option<Slot> {
        // Blocks have different numbers of slots: those that one has not count as empty.
        let slots = if let [block] = self.directory[..] { block.slots_end() } else { SLOTS_END_MAX };
        for _ in 0..tries {
            let at = rng.usize(..self.directory.len());
            let block = self.directory[at];
            let index = rng.usize(..slots);
            // A block stands in the directory once or several times: only the first one counts.
            if at & ((1 << (self.bits - block.depth())) - 1) != 0 {
                continue;
            }
            if index < block.slots_end() && block.has_key(index) && wanted(&block, index) {
                return Some(Slot { block, index: index as u16 });
            }
        }
        None
    }

    /// The first key from a random block on for which `wanted` holds: not uniform, but sure to find one.
    pub fn any(&self, rng: &mut fastrand::Rng, wanted: impl Fn(&Block, usize) -> bool) -> Option<Slot> {
        let start = rng.usize(..self.blocks.len());
        let (before, after) = self.blocks.split_at(start);
        after.iter().chain(before).flatten().find_map(|block| {
            let index = block.full_slots().find(|&index| wanted(block, index))?;
            Some(Slot { block: *block, index: index as u16 })
        })
    }
}
