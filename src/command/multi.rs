//! Strings under several keys.

use super::compare::Condition;
use super::deadlines::Deadline;
use super::spec::flag::{DENY_OOM, FAST, MOVABLE_KEYS, NO_RENEWAL, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec, tip};
use super::strings::{as_bytes, len, parse_options, propagate_set, reply_value, set_dead};
use super::{Across, Ctx, Merge, ReplyLength, Run};
use crate::clock::Now;
use crate::config::Limits;
use crate::keyspace::{Change, Event, Key, Keyspace, Kind, Stored, Touch, Value};
use crate::resp::{Error, Reply, Request, Result};
use crate::value::lcs::{LcsError, check_limit, lcs, lcs_len};
use crate::value::number::{I64_TEXT_BYTES_MAX, parse_i64};
use std::sync::Arc;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            name: "mget",
            arity: -2,
            flags: READ | FAST,
            keys: Keys::ALL,
            group: Group::String,
            since: "1.0.0",
            complexity: "O(n) in the number of keys",
            summary: "Returns the strings under several keys.",
            syntax: "key...",
        },
        Run::Spread(mget, Merge::Items),
    )
    .tips(&[tip::ASK_MULTI_SHARD]),
    Row::new(
        Spec {
            name: "mset",
            arity: -3,
            flags: WRITE | DENY_OOM,
            keys: Keys::PAIRS,
            group: Group::String,
            since: "1.0.1",
            complexity: "O(n) in the number of keys",
            summary: "Stores strings under several keys.",
            syntax: "key_value:(key value)...",
        },
        Run::Spread(mset, Merge::Ok),
    )
    .tips(&[tip::ASK_MULTI_SHARD, tip::ALL_SUCCEEDED]),
    Row::new(
        Spec {
            name: "msetnx",
            arity: -3,
            flags: WRITE | DENY_OOM | NO_RENEWAL,
            keys: Keys::PAIRS,
            group: Group::String,
            since: "1.0.1",
            complexity: "O(n) in the number of keys",
            summary: "Stores strings under several keys, all of them or, where one key exists, none.",
            syntax: "key_value:(key value)...",
        },
        Run::Atomic(
            |ctx, request| set_many_here(ctx, request, parse_msetnx),
            |across| Box::pin(set_many_across(across, parse_msetnx)),
        ),
    )
    .tips(&[tip::ASK_MULTI_SHARD, tip::AGG_MIN]),
    Row::new(
        Spec {
            name: "msetex",
            arity: -4,
            flags: WRITE | DENY_OOM | MOVABLE_KEYS,
            keys: Keys::COUNTED_PAIRS,
            group: Group::String,
            since: "8.4.0",
            complexity: "O(n) in the number of keys",
            summary: "Stores strings under several keys with one deadline; on a condition, all of them or none.",
            syntax: "numkeys:integer data:(key value)... [condition:(NX|XX)] [expiration:(EX seconds:integer|PX \
                     milliseconds:integer|EXAT unix-time-seconds:unix-time|PXAT \
                     unix-time-milliseconds:unix-time|KEEPTTL)]",
        },
        Run::Atomic(
            |ctx, request| set_many_here(ctx, request, parse_msetex),
            |across| Box::pin(set_many_across(across, parse_msetex)),
        ),
    ),
    Row::new(
        Spec {
            name: "lcs",
            arity: -3,
            flags: READ,
            keys: Keys::TWO,
            group: Group::String,
            since: "7.0.0",
            complexity: "O(n m) in the lengths of the two strings",
            summary: "Finds the longest common subsequence of two strings.",
            syntax: "key1:key key2:key [LEN] [IDX] [MINMATCHLEN len:integer] [WITHMATCHLEN]",
        },
        Run::Atomic(lcs_here, |across| Box::pin(lcs_across(across))),
    ),
];

