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

/// What is measured: CPU nanoseconds a key, and bytes a key for deadlines after the inserts and after all refreshes.
/// Finding and deleting is for each of the 1 % that are due; `DELETED` is how much of it one cycle without a limit
/// deleted.
pub const FIGURES: [&str; 8] =
    ["insert ns", "refresh ns", "remove ns", "find due ns", "find and delete ns", DELETED, "bytes", "bytes refreshed"];
pub const DELETED: &str = "deleted of due";

#[derive(Clone, Debug)]
pub struct Cost {
    pub name: &'static str,
    pub keys: u64,
    /// In the order of [`FIGURES`]; what a contestant cannot do is NaN.
    pub figures: [f64; FIGURES.len()],
    /// What the store itself takes beyond keys, values and headers; the same for all.
    pub store_bytes: f64,
}

/// The median of some rounds, figure by figure; a round is what [`measure`] returned.
pub fn median(entry: &Entry, keys: u64, rounds: &[Vec<f64>]) -> Cost {
    let median = |at: usize| {
        let mut values: Vec<f64> = rounds.iter().map(|round| round[at]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let store_bytes = median(FIGURES.len());
    Cost { name: entry.name, keys, figures: std::array::from_fn(median), store_bytes }
}

/// One round: the figures and then the store's bytes.
pub fn measure(entry: &Entry, keys: u64) -> Vec<f64> {
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
    let delete_ns = if deleted > 0 { cpu_ns as f64 / deleted as f64 } else { f64::NAN };
    let deleted_share = if find_ns.is_nan() { f64::NAN } else { deleted as f64 / due as f64 };
    let costs = [insert_ns, refresh_ns, remove_ns, find_ns, delete_ns];
    [&costs[..], &[deleted_share, bytes_fresh, bytes_refreshed, store_bytes]].concat()
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
