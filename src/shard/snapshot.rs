//! A shard's part of a snapshot: what it writes, a slice at a time, and what it takes in.

use super::Shard;
use crate::clock::store_us;
use crate::command::dump::{self, Wall};
use crate::keyspace::Clocking;
use crate::net::{next_from_outside, sleep, step_back};
use crate::persist::reading::{Batch, LoadedKey};
use crate::persist::writing::{Offered, Pieces};
use crate::rdb::{self, file};
use std::rc::Rc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Others have their turn after so long.
const SLICE_US: u64 = 500;
/// A piece of a file is about so long.
const PIECE_BYTES: usize = 256 << 10;
/// How long to wait for the disk.
const FULL: Duration = Duration::from_millis(1);

/// How much there is.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// Keys of each database, and how many of them have deadlines.
    pub databases: Vec<(u64, u64)>,
    pub has_field_deadlines: bool,
    /// Changes so far.
    pub changes: u64,
}

/// What was taken in.
#[derive(Clone, Copy, Debug, Default)]
pub struct TakenIn {
    pub keys: u64,
    /// Those that had died by then: left out, or hidden until the cycle finds them.
    pub dead: u64,
}

/// How keys are taken in.
#[derive(Clone, Copy, Debug)]
pub struct TakeIn {
    /// A key that is there already is replaced: else it is a defect of the file.
    pub replace: bool,
    /// What has died is left out.
    pub drop_dead: bool,
}

impl Shard {
    pub fn sizes(&self) -> Sizes {
        let keyspace = self.keyspace.borrow();
        let of_db = |db: usize| (keyspace.len(db) as u64, keyspace.with_deadline(db) as u64);
        Sizes {
            databases: (0..keyspace.databases()).map(of_db).collect(),
            has_field_deadlines: keyspace.has_field_deadlines(),
            changes: keyspace.effects.dirty,
        }
    }

    /// Writes all keys down, while somebody sees to it that nothing changes. Whether there was room for all.
    pub async fn write_down(self: Rc<Shard>, pieces: Pieces) -> bool {
        let databases = self.keyspace.borrow().databases();
        let (mut out, mut value) = (Vec::new(), Vec::new());
        for db in 0..databases {
            let mut position = Some(0);
            let mut is_said = false;
            while let Some(from) = position {
                let began_us = store_us();
                let (now, mut next) = (self.clock.now(), Some(from));
                let wall = Wall::at(now, &self.clock);
                while let Some(at) = next
                    && out.len() < PIECE_BYTES
                    && store_us() - began_us < SLICE_US
                {
                    next = self.keyspace.borrow().keep(db, at, now, |kept| {
                        if !std::mem::replace(&mut is_said, true) {
                            file::write_db(&mut out, db);
                        }
                        value.clear();
                        dump::write(&mut value, kept.content, wall);
                        file::write_key(&mut out, kept.key, kept.deadline_ms.map(|ms| wall.of_store_ms(ms)), &value);
                    });
                }
                position = next;
                if out.len() >= PIECE_BYTES {
                    if !send(&pieces, std::mem::take(&mut out)).await {
                        return false;
                    }
                    // Another shard's piece may come next.
                    is_said = false;
                } else {
                    step_back().await;
                }
            }
            if !out.is_empty() && !send(&pieces, std::mem::take(&mut out)).await {
                return false;
            }
        }
        true
    }

    /// Takes in what comes until nothing more does, while somebody sees to it that no one else changes anything. What is
    /// wrong with it ends that: the receiver is gone then.
    pub async fn load_from(self: Rc<Shard>, batches: Receiver<Batch>, how: TakeIn) -> Result<TakenIn, String> {
        let mut taken = TakenIn::default();
        while let Some(batch) = next_from_outside(&batches).await {
            let mut rest = batch.keys.iter();
            while !rest.as_slice().is_empty() {
                self.load_some(&batch, &mut rest, how, &mut taken)?;
                step_back().await;
            }
        }
        Ok(taken)
    }

    /// All is there: what has died until now is told from now on, and does not count as found late. Returns the changes so
    /// far.
    pub fn end_loading(&self) -> u64 {
        let changes = {
            let mut keyspace = self.keyspace.borrow_mut();
            keyspace.lag.count_from(self.clock.refresh());
            keyspace.effects.dirty
        };
        self.after_commands();
        changes
    }

    fn load_some(
        &self,
        batch: &Batch,
        rest: &mut std::slice::Iter<LoadedKey>,
        how: TakeIn,
        taken: &mut TakenIn,
    ) -> Result<(), String> {
        let (began_us, now) = (store_us(), self.clock.refresh());
        let wall = Wall::at(now, &self.clock);
        let (keyspace, limits) = (&mut *self.keyspace.borrow_mut(), &*self.limits.borrow());
        let counts = keyspace.clocking().counts();
        for loaded in rest.by_ref() {
            let name = batch.key(loaded);
            let key = self.hasher.key(name);
            let broken = |what: &str| format!("{what} of key '{}' in DB {}", name.escape_ascii(), loaded.db);
            if !how.replace && keyspace.has_entry(loaded.db, key) {
                return Err(broken("a second value"));
            }
            let deadline_ms = loaded.deadline_ms.map(|wall_ms| wall.to_store_ms(wall_ms));
            let is_dead = deadline_ms.is_some_and(|deadline_ms| deadline_ms < now.ms);
            taken.dead += u64::from(is_dead);
            if is_dead && how.drop_dead {
                continue;
            }
            let value = match dump::build(batch.value(loaded), limits, wall) {
                Ok(Some(value)) => value,
                // All of its fields have died, or there were never any: Redis passes over these, too.
                Ok(None) | Err(rdb::Error::Empty) => continue,
                Err(error) => return Err(broken(&format!("{error} in the value"))),
            };
            let clock = match (loaded.idle_s, loaded.frequency) {
                (Some(idle_s), _) if !counts => Some(Clocking::of_idle_s(idle_s, now)),
                (_, Some(frequency)) if counts => Some(Clocking::of_frequency(frequency.into(), now)),
                _ => None,
            };
            keyspace.put_back(loaded.db, key, value, deadline_ms, clock, now);
            taken.keys += u64::from(!is_dead);
            if store_us() - began_us > SLICE_US {
                break;
            }
        }
        keyspace.end_putting_back();
        Ok(())
    }
}

async fn send(pieces: &Pieces, mut bytes: Vec<u8>) -> bool {
    loop {
        match pieces.offer(bytes) {
            Offered::Taken => return true,
            Offered::Over => return false,
            Offered::Full(again) => {
                bytes = again;
                sleep(FULL).await;
            }
        }
    }
}
