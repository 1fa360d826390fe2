//! One key with its value, in bytes that lie anywhere: in the heap of a block ([`super::block`]), or in an allocation of
//! their own ([`super::whole`]).
//!
//! ```text
//!  u32     0..24 access clock (LRU or LFU) | 24..27 type; 6, 7: a hash, a set that is looked at for its fields; 7 with
//!          the mark: a sorted set that is | 27 int or node | 28 raw or marked | 29 far | 30..32 form
//!  short   key length u8, value length u8
//!  long    u32: key length in 12 bits, value length in 20
//!  wide    key length u32, value length u32, capacity u64
//!  u64     only when far: the exact deadline, store milliseconds
//!  key bytes, value bytes
//!
//!  stub    u64: form 3 and an address: the entry is elsewhere
//! ```
//!
//! The form follows from the lengths. Nothing is aligned. A wide entry, which has an allocation of its own, carries a
//! capacity, so that appending to a huge value does not copy it each time.
//!
//! A collection is *packed*, its bytes standing where a string's would (*marked* is a bit for its type to use), or a
//! *node*: eight bytes that are the address of whatever the rooms above keep there. An entry does not own its node.
//!
//! A hash whose fields have deadlines, or a set or sorted set whose members have, has a type of its own here: its block's column then
//! says when the cycle has to look at it, and the key's own deadline, where it has one, stands in the far word. (In this
//! room members with deadlines are called fields, too.)

use std::marker::PhantomData;
use std::ptr::{NonNull, copy_nonoverlapping};

const CLOCK_MASK: u32 = (1 << 24) - 1;
const KIND_SHIFT: u32 = 24;
const KIND_MASK: u32 = 0b111 << KIND_SHIFT;
/// In the place of a hash's type, and of a set's. No other type has both of these bits.
const WITH_FIELDS: u32 = 6 << KIND_SHIFT;
const SET_WITH_FIELDS: u32 = 7 << KIND_SHIFT;
/// In the place of a sorted set's type. Sets and sorted sets with deadlines are nodes, which have no mark of their own.
const ZSET_WITH_FIELDS: u32 = SET_WITH_FIELDS | MARKED;
const INT: u32 = 1 << 27;
/// The same bit: strings are no nodes.
const NODE: u32 = INT;
const RAW: u32 = 1 << 28;
/// The same bit, of collections.
const MARKED: u32 = RAW;
const FAR: u32 = 1 << 29;
/// What belongs to the value, not to the place it is in.
const OF_VALUE: u32 = KIND_MASK | INT | RAW;

const FORM_SHIFT: u32 = 30;
const SHORT: u32 = 0;
const LONG: u32 = 1;
const WIDE: u32 = 2;
const STUB: u32 = 3;
/// Bytes in front of the far word, or of the key.
const HEADER_BYTES: [usize; 3] = [6, 8, 20];
const FAR_BYTES: usize = 8;
const SHORT_MAX: usize = u8::MAX as usize;
const LONG_KEY_BITS: u32 = 12;
const LONG_KEY_MAX: usize = (1 << LONG_KEY_BITS) - 1;
const LONG_VALUE_MAX: usize = (1 << (32 - LONG_KEY_BITS)) - 1;

/// Wide values get this much room beyond their length (or an eighth of it, or once more while they are short) when
/// they grow.
const WIDE_SPARE_BYTES: usize = 1 << 20;

