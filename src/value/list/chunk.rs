//! One allocation of a list: a linked sequence with room at either end, or one that is compressed.

use crate::value::lzf;
use crate::value::pack::{Element, link};
use std::collections::VecDeque;
use std::ops::Range;

/// Shape of the bytes: `gap | elements | room`, the room being the vector's spare capacity. Compressed they have neither
/// gap nor room, and only [`Chunk::read`], [`Chunk::len`], [`Chunk::clone`] and what is not about the bytes may be asked
/// for.
#[derive(Default)]
pub(super) struct Chunk {
    data: Vec<u8>,
    /// Bytes of the gap.
    gap: u32,
    /// Bytes of the sequence where it is compressed, else 0.
    expanded_len: u32,
    count: u32,
    /// See `saving.rs`: when it was shown, or copied to be shown, or came to be, and what is to be shown before it.
    pub era: u32,
    #[expect(clippy::box_collection, reason = "hardly any chunk has this, and each has room for it")]
    pub kept: Option<Box<VecDeque<Chunk>>>,
}

/// Bytes a chunk begins with, where there may be more.
const BYTES_MIN: usize = 64;
/// As in Redis, nothing shorter is compressed, and nothing that would save less.
const COMPRESSED_MIN: usize = 48;
const SAVED_MIN: usize = 9;
/// Longer chunks, which are those of one huge element, stay as they are: everybody else would wait for them. A quarter of
/// a megabyte takes about a millisecond.
const COMPRESSED_MAX: usize = 1 << 18;

impl Chunk {
    /// A chunk of a linked sequence.
    pub fn of(sequence: &[u8], count: usize) -> Chunk {
        Chunk { data: sequence.to_vec(), count: count as u32, ..Chunk::default() }
    }

    /// A chunk of one element.
    pub fn single(element: Element) -> Chunk {
        let mut data = Vec::with_capacity(link::encoded_len(element));
        link::encode(element, &mut data);
        Chunk { data, count: 1, ..Chunk::default() }
    }

