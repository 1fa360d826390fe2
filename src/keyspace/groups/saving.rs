//! What a snapshot says of groups and of members, a few at a time: as they were at its moment.

use super::index::{Bond, Group, Groups};
use super::moment::{Moment, Was};
use super::{Membership, Span};
use crate::clock::Now;
use std::collections::BTreeSet;

/// So many numbers of groups are looked at in one step.
const STEP: usize = if cfg!(test) { 1 } else { 16 };

impl Groups {
    /// A snapshot has the groups as they are now. Shows those that have no names any more.
    pub fn begin_saving(&mut self, now: Now, mut show: impl FnMut(usize, &[u8], &Span)) {
        for (db, of_db) in self.dbs.iter().enumerate() {
            let in_order: BTreeSet<(u64, usize)> = of_db.unnamed.iter().map(|((_, epoch), id)| (*epoch, *id)).collect();
            let groups = in_order.into_iter().filter_map(|(_, id)| of_db.groups.get(id));
            groups.for_each(|group| show(db, &group.name, &group.span));
        }
        self.moment = Some(Box::new(Moment::of(now)));
    }

    /// Nobody wants the rest.
    pub fn end_saving(&mut self) {
        self.moment = None;
    }

    fn was(&self, db: usize, id: usize) -> Option<Was> {
        let changed = self.moment.as_ref().and_then(|moment| moment.was((db, id)));
        changed.unwrap_or_else(|| self.dbs[db].groups.get(id).map(Group::was))
    }

    /// What the membership of a key was, whose own has not changed since: a key is written down before it does.
    pub fn saved_membership(&self, db: usize, key: &[u8]) -> Option<Membership> {
        let moment = self.moment.as_ref()?;
        let bond_of = |id: usize| {
            let was = self.was(db, id)?;
            Some(Bond::of(moment.names(&was), &was.name, &was.span))
        };
        let said = self.dbs[db].members.get(key)?.said(bond_of);
        Some(said).filter(|said| !said.groups.is_empty())
    }

    /// Shows some of the groups that had names, and deadlines or streams; whether the walk goes on.
    pub fn save_some(&mut self, mut show: impl FnMut(usize, &[u8], &Span)) -> bool {
        let Some(moment) = &mut self.moment else { return false };
        let (db, from) = moment.at;
        let Some(of_db) = self.dbs.get(db) else { return false };
        let end = of_db.groups.capacity().min(from + STEP);
        moment.at = if end == from { (db + 1, 0) } else { (db, end) };
        let groups = (from..end).filter_map(|id| self.was(db, id)).filter(|was| was.span.epoch != 0);
        let Some(moment) = &self.moment else { return false };
        groups.filter(|was| moment.names(was)).for_each(|was| show(db, &was.name, &was.span));
        true
    }
}
