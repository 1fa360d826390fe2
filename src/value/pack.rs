//! Sequences of small elements in plain bytes: what small collections and the chunks of large lists are made of.
//!
//! An element is encoded as in Redis' listpack, without header and end mark of the whole. A text that is the canonical
//! form of an `i64` is kept as that integer; as every element has exactly one encoding, to compare two encodings is to
//! compare the elements.
//!
//! ```text
//!  0xxxxxxx                      integer of 7 bits, not negative
//!  10xxxxxx bytes                text of fewer than 64 bytes
//!  110xxxxx xxxxxxxx             integer of 13 bits
//!  1110xxxx xxxxxxxx bytes       text of fewer than 4096 bytes
//!  f0       length: u32 le bytes text
//!  f1 f2 f3 f4                   integer of 2, 3, 4, 8 bytes, little-endian
//! ```
//!
//! In a *linked* sequence each element is followed by its encoded length, in 1 to 5 bytes of 7 bits that are read
//! backwards, so that it can be walked from its end, too. [`link`] has what differs there.
//!
//! Nothing here keeps a state: functions over bytes and offsets, and [`Buffer`] for those who edit. The bytes are ours,
//! never a client's: what is not a sequence panics.

use super::number::{I64_TEXT_BYTES_MAX, format_i64, parse_i64};
use smallvec::SmallVec;
use std::ops::Range;

pub mod link;

/// Bytes that can be edited in place.
pub trait Buffer {
    fn bytes(&self) -> &[u8];

    /// Puts `with` where `at` was; one move of what is behind. (A `Vec` has a method of this name already: say
    /// `Buffer::splice` there.)
    fn splice(&mut self, at: Range<usize>, with: &[u8]);

    /// Overwrites what is at an offset.
    fn write(&mut self, at: usize, with: &[u8]) {
        self.splice(at..at + with.len(), with);
    }
}

/// Vectors, here for the stack or not.
macro_rules! vectors {
    ($($vector:ty),*) => {$(
        impl Buffer for $vector {
            fn bytes(&self) -> &[u8] {
                self
            }

            fn splice(&mut self, at: Range<usize>, with: &[u8]) {
                let (old_len, new_len) = (self.len(), self.len() - at.len() + with.len());
                if new_len > old_len {
                    self.resize(new_len, 0);
                }
                self.copy_within(at.end..old_len, at.start + with.len());
                self.truncate(new_len);
                self[at.start..at.start + with.len()].copy_from_slice(with);
            }

            fn write(&mut self, at: usize, with: &[u8]) {
                self[at..at + with.len()].copy_from_slice(with);
            }
        }

        impl Out for $vector {
            fn put(&mut self, bytes: &[u8]) {
                self.extend_from_slice(bytes);
            }
        }
    )*};
}

vectors!(Vec<u8>, Encoded);

/// Where encodings are appended.
pub trait Out {
    fn put(&mut self, bytes: &[u8]);
}

/// A place of the right size, which shrinks to what is still to be written.
impl Out for &mut [u8] {
    fn put(&mut self, bytes: &[u8]) {
        let (place, rest) = std::mem::take(self).split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        *self = rest;
    }
}

/// A few encoded elements, on the stack where they are short.
pub type Encoded = SmallVec<[u8; 104]>;

/// One element; the form says how it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element<'a> {
    Int(i64),
    Bytes(&'a [u8]),
}

const TEXT_6: u8 = 0x80;
const INT_13: u8 = 0xc0;
const TEXT_12: u8 = 0xe0;
const TEXT_32: u8 = 0xf0;
const INT_16: u8 = 0xf1;
const INT_24: u8 = 0xf2;
const INT_32: u8 = 0xf3;
const INT_64: u8 = 0xf4;

/// Bytes of the longest encoding without its text.
const HEAD_BYTES_MAX: usize = 9;