    /// The linked sequence.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        debug_assert!(!self.is_compressed());
        &self.data[self.gap as usize..]
    }

    /// The linked sequence, which is in the buffer where the chunk is compressed.
    #[inline]
    pub fn read<'a>(&'a self, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        if self.is_compressed() {
            self.expand_to(buffer);
            return buffer;
        }
        self.bytes()
    }

    /// Bytes of the linked sequence.
    #[inline]
    pub fn len(&self) -> usize {
        if self.is_compressed() { self.expanded_len as usize } else { self.data.len() - self.gap as usize }
    }

    #[inline]
    pub fn is_compressed(&self) -> bool {
        self.expanded_len > 0
    }

    /// Compresses the chunk, where that is worth while.
    #[cold]
    pub fn compress(&mut self) {
        let len = self.len();
        if self.is_compressed() || !(COMPRESSED_MIN..=COMPRESSED_MAX).contains(&len) {
            return;
        }
        if let Some(mut compressed) = lzf::compress(self.bytes(), len - SAVED_MIN) {
            compressed.shrink_to_fit();
            (self.data, self.gap, self.expanded_len) = (compressed, 0, len as u32);
        }
    }

    /// Makes a chunk as it was before it was compressed.
    #[cold]
    pub fn expand(&mut self) {
        if self.is_compressed() {
            let mut data = Vec::new();
            self.expand_to(&mut data);
            (self.data, self.expanded_len) = (data, 0);
        }
    }

    #[cold]
    fn expand_to(&self, buffer: &mut Vec<u8>) {
        let expanded = lzf::expand_to(&self.data, self.expanded_len as usize, buffer);
        expanded.expect("what a chunk compressed can be expanded");
    }

    #[inline]
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Bytes of the allocation.
    #[inline]
    pub fn allocated(&self) -> usize {
        self.data.capacity()
    }

    /// Where the element of this index is, from the nearer end; the end for the index behind the last one.
    pub fn offset(&self, index: usize) -> usize {
        self.offset_in(self.bytes(), index)
    }

    /// The same where these are the chunk's bytes.
    pub fn offset_in(&self, bytes: &[u8], index: usize) -> usize {
        let count = self.count();
        if index * 2 <= count {
            link::skip(bytes, 0, index)
        } else {
            link::skip_back(bytes, bytes.len(), count - index)
        }
    }

    /// Puts an element at an offset. The allocation grows by more than needed, but not to more than `limit_bytes`.
    pub fn insert(&mut self, at: usize, element: Element, limit_bytes: usize) {
        let mut place = self.open(at, link::encoded_len(element), limit_bytes);
        link::encode(element, &mut place);
        self.count += 1;
    }

    /// Puts an element where another one is.
    pub fn replace(&mut self, at: usize, element: Element, limit_bytes: usize) {
        let (old, new) = (link::linked_len_at(self.bytes(), at), link::encoded_len(element));
        if new > old {
            self.open(at, new - old, limit_bytes);
        } else if new < old {
            self.close(at..at + old - new);
        }
        let at = self.gap as usize + at;
        link::encode(element, &mut &mut self.data[at..at + new]);
    }

    /// Takes away a range of bytes, which has `count` elements.
    pub fn remove(&mut self, range: Range<usize>, count: usize) {
        self.close(range);
        self.count -= count as u32;
        if self.bytes().len() * 4 < self.data.capacity() {
            self.set_capacity(self.bytes().len() * 2, 0);
        }
    }

    /// Takes away the elements at these offsets, which ascend.
    pub fn remove_each(&mut self, offsets: &[usize]) {
        let gap = self.gap as usize;
        let mut to = gap + offsets.first().copied().unwrap_or(0);
        for (index, &at) in offsets.iter().enumerate() {
            let from = gap + at + link::linked_len_at(self.bytes(), at);
            let end = offsets.get(index + 1).map_or(self.data.len(), |next| gap + next);
            self.data.copy_within(from..end, to);
            to += end - from;
        }
        if !offsets.is_empty() {
            let end = to - gap;
            self.count -= offsets.len() as u32;
            self.remove(end..self.bytes().len(), 0);
        }
    }

    /// Keeps what is before an offset, `count` elements; returns the rest.
    pub fn split_off(&mut self, at: usize, count: usize) -> Chunk {
        let rest = Chunk::of(&self.bytes()[at..], self.count() - count);
        self.remove(at..self.bytes().len(), rest.count());
        rest
    }

    /// Takes over what is in the chunk behind this one.
    pub fn append(&mut self, next: &Chunk, limit_bytes: usize) {
        let end = self.bytes().len();
        self.open(end, next.bytes().len(), limit_bytes).copy_from_slice(next.bytes());
        self.count += next.count;
    }

    /// Gives back room where it is more than an eighth: for a chunk that is not expected to grow.
    pub fn seal(&mut self) {
        let len = self.bytes().len();
        if self.data.capacity() - len > len / 8 {
            self.set_capacity(len, 0);
        }
    }

    /// Makes room at an offset by moving the shorter side, where that one can move.
    fn open(&mut self, at: usize, len: usize, limit_bytes: usize) -> &mut [u8] {
        let front_is_shorter = at * 2 < self.bytes().len();
        let fits_front = len <= self.gap as usize;
        let fits_back = len <= self.data.capacity() - self.data.len();
        if !(fits_front && front_is_shorter || fits_back && !front_is_shorter) {
            self.make_room(len, front_is_shorter, limit_bytes);
        }
        let gap = self.gap as usize;
        if front_is_shorter && len <= gap {
            self.data.copy_within(gap..gap + at, gap - len);
            self.gap -= len as u32;
        } else {
            let end = self.data.len();
            self.data.resize(end + len, 0);
            self.data.copy_within(gap + at..end, gap + at + len);
        }
        let at = self.gap as usize + at;
        &mut self.data[at..at + len]
    }

    /// Makes room for `len` bytes at an end: what there is at the other one is shared, else there will be more.
    fn make_room(&mut self, len: usize, in_front: bool, limit_bytes: usize) {
        let live = self.bytes().len();
        let needed = live + len;
        if needed <= self.data.capacity() {
            let spare = (self.data.capacity() - needed) / 2;
            let gap = if in_front { len + spare } else { spare };
            self.move_to(gap);
        } else {
            let capacity = needed.max((needed + needed / 2).max(BYTES_MIN).min(limit_bytes));
            self.set_capacity(capacity, if in_front { capacity - live } else { 0 });
        }
    }

    /// Moves the elements within the allocation, so that the gap is this long.
    fn move_to(&mut self, gap: usize) {
        let (from, end) = (self.gap as usize, self.data.len());
        if gap > from {
            self.data.resize(end + gap - from, 0);
        }
        self.data.copy_within(from..end, gap);
        self.data.truncate(gap + end - from);
        self.gap = gap as u32;
    }

    fn set_capacity(&mut self, capacity: usize, gap: usize) {
        let mut data = Vec::with_capacity(capacity);
        data.resize(gap, 0);
        data.extend_from_slice(self.bytes());
        self.data = data;
        self.gap = gap as u32;
    }

    /// Takes away a range by moving the shorter side.
    fn close(&mut self, range: Range<usize>) {
        let (gap, end) = (self.gap as usize, self.data.len());
        let after = end - gap - range.end;
        if range.start < after {
            self.data.copy_within(gap..gap + range.start, gap + range.len());
            self.gap += range.len() as u32;
        } else {
            self.data.copy_within(gap + range.end..end, gap + range.start);
            self.data.truncate(end - range.len());
        }
    }
}

impl Clone for Chunk {
    fn clone(&self) -> Chunk {
        if self.is_compressed() {
            let (data, expanded_len, count) = (self.data.clone(), self.expanded_len, self.count);
            return Chunk { data, expanded_len, count, ..Chunk::default() };
        }
        Chunk::of(self.bytes(), self.count())
    }
}
