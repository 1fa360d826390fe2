//! One key with its value: header, key and small value in a single allocation behind a thin pointer.
//!
//! ```text
//!  u64 header   0..24 access clock (LRU or LFU) | 24..27 type | 27 fields | 28 int or node | 29 raw or marked
//!               30 wide | 31 far | 32..44 key length | 44..64 value length
//!  u64, u64     only when wide: key length and value length (u32 each), capacity of the value in bytes
//!  u64          only when far: the exact deadline, store milliseconds
//!  key bytes, value bytes
//! ```
//!
//! An entry is narrow while its key is shorter than 4 KiB and its value shorter than 1 MiB. A narrow entry has no
//! spare room of its own (the allocator's size classes make repeated growth cheap enough); a wide one carries a
//! capacity, so that appending to a huge value does not copy it each time.
//!
//! A collection is *packed*, its bytes standing where a string's would (*marked* is a bit for its type to use), or a
//! *node*: eight bytes that are the address of whatever the rooms above keep there. An entry does not own its node.
//!
//! A hash whose fields have deadlines has the *fields* bit: its block's column then says when the cycle has to look at
//! it, and the key's own deadline, where it has one, stands in the far word.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ops::Range;
use std::ptr::{NonNull, copy, copy_nonoverlapping, write_bytes};

const KIND_SHIFT: u32 = 24;
const KIND_MASK: u64 = 0b111 << KIND_SHIFT;
const FIELDS: u64 = 1 << 27;
const INT: u64 = 1 << 28;
/// The same bit: strings are no nodes.
const NODE: u64 = INT;
const RAW: u64 = 1 << 29;
/// The same bit, of collections.
const MARKED: u64 = RAW;
/// What belongs to the value, not to the place it is in.
const OF_VALUE: u64 = KIND_MASK | FIELDS | INT | RAW;
const WIDE: u64 = 1 << 30;
const FAR: u64 = 1 << 31;
const CLOCK_MASK: u64 = (1 << 24) - 1;
const KEY_SHIFT: u32 = 32;
const VALUE_SHIFT: u32 = 44;
const NARROW_KEY_BYTES: usize = 1 << 12;
const NARROW_VALUE_BYTES: usize = 1 << 20;
/// Wide values get this much room beyond their length (or an eighth of it, or once more while they are short) when
/// they grow.
const WIDE_SPARE_BYTES: usize = 1 << 20;

/// The type of a value, as `TYPE` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    String = 0,
    List = 1,
    Set = 2,
    Zset = 3,
    Hash = 4,
    Stream = 5,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::Zset => "zset",
            Kind::Hash => "hash",
            Kind::Stream => "stream",
        }
    }

    #[inline]
    fn of_header(header: u64) -> Kind {
        match (header & KIND_MASK) >> KIND_SHIFT {
            1 => Kind::List,
            2 => Kind::Set,
            3 => Kind::Zset,
            4 => Kind::Hash,
            5 => Kind::Stream,
            _ => Kind::String,
        }
    }
}

/// How a string value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A canonical decimal integer, kept as 8 bytes.
    Int(i64),
    Bytes(&'a [u8]),
}

/// What an entry keeps beside its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    String(Value<'a>),
    /// A collection in bytes, and its type's own mark.
    Packed(Kind, bool, &'a [u8]),
    /// A collection that is kept elsewhere.
    Node(Kind, NonNull<u8>),
}

impl<'a> From<Value<'a>> for Stored<'a> {
    #[inline]
    fn from(value: Value<'a>) -> Stored<'a> {
        Stored::String(value)
    }
}

impl Stored<'_> {
    pub fn kind(&self) -> Kind {
        match self {
            Stored::String(_) => Kind::String,
            Stored::Packed(kind, ..) | Stored::Node(kind, _) => *kind,
        }
    }

    #[inline]
    fn len(&self) -> usize {
        match self {
            Stored::String(Value::Int(_)) | Stored::Node(..) => 8,
            Stored::String(Value::Bytes(bytes)) | Stored::Packed(_, _, bytes) => bytes.len(),
        }
    }

    /// The bits of the header that say what it is.
    #[inline]
    fn bits(&self) -> u64 {
        match *self {
            Stored::String(Value::Int(_)) => INT,
            Stored::String(Value::Bytes(_)) => 0,
            Stored::Packed(kind, marked, _) => (kind as u64) << KIND_SHIFT | if marked { MARKED } else { 0 },
            Stored::Node(kind, _) => (kind as u64) << KIND_SHIFT | NODE,
        }
    }
}

