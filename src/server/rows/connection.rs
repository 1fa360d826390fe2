//! What a connection agrees on with the server: HELLO, AUTH, SELECT, RESET, and PING, ECHO, QUIT.

use super::client::set_name;
use crate::acl::log::{Context, Reason};
use crate::acl::{DEFAULT, Login};
use crate::clock::store_us;
use crate::command::keys::parse_db;
use crate::command::spec::flag::{ALLOW_BUSY, FAST, LOADING, NO_AUTH, NO_SCRIPT, STALE, SUBSCRIBED, TELLS_HEALTH};
use crate::command::spec::{Group, Keys, Row, Secrets, Spec, tip};
use crate::resp::{Error, Proto, Request, Result, printable};
use crate::server::client::session::Close;
use crate::server::run::guess;
use crate::server::run::watch::unwatch;
use crate::server::state::guesses::Wait;
use crate::server::state::{Run, SessionCtx};
use crate::server::told::live;
use crate::server::told::monitor;
use crate::server::told::pubsub::publish_counts;
use crate::server::told::tracking;
use crate::server::wire::journal;

/// Also for strangers, and in whatever state the server is.
const ALWAYS: u32 = NO_SCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            summary: "Answers PONG, or the message.",
            syntax: "[message]",
            ..connection_spec("ping", -1, FAST | SUBSCRIBED | TELLS_HEALTH, "1.0.0")
        },
        Run::Session(ping),
    )
    .tips(&[tip::ASK_ALL_SHARDS, tip::ALL_SUCCEEDED]),
    Row::new(
        Spec {
            summary: "Answers the message.",
            syntax: "message",
            ..connection_spec("echo", 2, LOADING | STALE | FAST, "1.0.0")
        },
        Run::Session(echo),
    ),
    Row::new(
        Spec { summary: "Ends the connection.", ..connection_spec("quit", -1, ALWAYS | SUBSCRIBED, "1.0.0") },
        Run::Session(quit),
    ),
    Row::new(
        Spec {
            summary: "Takes the connection back to the state of a new one.",
            complexity: "O(n) in the number of channels and patterns listened to",
            ..connection_spec("reset", 1, ALWAYS | SUBSCRIBED, "6.2.0")
        },
        Run::Session(reset),
    ),
    Row::new(
        Spec {
            summary: "Chooses the database of this connection.",
            syntax: "index:integer",
            ..connection_spec("select", 2, LOADING | STALE | FAST, "1.0.0")
        },
        Run::Session(select),
    ),
    Row::new(
        Spec {
            summary: "Shows the password.",
            complexity: "O(n) in the length of the password",
            syntax: "[username] password",
            ..connection_spec("auth", -2, ALWAYS, "1.0.0")
        },
        Run::Session(auth),
    )
    .hiding(Secrets::From(1)),
    Row::new(
        Spec {
            summary: "Greets the server, and chooses the version of the protocol.",
            syntax: "[arguments:(protover:integer [AUTH username_password:(username password)] [SETNAME clientname])]",
            ..connection_spec("hello", -1, ALWAYS, "6.0.0")
        },
        Run::Session(hello),
    )
    .hiding(Secrets::Hello),
];

const fn connection_spec(name: &'static str, arity: i32, flags: u32, since: &'static str) -> Spec {
    Spec {
        name,
        arity,
        flags,
        keys: Keys::NONE,
        group: Group::Connection,
        since,
        complexity: "O(1)",
        summary: "",
        syntax: "",
    }
}

fn ping(ctx: &mut SessionCtx, request: Request) -> Result {
    if request.len() > 2 {
        return Err(Error::WrongArity("ping".to_owned()));
    }
    let message = request.get(1);
    if ctx.session.listens() && ctx.session.proto == Proto::Resp2 {
        ctx.reply.array(2);
        ctx.reply.bulk(b"pong");
        ctx.reply.bulk(message.unwrap_or_default());
        return Ok(());
    }
    match message {
        Some(message) => ctx.reply.bulk(message),
        None => ctx.reply.simple("PONG"),
    }
    Ok(())
}

fn echo(ctx: &mut SessionCtx, request: Request) -> Result {
    ctx.reply.bulk(request.arg(1));
    Ok(())
}

fn quit(ctx: &mut SessionCtx, _: Request) -> Result {
    ctx.session.close = Close::AfterReplies;
    ctx.reply.ok();
    Ok(())
}

