//! How one shard wakes another that waits for mail.
//!
//! Who leaves mail looks whether the other waits; who goes to wait says so and then looks for mail once more. A fence
//! between the two steps on each side makes sure that one of the two sees the other.

use super::Notify;
use glommio::io::BufferedFile;
use glommio::timer::Timer;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering, fence};
use std::time::Duration;

/// Between two looks after an error that passes.
const RETRY: Duration = Duration::from_millis(1);

/// What a shard shows the others: whether it waits, where to ring, and that it is alive.
#[derive(Default)]
pub struct Bell {
    waits: AtomicBool,
    /// The ring or the eventfd of the shard; 0 before it has one.
    fd: AtomicI32,
    /// The shard's thread, as the system knows it; 0 before it beats.
    thread: AtomicI32,
    beats: AtomicU64,
}

impl Bell {
    /// A bell for each shard.
    pub fn for_all(shards: usize) -> Arc<[Bell]> {
        (0..shards).map(|_| Bell::default()).collect()
    }

    pub(super) fn hang_up(&self, fd: RawFd) {
        self.fd.store(fd, Ordering::Release);
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

    /// Where to ring.
    pub(super) fn fd(&self) -> RawFd {
        self.fd.load(Ordering::Acquire)
    }

    /// Where to ring after mail has been left, if the shard waits and nobody has rung yet.
    #[inline]
    pub(super) fn to_ring(&self) -> Option<RawFd> {
        fence(Ordering::SeqCst);
        let rings = self.waits.load(Ordering::Relaxed) && self.waits.swap(false, Ordering::AcqRel);
        rings.then(|| self.fd())
    }
}

/// An eventfd that kicks a task of this executor.
pub(super) struct Event {
    fd: OwnedFd,
    pub kick: Notify,
}

impl Event {
    /// # Errors
    /// Too many open files.
    pub fn new() -> io::Result<Rc<Event>> {
        // SAFETY: no preconditions; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: open and ours.
        Ok(Rc::new(Event { fd: unsafe { OwnedFd::from_raw_fd(fd) }, kick: Notify::default() }))
    }

    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Kicks whenever the eventfd is written to.
    pub async fn forward(self: Rc<Event>) {
        // SAFETY: the descriptor is open as long as the event; the file must not close it.
        let file = ManuallyDrop::new(unsafe { BufferedFile::from_raw_fd(self.fd()) });
        loop {
            if let Err(error) = file.read_at(0, size_of::<u64>()).await {
                // A shard that cannot be woken is deaf: what does not pass ends the process.
                let error = std::io::Error::from(error);
                let passes = [libc::EINTR, libc::EAGAIN, libc::ENOMEM];
                assert!(error.raw_os_error().is_some_and(|code| passes.contains(&code)), "eventfd: {error}");
                Timer::new(RETRY).await;
            }
            self.kick.notify();
        }
    }
}

/// Writes to a shard's eventfd. What can go wrong (it was written to 2^64 - 2 times) wakes it all the same.
pub(super) fn ring_event(fd: RawFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight bytes to read; the descriptors of shards stay open until the process ends.
    unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
}
