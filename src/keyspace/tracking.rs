//! Which connections have read which keys of this shard, and are to be told when those change (CLIENT TRACKING).
//!
//! A connection is remembered under the name of each key that it reads, whatever the database, and told once: what it
//! reads again is remembered again. Those that want to be told of all keys with a prefix (BCAST) are not remembered.

use crate::observe::GiveBack;
use crate::observe::memory::Transient;
use crate::value::number::{I64_TEXT_BYTES_MAX, format_i64};
use indexmap::IndexMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A connection that tracks what it reads, as its commands take it along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracker {
    pub client: u64,
    shard: u16,
    /// What the running command reads is remembered.
    pub remembers: bool,
    /// It is not told of what it changes itself (NOLOOP).
    pub no_loop: bool,
}

impl Tracker {
    pub fn new(client: u64, shard: usize, remembers: bool, no_loop: bool) -> Tracker {
        Tracker { client, shard: shard as u16, remembers, no_loop }
    }

    fn reader(self) -> Reader {
        (self.client, self.shard)
    }
}

/// A connection's id, and its shard.
type Reader = (u64, u16);

/// Names of keys, written as a client gets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub count: usize,
    pub bytes: Vec<u8>,
    /// Where the last of them begins.
    last: usize,
}

impl Names {
    /// Returns how many more bytes that has allocated. What changes again before anything else does is named once: a
    /// pipeline may count the same key up a thousand times.
    #[inline]
    fn push(&mut self, key: &[u8]) -> usize {
        if self.count > 0 && self.bytes[self.last..].strip_suffix(b"\r\n") == Some(key) {
            return 0;
        }
        let before = self.bytes.capacity();
        self.count += 1;
        self.bytes.reserve(HEAD_BYTES_MAX + key.len() + 2);
        match key.len() {
            // Nearly all; this is done for every write where somebody listens to all of them.
            len @ 10..100 => {
                let (tens, units) = (b'0' + (len / 10) as u8, b'0' + (len % 10) as u8);
                self.bytes.extend_from_slice(&[b'$', tens, units, b'\r', b'\n']);
            }
            len => {
                self.bytes.push(b'$');
                self.bytes.extend_from_slice(format_i64(len as i64, &mut [0; I64_TEXT_BYTES_MAX]));
                self.bytes.extend_from_slice(b"\r\n");
            }
        }
        self.last = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes.capacity() - before
    }

    /// Each name, written as a client gets it.
    pub fn each(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let head = memchr::memchr(b'\n', rest)? + 1;
            let len: usize = std::str::from_utf8(&rest[1..head - 2]).ok()?.parse().ok()?;
            let (name, others) = rest.split_at_checked(head + len + 2)?;
            rest = others;
            Some(name)
        })
    }

    /// Hands them out, and makes room for about as many more.
    fn take(&mut self) -> Names {
        let bytes = Vec::with_capacity(self.bytes.len().min(KEPT_BYTES));
        std::mem::replace(self, Names { bytes, ..Names::default() })
    }
}

/// A dollar sign, a length, the end of a line.
const HEAD_BYTES_MAX: usize = 1 + I64_TEXT_BYTES_MAX + 2;
/// Room that is kept for the names of the next turn.
const KEPT_BYTES: usize = 64 * 1024;

/// What the connections of one shard are to be told: each some names.
#[derive(Debug, Default)]
pub struct Told {
    transient: Transient,
    /// Those that have read a key.
    pub readers: Vec<(u64, Names)>,
    /// Those that have asked for a prefix.
    pub listeners: Vec<(Vec<u64>, Arc<Names>)>,
}

impl Told {
    fn count_transient(&mut self) {
        let readers = self.readers.iter().map(|(_, names)| names.bytes.capacity());
        // What all shards are told alike is one: each counts its part of it.
        let listeners =
            self.listeners.iter().map(|(_, names)| names.bytes.capacity() / Arc::strong_count(names).max(1));
        self.transient.set(readers.chain(listeners).sum());
    }
}

/// What has changed since this was asked.
#[derive(Debug, Default)]
pub struct Invalidated {
    pub by_shard: BTreeMap<usize, Told>,
    /// A whole database was emptied, or has another place: nothing that anybody remembers holds.
    pub flushed: bool,
}

/// Those who want to hear of all keys that begin alike.
#[derive(Default)]
struct Prefix {
    /// They are told the same.
    listeners: Vec<Reader>,
    /// Who is not told of its own changes (NOLOOP) is told apart.
    no_loop: Vec<Reader>,
    changed: Names,
}

