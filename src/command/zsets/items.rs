//! Members with scores on their way from one sorted set to another, perhaps on another shard.

use crate::config::PackLimits;
use crate::keyspace::{Kind, Owned};
use crate::value::number::{I64_TEXT_BYTES_MAX, compare_f64};
use crate::value::pack::{Element, has_room};
use crate::value::zset::{Builder, Zset, fits, packed};

/// Members in one run of bytes, each with its score, in any order.
#[derive(Clone, Default)]
pub struct Items {
    text: Vec<u8>,
    /// Where each member ends, and its score.
    items: Vec<(usize, f64)>,
}

impl Items {
    pub fn push(&mut self, member: &[u8], score: f64) {
        self.text.extend_from_slice(member);
        self.items.push((self.text.len(), score));
    }

    pub fn push_element(&mut self, member: Element, score: f64) {
        self.push(member.text(&mut [0; I64_TEXT_BYTES_MAX]), score);
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Memory behind it that is used.
    pub fn bytes(&self) -> usize {
        self.text.len() + size_of_val(&self.items[..])
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn get(&self, index: usize) -> (&[u8], f64) {
        let start = index.checked_sub(1).map_or(0, |before| self.items[before].0);
        let (end, score) = self.items[index];
        (&self.text[start..end], score)
    }

    pub fn set_score(&mut self, index: usize, score: f64) {
        self.items[index].1 = score;
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], f64)> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// In the order of a sorted set.
    pub fn sorted(&self) -> Vec<(&[u8], f64)> {
        let mut sorted: Vec<(&[u8], f64)> = self.iter().collect();
        sorted.sort_unstable_by(|(a, a_score), (b, b_score)| compare_f64(*a_score, *b_score).then_with(|| a.cmp(b)));
        sorted
    }

    /// The sorted set of these items, packed if it may be.
    pub fn into_value(self, limits: PackLimits) -> Owned {
        let sorted = self.sorted();
        let longest_bytes = sorted.iter().map(|(member, _)| member.len()).max().unwrap_or(0);
        if fits(sorted.len(), longest_bytes, limits) && has_room(self.bytes(), 0) {
            return Owned::Packed { kind: Kind::Zset, marked: false, bytes: packed(sorted.into_iter()) };
        }
        Owned::node(unpacked(sorted))
    }

    /// The same, which is not packed.
    pub fn into_zset(self) -> Zset {
        unpacked(self.sorted())
    }
}

fn unpacked(sorted: Vec<(&[u8], f64)>) -> Zset {
    let mut builder = Builder::default();
    sorted.into_iter().for_each(|(member, score)| builder.push(member, score));
    builder.finish()
}
