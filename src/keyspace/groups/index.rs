//! Which keys are in which groups, and how each group lives: what is kept beside the tables.

use super::moment::{Moment, Was};
use super::{GROUP_BYTES, MEMBER_BYTES, Membership, Name, PLACE_BYTES, Span};
use crate::clock::Now;
use ahash::RandomState;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap, HashSet};

/// A table that has so few is small, and one with room for so many large.
const FEW: usize = 256;
const MANY: usize = 16 * FEW;

type Set<T> = HashSet<T, RandomState>;
type Map<K, V> = HashMap<K, V, RandomState>;

pub(super) struct Group {
    pub(super) name: Name,
    pub(super) span: Span,
    /// Its name leads to it. Otherwise it is dead, and some of its members wait to be found.
    pub(super) is_named: bool,
    /// Its deadline has passed by the clock.
    pub(super) is_over: bool,
    /// A member was used, and the shard was told.
    pub(super) wants_renewal: bool,
    pub(super) members: Set<Name>,
    /// Members that have died with it, and are gone.
    pub(super) died: u64,
}

#[derive(Default)]
pub(super) struct Member {
    pub(super) own_ms: Option<u64>,
    pub(super) groups: SmallVec<[usize; 2]>,
}

impl Group {
    pub(super) fn was(&self) -> Was {
        Was { name: self.name.clone(), span: self.span.clone(), is_named: self.is_named }
    }
}

/// What is said of a group to whoever is told of a member.
pub(super) enum Bond {
    /// Its name and its epoch.
    Group(Name, u64),
    /// The group cannot be named any more. The member is left with the group's deadline, or none: without, a member that has died by
    /// it would be alive where this is read.
    Deadline(Option<u64>),
}

impl Bond {
    pub(super) fn of(is_named: bool, name: &Name, span: &Span) -> Bond {
        match is_named {
            true => Bond::Group(name.clone(), span.epoch),
            false => Bond::Deadline(span.deadline_ms),
        }
    }
}

impl Member {
    /// What the member's deadline follows from, where this is said of its groups.
    pub(super) fn said(&self, bond_of: impl Fn(usize) -> Option<Bond>) -> Membership {
        let mut said = Membership { own_ms: self.own_ms, groups: Vec::new() };
        for bond in self.groups.iter().filter_map(|id| bond_of(*id)) {
            match bond {
                Bond::Group(name, epoch) => said.groups.push((name, epoch)),
                Bond::Deadline(deadline_ms) => said.own_ms = said.own_ms.into_iter().chain(deadline_ms).min(),
            }
        }
        said
    }
}

/// The groups of one database.
#[derive(Default)]
pub(super) struct OfDb {
    pub(super) named: Map<Name, usize>,
    pub(super) groups: Slab<Group>,
    pub(super) members: Map<Name, Member>,
    /// By their deadlines, those that are not over.
    pub(super) due: BTreeSet<(u64, usize)>,
    /// Groups whose names lead to others by now, or to none, and whose deaths are to be written.
    pub(super) unnamed: Map<(Name, u64), usize>,
}

#[derive(Default)]
pub struct Groups {
    pub(super) dbs: Vec<OfDb>,
    /// How many are sliding.
    pub(super) sliding: usize,
    /// Groups whose lives are to be renewed, with their databases.
    pub(super) wanted: Vec<(usize, Name)>,
    /// Groups with deadlines whose deaths are going to be written: when that is due, their databases, and which they are.
    pub(super) owed: BTreeSet<(u64, usize, usize)>,
    pub(super) bytes: usize,
    /// How those were that have changed since, while a snapshot is made.
    pub(super) moment: Option<Box<Moment>>,
}

impl OfDb {
    pub(super) fn effective_ms(&self, member: &Member) -> Option<u64> {
        let of_groups = member.groups.iter().filter_map(|id| self.groups.get(*id)?.span.deadline_ms);
        of_groups.chain(member.own_ms).min()
    }

    pub(super) fn named(&self, name: &[u8]) -> Option<(usize, &Group)> {
        let id = *self.named.get(name)?;
        Some((id, self.groups.get(id)?))
    }

