//! Deadlines of elements: what HEXPIRE, SEXPIRE and their kin have in common.

use super::deadlines::{Conditions, Deadline, Expiry, Unit};
use super::spec::flag::{DENY_OOM, FAST, NO_RENEWAL, OWN_DEADLINE, READ, WRITE};
use super::spec::{Row, Spec, tip};
use super::{Ctx, Handler, Run};
use crate::keyspace::{Change, Event, Key, NEVER_MS};
use crate::resp::{Error, Request, Result};
use std::ops::Range;

/// The rows of HEXPIRE and its kin: what their names begin with, whose deadlines they are about, how those are named in a
/// request, what else is said of them all, and the [`Elements`] that they are. Other rows may follow.
macro_rules! rows {
    ($letter:literal, $whose:literal, $named:literal, $spec:expr, $elements:ty $(, $more:expr)* $(,)?) => {
        [
            $crate::command::elements::rows!(@expire $letter, "expire", (Seconds, false), $spec, $elements,
                concat!("Sets after how many seconds ", $whose, " die."),
                concat!("key seconds:integer [condition:(NX|XX|GT|LT)] ", $named)),
            $crate::command::elements::rows!(@expire $letter, "pexpire", (Milliseconds, false), $spec, $elements,
                concat!("Sets after how many milliseconds ", $whose, " die."),
                concat!("key milliseconds:integer [condition:(NX|XX|GT|LT)] ", $named)),
            $crate::command::elements::rows!(@expire $letter, "expireat", (Seconds, true), $spec, $elements,
                concat!("Sets the Unix time in seconds at which ", $whose, " die."),
                concat!("key unix-time-seconds:unix-time [condition:(NX|XX|GT|LT)] ", $named)),
            $crate::command::elements::rows!(@expire $letter, "pexpireat", (Milliseconds, true), $spec, $elements,
                concat!("Sets the Unix time in milliseconds at which ", $whose, " die."),
                concat!("key unix-time-milliseconds:unix-time [condition:(NX|XX|GT|LT)] ", $named)),
            $crate::command::elements::rows!(@ttl $letter, "ttl", (Seconds, false), $spec, $elements,
                concat!("Returns the seconds that ", $whose, " live on."), concat!("key ", $named)),
            $crate::command::elements::rows!(@ttl $letter, "pttl", (Milliseconds, false), $spec, $elements,
                concat!("Returns the milliseconds that ", $whose, " live on."), concat!("key ", $named)),
            $crate::command::elements::rows!(@ttl $letter, "expiretime", (Seconds, true), $spec, $elements,
                concat!("Returns the Unix time in seconds at which ", $whose, " die."), concat!("key ", $named)),
            $crate::command::elements::rows!(@ttl $letter, "pexpiretime", (Milliseconds, true), $spec, $elements,
                concat!("Returns the Unix time in milliseconds at which ", $whose, " die."), concat!("key ", $named)),
            $crate::command::elements::persist_row(
                concat!($letter, "persist"),
                [concat!("Clears the deadlines of ", $whose, "."), concat!("key ", $named)],
                $spec,
                $crate::command::elements::persist::<$elements>,
            ),
            $($more),*
        ]
    };
    (@expire $letter:literal, $name:literal, ($unit:ident, $absolute:literal), $spec:expr, $elements:ty,
        $summary:expr, $syntax:expr) => {
        $crate::command::elements::expire_row(
            concat!($letter, $name),
            [$summary, $syntax],
            $spec,
            |ctx, request| {
                let (unit, name) = ($crate::command::deadlines::Unit::$unit, concat!($letter, $name));
                $crate::command::elements::expire::<$elements>(ctx, request, (unit, $absolute), name)
            },
        )
    };
    (@ttl $letter:literal, $name:literal, ($unit:ident, $absolute:literal), $spec:expr, $elements:ty,
        $summary:expr, $syntax:expr) => {
        $crate::command::elements::ttl_row(
            concat!($letter, $name),
            [$summary, $syntax],
            $spec,
            $absolute,
            |ctx, request| {
                let unit = $crate::command::deadlines::Unit::$unit;
                $crate::command::elements::ttl::<$elements>(ctx, request, (unit, $absolute))
            },
        )
    };
}

pub(crate) use rows;

