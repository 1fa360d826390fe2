//! Who waits for keys of this shard, in order of arrival.
//!
//! A client that waits for keys on several shards stands in a queue on each. What serves it first claims it: a byte that
//! the shards share, since nothing else can be taken from a key for a client that has been served meanwhile elsewhere,
//! timed out or gone. Whoever changes a key for which somebody waits marks it ([`Effects::ready`]); the queue is looked
//! at when the command, or the whole transaction, is done, before anything else runs: not while a coordinator holds it.
//!
//! A request whose keys are all here is served here. One that needs keys of other shards, or a key that a transaction has
//! locked, is called: its coordinator takes the keys and tries, and the queue behind it waits.
//!
//! # Connections that end
//! From the moment at which it is known that a connection ends, nothing is taken from a key for it: its claim is
//! withdrawn there and then ([`Claim::withdraw`]), by whichever of its ends comes about (`server/told/output.rs` has the one
//! door), and before the socket is closed. Who has the claim at that moment has taken it before: what is found goes into a
//! reply that nobody reads, as one that was on the wire; what is not found is not waited for. Where connections are about to
//! end and it is not known yet which, nobody is served anywhere until it is ([`Front::ends_some`]).
//!
//! [`Effects::ready`]: crate::keyspace::Effects::ready
//! [`Front::ends_some`]: super::Front::ends_some

use super::Shard;
use super::message::{At, EVERYTHING, Lock};
use crate::clock::Now;
use crate::command::{Handler, OwnedRequest};
use crate::keyspace::{Effects, Kind, Live, Touch};
use crate::observe::GiveBack;
use crate::resp::{Error, Reply, Request};
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A client's wait, as all shards see it.
#[derive(Debug, Default)]
pub struct Claim(AtomicU8);

const WAITS: u8 = 0;
/// Somebody looks whether there is something for it, which takes no longer than that.
const TAKEN: u8 = 1;
/// Its coordinator was called to look, and may have to wait for the keys before it can.
const CALLED: u8 = 2;
const OVER: u8 = 3;
/// As taken, but its connection is to end: the wait is over where nothing is found for it.
const TAKEN_LAST: u8 = 4;
/// Over, and nobody has served it.
const WITHDRAWN: u8 = 5;

impl Claim {
    /// Takes the wait, to serve it. Nobody else can until it is given back.
    pub fn take(&self) -> bool {
        self.change(WAITS, TAKEN)
    }

    /// Takes the wait to end it, also from a coordinator that was called and has not looked yet.
    pub fn take_back(&self) -> bool {
        self.change(WAITS, TAKEN) || self.change(CALLED, TAKEN)
    }

    /// Leaves a wait that was taken to its coordinator.
    pub fn call(&self) {
        self.0.store(CALLED, Ordering::Release);
    }

    /// The coordinator has the keys and looks now, unless the wait was ended since it was called.
    pub fn answer_call(&self) -> bool {
        self.change(CALLED, TAKEN)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The wait goes on, unless its connection is to end.
    pub fn give_back(&self) {
        if !self.change(TAKEN, WAITS) {
            self.change(TAKEN_LAST, WITHDRAWN);
        }
    }

    /// The connection is to end: from now on nobody takes the wait.
    pub fn withdraw(&self) {
        let withdrawn = |state| match state {
            WAITS | CALLED => Some(WITHDRAWN),
            TAKEN => Some(TAKEN_LAST),
            _ => None,
        };
        // (Where it is over already it stays so.)
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, withdrawn);
    }

    /// Whether it was withdrawn, and nobody is about to serve it.
    pub fn is_withdrawn(&self) -> bool {
        self.0.load(Ordering::Acquire) == WITHDRAWN
    }

    /// The wait is over, for whoever has taken it.
    pub fn end(&self) {
        self.0.store(OVER, Ordering::Release);
    }

    /// Nobody looks whether there is something, nor has found it.
    pub fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Acquire) == WAITS
    }

    pub fn is_over(&self) -> bool {
        matches!(self.0.load(Ordering::Acquire), OVER | WITHDRAWN)
    }
}

