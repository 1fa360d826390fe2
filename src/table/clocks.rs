//! Access clocks whose meaning changes: which entries of a table have the former one still.
//!
//! Two meanings take turns. A walk over the positions gives clocks the one that is wanted, block by block; where that changes
//! back meanwhile, what had the former meaning has the wanted one, and the other way round, so that the rest is one piece of
//! the line of positions always, if that is seen as a circle.

use super::former::Former;
use super::hash::spread;
use super::table::Table;

/// All positions.
const CIRCLE: u128 = 1 << 64;

impl Table {
    /// From now on the other meaning is wanted.
    pub fn change_clocks(&mut self) {
        let former = self.former_clocks.as_deref().copied().unwrap_or(Former { from: 0, left: 0 });
        let end = former.from.wrapping_add(former.left as u64);
        let others = Former { from: end, left: CIRCLE - former.left };
        self.former_clocks = (self.len > 0 && others.left > 0).then(|| Box::new(others));
    }

    pub fn has_former_clocks(&self) -> bool {
        self.former_clocks.is_some()
    }

    /// Whether a key's clock has the former meaning.
    pub fn has_former_clock(&self, hash: u64) -> bool {
        self.former_clocks.as_ref().is_some_and(|former| former.has(spread(hash)))
    }

    /// Goes on with the walk by one block: `renew` gives clocks their meaning.
    pub fn renew_clocks(&mut self, renew: impl Fn(u32) -> u32) {
        let Some(former) = self.former_clocks.as_deref().copied() else { return };
        let block = self.block_of(former.from);
        let end = block.next_position().map_or(CIRCLE, u128::from);
        let step = Former { left: (end - u128::from(former.from)).min(former.left), ..former };
        for slot in block.full_slots() {
            let entry = block.entry(slot);
            // The piece may begin or end within the block, which others were merged into.
            if step.has(self.position_of(entry.key())) {
                entry.set_clock(renew(entry.clock()));
            }
        }
        let left = former.left - step.left;
        let from = former.from.wrapping_add(step.left as u64);
        self.former_clocks = (left > 0).then(|| Box::new(Former { from, left }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::entry::Value;
    use crate::table::hash::Hasher;
    use crate::table::table::NO_FIELDS;

    /// Clocks are 0 in one meaning and 1 in the other; keys come and go, so that blocks split and merge, and the meaning
    /// changes at any time.
    #[test]
    fn a_clock_has_the_meaning_that_the_table_says() {
        for seed in 0..if cfg!(miri) { 1 } else { 30 } {
            let (hasher, mut rng) = (Hasher::new(seed, 1), fastrand::Rng::with_seed(seed));
            let mut table = Table::new(hasher.clone(), NO_FIELDS);
            let (mut wanted, mut keys, mut renewed) = (0, Vec::new(), 0);
            for step in 0..400 {
                for _ in 0..rng.usize(..100) {
                    if rng.u32(..10) < if step < 200 { 7 } else { 3 } {
                        let name = format!("key{}", rng.u64(..));
                        let key = hasher.key(name.as_bytes());
                        let meaning = if table.has_former_clock(key.hash) { 1 - wanted } else { wanted };
                        table.insert(key, Value::Int(1), meaning);
                        keys.push(name);
                    } else if !keys.is_empty() {
                        let name = keys.swap_remove(rng.usize(..keys.len()));
                        let slot = table.find(hasher.key(name.as_bytes())).expect("it was inserted");
                        table.remove(slot);
                    }
                }
                if rng.u32(..20) == 0 && !keys.is_empty() {
                    table.change_clocks();
                    wanted = 1 - wanted;
                }
                for _ in 0..rng.usize(..3) {
                    table.renew_clocks(|clock| 1 - clock);
                    renewed += 1;
                }
                for name in &keys {
                    let key = hasher.key(name.as_bytes());
                    let slot = table.find(key).expect("it was inserted");
                    let meaning = if table.has_former_clock(key.hash) { 1 - wanted } else { wanted };
                    assert_eq!(table.entry(slot).clock(), meaning, "seed {seed}, step {step}");
                }
            }
            let mut more = 0;
            while table.has_former_clocks() {
                table.renew_clocks(|clock| 1 - clock);
                more += 1;
            }
            assert!(renewed > 0 && more <= table.block_count() + 1, "seed {seed}: {more}");
        }
    }
}
