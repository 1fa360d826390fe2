//! Dead elements of one key.

use super::{Key, Keyspace};
use crate::clock::Now;
use crate::value::elements;

impl Keyspace {
    /// Takes out what is dead of a live key's elements, and says so: a command that makes another key of them is repeated
    /// elsewhere, where nothing is dead before this shard says it.
    #[inline]
    pub fn take_dead_elements(&mut self, db: usize, key: Key, now: Now) {
        if self.dbs[db].with_fields() > 0 {
            self.take_dead_elements_of(db, key, now);
        }
    }

    #[cold]
    fn take_dead_elements_of(&mut self, db: usize, key: Key, now: Now) {
        let Some(slot) = self.live_slot(db, key, now) else { return };
        let entry = self.dbs[db].entry(slot);
        if entry.has_fields() && elements::earliest_ms(entry).is_some_and(|at_ms| at_ms < now.ms) {
            self.sweep_by(db, now.ms, now, |table, dead| table.sweep_fields_of(slot, now.ms, dead));
        }
    }
}
