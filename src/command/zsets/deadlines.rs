//! Deadlines of members: ZEXPIRE, ZTTL, ZPERSIST and their kin.

use super::{bury, change, of_kind, settle, take_out, view};
use crate::command::deadlines::Unit;
use crate::command::elements::{ElementEdit, Elements};
use crate::command::members::{expire, persist, ttl};
use crate::command::spec::flag::{DENY_OOM, FAST, OWN_DEADLINE, READ, WRITE};
use crate::command::spec::{Group, Keys, Row, Spec, tip};
use crate::command::{Ctx, Run};
use crate::config::PackLimits;
use crate::keyspace::{Event, Key, KeyEdit, NEVER_MS};
use crate::resp::Result;
use crate::value::zset::Zset;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        expire_spec(
            "zexpire",
            "Sets after how many seconds members of a sorted set die.",
            "key seconds:integer [condition:(NX|XX|GT|LT)] members:(MEMBERS nummembers:integer member...)",
        ),
        Run::Key(|ctx, request| expire::<Members>(ctx, request, (Unit::Seconds, false), "zexpire")),
    ),
    Row::new(
        expire_spec(
            "zpexpire",
            "Sets after how many milliseconds members of a sorted set die.",
            "key milliseconds:integer [condition:(NX|XX|GT|LT)] members:(MEMBERS nummembers:integer member...)",
        ),
        Run::Key(|ctx, request| expire::<Members>(ctx, request, (Unit::Milliseconds, false), "zpexpire")),
    ),
    Row::new(
        expire_spec(
            "zexpireat",
            "Sets the Unix time in seconds at which members of a sorted set die.",
            "key unix-time-seconds:unix-time [condition:(NX|XX|GT|LT)] members:(MEMBERS nummembers:integer member...)",
        ),
        Run::Key(|ctx, request| expire::<Members>(ctx, request, (Unit::Seconds, true), "zexpireat")),
    ),
    Row::new(
        expire_spec(
            "zpexpireat",
            "Sets the Unix time in milliseconds at which members of a sorted set die.",
            "key unix-time-milliseconds:unix-time [condition:(NX|XX|GT|LT)] \
             members:(MEMBERS nummembers:integer member...)",
        ),
        Run::Key(|ctx, request| expire::<Members>(ctx, request, (Unit::Milliseconds, true), "zpexpireat")),
    ),
    Row::new(
        ttl_spec("zttl", "Returns the seconds that members of a sorted set live on."),
        Run::Key(|ctx, request| ttl::<Members>(ctx, request, (Unit::Seconds, false))),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        ttl_spec("zpttl", "Returns the milliseconds that members of a sorted set live on."),
        Run::Key(|ctx, request| ttl::<Members>(ctx, request, (Unit::Milliseconds, false))),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        ttl_spec("zexpiretime", "Returns the Unix time in seconds at which members of a sorted set die."),
        Run::Key(|ctx, request| ttl::<Members>(ctx, request, (Unit::Seconds, true))),
    ),
    Row::new(
        ttl_spec("zpexpiretime", "Returns the Unix time in milliseconds at which members of a sorted set die."),
        Run::Key(|ctx, request| ttl::<Members>(ctx, request, (Unit::Milliseconds, true))),
    ),
    Row::new(
        Spec { flags: WRITE | FAST, ..ttl_spec("zpersist", "Clears the deadlines of members of a sorted set.") },
        Run::Key(persist::<Members>),
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
        group: Group::SortedSet,
        since: "0.1.0",
        complexity: "O(log n) for each member",
        summary,
        syntax: "key members:(MEMBERS nummembers:integer member...)",
    }
}

/// Members of sorted sets.
struct Members;

impl Elements for Members {
    type Edit<'c> = Edit<'c>;
    const SET: Event = Event::ZExpire;
    const CLEARED: Event = Event::ZPersist;
    const DELETED: Event = Event::ZRem;
    const EXPIRE: &'static [u8] = b"ZPEXPIREAT";
    const PERSIST: &'static [u8] = b"ZPERSIST";
    const DELETE: &'static [u8] = b"ZREM";
    const WORD: &'static [u8] = b"MEMBERS";

    fn open<'c>(ctx: &'c mut Ctx, key: Key) -> Result<Option<Edit<'c>>> {
        let limits = ctx.limits.zset;
        let found = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
        Ok(found.map(|live| Edit { live: live.edit(), limits }))
    }
}

/// A sorted set whose members' deadlines are changed.
struct Edit<'c> {
    live: KeyEdit<'c>,
    limits: PackLimits,
}

impl ElementEdit for Edit<'_> {
    fn deadline_ms(&self, name: &[u8]) -> Option<u64> {
        view(&self.live).deadline_ms(name)
    }

    fn set_deadline(&mut self, name: &[u8], deadline_ms: Option<u64>) {
        if self.live.packed().is_some() {
            if deadline_ms.is_none() {
                return;
            }
            let zset = Zset::of(view(&self.live));
            self.live.promote(zset);
        }
        let now_ms = self.live.now_ms();
        self.live.change_node(|zset: &mut Zset| zset.set_deadline(name, deadline_ms, now_ms));
    }

    fn remove(&mut self, name: &[u8]) -> bool {
        bury(&mut self.live, std::iter::once(name));
        change(&mut self.live, self.limits, |packed| take_out(packed, name), |zset| take_out(zset, name))
    }

    fn close(mut self) -> bool {
        let earliest_ms = Some(view(&self.live).earliest_ms()).filter(|earliest_ms| *earliest_ms < NEVER_MS);
        if earliest_ms.is_some() || self.live.has_fields_deadline() {
            self.live.set_fields_deadline(earliest_ms);
        }
        !settle(self.live).is_gone
    }
}
