//! The tree's nodes: items in columns, and the searches in them.

use super::Member;

/// Items of a leaf: with two words for a count of references and its tag, a leaf is 1 KiB.
pub const LEAF_ITEMS: usize = 62;
/// Children of an inner node, of the same size.
pub const CHILDREN: usize = 31;

/// What the two sides of a node that is split at the right edge of the tree get: items that come in order leave their
/// leaves nearly full.
const EDGE_SHARE: (usize, usize) = (15, 16);

/// Both are about as large for members of one word, and each stands in an allocation of its own.
#[allow(clippy::large_enum_variant)]
pub enum Node<M> {
    Leaf(Leaf<M>),
    Inner(Inner<M>),
}

/// Items in order. Places from `len` on hold copies of no meaning, never looked at.
pub struct Leaf<M> {
    len: usize,
    scores: [f64; LEAF_ITEMS],
    members: [M; LEAF_ITEMS],
}

/// Children in order, each with its number of items and its first item, which tells it from the child before; that of
/// the first child is not kept.
pub struct Inner<M> {
    len: usize,
    scores: [f64; CHILDREN],
    members: [M; CHILDREN],
    counts: [usize; CHILDREN],
    children: [Option<Box<Node<M>>>; CHILDREN],
}

/// A place between items: how many of a sorted run are before it.
pub trait Border<M> {
    fn before(&self, scores: &[f64], members: &[M]) -> usize;
}

/// Before all items of this score, or behind them.
#[derive(Clone, Copy)]
pub struct AtScore {
    pub score: f64,
    pub behind: bool,
}

/// Before this item, or behind it.
#[derive(Clone, Copy)]
pub struct AtItem<'a> {
    pub score: f64,
    pub member: &'a [u8],
    pub behind: bool,
}

/// Before this member, or behind it, where all items have one score.
#[derive(Clone, Copy)]
pub struct AtMember<'a> {
    pub member: &'a [u8],
    pub behind: bool,
}

impl<M: Member> Border<M> for AtScore {
    #[inline]
    fn before(&self, scores: &[f64], _: &[M]) -> usize {
        if self.behind { count(scores, |score| score <= self.score) } else { count(scores, |score| score < self.score) }
    }
}

impl<M: Member> Border<M> for AtItem<'_> {
    #[inline]
    fn before(&self, scores: &[f64], members: &[M]) -> usize {
        let less = count(scores, |score| score < self.score);
        if scores.get(less).is_none_or(|score| *score > self.score) {
            return less;
        }
        let equal = count(&scores[less..], |score| score <= self.score);
        less + AtMember { member: self.member, behind: self.behind }.before(&[], &members[less..less + equal])
    }
}

impl<M: Member> Border<M> for AtMember<'_> {
    #[inline]
    fn before(&self, _: &[f64], members: &[M]) -> usize {
        members.partition_point(|member| match member.bytes().cmp(self.member) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => self.behind,
            std::cmp::Ordering::Greater => false,
        })
    }
}

/// How many scores of a sorted run come first. All of them are looked at: that is free of branches, done with vector
/// instructions, and the lines of the column are fetched side by side, where a binary search waits for each in turn.
#[inline]
fn count(scores: &[f64], first: impl Fn(f64) -> bool) -> usize {
    scores.iter().filter(|score| first(**score)).count()
}

/// Where a cut begins: found on the way down.
pub trait Seek<M> {
    /// The child to go on with.
    fn child(&mut self, inner: &Inner<M>) -> usize;
    /// The place in the leaf; `None` where there is no such item.
    fn place(&mut self, leaf: &Leaf<M>) -> Option<usize>;
}

/// The item of this rank.
pub struct ByRank(pub usize);

impl<M: Member> Seek<M> for ByRank {
    fn child(&mut self, inner: &Inner<M>) -> usize {
        inner.child_of_rank(&mut self.0)
    }

    fn place(&mut self, leaf: &Leaf<M>) -> Option<usize> {
        (self.0 < leaf.len).then_some(self.0)
    }
}

/// This very item.
pub struct ByItem<'a> {
    pub score: f64,
    pub member: &'a [u8],
}

impl<M: Member> Seek<M> for ByItem<'_> {
    #[inline]
    fn child(&mut self, inner: &Inner<M>) -> usize {
        inner.child_of(self.score, self.member)
    }

    #[inline]
    fn place(&mut self, leaf: &Leaf<M>) -> Option<usize> {
        leaf.find(self.score, self.member)
    }
}

/// The right half of a node that was split.
pub struct Split<M> {
    first: (f64, M),
    count: usize,
    node: Box<Node<M>>,
}

/// What a cut did to a subtree.
#[derive(Default)]
pub struct Cut {
    /// Items that are gone.
    pub items: usize,
    /// Nodes that are gone.
    pub nodes: usize,
    /// The subtree begins with another item now.
    first_changed: bool,
}