    pub(super) fn alive(&self, name: &[u8], now: Now) -> Option<(usize, &Group)> {
        self.named(name).filter(|(_, group)| !group.span.is_dead(now))
    }

    /// Gives back the room of many members and groups once few are left, which are moved in no time.
    fn give_back(&mut self) {
        if self.members.len() <= FEW && self.members.capacity() > MANY {
            self.members.shrink_to(2 * FEW);
        }
        if self.named.len() <= FEW && self.named.capacity() > MANY {
            self.named.shrink_to(2 * FEW);
        }
        if self.unnamed.len() <= FEW && self.unnamed.capacity() > MANY {
            self.unnamed.shrink_to(2 * FEW);
        }
        if self.groups.is_empty() && self.groups.capacity() > MANY {
            self.groups = Slab::new();
        }
    }
}

impl Groups {
    fn create(&mut self, db: usize, name: &[u8], epoch: u64) -> usize {
        let name: Name = name.into();
        let span = Span { epoch, ..Span::default() };
        let of_db = &mut self.dbs[db];
        self.bytes += GROUP_BYTES + name.len();
        let (members, named) = (Set::default(), name.clone());
        let group = Group { name, span, is_named: true, is_over: false, wants_renewal: false, members, died: 0 };
        let id = of_db.groups.insert(group);
        of_db.named.insert(named, id);
        if let Some(moment) = &mut self.moment {
            moment.keep((db, id), || None);
        }
        id
    }

    /// A group is about to change, or to go: a snapshot that is made has it as it is.
    #[inline]
    fn save_first(&mut self, db: usize, id: usize) {
        if let Some(moment) = &mut self.moment {
            let groups = &self.dbs[db].groups;
            moment.keep((db, id), || groups.get(id).map(Group::was));
        }
    }

    /// The group with this name; one that is dead is so no more, but for its members.
    pub(super) fn id_of(&mut self, db: usize, name: &[u8], now: Now) -> usize {
        if self.dbs[db].named(name).is_some_and(|(_, group)| group.span.is_dead(now)) {
            self.detach(db, name);
        }
        match self.dbs[db].named(name) {
            Some((id, _)) => id,
            None => self.create(db, name, 0),
        }
    }

    /// The same for whoever is told of the epoch: another one is another group.
    pub(super) fn id_of_epoch(&mut self, db: usize, name: &[u8], epoch: u64) -> usize {
        if self.dbs[db].named(name).is_some_and(|(_, group)| group.span.epoch != 0 && group.span.epoch != epoch) {
            self.detach(db, name);
        }
        match self.dbs[db].named(name) {
            Some((id, _)) => {
                self.save_first(db, id);
                self.dbs[db].groups[id].span.epoch = epoch;
                id
            }
            None => self.create(db, name, epoch),
        }
    }

    /// The first epoch from this one on that no other group with this name has whose death is to be written.
    pub(super) fn unused_epoch(&self, db: usize, name: &[u8], from: u64) -> u64 {
        let name = Name::from(name);
        let is_unused = |epoch: &u64| !self.dbs[db].unnamed.contains_key(&(name.clone(), *epoch));
        (from..).find(is_unused).unwrap_or(from)
    }

    /// The name leads to no group any more. Members that are still there die by it.
    pub(super) fn detach(&mut self, db: usize, name: &[u8]) {
        let Some(id) = self.dbs[db].named.remove(name) else { return };
        self.save_first(db, id);
        let of_db = &mut self.dbs[db];
        let group = &mut of_db.groups[id];
        group.is_named = false;
        if std::mem::take(&mut group.span.is_sliding) {
            self.sliding -= 1;
        }
        match group.span.owed_ms() {
            Some(_) => drop(of_db.unnamed.insert((group.name.clone(), group.span.epoch), id)),
            None => group.span.to = None,
        }
        self.drop_empty(db, id);
    }

    /// The name leads to no group any more, and no death is written.
    pub(super) fn forget(&mut self, db: usize, name: &[u8]) {
        if let Some(id) = self.dbs[db].named(name).map(|(id, _)| id) {
            self.owe_nothing(db, id);
            self.detach(db, name);
        }
    }

