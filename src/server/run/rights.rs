//! What a connection's user may do, asked wherever a request is about to run: at its dispatch and queueing (by the
//! conditions), at EXEC once more, for what a script calls, for what waits.

use crate::acl::log::{Context, Reason};
use crate::acl::{Denied, PatternOption, Selector, User};
use crate::command::spec::SortPattern;
use crate::command::{self, Ctx, Handler};
use crate::resp::{Error, Request, Result};
use crate::server::admit::user::NO_KEY;
use crate::server::client::session::Session;
use crate::server::state::{Command, Run, Server, TaskCtx};
use std::sync::Arc;

/// Why the user of a session may not run a request, if so; noted for the log.
pub fn denied(
    server: &Server,
    (client, user): (u64, &User),
    context: Context,
    command: &Command,
    request: Request,
) -> Option<Denied> {
    let denied = user.check(&server.global.users.vocabulary, command.id, request).err()?;
    server.note_denied((client, &user.name), context, denied, (command.id, request));
    Some(denied)
}

/// The user of a session, where anything is asked of it.
pub fn restricted(session: &Session) -> Option<&Arc<User>> {
    session.user.as_ref().filter(|_| session.is_restricted)
}

/// The error of a request that names keys by patterns (SORT), where its user may not read all of them. It is asked when
/// the request runs.
pub fn check_patterns(server: &Server, user: &User, command: &Command, request: Request) -> Result {
    let checked = user.check_patterns(&server.global.users.vocabulary, command.id, request);
    checked.map_err(|option| Error::text(of_option(option)))
}

const fn of_option(option: PatternOption) -> &'static str {
    match option {
        SortPattern::By => "ERR BY option of SORT denied due to insufficient ACL permissions.",
        SortPattern::Get => "ERR GET option of SORT denied due to insufficient ACL permissions.",
    }
}

/// Whether the user of a task may do something with a key, or with keys, that its request does not name as such: whether
/// one selector of the user's allows the request and that.
pub fn may_reach(ctx: &TaskCtx, key: &[u8], allows: impl Fn(&Selector) -> bool) -> Result {
    let state = ctx.client.state.borrow();
    let (vocabulary, request) = (&ctx.server.global.users.vocabulary, ctx.request.as_request());
    match restricted(&state.session) {
        Some(user) if !user.reaches(vocabulary, ctx.command, request, allows) => {
            let context = if ctx.in_exec { Context::Multi } else { Context::TopLevel };
            ctx.server.note_refused(ctx.client.id, &user.name, context, Reason::Key, key);
            Err(NO_KEY)
        }
        _ => Ok(()),
    }
}

/// Whether a queued command may not run any more; nothing is noted of that.
pub fn is_refused_in_exec(server: &Server, session: &Session, command: &Command, request: Request) -> bool {
    let vocabulary = &server.global.users.vocabulary;
    restricted(session).is_some_and(|user| {
        user.check(vocabulary, command.id, request).is_err()
            || user.check_patterns(vocabulary, command.id, request).is_err()
    })
}

/// What answers a queued command that may not run any more, in its place.
pub fn refusal_in_exec(server: &Server, session: &Session, command: &Command, request: Request) -> Option<Handler> {
    let user = restricted(session)?;
    let denied = denied(server, (session.peer.id, user), Context::Multi, command, request);
    let refusal: Handler = match denied {
        Some(Denied::Command) => |_, _| Err(Error::text(NO_COMMAND)),
        Some(Denied::Key(_)) => |_, _| Err(Error::text(NO_KEYS)),
        Some(Denied::Channel(_)) => |_, _| Err(Error::text(NO_CHANNELS)),
        None => match user.check_patterns(&server.global.users.vocabulary, command.id, request) {
            Ok(()) => return None,
            Err(SortPattern::By) => by_pattern,
            Err(SortPattern::Get) => get_pattern,
        },
    };
    Some(refusal)
}

fn by_pattern(_: &mut Ctx, _: Request) -> Result {
    Err(Error::text(of_option(SortPattern::By)))
}

fn get_pattern(_: &mut Ctx, _: Request) -> Result {
    Err(Error::text(of_option(SortPattern::Get)))
}

/// A handler that refuses, as the way a command runs.
pub fn refusing(handler: Handler) -> Run {
    Run::Data(command::Run::Key(handler))
}

macro_rules! changed {
    ($reason:literal) => {
        concat!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command ",
            "is no longer allowed for the following reason: ",
            $reason
        )
    };
}

const NO_COMMAND: &str = changed!("no permission to execute the command or subcommand");
const NO_KEYS: &str = changed!("no permission to touch the specified keys");
const NO_CHANNELS: &str = changed!("no permission to access one of the channels used as arguments");
