//! A script that has begun, holds keys and goes on in slices, to its end or until it is undone.

use super::caller::{Caller, Planned};
use super::in_the_way;
use super::split::Route;
use super::steps::Step;
use super::task;
use crate::clock::{Now, store_us};
use crate::command::OwnedRequest;
use crate::keyspace::Key;
use crate::net::{sleep, step_back_in_turn};
use crate::resp::{Request, Result};
use crate::script::{Answer, Asked, Call, Host, Outcome};
use crate::server::client::ClientRef;
use crate::server::state::busy::LastingScript;
use crate::server::state::global::Global;
use crate::server::state::scripting::{Running as Known, SLICE};
use crate::server::state::tidying::tidy;
use crate::server::state::{Run, Server, TaskCtx};
use crate::shard::{At, HELD_FOR, Shard, Transaction};
use smallvec::SmallVec;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// Who has called a script: a connection, and its shard.
#[derive(Clone, Copy)]
pub struct Asker {
    pub shard: usize,
    pub client: u64,
}

/// A script that has begun, and holds keys.
pub struct Running {
    // (Nobody finds it any more when it lets go of what it holds.)
    _registered: Registered,
    call: Call,
    caller: Caller,
    transaction: Rc<Transaction>,
    client: ClientRef,
    asker: Asker,
    at: At,
    known: Rc<Known>,
    announced: Announced,
    /// It may begin again, if what it has done can be undone.
    pub may_begin_again: bool,
    /// When it has run for long, and when somebody looks next who waits for it, store microseconds.
    busy_us: u64,
    look_us: u64,
    /// What the last look has seen, see [`Transaction::keeps_others_waiting`].
    seen: Vec<u64>,
}

/// How often somebody looks who has begun to wait since.
const LOOK_EVERY_US: u64 = 50_000;

/// Why a script ends that somebody has killed.
const KILLED: &[u8] = b"Script killed by user with SCRIPT KILL...";

/// Why a script, which was undone, is to begin again.
pub enum Again {
    /// It has asked for keys that it may not touch: with everything held.
    Left,
    /// Others waited for its keys who could not know of it: behind them. All who come later know of it, and wait elsewhere.
    InTheWay(Announced),
}

/// A script that others know of as one that lasts.
pub struct Announced {
    global: Arc<Global>,
    pub script: Arc<LastingScript>,
}

impl Announced {
    fn new(server: &Server, script: Arc<LastingScript>) -> Announced {
        server.global.lasting_scripts.add(script.clone());
        server.global.feed.script_lasts();
        Announced { global: server.global.clone(), script }
    }

    /// It holds something else.
    fn change(&mut self, script: Arc<LastingScript>) {
        if self.script.is_busy() {
            script.set_busy();
        }
        self.global.lasting_scripts.add(script.clone());
        self.global.lasting_scripts.remove(&std::mem::replace(&mut self.script, script));
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.global.feed.script_is_over();
        self.global.lasting_scripts.remove(&self.script);
    }
}

/// What others see of a script that lasts.
fn lasting(known: &Known, caller: &Caller) -> Arc<LastingScript> {
    let scope = caller.server.shard.config().busy_script_scope;
    Arc::new(LastingScript::new(known.function.is_some(), scope, caller.locks()))
}

/// A script that SCRIPT KILL finds, until this is dropped.
struct Registered {
    server: Rc<Server>,
    known: Rc<Known>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.server.scripting.remove(&self.known);
        tidy(&self.server);
    }
}

