//! A live key: a view, to read from it, and an edit, to change it. Who changes it says so afterwards
//! (`Ctx::commit`).

use super::change::{Change, Event};
use super::clocking::{Clocked, access_clock};
use super::nodes::{Nodes, Owned};
use super::{Clocking, Effects};
use crate::clock::Now;
use crate::table::{Entry, Key, Kind, Large, Slot, Stored, Table, Value};
use crate::value::pack::Buffer;
use crate::value::{NodeType, elements};
use std::ops::{Deref, Range};
use std::ptr::NonNull;

/// One command of the journal, and one event, names no more dead elements than this.
const NAMES_AT_ONCE: usize = 1 << 15;

/// A live key to be read, until the next use of the keyspace.
pub struct Live<'a> {
    db: &'a mut Table,
    nodes: &'a mut Nodes,
    effects: &'a mut Effects,
    slot: Slot,
    now: Now,
    /// The database, and the key's hash.
    name: (usize, u64),
    clocked: Clocked,
}

/// A live key that is going to be changed.
pub struct KeyEdit<'a>(Live<'a>);

impl<'a> Live<'a> {
    #[inline]
    pub(super) fn new(
        (db, nodes, effects): (&'a mut Table, &'a mut Nodes, &'a mut Effects),
        slot: Slot,
        now: Now,
        name: (usize, u64),
        clocked: Clocked,
    ) -> Live<'a> {
        Live { db, nodes, effects, slot, now, name, clocked }
    }

    /// Changes it.
    #[inline]
    pub fn edit(self) -> KeyEdit<'a> {
        KeyEdit(self)
    }
}

impl<'a> Deref for KeyEdit<'a> {
    type Target = Live<'a>;

    #[inline]
    fn deref(&self) -> &Live<'a> {
        &self.0
    }
}

impl Live<'_> {
    #[inline]
    pub fn value(&self) -> Value<'_> {
        self.db.entry(self.slot).value()
    }

    /// The value, whatever it is.
    pub fn content(&self) -> Stored<'_> {
        self.entry().content()
    }

    /// The value, where it is a string.
    #[inline]
    pub fn string(&self) -> Option<Value<'_>> {
        let entry = self.entry();
        (entry.kind() == Kind::String).then(|| entry.value())
    }

    #[inline]
    pub fn kind(&self) -> Kind {
        self.db.entry(self.slot).kind()
    }

    /// Where the key and its value are in memory.
    pub fn address(&self) -> u64 {
        self.db.entry(self.slot).address()
    }

    /// Whether the value was changed in place, which `OBJECT ENCODING` shows.
    pub fn is_raw(&self) -> bool {
        self.db.entry(self.slot).is_raw()
    }

    /// The access clock: see [`Clocking`](super::Clocking).
    pub fn clock(&self) -> u32 {
        let clock = self.entry().clock();
        self.former_meaning().map_or(clock, |counts| Clocking::translated(clock, counts, self.now))
    }

    /// Where the key has its clock in the former meaning still: whether counts are the one that is wanted.
    fn former_meaning(&self) -> Option<bool> {
        match self.clocked {
            Clocked::MixedCounts if self.db.has_former_clock(self.name.1) => Some(true),
            Clocked::MixedUses if self.db.has_former_clock(self.name.1) => Some(false),
            _ => None,
        }
    }

    /// Seconds since the key was used last, or changed, if the clock says that.
    pub fn idle_s(&self) -> u32 {
        Clocking::idle_s(self.clock(), self.now)
    }

    /// Sets the access clock, which [`Clocking`] has made.
    pub fn set_clock(&self, clock: u32) {
        let kept = self.former_meaning().map_or(clock, |counts| Clocking::translated(clock, !counts, self.now));
        self.entry().set_clock(kept);
    }

    /// The moment as of which it is looked at.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.now.ms
    }

    #[inline]
    pub fn deadline_ms(&self) -> Option<u64> {
        self.db.deadline_ms(self.slot)
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        self.db.entry(self.slot)
    }

    /// The bytes of a packed collection.
    #[inline]
    pub fn packed(&self) -> Option<&[u8]> {
        self.entry().packed()
    }

    /// The mark of a packed collection, which its type gives a meaning.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.entry().is_marked()
    }

    /// A collection that is not packed, of this type.
    #[inline]
    pub fn node<T: NodeType>(&self) -> Option<&T> {
        let node = self.entry().node().filter(|_| self.kind() == T::KIND)?;
        // SAFETY: nodes of a kind are of its one type; this one lives as long as its entry, and `self` is borrowed.
        Some(unsafe { node.cast::<T>().as_ref() })
    }

    /// Whether a collection has an element that is alive.
    pub fn any_field_lives(&self) -> bool {
        !self.has_fields_deadline() || elements::any_lives(self.entry(), self.now.ms)
    }

    /// Whether the key is looked at for its fields, or its members.
    #[inline]
    pub fn has_fields_deadline(&self) -> bool {
        self.entry().has_fields()
    }

    /// A copy of the value.
    pub fn to_owned(&self) -> Owned {
        Owned::copy_of(self.entry())
    }

    /// Bytes of the one allocation of key and value, and how many of them are spare.
    pub fn entry_bytes(&self) -> (usize, usize) {
        (self.entry().bytes(), self.entry().spare_bytes())
    }

    /// Whether it is never evicted.
    pub fn is_pinned(&self) -> bool {
        self.effects.pins.as_ref().is_some_and(|pins| pins.has(self.name.0, self.entry().key()))
    }

    /// See [`Nodes::bytes_of_key`].
    pub fn bytes(&self) -> usize {
        self.nodes.bytes_of_key(self.entry())
    }
}

