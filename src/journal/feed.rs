//! The feed: what the shards hand over, brought into one order once, for whoever reads it.
//!
//! ```text
//!  shard 0: push ─┐                        ┌─ ready: commands and lines beside them, until the log takes them
//!  shard 1: push ─┼─ queue ── merger ──────┤
//!  shard 2: push ─┘                        └─ stream: commands only, numbered by their bytes, to every reader
//! ```
//!
//! A shard hands over once a turn, and waits for nobody: the queue has no lock, and a shard touches no file. Threads beside
//! the shards take what has come out of it ([`Merging::drain`]), under a lock that only they know and whoever begins to read.
//! The queue has one order for all shards: what was handed over after something else was seen stands behind it.

use super::{Command, Encoder, Merger, Record};
use crate::net::Bell;
use crossbeam_queue::SegQueue;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Nobody waits for longer for the other parts of transactions, which may have to wait for a script that lasts.
const PARTS_LATE: Duration = Duration::from_millis(20);

/// What one shard has changed in a turn, or something that only this server's log understands.
struct Push {
    shard: usize,
    records: Vec<Record>,
    note: Option<Vec<String>>,
}

/// How often a shard has handed over. (No two of them share a line of the cache.)
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

pub struct Feed {
    queue: SegQueue<Push>,
    pushed: Box<[Count]>,
    merging: Mutex<Merging>,
    /// How many readers the stream has.
    readers: AtomicUsize,
    bells: Arc<[Bell]>,
}

impl Feed {
    /// The feed of so many shards as there are bells.
    pub fn new(bells: Arc<[Bell]>) -> Feed {
        let shards = bells.len();
        Feed {
            queue: SegQueue::new(),
            pushed: (0..shards).map(|_| Count::default()).collect(),
            merging: Mutex::new(Merging::new(shards)),
            readers: AtomicUsize::new(0),
            bells,
        }
    }

    pub fn shards(&self) -> usize {
        self.pushed.len()
    }

    /// What a shard has changed in a turn. The number of this push, of that shard's.
    pub fn push(&self, shard: usize, records: Vec<Record>) -> u64 {
        self.hand_over(Push { shard, records, note: None })
    }

    /// Something that only this server's log understands, as a push of a shard.
    pub fn push_note(&self, shard: usize, words: Vec<String>) -> u64 {
        self.hand_over(Push { shard, records: Vec::new(), note: Some(words) })
    }

    fn hand_over(&self, push: Push) -> u64 {
        let count = &self.pushed[push.shard].0;
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

    /// What has been handed over by now has its place, as far as it has one.
    pub fn drain(&self) -> MutexGuard<'_, Merging> {
        let mut merging = self.merging.lock().unwrap_or_else(PoisonError::into_inner);
        if merging.drain(&self.queue) {
            self.tell_readers(&mut merging);
        }
        merging
    }

    /// Begins to read the stream behind what was handed over by now. The reader's shard is rung for when something has come;
    /// a reader that leaves more bytes lying than this has missed something.
    pub fn read(&self, shard: usize, limit: usize) -> Reader {
        let mut merging = self.drain();
        let post = Arc::new(Post {
            pieces: SegQueue::new(),
            bytes: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            shard,
            awaits: AtomicBool::new(false),
            has_missed: AtomicBool::new(false),
        });
        merging.readers.push(post.clone());
        self.readers.store(merging.readers.len(), Ordering::Release);
        // Where another database was chosen a new reader does not know that.
        merging.stream.forget();
        Reader { post, position: merging.position }
    }

    /// Whether anybody reads the stream.
    #[inline]
    pub fn has_readers(&self) -> bool {
        self.readers.load(Ordering::Acquire) > 0
    }

    /// A reader reads no more; whether that was the last one.
    pub fn end(&self, reader: &Reader) -> bool {
        let mut merging = self.merging.lock().unwrap_or_else(PoisonError::into_inner);
        merging.readers.retain(|post| !Arc::ptr_eq(post, &reader.post));
        self.readers.store(merging.readers.len(), Ordering::Release);
        merging.readers.is_empty()
    }

