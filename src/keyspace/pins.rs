//! Keys that are never evicted: those that are pinned (`BLESS`), and those whose policy says so.
//!
//! Pins are kept beside the tables, so that a key without one takes no byte more. A pin stays while its key does, whatever
//! becomes of the value, and goes with it (`Effects::departs`).

use super::{Cursor, Key, Keyspace};
use crate::clock::Now;
use crate::config::MaxmemoryPolicy;
use crate::table::{Dict, Entry, Table, Value};

/// The pinned keys of all databases.
pub struct Pins {
    dbs: Vec<Dict>,
    /// Of all of them.
    count: usize,
    /// How often a key was pinned, or its pin has gone.
    changes: u64,
}

impl Pins {
    pub(super) fn new(databases: usize) -> Pins {
        Pins { dbs: (0..databases).map(|_| Dict::new()).collect(), count: 0, changes: 0 }
    }

    pub(super) fn has(&self, db: usize, key: &[u8]) -> bool {
        self.count > 0 && self.dbs[db].get(key).is_some()
    }

    /// Whether that is a change.
    fn set(&mut self, db: usize, key: &[u8], is_pinned: bool) -> bool {
        let dict = &mut self.dbs[db];
        let changes = match is_pinned {
            true => dict.add(key, Value::Bytes(b"")),
            false => dict.remove(key),
        };
        if changes {
            self.count = if is_pinned { self.count + 1 } else { self.count - 1 };
            self.changes += 1;
        }
        changes
    }

    /// A key has gone.
    pub(super) fn leave(&mut self, db: usize, key: &[u8]) {
        if self.count > 0 {
            self.set(db, key, false);
        }
    }

    fn flush(&mut self, db: usize) {
        self.count -= std::mem::take(&mut self.dbs[db]).len();
        self.changes += 1;
    }

    fn bytes(&self) -> usize {
        if self.count > 0 { self.dbs.iter().map(Dict::bytes).sum() } else { 0 }
    }
}

/// How a search for keys that may go has ended, where some are protected.
#[derive(Default)]
pub(super) struct Search {
    /// Blocks that were looked into since a key was found.
    looked: usize,
    /// All were looked into in vain, when this was so, and until then there is no need to look again.
    found_none: Option<(Sight, u64)>,
}

/// What has to change before a key may be found that may go, where there was none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sight {
    policy: MaxmemoryPolicy,
    keys: usize,
    with_deadline: usize,
    pin_changes: u64,
    policy_changes: u64,
}

/// For no longer than this nothing is looked for, whatever has changed: which keys have deadlines is known by their number only.
const FOUND_NONE_MS: u64 = 1000;

impl Search {
    /// So many blocks were looked into in vain, of so many in all; whether there are others.
    fn looks_on(&mut self, blocks: usize, all: usize) -> bool {
        self.looked += blocks;
        let looks_on = self.looked < all;
        if !looks_on {
            self.looked = 0;
        }
        looks_on
    }
}

impl Keyspace {
    /// Whether a key is pinned.
    #[inline]
    pub fn is_pinned(&self, db: usize, key: &[u8]) -> bool {
        self.effects.pins.as_ref().is_some_and(|pins| pins.has(db, key))
    }

    /// Whether some key has been pinned since the start: who is told of a key's state is told of its pin.
    #[inline]
    pub fn knows_pins(&self) -> bool {
        self.effects.pins.is_some()
    }

    /// How many keys of a database are pinned.
    pub fn pinned(&self, db: usize) -> usize {
        self.effects.pins.as_ref().map_or(0, |pins| pins.dbs[db].len())
    }

    /// How many keys are pinned.
    pub fn all_pinned(&self) -> usize {
        self.effects.pins.as_ref().map_or(0, |pins| pins.count)
    }

    /// Pins a key that is there, or takes its pin away; whether that is a change. Snapshots that are made have the key as it was.
    pub fn set_pinned(&mut self, db: usize, key: Key, is_pinned: bool) -> bool {
        let Some(slot) = self.dbs[db].find(key) else { return false };
        if self.is_pinned(db, key.bytes) == is_pinned {
            return false;
        }
        let (table, nodes) = (&self.dbs[db], &self.nodes);
        let was = || Some(nodes.was(table.entry(slot), table.deadline_ms(slot)));
        self.effects.save_first(db, key.hash, || key.bytes, was);
        let databases = self.dbs.len();
        self.effects.pins_to_keep(databases).set(db, key.bytes, is_pinned)
    }