impl KeyEdit<'_> {
    /// Whoever changes it will say what has changed.
    #[inline]
    fn open(&mut self) {
        let ((db, hash), entry) = (self.0.name, self.0.db.entry(self.0.slot));
        let was = || Some(self.0.nodes.was(entry, self.0.db.deadline_ms(self.0.slot)));
        self.0.effects.save_first(db, hash, || entry.key(), was);
        self.0.effects.open(db, hash, || entry.key());
        if self.0.clocked == Clocked::Changes {
            entry.set_clock(access_clock(self.0.now));
        }
    }

    #[inline]
    pub fn set_deadline(&mut self, deadline_ms: Option<u64>) {
        self.open();
        self.0.slot = self.0.db.set_deadline(self.0.slot, deadline_ms, self.0.now.ms);
    }

    /// A new value, and with it a new deadline or none.
    #[inline]
    pub fn replace<'v>(mut self, value: impl Into<Stored<'v>> + Copy, deadline_ms: Option<u64>) {
        self.tell_dead_elements();
        if self.0.effects.tells_overwritten() {
            let entry = self.0.db.entry(self.0.slot);
            self.0.effects.overwritten(self.0.name.0, entry.key(), entry.kind(), value.into().kind());
        }
        self.set_value(value);
        if self.0.clocked == Clocked::Uses {
            self.entry().set_clock(access_clock(self.0.now));
        }
        self.set_deadline(deadline_ms);
    }

    /// A new value under the old deadline. The value must not be part of the old one (it borrows elsewhere).
    #[inline]
    pub fn set_value<'v>(&mut self, value: impl Into<Stored<'v>>) {
        self.open();
        self.0.slot = self.0.db.set_value(self.0.slot, value, self.0.now.ms);
        self.0.nodes.adopt(self.0.db);
    }

    /// Makes the value a byte string of this length, filled up with zeros, and hands it out to be written.
    pub fn resize(&mut self, len: usize) -> &mut [u8] {
        self.open();
        if let Value::Int(n) = self.value() {
            let text = n.to_string();
            self.set_value(Value::Bytes(text.as_bytes()));
        }
        self.0.slot = self.0.db.resize_value(self.0.slot, len);
        self.0.db.value_mut(self.0.slot)
    }

    /// Takes the key out.
    pub fn remove(mut self) {
        self.tell_dead_elements();
        self.leave();
    }

    /// The key goes, and with it what is kept of the key beside the tables.
    fn leave(mut self) {
        self.open();
        self.0.effects.departs(self.0.name.0, self.0.db.entry(self.0.slot).key());
        self.leave_table();
    }

    /// The key, which is open, goes from its table alone.
    fn leave_table(self) {
        let ((db, hash), entry) = (self.0.name, self.0.db.entry(self.0.slot));
        self.0.effects.goes_first(db, || Key { bytes: entry.key(), hash });
        self.0.db.remove(self.0.slot);
        self.0.nodes.adopt(self.0.db);
    }

    pub fn set_marked(&mut self, marked: bool) {
        self.open();
        self.0.db.set_marked(self.0.slot, marked);
    }

    /// Changes a collection that is not packed, and keeps the books of its bytes. `None` where it is another type's, or
    /// packed.
    #[inline]
    pub fn change_node<T: NodeType, R>(&mut self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let node = self.entry().node().filter(|_| self.kind() == T::KIND)?;
        self.open();
        // SAFETY: as in `node`, and `self` is borrowed mutably.
        let node = unsafe { node.cast::<T>().as_mut() };
        let before = node.bytes();
        let result = change(node);
        self.0.nodes.bytes = self.0.nodes.bytes + node.bytes() - before;
        Some(result)
    }

    /// The key's collection is kept behind a pointer from now on. The deadline stays; those of fields are the caller's.
    pub fn promote<T: NodeType>(&mut self, node: T) {
        self.open();
        self.0.nodes.bytes += node.bytes();
        let node = NonNull::from(Box::leak(Box::new(node))).cast();
        // What was packed is no node that would be lost.
        self.0.slot = self.0.db.set_content(self.0.slot, Stored::Node(T::KIND, node));
    }

    /// Packs a collection anew: the bytes and the mark. The deadline stays; those of fields are the caller's.
    pub fn repack(&mut self, bytes: &[u8], marked: bool) {
        self.open();
        let kind = self.kind();
        debug_assert!(self.packed().is_some());
        self.0.slot = self.0.db.set_content(self.0.slot, Stored::Packed(kind, marked, bytes));
    }

    /// The key is looked at when its first element dies from now on, where any has a deadline, and not any more where none
    /// has. That follows from them, and is no change.
    pub fn renew_fields_deadline(&mut self) {
        let earliest_ms = elements::earliest_ms(self.entry());
        if earliest_ms.is_some() || self.has_fields_deadline() {
            self.set_fields_deadline(earliest_ms);
        }
    }

    fn set_fields_deadline(&mut self, earliest_ms: Option<u64>) {
        self.0.slot = self.0.db.set_fields_deadline(self.0.slot, earliest_ms, self.0.now.ms);
    }

    /// A field or a member that has died before anybody took it out is about to go, or to come back.
    #[cold]
    pub fn tell_dead_field(&mut self, name: &[u8]) {
        let (db, entry) = (self.0.name.0, self.0.db.entry(self.0.slot));
        let (key, kind) = (entry.key(), entry.kind());
        if self.0.effects.is_journaled() {
            self.0.effects.said.fields_died(db, key, kind, &[name.to_vec()]);
        }
        self.0.effects.fields_expired += 1;
        let died = Event::of_dead_elements(kind);
        self.0.effects.name_elements(died, [name]);
        self.0.effects.record(db, key, Change::of(died).expired());
    }

    /// The value is about to go, and with it what is dead of its elements and was not found before.
    #[inline]
    fn tell_dead_elements(&mut self) {
        if self.0.db.with_fields() > 0 {
            tell_dead_elements(self.0.effects, self.0.name.0, self.0.db.entry(self.0.slot), self.0.now.ms);
        }
    }

    /// A large string takes the place of the one that is there.
    pub(super) fn put_large(&mut self, large: Large) {
        self.open();
        self.0.slot = self.0.db.put_large(self.0.slot, large);
    }

    /// What has to be said of a value that came from elsewhere and stands here now.
    pub(super) fn settle(&mut self, raw_bytes: Option<usize>) {
        if let Some(bytes) = raw_bytes {
            self.resize(bytes);
        }
        if elements::may_die(self.kind())
            && let Some(earliest_ms) = elements::earliest_ms(self.entry())
        {
            self.set_fields_deadline(Some(earliest_ms));
        }
    }

    /// Takes the key out and hands out its value, without copying a large one. (What is dead of the value's elements is to be taken
    /// out before: dead elements would be told of under another name.)
    pub fn take(mut self) -> Owned {
        let value = self.hand_out();
        self.leave();
        value
    }

    /// The same for a key that comes back: its pin and its groups wait for it.
    pub(super) fn take_aside(mut self) -> Owned {
        let value = self.hand_out();
        self.leave_table();
        value
    }

    fn hand_out(&mut self) -> Owned {
        self.open();
        match self.entry().node() {
            None => match self.0.db.take_large(self.0.slot) {
                Some(large) => Owned::Large(large),
                None => Owned::copy_of(self.entry()),
            },
            Some(node) => {
                self.0.effects.leaves(node);
                let value = Owned::of_node(self.kind(), node);
                self.0.nodes.bytes -= value.node_bytes();
                // The node has another owner now.
                let nothing = Stored::Packed(value.kind(), false, &[]);
                self.0.slot = self.0.db.set_content(self.0.slot, nothing);
                value
            }
        }
    }
}