    fn owe_nothing(&mut self, db: usize, id: usize) {
        self.save_first(db, id);
        let span = &mut self.dbs[db].groups[id].span;
        if let Some(at_ms) = span.owed_ms() {
            self.owed.remove(&(at_ms, db, id));
        }
        span.to = None;
    }

    /// The death of a group is written: how many members it had. None where it is not there.
    pub(super) fn settle(&mut self, db: usize, name: &[u8], epoch: u64) -> Option<(Span, u64)> {
        let of_db = &mut self.dbs[db];
        let unnamed = of_db.unnamed.remove(&(Name::from(name), epoch));
        let named = || of_db.named(name).filter(|(_, group)| group.span.epoch == epoch).map(|(id, _)| id);
        let id = unnamed.or_else(named)?;
        let group = &of_db.groups[id];
        let (span, is_named) = (group.span.clone(), group.is_named);
        let dies_by_it =
            |key: &&Name| of_db.members.get(*key).map(|key| of_db.effective_ms(key)) == Some(span.deadline_ms);
        let members = group.died + group.members.iter().filter(dies_by_it).count() as u64;
        self.owe_nothing(db, id);
        match is_named {
            true => self.detach(db, name),
            false => self.drop_empty(db, id),
        }
        Some((span, members))
    }

    /// A member is about to go, dead by this deadline: the groups that have it count it.
    pub fn count_death(&mut self, db: usize, key: &[u8], deadline_ms: u64) {
        let of_db = &mut self.dbs[db];
        let Some(member) = of_db.members.get(key) else { return };
        for id in &member.groups {
            if let Some(group) = of_db.groups.get_mut(*id).filter(|group| group.span.owed_ms() == Some(deadline_ms)) {
                group.died += 1;
            }
        }
    }

    /// A group that nobody is in is gone, unless it has a deadline to come, or a stream, and then is not dead or not told of.
    pub(super) fn drop_empty(&mut self, db: usize, id: usize) {
        let Some(group) = self.dbs[db].groups.get(id).filter(|group| group.members.is_empty()) else { return };
        if group.is_named && !group.is_over && group.span.stays() || group.span.owed_ms().is_some() {
            return;
        }
        self.save_first(db, id);
        let of_db = &mut self.dbs[db];
        let group = of_db.groups.remove(id);
        if group.is_named {
            of_db.named.remove(&group.name);
        }
        if let Some(deadline_ms) = group.span.deadline_ms {
            of_db.due.remove(&(deadline_ms, id));
        }
        self.sliding -= usize::from(group.span.is_sliding);
        self.bytes -= GROUP_BYTES + group.name.len();
        of_db.give_back();
    }

    pub(super) fn set_span(&mut self, db: usize, id: usize, span: Span) {
        self.save_first(db, id);
        let of_db = &mut self.dbs[db];
        let group = &mut of_db.groups[id];
        if let Some(before_ms) = group.span.deadline_ms {
            of_db.due.remove(&(before_ms, id));
        }
        if let Some(deadline_ms) = span.deadline_ms {
            of_db.due.insert((deadline_ms, id));
        }
        if let Some(at_ms) = group.span.owed_ms() {
            self.owed.remove(&(at_ms, db, id));
        }
        if let Some(at_ms) = span.owed_ms() {
            self.owed.insert((at_ms, db, id));
        }
        self.sliding = self.sliding + usize::from(span.is_sliding) - usize::from(group.span.is_sliding);
        (group.span, group.is_over, group.wants_renewal) = (span, false, false);
    }

    /// Whether a key that was not a member is one now. Its deadline is this so far.
    pub(super) fn join(&mut self, db: usize, key: &[u8], id: usize, own_ms: Option<u64>) -> bool {
        let of_db = &mut self.dbs[db];
        let name = match of_db.members.get_key_value(key) {
            Some((name, _)) => name.clone(),
            None => key.into(),
        };
        let is_new = of_db.groups[id].members.insert(name.clone());
        if is_new {
            let bytes = &mut self.bytes;
            let member = of_db.members.entry(name).or_insert_with(|| {
                *bytes += MEMBER_BYTES + key.len();
                Member { own_ms, ..Member::default() }
            });
            member.groups.push(id);
            *bytes += PLACE_BYTES;
        }
        is_new
    }

