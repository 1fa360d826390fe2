//! Values in RDB form.

use super::streams;
use crate::clock::Now;
use crate::command::Ctx;
use crate::keyspace::{Kind, NEVER_MS, Stored};
use crate::rdb::encode;
use crate::value::hash::{self, Field};
use crate::value::list::{self, Direction};
use crate::value::pack::Element;
use crate::value::stream::Stream;
use crate::value::{set, zset};
use std::ops::ControlFlow;

/// What the wall clock says, the same for all of one value: RDB has times since 1970.
#[derive(Clone, Copy)]
pub struct Wall {
    now: Now,
    offset_ms: i64,
}

impl Wall {
    pub fn of(ctx: &Ctx) -> Wall {
        Wall { now: ctx.now, offset_ms: ctx.clock.wall_offset_ms() }
    }

    #[cfg(test)]
    pub fn since_1970() -> Wall {
        Wall { now: Now::from_ms(1), offset_ms: 0 }
    }

    pub fn now_ms(self) -> u64 {
        self.now.ms
    }

    /// Milliseconds since 1970; none is before that.
    pub fn of_store_ms(self, store_ms: u64) -> u64 {
        self.of_signed_ms(i64::try_from(store_ms).unwrap_or(i64::MAX))
    }

    pub fn to_store_ms(self, wall_ms: u64) -> u64 {
        self.to_signed_ms(wall_ms).max(0) as u64
    }

    /// [`Wall::of_store_ms`] for a time that may be before the start of store time.
    pub fn of_signed_ms(self, store_ms: i64) -> u64 {
        store_ms.saturating_add(self.offset_ms).max(0) as u64
    }

    pub fn to_signed_ms(self, wall_ms: u64) -> i64 {
        i64::try_from(wall_ms).unwrap_or(i64::MAX).saturating_sub(self.offset_ms)
    }
}

/// Appends type and value, without what is dead in it.
pub fn write(out: &mut Vec<u8>, content: Stored, wall: Wall) {
    match content.kind() {
        Kind::String => write_string(out, content),
        Kind::List => encode::list(out, list::View::of(content).iter(0, Direction::Forward)),
        Kind::Set => write_set(out, set::View::of(content)),
        Kind::Zset => write_zset(out, zset::View::of(content)),
        Kind::Hash => write_hash(out, hash::View::of(content), wall),
        Kind::Stream => streams::write(out, Stream::of(content), wall),
    }
}

fn write_string(out: &mut Vec<u8>, content: Stored) {
    if let Stored::String(value) = content {
        encode::string(out, hash::element(value));
    }
}

fn write_set(out: &mut Vec<u8>, view: set::View) {
    match view {
        set::View::Ints(_) => {
            let members: Vec<i64> = view.iter().filter_map(Element::to_integer).collect();
            encode::set_of_integers(out, &members);
        }
        _ => encode::set(out, view.len(), view.iter()),
    }
}

fn write_zset(out: &mut Vec<u8>, view: zset::View) {
    match view {
        zset::View::Packed(_) => encode::zset_packed(out, |item| view.for_each(item)),
        zset::View::Zset(_) => encode::zset(out, view.len(), |item| {
            view.walk(0..view.len(), true, |member, score| {
                item(member, score);
                ControlFlow::Continue(())
            });
        }),
    }
}

fn write_hash(out: &mut Vec<u8>, view: hash::View, wall: Wall) {
    let fields = || view.iter().filter(|field| !field.is_dead(wall.now_ms()));
    let earliest_ms = fields().map(|field| field.deadline_ms).min().unwrap_or(NEVER_MS);
    match view {
        _ if earliest_ms < NEVER_MS => {
            let deadline_ms =
                |field: Field| (field.deadline_ms < NEVER_MS).then(|| wall.of_store_ms(field.deadline_ms));
            let fields_and_deadlines = fields().map(|field| (field.name, field.value, deadline_ms(field)));
            let earliest_ms = wall.of_store_ms(earliest_ms);
            encode::hash_with_deadlines(out, fields().count(), earliest_ms, fields_and_deadlines);
        }
        hash::View::Dict(_) => encode::hash(out, fields().count(), pairs(fields())),
        _ => encode::hash_packed(out, pairs(fields())),
    }
}

fn pairs<'a>(fields: impl Iterator<Item = Field<'a>>) -> impl Iterator<Item = (Element<'a>, Element<'a>)> {
    fields.map(|field| (field.name, field.value))
}