/// A row of [`rows`], with its summary and its syntax.
pub const fn expire_row(
    name: &'static str,
    [summary, syntax]: [&'static str; 2],
    spec: Spec,
    run: Handler,
) -> Row<Run> {
    let flags = WRITE | DENY_OOM | FAST | OWN_DEADLINE | NO_RENEWAL;
    Row::new(Spec { name, arity: -6, flags, summary, syntax, ..spec }, Run::Key(run))
}

/// The same: what is left of a life is another number each time, when it ends is not.
pub const fn ttl_row(
    name: &'static str,
    [summary, syntax]: [&'static str; 2],
    spec: Spec,
    absolute: bool,
    run: Handler,
) -> Row<Run> {
    let flags = READ | FAST | NO_RENEWAL;
    let row = Row::new(Spec { name, arity: -5, flags, summary, syntax, ..spec }, Run::Key(run));
    if absolute { row } else { row.tips(&[tip::NONDETERMINISTIC_OUTPUT]) }
}

/// The same.
pub const fn persist_row(
    name: &'static str,
    [summary, syntax]: [&'static str; 2],
    spec: Spec,
    run: Handler,
) -> Row<Run> {
    let flags = WRITE | FAST | NO_RENEWAL;
    Row::new(Spec { name, arity: -5, flags, summary, syntax, ..spec }, Run::Key(run))
}

/// A type of collections whose elements have deadlines.
pub trait Elements {
    type Edit<'c>: ElementEdit;
    /// They were given deadlines, or lost theirs, or were taken out.
    const SET: Event;
    const CLEARED: Event;
    const DELETED: Event;
    /// The commands that say so, and the word before the elements.
    const EXPIRE: &'static [u8];
    const PERSIST: &'static [u8];
    const DELETE: &'static [u8];
    const WORD: &'static [u8];

    /// What stands behind the time: conditions, and where the elements are.
    fn parse_expire(request: Request) -> Result<(Conditions, Range<usize>)>;
    /// Where the elements are that stand behind the key.
    fn parse_named(request: Request) -> Result<Range<usize>>;
    /// The collection under a key, if there is one, to be changed; another type is an error.
    fn open<'c>(ctx: &'c mut Ctx, key: Key) -> Result<Option<Self::Edit<'c>>>;

    /// Some were taken out, perhaps the last one and with it the key.
    fn deleted(stays: bool) -> Change {
        Change::removal(Self::DELETED, !stays)
    }
}

/// A collection that is being changed.
pub trait ElementEdit {
    /// The deadline of an element that is alive, [`NEVER_MS`] where it has none.
    fn deadline_ms(&self, name: &[u8]) -> Option<u64>;
    /// Sets or clears the deadline of an element that is alive.
    fn set_deadline(&mut self, name: &[u8], deadline_ms: Option<u64>);
    /// Takes an element out; whether it was there and alive.
    fn remove(&mut self, name: &[u8]) -> bool;
    /// Lets the key know when its first element dies; deletes it where none is left. Whether it stays.
    fn close(self) -> bool;
}

/// The latest deadline an element may have, Unix milliseconds.
const LATEST_MS: i64 = (1 << 46) - 1;

const NO_ELEMENT: i64 = -2;
const NO_DEADLINE: i64 = -1;
const UNMET: i64 = 0;
const SET: i64 = 1;
const DELETED: i64 = 2;

/// A deadline of elements. None of them lies before now or past the latest.
pub fn deadline(ctx: &Ctx, request: Request, expiry: Expiry, name: &'static str) -> Result<Deadline> {
    if request.int(expiry.argument)? < 0 {
        return Err(Error::text("ERR invalid expire time, must be >= 0"));
    }
    let deadline = expiry.deadline(ctx, request, name)?;
    if ctx.clock.to_wall_ms(deadline.store_ms()) > LATEST_MS {
        return Err(Error::InvalidExpireTime(name));
    }
    Ok(deadline)
}

/// What each element answers.
fn answer_each(ctx: &mut Ctx, answers: &[i64]) {
    ctx.reply.array(answers.len());
    answers.iter().for_each(|answer| ctx.reply.int(*answer));
}

/// The names that gave an answer.
fn those<'n>(names: &[&'n [u8]], answers: &[i64], answer: i64) -> Vec<&'n [u8]> {
    names.iter().zip(answers).filter(|(_, given)| **given == answer).map(|(name, _)| *name).collect()
}

/// The elements that stand there.
pub fn named(request: Request<'_>, elements: Range<usize>) -> Vec<&[u8]> {
    elements.map(|index| request.arg(index)).collect()
}

/// HEXPIRE and its kin, of this name: gives elements a deadline where the conditions hold, or takes them out where it has
/// passed.
pub fn expire<E: Elements>(
    ctx: &mut Ctx,
    request: Request,
    (unit, absolute): (Unit, bool),
    name: &'static str,
) -> Result {
    let (key, now) = (ctx.key(request.arg(1)), ctx.now);
    // Its type is looked at first, as in Redis.
    E::open(ctx, key)?;
    let deadline = deadline(ctx, request, Expiry { unit, absolute, argument: 2 }, name)?;
    let (conditions, elements) = E::parse_expire(request)?;
    let names = named(request, elements);
    let Some(mut edit) = E::open(ctx, key)? else {
        answer_each(ctx, &vec![NO_ELEMENT; names.len()]);
        return Ok(());
    };
    let mut answer = |name: &&[u8]| {
        let Some(current_ms) = edit.deadline_ms(name) else { return NO_ELEMENT };
        if !conditions.hold(Some(current_ms).filter(|current_ms| *current_ms < NEVER_MS), deadline) {
            return UNMET;
        }
        if deadline.is_past(now) {
            edit.remove(name);
            return DELETED;
        }
        edit.set_deadline(name, Some(deadline.store_ms()));
        SET
    };
    let answers: Vec<i64> = names.iter().map(&mut answer).collect();
    let stays = edit.close();
    if answers.contains(&SET) {
        let set = those(&names, &answers, SET);
        ctx.name_elements(E::SET, &set);
        ctx.commit(key, E::SET);
        propagate_deadline::<E>(ctx, key, Some(deadline), &set);
    }
    tell_deleted::<E>(ctx, key, stays, &those(&names, &answers, DELETED));
    answer_each(ctx, &answers);
    Ok(())
}

