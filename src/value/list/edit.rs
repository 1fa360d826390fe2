//! What changes a list in its middle.

use super::chunk::Chunk;
use super::packed::equal_offsets;
use super::{CHUNKS_MAX, End, Limit, List, Place};
use crate::value::pack::{Element, link};

impl List {
    /// Puts an element where another one is; whether there was one.
    pub fn set(&mut self, index: usize, element: Element, limit: Limit) -> bool {
        if index >= self.len {
            return false;
        }
        let place = self.locate(index);
        let is_set = self.edit_chunk(place.segment, place.chunk, |chunk| {
            let at = chunk.offset(place.index);
            let bytes = chunk.len() - link::linked_len_at(chunk.bytes(), at) + link::encoded_len(element);
            let fits = chunk.count() == 1 || limit.allows(bytes, chunk.count());
            if fits {
                chunk.replace(at, element, limit.bytes);
            }
            fits
        });
        if is_set {
            self.close_chunk(place.segment, place.chunk);
        } else {
            self.insert(index, element, limit);
            self.remove(index + 1, limit);
        }
        true
    }

    /// Puts an element in front of that of an index, which is at most the length.
    pub fn insert(&mut self, index: usize, element: Element, limit: Limit) {
        match index {
            0 => self.push(End::Front, element, limit),
            _ if index >= self.len => self.push(End::Back, element, limit),
            _ => self.insert_inside(self.locate(index), element, limit),
        }
    }

    pub fn remove(&mut self, index: usize, limit: Limit) {
        if index < self.len {
            let place = self.locate(index);
            self.edit_chunk(place.segment, place.chunk, |chunk| {
                let at = chunk.offset(place.index);
                chunk.remove(at..at + link::linked_len_at(chunk.bytes(), at), 1);
            });
            self.tidy(place.segment, place.chunk, limit);
        }
    }

    /// Removes the elements equal to this one, the first `max` seen from an end; returns how many.
    pub fn remove_equal(&mut self, element: Element, max: usize, from: End, limit: Limit) -> usize {
        let mut left = max;
        let (mut touched, mut buffer) = (Vec::new(), Vec::new());
        let mut next = self.chunk_at(from);
        while let Some((segment, chunk)) = next.filter(|_| left > 0) {
            let bytes = self.segments[segment].chunks[chunk].read(&mut buffer);
            let offsets = equal_offsets(bytes, element, left, from);
            if !offsets.is_empty() {
                left -= offsets.len();
                self.edit_chunk(segment, chunk, |chunk| chunk.remove_each(&offsets));
                self.close_chunk(segment, chunk);
                touched.push((segment, chunk));
            }
            next = self.chunk_after(segment, chunk, from == End::Front);
        }
        // From the last to the first, since what is behind a chunk moves where it is removed.
        if from == End::Front {
            touched.reverse();
        }
        touched.into_iter().for_each(|(segment, chunk)| self.tidy(segment, chunk, limit));
        max - left
    }

    /// The chunk next to another one.
    pub(super) fn chunk_after(&self, segment: usize, chunk: usize, forward: bool) -> Option<(usize, usize)> {
        if forward && chunk + 1 < self.segments[segment].chunks.len() {
            Some((segment, chunk + 1))
        } else if forward {
            (segment + 1 < self.segments.len()).then_some((segment + 1, 0))
        } else if chunk > 0 {
            Some((segment, chunk - 1))
        } else {
            segment.checked_sub(1).map(|segment| (segment, self.segments[segment].chunks.len() - 1))
        }
    }

