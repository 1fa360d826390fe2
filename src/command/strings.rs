//! One string under one key: SET, GET, counters, parts of strings.

use super::compare::{self, Condition, is_comparison};
use super::spec::flag::{COUNTED, DENY_OOM, FAST, NO_RENEWAL, OWN_DEADLINE, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec};
use super::{Ctx, Run, deadlines};
use crate::keyspace::{Change, Event, Key, Kind, Live, Touch, Value};
use crate::resp::{Error, Reply, Request, Result};
use crate::value::number::{I64_TEXT_BYTES_MAX, LongDoubleError, add_long_double, format_i64};
use deadlines::{Expiry, Unit};

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            name: "get",
            arity: 2,
            flags: READ | FAST,
            keys: Keys::ONE,
            group: Group::String,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Returns the string under a key.",
            syntax: "key",
        },
        Run::Key(get),
    ),
    Row::new(
        Spec {
            name: "set",
            arity: -3,
            flags: WRITE | DENY_OOM | OWN_DEADLINE,
            keys: Keys::ONE,
            group: Group::String,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Stores a string under a key, whatever was there; the deadline is set anew, kept or cleared.",
            syntax: "key value [condition:(NX|XX|IFEQ ifeq-value:string|IFNE ifne-value:string|IFDEQ ifdeq-digest:integer\
                     |IFDNE ifdne-digest:integer)] [GET] [expiration:(EX seconds:integer|PX milliseconds:integer|EXAT \
                     unix-time-seconds:unix-time|PXAT unix-time-milliseconds:unix-time|KEEPTTL)]",
        },
        Run::Key(set),
    ),
    Row::new(
        Spec {
            name: "setex",
            arity: 4,
            flags: WRITE | DENY_OOM | OWN_DEADLINE,
            keys: Keys::ONE,
            group: Group::String,
            since: "2.0.0",
            complexity: "O(1)",
            summary: "Stores a string that lives for so many seconds.",
            syntax: "key seconds:integer value",
        },
        Run::Key(|ctx, request| set_for(ctx, request, Unit::Seconds, "setex")),
    ),
    Row::new(
        Spec {
            name: "psetex",
            arity: 4,
            flags: WRITE | DENY_OOM | OWN_DEADLINE,
            keys: Keys::ONE,
            group: Group::String,
            since: "2.6.0",
            complexity: "O(1)",
            summary: "Stores a string that lives for so many milliseconds.",
            syntax: "key milliseconds:integer value",
        },
        Run::Key(|ctx, request| set_for(ctx, request, Unit::Milliseconds, "psetex")),
    ),
    Row::new(
        Spec {
            name: "setnx",
            arity: 3,
            flags: WRITE | DENY_OOM | FAST | NO_RENEWAL,
            keys: Keys::ONE,
            group: Group::String,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Stores a string where there is no key yet.",
            syntax: "key value",
        },
        Run::Key(setnx),
    ),
    Row::new(
        Spec {
            name: "getex",
            arity: -2,
            flags: WRITE | COUNTED | FAST,
            keys: Keys::ONE,
            group: Group::String,
            since: "6.2.0",
            complexity: "O(1)",
            summary: "Returns the string under a key and sets or clears its deadline.",
            syntax: "key [expiration:(EX seconds:integer|PX milliseconds:integer|EXAT unix-time-seconds:unix-time\
                     |PXAT unix-time-milliseconds:unix-time|PERSIST)]",
        },
        Run::Key(getex),
    ),
    Row::new(
        Spec {
            name: "getdel",
            arity: 2,
            flags: WRITE | COUNTED | FAST,
            keys: Keys::ONE,
            group: Group::String,
            since: "6.2.0",
            complexity: "O(1)",
            summary: "Returns the string under a key and deletes the key.",
            syntax: "key",
        },
        Run::Key(getdel),
    ),
    Row::new(
        Spec {
            name: "delex",
            arity: -2,
            flags: WRITE | FAST,
            keys: Keys::ONE,
            group: Group::String,
            since: "8.4.0",
            complexity: "O(n) in the length of the value for a digest, else O(1)",
            summary: "Deletes a key, if its string or the digest of it is, or is not, the one given.",
            syntax: "key [condition:(IFEQ ifeq-value:string|IFNE ifne-value:string|IFDEQ ifdeq-digest:integer|IFDNE \
                     ifdne-digest:integer)]",
        },
        Run::Key(delex),
    ),
    Row::new(
        Spec {
            name: "delifeq",
            arity: 3,
            flags: WRITE | FAST,
            keys: Keys::ONE,
            group: Group::String,
            since: "9.0.0",
            complexity: "O(1)",
            summary: "Deletes a key, if its string is the one given.",
            syntax: "key value",
        },
        Run::Key(delifeq),
    ),
    Row::new(
        Spec {
            name: "digest",
            arity: 2,
            flags: READ | FAST,
            keys: Keys::ONE,
            group: Group::String,
            since: "8.4.0",
            complexity: "O(n) in the length of the value",
            summary: "Returns the XXH3 hash of the string under a key, in hexadecimal.",
            syntax: "key",
        },
        Run::Key(digest),
    ),
    Row::new(
        Spec {
            name: "getset",
            arity: 3,
            flags: WRITE | COUNTED | DENY_OOM | FAST | OWN_DEADLINE,
            keys: Keys::ONE,
            group: Group::String,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Stores a string and returns the one that was there.",
            syntax: "key value",
        },
        Run::Key(getset),
    )
    .deprecated("6.2.0", "`SET` with the `!GET` argument"),
    Row::new(
        Spec {
            name: "append",
            arity: 3,
            flags: WRITE | DENY_OOM | FAST,
            keys: Keys::ONE,
            group: Group::String,
            since: "2.0.0",
            complexity: "O(1), amortised",
            summary: "Appends to the string under a key, or stores it.",
            syntax: "key value",
        },
        Run::Key(append),
    ),
    Row::new(
        Spec {
            name: "strlen",
            arity: 2,
            flags: READ | FAST,
            keys: Keys::ONE,
            group: Group::String,
            since: "2.2.0",
            complexity: "O(1)",
            summary: "Returns the length of the string under a key, in bytes.",
            syntax: "key",
        },
        Run::Key(strlen),
    ),
    Row::new(
        Spec {
            name: "setrange",
            arity: 4,
            flags: WRITE | DENY_OOM,
            keys: Keys::ONE,
            group: Group::String,
            since: "2.2.0",
            complexity: "O(n) in the length of the value",
            summary: "Overwrites a part of a string, which grows as far as needed.",
            syntax: "key offset:integer value",
        },
        Run::Key(setrange),
    ),
    Row::new(
        Spec {
            name: "getrange",
            arity: 4,
            flags: READ,
            keys: Keys::ONE,
            group: Group::String,
            since: "2.4.0",
            complexity: "O(n) in the length of the part",
            summary: "Returns a part of the string under a key.",
            syntax: "key start:integer end:integer",
        },
        Run::Key(getrange),
    ),
    Row::new(
        Spec {
            name: "substr",
            arity: 4,
            flags: READ,
            keys: Keys::ONE,
            group: Group::String,
            since: "1.0.0",
            complexity: "O(n) in the length of the part",
            summary: "GETRANGE under its old name.",
            syntax: "key start:integer end:integer",
        },
        Run::Key(getrange),
    )
    .deprecated("2.0.0", "`GETRANGE`"),
    Row::new(
        Spec {
            name: "incr",
            arity: 2,
            flags: WRITE | DENY_OOM | FAST,
            keys: Keys::ONE,
            group: Group::String,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Adds one to the integer under a key; a missing key counts as zero.",
            syntax: "key",
        },
        Run::Key(|ctx, request| add(ctx, request, 1)),
    ),
    Row::new(
        Spec {
            name: "decr",
            arity: 2,
            flags: WRITE | DENY_OOM | FAST,
            keys: Keys::ONE,
            group: Group::String,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Takes one from the integer under a key; a missing key counts as zero.",
            syntax: "key",
        },
        Run::Key(|ctx, request| add(ctx, request, -1)),
    ),
    Row::new(
        Spec {
            name: "incrby",
            arity: 3,
            flags: WRITE | DENY_OOM | FAST,
            keys: Keys::ONE,
            group: Group::String,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Adds a number to the integer under a key.",
            syntax: "key increment:integer",
        },
        Run::Key(|ctx, request| add(ctx, request, request.int(2)?)),
    ),
    Row::new(
        Spec {
            name: "decrby",
            arity: 3,
            flags: WRITE | DENY_OOM | FAST,
            keys: Keys::ONE,
            group: Group::String,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Takes a number from the integer under a key.",
            syntax: "key decrement:integer",
        },
        Run::Key(|ctx, request| {
            let decrement = request.int(2)?;
            add(ctx, request, decrement.checked_neg().ok_or(Error::DecrementOverflow)?)
        }),
    ),
    Row::new(
        Spec {
            name: "incrbyfloat",
            arity: 3,
            flags: WRITE | DENY_OOM | FAST,
            keys: Keys::ONE,
            group: Group::String,
            since: "2.6.0",
            complexity: "O(1)",
            summary: "Adds a decimal number to the number under a key, with the precision of a long double.",
            syntax: "key increment:double",
        },
        Run::Key(incrbyfloat),
    ),
];

