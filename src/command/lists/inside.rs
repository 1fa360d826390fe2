//! Lists by index and by element.

use super::ends::trim;
use super::{change_chunks, find, from_end, limit, of_kind, pack_small, settle, view};
use crate::command::{Ctx, reply_element};
use crate::keyspace::{Change, Event, Live};
use crate::resp::{Error, Request, Result};
use crate::value::list::{Direction, End, View, packed};
use crate::value::pack::Element;
use std::ops::ControlFlow;

pub(super) fn llen(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let len = find(ctx, key)?.map_or(0, |live| view(&live).len());
    ctx.reply.int(len as i64);
    Ok(())
}

/// The place of an index, where there is an element.
fn place(index: i64, len: usize) -> Option<usize> {
    usize::try_from(from_end(index, len)).ok().filter(|index| *index < len)
}

/// The places from an index to another, both included; empty where they do not meet the list.
fn places(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let start = from_end(start, len).max(0) as usize;
    let end = usize::try_from(from_end(stop, len).saturating_add(1)).unwrap_or(0).min(len);
    if start < end { start..end } else { 0..0 }
}

pub(super) fn lindex(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let Some(live) = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))? else {
        ctx.reply.nil();
        return Ok(());
    };
    let view = view(&live);
    let place = place(request.int(2)?, view.len());
    match place.and_then(|index| view.get(index, |element| reply_element(&mut ctx.reply, element))) {
        Some(()) => {}
        None => ctx.reply.nil(),
    }
    Ok(())
}

pub(super) fn lset(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let (limit, text) = (limit(ctx), request.arg(3));
    let mut live = find(ctx, key)?.ok_or(Error::NoSuchKey)?.edit();
    let index = place(request.int(2)?, view(&live).len()).ok_or(Error::IndexOutOfRange)?;
    let is_packed = live.packed().is_some() && packed::set(&mut live, index, text, limit);
    if !is_packed {
        change_chunks(&mut live, limit, |list| list.set(index, Element::of(text), limit));
        pack_small(&mut live, limit);
    }
    ctx.commit(key, Event::LSet);
    ctx.reply.ok();
    Ok(())
}

pub(super) fn linsert(ctx: &mut Ctx, request: Request) -> Result {
    let after = match request.arg(2).to_ascii_lowercase().as_slice() {
        b"before" => 0,
        b"after" => 1,
        _ => return Err(Error::Syntax),
    };
    let key = ctx.key(request.arg(1));
    let (limit, text) = (limit(ctx), request.arg(4));
    let Some(mut live) = find(ctx, key)?.map(Live::edit) else {
        ctx.reply.int(0);
        return Ok(());
    };
    let pivot = Element::of(request.arg(3));
    let Some(index) = Search::FIRST.matches(view(&live), pivot).pop() else {
        ctx.reply.int(-1);
        return Ok(());
    };
    let index = index + after;
    let is_packed = live.packed().is_some() && packed::insert(&mut live, index, text, limit);
    if !is_packed {
        change_chunks(&mut live, limit, |list| list.insert(index, Element::of(text), limit));
    }
    let len = view(&live).len();
    ctx.commit(key, Event::LInsert);
    ctx.reply.int(len as i64);
    Ok(())
}

pub(super) fn lrange(ctx: &mut Ctx, request: Request) -> Result {
    let (start, stop) = (request.int(2)?, request.int(3)?);
    let key = ctx.key(request.arg(1));
    let Some(live) = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let view = view(&live);
    let places = places(start, stop, view.len());
    ctx.reply.array(places.len());
    view.some(places.start, Direction::Forward, places.len(), |element| reply_element(&mut ctx.reply, element));
    Ok(())
}

pub(super) fn lrem(ctx: &mut Ctx, request: Request) -> Result {
    let count = request.negatable(2)?;
    let key = ctx.key(request.arg(1));
    let limit = limit(ctx);
    let Some(mut live) = find(ctx, key)?.map(Live::edit) else {
        ctx.reply.int(0);
        return Ok(());
    };
    let max = if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
    let from = if count < 0 { End::Back } else { End::Front };
    let element = Element::of(request.arg(3));
    let gone = match live.packed() {
        Some(_) => packed::remove_equal(&mut live, element, max, from),
        None => change_chunks(&mut live, limit, |list| list.remove_equal(element, max, from, limit)),
    };
    let is_gone = gone > 0 && settle(live, limit);
    ctx.commit_if(gone > 0, key, Change::removal(Event::LRem, is_gone));
    ctx.reply.int(gone as i64);
    Ok(())
}

