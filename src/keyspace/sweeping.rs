//! What is dead goes: sweeps of what is due, walks for a prefix, samples that say how much is stale.

use super::Keyspace;
use super::change::{Change, Event};
use super::deaths::{Keeping, Mourners};
use super::nodes::Nodes;
use super::policies::Dying;
use crate::clock::Now;
use crate::observe::Lag;
use crate::table::{Entry, FieldsSwept, NEVER_MS, Next, Swept, Table, Undertaker};

/// How far a walk over dead keys has come. It goes by position, which no split or merge changes: a key that is dead
/// when the walk starts is seen, whatever happens meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadWalk {
    db: usize,
    position: u64,
}

/// What one sample of random keys with deadlines saw, in one database.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    pub seen: usize,
    pub dead: usize,
}

/// Draws for each key of a sample: a database in which keys with deadlines are thinner than this is sampled less.
const SAMPLE_TRIES: usize = 16;

impl Keyspace {
    /// A moment that is not later than the next one at which the cycle has something to do; cheap.
    #[inline]
    pub fn next_due_hint_ms(&self) -> u64 {
        self.dbs.iter().map(Table::next_due_hint_ms).min().unwrap_or(NEVER_MS)
    }

    /// The block that has to be looked at first, as (moment, database, block).
    pub fn earliest(&mut self) -> Option<(u64, usize, u32)> {
        self.dbs
            .iter_mut()
            .enumerate()
            .filter_map(|(index, db)| db.earliest().map(|(at_ms, block)| (at_ms, index, block)))
            .min()
    }

    /// Deletes at most `limit` keys of a database whose deadlines are before `before_ms`, which is not later than now,
    /// those of the blocks first that have to be looked at first.
    pub fn sweep_earliest(&mut self, db: usize, before_ms: u64, now: Now, limit: usize) -> Swept {
        let limit = self.most_at_once(limit);
        self.sweep_by(db, before_ms, now, |db, dead| db.sweep_earliest(before_ms, now.ms, limit, dead))
    }

    /// Of so many dead keys as many as go at once: their values may have to be kept for streams.
    fn most_at_once(&self, keys: usize) -> usize {
        if self.policies.is_some() { self.deaths.most_at_once(keys) } else { keys }
    }

    /// Deletes at most `limit` keys of one block.
    pub(super) fn sweep(&mut self, db: usize, block: u32, before_ms: u64, now: Now, limit: usize) -> Swept {
        self.sweep_by(db, before_ms, now, |db, dead| db.sweep(&[block], before_ms, now.ms, limit, dead))
    }

    pub(super) fn sweep_by(
        &mut self,
        db: usize,
        before_ms: u64,
        now: Now,
        sweep: impl FnOnce(&mut Table, &mut Sweeping) -> Swept,
    ) -> Swept {
        debug_assert!(before_ms <= now.ms);
        let (effects, policies, deaths) = (&mut self.effects, &mut self.policies, &mut self.deaths);
        let stale = Keeping { stale: &mut self.stale, databases: self.dbs.len(), most: self.stale_bytes_max };
        let told = Mourners { effects, policies, deaths, stale, hasher: &self.hasher, db, now };
        let mut sweeping = Sweeping { told, lag: &mut self.lag, nodes: &mut self.nodes };
        let swept = sweep(&mut self.dbs[db], &mut sweeping);
        self.counters.expired_fields += swept.fields as u64;
        self.nodes.adopt(&mut self.dbs[db]);
        if self.has_groups() {
            self.end_groups(db, now);
        }
        self.counters.expired_by_cycle += (swept.deleted - swept.fields) as u64;
        self.counters.expired_bytes += swept.bytes as u64;
        swept
    }

