//! A command that runs as a task, because it asks other shards, or waits. Nothing of its connection overtakes it.

use super::turn::{Progress, Turn, log_slow};
use crate::clock::store_us;
use crate::command::spec::Group;
use crate::command::spec::flag::{MAY_REPLICATE, READ, WRITE};
use crate::command::{CommandId, OwnedRequest};
use crate::executor;
use crate::net::note_woken;
use crate::resp::{Proto, Reply, Request, Result};
use crate::server::client::Client;
use crate::server::client::long::Long;
use crate::server::client::replies::Answer;
use crate::server::client::session::Close;
use crate::server::state::slowlog::SlowLog;
use crate::server::state::{Command, Server, TaskCtx, TaskFuture};
use crate::server::told::output::{hold_for_disk, show_everything};
use futures_lite::future::yield_now;
use std::cell::Cell;
use std::rc::Rc;

#[inline(never)]
pub fn run(turn: &mut Turn, task: fn(TaskCtx) -> TaskFuture, command: CommandId, request: Request) -> Progress {
    let muted = turn.take_muted();
    let call = Call::new(turn.server, command, Some(request));
    let ctx = TaskCtx {
        server: turn.server.clone(),
        client: turn.client.clone(),
        command,
        request: OwnedRequest::of(request),
        db: turn.session.db,
        proto: turn.session.proto,
        // (In a log, too, nothing waits.)
        in_exec: turn.client.replays(),
        transaction: None,
    };
    spawn(turn, task(ctx), call, muted);
    Progress::Taken
}

/// Starts a task; its result is the reply.
pub fn spawn(turn: &mut Turn, future: TaskFuture, call: Call, muted: bool) {
    let reply = turn.replies.expect(muted, turn.server.shard.id, 0);
    turn.flow.barrier = true;
    let (server, client, proto) = (turn.server.clone(), turn.client.clone(), turn.session.proto);
    let command = server.table.get(call.command);
    let (shows, changes) = (shows_data(command), changes_data(command));
    note_woken();
    executor::spawn(async move {
        // A new task runs at once; this one must not before the connection's turn is over.
        yield_now().await;
        let bytes = or_error(future.await, proto);
        if shows && (server.shard.durable.is_kept() || changes && server.shard.is_journaled() && server.shard.count > 1)
        {
            // Whoever has let go of its keys by now has handed over what has changed: what is asked for behind this reply
            // stands behind it in the journal, and WAIT waits for it.
            server.shard.call_all(|_| ()).await;
        }
        let (command, ns) = (call.command, call.ns());
        call.log(&server, &client, ns);
        if server.users.has_refused() {
            server.log_refused();
        }
        if client.closed.get() {
            return;
        }
        {
            let mut state = client.state.borrow_mut();
            let answer = Answer { reply, part: 0, bytes: Long::all(bytes), command, ns };
            state.replies.fill(&server.shard.meter, answer, std::iter::empty());
            if shows {
                show_everything(&server, &mut state);
            }
            hold_for_disk(&server, &client, &mut state);
            if state.session.close != Close::No {
                state.flow.close = state.session.close;
            }
        }
        server.postpone(&client);
    });
}

/// Whether a reply may show changes that are not on the disk for certain. What tells about the server alone, or ends a
/// script, waits for no disk: else nobody could ask why all others wait. (Policies stand in the log.)
fn shows_data(command: &Command) -> bool {
    let is_about_server = matches!(command.spec.group, Group::Server | Group::Connection);
    let touches = command.spec.flags & (READ | WRITE | MAY_REPLICATE) != 0 || command.full_name == "expiry|policy";
    touches || !(is_about_server || command.full_name.ends_with("|kill"))
}

/// Whether a reply may acknowledge changes. (What is published is none.)
fn changes_data(command: &Command) -> bool {
    let changes = command.spec.flags & (WRITE | MAY_REPLICATE) != 0 && command.spec.group != Group::PubSub;
    changes || command.spec.group == Group::Transactions
}

/// A reply that was made, or the error in its place.
pub fn or_error(result: Result<Vec<u8>>, proto: Proto) -> Vec<u8> {
    result.unwrap_or_else(|error| {
        let mut out = Vec::new();
        Reply::new(&mut out, proto).error(error);
        out
    })
}

/// A command that runs as a task, or in steps.
pub struct Call {
    command: CommandId,
    /// As the slow log would have it; empty where that is off.
    args: Vec<Vec<u8>>,
    began_us: u64,
    /// How long its steps took, where they are measured.
    ns: Option<Rc<Cell<u64>>>,
}

impl Call {
    /// The request is for the slow log.
    pub fn new(server: &Server, command: CommandId, request: Option<Request>) -> Call {
        let logged = request.filter(|_| server.shard.meter.is_slow(u64::MAX - 1));
        let args = logged.map(|request| SlowLog::args(server.secrets(command), request)).unwrap_or_default();
        Call { command, args, began_us: store_us(), ns: None }
    }

    /// The same for one whose steps are measured.
    pub fn in_steps(server: &Server, command: CommandId, request: Option<Request>) -> (Call, Rc<Cell<u64>>) {
        let ns = Rc::<Cell<u64>>::default();
        (Call { ns: Some(ns.clone()), ..Call::new(server, command, request) }, ns)
    }

    /// It is over: counted, and logged where it was slow.
    pub fn end(self, server: &Server, client: &Client, reply: &[u8]) {
        let ns = self.ns();
        server.shard.meter.ran(self.command, ns);
        server.shard.meter.answered(self.command, reply);
        self.log(server, client, ns);
    }

    fn log(self, server: &Server, client: &Client, ns: u64) {
        if server.shard.meter.is_slow(ns) {
            log_slow(server, &client.state.borrow().session, self.command, ns, self.args);
        }
    }

    fn ns(&self) -> u64 {
        match &self.ns {
            Some(ns) => ns.get(),
            None => store_us().saturating_sub(self.began_us) * 1_000,
        }
    }
}