#[derive(Default)]
pub struct Tracking {
    /// Who has read a key, in the order of their ids.
    readers: IndexMap<Box<[u8]>, SmallVec<[Reader; 2]>, ahash::RandomState>,
    /// How many they are, over all keys.
    items: usize,
    /// Who wants to hear of every key: the prefix that is empty.
    all: Prefix,
    /// All others.
    prefixes: IndexMap<Box<[u8]>, Prefix, ahash::RandomState>,
    /// How many prefixes have a length: where there are many of them those of a key are looked up by it.
    lengths: BTreeMap<usize, usize>,
    /// Who is to be told of what.
    told: IndexMap<Reader, Names, ahash::RandomState>,
    /// Prefixes of keys that have changed.
    changed: Vec<Box<[u8]>>,
    flushed: bool,
    /// What the names of what has changed have allocated, and how much of it others know of.
    changed_bytes: usize,
    transient: Transient,
}

/// So many connections may be remembered for each key that may be, all in all. (Those that are gone are, until the key
/// changes.)
const READERS_A_KEY: usize = 8;
/// So many keys are forgotten at a time, after the limit was lowered.
const FORGOTTEN_A_READ: usize = 16;
/// So many prefixes are compared with a key one by one.
const FEW_PREFIXES: usize = 8;

impl Tracking {
    /// Whether anybody wants to know of any change.
    pub fn is_wanted(&self) -> bool {
        !self.readers.is_empty() || !self.all.is_empty() || !self.prefixes.is_empty()
    }

    #[inline]
    pub fn has_news(&self) -> bool {
        self.flushed || !self.told.is_empty() || !self.changed.is_empty()
    }

    /// Keys for which anybody is remembered, how many they are, and prefixes that somebody has asked for.
    pub fn counts(&self) -> [usize; 3] {
        [self.readers.len(), self.items, self.prefixes.len() + usize::from(!self.all.is_empty())]
    }

    /// A connection has read a key. Where more than `max_keys` are remembered, some that are drawn are forgotten: their
    /// readers are told as if they had changed.
    pub fn remember(&mut self, key: &[u8], by: Tracker, max_keys: usize, rng: &mut fastrand::Rng) {
        let readers = match self.readers.get_mut(key) {
            Some(readers) => readers,
            None => self.readers.entry(key.into()).or_default(),
        };
        if let Err(place) = readers.binary_search(&by.reader()) {
            readers.insert(place, by.reader());
            self.items += 1;
        }
        for _ in 0..FORGOTTEN_A_READ {
            if self.readers.len() <= max_keys && self.items / READERS_A_KEY <= max_keys {
                break;
            }
            let drawn = rng.usize(..self.readers.len());
            if let Some((key, readers)) = self.readers.swap_remove_index(drawn) {
                self.forget(&key, &readers, None);
            }
        }
    }

    fn forget(&mut self, key: &[u8], readers: &[Reader], writer: Option<Tracker>) {
        self.readers.give_back();
        self.items -= readers.len();
        let own = writer.filter(|writer| writer.no_loop).map(Tracker::reader);
        for reader in readers.iter().filter(|reader| Some(**reader) != own) {
            self.changed_bytes += self.told.entry(*reader).or_default().push(key);
        }
    }

    /// What there is to be told now is on its way out: nothing has to make room for it.
    pub fn count_transient(&mut self) {
        self.transient.set(self.changed_bytes);
    }

    /// A key has changed: whoever has read it is told, unless it was the one who changed it and wants no such word.
    #[inline]
    pub fn changed(&mut self, key: &[u8], writer: Option<Tracker>) {
        // Done for every write where somebody listens to all keys.
        if !self.all.listeners.is_empty() {
            if self.all.changed.count == 0 {
                self.changed.push(Box::default());
            }
            self.changed_bytes += self.all.changed.push(key);
        }
        if !self.readers.is_empty() || !self.prefixes.is_empty() || !self.all.no_loop.is_empty() {
            self.changed_for_some(key, writer);
        }
    }

    #[inline(never)]
    fn changed_for_some(&mut self, key: &[u8], writer: Option<Tracker>) {
        if !self.readers.is_empty()
            && let Some((_, readers)) = self.readers.swap_remove_entry(key)
        {
            self.forget(key, &readers, writer);
        }
        let Tracking { all, prefixes, lengths, told, changed, changed_bytes, .. } = self;
        *changed_bytes += all.tell_no_loop(key, writer, told);
        if prefixes.len() <= FEW_PREFIXES {
            for (name, prefix) in prefixes.iter_mut().filter(|(name, _)| key.starts_with(name)) {
                *changed_bytes += prefix.tell(name, key, writer, told, changed);
            }
            return;
        }
        for len in lengths.range(..=key.len()).map(|(len, _)| *len) {
            if let Some((_, name, prefix)) = prefixes.get_full_mut(&key[..len]) {
                *changed_bytes += prefix.tell(name, key, writer, told, changed);
            }
        }
    }

    /// Nothing that was read holds any more.
    pub fn flushed(&mut self) {
        self.readers.clear();
        self.readers.give_back();
        self.items = 0;
        self.flushed = true;
    }

