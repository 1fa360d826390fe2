//! The entries of a stream as of one moment, shown chunk after chunk while they go on changing.
//!
//! A chunk that was neither shown nor copied is copied before it changes for the first time, or kept where it goes; the copy
//! is shown in its turn. An *era* is the number of one such occasion: a chunk that has it was shown, or copied, or is new.

use super::chunk::Chunk;
use super::id::Id;
use crate::value::next_era;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Streams with no more chunks are shown at once.
const CHUNKS_MIN: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Saving {
    pub era: u32,
    /// The first id of the chunk that was shown last.
    at: Option<Id>,
    /// Chunks as they were that are to be shown, by their first ids.
    kept: BTreeMap<Id, Box<Chunk>>,
}

impl Saving {
    /// A chunk is about to change.
    #[cold]
    pub fn before_change(&mut self, chunk: &mut Chunk) {
        if chunk.era != self.era {
            self.kept.insert(chunk.first(), Box::new(chunk.clone()));
            chunk.era = self.era;
        }
    }

    /// A chunk was taken out.
    #[cold]
    pub fn keep_dropped(&mut self, chunk: Box<Chunk>) {
        if chunk.era != self.era {
            self.kept.insert(chunk.first(), chunk);
        }
    }

    /// A walk through so many chunks, unless they can be shown at once.
    pub fn begin(chunks: usize) -> Option<Box<Saving>> {
        (chunks > CHUNKS_MIN).then(|| Box::new(Saving { era: next_era(), ..Saving::default() }))
    }

    /// Shows a chunk; whether there may be more. What may be shown in its place comes in order; all chunks from
    /// [`Saving::from`] on are there.
    pub fn save_some<'c>(
        &mut self,
        mut in_place: impl Iterator<Item = &'c mut Box<Chunk>>,
        to: &mut dyn FnMut(&Chunk),
    ) -> bool {
        let is_left = |chunk: &&mut Box<Chunk>| chunk.era != self.era && self.at.is_none_or(|at| chunk.first() > at);
        let in_place = in_place.find(is_left);
        let first_kept = self.kept.first_key_value().map(|(first, _)| *first);
        match in_place {
            Some(chunk) if first_kept.is_none_or(|first| chunk.first() < first) => {
                to(chunk);
                chunk.era = self.era;
                self.at = Some(chunk.first());
            }
            _ => {
                let Some((first, chunk)) = self.kept.pop_first() else { return false };
                to(&chunk);
                self.at = Some(first);
            }
        }
        true
    }

    /// Where the walk is.
    pub fn from(&self) -> Bound<Id> {
        self.at.map_or(Bound::Unbounded, Bound::Excluded)
    }
}
