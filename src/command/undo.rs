//! Keys as they were before something changed them, to be put back where that must not have happened.

use super::Ctx;
use crate::keyspace::{Key, Membership, Owned, StaleCopy, Touch};
use crate::resp::Request;
use crate::value::number::parse_i64;

/// No more of a key is copied. A script over several shards that writes a larger one holds everything instead, which
/// costs some tens of microseconds, as much as this copy.
const SAVED_BYTES_MAX: usize = 64 << 10;

/// A key as it was.
pub struct Saved {
    db: usize,
    key: Box<[u8]>,
    /// What was under it, and its deadline.
    was: Option<(Owned, Option<u64>)>,
    /// The groups that it was in.
    membership: Option<Membership>,
    /// It was never to be evicted.
    was_pinned: bool,
    /// What it had been before it died.
    stale: Option<StaleCopy>,
    /// Until when somebody had its lease (`GETFRESH`).
    lease_until_ms: Option<u64>,
}

/// The database that a command writes to beside its connection's: MOVE's, and COPY's.
pub fn other_database(name: &str, request: Request) -> Option<usize> {
    let index = match name {
        "move" => Some(2),
        "copy" => (3..request.len()).find(|index| request.is(*index, "db")).map(|index| index + 1),
        _ => None,
    };
    let number = request.get(index?).and_then(parse_i64)?;
    usize::try_from(number).ok()
}

impl Ctx<'_> {
    /// Takes down what is under a key, unless that is so large that copies would cost more than they are worth.
    pub fn save(&mut self, key: Key) -> Option<Saved> {
        // (What is dead of it is told whatever is undone, so that it must not come back.)
        self.keyspace.take_dead_elements(self.db, key, self.now);
        let live = self.keyspace.find(self.db, key, self.now, Touch::NOTHING);
        if live.as_ref().is_some_and(|live| live.bytes() > SAVED_BYTES_MAX) {
            return None;
        }
        let was = live.map(|live| (live.to_owned(), live.deadline_ms()));
        let membership = self.keyspace.membership(self.db, key.bytes).filter(|_| was.is_some());
        let was_pinned = self.keyspace.is_pinned(self.db, key.bytes);
        let stale = self.keyspace.stale_copy(self.db, key.bytes);
        if stale.as_ref().is_some_and(|stale| stale.bytes() > SAVED_BYTES_MAX) {
            return None;
        }
        let lease_until_ms = self.keyspace.leases.until_ms(self.db, key.hash, self.now);
        Some(Saved { db: self.db, key: key.bytes.into(), was, membership, was_pinned, stale, lease_until_ms })
    }

    /// Makes a key what it was. Nobody is told: as far as others know it was never anything else.
    pub fn put_back(&mut self, saved: Saved) {
        let Saved { db, key, was, membership, was_pinned, stale, lease_until_ms } = saved;
        let key = self.other_key(&key);
        let mark = self.keyspace.effects.mark();
        match was {
            Some((value, deadline_ms)) => self.keyspace.insert_owned(db, key, value, deadline_ms, self.now),
            None => drop(self.keyspace.remove(db, key, self.now)),
        }
        if let Some(membership) = membership {
            self.keyspace.recall_membership(db, key, &membership, self.now);
        }
        self.keyspace.set_pinned(db, key, was_pinned);
        if let Some(stale) = stale {
            self.keyspace.put_stale_back(db, key.bytes, &stale, self.now);
        }
        match lease_until_ms {
            Some(until_ms) => self.keyspace.leases.grant(db, key.hash, until_ms),
            None => self.keyspace.leases.end(db, key.hash),
        }
        self.keyspace.effects.take_from(mark);
        self.keyspace.effects.close(db, key.hash);
    }
}
