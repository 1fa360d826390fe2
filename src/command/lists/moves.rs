//! From one list to another, and from the first of several that has elements.

use super::ends::{drop_from, pop_to_reply, popped, propagate_pop, push_texts, pushed};
use super::{find, limit, view};
use crate::command::blocking::{self, Wait};
use crate::command::spec::Keys;
use crate::command::{Across, Ctx, OwnedRequest};
use crate::keyspace::{Change, Key, Live};
use crate::resp::{Error, Reply, Request, Result};
use crate::value::list::End;
use crate::value::number::parse_i64;
use std::future::Future;
use std::pin::Pin;

/// What LMOVE, RPOPLPUSH and their blocking forms are asked for.
#[derive(Clone, Copy)]
struct Move {
    from: End,
    to: End,
}

pub(super) fn parse_end(word: &[u8]) -> Result<End> {
    match word.to_ascii_lowercase().as_slice() {
        b"left" => Ok(End::Front),
        b"right" => Ok(End::Back),
        _ => Err(Error::Syntax),
    }
}

fn end_name(end: End) -> &'static [u8] {
    if end == End::Front { b"LEFT" } else { b"RIGHT" }
}

/// RPOPLPUSH and BRPOPLPUSH say no ends.
fn is_without_ends(request: Request) -> bool {
    request.len() < 5
}

fn parse_move(request: Request) -> Result<Move> {
    if is_without_ends(request) {
        return Ok(Move { from: End::Back, to: End::Front });
    }
    Ok(Move { from: parse_end(request.arg(3))?, to: parse_end(request.arg(4))? })
}

/// The element at an end of a list; `None` where there is no list.
fn peek(ctx: &mut Ctx, key: Key, end: End) -> Result<Option<Vec<u8>>> {
    let Some(live) = find(ctx, key)? else { return Ok(None) };
    let view = view(&live);
    let index = if end == End::Front { 0 } else { view.len() - 1 };
    Ok(view.get(index, |element| element.to_vec()))
}

/// Pushes the element; first, since the lists may be the same.
fn put(ctx: &mut Ctx, key: Key, text: &[u8], end: End) -> Result {
    ctx.check_kept_deadline(key)?;
    push_texts(ctx, key, std::iter::once(text), end, false)?;
    ctx.commit(key, pushed(end));
    Ok(())
}

/// Takes the element that was pushed elsewhere. It is behind another one where it was pushed to the same end.
fn take(ctx: &mut Ctx, key: Key, end: End) -> Result {
    let limit = limit(ctx);
    if let Some(live) = find(ctx, key)?.map(Live::edit) {
        let is_gone = drop_from(live, end, 1, limit);
        ctx.commit(key, Change::removal(popped(end), is_gone));
    }
    Ok(())
}

/// The timeout of BLMOVE and BRPOPLPUSH; what they are asked for comes first.
pub(super) fn move_wait(request: Request) -> Result<Wait> {
    parse_move(request)?;
    blocking::seconds(request.arg(request.len() - 1))
}

pub(super) fn try_move(ctx: &mut Ctx, request: Request) -> Result {
    let Move { from, to } = parse_move(request)?;
    let (source, destination) = (ctx.key(request.arg(1)), ctx.other_key(request.arg(2)));
    if let Some(text) = peek(ctx, source, from)? {
        put(ctx, destination, &text, to)?;
        take(ctx, source, from)?;
        // As Redis does: RPOPLPUSH and BRPOPLPUSH have a command of their own, which servers before 6.2 know.
        match is_without_ends(request) {
            true => ctx.propagate(&[b"RPOPLPUSH", source.bytes, destination.bytes]),
            false => ctx.propagate(&[b"LMOVE", source.bytes, destination.bytes, end_name(from), end_name(to)]),
        }
        ctx.reply.bulk(&text);
    }
    Ok(())
}

pub(super) fn try_move_across(across: Across) -> Pin<Box<dyn Future<Output = Result<Vec<u8>>>>> {
    Box::pin(move_across(across))
}

/// Both keys are held, so that nobody sees the moment between the steps.
async fn move_across(across: Across) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let Move { from, to } = parse_move(request)?;
    let (source, destination) = (request.arg(1).to_vec(), request.arg(2).to_vec());
    let (source_shard, destination_shard) = (across.shard_of(&source), across.shard_of(&destination));
    let look = {
        let source = source.clone();
        move |ctx: &mut Ctx| peek(ctx, ctx.other_key(&source), from)
    };
    let Some(text) = across.on(source_shard, look).await? else { return Ok(Vec::new()) };
    let put = {
        let text = text.clone();
        move |ctx: &mut Ctx| {
            put(ctx, ctx.other_key(&destination), &text, to)?;
            ctx.propagate(&[if to == End::Front { b"LPUSH" } else { b"RPUSH" }, &destination, &text]);
            Ok(())
        }
    };
    across.on(destination_shard, put).await?;
    let take = move |ctx: &mut Ctx| {
        let key = ctx.other_key(&source);
        take(ctx, key, from)?;
        propagate_pop(ctx, key, from, None);
        Ok(())
    };
    across.on(source_shard, take).await?;
    Ok(across.reply(|reply| reply.bulk(&text)))
}

