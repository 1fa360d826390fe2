//! Strings so large that they are not copied on their way from one key to another.

use super::entry::{Entry, Plan, STUB_BYTES, Stored, Value, write_stub};
use super::table::{Slot, Table};
use super::whole::Whole;
use smallvec::SmallVec;

/// A large string without a key, or rather with that of somebody else in front of it.
pub struct Large(Whole);

// SAFETY: nobody else points at the allocation.
unsafe impl Send for Large {}

impl Large {
    /// A copy of an entry's value, where that is a large string.
    pub fn copy_of(entry: Entry) -> Option<Large> {
        let plan = entry.plan();
        let whole = || {
            Whole::planned(Plan { far: None, spare: 0, ..plan }, entry, |old, to| {
                // SAFETY: there is room for the value, as planned.
                unsafe { to.copy_from_nonoverlapping(old.value_at(), plan.value_len) }
            })
        };
        plan.is_large_string().then(|| Large(whole()))
    }

    pub fn bytes(&self) -> &[u8] {
        self.0.entry().stored()
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        // SAFETY: nobody else owns it.
        unsafe { self.0.free() }
    }
}

impl Clone for Large {
    fn clone(&self) -> Large {
        Large::copy_of(self.0.entry()).expect("a large string")
    }
}

impl Table {
    /// Takes a large string out of an entry, which has an empty one from now on.
    pub fn take_large(&mut self, slot: Slot) -> Option<Large> {
        let entry = self.entry(slot);
        let whole = slot.block.whole(slot.index()).filter(|_| entry.plan().is_large_string())?;
        let nothing = Whole::planned(entry.plan().with_value(&Stored::String(Value::Bytes(b""))), entry, |_, _| ());
        self.change_whole(slot, whole, |_| nothing);
        Some(Large(whole))
    }

    /// Puts a large string in the place of another string. The entry keeps its deadline and its clock.
    pub fn put_large(&mut self, slot: Slot, large: Large) -> Slot {
        let entry = self.entry(slot);
        let key: SmallVec<[u8; 256]> = entry.key().into();
        let plan = large.0.entry().plan().with_key_of(entry.plan());
        // SAFETY: the pointer that it had is forgotten, and freed by nobody else.
        let whole = unsafe { std::mem::ManuallyDrop::new(large).0.relaid(&key, plan) };
        let (mut block, index) = (slot.block, slot.index());
        if let Some(old) = block.whole(index) {
            // SAFETY: `change_whole` forgets it.
            self.change_whole(slot, old, |old| unsafe {
                old.free();
                whole
            });
            return slot;
        }
        self.whole_bytes += whole.entry().bytes();
        block.leave_bytes(block.place(index), block.bytes_in_heap(index) - STUB_BYTES);
        // SAFETY: nothing in a heap is shorter than a stub.
        unsafe { write_stub(block.in_heap(index), whole.address()) };
        self.settle(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::hash::{Hasher, Key};
    use crate::table::table::NO_FIELDS;

    const LARGE: usize = (1 << 20) + 9;

    fn value(of: u8) -> Vec<u8> {
        (0..LARGE).map(|index| (index % 251) as u8 ^ of).collect()
    }

    #[test]
    fn a_large_string_goes_from_key_to_key_and_is_the_same() {
        let mut table = Table::new(Hasher::new(1, 1), NO_FIELDS);
        let keys: Vec<Vec<u8>> = [1, 30, 300, 5_000, 2].iter().map(|len| vec![b'k'; *len]).collect();
        let all = value(7);
        let hasher = Hasher::new(1, 1);
        fn key<'a>(hasher: &Hasher, bytes: &'a [u8]) -> Key<'a> {
            hasher.key(bytes)
        }
        table.insert(key(&hasher, &keys[0]), Value::Bytes(&all), 5);
        let (mut from, mut deadline_ms) = (0, None);
        for to in [1, 2, 3, 4, 0] {
            let slot = table.find(key(&hasher, &keys[from])).expect("a key");
            assert_eq!((table.entry(slot).value(), table.deadline_ms(slot)), (Value::Bytes(&all), deadline_ms));
            let at = table.entry(slot).value_at();
            let large = table.take_large(slot).expect("a large string");
            assert_eq!(table.entry(slot).value(), Value::Bytes(b""));
            table.remove(slot);
            let mut slot = table.insert(key(&hasher, &keys[to]), Value::Bytes(b""), to as u32);
            deadline_ms = Some(u64::MAX / 2).filter(|_| to % 2 == 0);
            slot = table.set_deadline(slot, deadline_ms, 1);
            let slot = table.put_large(slot, large);
            let entry = table.entry(slot);
            assert_eq!((entry.key(), entry.clock()), (&keys[to][..], to as u32));
            let moved_by = (entry.value_at() as usize).abs_diff(at as usize);
            assert!(moved_by < 10_000, "the value was copied");
            from = to;
        }
        assert!(table.bytes() >= LARGE);
        let slot = table.find(key(&hasher, &keys[from])).expect("a key");
        drop(Large::copy_of(table.entry(slot)).expect("a large string").clone());
        table.remove(slot);
        assert!(table.bytes() < LARGE, "the books are not right");
    }

    #[test]
    fn a_large_string_grows_into_what_the_allocator_gives_anyway() {
        let mut table = Table::new(Hasher::new(1, 1), NO_FIELDS);
        let hasher = Hasher::new(1, 1);
        let key = hasher.key(b"key");
        let slot = table.insert(key, Value::Bytes(&value(1)), 5);
        let at = table.entry(slot).value_at();
        let slot = table.resize_value(slot, LARGE + 1_000);
        assert_eq!(table.entry(slot).value_at(), at);
        // Another value that fits takes its place.
        let slot = table.set_value(slot, Value::Bytes(&value(2)), 1);
        assert_eq!((table.entry(slot).value_at(), table.entry(slot).value()), (at, Value::Bytes(&value(2))));
        let slot = table.set_value(slot, Value::Bytes(b"small"), 1);
        assert!(table.bytes() < LARGE);
        assert_eq!(table.entry(slot).value(), Value::Bytes(b"small"));
    }
}
