//! Strings under several keys.

use super::spec::flag::{DENY_OOM, FAST, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec};
use super::strings::{reply_value, to_bytes};
use super::{Across, Ctx, Merge, Run};
use crate::config::NotifyFlags;
use crate::keyspace::{Kind, Touch, Value};
use crate::resp::{Error, Reply, Request, Result};
use crate::value::lcs::{LcsError, lcs, lcs_len};
use crate::value::number::parse_i64;

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
    ),
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
    ),
    Row::new(
        Spec {
            name: "msetnx",
            arity: -3,
            flags: WRITE | DENY_OOM,
            keys: Keys::PAIRS,
            group: Group::String,
            since: "1.0.1",
            complexity: "O(n) in the number of keys",
            summary: "Stores strings under several keys, all of them or, where one key exists, none.",
            syntax: "key_value:(key value)...",
        },
        Run::Atomic(msetnx, |across| Box::pin(msetnx_across(across))),
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
    for bytes in request.from(1) {
        let key = ctx.other_key(bytes);
        match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
            Some(live) if live.kind() == Kind::String => reply_value(&mut ctx.reply, live.value()),
            _ => ctx.reply.nil(),
        }
        ctx.end_item();
    }
    Ok(())
}

fn mset(ctx: &mut Ctx, request: Request) -> Result {
    for index in (1..request.len()).step_by(2) {
        let key = ctx.other_key(request.arg(index));
        ctx.keyspace.insert(ctx.db, key, Value::of(request.arg(index + 1)), None, ctx.now);
        ctx.changed(NotifyFlags::STRING, "set", key.bytes);
    }
    ctx.reply.ok();
    Ok(())
}

fn any_exists<'k>(ctx: &mut Ctx, mut keys: impl Iterator<Item = &'k [u8]>) -> bool {
    keys.any(|bytes| {
        let key = ctx.other_key(bytes);
        ctx.keyspace.find(ctx.db, key, ctx.now, Touch::Write).is_some()
    })
}

fn msetnx(ctx: &mut Ctx, request: Request) -> Result {
    if any_exists(ctx, request.from(1).step_by(2)) {
        ctx.reply.int(0);
        return Ok(());
    }
    let reply_start = ctx.reply.len();
    mset(ctx, request)?;
    ctx.reply.truncate(reply_start);
    ctx.reply.int(1);
    Ok(())
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

async fn msetnx_across(across: Across) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let mut of_shard: Vec<Pairs> = vec![Pairs::new(); across.hop.shards()];
    for index in (1..request.len()).step_by(2) {
        let (key, value) = (request.arg(index), request.arg(index + 1));
        of_shard[across.shard_of(key)].push((key.to_vec(), value.to_vec()));
    }
    let of_shard: Vec<(usize, Pairs)> =
        of_shard.into_iter().enumerate().filter(|(_, pairs)| !pairs.is_empty()).collect();
    for (shard, pairs) in &of_shard {
        let keys: Vec<Vec<u8>> = pairs.iter().map(|(key, _)| key.clone()).collect();
        if across.on(*shard, move |ctx| any_exists(ctx, keys.iter().map(|key| &key[..]))).await {
            return Ok(across.reply(|reply| reply.int(0)));
        }
    }
    for (shard, pairs) in of_shard {
        let store = move |ctx: &mut Ctx| {
            for (bytes, value) in &pairs {
                let key = ctx.other_key(bytes);
                ctx.keyspace.insert(ctx.db, key, Value::of(value), None, ctx.now);
                ctx.changed(NotifyFlags::STRING, "set", bytes);
            }
        };
        across.on(shard, store).await;
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

/// The string under a key, empty where there is none.
fn string_or_empty(ctx: &mut Ctx, bytes: &[u8]) -> Result<Vec<u8>> {
    let key = ctx.other_key(bytes);
    match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        None => Ok(Vec::new()),
        Some(live) if live.kind() != Kind::String => {
            Err(Error::text("ERR The specified keys must contain string values"))
        }
        Some(live) => Ok(to_bytes(live.value())),
    }
}

fn lcs_here(ctx: &mut Ctx, request: Request) -> Result {
    let a = string_or_empty(ctx, request.arg(1))?;
    let b = string_or_empty(ctx, request.arg(2))?;
    let options = parse_lcs(request)?;
    reply_lcs(&mut ctx.reply, &a, &b, &options, ctx.max_string_bytes)
}

async fn lcs_across(across: Across) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let mut strings = Vec::new();
    for index in [1, 2] {
        let key = request.arg(index).to_vec();
        let shard = across.shard_of(&key);
        strings.push(across.on(shard, move |ctx| string_or_empty(ctx, &key)).await?);
    }
    let options = parse_lcs(request)?;
    let mut out = Vec::new();
    reply_lcs(&mut Reply::new(&mut out, across.proto), &strings[0], &strings[1], &options, across.max_string_bytes)?;
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
