//! Ziplists: what Redis had for listpacks before 7.0. Only read.
//!
//! ```text
//! bytes in all (4)  offset of the last element (4)  elements (2, 65535: not counted)  element ...  ff
//! element: length of the one before (1, or fe and 4)  encoding  [length]  [integer or bytes]      little-endian
//! ```

use super::listpack::int24;
use super::{Error, Result};
use crate::value::pack::Element;

const HEADER_BYTES: usize = 4 + 4 + 2;
const END: u8 = 0xff;
const LONG: u8 = 0xfe;
const UNCOUNTED: u16 = u16::MAX;

const CORRUPT: Error = Error::Corrupt("a ziplist");

/// The elements of a ziplist. What is wrong with it comes out where it stands; what the header says of the elements is
/// checked behind the last one.
pub struct Elements<'a> {
    /// Elements and the end mark.
    rest: &'a [u8],
    last_at: usize,
    count: Option<u16>,
    seen: usize,
    at: usize,
    /// Length of the element before; 0 for the first.
    before: usize,
}

impl<'a> Elements<'a> {
    pub fn of(ziplist: &'a [u8]) -> Result<Elements<'a>> {
        let (len, rest) = ziplist.split_first_chunk().ok_or(CORRUPT)?;
        let (last_at, rest) = rest.split_first_chunk().ok_or(CORRUPT)?;
        let (count, rest) = rest.split_first_chunk().ok_or(CORRUPT)?;
        if u32::from_le_bytes(*len) as usize != ziplist.len() || rest.last() != Some(&END) {
            return Err(CORRUPT);
        }
        let count = u16::from_le_bytes(*count);
        Ok(Elements {
            rest,
            last_at: u32::from_le_bytes(*last_at) as usize,
            count: (count != UNCOUNTED).then_some(count),
            seen: 0,
            at: HEADER_BYTES,
            before: 0,
        })
    }

    fn end(&self) -> Result {
        let counted = self.count.is_none_or(|count| usize::from(count) == self.seen);
        let last = self.last_at == self.at - self.before;
        if counted && last && self.rest.len() == 1 { Ok(()) } else { Err(CORRUPT) }
    }

    fn element(&mut self) -> Option<Element<'a>> {
        let (before, rest) = match self.rest {
            [LONG, rest @ ..] => {
                rest.split_first_chunk().map(|(len, rest)| (u32::from_le_bytes(*len) as usize, rest))?
            }
            [len, rest @ ..] => (usize::from(*len), rest),
            [] => return None,
        };
        let (item, len) = element(rest)?;
        let rest = rest.get(len..).filter(|rest| !rest.is_empty() && before == self.before)?;
        self.before = self.rest.len() - rest.len();
        self.at += self.before;
        self.seen += 1;
        self.rest = rest;
        Some(item)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>>;

    fn next(&mut self) -> Option<Result<Element<'a>>> {
        if self.rest.first() == Some(&END) {
            return self.end().err().map(Err);
        }
        Some(self.element().ok_or(CORRUPT))
    }
}

/// The element that bytes begin with, behind the length of the one before, and its length.
fn element(bytes: &[u8]) -> Option<(Element<'_>, usize)> {
    let (&first, rest) = bytes.split_first()?;
    let string = |header: usize, len: usize| {
        let end = header.checked_add(len)?;
        bytes.get(header..end).map(|text| (Element::of(text), end))
    };
    match first {
        0..=0x3f => string(1, usize::from(first)),
        0x40..=0x7f => string(2, usize::from(first & 0x3f) << 8 | usize::from(*rest.first()?)),
        0x80..=0xbf => string(5, u32::from_be_bytes(*rest.first_chunk()?) as usize),
        0xc0 => Some((Element::Int(i64::from(i16::from_le_bytes(*rest.first_chunk()?))), 3)),
        0xd0 => Some((Element::Int(i64::from(i32::from_le_bytes(*rest.first_chunk()?))), 5)),
        0xe0 => Some((Element::Int(i64::from_le_bytes(*rest.first_chunk()?)), 9)),
        0xf0 => Some((Element::Int(int24(*rest.first_chunk()?)), 4)),
        0xf1..=0xfd => Some((Element::Int(i64::from(first - 0xf1)), 1)),
        0xfe => Some((Element::Int(i64::from(rest.first()?.cast_signed())), 2)),
        _ => None,
    }
}
