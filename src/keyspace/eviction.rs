//! Keys that go before their time, where memory is short: which, and that they go by the way by which all keys go.
//!
//! Candidates are the keys of one block, each block in turn: hashes are spread over blocks, so that a block's keys are as
//! good a sample as any, and lie beside each other. So many go together as give memory back (see `table/thin.rs`), and for each
//! of them [`LOOKED_AT`] times `maxmemory-samples` are compared. (Redis compares 5 for one, and remembers the best of
//! those that stayed.) By deadline the keys go exactly in their order, which the tables' minima know.
//!
//! Some keys never go (`pins.rs`). Where there are such keys, those of a block are all looked at until there are enough that may
//! go, and a search goes on where the last one has ended, so that none takes long, however few may go.

use super::{Change, Clocking, Keyspace, Now};
use crate::config::{EvictionOrder, MaxmemoryPolicy};
use crate::table::{KEYS_AT_ONCE, Near, Table};

#[derive(Clone, Copy, Debug)]
pub struct Eviction {
    pub policy: MaxmemoryPolicy,
    /// `maxmemory-samples`.
    pub samples: usize,
    /// Keys that are clearly worth more stay: another shard has some that are worth less.
    pub limit: u64,
}

/// What keys are worth that go together, in the policy's order, the least first: a deadline or a time of use in
/// milliseconds, or a frequency. Such numbers stay true while time goes by, and so another shard may compare its own with
/// them whenever it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// None of them is clearly worth less.
    pub from: u64,
    /// None of them is worth more.
    pub until: u64,
}

/// What has become of an attempt to evict keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evicted {
    /// How many went.
    pub count: usize,
    /// What would go next, as far as that is known: exactly by deadline; else like what was looked at last.
    pub next: Option<Prospect>,
    /// None of those that were looked at may go, and there are others.
    pub looks_on: bool,
}

/// Keys compared for one that goes, for each of `maxmemory-samples`.
const LOOKED_AT: usize = 3;
/// Fewer are never compared.
const LOOKED_AT_LEAST: usize = 16;
/// Blocks that are looked into before it is given up to find a key that may go: as many as there are, within bounds.
const TRIES: usize = 8;
const TRIES_MOST: usize = 1 << 16;

/// The same in one search, where keys are protected.
const TRIES_AMONG_PROTECTED: usize = 8;
/// Blocks that are looked into where their keys are worth more than those of another shard: that may have been chance.
const TRIES_ABOVE_LIMIT: usize = 2;
/// What a key's frequency is multiplied by, so that there is something between two of them.
const WORTH_OF_A_COUNT: u64 = 256;

/// Keys that are sought together by their deadlines.
const NEAREST_AT_ONCE: usize = 16;

/// Whether others may not lose a key of this hash now.
pub type IsHeld<'a> = &'a dyn Fn(u64) -> bool;

impl Keyspace {
    /// Whether there may be keys that a policy lets go.
    pub fn has_victims(&self, policy: MaxmemoryPolicy, now: Now) -> bool {
        policy.order().is_some()
            && (0..self.dbs.len()).any(|db| self.candidates(db, policy) > 0)
            && !self.has_found_none(policy, now)
    }

    /// How many keys of a database may go at the most.
    fn candidates(&self, db: usize, policy: MaxmemoryPolicy) -> usize {
        let table = &self.dbs[db];
        let free = table.len() - self.pinned(db);
        if policy.spares_immortal() { table.with_deadline().min(free) } else { free }
    }

    /// Takes keys out so that about so many bytes come back; those of dead keys and of garbage should have come back
    /// before. None go where there are none that may.
    pub fn evict(&mut self, how: Eviction, bytes: usize, now: Now, is_held: IsHeld) -> Evicted {
        match how.policy.order() {
            None => Evicted::default(),
            Some(EvictionOrder::Deadline) => {
                let nearest = self.evict_nearest(how.limit, bytes, now, is_held);
                let is_for_others = nearest.next.is_some_and(|next| next.from > how.limit);
                if nearest.count > 0 || is_for_others || !self.protects_keys() {
                    return nearest;
                }
                // All that were near may be protected.
                self.evict_of_blocks(how, EvictionOrder::Deadline, bytes, now, is_held)
            }
            Some(order) => self.evict_of_blocks(how, order, bytes, now, is_held),
        }
    }

