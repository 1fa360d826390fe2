//! What the shards' servers share: a few counters, and the configuration's master copy. Nothing here is written on
//! the way of an ordinary command.

use super::advised::AdvisedPrefixes;
use super::appending::Appending;
use super::busy::LastingScripts;
use super::following::Following;
use super::guesses::Guesses;
use super::pauses::Pauses;
use super::replication::{Replication, random_id};
use super::snapshots::Snapshots;
use super::users::KnownUsers;
use crate::clock::store_us;
use crate::config::Config;
use crate::journal::Feed;
use crate::net::tls::Tls;
use crate::net::{Bell, Listener};
use crate::persist::aof::log::Log;
use crate::persist::tokens::Tokens;
use crate::script::{Libraries, Shelf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub struct Global {
    config: Mutex<Config>,
    next_client: AtomicU64,
    /// Connections by shard.
    pub connections: Vec<AtomicUsize>,
    /// Subscriptions by shard: a publisher asks only where there are some.
    pub subscriptions: Vec<AtomicUsize>,
    /// Connections under MONITOR by shard.
    pub monitors: Vec<AtomicUsize>,
    /// Connections under CLIENT TRACKING by shard.
    pub trackers: Vec<AtomicUsize>,
    /// Bytes that connections hold by shard, counted where `maxmemory-clients` bounds them.
    pub client_bytes: Vec<AtomicU64>,
    /// What of it those hold that may be ended for it.
    pub evictable_bytes: Vec<AtomicU64>,
    /// A shard is about to end connections that hold too much.
    pub evicts_clients: AtomicBool,
    pub evicted_clients: AtomicU64,
    /// Connections that were ended since they had sent too much that had not run, or had too much to read.
    pub past_input_limit: AtomicU64,
    pub past_output_limit: AtomicU64,
    pub accepted: AtomicU64,
    pub rejected: AtomicU64,
    /// When the log was told last that somebody speaks HTTP, store microseconds; 0: never.
    pub http_logged_us: AtomicU64,
    pub started_us: u64,
    pub run_id: String,
    pub executable: String,
    /// Entries of the slow log so far.
    pub slow_commands: AtomicU64,
    pub pauses: Pauses,
    /// How often a script has held everything, since it touches keys that it does not declare.
    pub scripts_holding_everything: AtomicU64,
    pub lasting_scripts: LastingScripts,
    /// Scripts that run as tasks, those included that wait until they may begin, or begin again.
    pub scripts_under_way: AtomicUsize,
    /// The sources of all scripts.
    pub scripts: Arc<Shelf>,
    /// The sources of all functions.
    pub libraries: Arc<Libraries>,
    /// The server that this one follows.
    pub following: Arc<Following>,
    /// Under which number somebody is followed whom the configuration named at the start.
    pub followed_at_start: Option<u64>,
    pub replication: Replication,
    pub users: KnownUsers,
    pub guesses: Guesses,
    pub snapshots: Snapshots,
    pub advised: AdvisedPrefixes,
    /// All changes, on their way to the log and to whoever else reads them.
    pub feed: Arc<Feed>,
    /// The log of all changes, and what is done about it.
    pub log: Arc<Log>,
    pub appending: Appending,
    /// The tokens of leases.
    pub tokens: Tokens,
    /// Who has something for a shard from outside rings.
    pub bells: Arc<[Bell]>,
    pub stopping: AtomicBool,
    /// What the server listens on.
    pub listeners: Vec<Listener>,
    /// Where it serves TLS.
    pub tls: Option<Arc<Tls>>,
}

impl Global {
    pub fn new(
        config: Config,
        bells: Arc<[Bell]>,
        (listeners, tls): (Vec<Listener>, Option<Arc<Tls>>),
        users: KnownUsers,
    ) -> Global {
        let shards = bells.len();
        let mut rng = fastrand::Rng::new();
        let snapshots = Snapshots::of(&config);
        let feed = Arc::new(Feed::new(bells.clone()));
        let following = Arc::<Following>::default();
        // It is a replica before anybody can ask.
        let followed_at_start = config.follows.0.clone().map(|primary| following.begin(primary, false, &config));
        Global {
            config: Mutex::new(config),
            next_client: AtomicU64::new(1),
            connections: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
            subscriptions: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
            monitors: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
            trackers: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
            client_bytes: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            evictable_bytes: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            evicts_clients: AtomicBool::new(false),
            evicted_clients: AtomicU64::new(0),
            past_input_limit: AtomicU64::new(0),
            past_output_limit: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            http_logged_us: AtomicU64::new(0),
            started_us: store_us(),
            run_id: random_id(&mut rng),
            executable: std::env::current_exe().map_or_else(|_| String::new(), |path| path.display().to_string()),
            slow_commands: AtomicU64::new(0),
            pauses: Pauses::default(),
            scripts_holding_everything: AtomicU64::new(0),
            lasting_scripts: LastingScripts::default(),
            scripts_under_way: AtomicUsize::new(0),
            scripts: Arc::default(),
            libraries: Arc::default(),
            following,
            followed_at_start,
            replication: Replication::new(feed.clone()),
            users,
            guesses: Guesses::default(),
            snapshots,
            advised: AdvisedPrefixes::default(),
            log: Log::new(feed.clone(), bells.clone()),
            feed,
            appending: Appending::default(),
            tokens: Tokens::default(),
            bells,
            stopping: AtomicBool::new(false),
            listeners,
            tls,
        }
    }

    pub fn config(&self) -> MutexGuard<'_, Config> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of what is loaded at the start: so many bytes, of so many.
    pub fn loaded_bytes(&self) -> (u64, u64) {
        let progress = &self.snapshots.progress;
        (progress.bytes.load(Ordering::Relaxed), progress.of_bytes.load(Ordering::Relaxed))
    }

    pub fn next_client_id(&self) -> u64 {
        self.next_client.fetch_add(1, Ordering::Relaxed)
    }

    pub fn connected(&self) -> usize {
        self.connections.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}
