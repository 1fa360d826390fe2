//! What a write or a death must tell the rooms above: an ordered queue that commands fill and the shard empties after
//! each command, so that `expired` comes before the `set` that found the dead key.

use super::watch::Watched;
use crate::config::NotifyFlags;
use std::collections::HashMap;

/// One keyspace notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub db: usize,
    pub class: NotifyFlags,
    pub event: &'static str,
    pub key: Box<[u8]>,
}

/// A key of a database for which clients wait.
struct Waited {
    db: usize,
    clients: usize,
    /// It stands among the ready ones.
    is_ready: bool,
}

#[derive(Default)]
pub struct Effects {
    /// The classes somebody asked for (`notify-keyspace-events`); nothing else is recorded.
    pub wanted: NotifyFlags,
    notices: Vec<Notice>,
    /// Keys whose changes a transaction wants to know of.
    pub(super) watched: Watched,
    /// Keys for which clients wait, by database.
    waited: HashMap<Box<[u8]>, Vec<Waited>>,
    /// Those among them that have changed, in the order in which they first did.
    ready: Vec<(usize, Box<[u8]>)>,
    /// Changes since the start, expiry included.
    pub dirty: u64,
}

impl Effects {
    #[inline]
    pub fn notify(&mut self, class: NotifyFlags, event: &'static str, db: usize, key: &[u8]) {
        if self.wanted.contains(class) {
            self.notices.push(Notice { db, class, event, key: key.into() });
        }
    }

    /// A key was changed; its death is none.
    #[inline]
    pub fn touched(&mut self, db: usize, key: &[u8]) {
        if !self.watched.is_empty() {
            self.watched.changed(db, key);
        }
        self.gone(db, key);
    }

    /// A key died or is no longer what it was.
    #[inline]
    pub fn gone(&mut self, db: usize, key: &[u8]) {
        if !self.waited.is_empty() {
            self.ready(db, key);
        }
    }

    /// There may be something for those who wait for a key.
    #[cold]
    pub fn ready(&mut self, db: usize, key: &[u8]) {
        let found = self.waited.get_mut(key).and_then(|of_key| of_key.iter_mut().find(|waited| waited.db == db));
        if let Some(waited) = found.filter(|waited| !waited.is_ready) {
            waited.is_ready = true;
            self.ready.push((db, key.into()));
        }
    }

    /// One more client waits for a key.
    pub fn wait_for(&mut self, db: usize, key: &[u8]) {
        let of_key = self.waited.entry(key.into()).or_default();
        match of_key.iter_mut().find(|waited| waited.db == db) {
            Some(waited) => waited.clients += 1,
            None => of_key.push(Waited { db, clients: 1, is_ready: false }),
        }
    }

    pub fn wait_no_more(&mut self, db: usize, key: &[u8]) {
        let Some(of_key) = self.waited.get_mut(key) else { return };
        of_key.iter_mut().filter(|waited| waited.db == db).for_each(|waited| waited.clients -= 1);
        of_key.retain(|waited| waited.clients > 0);
        if of_key.is_empty() {
            self.waited.remove(key);
        }
    }

    pub fn take_ready(&mut self) -> Vec<(usize, Box<[u8]>)> {
        for (db, key) in &self.ready {
            let of_key = self.waited.get_mut(key).into_iter().flatten();
            of_key.filter(|waited| waited.db == *db).for_each(|waited| waited.is_ready = false);
        }
        std::mem::take(&mut self.ready)
    }

    /// The keys of a database that somebody watches or waits for.
    pub(super) fn awaited_in(&self, db: usize) -> Vec<Box<[u8]>> {
        let waited = self.waited.iter().filter(|(_, of_key)| of_key.iter().any(|waited| waited.db == db));
        self.watched.of_db(db).into_iter().chain(waited.map(|(key, _)| key.clone())).collect()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.notices.is_empty()
    }

    pub fn take(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }
}
