//! EVAL, FCALL and their kin: a script, or a function, as one moment. What is said of scripts here is true of functions.
//!
//! | the script's keys | how it runs |
//! |---|---|
//! | all on one shard, and nobody has them | at once there, like one command; where it lasts it holds them and goes on as a task |
//! | anywhere else | a coordinator holds them, and runs it here |
//! | it leaves what it has declared | once more, while everything is held |
//!
//! A script that has left its keys holds everything from then on. What it had written by then is put back from copies that
//! were made before each key's first change; nobody has seen it, since its keys were held.
//!
//! Scripts that last have slices of time, one script of a shard after the other, and all else of the shard has its turn
//! between two slices. One that has run past `busy-reply-threshold`, has written nothing, and whose caller has hung up,
//! ends.

use super::callee::{self, Callee};
use super::caller::Caller;
use super::in_the_way::{self, Holder};
use super::lasting::{Again, Announced, Asker, Running};
use super::lease::Lease;
use super::rights;
use super::single;
use super::split::{self, Routes};
use super::task::{self, spawn};
use super::turn::{Progress, Turn};
use crate::acl::User;
use crate::clock::{Now, store_us};
use crate::command::leases::LOST;
use crate::command::{Ctx, OwnedRequest};
use crate::executor;
use crate::net::note_woken;
use crate::resp::{Error, Reply, Request, Result};
use crate::script::{Bounds, Call, Outcome, bytes_of};
use crate::server::client::{ClientRef, Source};
use crate::server::state::busy::busy_text;
use crate::server::state::global::Global;
use crate::server::state::scripting::make_room;
use crate::server::state::tidying::tidy;
use crate::server::state::{Calls, Command, Run, Server, TaskFuture};
use crate::server::told::monitor;
use crate::shard::{At, EVERYTHING, Later, Lock, Shard, Transaction};
use futures_lite::future::yield_now;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a command asks for.
struct What {
    asker: Asker,
    callee: Callee,
    /// How many arguments are keys, from the third on.
    keys: usize,
    /// What all arguments take in Lua.
    arguments_bytes: usize,
    at: At,
    routes: Routes,
    /// The user who has called it, as he was then, where he may not do everything.
    user: Option<Arc<User>>,
    /// The lease without which it does not begin.
    lease: Option<Lease>,
}

/// A script that is going to run as a task, perhaps more than once.
struct Job {
    server: Rc<Server>,
    client: ClientRef,
    what: What,
    request: Rc<OwnedRequest>,
    _under_way: UnderWay,
}

/// Counts a script that runs as a task.
struct UnderWay(Arc<Global>);

