//! Asks the cache for what several searches will read, ahead of them and a level at a time, so that their misses are waited for
//! together: the directory, the group, the entry's start, the rest of a longer entry.

use super::block::{self, Block, Print};
use super::hash::spread;
use super::table::Table;

/// A key whose search is to come.
#[derive(Clone, Copy)]
pub struct Sought<'t> {
    pub table: &'t Table,
    pub hash: u64,
    /// Whether the key is to be changed: then more of its block is read.
    pub writes: bool,
}

/// Keys that are asked for together: enough to hide the misses of each other, few enough to still be there when they are
/// used.
pub const PREFETCHED: usize = 16;

#[derive(Clone, Copy)]
struct InBlock {
    block: Block,
    print: Print,
    writes: bool,
    /// The slot that the search looks at first: most likely the key's.
    candidate: Option<usize>,
}

/// Asks for what is read of each of them, so many at a time. A single one would only wait for itself.
#[inline]
pub fn prefetch<'t>(mut sought: impl Iterator<Item = Sought<'t>> + Clone) {
    const NOWHERE: InBlock = InBlock { block: Block::NOWHERE, print: Print::of(0), writes: false, candidate: None };
    let mut room = [NOWHERE; PREFETCHED];
    loop {
        let some = sought.clone().take(PREFETCHED);
        some.for_each(|sought| block::prefetch(sought.table.directory_place(spread(sought.hash))));
        let mut count = 0;
        for (into, sought) in room.iter_mut().zip(sought.by_ref()) {
            let block = *sought.table.directory_place(spread(sought.hash));
            let print = Print::of(sought.hash);
            block.prefetch_group(print);
            *into = InBlock { block, print, writes: sought.writes, candidate: None };
            count += 1;
        }
        let blocks = &mut room[..count];
        for InBlock { block, print, writes, candidate } in blocks.iter_mut() {
            *candidate = block.candidate(*print);
            block.prefetch_entry(*candidate, *writes);
        }
        let (mut any_outside, mut outside) = (false, [None; PREFETCHED]);
        for (into, InBlock { block, candidate, .. }) in outside.iter_mut().zip(blocks.iter()) {
            *into = block.prefetch_rest(*candidate);
            any_outside |= into.is_some();
        }
        if any_outside {
            outside.into_iter().flatten().for_each(|whole| block::prefetch_long(whole.entry()));
        }
        if count < PREFETCHED {
            return;
        }
    }
}
