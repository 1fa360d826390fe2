//! A hierarchical timing wheel (Varghese and Lauck, SOSP 1987, scheme 7): four wheels of 256 slots, each slot a doubly
//! linked list of timers; a turn of one wheel brings down the next slot of the wheel above. A key's value holds the
//! number of its timer, so that a refresh unlinks it without a search.

use crate::contest::{BATCH, Budget, Contestant, Found, PROBES, Store, ids, timed, word};
use emberdb::clock::Now;

/// A tick of the lowest wheel: as fine as the steady state that it is measured in.
const TICK_MS: u64 = 10;
const LEVELS: usize = 4;
const SLOTS: usize = 256;
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Timer {
    id: u64,
    tick: u64,
    next: u32,
    prev: u32,
}

/// The first `LEVELS * SLOTS` timers are the heads of the slots' circular lists.
#[derive(Clone)]
struct Timers {
    all: Vec<Timer>,
    free: u32,
    /// Everything up to this tick was handed out, but for what still stands in its slot.
    tick: u64,
}

impl Timers {
    fn new(tick: u64) -> Timers {
        let heads = (0..(LEVELS * SLOTS) as u32).map(|at| Timer { id: 0, tick: 0, next: at, prev: at });
        Timers { all: heads.collect(), free: NIL, tick }
    }

    fn add(&mut self, id: u64, deadline_ms: u64) -> u32 {
        let timer = Timer { id, tick: 0, next: NIL, prev: NIL };
        let at = match self.free {
            NIL => {
                self.all.push(timer);
                (self.all.len() - 1) as u32
            }
            at => {
                self.free = self.all[at as usize].next;
                self.all[at as usize] = timer;
                at
            }
        };
        self.schedule(at, deadline_ms);
        at
    }

    fn schedule(&mut self, at: u32, deadline_ms: u64) {
        // The first tick at which now is past the deadline.
        self.all[at as usize].tick = (deadline_ms / TICK_MS + 1).max(self.tick + 1);
        self.link(at);
    }

    fn link(&mut self, at: u32) {
        let tick = self.all[at as usize].tick;
        let distance = tick - self.tick;
        let level = (0..LEVELS - 1).find(|level| distance < 1 << (8 * (level + 1))).unwrap_or(LEVELS - 1);
        let head = (level * SLOTS + (tick >> (8 * level)) as usize % SLOTS) as u32;
        let last = self.all[head as usize].prev;
        self.all[last as usize].next = at;
        self.all[head as usize].prev = at;
        self.all[at as usize].prev = last;
        self.all[at as usize].next = head;
    }

    fn unlink(&mut self, at: u32) {
        let Timer { next, prev, .. } = self.all[at as usize];
        self.all[prev as usize].next = next;
        self.all[next as usize].prev = prev;
    }

    fn release(&mut self, at: u32) {
        self.all[at as usize].next = self.free;
        self.free = at;
    }

    /// The next timer that is due, taken out.
    fn pop_due(&mut self, now: Now) -> Option<u64> {
        loop {
            let head = (self.tick as usize % SLOTS) as u32;
            let at = self.all[head as usize].next;
            if at != head {
                self.unlink(at);
                self.release(at);
                return Some(self.all[at as usize].id);
            }
            if self.tick >= now.ms / TICK_MS {
                return None;
            }
            self.tick += 1;
            for level in 1..LEVELS {
                if !self.tick.is_multiple_of(1 << (8 * level)) {
                    break;
                }
                self.bring_down(level);
            }
        }
    }

    /// Spreads a slot of a wheel over the wheels below.
    fn bring_down(&mut self, level: usize) {
        let head = (level * SLOTS + (self.tick >> (8 * level)) as usize % SLOTS) as u32;
        let mut at = self.all[head as usize].next;
        self.all[head as usize].next = head;
        self.all[head as usize].prev = head;
        while at != head {
            let next = self.all[at as usize].next;
            self.link(at);
            at = next;
        }
    }
}

pub struct Wheel {
    store: Store,
    timers: Timers,
}

impl Wheel {
    pub fn boxed() -> Box<dyn Contestant> {
        Box::new(Wheel { store: Store::new(), timers: Timers::new(crate::contest::START_MS / TICK_MS) })
    }
}

impl Contestant for Wheel {
    fn insert(&mut self, batch: &[(u64, u64)], now: Now) {
        let mut timers = [NIL; BATCH];
        for (at, &(id, deadline_ms)) in batch.iter().enumerate() {
            timers[at] = self.timers.add(id, deadline_ms);
        }
        self.store.insert(batch, |at| u64::from(timers[at]), now);
    }

    fn refresh(&mut self, batch: &[(u64, u64)], now: Now) {
        let timers = &mut self.timers;
        self.store.each(ids(batch), |keyspace, key, at| {
            if let Some(timer) = word(keyspace, key, now) {
                timers.unlink(timer as u32);
                timers.schedule(timer as u32, batch[at].1);
            }
        });
    }

    fn remove(&mut self, batch: &[u64], now: Now) {
        let timers = &mut self.timers;
        self.store.each(batch.iter().copied(), |keyspace, key, _| {
            if let Some(timer) = word(keyspace, key, now) {
                timers.unlink(timer as u32);
                timers.release(timer as u32);
                keyspace.remove(0, key, now);
            }
        });
    }

    fn expire(&mut self, now: Now, budget: &Budget) -> usize {
        let mut deleted = 0;
        for round in 1.. {
            let mut due = [0; BATCH];
            let mut count = 0;
            while count < BATCH
                && let Some(id) = self.timers.pop_due(now)
            {
                due[count] = id;
                count += 1;
            }
            self.store.remove(&due[..count], now);
            deleted += count;
            if count < BATCH || (round % (PROBES / BATCH) == 0 && budget.is_spent()) {
                break;
            }
        }
        deleted
    }

    fn find_due(&mut self, now: Now) -> Option<Found> {
        let mut timers = self.timers.clone();
        let (keys, cpu_ns) = timed(|| std::iter::from_fn(|| timers.pop_due(now)).count());
        Some(Found { keys, cpu_ns })
    }

    fn deadline_bytes(&self) -> usize {
        self.timers.all.capacity() * size_of::<Timer>() + self.store.len() * size_of::<u64>()
    }

    fn store(&mut self) -> &mut Store {
        &mut self.store
    }
}