/// The value as a reply.
pub fn reply_value(reply: &mut Reply, value: Value) {
    match value {
        Value::Int(n) => reply.bulk_int(n),
        Value::Bytes(bytes) => reply.bulk(bytes),
    }
}

pub fn len(value: Value) -> usize {
    match value {
        Value::Int(n) => {
            let digits = n.unsigned_abs().checked_ilog10().map_or(1, |log| log as usize + 1);
            digits + usize::from(n < 0)
        }
        Value::Bytes(bytes) => bytes.len(),
    }
}

/// The live string under the request's first key; another type is an error.
pub fn find_string<'c>(ctx: &'c mut Ctx, request: Request) -> Result<Option<Live<'c>>> {
    let key = ctx.key(request.arg(1));
    match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        Some(live) if live.kind() != Kind::String => Err(Error::WrongType),
        found => Ok(found),
    }
}

/// The value as bytes; an integer's text is written to the buffer.
pub fn as_bytes<'v>(value: Value<'v>, text: &'v mut [u8; I64_TEXT_BYTES_MAX]) -> &'v [u8] {
    match value {
        Value::Int(n) => format_i64(n, text),
        Value::Bytes(bytes) => bytes,
    }
}

fn get(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        None => ctx.reply.nil(),
        Some(live) => reply_value(&mut ctx.reply, live.string().ok_or(Error::WrongType)?),
    }
    Ok(())
}

