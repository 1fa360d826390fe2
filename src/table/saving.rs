//! The elements of a dictionary as of one moment, shown in slices while it goes on changing.
//!
//! From that moment on a walk goes through the blocks in the order of positions. An element that the walk has not come to
//! is copied before it changes for the first time, and the walk passes over it.

use super::changed::{Changed, Lots};
use super::entry::{Entry, Value};
use super::hash::spread;
use super::table::Table;
use super::{Key, NEVER_MS};

/// Takes an element: its name, its value and its deadline.
pub type ShowElement<'t> = dyn FnMut(&[u8], Value, Option<u64>) + 't;

/// Where such a walk is.
pub(super) struct Saving {
    /// Everything before this position was shown; none: all was.
    at: Option<u64>,
    /// What has changed behind it.
    changed: Changed,
    /// As it was, as far as it was not shown.
    kept: Lots<Kept>,
}

struct Kept {
    name: Box<[u8]>,
    value: KeptValue,
    deadline_ms: Option<u64>,
}

enum KeptValue {
    Int(i64),
    Bytes(Box<[u8]>),
}

impl Kept {
    fn of(entry: Entry, deadline_ms: Option<u64>) -> Kept {
        let value = match entry.value() {
            Value::Int(n) => KeptValue::Int(n),
            Value::Bytes(bytes) => KeptValue::Bytes(bytes.into()),
        };
        Kept { name: entry.key().into(), value, deadline_ms }
    }

    fn value(&self) -> Value<'_> {
        match &self.value {
            KeptValue::Int(n) => Value::Int(*n),
            KeptValue::Bytes(bytes) => Value::Bytes(bytes),
        }
    }
}

impl Saving {
    pub fn new(elements: usize) -> Saving {
        Saving { at: Some(0), changed: Changed::among(elements), kept: Lots::default() }
    }

    /// An element is about to change, to come or to go; `was` is what it is until then.
    pub fn before_change<'e>(&mut self, key: Key, was: impl FnOnce() -> Option<(Entry<'e>, Option<u64>)>) {
        let is_ahead = self.at.is_some_and(|at| spread(key.hash) >= at);
        if is_ahead
            && self.changed.insert(key.hash, key.bytes)
            && let Some((entry, deadline_ms)) = was()
        {
            self.kept.push(Kept::of(entry, deadline_ms));
        }
    }

    /// Shows some elements, with their values and deadlines; whether there may be more.
    pub fn show(&mut self, table: &Table, each: &mut ShowElement) -> bool {
        if let Some(kept) = self.kept.pop() {
            kept.iter().for_each(|kept| each(&kept.name, kept.value(), kept.deadline_ms));
        } else if let Some(at) = self.at {
            let changed = &self.changed;
            self.at = table.walk(at, NEVER_MS, |block, slot| {
                let entry = block.entry(slot);
                if !changed.contains(|| table.hash(entry.key()), entry.key()) {
                    each(entry.key(), entry.value(), block.deadline_ms(slot));
                }
            });
            self.changed.forget_before(self.at.unwrap_or(u64::MAX));
        }
        self.at.is_some() || !self.kept.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Dict;
    use std::collections::BTreeMap;

    type Contents = BTreeMap<Vec<u8>, (i64, Option<u64>)>;

    fn number(value: Value) -> i64 {
        match value {
            Value::Int(n) => n,
            Value::Bytes(bytes) => bytes.len() as i64,
        }
    }

    fn change(dict: &mut Dict, rng: &mut fastrand::Rng, names: u32, now_ms: &mut u64) {
        let member = format!("member{}", rng.u32(..names)).into_bytes();
        let text = vec![b'x'; rng.usize(..100)];
        match rng.u32(..12) {
            0..3 => drop(dict.set(&member, Value::Int(rng.i64(..)))),
            3..5 => drop(dict.set(&member, Value::Bytes(&text))),
            5 => drop(dict.add(&member, Value::Int(5))),
            6..9 => drop(dict.remove(&member)),
            9 => dict.set_deadline(&member, rng.bool().then(|| *now_ms + rng.u64(..2_000)), *now_ms),
            10 if rng.u32(..200) == 0 => {
                *now_ms += rng.u64(..500);
                dict.sweep(*now_ms, *now_ms, rng.usize(1..500), |_, _| ());
            }
            _ => {}
        }
    }

    /// Blocks split and merge, elements come, change, die and go, between all steps.
    #[test]
    fn what_was_there_at_the_moment_is_shown_once() {
        for seed in 0..if cfg!(miri) { 1 } else { 30 } {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut dict, mut now_ms) = (Dict::new(), 1_000_000);
            let names = [1_500, 4_000, 20_000][seed as usize % 3];
            let rounds = if cfg!(miri) { 3_000 } else { 40_000 };
            (0..rounds).for_each(|_| change(&mut dict, &mut rng, names, &mut now_ms));
            let expected: Contents = dict
                .iter_with_deadlines()
                .map(|(entry, deadline_ms)| (entry.key().to_vec(), (number(entry.value()), deadline_ms)))
                .collect();
            assert!(dict.begin_saving() && dict.is_saved(), "seed {seed}: {}", dict.len());
            let mut shown = Contents::new();
            let each = rng.usize(1..600);
            while dict.save_some(&mut |name, value, deadline_ms| {
                let twice = shown.insert(name.to_vec(), (number(value), deadline_ms));
                assert!(twice.is_none(), "{} twice", name.escape_ascii());
            }) {
                (0..each).for_each(|_| change(&mut dict, &mut rng, names, &mut now_ms));
            }
            assert!(shown == expected, "seed {seed}");
            dict.stop_saving();
            assert!(!dict.is_saved() && !dict.clone().is_saved());
        }
    }

    #[test]
    fn few_are_shown_at_once() {
        let mut dict = Dict::new();
        dict.set(b"member", Value::Int(1));
        assert!(!dict.begin_saving() && !dict.is_saved());
        assert!(!dict.save_some(&mut |_, _, _| panic!("nothing was begun")));
    }
}