    /// Where the chunk has no room, it is split; the element goes where it fits, else between in a chunk of its own.
    fn insert_inside(&mut self, place: Place, element: Element, limit: Limit) {
        let Place { segment, chunk, index } = place;
        let need = link::encoded_len(element);
        let fits = |chunk: &Chunk| limit.allows(chunk.len() + need, chunk.count() + 1);
        let home = &self.segments[segment];
        if fits(&home.chunks[chunk]) {
            self.edit_chunk(segment, chunk, |chunk| chunk.insert(chunk.offset(index), element, limit.bytes));
            self.close_chunk(segment, chunk);
            return;
        }
        if index == 0 {
            match chunk.checked_sub(1).filter(|before| fits(&home.chunks[*before])) {
                Some(before) => {
                    self.push_to_chunk(segment, before, element, limit);
                    self.close_chunk(segment, before);
                }
                None => {
                    let (segment, chunk) = self.put_chunk(segment, chunk, Chunk::single(element));
                    self.close_chunk(segment, chunk);
                }
            }
            return;
        }
        let (segment, chunk) = self.reserve_chunks(segment, chunk);
        let mut rest = self.edit_chunk(segment, chunk, |chunk| chunk.split_off(chunk.offset(index), index));
        let front = &self.segments[segment].chunks[chunk];
        let mut behind = chunk + 1;
        if fits(front) && (front.count() <= rest.count() || !fits(&rest)) {
            self.push_to_chunk(segment, chunk, element, limit);
        } else if fits(&rest) {
            rest.insert(0, element, limit.bytes);
        } else {
            self.put_chunk(segment, behind, Chunk::single(element));
            behind += 1;
        }
        self.put_chunk(segment, behind, rest);
        let room = limit.quarters(3);
        self.join(segment, behind, room);
        if chunk > 0 {
            self.join(segment, chunk - 1, room);
        }
        let end = self.segments[segment].chunks.len().min(behind + 1);
        (chunk.saturating_sub(1)..end).for_each(|chunk| self.close_chunk(segment, chunk));
    }

    fn put_chunk(&mut self, segment: usize, index: usize, chunk: Chunk) -> (usize, usize) {
        let (segment, index) = self.insert_chunk(segment, index, chunk);
        self.chunk_came(segment, index);
        (segment, index)
    }

    /// Splits a segment that has no room for two more chunks; where a chunk of it is then.
    fn reserve_chunks(&mut self, segment: usize, chunk: usize) -> (usize, usize) {
        if self.segments[segment].chunks.len() + 2 <= CHUNKS_MAX {
            return (segment, chunk);
        }
        self.split_segment(segment);
        let front = self.segments[segment].chunks.len();
        if chunk < front { (segment, chunk) } else { (segment + 1, chunk - front) }
    }

    fn push_to_chunk(&mut self, segment: usize, chunk: usize, element: Element, limit: Limit) {
        self.edit_chunk(segment, chunk, |chunk| chunk.insert(chunk.len(), element, limit.bytes));
    }

    /// Removes a chunk that is empty; one that has become small joins a neighbour, if both together leave room.
    fn tidy(&mut self, segment: usize, chunk: usize, limit: Limit) {
        let found = &self.segments[segment].chunks[chunk];
        if found.count() == 0 {
            self.drop_chunk(segment, chunk);
            self.chunk_went();
            return;
        }
        let (is_small, room) = (limit.quarters(1).allows(found.len(), found.count()), limit.quarters(3));
        let joins_before =
            is_small && !self.join(segment, chunk, room) && chunk > 0 && self.join(segment, chunk - 1, room);
        self.close_chunk(segment, chunk - usize::from(joins_before));
    }

    /// Puts what is in the chunk behind another one into that one, where it keeps to the limit; whether it did.
    fn join(&mut self, segment: usize, chunk: usize, limit: Limit) -> bool {
        let chunks = &self.segments[segment].chunks;
        let Some(behind) = chunks.get(chunk + 1) else { return false };
        let (bytes, count) = (chunks[chunk].len() + behind.len(), chunks[chunk].count() + behind.count());
        let joins = limit.allows(bytes, count);
        if joins {
            let mut behind = self.remove_chunk(segment, chunk + 1);
            behind.expand();
            self.edit_chunk(segment, chunk, |chunk| chunk.append(&behind, limit.bytes));
            self.chunk_went();
        }
        joins
    }
}
