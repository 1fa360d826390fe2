//! The log that is written: what the shards hand over, in one order, in the last of its files.
//!
//! ```text
//!  shard 0: push ─┐            ready               file            disk
//!  shard 1: push ─┼─ merger ── commands, encoded ── a batch ─ sync ─ for certain
//!  shard 2: push ─┘
//! ```
//!
//! Each shard hands over, once a turn and before anything of that turn leaves it, what it has changed: that is one push,
//! and they are numbered. Under `everysec` and `no` it also writes what is ready, whoever it came from, so that a process
//! that is killed loses nothing; but for the moments in which the disk is slow: then a thread does that, and no shard
//! waits. Under `always` that thread writes and syncs, and tells each shard how far its pushes are on the disk.
//!
//! A push may have to wait for its place: a transaction stands in the file when every shard has handed over its part, and
//! what a shard has changed behind its part stands behind it. So under `everysec` and `no`, too, a shard is told how far its
//! pushes are [settled](Log::settled), and holds replies until then; but no longer than a moment where another shard's part
//! is late.
//!
//! All shards write one stream, in which every transaction stands whole and in one piece. So whatever a crash leaves of
//! it, a prefix of whole batches, is a state that there was.

pub use refusal::Trouble;

use super::batch;
use crate::clock::realtime_us;
use crate::config::Fsync;
use crate::journal::{Encoder, Merger, Record};
use crate::net::Bell;
use crate::persist::disk::{Appendable, append_all};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the disk is brought up to date under `everysec`, and how soon it is tried again after a failure.
const EVERY: Duration = Duration::from_secs(1);
/// While a sync has lasted for longer than this nobody writes: that would wait for it.
const SLOW: Duration = Duration::from_millis(20);
/// Nobody waits for longer for the other parts of transactions, which may have to wait for a script that lasts.
const PARTS_LATE: Duration = Duration::from_millis(20);
/// How long a sync may be put off so that those whose replies the last one has let out take part in the next: not longer
/// than a quarter of what one lasts, and never longer than this.
const GATHERED_WITHIN: Duration = Duration::from_millis(1);
/// Under `always` so much room is made at a time for what is to come. Where a file does not become longer, a sync need not
/// write down its length as well.
const ROOM_BYTES: u64 = 256 << 10;
/// While the disk is slow, more than this is written by a thread of its own, which may have to wait for it.
const KEPT_BYTES: usize = 32 << 20;
/// How long a write or a sync has lasted at the least when writes are refused because too much waits for it: one change that
/// is large is no reason to refuse others'.
const STUCK: Duration = Duration::from_millis(100);
/// A buffer that is kept for what comes next.
const REUSED_BYTES: usize = 1 << 20;

/// How far one shard's pushes are.
#[derive(Default)]
struct Mark {
    /// Handed over.
    pushed: AtomicU64,
    /// In the file, or in memory for no other reason than that the disk is slow, or cannot be written.
    kept: AtomicU64,
    /// On the disk.
    synced: AtomicU64,
    /// Somebody there waits for that.
    awaits: AtomicBool,
}

/// The file that is written.
struct Open {
    file: Appendable,
    bytes: u64,
    /// How long it is: there are zeros behind what was written.
    room: u64,
}

impl Open {
    fn new(file: Appendable, bytes: u64) -> Open {
        Open { file, bytes, room: bytes }
    }

    /// Cuts off the room: what stays of it after a crash is cut when the log is read.
    fn trim(&mut self) -> io::Result<()> {
        if self.room > self.bytes {
            self.file.cut(self.bytes)?;
            self.room = self.bytes;
        }
        Ok(())
    }
}