    fn evict_of_blocks(
        &mut self,
        how: Eviction,
        order: EvictionOrder,
        bytes: usize,
        now: Now,
        is_held: IsHeld,
    ) -> Evicted {
        let protects = self.protects_keys();
        // Once around, at the least: then there are none, or all are held.
        let blocks = self.dbs.iter().map(Table::block_count).max().unwrap_or(0);
        let most = if protects { TRIES_AMONG_PROTECTED } else { blocks.clamp(TRIES, TRIES_MOST) };
        let (mut evicted, mut above_limit) = (Evicted::default(), 0);
        for _ in 0..most {
            let of_block = self.evict_of_a_block(how, order, bytes, now, is_held);
            evicted = Evicted { count: of_block.count, next: of_block.next.or(evicted.next), looks_on: false };
            above_limit += usize::from(of_block.next.is_some_and(|next| next.from > how.limit));
            if evicted.count > 0 || above_limit == TRIES_ABOVE_LIMIT {
                break;
            }
        }
        if protects {
            evicted.looks_on = self.searched(evicted.next.is_some(), most, how.policy, now);
        }
        evicted
    }

    fn evict_of_a_block(
        &mut self,
        how: Eviction,
        order: EvictionOrder,
        bytes: usize,
        now: Now,
        is_held: IsHeld,
    ) -> Evicted {
        let Some(db) = self.random_db(how.policy) else { return Evicted::default() };
        let spares_immortal = how.policy.spares_immortal();
        let Some(block) = self.dbs[db].next_to_thin(spares_immortal) else { return Evicted::default() };
        let (mut rng, mut order_rng) = (self.rng.fork(), self.rng.fork());
        let (keyspace, clocking) = (&*self, self.clocking);
        let table = &keyspace.dbs[db];
        let average_of_nodes = self.nodes.bytes / table.len().max(1);
        let of_nodes = if average_of_nodes > 0 { bytes.div_ceil(average_of_nodes) } else { usize::MAX };
        let wanted = table.keys_to_free(block, bytes).min(of_nodes);
        let look = (wanted * how.samples * LOOKED_AT).max(LOOKED_AT_LEAST);
        let protects = keyspace.protects_keys();
        let look_at = if protects { usize::MAX } else { look };
        let mut found: Vec<(u64, u16)> = Vec::new();
        table.look_into(block, &mut rng, look_at, spares_immortal, |block, slot| {
            if spares_immortal && block.deadline_ms(slot).is_none() || table.is_dead_in(block, slot, now.ms) {
                return;
            }
            if protects && (found.len() == look || keyspace.is_protected(db, block.entry(slot).key())) {
                return;
            }
            let clock = || keyspace.clock_in(db, block, slot, now);
            let worth = match order {
                EvictionOrder::Recency | EvictionOrder::Modified => {
                    now.ms.saturating_sub(u64::from(Clocking::idle_s(clock(), now)) * 1000)
                }
                EvictionOrder::Frequency => u64::from(clocking.frequency(clock(), now)) * WORTH_OF_A_COUNT,
                EvictionOrder::Deadline => block.deadline_ms(slot).unwrap_or(u64::MAX),
                EvictionOrder::Random => order_rng.u64(..),
            };
            found.push((worth, slot as u16));
        });
        found.sort_unstable_by_key(|(worth, _)| *worth);
        found.truncate(wanted);
        let Some(&(until, _)) = found.last() else { return Evicted::default() };
        // Shards whose keys are used alike must not take each other's samples for better or worse ones.
        let chance = match order {
            EvictionOrder::Recency | EvictionOrder::Modified => 1000 + now.ms.saturating_sub(until) / 16,
            EvictionOrder::Frequency => WORTH_OF_A_COUNT / 2,
            EvictionOrder::Random | EvictionOrder::Deadline => 0,
        };
        let next = Some(Prospect { from: until.saturating_sub(chance), until });
        if next.is_some_and(|next| next.from > how.limit) {
            return Evicted { next, ..Evicted::default() };
        }
        let slots = found.into_iter().map(|(_, slot)| slot);
        Evicted { count: self.take_out_of(db, block, slots, bytes, now, is_held), next, looks_on: false }
    }

