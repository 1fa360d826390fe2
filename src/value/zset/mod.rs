//! Sorted sets: members with scores, ordered by score, then by the bytes of the member.
//!
//! ```text
//!  packed   count u16 | (member score)*     in order
//!  Zset     a Dict of members, each with its score, some of them with deadlines, and their Order
//! ```
//! Where a member gets a deadline the sorted set is a [`Zset`] from then on. A member whose deadline has passed may still
//! stand there: who reads says what the time is, and sees none that is dead.
//!
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
use crate::table::{Kind, NEVER_MS, Stored, Whole};
use node::score_of;
use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

/// A sorted set, to read from: those of its members that are alive.
#[derive(Clone, Copy)]
pub enum View<'a> {
    Packed(&'a [u8]),
    /// All are alive.
    Zset(&'a Zset),
    /// Some may be dead at this moment.
    Timed(&'a Zset, u64),
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

    /// The sorted set that is kept like this, as it is now.
    pub fn of(content: Stored<'a>, now_ms: u64) -> View<'a> {
        match content {
            Stored::Packed(Kind::Zset, _, bytes) => View::Packed(bytes),
            // SAFETY: the node of a sorted set is a `Zset`, and lives as long as its entry, from which the content is
            // borrowed.
            Stored::Node(Kind::Zset, node) => View::of_node(unsafe { node.cast::<Zset>().as_ref() }, now_ms),
            _ => unreachable!("it is a sorted set"),
        }
    }

    #[inline]
    fn of_node(zset: &'a Zset, now_ms: u64) -> View<'a> {
        if zset.members().earliest_ms() < now_ms { View::Timed(zset, now_ms) } else { View::Zset(zset) }
    }

    /// Whether dead members may stand among the others.
    #[inline]
    pub fn may_have_dead(self) -> bool {
        matches!(self, View::Timed(..))
    }

    #[inline]
    pub fn len(self) -> usize {
        match self {
            View::Packed(bytes) => pack::count(bytes),
            View::Zset(zset) => zset.len(),
            View::Timed(zset, now_ms) => zset.len() - zset.members().count_dead(now_ms),
        }
    }

    pub fn is_empty(self) -> bool {
        match self {
            View::Timed(zset, now_ms) => !zset.members().any_lives(now_ms),
            _ => self.len() == 0,
        }
    }

    /// When the first member dies, at the earliest; [`NEVER_MS`] where none has a deadline.
    pub fn earliest_ms(self) -> u64 {
        match self {
            View::Packed(_) => NEVER_MS,
            View::Zset(zset) | View::Timed(zset, _) => zset.members().earliest_ms(),
        }
    }

    /// The deadline of a member, [`NEVER_MS`] where it has none; nothing of what is no member.
    pub fn deadline_ms(self, member: &[u8]) -> Option<u64> {
        match self {
            View::Packed(bytes) => packed::find(bytes, member).map(|_| NEVER_MS),
            View::Zset(zset) => zset.find(member).map(|(place, _)| deadline_of(place).unwrap_or(NEVER_MS)),
            View::Timed(zset, now_ms) => {
                let (place, _) = zset.find(member).filter(|(place, _)| !is_dead(*place, now_ms))?;
                Some(deadline_of(place).unwrap_or(NEVER_MS))
            }
        }
    }

    #[inline]
    pub fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            View::Packed(bytes) => packed::find(bytes, member).map(|(_, score)| score),
            View::Zset(zset) => zset.find(member).map(|(_, score)| score),
            View::Timed(zset, now_ms) => {
                zset.find(member).filter(|(place, _)| !is_dead(*place, now_ms)).map(|(_, score)| score)
            }
        }
    }

    /// A member's rank and score.
    pub fn rank(self, member: &[u8]) -> Option<(usize, f64)> {
        match self {
            View::Packed(bytes) => packed::rank(bytes, member),
            View::Zset(zset) => zset.rank(member),
            View::Timed(zset, now_ms) => {
                if zset.has_dead(member, now_ms) {
                    return None;
                }
                let (rank, score) = zset.rank(member)?;
                Some((among_living(&zset.dead_ranks(now_ms), rank), score))
            }
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
            (View::Timed(zset, now_ms), border) => {
                among_living(&zset.dead_ranks(now_ms), View::Zset(zset).count_before(border))
            }
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
        let len = self.len();
        let ranks = ranks.start..ranks.end.min(len);
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
            (View::Timed(zset, now_ms), reverse) => {
                let ranks = if ranks == (0..len) { 0..zset.len() } else { zset.with_dead(ranks, now_ms) };
                let mut items = zset.order().iter(ranks).filter(|(_, member)| !is_dead(*member, now_ms));
                let mut show = |(score, member): (f64, Whole)| each(Element::Bytes(member.entry().key()), score);
                if reverse { items.rev().try_for_each(show) } else { items.try_for_each(&mut show) }
            }
        };
    }

    /// Shows all items from the last to the first, with their deadlines.
    pub fn for_each_back(self, mut each: impl FnMut(Element<'a>, f64, Option<u64>)) {
        let (zset, now_ms) = match self {
            View::Zset(zset) => (zset, 0),
            View::Timed(zset, now_ms) => (zset, now_ms),
            View::Packed(_) => {
                return self.walk(0..self.len(), true, |member, score| {
                    each(member, score, None);
                    ControlFlow::Continue(())
                });
            }
        };
        let items = zset.order().iter(0..zset.len()).rev().filter(|(_, member)| !is_dead(*member, now_ms));
        items.for_each(|(score, member)| each(Element::Bytes(member.entry().key()), score, deadline_of(member)));
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
            View::Timed(zset, now_ms) => zset.members().scan(cursor, count, |entry, deadline_ms| {
                if deadline_ms.is_none_or(|deadline_ms| deadline_ms >= now_ms) {
                    each(Element::Bytes(entry.key()), score_of(entry));
                }
            }),
        }
    }

    /// An item, each as likely as any other.
    pub fn random(self, rng: &mut fastrand::Rng) -> Option<(Element<'a>, f64)> {
        match self {
            View::Timed(zset, now_ms) => {
                let lives = |deadline_ms: Option<u64>| deadline_ms.is_none_or(|deadline_ms| deadline_ms >= now_ms);
                let (entry, _) = zset.members().random(rng, lives)?;
                Some((Element::Bytes(entry.key()), score_of(entry)))
            }
            _ if self.is_empty() => None,
            _ => self.at(rng.usize(..self.len())),
        }
    }
}

/// The deadline of a member: one that is pinned has it in its entry.
#[inline]
fn deadline_of(member: Whole) -> Option<u64> {
    member.entry().far_deadline_ms()
}

#[inline]
fn is_dead(member: Whole, now_ms: u64) -> bool {
    deadline_of(member).is_some_and(|deadline_ms| deadline_ms < now_ms)
}

/// The rank, among the living, of the place that has this one among all.
fn among_living(dead_ranks: &[usize], rank: usize) -> usize {
    rank - dead_ranks.partition_point(|dead| *dead < rank)
}

/// How the text of an element is ordered before or behind others.
fn compare(element: Element, text: &[u8]) -> Ordering {
    element.text(&mut [0; I64_TEXT_BYTES_MAX]).cmp(text)
}
