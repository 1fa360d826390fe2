//! The product: a `u32` column of deadlines in every block of the keyspace, and the minimum of each block.

use crate::contest::{Budget, Contestant, Found, PROBES, Store, ids, timed, value};
use emberdb::clock::Now;
use emberdb::keyspace::{Touch, Value};

/// Blocks swept between two looks at the clock: most have one or two dead keys.
const BLOCKS: usize = 16;

pub struct Column {
    store: Store,
}

impl Column {
    pub fn boxed() -> Box<dyn Contestant> {
        Box::new(Column { store: Store::new() })
    }
}

impl Contestant for Column {
    fn insert(&mut self, batch: &[(u64, u64)], now: Now) {
        self.store.each(ids(batch), |keyspace, key, at| {
            keyspace.insert(0, key, Value::Bytes(&value(0)), Some(batch[at].1), now);
        });
    }

    fn refresh(&mut self, batch: &[(u64, u64)], now: Now) {
        self.store.each(ids(batch), |keyspace, key, at| {
            if let Some(mut live) = keyspace.edit(0, key, now, Touch::NOTHING) {
                live.set_deadline(Some(batch[at].1));
            }
        });
    }

    fn remove(&mut self, batch: &[u64], now: Now) {
        self.store.remove(batch, now);
    }

    fn expire(&mut self, now: Now, budget: &Budget) -> usize {
        let keyspace = &mut self.store.keyspace;
        let mut deleted = 0;
        for swept in 1.. {
            let Some((_, db, _)) = keyspace.earliest().filter(|(at_ms, ..)| *at_ms < now.ms) else { break };
            deleted += keyspace.sweep_earliest(db, now.ms, now, PROBES).deleted;
            if swept % BLOCKS == 0 && budget.is_spent() {
                break;
            }
        }
        deleted
    }

    fn find_due(&mut self, now: Now) -> Option<Found> {
        let keyspace = &self.store.keyspace;
        let all = self.store.len();
        let (live, cpu_ns) = timed(|| keyspace.live_len(0, now));
        Some(Found { keys: all - live, cpu_ns })
    }

    fn deadline_bytes(&self) -> usize {
        // A deadline for each slot, used or not, and two words (minimum, share of its group's) for each block.
        let shape = self.store.keyspace.shape(0);
        shape.slots * size_of::<u32>() + shape.blocks * 2 * size_of::<u64>()
    }

    fn store(&mut self) -> &mut Store {
        &mut self.store
    }
}
