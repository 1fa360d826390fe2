//! What must be in the keyspace: a map, and its deadlines in order.

use crate::clock::Now;
use crate::keyspace::{NEVER_MS, Value};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    Int(i64),
    Bytes(Vec<u8>),
}

impl Stored {
    pub fn of(value: Value) -> Stored {
        match value {
            Value::Int(n) => Stored::Int(n),
            Value::Bytes(bytes) => Stored::Bytes(bytes.to_vec()),
        }
    }

    pub fn value(&self) -> Value<'_> {
        match self {
            Stored::Int(n) => Value::Int(*n),
            Stored::Bytes(bytes) => Value::Bytes(bytes),
        }
    }
}

pub type Id = (usize, Vec<u8>);

/// What must be in the keyspace, dead keys that nothing has buried yet included.
#[derive(Default)]
pub struct Model {
    pub keys: BTreeMap<Id, (Stored, Option<u64>)>,
    pub by_deadline: BTreeSet<(u64, Id)>,
}

impl Model {
    pub fn put(&mut self, id: Id, stored: Stored, deadline_ms: Option<u64>) {
        self.take(&id);
        if let Some(deadline_ms) = deadline_ms {
            self.by_deadline.insert((deadline_ms, id.clone()));
        }
        self.keys.insert(id, (stored, deadline_ms));
    }

    pub fn take(&mut self, id: &Id) -> Option<(Stored, Option<u64>)> {
        let taken = self.keys.remove(id)?;
        if let Some(deadline_ms) = taken.1 {
            self.by_deadline.remove(&(deadline_ms, id.clone()));
        }
        Some(taken)
    }

    pub fn earliest_ms(&self) -> u64 {
        self.by_deadline.first().map_or(NEVER_MS, |first| first.0)
    }

    pub fn of_db(&self, db: usize) -> impl Iterator<Item = (&Id, &(Stored, Option<u64>))> {
        self.keys.range((db, Vec::new())..(db + 1, Vec::new()))
    }

    /// The live part of a database.
    pub fn live(&self, db: usize, now: Now) -> BTreeMap<&[u8], (&Stored, Option<u64>)> {
        let alive = self.of_db(db).filter(|(_, (_, deadline_ms))| deadline_ms.is_none_or(|at_ms| now.ms <= at_ms));
        alive.map(|((_, key), (stored, deadline_ms))| (key.as_slice(), (stored, *deadline_ms))).collect()
    }
}

/// Keys of all shapes: the empty one, short ones, and some past the limit of a narrow entry.
pub fn key_bytes(n: u32) -> Vec<u8> {
    match n {
        0 => Vec::new(),
        _ if n.is_multiple_of(991) => format!("{n:0>5000}").into_bytes(),
        _ if n.is_multiple_of(7) => format!("a key somewhat longer than its neighbours {n}").into_bytes(),
        _ => format!("key{n}").into_bytes(),
    }
}
