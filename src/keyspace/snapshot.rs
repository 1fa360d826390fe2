//! All that there is, to be written down as of one moment while it goes on changing, and put back.
//!
//! From that moment on a walk goes through the databases, in the order of positions, which no split or merge changes. What it
//! has not come to is written down before it changes for the first time, and the walk passes over it: every edit begins with
//! `KeyEdit::open`, which sees to that. So nothing is copied but what changes, each key at most once.
//!
//! What dies meanwhile may go unwritten: it would be dead when it is read.

use super::{Keyspace, Kind, Owned, Stored};
use crate::clock::Now;
use crate::table::block::NEVER_MS;
use crate::table::hash::{Key, spread};
use crate::value::hash;
use ahash::RandomState;
use std::collections::HashSet;

/// A key as a snapshot has it.
pub struct Kept<'a> {
    pub key: &'a [u8],
    pub content: Stored<'a>,
    /// Store milliseconds. It may have passed: that the key has died is still to be told.
    pub deadline_ms: Option<u64>,
}

/// Whoever writes down what a database has.
pub type Keep = Box<dyn FnMut(usize, Kept)>;

/// A snapshot that is made.
pub struct Saving {
    /// Everything before this database, and in it before this position, was written down.
    at: (usize, u64),
    /// What has changed behind that since the moment: databases and keys, by two hashes.
    changed: HashSet<(usize, u64, u64), RandomState>,
    keep: Keep,
    moment: Now,
    /// A database was emptied, or has another number now: what it had can not be written down any more.
    is_void: bool,
}

/// How far a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    Some,
    All,
    /// It has to begin anew.
    Void,
}

impl Saving {
    /// A key is about to change, or to come.
    #[cold]
    #[inline(never)]
    pub(super) fn before_change(&mut self, db: usize, hash: u64, key: &[u8], was: Option<(Stored, Option<u64>)>) {
        if self.is_void || (db, spread(hash)) < self.at || !self.changed.insert(self.name(db, hash, key)) {
            return;
        }
        if let Some((content, deadline_ms)) = was
            && !is_dead_hash(content, self.moment)
        {
            (self.keep)(db, Kept { key, content, deadline_ms });
        }
    }

    pub(super) fn void(&mut self) {
        self.is_void = true;
        self.changed = HashSet::default();
    }

    fn name(&self, db: usize, hash: u64, key: &[u8]) -> (usize, u64, u64) {
        (db, hash, self.changed.hasher().hash_one(key))
    }

    fn has_changed(&self, db: usize, hash: impl FnOnce() -> u64, key: &[u8]) -> bool {
        !self.changed.is_empty() && self.changed.contains(&self.name(db, hash(), key))
    }
}

/// A hash without a field that was alive at that moment, which nobody could see.
fn is_dead_hash(content: Stored, moment: Now) -> bool {
    content.kind() == Kind::Hash && hash::View::of(content).iter().all(|field| field.is_dead(moment.ms))
}

impl Keyspace {
    /// What is there now is written down from now on, with [`Keyspace::save_some`], whatever becomes of it.
    pub fn begin_saving(&mut self, moment: Now, keep: Keep) {
        let changed = HashSet::default();
        self.effects.saving = Some(Box::new(Saving { at: (0, 0), changed, keep, moment, is_void: false }));
    }

    /// Writes down some, as long as `goes_on` says; a block at the least.
    pub fn save_some(&mut self, mut goes_on: impl FnMut() -> bool) -> Saved {
        let Some(mut saving) = self.effects.saving.take() else { return Saved::All };
        while !saving.is_void {
            let (db, position) = saving.at;
            if db == self.dbs.len() {
                return Saved::All;
            }
            let next = self.dbs[db].walk(position, NEVER_MS, |block, slot| {
                let entry = block.entry(slot);
                let (key, content) = (entry.key(), entry.content());
                if saving.has_changed(db, || self.hasher.hash(key), key)
                    || entry.has_fields() && is_dead_hash(content, saving.moment)
                {
                    return;
                }
                (saving.keep)(db, Kept { key, content, deadline_ms: block.deadline_ms(slot) });
            });
            saving.at = next.map_or((db + 1, 0), |next| (db, next));
            if !goes_on() {
                self.effects.saving = Some(saving);
                return Saved::Some;
            }
        }
        Saved::Void
    }

    /// It is not to be completed.
    pub fn give_up_saving(&mut self) {
        self.effects.saving.iter_mut().for_each(|saving| saving.void());
    }

    /// Nobody wants the rest.
    pub fn stop_saving(&mut self) {
        self.effects.saving = None;
    }

    /// Whether a field of a hash has a deadline.
    pub fn has_field_deadlines(&self) -> bool {
        self.dbs.iter().any(|db| db.with_fields() > 0)
    }

    /// Whether there is such a key, dead or alive.
    pub fn has_entry(&self, db: usize, key: Key) -> bool {
        self.dbs[db].find(key).is_some()
    }

    /// Puts a key back that a snapshot has; nobody is told. What was under that key is gone.
    pub fn put_back(
        &mut self,
        db: usize,
        key: Key,
        value: Owned,
        deadline_ms: Option<u64>,
        clock: Option<u32>,
        now: Now,
    ) {
        self.insert_owned(db, key, value, deadline_ms, now);
        if let (Some(slot), Some(clock)) = (self.dbs[db].find(key), clock) {
            self.dbs[db].entry(slot).set_clock(clock);
        }
    }