struct State {
    merger: Merger,
    encoder: Encoder,
    /// Commands that have their place and were not written.
    ready: Vec<u8>,
    spare: Vec<u8>,
    /// Of each shard: the records that it has pushed by the end of each push that has not its place, and how many have.
    ends: Vec<VecDeque<u64>>,
    records: Vec<u64>,
    placed: Vec<u64>,
    /// Of each shard some of whose pushes have not their place: how many have, and since when that is so.
    stays: Vec<Option<(u64, Instant)>>,
    /// Pushes of which everything is in the file.
    written: Vec<u64>,
    open: Option<Open>,
    /// Files that were written before this one and are not on the disk for certain.
    former: Vec<Appendable>,
    /// Somebody writes, since when.
    writes_since: Option<Instant>,
    syncs_since: Option<Instant>,
    /// What has come and has no place, and what is being written, in bytes.
    unplaced: usize,
    writing: usize,
    /// Where the next batch begins, how much is on the disk, and how much of that batches say to be there.
    position: u64,
    synced: u64,
    vouched: u64,
    /// Nothing is written to the file any more: what was, may be lost.
    is_broken: bool,
    /// What was pushed before the file was begun is not certain before a base is that has it; those pushes, and those that
    /// would be certain then.
    awaits_base: bool,
    /// The log begins with that base: no file of it is in the manifest before.
    is_new: bool,
    based: Vec<u64>,
    certain: Vec<u64>,
    /// The last time that stands in the file, seconds since 1970.
    told_s: u64,
    /// Notes that wait for their place behind what is ready.
    notes: Vec<Vec<String>>,
    /// The thread waits until it is woken.
    is_idle: bool,
    /// It waits until so many replies wait.
    gathers: Option<u64>,
    /// Replies that waited when the last sync began, how many those were that it let out, and how long it lasted.
    waited: u64,
    group: u64,
    lasted: Duration,
    ends_now: bool,
}

pub struct Log {
    state: Mutex<State>,
    /// For the thread.
    wake: Condvar,
    /// For whoever waits until nobody writes.
    written: Condvar,
    marks: Box<[Mark]>,
    bells: Arc<[Bell]>,
    fsync: AtomicU8,
    /// The time is told where it has changed.
    pub tells_time: AtomicBool,
    has_started: AtomicBool,
    /// Changes are handed over.
    is_on: AtomicBool,
    /// Replies that have had to wait so far.
    held: AtomicU64,
    /// What is wrong, until it is mended.
    failure: Mutex<Option<String>>,
    /// Nothing can be written at the moment.
    has_failed: AtomicBool,
    /// Bytes that wait for the disk in memory, how many may, and whether those are more.
    waiting: AtomicUsize,
    limit: AtomicUsize,
    is_full: AtomicBool,
    /// What clients want to write is refused, for one of these reasons.
    refuses: AtomicBool,
    /// For the thread that writes while the disk is slow.
    overflow: Condvar,
    /// Bytes of the file that is written, and of files before it.
    pub bytes: AtomicU64,
    pub delayed_syncs: AtomicU64,
    /// The disk is left to others: `everysec` waits.
    pub rests: AtomicBool,
}

impl Log {
    /// The log of so many shards as there are bells; it is off.
    pub fn new(bells: Arc<[Bell]>) -> Arc<Log> {
        let shards = bells.len();
        Arc::new(Log {
            state: Mutex::new(State {
                merger: Merger::new(shards),
                encoder: Encoder::of_log(),
                ready: Vec::new(),
                spare: Vec::new(),
                ends: (0..shards).map(|_| VecDeque::new()).collect(),
                records: vec![0; shards],
                placed: vec![0; shards],
                stays: vec![None; shards],
                written: vec![0; shards],
                open: None,
                former: Vec::new(),
                writes_since: None,
                syncs_since: None,
                unplaced: 0,
                writing: 0,
                position: 0,
                synced: 0,
                vouched: 0,
                is_broken: false,
                awaits_base: false,
                is_new: false,
                based: vec![0; shards],
                certain: vec![0; shards],
                told_s: 0,
                notes: Vec::new(),
                is_idle: false,
                gathers: None,
                waited: 0,
                group: 0,
                lasted: Duration::ZERO,
                ends_now: false,
            }),
            wake: Condvar::new(),
            written: Condvar::new(),
            marks: (0..shards).map(|_| Mark::default()).collect(),
            bells,
            fsync: AtomicU8::new(Fsync::EverySecond as u8),
            tells_time: AtomicBool::new(false),
            has_started: AtomicBool::new(false),
            is_on: AtomicBool::new(false),
            held: AtomicU64::new(0),
            failure: Mutex::default(),
            has_failed: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            is_full: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            overflow: Condvar::new(),
            bytes: AtomicU64::new(0),
            delayed_syncs: AtomicU64::new(0),
            rests: AtomicBool::new(false),
        })
    }

