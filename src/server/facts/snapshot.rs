//! What one shard knows of itself at one moment, and all shards together.

use crate::keyspace::Counters;
use crate::observe::memory::{self, Aside};
use crate::observe::{Lag, Statistics};
use crate::server::state::Server;
use crate::server::state::subscriptions::World;
use crate::shard::Shard;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::atomic::Ordering;

#[derive(Default)]
pub struct Snapshot {
    pub databases: Vec<Database>,
    /// The keyspace: entries, blocks, directories.
    pub keyspace_bytes: u64,
    pub counters: Counters,
    /// Keys that are gone and whose memory is still to be given back.
    pub garbage_keys: usize,
    /// Changes since the start.
    pub changes: u64,
    pub connections: usize,
    pub subscribers: usize,
    pub blocked: usize,
    /// Those of them whose wait for a key ends by itself.
    pub blocked_with_timeout: usize,
    /// Keys for which somebody waits, and those of them whose deletion ends a wait.
    pub blocking_keys: [usize; 2],
    /// Connections with keys under WATCH, and those keys.
    pub watchers: usize,
    pub watched_keys: usize,
    /// Keys that are never evicted, since somebody has said so of each.
    pub pinned_keys: usize,
    /// Copies of what has died, and their bytes.
    pub stale_copies: [usize; 2],
    /// Connections that track what they read; keys that are remembered for them, for how many, and prefixes.
    pub trackers: usize,
    pub tracked: [usize; 3],
    /// Live queries, and the views that answer them.
    pub live_queries: usize,
    pub live_views: usize,
    /// Deaths that are to be written to the streams of policies.
    pub deaths_waiting: usize,
    /// Prefixes that advisors follow, the bytes that takes, and misses of keys whose deadline had passed among them.
    pub advised_prefixes: usize,
    pub advisor_bytes: u64,
    pub expired_misses: f64,
    /// Buffers of connections; those of replicas.
    pub client_bytes: u64,
    pub replica_bytes: u64,
    /// Buffers that are kept for reuse; the slow log.
    pub kept_bytes: u64,
    pub slowlog_bytes: u64,
    pub slowlog_entries: usize,
    pub commands: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    pub replica_output_bytes: u64,
    pub reads: u64,
    pub writes: u64,
    /// Commands, bytes received and sent, and bytes sent to replicas, a second.
    pub rates: [f64; 4],
    /// What was called, and what failed.
    pub statistics: Statistics,
    /// Hashes of the names that somebody listens to: the same name on several shards counts once.
    pub channels: HashSet<u64>,
    pub shard_channels: HashSet<u64>,
    pub patterns: HashSet<u64>,
    pub expiry: Expiry,
    /// Bytes that Lua uses for scripts, and for functions.
    pub lua_bytes: [u64; 2],
    /// That all this is no part of what it tells.
    _aside: Aside,
}

/// Live keys of one database.
#[derive(Clone, Copy, Debug, Default)]
pub struct Database {
    pub keys: usize,
    pub with_deadline: usize,
    /// See [`Keyspace::average_ttl_ms`](crate::keyspace::Keyspace::average_ttl_ms).
    pub average_ttl_ms: f64,
}

/// What happened to deadlines.
#[derive(Default)]
pub struct Expiry {
    pub lag: Lag,
    /// For how long the oldest key has been dead that is not deleted yet; zero where there is none.
    pub oldest_due_us: u64,
    /// Dead keys that are not deleted yet.
    pub stale_keys: usize,
    /// Share of dead keys among keys with deadlines, smoothed.
    pub stale_percent: f64,
    pub cycle_cpu_ns: u64,
    pub cycles: u64,
    pub time_caps: u64,
}

impl Expiry {
    pub fn lag_us(&self, share: f64) -> u64 {
        self.lag.quantile_us(share)
    }

    /// The longest lag, of a key that waits still included.
    pub fn lag_max_us(&self) -> u64 {
        self.lag.max_us().max(self.oldest_due_us)
    }

    pub fn cycle_cpu_ms(&self) -> f64 {
        self.cycle_cpu_ns as f64 / 1e6
    }
}

