//! MULTI, EXEC, DISCARD: a connection's commands in one moment.
//!
//! | the commands' keys and those watched | how EXEC runs |
//! |---|---|
//! | all here | at once, like one command |
//! | anywhere, and each shard can do its part alone | one transaction, a message to each shard |
//! | else (RENAME between shards, keys watched elsewhere, CONFIG SET), and very many commands | a coordinator, see `exec_steps.rs` |

use super::callee;
use super::exec_steps::ExecSteps;
use super::here;
use super::lease::{self, Lease};
use super::plan::{Plan, Planned, Way, selects, split_command};
use super::replayed;
use super::rights;
use super::scatter::run_whole;
use super::split::{Parts, Sent, first_hash};
use super::task::{Call, spawn};
use super::turn::{Progress, Turn};
use super::watch::{check_watched, unwatch, watched_args};
use crate::clock::store_us;
use crate::command::leases::LOST;
use crate::command::spec::flag::TELLS_HEALTH;
use crate::command::{self, CommandId};
use crate::keyspace::{Lookup, PREFETCHED};
use crate::resp::{Error, Reply, Request};
use crate::server::admit::{Admission, Conditions, Gate, Standing};
use crate::server::client::Source;
use crate::server::client::multi::{Multi, Verb};
use crate::server::client::relay::{self, Relay};
use crate::server::client::replies::ExecGather;
use crate::server::client::session::{Close, ReplyMode, Session};
use crate::server::client::watched::WatchedKey;
use crate::server::state::{Command, Run, Server};
use crate::server::told::monitor;
use crate::shard::{At, LONG_REPLY_BYTES, Lock, Shard};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::Arc;

/// How queued commands run.
pub struct Terms {
    /// What runs them: EXEC or GUARD.
    pub command: CommandId,
    /// The lease that has to be held.
    pub lease: Option<Lease>,
    /// There is one, which was not queued: its reply is the reply.
    pub is_one: bool,
}

/// Whether a command runs although the connection is between MULTI and EXEC.
pub fn is_done_at_once(command: &Command) -> bool {
    matches!(command.run, Run::Multi(_)) || ["watch", "quit", "reset"].contains(&command.full_name)
}

/// Queues a command of a connection that is between MULTI and EXEC.
pub fn queue(turn: &mut Turn, command: &Command, request: Request) {
    // (EXEC is not asked whether the server is well.)
    let flags = callee::flags_of(turn.server, command, request) & !TELLS_HEALTH;
    let Some(multi) = &mut turn.session.multi else { return };
    let limit = turn.server.shard.config().client_query_buffer_limit_bytes;
    // (What a primary has done is done, however long it is.)
    if multi.bytes() + request.bytes() > limit && turn.client.source == Source::Socket {
        // As a client whose unfinished request is too long.
        turn.flow.close = Close::Now;
    } else if !multi.broken {
        multi.push(command.id, flags, request);
    }
}

pub fn run(turn: &mut Turn, verb: Verb, command: CommandId) -> Progress {
    match verb {
        // Nobody sees what is between the commands of a log, and what is a part of a transaction in it is whole: each
        // command runs as it comes, and none waits for EXEC.
        Verb::Multi | Verb::Exec if turn.client.source == Source::Log => return Progress::Taken,
        Verb::Discard if turn.client.source == Source::Log => {
            replayed::refuse(turn, "DISCARD reading the append only file: what it takes back has been done".to_owned());
            return Progress::Taken;
        }
        Verb::Multi if turn.session.multi.is_some() => {
            return turn.fail(command, Error::text("ERR MULTI calls can not be nested"));
        }
        Verb::Multi => {
            turn.session.multi = Some(Box::default());
            turn.set_gate();
        }
        Verb::Discard if turn.session.multi.is_none() => {
            return turn.fail(command, Error::text("ERR DISCARD without MULTI"));
        }
        Verb::Discard => end_multi(turn),
        Verb::Exec => return exec(turn, &Terms { command, lease: None, is_one: false }),
        Verb::Guard => unreachable!("taken care of by `guard.rs`"),
    }
    turn.server.shard.meter.note(command);
    let muted = turn.take_muted();
    turn.reply(muted, |reply| reply.ok());
    Progress::Taken
}

fn end_multi(turn: &mut Turn) {
    turn.session.multi = None;
    turn.set_gate();
    unwatch(&turn.server.shard, turn.session.watched.take());
}

/// EXEC itself was refused: nothing is left of the transaction.
pub fn abort(turn: &mut Turn, because: &Error) -> Error {
    end_multi(turn);
    let because = because.to_bytes();
    let because = because.strip_prefix(b"ERR ").unwrap_or(&because);
    Error::quoting(&[b"EXECABORT Transaction discarded because of: ", because])
}

