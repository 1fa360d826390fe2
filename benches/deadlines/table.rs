//! A hash table of deadlines (open addressing, linear probing, at most three quarters full): what sampling draws from
//! and the full scan walks. Like the table that Redis calls `expires`, with 16 bytes a slot.

use crate::contest::{Store, ids, prefetch, word};
use emberdb::clock::Now;

/// A store whose deadlines stand in a table beside it.
pub struct KeysInTable {
    pub store: Store,
    pub table: Table,
}

impl KeysInTable {
    pub fn new() -> KeysInTable {
        KeysInTable { store: Store::new(), table: Table::new() }
    }

    pub fn insert(&mut self, batch: &[(u64, u64)], now: Now) {
        self.prefetch(ids(batch));
        self.store.insert(batch, |_| 0, now);
        batch.iter().for_each(|&(id, deadline_ms)| self.table.set(id, deadline_ms));
    }

    pub fn refresh(&mut self, batch: &[(u64, u64)], now: Now) {
        self.prefetch(ids(batch));
        let table = &mut self.table;
        self.store.each(ids(batch), |keyspace, key, at| {
            if word(keyspace, key, now).is_some() {
                table.set(batch[at].0, batch[at].1);
            }
        });
    }

    pub fn remove(&mut self, batch: &[u64], now: Now) {
        self.prefetch(batch.iter().copied());
        self.store.remove(batch, now);
        batch.iter().for_each(|&id| self.table.remove(id));
    }

    fn prefetch(&self, ids: impl Iterator<Item = u64>) {
        ids.for_each(|id| prefetch(&self.table.slots()[self.table.home(id)]));
    }
}

/// Stands in empty slots; no key has this number.
const EMPTY: u64 = u64::MAX;

pub struct Table {
    /// Key and deadline.
    slots: Vec<(u64, u64)>,
    len: usize,
}

impl Table {
    pub fn new() -> Table {
        Table { slots: vec![(EMPTY, 0); 64], len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn slots(&self) -> &[(u64, u64)] {
        &self.slots
    }

    pub fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<(u64, u64)>()
    }

    /// The slot where the search for a key begins.
    pub fn home(&self, id: u64) -> usize {
        (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.slots.len().ilog2())) as usize
    }

    pub fn is_key(id: u64) -> bool {
        id != EMPTY
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// The key's slot, or the empty one where it would go.
    fn find(&self, id: u64) -> usize {
        let mut at = self.home(id);
        while self.slots[at].0 != id && self.slots[at].0 != EMPTY {
            at = self.next(at);
        }
        at
    }

    pub fn set(&mut self, id: u64, deadline_ms: u64) {
        let at = self.find(id);
        if self.slots[at].0 == EMPTY {
            self.len += 1;
        }
        self.slots[at] = (id, deadline_ms);
        if self.len * 4 > self.slots.len() * 3 {
            let twice = vec![(EMPTY, 0); self.slots.len() * 2];
            let old = std::mem::replace(&mut self.slots, twice);
            for (id, deadline_ms) in old.into_iter().filter(|slot| Table::is_key(slot.0)) {
                let at = self.find(id);
                self.slots[at] = (id, deadline_ms);
            }
        }
    }

    /// Takes a key out and moves up what had to stand behind it (Knuth, TAOCP 6.4, algorithm R).
    pub fn remove(&mut self, id: u64) {
        let mut hole = self.find(id);
        if self.slots[hole].0 == EMPTY {
            return;
        }
        self.len -= 1;
        let mut at = hole;
        loop {
            at = self.next(at);
            if self.slots[at].0 == EMPTY {
                break;
            }
            let home = self.home(self.slots[at].0);
            let mask = self.slots.len() - 1;
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
        }
        self.slots[hole].0 = EMPTY;
    }

    /// A key with its deadline, each with the same chance. The table must not be empty.
    pub fn random(&self, rng: &mut fastrand::Rng) -> (u64, u64) {
        loop {
            let slot = self.slots[rng.usize(..self.slots.len())];
            if slot.0 != EMPTY {
                return slot;
            }
        }
    }
}
