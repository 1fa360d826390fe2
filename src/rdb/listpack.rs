//! Listpacks: elements in a row.
//!
//! ```text
//! bytes in all (4)  elements (2, 65535: not counted)  element ...  ff                             little-endian
//! element: as in a pack, and the length of that, in base 128 from the right
//! ```

use super::{Error, Result};
use crate::value::pack::{self, Element};

const HEADER_BYTES: usize = 4 + 2;
/// Of a listpack without elements.
pub const EMPTY_BYTES: usize = HEADER_BYTES + 1;
const END: u8 = 0xff;
/// A header that does not say how many.
const UNCOUNTED: u16 = u16::MAX;

const CORRUPT: Error = Error::Corrupt("a listpack");

/// The elements of a listpack. What is wrong with it comes out where it stands; the number of elements is checked
/// behind the last one.
pub struct Elements<'a> {
    /// Elements and the end mark.
    rest: &'a [u8],
    count: Option<u16>,
    seen: usize,
}

impl<'a> Elements<'a> {
    pub fn of(listpack: &'a [u8]) -> Result<Elements<'a>> {
        let (len, rest) = listpack.split_first_chunk().ok_or(CORRUPT)?;
        let (count, rest) = rest.split_first_chunk().ok_or(CORRUPT)?;
        if u32::from_le_bytes(*len) as usize != listpack.len() || rest.last() != Some(&END) {
            return Err(CORRUPT);
        }
        let count = u16::from_le_bytes(*count);
        Ok(Elements { rest, count: (count != UNCOUNTED).then_some(count), seen: 0 })
    }

    /// The next element, where one is missing the listpack is not valid.
    pub fn expect(&mut self) -> Result<Element<'a>> {
        self.next().unwrap_or(Err(CORRUPT))
    }

    /// The same of an integer.
    pub fn expect_int(&mut self) -> Result<i64> {
        self.expect().and_then(int)
    }

    fn end(&self) -> Result {
        let counted = self.count.is_none_or(|count| usize::from(count) == self.seen);
        if counted && self.rest.len() == 1 { Ok(()) } else { Err(CORRUPT) }
    }

    fn element(&mut self) -> Result<Element<'a>> {
        let (item, len) = element(self.rest).ok_or(CORRUPT)?;
        let (back, width) = back_len(len);
        let rest = self.rest[len..].strip_prefix(&back[..width]).filter(|rest| !rest.is_empty()).ok_or(CORRUPT)?;
        self.rest = rest;
        self.seen += 1;
        Ok(item)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>>;

    fn next(&mut self) -> Option<Result<Element<'a>>> {
        if self.rest.first() == Some(&END) {
            return self.end().err().map(Err);
        }
        Some(self.element())
    }
}

/// An element that has to be an integer.
pub fn int(element: Element) -> Result<i64> {
    match element {
        Element::Int(n) => Ok(n),
        Element::Bytes(_) => Err(CORRUPT),
    }
}

/// The element that bytes begin with, and its length without the length at its end.
fn element(bytes: &[u8]) -> Option<(Element<'_>, usize)> {
    let head_bytes = match bytes.first()? {
        0xe0..=0xef => 2,
        0xf0 => 5,
        0xf5.. => return None,
        _ => 1,
    };
    let len = (bytes.len() >= head_bytes).then(|| pack::len_at(bytes, 0))?;
    let element = pack::read(bytes.get(..len)?, 0).0;
    // Redis has written an integer as one, but who knows who wrote this?
    Some((canonical(element), len))
}

/// The same element, as an integer where it can be.
fn canonical(element: Element) -> Element {
    match element {
        Element::Int(_) => element,
        Element::Bytes(text) => Element::of(text),
    }
}

pub fn int24([a, b, c]: [u8; 3]) -> i64 {
    i64::from(i32::from_le_bytes([0, a, b, c]) >> 8)
}

/// A listpack that is being written. Equal ones have equal elements.
#[derive(Clone, PartialEq, Eq)]
pub struct Listpack {
    bytes: Vec<u8>,
    count: usize,
}

impl Listpack {
    pub fn new() -> Listpack {
        Listpack { bytes: vec![0; HEADER_BYTES], count: 0 }
    }

