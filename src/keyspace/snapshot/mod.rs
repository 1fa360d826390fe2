//! All that there is, to be written down as of one moment while it goes on changing, and put back.
//!
//! From that moment on a walk goes through the databases, in the order of positions, which no split or merge changes. What it
//! has not come to is written down before it changes for the first time, and the walk passes over it: every edit begins with
//! `KeyEdit::open`, which sees to that. So nothing is copied but what changes, each key at most once.
//!
//! Keys are written one at a time, and large values in parts (`large.rs`), so that no step takes long: what the walk finds
//! long, or one thing too much for its step, is put aside and written in its turn.
//!
//! What dies meanwhile is written down, too: a log and a replica hear of commands behind that moment which have read it.

mod large;
#[cfg(test)]
mod tests;

use super::groups::Groups;
use super::nodes::node_at;
use super::pins::Pins;
use super::{Keyspace, Kind, Membership, Owned, Span, Stored};
use crate::clock::Now;
use crate::table::block::NEVER_MS;
use crate::table::hash::{Key, spread};
use crate::table::{Changed, Hasher, Table, Value};
use crate::value::{Portion, hash, set, zset};
use ahash::RandomState;
use large::{Large, Source};
use std::collections::{HashSet, VecDeque};
use std::ptr::NonNull;

/// Of one block no more is written in one step than this, beside its last value.
const STEP_BYTES: usize = 128 << 10;
/// A string that is longer is written in parts.
const TEXT_BYTES: usize = 1 << 20;
/// What is written of a long string at a time.
const PART_BYTES: usize = 256 << 10;

/// A key as a snapshot has it.
pub struct Kept<'a> {
    pub key: &'a [u8],
    pub content: Stored<'a>,
    /// Store milliseconds. It may have passed: that the key has died is still to be told.
    pub deadline_ms: Option<u64>,
    /// It is never evicted.
    pub is_pinned: bool,
    /// Where it is in groups.
    pub membership: Option<Membership>,
}

/// Bytes that writing a key down is about, where it is not a collection of its own.
fn bytes_of(key: &[u8], content: Stored) -> usize {
    let value = match content {
        Stored::String(Value::Bytes(bytes)) | Stored::Packed(_, _, bytes) => bytes.len(),
        Stored::String(Value::Int(_)) | Stored::Node(..) => 0,
    };
    key.len() + value
}

/// What is written of a value in parts beside them.
#[derive(Debug, Default)]
pub struct Frame {
    /// Where each part names it.
    pub key: Vec<u8>,
    pub head: Vec<u8>,
    pub foot: Vec<u8>,
    /// No field's deadline is before this, where there are any: milliseconds since 1970.
    pub earliest_ms: Option<u64>,
}

/// What a part of a value consists of.
pub enum Part<'a> {
    /// These bytes as they are.
    Bytes(&'a [u8]),
    Portion(Portion<'a>),
}

/// Shows what a part consists of; whether there are more parts.
pub type Fill<'f> = dyn FnMut(&mut dyn FnMut(Part)) -> bool + 'f;

/// What is kept of keys beside the tables.
#[derive(Clone, Copy)]
pub(super) struct KeptBeside<'a> {
    pub pins: Option<&'a Pins>,
    pub groups: Option<&'a Groups>,
}

impl KeptBeside<'_> {
    fn kept<'k>(self, db: usize, key: &'k [u8], content: Stored<'k>, deadline_ms: Option<u64>) -> Kept<'k> {
        let is_pinned = self.pins.is_some_and(|pins| pins.has(db, key));
        let membership = self.groups.and_then(|groups| groups.saved_membership(db, key));
        Kept { key, content, deadline_ms, is_pinned, membership }
    }
}

/// Whoever writes down what a database has.
pub trait Keeper {
    /// A group of keys that has a deadline or a stream. Of one name they come in the order in which they had it, and all but the
    /// last before any key.
    fn group(&mut self, db: usize, name: &[u8], span: &Span);
    fn key(&mut self, db: usize, kept: Kept);
    /// Whether a long string can be written in parts.
    fn parts_strings(&self) -> bool;
    /// What stands before and behind the portions of a value, as it is at this moment.
    fn frame(&self, db: usize, kept: &Kept) -> Frame;
    /// Appends a portion of it.
    fn encode(&self, frame: &Frame, portion: Portion, out: &mut Vec<u8>);
    /// A key comes in parts, of which this is the next one; there may be other keys between them. Whether there are more.
    fn part(&mut self, db: usize, frame: &Frame, fill: &mut Fill) -> bool;
}

/// A snapshot that is made.
pub struct Saving {
    /// Everything before this database, and in it before this position, was written down or put aside.
    at: (usize, u64),
    /// What has changed behind that since the moment, of each database.
    changed: Vec<Changed>,
    /// Keys that were put aside, in the order in which they are written.
    aside: VecDeque<(usize, Box<[u8]>)>,
    /// Those among them that have not changed since, and the string that is being written in parts.
    waiting: HashSet<Name, RandomState>,
    /// Values that are written in parts, one after the other.
    large: VecDeque<Large>,
    keeper: Box<dyn Keeper>,
    dead_before: Now,
    /// A database was emptied, or has another number now: what it had can not be written down any more.
    is_void: bool,
}

