//! A connection whose command waits for a key.
//!
//! The command is tried first. Where there is nothing, the client takes its place in the queues of its keys
//! (`shard/waiters.rs`) in the same moment, so that nothing is missed, and a task waits for what becomes of it: served,
//! called to look for itself, out of time, unblocked by CLIENT UNBLOCK, or gone. Ending a wait takes its claim first:
//! where that is taken by who serves it, the reply comes instead.

use super::client::ClientRef;
use super::dispatch::{Dispatch, Step, Turn};
use super::several::across_of;
use super::split::{self, Routes};
use super::{Server, TaskFuture};
use crate::clock::boottime_us;
use crate::command::blocking::{Blocking, Wait};
use crate::command::{self, Across, OwnedRequest};
use crate::net::Notify;
use crate::resp::{Reply, Request, Result};
use crate::shard::{At, Claim, Lock, News, Shard, ShardHop, Waiter};
use futures_lite::future::or;
use glommio::timer::Timer;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A connection's wait.
pub struct Blocked {
    claim: Arc<Claim>,
    news: RefCell<Option<News>>,
    end: Cell<Option<End>>,
    alarm: Notify,
}

/// Why a wait ends without an answer to its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As if its time were over.
    Timeout,
    /// With an error.
    Error,
    /// The connection is gone.
    Gone,
}

/// Between two looks at a claim that somebody else has.
const CLAIM_RETRY: Duration = Duration::from_micros(200);
/// Timers further away than this are set anew when they ring.
const FARTHEST: Duration = Duration::from_secs(3600);

/// One blocking command of a connection.
struct Waiting {
    server: Rc<Server>,
    client: ClientRef,
    blocking: Blocking,
    request: OwnedRequest,
    at: At,
    routes: Routes,
    until_us: Option<u64>,
    blocked: Rc<Blocked>,
}

impl Dispatch<'_> {
    pub(super) fn blocking(&self, blocking: Blocking, at: At, turn: &mut Turn, request: Request) -> Step {
        let shard = &self.server.shard;
        let timeout_us = match (blocking.wait)(request) {
            Ok(Wait::For(timeout_us)) => timeout_us,
            Ok(Wait::Never) => {
                return self.several(command::Run::Atomic(blocking.once.0, blocking.once.1), at, turn, request);
            }
            Err(error) => {
                let muted = turn.take_muted();
                turn.reply(muted, |reply| reply.error(error));
                return Step::Taken;
            }
        };
        if !turn.replies.is_idle() {
            return Step::NotYet;
        }
        let routes = split::routes(&shard.hasher, at.keys, request);
        let at = At { hash: routes.first().map_or(0, |(hash, _)| *hash), ..at };
        let is_here = routes.iter().all(|(_, target)| *target == shard.id);
        let try_here = is_here && !shard.must_wait(&at, request, self.client.id);
        if try_here {
            let mut out = Vec::new();
            shard.run_handler(blocking.attempt.0, request, at, shard.clock.now(), &mut out, &mut Vec::new());
            shard.serve_waiters();
            if !out.is_empty() {
                let muted = turn.take_muted();
                turn.reply(muted, |reply| reply.raw(&out));
                return Step::Taken;
            }
        }
        let muted = turn.take_muted();
        let waiting = Waiting {
            server: self.server.clone(),
            client: self.client.clone(),
            blocking,
            request: OwnedRequest::of(request),
            at,
            routes,
            until_us: timeout_us.map(|timeout_us| shard.clock.now().us.saturating_add(timeout_us)),
            blocked: Rc::new(Blocked {
                claim: Arc::default(),
                news: RefCell::default(),
                end: Cell::default(),
                alarm: Notify::default(),
            }),
        };
        self.server.blocked.borrow_mut().insert(self.client.id, waiting.blocked.clone());
        if try_here {
            turn.flow.blocked = true;
            waiting.line_up_here(shard);
        }
        let future: TaskFuture = Box::pin(waiting.run(try_here));
        self.spawn(future, turn, muted);
        Step::Taken
    }
}

impl Waiting {
    async fn run(self, mut is_lined_up: bool) -> Result<Vec<u8>> {
        let result = self.wait(&mut is_lined_up).await;
        self.server.blocked.borrow_mut().remove(&self.client.id);
        self.client.state.borrow_mut().flow.blocked = false;
        if is_lined_up {
            self.leave();
        }
        result
    }

    async fn wait(&self, is_lined_up: &mut bool) -> Result<Vec<u8>> {
        let mut called = false;
        loop {
            if called || !*is_lined_up {
                let bytes = self.attempt(is_lined_up, called).await;
                match bytes {
                    Ok(bytes) if bytes.is_empty() => {}
                    answered => {
                        self.blocked.claim.end();
                        return answered;
                    }
                }
            }
            match self.news().await {
                News::Served(bytes) => return Ok(bytes),
                News::Called => called = true,
            }
        }
    }

    /// What becomes of the wait; where that is not an answer it is made one.
    async fn news(&self) -> News {
        let blocked = &self.blocked;
        loop {
            if let Some(news) = blocked.news.take() {
                return news;
            }
            let is_late = self.until_us.is_some_and(|until_us| boottime_us() >= until_us);
            let end = blocked.end.get().or(is_late.then_some(End::Timeout));
            if let Some(end) = end {
                if blocked.claim.take() {
                    blocked.claim.end();
                    return News::Served(self.end_reply(end));
                }
                // Somebody serves it at this moment.
                or(blocked.alarm.wait(), rest_for(CLAIM_RETRY)).await;
                continue;
            }
            match self.until_us {
                None => blocked.alarm.wait().await,
                Some(until_us) => {
                    let left = Duration::from_micros(until_us.saturating_sub(boottime_us())).min(FARTHEST);
                    or(blocked.alarm.wait(), rest_for(left)).await;
                }
            }
        }
    }

