//! A command about the connection itself, and what a container answers to HELP: here and at once.

use crate::clock::Now;
use crate::command::describe;
use crate::command::spec::flag::PUBSUB;
use crate::resp::{Error, Reply, Request};
use crate::server::server::{Command, Server, SessionCtx, SessionHandler};
use crate::server::session::{Close, ReplyMode, Session};
use crate::server::turn::{Progress, Turn};
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
    let listens = command.spec.has(PUBSUB);
    let skipped = turn.session.reply_mode == ReplyMode::SkipNext;
    let start = turn.replies.out.len();
    let now = turn.server.shard.clock.now();
    call(turn.server, handler, (turn.session, false, now), request, &mut turn.replies.out);
    turn.server.shard.meter.answered(command.id, &turn.replies.out[start..]);
    let session = &mut *turn.session;
    if skipped && session.reply_mode == ReplyMode::SkipNext && session.last_command != "client|reply" {
        session.reply_mode = ReplyMode::On;
        if !listens {
            turn.replies.out.truncate(start);
        }
    } else if session.reply_mode == ReplyMode::Off && !listens {
        turn.replies.out.truncate(start);
    }
    if session.close != Close::No {
        turn.flow.close = session.close;
    }
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

pub fn help(turn: &mut Turn, command: &Command, request: Request) -> Progress {
    let muted = turn.take_muted();
    turn.reply(muted, |reply| write_help(command, reply, request));
    Progress::Taken
}

/// What a container answers to HELP, or where its subcommand is missing.
pub fn write_help(command: &Command, reply: &mut Reply, request: Request) {
    if request.len() == 2 {
        describe::help(reply, &command.row);
    } else {
        reply.error(Error::WrongArity(format!("{}|help", command.full_name)));
    }
}
