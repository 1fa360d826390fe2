//! LATENCY: how long commands take, and what took longer than `latency-monitor-threshold`.

mod spark;

use super::{container_spec, server_spec};
use crate::clock::realtime_us;
use crate::command::spec::flag::{ADMIN, LOADING, NO_SCRIPT, STALE};
use crate::command::spec::{Row, Spec, tip};
use crate::observe::{Event, Sample, Spikes, Statistics};
use crate::resp::{Error, Reply, Result, printable};
use crate::server::state::{Run, Server, TaskCtx};
use crate::shard::Shard;
use hdrhistogram::Histogram;
use std::collections::BTreeSet;
use std::rc::Rc;

const FLAGS: u32 = ADMIN | NO_SCRIPT | LOADING | STALE;

pub const ROWS: &[Row<Run>] = &[Row::container(
    Spec { summary: "Shows how long commands take, and what took very long.", ..container_spec("latency", "2.8.13") },
    Run::Container,
    &[
        Row::new(
            Spec {
                summary: "Shows for each command how many calls took how many microseconds at most.",
                syntax: "[command]...",
                ..server_spec("histogram", -2, FLAGS, "7.0.0", "O(n) in the number of commands with latencies")
            },
            Run::Task(|ctx| Box::pin(histogram(ctx))),
        )
        .tips(&[tip::NONDETERMINISTIC_OUTPUT, tip::ASK_ALL_NODES, tip::REPLY_SPECIAL]),
        Row::new(
            Spec { summary: "Shows the last and the longest spike of each kind of event.", ..spike_spec("latest", 2) },
            Run::Task(|ctx| Box::pin(latest(ctx))),
        )
        .tips(&[tip::NONDETERMINISTIC_OUTPUT, tip::ASK_ALL_NODES, tip::REPLY_SPECIAL]),
        Row::new(
            Spec {
                summary: "Shows the spikes of one kind of event: the longest of each second.",
                syntax: "event",
                ..spike_spec("history", 3)
            },
            Run::Task(|ctx| Box::pin(history(ctx))),
        )
        .tips(&[tip::NONDETERMINISTIC_OUTPUT, tip::ASK_ALL_NODES, tip::REPLY_SPECIAL]),
        Row::new(
            Spec { summary: "Draws them.", syntax: "event", ..spike_spec("graph", 3) },
            Run::Task(|ctx| Box::pin(graph(ctx))),
        )
        .tips(&[tip::NONDETERMINISTIC_OUTPUT, tip::ASK_ALL_NODES, tip::REPLY_SPECIAL]),
        Row::new(
            Spec { summary: "Says what they come to, and what to look at.", ..spike_spec("doctor", 2) },
            Run::Task(|ctx| Box::pin(doctor(ctx))),
        )
        .tips(&[tip::NONDETERMINISTIC_OUTPUT, tip::ASK_ALL_NODES, tip::REPLY_SPECIAL]),
        Row::new(
            Spec {
                summary: "Forgets the spikes of some kinds of events, or of all.",
                syntax: "[event]...",
                ..spike_spec("reset", -2)
            },
            Run::Task(|ctx| Box::pin(reset(ctx))),
        )
        .tips(&[tip::ASK_ALL_NODES, tip::ALL_SUCCEEDED]),
    ],
)];

const fn spike_spec(name: &'static str, arity: i32) -> Spec {
    server_spec(name, arity, FLAGS, "2.8.13", "O(1)")
}

/// The spikes of all shards.
async fn spikes(ctx: &TaskCtx) -> Spikes {
    let mut all = Spikes::default();
    let shards = ctx.server.shard.call_all(|shard| shard.meter.spikes().clone()).await;
    shards.iter().for_each(|shard| all.merge(shard));
    all
}

async fn latest(ctx: TaskCtx) -> Result<Vec<u8>> {
    let spikes = spikes(&ctx).await;
    let seen: Vec<(Event, Sample, u64)> =
        spikes.seen().filter_map(|(event, series)| Some((event, series.last()?, series.longest_ms))).collect();
    Ok(ctx.reply(|reply| {
        reply.array(seen.len());
        for (event, last, longest_ms) in seen {
            reply.array(4);
            reply.bulk(event.name().as_bytes());
            reply.int(last.time_s as i64);
            reply.int(last.ms as i64);
            reply.int(longest_ms as i64);
        }
    }))
}

