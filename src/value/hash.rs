//! Hashes: fields with values, some of them with deadlines.
//!
//! ```text
//!  packed          count u16 | (field value)*
//!  packed, marked  count u16 | earliest u64 | (field value deadline u64)*      some fields have deadlines
//!  Hash            a Dict of fields
//! ```
//! Deadlines are store milliseconds, [`NEVER_MS`] where there is none. `earliest` is not later than the earliest of
//! them. A field whose deadline has passed may still stand there; whoever reads says what the time is.

use super::pack::{self, Buffer, Element, Encoded, Item, Out};
use super::{Node, NodeType, Portion};
use crate::table::{Dict, Entry, FieldsSwept, Kind, NEVER_MS, Next, Stored, Value};

const EARLIEST_AT: usize = pack::COUNT_BYTES;
const DEADLINE_BYTES: usize = 8;
/// One field of a marked pack.
const TIMED: Item = Item { elements: 2, raw_bytes: DEADLINE_BYTES };

/// The packed form of a hash without fields.
pub const EMPTY: &[u8] = &[0, 0];

/// A hash that is not packed.
#[derive(Clone, Default)]
pub struct Hash {
    pub fields: Dict,
}

impl NodeType for Hash {
    const KIND: Kind = Kind::Hash;
}

impl Node for Hash {
    fn kind(&self) -> Kind {
        Kind::Hash
    }

    fn bytes(&self) -> usize {
        size_of::<Hash>() + self.fields.bytes()
    }

    fn free_some(&mut self, budget: usize) -> bool {
        self.fields.free_some(budget)
    }

    fn boxed_clone(&self) -> Box<dyn Node> {
        Box::new(self.clone())
    }

    fn dict(&self) -> Option<&Dict> {
        Some(&self.fields)
    }

    fn begin_saving(&mut self) -> bool {
        self.fields.begin_saving()
    }

    fn save_some(&mut self, to: &mut dyn FnMut(Portion)) -> bool {
        self.fields.save_some(&mut |name, value, deadline_ms| to(Portion::Field(name, value, deadline_ms)))
    }

    fn stop_saving(&mut self) {
        self.fields.stop_saving();
    }

    fn is_saved(&self) -> bool {
        self.fields.is_saved()
    }
}

/// A hash, to read from.
#[derive(Clone, Copy)]
pub enum View<'a> {
    Packed(&'a [u8]),
    /// With deadlines.
    Marked(&'a [u8]),
    Dict(&'a Dict),
}

/// A field with all that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Field<'a> {
    pub name: Element<'a>,
    pub value: Element<'a>,
    pub deadline_ms: u64,
}

impl Field<'_> {
    #[inline]
    pub fn is_dead(&self, now_ms: u64) -> bool {
        self.deadline_ms < now_ms
    }
}

/// A string value as an element.
#[inline]
pub fn element(value: Value) -> Element {
    match value {
        Value::Int(n) => Element::Int(n),
        Value::Bytes(bytes) => Element::Bytes(bytes),
    }
}

impl<'a> View<'a> {
    /// The hash that is kept like this.
    pub fn of(content: Stored<'a>) -> View<'a> {
        match content {
            Stored::Packed(Kind::Hash, marked, bytes) => View::packed(bytes, marked),
            // SAFETY: the node of a hash is a `Hash`, and lives as long as its entry, from which the content is borrowed.
            Stored::Node(Kind::Hash, node) => View::Dict(unsafe { &node.cast::<Hash>().as_ref().fields }),
            _ => unreachable!("it is a hash"),
        }
    }

    #[inline]
    pub fn packed(bytes: &'a [u8], marked: bool) -> View<'a> {
        if marked { View::Marked(bytes) } else { View::Packed(bytes) }
    }

    /// The field, dead or alive.
    #[inline]
    pub fn get(self, name: &[u8]) -> Option<Field<'a>> {
        match self {
            View::Packed(bytes) => Some(read(bytes, find(bytes, false, name)?, false).0),
            View::Marked(bytes) => Some(read(bytes, find(bytes, true, name)?, true).0),
            View::Dict(dict) => dict.get_with_deadline(name).map(of_dict),
        }
    }

    /// Fields, dead ones included.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            View::Packed(bytes) | View::Marked(bytes) => pack::count(bytes),
            View::Dict(dict) => dict.len(),
        }
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub fn count_dead(self, now_ms: u64) -> usize {
        if self.earliest_ms() >= now_ms {
            return 0;
        }
        match self {
            View::Dict(dict) => dict.count_dead(now_ms),
            _ => self.iter().filter(|field| field.is_dead(now_ms)).count(),
        }
    }