fn mget(ctx: &mut Ctx, request: Request) -> Result {
    let mut length = ReplyLength::new(&ctx.reply, ctx.limits);
    for (nth, bytes) in request.from(1).enumerate() {
        let key = ctx.other_key(bytes);
        // (What is not told any more is used nevertheless.)
        match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
            _ if length.is_too_long() => {}
            Some(live) if live.kind() == Kind::String => reply_value(&mut ctx.reply, live.value()),
            _ => ctx.reply.nil(),
        }
        ctx.end_item();
        if length.is_unclear(&ctx.reply) {
            let len_of = |bytes: &[u8]| match ctx.keyspace.peek(ctx.db, ctx.keyspace.hasher().key(bytes), ctx.now) {
                Some(Stored::String(value)) => len(value),
                _ => 0,
            };
            length.add_up(&ctx.reply, request.from(2 + nth).map(len_of));
        }
    }
    length.check()
}

fn mset(ctx: &mut Ctx, request: Request) -> Result {
    for index in (1..request.len()).step_by(2) {
        let key = ctx.other_key(request.arg(index));
        ctx.keyspace.insert(ctx.db, key, Value::of(request.arg(index + 1)), None, ctx.now);
        ctx.commit(key, Event::Set);
    }
    ctx.reply.ok();
    Ok(())
}

/// MSETNX and MSETEX, as their arguments say.
struct ManySets {
    pairs: std::iter::StepBy<std::ops::Range<usize>>,
    condition: Option<Condition>,
    keep_ttl: bool,
    deadline: Option<Deadline>,
}

fn parse_msetnx(_: &Ctx, request: Request) -> Result<ManySets> {
    let pairs = (1..request.len()).step_by(2);
    Ok(ManySets { pairs, condition: Some(Condition::Absent), keep_ttl: false, deadline: None })
}

fn parse_msetex(ctx: &Ctx, request: Request) -> Result<ManySets> {
    let count = parse_i64(request.arg(1)).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let end = 2 + 2 * count.ok_or(Error::text("ERR invalid numkeys value"))? as usize;
    if end > request.len() {
        return Err(Error::text("ERR wrong number of key-value pairs"));
    }
    let options = parse_options(request, end, false)?;
    if options.get || !matches!(options.condition, None | Some(Condition::Absent | Condition::Present)) {
        return Err(Error::Syntax);
    }
    let deadline = options.expiry.map(|expiry| expiry.positive_deadline(ctx, request, "msetex")).transpose()?;
    Ok(ManySets { pairs: (2..end).step_by(2), condition: options.condition, keep_ttl: options.keep_ttl, deadline })
}

impl ManySets {
    /// Whether all keys have deadlines afterwards that must have some. Every shard can say it of those of all.
    fn check_deadlines(&self, ctx: &Ctx, request: Request) -> Result {
        let has_deadline = self.deadline.is_some();
        self.pairs.clone().try_for_each(|index| ctx.check_deadline(request.arg(index), has_deadline))
    }

    /// Whether the condition holds for all keys of which `mine` says so.
    fn holds(&self, ctx: &mut Ctx, request: Request, mine: impl Fn(Key) -> bool) -> bool {
        let Some(condition) = self.condition else { return true };
        let touch = if condition == Condition::Absent { ctx.touch.without_renewal() } else { ctx.touch };
        self.pairs.clone().all(|index| {
            let key = ctx.other_key(request.arg(index));
            let found = |ctx: &mut Ctx| ctx.keyspace.find(ctx.db, key, ctx.now, touch).is_some();
            !mine(key) || found(ctx) == (condition == Condition::Present)
        })
    }

