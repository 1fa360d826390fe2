//! Sorted sets.
//!
//! | file | what |
//! |---|---|
//! | `edit.rs` | adding members, changing scores, removing |
//! | `range.rs` | ranges by rank, score and name: reading, counting, storing, removing |
//! | `pop.rs` | taking from the ends, and waiting for something to take |
//! | `combine.rs` | unions, intersections and differences |
//! | `deadlines.rs` | members that die: ZEXPIRE and its kin |
//! | `read.rs` | asking for scores and ranks, random members, ZSCAN |
//! | `items.rs` | what is on its way from one sorted set to another |
//!
//! A sorted set is packed in its key's entry within `zset-max-listpack-entries` and `-value`, else a [`Zset`]; it never
//! goes back.

mod combine;
mod deadlines;
mod edit;
mod items;
#[cfg(test)]
mod model_test;
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
use crate::value::zset::{Edit, Packed, View, Zset};
use std::ops::{ControlFlow, Range};

pub const ROWS: [&[Row<Run>]; 6] = [edit::ROWS, read::ROWS, range::ROWS, pop::ROWS, combine::ROWS, deadlines::ROWS];

/// What was found under a key, where it is a sorted set; another type is an error.
pub fn of_kind(found: Option<Live>) -> Result<Option<Live>> {
    match found {
        Some(live) if live.kind() != Kind::Zset => Err(Error::WrongType),
        found => Ok(found),
    }
}

pub fn view<'l>(live: &'l Live) -> View<'l> {
    View::of(live.content(), live.now_ms())
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

/// Takes those of these members out that are dead, and says so: nobody sees that they stood there.
#[inline]
fn bury<'m>(live: &mut KeyEdit, members: impl Iterator<Item = &'m [u8]>) {
    if live.has_fields_deadline() {
        bury_dead(live, members);
    }
}

#[cold]
fn bury_dead<'m>(live: &mut KeyEdit, members: impl Iterator<Item = &'m [u8]>) {
    let now_ms = live.now_ms();
    for member in members {
        if live.node().is_some_and(|zset: &Zset| zset.has_dead(member, now_ms)) {
            live.tell_dead_field(member);
            live.change_node(|zset: &mut Zset| take_out(zset, member));
        }
    }
}

/// Takes a member out; whether it was there.
fn take_out(set: &mut impl Edit, member: &[u8]) -> bool {
    let found = set.find(member);
    if let Some((place, _)) = found {
        set.remove(place, member);
    }
    found.is_some()
}

/// What became of a sorted set from which members were taken.
#[derive(Default)]
struct Rest {
    /// No member is left that lives: the key is gone.
    is_gone: bool,
    /// Members that were taken by their ranks, where somebody has to hear of them.
    names: Vec<Vec<u8>>,
    /// The ranks are others elsewhere, where those are not dead yet that are here.
    says_names: bool,
}

impl Rest {
    /// Says what was done, where the command would do something else elsewhere; whether that was so.
    fn propagate(&self, ctx: &mut Ctx, key: Key) -> bool {
        if self.says_names {
            let names = self.names.iter().map(Vec::as_slice);
            ctx.propagate(&[&b"ZREM"[..], key.bytes].into_iter().chain(names).collect::<Vec<_>>());
        }
        self.says_names
    }
}

/// Takes the members of these ranks out, and the sorted set with the last one that lives. Their names are kept where they
/// are wanted.
fn take_ranks(mut live: KeyEdit, limits: PackLimits, ranks: Range<usize>, wants_names: bool) -> Rest {
    let (mut names, had_dead) = (Vec::new(), view(&live).may_have_dead());
    if had_dead || wants_names {
        view(&live).walk(ranks.clone(), false, |member, _| {
            names.push(member.to_vec());
            ControlFlow::Continue(())
        });
    }
    if had_dead {
        live.change_node(|zset: &mut Zset| names.retain(|name| take_out(zset, name)));
    } else {
        let same = ranks.clone();
        change(
            &mut live,
            limits,
            |packed| packed.remove_range(ranks, |_, _| ()),
            |zset| zset.remove_range(same, |_, _| ()),
        );
    }
    Rest { is_gone: settle(live), names, says_names: had_dead }
}

/// Deletes a sorted set that has lost its last member that lives; whether that was so.
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
