//! The order of a big sorted set: its items by score, then by member, and the rank of each.
//!
//! A counted B+ tree (D. Comer, "The Ubiquitous B-Tree", 1979; counts as in D. Knuth, TAOCP 6.2.3):
//!
//! ```text
//!              [ counts 95 61 ][ firsts - (7.5 "x") ]          inner: children with their items' number
//!                 |         |                                         and their first item
//!   [ scores 1 1 2 .. ]   [ scores 7.5 8 8 .. ]                leaf: two columns
//!   [ members a c b .. ]  [ members x d e .. ]
//! ```
//!
//! A search counts scores in a column and looks at members' bytes only where scores are equal, so it touches two or
//! three runs of cache lines a level, each fetched at once. Members are pointers to what the set's table owns: the tree
//! owns nothing but its nodes, and copies a member's pointer into inner nodes as well, hence an item has to leave the
//! tree before its member is freed. Every node is an allocation of its own, of one size.
//!
//! Invariants (`check` in the tests): leaves stand on one level; counts are right; an inner node keeps the first item of
//! every child but its first, exactly; no node is empty. Nodes are joined late, where both would leave a quarter of
//! their room free, so that a set that grows and shrinks around one size does not split and join all the time.
//!
//! Scores are never NaN; the two zeros are equal.

mod iter;
mod node;
#[cfg(test)]
mod tests;

pub use iter::Iter;
pub use node::{AtItem, AtMember, AtScore, Border};
use node::{ByItem, ByRank, CHILDREN, Inner, LEAF_ITEMS, Leaf, Node, Seek, kept};
use std::ops::Range;

/// What stands for a member: a thin pointer to it.
pub trait Member: Copy {
    fn bytes(&self) -> &[u8];
    /// Asks the processor for the bytes, which will be read soon.
    fn prefetch(&self) {}
}

pub struct Order<M> {
    root: Option<Box<Node<M>>>,
    len: usize,
    nodes: usize,
}

impl<M> Default for Order<M> {
    fn default() -> Order<M> {
        Order { root: None, len: 0, nodes: 0 }
    }
}

impl<M: Member> Order<M> {
    /// A tree of items that come in order.
    pub fn from_sorted(items: impl Iterator<Item = (f64, M)>) -> Order<M> {
        let mut order = Order::default();
        let mut level = order.leaves(items);
        while level.len() > 1 {
            level = order.level_above(level);
        }
        order.root = level.pop().map(|built| built.node);
        order
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of all nodes.
    pub fn bytes(&self) -> usize {
        self.nodes * size_of::<Node<M>>()
    }

    /// Adds an item, which must not be there.
    pub fn insert(&mut self, score: f64, member: M) {
        self.len += 1;
        let Some(root) = &mut self.root else {
            self.root = Some(Node::leaf(score, member));
            self.nodes += 1;
            return;
        };
        if let Some(split) = root.insert(score, member, true, &mut self.nodes) {
            self.root = self.root.take().map(|left| Node::above(left, split));
            self.nodes += 1;
        }
    }

    /// Takes an item out; whether it was there.
    pub fn remove(&mut self, score: f64, member: &[u8]) -> bool {
        self.cut(&mut ByItem { score, member }, 1, &mut |_, _| ()) > 0
    }

    /// Gives an item that is there another score.
    pub fn change(&mut self, old: f64, member: M, new: f64) {
        let in_place = self.root.as_mut().is_some_and(|root| root.change_in_place(old, member, new));
        if !in_place && self.remove(old, member.bytes()) {
            self.insert(new, member);
        }
    }

    /// Takes out the items of these ranks, each of them shown to `removed`, in order.
    pub fn remove_range(&mut self, ranks: Range<usize>, mut removed: impl FnMut(f64, M)) {
        let mut left = ranks.end.min(self.len).saturating_sub(ranks.start);
        while left > 0 {
            left -= self.cut(&mut ByRank(ranks.start), left, &mut removed);
        }
    }

    /// Takes out about `budget` items at the end, to dismantle the tree in slices; whether nothing is left.
    pub fn free_some(&mut self, budget: usize) -> bool {
        let rest = self.len.saturating_sub(budget.max(LEAF_ITEMS));
        self.remove_range(rest..self.len, |_, _| ());
        self.is_empty()
    }

    /// The rank of an item.
    pub fn rank(&self, score: f64, member: &[u8]) -> Option<usize> {
        self.root.as_ref()?.rank(score, member)
    }

    /// The item of a rank.
    pub fn get(&self, rank: usize) -> Option<(f64, M)> {
        let (leaf, at) = self.leaf_of_rank(rank)?;
        Some((leaf.scores()[at], leaf.members()[at]))
    }

    /// Items before a border.
    #[inline]
    pub fn count_before(&self, border: impl Border<M>) -> usize {
        self.root.as_ref().map_or(0, |root| root.count_before(border))
    }

    /// The items of these ranks, from either end.
    pub fn iter(&self, ranks: Range<usize>) -> Iter<'_, M> {
        Iter::new(self, ranks.start..ranks.end.min(self.len))
    }

    fn leaf_of_rank(&self, rank: usize) -> Option<(&Leaf<M>, usize)> {
        self.root.as_ref().filter(|_| rank < self.len).map(|root| root.leaf_of_rank(rank))
    }

    /// Takes out up to `most` items from one place on, at least one where there is one; how many.
    fn cut(&mut self, seek: &mut impl Seek<M>, most: usize, removed: &mut impl FnMut(f64, M)) -> usize {
        let Some(root) = &mut self.root else { return 0 };
        let cut = root.cut(seek, most, removed);
        self.len -= cut.items;
        self.nodes -= cut.nodes;
        while let Some(only) = root.take_only_child() {
            *root = only;
            self.nodes -= 1;
        }
        if self.len == 0 {
            self.root = None;
            self.nodes = 0;
        }
        cut.items
    }

    /// Nearly full leaves, as items that are inserted in order leave them.
    fn leaves(&mut self, mut items: impl Iterator<Item = (f64, M)>) -> Vec<Built<M>> {
        let mut leaves = Vec::new();
        let (mut scores, mut members) = (Vec::with_capacity(LEAF_ITEMS), Vec::with_capacity(LEAF_ITEMS));
        loop {
            for (score, member) in items.by_ref().take(kept(LEAF_ITEMS, true)) {
                scores.push(score);
                members.push(member);
            }
            let Some(first) = scores.first().copied().zip(members.first().copied()) else { return leaves };
            self.nodes += 1;
            self.len += scores.len();
            let node = Box::new(Node::Leaf(Leaf::of(&scores, &members)));
            leaves.push(Built { first, count: scores.len(), node });
            scores.clear();
            members.clear();
        }
    }

    fn level_above(&mut self, level: Vec<Built<M>>) -> Vec<Built<M>> {
        let mut above = Vec::with_capacity(level.len() / CHILDREN + 1);
        let mut level = level.into_iter().peekable();
        while let Some(first) = level.peek().map(|built| built.first) {
            let mut inner = Inner::new(first.0, first.1);
            let mut count = 0;
            for built in level.by_ref().take(kept(CHILDREN, true)) {
                count += built.count;
                inner.push(built.first, built.count, built.node);
            }
            self.nodes += 1;
            above.push(Built { first, count, node: Box::new(Node::Inner(inner)) });
        }
        above
    }
}

/// A subtree while a tree is built from below.
struct Built<M> {
    first: (f64, M),
    count: usize,
    node: Box<Node<M>>,
}
