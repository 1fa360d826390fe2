//! Consumer groups: how far a group has read, and what was delivered to whom without having been acknowledged.

use super::id::Id;
use super::log::Log;
use super::map_bytes;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};

/// The groups of a stream, by name.
#[derive(Debug, Default)]
pub struct Groups {
    by_name: BTreeMap<Box<[u8]>, Group>,
    /// Of all groups and their names.
    bytes: usize,
}

#[derive(Clone, Debug)]
pub struct Group {
    last_delivered: Id,
    /// How many entries of the stream, counted from the first ever, are behind `last_delivered`; none where it is not
    /// known.
    entries_read: Option<i64>,
    /// What was delivered and not acknowledged.
    pending: BTreeMap<Id, Pending>,
    consumers: Slab<Consumer>,
    /// The consumers in the order of their names.
    by_name: Vec<ConsumerKey>,
    /// Of all consumers.
    name_bytes: usize,
}

/// A consumer within its group.
pub type ConsumerKey = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub consumer: ConsumerKey,
    /// Store time of the last delivery.
    pub delivered_ms: i64,
    /// How often it was delivered.
    pub deliveries: u64,
}

#[derive(Clone, Debug)]
pub struct Consumer {
    name: Box<[u8]>,
    /// Store time at which it last asked for something.
    pub seen_ms: i64,
    /// Store time at which it last got something.
    pub active_ms: Option<i64>,
    pending: BTreeSet<Id>,
}

impl Groups {
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Memory behind it.
    pub fn bytes(&self) -> usize {
        self.bytes + map_bytes::<Box<[u8]>, Group>(self.by_name.len())
    }

    pub fn get(&self, name: &[u8]) -> Option<&Group> {
        self.by_name.get(name)
    }

    /// In the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.by_name.iter().map(|(name, group)| (&**name, group))
    }

    /// Changes a group; none where there is no such group.
    pub fn change<R>(&mut self, name: &[u8], change: impl FnOnce(&mut Group) -> R) -> Option<R> {
        let group = self.by_name.get_mut(name)?;
        let before = group.bytes();
        let result = change(group);
        self.bytes = self.bytes - before + group.bytes();
        Some(result)
    }

    /// Whether there was none of this name.
    pub fn create(&mut self, name: &[u8], last_delivered: Id, entries_read: Option<i64>) -> bool {
        if self.by_name.contains_key(name) {
            return false;
        }
        let group = Group::new(last_delivered, entries_read);
        self.bytes += name.len() + group.bytes();
        self.by_name.insert(name.into(), group);
        true
    }

    /// Whether there was one.
    pub fn destroy(&mut self, name: &[u8]) -> bool {
        let Some(group) = self.by_name.remove(name) else { return false };
        self.bytes -= name.len() + group.bytes();
        true
    }

    /// Whether a group has yet to be delivered an entry, or to acknowledge it.
    pub fn refer_to(&self, id: Id) -> bool {
        self.by_name.values().any(|group| group.last_delivered < id || group.pending.contains_key(&id))
    }

    /// An entry is pending in no group any more; whether it was in one.
    pub fn forget(&mut self, id: Id, released: &mut Released) -> bool {
        let mut was_pending = false;
        for (name, group) in &mut self.by_name {
            let before = group.bytes();
            if group.acknowledge(id) {
                released.add(name, id);
                was_pending = true;
            }
            self.bytes = self.bytes - before + group.bytes();
        }
        was_pending
    }

    /// Gives back about `budget` elements of what groups hold; whether nothing is left.
    pub fn free_some(&mut self, budget: &mut usize) -> bool {
        while let Some(mut first) = self.by_name.first_entry() {
            if !first.get_mut().free_some(budget) {
                return false;
            }
            first.remove();
        }
        true
    }
}

/// Entries that are not pending any more, by the names of their groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released(BTreeMap<Box<[u8]>, Vec<Id>>);

impl Released {
    pub fn add(&mut self, group: &[u8], id: Id) {
        match self.0.get_mut(group) {
            Some(ids) => ids.push(id),
            None => drop(self.0.insert(group.into(), vec![id])),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[Id])> {
        self.0.iter().map(|(group, ids)| (&**group, &**ids))
    }
}

impl Clone for Groups {
    fn clone(&self) -> Groups {
        let by_name = self.by_name.clone();
        // A copy has no room to spare.
        let bytes = by_name.iter().map(|(name, group)| name.len() + group.bytes()).sum();
        Groups { by_name, bytes }
    }
}

impl Group {
    fn new(last_delivered: Id, entries_read: Option<i64>) -> Group {
        Group {
            last_delivered,
            entries_read,
            pending: BTreeMap::new(),
            consumers: Slab::new(),
            by_name: Vec::new(),
            name_bytes: 0,
        }
    }

    /// Memory behind it.
    fn bytes(&self) -> usize {
        let of_pending = map_bytes::<Id, Pending>(self.pending.len()) + map_bytes::<Id, ()>(self.pending.len());
        let of_consumers = self.consumers.capacity() * size_of::<Consumer>();
        of_pending + of_consumers + self.by_name.capacity() * size_of::<ConsumerKey>() + self.name_bytes
    }

    pub fn last_delivered(&self) -> Id {
        self.last_delivered
    }

    pub fn entries_read(&self) -> Option<i64> {
        self.entries_read
    }

    pub fn set_position(&mut self, last_delivered: Id, entries_read: Option<i64>) {
        self.last_delivered = last_delivered;
        self.entries_read = entries_read;
    }

