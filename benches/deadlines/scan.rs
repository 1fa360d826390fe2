//! The periodic full scan: all deadlines are walked in laps, each slice going on where the last one stopped.

use crate::contest::{BATCH, Budget, Contestant, Found, Store, timed};
use crate::table::{KeysInTable, Table};
use emberdb::clock::Now;

/// Slots walked between two looks at the clock: walking is cheap.
const SLOTS: usize = 1024;

pub struct Scan {
    keys: KeysInTable,
    cursor: usize,
}

impl Scan {
    pub fn boxed() -> Box<dyn Contestant> {
        Box::new(Scan { keys: KeysInTable::new(), cursor: 0 })
    }
}

impl Contestant for Scan {
    fn insert(&mut self, batch: &[(u64, u64)], now: Now) {
        self.keys.insert(batch, now);
    }

    fn refresh(&mut self, batch: &[(u64, u64)], now: Now) {
        self.keys.refresh(batch, now);
    }

    fn remove(&mut self, batch: &[u64], now: Now) {
        self.keys.remove(batch, now);
    }

    /// At most one lap. A deletion may move a key from before the cursor to behind it: the next lap finds it.
    fn expire(&mut self, now: Now, budget: &Budget) -> usize {
        let mut deleted = 0;
        let mut walked = 0;
        let mut dead = Vec::new();
        while walked < self.keys.table.slots().len() {
            let start = if self.cursor < self.keys.table.slots().len() { self.cursor } else { 0 };
            let end = (start + SLOTS).min(self.keys.table.slots().len());
            dead.clear();
            let slots = &self.keys.table.slots()[start..end];
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
        let slots = self.keys.table.slots();
        let (keys, cpu_ns) = timed(|| slots.iter().filter(|slot| slot.1 < now.ms && Table::is_key(slot.0)).count());
        Some(Found { keys, cpu_ns })
    }

    fn deadline_bytes(&self) -> usize {
        self.keys.table.bytes()
    }

    fn store(&mut self) -> &mut Store {
        &mut self.keys.store
    }
}
