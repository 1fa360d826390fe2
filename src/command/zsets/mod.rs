//! Sorted sets.
//!
//! | file | what |
//! |---|---|
//! | `edit.rs` | adding members, changing scores, removing |
//! | `range.rs` | ranges by rank, score and name: reading, counting, storing, removing |
//! | `pop.rs` | taking from the ends, and waiting for something to take |
//! | `combine.rs` | unions, intersections and differences |
//! | `read.rs` | asking for scores and ranks, random members, ZSCAN |
//! | `items.rs` | what is on its way from one sorted set to another |
//!
//! A sorted set is packed in its key's entry within `zset-max-listpack-entries` and `-value`, else a [`Zset`]; it never
//! goes back.

mod combine;
mod edit;
mod items;
mod pop;
mod range;
mod read;

pub use edit::{AddOptions, add};
pub use items::Items;

use super::spec::Row;
use super::{Ctx, Run};
use crate::config::PackLimits;
use crate::keyspace::{Event, Key, KeyEdit, Kind, Live};
use crate::resp::{Error, Result};
use crate::value::zset::{Packed, View, Zset};

pub const ROWS: [&[Row<Run>]; 5] = [edit::ROWS, read::ROWS, range::ROWS, pop::ROWS, combine::ROWS];

/// What was found under a key, where it is a sorted set; another type is an error.
pub fn of_kind(found: Option<Live>) -> Result<Option<Live>> {
    match found {
        Some(live) if live.kind() != Kind::Zset => Err(Error::WrongType),
        found => Ok(found),
    }
}

pub fn view<'l>(live: &'l Live) -> View<'l> {
    View::of(live.content())
}

/// Changes a sorted set in either form.
fn change<'l, R>(
    live: &mut KeyEdit<'l>,
    limits: PackLimits,
    packed: impl FnOnce(&mut Packed<KeyEdit<'l>>) -> R,
    node: impl FnOnce(&mut Zset) -> R,
) -> R {
    if live.packed().is_some() {
        return packed(&mut Packed::new(live, limits));
    }
    live.change_node(node).expect("a sorted set that is not packed is a node")
}

/// Deletes a sorted set that has lost its last member; whether it did.
fn settle(live: KeyEdit) -> bool {
    let is_gone = view(&live).is_empty();
    if is_gone {
        live.remove();
    }
    is_gone
}

/// Stores a result, which deletes what was there where it is empty; returns the number of members.
pub fn store(ctx: &mut Ctx, key: Key, items: Items, event: Event) -> Result<usize> {
    let len = items.len();
    if !items.is_empty() {
        ctx.check_deadline(key.bytes, false)?;
        let value = items.into_value(ctx.limits.zset);
        ctx.keyspace.insert_owned(ctx.db, key, value, None, ctx.now);
        ctx.commit(key, event);
    } else if ctx.keyspace.remove(ctx.db, key, ctx.now) {
        ctx.commit(key, Event::Del);
    }
    Ok(len)
}
