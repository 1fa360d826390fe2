//! The feed: what the shards hand over, brought into one order once, for whoever reads it.
//!
//! ```text
//!  shard 0: push ─┐                        ┌─ ready: commands and lines beside them, until the log takes them
//!  shard 1: push ─┼─ queue ── merger ──────┤
//!  shard 2: push ─┘                        └─ stream: commands only, numbered by their bytes, to every reader, and
//!                                             the last of it to who comes back
//! ```
//!
//! A shard hands over once a turn, and waits for nobody: the queue has no lock, and a shard touches no file. Threads beside
//! the shards take what has come out of it ([`Merging::drain`]), under a lock that only they know and whoever begins to read.
//! The queue has one order for all shards: what was handed over after something else was seen stands behind it.

use super::backlog::Backlog;
use super::reader::{Post, Reader};
use super::{Command, Encoder, KnownAs, Merger, Record, StandsIn};
use crate::net::Bell;
use crate::observe::memory;
use crossbeam_queue::SegQueue;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Nobody waits for longer for the other parts of transactions while a script lasts, or another server is waited for: they may have
/// to wait for a script that cannot be undone and never ends, or for keys on their way to a server that does not answer.
const PARTS_LATE: Duration = Duration::from_millis(200);
/// The same while neither is so. Then the other shards come to their parts, behind what they have to do before, or when others
/// give them their cores back.
const PARTS_LATE_ELSE: Duration = Duration::from_secs(5);

/// How many hold keys while they wait for another server.
static AWAITING: AtomicUsize = AtomicUsize::new(0);

/// Somebody who holds keys waits for another server, until this is dropped.
pub struct AwaitsServer(());

impl AwaitsServer {
    #[allow(clippy::new_without_default)]
    pub fn new() -> AwaitsServer {
        AWAITING.fetch_add(1, Ordering::Relaxed);
        AwaitsServer(())
    }
}

