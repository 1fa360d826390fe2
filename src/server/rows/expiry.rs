//! EXPIRY: what operators ask and do about deadlines.

use super::advisor;
use super::container_spec;
use super::policy;
use crate::command::spec::flag::{ADMIN, LOADING, NO_SCRIPT, NO_TOUCH, READ, STALE, WRITE};
use crate::command::spec::{Group, Keys, Row, Spec};
use crate::command::{self, groups};
use crate::config::format_duration;
use crate::expiry::foresight::{BOUNDS_MS, Forecast, Gather, Histogram, View};
use crate::expiry::{KEYS_A_SLICE, purge_slice};
use crate::keyspace::DeadWalk;
use crate::net::{sleep, step_back_in_turn};
use crate::resp::{Error, Result};
use crate::server::facts::{Snapshot, foresight};
use crate::server::state::{Run, TaskCtx};
use crate::shard::{HELD_FOR, Shard};
use std::rc::Rc;
use std::time::Duration;

pub const ROWS: &[Row<Run>] = &[Row::container(
    Spec { summary: "Groups what an operator asks and does about deadlines.", ..container_spec("expiry", "0.1.0") },
    Run::Container,
    &[
        Row::new(
            Spec {
                summary: "Says what other lifetimes of the keys with a prefix would change, in hits and bytes.",
                syntax: "prefix",
                ..spec("advise", 3, READ | NO_SCRIPT, "O(1) in the number of keys: O(n) in the size of a sample")
            },
            Run::Task(|ctx| Box::pin(advisor::advise(ctx))),
        ),
        Row::new(
            Spec {
                summary: "Follows the keys with a prefix, so that EXPIRY ADVISE can speak of them, ends that, or lists what is \
                          followed.",
                syntax: "action:(on:(ON prefix [LIFETIMES lifetime...])|OFF prefix|LIST)",
                ..spec("advisor", -3, ADMIN | NO_SCRIPT, "O(1)")
            },
            Run::Task(|ctx| Box::pin(advisor::advisor(ctx))),
        ),
        Row::new(
            Spec {
                summary: "Counts the keys, and their bytes, that die within a time from now.",
                syntax: "duration [PREFIX prefix]",
                ..spec("forecast", -3, READ | NO_SCRIPT, "O(n) in the number of keys, in slices")
            },
            Run::Task(|ctx| Box::pin(forecast(ctx))),
        ),
        on_data(groups::ADD),
        on_data(groups::DATE),
        on_data(groups::EVENTS),
        on_data(groups::EXPIRE),
        on_data(groups::KILL),
        on_data(groups::LIST),
        on_data(groups::MEMBERS),
        on_data(groups::OF),
        on_data(groups::OWN),
        on_data(groups::PERSIST),
        on_data(groups::PTTL),
        on_data(groups::REM),
        on_data(groups::TOLD),
        on_data(groups::TOUCH),
        on_data(groups::TTL),
        Row::new(
            Spec {
                summary: "Shows how many keys have how long to live.",
                syntax: "[PREFIX prefix]",
                ..spec("histogram", -2, READ | NO_SCRIPT, "O(n) in the number of keys, in slices")
            },
            Run::Task(|ctx| Box::pin(histogram(ctx))),
        ),
        Row::new(
            Spec {
                summary: "Says how long the keys with a prefix live, shows what was said, or takes it back.",
                syntax: "action:(set:(SET prefix life:(duration|NONE) [MAX max] [JITTER percent] [sliding:(SLIDING [LAST last])] \
                         [REQUIRE] [NOEVICT] [STALE stale] [events:(EVENTS stream [WITHVALUE] [MAXLEN maxlen:integer])] \
                         [APPLY])|GET prefix|LIST|DEL prefix)",
                ..spec(
                    "policy",
                    -3,
                    ADMIN | NO_SCRIPT,
                    "O(1) in the number of keys; with APPLY O(n), in slices; LIST is O(n) in the number of policies",
                )
            },
            Run::Task(|ctx| Box::pin(policy::policy(ctx))),
        ),
        Row::new(
            Spec {
                summary: "Deletes the dead keys that are not deleted yet, all or those with a prefix, and counts them.",
                syntax: "[PREFIX prefix]",
                ..spec("purge", -2, WRITE | NO_SCRIPT, "O(n) in the number of dead keys, in slices")
            },
            Run::Task(|ctx| Box::pin(purge(ctx))),
        ),
        Row::new(
            Spec {
                summary: "Walks the keys whose deadlines are after a moment and not after another: every one that is there \
                          throughout is returned exactly once.",
                syntax: "cursor:integer [BEFORE before] [AFTER after] [PREFIX prefix] [COUNT count:integer] [WITHDEADLINES]",
                ..spec("scan", -3, READ | NO_TOUCH, "O(1) a call, O(n) for a whole walk")
            },
            Run::Data(command::Run::Coordinated(|across| Box::pin(command::foresight::scan(across)))),
        ),
        Row::new(
            Spec {
                summary: "Tells what became of deadlines, on all shards together: of all keys, or of those with a prefix.",
                syntax: "[prefix]",
                ..spec(
                    "stats",
                    -2,
                    LOADING | STALE | NO_SCRIPT,
                    "O(1), and O(n) in the number of dead keys not deleted yet; with a prefix O(n) in the number of keys, \
                     in slices",
                )
            },
            Run::Task(|ctx| Box::pin(stats(ctx))),
        ),
    ],
)];

