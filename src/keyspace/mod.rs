//! The keyspace of one shard: the only door to data. Nothing dead ever passes it.
//!
//! ```text
//!  Keyspace --- Table (one a logical database) --- directory --- Block --- Entry (header, key, value)
//!     |                    |
//!  effects, lag         minima (when each block has to be looked at)
//! ```
//!
//! Invariants, checked by the property tests in `model_test.rs` against a map:
//! - an entry has a deadline exactly where its block's column says so;
//! - no read returns a dead entry: dead is where now is past the deadline, for access and cycle alike;
//! - a block's minimum is never later than its earliest deadline;
//! - the reported bytes are the sum over entries, blocks and directories;
//! - a sweep deletes nothing that lives, and tells the effects of every key it deletes, once.
//!
//! Commands use [`Keyspace::find`] and [`Keyspace::insert`] and what they return; the cycle uses
//! [`Keyspace::earliest`] and [`Keyspace::sweep_earliest`].

mod advisor;
mod arriving;
mod aside;
mod beside;
mod by_prefix;
mod change;
mod clocking;
mod dead_elements;
mod deaths;
mod effects;
mod eviction;
mod foresight;
mod groups;
mod leases;
mod live;
mod nodes;
mod open;
mod pins;
mod policies;
mod said;
pub mod snapshot;
mod stale;
mod sweeping;
mod touch;
mod tracking;
mod views;
mod watch;

#[cfg(test)]
mod model_test;
#[cfg(test)]
mod story_test;

pub use crate::table::ahead::PREFETCHED;
pub use crate::table::{Cursor, Dict, Hasher, Key, Kind, NEVER_MS, Shape, Stored, Swept, Value, element_hash};
pub use advisor::{Advice, Advised, Lifetimes, POINTS_MAX as ADVISED_LIFETIMES_MAX, Point as AdvicePoint};
pub use change::{Cause, Change, Event};
pub use clocking::Clocking;
pub use deaths::{Death, Deaths, LastValue, News, Taken};
pub use effects::{Effects, Notice};
pub use eviction::{Evicted, Eviction, Prospect};
pub use foresight::{PrefixCounts, Seen};
pub use groups::{GROUPS_A_KEY_MAX, Membership, Name as GroupName, OwedDeath, Redated, Span};
pub use leases::Leases;
pub use live::{KeyEdit, Live};
pub use nodes::Owned;
pub use policies::{Tally, Used};
pub use said::KeyName;
pub use stale::StaleCopy;
pub use sweeping::{DeadWalk, Sample};
pub use touch::Touch;
pub use tracking::{Invalidated, Names, Told, Tracker};
pub use views::{Aspect, Pass, Shown, ViewNews, ViewOf};
pub use watch::Watch;

use crate::clock::{Now, store_us};
use crate::observe::Lag;
use crate::table::ahead::{self, Sought};
use crate::table::block::Block;
use crate::table::{Entry, Slot, Table, Upkeep};
use crate::value::elements;
use aside::Aside;
use clocking::{Clocked, access_clock};
use deaths::{Keeping, Mourners};
use nodes::Nodes;
use pins::{Pins, Search};
use policies::{Dying, Policies};
use smallvec::SmallVec;
use stale::Stale;
use std::collections::BTreeSet;

/// Where what is in a database is once two of them have changed places.
fn swapped(a: usize, b: usize) -> impl Fn(usize) -> usize {
    move |db| match db {
        db if db == a => b,
        db if db == b => a,
        db => db,
    }
}

/// Counters of one shard since the last CONFIG RESETSTAT.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub hits: u64,
    pub misses: u64,
    pub expired_by_access: u64,
    pub expired_by_cycle: u64,
    pub expired_bytes: u64,
    /// Fields of hashes, members of sets and of sorted sets that died.
    pub expired_fields: u64,
    /// Keys whose memory was given back later than they were deleted.
    pub freed_lazily: u64,
    /// What was done so that memory comes back, as far as [`Keyspace::count_upkeep`] was called.
    pub upkeep: Upkeep,
    /// Deaths that were written to the streams of policies.
    pub deaths_written: u64,
    /// Those that could not be: the stream's key had another type, or there was no room.
    pub deaths_lost: u64,
    /// Keys that went because memory was short.
    pub evicted: u64,
    /// See [`Keyspace::expired_misses`], of advisors that are off.
    expired_misses: f64,
    /// How often GETFRESH has shown what was dead.
    pub stale_shown: u64,
    /// Changes of which nothing was said, so that the journal was told of the whole key: defects.
    pub unreported: u64,
}

