//! Deaths that are to be written to a stream, because the policy of the key wants it.
//!
//! A key that has died is taken out where it is found, by access or by the cycle, and its death stands in a queue from
//! then on. The shard writes from there, in the order in which keys have died: the journal is told that the key is gone
//! in the same transaction in which the stream gets its entry. Until then the log has the key, so that after a crash it
//! dies again.
//!
//! Only where a command writes to the key before that is the journal told at once, since the new value comes behind the
//! death. Then the log has to have the death itself ([`News::Noted`]) until its entry is written. So does a snapshot, in
//! which the key is not any more.

use super::change::{Change, Event};
use super::effects::Effects;
use super::nodes::{Nodes, Owned};
use super::policies::{Dying, Policies};
use super::stale::Stale;
use super::swapped;
use crate::clock::Now;
use crate::config::DeathStream;
use crate::table::Hasher;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// A key has died whose policy writes that down.
pub struct Death {
    /// No other death has this number, of any shard or run of the server.
    pub number: u64,
    /// A log or a snapshot may have it: it has to be said there when it is written.
    pub is_noted: bool,
    pub db: usize,
    pub key: Box<[u8]>,
    pub hash: u64,
    /// Store milliseconds.
    pub deadline_ms: u64,
    /// How long after its deadline it was deleted.
    pub lag_us: u64,
    pub to: Arc<DeathStream>,
    pub value: LastValue,
}

/// What was under a key when it died.
pub enum LastValue {
    /// Nobody wants to know.
    Unwanted,
    Kept(Owned),
    /// It had so many bytes, more than are written.
    TooLong(usize),
    /// The type and the value as the entry has them: a log or a snapshot had the death.
    Shown(Box<str>, Vec<u8>),
}

/// What the journal has to be told of deaths that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The journal was told that the key is gone: now it has to have the death.
    Noted(u64),
    /// It is not going to be written.
    Dropped(u64),
}

/// A death that is written now.
pub struct Taken {
    pub death: Death,
    /// The journal was not told that the key is gone.
    pub is_untold: bool,
}

/// While this much waits to be written the cycle deletes nothing, nor does reading, and what is dead is hidden all the same.
/// (Writing over it does, without keeping what it was.)
const WAITING_MAX: usize = 4096;
const WAITING_BYTES_MAX: usize = 16 << 20;
/// One slice of the cycle finds some more, of which no value is dropped.
const KEPT_BYTES_MAX: usize = 2 * WAITING_BYTES_MAX;

pub struct Deaths {
    waiting: VecDeque<Death>,
    /// Bytes of their values.
    bytes: usize,
    /// The numbers of those among them of which the journal was not told, by database and hash.
    untold: HashMap<(usize, u64), u64, ahash::RandomState>,
    news: Vec<News>,
    /// The number of the next.
    next: u64,
    /// No longer value is written.
    pub value_bytes_max: usize,
}

impl LastValue {
    pub fn bytes(&self) -> usize {
        match self {
            LastValue::Kept(value) => value.bytes(),
            LastValue::Shown(_, bytes) => bytes.len(),
            LastValue::Unwanted | LastValue::TooLong(_) => 0,
        }
    }
}

impl Default for Deaths {
    fn default() -> Deaths {
        Deaths {
            waiting: VecDeque::new(),
            bytes: 0,
            untold: HashMap::default(),
            news: Vec::new(),
            // It counts on from somewhere else each time.
            next: fastrand::u64(..),
            value_bytes_max: 0,
        }
    }
}

impl Deaths {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of the values that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Those of a database are not to be written any more.
    pub fn forget(&mut self, db: usize, is_journaled: bool) {
        self.drop_those(|death| death.db == db, is_journaled);
        self.untold.retain(|(of, _), _| *of != db);
    }

    /// Those are not written of which the journal was not told.
    pub fn forget_untold(&mut self, is_journaled: bool) {
        let untold: BTreeSet<u64> = self.untold.drain().map(|(_, number)| number).collect();
        self.drop_those(|death| untold.contains(&death.number), is_journaled);
    }