    /// Whether a field is alive: found soon, unless nearly all are dead.
    pub fn any_lives(self, now_ms: u64) -> bool {
        match self {
            View::Dict(dict) => dict.any_lives(now_ms),
            _ => self.iter().any(|field| !field.is_dead(now_ms)),
        }
    }

    /// Fields that are alive.
    #[inline]
    pub fn live_len(self, now_ms: u64) -> usize {
        self.len() - self.count_dead(now_ms)
    }

    /// Not later than the earliest deadline.
    #[inline]
    pub fn earliest_ms(self) -> u64 {
        match self {
            View::Packed(_) => NEVER_MS,
            View::Marked(bytes) => u64::from_le_bytes(pack::raw(bytes, EARLIEST_AT)),
            View::Dict(dict) => dict.earliest_ms(),
        }
    }

    /// All fields, dead ones included.
    pub fn iter(self) -> impl Iterator<Item = Field<'a>> {
        let (packed, dict) = match self {
            View::Packed(bytes) => (Some(Fields { bytes, at: first(false), marked: false }), None),
            View::Marked(bytes) => (Some(Fields { bytes, at: first(true), marked: true }), None),
            View::Dict(dict) => (None, Some(dict.iter_with_deadlines().map(of_dict))),
        };
        packed.into_iter().flatten().chain(dict.into_iter().flatten())
    }
}

fn of_dict((entry, deadline_ms): (Entry<'_>, Option<u64>)) -> Field<'_> {
    let value = element(entry.value());
    Field { name: Element::Bytes(entry.key()), value, deadline_ms: deadline_ms.unwrap_or(NEVER_MS) }
}

/// A field in a dictionary.
pub fn dict_field(entry: Entry<'_>, deadline_ms: Option<u64>) -> Field<'_> {
    of_dict((entry, deadline_ms))
}

struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    marked: bool,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let (field, next) = read(self.bytes, self.at, self.marked);
        self.at = next;
        Some(field)
    }
}

/// Where the first field of a pack is.
fn first(marked: bool) -> usize {
    EARLIEST_AT + if marked { DEADLINE_BYTES } else { 0 }
}

fn item(marked: bool) -> Item {
    if marked { TIMED } else { Item::PAIR }
}

#[inline]
fn find(bytes: &[u8], marked: bool, name: &[u8]) -> Option<usize> {
    pack::find(bytes, first(marked), item(marked), &Element::of(name).encoded())
}

/// The field at an offset, and where the next one is.
#[inline]
fn read(bytes: &[u8], at: usize, marked: bool) -> (Field<'_>, usize) {
    let (name, next) = pack::read(bytes, at);
    let (value, next) = pack::read(bytes, next);
    if !marked {
        return (Field { name, value, deadline_ms: NEVER_MS }, next);
    }
    let deadline_ms = u64::from_le_bytes(pack::raw(bytes, next));
    (Field { name, value, deadline_ms }, next + DEADLINE_BYTES)
}

/// Sets a field of a pack; a deadline it had is cleared unless it is to be kept. Returns whether the field is new.
#[inline]
pub fn pack_set(buffer: &mut impl Buffer, marked: bool, name: &[u8], value: &[u8], keep_deadline: bool) -> bool {
    let name = Element::of(name).encoded();
    let bytes = buffer.bytes();
    let Some(at) = pack::find(bytes, first(marked), item(marked), &name) else {
        let end = bytes.len();
        let mut field = name;
        Element::of(value).encode(&mut field);
        if marked {
            field.put(&NEVER_MS.to_le_bytes());
        }
        buffer.splice(end..end, &field);
        pack::add_count(buffer, 1);
        return true;
    };
    let value_at = at + name.len();
    let value_end = value_at + pack::len_at(bytes, value_at);
    buffer.splice(value_at..value_end, &Element::of(value).encoded());
    if marked && !keep_deadline {
        let value_end = value_at + pack::len_at(buffer.bytes(), value_at);
        buffer.write(value_end, &NEVER_MS.to_le_bytes());
    }
    false
}

/// Takes a field out of a pack; what it was.
pub fn pack_remove(buffer: &mut impl Buffer, marked: bool, name: &[u8]) -> bool {
    let bytes = buffer.bytes();
    let Some(at) = find(bytes, marked, name) else { return false };
    let end = item(marked).next(bytes, at);
    buffer.splice(at..end, &[]);
    pack::add_count(buffer, -1);
    true
}

/// Sets the deadline of a field of a marked pack.
pub fn pack_set_deadline(buffer: &mut impl Buffer, name: &[u8], deadline_ms: u64) {
    let bytes = buffer.bytes();
    let Some(at) = find(bytes, true, name) else { return };
    let deadline_at = TIMED.next(bytes, at) - DEADLINE_BYTES;
    let earliest_ms = View::Marked(bytes).earliest_ms().min(deadline_ms);
    buffer.write(deadline_at, &deadline_ms.to_le_bytes());
    buffer.write(EARLIEST_AT, &earliest_ms.to_le_bytes());
}

/// A pack of these fields, and its mark.
pub fn packed<'a>(fields: impl Iterator<Item = Field<'a>> + Clone) -> (Encoded, bool) {
    let earliest_ms = fields.clone().map(|field| field.deadline_ms).min().unwrap_or(NEVER_MS);
    let marked = earliest_ms < NEVER_MS;
    (packed_as(fields, marked), marked)
}

