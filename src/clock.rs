//! Store time, and what the wall clock says.
//!
//! Store time is CLOCK_BOOTTIME: it goes on while the machine sleeps and never sees a step of the wall clock.
//! Deadlines are kept in store milliseconds. Absolute arguments (EXPIREAT, PXAT) are converted with the wall offset
//! of that moment, and converted back when they are reported or written to disk.
//!
//! The offset is a whole number of milliseconds, so that nothing is rounded on either way: at start store time is set
//! forward by the part of a millisecond by which the wall clock is ahead of CLOCK_BOOTTIME (its phase). The kernel
//! steers both clocks alike, so the offset changes only when somebody sets the wall clock. Then it may get a fraction,
//! which is rounded up: no deadline becomes later by it, and an absolute deadline is still reported as it was given.

mod sequence;

pub use sequence::{Sequence, first_number_at, sequence_ms};

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

/// A moment in store time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    pub us: u64,
    pub ms: u64,
}

impl Now {
    pub fn from_us(us: u64) -> Now {
        Now { us, ms: us / 1000 }
    }

    pub fn from_ms(ms: u64) -> Now {
        Now { us: ms * 1000, ms }
    }
}

/// The earliest moment that a deadline can be. At the one before it, which is that of commands of a log and of a primary, nothing is
/// dead, not even what has died before this machine was started.
pub const FIRST_DEADLINE_MS: u64 = 1;

/// By how much store time is ahead of CLOCK_BOOTTIME, less than a millisecond.
static PHASE_US: OnceLock<u64> = OnceLock::new();
/// Wall minus store time, microseconds; shared by all shards so that they report the same.
static WALL_OFFSET_US: AtomicI64 = AtomicI64::new(i64::MIN);
/// The same for the time that the log's lines say, which no step of the wall clock changes; [`NO_OFFSET`] where there is no
/// log.
static LOG_OFFSET_MS: AtomicI64 = AtomicI64::new(NO_OFFSET);
const NO_OFFSET: i64 = i64::MIN;
/// The same for the lines of a log that are loaded just now.
static LOADED_OFFSET_MS: AtomicI64 = AtomicI64::new(NO_OFFSET);
/// A step of the wall clock by less than this is not told from the time between two readings.
const SAME_OFFSET_US: i64 = 200;
/// Readings of both clocks that took longer than this are repeated ...
const CLOSE_US: i64 = 5;
/// ... so many times at most: a thread may be held up between them.
const READINGS: usize = 8;
const US_A_MS: i64 = 1000;

/// A clock that is read once a batch. In tests it stands still until it is moved.
pub struct Clock {
    now: Cell<Now>,
    manual_wall_offset_us: Option<Cell<i64>>,
    /// The cached moment when the wall offset was last measured, and what that was, in microseconds: it takes three readings, and holds
    /// until the next batch.
    measured: Cell<Option<(Now, i64)>>,
    /// What it may not run ahead of.
    sequence: Option<Arc<Sequence>>,
}

impl Clock {
    pub fn system() -> Clock {
        let now = Cell::new(Now::from_us(store_us()));
        Clock { now, manual_wall_offset_us: None, measured: Cell::new(None), sequence: None }
    }

    /// A shard's clock, which goes with those of the others: it does not pass the moment of a transaction that is about
    /// to be sent.
    pub fn of_shard(sequence: Arc<Sequence>) -> Clock {
        Clock { sequence: Some(sequence), ..Clock::system() }
    }

    /// For tests. Its wall clock is ahead by a fraction of a millisecond besides, as one that was set may be.
    pub fn manual(start_ms: u64) -> Clock {
        Clock {
            now: Cell::new(Now::from_ms(start_ms)),
            manual_wall_offset_us: Some(Cell::new(1_700_000_000_000_750)),
            ..Clock::system()
        }
    }

    /// The cached moment.
    #[inline]
    pub fn now(&self) -> Now {
        self.now.get()
    }

    /// Reads the clock and caches what it says.
    #[inline]
    pub fn refresh(&self) -> Now {
        if self.manual_wall_offset_us.is_none() {
            let now = Now::from_us(store_us());
            let cached = self.now.get();
            if now.ms == cached.ms {
                self.now.set(now);
            } else {
                let allowed_ms = self.sequence.as_ref().map_or(u64::MAX, |sequence| sequence.earliest_ms());
                self.pass(if now.ms <= allowed_ms { now } else { Now::from_ms(allowed_ms) });
            }
        }
        self.now.get()
    }

