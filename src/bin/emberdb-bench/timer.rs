//! Waiting for less than a millisecond: epoll counts in milliseconds, a timerfd in nanoseconds.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub struct Timer(OwnedFd);

impl Timer {
    pub fn new() -> io::Result<Timer> {
        // SAFETY: no memory is touched.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else's.
        Ok(Timer(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Becomes readable once, so long from now. An earlier setting is forgotten.
    pub fn set(&self, ns: u64) {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000).max(1) as i64 };
        let setting = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: a timer of ours and a valid setting; the former one is not wanted.
        unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &setting, std::ptr::null_mut()) };
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
