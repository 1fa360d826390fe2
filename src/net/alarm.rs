//! A timer that ends a wait in epoll at a moment. (epoll's own limit counts in milliseconds, and what rounds it up is late
//! for every deadline.)

use crate::clock::store_us;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

pub struct Alarm {
    timer: OwnedFd,
    /// The moment for which it is set, store microseconds; one that has passed rings no more.
    set_us: Cell<u64>,
}

impl Alarm {
    /// # Errors
    /// Too many open files.
    pub fn new() -> io::Result<Alarm> {
        // The clock is that of store time: an alarm goes off when a machine wakes up behind the moment.
        // SAFETY: no memory is touched; the result is checked.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_BOOTTIME, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: open and ours.
        let timer = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Alarm { timer, set_us: Cell::new(0) })
    }

    pub fn fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }

    /// Rings at this moment at the latest. One that is set for an earlier moment stays: to be woken once for nothing costs
    /// less than to set it twice.
    pub fn ring_by(&self, at_us: Option<u64>) {
        let Some(at_us) = at_us else { return };
        if self.set_us.get() > at_us || self.set_us.get() <= store_us() {
            self.set(at_us);
        }
    }

    fn set(&self, at_us: u64) {
        // (No rest at all would take the alarm back.)
        let rest = Duration::from_micros(at_us.saturating_sub(store_us()).clamp(1, LONGEST_US));
        let mut setting = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        };
        setting.it_value.tv_sec = rest.as_secs() as libc::time_t;
        setting.it_value.tv_nsec = rest.subsec_nanos().into();
        // SAFETY: valid settings, and an open descriptor.
        unsafe { libc::timerfd_settime(self.fd(), 0, &setting, std::ptr::null_mut()) };
        self.set_us.set(at_us);
    }
}

/// What is further away is looked at again then.
const LONGEST_US: u64 = 3_600_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn rings_within(alarm: &Alarm, limit: Duration) -> bool {
        let mut entry = libc::pollfd { fd: alarm.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry to read and write.
        unsafe { libc::poll(&mut entry, 1, limit.as_millis() as libc::c_int) == 1 }
    }

    #[test]
    fn the_earliest_moment_is_the_one_at_which_it_rings() {
        let alarm = Alarm::new().expect("a timer");
        alarm.ring_by(None);
        assert!(!rings_within(&alarm, Duration::ZERO));
        let hour_us = store_us() + 3_600_000_000;
        alarm.ring_by(Some(hour_us));
        assert_eq!(alarm.set_us.get(), hour_us);
        let soon_us = store_us() + 300;
        alarm.ring_by(Some(soon_us));
        // A later one leaves it as it is.
        alarm.ring_by(Some(soon_us + 50_000_000));
        assert_eq!(alarm.set_us.get(), soon_us);
        assert!(rings_within(&alarm, Duration::from_secs(10)));
        assert!(store_us() >= soon_us, "it has not rung before its moment");
        // It has rung: the next is set, however far away; and what has passed rings at once.
        alarm.ring_by(Some(hour_us));
        assert_eq!(alarm.set_us.get(), hour_us);
        assert!(!rings_within(&alarm, Duration::ZERO));
        alarm.ring_by(Some(soon_us));
        assert!(rings_within(&alarm, Duration::from_secs(10)));
        alarm.ring_by(Some(u64::MAX));
        assert_eq!(alarm.set_us.get(), u64::MAX);
    }
}
