//! LIVE: results that are told again whenever they change.

use super::{container_spec, server_spec};
use crate::command::spec::flag::{DENY_OOM, LOADING, NO_MULTI, NO_SCRIPT, READ, STALE, SUBSCRIBED};
use crate::command::spec::{Row, Spec};
use crate::keyspace::Aspect;
use crate::resp::{Error, Request, Result};
use crate::server::client::live::{NAMES_DEFAULT, NAMES_MAX, Question};
use crate::server::run::rights::may_reach;
use crate::server::state::{Run, SessionCtx, TaskCtx};
use crate::server::told::live;

pub const ROWS: &[Row<Run>] = &[Row::container(
    Spec {
        summary: "Groups live queries, whose results are told again whenever they change.",
        ..container_spec("live", "0.1.0")
    },
    Run::Container,
    &[
        Row::new(
            Spec { summary: "Counts the keys with a prefix.", syntax: "prefix", ..asking("count", 3) },
            Run::Task(|ctx| Box::pin(start(ctx, |_| Ok(Aspect::Count)))),
        ),
        Row::new(
            Spec {
                summary: "Counts the keys with a prefix, and names some of them.",
                syntax: "prefix [LIMIT limit:integer]",
                ..asking("keys", -3)
            },
            Run::Task(|ctx| Box::pin(start(ctx, keys))),
        ),
        Row::new(
            Spec {
                summary: "Lists the live queries of this connection.",
                complexity: "O(n) in the number of its live queries",
                ..spec("list", 2, LOADING | STALE)
            },
            Run::Session(list),
        ),
        Row::new(
            Spec {
                summary: "Names the keys with a prefix that die next, with their deadlines.",
                syntax: "prefix count:integer",
                ..asking("next", 4)
            },
            Run::Task(|ctx| Box::pin(start(ctx, |request| names(request, 3).map(Aspect::Next)))),
        ),
        Row::new(
            Spec {
                summary: "Ends a live query of this connection.",
                syntax: "id:integer",
                complexity: "O(n) in the number of connections that ask the same",
                ..spec("stop", 3, LOADING | STALE)
            },
            Run::Session(stop),
        ),
        Row::new(
            Spec {
                summary: "Adds up the bytes of the keys with a prefix.",
                syntax: "prefix unit:(BYTES)",
                ..asking("sum", 4)
            },
            Run::Task(|ctx| Box::pin(start(ctx, sum))),
        ),
    ],
)];

const fn spec(name: &'static str, arity: i32, flags: u32) -> Spec {
    server_spec(name, arity, flags | NO_SCRIPT | SUBSCRIBED, "0.1.0", "")
}

/// One that begins a live query.
const fn asking(name: &'static str, arity: i32) -> Spec {
    Spec {
        complexity: "O(n) in the number of keys, in slices, unless somebody asks the same already; O(1) for each change",
        ..spec(name, arity, READ | NO_MULTI | DENY_OOM)
    }
}

/// Every change of a key asks for each length of a prefix that is no longer than its name.
const PREFIX_BYTES_MAX: usize = 1024;

async fn start(ctx: TaskCtx, aspect: fn(Request) -> Result<Aspect>) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    let (prefix, aspect) = (request.arg(2), aspect(request)?);
    if prefix.len() > PREFIX_BYTES_MAX {
        return Err(Error::err(format_args!("a prefix has no more than {PREFIX_BYTES_MAX} bytes")));
    }
    // Who is told of changes learns that there are keys, and their names.
    may_reach(&ctx, prefix, |selector| selector.reads_prefix(prefix))?;
    let question = Question { db: ctx.db, prefix: prefix.into(), aspect };
    let (id, result) = live::start(&ctx.server, &ctx.client, question).await?;
    Ok(ctx.reply(|reply| {
        reply.array(2);
        reply.int(id as i64);
        reply.raw(&result);
    }))
}

fn keys(request: Request) -> Result<Aspect> {
    match request.len() {
        3 => Ok(Aspect::Names(NAMES_DEFAULT)),
        5 if request.is(3, "limit") => names(request, 4).map(Aspect::Names),
        _ => Err(Error::Syntax),
    }
}

fn sum(request: Request) -> Result<Aspect> {
    if request.is(3, "bytes") { Ok(Aspect::Bytes) } else { Err(Error::Syntax) }
}

/// How many names are to be shown.
fn names(request: Request, index: usize) -> Result<usize> {
    let names = usize::try_from(request.int(index)?).ok().filter(|names| (1..=NAMES_MAX).contains(names));
    names.ok_or(Error::err(format_args!("a live query shows 1 to {NAMES_MAX} names")))
}

fn list(ctx: &mut SessionCtx, _: Request) -> Result {
    let reply = &mut ctx.reply;
    reply.array(ctx.session.live.len());
    for query in ctx.session.live.iter() {
        let question = &query.question;
        reply.map(4 + usize::from(question.names().is_some()));
        reply.bulk(b"id");
        reply.int(query.id as i64);
        reply.bulk(b"query");
        reply.bulk(question.name().as_bytes());
        reply.bulk(b"db");
        reply.int(question.db as i64);
        reply.bulk(b"prefix");
        reply.bulk(&question.prefix);
        if let Some(names) = question.names() {
            reply.bulk(b"limit");
            reply.int(names as i64);
        }
    }
    Ok(())
}

fn stop(ctx: &mut SessionCtx, request: Request) -> Result {
    let id = u64::try_from(request.int(2)?).ok();
    match id.is_some_and(|id| live::stop(ctx.server, ctx.session, id)) {
        true => ctx.reply.ok(),
        false => return Err(Error::text("ERR no such live query")),
    }
    Ok(())
}
