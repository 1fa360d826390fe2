//! Members chosen at random.

use super::edit::remove_members;
use super::{of_kind, view};
use crate::command::{Ctx, reply_drawn, reply_element};
use crate::keyspace::{Change, Event, Key};
use crate::resp::{Error, Request, Result};
use crate::value::number::parse_i64;
use crate::value::pack::Element;
use crate::value::set::View;
use ahash::RandomState;
use std::collections::HashSet;

/// A set is gone through once where more than one member in so many is wanted; where fewer, each is drawn.
const DRAWN_OF: usize = 4;

pub(super) fn spop(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    match request.len() {
        2 => match take(ctx, key, 1)?.first() {
            Some(member) => ctx.reply.bulk(member),
            None => ctx.reply.nil(),
        },
        3 => {
            let count = parse_i64(request.arg(2)).and_then(|count| usize::try_from(count).ok());
            let count = count.ok_or(Error::text("ERR value is out of range, must be positive"))?;
            let members = take(ctx, key, count)?;
            ctx.reply.set(members.len());
            members.iter().for_each(|member| ctx.reply.bulk(member));
        }
        _ => return Err(Error::Syntax),
    }
    Ok(())
}

/// Takes at most `count` members out of a set, and tells of it.
fn take(ctx: &mut Ctx, key: Key, count: usize) -> Result<Vec<Vec<u8>>> {
    let found = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
    let Some(live) = found.filter(|_| count > 0) else { return Ok(Vec::new()) };
    let view = view(&live);
    let is_all = count >= view.len();
    let members: Vec<Vec<u8>> = if is_all {
        view.iter().map(Element::to_vec).collect()
    } else {
        different(view, count, ctx.rng).into_iter().map(Element::to_vec).collect()
    };
    if is_all {
        live.edit().remove();
        ctx.name_elements(Event::SPop, &members);
        ctx.commit(key, Change::of(Event::SPop).and(Event::Del));
        ctx.propagate(&[b"DEL", key.bytes]);
    } else {
        remove_members(ctx, key, members.iter().map(Vec::as_slice), Event::SPop)?;
        if ctx.is_journaled() {
            let head: [&[u8]; 2] = [b"SREM", key.bytes];
            let args: Vec<&[u8]> = head.into_iter().chain(members.iter().map(Vec::as_slice)).collect();
            ctx.propagate(&args);
        }
    }
    Ok(members)
}

/// `count` different members, of which there are more.
fn different<'s>(view: View<'s>, count: usize, rng: &mut fastrand::Rng) -> Vec<Element<'s>> {
    if count == 1 {
        return view.random(rng).into_iter().collect();
    }
    // (Where members are dead that were not taken out yet it may take long to draw others.)
    if count * DRAWN_OF > view.len() || matches!(view, View::Timed(..)) {
        return view.sample(count, rng).collect();
    }
    let mut drawn = HashSet::with_capacity_and_hasher(count, RandomState::new());
    while drawn.len() < count {
        drawn.extend(view.random(rng));
    }
    drawn.into_iter().collect()
}

pub(super) fn srandmember(ctx: &mut Ctx, request: Request) -> Result {
    let count = match request.len() {
        2 => None,
        3 => Some(request.negatable(2)?),
        _ => return Err(Error::Syntax),
    };
    let key = ctx.key(request.arg(1));
    let Some(live) = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))? else {
        match count {
            None => ctx.reply.nil(),
            Some(_) => ctx.reply.array(0),
        }
        return Ok(());
    };
    let view = view(&live);
    match count {
        None => view.random(ctx.rng).into_iter().for_each(|member| reply_element(&mut ctx.reply, member)),
        Some(count @ 0..) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let members = if count >= view.len() { view.iter().collect() } else { different(view, count, ctx.rng) };
            ctx.reply.array(members.len());
            members.into_iter().for_each(|member| reply_element(&mut ctx.reply, member));
        }
        Some(count) => {
            let count = count.unsigned_abs();
            ctx.reply.array(usize::try_from(count).unwrap_or(usize::MAX));
            let alive: Vec<Element> = if let View::Timed(..) = view { view.iter().collect() } else { Vec::new() };
            let draw = |rng: &mut fastrand::Rng| match alive.len() {
                0 => view.random(rng),
                len => Some(alive[rng.usize(..len)]),
            };
            reply_drawn(&mut ctx.reply, count, ctx.limits.string_bytes, |reply| {
                draw(ctx.rng).into_iter().for_each(|member| reply_element(reply, member));
            })?;
        }
    }
    Ok(())
}
