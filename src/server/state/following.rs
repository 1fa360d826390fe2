//! Whether this server follows another one, and how far that is, as all shards know it.

use crate::clock::store_us;
use crate::config::{Config, Primary};
use crate::observe::log;
use crate::replicate::link::{Shared, Stage};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many commands of a primary's that could not run are told.
const TOLD: u64 = 10;

/// The server that is followed.
#[derive(Clone)]
pub struct Target {
    pub primary: Primary,
    /// Which one this is: whoever is about another one has nothing to say any more.
    pub number: u64,
    pub link: Option<Arc<Shared>>,
    /// The link is up: data are loaded, and what changes comes.
    pub is_up: bool,
    /// Since when it is not, store microseconds; none where it never was.
    pub down_since_us: Option<u64>,
    /// The primary is to follow this server from now on.
    pub takes_over: bool,
    /// The primary was asked for that, and has refused.
    pub has_refused: bool,
}

#[derive(Default)]
pub struct Following {
    target: Mutex<Option<Target>>,
    numbers: AtomicU64,
    /// Nobody but the primary may write; its old data are not to be shown.
    is_read_only: AtomicBool,
    is_stale: AtomicBool,
    /// Data are another server's.
    is_replica: AtomicBool,
    /// Somebody makes this server a replica, or a primary.
    is_changing: AtomicBool,
    /// A part of the stream is being done; so many want that none is begun.
    is_applying: AtomicBool,
    holds: AtomicUsize,
    /// The database that the stream has chosen last.
    db: AtomicUsize,
    /// How far the stream is that was done.
    applied: AtomicU64,
    /// Bytes that have come on links that have ended.
    former_bytes: AtomicU64,
    /// Commands of primaries that could not run.
    refused: AtomicU64,
}

/// What INFO and ROLE say of the link.
pub struct LinkFacts {
    pub primary: Primary,
    pub is_up: bool,
    pub stage: Stage,
    pub last_io_s: i64,
    /// How far the stream has come that is done, or about to be.
    pub read: u64,
    pub down_since_s: Option<i64>,
    /// Of a snapshot that is fetched: its length, where that is known, and what has come.
    pub sync: Option<(u64, u64)>,
    /// For how long nothing has come of it.
    pub sync_silent_s: i64,
}

