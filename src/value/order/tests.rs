use super::node::{CHILDREN, LEAF_ITEMS, Node};
use super::*;
use fastrand::Rng;

/// A member's bytes, which the table would own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name(&'static [u8]);

impl Member for Name {
    fn bytes(&self) -> &[u8] {
        self.0
    }
}

impl<M: Member> Order<M> {
    /// Checks the invariants.
    fn check(&self) {
        let nodes = self.root.as_ref().map_or(0, |root| root.check(None).1);
        assert_eq!((nodes, self.iter(0..self.len).count()), (self.nodes, self.len));
        let mut last: Option<(f64, M)> = None;
        for (score, member) in self.iter(0..self.len) {
            let ordered = last.is_none_or(|(s, m)| s < score || s == score && m.bytes() < member.bytes());
            assert!(ordered, "items stand in order");
            last = Some((score, member));
        }
    }
}

fn name(n: usize) -> Name {
    Name(Box::leak(format!("m{n:04}").into_bytes().into_boxed_slice()))
}

/// Sorted items beside the tree.
#[derive(Default)]
struct Model {
    items: Vec<(f64, Name)>,
}

impl Model {
    fn place(&self, score: f64, member: &[u8]) -> usize {
        self.items.partition_point(|(s, m)| *s < score || *s == score && m.0 < member)
    }

    fn insert(&mut self, score: f64, member: Name) {
        let at = self.place(score, member.0);
        self.items.insert(at, (score, member));
    }
}

fn compare(order: &Order<Name>, model: &Model) {
    order.check();
    assert_eq!(order.len(), model.items.len());
    assert!(order.iter(0..order.len()).eq(model.items.iter().copied()));
    assert!(order.iter(0..order.len()).rev().eq(model.items.iter().rev().copied()));
}

fn compare_searches(order: &Order<Name>, model: &Model, rng: &mut Rng, scores: i32) {
    let score = f64::from(rng.i32(-1..=scores));
    let member = name(rng.usize(..600));
    let place = model.place(score, member.0);
    let found = model.items.get(place).is_some_and(|item| *item == (score, member));
    assert_eq!(order.rank(score, member.0), found.then_some(place));
    for behind in [false, true] {
        let before = |s: f64| s < score || behind && s == score;
        assert_eq!(order.count_before(AtScore { score, behind }), model.items.partition_point(|(s, _)| before(*s)));
        let item = AtItem { score, member: member.0, behind };
        assert_eq!(order.count_before(item), place + usize::from(found && behind));
    }
    let (a, b) = (rng.usize(..=order.len()), rng.usize(..=order.len()));
    let ranks = a.min(b)..a.max(b).min(a.min(b) + 200);
    assert!(order.iter(ranks.clone()).eq(model.items[ranks.clone()].iter().copied()));
    assert!(order.iter(ranks.clone()).rev().eq(model.items[ranks].iter().rev().copied()));
    assert_eq!(order.get(a), model.items.get(a).copied());
}

/// Grows to a few thousand items and shrinks again, in phases in which one or the other is likelier.
fn run(seed: u64, scores: i32, members: usize) {
    let mut rng = Rng::with_seed(seed);
    let names: Vec<Name> = (0..members).map(name).collect();
    let mut there: Vec<Option<f64>> = vec![None; members];
    let (mut order, mut model) = (Order::default(), Model::default());
    let mut growth = 80;
    for step in 0..12_000 {
        if step % 2_000 == 0 {
            growth = [85, 20, 60, 10, 50][rng.usize(..5)];
        }
        let at = rng.usize(..members);
        let score = f64::from(rng.i32(..scores)) * if rng.u8(..20) == 0 { -0.0 } else { 1.0 };
        match there[at] {
            None if rng.u8(..100) < growth => {
                order.insert(score, names[at]);
                model.insert(score, names[at]);
                there[at] = Some(score);
            }
            None => assert!(!order.remove(score, names[at].0)),
            Some(old) if rng.u8(..100) >= growth => {
                assert!(order.remove(old, names[at].0));
                let place = model.place(old, names[at].0);
                model.items.remove(place);
                there[at] = None;
            }
            Some(old) => {
                let near = if rng.bool() { score } else { old + f64::from(rng.i32(-1..=1)) };
                order.change(old, names[at], near);
                let place = model.place(old, names[at].0);
                model.items.remove(place);
                model.insert(near, names[at]);
                there[at] = Some(near);
            }
        }
        if rng.u16(..1000) == 0 {
            let start = rng.usize(..=order.len());
            let ranks = start..start + rng.usize(..300);
            let expected: Vec<_> = model.items.drain(start..ranks.end.min(order.len())).collect();
            let mut removed = Vec::new();
            order.remove_range(ranks, |score, member| removed.push((score, member)));
            assert_eq!(removed, expected);
            let index = |member: &Name| names.iter().position(|name| name == member).expect("one of the names");
            removed.iter().for_each(|(_, member)| there[index(member)] = None);
        }
        compare_searches(&order, &model, &mut rng, scores);
        if step % 64 == 0 {
            compare(&order, &model);
        }
    }
    compare(&order, &model);
    let copy = Order::from_sorted(order.iter(0..order.len()));
    compare(&copy, &model);
    while !order.free_some(100) {
        order.check();
    }
    assert_eq!((order.len(), order.bytes()), (0, 0));
}

