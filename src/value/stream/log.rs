//! The entries of a stream, in chunks.
//!
//! ```text
//!  chunks: first id -> chunk   ...   chunk   chunk        tail: the last chunk, which grows
//! ```
//! Invariants: every chunk has an entry that lives; ids grow along the chunks; without a tail there is no chunk.

use super::chunk::{CHUNK_BYTES_MAX, Chunk, ChunkLimits, Entry};
use super::id::{Id, NewId};
use super::map_bytes;
use super::saving::Saving;
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use thiserror::Error;

/// Why an entry is not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AppendError {
    #[error("The ID specified in XADD must be greater than 0-0")]
    Zero,
    #[error("The stream has exhausted the last possible ID, unable to add more items")]
    Exhausted,
    #[error("The ID specified in XADD is equal or smaller than the target stream top item")]
    NotGreater,
    #[error("Elements are too large to be stored")]
    TooLarge,
}

/// Why XSETID is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SetIdError {
    #[error("The ID specified in XSETID is smaller than current max_deleted_entry_id")]
    BelowDeleted,
    #[error("The ID specified in XSETID is smaller than the target stream top item")]
    BelowTop,
    #[error("The entries_added specified in XSETID is smaller than the target stream length")]
    BelowLength,
}

/// What goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimTo {
    /// Entries beyond so many.
    Len(u64),
    /// Those below this id.
    Id(Id),
}

/// How a stream is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    pub to: TrimTo,
    /// Only whole chunks go.
    pub approximate: bool,
    /// No more entries go at once; 0: any number.
    pub limit: u64,
}

#[derive(Debug, Default)]
pub struct Log {
    chunks: BTreeMap<Id, Box<Chunk>>,
    tail: Option<Box<Chunk>>,
    len: u64,
    /// Of the first entry that lives; 0-0 in an empty stream.
    first_id: Id,
    last_id: Id,
    /// The largest that XDEL deleted.
    max_deleted_id: Id,
    /// Ever; XSETID may say something else.
    entries_added: i64,
    /// Of all chunks.
    chunk_bytes: usize,
    /// What it had at a moment is shown in slices.
    saving: Option<Box<Saving>>,
}

/// Entries on their way into a stream that were kept together, with the fields that some of them share.
pub struct Run {
    fields: Vec<Vec<u8>>,
    /// Of the fields' texts.
    field_bytes: usize,
    /// They have a chunk.
    is_begun: bool,
}

/// One of them: the values of its run's fields, or fields and values that alternate.
pub enum RunTexts<T> {
    Values(T),
    Pairs(T),
}

impl Run {
    pub fn of(fields: Vec<Vec<u8>>) -> Run {
        let field_bytes = fields.iter().map(Vec::len).sum();
        Run { fields, field_bytes, is_begun: false }
    }

    /// Bytes of their texts.
    pub fn field_bytes(&self) -> usize {
        self.field_bytes
    }

    pub fn field_count(&self) -> usize {
        self.fields.len()
    }
}

impl Log {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn first_id(&self) -> Id {
        self.first_id
    }

    /// The last id that was given out, whether or not its entry lives.
    pub fn last_id(&self) -> Id {
        self.last_id
    }

    pub fn max_deleted_id(&self) -> Id {
        self.max_deleted_id
    }

    pub fn entries_added(&self) -> i64 {
        self.entries_added
    }

    pub fn chunk_count(&self) -> usize {
        self.chunks.len() + usize::from(self.tail.is_some())
    }

    /// Memory behind it.
    pub fn bytes(&self) -> usize {
        self.chunk_bytes + map_bytes::<Id, Box<Chunk>>(self.chunks.len())
    }

    /// The id of an entry that is to be appended; `now_ms` is the wall clock's.
    pub fn next_id(&self, wanted: NewId, now_ms: u64) -> Result<Id, AppendError> {
        let last = self.last_id;
        if wanted == NewId::Exact(Id::MIN) {
            return Err(AppendError::Zero);
        }
        if last == Id::MAX {
            return Err(AppendError::Exhausted);
        }
        let id = match wanted {
            NewId::Exact(id) => Some(id),
            NewId::Auto if now_ms > last.ms => Some(Id::new(now_ms, 0)),
            NewId::Auto => last.next(),
            NewId::AutoSeq(ms) if ms == last.ms => last.seq.checked_add(1).map(|seq| Id { ms, seq }),
            NewId::AutoSeq(ms) => Some(Id::new(ms, 0)),
        };
        id.filter(|id| *id > last).ok_or(AppendError::NotGreater)
    }

