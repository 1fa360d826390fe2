//! Groups as a snapshot has them: as they were at its moment, while they go on changing.
//!
//! At the moment itself only groups are shown that have no names any more and whose deaths are owed, which are few: they come before
//! all that is said of groups that have their names now. How any other group was is kept before its first change, and a walk
//! shows those that have not changed as they are. What a snapshot says of a member stands beside its key, which is written
//! before its membership changes ([`super::super::snapshot`]).

use super::index::{Group, Groups, Map};
use super::{Membership, Name, Span};
use crate::keyspace::snapshot::Keeper;
use std::collections::BTreeSet;

/// So many numbers of groups are looked at in one step.
const STEP: usize = if cfg!(test) { 1 } else { 16 };

#[derive(Default)]
pub(super) struct Moment {
    /// By the database and its number, each group that has changed since, as it was; none where it was not there.
    was: Map<(usize, usize), Option<Was>>,
    /// Where the walk is.
    at: (usize, usize),
}

#[derive(Clone)]
struct Was {
    name: Name,
    span: Span,
    is_named: bool,
}

impl Was {
    fn of(group: &Group) -> Was {
        Was { name: group.name.clone(), span: group.span.clone(), is_named: group.is_named }
    }

    fn as_named(&self) -> Option<(Name, u64)> {
        self.is_named.then(|| (self.name.clone(), self.span.epoch))
    }
}

impl Moment {
    /// A group has come since. (One that had its number before is known already.)
    pub(super) fn is_new(&mut self, db: usize, id: usize) {
        self.was.entry((db, id)).or_insert(None);
    }
}

impl Groups {
    /// A snapshot has the groups as they are now. Shows those that have no names any more.
    pub fn begin_saving(&mut self, keeper: &mut dyn Keeper) {
        for (db, of_db) in self.dbs.iter().enumerate() {
            let in_order: BTreeSet<(u64, usize)> = of_db.unnamed.iter().map(|((_, epoch), id)| (*epoch, *id)).collect();
            let groups = in_order.into_iter().filter_map(|(_, id)| of_db.groups.get(id));
            groups.for_each(|group| keeper.group(db, &group.name, &group.span));
        }
        self.moment = Some(Box::default());
    }

    /// Nobody wants the rest.
    pub fn end_saving(&mut self) {
        self.moment = None;
    }

    /// A group is about to change, or to go.
    #[inline]
    pub(super) fn save_first(&mut self, db: usize, id: usize) {
        if let Some(moment) = &mut self.moment {
            let groups = &self.dbs[db].groups;
            moment.was.entry((db, id)).or_insert_with(|| groups.get(id).map(Was::of));
        }
    }

    fn was(&self, db: usize, id: usize) -> Option<Was> {
        let changed = self.moment.as_ref().and_then(|moment| moment.was.get(&(db, id)));
        changed.cloned().unwrap_or_else(|| self.dbs[db].groups.get(id).map(Was::of))
    }

    /// What the membership of a key was, whose own has not changed since: a key is written down before it does.
    pub fn saved_membership(&self, db: usize, key: &[u8]) -> Option<Membership> {
        let said = self.dbs[db].members.get(key)?.said(|id| self.was(db, id)?.as_named());
        Some(said).filter(|said| !said.groups.is_empty())
    }

    /// Shows some of the groups that had names, and deadlines or streams; whether the walk goes on.
    pub fn save_some(&mut self, keeper: &mut dyn Keeper) -> bool {
        let Some(moment) = &mut self.moment else { return false };
        let (db, from) = moment.at;
        let Some(of_db) = self.dbs.get(db) else { return false };
        let end = of_db.groups.capacity().min(from + STEP);
        moment.at = if end == from { (db + 1, 0) } else { (db, end) };
        let named = (from..end).filter_map(|id| self.was(db, id)).filter(|was| was.is_named && was.span.epoch != 0);
        named.for_each(|was| keeper.group(db, &was.name, &was.span));
        true
    }
}
