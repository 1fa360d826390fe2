//! The keys that a connection watches.

use crate::keyspace::Watch;
use ahash::RandomState;
use hashbrown::HashTable;
use std::collections::BTreeMap;

/// A key under WATCH.
pub struct WatchedKey {
    pub db: usize,
    pub key: Box<[u8]>,
    pub shard: usize,
    pub watch: Watch,
}

impl WatchedKey {
    /// For [`Keyspace::end_watches`].
    ///
    /// [`Keyspace::end_watches`]: crate::keyspace::Keyspace::end_watches
    pub fn seen(&self) -> (usize, &[u8], Watch) {
        (self.db, &self.key, self.watch)
    }
}

/// The keys under WATCH of a connection, each once.
#[derive(Default)]
pub struct WatchedKeys {
    keys: Vec<WatchedKey>,
    /// Where they are in `keys`.
    places: HashTable<usize>,
    hasher: RandomState,
    key_bytes: usize,
}

impl WatchedKeys {
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// What they take here and with the shards.
    pub fn bytes(&self) -> usize {
        2 * (self.keys.len() * size_of::<WatchedKey>() + self.key_bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &WatchedKey> {
        self.keys.iter()
    }

    pub fn contains(&self, db: usize, key: &[u8]) -> bool {
        let same = |place: &usize| matches!(&self.keys[*place], of if of.db == db && *of.key == *key);
        self.places.find(self.hasher.hash_one((db, key)), same).is_some()
    }

    /// One more, which is not there.
    pub fn add(&mut self, key: WatchedKey) {
        let WatchedKeys { keys, places, hasher, key_bytes } = self;
        *key_bytes += key.key.len();
        let hash = |of: &WatchedKey| hasher.hash_one((of.db, &*of.key));
        places.insert_unique(hash(&key), keys.len(), |place| hash(&keys[*place]));
        keys.push(key);
    }

    /// All of them; none is left.
    pub fn take(&mut self) -> Vec<WatchedKey> {
        std::mem::take(self).keys
    }
}

pub fn by_shard(watched: Vec<WatchedKey>) -> BTreeMap<usize, Vec<WatchedKey>> {
    let mut of_shard: BTreeMap<usize, Vec<WatchedKey>> = BTreeMap::new();
    for key in watched {
        of_shard.entry(key.shard).or_default().push(key);
    }
    of_shard
}
