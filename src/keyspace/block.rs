//! The unit of everything: a fixed number of slots kept in columns.
//!
//! ```text
//!  groups     GROUPS x 16 bytes: 15 fingerprints (0 = empty) and one count of keys that overflowed past the group
//!  deadlines  SLOTS x u32: milliseconds from `base_ms`, or FAR, or NONE
//!  words      SLOTS x u64: | 8 bits of hash | 8 bits of position | 48 bits of pointer |
//! ```
//!
//! A key's home group follows from its fingerprint and the word's hash bits, so that keys can be placed anew without
//! reading them. Probing is linear over groups and goes on while the group's overflow count is not zero, so there
//! are no tombstones. The position bits are the next bits of the directory position below the block's depth: a
//! split needs no key until they are used up (every eighth depth).

use super::entry::Entry;

/// A block fits two pages exactly, so that the allocator can give each back on its own.
pub const GROUPS: usize = 40;
pub const GROUP_SLOTS: usize = 15;
pub const SLOTS: usize = GROUPS * GROUP_SLOTS;
/// A block with this many keys splits before it takes another: 95 % of the slots.
pub const SPLIT_AT: usize = SLOTS * 95 / 100;
/// A block with fewer keys than this looks for its buddy to merge with ...
pub const MERGE_BELOW: usize = SLOTS * 2 / 5;
/// ... if both together stay under this, so that a merge is not undone by the next few inserts.
pub const MERGED_AT_MOST: usize = SLOTS * 70 / 100;

/// The column's mark for "no deadline". Both marks are above every relative deadline in unsigned order.
pub const NONE: u32 = u32::MAX;
/// The column's mark for a deadline that is out of the column's reach; its 64 bits are in the entry.
pub const FAR: u32 = u32::MAX - 1;
/// The latest deadline the column can hold, in milliseconds from the block's base (49.7 days).
pub const REACH_MS: u64 = FAR as u64 - 1;
/// A far deadline counts in the minimum as the moment when only this much is left (24.8 days): moving the base then
/// brings it into the column for good.
pub const INTO_REACH_MS: u64 = 1 << 31;
/// The base stays this far behind the clock: a command may carry a moment that is a little older than what the shard
/// has seen (a transaction that began elsewhere), and its deadlines must not fall before the base.
pub const BASE_BEHIND_MS: u64 = 60_000;
/// "No deadline in this block", as a minimum.
pub const NEVER_MS: u64 = u64::MAX;

const POINTER: u64 = (1 << 48) - 1;
const OVERFLOW: usize = GROUP_SLOTS;

#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Group([u8; 16]);

#[repr(C, align(64))]
pub struct Block {
    groups: [Group; GROUPS],
    deadlines: [u32; SLOTS],
    words: [u64; SLOTS],
    /// What the column counts from, store milliseconds.
    pub base_ms: u64,
    /// Index in the database's block table and in the minima.
    pub id: u32,
    len: u16,
    with_deadline: u16,
    /// How many bits of the position the block stands for ...
    pub depth: u8,
    /// ... and where on the line its part starts.
    pub position: u64,
}

/// The bits of a hash a block needs: fingerprint and eight more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Print {
    fingerprint: u8,
    bits: u8,
}

impl Print {
    #[inline]
    pub fn of(hash: u64) -> Print {
        let fingerprint = (hash >> 8) as u8;
        Print { fingerprint: if fingerprint == 0 { 1 } else { fingerprint }, bits: hash as u8 }
    }

    #[inline]
    fn home(self) -> usize {
        (((self.bits as usize) << 8 | self.fingerprint as usize) * GROUPS) >> 16
    }
}

/// The eight position bits that a word holds in a block of this depth.
#[inline]
pub fn window(position: u64, depth: u8) -> u8 {
    ((position << (depth & !7)) >> 56) as u8
}

/// A slot's content on its way from one block to another.
#[derive(Clone, Copy)]
pub struct Moved {
    pub print: Print,
    pub window: u8,
    pub entry: Entry,
    deadline: u32,
}

