//! Keys that are never evicted: those that are pinned (`BLESS`), and those whose policy says so.
//!
//! Pins are kept beside the tables, so that a key without one takes no byte more. A pin stays while its key does, whatever
//! becomes of the value, and goes with it (`Effects::departs`).

use super::beside::Beside;
use super::{Cursor, Key, Keyspace};
use crate::clock::Now;
use crate::config::MaxmemoryPolicy;
use crate::table::{Entry, Table, Value};

/// The pinned keys of all databases.
pub struct Pins {
    keys: Beside,
    /// How often a key was pinned, or its pin has gone.
    changes: u64,
}

impl Pins {
    pub(super) fn new(databases: usize) -> Pins {
        Pins { keys: Beside::new(databases), changes: 0 }
    }

    pub(super) fn has(&self, db: usize, key: &[u8]) -> bool {
        self.keys.get(db, key).is_some()
    }

    /// Whether that is a change.
    fn set(&mut self, db: usize, key: &[u8], is_pinned: bool) -> bool {
        let changes = match is_pinned {
            true => self.keys.change(db, |dict| dict.add(key, Value::Bytes(b""))),
            false => self.keys.remove(db, key),
        };
        self.changes += u64::from(changes);
        changes
    }

    /// A key has gone.
    pub(super) fn leave(&mut self, db: usize, key: &[u8]) {
        self.set(db, key, false);
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
        self.effects.pins.as_ref().map_or(0, |pins| pins.keys.of(db).len())
    }

    /// How many keys are pinned.
    pub fn all_pinned(&self) -> usize {
        self.effects.pins.as_ref().map_or(0, |pins| pins.keys.len())
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
            Some(pins) => pins.keys.of(db).scan(cursor.to_u64(), count, show),
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
        self.effects.pins.as_ref().map_or(0, |pins| pins.keys.bytes())
    }

    pub(super) fn flush_pins(&mut self, db: usize) {
        if let Some(pins) = &mut self.effects.pins {
            pins.keys.flush(db);
            pins.changes += 1;
        }
    }