    /// To be called between commands, when keys were put back: nobody hears of them.
    pub fn end_putting_back(&mut self) {
        self.effects.close_all();
        drop(self.effects.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, MaxmemoryPolicy};
    use crate::keyspace::{Clocking, Eviction, Hasher, Kind, Owned, Touch, Value};
    use crate::value::zset::{self, Edit, Zset};
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    type Contents = BTreeMap<(usize, Vec<u8>), (Vec<u8>, Option<u64>)>;

    const NOW_MS: u64 = 1_000_000;

    fn value_of(content: Stored) -> Vec<u8> {
        match content {
            Stored::String(value) => hash::element(value).to_vec(),
            _ => zset::View::of(content).at(0).expect("a sorted set of one").0.to_vec(),
        }
    }

    fn contents(keyspace: &Keyspace, now: Now) -> Contents {
        let mut all = Contents::new();
        for db in 0..3 {
            keyspace.for_each(db, now, |key, entry, deadline_ms| {
                all.insert((db, key.to_vec()), (value_of(entry.content()), deadline_ms));
            });
        }
        all
    }

    fn change(keyspace: &mut Keyspace, rng: &mut fastrand::Rng, now: Now, keys: u32) {
        let hasher = keyspace.hasher().clone();
        let (db, name) = (rng.usize(..3), format!("key{}", rng.u32(..keys)));
        let key = hasher.key(name.as_bytes());
        let text = vec![b'x'; rng.usize(..200)];
        let touch = Touch::NOTHING;
        match rng.u32(..10) {
            0..=2 => {
                let deadline_ms = rng.bool().then(|| NOW_MS + rng.u64(1_000..9_000_000));
                keyspace.insert(db, key, Value::Bytes(&text), deadline_ms, now);
            }
            3 => drop(keyspace.remove(db, key, now)),
            4 => {
                if let Some(mut edit) = keyspace.edit(db, key, now, touch)
                    && edit.kind() == Kind::String
                {
                    edit.resize(text.len() + 1).fill(b'y');
                }
            }
            5 => {
                if let Some(mut edit) = keyspace.edit(db, key, now, touch) {
                    edit.set_deadline(Some(NOW_MS + rng.u64(1_000..9_000_000)));
                }
            }
            6 => {
                if let Some(edit) = keyspace.edit(db, key, now, touch) {
                    edit.remove();
                }
            }
            7 => {
                let mut zset = Zset::default();
                zset.insert(&text, 1.0);
                keyspace.remove(db, key, now);
                keyspace.insert_owned(db, key, Owned::node(zset), None, now);
            }
            8 => {
                // As RENAME does.
                if let Some(edit) = keyspace.edit(db, key, now, touch) {
                    let value = edit.take();
                    let other = format!("key{}", rng.u32(..keys));
                    let other = hasher.key(other.as_bytes());
                    keyspace.remove(db, other, now);
                    keyspace.insert_owned(db, other, value, None, now);
                }
            }
            _ => {
                let how = Eviction { policy: MaxmemoryPolicy::AllkeysRandom, samples: 1 };
                keyspace.evict(how, 1, now, &|_| false);
            }
        }
        keyspace.effects.close_all();
    }

    /// Blocks split and merge, keys come, change, go and are evicted, between all steps of the walk.
    #[test]
    fn what_was_there_at_the_moment_is_written_once() {
        for seed in 0..if cfg!(miri) { 1 } else { 20 } {
            let (mut rng, now) = (fastrand::Rng::with_seed(seed), Now::from_ms(NOW_MS));
            let mut keyspace = Keyspace::new(3, Hasher::new(seed, 1));
            keyspace.set_clocking(Clocking::of(&Config::default()));
            let keys = [100, 5_000, 20_000][seed as usize % 3];
            let rounds = if cfg!(miri) { 300 } else { 30_000 };
            (0..rounds).for_each(|_| change(&mut keyspace, &mut rng, now, keys));
            let expected = contents(&keyspace, now);
            let written: Rc<RefCell<Contents>> = Rc::default();
            let into = written.clone();
            keyspace.begin_saving(
                now,
                Box::new(move |db, kept| {
                    let known = (value_of(kept.content), kept.deadline_ms);
                    let twice = into.borrow_mut().insert((db, kept.key.to_vec()), known);
                    assert!(twice.is_none(), "{} is there twice", kept.key.escape_ascii());
                }),
            );
            let each = rng.usize(1..300);
            while keyspace.save_some(|| false) == Saved::Some {
                (0..each).for_each(|_| change(&mut keyspace, &mut rng, now, keys));
            }
            assert!(*written.borrow() == expected, "seed {seed}");
            keyspace.check();
        }
    }

    #[test]
    fn what_is_emptied_is_no_moment_any_more() {
        let now = Now::from_ms(NOW_MS);
        let mut keyspace = Keyspace::new(2, Hasher::new(1, 1));
        let key = keyspace.hasher().key(b"key");
        keyspace.insert(0, key, Value::Int(1), None, now);
        keyspace.begin_saving(now, Box::new(|_, _| panic!("it was emptied")));
        keyspace.flush(0, now);
        assert_eq!(keyspace.save_some(|| true), Saved::Void);
        assert_eq!(keyspace.save_some(|| true), Saved::All, "nothing is asked for");
        keyspace.insert(0, key, Value::Int(1), None, now);
        keyspace.effects.close_all();
    }
}
