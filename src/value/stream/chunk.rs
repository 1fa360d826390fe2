//! A run of entries in one buffer: an allocation of its own, so that it can be shared and copied singly.
//!
//! ```text
//! buffer  fields entry*
//! fields  count element*                          those of the first entry, for all that have the same
//! entry   flags size ms seq values back           values: element*, or, with other fields than the first's,
//!                                                         count (element element)*
//! ```
//! `size` and `back` are the bytes between themselves and the entry's other end, so that entries can be passed over in
//! both directions. `ms` and, within the millisecond of the first entry, `seq` are counted from the first id. All
//! numbers are unsigned, 7 bits a byte, the lowest first; those of `back` are read backwards, so its lowest are last.
//! Elements are those of [`pack`].
//!
//! Deleted entries are marked; once they are half of the bytes, the buffer is written anew without them. Ids grow along
//! the buffer, those of deleted entries included.

use super::id::Id;
use crate::value::pack::{self, Element};

/// How large a chunk may become before the next one is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Bytes; 0: as many as there may be.
    pub bytes: usize,
    /// Entries, deleted ones included; 0: any number.
    pub entries: usize,
}

/// No chunk is larger, whatever the limits say; nor is the text of one entry.
pub const CHUNK_BYTES_MAX: usize = 1 << 30;

/// The flags of an entry.
const DELETED: u8 = 1;
const SAME_FIELDS: u8 = 2;

/// Most bytes of an entry beside those of its elements.
const ENTRY_FRAME_BYTES_MAX: usize = 1 + 5 + 2 * 10 + 5 + 5;
/// Most bytes of an element beside those of its text.
const ELEMENT_HEAD_BYTES_MAX: usize = 9;
/// A chunk is not written anew for fewer bytes.
const COMPACT_BYTES_MIN: usize = 512;

#[derive(Clone, Debug)]
pub struct Chunk {
    first: Id,
    /// Of all that were appended and not forgotten, whether or not it still lives.
    last: Id,
    live: u32,
    /// Deleted entries, those that are in the buffer no more included.
    dead: u32,
    /// Bytes of the entries that are marked as deleted.
    dead_bytes: usize,
    /// Where the first entry is that is not deleted: what is trimmed entry by entry is not walked over again.
    begin: usize,
    buffer: Vec<u8>,
    /// See `saving.rs`: when it was shown, or copied to be shown, or came to be.
    pub(super) era: u32,
}

/// An entry as it stands in its chunk.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub id: Id,
    chunk: &'a Chunk,
    flags: u8,
    /// Where its values are.
    values: usize,
    /// Where it ends.
    end: usize,
}