    /// Is this late at least.
    pub fn pass(&self, moment: Now) {
        if moment > self.now.get() {
            self.now.set(moment);
        }
    }

    /// Moves a manual clock; the system's is not moved.
    pub fn advance_ms(&self, ms: u64) {
        if self.manual_wall_offset_us.is_some() {
            self.now.set(Now::from_us(self.now.get().us + ms * 1000));
        }
    }

    /// A step of the wall clock, for tests with a manual clock.
    pub fn step_wall_us(&self, by_us: i64) {
        if let Some(offset) = &self.manual_wall_offset_us {
            offset.set(offset.get() + by_us);
        }
    }

    /// Wall time (since 1970) minus store time, in milliseconds.
    pub fn wall_offset_ms(&self) -> i64 {
        match LOADED_OFFSET_MS.load(Ordering::Relaxed) {
            NO_OFFSET => self.real_offset_ms(),
            offset_ms => offset_ms,
        }
    }

    /// The same for somebody who asks what time it is, also while old lines are taken in.
    fn real_offset_ms(&self) -> i64 {
        let offset_us = self.manual_wall_offset_us.as_ref().map_or_else(|| self.measured_offset_us(), Cell::get);
        // Rounded up: what is given in wall time becomes a store time that is not later.
        -(-offset_us).div_euclid(US_A_MS)
    }

    fn measured_offset_us(&self) -> i64 {
        let now = self.now.get();
        match self.measured.get() {
            Some((then, offset_us)) if then == now => offset_us,
            _ => {
                let offset_us = wall_offset_us();
                self.measured.set(Some((now, offset_us)));
                offset_us
            }
        }
    }

    /// Milliseconds since 1970 for a store time, as the log says them.
    pub fn to_log_ms(&self, store_ms: u64) -> i64 {
        self.signed_to_log_ms(store_ms as i64)
    }

    /// [`Clock::to_log_ms`] for a time that may lie before the start of store time.
    pub fn signed_to_log_ms(&self, store_ms: i64) -> i64 {
        store_ms.saturating_add(self.log_offset_ms())
    }

    /// How far the times that the log's lines say are ahead of store time.
    pub fn log_offset_ms(&self) -> i64 {
        match LOG_OFFSET_MS.load(Ordering::Relaxed) {
            NO_OFFSET => self.wall_offset_ms(),
            offset_ms => offset_ms,
        }
    }

    /// Milliseconds since 1970 for a store time.
    pub fn to_wall_ms(&self, store_ms: u64) -> i64 {
        (store_ms as i64).saturating_add(self.wall_offset_ms())
    }

    /// Microseconds since 1970 for a store time, of which the milliseconds are those of [`Clock::to_wall_ms`] (but while
    /// old wall times are taken in: what time it is does not depend on them).
    pub fn to_wall_us(&self, store_us: u64) -> i64 {
        (store_us as i64).saturating_add(self.real_offset_ms().saturating_mul(US_A_MS))
    }

    /// Store time for milliseconds since 1970; what lies before the start of store time becomes [`FIRST_DEADLINE_MS`].
    pub fn to_store_ms(&self, wall_ms: i64) -> u64 {
        wall_ms.saturating_sub(self.wall_offset_ms()).max(FIRST_DEADLINE_MS as i64) as u64
    }
}

/// From now on the log's lines say times that are so far ahead of store time; those of the wall clock where there is no log.
pub fn set_log_offset(offset_ms: Option<i64>) {
    LOG_OFFSET_MS.store(offset_ms.unwrap_or(NO_OFFSET), Ordering::Relaxed);
}

/// Times that are taken in from now on are so far ahead of store time; those of the wall clock, where nothing is loaded.
pub fn set_loaded_offset(offset_ms: Option<i64>) {
    LOADED_OFFSET_MS.store(offset_ms.unwrap_or(NO_OFFSET), Ordering::Relaxed);
}

/// Store time in microseconds.
#[inline]
pub fn store_us() -> u64 {
    let phase_us = PHASE_US.get_or_init(|| {
        let (earliest_us, latest_us) = offset_of(boottime_us);
        earliest_us.midpoint(latest_us).rem_euclid(US_A_MS) as u64
    });
    boottime_us() + phase_us
}

