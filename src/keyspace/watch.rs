//! Keys that transactions watch, with the number of their last change.

use crate::observe::GiveBack;
use std::collections::HashMap;

/// What was seen of a key when it was watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    pub version: u64,
    /// The fields of a hash, or members of a set or a sorted set, that were alive, none of another type; `None` where there was no key.
    pub fields: Option<u64>,
}

/// Empty nearly always.
#[derive(Default)]
pub struct Watched {
    keys: HashMap<(usize, Box<[u8]>), Versions>,
    /// Changes of watched keys so far.
    changes: u64,
}

#[derive(Default)]
struct Versions {
    watchers: usize,
    last_change: u64,
}

impl Watched {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many keys are watched.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// One more watches the key; returns the number of its last change.
    pub fn add(&mut self, db: usize, key: &[u8]) -> u64 {
        // A key that was forgotten and is watched anew must not look unchanged to whoever saw it before.
        let changes = self.changes;
        let versions = self.keys.entry((db, key.into())).or_insert(Versions { watchers: 0, last_change: changes });
        versions.watchers += 1;
        versions.last_change
    }

    pub fn remove(&mut self, db: usize, key: &[u8]) {
        let name = (db, key.into());
        if let Some(versions) = self.keys.get_mut(&name) {
            versions.watchers -= 1;
            if versions.watchers == 0 {
                self.keys.remove(&name);
                self.keys.give_back();
            }
        }
    }

    pub fn version(&self, db: usize, key: &[u8]) -> Option<u64> {
        self.keys.get(&(db, key.into())).map(|versions| versions.last_change)
    }

    #[cold]
    pub fn changed(&mut self, db: usize, key: &[u8]) {
        if let Some(versions) = self.keys.get_mut(&(db, key.into())) {
            self.changes += 1;
            versions.last_change = self.changes;
        }
    }

    /// The watched keys of a database.
    pub fn of_db(&self, db: usize) -> Vec<Box<[u8]>> {
        self.keys.keys().filter(|(of, _)| *of == db).map(|(_, key)| key.clone()).collect()
    }
}