    fn drop_those(&mut self, is_dropped: impl Fn(&Death) -> bool, is_journaled: bool) {
        let noted = self.waiting.iter().filter(|death| is_dropped(death) && death.is_noted && is_journaled);
        self.news.extend(noted.map(|death| News::Dropped(death.number)));
        self.waiting.retain(|death| !is_dropped(death));
        self.bytes = self.waiting.iter().map(|death| death.value.bytes()).sum();
    }

    /// Two databases change places.
    pub fn swap(&mut self, a: usize, b: usize, is_journaled: bool) {
        let other = swapped(a, b);
        for death in &mut self.waiting {
            let before = death.db;
            death.db = other(before);
            if death.is_noted && is_journaled && death.db != before {
                self.news.push(News::Noted(death.number));
            }
        }
        self.untold = self.untold.drain().map(|((db, hash), number)| ((other(db), hash), number)).collect();
    }

    /// Of so many keys as many as may die at once, if the values of all were kept and as long as they may be.
    pub fn most_at_once(&self, keys: usize) -> usize {
        let room = KEPT_BYTES_MAX.saturating_sub(self.bytes);
        keys.min((room / self.value_bytes_max.max(1)).max(1))
    }

    /// Whether so much waits that the cycle has to wait, too.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX || self.bytes >= WAITING_BYTES_MAX
    }

    /// The first of those that wait, at the most so many, and no more once their values have so many bytes.
    pub fn first(&self, most: usize, most_bytes: usize) -> impl Iterator<Item = &Death> {
        let mut bytes = 0;
        self.waiting.iter().take(most).take_while(move |death| {
            let goes_on = bytes < most_bytes;
            bytes += death.value.bytes();
            goes_on
        })
    }

    /// Those of these that still wait. They were the first.
    pub fn these(&self, numbers: &[u64]) -> impl Iterator<Item = &Death> {
        let mut numbers = numbers.iter();
        self.waiting.iter().take_while(move |death| numbers.any(|number| *number == death.number))
    }

    /// Takes those of these that still wait. They were the first.
    pub fn take(&mut self, numbers: &[u64]) -> Vec<Taken> {
        let mut taken = Vec::new();
        for number in numbers {
            if self.waiting.front().is_none_or(|death| death.number != *number) {
                continue;
            }
            let Some(death) = self.waiting.pop_front() else { break };
            self.bytes -= death.value.bytes();
            let name = (death.db, death.hash);
            let is_untold = self.untold.get(&name) == Some(number);
            if is_untold {
                self.untold.remove(&name);
            }
            taken.push(Taken { death, is_untold });
        }
        taken
    }

    fn push(&mut self, mut death: Death, is_journaled: bool) {
        death.number = self.next;
        self.next = self.next.wrapping_add(1);
        if is_journaled {
            self.untold.insert((death.db, death.hash), death.number);
        }
        self.bytes += death.value.bytes();
        self.waiting.push_back(death);
    }

    /// A log or a snapshot had this one, which waits again.
    pub fn put_back(&mut self, death: Death) {
        if !self.waiting.iter().any(|waiting| waiting.number == death.number) {
            self.bytes += death.value.bytes();
            self.waiting.push_back(death);
        }
    }

    /// All that wait, which somebody notes down.
    pub fn note_all(&mut self) -> impl Iterator<Item = &Death> {
        self.waiting.iter_mut().for_each(|death| death.is_noted = true);
        self.waiting.iter()
    }

    /// The name of a dead key, if the journal was not told of it. It is told now.
    pub fn tell(&mut self, db: usize, hash: u64) -> Option<Box<[u8]>> {
        let number = self.untold.remove(&(db, hash))?;
        let death = self.waiting.iter_mut().rfind(|death| death.number == number)?;
        death.is_noted = true;
        self.news.push(News::Noted(number));
        Some(death.key.clone())
    }

    #[inline]
    pub fn are_told(&self) -> bool {
        self.untold.is_empty()
    }

    /// No journal is kept any more.
    pub fn end_telling(&mut self) {
        self.untold.clear();
        self.news.clear();
    }

    /// What the journal has to be told of them: their deaths, as far as they wait, and the numbers of others.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    #[inline]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    pub fn of_number(&self, number: u64) -> Option<&Death> {
        self.waiting.iter().rfind(|death| death.number == number)
    }
}

