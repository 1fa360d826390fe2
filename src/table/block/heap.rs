//! A block's heap: its entries, packed one behind the other in chunks that are all of one size but for the last, which
//! grows with the block.
//!
//! ```text
//!  place u16   5 bits: chunk | 11 bits: where in it, in steps of two bytes
//!  chunk       | entry | entry | hole | entry | stub | .. used .. |      |   capacity
//! ```
//!
//! What an entry leaves behind is a hole, and only counted. Where a new entry finds no room at the end of a chunk, the
//! chunk with most holes is packed anew, if the block has many of them; else a chunk is added. A block that is mostly
//! holes is built anew by its table. Entries larger than [`ENTRY_BYTES_MAX`] are whole: the heap has a stub for them.
//!
//! Chunks are 3,584 bytes since jemalloc spends 128 bytes on each slab: its classes with slabs of 28 KiB lose 0.5 % to
//! that, those with slabs of 4 KiB 3 %.

use super::Block;
use super::columns::{CHUNKS_MAX, Chunk, Fill, Shape, WITHIN_BITS};
use crate::observe::memory::LASTING_ALIGN as ALIGN;
use crate::table::entry::{Entry, Plan, STUB_BYTES, whole_of};
use crate::table::whole::Whole;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{NonNull, copy, copy_nonoverlapping};

/// Bytes of a full-grown chunk, and what the last one has on the way there: size classes, so that nothing is lost, and
/// never more than one and a half times the one before, so that a block that was built anew is not sparse.
const STEPS: [usize; 12] = [64, 128, 192, 256, 320, 448, 640, 896, 1280, 1792, 2560, 3584];
const CHUNK_BYTES: usize = STEPS[STEPS.len() - 1];
const _: () = assert!(CHUNK_BYTES <= 2 << WITHIN_BITS);
/// Larger entries are outside of the heap.
pub const ENTRY_BYTES_MAX: usize = 512;
/// A block with more than this splits: so much fits in all chunks, whatever the ends of chunks are too short for.
pub const LIVE_MAX: usize = CHUNKS_MAX * (CHUNK_BYTES - ENTRY_BYTES_MAX);
/// One part in so many of the heap must be holes before a chunk is packed anew.
const HOLES_SHARE: usize = 14;

/// A heap that is no larger stays what it is: a database of a few keys that come and go is not built anew each time.
pub(in crate::table) const SMALL_BYTES: usize = 896;

/// What a block says to more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) enum Room {
    /// The open chunk has room.
    Open,
    /// A chunk more would do, for which there is no place in the columns.
    MoreChunks,
    /// The block has to be built anew, or to split.
    Full,
}

/// What an entry of so many bytes takes of a heap.
#[inline]
pub(in crate::table) fn rounded(bytes: usize) -> usize {
    (bytes.max(STUB_BYTES) + 1) & !1
}

/// What an entry that is laid out like this takes; nothing where it is too large for a heap.
#[inline]
pub(in crate::table) fn heap_bytes(plan: &Plan) -> Option<usize> {
    let bytes = plan.bytes();
    (bytes <= ENTRY_BYTES_MAX).then(|| rounded(bytes))
}

fn layout(capacity: u16) -> Layout {
    Layout::from_size_align(capacity.into(), ALIGN).expect("a chunk is small")
}

fn allocate(capacity: usize) -> *mut u8 {
    let layout = layout(capacity as u16);
    // SAFETY: no step is zero.
    let at = unsafe { alloc(layout) };
    if at.is_null() {
        handle_alloc_error(layout);
    }
    at
}

/// The smallest capacity with so much room.
fn step(bytes: usize) -> usize {
    STEPS.into_iter().find(|&step| step >= bytes).unwrap_or(CHUNK_BYTES)
}

impl Block {
    #[inline]
    fn chunk(&self, index: usize) -> Chunk {
        // SAFETY: below the count of those that are there.
        unsafe { *self.chunk_at(index) }
    }

    #[inline]
    fn fill(&self, index: usize) -> &Fill {
        // SAFETY: as above.
        unsafe { &*self.fill_at(index) }
    }

    #[inline]
    fn fill_mut(&mut self, index: usize) -> &mut Fill {
        // SAFETY: as above; whoever has the block mutably has it alone.
        unsafe { &mut *self.fill_at(index) }
    }

    fn set_chunk(&mut self, index: usize, chunk: Chunk, fill: Fill) {
        // SAFETY: callers have seen to it that there is a place.
        unsafe {
            self.chunk_at(index).write(chunk);
            self.fill_at(index).write(fill);
        }
    }