    /// The keys whose deadlines come first. Who goes may take others of its block to other slots, so that the rest is
    /// sought again where a key is not found where it was.
    fn evict_nearest(&mut self, limit: u64, bytes: usize, now: Now, is_held: IsHeld) -> Evicted {
        let (before, mut count, mut look) = (self.bytes_in_use(), 0, NEAREST_AT_ONCE);
        let mut next = None;
        while count < KEYS_AT_ONCE {
            let (mut all, mut known_until_ms): (Vec<(Near, usize)>, _) = (Vec::new(), u64::MAX);
            for (db, table) in self.dbs.iter_mut().enumerate().filter(|(_, table)| table.with_deadline() > 0) {
                let (nearest, until_ms) = table.nearest(look);
                known_until_ms = known_until_ms.min(until_ms);
                all.extend(nearest.into_iter().map(|near| (near, db)));
            }
            all.retain(|(near, _)| near.deadline_ms <= known_until_ms);
            all.sort_unstable();
            let (count_before, last_ms) = (count, all.last().map(|(near, _)| near.deadline_ms));
            for (near, db) in all {
                let is_done = self.bytes_in_use().saturating_add(bytes) <= before;
                if is_done || near.deadline_ms > limit {
                    let next = last_ms.map(|until| Prospect { from: near.deadline_ms, until });
                    return Evicted { count, next, looks_on: false };
                }
                if !self.dbs[db].has(near) {
                    break;
                }
                count += self.take_out_of(db, near.block, [near.slot].into_iter(), 1, now, is_held);
            }
            // What was not known is later.
            next = last_ms
                .filter(|_| self.dbs.iter().any(|table| table.with_deadline() > 0))
                .map(|until| Prospect { from: until, until });
            if count > count_before {
                look = NEAREST_AT_ONCE;
            } else if known_until_ms == u64::MAX || look >= KEYS_AT_ONCE {
                // Those in front are held, or dead and hidden, where nothing goes.
                break;
            } else {
                look *= 4;
            }
        }
        Evicted { count, next, looks_on: false }
    }

    /// Without what is given back in slices.
    fn bytes_in_use(&self) -> usize {
        self.dbs.iter().map(Table::bytes).sum::<usize>() + self.nodes.bytes
    }

    /// A database with candidates, by chance as many as each has.
    fn random_db(&mut self, policy: MaxmemoryPolicy) -> Option<usize> {
        let all: usize = (0..self.dbs.len()).map(|db| self.candidates(db, policy)).sum();
        let mut at = (all > 0).then(|| self.rng.usize(..all))?;
        (0..self.dbs.len()).find(|db| {
            let db = *db;
            let candidates = self.candidates(db, policy);
            let is_here = at < candidates;
            at = at.saturating_sub(candidates);
            is_here
        })
    }

