use super::*;
use crate::config::PackLimits;
use crate::value::{Node, pack::Buffer};
use fastrand::Rng;

const WIDE: PackLimits = PackLimits { entries: 1_000, value_bytes: 64 };

/// Sorted items.
#[derive(Default, Clone)]
struct Model(Vec<(f64, Vec<u8>)>);

impl Model {
    fn sort(&mut self) {
        self.0.sort_by(|a, b| a.partial_cmp(b).expect("no score is NaN"));
    }

    fn place(&self, member: &[u8]) -> Option<usize> {
        self.0.iter().position(|(_, other)| other == member)
    }

    fn put(&mut self, member: &[u8], score: f64) {
        self.0.retain(|(_, other)| other != member);
        self.0.push((score, member.to_vec()));
        self.sort();
    }
}

fn items(view: View, ranks: Range<usize>, reverse: bool) -> Vec<(f64, Vec<u8>)> {
    let mut items = Vec::new();
    view.walk(ranks, reverse, |member, score| {
        items.push((score, member.to_vec()));
        ControlFlow::Continue(())
    });
    items
}

fn compare_all(view: View, model: &Model, rng: &mut Rng) {
    assert_eq!(view.len(), model.0.len());
    assert_eq!(items(view, 0..usize::MAX, false), model.0);
    let (a, b) = (rng.usize(..=view.len()), rng.usize(..=view.len() + 2));
    let expected = model.0.get(a..b.min(view.len())).unwrap_or_default();
    assert_eq!(items(view, a..b, false), expected);
    assert!(items(view, a..b, true).iter().eq(expected.iter().rev()));
    assert_eq!(view.at(a).map(|(member, score)| (score, member.to_vec())), model.0.get(a).cloned());
    let score = f64::from(rng.i32(-3..30)) / 2.0;
    for behind in [false, true] {
        let before = model.0.iter().filter(|(other, _)| *other < score || behind && *other == score).count();
        assert_eq!(view.count_before(Border::Score(AtScore { score, behind })), before);
    }
    assert_eq!((view.count_before(Border::Start), view.count_before(Border::End)), (0, view.len()));
}

/// Members of all encodings.
fn member(n: usize) -> Vec<u8> {
    match n % 4 {
        0 => n.to_string().into_bytes(),
        1 => format!("-{}", n * 1_000_003).into_bytes(),
        2 => format!("m{n}").into_bytes(),
        _ => vec![n as u8; n % 200],
    }
}

fn score(rng: &mut Rng) -> f64 {
    match rng.u8(..10) {
        0 => f64::INFINITY,
        1 => rng.f64() * 1e18,
        2 => -rng.f64(),
        3 => rng.i32(..).into(),
        _ => f64::from(rng.i32(-3..30)) / 2.0,
    }
}

fn edit(set: &mut impl Edit, model: &mut Model, rng: &mut Rng) {
    let member = member(rng.usize(..300));
    let found = set.find(&member);
    assert_eq!(found.map(|(_, score)| score), model.place(&member).map(|place| model.0[place].0));
    match found {
        None => {
            let score = score(rng);
            if set.insert(&member, score) {
                model.put(&member, score);
            }
        }
        Some((place, _)) if rng.u8(..3) == 0 => {
            set.remove(place, &member);
            model.0.remove(model.place(&member).expect("it was there"));
        }
        Some((place, old)) => {
            let score = if rng.bool() { score(rng) } else { old + 0.5 };
            set.change(place, &member, score);
            model.put(&member, score);
        }
    }
    if rng.u8(..100) == 0 {
        let start = rng.usize(..=model.0.len());
        let ranks = start..start + rng.usize(..20);
        let expected: Vec<_> = model.0.drain(start..ranks.end.min(model.0.len())).collect();
        let mut removed = Vec::new();
        set.remove_range(ranks, |member, score| removed.push((score, member.to_vec())));
        assert_eq!(removed, expected);
    }
}

