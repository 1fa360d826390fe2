//! Whole databases: counting, listing, walking and emptying them.

use super::scanning::{Own, Page, ScanOptions, Walk};
use super::spec::flag::{FAST, NO_TOUCH, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec, tip};
use super::{Across, Ctx, Merge, Run};
use crate::keyspace::{Cursor, Kind};
use crate::resp::{Error, Request, Result};
use crate::value::glob::glob_match;
use crate::value::number::{parse_i64, parse_u64};

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            name: "dbsize",
            arity: 1,
            flags: READ | FAST,
            keys: Keys::NONE,
            group: Group::Server,
            since: "1.0.0",
            complexity: "O(1), and O(n) in the number of dead keys not deleted yet",
            summary: "Counts the live keys of the database.",
            syntax: "",
        },
        Run::Everywhere(dbsize, Merge::Sum),
    )
    .tips(&[tip::ASK_ALL_SHARDS, tip::AGG_SUM]),
    Row::new(
        Spec {
            name: "keys",
            arity: 2,
            flags: READ,
            keys: Keys::NONE,
            group: Group::Generic,
            since: "1.0.0",
            complexity: "O(n) in the number of keys of the database",
            summary: "Lists the keys that match a pattern.",
            syntax: "pattern:pattern",
        },
        Run::Everywhere(keys, Merge::Concat),
    )
    .tips(&[tip::ASK_ALL_SHARDS, tip::NONDETERMINISTIC_OUTPUT_ORDER]),
    Row::new(
        Spec {
            name: "scan",
            arity: -2,
            flags: READ | NO_TOUCH,
            keys: Keys::NONE,
            group: Group::Generic,
            since: "2.8.0",
            complexity: "O(1) a call, O(n) for a whole walk",
            summary: "Walks the keys of the database: every key that is there throughout is returned exactly once.",
            syntax: "cursor:integer [MATCH pattern:pattern] [COUNT count:integer] [TYPE type]",
        },
        Run::Cursor(|ctx, request| SCAN.run(ctx, request), |across| Box::pin(SCAN.run_across(across))),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT, tip::ASK_SPECIAL]),
    Row::new(
        Spec {
            name: "randomkey",
            arity: 1,
            flags: READ | NO_TOUCH,
            keys: Keys::NONE,
            group: Group::Generic,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Returns a live key chosen at random.",
            syntax: "",
        },
        Run::Coordinated(|across| Box::pin(randomkey(across))),
    )
    .tips(&[tip::ASK_ALL_SHARDS, tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        Spec {
            name: "flushdb",
            summary: "Deletes all keys of the database at once; their memory is given back in slices.",
            ..FLUSH
        },
        Run::Everywhere(|ctx, request| flush(ctx, request, false), Merge::Ok),
    )
    .tips(&[tip::ASK_ALL_SHARDS, tip::ALL_SUCCEEDED]),
    Row::new(
        Spec {
            name: "flushall",
            summary: "Deletes all keys of all databases at once; their memory is given back in slices.",
            ..FLUSH
        },
        Run::Everywhere(|ctx, request| flush(ctx, request, true), Merge::Ok),
    )
    .tips(&[tip::ASK_ALL_SHARDS, tip::ALL_SUCCEEDED]),
    Row::new(
        Spec {
            name: "swapdb",
            arity: 3,
            flags: WRITE | FAST,
            keys: Keys::NONE,
            group: Group::Server,
            since: "4.0.0",
            complexity: "O(1) on each shard, and O(n) in the number of watched keys",
            summary: "Lets two databases change places: who uses one sees the other's keys.",
            syntax: "index1:integer index2:integer",
        },
        Run::Everywhere(swap, Merge::Ok),
    ),
];

const FLUSH: Spec = Spec {
    name: "",
    arity: -1,
    flags: WRITE,
    keys: Keys::NONE,
    group: Group::Server,
    since: "1.0.0",
    complexity: "O(1), then O(n) in the background",
    summary: "",
    syntax: "[async:(ASYNC|SYNC)]",
};

