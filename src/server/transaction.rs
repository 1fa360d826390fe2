//! MULTI, EXEC, DISCARD, WATCH: a connection's commands in one moment.
//!
//! | the commands' keys and those watched | how EXEC runs |
//! |---|---|
//! | all here | at once, like one command |
//! | anywhere, and each shard can do its part alone | one transaction, a message to each shard |
//! | else (RENAME between shards, keys watched elsewhere, CONFIG SET) | a coordinator holds all keys and goes from command to command |
//!
//! A watched key is known to its shard, with the number of its last change. EXEC compares that number under the locks of
//! its transaction.

use super::client::Session;
use super::dispatch::{Call, Dispatch, Paused, Step, Turn, at, run_in_session, write_help};
use super::replies::{ExecGather, Gather};
use super::rows::debug_is_allowed;
use super::several::across_of;
use super::split::{self, Parts, Routes, Sent, Steps, common_target, routes};
use super::{Command, Run, Server, TaskCtx};
use crate::clock::{Now, store_us};
use crate::command::spec::Keys;
use crate::command::{self, Across, CommandId, Ctx, OwnedRequest, walk};
use crate::keyspace::{Lookup, Touch, Watch};
use crate::resp::{Error, Proto, Reply, Request, Result, Span};
use crate::server::client::ClientRef;
use crate::shard::{At, EVERYTHING, Lock, Shard, ShardHop, Transaction};
use crate::value::number::{parse_i64, parse_u64};
use ahash::RandomState;
use hashbrown::HashTable;
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Multi,
    Exec,
    Discard,
}

/// Commands between MULTI and EXEC.
#[derive(Default)]
pub struct Multi {
    /// The arguments of all commands.
    args: OwnedRequest,
    commands: Vec<Queued>,
    /// A command was refused: EXEC will be, too.
    pub broken: bool,
    writes: bool,
}

#[derive(Clone, Copy)]
struct Queued {
    command: CommandId,
    /// Its first argument, and the end.
    args: (usize, usize),
}

impl Multi {
    pub fn bytes(&self) -> usize {
        self.args.bytes() + self.args.arg_count() * size_of::<Span>() + size_of_val(&self.commands[..])
    }

    pub fn len(&self) -> usize {
        self.commands.len()
    }

    fn push(&mut self, command: &Command, request: Request) {
        let start = self.args.arg_count();
        request.from(0).for_each(|arg| self.args.push(arg));
        self.writes |= command.spec.has(command::spec::flag::WRITE) || command.spec.name == "publish";
        self.commands.push(Queued { command: command.id, args: (start, self.args.arg_count()) });
    }

    fn request(&self, queued: Queued) -> Request<'_> {
        self.args.part(queued.args.0..queued.args.1)
    }
}

/// How a queued command runs: one that waits does not; one whose last key lacks its value answers an error then.
fn run_of(command: &Command, request: Request) -> Run {
    let is_complete = command.spec.keys.are_complete(request);
    match command.run {
        _ if !is_complete => Run::Data(command::Run::Key(wrong_arity)),
        // Nobody waits within a transaction.
        Run::Data(command::Run::Blocking(blocking)) => {
            Run::Data(command::Run::Atomic(blocking.once.0, blocking.once.1))
        }
        // A coordinator without keys of its own locks everything.
        Run::Data(command::Run::Atomic(_, across)) if command.spec.keys.name_others(request) => {
            Run::Data(command::Run::Coordinated(across))
        }
        run => run,
    }
}

fn wrong_arity(_: &mut Ctx, request: Request) -> Result {
    // It is a command of the table.
    Err(Error::WrongArity(String::from_utf8_lossy(request.arg(0)).to_lowercase()))
}

/// A key under WATCH.
pub struct WatchedKey {
    pub db: usize,
    pub key: Box<[u8]>,
    pub shard: usize,
    pub watch: Watch,
}

impl WatchedKey {
    fn seen(&self) -> (usize, &[u8], Watch) {
        (self.db, &self.key, self.watch)
    }
}

