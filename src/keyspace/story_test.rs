//! Stories of the keyspace as a whole; what concerns one column or one entry stands beside it.

use super::*;
use crate::clock::Clock;
use crate::config::NotifyFlags;
use crate::table::block::{EMPTY_BLOCK_BYTES, SLOTS_MAX};
use crate::value::zset::{Edit, Zset};

/// Pointers in the directory of an emptied database, at most.
const DIRECTORY_LEFT: usize = 8;
const DAY_MS: u64 = 24 * 3600 * 1000;
const VALUE: Value = Value::Bytes(b"value");

struct Fixture {
    keyspace: Keyspace,
    clock: Clock,
}

impl Fixture {
    fn new() -> Fixture {
        let mut keyspace = Keyspace::new(1, Hasher::new(11, 1));
        keyspace.effects.set_wanted(NotifyFlags::EXPIRED);
        Fixture { keyspace, clock: Clock::manual(100 * DAY_MS) }
    }

    fn set(&mut self, key: &[u8], ttl_ms: Option<u64>) {
        let now = self.clock.now();
        let key = self.keyspace.hasher().key(key);
        self.keyspace.insert(0, key, VALUE, ttl_ms.map(|ttl_ms| now.ms + ttl_ms), now);
    }

    fn fill(&mut self, keys: std::ops::Range<u32>, ttl_ms: impl Fn(u32) -> Option<u64>) {
        keys.for_each(|n| self.set(&n.to_le_bytes(), ttl_ms(n)));
    }

    fn remove(&mut self, key: &[u8]) {
        let key = self.keyspace.hasher().key(key);
        assert!(self.keyspace.remove(0, key, self.clock.now()));
    }

    fn remove_all(&mut self, keys: std::ops::Range<u32>) {
        keys.for_each(|n| self.remove(&n.to_le_bytes()));
    }

    fn blocks(&self) -> usize {
        self.keyspace.dbs[0].blocks().count()
    }

    /// Everything that is due, in slices.
    fn purge(&mut self, limit: usize) -> Vec<Swept> {
        let now = self.clock.now();
        let mut slices = Vec::new();
        while let Some((_, db, _)) = self.keyspace.earliest().filter(|(at_ms, ..)| *at_ms < now.ms) {
            slices.push(self.keyspace.sweep_earliest(db, now.ms, now, limit));
        }
        slices
    }
}

const MANY: u32 = if cfg!(miri) { 2_000 } else { 200_000 };
/// Enough for several blocks.
const SOME: u32 = if cfg!(miri) { 1_500 } else { 20_000 };

#[test]
fn a_big_database_shrinks_to_one_block_when_all_is_deleted() {
    let mut fixture = Fixture::new();
    let empty_bytes = fixture.keyspace.bytes();
    fixture.fill(0..MANY, |n| n.is_multiple_of(2).then_some(DAY_MS));
    let blocks = fixture.blocks();
    assert!(blocks > MANY as usize / SLOTS_MAX, "{blocks}");
    fixture.remove_all(0..MANY);
    assert_eq!(fixture.blocks(), 1);
    let pointers = DIRECTORY_LEFT * size_of::<usize>();
    assert!(fixture.keyspace.bytes() <= empty_bytes + EMPTY_BLOCK_BYTES + pointers);
    fixture.keyspace.check();
}

#[test]
fn a_big_database_shrinks_to_one_block_when_all_has_died() {
    let mut fixture = Fixture::new();
    let empty_bytes = fixture.keyspace.bytes();
    fixture.fill(0..MANY, |n| Some(u64::from(n)));
    fixture.clock.advance_ms(DAY_MS);
    let slices = fixture.purge(64);
    assert_eq!(slices.iter().map(|swept| swept.deleted).sum::<usize>(), MANY as usize);
    assert_eq!(fixture.blocks(), 1);
    let pointers = DIRECTORY_LEFT * size_of::<usize>();
    assert!(fixture.keyspace.bytes() <= empty_bytes + EMPTY_BLOCK_BYTES + pointers);
    fixture.keyspace.check();
}

#[test]
fn a_sweep_keeps_within_its_limit() {
    for limit in [1, 7, 64, SLOTS_MAX] {
        let mut fixture = Fixture::new();
        fixture.fill(0..SOME, |_| Some(1));
        fixture.clock.advance_ms(10);
        let blocks = fixture.blocks();
        let slices = fixture.purge(limit);
        assert!(slices.iter().all(|swept| swept.deleted <= limit));
        // No more slices than the work needs: full ones, and at most one more a block.
        assert!(slices.len() <= SOME as usize / limit + blocks, "{} slices of {limit}", slices.len());
        assert_eq!(fixture.keyspace.effects.take().len(), SOME as usize);
    }
}