pub struct Keyspace {
    dbs: Vec<Table>,
    /// See `arriving.rs`.
    arriving: Vec<Table>,
    arriving_pins: Option<Box<Pins>>,
    hasher: Hasher,
    /// What access clocks are wanted to mean ...
    clocking: Clocking,
    /// ... and what a use or a change does to them now.
    clocked: Clocked,
    rng: fastrand::Rng,
    /// What stands outside of entries, and what is to be given back.
    nodes: Nodes,
    /// The earliest moment at which somebody still looks: a transaction that waits is older than the clock. What was
    /// alive then is hidden when it is dead, and stays until nobody can see it.
    pub seen_from: Now,
    /// Nobody but the command that runs looks at its keys, and what it says to the journal holds only where what it finds
    /// dead is gone: so it goes, whoever is older.
    pub buries: bool,
    /// Data stand still until then, store microseconds (CLIENT PAUSE): what is dead is hidden, and stays. Only a command that
    /// writes there buries it, which was under way when the pause began.
    pub still_until_us: u64,
    /// What is dead by the clock, and is not for who holds it.
    aside: Vec<Aside>,
    /// Collections with dead elements that are alive for who holds them, as (database, hash): their column says that
    /// nothing of them is due.
    passed_by: BTreeSet<(usize, u64)>,
    pub effects: Effects,
    /// Which keys somebody computes anew.
    pub leases: Leases,
    pub counters: Counters,
    /// Somebody has deleted everything: what a snapshot still has is not to come back.
    pub was_emptied: bool,
    pub lag: Lag,
    /// What the operator says of deadlines by prefixes, if anything.
    policies: Option<Box<Policies>>,
    /// How often one was set or taken away.
    policy_changes: u64,
    /// The search for keys that may be evicted, where some may not.
    search: Search,
    /// What has died and is to be shown for a while. None before the first.
    stale: Option<Box<Stale>>,
    /// Of that are no more bytes kept.
    pub stale_bytes_max: usize,
    /// Deaths that are to be written down.
    pub deaths: Deaths,
    /// Whether some policy requires deadlines, or renews lives by use, and the keys that the running command has used.
    requires: bool,
    slides: bool,
    /// They do, or an advisor follows what is read.
    follows_uses: bool,
    used: Vec<Used>,
    /// Whether deletions of dead keys on access are timed.
    pub times_deaths: bool,
    longest_death_us: u64,
}

impl Keyspace {
    pub fn new(databases: usize, hasher: Hasher) -> Keyspace {
        Keyspace {
            dbs: (0..databases).map(|_| Table::new(hasher.clone(), elements::any_lives)).collect(),
            arriving: Vec::new(),
            arriving_pins: None,
            rng: fastrand::Rng::with_seed(hasher.hash(b"keyspace")),
            hasher,
            clocking: Clocking::default(),
            clocked: Clocked::Uses,
            nodes: Nodes::default(),
            seen_from: LATEST,
            buries: false,
            still_until_us: 0,
            aside: Vec::new(),
            passed_by: BTreeSet::new(),
            effects: Effects::default(),
            leases: Leases::default(),
            counters: Counters::default(),
            lag: Lag::new(),
            policies: None,
            policy_changes: 0,
            search: Search::default(),
            stale: None,
            stale_bytes_max: usize::MAX,
            deaths: Deaths::default(),
            requires: false,
            slides: false,
            follows_uses: false,
            used: Vec::new(),
            times_deaths: false,
            longest_death_us: 0,
            was_emptied: false,
        }
    }

