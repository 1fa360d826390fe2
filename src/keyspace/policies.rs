//! Expiry policies as a shard knows them: which one governs a key, what that does to the key's deadline, and what has
//! become of the keys it governs.
//!
//! A policy governs the keys that begin with its prefix, unless a longer prefix has one. Most keys have none, which their
//! first byte tells. A few prefixes are compared one by one; among many, which lengths begin with a byte, and with which
//! bytes those of a length end, says where hashing a prefix is worth while.

use super::by_prefix::ByPrefix;
use super::change::{Change, Event};
use super::nodes::Nodes;
use super::{Key, Keyspace, Touch};
use crate::clock::Now;
use crate::config::{DeathStream, Policy};
use crate::observe::Lag;
use crate::table::{Entry, Slot};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Lengths of prefixes from which on they share one bit.
const LONG: usize = 63;
/// So many prefixes are faster compared than hashed.
const FEW: usize = 16;

/// What has become of the keys that a policy governs.
#[derive(Clone, Default)]
pub struct Tally {
    pub expired_by_access: u64,
    pub expired_by_cycle: u64,
    pub expired_bytes: u64,
    /// None before the first death.
    pub lag: Option<Box<Lag>>,
}

impl Tally {
    fn died(&mut self, &Dying { entry, deadline_ms, by_cycle }: &Dying, nodes: &Nodes, now: Now) {
        self.expired_by_cycle += u64::from(by_cycle);
        self.expired_by_access += u64::from(!by_cycle);
        self.expired_bytes += nodes.bytes_of_key(entry) as u64;
        self.lag.get_or_insert_default().record(now, deadline_ms);
    }

    pub fn add(&mut self, other: &Tally) {
        self.expired_by_access += other.expired_by_access;
        self.expired_by_cycle += other.expired_by_cycle;
        self.expired_bytes += other.expired_bytes;
        if let Some(lag) = &other.lag {
            self.lag.get_or_insert_default().add(lag);
        }
    }
}

/// A key whose deadline has passed, and which is about to be taken out.
pub(super) struct Dying<'a> {
    pub entry: Entry<'a>,
    pub deadline_ms: u64,
    /// The cycle has found it.
    pub by_cycle: bool,
}

struct Governed {
    /// Equal ones are one: among many prefixes it is likely to be in the cache.
    policy: Arc<Policy>,
    /// None before the first death.
    tally: Option<Box<Tally>>,
}

/// One of few prefixes.
struct Few {
    /// Its first eight bytes, and which bits of a key's are compared with them.
    word: u64,
    mask: u64,
    prefix: Box<[u8]>,
    policy: Arc<Policy>,
}

