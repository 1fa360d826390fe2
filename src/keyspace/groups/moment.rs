//! Groups as a snapshot has them: as they were at its moment, while they go on changing.
//!
//! At the moment itself only groups are shown that have no names any more and whose deaths are owed, which are few: they come before
//! all that is said of groups that have their names now. How any other group was is kept before its first change, and a walk
//! (`saving.rs`) shows those that have not changed as they are. What a snapshot says of a member stands beside its key, which is
//! written before its membership changes ([`crate::keyspace::snapshot`]).

use super::{Name, Span};
use crate::clock::Now;
use ahash::RandomState;
use std::collections::HashMap;

/// A database, and the number of a group in it.
pub(super) type Place = (usize, usize);

pub(super) struct Moment {
    now: Now,
    /// Each group that has changed since, as it was; none where it was not there.
    was: HashMap<Place, Option<Was>, RandomState>,
    /// Where the walk is.
    pub(super) at: Place,
}

/// What a snapshot says of a group.
#[derive(Clone)]
pub(super) struct Was {
    pub(super) name: Name,
    pub(super) span: Span,
    pub(super) is_named: bool,
}

impl Moment {
    pub(super) fn of(now: Now) -> Moment {
        Moment { now, was: HashMap::default(), at: (0, 0) }
    }

    /// Whether a snapshot names the group. One that was dead, and whose death is not to be written, is not named: on another shard the
    /// name may be that of the next group by then.
    pub(super) fn names(&self, was: &Was) -> bool {
        was.is_named && (was.span.to.is_some() || !was.span.is_dead(self.now))
    }

    /// A group is about to change, to come, or to go. What is known of its place already stays.
    pub(super) fn keep(&mut self, place: Place, was: impl FnOnce() -> Option<Was>) {
        self.was.entry(place).or_insert_with(was);
    }

    /// What it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.was.capacity() * size_of::<(Place, Option<Was>)>()
    }

    /// What was in a place that has changed since.
    pub(super) fn was(&self, place: Place) -> Option<Option<Was>> {
        self.was.get(&place).cloned()
    }
}