    /// Gives what is new to every reader.
    fn tell_readers(&self, merging: &mut Merging) {
        if merging.fresh.is_empty() {
            return;
        }
        let piece: Arc<[u8]> = merging.fresh.as_slice().into();
        merging.fresh.clear();
        merging.position += piece.len() as u64;
        for post in &merging.readers {
            let lies = post.bytes.load(Ordering::Acquire);
            // (One transaction that is larger than that is no reason.)
            if lies > post.limit.load(Ordering::Relaxed) {
                post.has_missed.store(true, Ordering::Release);
            }
            if !post.has_missed.load(Ordering::Relaxed) {
                post.bytes.fetch_add(piece.len(), Ordering::AcqRel);
                post.pieces.push(piece.clone());
            }
            if post.awaits.swap(false, Ordering::SeqCst) {
                self.bells[post.shard].ring_from_outside();
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
}

/// What waits to be written to the log.
#[derive(Default)]
pub struct Ready {
    pub commands: Vec<u8>,
    /// What only this server understands, and behind how many bytes of the commands it stands.
    pub notes: Vec<(usize, Vec<String>)>,
}

impl Ready {
    pub fn is_empty(&self) -> bool {
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
            unplaced: 0,
            is_logged: false,
            log: Encoder::of_log(),
            ready: Ready::default(),
            stream: Encoder::default(),
            fresh: Vec::new(),
            position: 0,
            readers: Vec::new(),
        }
    }

    /// Takes what is in the queue; whether that was anything.
    fn drain(&mut self, queue: &SegQueue<Push>) -> bool {
        // (What comes while this runs is for the next call: a shard that never rests does not hold it up.)
        let count = queue.len();
        for _ in 0..count {
            let Some(push) = queue.pop() else { break };
            self.records[push.shard] += push.records.len() as u64;
            self.unplaced += push.records.iter().map(bytes_of).sum::<usize>();
            push.records.into_iter().for_each(|record| self.merger.push(push.shard, record));
            let end = self.records[push.shard];
            self.ends[push.shard].push_back(end);
            if let Some(words) = push.note.filter(|_| self.is_logged) {
                self.place();
                self.ready.notes.push((self.ready.commands.len(), words));
                // What stands behind a note stands in another batch.
                self.log.forget();
            }
        }
        self.place();
        count > 0
    }

    /// Gives what was pushed its place, as far as it has one.
    fn place(&mut self) {
        while let Some(unit) = self.merger.pop() {
            let bytes: usize = unit.commands.iter().map(|command| command.bytes.len()).sum();
            self.unplaced = self.unplaced.saturating_sub(bytes);
            if self.is_logged {
                self.log.unit(&unit, &mut self.ready.commands);
            }
            if !self.readers.is_empty() {
                self.stream.unit(&unit, &mut self.fresh);
            }
        }
        for (shard, ends) in self.ends.iter_mut().enumerate() {
            while ends.front().is_some_and(|end| *end <= self.merger.left(shard)) {
                ends.pop_front();
                self.placed[shard] += 1;
            }
        }
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

    /// Takes what is ready for the log, and leaves an empty buffer for what comes behind it.
    pub fn take_ready(&mut self, spare: Vec<u8>) -> Ready {
        // Each batch stands for itself.
        self.log.forget();
        std::mem::replace(&mut self.ready, Ready { commands: spare, notes: Vec::new() })
    }

    /// From here on there is a log, or there is none.
    pub fn set_logged(&mut self, wants: bool) {
        self.is_logged = wants;
        if !wants {
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
            Some((of, since)) if of == placed => since.elapsed() > PARTS_LATE,
            _ => {
                *stays = Some((placed, Instant::now()));
                false
            }
        }
    }
}

fn bytes_of(record: &Record) -> usize {
    record.commands.iter().map(|command: &Command| command.bytes.len()).sum()
}

/// Where pieces of the stream lie until their reader takes them.
struct Post {
    pieces: SegQueue<Arc<[u8]>>,
    bytes: AtomicUsize,
    limit: AtomicUsize,
    shard: usize,
    /// The reader wants to be rung for.
    awaits: AtomicBool,
    /// So much lies there that the reader is given no more.
    has_missed: AtomicBool,
}

/// Who reads the stream, on a shard.
pub struct Reader {
    post: Arc<Post>,
    position: u64,
}

impl Reader {
    /// What has come, without a wait; none where that is all, for which the shard is rung later.
    pub fn take(&mut self) -> Option<Arc<[u8]>> {
        let piece = self.post.pieces.pop().or_else(|| {
            self.post.awaits.store(true, Ordering::SeqCst);
            // (It may have come before that was said.)
            self.post.pieces.pop()
        })?;
        self.post.bytes.fetch_sub(piece.len(), Ordering::AcqRel);
        self.position += piece.len() as u64;
        Some(piece)
    }

    /// How much of the stream stands before what is taken next, in bytes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// So many bytes may lie there.
    pub fn set_limit(&self, limit: usize) {
        self.post.limit.store(limit, Ordering::Relaxed);
    }

    /// Whether the reader has left so much lying that there is no more for it: what was taken is not all.
    pub fn has_missed(&self) -> bool {
        self.post.has_missed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Shards, Transaction};
    use super::*;

    fn record(name: &str) -> Record {
        let commands = vec![Command::new(0, ["DEL", name].map(str::as_bytes).into_iter())];
        Record { part_of: None, now_ms: 0, commands }
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
        assert_eq!(names(&of_second), ["d", "b", "e"], "a transaction is whole for who begins in its middle");
        assert_eq!(first.position(), second.position());
        // (The second was told again which database it is.)
        assert!(of_second.starts_with("*2\r\n$6\r\nSELECT"), "{of_second}");
        assert!(!feed.end(&first) && feed.end(&second) && !feed.has_readers());
        feed.push(0, vec![record("f")]);
        drop(feed.drain());
        assert_eq!(all(&mut second), "");
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
        let Ready { commands, notes } = merging.take_ready(Vec::new());
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
