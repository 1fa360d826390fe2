//! Large lists: chunks of elements in a structure of two levels.
//!
//! ```text
//!  List --- segments ---+--- Segment (number of elements) --- up to 256 chunks
//!                       |        ...
//!                       +--- Segment                      --- Chunk (number of elements) --- gap | a b c ... | room
//! ```
//!
//! No growth ever copies more than a segment's table of chunks or one chunk's bytes. An index is found by passing
//! segments, then chunks, then elements, from the nearer end each. Elements that are larger than a chunk may be have
//! one of their own. Each chunk is an allocation that can be replaced by itself.
//!
//! - `chunk.rs`: one chunk
//! - `compress.rs`: which chunks are compressed
//! - `edit.rs`: what changes a list in its middle
//! - `packed.rs`: what changes a list that is packed
//! - `saving.rs`: what a list had at a moment, shown in slices while it changes
//! - `view.rs`: reading lists, small ones included
//!
//! Invariants: no chunk and no segment is empty; a chunk of several elements keeps to the [`Limit`] it was made with; the
//! first and the last chunk are never compressed.

mod chunk;
mod compress;
mod edit;
pub mod packed;
mod saving;
mod view;

#[cfg(test)]
mod tests;

pub use saving::Together;
pub use view::{Direction, View};

use super::pack::{self, COUNT_BYTES, COUNT_MAX, Element, link};
use super::{Node, NodeType, Portion};
use crate::config::Limits;
use crate::table::Kind;
use chunk::Chunk;
use saving::Saving;
use std::collections::VecDeque;

/// How large a chunk, or a packed list, may be, and which chunks of a new list are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub bytes: usize,
    pub count: u32,
    /// Chunks at either end that are not compressed while all others are; 0: none is. A list goes on as it was made.
    pub compress_depth: u32,
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Front,
    Back,
}

pub struct List {
    segments: VecDeque<Segment>,
    len: usize,
    /// Bytes of the chunks and of the tables that lead to them.
    bytes: usize,
    /// See [`Limit::compress_depth`].
    depth: u32,
    /// What it had at a moment is shown in slices.
    saving: Option<Box<Saving>>,
}

#[derive(Default)]
struct Segment {
    chunks: VecDeque<Chunk>,
    len: usize,
    /// When nothing was left to be shown of its chunks: see `saving.rs`.
    shown: u32,
}

/// Chunks of a segment that is full.
const CHUNKS_MAX: usize = 256;
const COUNT_UNLIMITED: u32 = u32::MAX;
/// Header and end mark of a listpack, which ours have not.
const LISTPACK_BYTES: usize = 7;

/// The element of this index within its chunk, which is the chunk of that index within its segment. Behind the last
/// element where the list ends.
#[derive(Clone, Copy, Debug)]
struct Place {
    segment: usize,
    chunk: usize,
    index: usize,
}

impl Limit {
    /// What `list-max-listpack-size` says, elements where positive, 4 to 64 KiB where -1 to -5, and
    /// `list-compress-depth`.
    pub fn of(size: i32, compress_depth: u32) -> Limit {
        match size {
            ..0 => Limit { bytes: 2048 << size.unsigned_abs().min(5), count: COUNT_UNLIMITED, compress_depth },
            _ => Limit { bytes: 8192, count: size.max(1) as u32, compress_depth },
        }
    }

    /// What the configuration says.
    pub fn configured(limits: &Limits) -> Limit {
        Limit::of(limits.list_size, limits.list_compress_depth)
    }

    /// Whether a list of a sequence of so many bytes and elements is packed; as in Redis 7.2, whose listpacks have a
    /// header and an end mark.
    pub fn packs(self, bytes: usize, count: usize) -> bool {
        self.allows(bytes + LISTPACK_BYTES, count) && count <= COUNT_MAX
    }

    /// What a list of chunks has to keep to before it is packed again, so that it does not go to and fro.
    fn for_packing(self) -> Limit {
        match self.count {
            COUNT_UNLIMITED => Limit { bytes: self.bytes / 2, ..self },
            count => Limit { count: count / 2, ..self },
        }
    }

