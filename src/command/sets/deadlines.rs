//! Deadlines of members: SEXPIRE, STTL, SPERSIST and their kin; SADDEX.

use super::edit::{Edit, add_members};
use super::{find, view};
use crate::command::deadlines::{Conditions, Deadline, Expiry, Unit};
use crate::command::elements::{self, ElementEdit, Elements, deadline, propagate_deadline, propagate_deleted};
use crate::command::spec::flag::{DENY_OOM, FAST, OWN_DEADLINE, READ, WRITE};
use crate::command::spec::{Group, Keys, Row, Spec, tip};
use crate::command::{Ctx, Run};
use crate::keyspace::{Change, Event, Key, NEVER_MS};
use crate::resp::{Error, Request, Result, printable};
use crate::value::number::parse_i64;
use crate::value::set::View;
use std::ops::Range;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        expire_spec(
            "sexpire",
            "Sets after how many seconds members of a set die.",
            "key seconds:integer [condition:(NX|XX|GT|LT)] members:(MEMBERS nummembers:integer member...)",
        ),
        Run::Key(|ctx, request| expire(ctx, request, Unit::Seconds, false, "sexpire")),
    ),
    Row::new(
        expire_spec(
            "spexpire",
            "Sets after how many milliseconds members of a set die.",
            "key milliseconds:integer [condition:(NX|XX|GT|LT)] members:(MEMBERS nummembers:integer member...)",
        ),
        Run::Key(|ctx, request| expire(ctx, request, Unit::Milliseconds, false, "spexpire")),
    ),
    Row::new(
        expire_spec(
            "sexpireat",
            "Sets the Unix time in seconds at which members of a set die.",
            "key unix-time-seconds:unix-time [condition:(NX|XX|GT|LT)] members:(MEMBERS nummembers:integer member...)",
        ),
        Run::Key(|ctx, request| expire(ctx, request, Unit::Seconds, true, "sexpireat")),
    ),
    Row::new(
        expire_spec(
            "spexpireat",
            "Sets the Unix time in milliseconds at which members of a set die.",
            "key unix-time-milliseconds:unix-time [condition:(NX|XX|GT|LT)] \
             members:(MEMBERS nummembers:integer member...)",
        ),
        Run::Key(|ctx, request| expire(ctx, request, Unit::Milliseconds, true, "spexpireat")),
    ),
    Row::new(
        ttl_spec("sttl", "Returns the seconds that members of a set live on."),
        Run::Key(|ctx, request| ttl(ctx, request, Unit::Seconds, false)),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        ttl_spec("spttl", "Returns the milliseconds that members of a set live on."),
        Run::Key(|ctx, request| ttl(ctx, request, Unit::Milliseconds, false)),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        ttl_spec("sexpiretime", "Returns the Unix time in seconds at which members of a set die."),
        Run::Key(|ctx, request| ttl(ctx, request, Unit::Seconds, true)),
    ),
    Row::new(
        ttl_spec("spexpiretime", "Returns the Unix time in milliseconds at which members of a set die."),
        Run::Key(|ctx, request| ttl(ctx, request, Unit::Milliseconds, true)),
    ),
    Row::new(
        Spec { flags: WRITE | FAST, ..ttl_spec("spersist", "Clears the deadlines of members of a set.") },
        Run::Key(persist),
    ),
    Row::new(
        Spec {
            name: "saddex",
            arity: -5,
            flags: WRITE | DENY_OOM | FAST,
            summary: "Adds members to a set together with their deadline, perhaps only where none or all of them are there.",
            syntax: "key [condition:(MNX|MXX)] [expiration:(EX seconds:integer|PX milliseconds:integer\
                     |EXAT unix-time-seconds:unix-time|PXAT unix-time-milliseconds:unix-time|KEEPTTL)] \
                     members:(MEMBERS nummembers:integer member...)",
            ..ttl_spec("", "")
        },
        Run::Key(add_and_expire),
    ),
];

const fn expire_spec(name: &'static str, summary: &'static str, syntax: &'static str) -> Spec {
    Spec { arity: -6, flags: WRITE | DENY_OOM | FAST | OWN_DEADLINE, syntax, ..ttl_spec(name, summary) }
}

const fn ttl_spec(name: &'static str, summary: &'static str) -> Spec {
    Spec {
        name,
        arity: -5,
        flags: READ | FAST,
        keys: Keys::ONE,
        group: Group::Set,
        since: "8.12.0",
        complexity: "O(1) for each member",
        summary,
        syntax: "key members:(MEMBERS nummembers:integer member...)",
    }
}

/// Members of sets.
struct Members;

