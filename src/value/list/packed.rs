//! What changes a list that is packed: a count and a linked sequence.

use super::{End, Limit, List};
use crate::value::pack::{self, Buffer, COUNT_BYTES, Element, Encoded, link};

/// A list that is under no key yet.
pub enum Form {
    Packed(Encoded),
    Node(List),
}

impl Form {
    /// A list to which these texts were pushed, one after the other.
    pub fn of<'t>(texts: impl DoubleEndedIterator<Item = &'t [u8]> + Clone, end: End, limit: Limit) -> Form {
        let (bytes, count) = extent(texts.clone());
        if limit.packs(bytes, count) {
            let mut packed = Encoded::from_slice(&(count as u16).to_le_bytes());
            encode(texts, end, &mut packed);
            Form::Packed(packed)
        } else {
            let mut list = List::new(limit);
            texts.for_each(|text| list.push(end, Element::of(text), limit));
            Form::Node(list)
        }
    }
}

/// Where the element of an index is, or the end for the index behind the last one.
pub fn offset(packed: &[u8], index: usize) -> usize {
    let count = pack::count(packed);
    if index * 2 <= count {
        link::skip(packed, COUNT_BYTES, index)
    } else {
        link::skip_back(packed, packed.len(), count - index)
    }
}

/// Pushes texts one after the other, if the list is still small enough to be packed then; whether it is.
pub fn push<'t>(
    buffer: &mut impl Buffer,
    texts: impl DoubleEndedIterator<Item = &'t [u8]> + Clone,
    end: End,
    limit: Limit,
) -> bool {
    let packed = buffer.bytes();
    let (bytes, count) = extent(texts.clone());
    if !grows(packed, bytes, count, limit) {
        return false;
    }
    let at = if end == End::Front { COUNT_BYTES } else { packed.len() };
    let mut encoded = Encoded::new();
    encode(texts, end, &mut encoded);
    buffer.splice(at..at, &encoded);
    pack::add_count(buffer, count as isize);
    true
}

/// Takes `count` elements from an end, which has more.
pub fn drop_from(buffer: &mut impl Buffer, end: End, count: usize) {
    let packed = buffer.bytes();
    let range = match end {
        End::Front => COUNT_BYTES..offset(packed, count),
        End::Back => offset(packed, pack::count(packed) - count)..packed.len(),
    };
    buffer.splice(range, &[]);
    pack::add_count(buffer, -(count as isize));
}

/// Puts a text in front of the element of an index, which is at most the count, if the list is still small enough to be
/// packed then; whether it is.
pub fn insert(buffer: &mut impl Buffer, index: usize, text: &[u8], limit: Limit) -> bool {
    let packed = buffer.bytes();
    let fits = grows(packed, text.len(), 1, limit);
    if fits {
        let at = offset(packed, index);
        buffer.splice(at..at, &encoded(text));
        pack::add_count(buffer, 1);
    }
    fits
}

/// Puts a text where the element of an index is, if the list is small enough to be packed even with one more; whether it
/// is.
pub fn set(buffer: &mut impl Buffer, index: usize, text: &[u8], limit: Limit) -> bool {
    let packed = buffer.bytes();
    let fits = grows(packed, text.len(), 1, limit);
    if fits {
        let at = offset(packed, index);
        let end = at + link::linked_len_at(packed, at);
        buffer.splice(at..end, &encoded(text));
    }
    fits
}

/// Removes the elements equal to this one, the first `max` seen from an end; returns how many.
pub fn remove_equal(buffer: &mut impl Buffer, element: Element, max: usize, from: End) -> usize {
    let packed = buffer.bytes();
    let offsets = equal_offsets(&packed[COUNT_BYTES..], element, max, from);
    if !offsets.is_empty() {
        let mut kept = Vec::with_capacity(packed.len());
        let mut at = COUNT_BYTES;
        for offset in offsets.iter().map(|offset| offset + COUNT_BYTES) {
            kept.extend_from_slice(&packed[at..offset]);
            at = offset + link::linked_len_at(packed, offset);
        }
        kept.extend_from_slice(&packed[at..]);
        let end = packed.len();
        buffer.splice(COUNT_BYTES..end, &kept);
        pack::add_count(buffer, -(offsets.len() as isize));
    }
    offsets.len()
}

/// Where the elements of a linked sequence are that are equal to this one, ascending: at most `max`, those nearest to an
/// end.
pub(super) fn equal_offsets(sequence: &[u8], element: Element, max: usize, from: End) -> Vec<usize> {
    let equal = |(at, found): (usize, Element)| (found == element).then_some(at);
    let elements = link::iter(sequence, 0);
    match from {
        End::Front => elements.filter_map(equal).take(max).collect(),
        End::Back => {
            let mut offsets: Vec<usize> = elements.rev().filter_map(equal).take(max).collect();
            offsets.reverse();
            offsets
        }
    }
}

/// Bytes of all texts, and how many they are.
fn extent<'t>(texts: impl Iterator<Item = &'t [u8]>) -> (usize, usize) {
    texts.fold((0, 0), |(bytes, count), text| (bytes + text.len(), count + 1))
}

fn grows(packed: &[u8], bytes: usize, count: usize, limit: Limit) -> bool {
    limit.packs(packed.len() - COUNT_BYTES + bytes, pack::count(packed) + count)
}

/// Appends texts in the order in which they stand when they were pushed one after the other.
fn encode<'t>(texts: impl DoubleEndedIterator<Item = &'t [u8]>, end: End, out: &mut Encoded) {
    let mut put = |text| {
        link::encode(Element::of(text), out);
    };
    match end {
        End::Front => texts.rev().for_each(&mut put),
        End::Back => texts.for_each(&mut put),
    }
}

fn encoded(text: &[u8]) -> Encoded {
    let mut out = Encoded::new();
    link::encode(Element::of(text), &mut out);
    out
}
