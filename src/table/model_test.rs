//! A table against a map: values around every limit, deadlines near and far, churn that leaves holes.

use super::block::{ENTRY_BYTES_MAX, Print};
use super::hash::spread;
use super::table::{NO_FIELDS, Slot};
use super::{Entry, Hasher, Kind, Stored, Table, Value};
use std::collections::HashMap;

const STEPS: u32 = if cfg!(miri) { 1_500 } else { 60_000 };
const BEGAN_MS: u64 = 1_000_000_000;
const DAY_MS: u64 = 24 * 3600 * 1000;

/// A value's bytes, whether it is a packed collection, and the deadline.
type Model = HashMap<Vec<u8>, (Vec<u8>, bool, Option<u64>)>;

struct World {
    table: Table,
    hasher: Hasher,
    model: Model,
    rng: fastrand::Rng,
    keys: u32,
    now_ms: u64,
    /// The value lengths of this phase.
    lens: fn(&mut fastrand::Rng) -> usize,
}

impl Table {
    /// Whether everything that is counted, and everything that is said of where something is, is so.
    pub fn check(&mut self) {
        let (mut len, mut with_deadline, mut block_bytes, mut whole_bytes, mut slots) = (0, 0, 0, 0, 0);
        for block in self.blocks() {
            block.check();
            len += block.len();
            with_deadline += block.with_deadline();
            block_bytes += block.column_bytes() + block.chunk_bytes();
            slots += block.slots();
            assert!(self.minima.get(block.id()) <= block.exact_minimum_ms(), "a minimum is never late");
            let (start, count) = self.aliases(block);
            assert!(self.directory[start..start + count].iter().all(|at| at == block));
            for slot in block.full_slots() {
                let entry = block.entry(slot);
                assert!(!self.pinned || block.whole(slot).is_some());
                whole_bytes += block.whole(slot).map_or(0, |whole| whole.entry().bytes());
                let hash = self.hasher.hash(entry.key());
                assert_eq!(self.block_at(spread(hash)), *block);
                assert_eq!(block.print(slot), Print::of(hash));
            }
        }
        assert_eq!((len, with_deadline, slots), (self.len, self.with_deadline, self.slots));
        assert_eq!((block_bytes, whole_bytes), (self.block_bytes, self.whole_bytes));
        assert_eq!(self.directory.len(), 1 << self.bits);
    }
}

/// Lengths as users have them, and around the limits of headers, heaps and forms.
const LENS: [fn(&mut fastrand::Rng) -> usize; 5] = [
    |rng| rng.usize(8..64),
    |rng| [0, 1, 2, 8, 255, 256, ENTRY_BYTES_MAX - 20 + rng.usize(..16), 4000][rng.usize(..8)],
    // Sizes that leave holes in which nothing fits.
    |rng| if rng.bool() { 60 } else { 62 + 2 * rng.usize(..4) },
    |rng| 200 + rng.usize(..250),
    |_| 32,
];

impl World {
    fn new(seed: u64) -> World {
        let hasher = Hasher::new(seed, 1);
        let mut rng = fastrand::Rng::with_seed(seed);
        let keys = [50, 2_000, 20_000][rng.usize(..3)];
        let table = Table::new(hasher.clone(), NO_FIELDS);
        World { table, hasher, model: Model::new(), keys, rng, now_ms: BEGAN_MS, lens: LENS[0] }
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.rng.u32(..self.keys);
        // Some keys are long, one in a hundred longer than any heap takes.
        match number % 100 {
            0 => format!("{number:0600}"),
            1..5 => format!("{number:0260}"),
            _ => format!("key:{number}"),
        }
        .into_bytes()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = (self.lens)(&mut self.rng);
        (0..len).map(|_| self.rng.u8(..)).collect()
    }

    fn find(&self, key: &[u8]) -> Option<Slot> {
        self.table.find(self.hasher.key(key))
    }