    fn store(&self, ctx: &mut Ctx, request: Request, mine: impl Fn(Key) -> bool) {
        for index in self.pairs.clone() {
            let key = ctx.other_key(request.arg(index));
            if !mine(key) {
                continue;
            }
            if self.deadline.is_some_and(|deadline| deadline.is_past(ctx.now)) {
                set_dead(ctx, key);
                continue;
            }
            let mut kept =
                || ctx.keyspace.find(ctx.db, key, ctx.now, Touch::NOTHING).and_then(|live| live.deadline_ms());
            let deadline_ms = match self.deadline {
                Some(deadline) => Some(deadline.store_ms()),
                None if self.keep_ttl => kept(),
                None => None,
            };
            ctx.keyspace.insert(ctx.db, key, Value::of(request.arg(index + 1)), deadline_ms, ctx.now);
            ctx.commit_dated(key, Change::of(Event::Set).and_if(self.deadline.is_some(), Event::Expire), deadline_ms);
            propagate_set(ctx, key, request.arg(index + 1), deadline_ms);
        }
    }
}

type ParseSets = fn(&Ctx, Request) -> Result<ManySets>;

fn set_many_here(ctx: &mut Ctx, request: Request, parse: ParseSets) -> Result {
    let sets = parse(ctx, request)?;
    sets.check_deadlines(ctx, request)?;
    let holds = sets.holds(ctx, request, |_| true);
    if holds {
        sets.store(ctx, request, |_| true);
    }
    ctx.reply.int(i64::from(holds));
    Ok(())
}

/// Each shard looks at its own keys, then stores them, at the transaction's one moment: so all of them come to the same
/// deadline, and to the same error.
async fn set_many_across(across: Across, parse: ParseSets) -> Result<Vec<u8>> {
    let request = Arc::new(across.request.clone());
    let keys = across.keys;
    let shards = across.shards_of(keys.indexes(request.as_request()).map(|index| request.as_request().arg(index)));
    let look = {
        let request = request.clone();
        move |ctx: &mut Ctx, shard: usize| {
            let hasher = ctx.keyspace.hasher().clone();
            let mine = |key: Key| hasher.shard_of(key) == shard;
            let sets = parse(ctx, request.as_request())?;
            sets.check_deadlines(ctx, request.as_request())?;
            let holds = sets.holds(ctx, request.as_request(), mine);
            if holds && sets.condition.is_none() {
                sets.store(ctx, request.as_request(), mine);
            }
            Ok((holds, sets.condition.is_none()))
        }
    };
    let mut done = false;
    for looked in across.on_all(&shards, look).await {
        let (holds, stored) = looked?;
        if !holds {
            return Ok(across.reply(|reply| reply.int(0)));
        }
        done = stored;
    }
    if !done {
        let store = move |ctx: &mut Ctx, shard: usize| {
            let hasher = ctx.keyspace.hasher().clone();
            if let Ok(sets) = parse(ctx, request.as_request()) {
                sets.store(ctx, request.as_request(), |key| hasher.shard_of(key) == shard);
            }
        };
        across.on_all(&shards, store).await;
    }
    Ok(across.reply(|reply| reply.int(1)))
}

/// What LCS is asked for.
struct LcsOptions {
    len: bool,
    idx: bool,
    min_match_len: usize,
    with_match_len: bool,
}

fn parse_lcs(request: Request) -> Result<LcsOptions> {
    let mut options = LcsOptions { len: false, idx: false, min_match_len: 0, with_match_len: false };
    let mut index = 3;
    while index < request.len() {
        if request.is(index, "idx") {
            options.idx = true;
        } else if request.is(index, "len") {
            options.len = true;
        } else if request.is(index, "withmatchlen") {
            options.with_match_len = true;
        } else if request.is(index, "minmatchlen") && index + 1 < request.len() {
            index += 1;
            let min = parse_i64(request.arg(index)).ok_or(Error::NotAnInteger)?;
            options.min_match_len = usize::try_from(min).unwrap_or(0);
        } else {
            return Err(Error::Syntax);
        }
        index += 1;
    }
    if options.idx && options.len {
        return Err(Error::text("ERR If you want both the length and indexes, please just use IDX."));
    }
    Ok(options)
}

