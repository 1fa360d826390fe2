//! SCAN: every key that is there from the first call to the last is returned exactly once, whatever is inserted,
//! deleted, split or merged meanwhile.
//!
//! A scan walks two coordinates that a key never changes: the position on the directory's line in steps of
//! 2^-depth, and inside such a step eight other bits of its hash, cut into 2^cuts parts. Both step widths are chosen
//! when the scan starts, from the number of keys and COUNT, and travel in the cursor. A writer that makes the
//! table grow makes later steps return more keys, not more steps, so it cannot outrun a scan; only where a step has
//! come to span sixteen blocks is it divided otherwise, at a boundary where no key can be missed.
//!
//! ```text
//!  cursor  | 0..8 shard | 8..17 widths: 9 * depth + cuts | 17.. part (as many bits as cuts), position (backwards) |
//! ```
//! Zero is the start of the first shard and the end of the scan. The position is written backwards, from its first bit
//! up, since its last ones are zero: so a cursor has 17 bits more than there are bits in the number of steps. Some
//! clients keep cursors in doubles, which lose the end of what is above 2^53, and scripts print no more than 14 digits of
//! a number.

use super::block::{Block, SLOTS_MAX};
use super::table::Table;

const MAX_DEPTH: u32 = 32;
const MAX_CUTS: u32 = 8;
const WIDTHS_A_DEPTH: u32 = MAX_CUTS + 1;
/// A step that spans more blocks than this is cut finer.
const BLOCKS_A_STEP: usize = 16;
/// Slots a call looks at for each key asked for, and those of a whole step beside them.
const SLOTS_A_KEY: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub shard: usize,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The start of a shard, after one that was walked in 2^bits steps (none: zero).
    Start {
        bits: u32,
    },
    Step(Step),
}

/// Where to go on: a part of the keys whose positions start with `depth` bits of `position`. The lower bits of `position`
/// are zero, but for a step that a call left halfway: it has shown the keys of this part in front of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    position: u32,
    depth: u32,
    cuts: u32,
    part: u32,
}

impl Cursor {
    pub fn start(shard: usize) -> Cursor {
        Cursor { shard, at: At::Start { bits: 0 } }
    }

    /// Any number a client sends is a cursor: what it could not have got from here is bent into range.
    pub fn from_u64(cursor: u64) -> Cursor {
        let shard = (cursor & 0xff) as usize;
        let widths = (cursor >> 8 & 0x1ff) as u32;
        let (depth, cuts) = ((widths / WIDTHS_A_DEPTH).min(MAX_DEPTH), widths % WIDTHS_A_DEPTH);
        let place = cursor >> 17;
        let part = place as u32 & ((1 << cuts) - 1);
        let position = ((place >> cuts) as u32).reverse_bits();
        let at = match (position, part) {
            (0, 0) => At::Start { bits: widths.min(MAX_DEPTH + MAX_CUTS) },
            _ => At::Step(Step { position, depth, cuts, part }),
        };
        Cursor { shard, at }
    }

    pub fn to_u64(self) -> u64 {
        let (widths, place) = match self.at {
            At::Start { bits } => (bits, 0),
            At::Step(Step { position, depth, cuts, part }) => {
                debug_assert_ne!((position, part), (0, 0), "a start");
                (depth * WIDTHS_A_DEPTH + cuts, u64::from(position.reverse_bits()) << cuts | u64::from(part))
            }
        };
        self.shard as u64 | u64::from(widths) << 8 | place << 17
    }

    /// The same place on another shard; on the first one for what has no shards.
    pub fn on_shard(self, shard: usize) -> Cursor {
        Cursor { shard, ..self }
    }

    /// The start of the next shard. `bits` is how finely this one was walked: that one is not walked much more finely,
    /// so that a writer who made it grow meanwhile does not make the scan longer.
    fn next_shard(self, bits: u32) -> Cursor {
        Cursor { shard: self.shard + 1, at: At::Start { bits } }
    }
}

/// The upper `depth` bits of 32.
fn mask(depth: u32) -> u32 {
    if depth == 0 { 0 } else { u32::MAX << (32 - depth) }
}

