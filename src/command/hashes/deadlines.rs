//! Deadlines of fields: HEXPIRE, HTTL, HPERSIST and their kin; HGETEX, HSETEX, HGETDEL.

use super::edit::{Edit, deleted};
use super::{read, reply_values, write};
use crate::command::deadlines::{Conditions, Deadline, Expiry, Unit};
use crate::command::elements::{
    ElementEdit, Elements, deadline, propagate_deadline, propagate_deleted, rows, tell_deleted,
};
use crate::command::spec::flag::{DENY_OOM, FAST};
use crate::command::spec::{Row, Spec};
use crate::command::{Ctx, Run};
use crate::keyspace::{Change, Event, Key, NEVER_MS};
use crate::resp::{Error, Request, Result, printable};
use crate::value::number::parse_i64;
use std::ops::Range;

pub const ROWS: &[Row<Run>] = &rows!(
    "h",
    "fields",
    "fields:(FIELDS numfields:integer field...)",
    Spec { complexity: A_FIELD, ..read("", 0, 0, "7.4.0") },
    Fields,
    Row::new(
        Spec {
            summary: "Returns the values of fields and deletes them.",
            complexity: A_FIELD,
            syntax: "key fields:(FIELDS numfields:integer field...)",
            ..write("hgetdel", -5, FAST, "8.0.0")
        },
        Run::Key(get_and_delete),
    ),
    Row::new(
        Spec {
            summary: "Returns the values of fields and sets or clears their deadlines.",
            complexity: A_FIELD,
            syntax: "key [expiration:(EX seconds:integer|PX milliseconds:integer|EXAT unix-time-seconds:unix-time\
                     |PXAT unix-time-milliseconds:unix-time|PERSIST)] fields:(FIELDS numfields:integer field...)",
            ..write("hgetex", -5, FAST, "8.0.0")
        },
        Run::Key(get_and_expire),
    ),
    Row::new(
        Spec {
            summary: "Sets fields together with their deadline, perhaps only where none or all of them are there.",
            complexity: A_FIELD,
            syntax: "key [key-condition:(NX|XX)] [condition:(FNX|FXX)] [expiration:(EX seconds:integer|PX milliseconds:integer\
                     |EXAT unix-time-seconds:unix-time|PXAT unix-time-milliseconds:unix-time|KEEPTTL)] \
                     fields:(FIELDS numfields:integer data:(field value)...)",
            ..write("hsetex", -6, DENY_OOM | FAST, "8.0.0")
        },
        Run::Key(set_and_expire),
    ),
);

const A_FIELD: &str = "O(1) for each field";

const NO_FIELDS_WORD: Error = Error::text("ERR Mandatory argument FIELDS is missing or not at the right position");
const COUNT_DIFFERS: Error = Error::text("ERR The `numfields` parameter must match the number of arguments");

/// The indexes of the fields behind FIELDS at an index and their number, each of which is followed by `with` more
/// arguments.
fn fields(request: Request, at: usize, with: usize, bad_count: &'static str) -> Result<Range<usize>> {
    if !request.get(at).is_some_and(|_| request.is(at, "fields")) {
        return Err(NO_FIELDS_WORD);
    }
    let count = request.get(at + 1).and_then(parse_i64).filter(|count| *count > 0).ok_or(Error::text(bad_count))?;
    let first = at + 2;
    if usize::try_from(count).ok().and_then(|count| count.checked_mul(1 + with)) != Some(request.len() - first) {
        return Err(COUNT_DIFFERS);
    }
    Ok(first..request.len())
}

const NOT_POSITIVE: &str = "ERR Number of fields must be a positive integer";

/// Fields of hashes.
struct Fields;

impl Elements for Fields {
    type Edit<'c> = Edit<'c>;
    const SET: Event = Event::HExpire;
    const CLEARED: Event = Event::HPersist;
    const DELETED: Event = Event::HDel;
    const EXPIRE: &'static [u8] = b"HPEXPIREAT";
    const PERSIST: &'static [u8] = b"HPERSIST";
    const DELETE: &'static [u8] = b"HDEL";
    const WORD: &'static [u8] = b"FIELDS";