impl Elements for Members {
    type Edit<'c> = Edit<'c>;
    const SET: Event = Event::SExpire;
    const CLEARED: Event = Event::SPersist;
    const DELETED: Event = Event::SRem;
    const EXPIRE: &'static [u8] = b"SPEXPIREAT";
    const PERSIST: &'static [u8] = b"SPERSIST";
    const DELETE: &'static [u8] = b"SREM";
    const WORD: &'static [u8] = b"MEMBERS";

    fn open<'c>(ctx: &'c mut Ctx, key: Key) -> Result<Option<Edit<'c>>> {
        Edit::open(ctx, key)
    }
}

const NO_MEMBERS: Error = Error::text("ERR missing MEMBERS argument");

/// The members behind MEMBERS, which stands at an index, and their number. More may stand behind them.
fn members(request: Request, at: usize, bad_count: &'static str) -> Result<Range<usize>> {
    let count = request.get(at + 1).and_then(parse_i64).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let count = count.and_then(|count| usize::try_from(count).ok()).ok_or(Error::text(bad_count))?;
    let members = at + 2..(at + 2).saturating_add(count);
    if members.end > request.len() {
        return Err(Error::text("ERR wrong number of arguments"));
    }
    Ok(members)
}

fn named(request: Request<'_>, members: Range<usize>) -> Vec<&[u8]> {
    members.map(|index| request.arg(index)).collect()
}

fn unknown(word: &[u8]) -> Error {
    Error::quoting(&[b"ERR unknown argument: ", printable(word, 128)])
}

/// What stands behind the time of SEXPIRE and its kin, in any order.
fn parse_expire(request: Request) -> Result<(Conditions, Range<usize>)> {
    let (mut conditions, mut found) = (Conditions::default(), None);
    let mut index = 3;
    while index < request.len() {
        if request.is(index, "members") {
            if found.is_some() {
                return Err(TWICE);
            }
            if index + 2 >= request.len() {
                return Err(Error::text("ERR MEMBERS requires at least nummembers and one member argument"));
            }
            let members = members(request, index, "ERR Parameter `numMembers` should be greater than 0")?;
            index = members.end;
            found = Some(members);
        } else if conditions.add(request.arg(index)) {
            index += 1;
        } else {
            return Err(unknown(request.arg(index)));
        }
    }
    let members = found.ok_or(NO_MEMBERS)?;
    if conditions.count() > 1 {
        return Err(Error::text("ERR Multiple condition flags specified"));
    }
    Ok((conditions, members))
}

const TWICE: Error = Error::text("ERR MEMBERS keyword specified multiple times");

fn expire(ctx: &mut Ctx, request: Request, unit: Unit, absolute: bool, name: &'static str) -> Result {
    let key = ctx.key(request.arg(1));
    // Its type is looked at first, as in Redis.
    find(ctx, key)?;
    let deadline = deadline(ctx, request, Expiry { unit, absolute, argument: 2 }, name)?;
    let (conditions, members) = parse_expire(request)?;
    elements::expire::<Members>(ctx, key, &named(request, members), deadline, &conditions)
}

/// The members of commands in which MEMBERS has its place behind the key.
fn parse_members(request: Request) -> Result<Range<usize>> {
    if !request.is(2, "members") {
        return Err(Error::text("ERR Mandatory argument MEMBERS is missing or not at the right position"));
    }
    let count = request.get(3).and_then(parse_i64).filter(|count| *count > 0);
    let count = count.ok_or(Error::text("ERR Number of members must be a positive integer"))?;
    if usize::try_from(count).ok() != Some(request.len() - 4) {
        return Err(Error::text("ERR The `nummembers` parameter must match the number of arguments"));
    }
    Ok(4..request.len())
}