    /// Shows pinned keys of a database of this shard, about `count`, and returns where to go on, perhaps on the next of
    /// `shards` shards; `None` at the end.
    pub fn scan_pinned(
        &self,
        db: usize,
        cursor: Cursor,
        count: usize,
        shards: usize,
        now: Now,
        mut each: impl FnMut(&[u8]),
    ) -> Option<Cursor> {
        let lives = |key: &[u8]| self.peek(db, self.hasher.key(key), now).is_some();
        let show = |entry: Entry, _| {
            if lives(entry.key()) {
                each(entry.key())
            }
        };
        let next = match &self.effects.pins {
            Some(pins) => pins.dbs[db].scan(cursor.to_u64(), count, show),
            None => 0,
        };
        let next = match next {
            0 => Cursor::start(cursor.shard + 1),
            next => Cursor::from_u64(next).on_shard(cursor.shard),
        };
        Some(next).filter(|next| next.shard < shards)
    }

    /// Bytes of what is known of pins.
    pub fn pin_bytes(&self) -> usize {
        self.effects.pins.as_ref().map_or(0, |pins| pins.bytes())
    }

    pub(super) fn flush_pins(&mut self, db: usize) {
        if let Some(pins) = &mut self.effects.pins {
            pins.flush(db);
        }
    }

    pub(super) fn swap_pins(&mut self, a: usize, b: usize) {
        if let Some(pins) = &mut self.effects.pins {
            pins.dbs.swap(a, b);
        }
    }

    /// The pins of databases that arrive take the place of those that are there, or the other way round.
    pub(super) fn exchange_pins(&mut self) {
        std::mem::swap(&mut self.effects.pins, &mut self.arriving_pins);
    }

    /// Those of databases that have arrived, or are given up.
    pub(super) fn end_arriving_pins(&mut self, takes_place: bool) {
        let arrived = self.arriving_pins.take().filter(|_| takes_place);
        if arrived.is_some() {
            self.effects.pins = arrived;
        }
    }

    /// Whether there are keys that never go, whatever the policy.
    #[inline]
    pub(super) fn protects_keys(&self) -> bool {
        self.all_pinned() > 0 || self.policies.as_ref().is_some_and(|policies| policies.protects())
    }

    /// Whether this one never goes.
    pub(super) fn is_protected(&self, db: usize, key: &[u8]) -> bool {
        self.is_pinned(db, key) || self.policies.as_ref().is_some_and(|policies| policies.protects_key(key))
    }

    fn sight(&self, policy: MaxmemoryPolicy) -> Sight {
        Sight {
            policy,
            keys: self.dbs.iter().map(Table::len).sum(),
            with_deadline: self.dbs.iter().map(Table::with_deadline).sum(),
            pin_changes: self.effects.pins.as_ref().map_or(0, |pins| pins.changes),
            policy_changes: self.policy_changes,
        }
    }

    /// Whether it is known that all keys which a policy would let go are protected.
    #[inline]
    pub(super) fn has_found_none(&self, policy: MaxmemoryPolicy, now: Now) -> bool {
        let known = self.search.found_none.filter(|(_, until_ms)| now.ms < *until_ms);
        known.is_some_and(|(sight, _)| sight == self.sight(policy))
    }

    /// A search has found keys that may go, or has looked into so many blocks in vain; whether there are others to look into.
    pub(super) fn searched(&mut self, found: bool, blocks: usize, policy: MaxmemoryPolicy, now: Now) -> bool {
        if found {
            self.search = Search::default();
            return false;
        }
        let all = self.dbs.iter().map(Table::block_count).sum();
        let looks_on = self.search.looks_on(blocks, all);
        if !looks_on {
            self.search.found_none = Some((self.sight(policy), now.ms.saturating_add(FOUND_NONE_MS)));
        }
        looks_on
    }
}
