//! How a shard that waits is woken, by another shard or by any thread.
//!
//! Who leaves mail looks whether the other waits; who goes to wait says so and then looks for mail once more. A fence
//! between the two steps on each side makes sure that one of the two sees the other.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering, fence};

/// What a shard shows the others: whether it waits, where to ring, and that it is alive.
pub struct Bell {
    waits: AtomicBool,
    /// The ring of the shard, where it has one; 0 before that.
    ring: AtomicI32,
    /// An eventfd, to which any thread can write, and which the shard always reads.
    event: OwnedFd,
    /// It was written to by others than shards that leave mail.
    from_outside: AtomicBool,
    /// The shard's thread, as the system knows it; 0 before it beats.
    thread: AtomicI32,
    beats: AtomicU64,
}

impl Bell {
    /// A bell for each shard.
    ///
    /// # Errors
    /// Too many open files.
    pub fn for_all(shards: usize) -> io::Result<Arc<[Bell]>> {
        (0..shards).map(|_| Bell::new()).collect()
    }

    fn new() -> io::Result<Bell> {
        // SAFETY: no preconditions; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: open and ours.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        let (waits, from_outside) = (AtomicBool::new(false), AtomicBool::new(false));
        let (ring, thread, beats) = (AtomicI32::new(0), AtomicI32::new(0), AtomicU64::new(0));
        Ok(Bell { waits, ring, event, from_outside, thread, beats })
    }

    /// Other rings may ring this one.
    pub(super) fn hang_up(&self, ring: RawFd) {
        self.ring.store(ring, Ordering::Release);
    }

    /// The shard's thread runs.
    pub(super) fn beat(&self) {
        if self.beats.fetch_add(1, Ordering::Relaxed) == 0 {
            // SAFETY: no arguments, no memory touched.
            self.thread.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        }
    }

    /// The shard's thread, and how often it has beaten.
    pub(super) fn pulse(&self) -> (i32, u64) {
        (self.thread.load(Ordering::Relaxed), self.beats.load(Ordering::Relaxed))
    }

    /// From now on whoever leaves mail rings. Mail that is there already has to be looked for after this.
    #[inline]
    pub(super) fn wait(&self) {
        self.waits.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn work(&self) {
        self.waits.store(false, Ordering::Relaxed);
    }

    /// The ring to send a message to.
    pub(super) fn ring(&self) -> RawFd {
        self.ring.load(Ordering::Acquire)
    }

    /// The eventfd to read.
    pub(super) fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Whether to ring after mail has been left: the shard waits, and nobody has rung yet.
    #[inline]
    pub(super) fn is_to_be_rung(&self) -> bool {
        fence(Ordering::SeqCst);
        self.waits.load(Ordering::Relaxed) && self.waits.swap(false, Ordering::AcqRel)
    }

    /// Rings from any thread, with a system call. What can go wrong (it was written to 2^64 - 2 times) wakes the shard
    /// all the same.
    pub fn ring_from_outside(&self) {
        self.from_outside.store(true, Ordering::Release);
        self.write();
    }

    /// The same where mail was left, which the shard looks for whoever has rung.
    pub(super) fn ring_for_mail(&self) {
        self.write();
    }

    /// Whether [`Bell::ring_from_outside`] was called since the last time.
    pub(super) fn was_rung_from_outside(&self) -> bool {
        self.from_outside.swap(false, Ordering::Acquire)
    }

    fn write(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes to read; the descriptor is open as long as the bell.
        unsafe { libc::write(self.event(), one.as_ptr().cast(), one.len()) };
    }
}
