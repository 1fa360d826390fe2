//! Keys as they were before something changed them, to be put back where that must not have happened.

use super::Ctx;
use crate::keyspace::{Key, Owned, Touch};

/// A key as it was.
pub struct Saved {
    db: usize,
    key: Box<[u8]>,
    /// What was under it, and its deadline.
    was: Option<(Owned, Option<u64>)>,
}

impl Ctx<'_> {
    /// Takes down what is under a key.
    pub fn save(&mut self, key: Key) -> Saved {
        let live = self.keyspace.find(self.db, key, self.now, Touch::NOTHING);
        let was = live.map(|live| (live.to_owned(), live.deadline_ms()));
        Saved { db: self.db, key: key.bytes.into(), was }
    }

    /// Makes a key what it was. Nobody is told: as far as others know it was never anything else.
    pub fn put_back(&mut self, Saved { db, key, was }: Saved) {
        let key = self.other_key(&key);
        match was {
            Some((value, deadline_ms)) => self.keyspace.insert_owned(db, key, value, deadline_ms, self.now),
            None => drop(self.keyspace.remove(db, key, self.now)),
        }
        self.keyspace.effects.close(db, key.hash);
    }
}
