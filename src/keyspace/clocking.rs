//! What the access clock of an entry says, 24 bits: when the key was used last, or when it was changed last, in seconds;
//! or how often it is used (16 bits of minutes, 8 of a logarithmic count; after Redis, `evict.c`).

//!
//! Times and counts are two meanings of one word. Where a policy of the other kind is chosen, the clocks of all keys are
//! renewed in slices: a count becomes the minute at which the key was counted last, and a time becomes the count of a new
//! key, so that all keys begin alike and none is the first to go for a meaning that its clock never had. Until the walk has
//! come to a key, its clock goes on in the former meaning, and whoever reads it is told the wanted one.

use super::Keyspace;
use crate::clock::Now;
use crate::config::{Config, EvictionOrder};
use crate::table::block::Block;
use crate::table::{Entry, Slot, Table};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clocked {
    Uses,
    Changes,
    Frequency,
    /// Some keys have clocks in a former meaning; counts are the one that is wanted.
    MixedCounts,
    /// Some keys have clocks in a former meaning; counts are not the one that is wanted.
    MixedUses,
}

#[derive(Clone, Copy, Debug)]
pub struct Clocking {
    pub clocked: Clocked,
    log_factor: u64,
    decay_min: u64,
}

/// What a new key has, so that it has time to be used.
const COUNT_OF_NEW: u32 = 5;
const COUNT_MAX: u32 = 255;
const MINUTES_MASK: u64 = 0xffff;

impl Default for Clocking {
    fn default() -> Clocking {
        Clocking { clocked: Clocked::Uses, log_factor: 10, decay_min: 1 }
    }
}

impl Clocking {
    pub fn of(config: &Config) -> Clocking {
        let clocked = match config.maxmemory_policy.order() {
            Some(EvictionOrder::Frequency) => Clocked::Frequency,
            Some(EvictionOrder::Modified) => Clocked::Changes,
            _ => Clocked::Uses,
        };
        Clocking { clocked, log_factor: config.lfu_log_factor, decay_min: config.lfu_decay_time_min }
    }

    pub fn counts(self) -> bool {
        self.clocked == Clocked::Frequency
    }

    pub fn of_new(self, now: Now) -> u32 {
        if self.counts() { minutes(now) << 8 | COUNT_OF_NEW } else { access_clock(now) }
    }

    /// A clock that says times for one that says counts, or the other way round.
    pub(super) fn translated(clock: u32, into_counts: bool, now: Now) -> u32 {
        if into_counts {
            return Clocking::of_frequency(COUNT_OF_NEW, now);
        }
        let elapsed_min = u64::from(minutes(now).wrapping_sub(clock >> 8)) & MINUTES_MASK;
        Clocking::of_idle_s(elapsed_min * 60, now)
    }

    /// The other meaning.
    fn other(self) -> Clocking {
        let clocked = if self.counts() { Clocked::Uses } else { Clocked::Frequency };
        Clocking { clocked, ..self }
    }

    /// A key is used: see [`Keyspace::find`].
    fn touch(self, entry: Entry, now: Now, rng: &mut fastrand::Rng) {
        match self.clocked {
            Clocked::Uses => entry.set_clock(access_clock(now)),
            Clocked::Frequency => self.count(entry, now, rng),
            Clocked::Changes | Clocked::MixedCounts | Clocked::MixedUses => {}
        }
    }

    /// A key that was used, where that is counted: it decays, and grows by chance, the less the higher it is.
    pub fn count(self, entry: Entry, now: Now, rng: &mut fastrand::Rng) {
        let mut count = self.frequency(entry.clock(), now);
        let above_new = u64::from(count.saturating_sub(COUNT_OF_NEW));
        if count < COUNT_MAX && rng.u64(..=above_new.saturating_mul(self.log_factor)) == 0 {
            count += 1;
        }
        entry.set_clock(minutes(now) << 8 | count);
    }

    /// How often a key is used, 0 to 255.
    pub fn frequency(self, clock: u32, now: Now) -> u32 {
        let (since, count) = (clock >> 8, clock & COUNT_MAX);
        let elapsed = u64::from(minutes(now).wrapping_sub(since)) & MINUTES_MASK;
        let lost = elapsed.checked_div(self.decay_min).unwrap_or(0);
        count.saturating_sub(lost.min(COUNT_MAX.into()) as u32)
    }

    /// The clock of a key that is used so often.
    pub fn of_frequency(count: u32, now: Now) -> u32 {
        minutes(now) << 8 | count.min(COUNT_MAX)
    }

