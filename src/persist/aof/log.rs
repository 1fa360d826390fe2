//! The log that is written: what the shards hand over, in one order, in the last of its files.
//!
//! ```text
//!  shard 0: push ─┐              ready               sealed           file            disk
//!  shard 1: push ─┼─ Feed ── commands, in order ── batches ── written by a thread ── synced
//!  shard 2: push ─┘
//! ```
//!
//! Each shard hands over, once a turn and before anything of that turn leaves the shard, what it has changed: that is one
//! push of the [`Feed`], and pushes are numbered. No shard touches a file or waits for a lock: a thread takes what has come,
//! writes it as a batch, and tells each shard how far its pushes are [settled](Log::settled): in the file under `everysec` and
//! `no`, on the disk under `always`. Until then the shard holds the replies.
//!
//! A file that takes long is nobody's affair but the thread's: under `everysec` and `no` replies do not wait for a disk that
//! has been slow just now, and what is handed over meanwhile is taken, and weighed, by another thread.
//!
//! A push may have to wait for its place: a transaction stands in the file when every shard has handed over its part, and
//! what a shard has changed behind its part stands behind it. Nobody waits for longer than a moment for a part that is late.
//!
//! | file | what |
//! |---|---|
//! | `keeping.rs` | the threads |
//! | `writing.rs` | batches: sealed, written, synced; a file that fails |
//! | `telling.rs` | how far pushes are, for the replies that wait |
//! | `refusal.rs` | when writes are refused |
//! | `sleeper.rs` | how a thread is woken by a shard that does not wait |
//!
//! All shards write one stream, in which every transaction stands whole and in one piece. So whatever a crash leaves of
//! it, a prefix of whole batches, is a state that there was. Which bytes a batch has, and where in the log it stands, is known
//! when the batch is sealed, before any disk is asked: so another file can be begun without a wait for the one before it.

pub use refusal::Trouble;

use super::batch;
use crate::clock::realtime_us;
use crate::config::Fsync;
use crate::journal::{Feed, Ready, Record};
use crate::net::Bell;
use crate::persist::disk::Appendable;
use sleeper::Sleeper;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the disk is brought up to date under `everysec`, and how soon it is tried again after a failure.
const EVERY: Duration = Duration::from_secs(1);
/// A write that lasts for longer than this is waited for by nobody, and neither are those that follow within some seconds:
/// whatever made it slow would do so to each of them.
const SLOW: Duration = Duration::from_millis(20);
const SLOW_FOR: Duration = Duration::from_secs(5);
/// How long a sync may be put off so that those whose replies the last one has let out take part in the next: not longer
/// than a quarter of what one lasts, and never longer than this.
const GATHERED_WITHIN: Duration = Duration::from_millis(1);
/// For how long what only readers of the stream are to get is gathered.
const GATHERED_FOR_READERS: Duration = Duration::from_micros(500);
/// Under `always` so much room is made at a time for what is to come. Where a file does not become longer, a sync need not
/// write down its length as well.
const ROOM_BYTES: u64 = 256 << 10;
/// For how long the disk has not moved when writes are refused because too much waits for it. (Before that they wait: a disk that
/// is slower than those who write is no reason to refuse anything.)
const STUCK: Duration = Duration::from_secs(2);
/// A sync under `everysec` that lasts for so long: what it is to bring to the disk waits, too.
const LATE: Duration = Duration::from_secs(1);
/// A long write goes to the system in pieces, each of which is a move.
const PIECE_BYTES: usize = 1 << 20;
/// Under `always` so much is written before the next sync at the most: who never rests puts off nobody's.
const GROUP_BYTES: usize = 16 << 20;
/// A buffer that is kept for what comes next.
const REUSED_BYTES: usize = 1 << 20;

