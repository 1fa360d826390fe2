//! What dead strings were, for whoever asks for that: where a policy says `STALE`, GETFRESH shows the value of a key that has died
//! while somebody computes it anew.
//!
//! These copies stand beside the tables, and nothing else sees them: to all other commands the key is gone. A copy goes with its
//! time, with whatever is put under the key, with `DEL`, and with the killing of a group (`EXPIRY GROUP KILL`) that the key was in
//! when it died; it is the first to go where memory is short. Neither snapshots nor the log nor replicas have it.

use super::beside::Beside;
use super::groups::Name;
use super::policies::Policies;
use super::{Key, Keyspace};
use crate::clock::Now;
use crate::table::{Dict, Entry, Kind, NEVER_MS, Value};
use ahash::RandomState;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};

/// A longer string is not kept: to copy it would keep others waiting.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// About what the name of a group takes that a copy's key was in.
const PLACE_BYTES: usize = 128;

/// The copies of all databases. Their deadlines are the ends of their times.
pub(super) struct Stale {
    copies: Beside,
    /// The groups that their keys were in, of each database.
    groups: Vec<Grouped>,
}

/// Keys, of which there are copies, by the groups that they were in, and the other way round.
#[derive(Default)]
struct Grouped {
    keys: HashMap<Name, HashSet<Name, RandomState>, RandomState>,
    groups: HashMap<Name, SmallVec<[Name; 2]>, RandomState>,
    bytes: usize,
}

impl Grouped {
    fn add(&mut self, key: &[u8], groups: &[Name]) {
        self.remove(key);
        if groups.is_empty() {
            return;
        }
        let key: Name = key.into();
        for group in groups {
            self.keys.entry(group.clone()).or_default().insert(key.clone());
        }
        self.bytes += key.len() + groups.len() * PLACE_BYTES;
        self.groups.insert(key, groups.into());
    }

    fn remove(&mut self, key: &[u8]) {
        let Some(groups) = self.groups.remove(key) else { return };
        self.bytes -= key.len() + groups.len() * PLACE_BYTES;
        for group in groups {
            let Some(keys) = self.keys.get_mut(&group) else { continue };
            keys.remove(key);
            if keys.is_empty() {
                self.keys.remove(&group);
            }
        }
    }
}

impl Stale {
    pub(super) fn new(databases: usize) -> Stale {
        Stale { copies: Beside::new(databases), groups: (0..databases).map(|_| Grouped::default()).collect() }
    }

    fn bytes(&self) -> usize {
        self.copies.bytes() + self.groups.iter().map(|grouped| grouped.bytes).sum::<usize>()
    }

    fn remove(&mut self, db: usize, key: &[u8]) -> bool {
        self.groups[db].remove(key);
        self.copies.remove(db, key)
    }

    /// A key is dying: its value is kept, where its policy says so, for as long as that says, but no more in all than so many bytes.
    pub(super) fn keep(
        &mut self,
        policies: &Policies,
        (db, entry): (usize, Entry),
        groups: &[Name],
        deadline_ms: u64,
        most: usize,
        now: Now,
    ) {
        let Some(stale_ms) = policies.stale_ms(entry.key()) else { return };
        let until_ms = deadline_ms.saturating_add(stale_ms).min(NEVER_MS - 1);
        if entry.kind() != Kind::String || entry.bytes() > VALUE_BYTES_MAX.min(most) || until_ms < now.ms {
            return;
        }
        while self.bytes().saturating_add(entry.bytes()) > most && self.copies.len() > 0 {
            self.give(GIVEN_TOGETHER, now);
        }
        self.copies.change(db, |dict| {
            dict.set(entry.key(), entry.value());
            dict.set_deadline(entry.key(), Some(until_ms), now.ms);
        });
        self.groups[db].add(entry.key(), groups);
    }

