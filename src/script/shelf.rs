//! The sources of all scripts. Shards share them; each compiles for itself what it runs.

use super::header::Header;
use crate::resp::Result;
use sha1::{Digest as _, Sha1};
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The SHA1 of a script's source in hexadecimal digits: its name.
pub type Digest = [u8; 40];

/// So many scripts that came by EVAL are kept; as in Redis 7.4.
const EVALUATED_MAX: usize = 500;

pub fn digest(source: &[u8]) -> Digest {
    let mut digits = [0; 40];
    write!(&mut digits[..], "{:x}", Sha1::digest(source)).expect("twenty bytes have forty digits");
    digits
}

/// A digest as a client names it, in whatever case.
pub fn named(name: &[u8]) -> Option<Digest> {
    let mut digits = Digest::try_from(name).ok()?;
    digits.make_ascii_lowercase();
    Some(digits)
}

/// What was seen of the keys that a script, or a function, touches.
#[derive(Default)]
pub struct Conduct {
    /// It has left its declared keys: it runs under all of them from now on.
    pub strays: AtomicBool,
    /// It has come to its end within them.
    pub has_stayed: AtomicBool,
}

pub struct Source {
    pub digest: Digest,
    pub text: Box<[u8]>,
    pub header: Header,
    pub conduct: Conduct,
    /// It was used since somebody looked who was not.
    pub used: AtomicBool,
    /// It stays until SCRIPT FLUSH.
    stays: AtomicBool,
}

#[derive(Default)]
struct Books {
    sources: HashMap<Digest, Arc<Source>, ahash::RandomState>,
    /// Those that came by EVAL, oldest first.
    evaluated: VecDeque<Arc<Source>>,
    bytes: usize,
}

#[derive(Default)]
pub struct Shelf {
    books: Mutex<Books>,
    /// How often all scripts were thrown away.
    flushes: AtomicU64,
    evicted: AtomicU64,
}

impl Shelf {
    fn books(&self) -> MutexGuard<'_, Books> {
        // What is behind the lock is whole after each statement.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn find(&self, digest: &Digest) -> Option<Arc<Source>> {
        self.books().sources.get(digest).cloned()
    }

    /// Puts a script there that compiles. One that came by EVAL makes room for others, in time.
    pub fn put(&self, digest: Digest, text: &[u8], by_eval: bool) -> Result<Arc<Source>> {
        let header = Header::parse(text)?;
        let mut books = self.books();
        if let Some(source) = books.sources.get(&digest) {
            source.stays.fetch_or(!by_eval, Ordering::Relaxed);
            return Ok(source.clone());
        }
        let source = Arc::new(Source {
            digest,
            text: text.into(),
            header,
            conduct: Conduct::default(),
            used: AtomicBool::new(true),
            stays: AtomicBool::new(!by_eval),
        });
        books.bytes += source.bytes();
        books.sources.insert(digest, source.clone());
        if by_eval {
            books.evaluated.push_back(source.clone());
            self.make_room(&mut books);
        }
        Ok(source)
    }

    /// Those that came by EVAL and were not used since they were looked at last go, oldest first.
    fn make_room(&self, books: &mut Books) {
        for _ in 0..2 * EVALUATED_MAX {
            if books.evaluated.len() <= EVALUATED_MAX {
                return;
            }
            let Some(oldest) = books.evaluated.pop_front() else { return };
            if oldest.stays.load(Ordering::Relaxed) {
                continue;
            }
            if oldest.used.swap(false, Ordering::Relaxed) {
                books.evaluated.push_back(oldest);
            } else {
                books.sources.remove(&oldest.digest);
                books.bytes -= oldest.bytes();
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub fn flush(&self) {
        let before = std::mem::take(&mut *self.books());
        self.flushes.fetch_add(1, Ordering::Release);
        drop(before);
    }

    /// Changes when all scripts are thrown away.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// How many there are, and their bytes.
    pub fn size(&self) -> (usize, usize) {
        let books = self.books();
        (books.sources.len(), books.bytes)
    }
}

impl Source {
    fn bytes(&self) -> usize {
        self.text.len() + size_of::<Source>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_by_eval_and_is_not_used_makes_room() {
        let shelf = Shelf::default();
        let put = |n: usize, by_eval| {
            let text = format!("return {n}");
            shelf.put(digest(text.as_bytes()), text.as_bytes(), by_eval).expect("a script").digest
        };
        let loaded = put(0, false);
        let first = put(1, true);
        let used = put(2, true);
        for n in 3..EVALUATED_MAX + 200 {
            put(n, true);
            if let Some(source) = shelf.find(&used) {
                source.used.store(true, Ordering::Relaxed);
            }
        }
        assert!(shelf.find(&loaded).is_some() && shelf.find(&used).is_some() && shelf.find(&first).is_none());
        assert_eq!(shelf.size().0, EVALUATED_MAX + 1);
        shelf.flush();
        assert_eq!((shelf.size(), shelf.flushes()), ((0, 0), 1));
    }
}