    /// Seconds since a key was used last, or changed.
    pub fn idle_s(clock: u32, now: Now) -> u32 {
        access_clock(now).wrapping_sub(clock) & ACCESS_CLOCK_MAX
    }

    /// The clock of a key that has been idle for so long, as far as it can tell.
    pub fn of_idle_s(idle_s: u64, now: Now) -> u32 {
        access_clock(now).wrapping_sub(idle_s.min(ACCESS_CLOCK_MAX.into()) as u32) & ACCESS_CLOCK_MAX
    }
}

impl Keyspace {
    /// From now on access clocks mean this.
    pub fn set_clocking(&mut self, clocking: Clocking) {
        if clocking.counts() != self.clocking.counts() {
            self.dbs.iter_mut().for_each(Table::change_clocks);
        }
        self.clocking = clocking;
        self.look_at_clocks();
    }

    pub fn clocking(&self) -> Clocking {
        self.clocking
    }

    fn look_at_clocks(&mut self) {
        let is_mixed = self.dbs.iter().any(Table::has_former_clocks);
        self.clocked = match (is_mixed, self.clocking.counts()) {
            (false, _) => self.clocking.clocked,
            (true, true) => Clocked::MixedCounts,
            (true, false) => Clocked::MixedUses,
        };
    }

    /// Whether clocks of some keys have to be renewed.
    pub fn has_former_clocks(&self) -> bool {
        matches!(self.clocked, Clocked::MixedCounts | Clocked::MixedUses)
    }

    /// Renews the clocks of one block; whether there are more.
    pub fn renew_clocks(&mut self, now: Now) -> bool {
        let counts = self.clocking.counts();
        if let Some(table) = self.dbs.iter_mut().find(|table| table.has_former_clocks()) {
            table.renew_clocks(|clock| Clocking::translated(clock, counts, now));
        }
        self.look_at_clocks();
        self.has_former_clocks()
    }

    /// In which meaning a key has its clock now.
    fn clocking_of(&self, db: usize, hash: u64) -> Clocking {
        if self.dbs[db].has_former_clock(hash) { self.clocking.other() } else { self.clocking }
    }

    /// A key is used while clocks are being renewed.
    #[cold]
    pub(super) fn touch_mixed(&mut self, db: usize, slot: Slot, now: Now) {
        let entry = self.dbs[db].entry(slot);
        let clocking = self.clocking_of(db, self.hasher.hash(entry.key()));
        clocking.touch(entry, now, &mut self.rng);
    }

    /// The clock of a new key.
    #[inline]
    pub(super) fn clock_of_new(&self, db: usize, hash: u64, now: Now) -> u32 {
        if self.clocked == Clocked::Uses { access_clock(now) } else { self.clocking_of(db, hash).of_new(now) }
    }

    /// The clock in a slot, in the meaning that is wanted.
    pub(super) fn clock_in(&self, db: usize, block: &Block, slot: usize, now: Now) -> u32 {
        let entry = block.entry(slot);
        if self.has_former_clocks() && self.dbs[db].has_former_clock(self.hasher.hash(entry.key())) {
            Clocking::translated(entry.clock(), self.clocking.counts(), now)
        } else {
            entry.clock()
        }
    }
}

/// The 24-bit access clock counts seconds.
pub(super) fn access_clock(now: Now) -> u32 {
    (now.ms / 1000) as u32 & ACCESS_CLOCK_MAX
}

const ACCESS_CLOCK_MAX: u32 = (1 << 24) - 1;

fn minutes(now: Now) -> u32 {
    ((now.ms / 60_000) & MINUTES_MASK) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: u64 = 60_000;

    #[test]
    fn counts_decay_with_the_minutes() {
        let now = Now::from_ms(1_000_000 * MINUTE_MS);
        let after = |minutes: u64| Now::from_ms(now.ms + minutes * MINUTE_MS);
        let clocking = Clocking { clocked: Clocked::Frequency, ..Clocking::default() };
        let clock = Clocking::of_frequency(100, now);
        assert_eq!(
            [0, 1, 30, 200, 60_000].map(|minutes| clocking.frequency(clock, after(minutes))),
            [100, 99, 70, 0, 0]
        );
        let slowly = Clocking { decay_min: 10, ..clocking };
        assert_eq!([9, 10, 95].map(|minutes| slowly.frequency(clock, after(minutes))), [100, 99, 91]);
        let never = Clocking { decay_min: 0, ..clocking };
        assert_eq!(never.frequency(clock, after(60_000)), 100);
        assert_eq!(clocking.frequency(clocking.of_new(now), now), COUNT_OF_NEW);
    }
}
