//! Collections that stand outside of their keys' entries, and what is given back in slices: they, when their keys are
//! gone, and flushed databases.

use crate::table::block::SLOT_BYTES;
use crate::table::{Dict, Entry, FieldsSwept, Kind, Large, Next, Stored, Table, Value};
use crate::value::hash::Hash;
use crate::value::list::List;
use crate::value::pack::Element;
use crate::value::set::Set;
use crate::value::stream::Stream;
use crate::value::zset::Zset;
use crate::value::{Node, NodeType, elements};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

#[derive(Default)]
pub(super) struct Nodes {
    /// Bytes of those in use.
    pub bytes: usize,
    /// Bytes of those that are not.
    garbage_bytes: usize,
    /// The oldest comes first, and is freed whole before the next one.
    garbage: VecDeque<Garbage>,
    /// What a snapshot has not written yet waits for it here.
    unwritten: VecDeque<Garbage>,
    /// Databases that were flushed and still have memory to give back; the first one is being freed.
    tables: VecDeque<Table>,
    tables_bytes: usize,
    /// The last slice was one of a database's, so that the next one is a collection's.
    is_tables_turn: bool,
    /// Keys of those, and of the garbage.
    pub garbage_keys: usize,
}

/// A node that nobody uses any more. A snapshot that shows it piece by piece may still point at it.
struct Garbage(NonNull<dyn Node>);

impl Deref for Garbage {
    type Target = dyn Node;

