//! A connection whose command waits for a key.
//!
//! The command is tried first. Where there is nothing, the client takes its place in the queues of its keys
//! (`shard/waiters.rs`) in the same moment, so that nothing is missed, and a task waits for what becomes of it: served,
//! called to look for itself, out of time, unblocked by CLIENT UNBLOCK, or about to be closed. Ending a wait takes its claim first:
//! where that is taken by who serves it, the reply comes instead.

use super::atomic;
use super::coordinate::across_of;
use super::in_the_way::{self, Holder};
use super::rights;
use super::split::{self, Route, Routes};
use super::task::{Call, spawn};
use super::turn::{Progress, Turn};
use crate::acl::log::Context;
use crate::clock::{Now, store_us};
use crate::command::blocking::{Blocking, Wait as Timeout};
use crate::command::{self, Across, OwnedRequest, without_repeats};
use crate::net::sleep;
use crate::resp::{Reply, Request, Result};
use crate::server::admit::user::no_permission;
use crate::server::client::ClientRef;
use crate::server::client::session::Close;
use crate::server::state::waits::{Blocked, End, NEW_ROLE, UNBLOCKED};
use crate::server::state::{Server, TaskFuture};
use crate::server::told::output::{close_now, settle};
use crate::shard::{At, Claim, Lock, News, Shard, ShardHop, Wish};
use futures_lite::future::or;
use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at a claim that somebody else has.
const CLAIM_RETRY: Duration = Duration::from_micros(200);

/// One blocking command of a connection.
struct Wait {
    server: Rc<Server>,
    client: ClientRef,
    blocking: Blocking,
    request: Arc<OwnedRequest>,
    at: At,
    /// How long its attempts took.
    ns: Rc<Cell<u64>>,
    routes: Routes,
    /// The indexes of the keys it waits for, each once, by shard.
    keys: Vec<(usize, Vec<usize>)>,
    until_us: Option<u64>,
    blocked: Rc<Blocked>,
    /// How often this server had become a replica when the command was admitted.
    role: u64,
}

pub fn run(turn: &mut Turn, blocking: Blocking, at: At, request: Request) -> Progress {
    let server = turn.server;
    let shard = &server.shard;
    let timeout_us = match (blocking.wait)(request) {
        // A command of a log waits for nothing, as within EXEC: what would end the wait stands behind it.
        Ok(_) if turn.client.replays() => return atomic::run(turn, blocking.once, at, request),
        Ok(Timeout::For(timeout_us)) => timeout_us,
        Ok(Timeout::Never) => return atomic::run(turn, blocking.once, at, request),
        Err(error) => return turn.fail(at.command, error),
    };
    if !turn.replies.is_idle() {
        return Progress::NotYet;
    }
    let routes = split::routes(&shard.hasher, shard.spec(at.command).keys, request);
    let at = At { hash: split::first_hash(&routes), ..at };
    let is_here = routes.iter().all(|(_, target)| *target == shard.id);
    let try_here = is_here && !shard.must_wait(&at, request, turn.client.id);
    if try_here {
        let mut out = Vec::new();
        let run = || shard.execute_alone(blocking.attempt.0, request, at, shard.clock.now(), &mut out, &mut Vec::new());
        let ((), ns) = shard.measured(run);
        shard.serve_waiters();
        if !out.is_empty() {
            turn.ran(at.command, request, ns);
            shard.meter.answered(at.command, &out);
            let muted = turn.take_muted();
            turn.reply(muted, |reply| reply.raw(&out));
            return Progress::Taken;
        }
        if turn.flow.finished {
            // Whose other side has hung up waits for nothing.
            turn.flow.close = Close::AfterReplies;
            return Progress::Taken;
        }
    }
    let muted = turn.take_muted();
    let (call, ns) = Call::in_steps(turn.server, at.command, Some(request));
    let request_owned = Arc::new(OwnedRequest::of(request));
    let asked = Some((at.command, request_owned.clone()));
    let wait = Wait {
        ns,
        server: turn.server.clone(),
        client: turn.client.clone(),
        blocking,
        request: request_owned,
        at,
        routes,
        keys: by_shard(shard, request, blocking.keys.indexes(request)),
        until_us: timeout_us.map(|timeout_us| shard.clock.now().us.saturating_add(timeout_us)),
        blocked: Rc::new(Blocked { has_timeout: timeout_us.is_some(), asked, ..Blocked::default() }),
        role: server.global.following.number(),
    };
    server.waits.add(turn.client.id, wait.blocked.clone());
    if try_here {
        turn.flow.blocked = true;
        wait.line_up_here(shard);
    }
    let future: TaskFuture = Box::pin(wait.run(try_here));
    spawn(turn, future, call, muted);
    Progress::Taken
}

