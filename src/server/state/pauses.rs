//! Pauses: by CLIENT PAUSE, and by the server itself, before it ends or hands over to a replica. Each has its own end; the
//! last of them counts.

use super::Server;
use crate::shard::Shard;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Who pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Client,
    Shutdown,
    Failover,
}

#[derive(Default)]
pub struct Pauses {
    /// When each of them ends, store microseconds.
    ends_us: Mutex<[u64; 3]>,
    /// When the last of them does.
    until_us: AtomicU64,
    /// CLIENT PAUSE is about reads, too.
    all: AtomicBool,
}

impl Pauses {
    pub fn until_us(&self) -> u64 {
        self.until_us.load(Ordering::Relaxed)
    }

    /// Whether reads wait, too, while there is a pause.
    pub fn is_of_all(&self) -> bool {
        self.all.load(Ordering::Relaxed)
    }

    /// A pause ends then, or at once. Each shard is to follow ([`follow`]).
    pub fn set(&self, by: By, until_us: u64) {
        let mut ends_us = self.ends_us.lock().unwrap_or_else(PoisonError::into_inner);
        ends_us[by as usize] = until_us;
        self.until_us.store(ends_us.iter().copied().max().unwrap_or(0), Ordering::Relaxed);
    }

    /// CLIENT PAUSE: as in Redis, one that is under way is not made shorter or weaker by another.
    pub fn by_client(&self, until_us: u64, all: bool, now_us: u64) {
        let before_us = self.ends_us.lock().unwrap_or_else(PoisonError::into_inner)[By::Client as usize];
        self.all.store(all || before_us > now_us && self.is_of_all(), Ordering::Relaxed);
        self.set(By::Client, until_us.max(before_us));
    }

    pub fn end_by_client(&self) {
        self.all.store(false, Ordering::Relaxed);
        self.set(By::Client, 0);
    }
}

/// Makes one shard look at the end of the pauses. It is read there rather than sent: where several connections pause and
/// unpause at the same time, all shards end up with the same.
pub fn follow(shard: &Rc<Shard>) {
    let server = Server::of(shard);
    shard.hold_expiry_until(server.global.pauses.until_us());
    server.unpause();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_end_counts_and_each_ends_its_own() {
        let pauses = Pauses::default();
        pauses.by_client(100, true, 0);
        pauses.set(By::Failover, 200);
        assert_eq!((pauses.until_us(), pauses.is_of_all()), (200, true));
        pauses.by_client(50, false, 10);
        pauses.set(By::Failover, 0);
        assert_eq!((pauses.until_us(), pauses.is_of_all()), (100, true), "neither shorter nor weaker");
        pauses.end_by_client();
        assert_eq!((pauses.until_us(), pauses.is_of_all()), (0, false));
        pauses.by_client(300, true, 200);
        pauses.by_client(400, false, 350);
        assert_eq!((pauses.until_us(), pauses.is_of_all()), (400, false), "the first was over");
    }
}
