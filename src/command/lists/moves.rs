//! From one list to another, and from the first of several that has elements.

use super::ends::{drop_from, pop_to, popped, push_texts, pushed};
use super::{find, limit, removed, view};
use crate::command::{Across, Ctx};
use crate::config::NotifyFlags;
use crate::keyspace::Key;
use crate::resp::{Error, Reply, Request, Result};
use crate::value::list::End;
use crate::value::number::parse_i64;

/// What LMOVE, RPOPLPUSH and their blocking forms are asked for.
#[derive(Clone, Copy)]
struct Move {
    from: End,
    to: End,
}

fn parse_end(word: &[u8]) -> Result<End> {
    match word.to_ascii_lowercase().as_slice() {
        b"left" => Ok(End::Front),
        b"right" => Ok(End::Back),
        _ => Err(Error::Syntax),
    }
}

/// RPOPLPUSH says no ends.
fn parse_move(request: Request) -> Result<Move> {
    if request.len() < 5 {
        return Ok(Move { from: End::Back, to: End::Front });
    }
    Ok(Move { from: parse_end(request.arg(3))?, to: parse_end(request.arg(4))? })
}

/// The element at an end of a list; `None` where there is no list.
fn peek(ctx: &mut Ctx, key: Key, end: End) -> Result<Option<Vec<u8>>> {
    let Some(live) = find(ctx, key)? else { return Ok(None) };
    let view = view(&live);
    let index = if end == End::Front { 0 } else { view.len() - 1 };
    Ok(view.get(index).map(|element| element.to_vec()))
}

/// Pushes the element; first, since the lists may be the same.
fn put(ctx: &mut Ctx, key: Key, text: &[u8], end: End) -> Result {
    push_texts(ctx, key, std::iter::once(text), end, false)?;
    ctx.changed(NotifyFlags::LIST, pushed(end), key.bytes);
    Ok(())
}

/// Takes the element that was pushed elsewhere. It is behind another one where it was pushed to the same end.
fn take(ctx: &mut Ctx, key: Key, end: End) -> Result {
    let limit = limit(ctx);
    if let Some(live) = find(ctx, key)? {
        let is_gone = drop_from(live, end, 1, limit);
        removed(ctx, popped(end), key.bytes, is_gone);
    }
    Ok(())
}

pub(super) fn move_here(ctx: &mut Ctx, request: Request) -> Result {
    let Move { from, to } = parse_move(request)?;
    let (source, destination) = (ctx.key(request.arg(1)), ctx.other_key(request.arg(2)));
    match peek(ctx, source, from)? {
        None => ctx.reply.nil(),
        Some(text) => {
            put(ctx, destination, &text, to)?;
            take(ctx, source, from)?;
            ctx.reply.bulk(&text);
        }
    }
    Ok(())
}

/// Both keys are held, so that nobody sees the moment between the steps.
pub(super) async fn move_across(across: Across) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let Move { from, to } = parse_move(request)?;
    let (source, destination) = (request.arg(1).to_vec(), request.arg(2).to_vec());
    let (source_shard, destination_shard) = (across.shard_of(&source), across.shard_of(&destination));
    let look = {
        let source = source.clone();
        move |ctx: &mut Ctx| peek(ctx, ctx.other_key(&source), from)
    };
    let Some(text) = across.on(source_shard, look).await? else { return Ok(across.reply(|reply| reply.nil())) };
    let put = {
        let text = text.clone();
        move |ctx: &mut Ctx| put(ctx, ctx.other_key(&destination), &text, to)
    };
    across.on(destination_shard, put).await?;
    across.on(source_shard, move |ctx| take(ctx, ctx.other_key(&source), from)).await?;
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
    let at_least_one = |text: &[u8], error| parse_i64(text).filter(|n| *n >= 1).ok_or(Error::text(error));
    let keys = at_least_one(request.arg(start), "ERR numkeys should be greater than 0")?;
    let first = start + 1;
    let after = usize::try_from(keys).ok().and_then(|keys| first.checked_add(keys));
    let after = after.filter(|after| *after < request.len()).ok_or(Error::Syntax)?;
    let end = parse_end(request.arg(after))?;
    let count = match request.len() - after {
        1 => 1,
        3 if request.is(after + 1, "count") => {
            at_least_one(request.arg(after + 2), "ERR count should be greater than 0")?
        }
        _ if request.is(after + 1, "count") && request.len() - after > 2 => {
            at_least_one(request.arg(after + 2), "ERR count should be greater than 0")?;
            return Err(Error::Syntax);
        }
        _ => return Err(Error::Syntax),
    };
    Ok(PopFirst { keys: first..after, end, count: usize::try_from(count).unwrap_or(usize::MAX) })
}

/// Takes elements of one list and replies with the key and them; whether there are any.
fn pop_named(ctx: &mut Ctx, key: Key, end: End, count: usize, out: &mut Vec<u8>) -> Result<bool> {
    let mut items = Vec::new();
    let popped = pop_to(ctx, key, end, count, &mut Reply::new(&mut items, ctx.reply.proto))?;
    if let Some(popped) = popped {
        let mut reply = Reply::new(out, ctx.reply.proto);
        reply.array(2);
        reply.bulk(key.bytes);
        reply.array(popped);
        reply.raw(&items);
    }
    Ok(popped.is_some())
}

pub(super) fn pop_first_here(ctx: &mut Ctx, request: Request) -> Result {
    let PopFirst { keys, end, count } = parse_pop_first(request, 1)?;
    let mut out = Vec::new();
    for index in keys {
        let key = ctx.other_key(request.arg(index));
        if pop_named(ctx, key, end, count, &mut out)? {
            ctx.reply.raw(&out);
            return Ok(());
        }
    }
    ctx.reply.nil_array();
    Ok(())
}

pub(super) async fn pop_first_across(across: Across) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let PopFirst { keys, end, count } = parse_pop_first(request, 1)?;
    for index in keys {
        let key = request.arg(index).to_vec();
        let shard = across.shard_of(&key);
        let pop = move |ctx: &mut Ctx| {
            let mut out = Vec::new();
            pop_named(ctx, ctx.other_key(&key), end, count, &mut out).map(|found| found.then_some(out))
        };
        if let Some(out) = across.on(shard, pop).await? {
            return Ok(out);
        }
    }
    Ok(across.reply(|reply| reply.nil_array()))
}