    fn parse_expire(request: Request) -> Result<(Conditions, Range<usize>)> {
        let mut conditions = Conditions::default();
        let at = if conditions.add(request.arg(3)) { 4 } else { 3 };
        let fields = fields(request, at, 0, "ERR Parameter `numFields` should be greater than 0")?;
        Ok((conditions, fields))
    }

    fn parse_named(request: Request) -> Result<Range<usize>> {
        fields(request, 2, 0, NOT_POSITIVE)
    }

    fn open<'c>(ctx: &'c mut Ctx, key: Key) -> Result<Option<Edit<'c>>> {
        Edit::open(ctx, key)
    }
}

fn get_and_delete(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    Edit::open(ctx, key)?;
    let fields = fields(request, 2, 0, NOT_POSITIVE)?;
    // A field that is named twice is gone the second time.
    let Some(mut edit) = Edit::open(ctx, key)? else {
        return reply_values(ctx, request, fields);
    };
    let names = fields.clone().map(|index| request.arg(index));
    let values: Vec<Option<Vec<u8>>> = fields
        .map(|index| {
            let value = edit.get(request.arg(index)).map(|field| field.value.to_vec())?;
            edit.remove(request.arg(index));
            Some(value)
        })
        .collect();
    let stays = edit.close();
    let gone: Vec<&[u8]> = names.zip(&values).filter(|(_, value)| value.is_some()).map(|(name, _)| name).collect();
    tell_deleted::<Fields>(ctx, key, stays, &gone);
    ctx.reply.array(values.len());
    for value in values {
        match value {
            Some(value) => ctx.reply.bulk(&value),
            None => ctx.reply.nil(),
        }
    }
    Ok(())
}

/// What may stand before FIELDS in HGETEX and HSETEX.
#[derive(Default)]
struct Options {
    expiry: Option<Expiry>,
    /// PERSIST or KEEPTTL.
    other: bool,
    /// All fields have to be there (`true`), or none of them.
    condition: Option<bool>,
    /// The key has to be there (`true`), or not to be.
    key_condition: Option<bool>,
}

/// The options, and the fields behind them.
fn parse(request: Request, is_set: bool) -> Result<(Options, Range<usize>)> {
    let mut options = Options::default();
    let mut index = 2;
    while index < request.len() && !request.is(index, "fields") {
        let word = request.arg(index).to_ascii_lowercase();
        let one_expiry = || match options.expiry.is_none() && !options.other {
            true => Ok(()),
            false if is_set => {
                Err(Error::text("ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified"))
            }
            false => Err(Error::text("ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified")),
        };
        match &word[..] {
            b"ex" | b"px" | b"exat" | b"pxat" => {
                one_expiry()?;
                if index + 1 >= request.len() {
                    return Err(Error::text("ERR missing expire time"));
                }
                options.expiry = Some(Expiry {
                    unit: if word.starts_with(b"e") { Unit::Seconds } else { Unit::Milliseconds },
                    absolute: word.ends_with(b"at"),
                    argument: index + 1,
                });
                index += 1;
            }
            b"keepttl" if is_set => {
                one_expiry()?;
                options.other = true;
            }
            b"persist" if !is_set => {
                one_expiry()?;
                options.other = true;
            }
            b"fnx" | b"fxx" if is_set => {
                if options.condition.is_some() {
                    return Err(Error::text("ERR Only one of FXX or FNX arguments can be specified"));
                }
                options.condition = Some(word == b"fxx");
            }
            b"nx" | b"xx" if is_set => {
                if options.key_condition.is_some() {
                    return Err(Error::text("ERR Only one of NX or XX arguments can be specified"));
                }
                options.key_condition = Some(word == b"xx");
            }
            _ => return Err(Error::quoting(&[b"ERR unknown argument: ", printable(&word, 128)])),
        }
        index += 1;
    }
    let fields = fields(request, index, usize::from(is_set), NOT_POSITIVE)?;
    Ok((options, fields))
}