/// An owning thin pointer; freed by [`Entry::free`], not by drop, since blocks keep it inside tagged words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(NonNull<u8>);

impl Entry {
    pub fn new<'a>(key: &[u8], value: impl Into<Stored<'a>>, far_deadline_ms: Option<u64>, clock: u32) -> Entry {
        let value = value.into();
        let len = value.len();
        let entry = Entry::allocate(key.len(), len, len, far_deadline_ms, clock);
        // SAFETY: freshly allocated with room for exactly this key and value.
        unsafe {
            copy_nonoverlapping(key.as_ptr(), entry.at(entry.key_offset()), key.len());
            entry.write_value(value);
        }
        entry
    }

    /// Room for a key and a value, header written, bytes not.
    fn allocate(key_len: usize, value_len: usize, capacity: usize, far: Option<u64>, clock: u32) -> Entry {
        let wide = key_len >= NARROW_KEY_BYTES || capacity >= NARROW_VALUE_BYTES;
        let mut header = u64::from(clock) & CLOCK_MASK;
        if wide {
            header |= WIDE;
        } else {
            header |= (key_len as u64) << KEY_SHIFT | (value_len as u64) << VALUE_SHIFT;
        }
        if far.is_some() {
            header |= FAR;
        }
        let offset = 8 + if wide { 16 } else { 0 } + if far.is_some() { 8 } else { 0 };
        let layout = layout(offset + key_len + capacity);
        // SAFETY: the layout has at least the header's 8 bytes; the writes below stay inside `offset`.
        unsafe {
            let Some(pointer) = NonNull::new(alloc(layout)) else { handle_alloc_error(layout) };
            let entry = Entry(pointer);
            pointer.cast::<u64>().write(header);
            if wide {
                pointer.cast::<u64>().add(1).write((key_len as u64) | (value_len as u64) << 32);
                pointer.cast::<u64>().add(2).write(capacity as u64);
            }
            if let Some(deadline_ms) = far {
                entry.at(offset - 8).cast::<u64>().write(deadline_ms);
            }
            entry
        }
    }

    /// # Safety
    /// The entry must not be used afterwards, and nothing else may own it.
    pub unsafe fn free(self) {
        let layout = layout(self.allocated_bytes());
        // SAFETY: allocated with this layout (its size is a function of the header).
        unsafe { dealloc(self.0.as_ptr(), layout) }
    }

    #[inline]
    pub fn from_address(address: u64) -> Entry {
        Entry(NonNull::new(address as *mut u8).expect("a full slot holds an entry"))
    }

    #[inline]
    pub fn address(self) -> u64 {
        self.0.as_ptr() as u64
    }

    #[inline]
    fn header(self) -> u64 {
        // SAFETY: an entry always starts with its header, 8-byte aligned.
        unsafe { self.0.cast::<u64>().read() }
    }

    #[inline]
    fn set_header(self, header: u64) {
        // SAFETY: as in `header`; one thread owns the entry.
        unsafe { self.0.cast::<u64>().write(header) }
    }

    #[inline]
    fn at(self, offset: usize) -> *mut u8 {
        // SAFETY: callers stay within the allocation.
        unsafe { self.0.as_ptr().add(offset) }
    }

    #[inline]
    fn key_offset(self) -> usize {
        let header = self.header();
        8 + if header & WIDE != 0 { 16 } else { 0 } + if header & FAR != 0 { 8 } else { 0 }
    }

    /// Lengths of key and stored value, and the value's capacity.
    #[inline]
    fn lengths(self) -> (usize, usize, usize) {
        let header = self.header();
        if header & WIDE == 0 {
            let value = (header >> VALUE_SHIFT) as usize;
            return ((header >> KEY_SHIFT) as usize & (NARROW_KEY_BYTES - 1), value, value);
        }
        // SAFETY: a wide entry carries two more words.
        let (lengths, capacity) = unsafe { (self.0.cast::<u64>().add(1).read(), self.0.cast::<u64>().add(2).read()) };
        ((lengths & 0xffff_ffff) as usize, (lengths >> 32) as usize, capacity as usize)
    }

    /// Bytes of the allocation: header, key, value and spare room.
    #[inline]
    pub fn allocated_bytes(self) -> usize {
        let (key, _, capacity) = self.lengths();
        self.key_offset() + key + capacity
    }

    /// How much longer the value may grow where it is.
    pub fn spare_bytes(self) -> usize {
        let (_, value, capacity) = self.lengths();
        capacity - value
    }

    #[inline]
    pub fn key<'a>(self) -> &'a [u8] {
        // SAFETY: the key's bytes were written by `new`. The lifetime is the caller's to keep: the door hands out
        // slices that borrow the keyspace.
        unsafe { std::slice::from_raw_parts(self.at(self.key_offset()), self.lengths().0) }
    }

    #[inline]
    fn stored<'a>(self) -> &'a [u8] {
        let (key, value, _) = self.lengths();
        // SAFETY: as in `key`.
        unsafe { std::slice::from_raw_parts(self.at(self.key_offset() + key), value) }
    }

    #[inline]
    pub fn value<'a>(self) -> Value<'a> {
        debug_assert_eq!(self.kind(), Kind::String);
        let stored = self.stored();
        if self.header() & INT != 0 {
            return Value::Int(i64::from_le_bytes(stored.try_into().expect("an integer is 8 bytes")));
        }
        Value::Bytes(stored)
    }

    #[inline]
    pub fn kind(self) -> Kind {
        Kind::of_header(self.header())
    }

    /// A string, and not a collection.
    #[inline]
    pub fn is_string(self) -> bool {
        self.header() & KIND_MASK == 0
    }

    /// The value, whatever it is.
    pub fn content<'a>(self) -> Stored<'a> {
        if self.is_string() {
            Stored::String(self.value())
        } else if let Some(node) = self.node() {
            Stored::Node(self.kind(), node)
        } else {
            Stored::Packed(self.kind(), self.is_marked(), self.stored())
        }
    }

    /// Where a collection is that is not packed.
    #[inline]
    pub fn node(self) -> Option<NonNull<u8>> {
        let header = self.header();
        if header & KIND_MASK == 0 || header & NODE == 0 {
            return None;
        }
        let address = usize::from_le_bytes(self.stored().try_into().expect("an address is 8 bytes"));
        NonNull::new(address as *mut u8)
    }

    /// The bytes of a packed collection.
    #[inline]
    pub fn packed<'a>(self) -> Option<&'a [u8]> {
        (self.header() & NODE == 0 && !self.is_string()).then(|| self.stored())
    }

    /// The mark of a packed collection.
    #[inline]
    pub fn is_marked(self) -> bool {
        self.header() & MARKED != 0
    }

    pub fn set_marked(self, marked: bool) {
        debug_assert!(self.packed().is_some());
        self.set_header(self.header() & !MARKED | if marked { MARKED } else { 0 });
    }

    /// Whether the block's column speaks of the fields of a hash, too.
    #[inline]
    pub fn has_fields(self) -> bool {
        self.header() & FIELDS != 0
    }

    pub fn set_fields(self, has_fields: bool) {
        self.set_header(self.header() & !FIELDS | if has_fields { FIELDS } else { 0 });
    }

    /// Whether the value was changed in place (APPEND, SETRANGE), which `OBJECT ENCODING` calls raw.
    pub fn is_raw(self) -> bool {
        self.header() & RAW != 0
    }

    pub fn far_deadline_ms(self) -> Option<u64> {
        (self.header() & FAR != 0).then(|| {
            // SAFETY: a far entry keeps its deadline in the word before the key.
            unsafe { self.at(self.key_offset() - 8).cast::<u64>().read() }
        })
    }

    #[inline]
    pub fn clock(self) -> u32 {
        (self.header() & CLOCK_MASK) as u32
    }

    #[inline]
    pub fn set_clock(self, clock: u32) {
        self.set_header(self.header() & !CLOCK_MASK | u64::from(clock) & CLOCK_MASK);
    }

    /// # Safety
    /// The stored length must be the value's.
    #[inline]
    unsafe fn write_value(self, value: Stored) {
        let (key, len, _) = self.lengths();
        let target = self.at(self.key_offset() + key);
        debug_assert_eq!(len, value.len());
        self.set_header(self.header() & !OF_VALUE | value.bits());
        match value {
            // SAFETY: 8 bytes by the contract.
            Stored::String(Value::Int(n)) => unsafe {
                copy_nonoverlapping(n.to_le_bytes().as_ptr(), target, 8);
            },
            // SAFETY: 8 bytes by the contract.
            Stored::Node(_, node) => unsafe {
                copy_nonoverlapping((node.as_ptr() as usize).to_le_bytes().as_ptr(), target, 8);
            },
            Stored::String(Value::Bytes(bytes)) | Stored::Packed(_, _, bytes) => {
                // SAFETY: room by the contract; `copy` since a value may be set to a part of itself.
                unsafe { copy(bytes.as_ptr(), target, len) };
            }
        }
    }

    /// Puts another value into the entry; the pointer may change.
    ///
    /// # Safety
    /// The old pointer must not be used afterwards. `value` must not point into the entry.
    #[must_use]
    pub unsafe fn replace_value<'a>(self, value: impl Into<Stored<'a>>) -> Entry {
        let value = value.into();
        let (_, len, capacity) = self.lengths();
        if len == value.len() && len == capacity {
            // SAFETY: same length.
            unsafe { self.write_value(value) };
            return self;
        }
        let entry = Entry::new(self.key(), value, self.far_deadline_ms(), self.clock());
        // SAFETY: ours to free, and not used again.
        unsafe { self.free() };
        entry
    }

    /// Another value under the same key, type, deadlines of fields and clock.
    ///
    /// # Safety
    /// As [`Entry::replace_value`].
    #[must_use]
    pub unsafe fn with_content(self, content: Stored) -> Entry {
        let fields = self.has_fields();
        // SAFETY: as our own contract.
        let entry = unsafe { self.replace_value(content) };
        entry.set_fields(fields);
        entry
    }

    /// Changes the length of a string that is kept as bytes; new bytes are zero, the value counts as raw from now on.
    ///
    /// # Safety
    /// The old pointer must not be used afterwards.
    #[must_use]
    pub unsafe fn resize_value(self, new_len: usize) -> Entry {
        debug_assert!(self.is_string());
        let len = self.lengths().1;
        // SAFETY: as our own contract.
        let entry = unsafe { self.resize(new_len) };
        entry.set_header(entry.header() | RAW);
        if new_len > len {
            // SAFETY: inside the capacity just made.
            unsafe { write_bytes(entry.at(entry.key_offset() + entry.lengths().0 + len), 0, new_len - len) };
        }
        entry
    }

    /// Replaces a part of a packed collection.
    ///
    /// # Safety
    /// The old pointer must not be used afterwards. `with` must not point into the entry.
    #[must_use]
    pub unsafe fn splice(self, at: Range<usize>, with: &[u8]) -> Entry {
        debug_assert!(self.packed().is_some());
        let len = self.lengths().1;
        assert!(at.start <= at.end && at.end <= len, "a part of the value");
        let (new_len, behind) = (len - at.len() + with.len(), at.start + with.len());
        let move_tail = |entry: Entry| {
            let value = entry.key_offset() + entry.lengths().0;
            // SAFETY: both are inside the value, before it shrinks or after it has grown.
            unsafe { copy(entry.at(value + at.end), entry.at(value + behind), len - at.end) };
        };
        // SAFETY: as our own contract; what is moved and written is inside the value.
        unsafe {
            if new_len < len {
                move_tail(self);
            }
            let entry = if new_len == len { self } else { self.resize(new_len) };
            if new_len > len {
                move_tail(entry);
            }
            let value = entry.key_offset() + entry.lengths().0;
            copy_nonoverlapping(with.as_ptr(), entry.at(value + at.start), with.len());
            entry
        }
    }

    /// Changes the length of a value that is kept as bytes; new bytes are not written.
    ///
    /// # Safety
    /// The old pointer must not be used afterwards.
    unsafe fn resize(self, new_len: usize) -> Entry {
        debug_assert_eq!(self.header() & INT, 0);
        let (key_len, len, capacity) = self.lengths();
        let header = self.header();
        let entry = if header & WIDE != 0 && new_len <= capacity {
            self
        } else if header & WIDE == 0 && new_len < NARROW_VALUE_BYTES {
            let offset = self.key_offset();
            // SAFETY: allocated with this layout; the new size is not zero.
            let pointer = unsafe {
                realloc(self.0.as_ptr(), layout(self.allocated_bytes()), layout(offset + key_len + new_len).size())
            };
            let Some(pointer) = NonNull::new(pointer) else { handle_alloc_error(layout(new_len)) };
            Entry(pointer)
        } else {
            let capacity = new_len + (new_len / 8).max(WIDE_SPARE_BYTES.min(new_len));
            let entry = Entry::allocate(key_len, len, capacity, self.far_deadline_ms(), self.clock());
            entry.set_header(entry.header() | header & OF_VALUE);
            // SAFETY: both have room for the key and as much of the value as stays.
            unsafe {
                let kept = len.min(new_len);
                copy_nonoverlapping(self.at(self.key_offset()), entry.at(entry.key_offset()), key_len + kept);
                self.free();
            }
            entry
        };
        entry.set_value_len(new_len);
        entry
    }

    fn set_value_len(self, len: usize) {
        let header = self.header();
        if header & WIDE == 0 {
            self.set_header(header & ((1 << VALUE_SHIFT) - 1) | (len as u64) << VALUE_SHIFT);
        } else {
            let key_len = self.lengths().0 as u64;
            // SAFETY: a wide entry's second word.
            unsafe { self.0.cast::<u64>().add(1).write(key_len | (len as u64) << 32) };
        }
    }

    /// The bytes of a value that is not an integer, to change in place.
    ///
    /// # Safety
    /// No other reference to the value may be alive.
    pub unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        debug_assert_eq!(self.header() & INT, 0);
        let (key, value, _) = self.lengths();
        // SAFETY: as in `stored`, exclusive by the contract.
        unsafe { std::slice::from_raw_parts_mut(self.at(self.key_offset() + key), value) }
    }

    /// Gives the entry room for an exact deadline, or takes it away; the pointer may change.
    ///
    /// # Safety
    /// The old pointer must not be used afterwards.
    #[must_use]
    pub unsafe fn with_far_deadline(self, deadline_ms: Option<u64>) -> Entry {
        match (self.header() & FAR != 0, deadline_ms) {
            (true, Some(deadline_ms)) => {
                // SAFETY: the word before the key.
                unsafe { self.at(self.key_offset() - 8).cast::<u64>().write(deadline_ms) };
                self
            }
            (false, None) => self,
            _ => {
                let (key_len, len, capacity) = self.lengths();
                let entry = Entry::allocate(key_len, len, capacity, deadline_ms, self.clock());
                entry.set_header(entry.header() | self.header() & OF_VALUE);
                // SAFETY: both have room for key and value.
                unsafe {
                    copy_nonoverlapping(self.at(self.key_offset()), entry.at(entry.key_offset()), key_len + len);
                    self.free();
                }
                entry
            }
        }
    }
}

