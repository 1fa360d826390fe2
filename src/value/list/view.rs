//! Reading lists, packed ones and those of chunks alike.

use super::packed::offset as packed_offset;
use super::{Chunk, List, Place};
use crate::table::{Kind, Stored};
use crate::value::pack::{self, COUNT_BYTES, Element, link};

/// A list, however it is kept.
#[derive(Clone, Copy)]
pub enum View<'a> {
    /// A count and a linked sequence.
    Packed(&'a [u8]),
    Node(&'a List),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// Elements from an index on, one way.
#[derive(Clone)]
pub struct Iter<'a> {
    /// Where there are other chunks than the one of `bytes`.
    list: Option<&'a List>,
    segment: usize,
    chunk: usize,
    bytes: &'a [u8],
    /// Where the next element begins on the way forward, ends on the way backward.
    at: usize,
    direction: Direction,
}

impl<'a> View<'a> {
    /// How many pieces its elements are kept in.
    pub fn chunk_count(self) -> usize {
        match self {
            View::Packed(_) => 1,
            View::Node(list) => list.chunk_count(),
        }
    }

    /// The list that is kept like this.
    pub fn of(content: Stored<'a>) -> View<'a> {
        match content {
            Stored::Packed(Kind::List, _, packed) => View::Packed(packed),
            // SAFETY: the node of a list is a `List`, and lives as long as its entry, from which the content is borrowed.
            Stored::Node(Kind::List, node) => View::Node(unsafe { node.cast::<List>().as_ref() }),
            _ => unreachable!("it is a list"),
        }
    }

    pub fn len(self) -> usize {
        match self {
            View::Packed(packed) => pack::count(packed),
            View::Node(list) => list.len(),
        }
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub fn get(self, index: usize) -> Option<Element<'a>> {
        match self {
            View::Packed(packed) if index < pack::count(packed) => {
                Some(link::read(packed, packed_offset(packed, index)).0)
            }
            View::Packed(_) => None,
            View::Node(list) => list.get(index),
        }
    }

    /// The elements from an index to the end on that way; none where there is no such index.
    pub fn iter(self, index: usize, direction: Direction) -> Iter<'a> {
        match self {
            View::Packed(packed) => {
                let after = direction == Direction::Backward;
                let at = match index < pack::count(packed) {
                    true => packed_offset(packed, index + usize::from(after)),
                    false if after => COUNT_BYTES,
                    false => packed.len(),
                };
                // Without the count, so that both ways end at the end of the bytes.
                Iter {
                    list: None,
                    segment: 0,
                    chunk: 0,
                    bytes: &packed[COUNT_BYTES..],
                    at: at - COUNT_BYTES,
                    direction,
                }
            }
            View::Node(list) => list.iter(index, direction),
        }
    }
}

impl List {
    /// The elements from an index to the end on that way; none where there is no such index.
    pub fn iter(&self, index: usize, direction: Direction) -> Iter<'_> {
        let Place { segment, chunk, index } = self.locate(index);
        let found = self.segments.get(segment).and_then(|segment| segment.chunks.get(chunk));
        let at = found.map_or(0, |found| found.offset(index + usize::from(direction == Direction::Backward)));
        let list = found.map(|_| self);
        Iter { list, segment, chunk, bytes: found.map_or(&[], Chunk::bytes), at, direction }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        let (end, forward) = match self.direction {
            Direction::Forward => (self.bytes.len(), true),
            Direction::Backward => (0, false),
        };
        if self.at == end && !self.next_chunk(forward) {
            return None;
        }
        if forward {
            let (element, next) = link::read(self.bytes, self.at);
            self.at = next;
            Some(element)
        } else {
            self.at = link::before(self.bytes, self.at);
            Some(pack::read(self.bytes, self.at).0)
        }
    }
}

impl Iter<'_> {
    /// Goes on to the next chunk on the way, if there is one.
    #[cold]
    fn next_chunk(&mut self, forward: bool) -> bool {
        let Some(list) = self.list else { return false };
        let Some((segment, chunk)) = list.chunk_after(self.segment, self.chunk, forward) else { return false };
        (self.segment, self.chunk) = (segment, chunk);
        self.bytes = list.segments[segment].chunks[chunk].bytes();
        self.at = if forward { 0 } else { self.bytes.len() };
        true
    }
}