pub(super) fn ltrim(ctx: &mut Ctx, request: Request) -> Result {
    let (start, stop) = (request.int(2)?, request.int(3)?);
    let key = ctx.key(request.arg(1));
    let limit = limit(ctx);
    if let Some(live) = find(ctx, key)?.map(Live::edit) {
        let len = view(&live).len();
        let kept = places(start, stop, len);
        let is_gone = trim(live, kept.start, len - kept.end, limit);
        ctx.commit(key, Change::removal(Event::LTrim, is_gone));
    }
    ctx.reply.ok();
    Ok(())
}

/// What LPOS is asked for, and LINSERT.
struct Search {
    direction: Direction,
    /// Matches that are passed over.
    passed: usize,
    /// Matches that are shown; without a number, the first one, and not as an array.
    count: Option<usize>,
    /// Elements that are looked at.
    max_len: usize,
}

const ZERO_RANK: Error = Error::text(
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from \
     the end of the list",
);

fn parse_search(request: Request) -> Result<Search> {
    let mut search = Search::FIRST;
    let not_negative = |index, error| {
        let n = request.int(index).ok().and_then(|n| usize::try_from(n).ok()).ok_or(Error::text(error))?;
        Ok(if n == 0 { usize::MAX } else { n })
    };
    for index in (3..request.len()).step_by(2) {
        let value = index + 1;
        if value >= request.len() {
            return Err(Error::Syntax);
        }
        if request.is(index, "rank") {
            let rank = request.negatable(value)?;
            search.passed =
                usize::try_from(rank.unsigned_abs()).unwrap_or(usize::MAX).checked_sub(1).ok_or(ZERO_RANK)?;
            search.direction = if rank < 0 { Direction::Backward } else { Direction::Forward };
        } else if request.is(index, "count") {
            search.count = Some(not_negative(value, "ERR COUNT can't be negative")?);
        } else if request.is(index, "maxlen") {
            search.max_len = not_negative(value, "ERR MAXLEN can't be negative")?;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(search)
}

impl Search {
    const FIRST: Search = Search { direction: Direction::Forward, passed: 0, count: None, max_len: usize::MAX };

    /// The indexes of the elements that are looked for.
    fn matches(&self, view: View, element: Element) -> Vec<usize> {
        let last = view.len().saturating_sub(1);
        let backward = self.direction == Direction::Backward;
        let (mut seen, mut to_pass, mut indexes) = (0, self.passed, Vec::new());
        view.walk(if backward { last } else { 0 }, self.direction, |found| {
            if found == element {
                match to_pass.checked_sub(1) {
                    Some(rest) => to_pass = rest,
                    None => indexes.push(if backward { last - seen } else { seen }),
                }
            }
            seen += 1;
            let is_over = seen == self.max_len || indexes.len() == self.count.unwrap_or(1);
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        indexes
    }
}

pub(super) fn lpos(ctx: &mut Ctx, request: Request) -> Result {
    let search = parse_search(request)?;
    let key = ctx.key(request.arg(1));
    let element = Element::of(request.arg(2));
    let found = find(ctx, key)?.map_or(Vec::new(), |live| search.matches(view(&live), element));
    match (search.count, found.first()) {
        (Some(_), _) => {
            ctx.reply.array(found.len());
            found.iter().for_each(|index| ctx.reply.int(*index as i64));
        }
        (None, Some(index)) => ctx.reply.int(*index as i64),
        (None, None) => ctx.reply.nil(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_list() {
        assert_eq!(places(0, -1, 5), 0..5);
        assert_eq!(places(-3, -2, 5), 2..4);
        assert_eq!(places(-100, 100, 5), 0..5);
        assert_eq!(places(3, 1, 5), 0..0);
        assert_eq!(places(5, 9, 5), 0..0);
        assert_eq!(places(i64::MIN, i64::MAX, 5), 0..5);
        assert_eq!(places(i64::MAX, i64::MIN, 5), 0..0);
        assert_eq!(places(0, -6, 5), 0..0);
    }

    #[test]
    fn an_index_is_a_place_or_none() {
        assert_eq!(place(0, 3), Some(0));
        assert_eq!(place(-3, 3), Some(0));
        assert_eq!(place(-4, 3), None);
        assert_eq!(place(3, 3), None);
        assert_eq!(place(i64::MIN, 3), None);
    }
}