impl Running {
    /// `announced`: others know of it already, since it begins again.
    pub fn new(
        (client, asker, at): (&ClientRef, Asker, At),
        (function, request): (Option<&[u8]>, &Rc<OwnedRequest>),
        call: Call,
        caller: Caller,
        transaction: Rc<Transaction>,
        began_us: u64,
        announced: Option<Announced>,
    ) -> Running {
        let known = Rc::new(Known {
            began_us,
            function: function.map(Box::from),
            request: request.clone(),
            has_written: Cell::new(caller.has_written.get()),
            is_killed: Cell::new(false),
        });
        let server = &caller.server;
        server.scripting.add(known.clone());
        let registered = Registered { server: server.clone(), known: known.clone() };
        let announced = announced.unwrap_or_else(|| Announced::new(server, lasting(&known, &caller)));
        let threshold_us = in_the_way::threshold_us(server);
        Running {
            _registered: registered,
            call,
            caller,
            transaction,
            client: client.clone(),
            asker,
            at,
            known,
            announced,
            may_begin_again: true,
            busy_us: began_us.saturating_add(threshold_us),
            look_us: began_us.saturating_add(threshold_us.min(LOOK_EVERY_US)),
            seen: Vec::new(),
        }
    }

    /// Looks who waits for it; whether it is to begin again behind them. When it has run for long, whoever needs what it holds
    /// is told so, those too who have begun to wait.
    async fn look_around(&mut self) -> bool {
        self.look_us = store_us().saturating_add(LOOK_EVERY_US);
        if self.may_begin_again
            && self.caller.can_begin_again()
            && self.transaction.keeps_others_waiting(&mut self.seen).await
        {
            return true;
        }
        if store_us() < self.busy_us {
            return false;
        }
        self.announced.script.set_busy();
        self.transaction.refuse_waiting(self.announced.script.text()).await;
        if !self.known.has_written.get() && self.is_deserted().await {
            self.known.is_killed.set(true);
        }
        false
    }

    /// Whether nobody waits for its reply any more.
    async fn is_deserted(&self) -> bool {
        let Asker { shard, client } = self.asker;
        let is_gone = move |shard: &Rc<Shard>| {
            let asker = Server::of(shard).client(client);
            asker.is_none_or(|asker| asker.closed.get() || asker.state.borrow().flow.finished)
        };
        self.caller.server.shard.call(shard, is_gone).await
    }

    pub fn slice(&mut self) -> Outcome {
        if self.known.is_killed.get() {
            self.call.kill(KILLED);
        }
        let outcome = self.go_on();
        self.known.has_written.set(self.caller.has_written.get());
        outcome
    }

    fn go_on(&mut self) -> Outcome {
        let Running { call, caller, transaction, .. } = self;
        if transaction.is_here() {
            transaction.here(|_, _| call.go_on(&*caller, SLICE))
        } else {
            call.go_on(&*caller, SLICE)
        }
    }

    /// Goes on to the end, or until the script has left what it may touch: then it has changed nothing.
    pub async fn drive(mut self, mut outcome: Outcome) -> std::result::Result<Vec<u8>, Again> {
        let mut until_us = 0;
        loop {
            match outcome {
                Outcome::Done(bytes) => return Ok(bytes),
                Outcome::Unfinished => until_us = 0,
                Outcome::Asks(asked) if self.caller.has_left.take() => {
                    if self.caller.can_undo() {
                        self.put_back().await;
                        return Err(Again::Left);
                    }
                    if !self.widen(&asked) {
                        self.take_everything().await;
                    }
                    let answer = self.transaction.here(|_, _| {
                        let mut out = Vec::new();
                        let answer = self.caller.run(asked.request(), asked.proto, &mut out);
                        (answer, out)
                    });
                    match answer {
                        (Answer::Written, out) => self.call.answer(out),
                        (Answer::Refused(error), _) => self.call.answer(task::or_error(Err(error), asked.proto)),
                        (Answer::Later, _) => {
                            let result = self.run_elsewhere(&asked).await;
                            self.call.answer(task::or_error(result, asked.proto));
                        }
                    }
                }
                Outcome::Asks(asked) => {
                    let result = self.run_elsewhere(&asked).await;
                    if self.caller.has_left.take() {
                        // It was about to change what is too large to be copied.
                        self.put_back().await;
                        return Err(Again::Left);
                    }
                    self.call.answer(task::or_error(result, asked.proto));
                }
            }
            if store_us() >= self.look_us && self.look_around().await {
                self.put_back().await;
                return Err(Again::InTheWay(self.announced));
            }
            // (A script that asks others for something again and again has slices that are short.)
            if store_us() >= until_us {
                step_back_in_turn().await;
                until_us = store_us().saturating_add(SLICE.as_micros() as u64);
            }
            outcome = self.slice();
        }
    }