impl<'a> Element<'a> {
    /// The element that reads like this: an integer, where it is the canonical form of one.
    #[inline]
    pub fn of(text: &'a [u8]) -> Element<'a> {
        parse_i64(text).map_or(Element::Bytes(text), Element::Int)
    }

    /// Whether the element reads like this.
    #[inline]
    pub fn is(self, text: &[u8]) -> bool {
        self == Element::of(text)
    }

    /// The text, put into `buffer` where it is kept as an integer.
    #[inline]
    pub fn text<'b>(self, buffer: &'b mut [u8; I64_TEXT_BYTES_MAX]) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Element::Int(n) => format_i64(n, buffer),
            Element::Bytes(bytes) => bytes,
        }
    }

    pub fn to_vec(self) -> Vec<u8> {
        self.text(&mut [0; I64_TEXT_BYTES_MAX]).to_vec()
    }

    /// The number it reads like, where it is the canonical form of one.
    pub fn to_integer(self) -> Option<i64> {
        match self {
            Element::Int(n) => Some(n),
            // Not all that make elements look for integers first.
            Element::Bytes(bytes) => parse_i64(bytes),
        }
    }

    /// Bytes of the text.
    pub fn text_len(self) -> usize {
        match self {
            Element::Int(n) => n.unsigned_abs().checked_ilog10().map_or(1, |log| log as usize + 1) + usize::from(n < 0),
            Element::Bytes(bytes) => bytes.len(),
        }
    }

    /// Bytes of the encoding, unlinked.
    #[inline]
    pub fn encoded_len(self) -> usize {
        match self {
            Element::Int(n) => int_encoded_len(n),
            Element::Bytes(bytes) => text_head_len(bytes.len()) + bytes.len(),
        }
    }

    /// Appends the encoding; returns its length.
    #[inline]
    pub fn encode(self, out: &mut impl Out) -> usize {
        match self {
            Element::Int(n) => {
                let (head, len) = int_head(n);
                out.put(&head[..len]);
                len
            }
            Element::Bytes(bytes) => {
                let (head, len) = text_head(bytes.len());
                out.put(&head[..len]);
                out.put(bytes);
                len + bytes.len()
            }
        }
    }

    /// The encoding by itself.
    #[inline]
    pub fn encoded(self) -> Encoded {
        let mut out = Encoded::new();
        self.encode(&mut out);
        out
    }
}

#[inline]
fn int_encoded_len(n: i64) -> usize {
    match n {
        0..=0x7f => 1,
        -0x1000..=0xfff => 2,
        -0x8000..=0x7fff => 3,
        -0x80_0000..=0x7f_ffff => 4,
        -0x8000_0000..=0x7fff_ffff => 5,
        _ => 9,
    }
}

#[inline]
fn int_head(n: i64) -> ([u8; HEAD_BYTES_MAX], usize) {
    let len = int_encoded_len(n);
    let mut head = [0; HEAD_BYTES_MAX];
    head[1..].copy_from_slice(&n.to_le_bytes());
    match len {
        1 => head[0] = n as u8,
        2 => {
            head[0] = INT_13 | (n >> 8) as u8 & 0x1f;
            head[1] = n as u8;
        }
        3 => head[0] = INT_16,
        4 => head[0] = INT_24,
        5 => head[0] = INT_32,
        _ => head[0] = INT_64,
    }
    (head, len)
}

#[inline]
fn text_head_len(len: usize) -> usize {
    match len {
        0..=0x3f => 1,
        0x40..=0xfff => 2,
        _ => 5,
    }
}

#[inline]
fn text_head(len: usize) -> ([u8; 5], usize) {
    debug_assert!(u32::try_from(len).is_ok());
    let [low, second, third, fourth] = (len as u32).to_le_bytes();
    match text_head_len(len) {
        1 => ([TEXT_6 | low, 0, 0, 0, 0], 1),
        2 => ([TEXT_12 | second, low, 0, 0, 0], 2),
        _ => ([TEXT_32, low, second, third, fourth], 5),
    }
}

/// Bytes of the encoded element at an offset.
#[inline]
pub fn len_at(bytes: &[u8], at: usize) -> usize {
    match bytes[at] {
        ..TEXT_6 => 1,
        head @ TEXT_6..INT_13 => 1 + usize::from(head & 0x3f),
        INT_13..TEXT_12 => 2,
        head @ TEXT_12..TEXT_32 => 2 + (usize::from(head & 0xf) << 8 | usize::from(bytes[at + 1])),
        TEXT_32 => 5 + long_text_len(bytes, at),
        INT_16 => 3,
        INT_24 => 4,
        INT_32 => 5,
        _ => 9,
    }
}

fn long_text_len(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(raw(bytes, at + 1)) as usize
}