#[derive(Default)]
pub struct SetOptions {
    pub condition: Option<Condition>,
    pub get: bool,
    pub keep_ttl: bool,
    persist: bool,
    pub expiry: Option<Expiry>,
}

/// What may follow the key in GETEX or the value in SET.
pub fn parse_options(request: Request, start: usize, getex: bool) -> Result<SetOptions> {
    let mut options = SetOptions::default();
    let mut index = start;
    while index < request.len() {
        let free = options.expiry.is_none() && !options.keep_ttl && !options.persist;
        let word = request.arg(index).to_ascii_lowercase();
        match &word[..] {
            b"nx" | b"xx" if !getex => {
                let condition = if word == b"nx" { Condition::Absent } else { Condition::Present };
                // The same condition again is none more, as in Redis.
                if options.condition.is_some_and(|old| old != condition) {
                    return Err(Error::Syntax);
                }
                options.condition = Some(condition);
            }
            word if !getex && options.condition.is_none() && index + 1 < request.len() && is_comparison(word) => {
                index += 1;
                options.condition = Condition::comparing(word, index);
            }
            b"get" if !getex => options.get = true,
            b"keepttl" if (free || options.keep_ttl) && !getex => options.keep_ttl = true,
            b"persist" if (free || options.persist) && getex => options.persist = true,
            word if index + 1 < request.len() => {
                let expiry = Expiry::named(word, index + 1).ok_or(Error::Syntax)?;
                // The same option again overrules itself, as in Redis.
                let again =
                    options.expiry.is_some_and(|old| (old.unit, old.absolute) == (expiry.unit, expiry.absolute));
                if !free && !again {
                    return Err(Error::Syntax);
                }
                options.expiry = Some(expiry);
                index += 1;
            }
            _ => return Err(Error::Syntax),
        }
        index += 1;
    }
    Ok(options)
}

fn set(ctx: &mut Ctx, request: Request) -> Result {
    if request.len() == 3 {
        let key = ctx.key(request.arg(1));
        ctx.check_deadline(key.bytes, false)?;
        ctx.keyspace.insert(ctx.db, key, Value::of(request.arg(2)), None, ctx.now);
        ctx.commit(key, Event::Set);
        ctx.reply.ok();
        return Ok(());
    }
    let options = parse_options(request, 3, false)?;
    store(ctx, request, request.arg(2), options, "set")
}