pub fn exec(turn: &mut Turn, terms: &Terms) -> Progress {
    let mut multi = match turn.session.multi.take() {
        Some(multi) if !multi.broken => multi,
        None => return turn.fail(terms.command, Error::text("ERR EXEC without MULTI")),
        Some(_) => {
            end_multi(turn);
            let error = Error::text("EXECABORT Transaction discarded because of previous errors.");
            return turn.fail(terms.command, error);
        }
    };
    let progress = exec_queued(&mut multi, turn, terms);
    match progress {
        Progress::NotYet => turn.session.multi = Some(multi),
        Progress::Taken => {
            turn.set_gate();
            unwatch(&turn.server.shard, turn.session.watched.take());
        }
    }
    progress
}

/// One command as a transaction, beside what the connection watches.
pub fn exec_one(turn: &mut Turn, one: &mut Multi, terms: &Terms) -> Progress {
    let watched = std::mem::take(&mut turn.session.watched);
    let progress = exec_queued(one, turn, terms);
    turn.session.watched = watched;
    progress
}

/// More commands than this are run by a coordinator, a slice of time after the other, wherever their keys are: others have
/// their turns between two slices.
const AT_ONCE_MAX: usize = 2_048;

fn exec_queued(multi: &mut Multi, turn: &mut Turn, terms: &Terms) -> Progress {
    let server = turn.server;
    // Each of them was admitted when it was queued, and things may be otherwise now. (No script is in their way: EXEC was
    // admitted.)
    let conditions = Conditions { busy: false, ..turn.conditions };
    let standing = Standing { is_restricted: false, ..turn.session.standing() };
    if !Gate::of(standing, &conditions).admits_all(multi.flags)
        && let Some(progress) = do_not_admit(multi, turn, terms, conditions)
    {
        return progress;
    }
    let shard = &server.shard;
    if multi.commands().len() > AT_ONCE_MAX {
        return exec_in_steps(multi, turn, terms);
    }
    let plan = Plan::of(server, multi, turn.session, terms.lease.as_ref());
    match plan.way {
        Way::OneShard(target) if target == shard.id && !is_locked(multi, &plan, turn, terms) => {
            if !turn.replies.is_idle() {
                return Progress::NotYet;
            }
            exec_here(multi, &plan, turn, terms);
        }
        Way::OneShard(_) | Way::Parts if !plan.has_session_commands => {
            if !turn.may_start(true) {
                return Progress::NotYet;
            }
            if shard.is_congested() {
                return turn.wait_for_room();
            }
            exec_in_parts(multi, &plan, turn, terms);
        }
        _ => return exec_in_steps(multi, turn, terms),
    }
    Progress::Taken
}

/// A coordinator goes from command to command. What was queued is its own from now on.
fn exec_in_steps(multi: &mut Multi, turn: &mut Turn, terms: &Terms) -> Progress {
    if !turn.replies.is_idle() {
        return Progress::NotYet;
    }
    // (Here, since the connection's next commands may be shown before the coordinator begins.)
    if turn.session.gate.shows && !terms.is_one {
        show_all(multi, turn);
    }
    let multi = Arc::new(std::mem::take(multi));
    turn.session.exec_bytes = multi.bytes();
    let watched = turn.session.watched.take();
    let muted = turn.take_muted();
    turn.replies.hold_pushes();
    let call = Call::new(turn.server, terms.command, None);
    let steps = ExecSteps {
        server: turn.server.clone(),
        client: turn.client.clone(),
        multi,
        watched,
        lease: terms.lease.clone(),
        relay: turn.flow.relay.take(),
        is_one: terms.is_one,
        tracker: Cell::new(turn.session.tracker),
    };
    spawn(turn, Box::pin(steps.run()), call, muted);
    Progress::Taken
}

#[cold]
fn do_not_admit(multi: &Multi, turn: &mut Turn, terms: &Terms, conditions: Conditions) -> Option<Progress> {
    let exec = turn.server.table.get(turn.server.exec);
    match turn.admit(exec, None, multi.flags, conditions) {
        Admission::Runs | Admission::UnlessBusy => None,
        Admission::Refused(error) if terms.is_one => Some(turn.fail(terms.command, error)),
        Admission::Refused(error) => {
            let error = abort(turn, &error);
            Some(turn.fail(terms.command, error))
        }
        Admission::WithRoom => Some(turn.wait_for_room()),
        Admission::Crowded => Some(turn.wait_for_log()),
        Admission::Paused => Some(turn.pause()),
    }
}

