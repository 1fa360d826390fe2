//! What a command's coordinator has: keys that it holds on several shards, and its way to them.

use super::Shard;
use super::calls::CallResult;
use super::message::{AnyResult, At, EVERYTHING, Lock, Message, Step};
use super::transactions::{HELD_FOR, Heard};
use crate::clock::{Now, first_number_at, sequence_ms, store_us};
use crate::command::spec::flag::READ;
use crate::command::{Hop, Job, TokenFuture, shard_of};
use crate::config::Tls;
use crate::executor;
use crate::keyspace::Hasher;
use crate::net::{note_woken, sleep};
use crate::resp::{Proto, Request};
use futures_lite::future::{or, yield_now};
use smallvec::SmallVec;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Keys held on several shards, until this is dropped.
pub struct Transaction {
    shard: Rc<Shard>,
    number: u64,
    /// Its place among all transactions.
    pub sequence: u64,
    /// The one moment it looks at.
    pub now: Now,
    /// Who takes part in it.
    pub shards: SmallVec<[usize; 4]>,
    may_be_undone: bool,
    /// What is to be done when it is over, in this order.
    afterwards: RefCell<Vec<Afterwards>>,
}

/// How often a coordinator that waits looks at the latest whether it is refused.
const LOOKED_EVERY: Duration = Duration::from_millis(32);

/// How long a coordinator that has time waits for its turn before it lets go, and how long at the most until it tries again.
const TURN_WITHIN_US: u64 = 20_000;
const APART_MAX: Duration = Duration::from_millis(50);

type Afterwards = Pin<Box<dyn Future<Output = ()>>>;

impl Transaction {
    /// What it does may turn out to have to be undone: nobody hears of it before it is over.
    pub fn may_be_undone(mut self) -> Transaction {
        self.may_be_undone = true;
        self
    }