    /// Where the next entry goes.
    #[inline]
    pub(in crate::table) fn open_end(&self) -> Option<*const u8> {
        let open = self.head().open as usize;
        (open < self.chunks()).then(|| self.chunk(open).wrapping_add(self.fill(open).used.into()).cast_const())
    }

    #[inline]
    fn chunks(&self) -> usize {
        self.head().chunks as usize
    }

    /// Where a place is.
    #[inline]
    pub(in crate::table) fn at_place(&self, place: u16) -> NonNull<u8> {
        let within = (place as usize & ((1 << WITHIN_BITS) - 1)) * 2;
        // SAFETY: places are inside their chunks.
        unsafe { NonNull::new_unchecked(self.chunk(chunk_index(place)).add(within)) }
    }

    /// Where the heap has the entry, or the stub, of a slot that is in use.
    #[inline]
    pub(in crate::table) fn in_heap(&self, slot: usize) -> NonNull<u8> {
        self.at_place(self.place(slot))
    }

    /// The entry of a slot, where it is outside of the heap.
    #[inline]
    pub(in crate::table) fn whole(&self, slot: usize) -> Option<Whole> {
        // SAFETY: a full slot has the place of an entry or a stub, which stands for a whole entry.
        unsafe { whole_of(self.in_heap(slot)).map(|at| Whole::from_address(at)) }
    }

    /// What a slot takes of the heap.
    #[inline]
    pub(in crate::table) fn bytes_in_heap(&self, slot: usize) -> usize {
        bytes_at(self.in_heap(slot))
    }

    /// Opens a chunk with so much room, if there is one or can be.
    #[inline]
    pub(in crate::table) fn make_room(&mut self, bytes: usize) -> Room {
        if self.has_room(bytes) { Room::Open } else { self.find_room(bytes) }
    }

    #[cold]
    #[inline(never)]
    fn find_room(&mut self, bytes: usize) -> Room {
        if self.head().live as usize + bytes > LIVE_MAX {
            return Room::Full;
        }
        // The end of another chunk, and the one with most holes that would have room without them.
        let (chunks, mut most, mut last) = (self.chunks(), (0, 0), None);
        for index in 0..chunks {
            let chunk = self.fill(index);
            if chunk.used as usize + bytes <= chunk.capacity as usize {
                self.head_mut().open = index as u8;
                return Room::Open;
            }
            if chunk.holes > most.0 && (chunk.used - chunk.holes) as usize + bytes <= chunk.capacity as usize {
                most = (chunk.holes, index);
            }
            if (chunk.capacity as usize) < CHUNK_BYTES {
                last = Some(index);
            }
        }
        let head = self.head();
        if most.0 > 0 && head.holes as usize * HOLES_SHARE >= head.capacity as usize {
            self.pack(most.1);
            self.head_mut().open = most.1 as u8;
            return Room::Open;
        }
        if let Some(index) = last {
            let wanted = self.fill(index).used as usize + bytes;
            if wanted <= CHUNK_BYTES {
                self.grow_chunk(index, step(wanted + self.spare_bytes()));
                self.head_mut().open = index as u8;
                return Room::Open;
            }
        }
        if chunks == CHUNKS_MAX {
            return Room::Full;
        }
        if chunks == self.chunk_places() {
            return Room::MoreChunks;
        }
        self.add_chunk(step(bytes + self.spare_bytes()));
        Room::Open
    }

    /// What a chunk gets beyond what it needs: so little that it does not count in a large block.
    fn spare_bytes(&self) -> usize {
        self.head().capacity as usize / 32
    }

    fn grow_chunk(&mut self, index: usize, capacity: usize) {
        let (old, fill, new) = (self.chunk(index), *self.fill(index), allocate(capacity));
        // SAFETY: both are that long; the old one is given back with its own layout.
        unsafe {
            copy_nonoverlapping(old, new, fill.used.into());
            dealloc(old, layout(fill.capacity));
        }
        self.set_chunk(index, new, Fill { capacity: capacity as u16, ..fill });
        self.head_mut().capacity += (capacity - fill.capacity as usize) as u32;
    }

    /// Adds a chunk, and opens it.
    fn add_chunk(&mut self, capacity: usize) {
        let index = self.chunks();
        debug_assert!(index < self.chunk_places());
        self.set_chunk(index, allocate(capacity), Fill { used: 0, holes: 0, capacity: capacity as u16 });
        let head = self.head_mut();
        (head.chunks, head.open) = (index as u8 + 1, index as u8);
        head.capacity += capacity as u32;
    }