/// A database and a key, by two hashes.
type Name = (usize, u64, u64);

/// What is under a key that is going to change, and its deadline.
type Before<'a> = (Stored<'a>, Option<u64>);

/// How far a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    Some,
    All,
    /// It has to begin anew.
    Void,
}

impl Saving {
    fn new(dbs: &[Table], dead_before: Now, keeper: Box<dyn Keeper>) -> Saving {
        Saving {
            at: (0, 0),
            changed: dbs.iter().map(|db| Changed::among(db.len())).collect(),
            aside: VecDeque::new(),
            waiting: HashSet::default(),
            large: VecDeque::new(),
            keeper,
            dead_before,
            is_void: false,
        }
    }

    /// A key is about to change, to come, or to go, since it is dead for one.
    #[cold]
    #[inline(never)]
    pub(super) fn before_change(&mut self, db: usize, hash: u64, key: &[u8], was: Option<Before>, beside: KeptBeside) {
        if self.is_void {
            return;
        }
        if (db, spread(hash)) < self.at {
            if self.waiting.is_empty() || !self.waiting.remove(&self.name(db, hash, key)) {
                return;
            }
        } else if !self.changed[db].insert(hash, key) {
            return;
        }
        if let Some((content, deadline_ms)) = was
            && !self.copy_rest(db, key, content)
        {
            self.keep(db, beside.kept(db, key, content, deadline_ms), true);
        }
    }

    /// A collection is about to be taken elsewhere.
    #[cold]
    pub(super) fn before_leaving(&mut self, node: NonNull<u8>) {
        let keeper = &*self.keeper;
        self.large.iter_mut().for_each(|large| large.copy_node(node, keeper));
    }

    pub(super) fn void(&mut self) {
        self.detach();
        self.is_void = true;
        self.changed.clear();
        self.waiting = HashSet::default();
        self.aside = VecDeque::new();
    }

    /// Collections are shown no more.
    fn detach(&mut self) {
        self.large.drain(..).for_each(|large| large.detach());
    }

    fn name(&self, db: usize, hash: u64, key: &[u8]) -> Name {
        (db, hash, self.waiting.hasher().hash_one(key))
    }

    /// Writes a key down, or the first part of it. One that is going to change is copied where it is long.
    fn keep(&mut self, db: usize, kept: Kept, changes: bool) {
        if is_dead(kept.content, self.dead_before) {
            return;
        }
        if let Stored::Node(kind, node) = kept.content {
            let mut node = node_at(kind, node);
            // SAFETY: an entry's node is in use, and nobody else uses it at this moment.
            if unsafe { node.as_mut() }.begin_saving() {
                let frame = self.keeper.frame(db, &kept);
                return self.large.push_back(Large::new(db, frame, Source::Node(node)));
            }
        }
        match kept.content {
            Stored::String(Value::Bytes(bytes)) if bytes.len() > TEXT_BYTES && self.keeper.parts_strings() => {
                let source = if changes { Source::Bytes(bytes.to_vec()) } else { Source::Text(kept.key.into()) };
                let frame = self.keeper.frame(db, &kept);
                self.large.push_back(Large::new(db, frame, source));
            }
            _ => self.keeper.key(db, kept),
        }
    }

    /// Whether a part of this string was written; the rest is copied then.
    fn copy_rest(&mut self, db: usize, key: &[u8], content: Stored) -> bool {
        self.large.front_mut().is_some_and(|large| large.copy_text(db, key, content))
    }

    /// Writes a part of what comes in parts; whether there was any.
    fn write_large(&mut self, dbs: &[Table], hasher: &Hasher) -> bool {
        let Some(large) = self.large.front_mut() else { return false };
        let text = |db: usize, key: &[u8]| {
            let table = &dbs[db];
            table.find(hasher.key(key)).map(|slot| table.entry(slot).content())
        };
        let is_last = large.write(&mut *self.keeper, text);
        if is_last == Some(true)
            && let Some(large) = self.large.pop_front()
        {
            if let Source::Text(key) = large.source() {
                self.waiting.remove(&self.name(large.db(), hasher.hash(key), key));
            }
            large.detach();
        }
        if is_last.is_none() {
            self.void();
        }
        true
    }

    /// Writes a key that was put aside; whether there was any.
    fn write_aside(&mut self, dbs: &[Table], hasher: &Hasher, beside: KeptBeside) -> bool {
        let Some((db, bytes)) = self.aside.pop_front() else { return false };
        let (key, table) = (hasher.key(&bytes), &dbs[db]);
        let name = self.name(db, key.hash, &bytes);
        // What is not there any more was written when it went.
        if let Some(slot) = table.find(key)
            && self.waiting.contains(&name)
        {
            let (content, deadline_ms) = (table.entry(slot).content(), table.deadline_ms(slot));
            self.keep(db, beside.kept(db, &bytes, content, deadline_ms), false);
            if self.large.back().is_some_and(|large| large.is_text(db, &bytes)) {
                return true;
            }
        }
        self.waiting.remove(&name);
        true
    }

