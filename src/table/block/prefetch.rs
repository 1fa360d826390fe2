//! Asks the cache for what a search or a sweep will read of a block, so that several wait together.

use super::{Block, Print, STRIDE};
use crate::table::entry::Entry;
use crate::table::whole::Whole;

/// Bytes of a cache line.
const LINE: usize = 64;
/// How much of an entry is asked for before it is used.
const PREFETCHED_BYTES: usize = 1024;

impl Block {
    /// Asks the cache for what a sweep reads of the block, one level a call: 0 the head, 1 the deadlines of the parts in
    /// which something is due.
    pub fn prefetch_due(&self, before_ms: u64, level: usize) {
        if level == 0 {
            prefetch(self.address());
            prefetch(self.head_at());
            return;
        }
        self.groups_before(self.bound(before_ms)).for_each(|group| prefetch(&self.group(group).deadlines));
    }

    /// Asks the cache for what taking a slot's key out reads, one level a call: 0 its group, 1 the entry.
    #[inline]
    pub fn prefetch_slot(&self, slot: usize, level: usize) {
        match level {
            0 => prefetch(self.group_at(slot / STRIDE)),
            _ => self.prefetch_start(slot),
        }
    }

    /// Asks the cache for the group in which the key's search starts, and for where the block's deadlines count from and
    /// its chunks are.
    #[inline]
    pub fn prefetch_group(&self, print: Print) {
        let group = self.group_at(print.home(self.groups()));
        prefetch(group);
        prefetch(group.wrapping_byte_add(LINE));
        prefetch(self.address());
    }

    /// Asks the cache for the first candidate's entry or, where the key is new, for what says where it goes.
    #[inline]
    pub fn prefetch_entry(&self, candidate: Option<usize>, writes: bool) {
        if writes || candidate.is_none() {
            let head = self.head_at();
            prefetch(head);
            prefetch(head.wrapping_byte_add(LINE));
        }
        if let Some(slot) = candidate {
            self.prefetch_start(slot);
        }
    }

    /// A short entry lies over two lines more often than not.
    #[inline]
    fn prefetch_start(&self, slot: usize) {
        let at = self.in_heap(slot).as_ptr();
        prefetch(at);
        prefetch(at.wrapping_add(LINE * 3 / 4));
    }

    /// Asks the cache for the rest of the first candidate's entry, whose start has come by now, or for where a new one goes.
    /// An entry that is outside of the heap is only begun with, and returned.
    #[inline]
    pub fn prefetch_rest(&self, candidate: Option<usize>) -> Option<Whole> {
        let Some(slot) = candidate else {
            if let Some(end) = self.open_end() {
                prefetch(end);
                prefetch(end.wrapping_add(LINE));
            }
            return None;
        };
        let whole = self.whole(slot);
        match &whole {
            Some(whole) => prefetch(whole.address().as_ptr()),
            None => prefetch_long(self.entry(slot)),
        }
        whole
    }
}

/// Asks the cache for an entry whose start it has. A value longer than the cache's own prefetching helps with is left to
/// that.
#[inline]
pub fn prefetch_long(entry: Entry) {
    let start = entry.address() as usize;
    let end = start + entry.bytes().min(PREFETCHED_BYTES);
    for line in (start / LINE + 1..end.div_ceil(LINE)).map(|line| line * LINE) {
        prefetch(line as *const u8);
    }
}

#[inline]
pub fn prefetch<T>(target: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(target.cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = target;
}