/// The keys under WATCH of a connection, each once.
#[derive(Default)]
pub struct WatchedKeys {
    keys: Vec<WatchedKey>,
    /// Where they are in `keys`.
    places: HashTable<usize>,
    hasher: RandomState,
}

impl WatchedKeys {
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = &WatchedKey> {
        self.keys.iter()
    }

    fn contains(&self, db: usize, key: &[u8]) -> bool {
        let same = |place: &usize| matches!(&self.keys[*place], of if of.db == db && *of.key == *key);
        self.places.find(self.hasher.hash_one((db, key)), same).is_some()
    }

    /// One more, which is not there.
    fn add(&mut self, key: WatchedKey) {
        let WatchedKeys { keys, places, hasher } = self;
        let hash = |of: &WatchedKey| hasher.hash_one((of.db, &*of.key));
        places.insert_unique(hash(&key), keys.len(), |place| hash(&keys[*place]));
        keys.push(key);
    }

    /// All of them; none is left.
    pub fn take(&mut self) -> Vec<WatchedKey> {
        std::mem::take(self).keys
    }
}

fn by_shard(watched: Vec<WatchedKey>) -> BTreeMap<usize, Vec<WatchedKey>> {
    let mut of_shard: BTreeMap<usize, Vec<WatchedKey>> = BTreeMap::new();
    for key in watched {
        of_shard.entry(key.shard).or_default().push(key);
    }
    of_shard
}

/// Forgets watched keys, here and on other shards.
pub fn unwatch(shard: &Rc<Shard>, watched: Vec<WatchedKey>) {
    for (target, keys) in by_shard(watched) {
        let forget = move |shard: &Rc<Shard>| {
            let mut keyspace = shard.keyspace.borrow_mut();
            keys.iter().for_each(|of| keyspace.unwatch(of.db, &of.key));
        };
        if target == shard.id {
            forget(shard);
        } else {
            shard.tell(target, forget);
        }
    }
}

/// WATCH. What changes from now on makes EXEC fail.
pub async fn watch(ctx: TaskCtx) -> Result<Vec<u8>> {
    if ctx.client.state.borrow().session.multi.is_some() {
        return Err(Error::text("ERR WATCH inside MULTI is not allowed"));
    }
    let shard = &ctx.server.shard;
    let keys = ctx.request.as_request();
    let route =
        |key: &[u8]| (command::shard_of(&shard.hasher, key), Lock { hash: shard.hasher.hash(key), write: false });
    // What a transaction is about to change counts as changed before, so it is waited for.
    let now = shard.catch_up();
    let here = |key| matches!(route(key), (target, lock) if target == shard.id && !shard.is_locked(lock));
    let transaction = match keys.from(1).all(here) {
        true => None,
        false => Some(shard.hold(keys.from(1).map(route)).await),
    };
    let mut of_shard: BTreeMap<usize, Vec<Box<[u8]>>> = BTreeMap::new();
    let mut named = HashSet::with_hasher(RandomState::new());
    for key in keys.from(1) {
        let is_known = ctx.client.state.borrow().session.watched.contains(ctx.db, key);
        if !is_known && named.insert(key) {
            of_shard.entry(route(key).0).or_default().push(key.into());
        }
    }
    let db = ctx.db;
    for (target, keys) in of_shard {
        let look = move |shard: &Shard, now: Now| {
            let mut keyspace = shard.keyspace.borrow_mut();
            let watch = |key: Box<[u8]>| WatchedKey { db, watch: keyspace.watch(db, &key, now), key, shard: shard.id };
            keys.into_iter().map(watch).collect::<Vec<WatchedKey>>()
        };
        let found = match &transaction {
            Some(transaction) => transaction.on(target, look).await,
            None => look(shard, now),
        };
        if ctx.client.closed.get() {
            // Nobody else would forget them.
            unwatch(shard, found);
        } else {
            let watched = &mut ctx.client.state.borrow_mut().session.watched;
            found.into_iter().for_each(|key| watched.add(key));
        }
    }
    shard.after_commands();
    Ok(ctx.reply(|reply| reply.ok()))
}

