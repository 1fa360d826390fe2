//! The periodic full scan: all deadlines are walked in laps, each slice going on where the last one stopped.

use crate::contest::{BATCH, Budget, Contestant, Found, Store, ids, prefetch, timed};
use crate::table::Table;
use emberdb::clock::Now;

/// Slots walked between two looks at the clock: walking is cheap.
const SLOTS: usize = 1024;

pub struct Scan {
    store: Store,
    table: Table,
    cursor: usize,
}

impl Scan {
    pub fn boxed() -> Box<dyn Contestant> {
        Box::new(Scan { store: Store::new(), table: Table::new(), cursor: 0 })
    }
}

impl Contestant for Scan {
    fn insert(&mut self, batch: &[(u64, u64)], now: Now) {
        ids(batch).for_each(|id| prefetch(&self.table.slots()[self.table.home(id)]));
        self.store.insert(batch, |_| 0, now);
        batch.iter().for_each(|&(id, deadline_ms)| self.table.set(id, deadline_ms));
    }

    fn refresh(&mut self, batch: &[(u64, u64)], now: Now) {
        ids(batch).for_each(|id| prefetch(&self.table.slots()[self.table.home(id)]));
        let table = &mut self.table;
        self.store.each(ids(batch), |keyspace, key, at| {
            if crate::contest::word(keyspace, key, now).is_some() {
                table.set(batch[at].0, batch[at].1);
            }
        });
    }

    fn remove(&mut self, batch: &[u64], now: Now) {
        batch.iter().for_each(|&id| prefetch(&self.table.slots()[self.table.home(id)]));
        self.store.remove(batch, now);
        batch.iter().for_each(|&id| self.table.remove(id));
    }

    /// At most one lap. A deletion may move a key from before the cursor to behind it: the next lap finds it.
    fn expire(&mut self, now: Now, budget: &Budget) -> usize {
        let mut deleted = 0;
        let mut walked = 0;
        let mut dead = Vec::new();
        while walked < self.table.slots().len() {
            let start = if self.cursor < self.table.slots().len() { self.cursor } else { 0 };
            let end = (start + SLOTS).min(self.table.slots().len());
            dead.clear();
            let slots = &self.table.slots()[start..end];
            dead.extend(slots.iter().filter(|slot| slot.1 < now.ms && Table::is_key(slot.0)).map(|slot| slot.0));
            dead.chunks(BATCH).for_each(|batch| self.remove(batch, now));
            deleted += dead.len();
            walked += end - start;
            self.cursor = end;
            if budget.is_spent() {
                break;
            }
        }
        deleted
    }

    fn find_due(&mut self, now: Now) -> Option<Found> {
        let slots = self.table.slots();
        let (keys, cpu_ns) = timed(|| slots.iter().filter(|slot| slot.1 < now.ms && Table::is_key(slot.0)).count());
        Some(Found { keys, cpu_ns })
    }

    fn deadline_bytes(&self) -> usize {
        self.table.bytes()
    }

    fn store(&mut self) -> &mut Store {
        &mut self.store
    }
}
