//! MEMORY: what keys take, and what everything else does.

use super::{container_spec, server_spec};
use crate::command;
use crate::command::spec::{Row, Spec, tip};
use crate::observe::{machine, memory};
use crate::resp::{Reply, Result};
use crate::server::facts::{Snapshot, human};
use crate::server::state::{Run, TaskCtx};
use std::fmt::Write;

pub const ROWS: &[Row<Run>] = &[Row::container(
    Spec { summary: "Groups questions about memory.", ..container_spec("memory", "4.0.0") },
    Run::Container,
    &[
        Row::new(command::memory::USAGE, Run::Data(command::Run::Key(command::memory::usage))),
        Row::new(
            Spec {
                summary: "Tells what memory is used for.",
                ..memory_spec("stats", "O(n) in the number of connections")
            },
            Run::Task(|ctx| Box::pin(stats(ctx))),
        )
        .tips(&[tip::NONDETERMINISTIC_OUTPUT, tip::ASK_ALL_SHARDS, tip::REPLY_SPECIAL]),
        Row::new(
            Spec {
                summary: "Says what is remarkable about memory.",
                ..memory_spec("doctor", "O(n) in the number of connections")
            },
            Run::Task(|ctx| Box::pin(doctor(ctx))),
        )
        .tips(&[tip::NONDETERMINISTIC_OUTPUT, tip::ASK_ALL_SHARDS, tip::REPLY_SPECIAL]),
        Row::new(
            Spec {
                summary: "Gives pages that nobody uses back to the system.",
                ..memory_spec("purge", "Depends on their number")
            },
            Run::Session(|ctx, _| {
                memory::purge();
                ctx.reply.ok();
                Ok(())
            }),
        )
        .tips(&[tip::ASK_ALL_SHARDS, tip::ALL_SUCCEEDED]),
        Row::new(
            Spec {
                summary: "Shows what the allocator tells of itself.",
                ..memory_spec("malloc-stats", "Depends on the allocator")
            },
            Run::Session(|ctx, _| {
                ctx.reply.verbatim("txt", &memory::allocator_report());
                Ok(())
            }),
        )
        .tips(&[tip::NONDETERMINISTIC_OUTPUT, tip::ASK_ALL_SHARDS, tip::REPLY_SPECIAL]),
    ],
)];

const fn memory_spec(name: &'static str, complexity: &'static str) -> Spec {
    server_spec(name, 2, 0, "4.0.0", complexity)
}

/// What is used, and what for, in bytes.
struct Used {
    all: u64,
    peak: u64,
    resident: u64,
    keyspace: u64,
    total: Snapshot,
}

impl Used {
    async fn of(ctx: &TaskCtx) -> Used {
        let (all, peak) = (memory::used_bytes(), memory::peak_bytes());
        let total = Snapshot::sum(&ctx.server.shard.call_all(|shard| Snapshot::take(shard, false)).await);
        Used { all, peak, resident: machine::resident_bytes(), keyspace: total.keyspace_bytes.min(all), total }
    }

    fn overhead(&self) -> u64 {
        self.all - self.keyspace
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

async fn stats(ctx: TaskCtx) -> Result<Vec<u8>> {
    let used = Used::of(&ctx).await;
    let (keys, total) = (used.total.keys() as u64, &used.total);
    let [lua, functions] = total.lua_bytes;
    let startup = memory::startup_bytes();
    let numbers = [
        ("peak.allocated", used.peak),
        ("total.allocated", used.all),
        ("startup.allocated", startup),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", total.client_bytes),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("lua.caches", lua),
        ("functions.caches", functions),
        ("overhead.total", used.overhead()),
        ("keys.count", keys),
        ("keys.bytes-per-key", used.all.saturating_sub(startup) / keys.max(1) * u64::from(keys > 0)),
        ("dataset.bytes", used.keyspace),
    ];
    let ratios = [
        ("dataset.percentage", share(used.keyspace, used.all.saturating_sub(startup)).min(1.0) * 100.0),
        ("peak.percentage", share(used.all, used.peak) * 100.0),
        ("fragmentation", share(used.resident, used.all)),
    ];
    let fragmentation_bytes = used.resident as i64 - used.all as i64;
    Ok(ctx.reply(|reply: &mut Reply| {
        reply.map(numbers.len() + ratios.len() + 1);
        for (name, bytes) in numbers {
            reply.bulk(name.as_bytes());
            reply.int(bytes as i64);
        }
        for (name, ratio) in ratios {
            reply.bulk(name.as_bytes());
            reply.double(ratio);
        }
        reply.bulk(b"fragmentation.bytes");
        reply.int(fragmentation_bytes);
    }))
}

/// Below this nothing is remarkable.
const LITTLE_BYTES: u64 = 5 << 20;

async fn doctor(ctx: TaskCtx) -> Result<Vec<u8>> {
    let used = Used::of(&ctx).await;
    let text = diagnosis(&used, ctx.server.shard.max_bytes());
    Ok(ctx.reply(|reply| reply.verbatim("txt", &text)))
}

fn diagnosis(used: &Used, max_bytes: u64) -> String {
    if used.all < LITTLE_BYTES {
        return "There is too little in memory for anything to be remarkable.\n".to_owned();
    }
    let mut text = String::new();
    let mut say = |applies: bool, what: String| {
        if applies {
            // Writing to a string does not fail.
            let _ = writeln!(text, "* {what}");
        }
    };
    say(
        used.peak > used.all / 2 * 3,
        format!("There was half as much again at some time: {}. Its pages may still be resident.", human(used.peak)),
    );
    say(
        used.resident > used.all / 10 * 14,
        format!(
            "{} are resident for {}: MEMORY PURGE gives back what nobody uses.",
            human(used.resident),
            human(used.all)
        ),
    );
    let client_bytes = used.total.client_bytes;
    say(
        client_bytes > used.all / 5,
        format!("Clients hold {} in buffers: CLIENT LIST shows who (omem, qbuf).", human(client_bytes)),
    );
    say(
        max_bytes > 0 && used.all > max_bytes / 100 * 95,
        format!("maxmemory ({}) is reached, or nearly: see evicted_keys in INFO.", human(max_bytes)),
    );
    if text.is_empty() {
        text.push_str("Nothing about memory is remarkable.\n");
    }
    text
}