/// Bytes of a stub.
pub const STUB_BYTES: usize = 8;
/// The address's bits below the form, in a stub.
const STUB_LOW: u64 = (1 << FORM_SHIFT) - 1;

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

    /// The bits of a header of this type whose fields are looked at.
    fn with_fields(self) -> u32 {
        match self {
            Kind::Set => SET_WITH_FIELDS,
            Kind::Zset => ZSET_WITH_FIELDS,
            _ => WITH_FIELDS,
        }
    }

    #[inline]
    fn of_header(header: u32) -> Kind {
        match (header & KIND_MASK) >> KIND_SHIFT {
            1 => Kind::List,
            2 => Kind::Set,
            7 if header & MARKED == 0 => Kind::Set,
            3 | 7 => Kind::Zset,
            4 | 6 => Kind::Hash,
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

impl Value<'_> {
    /// The text of the value.
    pub fn to_vec(self) -> Vec<u8> {
        match self {
            Value::Int(n) => n.to_string().into_bytes(),
            Value::Bytes(bytes) => bytes.to_vec(),
        }
    }
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
    pub(super) fn len(&self) -> usize {
        match self {
            Stored::String(Value::Int(_)) | Stored::Node(..) => 8,
            Stored::String(Value::Bytes(bytes)) | Stored::Packed(_, _, bytes) => bytes.len(),
        }
    }

    /// The bits of the header that say what it is.
    #[inline]
    fn bits(&self) -> u32 {
        match *self {
            Stored::String(Value::Int(_)) => INT,
            Stored::String(Value::Bytes(_)) => 0,
            Stored::Packed(kind, marked, _) => (kind as u32) << KIND_SHIFT | if marked { MARKED } else { 0 },
            Stored::Node(kind, _) => (kind as u32) << KIND_SHIFT | NODE,
        }
    }
}

/// An entry to read from.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    at: NonNull<u8>,
    of: PhantomData<&'a [u8]>,
}