impl<M: Member> Node<M> {
    pub fn leaf(score: f64, member: M) -> Box<Node<M>> {
        Box::new(Node::Leaf(Leaf::of(&[score], &[member])))
    }

    /// An inner node above these, which is a new root.
    pub fn above(left: Box<Node<M>>, right: Split<M>) -> Box<Node<M>> {
        let mut inner = Inner::new(right.first.0, right.first.1);
        inner.push(right.first, left.count(), left);
        inner.push(right.first, right.count, right.node);
        Box::new(Node::Inner(inner))
    }

    /// Leaves or children.
    pub fn len(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len,
            Node::Inner(inner) => inner.len,
        }
    }

    /// Adds an item that is not there; the right half where the node had to be split. `edge`: nothing is to the right
    /// of this node.
    pub fn insert(&mut self, score: f64, member: M, edge: bool, nodes: &mut usize) -> Option<Split<M>> {
        match self {
            Node::Leaf(leaf) => {
                let split = leaf.insert(score, member, edge)?;
                *nodes += 1;
                Some(split)
            }
            Node::Inner(inner) => {
                let at = inner.child_of(score, member.bytes());
                let edge = edge && at + 1 == inner.len;
                inner.counts[at] += 1;
                let split = inner.child_mut(at).insert(score, member, edge, nodes)?;
                inner.counts[at] -= split.count;
                let split = inner.insert(at + 1, split, edge)?;
                *nodes += 1;
                Some(split)
            }
        }
    }

    /// Gives an item another score if its leaf stays its place and its leaf's first item stays the first.
    pub fn change_in_place(&mut self, old: f64, member: M, new: f64) -> bool {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.change(old, member, new),
                Node::Inner(inner) => {
                    let at = inner.child_of(old, member.bytes());
                    node = inner.child_mut(at);
                }
            }
        }
    }

    /// Takes out up to `most` items from where `seek` leads to, none beyond the end of that leaf.
    pub fn cut(&mut self, seek: &mut impl Seek<M>, most: usize, removed: &mut impl FnMut(f64, M)) -> Cut {
        match self {
            Node::Leaf(leaf) => {
                let Some(at) = seek.place(leaf) else { return Cut::default() };
                let items = most.min(leaf.len - at);
                leaf.remove(at, items, removed);
                Cut { items, nodes: 0, first_changed: at == 0 }
            }
            Node::Inner(inner) => {
                let at = seek.child(inner);
                let mut cut = inner.child_mut(at).cut(seek, most, removed);
                inner.counts[at] -= cut.items;
                if inner.counts[at] == 0 && cut.items > 0 {
                    cut.nodes += inner.child(at).nodes();
                    inner.remove(at);
                    cut.first_changed = at == 0;
                } else if cut.items > 0 {
                    if cut.first_changed && at > 0 {
                        (inner.scores[at], inner.members[at]) = inner.child(at).first();
                    }
                    cut.first_changed &= at == 0;
                    cut.nodes += usize::from(inner.merge_around(at));
                }
                cut
            }
        }
    }

    /// The node's only child, where it has only one.
    pub fn take_only_child(&mut self) -> Option<Box<Node<M>>> {
        match self {
            Node::Inner(inner) if inner.len == 1 => inner.children[0].take(),
            _ => None,
        }
    }

    /// The leaf that holds the item of a rank, and the item's place in it.
    pub fn leaf_of_rank(&self, mut rank: usize) -> (&Leaf<M>, usize) {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(leaf) => return (leaf, rank),
                Node::Inner(inner) => node = inner.child(inner.child_of_rank(&mut rank)),
            }
        }
    }

    /// Items before a border.
    #[inline]
    pub fn count_before(&self, border: impl Border<M>) -> usize {
        let (mut node, mut passed) = (self, 0);
        loop {
            match node {
                Node::Leaf(leaf) => return passed + border.before(leaf.scores(), leaf.members()),
                Node::Inner(inner) => {
                    let at = border.before(&inner.scores[1..inner.len], &inner.members[1..inner.len]);
                    passed += inner.counts[..at].iter().sum::<usize>();
                    node = inner.child(at);
                }
            }
        }
    }

    /// The rank of this very item.
    pub fn rank(&self, score: f64, member: &[u8]) -> Option<usize> {
        let (mut node, mut passed) = (self, 0);
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.find(score, member).map(|at| passed + at),
                Node::Inner(inner) => {
                    let at = inner.child_of(score, member);
                    passed += inner.counts[..at].iter().sum::<usize>();
                    node = inner.child(at);
                }
            }
        }
    }

    /// Items of a subtree.
    fn count(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len,
            Node::Inner(inner) => inner.counts[..inner.len].iter().sum(),
        }
    }

    fn first(&self) -> (f64, M) {
        let (leaf, at) = self.leaf_of_rank(0);
        (leaf.scores[at], leaf.members[at])
    }

    /// Nodes of a subtree.
    fn nodes(&self) -> usize {
        match self {
            Node::Leaf(_) => 1,
            Node::Inner(inner) => 1 + (0..inner.len).map(|at| inner.child(at).nodes()).sum::<usize>(),
        }
    }
}

