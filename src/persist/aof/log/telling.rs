//! How far the shards' pushes are: what replies wait for.

use super::{Log, Mark, SLOW, State};
use crate::observe::log;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// That replies do not wait for the file is not said more often.
const AHEAD_TOLD_EVERY: Duration = Duration::from_secs(60);

impl Log {
    /// Where nothing waits for the disk, pushes that have changed nothing do not either.
    pub(super) fn settle(&self, state: &mut State) {
        let is_idle = !state.has_ready() && !state.is_writing() && state.position == state.synced;
        if is_idle && state.certain != state.placed {
            state.certain.clone_from(&state.placed);
            if !state.awaits_base {
                self.tell(&state.certain);
            }
        }
    }

    /// So many pushes of each shard are in the file, or would be if the disk let them, or if no other shard let them wait for
    /// too long.
    pub(super) fn tell_kept(&self, state: &mut State) {
        if self.holds_replies() {
            state.is_ahead = false;
            return;
        }
        // (A sync that was begun under `always` may be in the way of the writes.)
        let is_kept_up = state.carrier_syncs && state.syncs_since.is_some_and(|since| since.elapsed() > SLOW);
        let is_hindered = state.is_slow(&self.is_at_disk) || is_kept_up || self.has_failed();
        let has_all = !state.has_ready() && !state.is_writing();
        let kept = |state: &State, shard: usize| match is_hindered || has_all {
            _ if state.late[shard] => self.pushed(shard),
            true => state.placed[shard],
            false => state.written[shard],
        };
        let goes_ahead = |(shard, mark): (usize, &Mark)| {
            (state.late[shard] || is_hindered && !has_all) && mark.kept.load(Ordering::SeqCst) < kept(state, shard)
        };
        let is_ahead = self.is_on() && self.marks.iter().enumerate().any(goes_ahead);
        if is_ahead && !state.is_ahead && state.ahead_told.is_none_or(|told| told.elapsed() > AHEAD_TOLD_EVERY) {
            let why = if is_hindered {
                "the disk is slow, or fails"
            } else {
                "a part of a transaction over several shards is late"
            };
            log::warning(format_args!(
                "Replies do not wait for the AOF file, since {why}: what they acknowledge would be lost with the process."
            ));
            state.ahead_told = Some(Instant::now());
        }
        state.is_ahead = is_ahead || state.is_ahead && (is_hindered || state.late.contains(&true));
        let mut any = false;
        for (shard, mark) in self.marks.iter().enumerate() {
            let kept = kept(state, shard);
            any |= mark.kept.fetch_max(kept, Ordering::SeqCst) < kept;
        }
        if any {
            self.ring();
        }
    }

    /// So many pushes of each shard are on the disk.
    pub(super) fn tell(&self, synced: &[u64]) {
        for (mark, synced) in self.marks.iter().zip(synced) {
            mark.synced.fetch_max(*synced, Ordering::SeqCst);
        }
        self.ring();
    }

    /// Rings for every shard that waits for the disk. (A shard may wait for any shard's pushes: so it is rung for when the
    /// marks of all of them are up to date.)
    pub(super) fn ring(&self) {
        for (mark, bell) in self.marks.iter().zip(&*self.bells) {
            if mark.awaits.load(Ordering::SeqCst) && mark.awaits.swap(false, Ordering::SeqCst) {
                bell.ring_from_outside();
            }
        }
    }
}
