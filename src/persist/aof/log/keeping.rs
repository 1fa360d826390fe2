//! The threads beside the shards: one writes and syncs, the other writes while the first waits for a slow disk.

use super::{EVERY, GATHERED_WITHIN, KEPT_BYTES, Log, State};
use crate::config::Fsync;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

impl Log {
    /// The thread's work.
    pub(super) fn keep(&self) {
        let mut state = self.lock();
        let mut synced_at = Instant::now();
        while !state.ends_now {
            let rests = self.rests.load(Ordering::Relaxed);
            let wait = match self.fsync() {
                Fsync::EverySecond if rests && state.position > state.synced => EVERY,
                Fsync::Always if state.has_work() && !self.has_failed() && state.open.is_some() => Duration::ZERO,
                Fsync::EverySecond if state.position > state.synced => EVERY.saturating_sub(synced_at.elapsed()),
                _ if self.has_failed() => EVERY,
                // Nothing is to be done until somebody says so.
                _ => Duration::MAX,
            };
            if wait > Duration::ZERO {
                state.is_idle = wait == Duration::MAX;
                state = match wait {
                    Duration::MAX => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                    wait => self.wake.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0,
                };
                state.is_idle = false;
                if self.has_failed() && synced_at.elapsed() >= EVERY && !state.is_broken {
                    synced_at = Instant::now();
                    state = self.retry(state);
                }
                let rests = self.rests.load(Ordering::Relaxed);
                let is_due = self.fsync() == Fsync::EverySecond && synced_at.elapsed() >= EVERY && !rests;
                if !is_due || state.position == state.synced {
                    continue;
                }
            }
            if state.is_writing() {
                state = self.until_written(state);
                continue;
            }
            if self.fsync() == Fsync::Always && state.has_ready() {
                state = self.gather(state);
                if state.is_writing() {
                    // A shard writes for itself: it was another way of syncing that it was told of.
                    continue;
                }
                state = self.write_batch(state).0;
            }
            if state.position > state.synced && !state.is_broken {
                state = self.sync(state);
            }
            synced_at = Instant::now();
            if self.fsync() != Fsync::Always {
                // What could not be written meanwhile.
                state = self.write(state);
            }
        }
    }

    /// Whom the last sync has let go on has the next request ready in no time: one sync for all of them is better than two
    /// in turns.
    fn gather<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let enough = state.waited + state.group;
        let (began, limit) = (Instant::now(), (state.lasted / 4).min(GATHERED_WITHIN));
        while state.group > 1 && self.held.load(Ordering::Relaxed) < enough && !state.ends_now {
            let Some(left) = limit.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else { break };
            state.gathers = Some(enough);
            state = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.gathers = None;
        let held = self.held.load(Ordering::Relaxed);
        state.group = held - state.waited;
        state.waited = held;
        state
    }

    /// There may be room again.
    fn retry<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.is_writing() {
            return state;
        }
        let (state, is_written) = self.write_batch(state);
        if is_written {
            self.recover(&state);
        }
        state
    }

    /// Writes what waits while the disk is slow, where that is much: no shard waits for such a disk.
    pub(super) fn keep_up(&self) {
        let mut state = self.lock();
        while !state.ends_now {
            let is_due = state.syncs_since.is_some() && state.ready.len() >= KEPT_BYTES;
            let may = !state.is_writing() && !self.has_failed() && self.fsync() != Fsync::Always;
            state = match is_due && may {
                true => self.write_batch(state).0,
                false => self.overflow.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}
