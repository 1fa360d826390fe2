//! A live key's value in RDB form.

use crate::clock::{Clock, Now};
use crate::command::hashes;
use crate::keyspace::{Kind, Live, NEVER_MS};
use crate::rdb::encode;
use crate::value::hash::{self, Field};
use crate::value::pack::Element;

/// What the wall clock says: RDB has times since 1970.
#[derive(Clone, Copy)]
pub struct Wall<'a> {
    pub clock: &'a Clock,
    pub now: Now,
}

impl Wall<'_> {
    /// Milliseconds since 1970; none is before that.
    pub fn of_store_ms(self, store_ms: u64) -> u64 {
        self.clock.to_wall_ms(store_ms).max(0) as u64
    }

    pub fn to_store_ms(self, wall_ms: u64) -> u64 {
        self.clock.to_store_ms(i64::try_from(wall_ms).unwrap_or(i64::MAX))
    }
}

/// Appends type and value, without what is dead in it.
pub fn write(out: &mut Vec<u8>, live: &Live, wall: Wall) {
    match live.kind() {
        Kind::Hash => write_hash(out, live, wall),
        _ => encode::string(out, hash::element(live.value())),
    }
}

fn write_hash(out: &mut Vec<u8>, live: &Live, wall: Wall) {
    let view = hashes::view(live);
    let fields = || view.iter().filter(|field| !field.is_dead(wall.now.ms));
    let earliest_ms = fields().map(|field| field.deadline_ms).min().unwrap_or(NEVER_MS);
    match view {
        _ if earliest_ms < NEVER_MS => {
            let deadline_ms =
                |field: Field| (field.deadline_ms < NEVER_MS).then(|| wall.of_store_ms(field.deadline_ms));
            let fields_and_deadlines = fields().map(|field| (field.name, field.value, deadline_ms(field)));
            encode::hash_with_deadlines(
                out,
                view.live_len(wall.now.ms),
                wall.of_store_ms(earliest_ms),
                fields_and_deadlines,
            );
        }
        hash::View::Dict(_) => encode::hash(out, view.live_len(wall.now.ms), pairs(fields())),
        _ => encode::hash_packed(out, pairs(fields())),
    }
}

fn pairs<'a>(fields: impl Iterator<Item = Field<'a>>) -> impl Iterator<Item = (Element<'a>, Element<'a>)> {
    fields.map(|field| (field.name, field.value))
}