const CHANGED: Error = Error::text("ABORT a watched key has changed");

/// The guard of a transaction, on the shard of the watched keys: they are as they were, and are forgotten. Its
/// arguments are four for each key: database, key, the number of its last change, and 0 where it was not there, else one
/// more than the fields it had.
fn check_watched(ctx: &mut Ctx, request: Request) -> Result {
    let number = |index| parse_u64(request.arg(index)).expect("written by ourselves");
    let watched = (0..request.len()).step_by(4).map(|index| {
        let watch = Watch { version: number(index + 2), fields: number(index + 3).checked_sub(1) };
        (number(index) as usize, request.arg(index + 1), watch)
    });
    if ctx.keyspace.end_watches(watched, ctx.now) { Ok(()) } else { Err(CHANGED) }
}

fn watched_args(watched: &[WatchedKey]) -> OwnedRequest {
    let mut args = OwnedRequest::default();
    for WatchedKey { db, key, watch, .. } in watched {
        args.push(db.to_string().as_bytes());
        args.push(key);
        args.push(watch.version.to_string().as_bytes());
        args.push(watch.fields.map_or(0, |fields| fields + 1).to_string().as_bytes());
    }
    args
}

impl Dispatch<'_> {
    /// Queues a command where the connection is between MULTI and EXEC; whether it did.
    pub(super) fn queue(&self, turn: &mut Turn, command: &Command, request: Request) -> Result<bool> {
        let session = &mut *turn.session;
        let local = session.local;
        let Some(multi) = &mut session.multi else { return Ok(false) };
        let at_once = ["watch", "quit", "reset"].contains(&command.full_name);
        if at_once || matches!(command.run, Run::Multi(_)) {
            return Ok(false);
        }
        let config = self.server.shard.config();
        if command.spec.name == "debug" {
            debug_is_allowed(&config, local)?;
        }
        let limit = config.client_query_buffer_limit_bytes;
        if multi.bytes() + request.from(0).map(<[u8]>::len).sum::<usize>() > limit {
            // As a client whose unfinished request is too long.
            turn.flow.close = super::client::Close::Now;
            return Ok(true);
        }
        if !multi.broken {
            multi.push(command, request);
        }
        Ok(true)
    }

    pub(super) fn transaction(&self, verb: Verb, command: CommandId, turn: &mut Turn) -> Step {
        let result = match verb {
            Verb::Multi if turn.session.multi.is_some() => Err(Error::text("ERR MULTI calls can not be nested")),
            Verb::Multi => {
                turn.session.multi = Some(Box::default());
                Ok(())
            }
            Verb::Discard if turn.session.multi.is_none() => Err(Error::text("ERR DISCARD without MULTI")),
            Verb::Discard => {
                self.end_multi(turn.session);
                Ok(())
            }
            Verb::Exec => return self.exec(turn),
        };
        let meter = &self.server.shard.meter;
        meter.note(command);
        if let Err(error) = &result {
            meter.failed(command, &error.to_bytes());
        }
        let muted = turn.take_muted();
        turn.reply(muted, |reply| match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        });
        Step::Taken
    }

    fn end_multi(&self, session: &mut Session) {
        session.multi = None;
        unwatch(&self.server.shard, session.watched.take());
    }

    /// EXEC itself was refused: nothing is left of the transaction.
    pub(super) fn abort(&self, session: &mut Session, because: &Error) -> Error {
        self.end_multi(session);
        let because = because.to_bytes();
        let because = because.strip_prefix(b"ERR ").unwrap_or(&because);
        Error::quoting(&[b"EXECABORT Transaction discarded because of: ", because])
    }

    fn exec(&self, turn: &mut Turn) -> Step {
        let multi = match turn.session.multi.take() {
            Some(multi) if !multi.broken => multi,
            refused => {
                let error = match refused {
                    None => Error::text("ERR EXEC without MULTI"),
                    Some(_) => {
                        self.end_multi(turn.session);
                        Error::text("EXECABORT Transaction discarded because of previous errors.")
                    }
                };
                let meter = &self.server.shard.meter;
                meter.note(self.server.exec);
                meter.failed(self.server.exec, &error.to_bytes());
                let muted = turn.take_muted();
                turn.reply(muted, |reply| reply.error(error));
                return Step::Taken;
            }
        };
        let step = self.exec_queued(&multi, turn);
        match step {
            Step::NotYet => turn.session.multi = Some(multi),
            Step::Taken => unwatch(&self.server.shard, turn.session.watched.take()),
        }
        step
    }

    fn exec_queued(&self, multi: &Multi, turn: &mut Turn) -> Step {
        if self.paused == Paused::Writes && multi.writes {
            return self.pause(turn);
        }
        let plan = Plan::of(self.server, multi, turn.session);
        let shard = &self.server.shard;
        match plan.form {
            Form::OneShard(target) if target == shard.id && !self.is_locked(multi, &plan, turn.session) => {
                if !turn.replies.is_idle() {
                    return Step::NotYet;
                }
                self.exec_here(multi, &plan, turn);
            }
            Form::OneShard(_) | Form::Parts if !plan.has_session_commands => {
                if !turn.may_start(true) {
                    return Step::NotYet;
                }
                if shard.is_congested() {
                    return self.wait_for_room();
                }
                self.exec_in_parts(multi, &plan, turn);
            }
            _ => {
                if !turn.replies.is_idle() {
                    return Step::NotYet;
                }
                let watched = turn.session.watched.take();
                let muted = turn.take_muted();
                turn.replies.hold_pushes();
                let call = Call::new(self.server, self.server.exec, None);
                let steps = ExecSteps {
                    server: self.server.clone(),
                    client: self.client.clone(),
                    locks: plan.locks(shard.count),
                    commands: plan.into_steps(multi),
                    watched,
                };
                self.spawn(Box::pin(steps.run()), call, turn, muted);
            }
        }
        Step::Taken
    }

    /// Whether a transaction on this shard has to wait for another.
    fn is_locked(&self, multi: &Multi, plan: &Plan, session: &Session) -> bool {
        let shard = &self.server.shard;
        let mut watched = session.watched.iter();
        watched.any(|of| shard.is_locked(Lock { hash: shard.hasher.hash(&of.key), write: false }))
            || plan.commands.iter().any(|planned| {
                let everywhere = matches!(planned.command.run, Run::Data(command::Run::Everywhere(..)));
                everywhere && shard.is_busy() || {
                    let at = at(planned.command, session);
                    shard.must_wait(&at, multi.request(planned.queued), self.client.id)
                }
            })
    }

    /// Everything is on this shard, and nothing is locked.
    fn exec_here(&self, multi: &Multi, plan: &Plan, turn: &mut Turn) {
        let shard = &self.server.shard;
        let muted = turn.take_muted();
        let start = turn.replies.out.len();
        let watched = turn.session.watched.take();
        let now = shard.clock.now();
        let same = shard.keyspace.borrow_mut().end_watches(watched.iter().map(WatchedKey::seen), now);
        let began_us = shard.meter.lapped_us();
        if same {
            let proto = turn.session.proto;
            Reply::new(&mut turn.replies.out, proto).array(plan.commands.len());
            let routed = plan
                .commands
                .iter()
                .flat_map(|planned| planned.routes.iter().map(|(hash, _)| Lookup::key(planned.db, *hash)));
            let routed: smallvec::SmallVec<[Lookup; 16]> = routed.collect();
            for some in routed.chunks(crate::keyspace::PREFETCHED) {
                shard.keyspace.borrow().prefetch(some.iter().copied());
            }
            plan.commands.iter().for_each(|planned| self.exec_one_here(planned, multi.request(planned.queued), turn));
        } else {
            let proto = turn.session.proto;
            Reply::new(&mut turn.replies.out, proto).nil_array();
        }
        let now_us = store_us();
        shard.meter.lap(now_us);
        shard.meter.ran(self.server.exec, now_us.saturating_sub(began_us) * 1_000);
        shard.serve_waiters();
        if muted {
            turn.replies.out.truncate(start);
        }
        if turn.session.close != super::client::Close::No {
            turn.flow.close = turn.session.close;
        }
    }

    fn exec_one_here(&self, planned: &Planned, request: Request, turn: &mut Turn) {
        let shard = &self.server.shard;
        let hash = planned.routes.first().map_or(0, |(hash, _)| *hash);
        let at = At { hash, db: planned.db, ..at(planned.command, turn.session) };
        let (meter, is_quick) = (&shard.meter, shard.is_quick(at));
        if !is_quick {
            meter.begin();
        }
        let out = &mut turn.replies.out;
        let start = out.len();
        match planned.run {
            Run::Data(
                command::Run::Key(handler) | command::Run::Cursor(handler, _) | command::Run::Atomic(handler, _),
            ) => {
                shard.execute(handler, request, at, shard.clock.now(), out, &mut Vec::new());
            }
            Run::Data(command::Run::Spread(handler, merge) | command::Run::Everywhere(handler, merge)) => {
                self.run_whole((handler, merge), at, request, &planned.routes, out);
            }
            Run::Session(handler) => run_in_session(self.server, handler, turn.session, request, out),
            Run::Container | Run::Data(command::Run::Container) => {
                write_help(planned.command, &mut Reply::new(out, at.proto), request);
            }
            Run::Data(command::Run::Coordinated(_) | command::Run::Blocking(_)) | Run::Task(_) | Run::Multi(_) => {
                unreachable!("such commands need a coordinator")
            }
        }
        meter.answered(at.command, &turn.replies.out[start..]);
        if is_quick {
            meter.note(at.command);
        } else {
            self.ran(turn.session, at.command, request, meter.end());
        }
    }

    /// Each shard runs its part of every command.
    fn exec_in_parts(&self, multi: &Multi, plan: &Plan, turn: &mut Turn) {
        let shard = &self.server.shard;
        let muted = turn.take_muted();
        let watched = turn.session.watched.take();
        let proto = turn.session.proto;
        let mut gather = ExecGather {
            proto,
            muted,
            weight: 0,
            commands: Vec::new(),
            parts: Vec::new(),
            missing: 0,
            aborted: false,
            command: self.server.exec,
            ns: 0,
        };
        let sequence = turn.replies.next_sequence();
        {
            let transaction = shard.transaction();
            let mut parts = Sent { transaction, client: self.client.id, sequence, count: 0 };
            if let Form::OneShard(target) = plan.form
                && !watched.is_empty()
            {
                let at = At {
                    db: 0,
                    proto,
                    touch: Touch::NOTHING,
                    hash: 0,
                    command: self.server.exec,
                    write: false,
                    is_quick: true,
                };
                parts.part(target, check_watched, at);
                watched_args(&watched).as_request().from(0).for_each(|arg| parts.arg(target, arg));
                parts.transaction.guard(target);
                for WatchedKey { key, .. } in &watched {
                    parts.lock(target, Lock { hash: shard.hasher.hash(key), write: false });
                }
                gather.parts.push(None);
            }
            for planned in &plan.commands {
                let at = At { db: planned.db, ..at(planned.command, turn.session) };
                let first = parts.count;
                let (request, keys) = (multi.request(planned.queued), planned.command.spec.keys);
                let of_command =
                    split_command(planned.run, &planned.routes, &mut parts, at, (request, keys), shard.count);
                let command = gather.commands.len() as u32;
                gather.parts.extend((0..parts.count - first).map(|part| Some((command, part))));
                gather.commands.push(of_command);
            }
        }
        gather.missing = gather.parts.len();
        turn.replies.expect_exec(gather, multi.bytes());
    }
}