/// The first eight bytes of a key, with zeros behind a shorter one.
#[inline]
fn first_word(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk() {
        return u64::from_le_bytes(*first);
    }
    key.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Of the lengths of prefixes, of which bit n stands for n bytes, those that are not longer than the key.
#[inline]
fn within(key: &[u8], lengths: u64) -> u64 {
    if key.len() < LONG { lengths & ((2 << key.len()) - 1) } else { lengths }
}

impl Few {
    fn new(prefix: &[u8], policy: &Arc<Policy>) -> Few {
        let mask = u64::MAX.checked_shr(64 - 8 * prefix.len().min(8) as u32).unwrap_or(0);
        Few { word: first_word(prefix) & mask, mask, prefix: prefix.into(), policy: policy.clone() }
    }

    #[inline]
    fn governs(&self, key: &[u8], word: u64) -> bool {
        let len = self.prefix.len();
        word & self.mask == self.word && key.len() >= len && (len <= 8 || key[8..len] == self.prefix[8..])
    }
}

pub(super) struct Policies {
    by_prefix: ByPrefix<Governed>,
    /// All that differ.
    different: HashSet<Arc<Policy>, ahash::RandomState>,
    /// All of them, the longest first, while they are few.
    few: Vec<Few>,
    /// That of the empty prefix.
    of_all: Option<Arc<Policy>>,
    /// By the first byte of prefixes: a bit for each of their lengths.
    lengths: [u64; 256],
    /// By the length of prefixes: a bit for each of their last bytes.
    ends: [[u64; 4]; LONG],
    /// The streams to which deaths are written, and how many policies name them.
    streams: HashMap<Box<str>, usize>,
    /// Lengths that share the last bit.
    long: BTreeSet<usize>,
    /// Prefixes that were taken out since all this was built: their bits are still set.
    removed: usize,
    /// How many policies renew on use, and require a deadline.
    sliding: usize,
    requiring: usize,
    /// How many keep their keys from being evicted.
    protecting: usize,
    /// How many let what has died be shown for a while.
    staling: usize,
}

impl Default for Policies {
    fn default() -> Policies {
        Policies {
            by_prefix: ByPrefix::default(),
            different: HashSet::default(),
            few: Vec::new(),
            of_all: None,
            lengths: [0; 256],
            ends: [[0; 4]; LONG],
            streams: HashMap::new(),
            long: BTreeSet::new(),
            removed: 0,
            sliding: 0,
            requiring: 0,
            protecting: 0,
            staling: 0,
        }
    }
}

impl Policies {
    #[inline]
    fn lengths_for(&self, key: &[u8]) -> u64 {
        key.first().map_or(0, |first| self.lengths[usize::from(*first)])
    }

    #[inline]
    fn of(&self, key: &[u8]) -> Option<&Policy> {
        let lengths = self.lengths_for(key);
        if lengths == 0 {
            return self.of_all.as_deref();
        }
        if !self.few.is_empty() {
            let word = first_word(key);
            return self.few.iter().find(|few| few.governs(key, word)).map(|few| &*few.policy);
        }
        self.among_many(key, lengths).map(|(_, governed)| &*governed.policy)
    }

    /// The longest prefix of a key that has a policy.
    fn prefix_of<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        self.among_many(key, self.lengths_for(key)).map(|(prefix, _)| prefix)
    }

    fn among_many<'k>(&self, key: &'k [u8], lengths: u64) -> Option<(&'k [u8], &Governed)> {
        let get = |len: usize| self.by_prefix.get(&key[..len]).map(|governed| (&key[..len], governed));
        let mut lengths = within(key, lengths);
        if lengths >> LONG != 0 {
            lengths &= !(1 << LONG);
            let found = self.long.range(..=key.len()).rev().find_map(|len| get(*len));
            if found.is_some() {
                return found;
            }
        }
        while let Some(len) = self.longest(key, &mut lengths) {
            if let Some(found) = get(len) {
                return Some(found);
            }
        }
        self.of_all.as_ref().and_then(|_| get(0))
    }

    /// The longest of these lengths that some prefix has which ends as it would; it is taken out, and all that are longer.
    #[inline]
    fn longest(&self, key: &[u8], lengths: &mut u64) -> Option<usize> {
        while *lengths != 0 {
            let len = LONG - lengths.leading_zeros() as usize;
            *lengths &= !(1 << len);
            let last = usize::from(key[len - 1]);
            if self.ends[len][last / 64] & 1 << (last % 64) != 0 {
                return Some(len);
            }
        }
        None
    }

    /// Asks the cache for the longest prefix of a key that may have a policy.
    #[inline]
    fn prefetch(&self, key: &[u8]) {
        let mut lengths = within(key, self.lengths_for(key)) & !(1 << LONG);
        if let Some(len) = self.longest(key, &mut lengths) {
            self.by_prefix.prefetch(&key[..len]);
        }
    }

    /// A policy for a prefix, new or not, or none.
    fn set(&mut self, prefix: &[u8], policy: Option<Policy>) {
        let before = self.by_prefix.remove(prefix);
        if let Some(Governed { policy, .. }) = &before {
            self.count_stream(policy, false);
            self.sliding -= usize::from(policy.is_sliding());
            self.requiring -= usize::from(policy.requires);
            self.protecting -= usize::from(policy.no_evict);
            self.staling -= usize::from(policy.stale_ms.is_some());
            self.removed += 1;
        }
        if let Some(policy) = policy {
            let policy = self.shared(policy);
            self.count_stream(&policy, true);
            self.removed -= usize::from(before.is_some());
            self.sliding += usize::from(policy.is_sliding());
            self.requiring += usize::from(policy.requires);
            self.protecting += usize::from(policy.no_evict);
            self.staling += usize::from(policy.stale_ms.is_some());
            self.announce(prefix);
            let tally = before.and_then(|before| before.tally);
            self.by_prefix.insert(prefix, Governed { policy, tally });
        }
        if self.removed > self.by_prefix.len() {
            self.rebuild();
        }
        self.few.clear();
        if self.different.len() > 2 * self.by_prefix.len() + FEW {
            self.different.retain(|policy| Arc::strong_count(policy) > 1);
        }
        self.of_all = self.by_prefix.get(b"").map(|governed| governed.policy.clone());
        if self.by_prefix.len() <= FEW {
            let few = self.by_prefix.iter().map(|(prefix, governed)| Few::new(prefix, &governed.policy));
            self.few = few.collect();
            self.few.sort_by_key(|few| std::cmp::Reverse(few.prefix.len()));
        }
    }

    /// The policy, as others have it.
    fn shared(&mut self, policy: Policy) -> Arc<Policy> {
        if let Some(equal) = self.different.get(&policy) {
            return equal.clone();
        }
        let policy = Arc::new(policy);
        self.different.insert(policy.clone());
        policy
    }

    fn count_stream(&mut self, policy: &Policy, comes: bool) {
        let Some(events) = &policy.events else { return };
        let count = self.streams.entry(events.key.clone()).or_default();
        *count = if comes { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            self.streams.remove(&events.key);
        }
    }

    /// Whether some policy keeps its keys from being evicted.
    #[inline]
    pub(super) fn protects(&self) -> bool {
        self.protecting > 0
    }

    /// Whether the policy of a key does.
    pub(super) fn protects_key(&self, key: &[u8]) -> bool {
        self.protecting > 0 && self.of(key).is_some_and(|policy| policy.no_evict)
    }

    /// Whether some policy lets what has died be shown for a while.
    #[inline]
    pub(super) fn keeps_stale(&self) -> bool {
        self.staling > 0
    }

    /// For how long that of a key does.
    pub(super) fn stale_ms(&self, key: &[u8]) -> Option<u64> {
        if self.staling == 0 || self.is_stream(key) { None } else { self.of(key)?.stale_ms }
    }

    /// Whether a policy writes deaths there. Such a key is governed by none: events would die with it, and its own death
    /// would be one of them.
    fn is_stream(&self, key: &[u8]) -> bool {
        !self.streams.is_empty() && std::str::from_utf8(key).is_ok_and(|key| self.streams.contains_key(key))
    }

    /// The deadline that a key shall have by this policy instead of the one it has.
    #[inline]
    fn wanted_ms(&self, policy: &Policy, key: Key, deadline_ms: Option<u64>, now: Now) -> Option<u64> {
        let wanted_ms = match deadline_ms {
            None => now.ms.saturating_add(policy.life_ms(key.hash)?),
            Some(deadline_ms) => {
                let latest_ms = now.ms.saturating_add(policy.max_ms?);
                Some(latest_ms).filter(|latest_ms| deadline_ms > *latest_ms)?
            }
        };
        if self.is_stream(key.bytes) { None } else { Some(wanted_ms) }
    }

    fn announce(&mut self, prefix: &[u8]) {
        let (Some(first), Some(last)) = (prefix.first(), prefix.last()) else { return };
        self.lengths[usize::from(*first)] |= 1 << prefix.len().min(LONG);
        match self.ends.get_mut(prefix.len()) {
            Some(ends) => ends[usize::from(*last) / 64] |= 1 << (last % 64),
            None => _ = self.long.insert(prefix.len()),
        }
    }

    fn rebuild(&mut self) {
        let by_prefix = std::mem::take(&mut self.by_prefix);
        let (streams, different) = (std::mem::take(&mut self.streams), std::mem::take(&mut self.different));
        let Policies { sliding, requiring, protecting, staling, .. } = *self;
        *self = Policies { streams, different, sliding, requiring, protecting, staling, ..Policies::default() };
        by_prefix.iter().for_each(|(prefix, _)| self.announce(prefix));
        self.by_prefix = by_prefix;
    }

    /// Counts a death where the key is governed; returns where it is to be written.
    pub fn died(&mut self, dying: &Dying, nodes: &Nodes, now: Now) -> Option<Arc<DeathStream>> {
        let key = dying.entry.key();
        let governed = self.by_prefix.get_mut(self.prefix_of(key)?)?;
        governed.tally.get_or_insert_default().died(dying, nodes, now);
        let to = governed.policy.events.clone()?;
        if self.is_stream(key) { None } else { Some(to) }
    }
}

