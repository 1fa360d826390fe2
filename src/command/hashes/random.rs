//! HRANDFIELD.

use super::with_view;
use crate::command::{Ctx, reply_drawn, reply_element};
use crate::keyspace::{Dict, NEVER_MS};
use crate::resp::{Error, Proto, Reply, Request, Result};
use crate::value::hash::{Field, View, dict_field};
use std::collections::HashSet;

pub fn random_fields(ctx: &mut Ctx, request: Request) -> Result {
    if request.len() < 3 {
        return one(ctx, request);
    }
    let count = request.negatable(2)?;
    let with_values = request.len() == 4 && request.is(3, "withvalues");
    if request.len() > 4 || request.len() == 4 && !with_values {
        return Err(Error::Syntax);
    }
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(Error::text("ERR value is out of range"));
    }
    let (seed, limit) = (ctx.rng.u64(..), ctx.limits.string_bytes);
    with_view(ctx, request, |reply, view, now_ms| {
        let mut rng = fastrand::Rng::with_seed(seed);
        match usize::try_from(count) {
            Ok(count) => {
                let drawn = distinct(view, now_ms, count, &mut rng);
                announce(reply, drawn.len(), with_values);
                drawn.into_iter().for_each(|field| reply_field(reply, field, with_values));
                Ok(())
            }
            Err(_) => repeated(reply, view, now_ms, count.unsigned_abs() as usize, with_values, limit, &mut rng),
        }
    })?
}

fn one(ctx: &mut Ctx, request: Request) -> Result {
    let seed = ctx.rng.u64(..);
    with_view(ctx, request, |reply, view, now_ms| {
        match distinct(view, now_ms, 1, &mut fastrand::Rng::with_seed(seed)).first() {
            Some(field) => reply_element(reply, field.name),
            None => reply.nil(),
        }
    })
}

fn announce(reply: &mut Reply, fields: usize, with_values: bool) {
    let flat = with_values && reply.proto == Proto::Resp2;
    reply.array(fields * if flat { 2 } else { 1 });
}

fn reply_field(reply: &mut Reply, field: Field, with_values: bool) {
    if with_values && reply.proto == Proto::Resp3 {
        reply.array(2);
    }
    reply_element(reply, field.name);
    if with_values {
        reply_element(reply, field.value);
    }
}

/// The fields, where those that are alive are found by drawing: not where most are dead and not taken out yet.
fn drawable(view: View<'_>, now_ms: u64) -> Option<&Dict> {
    match view {
        View::Dict(dict) if view.live_len(now_ms) > dict.len() / 2 => Some(dict),
        _ => None,
    }
}

fn alive<'a>(view: View<'a>, now_ms: u64) -> Vec<Field<'a>> {
    view.iter().filter(|field| !field.is_dead(now_ms)).collect()
}

/// Writes one after the other, each drawn from all fields.
fn repeated(
    reply: &mut Reply,
    view: View,
    now_ms: u64,
    count: usize,
    with_values: bool,
    limit: usize,
    rng: &mut fastrand::Rng,
) -> Result {
    let lives = |deadline_ms: Option<u64>| deadline_ms.unwrap_or(NEVER_MS) >= now_ms;
    let drawn_from = drawable(view, now_ms);
    let all = if drawn_from.is_some() { Vec::new() } else { alive(view, now_ms) };
    let draw = |rng: &mut fastrand::Rng| match drawn_from {
        Some(dict) => dict.random(rng, lives).map(|(entry, deadline_ms)| dict_field(entry, deadline_ms)),
        None if all.is_empty() => None,
        None => Some(all[rng.usize(..all.len())]),
    };
    let count = if drawn_from.is_some() || !all.is_empty() { count } else { 0 };
    announce(reply, count, with_values);
    reply_drawn(reply, count as u64, limit, |reply| {
        draw(rng).into_iter().for_each(|field| reply_field(reply, field, with_values));
    })
}

/// Different ones: all of them where there are no more.
fn distinct<'a>(view: View<'a>, now_ms: u64, count: usize, rng: &mut fastrand::Rng) -> Vec<Field<'a>> {
    // Where few of many are wanted they are drawn until they differ.
    if let Some(dict) = drawable(view, now_ms).filter(|dict| count < dict.len() / 8) {
        let mut drawn = HashSet::new();
        let mut fields = Vec::new();
        for _ in 0..count * 16 {
            let lives = |deadline_ms: Option<u64>| deadline_ms.unwrap_or(NEVER_MS) >= now_ms;
            let Some((entry, deadline_ms)) = dict.random(rng, lives) else { break };
            if drawn.insert(entry.address()) {
                fields.push(dict_field(entry, deadline_ms));
            }
            if fields.len() == count {
                return fields;
            }
        }
    }
    let mut all = alive(view, now_ms);
    let count = count.min(all.len());
    for index in 0..count {
        let other = rng.usize(index..all.len());
        all.swap(index, other);
    }
    all.truncate(count);
    all
}
