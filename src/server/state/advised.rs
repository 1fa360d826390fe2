//! The prefixes that advisors follow, which all shards share: each shard looks here what holds now, so that where several
//! connections change it at a time all shards end with the last change.

use crate::keyspace::{Advised, Lifetimes};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// No more prefixes are followed than this, in all databases: every read asks each of them.
pub const PREFIXES_MAX: usize = 16;

#[derive(Default)]
struct Known {
    last: u64,
    all: Vec<Arc<Advised>>,
}

#[derive(Default)]
pub struct AdvisedPrefixes(Mutex<Known>);

impl AdvisedPrefixes {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, the latest last.
    pub fn all(&self) -> Vec<Arc<Advised>> {
        self.known().all.clone()
    }

    pub fn get(&self, db: usize, prefix: &[u8]) -> Option<Arc<Advised>> {
        self.known().all.iter().find(|advised| advised.is_of(db, prefix)).cloned()
    }

    /// Another is followed, or one anew; `false` where there are too many.
    pub fn add(&self, db: usize, prefix: &[u8], lifetimes: Lifetimes) -> bool {
        let mut known = self.known();
        known.all.retain(|advised| !advised.is_of(db, prefix));
        if known.all.len() >= PREFIXES_MAX {
            return false;
        }
        known.last += 1;
        let id = known.last;
        known.all.push(Arc::new(Advised { id, db, prefix: prefix.into(), lifetimes }));
        true
    }

    /// Whether it was followed.
    pub fn remove(&self, db: usize, prefix: &[u8]) -> bool {
        let mut known = self.known();
        let count = known.all.len();
        known.all.retain(|advised| !advised.is_of(db, prefix));
        known.all.len() < count
    }
}