    /// Takes keys of a block out, but those that are held or protected, or dead and seen by somebody.
    fn take_out_of(
        &mut self,
        db: usize,
        block: u32,
        slots: impl Iterator<Item = u16>,
        bytes: usize,
        now: Now,
        is_held: IsHeld,
    ) -> usize {
        let protects = self.protects_keys();
        let may_go: Vec<u16> = slots
            .filter(|slot| {
                let found = self.dbs[db].in_slot(block, *slot, now.ms);
                found.is_some_and(|(entry, is_dead)| {
                    let is_kept = || protects && self.is_protected(db, entry.key());
                    !is_dead && !is_held(self.hasher.hash(entry.key())) && !is_kept()
                })
            })
            .collect();
        let Keyspace { dbs, hasher, nodes, effects, leases, .. } = self;
        let table = &mut dbs[db];
        let count = table.take_out_some(block, may_go.into_iter(), bytes, |entry, deadline_ms| {
            let hash = hasher.hash(entry.key());
            leases.end(db, hash);
            effects.save_first(db, hash, || entry.key(), || Some(nodes.was(entry, deadline_ms)));
            effects.goes_first(db, || hasher.key(entry.key()));
            effects.departs(db, entry.key());
            effects.record(db, entry.key(), Change::evicted());
            nodes.bytes_of(entry)
        });
        nodes.adopt(table);
        self.counters.evicted += count as u64;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, NotifyFlags};
    use crate::keyspace::{Event, Hasher, Notice, Touch, Value};

    const SECOND_MS: u64 = 1000;
    const NOBODY: IsHeld = &|_| false;

    fn keyspace(policy: MaxmemoryPolicy) -> Keyspace {
        let mut keyspace = Keyspace::new(3, Hasher::new(5, 1));
        let mut config = Config::default();
        config.maxmemory_policy = policy;
        keyspace.set_clocking(Clocking::of(&config));
        keyspace
    }

    fn at(seconds: u64) -> Now {
        Now::from_ms((1_000_000 + seconds) * SECOND_MS)
    }

    fn insert(keyspace: &mut Keyspace, name: &str, bytes: usize, deadline_ms: Option<u64>, now: Now) {
        let hasher = keyspace.hasher().clone();
        keyspace.insert(0, hasher.key(name.as_bytes()), Value::Bytes(&vec![b'x'; bytes]), deadline_ms, now);
        keyspace.effects.close_all();
    }

    fn has(keyspace: &Keyspace, name: &str, now: Now) -> bool {
        keyspace.peek(0, keyspace.hasher().key(name.as_bytes()), now).is_some()
    }

    fn how(policy: MaxmemoryPolicy) -> Eviction {
        Eviction { policy, samples: 5, limit: u64::MAX }
    }

    /// Evicts until the keyspace has no more than so many bytes; how many keys went.
    fn shrink(keyspace: &mut Keyspace, policy: MaxmemoryPolicy, to: usize, now: Now) -> usize {
        let mut count = 0;
        while keyspace.bytes() > to {
            let bytes = keyspace.bytes() - to;
            let gone = keyspace.evict(how(policy), bytes, now, NOBODY).count;
            assert!(gone > 0, "there are keys left");
            while keyspace.collect_garbage(1000) {}
            count += gone;
        }
        keyspace.check();
        count
    }

    #[test]
    fn memory_comes_back_with_about_as_many_keys_as_have_it() {
        for bytes in [8, 32, 100, 300, 600, 2000] {
            let mut keyspace = keyspace(MaxmemoryPolicy::AllkeysLru);
            let count = if cfg!(miri) { 300 } else { 20_000 };
            (0..count).for_each(|i| insert(&mut keyspace, &format!("key{i}"), bytes, None, at(0)));
            let before = keyspace.bytes();
            let gone = shrink(&mut keyspace, MaxmemoryPolicy::AllkeysLru, before * 9 / 10, at(1));
            assert!(gone * 100 < count * 14, "{gone} of {count} keys of {bytes} bytes for a tenth of the memory");
            assert_eq!(keyspace.counters.evicted, gone as u64);
        }
    }

