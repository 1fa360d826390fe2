//! Sweeps: what is dead is taken out, block after block, those first that have to be looked at first.

use super::block::{Block, NEVER_MS, SLOTS_END_MAX};
use super::entry::{Entry, Stored};
use super::table::{Slot, Table, base_at};

/// Blocks swept together at most: enough misses to keep the memory busy.
const WIDEST_SWEEP: usize = 16;

/// Whom a sweep tells of what it finds.
pub trait Undertaker {
    /// A key whose deadline has passed; its memory is given back afterwards. Returns the bytes that are counted for the key.
    fn dead(&mut self, entry: Entry, deadline_ms: u64) -> usize;
    /// A collection some of whose fields may be dead: takes out at most `limit` of those with deadlines before `before_ms`.
    fn fields(&mut self, entry: Entry, before_ms: u64, limit: usize) -> FieldsSwept;
}

/// For sweeps of tables whose entries have no fields.
impl<F: FnMut(Entry, u64)> Undertaker for F {
    fn dead(&mut self, entry: Entry, deadline_ms: u64) -> usize {
        self(entry, deadline_ms);
        entry.bytes()
    }

    fn fields(&mut self, _: Entry, _: u64, _: usize) -> FieldsSwept {
        FieldsSwept { deleted: 0, bytes: 0, packed: None, next: Next::None }
    }
}

/// What was done to the fields of a hash, or to the members of a set or a sorted set.
pub struct FieldsSwept {
    pub deleted: usize,
    /// Bytes given back outside of the entry: all of them where the key goes, too.
    pub bytes: usize,
    /// The mark and the bytes of a packed hash with those fields that are left: no more than it had.
    pub packed: Option<(bool, Vec<u8>)>,
    pub next: Next,
}

/// When a hash has to be looked at again for its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    At(u64),
    /// No field has a deadline.
    None,
    /// No field is left: the key goes, too.
    Empty,
}

impl Next {
    pub fn of(is_empty: bool, earliest_ms: u64) -> Next {
        match earliest_ms {
            _ if is_empty => Next::Empty,
            NEVER_MS => Next::None,
            at_ms => Next::At(at_ms),
        }
    }
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Keys and fields.
    pub deleted: usize,
    /// How many of them were fields.
    pub fields: usize,
    pub bytes: usize,
    /// Blocks from which something was deleted.
    pub blocks: usize,
}

/// What [`Table::dead_at`] found.
pub struct DeadKeys {
    pub keys: Vec<Box<[u8]>>,
    /// The block's keys had to be looked at.
    pub was_due: bool,
    /// The position of the next block; none after the last.
    pub next: Option<u64>,
}

impl Table {
    /// Deletes keys whose deadline is before `before_ms`, at most `limit`, from the blocks that have to be looked at
    /// first, and leaves their minima exact (or, where the limit stopped it, early enough). Of hashes that are looked at for
    /// their fields it deletes those fields.
    pub fn sweep_earliest(
        &mut self,
        before_ms: u64,
        now_ms: u64,
        limit: usize,
        undertaker: &mut impl Undertaker,
    ) -> Swept {
        let mut ids = std::mem::take(&mut self.swept_ids);
        ids.clear();
        self.minima.take(before_ms, self.sweep_width, &mut ids);
        let swept = self.sweep(&ids, before_ms, now_ms, limit, undertaker);
        // As many blocks next time as the limit lets it finish.
        self.sweep_width = if swept.deleted < limit { (ids.len() * 2).clamp(1, WIDEST_SWEEP) } else { swept.blocks };
        self.swept_ids = ids;
        swept
    }

    /// As [`Table::sweep_earliest`], from these blocks. It goes through them in steps, each of which asks the cache for
    /// what the next one reads: where few keys of a block are due, a sweep is nothing but cache misses.
    pub fn sweep(
        &mut self,
        ids: &[u32],
        before_ms: u64,
        now_ms: u64,
        limit: usize,
        undertaker: &mut impl Undertaker,
    ) -> Swept {
        let base_ms = base_at(now_ms);
        for &id in ids {
            self.with_block(id, |block| block.prefetch_due(before_ms, 0));
        }
        for &id in ids {
            self.take_far_in(id, base_ms);
            self.with_block(id, |block| block.prefetch_due(before_ms, 1));
        }
        let mut due = std::mem::take(&mut self.due);
        let mut ends = std::mem::take(&mut self.due_ends);
        due.clear();
        ends.clear();
        for &id in ids {
            let start = due.len();
            self.with_block(id, |block| {
                // Where what the column can hold is over, all of it is looked at: a hash whose next field is beyond it can
                // only be looked at again later when the base has moved, which whatever is due there holds back.
                let rest = if block.is_outdated(before_ms) { SLOTS_END_MAX } else { limit.saturating_sub(start) };
                block.due(before_ms, rest, &mut due);
                due[start..].iter().for_each(|&index| block.prefetch_slot(index as usize, 0));
            });
            ends.push(due.len());
        }
        let mut start = 0;
        for (&id, &end) in ids.iter().zip(&ends) {
            let due = &due[start..end];
            self.with_block(id, |block| due.iter().for_each(|&index| block.prefetch_slot(index as usize, 1)));
            start = end;
        }
        let mut swept = Swept::default();
        let mut start = 0;
        for (&id, &end) in ids.iter().zip(&ends) {
            swept.blocks += usize::from(start < end);
            for &index in &due[start..end] {
                let Some(block) = self.blocks[id as usize].filter(|_| swept.deleted < limit) else { break };
                let slot = Slot { block, index };
                if self.entry(slot).has_fields()
                    && self.sweep_fields(slot, before_ms, now_ms, limit, undertaker, &mut swept)
                {
                    continue;
                }
                let deadline_ms = self.deadline_ms(slot).unwrap_or(before_ms);
                swept.bytes += undertaker.dead(self.entry(slot), deadline_ms);
                swept.deleted += 1;
                self.take_out(slot);
            }
            start = end;
        }
        self.due = due;
        self.due_ends = ends;
        for &id in ids {
            let next_ms = self.with_block(id, |block| {
                block.refresh_base(base_ms);
                block.next_due_ms(before_ms)
            });
            self.minima.set(id, next_ms.unwrap_or(NEVER_MS));
        }
        if swept.deleted > 0 {
            // Last, since a merge takes a block away, perhaps one of these.
            for &id in ids {
                if let Some(block) = self.blocks[id as usize] {
                    self.tidy(block, true);
                }
            }
        }
        swept
    }

