//! How a table's blocks come, grow, split, merge and go. A block is never changed in shape: another takes its place.
//!
//! - more keys than its columns have room for: columns of the next size class, over the same heap
//! - more keys or bytes than a block may have: two blocks, each with a heap of its own
//! - mostly holes, after many keys have gone: built anew, as small as it can be
//! - few keys, as its buddy has: one block of both
//!
//! Every one of these steps costs no more than the copy of one block's entries, and comes after as many keys have come or
//! gone as pay for it: none has to wait for a moment of leisure, and none lasts long.

use super::block::{
    Block, CHUNKS_MAX, LIVE_MAX, MERGE_BELOW, MERGED_AT_MOST, NEVER_MS, REACH_MS, Room, Shape, prefetch,
};
use super::table::Table;
use std::time::Instant;

/// Two blocks do not merge where both together have more bytes than this.
const MERGED_LIVE_MAX: usize = LIVE_MAX * 2 / 3;

/// Some entries of a block, on their way to another.
struct Part {
    block: Block,
    slots: Vec<u16>,
    /// What they take of the heap.
    live: usize,
}

impl Part {
    fn none_of(block: Block) -> Part {
        Part { block, slots: Vec::with_capacity(block.len()), live: 0 }
    }

    fn all_of(block: Block) -> Part {
        let slots = block.full_slots().map(|slot| slot as u16).collect();
        Part { block, slots, live: block.head().live as usize }
    }
}

impl Table {
    /// The first block, which stands for the whole line of positions.
    pub(super) fn begin(&mut self) {
        let shape = Shape::of(1, 1).expect("a block of one key");
        let id = self.new_id();
        let block = Block::new(shape, id, 0, 0, 0);
        self.depths[0] = 1;
        self.directory.push(block);
        self.own(block);
    }

    fn new_id(&mut self) -> u32 {
        let id = self.free_ids.pop().unwrap_or_else(|| {
            self.blocks.push(None);
            (self.blocks.len() - 1) as u32
        });
        self.minima.grow(id);
        id
    }

    /// Counts a block as the table's.
    fn own(&mut self, block: Block) {
        self.blocks[block.id() as usize] = Some(block);
        self.slots += block.slots();
        self.block_bytes += block.column_bytes() + block.chunk_bytes();
    }

    /// Points the directory at a block wherever it stands for the position.
    fn show(&mut self, block: Block) {
        let (start, count) = self.aliases(&block);
        self.directory[start..start + count].fill(block);
    }

    /// The directory entries of a block: first index and number.
    pub(super) fn aliases(&self, block: &Block) -> (usize, usize) {
        (self.directory_index(block.position()), 1 << (self.bits - block.depth()))
    }

    /// Gives back a block with its heap: its entries are elsewhere by now, or gone.
    pub(super) fn free_block(&mut self, block: Block) {
        // SAFETY: the block was taken out of the table, or another stands for it.
        unsafe { block.free_heap() };
        self.block_bytes -= block.chunk_bytes();
        self.free_columns(block);
    }

    fn free_columns(&mut self, block: Block) {
        self.slots -= block.slots();
        self.block_bytes -= block.column_bytes();
        // SAFETY: as above.
        unsafe { block.free_columns() };
    }

    /// Makes room for more keys in a block that is full.
    #[cold]
    #[inline(never)]
    pub(super) fn grow(&mut self, block: Block) {
        let keys = block.len() + 1;
        match Shape::of(keys, block.chunk_places().min(block.head().chunks as usize + 1)) {
            Some(shape) => self.widen(block, shape),
            None => self.split(block),
        }
    }

    /// Makes room for so many bytes more in a block that cannot take them.
    #[cold]
    #[inline(never)]
    pub(super) fn make_anew(&mut self, block: Block, room: Room, bytes: usize) {
        let chunks = block.chunk_places();
        if room == Room::MoreChunks {
            let more = (chunks + chunks / 2 + 1).min(CHUNKS_MAX);
            let keys = block.len() + 1;
            let shape = Shape::of(keys, more).or_else(|| Shape::of(keys, chunks + 1));
            if let Some(shape) = shape {
                self.widen(block, shape);
                return;
            }
        }
        // What holes there are may be enough.
        let live = block.head().live as usize + bytes;
        let is_sparse = live <= LIVE_MAX && block.head().holes as usize * 4 > live;
        if is_sparse { self.rebuild(block, bytes) } else { self.split(block) }
    }

    /// Other columns over the same heap.
    fn widen(&mut self, block: Block, shape: Shape) {
        let mut wider = Block::new(shape, block.id(), block.depth(), block.position(), block.base_ms());
        wider.take_slots(&block);
        wider.take_heap(&block);
        self.block_bytes -= block.chunk_bytes();
        self.free_columns(block);
        self.own(wider);
        self.show(wider);
    }

    /// A block of entries of others, as small as it can be; their own copies are left where they are.
    fn gather(&self, (id, depth, position, base_ms): (u32, u8, u64, u64), parts: &[Part], more: usize) -> Block {
        let keys = parts.iter().map(|part| part.slots.len()).sum::<usize>();
        let live = parts.iter().map(|part| part.live).sum::<usize>() + more;
        let mut shape = Block::shape_for(keys + 1, live).unwrap_or(Shape::LARGEST);
        loop {
            let mut new = Block::new(shape, id, depth, position, base_ms);
            let mut left = live;
            let has_room = parts.iter().all(|part| {
                let has_room = new.copy_from(&part.block, &part.slots, left);
                left -= part.live;
                has_room
            });
            if has_room {
                return new;
            }
            // The ends of the chunks were too short for too many. There is room in the largest, for as much as a block may
            // have.
            assert!(shape != Shape::LARGEST, "a block may have {live} bytes in {keys} entries");
            shape = Shape::LARGEST;
            // SAFETY: nobody has seen it.
            unsafe {
                new.free_heap();
                new.free_columns();
            }
        }
    }