    /// Goes on with a walk that deletes the dead keys which start with `prefix`: at most `limit` of one block, or past
    /// so many blocks in which nothing is due. Returns how many were deleted, but for those whose elements were dead; `None`
    /// where the walk was at its end.
    pub fn sweep_prefix(&mut self, walk: &mut DeadWalk, prefix: &[u8], now: Now, limit: usize) -> Option<usize> {
        let (limit, mut died) = (self.most_at_once(limit), 0);
        for _ in 0..limit {
            let db = walk.db;
            let found = self.dbs.get(db)?.dead_at(walk.position, now.ms, limit, |key| key.starts_with(prefix));
            for key in &found.keys {
                if let Some(slot) = self.dbs[db].find(self.hasher.key(key)) {
                    died += usize::from(!self.dies_by_elements(db, slot, now));
                    self.remove_dead(db, slot, true, now);
                }
            }
            self.counters.expired_by_cycle += died as u64;
            if found.keys.len() < limit {
                *walk = match found.next {
                    Some(position) => DeadWalk { db, position },
                    None => DeadWalk { db: db + 1, position: 0 },
                };
            }
            if found.was_due {
                return Some(died);
            }
        }
        Some(0)
    }

    /// The deadline of the oldest key that is dead and not deleted yet.
    pub fn oldest_due_ms(&mut self, now: Now) -> Option<u64> {
        loop {
            let (at_ms, db, block) = self.earliest()?;
            if at_ms >= now.ms {
                return None;
            }
            // Deletes nothing, but leaves the block's minimum exact: it may have been too early.
            self.sweep(db, block, now.ms, now, 0);
            if self.dbs[db].minimum_ms(block) == at_ms {
                return Some(at_ms);
            }
        }
    }

    /// Looks at `size` random keys with deadlines (fewer where the database has fewer, or where they are thinly
    /// spread).
    pub fn sample(&self, db: usize, size: usize, rng: &mut fastrand::Rng, now: Now) -> Sample {
        let db = &self.dbs[db];
        let mut sample = Sample::default();
        for _ in 0..size.min(db.with_deadline()) {
            let Some(slot) = db.random(rng, SAMPLE_TRIES, |block, index| block.deadline_ms(index).is_some()) else {
                continue;
            };
            sample.seen += 1;
            sample.dead += usize::from(db.is_dead(slot, now.ms));
        }
        sample
    }
}

/// What a sweep has to tell whom.
pub(super) struct Sweeping<'a> {
    told: Mourners<'a>,
    lag: &'a mut Lag,
    nodes: &'a mut Nodes,
}

impl Undertaker for Sweeping<'_> {
    fn dead(&mut self, entry: Entry, deadline_ms: u64) -> usize {
        self.lag.record(self.told.now, deadline_ms);
        self.told.died(Dying { entry, deadline_ms, by_cycle: true }, self.nodes);
        self.told.effects.dies_in_groups(self.told.db, entry.key(), deadline_ms);
        self.told.effects.departs(self.told.db, entry.key());
        self.nodes.bytes_of_key(entry)
    }

    fn fields(&mut self, entry: Entry, before_ms: u64, limit: usize) -> FieldsSwept {
        let (nodes, lag, now, db) = (&mut *self.nodes, &mut *self.lag, self.told.now, self.told.db);
        let effects = &mut *self.told.effects;
        effects.shrinks(db, entry, self.told.hasher, || nodes.bytes_of_key(entry));
        let (mut names, kind) = (Vec::new(), entry.kind());
        let died = Event::of_dead_elements(kind);
        let (is_journaled, is_told) = (effects.is_journaled(), effects.wants_elements(died));
        let swept = nodes.sweep_fields(entry, before_ms, now.ms, limit, |name, deadline_ms| {
            lag.record(now, deadline_ms);
            if is_journaled || is_told {
                names.push(name.to_vec());
            }
        });
        if swept.deleted > 0 {
            let is_gone = swept.next == Next::Empty;
            if is_journaled && !is_gone {
                effects.said.fields_died(db, entry.key(), kind, &names);
            }
            if is_gone {
                effects.goes_first(db, || self.told.hasher.key(entry.key()));
                effects.departs(db, entry.key());
            }
            effects.name_elements(died, names);
            let change = Change::removal(died, is_gone).times(swept.deleted as u64);
            effects.record(db, entry.key(), change.expired());
        }
        swept
    }
}
