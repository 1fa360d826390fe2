//! The unit of everything: slots kept in columns, and the heap in which their entries are.
//!
//! ```text
//!  Block (a word)   8 bits: places for chunks | 8 bits: groups | 48 bits: address of
//!  base_ms    what deadlines count from
//!  chunks     8 bytes each: the pieces of the heap, see heap.rs
//!  head       the earliest deadline of each of PARTS parts of the groups, counts
//!  fill       8 bytes a chunk: how much of it is used
//!  groups     two cache lines each, of 15 slots:
//!    tags       15 fingerprints (0 = empty) and one count of keys that overflowed past the group
//!    places     a slot u16: where in the heap the entry is
//!    bits       a slot u8: eight more bits of the hash
//!    deadlines  a slot u32: milliseconds from `base_ms`, or FAR, or NONE
//! ```
//!
//! A search reads the directory, the block's first line, its group's two and the entry. A sweep reads the second lines of
//! those groups in whose part something is due.
//!
//! A key's home group follows from its fingerprint and the eight bits, so that keys can be placed anew without reading
//! them. Probing is linear over groups and goes on while the group's overflow count is not zero, so there are no
//! tombstones. How many groups there are follows from the keys: a block grows by the allocator's size classes, so that
//! its slots are 80 to 95 % full. The counts stand in the word, so that a search need not read the head first.
//!
//! A block owns its entries, those included that are whole, outside of its heap ([`super::whole`]).

mod columns;
mod heap;
mod prefetch;

pub(super) use columns::{CHUNKS_MAX, Head, Shape};
pub use columns::{GROUP_SLOTS, Print, SLOT_BYTES, SLOTS_END_MAX, SLOTS_MAX};
pub(super) use heap::{ENTRY_BYTES_MAX, LIVE_MAX, Room, heap_bytes};
pub use prefetch::{prefetch, prefetch_long};