/// HTTL and its kin: how long elements live on, or until when.
pub fn ttl<E: Elements>(ctx: &mut Ctx, request: Request, (unit, absolute): (Unit, bool)) -> Result {
    let (key, clock, now_ms) = (ctx.key(request.arg(1)), ctx.clock, ctx.now.ms);
    // Its type is looked at first, as in Redis.
    let found = E::open(ctx, key)?;
    let names = named(request, E::parse_named(request)?);
    let answer = |name: &&[u8]| {
        let answer_ms = match found.as_ref().and_then(|edit| edit.deadline_ms(name)) {
            None => NO_ELEMENT,
            Some(NEVER_MS) => NO_DEADLINE,
            Some(deadline_ms) if absolute => clock.to_wall_ms(deadline_ms),
            Some(deadline_ms) => deadline_ms as i64 - now_ms as i64,
        };
        match unit {
            // Rounded up: an element that lives is not said to be dead.
            Unit::Seconds if answer_ms >= 0 => answer_ms.saturating_add(999) / 1000,
            _ => answer_ms,
        }
    };
    let answers: Vec<i64> = names.iter().map(answer).collect();
    drop(found);
    answer_each(ctx, &answers);
    Ok(())
}

/// HPERSIST and its kin: clears the deadlines of elements.
pub fn persist<E: Elements>(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    // Its type is looked at first, as in Redis.
    E::open(ctx, key)?;
    let names = named(request, E::parse_named(request)?);
    let Some(mut edit) = E::open(ctx, key)? else {
        answer_each(ctx, &vec![NO_ELEMENT; names.len()]);
        return Ok(());
    };
    let mut answer = |name: &&[u8]| match edit.deadline_ms(name) {
        None => NO_ELEMENT,
        Some(NEVER_MS) => NO_DEADLINE,
        Some(_) => {
            edit.set_deadline(name, None);
            SET
        }
    };
    let answers: Vec<i64> = names.iter().map(&mut answer).collect();
    edit.close();
    if answers.contains(&SET) {
        let cleared = those(&names, &answers, SET);
        ctx.name_elements(E::CLEARED, &cleared);
        ctx.commit(key, E::CLEARED);
        propagate_deadline::<E>(ctx, key, None, &cleared);
    } else {
        ctx.unchanged(key);
    }
    answer_each(ctx, &answers);
    Ok(())
}

/// These elements were given a deadline, or lost theirs.
pub fn propagate_deadline<E: Elements>(ctx: &mut Ctx, key: Key, deadline: Option<Deadline>, names: &[&[u8]]) {
    if !ctx.is_journaled() {
        return;
    }
    let at_ms = deadline.map(|deadline| ctx.clock.to_log_ms(deadline.store_ms()).to_string());
    let count = names.len().to_string();
    let mut args: Vec<&[u8]> = match &at_ms {
        Some(at_ms) => vec![E::EXPIRE, key.bytes, at_ms.as_bytes()],
        None => vec![E::PERSIST, key.bytes],
    };
    args.extend([E::WORD, count.as_bytes()]);
    args.extend(names);
    ctx.propagate(&args);
}

/// These elements, if any, were taken out, perhaps the last one and with it the key.
pub fn tell_deleted<E: Elements>(ctx: &mut Ctx, key: Key, stays: bool, gone: &[&[u8]]) {
    if gone.is_empty() {
        return ctx.unchanged(key);
    }
    ctx.name_elements(E::DELETED, gone);
    ctx.commit(key, E::deleted(stays));
    propagate_deleted::<E>(ctx, key, stays, gone);
}

/// These elements were taken out, and the key with them where it does not stay.
pub fn propagate_deleted<E: Elements>(ctx: &mut Ctx, key: Key, stays: bool, names: &[&[u8]]) {
    if !stays {
        ctx.propagate(&[b"DEL", key.bytes]);
    } else if ctx.is_journaled() {
        ctx.propagate(&[&[E::DELETE, key.bytes], names].concat());
    }
}