impl Chunk {
    /// A chunk with its first entry; `pairs` are fields, each followed by its value.
    pub fn new<'p>(id: Id, pairs: impl ExactSizeIterator<Item = &'p [u8]> + Clone) -> Chunk {
        let text_bytes: usize = pairs.clone().map(<[u8]>::len).sum();
        let mut chunk = Chunk::for_fields(id, pairs.clone().step_by(2), text_bytes + 2 * pairs.len() + 16);
        chunk.append(id, pairs);
        chunk
    }

    /// A chunk without entries yet, the first of which has this id, and some of which have these fields.
    pub fn for_fields<'p>(id: Id, fields: impl ExactSizeIterator<Item = &'p [u8]>, capacity: usize) -> Chunk {
        let mut buffer = Vec::with_capacity(capacity);
        push_number(&mut buffer, fields.len() as u64);
        for field in fields {
            Element::of(field).encode(&mut buffer);
        }
        Chunk { first: id, last: id, live: 0, dead: 0, dead_bytes: 0, begin: buffer.len(), buffer, era: 0 }
    }

    /// Whether an entry with so many bytes of text belongs into the next chunk.
    pub fn is_full(&self, limits: ChunkLimits, text_bytes: usize) -> bool {
        let bytes = if limits.bytes == 0 { CHUNK_BYTES_MAX } else { limits.bytes.min(CHUNK_BYTES_MAX) };
        self.buffer.len() + text_bytes >= bytes
            || (limits.entries > 0 && self.live as usize + self.dead as usize >= limits.entries)
    }

    /// Whether an entry that has so many bytes beside its chunk's fields, which take `field_bytes`, belongs into the next
    /// chunk. There the fields would be again: so much of them there is not more than of entries.
    pub fn is_full_beside_fields(&self, limits: ChunkLimits, field_bytes: usize, own_bytes: usize) -> bool {
        let entry_bytes = (self.buffer.len() + own_bytes).saturating_sub(field_bytes);
        let past_limits = (limits.bytes > 0 && entry_bytes >= limits.bytes)
            || (limits.entries > 0 && self.live as usize + self.dead as usize >= limits.entries);
        past_limits && entry_bytes >= field_bytes || self.buffer.len() + own_bytes >= CHUNK_BYTES_MAX
    }

    /// Appends an entry, whose id is larger than all others'.
    pub fn append<'p>(&mut self, id: Id, pairs: impl ExactSizeIterator<Item = &'p [u8]> + Clone) {
        if self.has_fields(pairs.clone()) {
            self.append_values(id, pairs.skip(1).step_by(2));
        } else {
            self.append_texts(id, Some(pairs.len() / 2), pairs);
        }
    }

    /// The same with the fields of the chunk.
    pub fn append_values<'p>(&mut self, id: Id, values: impl Iterator<Item = &'p [u8]> + Clone) {
        self.append_texts(id, None, values);
    }

    fn append_texts<'p>(&mut self, id: Id, own_fields: Option<usize>, texts: impl Iterator<Item = &'p [u8]> + Clone) {
        let bytes_max = texts.clone().map(|text| text.len() + ELEMENT_HEAD_BYTES_MAX).sum::<usize>();
        self.reserve(bytes_max + ENTRY_FRAME_BYTES_MAX);
        let begin = self.buffer.len();
        self.buffer.push(if own_fields.is_none() { SAME_FIELDS } else { 0 });
        // Its width is settled before its value is known.
        let size_bytes = number_len((bytes_max + ENTRY_FRAME_BYTES_MAX) as u64);
        self.buffer.resize(begin + 1 + size_bytes, 0);
        push_number(&mut self.buffer, id.ms - self.first.ms);
        push_number(&mut self.buffer, if id.ms == self.first.ms { id.seq - self.first.seq } else { id.seq });
        if let Some(count) = own_fields {
            push_number(&mut self.buffer, count as u64);
        }
        texts.for_each(|text| self.push_element(text));
        let end = self.buffer.len();
        let size = end - begin - 1 - size_bytes;
        write_number(&mut self.buffer[begin + 1..begin + 1 + size_bytes], size as u64);
        push_back_number(&mut self.buffer, (end - begin) as u64);
        self.last = id;
        self.live += 1;
    }

    pub fn first(&self) -> Id {
        self.first
    }

    /// Fields that entries may share.
    pub fn fields(&self) -> impl Iterator<Item = Element<'_>> {
        let (count, mut at) = number_at(&self.buffer, 0);
        (0..count).map(move |_| read_on(&self.buffer, &mut at))
    }

    /// The entries that live.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut at = self.begin();
        let next = move || {
            let entry = (at < self.end()).then(|| self.entry_at(at))?;
            at = entry.end;
            Some(entry)
        };
        std::iter::from_fn(next).filter(|entry| !entry.is_deleted())
    }

    /// The id of the entry that was appended last, which may be deleted.
    pub fn last(&self) -> Id {
        self.last
    }

    /// Entries that are not deleted.
    pub fn live(&self) -> usize {
        self.live as usize
    }

    /// Bytes it holds, its header included.
    pub fn bytes(&self) -> usize {
        size_of::<Chunk>() + self.buffer.capacity()
    }

    /// Gives back what only entries to come would need.
    pub fn close(&mut self) {
        self.buffer.shrink_to_fit();
    }

    /// Where the first entry starts; deleted ones may be missing.
    pub fn begin(&self) -> usize {
        self.begin
    }

    /// Where the last entry ends.
    pub fn end(&self) -> usize {
        self.buffer.len()
    }

    /// The entry that starts at this offset, deleted or not.
    #[inline]
    pub fn entry_at(&self, at: usize) -> Entry<'_> {
        let flags = self.buffer[at];
        let (size, start) = number_at(&self.buffer, at + 1);
        let (ms, after_ms) = number_at(&self.buffer, start);
        let (seq, values) = number_at(&self.buffer, after_ms);
        let id = match ms {
            0 => Id::new(self.first.ms, self.first.seq + seq),
            _ => Id::new(self.first.ms + ms, seq),
        };
        let back = start + size as usize;
        let end = back + number_len((back - at) as u64);
        Entry { id, chunk: self, flags, values, end }
    }

    /// The entry that ends at this offset, and where it starts.
    #[inline]
    pub fn entry_before(&self, end: usize) -> (Entry<'_>, usize) {
        let (size, back) = back_number_at(&self.buffer, end);
        let at = back - size as usize;
        (self.entry_at(at), at)
    }

    /// Where the first entry is whose id is not smaller; the end, where there is none.
    pub fn seek(&self, id: Id) -> usize {
        if id <= self.first {
            return self.begin();
        }
        if id > self.last {
            return self.end();
        }
        // From the end that is nearer in time.
        if self.last.ms - id.ms < id.ms - self.first.ms {
            let mut at = self.end();
            let begin = self.begin();
            while at > begin {
                let (entry, before) = self.entry_before(at);
                if entry.id < id {
                    break;
                }
                at = before;
            }
            return at;
        }
        let mut at = self.begin();
        while at < self.end() {
            let entry = self.entry_at(at);
            if entry.id >= id {
                break;
            }
            at = entry.end;
        }
        at
    }

    /// Forgets deleted entries behind the last one that lives: after XSETID their ids may be given out again.
    pub fn drop_dead_end(&mut self) {
        while self.end() > self.begin {
            let (entry, at) = self.entry_before(self.end());
            let (deleted, id) = (entry.is_deleted(), entry.id);
            if !deleted {
                self.last = id;
                break;
            }
            self.dead_bytes -= self.end() - at;
            self.buffer.truncate(at);
        }
    }

    /// Marks an entry as deleted; whether there was one.
    pub fn delete(&mut self, id: Id) -> bool {
        let at = self.seek(id);
        if at == self.end() {
            return false;
        }
        let entry = self.entry_at(at);
        if entry.id != id || entry.is_deleted() {
            return false;
        }
        let end = entry.end;
        self.mark(at, end);
        self.tidy();
        true
    }

    /// Deletes entries from the first on, as long as `more` says so of one that lives; how many were.
    pub fn trim(&mut self, mut more: impl FnMut(Id) -> bool) -> usize {
        let live = self.live;
        let mut at = self.begin();
        while at < self.end() {
            let entry = self.entry_at(at);
            let end = entry.end;
            if !entry.is_deleted() {
                if !more(entry.id) {
                    break;
                }
                self.mark(at, end);
            }
            at = end;
        }
        self.tidy();
        (live - self.live) as usize
    }

    /// Deletes the entry from `at` to `end`.
    fn mark(&mut self, at: usize, end: usize) {
        self.buffer[at] |= DELETED;
        self.dead_bytes += end - at;
        self.live -= 1;
        self.dead = self.dead.saturating_add(1);
    }

    /// Whether all of the first entry's fields, and no others, are there in the same order.
    fn has_fields<'p>(&self, pairs: impl ExactSizeIterator<Item = &'p [u8]>) -> bool {
        let (count, mut at) = number_at(&self.buffer, 0);
        if count != pairs.len() as u64 / 2 {
            return false;
        }
        for field in pairs.step_by(2) {
            let (element, next) = pack::read(&self.buffer, at);
            if !element.is(field) {
                return false;
            }
            at = next;
        }
        true
    }

    #[inline]
    fn push_element(&mut self, text: &[u8]) {
        Element::of(text).encode(&mut self.buffer);
    }

    /// Grows by half at the least: streams are many and most are short.
    fn reserve(&mut self, more: usize) {
        let (len, capacity) = (self.buffer.len(), self.buffer.capacity());
        if len + more > capacity {
            self.buffer.reserve_exact((len + more).max(capacity + capacity / 2) - len);
        }
    }

    /// Passes over deleted entries at the front, and leaves all of them out where it pays.
    fn tidy(&mut self) {
        while self.begin < self.buffer.len() {
            let entry = self.entry_at(self.begin);
            if !entry.is_deleted() {
                break;
            }
            self.begin = entry.end;
        }
        if self.dead_bytes >= COMPACT_BYTES_MIN && self.dead_bytes * 2 >= self.buffer.len() {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let (fields, at) = number_at(&self.buffer, 0);
        let fields_end = pack::skip(&self.buffer, at, fields as usize);
        let (mut at, mut to) = (self.begin, fields_end);
        while at < self.buffer.len() {
            let entry = self.entry_at(at);
            let (deleted, end) = (entry.is_deleted(), entry.end);
            if !deleted {
                self.buffer.copy_within(at..end, to);
                to += end - at;
            }
            at = end;
        }
        self.buffer.truncate(to);
        self.begin = fields_end;
        self.dead_bytes = 0;
    }
}

