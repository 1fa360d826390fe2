//! Hashes: fields with values under one key. Deadlines of fields: `deadlines.rs`; how a hash is changed: `edit.rs`.

mod deadlines;
mod edit;
#[cfg(test)]
mod model_test;
mod random;

pub use deadlines::ROWS as DEADLINE_ROWS;
pub use edit::view;

use super::elements::ElementEdit;
use super::scanning::{self, Own, ScanOptions};
use super::spec::flag::{DENY_OOM, FAST, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec, tip};
use super::{Ctx, ReplyLength, Run, reply_element};
use crate::keyspace::{Event, NEVER_MS};
use crate::resp::{Error, Reply, Request, Result};
use crate::value::hash::{Field, View, dict_field};
use crate::value::number::{I64_TEXT_BYTES_MAX, LongDoubleError, add_long_double};
use edit::{Edit, deleted, find};
use std::ops::Range;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            summary: "Sets fields of a hash; their deadlines are cleared.",
            complexity: "O(1) for each field",
            syntax: "key data:(field value)...",
            ..write("hset", -4, DENY_OOM | FAST, "2.0.0")
        },
        Run::Key(|ctx, request| set(ctx, request, "hset")),
    ),
    Row::new(
        Spec {
            summary: "Sets fields of a hash.",
            complexity: "O(1) for each field",
            syntax: "key data:(field value)...",
            ..write("hmset", -4, DENY_OOM | FAST, "2.0.0")
        },
        Run::Key(|ctx, request| set(ctx, request, "hmset")),
    )
    .deprecated("4.0.0", "`HSET` with multiple field-value pairs"),
    Row::new(
        Spec {
            summary: "Sets a field of a hash that is not there yet.",
            syntax: "key field value",
            ..write("hsetnx", 4, DENY_OOM | FAST, "2.0.0")
        },
        Run::Key(set_new),
    ),
    Row::new(
        Spec { summary: "Returns the value of a field.", syntax: "key field", ..read("hget", 3, FAST, "2.0.0") },
        Run::Key(get),
    ),
    Row::new(
        Spec {
            summary: "Returns the values of fields.",
            complexity: "O(1) for each field",
            syntax: "key field...",
            ..read("hmget", -3, FAST, "2.0.0")
        },
        Run::Key(get_many),
    ),
    Row::new(
        Spec {
            summary: "Deletes fields, and the hash with the last of them.",
            complexity: "O(1) for each field",
            syntax: "key field...",
            ..write("hdel", -3, FAST, "2.0.0")
        },
        Run::Key(delete),
    ),
    Row::new(
        Spec { summary: "Returns the number of fields.", syntax: "key", ..read("hlen", 2, FAST, "2.0.0") },
        Run::Key(|ctx, request| {
            on_field(ctx, request, |reply, view, now_ms, _| reply.int(view.live_len(now_ms) as i64))
        }),
    ),
    Row::new(
        Spec {
            summary: "Returns the length of a field's value, in bytes.",
            syntax: "key field",
            ..read("hstrlen", 3, FAST, "3.2.0")
        },
        Run::Key(|ctx, request| {
            on_field(ctx, request, |reply, _, _, field| {
                reply.int(field.map_or(0, |field| field.value.text_len() as i64));
            })
        }),
    ),
    Row::new(
        Spec { summary: "Says whether there is a field.", syntax: "key field", ..read("hexists", 3, FAST, "2.0.0") },
        Run::Key(|ctx, request| on_field(ctx, request, |reply, _, _, field| reply.int(field.is_some().into()))),
    ),
    Row::new(
        Spec {
            summary: "Returns all fields.",
            complexity: "O(n) in the number of fields",
            syntax: "key",
            ..read("hkeys", 2, 0, "2.0.0")
        },
        Run::Key(|ctx, request| all(ctx, request, true, false)),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT_ORDER]),
    Row::new(
        Spec {
            summary: "Returns all values.",
            complexity: "O(n) in the number of fields",
            syntax: "key",
            ..read("hvals", 2, 0, "2.0.0")
        },
        Run::Key(|ctx, request| all(ctx, request, false, true)),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT_ORDER]),
    Row::new(
        Spec {
            summary: "Returns all fields and values.",
            complexity: "O(n) in the number of fields",
            syntax: "key",
            ..read("hgetall", 2, 0, "2.0.0")
        },
        Run::Key(|ctx, request| all(ctx, request, true, true)),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT_ORDER]),
    Row::new(
        Spec {
            summary: "Adds a number to the integer in a field; a missing one counts as zero.",
            syntax: "key field increment:integer",
            ..write("hincrby", 4, DENY_OOM | FAST, "2.0.0")
        },
        Run::Key(increment),
    ),
    Row::new(
        Spec {
            summary: "Adds a decimal number to the number in a field, with the precision of a long double.",
            syntax: "key field increment:double",
            ..write("hincrbyfloat", 4, DENY_OOM | FAST, "2.6.0")
        },
        Run::Key(increment_by_float),
    ),
    Row::new(
        Spec {
            summary: "Returns fields chosen at random.",
            complexity: "O(n) in the number of fields returned",
            syntax: "key [options:(count:integer [WITHVALUES])]",
            ..read("hrandfield", -2, 0, "6.2.0")
        },
        Run::Key(random::random_fields),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        Spec {
            summary: "Goes through the fields of a hash, some at a time.",
            complexity: "O(1) a call, O(n) for all fields",
            syntax: "key cursor:integer [MATCH pattern:pattern] [COUNT count:integer] [NOVALUES]",
            ..read("hscan", -3, 0, "2.8.0")
        },
        Run::Key(scan),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
];

