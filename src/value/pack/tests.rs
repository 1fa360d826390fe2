use super::*;

/// Integers at the borders of the encodings, and texts that only look like integers.
fn texts() -> Vec<Vec<u8>> {
    let mut texts: Vec<Vec<u8>> = Vec::new();
    for bits in 0..64 {
        let border = 1i128 << bits;
        for n in [border - 1, border, border + 1, -border - 1, -border, -border + 1] {
            if let Ok(n) = i64::try_from(n) {
                texts.push(n.to_string().into_bytes());
            }
        }
    }
    for text in
        ["", "-", "-0", "00", "01", "+1", " 1", "1 ", "9223372036854775808", "-9223372036854775809", "1e3", "0x1"]
    {
        texts.push(text.into());
    }
    for len in [1, 2, 62, 63, 64, 65, 125, 126, 127, 128, 4094, 4095, 4096, 4097, 16380, 16384, 70000, 2_097_152] {
        texts.push(vec![b'x'; len]);
    }
    texts
}

fn random_text(rng: &mut fastrand::Rng) -> Vec<u8> {
    match rng.u8(..4) {
        0 => rng.i64(-200..200).to_string().into_bytes(),
        1 => (rng.i64(..) >> rng.u32(..64)).to_string().into_bytes(),
        2 => (0..rng.usize(..8)).map(|_| rng.u8(..)).collect(),
        _ => vec![rng.u8(..); rng.usize(..300)],
    }
}

#[test]
fn every_text_comes_back() {
    for text in texts() {
        let element = Element::of(&text);
        let encoded = element.encoded();
        assert_eq!(encoded.len(), element.encoded_len());
        assert_eq!(len_at(&encoded, 0), encoded.len());
        let (found, next) = read(&encoded, 0);
        assert_eq!((found, next), (element, encoded.len()));
        assert_eq!(found.to_vec(), text);
        assert_eq!(found.text_len(), text.len());
        assert!(found.is(&text));
        assert!(!found.is(b"something else"));
    }
}

#[test]
fn integers_take_as_many_bytes_as_in_redis() {
    let len = |text: &str| Element::of(text.as_bytes()).encoded_len();
    let cases = [("127", 1), ("128", 2), ("-1", 2), ("-4096", 2), ("4095", 2), ("4096", 3), ("-4097", 3), ("32767", 3)];
    for (text, expected) in cases {
        assert_eq!(len(text), expected, "{text}");
    }
    for (text, expected) in [("32768", 4), ("8388607", 4), ("8388608", 5), ("2147483647", 5), ("2147483648", 9)] {
        assert_eq!(len(text), expected, "{text}");
    }
}

#[test]
fn bytes_that_look_like_an_integer_stay_bytes_where_asked() {
    let encoded = Element::Bytes(b"12345678").encoded();
    assert_eq!(read(&encoded, 0).0, Element::Bytes(b"12345678"));
}

#[test]
fn links_lead_back() {
    let texts = texts();
    let mut bytes = Vec::new();
    for text in &texts {
        let len = link::encode(Element::of(text), &mut bytes);
        assert_eq!(len, link::encoded_len(Element::of(text)));
    }
    let forth: Vec<_> = link::iter(&bytes, 0).collect();
    let mut back: Vec<_> = link::iter(&bytes, 0).rev().collect();
    back.reverse();
    assert_eq!(forth, back);
    let found: Vec<Vec<u8>> = forth.iter().map(|(_, element)| element.to_vec()).collect();
    assert_eq!(found, texts);
    for (index, (at, _)) in forth.iter().enumerate() {
        assert_eq!(link::skip(&bytes, 0, index), *at);
        assert_eq!(link::skip_back(&bytes, bytes.len(), texts.len() - index), *at);
    }
    let mut ends = link::iter(&bytes, 0);
    let half = texts.len() / 2;
    assert_eq!(ends.by_ref().take(half).count() + ends.rev().count(), texts.len());
}

#[test]
fn edits_are_those_of_a_model() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut model: Vec<Vec<u8>> = Vec::new();
        let mut bytes = vec![0; COUNT_BYTES];
        for _ in 0..100 {
            let index = rng.usize(..=model.len());
            let at = skip(&bytes, COUNT_BYTES, index);
            let end = if index < model.len() { at + len_at(&bytes, at) } else { at };
            let text = random_text(&mut rng);
            let encoded = Element::of(&text).encoded();
            if index == model.len() || rng.bool() {
                Buffer::splice(&mut bytes, at..at, &encoded);
                add_count(&mut bytes, 1);
                model.insert(index, text);
            } else if rng.bool() {
                Buffer::splice(&mut bytes, at..end, &encoded);
                model[index] = text;
            } else {
                Buffer::splice(&mut bytes, at..end, &[]);
                add_count(&mut bytes, -1);
                model.remove(index);
            }
            assert_eq!(count(&bytes), model.len());
            let found: Vec<Vec<u8>> = iter(&bytes, COUNT_BYTES).map(|(_, element)| element.to_vec()).collect();
            assert_eq!(found, model);
        }
        for text in &model {
            let first = model.iter().position(|other| other == text).unwrap();
            let found = find(&bytes, COUNT_BYTES, Item::ELEMENT, &Element::of(text).encoded());
            assert_eq!(found, Some(skip(&bytes, COUNT_BYTES, first)));
        }
    }
}

#[test]
fn a_field_is_not_found_among_values() {
    let mut bytes = Vec::new();
    for (field, value, deadline) in [("a", "b", 7u64), ("b", "a", u64::MAX), ("5", "6", 0x0101_0101_0101_0101)] {
        Element::of(field.as_bytes()).encode(&mut bytes);
        Element::of(value.as_bytes()).encode(&mut bytes);
        bytes.extend_from_slice(&deadline.to_le_bytes());
    }
    let item = Item { elements: 2, raw_bytes: 8 };
    let find = |text: &str| find(&bytes, 0, item, &Element::of(text.as_bytes()).encoded());
    assert_eq!(find("a"), Some(0));
    assert_eq!(find("b"), Some(item.next(&bytes, 0)));
    assert_eq!(find("5"), Some(item.next(&bytes, item.next(&bytes, 0))));
    assert_eq!(find("6"), None);
    assert_eq!(find(""), None);
}