/// How the commands of a transaction are brought together.
enum Form {
    OneShard(usize),
    Parts,
    Steps,
}

struct Plan<'t> {
    form: Form,
    commands: Vec<Planned<'t>>,
    has_session_commands: bool,
}

struct Planned<'t> {
    command: &'t Command,
    run: Run,
    queued: Queued,
    /// SELECT may stand before it.
    db: usize,
    routes: Routes,
}

impl<'t> Plan<'t> {
    fn of(server: &'t Server, multi: &Multi, session: &Session) -> Plan<'t> {
        let shard = &server.shard;
        let mut plan = Plan { form: Form::Parts, commands: Vec::new(), has_session_commands: false };
        let mut db = session.db;
        let mut needs_steps = false;
        // The shards of all keys; where there are none anything can run here.
        let mut targets = Targets::default();
        session.watched.iter().for_each(|watched| targets.add(watched.shard));
        for queued in &multi.commands {
            let command = server.table.get(queued.command);
            let request = multi.request(*queued);
            let run = run_of(command, request);
            let mut planned = Planned { command, run, queued: *queued, db, routes: Routes::new() };
            match run {
                Run::Data(command::Run::Cursor(..)) => {
                    planned.routes = [(0, walk::cursor_shard(request, shard.count))].into_iter().collect();
                }
                Run::Data(command::Run::Everywhere(..)) => {
                    (0..shard.count).for_each(|target| targets.add(target));
                }
                Run::Data(command::Run::Container) => plan.has_session_commands = true,
                Run::Data(command::Run::Coordinated(_)) if command.spec.keys.name_others(request) => needs_steps = true,
                Run::Data(_) if !command.spec.keys.are_complete(request) => {}
                Run::Data(run) => {
                    planned.routes = routes(&shard.hasher, command.spec.keys, request);
                    needs_steps |= match run {
                        command::Run::Atomic(..) => are_apart(&planned.routes),
                        command::Run::Coordinated(_) => true,
                        _ => false,
                    };
                }
                Run::Task(_) | Run::Multi(_) => needs_steps = true,
                Run::Session(_) | Run::Container => plan.has_session_commands = true,
            }
            planned.routes.iter().for_each(|(_, target)| targets.add(*target));
            if command.full_name == "select" {
                db = selected_db(request, server.shard.config().databases).unwrap_or(db);
            }
            plan.commands.push(planned);
        }
        plan.form = match (needs_steps, targets) {
            (true, _) => Form::Steps,
            (false, Targets::None) => Form::OneShard(shard.id),
            (false, Targets::One(target)) => Form::OneShard(target),
            (false, Targets::Several) if session.watched.is_empty() => Form::Parts,
            (false, Targets::Several) => Form::Steps,
        };
        plan
    }

    /// The locks that a coordinator needs for its commands.
    fn locks(&self, shards: usize) -> Vec<(usize, Lock)> {
        let mut locks: Vec<(usize, Lock)> = Vec::new();
        for planned in &self.commands {
            let write = planned.command.spec.has(command::spec::flag::WRITE);
            let everything = match planned.run {
                Run::Data(command::Run::Everywhere(..)) => true,
                Run::Data(command::Run::Coordinated(_)) => planned.routes.is_empty(),
                _ => false,
            };
            if everything {
                locks.extend((0..shards).map(|target| (target, Lock { hash: EVERYTHING, write: true })));
            } else if !matches!(planned.run, Run::Data(command::Run::Cursor(..))) {
                locks.extend(planned.routes.iter().map(|&(hash, target)| (target, Lock { hash, write })));
            } else {
                // It has to take part; what it shows is not locked.
                locks.extend(
                    planned.routes.iter().map(|&(_, target)| (target, Lock { hash: EVERYTHING, write: false })),
                );
            }
        }
        locks
    }

    fn into_steps(self, multi: &Multi) -> Vec<StepCommand> {
        let own = |Planned { command, run, queued, db, routes }: Planned| StepCommand {
            command: command.id,
            run,
            db,
            routes,
            request: OwnedRequest::of(multi.request(queued)),
        };
        self.commands.into_iter().map(own).collect()
    }
}

/// The database that SELECT chooses, if it does.
fn selected_db(request: Request, databases: usize) -> Option<usize> {
    let index = parse_i64(request.arg(1))?;
    usize::try_from(index).ok().filter(|db| *db < databases)
}

/// Whether keys live on several shards.
fn are_apart(routes: &Routes) -> bool {
    !routes.is_empty() && common_target(routes).is_none()
}

/// Which shards something needs.
#[derive(Default)]
enum Targets {
    #[default]
    None,
    One(usize),
    Several,
}

impl Targets {
    fn add(&mut self, target: usize) {
        *self = match *self {
            Targets::None => Targets::One(target),
            Targets::One(one) if one == target => Targets::One(one),
            _ => Targets::Several,
        }
    }
}

/// Writes a command's parts; what gathers their replies comes back.
fn split_command(
    run: Run,
    routes: &Routes,
    parts: &mut impl Parts,
    at: At,
    (request, keys): (Request, Keys),
    shards: usize,
) -> Gather {
    let at = At { hash: routes.first().map_or(0, |(hash, _)| *hash), ..at };
    // Without keys it answers an error, for which any shard does.
    let target = common_target(routes).unwrap_or(0);
    match run {
        Run::Data(command::Run::Key(handler) | command::Run::Atomic(handler, _)) => {
            split::together(parts, (handler, None), at, false, request, target, routes)
        }
        Run::Data(command::Run::Cursor(handler, _)) => {
            let everything = routes.iter().map(|&(_, target)| (EVERYTHING, target)).collect();
            split::together(parts, (handler, None), at, false, request, target, &everything)
        }
        Run::Data(command::Run::Spread(handler, merge)) => {
            split::spread(parts, (handler, merge), at, false, (request, keys), routes)
        }
        Run::Data(command::Run::Everywhere(handler, merge)) => {
            split::everywhere(parts, (handler, merge), at, false, request, shards)
        }
        _ => unreachable!("such commands need a coordinator"),
    }
}

/// A transaction whose commands are run one after the other, while all keys are held.
struct ExecSteps {
    server: Rc<Server>,
    client: ClientRef,
    locks: Vec<(usize, Lock)>,
    commands: Vec<StepCommand>,
    watched: Vec<WatchedKey>,
}

/// What was planned for a command, for longer than its turn.
struct StepCommand {
    command: CommandId,
    run: Run,
    db: usize,
    routes: Routes,
    request: OwnedRequest,
}

impl ExecSteps {
    async fn run(mut self) -> Result<Vec<u8>> {
        let shard = self.server.shard.clone();
        let watched = std::mem::take(&mut self.watched);
        let of_watched = |of: &WatchedKey| (of.shard, Lock { hash: shard.hasher.hash(&of.key), write: false });
        self.locks.extend(watched.iter().map(of_watched));
        let transaction = match self.locks.is_empty() {
            true => None,
            false => Some(Rc::new(shard.hold(self.locks.drain(..)).await)),
        };
        let mut out = Vec::new();
        let proto = self.client.state.borrow().session.proto;
        if let Some(transaction) = &transaction
            && !are_unchanged(transaction, watched).await
        {
            Reply::new(&mut out, proto).nil_array();
            return Ok(out);
        }
        Reply::new(&mut out, proto).array(self.commands.len());
        for command in std::mem::take(&mut self.commands) {
            let start = out.len();
            let (call, ns) = Call::in_steps(&self.server, command.command, Some(command.request.as_request()));
            if let Err(error) = self.command(command, transaction.as_ref(), &mut out, ns).await {
                out.truncate(start);
                Reply::new(&mut out, self.proto()).error(error);
            }
            call.end(&self.server, &self.client, &out[start..]);
        }
        Ok(out)
    }

