//! Items in order, from both ends.

use super::node::Leaf;
use super::{Member, Order};
use std::ops::Range;

/// Walks leaf by leaf; each leaf is found by its rank, so nodes need no links to their neighbours.
pub struct Iter<'a, M> {
    order: &'a Order<M>,
    ranks: Range<usize>,
    front: Stretch<'a, M>,
    back: Stretch<'a, M>,
}

/// The items of one leaf and the rank of the first.
struct Stretch<'a, M> {
    start: usize,
    scores: &'a [f64],
    members: &'a [M],
}

impl<M> Default for Stretch<'_, M> {
    fn default() -> Self {
        Stretch { start: 0, scores: &[], members: &[] }
    }
}

/// How far ahead of the reader members' bytes are asked for: they lie anywhere in memory.
const AHEAD_ITEMS: usize = 8;

impl<'a, M: Member> Stretch<'a, M> {
    #[inline]
    fn get(&mut self, order: &'a Order<M>, rank: usize) -> Option<(f64, M)> {
        let at = rank.wrapping_sub(self.start);
        if at >= self.scores.len() {
            return self.load(order, rank);
        }
        Some((self.scores[at], self.members[at]))
    }

    #[cold]
    fn load(&mut self, order: &'a Order<M>, rank: usize) -> Option<(f64, M)> {
        let (leaf, at): (&Leaf<M>, usize) = order.leaf_of_rank(rank)?;
        *self = Stretch { start: rank - at, scores: leaf.scores(), members: leaf.members() };
        let near = at.saturating_sub(AHEAD_ITEMS)..(at + AHEAD_ITEMS).min(self.members.len());
        self.members[near].iter().for_each(Member::prefetch);
        Some((self.scores[at], self.members[at]))
    }

    #[inline]
    fn prefetch(&self, rank: usize) {
        if let Some(member) = self.members.get(rank.wrapping_sub(self.start)) {
            member.prefetch();
        }
    }
}

impl<'a, M: Member> Iter<'a, M> {
    pub(super) fn new(order: &'a Order<M>, ranks: Range<usize>) -> Iter<'a, M> {
        Iter { order, ranks, front: Stretch::default(), back: Stretch::default() }
    }
}

impl<M: Member> Iterator for Iter<'_, M> {
    type Item = (f64, M);

    #[inline]
    fn next(&mut self) -> Option<(f64, M)> {
        let rank = self.ranks.next()?;
        self.front.prefetch(rank.wrapping_add(AHEAD_ITEMS));
        self.front.get(self.order, rank)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ranks.size_hint()
    }
}

impl<M: Member> DoubleEndedIterator for Iter<'_, M> {
    #[inline]
    fn next_back(&mut self) -> Option<(f64, M)> {
        let rank = self.ranks.next_back()?;
        self.back.prefetch(rank.wrapping_sub(AHEAD_ITEMS));
        self.back.get(self.order, rank)
    }
}

impl<M: Member> ExactSizeIterator for Iter<'_, M> {}
