//! Linked sequences: each element is followed by its encoded length, so that they can be walked from both ends.

use super::{Element, Out, len_at, read as read_unlinked};

/// Bytes that tell an encoded length.
#[inline]
fn back_len(encoded_len: usize) -> usize {
    match encoded_len {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        0x20_0000..=0xfff_ffff => 4,
        _ => 5,
    }
}

/// Bytes of an element with its link.
#[inline]
pub fn encoded_len(element: Element) -> usize {
    let len = element.encoded_len();
    len + back_len(len)
}

/// Appends an element with its link; returns how many bytes.
#[inline]
pub fn encode(element: Element, out: &mut impl Out) -> usize {
    let len = element.encode(out);
    let links = back_len(len);
    if links == 1 {
        out.put(&[len as u8]);
        return len + 1;
    }
    // The lowest 7 bits come last; all but the first byte say that there is more in front.
    let mut link = [0; 5];
    for (shift, byte) in link[..links].iter_mut().rev().enumerate() {
        *byte = (len >> (7 * shift)) as u8 & 0x7f | 0x80;
    }
    link[0] &= 0x7f;
    out.put(&link[..links]);
    len + links
}

/// Bytes of the element at an offset with its link.
#[inline]
pub fn linked_len_at(bytes: &[u8], at: usize) -> usize {
    let len = len_at(bytes, at);
    len + back_len(len)
}

/// Where the element after `count` others is.
#[inline]
pub fn skip(bytes: &[u8], mut at: usize, count: usize) -> usize {
    for _ in 0..count {
        at += linked_len_at(bytes, at);
    }
    at
}

/// Where the element is that ends at an offset.
#[inline]
pub fn before(bytes: &[u8], end: usize) -> usize {
    let (mut len, mut shift, mut at) = (0, 0, end);
    loop {
        at -= 1;
        let byte = bytes[at];
        len |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return at - len;
        }
    }
}

/// Where the last `count` elements begin that end at an offset.
#[inline]
pub fn skip_back(bytes: &[u8], mut end: usize, count: usize) -> usize {
    for _ in 0..count {
        end = before(bytes, end);
    }
    end
}

/// The element at an offset, and where the next one is.
#[inline]
pub fn read(bytes: &[u8], at: usize) -> (Element<'_>, usize) {
    let (element, end) = read_unlinked(bytes, at);
    (element, end + back_len(end - at))
}

/// The elements from an offset to the end, each with its offset.
pub fn iter(bytes: &[u8], from: usize) -> Iter<'_> {
    Iter { bytes, at: from, end: bytes.len() }
}

/// Both ways.
#[derive(Clone)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (usize, Element<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        if at >= self.end {
            return None;
        }
        let (element, next) = read(self.bytes, at);
        self.at = next;
        Some((at, element))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        self.end = before(self.bytes, self.end);
        Some((self.end, read_unlinked(self.bytes, self.end).0))
    }
}