impl<M: Member> Leaf<M> {
    /// At least one and at most [`LEAF_ITEMS`] items.
    pub fn of(scores: &[f64], members: &[M]) -> Leaf<M> {
        let mut leaf = Leaf { len: scores.len(), scores: [scores[0]; LEAF_ITEMS], members: [members[0]; LEAF_ITEMS] };
        leaf.scores[..scores.len()].copy_from_slice(scores);
        leaf.members[..members.len()].copy_from_slice(members);
        leaf
    }

    pub fn scores(&self) -> &[f64] {
        &self.scores[..self.len]
    }

    pub fn members(&self) -> &[M] {
        &self.members[..self.len]
    }

    fn find(&self, score: f64, member: &[u8]) -> Option<usize> {
        let at = AtItem { score, member, behind: false }.before(self.scores(), self.members());
        (at < self.len && self.scores[at] == score && self.members[at].bytes() == member).then_some(at)
    }

    fn insert(&mut self, score: f64, member: M, edge: bool) -> Option<Split<M>> {
        let at = AtItem { score, member: member.bytes(), behind: false }.before(self.scores(), self.members());
        if self.len < LEAF_ITEMS {
            self.put(at, score, member);
            return None;
        }
        let keep = kept(LEAF_ITEMS, edge && at == LEAF_ITEMS);
        let mut right = Leaf::of(&self.scores[keep..], &self.members[keep..]);
        self.len = keep;
        if at <= keep {
            self.put(at, score, member)
        } else {
            right.put(at - keep, score, member)
        }
        let (first, count) = ((right.scores[0], right.members[0]), right.len);
        Some(Split { first, count, node: Box::new(Node::Leaf(right)) })
    }

    fn put(&mut self, at: usize, score: f64, member: M) {
        let len = self.len;
        self.scores.copy_within(at..len, at + 1);
        self.members.copy_within(at..len, at + 1);
        (self.scores[at], self.members[at]) = (score, member);
        self.len += 1;
    }

    fn remove(&mut self, at: usize, items: usize, removed: &mut impl FnMut(f64, M)) {
        for index in at..at + items {
            removed(self.scores[index], self.members[index]);
        }
        self.scores.copy_within(at + items..self.len, at);
        self.members.copy_within(at + items..self.len, at);
        self.len -= items;
    }

    fn change(&mut self, old: f64, member: M, new: f64) -> bool {
        let Some(at) = self.find(old, member.bytes()) else { return false };
        // Its new place among the items as they are: the one before it stays, and so does the one behind.
        let to = AtItem { score: new, member: member.bytes(), behind: false }.before(self.scores(), self.members());
        if at == 0 || to == 0 || to == self.len {
            return false;
        }
        let to = if to > at { to - 1 } else { to };
        if to > at {
            self.scores.copy_within(at + 1..=to, at);
            self.members.copy_within(at + 1..=to, at);
        } else {
            self.scores.copy_within(to..at, to + 1);
            self.members.copy_within(to..at, to + 1);
        }
        (self.scores[to], self.members[to]) = (new, member);
        true
    }

    fn append(&mut self, other: &Leaf<M>) {
        let end = self.len + other.len;
        self.scores[self.len..end].copy_from_slice(other.scores());
        self.members[self.len..end].copy_from_slice(other.members());
        self.len = end;
    }
}

impl<M: Member> Inner<M> {
    /// Without children; the item fills places that have no meaning.
    pub fn new(score: f64, member: M) -> Inner<M> {
        Inner {
            len: 0,
            scores: [score; CHILDREN],
            members: [member; CHILDREN],
            counts: [0; CHILDREN],
            children: [const { None }; CHILDREN],
        }
    }

    pub fn push(&mut self, first: (f64, M), count: usize, child: Box<Node<M>>) {
        let at = self.len;
        (self.scores[at], self.members[at]) = first;
        self.counts[at] = count;
        self.children[at] = Some(child);
        self.len += 1;
    }

    fn child(&self, at: usize) -> &Node<M> {
        self.children[at].as_deref().expect("a place before `len` has a child")
    }

    fn child_mut(&mut self, at: usize) -> &mut Node<M> {
        self.children[at].as_deref_mut().expect("a place before `len` has a child")
    }

