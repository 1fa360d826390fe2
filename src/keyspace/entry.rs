//! One key with its value: header, key and small value in a single allocation behind a thin pointer.
//!
//! ```text
//!  u64 header   0..24 access clock (LRU or LFU) | 24..28 type | 28 int | 29 raw | 30 wide | 31 far
//!               32..44 key length | 44..64 value length
//!  u64, u64     only when wide: key length and value length (u32 each), capacity of the value in bytes
//!  u64          only when far: the exact deadline, store milliseconds
//!  key bytes, value bytes
//! ```
//!
//! An entry is narrow while its key is shorter than 4 KiB and its value shorter than 1 MiB. A narrow entry has no
//! spare room of its own (the allocator's size classes make repeated growth cheap enough); a wide one carries a
//! capacity, so that appending to a huge value does not copy it each time.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ptr::{NonNull, copy, copy_nonoverlapping, write_bytes};

const KIND_SHIFT: u32 = 24;
const INT: u64 = 1 << 28;
const RAW: u64 = 1 << 29;
const WIDE: u64 = 1 << 30;
const FAR: u64 = 1 << 31;
const CLOCK_MASK: u64 = (1 << 24) - 1;
const KEY_SHIFT: u32 = 32;
const VALUE_SHIFT: u32 = 44;
const NARROW_KEY_BYTES: usize = 1 << 12;
const NARROW_VALUE_BYTES: usize = 1 << 20;
/// Wide values get this much room beyond their length (or an eighth of it) when they grow.
const WIDE_SPARE_BYTES: usize = 1 << 20;

/// The type of a value, as `TYPE` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    String = 0,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
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

impl Value<'_> {
    /// The form in which bytes are kept: integers as such.
    #[inline]
    pub fn of(bytes: &[u8]) -> Value<'_> {
        match bytes.first() {
            Some(b'0'..=b'9' | b'-') if bytes.len() <= 20 => match crate::value::number::parse_i64(bytes) {
                Some(n) => Value::Int(n),
                None => Value::Bytes(bytes),
            },
            _ => Value::Bytes(bytes),
        }
    }

    fn stored_bytes(&self) -> usize {
        match self {
            Value::Int(_) => 8,
            Value::Bytes(bytes) => bytes.len(),
        }
    }
}

/// An owning thin pointer; freed by [`Entry::free`], not by drop, since blocks keep it inside tagged words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry(NonNull<u8>);

impl Entry {
    pub fn new(key: &[u8], value: Value, far_deadline_ms: Option<u64>, clock: u32) -> Entry {
        let stored = value.stored_bytes();
        let entry = Entry::allocate(key.len(), stored, stored, far_deadline_ms, clock);
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
        let stored = self.stored();
        if self.header() & INT != 0 {
            return Value::Int(i64::from_le_bytes(stored.try_into().expect("an integer is 8 bytes")));
        }
        Value::Bytes(stored)
    }

    #[inline]
    pub fn kind(self) -> Kind {
        debug_assert_eq!(self.header() >> KIND_SHIFT & 0xf, Kind::String as u64);
        Kind::String
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
    unsafe fn write_value(self, value: Value) {
        let (key, len, _) = self.lengths();
        let target = self.at(self.key_offset() + key);
        debug_assert_eq!(len, value.stored_bytes());
        match value {
            Value::Int(n) => {
                self.set_header(self.header() | INT);
                // SAFETY: 8 bytes by the contract.
                unsafe { copy_nonoverlapping(n.to_le_bytes().as_ptr(), target, 8) };
            }
            Value::Bytes(bytes) => {
                self.set_header(self.header() & !INT);
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
    pub unsafe fn replace_value(self, value: Value) -> Entry {
        let (_, len, capacity) = self.lengths();
        self.set_header(self.header() & !RAW);
        if len == value.stored_bytes() && len == capacity {
            // SAFETY: same length.
            unsafe { self.write_value(value) };
            return self;
        }
        let entry = Entry::new(self.key(), value, self.far_deadline_ms(), self.clock());
        // SAFETY: ours to free, and not used again.
        unsafe { self.free() };
        entry
    }

    /// Changes the length of a value that is kept as bytes; new bytes are zero, the value counts as raw from now on.
    ///
    /// # Safety
    /// The old pointer must not be used afterwards.
    #[must_use]
    pub unsafe fn resize_value(self, new_len: usize) -> Entry {
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
            let capacity = new_len + (new_len / 8).max(WIDE_SPARE_BYTES);
            let entry = Entry::allocate(key_len, len, capacity, self.far_deadline_ms(), self.clock());
            // SAFETY: both have room for the key and `len` bytes of value.
            unsafe {
                copy_nonoverlapping(self.at(self.key_offset()), entry.at(entry.key_offset()), key_len + len);
                self.free();
            }
            entry
        };
        entry.set_value_len(new_len);
        entry.set_header(entry.header() | RAW);
        if new_len > len {
            // SAFETY: inside the capacity just made.
            unsafe { write_bytes(entry.at(entry.key_offset() + key_len + len), 0, new_len - len) };
        }
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
                let keep = INT | RAW | 0xf << KIND_SHIFT;
                entry.set_header(entry.header() | self.header() & keep);
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
        for len in [2usize, 3, 100, (1 << 20) - 1, 1 << 20, (1 << 20) + 5, (3 << 20) + 1, 10] {
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