    pub(super) fn swap_pins(&mut self, a: usize, b: usize) {
        if let Some(pins) = &mut self.effects.pins {
            pins.keys.swap(a, b);
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

    /// Checks that no pin is left of a key that has gone.
    #[cfg(test)]
    pub(super) fn check_pins(&self) {
        use crate::table::Dict;
        let Some(pins) = &self.effects.pins else { return };
        for (db, dict) in pins.keys.all().enumerate() {
            assert!(dict.iter().all(|entry| self.dbs[db].find(self.hasher.key(entry.key())).is_some()));
        }
        assert_eq!(pins.keys.len(), pins.keys.all().map(Dict::len).sum::<usize>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Policies};
    use crate::keyspace::{Clocking, Eviction, Hasher};

    const ALL: [MaxmemoryPolicy; 6] = [
        MaxmemoryPolicy::AllkeysLru,
        MaxmemoryPolicy::AllkeysLfu,
        MaxmemoryPolicy::AllkeysRandom,
        MaxmemoryPolicy::VolatileLru,
        MaxmemoryPolicy::VolatileRandom,
        MaxmemoryPolicy::VolatileTtl,
    ];

    fn at(seconds: u64) -> Now {
        Now::from_ms((1_000_000 + seconds) * 1000)
    }

    fn keyspace(policy: MaxmemoryPolicy) -> Keyspace {
        let mut keyspace = Keyspace::new(2, Hasher::new(3, 1));
        let mut config = Config::default();
        config.maxmemory_policy = policy;
        keyspace.set_clocking(Clocking::of(&config));
        keyspace
    }

    fn insert(keyspace: &mut Keyspace, name: &str, deadline_s: u64, is_pinned: bool) {
        let hasher = keyspace.hasher().clone();
        let key = hasher.key(name.as_bytes());
        keyspace.insert(0, key, Value::Bytes(&[b'x'; 50]), Some(at(deadline_s).ms), at(0));
        if is_pinned {
            assert!(keyspace.set_pinned(0, key, true) && !keyspace.set_pinned(0, key, true));
        }
        keyspace.effects.close_all();
    }

    /// Evicts for as long as there is something to evict; how often it was looked for in vain.
    fn evict_all(keyspace: &mut Keyspace, policy: MaxmemoryPolicy) -> usize {
        let how = Eviction { policy, samples: 5, limit: u64::MAX };
        let mut in_vain = 0;
        while keyspace.has_victims(policy, at(1)) {
            let evicted = keyspace.evict(how, 1000, at(1), &|_| false);
            in_vain += usize::from(evicted.count == 0);
            if evicted.count == 0 && !evicted.looks_on {
                break;
            }
        }
        keyspace.check();
        in_vain
    }

    /// Those whose turn it would be are pinned; one in a hundred of the others has a policy that protects it.
    #[test]
    fn all_go_that_are_not_protected() {
        let count = if cfg!(miri) { 100 } else { 20_000 };
        for policy in ALL {
            let mut keyspace = keyspace(policy);
            let (_, governed, _) = Policies::parse(["keep", "NONE", "NOEVICT"].into_iter()).expect("a policy");
            keyspace.set_policy(b"keep", Some(governed));
            (0..count).for_each(|i| insert(&mut keyspace, &format!("pinned{i}"), 1_000, true));
            (0..count / 100).for_each(|i| insert(&mut keyspace, &format!("keep{i}"), 2_000, false));
            (0..count / 20).for_each(|i| insert(&mut keyspace, &format!("other{i}"), 3_000, false));
            evict_all(&mut keyspace, policy);
            assert_eq!(keyspace.counters.evicted as usize, count / 20, "{policy:?}");
            assert_eq!(keyspace.len(0), count + count / 100, "{policy:?}");
        }
    }

    /// It is not looked for again and again where there is nothing, but at once where there may be something.
    #[test]
    fn a_search_ends_and_begins_anew() {
        let count = if cfg!(miri) { 100 } else { 20_000 };
        for policy in ALL {
            let mut keyspace = keyspace(policy);
            (0..count).for_each(|i| insert(&mut keyspace, &format!("pinned{i}"), 1_000, true));
            // Without a deadline, so that it is none to go under half of the policies.
            let hasher = keyspace.hasher().clone();
            keyspace.insert(0, hasher.key(b"immortal"), Value::Int(1), None, at(0));
            keyspace.effects.close_all();
            let in_vain = evict_all(&mut keyspace, policy);
            assert!(in_vain <= 1 + count / 500, "{in_vain}");
            assert!(!keyspace.has_victims(policy, at(1)), "{policy:?}");
            let key = hasher.key(b"pinned7");
            assert!(keyspace.set_pinned(0, key, false));
            assert!(keyspace.has_victims(policy, at(1)), "{policy:?}");
            evict_all(&mut keyspace, policy);
            assert!(keyspace.peek(0, key, at(1)).is_none(), "{policy:?}");
        }
    }

    #[test]
    fn a_pin_goes_with_its_key() {
        let mut keyspace = keyspace(MaxmemoryPolicy::AllkeysLru);
        let hasher = keyspace.hasher().clone();
        (0..100).for_each(|i| insert(&mut keyspace, &format!("key{i}"), 5 + i, true));
        assert_eq!((keyspace.all_pinned(), keyspace.pinned(1)), (100, 0));
        keyspace.insert(0, hasher.key(b"key99"), Value::Int(1), None, at(0));
        assert!(keyspace.is_pinned(0, b"key99"), "whatever is under it");
        assert!(keyspace.remove(0, hasher.key(b"key98"), at(0)));
        assert!(!keyspace.is_pinned(0, b"key98"));
        keyspace.effects.close_all();
        // By access, and by the cycle.
        assert!(keyspace.find(0, hasher.key(b"key0"), at(50), super::super::Touch::NOTHING).is_none());
        assert!(!keyspace.is_pinned(0, b"key0"));
        let now = at(50);
        while keyspace.sweep_earliest(0, now.ms, now, 10).deleted > 0 {}
        assert_eq!(keyspace.all_pinned(), keyspace.len(0));
        keyspace.swap(0, 1, now);
        assert_eq!((keyspace.pinned(0), keyspace.pinned(1)), (0, keyspace.len(1)));
        assert!(keyspace.is_pinned(1, b"key99") && keyspace.pin_bytes() > 0);
        keyspace.check();
        keyspace.flush(1, now);
        assert_eq!((keyspace.all_pinned(), keyspace.pin_bytes()), (0, 0));
        keyspace.check();
    }
}