impl Table {
    /// Goes on from `cursor` until `count` keys were shown to `each` (slots of full blocks, dead or alive), or until it
    /// has looked at enough blocks. Returns how many those were, and where to go on: the next shard where this database
    /// has been walked to its end.
    pub fn scan(&self, cursor: Cursor, count: usize, mut each: impl FnMut(&Block, usize)) -> (usize, Cursor) {
        let mut step = match cursor.at {
            At::Start { bits } => self.first_step(count, bits),
            At::Step(step) => step,
        };
        let mut shown = 0;
        let mut looks = 0;
        while looks < most_looks(count) && (shown < count || self.is_to_be_ended(&step)) {
            self.refine(&mut step);
            looks += 1;
            let next = self.look(&step, count.saturating_sub(shown).max(1), &mut |block, slot| {
                shown += 1;
                each(block, slot);
            });
            match next {
                None => return (looks, cursor.next_shard(step.depth + step.cuts)),
                Some(next) => step = next,
            }
        }
        (looks, Cursor { shard: cursor.shard, at: At::Step(step) })
    }

    /// Step widths for a new scan: as many steps as give about `count` keys each, but not many more than the shard
    /// before had.
    fn first_step(&self, count: usize, bits_before: u32) -> Step {
        let steps = (self.len() / count.max(1)).max(1);
        let bits = if bits_before == 0 { steps.ilog2() } else { steps.ilog2().min(bits_before + 1) };
        let depth = bits.min(u32::from(self.bits)).min(MAX_DEPTH);
        Step { position: 0, depth, cuts: (bits - depth).min(MAX_CUTS), part: 0 }
    }

    /// Where the table has grown much since the scan started: steps of fewer blocks from here on, but with fewer cuts,
    /// so that there are not more of them while there are cuts left. Where all keys in front of the position have been
    /// shown and none behind it, steps of any width may go on from there.
    fn refine(&self, step: &mut Step) {
        let is_clean = step.part == 0 && (step.cuts == 0 || !step.is_halfway());
        if is_clean && self.is_too_wide(step) && self.len() > BLOCKS_A_STEP * SLOTS_MAX {
            let spanned = u32::from(self.bits) - step.depth;
            step.depth = (step.depth + spanned).min(MAX_DEPTH);
            step.cuts = step.cuts.saturating_sub(spanned);
        }
    }

    fn is_too_wide(&self, step: &Step) -> bool {
        u32::from(self.bits).saturating_sub(step.depth) > BLOCKS_A_STEP.ilog2()
    }

    /// Steps are not left halfway only because enough has been shown, or a writer could make a scan longer.
    fn is_to_be_ended(&self, step: &Step) -> bool {
        step.is_halfway() && !self.is_too_wide(step)
    }

    /// Shows what one block has of this step and, where it has all of it, of the steps behind it until there are
    /// `wanted` keys. Returns where to go on.
    fn look(&self, step: &Step, wanted: usize, each: &mut impl FnMut(&Block, usize)) -> Option<Step> {
        let block = self.block_of(u64::from(step.position) << 32);
        let depth = u32::from(block.depth());
        let start = (block.position() >> 32) as u32;
        let behind = (start | !mask(depth)).checked_add(1);
        // Blocks may have merged since the step was left.
        let is_left = |slot| step.position <= start || self.position(block, slot, MAX_DEPTH) >= step.position;
        if depth > step.depth {
            let is_in_part = |slot: &usize| step.part_of(block.hash_bits(*slot)) == step.part;
            block.full_slots().filter(|slot| is_in_part(slot) && is_left(*slot)).for_each(|slot| each(block, slot));
            return match behind.filter(|behind| (behind ^ step.position) & mask(step.depth) == 0) {
                Some(position) => Some(Step { position, ..*step }),
                None => step.next(),
            };
        }
        let behind = behind.map(|position| Step { position, part: 0, ..*step });
        if (step.position, step.part) == (start, 0) && block.len() <= wanted {
            block.full_slots().for_each(|slot| each(block, slot));
            return behind;
        }
        let here = (step.position & mask(step.depth), step.part);
        let place = |slot| (self.position(block, slot, step.depth), step.part_of(block.hash_bits(slot)));
        let is_here = |slot: &usize| step.part_of(block.hash_bits(*slot)) == step.part && place(*slot) == here;
        let mut shown = 0;
        for slot in block.full_slots().filter(is_here).filter(|slot| !step.is_halfway() || is_left(*slot)) {
            shown += 1;
            each(block, slot);
        }
        if shown >= wanted {
            return step.next();
        }
        let places = block.full_slots().map(|slot| (place(slot), slot));
        let mut later: Vec<_> = places.filter(|(place, _)| *place > here).collect();
        let mut next = behind;
        if later.len() > wanted - shown {
            let (position, part) = later.select_nth_unstable(wanted - shown - 1).1.0;
            later.retain(|(place, _)| *place <= (position, part));
            next = Step { position, part, ..*step }.next();
        }
        later.iter().for_each(|(_, slot)| each(block, *slot));
        next
    }