    #[test]
    fn those_go_that_were_not_used() {
        for policy in [MaxmemoryPolicy::AllkeysLru, MaxmemoryPolicy::AllkeysLfu, MaxmemoryPolicy::AllkeysLrm] {
            let mut keyspace = keyspace(policy);
            let hasher = keyspace.hasher().clone();
            (0..20_000).for_each(|i| insert(&mut keyspace, &format!("key{i}"), 32, None, at(0)));
            let touch = Touch::new(true, false, false);
            for round in 1..20 {
                for i in (0..20_000).step_by(2) {
                    let (name, now) = (format!("key{i}"), at(round));
                    if policy == MaxmemoryPolicy::AllkeysLrm {
                        insert(&mut keyspace, &name, 32, None, now);
                    } else {
                        assert!(keyspace.find(0, hasher.key(name.as_bytes()), now, touch).is_some());
                    }
                }
            }
            if policy == MaxmemoryPolicy::AllkeysLrm {
                // That they are read is nothing to it.
                for i in (1..20_000).step_by(2) {
                    assert!(keyspace.find(0, hasher.key(format!("key{i}").as_bytes()), at(20), touch).is_some());
                }
            }
            let to = keyspace.bytes() * 3 / 4;
            let gone = shrink(&mut keyspace, policy, to, at(20));
            let used_gone = (0..20_000).step_by(2).filter(|i| !has(&keyspace, &format!("key{i}"), at(20))).count();
            assert!(used_gone * 100 < gone * 2, "{policy:?}: {used_gone} that were used, of {gone}");
        }
    }

    /// The clocks of old keys said nothing in the new meaning: they had frequencies of 0 to 255 by chance.
    #[test]
    fn old_keys_begin_like_new_ones_where_frequencies_are_counted_from_now_on() {
        let touch = Touch::new(true, false, false);
        let mut keyspace = keyspace(MaxmemoryPolicy::AllkeysLru);
        let hasher = keyspace.hasher().clone();
        (0..3000).for_each(|i| insert(&mut keyspace, &format!("key{i}"), 32, None, at(i)));
        let mut config = Config::default();
        config.maxmemory_policy = MaxmemoryPolicy::AllkeysLfu;
        let clocking = Clocking::of(&config);
        keyspace.set_clocking(clocking);
        let now = at(3000);
        let frequency = |keyspace: &mut Keyspace, name: &str| {
            let live = keyspace.find(0, hasher.key(name.as_bytes()), now, Touch::NOTHING).expect("it is there");
            clocking.frequency(live.clock(), now)
        };
        assert!((0..3000).all(|i| frequency(&mut keyspace, &format!("key{i}")) == 5), "at once");
        // Some keys are used and new ones come while clocks are renewed.
        for step in 0.. {
            insert(&mut keyspace, &format!("new{step}"), 32, None, now);
            assert_eq!(frequency(&mut keyspace, &format!("new{step}")), 5);
            let used = hasher.key(b"key7");
            assert!(keyspace.find(0, used, now, touch).is_some());
            if !keyspace.renew_clocks(now) {
                break;
            }
        }
        assert!((0..3000).filter(|i| *i != 7).all(|i| frequency(&mut keyspace, &format!("key{i}")) == 5));
        assert!(frequency(&mut keyspace, "key7") >= 5);
        // And back: when a key was used last is known to the minute.
        keyspace.set_clocking(Clocking::of(&Config::default()));
        let later = at(3000 + 600);
        let idle_s = |keyspace: &mut Keyspace| {
            keyspace.find(0, hasher.key(b"key9"), later, Touch::NOTHING).expect("it is there").idle_s()
        };
        assert!((540..=660).contains(&idle_s(&mut keyspace)));
        // The meaning changes back once more on the way.
        keyspace.renew_clocks(later);
        keyspace.set_clocking(clocking);
        while keyspace.renew_clocks(later) {}
        let live = keyspace.find(0, hasher.key(b"key9"), later, Touch::NOTHING).expect("it is there");
        assert!(clocking.frequency(live.clock(), later) <= 5);
        keyspace.check();
    }