fn ttl(ctx: &mut Ctx, request: Request, unit: Unit, absolute: bool) -> Result {
    let key = ctx.key(request.arg(1));
    let (clock, now_ms) = (ctx.clock, ctx.now.ms);
    let Ctx { keyspace, reply, .. } = ctx;
    let live = super::of_kind(keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
    let view = live.as_ref().map_or(View::EMPTY, view);
    let deadlines = parse_members(request)?.map(|index| view.deadline_ms(request.arg(index)));
    elements::answer_ttls(reply, deadlines, (unit, absolute), (clock, now_ms));
    Ok(())
}

fn persist(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    find(ctx, key)?;
    let members = parse_members(request)?;
    elements::persist::<Members>(ctx, key, &named(request, members))
}

/// What SADDEX is asked for.
struct Adding {
    deadline: Option<Deadline>,
    keeps: bool,
    /// All members have to be there (`true`), or none of them.
    condition: Option<bool>,
    members: Range<usize>,
}

fn parse_adding(ctx: &Ctx, request: Request) -> Result<Adding> {
    let mut adding = Adding { deadline: None, keeps: false, condition: None, members: 0..0 };
    let mut index = 2;
    while index < request.len() {
        let word = request.arg(index).to_ascii_lowercase();
        let is_first = adding.deadline.is_none() && !adding.keeps;
        let one_expiry = || match is_first {
            true => Ok(()),
            false => Err(Error::text("ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified")),
        };
        match (&word[..], Expiry::named(&word, index + 1)) {
            (_, Some(expiry)) => {
                one_expiry()?;
                if index + 1 >= request.len() {
                    return Err(Error::text("ERR missing expire time"));
                }
                adding.deadline = Some(deadline(ctx, request, expiry, "saddex")?);
                index += 1;
            }
            (b"keepttl", _) => {
                one_expiry()?;
                adding.keeps = true;
            }
            (b"mnx" | b"mxx", _) => {
                if adding.condition.is_some() {
                    return Err(Error::text("ERR Only one of MXX or MNX arguments can be specified"));
                }
                adding.condition = Some(word == b"mxx");
            }
            (b"members", _) => {
                if !adding.members.is_empty() {
                    return Err(TWICE);
                }
                if index + 1 >= request.len() {
                    return Err(Error::WrongArity("saddex".to_owned()));
                }
                adding.members = members(request, index, "ERR invalid number of members")?;
                index = adding.members.end - 1;
            }
            _ => return Err(unknown(request.arg(index))),
        }
        index += 1;
    }
    if adding.members.is_empty() { Err(NO_MEMBERS) } else { Ok(adding) }
}

fn add_and_expire(ctx: &mut Ctx, request: Request) -> Result {
    // The arguments are looked at before the key, as in Redis.
    let adding = parse_adding(ctx, request)?;
    let key = ctx.key(request.arg(1));
    let names = named(request, adding.members.clone());
    let found = find(ctx, key)?;
    let is_there = |name: &&[u8]| found.as_ref().is_some_and(|live| view(live).contains(name));
    let holds = match adding.condition {
        None => true,
        Some(true) => names.iter().all(is_there),
        Some(false) => !names.iter().any(is_there),
    };
    if !holds {
        ctx.reply.int(0);
        return Ok(());
    }
    match adding.deadline {
        // What is dead already is never stored.
        Some(deadline) if deadline.is_past(ctx.now) => take_out(ctx, key, &names)?,
        Some(deadline) => add_until(ctx, key, &names, deadline)?,
        None => add_lasting(ctx, key, &names, adding.keeps)?,
    }
    ctx.reply.int(1);
    Ok(())
}

fn take_out(ctx: &mut Ctx, key: Key, names: &[&[u8]]) -> Result {
    let Some(mut edit) = Edit::open(ctx, key)? else { return Ok(()) };
    let gone: Vec<&[u8]> = names.iter().copied().filter(|name| edit.remove(name)).collect();
    let stays = edit.close();
    ctx.commit_if(!gone.is_empty(), key, Members::deleted(stays));
    if !gone.is_empty() {
        propagate_deleted::<Members>(ctx, key, stays, &gone);
    }
    Ok(())
}

fn add_until(ctx: &mut Ctx, key: Key, names: &[&[u8]], deadline: Deadline) -> Result {
    add_members(ctx, key, names.iter().copied())?;
    if let Some(mut edit) = Edit::open(ctx, key)? {
        names.iter().for_each(|name| edit.set_deadline(name, Some(deadline.store_ms())));
        edit.close();
    }
    ctx.commit(key, Change::of(Event::SAdd).and(Event::SExpire));
    if ctx.is_journaled() {
        let (at_ms, count) = (ctx.clock.to_log_ms(deadline.store_ms()).to_string(), names.len().to_string());
        let head: [&[u8]; 6] = [b"SADDEX", key.bytes, b"PXAT", at_ms.as_bytes(), b"MEMBERS", count.as_bytes()];
        ctx.propagate(&[&head, names].concat());
    }
    Ok(())
}

/// Members that are there lose their deadlines, unless they keep them.
fn add_lasting(ctx: &mut Ctx, key: Key, names: &[&[u8]], keeps: bool) -> Result {
    add_members(ctx, key, names.iter().copied())?;
    let mut cleared = Vec::new();
    if let Some(mut edit) = Edit::open(ctx, key)?.filter(|_| !keeps) {
        for name in names.iter().filter(|name| edit.deadline_ms(name).is_some_and(|at_ms| at_ms < NEVER_MS)) {
            cleared.push(*name);
        }
        cleared.iter().for_each(|name| edit.set_deadline(name, None));
        edit.close();
    }
    ctx.commit(key, Event::SAdd);
    if ctx.is_journaled() {
        ctx.propagate(&[&[b"SADD", key.bytes], names].concat());
        if !cleared.is_empty() {
            propagate_deadline::<Members>(ctx, key, None, &cleared);
        }
    }
    Ok(())
}