    pub fn databases(&self) -> usize {
        self.dbs.len()
    }

    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// The key, if it is there and alive. A dead one is deleted on the way, with its event.
    #[inline]
    pub fn find(&mut self, db: usize, key: Key, now: Now, touch: Touch) -> Option<Live<'_>> {
        self.look_up(db, key, now, touch).map(|slot| self.live(db, slot, now, key.hash))
    }

    /// The key, if it is there and alive; else it is stored, with the value and without a deadline.
    #[inline]
    pub fn find_or_insert<'v>(
        &mut self,
        db: usize,
        key: Key,
        value: impl Into<Stored<'v>>,
        now: Now,
        touch: Touch,
    ) -> Live<'_> {
        match self.look_up(db, key, now, touch) {
            Some(slot) => self.live(db, slot, now, key.hash),
            None => {
                let slot = self.insert_slot(db, key, value, None, now);
                self.live(db, slot, now, key.hash)
            }
        }
    }

    #[inline]
    fn look_up(&mut self, db: usize, key: Key, now: Now, touch: Touch) -> Option<Slot> {
        let slot = self.live_slot(db, key, now);
        match slot {
            Some(slot) => {
                self.counters.hits += u64::from(touch.counts());
                if touch.uses() {
                    let entry = self.dbs[db].entry(slot);
                    if self.clocked == Clocked::Uses {
                        let clock = access_clock(now);
                        // The store is saved where it would say the same, since it dirties a cache line.
                        if entry.clock() != clock {
                            entry.set_clock(clock);
                        }
                    } else if self.clocked == Clocked::Frequency {
                        self.clocking.count(entry, now, &mut self.rng);
                    } else if self.has_former_clocks() {
                        self.touch_mixed(db, slot, now);
                    }
                    if self.follows_uses {
                        self.note_use(db, key, slot, touch, now);
                    }
                }
            }
            None if touch.counts() => {
                self.counters.misses += 1;
                if touch.tells() {
                    self.effects.tell(Event::KeyMiss, db, key.bytes);
                }
                if self.follows_uses && touch.uses() {
                    self.advise_miss(db, key, now);
                }
            }
            None => {}
        }
        slot
    }

    /// The same, to be changed. What was changed is said with `Ctx::commit`.
    #[inline]
    pub fn edit(&mut self, db: usize, key: Key, now: Now, touch: Touch) -> Option<KeyEdit<'_>> {
        self.find(db, key, now, touch).map(Live::edit)
    }

    /// What is under a key that is there and alive, to be seen beside others'; leaves nothing behind.
    pub fn peek(&self, db: usize, key: Key, now: Now) -> Option<Stored<'_>> {
        let slot = self.dbs[db].find(key).filter(|slot| !self.dbs[db].is_dead(*slot, now.ms))?;
        Some(self.dbs[db].entry(slot).content())
    }

    #[inline]
    fn live(&mut self, db: usize, slot: Slot, now: Now, hash: u64) -> Live<'_> {
        let clocked = self.clocked;
        Live::new((&mut self.dbs[db], &mut self.nodes, &mut self.effects), slot, now, (db, hash), clocked)
    }

    #[inline]
    fn live_slot(&mut self, db: usize, key: Key, now: Now) -> Option<Slot> {
        let slot = self.dbs[db].find(key);
        if let Some(slot) = slot
            && !self.dbs[db].is_dead(slot, now.ms)
        {
            return Some(slot);
        }
        self.see_dead(db, key, slot, now);
        None
    }

    /// A key is not there, or dead.
    #[inline]
    fn see_dead(&mut self, db: usize, key: Key, slot: Option<Slot>, now: Now) {
        if let Some(slot) = slot
            && (self.buries || self.seen_from >= now || self.dbs[db].is_dead(slot, self.seen_from.ms))
            // In a pause, or where so many deaths wait to be written, this one stays hidden where it is, for the cycle to find.
            && (self.buries || !self.deaths.is_full() && now.us >= self.still_until_us)
        {
            self.bury(db, slot, now);
        }
        if self.buries && !self.deaths.are_told() {
            self.tell_death(db, key);
        }
    }

    /// What the running command says to the journal stands behind the death of a key that it has not found.
    #[cold]
    fn tell_death(&mut self, db: usize, key: Key) {
        if let Some(name) = self.deaths.tell(db, key.hash) {
            self.effects.said.died(db, &name);
        }
    }

    #[cold]
    fn bury(&mut self, db: usize, slot: Slot, now: Now) {
        self.counters.expired_by_access += u64::from(!self.dies_by_elements(db, slot, now));
        let began_us = self.times_deaths.then(store_us);
        self.remove_dead(db, slot, false, now);
        if let Some(began_us) = began_us {
            self.longest_death_us = self.longest_death_us.max(store_us().saturating_sub(began_us));
        }
    }

    /// How long the longest deletion of a dead key on access has taken since this was asked, in microseconds.
    pub fn take_longest_death_us(&mut self) -> u64 {
        std::mem::take(&mut self.longest_death_us)
    }

    /// Whether a dead key is dead since all of its elements are: then it counts as none that has died.
    fn dies_by_elements(&self, db: usize, slot: Slot, now: Now) -> bool {
        self.dbs[db].entry(slot).has_fields() && self.dbs[db].deadline_ms(slot).is_none_or(|own_ms| own_ms >= now.ms)
    }

    fn remove_dead(&mut self, db: usize, slot: Slot, by_cycle: bool, now: Now) {
        let entry = self.dbs[db].entry(slot);
        let bytes = self.nodes.bytes_of_key(entry);
        let own_ms = self.dbs[db].deadline_ms(slot).filter(|own_ms| *own_ms < now.ms);
        // Where it has not passed, all fields are dead: one of them stands for all.
        let deadline_ms = own_ms.or_else(|| elements::some_deadline_ms(entry)).unwrap_or(now.ms);
        self.lag.record(now, deadline_ms);
        if entry.has_fields() && own_ms.is_none() {
            self.counters.expired_fields += elements::counts(entry, now.ms).0 as u64;
            let died = Event::of_dead_elements(entry.kind());
            self.effects.dies(db, (entry, entry.far_deadline_ms()), &self.hasher, || bytes);
            if self.effects.wants_elements(died) {
                self.effects.name_elements(died, elements::names_of_dead(entry, now.ms));
            }
            self.effects.record(db, entry.key(), Change::of(died).and(Event::Del).expired());
        } else {
            let (effects, policies, deaths) = (&mut self.effects, &mut self.policies, &mut self.deaths);
            let stale = Keeping { stale: &mut self.stale, databases: self.dbs.len(), most: self.stale_bytes_max };
            let mut told = Mourners { effects, policies, deaths, stale, hasher: &self.hasher, db, now };
            told.died(Dying { entry, deadline_ms, by_cycle }, &self.nodes);
        }
        self.counters.expired_bytes += bytes as u64;
        self.effects.dies_in_groups(db, self.dbs[db].entry(slot).key(), deadline_ms);
        self.remove_slot(db, slot);
    }

    /// Takes a key out.
    #[inline]
    fn remove_slot(&mut self, db: usize, slot: Slot) {
        self.effects.departs(db, self.dbs[db].entry(slot).key());
        self.dbs[db].remove(slot);
        self.nodes.adopt(&mut self.dbs[db]);
    }

    /// Stores a value under a key, new or not, and with it the deadline: `None` clears one.
    #[inline]
    pub fn insert<'v>(
        &mut self,
        db: usize,
        key: Key,
        value: impl Into<Stored<'v>> + Copy,
        deadline_ms: Option<u64>,
        now: Now,
    ) {
        match self.live_slot(db, key, now) {
            Some(slot) => {
                if self.clocked == Clocked::Frequency {
                    self.clocking.count(self.dbs[db].entry(slot), now, &mut self.rng);
                }
                self.live(db, slot, now, key.hash).edit().replace(value, deadline_ms);
            }
            None => drop(self.insert_new(db, key, value, deadline_ms, now)),
        }
    }

    /// The same with a value that was made elsewhere, or taken from another key.
    pub fn insert_owned(&mut self, db: usize, key: Key, value: Owned, deadline_ms: Option<u64>, now: Now) {
        let raw_bytes = value.raw_bytes();
        self.nodes.bytes += value.node_bytes();
        if let Owned::Large(large) = value {
            self.insert(db, key, Value::Bytes(b""), deadline_ms, now);
            if let Some(slot) = self.dbs[db].find(key) {
                self.live(db, slot, now, key.hash).edit().put_large(large);
            }
            return;
        }
        value.give(|stored| self.insert(db, key, stored, deadline_ms, now));
        if let Some(slot) = self.dbs[db].find(key) {
            self.live(db, slot, now, key.hash).edit().settle(raw_bytes);
        }
    }

    /// Stores a key that [`Keyspace::find`] has just not found.
    #[inline]
    pub fn insert_new<'v>(
        &mut self,
        db: usize,
        key: Key,
        value: impl Into<Stored<'v>>,
        deadline_ms: Option<u64>,
        now: Now,
    ) -> KeyEdit<'_> {
        let slot = self.insert_slot(db, key, value, deadline_ms, now);
        self.live(db, slot, now, key.hash).edit()
    }

    #[inline]
    fn insert_slot<'v>(
        &mut self,
        db: usize,
        key: Key,
        value: impl Into<Stored<'v>>,
        deadline_ms: Option<u64>,
        now: Now,
    ) -> Slot {
        if (self.seen_from.us < now.us || now.us < self.still_until_us || self.deaths.is_full())
            && let Some(slot) = self.dbs[db].find(key)
        {
            // Dead, and kept for a transaction, in a pause, or while others wait to be written. Whoever writes here has waited for all
            // that look at this key.
            self.bury(db, slot, now);
        }
        self.forget_stale(db, key);
        let clock = self.clock_of_new(db, key.hash, now);
        let target = &mut self.dbs[db];
        debug_assert!(target.find(key).is_none());
        let mut slot = target.insert(key, value, clock);
        self.effects.tell(Event::New, db, key.bytes);
        self.effects.comes_first(db, key);
        self.effects.open(db, key.hash, || key.bytes);
        if deadline_ms.is_some() {
            slot = target.set_deadline(slot, deadline_ms, now.ms);
        }
        slot
    }

    /// Deletes a key; whether it was there and alive.
    pub fn remove(&mut self, db: usize, key: Key, now: Now) -> bool {
        let Some(slot) = self.live_slot(db, key, now) else {
            self.forget_stale(db, key);
            return false;
        };
        self.live(db, slot, now, key.hash).edit().remove();
        true
    }

    /// Keys that are alive.
    pub fn live_len(&self, db: usize, now: Now) -> usize {
        self.dbs[db].len() - self.dbs[db].count_dead(now.ms)
    }

    /// Live keys with a deadline.
    pub fn live_with_deadline(&self, db: usize, now: Now) -> usize {
        let db = &self.dbs[db];
        if db.with_fields() == 0 {
            return db.with_deadline() - db.count_dead(now.ms);
        }
        let lives =
            |block: &Block, slot: usize| block.deadline_ms(slot).is_some() && !db.is_dead_in(block, slot, now.ms);
        db.blocks().map(|block| block.full_slots().filter(|&slot| lives(block, slot)).count()).sum()
    }

    /// Keys, dead ones that are not deleted yet included.
    pub fn len(&self, db: usize) -> usize {
        self.dbs[db].len()
    }

    pub fn with_deadline(&self, db: usize) -> usize {
        self.dbs[db].with_deadline()
    }

    /// Bytes of everything, memory of flushed databases that is still to be given back included.
    pub fn bytes(&self) -> usize {
        let tables = self.dbs.iter().chain(&self.arriving);
        let beside = self.deaths.bytes() + self.group_bytes() + self.pin_bytes() + self.stale_bytes();
        tables.map(Table::bytes).sum::<usize>() + self.nodes.all_bytes() + beside
    }

    pub fn shape(&self, db: usize) -> Shape {
        self.dbs[db].shape()
    }

    /// What has changed of a key, for whoever wants to know.
    #[inline]
    pub fn commit(&mut self, db: usize, key: Key, change: Change, now: Now) {
        self.leases.end(db, key.hash);
        self.effects.close(db, key.hash);
        self.record(db, key, change, now);
    }

    /// The same, where nothing but this is to be said.
    #[inline]
    fn record(&mut self, db: usize, key: Key, change: Change, now: Now) {
        self.effects.dirty += change.count;
        if self.effects.has_sinks() {
            self.deliver(db, key, change, now);
        }
    }

    #[inline(never)]
    fn deliver(&mut self, db: usize, key: Key, change: Change, now: Now) {
        self.effects.deliver(db, key.bytes, change);
        if self.effects.is_advised() {
            self.advise_change(db, key, change, now);
        }
    }

    /// Empties a database at once; its memory is given back by [`Keyspace::collect_garbage`].
    pub fn flush(&mut self, db: usize, now: Now) {
        self.effects.dirty += self.live_len(db, now) as u64;
        self.touch_awaited(db, now);
        self.leases.end_all(db);
        // Their stream goes, too.
        self.deaths.forget(db, self.effects.is_journaled());
        self.flush_groups(db);
        self.flush_pins(db);
        self.flush_stale(db);
        self.effects.flushed();
        self.effects.advisor_mut().into_iter().for_each(|advisor| advisor.forget(db, now));
        self.effects.views_mut().into_iter().for_each(|views| views.flushed(db));
        if self.dbs[db].len() > 0 {
            self.count_upkeep();
            let full = std::mem::replace(&mut self.dbs[db], Table::new(self.hasher.clone(), elements::any_lives));
            self.nodes.take_table(full);
        }
    }

    /// Two databases change places.
    pub fn swap(&mut self, a: usize, b: usize, now: Now) {
        self.effects.dirty += 1;
        if a != b {
            // What is dead is found now, under the database in which it died.
            for bytes in [a, b].into_iter().flat_map(|db| self.effects.awaited_in(db)).collect::<Vec<_>>() {
                let key = self.hasher.key(&bytes);
                for db in [a, b] {
                    self.live_slot(db, key, now);
                }
            }
            // Before and after, since a key may be in one of them only.
            [a, b].into_iter().for_each(|db| self.touch_awaited(db, now));
            self.dbs.swap(a, b);
            self.leases.swap(a, b);
            self.swap_groups(a, b);
            self.swap_pins(a, b);
            self.swap_stale(a, b);
            self.deaths.swap(a, b, self.effects.is_journaled());
            self.effects.flushed();
            self.effects.views_mut().into_iter().for_each(|views| [a, b].into_iter().for_each(|db| views.swapped(db)));
            let advisor = self.effects.advisor_mut();
            advisor.into_iter().for_each(|advisor| [a, b].into_iter().for_each(|db| advisor.forget(db, now)));
            [a, b].into_iter().for_each(|db| self.touch_awaited(db, now));
        }
    }

    /// The keys that somebody watches or waits for, and that are there, are about to go, or have come.
    fn touch_awaited(&mut self, db: usize, now: Now) {
        for bytes in self.effects.awaited_in(db) {
            let key = self.hasher.key(&bytes);
            if self.live_slot(db, key, now).is_some() {
                self.effects.record(db, key.bytes, Change::untold().uncounted());
            }
        }
    }

    /// Begins to watch a key: see [`Keyspace::is_unchanged`].
    pub fn watch(&mut self, db: usize, bytes: &[u8], now: Now) -> Watch {
        let key = self.hasher.key(bytes);
        // First, since a dead key goes now, which is no change.
        let fields = self.live_fields(db, key, now);
        Watch { version: self.effects.watch(db, bytes), fields }
    }

    /// What [`Watch::fields`] says of a key now.
    fn live_fields(&mut self, db: usize, key: Key, now: Now) -> Option<u64> {
        let entry = self.live_slot(db, key, now).map(|slot| self.dbs[db].entry(slot))?;
        Some(elements::counts(entry, now.ms).1 as u64)
    }

    pub fn unwatch(&mut self, db: usize, bytes: &[u8]) {
        self.effects.unwatch(db, bytes);
    }

    /// Whether nobody has changed a watched key, nor its deadline passed, nor one of its fields'. (That what was dead
    /// before is taken out is no change: what was there is not, what was not is not.)
    fn is_unchanged(&mut self, db: usize, bytes: &[u8], watch: Watch, now: Now) -> bool {
        let fields = self.live_fields(db, self.hasher.key(bytes), now);
        let lives = watch.fields.is_none() || fields == watch.fields;
        lives && self.effects.version(db, bytes) == Some(watch.version)
    }

    /// Whether nobody has changed the keys, each a database, a name and what was seen, nor their deadlines passed. They
    /// are not watched any more.
    pub fn end_watches<'k>(&mut self, watched: impl Iterator<Item = (usize, &'k [u8], Watch)>, now: Now) -> bool {
        let mut same = true;
        for (db, bytes, watch) in watched {
            same &= self.is_unchanged(db, bytes, watch, now);
            self.unwatch(db, bytes);
        }
        same
    }

    #[inline]
    pub fn has_garbage(&self) -> bool {
        self.nodes.has_garbage()
    }

    /// Frees about `limit` entries, or elements of collections, that nobody uses any more; whether anything is left.
    pub fn collect_garbage(&mut self, limit: usize) -> bool {
        self.counters.freed_lazily += self.nodes.collect(limit) as u64;
        self.nodes.has_garbage()
    }

    /// Bytes of collections and flushed databases that nobody uses any more.
    pub fn garbage_bytes(&self) -> usize {
        self.nodes.garbage_bytes()
    }

    /// Counts what the tables have done since the last time.
    pub fn count_upkeep(&mut self) {
        for table in &mut self.dbs {
            self.counters.upkeep.add(&table.take_upkeep());
        }
    }

    /// Keys that are gone and whose memory is still to be given back.
    pub fn garbage_keys(&self) -> usize {
        self.nodes.garbage_keys
    }

    /// Some live key, chosen at random.
    pub fn random(&self, db: usize, rng: &mut fastrand::Rng, now: Now) -> Option<&[u8]> {
        let db = &self.dbs[db];
        if db.len() == 0 {
            return None;
        }
        let alive = |block: &Block, index: usize| !db.is_dead_in(block, index, now.ms);
        let slot = db.random(rng, RANDOM_TRIES, alive).or_else(|| db.any(rng, alive))?;
        Some(db.entry(slot).key())
    }

    /// Shows every live key.
    pub fn for_each(&self, db: usize, now: Now, mut each: impl FnMut(&[u8], Entry, Option<u64>)) {
        let db = &self.dbs[db];
        for block in db.blocks() {
            for slot in block.full_slots().filter(|&slot| !db.is_dead_in(block, slot, now.ms)) {
                let entry = block.entry(slot);
                each(entry.key(), entry, block.deadline_ms(slot));
            }
        }
    }

    /// One call of SCAN over a database of this shard: shows live keys with their types, about `count`, and returns
    /// where to go on, perhaps on the next of `shards` shards; `None` at the end.
    pub fn scan(
        &self,
        db: usize,
        cursor: Cursor,
        count: usize,
        shards: usize,
        now: Now,
        mut each: impl FnMut(&[u8], Kind),
    ) -> Option<Cursor> {
        self.scan_slots(db, cursor, count, shards, now, |block, slot| {
            let entry = block.entry(slot);
            each(entry.key(), entry.kind());
        })
    }

    /// The same, where they are in their table.
    #[inline]
    fn scan_slots(
        &self,
        db: usize,
        cursor: Cursor,
        count: usize,
        shards: usize,
        now: Now,
        mut each: impl FnMut(&Block, usize),
    ) -> Option<Cursor> {
        let table = &self.dbs[db];
        let show = |block: &Block, slot: usize| {
            if !table.is_dead_in(block, slot, now.ms) {
                each(block, slot);
            }
        };
        Some(table.scan(cursor, count, show).1).filter(|next| next.shard < shards)
    }

    /// Asks the cache for what several lookups will read, best no more than [`PREFETCHED`]. One alone would only wait for
    /// itself.
    #[inline]
    pub fn prefetch(&self, lookups: impl Iterator<Item = Lookup> + Clone) {
        if lookups.clone().nth(1).is_none() {
            return;
        }
        let sought = |lookup: Lookup| Sought { table: &self.dbs[lookup.db], hash: lookup.hash, writes: lookup.writes };
        ahead::prefetch(lookups.clone().map(sought));
        if lookups.clone().any(|lookup| lookup.element.is_some()) {
            self.prefetch_elements(lookups);
        }
    }

    fn prefetch_elements(&self, lookups: impl Iterator<Item = Lookup>) {
        let elements = lookups.filter_map(|lookup| {
            let element = lookup.element?;
            self.nodes.dict_of(self.dbs[lookup.db].candidate(lookup.hash)?)?.sought(element)
        });
        let elements: SmallVec<[Sought; PREFETCHED]> = elements.collect();
        if elements.len() > 1 {
            ahead::prefetch(elements.into_iter());
        }
    }

    #[cfg(test)]
    pub fn check(&mut self) {
        self.dbs.iter_mut().for_each(Table::check);
        self.check_groups();
        self.check_pins();
        let entries = self.dbs.iter().flat_map(Table::entries);
        assert_eq!(self.nodes.bytes, entries.map(|(entry, _)| self.nodes.bytes_of(entry)).sum::<usize>());
    }
}

/// What a command is going to look up.
#[derive(Clone, Copy)]
pub struct Lookup {
    pub db: usize,
    /// Of the key.
    pub hash: u64,
    /// [`element_hash`] of what is sought in the key's collection.
    pub element: Option<u64>,
    /// It is to be changed.
    pub writes: bool,
}

impl Lookup {
    pub fn key(db: usize, hash: u64) -> Lookup {
        Lookup { db, hash, element: None, writes: false }
    }
}

/// Nobody looks at an earlier moment than the clock's.
pub const LATEST: Now = Now { us: u64::MAX, ms: u64::MAX };
/// Draws before a random key gives up being uniform.
const RANDOM_TRIES: usize = 200;

#[cfg(test)]
mod tests;