    fn proto(&self) -> Proto {
        self.client.state.borrow().session.proto
    }

    async fn command(
        &self,
        StepCommand { command, run, db, routes, request }: StepCommand,
        transaction: Option<&Rc<Transaction>>,
        out: &mut Vec<u8>,
        ns: Rc<Cell<u64>>,
    ) -> Result {
        let (server, shard) = (&self.server, &self.server.shard);
        let command = server.table.get(command);
        match run {
            // It would take part in what nobody takes it out of again.
            Run::Session(_) if self.client.closed.get() => {}
            Run::Session(handler) => {
                let mut state = self.client.state.borrow_mut();
                let run = || run_in_session(server, handler, &mut state.session, request.as_request(), out);
                ns.set(shard.measured(run).1);
            }
            Run::Container | Run::Data(command::Run::Container) => {
                write_help(command, &mut Reply::new(out, self.proto()), request.as_request());
            }
            Run::Task(task) => {
                let (server, client) = (server.clone(), self.client.clone());
                let (proto, began_us) = (self.proto(), store_us());
                let result = task(TaskCtx { server, client, request, db, proto }).await;
                ns.set(store_us().saturating_sub(began_us) * 1_000);
                out.extend_from_slice(&result?);
            }
            Run::Multi(_) => unreachable!("never queued"),
            Run::Data(on_data) => {
                let coordinator = match on_data {
                    command::Run::Coordinated(coordinator) => Some(coordinator),
                    command::Run::Atomic(_, coordinator) if are_apart(&routes) => Some(coordinator),
                    _ => None,
                };
                let at = At { db, ..at(command, &self.client.state.borrow().session) };
                if let Some(coordinator) = coordinator {
                    let hop = Rc::new(ShardHop::new(shard.clone(), transaction.cloned(), at.touch, ns));
                    let context = across_of(shard, request, at);
                    out.extend_from_slice(&coordinator(Across { hop, ..context }).await?);
                } else {
                    ns.set(self.in_steps(run, at, request, routes, transaction, out).await);
                }
            }
        }
        Ok(())
    }

