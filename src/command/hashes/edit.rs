//! Changing a hash: packed while it is small, a dictionary after that, and what its key has to know of its fields'
//! deadlines.

use crate::command::Ctx;
use crate::command::elements::ElementEdit;
use crate::config::PackLimits;
use crate::keyspace::{Change, Event, Key, KeyEdit, Kind, Live, NEVER_MS, Stored, Touch, Value};
use crate::resp::{Error, Result};
use crate::value::hash::{self, EMPTY, Field, Hash, View};
use crate::value::pack::has_room;

/// The live hash under a key; another type is an error.
pub fn find<'c>(ctx: &'c mut Ctx, key: Key, touch: Touch) -> Result<Option<Live<'c>>> {
    match ctx.keyspace.find(ctx.db, key, ctx.now, touch) {
        Some(live) if live.kind() != Kind::Hash => Err(Error::WrongType),
        found => Ok(found),
    }
}

/// The hash of a key, to read from.
pub fn view<'l>(live: &'l Live) -> View<'l> {
    View::of(live.content())
}

/// A hash that is being changed.
pub struct Edit<'c> {
    live: KeyEdit<'c>,
    limits: PackLimits,
    now_ms: u64,
}

impl<'c> Edit<'c> {
    /// The hash under a key, which is made where there is none.
    pub fn open_or_make(ctx: &'c mut Ctx, key: Key) -> Result<Edit<'c>> {
        let (limits, now) = (ctx.limits.hash, ctx.now);
        let empty = Stored::Packed(Kind::Hash, false, EMPTY);
        let live = ctx.keyspace.find_or_insert(ctx.db, key, empty, now, ctx.touch);
        if live.kind() != Kind::Hash {
            return Err(Error::WrongType);
        }
        Ok(Edit { live: live.edit(), limits, now_ms: now.ms })
    }

    /// The hash under a key, if there is one.
    pub fn open(ctx: &'c mut Ctx, key: Key) -> Result<Option<Edit<'c>>> {
        let (limits, now_ms, touch) = (ctx.limits.hash, ctx.now.ms, ctx.touch);
        Ok(find(ctx, key, touch)?.map(|live| Edit { live: live.edit(), limits, now_ms }))
    }

    pub fn view(&self) -> View<'_> {
        view(&self.live)
    }

    /// The field, where it is alive.
    pub fn get(&self, name: &[u8]) -> Option<Field<'_>> {
        self.view().get(name).filter(|field| !field.is_dead(self.now_ms))
    }

    /// Sets a field; whether it was not there, or dead. Its deadline is cleared, unless it is alive and keeps it.
    #[inline]
    pub fn set(&mut self, name: &[u8], value: &[u8], keep_deadline: bool) -> bool {
        if self.live.packed().is_some() && self.must_unpack(name, value) {
            self.unpack();
        }
        let marked = match self.live.packed() {
            Some(_) if !self.live.is_marked() => {
                let new = hash::pack_set(&mut self.live, false, name, value, false);
                self.unpack_long();
                return new;
            }
            Some(_) => true,
            None => false,
        };
        let has_deadlines = self.view().earliest_ms() < NEVER_MS;
        let found = if has_deadlines { self.view().get(name).map(|field| field.deadline_ms) } else { None };
        let was_dead = found.is_some_and(|deadline_ms| deadline_ms < self.now_ms);
        if was_dead {
            self.live.tell_dead_field(name);
        }
        let keep_deadline = keep_deadline && !was_dead;
        if marked {
            let new = hash::pack_set(&mut self.live, true, name, value, keep_deadline);
            self.unpack_long();
            return new || was_dead;
        }
        let now_ms = self.now_ms;
        let new = self.live.change_node(|hash: &mut Hash| {
            let new = hash.fields.set(name, Value::of(value));
            if !new && !keep_deadline && found.is_some_and(|deadline_ms| deadline_ms < NEVER_MS) {
                hash.fields.set_deadline(name, None, now_ms);
            }
            new
        });
        new == Some(true) || was_dead
    }

    fn must_unpack(&self, name: &[u8], value: &[u8]) -> bool {
        name.len() > self.limits.value_bytes
            || value.len() > self.limits.value_bytes
            || self.live.packed().is_some_and(|bytes| !has_room(bytes.len(), name.len() + value.len()))
    }

    /// After a field was set: more of them than may be packed?
    #[inline]
    fn unpack_long(&mut self) {
        if self.view().len() > self.limits.entries {
            self.unpack();
        }
    }

    #[cold]
    fn unpack(&mut self) {
        let hash = hash::unpacked(self.view().iter(), self.now_ms);
        self.live.promote(hash);
    }
}

impl ElementEdit for Edit<'_> {
    fn deadline_ms(&self, name: &[u8]) -> Option<u64> {
        self.get(name).map(|field| field.deadline_ms)
    }

    fn remove(&mut self, name: &[u8]) -> bool {
        let found = self.view().get(name).map(|field| field.is_dead(self.now_ms));
        if found == Some(true) {
            self.live.tell_dead_field(name);
        }
        let was_alive = found == Some(false);
        if self.live.packed().is_some() {
            let marked = self.live.is_marked();
            hash::pack_remove(&mut self.live, marked, name);
        } else {
            self.live.change_node(|hash: &mut Hash| hash.fields.remove(name));
        }
        was_alive
    }

    fn set_deadline(&mut self, name: &[u8], deadline_ms: Option<u64>) {
        if self.live.packed().is_none() {
            let now_ms = self.now_ms;
            self.live.change_node(|hash: &mut Hash| hash.fields.set_deadline(name, deadline_ms, now_ms));
            return;
        }
        if !self.live.is_marked() {
            if deadline_ms.is_none() {
                return;
            }
            let bytes = hash::packed_as(self.view().iter(), true);
            self.live.repack(&bytes, true);
        }
        hash::pack_set_deadline(&mut self.live, name, deadline_ms.unwrap_or(NEVER_MS));
    }

    fn close(mut self) -> bool {
        if self.view().is_empty() || !self.live.any_field_lives() {
            self.live.remove();
            return false;
        }
        self.live.renew_fields_deadline();
        true
    }
}

/// Fields were deleted, perhaps the last one and with it the key.
pub fn deleted(stays: bool) -> Change {
    Change::removal(Event::HDel, !stays)
}
