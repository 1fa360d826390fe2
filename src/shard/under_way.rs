//! Long replies that a shard has made, and that the shards of the connections have not taken in yet.
//!
//! A reply counts as its connection's when the connection's shard has taken the reply in; that shard ends connections that hold
//! too much. A shard that went on meanwhile would make the replies to all that stands in its mail, before any of them counts: 30
//! connections that ask for 500 MB each, and read nothing, would take 15 GB. So a shard begins nothing more for connections while
//! so much of its replies is under way. Connections of its own have their replies at once; these leave, and count, when the turn
//! ends: after so much no more of them have their turn in it.

use super::Shard;
use super::message::{Batch, Message};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Replies of fewer bytes, which leave together, are not counted.
const COUNTED_BYTES: usize = 64 * 1024;
/// Replies that have so many bytes together leave at once, without those behind them.
pub(super) const ANSWERED_AT_BYTES: usize = 1 << 20;
/// With so many bytes under way a shard begins nothing more.
const BYTES_MAX: usize = 64 << 20;

/// What is under way from one shard.
#[derive(Default)]
#[repr(align(64))]
struct FromShard {
    bytes: AtomicUsize,
    /// The shard is to be told when it may go on.
    waits: AtomicBool,
}

/// What is under way from all shards.
#[derive(Clone)]
pub struct UnderWay(Arc<[FromShard]>);

impl UnderWay {
    pub fn new(shards: usize) -> UnderWay {
        UnderWay((0..shards).map(|_| FromShard::default()).collect())
    }

    fn add(&self, shard: usize, bytes: usize) {
        if bytes >= COUNTED_BYTES {
            self.0[shard].bytes.fetch_add(bytes, Ordering::SeqCst);
        }
    }

    /// So many bytes from a shard were taken in; whether that shard is to be told that it may go on.
    fn remove(&self, shard: usize, bytes: usize) -> bool {
        if bytes < COUNTED_BYTES {
            return false;
        }
        let of = &self.0[shard];
        let before = of.bytes.fetch_sub(bytes, Ordering::SeqCst);
        debug_assert!(before >= bytes, "what is taken in was under way");
        before - bytes < BYTES_MAX && of.waits.swap(false, Ordering::SeqCst)
    }

    /// Whether too much is under way from a shard, which is going to be told then when it may go on.
    #[inline]
    fn is_full(&self, shard: usize) -> bool {
        self.0[shard].bytes.load(Ordering::Relaxed) >= BYTES_MAX && self.asks_to_be_told(shard)
    }

    #[cold]
    fn asks_to_be_told(&self, shard: usize) -> bool {
        let of = &self.0[shard];
        of.waits.store(true, Ordering::SeqCst);
        // Some may have been taken in before anybody could see that. (What was said stays said: to be told in vain costs little, and
        // something else may wait already.)
        of.bytes.load(Ordering::SeqCst) >= BYTES_MAX
    }
}

/// What a shard has not begun for that.
#[derive(Default)]
pub(super) struct HeldBack {
    is_on: Cell<bool>,
    /// Connections that have stalled here, and may go on.
    clients: RefCell<Vec<u64>>,
    /// What was held back is to be looked at again.
    is_over: Cell<bool>,
    /// Bytes of long replies that this shard's own connections were given in this turn.
    given_bytes: Cell<usize>,
}

impl Shard {
    /// Whether nothing more may begin here for connections. What was held back is looked at again when that is over.
    #[inline]
    pub(super) fn must_hold_back(&self) -> bool {
        let is_full = self.under_way.is_full(self.id);
        if is_full {
            self.held_back.is_on.set(true);
        } else if self.is_held_back() {
            self.go_on_with_held_back();
        }
        is_full
    }

    /// The same for a connection that has stalled here, and is going to go on then.
    pub(super) fn must_hold_back_client(&self, client: u64) -> bool {
        let must = self.must_hold_back();
        if must {
            self.held_back.clients.borrow_mut().push(client);
        }
        must
    }