    /// Whether a member was one of this group.
    pub(super) fn part(&mut self, db: usize, key: &[u8], id: usize) -> bool {
        let of_db = &mut self.dbs[db];
        let Some(member) = of_db.members.get_mut(key) else { return false };
        let Some(place) = member.groups.iter().position(|of| *of == id) else { return false };
        member.groups.swap_remove(place);
        self.bytes -= PLACE_BYTES;
        if member.groups.is_empty() {
            of_db.members.remove(key);
            self.bytes -= MEMBER_BYTES + key.len();
        }
        if let Some(group) = of_db.groups.get_mut(id) {
            group.members.remove(key);
        }
        self.drop_empty(db, id);
        self.dbs[db].give_back();
        true
    }

    /// A key has gone.
    pub fn leave(&mut self, db: usize, key: &[u8]) {
        let Some((name, member)) = self.dbs[db].members.remove_entry(key) else { return };
        self.bytes -= MEMBER_BYTES + key.len() + PLACE_BYTES * member.groups.len();
        for id in member.groups {
            if let Some(group) = self.dbs[db].groups.get_mut(id) {
                group.members.remove(&name);
            }
            self.drop_empty(db, id);
        }
        self.dbs[db].give_back();
    }

    /// Those whose deadlines have passed are over.
    pub(super) fn end_before(&mut self, db: usize, now: Now) {
        while let Some(&(at_ms, id)) = self.dbs[db].due.first().filter(|(at_ms, _)| *at_ms < now.ms) {
            self.dbs[db].due.remove(&(at_ms, id));
            self.dbs[db].groups[id].is_over = true;
            self.drop_empty(db, id);
        }
    }

    pub(super) fn flush(&mut self, db: usize) {
        let of_db = std::mem::take(&mut self.dbs[db]);
        self.wanted.retain(|(of, _)| *of != db);
        self.owed.retain(|(_, of, _)| *of != db);
        self.sliding -= of_db.groups.iter().filter(|(_, group)| group.span.is_sliding).count();
        let of_members = |(key, member): (&Name, &Member)| MEMBER_BYTES + key.len() + PLACE_BYTES * member.groups.len();
        self.bytes -= of_db.members.iter().map(of_members).sum::<usize>();
        self.bytes -= of_db.groups.iter().map(|(_, group)| GROUP_BYTES + group.name.len()).sum::<usize>();
    }

    pub(super) fn membership(&self, db: usize, key: &[u8]) -> Option<Membership> {
        let of_db = &self.dbs[db];
        let bond_of = |id: usize| {
            let group = of_db.groups.get(id)?;
            Some(Bond::of(group.is_named, &group.name, &group.span))
        };
        Some(of_db.members.get(key)?.said(bond_of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_of_many_is_given_back_when_few_are_left() {
        const MEMBERS: usize = 10 * MANY;
        let mut groups = Groups { dbs: vec![OfDb::default()], ..Groups::default() };
        let names: Vec<String> = (0..MEMBERS).map(|number| format!("key{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            let id = groups.id_of(0, format!("group{}", number / 10).as_bytes(), Now::from_ms(0));
            assert!(groups.join(0, name.as_bytes(), id, None));
        }
        assert!(groups.dbs[0].members.capacity() >= MEMBERS);
        names.iter().for_each(|name| groups.leave(0, name.as_bytes()));
        let of_db = &groups.dbs[0];
        assert_eq!((of_db.members.len(), of_db.named.len(), groups.bytes), (0, 0, 0));
        assert!(of_db.members.capacity() <= MANY && of_db.named.capacity() <= MANY && of_db.groups.capacity() <= MANY);
        // Groups with deadlines, which had no members.
        for number in 0..MEMBERS {
            let id = groups.id_of(0, format!("group{number}").as_bytes(), Now::from_ms(0));
            groups.set_span(0, id, Span { epoch: 1, deadline_ms: Some(10), ..Span::default() });
        }
        groups.end_before(0, Now::from_ms(20));
        let of_db = &groups.dbs[0];
        assert_eq!((of_db.named.len(), groups.bytes), (0, 0));
        assert!(of_db.named.capacity() <= MANY && of_db.groups.capacity() <= MANY);
    }
}