    fn set(&mut self) {
        let (key, bytes, packed) = (self.key(), self.bytes(), self.rng.u8(..8) == 0);
        let stored =
            if packed { Stored::Packed(Kind::Hash, false, &bytes) } else { Stored::String(Value::Bytes(&bytes)) };
        let deadline_ms = match self.find(&key) {
            Some(slot) => {
                let slot = self.table.set_value(slot, stored, self.now_ms);
                assert_eq!(self.table.entry(slot).key(), key);
                self.table.deadline_ms(slot)
            }
            None => {
                let slot = self.table.insert(self.hasher.key(&key), stored, 7);
                assert_eq!(self.table.entry(slot).key(), key);
                None
            }
        };
        self.model.insert(key, (bytes, packed, deadline_ms));
    }

    fn change(&mut self) {
        let key = self.key();
        let Some(slot) = self.find(&key) else { return };
        let more = self.bytes();
        let (bytes, packed, _) = self.model.get_mut(&key).expect("it is in both");
        let slot = if *packed {
            let start = self.rng.usize(..=bytes.len());
            let end = start + self.rng.usize(..=bytes.len() - start);
            bytes.splice(start..end, more.iter().copied());
            self.table.splice(slot, start..end, &more)
        } else {
            bytes.resize(more.len(), 0);
            self.table.resize_value(slot, more.len())
        };
        assert_eq!(self.table.entry(slot).key(), key);
    }

    fn set_deadline(&mut self) {
        let key = self.key();
        let Some(slot) = self.find(&key) else { return };
        let deadline_ms = match self.rng.u8(..4) {
            0 => None,
            1 => Some(self.now_ms + self.rng.u64(..400 * DAY_MS)),
            _ => Some(self.now_ms + self.rng.u64(..100_000)),
        };
        let slot = self.table.set_deadline(slot, deadline_ms, self.now_ms);
        assert_eq!(self.table.deadline_ms(slot), deadline_ms);
        self.model.get_mut(&key).expect("it is in both").2 = deadline_ms;
    }

    fn remove(&mut self) {
        let key = self.key();
        if let Some(slot) = self.find(&key) {
            self.table.remove(slot);
            self.model.remove(&key);
        }
    }

    fn sweep(&mut self) {
        self.now_ms += self.rng.u64(..20_000);
        let before = self.model.len();
        let dead = |deadline_ms: &Option<u64>, now_ms| deadline_ms.is_some_and(|at_ms| at_ms < now_ms);
        while self.table.next_due_hint_ms() < self.now_ms {
            let model = &mut self.model;
            let mut bury = |entry: Entry, _: u64| drop(model.remove(entry.key()).expect("it was there"));
            self.table.sweep_earliest(self.now_ms, self.now_ms, 50, &mut bury);
        }
        assert!(self.model.values().all(|(_, _, deadline_ms)| !dead(deadline_ms, self.now_ms)));
        assert!(self.model.len() <= before);
    }

    fn check(&mut self) {
        self.table.check();
        assert_eq!(self.table.len(), self.model.len());
        for (entry, deadline_ms) in self.table.entries() {
            let (bytes, packed, of_model) = &self.model[entry.key()];
            assert_eq!((entry.packed().is_some(), deadline_ms), (*packed, *of_model));
            let stored = if *packed { entry.packed() } else { Some(entry.stored()) };
            assert_eq!(stored, Some(&bytes[..]));
            assert_eq!(entry.clock(), 7);
        }
    }
}

fn world(seed: u64) {
    let mut world = World::new(seed);
    for step in 0..STEPS {
        if step % (STEPS / 12) == 0 {
            world.lens = LENS[world.rng.usize(..LENS.len())];
            world.check();
        }
        // By turns more comes than goes, and the other way round.
        let growing = (step / (STEPS / 6)).is_multiple_of(2);
        match world.rng.u8(..16) {
            0..8 if growing => world.set(),
            0..8 => world.remove(),
            8..11 => world.set(),
            11..13 => world.change(),
            13..15 => world.set_deadline(),
            _ if world.rng.u8(..50) == 0 => world.sweep(),
            _ => world.set_deadline(),
        }
    }
    world.check();
    for key in world.model.keys().cloned().collect::<Vec<_>>() {
        let slot = world.find(&key).expect("it is there");
        world.table.remove(slot);
    }
    world.model.clear();
    world.check();
    assert_eq!(world.table.shape().blocks, 1);
}

