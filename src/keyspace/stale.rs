//! What dead strings were, for whoever asks for that: where a policy says `STALE`, GETFRESH shows the value of a key that has died
//! while somebody computes it anew.
//!
//! These copies stand beside the tables, and nothing else sees them: to all other commands the key is gone. A copy goes with its
//! time, with whatever is put under the key, and with `DEL`; it is the first to go where memory is short. Neither snapshots nor the
//! log nor replicas have it.

use super::beside::Beside;
use super::policies::Policies;
use super::{Key, Keyspace};
use crate::clock::Now;
use crate::table::{Dict, Entry, Kind, NEVER_MS, Value};

/// A longer string is not kept: to copy it would keep others waiting.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// The copies of all databases. Their deadlines are the ends of their times; behind each value stands when it died, since a policy
/// may come to say less.
pub(super) struct Stale(Beside);

/// When a value died, store milliseconds.
const DIED_BYTES: usize = size_of::<u64>();

/// A value as it is kept.
fn with_death(value: Value, deadline_ms: u64) -> Vec<u8> {
    let mut kept = value.to_vec();
    kept.extend_from_slice(&deadline_ms.to_le_bytes());
    kept
}

fn split_death(kept: Value<'_>) -> Option<(&[u8], u64)> {
    let Value::Bytes(kept) = kept else { return None };
    let (value, died) = kept.split_last_chunk::<DIED_BYTES>()?;
    Some((value, u64::from_le_bytes(*died)))
}

/// One of them, taken out.
pub struct StaleCopy {
    /// With its death.
    kept: Vec<u8>,
    /// When its time is over, store milliseconds.
    until_ms: u64,
}

impl StaleCopy {
    pub fn bytes(&self) -> usize {
        self.kept.len()
    }
}

impl Stale {
    pub(super) fn new(databases: usize) -> Stale {
        Stale(Beside::new(databases))
    }

    /// A key is dying: its value is kept, where its policy says so, for as long as that says, but no more in all than so many bytes.
    pub(super) fn keep(
        &mut self,
        policies: &Policies,
        (db, entry): (usize, Entry),
        deadline_ms: u64,
        most: usize,
        now: Now,
    ) {
        let Some(stale_ms) = policies.stale_ms(entry.key()) else { return };
        let until_ms = deadline_ms.saturating_add(stale_ms).min(NEVER_MS - 1);
        if entry.kind() != Kind::String || entry.bytes() > VALUE_BYTES_MAX.min(most) || until_ms < now.ms {
            return;
        }
        while self.0.bytes().saturating_add(entry.bytes()) > most && self.0.len() > 0 {
            self.give(GIVEN_TOGETHER, now);
        }
        self.0.change(db, |dict| {
            dict.set(entry.key(), Value::Bytes(&with_death(entry.value(), deadline_ms)));
            dict.set_deadline(entry.key(), Some(until_ms), now.ms);
        });
    }

    /// Takes about so many out whose time is over; how many.
    fn sweep(&mut self, limit: usize, now: Now) -> usize {
        let mut swept = 0;
        for db in self.0.databases() {
            if swept < limit && self.0.of(db).earliest_ms() < now.ms {
                swept += self.0.change(db, |dict| dict.sweep(now.ms, now.ms, limit - swept, |_, _| ())).deleted;
            }
        }
        swept
    }

    /// Gives so many up, those first whose time is over; how many.
    fn give(&mut self, limit: usize, now: Now) -> usize {
        let mut given = self.sweep(limit, now);
        for db in self.0.databases() {
            let keys = self.0.of(db).iter().take(limit - given).map(|entry| entry.key().into());
            let keys: Vec<Box<[u8]>> = keys.collect();
            given += keys.iter().filter(|key| self.0.remove(db, key)).count();
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
        let stale_ms = self.policies.as_ref()?.stale_ms(key)?;
        let (entry, until_ms) = stale.0.of(db).get_with_deadline(key)?;
        let (value, died_ms) = split_death(entry.value())?;
        if until_ms?.min(died_ms.saturating_add(stale_ms)) < now.ms {
            return None;
        }
        self.counters.stale_shown += 1;
        Some(Value::of(value))
    }

    /// The same, to be put back where what takes it away is undone.
    pub fn stale_copy(&self, db: usize, key: &[u8]) -> Option<StaleCopy> {
        let (entry, until_ms) = self.stale.as_deref()?.0.of(db).get_with_deadline(key)?;
        let Value::Bytes(kept) = entry.value() else { return None };
        Some(StaleCopy { kept: kept.to_vec(), until_ms: until_ms? })
    }

    pub fn put_stale_back(&mut self, db: usize, key: &[u8], copy: &StaleCopy, now: Now) {
        if let Some(stale) = &mut self.stale {
            stale.0.change(db, |dict| {
                dict.set(key, Value::Bytes(&copy.kept));
                dict.set_deadline(key, Some(copy.until_ms), now.ms);
            });
        }
    }

    /// Nobody is to see what a key was.
    #[inline]
    pub fn forget_stale(&mut self, db: usize, key: Key) {
        if let Some(stale) = &mut self.stale {
            stale.0.remove(db, key.bytes);
        }
    }

    /// How many copies there are of what has died.
    pub fn stale_copies(&self) -> usize {
        self.stale.as_ref().map_or(0, |stale| stale.0.len())
    }

    /// Bytes of them.
    pub fn stale_bytes(&self) -> usize {
        self.stale.as_ref().map_or(0, |stale| stale.0.bytes())
    }

    /// When the time of one of them is over, or before that.
    pub fn stale_due_ms(&self) -> u64 {
        let dbs = self.stale.iter().flat_map(|stale| stale.0.all());
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
            stale.0.flush(db);
        }
    }

    pub(super) fn swap_stale(&mut self, a: usize, b: usize) {
        if let Some(stale) = &mut self.stale {
            stale.0.swap(a, b);
        }
    }
}
