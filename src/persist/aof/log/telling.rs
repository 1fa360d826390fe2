//! How far the shards' pushes are: what replies wait for.

use super::{Log, SLOW, State};
use crate::observe::log;
use std::sync::atomic::Ordering;

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
            return;
        }
        // (A sync that was begun under `always` may be in the way of the writes.)
        let is_kept_up = state.carrier_syncs && state.syncs_since.is_some_and(|since| since.elapsed() > SLOW);
        let is_hindered = state.is_slow(&self.is_at_disk) || is_kept_up || self.has_failed();
        let has_all = !state.has_ready() && !state.is_writing();
        let (mut any, mut is_ahead) = (false, false);
        for (shard, mark) in self.marks.iter().enumerate() {
            let kept = match is_hindered || has_all {
                _ if state.late[shard] => self.pushed(shard),
                true => state.placed[shard],
                false => state.written[shard],
            };
            let is_more = mark.kept.fetch_max(kept, Ordering::SeqCst) < kept;
            any |= is_more;
            is_ahead |= is_more && (state.late[shard] || is_hindered && !has_all);
        }
        if is_ahead && !state.is_ahead {
            let why = if is_hindered {
                "the disk is slow, or fails"
            } else {
                "a part of a transaction over several shards is late"
            };
            log::warning(format_args!(
                "Replies do not wait for the AOF file, since {why}: what they acknowledge would be lost with the process."
            ));
        }
        state.is_ahead = is_ahead || state.is_ahead && (is_hindered || state.late.contains(&true));
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