/// What a client waits for, on one shard: the same for all of its keys there, which may be very many.
pub struct Wish {
    pub client: u64,
    pub claim: Arc<Claim>,
    /// The shard of the connection.
    pub origin: usize,
    pub at: At,
    pub attempt: Handler,
    pub kind: Kind,
    /// Whether it is worth calling its coordinator for what is under the key.
    pub is_enough: fn(Request, &Live) -> bool,
    /// It does not wait for a key that is gone.
    pub ends_with_key: bool,
}

/// A client in the queue of one key.
struct Waiter {
    wish: Rc<Wish>,
    /// For that key alone.
    request: OwnedRequest,
    /// Its coordinator tries.
    called: bool,
}

/// What has become of a wait.
#[derive(Debug)]
pub enum News {
    /// The reply, and how long it took to make it, in nanoseconds.
    Served(Vec<u8>, u64),
    /// There may be something: the coordinator has to look, see [`Claim::answer_call`].
    Called,
}

/// A key in its database.
type Name = (usize, Box<[u8]>);

#[derive(Default)]
pub(super) struct Waiters {
    queues: HashMap<Name, Queue>,
    /// Keys whose first waiter somebody else was looking after.
    again: BTreeSet<Name>,
    /// Changed keys that were held, by their hashes: they are looked at when they are let go of, and not before, since one
    /// hold may have very many and takes many steps.
    held: HashMap<u64, BTreeSet<Name>, ahash::RandomState>,
}

/// Who waits for one key. (Boxed, since those who leave from the middle move half of the others.)
#[derive(Default)]
struct Queue {
    #[allow(clippy::vec_box)]
    waiters: VecDeque<Box<Waiter>>,
    /// How many do not wait for a key that is gone.
    ending_with_key: usize,
}

impl Queue {
    fn push(&mut self, waiter: Waiter) {
        self.ending_with_key += usize::from(waiter.wish.ends_with_key);
        self.waiters.push_back(Box::new(waiter));
    }
}

impl Waiters {
    /// Takes a client out of a queue, which goes with the last of them.
    fn take_out(&mut self, name: &Name, index: usize, effects: &mut Effects) -> Option<Box<Waiter>> {
        let queue = self.queues.get_mut(name)?;
        let waiter = queue.waiters.remove(index)?;
        queue.ending_with_key -= usize::from(waiter.wish.ends_with_key);
        if queue.waiters.is_empty() {
            self.queues.remove(name);
            self.queues.give_back();
        }
        effects.wait_no_more(name.0, &name.1);
        Some(waiter)
    }
}

const KEY_GONE: &str = "UNBLOCKED the stream key no longer exists";
const GROUP_GONE: &str = "NOGROUP the consumer group this client was blocked on no longer exists";

impl Shard {
    /// Puts a client at the end of a key's queue, with a request for that key alone.
    pub fn wait_for(&self, key: &[u8], wish: &Rc<Wish>, request: OwnedRequest) {
        let db = wish.at.db;
        let waiter = Waiter { wish: wish.clone(), request: request.fitted(), called: false };
        self.keyspace.borrow_mut().effects.wait_for(db, key);
        self.waiters.borrow_mut().queues.entry((db, key.into())).or_default().push(waiter);
        self.has_waiters.set(true);
    }

    /// The keys for which somebody waits, and those of them whose deletion ends a wait.
    pub fn keys_waited_for(&self) -> [usize; 2] {
        let queues = &self.waiters.borrow().queues;
        [queues.len(), queues.values().filter(|queue| queue.ending_with_key > 0).count()]
    }

    /// Takes a client out of a key's queue. Whoever waited behind it while its coordinator looked may go on, see
    /// [`Shard::serve_waiters`].
    pub fn wait_no_more(&self, db: usize, key: &[u8], claim: &Arc<Claim>) {
        let name = (db, key.into());
        let waiters = &mut *self.waiters.borrow_mut();
        let Some(queue) = waiters.queues.get_mut(&name) else { return };
        let Some(index) = queue.waiters.iter().position(|waiter| Arc::ptr_eq(&waiter.wish.claim, claim)) else {
            return;
        };
        let effects = &mut self.keyspace.borrow_mut().effects;
        if waiters.take_out(&name, index, effects).is_some_and(|waiter| waiter.called) {
            effects.ready(db, key);
        }
    }