/// A row of the command room.
const fn on_data(row: Row<command::Run>) -> Row<Run> {
    row.run_by(Run::Data(row.run))
}

const fn spec(name: &'static str, arity: i32, flags: u32, complexity: &'static str) -> Spec {
    Spec {
        name,
        arity,
        flags,
        keys: Keys::NONE,
        group: Group::Server,
        since: "0.1.0",
        complexity,
        summary: "",
        syntax: "",
    }
}

/// The prefix at the end of a request, from this index on; empty where there is none.
fn prefix(ctx: &TaskCtx, from: usize) -> Result<Box<[u8]>> {
    let request = ctx.request.as_request();
    match request.len() - from {
        0 => Ok(Box::default()),
        2 if request.is(from, "prefix") => Ok(request.arg(from + 1).into()),
        _ => Err(Error::Syntax),
    }
}

async fn forecast(ctx: TaskCtx) -> Result<Vec<u8>> {
    let within_ms = ctx.request.as_request().duration(2)?;
    let prefix = prefix(&ctx, 3)?;
    let forecast: Forecast = gather(&ctx, Some(within_ms), prefix).await;
    Ok(ctx.reply(|reply| {
        reply.map(2);
        reply.bulk(b"keys");
        reply.int(forecast.keys as i64);
        reply.bulk(b"bytes");
        reply.int(forecast.bytes as i64);
    }))
}

async fn histogram(ctx: TaskCtx) -> Result<Vec<u8>> {
    let prefix = prefix(&ctx, 2)?;
    let histogram: Histogram = gather(&ctx, None, prefix).await;
    let (shortest_ms, longest_ms) = histogram.extremes_ms().unzip();
    let or_none = |ms: Option<u64>| ms.map_or(-1, |ms| ms as i64);
    Ok(ctx.reply(|reply| {
        reply.map(6);
        for (name, number) in [
            ("keys_with_deadline", histogram.mortal() as i64),
            ("keys_without_deadline", histogram.immortal as i64),
            ("shortest_ms", or_none(shortest_ms)),
            ("average_ms", or_none(histogram.average_ms())),
            ("longest_ms", or_none(longest_ms)),
        ] {
            reply.bulk(name.as_bytes());
            reply.int(number);
        }
        reply.bulk(b"remaining");
        reply.map(histogram.buckets.len());
        for (index, keys) in histogram.buckets.iter().enumerate() {
            let bound = BOUNDS_MS.get(index).map_or("longer".to_owned(), |bound_ms| format_duration(*bound_ms));
            reply.bulk(bound.as_bytes());
            reply.int(*keys as i64);
        }
    }))
}

