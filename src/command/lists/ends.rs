//! Pushing to the ends of a list and taking from them.

use super::{change_chunks, find, limit, of_kind, pack_small, view};
use crate::command::{Ctx, reply_element};
use crate::keyspace::{Change, Event, Key, KeyEdit, Kind, Live, Owned, Stored};
use crate::resp::{Error, Reply, Request, Result};
use crate::value::list::packed::{self, Form};
use crate::value::list::{Direction, End, Limit};
use crate::value::number::parse_i64;
use crate::value::pack::Element;

pub(super) fn push(ctx: &mut Ctx, request: Request, end: End, only_existing: bool) -> Result {
    let key = ctx.key(request.arg(1));
    let texts = (2..request.len()).map(|index| request.arg(index));
    let len = match push_texts(ctx, key, texts, end, only_existing)? {
        Some(len) => {
            ctx.commit(key, pushed(end));
            len
        }
        None => 0,
    };
    ctx.reply.int(len as i64);
    Ok(())
}

/// The event of a push.
pub(super) fn pushed(end: End) -> Event {
    if end == End::Front { Event::LPush } else { Event::RPush }
}

/// The event of a pop.
pub(super) fn popped(end: End) -> Event {
    if end == End::Front { Event::LPop } else { Event::RPop }
}

/// Pushes texts one after the other; returns the new length. A list is made where there is none, or else `None`
/// returned.
pub(super) fn push_texts<'t>(
    ctx: &mut Ctx,
    key: Key,
    texts: impl DoubleEndedIterator<Item = &'t [u8]> + Clone,
    end: End,
    only_existing: bool,
) -> Result<Option<usize>> {
    let limit = limit(ctx);
    if let Some(mut live) = find(ctx, key)?.map(Live::edit) {
        extend(&mut live, texts, end, limit);
        return Ok(Some(view(&live).len()));
    }
    if only_existing {
        return Ok(None);
    }
    let count = texts.clone().count();
    match Form::of(texts, end, limit) {
        Form::Packed(bytes) => {
            ctx.keyspace.insert_new(ctx.db, key, Stored::Packed(Kind::List, false, &bytes), None, ctx.now);
        }
        Form::Node(list) => ctx.keyspace.insert_owned(ctx.db, key, Owned::node(list), None, ctx.now),
    }
    Ok(Some(count))
}

fn extend<'t>(live: &mut KeyEdit, texts: impl DoubleEndedIterator<Item = &'t [u8]> + Clone, end: End, limit: Limit) {
    let is_packed = live.packed().is_some() && packed::push(live, texts.clone(), end, limit);
    if !is_packed {
        change_chunks(live, limit, |list| texts.for_each(|text| list.push(end, Element::of(text), limit)));
    }
}

pub(super) fn pop(ctx: &mut Ctx, request: Request, end: End, name: &str) -> Result {
    let count = match request.len() {
        2 => None,
        3 => Some(positive(request.arg(2))?),
        _ => return Err(Error::WrongArity(name.to_owned())),
    };
    let key = ctx.key(request.arg(1));
    let head = |reply: &mut Reply, popped| {
        if count.is_some() {
            reply.array(popped);
        }
    };
    if !pop_to_reply(ctx, key, end, count, head)? {
        if count.is_some() { ctx.reply.nil_array() } else { ctx.reply.nil() }
    }
    Ok(())
}

/// A count that is not negative.
fn positive(text: &[u8]) -> Result<usize> {
    let count = parse_i64(text).and_then(|count| usize::try_from(count).ok());
    count.ok_or(Error::text("ERR value is out of range, must be positive"))
}

/// Takes at most `count` elements from an end, replies with them behind what `head` writes, and tells of it. Where there
/// is no list nothing is written, and it returns false.
pub(super) fn pop_to_reply(
    ctx: &mut Ctx,
    key: Key,
    end: End,
    asked: Option<usize>,
    head: impl FnOnce(&mut Reply, usize),
) -> Result<bool> {
    let limit = limit(ctx);
    let Some(live) = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))? else { return Ok(false) };
    let view = view(&live);
    let count = asked.unwrap_or(1).min(view.len());
    head(&mut ctx.reply, count);
    let (first, direction) = match end {
        End::Front => (0, Direction::Forward),
        End::Back => (view.len() - 1, Direction::Backward),
    };
    view.some(first, direction, count, |element| reply_element(&mut ctx.reply, element));
    if count > 0 {
        let is_gone = drop_from(live.edit(), end, count, limit);
        ctx.commit(key, Change::removal(popped(end), is_gone));
        propagate_pop(ctx, key, end, asked.map(|_| count));
    }
    Ok(true)
}

/// So many elements were taken from an end; one where nobody has said how many.
pub(super) fn propagate_pop(ctx: &mut Ctx, key: Key, end: End, count: Option<usize>) {
    let name: &[u8] = if end == End::Front { b"LPOP" } else { b"RPOP" };
    match count {
        None => ctx.propagate(&[name, key.bytes]),
        Some(count) => ctx.propagate_with(&[name, key.bytes], count as i64),
    }
}

/// Takes elements from an end; whether the key is gone with the last of them.
pub(super) fn drop_from(live: KeyEdit, end: End, count: usize, limit: Limit) -> bool {
    if end == End::Front { trim(live, count, 0, limit) } else { trim(live, 0, count, limit) }
}

/// Takes elements from both ends; whether the key is gone with the last of them.
pub(super) fn trim(mut live: KeyEdit, front: usize, back: usize, limit: Limit) -> bool {
    if front + back >= view(&live).len() {
        live.remove();
        return true;
    }
    for (end, count) in [(End::Front, front), (End::Back, back)].into_iter().filter(|(_, count)| *count > 0) {
        if live.packed().is_some() {
            packed::drop_from(&mut live, end, count);
        } else {
            change_chunks(&mut live, limit, |list| list.drop_from(end, count));
        }
    }
    pack_small(&mut live, limit);
    false
}