/// Whether a transaction on this shard has to wait for another.
fn is_locked(multi: &Multi, plan: &Plan, turn: &Turn, terms: &Terms) -> bool {
    let shard = &turn.server.shard;
    let mut watched = turn.session.watched.iter();
    watched.any(|of| shard.is_locked(Lock { hash: shard.hasher.hash(&of.key), write: false }))
        || terms.lease.as_ref().is_some_and(|lease| shard.is_locked(lease.lock()))
        || plan.commands.iter().any(|planned| {
            let everywhere = matches!(planned.run, Run::Data(command::Run::Everywhere(..)));
            let request = multi.request(planned.queued);
            let at = turn.at(planned.command, request);
            everywhere && shard.is_busy() || shard.must_wait(&at, request, turn.client.id)
        })
}

/// Everything is on this shard, and nothing is locked.
fn exec_here(multi: &Multi, plan: &Plan, turn: &mut Turn, terms: &Terms) {
    let server = turn.server;
    let shard = &server.shard;
    let muted = turn.take_muted();
    let start = turn.replies.out.len();
    let watched = turn.session.watched.take();
    let now = shard.clock.now();
    let same = shard.keyspace.borrow_mut().end_watches(watched.iter().map(WatchedKey::seen), now);
    let began_us = shard.meter.lapped_us();
    let proto = turn.session.proto;
    let is_held = terms.lease.as_ref().is_none_or(|lease| lease.is_held(shard, now));
    if same && !is_held {
        shard.meter.failed(terms.command, &LOST.to_bytes());
        Reply::new(&mut turn.replies.out, proto).error(LOST);
    } else if same {
        if !terms.is_one {
            Reply::new(&mut turn.replies.out, proto).array(plan.commands.len());
        }
        shard.as_unit(|| {
            for some in plan.commands.chunks(PREFETCHED) {
                prefetch(shard, some);
                let run = |planned: &Planned| exec_one_here(planned, multi.request(planned.queued), start, turn);
                some.iter().for_each(run);
            }
            if let Some(relay) = turn.flow.relay.take() {
                let (at, now) = (Relay::at(At::unseen(terms.command, 0, proto)), shard.clock.now());
                let request = relay.request();
                shard.execute(relay::say, request.as_request(), at, now, &mut Vec::new(), &mut Vec::new());
            }
        });
        if !terms.is_one {
            show_queued(multi, plan, turn);
        }
    } else {
        Reply::new(&mut turn.replies.out, proto).nil_array();
    }
    let now_us = store_us();
    shard.meter.lap(now_us);
    shard.meter.ran(terms.command, now_us.saturating_sub(began_us) * 1_000);
    shard.serve_waiters();
    if muted {
        turn.replies.out.truncate(start);
    }
    if turn.session.close != Close::No {
        turn.flow.close = turn.session.close;
    }
}

/// The keys of commands that are about to run.
fn prefetch(shard: &Shard, commands: &[Planned]) {
    let lookups =
        commands.iter().flat_map(|planned| planned.routes.iter().map(|(hash, _)| Lookup::key(planned.db, *hash)));
    let lookups: SmallVec<[Lookup; 16]> = lookups.collect();
    for some in lookups.chunks(PREFETCHED) {
        shard.keyspace.borrow().prefetch(some.iter().copied());
    }
}

/// The first of the transaction's replies begins at `first`.
fn exec_one_here(planned: &Planned, request: Request, first: usize, turn: &mut Turn) {
    let server = turn.server;
    let shard = &server.shard;
    // (In the connection's database: a SELECT before it may have been refused.)
    let at = At { hash: first_hash(&planned.routes), ..turn.at(planned.command, request) };
    let (meter, is_quick) = (&shard.meter, shard.is_quick(at));
    if !is_quick {
        meter.begin();
    }
    let out = &mut turn.replies.out;
    let start = out.len();
    // (A command before it may have changed who this is, and what he may do.)
    let refusal = rights::refusal_in_exec(server, turn.session, planned.command, request);
    match refusal.map_or(planned.run, rights::refusing) {
        Run::Data(command::Run::Key(handler) | command::Run::Cursor(handler, _) | command::Run::Atomic(handler, _)) => {
            shard.execute(handler, request, at, shard.clock.now(), out, &mut Vec::new());
        }
        Run::Data(command::Run::Spread(handler, merge) | command::Run::Everywhere(handler, merge)) => {
            run_whole(shard, (handler, merge), at, request, &planned.routes, shard.clock.now(), out);
        }
        Run::Session(handler) => {
            here::call(server, handler, (turn.session, true, shard.clock.now()), request, out);
        }
        Run::Container | Run::Data(command::Run::Container) => {
            command::describe::help(&mut Reply::new(out, at.proto), &planned.command.told);
        }
        Run::Data(command::Run::Coordinated(_) | command::Run::Blocking(_))
        | Run::Task(_)
        | Run::Multi(_)
        | Run::Script(_) => {
            unreachable!("such commands need a coordinator")
        }
    }
    shard.keep_short(first, start, at.proto, &mut turn.replies.out);
    let is_long = turn.replies.out.len() - start >= LONG_REPLY_BYTES;
    meter.answered(at.command, &turn.replies.out[start..]);
    // Since CLIENT REPLY OFF within the transaction, as in Redis.
    if turn.session.reply_mode == ReplyMode::Off && !here::listens(planned.command) {
        turn.replies.out.truncate(start);
    }
    if is_quick && !is_long {
        meter.note(at.command);
    } else {
        turn.ran(at.command, request, meter.end());
    }
}