impl<'a> Entry<'a> {
    /// The entry in these bytes, or the one that the stub there stands for.
    ///
    /// # Safety
    /// An entry or a stub is there, and stays as it is (but for its clock) as long as the lifetime says.
    #[inline]
    pub unsafe fn at(at: NonNull<u8>) -> Entry<'a> {
        // SAFETY: by the contract.
        match unsafe { whole_of(at) } {
            Some(whole) => Entry { at: whole, of: PhantomData },
            None => Entry { at, of: PhantomData },
        }
    }

    #[inline]
    fn byte(self, offset: usize) -> *mut u8 {
        // SAFETY: callers stay within the entry.
        unsafe { self.at.as_ptr().add(offset) }
    }

    #[inline]
    fn header(self) -> u32 {
        // SAFETY: an entry starts with its header.
        unsafe { self.at.cast::<u32>().read_unaligned() }
    }

    #[inline]
    fn set_header(self, header: u32) {
        // SAFETY: as above; nobody else reads it meanwhile, since entries do not leave their thread.
        unsafe { self.at.cast::<u32>().write_unaligned(header) }
    }

    #[inline]
    fn key_offset(self) -> usize {
        let header = self.header();
        HEADER_BYTES[(header >> FORM_SHIFT) as usize % 3] + if header & FAR != 0 { FAR_BYTES } else { 0 }
    }

    /// Lengths of key and value, and the value's capacity.
    #[inline]
    fn lengths(self) -> (usize, usize, usize) {
        // SAFETY: the lengths stand behind the header, as the form says.
        unsafe {
            match self.header() >> FORM_SHIFT {
                SHORT => {
                    let value = self.byte(5).read() as usize;
                    (self.byte(4).read() as usize, value, value)
                }
                LONG => {
                    let lengths = self.byte(4).cast::<u32>().read_unaligned() as usize;
                    let value = lengths >> LONG_KEY_BITS;
                    (lengths & LONG_KEY_MAX, value, value)
                }
                _ => {
                    let lengths = self.byte(4).cast::<[u32; 2]>().read_unaligned();
                    let capacity = self.byte(12).cast::<u64>().read_unaligned();
                    (lengths[0] as usize, lengths[1] as usize, capacity as usize)
                }
            }
        }
    }

    /// Bytes of the entry: header, key, value and spare room.
    #[inline]
    pub fn bytes(self) -> usize {
        let (key, _, capacity) = self.lengths();
        self.key_offset() + key + capacity
    }

    /// How much longer the value may grow where it is.
    pub fn spare_bytes(self) -> usize {
        let (_, value, capacity) = self.lengths();
        capacity - value
    }

    #[inline]
    pub fn key(self) -> &'a [u8] {
        // SAFETY: the key's bytes were written when the entry was.
        unsafe { std::slice::from_raw_parts(self.byte(self.key_offset()), self.lengths().0) }
    }

    #[inline]
    pub(super) fn stored(self) -> &'a [u8] {
        let (key, value, _) = self.lengths();
        // SAFETY: as in `key`.
        unsafe { std::slice::from_raw_parts(self.byte(self.key_offset() + key), value) }
    }

    #[inline]
    pub fn value(self) -> Value<'a> {
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

    /// A string whose value takes so many bytes, with nothing to spare.
    #[inline]
    pub(super) fn is_string_of(self, len: usize) -> bool {
        let (_, value, capacity) = self.lengths();
        self.is_string() && value == len && capacity == len
    }

    /// Puts another string in the place of one that takes as many bytes.
    ///
    /// # Safety
    /// No other reference to the value may be alive, nor may the new one be part of it.
    #[inline]
    pub(super) unsafe fn overwrite(self, value: Value) {
        let value = Stored::String(value);
        debug_assert!(self.is_string_of(value.len()));
        self.set_header(self.header() & !OF_VALUE | value.bits());
        // SAFETY: by the contract.
        unsafe { write_value(&value, self.value_at()) };
    }

    /// The value, whatever it is.
    pub fn content(self) -> Stored<'a> {
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
    pub fn packed(self) -> Option<&'a [u8]> {
        (self.header() & NODE == 0 && !self.is_string()).then(|| self.stored())
    }

    /// The mark of a packed collection.
    #[inline]
    pub fn is_marked(self) -> bool {
        self.header() & MARKED != 0
    }

    pub(super) fn set_marked(self, marked: bool) {
        debug_assert!(self.packed().is_some());
        self.set_header(self.header() & !MARKED | if marked { MARKED } else { 0 });
    }

    /// Whether the block's column speaks of the fields of a hash, or the members of a set or a sorted set, too.
    #[inline]
    pub fn has_fields(self) -> bool {
        self.header() & WITH_FIELDS == WITH_FIELDS
    }

    pub(super) fn set_fields(self, has_fields: bool) {
        let kind = self.kind();
        debug_assert!(matches!(kind, Kind::Hash) || self.node().is_some() && matches!(kind, Kind::Set | Kind::Zset));
        let bits = if has_fields { kind.with_fields() } else { (kind as u32) << KIND_SHIFT };
        let mask = if kind == Kind::Zset { KIND_MASK | MARKED } else { KIND_MASK };
        self.set_header(self.header() & !mask | bits);
    }

    /// Whether the value was changed in place (APPEND, SETRANGE), which `OBJECT ENCODING` calls raw.
    pub fn is_raw(self) -> bool {
        self.header() & RAW != 0
    }

    #[inline]
    pub fn far_deadline_ms(self) -> Option<u64> {
        (self.header() & FAR != 0).then(|| {
            // SAFETY: a far entry keeps its deadline in front of the key.
            unsafe { self.byte(self.key_offset() - FAR_BYTES).cast::<u64>().read_unaligned() }
        })
    }

    #[inline]
    pub fn clock(self) -> u32 {
        self.header() & CLOCK_MASK
    }

    #[inline]
    pub fn set_clock(self, clock: u32) {
        self.set_header(self.header() & !CLOCK_MASK | clock & CLOCK_MASK);
    }

    /// Where it is in memory.
    #[inline]
    pub fn address(self) -> u64 {
        self.at.as_ptr() as u64
    }

    /// How the entry would be laid out.
    #[inline]
    pub(super) fn plan(self) -> Plan {
        let (key_len, value_len, capacity) = self.lengths();
        let of_value = self.header() & (OF_VALUE | CLOCK_MASK);
        Plan { header: of_value, far: self.far_deadline_ms(), key_len, value_len, spare: capacity - value_len }
    }

    /// The bytes of the value, to change in place.
    ///
    /// # Safety
    /// No other reference to the value may be alive.
    #[inline]
    pub(super) unsafe fn stored_mut(self) -> &'a mut [u8] {
        let (key, value, _) = self.lengths();
        // SAFETY: as in `stored`, exclusive by the contract.
        unsafe { std::slice::from_raw_parts_mut(self.byte(self.key_offset() + key), value) }
    }

    /// How far in it the value begins.
    #[inline]
    pub(super) fn value_offset(self) -> usize {
        self.key_offset() + self.lengths().0
    }

    /// Where the value's bytes begin, room behind them included.
    #[inline]
    pub(super) fn value_at(self) -> *mut u8 {
        self.byte(self.value_offset())
    }
}

