//! DUMP and RESTORE: values in RDB form.
//!
//! - `write.rs`: a value to bytes
//! - `build.rs`: a value from bytes that anybody may have made
//! - `commands.rs`: a key as commands that make it
//! - `parts.rs`: a large value to bytes, part by part
//! - `streams.rs`: both for streams
//! - `wall.rs`: times, which are those of the wall clock there

mod build;
mod commands;
mod parts;
mod streams;
mod wall;
mod write;

pub use build::build;
pub use commands::{Commands, frame_of_commands, load_library, select, write_commands};
pub use parts::{frame, write_part};
pub use wall::Wall;
pub use write::write;

use super::deadlines::{Deadline, Expiry, Unit};
use super::spec::flag::{ASKING, DENY_OOM, OWN_DEADLINE, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec, tip};
use super::{Ctx, Run};
use crate::clock::{Clock, Now};
use crate::keyspace::{Change, Clocking, Event, Kind, Owned, Stored, Touch};
use crate::rdb::payload;
use crate::resp::{Error, Request, Result};
use crate::value::hash;
use crate::value::number::parse_i64;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            name: "dump",
            arity: 2,
            flags: READ,
            keys: Keys::ONE,
            group: Group::Generic,
            since: "2.6.0",
            complexity: "O(n) in the length of the value",
            summary: "Returns the value under a key in the form that RESTORE takes, without its deadline.",
            syntax: "key",
        },
        Run::Key(dump),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        Spec {
            name: "restore",
            arity: -4,
            flags: WRITE | DENY_OOM | OWN_DEADLINE,
            keys: Keys::ONE,
            group: Group::Generic,
            since: "2.6.0",
            complexity: "O(n log n) in the length of the value",
            summary: "Stores a value that DUMP returned, with this deadline or none.",
            syntax: "key ttl:integer serialized-value:string [REPLACE] [ABSTTL] [IDLETIME seconds:integer] \
                     [FREQ frequency:integer]",
        },
        Run::Key(restore),
    ),
    // Without a cluster there is nothing that it could ask for.
    Row::new(
        Spec {
            name: "restore-asking",
            arity: -4,
            flags: WRITE | DENY_OOM | OWN_DEADLINE | ASKING,
            keys: Keys::ONE,
            group: Group::Server,
            since: "3.0.0",
            complexity: "O(n log n) in the length of the value",
            summary: "Is RESTORE, as nodes of a cluster send it.",
            syntax: "key ttl:integer serialized-value:string [REPLACE] [ABSTTL] [IDLETIME seconds:integer] \
                     [FREQ frequency:integer]",
        },
        Run::Key(restore),
    )
    .for_the_system(),
];

/// A value on its way to another server.
pub struct Parcel {
    /// In milliseconds from now; 0 where it lives for ever.
    pub ttl_ms: u64,
    pub payload: Vec<u8>,
}

/// The key as RESTORE takes it, if it is there.
pub fn parcel(ctx: &mut Ctx, bytes: &[u8]) -> Option<Parcel> {
    let (key, wall, now) = (ctx.other_key(bytes), Wall::of(ctx), ctx.now);
    let touch = ctx.reading();
    let live = ctx.keyspace.find(ctx.db, key, now, touch)?;
    // Others may have had the key for a while: what is left is left of what the clock says. (0 would be for ever.)
    let late = now.max(ctx.clock.now()).ms;
    let ttl_ms = match live.deadline_ms() {
        Some(deadline_ms) if deadline_ms < late => return None,
        Some(deadline_ms) => (deadline_ms - late).max(1),
        None => 0,
    };
    let mut payload = Vec::new();
    write(&mut payload, live.content(), wall);
    payload::seal(&mut payload);
    Some(Parcel { ttl_ms, payload })
}

/// Takes a key away that another server has now.
pub fn hand_over(ctx: &mut Ctx, bytes: &[u8]) {
    let key = ctx.other_key(bytes);
    if ctx.keyspace.remove(ctx.db, key, ctx.now) {
        ctx.commit_deletion(key);
    }
}

fn dump(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let wall = Wall::of(ctx);
    let Some(live) = ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) else {
        ctx.reply.nil();
        return Ok(());
    };
    let mut payload = Vec::new();
    write(&mut payload, live.content(), wall);
    payload::seal(&mut payload);
    ctx.reply.bulk(&payload);
    Ok(())
}

#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
    idle_s: Option<u64>,
    /// Each has an effect where access clocks say that.
    freq: Option<u32>,
}

