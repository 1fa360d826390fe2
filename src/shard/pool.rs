//! What is kept for reuse, and for how long: no more than is needed at the same time, or was not long ago.
//!
//! What is given back last is taken first. So what lies at the bottom is what nobody has needed since the fewest lay here,
//! and it goes when that has been so for a while: after a burst its buffers do not stay for ever.

use std::cell::{Cell, RefCell};

pub trait Kept {
    /// What it has allocated.
    fn capacity_bytes(&self) -> usize;
}

impl Kept for Vec<u8> {
    fn capacity_bytes(&self) -> usize {
        self.capacity()
    }
}

/// How many are kept, the largest of them, and the bytes of all.
#[derive(Clone, Copy)]
pub struct Limits {
    pub count: usize,
    pub item_bytes: usize,
    pub bytes: usize,
}

pub struct Pool<T> {
    limits: Limits,
    items: RefCell<Vec<T>>,
    bytes: Cell<usize>,
    /// The fewest that were here since it was trimmed last.
    fewest: Cell<usize>,
    /// How many were given back since.
    put: Cell<usize>,
}

/// It is trimmed when so many were given back (and when somebody asks for it: where nothing is given back any more).
const TRIMMED_AFTER: usize = 128;

impl<T: Kept> Pool<T> {
    pub fn new(limits: Limits) -> Pool<T> {
        Pool { limits, items: RefCell::default(), bytes: Cell::new(0), fewest: Cell::new(0), put: Cell::new(0) }
    }

    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    #[inline]
    pub fn take(&self) -> Option<T> {
        let mut items = self.items.borrow_mut();
        let item = items.pop()?;
        self.bytes.set(self.bytes.get() - item.capacity_bytes());
        self.fewest.set(self.fewest.get().min(items.len()));
        Some(item)
    }

    /// Keeps it, or drops it where there is enough.
    #[inline]
    pub fn put(&self, item: T) {
        let (bytes, mut items) = (item.capacity_bytes(), self.items.borrow_mut());
        let is_kept = items.len() < self.limits.count
            && (1..=self.limits.item_bytes).contains(&bytes)
            && self.bytes.get() + bytes <= self.limits.bytes;
        if is_kept {
            items.push(item);
            self.bytes.set(self.bytes.get() + bytes);
        }
        drop(items);
        self.put.set(self.put.get() + 1);
        if self.put.get() >= TRIMMED_AFTER {
            self.trim();
        }
    }

    /// Drops what nobody has needed since the last time.
    #[cold]
    pub fn trim(&self) {
        let mut items = self.items.borrow_mut();
        for unused in items.drain(..self.fewest.get()) {
            self.bytes.set(self.bytes.get() - unused.capacity_bytes());
        }
        self.fewest.set(items.len());
        self.put.set(0);
    }

    pub fn clear(&self) {
        self.items.take();
        self.bytes.set(0);
        self.fewest.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool<Vec<u8>> {
        Pool::new(Limits { count: 20, item_bytes: 1000, bytes: 5000 })
    }

    fn buffer(bytes: usize) -> Vec<u8> {
        Vec::with_capacity(bytes)
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let pool = pool();
        pool.put(buffer(1001));
        pool.put(buffer(0));
        assert_eq!((pool.bytes(), pool.take()), (0, None));
        (0..10).for_each(|_| pool.put(buffer(1000)));
        assert_eq!(pool.bytes(), 5000);
        pool.clear();
        (0..100).for_each(|_| pool.put(buffer(10)));
        assert_eq!(pool.bytes(), 200);
        assert!((0..20).all(|_| pool.take().is_some()) && pool.take().is_none());
    }

    #[test]
    fn a_burst_is_forgotten_and_what_is_in_use_is_not() {
        let pool = pool();
        (0..20).for_each(|_| pool.put(buffer(10)));
        for _ in 0..TRIMMED_AFTER {
            let taken: Vec<_> = (0..3).map(|_| pool.take().unwrap_or_else(|| buffer(10))).collect();
            taken.into_iter().for_each(|taken| pool.put(taken));
        }
        assert_eq!(pool.bytes(), 30);
        // Nobody needs them any more.
        pool.trim();
        pool.trim();
        assert_eq!((pool.bytes(), pool.take()), (0, None));
    }
}