    /// Returns how long the steps took, in nanoseconds.
    async fn in_steps(
        &self,
        run: Run,
        at: At,
        request: OwnedRequest,
        routes: Routes,
        transaction: Option<&Rc<Transaction>>,
        out: &mut Vec<u8>,
    ) -> u64 {
        let shard = &self.server.shard;
        if let Run::Data(command::Run::Atomic(handler, _) | command::Run::Key(handler)) = run
            && routes.is_empty()
        {
            // Without keys it answers an error, for which any shard does.
            let now = shard.catch_up();
            let run = || shard.execute(handler, request.as_request(), at, now, out, &mut Vec::new());
            return shard.measured(run).1;
        }
        let mut parts = Steps::default();
        let keys = shard.spec(at.command).keys;
        let mut gather = split_command(run, &routes, &mut parts, at, (request.as_request(), keys), shard.count);
        let (mut results, mut ns) = (Vec::new(), 0);
        for part in parts.0 {
            let run = move |shard: &Shard, now: Now| {
                let (mut out, mut ends) = (Vec::new(), Vec::new());
                let request = part.request.as_request();
                let ((), ns) =
                    shard.measured(|| shard.execute(part.handler, request, part.at, now, &mut out, &mut ends));
                (out, ends, ns)
            };
            let transaction = transaction.expect("commands on data have locks");
            results.push(transaction.on(part.target, run));
        }
        for (part, result) in results.into_iter().enumerate() {
            let (bytes, ends, part_ns) = result.await;
            ns += part_ns;
            gather.add(part, (&bytes, part_ns), ends.into_iter());
        }
        gather.write(out);
        ns
    }
}

/// Whether all watched keys are as they were. They are forgotten.
async fn are_unchanged(transaction: &Rc<Transaction>, watched: Vec<WatchedKey>) -> bool {
    let mut answers = Vec::new();
    for (target, watched) in by_shard(watched) {
        let check = move |shard: &Shard, now: Now| {
            shard.keyspace.borrow_mut().end_watches(watched.iter().map(WatchedKey::seen), now)
        };
        answers.push(transaction.on(target, check));
    }
    let mut same = true;
    for answer in answers {
        same &= answer.await;
    }
    same
}
