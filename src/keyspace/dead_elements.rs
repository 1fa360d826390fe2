//! Dead elements of one key.

use super::{Key, Keyspace};
use crate::clock::Now;
use crate::value::elements;

/// No more dead elements than this are looked past each time.
const PASSED_MAX: usize = 128;
/// So many are taken out at once by who looks for others.
const TAKEN_AT_ONCE: usize = 1 << 15;

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
            self.sweep_by(db, now.ms, now, |table, dead| table.sweep_fields_of(slot, now.ms, usize::MAX, dead));
        }
    }

    /// Takes some of the dead among a live key's elements out where they are many, for a command that has to look past
    /// each of them. They stay where somebody who waits may see them still, in a pause, and where another server says what
    /// dies.
    #[inline]
    pub fn thin_out_dead_elements(&mut self, db: usize, key: Key, now: Now) {
        if self.dbs[db].with_fields() > 0 && self.dbs[db].next_due_hint_ms() < now.ms {
            self.thin_out_dead_elements_of(db, key, now);
        }
    }

    #[cold]
    fn thin_out_dead_elements_of(&mut self, db: usize, key: Key, now: Now) {
        let stays = self.seen_from < now || now.us < self.still_until_us || self.deaths.is_full();
        if stays && !self.buries {
            return;
        }
        let Some(slot) = self.live_slot(db, key, now) else { return };
        let entry = self.dbs[db].entry(slot);
        if entry.has_fields() {
            let (all, alive) = elements::counts(entry, now.ms);
            if all - alive > PASSED_MAX {
                self.sweep_by(db, now.ms, now, |table, dead| table.sweep_fields_of(slot, now.ms, TAKEN_AT_ONCE, dead));
            }
        }
    }
}
