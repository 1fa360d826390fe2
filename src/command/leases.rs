//! LEASE: who may work on something until when, with fencing tokens.
//!
//! A lease is a string under its key, `<token> <owner>`, and the key's deadline is its end. So whatever is true of keys is
//! true of leases: they die in time, are in snapshots and the log, go to replicas of any kind, have events, and can be
//! renamed, evicted and deleted. Tokens are not kept with keys, so that nothing of this takes them back: they come from
//! [`crate::persist::tokens`].
//!
//! What a lease guards is asked by [`is_held`] (`server/run/guard.rs`), in the same moment as what it guards is done.

use super::spec::flag::{DENY_OOM, FAST, NO_RENEWAL, OWN_DEADLINE, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec};
use super::strings::propagate_set;
use super::{Across, Ctx, Run};
use crate::clock::Now;
use crate::keyspace::{Change, Event, Key, Keyspace, Kind, Stored, Value};
use crate::persist::tokens::GREATEST;
use crate::resp::{Error, Request, Result};
use crate::value::number::parse_i64;

pub const ROWS: &[Row<Run>] = &[Row::container(
    Spec {
        name: "lease",
        arity: -2,
        flags: 0,
        keys: Keys::NONE,
        group: Group::Generic,
        since: "0.1.0",
        complexity: "Depends on the subcommand",
        summary: "Groups what is done with leases.",
        syntax: "",
    },
    Run::Container,
    &[
        Row::new(
            Spec {
                summary: "Takes a lease that nobody has, for a time, and returns its token, which is greater than all before.",
                syntax: "key ttl [OWNER owner]",
                ..spec("take", -4, WRITE | DENY_OOM | OWN_DEADLINE | NO_RENEWAL)
            },
            Run::Coordinated(|across| Box::pin(take(across))),
        ),
        Row::new(
            Spec {
                summary: "Lets a lease last for a time from now, for who has it.",
                syntax: "key token:integer ttl",
                ..spec("renew", 5, WRITE | FAST | OWN_DEADLINE | NO_RENEWAL)
            },
            Run::Key(renew),
        ),
        Row::new(
            Spec {
                summary: "Ends a lease, for who has it.",
                syntax: "key token:integer",
                ..spec("release", 4, WRITE | FAST | NO_RENEWAL)
            },
            Run::Key(release),
        ),
        Row::new(
            Spec {
                summary: "Returns who has a lease, its token, and how long it lasts.",
                syntax: "key",
                ..spec("get", 3, READ | FAST | NO_RENEWAL)
            },
            Run::Key(get),
        ),
    ],
)];

const fn spec(name: &'static str, arity: i32, flags: u32) -> Spec {
    Spec {
        name,
        arity,
        flags,
        keys: Keys::SECOND,
        group: Group::Generic,
        since: "0.1.0",
        complexity: "O(1)",
        summary: "",
        syntax: "",
    }
}

/// What is told to who has a lease no longer.
pub const LOST: Error = Error::text("LEASELOST the lease has ended, or is not of this token");
const NO_LEASE: Error = Error::text("WRONGTYPE The key holds a string that is no lease");

/// A token, as a client says it.
///
/// # Errors
/// Where that is no number.
pub fn token(request: Request, index: usize) -> Result<u64> {
    number(request.arg(index)).ok_or(Error::NotAnInteger)
}

fn number(bytes: &[u8]) -> Option<u64> {
    parse_i64(bytes).and_then(|number| number.try_into().ok())
}

/// What stands under the key of a lease: its token, and its owner.
fn parse(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let space = bytes.iter().position(|byte| *byte == b' ')?;
    let token = number(&bytes[..space]).filter(|token| *token <= GREATEST)?;
    Some((token, &bytes[space + 1..]))
}

fn parse_stored<'s>(stored: &Stored<'s>) -> Option<(u64, &'s [u8])> {
    match stored {
        Stored::String(Value::Bytes(bytes)) => parse(bytes),
        _ => None,
    }
}

/// Whether a lease is alive and has this token. Nothing is left behind of the question.
pub fn is_held(keyspace: &Keyspace, db: usize, key: Key, token: u64, now: Now) -> bool {
    let stored = keyspace.peek(db, key, now);
    stored.as_ref().and_then(parse_stored).is_some_and(|(of, _)| of == token)
}

/// The request of TAKE, but for the key.
struct Wish {
    ttl_ms: u64,
    owner: Option<usize>,
}

impl Wish {
    fn parse(request: Request) -> Result<Wish> {
        let ttl_ms = request.duration(3)?;
        match request.len() {
            4 => Ok(Wish { ttl_ms, owner: None }),
            6 if request.is(4, "owner") => Ok(Wish { ttl_ms, owner: Some(5) }),
            _ => Err(Error::Syntax),
        }
    }
}