impl<'a> Entry<'a> {
    #[inline]
    pub fn is_deleted(&self) -> bool {
        self.flags & DELETED != 0
    }

    /// Where the next entry starts.
    #[inline]
    pub fn end(&self) -> usize {
        self.end
    }

    /// Whether its fields are those of its chunk.
    pub fn shares_fields(&self) -> bool {
        self.flags & SAME_FIELDS != 0
    }

    /// How many fields it has.
    pub fn field_count(&self) -> usize {
        let at = if self.flags & SAME_FIELDS != 0 { 0 } else { self.values };
        number_at(&self.chunk.buffer, at).0 as usize
    }

    /// Its fields, each followed by its value.
    pub fn pairs(&self) -> Pairs<'a> {
        let buffer = &self.chunk.buffer;
        if self.flags & SAME_FIELDS != 0 {
            let (left, fields) = number_at(buffer, 0);
            Pairs { buffer, left: left as usize, fields: Some(fields), values: self.values }
        } else {
            let (left, values) = number_at(buffer, self.values);
            Pairs { buffer, left: left as usize, fields: None, values }
        }
    }
}

/// The pairs of an entry.
#[derive(Clone)]
pub struct Pairs<'a> {
    buffer: &'a [u8],
    left: usize,
    /// Where the next field is, if not among the values.
    fields: Option<usize>,
    values: usize,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (Element<'a>, Element<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let field = match &mut self.fields {
            Some(at) => read_on(self.buffer, at),
            None => read_on(self.buffer, &mut self.values),
        };
        Some((field, read_on(self.buffer, &mut self.values)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Pairs<'_> {}

#[inline]
fn read_on<'a>(buffer: &'a [u8], at: &mut usize) -> Element<'a> {
    let (element, next) = pack::read(buffer, *at);
    *at = next;
    element
}

