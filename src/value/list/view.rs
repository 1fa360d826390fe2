//! Reading lists, packed ones and those of chunks alike. Elements are shown to whoever reads, not lent.

use super::packed::offset as packed_offset;
use super::{List, Place};
use crate::table::{Kind, Stored};
use crate::value::pack::{self, COUNT_BYTES, Element, link};
use std::ops::ControlFlow;

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

    /// What `read` makes of the element of an index, where there is one.
    pub fn get<R>(self, index: usize, read: impl FnOnce(Element) -> R) -> Option<R> {
        let mut read = Some(read);
        let mut result = None;
        self.walk(index, Direction::Forward, |element| {
            result = read.take().map(|read| read(element));
            ControlFlow::Break(())
        });
        result
    }

    /// All elements from the front.
    pub fn for_each(self, mut each: impl FnMut(Element)) {
        self.walk(0, Direction::Forward, |element| {
            each(element);
            ControlFlow::Continue(())
        });
    }

    /// `count` elements, or as many as there are, from an index on.
    pub fn some(self, index: usize, direction: Direction, count: usize, mut each: impl FnMut(Element)) {
        if count == 0 {
            return;
        }
        let mut left = count;
        self.walk(index, direction, |element| {
            each(element);
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }

    /// The elements from an index on, to the end on that way or until there is a break; none where there is no such index.
    pub fn walk(self, index: usize, direction: Direction, each: impl FnMut(Element) -> ControlFlow<()>) {
        match self {
            View::Packed(packed) if index < pack::count(packed) => {
                let at = packed_offset(packed, index + usize::from(direction == Direction::Backward));
                // Without the count, so that both ways end at the end of the bytes.
                let _ = walk_sequence(&packed[COUNT_BYTES..], at - COUNT_BYTES, direction, each);
            }
            View::Packed(_) => {}
            View::Node(list) => list.walk(index, direction, each),
        }
    }
}

impl List {
    fn walk(&self, index: usize, direction: Direction, mut each: impl FnMut(Element) -> ControlFlow<()>) {
        let is_forward = direction == Direction::Forward;
        let Place { mut segment, mut chunk, index } = self.locate(index);
        let Some(found) = self.segments.get(segment).and_then(|segment| segment.chunks.get(chunk)) else { return };
        let mut buffer = Vec::new();
        let mut bytes = found.read(&mut buffer);
        let mut at = found.offset_in(bytes, index + usize::from(!is_forward));
        while walk_sequence(bytes, at, direction, &mut each).is_continue() {
            let Some(next) = self.chunk_after(segment, chunk, is_forward) else { break };
            (segment, chunk) = next;
            bytes = self.segments[segment].chunks[chunk].read(&mut buffer);
            at = if is_forward { 0 } else { bytes.len() };
        }
    }
}

/// The elements of a linked sequence that begin at an offset or behind it or, backward, that end there or before it.
fn walk_sequence(
    bytes: &[u8],
    mut at: usize,
    direction: Direction,
    mut each: impl FnMut(Element) -> ControlFlow<()>,
) -> ControlFlow<()> {
    match direction {
        Direction::Forward => {
            while at < bytes.len() {
                let (element, next) = link::read(bytes, at);
                each(element)?;
                at = next;
            }
        }
        Direction::Backward => {
            while at > 0 {
                at = link::before(bytes, at);
                each(pack::read(bytes, at).0)?;
            }
        }
    }
    ControlFlow::Continue(())
}