    /// Whether a chunk that has so many bytes and elements has room for more.
    #[inline]
    fn allows(self, bytes: usize, count: usize) -> bool {
        bytes <= self.bytes && count <= self.count as usize
    }

    fn quarters(self, quarters: usize) -> Limit {
        let count = self.count as usize * quarters / 4;
        Limit { bytes: self.bytes * quarters / 4, count: count as u32, ..self }
    }
}

impl End {
    pub fn other(self) -> End {
        if self == End::Front { End::Back } else { End::Front }
    }
}

impl NodeType for List {
    const KIND: Kind = Kind::List;
}

impl Node for List {
    fn kind(&self) -> Kind {
        Kind::List
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    /// A chunk is given back as a whole, and counts as one element.
    fn free_some(&mut self, budget: usize) -> bool {
        for _ in 0..budget {
            let Some(last) = self.segments.len().checked_sub(1) else { break };
            self.remove_chunk(last, self.segments[last].chunks.len() - 1);
        }
        self.is_empty()
    }

    fn boxed_clone(&self) -> Box<dyn Node> {
        Box::new(self.clone())
    }

    fn begin_saving(&mut self) -> bool {
        saving::begin(self)
    }

    fn save_some(&mut self, to: &mut dyn FnMut(Portion)) -> bool {
        saving::save_some(self, to)
    }

    fn stop_saving(&mut self) {
        saving::stop(self);
    }

    fn is_saved(&self) -> bool {
        self.saving.is_some()
    }
}

impl List {
    /// A list without elements; of the limit it takes which chunks are compressed.
    pub fn new(limit: Limit) -> List {
        List::of_depth(limit.compress_depth)
    }

    fn of_depth(depth: u32) -> List {
        List { segments: VecDeque::new(), len: 0, bytes: size_of::<List>(), depth, saving: None }
    }

    /// A list of the elements of a packed one.
    pub fn from_packed(packed: &[u8], limit: Limit) -> List {
        let mut list = List::new(limit);
        let (sequence, count) = (&packed[COUNT_BYTES..], pack::count(packed));
        if count > 0 && limit.allows(sequence.len(), count) {
            list.insert_chunk(0, 0, Chunk::of(sequence, count));
        } else {
            link::iter(sequence, 0).for_each(|(_, element)| list.push(End::Back, element, limit));
        }
        list
    }