/// The key is held. A token is asked for only where the lease is free; while that is brought to the disk nobody else takes it.
async fn take(across: Across) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let wish = Wish::parse(request)?;
    let key: Box<[u8]> = request.arg(2).into();
    let owner: Box<[u8]> = wish.owner.map_or(&b""[..], |index| request.arg(index)).into();
    let target = across.shard_of(&key);
    let of_key = key.clone();
    let is_free = across.on(target, move |ctx| is_free(ctx, &of_key)).await?;
    if !is_free {
        return Ok(across.reply(|reply| reply.nil()));
    }
    let token = across.hop.token().await?;
    across.on(target, move |ctx| store(ctx, &key, token, &owner, wish.ttl_ms)).await?;
    Ok(across.reply(|reply| reply.int(token as i64)))
}

/// Whether nobody has a lease.
///
/// # Errors
/// Where the key is something else.
fn is_free(ctx: &mut Ctx, key: &[u8]) -> Result<bool> {
    let key = ctx.other_key(key);
    match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        None => Ok(true),
        Some(live) if live.kind() != Kind::String => Err(Error::WrongType),
        Some(live) if parse_stored(&live.content()).is_none() => Err(NO_LEASE),
        Some(_) => Ok(false),
    }
}

fn store(ctx: &mut Ctx, key: &[u8], token: u64, owner: &[u8], ttl_ms: u64) -> Result {
    let key = ctx.other_key(key);
    let value = [token.to_string().as_bytes(), b" ", owner].concat();
    if value.len() > ctx.limits.string_bytes {
        return Err(Error::StringTooLong);
    }
    let deadline_ms = ctx.present().ms.saturating_add(ttl_ms);
    ctx.keyspace.insert(ctx.db, key, Value::Bytes(&value), Some(deadline_ms), ctx.now);
    ctx.commit_dated(key, Change::of(Event::Set).and(Event::Expire), Some(deadline_ms));
    propagate_set(ctx, key, &value, Some(deadline_ms));
    Ok(())
}

fn renew(ctx: &mut Ctx, request: Request) -> Result {
    let (token, ttl_ms) = (token(request, 3)?, request.duration(4)?);
    let key = ctx.key(request.arg(2));
    let deadline_ms = ctx.present().ms.saturating_add(ttl_ms);
    match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        Some(live) if parse_stored(&live.content()).is_some_and(|(of, _)| of == token) => {
            live.edit().set_deadline(Some(deadline_ms));
        }
        _ => return Err(LOST),
    }
    ctx.commit_dated(key, Event::Expire, Some(deadline_ms));
    ctx.propagate_at(&[b"PEXPIREAT", key.bytes], deadline_ms);
    ctx.reply.ok();
    Ok(())
}

fn release(ctx: &mut Ctx, request: Request) -> Result {
    let token = token(request, 3)?;
    let key = ctx.key(request.arg(2));
    let is_held = match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        Some(live) if parse_stored(&live.content()).is_some_and(|(of, _)| of == token) => {
            live.edit().remove();
            true
        }
        _ => false,
    };
    if is_held {
        ctx.commit_deletion(key);
    }
    ctx.reply.int(i64::from(is_held));
    Ok(())
}

fn get(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(2));
    let Some(live) = ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) else {
        ctx.reply.nil_array();
        return Ok(());
    };
    if live.kind() != Kind::String {
        return Err(Error::WrongType);
    }
    let left_ms = live.deadline_ms().map_or(-1, |deadline_ms| deadline_ms.saturating_sub(ctx.now.ms) as i64);
    let content = live.content();
    let (token, owner) = parse_stored(&content).ok_or(NO_LEASE)?;
    ctx.reply.map(3);
    ctx.reply.bulk(b"token");
    ctx.reply.int(token as i64);
    ctx.reply.bulk(b"owner");
    ctx.reply.bulk(owner);
    ctx.reply.bulk(b"ttl_ms");
    ctx.reply.int(left_ms);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_a_token_a_space_and_an_owner() {
        assert_eq!(parse(b"17 worker 3"), Some((17, &b"worker 3"[..])));
        assert_eq!(parse(b"9007199254740991 "), Some((GREATEST, &b""[..])));
        for other in ["", " ", "17", "x y", "-1 x", "+1 x", " 17 x", "9007199254740992 x", "99999999999999999999 x"] {
            assert_eq!(parse(other.as_bytes()), None, "{other:?}");
        }
    }
}