/// Wall minus store time, microseconds: the one in use, unless the wall clock was set since.
fn wall_offset_us() -> i64 {
    let (earliest_us, latest_us) = offset_of(store_us);
    let kept_us = WALL_OFFSET_US.load(Ordering::Relaxed);
    if (earliest_us - SAME_OFFSET_US..=latest_us + SAME_OFFSET_US).contains(&kept_us) {
        return kept_us;
    }
    let measured_us = earliest_us.midpoint(latest_us);
    // Within the error of the measurement of a whole number, as it is until the wall clock is set: that number.
    let whole_us = (measured_us + US_A_MS / 2).div_euclid(US_A_MS) * US_A_MS;
    let offset_us = if (measured_us - whole_us).abs() <= SAME_OFFSET_US { whole_us } else { measured_us };
    WALL_OFFSET_US.store(offset_us, Ordering::Relaxed);
    offset_us
}

/// By how much the wall clock is ahead of another: at least and at most, as far as can be seen.
fn offset_of(other_us: impl Fn() -> u64) -> (i64, i64) {
    let read = || {
        let before_us = other_us() as i64;
        let wall_us = realtime_us() as i64;
        (wall_us - other_us() as i64, wall_us - before_us)
    };
    let width = |&(earliest_us, latest_us): &(i64, i64)| latest_us - earliest_us;
    let mut best = read();
    for _ in 1..READINGS {
        if width(&best) <= CLOSE_US {
            break;
        }
        best = std::cmp::min_by_key(best, read(), width);
    }
    best
}

#[inline]
fn boottime_us() -> u64 {
    read_us(libc::CLOCK_BOOTTIME)
}

/// Microseconds since 1970.
pub fn realtime_us() -> u64 {
    read_us(libc::CLOCK_REALTIME)
}

/// Nanoseconds of CPU time of the calling thread.
#[inline]
pub fn thread_cpu_ns() -> u64 {
    let time = read(libc::CLOCK_THREAD_CPUTIME_ID);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[inline]
fn read_us(clock: libc::clockid_t) -> u64 {
    let time = read(clock);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

#[inline]
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place to write to; the three clocks used here exist on every Linux this runs on.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_times_come_back_as_they_were_given() {
        let clock = Clock::system();
        for wall_ms in [1_900_000_000_000i64, 1_800_000_000_123, 4_000_000_000_000] {
            for _ in 0..1000 {
                assert_eq!(clock.to_wall_ms(clock.to_store_ms(wall_ms)), wall_ms);
            }
        }
    }

    /// The offset used to be cut to whole milliseconds: with a fraction of .75, three of four deadlines were a
    /// millisecond late.
    #[test]
    fn milliseconds_of_store_time_begin_with_those_of_the_wall_clock() {
        let (earliest_us, latest_us) = offset_of(store_us);
        let off_us = earliest_us.midpoint(latest_us).rem_euclid(US_A_MS);
        let error_us = SAME_OFFSET_US + (latest_us - earliest_us);
        assert!(off_us <= error_us || off_us >= US_A_MS - error_us, "{off_us} us after a wall clock's millisecond");
    }

    #[test]
    fn no_fraction_of_the_offset_makes_a_deadline_later() {
        for start_us in [0, 1, 250, 500, 750, 999] {
            let clock = Clock::manual(5_000);
            let wall_us = |clock: &Clock, store_us: i64| store_us + clock.manual_wall_offset_us.as_ref().unwrap().get();
            clock.step_wall_us(start_us - 750);
            for step_us in [0, 1, 499, 1_000, -3_000_001, 86_400_000_500] {
                clock.step_wall_us(step_us);
                let given_ms = 1_800_000_000_000;
                let store_ms = clock.to_store_ms(given_ms);
                assert_eq!(clock.to_wall_ms(store_ms), given_ms);
                // The last millisecond in which the key is seen ends within the one that was given, not after it, and
                // with a whole offset at its very end.
                let last_us = wall_us(&clock, store_ms as i64 * US_A_MS + US_A_MS - 1);
                let end_us = given_ms * US_A_MS + US_A_MS - 1;
                assert!((end_us - US_A_MS + 1..=end_us).contains(&last_us), "{last_us} {end_us}");
                if clock.manual_wall_offset_us.as_ref().unwrap().get() % US_A_MS == 0 {
                    assert_eq!(last_us, end_us);
                }
            }
        }
    }

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = Clock::manual(5_000);
        assert_eq!(clock.refresh().ms, 5_000);
        clock.advance_ms(7);
        assert_eq!(clock.now(), Now::from_ms(5_007));
        let wall_ms = clock.to_wall_ms(5_007);
        clock.step_wall_us(1_000_000);
        assert_eq!(clock.to_wall_ms(5_007), wall_ms + 1000);
    }
}
