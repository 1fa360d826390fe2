//! A hash table: blocks in an extendible-hashing directory (Fagin, Nievergelt, Pippenger, Strong, ACM TODS
//! 1979), so that growth never costs more than the split of one block and, seldom, a copy of the directory.
//!
//! ```text
//!  position = spread(hash)            directory (2^bits words)              blocks
//!  |--- bits ---|----------|  ---->   [ a | a | b | c | d | d | d | d ]  -> a (depth 2), b, c (3), d (1)
//! ```
//!
//! Slots are handed out as [`Slot`], valid until the next change of the same table: what may move an entry returns where
//! it is now. Entries are borrowed from the table, so that nobody holds one across a write.
//!
//! A table owns its entries but not the nodes that some of them point at: the addresses of those whose entries are gone
//! are handed to the owner ([`Table::take_orphans`]).

use super::block::{BASE_BEHIND_MS, Block, ENTRY_BYTES_MAX, NEVER_MS, Print, REACH_MS, Room, heap_bytes};
use super::entry::{Entry, Kind, Plan, STUB_BYTES, Stored, write_stub, write_value};
use super::former::Former;
use super::hash::{Hasher, Key, spread};
use super::minima::Minima;
use super::whole::Whole;
use smallvec::SmallVec;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::{NonNull, copy_nonoverlapping, write_bytes};

pub struct Table {
    pub(super) directory: Vec<Block>,
    pub(super) bits: u8,
    pub(super) blocks: Vec<Option<Block>>,
    pub(super) free_ids: Vec<u32>,
    /// How many blocks there are of each depth.
    pub(super) depths: Vec<u32>,
    pub(super) minima: Minima,
    pub(super) hasher: Hasher,
    pub(super) len: usize,
    pub(super) with_deadline: usize,
    /// Entries whose column speaks of their fields, too.
    pub(super) with_fields: usize,
    /// Bytes of blocks, their heaps included, and of entries that are outside of these.
    pub(super) block_bytes: usize,
    pub(super) whole_bytes: usize,
    /// Slots of all blocks.
    pub(super) slots: usize,
    pub(super) any_field_lives: AnyFieldLives,
    /// Whose access clocks have to be renewed; none in most tables at most times.
    pub(super) former_clocks: Option<Box<Former>>,
    /// Entries keep their addresses: all are outside of the heaps.
    pub(super) pinned: bool,
    orphans: Vec<(Kind, NonNull<u8>)>,
    /// How many blocks the next sweep takes together.
    pub(super) sweep_width: usize,
    /// Room that is used again: blocks of a sweep, the slots that are due there, and where each block's end.
    pub(super) swept_ids: Vec<u32>,
    pub(super) due: Vec<u16>,
    pub(super) due_ends: Vec<usize>,
    pub(super) upkeep: Upkeep,
    pub(super) next_to_thin: u32,
}

/// What was done so that memory comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Pairs of sparse blocks that became one.
    pub merges: u64,
    /// Blocks that were built anew, since they were mostly holes.
    pub compactions: u64,
    /// Time that both have taken.
    pub ns: u64,
}

impl Upkeep {
    pub fn add(&mut self, other: &Upkeep) {
        self.merges += other.merges;
        self.compactions += other.compactions;
        self.ns += other.ns;
    }
}

/// Where an entry is, until the next change of the table.
#[derive(Clone, Copy)]
pub struct Slot {
    pub(super) block: Block,
    pub(super) index: u16,
}

impl Slot {
    #[inline]
    pub(super) fn index(self) -> usize {
        self.index as usize
    }
}

/// Whether a hash with deadlines on its fields has one that is alive at a moment; asked where the earliest is past.
pub type AnyFieldLives = fn(Entry<'_>, u64) -> bool;
/// For tables whose entries have no fields.
pub const NO_FIELDS: AnyFieldLives = |_, _| true;

/// What a table is made of, for those who measure it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub blocks: usize,
    pub slots: usize,
    pub directory: usize,
}

impl Table {
    pub fn new(hasher: Hasher, any_field_lives: AnyFieldLives) -> Table {
        Table::of(hasher, any_field_lives, false)
    }

