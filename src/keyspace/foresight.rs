//! What lives now and dies later: the live keys of a database with their deadlines, in walks that give way to others.

use super::nodes::Nodes;
use super::{Cursor, Keyspace, NEVER_MS};
use crate::clock::Now;
use crate::table::block::Block;
use crate::table::{Entry, Table};

/// Keys with deadlines of one database that are looked at for their average life.
const AVERAGED: u32 = 1000;

/// A live key on a walk.
pub struct Seen<'a> {
    entry: Entry<'a>,
    nodes: &'a Nodes,
    /// Store milliseconds.
    pub deadline_ms: Option<u64>,
}

impl Seen<'_> {
    pub fn key(&self) -> &[u8] {
        self.entry.key()
    }

    /// See [`Nodes::bytes_of_key`].
    pub fn bytes(&self) -> usize {
        self.nodes.bytes_of_key(self.entry)
    }
}

/// The keys with a prefix.
#[derive(Clone, Copy, Default)]
pub struct PrefixCounts {
    /// Those that live.
    pub keys: u64,
    pub with_deadline: u64,
    /// Those that are dead and not deleted yet.
    pub stale: u64,
    left_ms: u128,
}

impl PrefixCounts {
    pub fn add(&mut self, other: &PrefixCounts) {
        self.keys += other.keys;
        self.with_deadline += other.with_deadline;
        self.stale += other.stale;
        self.left_ms += other.left_ms;
    }

    /// The average remaining life of those with a deadline; zero where there are none.
    pub fn average_ms(&self) -> u64 {
        let average_ms = self.left_ms.checked_div(self.with_deadline.into()).unwrap_or(0);
        average_ms.try_into().unwrap_or(u64::MAX)
    }
}

impl Keyspace {
    /// Counts the keys of one block that begin so, and returns the position of the next, as [`Keyspace::walk`] does.
    pub fn count_prefix(
        &self,
        db: usize,
        position: u64,
        prefix: &[u8],
        now: Now,
        counts: &mut PrefixCounts,
    ) -> Option<u64> {
        let table = &self.dbs[db];
        table.walk(position, NEVER_MS, |block, slot| {
            if !block.entry(slot).key().starts_with(prefix) {
                return;
            }
            if table.is_dead_in(block, slot, now.ms) {
                counts.stale += 1;
                return;
            }
            counts.keys += 1;
            if let Some(deadline_ms) = self.seen(table, block, slot).deadline_ms {
                counts.with_deadline += 1;
                counts.left_ms += u128::from(deadline_ms.saturating_sub(now.ms));
            }
        })
    }

    /// The average remaining life of the live keys with deadlines, as of now: of all of them where they are no more than
    /// about [`AVERAGED`], else of so many. Blocks hold keys by their hashes, so that a few blocks are a fair sample. Zero
    /// where there are none.
    pub fn average_ttl_ms(&self, db: usize, now: Now) -> f64 {
        let table = &self.dbs[db];
        // A few deadlines at the end of time are more than 64 bits.
        let (mut keys, mut left_ms) = (0_u32, 0_u128);
        for block in table.blocks_with_deadlines() {
            for slot in block.full_slots().filter(|slot| block.column_ms(*slot).is_some()) {
                if let Some(deadline_ms) = self.seen(table, block, slot).deadline_ms
                    && !table.is_dead_in(block, slot, now.ms)
                {
                    keys += 1;
                    left_ms += u128::from(deadline_ms.saturating_sub(now.ms));
                }
            }
            if keys >= AVERAGED {
                break;
            }
        }
        if keys == 0 { 0.0 } else { left_ms as f64 / f64::from(keys) }
    }

    /// Adds the live keys of one block that begin so and are not as their policies want them.
    pub fn walk_ungoverned(
        &self,
        db: usize,
        position: u64,
        prefix: &[u8],
        now: Now,
        keys: &mut Vec<Box<[u8]>>,
    ) -> Option<u64> {
        self.walk(db, position, NEVER_MS, now, |seen| {
            if seen.key().starts_with(prefix)
                && self.wanted_ms(self.hasher.key(seen.key()), seen.deadline_ms, now).is_some()
            {
                keys.push(seen.key().into());
            }
        })
    }

    /// Shows the live keys of one block whose deadlines are not after `until_ms`; all live keys where that is
    /// [`NEVER_MS`]. Returns the position of the next block. A walk from position 0 on shows every key that stays exactly
    /// once, whatever comes and goes meanwhile.
    pub fn walk(&self, db: usize, position: u64, until_ms: u64, now: Now, mut each: impl FnMut(&Seen)) -> Option<u64> {
        let table = &self.dbs[db];
        let is_in = |at_ms: Option<u64>| until_ms == NEVER_MS || at_ms.is_some_and(|at_ms| at_ms <= until_ms);
        table.walk(position, until_ms, |block, slot| {
            // What the column says is never later than the deadline, and no entry is read for it.
            if !is_in(block.column_ms(slot)) || table.is_dead_in(block, slot, now.ms) {
                return;
            }
            let seen = self.seen(table, block, slot);
            if is_in(seen.deadline_ms) {
                each(&seen);
            }
        })
    }

    /// No entry is read where the columns say all.
    fn seen<'a>(&'a self, table: &Table, block: &'a Block, slot: usize) -> Seen<'a> {
        let is_exact = table.with_fields() == 0;
        let deadline_ms = if is_exact { block.column_ms(slot) } else { block.deadline_ms(slot) };
        Seen { entry: block.entry(slot), nodes: &self.nodes, deadline_ms }
    }

    /// As [`Keyspace::scan`], with deadlines: shows live keys, those without one, too.
    pub fn scan_deadlines(
        &self,
        db: usize,
        cursor: Cursor,
        count: usize,
        shards: usize,
        now: Now,
        mut each: impl FnMut(&Seen),
    ) -> Option<Cursor> {
        let table = &self.dbs[db];
        self.scan_slots(db, cursor, count, shards, now, |block, slot| each(&self.seen(table, block, slot)))
    }
}
