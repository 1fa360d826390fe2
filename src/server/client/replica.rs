//! A server that follows this one, as its connection and all shards know it.

use crate::clock::store_us;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// How far the connection of a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Its snapshot is not begun, or not made.
    Waits,
    /// It is sent the snapshot.
    Loads,
    Online,
}

impl Stage {
    /// As INFO says it.
    pub fn word(self) -> &'static str {
        match self {
            Stage::Waits => "wait_bgsave",
            Stage::Loads => "send_bulk",
            Stage::Online => "online",
        }
    }
}

/// A server that follows this one.
pub struct Replica {
    /// Its connection, and that one's shard.
    pub client: u64,
    pub shard: usize,
    /// Where it listens itself, as far as it has said so.
    pub address: String,
    pub port: u16,
    /// It has said that it knows of deadlines of fields.
    pub knows_fields: bool,
    stage: AtomicU8,
    /// How far it has come, how far that is on its disk, and when it said so, store microseconds.
    acked: AtomicU64,
    /// It has said so: it has loaded its snapshot.
    has_acked: AtomicBool,
    synced: AtomicU64,
    heard_us: AtomicU64,
}

impl Replica {
    pub fn new(client: u64, shard: usize, address: String, port: u16, knows_fields: bool) -> Replica {
        Replica {
            client,
            shard,
            address,
            port,
            knows_fields,
            stage: AtomicU8::new(Stage::Waits as u8),
            acked: AtomicU64::new(0),
            has_acked: AtomicBool::new(false),
            synced: AtomicU64::new(0),
            heard_us: AtomicU64::new(store_us()),
        }
    }

    pub fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Relaxed) {
            of if of == Stage::Online as u8 => Stage::Online,
            of if of == Stage::Loads as u8 => Stage::Loads,
            _ => Stage::Waits,
        }
    }

    pub fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
        self.heard_us.store(store_us(), Ordering::Relaxed);
    }

    pub fn ack(&self, position: u64, synced: Option<u64>) {
        self.acked.fetch_max(position, Ordering::Relaxed);
        self.has_acked.store(true, Ordering::Relaxed);
        if let Some(synced) = synced {
            self.synced.fetch_max(synced, Ordering::Relaxed);
        }
        self.heard_us.store(store_us(), Ordering::Relaxed);
    }

    /// Whether it has come so far.
    pub fn has(&self, position: u64) -> bool {
        self.stage() == Stage::Online && self.has_acked.load(Ordering::Relaxed) && self.acked() >= position
    }

    pub fn acked(&self) -> u64 {
        self.acked.load(Ordering::Relaxed)
    }

    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Relaxed)
    }

    /// For how many seconds nothing was heard of it; 0 before it is online, as in Redis.
    pub fn lag_s(&self) -> u64 {
        match self.stage() {
            Stage::Online => self.silent_us() / 1_000_000,
            Stage::Waits | Stage::Loads => 0,
        }
    }

    pub fn silent_us(&self) -> u64 {
        store_us().saturating_sub(self.heard_us.load(Ordering::Relaxed))
    }
}
