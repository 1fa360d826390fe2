//! What the operations cost: CPU time a key of insert, refresh, remove, find and delete, and bytes a key.
//!
//! All keys go in, with deadlines spread over 20 minutes; each is refreshed once, in an order of its own; a tenth is
//! removed. Then time passes to the first deadline, what can be cleaned is cleaned (not timed: this work belongs to
//! many ticks), and 1 % of the keys die at once.

use crate::Entry;
use crate::contest::{BATCH, Budget, ENTRY_BYTES, START_MS, timed};
use emberdb::clock::Now;

const MINUTE_MS: u64 = 60_000;
const FIRST_MS: u64 = START_MS + 10 * MINUTE_MS;
const SPREAD_MS: u64 = 20 * MINUTE_MS;
const LATER_MS: u64 = 10 * MINUTE_MS;
/// One key in this many is removed.
const REMOVED: u64 = 10;
/// One hundredth of the deadlines.
const DUE_MS: u64 = SPREAD_MS / 100;
/// Prime, so that multiples of it visit all keys.
const STRIDE: u64 = 1_000_003;

/// CPU nanoseconds a key, and bytes a key. What a contestant cannot do is NaN.
#[derive(Clone, Debug)]
pub struct Cost {
    pub name: &'static str,
    pub keys: u64,
    pub insert_ns: f64,
    pub refresh_ns: f64,
    pub remove_ns: f64,
    /// To find the 1 % that is due, for each key found.
    pub find_ns: f64,
    /// To find and delete it.
    pub delete_ns: f64,
    /// How much of what was due was deleted in one cycle without a limit.
    pub deleted_share: f64,
    /// For deadlines, after the inserts and after all refreshes.
    pub bytes_fresh: f64,
    pub bytes_refreshed: f64,
    /// What the store itself takes beyond keys, values and headers; the same for all.
    pub store_bytes: f64,
}

/// Name and value of each figure, in the order of the tables.
impl Cost {
    pub fn figures(&self) -> [(&'static str, f64); 8] {
        [
            ("insert ns", self.insert_ns),
            ("refresh ns", self.refresh_ns),
            ("remove ns", self.remove_ns),
            ("find due ns", self.find_ns),
            ("find and delete ns", self.delete_ns),
            ("deleted of due", self.deleted_share),
            ("bytes", self.bytes_fresh),
            ("bytes refreshed", self.bytes_refreshed),
        ]
    }
}

/// The median of some rounds, figure by figure.
pub fn measure(entry: &Entry, keys: u64, rounds: usize) -> Cost {
    let all: Vec<Cost> = (0..rounds).map(|_| one_round(entry, keys)).collect();
    let median = |figure: fn(&Cost) -> f64| {
        let mut values: Vec<f64> = all.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Cost {
        name: entry.name,
        keys,
        insert_ns: median(|cost| cost.insert_ns),
        refresh_ns: median(|cost| cost.refresh_ns),
        remove_ns: median(|cost| cost.remove_ns),
        find_ns: median(|cost| cost.find_ns),
        delete_ns: median(|cost| cost.delete_ns),
        deleted_share: median(|cost| cost.deleted_share),
        bytes_fresh: median(|cost| cost.bytes_fresh),
        bytes_refreshed: median(|cost| cost.bytes_refreshed),
        store_bytes: median(|cost| cost.store_bytes),
    }
}

fn one_round(entry: &Entry, keys: u64) -> Cost {
    let mut contestant = (entry.new)();
    let now = Now::from_ms(START_MS);
    let a_key = |cpu_ns: u64, keys: u64| cpu_ns as f64 / keys as f64;

    let mut cpu_ns = 0;
    for batch in batches((0..keys).map(|id| (id, first_deadline_ms(id)))) {
        cpu_ns += timed(|| contestant.insert(&batch, now)).1;
    }
    let insert_ns = a_key(cpu_ns, keys);
    let bytes_fresh = contestant.deadline_bytes() as f64 / keys as f64;
    let store_bytes = contestant.store().keyspace.bytes() as f64 / keys as f64 - ENTRY_BYTES as f64;

    cpu_ns = 0;
    for batch in batches(permuted(keys).map(|id| (id, first_deadline_ms(id) + LATER_MS))) {
        cpu_ns += timed(|| contestant.refresh(&batch, now)).1;
    }
    let refresh_ns = a_key(cpu_ns, keys);
    let bytes_refreshed = contestant.deadline_bytes() as f64 / keys as f64;

    cpu_ns = 0;
    for batch in batches(permuted(keys).filter(|id| id.is_multiple_of(REMOVED))) {
        cpu_ns += timed(|| contestant.remove(&batch, now)).1;
    }
    let remove_ns = a_key(cpu_ns, keys.div_ceil(REMOVED));

    contestant.expire(Now::from_ms(FIRST_MS + LATER_MS), &Budget::UNLIMITED);
    let now = Now::from_ms(FIRST_MS + LATER_MS + DUE_MS);
    let left = (0..keys).filter(|id| !id.is_multiple_of(REMOVED));
    let due = left.filter(|&id| first_deadline_ms(id) + LATER_MS < now.ms).count();
    let find_ns = contestant.find_due(now).map_or(f64::NAN, |found| a_key(found.cpu_ns, found.keys as u64));
    let before = contestant.store().len();
    let (deleted, cpu_ns) = timed(|| contestant.expire(now, &Budget::UNLIMITED));
    assert_eq!(before - contestant.store().len(), deleted, "what is said to be deleted is gone");
    assert!(deleted <= due, "nothing that lives was deleted");
    Cost {
        name: entry.name,
        keys,
        insert_ns,
        refresh_ns,
        remove_ns,
        find_ns,
        delete_ns: if deleted > 0 { cpu_ns as f64 / deleted as f64 } else { f64::NAN },
        deleted_share: deleted as f64 / due as f64,
        bytes_fresh,
        bytes_refreshed,
        store_bytes,
    }
}

/// Spread evenly, in no order.
fn first_deadline_ms(id: u64) -> u64 {
    FIRST_MS + (id.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) % SPREAD_MS
}

fn permuted(keys: u64) -> impl Iterator<Item = u64> {
    (0..keys).map(move |n| n * STRIDE % keys)
}

fn batches<T>(items: impl Iterator<Item = T>) -> impl Iterator<Item = Vec<T>> {
    let mut items = items;
    std::iter::from_fn(move || {
        let batch: Vec<T> = items.by_ref().take(BATCH).collect();
        (!batch.is_empty()).then_some(batch)
    })
}