    /// Whether fields and values are small enough to be kept.
    pub fn check_size<'p>(pairs: impl Iterator<Item = &'p [u8]>) -> Result<usize, AppendError> {
        let bytes = pairs.map(<[u8]>::len).sum();
        if bytes > CHUNK_BYTES_MAX { Err(AppendError::TooLarge) } else { Ok(bytes) }
    }

    /// Appends an entry under an id that [`Log::next_id`] gave, with pairs that [`Log::check_size`] passed; `pairs` are
    /// fields, each followed by its value.
    pub fn append<'p>(
        &mut self,
        id: Id,
        pairs: impl ExactSizeIterator<Item = &'p [u8]> + Clone,
        text_bytes: usize,
        limits: ChunkLimits,
    ) {
        debug_assert!(id > self.last_id && pairs.len().is_multiple_of(2));
        self.keep_tail();
        if let Some(tail) = self.tail.as_mut().filter(|tail| tail.last() >= id) {
            tail.drop_dead_end();
        }
        match &mut self.tail {
            Some(tail) if !tail.is_full(limits, text_bytes) => {
                let before = tail.bytes();
                tail.append(id, pairs);
                self.chunk_bytes += tail.bytes() - before;
            }
            _ => self.begin_chunk(Chunk::new(id, pairs)),
        }
        self.appended(id);
    }

    /// Appends an entry that was kept together with others, of which some share their fields; they stay together, so that
    /// they take no more room than there.
    pub fn append_to_run<'p>(
        &mut self,
        id: Id,
        run: &mut Run,
        texts: RunTexts<impl ExactSizeIterator<Item = &'p [u8]> + Clone>,
        limits: ChunkLimits,
    ) {
        debug_assert!(id > self.last_id);
        self.keep_tail();
        let own_bytes = match &texts {
            RunTexts::Values(texts) | RunTexts::Pairs(texts) => texts.clone().map(<[u8]>::len).sum(),
        };
        let takes = |tail: &Chunk| !tail.is_full_beside_fields(limits, run.field_bytes, own_bytes);
        if !run.is_begun || !self.tail.as_deref().is_some_and(takes) {
            let fields = run.fields.iter().map(|field| &field[..]);
            self.begin_chunk(Chunk::for_fields(id, fields, run.field_bytes + own_bytes));
            run.is_begun = true;
        }
        if let Some(tail) = &mut self.tail {
            let before = tail.bytes();
            match texts {
                RunTexts::Values(values) => tail.append_values(id, values),
                RunTexts::Pairs(pairs) => tail.append(id, pairs),
            }
            self.chunk_bytes += tail.bytes() - before;
        }
        self.appended(id);
    }

    /// The last chunk grows no more; this one does.
    fn begin_chunk(&mut self, mut chunk: Chunk) {
        chunk.era = self.saving.as_ref().map_or(0, |saving| saving.era);
        if let Some(mut full) = self.tail.take() {
            self.chunk_bytes -= full.bytes();
            full.close();
            self.chunk_bytes += full.bytes();
            self.chunks.insert(full.first(), full);
        }
        self.chunk_bytes += chunk.bytes();
        self.tail = Some(Box::new(chunk));
    }

    fn appended(&mut self, id: Id) {
        self.len += 1;
        self.entries_added = self.entries_added.wrapping_add(1);
        self.last_id = id;
        if self.len == 1 {
            self.first_id = id;
        }
    }

    /// See [`Node::begin_saving`](crate::value::Node::begin_saving).
    pub fn begin_saving(&mut self) -> bool {
        self.saving = Saving::begin(self.chunk_count());
        self.is_saved()
    }

    /// Shows a chunk; whether there may be more.
    pub fn save_some(&mut self, to: &mut dyn FnMut(&Chunk)) -> bool {
        let Log { chunks, tail, saving: Some(saving), .. } = self else { return false };
        let in_place = chunks.range_mut((saving.from(), Bound::Unbounded)).map(|(_, chunk)| chunk).chain(tail);
        saving.save_some(in_place, to)
    }

    pub fn stop_saving(&mut self) {
        self.saving = None;
    }

    #[inline]
    pub fn is_saved(&self) -> bool {
        self.saving.is_some()
    }

    /// The last chunk is about to change.
    #[inline]
    fn keep_tail(&mut self) {
        if let (Some(saving), Some(tail)) = (&mut self.saving, &mut self.tail) {
            saving.before_change(tail);
        }
    }

    /// All chunks, in order.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.all_chunks()
    }

    /// The entries from `start` to `end`, both inclusive, the smallest id first.
    pub fn range(&self, start: Id, end: Id) -> Entries<'_> {
        let tail = self.tail.as_deref().filter(|tail| tail.first() <= end);
        let chunks = match tail {
            // Most readers follow the end.
            Some(tail) if tail.first() <= start => self.chunks.range(..Id::MIN),
            _ if start > end => self.chunks.range(..Id::MIN),
            _ => {
                let from = self.chunks.range(..=start).next_back().map_or(start, |(first, _)| *first);
                self.chunks.range(from..=end)
            }
        };
        Entries { chunks, tail, open: None, start, end }
    }

    /// The same entries, the largest id first.
    pub fn range_back(&self, start: Id, end: Id) -> EntriesBack<'_> {
        let tail = self.tail.as_deref().filter(|tail| tail.first() <= end && start <= end);
        EntriesBack { chunks: self.chunks.range(..=end), tail, open: None, start, end }
    }

    pub fn get(&self, id: Id) -> Option<Entry<'_>> {
        self.range(id, id).next()
    }

    /// The id of the last entry that lives.
    pub fn last_live_id(&self) -> Option<Id> {
        self.range_back(Id::MIN, Id::MAX).next().map(|entry| entry.id)
    }

    /// Deletes an entry; whether there was one.
    pub fn delete(&mut self, id: Id) -> bool {
        let is_deleted = self.take_out(id);
        if is_deleted {
            self.note_deleted(id);
        }
        is_deleted
    }

    /// There is a gap where this entry was.
    pub fn note_deleted(&mut self, id: Id) {
        self.max_deleted_id = self.max_deleted_id.max(id);
    }

    /// [`Log::delete`], of which nothing is remembered: trimming leaves no gaps.
    fn take_out(&mut self, id: Id) -> bool {
        let in_tail = self.tail.as_ref().is_some_and(|tail| tail.first() <= id);
        let chunk =
            if in_tail { self.tail.as_mut() } else { self.chunks.range_mut(..=id).next_back().map(|(_, chunk)| chunk) };
        let Some(chunk) = chunk else { return false };
        if let Some(saving) = &mut self.saving {
            saving.before_change(chunk);
        }
        let before = chunk.bytes();
        if !chunk.delete(id) {
            return false;
        }
        if !in_tail {
            chunk.close();
        }
        self.chunk_bytes -= before - chunk.bytes();
        let (first, live) = (chunk.first(), chunk.live());
        if live == 0 {
            self.drop_chunk(first);
        }
        self.len -= 1;
        if id == self.first_id {
            self.find_first_id();
        }
        true
    }

    /// Deletes entries from the front; how many were.
    pub fn trim(&mut self, trim: Trim) -> u64 {
        let before = self.len;
        while let Some(chunk) = self.front() {
            let live = chunk.live() as u64;
            let enough = matches!(trim.to, TrimTo::Len(len) if self.len <= len);
            if enough || (trim.limit > 0 && before - self.len + live > trim.limit) {
                break;
            }
            let whole = match trim.to {
                TrimTo::Len(len) => self.len - live >= len,
                TrimTo::Id(id) => chunk.last() < id,
            };
            if whole {
                self.drop_chunk(chunk.first());
                self.len -= live;
                continue;
            }
            if !trim.approximate {
                self.trim_front(trim.to);
            }
            break;
        }
        if self.len < before {
            self.find_first_id();
        }
        before - self.len
    }

    /// [`Log::trim`] where each entry is asked whether it may go; says how many went, and the id behind the last that was
    /// asked. Who may not go is passed over, and no chunk beyond the one in which the trim would end is looked at, as in
    /// Redis; that a trim is approximate makes no difference but for its limit.
    pub fn trim_each(&mut self, trim: Trim, mut may_go: impl FnMut(Id) -> bool) -> (u64, Option<Id>) {
        let (before, mut from) = (self.len, Some(Id::MIN));
        while let Some((start, last, live)) = from.and_then(|from| self.chunk_from(from)) {
            let is_enough = |len: u64, id: Id| match trim.to {
                TrimTo::Len(most) => len <= most,
                TrimTo::Id(least) => id >= least,
            };
            let over_limit = trim.limit > 0 && before - self.len + live > trim.limit;
            if over_limit || matches!(trim.to, TrimTo::Len(most) if self.len <= most) {
                break;
            }
            let whole = match trim.to {
                TrimTo::Len(most) => self.len - live >= most,
                TrimTo::Id(least) => last < least,
            };
            let ids: Vec<Id> = self.range(start, last).map(|entry| entry.id).collect();
            for id in ids {
                if is_enough(self.len, id) {
                    return (before - self.len, Some(id));
                }
                from = id.next();
                if may_go(id) {
                    self.take_out(id);
                }
            }
            if !whole {
                break;
            }
            from = last.next();
        }
        (before - self.len, from)
    }

    /// The chunk that has the first entry from an id on: where it starts, its last id, and how many entries live in it.
    fn chunk_from(&self, from: Id) -> Option<(Id, Id, u64)> {
        let chunk =
            self.chunks.range(..=from).next_back().map(|(_, chunk)| &**chunk).filter(|chunk| chunk.last() >= from);
        let chunk = chunk.or_else(|| self.chunks.range(from..).next().map(|(_, chunk)| &**chunk));
        let chunk = chunk.or_else(|| self.tail.as_deref().filter(|tail| tail.last() >= from))?;
        Some((chunk.first().max(from), chunk.last(), chunk.live() as u64))
    }

    /// Does what XSETID does; nothing on an error.
    pub fn set_id(&mut self, id: Id, entries_added: Option<i64>, max_deleted_id: Id) -> Result<(), SetIdError> {
        if id < self.max_deleted_id {
            return Err(SetIdError::BelowDeleted);
        }
        self.set_id_as_told(id, entries_added, max_deleted_id)
    }

    /// The same where another server has done it, which may have taken an ID that is smaller than one that was deleted: Redis
    /// before 7.2 does.
    pub fn set_id_as_told(&mut self, id: Id, entries_added: Option<i64>, max_deleted_id: Id) -> Result<(), SetIdError> {
        if self.last_live_id().is_some_and(|top| id < top) {
            return Err(SetIdError::BelowTop);
        }
        if self.len > 0 && entries_added.is_some_and(|added| self.len > added as u64) {
            return Err(SetIdError::BelowLength);
        }
        self.last_id = id;
        if let Some(added) = entries_added {
            self.entries_added = added;
        }
        if max_deleted_id != Id::MIN {
            self.max_deleted_id = max_deleted_id;
        }
        Ok(())
    }

    /// Whether XDEL deleted something from `start` on.
    pub fn has_gaps_from(&self, start: Id) -> bool {
        self.len > 0 && self.max_deleted_id != Id::MIN && start <= self.max_deleted_id
    }

    /// Whether XDEL deleted nothing from the first entry on: what is left stands without gaps.
    pub fn is_whole(&self) -> bool {
        self.max_deleted_id < self.first_id
    }

    /// How many entries were added up to this id, those that are gone included; none where it cannot be told.
    pub fn entries_added_up_to(&self, id: Id) -> Option<i64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if self.len == 0 && id <= self.last_id {
            return Some(self.entries_added);
        }
        if id != Id::MIN && id < self.max_deleted_id {
            return None;
        }
        if id == self.last_id {
            return Some(self.entries_added);
        }
        let has_gaps = self.max_deleted_id != Id::MIN && !self.is_whole();
        if id > self.last_id || has_gaps || id > self.first_id {
            return None;
        }
        let before_first = self.entries_added.wrapping_sub_unsigned(self.len);
        Some(before_first.wrapping_add(i64::from(id == self.first_id)))
    }

    /// Gives back about `budget` entries and the chunks they are in; whether nothing is left.
    pub fn free_some(&mut self, budget: &mut usize) -> bool {
        while *budget > 0 {
            let Some(chunk) = self.front() else { return true };
            let (first, live) = (chunk.first(), chunk.live());
            *budget = budget.saturating_sub(live);
            self.len -= live as u64;
            self.drop_chunk(first);
        }
        self.tail.is_none()
    }

    fn front(&self) -> Option<&Chunk> {
        self.all_chunks().next()
    }

    fn all_chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.values().chain(&self.tail).map(Box::as_ref)
    }

    /// Deletes entries of the first chunk, some of which stay.
    fn trim_front(&mut self, to: TrimTo) {
        let in_tail = self.chunks.is_empty();
        let chunk = self.chunks.first_entry().map(btree_map::OccupiedEntry::into_mut).or(self.tail.as_mut());
        let Some(chunk) = chunk else { return };
        if let Some(saving) = &mut self.saving {
            saving.before_change(chunk);
        }
        let (before, mut len) = (chunk.bytes(), self.len);
        chunk.trim(|id| {
            let more = match to {
                TrimTo::Len(enough) => len > enough,
                TrimTo::Id(from) => id < from,
            };
            len -= u64::from(more);
            more
        });
        if !in_tail {
            chunk.close();
        }
        self.chunk_bytes -= before - chunk.bytes();
        self.len = len;
        let (first, live) = (chunk.first(), chunk.live());
        if live == 0 {
            self.drop_chunk(first);
        }
    }

    /// A chunk without entries that matter; the one before the tail becomes the tail.
    fn drop_chunk(&mut self, first: Id) {
        let dropped = match self.chunks.remove(&first) {
            Some(chunk) => Some(chunk),
            None => {
                let before = self.chunks.pop_last().map(|(_, chunk)| chunk);
                std::mem::replace(&mut self.tail, before)
            }
        };
        self.chunk_bytes -= dropped.as_ref().map_or(0, |chunk| chunk.bytes());
        if let (Some(saving), Some(chunk)) = (&mut self.saving, dropped) {
            saving.keep_dropped(chunk);
        }
    }

    fn find_first_id(&mut self) {
        self.first_id = self.range(Id::MIN, Id::MAX).next().map_or(Id::MIN, |entry| entry.id);
    }
}

