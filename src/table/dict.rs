//! The elements of one collection: members, or fields with their values, some of them with deadlines.
//!
//! Up to [`SMALL_MAX`] elements stand in a plain hash table, whose growth is too short to be noticed; there a deadline
//! is kept in the element's entry. More of them are a [`Table`] of blocks, as databases are: it grows a block at a time
//! and finds what is due without looking at the rest.

use super::ahead::Sought;
use super::entry::{Entry, Stored};
use super::hash::Hasher;
use super::saving::{Saving, ShowElement};
use super::scan::Cursor;
use super::sweep::Swept;
use super::table::{NO_FIELDS, Table};
use super::whole::Whole;
use super::{Key, NEVER_MS};
use hashbrown::HashTable;
use std::sync::OnceLock;

/// Elements that are kept without blocks.
const SMALL_MAX: usize = 480;
/// Draws of buckets before those that are full are counted.
const SMALL_TRIES: usize = 32;
/// Draws before a random element gives up being uniform.
const RANDOM_TRIES: usize = 200;

pub struct Dict {
    form: Form,
    /// The latest moment at which a deadline was set: columns count from there.
    now_ms: u64,
    /// Elements keep their addresses.
    pinned: bool,
    /// What it had at a moment is shown in slices.
    saving: Option<Box<Saving>>,
}

enum Form {
    Small(Small),
    Large(Box<Table>),
}

struct Small {
    entries: HashTable<Whole>,
    entry_bytes: usize,
    with_deadline: usize,
    /// Not later than the earliest deadline.
    earliest_ms: u64,
}

// SAFETY: a dictionary owns what its entries point at, and nothing in them belongs to a thread.
unsafe impl Send for Dict {}

/// The elements of all collections are hashed alike, so that a collection can move between shards. The seed is drawn at
/// the first use: nobody can choose elements that collide.
fn hasher() -> &'static Hasher {
    static HASHER: OnceLock<Hasher> = OnceLock::new();
    HASHER.get_or_init(|| Hasher::new(fastrand::u64(..), 1))
}

/// The hash of an element, for [`Dict::sought`].
#[inline]
pub fn element_hash(member: &[u8]) -> u64 {
    hasher().hash(member)
}

impl Default for Dict {
    fn default() -> Dict {
        Dict::new()
    }
}

impl Dict {
    pub fn new() -> Dict {
        let small = Small { entries: HashTable::new(), entry_bytes: 0, with_deadline: 0, earliest_ms: NEVER_MS };
        Dict { form: Form::Small(small), now_ms: 0, pinned: false, saving: None }
    }

    /// Elements keep their addresses as long as they have values of one length, and a deadline or none: see
    /// [`Dict::add_pinned`]. One that has a deadline has it in its entry.
    pub fn pinned() -> Dict {
        Dict { pinned: true, ..Dict::new() }
    }

    /// Elements, dead ones that were not taken out yet included.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Small(small) => small.entries.len(),
            Form::Large(table) => table.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An element is about to change: who shows what there was may need it as it is.
    #[inline]
    fn save_first(&mut self, key: Key) {
        if let (Some(saving), Form::Large(table)) = (&mut self.saving, &self.form) {
            saving.before_change(key, || table.find(key).map(|slot| (table.entry(slot), table.deadline_ms(slot))));
        }
    }

    /// Slots in which elements are or could be.
    pub fn slots(&self) -> usize {
        match &self.form {
            Form::Small(small) => small.entries.num_buckets(),
            Form::Large(table) => table.shape().slots,
        }
    }

    /// Bytes of everything it points at.
    pub fn bytes(&self) -> usize {
        match &self.form {
            Form::Small(small) => small.entries.allocation_size() + small.entry_bytes,
            Form::Large(table) => size_of::<Table>() + table.bytes(),
        }
    }

