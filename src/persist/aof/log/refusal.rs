//! When clients' writes wait, or are refused: where more waits for the disk than may, and where the log cannot be written.

use super::{LATE, Log, STUCK, State};
use crate::config::Fsync;
use crate::observe::{log, memory};
use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What is wrong with the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub reason: String,
    /// Another file is needed.
    pub is_broken: bool,
}

impl Log {
    /// Whether nothing can be written at the moment.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Whether clients may not write.
    #[inline]
    pub fn refuses_writes(&self) -> bool {
        self.refuses.load(Ordering::Relaxed)
    }

    /// What is wrong, if anything is.
    pub fn trouble(&self) -> Option<Trouble> {
        self.trouble_of(&self.lock())
    }

    pub(super) fn trouble_of(&self, state: &State) -> Option<Trouble> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone().map(|reason| Trouble { reason, is_broken: state.is_broken })
    }

    /// Why writes are refused. (By now they may be taken again.)
    pub fn failure(&self) -> String {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failure {
            Some(reason) => reason.clone(),
            None if self.is_full() => format!(
                "the disk does not keep up, and {} bytes wait for it, which is more than aof-buffer-limit allows",
                self.waiting_bytes()
            ),
            // (It was so a moment ago, when the write was refused.)
            None => "the disk did not keep up".to_owned(),
        }
    }

    pub(super) fn fail(&self, what: &str, error: &io::Error) {
        let reason = log::reason(error);
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_none() {
            log::warning(format_args!("Error {what} the AOF file: {reason}"));
        }
        *failure = Some(reason);
        self.has_failed.store(true, Ordering::Relaxed);
        self.refuses.store(true, Ordering::Relaxed);
    }

    /// It can be written again, unless another file is needed for that.
    pub(super) fn recover(&self, state: &State) {
        if !state.is_broken {
            self.has_failed.store(false, Ordering::Relaxed);
            self.allow(state);
        }
    }

    /// Writes are taken again, where nothing is in the way. Where what was written before may be lost, they are refused until
    /// there is a base.
    pub(super) fn allow(&self, state: &State) {
        if self.has_failed() || state.is_broken || state.awaits_base && !state.is_new {
            return;
        }
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.take().is_some() {
            log::warning(format_args!("AOF write error looks solved, can write again."));
        }
        self.refuses.store(self.is_full(), Ordering::Relaxed);
    }

    /// So many bytes may wait for the disk.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(usize::try_from(bytes).unwrap_or(usize::MAX), Ordering::Relaxed);
        self.weigh(&self.lock());
    }

    /// Bytes that wait for the disk.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.load(Ordering::Relaxed) + self.feed.queued_bytes()
    }

    /// Whether more waits for the disk than may: then writes wait, too. (What waits for parts of transactions on other shards is
    /// not counted while a script lasts, or keys are on their way to another server: such parts may have to wait for that.)
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.is_crowded_with(0)
    }

    /// The same, where somebody is going to hand over so many bytes.
    #[inline]
    pub fn is_crowded_with(&self, more: usize) -> bool {
        let unplaced = || if self.feed.may_wait_for_long() { 0 } else { self.unplaced.load(Ordering::Relaxed) };
        let waiting = || self.unwritten.load(Ordering::Relaxed) + unplaced() + self.feed.queued_bytes() + more;
        self.is_on() && waiting() > self.limit.load(Ordering::Relaxed)
    }

    /// Whether that is so, and the disk does not move.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Looks how much waits for the disk.
    pub(super) fn weigh(&self, state: &State) {
        let in_memory = state.unplaced + state.ready + state.sealed;
        // What is in the file waits, too, where the sync that is to bring it to the disk does not end.
        let unsynced = match self.fsync() {
            Fsync::EverySecond if state.is_still_for(LATE) => state.position.saturating_sub(state.synced),
            _ => 0,
        };
        let unsynced = usize::try_from(unsynced).unwrap_or(usize::MAX);
        let waiting = in_memory + unsynced;
        self.waiting.store(waiting, Ordering::Relaxed);
        self.unwritten.store(state.ready + state.sealed + unsynced, Ordering::Relaxed);
        self.unplaced.store(state.unplaced, Ordering::Relaxed);
        memory::note_for_disk(in_memory - state.ready + state.ready.max(state.ready_room));
        let is_full = waiting > self.limit.load(Ordering::Relaxed) && (self.is_full() || state.is_still_for(STUCK));
        if is_full == self.is_full() {
            return;
        }
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_full.store(is_full, Ordering::Relaxed);
        self.refuses.store(is_full || failure.is_some(), Ordering::Relaxed);
        match is_full {
            true => log::warning(format_args!(
                "The disk does not keep up: {waiting} bytes wait for it to be written to the AOF file, and writes are refused."
            )),
            false => log::warning(format_args!("The disk keeps up with the AOF file again, and writes are taken.")),
        }
    }
}

impl State {
    /// The disk has been at work for so long, and has not moved.
    fn is_still_for(&self, time: Duration) -> bool {
        let lasts = |since: Option<Instant>| since.is_some_and(|since| since.elapsed() >= time);
        lasts(self.syncs_since) || lasts(self.moved_at)
    }
}
