//! When does each block have to be looked at next, and which one first: the earliest deadline of every block, and
//! above them the earliest of each group of 64 blocks.
//!
//! Lowering costs two stores. Raising (after a sweep) reads one group again. Finding the earliest reads one word for
//! each 64 blocks, some 20,000 keys. A minimum may be too early (its key was deleted, or its deadline moved later),
//! never too late: a false wake-up is mended by the sweep that follows.

use super::block::NEVER_MS;

const GROUP: usize = 64;

#[derive(Default)]
pub struct Minima {
    blocks: Vec<u64>,
    groups: Vec<u64>,
    /// Never later than the earliest of the groups.
    earliest_ms: u64,
}

impl Minima {
    pub fn new() -> Minima {
        Minima { blocks: Vec::new(), groups: Vec::new(), earliest_ms: NEVER_MS }
    }

    /// Makes room for block `id`.
    pub fn grow(&mut self, id: u32) {
        let needed = id as usize + 1;
        if self.blocks.len() < needed {
            self.blocks.resize(needed, NEVER_MS);
            self.groups.resize(needed.div_ceil(GROUP), NEVER_MS);
        }
    }

    #[inline]
    pub fn get(&self, id: u32) -> u64 {
        self.blocks[id as usize]
    }

    /// A deadline in the block is now this early.
    #[inline]
    pub fn lower(&mut self, id: u32, at_ms: u64) {
        let block = &mut self.blocks[id as usize];
        if at_ms < *block {
            *block = at_ms;
            let group = &mut self.groups[id as usize / GROUP];
            *group = at_ms.min(*group);
            self.earliest_ms = at_ms.min(self.earliest_ms);
        }
    }

    /// The block's exact minimum after a sweep, split or merge.
    pub fn set(&mut self, id: u32, at_ms: u64) {
        let index = id as usize;
        self.blocks[index] = at_ms;
        let start = index / GROUP * GROUP;
        let end = (start + GROUP).min(self.blocks.len());
        self.groups[index / GROUP] = least(&self.blocks[start..end]).0;
        self.earliest_ms = at_ms.min(self.earliest_ms);
    }

    /// Never later than the earliest deadline; cheap.
    #[inline]
    pub fn earliest_hint_ms(&self) -> u64 {
        self.earliest_ms
    }

    /// The earliest minimum and its block.
    pub fn earliest(&mut self) -> Option<(u64, u32)> {
        let (at_ms, group) = least(&self.groups);
        self.earliest_ms = at_ms;
        if at_ms == NEVER_MS {
            return None;
        }
        let start = group * GROUP;
        let end = (start + GROUP).min(self.blocks.len());
        let (at_ms, within) = least(&self.blocks[start..end]);
        Some((at_ms, (start + within) as u32))
    }

    /// The blocks whose minimum is before `before_ms`.
    pub fn due(&self, before_ms: u64) -> impl Iterator<Item = u32> + '_ {
        self.groups.iter().enumerate().filter(move |(_, at_ms)| **at_ms < before_ms).flat_map(move |(group, _)| {
            let start = group * GROUP;
            let end = (start + GROUP).min(self.blocks.len());
            (start..end).filter(move |&id| self.blocks[id] < before_ms).map(|id| id as u32)
        })
    }
}

/// The least value and its first index; the empty slice has none.
fn least(values: &[u64]) -> (u64, usize) {
    let least = values.iter().copied().min().unwrap_or(NEVER_MS);
    (least, values.iter().position(|&value| value == least).unwrap_or(0))
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
            assert!(minima.earliest_hint_ms() <= least);
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