fn set_for(ctx: &mut Ctx, request: Request, unit: Unit, name: &'static str) -> Result {
    let expiry = Some(Expiry { unit, absolute: false, argument: 2 });
    store(ctx, request, request.arg(3), SetOptions { expiry, ..SetOptions::default() }, name)
}

/// SET with everything it can be asked for.
fn store(ctx: &mut Ctx, request: Request, value: &[u8], options: SetOptions, name: &'static str) -> Result {
    let key = ctx.key(request.arg(1));
    let deadline = options.expiry.map(|expiry| expiry.positive_deadline(ctx, request, name)).transpose()?;
    // Whoever asks for a lock that somebody has does not use what is there.
    let touch = match options.get {
        true => ctx.reading(),
        false if options.condition == Some(Condition::Absent) => ctx.touch.without_renewal(),
        false => ctx.touch,
    };
    let live = ctx.keyspace.find(ctx.db, key, ctx.now, touch);
    if options.get {
        match &live {
            Some(live) if live.kind() != Kind::String => return Err(Error::WrongType),
            Some(live) => reply_value(&mut ctx.reply, live.value()),
            None => ctx.reply.nil(),
        }
    }
    let old_deadline_ms = live.as_ref().and_then(Live::deadline_ms);
    let holds = options.condition.map_or(Ok(true), |condition| condition.holds(live.as_ref(), request))?;
    if !holds {
        if !options.get {
            ctx.reply.nil();
        }
        return Ok(());
    }
    let deadline_ms = match deadline {
        Some(deadline) if deadline.is_past(ctx.now) => {
            set_dead(ctx, key);
            if !options.get {
                ctx.reply.ok();
            }
            return Ok(());
        }
        Some(deadline) => Some(deadline.store_ms()),
        None => old_deadline_ms.filter(|_| options.keep_ttl),
    };
    ctx.check_deadline(key.bytes, deadline_ms.is_some())?;
    ctx.keyspace.insert(ctx.db, key, Value::of(value), deadline_ms, ctx.now);
    ctx.commit_dated(key, Change::of(Event::Set).and_if(deadline.is_some(), Event::Expire), deadline_ms);
    propagate_set(ctx, key, value, deadline_ms);
    if !options.get {
        ctx.reply.ok();
    }
    Ok(())
}

/// What a value was set to, and its deadline.
pub fn propagate_set(ctx: &mut Ctx, key: Key, value: &[u8], deadline_ms: Option<u64>) {
    match deadline_ms {
        Some(deadline_ms) => ctx.propagate_at(&[b"SET", key.bytes, value, b"PXAT"], deadline_ms),
        None => ctx.propagate(&[b"SET", key.bytes, value]),
    }
}

/// Sets a value whose deadline has passed: it is never stored, and what was there is gone. What Redis tells of it is told,
/// though there it may be a moment until it dies.
pub fn set_dead(ctx: &mut Ctx, key: Key) {
    let old = ctx.keyspace.find(ctx.db, key, ctx.now, Touch::NOTHING).map(|live| live.kind());
    match old {
        Some(old) => ctx.keyspace.effects.overwritten(ctx.db, key.bytes, old, Kind::String),
        None => ctx.keyspace.effects.tell(Event::New, ctx.db, key.bytes),
    }
    ctx.keyspace.remove(ctx.db, key, ctx.now);
    ctx.commit(key, Change::of(Event::Set).and(Event::Expire).and(Event::Expired));
    ctx.propagate(&[b"DEL", key.bytes]);
    ctx.keyspace.counters.expired_by_access += 1;
}

fn setnx(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let found = ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch).is_some();
    if !found {
        ctx.keyspace.insert_new(ctx.db, key, Value::of(request.arg(2)), None, ctx.now);
        ctx.commit(key, Event::Set);
    }
    ctx.reply.int(i64::from(!found));
    Ok(())
}

fn getex(ctx: &mut Ctx, request: Request) -> Result {
    let options = parse_options(request, 2, true)?;
    let key = ctx.key(request.arg(1));
    ctx.check_deadline(key.bytes, !options.persist)?;
    if find_string(ctx, request)?.is_none() {
        ctx.reply.nil();
        return Ok(());
    }
    let deadline = options.expiry.map(|expiry| expiry.positive_deadline(ctx, request, "getex")).transpose()?;
    let Some(mut live) = ctx.keyspace.edit(ctx.db, key, ctx.now, crate::keyspace::Touch::NOTHING) else {
        return Ok(());
    };
    reply_value(&mut ctx.reply, live.value());
    match deadline {
        Some(deadline) if deadline.is_past(ctx.now) && deadline.absolute => {
            live.remove();
            ctx.commit_deletion(key);
        }
        Some(deadline) => {
            live.set_deadline(Some(deadline.store_ms()));
            ctx.commit_dated(key, Event::Expire, Some(deadline.store_ms()));
            ctx.propagate_at(&[b"PEXPIREAT", key.bytes], deadline.store_ms());
        }
        None if options.persist && live.deadline_ms().is_some() => {
            live.set_deadline(None);
            ctx.commit(key, Event::Persist);
            ctx.propagate(&[b"PERSIST", key.bytes]);
        }
        None => {}
    }
    Ok(())
}

