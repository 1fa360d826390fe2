//! What a view adds up, and the few names that it keeps.

use super::Aspect;
use ahash::RandomState;
use std::collections::{BTreeSet, HashMap};

/// Longer names are not kept: they are counted, and not shown.
const NAME_BYTES_MAX: usize = 4 << 10;
/// The names that a view keeps have no more bytes than this.
const NAMES_BYTES_MAX: usize = 256 << 10;
/// So many times the names that are shown are kept, so that a pass is not needed whenever one of them goes.
const SPARE: usize = 2;

/// What a key adds.
pub struct Share<'k> {
    pub key: &'k [u8],
    pub bytes: u64,
    /// Store milliseconds.
    pub deadline_ms: Option<u64>,
}

pub struct Sums {
    pub keys: u64,
    /// Nothing where only keys are counted or named: whoever does so is not told when a key changes that stays.
    pub bytes: u64,
    kept: Kept,
}

enum Kept {
    Keys,
    Bytes,
    Names(Names),
    Next(Next),
}

impl Sums {
    pub fn new(aspect: Aspect) -> Sums {
        let kept = match aspect {
            Aspect::Count => Kept::Keys,
            Aspect::Bytes => Kept::Bytes,
            Aspect::Names(most) => Kept::Names(Names { most, ..Names::default() }),
            Aspect::Next(most) => Kept::Next(Next { most, ..Next::default() }),
        };
        Sums { keys: 0, bytes: 0, kept }
    }

    pub fn add(&mut self, share: &Share) {
        self.keys += 1;
        match &mut self.kept {
            Kept::Keys => {}
            Kept::Bytes => self.bytes += share.bytes,
            Kept::Names(names) => names.add(share.key),
            Kept::Next(next) => next.add(share.key, share.deadline_ms),
        }
    }

    pub fn take_off(&mut self, key: &[u8], bytes: u64) {
        debug_assert!(self.keys > 0, "what goes was added");
        self.keys = self.keys.saturating_sub(1);
        match &mut self.kept {
            Kept::Keys => {}
            Kept::Bytes => {
                debug_assert!(self.bytes >= bytes, "what goes was added");
                self.bytes = self.bytes.saturating_sub(bytes);
            }
            Kept::Names(names) => names.take_off(key),
            Kept::Next(next) => next.take_off(key),
        }
    }

    /// Whether fewer names are kept than are to be shown, although there may be more.
    pub fn lacks_names(&self) -> bool {
        match &self.kept {
            Kept::Keys | Kept::Bytes => false,
            Kept::Names(names) => {
                let unknown = self.keys > names.names.len() as u64 + names.long;
                unknown && names.names.len() < names.most && names.bytes < NAMES_BYTES_MAX / SPARE
            }
            Kept::Next(next) => {
                next.horizon.is_some() && next.by_deadline.len() < next.most && next.bytes < NAMES_BYTES_MAX / SPARE
            }
        }
    }

    /// Names of keys, in their order.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        let names = if let Kept::Names(names) = &self.kept { Some(names) } else { None };
        names.into_iter().flat_map(|names| &names.names).map(|name| &**name)
    }

    /// Those that die next, with their deadlines.
    pub fn next(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let next = if let Kept::Next(next) = &self.kept { Some(next) } else { None };
        next.into_iter().flat_map(|next| &next.by_deadline).map(|(deadline_ms, name)| (*deadline_ms, &**name))
    }
}

/// Some of the names.
#[derive(Default)]
struct Names {
    most: usize,
    names: BTreeSet<Box<[u8]>>,
    bytes: usize,
    /// Keys whose names are too long to be kept.
    long: u64,
}

impl Names {
    fn add(&mut self, key: &[u8]) {
        if key.len() > NAME_BYTES_MAX {
            self.long += 1;
        } else if self.names.len() < self.most * SPARE && self.bytes + key.len() <= NAMES_BYTES_MAX {
            self.bytes += key.len();
            self.names.insert(key.into());
        }
    }

    fn take_off(&mut self, key: &[u8]) {
        if key.len() > NAME_BYTES_MAX {
            self.long = self.long.saturating_sub(1);
        } else if self.names.remove(key) {
            self.bytes -= key.len();
        }
    }
}

/// The earliest of those that have a deadline.
#[derive(Default)]
struct Next {
    most: usize,
    by_deadline: BTreeSet<(u64, Box<[u8]>)>,
    deadlines_ms: HashMap<Box<[u8]>, u64, RandomState>,
    bytes: usize,
    /// All that die before this one are here; none: all are.
    horizon: Option<(u64, Box<[u8]>)>,
}

impl Next {
    fn add(&mut self, key: &[u8], deadline_ms: Option<u64>) {
        let Some(deadline_ms) = deadline_ms.filter(|_| key.len() <= NAME_BYTES_MAX) else { return };
        let it = (deadline_ms, Box::from(key));
        if self.horizon.as_ref().is_some_and(|horizon| it >= *horizon) {
            return;
        }
        self.bytes += key.len();
        self.deadlines_ms.insert(key.into(), deadline_ms);
        self.by_deadline.insert(it);
        while self.by_deadline.len() > self.most * SPARE || self.bytes > NAMES_BYTES_MAX {
            let Some(last) = self.by_deadline.pop_last() else { return };
            self.bytes -= last.1.len();
            self.deadlines_ms.remove(&last.1);
            self.horizon = Some(last);
        }
    }

    fn take_off(&mut self, key: &[u8]) {
        if let Some((name, deadline_ms)) = self.deadlines_ms.remove_entry(key) {
            self.bytes -= name.len();
            self.by_deadline.remove(&(deadline_ms, name));
        }
    }
}