fn reset(ctx: &mut SessionCtx, _: Request) -> Result {
    let session = &mut *ctx.session;
    ctx.server.pubsub.borrow_mut().remove_all(session);
    publish_counts(ctx.server);
    monitor::end(ctx.server, session);
    journal::end(ctx.server, session);
    tracking::end(ctx.server, session);
    live::end(ctx.server, session);
    unwatch(&ctx.server.shard, session.watched.take());
    session.reset(ctx.server.users.get().default_user());
    if !session.authenticated {
        ctx.server.strangers.add(session.peer.id, store_us());
    }
    ctx.reply.simple("RESET");
    Ok(())
}

fn select(ctx: &mut SessionCtx, request: Request) -> Result {
    ctx.session.db = parse_db(request.arg(1), ctx.server.shard.config().databases)?;
    ctx.reply.ok();
    Ok(())
}

fn auth(ctx: &mut SessionCtx, request: Request) -> Result {
    match request.len() {
        2 if ctx.server.users.get().default_user().has_no_password() => {
            return Err(Error::text(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ));
        }
        2 => authenticate(ctx, (request.arg(0), DEFAULT), request.arg(1))?,
        3 => authenticate(ctx, (request.arg(0), request.arg(1)), request.arg(2))?,
        _ => return Err(Error::Syntax),
    }
    ctx.reply.ok();
    Ok(())
}

/// Becomes a user. Who fails stays who they were.
fn authenticate(ctx: &mut SessionCtx, (command, name): (&[u8], &[u8]), password: &[u8]) -> Result {
    let users = ctx.server.users.get();
    let source = guess::source(ctx.server, ctx.session);
    // Elsewhere it has waited before it was run.
    let is_looked_at =
        !ctx.in_exec || source.is_none_or(|source| ctx.server.global.guesses.wait(source, store_us()) == Wait::No);
    match users.get(name) {
        Some(user) if is_looked_at && user.log_in(password) == Login::Welcome => {
            ctx.session.set_user(user.clone());
            ctx.session.authenticated = true;
            ctx.server.strangers.remove(ctx.session.peer.id);
            Ok(())
        }
        _ => {
            if let Some(source) = source {
                ctx.server.global.guesses.note_and_tell(source, store_us());
            }
            let is_queued = ctx.in_exec || ctx.session.multi.is_some();
            let context = if is_queued { Context::Multi } else { Context::TopLevel };
            ctx.server.note_refused(ctx.session.peer.id, name, context, Reason::Login, command);
            Err(Error::WrongPass)
        }
    }
}

fn hello(ctx: &mut SessionCtx, request: Request) -> Result {
    let proto = if request.len() > 1 { protocol_version(request)? } else { ctx.session.proto };
    let mut at = 2;
    while at < request.len() {
        // One after the other: what comes before a mistake has taken effect.
        let more = request.len() - at - 1;
        if request.is(at, "auth") && more >= 2 {
            authenticate(ctx, (request.arg(0), request.arg(at + 1)), request.arg(at + 2))?;
            at += 3;
        } else if request.is(at, "setname") && more >= 1 {
            set_name(ctx.session, request.arg(at + 1))?;
            at += 2;
        } else {
            let option = printable(request.arg(at), usize::MAX);
            return Err(Error::quoting(&[b"ERR Syntax error in HELLO option '", option, b"'"]));
        }
    }
    if !ctx.session.authenticated && ctx.server.users.asks_for_password() {
        return Err(Error::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> \
             <pass> option can be used to authenticate the client and select the RESP protocol version at the same \
             time",
        ));
    }
    ctx.session.proto = proto;
    ctx.reply.proto = proto;
    describe_server(ctx);
    Ok(())
}

fn protocol_version(request: Request) -> Result<Proto> {
    match request.int(1) {
        Ok(2) => Ok(Proto::Resp2),
        Ok(3) => Ok(Proto::Resp3),
        Ok(_) => Err(Error::NoProto),
        Err(_) => Err(Error::text("ERR Protocol version is not an integer or out of range")),
    }
}

fn describe_server(ctx: &mut SessionCtx) {
    let version = ctx.server.shard.config().redis_version.to_string();
    let reply = &mut ctx.reply;
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(version.as_bytes());
    reply.bulk(b"proto");
    reply.int(if ctx.session.proto == Proto::Resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.int(ctx.session.peer.id as i64);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
}
