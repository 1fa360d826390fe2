//! Taking members from the ends of sorted sets, and waiting for some.

use super::{of_kind, take_ranks, view};
use crate::command::blocking::both_once;
use crate::command::blocking::{
    Blocking, Nil, Wait, WaitFn, any_is_enough, first_of, never, once, once_across, seconds,
};
use crate::command::spec::flag::{BLOCKING, FAST, MOVABLE_KEYS, NO_SCRIPT, WRITE};
use crate::command::spec::{Group, Keys, Row, Spec};
use crate::command::{Across, AcrossFn, Ctx, Handler, OwnedRequest, Run, reply_element};
use crate::keyspace::{Change, Event, Key, Kind};
use crate::resp::{Error, Proto, Request, Result};
use crate::value::number::parse_i64;
use crate::value::zset::View;
use std::future::Future;
use std::ops::{ControlFlow, Range};
use std::pin::Pin;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            summary: "Takes the members with the lowest scores and returns them.",
            ..popping("zpopmin", -2, "5.0.0", "key [count:integer]")
        },
        Run::Key(|ctx, request| pop_one_key(ctx, request, End::Min)),
    ),
    Row::new(
        Spec {
            summary: "Takes the members with the highest scores and returns them.",
            ..popping("zpopmax", -2, "5.0.0", "key [count:integer]")
        },
        Run::Key(|ctx, request| pop_one_key(ctx, request, End::Max)),
    ),
    Row::new(
        Spec {
            flags: WRITE | MOVABLE_KEYS,
            keys: Keys::COUNTED,
            summary: "Takes members from the first sorted set that has any.",
            ..popping("zmpop", -4, "7.0.0", "numkeys:integer key... where:(MIN|MAX) [COUNT count:integer]")
        },
        Run::Atomic(
            |ctx, request| once(ctx, request, never, zmpop, Nil::Array),
            |across| Box::pin(once_across(across, never, zmpop_across, Nil::Array)),
        ),
    ),
    Row::new(
        Spec {
            flags: WRITE | FAST | NO_SCRIPT | BLOCKING,
            keys: Keys::ALL_BUT_LAST,
            summary: "Takes the member with the lowest score from the first sorted set that has any, or waits for one.",
            ..popping("bzpopmin", -3, "5.0.0", "key... timeout:double")
        },
        Run::Blocking(waiting(
            last_is_timeout,
            (bzpopmin, |across| first_of(across, Keys::ALL_BUT_LAST, narrow_bzpop, bzpopmin)),
            both_once!(
                last_is_timeout,
                bzpopmin,
                |across| first_of(across, Keys::ALL_BUT_LAST, narrow_bzpop, bzpopmin),
                Nil::Array
            ),
            (Keys::ALL_BUT_LAST, narrow_bzpop),
        )),
    ),
    Row::new(
        Spec {
            flags: WRITE | FAST | NO_SCRIPT | BLOCKING,
            keys: Keys::ALL_BUT_LAST,
            summary: "Takes the member with the highest score from the first sorted set that has any, or waits for one.",
            ..popping("bzpopmax", -3, "5.0.0", "key... timeout:double")
        },
        Run::Blocking(waiting(
            last_is_timeout,
            (bzpopmax, |across| first_of(across, Keys::ALL_BUT_LAST, narrow_bzpop, bzpopmax)),
            both_once!(
                last_is_timeout,
                bzpopmax,
                |across| first_of(across, Keys::ALL_BUT_LAST, narrow_bzpop, bzpopmax),
                Nil::Array
            ),
            (Keys::ALL_BUT_LAST, narrow_bzpop),
        )),
    ),
    Row::new(
        Spec {
            flags: WRITE | MOVABLE_KEYS | BLOCKING,
            keys: Keys::COUNTED_LATER,
            summary: "Takes members from the first sorted set that has any, or waits for some.",
            ..popping(
                "bzmpop",
                -5,
                "7.0.0",
                "timeout:double numkeys:integer key... where:(MIN|MAX) [COUNT count:integer]",
            )
        },
        Run::Blocking(waiting(
            bzmpop_wait,
            (bzmpop, |across| first_of(across, Keys::COUNTED_LATER, narrow_bzmpop, bzmpop)),
            both_once!(
                bzmpop_wait,
                bzmpop,
                |across| first_of(across, Keys::COUNTED_LATER, narrow_bzmpop, bzmpop),
                Nil::Array
            ),
            (Keys::COUNTED_LATER, narrow_bzmpop),
        )),
    ),
];

