//! What all shards know of the servers that follow this one: under which name and how far they know the data, and who they are.

use super::syncs::Queue;
use crate::clock::store_us;
use crate::config::{CompatVersion, Config};
use crate::journal::{Feed, KnownAs};
use crate::server::client::replica::{Replica, Stage};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of a run, or of data.
pub const ID_DIGITS: usize = 40;

pub fn random_id(rng: &mut fastrand::Rng) -> String {
    (0..ID_DIGITS).map(|_| char::from_digit(rng.u32(..16), 16).unwrap_or('0')).collect()
}

/// A name of data, and the one that they had before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    pub id: String,
    /// Up to which position of the stream it is the same under another name, which is where whoever knows that one has to be
    /// at the most.
    pub second: Option<(String, u64)>,
}

impl Ids {
    pub fn new() -> Ids {
        Ids { id: random_id(&mut fastrand::Rng::new()), second: None }
    }

    /// The stream goes on as another's from this position on, and whoever was there may go on with it.
    pub fn renamed(&self, position: u64, id: String) -> Ids {
        Ids { id, second: Some((self.id.clone(), position)) }
    }

    /// Whether somebody who has come so far under this name has what this server had there.
    pub fn covers(&self, id: &[u8], position: u64) -> bool {
        let was = |(second, end): &(String, u64)| second.as_bytes() == id && position <= *end;
        self.id.as_bytes() == id || self.second.as_ref().is_some_and(was)
    }
}

/// The end of the server that waits for replicas, and may be given up.
#[derive(Default)]
pub struct Ends {
    state: AtomicU8,
    /// Until when it waits, store microseconds.
    until_us: AtomicU64,
}

impl Ends {
    const WAITS: u8 = 1;
    const ABORTED: u8 = 2;