    /// Writes a block, or puts aside what would take too long; whether there was any.
    fn walk(&mut self, dbs: &[Table], hasher: &Hasher, beside: KeptBeside) -> bool {
        let (db, position) = self.at;
        let Some(table) = dbs.get(db) else { return false };
        let mut bytes = 0;
        let next = table.walk(position, NEVER_MS, |block, slot| {
            let entry = block.entry(slot);
            let (key, deadline_ms) = (entry.key(), block.deadline_ms(slot));
            if self.changed[db].contains(|| hasher.hash(key), key) {
                return;
            }
            let content = entry.content();
            let is_node = matches!(content, Stored::Node(..));
            bytes += bytes_of(key, content);
            if is_node || bytes > STEP_BYTES {
                self.waiting.insert(self.name(db, hasher.hash(key), key));
                self.aside.push_back((db, key.into()));
            } else {
                self.keep(db, beside.kept(db, key, content, deadline_ms), false);
            }
        });
        self.changed[db].forget_before(next.unwrap_or(u64::MAX));
        self.at = next.map_or((db + 1, 0), |next| (db, next));
        true
    }
}

/// A collection all of whose elements had died before a moment.
fn is_dead(content: Stored, moment: Now) -> bool {
    match content.kind() {
        Kind::Hash => !hash::View::of(content).any_lives(moment.ms),
        Kind::Set => set::View::of(content, moment.ms).is_empty(),
        Kind::Zset => zset::View::of(content, moment.ms).is_empty(),
        _ => false,
    }
}

impl Keyspace {
    /// What is there now is written down from now on, with [`Keyspace::save_some`], whatever becomes of it: all but collections
    /// whose elements have all died before `dead_before`.
    pub fn begin_saving(&mut self, moment: Now, dead_before: Now, mut keeper: Box<dyn Keeper>) {
        self.effects
            .groups
            .iter_mut()
            .for_each(|groups| groups.begin_saving(moment, |db, name, span| keeper.group(db, name, span)));
        self.effects.set_saving(Box::new(Saving::new(&self.dbs, dead_before, keeper)));
    }

    /// Writes down some, as long as `goes_on` says; a little at the least.
    pub fn save_some(&mut self, mut goes_on: impl FnMut() -> bool) -> Saved {
        let Some(mut saving) = self.effects.take_saving() else { return Saved::All };
        let (dbs, hasher) = (&self.dbs, &self.hasher);
        while !saving.is_void {
            let effects = &mut self.effects;
            let keeper = &mut saving.keeper;
            let shows_groups =
                |groups: &mut Box<Groups>| groups.save_some(|db, name, span| keeper.group(db, name, span));
            if !effects.groups.as_mut().is_some_and(shows_groups) {
                let beside = KeptBeside { pins: effects.pins.as_deref(), groups: effects.groups.as_deref() };
                let wrote = saving.write_large(dbs, hasher)
                    || saving.write_aside(dbs, hasher, beside)
                    || saving.walk(dbs, hasher, beside);
                if !wrote {
                    effects.end_moment();
                    return Saved::All;
                }
            }
            if !goes_on() {
                self.effects.set_saving(saving);
                return Saved::Some;
            }
        }
        Saved::Void
    }

    /// Whether a snapshot is being made that somebody wants.
    pub fn is_saving(&self) -> bool {
        self.effects.saving().is_some_and(|saving| !saving.is_void)
    }

    /// It is not to be completed.
    pub fn give_up_saving(&mut self) {
        self.effects.void_saving();
    }

    /// Nobody wants the rest.
    pub fn stop_saving(&mut self) {
        if let Some(mut saving) = self.effects.take_saving() {
            saving.detach();
        }
        self.effects.end_moment();
    }

    /// Whether a field of a hash has a deadline.
    pub fn has_field_deadlines(&self) -> bool {
        self.dbs.iter().any(|db| db.with_fields() > 0)
    }

    /// Whether there is such a key, dead or alive.
    pub fn has_entry(&self, db: usize, key: Key) -> bool {
        self.dbs[db].find(key).is_some()
    }

    /// Puts a key back that a snapshot has; nobody is told. What was under that key is gone.
    pub fn put_back(
        &mut self,
        db: usize,
        key: Key,
        value: Owned,
        deadline_ms: Option<u64>,
        clock: Option<u32>,
        now: Now,
    ) {
        self.insert_owned(db, key, value, deadline_ms, now);
        if let (Some(slot), Some(clock)) = (self.dbs[db].find(key), clock) {
            self.live(db, slot, now, key.hash).set_clock(clock);
        }
    }

    /// To be called between commands, when keys were put back: nobody hears of them.
    pub fn end_putting_back(&mut self) {
        self.effects.close_all();
        drop(self.effects.take());
    }
}
