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

use std::sync::atomic::{AtomicU64, Ordering};

/// How far a file has been read.
#[derive(Default)]
pub struct Progress {
    pub bytes: AtomicU64,
    pub of_bytes: AtomicU64,
    /// Seconds since 1970.
    pub began_s: AtomicU64,
}

impl Progress {
    pub fn begin(&self, of_bytes: u64, now_s: u64) {
        self.bytes.store(0, Ordering::Relaxed);
        self.of_bytes.store(of_bytes, Ordering::Relaxed);
        self.began_s.store(now_s, Ordering::Relaxed);
    }
}