    fn end_reply(&self, end: End) -> Vec<u8> {
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, self.at.proto);
        match end {
            End::Timeout => self.blocking.nil.write(&mut reply),
            End::Error => reply.error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
            End::Gone => {}
        }
        out
    }

    /// Tries with all keys held. Where there is nothing the client takes its place in the queues, or, where it was called
    /// from one, waits on there.
    async fn attempt(&self, is_lined_up: &mut bool, called: bool) -> Result<Vec<u8>> {
        let shard = &self.server.shard;
        let locks = self.routes.iter().map(|&(hash, target)| (target, Lock { hash, write: self.at.write }));
        let transaction = Rc::new(shard.hold(locks).await);
        let hop = Rc::new(ShardHop::new(shard.clone(), Some(transaction.clone())));
        let context = across_of(shard, self.request.clone(), self.at.keys, self.at.db, self.at.proto);
        let bytes = (self.blocking.attempt.1)(Across { hop, ..context }).await?;
        if !bytes.is_empty() {
            return Ok(bytes);
        }
        if called {
            self.blocked.claim.give_back();
            self.each_key(|key, claim, db| move |shard: &Shard| shard.wait_again(db, &key, &claim));
            return Ok(bytes);
        }
        *is_lined_up = true;
        for (index, target) in self.waited_keys() {
            let line_up = self.line_up(index);
            transaction.on(target, move |shard, now| line_up(shard, now)).await;
        }
        self.client.state.borrow_mut().flow.blocked = true;
        Ok(bytes)
    }

    /// The indexes of the keys it waits for, each once, and their shards.
    fn waited_keys(&self) -> Vec<(usize, usize)> {
        let request = self.request.as_request();
        let shard_of = |index| command::shard_of(&self.server.shard.hasher, request.arg(index));
        let mut keys: Vec<(usize, usize)> = Vec::new();
        for index in self.blocking.keys.indexes(request) {
            if !keys.iter().any(|(other, _)| request.arg(*other) == request.arg(index)) {
                keys.push((index, shard_of(index)));
            }
        }
        keys
    }

    /// What takes the client's place in the queue of a key.
    fn line_up(&self, index: usize) -> impl FnOnce(&Shard, crate::clock::Now) + Send + 'static {
        let (blocking, at, request) = (self.blocking, self.at, self.request.clone());
        let (client, claim, origin) = (self.client.id, self.blocked.claim.clone(), self.server.shard.id);
        move |shard, now| {
            let key = request.as_request().arg(index).to_vec();
            let narrow = |ctx: &mut command::Ctx| (blocking.narrow)(ctx, request.as_request(), index);
            let request = shard.with_ctx(at.db, now, &mut Vec::new(), at.proto, narrow);
            let hash = shard.hasher.hash(&key);
            let waiter = Waiter {
                client,
                claim,
                origin,
                at: At { hash, ..at },
                attempt: blocking.attempt.0,
                request,
                kind: blocking.kind,
                ends_with_key: blocking.ends_with_key,
                called: false,
            };
            shard.wait_for(&key, waiter);
        }
    }

    fn line_up_here(&self, shard: &Shard) {
        for (index, _) in self.waited_keys() {
            self.line_up(index)(shard, shard.clock.now());
        }
    }

    /// Leaves all queues.
    fn leave(&self) {
        self.each_key(|key, claim, db| move |shard: &Shard| shard.wait_no_more(db, &key, &claim));
    }

    fn each_key<F: FnOnce(&Shard) + Send + 'static>(&self, work: impl Fn(Vec<u8>, Arc<Claim>, usize) -> F) {
        let shard = &self.server.shard;
        for (index, target) in self.waited_keys() {
            let key = self.request.as_request().arg(index).to_vec();
            let work = work(key, self.blocked.claim.clone(), self.at.db);
            if target == shard.id {
                work(shard);
            } else {
                shard.tell(target, move |shard| work(shard));
            }
        }
        shard.after_commands();
    }
}

async fn rest_for(time: Duration) {
    Timer::new(time).await;
}

impl Server {
    /// Whether a connection waits.
    pub fn is_blocked(&self, client: u64) -> bool {
        self.blocked.borrow().contains_key(&client)
    }

    /// Ends a connection's wait; whether it waited.
    pub fn unblock(&self, client: u64, end: End) -> bool {
        let blocked = self.blocked.borrow().get(&client).cloned();
        blocked.is_some_and(|blocked| {
            let first = blocked.end.get().is_none();
            if first || end == End::Gone {
                blocked.end.set(Some(end));
            }
            blocked.alarm.notify();
            first && !blocked.claim.is_over()
        })
    }

    /// What has become of a connection's wait.
    pub(super) fn news_of(&self, client: u64, claim: &Arc<Claim>, news: News) {
        let blocked = self.blocked.borrow().get(&client).cloned();
        match blocked {
            Some(blocked) if Arc::ptr_eq(&blocked.claim, claim) => {
                blocked.news.replace(Some(news));
                blocked.alarm.notify();
            }
            _ => debug_assert!(!matches!(news, News::Called), "a wait ends with its claim"),
        }
    }
}
