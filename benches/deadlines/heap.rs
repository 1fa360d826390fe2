//! A binary heap with lazy cleaning: a key's own deadline stands in its value; an item of the heap whose deadline is
//! not the key's any more is dropped when it comes to the top.
//!
//! Two ways to refresh: push another item and leave the old one (the classic one), or, for a later deadline, leave the
//! heap alone and push when the old item comes to the top (`postponing`).

use crate::contest::{BATCH, Budget, Contestant, Found, PROBES, Store, ids, timed, value, word};
use emberdb::clock::Now;
use emberdb::keyspace::{Touch, Value};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Deadline and key.
type Item = Reverse<(u64, u64)>;

pub struct Heap {
    store: Store,
    items: BinaryHeap<Item>,
    postpone: bool,
}

impl Heap {
    fn new(postpone: bool) -> Heap {
        Heap { store: Store::new(), items: BinaryHeap::new(), postpone }
    }

    pub fn pushing() -> Box<dyn Contestant> {
        Box::new(Heap::new(false))
    }

    pub fn postponing() -> Box<dyn Contestant> {
        Box::new(Heap::new(true))
    }

    /// Takes due items from the top, a batch at most.
    fn pop_due(&mut self, now: Now) -> Vec<(u64, u64)> {
        let mut due = Vec::with_capacity(BATCH);
        while due.len() < BATCH
            && let Some(top) = self.items.peek_mut()
            && top.0.0 < now.ms
        {
            let Reverse((deadline_ms, id)) = std::collections::binary_heap::PeekMut::pop(top);
            due.push((id, deadline_ms));
        }
        due
    }
}

impl Contestant for Heap {
    fn insert(&mut self, batch: &[(u64, u64)], now: Now) {
        self.store.insert(batch, |at| batch[at].1, now);
        self.items.extend(batch.iter().map(|&(id, deadline_ms)| Reverse((deadline_ms, id))));
    }

    fn refresh(&mut self, batch: &[(u64, u64)], now: Now) {
        let (items, postpone) = (&mut self.items, self.postpone);
        self.store.each(ids(batch), |keyspace, key, at| {
            let (id, deadline_ms) = batch[at];
            if let Some(mut live) = keyspace.edit(0, key, now, Touch::NOTHING) {
                live.set_value(Value::Bytes(&value(deadline_ms)));
                if !postpone {
                    items.push(Reverse((deadline_ms, id)));
                }
            }
        });
    }

    fn remove(&mut self, batch: &[u64], now: Now) {
        self.store.remove(batch, now);
    }

    fn expire(&mut self, now: Now, budget: &Budget) -> usize {
        let mut deleted = 0;
        for round in 1.. {
            let due = self.pop_due(now);
            if due.is_empty() {
                break;
            }
            let (items, postpone) = (&mut self.items, self.postpone);
            self.store.each(ids(&due), |keyspace, key, at| match word(keyspace, key, now) {
                Some(deadline_ms) if deadline_ms == due[at].1 => {
                    deleted += usize::from(keyspace.remove(0, key, now));
                }
                Some(deadline_ms) if postpone => items.push(Reverse((deadline_ms, due[at].0))),
                _ => (),
            });
            if round % (PROBES / BATCH) == 0 && budget.is_spent() {
                break;
            }
        }
        deleted
    }

    fn find_due(&mut self, now: Now) -> Option<Found> {
        let before = self.items.clone();
        let (keys, cpu_ns) = timed(|| {
            let mut found = 0;
            loop {
                let due = self.pop_due(now);
                if due.is_empty() {
                    return found;
                }
                self.store.each(ids(&due), |keyspace, key, at| {
                    found += usize::from(word(keyspace, key, now) == Some(due[at].1));
                });
            }
        });
        self.items = before;
        Some(Found { keys, cpu_ns })
    }

    fn deadline_bytes(&self) -> usize {
        self.items.capacity() * size_of::<Item>() + self.store.len() * size_of::<u64>()
    }

    fn store(&mut self) -> &mut Store {
        &mut self.store
    }
}