/// What LMPOP and BLMPOP are asked for.
#[derive(Clone)]
struct PopFirst {
    /// Indexes of the keys.
    keys: std::ops::Range<usize>,
    end: End,
    count: usize,
}

/// From the number of keys on.
fn parse_pop_first(request: Request, start: usize) -> Result<PopFirst> {
    let at_least_one = |index, error| parse_i64(request.arg(index)).filter(|n| *n >= 1).ok_or(Error::text(error));
    let keys = at_least_one(start, "ERR numkeys should be greater than 0")?;
    let first = start + 1;
    let after = usize::try_from(keys).ok().and_then(|keys| first.checked_add(keys));
    let after = after.filter(|after| *after < request.len()).ok_or(Error::Syntax)?;
    let end = parse_end(request.arg(after))?;
    let mut count = 1;
    if request.len() > after + 1 {
        if !request.is(after + 1, "count") || request.len() == after + 2 {
            return Err(Error::Syntax);
        }
        count = at_least_one(after + 2, "ERR count should be greater than 0")?;
    }
    if request.len() > after + 3 {
        return Err(Error::Syntax);
    }
    Ok(PopFirst { keys: first..after, end, count: usize::try_from(count).unwrap_or(usize::MAX) })
}

/// LMPOP has the number of keys first, BLMPOP behind its timeout.
fn numkeys_at(request: Request) -> usize {
    if request.is(0, "blmpop") { 2 } else { 1 }
}

/// The timeout of BLMPOP; what it is asked for comes first.
pub(super) fn pop_first_wait(request: Request) -> Result<Wait> {
    parse_pop_first(request, numkeys_at(request))?;
    blocking::seconds(request.arg(1))
}

/// The same with one of its keys.
pub(super) fn with_one_key(_: &mut Ctx, request: Request, key: usize) -> OwnedRequest {
    let numkeys = numkeys_at(request);
    let after = parse_pop_first(request, numkeys).map_or(request.len(), |parsed| parsed.keys.end);
    let head = request.from(0).take(numkeys).chain([b"1".as_slice(), request.arg(key)]);
    OwnedRequest::from_args(head.chain(request.from(after)))
}

pub(super) fn try_pop_first(ctx: &mut Ctx, request: Request) -> Result {
    let PopFirst { keys, end, count } = parse_pop_first(request, numkeys_at(request))?;
    for index in keys {
        let key = ctx.other_key(request.arg(index));
        let head = |reply: &mut Reply, popped| {
            reply.array(2);
            reply.bulk(key.bytes);
            reply.array(popped);
        };
        if pop_to_reply(ctx, key, end, Some(count), head)? {
            break;
        }
    }
    Ok(())
}

pub(super) fn try_pop_first_across(across: Across) -> Pin<Box<dyn Future<Output = Result<Vec<u8>>>>> {
    Box::pin(async move {
        parse_pop_first(across.request.as_request(), numkeys_at(across.request.as_request()))?;
        let keys = across.keys;
        blocking::first_of(across, keys, with_one_key, try_pop_first).await
    })
}

/// The timeout of BLPOP and BRPOP.
pub(super) fn pop_wait(request: Request) -> Result<Wait> {
    blocking::seconds(request.arg(request.len() - 1))
}

/// The same with one of its keys.
pub(super) fn with_one_key_of_all(_: &mut Ctx, request: Request, key: usize) -> OwnedRequest {
    OwnedRequest::from_args([request.arg(0), request.arg(key), request.arg(request.len() - 1)].into_iter())
}

pub(super) fn try_pop(ctx: &mut Ctx, request: Request) -> Result {
    let end = if request.is(0, "blpop") { End::Front } else { End::Back };
    for index in 1..request.len() - 1 {
        let key = ctx.other_key(request.arg(index));
        let head = |reply: &mut Reply, _| {
            reply.array(2);
            reply.bulk(key.bytes);
        };
        if pop_to_reply(ctx, key, end, None, head)? {
            break;
        }
    }
    Ok(())
}

pub(super) fn try_pop_across(across: Across) -> Pin<Box<dyn Future<Output = Result<Vec<u8>>>>> {
    blocking::first_of(across, Keys::ALL_BUT_LAST, with_one_key_of_all, try_pop)
}
