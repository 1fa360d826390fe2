//! Batches: sealed from what is ready, written to the file, brought to the disk.

use super::super::batch;
use super::thread;
use super::{Batch, GROUP_BYTES, Log, Open, PIECE_BYTES, REUSED_BYTES, ROOM_BYTES, Ready, SLOW, SLOW_FOR, State, Step};
use crate::config::Fsync;
use crate::journal::{KnownAs, Merging};
use crate::persist::disk::{Appended, append_all};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

impl Log {
    /// Looks what the shards have handed over.
    pub(super) fn take_in(&self, state: &mut State) {
        state.note(&mut self.feed.drain());
        self.settle(state);
        self.tell_kept(state);
        self.weigh(state);
    }

    /// What is ready becomes a batch, which has its place in the log from then on.
    pub(super) fn seal(&self, state: &mut State) {
        let mut feed = self.feed.drain();
        if !feed.has_ready() {
            return;
        }
        let Ready { mut commands, notes, known_as, .. } = feed.take_ready(std::mem::take(&mut state.spare));
        if commands.capacity() > REUSED_BYTES {
            commands.shrink_to_fit();
        }
        state.note(&mut feed);
        drop(feed);
        let placed = state.placed.clone();
        let mut head = if self.tells_time.load(Ordering::Relaxed) { state.time() } else { Vec::new() };
        let at = state.end + head.len() as u64;
        let body = if notes.is_empty() {
            head.extend_from_slice(&batch::head_of(&commands, at, state.vouched, known_as.as_ref()));
            commands
        } else {
            with_notes(&commands, notes, (at, state.vouched), known_as.as_ref())
        };
        let counts = (head.len() + body.len()) as u64;
        state.end += counts;
        state.sealed += head.len() + body.len();
        state.steps.push_back(Step::Write(Batch { head, body, placed, counts }));
    }