    /// Takes out at most `limit` dead fields, where they are many, of a key that is looked at for them, and that lives.
    pub fn sweep_fields_of(
        &mut self,
        slot: Slot,
        now_ms: u64,
        limit: usize,
        undertaker: &mut impl Undertaker,
    ) -> Swept {
        let mut swept = Swept::default();
        self.sweep_fields(slot, now_ms, now_ms, limit, undertaker, &mut swept);
        swept
    }

    /// Takes dead fields out of a hash that is looked at for them; whether the key stays.
    fn sweep_fields(
        &mut self,
        slot: Slot,
        before_ms: u64,
        now_ms: u64,
        limit: usize,
        undertaker: &mut impl Undertaker,
        swept: &mut Swept,
    ) -> bool {
        let entry = self.entry(slot);
        let own_ms = entry.far_deadline_ms();
        if own_ms.is_some_and(|own_ms| own_ms < before_ms) {
            return false;
        }
        let Some(rest) = limit.checked_sub(swept.deleted).filter(|rest| *rest > 0) else { return true };
        let fields = undertaker.fields(entry, before_ms, rest);
        swept.deleted += fields.deleted;
        swept.fields += fields.deleted;
        swept.bytes += fields.bytes;
        if let Some((marked, bytes)) = &fields.packed {
            let (old_bytes, kind) = (entry.bytes(), entry.kind());
            self.shrink_content(slot, Stored::Packed(kind, *marked, bytes));
            swept.bytes += old_bytes - self.entry(slot).bytes();
        }
        match fields.next {
            // The column was too early.
            Next::At(at_ms) => self.look_later(slot, at_ms, now_ms),
            Next::None => {
                // The entry becomes no longer, so that the slot stays.
                self.set_fields_deadline(slot, None, now_ms);
            }
            Next::Empty => {
                swept.bytes += self.entry(slot).bytes();
                self.take_out(slot);
            }
        }
        true
    }

    /// Sets the column of a hash with fields anew, to a moment that may be later than what it was.
    pub fn look_later(&mut self, slot: Slot, at_ms: u64, now_ms: u64) {
        let own_ms = self.entry(slot).far_deadline_ms();
        let mut block = slot.block;
        block.clear_deadline(slot.index());
        self.with_deadline -= 1;
        self.look_at(slot, own_ms.map_or(at_ms, |own_ms| own_ms.min(at_ms)), now_ms);
    }

    /// Works on a block, if it is still there.
    #[inline]
    fn with_block<T>(&mut self, id: u32, work: impl FnOnce(&mut Block) -> T) -> Option<T> {
        self.blocks[id as usize].as_mut().map(work)
    }

    /// Takes those far deadlines of a block into its column that have come into reach.
    fn take_far_in(&mut self, id: u32, base_ms: u64) {
        if let Some(block) = self.blocks[id as usize].filter(|block| block.has_come_into_reach(base_ms)) {
            self.move_base(block, base_ms);
        }
    }

    /// Keys that are dead but not deleted.
    pub fn count_dead(&self, now_ms: u64) -> usize {
        let due = self.minima.due(now_ms).filter_map(|id| self.blocks[id as usize].as_ref());
        if self.with_fields == 0 {
            return due.map(|block| block.count_dead(now_ms)).sum();
        }
        let dead = |block: &Block| block.full_slots().filter(|&slot| self.is_dead_in(block, slot, now_ms)).count();
        due.map(dead).sum()
    }

    /// Entries whose deadlines have passed, of a table without fields.
    pub fn dead_entries(&self, now_ms: u64) -> impl Iterator<Item = Entry<'_>> {
        let due = self.minima.due(now_ms).filter_map(|id| self.blocks[id as usize].as_ref());
        due.flat_map(move |block| {
            block.full_slots().filter(move |&slot| block.is_due(slot, now_ms)).map(|slot| block.entry(slot))
        })
    }

    /// Dead keys of the block at a position that are `wanted`, at most `limit`.
    pub fn dead_at(&self, position: u64, now_ms: u64, limit: usize, wanted: impl Fn(&[u8]) -> bool) -> DeadKeys {
        let block = self.block_of(position);
        let next = block.next_position();
        if self.minima.get(block.id()) >= now_ms {
            return DeadKeys { keys: Vec::new(), was_due: false, next };
        }
        let dead =
            block.full_slots().filter(|&slot| self.is_dead_in(block, slot, now_ms)).map(|slot| block.entry(slot).key());
        let keys = dead.filter(|key| wanted(key)).take(limit).map(Into::into).collect();
        DeadKeys { keys, was_due: true, next }
    }
}
