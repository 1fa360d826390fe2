//! Deadlines: setting them, asking for them, taking them away.

use super::spec::flag::{FAST, NO_RENEWAL, NO_TOUCH, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec, tip};
use super::{Ctx, Run};
use crate::clock::{FIRST_DEADLINE_MS, Now};
use crate::keyspace::Event;
use crate::resp::{Error, Request, Result, printable};

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            summary: "Sets the deadline of a key to so many seconds from now.",
            ..expire_spec("expire", "1.0.0", "key seconds:integer [condition:(NX|XX|GT|LT)]")
        },
        Run::Key(|ctx, request| expire(ctx, request, Unit::Seconds, false, "expire")),
    ),
    Row::new(
        Spec {
            summary: "Sets the deadline of a key to so many milliseconds from now.",
            ..expire_spec("pexpire", "2.6.0", "key milliseconds:integer [condition:(NX|XX|GT|LT)]")
        },
        Run::Key(|ctx, request| expire(ctx, request, Unit::Milliseconds, false, "pexpire")),
    ),
    Row::new(
        Spec {
            summary: "Sets the deadline of a key to a Unix time in seconds.",
            ..expire_spec("expireat", "1.2.0", "key unix-time-seconds:unix-time [condition:(NX|XX|GT|LT)]")
        },
        Run::Key(|ctx, request| expire(ctx, request, Unit::Seconds, true, "expireat")),
    ),
    Row::new(
        Spec {
            summary: "Sets the deadline of a key to a Unix time in milliseconds.",
            ..expire_spec("pexpireat", "2.6.0", "key unix-time-milliseconds:unix-time [condition:(NX|XX|GT|LT)]")
        },
        Run::Key(|ctx, request| expire(ctx, request, Unit::Milliseconds, true, "pexpireat")),
    ),
    Row::new(
        ttl_spec("ttl", "1.0.0", "Returns the remaining lifetime of a key in seconds."),
        Run::Key(|ctx, request| ttl(ctx, request, Unit::Seconds, false)),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        ttl_spec("pttl", "2.6.0", "Returns the remaining lifetime of a key in milliseconds."),
        Run::Key(|ctx, request| ttl(ctx, request, Unit::Milliseconds, false)),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        ttl_spec("expiretime", "7.0.0", "Returns the deadline of a key as a Unix time in seconds."),
        Run::Key(|ctx, request| ttl(ctx, request, Unit::Seconds, true)),
    ),
    Row::new(
        ttl_spec("pexpiretime", "7.0.0", "Returns the deadline of a key as a Unix time in milliseconds."),
        Run::Key(|ctx, request| ttl(ctx, request, Unit::Milliseconds, true)),
    ),
    Row::new(
        Spec {
            name: "persist",
            arity: 2,
            flags: WRITE | FAST | NO_RENEWAL,
            keys: Keys::ONE,
            group: Group::Generic,
            since: "2.2.0",
            complexity: "O(1)",
            summary: "Takes the deadline from a key, which then lives until it is deleted.",
            syntax: "key",
        },
        Run::Key(persist),
    ),
];

const fn expire_spec(name: &'static str, since: &'static str, syntax: &'static str) -> Spec {
    Spec {
        name,
        arity: -3,
        flags: WRITE | FAST | NO_RENEWAL,
        keys: Keys::ONE,
        group: Group::Generic,
        since,
        complexity: "O(1)",
        summary: "",
        syntax,
    }
}

const fn ttl_spec(name: &'static str, since: &'static str, summary: &'static str) -> Spec {
    Spec {
        name,
        arity: 2,
        flags: READ | FAST | NO_TOUCH,
        keys: Keys::ONE,
        group: Group::Generic,
        since,
        complexity: "O(1)",
        summary,
        syntax: "key",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    Milliseconds,
}

/// A time among the arguments of a command.
#[derive(Clone, Copy, Debug)]
pub struct Expiry {
    pub unit: Unit,
    pub absolute: bool,
    /// Index of the argument.
    pub argument: usize,
}

/// A deadline as a client gave it.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// Perhaps before the start of store time.
    store_ms: i64,
    pub absolute: bool,
}

impl Deadline {
    /// Due already: commands delete the key instead of setting such a deadline.
    pub fn is_past(self, now: Now) -> bool {
        self.store_ms() <= now.ms
    }

    pub fn store_ms(self) -> u64 {
        self.store_ms.max(FIRST_DEADLINE_MS as i64) as u64
    }
}

impl Expiry {
    /// The time that stands behind a word in lower case of SET and its kin.
    pub fn named(word: &[u8], argument: usize) -> Option<Expiry> {
        let (unit, absolute) = match word {
            b"ex" => (Unit::Seconds, false),
            b"px" => (Unit::Milliseconds, false),
            b"exat" => (Unit::Seconds, true),
            b"pxat" => (Unit::Milliseconds, true),
            _ => return None,
        };
        Some(Expiry { unit, absolute, argument })
    }

