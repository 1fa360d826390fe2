//! The packed form of a sorted set.

use super::super::pack::{self, Buffer, Element, Encoded, Item, Out};
use super::{Border, Edit, compare};
use crate::config::PackLimits;
use std::cmp::Ordering;
use std::ops::Range;

/// A sorted set without members.
pub const EMPTY: &[u8] = &[0, 0];

/// A packed sorted set, to be edited within limits.
pub struct Packed<'b, B> {
    buffer: &'b mut B,
    limits: PackLimits,
}

/// A pack of items that come in order.
pub fn packed<'a>(items: impl Iterator<Item = (&'a [u8], f64)>) -> Vec<u8> {
    let mut bytes = EMPTY.to_vec();
    let mut count = 0u16;
    for (member, score) in items {
        count += 1;
        put_item(&mut bytes, member, score);
    }
    bytes[..pack::COUNT_BYTES].copy_from_slice(&count.to_le_bytes());
    bytes
}

impl<'b, B: Buffer> Packed<'b, B> {
    pub fn new(buffer: &'b mut B, limits: PackLimits) -> Packed<'b, B> {
        Packed { buffer, limits }
    }
}

impl<B: Buffer> Edit for Packed<'_, B> {
    /// Where the item is in the pack.
    type Place = usize;

    fn find(&self, member: &[u8]) -> Option<(usize, f64)> {
        find(self.buffer.bytes(), member)
    }

    fn insert(&mut self, member: &[u8], score: f64) -> bool {
        let bytes = self.buffer.bytes();
        if !fits(pack::count(bytes) + 1, member.len(), self.limits) || !pack::has_room(bytes.len(), member.len()) {
            return false;
        }
        let at = place_for(bytes, member, score, None);
        let mut item = Encoded::new();
        put_item(&mut item, member, score);
        self.buffer.splice(at..at, &item);
        pack::add_count(self.buffer, 1);
        true
    }

    fn change(&mut self, at: usize, member: &[u8], score: f64) {
        let bytes = self.buffer.bytes();
        let end = Item::PAIR.next(bytes, at);
        let to = place_for(bytes, member, score, Some(at));
        let mut region = Encoded::new();
        // What lies between the old place and the new one moves to the other side of the item, in one splice.
        if to > end {
            region.put(&bytes[end..to]);
            put_item(&mut region, member, score);
        } else {
            put_item(&mut region, member, score);
            region.put(&bytes[to.min(at)..at]);
        }
        self.buffer.splice(at.min(to)..end.max(to), &region);
    }

    fn remove(&mut self, at: usize, _: &[u8]) {
        let end = Item::PAIR.next(self.buffer.bytes(), at);
        self.buffer.splice(at..end, &[]);
        pack::add_count(self.buffer, -1);
    }

    fn remove_range(&mut self, ranks: Range<usize>, mut removed: impl FnMut(Element, f64)) {
        let bytes = self.buffer.bytes();
        let ranks = ranks.start..ranks.end.min(pack::count(bytes));
        let start = pack::skip(bytes, pack::COUNT_BYTES, 2 * ranks.start.min(ranks.end));
        let mut end = start;
        for (at, member, score) in iter(bytes, ranks.clone()) {
            removed(member, score);
            end = Item::PAIR.next(bytes, at);
        }
        self.buffer.splice(start..end, &[]);
        pack::add_count(self.buffer, -(ranks.len() as isize));
    }
}

/// Whether a sorted set of so many members, the longest of them so long, is packed.
pub fn fits(members: usize, longest_bytes: usize, limits: PackLimits) -> bool {
    members <= limits.entries.min(pack::COUNT_MAX) && longest_bytes <= limits.value_bytes
}

/// The item with this member: where it is, and its score.
#[inline]
pub fn find(bytes: &[u8], member: &[u8]) -> Option<(usize, f64)> {
    let encoded = Element::of(member).encoded();
    let at = pack::find(bytes, pack::COUNT_BYTES, Item::PAIR, &encoded)?;
    Some((at, score_of(pack::read(bytes, at + encoded.len()).0)))
}

pub fn rank(bytes: &[u8], member: &[u8]) -> Option<(usize, f64)> {
    let member = Element::of(member);
    let mut items = iter(bytes, 0..pack::count(bytes));
    items.by_ref().enumerate().find(|(_, (_, other, _))| *other == member).map(|(rank, (_, _, score))| (rank, score))
}

pub fn count_before(bytes: &[u8], border: Border) -> usize {
    iter(bytes, 0..pack::count(bytes))
        .take_while(|(_, member, score)| match border {
            Border::Start => false,
            Border::End => true,
            Border::Score(at) => *score < at.score || at.behind && *score == at.score,
            Border::Member(at) => match compare(*member, at.member) {
                Ordering::Less => true,
                Ordering::Equal => at.behind,
                Ordering::Greater => false,
            },
        })
        .count()
}

/// The items of these ranks, none of them beyond the end: where each is, its member and its score.
pub fn iter<'a>(bytes: &'a [u8], ranks: Range<usize>) -> impl Iterator<Item = (usize, Element<'a>, f64)> {
    let start = if ranks.is_empty() { bytes.len() } else { pack::skip(bytes, pack::COUNT_BYTES, 2 * ranks.start) };
    let mut at = start;
    (0..ranks.len()).map(move |_| {
        let (member, score, next) = read(bytes, at);
        let here = at;
        at = next;
        (here, member, score)
    })
}

/// The item at an offset, and where the next one is.
#[inline]
pub fn read(bytes: &[u8], at: usize) -> (Element<'_>, f64, usize) {
    let (member, score_at) = pack::read(bytes, at);
    let (score, next) = pack::read(bytes, score_at);
    (member, score_of(score), next)
}

/// Where an item belongs; the one at `own` is as if it were not there.
fn place_for(bytes: &[u8], member: &[u8], score: f64, own: Option<usize>) -> usize {
    let mut at = pack::COUNT_BYTES;
    while at < bytes.len() {
        let (other, other_score, next) = read(bytes, at);
        let behind = other_score > score || other_score == score && compare(other, member).is_gt();
        if behind && own != Some(at) {
            break;
        }
        at = next;
    }
    at
}

fn put_item(out: &mut impl Out, member: &[u8], score: f64) {
    Element::of(member).encode(out);
    let whole = score as i64;
    if whole as f64 == score {
        Element::Int(whole).encode(out);
    } else {
        Element::Bytes(&score.to_bits().to_le_bytes()).encode(out);
    }
}

fn score_of(element: Element) -> f64 {
    match element {
        Element::Int(n) => n as f64,
        Element::Bytes(bits) => f64::from_bits(u64::from_le_bytes(pack::raw(bits, 0))),
    }
}
