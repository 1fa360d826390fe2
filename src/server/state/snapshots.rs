//! What all shards know of snapshots: whether one is loaded or written, and what has become of the last.

use crate::clock::realtime_us;
use crate::config::Config;
use crate::persist::Progress;
use crate::persist::claim::{Claim, claim};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
pub struct Snapshots {
    /// One is loaded: whoever wants data is told so.
    pub loading: AtomicBool,
    /// One is loaded beside the data that are there, which go on being served.
    pub arriving: AtomicBool,
    pub progress: Progress,
    pub is_saving: AtomicBool,
    /// Seconds since 1970; first the start's.
    pub last_save_s: AtomicU64,
    /// Changes, of all shards, that it has.
    pub saved_changes: AtomicU64,
    pub saves: AtomicU64,
    /// When one began that is made beside others' work, seconds since 1970, or 0; how long the last lasted.
    pub began_s: AtomicU64,
    pub lasted_s: AtomicU64,
    /// When one was last begun because of a save point.
    pub tried_s: AtomicU64,
    /// One is to be begun as soon as the log is made anew.
    pub is_scheduled: AtomicBool,
    /// It is to be given up: the server ends.
    pub gives_up: AtomicBool,
    pub has_failed: AtomicBool,
    /// Why the last that was made beside others' work has failed, where it has.
    failure: Mutex<String>,
    /// Of the last that was loaded: keys, and keys that had died by then.
    pub loaded_keys: AtomicU64,
    pub loaded_dead: AtomicU64,
    /// The file that is this server's, and nobody else's.
    claimed: Mutex<Option<(String, Claim)>>,
}

impl Snapshots {
    /// At the start: one is to be loaded, if it is there.
    pub fn of(config: &Config) -> Snapshots {
        let snapshots = Snapshots {
            loading: AtomicBool::new(config.appendonly || Path::new(&config.dbfilename).exists()),
            last_save_s: AtomicU64::new(realtime_us() / 1_000_000),
            lasted_s: AtomicU64::new(u64::MAX),
            ..Snapshots::default()
        };
        snapshots.follow_config(config);
        snapshots
    }

    pub fn follow_config(&self, config: &Config) {
        self.progress.key_delay_us.store(config.key_load_delay_us, Ordering::Relaxed);
    }

    pub fn is_loading(&self) -> bool {
        self.loading.load(Ordering::Relaxed)
    }

    /// Whether one is loaded, served or not.
    pub fn is_taking_in(&self) -> bool {
        self.is_loading() || self.arriving.load(Ordering::Relaxed)
    }

    /// Whether nothing is to be changed any more, since it would not come to the disk.
    #[inline]
    pub fn stops_writes(&self, config: &Config) -> bool {
        self.has_failed.load(Ordering::Relaxed) && config.stop_writes_on_bgsave_error && !config.save.is_empty()
    }

    pub fn set_failure(&self, reason: &str) {
        reason.clone_into(&mut self.failure.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn failure(&self) -> String {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether that file is known to be this server's.
    pub fn has_claimed(&self, dir: &str, name: &str) -> bool {
        let claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        claimed.as_ref().is_some_and(|(of, _)| *of == format!("{dir}/{name}"))
    }

    /// Claims the file that `dbfilename` is in the folder `dir`; whether it is this server's.
    pub fn claim(&self, dir: &str, name: &str) -> io::Result<bool> {
        let path = format!("{dir}/{name}");
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        if claimed.as_ref().is_none_or(|(of, _)| *of != path) {
            match claim(&path)? {
                Some(lock) => *claimed = Some((path, lock)),
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}
