//! What a block's memory looks like: the groups and their columns, the head, and how large all of that is.

use super::NONE;
use crate::observe::memory::LASTING_ALIGN as ALIGN;
use crate::table::entry::size_class;
use std::alloc::Layout;

pub const GROUP_SLOTS: usize = 15;
/// A block has no more groups than this.
pub const GROUPS_MAX: usize = 38;
/// Slots are counted as if a group had this many: that divides quickly.
pub const STRIDE: usize = 16;
pub const SLOTS_MAX: usize = GROUPS_MAX * GROUP_SLOTS;
pub const SLOTS_END_MAX: usize = GROUPS_MAX * STRIDE;
/// A block that would have to be larger splits: one page and a quarter.
const BYTES_MAX: usize = 5120;
/// What a slot takes of its group.
pub const SLOT_BYTES: usize = GROUP_BYTES / GROUP_SLOTS;
pub const GROUP_BYTES: usize = size_of::<Group>();
/// A sweep reads only those parts of a block in which something is due.
pub const PARTS: usize = 8;
pub const PART_GROUPS: usize = GROUPS_MAX.div_ceil(PARTS);

/// Where a group's tags have the count of keys that overflowed past the group.
pub const OVERFLOW: usize = GROUP_SLOTS;

/// A place in the heap is a chunk and, in these bits, where in the chunk.
pub const WITHIN_BITS: u32 = 11;
pub const CHUNKS_MAX: usize = 1 << (16 - WITHIN_BITS);

/// A piece of the heap: where it is, ...
pub type Chunk = *mut u8;

/// ... and what is in it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Fill {
    pub used: u16,
    pub holes: u16,
    pub capacity: u16,
}

#[repr(C, align(64))]
pub struct Group {
    pub tags: Tags,
    pub places: [u16; GROUP_SLOTS],
    pub bits: [u8; GROUP_SLOTS],
    /// The last one is never set: so many fill a vector register.
    pub deadlines: [u32; GROUP_SLOTS + 1],
}

impl Group {
    pub const EMPTY: Group = Group {
        tags: Tags([0; 16]),
        places: [0; GROUP_SLOTS],
        bits: [0; GROUP_SLOTS],
        deadlines: [NONE; GROUP_SLOTS + 1],
    };
}

#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct Tags(pub [u8; 16]);

#[repr(C)]
pub struct Head {
    /// For each part of the column a value that is not later than its earliest deadline (FAR and NONE are no
    /// deadlines here); NONE where there are none.
    pub earliest: [u32; PARTS],
    pub len: u16,
    pub with_deadline: u16,
    /// How many of the deadlines are FAR.
    pub far: u16,
    /// How many bits of a position the block stands for.
    pub depth: u8,
    /// Chunks of the heap, and the one that takes new entries.
    pub chunks: u8,
    pub open: u8,
    /// Index in the table's list of blocks and in the minima.
    pub id: u32,
    /// Where on the line of positions the block's part starts.
    pub position: u64,
    /// Bytes of entries in the heap, of holes that others have left there, and of all chunks.
    pub live: u32,
    pub holes: u32,
    pub capacity: u32,
}

const _: () = assert!(GROUP_BYTES == 128 && std::mem::offset_of!(Group, deadlines) == 64);
const _: () = assert!(GROUP_SLOTS == 15 && std::mem::offset_of!(Group, places) == 16);
const _: () = assert!(size_of::<Chunk>() == 8 && size_of::<Fill>() == 8);

/// Bytes in front of the groups.
#[inline]
pub const fn front_bytes(chunks: usize) -> usize {
    let bytes = size_of::<u64>() + chunks * (size_of::<Chunk>() + size_of::<Fill>()) + size_of::<Head>();
    bytes.next_multiple_of(ALIGN)
}

/// How large a block's columns are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub groups: usize,
    pub chunks: usize,
}

impl Shape {
    /// As large as a block can be, where what is usual is too small for what has to go in.
    pub const LARGEST: Shape = Shape { groups: GROUPS_MAX, chunks: CHUNKS_MAX };