    #[test]
    fn keys_without_deadlines_are_spared() {
        for policy in [MaxmemoryPolicy::VolatileLru, MaxmemoryPolicy::VolatileRandom, MaxmemoryPolicy::VolatileTtl] {
            let mut keyspace = keyspace(policy);
            assert!(!keyspace.has_victims(policy, at(1)));
            for i in 0..3000 {
                let deadline_ms = (i % 300 == 7).then_some(at(1000).ms);
                insert(&mut keyspace, &format!("key{i}"), 32, deadline_ms, at(0));
            }
            assert!(keyspace.has_victims(policy, at(1)));
            while keyspace.evict(how(policy), 1, at(1), NOBODY).count > 0 {}
            assert_eq!((keyspace.len(0), keyspace.counters.evicted), (2990, 10), "{policy:?}");
            keyspace.check();
        }
    }

    /// Near deadlines, and those that are out of the columns' reach.
    #[test]
    fn deadlines_go_in_their_order() {
        let policy = MaxmemoryPolicy::VolatileTtl;
        let mut keyspace = keyspace(policy);
        let mut rng = fastrand::Rng::with_seed(3);
        let mut expected = Vec::new();
        for i in 0..4000u64 {
            let life_s = match i % 4 {
                0 => rng.u64(10..1000),
                1 => rng.u64(10..10_000_000),
                _ => rng.u64(10..1_000_000_000),
            };
            let deadline_ms = at(life_s).ms + i % 1000;
            insert(&mut keyspace, &format!("key{i}"), 20, Some(deadline_ms), at(0));
            expected.push(deadline_ms);
        }
        expected.sort_unstable();
        keyspace.effects.set_wanted(NotifyFlags::EVICTED);
        let hasher = keyspace.hasher().clone();
        let mut gone: Vec<u64> = Vec::new();
        while gone.len() < 3500 {
            let before = gone.len();
            let names: Vec<(Vec<u8>, u64)> = {
                let mut all = Vec::new();
                keyspace.for_each(0, at(1), |key, _, deadline_ms| all.push((key.to_vec(), deadline_ms.unwrap())));
                all
            };
            assert!(keyspace.evict(how(policy), 1, at(1), NOBODY).count > 0);
            let left = |name: &[u8]| keyspace.peek(0, hasher.key(name), at(1)).is_some();
            let mut now_gone: Vec<u64> =
                names.iter().filter(|(name, _)| !left(name)).map(|(_, at_ms)| *at_ms).collect();
            now_gone.sort_unstable();
            gone.extend(now_gone);
            assert_eq!(gone, expected[..gone.len()], "behind {before}");
        }
        keyspace.check();
    }

    /// Another shard has keys that are worth as much as the limit: that is how far this one goes.
    #[test]
    fn keys_that_are_worth_more_than_those_of_another_shard_stay() {
        let policy = MaxmemoryPolicy::VolatileTtl;
        let mut by_deadline = keyspace(policy);
        for i in 0..100 {
            insert(&mut by_deadline, &format!("key{i}"), 32, Some(at(1000 + i).ms), at(0));
        }
        let how_far = |limit| Eviction { limit, ..how(policy) };
        while by_deadline.evict(how_far(at(1009).ms), 64, at(1), NOBODY).count > 0 {}
        assert_eq!(by_deadline.counters.evicted, 10);
        let next = by_deadline.evict(how_far(at(1009).ms), 64, at(1), NOBODY).next.expect("there are more");
        assert_eq!(next.from, at(1010).ms);
        assert!((at(1010).ms..at(1099).ms).contains(&next.until), "{next:?}");
        while by_deadline.evict(how_far(u64::MAX), 64, at(1), NOBODY).count > 0 {}
        assert_eq!((by_deadline.len(0), by_deadline.evict(how_far(u64::MAX), 64, at(1), NOBODY).next), (0, None));

        let policy = MaxmemoryPolicy::AllkeysLru;
        let mut by_use = keyspace(policy);
        (0..1000).for_each(|i| insert(&mut by_use, &format!("key{i}"), 32, None, at(100)));
        let how_far = |limit| Eviction { limit, ..how(policy) };
        let none = by_use.evict(how_far(at(50).ms), 64, at(100), NOBODY);
        assert_eq!((none.count, none.next.map(|next| next.until)), (0, Some(at(100).ms)));
        assert!(by_use.evict(how_far(at(100).ms), 64, at(100), NOBODY).count > 0);

        let policy = MaxmemoryPolicy::AllkeysLfu;
        let mut by_frequency = keyspace(policy);
        (0..1000).for_each(|i| insert(&mut by_frequency, &format!("key{i}"), 32, None, at(100)));
        let how_far = |frequency| Eviction { limit: frequency * WORTH_OF_A_COUNT, ..how(policy) };
        assert_eq!(by_frequency.evict(how_far(4), 64, at(100), NOBODY).count, 0);
        assert!(by_frequency.evict(how_far(5), 64, at(100), NOBODY).count > 0);
    }