/// Each shard runs its part of every command.
fn exec_in_parts(multi: &Multi, plan: &Plan, turn: &mut Turn, terms: &Terms) {
    if !terms.is_one {
        show_queued(multi, plan, turn);
    }
    let server = turn.server;
    let shard = &server.shard;
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
        refusal: Vec::new(),
        is_one: terms.is_one,
        command: terms.command,
        ns: 0,
    };
    let reply = turn.replies.next_reply();
    {
        let transaction = shard.transaction();
        let mut parts = Sent { transaction, client: turn.client.id, reply, count: 0 };
        if let Way::OneShard(target) = plan.way
            && !watched.is_empty()
        {
            parts.part(target, check_watched, At::unseen(terms.command, 0, proto));
            watched_args(&watched).as_request().from(0).for_each(|arg| parts.arg(target, arg));
            parts.transaction.guard(target);
            for WatchedKey { key, .. } in &watched {
                parts.lock(target, Lock { hash: shard.hasher.hash(key), write: false });
            }
            gather.parts.push(None);
        }
        if let Some(lease) = &terms.lease {
            let (at, args) = lease.part(At::unseen(terms.command, lease.db, proto));
            parts.part(lease.shard, lease::check, at);
            args.as_request().from(0).for_each(|arg| parts.arg(lease.shard, arg));
            parts.transaction.guard(lease.shard);
            parts.lock(lease.shard, lease.lock());
            gather.parts.push(None);
        }
        for planned in &plan.commands {
            let (request, keys) = (multi.request(planned.queued), planned.command.spec.keys);
            let at = At { db: planned.db, ..turn.at(planned.command, request) };
            let first = parts.count;
            let refusal = rights::refusal_in_exec(server, turn.session, planned.command, request);
            let run = refusal.map_or(planned.run, rights::refusing);
            let of_command = split_command(run, &planned.routes, &mut parts, at, (request, keys), shard.count);
            let command = gather.commands.len() as u32;
            gather.parts.extend((0..parts.count - first).map(|part| Some((command, part))));
            gather.commands.push(of_command);
        }
        if let Some(relay) = turn.flow.relay.take() {
            parts.part(shard.id, relay::say, Relay::at(At::unseen(terms.command, 0, proto)));
            relay.request().as_request().from(0).for_each(|arg| parts.arg(shard.id, arg));
            parts.lock(shard.id, Relay::LOCK);
            gather.parts.push(None);
        }
    }
    gather.missing = gather.parts.len();
    turn.replies.expect_exec(gather, multi.bytes());
}

/// Shows those who monitor what is about to run, or has run. On other shards it may turn out that a watched key has
/// changed, so that it does not.
fn show_queued(multi: &Multi, plan: &Plan, turn: &Turn) {
    if turn.session.gate.shows {
        for planned in &plan.commands {
            show(turn.server, turn.session, planned, multi.request(planned.queued));
        }
    }
}

/// The same where nothing is planned yet.
#[cold]
fn show_all(multi: &Multi, turn: &Turn) {
    let mut db = turn.session.db;
    for queued in multi.commands() {
        let request = multi.request(*queued);
        let planned = Planned::of(turn.server, *queued, request, db);
        show(turn.server, turn.session, &planned, request);
        db = selects(planned.command, request, turn.server).unwrap_or(db);
    }
}

/// Shows those who monitor one of the commands.
fn show(server: &Server, session: &Session, planned: &Planned, request: Request) {
    // SELECT is shown with the database that it chooses.
    let db = selects(planned.command, request, server).unwrap_or(planned.db);
    match planned.run {
        Run::Script(_) => monitor::show_call(server, session, request),
        _ => monitor::show(server, session, db, planned.command, request),
    }
}
