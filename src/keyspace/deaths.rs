//! Deaths that are to be written to a stream, because the policy of the key wants it.
//!
//! A key that has died is taken out where it is found, by access or by the cycle, and its death stands in a queue from
//! then on. The shard writes from there, in the order in which keys have died: the journal is told that the key is gone
//! in the same transaction in which the stream gets its entry. Only where a command writes to the key before that is the
//! journal told at once, since the new value comes behind the death.

use super::change::{Change, Event};
use super::effects::Effects;
use super::nodes::{Nodes, Owned};
use super::policies::{Dying, Policies};
use super::said::KeyName;
use crate::clock::Now;
use crate::config::DeathStream;
use crate::table::Hasher;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A key has died whose policy writes that down.
pub struct Death {
    pub db: usize,
    pub key: Box<[u8]>,
    pub hash: u64,
    /// Store milliseconds.
    pub deadline_ms: u64,
    /// How long after its deadline it was deleted.
    pub lag_us: u64,
    pub to: Arc<DeathStream>,
    pub value: LastValue,
}

/// What was under a key when it died.
pub enum LastValue {
    /// Nobody wants to know.
    Unwanted,
    Kept(Owned),
    /// It had so many bytes, more than are written.
    TooLong(usize),
}

/// While this much waits to be written the cycle deletes nothing, nor does reading, and what is dead is hidden all the same.
/// (Writing over it does, without keeping what it was.)
const WAITING_MAX: usize = 4096;
const WAITING_BYTES_MAX: usize = 16 << 20;

#[derive(Default)]
pub struct Deaths {
    waiting: VecDeque<Death>,
    /// Bytes of their values.
    bytes: usize,
    /// Those among them of which the journal was not told, by database and hash.
    untold: HashMap<(usize, u64), Box<[u8]>, ahash::RandomState>,
    /// No longer value is written.
    pub value_bytes_max: usize,
}

impl LastValue {
    pub fn bytes(&self) -> usize {
        match self {
            LastValue::Kept(value) => value.bytes(),
            LastValue::Unwanted | LastValue::TooLong(_) => 0,
        }
    }
}

impl Deaths {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of the values that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Those of a database are not to be written any more.
    pub fn forget(&mut self, db: usize) {
        self.waiting.retain(|death| death.db != db);
        self.bytes = self.waiting.iter().map(|death| death.value.bytes()).sum();
    }

    /// Two databases change places.
    pub fn swap(&mut self, a: usize, b: usize) {
        for death in &mut self.waiting {
            death.db = match death.db {
                db if db == a => b,
                db if db == b => a,
                db => db,
            };
        }
    }

    /// Whether so much waits that the cycle has to wait, too.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX || self.bytes >= WAITING_BYTES_MAX
    }

    /// Takes the first of those that wait, at the most so many, and no more once their values have so many bytes.
    pub fn take(&mut self, most: usize, most_bytes: usize) -> Vec<Death> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < most && bytes < most_bytes {
            let Some(death) = self.waiting.pop_front() else { break };
            bytes += death.value.bytes();
            taken.push(death);
        }
        self.bytes -= bytes;
        taken
    }

    fn push(&mut self, death: Death, is_journaled: bool) {
        if is_journaled {
            self.untold.insert((death.db, death.hash), death.key.clone());
        }
        self.bytes += death.value.bytes();
        self.waiting.push_back(death);
    }

    /// The name of a dead key, if the journal was not told of it. It is told now.
    pub fn tell(&mut self, db: usize, hash: u64) -> Option<Box<[u8]>> {
        self.untold.remove(&(db, hash))
    }

    /// The same of all.
    pub fn tell_all(&mut self) -> impl Iterator<Item = KeyName> + '_ {
        self.untold.drain().map(|((db, _), key)| (db, key))
    }

    #[inline]
    pub fn are_told(&self) -> bool {
        self.untold.is_empty()
    }
}

/// All that a death is told to.
pub(super) struct Mourners<'a> {
    pub effects: &'a mut Effects,
    pub policies: &'a mut Option<Box<Policies>>,
    pub deaths: &'a mut Deaths,
    pub hasher: &'a Hasher,
    pub db: usize,
    pub now: Now,
}

impl Mourners<'_> {
    #[inline]
    pub fn died(&mut self, dying: Dying, nodes: &Nodes) {
        let change = Change::of(Event::Expired).expired();
        self.effects.dies(self.db, dying.entry);
        if self.policies.is_none() {
            self.effects.record(self.db, dying.entry.key(), change);
        } else {
            self.died_under_policies(dying, nodes, change);
        }
    }

    #[inline(never)]
    fn died_under_policies(&mut self, dying: Dying, nodes: &Nodes, change: Change) {
        let to = self.policies.as_mut().and_then(|policies| policies.died(&dying, self.now));
        let change = if to.is_some() { change.unsaid() } else { change };
        self.effects.record(self.db, dying.entry.key(), change);
        if let Some(to) = to {
            self.write_down(to, dying, nodes);
        }
    }

    fn write_down(&mut self, to: Arc<DeathStream>, Dying { entry, deadline_ms, .. }: Dying, nodes: &Nodes) {
        let bytes = || nodes.bytes_of_key(entry);
        let value = match () {
            () if !to.with_value => LastValue::Unwanted,
            () if bytes() > self.deaths.value_bytes_max || self.deaths.is_full() => LastValue::TooLong(bytes()),
            () => LastValue::Kept(Owned::copy_of(entry)),
        };
        let lag_us = self.now.us.saturating_sub(deadline_ms.saturating_mul(1000));
        let (key, hash) = (entry.key(), self.hasher.hash(entry.key()));
        let death = Death { db: self.db, key: key.into(), hash, deadline_ms, lag_us, to, value };
        self.deaths.push(death, self.effects.is_journaled());
    }
}