    /// A table whose entries stay where they are until they are given another value or a deadline out of reach.
    pub fn pinned(hasher: Hasher) -> Table {
        Table::of(hasher, NO_FIELDS, true)
    }

    fn of(hasher: Hasher, any_field_lives: AnyFieldLives, pinned: bool) -> Table {
        let mut table = Table {
            directory: Vec::new(),
            bits: 0,
            blocks: Vec::new(),
            free_ids: Vec::new(),
            depths: vec![0],
            minima: Minima::new(),
            hasher,
            len: 0,
            with_deadline: 0,
            with_fields: 0,
            block_bytes: 0,
            whole_bytes: 0,
            slots: 0,
            any_field_lives,
            former_clocks: None,
            pinned,
            orphans: Vec::new(),
            sweep_width: 1,
            swept_ids: Vec::new(),
            due: Vec::new(),
            due_ends: Vec::new(),
            upkeep: Upkeep::default(),
            next_to_thin: 0,
        };
        table.begin();
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
        self.block_bytes + self.whole_bytes + self.directory.capacity() * size_of::<Block>()
    }

    /// Bytes of entries that are outside of the blocks.
    pub(super) fn whole_bytes(&self) -> usize {
        self.whole_bytes
    }

    pub fn shape(&self) -> Shape {
        let blocks = self.blocks.len() - self.free_ids.len();
        Shape { blocks, slots: self.slots, directory: self.directory.len() }
    }

    /// What has been done for memory since this was asked.
    pub fn take_upkeep(&mut self) -> Upkeep {
        std::mem::take(&mut self.upkeep)
    }

    #[inline]
    pub(super) fn directory_index(&self, position: u64) -> usize {
        // Two shifts, since a shift by 64 (no bits) is not a shift.
        ((position >> 1) >> (63 - self.bits)) as usize
    }

    /// Where the directory says which block has a position.
    #[inline]
    pub(super) fn directory_place(&self, position: u64) -> &Block {
        &self.directory[self.directory_index(position)]
    }

    #[inline]
    pub(super) fn block_at(&self, position: u64) -> Block {
        *self.directory_place(position)
    }

    #[inline]
    pub fn find(&self, key: Key) -> Option<Slot> {
        let block = self.block_at(spread(key.hash));
        let found = block.find(Print::of(key.hash), |entry| entry.key() == key.bytes)?;
        Some(Slot { block, index: found as u16 })
    }

    /// A key with this hash, by what `is_it` says of its bytes.
    pub fn find_by(&self, hash: u64, is_it: impl Fn(&[u8]) -> bool) -> Option<Slot> {
        let block = self.block_at(spread(hash));
        let found = block.find(Print::of(hash), |entry| is_it(entry.key()))?;
        Some(Slot { block, index: found as u16 })
    }

