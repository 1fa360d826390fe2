//! Deadlines of elements: what HEXPIRE, SEXPIRE and their kin have in common.

use super::Ctx;
use super::deadlines::{Conditions, Deadline, Expiry, Unit};
use crate::clock::Clock;
use crate::keyspace::{Change, Event, Key, NEVER_MS};
use crate::resp::{Error, Reply, Request, Result};

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

/// Gives elements a deadline where the conditions hold, or takes them out where it has passed.
pub fn expire<E: Elements>(
    ctx: &mut Ctx,
    key: Key,
    names: &[&[u8]],
    deadline: Deadline,
    conditions: &Conditions,
) -> Result {
    let now = ctx.now;
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
        let set = those(names, &answers, SET);
        ctx.name_elements(E::SET, &set);
        ctx.commit(key, E::SET);
        propagate_deadline::<E>(ctx, key, Some(deadline), &set);
    }
    tell_deleted::<E>(ctx, key, stays, &those(names, &answers, DELETED));
    answer_each(ctx, &answers);
    Ok(())
}

/// Answers how long elements live on, or until when; `deadlines` are those of the ones that are alive.
pub fn answer_ttls(
    reply: &mut Reply,
    deadlines: impl ExactSizeIterator<Item = Option<u64>>,
    (unit, absolute): (Unit, bool),
    (clock, now_ms): (&Clock, u64),
) {
    reply.array(deadlines.len());
    for deadline_ms in deadlines {
        let answer_ms = match deadline_ms {
            None => NO_ELEMENT,
            Some(NEVER_MS) => NO_DEADLINE,
            Some(deadline_ms) if absolute => clock.to_wall_ms(deadline_ms),
            Some(deadline_ms) => deadline_ms as i64 - now_ms as i64,
        };
        reply.int(match unit {
            // Rounded up: an element that lives is not said to be dead.
            Unit::Seconds if answer_ms >= 0 => answer_ms.saturating_add(999) / 1000,
            _ => answer_ms,
        });
    }
}

/// Clears the deadlines of elements.
pub fn persist<E: Elements>(ctx: &mut Ctx, key: Key, names: &[&[u8]]) -> Result {
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
        let cleared = those(names, &answers, SET);
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