impl Clone for Log {
    fn clone(&self) -> Log {
        let mut log = Log { chunks: self.chunks.clone(), tail: self.tail.clone(), saving: None, ..*self };
        // A copy has no room to spare.
        log.chunk_bytes = log.all_chunks().map(Chunk::bytes).sum();
        log
    }
}

/// Entries in the order of their ids.
#[derive(Clone)]
pub struct Entries<'a> {
    chunks: btree_map::Range<'a, Id, Box<Chunk>>,
    /// Comes after them.
    tail: Option<&'a Chunk>,
    /// The chunk that is being read, and where its next entry is.
    open: Option<(&'a Chunk, usize)>,
    start: Id,
    end: Id,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let Some((chunk, at)) = &mut self.open else {
                let chunk = self.chunks.next().map(|(_, chunk)| &**chunk).or_else(|| self.tail.take())?;
                self.open = Some((chunk, chunk.seek(self.start)));
                continue;
            };
            if *at == chunk.end() {
                self.open = None;
                continue;
            }
            let entry = chunk.entry_at(*at);
            if entry.id > self.end {
                return None;
            }
            *at = entry.end();
            if !entry.is_deleted() {
                return Some(entry);
            }
        }
    }
}

/// Entries against the order of their ids.
#[derive(Clone)]
pub struct EntriesBack<'a> {
    chunks: btree_map::Range<'a, Id, Box<Chunk>>,
    /// Comes before them.
    tail: Option<&'a Chunk>,
    /// The chunk that is being read, and where its next entry ends.
    open: Option<(&'a Chunk, usize)>,
    start: Id,
    end: Id,
}

impl<'a> Iterator for EntriesBack<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let Some((chunk, end)) = &mut self.open else {
                let next = || self.chunks.next_back().map(|(_, chunk)| &**chunk);
                let chunk = self.tail.take().or_else(next)?;
                let end = self.end.next().map_or(chunk.end(), |after| chunk.seek(after));
                self.open = Some((chunk, end));
                continue;
            };
            if *end == chunk.begin() {
                self.open = None;
                continue;
            }
            let (entry, at) = chunk.entry_before(*end);
            if entry.id < self.start {
                return None;
            }
            *end = at;
            if !entry.is_deleted() {
                return Some(entry);
            }
        }
    }
}