    /// The child that holds this item if one does, and to which it belongs if none does.
    #[inline]
    fn child_of(&self, score: f64, member: &[u8]) -> usize {
        AtItem { score, member, behind: true }.before(&self.scores[1..self.len], &self.members[1..self.len])
    }

    /// The child that holds the item of a rank, which becomes the rank inside that child.
    fn child_of_rank(&self, rank: &mut usize) -> usize {
        let mut at = 0;
        while at + 1 < self.len && *rank >= self.counts[at] {
            *rank -= self.counts[at];
            at += 1;
        }
        at
    }

    fn insert(&mut self, at: usize, split: Split<M>, edge: bool) -> Option<Split<M>> {
        if self.len < CHILDREN {
            self.put(at, split);
            return None;
        }
        let keep = kept(CHILDREN, edge && at == CHILDREN);
        let first = (self.scores[keep], self.members[keep]);
        let mut right = Inner::new(first.0, first.1);
        right.take_from(self, keep);
        if at <= keep {
            self.put(at, split)
        } else {
            right.put(at - keep, split)
        }
        let node = Box::new(Node::Inner(right));
        Some(Split { first, count: node.count(), node })
    }

    fn put(&mut self, at: usize, split: Split<M>) {
        let len = self.len;
        self.scores.copy_within(at..len, at + 1);
        self.members.copy_within(at..len, at + 1);
        self.counts.copy_within(at..len, at + 1);
        self.children[at..=len].rotate_right(1);
        (self.scores[at], self.members[at]) = split.first;
        self.counts[at] = split.count;
        self.children[at] = Some(split.node);
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        let len = self.len;
        self.scores.copy_within(at + 1..len, at);
        self.members.copy_within(at + 1..len, at);
        self.counts.copy_within(at + 1..len, at);
        self.children[at] = None;
        self.children[at..len].rotate_left(1);
        self.len -= 1;
    }

    /// Moves the children of another node from `start` on behind its own.
    fn take_from(&mut self, other: &mut Inner<M>, start: usize) {
        for at in start..other.len {
            let child = other.children[at].take().expect("a place before `len` has a child");
            self.push((other.scores[at], other.members[at]), other.counts[at], child);
        }
        other.len = start;
    }

    /// Joins the child with a neighbour where both are so empty that a good part of the joined node stays free.
    fn merge_around(&mut self, at: usize) -> bool {
        let room = self.child(at).room();
        if self.child(at).len() * 4 >= room {
            return false;
        }
        let mergeable =
            |left: usize| left + 1 < self.len && (self.child(left).len() + self.child(left + 1).len()) * 4 <= room * 3;
        let left = match at.checked_sub(1).filter(|left| mergeable(*left)) {
            Some(left) => left,
            None if mergeable(at) => at,
            None => return false,
        };
        let right = left + 1;
        let first = (self.scores[right], self.members[right]);
        let mut taken = self.children[right].take().expect("a place before `len` has a child");
        match (self.child_mut(left), &mut *taken) {
            (Node::Leaf(left), Node::Leaf(right)) => left.append(right),
            (Node::Inner(left), Node::Inner(right)) => {
                (right.scores[0], right.members[0]) = first;
                left.take_from(right, 0);
            }
            _ => unreachable!("the children of a node are all leaves or all inner nodes"),
        }
        self.counts[left] += self.counts[right];
        self.remove(right);
        true
    }
}

impl<M> Node<M> {
    fn room(&self) -> usize {
        match self {
            Node::Leaf(_) => LEAF_ITEMS,
            Node::Inner(_) => CHILDREN,
        }
    }
}

/// What a full node keeps when it is split.
pub fn kept(room: usize, edge: bool) -> usize {
    if edge { room * EDGE_SHARE.0 / EDGE_SHARE.1 } else { room / 2 }
}

#[cfg(test)]
impl<M: Member> Node<M> {
    /// Checks a subtree, of which `first` must be the first item where its parent says so; its height and nodes.
    pub fn check(&self, first: Option<(f64, M)>) -> (usize, usize) {
        let begin = self.first();
        if let Some((score, member)) = first {
            assert_eq!(
                (begin.0, begin.1.bytes()),
                (score, member.bytes()),
                "an inner node knows its children's firsts"
            );
        }
        assert!(self.len() > 0 && self.len() <= self.room());
        let Node::Inner(inner) = self else { return (1, 1) };
        let mut nodes = 1;
        let mut height = None;
        for at in 0..inner.len {
            let child = inner.child(at);
            let (below, count) = child.check((at > 0).then_some((inner.scores[at], inner.members[at])));
            assert!(*height.get_or_insert(below) == below, "leaves stand on one level");
            assert_eq!(inner.counts[at], child.count());
            nodes += count;
        }
        assert!(inner.children[inner.len..].iter().all(Option::is_none));
        (height.map_or(1, |below| below + 1), nodes)
    }
}
