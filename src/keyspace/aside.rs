//! Keys that are dead by the clock, while somebody who looks at an earlier moment holds them: they are put aside, so that
//! the cycle need not wait, and brought back before whoever holds them looks again. Collections some of whose elements are
//! dead stay where they are, and the cycle passes them by until then.
//!
//! A key that comes back may be given more time, so that its pin and its groups, which are kept beside the tables, stay as they are.

use super::{Key, Keyspace, Owned};
use crate::clock::Now;
use crate::table::Slot;

/// When the cycle looks again at a collection that it is to pass by.
const PASSED_BY_MS: u64 = 10;

/// A key that was put aside.
pub(super) struct Aside {
    db: usize,
    hash: u64,
    key: Box<[u8]>,
    value: Owned,
    deadline_ms: Option<u64>,
    /// Of its accesses.
    clock: u32,
}

impl Keyspace {
    /// Puts aside what is dead of the keys with these hashes.
    #[cold]
    pub fn set_aside(&mut self, hashes: impl Iterator<Item = u64>, now: Now) {
        for hash in hashes {
            for db in 0..self.dbs.len() {
                let Some(slot) = self.slot_of(db, hash) else { continue };
                let entry = self.dbs[db].entry(slot);
                let is_dead = match entry.has_fields() {
                    true => entry.far_deadline_ms().is_some_and(|deadline_ms| now.ms > deadline_ms),
                    false => self.dbs[db].is_dead(slot, now.ms),
                };
                if !is_dead {
                    if entry.has_fields() && self.dbs[db].is_due(slot, now.ms) {
                        self.dbs[db].look_later(slot, now.ms.saturating_add(PASSED_BY_MS), now.ms);
                        self.passed_by.insert((db, hash));
                    }
                    continue;
                }
                let (key, clock): (Box<[u8]>, u32) = (entry.key().into(), entry.clock());
                // As of a moment at which it lives.
                let live = self.live(db, slot, Now::from_ms(0), hash);
                let deadline_ms = live.deadline_ms();
                let value = live.edit().take_aside();
                self.effects.close(db, hash);
                self.aside.push(Aside { db, hash, key, value, deadline_ms, clock });
            }
        }
    }

    fn slot_of(&self, db: usize, hash: u64) -> Option<Slot> {
        self.dbs[db].find_by(hash, |key| self.hasher.hash(key) == hash)
    }

    #[inline]
    pub fn has_aside(&self) -> bool {
        !self.aside.is_empty() || !self.passed_by.is_empty()
    }

    /// Brings back what was put aside.
    #[cold]
    pub fn bring_back(&mut self, now: Now) {
        for Aside { db, hash, key, value, deadline_ms, clock } in std::mem::take(&mut self.aside) {
            let key = Key { bytes: &key, hash };
            // Nobody is told that it is new.
            let mark = self.effects.mark();
            self.insert_owned(db, key, value, deadline_ms, now);
            if let Some(slot) = self.dbs[db].find(key) {
                self.dbs[db].entry(slot).set_clock(clock);
            }
            self.effects.take_from(mark);
            self.effects.close(db, hash);
        }
        for (db, hash) in std::mem::take(&mut self.passed_by) {
            if let Some(slot) = self.slot_of(db, hash).filter(|slot| self.dbs[db].entry(*slot).has_fields()) {
                // (The cycle finds out what the earliest deadline is.)
                self.dbs[db].set_fields_deadline(slot, Some(now.ms.saturating_sub(1)), now.ms);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::{Hasher, Touch, Value};

    #[test]
    fn what_is_dead_is_put_aside_and_comes_back() {
        let hasher = Hasher::new(1, 1);
        let mut keyspace = Keyspace::new(2, hasher.clone());
        let (early, late) = (Now::from_ms(1_000), Now::from_ms(2_000));
        let key = |name: &'static str| hasher.key(name.as_bytes());
        for (name, deadline_ms) in [("dying", Some(1_500)), ("living", Some(9_000)), ("lasting", None)] {
            keyspace.insert(1, key(name), Value::Bytes(b"v"), deadline_ms, early);
            keyspace.effects.close(1, key(name).hash);
        }
        let clock = 77;
        keyspace.set_pinned(1, key("dying"), true);
        keyspace.join_group(1, key("dying"), b"group", early);
        let slot = keyspace.dbs[1].find(key("dying")).expect("a key");
        keyspace.dbs[1].entry(slot).set_clock(clock);
        let hashes = ["dying", "living", "lasting", "missing"].map(|name| key(name).hash);
        keyspace.set_aside(hashes.into_iter(), late);
        assert!(keyspace.has_aside() && keyspace.effects.is_closed());
        assert!(keyspace.find(1, key("dying"), early, Touch::NOTHING).is_none());
        assert_eq!(keyspace.len(1), 2);
        keyspace.bring_back(early);
        assert!(!keyspace.has_aside() && keyspace.effects.is_closed() && keyspace.effects.is_empty());
        let live = keyspace.find(1, key("dying"), early, Touch::NOTHING).expect("alive at that moment");
        assert_eq!(live.deadline_ms(), Some(1_500));
        let slot = keyspace.dbs[1].find(key("dying")).expect("a key");
        assert_eq!(keyspace.dbs[1].entry(slot).clock(), clock);
        assert!(keyspace.is_pinned(1, b"dying"));
        assert_eq!(keyspace.membership(1, b"dying").map(|member| member.own_ms), Some(Some(1_500)));
        assert!(keyspace.find(1, key("dying"), late, Touch::NOTHING).is_none());
    }
}