fn dbsize(ctx: &mut Ctx, _: Request) -> Result {
    ctx.reply.int(ctx.keyspace.live_len(ctx.db, ctx.now) as i64);
    Ok(())
}

fn keys(ctx: &mut Ctx, request: Request) -> Result {
    let pattern = request.arg(1);
    let Ctx { keyspace, reply, ends, .. } = ctx;
    keyspace.for_each(ctx.db, ctx.now, |key, _, _| {
        // The matcher says no to `*` and the empty key; KEYS * means all.
        if pattern == b"*" || glob_match(pattern, key, false) {
            reply.bulk(key);
            ends.push(reply.len());
        }
    });
    Ok(())
}

fn flush(ctx: &mut Ctx, request: Request, all: bool) -> Result {
    if request.len() > 2 || request.len() == 2 && !request.is(1, "async") && !request.is(1, "sync") {
        return Err(Error::Syntax);
    }
    let dbs = if all { 0..ctx.keyspace.databases() } else { ctx.db..ctx.db + 1 };
    for db in dbs {
        ctx.keyspace.flush(db, ctx.now);
    }
    ctx.keyspace.was_emptied |= all;
    ctx.propagate_whole(request);
    ctx.reply.ok();
    Ok(())
}

fn swap(ctx: &mut Ctx, request: Request) -> Result {
    let parse = |index, error| parse_i64(request.arg(index)).filter(|db| i32::try_from(*db).is_ok()).ok_or(error);
    let first = parse(1, Error::text("ERR invalid first DB index"))?;
    let second = parse(2, Error::text("ERR invalid second DB index"))?;
    let databases = ctx.keyspace.databases();
    let in_range = |db: i64| usize::try_from(db).ok().filter(|db| *db < databases).ok_or(Error::DbOutOfRange);
    ctx.keyspace.swap(in_range(first)?, in_range(second)?, ctx.now);
    ctx.propagate_whole(request);
    ctx.reply.ok();
    Ok(())
}

/// The shard a SCAN inside of a transaction goes on with; what cannot be parsed is answered by any.
pub fn cursor_shard(request: Request, shards: usize) -> usize {
    let at = if request.is(0, "scan") { 1 } else { 2 };
    let cursor = request.get(at).and_then(parse_u64).unwrap_or(0);
    Some(Cursor::from_u64(cursor).shard).filter(|shard| *shard < shards).unwrap_or(0)
}

const SCAN: Walk =
    Walk { cursor_at: 1, options: |request| ScanOptions::parse(request, 2, Own::Type), look: look_at_keys };

fn look_at_keys(page: &mut Page, ctx: &Ctx, cursor: Cursor, count: usize, options: &ScanOptions) {
    let is_wanted = |key: &[u8], found: Kind| {
        options.kind.is_none_or(|kind| kind.eq_ignore_ascii_case(found.name().as_bytes())) && options.matches(key)
    };
    let Page { next, seen, found } = page;
    *next = ctx.keyspace.scan(ctx.db, cursor, count, ctx.shards, ctx.now, |key, kind| {
        *seen += 1;
        if is_wanted(key, kind) {
            found.push(key.to_vec());
        }
    });
}

/// A shard is drawn by the number of its live keys, then one of them.
async fn randomkey(mut across: Across) -> Result<Vec<u8>> {
    let mut weights = Vec::new();
    for shard in 0..across.hop.shards() {
        weights.push(across.on(shard, |ctx| ctx.keyspace.live_len(ctx.db, ctx.now)).await);
    }
    while weights.iter().sum::<usize>() > 0 {
        let mut draw = across.rng.usize(..weights.iter().sum::<usize>());
        let mut shard = 0;
        while draw >= weights[shard] {
            draw -= weights[shard];
            shard += 1;
        }
        let pick = |ctx: &mut Ctx| ctx.keyspace.random(ctx.db, ctx.rng, ctx.now).map(<[u8]>::to_vec);
        if let Some(key) = across.on(shard, pick).await {
            return Ok(across.reply(|reply| reply.bulk(&key)));
        }
        // Emptied since it was counted.
        weights[shard] = 0;
    }
    Ok(across.reply(|reply| reply.nil()))
}