    fn deref(&self) -> &(dyn Node + 'static) {
        // SAFETY: the node is there until this is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Garbage {
    fn deref_mut(&mut self) -> &mut (dyn Node + 'static) {
        // SAFETY: the same, and whoever else points at it uses it at other times.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for Garbage {
    fn drop(&mut self) {
        // SAFETY: it comes from the box of a node, whose owner this is.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A node that is no larger is freed at once.
const SMALL_BYTES: usize = 8 * 1024;

/// What a pointer to a node of a kind points at.
pub(super) fn node_at(kind: Kind, node: NonNull<u8>) -> NonNull<dyn Node> {
    match kind {
        Kind::Hash => node.cast::<Hash>() as NonNull<dyn Node>,
        Kind::Zset => node.cast::<Zset>(),
        Kind::List => node.cast::<List>(),
        Kind::Set => node.cast::<Set>(),
        Kind::Stream => node.cast::<Stream>(),
        _ => unreachable!("strings are no nodes"),
    }
}

/// The box of a node behind a pointer.
///
/// # Safety
/// The pointer comes from the box of a node of that kind; nothing else may use it afterwards.
unsafe fn box_of(kind: Kind, node: NonNull<u8>) -> Box<dyn Node> {
    // SAFETY: by the contract.
    unsafe { Box::from_raw(node_at(kind, node).as_ptr()) }
}

impl Nodes {
    /// Takes over the nodes whose entries are gone.
    #[inline]
    pub fn adopt(&mut self, table: &mut Table) {
        if table.has_orphans() {
            self.take_orphans(table, true);
        }
    }

    #[cold]
    fn take_orphans(&mut self, table: &mut Table, in_use: bool) {
        for (kind, node) in table.take_orphans() {
            // An orphan has no entry any more, and is handed out once.
            let node = Garbage(node_at(kind, node));
            let bytes = node.bytes();
            if in_use {
                self.bytes -= bytes;
            }
            if bytes > SMALL_BYTES || node.is_saved() {
                self.garbage_bytes += bytes;
                if node.is_saved() { &mut self.unwritten } else { &mut self.garbage }.push_back(node);
                self.garbage_keys += 1;
            }
        }
    }

    /// Takes over a database that was flushed.
    pub fn take_table(&mut self, table: Table) {
        self.garbage_keys += table.len();
        self.tables_bytes += table.bytes();
        self.tables.push_back(table);
    }

    pub fn all_bytes(&self) -> usize {
        self.bytes + self.garbage_bytes()
    }

    /// Whether there is something to free. (A snapshot writes in the order in which it found the nodes, about: the oldest of those
    /// that it has not written tells of the others.)
    #[inline]
    pub fn has_garbage(&self) -> bool {
        !self.garbage.is_empty() || !self.tables.is_empty() || self.has_written()
    }

    fn has_written(&self) -> bool {
        self.unwritten.front().is_some_and(|node| !node.is_saved())
    }

    /// Bytes of what nobody uses any more, those included that a snapshot still writes.
    pub fn garbage_bytes(&self) -> usize {
        self.garbage_bytes + self.tables_bytes
    }

    /// Frees about `limit` entries or elements; how many keys are done with.
    pub fn collect(&mut self, limit: usize) -> usize {
        let mut keys = 0;
        while self.has_written()
            && let Some(node) = self.unwritten.pop_front()
        {
            self.garbage.push_back(node);
        }
        self.is_tables_turn = !self.is_tables_turn && !self.tables.is_empty();
        if let Some(node) = self.garbage.front_mut().filter(|_| !self.is_tables_turn) {
            let before = node.bytes();
            let done = node.free_some(limit);
            self.garbage_bytes = (self.garbage_bytes + node.bytes()).saturating_sub(before);
            if done && let Some(node) = self.garbage.pop_front() {
                self.garbage_bytes = self.garbage_bytes.saturating_sub(node.bytes());
                keys = 1;
            }
        } else if let Some(mut table) = self.tables.pop_front() {
            self.tables_bytes -= table.bytes();
            let (freed, more) = table.dismantle(limit);
            keys = freed;
            self.take_orphans(&mut table, true);
            if more {
                self.tables_bytes += table.bytes();
                self.tables.push_front(table);
            }
        }
        self.garbage_keys -= keys;
        keys
    }

    /// Bytes that an entry's node holds.
    pub fn bytes_of(&self, entry: Entry) -> usize {
        // SAFETY: an entry's node is in use.
        entry.node().map_or(0, |node| unsafe { node_at(entry.kind(), node).as_ref() }.bytes())
    }

    /// Bytes of key and value, as MEMORY USAGE counts them: what is kept elsewhere and their slot of the table included.
    pub fn bytes_of_key(&self, entry: Entry) -> usize {
        entry.bytes() + self.bytes_beside(entry)
    }

    /// A key as it is, for who is told before it changes.
    pub(super) fn was<'e>(&self, entry: Entry<'e>, deadline_ms: Option<u64>) -> Was<'e> {
        Was { content: entry.content(), deadline_ms, bytes: self.bytes_of_key(entry) }
    }

    /// Those of them that are not in the entry.
    pub fn bytes_beside(&self, entry: Entry) -> usize {
        SLOT_BYTES + self.bytes_of(entry)
    }

    /// The elements of an entry's node, where they are in a dictionary.
    #[inline]
    pub fn dict_of(&self, entry: Entry<'_>) -> Option<&Dict> {
        // SAFETY: an entry's node is in use, and nobody changes it while the books of all are borrowed.
        entry.node().and_then(|node| unsafe { node_at(entry.kind(), node).as_ref() }.dict())
    }

    /// Takes dead fields out of a hash, or dead members out of a set; `died` is told of their names and deadlines.
    pub fn sweep_fields(
        &mut self,
        entry: Entry,
        before_ms: u64,
        now_ms: u64,
        limit: usize,
        died: impl FnMut(Element, u64),
    ) -> FieldsSwept {
        let before = self.bytes_of(entry);
        let mut swept = elements::sweep(entry, before_ms, now_ms, limit, died);
        let after = self.bytes_of(entry);
        self.bytes = self.bytes + after - before;
        let is_gone = swept.next == Next::Empty;
        swept.bytes = if is_gone { self.bytes_beside(entry) + before - after } else { before.saturating_sub(after) };
        swept
    }
}

/// A key before it changes.
pub(super) struct Was<'k> {
    pub content: Stored<'k>,
    /// Store milliseconds.
    pub deadline_ms: Option<u64>,
    /// See [`Nodes::bytes_of_key`].
    pub bytes: usize,
}

/// A value on its way from one key to another, perhaps on another shard.
pub enum Owned {
    Int(i64),
    Bytes { bytes: Vec<u8>, raw: bool },
    Large(Large),
    Packed { kind: Kind, marked: bool, bytes: Vec<u8> },
    Node(Box<dyn Node>),
}

impl Owned {
    pub fn node(node: impl NodeType) -> Owned {
        Owned::Node(Box::new(node))
    }