    /// Starts the threads that write and sync, if they do not run.
    ///
    /// # Errors
    /// There can be no more threads.
    pub fn start(self: &Arc<Log>) -> io::Result<()> {
        if self.has_started.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let (log, other) = (self.clone(), self.clone());
        std::thread::Builder::new().name("log".to_owned()).spawn(move || log.keep())?;
        std::thread::Builder::new().name("log-overflow".to_owned()).spawn(move || other.keep_up()).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_fsync(&self, fsync: Fsync) {
        self.fsync.store(fsync as u8, Ordering::SeqCst);
        // Not between the thread's look at that and its wait. What waited for the thread is not left to it.
        let state = self.lock();
        let mut state = if fsync == Fsync::Always || state.open.is_none() { state } else { self.write(state) };
        self.tell_kept(&mut state);
        drop(state);
        self.wake.notify_all();
        // Replies that were held under `always` have less to wait for under the others.
        self.ring();
    }

    fn fsync(&self) -> Fsync {
        match self.fsync.load(Ordering::SeqCst) {
            of if of == Fsync::Always as u8 => Fsync::Always,
            of if of == Fsync::EverySecond as u8 => Fsync::EverySecond,
            _ => Fsync::No,
        }
    }

    /// Whether changes are handed over.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Whether replies wait for the disk, rather than for the file.
    #[inline]
    pub fn holds_replies(&self) -> bool {
        self.is_on() && self.fsync.load(Ordering::SeqCst) == Fsync::Always as u8
    }

    /// What a shard has changed in a turn. The number of this push.
    pub fn push(&self, shard: usize, records: Vec<Record>) -> u64 {
        let mut state = self.lock();
        state.records[shard] += records.len() as u64;
        state.unplaced += records.iter().map(refusal::bytes_of).sum::<usize>();
        records.into_iter().for_each(|record| state.merger.push(shard, record));
        let end = state.records[shard];
        state.ends[shard].push_back(end);
        state.place();
        let number = self.marks[shard].pushed.load(Ordering::Relaxed) + 1;
        self.marks[shard].pushed.store(number, Ordering::Release);
        if self.fsync() == Fsync::Always {
            self.settle(&mut state);
            self.weigh(&state);
            let is_enough = state.gathers.is_none_or(|enough| self.held.load(Ordering::Relaxed) >= enough);
            drop(state);
            if is_enough {
                self.wake.notify_all();
            }
        } else {
            let (mut state, has_written) = self.write_ready(state);
            self.settle(&mut state);
            if !has_written {
                self.weigh(&state);
                self.tell_kept(&mut state);
            }
        }
        number
    }

    /// A push of a shard that has changed nothing. Its number.
    fn push_nothing(&self, state: &mut State, shard: usize) -> u64 {
        let end = state.records[shard];
        state.ends[shard].push_back(end);
        state.place();
        let number = self.marks[shard].pushed.load(Ordering::Relaxed) + 1;
        self.marks[shard].pushed.store(number, Ordering::Release);
        number
    }

    /// Something that only this server understands, behind what has its place.
    pub fn note(&self, words: Vec<String>) {
        if !self.is_on() {
            return;
        }
        let mut state = self.lock();
        state.notes.push(words);
        drop(self.write(state));
    }

    /// The number of a shard's last push.
    #[inline]
    pub fn pushed(&self, shard: usize) -> u64 {
        self.marks[shard].pushed.load(Ordering::Acquire)
    }

    /// How many of a shard's pushes are on the disk.
    #[inline]
    pub fn synced(&self, shard: usize) -> u64 {
        self.marks[shard].synced.load(Ordering::SeqCst)
    }

    /// How many of a shard's pushes are as safe as this way of syncing makes them before they are acknowledged: on the disk
    /// under `always`, else in the file.
    #[inline]
    pub fn settled(&self, shard: usize) -> u64 {
        match self.holds_replies() {
            true => self.synced(shard),
            false => self.marks[shard].kept.load(Ordering::SeqCst),
        }
    }

    /// Replies of a connection wait for the disk.
    pub fn count_held(&self) {
        self.held.fetch_add(1, Ordering::Relaxed);
    }

    /// A shard wants to hear when more is settled: its bell is rung once. It looks again after this.
    pub fn await_sync(&self, shard: usize) {
        self.marks[shard].awaits.store(true, Ordering::SeqCst);
    }

    /// Writes what is ready, if nobody does and the disk is not slow.
    fn write<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.write_ready(state).0
    }