    /// Its length with the end mark.
    pub fn len(&self) -> usize {
        self.bytes.len() + 1
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn push(&mut self, element: Element) {
        let len = canonical(element).encode(&mut self.bytes);
        let (back, width) = back_len(len);
        self.bytes.extend_from_slice(&back[..width]);
        self.count += 1;
    }

    pub fn iter(&self) -> impl Iterator<Item = Element<'_>> + Clone {
        let mut at = HEADER_BYTES;
        std::iter::from_fn(move || {
            let (element, len) = element(self.bytes.get(at..)?)?;
            at += len + back_len(len).1;
            Some(element)
        })
    }

    /// Puts the elements of another listpack behind these.
    pub fn append(&mut self, other: &Listpack) {
        self.bytes.extend_from_slice(&other.bytes[HEADER_BYTES..]);
        self.count += other.count;
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let (len, count) = (self.bytes.len() as u32, u16::try_from(self.count).unwrap_or(UNCOUNTED));
        self.bytes[..4].copy_from_slice(&len.to_le_bytes());
        self.bytes[4..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

/// The length of an element as it stands behind it, and how many bytes that takes: base 128, the lowest digit last, all
/// but the first marked. Redis takes a byte more for the largest number of each width beyond the first.
fn back_len(len: usize) -> ([u8; 5], usize) {
    let width = match len {
        0..128 => 1,
        128..0x3fff => 2,
        0x3fff..0x1f_ffff => 3,
        0x1f_ffff..0xfff_ffff => 4,
        _ => 5,
    };
    let mut digits = [0; 5];
    for (place, digit) in digits[..width].iter_mut().rev().enumerate() {
        let mark = if place + 1 < width { 0x80 } else { 0 };
        *digit = (len >> (7 * place) & 0x7f) as u8 | mark;
    }
    (digits, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(texts: &[Vec<u8>]) -> Vec<u8> {
        let mut listpack = Listpack::new();
        texts.iter().for_each(|text| listpack.push(Element::Bytes(text)));
        let len = listpack.len();
        let bytes = listpack.finish();
        assert_eq!(bytes.len(), len);
        bytes
    }

    fn read(listpack: &[u8]) -> Result<Vec<Vec<u8>>> {
        Elements::of(listpack)?.map(|element| element.map(Element::to_vec)).collect()
    }

    #[test]
    fn every_width_of_integers_and_strings_is_read_again() {
        let mut texts = Vec::new();
        for bits in 0..64 {
            for n in [!(-1 << bits), 1 << bits, -1i64 << bits, !(1 << bits)] {
                texts.push(n.to_string().into_bytes());
            }
        }
        for len in [0, 1, 63, 64, 4095, 4096, 16377, 16378, 16379, 2_097_145, 2_097_146, 2_097_147] {
            texts.push(vec![b'x'; len]);
        }
        assert_eq!(read(&written(&texts)), Ok(texts));
    }

    /// HSET of these by redis-server 7.0.15.
    #[test]
    fn the_bytes_are_those_of_redis() {
        let texts = ["a", "1", "field", "-70000", "b", "5000000000"].map(|text| text.as_bytes().to_vec());
        let expected = b"\x25\0\0\0\x06\0\x81a\x02\x01\x01\x85field\x06\xf2\x90\xee\xfe\x04\x81b\x02\xf4\0\xf2\x05\x2a\x01\0\0\0\x09\xff";
        assert_eq!(written(&texts), expected);
    }

    #[test]
    fn more_elements_than_can_be_counted_are_not_counted() {
        let texts = vec![b"7".to_vec(); 70_000];
        let bytes = written(&texts);
        assert_eq!(bytes[4..6], [0xff, 0xff]);
        assert_eq!(read(&bytes), Ok(texts));
    }

    #[test]
    fn headers_ends_and_lengths_are_checked() {
        let bytes = written(&[b"one".to_vec(), b"2".to_vec(), vec![b'x'; 100]]);
        assert!(read(&bytes).is_ok());
        for at in (0..6).chain([bytes.len() - 1, bytes.len() - 2, 10]) {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(read(&changed), Err(CORRUPT), "{at}");
        }
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut]), Err(CORRUPT));
        }
        let mut ends_early = bytes.clone();
        ends_early[6] = END;
        assert_eq!(read(&ends_early), Err(CORRUPT));
    }
}