impl Block {
    pub fn new(id: u32, depth: u8, position: u64, base_ms: u64) -> Box<Block> {
        // SAFETY: all-zero bytes are a valid block (integers only), allocated with its own layout.
        let mut block = unsafe { Box::<Block>::new_zeroed().assume_init() };
        block.deadlines.fill(NONE);
        block.id = id;
        block.depth = depth;
        block.position = position;
        block.base_ms = base_ms;
        block
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub fn with_deadline(&self) -> usize {
        self.with_deadline as usize
    }

    /// The slot of the key with this print for which `is_it` says yes.
    #[inline]
    pub fn find(&self, print: Print, mut is_it: impl FnMut(Entry) -> bool) -> Option<usize> {
        let mut group = print.home();
        for _ in 0..GROUPS {
            let mut candidates = matches(&self.groups[group], print.fingerprint);
            while candidates != 0 {
                let slot = group * GROUP_SLOTS + candidates.trailing_zeros() as usize;
                candidates &= candidates - 1;
                let word = self.words[slot];
                if (word >> 56) as u8 == print.bits && is_it(Entry::from_address(word & POINTER)) {
                    return Some(slot);
                }
            }
            if self.groups[group].0[OVERFLOW] == 0 {
                return None;
            }
            group = if group + 1 == GROUPS { 0 } else { group + 1 };
        }
        None
    }

    /// Puts an entry without a deadline into a free slot. The caller makes sure that there is one.
    #[inline]
    pub fn insert(&mut self, print: Print, window: u8, entry: Entry) -> usize {
        let mut group = print.home();
        loop {
            let free = matches(&self.groups[group], 0);
            if free != 0 {
                let in_group = free.trailing_zeros() as usize;
                self.groups[group].0[in_group] = print.fingerprint;
                let slot = group * GROUP_SLOTS + in_group;
                self.words[slot] = entry.address() | (print.bits as u64) << 56 | (window as u64) << 48;
                self.len += 1;
                return slot;
            }
            let overflow = &mut self.groups[group].0[OVERFLOW];
            *overflow = overflow.saturating_add(1);
            group = if group + 1 == GROUPS { 0 } else { group + 1 };
        }
    }

    /// Empties the slot; the entry is the caller's again.
    #[inline]
    pub fn remove(&mut self, slot: usize) -> Entry {
        let print = self.print(slot);
        let entry = self.entry(slot);
        self.clear_deadline(slot);
        let group = slot / GROUP_SLOTS;
        self.groups[group].0[slot % GROUP_SLOTS] = 0;
        self.len -= 1;
        let mut passed = print.home();
        while passed != group {
            // A saturated count has forgotten how many there were: it stays until the block is built anew.
            let overflow = &mut self.groups[passed].0[OVERFLOW];
            if *overflow != u8::MAX {
                *overflow -= 1;
            }
            passed = if passed + 1 == GROUPS { 0 } else { passed + 1 };
        }
        entry
    }

    #[inline]
    pub fn entry(&self, slot: usize) -> Entry {
        Entry::from_address(self.words[slot] & POINTER)
    }

    #[inline]
    pub fn set_entry(&mut self, slot: usize, entry: Entry) {
        self.words[slot] = self.words[slot] & !POINTER | entry.address();
    }

    #[inline]
    pub fn is_full(&self, slot: usize) -> bool {
        self.groups[slot / GROUP_SLOTS].0[slot % GROUP_SLOTS] != 0
    }

    #[inline]
    pub fn print(&self, slot: usize) -> Print {
        let fingerprint = self.groups[slot / GROUP_SLOTS].0[slot % GROUP_SLOTS];
        Print { fingerprint, bits: (self.words[slot] >> 56) as u8 }
    }

    /// Eight bits of the hash that are independent of the position: they order the keys inside a block for SCAN.
    #[inline]
    pub fn hash_bits(&self, slot: usize) -> u8 {
        (self.words[slot] >> 56) as u8
    }

    #[inline]
    pub fn window(&self, slot: usize) -> u8 {
        (self.words[slot] >> 48) as u8
    }

    /// The slots in use, in order.
    pub fn full_slots(&self) -> impl Iterator<Item = usize> + '_ {
        self.groups
            .iter()
            .enumerate()
            .flat_map(|(index, group)| Bits(!matches(group, 0) & FULL_GROUP).map(move |bit| index * GROUP_SLOTS + bit))
    }

    /// The deadline in store milliseconds.
    #[inline]
    pub fn deadline_ms(&self, slot: usize) -> Option<u64> {
        match self.deadlines[slot] {
            NONE => None,
            FAR => self.entry(slot).far_deadline_ms(),
            relative => Some(self.base_ms + u64::from(relative)),
        }
    }

    #[inline]
    pub fn has_deadline(&self, slot: usize) -> bool {
        self.deadlines[slot] != NONE
    }

    /// Dead, for access and cycle alike: now is past the deadline. A far deadline is checked in the entry, since the
    /// base may have stayed behind.
    #[inline]
    pub fn is_dead(&self, slot: usize, now_ms: u64) -> bool {
        match self.deadlines[slot] {
            NONE => false,
            _ => self.deadline_ms(slot).is_some_and(|deadline_ms| now_ms > deadline_ms),
        }
    }

    #[inline]
    pub fn clear_deadline(&mut self, slot: usize) {
        if self.deadlines[slot] != NONE {
            self.deadlines[slot] = NONE;
            self.with_deadline -= 1;
        }
    }