/// How far one shard's pushes are.
#[derive(Default)]
#[repr(align(128))]
struct Mark {
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

/// What is to be done with the files, in this order.
enum Step {
    Write(Batch),
    /// What follows stands in this file.
    Begin(Begin),
}

/// A file that is begun, in the moment of which a base is made.
struct Begin {
    file: Open,
    /// Where in the log it begins.
    position: u64,
    /// Pushes of each shard that the base has, and whether that is on the disk.
    based: Vec<u64>,
    has_base: bool,
}

/// Commands that have their bytes and their place in the log.
struct Batch {
    head: Vec<u8>,
    body: Vec<u8>,
    /// Pushes of each shard that are in the file when this is.
    placed: Vec<u64>,
    /// How many bytes of the log it is: a line that says something of the file alone is none.
    counts: u64,
}

impl Batch {
    fn bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }
}

struct State {
    open: Option<Open>,
    /// Files that were written before this one and are not on the disk for certain.
    former: Vec<Appendable>,
    /// What is sealed and not written; and its bytes, with those that are being written.
    steps: VecDeque<Step>,
    sealed: usize,
    spare: Vec<u8>,
    /// Of the feed, when it was looked at last: pushes of each shard that have their place, which of them wait for too long
    /// for theirs, and bytes that wait for their place, and for being sealed.
    placed: Vec<u64>,
    late: Vec<bool>,
    /// Replies have been let go that wait for what is not in the file, and whatever the reason was goes on.
    is_ahead: bool,
    /// When that was said last.
    ahead_told: Option<Instant>,
    unplaced: usize,
    ready: usize,
    /// What is allocated for those that wait for being sealed.
    ready_room: usize,
    /// Pushes of which everything is in the file.
    written: Vec<u64>,
    /// Somebody writes, since when, where the system says what that thread does, and whether it was seen to wait for the disk.
    writes_since: Option<Instant>,
    /// When the last piece of that began.
    moved_at: Option<Instant>,
    writer: Option<Arc<Path>>,
    is_blocked: bool,
    syncs_since: Option<Instant>,
    /// The thread that writes is the one that syncs.
    carrier_syncs: bool,
    /// The disk has been slow, which is to be expected again until then.
    slow_until: Option<Instant>,
    /// Where the next batch that is written, and the next that is sealed, begins; how much is on the disk, and how much of
    /// that batches say to be there.
    position: u64,
    end: u64,
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
    /// The thread that syncs waits until it is woken.
    is_idle: bool,
    ends_now: bool,
}

pub struct Log {
    feed: Arc<Feed>,
    state: Mutex<State>,
    /// The thread that writes, and the one that takes what comes while the first is held up; whether it is.
    carrier: Sleeper,
    deputy: Sleeper,
    is_held_up: AtomicBool,
    /// The carrier waits until so many replies wait; 0 where it does not.
    gathers: AtomicU64,
    /// For the thread that syncs under `everysec`.
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
    /// Bytes that wait for the disk, those of them that wait for nothing else, how many may, and whether there are more and the
    /// disk does not move.
    waiting: AtomicUsize,
    unwritten: AtomicUsize,
    /// The same of what has no place yet.
    unplaced: AtomicUsize,
    limit: AtomicUsize,
    is_full: AtomicBool,
    /// What clients want to write is refused, for one of these reasons.
    refuses: AtomicBool,
    /// Bytes of the file that is written, and of files before it.
    pub bytes: AtomicU64,
    /// Syncs, and writes, that have lasted for longer than [`SLOW`].
    pub delayed_syncs: AtomicU64,
    pub slow_writes: AtomicU64,
    /// The disk is left to others: `everysec` waits.
    pub rests: AtomicBool,
    /// The thread that writes has asked the system for it, and has no answer.
    is_at_disk: AtomicBool,
}