impl Snapshot {
    /// Histograms of latencies are taken where that is asked for.
    pub fn take(shard: &Rc<Shard>, with_latency: bool) -> Snapshot {
        let (snapshot, aside) = memory::aside(|| Snapshot::look(shard, with_latency));
        Snapshot { _aside: aside, ..snapshot }
    }

    fn look(shard: &Rc<Shard>, with_latency: bool) -> Snapshot {
        let server = Server::of(shard);
        let mut snapshot = Snapshot::default();
        snapshot.look_at_keyspace(shard);
        snapshot.connections = server.global.connections[shard.id].load(Ordering::Relaxed);
        snapshot.look_at_clients(&server);
        snapshot.kept_bytes = server.shard.kept_bytes() as u64;
        snapshot.slowlog_bytes = server.slowlog.borrow().bytes() as u64;
        snapshot.slowlog_entries = server.slowlog.borrow().ids().count();
        snapshot.commands = server.stats.commands.get();
        snapshot.input_bytes = server.stats.input_bytes.get();
        snapshot.output_bytes = server.stats.output_bytes.get();
        snapshot.replica_output_bytes = server.stats.replica_output_bytes.get();
        snapshot.reads = server.stats.reads.get();
        snapshot.writes = server.stats.writes.get();
        snapshot.rates = server.stats.rates.borrow().per_second();
        let statistics = shard.meter.statistics();
        snapshot.statistics = if with_latency { statistics.clone() } else { statistics.without_latency() };
        drop(statistics);
        let scripting = &server.scripting;
        let of_scripts = scripting.scripts.machine.memory().used();
        snapshot.lua_bytes = [of_scripts, scripting.functions.machine_bytes()].map(|bytes| bytes as u64);
        let pubsub = server.pubsub.borrow();
        let hashes = |world: World| pubsub.channels(world).map(|name| shard.hasher.hash(name)).collect();
        (snapshot.channels, snapshot.shard_channels) = (hashes(World::Plain), hashes(World::Sharded));
        snapshot.patterns = pubsub.patterns().map(|name| shard.hasher.hash(name)).collect();
        snapshot
    }

    fn look_at_keyspace(&mut self, shard: &Shard) {
        let now = shard.clock.refresh();
        let mut keyspace = shard.keyspace.borrow_mut();
        let cycle = shard.cycle.borrow();
        let database = |db| Database {
            keys: keyspace.live_len(db, now),
            with_deadline: keyspace.live_with_deadline(db, now),
            average_ttl_ms: keyspace.average_ttl_ms(db, now),
        };
        self.databases = (0..keyspace.databases()).map(database).collect();
        self.keyspace_bytes = keyspace.bytes() as u64;
        keyspace.count_upkeep();
        self.counters = keyspace.counters;
        self.counters.expired_fields += keyspace.effects.fields_expired;
        self.garbage_keys = keyspace.garbage_keys();
        self.changes = keyspace.effects.dirty;
        self.tracked = keyspace.effects.tracking_counts();
        self.live_views = keyspace.views();
        self.watched_keys = keyspace.effects.watched_keys();
        self.pinned_keys = keyspace.all_pinned();
        self.stale_copies = [keyspace.stale_copies(), keyspace.stale_bytes()];
        self.deaths_waiting = keyspace.deaths.len();
        let (prefixes, advisor_bytes) = keyspace.advised();
        (self.advised_prefixes, self.advisor_bytes) = (prefixes, advisor_bytes as u64);
        self.expired_misses = keyspace.expired_misses();
        let oldest_ms = keyspace.oldest_due_ms(now);
        self.expiry = Expiry {
            lag: keyspace.lag.clone(),
            oldest_due_us: oldest_ms.map_or(0, |oldest_ms| now.us.saturating_sub(oldest_ms * 1000)),
            stale_keys: (0..keyspace.databases()).map(|db| keyspace.len(db)).sum::<usize>() - self.keys(),
            stale_percent: cycle.stale_percent,
            cycle_cpu_ns: cycle.cpu_ns,
            cycles: cycle.cycles,
            time_caps: cycle.time_cap_reached,
        };
    }