/// A pack of these fields, with or without deadlines.
pub fn packed_as<'a>(fields: impl Iterator<Item = Field<'a>>, marked: bool) -> Encoded {
    let mut out = Encoded::from_slice(EMPTY);
    if marked {
        out.put(&NEVER_MS.to_le_bytes());
    }
    let (mut count, mut earliest_ms) = (0u16, NEVER_MS);
    for field in fields {
        count += 1;
        field.name.encode(&mut out);
        field.value.encode(&mut out);
        if marked {
            out.put(&field.deadline_ms.to_le_bytes());
            earliest_ms = earliest_ms.min(field.deadline_ms);
        }
    }
    out[..EARLIEST_AT].copy_from_slice(&count.to_le_bytes());
    if marked {
        out[EARLIEST_AT..EARLIEST_AT + DEADLINE_BYTES].copy_from_slice(&earliest_ms.to_le_bytes());
    }
    out
}

/// The same hash as a dictionary.
pub fn unpacked<'a>(fields: impl Iterator<Item = Field<'a>>, now_ms: u64) -> Hash {
    let mut hash = Hash::default();
    for field in fields {
        let name = field.name.to_vec();
        hash.fields.set(&name, value_of(field.value));
        if field.deadline_ms < NEVER_MS {
            hash.fields.set_deadline(&name, Some(field.deadline_ms), now_ms);
        }
    }
    hash
}

/// An element as a string value.
pub fn value_of(element: Element) -> Value {
    match element {
        Element::Int(n) => Value::Int(n),
        Element::Bytes(bytes) => Value::Bytes(bytes),
    }
}

/// Those fields of a packed hash whose deadlines are not before `before_ms`; `died` is told of the names and deadlines of
/// the others.
pub fn sweep_packed(view: View, before_ms: u64, mut died: impl FnMut(Element, u64)) -> FieldsSwept {
    view.iter().filter(|field| field.deadline_ms < before_ms).for_each(|field| died(field.name, field.deadline_ms));
    let kept = || view.iter().filter(|field| field.deadline_ms >= before_ms);
    let marked = kept().any(|field| field.deadline_ms < NEVER_MS);
    let bytes = packed_as(kept(), marked);
    let new = View::packed(&bytes, marked);
    let next = Next::of(new.is_empty(), new.earliest_ms());
    let deleted = view.len() - new.len();
    FieldsSwept { deleted, bytes: 0, packed: Some((marked, bytes.into_vec())), next }
}