    /// Takes room at the end of the open chunk, which has it; whoever asks fills it.
    #[inline]
    pub(in crate::table) fn take_room(&mut self, bytes: usize) -> u16 {
        let open = self.head().open as usize;
        let chunk = self.fill_mut(open);
        debug_assert!(chunk.used as usize + bytes <= chunk.capacity as usize);
        let place = place_of(open, chunk.used.into());
        chunk.used += bytes as u16;
        self.head_mut().live += bytes as u32;
        place
    }

    /// Lets what is in a slot grow in its place, where it is the last of a chunk that has room; whether it could.
    #[inline]
    pub(in crate::table) fn grow_in_place(&mut self, slot: usize, bytes: usize) -> bool {
        let place = self.place(slot);
        let old = self.bytes_in_heap(slot);
        let start = (place as usize & ((1 << WITHIN_BITS) - 1)) * 2;
        let chunk = self.fill_mut(chunk_index(place));
        if start + old != chunk.used as usize || start + bytes > chunk.capacity as usize {
            return false;
        }
        chunk.used += (bytes - old) as u16;
        self.head_mut().live += (bytes - old) as u32;
        true
    }

    /// So many bytes of a place's chunk are in use no more.
    #[inline]
    pub(in crate::table) fn leave_bytes(&mut self, place: u16, bytes: usize) {
        let chunk = self.fill_mut(chunk_index(place));
        chunk.holes += bytes as u16;
        if chunk.holes == chunk.used {
            let holes = chunk.holes;
            (chunk.holes, chunk.used) = (0, 0);
            let head = self.head_mut();
            head.holes = head.holes + bytes as u32 - u32::from(holes);
        } else {
            self.head_mut().holes += bytes as u32;
        }
        self.head_mut().live -= bytes as u32;
    }

    /// What a slot has in the heap becomes a hole.
    #[inline]
    pub(in crate::table) fn leave_place(&mut self, slot: usize) {
        self.leave_bytes(self.place(slot), self.bytes_in_heap(slot));
    }

    /// Packs a chunk anew, without its holes.
    fn pack(&mut self, index: usize) {
        // Places, each with its slot in the lower half: one number is compared faster than two.
        let mut here = [0u32; CHUNK_BYTES / STUB_BYTES];
        let mut count = 0;
        for slot in self.slots_in_chunk(index) {
            if count < here.len() {
                here[count] = u32::from(self.place(slot)) << 16 | slot as u32;
                count += 1;
            }
        }
        let here = &mut here[..count];
        here.sort_unstable();
        let at = self.chunk(index);
        let mut used = 0;
        for &mut place_and_slot in here {
            let (place, slot) = ((place_and_slot >> 16) as u16, place_and_slot as u16);
            let from = self.at_place(place);
            let bytes = bytes_at(from);
            // SAFETY: both inside the chunk; entries only move towards its start.
            unsafe { copy(from.as_ptr(), at.add(used), bytes) };
            self.set_place(slot.into(), place_of(index, used));
            used += bytes;
        }
        let chunk = self.fill_mut(index);
        debug_assert_eq!(used, (chunk.used - chunk.holes) as usize);
        let holes = chunk.holes;
        (chunk.used, chunk.holes) = (used as u16, 0);
        self.head_mut().holes -= u32::from(holes);
    }

    /// Most of the heap is holes, or room that nobody needs.
    #[inline]
    pub(in crate::table) fn is_sparse(&self) -> bool {
        let head = self.head();
        head.capacity as usize > SMALL_BYTES && (head.live as usize) * 10 < head.capacity as usize * 6
    }

    /// How many bytes of entries have to go before the block, built anew, has a chunk less; or, where it has but one, before
    /// it is sparse. Nothing where it stays as it is.
    pub(in crate::table) fn bytes_to_free_a_chunk(&self) -> Option<usize> {
        let (live, capacity) = (self.head().live as usize, self.head().capacity as usize);
        if capacity <= SMALL_BYTES {
            return None;
        }
        let fits = match (capacity - 1) / CHUNK_BYTES {
            0 => (capacity * 6 / 10).saturating_sub(1),
            // The end of a chunk is lost where the next entry is longer.
            chunks => chunks * (CHUNK_BYTES - ENTRY_BYTES_MAX / 4 - live / self.len().max(1) / 2),
        };
        Some(live.saturating_sub(fits))
    }

