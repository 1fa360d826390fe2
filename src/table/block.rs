//! The unit of everything: a fixed number of slots kept in columns.
//!
//! ```text
//!  head       one cache line: what the column counts from, and the earliest deadline of each of its PARTS parts
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
/// What a slot takes of its block.
pub const SLOT_BYTES: usize = size_of::<Block>() / SLOTS;
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

/// The column's parts: a sweep reads only those in which something is due.
const PARTS: usize = 8;
const PART_SLOTS: usize = SLOTS / PARTS;

const POINTER: u64 = (1 << 48) - 1;
const OVERFLOW: usize = GROUP_SLOTS;

#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Group([u8; 16]);

#[repr(C, align(64))]
pub struct Block {
    /// What the column counts from, store milliseconds.
    pub base_ms: u64,
    /// Where on the line of positions the block's part starts ...
    pub position: u64,
    /// Index in the database's block table and in the minima.
    pub id: u32,
    len: u16,
    with_deadline: u16,
    /// How many of the deadlines are FAR.
    far: u16,
    /// ... and how many bits of a position it stands for.
    pub depth: u8,
    /// For each part of the column a value that is not later than its earliest deadline (FAR and NONE are no
    /// deadlines here); NONE where there are none.
    earliest: [u32; PARTS],
    groups: [Group; GROUPS],
    deadlines: [u32; SLOTS],
    words: [u64; SLOTS],
}