    /// For at least so many keys and chunks: as much as fits the allocator's size class. Nothing where a block does not
    /// get so large.
    pub fn of(keys: usize, chunks: usize) -> Option<Shape> {
        let groups = (keys * 20).div_ceil(GROUP_SLOTS * 19).max(1);
        let bytes = (front_bytes(chunks) + groups * GROUP_BYTES).next_multiple_of(ALIGN);
        let class = size_class(bytes).next_multiple_of(ALIGN);
        if class > BYTES_MAX || groups > GROUPS_MAX {
            return None;
        }
        let groups = ((class - front_bytes(chunks)) / GROUP_BYTES).min(GROUPS_MAX);
        let room = class - groups * GROUP_BYTES;
        let chunks = (chunks..=CHUNKS_MAX).take_while(|&chunks| front_bytes(chunks) <= room).last()?;
        Some(Shape { groups, chunks })
    }

    pub fn bytes(self) -> usize {
        front_bytes(self.chunks) + self.groups * GROUP_BYTES
    }

    pub fn layout(self) -> Layout {
        Layout::from_size_align(self.bytes(), ALIGN).expect("a block is small")
    }
}

/// The bits of a hash a block needs: fingerprint and eight more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Print {
    pub fingerprint: u8,
    pub bits: u8,
}

impl Print {
    #[inline]
    pub const fn of(hash: u64) -> Print {
        let fingerprint = (hash >> 8) as u8;
        Print { fingerprint: if fingerprint == 0 { 1 } else { fingerprint }, bits: hash as u8 }
    }

    #[inline]
    pub fn home(self, groups: usize) -> usize {
        (((self.bits as usize) << 8 | self.fingerprint as usize) * groups) >> 16
    }
}

/// A bit for each slot of a group.
pub const FULL_GROUP: u32 = (1 << GROUP_SLOTS) - 1;

/// One bit for each of a group's fingerprints that equals the given one.
#[inline]
pub fn matches(tags: &Tags, fingerprint: u8) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_set1_epi8};
        // SAFETY: SSE2 is part of x86-64; tags are 16 bytes, aligned to 16.
        unsafe {
            let tags = _mm_load_si128(tags.0.as_ptr().cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8(fingerprint as i8))) as u32 & FULL_GROUP
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let mut bits = 0;
        for (index, &tag) in tags.0[..GROUP_SLOTS].iter().enumerate() {
            bits |= u32::from(tag == fingerprint) << index;
        }
        bits
    }
}

/// One bit for each slot of a group that is in use and has its entry in that chunk.
#[inline]
pub fn in_chunk(group: &Group, chunk: usize) -> u32 {
    let free = matches(&group.tags, 0);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let there = {
        use std::arch::x86_64::{
            _mm_cmpeq_epi16, _mm_load_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set1_epi16, _mm_srli_epi16,
        };
        // SAFETY: SSE2 is part of x86-64. Both loads are inside the group, of which `places` begins at 16: the second one takes
        // in two bytes behind the places, which count for no slot.
        unsafe {
            let places = std::ptr::from_ref(group).cast::<std::arch::x86_64::__m128i>().add(1);
            let chunk = _mm_set1_epi16(chunk as i16);
            let is_there = |places| _mm_cmpeq_epi16(_mm_srli_epi16::<{ WITHIN_BITS as i32 }>(places), chunk);
            let (low, high) = (_mm_load_si128(places), _mm_load_si128(places.add(1)));
            _mm_movemask_epi8(_mm_packs_epi16(is_there(low), is_there(high))) as u32 & FULL_GROUP
        }
    };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let there = {
        let mut bits = 0;
        for (index, &place) in group.places.iter().enumerate() {
            bits |= u32::from(usize::from(place) >> WITHIN_BITS == chunk) << index;
        }
        bits
    };
    there & !free
}

/// The set bits, lowest first.
pub struct Bits(pub u32);

impl Iterator for Bits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}