fn get_and_expire(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    Edit::open(ctx, key)?;
    let (options, fields) = parse(request, false)?;
    let deadline = options.expiry.map(|expiry| deadline(ctx, request, expiry, "hgetex")).transpose()?;
    // Values too long to be told have their deadlines changed nevertheless.
    let told = reply_values(ctx, request, fields.clone());
    if deadline.is_none() && !options.other {
        return told;
    }
    let now = ctx.now;
    let Some(mut edit) = Edit::open(ctx, key)? else { return told };
    let mut named: Vec<&[u8]> = Vec::new();
    let (mut changed, mut has_deleted) = (false, false);
    for index in fields {
        let field = request.arg(index);
        let Some(current_ms) = edit.get(field).map(|field| field.deadline_ms) else { continue };
        match deadline {
            Some(deadline) if deadline.is_past(now) => {
                edit.remove(field);
                has_deleted = true;
            }
            Some(deadline) => {
                edit.set_deadline(field, Some(deadline.store_ms()));
                changed = true;
            }
            None if current_ms < NEVER_MS => {
                edit.set_deadline(field, None);
                changed = true;
            }
            None => continue,
        }
        named.push(field);
    }
    let stays = edit.close();
    let set = if deadline.is_some() { Event::HExpire } else { Event::HPersist };
    let change = if has_deleted { deleted(stays) } else { set.into() };
    if has_deleted || changed {
        ctx.name_elements(if has_deleted { Event::HDel } else { set }, &named);
    }
    ctx.commit_if(has_deleted || changed, key, change);
    if has_deleted {
        propagate_deleted::<Fields>(ctx, key, stays, &named);
    } else if changed {
        propagate_deadline::<Fields>(ctx, key, deadline, &named);
    }
    told
}

fn set_and_expire(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    Edit::open(ctx, key)?;
    let (options, fields) = parse(request, true)?;
    let deadline = options.expiry.map(|expiry| deadline(ctx, request, expiry, "hsetex")).transpose()?;
    let names = || fields.clone().step_by(2).map(|index| request.arg(index));
    let holds = {
        let found = Edit::open(ctx, key)?;
        let is_there = |name: &[u8]| found.as_ref().is_some_and(|edit| edit.get(name).is_some());
        let fields_hold = match options.condition {
            None => true,
            Some(true) => names().all(is_there),
            Some(false) => !names().any(is_there),
        };
        fields_hold && options.key_condition.is_none_or(|expected| found.is_some() == expected)
    };
    if !holds {
        ctx.reply.int(0);
        return Ok(());
    }
    let now = ctx.now;
    let is_past = deadline.is_some_and(|deadline| deadline.is_past(now));
    if is_past && Edit::open(ctx, key)?.is_none() {
        // What is dead already is never stored.
        ctx.reply.int(1);
        return Ok(());
    }
    let mut edit = Edit::open_or_make(ctx, key)?;
    let mut gone = Vec::new();
    for index in fields.clone().step_by(2) {
        let name = request.arg(index);
        if is_past {
            gone.extend(edit.remove(name).then_some(name));
            continue;
        }
        edit.set(name, request.arg(index + 1), options.other);
        if let Some(deadline) = deadline {
            edit.set_deadline(name, Some(deadline.store_ms()));
        }
    }
    let stays = edit.close();
    if is_past {
        tell_deleted::<Fields>(ctx, key, stays, &gone);
    } else {
        ctx.name_elements(Event::HSet, names());
        ctx.name_elements(Event::HExpire, names().filter(|_| deadline.is_some()));
        ctx.commit(key, Change::of(Event::HSet).and_if(deadline.is_some(), Event::HExpire));
        propagate_set(ctx, key, deadline, options.other, fields.map(|index| request.arg(index)).collect());
    }
    ctx.reply.int(1);
    Ok(())
}

/// Fields were set to values, in turn, under one deadline or none, or under those that they had.
fn propagate_set(ctx: &mut Ctx, key: Key, deadline: Option<Deadline>, keeps: bool, pairs: Vec<&[u8]>) {
    if !ctx.is_journaled() {
        return;
    }
    let at_ms = deadline.map(|deadline| ctx.clock.to_log_ms(deadline.store_ms()).to_string());
    let (mut args, count): (Vec<&[u8]>, String) = (vec![b"HSETEX", key.bytes], (pairs.len() / 2).to_string());
    match &at_ms {
        Some(at_ms) => args.extend([b"PXAT", at_ms.as_bytes()]),
        None if keeps => args.push(b"KEEPTTL"),
        None => args = vec![b"HSET", key.bytes],
    }
    if at_ms.is_some() || keeps {
        args.extend([b"FIELDS", count.as_bytes()]);
    }
    args.extend(pairs);
    ctx.propagate(&args);
}