    #[inline]
    pub fn get(&self, member: &[u8]) -> Option<Entry<'_>> {
        let key = hasher().key(member);
        match &self.form {
            Form::Small(small) => small.find(key).map(Whole::entry),
            Form::Large(table) => table.find(key).map(|slot| table.entry(slot)),
        }
    }

    /// What a search for an element will read, see [`ahead::prefetch`](super::ahead::prefetch); none where that is so little that
    /// it need not be asked for.
    #[inline]
    pub fn sought(&self, element_hash: u64) -> Option<Sought<'_>> {
        let Form::Large(table) = &self.form else { return None };
        Some(Sought { table, hash: element_hash, writes: false })
    }

    /// An element that keeps its address.
    #[inline]
    pub fn get_pinned(&self, member: &[u8]) -> Option<Whole> {
        debug_assert!(self.pinned);
        let key = hasher().key(member);
        match &self.form {
            Form::Small(small) => small.find(key),
            Form::Large(table) => table.find(key).and_then(|slot| table.whole(slot)),
        }
    }

    /// An element and its deadline, store milliseconds.
    pub fn get_with_deadline(&self, member: &[u8]) -> Option<(Entry<'_>, Option<u64>)> {
        match &self.form {
            Form::Small(_) => self.get(member).map(|entry| (entry, entry.far_deadline_ms())),
            Form::Large(table) => {
                table.find(hasher().key(member)).map(|slot| (table.entry(slot), table.deadline_ms(slot)))
            }
        }
    }

    /// Sets an element's value; its deadline, if it had one, stays. Returns whether it is new.
    pub fn set<'v>(&mut self, member: &[u8], value: impl Into<Stored<'v>>) -> bool {
        if let Form::Small(small) = &mut self.form {
            if small.entries.len() < SMALL_MAX {
                return small.set(hasher().key(member), value.into());
            }
            self.grow();
        }
        let key = hasher().key(member);
        self.save_first(key);
        let Form::Large(table) = &mut self.form else { unreachable!("it has grown") };
        match table.find(key) {
            Some(slot) => {
                table.set_content(slot, value.into());
                false
            }
            None => {
                table.insert(key, value, 0);
                true
            }
        }
    }

    /// Adds an element; returns whether it is new. One that is there is only read: its cache lines stay clean.
    pub fn add<'v>(&mut self, member: &[u8], value: impl Into<Stored<'v>>) -> bool {
        let key = hasher().key(member);
        if let Form::Small(small) = &mut self.form {
            if small.find(key).is_some() {
                return false;
            }
            if small.entries.len() < SMALL_MAX {
                small.insert_new(key, Whole::new(member, value.into(), 0));
                return true;
            }
            self.grow();
        }
        let Form::Large(table) = &mut self.form else { unreachable!("it has grown") };
        let is_new = table.find(key).is_none();
        if is_new {
            if let Some(saving) = &mut self.saving {
                saving.before_change(key, || None);
            }
            table.insert(key, value, 0);
        }
        is_new
    }

    /// Adds an element that keeps its address; returns it, and whether it is new.
    pub fn add_pinned<'v>(&mut self, member: &[u8], value: impl Into<Stored<'v>>) -> (Whole, bool) {
        if let Some(whole) = self.get_pinned(member) {
            return (whole, false);
        }
        let (key, whole) = (hasher().key(member), Whole::new(member, value.into(), 0));
        if let Form::Small(small) = &mut self.form {
            if small.entries.len() < SMALL_MAX {
                small.insert_new(key, whole);
                return (whole, true);
            }
            self.grow();
        }
        let Form::Large(table) = &mut self.form else { unreachable!("it has grown") };
        table.insert_whole(key.hash, whole);
        (whole, true)
    }

    #[cold]
    fn grow(&mut self) {
        let hasher = hasher();
        let table = if self.pinned { Table::pinned(hasher.clone()) } else { Table::new(hasher.clone(), NO_FIELDS) };
        let mut table = Box::new(table);
        if let Form::Small(small) = &mut self.form {
            for whole in small.entries.drain() {
                let entry = whole.entry();
                let (key, deadline_ms) = (hasher.key(entry.key()), entry.far_deadline_ms());
                let slot = if self.pinned {
                    table.insert_whole(key.hash, whole)
                } else {
                    let slot = table.insert(key, entry.content(), 0);
                    // SAFETY: drained, so that this is the only pointer to it.
                    unsafe { whole.free() };
                    slot
                };
                if deadline_ms.is_some() {
                    table.set_deadline(slot, deadline_ms, self.now_ms);
                }
            }
            small.entry_bytes = 0;
        }
        self.form = Form::Large(table);
    }

    /// Takes an element out; whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let key = hasher().key(member);
        self.save_first(key);
        match &mut self.form {
            Form::Small(small) => small.remove(key),
            Form::Large(table) => table.find(key).map(|slot| table.remove(slot)).is_some(),
        }
    }

    /// Sets or clears the deadline of an element that is there.
    pub fn set_deadline(&mut self, member: &[u8], deadline_ms: Option<u64>, now_ms: u64) {
        let key = hasher().key(member);
        self.now_ms = now_ms;
        self.save_first(key);
        match &mut self.form {
            Form::Small(small) => small.set_deadline(key, deadline_ms),
            Form::Large(table) => {
                if let Some(slot) = table.find(key) {
                    table.set_deadline(slot, deadline_ms, now_ms);
                }
            }
        }
    }

    pub fn with_deadline(&self) -> usize {
        match &self.form {
            Form::Small(small) => small.with_deadline,
            Form::Large(table) => table.with_deadline(),
        }
    }

    /// Not later than the earliest deadline; [`NEVER_MS`] where there is none.
    pub fn earliest_ms(&self) -> u64 {
        match &self.form {
            Form::Small(small) => small.earliest_ms,
            Form::Large(table) if table.with_deadline() == 0 => NEVER_MS,
            Form::Large(table) => table.next_due_hint_ms(),
        }
    }

    /// Elements whose deadline has passed.
    pub fn count_dead(&self, now_ms: u64) -> usize {
        match &self.form {
            Form::Small(small) if small.earliest_ms >= now_ms => 0,
            Form::Small(small) => small.iter().filter(|entry| is_before(entry, now_ms)).count(),
            Form::Large(table) => table.count_dead(now_ms),
        }
    }

    /// Elements whose deadline has passed.
    pub fn dead(&self, now_ms: u64) -> impl Iterator<Item = Entry<'_>> + '_ {
        let (small, large) = match &self.form {
            Form::Small(small) => (Some(small.iter().filter(move |entry| is_before(entry, now_ms))), None),
            Form::Large(table) => (None, Some(table.dead_entries(now_ms))),
        };
        small.into_iter().flatten().chain(large.into_iter().flatten())
    }

    /// Whether an element's deadline has not passed: found soon, unless nearly all have.
    pub fn any_lives(&self, now_ms: u64) -> bool {
        if self.with_deadline() < self.len() {
            return true;
        }
        match &self.form {
            Form::Small(small) => small.iter().any(|entry| !is_before(&entry, now_ms)),
            Form::Large(table) => {
                table.blocks().any(|block| block.full_slots().any(|slot| !block.is_due(slot, now_ms)))
            }
        }
    }

    /// Takes out at most `limit` elements whose deadlines are before `before_ms`, some of the earliest first, and shows
    /// each before its memory is given back.
    pub fn sweep(&mut self, before_ms: u64, now_ms: u64, limit: usize, mut each: impl FnMut(Entry, u64)) -> Swept {
        match &mut self.form {
            Form::Small(small) => small.sweep(before_ms, limit, each),
            Form::Large(table) => {
                let mut all = Swept::default();
                let mut saving = self.saving.as_deref_mut();
                let mut dead = |entry: Entry, at_ms: u64| {
                    if let Some(saving) = &mut saving {
                        saving.before_change(hasher().key(entry.key()), || Some((entry, Some(at_ms))));
                    }
                    each(entry, at_ms);
                };
                while all.deleted < limit && table.next_due_hint_ms() < before_ms {
                    let rest = limit - all.deleted;
                    let swept = table.sweep_earliest(before_ms, now_ms, rest, &mut dead);
                    all.deleted += swept.deleted;
                    all.bytes += swept.bytes;
                }
                all
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> + '_ {
        self.iter_with_deadlines().map(|(entry, _)| entry)
    }

    pub fn iter_with_deadlines(&self) -> impl Iterator<Item = (Entry<'_>, Option<u64>)> + '_ {
        let (small, large) = match &self.form {
            Form::Small(small) => (Some(small.iter().map(|entry| (entry, entry.far_deadline_ms()))), None),
            Form::Large(table) => (None, Some(table.entries())),
        };
        small.into_iter().flatten().chain(large.into_iter().flatten())
    }

    /// An element, chosen uniformly among those for whose deadlines `wanted` holds where these are not too few.
    pub fn random(
        &self,
        rng: &mut fastrand::Rng,
        wanted: impl Fn(Option<u64>) -> bool,
    ) -> Option<(Entry<'_>, Option<u64>)> {
        match &self.form {
            Form::Small(small) => {
                let alive = || small.iter().map(|entry| (entry, entry.far_deadline_ms()));
                let drawn = (0..SMALL_TRIES).find_map(|_| {
                    let bucket = rng.usize(..small.entries.num_buckets().max(1));
                    let entry = small.entries.get_bucket(bucket)?.entry();
                    Some((entry, entry.far_deadline_ms())).filter(|(_, deadline_ms)| wanted(*deadline_ms))
                });
                drawn.or_else(|| {
                    let count = alive().filter(|(_, deadline_ms)| wanted(*deadline_ms)).count();
                    let nth = (count > 0).then(|| rng.usize(..count))?;
                    alive().filter(|(_, deadline_ms)| wanted(*deadline_ms)).nth(nth)
                })
            }
            Form::Large(table) => {
                let wanted = |block: &super::block::Block, index: usize| wanted(block.deadline_ms(index));
                let slot = table.random(rng, RANDOM_TRIES, wanted).or_else(|| table.any(rng, wanted))?;
                Some((table.entry(slot), table.deadline_ms(slot)))
            }
        }
    }

    /// One call of a scan: shows about `count` elements, all of them where they are few, and returns where to go on, 0
    /// at the end. An element that stays is shown once; the cursor may be any number.
    pub fn scan(&self, cursor: u64, count: usize, mut each: impl FnMut(Entry, Option<u64>)) -> u64 {
        match &self.form {
            Form::Small(_) => {
                self.iter_with_deadlines().for_each(|(entry, deadline_ms)| each(entry, deadline_ms));
                0
            }
            Form::Large(table) => {
                let cursor = Cursor::from_u64(cursor).on_shard(0);
                let next = table.scan(cursor, count, |block, slot| each(block.entry(slot), block.deadline_ms(slot))).1;
                if next.shard > 0 { 0 } else { next.to_u64() }
            }
        }
    }

    /// What is there now is shown from now on, by [`Dict::save_some`], whatever becomes of it. Whether it is: where there
    /// are few elements, they can be shown at once.
    pub fn begin_saving(&mut self) -> bool {
        self.saving = matches!(self.form, Form::Large(_)).then(|| Box::new(Saving::new(self.len())));
        self.is_saved()
    }

    /// Shows some elements, each once, with their values and deadlines; whether there may be more.
    pub fn save_some(&mut self, each: &mut ShowElement) -> bool {
        match (&mut self.saving, &self.form) {
            (Some(saving), Form::Large(table)) => saving.show(table, each),
            _ => false,
        }
    }

    pub fn stop_saving(&mut self) {
        self.saving = None;
    }

    #[inline]
    pub fn is_saved(&self) -> bool {
        self.saving.is_some()
    }

    /// Gives back about `limit` elements of a collection that is not used any more; whether nothing is left.
    pub fn free_some(&mut self, limit: usize) -> bool {
        match &mut self.form {
            Form::Small(small) => {
                small.clear();
                true
            }
            Form::Large(table) => !table.dismantle(limit).1,
        }
    }
}

impl Clone for Dict {
    fn clone(&self) -> Dict {
        let mut copy = Dict { pinned: self.pinned, ..Dict::new() };
        for (entry, deadline_ms) in self.iter_with_deadlines() {
            copy.set(entry.key(), entry.content());
            if deadline_ms.is_some() {
                copy.set_deadline(entry.key(), deadline_ms, self.now_ms);
            }
        }
        copy
    }
}

fn is_before(entry: &Entry, at_ms: u64) -> bool {
    entry.far_deadline_ms().is_some_and(|deadline_ms| deadline_ms < at_ms)
}

impl Small {
    #[inline]
    fn find(&self, key: Key) -> Option<Whole> {
        self.entries.find(key.hash, |whole| whole.entry().key() == key.bytes).copied()
    }

    fn iter(&self) -> impl Iterator<Item = Entry<'_>> + '_ {
        self.entries.iter().map(|whole| whole.entry())
    }

    fn set(&mut self, key: Key, value: Stored) -> bool {
        let Some(place) = self.entries.find_mut(key.hash, |whole| whole.entry().key() == key.bytes) else {
            self.insert_new(key, Whole::new(key.bytes, value, 0));
            return true;
        };
        self.entry_bytes -= place.entry().bytes();
        // SAFETY: the old pointer is replaced.
        *place = unsafe { place.replace_value(value) };
        self.entry_bytes += place.entry().bytes();
        false
    }

    /// Adds an element that is not there.
    fn insert_new(&mut self, key: Key, whole: Whole) {
        self.entry_bytes += whole.entry().bytes();
        self.entries.insert_unique(key.hash, whole, |whole| hasher().hash(whole.entry().key()));
    }

    fn remove(&mut self, key: Key) -> bool {
        let found = self.entries.find_entry(key.hash, |whole| whole.entry().key() == key.bytes);
        found.is_ok_and(|place| {
            let whole = place.remove().0;
            if whole.entry().far_deadline_ms().is_some() {
                self.with_deadline -= 1;
                if self.with_deadline == 0 {
                    self.earliest_ms = NEVER_MS;
                }
            }
            self.entry_bytes -= whole.entry().bytes();
            // SAFETY: just taken out.
            unsafe { whole.free() };
            true
        })
    }

    fn set_deadline(&mut self, key: Key, deadline_ms: Option<u64>) {
        let Some(place) = self.entries.find_mut(key.hash, |whole| whole.entry().key() == key.bytes) else { return };
        self.with_deadline -= usize::from(place.entry().far_deadline_ms().is_some());
        self.with_deadline += usize::from(deadline_ms.is_some());
        self.entry_bytes -= place.entry().bytes();
        // SAFETY: the old pointer is replaced.
        *place = unsafe { place.with_far_deadline(deadline_ms) };
        self.entry_bytes += place.entry().bytes();
        self.earliest_ms = match deadline_ms {
            Some(deadline_ms) => self.earliest_ms.min(deadline_ms),
            None if self.with_deadline == 0 => NEVER_MS,
            None => self.earliest_ms,
        };
    }

    fn sweep(&mut self, before_ms: u64, limit: usize, mut each: impl FnMut(Entry, u64)) -> Swept {
        let mut swept = Swept::default();
        if self.earliest_ms >= before_ms {
            return swept;
        }
        for whole in self.entries.extract_if(|whole| is_before(&whole.entry(), before_ms)).take(limit) {
            let entry = whole.entry();
            each(entry, entry.far_deadline_ms().unwrap_or(before_ms));
            swept.deleted += 1;
            swept.bytes += entry.bytes();
            // SAFETY: just taken out.
            unsafe { whole.free() };
        }
        self.with_deadline -= swept.deleted;
        self.entry_bytes -= swept.bytes;
        self.earliest_ms = self.iter().filter_map(|entry| entry.far_deadline_ms()).min().unwrap_or(NEVER_MS);
        swept
    }

    fn clear(&mut self) {
        for whole in self.entries.drain() {
            // SAFETY: just taken out.
            unsafe { whole.free() };
        }
        (self.entry_bytes, self.with_deadline, self.earliest_ms) = (0, 0, NEVER_MS);
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Value;
    use std::collections::HashMap;

    #[test]
    fn elements_and_deadlines_are_as_in_a_map() {
        for seed in if cfg!(miri) { 1..2 } else { 0..8 } {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut dict, mut model) = (Dict::new(), HashMap::<Vec<u8>, (i64, Option<u64>)>::new());
            let names = [30u32, 600, 5000][seed as usize % 3];
            let mut now_ms = 1_000_000;
            for step in 0..if cfg!(miri) { 2_500 } else { 20_000 } {
                let member = format!("member{}", rng.u32(..names)).into_bytes();
                match rng.u32(..10) {
                    0 => {
                        let is_new = !model.contains_key(&member);
                        assert_eq!(dict.add(&member, Value::Int(step)), is_new);
                        model.entry(member).or_insert((step, None));
                    }
                    1..5 => {
                        let new = dict.set(&member, Value::Int(step));
                        let deadline_ms = model.get(&member).and_then(|(_, deadline_ms)| *deadline_ms);
                        assert_eq!(new, model.insert(member, (step, deadline_ms)).is_none());
                    }
                    5 => assert_eq!(dict.remove(&member), model.remove(&member).is_some()),
                    6 => {
                        let far = rng.u32(..30);
                        let deadline_ms = (rng.u32(..3) > 0).then(|| now_ms + rng.u64(1..100_000_000_000 >> far));
                        dict.set_deadline(&member, deadline_ms, now_ms);
                        if let Some((_, of_model)) = model.get_mut(&member) {
                            *of_model = deadline_ms;
                        }
                    }
                    7 if rng.u32(..50) == 0 => {
                        now_ms += rng.u64(..1000);
                        let is_dead = |deadline_ms: &Option<u64>| deadline_ms.is_some_and(|at_ms| at_ms < now_ms);
                        let dead = model.values().filter(|(_, deadline_ms)| is_dead(deadline_ms)).count();
                        assert_eq!(dict.count_dead(now_ms), dead);
                        let swept = dict.sweep(now_ms, now_ms, usize::MAX, |entry, _| {
                            let (_, deadline_ms) = model.remove(entry.key()).expect("it was there");
                            assert!(is_dead(&deadline_ms));
                        });
                        assert_eq!(swept.deleted, dead);
                    }
                    _ => {
                        let found = dict.get_with_deadline(&member);
                        let found = found.map(|(entry, deadline_ms)| (entry.value(), deadline_ms));
                        let expected =
                            model.get(&member).map(|(value, deadline_ms)| (Value::Int(*value), *deadline_ms));
                        assert_eq!(found, expected);
                    }
                }
                assert_eq!(dict.len(), model.len());
            }
            let earliest_ms = model.values().filter_map(|(_, deadline_ms)| *deadline_ms).min().unwrap_or(NEVER_MS);
            assert!(dict.earliest_ms() <= earliest_ms);
            let with_deadline = model.values().filter(|(_, deadline_ms)| deadline_ms.is_some()).count();
            assert_eq!(dict.with_deadline(), with_deadline);
            let copy = dict.clone();
            for (entry, deadline_ms) in copy.iter_with_deadlines() {
                assert_eq!(
                    model[entry.key()],
                    (
                        match entry.value() {
                            Value::Int(n) => n,
                            Value::Bytes(_) => 0,
                        },
                        deadline_ms
                    )
                );
            }
            assert_eq!(copy.len(), model.len());
            let mut shown = 0;
            let mut cursor = 0;
            loop {
                cursor = dict.scan(cursor, 10, |entry, _| shown += usize::from(model.contains_key(entry.key())));
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(shown, model.len());
            if let Some((entry, _)) = dict.random(&mut rng, |_| true) {
                assert!(model.contains_key(entry.key()));
            }
            while !dict.free_some(100) {}
        }
    }
}