fn getdel(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        None => ctx.reply.nil(),
        Some(live) if live.kind() != Kind::String => return Err(Error::WrongType),
        Some(live) => {
            reply_value(&mut ctx.reply, live.value());
            live.edit().remove();
            ctx.commit_deletion(key);
        }
    }
    Ok(())
}

/// What is wrong is found in the order of Redis: a key that is missing answers before its condition is read.
fn delex(ctx: &mut Ctx, request: Request) -> Result {
    if !matches!(request.len(), 2 | 4) {
        return Err(Error::WrongArity("delex".to_owned()));
    }
    let key = ctx.key(request.arg(1));
    let Some(live) = ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) else {
        ctx.reply.int(0);
        return Ok(());
    };
    let holds = if request.len() == 2 {
        true
    } else if live.kind() != Kind::String {
        return Err(Error::text("ERR Key should be of string type if conditions are specified"));
    } else {
        let condition = Condition::comparing(&request.arg(2).to_ascii_lowercase(), 3);
        let condition = condition.ok_or(Error::text("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"))?;
        condition.holds(Some(&live), request)?
    };
    if holds {
        live.edit().remove();
        ctx.commit_deletion(key);
    }
    ctx.reply.int(i64::from(holds));
    Ok(())
}

fn delifeq(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let live = find_string(ctx, request)?;
    let holds = Condition::Equal(2).holds(live.as_ref(), request)?;
    if let Some(live) = live.filter(|_| holds) {
        live.edit().remove();
        ctx.commit_deletion(key);
    }
    ctx.reply.int(i64::from(holds));
    Ok(())
}

fn digest(ctx: &mut Ctx, request: Request) -> Result {
    let digest = find_string(ctx, request)?.map(|live| compare::digest(live.value()));
    match digest {
        Some(digest) => ctx.reply.bulk(&digest),
        None => ctx.reply.nil(),
    }
    Ok(())
}

fn getset(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    ctx.check_deadline(key.bytes, false)?;
    get(ctx, request)?;
    ctx.keyspace.insert(ctx.db, key, Value::of(request.arg(2)), None, ctx.now);
    ctx.commit(key, Event::Set);
    propagate_set(ctx, key, request.arg(2), None);
    Ok(())
}

fn strlen(ctx: &mut Ctx, request: Request) -> Result {
    let len = find_string(ctx, request)?.map_or(0, |live| len(live.value()));
    ctx.reply.int(len as i64);
    Ok(())
}

fn append(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let (value, max_bytes) = (request.arg(2), ctx.limits.string_bytes);
    let len = match find_string(ctx, request)? {
        None => {
            ctx.keyspace.insert_new(ctx.db, key, Value::of(value), None, ctx.now);
            value.len()
        }
        Some(live) => {
            let old = len(live.value());
            check_len(old, value.len(), max_bytes)?;
            live.edit().resize(old + value.len())[old..].copy_from_slice(value);
            old + value.len()
        }
    };
    ctx.commit(key, Event::Append);
    ctx.reply.int(len as i64);
    Ok(())
}

fn check_len(len: usize, more: usize, max_bytes: usize) -> Result {
    match len.checked_add(more) {
        Some(total) if total <= max_bytes => Ok(()),
        _ => Err(Error::StringTooLong),
    }
}