impl Drop for AwaitsServer {
    fn drop(&mut self) {
        AWAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What one shard hands over.
struct Push {
    shard: usize,
    what: What,
    bytes: usize,
}

enum What {
    /// What the shard has changed in a turn.
    Changed(Vec<Record>),
    /// Something that only this server's log understands.
    Note(Vec<String>),
}

/// How often a shard has handed over. (No two of them share a line of the cache.)
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

pub struct Feed {
    queue: SegQueue<Push>,
    /// Of commands in the queue.
    queued_bytes: AtomicUsize,
    pushed: Box<[Count]>,
    merging: Mutex<Merging>,
    /// Somebody reads the stream, or may want to go on in it.
    is_streamed: AtomicBool,
    /// The stream is another server's.
    is_relayed: AtomicBool,
    /// How many scripts last.
    lasting_scripts: AtomicUsize,
    bells: Arc<[Bell]>,
}

impl Feed {
    /// The feed of so many shards as there are bells.
    pub fn new(bells: Arc<[Bell]>) -> Feed {
        let shards = bells.len();
        Feed {
            queue: SegQueue::new(),
            queued_bytes: AtomicUsize::new(0),
            pushed: (0..shards).map(|_| Count::default()).collect(),
            merging: Mutex::new(Merging::new(shards)),
            is_streamed: AtomicBool::new(false),
            is_relayed: AtomicBool::new(false),
            lasting_scripts: AtomicUsize::new(0),
            bells,
        }
    }

    pub fn shards(&self) -> usize {
        self.pushed.len()
    }

    /// What a shard has changed in a turn. The number of this push, of that shard's.
    pub fn push(&self, shard: usize, records: Vec<Record>) -> u64 {
        let bytes = records.iter().map(Record::bytes).sum();
        self.hand_over(Push { shard, what: What::Changed(records), bytes })
    }

    /// Something that only this server's log understands, as a push of a shard.
    pub fn push_note(&self, shard: usize, words: Vec<String>) -> u64 {
        let bytes = super::note_bytes(&words);
        self.hand_over(Push { shard, what: What::Note(words), bytes })
    }

    /// Puts bytes into the stream that are no changes of this server's shards, behind what this shard has handed over.
    pub fn say(&self, shard: usize, bytes: Box<[u8]>) -> u64 {
        self.push(shard, vec![Record { part_of: None, commands: vec![Command::said(bytes)] }])
    }

    fn hand_over(&self, push: Push) -> u64 {
        let count = &self.pushed[push.shard].0;
        self.queued_bytes.fetch_add(push.bytes, Ordering::Relaxed);
        memory::hand_over(push.bytes);
        self.queue.push(push);
        count.fetch_add(1, Ordering::Release) + 1
    }

    /// The number of a shard's last push.
    #[inline]
    pub fn pushed(&self, shard: usize) -> u64 {
        self.pushed[shard].0.load(Ordering::Acquire)
    }

    /// Whether there is something that nobody has taken.
    pub fn has_pushes(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Bytes of commands that nobody has taken.
    #[inline]
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes.load(Ordering::Relaxed)
    }

    /// A script lasts from now on, and parts of transactions may wait for it.
    pub fn script_lasts(&self) {
        self.lasting_scripts.fetch_add(1, Ordering::Relaxed);
    }

    /// One of those is over.
    pub fn script_is_over(&self) {
        self.lasting_scripts.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether parts of transactions may wait for what need not end.
    #[inline]
    pub fn may_wait_for_long(&self) -> bool {
        self.lasting_scripts.load(Ordering::Relaxed) > 0 || AWAITING.load(Ordering::Relaxed) > 0
    }

    /// What has been handed over by now has its place, as far as it has one.
    pub fn drain(&self) -> MutexGuard<'_, Merging> {
        let mut merging = self.lock();
        merging.patience = match self.may_wait_for_long() {
            true => PARTS_LATE,
            false => PARTS_LATE_ELSE,
        };
        // (Where nothing was handed over something may have its place nevertheless, since it has waited for long.)
        let taken_bytes = merging.drain(&self.queue);
        self.queued_bytes.fetch_sub(taken_bytes, Ordering::Relaxed);
        memory::take_over(taken_bytes);
        self.tell_readers(&mut merging);
        merging.note_lying();
        merging
    }

    /// Begins to read the stream behind what was handed over by now. The reader's shard is rung for when something has come;
    /// a reader that leaves more bytes lying than this has missed something.
    pub fn read(&self, shard: usize, limit: usize) -> Reader {
        let mut merging = self.drain();
        // Where another database was chosen a new reader does not know that.
        merging.stream.forget();
        let position = merging.position;
        self.begin_to_read(&mut merging, Post::new(shard, limit), position)
    }

    /// Goes on to read the stream at a position that somebody has come to before; none where what stands there is not kept.
    pub fn read_from(&self, position: u64, shard: usize, limit: usize) -> Option<Reader> {
        let mut merging = self.drain();
        let post = Post::new(shard, limit);
        for piece in merging.backlog.as_ref()?.behind(position)? {
            post.put(piece);
        }
        Some(self.begin_to_read(&mut merging, post, position))
    }

    fn begin_to_read(&self, merging: &mut Merging, post: Post, position: u64) -> Reader {
        let post = Arc::new(post);
        merging.readers.push(post.clone());
        self.note_streamed(merging);
        Reader::new(post, position)
    }

    /// Whether the shards are to hand over what they change for the stream.
    #[inline]
    pub fn is_streamed(&self) -> bool {
        self.is_streamed.load(Ordering::Acquire)
    }

    /// A reader reads no more.
    pub fn end(&self, reader: &Reader) {
        let mut merging = self.lock();
        merging.readers.retain(|post| !reader.is_of(post));
        merging.note_lying();
        self.note_streamed(&merging);
    }

    fn note_streamed(&self, merging: &Merging) {
        let is_streamed = !merging.readers.is_empty() || merging.backlog.is_some();
        self.is_streamed.store(is_streamed, Ordering::Release);
    }

    /// From now on so many bytes of the stream are kept for who wants to go on in it; none where that is not wanted any more.
    pub fn keep(&self, bytes: Option<usize>) {
        let mut merging = self.drain();
        let position = merging.position;
        match (&mut merging.backlog, bytes) {
            (Some(backlog), Some(bytes)) => backlog.resize(bytes),
            (kept, bytes) => *kept = bytes.map(|bytes| Backlog::new(bytes, position)),
        }
        self.note_streamed(&merging);
    }

    /// Where what is kept of the stream begins, and how many bytes it has; none where nothing is kept.
    pub fn kept(&self) -> Option<(u64, usize)> {
        let merging = self.lock();
        merging.backlog.as_ref().map(|backlog| (merging.position - backlog.bytes as u64, backlog.bytes))
    }

    /// Under which name the stream is known from here on.
    pub fn set_name(&self, id: &str) {
        self.drain().name = id.to_owned();
    }

    /// What there is where everything that was handed over by now has been done, if that has its place and there is a stream.
    pub fn known_as(&self) -> Option<KnownAs> {
        self.drain().known_as()
    }

    /// The log says how far the stream is, where that has become more without a change. (Where something changes it says so
    /// anyway.) Whether it is going to.
    pub fn note_position(&self) -> bool {
        let mut merging = self.drain();
        merging.wants_note =
            merging.is_logged && merging.known_as().is_some_and(|known_as| Some(known_as.position) != merging.noted);
        merging.wants_note
    }

    /// How many bytes the stream has had, with what has been handed over by now as far as that has its place.
    pub fn position(&self) -> u64 {
        self.drain().position
    }

    /// The stream goes on at another position, where this database is chosen, since what this server has is what another one had
    /// there. Nobody can go on in what it has had.
    pub fn set_position(&self, position: u64, db: usize) {
        let mut merging = self.drain();
        (merging.position, merging.relayed_db) = (position, db);
        if let Some(backlog) = &mut merging.backlog {
            *backlog = Backlog::new(backlog.limit, position);
        }
    }

    /// The stream is what this server's primary says ([`Feed::say`]), and not what its shards change, or it is its own again.
    pub fn set_relayed(&self, wants: bool) {
        let mut merging = self.drain();
        merging.stream.set_relayed(wants);
        self.is_relayed.store(wants, Ordering::Release);
    }

    /// From now on the stream is for servers, too, that know of no deadlines of fields, or it is not any more.
    pub fn set_old(&self, wants: bool) {
        let mut merging = self.drain();
        if wants != merging.old_since.is_some() {
            merging.old_since = wants.then_some(merging.position);
            merging.stream.set_old(wants);
        }
    }

    /// From which position on it has been for such servers, if it is.
    pub fn old_since(&self) -> Option<u64> {
        self.lock().old_since
    }

    /// How many commands such servers were told with less than they have done.
    pub fn degraded(&self) -> u64 {
        self.lock().stream.degraded()
    }

    pub fn is_relayed(&self) -> bool {
        self.is_relayed.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Merging> {
        self.merging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives what is new to every reader.
    fn tell_readers(&self, merging: &mut Merging) {
        if merging.fresh.is_empty() {
            return;
        }
        let piece: Arc<[u8]> = merging.fresh.as_slice().into();
        merging.fresh.clear();
        merging.position += piece.len() as u64;
        if let Some(backlog) = &mut merging.backlog {
            backlog.push(piece.clone());
        }
        for post in &merging.readers {
            if let Some(shard) = post.give(&piece) {
                self.bells[shard].ring_from_outside();
            }
        }
    }
}

/// What has been taken out of the queue, on its way to its place and behind that.
pub struct Merging {
    merger: Merger,
    /// Of each shard: the records that it has pushed by the end of each push that has not its place, and how many have.
    ends: Vec<VecDeque<u64>>,
    records: Vec<u64>,
    placed: Vec<u64>,
    /// Of each shard some of whose pushes have not their place: how many have, and since when that is so.
    stays: Vec<Option<(u64, Instant)>>,
    /// Since when nothing has left, where something waits.
    stuck_since: Option<Instant>,
    /// For how long somebody waits for parts of transactions.
    patience: Duration,
    /// Bytes that have no place yet.
    unplaced: usize,
    /// There is a log, for which what has its place is kept.
    is_logged: bool,
    log: Encoder,
    ready: Ready,
    stream: Encoder,
    /// What the readers have not been given.
    fresh: Vec<u8>,
    /// How many bytes the stream has had before that.
    position: u64,
    readers: Vec<Arc<Post>>,
    backlog: Option<Backlog>,
    old_since: Option<u64>,
    /// Under which name the stream is known; which database another server has chosen in it, whose it is.
    name: String,
    relayed_db: usize,
    /// The position that the log's last file has, if it has one, and whether it is to have another, although nothing has changed.
    noted: Option<u64>,
    wants_note: bool,
}

/// What waits to be written to the log.
#[derive(Default)]
pub struct Ready {
    pub commands: Vec<u8>,
    /// What only this server understands, and behind how many bytes of the commands it stands.
    pub notes: Vec<(usize, Vec<String>)>,
    /// About, of the notes.
    pub note_bytes: usize,
    /// What there is behind them, where there is a stream.
    pub known_as: Option<KnownAs>,
}

impl Ready {
    fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.notes.is_empty()
    }
}

impl Merging {
    fn new(shards: usize) -> Merging {
        Merging {
            merger: Merger::new(shards),
            ends: (0..shards).map(|_| VecDeque::new()).collect(),
            records: vec![0; shards],
            placed: vec![0; shards],
            stays: vec![None; shards],
            stuck_since: None,
            patience: PARTS_LATE_ELSE,
            unplaced: 0,
            is_logged: false,
            log: Encoder::of_log(),
            ready: Ready::default(),
            stream: Encoder::default(),
            fresh: Vec::new(),
            position: 0,
            readers: Vec::new(),
            backlog: None,
            old_since: None,
            name: String::new(),
            relayed_db: 0,
            noted: None,
            wants_note: false,
        }
    }

    /// What there is where everything has been done that has its place. (What of it the log has, the stream has, and the other way
    /// round.)
    fn known_as(&self) -> Option<KnownAs> {
        debug_assert!(self.fresh.is_empty(), "readers were told");
        let db = if self.stream.is_relayed() { self.relayed_db } else { self.stream.db().unwrap_or(0) };
        let is_old = self.old_since.is_some();
        self.has_stream().then(|| KnownAs { id: self.name.clone(), position: self.position, db, is_old })
    }

    /// Takes what is in the queue; how many bytes of commands that was.
    fn drain(&mut self, queue: &SegQueue<Push>) -> usize {
        // (What comes while this runs is for the next call: a shard that never rests does not hold it up.)
        let (count, mut taken_bytes) = (queue.len(), 0);
        for _ in 0..count {
            let Some(Push { shard, what, bytes }) = queue.pop() else { break };
            taken_bytes += bytes;
            let words = match what {
                What::Changed(records) => {
                    self.records[shard] += records.len() as u64;
                    self.unplaced += bytes;
                    records.into_iter().for_each(|record| self.merger.push(shard, record));
                    None
                }
                What::Note(words) => Some(words),
            };
            let end = self.records[shard];
            self.ends[shard].push_back(end);
            if let Some(words) = words.filter(|_| self.is_logged) {
                self.place();
                self.ready.notes.push((self.ready.commands.len(), words));
                self.ready.note_bytes += bytes;
                // What stands behind a note stands in another batch.
                self.log.forget();
            }
        }
        self.place();
        taken_bytes
    }

    /// Gives what was pushed its place, as far as it has one.
    fn place(&mut self) {
        let is_seen = self.has_stream() && !self.is_stuck();
        while let Some(unit) = self.merger.pop(is_seen) {
            self.stuck_since = None;
            debug_assert!(self.unplaced >= unit.bytes, "{} of {}", unit.bytes, self.unplaced);
            self.unplaced = self.unplaced.saturating_sub(unit.bytes);
            if self.is_logged {
                self.log.unit(&unit, &mut self.ready.commands);
            }
            if self.has_stream() {
                self.stream.unit(&unit, &mut self.fresh);
                let said = |command: &&Command| command.stands_in == StandsIn::Stream;
                self.relayed_db = unit.commands.iter().rfind(said).map_or(self.relayed_db, |command| command.db);
            }
        }
        for (shard, ends) in self.ends.iter_mut().enumerate() {
            while ends.front().is_some_and(|end| *end <= self.merger.left(shard)) {
                ends.pop_front();
                self.placed[shard] += 1;
            }
        }
    }

    /// Whether what is seen has waited for parts of transactions for so long that it does not any more.
    fn is_stuck(&mut self) -> bool {
        if self.merger.waiting() == 0 {
            self.stuck_since = None;
            return false;
        }
        self.stuck_since.get_or_insert_with(Instant::now).elapsed() > self.patience
    }

    fn has_stream(&self) -> bool {
        !self.readers.is_empty() || self.backlog.is_some()
    }

    /// Notes how many bytes of the stream there are only because a reader has left them lying. (Readers and the backlog share
    /// the pieces.)
    fn note_lying(&self) {
        let most = self.readers.iter().map(|post| post.waiting()).max().unwrap_or(0);
        let kept = self.backlog.as_ref().map_or(0, |backlog| backlog.bytes);
        memory::note_for_readers(most.saturating_sub(kept));
    }

    /// How many pushes of each shard have their place.
    pub fn placed(&self) -> &[u64] {
        &self.placed
    }

    /// Bytes that have none.
    pub fn unplaced(&self) -> usize {
        self.unplaced
    }

    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Whether there is anything for the log.
    pub fn has_ready(&self) -> bool {
        self.wants_note || !self.ready.is_empty()
    }

    /// Takes what is ready for the log, and leaves an empty buffer for what comes behind it.
    pub fn take_ready(&mut self, spare: Vec<u8>) -> Ready {
        // Each batch stands for itself.
        self.log.forget();
        let known_as = self.known_as();
        self.wants_note = false;
        self.noted = Some(self.position);
        let next = Ready { commands: spare, ..Ready::default() };
        Ready { known_as, ..std::mem::replace(&mut self.ready, next) }
    }

    /// The log goes on in another file, which has no position yet.
    pub fn forget_noted(&mut self) {
        self.noted = None;
    }

    /// From here on there is a log, or there is none.
    pub fn set_logged(&mut self, wants: bool) {
        self.is_logged = wants;
        if !wants {
            self.wants_note = false;
            self.ready = Ready::default();
        }
    }

    /// Whether a shard's pushes have waited for their place for so long that nobody waits for that.
    pub fn is_late(&mut self, shard: usize) -> bool {
        let (placed, stays) = (self.placed[shard], &mut self.stays[shard]);
        if self.ends[shard].is_empty() {
            *stays = None;
            return false;
        }
        match *stays {
            Some((of, since)) if of == placed => since.elapsed() > self.patience,
            _ => {
                *stays = Some((placed, Instant::now()));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Shards, Transaction};
    use super::*;

    fn record(name: &str) -> Record {
        let commands = vec![Command::new(0, ["DEL", name].map(str::as_bytes).into_iter())];
        Record { part_of: None, commands }
    }

    fn part(number: u64, name: &str) -> Record {
        let shards: Shards = [0, 1].into_iter().collect();
        Record { part_of: Some(Transaction { number, shards }), ..record(name) }
    }

    fn feed() -> Feed {
        Feed::new(Bell::for_all(2).expect("bells"))
    }

    fn all(reader: &mut Reader) -> String {
        let pieces: Vec<u8> = std::iter::from_fn(|| reader.take()).flat_map(|piece| piece.to_vec()).collect();
        String::from_utf8(pieces).expect("text")
    }

    fn names(text: &str) -> Vec<&str> {
        let lines: Vec<&str> = text.lines().collect();
        lines.windows(3).filter(|lines| lines[0] == "DEL").map(|lines| lines[2]).collect()
    }

    #[test]
    fn readers_see_one_order_from_where_they_begin() {
        let feed = feed();
        feed.push(0, vec![record("before")]);
        let mut first = feed.read(0, usize::MAX);
        feed.push(1, vec![record("a"), part(1, "b")]);
        feed.push(0, vec![record("c")]);
        drop(feed.drain());
        let mut second = feed.read(1, usize::MAX);
        feed.push(0, vec![part(1, "d"), record("e")]);
        drop(feed.drain());
        let (of_first, of_second) = (all(&mut first), all(&mut second));
        assert_eq!(names(&of_first), ["a", "c", "d", "b", "e"]);
        // A transaction is whole for who begins in its middle. (So is what has waited for that. Snapshots begin in no middle.)
        assert_eq!(names(&of_second), ["c", "d", "b", "e"]);
        assert_eq!(first.position(), second.position());
        // (The second was told again which database it is.)
        assert!(of_second.starts_with("*2\r\n$6\r\nSELECT"), "{of_second}");
        feed.end(&first);
        assert!(feed.is_streamed());
        feed.end(&second);
        assert!(!feed.is_streamed());
        feed.push(0, vec![record("f")]);
        drop(feed.drain());
        assert_eq!(all(&mut second), "");
    }

    /// What had waited for too long left without its readers being told, and a log would have had a position before it.
    #[test]
    fn what_leaves_since_it_has_waited_is_told() {
        let feed = feed();
        feed.script_lasts();
        let mut reader = feed.read(0, usize::MAX);
        feed.push(0, vec![part(1, "a")]);
        feed.push(1, vec![record("b")]);
        let (began, mut told) = (Instant::now(), String::new());
        while told.is_empty() && began.elapsed() < 100 * PARTS_LATE {
            let merging = feed.drain();
            assert_eq!(merging.known_as().map(|known_as| known_as.position), Some(merging.position));
            drop(merging);
            told = all(&mut reader);
            std::thread::yield_now();
        }
        assert_eq!(names(&told), ["b"]);
        feed.push(1, vec![part(1, "c")]);
        drop(feed.drain());
        assert_eq!(names(&all(&mut reader)), ["a", "c"]);
    }

    #[test]
    fn who_leaves_too_much_lying_has_missed_something() {
        let feed = feed();
        let (mut quick, mut slow) = (feed.read(0, 100), feed.read(1, 100));
        for number in 0..20 {
            feed.push(0, vec![record(&number.to_string())]);
            drop(feed.drain());
            assert!(!names(&all(&mut quick)).is_empty());
        }
        assert!(!quick.has_missed() && slow.has_missed());
        // What lies there is a beginning of the stream, and bounded.
        let left = all(&mut slow);
        assert_eq!(names(&left), (0..names(&left).len()).map(|number| number.to_string()).collect::<Vec<_>>());
        assert!(left.len() < 200, "{}", left.len());
    }

    /// What stands behind a position is read from the piece in which it lies, or not at all.
    #[test]
    fn who_was_away_goes_on_where_that_is_kept() {
        let feed = feed();
        feed.keep(Some(100));
        let mut all_of_it = feed.read(0, usize::MAX);
        for number in 0..20 {
            feed.push(0, vec![record(&number.to_string())]);
            drop(feed.drain());
        }
        let stream = all(&mut all_of_it);
        let end = feed.position();
        assert_eq!(end, stream.len() as u64);
        let (first, kept) = feed.kept().expect("something is kept");
        assert!(first + kept as u64 == end && (100..140).contains(&kept), "{first} {kept}");
        for from in 0..=end + 2 {
            let reader = feed.read_from(from, 1, usize::MAX);
            assert_eq!(reader.is_some(), (first..=end).contains(&from), "{from}");
            if let Some(mut reader) = reader {
                assert_eq!(reader.position(), from);
                assert_eq!(all(&mut reader), stream[from as usize..]);
                assert_eq!(reader.position(), end);
                feed.end(&reader);
            }
        }
        feed.set_position(1000, 0);
        assert_eq!(feed.kept(), Some((1000, 0)));
        assert!(feed.read_from(999, 0, 0).is_none() && feed.read_from(1000, 0, 0).is_some());
        feed.keep(None);
        assert!(feed.kept().is_none() && feed.read_from(1000, 0, 0).is_none());
    }

    #[test]
    fn what_is_said_stands_in_the_stream_only_and_a_stream_that_is_relayed_has_nothing_else() {
        let feed = feed();
        feed.drain().set_logged(true);
        let mut reader = feed.read(0, usize::MAX);
        feed.push(0, vec![record("a")]);
        feed.say(0, (*b"said").into());
        feed.push(0, vec![record("b")]);
        let mut merging = feed.drain();
        assert_eq!(merging.placed(), &[3, 0]);
        let Ready { commands, .. } = merging.take_ready(Vec::new());
        drop(merging);
        assert_eq!(names(std::str::from_utf8(&commands).expect("text")), ["a", "b"]);
        let text = all(&mut reader);
        assert!(text.contains("said") && names(&text.replace("said", "")) == ["a", "b"], "{text}");
        feed.set_relayed(true);
        feed.push(0, vec![record("c")]);
        feed.say(1, (*b"relayed").into());
        drop(feed.drain());
        assert_eq!(all(&mut reader), "relayed");
        feed.set_relayed(false);
        feed.push(0, vec![record("d")]);
        drop(feed.drain());
        assert!(all(&mut reader).starts_with("*2\r\n$6\r\nSELECT"));
    }

    /// What is taken for the log says where in the stream that ends, whatever of it the stream alone has.
    #[test]
    fn the_log_knows_how_far_the_stream_is() {
        let feed = feed();
        feed.set_name("first");
        feed.drain().set_logged(true);
        feed.push(0, vec![record("a")]);
        assert_eq!(feed.drain().take_ready(Vec::new()).known_as, None, "there is no stream");
        feed.keep(Some(1 << 20));
        feed.set_position(100, 3);
        let taken = |feed: &Feed| {
            let known_as = feed.drain().take_ready(Vec::new()).known_as.expect("there is a stream");
            assert_eq!(known_as.position, feed.position());
            (known_as.id, known_as.position, known_as.db)
        };
        feed.push(1, vec![part(1, "b")]);
        assert_eq!(taken(&feed), ("first".to_owned(), 100, 0), "its other part has not come");
        feed.push(0, vec![part(1, "c")]);
        feed.say(0, (*b"said").into());
        let (_, position, _) = taken(&feed);
        assert!(!feed.drain().has_ready() && !feed.note_position());
        // Nothing changes.
        feed.say(1, (*b"more").into());
        assert!(!feed.drain().has_ready() && feed.note_position() && feed.drain().has_ready());
        assert_eq!(taken(&feed), ("first".to_owned(), position + 4, 0));
        assert!(!feed.drain().has_ready());
        // Another server's stream: what is done and what is said is one.
        feed.set_relayed(true);
        feed.set_name("second");
        let both = vec![record("d").commands.remove(0), Command::relayed(5, (*b"relayed").into())];
        feed.push(0, vec![Record { part_of: None, commands: both }]);
        assert_eq!(taken(&feed), ("second".to_owned(), position + 11, 5));
        feed.push(0, vec![record("own")]);
        assert_eq!(taken(&feed), ("second".to_owned(), position + 11, 5));
        // Two parts that leave together are passed on as they came.
        let of = |number, name: &str| {
            let mut part = part(number, name);
            part.commands.push(Command::relayed(5, (*b"again").into()));
            part
        };
        feed.push(0, vec![of(8, "e"), of(9, "f")]);
        feed.push(1, vec![part(9, "g"), part(8, "h")]);
        assert_eq!(taken(&feed), ("second".to_owned(), position + 21, 5));
    }

    #[test]
    fn notes_stand_where_they_were_said_and_in_the_log_only() {
        let feed = feed();
        feed.push_note(0, vec!["nobody".to_owned()]);
        feed.drain().set_logged(true);
        let mut reader = feed.read(0, usize::MAX);
        feed.push(0, vec![record("a")]);
        assert_eq!(feed.push_note(0, vec!["POLICY".to_owned()]), 3);
        feed.push(1, vec![record("b")]);
        let mut merging = feed.drain();
        assert_eq!((merging.placed(), merging.unplaced()), (&[3, 1][..], 0));
        let Ready { commands, notes, .. } = merging.take_ready(Vec::new());
        let (at, words) = &notes[0];
        let (before, behind) = commands.split_at(*at);
        assert_eq!(words, &["POLICY"]);
        assert_eq!(names(std::str::from_utf8(before).expect("text")), ["a"]);
        // (What stands behind the note says its database.)
        assert!(behind.starts_with(b"*2\r\n$6\r\nSELECT"));
        assert!(merging.ready().is_empty());
        drop(merging);
        assert_eq!(names(&all(&mut reader)), ["a", "b"]);
    }
}
