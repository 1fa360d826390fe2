//! A file that is on no disk: what is written to it is handed to several readers as it is made. The slowest of them is waited
//! for, until it is given up.

use super::disk::{Appendable, Appended, Disk};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// So much may wait for a reader.
const WAITING_BYTES: usize = 2 << 20;
/// How often who writes looks whether anybody is left, should nobody say so.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What one reader is handed.
#[derive(Default)]
pub struct Handout {
    state: Mutex<State>,
    room: Condvar,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Arc<[u8]>>,
    bytes: usize,
    /// It is complete, or it will not be.
    end: Option<bool>,
    /// Nobody reads it any more.
    is_given_up: bool,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Piece(Arc<[u8]>),
    /// Nothing is there yet.
    Later,
    /// That was all of it.
    End,
    /// There is no more, and that was not all.
    Broken,
}

impl Handout {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn next(&self) -> Next {
        let mut state = self.lock();
        match (state.pieces.pop_front(), state.end) {
            (Some(piece), _) => {
                state.bytes -= piece.len();
                self.room.notify_one();
                Next::Piece(piece)
            }
            (None, None) => Next::Later,
            (None, Some(true)) => Next::End,
            (None, Some(false)) => Next::Broken,
        }
    }

    /// Nobody reads it any more, and nobody waits for that.
    pub fn give_up(&self) {
        let mut state = self.lock();
        state.is_given_up = true;
        state.pieces.clear();
        state.bytes = 0;
        self.room.notify_one();
    }

    /// Whether somebody reads it.
    fn put(&self, piece: &Arc<[u8]>) -> bool {
        let mut state = self.lock();
        while state.bytes > WAITING_BYTES && !state.is_given_up {
            state = self.room.wait_timeout(state, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.is_given_up {
            return false;
        }
        state.bytes += piece.len();
        state.pieces.push_back(piece.clone());
        true
    }

    fn end(&self, is_whole: bool) {
        self.lock().end = Some(is_whole);
    }
}

/// Hands out to all of them.
#[derive(Clone)]
pub struct Handouts(Arc<[Arc<Handout>]>);

impl Handouts {
    pub fn new(count: usize) -> Handouts {
        Handouts((0..count).map(|_| Arc::default()).collect())
    }

    pub fn all(&self) -> &[Arc<Handout>] {
        &self.0
    }

    pub fn end(&self, is_whole: bool) {
        self.0.iter().for_each(|handout| handout.end(is_whole));
    }
}

impl Appended for Handouts {
    fn append(&self, start: &[u8], end: &[u8]) -> io::Result<usize> {
        let piece: Arc<[u8]> = if end.is_empty() { start.into() } else { [start, end].concat().into() };
        let readers = self.0.iter().filter(|handout| handout.put(&piece)).count();
        if readers == 0 {
            return Err(io::Error::other("nobody reads it any more"));
        }
        Ok(piece.len())
    }

    fn make_room(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        // (What was handed out cannot be taken back.)
        if bytes == 0 { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }
}

/// There is one file, and what it is called makes no difference: it is complete when it gets its name, and it will never be
/// when it is removed.
impl Disk for Handouts {
    fn open(&self, _: &Path) -> io::Result<Appendable> {
        Ok(Arc::new(self.clone()))
    }

    fn create(&self, path: &Path) -> io::Result<Appendable> {
        self.open(path)
    }

    fn make_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn replace(&self, _: &Path, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        self.end(true);
        Ok(())
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        self.end(false);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(handout: &Handout) -> (Vec<u8>, bool) {
        let mut all = Vec::new();
        loop {
            match handout.next() {
                Next::Piece(piece) => all.extend_from_slice(&piece),
                Next::Later => std::thread::yield_now(),
                end => return (all, end == Next::End),
            }
        }
    }

    #[test]
    fn every_reader_gets_all_of_it_and_who_is_given_up_holds_nobody_up() {
        let handouts = Handouts::new(3);
        let [first, second, idle] = handouts.all() else { panic!("three") };
        let threads = [first.clone(), second.clone()].map(|handout| std::thread::spawn(move || read(&handout)));
        let piece = vec![b'x'; 300 << 10];
        let written = handouts.clone();
        let writer = std::thread::spawn(move || {
            for _ in 0..20 {
                written.append(&piece, b"y").expect("somebody reads");
            }
            written.rename(Path::new(""), Path::new("")).expect("no failure");
        });
        // It has room for the first of them, and is in the way of the others.
        while idle.lock().bytes <= WAITING_BYTES {
            std::thread::yield_now();
        }
        idle.give_up();
        writer.join().expect("no panic");
        for thread in threads {
            let (bytes, is_whole) = thread.join().expect("no panic");
            assert_eq!((bytes.len(), is_whole), (20 * ((300 << 10) + 1), true));
        }
    }

    #[test]
    fn who_writes_ends_where_nobody_reads_and_readers_see_what_is_broken() {
        let handouts = Handouts::new(1);
        let handout = &handouts.all()[0];
        assert_eq!(handout.next(), Next::Later);
        handouts.append(b"a", b"").expect("somebody reads");
        handouts.remove(Path::new("")).expect("no failure");
        assert_eq!(read(handout), (b"a".to_vec(), false));
        handout.give_up();
        assert!(handouts.append(b"a", b"").is_err());
    }
}
