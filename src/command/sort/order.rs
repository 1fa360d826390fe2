//! What SORT does once it has the elements and their weights: patterns and order.

use crate::value::number::{compare_f64, parse_f64};
use std::ops::Range;

/// Texts one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    /// What a text takes besides its bytes.
    pub const ITEM_BYTES: usize = size_of::<usize>();

    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn bytes_of(&self, indexes: &[usize]) -> usize {
        indexes.iter().map(|index| self.get(*index).len()).sum()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator + Clone {
        (0..self.len()).map(|index| self.get(index))
    }
}

/// What BY or GET names: the element itself, or a value whose key has the element in place of the first asterisk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern<'p> {
    Element,
    Key {
        before: &'p [u8],
        behind: &'p [u8],
        /// Of a hash.
        field: Option<&'p [u8]>,
    },
    /// The same for all elements: not looked at.
    Constant,
}

impl<'p> Pattern<'p> {
    pub fn of(text: &'p [u8]) -> Pattern<'p> {
        if text == b"#" {
            return Pattern::Element;
        }
        let Some(star) = text.iter().position(|byte| *byte == b'*') else { return Pattern::Constant };
        let (before, behind) = (&text[..star], &text[star + 1..]);
        // An arrow at the very end belongs to the key.
        match behind.windows(2).position(|pair| pair == b"->").filter(|arrow| arrow + 2 < behind.len()) {
            Some(arrow) => Pattern::Key { before, behind: &behind[..arrow], field: Some(&behind[arrow + 2..]) },
            None => Pattern::Key { before, behind, field: None },
        }
    }

    /// The key for an element, and the field.
    pub fn key_of(self, element: &[u8]) -> Option<(Vec<u8>, Option<&'p [u8]>)> {
        match self {
            Pattern::Key { before, behind, field } => Some(([before, element, behind].concat(), field)),
            Pattern::Element | Pattern::Constant => None,
        }
    }

    pub fn names_keys(self) -> bool {
        matches!(self, Pattern::Key { .. })
    }

    /// Bytes of a key but those of the element.
    fn key_bytes(self) -> usize {
        match self {
            Pattern::Key { before, behind, .. } => before.len() + behind.len(),
            Pattern::Element | Pattern::Constant => 0,
        }
    }
}

/// A value that BY or GET names, if it is there.
pub type Found = Option<Vec<u8>>;

/// What looking up the keys of these patterns brings together before any value is read: for each key its bytes, and a
/// place for its value, although there may be none. It is counted in numbers alone, since a client says how many patterns
/// there are, and how long they are.
pub fn bytes_to_look_up(patterns: &[Pattern], rows: usize, element_bytes: usize) -> usize {
    let row_bytes: usize = patterns.iter().map(|pattern| pattern.key_bytes() + size_of::<Found>()).sum();
    rows.saturating_mul(row_bytes).saturating_add(patterns.len().saturating_mul(element_bytes))
}

/// The least that GETs of such elements give: the elements where they are asked for, and for each item so many bytes.
pub fn bytes_to_give(gets: &[Pattern], rows: usize, element_bytes: usize, item_bytes: usize) -> usize {
    let elements = gets.iter().filter(|get| matches!(get, Pattern::Element)).count();
    let items = rows.saturating_mul(gets.len()).saturating_mul(item_bytes);
    items.saturating_add(elements.saturating_mul(element_bytes))
}

/// Which of so many elements `LIMIT offset count` shows, as Redis counts: all from the start where a number is negative.
pub fn shown(len: usize, limit: Option<(i64, i64)>) -> Range<usize> {
    let (offset, count) = limit.unwrap_or((0, -1));
    let len_max = len as i64;
    let start = offset.clamp(0, len_max);
    let end = if count < 0 { len_max } else { start + count.min(len_max - start) };
    start as usize..end as usize
}

/// By what elements are put in order.
pub enum Weights {
    Numbers(Vec<f64>),
    /// The elements themselves, as texts.
    Elements,
    /// Other texts; what has none comes first.
    Texts(Vec<Found>),
}

/// Some weight is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotANumber;

impl Weights {
    /// The numbers that these texts are; what has no text counts as 0.
    pub fn numbers<'t>(texts: impl Iterator<Item = Option<&'t [u8]>>) -> Result<Weights, NotANumber> {
        let numbers: Option<Vec<f64>> = texts.map(|text| text.map_or(Some(0.0), number)).collect();
        numbers.map(Weights::Numbers).ok_or(NotANumber)
    }

    /// The elements' indexes in order. Equal numbers are put in the order of their elements; equal texts stay in theirs.
    pub fn order(&self, elements: &Texts, descending: bool) -> Vec<usize> {
        let by_element = |a: usize, b: usize| elements.get(a).cmp(elements.get(b));
        let compare = |a: &usize, b: &usize| match self {
            Weights::Numbers(numbers) => compare_f64(numbers[*a], numbers[*b]).then_with(|| by_element(*a, *b)),
            Weights::Elements => by_element(*a, *b),
            Weights::Texts(texts) => texts[*a].cmp(&texts[*b]),
        };
        let mut order: Vec<usize> = (0..elements.len()).collect();
        order.sort_by(|a, b| if descending { compare(b, a) } else { compare(a, b) });
        order
    }
}