    /// Takes about so many out whose time is over; how many.
    fn sweep(&mut self, limit: usize, now: Now) -> usize {
        let mut swept = 0;
        for db in self.copies.databases() {
            if swept < limit && self.copies.of(db).earliest_ms() < now.ms {
                let grouped = &mut self.groups[db];
                let each = |entry: Entry, _| grouped.remove(entry.key());
                swept += self.copies.change(db, |dict| dict.sweep(now.ms, now.ms, limit - swept, each)).deleted;
            }
        }
        swept
    }

    /// Gives so many up, those first whose time is over; how many.
    fn give(&mut self, limit: usize, now: Now) -> usize {
        let mut given = self.sweep(limit, now);
        for db in self.copies.databases() {
            let keys = self.copies.of(db).iter().take(limit - given).map(|entry| entry.key().into());
            let keys: Vec<Box<[u8]>> = keys.collect();
            given += keys.iter().filter(|key| self.remove(db, key)).count();
        }
        given
    }
}

/// Where there is no room for one more, so many go together.
const GIVEN_TOGETHER: usize = 16;

impl Keyspace {
    /// What a key was that is not there, and is to be shown still: see [`Stale`].
    pub fn stale_value(&mut self, db: usize, key: &[u8], now: Now) -> Option<Value<'_>> {
        let stale = self.stale.as_deref()?;
        // (What was said when the key died may hold no longer.)
        self.policies.as_ref()?.stale_ms(key)?;
        let (entry, until_ms) = stale.copies.of(db).get_with_deadline(key)?;
        if until_ms? < now.ms {
            return None;
        }
        self.counters.stale_shown += 1;
        Some(entry.value())
    }

    /// Nobody is to see what a key was.
    #[inline]
    pub fn forget_stale(&mut self, db: usize, key: Key) {
        if let Some(stale) = &mut self.stale {
            stale.remove(db, key.bytes);
        }
    }

    /// A group is killed: of its members that have died before, and of keys that were in a group of this name when they died,
    /// nothing is shown any more. Nobody else looks at any of them.
    pub fn forget_stale_of_group(&mut self, db: usize, name: &[u8], now: Now) {
        if self.policies.as_ref().is_none_or(|policies| !policies.keeps_stale()) && self.stale.is_none() {
            return;
        }
        for key in self.all_group_members(db, name) {
            let slot = self.dbs[db].find(self.hasher.key(&key)).filter(|slot| self.dbs[db].is_dead(*slot, now.ms));
            if let Some(slot) = slot {
                self.bury(db, slot, now);
            }
        }
        let Some(stale) = &mut self.stale else { return };
        for key in stale.groups[db].keys.get(name).cloned().into_iter().flatten() {
            stale.remove(db, &key);
        }
    }

    /// How many copies there are of what has died.
    pub fn stale_copies(&self) -> usize {
        self.stale.as_ref().map_or(0, |stale| stale.copies.len())
    }

    /// Bytes of them.
    pub fn stale_bytes(&self) -> usize {
        self.stale.as_ref().map_or(0, |stale| stale.bytes())
    }

    /// When the time of one of them is over, or before that.
    pub fn stale_due_ms(&self) -> u64 {
        let dbs = self.stale.iter().flat_map(|stale| stale.copies.all());
        dbs.map(Dict::earliest_ms).min().unwrap_or(NEVER_MS)
    }

    /// Takes about so many out whose time is over; whether there may be more.
    pub fn sweep_stale(&mut self, limit: usize, now: Now) -> bool {
        self.stale.as_mut().is_some_and(|stale| stale.sweep(limit, now) >= limit)
    }

    /// Gives so many up, since memory is short; how many.
    pub fn give_stale(&mut self, limit: usize, now: Now) -> usize {
        self.stale.as_mut().map_or(0, |stale| stale.give(limit, now))
    }

    pub(super) fn flush_stale(&mut self, db: usize) {
        if let Some(stale) = &mut self.stale {
            stale.copies.flush(db);
            stale.groups[db] = Grouped::default();
        }
    }

    pub(super) fn swap_stale(&mut self, a: usize, b: usize) {
        if let Some(stale) = &mut self.stale {
            stale.copies.swap(a, b);
            stale.groups.swap(a, b);
        }
    }
}
