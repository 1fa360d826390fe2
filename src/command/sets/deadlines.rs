//! Deadlines of members: SEXPIRE, STTL, SPERSIST and their kin; SADDEX.

use super::edit::{Edit, add_members};
use super::{find, view};
use crate::command::deadlines::{Conditions, Deadline, Expiry};
use crate::command::elements::{ElementEdit, Elements, deadline, named, propagate_deadline, rows, tell_deleted};
use crate::command::members::{self, NO_MEMBERS, TWICE, members, unknown};
use crate::command::spec::flag::{DENY_OOM, FAST, WRITE};
use crate::command::spec::{Group, Keys, Row, Spec};
use crate::command::{Ctx, Run};
use crate::keyspace::{Change, Event, Key, NEVER_MS};
use crate::resp::{Error, Request, Result};
use std::ops::Range;

pub const ROWS: &[Row<Run>] = &rows!(
    "s",
    "members of a set",
    "members:(MEMBERS nummembers:integer member...)",
    SPEC,
    Members,
    Row::new(
        Spec {
            name: "saddex",
            arity: -5,
            flags: WRITE | DENY_OOM | FAST,
            summary: "Adds members to a set together with their deadline, perhaps only where none or all of them are there.",
            syntax: "key [condition:(MNX|MXX)] [expiration:(EX seconds:integer|PX milliseconds:integer\
                     |EXAT unix-time-seconds:unix-time|PXAT unix-time-milliseconds:unix-time|KEEPTTL)] \
                     members:(MEMBERS nummembers:integer member...)",
            ..SPEC
        },
        Run::Key(add_and_expire),
    ),
);

const SPEC: Spec = Spec {
    name: "",
    arity: 0,
    flags: 0,
    keys: Keys::ONE,
    group: Group::Set,
    since: "8.12.0",
    complexity: "O(1) for each member",
    summary: "",
    syntax: "",
};

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

    fn parse_expire(request: Request) -> Result<(Conditions, Range<usize>)> {
        members::parse_expire(request)
    }

    fn parse_named(request: Request) -> Result<Range<usize>> {
        members::parse_named(request)
    }

    fn open<'c>(ctx: &'c mut Ctx, key: Key) -> Result<Option<Edit<'c>>> {
        Edit::open(ctx, key)
    }
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
    tell_deleted::<Members>(ctx, key, stays, &gone);
    Ok(())
}

fn add_until(ctx: &mut Ctx, key: Key, names: &[&[u8]], deadline: Deadline) -> Result {
    add_members(ctx, key, names.iter().copied())?;
    if let Some(mut edit) = Edit::open(ctx, key)? {
        names.iter().for_each(|name| edit.set_deadline(name, Some(deadline.store_ms())));
        edit.close();
    }
    ctx.name_elements(Event::SExpire, names);
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