impl UnderWay {
    fn of(server: &Server) -> UnderWay {
        server.global.scripts_under_way.fetch_add(1, Ordering::AcqRel);
        UnderWay(server.global.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.scripts_under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What has become of a script that was begun at once.
enum Begun {
    /// It is done: its reply.
    Done(Vec<u8>),
    Lasts(TaskFuture),
    /// It has left its keys, and was undone: it has to begin again, with everything held.
    Left(TaskFuture),
}

pub fn run(turn: &mut Turn, calls: Calls, command: &Command, request: Request, lease: Option<Lease>) -> Progress {
    let server = turn.server;
    let shard = &server.shard;
    let asker = Asker { shard: shard.id, client: turn.client.id };
    // (GUARD is shown as such.)
    let shows = turn.session.gate.shows && lease.is_none();
    let show = |turn: &mut Turn| {
        // (One that was undone and has to wait for its turn was shown already.)
        let said = Some(turn.session.commands);
        if shows && std::mem::replace(&mut turn.session.shown, said) != said {
            monitor::show_call(turn.server, turn.session, request);
        }
    };
    let what = match What::of(server, asker, calls, turn.at(command, request), request) {
        Ok(what) => What { user: rights::restricted(turn.session).cloned(), lease, ..what },
        Err(error) => {
            show(turn);
            return turn.fail(command.id, error);
        }
    };
    // It may turn out to touch other keys than it declares: then it must not overtake what was sent before it, nor be
    // overtaken. Once it has stayed within them it is trusted to, and begins again with everything held if it does not; but not in
    // a log, where what stands behind it would not wait for that.
    let is_trusted = shard.count == 1 || what.callee.has_stayed() && turn.client.source != Source::Log;
    if !is_trusted && !turn.replies.is_idle() {
        return Progress::NotYet;
    }
    let target = if what.routes.is_empty() { Some(shard.id) } else { split::common_target(&what.routes) };
    match target {
        // The shard that has all keys runs it. (Those have its rights who know its user: this shard.)
        Some(target)
            if target != shard.id
                && is_trusted
                && !what.callee.strays()
                && what.user.is_none()
                && what.lease.is_none() =>
        {
            let progress = single::run(turn, not_on_data, target, what.at, request);
            if progress == Progress::Taken {
                show(turn);
            }
            progress
        }
        Some(target)
            if target == shard.id
                && what.lease.as_ref().is_none_or(|lease| lease.shard == target && !shard.is_locked(lease.lock()))
                && what.begins_at_once(server)
                && !shard.must_wait(&what.at, request, turn.client.id) =>
        {
            if !turn.may_start(false) || turn.strict_order_forbids(target) {
                return Progress::NotYet;
            }
            show(turn);
            begin(turn, what, request)
        }
        _ if !turn.replies.is_idle() => Progress::NotYet,
        _ => {
            show(turn);
            let job = Job::of(server, turn.client, what, request);
            let call = task::Call::new(server, command.id, Some(request));
            let muted = turn.take_muted();
            let strays = job.what.callee.strays();
            spawn(turn, Box::pin(async move { job.hold_and_run(strays.then_some(Again::Left)).await }), call, muted);
            Progress::Taken
        }
    }
}

/// What a part has for a handler whose command is no handler's: see [`At::is_script`].
fn not_on_data(_: &mut Ctx, _: Request) -> Result {
    Err(Error::text("ERR a script is no command on data"))
}

fn begin(turn: &mut Turn, what: What, request: Request) -> Progress {
    let (server, at) = (turn.server, what.at);
    let shard = &server.shard;
    if what.lease.as_ref().is_some_and(|lease| !lease.is_held(shard, shard.clock.now())) {
        return turn.fail(at.command, LOST);
    }
    let began_us = store_us();
    let begun = match what.begin(server, turn.client, request, shard.clock.now()) {
        Ok(begun) => begun,
        Err(error) => return turn.fail(at.command, error),
    };
    if matches!(begun, Begun::Left(_)) && !turn.replies.is_idle() {
        return Progress::NotYet;
    }
    let muted = turn.take_muted();
    match begun {
        Begun::Done(bytes) => {
            turn.reply(muted, |reply| reply.raw(&bytes));
            let now_us = store_us();
            shard.meter.lap(now_us);
            shard.meter.answered(at.command, &bytes);
            turn.ran(at.command, request, now_us.saturating_sub(began_us) * 1_000);
            shard.serve_waiters();
        }
        Begun::Lasts(future) | Begun::Left(future) => {
            let call = task::Call::new(server, at.command, Some(request));
            spawn(turn, future, call, muted);
        }
    }
    Progress::Taken
}

/// A script that a connection of another shard has called, whose keys are here and nobody has: it is done, and its reply
/// written, or it lasts.
pub fn begin_for_other(
    server: &Rc<Server>,
    request: Request,
    at: At,
    now: Now,
    out: &mut Vec<u8>,
    later: Later,
) -> bool {
    let Run::Script(calls) = server.table.get(at.command).run else { unreachable!("sent by `run`") };
    let client = server.nobody();
    let asker = Asker { shard: later.origin(), client: later.client() };
    let begun = What::of(server, asker, calls, at, request).and_then(|what| what.begin(server, &client, request, now));
    match begun {
        Ok(Begun::Done(bytes)) => out.extend_from_slice(&bytes),
        Ok(Begun::Lasts(future) | Begun::Left(future)) => {
            answer_later(server.shard.clone(), future, at, later);
            return false;
        }
        Err(error) => Reply::new(out, at.proto).error(error),
    }
    true
}

fn answer_later(shard: Rc<Shard>, future: TaskFuture, at: At, later: Later) {
    let began_us = store_us();
    note_woken();
    executor::spawn(async move {
        // A new task runs at once; this one must not before what runs now is over.
        yield_now().await;
        let reply = task::or_error(future.await, at.proto);
        shard.answer_script(at, later, &reply, store_us().saturating_sub(began_us) * 1_000);
    });
}

/// Runs a script within a transaction that holds everything it may touch.
pub async fn in_transaction(
    server: &Rc<Server>,
    client: &ClientRef,
    calls: Calls,
    at: At,
    request: OwnedRequest,
    transaction: Option<&Rc<Transaction>>,
) -> Result<Vec<u8>> {
    let asker = Asker { shard: server.shard.id, client: client.id };
    let mut what = What::of(server, asker, calls, at, request.as_request())?;
    what.user = rights::restricted(&client.state.borrow().session).cloned();
    what.callee.load(server).await?;
    let job = Job::with(server, client, what, request);
    let transaction = transaction.expect("scripts in a transaction hold keys").clone();
    match job.begin(transaction, Held::ByOthers, None).await {
        Ok(result) => result,
        Err(_) => unreachable!("it may touch everything, and does not begin again"),
    }
}

/// There is no shard but this one, and nobody holds anything.
fn is_alone(server: &Server) -> bool {
    server.shard.count == 1 && !server.shard.is_busy()
}

impl What {
    fn of(server: &Server, asker: Asker, calls: Calls, at: At, request: Request) -> Result<What> {
        let (callee, keys) = callee::find(server, calls, request)?;
        let routes = split::routes(&server.shard.hasher, server.shard.spec(at.command).keys, request);
        let write = !calls.read_only && !callee.never_writes();
        let arguments_bytes = bytes_of(request);
        Ok(What {
            asker,
            callee,
            keys,
            arguments_bytes,
            at: At { hash: split::first_hash(&routes), write, ..at },
            routes,
            user: None,
            lease: None,
        })
    }

    fn call(&self, server: &Server, request: Request) -> Result<Call> {
        let limit = server.shard.config().feasible_limits().reply_bytes;
        let (keys, args) = (request.from(3).take(self.keys), request.from(3 + self.keys));
        let bounds = Bounds {
            reply_bytes: limit,
            memory_bytes: server.shard.config().script_memory_bytes,
            instructions: server.shard.config().script_instructions,
        };
        Call::new(self.callee.called(server), keys, args, self.arguments_bytes, self.at.proto, bounds)
    }

    /// Who runs its commands, if there is memory for it.
    fn caller(&self, server: &Rc<Server>, now: Now) -> Result<Caller> {
        let caller = Caller::new(
            server,
            self.at,
            &self.routes,
            now,
            self.callee.allows_oom(),
            self.user.clone().map(|user| (self.asker.client, user)),
        );
        caller.may_begin(&self.callee)?;
        Ok(caller)
    }

    /// Whether it is begun before anything was held for it.
    fn begins_at_once(&self, server: &Server) -> bool {
        let is_tight = self.callee.machine(server).is_some_and(|machine| machine.is_tight_for(self.arguments_bytes));
        self.callee.is_loaded() && (is_alone(server) || !self.callee.strays()) && !is_tight
    }

    /// Begins at once. Where there is no shard but this one, and nobody holds anything, it may touch all.
    fn begin(self, server: &Rc<Server>, client: &ClientRef, request: Request, now: Now) -> Result<Begun> {
        let (shard, at) = (&server.shard, self.at);
        let is_alone = is_alone(server);
        let strays = self.callee.strays();
        if !self.begins_at_once(server) {
            let job = Job::of(server, client, self, request);
            return Ok(Begun::Lasts(Box::pin(async move { job.hold_and_run(strays.then_some(Again::Left)).await })));
        }
        let caller = self.caller(server, now)?;
        if !is_alone {
            caller.confine();
        }
        let began_us = store_us();
        let mut call = self.call(server, request)?;
        let (outcome, moment) = shard.moment(|| {
            let outcome = call.go_on(&caller, server.scripting.first_slice());
            if caller.has_left.get() {
                caller.put_back(at);
            }
            let lasts = !matches!(outcome, Outcome::Done(_));
            (outcome, lasts)
        });
        if caller.has_strayed.get() || caller.has_left.get() {
            self.callee.note_strays();
        }
        let moment = match (outcome, moment) {
            (Outcome::Done(bytes), _) => {
                if !caller.has_strayed.get() {
                    self.callee.note_stayed();
                }
                drop(call);
                tidy(server);
                return Ok(Begun::Done(bytes));
            }
            (outcome, moment) => moment.map(|moment| (outcome, moment)),
        };
        let (outcome, moment) = moment.expect("what is not done lasts");
        let mut job = Job::of(server, client, self, request);
        if caller.has_left.get() {
            drop(call);
            moment.forget();
            // (At once: whoever may not have it begin again yet drops the future.)
            job.what.callee.undo(server);
            return Ok(Begun::Left(Box::pin(job.hold_and_run(Some(Again::Left)))));
        }
        // From now on it holds what it has declared; where it has touched more than that already, everything.
        let locks: Vec<Lock> = if caller.has_strayed.get() {
            vec![Lock { hash: EVERYTHING, write: true }]
        } else {
            if is_alone {
                caller.confine();
            }
            let of_lease = job.what.lease.as_ref().map(Lease::lock);
            let of_keys = job.what.routes.iter().map(|&(hash, _)| Lock { hash, write: at.write });
            of_keys.chain(of_lease).collect()
        };
        let transaction = Rc::new(moment.hold(&locks, caller.now, caller.can_undo()));
        let running = job.running(call, caller, transaction, began_us, None);
        Ok(Begun::Lasts(Box::pin(async move {
            match running.drive(outcome).await {
                Ok(bytes) => Ok(bytes),
                Err(again) => job.begin_again(again).await,
            }
        })))
    }
}

impl Job {
    fn of(server: &Rc<Server>, client: &ClientRef, what: What, request: Request) -> Job {
        Job::with(server, client, what, OwnedRequest::of(request))
    }

    fn with(server: &Rc<Server>, client: &ClientRef, what: What, request: OwnedRequest) -> Job {
        let (server, client, request) = (server.clone(), client.clone(), Rc::new(request));
        Job { _under_way: UnderWay::of(&server), server, client, what, request }
    }

    fn running(
        &self,
        call: Call,
        caller: Caller,
        transaction: Rc<Transaction>,
        began_us: u64,
        announced: Option<Announced>,
    ) -> Running {
        let called_by = (&self.client, self.what.asker, self.what.at);
        let known_by = (self.what.callee.function_name(), &self.request);
        Running::new(called_by, known_by, call, caller, transaction, began_us, announced)
    }

    /// What it has done so far was undone.
    async fn begin_again(mut self, again: Again) -> Result<Vec<u8>> {
        self.what.callee.undo(&self.server);
        self.hold_and_run(Some(again)).await
    }

    /// Holds the script's keys, or everything, and runs it; `again` is why it was undone, or would be.
    async fn hold_and_run(mut self, mut again: Option<Again>) -> Result<Vec<u8>> {
        let shard = self.server.shard.clone();
        loop {
            self.what.callee.load(&self.server).await?;
            let everything = matches!(again, Some(Again::Left));
            let write = self.what.at.write;
            let of_lease = self.what.lease.iter().map(|lease| (lease.shard, lease.lock()));
            let of_keys = self.what.routes.iter().map(|&(hash, target)| (target, Lock { hash, write }));
            let declared = of_keys.chain(of_lease);
            if everything {
                in_the_way::let_pass(&self.server).await?;
                self.server.global.scripts_holding_everything.fetch_add(1, Ordering::Relaxed);
            }
            let announced = if let Some(Again::InTheWay(announced)) = again { Some(announced) } else { None };
            let own = announced.as_ref().map(|announced| &announced.script);
            let (command, request) = (self.what.at.command, self.request.clone());
            let holder = Holder { command, request: request.as_request(), replays: self.client.replays(), own };
            let transaction = match everything {
                true => shard.hold(shard.everything()).await,
                false => in_the_way::hold(&self.server, declared, holder).await?.may_be_undone(),
            };
            let held = if everything { Held::Everything } else { Held::Keys };
            match self.begin(Rc::new(transaction), held, announced).await {
                Ok(result) => return result,
                Err(why) => again = Some(why),
            }
            self.what.callee.undo(&self.server);
        }
    }

    /// Runs the script from its beginning in a transaction that holds its keys, or everything.
    async fn begin(
        &self,
        transaction: Rc<Transaction>,
        held: Held,
        announced: Option<Announced>,
    ) -> std::result::Result<Result<Vec<u8>>, Again> {
        if let Some(lease) = &self.what.lease
            && let Err(error) = lease.check_in(&transaction).await
        {
            return Ok(Err(error));
        }
        if let Some(machine) = self.what.callee.machine(&self.server) {
            // Others wait for this one's keys meanwhile.
            if !make_room(&machine, self.what.arguments_bytes, in_the_way::threshold_us(&self.server)).await {
                return Ok(Err(Error::text(busy_text(false))));
            }
        }
        let caller = match self.what.caller(&self.server, transaction.now) {
            Ok(caller) => caller,
            Err(error) => return Ok(Err(error)),
        };
        if held == Held::Keys {
            caller.confine();
        }
        let call = match self.what.call(&self.server, self.request.as_request()) {
            Ok(call) => call,
            Err(error) => return Ok(Err(error)),
        };
        if transaction.is_here() {
            // Until it is this transaction's turn here.
            transaction.on(self.server.shard.id, |_, _| ()).await;
        }
        let mut running = self.running(call, caller, transaction, store_us(), announced);
        running.may_begin_again = held == Held::Keys;
        let outcome = running.slice();
        let result = running.drive(outcome).await;
        match &result {
            Err(Again::Left) => self.what.callee.note_strays(),
            Ok(_) if held == Held::Keys => self.what.callee.note_stayed(),
            Ok(_) | Err(Again::InTheWay(_)) => {}
        }
        result.map(Ok)
    }
}

/// What is held for a script that runs from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Keys,
    Everything,
    /// It is a part of somebody's transaction, which holds what it needs.
    ByOthers,
}