#[test]
fn a_table_is_a_map() {
    let runs = if cfg!(miri) { 1 } else { 12 };
    (0..runs).for_each(world);
}

/// A value that grows a million times in all, by turns of a few keys beside others that stay.
#[test]
#[cfg_attr(miri, ignore = "many steps of what the other test does")]
fn growing_overwrites_leave_no_holes_behind() {
    let hasher = Hasher::new(3, 1);
    let mut table = Table::new(hasher.clone(), NO_FIELDS);
    for i in 0..2_000u32 {
        table.insert(hasher.key(&i.to_le_bytes()), Value::Bytes(&[1; 40]), 0);
    }
    let bytes = table.bytes();
    for round in 0..1_000 {
        for i in 0..50u32 {
            let slot = table.find(hasher.key(&(i * 31).to_le_bytes())).expect("it is there");
            table.set_value(slot, Value::Bytes(&vec![2; 1 + round % 450]), 0);
        }
    }
    table.check();
    assert!(table.bytes() < bytes + bytes / 2, "{} bytes, {bytes} before", table.bytes());
}

#[test]
fn shorter_values_give_memory_back() {
    let hasher = Hasher::new(9, 1);
    let mut table = Table::new(hasher.clone(), NO_FIELDS);
    let count = if cfg!(miri) { 300 } else { 5_000u32 };
    for i in 0..count {
        table.insert(hasher.key(&i.to_le_bytes()), Value::Bytes(&[1; 400]), 0);
    }
    let bytes = table.bytes();
    for i in 0..count {
        let slot = table.find(hasher.key(&i.to_le_bytes())).expect("it is there");
        let slot = table.set_value(slot, Value::Bytes(&[2; 10]), 0);
        assert_eq!(table.entry(slot).key(), i.to_le_bytes());
    }
    table.check();
    assert!(table.bytes() < bytes / 5, "{} bytes of {bytes}", table.bytes());
}

/// Every second key goes: the memory of the others is no more than a table of them would take.
#[test]
fn what_is_left_of_many_takes_what_it_would_have_taken() {
    let hasher = Hasher::new(5, 1);
    let count = if cfg!(miri) { 2_000 } else { 100_000u32 };
    let mut tables = [1, 2].map(|every| {
        let mut table = Table::new(hasher.clone(), NO_FIELDS);
        for i in (0..count).step_by(every) {
            table.insert(hasher.key(&i.to_le_bytes()), Value::Bytes(&[1; 40]), 0);
        }
        table
    });
    for i in (0..count).filter(|i| i % 2 == 1) {
        let slot = tables[0].find(hasher.key(&i.to_le_bytes())).expect("it is there");
        tables[0].remove(slot);
    }
    tables[0].check();
    let [left, small] = tables.map(|table| table.bytes());
    assert!(left < small + small * 7 / 10, "{left} bytes are left, {small} would do");
}

#[test]
fn pinned_entries_stay_where_they_are() {
    let hasher = Hasher::new(7, 1);
    let mut table = Table::pinned(hasher.clone());
    let mut addresses = HashMap::new();
    let count = if cfg!(miri) { 1_200 } else { 5_000u32 };
    for i in 0..count {
        let slot = table.insert(hasher.key(&i.to_le_bytes()), Value::Int(i.into()), 0);
        addresses.insert(i, table.whole(slot));
    }
    for i in (0..count).filter(|i| i % 3 > 0) {
        let slot = table.find(hasher.key(&i.to_le_bytes())).expect("it is there");
        table.remove(slot);
    }
    for i in (0..count).filter(|i| i % 3 == 0) {
        let slot = table.find(hasher.key(&i.to_le_bytes())).expect("it is there");
        let slot = table.set_value(slot, Value::Int(-1), 0);
        assert_eq!(table.whole(slot), addresses[&i]);
        assert_eq!(table.entry(slot).value(), Value::Int(-1));
    }
    table.check();
}