    /// In several databases, most keys renewed since, and on both sides of the columns' reach.
    #[test]
    fn deadlines_go_in_their_order_whatever_they_were_before() {
        let policy = MaxmemoryPolicy::VolatileTtl;
        let mut keyspace = keyspace(policy);
        let hasher = keyspace.hasher().clone();
        let mut rng = fastrand::Rng::with_seed(5);
        let count = if cfg!(miri) { 200 } else { 30_000 };
        let mut expected = Vec::new();
        for i in 0..count {
            let (db, name) = (i % 3, format!("key{i}"));
            for round in 0..1 + usize::from(i % 10 > 0) {
                let life_s = if i % 100 == 0 { rng.u64(5_000_000..9_000_000) } else { rng.u64(10..100) };
                let deadline_ms = at(life_s + round as u64 * 4_200_000).ms;
                keyspace.insert(db, hasher.key(name.as_bytes()), Value::Int(1), Some(deadline_ms), at(0));
                if round == usize::from(i % 10 > 0) {
                    expected.push(deadline_ms);
                }
            }
            keyspace.effects.close_all();
        }
        expected.sort_unstable();
        while keyspace.counters.evicted < count as u64 {
            assert!(keyspace.evict(how(policy), 2000, at(1), NOBODY).count > 0);
            let left = (0..3).flat_map(|db| keyspace.dbs[db].nearest(1).0.first().map(|near| near.deadline_ms)).min();
            let next = expected.get(keyspace.counters.evicted as usize).copied();
            assert_eq!(left, next, "after {}", keyspace.counters.evicted);
        }
        keyspace.check();
    }

    #[test]
    fn what_is_held_or_dead_stays_and_all_others_are_told() {
        let policy = MaxmemoryPolicy::AllkeysRandom;
        let mut keyspace = keyspace(policy);
        keyspace.effects.set_wanted(NotifyFlags::EVICTED);
        let hasher = keyspace.hasher().clone();
        insert(&mut keyspace, "held", 5000, None, at(0));
        insert(&mut keyspace, "dead", 5000, Some(at(1).ms), at(0));
        insert(&mut keyspace, "other", 5000, None, at(0));
        let watch = keyspace.watch(0, b"other", at(0));
        let held = hasher.hash(b"held");
        let is_held = |hash| hash == held;
        while keyspace.evict(how(policy), 1, at(2), &is_held).count > 0 {}
        assert!(has(&keyspace, "held", at(2)));
        assert_eq!((keyspace.len(0), keyspace.counters.evicted), (2, 1));
        assert_eq!(
            keyspace.effects.take(),
            [Notice { db: 0, event: Event::Evicted, key: b"other".as_slice().into(), elements: Box::default() }]
        );
        let watched = [(0, &b"other"[..], watch)];
        assert!(!keyspace.end_watches(watched.into_iter(), at(2)), "a key that is watched has changed");
    }
}