/// Bytes of a number.
#[inline]
fn number_len(n: u64) -> usize {
    (64 - (n | 1).leading_zeros() as usize).div_ceil(7)
}

#[inline]
fn push_number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// A number in as many bytes as there are, which may be more than it needs.
#[inline]
fn write_number(to: &mut [u8], mut n: u64) {
    let last = to.len() - 1;
    for byte in &mut to[..last] {
        *byte = n as u8 | 0x80;
        n >>= 7;
    }
    to[last] = n as u8;
}

/// The number at an offset, and what is behind it.
#[inline]
fn number_at(bytes: &[u8], at: usize) -> (u64, usize) {
    let byte = bytes[at];
    if byte < 0x80 { (byte.into(), at + 1) } else { long_number_at(bytes, at) }
}

fn long_number_at(bytes: &[u8], mut at: usize) -> (u64, usize) {
    let (mut n, mut shift) = (0, 0);
    loop {
        let byte = bytes[at];
        at += 1;
        n |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return (n, at);
        }
        shift += 7;
    }
}

#[inline]
fn push_back_number(out: &mut Vec<u8>, n: u64) {
    let begin = out.len();
    push_number(out, n);
    out[begin..].reverse();
}

/// The number that ends at an offset, and where it begins.
#[inline]
fn back_number_at(bytes: &[u8], mut end: usize) -> (u64, usize) {
    let (mut n, mut shift) = (0, 0);
    loop {
        end -= 1;
        let byte = bytes[end];
        n |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return (n, end);
        }
        shift += 7;
    }
}
