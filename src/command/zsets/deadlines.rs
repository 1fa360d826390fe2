//! Deadlines of members: ZEXPIRE, ZTTL, ZPERSIST and their kin.

use super::{bury, change, of_kind, settle, take_out, view};
use crate::command::deadlines::Conditions;
use crate::command::elements::{ElementEdit, Elements, rows};
use crate::command::members;
use crate::command::spec::{Group, Keys, Row, Spec};
use crate::command::{Ctx, Run};
use crate::config::PackLimits;
use crate::keyspace::{Event, Key, KeyEdit};
use crate::resp::{Request, Result};
use crate::value::zset::Zset;
use std::ops::Range;

pub const ROWS: &[Row<Run>] =
    &rows!("z", "members of a sorted set", "members:(MEMBERS nummembers:integer member...)", SPEC, Members);

const SPEC: Spec = Spec {
    name: "",
    arity: 0,
    flags: 0,
    keys: Keys::ONE,
    group: Group::SortedSet,
    since: "0.1.0",
    complexity: "O(log n) for each member",
    summary: "",
    syntax: "",
};

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

    fn parse_expire(request: Request) -> Result<(Conditions, Range<usize>)> {
        members::parse_expire(request)
    }

    fn parse_named(request: Request) -> Result<Range<usize>> {
        members::parse_named(request)
    }

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
        self.live.renew_fields_deadline();
        !settle(self.live)
    }
}