fn setrange(ctx: &mut Ctx, request: Request) -> Result {
    let offset = usize::try_from(request.int(2)?).map_err(|_| Error::OffsetOutOfRange)?;
    let key = ctx.key(request.arg(1));
    let (value, max_bytes) = (request.arg(3), ctx.limits.string_bytes);
    let found = find_string(ctx, request)?;
    let old = found.as_ref().map_or(0, |live| len(live.value()));
    if value.is_empty() {
        ctx.reply.int(old as i64);
        return Ok(());
    }
    check_len(offset, value.len(), max_bytes)?;
    let end = offset + value.len();
    if found.is_none() {
        ctx.keyspace.insert_new(ctx.db, key, Value::Bytes(b""), None, ctx.now);
    }
    let len = end.max(old);
    if let Some(mut live) = ctx.keyspace.edit(ctx.db, key, ctx.now, crate::keyspace::Touch::NOTHING) {
        live.resize(len)[offset..end].copy_from_slice(value);
    }
    ctx.commit(key, Event::SetRange);
    ctx.reply.int(len as i64);
    Ok(())
}

fn getrange(ctx: &mut Ctx, request: Request) -> Result {
    let (start, end) = (request.int(2)?, request.int(3)?);
    let key = ctx.key(request.arg(1));
    let Some(live) = ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) else {
        ctx.reply.bulk(b"");
        return Ok(());
    };
    if live.kind() != Kind::String {
        return Err(Error::WrongType);
    }
    let mut text = [0; 20];
    let bytes = match live.value() {
        Value::Int(n) => format_i64(n, &mut text),
        Value::Bytes(bytes) => bytes,
    };
    ctx.reply.bulk(part(bytes, start, end));
    Ok(())
}

/// The bytes from `start` to `end` inclusive; negative positions count from the end.
fn part(bytes: &[u8], start: i64, end: i64) -> &[u8] {
    let len = bytes.len() as i64;
    if start < 0 && end < 0 && start > end {
        return b"";
    }
    let from_end = |at: i64| if at < 0 { (len + at).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    if start > end || len == 0 { b"" } else { &bytes[start as usize..=end as usize] }
}

fn add(ctx: &mut Ctx, request: Request, increment: i64) -> Result {
    let key = ctx.key(request.arg(1));
    let sum = match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        None => {
            ctx.keyspace.insert_new(ctx.db, key, Value::Int(increment), None, ctx.now);
            increment
        }
        Some(live) if live.kind() != Kind::String => return Err(Error::WrongType),
        Some(live) => {
            let n = match live.value() {
                Value::Int(n) => n,
                Value::Bytes(bytes) => crate::value::number::parse_i64(bytes).ok_or(Error::NotAnInteger)?,
            };
            let sum = n.checked_add(increment).ok_or(Error::WouldOverflow)?;
            live.edit().set_value(Value::Int(sum));
            sum
        }
    };
    ctx.commit(key, Event::IncrBy);
    ctx.reply.int(sum);
    Ok(())
}

fn incrbyfloat(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let found = find_string(ctx, request)?;
    let mut text = [0; I64_TEXT_BYTES_MAX];
    let current = found.as_ref().map_or(&b"0"[..], |live| as_bytes(live.value(), &mut text));
    let sum = add_long_double(current, request.arg(2)).map_err(|error| match error {
        LongDoubleError::CurrentNotFloat | LongDoubleError::IncrementNotFloat => Error::NotAFloat,
        LongDoubleError::Overflow => Error::NanOrInfinity,
    })?;
    // Kept as text even where it looks like an integer, as Redis does.
    match found {
        Some(live) => live.edit().set_value(Value::Bytes(&sum)),
        None => drop(ctx.keyspace.insert_new(ctx.db, key, Value::Bytes(&sum), None, ctx.now)),
    }
    ctx.commit(key, Event::IncrByFloat);
    ctx.propagate(&[b"SET", key.bytes, &sum, b"KEEPTTL"]);
    ctx.reply.bulk(&sum);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_strings() {
        let part = |start, end| part(b"This is a string", start, end);
        assert_eq!(part(0, 3), b"This");
        assert_eq!(part(-3, -1), b"ing");
        assert_eq!(part(0, -1), b"This is a string");
        assert_eq!(part(10, 100), b"string");
        assert_eq!(part(5, 3), b"");
        assert_eq!(part(-1, -5), b"");
        assert_eq!(part(-100, 1), b"Th");
        assert_eq!(part(100, 200), b"");
        assert_eq!(super::part(b"", 0, -1), b"");
        assert_eq!(part(i64::MIN, i64::MAX), b"This is a string");
    }

    #[test]
    fn lengths_of_integers_are_those_of_their_text() {
        for n in [0, 1, 9, 10, 99, 100, -1, -10, i64::MAX, i64::MIN] {
            assert_eq!(len(Value::Int(n)), n.to_string().len(), "{n}");
        }
    }
}