    /// Runs `work` on a shard that takes part, when it is this transaction's turn there.
    pub fn on<R: Send + 'static>(
        &self,
        target: usize,
        work: impl FnOnce(&Shard, Now) -> R + Send + 'static,
    ) -> CallResult<R> {
        self.step_on(target, work).1
    }

    /// The same; the call's name, and its result.
    fn step_on<R: Send + 'static>(
        &self,
        target: usize,
        work: impl FnOnce(&Shard, Now) -> R + Send + 'static,
    ) -> (u64, CallResult<R>) {
        debug_assert!(self.shards.contains(&target));
        let (call, result) = self.shard.expect_result();
        let work = Box::new(move |shard: &Shard, now| Box::new(work(shard, now)) as AnyResult);
        let step = Step { call, may_be_undone: self.may_be_undone, work };
        if target == self.shard.id {
            self.shard.catch_up();
            self.shard.step(target, self.number, step);
            self.shard.after_commands();
        } else {
            self.shard.post(target, Message::Step { origin: self.shard.id, number: self.number, step });
        }
        (call, result)
    }

    /// Runs `work` on each shard that takes part, and lets go of each as soon as it has answered: nobody there waits for the
    /// others. What is not answered when `patience` is at its end was perhaps not done, and is given up. The results are in the
    /// order of [`Transaction::shards`].
    pub async fn look<R: Send + 'static>(
        mut self,
        patience: Duration,
        work: impl FnOnce(&Shard, Now) -> R + Send + Clone + 'static,
    ) -> Vec<Option<R>> {
        let targets = self.shards.clone();
        let mut calls: Vec<_> = targets.iter().map(|target| self.step_on(*target, work.clone())).collect();
        let mut results: Vec<Option<R>> = targets.iter().map(|_| None).collect();
        let all = poll_fn(|cx| {
            for (index, (_, result)) in calls.iter_mut().enumerate() {
                if results[index].is_none()
                    && let Poll::Ready(answer) = result.as_mut().poll(cx)
                {
                    results[index] = Some(answer);
                    self.let_go_of(targets[index]);
                }
            }
            if results.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
        });
        or(all, sleep(patience)).await;
        let unanswered = calls.iter().zip(&results).filter(|(_, result)| result.is_none());
        unanswered.for_each(|((call, _), _)| self.shard.give_up_call(*call));
        results
    }

    /// A shard takes part no more.
    fn let_go_of(&mut self, target: usize) {
        self.shards.retain(|shard| *shard != target);
        self.release_on(target);
    }

    fn release_on(&self, target: usize) {
        if target == self.shard.id {
            self.shard.release(target, self.number);
            self.shard.after_commands();
        } else {
            self.shard.post(target, Message::Release { origin: self.shard.id, number: self.number });
        }
    }

    /// Runs something on this transaction's own shard, where it has its keys.
    pub fn here<R>(&self, work: impl FnOnce(&Rc<Shard>, Now) -> R) -> R {
        self.shard.catch_up();
        let result = self.shard.in_hold(self.number, self.may_be_undone, |now| work(&self.shard, now));
        self.shard.after_commands();
        result
    }

    /// Has something done when it is over, and every shard that took part has handed over to the journal what it has changed.
    pub fn afterwards(&self, work: impl Future<Output = ()> + 'static) {
        self.afterwards.borrow_mut().push(Box::pin(work));
    }

    /// What it has done on a shard was undone, and nobody hears of it.
    pub async fn forget(&self, target: usize) {
        let (origin, number) = (self.shard.id, self.number);
        self.on(target, move |shard, _| shard.forget_heard(origin, number)).await;
    }

    /// Those who wait for its keys, with commands of one shard, are answered this error instead.
    pub async fn refuse_waiting(&self, error: &'static str) {
        let (origin, number) = (self.shard.id, self.number);
        for target in self.shards.iter().copied() {
            let refuse = move |shard: &Rc<Shard>| {
                shard.refuse_waiting(origin, number, error);
                shard.after_commands();
            };
            self.shard.call(target, refuse).await;
        }
    }

    /// Waits for its turn on each of its shards, unless `refusal`, which is asked now and then, has a reason not to. Then nothing
    /// of it has run, and it is to be let go.
    pub async fn turn_unless<E>(&self, refusal: impl Fn() -> Option<E>) -> Result<(), E> {
        let (calls, turns): (Vec<u64>, Vec<_>) =
            self.shards.iter().map(|target| self.step_on(*target, |_, _| ())).unzip();
        let mut all = pin!(async {
            for turn in turns {
                turn.await;
            }
            true
        });
        let mut pause = HELD_FOR;
        loop {
            let later = async {
                sleep(pause).await;
                false
            };
            if or(all.as_mut(), later).await {
                return Ok(());
            }
            if let Some(reason) = refusal() {
                calls.iter().for_each(|call| self.shard.give_up_call(*call));
                return Err(reason);
            }
            pause = (pause * 2).min(LOOKED_EVERY);
        }
    }

    /// Whether it keeps others waiting who could not know of it: see [`Shard::keeps_others_waiting`]. `before` is what this was
    /// told when it looked before, of each shard; at first nothing.
    pub async fn keeps_others_waiting(&self, before: &mut Vec<u64>) -> bool {
        let (origin, number) = (self.shard.id, self.number);
        before.resize(self.shards.len(), 0);
        let mut any = false;
        for (target, before) in self.shards.iter().copied().zip(before) {
            let since = *before;
            let look = move |shard: &Rc<Shard>| shard.keeps_others_waiting(origin, number, since);
            let (is_kept, come) = self.shard.call(target, look).await;
            any |= is_kept;
            *before = come;
        }
        any
    }

    /// Holds more keys of its own shard, which takes part, if nobody else wants them.
    pub fn widen(&self, locks: &[Lock]) -> bool {
        self.shard.widen(self.number, locks)
    }

    /// Holds everything of its own shard, the only one that takes part, as soon as no other hold goes on there; until then
    /// none begins. Whether that is so; to be asked again if not.
    pub fn take_everything(&self) -> bool {
        debug_assert_eq!(self.shard.count, 1, "there is no other shard");
        self.shard.take_everything(self.number)
    }

    /// Whether its own shard takes part.
    pub fn is_here(&self) -> bool {
        self.shards.contains(&self.shard.id)
    }

    /// What a command is about to read is remembered, where its connection tracks that.
    pub async fn remember(&self, at: At, request: Request<'_>) {
        let spec = self.shard.spec(at.command);
        let Some(tracker) = at.tracker.filter(|tracker| tracker.remembers && spec.has(READ)) else { return };
        let mut by_shard: Vec<(usize, Vec<Box<[u8]>>)> = self.shards.iter().map(|shard| (*shard, Vec::new())).collect();
        for key in spec.keys.indexes(request).map(|index| request.arg(index)) {
            let target = shard_of(&self.shard.hasher, key);
            let of_shard = by_shard.iter_mut().find(|(shard, _)| *shard == target);
            of_shard.into_iter().for_each(|(_, keys)| keys.push(key.into()));
        }
        for (target, keys) in by_shard.into_iter().filter(|(_, keys)| !keys.is_empty()) {
            self.on(target, move |shard, _| shard.remember(tracker, &keys)).await;
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.shards.iter().for_each(|target| self.release_on(*target));
        let works = self.afterwards.take();
        if !works.is_empty() {
            let shard = self.shard.clone();
            note_woken();
            executor::spawn(async move {
                // A new task runs at once; this one must not within what ends the transaction.
                yield_now().await;
                // Who answers has let go of the keys before.
                shard.call_all(|_| ()).await;
                for work in works {
                    work.await;
                }
            });
        }
    }
}

