//! All that there is, to be written down, and put back.

use super::{Keyspace, Kind, Owned, Stored};
use crate::clock::Now;
use crate::table::block::NEVER_MS;
use crate::table::hash::Key;
use crate::value::hash;

/// A key as a snapshot has it.
pub struct Kept<'a> {
    pub key: &'a [u8],
    pub content: Stored<'a>,
    /// Store milliseconds. It may have passed: that the key has died is still to be told.
    pub deadline_ms: Option<u64>,
}

impl Keyspace {
    /// Shows the keys of one block, dead ones too, but for hashes without a field that is alive. Returns the position of
    /// the next, as [`Keyspace::walk`] does.
    pub fn keep(&self, db: usize, position: u64, now: Now, mut each: impl FnMut(Kept)) -> Option<u64> {
        self.dbs[db].walk(position, NEVER_MS, |block, slot| {
            let entry = block.entry(slot);
            if entry.kind() == Kind::Hash && entry.has_fields() && !hash::any_lives(entry, now.ms) {
                return;
            }
            each(Kept { key: entry.key(), content: entry.content(), deadline_ms: block.deadline_ms(slot) });
        })
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
            self.dbs[db].entry(slot).set_clock(clock);
        }
    }

    /// To be called between commands, when keys were put back: nobody hears of them.
    pub fn end_putting_back(&mut self) {
        self.effects.close_all();
        drop(self.effects.take());
    }
}