/// Reads a number as `strtod` does where nothing may follow it: behind spaces, too; the empty text is 0. None is what
/// does not fit a double, or only as a subnormal. The text ends at its first zero byte.
fn number(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t'..=b'\r'))?;
    parse_f64(&text[start..]).filter(|number| !number.is_subnormal())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(of: &[&str]) -> Texts {
        let mut texts = Texts::default();
        of.iter().for_each(|text| texts.push(text.as_bytes()));
        texts
    }

    fn key<'p>(before: &'p str, behind: &'p str, field: Option<&'p str>) -> Pattern<'p> {
        Pattern::Key { before: before.as_bytes(), behind: behind.as_bytes(), field: field.map(str::as_bytes) }
    }

    #[test]
    fn patterns() {
        assert_eq!(Pattern::of(b"#"), Pattern::Element);
        assert_eq!(Pattern::of(b"##"), Pattern::Constant);
        assert_eq!(Pattern::of(b""), Pattern::Constant);
        assert_eq!(Pattern::of(b"a->b"), Pattern::Constant);
        assert_eq!(Pattern::of(b"*"), key("", "", None));
        assert_eq!(Pattern::of(b"w_*"), key("w_", "", None));
        assert_eq!(Pattern::of(b"w_*_*x"), key("w_", "_*x", None));
        assert_eq!(Pattern::of(b"h*x->f"), key("h", "x", Some("f")));
        assert_eq!(Pattern::of(b"h*->f->g"), key("h", "", Some("f->g")));
        assert_eq!(Pattern::of(b"h*->"), key("h", "->", None));
        assert_eq!(Pattern::of(b"h*->->"), key("h", "", Some("->")));
        assert_eq!(Pattern::of(b"a->*"), key("a->", "", None));
    }

    #[test]
    fn what_is_looked_up_and_given_is_counted_beforehand() {
        let found = size_of::<Found>();
        let patterns = [key("w_", "", None), key("h_", "x", Some("field"))];
        assert_eq!(bytes_to_look_up(&patterns, 10, 40), 10 * (2 + 3 + 2 * found) + 2 * 40);
        assert_eq!(bytes_to_look_up(&[], 10, 40), 0);
        assert_eq!(bytes_to_look_up(&patterns, usize::MAX, 0), usize::MAX);
        assert_eq!(bytes_to_look_up(&patterns, 0, usize::MAX), usize::MAX);
        let gets = [Pattern::Element, Pattern::Constant, key("w_", "", None), Pattern::Element];
        assert_eq!(bytes_to_give(&gets, 10, 40, 3), 10 * 4 * 3 + 2 * 40);
        assert_eq!(bytes_to_give(&[], 10, 40, 3), 0);
        assert_eq!(bytes_to_give(&gets, usize::MAX, 40, 3), usize::MAX);
        assert_eq!(bytes_to_give(&gets, 0, usize::MAX, 3), usize::MAX);
    }

    #[test]
    fn limits() {
        assert_eq!(shown(5, None), 0..5);
        assert_eq!(shown(5, Some((1, 2))), 1..3);
        assert_eq!(shown(5, Some((4, 2))), 4..5);
        assert_eq!(shown(5, Some((5, 2))), 5..5);
        assert_eq!(shown(5, Some((2, 0))), 2..2);
        assert_eq!(shown(5, Some((2, -1))), 2..5);
        assert_eq!(shown(5, Some((-9, -9))), 0..5);
        assert_eq!(shown(5, Some((i64::MAX, i64::MAX))), 5..5);
        assert_eq!(shown(5, Some((i64::MIN, i64::MAX))), 0..5);
        assert_eq!(shown(0, Some((1, 1))), 0..0);
    }

    #[test]
    fn numbers_are_read_as_redis_reads_them() {
        for (text, expected) in [
            ("", 0.0),
            (" 1", 1.0),
            ("\t\r+3", 3.0),
            ("0x10", 16.0),
            ("inf", f64::INFINITY),
            ("-INFINITY", f64::NEG_INFINITY),
            ("1e5", 1e5),
            ("7\0x", 7.0),
            ("\0", 0.0),
        ] {
            assert_eq!(number(text.as_bytes()), Some(expected), "{text:?}");
        }
        for text in ["1e400", "1e-400", "4.9e-324", "1 ", "  ", "nan", "1_0", "abc", "1,5"] {
            assert_eq!(number(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn orders() {
        let elements = texts(&["10", "9", "b", "a", "9"]);
        let shown = |weights: &Weights, descending| {
            let order = weights.order(&elements, descending);
            order.iter().map(|index| String::from_utf8_lossy(elements.get(*index)).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(shown(&Weights::Elements, false), ["10", "9", "9", "a", "b"]);
        assert_eq!(shown(&Weights::Elements, true), ["b", "a", "9", "9", "10"]);
        let numbers = Weights::Numbers(vec![2.0, -1.0, 2.0, 2.0, f64::INFINITY]);
        assert_eq!(shown(&numbers, false), ["9", "10", "a", "b", "9"]);
        assert_eq!(shown(&numbers, true), ["9", "b", "a", "10", "9"]);
        let some = |text: &str| Some(text.as_bytes().to_vec());
        let by_text = Weights::Texts(vec![some("x"), None, some(""), some("y"), None]);
        assert_eq!(by_text.order(&elements, false), [1, 4, 2, 0, 3]);
        assert_eq!(by_text.order(&elements, true), [3, 0, 2, 1, 4]);
        assert!(Weights::numbers([Some(&b"1"[..]), None].into_iter()).is_ok());
        assert!(Weights::numbers([Some(&b"1"[..]), Some(b"x")].into_iter()).is_err());
    }
}
