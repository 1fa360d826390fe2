//! GUARD: a command that runs only while a lease is held, which is asked in the same moment.
//!
//! | what is guarded | how it runs |
//! |---|---|
//! | a command on keys | as a transaction of one command, see `exec.rs` |
//! | EXEC | as EXEC, with one more question before it |
//! | a script, a function | as those, see `script.rs`: where one has to begin again, it asks again |
//!
//! What may be guarded changes keys and does not wait: who waits would be asked too early. What is told to the journal is
//! what the guarded command tells, and whether it may run is what is asked of that ([`callee::flags_of`], and its user).

use super::callee;
use super::exec::{self, Terms};
use super::lease::Lease;
use super::turn::{Progress, Turn};
use super::{rights, script};
use crate::acl::log::Context;
use crate::command::spec::Secrets;
use crate::command::spec::flag::NO_MULTI;
use crate::command::{self, CommandId};
use crate::resp::{Error, Request, Result};
use crate::server::admit::user::no_permission;
use crate::server::client::multi::{Multi, Verb};
use crate::server::state::{Command, Run};

const NOT_GUARDED: Error =
    Error::text("ERR GUARD is for commands on keys that do not wait, for EXEC, and for scripts and functions");
const IN_MULTI: Error = Error::text("ERR between MULTI and EXEC only EXEC can be guarded");

pub fn run(turn: &mut Turn, command: CommandId, request: Request) -> Progress {
    let (inner, guarded) = match callee::guarded(turn.server, request) {
        Ok(found) => found,
        Err(error) => return refuse(turn, command, error),
    };
    let lease = match check(turn, inner, guarded).and_then(|()| Lease::of(&turn.server.shard, turn.session, request)) {
        Ok(lease) => lease,
        Err(error) if matches!(inner.run, Run::Multi(Verb::Exec)) && turn.session.multi.is_some() => {
            let error = exec::abort(turn, &error);
            return turn.fail(command, error);
        }
        Err(error) => return refuse(turn, command, error),
    };
    match inner.run {
        Run::Multi(_) => exec::exec(turn, &Terms { command, lease: Some(lease), is_one: false }),
        Run::Script(calls) => {
            let progress = script::run(turn, calls, inner, guarded, Some(lease));
            if progress == Progress::Taken {
                turn.server.shard.meter.note(command);
            }
            progress
        }
        _ => {
            let mut one = Multi::default();
            one.push(inner.id, callee::flags_of(turn.server, inner, guarded), guarded);
            exec::exec_one(turn, &mut one, &Terms { command, lease: Some(lease), is_one: true })
        }
    }
}

/// What cannot run breaks a transaction, as anything that cannot be queued.
fn refuse(turn: &mut Turn, command: CommandId, error: Error) -> Progress {
    if let Some(multi) = &mut turn.session.multi {
        multi.broken = true;
    }
    turn.fail(command, error)
}

/// Whether a command may be guarded, here and by this user.
fn check(turn: &Turn, inner: &Command, guarded: Request) -> Result {
    let is_exec = matches!(inner.run, Run::Multi(Verb::Exec));
    match inner.run {
        Run::Data(command::Run::Blocking(_) | command::Run::Container) => return Err(NOT_GUARDED),
        Run::Data(_) | Run::Script(_) => {}
        Run::Multi(Verb::Exec) => {}
        Run::Multi(_) | Run::Session(_) | Run::Task(_) | Run::Container => return Err(NOT_GUARDED),
    }
    // (What is secret would be shown with GUARD.)
    if inner.spec.has(NO_MULTI) || inner.row.secrets != Secrets::None {
        return Err(NOT_GUARDED);
    }
    if turn.session.multi.is_some() && !is_exec {
        return Err(IN_MULTI);
    }
    if let Some(user) = rights::restricted(turn.session) {
        let who = (turn.session.peer.id, &**user);
        if let Some(denied) = rights::denied(turn.server, who, Context::TopLevel, inner, guarded) {
            return Err(no_permission(inner.full_name, denied));
        }
        rights::check_patterns(turn.server, user, inner, guarded)?;
    }
    Ok(())
}