/// The length of the string under a key, 0 where there is none.
fn len_of_string(ctx: &mut Ctx, bytes: &[u8]) -> Result<usize> {
    let key = ctx.other_key(bytes);
    match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        None => Ok(0),
        Some(live) if live.kind() != Kind::String => {
            Err(Error::text("ERR The specified keys must contain string values"))
        }
        Some(live) => Ok(len(live.value())),
    }
}

/// What LCS is asked for, where strings of these lengths are not too long for it: they are not read before.
fn lcs_options(request: Request, lens: [usize; 2], limits: &Limits) -> Result<LcsOptions> {
    let options = parse_lcs(request)?;
    check_limit(lens[0], lens[1], limits.string_bytes as u64).map_err(Error::err)?;
    Ok(options)
}

/// A string that was looked at, empty where there is none.
fn string_or_empty<'v>(
    keyspace: &'v Keyspace,
    db: usize,
    now: Now,
    key: &[u8],
    text: &'v mut [u8; I64_TEXT_BYTES_MAX],
) -> &'v [u8] {
    match keyspace.peek(db, keyspace.hasher().key(key), now) {
        Some(Stored::String(value)) => as_bytes(value, text),
        _ => b"",
    }
}

fn lcs_here(ctx: &mut Ctx, request: Request) -> Result {
    let lens = [len_of_string(ctx, request.arg(1))?, len_of_string(ctx, request.arg(2))?];
    let options = lcs_options(request, lens, ctx.limits)?;
    let mut texts = [[0; I64_TEXT_BYTES_MAX]; 2];
    let [a, b] = &mut texts;
    let a = string_or_empty(ctx.keyspace, ctx.db, ctx.now, request.arg(1), a);
    let b = string_or_empty(ctx.keyspace, ctx.db, ctx.now, request.arg(2), b);
    reply_lcs(&mut ctx.reply, a, b, &options, ctx.limits.string_bytes)
}

async fn lcs_across(across: Across) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let keys = [1, 2].map(|index| (across.shard_of(request.arg(index)), request.arg(index).to_vec()));
    let mut lens = [0; 2];
    for (len, (shard, key)) in lens.iter_mut().zip(keys.clone()) {
        *len = across.on(shard, move |ctx| len_of_string(ctx, &key)).await?;
    }
    let options = lcs_options(request, lens, &across.limits)?;
    let mut strings = Vec::new();
    for (shard, key) in keys {
        let read = move |ctx: &mut Ctx| {
            string_or_empty(ctx.keyspace, ctx.db, ctx.now, &key, &mut [0; I64_TEXT_BYTES_MAX]).to_vec()
        };
        strings.push(across.on(shard, read).await);
    }
    let mut out = Vec::new();
    reply_lcs(&mut Reply::new(&mut out, across.proto), &strings[0], &strings[1], &options, across.limits.string_bytes)?;
    Ok(out)
}

fn reply_lcs(reply: &mut Reply, a: &[u8], b: &[u8], options: &LcsOptions, max_bytes: usize) -> Result {
    let refused = |error: LcsError| Error::err(error);
    let limit_bytes = max_bytes as u64;
    if options.len {
        reply.int(lcs_len(a, b, limit_bytes).map_err(refused)? as i64);
        return Ok(());
    }
    let found = lcs(a, b, limit_bytes).map_err(refused)?;
    if !options.idx {
        reply.bulk(&found.text);
        return Ok(());
    }
    let matches: Vec<_> = found.matches.iter().filter(|one| one.len >= options.min_match_len).collect();
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(matches.len());
    for one in matches {
        reply.array(if options.with_match_len { 3 } else { 2 });
        for (start, end) in [(one.a_start, one.a_end()), (one.b_start, one.b_end())] {
            reply.array(2);
            reply.int(start as i64);
            reply.int(end as i64);
        }
        if options.with_match_len {
            reply.int(one.len as i64);
        }
    }
    reply.bulk(b"len");
    reply.int(found.text.len() as i64);
    Ok(())
}
