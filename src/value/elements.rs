//! Elements with deadlines of their own, as the keyspace sees them: fields of hashes, members of sets
//! and of sorted sets.

use super::NodeType;
use super::hash::{self, Hash};
use super::pack::Element;
use super::set::Set;
use super::zset::Zset;
use crate::table::{Dict, Entry, FieldsSwept, Kind, NEVER_MS, Next};

/// Whether elements of a type may have deadlines.
pub fn may_die(kind: Kind) -> bool {
    matches!(kind, Kind::Hash | Kind::Set | Kind::Zset)
}

/// The elements of a collection that is not packed.
fn dict(entry: Entry<'_>) -> Option<&Dict> {
    let node = entry.node()?;
    // SAFETY: nodes of a kind are of its one type, and live as long as their entries.
    unsafe {
        match entry.kind() {
            Hash::KIND => Some(&node.cast::<Hash>().as_ref().fields),
            Set::KIND => Some(&node.cast::<Set>().as_ref().members),
            Zset::KIND => Some(node.cast::<Zset>().as_ref().members()),
            _ => None,
        }
    }
}

/// A packed hash: of what is packed nothing else has deadlines.
fn packed(entry: Entry<'_>) -> Option<hash::View<'_>> {
    (entry.kind() == Kind::Hash).then(|| hash::View::of(entry.content()))
}

/// When the first element dies, at the earliest; `None` where none has a deadline.
pub fn earliest_ms(entry: Entry) -> Option<u64> {
    let earliest_ms = match dict(entry) {
        Some(dict) => dict.earliest_ms(),
        None => packed(entry)?.earliest_ms(),
    };
    Some(earliest_ms).filter(|at_ms| *at_ms < NEVER_MS)
}

/// Whether a collection has an element that is alive.
pub fn any_lives(entry: Entry, now_ms: u64) -> bool {
    match (dict(entry), packed(entry)) {
        (Some(dict), _) => dict.any_lives(now_ms),
        (None, Some(view)) => view.any_lives(now_ms),
        (None, None) => true,
    }
}

/// Elements of a collection, dead ones included, and those of them that are alive; none where they cannot die.
pub fn counts(entry: Entry, now_ms: u64) -> (usize, usize) {
    match (dict(entry), packed(entry)) {
        (Some(dict), _) => (dict.len(), dict.len() - dict.count_dead(now_ms)),
        (None, Some(view)) => (view.len(), view.live_len(now_ms)),
        (None, None) => (0, 0),
    }
}

/// The deadline of an element, if one has one.
pub fn some_deadline_ms(entry: Entry) -> Option<u64> {
    match dict(entry) {
        Some(dict) => dict.iter_with_deadlines().next().and_then(|(_, deadline_ms)| deadline_ms),
        None => packed(entry)?.iter().next().map(|field| field.deadline_ms),
    }
}

/// The names of elements whose deadlines are before `before_ms`, where they can die.
pub fn names_of_dead(entry: Entry, before_ms: u64) -> Vec<Vec<u8>> {
    let is_dead = |at_ms: u64| at_ms < before_ms;
    match (dict(entry), packed(entry)) {
        (Some(dict), _) => {
            let dead = dict.iter_with_deadlines().filter(|(_, at_ms)| at_ms.is_some_and(is_dead));
            dead.map(|(element, _)| element.key().to_vec()).collect()
        }
        (None, Some(view)) => {
            view.iter().filter(|field| is_dead(field.deadline_ms)).map(|field| field.name.to_vec()).collect()
        }
        (None, None) => Vec::new(),
    }
}

/// Takes elements out of a collection whose deadlines are before `before_ms`, at most `limit` where they are many; `died`
/// is told of their names and deadlines. The old pointer must not be used afterwards.
pub fn sweep(
    entry: Entry,
    before_ms: u64,
    now_ms: u64,
    limit: usize,
    mut died: impl FnMut(Element, u64),
) -> FieldsSwept {
    let Some(node) = entry.node() else {
        return match packed(entry) {
            Some(view) => hash::sweep_packed(view, before_ms, died),
            None => FieldsSwept { deleted: 0, bytes: 0, packed: None, next: Next::None },
        };
    };
    let died = |element: Entry, deadline_ms: u64| died(Element::Bytes(element.key()), deadline_ms);
    // SAFETY: nodes of a kind are of its one type; whoever sweeps has this one alone.
    let swept = unsafe {
        match entry.kind() {
            Set::KIND => node.cast::<Set>().as_mut().members.sweep(before_ms, now_ms, limit, died),
            Hash::KIND => node.cast::<Hash>().as_mut().fields.sweep(before_ms, now_ms, limit, died),
            Zset::KIND => node.cast::<Zset>().as_mut().sweep(before_ms, now_ms, limit, died),
            _ => unreachable!("no other type has deadlines of elements"),
        }
    };
    let next = dict(entry).map_or(Next::None, |dict| Next::of(dict.is_empty(), dict.earliest_ms()));
    FieldsSwept { deleted: swept.deleted, bytes: swept.bytes, packed: None, next }
}