fn parse_options(request: Request) -> Result<Options> {
    let mut options = Options::default();
    let mut index = 4;
    while index < request.len() {
        let has_value = index + 1 < request.len();
        if request.is(index, "replace") {
            options.replace = true;
        } else if request.is(index, "absttl") {
            options.absolute = true;
        } else if request.is(index, "idletime") && has_value && options.freq.is_none() {
            index += 1;
            let idle_s = u64::try_from(request.int(index)?);
            options.idle_s = Some(idle_s.map_err(|_| Error::text("ERR Invalid IDLETIME value, must be >= 0"))?);
        } else if request.is(index, "freq") && has_value && options.idle_s.is_none() {
            index += 1;
            let freq = u32::try_from(request.int(index)?).ok().filter(|freq| *freq <= 255);
            options.freq = Some(freq.ok_or(Error::text("ERR Invalid FREQ value, must be >= 0 and <= 255"))?);
        } else {
            return Err(Error::Syntax);
        }
        index += 1;
    }
    Ok(options)
}

fn restore(ctx: &mut Ctx, request: Request) -> Result {
    let options = parse_options(request)?;
    let key = ctx.key(request.arg(1));
    if !options.replace && ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch).is_some() {
        return Err(Error::text("BUSYKEY Target key name already exists."));
    }
    let ttl_ms = parse_i64(request.arg(2)).ok_or(Error::NotAnInteger)?;
    if ttl_ms < 0 {
        return Err(Error::text("ERR Invalid TTL value, must be >= 0"));
    }
    let value = read(ctx, request.arg(3))?;
    let expiry = Expiry { unit: Unit::Milliseconds, absolute: options.absolute, argument: 2 };
    let deadline = (ttl_ms > 0).then(|| expiry.deadline(ctx, request, "restore")).transpose()?;
    ctx.check_deadline(key.bytes, deadline.is_some())?;
    let replaced = ctx.keyspace.find(ctx.db, key, ctx.now, Touch::NOTHING).map(|live| live.kind());
    // A payload says nothing of pins: as in Redis, what stands there keeps the one that it has.
    let was_pinned = replaced.is_some() && ctx.keyspace.is_pinned(ctx.db, key.bytes);
    ctx.keyspace.remove(ctx.db, key, ctx.now);
    let deadline_ms = deadline.map(Deadline::store_ms);
    match value.filter(|_| deadline.is_none_or(|deadline| !deadline.is_past(ctx.now))) {
        Some(value) => {
            let kind = value.kind();
            ctx.keyspace.insert_owned(ctx.db, key, value, deadline_ms, ctx.now);
            if was_pinned {
                ctx.keyspace.set_pinned(ctx.db, key, true);
            }
            let counts = ctx.keyspace.clocking().counts();
            let clock = match (options.idle_s, options.freq) {
                (Some(idle_s), _) if !counts => Some(Clocking::of_idle_s(idle_s, ctx.now)),
                (_, Some(freq)) if counts => Some(Clocking::of_frequency(freq, ctx.now)),
                _ => None,
            };
            if let Some(clock) = clock
                && let Some(live) = ctx.keyspace.find(ctx.db, key, ctx.now, Touch::NOTHING)
            {
                live.set_clock(clock);
            }
            ctx.commit(key, Change::of(Event::Restore).over(replaced, kind));
            if matches!(kind, Kind::String | Kind::List) {
                ctx.propagate_restored(key, &payload::for_redis_7(request.arg(3)), deadline_ms);
            } else {
                // Fields and members that had died were left out, and the log has times of its own.
                ctx.propagate_state(key);
            }
        }
        None if replaced.is_some() => {
            ctx.commit_deletion(key);
        }
        None => {}
    }
    ctx.reply.ok();
    Ok(())
}

/// A string as it is, or what DUMP gives of another type.
pub fn plain_or_payload(stored: Stored, now: Now, clock: &Clock) -> Vec<u8> {
    if let Stored::String(value) = stored {
        return hash::element(value).to_vec();
    }
    let mut payload = Vec::new();
    write(&mut payload, stored, Wall::at(now, clock));
    payload::seal(&mut payload);
    payload
}

/// The value of a payload; none where all that is in it is dead.
fn read(ctx: &Ctx, payload: &[u8]) -> Result<Option<Owned>> {
    let value = payload::open(payload).map_err(Error::err)?;
    let built = build(&value, ctx.limits, Wall::of(ctx)).map_err(|_| Error::text("ERR Bad data format"))?;
    Ok(built.value)
}
