//! Which chunks of a list are compressed: all but the first and the last `depth` ones, where that is worth while.
//!
//! A chunk is expanded before it changes, and compressed again when the change is over, if it is inside then. One more
//! chunk near an end puts another one inside; one less lets another one come near. Reading leaves all as it is: see
//! [`Chunk::read`].
//!
//! Nothing here is asked for where no chunk is to be compressed, which is what a depth of 0 says.

use super::chunk::Chunk;
use super::{End, List, Segment};

const ENDS: [End; 2] = [End::Front, End::Back];

impl List {
    /// A chunk is about to change.
    #[cold]
    pub(super) fn open_chunk(&mut self, segment: usize, chunk: usize) {
        self.keep_chunk(segment, chunk);
        self.reform(segment, chunk, Chunk::expand);
    }

    /// A chunk has changed.
    #[inline]
    pub(super) fn close_chunk(&mut self, segment: usize, chunk: usize) {
        if self.depth > 0 && ENDS.iter().all(|end| !self.is_near(*end, segment, chunk)) {
            self.reform(segment, chunk, Chunk::compress);
        }
    }

    /// A chunk has come to this place.
    #[inline]
    pub(super) fn chunk_came(&mut self, segment: usize, chunk: usize) {
        if self.depth > 0 {
            for end in ENDS {
                if self.is_near(end, segment, chunk) {
                    self.compress_behind(end);
                }
            }
        }
    }

    /// A chunk has come near an end: the one that was the last near it is so no more.
    #[cold]
    pub(super) fn compress_behind(&mut self, end: End) {
        if let Some((segment, chunk)) = self.nth_chunk(end, self.depth as usize) {
            self.close_chunk(segment, chunk);
        }
    }

    /// A chunk has gone from wherever it was.
    #[inline]
    pub(super) fn chunk_went(&mut self) {
        if self.depth > 0 {
            ENDS.into_iter().for_each(|end| self.expand_near(end, 1));
        }
    }

    /// So many chunks have gone from an end: as many have come near it.
    #[cold]
    pub(super) fn expand_near(&mut self, end: End, count: usize) {
        let depth = self.depth as usize;
        let count = count.min(depth);
        let mut next = self.nth_chunk(end, depth - count);
        for _ in 0..count {
            let Some((segment, chunk)) = next else { break };
            self.reform(segment, chunk, Chunk::expand);
            next = self.chunk_after(segment, chunk, end == End::Front);
        }
    }

    /// Whether a chunk is one of the first `depth` from an end.
    #[cold]
    fn is_near(&self, end: End, segment: usize, chunk: usize) -> bool {
        let depth = self.depth as usize;
        match end {
            End::Front => chunk < depth && !are_at_least(depth - chunk, self.segments.range(..segment)),
            End::Back => {
                let behind = self.segments[segment].chunks.len() - 1 - chunk;
                behind < depth && !are_at_least(depth - behind, self.segments.range(segment + 1..))
            }
        }
    }

    /// The chunk that has `n` others between itself and an end.
    fn nth_chunk(&self, end: End, n: usize) -> Option<(usize, usize)> {
        let mut left = n;
        for passed in 0..self.segments.len() {
            let segment = if end == End::Front { passed } else { self.segments.len() - 1 - passed };
            let chunks = self.segments[segment].chunks.len();
            match left.checked_sub(chunks) {
                None if end == End::Front => return Some((segment, left)),
                None => return Some((segment, chunks - 1 - left)),
                Some(rest) => left = rest,
            }
        }
        None
    }

    /// Changes how a chunk is kept, not what is in it.
    fn reform(&mut self, segment: usize, chunk: usize, change: fn(&mut Chunk)) {
        let chunk = &mut self.segments[segment].chunks[chunk];
        let before = chunk.allocated();
        change(chunk);
        self.bytes = self.bytes - before + chunk.allocated();
    }

    /// The chunks inside are compressed where that is worth while, the others are not.
    #[cfg(test)]
    pub(super) fn check_compressed(&self) {
        for (segment, home) in self.segments.iter().enumerate() {
            for (index, chunk) in home.chunks.iter().enumerate() {
                let is_inside = self.depth > 0 && ENDS.iter().all(|end| !self.is_near(*end, segment, index));
                let mut again = Chunk::of(chunk.read(&mut Vec::new()), chunk.count());
                again.compress();
                let (is_compressed, expected) = (chunk.is_compressed(), is_inside && again.is_compressed());
                assert_eq!(is_compressed, expected, "chunk {index} of segment {segment}, depth {}", self.depth);
            }
        }
    }
}

/// Whether the chunks of these segments are at least so many: no more of them are looked at than that takes.
fn are_at_least<'s>(chunks: usize, segments: impl Iterator<Item = &'s Segment>) -> bool {
    let mut missing = chunks;
    for segment in segments {
        missing = missing.saturating_sub(segment.chunks.len());
        if missing == 0 {
            return true;
        }
    }
    missing == 0
}
