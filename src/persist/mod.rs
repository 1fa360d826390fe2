//! What is on the disk, read and written by threads of their own, so that no shard waits for it: snapshots in the form of
//! `rdb/file.rs`, and the log of all changes.
//!
//! - [`reading`]: a file from its head to its end; its keys are dealt out in batches, each to the shard that has it
//! - [`writing`]: pieces from all shards, in whatever order they come, become a file that is there whole or not at all
//! - [`aof`]: the append-only log
//! - [`disk`], [`window`]: what the system is asked for, so that a test can be a disk that fails; a file that is read
//! - [`handout`]: a file that is on no disk, read as it is made
//! - [`tokens`]: fencing tokens, which only ever grow
//! - [`claim`]: whose files they are, where several servers share a folder

pub mod aof;
pub mod claim;
pub mod disk;
pub mod handout;
pub mod reading;
pub mod tokens;
mod window;
pub mod writing;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How far a file has been read.
#[derive(Default)]
pub struct Progress {
    pub bytes: AtomicU64,
    pub of_bytes: AtomicU64,
    /// Seconds since 1970.
    pub began_s: AtomicU64,
    /// As `key-load-delay` says.
    pub key_delay_us: AtomicI64,
}

impl Progress {
    pub fn begin(&self, of_bytes: u64, now_s: u64) {
        self.bytes.store(0, Ordering::Relaxed);
        self.of_bytes.store(of_bytes, Ordering::Relaxed);
        self.began_s.store(now_s, Ordering::Relaxed);
    }

    /// Behind a key that was read.
    #[inline]
    fn pause(&self) {
        if self.key_delay_us.load(Ordering::Relaxed) != 0 {
            self.pause_now();
        }
    }

    #[cold]
    fn pause_now(&self) {
        let (began, delay_us) = (Instant::now(), || self.key_delay_us.load(Ordering::Relaxed));
        while let Some(rest) = pause_of(delay_us(), 1).checked_sub(began.elapsed()).filter(|rest| !rest.is_zero()) {
            std::thread::sleep(rest.min(PAUSE));
        }
    }
}

/// How long a pause of a test is at the longest until somebody looks whether it is still to be.
pub const PAUSE: Duration = Duration::from_millis(10);

/// The pause behind so many keys, by `rdb-key-save-delay` and `key-load-delay`.
pub fn pause_of(delay_us: i64, keys: u64) -> Duration {
    Duration::from_micros(match u64::try_from(delay_us) {
        Ok(delay_us) => keys.saturating_mul(delay_us),
        Err(_) => keys / delay_us.unsigned_abs(),
    })
}
