//! EXEC where a command depends on what another shard has, or asks other shards itself, or where there are very many: a
//! coordinator holds all keys and goes from command to command. What each shard can do alone is done in slices (`exec_slice.rs`).

use super::exec_slice::Slice;
use super::lease::Lease;
use super::plan::{Needed, Planned, selects};
use super::rights;
use super::steps::Step;
use super::task::Call;
use super::turn::{at, log_slow};
use super::watch::are_unchanged;
use super::{here, script};
use crate::clock::{Now, store_us};
use crate::command::{self, OwnedRequest};
use crate::keyspace::Tracker;
use crate::net::step_back_in_turn;
use crate::resp::{Proto, Reply, Request, Result};
use crate::server::client::ClientRef;
use crate::server::client::multi::Multi;
use crate::server::client::relay::{self, Relay};
use crate::server::client::session::{Close, ReplyMode};
use crate::server::client::watched::WatchedKey;
use crate::server::state::slowlog::SlowLog;
use crate::server::state::{Run, Server, TaskCtx};
use crate::shard::{At, Lock, Pace, Shard, Transaction};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// A transaction whose commands are run one after the other, while all keys are held.
pub struct ExecSteps {
    pub server: Rc<Server>,
    pub client: ClientRef,
    pub multi: Arc<Multi>,
    pub watched: Vec<WatchedKey>,
    /// The lease without which nothing runs.
    pub lease: Option<Lease>,
    /// What the primary has said that this does.
    pub relay: Option<Relay>,
    /// The reply is that of the only command.
    pub is_one: bool,
    /// Where the connection tracks what it reads.
    pub tracker: Cell<Option<Tracker>>,
}

/// So many commands are looked at until others have their turn.
const PLANNED_AT_ONCE: usize = 512;

impl ExecSteps {
    pub async fn run(mut self) -> Result<Vec<u8>> {
        let result = self.run_all().await;
        self.client.state.borrow_mut().session.exec_bytes = 0;
        result
    }

    async fn run_all(&mut self) -> Result<Vec<u8>> {
        let shard = self.server.shard.clone();
        let mut needed = self.needed().await;
        let watched = std::mem::take(&mut self.watched);
        for WatchedKey { key, shard: target, .. } in &watched {
            needed.add(*target, Lock { hash: shard.hasher.hash(key), write: false });
        }
        self.lease.iter().for_each(|lease| needed.add(lease.shard, lease.lock()));
        self.relay.iter().for_each(|_| needed.add(shard.id, Relay::LOCK));
        let locks = needed.locks();
        let transaction = match locks.is_empty() {
            true => None,
            false => Some(Rc::new(shard.hold(locks.into_iter()).await)),
        };
        let now = transaction.as_ref().map_or_else(|| shard.clock.now(), |transaction| transaction.now);
        let mut out = Vec::new();
        let proto = self.proto();
        if let Some(transaction) = &transaction {
            if !are_unchanged(transaction, watched).await {
                Reply::new(&mut out, proto).nil_array();
                return Ok(out);
            }
            if let Some(lease) = &self.lease {
                lease.check_in(transaction).await?;
            }
        }
        let multi = self.multi.clone();
        if !self.is_one {
            Reply::new(&mut out, proto).array(multi.commands().len());
        }
        let (mut next, mut said_bytes, mut pace) = (0, None, Pace::new(store_us()));
        while next < multi.commands().len() {
            match (&transaction, self.slice(next)) {
                (Some(transaction), slice) if slice.len() > 1 => {
                    next += slice.len();
                    self.run_slice(slice, transaction, &mut out).await;
                    self.count(&mut out);
                }
                _ => {
                    self.run_one(next, (transaction.as_ref(), now), &mut out).await;
                    next += 1;
                    if pace.is_long() {
                        self.count(&mut out);
                        step_back_in_turn().await;
                        pace = Pace::new(store_us());
                    }
                }
            }
            if said_bytes.is_none() && self.client.state.borrow().session.close != Close::No {
                said_bytes = Some(out.len());
            }
        }
        if let Some((relay, transaction)) = self.relay.take().zip(transaction.as_ref()) {
            let (request, at) = (relay.request(), Relay::at(At::unseen(self.server.exec, 0, proto)));
            let say = move |shard: &Shard, now: Now| {
                shard.execute(relay::say, request.as_request(), at, now, &mut Vec::new(), &mut Vec::new());
            };
            transaction.on(shard.id, say).await;
        }
        // Who ends his own connection hears that, and nothing behind it, although all of it has run.
        out.truncate(said_bytes.unwrap_or(out.len()));
        // CLIENT CACHING was about this transaction.
        self.client.state.borrow_mut().session.set_caching(false, shard.id);
        Ok(out)
    }

    /// The locks of all commands, which are to be asked for at once.
    async fn needed(&self) -> Needed {
        let _about_to = self.server.shard.is_about_to_ask();
        let mut needed = Needed::default();
        let mut db = self.client.state.borrow().session.db;
        for some in self.multi.commands().chunks(PLANNED_AT_ONCE) {
            for queued in some {
                let request = self.multi.request(*queued);
                let planned = Planned::of(&self.server, *queued, request, db);
                needed.add_those_of(&planned, self.server.shard.count);
                db = selects(planned.command, request, &self.server).unwrap_or(db);
            }
            if some.len() == PLANNED_AT_ONCE {
                step_back_in_turn().await;
            }
        }
        needed
    }