    /// Sets the column; returns the moment at which the slot has to be looked at, for the block's minimum. Where the
    /// deadline is out of reach (see [`Block::in_reach`]) the caller has put it into the entry.
    #[inline]
    pub fn set_deadline(&mut self, slot: usize, deadline_ms: u64) -> u64 {
        if self.deadlines[slot] == NONE {
            self.with_deadline += 1;
        }
        if self.in_reach(deadline_ms) {
            let relative = deadline_ms.saturating_sub(self.base_ms);
            self.deadlines[slot] = relative as u32;
            self.base_ms + relative
        } else {
            self.deadlines[slot] = FAR;
            deadline_ms - INTO_REACH_MS
        }
    }

    #[inline]
    pub fn in_reach(&self, deadline_ms: u64) -> bool {
        deadline_ms.saturating_sub(self.base_ms) <= REACH_MS
    }

    /// An empty deadline column starts to count anew from here.
    #[inline]
    pub fn refresh_base(&mut self, base_ms: u64) {
        if self.with_deadline == 0 {
            self.base_ms = base_ms;
        }
    }

    /// The slots whose deadline is earlier than `before_ms`, at most `limit` of them, in the order of slots. Far
    /// deadlines are never due here: a block whose minimum comes from one is first brought up to date by
    /// [`Block::move_base`].
    pub fn due(&self, before_ms: u64, limit: usize, out: &mut Vec<u16>) {
        out.clear();
        let Some(span_ms) = before_ms.checked_sub(self.base_ms) else { return };
        let bound = span_ms.min(REACH_MS + 1) as u32;
        for (chunk, column) in self.deadlines.chunks_exact(CHUNK).enumerate() {
            // The compiler turns this into a few vector compares; most chunks have nothing due.
            let count = column.iter().map(|&deadline| u32::from(deadline < bound)).sum::<u32>();
            if count == 0 {
                continue;
            }
            for (index, &deadline) in column.iter().enumerate() {
                if deadline < bound {
                    if out.len() == limit {
                        return;
                    }
                    out.push((chunk * CHUNK + index) as u16);
                }
            }
        }
    }

    /// How many keys are dead at `now_ms`.
    pub fn count_dead(&self, now_ms: u64) -> usize {
        let Some(span_ms) = now_ms.checked_sub(self.base_ms) else { return 0 };
        let bound = span_ms.min(REACH_MS + 1) as u32;
        let near = self.deadlines.iter().map(|&deadline| u32::from(deadline < bound)).sum::<u32>() as usize;
        if span_ms < INTO_REACH_MS {
            return near;
        }
        near + self.full_slots().filter(|&slot| self.deadlines[slot] == FAR && self.is_dead(slot, now_ms)).count()
    }

    /// The exact minimum: when the block has to be looked at next.
    pub fn next_due_ms(&self) -> u64 {
        let earliest = self.deadlines.iter().copied().min().unwrap_or(NONE);
        let mut next = if earliest < FAR { self.base_ms + u64::from(earliest) } else { NEVER_MS };
        if self.with_deadline > 0 && self.deadlines.contains(&FAR) {
            for slot in self.full_slots().filter(|&slot| self.deadlines[slot] == FAR) {
                let deadline_ms = self.entry(slot).far_deadline_ms().unwrap_or(NEVER_MS);
                next = next.min(deadline_ms.saturating_sub(INTO_REACH_MS));
            }
        }
        next
    }

    /// Whether far deadlines stand in the column that would be in reach of this base.
    pub fn has_come_into_reach(&self, base_ms: u64) -> bool {
        // The column is asked first: the sweep of a block without far deadlines pays one vectorized pass for this.
        self.with_deadline > 0
            && base_ms > self.base_ms
            && self.deadlines.contains(&FAR)
            && self.full_slots().any(|slot| {
                self.deadlines[slot] == FAR
                    && self.entry(slot).far_deadline_ms().is_some_and(|at_ms| at_ms.saturating_sub(base_ms) <= REACH_MS)
            })
    }

    /// Moves the base forward to `to_ms`: relative deadlines become smaller, far ones that came into reach are
    /// taken into the column. A deadline before `to_ms`, near or far, would become later than it is: the earliest of
    /// them holds the base back. The entries' copies of the deadlines are left to the caller, whose `taken_in` is
    /// called with each slot.
    pub fn move_base(&mut self, to_ms: u64, mut taken_in: impl FnMut(&mut Block, usize)) {
        let earliest = self.deadlines.iter().copied().min().unwrap_or(NONE);
        let mut base_ms = to_ms;
        if earliest < FAR {
            base_ms = base_ms.min(self.base_ms + u64::from(earliest));
        }
        for slot in (0..SLOTS).filter(|&slot| self.deadlines[slot] == FAR) {
            base_ms = base_ms.min(self.entry(slot).far_deadline_ms().unwrap_or(NEVER_MS));
        }
        let Some(step) = base_ms.checked_sub(self.base_ms) else { return };
        for deadline in self.deadlines.iter_mut().filter(|deadline| **deadline < FAR) {
            *deadline -= step as u32;
        }
        self.base_ms = base_ms;
        for slot in 0..SLOTS {
            if self.deadlines[slot] != FAR {
                continue;
            }
            let deadline_ms = self.entry(slot).far_deadline_ms().unwrap_or(NEVER_MS);
            if self.in_reach(deadline_ms) {
                self.deadlines[slot] = deadline_ms.saturating_sub(base_ms) as u32;
                taken_in(self, slot);
            }
        }
    }