    pub fn begin(&self, until_us: u64) {
        self.until_us.store(until_us, Ordering::Relaxed);
        self.state.store(Ends::WAITS, Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.state.store(0, Ordering::Relaxed);
    }

    /// How long it is going to wait at the most, if it does.
    pub fn waits_us(&self) -> Option<u64> {
        let waits = self.state.load(Ordering::Relaxed) == Ends::WAITS;
        waits.then(|| self.until_us.load(Ordering::Relaxed).saturating_sub(store_us()))
    }

    /// Gives it up; whether there was one.
    pub fn abort(&self) -> bool {
        self.state.compare_exchange(Ends::WAITS, Ends::ABORTED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub fn is_aborted(&self) -> bool {
        self.state.load(Ordering::Relaxed) == Ends::ABORTED
    }
}

/// FAILOVER, as far as it is.
#[derive(Default)]
pub struct Failover {
    stage: AtomicU8,
    is_aborted: AtomicBool,
}

impl Failover {
    const NONE: u8 = 0;
    /// Until a replica has everything.
    const WAITS: u8 = 1;
    /// That replica is to become the primary.
    pub const HANDS_OVER: u8 = 2;

    /// Whether there was none.
    pub fn begin(&self) -> bool {
        self.is_aborted.store(false, Ordering::Relaxed);
        self.stage.compare_exchange(Failover::NONE, Failover::WAITS, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub fn set(&self, stage: u8) {
        self.stage.store(stage, Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.set(Failover::NONE);
    }

    pub fn is_under_way(&self) -> bool {
        self.stage.load(Ordering::Relaxed) != Failover::NONE
    }

    /// Gives it up; whether there was one.
    pub fn abort(&self) -> bool {
        self.is_aborted.store(true, Ordering::Relaxed);
        self.is_under_way()
    }

    pub fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Relaxed)
    }

    /// As INFO says it.
    pub fn word(&self) -> &'static str {
        match self.stage.load(Ordering::Relaxed) {
            Failover::NONE => "no-failover",
            Failover::WAITS => "waiting-for-sync",
            _ => "failover-in-progress",
        }
    }
}

pub struct Replication {
    /// The stream has the name that the data have.
    feed: Arc<Feed>,
    ids: Mutex<Ids>,
    replicas: Mutex<BTreeMap<u64, Arc<Replica>>>,
    /// How many there are; how many of them are so near that `min-replicas-to-write` counts them.
    count: AtomicUsize,
    near: AtomicUsize,
    /// Since when there are none, store microseconds.
    without_since_us: AtomicU64,
    /// How often a snapshot was asked for, and how often somebody wanted to go on and could, or could not.
    pub full_syncs: AtomicU64,
    pub partial_syncs: AtomicU64,
    pub refused_partial_syncs: AtomicU64,
    queue: Mutex<Queue>,
    /// What the snapshot says of the stream that was loaded at the start.
    restored: Mutex<Option<KnownAs>>,
    pub failover: Failover,
    /// The end of the server, which waits for them.
    pub ends: Ends,
    /// How many commands were told with less when all replicas knew everything.
    degraded: AtomicU64,
    /// When replicas heard last that this server is there, store microseconds.
    pinged_us: AtomicU64,
    /// Up to where replicas were asked how far they are.
    asked: AtomicU64,
}

impl Replication {
    pub fn new(feed: Arc<Feed>) -> Replication {
        let ids = Ids::new();
        feed.set_name(&ids.id);
        Replication {
            feed,
            ids: Mutex::new(ids),
            replicas: Mutex::default(),
            count: AtomicUsize::new(0),
            near: AtomicUsize::new(0),
            without_since_us: AtomicU64::new(store_us()),
            full_syncs: AtomicU64::new(0),
            partial_syncs: AtomicU64::new(0),
            refused_partial_syncs: AtomicU64::new(0),
            queue: Mutex::default(),
            restored: Mutex::default(),
            failover: Failover::default(),
            ends: Ends::default(),
            degraded: AtomicU64::new(0),
            pinged_us: AtomicU64::new(store_us()),
            asked: AtomicU64::new(0),
        }
    }

    pub fn ids(&self) -> Ids {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_ids(&self, ids: Ids) {
        debug_assert_eq!(ids.id.len(), ID_DIGITS);
        let mut current = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        self.feed.set_name(&ids.id);
        *current = ids;
    }

    /// CONFIG RESETSTAT: counting begins anew.
    pub fn reset_counters(&self) {
        for counter in [&self.full_syncs, &self.partial_syncs, &self.refused_partial_syncs] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// What this server has is its own from this position on.
    pub fn promote(&self, position: u64) {
        let ids = self.ids();
        self.set_ids(ids.renamed(position, Ids::new().id));
    }

    /// The replicas that wait for a snapshot.
    pub fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Under which name others know the data that were loaded at the start, and how far they are.
    pub fn restored(&self) -> MutexGuard<'_, Option<KnownAs>> {
        self.restored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody wants to know which replicas have come so far; whether they are to be asked.
    pub fn is_to_ask(&self, position: u64) -> bool {
        self.asked.fetch_max(position, Ordering::Relaxed) < position
    }

    /// Some replica may have been told with less than it knows of.
    pub fn note_told_less(&self) {
        self.degraded.store(u64::MAX, Ordering::Relaxed);
    }

    /// Whether commands were told with less since this was asked the last time.
    pub fn take_degraded(&self, degraded: u64) -> bool {
        self.degraded.swap(degraded, Ordering::Relaxed) != degraded
    }

    /// For how many seconds replicas have not heard that this server is there.
    pub fn silent_s(&self) -> u64 {
        // (It is asked once a second, and not exactly.)
        (store_us().saturating_sub(self.pinged_us.load(Ordering::Relaxed)) + 500_000) / 1_000_000
    }

    pub fn end_silence(&self) {
        self.pinged_us.store(store_us(), Ordering::Relaxed);
    }

    fn list(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Replica>>> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, in the order in which they have come.
    pub fn replicas(&self) -> Vec<Arc<Replica>> {
        self.list().values().cloned().collect()
    }

    pub fn has_replicas(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub fn add(&self, replica: Arc<Replica>) {
        let mut list = self.list();
        list.insert(replica.client, replica);
        self.count.store(list.len(), Ordering::Relaxed);
    }

    pub fn remove(&self, client: u64) {
        let mut list = self.list();
        list.remove(&client);
        self.count.store(list.len(), Ordering::Relaxed);
        if list.is_empty() {
            self.without_since_us.store(store_us(), Ordering::Relaxed);
        }
    }

    /// For how long there has been no replica, in seconds.
    pub fn without_s(&self) -> u64 {
        match self.has_replicas() {
            true => 0,
            false => store_us().saturating_sub(self.without_since_us.load(Ordering::Relaxed)) / 1_000_000,
        }
    }

    /// Whether a replica is taken for a server that knows of no deadlines of fields.
    pub fn takes_for_old(&self, replica: &Replica, config: &Config) -> bool {
        match config.repl_compat_version {
            CompatVersion::Auto => !replica.knows_fields,
            CompatVersion::V7_0 => true,
            CompatVersion::V7_4 => false,
        }
    }

    /// Whether some replica is.
    pub fn has_old(&self, config: &Config) -> bool {
        self.list().values().any(|replica| self.takes_for_old(replica, config))
    }

    /// How many replicas have come so far.
    pub fn acked_by(&self, position: u64) -> usize {
        self.list().values().filter(|replica| replica.has(position)).count()
    }

    /// How many replicas have so much on their disks.
    pub fn synced_by(&self, position: u64) -> usize {
        self.list().values().filter(|replica| replica.has(0) && replica.synced() >= position).count()
    }

    /// Counts those that are near: each second, and where that may have changed.
    pub fn count_near(&self, config: &Config) {
        let is_near = |replica: &&Arc<Replica>| {
            replica.stage() == Stage::Online && replica.lag_s() <= config.min_replicas_max_lag_s
        };
        let near = self.list().values().filter(is_near).count();
        self.near.store(near, Ordering::Relaxed);
    }

    pub fn near(&self) -> usize {
        self.near.load(Ordering::Relaxed)
    }

    /// Whether too few replicas are near for anything to be changed.
    #[inline]
    pub fn stops_writes(&self, config: &Config) -> bool {
        config.min_replicas_to_write > 0
            && config.min_replicas_max_lag_s > 0
            && (self.near() as u64) < config.min_replicas_to_write
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_covers_what_came_before_another_one() {
        let first = Ids { id: "a".repeat(ID_DIGITS), second: None };
        let ids = first.renamed(100, "b".repeat(ID_DIGITS));
        for (id, position, expected) in
            [("b", 0, true), ("b", 1_000, true), ("a", 100, true), ("a", 101, false), ("c", 0, false)]
        {
            assert_eq!(ids.covers(id.repeat(ID_DIGITS).as_bytes(), position), expected, "{id} {position}");
        }
        assert!(!first.covers(b"", 0) && !ids.covers(b"?", 0));
    }
}