impl Buffer for KeyEdit<'_> {
    fn bytes(&self) -> &[u8] {
        self.entry().packed().expect("a packed collection")
    }

    #[inline]
    fn splice(&mut self, at: Range<usize>, with: &[u8]) {
        self.open();
        self.0.slot = self.0.db.splice(self.0.slot, at, with);
    }

    #[inline]
    fn write(&mut self, at: usize, with: &[u8]) {
        self.open();
        self.0.db.value_mut(self.0.slot)[at..at + with.len()].copy_from_slice(with);
    }
}

/// (Of the edit only what this needs is handed over, so that an edit of what has no such elements stays in registers.)
#[cold]
#[inline(never)]
fn tell_dead_elements(effects: &mut Effects, db: usize, entry: Entry, now_ms: u64) {
    if !entry.has_fields() {
        return;
    }
    let (all, alive) = elements::counts(entry, now_ms);
    if all == alive {
        return;
    }
    let (key, kind) = (entry.key(), entry.kind());
    let died = Event::of_dead_elements(kind);
    effects.fields_expired += (all - alive) as u64;
    if !effects.is_journaled() && !effects.wants_elements(died) {
        effects.record(db, key, Change::of(died).times((all - alive) as u64).expired());
        return;
    }
    for names in elements::names_of_dead(entry, now_ms).chunks(NAMES_AT_ONCE) {
        if effects.is_journaled() {
            effects.said.fields_died(db, key, kind, names);
        }
        effects.name_elements(died, names);
        effects.record(db, key, Change::of(died).times(names.len() as u64).expired());
    }
}