#[test]
fn behaves_as_a_sorted_list() {
    for seed in 0..4 {
        run(seed, 3_000, 3_000);
        run(seed + 100, 5, 3_000);
        run(seed + 200, 1, 600);
        run(seed + 300, 100_000, 150);
    }
}

#[test]
fn lexical_borders_where_all_scores_are_one() {
    let mut order = Order::default();
    let names: Vec<Name> = (0..2_000).map(name).collect();
    let mut rng = Rng::with_seed(7);
    let mut shuffled = names.clone();
    rng.shuffle(&mut shuffled);
    shuffled.iter().filter(|name| name.0[4] != b'5').for_each(|name| order.insert(0.0, *name));
    order.check();
    for (n, Name(member)) in names.iter().enumerate() {
        let less = names[..n].iter().filter(|name| name.0[4] != b'5').count();
        assert_eq!(order.count_before(AtMember { member, behind: false }), less);
        assert_eq!(order.count_before(AtMember { member, behind: true }), less + usize::from(member[4] != b'5'));
    }
    assert_eq!(order.count_before(AtMember { member: b"", behind: true }), 0);
    assert_eq!(order.count_before(AtMember { member: b"z", behind: false }), order.len());
}

#[test]
fn infinities_and_zeros_are_scores_as_others() {
    let mut order = Order::default();
    for (n, score) in [f64::INFINITY, -0.0, f64::NEG_INFINITY, 0.0, f64::MAX, f64::MIN_POSITIVE].iter().enumerate() {
        order.insert(*score, name(n));
    }
    order.check();
    let members: Vec<_> = order.iter(0..6).map(|(_, name)| name.0).collect();
    assert_eq!(members, [b"m0002", b"m0001", b"m0003", b"m0005", b"m0004", b"m0000"]);
    assert_eq!(order.rank(0.0, b"m0001"), Some(1));
    assert_eq!(order.rank(-0.0, b"m0003"), Some(2));
    assert_eq!(order.count_before(AtScore { score: f64::INFINITY, behind: false }), 5);
    assert_eq!(order.count_before(AtScore { score: f64::NEG_INFINITY, behind: true }), 1);
}

#[test]
fn items_in_order_leave_nodes_nearly_full() {
    let mut order = Order::default();
    (0..9_000).for_each(|n| order.insert(n as f64, name(n)));
    order.check();
    let full = 9_000 * size_of::<Node<Name>>() / LEAF_ITEMS;
    assert!(order.bytes() < full * 9 / 8, "{} of {full}", order.bytes());
}

#[test]
fn empty_trees_answer() {
    let mut order: Order<Name> = Order::default();
    assert_eq!((order.len(), order.bytes(), order.rank(1.0, b"a")), (0, 0, None));
    assert_eq!(order.count_before(AtScore { score: 1.0, behind: true }), 0);
    assert!(order.get(0).is_none() && order.iter(0..5).next().is_none());
    assert!(!order.remove(1.0, b"a") && order.free_some(1));
    order.remove_range(0..10, |_, _| unreachable!());
    order.check();
    assert!(Order::<Name>::from_sorted(std::iter::empty()).is_empty());
}

#[test]
fn a_node_with_thin_pointers_is_a_kibibyte_with_a_count_of_references() {
    #[derive(Clone, Copy)]
    struct Thin(#[expect(dead_code, reason = "only its size counts")] std::ptr::NonNull<u8>);
    impl Member for Thin {
        fn bytes(&self) -> &[u8] {
            b""
        }
    }
    assert_eq!(size_of::<Node<Thin>>() + 16, 1024);
    assert!(size_of::<Inner<Thin>>() <= size_of::<Node<Thin>>() && CHILDREN > 30);
}
