//! A hash table: blocks in an extendible-hashing directory (Fagin, Nievergelt, Pippenger, Strong, ACM TODS
//! 1979), so that growth never costs more than the split of one block and, seldom, a copy of the directory.
//!
//! ```text
//!  position = spread(hash)            directory (2^bits pointers)           blocks
//!  |--- bits ---|----------|  ---->   [ a | a | b | c | d | d | d | d ]  -> a (depth 2), b, c (3), d (1)
//! ```
//!
//! Slots are handed out as [`Slot`], valid until the next insert, remove or sweep of the same table.
//!
//! A table owns its entries but not the nodes that some of them point at: the addresses of those whose entries are gone
//! are handed to the owner ([`Table::take_orphans`]).

use super::block::{
    BASE_BEHIND_MS, Block, MERGE_BELOW, MERGED_AT_MOST, Moved, NEVER_MS, Print, REACH_MS, SLOTS, SPLIT_AT, window,
};
use super::entry::{Entry, Kind, Stored};
use super::hash::{Hasher, Key, spread};
use super::minima::Minima;
use std::ptr::NonNull;

pub struct Table {
    pub(super) directory: Vec<NonNull<Block>>,
    pub(super) bits: u8,
    blocks: Vec<Option<NonNull<Block>>>,
    free_ids: Vec<u32>,
    /// How many blocks there are of each depth.
    depths: [u32; 65],
    minima: Minima,
    hasher: Hasher,
    len: usize,
    with_deadline: usize,
    /// Entries whose column speaks of their fields, too.
    with_fields: usize,
    entry_bytes: usize,
    any_field_lives: AnyFieldLives,
    orphans: Vec<(Kind, NonNull<u8>)>,
    /// How many blocks the next sweep takes together.
    sweep_width: usize,
    /// Room that is used again: what a split moves; blocks of a sweep, the slots that are due there, and where each
    /// block's end.
    moved: Vec<Moved>,
    swept_ids: Vec<u32>,
    due: Vec<u16>,
    due_ends: Vec<usize>,
}

/// Blocks swept together at most: enough misses to keep the memory busy.
const WIDEST_SWEEP: usize = 16;

/// Where an entry is, until the next change of the database's structure.
#[derive(Clone, Copy)]
pub struct Slot {
    block: NonNull<Block>,
    index: u16,
}

impl Slot {
    fn index(self) -> usize {
        self.index as usize
    }
}

/// Whether a hash with deadlines on its fields has one that is alive at a moment; asked where the earliest is past.
pub type AnyFieldLives = fn(Entry, u64) -> bool;
/// For tables whose entries have no fields.
pub const NO_FIELDS: AnyFieldLives = |_, _| true;

/// Whom a sweep tells of what it finds.
pub trait Undertaker {
    /// A key whose deadline has passed; its memory is given back afterwards.
    fn dead(&mut self, entry: Entry, deadline_ms: u64);
    /// A hash some of whose fields may be dead: takes out at most `limit` of those with deadlines before `before_ms`.
    fn fields(&mut self, entry: Entry, before_ms: u64, limit: usize) -> FieldsSwept;
}

/// For sweeps of tables whose entries have no fields.
impl<F: FnMut(Entry, u64)> Undertaker for F {
    fn dead(&mut self, entry: Entry, deadline_ms: u64) {
        self(entry, deadline_ms);
    }

    fn fields(&mut self, entry: Entry, _: u64, _: usize) -> FieldsSwept {
        FieldsSwept { deleted: 0, bytes: 0, entry, next: Next::None }
    }
}

/// What was done to the fields of a hash.
pub struct FieldsSwept {
    pub deleted: usize,
    pub bytes: usize,
    /// Where the entry is now.
    pub entry: Entry,
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

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub deleted: usize,
    pub bytes: usize,
    /// Blocks from which something was deleted.
    pub blocks: usize,
}

