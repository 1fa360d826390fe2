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

#[derive(Default)]
pub struct Effects {
    /// The classes somebody asked for (`notify-keyspace-events`); nothing else is recorded.
    pub wanted: NotifyFlags,
    notices: Vec<Notice>,
    /// Keys whose changes a transaction wants to know of.
    pub(super) watched: Watched,
    /// Keys for which clients wait, in how many databases' queues, with the number of those who do.
    waited: HashMap<Box<[u8]>, Vec<(usize, usize)>>,
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
        let is_waited_for = self.waited.get(key).is_some_and(|of| of.iter().any(|(other, _)| *other == db));
        if is_waited_for && !self.ready.iter().any(|(other, name)| *other == db && **name == *key) {
            self.ready.push((db, key.into()));
        }
    }

    /// One more client waits for a key.
    pub fn wait_for(&mut self, db: usize, key: &[u8]) {
        let of_key = self.waited.entry(key.into()).or_default();
        match of_key.iter_mut().find(|(other, _)| *other == db) {
            Some((_, count)) => *count += 1,
            None => of_key.push((db, 1)),
        }
    }

    pub fn wait_no_more(&mut self, db: usize, key: &[u8]) {
        let Some(of_key) = self.waited.get_mut(key) else { return };
        of_key.iter_mut().filter(|(other, _)| *other == db).for_each(|(_, count)| *count -= 1);
        of_key.retain(|(_, count)| *count > 0);
        if of_key.is_empty() {
            self.waited.remove(key);
        }
    }

    pub fn take_ready(&mut self) -> Vec<(usize, Box<[u8]>)> {
        std::mem::take(&mut self.ready)
    }

    /// The keys of a database that somebody watches or waits for.
    pub(super) fn awaited_in(&self, db: usize) -> Vec<Box<[u8]>> {
        let waited = self.waited.iter().filter(|(_, of)| of.iter().any(|(other, _)| *other == db));
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