    /// The first `depth` bits of a key's position: from the block, where it knows so many, else from the key.
    fn position(&self, block: &Block, slot: usize, depth: u32) -> u32 {
        let is_known = depth <= u32::from(block.depth());
        let position = if is_known { block.position() } else { self.position_of(block.entry(slot).key()) };
        (position >> 32) as u32 & mask(depth)
    }
}

impl Step {
    /// The part in which a key with these bits is.
    fn part_of(&self, slot_bits: u8) -> u32 {
        u32::from(slot_bits) >> (8 - self.cuts)
    }

    /// Whether a call has left it before its end.
    fn is_halfway(&self) -> bool {
        self.position & !mask(self.depth) != 0
    }

    fn next(self) -> Option<Step> {
        let position = self.position & mask(self.depth);
        if self.part + 1 < 1 << self.cuts {
            return Some(Step { position, part: self.part + 1, ..self });
        }
        let position = (position | !mask(self.depth)).checked_add(1)?;
        Some(Step { position, part: 0, ..self })
    }
}

/// How many blocks a call looks at.
fn most_looks(count: usize) -> usize {
    BLOCKS_A_STEP + count.saturating_mul(SLOTS_A_KEY) / SLOTS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::entry::Value;
    use crate::table::hash::Hasher;
    use crate::table::table::NO_FIELDS;
    use std::collections::HashMap;

    #[test]
    fn cursors_survive_the_trip_and_nonsense_is_bent_into_range() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..100_000 {
            let cursor = Cursor::from_u64(rng.u64(..));
            assert_eq!(Cursor::from_u64(cursor.to_u64()), cursor);
            assert!(cursor.to_u64() < 1 << 57);
        }
        assert_eq!(Cursor::from_u64(0), Cursor::start(0));
        assert_eq!(Cursor::start(2).to_u64(), 2);
    }

    /// Whatever a client sends, a call looks at a bounded number of steps, and the calls come to an end.
    #[test]
    fn a_cursor_from_nowhere_and_any_count_end() {
        let finest = Cursor { shard: 0, at: At::Step(Step { position: 0, depth: 32, cuts: 8, part: 0 }) };
        for keys in [0, 1, 100, 5000] {
            let hasher = Hasher::new(keys, 1);
            let mut table = Table::new(hasher.clone(), NO_FIELDS);
            for i in 0..keys {
                table.insert(hasher.key(&i.to_le_bytes()), Value::Int(1), 0);
            }
            for count in [1, 10, 1000, usize::MAX] {
                let (mut cursor, mut seen, mut calls) = (finest, 0, 0);
                while cursor.shard == 0 {
                    cursor = table.scan(cursor, count, |_, _| seen += 1).1;
                    calls += 1;
                }
                assert_eq!(seen, keys, "COUNT {count}");
                assert!(calls <= 1 + 2 * keys as usize / count, "{calls} calls for {keys} keys with COUNT {count}");
            }
        }
    }

    /// Cursors of any widths, from every place: no call looks at more blocks than a step may span, and at more than ten
    /// slots for each key asked for.
    #[test]
    fn a_forged_cursor_costs_a_call_no_more_than_its_count() {
        let hasher = Hasher::new(9, 1);
        let mut table = Table::new(hasher.clone(), NO_FIELDS);
        let keys = 100_000;
        for i in 0..keys as u32 {
            table.insert(hasher.key(&i.to_le_bytes()), Value::Int(1), 0);
        }
        let mut rng = fastrand::Rng::with_seed(9);
        for _ in 0..20_000 {
            let (widths, part) = (rng.u64(0..=32 * 9 + 8), rng.u64(0..256));
            let position = rng.u64(0..1 << 32) >> rng.u32(0..32) << rng.u32(0..32) & u64::from(u32::MAX);
            let forged = (position << (widths % 9) | part) << 17 | widths << 8;
            for cursor in [forged, rng.u64(..) & !0xff] {
                for count in [1, 10, 1000] {
                    let (looks, next) = table.scan(Cursor::from_u64(cursor), count, |_, _| ());
                    let slots = looks * SLOTS_MAX;
                    assert!(slots <= BLOCKS_A_STEP * SLOTS_MAX + 10 * count, "{cursor} COUNT {count}: {slots} slots");
                    assert_ne!(next, Cursor::from_u64(cursor), "it goes on");
                }
            }
        }
    }

    /// Keys that stay, while others come and go in waves; every one that stays is seen once.
    fn scan_under_change(seed: u64) {
        let hasher = Hasher::new(seed, 1);
        let mut table = Table::new(hasher.clone(), NO_FIELDS);
        let mut rng = fastrand::Rng::with_seed(seed);
        let stay = rng.usize(0..8000);
        for i in 0..stay {
            let key = format!("stay{i}");
            table.insert(hasher.key(key.as_bytes()), Value::Int(1), 0);
        }
        let count = [1, 3, 10, 100, 1000][rng.usize(0..5)];
        let mut seen: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut others: Vec<String> = Vec::new();
        let mut growing = rng.bool();
        let mut cursor = Cursor::start(0);
        let mut calls = 0;
        loop {
            let (_, next) = table.scan(cursor, count, |block, slot| {
                *seen.entry(block.entry(slot).key().to_vec()).or_default() += 1;
            });
            if next.shard > 0 {
                break;
            }
            cursor = Cursor::from_u64(next.to_u64());
            calls += 1;
            assert!(calls < 200_000, "a scan ends");
            if rng.usize(0..20) == 0 {
                growing = !growing;
            }
            for _ in 0..rng.usize(0..300) {
                if growing && others.len() < 60_000 {
                    let key = format!("other{}", rng.u64(..));
                    if table.find(hasher.key(key.as_bytes())).is_none() {
                        table.insert(hasher.key(key.as_bytes()), Value::Int(2), 0);
                        others.push(key);
                    }
                } else if !others.is_empty() {
                    let key = others.swap_remove(rng.usize(..others.len()));
                    let slot = table.find(hasher.key(key.as_bytes())).expect("it was inserted");
                    table.remove(slot);
                }
            }
        }
        for i in 0..stay {
            let key = format!("stay{i}").into_bytes();
            assert_eq!(seen.get(&key), Some(&1), "seed {seed}, key {i}, COUNT {count}");
        }
        table.check();
    }

    #[test]
    fn every_key_that_stays_is_seen_once() {
        for seed in 0..60 {
            scan_under_change(seed);
        }
    }

    /// A step that was wide enough when the scan started comes to span many blocks, and they merge again, while a call
    /// has left it halfway.
    #[test]
    fn every_key_that_stays_is_seen_once_where_steps_are_left_halfway() {
        const STAY: usize = 400;
        const OTHERS: u64 = 30_000;
        let mut left_halfway = 0;
        for seed in 0..10 {
            let hasher = Hasher::new(seed, 1);
            let mut table = Table::new(hasher.clone(), NO_FIELDS);
            let mut rng = fastrand::Rng::with_seed(seed);
            for i in 0..STAY {
                table.insert(hasher.key(format!("stay{i}").as_bytes()), Value::Int(1), 0);
            }
            let mut seen: HashMap<Vec<u8>, usize> = HashMap::new();
            let mut cursor = Cursor::start(0);
            while cursor.shard == 0 {
                let count = rng.usize(1..4);
                let see = |block: &Block, slot| *seen.entry(block.entry(slot).key().to_vec()).or_default() += 1;
                cursor = Cursor::from_u64(table.scan(cursor, count, see).1.to_u64());
                left_halfway += usize::from(matches!(cursor.at, At::Step(step) if step.is_halfway()));
                if rng.usize(0..50) == 0 {
                    for i in 0..OTHERS {
                        let bytes = i.to_le_bytes();
                        match table.find(hasher.key(&bytes)) {
                            Some(slot) => {
                                table.remove(slot);
                            }
                            None => {
                                table.insert(hasher.key(&bytes), Value::Int(2), 0);
                            }
                        }
                    }
                }
            }
            for i in 0..STAY {
                let key = format!("stay{i}").into_bytes();
                assert_eq!(seen.get(&key), Some(&1), "seed {seed}, key {i}");
            }
        }
        assert!(left_halfway > 0);
    }

    #[test]
    fn a_call_returns_about_as_many_keys_as_asked_for() {
        let hasher = Hasher::new(5, 1);
        let mut table = Table::new(hasher.clone(), NO_FIELDS);
        for i in 0..200_000u32 {
            table.insert(hasher.key(&i.to_le_bytes()), Value::Int(1), 0);
        }
        for count in [10, 100, 1000, 10_000] {
            let mut cursor = Cursor::start(0);
            let mut most = 0;
            let mut total = 0;
            loop {
                let mut shown = 0;
                let (_, next) = table.scan(cursor, count, |_, _| shown += 1);
                most = most.max(shown);
                total += shown;
                assert!(next.to_u64() < 1 << 36, "{next:?}");
                if next.shard > 0 {
                    break;
                }
                cursor = next;
            }
            assert_eq!(total, 200_000);
            assert!(most <= 5 * count, "COUNT {count} gave {most}");
        }
    }
}