    /// Moves it forward without a word on how many entries were read.
    pub fn raise_last_delivered(&mut self, id: Id) {
        self.last_delivered = self.last_delivered.max(id);
    }

    /// An entry is delivered. How many were read by then is counted, while nothing is missing ahead, or told by where
    /// the entry stands.
    pub fn advance(&mut self, log: &Log, id: Id) {
        if id <= self.last_delivered {
            return;
        }
        let follows = self.last_delivered >= log.first_id() && !log.has_gaps_from(self.last_delivered);
        match &mut self.entries_read {
            Some(read) if follows => *read = read.wrapping_add(1),
            read if log.entries_added() != 0 => *read = log.entries_added_up_to(id),
            _ => {}
        }
        self.last_delivered = id;
    }

    /// How many entries are still to be delivered; none where it is not known.
    pub fn lag(&self, log: &Log) -> Option<i64> {
        if log.entries_added() == 0 || log.is_empty() {
            return Some(0);
        }
        if self.last_delivered < log.first_id() && log.is_whole() {
            return Some(log.len() as i64);
        }
        let read = match self.entries_read {
            Some(read) if !log.has_gaps_from(self.last_delivered) => Some(read),
            _ => log.entries_added_up_to(self.last_delivered),
        };
        read.map(|read| log.entries_added().wrapping_sub(read))
    }

    pub fn consumer_count(&self) -> usize {
        self.by_name.len()
    }

    /// In the order of their names.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = (ConsumerKey, &Consumer)> + Clone {
        self.by_name.iter().map(|key| (*key, &self.consumers[*key]))
    }

    pub fn find_consumer(&self, name: &[u8]) -> Option<ConsumerKey> {
        self.position(name).ok().map(|at| self.by_name[at])
    }

    pub fn consumer(&self, key: ConsumerKey) -> &Consumer {
        &self.consumers[key]
    }

    pub fn consumer_mut(&mut self, key: ConsumerKey) -> &mut Consumer {
        &mut self.consumers[key]
    }

    /// A new consumer; none where there is one of this name.
    pub fn create_consumer(&mut self, name: &[u8], now_ms: i64) -> Option<ConsumerKey> {
        let at = self.position(name).err()?;
        Some(self.insert_consumer(at, name, now_ms))
    }

    fn insert_consumer(&mut self, at: usize, name: &[u8], now_ms: i64) -> ConsumerKey {
        let consumer = Consumer { name: name.into(), seen_ms: now_ms, active_ms: None, pending: BTreeSet::new() };
        let key = self.consumers.insert(consumer);
        self.by_name.insert(at, key);
        self.name_bytes += name.len();
        key
    }

    /// The consumer of this name, which has been seen now, and whether it is new.
    pub fn find_or_create_consumer(&mut self, name: &[u8], now_ms: i64) -> (ConsumerKey, bool) {
        match self.position(name) {
            Ok(at) => {
                let key = self.by_name[at];
                self.consumers[key].seen_ms = now_ms;
                (key, false)
            }
            Err(at) => (self.insert_consumer(at, name, now_ms), true),
        }
    }

    /// Deletes a consumer and what is pending with it, and says how much that was; none where there is no such consumer.
    pub fn delete_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let at = self.position(name).ok()?;
        let consumer = self.consumers.remove(self.by_name.remove(at));
        for id in &consumer.pending {
            self.pending.remove(id);
        }
        self.name_bytes -= name.len();
        Some(consumer.pending.len())
    }

    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    pub fn pending(&self, id: Id) -> Option<Pending> {
        self.pending.get(&id).copied()
    }

    /// The first and the last id that is pending.
    pub fn pending_ends(&self) -> Option<(Id, Id)> {
        Some((*self.pending.first_key_value()?.0, *self.pending.last_key_value()?.0))
    }

    /// What is pending from an id on, with whomever.
    pub fn pending_from(&self, start: Id) -> impl Iterator<Item = (Id, Pending)> + Clone {
        self.pending.range(start..).map(|(id, pending)| (*id, *pending))
    }

    /// What is pending from an id on with one consumer.
    pub fn pending_with(&self, consumer: ConsumerKey, start: Id) -> impl Iterator<Item = (Id, Pending)> + Clone {
        self.consumers[consumer].pending.range(start..).map(|id| (*id, self.pending[id]))
    }

    /// Makes an entry pending, with another consumer than before where need be.
    pub fn assign(&mut self, id: Id, pending: Pending) {
        let before = self.pending.insert(id, pending);
        match before {
            Some(before) if before.consumer == pending.consumer => return,
            Some(before) => {
                self.consumers[before.consumer].pending.remove(&id);
            }
            None => {}
        }
        self.consumers[pending.consumer].pending.insert(id);
    }

    /// An entry is pending no more; whether it was.
    pub fn acknowledge(&mut self, id: Id) -> bool {
        match self.pending.remove(&id) {
            Some(pending) => self.consumers[pending.consumer].pending.remove(&id),
            None => false,
        }
    }

    fn position(&self, name: &[u8]) -> Result<usize, usize> {
        self.by_name.binary_search_by(|key| (*self.consumers[*key].name).cmp(name))
    }

    fn free_some(&mut self, budget: &mut usize) -> bool {
        while *budget > 0 {
            if self.pending.pop_first().is_some() {
                *budget -= 1;
                continue;
            }
            let Some(key) = self.by_name.last() else { return true };
            if self.consumers[*key].pending.pop_first().is_none() {
                self.consumers.remove(*key);
                self.by_name.pop();
            }
            *budget -= 1;
        }
        false
    }
}

impl Consumer {
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }
}
