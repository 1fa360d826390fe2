//! EXEC where a command depends on what another shard has, or asks other shards itself: a coordinator holds all keys and
//! goes from command to command.

use super::coordinate::across_of;
use super::here;
use super::task::Call;
use crate::clock::{Now, store_us};
use crate::command::{self, Across, CommandId, OwnedRequest};
use crate::keyspace::Tracker;
use crate::resp::{Proto, Reply, Result};
use crate::server::client::ClientRef;
use crate::server::multi::Multi;
use crate::server::plan::{Planned, are_apart, split_command};
use crate::server::server::{Run, Server, TaskCtx};
use crate::server::split::{Routes, Steps};
use crate::server::turn::at;
use crate::server::watch::are_unchanged;
use crate::server::watched::WatchedKey;
use crate::shard::{At, Lock, Shard, ShardHop, Transaction};
use std::cell::Cell;
use std::rc::Rc;

/// A transaction whose commands are run one after the other, while all keys are held.
pub struct ExecSteps {
    pub server: Rc<Server>,
    pub client: ClientRef,
    pub locks: Vec<(usize, Lock)>,
    pub commands: Vec<StepCommand>,
    pub watched: Vec<WatchedKey>,
    /// Where the connection tracks what it reads.
    pub tracker: Cell<Option<Tracker>>,
}

/// What was planned for a command, for longer than its turn.
pub struct StepCommand {
    command: CommandId,
    run: Run,
    db: usize,
    routes: Routes,
    request: OwnedRequest,
}

impl StepCommand {
    pub fn of(planned: Planned, multi: &Multi) -> StepCommand {
        let Planned { command, run, queued, db, routes } = planned;
        StepCommand { command: command.id, run, db, routes, request: OwnedRequest::of(multi.request(queued)) }
    }
}

impl ExecSteps {
    pub async fn run(mut self) -> Result<Vec<u8>> {
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
            self.server.shard.keep_short(0, start, self.proto(), &mut out);
            call.end(&self.server, &self.client, &out[start..]);
        }
        // CLIENT CACHING was about this transaction.
        self.client.state.borrow_mut().session.set_caching(false, shard.id);
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
                let run = || here::call(server, handler, (&mut state.session, true), request.as_request(), out);
                ns.set(shard.measured(run).1);
                self.tracker.set(state.session.tracker);
            }
            Run::Container | Run::Data(command::Run::Container) => {
                here::write_help(command, &mut Reply::new(out, self.proto()), request.as_request());
            }
            Run::Task(task) => {
                let (server, client) = (server.clone(), self.client.clone());
                let (proto, began_us) = (self.proto(), store_us());
                let result =
                    task(TaskCtx { server, client, command: command.id, request, db, proto, in_exec: true }).await;
                ns.set(store_us().saturating_sub(began_us) * 1_000);
                self.tracker.set(self.client.state.borrow().session.tracker);
                out.extend_from_slice(&result?);
            }
            Run::Multi(_) => unreachable!("never queued"),
            Run::Data(on_data) => {
                let coordinator = match on_data {
                    command::Run::Coordinated(coordinator) => Some(coordinator),
                    command::Run::Atomic(_, coordinator) if are_apart(&routes) => Some(coordinator),
                    _ => None,
                };
                let at = At { db, tracker: self.tracker.get(), ..at(command, &self.client.state.borrow().session) };
                if let Some(coordinator) = coordinator {
                    if let Some(transaction) = transaction {
                        transaction.remember(at, request.as_request()).await;
                    }
                    let hop = Rc::new(ShardHop::new(shard.clone(), transaction.cloned(), at, ns));
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
