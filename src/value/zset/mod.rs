//! Sorted sets: members with scores, ordered by score, then by the bytes of the member.
//!
//! ```text
//!  packed   count u16 | (member score)*     in order
//!  Zset     a Dict of members, each with its score, and their Order
//! ```
//! A score is an integer element where it is a whole number, else an element of eight bytes, its bits. So the packed form
//! does not know a negative zero, as that of Redis does not.

mod node;
mod packed;
mod saving;
#[cfg(test)]
mod tests;

pub use super::order::{AtMember, AtScore};
pub use node::{Builder, Zset};
pub use packed::{EMPTY, Packed, fits, packed};

use super::number::I64_TEXT_BYTES_MAX;
use super::pack::{self, Element};
use crate::table::{Kind, Stored, Whole};
use node::score_of;
use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

/// A sorted set, to read from.
#[derive(Clone, Copy)]
pub enum View<'a> {
    Packed(&'a [u8]),
    Zset(&'a Zset),
}

/// Where a range begins or ends: a place between items.
#[derive(Clone, Copy)]
pub enum Border<'a> {
    Start,
    End,
    Score(AtScore),
    /// Where all scores are equal.
    Member(AtMember<'a>),
}

/// What can be edited, whatever its form.
pub trait Edit {
    /// Where a member is.
    type Place: Copy;

    fn find(&self, member: &[u8]) -> Option<(Self::Place, f64)>;

    /// Adds a member, which is not there; `false` where there is no room for it in this form.
    fn insert(&mut self, member: &[u8], score: f64) -> bool;

    /// Gives a member another score. Places that were found before are none any more.
    fn change(&mut self, place: Self::Place, member: &[u8], score: f64);

    /// Takes a member out. Places that were found before are none any more.
    fn remove(&mut self, place: Self::Place, member: &[u8]);

    /// Takes out the items of these ranks, and shows each before.
    fn remove_range(&mut self, ranks: Range<usize>, removed: impl FnMut(Element, f64));
}

impl<'a> View<'a> {
    pub const EMPTY: View<'static> = View::Packed(packed::EMPTY);

    /// The sorted set that is kept like this.
    pub fn of(content: Stored<'a>) -> View<'a> {
        match content {
            Stored::Packed(Kind::Zset, _, bytes) => View::Packed(bytes),
            // SAFETY: the node of a sorted set is a `Zset`, and lives as long as its entry, from which the content is
            // borrowed.
            Stored::Node(Kind::Zset, node) => View::Zset(unsafe { node.cast::<Zset>().as_ref() }),
            _ => unreachable!("it is a sorted set"),
        }
    }

    #[inline]
    pub fn len(self) -> usize {
        match self {
            View::Packed(bytes) => pack::count(bytes),
            View::Zset(zset) => zset.len(),
        }
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            View::Packed(bytes) => packed::find(bytes, member).map(|(_, score)| score),
            View::Zset(zset) => zset.find(member).map(|(_, score)| score),
        }
    }

    /// A member's rank and score.
    pub fn rank(self, member: &[u8]) -> Option<(usize, f64)> {
        match self {
            View::Packed(bytes) => packed::rank(bytes, member),
            View::Zset(zset) => zset.rank(member),
        }
    }

    /// The item of a rank.
    pub fn at(self, rank: usize) -> Option<(Element<'a>, f64)> {
        let mut found = None;
        self.walk(rank..rank.saturating_add(1), false, |member, score| {
            found = Some((member, score));
            ControlFlow::Break(())
        });
        found
    }

    /// Items before a border.
    pub fn count_before(self, border: Border) -> usize {
        match (self, border) {
            (_, Border::Start) => 0,
            (_, Border::End) => self.len(),
            (View::Zset(zset), Border::Score(border)) => zset.order().count_before(border),
            (View::Zset(zset), Border::Member(border)) => zset.order().count_before(border),
            (View::Packed(bytes), border) => packed::count_before(bytes, border),
        }
    }

    /// The ranks between two borders.
    pub fn ranks(self, from: Border, to: Border) -> Range<usize> {
        let start = self.count_before(from);
        start..self.count_before(to).max(start)
    }

    /// Shows the items of these ranks in order, or from the last to the first, until `each` breaks off.
    #[inline]
    pub fn walk(self, ranks: Range<usize>, reverse: bool, mut each: impl FnMut(Element<'a>, f64) -> ControlFlow<()>) {
        let ranks = ranks.start..ranks.end.min(self.len());
        let _ = match (self, reverse) {
            (View::Packed(bytes), false) => {
                packed::iter(bytes, ranks).try_for_each(|(_, member, score)| each(member, score))
            }
            (View::Packed(bytes), true) => {
                let places: Vec<usize> = packed::iter(bytes, ranks).map(|(at, ..)| at).collect();
                places.iter().rev().try_for_each(|at| {
                    let (member, score, _) = packed::read(bytes, *at);
                    each(member, score)
                })
            }
            (View::Zset(zset), reverse) => {
                let mut items = zset.order().iter(ranks);
                let mut show = |(score, member): (f64, Whole)| each(Element::Bytes(member.entry().key()), score);
                if reverse { items.rev().try_for_each(show) } else { items.try_for_each(&mut show) }
            }
        };
    }

    /// Shows all items in order.
    pub fn for_each(self, mut each: impl FnMut(Element<'a>, f64)) {
        self.walk(0..self.len(), false, |member, score| {
            each(member, score);
            ControlFlow::Continue(())
        });
    }

    /// One call of a scan: shows about `count` items, all of them where they are packed, and returns where to go on, 0
    /// at the end. The cursor may be any number.
    pub fn scan(self, cursor: u64, count: usize, mut each: impl FnMut(Element, f64)) -> u64 {
        match self {
            View::Packed(_) => {
                self.for_each(each);
                0
            }
            View::Zset(zset) => {
                zset.members().scan(cursor, count, |entry, _| each(Element::Bytes(entry.key()), score_of(entry)))
            }
        }
    }
}

/// How the text of an element is ordered before or behind others.
fn compare(element: Element, text: &[u8]) -> Ordering {
    element.text(&mut [0; I64_TEXT_BYTES_MAX]).cmp(text)
}