/// The next of jemalloc's size classes: four to each doubling.
pub(super) fn size_class(bytes: usize) -> usize {
    bytes.next_multiple_of((1 << (bytes - 1).max(1).ilog2().saturating_sub(2)).max(1))
}

/// How an entry is laid out, before its bytes are there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Clock, type and bits of the value.
    pub(super) header: u32,
    pub far: Option<u64>,
    pub(super) key_len: usize,
    pub value_len: usize,
    /// Room behind the value; only where it is wide.
    pub spare: usize,
}

impl Plan {
    #[inline]
    pub fn new(key_len: usize, value: &Stored, clock: u32) -> Plan {
        let header = clock & CLOCK_MASK | value.bits();
        Plan { header, far: None, key_len, value_len: value.len(), spare: 0 }
    }

    /// The same key with another value.
    #[inline]
    pub fn with_value(self, value: &Stored) -> Plan {
        Plan { header: self.header & CLOCK_MASK | value.bits(), value_len: value.len(), spare: 0, ..self }
    }

    /// As a collection that is looked at for its fields, or not.
    pub fn with_fields(self, has_fields: bool) -> Plan {
        let bits = Kind::of_header(self.header).with_fields();
        if has_fields { Plan { header: self.header & !KIND_MASK | bits, ..self } } else { self }
    }

    /// The same value under the key, and with the deadline and the clock, of another.
    pub fn with_key_of(self, other: Plan) -> Plan {
        let header = other.header & CLOCK_MASK | self.header & OF_VALUE;
        Plan { header, far: other.far, key_len: other.key_len, ..self }
    }

    /// A string that is wide however long its key is.
    pub fn is_large_string(&self) -> bool {
        self.header & KIND_MASK == 0 && self.value_len > LONG_VALUE_MAX
    }

    pub fn raw(self) -> Plan {
        Plan { header: self.header | RAW, ..self }
    }

    #[inline]
    fn form(&self) -> u32 {
        if self.key_len <= SHORT_MAX && self.value_len + self.spare <= SHORT_MAX {
            SHORT
        } else if self.is_wide() {
            WIDE
        } else {
            LONG
        }
    }

    #[inline]
    pub fn is_wide(&self) -> bool {
        self.key_len > LONG_KEY_MAX || self.value_len + self.spare > LONG_VALUE_MAX
    }

    /// Values that grow past what an entry of the usual forms holds get room to grow on.
    pub fn grown(self) -> Plan {
        if self.is_wide() {
            Plan { spare: (self.value_len / 8).max(WIDE_SPARE_BYTES.min(self.value_len)), ..self }
        } else {
            self
        }
    }

    /// What the allocator gives beyond what was asked for is room of a large value, which then grows without being copied.
    pub fn filled(self) -> Plan {
        if self.value_len <= LONG_VALUE_MAX {
            return self;
        }
        let bytes = self.bytes();
        Plan { spare: self.spare + size_class(bytes) - bytes, ..self }
    }

    #[inline]
    pub fn value_offset(&self) -> usize {
        self.key_offset() + self.key_len
    }