/// Where copies of what has died are kept, see [`Stale`], and how many bytes of them at the most.
pub(super) struct Keeping<'a> {
    pub stale: &'a mut Option<Box<Stale>>,
    pub databases: usize,
    pub most: usize,
}

/// All that a death is told to.
pub(super) struct Mourners<'a> {
    pub effects: &'a mut Effects,
    pub policies: &'a mut Option<Box<Policies>>,
    pub deaths: &'a mut Deaths,
    pub stale: Keeping<'a>,
    pub hasher: &'a Hasher,
    pub db: usize,
    pub now: Now,
}

impl Mourners<'_> {
    #[inline]
    pub fn died(&mut self, dying: Dying, nodes: &Nodes) {
        let change = Change::of(Event::Expired).expired();
        let (entry, deadline_ms) = (dying.entry, Some(dying.deadline_ms));
        self.effects.dies(self.db, (entry, deadline_ms), self.hasher, || nodes.bytes_of_key(entry));
        if self.policies.is_none() {
            self.effects.record(self.db, dying.entry.key(), change);
        } else {
            self.died_under_policies(dying, nodes, change);
        }
    }

    #[inline(never)]
    fn died_under_policies(&mut self, dying: Dying, nodes: &Nodes, change: Change) {
        let to = self.policies.as_mut().and_then(|policies| policies.died(&dying, nodes, self.now));
        let change = if to.is_some() { change.unsaid() } else { change };
        self.effects.record(self.db, dying.entry.key(), change);
        if let Some(policies) = self.policies.as_deref().filter(|policies| policies.keeps_stale()) {
            let Keeping { stale, databases, most } = &mut self.stale;
            let stale = stale.get_or_insert_with(|| Box::new(Stale::new(*databases)));
            stale.keep(policies, (self.db, dying.entry), dying.deadline_ms, *most, self.now);
        }
        if let Some(to) = to {
            self.write_down(to, dying, nodes);
        }
    }

    fn write_down(&mut self, to: Arc<DeathStream>, Dying { entry, deadline_ms, .. }: Dying, nodes: &Nodes) {
        let bytes = || nodes.bytes_of_key(entry);
        let value = match () {
            () if !to.with_value => LastValue::Unwanted,
            () if bytes() > self.deaths.value_bytes_max || self.deaths.bytes >= KEPT_BYTES_MAX => {
                LastValue::TooLong(bytes())
            }
            () => LastValue::Kept(Owned::copy_of(entry)),
        };
        let lag_us = self.now.us.saturating_sub(deadline_ms.saturating_mul(1000));
        let (key, hash, db) = (entry.key(), self.hasher.hash(entry.key()), self.db);
        let death = Death { number: 0, is_noted: false, db, key: key.into(), hash, deadline_ms, lag_us, to, value };
        self.deaths.push(death, self.effects.is_journaled());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Policies as Configured;
    use crate::keyspace::{Keyspace, Touch, Value};

    fn keyspace() -> Keyspace {
        let mut keyspace = Keyspace::new(2, Hasher::new(1, 1));
        let (_, policy, _) = Configured::parse(["", "1h", "EVENTS", "deaths"].into_iter()).expect("a policy");
        keyspace.set_policy(b"", Some(policy));
        keyspace.effects.set_journaled(true);
        keyspace
    }

    /// A key lives until then, and is found dead later, by somebody who writes or not.
    fn live_and_die(keyspace: &mut Keyspace, until_ms: u64, buries: bool) {
        let hasher = keyspace.hasher().clone();
        let key = hasher.key(b"key");
        keyspace.insert(0, key, Value::Int(1), Some(until_ms), Now::from_ms(until_ms - 100));
        keyspace.buries = buries;
        assert!(keyspace.find(0, key, Now::from_ms(until_ms + 100), Touch::NOTHING).is_none());
        keyspace.buries = false;
        keyspace.effects.close_all();
    }

    fn numbers(keyspace: &Keyspace) -> Vec<u64> {
        keyspace.deaths.first(usize::MAX, usize::MAX).map(|death| death.number).collect()
    }

    #[test]
    fn each_death_of_a_key_is_told_by_itself() {
        let mut keyspace = keyspace();
        live_and_die(&mut keyspace, 1_000, true);
        live_and_die(&mut keyspace, 2_000, false);
        let numbers = numbers(&keyspace);
        assert_eq!(keyspace.deaths.take_news(), [News::Noted(numbers[0])]);
        assert_eq!(keyspace.effects.said.take().len(), 1, "the first is told at once");
        let taken = keyspace.deaths.take(&numbers[..1]);
        assert_eq!((taken.len(), taken[0].is_untold, taken[0].death.is_noted), (1, false, true));
        let taken = keyspace.deaths.take(&numbers);
        assert_eq!((taken.len(), taken[0].is_untold, taken[0].death.is_noted), (1, true, false));
        assert!(keyspace.deaths.is_empty() && keyspace.deaths.are_told());
    }

    /// A slice of the cycle that finds more than may wait keeps the values of all.
    #[test]
    fn no_value_is_lost_for_lack_of_room() {
        let mut keyspace = Keyspace::new(1, Hasher::new(1, 1));
        let words = ["", "1h", "EVENTS", "deaths", "WITHVALUE"];
        let (_, policy, _) = Configured::parse(words.into_iter()).expect("a policy");
        keyspace.set_policy(b"", Some(policy));
        keyspace.deaths.value_bytes_max = 1 << 20;
        let (hasher, value, now) = (keyspace.hasher().clone(), vec![b'x'; 1_000_000], Now::from_ms(2_000));
        for number in 0..100 {
            let name = format!("key{number}");
            keyspace.insert(0, hasher.key(name.as_bytes()), Value::Bytes(&value), Some(1_000), Now::from_ms(900));
            keyspace.effects.close_all();
        }
        while !keyspace.deaths.is_full() {
            assert!(keyspace.sweep_earliest(0, now.ms, now, 64).deleted > 0);
        }
        let waiting = keyspace.deaths.first(usize::MAX, usize::MAX);
        assert_eq!(waiting.filter(|death| matches!(death.value, LastValue::TooLong(_))).count(), 0);
    }

    #[test]
    fn they_go_where_their_database_goes() {
        let (mut keyspace, now) = (keyspace(), Now::from_ms(9_000));
        live_and_die(&mut keyspace, 1_000, true);
        live_and_die(&mut keyspace, 2_000, false);
        let (numbers, hash) = (numbers(&keyspace), keyspace.hasher().hash(b"key"));
        keyspace.deaths.take_news();
        keyspace.swap(0, 1, now);
        assert_eq!(keyspace.deaths.take_news(), [News::Noted(numbers[0])], "the log has it in another database");
        assert_eq!(keyspace.deaths.tell(0, hash), None);
        keyspace.flush(0, now);
        assert_eq!(keyspace.deaths.len(), 2);
        assert_eq!(keyspace.deaths.tell(1, hash).as_deref(), Some(&b"key"[..]));
        keyspace.deaths.take_news();
        keyspace.flush(1, now);
        assert_eq!(keyspace.deaths.take_news(), [News::Dropped(numbers[0]), News::Dropped(numbers[1])]);
        assert!(keyspace.deaths.take(&numbers).is_empty());
    }
}