impl Wait {
    async fn run(self, mut is_lined_up: bool) -> Result<Vec<u8>> {
        let result = self.wait(&mut is_lined_up).await;
        self.server.waits.remove(self.client.id);
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
                News::Served(bytes, ns) => {
                    self.ns.set(self.ns.get() + ns);
                    return Ok(bytes);
                }
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
            let is_late = self.until_us.is_some_and(|until_us| store_us() >= until_us);
            let end = blocked.end.get().or(is_late.then_some(End::Timeout));
            if let Some(end) = end {
                if blocked.is_ended.get() || blocked.claim.is_withdrawn() || blocked.claim.take_back() {
                    blocked.claim.end();
                    return News::Served(self.end_reply(end), 0);
                }
                // Somebody serves it at this moment.
                or(blocked.alarm.wait(), sleep(CLAIM_RETRY)).await;
                continue;
            }
            match self.until_us {
                None => blocked.alarm.wait().await,
                Some(until_us) => {
                    let left = Duration::from_micros(until_us.saturating_sub(store_us()));
                    or(blocked.alarm.wait(), sleep(left)).await;
                }
            }
        }
    }

    fn end_reply(&self, end: End) -> Vec<u8> {
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, self.at.proto);
        match end {
            End::Timeout => self.blocking.nil.write(&mut reply),
            End::Error => reply.error(UNBLOCKED),
            End::Denied(denied) => {
                let command = self.server.table.get(self.at.command);
                reply.error(no_permission(command.full_name, denied));
            }
            End::NewRole => {
                reply.error(NEW_ROLE);
                self.client.state.borrow_mut().session.close = Close::AfterReplies;
            }
            End::Gone => {}
        }
        out
    }

    /// Tries with all keys held. Where there is nothing the client takes its place in the queues, or, where it was called
    /// from one, waits on there.
    async fn attempt(&self, is_lined_up: &mut bool, called: bool) -> Result<Vec<u8>> {
        let shard = &self.server.shard;
        let lock = |&(hash, target): &Route| (target, Lock { hash, write: self.at.write });
        let locks: Vec<(usize, Lock)> = self.routes.iter().map(lock).collect();
        // Who ends the wait while others have the keys must not wait for them, since it may be one of those: the client has its
        // turn first. Who was called waits for the turn however long that takes.
        let transaction = match called {
            true => {
                let Ok(transaction) = shard.hold_in_turn(&locks, || None::<Infallible>).await;
                transaction
            }
            false => {
                let holder =
                    Holder { command: self.at.command, request: self.request.as_request(), replays: false, own: None };
                let transaction = in_the_way::hold(&self.server, locks.into_iter(), holder).await?;
                for target in transaction.shards.clone() {
                    transaction.on(target, |_, _| ()).await;
                }
                transaction
            }
        };
        let transaction = Rc::new(transaction);
        self.server.client_memory.not_full().await;
        let claim = &self.blocked.claim;
        if !if called { claim.answer_call() } else { claim.take() } {
            return Ok(Vec::new());
        }
        self.check_rights()?;
        transaction.remember(self.at, self.request.as_request()).await;
        // Who is served has missed already, and is no further hit, as in Redis.
        let touch = if called { self.at.touch.uncounted() } else { self.at.touch };
        let at = At { touch, ..self.at };
        let hop = Rc::new(ShardHop::new(shard.clone(), Some(transaction.clone()), at, self.ns.clone()));
        let context = across_of(shard, (*self.request).clone(), self.at);
        let bytes = (self.blocking.attempt.1)(Across { hop, ..context }).await?;
        if !bytes.is_empty() {
            return Ok(bytes);
        }
        if called {
            self.check_rights()?;
            claim.give_back();
            self.on_each_key(Shard::wait_again);
            self.let_pushes_pass();
            return Ok(bytes);
        }
        if self.client.state.borrow().flow.finished {
            close_now(&self.server, &self.client);
            claim.give_back();
            return Ok(bytes);
        }
        *is_lined_up = true;
        for (target, indexes) in &self.keys {
            let line_up = self.line_up(indexes.clone());
            transaction.on(*target, line_up).await;
        }
        self.check_rights()?;
        claim.give_back();
        self.client.state.borrow_mut().flow.blocked = true;
        // Whoever ends all waits when this server becomes a replica ends those of clients that have lined up.
        if self.server.global.following.number() != self.role {
            self.blocked.end.set(Some(End::NewRole));
        }
        // It is read on from now, see `may_read`.
        self.let_pushes_pass();
        Ok(bytes)
    }

    /// Its user may have lost rights while it had the claim, when whoever took them away could not end the wait.
    fn check_rights(&self) -> Result {
        let state = self.client.state.borrow();
        let Some(user) = rights::restricted(&state.session) else { return Ok(()) };
        let (command, request) = (self.server.table.get(self.at.command), self.request.as_request());
        match rights::denied(&self.server, (self.client.id, user), Context::TopLevel, command, request) {
            Some(denied) => Err(no_permission(command.full_name, denied)),
            None => Ok(()),
        }
    }

    /// Nothing is behind the reply that is waited for but what was pushed, which does not wait.
    fn let_pushes_pass(&self) {
        self.client.state.borrow_mut().replies.let_pushes_pass();
        settle(&self.server, &self.client);
    }

    /// What takes the client's place in the queues of some keys, all on one shard.
    fn line_up(&self, indexes: Vec<usize>) -> impl FnOnce(&Shard, Now) + Send + 'static {
        let (blocking, request) = (self.blocking, self.request.clone());
        let at = At { touch: self.at.touch.uncounted(), ..self.at };
        let (client, claim, origin) = (self.client.id, self.blocked.claim.clone(), self.server.shard.id);
        move |shard, now| {
            let wish = Rc::new(Wish {
                client,
                claim,
                origin,
                at,
                attempt: blocking.attempt.0,
                kind: blocking.kind,
                is_enough: blocking.is_enough,
                ends_with_key: blocking.ends_with_key,
            });
            for index in indexes {
                let request = request.as_request();
                let narrow = |ctx: &mut command::Ctx| (blocking.narrow)(ctx, request, index);
                let (narrowed, _) = shard.step_of(At::unseen(at.command, at.db, at.proto), now, narrow);
                shard.wait_for(request.arg(index), &wish, narrowed);
            }
        }
    }

    fn line_up_here(&self, shard: &Shard) {
        for (_, indexes) in &self.keys {
            self.line_up(indexes.clone())(shard, shard.clock.now());
        }
    }

    /// Leaves all queues.
    fn leave(&self) {
        self.on_each_key(Shard::wait_no_more);
    }

    /// Does something for each key on its shard: its arguments are the database, the key and the claim.
    fn on_each_key(&self, work: fn(&Shard, usize, &[u8], &Arc<Claim>)) {
        let shard = &self.server.shard;
        for (target, indexes) in &self.keys {
            let (request, claim, db) = (self.request.clone(), self.blocked.claim.clone(), self.at.db);
            let indexes = indexes.clone();
            // Whom that lets go on is served when the shard is done with it, as after any command.
            let on_shard = move |shard: &Shard| {
                indexes.iter().for_each(|index| work(shard, db, request.as_request().arg(*index), &claim));
            };
            if *target == shard.id {
                on_shard(shard);
            } else {
                shard.tell(*target, move |shard| on_shard(shard));
            }
        }
        shard.after_commands();
    }
}