    /// The packed form of a list that has become small: its elements are in one chunk.
    pub fn to_packed(&self, limit: Limit) -> Option<Vec<u8>> {
        let chunk = self.segments.front()?.chunks.front().filter(|chunk| chunk.count() == self.len)?;
        let bytes = chunk.bytes();
        limit.for_packing().packs(bytes.len(), self.len).then(|| [&(self.len as u16).to_le_bytes(), bytes].concat())
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts an element at an end.
    pub fn push(&mut self, end: End, element: Element, limit: Limit) {
        let need = link::encoded_len(element);
        if let Some((segment, chunk)) = self.chunk_at(end) {
            let last = &self.segments[segment].chunks[chunk];
            if limit.allows(last.len() + need, last.count() + 1) {
                let at = if end == End::Front { 0 } else { last.len() };
                self.edit_chunk(segment, chunk, |chunk| chunk.insert(at, element, limit.bytes));
                return;
            }
            self.edit_chunk(segment, chunk, Chunk::seal);
        }
        let mut chunk = Chunk::default();
        chunk.insert(0, element, limit.bytes);
        match end {
            End::Front => self.insert_chunk(0, 0, chunk),
            End::Back => {
                let last = self.segments.len().saturating_sub(1);
                self.insert_chunk(last, self.segments.get(last).map_or(0, |segment| segment.chunks.len()), chunk)
            }
        };
        if self.depth > 0 {
            self.compress_behind(end);
        }
    }

    /// Takes `count` elements from an end; work goes with the chunks they are in.
    pub fn drop_from(&mut self, end: End, count: usize) {
        let (mut left, mut dropped) = (count.min(self.len), 0);
        while let Some((segment, chunk)) = self.chunk_at(end) {
            let Some(rest) = left.checked_sub(self.segments[segment].chunks[chunk].count()) else { break };
            left = rest;
            self.drop_chunk(segment, chunk);
            dropped += 1;
        }
        if self.depth > 0 {
            self.expand_near(end, dropped);
        }
        if let Some((segment, chunk)) = self.chunk_at(end).filter(|_| left > 0) {
            let found = &self.segments[segment].chunks[chunk];
            let range = match end {
                End::Front => 0..found.offset(left),
                End::Back => found.offset(found.count() - left)..found.len(),
            };
            self.edit_chunk(segment, chunk, |chunk| chunk.remove(range, left));
        }
    }

    /// The first or the last chunk, as segment and chunk.
    #[inline]
    fn chunk_at(&self, end: End) -> Option<(usize, usize)> {
        match end {
            End::Front => (!self.segments.is_empty()).then_some((0, 0)),
            End::Back => self.segments.back().map(|last| (self.segments.len() - 1, last.chunks.len() - 1)),
        }
    }

    fn locate(&self, index: usize) -> Place {
        let (segment, index) = position(&self.segments, self.len, index, |segment| segment.len);
        let Some(found) = self.segments.get(segment) else { return Place { segment, chunk: 0, index } };
        let (chunk, index) = position(&found.chunks, found.len, index, Chunk::count);
        Place { segment, chunk, index }
    }

    /// Changes a chunk and keeps the books; it may be left empty only to be removed next. One that is not at an end is
    /// closed when all changes of it are done.
    fn edit_chunk<R>(&mut self, segment: usize, chunk: usize, edit: impl FnOnce(&mut Chunk) -> R) -> R {
        if self.saving.is_some() || self.depth > 0 {
            self.open_chunk(segment, chunk);
        }
        let home = &mut self.segments[segment];
        let chunk = &mut home.chunks[chunk];
        let (bytes, count) = (chunk.allocated(), chunk.count());
        let result = edit(chunk);
        self.bytes = self.bytes - bytes + chunk.allocated();
        self.len = self.len - count + chunk.count();
        home.len = home.len - count + chunk.count();
        result
    }

    /// Puts a chunk in front of that of an index within a segment. A segment that is full gets a new neighbour, or
    /// gives half of its chunks away. Returns where the chunk is then.
    fn insert_chunk(&mut self, segment: usize, index: usize, mut chunk: Chunk) -> (usize, usize) {
        chunk.era = self.saving.as_ref().map_or(0, |saving| saving.era);
        self.bytes += chunk.allocated();
        self.len += chunk.count();
        let (mut segment, mut index) = (segment, index);
        match self.segments.get(segment).map_or(0, |segment| segment.chunks.len()) {
            0 => self.insert_segment(segment, Segment::default()),
            CHUNKS_MAX if index == 0 => self.insert_segment(segment, Segment::default()),
            CHUNKS_MAX if index == CHUNKS_MAX => {
                (segment, index) = (segment + 1, 0);
                self.insert_segment(segment, Segment::default());
            }
            CHUNKS_MAX => {
                self.split_segment(segment);
                if let Some(behind) = index.checked_sub(self.segments[segment].chunks.len()) {
                    (segment, index) = (segment + 1, behind);
                }
            }
            _ => {}
        }
        self.edit_segment(segment, |home| {
            home.len += chunk.count();
            home.chunks.insert(index, chunk);
        });
        (segment, index)
    }

    /// Puts the second half of a segment's chunks into a new one behind it.
    fn split_segment(&mut self, segment: usize) {
        let back = self.edit_segment(segment, |home| {
            let chunks = home.chunks.split_off(home.chunks.len() / 2);
            let len = chunks.iter().map(Chunk::count).sum();
            home.len -= len;
            Segment { chunks, len, shown: home.shown }
        });
        self.insert_segment(segment + 1, back);
    }

    /// Takes a chunk away, whose elements are wanted elsewhere.
    fn remove_chunk(&mut self, segment: usize, index: usize) -> Chunk {
        if self.saving.is_some() {
            self.keep_chunk(segment, index);
        }
        let mut removed = self.take_chunk(segment, index);
        if let Some(kept) = removed.kept.take() {
            self.pass_on(segment, index, *kept);
        }
        removed
    }

    /// Takes a chunk away with all that is in it.
    fn drop_chunk(&mut self, segment: usize, index: usize) {
        let removed = self.take_chunk(segment, index);
        if self.saving.is_some() {
            self.keep_dropped(segment, index, removed);
        }
    }

    /// Takes a chunk out, and its segment where that was its last one.
    fn take_chunk(&mut self, segment: usize, index: usize) -> Chunk {
        let removed = self.edit_segment(segment, |home| {
            let removed = home.chunks.remove(index).expect("the index of a chunk");
            home.len -= removed.count();
            shrink(&mut home.chunks);
            removed
        });
        self.bytes -= removed.allocated();
        self.len -= removed.count();
        if self.segments[segment].chunks.is_empty() {
            let tables = self.tables_bytes(segment);
            self.segments.remove(segment);
            shrink(&mut self.segments);
            self.bytes = self.bytes - tables + self.tables_bytes(usize::MAX);
        }
        removed
    }

    fn insert_segment(&mut self, index: usize, segment: Segment) {
        let before = self.tables_bytes(usize::MAX);
        self.segments.insert(index, segment);
        self.bytes = self.bytes - before + self.tables_bytes(index);
    }

    /// Changes a segment's table and keeps the books of its bytes.
    fn edit_segment<R>(&mut self, segment: usize, edit: impl FnOnce(&mut Segment) -> R) -> R {
        let before = self.tables_bytes(segment);
        let result = edit(&mut self.segments[segment]);
        self.bytes = self.bytes - before + self.tables_bytes(segment);
        result
    }

    /// Bytes of the table of segments, and of one segment's, if there is such a segment.
    fn tables_bytes(&self, segment: usize) -> usize {
        let chunks = self.segments.get(segment).map_or(0, |segment| segment.chunks.capacity());
        self.segments.capacity() * size_of::<Segment>() + chunks * size_of::<Chunk>()
    }

    #[cfg(test)]
    fn check(&self, limit: Limit) {
        let mut bytes = size_of::<List>() + self.segments.capacity() * size_of::<Segment>();
        let mut len = 0;
        for segment in &self.segments {
            assert!((1..=CHUNKS_MAX).contains(&segment.chunks.len()));
            assert_eq!(segment.len, segment.chunks.iter().map(Chunk::count).sum::<usize>());
            bytes += segment.chunks.capacity() * size_of::<Chunk>();
            len += segment.len;
            for chunk in &segment.chunks {
                assert!(chunk.count() > 0);
                assert_eq!(link::iter(chunk.read(&mut Vec::new()), 0).count(), chunk.count());
                assert!(chunk.count() == 1 || limit.allows(chunk.len(), chunk.count()));
                bytes += chunk.allocated();
            }
        }
        assert_eq!((self.bytes, self.len), (bytes, len));
    }
}

/// Gives back a table's memory where it has become much smaller.
fn shrink<T>(table: &mut VecDeque<T>) {
    if table.capacity() > 16 && table.len() < table.capacity() / 4 {
        table.shrink_to(table.len() * 2);
    }
}

/// Which of `parts` has the element of this index, and its index within; from the nearer end. The number of parts where
/// none has it.
fn position<T>(parts: &VecDeque<T>, len: usize, index: usize, count: impl Fn(&T) -> usize) -> (usize, usize) {
    if index >= len {
        return (parts.len(), index - len);
    }
    if index * 2 < len {
        let mut left = index;
        for (position, part) in parts.iter().enumerate() {
            match left.checked_sub(count(part)) {
                None => return (position, left),
                Some(rest) => left = rest,
            }
        }
    } else {
        let mut start = len;
        for (position, part) in parts.iter().enumerate().rev() {
            start -= count(part);
            if start <= index {
                return (position, index - start);
            }
        }
    }
    (parts.len(), 0)
}

impl Clone for List {
    fn clone(&self) -> List {
        let mut clone = List::of_depth(self.depth);
        for chunk in self.segments.iter().flat_map(|segment| &segment.chunks) {
            let last = clone.segments.len().saturating_sub(1);
            let index = clone.segments.get(last).map_or(0, |segment| segment.chunks.len());
            clone.insert_chunk(last, index, chunk.clone());
        }
        clone
    }
}