/// What all shards find from one moment on.
async fn gather<G: Gather>(ctx: &TaskCtx, within_ms: Option<u64>, prefix: Box<[u8]>) -> G {
    let shard = &ctx.server.shard;
    foresight::look(shard, View { db: ctx.db, prefix, from: shard.clock.refresh(), within_ms }).await
}

async fn stats(ctx: TaskCtx) -> Result<Vec<u8>> {
    match ctx.request.as_request().len() {
        2 => {}
        3 => return Ok(policy::stats(ctx).await),
        _ => return Err(Error::Syntax),
    }
    let shards = ctx.server.shard.call_all(|shard| Snapshot::take(shard, false)).await;
    let (total, settings) = (Snapshot::sum(&shards), ctx.server.shard.settings());
    let expiry = &total.expiry;
    let facts = [
        ("keys", total.keys() as u64),
        ("keys_with_deadline", total.with_deadline() as u64),
        ("expired_by_access", total.counters.expired_by_access),
        ("expired_by_cycle", total.counters.expired_by_cycle),
        ("expired_bytes", total.counters.expired_bytes),
        ("stale_keys", expiry.stale_keys as u64),
        ("average_ttl_ms", total.average_ttl_ms() as u64),
        ("lag_p50_us", expiry.lag_us(0.5)),
        ("lag_p99_us", expiry.lag_us(0.99)),
        ("lag_max_us", expiry.lag_max_us()),
        ("cycle_enabled", u64::from(settings.enabled)),
        ("cycle_interval_ms", settings.interval_ms),
        ("cycle_cpu_us", expiry.cycle_cpu_ns / 1000),
        ("time_caps_reached", expiry.time_caps),
        ("events_written", total.counters.deaths_written),
        ("events_lost", total.counters.deaths_lost),
        ("events_waiting", total.deaths_waiting as u64),
    ];
    Ok(ctx.reply(|reply| {
        reply.map(facts.len());
        for (name, number) in facts {
            reply.bulk(name.as_bytes());
            reply.int(number as i64);
        }
    }))
}

async fn purge(ctx: TaskCtx) -> Result<Vec<u8>> {
    let prefix = match ctx.request.as_request().len() {
        2 => None,
        _ => Some(prefix(&ctx, 2)?),
    };
    let waits = !ctx.in_exec;
    let deleted: usize =
        ctx.server.shard.call_all_later(move |shard| purge_shard(shard, prefix, waits)).await.into_iter().sum();
    Ok(ctx.reply(|reply| reply.int(deleted as i64)))
}

/// Deletes what is dead now, in slices between which the shard serves. What dies meanwhile is left to the cycle, so
/// that this ends. Whoever holds everything is waited for, and so is room for deaths that are on their way to their
/// streams, unless it may be the caller itself that holds everything, or such a stream: then what is dead is left to the
/// cycle. The end of a pause that has begun since is waited for in the same way, but not that of a server that has become a
/// replica meanwhile.
async fn purge_shard(shard: Rc<Shard>, prefix: Option<Box<[u8]>>, waits: bool) -> usize {
    let dead_ms = shard.catch_up().ms;
    let (mut walk, mut deleted) = (DeadWalk::default(), 0);
    loop {
        while shard.keyspace.borrow().deaths.is_full() {
            if !waits || shard.is_following() {
                return deleted;
            }
            // They are written to their streams first.
            sleep(Duration::from_millis(1)).await;
        }
        let mut now = match shard.cycle_now() {
            Some(now) if !shard.stands_still(shard.clock.now()) => now,
            _ if waits && !shard.is_following() => {
                sleep(HELD_FOR).await;
                continue;
            }
            _ => return deleted,
        };
        now.ms = now.ms.min(dead_ms);
        let swept = match &prefix {
            None => purge_slice(&mut shard.keyspace.borrow_mut(), now),
            Some(prefix) => shard.keyspace.borrow_mut().sweep_prefix(&mut walk, prefix, now, KEYS_A_SLICE),
        };
        shard.after_commands();
        let Some(swept) = swept else { return deleted };
        deleted += swept;
        step_back_in_turn().await;
    }
}