    /// [`Log::write`]; whether that was anything.
    fn write_ready<'a>(&'a self, mut state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
        if state.is_slow() {
            if state.ready.len() >= KEPT_BYTES && !state.is_writing() {
                self.overflow.notify_one();
            }
            return (state, false);
        }
        let mut has_written = false;
        while !state.is_writing() && state.has_ready() && !self.has_failed() {
            let (left, is_written) = self.write_batch(state);
            state = left;
            has_written |= is_written;
        }
        (state, has_written)
    }

    /// Writes one batch; whether that succeeded.
    fn write_batch<'a>(&'a self, mut state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
        let Some(open) = state.open.as_ref().filter(|_| !state.is_broken) else { return (state, false) };
        let (file, bytes, mut room) = (open.file.clone(), open.bytes, open.room);
        let spare = std::mem::take(&mut state.spare);
        let commands = std::mem::replace(&mut state.ready, spare);
        // Each batch stands for itself.
        state.encoder.forget();
        let time = if self.tells_time.load(Ordering::Relaxed) { state.time() } else { Vec::new() };
        let (position, synced, placed) = (state.position + time.len() as u64, state.vouched, state.placed.clone());
        let notes = std::mem::take(&mut state.notes);
        state.writing = commands.len();
        state.writes_since = Some(Instant::now());
        drop(state);
        let mut head = if commands.is_empty() { Vec::new() } else { batch::head(&commands, position, synced) };
        let mut end = Vec::new();
        for words in &notes {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let at = position + (head.len() + commands.len() + end.len()) as u64;
            end.extend(batch::note(&words, at, synced).unwrap_or_default());
        }
        if commands.is_empty() {
            head = std::mem::take(&mut end);
        }
        head.splice(0..0, time);
        let mut commands = commands;
        let commands_len = commands.len();
        commands.extend_from_slice(&end);
        let end = bytes + (head.len() + commands.len()) as u64;
        let is_roomy = self.fsync() != Fsync::Always || end <= room || {
            room = end.next_multiple_of(ROOM_BYTES);
            file.make_room(bytes, room).is_ok()
        };
        let written = match is_roomy {
            true => append_all(&*file, &head, &commands),
            false => file.cut(bytes).and_then(|()| append_all(&*file, &head, &commands)),
        };
        let mut state = self.lock();
        state.writing = 0;
        state.writes_since = None;
        let is_written = written.is_ok();
        match written {
            Ok(()) => {
                state.position += end - bytes;
                state.written = placed;
                if let Some(open) = &mut state.open {
                    open.bytes = end;
                    open.room = if is_roomy { room.max(end) } else { end };
                }
                self.bytes.fetch_add(end - bytes, Ordering::Relaxed);
                if commands.capacity() <= REUSED_BYTES {
                    commands.clear();
                    state.spare = commands;
                }
            }
            Err(error) => {
                // What has come meanwhile goes behind it. Its database need not be the one that was chosen last then.
                state.told_s = 0;
                commands.truncate(commands_len);
                commands.extend_from_slice(&state.ready);
                state.ready = commands;
                state.notes.splice(0..0, notes);
                let cut = file.cut(bytes);
                if let Some(open) = &mut state.open {
                    open.room = bytes;
                }
                if let Err(error) = cut {
                    // A part of the batch may be there, and nothing can be put behind it.
                    state.is_broken = true;
                    self.fail("truncating", &error);
                }
                self.fail("writing to", &error);
            }
        }
        self.tell_kept(&mut state);
        self.weigh(&state);
        self.written.notify_all();
        if state.is_idle {
            self.wake.notify_all();
        }
        (state, is_written)
    }

    fn until_written<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.is_writing() {
            state = self.written.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Brings what is written to the disk.
    fn sync<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(open) = state.open.as_ref().filter(|_| !state.is_broken) else { return state };
        let (file, former) = (open.file.clone(), state.former.clone());
        let (position, written) = (state.position, state.written.clone());
        state.syncs_since = Some(Instant::now());
        drop(state);
        let synced = former.iter().chain([&file]).try_for_each(|file| file.sync());
        let mut state = self.lock();
        state.lasted = state.syncs_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        if state.lasted > SLOW {
            self.delayed_syncs.fetch_add(1, Ordering::Relaxed);
        }
        match synced {
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
            }
            Err(error) => {
                // What the system has tried to write and could not it may have forgotten: nothing that is written to
                // this file from now on would be certain.
                state.is_broken = true;
                self.fail("fsyncing", &error);
            }
        }
        state
    }

    /// Where nothing waits for the disk, pushes that have changed nothing do not either.
    fn settle(&self, state: &mut State) {
        let is_idle = !state.has_ready() && !state.is_writing() && state.position == state.synced;
        if is_idle && state.certain != state.placed {
            state.certain.clone_from(&state.placed);
            if !state.awaits_base {
                self.tell(&state.certain);
            }
        }
    }

    /// So many pushes of each shard are in the file, or would be if the disk let them, or if no other shard let them wait for
    /// too long.
    fn tell_kept(&self, state: &mut State) {
        if self.holds_replies() {
            return;
        }
        let is_hindered = state.is_slow() || self.has_failed();
        let has_all = !state.has_ready() && !state.is_writing();
        let mut any = false;
        for (shard, mark) in self.marks.iter().enumerate() {
            let kept = match is_hindered || has_all {
                _ if state.is_late(shard) => self.pushed(shard),
                true => state.placed[shard],
                false => state.written[shard],
            };
            any |= mark.kept.fetch_max(kept, Ordering::SeqCst) < kept;
        }
        if any {
            self.ring();
        }
    }

    /// To be called where somebody waits: nobody does for a disk that has become slow, nor for parts that are late, also
    /// where nothing is pushed any more.
    pub fn look(&self) {
        if self.is_on() {
            self.tell_kept(&mut self.lock());
        }
    }

    /// So many pushes of each shard are on the disk.
    fn tell(&self, synced: &[u64]) {
        for (mark, synced) in self.marks.iter().zip(synced) {
            mark.synced.fetch_max(*synced, Ordering::SeqCst);
        }
        self.ring();
    }

    /// Rings for every shard that waits for the disk. (A shard may wait for any shard's pushes: so it is rung for when the
    /// marks of all of them are up to date.)
    fn ring(&self) {
        for (mark, bell) in self.marks.iter().zip(&*self.bells) {
            if mark.awaits.load(Ordering::SeqCst) && mark.awaits.swap(false, Ordering::SeqCst) {
                bell.ring_from_outside();
            }
        }
    }

    /// The file in which the log has ended is written again.
    pub fn go_on_in(&self, file: Appendable, bytes: u64) {
        let mut state = self.lock();
        state.open = Some(Open::new(file, bytes));
        state.is_new = false;
        state.encoder.forget();
    }

    /// From now on this file is written; returns at which position of the log it begins. What was ready before goes to the
    /// file before it.
    pub fn write_to(&self, file: Appendable, bytes: u64) -> io::Result<u64> {
        let mut state = self.lock();
        state = self.until_written(state);
        let is_on = state.open.is_some() && self.is_on();
        let is_used = is_on && !state.is_broken;
        if is_used && state.has_ready() {
            let (left, is_written) = self.write_batch(state);
            state = left;
            if !is_written {
                return Err(io::Error::other("the file before it cannot be written"));
            }
        }
        if let Some(open) = state.open.as_mut().filter(|_| is_used) {
            open.trim()?;
        }
        state.told_s = 0;
        let before = state.open.replace(Open::new(file, bytes));
        if is_used {
            state.former.extend(before.map(|open| open.file));
        } else {
            // Whoever begins a file so writes down all that there is.
            state.former.clear();
            if !is_on {
                state.ready.clear();
                state.notes.clear();
                state.is_new = true;
            }
            // (Else what was acknowledged and could not be written stands in this file at least, should there be no base.)
            state.is_broken = false;
            state.awaits_base = true;
            state.based = state.placed.clone();
        }
        state.encoder.forget();
        let position = state.position;
        self.recover(&state);
        Ok(position)
    }

    /// Changes are handed over from now on, or not any more. To be called while nothing changes on any shard.
    pub fn set_on(&self, wants: bool) {
        self.is_on.store(wants, Ordering::Release);
        if !wants {
            let state = self.until_written(self.lock());
            let mut state = if state.open.is_some() { self.write(state) } else { state };
            let is_broken = state.is_broken;
            if let Some(open) = state.open.as_mut().filter(|_| !is_broken) {
                // Should the room stay, then it is cut off by whoever reads the file.
                let _ = open.trim();
            }
            let mut state = if state.open.is_some() { self.sync(state) } else { state };
            // A reply may wait for a push that its shard is still to make. No shard pushes from here on: so an empty push of
            // each shard takes its place, and nobody waits for ever.
            let all: Vec<u64> = (0..self.marks.len()).map(|shard| self.push_nothing(&mut state, shard)).collect();
            for (mark, push) in self.marks.iter().zip(&all) {
                mark.kept.fetch_max(*push, Ordering::SeqCst);
            }
            state.awaits_base = false;
            self.tell(&all);
            self.recover(&state);
            self.weigh(&state);
        }
        self.wake.notify_all();
    }

    /// There is a base on the disk that has whatever was pushed before the file was begun.
    pub fn is_based(&self) {
        let mut state = self.lock();
        if std::mem::take(&mut state.awaits_base) {
            state.is_new = false;
            state.vouched = state.synced;
            self.tell(&state.based);
            self.tell(&state.certain);
            self.recover(&state);
        }
    }

    /// Whether there is no such base yet: a log without one says nothing.
    pub fn awaits_base(&self) -> bool {
        self.lock().awaits_base
    }

    /// Whether that is the first: the files that are written are in no manifest.
    pub fn is_new(&self) -> bool {
        let state = self.lock();
        state.awaits_base && state.is_new
    }

    /// The log goes on at this position.
    pub fn begin_at(&self, position: u64) {
        let mut state = self.lock();
        state.position = position;
        state.synced = position;
        state.vouched = position;
    }

    /// Brings everything to the disk; nothing comes behind it.
    pub fn end(&self) -> io::Result<()> {
        let mut state = self.lock();
        while state.is_writing() || state.syncs_since.is_some() {
            state = self.written.wait_timeout(state, SLOW).unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.open.is_none() || !self.is_on() {
            return Ok(());
        }
        while state.has_ready() {
            let (left, is_written) = self.write_batch(state);
            state = left;
            if !is_written {
                return Err(io::Error::other("it cannot be written"));
            }
        }
        let is_broken = state.is_broken;
        if let Some(open) = state.open.as_mut().filter(|_| !is_broken) {
            open.trim()?;
        }
        state = self.sync(state);
        state.ends_now = true;
        self.wake.notify_all();
        self.overflow.notify_all();
        match state.is_broken {
            true => Err(io::Error::other("it cannot be brought to the disk")),
            false => Ok(()),
        }
    }

    /// Whether a sync is under way.
    pub fn syncs(&self) -> bool {
        self.lock().syncs_since.is_some()
    }
}