/// Bytes that are no element, at an offset.
#[inline]
pub fn raw<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("a sequence is as long as it says")
}

/// The element at an offset, and where the next one is.
#[inline]
pub fn read(bytes: &[u8], at: usize) -> (Element<'_>, usize) {
    let next = at + len_at(bytes, at);
    let element = match bytes[at] {
        head @ ..TEXT_6 => Element::Int(i64::from(head)),
        TEXT_6..INT_13 => Element::Bytes(&bytes[at + 1..next]),
        head @ INT_13..TEXT_12 => {
            // The sign is the highest of 13 bits.
            let bits = i16::from_be_bytes([head & 0x1f, bytes[at + 1]]);
            Element::Int(i64::from(bits << 3 >> 3))
        }
        TEXT_12..TEXT_32 => Element::Bytes(&bytes[at + 2..next]),
        TEXT_32 => Element::Bytes(&bytes[at + 5..next]),
        INT_16 => Element::Int(i64::from(i16::from_le_bytes(raw(bytes, at + 1)))),
        INT_24 => {
            let [low, middle, high] = raw(bytes, at + 1);
            Element::Int(i64::from(i32::from_le_bytes([0, low, middle, high]) >> 8))
        }
        INT_32 => Element::Int(i64::from(i32::from_le_bytes(raw(bytes, at + 1)))),
        _ => Element::Int(i64::from_le_bytes(raw(bytes, at + 1))),
    };
    (element, next)
}

/// Where the element after `count` others is.
#[inline]
pub fn skip(bytes: &[u8], mut at: usize, count: usize) -> usize {
    for _ in 0..count {
        at += len_at(bytes, at);
    }
    at
}

/// The elements from an offset to the end, each with its offset.
pub fn iter(bytes: &[u8], from: usize) -> Iter<'_> {
    Iter { bytes, at: from }
}

#[derive(Clone)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (usize, Element<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        if at >= self.bytes.len() {
            return None;
        }
        let (element, next) = read(self.bytes, at);
        self.at = next;
        Some((at, element))
    }
}

/// What one item of a sequence is made of, where what is looked for comes first.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Elements, at least one.
    pub elements: usize,
    /// Bytes behind them that are no element.
    pub raw_bytes: usize,
}

impl Item {
    pub const ELEMENT: Item = Item { elements: 1, raw_bytes: 0 };
    pub const PAIR: Item = Item { elements: 2, raw_bytes: 0 };

    /// Where the item behind the one at an offset is.
    #[inline]
    pub fn next(self, bytes: &[u8], at: usize) -> usize {
        skip(bytes, at, self.elements) + self.raw_bytes
    }
}

/// Where the first item from an offset on is whose first element has this encoding.
#[inline]
pub fn find(bytes: &[u8], from: usize, item: Item, encoded: &[u8]) -> Option<usize> {
    let mut at = from;
    while at < bytes.len() {
        let len = len_at(bytes, at);
        if len == encoded.len() && bytes[at..at + len] == *encoded {
            return Some(at);
        }
        at = skip(bytes, at + len, item.elements - 1) + item.raw_bytes;
    }
    None
}

/// The number that a packed collection starts with: of its items.
#[inline]
pub fn count(bytes: &[u8]) -> usize {
    usize::from(u16::from_le_bytes(raw(bytes, 0)))
}

/// Bytes of that number, behind which the first item is.
pub const COUNT_BYTES: usize = 2;

/// The most items a packed collection can have.
pub const COUNT_MAX: usize = u16::MAX as usize;

/// The most bytes of a packed collection, as in Redis: what is behind is found by lengths of 32 bits, and looked for from
/// the start. (Tests come to it without a gigabyte.)
pub const BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 1 << 30 };

/// Whether a pack of so many bytes has room for elements of which the texts have so many.
#[inline]
pub fn has_room(bytes: usize, text_bytes: usize) -> bool {
    bytes + text_bytes <= BYTES_MAX
}

/// Changes that number by `change`.
#[inline]
pub fn add_count(buffer: &mut impl Buffer, change: isize) {
    let count = count(buffer.bytes()).wrapping_add_signed(change);
    debug_assert!(count <= COUNT_MAX);
    buffer.write(0, &(count as u16).to_le_bytes());
}

#[cfg(test)]
mod tests;