impl Shard {
    /// All keys of all shards.
    pub fn everything(&self) -> impl Iterator<Item = (usize, Lock)> + use<> {
        (0..self.count).map(|target| (target, Lock { hash: EVERYTHING, write: true }))
    }

    /// Holds keys on several shards; returns when the transaction has its place in the sequence.
    pub async fn hold(self: &Rc<Shard>, locks: impl Iterator<Item = (usize, Lock)>) -> Transaction {
        self.hold_as(locks, false).await
    }

    /// The same when its turn has come on each of its shards, however long that takes, for a coordinator that no script has to let
    /// pass, unless `refusal`, which is asked now and then, has a reason not to. Meanwhile it lets go of all now and then: what
    /// changes something on several shards is not to wait on one of them for whom the coordinator waits on another, since the
    /// journal would have nothing of what follows elsewhere.
    pub async fn hold_in_turn<E>(
        self: &Rc<Shard>,
        locks: &[(usize, Lock)],
        refusal: impl Fn() -> Option<E>,
    ) -> Result<Transaction, E> {
        let mut apart = Duration::from_micros(TURN_WITHIN_US);
        loop {
            let transaction = self.hold_patiently(locks.iter().copied()).await;
            let (is_apart, until_us) = (transaction.shards.len() > 1, store_us() + TURN_WITHIN_US);
            let is_late = || is_apart && store_us() >= until_us;
            match transaction.turn_unless(|| refusal().map(Some).or(is_late().then_some(None))).await {
                Ok(()) => return Ok(transaction),
                Err(Some(reason)) => return Err(reason),
                Err(None) => drop(transaction),
            }
            sleep(apart).await;
            apart = (2 * apart).min(APART_MAX);
        }
    }

    /// The same for a coordinator that no script has to let pass, and that does not wait for long.
    pub async fn hold_patiently(self: &Rc<Shard>, locks: impl Iterator<Item = (usize, Lock)>) -> Transaction {
        self.hold_as(locks, true).await
    }

