//! When does each block have to be looked at next, and which one first: a tree over the earliest deadlines of the
//! blocks, in which each node is the least of the eight below it (one cache line).
//!
//! ```text
//!  levels[2]                 [ 7 ]
//!  levels[1]        [ 7  12  9 ]
//!  levels[0]  [ 7 8 9 .. | 12 .. | 9 ]     one a block
//! ```
//!
//! Lowering goes up as far as it lowers something. Raising (after a sweep) reads one cache line a level, as does
//! finding the earliest. A minimum may be too early (its key was deleted, or its deadline moved later), never too
//! late: a false wake-up is mended by the sweep that follows.

use super::block::NEVER_MS;

const FAN: usize = 8;

pub struct Minima {
    /// From the blocks up to a level of one node; each is filled up to whole groups of [`FAN`].
    levels: Vec<Vec<u64>>,
    /// The least of the top level: looked at after every turn, so it stands here.
    earliest_ms: u64,
}

impl Minima {
    pub fn new() -> Minima {
        Minima { levels: vec![vec![NEVER_MS; FAN]], earliest_ms: NEVER_MS }
    }

    /// Makes room for block `id`.
    pub fn grow(&mut self, id: u32) {
        let mut needed = id as usize + 1;
        let mut level = 0;
        while needed > self.levels[level].len() {
            self.levels[level].resize(needed.next_multiple_of(FAN), NEVER_MS);
            needed = self.levels[level].len() / FAN;
            level += 1;
            if level == self.levels.len() {
                let least = least(&self.levels[level - 1][..FAN]);
                self.levels.push(vec![NEVER_MS; FAN]);
                self.levels[level][0] = least;
            }
        }
    }

    #[inline]
    pub fn get(&self, id: u32) -> u64 {
        self.levels[0][id as usize]
    }

    /// A deadline in the block is now this early.
    #[inline]
    pub fn lower(&mut self, id: u32, at_ms: u64) {
        let mut index = id as usize;
        for level in &mut self.levels {
            if level[index] <= at_ms {
                return;
            }
            level[index] = at_ms;
            index /= FAN;
        }
        self.earliest_ms = at_ms.min(self.earliest_ms);
    }

    /// The block's exact minimum after a sweep, split or merge.
    pub fn set(&mut self, id: u32, at_ms: u64) {
        let (mut index, mut at_ms) = (id as usize, at_ms);
        for level in &mut self.levels {
            if std::mem::replace(&mut level[index], at_ms) == at_ms {
                return;
            }
            let first = index / FAN * FAN;
            at_ms = least(&level[first..first + FAN]);
            index /= FAN;
        }
        self.earliest_ms = at_ms;
    }

    /// The earliest minimum.
    #[inline]
    pub fn earliest_ms(&self) -> u64 {
        self.earliest_ms
    }

    /// The earliest minimum and its block.
    pub fn earliest(&self) -> Option<(u64, u32)> {
        let earliest_ms = self.earliest_ms;
        if earliest_ms == NEVER_MS {
            return None;
        }
        let mut index = 0;
        for level in self.levels.iter().rev() {
            let group = &level[index * FAN..index * FAN + FAN];
            index = index * FAN + group.iter().position(|&at_ms| at_ms == earliest_ms)?;
        }
        Some((earliest_ms, index as u32))
    }

    /// The blocks in which something may be due some day.
    pub fn with_deadlines(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.levels[0]).filter(|(_, at_ms)| **at_ms < NEVER_MS).map(|(id, _)| id)
    }

    /// How many levels there are; above the last is one node.
    pub(super) fn height(&self) -> usize {
        self.levels.len()
    }

    /// The nodes of which one of a level is the least; the blocks for the first level.
    pub(super) fn below(&self, level: usize, index: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
        let first = index * FAN;
        self.levels[level - 1][first..first + FAN]
            .iter()
            .enumerate()
            .map(move |(within, at_ms)| (first + within, *at_ms))
    }

    /// Takes out the earliest blocks whose minimum is before `before_ms`, at most `limit`: each has to be set again.
    pub fn take(&mut self, before_ms: u64, limit: usize, out: &mut Vec<u32>) {
        for _ in 0..limit {
            let Some((_, id)) = self.earliest().filter(|(at_ms, _)| *at_ms < before_ms) else { return };
            self.set(id, NEVER_MS);
            out.push(id);
        }
    }

    /// The blocks whose minimum is before `before_ms`.
    pub fn due(&self, before_ms: u64) -> impl Iterator<Item = u32> + '_ {
        let groups = self.levels[0].chunks_exact(FAN).enumerate();
        groups.filter(move |(_, group)| least(group) < before_ms).flat_map(move |(number, group)| {
            let due = group.iter().enumerate().filter(move |(_, at_ms)| **at_ms < before_ms);
            due.map(move |(within, _)| (number * FAN + within) as u32)
        })
    }
}

fn least(values: &[u64]) -> u64 {
    values.iter().copied().min().unwrap_or(NEVER_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_found_whatever_was_lowered_and_raised() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut minima = Minima::new();
        let mut model = Vec::new();
        for step in 0..20_000 {
            let id = if step % 50 == 0 || model.is_empty() {
                minima.grow(model.len() as u32);
                model.push(NEVER_MS);
                model.len() - 1
            } else {
                rng.usize(..model.len())
            };
            let at_ms = rng.u64(0..1000);
            if rng.bool() {
                minima.lower(id as u32, at_ms);
                model[id] = model[id].min(at_ms);
            } else {
                let at_ms = if at_ms < 100 { NEVER_MS } else { at_ms };
                minima.set(id as u32, at_ms);
                model[id] = at_ms;
            }
            let least = *model.iter().min().unwrap();
            assert_eq!(minima.earliest_ms(), least);
            match minima.earliest() {
                None => assert_eq!(least, NEVER_MS),
                Some((at_ms, id)) => assert_eq!((at_ms, model[id as usize]), (least, least)),
            }
            if step % 97 == 0 {
                let due: Vec<u32> = minima.due(300).collect();
                let expected: Vec<u32> = (0..model.len() as u32).filter(|&id| model[id as usize] < 300).collect();
                assert_eq!(due, expected);
            }
        }
    }
}