const _: () = assert!(size_of::<Block>() <= 8192 && std::mem::offset_of!(Block, groups) == 64);

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
        block.earliest.fill(NONE);
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

    /// The key's deadline in store milliseconds.
    #[inline]
    pub fn deadline_ms(&self, slot: usize) -> Option<u64> {
        let entry = || self.entry(slot);
        match self.deadlines[slot] {
            NONE => None,
            FAR => entry().far_deadline_ms(),
            _ if entry().has_fields() => entry().far_deadline_ms(),
            relative => Some(self.base_ms + u64::from(relative)),
        }
    }

    /// When the slot has to be looked at, for its key or its fields.
    #[inline]
    pub fn column_ms(&self, slot: usize) -> Option<u64> {
        match self.deadlines[slot] {
            NONE => None,
            FAR => self.entry(slot).far_deadline_ms(),
            relative => Some(self.base_ms + u64::from(relative)),
        }
    }

    #[inline]
    pub fn is_far(&self, slot: usize) -> bool {
        self.deadlines[slot] == FAR
    }

    #[inline]
    pub fn has_deadline(&self, slot: usize) -> bool {
        self.deadlines[slot] != NONE
    }

    /// Past what the column says: dead, for access and cycle alike, where it speaks of the key alone. A far deadline is
    /// checked in the entry, since the base may have stayed behind.
    #[inline]
    pub fn is_due(&self, slot: usize, now_ms: u64) -> bool {
        match self.deadlines[slot] {
            NONE => false,
            _ => self.column_ms(slot).is_some_and(|at_ms| now_ms > at_ms),
        }
    }

    #[inline]
    pub fn clear_deadline(&mut self, slot: usize) {
        if self.deadlines[slot] != NONE {
            self.far -= u16::from(self.deadlines[slot] == FAR);
            self.deadlines[slot] = NONE;
            self.with_deadline -= 1;
        }
    }

    /// Sets the column; returns the moment at which the slot has to be looked at, for the block's minimum. Where the
    /// deadline is out of reach (see [`Block::in_reach`]) the caller has put it into the entry.
    #[inline]
    pub fn set_deadline(&mut self, slot: usize, deadline_ms: u64) -> u64 {
        self.clear_deadline(slot);
        self.with_deadline += 1;
        if self.in_reach(deadline_ms) {
            let relative = deadline_ms.saturating_sub(self.base_ms);
            self.put_deadline(slot, relative as u32);
            self.base_ms + relative
        } else {
            self.deadlines[slot] = FAR;
            self.far += 1;
            deadline_ms - INTO_REACH_MS
        }
    }

    #[inline]
    fn put_deadline(&mut self, slot: usize, relative: u32) {
        self.deadlines[slot] = relative;
        let earliest = &mut self.earliest[slot / PART_SLOTS];
        *earliest = relative.min(*earliest);
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
            self.earliest = [NONE; PARTS];
        }
    }

    /// The relative deadline below which something is dead at `before_ms`.
    #[inline]
    fn bound(&self, before_ms: u64) -> u32 {
        before_ms.saturating_sub(self.base_ms).min(REACH_MS + 1) as u32
    }

    /// The slots whose deadline is earlier than `before_ms`, at most `limit` of them, are added to `out` in the order
    /// of slots. Far deadlines are never due here: a block whose minimum comes from one is first brought up to date
    /// by [`Block::move_base`].
    pub fn due(&self, before_ms: u64, limit: usize, out: &mut Vec<u16>) {
        let bound = self.bound(before_ms);
        let full = out.len() + limit;
        for part in (0..PARTS).filter(|&part| self.earliest[part] < bound) {
            let first = part * PART_SLOTS;
            for (index, &deadline) in self.deadlines[first..first + PART_SLOTS].iter().enumerate() {
                if deadline < bound {
                    if out.len() == full {
                        return;
                    }
                    out.push((first + index) as u16);
                }
            }
        }
    }

    /// Makes the earliest deadlines exact of those parts in which something was due before `before_ms`; returns when
    /// the block has to be looked at next: the exact minimum, where that is before `before_ms`.
    pub fn next_due_ms(&mut self, before_ms: u64) -> u64 {
        let bound = self.bound(before_ms);
        let parts = self.earliest.iter_mut().zip(self.deadlines.chunks_exact(PART_SLOTS));
        for (earliest, column) in parts.filter(|(earliest, _)| **earliest < bound) {
            let least = column.iter().copied().min().unwrap_or(NONE);
            *earliest = if least < FAR { least } else { NONE };
        }
        let earliest = self.earliest.iter().copied().min().unwrap_or(NONE);
        let near_ms = if earliest == NONE { NEVER_MS } else { self.base_ms + u64::from(earliest) };
        match self.earliest_far_ms() {
            NEVER_MS => near_ms,
            far_ms => near_ms.min(far_ms - INTO_REACH_MS),
        }
    }

    /// How many slots are due at `now_ms`.
    pub fn count_dead(&self, now_ms: u64) -> usize {
        let bound = self.bound(now_ms);
        let dead = |part: usize| {
            let column = &self.deadlines[part * PART_SLOTS..][..PART_SLOTS];
            column.iter().map(|&deadline| u32::from(deadline < bound)).sum::<u32>() as usize
        };
        let near: usize = (0..PARTS).filter(|&part| self.earliest[part] < bound).map(dead).sum();
        if self.far == 0 {
            return near;
        }
        near + self.far_slots().filter(|&slot| self.is_due(slot, now_ms)).count()
    }

    fn far_slots(&self) -> impl Iterator<Item = usize> + '_ {
        (0..SLOTS).filter(|&slot| self.deadlines[slot] == FAR)
    }

    fn earliest_far_ms(&self) -> u64 {
        if self.far == 0 {
            return NEVER_MS;
        }
        self.far_slots().filter_map(|slot| self.entry(slot).far_deadline_ms()).min().unwrap_or(NEVER_MS)
    }

    /// Whether far deadlines stand in the column that would be in reach of this base.
    pub fn has_come_into_reach(&self, base_ms: u64) -> bool {
        self.far > 0 && base_ms > self.base_ms && self.earliest_far_ms().saturating_sub(base_ms) <= REACH_MS
    }

    /// Moves the base forward to `to_ms`: relative deadlines become smaller, far ones that came into reach are
    /// taken into the column. A deadline before `to_ms`, near or far, would become later than it is: the earliest of
    /// them holds the base back. The entries' copies of the deadlines are left to the caller, whose `taken_in` is
    /// called with each slot.
    pub fn move_base(&mut self, to_ms: u64, mut taken_in: impl FnMut(&mut Block, usize)) {
        let earliest = self.deadlines.iter().copied().min().unwrap_or(NONE);
        let mut base_ms = to_ms.min(self.earliest_far_ms());
        if earliest < FAR {
            base_ms = base_ms.min(self.base_ms + u64::from(earliest));
        }
        let Some(step) = base_ms.checked_sub(self.base_ms) else { return };
        for deadline in self.deadlines.iter_mut().filter(|deadline| **deadline < FAR) {
            *deadline -= step as u32;
        }
        for earliest in self.earliest.iter_mut().filter(|earliest| **earliest < FAR) {
            // What it stands for may be gone, and the base be past it.
            *earliest = earliest.saturating_sub(step as u32);
        }
        self.base_ms = base_ms;
        for slot in 0..SLOTS {
            if self.deadlines[slot] != FAR {
                continue;
            }
            let deadline_ms = self.entry(slot).far_deadline_ms().unwrap_or(NEVER_MS);
            if self.in_reach(deadline_ms) {
                self.far -= 1;
                self.put_deadline(slot, deadline_ms.saturating_sub(base_ms) as u32);
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
        self.earliest.fill(NONE);
        self.len = 0;
        self.with_deadline = 0;
        self.far = 0;
    }

    /// Puts in what another block (or this one) gave away, whose column counted from `from_base_ms`, which is not
    /// later than this block's reach.
    pub fn take_in(&mut self, moved: &Moved, from_base_ms: u64) {
        let slot = self.insert(moved.print, moved.window, moved.entry);
        if moved.deadline == NONE {
            return;
        }
        self.with_deadline += 1;
        if moved.deadline == FAR {
            self.deadlines[slot] = FAR;
            self.far += 1;
        } else {
            // Bases differ only in a merge, where the earlier one is taken: the distance is added, and the caller
            // has made sure that the sum stays in reach.
            self.put_deadline(slot, (u64::from(moved.deadline) + (from_base_ms - self.base_ms)) as u32);
        }
    }

    /// Asks the cache for what a sweep reads of the block, one level a call: 0 the head, 1 the parts in which
    /// something is due.
    pub fn prefetch_due(&self, before_ms: u64, level: usize) {
        if level == 0 {
            prefetch(self);
            return;
        }
        let bound = self.bound(before_ms);
        for part in (0..PARTS).filter(|&part| self.earliest[part] < bound) {
            let column = &self.deadlines[part * PART_SLOTS..][..PART_SLOTS];
            column.iter().step_by(LINE / size_of::<u32>()).for_each(|line| prefetch(line));
            prefetch(&column[PART_SLOTS - 1]);
        }
    }

    /// Asks the cache for what taking a slot's key out reads: 0 its word and fingerprint, 1 its entry.
    #[inline]
    pub fn prefetch_slot(&self, slot: usize, level: usize) {
        if level == 0 {
            prefetch(&self.words[slot]);
            prefetch(&self.groups[slot / GROUP_SLOTS]);
        } else {
            prefetch((self.words[slot] & POINTER) as *const u8);
        }
    }

    /// Asks the cache for the group in which the key's search starts, and for the base without which a deadline says
    /// nothing.
    #[inline]
    pub fn prefetch_group(&self, print: Print) {
        prefetch(&self.groups[print.home()]);
        prefetch(&self.base_ms);
    }

    /// The slot that the search for a key looks at first.
    #[inline]
    pub fn candidate(&self, print: Print) -> Option<usize> {
        self.first_at_home(print, print.fingerprint)
    }

    /// The first slot of the key's home group with this fingerprint.
    #[inline]
    fn first_at_home(&self, print: Print, fingerprint: u8) -> Option<usize> {
        let home = print.home();
        let found = matches(&self.groups[home], fingerprint);
        (found != 0).then(|| home * GROUP_SLOTS + found.trailing_zeros() as usize)
    }

    /// Asks the cache for the first candidate's word and deadline, or, where the key is new, those of the slot that it
    /// will get.
    #[inline]
    pub fn prefetch_word(&self, print: Print) {
        if let Some(slot) = self.candidate(print).or_else(|| self.first_at_home(print, 0)) {
            prefetch(&self.words[slot]);
            prefetch(&self.deadlines[slot]);
        }
    }

    /// Asks the cache for the first candidate's entry.
    #[inline]
    pub fn prefetch_entry(&self, print: Print) {
        if let Some(slot) = self.candidate(print) {
            prefetch((self.words[slot] & POINTER) as *const u8);
        }
    }

    /// Asks the cache for the rest of the first candidate's entry, whose start has come by now. A value longer than
    /// the cache's own prefetching helps with is left to that.
    #[inline]
    pub fn prefetch_value(&self, print: Print) {
        if let Some(slot) = self.candidate(print) {
            let entry = self.entry(slot);
            let start = entry.address() as usize;
            let end = start + entry.allocated_bytes().min(PREFETCHED_BYTES);
            for line in (start / LINE + 1..end.div_ceil(LINE)).map(|line| line * LINE) {
                prefetch(line as *const u8);
            }
        }
    }

    /// The latest deadline that the column itself holds, to judge whether a merge keeps everything in reach.
    pub fn latest_in_column_ms(&self) -> Option<u64> {
        let latest = self.deadlines.iter().copied().filter(|&deadline| deadline < FAR).max()?;
        Some(self.base_ms + u64::from(latest))
    }

    #[cfg(test)]
    pub fn exact_minimum_ms(&self) -> u64 {
        let deadlines = self.full_slots().filter_map(|slot| {
            let deadline_ms = self.column_ms(slot)?;
            Some(if self.deadlines[slot] == FAR { deadline_ms - INTO_REACH_MS } else { deadline_ms })
        });
        deadlines.min().unwrap_or(NEVER_MS)
    }

    #[cfg(test)]
    pub fn check(&self) {
        let len = self.full_slots().count();
        assert_eq!(len, self.len());
        let with = (0..SLOTS).filter(|&slot| self.deadlines[slot] != NONE).count();
        assert_eq!(with, self.with_deadline());
        assert_eq!(self.far_slots().count(), self.far as usize);
        for slot in 0..SLOTS {
            if !self.is_full(slot) {
                assert_eq!(self.deadlines[slot], NONE, "an empty slot has no deadline");
            } else if self.deadlines[slot] == FAR {
                assert!(self.entry(slot).far_deadline_ms().is_some());
            } else {
                assert!(self.earliest[slot / PART_SLOTS] <= self.deadlines[slot], "a part's earliest is never late");
            }
        }
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;
/// How much of an entry is asked for before it is used.
const PREFETCHED_BYTES: usize = 1024;
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
