//! What a list had at a moment, shown chunk after chunk while it goes on changing.
//!
//! A chunk that was neither shown nor copied is copied before it changes for the first time. The copy is shown in its place:
//! it stands before the chunk that it is a copy of or, where that one goes, before the next one, or behind the last. An
//! *era* is the number of one such occasion: a chunk that has it is settled, since it was shown, or copied, or is new. So
//! the walk is always at the first chunk of which something is left to be shown, and needs no place of its own.

use super::chunk::Chunk;
use super::{List, Segment};
use crate::value::pack::{Element, link};
use crate::value::{Portion, next_era};
use std::collections::VecDeque;

/// Lists with no more chunks are shown at once.
const CHUNKS_MIN: usize = 8;

#[derive(Default)]
pub(super) struct Saving {
    pub era: u32,
    /// What is to be shown behind the last chunk.
    end: VecDeque<Chunk>,
}

/// Elements of a list that are kept together.
#[derive(Clone, Copy)]
pub struct Together<'a>(&'a Chunk);

impl Together<'_> {
    pub fn for_each(self, mut each: impl FnMut(Element)) {
        link::iter(self.0.read(&mut Vec::new()), 0).for_each(|(_, element)| each(element));
    }
}

/// See [`Node::begin_saving`](crate::value::Node::begin_saving).
pub(super) fn begin(list: &mut List) -> bool {
    let is_large = list.chunk_count() > CHUNKS_MIN;
    list.saving = is_large.then(|| Box::new(Saving { era: next_era(), ..Saving::default() }));
    is_large
}

/// See [`Node::save_some`](crate::value::Node::save_some): a chunk.
pub(super) fn save_some(list: &mut List, to: &mut dyn FnMut(Portion)) -> bool {
    let Some(saving) = &mut list.saving else { return false };
    for segment in list.segments.iter_mut().filter(|segment| segment.shown != saving.era) {
        if show_some(segment, saving.era, to) {
            return true;
        }
        segment.shown = saving.era;
    }
    let next = saving.end.pop_front();
    if let Some(chunk) = &next {
        to(Portion::Elements(Together(chunk)));
    }
    next.is_some()
}

/// Shows a chunk of a segment, if one is left.
fn show_some(segment: &mut Segment, era: u32, to: &mut dyn FnMut(Portion)) -> bool {
    for chunk in &mut segment.chunks {
        if let Some(kept) = chunk.kept.as_mut().and_then(|kept| kept.pop_front()) {
            to(Portion::Elements(Together(&kept)));
            return true;
        }
        chunk.kept = None;
        if chunk.era != era {
            chunk.era = era;
            to(Portion::Elements(Together(chunk)));
            return true;
        }
    }
    false
}

/// See [`Node::stop_saving`](crate::value::Node::stop_saving).
pub(super) fn stop(list: &mut List) {
    let Some(saving) = list.saving.take() else { return };
    for segment in list.segments.iter_mut().filter(|segment| segment.shown != saving.era) {
        segment.chunks.iter_mut().for_each(|chunk| chunk.kept = None);
    }
}

impl List {
    /// How many pieces [`save_some`] will show from a moment on.
    pub fn chunk_count(&self) -> usize {
        self.segments.iter().map(|segment| segment.chunks.len()).sum()
    }

    /// A chunk is about to change.
    #[cold]
    pub(super) fn keep_chunk(&mut self, segment: usize, index: usize) {
        let Some(saving) = &self.saving else { return };
        let chunk = &mut self.segments[segment].chunks[index];
        if chunk.era != saving.era {
            chunk.era = saving.era;
            let copy = chunk.clone();
            chunk.kept.get_or_insert_default().push_back(copy);
        }
    }

    /// This chunk was taken away from its place.
    #[cold]
    pub(super) fn keep_dropped(&mut self, segment: usize, index: usize, mut dropped: Chunk) {
        let mut kept = dropped.kept.take().map_or_else(VecDeque::new, |kept| *kept);
        if self.saving.as_ref().is_some_and(|saving| saving.era != dropped.era) {
            kept.push_back(dropped);
        }
        self.pass_on(segment, index, kept);
    }

    /// What was to be shown before a chunk that was taken away from this place is shown before the next one.
    #[cold]
    pub(super) fn pass_on(&mut self, segment: usize, index: usize, mut kept: VecDeque<Chunk>) {
        let Some(saving) = &mut self.saving else { return };
        if kept.is_empty() {
            return;
        }
        let is_behind = self.segments.get(segment).is_some_and(|home| index >= home.chunks.len());
        let (segment, index) = if is_behind { (segment + 1, 0) } else { (segment, index) };
        let next = self.segments.get_mut(segment).and_then(|home| home.chunks.get_mut(index));
        let behind = match next {
            Some(next) => &mut **next.kept.get_or_insert_default(),
            None => &mut saving.end,
        };
        // The shorter one moves: a queue that is emptied from either end passes on all that it had.
        if kept.len() < behind.len() {
            kept.into_iter().rev().for_each(|chunk| behind.push_front(chunk));
        } else {
            kept.append(behind);
            *behind = kept;
        }
    }
}
