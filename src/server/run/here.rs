//! A command about the connection itself, and what a container answers to HELP: here and at once.

use super::turn::{Progress, Turn};
use crate::clock::Now;
use crate::command::describe;
use crate::command::spec::flag::{PUBSUB, SUBSCRIBED};
use crate::resp::{Reply, Request};
use crate::server::client::session::{Close, ReplyMode, Session};
use crate::server::state::{Command, Server, SessionCtx, SessionHandler};
use std::rc::Rc;

/// Its replies are what pushes queue behind, so nothing may be open. Those of a command that listens are pushes, which
/// CLIENT REPLY does not turn off.
#[inline(never)]
pub fn run(turn: &mut Turn, handler: SessionHandler, command: &Command, request: Request) -> Progress {
    let server = turn.server;
    let ((), ns) = server.shard.measured(|| run_muted(turn, handler, command, request));
    turn.set_gate();
    turn.ran(command.id, request, ns);
    Progress::Taken
}

fn run_muted(turn: &mut Turn, handler: SessionHandler, command: &Command, request: Request) {
    debug_assert!(turn.replies.is_idle());
    if turn.session.reply_mode == ReplyMode::SkipNext {
        turn.session.reply_mode = ReplyMode::Skipped;
    }
    let start = turn.replies.out.len();
    let now = turn.server.shard.clock.now();
    call(turn.server, handler, (turn.session, false, now), request, &mut turn.replies.out);
    turn.server.shard.meter.answered(command.id, &turn.replies.out[start..]);
    let session = &mut *turn.session;
    if session.reply_mode != ReplyMode::On && !listens(command) {
        turn.replies.out.truncate(start);
    }
    if session.reply_mode == ReplyMode::Skipped {
        session.reply_mode = ReplyMode::On;
    }
    if session.close != Close::No {
        turn.flow.close = session.close;
    }
}

/// Whether what a command answers are pushes.
pub fn listens(command: &Command) -> bool {
    command.spec.has(PUBSUB) && command.spec.has(SUBSCRIBED)
}

/// Runs a session's command, within EXEC or a script or not, at a moment; an error takes the place of what was written.
pub fn call(
    server: &Rc<Server>,
    handler: SessionHandler,
    (session, in_exec, now): (&mut Session, bool, Now),
    request: Request,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let proto = session.proto;
    let result = handler(&mut SessionCtx { server, session, in_exec, now, reply: Reply::new(out, proto) }, request);
    if let Err(error) = result {
        out.truncate(start);
        Reply::new(out, session.proto).error(error);
    }
}

pub fn help(turn: &mut Turn, command: &Command) -> Progress {
    turn.server.shard.meter.note(command.id);
    let muted = turn.take_muted();
    turn.reply(muted, |reply| describe::help(reply, &command.told));
    Progress::Taken
}