    #[inline]
    fn key_offset(&self) -> usize {
        HEADER_BYTES[self.form() as usize] + if self.far.is_some() { FAR_BYTES } else { 0 }
    }

    /// Bytes of the entry.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.key_offset() + self.key_len + self.value_len + self.spare
    }

    /// Writes everything but key and value.
    ///
    /// # Safety
    /// There are [`Plan::bytes`] at the address, which are the caller's.
    #[inline]
    pub unsafe fn write<'a>(&self, at: NonNull<u8>) -> Entry<'a> {
        let form = self.form();
        let entry = Entry { at, of: PhantomData };
        entry.set_header(self.header | form << FORM_SHIFT | if self.far.is_some() { FAR } else { 0 });
        let (key, value) = (self.key_len as u32, self.value_len as u32);
        // SAFETY: all of it is in front of the key.
        unsafe {
            match form {
                SHORT => entry.byte(4).cast::<[u8; 2]>().write_unaligned([key as u8, value as u8]),
                LONG => entry.byte(4).cast::<u32>().write_unaligned(key | value << LONG_KEY_BITS),
                _ => {
                    entry.byte(4).cast::<[u32; 2]>().write_unaligned([key, value]);
                    entry.byte(12).cast::<u64>().write_unaligned((self.value_len + self.spare) as u64);
                }
            }
            if let Some(deadline_ms) = self.far {
                entry.byte(self.key_offset() - FAR_BYTES).cast::<u64>().write_unaligned(deadline_ms);
            }
        }
        entry
    }

    /// Writes everything but the value, whose place it returns.
    ///
    /// # Safety
    /// As [`Plan::write`]; the key, which is as long as planned, is not part of those bytes.
    #[inline]
    pub unsafe fn write_key(&self, at: NonNull<u8>, key: &[u8]) -> *mut u8 {
        debug_assert_eq!(key.len(), self.key_len);
        // SAFETY: by the contract.
        unsafe {
            let key_at = self.write(at).byte(self.key_offset());
            copy_nonoverlapping(key.as_ptr(), key_at, key.len());
            key_at.add(key.len())
        }
    }
}

/// Writes a value to where an entry keeps it.
///
/// # Safety
/// There is room, and the value is not part of it.
#[inline]
pub(super) unsafe fn write_value(value: &Stored, at: *mut u8) {
    // SAFETY: by the contract.
    unsafe {
        match *value {
            Stored::String(Value::Int(n)) => at.cast::<i64>().write_unaligned(n.to_le()),
            Stored::Node(_, node) => at.cast::<usize>().write_unaligned((node.as_ptr() as usize).to_le()),
            Stored::String(Value::Bytes(bytes)) | Stored::Packed(_, _, bytes) => {
                copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
            }
        }
    }
}

/// Where the entry is for which a stub stands; nothing where the entry itself is there.
///
/// # Safety
/// An entry or a stub is at the address.
#[inline]
pub(super) unsafe fn whole_of(at: NonNull<u8>) -> Option<NonNull<u8>> {
    // SAFETY: both begin with four bytes that tell them apart; a stub has eight.
    unsafe {
        if at.cast::<u32>().read_unaligned() >> FORM_SHIFT != STUB {
            return None;
        }
        let stub = at.cast::<u64>().read_unaligned();
        NonNull::new((stub & STUB_LOW | stub >> 32 << FORM_SHIFT) as *mut u8)
    }
}

/// Writes a stub.
///
/// # Safety
/// There are [`STUB_BYTES`] at the address.
#[inline]
pub(super) unsafe fn write_stub(at: NonNull<u8>, whole: NonNull<u8>) {
    let address = whole.as_ptr() as u64;
    let stub = address & STUB_LOW | (STUB as u64) << FORM_SHIFT | address >> FORM_SHIFT << 32;
    // SAFETY: by the contract.
    unsafe { at.cast::<u64>().write_unaligned(stub) }
}