/// What a table is made of, for those who measure it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub blocks: usize,
    pub slots: usize,
    pub directory: usize,
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
    pub fn new(hasher: Hasher, any_field_lives: AnyFieldLives) -> Table {
        let mut table = Table {
            directory: Vec::new(),
            bits: 0,
            blocks: Vec::new(),
            free_ids: Vec::new(),
            depths: [0; 65],
            minima: Minima::new(),
            hasher,
            len: 0,
            with_deadline: 0,
            with_fields: 0,
            entry_bytes: 0,
            any_field_lives,
            orphans: Vec::new(),
            sweep_width: 1,
            moved: Vec::new(),
            swept_ids: Vec::new(),
            due: Vec::new(),
            due_ends: Vec::new(),
        };
        let block = table.new_block(0, 0, 0);
        table.directory.push(block);
        table
    }

    /// Keys, dead ones that are not deleted yet included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Keys whose block's column is not empty: with a deadline, or with fields that have some.
    pub fn with_deadline(&self) -> usize {
        self.with_deadline
    }

    /// Those among them that are there for their fields, at least.
    pub fn with_fields(&self) -> usize {
        self.with_fields
    }

    pub fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// The nodes whose entries are gone.
    pub fn take_orphans(&mut self) -> impl Iterator<Item = (Kind, NonNull<u8>)> + '_ {
        self.orphans.drain(..)
    }

    /// Bytes of entries, blocks and directory.
    pub fn bytes(&self) -> usize {
        self.entry_bytes
            + self.shape().blocks * size_of::<Block>()
            + self.directory.capacity() * size_of::<NonNull<Block>>()
    }

    pub fn shape(&self) -> Shape {
        let blocks = self.blocks.len() - self.free_ids.len();
        Shape { blocks, slots: blocks * SLOTS, directory: self.directory.len() }
    }

    #[inline]
    fn directory_index(&self, position: u64) -> usize {
        // Two shifts, since a shift by 64 (no bits) is not a shift.
        ((position >> 1) >> (63 - self.bits)) as usize
    }

    #[inline]
    fn block_at(&self, position: u64) -> NonNull<Block> {
        self.directory[self.directory_index(position)]
    }

    #[inline]
    pub fn find(&self, key: Key) -> Option<Slot> {
        let block = self.block_at(spread(key.hash));
        // SAFETY: the directory points at live blocks, owned by this database.
        let found = unsafe { block.as_ref() }.find(Print::of(key.hash), |entry| entry.key() == key.bytes)?;
        Some(Slot { block, index: found as u16 })
    }

    /// A key with this hash, by what `is_it` says of its bytes.
    pub fn find_by(&self, hash: u64, is_it: impl Fn(&[u8]) -> bool) -> Option<Slot> {
        let block = self.block_at(spread(hash));
        // SAFETY: as above.
        let found = unsafe { block.as_ref() }.find(Print::of(hash), |entry| is_it(entry.key()))?;
        Some(Slot { block, index: found as u16 })
    }

    #[inline]
    fn block(&self, slot: Slot) -> &Block {
        // SAFETY: a slot is used only before the next change of the structure, so its block is alive.
        unsafe { slot.block.as_ref() }
    }

    #[inline]
    fn block_mut(&mut self, mut slot: Slot) -> &mut Block {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { slot.block.as_mut() }
    }

    #[inline]
    pub fn entry(&self, slot: Slot) -> Entry {
        self.block(slot).entry(slot.index())
    }

    #[inline]
    pub fn deadline_ms(&self, slot: Slot) -> Option<u64> {
        self.block(slot).deadline_ms(slot.index())
    }

    #[inline]
    pub fn is_dead(&self, slot: Slot, now_ms: u64) -> bool {
        self.is_dead_in(self.block(slot), slot.index(), now_ms)
    }

    /// Dead, or a hash all of whose fields are.
    #[inline]
    pub fn is_dead_in(&self, block: &Block, index: usize, now_ms: u64) -> bool {
        block.is_due(index, now_ms) && self.is_dead_where_due(block, index, now_ms)
    }

    #[inline]
    fn is_dead_where_due(&self, block: &Block, index: usize, now_ms: u64) -> bool {
        let entry = block.entry(index);
        !entry.has_fields()
            || entry.far_deadline_ms().is_some_and(|deadline_ms| now_ms > deadline_ms)
            || !(self.any_field_lives)(entry, now_ms)
    }

    /// Stores a key that is not there yet, without a deadline.
    pub fn insert<'v>(&mut self, key: Key, value: impl Into<Stored<'v>>, clock: u32) -> Slot {
        self.insert_entry(key.hash, Entry::new(key.bytes, value, None, clock))
    }

    /// As [`Table::insert`], of an entry that is there already and has no deadline; the table owns it from now on.
    pub fn insert_entry(&mut self, hash: u64, entry: Entry) -> Slot {
        self.entry_bytes += entry.allocated_bytes();
        self.len += 1;
        let position = spread(hash);
        let mut block = self.block_at(position);
        // SAFETY: a live block of ours, here and after each split.
        while unsafe { block.as_ref() }.len() >= SPLIT_AT {
            self.split(block);
            block = self.block_at(position);
        }
        // SAFETY: as above.
        let target = unsafe { block.as_mut() };
        let index = target.insert(Print::of(hash), window(position, target.depth), entry);
        Slot { block, index: index as u16 }
    }

    /// Takes a key out; its memory is given back. Returns the bytes.
    pub fn remove(&mut self, slot: Slot) -> usize {
        let block = self.block_mut(slot);
        let had_deadline = block.has_deadline(slot.index());
        let entry = block.remove(slot.index());
        let (len, id) = (block.len(), block.id);
        let emptied_column = had_deadline && block.with_deadline() == 0;
        if had_deadline {
            self.with_deadline -= 1;
        }
        if emptied_column {
            self.minima.set(id, NEVER_MS);
        }
        let bytes = entry.allocated_bytes();
        self.entry_bytes -= bytes;
        self.len -= 1;
        self.leave(entry);
        // SAFETY: no slot points at it any more.
        unsafe { entry.free() };
        // Each look at the buddy costs a cache miss: one in sixteen removals is often enough.
        if len < MERGE_BELOW && len % 16 == 0 {
            self.merge(slot.block);
        }
        bytes
    }

    /// An entry, or its value, is about to go.
    #[inline]
    fn leave(&mut self, entry: Entry) {
        if !entry.is_string() {
            self.with_fields -= usize::from(entry.has_fields());
            if let Some(node) = entry.node() {
                self.orphans.push((entry.kind(), node));
            }
        }
    }

    /// Sets or clears a deadline.
    #[inline]
    pub fn set_deadline(&mut self, slot: Slot, deadline_ms: Option<u64>, now_ms: u64) {
        let index = slot.index();
        let had = self.block(slot).has_deadline(index);
        if had && self.entry(slot).has_fields() {
            self.keep_far(slot, deadline_ms);
            if let Some(deadline_ms) = deadline_ms {
                self.look_at(slot, deadline_ms, now_ms);
            }
            return;
        }
        let block = self.block_mut(slot);
        let Some(deadline_ms) = deadline_ms else {
            if had {
                block.clear_deadline(index);
                self.with_deadline -= 1;
                self.keep_far(slot, None);
            }
            return;
        };
        block.refresh_base(base_at(now_ms).min(deadline_ms));
        let far = !block.in_reach(deadline_ms);
        let id = block.id;
        if far || had {
            self.keep_far(slot, far.then_some(deadline_ms));
        }
        let look_at_ms = self.block_mut(slot).set_deadline(index, deadline_ms);
        self.with_deadline += usize::from(!had);
        self.minima.lower(id, look_at_ms);
    }

    /// Says when the earliest field of a hash dies, if any has a deadline. Where it has moved later, the slot is looked
    /// at too early once.
    pub fn set_fields_deadline(&mut self, slot: Slot, earliest_ms: Option<u64>, now_ms: u64) {
        let entry = self.entry(slot);
        match earliest_ms {
            Some(earliest_ms) => {
                let own_ms = self.deadline_ms(slot);
                if !entry.has_fields() {
                    self.keep_far(slot, own_ms);
                    self.entry(slot).set_fields(true);
                    self.with_fields += 1;
                }
                self.look_at(slot, own_ms.map_or(earliest_ms, |own_ms| own_ms.min(earliest_ms)), now_ms);
            }
            None if entry.has_fields() => {
                let own_ms = entry.far_deadline_ms();
                entry.set_fields(false);
                self.with_fields -= 1;
                self.set_deadline(slot, own_ms, now_ms);
            }
            None => {}
        }
    }

    /// Lowers the column of a hash with fields to this moment, or to the latest it can hold.
    fn look_at(&mut self, slot: Slot, at_ms: u64, now_ms: u64) {
        let block = self.block_mut(slot);
        let had = block.has_deadline(slot.index());
        block.refresh_base(base_at(now_ms).min(at_ms));
        let id = block.id;
        if !block.in_reach(at_ms) {
            self.move_base(id, base_at(now_ms));
        }
        let block = self.block_mut(slot);
        let at_ms = at_ms.min(block.base_ms + REACH_MS);
        if !had || block.is_far(slot.index()) || block.column_ms(slot.index()).is_none_or(|column_ms| at_ms < column_ms)
        {
            let look_at_ms = block.set_deadline(slot.index(), at_ms);
            self.with_deadline += usize::from(!had);
            self.minima.lower(id, look_at_ms);
        }
    }

    /// Keeps the exact deadline in the entry where the column cannot hold it, and only there.
    fn keep_far(&mut self, slot: Slot, deadline_ms: Option<u64>) {
        let entry = self.entry(slot);
        if entry.far_deadline_ms() == deadline_ms {
            return;
        }
        self.swap_entry(slot, |entry| {
            // SAFETY: `swap_entry` forgets the old pointer.
            unsafe { entry.with_far_deadline(deadline_ms) }
        });
    }

    /// Changes an entry whose pointer may change with it.
    #[inline]
    pub fn swap_entry(&mut self, slot: Slot, change: impl FnOnce(Entry) -> Entry) {
        let old = self.entry(slot);
        let old_bytes = old.allocated_bytes();
        let new = change(old);
        self.entry_bytes = self.entry_bytes - old_bytes + new.allocated_bytes();
        self.block_mut(slot).set_entry(slot.index(), new);
    }

    /// Puts another value into an entry, which keeps its deadline. The value must not be part of the old one.
    #[inline]
    pub fn set_value<'v>(&mut self, slot: Slot, value: impl Into<Stored<'v>>, now_ms: u64) {
        let entry = self.entry(slot);
        if !entry.is_string() {
            if entry.has_fields() {
                self.set_fields_deadline(slot, None, now_ms);
            }
            self.leave(self.entry(slot));
        }
        self.swap_entry(slot, |entry| {
            // SAFETY: `swap_entry` forgets the old pointer; the value does not borrow from it.
            unsafe { entry.replace_value(value) }
        });
    }

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
                block.due(before_ms, limit - start, &mut due);
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
                let Some(block) = self.blocks[id as usize] else { continue };
                let slot = Slot { block, index };
                if self.entry(slot).has_fields()
                    && self.sweep_fields(slot, before_ms, now_ms, limit, undertaker, &mut swept)
                {
                    continue;
                }
                let deadline_ms = self.deadline_ms(slot).unwrap_or(before_ms);
                let entry = self.block_mut(slot).remove(index as usize);
                undertaker.dead(entry, deadline_ms);
                swept.deleted += 1;
                swept.bytes += self.bury(entry);
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
                if self.with_block(id, |block| block.len() < MERGE_BELOW) == Some(true)
                    && let Some(block) = self.blocks[id as usize]
                {
                    self.merge(block);
                }
            }
        }
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
        let old_bytes = entry.allocated_bytes();
        let fields = undertaker.fields(entry, before_ms, rest);
        self.entry_bytes = self.entry_bytes - old_bytes + fields.entry.allocated_bytes();
        self.block_mut(slot).set_entry(slot.index(), fields.entry);
        swept.deleted += fields.deleted;
        swept.bytes += fields.bytes;
        match fields.next {
            Next::At(at_ms) => {
                // The column was too early: it is set anew.
                self.block_mut(slot).clear_deadline(slot.index());
                self.with_deadline -= 1;
                self.look_at(slot, own_ms.map_or(at_ms, |own_ms| own_ms.min(at_ms)), now_ms);
            }
            Next::None => self.set_fields_deadline(slot, None, now_ms),
            Next::Empty => {
                let entry = self.block_mut(slot).remove(slot.index());
                swept.bytes += self.bury(entry);
            }
        }
        true
    }

    /// Gives an entry back that had a deadline and was taken out of its block.
    fn bury(&mut self, entry: Entry) -> usize {
        let bytes = entry.allocated_bytes();
        self.len -= 1;
        self.with_deadline -= 1;
        self.entry_bytes -= bytes;
        self.leave(entry);
        // SAFETY: taken out of its slot just now.
        unsafe { entry.free() };
        bytes
    }

    /// Works on a block, if it is still there.
    #[inline]
    fn with_block<T>(&mut self, id: u32, work: impl FnOnce(&mut Block) -> T) -> Option<T> {
        let mut pointer = self.blocks[id as usize]?;
        // SAFETY: blocks in the table are alive; the reference does not outlive this call, and `work` cannot reach
        // the database.
        Some(work(unsafe { pointer.as_mut() }))
    }

    /// Takes those far deadlines of a block into its column that have come into reach.
    fn take_far_in(&mut self, id: u32, base_ms: u64) {
        if self.with_block(id, |block| block.has_come_into_reach(base_ms)) == Some(true) {
            self.move_base(id, base_ms);
        }
    }

    /// Lets a block's column count from a later moment, as far as what is due there allows.
    fn move_base(&mut self, id: u32, base_ms: u64) {
        let Some(pointer) = self.blocks[id as usize] else { return };
        let mut taken_in = Vec::new();
        self.with_block(id, |block| block.move_base(base_ms, |_, slot| taken_in.push(slot)));
        for index in taken_in {
            let slot = Slot { block: pointer, index: index as u16 };
            // A hash with fields keeps its own deadline there.
            if !self.entry(slot).has_fields() {
                self.keep_far(slot, None);
            }
        }
    }

    /// Keys that are dead but not deleted.
    pub fn count_dead(&self, now_ms: u64) -> usize {
        let due = self.minima.due(now_ms).filter_map(|id| self.blocks[id as usize]);
        // SAFETY: blocks in the table are alive.
        let due = due.map(|block| unsafe { block.as_ref() });
        if self.with_fields == 0 {
            return due.map(|block| block.count_dead(now_ms)).sum();
        }
        let dead = |block: &Block| block.full_slots().filter(|&slot| self.is_dead_in(block, slot, now_ms)).count();
        due.map(dead).sum()
    }

    /// Dead keys of the block at a position that are `wanted`, at most `limit`.
    pub fn dead_at(&self, position: u64, now_ms: u64, limit: usize, wanted: impl Fn(&[u8]) -> bool) -> DeadKeys {
        let block = self.block_of(position);
        let span = 1u64.checked_shl(64 - u32::from(block.depth));
        let next = span.and_then(|span| block.position.checked_add(span));
        if self.minima.get(block.id) >= now_ms {
            return DeadKeys { keys: Vec::new(), was_due: false, next };
        }
        let dead =
            block.full_slots().filter(|&slot| self.is_dead_in(block, slot, now_ms)).map(|slot| block.entry(slot).key());
        let keys = dead.filter(|key| wanted(key)).take(limit).map(Into::into).collect();
        DeadKeys { keys, was_due: true, next }
    }

    /// A key chosen uniformly among the slots for which `wanted` holds: slots are drawn until one fits. `None` where
    /// `tries` draws found nothing.
    pub fn random(
        &self,
        rng: &mut fastrand::Rng,
        tries: usize,
        wanted: impl Fn(&Block, usize) -> bool,
    ) -> Option<Slot> {
        for _ in 0..tries {
            let at = rng.usize(..self.directory.len());
            let pointer = self.directory[at];
            // SAFETY: the directory points at live blocks.
            let block = unsafe { pointer.as_ref() };
            // A block stands in the directory once or several times: only the first one counts.
            if at & ((1 << (self.bits - block.depth)) - 1) != 0 {
                continue;
            }
            let index = rng.usize(..SLOTS);
            if block.is_full(index) && wanted(block, index) {
                return Some(Slot { block: pointer, index: index as u16 });
            }
        }
        None
    }

    /// The first key from a random block on for which `wanted` holds: not uniform, but sure to find one.
    pub fn any(&self, rng: &mut fastrand::Rng, wanted: impl Fn(&Block, usize) -> bool) -> Option<Slot> {
        let start = rng.usize(..self.blocks.len());
        let (before, after) = self.blocks.split_at(start);
        after.iter().chain(before).flatten().find_map(|&pointer| {
            // SAFETY: blocks in the table are alive.
            let block = unsafe { pointer.as_ref() };
            let index = block.full_slots().find(|&index| wanted(block, index))?;
            Some(Slot { block: pointer, index: index as u16 })
        })
    }

    /// Every entry with what its column says.
    pub fn entries(&self) -> impl Iterator<Item = (Entry, Option<u64>)> + '_ {
        self.blocks().flat_map(|block| block.full_slots().map(|slot| (block.entry(slot), block.deadline_ms(slot))))
    }

    /// A moment that is not later than the next one at which something is due; cheap.
    #[inline]
    pub fn next_due_hint_ms(&self) -> u64 {
        self.minima.earliest_ms()
    }

    /// The block that has to be looked at first, as (moment, block).
    pub fn earliest(&mut self) -> Option<(u64, u32)> {
        self.minima.earliest()
    }

    /// When a block has to be looked at.
    pub fn minimum_ms(&self, block: u32) -> u64 {
        self.minima.get(block)
    }

    /// Every block, each once.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        // SAFETY: blocks in the table are alive while `self` is borrowed.
        self.blocks.iter().flatten().map(|block| unsafe { block.as_ref() })
    }

    pub(super) fn block_of(&self, position: u64) -> &Block {
        // SAFETY: the directory points at live blocks.
        unsafe { self.block_at(position).as_ref() }
    }

    pub(super) fn position_of(&self, key: &[u8]) -> u64 {
        spread(self.hasher.hash(key))
    }

    /// Asks the cache for what a lookup of the key will read, one level a call: 0 directory, 1 group, 2 word,
    /// 3 entry, 4 the rest of a longer entry. A batch calls each level for all its keys before the next.
    #[inline]
    pub fn prefetch(&self, key_hash: u64, level: usize) {
        let position = spread(key_hash);
        if level == 0 {
            super::block::prefetch(&self.directory[self.directory_index(position)]);
            return;
        }
        let block = self.block_of(position);
        match level {
            1 => block.prefetch_group(Print::of(key_hash)),
            2 => block.prefetch_word(Print::of(key_hash)),
            3 => block.prefetch_entry(Print::of(key_hash)),
            _ => block.prefetch_value(Print::of(key_hash)),
        }
    }

    /// The entry that the search for a key looks at first: most likely the key's, where it is there.
    #[inline]
    pub fn candidate(&self, key_hash: u64) -> Option<Entry> {
        let block = self.block_of(spread(key_hash));
        block.candidate(Print::of(key_hash)).map(|slot| block.entry(slot))
    }

    /// Gives back up to `limit` entries, or a few more, and their blocks, for a database that is not used any more. How
    /// many it was, and whether anything is left.
    pub fn dismantle(&mut self, limit: usize) -> (usize, bool) {
        let mut freed = 0;
        while freed < limit {
            let Some(block) = self.blocks.pop() else { return (freed, false) };
            let Some(block) = block else {
                // The place of a block that was merged away: `bytes` counts blocks less such places.
                self.free_ids.pop();
                continue;
            };
            freed += self.free_block(block);
        }
        (freed, true)
    }

    /// Frees a block with its entries; returns how many there were.
    fn free_block(&mut self, block: NonNull<Block>) -> usize {
        // SAFETY: blocks come from `Box::leak`, and this one was taken out of the table.
        let block = unsafe { Box::from_raw(block.as_ptr()) };
        for slot in block.full_slots() {
            let entry = block.entry(slot);
            self.entry_bytes -= entry.allocated_bytes();
            self.leave(entry);
            // SAFETY: the block that owned it goes with it.
            unsafe { entry.free() };
        }
        block.len()
    }

    fn new_block(&mut self, depth: u8, position: u64, base_ms: u64) -> NonNull<Block> {
        let id = self.free_ids.pop().unwrap_or_else(|| {
            self.blocks.push(None);
            (self.blocks.len() - 1) as u32
        });
        self.minima.grow(id);
        let block = NonNull::from(Box::leak(Block::new(id, depth, position, base_ms)));
        self.blocks[id as usize] = Some(block);
        self.depths[depth as usize] += 1;
        block
    }

    /// The directory entries of a block: first index and number.
    fn aliases(&self, block: &Block) -> (usize, usize) {
        (self.directory_index(block.position), 1 << (self.bits - block.depth))
    }

    #[cold]
    #[inline(never)]
    fn split(&mut self, mut pointer: NonNull<Block>) {
        // SAFETY: a live block of ours; no other reference to it is in use.
        let block = unsafe { pointer.as_mut() };
        let depth = block.depth;
        // A depth past the pointer bits of a position would need 2^40 blocks: the seed keeps keys from agreeing in
        // that many bits.
        assert!(depth < 40, "keys agree in {depth} bits of their hashes");
        if depth == self.bits {
            self.double();
        }
        let mut moved = std::mem::take(&mut self.moved);
        block.drain(&mut moved);
        self.depths[depth as usize] -= 1;
        self.depths[depth as usize + 1] += 1;
        block.depth = depth + 1;
        let base_ms = block.base_ms;
        let mut upper = self.new_block(depth + 1, block.position | 1 << (63 - depth), base_ms);
        // SAFETY: just made.
        let upper_block = unsafe { upper.as_mut() };
        let bit = 7 - (depth & 7);
        let used_up = bit == 0;
        if used_up {
            prefetch_all(&moved);
        }
        for one in &mut moved {
            let goes_up = one.window >> bit & 1 == 1;
            if used_up {
                one.window = window(spread(self.hasher.hash(one.entry.key())), depth + 1);
            }
            if goes_up { upper_block.take_in(one, base_ms) } else { block.take_in(one, base_ms) }
        }
        moved.clear();
        self.moved = moved;
        let (start, count) = self.aliases(upper_block);
        self.directory[start..start + count].fill(upper);
        self.minima.set(block.id, block.next_due_ms(0));
        self.minima.set(upper_block.id, upper_block.next_due_ms(0));
    }

    fn double(&mut self) {
        self.directory = self.directory.iter().flat_map(|&block| [block, block]).collect();
        self.bits += 1;
    }

    /// Merges the block with its buddy while both together are nearly empty.
    fn merge(&mut self, mut pointer: NonNull<Block>) {
        loop {
            // SAFETY: a live block of ours; no other reference to it is in use.
            let block = unsafe { pointer.as_mut() };
            let depth = block.depth;
            if depth == 0 || block.len() >= MERGE_BELOW {
                return;
            }
            let mut other = self.block_at(block.position ^ 1 << (64 - depth));
            // SAFETY: the buddy is another block, since it stands for another part of the line.
            let buddy = unsafe { other.as_mut() };
            if buddy.depth != depth || block.len() + buddy.len() > MERGED_AT_MOST {
                return;
            }
            let base_ms = match (block.with_deadline(), buddy.with_deadline()) {
                (_, 0) => block.base_ms,
                (0, _) => buddy.base_ms,
                _ => block.base_ms.min(buddy.base_ms),
            };
            let latest_ms = block.latest_in_column_ms().max(buddy.latest_in_column_ms());
            if latest_ms.is_some_and(|latest_ms| latest_ms - base_ms > REACH_MS) {
                return;
            }
            let (block_base_ms, buddy_base_ms) = (block.base_ms, buddy.base_ms);
            let mut moved = std::mem::take(&mut self.moved);
            block.drain(&mut moved);
            let of_block = moved.len();
            buddy.drain(&mut moved);
            self.free_ids.push(buddy.id);
            self.minima.set(buddy.id, NEVER_MS);
            self.blocks[buddy.id as usize] = None;
            // SAFETY: drained and out of the table; the directory is mended below, before anyone looks.
            drop(unsafe { Box::from_raw(other.as_ptr()) });
            self.depths[depth as usize] -= 2;
            self.depths[depth as usize - 1] += 1;
            block.depth = depth - 1;
            block.position &= !(1 << (64 - depth));
            block.base_ms = base_ms;
            let coarser = depth & 7 == 0;
            if coarser {
                prefetch_all(&moved);
            }
            for (index, one) in moved.iter_mut().enumerate() {
                if coarser {
                    one.window = window(spread(self.hasher.hash(one.entry.key())), depth - 1);
                }
                block.take_in(one, if index < of_block { block_base_ms } else { buddy_base_ms });
            }
            moved.clear();
            self.moved = moved;
            let (start, count) = self.aliases(block);
            self.directory[start..start + count].fill(pointer);
            self.minima.set(block.id, block.next_due_ms(0));
            self.halve();
        }
    }

    /// Shrinks the directory when it has become far larger than the blocks need.
    fn halve(&mut self) {
        let blocks = self.shape().blocks;
        while self.bits > 0 && self.depths[self.bits as usize] == 0 && self.directory.len() > 8 * blocks {
            self.directory = self.directory.iter().copied().step_by(2).collect();
            self.bits -= 1;
        }
    }

    #[cfg(test)]
    pub fn check(&mut self) {
        let mut len = 0;
        let mut with_deadline = 0;
        let mut bytes = 0;
        for block in self.blocks() {
            block.check();
            len += block.len();
            with_deadline += block.with_deadline();
            assert!(self.minima.get(block.id) <= block.exact_minimum_ms(), "a minimum is never late");
            let (start, count) = self.aliases(block);
            assert!(self.directory[start..start + count].iter().all(|at| std::ptr::eq(at.as_ptr(), block)));
            for slot in block.full_slots() {
                let entry = block.entry(slot);
                bytes += entry.allocated_bytes();
                let hash = self.hasher.hash(entry.key());
                assert!(std::ptr::eq(self.block_at(spread(hash)).as_ptr(), block));
                assert_eq!(block.print(slot), Print::of(hash));
                assert_eq!(block.window(slot), window(spread(hash), block.depth));
            }
        }
        assert_eq!((len, with_deadline, bytes), (self.len, self.with_deadline, self.entry_bytes));
        assert_eq!(self.directory.len(), 1 << self.bits);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        while self.dismantle(usize::MAX).1 {}
    }
}

/// Where a block's column starts to count at this moment.
fn base_at(now_ms: u64) -> u64 {
    now_ms.saturating_sub(BASE_BEHIND_MS)
}

fn prefetch_all(moved: &[Moved]) {
    for one in moved {
        super::block::prefetch(one.entry.address() as *const u8);
    }
}
