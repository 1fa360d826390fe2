//! Something of keys that stands beside the tables, so that keys without it take no byte more: a dictionary for each database.

use crate::table::{Dict, Entry};

pub(super) struct Beside {
    dbs: Vec<Dict>,
    /// Of all of them.
    len: usize,
}

impl Beside {
    pub fn new(databases: usize) -> Beside {
        Beside { dbs: (0..databases).map(|_| Dict::new()).collect(), len: 0 }
    }

    /// How much there is, in all databases.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// What there is in one of them.
    pub fn of(&self, db: usize) -> &Dict {
        &self.dbs[db]
    }

    pub fn all(&self) -> impl Iterator<Item = &Dict> {
        self.dbs.iter()
    }

    pub fn databases(&self) -> std::ops::Range<usize> {
        0..self.dbs.len()
    }

    pub fn get(&self, db: usize, key: &[u8]) -> Option<Entry<'_>> {
        if self.len > 0 { self.dbs[db].get(key) } else { None }
    }

    /// Changes what there is in one of them.
    pub fn change<R>(&mut self, db: usize, change: impl FnOnce(&mut Dict) -> R) -> R {
        let dict = &mut self.dbs[db];
        let before = dict.len();
        let result = change(dict);
        self.len = self.len + dict.len() - before;
        result
    }

    /// Whether there was something of the key.
    pub fn remove(&mut self, db: usize, key: &[u8]) -> bool {
        self.len > 0 && self.change(db, |dict| dict.remove(key))
    }

    pub fn flush(&mut self, db: usize) {
        self.change(db, |dict| drop(std::mem::take(dict)));
    }

    pub fn swap(&mut self, a: usize, b: usize) {
        self.dbs.swap(a, b);
    }

    pub fn bytes(&self) -> usize {
        if self.len > 0 { self.dbs.iter().map(Dict::bytes).sum() } else { 0 }
    }
}