#[test]
fn both_forms_behave_as_a_sorted_list() {
    let steps = if cfg!(miri) { 60 } else { 3_000 };
    for seed in 0..if cfg!(miri) { 2 } else { 6 } {
        let mut rng = Rng::with_seed(seed);
        let limits = PackLimits { entries: [5, 128, 1_000][seed as usize % 3], value_bytes: 150 };
        let (mut pack, mut of_pack) = (EMPTY.to_vec(), Model::default());
        let (mut zset, mut of_zset) = (Zset::default(), Model::default());
        for _ in 0..steps {
            edit(&mut Packed::new(&mut pack, limits), &mut of_pack, &mut rng);
            compare_all(View::Packed(&pack), &of_pack, &mut rng);
            assert!(pack::count(&pack) <= limits.entries);
            edit(&mut zset, &mut of_zset, &mut rng);
            compare_all(View::Zset(&zset), &of_zset, &mut rng);
        }
        for (model, view) in [(&of_pack, View::Packed(&pack)), (&of_zset, View::Zset(&zset))] {
            for (rank, (score, member)) in model.0.iter().enumerate() {
                assert_eq!(view.rank(member), Some((rank, *score)));
                assert_eq!(view.score(member), Some(*score));
            }
            assert_eq!((view.rank(b"nobody"), view.score(b"nobody")), (None, None));
            let mut seen = Vec::new();
            assert_eq!(view.scan(0, 1_000, |member, score| seen.push((score, member.to_vec()))), 0);
            seen.sort_by(|a, b| a.partial_cmp(b).unwrap());
            assert_eq!(seen, model.0);
            compare_all(View::Zset(&Zset::of(view)), model, &mut rng);
            let again = packed(model.0.iter().map(|(score, member)| (&member[..], *score)));
            compare_all(View::Packed(&again), model, &mut rng);
        }
    }
}

#[test]
fn a_copy_is_a_set_of_its_own() {
    // Beyond what stands in a table without blocks.
    let len = if cfg!(miri) { 600 } else { 2_000 };
    let mut zset = Zset::default();
    (0..len).for_each(|n| assert!(zset.insert(&member(n * 2), (n % 7) as f64)));
    let copy = zset.clone();
    let before = items(View::Zset(&zset), 0..len, false);
    zset.remove_range(0..len * 19 / 20, |_, _| ());
    assert_eq!(items(View::Zset(&copy), 0..len, false), before);
    assert!(copy.bytes() > zset.bytes());
    let mut copy = copy;
    let mut slices = 0;
    while !copy.free_some(100) {
        slices += 1;
    }
    assert!(slices > len / 200);
}

#[test]
fn lexical_ranges_of_both_forms() {
    let names: Vec<Vec<u8>> = (0..100).map(|n| member(n * 4)).chain([b"".to_vec(), b"a".to_vec()]).collect();
    let mut pack = EMPTY.to_vec();
    names.iter().for_each(|name| assert!(Packed::new(&mut pack, WIDE).insert(name, 1.0)));
    let zset = Zset::of(View::Packed(&pack));
    for name in names.iter().chain([&b"zz".to_vec(), &b"15".to_vec()]) {
        for behind in [false, true] {
            let before = names.iter().filter(|other| *other < name || behind && *other == name).count();
            let border = Border::Member(AtMember { member: name, behind });
            assert_eq!(View::Packed(&pack).count_before(border), before);
            assert_eq!(View::Zset(&zset).count_before(border), before);
        }
    }
}

#[test]
fn whole_scores_are_short() {
    let mut pack = EMPTY.to_vec();
    let mut set = Packed::new(&mut pack, WIDE);
    assert!(set.insert(b"member", -0.0) && set.insert(b"12", 100.0));
    assert_eq!(pack.bytes().len(), 2 + 7 + 1 + 1 + 1);
    let score = View::Packed(&pack).score(b"member").unwrap();
    assert!(score == 0.0 && score.is_sign_positive(), "the pack does not know a negative zero");
    for score in [9_223_372_036_854_775_807.0, -9_223_372_036_854_775_808.0, 1e300, 0.1, f64::NEG_INFINITY] {
        let bytes = packed([(&b"a"[..], score)].into_iter());
        assert_eq!(View::Packed(&bytes).score(b"a"), Some(score));
    }
}

/// The order points at members: what it did not find again would be left there when its member goes.
#[test]
fn a_member_is_there_once_whatever_comes() {
    let mut builder = Builder::default();
    for (member, score) in [("a", 2.0), ("c", -0.0), ("b", 0.0), ("a", 3.0), ("d", f64::NAN)] {
        builder.push(member.as_bytes(), score);
    }
    let mut zset = builder.finish();
    let shown = |zset: &Zset| -> Vec<_> {
        let items = items(View::Zset(zset), 0..9, false);
        items.into_iter().map(|(score, member)| (String::from_utf8(member).unwrap(), score)).collect()
    };
    let expected =
        |items: &[(&str, f64)]| items.iter().map(|(member, score)| (member.to_string(), *score)).collect::<Vec<_>>();
    assert_eq!(shown(&zset), expected(&[("b", 0.0), ("c", 0.0), ("d", 0.0), ("a", 2.0)]));
    assert!(zset.insert(b"a", -1.0) && zset.insert(b"c", f64::NAN));
    assert_eq!(shown(&zset), expected(&[("a", -1.0), ("b", 0.0), ("c", 0.0), ("d", 0.0)]));
    for member in [b"c", b"a", b"d", b"b"] {
        let (place, _) = zset.find(member).expect("it is there");
        zset.remove(place, member);
        assert_eq!(zset.len(), zset.members().len());
    }
    assert!(zset.is_empty());
}