    /// A coordinator has found nothing: its client waits again, first in the queue as before.
    pub fn wait_again(&self, db: usize, key: &[u8], claim: &Arc<Claim>) {
        let name = (db, key.into());
        if let Some(queue) = self.waiters.borrow_mut().queues.get_mut(&name) {
            let of_claim = queue.waiters.iter_mut().filter(|waiter| Arc::ptr_eq(&waiter.wish.claim, claim));
            of_claim.for_each(|waiter| waiter.called = false);
            self.keyspace.borrow_mut().effects.ready(db, key);
        }
    }

    /// Serves those who wait for keys that have changed. To be called when a command, or a transaction, is done.
    #[inline]
    pub fn serve_waiters(&self) {
        // What a log says is in it already; when it has been said those are served who still find something.
        if self.has_waiters.get() && !self.is_replaying.get() {
            self.serve_ready();
        }
    }

    #[cold]
    fn serve_ready(&self) {
        debug_assert!(self.is_busy() || self.waiters.borrow().held.is_empty(), "whoever lets go of keys says so");
        let again = std::mem::take(&mut self.waiters.borrow_mut().again);
        again.iter().for_each(|(db, key)| self.serve_key(*db, key));
        loop {
            let ready = self.keyspace.borrow_mut().effects.take_ready();
            if ready.is_empty() {
                break;
            }
            ready.iter().for_each(|(db, key)| self.serve_key(*db, key));
        }
        let waiters = self.waiters.borrow();
        self.has_waiters.set(!waiters.queues.is_empty());
        if !waiters.again.is_empty() {
            self.outbox.kick();
        }
    }

    /// Whether a queue has to be looked at again soon. While somebody holds keys, that is when they are released: who looks
    /// after a waiter may wait for one of them.
    pub(super) fn has_waiters_to_serve(&self) -> bool {
        self.has_waiters.get() && !self.is_busy() && !self.waiters.borrow().again.is_empty()
    }

    /// These are not held any more: those who wait for the ones that have changed meanwhile are served next.
    pub(super) fn serve_released(&self, locks: &[Lock]) {
        let waiters = &mut *self.waiters.borrow_mut();
        if waiters.held.is_empty() {
            return;
        }
        for lock in locks.iter().filter(|lock| lock.write) {
            match lock.hash {
                EVERYTHING => waiters.again.extend(waiters.held.drain().flat_map(|(_, names)| names)),
                hash => waiters.again.extend(waiters.held.remove(&hash).into_iter().flatten()),
            }
        }
        waiters.held.give_back();
    }

    fn serve_key(&self, db: usize, key: &[u8]) {
        let (name, hash): (Name, u64) = ((db, key.into()), self.hasher.hash(key));
        if self.is_held(hash) {
            // What changed it is not done.
            self.waiters.borrow_mut().held.entry(hash).or_default().insert(name);
            return;
        }
        let now = self.moment_before_all(hash);
        let (mut index, mut kind) = (0, self.kind_of(db, key, now));
        loop {
            let (claim, handler, request, at, called) = {
                let waiters = &mut *self.waiters.borrow_mut();
                let Some(queue) = waiters.queues.get_mut(&name) else { return };
                if kind.is_none() && queue.ending_with_key == 0 {
                    return;
                }
                let Some(waiter) = queue.waiters.get_mut(index) else { return };
                let wish = &waiter.wish;
                let comes_in_question = kind == Some(wish.kind) || wish.ends_with_key;
                if wish.claim.is_over() || !comes_in_question {
                    index += 1;
                    continue;
                }
                if waiter.called {
                    return;
                }
                let is_all_here = self.is_all_here(waiter);
                if !is_all_here && !self.has_enough(waiter, db, key, now) {
                    index += 1;
                    continue;
                }
                // Somebody else looks after it, or it is about to be decided whose connections end.
                if self.front().ends_some() || !wish.claim.take() {
                    waiters.again.insert(name);
                    return;
                }
                waiter.called = !is_all_here;
                let at = At { hash, ..wish.at };
                (wish.claim.clone(), wish.attempt, waiter.request.clone(), at, waiter.called)
            };
            if called {
                claim.call();
                self.tell_waiter(&name, index, News::Called);
                return;
            }
            let mut out = Vec::new();
            let run = || self.execute(handler, request.as_request(), at, now, &mut out, &mut Vec::new());
            let ((), ns) = self.measured(run);
            let expected = self.waiters.borrow().queues[&name].waiters[index].wish.kind;
            if out.starts_with(b"-NOGROUP") || kind != Some(expected) {
                let text = if kind == Some(expected) { GROUP_GONE } else { KEY_GONE };
                out.clear();
                Reply::new(&mut out, at.proto).error(Error::text(text));
            }
            if out.is_empty() {
                claim.give_back();
                index += 1;
                continue;
            }
            claim.end();
            self.tell_waiter(&name, index, News::Served(out, ns));
            kind = self.kind_of(db, key, now);
            self.waiters.borrow_mut().take_out(&name, index, &mut self.keyspace.borrow_mut().effects);
        }
    }

