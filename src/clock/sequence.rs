//! The order of transactions on all shards: one sequence, whose numbers are time and counter in one (a hybrid logical
//! clock; Kulkarni, Demirbas et al., Logical Physical Clocks, 2014).
//!
//! ```text
//!  63           20 19        0
//!  store time, ms | counter        a transaction sees what was alive at the time in its number
//! ```
//!
//! A shard that sends transactions opens its *window* first, takes numbers, hands the transactions to every shard that
//! takes part, and closes it. Whoever looks at the windows and then at what came to him knows that nothing before the
//! earliest of them (the *watermark*) is still to come. So the parts of a transaction run in the same order on every
//! shard after a single message, and without a vote. Windows are open for as long as a few pushes take.
//!
//! Time follows the same rule: a shard's clock does not move past an open window, so that a transaction never looks at
//! a moment that commands before it have left behind.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst, fence};

const COUNTER_BITS: u32 = 20;
const CLOSED: u64 = u64::MAX;

/// On a cache line of its own (two, since they are fetched in pairs).
#[derive(Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// Shared by all shards.
pub struct Sequence {
    next: Padded<AtomicU64>,
    /// No transaction that a shard has not handed out yet has a smaller number than its window says.
    windows: Box<[Padded<AtomicU64>]>,
    /// How often transactions were handed to each shard.
    arrivals: Box<[Padded<AtomicU64>]>,
    /// Shards that wait for a window to be closed.
    waiting: Box<[Padded<AtomicBool>]>,
}

/// The store time that a transaction's number carries, in milliseconds.
pub fn sequence_ms(number: u64) -> u64 {
    number >> COUNTER_BITS
}

/// The least number that carries this store time.
pub fn first_number_at(ms: u64) -> u64 {
    ms << COUNTER_BITS
}

impl Sequence {
    pub fn new(shards: usize) -> Sequence {
        Sequence {
            next: Padded::default(),
            windows: (0..shards).map(|_| Padded(AtomicU64::new(CLOSED))).collect(),
            arrivals: (0..shards).map(|_| Padded::default()).collect(),
            waiting: (0..shards).map(|_| Padded::default()).collect(),
        }
    }

    pub fn shards(&self) -> usize {
        self.windows.len()
    }

    /// Announces that a shard is about to take numbers. `before_ms` is a store time that has passed.
    pub fn open(&self, shard: usize, before_ms: u64) {
        let bound = self.next.0.load(SeqCst).max(before_ms << COUNTER_BITS);
        self.windows[shard].0.store(bound, SeqCst);
    }

    /// Takes `count` numbers and returns the first. `now_ms` is read after the window was opened.
    pub fn take(&self, count: u64, now_ms: u64) -> u64 {
        let first = |next: u64| next.max(now_ms << COUNTER_BITS);
        let update = self.next.0.fetch_update(SeqCst, SeqCst, |next| Some(first(next) + count));
        first(update.expect("always taken"))
    }

    /// A transaction was handed to `target`.
    pub fn arrived(&self, target: usize) {
        self.arrivals[target].0.fetch_add(1, SeqCst);
    }

    /// Everything taken since the window was opened has been handed out.
    pub fn close(&self, shard: usize) {
        self.windows[shard].0.store(CLOSED, SeqCst);
    }

    #[inline]
    pub fn arrivals(&self, shard: usize) -> u64 {
        // A plain load on the machines this runs on.
        self.arrivals[shard].0.load(SeqCst)
    }

    /// Every transaction with a smaller number has been handed to all who take part in it.
    pub fn watermark(&self) -> u64 {
        // Numbers that are taken later are not smaller than `next`; those taken before have an open window, or were
        // handed out.
        let next = self.next.0.load(SeqCst);
        self.windows.iter().map(|window| window.0.load(SeqCst)).fold(next, u64::min)
    }

    /// No transaction at an earlier moment than this, or than the clock just before the call, is still to come.
    pub fn earliest_ms(&self) -> u64 {
        fence(SeqCst);
        sequence_ms(self.windows.iter().map(|window| window.0.load(SeqCst)).fold(CLOSED, u64::min))
    }

    /// A shard wants to be woken when windows are closed, or does not want to any more.
    pub fn set_waiting(&self, shard: usize, waiting: bool) {
        self.waiting[shard].0.store(waiting, SeqCst);
    }

    pub fn is_waiting(&self, shard: usize) -> bool {
        self.waiting[shard].0.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_and_carry_the_time() {
        let sequence = Sequence::new(2);
        let first = sequence.take(3, 1000);
        assert_eq!(sequence_ms(first), 1000);
        assert_eq!(sequence.take(1, 1000), first + 3);
        // A shard whose clock is behind does not go back.
        assert_eq!(sequence.take(1, 999), first + 4);
        assert_eq!(sequence_ms(sequence.take(1, 1001)), 1001);
    }

    #[test]
    fn the_watermark_stops_at_open_windows() {
        let sequence = Sequence::new(2);
        sequence.open(0, 1000);
        let slow = sequence.take(1, 1000);
        sequence.open(1, 1000);
        let fast = sequence.take(2, 1000);
        sequence.close(1);
        assert!(sequence.watermark() <= slow && slow < fast);
        assert_eq!(sequence.earliest_ms(), 1000);
        sequence.close(0);
        assert!(sequence.watermark() > fast + 1);
        assert!(sequence.earliest_ms() > 1_000_000_000);
        // A window that is open, but has taken nothing yet, holds back what comes after it.
        sequence.open(0, 1002);
        let later = { sequence.take(1, 1003) };
        assert!(sequence.watermark() <= later);
        assert_eq!(sequence.earliest_ms(), 1002);
    }
}