impl Log {
    /// The log of what a feed brings; it is off.
    pub fn new(feed: Arc<Feed>, bells: Arc<[Bell]>) -> Arc<Log> {
        let shards = feed.shards();
        Arc::new(Log {
            feed,
            state: Mutex::new(State {
                open: None,
                former: Vec::new(),
                steps: VecDeque::new(),
                sealed: 0,
                spare: Vec::new(),
                placed: vec![0; shards],
                late: vec![false; shards],
                is_ahead: false,
                ahead_told: None,
                unplaced: 0,
                ready: 0,
                ready_room: 0,
                written: vec![0; shards],
                writes_since: None,
                moved_at: None,
                writer: None,
                is_blocked: false,
                syncs_since: None,
                carrier_syncs: false,
                slow_until: None,
                position: 0,
                end: 0,
                synced: 0,
                vouched: 0,
                is_broken: false,
                awaits_base: false,
                is_new: false,
                based: vec![0; shards],
                certain: vec![0; shards],
                told_s: 0,
                is_idle: false,
                ends_now: false,
            }),
            carrier: Sleeper::default(),
            deputy: Sleeper::default(),
            is_held_up: AtomicBool::new(false),
            gathers: AtomicU64::new(0),
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
            unwritten: AtomicUsize::new(0),
            unplaced: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            is_full: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            delayed_syncs: AtomicU64::new(0),
            slow_writes: AtomicU64::new(0),
            rests: AtomicBool::new(false),
            is_at_disk: AtomicBool::new(false),
        })
    }

    /// Starts the threads that write and sync, if they do not run. They also bring the feed to whoever else reads it.
    ///
    /// # Errors
    /// There can be no more threads.
    pub fn start(self: &Arc<Log>) -> io::Result<()> {
        if self.has_started.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        for (name, work) in [("feed", Log::carry as fn(&Log)), ("feed-deputy", Log::stand_in), ("log-sync", Log::keep)]
        {
            let log = self.clone();
            std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&log))?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_fsync(&self, fsync: Fsync) {
        self.fsync.store(fsync as u8, Ordering::SeqCst);
        // Not between the thread's look at that and its wait.
        drop(self.lock());
        self.carrier.call();
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

    /// Whether changes are handed over for the log.
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
        let number = self.feed.push(shard, records);
        self.call_carrier();
        number
    }

    /// Something that only this server understands, behind what was pushed before. The number of this push.
    pub fn push_note(&self, shard: usize, words: Vec<String>) -> u64 {
        let number = self.feed.push_note(shard, words);
        self.call_carrier();
        number
    }

    /// Puts bytes that are no changes into the stream, behind what the shard has handed over.
    pub fn say(&self, shard: usize, bytes: Box<[u8]>) -> u64 {
        let number = self.feed.say(shard, bytes);
        self.call_carrier();
        number
    }

    /// The stream may have come further without a change: the log says so.
    pub fn note_position(&self) {
        if self.feed.note_position() {
            self.call_carrier();
        }
    }

    fn call_carrier(&self) {
        // (What was handed over is there before this thread sees that the other one does not sleep: see `gather_for_readers`.)
        fence(Ordering::SeqCst);
        let enough = self.gathers.load(Ordering::Relaxed);
        if enough == 0 || self.held.load(Ordering::Relaxed) >= enough {
            self.carrier.call();
        }
        if self.is_held_up.load(Ordering::Relaxed) {
            self.deputy.call();
        }
    }