/// A shard slept for 61 days (or its machine did), and a far deadline passed meanwhile. Moving the base to the
/// present made it a deadline of the present: the key stayed for another tick, and its lag was that of one tick.
#[test]
fn a_far_deadline_that_passed_unseen_keeps_its_moment() {
    let mut fixture = Fixture::new();
    fixture.set(b"far", Some(60 * DAY_MS));
    fixture.clock.advance_ms(61 * DAY_MS);
    assert_eq!(fixture.purge(64).iter().map(|swept| swept.deleted).sum::<usize>(), 1);
    let (lag_us, expected_us) = (fixture.keyspace.lag.max_us(), DAY_MS * 1000);
    assert!(lag_us.abs_diff(expected_us) < expected_us / 50, "{lag_us}");
}

/// A transaction carries the moment at which it began, which may be before the moment to which a block's column
/// counts: its deadline became the column's zero, later than what was asked for.
#[test]
fn a_command_from_a_moment_ago_sets_the_deadline_it_says() {
    let mut fixture = Fixture::new();
    let began = fixture.clock.now();
    fixture.clock.advance_ms(5);
    fixture.set(b"first", Some(1000));
    let key = fixture.keyspace.hasher().key(b"second");
    fixture.keyspace.insert(0, key, VALUE, Some(began.ms + 1), began);
    let live = fixture.keyspace.find(0, key, began, Touch::NOTHING).expect("alive at that moment");
    assert_eq!(live.deadline_ms(), Some(began.ms + 1));
}

/// Whether two blocks may merge was judged by the bases of their columns even where a column was empty, so blocks
/// that had counted from moments more than the column's reach apart stayed apart for good.
#[test]
fn empty_blocks_merge_whatever_their_columns_counted_from() {
    let mut fixture = Fixture::new();
    fixture.fill(0..SOME, |_| None);
    // Some blocks begin to count now, 100 days after those that never saw a deadline.
    fixture.fill(SOME..SOME + 20, |_| Some(1));
    fixture.clock.advance_ms(DAY_MS);
    fixture.purge(64);
    for since_ms in [1, 0] {
        let blocks = fixture.keyspace.dbs[0].blocks().filter(|block| block.base_ms() >= since_ms);
        let keys = blocks.flat_map(|block| block.full_slots().map(|slot| block.entry(slot).key().to_vec()));
        keys.collect::<Vec<_>>().into_iter().for_each(|key| fixture.remove(&key));
    }
    assert_eq!(fixture.blocks(), 1);
}

/// The bytes of a flushed database were counted as blocks less free places of blocks, and while it was dismantled the
/// blocks became fewer than the places. Its entries counted until the last of them was freed.
#[test]
fn memory_of_a_flushed_database_is_counted_down_as_it_is_given_back() {
    let mut fixture = Fixture::new();
    let empty_bytes = fixture.keyspace.bytes();
    fixture.fill(0..2 * SOME, |_| None);
    fixture.remove_all(SOME / 20..2 * SOME);
    fixture.keyspace.flush(0, fixture.clock.now());
    let mut last_bytes = fixture.keyspace.bytes();
    while fixture.keyspace.collect_garbage(50) {
        let bytes = fixture.keyspace.bytes();
        assert!(bytes < last_bytes);
        last_bytes = bytes;
    }
    assert_eq!(fixture.keyspace.bytes(), empty_bytes);
}

/// The pointer in the new entry was made of a shared reference to the node, and then written through. Miri sees that.
#[test]
fn a_collection_is_changed_where_it_has_come() {
    let mut fixture = Fixture::new();
    let (now, hasher) = (fixture.clock.now(), fixture.keyspace.hasher().clone());
    let (from, to) = (hasher.key(b"from"), hasher.key(b"to"));
    let mut zset = Zset::default();
    zset.insert(b"a", 1.0);
    let keyspace = &mut fixture.keyspace;
    keyspace.insert_owned(0, from, Owned::node(zset), None, now);
    let value = keyspace.edit(0, from, now, Touch::NOTHING).expect("it is there").take();
    keyspace.insert_owned(0, to, value, None, now);
    let mut live = keyspace.edit(0, to, now, Touch::NOTHING).expect("it has come");
    let add = |zset: &mut Zset| {
        zset.insert(b"b", 2.0);
        zset.len()
    };
    assert_eq!(live.change_node(add), Some(2));
    assert!(keyspace.nodes.bytes > 0);
    assert!(keyspace.remove(0, to, now));
    assert_eq!(keyspace.nodes.bytes, 0);
}