    /// The size of a block for these keys and bytes of entries, if there is one.
    pub(in crate::table) fn shape_for(keys: usize, live: usize) -> Option<Shape> {
        // The end of a chunk is lost where the next entry is longer.
        Shape::of(keys, live.div_ceil(CHUNK_BYTES - ENTRY_BYTES_MAX / 4).clamp(1, CHUNKS_MAX))
    }

    /// Copies the entries of another block's slots, with their deadlines: that one is given back without them. `left` is how
    /// many bytes are still to come, these included. Whether there was room for all.
    pub(in crate::table) fn copy_from(&mut self, from: &Block, slots: &[u16], mut left: usize) -> bool {
        for &from_slot in slots {
            let from_slot = from_slot as usize;
            let at = from.in_heap(from_slot);
            let bytes = bytes_at(at);
            if !self.has_room(bytes) {
                if self.chunks() == self.chunk_places() {
                    return false;
                }
                self.add_chunk(step(left.max(bytes)));
            }
            left = left.saturating_sub(bytes);
            let place = self.take_room(bytes);
            // SAFETY: room was taken for it.
            unsafe { copy_nonoverlapping(at.as_ptr(), self.at_place(place).as_ptr(), bytes) };
            let slot = self.insert(from.print(from_slot), place);
            self.take_deadline(slot, from, from_slot);
        }
        true
    }

    /// Whether the open chunk has so much.
    #[inline]
    fn has_room(&self, bytes: usize) -> bool {
        let open = self.head().open as usize;
        open < self.chunks() && {
            let chunk = self.fill(open);
            chunk.used as usize + bytes <= chunk.capacity as usize
        }
    }

    /// Takes the whole heap of another block over: the places stay what they are.
    pub(in crate::table) fn take_heap(&mut self, from: &Block) {
        let chunks = from.chunks();
        debug_assert!(chunks <= self.chunk_places() && self.chunks() == 0);
        (0..chunks).for_each(|index| self.set_chunk(index, from.chunk(index), *from.fill(index)));
        let (old, head) = (from.head(), self.head_mut());
        (head.chunks, head.open) = (old.chunks, old.open);
        (head.live, head.holes, head.capacity) = (old.live, old.holes, old.capacity);
    }

    /// Gives back the chunks, but not what is outside of them.
    ///
    /// # Safety
    /// Nobody uses the block's entries afterwards.
    pub(in crate::table) unsafe fn free_heap(&self) {
        for index in 0..self.chunks() {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.chunk(index), layout(self.fill(index).capacity)) };
        }
    }

    /// Bytes of the chunks.
    #[inline]
    pub(in crate::table) fn chunk_bytes(&self) -> usize {
        self.head().capacity as usize
    }

    #[cfg(test)]
    pub(in crate::table) fn check_heap(&self) {
        let (mut used, mut holes, mut capacity) = (0, 0, 0);
        for index in 0..self.chunks() {
            let chunk = self.fill(index);
            assert!(chunk.holes <= chunk.used && chunk.used <= chunk.capacity);
            assert!(chunk.used == 0 || chunk.holes < chunk.used);
            used += usize::from(chunk.used);
            holes += usize::from(chunk.holes);
            capacity += usize::from(chunk.capacity);
        }
        let head = self.head();
        assert_eq!((holes, capacity), (head.holes as usize, head.capacity as usize));
        assert_eq!(used, head.live as usize + holes);
        let mut places: Vec<(u16, usize)> =
            self.full_slots().map(|slot| (self.place(slot), self.bytes_in_heap(slot))).collect();
        places.sort_unstable();
        assert_eq!(places.iter().map(|(_, bytes)| bytes).sum::<usize>(), head.live as usize);
        for pair in places.windows(2) {
            let same_chunk = chunk_index(pair[0].0) == chunk_index(pair[1].0);
            assert!(!same_chunk || pair[0].0 as usize + pair[0].1 / 2 <= pair[1].0 as usize, "entries do not overlap");
        }
    }
}

#[inline]
fn place_of(chunk: usize, within: usize) -> u16 {
    ((chunk << WITHIN_BITS) | (within / 2)) as u16
}

#[inline]
fn chunk_index(place: u16) -> usize {
    place as usize >> WITHIN_BITS
}

/// What an entry or a stub takes of its heap.
#[inline]
fn bytes_at(at: NonNull<u8>) -> usize {
    // SAFETY: callers have it from a slot in use.
    unsafe {
        match whole_of(at) {
            Some(_) => STUB_BYTES,
            None => rounded(Entry::at(at).bytes()),
        }
    }
}