type Narrow = fn(&mut Ctx, Request, usize) -> OwnedRequest;

/// How a command waits that pops from the first of its keys, which `narrow` puts into a request of its own.
const fn waiting(
    wait: WaitFn,
    attempt: (Handler, AcrossFn),
    once: (Handler, AcrossFn),
    (keys, narrow): (Keys, Narrow),
) -> Blocking {
    Blocking {
        wait,
        attempt,
        once,
        nil: Nil::Array,
        keys,
        kind: Kind::Zset,
        narrow,
        is_enough: any_is_enough,
        ends_with_key: false,
    }
}

const fn popping(name: &'static str, arity: i32, since: &'static str, syntax: &'static str) -> Spec {
    Spec {
        name,
        arity,
        flags: WRITE | FAST,
        keys: Keys::ONE,
        group: Group::SortedSet,
        since,
        complexity: "O(m log n) with m members taken",
        summary: "",
        syntax,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Min,
    Max,
}

impl End {
    fn event(self) -> Event {
        match self {
            End::Min => Event::ZPopMin,
            End::Max => Event::ZPopMax,
        }
    }

    /// The ranks of `count` members from this end on.
    fn ranks(self, view: View, count: usize) -> Range<usize> {
        let count = count.min(view.len());
        match self {
            End::Min => 0..count,
            End::Max => view.len() - count..view.len(),
        }
    }
}

/// How taken members are replied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// One behind the other, each with its score.
    Flat,
    /// An array of pairs.
    Pairs,
    /// The key and one member with its score.
    KeyAndItem,
    /// The key and an array of pairs.
    KeyAndPairs,
}

/// Takes up to `count` members, at least one, of a sorted set and replies; whether there is one.
fn pop(ctx: &mut Ctx, key: Key, end: End, count: usize, shape: Shape) -> Result<bool> {
    let wants_names = ctx.wants_elements(end.event());
    ctx.keyspace.thin_out_dead_elements(ctx.db, key, ctx.now);
    let Some(live) = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))? else { return Ok(false) };
    let (view, reply) = (view(&live), &mut ctx.reply);
    let ranks = end.ranks(view, count);
    let popped = ranks.len();
    match shape {
        Shape::Flat => reply.array(ranks.len() * 2),
        Shape::Pairs => reply.array(ranks.len()),
        Shape::KeyAndItem => reply.array(3),
        Shape::KeyAndPairs => reply.array(2),
    }
    if matches!(shape, Shape::KeyAndItem | Shape::KeyAndPairs) {
        reply.bulk(key.bytes);
    }
    if shape == Shape::KeyAndPairs {
        reply.array(ranks.len());
    }
    view.walk(ranks.clone(), end == End::Max, |member, score| {
        if matches!(shape, Shape::Pairs | Shape::KeyAndPairs) {
            reply.array(2);
        }
        reply_element(reply, member);
        reply.double(score);
        ControlFlow::Continue(())
    });
    let rest = take_ranks(live.edit(), ctx.limits.zset, ranks, wants_names);
    ctx.name_elements(end.event(), &rest.names);
    ctx.commit(key, Change::removal(end.event(), rest.is_gone));
    if !rest.propagate(ctx, key) {
        let name: &[u8] = if end == End::Min { b"ZPOPMIN" } else { b"ZPOPMAX" };
        ctx.propagate_with(&[name, key.bytes], popped as i64);
    }
    Ok(true)
}

fn pop_one_key(ctx: &mut Ctx, request: Request, end: End) -> Result {
    if request.len() > 3 {
        return Err(Error::Syntax);
    }
    let count = match request.get(2) {
        None => None,
        Some(text) => Some(
            parse_i64(text)
                .and_then(|count| usize::try_from(count).ok())
                .ok_or(Error::text("ERR value is out of range, must be positive"))?,
        ),
    };
    let key = ctx.key(request.arg(1));
    let shape = if count.is_some() && ctx.reply.proto == Proto::Resp3 { Shape::Pairs } else { Shape::Flat };
    let popped = if count == Some(0) {
        of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
        false
    } else {
        pop(ctx, key, end, count.unwrap_or(1), shape)?
    };
    if !popped {
        ctx.reply.array(0);
    }
    Ok(())
}