    fn kind_of(&self, db: usize, key: &[u8], now: Now) -> Option<Kind> {
        let key = self.hasher.key(key);
        self.keyspace.borrow_mut().find(db, key, now, Touch::NOTHING).map(|live| live.kind())
    }

    /// Whether the key has what a coordinator may serve a client with: one that finds nothing would be called again, and
    /// keep the queue waiting meanwhile.
    fn has_enough(&self, waiter: &Waiter, db: usize, key: &[u8], now: Now) -> bool {
        let key = self.hasher.key(key);
        let mut keyspace = self.keyspace.borrow_mut();
        let live = keyspace.find(db, key, now, Touch::NOTHING);
        live.is_none_or(|live| (waiter.wish.is_enough)(waiter.request.as_request(), &live))
    }

    /// Whether a request can run here now: one key can, since it was changed just now and nobody has locked it.
    fn is_all_here(&self, waiter: &Waiter) -> bool {
        let request = waiter.request.as_request();
        let keys: SmallVec<[&[u8]; 2]> =
            self.spec(waiter.wish.at.command).keys.indexes(request).map(|index| request.arg(index)).collect();
        let is_free = |key: &&[u8]| {
            self.hasher.shard_of(self.hasher.key(key)) == self.id
                && !self.is_locked(Lock { hash: self.hasher.hash(key), write: true })
        };
        keys.len() < 2 || keys.iter().all(is_free)
    }

    /// Tells a connection what has become of its wait.
    fn tell_waiter(&self, name: &Name, index: usize, news: News) {
        let (client, origin, claim) = {
            let wish = &self.waiters.borrow().queues[name].waiters[index].wish;
            (wish.client, wish.origin, wish.claim.clone())
        };
        if origin == self.id {
            self.front().waited(client, &claim, news);
        } else {
            self.tell(origin, move |shard| shard.front().waited(client, &claim, news));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_to_end_is_served_by_nobody_but_who_is_about_to() {
        let claim = Claim::default();
        claim.withdraw();
        assert!(claim.is_withdrawn() && claim.is_over() && !claim.take() && !claim.take_back());

        let claim = Claim::default();
        assert!(claim.take());
        claim.call();
        claim.withdraw();
        assert!(claim.is_withdrawn() && !claim.answer_call(), "its coordinator had not looked yet");

        let claim = Claim::default();
        assert!(claim.take());
        claim.withdraw();
        assert!(!claim.is_over() && !claim.take_back());
        claim.give_back();
        assert!(claim.is_withdrawn() && !claim.take(), "nothing was found for it");

        let claim = Claim::default();
        assert!(claim.take());
        claim.withdraw();
        claim.end();
        claim.withdraw();
        assert!(claim.is_over() && !claim.is_withdrawn(), "it was served: the reply is on its way");

        let claim = Claim::default();
        assert!(claim.take());
        claim.give_back();
        assert!(claim.is_waiting() && claim.take());
    }
}