    /// The deadline of SET and its kin, whose time must be greater than zero.
    pub fn positive_deadline(self, ctx: &Ctx, request: Request, command: &'static str) -> Result<Deadline> {
        if request.int(self.argument)? <= 0 {
            return Err(Error::InvalidExpireTime(command));
        }
        self.deadline(ctx, request, command)
    }

    /// The deadline of EXPIRE and its kin: any time that the conversion to milliseconds and the addition of the
    /// present do not overflow. Both limits are those of wall time, as users of Redis know them.
    pub fn deadline(self, ctx: &Ctx, request: Request, command: &'static str) -> Result<Deadline> {
        let invalid = || Error::InvalidExpireTime(command);
        let mut time_ms = request.int(self.argument)?;
        if self.unit == Unit::Seconds {
            time_ms = time_ms.checked_mul(1000).ok_or_else(invalid)?;
        }
        let store_ms = if self.absolute {
            time_ms.saturating_sub(ctx.clock.wall_offset_ms())
        } else {
            let now_ms = ctx.present().ms;
            time_ms.checked_add(ctx.clock.to_wall_ms(now_ms)).ok_or_else(invalid)?;
            time_ms.saturating_add(now_ms as i64)
        };
        Ok(Deadline { store_ms, absolute: self.absolute })
    }
}

/// When a deadline may be set.
#[derive(Default)]
pub struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

fn parse_conditions(request: Request) -> Result<Conditions> {
    let mut conditions = Conditions::default();
    for option in request.from(3) {
        if !conditions.add(option) {
            return Err(Error::quoting(&[b"ERR Unsupported option ", printable(option, option.len())]));
        }
    }
    if conditions.nx && (conditions.xx || conditions.gt || conditions.lt) {
        return Err(Error::text("ERR NX and XX, GT or LT options at the same time are not compatible"));
    }
    if conditions.gt && conditions.lt {
        return Err(Error::text("ERR GT and LT options at the same time are not compatible"));
    }
    Ok(conditions)
}

impl Conditions {
    /// Whether the word is one of them, which holds from now on.
    pub fn add(&mut self, word: &[u8]) -> bool {
        match &word.to_ascii_lowercase()[..] {
            b"nx" => self.nx = true,
            b"xx" => self.xx = true,
            b"gt" => self.gt = true,
            b"lt" => self.lt = true,
            _ => return false,
        }
        true
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        [self.nx, self.xx, self.gt, self.lt].into_iter().filter(|is_set| *is_set).count()
    }

    /// A key without a deadline lives for ever: nothing is greater, everything is less.
    pub fn hold(&self, current_ms: Option<u64>, new: Deadline) -> bool {
        let current = current_ms.map(|ms| ms as i64);
        !(self.nx && current.is_some()
            || self.xx && current.is_none()
            || self.gt && current.is_none_or(|current| new.store_ms <= current)
            || self.lt && current.is_some_and(|current| new.store_ms >= current))
    }
}

fn expire(ctx: &mut Ctx, request: Request, unit: Unit, absolute: bool, name: &'static str) -> Result {
    let conditions = parse_conditions(request)?;
    let deadline = Expiry { unit, absolute, argument: 2 }.deadline(ctx, request, name)?;
    let key = ctx.key(request.arg(1));
    let Some(mut live) = ctx.keyspace.edit(ctx.db, key, ctx.now, ctx.touch) else {
        ctx.reply.int(0);
        return Ok(());
    };
    if !conditions.hold(live.deadline_ms(), deadline) {
        ctx.reply.int(0);
        return Ok(());
    }
    if deadline.is_past(ctx.now) {
        live.remove();
        ctx.commit_deletion(key);
    } else {
        live.set_deadline(Some(deadline.store_ms()));
        ctx.commit_dated(key, Event::Expire, Some(deadline.store_ms()));
        ctx.propagate_at(&[b"PEXPIREAT", key.bytes], deadline.store_ms());
    }
    ctx.reply.int(1);
    Ok(())
}

fn ttl(ctx: &mut Ctx, request: Request, unit: Unit, absolute: bool) -> Result {
    let key = ctx.key(request.arg(1));
    let answer_ms = match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
        None => -2,
        Some(live) => match live.deadline_ms() {
            None => -1,
            Some(deadline_ms) if absolute => ctx.clock.to_wall_ms(deadline_ms),
            Some(deadline_ms) => deadline_ms as i64 - ctx.now.ms as i64,
        },
    };
    ctx.reply.int(match unit {
        // (The last half second of all time is rounded up, too.)
        Unit::Seconds if answer_ms >= 0 => ((answer_ms as u64 + 500) / 1000) as i64,
        _ => answer_ms,
    });
    Ok(())
}

fn persist(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    ctx.check_deadline(key.bytes, false)?;
    // What its groups have given it stays.
    let is_dated_by_groups = ctx.keyspace.is_dated_by_groups(ctx.db, key);
    let persisted = match ctx.keyspace.edit(ctx.db, key, ctx.now, ctx.touch) {
        Some(mut live) if live.deadline_ms().is_some() && !is_dated_by_groups => {
            live.set_deadline(None);
            ctx.commit(key, Event::Persist);
            true
        }
        _ => false,
    };
    ctx.reply.int(i64::from(persisted));
    Ok(())
}