    pub fn kind(&self) -> Kind {
        match self {
            Owned::Int(_) | Owned::Bytes { .. } | Owned::Large(_) => Kind::String,
            Owned::Packed { kind, .. } => *kind,
            Owned::Node(node) => node.kind(),
        }
    }

    pub(super) fn copy_of(entry: Entry) -> Owned {
        if let Some(large) = Large::copy_of(entry) {
            return Owned::Large(large);
        }
        match entry.content() {
            Stored::String(Value::Int(n)) => Owned::Int(n),
            Stored::String(Value::Bytes(bytes)) => Owned::Bytes { bytes: bytes.to_vec(), raw: entry.is_raw() },
            Stored::Packed(kind, marked, bytes) => Owned::Packed { kind, marked, bytes: bytes.to_vec() },
            // SAFETY: an entry's node is in use.
            Stored::Node(kind, node) => Owned::Node(unsafe { node_at(kind, node).as_ref() }.boxed_clone()),
        }
    }

    /// The caller gives the node up.
    pub(super) fn of_node(kind: Kind, node: NonNull<u8>) -> Owned {
        // SAFETY: an entry's node is in use, and the caller forgets it.
        Owned::Node(unsafe { box_of(kind, node) })
    }

    /// Shows the value as an entry would keep it.
    pub fn show<R>(&self, to: impl FnOnce(Stored) -> R) -> R {
        match self {
            Owned::Int(n) => to(Stored::String(Value::Int(*n))),
            Owned::Bytes { bytes, .. } => to(Stored::String(Value::Bytes(bytes))),
            Owned::Large(large) => to(Stored::String(Value::Bytes(large.bytes()))),
            Owned::Packed { kind, marked, bytes } => to(Stored::Packed(*kind, *marked, bytes)),
            Owned::Node(node) => to(Stored::Node(node.kind(), NonNull::from(&**node).cast())),
        }
    }

    /// Bytes of the value.
    pub fn bytes(&self) -> usize {
        match self {
            Owned::Int(_) => size_of::<i64>(),
            Owned::Bytes { bytes, .. } | Owned::Packed { bytes, .. } => bytes.len(),
            Owned::Large(large) => large.bytes().len(),
            Owned::Node(node) => node.bytes(),
        }
    }

    /// Gives the value away as an entry keeps it: whoever gets it owns the node, if it is one.
    pub(super) fn give<R>(self, to: impl FnOnce(Stored) -> R) -> R {
        match self {
            Owned::Int(n) => to(Stored::String(Value::Int(n))),
            Owned::Bytes { bytes, .. } => to(Stored::String(Value::Bytes(&bytes))),
            Owned::Large(large) => to(Stored::String(Value::Bytes(large.bytes()))),
            Owned::Packed { kind, marked, bytes } => to(Stored::Packed(kind, marked, &bytes)),
            Owned::Node(node) => {
                let kind = node.kind();
                // The entry writes through this pointer, so it comes from the box and not from a reference to the node.
                to(Stored::Node(kind, NonNull::from(Box::leak(node)).cast()))
            }
        }
    }

    /// The length of a string that counts as raw.
    pub(super) fn raw_bytes(&self) -> Option<usize> {
        match self {
            Owned::Bytes { bytes, raw: true } => Some(bytes.len()),
            _ => None,
        }
    }

    pub(super) fn node_bytes(&self) -> usize {
        match self {
            Owned::Node(node) => node.bytes(),
            _ => 0,
        }
    }
}

impl Clone for Owned {
    fn clone(&self) -> Owned {
        match self {
            Owned::Int(n) => Owned::Int(*n),
            Owned::Large(large) => Owned::Large(large.clone()),
            Owned::Bytes { bytes, raw } => Owned::Bytes { bytes: bytes.clone(), raw: *raw },
            Owned::Packed { kind, marked, bytes } => {
                Owned::Packed { kind: *kind, marked: *marked, bytes: bytes.clone() }
            }
            Owned::Node(node) => Owned::Node(node.boxed_clone()),
        }
    }
}