use super::entry::Entry;
use columns::{
    Bits, Chunk, FULL_GROUP, Fill, GROUP_BYTES, Group, OVERFLOW, PART_GROUPS, PARTS, STRIDE, front_bytes, in_chunk,
    matches,
};
use std::alloc::{alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// A block with fewer keys than this looks for its buddy to merge with ...
pub const MERGE_BELOW: usize = SLOTS_MAX * 2 / 5;
/// ... if both together stay under this, so that a merge is not undone by the next few inserts.
pub const MERGED_AT_MOST: usize = SLOTS_MAX * 66 / 100;

/// A block without keys has no more.
#[cfg(test)]
pub const EMPTY_BLOCK_BYTES: usize = 512 + heap::SMALL_BYTES;

/// The column's mark for "no deadline". Both marks are above every relative deadline in unsigned order.
pub const NONE: u32 = u32::MAX;
/// The column's mark for a deadline that is out of the column's reach; its 64 bits are in the entry.
pub const FAR: u32 = u32::MAX - 1;
/// The latest deadline the column can hold, in milliseconds from the block's base (49.7 days).
pub const REACH_MS: u64 = FAR as u64 - 1;
/// A far deadline counts in the minimum as the moment when only this much is left (24.8 days): moving the base then
/// brings it into the column for good.
pub const INTO_REACH_MS: u64 = 1 << 31;
/// The base stays this far behind the clock: a command may carry a moment that is a little older than what the shard
/// has seen (a transaction that began elsewhere), and its deadlines must not fall before the base.
pub const BASE_BEHIND_MS: u64 = 60_000;
/// "No deadline in this block", as a minimum.
pub const NEVER_MS: u64 = u64::MAX;

const ADDRESS: u64 = (1 << 48) - 1;
const GROUPS_SHIFT: u32 = 48;
const CHUNKS_SHIFT: u32 = 56;
/// A block, by its address and the size of its columns. The table owns what it points at, and makes it anew where it
/// grows, shrinks, splits or merges: a block is used until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block(u64);

impl Block {
    /// No block, where there is room for one.
    pub(in crate::table) const NOWHERE: Block = Block(0);

    /// An empty block.
    pub(in crate::table) fn new(shape: Shape, id: u32, depth: u8, position: u64, base_ms: u64) -> Block {
        // SAFETY: the layout is not empty.
        let pointer = unsafe { alloc(shape.layout()) };
        let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(shape.layout()) };
        let address = pointer.as_ptr().expose_provenance() as u64;
        debug_assert_eq!(address & !ADDRESS, 0);
        let block = Block(address | (shape.groups as u64) << GROUPS_SHIFT | (shape.chunks as u64) << CHUNKS_SHIFT);
        let head = Head {
            earliest: [NONE; PARTS],
            len: 0,
            with_deadline: 0,
            far: 0,
            depth,
            chunks: 0,
            open: 0,
            id,
            position,
            live: 0,
            holes: 0,
            capacity: 0,
        };
        // SAFETY: all of it is inside the allocation.
        unsafe {
            block.address().cast::<u64>().write(base_ms);
            block.head_at().write(head);
            for group in 0..shape.groups {
                block.group_at(group).write(Group::EMPTY);
            }
        }
        block
    }

    /// Gives back the columns, not the heap.
    ///
    /// # Safety
    /// Nobody uses the block afterwards.
    pub(in crate::table) unsafe fn free_columns(self) {
        // SAFETY: allocated with this layout, which follows from the word.
        unsafe { dealloc(self.address(), self.shape().layout()) }
    }

    #[inline]
    fn address(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut((self.0 & ADDRESS) as usize)
    }

    #[inline]
    pub(in crate::table) fn groups(&self) -> usize {
        (self.0 >> GROUPS_SHIFT) as usize & 0xff
    }

    /// How many chunks there may be without growing.
    #[inline]
    pub(in crate::table) fn chunk_places(&self) -> usize {
        (self.0 >> CHUNKS_SHIFT) as usize
    }

    #[inline]
    fn shape(&self) -> Shape {
        Shape { groups: self.groups(), chunks: self.chunk_places() }
    }

    /// Bytes of the columns.
    #[inline]
    pub(in crate::table) fn column_bytes(&self) -> usize {
        self.shape().bytes()
    }

    /// How many keys there is room for.
    #[inline]
    pub fn slots(&self) -> usize {
        self.groups() * GROUP_SLOTS
    }

    /// What every slot's number is below.
    #[inline]
    pub fn slots_end(&self) -> usize {
        self.groups() * STRIDE
    }

    /// With this many keys it has to grow before it takes another: 95 % of the slots.
    #[inline]
    pub(in crate::table) fn is_full(&self) -> bool {
        self.len() * 20 >= self.slots() * 19
    }

    #[inline]
    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: inside the allocation, as `Shape::bytes` says.
        unsafe { self.address().add(offset) }
    }

    #[inline]
    fn chunk_at(&self, index: usize) -> *mut Chunk {
        debug_assert!(index < self.chunk_places());
        self.at(size_of::<u64>() + index * size_of::<Chunk>()).cast()
    }

    #[inline]
    fn head_at(&self) -> *mut Head {
        self.at(size_of::<u64>() + self.chunk_places() * size_of::<Chunk>()).cast()
    }

    #[inline]
    fn fill_at(&self, index: usize) -> *mut Fill {
        debug_assert!(index < self.chunk_places());
        let before = size_of::<u64>() + self.chunk_places() * size_of::<Chunk>() + size_of::<Head>();
        self.at(before + index * size_of::<Fill>()).cast()
    }

    #[inline]
    fn group_at(&self, group: usize) -> *mut Group {
        debug_assert!(group < self.groups());
        self.at(front_bytes(self.chunk_places()) + group * GROUP_BYTES).cast()
    }

    #[inline]
    pub(in crate::table) fn head(&self) -> &Head {
        // SAFETY: in the block, which lives until the table frees it.
        unsafe { &*self.head_at() }
    }

    #[inline]
    pub(in crate::table) fn head_mut(&mut self) -> &mut Head {
        // SAFETY: as above; whoever has the block mutably has it alone.
        unsafe { &mut *self.head_at() }
    }

    #[inline]
    fn group(&self, group: usize) -> &Group {
        // SAFETY: one of the block's groups.
        unsafe { &*self.group_at(group) }
    }

    #[inline]
    fn group_mut(&mut self, group: usize) -> &mut Group {
        // SAFETY: as above; whoever has the block mutably has it alone.
        unsafe { &mut *self.group_at(group) }
    }

    #[inline]
    fn deadline(&self, slot: usize) -> u32 {
        self.group(slot / STRIDE).deadlines[slot % STRIDE]
    }

    #[inline]
    pub(in crate::table) fn place(&self, slot: usize) -> u16 {
        self.group(slot / STRIDE).places[slot % STRIDE]
    }

    #[inline]
    pub(in crate::table) fn set_place(&mut self, slot: usize, place: u16) {
        self.group_mut(slot / STRIDE).places[slot % STRIDE] = place;
    }

    /// The groups of a part; none where the block is too small to have it.
    #[inline]
    fn part(&self, part: usize) -> std::ops::Range<usize> {
        let groups = self.groups();
        (part * PART_GROUPS).min(groups)..((part + 1) * PART_GROUPS).min(groups)
    }

    /// The slots of all groups with what their columns say.
    fn deadlines(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        (0..self.groups()).flat_map(|group| {
            let column = self.group(group).deadlines[..GROUP_SLOTS].iter().enumerate();
            column.map(move |(index, deadline)| (group * STRIDE + index, *deadline))
        })
    }

    /// The slots with a deadline, and when each has to be looked at.
    pub fn columns_ms(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let base_ms = self.base_ms();
        self.deadlines().filter(|(_, deadline)| *deadline != NONE).filter_map(move |(slot, deadline)| match deadline {
            FAR => Some((slot, self.entry(slot).far_deadline_ms()?)),
            relative => Some((slot, base_ms + u64::from(relative))),
        })
    }

    /// The earliest that the columns say.
    fn earliest_deadline(&self, groups: std::ops::Range<usize>) -> u32 {
        let least = |group| self.group(group).deadlines.iter().copied().fold(NONE, u32::min);
        groups.map(least).fold(NONE, u32::min)
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.head().len as usize
    }

    #[inline]
    pub fn with_deadline(&self) -> usize {
        self.head().with_deadline as usize
    }

    #[inline]
    pub fn id(&self) -> u32 {
        self.head().id
    }

    #[inline]
    pub fn depth(&self) -> u8 {
        self.head().depth
    }

    #[inline]
    pub fn position(&self) -> u64 {
        self.head().position
    }

    /// Where the next block's part starts; nothing after the last.
    pub fn next_position(&self) -> Option<u64> {
        let span = 1u64.checked_shl(64 - u32::from(self.depth()));
        span.and_then(|span| self.position().checked_add(span))
    }

    #[inline]
    pub fn base_ms(&self) -> u64 {
        // SAFETY: a block begins with it.
        unsafe { *self.address().cast() }
    }

    #[inline]
    fn set_base_ms(&mut self, base_ms: u64) {
        // SAFETY: as above; whoever has the block mutably has it alone.
        unsafe { *self.address().cast() = base_ms }
    }

    /// The first slot with this print whose place is `wanted`.
    #[inline]
    fn probe(&self, print: Print, mut wanted: impl FnMut(u16) -> bool) -> Option<usize> {
        let groups = self.groups();
        let mut group = print.home(groups);
        for _ in 0..groups {
            let slots = self.group(group);
            let mut candidates = matches(&slots.tags, print.fingerprint);
            while candidates != 0 {
                let index = candidates.trailing_zeros() as usize;
                candidates &= candidates - 1;
                if slots.bits[index] == print.bits && wanted(slots.places[index]) {
                    return Some(group * STRIDE + index);
                }
            }
            if slots.tags.0[OVERFLOW] == 0 {
                return None;
            }
            group = if group + 1 == groups { 0 } else { group + 1 };
        }
        None
    }

    /// The slot of the key with this print for which `is_it` says yes.
    #[inline]
    pub fn find(&self, print: Print, mut is_it: impl FnMut(Entry) -> bool) -> Option<usize> {
        // SAFETY: a full slot has the place of an entry or a stub.
        self.probe(print, |place| is_it(unsafe { Entry::at(self.at_place(place)) }))
    }

    /// The first slot with this print: most likely the key's, where it is there. Reads no entry.
    #[inline]
    pub fn candidate(&self, print: Print) -> Option<usize> {
        self.probe(print, |_| true)
    }

    /// Fills a slot, without a deadline, for an entry at this place. The caller makes sure that there is a free one.
    #[inline]
    pub(in crate::table) fn insert(&mut self, print: Print, place: u16) -> usize {
        self.head_mut().len += 1;
        self.take_slot(print, place)
    }

    /// The same, uncounted.
    #[inline]
    fn take_slot(&mut self, print: Print, place: u16) -> usize {
        let groups = self.groups();
        let mut group = print.home(groups);
        loop {
            let slots = self.group_mut(group);
            let free = matches(&slots.tags, 0);
            if free != 0 {
                let index = free.trailing_zeros() as usize;
                slots.tags.0[index] = print.fingerprint;
                slots.places[index] = place;
                slots.bits[index] = print.bits;
                return group * STRIDE + index;
            }
            slots.tags.0[OVERFLOW] = slots.tags.0[OVERFLOW].saturating_add(1);
            group = if group + 1 == groups { 0 } else { group + 1 };
        }
    }

    /// Takes over all slots of another block with other columns, whose heap it has or gets.
    pub(in crate::table) fn take_slots(&mut self, from: &Block) {
        for slot in from.full_slots() {
            let to = self.take_slot(from.print(slot), from.place(slot));
            self.put(to, from.deadline(slot));
        }
        let (old, head) = (from.head(), self.head_mut());
        (head.len, head.with_deadline, head.far) = (old.len, old.with_deadline, old.far);
        (0..PARTS).for_each(|part| self.refresh_part(part));
    }

    /// Makes a part's earliest deadline exact.
    fn refresh_part(&mut self, part: usize) {
        let least = self.earliest_deadline(self.part(part));
        self.head_mut().earliest[part] = if least < FAR { least } else { NONE };
    }

    /// Empties the slot; what it had in the heap becomes a hole.
    #[inline]
    pub(in crate::table) fn remove(&mut self, slot: usize) {
        self.leave_place(slot);
        let print = self.print(slot);
        self.clear_deadline(slot);
        let (group, groups) = (slot / STRIDE, self.groups());
        self.group_mut(group).tags.0[slot % STRIDE] = 0;
        self.head_mut().len -= 1;
        let mut passed = print.home(groups);
        while passed != group {
            // A saturated count has forgotten how many there were: it stays until the block is built anew.
            let overflow = &mut self.group_mut(passed).tags.0[OVERFLOW];
            if *overflow != u8::MAX {
                *overflow -= 1;
            }
            passed = if passed + 1 == groups { 0 } else { passed + 1 };
        }
    }

    /// What is in a slot that is in use, as long as nobody writes in the block.
    #[inline]
    pub fn entry(&self, slot: usize) -> Entry<'_> {
        // SAFETY: a full slot has the place of an entry or a stub.
        unsafe { Entry::at(self.in_heap(slot)) }
    }

    #[inline]
    pub fn has_key(&self, slot: usize) -> bool {
        slot % STRIDE != OVERFLOW && self.group(slot / STRIDE).tags.0[slot % STRIDE] != 0
    }

    #[inline]
    pub fn print(&self, slot: usize) -> Print {
        let group = self.group(slot / STRIDE);
        Print { fingerprint: group.tags.0[slot % STRIDE], bits: group.bits[slot % STRIDE] }
    }

    /// Eight bits of the hash that are independent of the position: they order the keys inside a block for SCAN.
    #[inline]
    pub fn hash_bits(&self, slot: usize) -> u8 {
        self.group(slot / STRIDE).bits[slot % STRIDE]
    }

    /// The slots in use, in order.
    pub fn full_slots(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.groups()).flat_map(|group| {
            Bits(!matches(&self.group(group).tags, 0) & FULL_GROUP).map(move |bit| group * STRIDE + bit)
        })
    }

    /// The slots in use that have their entries in a chunk of the heap.
    fn slots_in_chunk(&self, chunk: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.groups())
            .flat_map(move |group| Bits(in_chunk(self.group(group), chunk)).map(move |bit| group * STRIDE + bit))
    }

    /// The key's deadline in store milliseconds.
    #[inline]
    pub fn deadline_ms(&self, slot: usize) -> Option<u64> {
        match self.deadline(slot) {
            NONE => None,
            FAR => self.entry(slot).far_deadline_ms(),
            relative => {
                let entry = self.entry(slot);
                if entry.has_fields() { entry.far_deadline_ms() } else { Some(self.base_ms() + u64::from(relative)) }
            }
        }
    }

    /// When the slot has to be looked at, for its key or its fields.
    #[inline]
    pub fn column_ms(&self, slot: usize) -> Option<u64> {
        match self.deadline(slot) {
            NONE => None,
            FAR => self.entry(slot).far_deadline_ms(),
            relative => Some(self.base_ms() + u64::from(relative)),
        }
    }

    #[inline]
    pub fn is_far(&self, slot: usize) -> bool {
        self.deadline(slot) == FAR
    }

    #[inline]
    pub fn has_deadline(&self, slot: usize) -> bool {
        self.deadline(slot) != NONE
    }

    /// Past what the column says: dead, for access and cycle alike, where it speaks of the key alone. A far deadline is
    /// checked in the entry, since the base may have stayed behind.
    #[inline]
    pub fn is_due(&self, slot: usize, now_ms: u64) -> bool {
        match self.deadline(slot) {
            NONE => false,
            _ => self.column_ms(slot).is_some_and(|at_ms| now_ms > at_ms),
        }
    }

    #[inline]
    pub(in crate::table) fn clear_deadline(&mut self, slot: usize) {
        let deadline = self.deadline(slot);
        if deadline != NONE {
            let head = self.head_mut();
            head.far -= u16::from(deadline == FAR);
            head.with_deadline -= 1;
            self.put(slot, NONE);
        }
    }

    #[inline]
    fn put(&mut self, slot: usize, deadline: u32) {
        self.group_mut(slot / STRIDE).deadlines[slot % STRIDE] = deadline;
    }

    /// Sets the column; returns the moment at which the slot has to be looked at, for the block's minimum. Where the
    /// deadline is out of reach (see [`Block::in_reach`]) the caller has put it into the entry.
    #[inline]
    pub(in crate::table) fn set_deadline(&mut self, slot: usize, deadline_ms: u64) -> u64 {
        self.clear_deadline(slot);
        self.head_mut().with_deadline += 1;
        if self.in_reach(deadline_ms) {
            let base_ms = self.base_ms();
            let relative = deadline_ms.saturating_sub(base_ms);
            self.put_deadline(slot, relative as u32);
            base_ms + relative
        } else {
            self.put(slot, FAR);
            self.head_mut().far += 1;
            deadline_ms - INTO_REACH_MS
        }
    }

    #[inline]
    fn put_deadline(&mut self, slot: usize, relative: u32) {
        self.put(slot, relative);
        let earliest = &mut self.head_mut().earliest[slot / (PART_GROUPS * STRIDE)];
        *earliest = relative.min(*earliest);
    }

    #[inline]
    pub fn in_reach(&self, deadline_ms: u64) -> bool {
        deadline_ms.saturating_sub(self.base_ms()) <= REACH_MS
    }

    /// An empty deadline column starts to count anew from here.
    #[inline]
    pub(in crate::table) fn refresh_base(&mut self, base_ms: u64) {
        if self.head().with_deadline == 0 {
            self.set_base_ms(base_ms);
            self.head_mut().earliest = [NONE; PARTS];
        }
    }

    /// The relative deadline below which something is dead at `before_ms`.
    #[inline]
    fn bound(&self, before_ms: u64) -> u32 {
        before_ms.saturating_sub(self.base_ms()).min(REACH_MS + 1) as u32
    }

    /// The groups of the parts in which something is earlier than the bound.
    fn groups_before(&self, bound: u32) -> impl Iterator<Item = usize> + '_ {
        let earliest = &self.head().earliest;
        (0..PARTS).filter(move |&part| earliest[part] < bound).flat_map(|part| self.part(part))
    }

    /// Whether no deadline that is to come, as of then, fits the column before its base has moved.
    pub fn is_outdated(&self, before_ms: u64) -> bool {
        before_ms.saturating_sub(self.base_ms()) > REACH_MS
    }

    /// The slots whose deadline is earlier than `before_ms`, at most `limit` of them, are added to `out` in the order
    /// of slots. Far deadlines are never due here: a block whose minimum comes from one is first brought up to date
    /// by [`Block::move_base`].
    pub fn due(&self, before_ms: u64, limit: usize, out: &mut Vec<u16>) {
        let bound = self.bound(before_ms);
        let full = out.len() + limit;
        for group in self.groups_before(bound) {
            let column = &self.group(group).deadlines;
            if column.iter().fold(false, |any, deadline| any | (*deadline < bound)) {
                for (index, &deadline) in column.iter().enumerate() {
                    if deadline < bound {
                        if out.len() == full {
                            return;
                        }
                        out.push((group * STRIDE + index) as u16);
                    }
                }
            }
        }
    }

    /// Makes the earliest deadlines exact of those parts in which something was due before `before_ms`; returns when
    /// the block has to be looked at next: the exact minimum, where that is before `before_ms`.
    pub(in crate::table) fn next_due_ms(&mut self, before_ms: u64) -> u64 {
        let bound = self.bound(before_ms);
        for part in 0..PARTS {
            if self.head().earliest[part] < bound {
                self.refresh_part(part);
            }
        }
        let earliest = self.head().earliest.iter().copied().min().unwrap_or(NONE);
        let near_ms = if earliest == NONE { NEVER_MS } else { self.base_ms() + u64::from(earliest) };
        match self.earliest_far_ms() {
            NEVER_MS => near_ms,
            far_ms => near_ms.min(far_ms - INTO_REACH_MS),
        }
    }

    /// How many slots are due at `now_ms`.
    pub fn count_dead(&self, now_ms: u64) -> usize {
        let bound = self.bound(now_ms);
        let dead = |group| self.group(group).deadlines.iter().map(|&deadline| u32::from(deadline < bound)).sum::<u32>();
        let near = self.groups_before(bound).map(dead).sum::<u32>() as usize;
        if self.head().far == 0 {
            return near;
        }
        near + self.far_slots().filter(|&slot| self.is_due(slot, now_ms)).count()
    }

    pub fn has_far(&self) -> bool {
        self.head().far > 0
    }

    /// Whether far deadlines may be before this moment.
    pub fn has_far_before(&self, before_ms: u64) -> bool {
        self.head().far > 0 && !self.in_reach(before_ms)
    }

    fn far_slots(&self) -> impl Iterator<Item = usize> + '_ {
        self.deadlines().filter(|(_, deadline)| *deadline == FAR).map(|(slot, _)| slot)
    }

    fn earliest_far_ms(&self) -> u64 {
        if self.head().far == 0 {
            return NEVER_MS;
        }
        self.far_slots().filter_map(|slot| self.entry(slot).far_deadline_ms()).min().unwrap_or(NEVER_MS)
    }

    /// Whether far deadlines stand in the column that would be in reach of this base.
    pub fn has_come_into_reach(&self, base_ms: u64) -> bool {
        self.head().far > 0 && base_ms > self.base_ms() && self.earliest_far_ms().saturating_sub(base_ms) <= REACH_MS
    }

    /// Moves the base forward to `to_ms`: relative deadlines become smaller, far ones that came into reach are
    /// taken into the column. A deadline before `to_ms`, near or far, would become later than it is: the earliest of
    /// them holds the base back. The entries' copies of the deadlines are left to the caller, whose `taken_in` is
    /// called with each slot.
    pub(in crate::table) fn move_base(&mut self, to_ms: u64, mut taken_in: impl FnMut(usize)) {
        let earliest = self.earliest_deadline(0..self.groups());
        let mut base_ms = to_ms.min(self.earliest_far_ms());
        if earliest < FAR {
            base_ms = base_ms.min(self.base_ms() + u64::from(earliest));
        }
        let Some(step) = base_ms.checked_sub(self.base_ms()) else { return };
        for group in 0..self.groups() {
            let column = &mut self.group_mut(group).deadlines;
            column.iter_mut().filter(|deadline| **deadline < FAR).for_each(|deadline| *deadline -= step as u32);
        }
        for earliest in self.head_mut().earliest.iter_mut().filter(|earliest| **earliest < FAR) {
            // What it stands for may be gone, and the base be past it.
            *earliest = earliest.saturating_sub(step as u32);
        }
        self.set_base_ms(base_ms);
        for slot in 0..self.slots_end() {
            if self.deadline(slot) != FAR {
                continue;
            }
            let deadline_ms = self.entry(slot).far_deadline_ms().unwrap_or(NEVER_MS);
            if self.in_reach(deadline_ms) {
                self.head_mut().far -= 1;
                self.put_deadline(slot, deadline_ms.saturating_sub(base_ms) as u32);
                taken_in(slot);
            }
        }
    }

    /// Takes the deadline of another block's slot over, whose column counts from no earlier than this one's, and has
    /// nothing out of this one's reach.
    #[inline]
    pub(in crate::table) fn take_deadline(&mut self, slot: usize, from: &Block, from_slot: usize) {
        match from.deadline(from_slot) {
            NONE => return,
            FAR => {
                self.put(slot, FAR);
                self.head_mut().far += 1;
            }
            relative => {
                let step_ms = from.base_ms() - self.base_ms();
                self.put_deadline(slot, (u64::from(relative) + step_ms) as u32);
            }
        }
        self.head_mut().with_deadline += 1;
    }

    /// The latest deadline that the column itself holds, to judge whether a merge keeps everything in reach.
    pub fn latest_in_column_ms(&self) -> Option<u64> {
        let latest = self.deadlines().map(|(_, deadline)| deadline).filter(|&deadline| deadline < FAR).max()?;
        Some(self.base_ms() + u64::from(latest))
    }

    #[cfg(test)]
    pub fn exact_minimum_ms(&self) -> u64 {
        let deadlines = self.full_slots().filter_map(|slot| {
            let deadline_ms = self.column_ms(slot)?;
            Some(if self.deadline(slot) == FAR { deadline_ms - INTO_REACH_MS } else { deadline_ms })
        });
        deadlines.min().unwrap_or(NEVER_MS)
    }

    #[cfg(test)]
    pub fn check(&self) {
        assert_eq!(self.full_slots().count(), self.len());
        let with = (0..self.slots_end()).filter(|&slot| self.deadline(slot) != NONE).count();
        assert_eq!(with, self.with_deadline());
        assert_eq!(self.far_slots().count(), self.head().far as usize);
        for slot in (0..self.slots_end()).filter(|slot| slot % STRIDE < GROUP_SLOTS) {
            if !self.has_key(slot) {
                assert_eq!(self.deadline(slot), NONE, "an empty slot has no deadline");
            } else if self.deadline(slot) == FAR {
                assert!(self.entry(slot).far_deadline_ms().is_some());
            } else {
                let earliest = self.head().earliest[slot / (PART_GROUPS * STRIDE)];
                assert!(earliest <= self.deadline(slot), "a part's earliest is never late");
            }
        }
        self.check_heap();
    }
}