    fn look_at_clients(&mut self, server: &Server) {
        for client in server.clients() {
            let state = client.state.borrow();
            let bytes = state.memory_bytes() as u64;
            if state.session.replica.is_some() {
                self.replica_bytes += bytes + server.following.waiting(client.id) as u64;
                self.connections = self.connections.saturating_sub(1);
                continue;
            }
            self.client_bytes += bytes;
            self.subscribers += usize::from(state.session.subscriptions() > 0);
            self.blocked += usize::from(state.flow.waits());
            self.trackers += usize::from(state.session.tracks.is_some());
            self.live_queries += state.session.live.len();
            self.watchers += usize::from(!state.session.watched.is_empty());
        }
        self.blocked_with_timeout = server.waits.with_timeout();
        self.blocking_keys = server.shard.keys_waited_for();
    }

    pub fn keys(&self) -> usize {
        self.databases.iter().map(|database| database.keys).sum()
    }

    pub fn with_deadline(&self) -> usize {
        self.databases.iter().map(|database| database.with_deadline).sum()
    }

    /// Of all databases.
    pub fn average_ttl_ms(&self) -> f64 {
        let average = |(ttl_ms, keys): (f64, usize), database: &Database| {
            let weights = (keys, database.with_deadline);
            (weighted((ttl_ms, database.average_ttl_ms), weights), keys + database.with_deadline)
        };
        self.databases.iter().fold((0.0, 0), average).0
    }

    pub fn expired(&self) -> u64 {
        self.counters.expired_by_access + self.counters.expired_by_cycle
    }

    /// All shards together.
    pub fn sum(shards: &[Snapshot]) -> Snapshot {
        let (total, aside) = memory::aside(|| {
            let mut total = Snapshot::default();
            shards.iter().for_each(|shard| total.add(shard));
            total
        });
        Snapshot { _aside: aside, ..total }
    }

    fn add(&mut self, other: &Snapshot) {
        let weights = (self.with_deadline(), other.with_deadline());
        self.expiry.add(&other.expiry, weights);
        self.databases.resize(self.databases.len().max(other.databases.len()), Database::default());
        for (own, others) in self.databases.iter_mut().zip(&other.databases) {
            own.add(others);
        }
        self.keyspace_bytes += other.keyspace_bytes;
        self.counters.hits += other.counters.hits;
        self.counters.misses += other.counters.misses;
        self.counters.expired_by_access += other.counters.expired_by_access;
        self.counters.expired_by_cycle += other.counters.expired_by_cycle;
        self.counters.expired_bytes += other.counters.expired_bytes;
        self.counters.expired_fields += other.counters.expired_fields;
        self.counters.freed_lazily += other.counters.freed_lazily;
        self.counters.upkeep.add(&other.counters.upkeep);
        self.counters.unreported += other.counters.unreported;
        self.counters.deaths_written += other.counters.deaths_written;
        self.counters.deaths_lost += other.counters.deaths_lost;
        self.counters.evicted += other.counters.evicted;
        self.counters.stale_shown += other.counters.stale_shown;
        self.deaths_waiting += other.deaths_waiting;
        self.advised_prefixes = self.advised_prefixes.max(other.advised_prefixes);
        self.advisor_bytes += other.advisor_bytes;
        self.expired_misses += other.expired_misses;
        self.garbage_keys += other.garbage_keys;
        self.changes += other.changes;
        self.connections += other.connections;
        self.subscribers += other.subscribers;
        self.blocked += other.blocked;
        self.blocked_with_timeout += other.blocked_with_timeout;
        self.blocking_keys.iter_mut().zip(other.blocking_keys).for_each(|(own, others)| *own += others);
        self.watchers += other.watchers;
        self.watched_keys += other.watched_keys;
        self.pinned_keys += other.pinned_keys;
        self.stale_copies.iter_mut().zip(other.stale_copies).for_each(|(own, others)| *own += others);
        self.trackers += other.trackers;
        let ([keys, items, prefixes], [more_keys, more_items, others]) = (self.tracked, other.tracked);
        // Every shard knows all prefixes.
        self.tracked = [keys + more_keys, items + more_items, prefixes.max(others)];
        self.live_queries += other.live_queries;
        self.live_views = self.live_views.max(other.live_views);
        self.client_bytes += other.client_bytes;
        self.replica_bytes += other.replica_bytes;
        self.kept_bytes += other.kept_bytes;
        self.slowlog_bytes += other.slowlog_bytes;
        self.slowlog_entries += other.slowlog_entries;
        self.commands += other.commands;
        self.input_bytes += other.input_bytes;
        self.output_bytes += other.output_bytes;
        self.replica_output_bytes += other.replica_output_bytes;
        self.reads += other.reads;
        self.writes += other.writes;
        self.rates.iter_mut().zip(other.rates).for_each(|(own, others)| *own += others);
        self.statistics.add(&other.statistics);
        self.channels.extend(&other.channels);
        self.shard_channels.extend(&other.shard_channels);
        self.patterns.extend(&other.patterns);
        self.lua_bytes.iter_mut().zip(other.lua_bytes).for_each(|(own, others)| *own += others);
    }
}