const fn write(name: &'static str, arity: i32, flags: u32, since: &'static str) -> Spec {
    Spec {
        name,
        arity,
        flags: WRITE | flags,
        keys: Keys::ONE,
        group: Group::Hash,
        since,
        complexity: "O(1)",
        summary: "",
        syntax: "",
    }
}

const fn read(name: &'static str, arity: i32, flags: u32, since: &'static str) -> Spec {
    Spec { flags: READ | flags, ..write(name, arity, 0, since) }
}

fn reply_value(reply: &mut Reply, field: Option<Field>) {
    match field {
        Some(field) => reply_element(reply, field.value),
        None => reply.nil(),
    }
}

fn set(ctx: &mut Ctx, request: Request, name: &'static str) -> Result {
    if !request.len().is_multiple_of(2) {
        return Err(Error::WrongArity(name.to_owned()));
    }
    let key = ctx.key(request.arg(1));
    let mut edit = Edit::open_or_make(ctx, key)?;
    let mut new = 0;
    for index in (2..request.len()).step_by(2) {
        new += i64::from(edit.set(request.arg(index), request.arg(index + 1), false));
    }
    edit.close();
    ctx.name_elements(Event::HSet, request.from(2).step_by(2));
    ctx.commit(key, Event::HSet);
    if name == "hset" {
        ctx.reply.int(new)
    } else {
        ctx.reply.ok()
    }
    Ok(())
}

fn set_new(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let field = request.arg(2);
    let there = Edit::open(ctx, key)?.is_some_and(|edit| edit.get(field).is_some());
    if !there {
        let mut edit = Edit::open_or_make(ctx, key)?;
        edit.set(field, request.arg(3), false);
        edit.close();
        ctx.name_elements(Event::HSet, [field]);
        ctx.commit(key, Event::HSet);
    }
    ctx.reply.int(i64::from(!there));
    Ok(())
}

fn get(ctx: &mut Ctx, request: Request) -> Result {
    let (key, now_ms, touch) = (ctx.key(request.arg(1)), ctx.now.ms, ctx.touch);
    let live = ctx.keyspace.find(ctx.db, key, ctx.now, touch);
    let Some(live) = live else {
        ctx.reply.nil();
        return Ok(());
    };
    if live.kind() != crate::keyspace::Kind::Hash {
        return Err(Error::WrongType);
    }
    let field = view(&live).get(request.arg(2)).filter(|field| !field.is_dead(now_ms));
    reply_value(&mut ctx.reply, field);
    Ok(())
}

/// Answers about a hash and one of its fields, the one that is named if any is; a missing hash has none.
fn on_field(ctx: &mut Ctx, request: Request, answer: impl FnOnce(&mut Reply, View, u64, Option<Field>)) -> Result {
    with_view(ctx, request, |reply, view, now_ms| {
        let field = request.get(2).and_then(|name| view.get(name)).filter(|field| !field.is_dead(now_ms));
        answer(reply, view, now_ms, field);
    })
}

/// Reads a hash; one that is not there has no fields.
pub fn with_view<R>(ctx: &mut Ctx, request: Request, read: impl FnOnce(&mut Reply, View, u64) -> R) -> Result<R> {
    let (key, now_ms, touch) = (ctx.key(request.arg(1)), ctx.now.ms, ctx.touch);
    let Ctx { keyspace, reply, .. } = ctx;
    match keyspace.find(ctx.db, key, ctx.now, touch) {
        Some(live) if live.kind() != crate::keyspace::Kind::Hash => Err(Error::WrongType),
        Some(live) => Ok(read(reply, view(&live), now_ms)),
        None => Ok(read(reply, View::Packed(crate::value::hash::EMPTY), now_ms)),
    }
}

fn get_many(ctx: &mut Ctx, request: Request) -> Result {
    reply_values(ctx, request, 2..request.len())
}

/// The values of fields, whose names are at these indexes, as a reply.
fn reply_values(ctx: &mut Ctx, request: Request, fields: Range<usize>) -> Result {
    let mut length = ReplyLength::new(&ctx.reply, ctx.limits);
    with_view(ctx, request, |reply, view, now_ms| {
        let get = |index: usize| view.get(request.arg(index)).filter(|field| !field.is_dead(now_ms));
        reply.array(fields.len());
        for index in fields.clone() {
            reply_value(reply, get(index));
            if length.is_unclear(reply) {
                let left = index + 1..fields.end;
                length.add_up(reply, left.map(|index| get(index).map_or(0, |field| field.value.text_len())));
                length.check()?;
            }
        }
        Ok(())
    })?
}