    /// A connection wants to hear of all keys that begin so.
    pub fn listen(&mut self, prefix: &[u8], by: Tracker) {
        if prefix.is_empty() {
            self.all.enter(by);
            return;
        }
        if !self.prefixes.contains_key(prefix) {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        self.prefixes.entry(prefix.into()).or_default().enter(by);
    }

    /// It does not any more.
    pub fn stop_listening(&mut self, name: &[u8], client: u64) {
        if name.is_empty() {
            self.all.leave(client);
            return;
        }
        let Some(prefix) = self.prefixes.get_mut(name) else { return };
        prefix.leave(client);
        if prefix.is_empty() {
            self.prefixes.swap_remove(name);
            self.prefixes.give_back();
            if let Some(count) = self.lengths.get_mut(&name.len()) {
                *count -= 1;
                if *count == 0 {
                    self.lengths.remove(&name.len());
                }
            }
        }
    }

    /// Who is to be told what since this was asked.
    pub fn take(&mut self) -> Invalidated {
        let mut all = Invalidated { flushed: std::mem::take(&mut self.flushed), ..Invalidated::default() };
        for ((client, shard), names) in std::mem::take(&mut self.told) {
            all.by_shard.entry(shard.into()).or_default().readers.push((client, names));
        }
        for name in std::mem::take(&mut self.changed) {
            let prefix = if name.is_empty() { Some(&mut self.all) } else { self.prefixes.get_mut(&name) };
            let Some(prefix) = prefix else { continue };
            let names =
                Arc::new(if name.is_empty() { prefix.changed.take() } else { std::mem::take(&mut prefix.changed) });
            let mut by_shard: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
            for (client, shard) in &prefix.listeners {
                by_shard.entry((*shard).into()).or_default().push(*client);
            }
            for (shard, clients) in by_shard {
                all.by_shard.entry(shard).or_default().listeners.push((clients, names.clone()));
            }
        }
        all.by_shard.values_mut().for_each(Told::count_transient);
        self.changed_bytes = 0;
        self.transient.set(0);
        all
    }
}

impl Prefix {
    /// A key that begins so has changed. Returns how many more bytes its name has allocated.
    fn tell(
        &mut self,
        name: &[u8],
        key: &[u8],
        writer: Option<Tracker>,
        told: &mut IndexMap<Reader, Names, ahash::RandomState>,
        changed: &mut Vec<Box<[u8]>>,
    ) -> usize {
        let mut bytes = 0;
        if !self.listeners.is_empty() {
            if self.changed.count == 0 {
                changed.push(name.into());
            }
            bytes += self.changed.push(key);
        }
        bytes + self.tell_no_loop(key, writer, told)
    }

    fn tell_no_loop(
        &self,
        key: &[u8],
        writer: Option<Tracker>,
        told: &mut IndexMap<Reader, Names, ahash::RandomState>,
    ) -> usize {
        let listeners = self.no_loop.iter().filter(|(client, _)| writer.is_none_or(|of| of.client != *client));
        listeners.map(|listener| told.entry(*listener).or_default().push(key)).sum()
    }

    fn is_empty(&self) -> bool {
        self.listeners.is_empty() && self.no_loop.is_empty()
    }

    fn enter(&mut self, by: Tracker) {
        self.leave(by.client);
        if by.no_loop { self.no_loop.push(by.reader()) } else { self.listeners.push(by.reader()) }
    }