async fn history(ctx: TaskCtx) -> Result<Vec<u8>> {
    let spikes = spikes(&ctx).await;
    let event = Event::named(ctx.request.as_request().arg(2));
    let samples: Vec<Sample> = event.map(|event| spikes.of(event).samples().collect()).unwrap_or_default();
    Ok(ctx.reply(|reply| {
        reply.array(samples.len());
        for sample in samples {
            reply.array(2);
            reply.int(sample.time_s as i64);
            reply.int(sample.ms as i64);
        }
    }))
}

async fn graph(ctx: TaskCtx) -> Result<Vec<u8>> {
    let spikes = spikes(&ctx).await;
    let name = ctx.request.as_request().arg(2);
    let event = Event::named(name).filter(|event| spikes.of(*event).last().is_some());
    let Some(event) = event else {
        return Err(Error::quoting(&[b"ERR No samples available for event '", printable(name, 128), b"'"]));
    };
    let text = spark::graph(event, spikes.of(event), realtime_us() / 1_000_000);
    Ok(ctx.reply(|reply| reply.verbatim("txt", &text)))
}

async fn doctor(ctx: TaskCtx) -> Result<Vec<u8>> {
    let spikes = spikes(&ctx).await;
    let threshold_ms = ctx.server.shard.config().latency_monitor_threshold_ms;
    let text = report(&spikes, threshold_ms, realtime_us() / 1_000_000);
    Ok(ctx.reply(|reply| reply.verbatim("txt", &text)))
}

async fn reset(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    let events: Vec<Event> = match request.len() {
        2 => Event::ALL.to_vec(),
        _ => {
            Event::ALL.into_iter().filter(|event| request.from(2).any(|name| name == event.name().as_bytes())).collect()
        }
    };
    let forget = move |shard: &Rc<Shard>| {
        let mut spikes = shard.meter.spikes();
        events.iter().copied().filter(|event| spikes.forget(*event)).collect::<Vec<Event>>()
    };
    let forgotten: BTreeSet<Event> = ctx.server.shard.call_all(forget).await.into_iter().flatten().collect();
    Ok(ctx.reply(|reply| reply.int(forgotten.len() as i64)))
}

/// What LATENCY DOCTOR says.
fn report(spikes: &Spikes, threshold_ms: u64, now_s: u64) -> String {
    if threshold_ms == 0 {
        return "Latency is not monitored: latency-monitor-threshold is 0. Set it to as many milliseconds as an event may \
                take, and look again later.\n"
            .to_owned();
    }
    let mut text = String::new();
    for (event, series) in spikes.seen() {
        let count = series.samples().len() as u64;
        let sum_ms: u64 = series.samples().map(|sample| sample.ms).sum();
        let first_s = series.samples().next().map_or(now_s, |sample| sample.time_s);
        let seconds_each = now_s.saturating_sub(first_s) / count;
        let mean_ms = sum_ms / count;
        let deviation_ms = series.samples().map(|sample| sample.ms.abs_diff(mean_ms)).sum::<u64>() / count;
        text += &format!(
            "{}: {count} latency spikes (average {mean_ms} ms, mean deviation {deviation_ms} ms, one in {seconds_each} s). \
             The longest took {} ms.\n",
            event.name(),
            series.longest_ms
        );
        text += match event {
            Event::Command => {
                "  Look at SLOWLOG GET for the commands: those that go over many elements (SORT, KEYS, LRANGE of \
                 everything) are better cut into pages with SCAN and its kin.\n"
            }
            Event::FastCommand => {
                "  These commands are short whatever the keys hold: the process was kept from running. Look for busy \
                 neighbours, swapping and virtual machines that are stopped (redis-cli --intrinsic-latency).\n"
            }
            Event::EvictionCycle => {
                "  Keys are evicted a few dozen at a time: the process was kept from running, or the keys are very large.\n"
            }
            Event::ExpireCycle => {
                "  A slice of the expiry cycle is short: the process was kept from running, or `expired` events go to \
                 very many subscribers.\n"
            }
            Event::ExpireDel => "  Deleting one key is short: the process was kept from running.\n",
        };
    }
    if text.is_empty() {
        return format!("No event has taken {threshold_ms} ms or more.\n");
    }
    text
}

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
