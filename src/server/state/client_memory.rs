//! What the connections of a shard hold, where `maxmemory-clients` bounds what all connections do.
//!
//! It is counted at the end of a connection's turns, and at no other time, so that nothing is counted where there is no bound.

use super::global::Global;
use crate::net::{Notify, sleep};
use crate::server::client::State;
use crate::server::client::session::Close;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long until those look again who wait for others to be ended.
const ENDED_SOON: Duration = Duration::from_micros(200);
/// Who has sent no more than this has said little, and does not wait while the excess is no more than this part of the limit.
const MODEST_BYTES: usize = 512;
const MODEST_PART: u64 = 4;

pub struct ClientMemory {
    global: Arc<Global>,
    shard: usize,
    /// For the connections of all shards; 0: none.
    limit_bytes: Cell<u64>,
    /// Somebody has to go.
    pub alarm: Notify,
}

impl ClientMemory {
    pub fn new(global: Arc<Global>, shard: usize) -> ClientMemory {
        ClientMemory { global, shard, limit_bytes: Cell::new(0), alarm: Notify::default() }
    }

    pub fn set_limit(&self, bytes: u64) {
        self.limit_bytes.set(bytes);
    }

    #[inline]
    pub fn is_bounded(&self) -> bool {
        self.limit_bytes.get() > 0
    }

    /// Counts what a connection holds now.
    #[inline]
    pub fn count(&self, state: &mut State) {
        if self.is_bounded() {
            self.count_now(state);
        }
    }

    #[inline(never)]
    fn count_now(&self, state: &mut State) {
        let bytes = if state.flow.close == Close::Now { 0 } else { state.memory_bytes() };
        self.replace(state, bytes);
        if self.excess_bytes() > 0 {
            self.alarm.notify();
        }
    }

    /// Whether connections hold too much, and some of them are about to be ended, on whichever shard: what others would be
    /// answered waits until that has been done, and what any of them waits for stays where it is. (Where none may be ended,
    /// nobody waits.)
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_bounded() && self.ends_some_beyond(0)
    }

    /// Whether a connection has to wait for that, which has sent so many bytes and is owed as many. Those that have said
    /// little, and hear what they are answered, are not kept waiting by a crowd that does not; there is a bound to this, too.
    pub fn must_wait(&self, sent_bytes: usize, owed_bytes: usize) -> bool {
        let is_modest = sent_bytes <= MODEST_BYTES && owed_bytes == 0;
        self.ends_some_beyond(if is_modest { self.limit_bytes.get() / MODEST_PART } else { 0 })
    }

    #[inline(never)]
    fn ends_some_beyond(&self, excess: u64) -> bool {
        let may_end_some = || self.global.evictable_bytes.iter().any(|bytes| bytes.load(Ordering::Relaxed) > 0);
        self.excess_bytes() > excess && may_end_some()
    }

    /// Returns when that has been done.
    pub async fn not_full(&self) {
        while self.is_full() {
            sleep(ENDED_SOON).await;
        }
    }

    /// A connection is gone.
    pub fn forget(&self, state: &mut State) {
        self.replace(state, 0);
    }

    fn replace(&self, state: &mut State, bytes: usize) {
        let evictable_bytes = if state.may_be_evicted() { bytes } else { 0 };
        let before = std::mem::replace(&mut state.counted_bytes, bytes);
        change(&self.global.client_bytes[self.shard], before, bytes);
        let before = std::mem::replace(&mut state.counted_evictable_bytes, evictable_bytes);
        change(&self.global.evictable_bytes[self.shard], before, evictable_bytes);
    }

    /// What the connections of this shard hold.
    pub fn held_here(&self) -> u64 {
        self.global.client_bytes[self.shard].load(Ordering::Relaxed)
    }

    /// By how much the connections of all shards hold more than they may.
    pub fn excess_bytes(&self) -> u64 {
        self.excess_of(self.global.client_bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum())
    }

    /// By how much so many bytes are more.
    pub fn excess_of(&self, held: u64) -> u64 {
        if self.is_bounded() { held.saturating_sub(self.limit_bytes.get()) } else { 0 }
    }
}

/// A part of a sum is another number now. No other thread writes the sum.
fn change(sum: &AtomicU64, before: usize, now: usize) {
    if before != now {
        sum.store(sum.load(Ordering::Relaxed) + now as u64 - before as u64, Ordering::Relaxed);
    }
}