    /// What was queued and what is answered counts as the connection's; nothing is kept for one that has gone.
    fn count(&self, out: &mut Vec<u8>) {
        if self.client.closed.get() {
            out.clear();
        }
        self.client.state.borrow_mut().session.exec_bytes = self.multi.bytes() + out.capacity();
    }

    /// The commands from this one on that each shard can do alone, as many as may run at once.
    fn slice(&self, next: usize) -> Slice {
        let mut slice = Slice::new(self.multi.clone(), next, self.server.shard.count);
        let session = &self.client.state.borrow().session;
        for queued in &self.multi.commands()[next..] {
            let request = self.multi.request(*queued);
            let planned = Planned::of(&self.server, *queued, request, session.db);
            let at = At { tracker: self.tracker.get(), ..at(planned.command, request, session) };
            let is_refused = rights::is_refused_in_exec(&self.server, session, planned.command, request);
            if is_refused || !slice.add(planned, at, request) {
                break;
            }
        }
        slice
    }

    async fn run_slice(&self, slice: Slice, transaction: &Transaction, out: &mut Vec<u8>) {
        let (server, first) = (&self.server, slice.first());
        let replies = slice.run(transaction).await;
        let state = self.client.state.borrow();
        let (proto, is_off) = (state.session.proto, state.session.reply_mode == ReplyMode::Off);
        for (queued, (reply, ns)) in self.multi.commands()[first..].iter().zip(replies.iter()) {
            let (start, meter) = (out.len(), &server.shard.meter);
            out.extend_from_slice(reply);
            server.shard.keep_short(0, start, proto, out);
            meter.ran(queued.command, ns);
            meter.answered(queued.command, &out[start..]);
            if meter.is_slow(ns) {
                let args = SlowLog::args(server.secrets(queued.command), self.multi.request(*queued));
                log_slow(server, &state.session, queued.command, ns, args);
            }
            if is_off {
                out.truncate(start);
            }
        }
    }

    async fn run_one(&self, next: usize, within: (Option<&Rc<Transaction>>, Now), out: &mut Vec<u8>) {
        let queued = self.multi.commands()[next];
        let request = self.multi.request(queued);
        let planned = Planned::of(&self.server, queued, request, 0);
        let (start, listens) = (out.len(), here::listens(planned.command));
        let (call, ns) = Call::in_steps(&self.server, queued.command, Some(request));
        if let Err(error) = self.command(&planned, request, within, out, ns).await {
            out.truncate(start);
            Reply::new(out, self.proto()).error(error);
        }
        self.server.shard.keep_short(0, start, self.proto(), out);
        call.end(&self.server, &self.client, &out[start..]);
        // Since CLIENT REPLY OFF within the transaction, as in Redis.
        if self.client.state.borrow().session.reply_mode == ReplyMode::Off && !listens {
            out.truncate(start);
        }
    }

    fn proto(&self) -> Proto {
        self.client.state.borrow().session.proto
    }

    async fn command(
        &self,
        &Planned { command, run, ref routes, .. }: &Planned<'_>,
        request: Request<'_>,
        (transaction, now): (Option<&Rc<Transaction>>, Now),
        out: &mut Vec<u8>,
        ns: Rc<Cell<u64>>,
    ) -> Result {
        let (server, shard) = (&self.server, &self.server.shard);
        let (refusal, db) = {
            let session = &self.client.state.borrow().session;
            // (A SELECT before it may have been refused: its database is the connection's.)
            (rights::refusal_in_exec(server, session, command, request), session.db)
        };
        match refusal.map_or(run, rights::refusing) {
            // It would take part in what nobody takes it out of again.
            Run::Session(_) if self.client.closed.get() => {}
            Run::Session(handler) => {
                let mut state = self.client.state.borrow_mut();
                let run = || here::call(server, handler, (&mut state.session, true, now), request, out);
                ns.set(shard.measured(run).1);
                self.tracker.set(state.session.tracker);
            }
            Run::Container | Run::Data(command::Run::Container) => {
                command::describe::help(&mut Reply::new(out, self.proto()), &command.told);
            }
            Run::Task(task) => {
                let (server, client) = (server.clone(), self.client.clone());
                let (proto, began_us, transaction) = (self.proto(), store_us(), transaction.cloned());
                let result = task(TaskCtx {
                    server,
                    client,
                    command: command.id,
                    request: OwnedRequest::of(request),
                    db,
                    proto,
                    in_exec: true,
                    transaction,
                })
                .await;
                ns.set(store_us().saturating_sub(began_us) * 1_000);
                self.tracker.set(self.client.state.borrow().session.tracker);
                out.extend_from_slice(&result?);
            }
            Run::Multi(_) => unreachable!("never queued"),
            Run::Script(calls) => {
                let at =
                    At { db, tracker: self.tracker.get(), ..at(command, request, &self.client.state.borrow().session) };
                let bytes =
                    script::in_transaction(server, &self.client, calls, at, OwnedRequest::of(request), transaction)
                        .await?;
                out.extend_from_slice(&bytes);
            }
            Run::Data(on_data) => {
                let at =
                    At { db, tracker: self.tracker.get(), ..at(command, request, &self.client.state.borrow().session) };
                let (request, routes) = (OwnedRequest::of(request), routes.iter().copied().collect());
                Step { shard, at, request, routes, transaction }.run(on_data, out, ns).await?;
            }
        }
        Ok(())
    }
}
