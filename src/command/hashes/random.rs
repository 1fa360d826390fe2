//! HRANDFIELD.

use super::with_view;
use crate::command::Ctx;
use crate::command::reply_element;
use crate::keyspace::NEVER_MS;
use crate::resp::{Error, Proto, Reply, Request, Result};
use crate::value::hash::{Field, View, dict_field};
use std::collections::HashSet;

/// Fields returned by one call at most where they may repeat: what a client asks for is not all that it may get.
const REPEATED_MAX: u64 = 1 << 24;

pub fn random_fields(ctx: &mut Ctx, request: Request) -> Result {
    let Some(count) = request.get(2) else { return one(ctx, request) };
    let count = crate::value::number::parse_i64(count).ok_or(Error::NotAnInteger)?;
    if count == i64::MIN {
        return Err(Error::err(format_args!(
            "value is out of range, value must between {} and {}",
            -i64::MAX,
            i64::MAX
        )));
    }
    let with_values = request.len() == 4 && request.is(3, "withvalues");
    if request.len() > 4 || request.len() == 4 && !with_values {
        return Err(Error::Syntax);
    }
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 || count < 0 && count.unsigned_abs() > REPEATED_MAX {
        return Err(Error::text("ERR value is out of range"));
    }
    let seed = ctx.rng.u64(..);
    with_view(ctx, request, |reply, view, now_ms| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let drawn = if count < 0 {
            repeated(view, now_ms, count.unsigned_abs() as usize, &mut rng)
        } else {
            distinct(view, now_ms, usize::try_from(count).unwrap_or(usize::MAX), &mut rng)
        };
        reply_fields(reply, &drawn, with_values);
    })
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

fn reply_fields(reply: &mut Reply, fields: &[Field], with_values: bool) {
    let pairs = with_values && reply.proto == Proto::Resp3;
    reply.array(fields.len() * if with_values && !pairs { 2 } else { 1 });
    for field in fields {
        if pairs {
            reply.array(2);
        }
        reply_element(reply, field.name);
        if with_values {
            reply_element(reply, field.value);
        }
    }
}

fn alive<'a>(view: View<'a>, now_ms: u64) -> Vec<Field<'a>> {
    view.iter().filter(|field| !field.is_dead(now_ms)).collect()
}

/// One after the other, each from all fields.
fn repeated<'a>(view: View<'a>, now_ms: u64, count: usize, rng: &mut fastrand::Rng) -> Vec<Field<'a>> {
    if let View::Dict(dict) = view
        && count < dict.len()
    {
        let lives = |_, deadline_ms: Option<u64>| deadline_ms.unwrap_or(NEVER_MS) >= now_ms;
        let draw = || dict.random(rng, lives).map(|(entry, deadline_ms)| dict_field(entry, deadline_ms));
        return std::iter::repeat_with(draw).take(count).flatten().collect();
    }
    let all = alive(view, now_ms);
    if all.is_empty() {
        return all;
    }
    (0..count).map(|_| all[rng.usize(..all.len())]).collect()
}

/// Different ones: all of them where there are no more.
fn distinct<'a>(view: View<'a>, now_ms: u64, count: usize, rng: &mut fastrand::Rng) -> Vec<Field<'a>> {
    // Where few of many are wanted they are drawn until they differ.
    if let View::Dict(dict) = view
        && count < dict.len() / 4
    {
        let mut drawn = HashSet::new();
        let mut fields = Vec::new();
        for _ in 0..count * 16 {
            let lives = |_, deadline_ms: Option<u64>| deadline_ms.unwrap_or(NEVER_MS) >= now_ms;
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