/// A key that was used while its policy renews lives.
pub struct Used {
    pub db: usize,
    pub key: Box<[u8]>,
    /// When it would have died.
    deadline_ms: u64,
}

impl Keyspace {
    /// Whether a key may be governed, as far as its first byte tells, or bounded by groups.
    #[inline]
    pub fn may_be_governed(&self, key: &[u8]) -> bool {
        self.has_groups()
            || self
                .policies
                .as_ref()
                .is_some_and(|policies| policies.lengths_for(key) != 0 || policies.of_all.is_some())
    }

    /// Whether policies are so many that to find a key's is to wait for memory.
    #[inline]
    pub fn has_many_policies(&self) -> bool {
        self.policies.as_ref().is_some_and(|policies| policies.by_prefix.len() > FEW)
    }

    /// Asks the cache for the policies of several keys.
    #[inline(never)]
    pub fn prefetch_policies<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        let Some(policies) = &self.policies else { return };
        keys.for_each(|key| policies.prefetch(key));
    }

    /// Whether some policy requires deadlines.
    #[inline]
    pub fn has_required_deadlines(&self) -> bool {
        self.requires
    }

    /// Whether some policy, or some group, renews lives.
    #[inline]
    pub fn has_sliding_lives(&self) -> bool {
        self.slides
    }

    pub fn set_policy(&mut self, prefix: &[u8], policy: Option<Policy>) {
        let policies = self.policies.get_or_insert_default();
        policies.set(prefix, policy);
        self.policy_changes += 1;
        self.requires = policies.requiring > 0;
        if policies.by_prefix.is_empty() {
            self.policies = None;
        }
        self.look_for_sliding();
    }

    /// Whether use renews lives may be otherwise now.
    pub(super) fn look_for_sliding(&mut self) {
        let by_policies = self.policies.as_ref().is_some_and(|policies| policies.sliding > 0);
        self.slides = by_policies || self.has_sliding_groups();
        self.follows_uses = self.slides || self.effects.is_advised();
    }

    /// Whether a policy writes deaths to this key, see [`Policies::is_stream`].
    pub fn is_death_stream(&self, key: &[u8]) -> bool {
        self.policies.as_ref().is_some_and(|policies| policies.is_stream(key))
    }

    /// The policy that governs a key.
    pub fn policy_of(&self, key: &[u8]) -> Option<&Policy> {
        self.policies.as_ref()?.of(key)
    }

    /// What has become of the keys that the policy of a prefix governs.
    pub fn tally_of(&self, prefix: &[u8]) -> Option<&Tally> {
        self.policies.as_ref()?.by_prefix.get(prefix)?.tally.as_deref()
    }

    /// The counters of policies begin anew.
    pub fn reset_tallies(&mut self) {
        let governed = self.policies.iter_mut().flat_map(|policies| policies.by_prefix.values_mut());
        governed.for_each(|governed| governed.tally = None);
    }

    /// Sees to it that a key which was just changed has the deadline its policy wants: the default where it has none, and
    /// none that is further away than allowed. Returns the deadline that was set.
    pub fn govern(&mut self, db: usize, key: Key, now: Now) -> Option<u64> {
        let policies = self.policies.as_ref()?;
        let policy = policies.of(key.bytes)?;
        let slot = self.dbs[db].find(key)?;
        let wanted_ms = policies.wanted_ms(policy, key, self.dbs[db].deadline_ms(slot), now)?;
        self.set_deadline_by_policy(db, (key, slot), wanted_ms, now);
        Some(wanted_ms)
    }

    /// The same for a key of which it is known which deadline it has.
    pub fn govern_dated(&mut self, db: usize, key: Key, deadline_ms: Option<u64>, now: Now) -> Option<u64> {
        let wanted_ms = self.wanted_ms(key, deadline_ms, now)?;
        let slot = self.dbs[db].find(key)?;
        self.set_deadline_by_policy(db, (key, slot), wanted_ms, now);
        Some(wanted_ms)
    }

    /// The deadline that a key's policy wants it to have instead of the one it has.
    pub fn wanted_ms(&self, key: Key, deadline_ms: Option<u64>, now: Now) -> Option<u64> {
        let policies = self.policies.as_ref()?;
        policies.wanted_ms(policies.of(key.bytes)?, key, deadline_ms, now)
    }

    fn set_deadline_by_policy(&mut self, db: usize, (key, slot): (Key, Slot), deadline_ms: u64, now: Now) {
        let (entry, nodes) = (self.dbs[db].entry(slot), &self.nodes);
        self.effects.is_dated(db, entry, &self.hasher, || nodes.bytes_of_key(entry));
        self.dbs[db].set_deadline(slot, Some(deadline_ms), now.ms);
        // The value is what it was: those who watch the key or keep a copy of it have seen no change.
        self.record(db, key, Change::of(Event::Expire).uncounted().unseen(), now);
    }

    /// A key is used. It is renewed when the command is over, which may yet give it another deadline.
    #[inline(never)]
    pub(super) fn note_use(&mut self, db: usize, key: Key, slot: Slot, touch: Touch, now: Now) {
        if self.effects.is_advised() {
            self.advise_hit(db, key, slot, touch, now);
        }
        if !self.slides || !touch.renews() {
            return;
        }
        self.note_group_use(db, key.bytes, now);
        let deadline_ms = self.dbs[db].deadline_ms(slot);
        let Some(policies) = &self.policies else { return };
        let policy = policies.of(key.bytes).filter(|policy| policy.is_sliding() && !policies.is_stream(key.bytes));
        let (Some(policy), Some(deadline_ms)) = (policy, deadline_ms) else { return };
        let Some(life_ms) = policy.life_ms(key.hash) else { return };
        let renewed_ms = now.ms.saturating_add(life_ms);
        // Not for every read: each time is a write.
        let is_worth_it = renewed_ms.saturating_sub(deadline_ms) > life_ms / RENEWALS_A_LIFE;
        if is_worth_it && policy.renews(life_ms, deadline_ms.saturating_sub(now.ms)) {
            self.used.push(Used { db, key: key.bytes.into(), deadline_ms });
        }
    }

    pub fn take_used(&mut self) -> Vec<Used> {
        std::mem::take(&mut self.used)
    }

    /// Renews the life of a key that was used at `now`, unless it has another deadline by then, or has died meanwhile:
    /// who looked later has found it dead. Returns the new deadline.
    pub fn renew(&mut self, used: &Used, now: Now, latest: Now) -> Option<u64> {
        let key = self.hasher.key(&used.key);
        let slot = self.dbs[used.db].find(key)?;
        let is_same = self.dbs[used.db].deadline_ms(slot) == Some(used.deadline_ms);
        if !is_same || self.dbs[used.db].is_dead(slot, latest.ms.max(now.ms)) {
            return None;
        }
        let deadline_ms = now.ms.saturating_add(self.policy_of(&used.key)?.life_ms(key.hash)?);
        self.set_deadline_by_policy(used.db, (key, slot), deadline_ms, now);
        self.effects.dirty += 1;
        Some(deadline_ms)
    }
}

