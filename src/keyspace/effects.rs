//! What a write or a death must tell the rooms above: an ordered queue that commands fill and the shard empties after
//! each command, so that `expired` comes before the `set` that found the dead key.

use super::watch::Watched;
use crate::config::NotifyFlags;

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
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.notices.is_empty()
    }

    pub fn take(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }
}