    /// The number of a shard's last push.
    #[inline]
    pub fn pushed(&self, shard: usize) -> u64 {
        self.feed.pushed(shard)
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

    /// To be called where somebody has waited for a while: the thread may be held up by the disk, and parts of transactions
    /// may be late, also where nothing is pushed any more.
    pub fn look(&self) {
        self.is_held_up.store(true, Ordering::Relaxed);
        self.deputy.call();
        self.carrier.call();
    }

    /// The file in which the log has ended is written again.
    pub fn go_on_in(&self, file: Appendable, bytes: u64) {
        let mut state = self.lock();
        self.forget_waiting(&mut state);
        state.open = Some(Open::new(file, bytes));
        state.former.clear();
        state.is_new = false;
        state.is_broken = false;
        self.feed.drain().forget_noted();
        self.recover(&state);
    }

    /// What is handed over from now on stands in this file, and what was before in the file before it; returns at which
    /// position of the log what comes now begins. No disk is waited for.
    ///
    /// # Errors
    /// The file before it cannot be written at the moment.
    pub fn write_to(&self, file: Appendable, bytes: u64) -> io::Result<u64> {
        let mut state = self.lock();
        let is_on = state.open.is_some() && self.is_on();
        let is_used = is_on && !state.is_broken;
        if is_used && self.has_failed() {
            return Err(io::Error::other("the file before it cannot be written"));
        }
        self.take_in(&mut state);
        if is_on {
            self.seal(&mut state);
        } else {
            self.forget_waiting(&mut state);
            state.is_new = true;
        }
        self.feed.drain().forget_noted();
        let position = state.end;
        let file = Open::new(file, bytes);
        let begin = Begin { file, position, based: state.placed.clone(), has_base: false };
        state.steps.push_back(Step::Begin(begin));
        if is_used {
            state.told_s = 0;
        } else {
            self.begin_next(&mut state);
        }
        drop(state);
        self.carrier.call();
        Ok(position)
    }

    /// Where nothing is certain of the file that was written, the next one that is to be begun is, at once. What was
    /// acknowledged and could not be written stands there at least, should there be no base; the base has that, too, and the
    /// file says so. (A write that is under way ends first: what becomes of it is a matter of the file before.)
    fn begin_next(&self, state: &mut State) {
        if state.is_writing() {
            return;
        }
        let next = state.steps.iter().position(|step| matches!(step, Step::Begin(_)));
        let Some(Step::Begin(begin)) = next.and_then(|at| state.steps.remove(at)) else { return };
        // Whoever begins a file so writes down all that there is.
        state.former.clear();
        state.open = Some(begin.file);
        state.told_s = 0;
        state.is_broken = false;
        state.awaits_base = true;
        state.based = begin.based;
        if begin.position > state.position {
            let head = batch::before_base(begin.position, state.position, state.vouched);
            state.sealed += head.len();
            let placed = state.written.clone();
            state.steps.push_front(Step::Write(Batch { head, body: Vec::new(), placed, counts: 0 }));
        }
        if begin.has_base {
            self.take_base(state);
        }
        self.recover(state);
        self.carrier.call();
    }

    /// What waits to be written is not going to be.
    fn forget_waiting(&self, state: &mut State) {
        state.steps.clear();
        state.sealed = 0;
        state.end = state.position;
        self.feed.drain().take_ready(Vec::new());
        state.ready = 0;
    }

    /// Changes are handed over from now on, or not any more; then what was goes to the disk, if that can be had. To be called
    /// while nothing changes on any shard, and where the disk may be waited for.
    pub fn set_on(&self, wants: bool) {
        if wants {
            self.feed.drain().set_logged(true);
            self.is_on.store(true, Ordering::Release);
            return;
        }
        let state = self.bring_all(self.lock()).0;
        let mut state = self.until_written(state);
        self.is_on.store(false, Ordering::Release);
        // A reply may wait for a push that its shard is still to make. No shard pushes from here on: so an empty push of
        // each shard takes its place, and nobody waits for ever.
        let all: Vec<u64> = (0..self.marks.len()).map(|shard| self.feed.push(shard, Vec::new())).collect();
        self.feed.drain().set_logged(false);
        self.forget_waiting(&mut state);
        state.open = None;
        state.is_broken = false;
        state.awaits_base = false;
        self.take_in(&mut state);
        for (mark, push) in self.marks.iter().zip(&all) {
            mark.kept.fetch_max(*push, Ordering::SeqCst);
        }
        self.tell(&all);
        self.recover(&state);
        self.weigh(&state);
    }

    /// Waits for the write and the sync that are under way, if any.
    pub fn wait_for_disk(&self) {
        let mut state = self.lock();
        let (write, sync) = (state.writes_since, state.syncs_since);
        let lasts = |before: Option<Instant>, now| before.is_some() && now == before;
        while lasts(write, state.writes_since) || lasts(sync, state.syncs_since) {
            state = self.written.wait_timeout(state, SLOW).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Everything that was handed over is on the disk when this returns.
    ///
    /// # Errors
    /// The log cannot be written, or not for certain.
    pub fn bring_to_disk(&self) -> io::Result<()> {
        self.bring_all(self.lock()).1
    }

    fn bring_all<'a>(&'a self, mut state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, io::Result<()>) {
        loop {
            state = self.until_written(state);
            self.take_in(&mut state);
            if state.open.is_none() {
                return (state, Ok(()));
            }
            if !state.has_ready() {
                break;
            }
            if self.has_failed() || state.is_broken {
                let reason = self.trouble_of(&state).map_or_else(String::new, |trouble| trouble.reason);
                return (state, Err(io::Error::other(reason)));
            }
            state = self.write_all(state).0;
        }
        if let Some(open) = &mut state.open {
            // (Should the room stay, then it is cut off by whoever reads the file.)
            let _ = open.trim();
        }
        state = self.sync(state);
        let is_certain = !state.is_broken && state.position == state.synced;
        (state, if is_certain { Ok(()) } else { Err(io::Error::other("it cannot be brought to the disk")) })
    }

    /// There is a base on the disk that has whatever was pushed before the file was begun.
    pub fn is_based(&self) {
        let mut state = self.lock();
        let mut is_begun = true;
        for step in &mut state.steps {
            if let Step::Begin(begin) = step {
                begin.has_base = true;
                is_begun = false;
            }
        }
        // Nobody needs the files any more that were written before that one.
        let former = if is_begun { std::mem::take(&mut state.former) } else { Vec::new() };
        if state.awaits_base {
            self.take_base(&mut state);
        }
        drop(state);
        drop(former);
        self.carrier.call();
    }

    fn take_base(&self, state: &mut State) {
        state.awaits_base = false;
        state.is_new = false;
        state.vouched = state.synced;
        self.tell(&state.based);
        self.tell(&state.certain);
        self.allow(state);
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
        state.end = position;
        state.synced = position;
        state.vouched = position;
    }

    /// Brings everything to the disk; nothing comes behind it.
    pub fn end(&self) -> io::Result<()> {
        let state = self.lock();
        if state.open.is_none() || !self.is_on() {
            return Ok(());
        }
        let (mut state, ended) = self.bring_all(state);
        // (Where that failed the server may go on.)
        ended?;
        state.ends_now = true;
        self.carrier.call();
        self.deputy.call();
        self.wake.notify_all();
        Ok(())
    }

    /// Whether a sync is under way.
    pub fn syncs(&self) -> bool {
        self.lock().syncs_since.is_some()
    }
}

impl State {
    /// Whether something is not written.
    fn has_ready(&self) -> bool {
        self.ready > 0 || !self.steps.is_empty()
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

    /// Whether a write lasts for so long that nobody waits for it, or did just now. `is_at_disk`: whether the thread that writes has
    /// not come back from the system yet. A thread that others keep from its core does not wait for the disk, nor does one that waits
    /// for this state, and both are waited for.
    fn is_slow(&mut self, is_at_disk: &AtomicBool) -> bool {
        let lasts = self.writes_since.is_some_and(|since| since.elapsed() > SLOW);
        if lasts && !self.is_blocked {
            // In this order: a thread that waits, and has come back since, may have waited for something else.
            self.is_blocked = self.writer.as_deref().is_none_or(thread::waits) && is_at_disk.load(Ordering::SeqCst);
        }
        lasts && self.is_blocked || self.was_slow()
    }

    /// Whether a write has lasted long just now.
    fn was_slow(&self) -> bool {
        self.slow_until.is_some_and(|until| Instant::now() < until)
    }
}

mod keeping;
mod refusal;
mod sleeper;
mod telling;
#[cfg(test)]
mod tests;
mod thread;
mod writing;
