//! Random sampling, as in Redis 2 to 5 (`activeExpireCycle`): 20 keys with deadlines at random, the dead ones deleted,
//! and again as long as more than a quarter of them were dead. (Redis 6 and later draw from neighbouring buckets, which
//! is cheaper; the rule stayed, with 10 % for a quarter.)

use crate::contest::{BATCH, Budget, Contestant, Found, PROBES, Store, ids, prefetch, timed};
use crate::table::Table;
use emberdb::clock::Now;

const SAMPLE: usize = 20;
/// Dead keys drawn to tell what finding one costs.
const FINDS: usize = 2_000;
const DRAWS_MAX: usize = 2_000_000;

pub struct Sampling {
    store: Store,
    table: Table,
    rng: fastrand::Rng,
    /// Whether it stops when a quarter or less is dead, or only when the budget is spent.
    rule: bool,
}

impl Sampling {
    fn new(rule: bool) -> Sampling {
        Sampling { store: Store::new(), table: Table::new(), rng: fastrand::Rng::with_seed(1), rule }
    }

    pub fn classic() -> Box<dyn Contestant> {
        Box::new(Sampling::new(true))
    }

    pub fn without_rule() -> Box<dyn Contestant> {
        Box::new(Sampling::new(false))
    }
}

impl Contestant for Sampling {
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

    fn expire(&mut self, now: Now, budget: &Budget) -> usize {
        let mut deleted = 0;
        let mut dead = Vec::with_capacity(SAMPLE);
        for round in 1.. {
            dead.clear();
            for _ in 0..SAMPLE.min(self.table.len()) {
                let (id, deadline_ms) = self.table.random(&mut self.rng);
                if deadline_ms < now.ms && !dead.contains(&id) {
                    dead.push(id);
                }
            }
            dead.chunks(BATCH).for_each(|batch| self.remove(batch, now));
            deleted += dead.len();
            let few = dead.len() * 4 <= SAMPLE;
            let time_is_up = round % (PROBES / SAMPLE) == 0 && budget.is_spent();
            if time_is_up || (self.rule && few) || self.table.len() == 0 {
                break;
            }
        }
        deleted
    }

    fn find_due(&mut self, now: Now) -> Option<Found> {
        let (table, rng) = (&self.table, &mut self.rng);
        let (keys, cpu_ns) = timed(|| {
            let mut found = 0;
            for _ in 0..DRAWS_MAX {
                found += usize::from(table.random(rng).1 < now.ms);
                if found == FINDS {
                    break;
                }
            }
            found
        });
        (keys > 0).then_some(Found { keys, cpu_ns })
    }

    fn deadline_bytes(&self) -> usize {
        self.table.bytes()
    }

    fn store(&mut self) -> &mut Store {
        &mut self.store
    }
}
