//! SLOWLOG: the logs of all shards as one.

use super::{container_spec, server_spec};
use crate::command::spec::flag::{ADMIN, LOADING, STALE};
use crate::command::spec::{Row, Spec, tip};
use crate::resp::{Error, Reply, Result};
use crate::server::state::slowlog::{Entry, newest};
use crate::server::state::{Run, Server, TaskCtx};
use crate::shard::Shard;
use std::rc::Rc;

const fn spec(name: &'static str, arity: i32) -> Spec {
    server_spec(name, arity, ADMIN | LOADING | STALE, "2.2.12", "O(n) in the number of entries")
}

pub const ROWS: &[Row<Run>] = &[Row::container(
    Spec {
        summary: "Shows commands that took long; slowlog-log-slower-than says how long.",
        ..container_spec("slowlog", "2.2.12")
    },
    Run::Container,
    &[
        Row::new(
            Spec {
                summary: "Shows the newest of them, ten if not said otherwise; -1 shows all.",
                syntax: "[count:integer]",
                ..spec("get", -2)
            },
            Run::Task(|ctx| Box::pin(get(ctx))),
        )
        .tips(&[tip::ASK_ALL_NODES, tip::NONDETERMINISTIC_OUTPUT]),
        Row::new(
            Spec { summary: "Returns how many there are.", ..spec("len", 2) },
            Run::Task(|ctx| Box::pin(len(ctx))),
        )
        .tips(&[tip::ASK_ALL_NODES, tip::AGG_SUM, tip::NONDETERMINISTIC_OUTPUT]),
        Row::new(Spec { summary: "Forgets all of them.", ..spec("reset", 2) }, Run::Task(|ctx| Box::pin(reset(ctx))))
            .tips(&[tip::ASK_ALL_NODES, tip::ALL_SUCCEEDED]),
    ],
)];

const DEFAULT_COUNT: usize = 10;

async fn get(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    if request.len() > 3 {
        return Err(Error::bad_subcommand("SLOWLOG", request.arg(1)));
    }
    let count = match request.get(2) {
        None => DEFAULT_COUNT,
        Some(_) => match request.int(2) {
            Ok(-1) => usize::MAX,
            Ok(count) if count >= 0 => usize::try_from(count).unwrap_or(usize::MAX),
            _ => return Err(Error::text("ERR count should be greater than or equal to -1")),
        },
    };
    let count = count.min(usize::try_from(ctx.server.shard.config().slowlog_max_len).unwrap_or(usize::MAX));
    let entries = newest(&ctx.server, count).await;
    Ok(ctx.reply(|reply| {
        reply.array(entries.len());
        entries.iter().for_each(|entry| write_entry(reply, entry));
    }))
}

fn write_entry(reply: &mut Reply, entry: &Entry) {
    reply.array(6);
    reply.int(entry.id as i64);
    reply.int(entry.time_s as i64);
    reply.int(entry.took_us as i64);
    reply.array(entry.args.len());
    entry.args.iter().for_each(|arg| reply.bulk(arg));
    reply.bulk(entry.addr.as_bytes());
    reply.bulk(&entry.name);
}

async fn len(ctx: TaskCtx) -> Result<Vec<u8>> {
    let of_shard = |shard: &Rc<Shard>| Server::of(shard).slowlog.borrow().ids().count() as u64;
    let all: u64 = ctx.server.shard.call_all(of_shard).await.into_iter().sum();
    let shown = all.min(ctx.server.shard.config().slowlog_max_len);
    Ok(ctx.reply(|reply| reply.int(shown as i64)))
}

async fn reset(ctx: TaskCtx) -> Result<Vec<u8>> {
    ctx.server.shard.call_all(|shard| Server::of(shard).slowlog.borrow_mut().clear()).await;
    Ok(ctx.reply(|reply| reply.ok()))
}
