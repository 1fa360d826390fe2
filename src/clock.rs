//! Store time, and what the wall clock says.
//!
//! Store time is CLOCK_BOOTTIME: it goes on while the machine sleeps and never sees a step of the wall clock.
//! Deadlines are kept in store milliseconds. Absolute arguments (EXPIREAT, PXAT) are converted with the wall offset
//! of that moment, and converted back when they are reported or written to disk.
//!
//! Both clocks are steered by the kernel in the same way, so the offset changes only when somebody sets the wall
//! clock; a difference of a millisecond or two is the time between the two readings and is ignored, so that an
//! absolute deadline is reported as it was given.

mod sequence;

pub use sequence::{Sequence, sequence_ms};

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

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

/// Wall minus store time, milliseconds; shared by all shards so that they report the same.
static WALL_OFFSET_MS: AtomicI64 = AtomicI64::new(i64::MIN);
/// Offsets that differ by no more than this are the same offset read at different moments.
const SAME_OFFSET_MS: i64 = 2;

/// A clock that is read once a batch. In tests it stands still until it is moved.
pub struct Clock {
    now: Cell<Now>,
    manual_wall_offset_ms: Option<Cell<i64>>,
    /// What it may not run ahead of.
    sequence: Option<Arc<Sequence>>,
}

impl Clock {
    pub fn system() -> Clock {
        Clock { now: Cell::new(Now::from_us(boottime_us())), manual_wall_offset_ms: None, sequence: None }
    }

    /// A shard's clock, which goes with those of the others: it does not pass the moment of a transaction that is about
    /// to be sent.
    pub fn of_shard(sequence: Arc<Sequence>) -> Clock {
        Clock { sequence: Some(sequence), ..Clock::system() }
    }

    pub fn manual(start_ms: u64) -> Clock {
        Clock {
            now: Cell::new(Now::from_ms(start_ms)),
            manual_wall_offset_ms: Some(Cell::new(1_700_000_000_000)),
            sequence: None,
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
        if self.manual_wall_offset_ms.is_none() {
            let now = Now::from_us(boottime_us());
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
        if self.manual_wall_offset_ms.is_some() {
            self.now.set(Now::from_us(self.now.get().us + ms * 1000));
        }
    }

    /// A step of the wall clock, for tests with a manual clock.
    pub fn step_wall_ms(&self, by_ms: i64) {
        if let Some(offset) = &self.manual_wall_offset_ms {
            offset.set(offset.get() + by_ms);
        }
    }

    /// Wall time (since 1970) minus store time, in milliseconds.
    pub fn wall_offset_ms(&self) -> i64 {
        if let Some(offset) = &self.manual_wall_offset_ms {
            return offset.get();
        }
        let measured_ms = (realtime_us() as i64 - boottime_us() as i64) / 1000;
        let kept_ms = WALL_OFFSET_MS.load(Ordering::Relaxed);
        if kept_ms != i64::MIN && (measured_ms - kept_ms).abs() <= SAME_OFFSET_MS {
            return kept_ms;
        }
        WALL_OFFSET_MS.store(measured_ms, Ordering::Relaxed);
        measured_ms
    }

    /// Milliseconds since 1970 for a store time.
    pub fn to_wall_ms(&self, store_ms: u64) -> i64 {
        (store_ms as i64).saturating_add(self.wall_offset_ms())
    }

    /// Store time for milliseconds since 1970; what lies before the start of store time becomes zero.
    pub fn to_store_ms(&self, wall_ms: i64) -> u64 {
        wall_ms.saturating_sub(self.wall_offset_ms()).max(0) as u64
    }
}

/// Microseconds of CLOCK_BOOTTIME.
#[inline]
pub fn boottime_us() -> u64 {
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

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = Clock::manual(5_000);
        assert_eq!(clock.refresh().ms, 5_000);
        clock.advance_ms(7);
        assert_eq!(clock.now(), Now::from_ms(5_007));
        let wall_ms = clock.to_wall_ms(5_007);
        clock.step_wall_ms(1000);
        assert_eq!(clock.to_wall_ms(5_007), wall_ms + 1000);
    }
}
