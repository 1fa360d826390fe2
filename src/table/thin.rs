//! Keys that go before their time, where memory is short: candidates, and how they are taken out so that memory comes
//! back with them.
//!
//! What an entry leaves in its block's heap is a hole, and holes are no memory that others could have. So keys go
//! together, as many of one block as free a chunk of its heap, and the block is built anew then; where they have
//! allocations of their own, each gives back what it takes.

use super::block::{Block, NEVER_MS};
use super::entry::Entry;
use super::table::{Slot, Table};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// So many entries ahead the cache is asked for one: as many misses as there can be at a time.
const LOOK_AHEAD: usize = 12;

/// A key by its deadline, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Near {
    pub deadline_ms: u64,
    pub block: u32,
    pub slot: u16,
}

impl Table {
    /// The next block in turn that has keys, or keys whose column says a deadline: so each gives its share before one is
    /// asked again.
    pub fn next_to_thin(&mut self, with_deadline: bool) -> Option<u32> {
        let count = self.blocks.len() as u32;
        let start = if self.next_to_thin < count { self.next_to_thin } else { 0 };
        let is_likely = |id: &u32| !with_deadline || self.minima.get(*id) != NEVER_MS;
        let found = (start..count).chain(0..start).filter(is_likely).find(|&id| match &self.blocks[id as usize] {
            Some(block) if with_deadline => block.with_deadline() > 0,
            Some(block) => block.len() > 0,
            None => false,
        });
        self.next_to_thin = found.map_or(0, |id| id + 1);
        found
    }

    /// How many blocks [`Table::next_to_thin`] goes through.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Shows slots of a block from a random one on, `look` at most: of all keys, or of those whose column says a deadline.
    pub fn look_into(
        &self,
        id: u32,
        rng: &mut fastrand::Rng,
        look: usize,
        with_deadline: bool,
        mut each: impl FnMut(&Block, usize),
    ) {
        let Some(block) = &self.blocks[id as usize] else { return };
        let start = rng.usize(..block.slots_end());
        let mut slots: Vec<u16> = Vec::with_capacity(block.len());
        let is_meant = |slot: &usize| !with_deadline || block.has_deadline(*slot);
        slots.extend(block.full_slots().filter(is_meant).map(|slot| slot as u16));
        let before = slots.partition_point(|slot| usize::from(*slot) < start);
        slots.rotate_left(before);
        slots.truncate(look);
        for (at, slot) in slots.iter().enumerate() {
            if let Some(ahead) = slots.get(at + LOOK_AHEAD) {
                block.prefetch_slot(usize::from(*ahead), 1);
            }
            each(block, (*slot).into());
        }
    }

    /// How many keys of a block have to go before memory comes back, where so many bytes are wanted: one to a few dozens.
    pub fn keys_to_free(&self, id: u32, bytes: usize) -> usize {
        let Some(block) = &self.blocks[id as usize] else { return 0 };
        let average = (block.head().live as usize / block.len().max(1)).max(1);
        let of_heap = block.bytes_to_free_a_chunk().map_or(1, |bytes| bytes.div_ceil(average));
        let average_outside = self.whole_bytes() / self.len().max(1);
        let outside = if average_outside > 0 { bytes.div_ceil(average_outside) } else { usize::MAX };
        of_heap.min(outside).clamp(1, KEYS_AT_ONCE)
    }

