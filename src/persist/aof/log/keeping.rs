//! The threads beside the shards: one takes and writes what the shards hand over, one takes it while the first is held up by
//! a disk, and one syncs under `everysec`.

use super::{EVERY, GATHERED_FOR_READERS, GATHERED_WITHIN, Log, State};
use crate::config::Fsync;
use std::sync::atomic::{Ordering, fence};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Whom the last sync under `always` has let go on.
#[derive(Default)]
struct Group {
    /// Replies that had waited when the last sync began, and how many those were that it let out.
    waited: u64,
    size: u64,
    /// How long the last sync has lasted.
    lasted: Duration,
}

impl Log {
    /// The work of the thread that writes; under `always` it syncs, too.
    pub(super) fn carry(&self) {
        let (mut group, mut told_at) = (Group::default(), Instant::now());
        loop {
            let is_called = !self.is_on() && self.gather_for_readers(told_at);
            if !is_called && !self.feed.has_pushes() {
                self.carrier.sleep(None);
            }
            self.is_held_up.store(false, Ordering::Relaxed);
            // (A call may have been about what is taken already.)
            if self.fsync() == Fsync::Always && self.feed.has_pushes() {
                self.gather(&mut group);
            }
            told_at = Instant::now();
            let mut state = self.lock();
            if state.ends_now {
                return;
            }
            self.take_in(&mut state);
            let mut has_more = true;
            while has_more {
                (state, has_more) = self.write_all(state);
                if self.fsync() == Fsync::Always && state.position > state.synced && !state.is_broken {
                    let began = Instant::now();
                    state.carrier_syncs = true;
                    state = self.sync(state);
                    state.carrier_syncs = false;
                    group.lasted = began.elapsed();
                }
            }
        }
    }

    /// Whom the last sync has let go on has the next request ready in no time: one sync for all of them is better than two
    /// in turns.
    fn gather(&self, group: &mut Group) {
        let enough = group.waited + group.size;
        let (began, limit) = (Instant::now(), (group.lasted / 4).min(GATHERED_WITHIN));
        while group.size > 1 && self.held.load(Ordering::Relaxed) < enough {
            let Some(left) = limit.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else { break };
            self.gathers.store(enough, Ordering::Relaxed);
            self.carrier.sleep(Some(left));
        }
        self.gathers.store(0, Ordering::Relaxed);
        let held = self.held.load(Ordering::Relaxed);
        group.size = held - group.waited;
        group.waited = held;
    }

    /// Where there is no log nobody's reply waits for this thread: so it is not woken for each turn of a shard. What comes
    /// after a pause goes to the readers at once, and what follows soon goes together. (Who is in a hurry drains the feed.)
    /// Whether somebody has called, for this or for something else: then there may be something to do without any push.
    fn gather_for_readers(&self, told_at: Instant) -> bool {
        let rest = GATHERED_FOR_READERS.checked_sub(told_at.elapsed()).filter(|rest| !rest.is_zero());
        rest.is_some_and(|rest| {
            self.gathers.store(u64::MAX, Ordering::Relaxed);
            let is_called = self.carrier.sleep(Some(rest));
            self.gathers.store(0, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            is_called
        })
    }

    /// The work of the thread that takes what the shards hand over while the one that writes is held up: what waits is
    /// weighed, replies are let out that a slow disk holds, and whoever else reads the feed gets what has come.
    pub(super) fn stand_in(&self) {
        loop {
            self.deputy.sleep(None);
            let mut state = self.lock();
            if state.ends_now {
                return;
            }
            self.take_in(&mut state);
        }
    }

    /// The work of the thread that syncs under `everysec`, and tries again to write what could not be written.
    pub(super) fn keep(&self) {
        let mut state = self.lock();
        let (mut synced_at, mut tried_at) = (Instant::now(), Instant::now());
        while !state.ends_now {
            let is_due = self.fsync() == Fsync::EverySecond && state.position > state.synced && !state.is_broken;
            let wait = match is_due {
                true if self.rests.load(Ordering::Relaxed) => EVERY,
                true => EVERY.saturating_sub(synced_at.elapsed()),
                _ if self.has_failed() => EVERY,
                // Nothing is to be done until somebody says so.
                false => Duration::MAX,
            };
            if wait > Duration::ZERO {
                state.is_idle = wait == Duration::MAX;
                state = match wait {
                    Duration::MAX => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                    wait => self.wake.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0,
                };
                state.is_idle = false;
                if self.has_failed() && tried_at.elapsed() >= EVERY && !state.is_broken {
                    tried_at = Instant::now();
                    state = self.retry(state);
                }
                continue;
            }
            state = self.sync(state);
            synced_at = Instant::now();
        }
    }

    /// There may be room again.
    fn retry<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let (state, is_written) = self.write_again(state);
        if is_written {
            self.recover(&state);
            // The rest is the other thread's.
            self.carrier.call();
        }
        state
    }
}