/// What ZMPOP and BZMPOP are asked for.
#[derive(Clone)]
struct PopFirst {
    /// Indexes of the keys.
    keys: Range<usize>,
    end: End,
    count: usize,
}

/// From the number of keys on.
fn parse_pop_first(request: Request, start: usize) -> Result<PopFirst> {
    let positive = |text: &[u8], error| parse_i64(text).filter(|n| *n >= 1).ok_or(Error::text(error));
    let keys = positive(request.arg(start), "ERR numkeys should be greater than 0")?;
    let first = start + 1;
    let after = usize::try_from(keys).ok().and_then(|keys| first.checked_add(keys));
    let after = after.filter(|after| *after < request.len()).ok_or(Error::Syntax)?;
    let end = match request.arg(after).to_ascii_lowercase().as_slice() {
        b"min" => End::Min,
        b"max" => End::Max,
        _ => return Err(Error::Syntax),
    };
    let mut count = None;
    for index in (after + 1..request.len()).step_by(2) {
        let text = request.get(index + 1).filter(|_| count.is_none() && request.is(index, "count"));
        count = Some(positive(text.ok_or(Error::Syntax)?, "ERR count should be greater than 0")?);
    }
    Ok(PopFirst { keys: first..after, end, count: usize::try_from(count.unwrap_or(1)).unwrap_or(usize::MAX) })
}

/// ZMPOP, which does not wait, where there may be nothing.
fn zmpop(ctx: &mut Ctx, request: Request) -> Result {
    let PopFirst { keys, end, count } = parse_pop_first(request, 1)?;
    for index in keys {
        if pop(ctx, ctx.other_key(request.arg(index)), end, count, Shape::KeyAndPairs)? {
            break;
        }
    }
    Ok(())
}

fn zmpop_across(across: Across) -> Pin<Box<dyn Future<Output = Result<Vec<u8>>>>> {
    Box::pin(async move {
        parse_pop_first(across.request.as_request(), 1)?;
        first_of(across, Keys::COUNTED, narrow_zmpop, zmpop).await
    })
}

/// The same for one of the keys.
fn narrow_zmpop(_: &mut Ctx, request: Request, index: usize) -> OwnedRequest {
    // The number was checked before.
    let keys = request.int(1).map_or(0, |keys| keys as usize);
    let head = [request.arg(0), b"1", request.arg(index)];
    OwnedRequest::from_args(head.into_iter().chain(request.from(2 + keys)))
}

fn last_is_timeout(request: Request) -> Result<Wait> {
    seconds(request.arg(request.len() - 1))
}

fn bzpop(ctx: &mut Ctx, request: Request, end: End) -> Result {
    for index in Keys::ALL_BUT_LAST.indexes(request) {
        if pop(ctx, ctx.other_key(request.arg(index)), end, 1, Shape::KeyAndItem)? {
            break;
        }
    }
    Ok(())
}

fn bzpopmin(ctx: &mut Ctx, request: Request) -> Result {
    bzpop(ctx, request, End::Min)
}

fn bzpopmax(ctx: &mut Ctx, request: Request) -> Result {
    bzpop(ctx, request, End::Max)
}

/// The same for one of the keys.
fn narrow_bzpop(_: &mut Ctx, request: Request, index: usize) -> OwnedRequest {
    let timeout = request.arg(request.len() - 1);
    OwnedRequest::from_args([request.arg(0), request.arg(index), timeout].into_iter())
}

fn bzmpop_wait(request: Request) -> Result<Wait> {
    parse_pop_first(request, 2)?;
    seconds(request.arg(1))
}

fn bzmpop(ctx: &mut Ctx, request: Request) -> Result {
    let PopFirst { keys, end, count } = parse_pop_first(request, 2)?;
    for index in keys {
        if pop(ctx, ctx.other_key(request.arg(index)), end, count, Shape::KeyAndPairs)? {
            break;
        }
    }
    Ok(())
}

/// The same for one of the keys.
fn narrow_bzmpop(_: &mut Ctx, request: Request, index: usize) -> OwnedRequest {
    // The number was checked before.
    let keys = request.int(2).map_or(0, |keys| keys as usize);
    let head = [request.arg(0), request.arg(1), b"1", request.arg(index)];
    OwnedRequest::from_args(head.into_iter().chain(request.from(3 + keys)))
}