    /// Takes keys of a block out, in this order, until memory comes back with them: `bytes` outside of the block, or a chunk
    /// of its heap. `gone` sees each before, and says what it has elsewhere. How many it were.
    pub fn take_out_some(
        &mut self,
        id: u32,
        slots: impl Iterator<Item = u16>,
        bytes: usize,
        mut gone: impl FnMut(Entry, Option<u64>) -> usize,
    ) -> usize {
        let (mut freed, mut count) = (0, 0);
        for index in slots {
            let Some(block) = self.blocks[id as usize] else { break };
            let slot = Slot { block, index };
            let entry = self.entry(slot);
            freed += gone(entry, self.deadline_ms(slot)) + self.whole(slot).map_or(0, |whole| whole.entry().bytes());
            self.take_out(slot);
            count += 1;
            if freed >= bytes || block.bytes_to_free_a_chunk().is_none_or(|bytes| bytes == 0) {
                break;
            }
        }
        if let Some(block) = self.blocks[id as usize].filter(|_| count > 0) {
            if block.with_deadline() == 0 {
                self.minima.set(id, NEVER_MS);
            }
            if block.len() > 0 && block.bytes_to_free_a_chunk() == Some(0) {
                self.compact(block);
            } else {
                self.tidy(block, true);
            }
        }
        count
    }

    /// Keys whose own deadlines come first, in that order, and before when there are no others; about so many, and more
    /// where many blocks had to be looked into. None of them are there only where no key has a deadline.
    pub fn nearest(&mut self, count: usize) -> (Vec<Near>, u64) {
        (0..TRIES)
            .find_map(|_| self.nearest_of_blocks(count))
            .or_else(|| self.nearest_within(count, count * BLOCKS_A_KEY))
            .unwrap_or_else(|| self.nearest_at_all())
    }

    /// What dies in the first blocks no later than anything does in the others; none where minima were too early, or stand for
    /// far deadlines.
    fn nearest_of_blocks(&mut self, count: usize) -> Option<(Vec<Near>, u64)> {
        let mut first: Vec<(u64, u32)> = self.minima.in_order().take(count + 1).collect();
        let (until_ms, _) = first.pop().filter(|_| first.len() == count)?;
        let (mut nearest, mut due): (Vec<Near>, Vec<u16>) = (Vec::new(), Vec::new());
        for (_, id) in first {
            let Some(mut block) = self.blocks[id as usize] else { continue };
            if block.has_far_before(until_ms) {
                return None;
            }
            due.clear();
            block.due(until_ms.saturating_add(1), usize::MAX, &mut due);
            for &slot in &due {
                let own_ms = self.own_deadline_ms(&block, slot.into()).filter(|own_ms| *own_ms <= until_ms);
                nearest.extend(own_ms.map(|deadline_ms| Near { deadline_ms, block: id, slot }));
            }
            let next_ms = block.next_due_ms(until_ms.saturating_add(1));
            self.minima.set(id, next_ms);
        }
        nearest.sort_unstable();
        (!nearest.is_empty()).then_some((nearest, until_ms))
    }

    #[inline]
    fn own_deadline_ms(&self, block: &Block, slot: usize) -> Option<u64> {
        // The entry is read only where it may say something else.
        if self.with_fields == 0 { block.column_ms(slot) } else { block.deadline_ms(slot) }
    }

    /// None where more than `limit` blocks would have to be looked into: their minima were too early, or say when far
    /// deadlines come into reach.
    fn nearest_within(&mut self, count: usize, limit: usize) -> Option<(Vec<Near>, u64)> {
        let (nearest, until_ms, is_whole) = self.nearest_up_to(count, limit, usize::MAX);
        is_whole.then_some((nearest, until_ms))
    }

    /// However many blocks have to be looked into, but for those with far deadlines: what minima say of these is weeks too
    /// early and cannot be mended, so that of such deadlines those of the first blocks are taken for the nearest.
    fn nearest_at_all(&mut self) -> (Vec<Near>, u64) {
        let (nearest, until_ms, is_whole) = self.nearest_up_to(KEYS_AT_ONCE, usize::MAX, FAR_BLOCKS);
        (nearest, if is_whole { until_ms } else { NEVER_MS })
    }