fn delete(ctx: &mut Ctx, request: Request) -> Result {
    let (key, wants_names) = (ctx.key(request.arg(1)), ctx.wants_elements(Event::HDel));
    let Some(mut edit) = Edit::open(ctx, key)? else {
        ctx.reply.int(0);
        return Ok(());
    };
    let mut gone: Vec<&[u8]> = Vec::new();
    let removed = request.from(2).filter(|field| edit.remove(field));
    let count = removed.inspect(|field| gone.extend(wants_names.then_some(*field))).count();
    let stays = edit.close();
    ctx.name_elements(Event::HDel, gone);
    ctx.commit_if(count > 0, key, deleted(stays));
    if !stays {
        ctx.propagate(&[b"DEL", key.bytes]);
    }
    ctx.reply.int(count as i64);
    Ok(())
}

fn all(ctx: &mut Ctx, request: Request, names: bool, values: bool) -> Result {
    with_view(ctx, request, |reply, view, now_ms| {
        let len = view.live_len(now_ms);
        if names && values {
            reply.map(len)
        } else {
            reply.array(len)
        }
        for field in view.iter().filter(|field| !field.is_dead(now_ms)) {
            if names {
                reply_element(reply, field.name);
            }
            if values {
                reply_element(reply, field.value);
            }
        }
    })
}

fn increment(ctx: &mut Ctx, request: Request) -> Result {
    let by = request.int(3)?;
    let key = ctx.key(request.arg(1));
    let name = request.arg(2);
    let old = Edit::open(ctx, key)?.and_then(|edit| edit.get(name).map(|field| field.value.to_integer()));
    let old = match old {
        Some(number) => number.ok_or(Error::text("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = old.checked_add(by).ok_or(Error::WouldOverflow)?;
    let mut edit = Edit::open_or_make(ctx, key)?;
    edit.set(name, sum.to_string().as_bytes(), true);
    edit.close();
    ctx.name_elements(Event::HIncrBy, [name]);
    ctx.commit(key, Event::HIncrBy);
    ctx.reply.int(sum);
    Ok(())
}

fn increment_by_float(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let name = request.arg(2);
    // The increment is looked at before the key, as in Redis.
    add_long_double(b"0", request.arg(3)).map_err(|error| match error {
        LongDoubleError::Overflow => Error::text("ERR value is NaN or Infinity"),
        _ => Error::NotAFloat,
    })?;
    let (sum, is_timed) = {
        let found = Edit::open(ctx, key)?;
        let field = found.as_ref().and_then(|edit| edit.get(name));
        let is_timed = field.as_ref().is_some_and(|field| field.deadline_ms < NEVER_MS);
        let mut text = [0; I64_TEXT_BYTES_MAX];
        (add_long_double(field.map_or(&b"0"[..], |field| field.value.text(&mut text)), request.arg(3)), is_timed)
    };
    let sum = sum.map_err(|error| match error {
        LongDoubleError::CurrentNotFloat => Error::text("ERR hash value is not a float"),
        LongDoubleError::IncrementNotFloat => Error::NotAFloat,
        LongDoubleError::Overflow => Error::NanOrInfinity,
    })?;
    let mut edit = Edit::open_or_make(ctx, key)?;
    edit.set(name, &sum, true);
    edit.close();
    ctx.name_elements(Event::HIncrByFloat, [name]);
    ctx.commit(key, Event::HIncrByFloat);
    if is_timed {
        // HSET would take the deadline away.
        ctx.propagate(&[b"HSETEX", key.bytes, b"KEEPTTL", b"FIELDS", b"1", name, &sum]);
    } else {
        ctx.propagate(&[b"HSET", key.bytes, name, &sum]);
    }
    ctx.reply.bulk(&sum);
    Ok(())
}

fn scan(ctx: &mut Ctx, request: Request) -> Result {
    let cursor = scanning::cursor(request, 2)?;
    let (key, now_ms, touch) = (ctx.key(request.arg(1)), ctx.now.ms, ctx.touch);
    let Some(live) = find(ctx, key, touch)? else {
        scanning::reply_page(&mut ctx.reply, 0, &[]);
        return Ok(());
    };
    let options = ScanOptions::parse(request, 3, Own::NoValues)?;
    let mut shown: Vec<Vec<u8>> = Vec::new();
    let mut show = |field: Field| {
        let name = field.name.to_vec();
        if !field.is_dead(now_ms) && options.matches(&name) {
            shown.push(name);
            if !options.is_bare {
                shown.push(field.value.to_vec());
            }
        }
    };
    let next = match view(&live) {
        View::Dict(dict) => dict.scan(cursor, options.count, |entry, deadline_ms| show(dict_field(entry, deadline_ms))),
        packed => {
            packed.iter().for_each(show);
            0
        }
    };
    scanning::reply_page(&mut ctx.reply, next, &shown);
    Ok(())
}
