//! Random sampling, as in Redis 2 to 5 (`activeExpireCycle`): 20 keys with deadlines at random, the dead ones deleted,
//! and again as long as more than a quarter of them were dead. (Redis 6 and later draw from neighbouring buckets, which
//! is cheaper; the rule stayed, with 10 % for a quarter.)

use crate::contest::{BATCH, Budget, Contestant, Found, PROBES, Store, timed};
use crate::table::KeysInTable;
use emberdb::clock::Now;

const SAMPLE: usize = 20;
/// Dead keys drawn to tell what finding one costs.
const FINDS: usize = 2_000;
const DRAWS_MAX: usize = 2_000_000;

pub struct Sampling {
    keys: KeysInTable,
    rng: fastrand::Rng,
    /// Whether it stops when a quarter or less is dead, or only when the budget is spent.
    rule: bool,
}

impl Sampling {
    fn new(rule: bool) -> Sampling {
        Sampling { keys: KeysInTable::new(), rng: fastrand::Rng::with_seed(1), rule }
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
        self.keys.insert(batch, now);
    }

    fn refresh(&mut self, batch: &[(u64, u64)], now: Now) {
        self.keys.refresh(batch, now);
    }

    fn remove(&mut self, batch: &[u64], now: Now) {
        self.keys.remove(batch, now);
    }

    fn expire(&mut self, now: Now, budget: &Budget) -> usize {
        let mut deleted = 0;
        let mut dead = Vec::with_capacity(SAMPLE);
        for round in 1.. {
            dead.clear();
            for _ in 0..SAMPLE.min(self.keys.table.len()) {
                let (id, deadline_ms) = self.keys.table.random(&mut self.rng);
                if deadline_ms < now.ms && !dead.contains(&id) {
                    dead.push(id);
                }
            }
            dead.chunks(BATCH).for_each(|batch| self.remove(batch, now));
            deleted += dead.len();
            let few = dead.len() * 4 <= SAMPLE;
            let time_is_up = round % (PROBES / SAMPLE) == 0 && budget.is_spent();
            if time_is_up || (self.rule && few) || self.keys.table.len() == 0 {
                break;
            }
        }
        deleted
    }

    fn find_due(&mut self, now: Now) -> Option<Found> {
        let (table, rng) = (&self.keys.table, &mut self.rng);
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
        self.keys.table.bytes()
    }

    fn store(&mut self) -> &mut Store {
        &mut self.keys.store
    }
}