    fn leave(&mut self, client: u64) {
        self.listeners.retain(|(of, _)| *of != client);
        self.no_loop.retain(|(of, _)| *of != client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(client: u64) -> Tracker {
        Tracker::new(client, client as usize % 3, true, false)
    }

    fn remember(tracking: &mut Tracking, key: &str, by: Tracker) {
        tracking.remember(key.as_bytes(), by, usize::MAX, &mut fastrand::Rng::with_seed(1));
    }

    /// What each connection is told, in the order of their ids.
    fn told(tracking: &mut Tracking) -> Vec<(u64, Vec<String>)> {
        let names = |names: &Names| {
            let text = String::from_utf8_lossy(&names.bytes).into_owned();
            let names: Vec<String> = text.lines().skip(1).step_by(2).map(str::to_owned).collect();
            names
        };
        let mut all: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for (shard, told) in tracking.take().by_shard {
            for (client, of) in told.readers {
                assert_eq!(client as usize % 3, shard);
                all.entry(client).or_default().extend(names(&of));
            }
            for (clients, of) in told.listeners {
                assert_eq!(of.count, names(&of).len());
                clients.iter().for_each(|client| all.entry(*client).or_default().extend(names(&of)));
            }
        }
        all.into_iter().collect()
    }

    fn lines(all: &[(u64, &[&str])]) -> Vec<(u64, Vec<String>)> {
        all.iter().map(|(client, names)| (*client, names.iter().map(|name| (*name).to_owned()).collect())).collect()
    }

    #[test]
    fn who_has_read_a_key_is_told_once() {
        let mut tracking = Tracking::default();
        for client in [4, 2, 4] {
            remember(&mut tracking, "a", reader(client));
        }
        remember(&mut tracking, "b", reader(2));
        assert_eq!(tracking.counts(), [2, 3, 0]);
        ["a", "a", "b", "c"].iter().for_each(|key| tracking.changed(key.as_bytes(), None));
        assert_eq!(told(&mut tracking), lines(&[(2, &["a", "b"]), (4, &["a"])]));
        assert!(!tracking.is_wanted() && !tracking.has_news());
        assert_eq!(tracking.counts(), [0, 0, 0]);
    }

    #[test]
    fn who_wants_no_word_of_its_own_changes_gets_none() {
        let mut tracking = Tracking::default();
        let quiet = Tracker { no_loop: true, ..reader(1) };
        [quiet, reader(2)].iter().for_each(|by| remember(&mut tracking, "a", *by));
        tracking.changed(b"a", Some(quiet));
        assert_eq!(told(&mut tracking), lines(&[(2, &["a"])]));
        [quiet, reader(2)].iter().for_each(|by| remember(&mut tracking, "a", *by));
        tracking.changed(b"a", Some(reader(2)));
        assert_eq!(told(&mut tracking), lines(&[(1, &["a"]), (2, &["a"])]));
        tracking.listen(b"a", quiet);
        tracking.listen(b"a", reader(2));
        tracking.changed(b"ab", Some(quiet));
        assert_eq!(told(&mut tracking), lines(&[(2, &["ab"])]));
        tracking.changed(b"ab", Some(reader(2)));
        assert_eq!(told(&mut tracking), lines(&[(1, &["ab"]), (2, &["ab"])]));
    }

    #[test]
    fn prefixes_of_any_length() {
        let mut tracking = Tracking::default();
        for (prefix, client) in [("", 1), ("user:", 2), ("user:1", 3), ("user:12345", 4), ("x", 5)] {
            tracking.listen(prefix.as_bytes(), reader(client));
        }
        ["user:1", "user:2", "y", ""].iter().for_each(|key| tracking.changed(key.as_bytes(), None));
        let all: &[(u64, &[&str])] =
            &[(1, &["user:1", "user:2", "y", ""]), (2, &["user:1", "user:2"]), (3, &["user:1"])];
        assert_eq!(told(&mut tracking), lines(all));
        tracking.stop_listening(b"", 1);
        tracking.stop_listening(b"user:1", 3);
        tracking.stop_listening(b"user:1", 3);
        tracking.changed(b"user:1", None);
        assert_eq!(told(&mut tracking), lines(&[(2, &["user:1"])]));
        assert_eq!(tracking.lengths.len(), 3);
    }

    /// A hot key was named as often as it changed in a turn, to everybody who listens to it.
    #[test]
    fn what_changes_again_at_once_is_named_once() {
        let mut tracking = Tracking::default();
        tracking.listen(b"", reader(1));
        tracking.listen(b"a", reader(2));
        tracking.listen(b"a", Tracker { no_loop: true, ..reader(3) });
        ["a", "a", "a", "ab", "", "", "a", "b"].iter().for_each(|key| tracking.changed(key.as_bytes(), None));
        let of_a: &[&str] = &["a", "ab", "a"];
        let said = told(&mut tracking);
        assert_eq!(said, lines(&[(1, &["a", "ab", "", "a", "b"]), (2, of_a), (3, of_a)]));
        tracking.changed(b"b", None);
        assert_eq!(told(&mut tracking), lines(&[(1, &["b"])]), "in the next turn it is new");
    }

    #[test]
    fn what_is_too_much_is_forgotten_with_a_word_to_its_readers() {
        let (mut tracking, mut rng) = (Tracking::default(), fastrand::Rng::with_seed(3));
        (0..1000).for_each(|n: u32| tracking.remember(n.to_string().as_bytes(), reader(1), 100, &mut rng));
        assert_eq!(tracking.counts(), [100, 100, 0]);
        let said = told(&mut tracking);
        assert_eq!(said[0].1.len(), 900);
        (0..10_000).for_each(|n| tracking.remember(b"hot", reader(n), 100, &mut rng));
        assert!(tracking.counts()[1] <= (100 + 1) * READERS_A_KEY, "connections that come and go");
    }

    #[test]
    fn a_flush_is_told_to_all() {
        let mut tracking = Tracking::default();
        remember(&mut tracking, "a", reader(1));
        tracking.flushed();
        let all = tracking.take();
        assert!(all.flushed && all.by_shard.is_empty());
        assert_eq!(tracking.counts(), [0, 0, 0]);
    }
}