    #[inline]
    pub fn entry(&self, slot: Slot) -> Entry<'_> {
        // SAFETY: the slot is used before the next change of the table, as long as which this is borrowed.
        unsafe { Entry::at(slot.block.in_heap(slot.index())) }
    }

    #[inline]
    pub fn deadline_ms(&self, slot: Slot) -> Option<u64> {
        slot.block.deadline_ms(slot.index())
    }

    /// Whether this is the key's deadline, as far as its block can say: one that was long past when it was set reads as the block's
    /// base.
    pub fn is_dated(&self, slot: Slot, deadline_ms: Option<u64>) -> bool {
        let has_ms = self.deadline_ms(slot);
        let is_long_past = |of_ms| of_ms < slot.block.base_ms() && has_ms == Some(slot.block.base_ms());
        has_ms == deadline_ms || deadline_ms.is_some_and(is_long_past)
    }

    /// Whether the key, or one of its fields, may be dead.
    #[inline]
    pub fn is_due(&self, slot: Slot, now_ms: u64) -> bool {
        slot.block.is_due(slot.index(), now_ms)
    }

    #[inline]
    pub fn is_dead(&self, slot: Slot, now_ms: u64) -> bool {
        self.is_dead_in(&slot.block, slot.index(), now_ms)
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
    #[inline]
    pub fn insert<'v>(&mut self, key: Key, value: impl Into<Stored<'v>>, clock: u32) -> Slot {
        let value = value.into();
        let plan = Plan::new(key.bytes.len(), &value, clock);
        let Some(bytes) = heap_bytes(&plan).filter(|_| !self.pinned) else {
            return self.insert_whole(key.hash, Whole::new(key.bytes, value, clock));
        };
        let mut block = self.room_for_new(spread(key.hash), bytes);
        let place = block.take_room(bytes);
        // SAFETY: room was taken for what is planned.
        unsafe { write_value(&value, plan.write_key(block.at_place(place), key.bytes)) };
        self.fill_slot(key.hash, block, place)
    }

    /// As [`Table::insert`], of an entry that is there already; the table owns it from now on, and leaves it where it is. Its
    /// deadline, if it has one, is still to be set.
    pub fn insert_whole(&mut self, hash: u64, whole: Whole) -> Slot {
        let mut block = self.room_for_new(spread(hash), STUB_BYTES);
        let place = block.take_room(STUB_BYTES);
        // SAFETY: room was taken for a stub.
        unsafe { write_stub(block.at_place(place), whole.address()) };
        self.whole_bytes += whole.entry().bytes();
        self.fill_slot(hash, block, place)
    }

    #[inline]
    fn fill_slot(&mut self, hash: u64, mut block: Block, place: u16) -> Slot {
        self.len += 1;
        let index = block.insert(Print::of(hash), place);
        Slot { block, index: index as u16 }
    }

    /// The block at a position, with a free slot and so much room in its open chunk.
    #[inline]
    fn room_for_new(&mut self, position: u64, bytes: usize) -> Block {
        loop {
            let block = self.block_at(position);
            if block.is_full() {
                self.grow(block);
            } else if self.make_room(block, bytes) {
                return block;
            }
        }
    }

    /// Whether the block has so much room in its open chunk; else it has been made anew, and may be another.
    #[inline]
    fn make_room(&mut self, block: Block, bytes: usize) -> bool {
        let room = self.ask_for_room(block, bytes);
        if room != Room::Open {
            self.make_anew(block, room, bytes);
        }
        room == Room::Open
    }

    /// Opens a chunk of the block, and keeps the books of its bytes.
    #[inline]
    fn ask_for_room(&mut self, mut block: Block, bytes: usize) -> Room {
        let before = block.chunk_bytes();
        let room = block.make_room(bytes);
        self.block_bytes += block.chunk_bytes() - before;
        room
    }

    /// Makes room for so many bytes beside what a slot has; returns where that is now.
    #[inline]
    fn room_beside(&mut self, slot: Slot, bytes: usize) -> Slot {
        let room = self.ask_for_room(slot.block, bytes);
        if room == Room::Open { slot } else { self.room_elsewhere(slot, room, bytes) }
    }

    #[cold]
    #[inline(never)]
    fn room_elsewhere(&mut self, slot: Slot, room: Room, bytes: usize) -> Slot {
        let key: SmallVec<[u8; 256]> = self.entry(slot).key().into();
        let hash = self.hasher.hash(&key);
        self.make_anew(slot.block, room, bytes);
        while !self.make_room(self.block_at(spread(hash)), bytes) {}
        self.find(Key { bytes: &key, hash }).expect("no key is lost where blocks are made anew")
    }

    /// Takes a key out; its memory is given back.
    pub fn remove(&mut self, slot: Slot) {
        let block = slot.block;
        let had_deadline = block.has_deadline(slot.index());
        self.take_out(slot);
        if had_deadline && block.with_deadline() == 0 {
            self.minima.set(block.id(), NEVER_MS);
        }
        // Each look at the buddy costs a cache miss: one in sixteen removals is often enough.
        self.tidy(block, block.len().is_multiple_of(16));
    }

    /// Empties a slot and gives its entry back, but leaves the block as it is.
    #[inline]
    pub(super) fn take_out(&mut self, slot: Slot) {
        let mut block = slot.block;
        self.leave(slot);
        self.len -= 1;
        self.with_deadline -= usize::from(block.has_deadline(slot.index()));
        if let Some(whole) = block.whole(slot.index()) {
            self.free_whole(whole);
        }
        block.remove(slot.index());
    }

    fn free_whole(&mut self, whole: Whole) {
        self.whole_bytes -= whole.entry().bytes();
        // SAFETY: its stub is about to go, and nobody holds an entry across a write.
        unsafe { whole.free() };
    }

    /// An entry, or its value, is about to go.
    #[inline]
    pub(super) fn leave(&mut self, slot: Slot) {
        let entry = slot.block.entry(slot.index());
        if !entry.is_string() {
            self.with_fields -= usize::from(entry.has_fields());
            if let Some(node) = entry.node() {
                self.orphans.push((entry.kind(), node));
            }
        }
    }

    /// Sets or clears a deadline.
    #[inline]
    pub fn set_deadline(&mut self, mut slot: Slot, deadline_ms: Option<u64>, now_ms: u64) -> Slot {
        let had = slot.block.has_deadline(slot.index());
        if had && self.entry(slot).has_fields() {
            slot = self.keep_far(slot, deadline_ms);
            if let Some(deadline_ms) = deadline_ms {
                self.look_at(slot, deadline_ms, now_ms);
            }
            return slot;
        }
        let Some(deadline_ms) = deadline_ms else {
            if had {
                slot.block.clear_deadline(slot.index());
                self.with_deadline -= 1;
                slot = self.keep_far(slot, None);
            }
            return slot;
        };
        slot.block.refresh_base(base_at(now_ms).min(deadline_ms));
        // What must stay where it is keeps its deadline in the entry, whatever comes into reach.
        let in_entry = self.pinned || !slot.block.in_reach(deadline_ms);
        if in_entry || had {
            slot = self.keep_far(slot, in_entry.then_some(deadline_ms));
        }
        let look_at_ms = slot.block.set_deadline(slot.index(), deadline_ms);
        self.with_deadline += usize::from(!had);
        self.minima.lower(slot.block.id(), look_at_ms);
        slot
    }

    /// Says when the earliest field of a hash dies, if any has a deadline. Where it has moved later, the slot is looked
    /// at too early once.
    pub fn set_fields_deadline(&mut self, mut slot: Slot, earliest_ms: Option<u64>, now_ms: u64) -> Slot {
        match earliest_ms {
            Some(earliest_ms) => {
                let own_ms = self.deadline_ms(slot);
                if !self.entry(slot).has_fields() {
                    slot = self.keep_far(slot, own_ms);
                    self.entry(slot).set_fields(true);
                    self.with_fields += 1;
                }
                self.look_at(slot, own_ms.map_or(earliest_ms, |own_ms| own_ms.min(earliest_ms)), now_ms);
                slot
            }
            None if self.entry(slot).has_fields() => {
                let own_ms = self.entry(slot).far_deadline_ms();
                self.entry(slot).set_fields(false);
                self.with_fields -= 1;
                self.set_deadline(slot, own_ms, now_ms)
            }
            None => slot,
        }
    }

    /// Lowers the column of a hash with fields to this moment, or to the latest it can hold.
    pub(super) fn look_at(&mut self, slot: Slot, at_ms: u64, now_ms: u64) {
        let (mut block, index) = (slot.block, slot.index());
        let had = block.has_deadline(index);
        block.refresh_base(base_at(now_ms).min(at_ms));
        if !block.in_reach(at_ms) {
            self.move_base(block, base_at(now_ms));
        }
        let at_ms = at_ms.min(block.base_ms() + REACH_MS);
        if !had || block.is_far(index) || block.column_ms(index).is_none_or(|column_ms| at_ms < column_ms) {
            let look_at_ms = block.set_deadline(index, at_ms);
            self.with_deadline += usize::from(!had);
            self.minima.lower(block.id(), look_at_ms);
        }
    }

    /// Keeps the exact deadline in the entry: where the column cannot hold it, or the entry is pinned, and only there.
    fn keep_far(&mut self, slot: Slot, deadline_ms: Option<u64>) -> Slot {
        let entry = self.entry(slot);
        if entry.far_deadline_ms() == deadline_ms {
            return slot;
        }
        let plan = Plan { far: deadline_ms, ..entry.plan() };
        match slot.block.whole(slot.index()) {
            // SAFETY: `change_whole` forgets the old pointer.
            Some(whole) => self.change_whole(slot, whole, |whole| unsafe { whole.with_far_deadline(deadline_ms) }),
            None => self.rewrite(slot, plan, |old, to| {
                // SAFETY: the value stays what it is.
                unsafe { copy_nonoverlapping(old.stored().as_ptr(), to, plan.value_len) }
            }),
        }
    }

    /// Lets a block's column count from a later moment, as far as what is due there allows.
    pub(super) fn move_base(&mut self, mut block: Block, base_ms: u64) {
        let mut taken_in = Vec::new();
        block.move_base(base_ms, |slot| taken_in.push(slot));
        if self.pinned {
            return;
        }
        for index in taken_in {
            let slot = Slot { block, index: index as u16 };
            // A hash with fields keeps its own deadline there.
            if !self.entry(slot).has_fields() {
                // An entry that becomes shorter stays where it is, and its block what it is.
                self.keep_far(slot, None);
            }
        }
    }

    /// Changes an entry that is outside of the heap and stays there.
    pub(super) fn change_whole(&mut self, slot: Slot, whole: Whole, change: impl FnOnce(Whole) -> Whole) -> Slot {
        self.whole_bytes -= whole.entry().bytes();
        let new = change(whole);
        self.whole_bytes += new.entry().bytes();
        if new != whole {
            // SAFETY: the slot has a stub.
            unsafe { write_stub(slot.block.in_heap(slot.index()), new.address()) };
        }
        slot
    }

    /// Lays out anew an entry that is in the heap, there or elsewhere: `fill` writes its value, as long as planned, with
    /// the old entry before it.
    fn rewrite(&mut self, slot: Slot, plan: Plan, fill: impl FnOnce(Entry, *mut u8)) -> Slot {
        let (mut block, index) = (slot.block, slot.index());
        let (at, old_bytes) = (block.in_heap(index), block.bytes_in_heap(index));
        let Some(bytes) = heap_bytes(&plan) else {
            let whole = Whole::planned(plan, self.entry(slot), fill);
            self.whole_bytes += whole.entry().bytes();
            block.leave_bytes(block.place(index), old_bytes - STUB_BYTES);
            // SAFETY: nothing in a heap is shorter than a stub.
            unsafe { write_stub(at, whole.address()) };
            return slot;
        };
        if bytes <= old_bytes || block.grow_in_place(index, bytes) {
            let mut copy = MaybeUninit::<[u8; ENTRY_BYTES_MAX]>::uninit();
            let copy = NonNull::from(&mut copy).cast::<u8>();
            // SAFETY: no entry in a heap is longer than the copy. Where the entry was are at least as many bytes as planned.
            unsafe {
                let old = Entry::at(at);
                copy_nonoverlapping(at.as_ptr(), copy.as_ptr(), old.bytes());
                let old = Entry::at(copy);
                fill(old, plan.write_key(at, old.key()));
            }
            if bytes < old_bytes {
                block.leave_bytes(block.place(index), old_bytes - bytes);
            }
            return slot;
        }
        let slot = self.room_beside(slot, bytes);
        let (mut block, index) = (slot.block, slot.index());
        let place = block.take_room(bytes);
        let old = block.entry(index);
        // SAFETY: room was taken for what is planned; the old entry is elsewhere.
        unsafe { fill(old, plan.write_key(block.at_place(place), old.key())) };
        block.leave_place(index);
        block.set_place(index, place);
        slot
    }

    /// Gives an entry another value, laid out as planned. What is outside of the heap stays there if it has to.
    #[inline]
    fn put(&mut self, slot: Slot, plan: Plan, value: Stored, stays_outside: bool) -> Slot {
        let (mut block, index) = (slot.block, slot.index());
        let at = block.in_heap(index);
        if let Some(whole) = block.whole(index) {
            if self.pinned || stays_outside || heap_bytes(&plan).is_none() {
                // SAFETY: `change_whole` forgets the old pointer; the value does not borrow from it.
                return self.change_whole(slot, whole, |whole| unsafe { whole.put(plan, value) });
            }
            return self.bring_in(slot, plan, value);
        }
        let (old, old_bytes) = (block.entry(index), block.bytes_in_heap(index));
        if let Some(bytes) = heap_bytes(&plan)
            && bytes <= old_bytes
            && old.value_offset() == plan.value_offset()
        {
            // SAFETY: the key stays where it is, and there is as much room behind it as planned.
            unsafe { write_value(&value, plan.write(at).value_at()) };
            if bytes < old_bytes {
                block.leave_bytes(block.place(index), old_bytes - bytes);
            }
            return slot;
        }
        // SAFETY: there is as much room as planned.
        self.rewrite(slot, plan, |_, to| unsafe { write_value(&value, to) })
    }

    /// Brings an entry into the heap that was too large for it.
    #[cold]
    fn bring_in(&mut self, slot: Slot, plan: Plan, value: Stored) -> Slot {
        let bytes = heap_bytes(&plan).expect("it fits the heap now");
        let slot = self.room_beside(slot, bytes);
        let (mut block, index) = (slot.block, slot.index());
        let place = block.take_room(bytes);
        // SAFETY: room was taken for what is planned.
        unsafe { write_value(&value, plan.write_key(block.at_place(place), block.entry(index).key())) };
        if let Some(whole) = block.whole(index) {
            self.free_whole(whole);
        }
        block.leave_place(index);
        block.set_place(index, place);
        slot
    }

    /// Puts another value into an entry, which keeps its deadline. The value must not be part of the old one.
    #[inline]
    pub fn set_value<'v>(&mut self, mut slot: Slot, value: impl Into<Stored<'v>>, now_ms: u64) -> Slot {
        let value = value.into();
        if let Stored::String(text) = value
            && self.entry(slot).is_string_of(value.len())
        {
            // SAFETY: nobody else looks at the value while the table is borrowed mutably, and it does not borrow from itself.
            unsafe { self.entry(slot).overwrite(text) };
            return slot;
        }
        if !self.entry(slot).is_string() {
            if self.entry(slot).has_fields() {
                slot = self.set_fields_deadline(slot, None, now_ms);
            }
            self.leave(slot);
        }
        let plan = self.entry(slot).plan().with_value(&value);
        let slot = self.put(slot, plan, value, false);
        self.settle(slot)
    }

    /// Another value under the same key, type, deadlines of fields and clock. What was there is not given back, if it was
    /// a node.
    pub fn set_content(&mut self, slot: Slot, content: Stored) -> Slot {
        let slot = self.put_content(slot, content, false);
        self.settle(slot)
    }

    /// As [`Table::set_content`], of a packed collection that becomes no longer: the slot stays where it is.
    pub(super) fn shrink_content(&mut self, slot: Slot, content: Stored) {
        debug_assert!(content.len() <= self.entry(slot).stored().len());
        self.put_content(slot, content, true);
    }

    fn put_content(&mut self, slot: Slot, content: Stored, stays_outside: bool) -> Slot {
        let entry = self.entry(slot);
        let plan = entry.plan().with_value(&content).with_fields(entry.has_fields());
        self.put(slot, plan, content, stays_outside)
    }

    /// After an entry has become shorter: its block is built anew where it is mostly holes. Returns where the entry is.
    #[inline]
    pub(super) fn settle(&mut self, slot: Slot) -> Slot {
        if slot.block.is_sparse() { self.settle_anew(slot) } else { slot }
    }

    #[cold]
    #[inline(never)]
    fn settle_anew(&mut self, slot: Slot) -> Slot {
        let key: SmallVec<[u8; 256]> = self.entry(slot).key().into();
        let hash = self.hasher.hash(&key);
        self.tidy(slot.block, false);
        self.find(Key { bytes: &key, hash }).expect("no key is lost where blocks are made anew")
    }

    /// Changes the length of a string that is kept as bytes; new bytes are zero, the value counts as raw from now on.
    pub fn resize_value(&mut self, slot: Slot, len: usize) -> Slot {
        let entry = self.entry(slot);
        debug_assert!(entry.is_string());
        if let Some(whole) = slot.block.whole(slot.index()) {
            // SAFETY: `change_whole` forgets the old pointer.
            return self.change_whole(slot, whole, |whole| unsafe { whole.resize_value(len) });
        }
        let plan = Plan { value_len: len, ..entry.plan() }.grown().raw();
        let slot = self.rewrite(slot, plan, |old, to| {
            let kept = old.stored().len().min(len);
            // SAFETY: there is room for so many.
            unsafe {
                copy_nonoverlapping(old.stored().as_ptr(), to, kept);
                write_bytes(to.add(kept), 0, len - kept);
            }
        });
        self.settle(slot)
    }

    /// Replaces a part of a packed collection with bytes from elsewhere.
    pub fn splice(&mut self, slot: Slot, at: Range<usize>, with: &[u8]) -> Slot {
        let entry = self.entry(slot);
        let len = entry.stored().len();
        assert!(at.start <= at.end && at.end <= len, "a part of the value");
        if at.len() == with.len() {
            self.value_mut(slot)[at].copy_from_slice(with);
            return slot;
        }
        if let Some(whole) = slot.block.whole(slot.index()) {
            // SAFETY: `change_whole` forgets the old pointer; `with` is borrowed from elsewhere.
            return self.change_whole(slot, whole, |whole| unsafe { whole.splice(at, with) });
        }
        let plan = Plan { value_len: len - at.len() + with.len(), ..entry.plan() }.grown();
        let slot = self.rewrite(slot, plan, |old, to| {
            let (head, tail) = (&old.stored()[..at.start], &old.stored()[at.end..]);
            // SAFETY: together they are as long as planned.
            unsafe {
                copy_nonoverlapping(head.as_ptr(), to, head.len());
                copy_nonoverlapping(with.as_ptr(), to.add(head.len()), with.len());
                copy_nonoverlapping(tail.as_ptr(), to.add(head.len() + with.len()), tail.len());
            }
        });
        self.settle(slot)
    }

    /// The bytes of a value that is not an integer, to change in place.
    pub fn value_mut(&mut self, slot: Slot) -> &mut [u8] {
        // SAFETY: nobody else looks at the value while the table is borrowed mutably.
        unsafe { self.entry(slot).stored_mut() }
    }

    /// Sets the mark of a packed collection.
    pub fn set_marked(&mut self, slot: Slot, marked: bool) {
        self.entry(slot).set_marked(marked);
    }

    /// Every entry with what its column says.
    pub fn entries(&self) -> impl Iterator<Item = (Entry<'_>, Option<u64>)> + '_ {
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
        self.blocks.iter().flatten()
    }

    /// Those in which some key may have a deadline.
    pub fn blocks_with_deadlines(&self) -> impl Iterator<Item = &Block> {
        self.minima.with_deadlines().filter_map(|id| self.blocks[id as usize].as_ref())
    }

    pub(super) fn block_of(&self, position: u64) -> &Block {
        self.directory_place(position)
    }

    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    pub(super) fn position_of(&self, key: &[u8]) -> u64 {
        spread(self.hash(key))
    }

    /// An entry that keeps its address, of a table of such.
    #[inline]
    pub fn whole(&self, slot: Slot) -> Option<Whole> {
        slot.block.whole(slot.index())
    }

    /// The entry that the search for a key looks at first: most likely the key's, where it is there.
    #[inline]
    pub fn candidate(&self, key_hash: u64) -> Option<Entry<'_>> {
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
                // The place of a block that was merged away: `shape` counts blocks less such places.
                self.free_ids.pop();
                continue;
            };
            for index in block.full_slots() {
                self.leave(Slot { block, index: index as u16 });
                if let Some(whole) = block.whole(index) {
                    self.free_whole(whole);
                }
            }
            freed += block.len();
            self.free_block(block);
        }
        (freed, true)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        while self.dismantle(usize::MAX).1 {}
    }
}

/// Where a block's column starts to count at this moment.
pub(super) fn base_at(now_ms: u64) -> u64 {
    now_ms.saturating_sub(BASE_BEHIND_MS)
}