/// The indexes of keys, each key once, by its shard.
fn by_shard(shard: &Shard, request: Request, indexes: impl Iterator<Item = usize>) -> Vec<(usize, Vec<usize>)> {
    let mut keys: Vec<(usize, Vec<usize>)> = Vec::new();
    for index in without_repeats(request, indexes) {
        let target = command::shard_of(&shard.hasher, request.arg(index));
        match keys.iter_mut().find(|(other, _)| *other == target) {
            Some((_, of_shard)) => of_shard.push(index),
            None => keys.push((target, vec![index])),
        }
    }
    keys
}

/// This server follows another from now on, or does not any more: nobody waits for what is pushed here.
pub async fn unblock_all(server: &Rc<Server>) {
    let of_shard = |shard: Rc<Shard>| async move {
        let server = Server::of(&shard);
        for client in server.waits.clients() {
            unblock(&server, client, End::NewRole).await;
        }
    };
    server.shard.call_all_later(of_shard).await;
}

/// Ends a connection's wait; whether it waited. Where somebody is about to serve it, that decides.
pub async fn unblock(server: &Server, client: u64, end: End) -> bool {
    loop {
        let waits = server.client(client).is_some_and(|client| client.state.borrow().flow.blocked);
        let blocked = server.waits.of(client);
        let Some(blocked) = blocked.filter(|blocked| waits && blocked.end.get().is_none()) else { return false };
        if blocked.finish(end) {
            return true;
        }
        if blocked.claim.is_over() {
            return false;
        }
        sleep(CLAIM_RETRY).await;
    }
}