fn layout(bytes: usize) -> Layout {
    // Lengths are bounded by the protocol's limits (far below isize::MAX).
    Layout::from_size_align(bytes, 8).expect("an entry's size fits the address space")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(key: &[u8], value: &[u8], far: Option<u64>) {
        let entry = Entry::new(key, Value::of(value), far, 77);
        assert_eq!(entry.key(), key);
        assert_eq!(entry.value(), Value::of(value));
        assert_eq!(entry.far_deadline_ms(), far);
        assert_eq!(entry.clock(), 77);
        // SAFETY: each pointer is given up as it is replaced.
        unsafe {
            let entry = entry.with_far_deadline(Some(9));
            assert_eq!((entry.key(), entry.value()), (key, Value::of(value)));
            assert_eq!(entry.far_deadline_ms(), Some(9));
            let entry = entry.with_far_deadline(None);
            assert_eq!((entry.key(), entry.value(), entry.clock()), (key, Value::of(value), 77));
            let entry = entry.replace_value(Value::Bytes(b"other"));
            assert_eq!((entry.key(), entry.value()), (key, Value::Bytes(b"other")));
            entry.free();
        }
    }

    #[test]
    fn entries_of_all_shapes_keep_what_they_are_given() {
        let long_key = vec![b'k'; 5000];
        let long_value = vec![b'v'; (1 << 20) + 3];
        for key in [&b""[..], b"k", b"0123456789abcdef", &long_key] {
            for value in [&b""[..], b"12", b"-9223372036854775808", b"text", &long_value] {
                for far in [None, Some(u64::MAX / 2)] {
                    round_trip(key, value, far);
                }
            }
        }
    }

    #[test]
    fn a_value_grows_across_the_narrow_limit_and_shrinks() {
        let mut entry = Entry::new(b"key", Value::Bytes(b"ab"), Some(5), 1);
        let mut expected = b"ab".to_vec();
        let far_beyond = if cfg!(miri) { (1 << 20) + 9 } else { (3 << 20) + 1 };
        for len in [2usize, 3, 100, (1 << 20) - 1, 1 << 20, (1 << 20) + 5, far_beyond, 10] {
            // SAFETY: the pointer is replaced each time.
            unsafe { entry = entry.resize_value(len) };
            expected.resize(len, 0);
            assert_eq!(entry.value(), Value::Bytes(&expected));
            assert_eq!((entry.key(), entry.far_deadline_ms()), (&b"key"[..], Some(5)));
            assert!(entry.is_raw());
        }
        // SAFETY: last use.
        unsafe { entry.free() };
    }
}