    /// The same block without its holes, but with room for so many bytes.
    fn rebuild(&mut self, block: Block, more: usize) {
        let name = (block.id(), block.depth(), block.position(), block.base_ms());
        let new = self.gather(name, &[Part::all_of(block)], more);
        self.free_block(block);
        self.own(new);
        self.show(new);
    }

    fn split(&mut self, block: Block) {
        let (id, depth, position, base_ms) = (block.id(), block.depth(), block.position(), block.base_ms());
        // A depth past the pointer bits of a position would need 2^40 blocks: the seed keeps keys from agreeing in
        // that many bits.
        assert!(depth < 40, "keys agree in {depth} bits of their hashes");
        if depth == self.bits {
            self.double();
        }
        block.full_slots().for_each(|slot| prefetch(block.in_heap(slot).as_ptr()));
        let mut parts = [Part::none_of(block), Part::none_of(block)];
        for slot in block.full_slots() {
            let goes_up = self.position_of(block.entry(slot).key()) << depth >> 63;
            let part = &mut parts[goes_up as usize];
            part.slots.push(slot as u16);
            part.live += block.bytes_in_heap(slot);
        }
        let ids = [id, self.new_id()];
        let positions = [position, position | 1 << (63 - depth)];
        for ((id, position), part) in ids.into_iter().zip(positions).zip(parts) {
            let mut part = self.gather((id, depth + 1, position, base_ms), &[part], 0);
            self.own(part);
            self.show(part);
            self.minima.set(id, part.next_due_ms(0));
        }
        self.free_block(block);
        self.depths[depth as usize] -= 1;
        self.depths[depth as usize + 1] += 2;
    }

    fn double(&mut self) {
        self.directory = self.directory.iter().flat_map(|&block| [block, block]).collect();
        self.bits += 1;
        self.depths.resize(self.bits as usize + 1, 0);
    }

    /// After keys have gone: merges the block with its buddy while both together are nearly empty (if it is to be looked
    /// at), and builds it anew where it is mostly holes.
    #[inline]
    pub(super) fn tidy(&mut self, block: Block, looks_at_buddy: bool) {
        let may_merge = looks_at_buddy && block.len() < MERGE_BELOW && block.depth() > 0;
        if may_merge || block.is_sparse() {
            self.tidy_now(block, may_merge);
        }
    }

    #[cold]
    #[inline(never)]
    fn tidy_now(&mut self, mut block: Block, may_merge: bool) {
        let mut began = None;
        if may_merge {
            while let Some(buddy) = self.buddy(&block) {
                began.get_or_insert_with(Instant::now);
                let Some(merged) = self.merge(block, buddy) else { break };
                block = merged;
                self.upkeep.merges += 1;
            }
        }
        if let Some(began) = began {
            self.upkeep.ns += began.elapsed().as_nanos() as u64;
        }
        if block.is_sparse() {
            self.compact(block);
        }
    }

    /// Builds a block anew whose holes are worth it.
    pub(super) fn compact(&mut self, block: Block) {
        let began = Instant::now();
        self.rebuild(block, 0);
        self.upkeep.compactions += 1;
        self.upkeep.ns += began.elapsed().as_nanos() as u64;
    }

    /// The block with which this one merges, if it should.
    fn buddy(&self, block: &Block) -> Option<Block> {
        let depth = block.depth();
        if depth == 0 || block.len() >= MERGE_BELOW {
            return None;
        }
        let buddy = self.block_at(block.position() ^ 1 << (64 - depth));
        let live = block.head().live as usize + buddy.head().live as usize;
        let is_near = buddy.depth() == depth;
        (is_near && block.len() + buddy.len() <= MERGED_AT_MOST && live <= MERGED_LIVE_MAX).then_some(buddy)
    }

    /// One block of two, if their deadlines are in reach of one base.
    fn merge(&mut self, block: Block, buddy: Block) -> Option<Block> {
        let base_ms = match (block.with_deadline(), buddy.with_deadline()) {
            (_, 0) => block.base_ms(),
            (0, _) => buddy.base_ms(),
            _ => block.base_ms().min(buddy.base_ms()),
        };
        let latest_ms = block.latest_in_column_ms().max(buddy.latest_in_column_ms());
        if latest_ms.is_some_and(|latest_ms| latest_ms - base_ms > REACH_MS) {
            return None;
        }
        let depth = block.depth();
        let position = block.position().min(buddy.position());
        let name = (block.id(), depth - 1, position, base_ms);
        let mut merged = self.gather(name, &[block, buddy].map(Part::all_of), 0);
        self.blocks[buddy.id() as usize] = None;
        self.free_ids.push(buddy.id());
        self.minima.set(buddy.id(), NEVER_MS);
        self.free_block(block);
        self.free_block(buddy);
        self.own(merged);
        self.show(merged);
        self.depths[depth as usize] -= 2;
        self.depths[depth as usize - 1] += 1;
        self.minima.set(merged.id(), merged.next_due_ms(0));
        self.halve();
        Some(merged)
    }

    /// Shrinks the directory when it has become far larger than the blocks need.
    fn halve(&mut self) {
        let blocks = self.shape().blocks;
        while self.bits > 0 && self.depths[self.bits as usize] == 0 && self.directory.len() > 8 * blocks {
            self.directory = self.directory.iter().copied().step_by(2).collect();
            self.bits -= 1;
        }
    }
}
