use super::*;
use crate::value::Node;
use std::collections::VecDeque;

const LIMITS: [Limit; 4] = [
    Limit { bytes: 64, count: COUNT_UNLIMITED, compress_depth: 0 },
    Limit { bytes: 300, count: COUNT_UNLIMITED, compress_depth: 0 },
    Limit { bytes: 8192, count: 1, compress_depth: 0 },
    Limit { bytes: 8192, count: 5, compress_depth: 0 },
];

type Model = VecDeque<Vec<u8>>;

fn random_text(rng: &mut fastrand::Rng) -> Vec<u8> {
    match rng.u8(..12) {
        0..4 => rng.u8(..5).to_string().into_bytes(),
        4..8 => (rng.i64(..) >> rng.u32(..64)).to_string().into_bytes(),
        8..11 => vec![b'a' + rng.u8(..26); rng.usize(..20)],
        _ => vec![b'A' + rng.u8(..26); rng.usize(..400)],
    }
}

fn texts(view: View, index: usize, direction: Direction) -> Vec<Vec<u8>> {
    let mut texts = Vec::new();
    view.some(index, direction, usize::MAX, |element| texts.push(element.to_vec()));
    texts
}

fn assert_same(list: &List, model: &Model, limit: Limit) {
    list.check(limit);
    list.check_compressed();
    assert_eq!(list.len(), model.len());
    assert_eq!(texts(View::Node(list), 0, Direction::Forward), Vec::from_iter(model.iter().cloned()));
}

fn assert_reads(view: View, model: &Model, rng: &mut fastrand::Rng) {
    assert_eq!(view.len(), model.len());
    let index = rng.usize(..=model.len());
    assert_eq!(view.get(index, |element| element.to_vec()), model.get(index).cloned());
    assert_eq!(texts(view, index, Direction::Forward), Vec::from_iter(model.iter().skip(index).cloned()));
    let backward = if index < model.len() { index + 1 } else { 0 };
    let expected: Vec<_> = model.iter().take(backward).rev().cloned().collect();
    assert_eq!(texts(view, index, Direction::Backward), expected);
}

fn model_remove_equal(model: &mut Model, text: &[u8], max: usize, from: End) -> usize {
    let mut indexes: Vec<usize> = (0..model.len()).filter(|index| model[*index] == text).collect();
    if from == End::Back {
        indexes.reverse();
    }
    indexes.truncate(max);
    indexes.sort_unstable();
    indexes.iter().rev().for_each(|index| drop(model.remove(*index)));
    indexes.len()
}

fn step(list: &mut List, model: &mut Model, rng: &mut fastrand::Rng, limit: Limit, growing: bool) {
    let text = random_text(rng);
    let element = Element::of(&text);
    let end = if rng.bool() { End::Front } else { End::Back };
    let index = rng.usize(..=model.len());
    match rng.u8(..if growing { 20 } else { 40 }) {
        0..5 => {
            list.push(end, element, limit);
            if end == End::Front { model.push_front(text) } else { model.push_back(text) }
        }
        5..16 => {
            list.insert(index, element, limit);
            model.insert(index, text);
        }
        16..18 => {
            assert_eq!(list.set(index, element, limit), index < model.len());
            if let Some(place) = model.get_mut(index) {
                *place = text;
            }
        }
        18 => {
            let max = [1, 3, usize::MAX][rng.usize(..3)];
            let expected = model_remove_equal(model, &text, max, end);
            assert_eq!(list.remove_equal(element, max, end, limit), expected);
        }
        19 => {
            let count = rng.usize(..6);
            list.drop_from(end, count);
            let count = count.min(model.len());
            let range = if end == End::Front { 0..count } else { model.len() - count..model.len() };
            drop(model.drain(range));
        }
        _ => {
            list.remove(index, limit);
            model.remove(index);
        }
    }
}

#[test]
fn edits_are_those_of_a_model() {
    for seed in 0..if cfg!(miri) { 3 } else { 120 } {
        let mut rng = fastrand::Rng::with_seed(seed);
        let limit = Limit { compress_depth: rng.u32(..4), ..LIMITS[rng.usize(..LIMITS.len())] };
        let (mut list, mut model) = (List::new(limit), Model::new());
        for phase in 0..4 {
            for _ in 0..rng.usize(..if cfg!(miri) { 50 } else { 400 }) {
                step(&mut list, &mut model, &mut rng, limit, phase % 2 == 0);
                assert_same(&list, &model, limit);
            }
            assert_reads(View::Node(&list), &model, &mut rng);
            let copy = list.clone();
            assert_same(&copy, &model, limit);
        }
        while !list.free_some(3) {
            list.check(limit);
        }
        assert!(list.bytes() < 2048);
    }
}