/// A life is renewed no more often than this while it lasts.
const RENEWALS_A_LIFE: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Policies as Configured;

    fn policy(text: &str) -> Policy {
        Configured::parse(std::iter::once("").chain(text.split(' '))).unwrap().1
    }

    /// Against a walk over all prefixes.
    #[test]
    fn the_longest_prefix_governs() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut policies = Policies::default();
        let mut model: std::collections::BTreeMap<Vec<u8>, u64> = std::collections::BTreeMap::new();
        let text = |rng: &mut fastrand::Rng, most: usize| -> Vec<u8> {
            let len = [0, rng.usize(..4), rng.usize(..8), rng.usize(..most)][rng.usize(..4)];
            (0..len).map(|at| if at < 60 { rng.u8(b'a'..=b'c') } else { b'x' }).collect()
        };
        for step in 1..if cfg!(miri) { 300 } else { 30_000 } {
            let prefix = text(&mut rng, 70);
            if rng.u8(..3) == 0 {
                policies.set(&prefix, None);
                model.remove(&prefix);
            } else {
                policies.set(&prefix, Some(Policy { default_ms: Some(step), ..Policy::default() }));
                model.insert(prefix, step);
            }
            let key = text(&mut rng, 80);
            let found = policies.of(&key).and_then(|policy| policy.default_ms);
            let longest = (0..=key.len()).rev().find_map(|len| model.get(&key[..len]).copied());
            assert_eq!(found, longest, "{key:?}");
        }
    }

    #[test]
    fn flags_are_known_while_some_policy_has_them() {
        let mut keyspace = Keyspace::new(1, super::super::Hasher::new(1, 1));
        keyspace.set_policy(b"a", Some(policy("1h SLIDING")));
        keyspace.set_policy(b"b", Some(policy("1h REQUIRE")));
        assert!(keyspace.has_sliding_lives() && keyspace.has_required_deadlines());
        keyspace.set_policy(b"a", Some(policy("1h")));
        assert!(!keyspace.has_sliding_lives() && keyspace.policies.is_some());
        keyspace.set_policy(b"a", None);
        keyspace.set_policy(b"b", None);
        keyspace.set_policy(b"b", None);
        assert!(keyspace.policies.is_none() && !keyspace.has_required_deadlines());
    }
}