    async fn hold_as(self: &Rc<Shard>, locks: impl Iterator<Item = (usize, Lock)>, is_patient: bool) -> Transaction {
        let number = self.transactions.next_hold();
        let (shards, start) = {
            let mut transaction = self.transaction();
            let mut locks = locks.peekable();
            if locks.peek().is_none() {
                // Without any lock nobody would give it a number, nor start it: it waits for those who have everything.
                transaction.hold(self.id, number, Lock { hash: EVERYTHING, write: false }, is_patient);
            }
            locks.for_each(|(target, lock)| transaction.hold(target, number, lock, is_patient));
            transaction.start()
        };
        start.taken.wait().await;
        let now = Now::from_ms(sequence_ms(start.number.get()));
        let (shard, sequence) = (self.clone(), start.number.get());
        Transaction { shard, number, sequence, now, shards, may_be_undone: false, afterwards: RefCell::default() }
    }
}

impl Shard {
    /// Runs something on this shard as one moment, which may turn out to last: see [`Moment`].
    pub fn moment<R>(self: &Rc<Shard>, work: impl FnOnce() -> (R, bool)) -> (R, Option<Moment>) {
        let mark = self.begin_to_hear();
        let (result, lasts) = work();
        let heard = self.end_to_hear(mark);
        if lasts {
            return (result, Some(Moment { shard: self.clone(), heard }));
        }
        self.tell_heard(None, heard);
        (result, None)
    }
}

/// What has begun at once, on keys that nobody had, and is not done.
pub struct Moment {
    shard: Rc<Shard>,
    heard: Heard,
}

impl Moment {
    /// It was undone. What it has found dead is told.
    pub fn forget(mut self) {
        self.heard.undo();
        self.shard.tell_heard(None, self.heard);
    }

    /// Holds these keys until it is done. To be called before anything else has run.
    pub fn hold(self, locks: &[Lock], now: Now, may_be_undone: bool) -> Transaction {
        let number = self.shard.transactions.next_hold();
        self.shard.hold_here(number, locks, now);
        self.shard.heard_in_hold((self.shard.id, number), self.heard, may_be_undone);
        let shards = SmallVec::from_slice(&[self.shard.id]);
        let (shard, sequence) = (self.shard, first_number_at(now.ms));
        Transaction { shard, number, sequence, now, shards, may_be_undone, afterwards: RefCell::default() }
    }
}

/// The way of a command's coordinator to the shards: within a transaction, or, for what needs no moment of its own,
/// without.
pub struct ShardHop {
    shard: Rc<Shard>,
    transaction: Option<Rc<Transaction>>,
    /// In which place the command runs; each step says in which database.
    at: At,
    /// How long all steps took.
    ns: Rc<Cell<u64>>,
}

impl ShardHop {
    /// `ns` is where the time of its steps is added up.
    pub fn new(shard: Rc<Shard>, transaction: Option<Rc<Transaction>>, at: At, ns: Rc<Cell<u64>>) -> ShardHop {
        ShardHop { shard, transaction, at: At { hash: 0, proto: Proto::Resp2, ..at }, ns }
    }
}

impl Hop for ShardHop {
    fn hasher(&self) -> &Hasher {
        &self.shard.hasher
    }

    fn shards(&self) -> usize {
        self.shard.count
    }

    fn tls_to_others(&self) -> Option<Tls> {
        let config = self.shard.config();
        config.tls.replication.then(|| config.tls.clone())
    }

    fn token(&self) -> TokenFuture {
        self.shard.front().token()
    }

    fn run(&self, target: usize, db: usize, job: Job) -> Pin<Box<dyn Future<Output = Box<dyn Any + Send>>>> {
        let at = At { db, ..self.at };
        let work = move |shard: &Shard, now| shard.step_of(at, now, job);
        let step = match &self.transaction {
            Some(transaction) => transaction.on(target, work),
            None => self.shard.call(target, move |shard| {
                let now = shard.catch_up();
                let result = work(shard, now);
                shard.after_commands();
                result
            }),
        };
        let all_ns = self.ns.clone();
        Box::pin(async move {
            let (result, ns) = step.await;
            all_ns.set(all_ns.get() + ns);
            result
        })
    }
}
