//! What of this shard's data is not on the disk for certain, where replies wait for that (`appendfsync always`).
//!
//! What a turn changes is handed over to the log at its end, in one push. A reply that acknowledges or shows a change
//! leaves when that push is on the disk; others do not wait.

use std::cell::{Cell, RefCell};

/// Keys are told apart by so many values of their hashes: a key waits for another one's change now and then.
const SLOTS: usize = 4096;

#[derive(Default)]
pub struct Durable {
    is_kept: Cell<bool>,
    /// The push in which what changes now will be.
    next: Cell<u64>,
    /// Somebody waits for that, so there has to be one.
    is_promised: Cell<bool>,
    /// In which push a key changed last, by its hash.
    slots: RefCell<Vec<u64>>,
    /// The last push with a change of keys that are not in the slots.
    anywhere: Cell<u64>,
    /// The last push with any change.
    last: Cell<u64>,
    /// What the replies that were made since this was taken last show.
    shown: Cell<u64>,
}

impl Durable {
    /// From now on it is known what replies show, or not any more. `pushed` is the last push so far.
    pub fn set_kept(&self, wants: bool, pushed: u64) {
        if wants != self.is_kept.get() {
            self.is_kept.set(wants);
            self.slots.replace(if wants { vec![pushed; SLOTS] } else { Vec::new() });
            self.anywhere.set(pushed);
            self.last.set(pushed);
            self.shown.set(0);
        }
        self.next.set(pushed + 1);
    }

    #[inline]
    pub fn is_kept(&self) -> bool {
        self.is_kept.get()
    }

    /// A command has changed this key, or others than one.
    #[cold]
    pub(super) fn changed(&self, hash: Option<u64>) {
        self.told_late(hash);
        self.show(self.next.get());
    }

    /// What has changed this key before, or others than one, is told to the log from now on only: nobody has seen it.
    #[cold]
    pub(super) fn told_late(&self, hash: Option<u64>) {
        let next = self.next.get();
        match hash {
            Some(hash) => self.slots.borrow_mut()[slot(hash)] = next,
            None => self.anywhere.set(next),
        }
        self.last.set(next);
    }

    /// A command has read this key, or others than one.
    #[cold]
    pub(super) fn read(&self, hash: Option<u64>) {
        self.show(match hash {
            Some(hash) => self.slots.borrow()[slot(hash)].max(self.anywhere.get()),
            None => self.last.get(),
        });
    }

    fn show(&self, push: u64) {
        self.shown.set(self.shown.get().max(push));
        if push == self.next.get() {
            self.is_promised.set(true);
        }
    }

    /// Which push what has been shown since the last call waits for; 0 for none.
    #[inline]
    pub fn take_shown(&self) -> u64 {
        self.shown.take()
    }

    /// The push that everything until now is in.
    pub fn everything(&self) -> u64 {
        if !self.is_kept.get() {
            return 0;
        }
        self.is_promised.set(true);
        self.next.get()
    }

    /// Whether there has to be a push although nothing has changed.
    pub fn take_promise(&self) -> bool {
        self.is_promised.take()
    }

    /// So many pushes were handed over.
    pub fn pushed(&self, number: u64) {
        self.next.set(number + 1);
    }
}

fn slot(hash: u64) -> usize {
    hash as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_wait_for_what_they_show_and_for_nothing_else() {
        let durable = Durable::default();
        durable.set_kept(true, 6);
        durable.read(Some(1));
        assert_eq!((durable.take_shown(), durable.take_promise()), (6, false));
        durable.changed(Some(1));
        assert_eq!((durable.take_shown(), durable.take_promise()), (7, true));
        durable.pushed(7);
        durable.read(Some(2));
        assert_eq!(durable.take_shown(), 6);
        durable.read(Some(1));
        assert_eq!(durable.take_shown(), 7);
        durable.read(None);
        assert_eq!(durable.take_shown(), 7);
        durable.changed(None);
        durable.pushed(8);
        durable.take_shown();
        durable.read(Some(2));
        assert_eq!((durable.take_shown(), durable.take_shown()), (8, 0));
        assert_eq!((durable.everything(), durable.take_promise()), (9, true));
    }
}