/// Enough chunks for several segments, so that those are split, crossed and removed.
#[test]
#[cfg_attr(miri, ignore = "thousands of edits, of which others make the same")]
fn lists_of_many_segments() {
    for seed in 0..6 {
        let mut rng = fastrand::Rng::with_seed(seed);
        // Some depths are within the first segments, some not.
        let compress_depth = [0, 1, 200, 600, 3, 2_000_000_000][seed as usize];
        let limit = Limit { compress_depth, ..[LIMITS[2], LIMITS[0]][seed as usize % 2] };
        let (mut list, mut model) = (List::new(limit), Model::new());
        for _ in 0..1500 {
            step(&mut list, &mut model, &mut rng, limit, true);
            let index = rng.usize(..=model.len().min(700));
            list.insert(index, Element::Int(5), limit);
            model.insert(index, b"5".to_vec());
        }
        assert_same(&list, &model, limit);
        for _ in 0..50 {
            assert_reads(View::Node(&list), &model, &mut rng);
        }
        assert_eq!(list.remove_equal(Element::Int(5), 1000, End::Back, limit), 1000.min(count_fives(&model)));
        model_remove_equal(&mut model, b"5", 1000, End::Back);
        assert_same(&list, &model, limit);
        assert_eq!(list.remove_equal(Element::Int(5), usize::MAX, End::Front, limit), count_fives(&model));
        model_remove_equal(&mut model, b"5", usize::MAX, End::Front);
        assert_same(&list, &model, limit);
        list.drop_from(End::Front, model.len() / 2);
        drop(model.drain(..model.len() / 2));
        assert_same(&list, &model, limit);
        list.drop_from(End::Back, model.len() - 1);
        model.truncate(1);
        assert_same(&list, &model, limit);
        list.drop_from(End::Back, usize::MAX);
        assert!(list.is_empty());
        list.check(limit);
    }
}

fn count_fives(model: &Model) -> usize {
    model.iter().filter(|text| *text == b"5").count()
}

#[test]
fn packed_lists_read_like_others_and_turn_into_them() {
    for seed in 0..if cfg!(miri) { 5 } else { 200 } {
        let mut rng = fastrand::Rng::with_seed(seed);
        let limit = Limit { compress_depth: rng.u32(..3), ..LIMITS[rng.usize(..LIMITS.len())] };
        let model: Model = (0..rng.usize(..30)).map(|_| random_text(&mut rng)).collect();
        let mut packed = (model.len() as u16).to_le_bytes().to_vec();
        for text in &model {
            link::encode(Element::of(text), &mut packed);
        }
        for _ in 0..5 {
            assert_reads(View::Packed(&packed), &model, &mut rng);
        }
        let list = List::from_packed(&packed, limit);
        assert_same(&list, &model, limit);
        let packs = limit.for_packing().packs(packed.len() - COUNT_BYTES, model.len());
        let fits = packs && !model.is_empty();
        assert_eq!(list.to_packed(limit), fits.then_some(packed));
    }
}

/// What a list takes when it was pushed to only: hardly more than its bytes.
#[test]
#[cfg_attr(miri, ignore = "about bytes of long lists")]
fn full_chunks_waste_little() {
    let limit = Limit::of(-2, 0);
    for len in [3, 30, 300, 3000, 6000, 9000] {
        for end in [End::Front, End::Back] {
            let mut list = List::new(limit);
            let text = vec![b'x'; len];
            (0..2_000_000 / len).for_each(|_| list.push(end, Element::of(&text), limit));
            list.check(limit);
            let needed = (2_000_000 / len) * link::encoded_len(Element::of(&text));
            assert!(list.bytes() < needed + needed / 8 + 9000, "{} for {needed} with {len}", list.bytes());
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "about bytes of long lists")]
fn a_queue_keeps_its_size() {
    let limit = Limit::of(-2, 0);
    for length in [1, 10, 400, 1000] {
        let mut list = List::new(limit);
        (0..length).for_each(|_| list.push(End::Back, Element::Int(1_000_000), limit));
        for n in 0..20_000 {
            list.push(End::Back, Element::Int(1_000_000 + n), limit);
            list.drop_from(End::Front, 1);
            assert!(list.bytes() < 300 + 2 * 8192 + length * 7, "{}", list.bytes());
        }
        list.check(limit);
    }
}

#[test]
fn limits_are_those_of_the_directive() {
    assert_eq!(Limit::of(-1, 0).bytes, 4096);
    assert_eq!(Limit::of(-5, 0).bytes, 65536);
    assert_eq!(Limit::of(i32::MIN, 0).bytes, 65536);
    assert_eq!(Limit::of(0, 0).count, 1);
    assert_eq!(Limit::of(128, 3), Limit { bytes: 8192, count: 128, compress_depth: 3 });
}