    #[inline]
    pub(super) fn is_held_back(&self) -> bool {
        self.held_back.is_on.get()
    }

    /// Whether what was held back may go on, and nobody has looked after that.
    #[inline]
    pub(super) fn has_held_back_to_go_on(&self) -> bool {
        self.held_back.is_over.get()
    }

    /// The connections that may go on, where what was held back may.
    #[inline]
    pub(super) fn take_held_back(&self) -> Option<Vec<u64>> {
        self.held_back.is_over.take().then(|| self.held_back.clients.take())
    }

    /// A connection of this shard has replies that leave when the turn ends.
    #[inline]
    pub fn gives(&self, bytes: usize) {
        if bytes >= COUNTED_BYTES {
            self.held_back.given_bytes.set(self.held_back.given_bytes.get() + bytes);
        }
    }

    /// Whether so much leaves when the turn ends that others are to have theirs in the next one.
    #[inline]
    pub fn gives_much(&self) -> bool {
        self.held_back.given_bytes.get() >= BYTES_MAX
    }

    /// What was written is on its way.
    pub(super) fn has_given(&self) {
        self.held_back.given_bytes.set(0);
    }

    fn go_on_with_held_back(&self) {
        self.held_back.is_on.set(false);
        self.held_back.is_over.set(true);
        self.outbox.kick();
    }

    /// Sends replies to the shard of their connections.
    pub(super) fn post_replies(&self, batch: Box<Batch>) {
        self.under_way.add(self.id, batch.out.len());
        self.post(batch.origin, Message::Replies(batch));
    }

    /// The same where that is this shard.
    pub(super) fn count_own_replies(&self, batch: &Batch) {
        self.under_way.add(self.id, batch.out.len());
    }

    /// Hands replies to this shard's connections.
    pub(super) fn take_replies(&self, mut batch: Box<Batch>) {
        let (target, bytes) = (usize::from(batch.target), batch.out.len());
        self.front().replies(&mut batch);
        self.outbox.recycle(batch);
        if self.under_way.remove(target, bytes) {
            match target == self.id {
                true => self.go_on_with_held_back(),
                false => self.post(target, Message::Tell(Box::new(|shard| shard.go_on_with_held_back()))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_is_told_once_enough_was_taken_in() {
        let under_way = UnderWay::new(2);
        under_way.add(0, BYTES_MAX - 1);
        under_way.add(0, COUNTED_BYTES - 1);
        assert!(!under_way.is_full(0), "what is short does not count");
        under_way.add(0, BYTES_MAX);
        assert!(under_way.is_full(0) && !under_way.is_full(1));
        assert!(!under_way.remove(0, BYTES_MAX - 1), "there is too much still");
        assert!(!under_way.remove(0, COUNTED_BYTES - 1));
        assert!(under_way.remove(0, BYTES_MAX));
        assert!(!under_way.is_full(0));
        under_way.add(0, BYTES_MAX);
        assert!(!under_way.remove(0, BYTES_MAX), "nobody waits");
    }

    /// Whatever the threads do between each other's steps.
    #[test]
    fn nobody_who_waits_is_forgotten() {
        let (under_way, told) = (UnderWay::new(1), AtomicUsize::new(0));
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for bytes in receive {
                    told.fetch_add(usize::from(under_way.remove(0, bytes)), Ordering::SeqCst);
                }
            });
            for _ in 0..if cfg!(miri) { 20 } else { 20_000 } {
                under_way.add(0, BYTES_MAX);
                let before = told.load(Ordering::SeqCst);
                send.send(BYTES_MAX).expect("somebody takes it in");
                // More than once, as one after the other is held back.
                if (0..3).any(|_| under_way.is_full(0)) {
                    let begin = std::time::Instant::now();
                    while told.load(Ordering::SeqCst) == before {
                        assert!(begin.elapsed().as_secs() < 20, "nobody has told");
                        std::thread::yield_now();
                    }
                }
            }
            drop(send);
        });
    }
}
