//! Asks the cache for what several searches will read, ahead of them and a level at a time, so that their misses are waited for
//! together: the directory, the group, the entry's start, the rest of a longer entry.

use super::block::{self, Block, Print};
use super::hash::spread;
use super::table::Table;
use smallvec::SmallVec;

/// A key whose search is to come.
#[derive(Clone, Copy)]
pub struct Sought<'t> {
    pub table: &'t Table,
    pub hash: u64,
    /// Whether the key is to be changed: then more of its block is read.
    pub writes: bool,
}

/// Keys to be asked for together: enough to hide the misses of each other, few enough to still be there when they are
/// used.
pub const PREFETCHED: usize = 16;

struct InBlock {
    block: Block,
    print: Print,
    writes: bool,
    /// The slot that the search looks at first: most likely the key's.
    candidate: Option<usize>,
}

/// Asks for what is read of each of them, which are best no more than [`PREFETCHED`]. A single one would only wait for itself.
pub fn prefetch<'t>(sought: impl Iterator<Item = Sought<'t>>) {
    let places = sought.map(|sought| {
        let place = sought.table.directory_place(spread(sought.hash));
        block::prefetch(place);
        (place, sought)
    });
    let places: SmallVec<[(&Block, Sought); PREFETCHED]> = places.collect();
    let blocks = places.iter().map(|(place, sought)| {
        let (block, print) = (**place, Print::of(sought.hash));
        block.prefetch_group(print);
        InBlock { block, print, writes: sought.writes, candidate: None }
    });
    let mut blocks: SmallVec<[InBlock; PREFETCHED]> = blocks.collect();
    for InBlock { block, print, writes, candidate } in &mut blocks {
        *candidate = block.candidate(*print);
        block.prefetch_entry(*candidate, *writes);
    }
    let mut outside = SmallVec::<[_; PREFETCHED]>::new();
    for InBlock { block, candidate, .. } in &blocks {
        outside.extend(block.prefetch_rest(*candidate));
    }
    outside.iter().for_each(|whole| block::prefetch_long(whole.entry()));
}