impl Following {
    fn lock(&self) -> MutexGuard<'_, Option<Target>> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_replica(&self) -> bool {
        self.is_replica.load(Ordering::Acquire)
    }

    /// Nobody but the server that this one follows may write.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Relaxed)
    }

    /// That server is out of reach, and its old data are not to be shown.
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    /// As DEBUG REPLICA says.
    pub fn set_read_only(&self, wants: bool) {
        self.is_read_only.store(wants, Ordering::Relaxed);
    }

    pub fn set_stale(&self, wants: bool) {
        self.is_stale.store(wants, Ordering::Relaxed);
    }

    pub fn target(&self) -> Option<Target> {
        self.lock().clone()
    }

    /// Follows another server from now on; under which number. The link to the one before ends.
    pub fn begin(&self, primary: Primary, takes_over: bool, config: &Config) -> u64 {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let mut target = self.lock();
        let before = target.replace(Target {
            primary,
            number,
            link: None,
            is_up: false,
            down_since_us: None,
            takes_over,
            has_refused: false,
        });
        end_link(before);
        drop(target);
        self.is_replica.store(true, Ordering::Release);
        self.follow_config(config);
        number
    }

    /// How often this server was told to follow another one.
    pub fn number(&self) -> u64 {
        self.numbers.load(Ordering::Relaxed)
    }

    /// Follows nobody from now on; whether it has followed somebody. The data are another server's until [`Following::end`].
    pub fn leave(&self) -> bool {
        let before = self.lock().take();
        let was = before.is_some();
        end_link(before);
        was
    }

    /// The data are this server's own, and clients may write.
    pub fn end(&self, config: &Config) {
        self.is_replica.store(false, Ordering::Release);
        self.follow_config(config);
    }

    /// Somebody makes this server a replica, or a primary; none where somebody else does.
    pub fn change(self: &Arc<Following>) -> Option<Change> {
        (!self.is_changing.swap(true, Ordering::AcqRel)).then(|| Change(self.clone()))
    }

    /// What is said of replicas may have changed.
    pub fn follow_config(&self, config: &Config) {
        let target = self.lock();
        // (What is no longer followed and not yet its own nobody writes to either.)
        let is_replica = target.is_some() || self.is_replica();
        self.set_read_only(is_replica && config.replica_read_only);
        let is_stale = target.as_ref().is_some_and(|target| !target.is_up);
        self.set_stale(is_stale && !config.replica_serve_stale_data);
    }

    /// Whether that target is the one that is followed.
    pub fn is_current(&self, number: u64) -> bool {
        self.lock().as_ref().is_some_and(|target| target.number == number)
    }

    /// Changes what is known of a target, if it is still followed; whether it is.
    pub fn note(&self, number: u64, change: impl FnOnce(&mut Target)) -> bool {
        match &mut *self.lock() {
            Some(target) if target.number == number => {
                change(target);
                true
            }
            _ => false,
        }
    }

    /// Ends the link, which is made anew.
    pub fn break_link(&self) -> bool {
        let target = self.lock();
        let link = target.as_ref().filter(|target| target.is_up).and_then(|target| target.link.clone());
        link.map(|link| link.break_off()).is_some()
    }

    /// What the link's state is.
    pub fn facts(&self) -> Option<LinkFacts> {
        let target = self.target()?;
        let link = target.link.as_ref();
        // (What has come may still have to be done where nothing comes any more.)
        let is_up = target.is_up && link.is_none_or(|link| !link.is_lost());
        let stage = link.filter(|link| !link.is_lost()).map_or(Stage::Connect, |link| link.stage());
        let read = |link: &Arc<Shared>| {
            (link.snapshot_bytes.load(Ordering::Relaxed), link.snapshot_read.load(Ordering::Relaxed))
        };
        let now_us = store_us();
        let down_since_us = if target.is_up { Some(now_us) } else { target.down_since_us };
        Some(LinkFacts {
            is_up,
            stage: if is_up { Stage::Connected } else { stage },
            last_io_s: link.filter(|_| is_up).and_then(|link| link.silent_s()).map_or(-1, |s| s as i64),
            read: link.filter(|_| is_up).map_or(0, |link| link.read()),
            down_since_s: (!is_up)
                .then(|| down_since_us.map_or(-1, |since_us| (now_us.saturating_sub(since_us) / 1_000_000) as i64)),
            sync_silent_s: link.and_then(|link| link.silent_s()).map_or(-1, |s| s as i64),
            sync: link.filter(|_| !target.is_up && stage == Stage::Sync).map(read),
            primary: target.primary,
        })
    }

    /// A part of the stream is about to be done; whether it may.
    pub fn may_apply(&self) -> bool {
        self.is_applying.store(true, Ordering::SeqCst);
        let may = self.holds.load(Ordering::SeqCst) == 0;
        if !may {
            self.is_applying.store(false, Ordering::SeqCst);
        }
        may
    }

    pub fn has_applied(&self) {
        self.is_applying.store(false, Ordering::SeqCst);
    }

    /// No part of the stream is begun until this is let go; it is to be waited for until none is being done.
    pub fn hold(self: &Arc<Following>) -> Hold {
        self.holds.fetch_add(1, Ordering::SeqCst);
        Hold(self.clone())
    }

    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Relaxed)
    }

    pub fn set_applied(&self, position: u64) {
        self.applied.store(position, Ordering::Relaxed);
    }

    pub fn db(&self) -> usize {
        self.db.load(Ordering::Relaxed)
    }

    pub fn set_db(&self, db: usize) {
        self.db.store(db, Ordering::Relaxed);
    }

    /// A command of the primary's cannot run here.
    pub fn note_refused(&self, name: &str, error: &str) {
        let count = self.refused.fetch_add(1, Ordering::Relaxed);
        if count < TOLD {
            log::warning(format_args!("== CRITICAL == '{name}' of the primary's cannot run here: {error}"));
        }
    }

    /// Bytes that have come on links.
    pub fn input_bytes(&self) -> u64 {
        let link = self.lock().as_ref().and_then(|target| target.link.clone());
        self.former_bytes.load(Ordering::Relaxed) + link.map_or(0, |link| link.input_bytes.load(Ordering::Relaxed))
    }

    /// A link has ended.
    pub fn count(&self, link: &Shared) {
        self.former_bytes.fetch_add(link.input_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

fn end_link(target: Option<Target>) {
    if let Some(link) = target.and_then(|target| target.link) {
        link.end();
    }
}

/// Nobody else changes what this server is while this is there.
pub struct Change(Arc<Following>);

impl Drop for Change {
    fn drop(&mut self) {
        self.0.is_changing.store(false, Ordering::Release);
    }
}

/// Nothing of the stream is begun while this is there.
pub struct Hold(Arc<Following>);

impl Hold {
    pub fn is_idle(&self) -> bool {
        !self.0.is_applying.load(Ordering::SeqCst)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::SeqCst);
    }
}