    /// Writes what is ready, if nobody does and the disk can be written; under `always` no more than goes with one sync. Whether
    /// there is more.
    pub(super) fn write_all<'a>(&'a self, mut state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
        let from = state.position;
        while !state.is_writing() && !self.has_failed() && self.is_writable(&state) {
            if self.fsync() == Fsync::Always && state.position - from >= GROUP_BYTES as u64 {
                return (state, true);
            }
            if state.steps.is_empty() {
                self.seal(&mut state);
            }
            let Some(step) = state.steps.pop_front() else { break };
            state = self.take_step(state, step).0;
        }
        (state, false)
    }

    fn is_writable(&self, state: &State) -> bool {
        state.open.is_some() && !state.is_broken
    }

    /// What could not be written is tried once more; whether that succeeded.
    pub(super) fn write_again<'a>(&'a self, mut state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
        if state.is_writing() || !self.is_writable(&state) {
            return (state, false);
        }
        match state.steps.pop_front() {
            Some(step) => self.take_step(state, step),
            None => (state, true),
        }
    }

    /// Does what comes first; whether that succeeded.
    fn take_step<'a>(&'a self, mut state: MutexGuard<'a, State>, step: Step) -> (MutexGuard<'a, State>, bool) {
        let Some(open) = state.open.as_ref() else { return (state, false) };
        let (file, bytes, mut room) = (open.file.clone(), open.bytes, open.room);
        let began = Instant::now();
        state.writes_since = Some(began);
        state.moved_at = Some(began);
        state.writer = thread::here();
        state.is_blocked = false;
        drop(state);
        self.is_at_disk.store(true, Ordering::SeqCst);
        let (what, done) = match &step {
            Step::Begin(_) => ("truncating", if room > bytes { file.cut(bytes) } else { Ok(()) }),
            Step::Write(batch) => {
                let end = bytes + batch.bytes() as u64;
                let is_roomy = self.fsync() != Fsync::Always || end <= room || {
                    room = end.next_multiple_of(ROOM_BYTES);
                    self.make_room(&*file, bytes, room).is_ok()
                };
                let written = match is_roomy {
                    true => self.append(&*file, batch),
                    false => file.cut(bytes).and_then(|()| self.append(&*file, batch)),
                };
                room = if is_roomy { room.max(end) } else { end };
                ("writing to", written)
            }
        };
        let cut = if done.is_err() { file.cut(bytes) } else { Ok(()) };
        self.is_at_disk.store(false, Ordering::SeqCst);
        let mut state = self.lock();
        state.writes_since = None;
        state.moved_at = None;
        let lasted = began.elapsed();
        // (Where nobody has seen it wait nobody has waited for it, or it had to wait for its core.)
        if lasted > SLOW && state.is_blocked {
            self.slow_writes.fetch_add(1, Ordering::Relaxed);
            state.slow_until = Some(Instant::now() + SLOW_FOR);
        }
        let is_done = done.is_ok();
        match done {
            Ok(()) => self.has_taken(&mut state, step, room),
            Err(error) => {
                // What comes behind it waits, and it is the same that is tried again.
                state.steps.push_front(step);
                if let Some(open) = &mut state.open {
                    open.room = bytes;
                }
                self.fail(what, &error);
                if let Err(error) = cut {
                    // A part of the batch may be there, and nothing can be put behind it.
                    self.fail("truncating", &error);
                    self.break_file(&mut state);
                }
            }
        }
        if state.is_broken {
            // (It may have been given up while this was under way.)
            self.begin_next(&mut state);
        }
        self.tell_kept(&mut state);
        self.weigh(&state);
        self.written.notify_all();
        if state.is_idle {
            self.wake.notify_all();
        }
        (state, is_done)
    }

    /// Makes a file longer. (As below: whoever looks sees that the disk moves.)
    fn make_room(&self, file: &dyn Appended, from: u64, to: u64) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let end = to.min(at + PIECE_BYTES as u64);
            file.make_room(at, end)?;
            self.lock().moved_at = Some(Instant::now());
            at = end;
        }
        Ok(())
    }

    /// Puts a batch behind what is in the file. (Whoever looks whether the disk moves sees how far a long one is.)
    fn append(&self, file: &dyn Appended, batch: &Batch) -> io::Result<()> {
        let (first, rest) = batch.body.split_at(batch.body.len().min(PIECE_BYTES));
        append_all(file, &batch.head, first)?;
        for piece in rest.chunks(PIECE_BYTES) {
            self.lock().moved_at = Some(Instant::now());
            append_all(file, &[], piece)?;
        }
        Ok(())
    }

    /// A step is done. `room`: how long the file is now.
    fn has_taken(&self, state: &mut State, step: Step, room: u64) {
        match step {
            Step::Begin(begin) => {
                let before = state.open.replace(begin.file);
                state.former.extend(before.map(|open| open.file));
            }
            Step::Write(batch) => {
                let bytes = batch.bytes() as u64;
                state.sealed -= batch.bytes();
                state.position += batch.counts;
                state.written = batch.placed;
                if let Some(open) = &mut state.open {
                    open.bytes += bytes;
                    open.room = room;
                }
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                let mut body = batch.body;
                if body.capacity() <= REUSED_BYTES {
                    body.clear();
                    state.spare = body;
                }
            }
        }
    }

    /// What was written to the file may be lost, so that nothing is written to it any more.
    fn break_file(&self, state: &mut State) {
        state.is_broken = true;
        self.begin_next(state);
    }

    pub(super) fn until_written<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.is_writing() {
            state = self.written.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Brings what is written to the disk.
    pub(super) fn sync<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.syncs_since.is_some() {
            state = self.written.wait_timeout(state, SLOW).unwrap_or_else(PoisonError::into_inner).0;
        }
        let Some(open) = state.open.as_ref().filter(|_| !state.is_broken) else { return state };
        let (file, former) = (open.file.clone(), state.former.clone());
        let (position, written) = (state.position, state.written.clone());
        state.syncs_since = Some(Instant::now());
        drop(state);
        let synced = former.iter().chain([&file]).try_for_each(|file| file.sync());
        let mut state = self.lock();
        let lasted = state.syncs_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        if lasted > SLOW {
            self.delayed_syncs.fetch_add(1, Ordering::Relaxed);
        }
        self.written.notify_all();
        // (It may have been given up meanwhile for another one.)
        let is_written = |open: &Open| Arc::ptr_eq(&open.file, &file);
        let is_used =
            state.open.as_ref().is_some_and(is_written) || state.former.iter().any(|of| Arc::ptr_eq(of, &file));
        match synced {
            _ if !is_used => {}
            Ok(()) => {
                state.former.retain(|of| !former.iter().any(|done| Arc::ptr_eq(of, done)));
                state.synced = state.synced.max(position);
                if !state.awaits_base {
                    state.vouched = state.synced;
                }
                state.certain = written;
                self.settle(&mut state);
                if !state.awaits_base {
                    self.tell(&state.certain);
                }
                self.weigh(&state);
            }
            Err(error) => {
                // What the system has tried to write and could not it may have forgotten: nothing that is written to
                // this file from now on would be certain.
                self.fail("fsyncing", &error);
                self.break_file(&mut state);
                self.weigh(&state);
            }
        }
        state
    }
}

impl State {
    /// How far the feed is.
    fn note(&mut self, feed: &mut Merging) {
        self.placed.copy_from_slice(feed.placed());
        for (shard, late) in self.late.iter_mut().enumerate() {
            *late = feed.is_late(shard);
        }
        self.unplaced = feed.unplaced();
        let ready = feed.ready();
        // (A note without commands counts, too.)
        self.ready = (ready.commands.len() + ready.note_bytes).max(usize::from(feed.has_ready()));
        self.ready_room = ready.commands.capacity() + ready.note_bytes;
    }
}

/// Commands as batches, with notes between them; behind all of it what there is then.
fn with_notes(
    commands: &[u8],
    notes: Vec<(usize, Vec<String>)>,
    (at, vouched): (u64, u64),
    known_as: Option<&KnownAs>,
) -> Vec<u8> {
    let (mut out, mut from) = (Vec::new(), 0);
    let put = |commands: &[u8], out: &mut Vec<u8>| {
        if !commands.is_empty() {
            out.extend_from_slice(&batch::head(commands, at + out.len() as u64, vouched));
            out.extend_from_slice(commands);
        }
    };
    for (behind, words) in notes {
        put(&commands[from..behind], &mut out);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        out.extend(batch::note(&words, at + out.len() as u64, vouched).unwrap_or_default());
        from = behind;
    }
    put(&commands[from..], &mut out);
    if known_as.is_some() {
        out.extend_from_slice(&batch::head_of(b"", at + out.len() as u64, vouched, known_as));
    }
    out
}