impl State {
    fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.notes.is_empty()
    }

    /// The line that says what time it is, where that has not been said.
    fn time(&mut self) -> Vec<u8> {
        let now_s = realtime_us() / 1_000_000;
        if now_s <= self.told_s {
            return Vec::new();
        }
        self.told_s = now_s;
        format!("#TS:{now_s}\r\n").into_bytes()
    }

    /// Whether somebody writes to the file.
    fn is_writing(&self) -> bool {
        self.writes_since.is_some()
    }

    /// Whether a sync, or a write, lasts for so long that nobody waits for it.
    fn is_slow(&self) -> bool {
        self.syncs_since.is_some_and(|since| since.elapsed() > SLOW)
            || self.writes_since.is_some_and(|since| since.elapsed() > SLOW)
    }

    /// Whether a shard's pushes have waited for their place for so long that nobody waits for that.
    fn is_late(&mut self, shard: usize) -> bool {
        let (placed, stays) = (self.placed[shard], &mut self.stays[shard]);
        if self.ends[shard].is_empty() {
            *stays = None;
            return false;
        }
        match *stays {
            Some((of, since)) if of == placed => since.elapsed() > PARTS_LATE,
            _ => {
                *stays = Some((placed, Instant::now()));
                false
            }
        }
    }

    /// Whether something is not on the disk.
    fn has_work(&self) -> bool {
        self.has_ready() || self.position > self.synced
    }

    /// Gives what was pushed its place, as far as it has one.
    fn place(&mut self) {
        while let Some(unit) = self.merger.pop() {
            let bytes: usize = unit.commands.iter().map(|command| command.bytes.len()).sum();
            self.unplaced = self.unplaced.saturating_sub(bytes);
            self.encoder.unit(&unit, &mut self.ready);
        }
        for (shard, ends) in self.ends.iter_mut().enumerate() {
            while ends.front().is_some_and(|end| *end <= self.merger.left(shard)) {
                ends.pop_front();
                self.placed[shard] += 1;
            }
        }
    }
}

mod keeping;
mod refusal;
#[cfg(test)]
mod tests;
