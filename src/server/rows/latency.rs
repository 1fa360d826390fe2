//! LATENCY: how long commands take.

use super::{container_spec, server_spec};
use crate::command::spec::flag::{ADMIN, LOADING, NO_SCRIPT, STALE};
use crate::command::spec::{Row, Spec};
use crate::observe::Statistics;
use crate::resp::{Reply, Result};
use crate::server::{Run, Server, TaskCtx};
use hdrhistogram::Histogram;
use std::collections::BTreeSet;

const FLAGS: u32 = ADMIN | NO_SCRIPT | LOADING | STALE;

pub const ROWS: &[Row<Run>] = &[Row::container(
    Spec { summary: "Shows how long commands take.", ..container_spec("latency", "2.8.13") },
    Run::Container,
    &[Row::new(
        Spec {
            summary: "Shows for each command how many calls took how many microseconds at most.",
            syntax: "[command]...",
            ..server_spec("histogram", -2, FLAGS, "7.0.0", "O(n) in the number of commands with latencies")
        },
        Run::Task(|ctx| Box::pin(histogram(ctx))),
    )],
)];

/// The first level of a histogram, in nanoseconds; each of the others is twice the one before. As in Redis.
const FIRST_LEVEL_NS: u64 = 1024;

async fn histogram(ctx: TaskCtx) -> Result<Vec<u8>> {
    let shards = ctx.server.shard.call_all(|shard| shard.meter.statistics().clone()).await;
    let mut all = Statistics::default();
    shards.iter().for_each(|shard| all.add(shard));
    let wanted = named(&ctx.server, &ctx);
    let is_wanted = |command: usize| wanted.as_ref().is_none_or(|wanted| wanted.contains(&command));
    let shown: Vec<_> = all
        .commands()
        .filter(|(command, _)| is_wanted(*command))
        .filter_map(|(command, calls)| Some((command, calls.latency.as_ref().filter(|latency| !latency.is_empty())?)))
        .collect();
    Ok(ctx.reply(|reply| {
        reply.map(shown.len());
        for (command, latency) in shown {
            reply.bulk(ctx.server.table.at(command).full_name.as_bytes());
            write_histogram(reply, latency);
        }
    }))
}

/// The commands that were asked for, a container's subcommands included; None for all.
fn named(server: &Server, ctx: &TaskCtx) -> Option<BTreeSet<usize>> {
    let request = ctx.request.as_request();
    if request.len() == 2 {
        return None;
    }
    let mut wanted = BTreeSet::new();
    for name in request.from(2) {
        if let Some((command, _)) = server.table.by_full_name(name) {
            wanted.insert(command.id.index());
            wanted.extend(command.subcommands().map(|id| id.index()));
        }
    }
    Some(wanted)
}

fn write_histogram(reply: &mut Reply, latency: &Histogram<u64>) {
    let mut levels: Vec<(u64, u64)> = Vec::new();
    let (mut level_ns, mut before) = (FIRST_LEVEL_NS, 0);
    while before < latency.len() {
        let highest_ns = latency.highest_equivalent(level_ns);
        let calls = latency.count_between(0, highest_ns);
        if calls > before {
            levels.push((highest_ns / 1_000, calls));
            before = calls;
        }
        level_ns *= 2;
    }
    reply.map(2);
    reply.bulk(b"calls");
    reply.int(latency.len() as i64);
    reply.bulk(b"histogram_usec");
    reply.map(levels.len());
    for (us, calls) in levels {
        reply.int(us as i64);
        reply.int(calls as i64);
    }
}
