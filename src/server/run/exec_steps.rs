//! EXEC where a command depends on what another shard has, or asks other shards itself: a coordinator holds all keys and
//! goes from command to command.

use super::lease::Lease;
use super::plan::Planned;
use super::rights;
use super::split::FewRoutes;
use super::steps::Step;
use super::task::Call;
use super::turn::at;
use super::watch::are_unchanged;
use super::{here, script};
use crate::clock::{Now, store_us};
use crate::command::{self, CommandId, OwnedRequest};
use crate::keyspace::Tracker;
use crate::resp::{Proto, Reply, Result};
use crate::server::client::ClientRef;
use crate::server::client::multi::Multi;
use crate::server::client::relay::{self, Relay};
use crate::server::client::session::{Close, ReplyMode};
use crate::server::client::watched::WatchedKey;
use crate::server::state::{Run, Server, TaskCtx};
use crate::shard::{At, Lock, Shard, Transaction};
use std::cell::Cell;
use std::rc::Rc;

/// A transaction whose commands are run one after the other, while all keys are held.
pub struct ExecSteps {
    pub server: Rc<Server>,
    pub client: ClientRef,
    pub locks: Vec<(usize, Lock)>,
    pub commands: Vec<StepCommand>,
    pub watched: Vec<WatchedKey>,
    /// The lease without which nothing runs.
    pub lease: Option<Lease>,
    /// What the primary has said that this does.
    pub relay: Option<Relay>,
    /// The reply is that of the only command.
    pub is_one: bool,
    /// What runs them.
    pub command_id: CommandId,
    /// Where the connection tracks what it reads.
    pub tracker: Cell<Option<Tracker>>,
}

/// What was planned for a command, for longer than its turn.
pub struct StepCommand {
    command: CommandId,
    run: Run,
    routes: FewRoutes,
    request: OwnedRequest,
}

impl StepCommand {
    pub fn of(planned: Planned, multi: &Multi) -> StepCommand {
        let Planned { command, run, queued, routes, .. } = planned;
        StepCommand { command: command.id, run, routes, request: OwnedRequest::of(multi.request(queued)) }
    }
}

impl ExecSteps {
    pub async fn run(mut self) -> Result<Vec<u8>> {
        let shard = self.server.shard.clone();
        let watched = std::mem::take(&mut self.watched);
        let of_watched = |of: &WatchedKey| (of.shard, Lock { hash: shard.hasher.hash(&of.key), write: false });
        self.locks.extend(watched.iter().map(of_watched));
        self.locks.extend(self.lease.iter().map(|lease| (lease.shard, lease.lock())));
        self.locks.extend(self.relay.iter().map(|_| (shard.id, Relay::LOCK)));
        let transaction = match self.locks.is_empty() {
            true => None,
            false => Some(Rc::new(shard.hold(self.locks.drain(..)).await)),
        };
        let now = transaction.as_ref().map_or_else(|| shard.clock.now(), |transaction| transaction.now);
        let mut out = Vec::new();
        let proto = self.client.state.borrow().session.proto;
        if let Some(transaction) = &transaction {
            if !are_unchanged(transaction, watched).await {
                Reply::new(&mut out, proto).nil_array();
                return Ok(out);
            }
            if let Some(lease) = &self.lease {
                lease.check_in(transaction).await?;
            }
        }
        if !self.is_one {
            Reply::new(&mut out, proto).array(self.commands.len());
        }
        let mut said_bytes = None;
        for command in std::mem::take(&mut self.commands) {
            let start = out.len();
            let listens = here::listens(self.server.table.get(command.command));
            let (call, ns) = Call::in_steps(&self.server, command.command, Some(command.request.as_request()));
            if let Err(error) = self.command(command, (transaction.as_ref(), now), &mut out, ns).await {
                out.truncate(start);
                Reply::new(&mut out, self.proto()).error(error);
            }
            self.server.shard.keep_short(0, start, self.proto(), &mut out);
            call.end(&self.server, &self.client, &out[start..]);
            // Since CLIENT REPLY OFF within the transaction, as in Redis.
            if self.client.state.borrow().session.reply_mode == ReplyMode::Off && !listens {
                out.truncate(start);
            }
            if said_bytes.is_none() && self.client.state.borrow().session.close != Close::No {
                said_bytes = Some(out.len());
            }
        }
        if let Some((relay, transaction)) = self.relay.take().zip(transaction.as_ref()) {
            let (request, at) = (relay.request(), Relay::at(At::unseen(self.command_id, 0, proto)));
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

    fn proto(&self) -> Proto {
        self.client.state.borrow().session.proto
    }

    async fn command(
        &self,
        StepCommand { command, run, routes, request }: StepCommand,
        (transaction, now): (Option<&Rc<Transaction>>, Now),
        out: &mut Vec<u8>,
        ns: Rc<Cell<u64>>,
    ) -> Result {
        let (server, shard) = (&self.server, &self.server.shard);
        let command = server.table.get(command);
        let (refusal, db) = {
            let session = &self.client.state.borrow().session;
            // (A SELECT before it may have been refused: its database is the connection's.)
            (rights::refusal_in_exec(server, session, command, request.as_request()), session.db)
        };
        match refusal.map_or(run, rights::refusing) {
            // It would take part in what nobody takes it out of again.
            Run::Session(_) if self.client.closed.get() => {}
            Run::Session(handler) => {
                let mut state = self.client.state.borrow_mut();
                let run = || here::call(server, handler, (&mut state.session, true, now), request.as_request(), out);
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
                    request,
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
                let at = At { db, tracker: self.tracker.get(), ..at(command, &self.client.state.borrow().session) };
                let bytes = script::in_transaction(server, &self.client, calls, at, request, transaction).await?;
                out.extend_from_slice(&bytes);
            }
            Run::Data(on_data) => {
                let at = At { db, tracker: self.tracker.get(), ..at(command, &self.client.state.borrow().session) };
                let routes = routes.into_iter().collect();
                Step { shard, at, request, routes, transaction }.run(on_data, out, ns).await?;
            }
        }
        Ok(())
    }
}