    /// A script on the only shard has written before anybody took down what was there: it cannot begin again. Where nobody
    /// else wants the keys that it asks for, it gets them.
    fn widen(&mut self, asked: &Asked) -> bool {
        let has_them = self.caller.widen(asked.request(), |locks| self.transaction.widen(locks));
        if has_them {
            self.tell_what_is_held();
        }
        has_them
    }

    /// The same where others want them, or where it asks for everything: no other hold of this shard, the only one, begins
    /// until those that have begun are over, and then it has everything. There is one such script at a time, since nobody
    /// held anything when it began.
    async fn take_everything(&mut self) {
        while !self.transaction.take_everything() {
            if store_us() >= self.look_us {
                self.look_around().await;
            }
            sleep(HELD_FOR).await;
        }
        self.caller.unconfine();
        self.tell_what_is_held();
    }

    fn tell_what_is_held(&mut self) {
        self.announced.change(lasting(&self.known, &self.caller));
    }

    /// Runs a command that could not run at once.
    async fn run_elsewhere(&self, asked: &Asked) -> Result<Vec<u8>> {
        let server = &self.caller.server;
        let Planned { command, run, at, routes } = self.caller.plan(asked.request(), asked.proto)?;
        self.known.has_written.set(self.caller.has_written.get());
        let (call, ns) = task::Call::in_steps(server, command, None);
        let request = OwnedRequest::of(asked.request());
        let result = match run {
            Run::Task(task) => {
                let (server, client, db, proto) = (server.clone(), self.client.clone(), at.db, asked.proto);
                let transaction = Some(self.transaction.clone());
                task(TaskCtx { server, client, command, request, db, proto, in_exec: true, transaction }).await
            }
            Run::Data(run) => {
                if at.write && self.caller.can_undo() && !self.save(at, &routes, asked.request()).await {
                    return Ok(Vec::new());
                }
                let mut out = Vec::new();
                let first: SmallVec<[Route; 2]> = routes.iter().copied().take(2).collect();
                let step = Step { shard: &server.shard, at, request, routes, transaction: Some(&self.transaction) };
                let result = step.run(run, &mut out, ns).await;
                self.caller.note_lease(server.table.get(command), at.db, &first, &out);
                result.map(|()| out)
            }
            _ => unreachable!("such commands run at once, or not at all"),
        };
        if let Err(error) = &result {
            server.shard.meter.failed(command, &error.to_bytes());
        }
        call.end(server, &self.client, result.as_deref().unwrap_or_default());
        result
    }

    /// Takes down keys before they are changed for the first time; whether that can be done.
    async fn save(&self, at: At, routes: &[Route], request: Request<'_>) -> bool {
        let command = self.caller.server.table.get(at.command);
        for db in self.caller.databases(at, command, request).into_iter().flatten() {
            let at = At { db, ..at };
            for (index, &(hash, target)) in command.spec.keys.indexes(request).zip(routes) {
                if self.caller.is_new(db, hash) {
                    let key: Box<[u8]> = request.arg(index).into();
                    let save = move |shard: &Shard, now: Now| {
                        shard.step_of(at, now, |ctx| ctx.save(Key { bytes: &key, hash })).0
                    };
                    if !self.caller.keep_saved(target, self.transaction.on(target, save).await) {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Makes all keys what they were.
    async fn put_back(&self) {
        let at = self.at;
        let (saved, leased) = self.caller.take_before();
        for (target, saved) in saved {
            let put_back = move |shard: &Shard, now: Now| {
                shard.step_of(at, now, |ctx| ctx.put_back(saved));
            };
            self.transaction.on(target, put_back).await;
        }
        for leased in leased {
            self.transaction.on(leased.shard, move |shard: &Shard, _| leased.end(shard)).await;
        }
        for target in self.transaction.shards.clone() {
            self.transaction.forget(target).await;
        }
    }
}