impl Database {
    fn add(&mut self, other: &Database) {
        let weights = (self.with_deadline, other.with_deadline);
        self.average_ttl_ms = weighted((self.average_ttl_ms, other.average_ttl_ms), weights);
        self.keys += other.keys;
        self.with_deadline += other.with_deadline;
    }
}

impl Expiry {
    fn add(&mut self, other: &Expiry, weights: (usize, usize)) {
        self.lag.add(&other.lag);
        self.oldest_due_us = self.oldest_due_us.max(other.oldest_due_us);
        self.stale_keys += other.stale_keys;
        self.stale_percent = weighted((self.stale_percent, other.stale_percent), weights);
        self.cycle_cpu_ns += other.cycle_cpu_ns;
        self.cycles += other.cycles;
        self.time_caps += other.time_caps;
    }
}

/// The average of two values that stand for so many keys each; where both stand for none, the greater.
fn weighted(values: (f64, f64), weights: (usize, usize)) -> f64 {
    if weights == (0, 0) {
        return values.0.max(values.1);
    }
    let (a, b) = (weights.0 as f64, weights.1 as f64);
    (values.0 * a + values.1 * b) / (a + b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Now;

    fn snapshot(with_deadline: usize, average_ttl_ms: f64, stale_percent: f64, lags_ms: &[u64]) -> Snapshot {
        let mut lag = Lag::new();
        for lag_ms in lags_ms {
            lag.record(Now::from_ms(100_000 + lag_ms), 100_000);
        }
        let database = Database { keys: with_deadline + 1, with_deadline, average_ttl_ms };
        Snapshot {
            databases: vec![Database::default(), database],
            expiry: Expiry { lag, stale_percent, ..Expiry::default() },
            ..Snapshot::default()
        }
    }

    #[test]
    fn shares_and_averages_are_weighted_by_keys() {
        let total = Snapshot::sum(&[snapshot(30, 1000.0, 4.0, &[]), snapshot(10, 5000.0, 8.0, &[])]);
        assert_eq!((total.keys(), total.with_deadline()), (42, 40));
        assert_eq!(total.databases[1].average_ttl_ms, 2000.0);
        assert_eq!(total.expiry.stale_percent, 5.0);
        assert_eq!(total.databases[0].keys, 0);
    }

    #[test]
    fn lags_of_all_shards_are_one_histogram() {
        let mut shards = [snapshot(0, 0.0, 0.0, &[1; 98]), snapshot(0, 0.0, 0.0, &[500, 800])];
        let total = Snapshot::sum(&shards);
        assert!((1000..1020).contains(&total.expiry.lag_us(0.5)), "{}", total.expiry.lag_us(0.5));
        assert!((495_000..505_000).contains(&total.expiry.lag_us(0.99)));
        assert!((795_000..810_000).contains(&total.expiry.lag_max_us()));
        shards[0].expiry.oldest_due_us = 7_000_000;
        assert_eq!(Snapshot::sum(&shards).expiry.lag_max_us(), 7_000_000, "a key that waits counts");
    }

    #[test]
    fn a_channel_on_several_shards_counts_once() {
        let with = |channels: &[u64]| Snapshot { channels: channels.iter().copied().collect(), ..Snapshot::default() };
        assert_eq!(Snapshot::sum(&[with(&[1, 2]), with(&[2, 3])]).channels.len(), 3);
    }
}