    /// Takes everything out, for a split or a merge.
    pub fn drain(&mut self, out: &mut Vec<Moved>) {
        for slot in 0..SLOTS {
            if self.is_full(slot) {
                out.push(Moved {
                    print: self.print(slot),
                    window: self.window(slot),
                    entry: self.entry(slot),
                    deadline: self.deadlines[slot],
                });
            }
        }
        self.groups.fill(Group([0; 16]));
        self.deadlines.fill(NONE);
        self.len = 0;
        self.with_deadline = 0;
    }

    /// Puts in what another block (or this one) gave away, whose column counted from `from_base_ms`, which is not
    /// later than this block's reach.
    pub fn take_in(&mut self, moved: &Moved, from_base_ms: u64) {
        let slot = self.insert(moved.print, moved.window, moved.entry);
        if moved.deadline == NONE {
            return;
        }
        self.with_deadline += 1;
        self.deadlines[slot] = if moved.deadline == FAR {
            FAR
        } else {
            // Bases differ only in a merge, where the earlier one is taken: the distance is added, and the caller
            // has made sure that the sum stays in reach.
            (u64::from(moved.deadline) + (from_base_ms - self.base_ms)) as u32
        };
    }

    /// Asks the cache for the group in which the key's search starts, and for the base without which a deadline says
    /// nothing.
    #[inline]
    pub fn prefetch_group(&self, print: Print) {
        prefetch(&self.groups[print.home()]);
        prefetch(&self.base_ms);
    }

    /// Asks the cache for the first candidate's word and deadline, or, where the key is new, those of the slot that it
    /// will get.
    #[inline]
    pub fn prefetch_word(&self, print: Print) {
        let home = print.home();
        let mut candidates = matches(&self.groups[home], print.fingerprint);
        if candidates == 0 {
            candidates = matches(&self.groups[home], 0);
        }
        if candidates != 0 {
            let slot = home * GROUP_SLOTS + candidates.trailing_zeros() as usize;
            prefetch(&self.words[slot]);
            prefetch(&self.deadlines[slot]);
        }
    }

    /// Asks the cache for the first candidate's entry.
    #[inline]
    pub fn prefetch_entry(&self, print: Print) {
        let home = print.home();
        let candidates = matches(&self.groups[home], print.fingerprint);
        if candidates != 0 {
            let slot = home * GROUP_SLOTS + candidates.trailing_zeros() as usize;
            prefetch((self.words[slot] & POINTER) as *const u8);
        }
    }

    /// The latest deadline that the column itself holds, to judge whether a merge keeps everything in reach.
    pub fn latest_in_column_ms(&self) -> Option<u64> {
        let latest = self.deadlines.iter().copied().filter(|&deadline| deadline < FAR).max()?;
        Some(self.base_ms + u64::from(latest))
    }

    #[cfg(test)]
    pub fn check(&self) {
        let len = self.full_slots().count();
        assert_eq!(len, self.len());
        let with = (0..SLOTS).filter(|&slot| self.deadlines[slot] != NONE).count();
        assert_eq!(with, self.with_deadline());
        for slot in 0..SLOTS {
            if !self.is_full(slot) {
                assert_eq!(self.deadlines[slot], NONE, "an empty slot has no deadline");
            } else if self.deadlines[slot] == FAR {
                assert!(self.entry(slot).far_deadline_ms().is_some());
            }
        }
    }
}

const CHUNK: usize = 60;
const FULL_GROUP: u32 = (1 << GROUP_SLOTS) - 1;

/// One bit for each of the group's fingerprints that equals the given one.
#[inline]
fn matches(group: &Group, fingerprint: u8) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_set1_epi8};
        // SAFETY: SSE2 is part of x86-64; a group is 16 bytes, aligned to 16.
        unsafe {
            let tags = _mm_load_si128(group.0.as_ptr().cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8(fingerprint as i8))) as u32 & FULL_GROUP
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let mut bits = 0;
        for (index, &tag) in group.0[..GROUP_SLOTS].iter().enumerate() {
            bits |= u32::from(tag == fingerprint) << index;
        }
        bits
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

/// The set bits, lowest first.
struct Bits(u32);

impl Iterator for Bits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}