    /// The nearest, until when there are no others, and whether that is so: `limit` blocks are looked into, `limit_of_far` of
    /// those that have far deadlines.
    fn nearest_up_to(&mut self, count: usize, limit: usize, limit_of_far: usize) -> (Vec<Near>, u64, bool) {
        let mut far_blocks = 0;
        let mut nearest: BinaryHeap<Near> = BinaryHeap::with_capacity(count + 1);
        let mut seen: Vec<(u32, u64)> = Vec::new();
        let mut is_whole = true;
        for (at_ms, id) in self.minima.in_order() {
            let last_ms = nearest.peek().filter(|_| nearest.len() == count).map(|last| last.deadline_ms);
            // No deadline of a block is before its minimum.
            if last_ms.is_some_and(|last_ms| last_ms <= at_ms) {
                break;
            }
            if seen.len() + far_blocks == limit || far_blocks == limit_of_far {
                is_whole = false;
                break;
            }
            let Some(block) = self.blocks[id as usize] else { continue };
            if block.has_far() {
                far_blocks += 1;
            } else {
                seen.push((id, last_ms.unwrap_or(at_ms)));
            }
            for (index, column_ms) in block.columns_ms() {
                let is_later =
                    |at_ms| nearest.len() == count && nearest.peek().is_some_and(|last| last.deadline_ms <= at_ms);
                if is_later(column_ms) {
                    continue;
                }
                let own_ms = self.own_deadline_ms(&block, index);
                let Some(deadline_ms) = own_ms.filter(|own_ms| !is_later(*own_ms)) else { continue };
                nearest.push(Near { deadline_ms, block: id, slot: index as u16 });
                if nearest.len() > count {
                    nearest.pop();
                }
            }
        }
        for (id, at_ms) in seen {
            if let Some(mut block) = self.blocks[id as usize] {
                let next_ms = block.next_due_ms(at_ms.saturating_add(1));
                self.minima.set(id, next_ms);
            }
        }
        let is_full = nearest.len() == count;
        let nearest = nearest.into_sorted_vec();
        let until_ms = nearest.last().filter(|_| is_full).map_or(NEVER_MS, |last| last.deadline_ms);
        (nearest, until_ms, is_whole)
    }

    /// Whether the key that was found there is there still, or another that dies at the same moment.
    pub fn has(&self, near: Near) -> bool {
        let block = self.blocks[near.block as usize]
            .as_ref()
            .filter(|block| usize::from(near.slot) < block.slots_end() && block.has_key(near.slot.into()));
        block.is_some_and(|block| block.deadline_ms(near.slot.into()) == Some(near.deadline_ms))
    }

    /// The key in a slot of a block, and whether it is dead.
    pub fn in_slot(&self, id: u32, slot: u16, now_ms: u64) -> Option<(Entry<'_>, bool)> {
        let block = self.blocks[id as usize].as_ref().filter(|block| block.has_key(slot.into()))?;
        Some((block.entry(slot.into()), self.is_dead_in(block, slot.into(), now_ms)))
    }
}

/// No more keys go together: as many as fill a chunk, where they are small.
pub const KEYS_AT_ONCE: usize = 192;
/// Minima are too early where keys have just gone; these are mended by a try.
const TRIES: usize = 4;
/// Blocks with far deadlines that are looked into where nothing else is left.
const FAR_BLOCKS: usize = 64;
/// So many blocks are looked into for each of few keys.
const BLOCKS_A_KEY: usize = 8;

impl super::minima::Minima {
    /// All blocks with a minimum, the earliest first.
    fn in_order(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let mut ahead = BinaryHeap::from([Reverse((self.earliest_ms(), self.height(), 0))]);
        std::iter::from_fn(move || {
            loop {
                let Reverse((at_ms, level, index)) = ahead.pop()?;
                if at_ms == NEVER_MS {
                    return None;
                }
                if level == 0 {
                    return Some((at_ms, index as u32));
                }
                ahead.extend(self.below(level, index).map(|(index, at_ms)| Reverse((at_ms, level - 1, index))));
            }
        })
    }
}
