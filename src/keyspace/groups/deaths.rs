//! Deaths of groups that are written to streams (`EXPIRY GROUP EVENTS`): one entry a group, with the number of its members.
//!
//! A group that is killed is told by the command that kills it. One whose deadline passes dies on all shards at the same moment,
//! and needs nobody for that; so its death is written a little later, by the shard that its name leads to, in a transaction over
//! all shards in which each says how many members it had there. Until then what has died with the group is hidden, as all that is
//! dead, but stays: nothing with that deadline or a later one is deleted ([`Groups::held_from_ms`]). So the log has all members
//! until it has the entry, and after a crash the group dies again, with all of them.
//!
//! Only a command that writes to a dead member takes it away before. It says so ([`Left`]), and the number is kept beside the others.
//! A snapshot of such a moment says of each shard how many members the group had there ([`Keyspace::each_dead_group`]).

use super::{Group, Groups, Name, OfDb, Span};
use crate::clock::Now;
use crate::keyspace::Keyspace;
use crate::table::NEVER_MS;
use std::sync::Arc;

/// Where deaths of a group are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventStream {
    pub key: Box<[u8]>,
    /// How many entries it keeps, about.
    pub max_len: Option<u64>,
}

/// A group that has died, and whose death is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    pub db: usize,
    pub name: Name,
    pub epoch: u64,
}

/// What a shard knows of a group that has died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    pub to: Arc<EventStream>,
    pub deadline_ms: u64,
    /// Members that have died with it.
    pub members: u64,
}

/// A key has died with a group whose death is not written yet.
pub(in crate::keyspace) struct Left {
    pub group: Name,
    pub epoch: u64,
}

impl Group {
    /// Its death is to be written when it comes.
    pub(super) fn is_untold(&self) -> bool {
        self.to.is_some() && self.span.deadline_ms.is_some()
    }
}

impl OfDb {
    /// How many members have died with a group, or are going to, as things are.
    fn count_of(&self, group: &Group) -> u64 {
        let dies_with_it = |key: &&Name| {
            let member = self.members.get(*key);
            member.is_some_and(|member| self.effective_ms(member) == group.span.deadline_ms)
        };
        let there = if group.is_counted { 0 } else { group.members.iter().filter(dies_with_it).count() as u64 };
        group.left + there
    }
}

impl Groups {
    /// A group is about to have another deadline or another stream.
    pub(super) fn delist(&mut self, db: usize, id: usize) {
        let of_db = &mut self.dbs[db];
        let group = &of_db.groups[id];
        if let Some(deadline_ms) = group.span.deadline_ms.filter(|_| group.is_untold()) {
            of_db.untold.remove(&(deadline_ms, id));
            of_db.untold_ids.remove(&(group.name.clone(), group.span.epoch));
            self.find_held();
        }
    }

    /// It has.
    pub(super) fn enlist(&mut self, db: usize, id: usize) {
        let of_db = &mut self.dbs[db];
        let group = &of_db.groups[id];
        if let Some(deadline_ms) = group.span.deadline_ms.filter(|_| group.is_untold()) {
            of_db.untold.insert((deadline_ms, id));
            of_db.untold_ids.insert((group.name.clone(), group.span.epoch), id);
            self.has_news = true;
            self.find_held();
        }
    }

    pub(super) fn find_held(&mut self) {
        let first = self.dbs.iter().filter_map(|of_db| of_db.untold.first()).map(|(deadline_ms, _)| *deadline_ms).min();
        self.held_from_ms = first.unwrap_or(NEVER_MS);
    }

    pub(super) fn set_stream(&mut self, db: usize, id: usize, to: Option<Arc<EventStream>>) {
        self.delist(db, id);
        self.dbs[db].groups[id].to = to;
        self.enlist(db, id);
    }

    /// A key dies: with which groups, of those whose deaths are to be written.
    pub(in crate::keyspace) fn dies_with(&mut self, db: usize, key: &[u8], deadline_ms: u64) -> Vec<Left> {
        let of_db = &mut self.dbs[db];
        let Some(member) = of_db.members.get(key).filter(|_| !of_db.untold.is_empty()) else { return Vec::new() };
        let mut left = Vec::new();
        for id in &member.groups {
            let dies = |group: &&mut Group| group.is_untold() && group.span.deadline_ms == Some(deadline_ms);
            if let Some(group) = of_db.groups.get_mut(*id).filter(dies) {
                group.left += 1;
                left.push(Left { group: group.name.clone(), epoch: group.span.epoch });
            }
        }
        left
    }
}

impl Keyspace {
    /// Whether the death of some group is to be written, now or later.
    #[inline]
    pub(in crate::keyspace) fn has_untold_groups(&self) -> bool {
        self.held_from_ms() != NEVER_MS
    }

    /// Nothing with this deadline or a later one is deleted, although it is dead: it is to be counted first.
    #[inline]
    pub fn held_from_ms(&self) -> u64 {
        self.effects.groups.as_ref().map_or(NEVER_MS, |groups| groups.held_from_ms)
    }

    /// The moment up to which the dead may be deleted, now.
    #[inline]
    pub fn without_held(&self, now: Now) -> Now {
        let held_from_ms = self.held_from_ms();
        if held_from_ms < now.ms { Now::from_ms(held_from_ms) } else { now }
    }

    /// The stream to which the death of a group that is alive is written.
    pub fn group_stream(&self, db: usize, name: &[u8], now: Now) -> Option<Arc<EventStream>> {
        self.effects.groups.as_ref()?.dbs[db].alive(name, now)?.1.to.clone()
    }

    /// The death of a group is written to this stream, or nowhere.
    pub fn set_group_stream(&mut self, db: usize, name: &[u8], to: Option<Arc<EventStream>>, now: Now) -> Span {
        let groups = self.groups();
        let id = groups.id_of(db, name, now);
        groups.set_stream(db, id, to);
        let span = groups.dbs[db].groups[id].span;
        groups.drop_empty(db, id);
        span
    }

    /// When the first group dies whose death this shard is to write: its name leads here.
    pub fn next_group_death_ms(&self, is_mine: impl Fn(&[u8]) -> bool) -> u64 {
        let Some(groups) = &self.effects.groups else { return NEVER_MS };
        let first = |of_db: &OfDb| {
            let (at_ms, _) = *of_db.untold.iter().find(|(_, id)| is_mine(&of_db.groups[*id].name))?;
            Some(at_ms)
        };
        groups.dbs.iter().filter_map(first).min().unwrap_or(NEVER_MS)
    }

    /// At most so many groups that have died, and whose deaths this shard is to write.
    pub fn due_group_deaths(&mut self, most: usize, now: Now, is_mine: impl Fn(&[u8]) -> bool) -> Vec<Due> {
        let Some(groups) = &mut self.effects.groups else { return Vec::new() };
        groups.has_news = false;
        let mut due = Vec::new();
        for (db, of_db) in groups.dbs.iter().enumerate() {
            let dead = of_db.untold.iter().take_while(|(at_ms, _)| *at_ms < now.ms).map(|(_, id)| &of_db.groups[*id]);
            let mine = dead.filter(|group| is_mine(&group.name)).take(most - due.len());
            due.extend(mine.map(|group| Due { db, name: group.name.clone(), epoch: group.span.epoch }));
        }
        due
    }

    /// The death of a group is written, now; what was known of it here. None where it is not to be written.
    pub fn tell_group_death(&mut self, db: usize, name: &Name, epoch: u64) -> Option<Counted> {
        let groups = self.effects.groups.as_mut()?;
        let id = *groups.dbs[db].untold_ids.get(&(name.clone(), epoch))?;
        let of_db = &groups.dbs[db];
        let group = &of_db.groups[id];
        let (to, deadline_ms) = (group.to.clone()?, group.span.deadline_ms?);
        let counted = Counted { to, deadline_ms, members: of_db.count_of(group) };
        groups.set_stream(db, id, None);
        groups.drop_empty(db, id);
        Some(counted)
    }

    /// So many members had died with a group and are not there any more, as the log says.
    pub fn recall_left(&mut self, db: usize, name: &Name, epoch: u64, members: u64) {
        let Some(groups) = &mut self.effects.groups else { return };
        let of_db = &mut groups.dbs[db];
        let id = of_db.untold_ids.get(&(name.clone(), epoch));
        if let Some(group) = id.and_then(|id| of_db.groups.get_mut(*id)).filter(|group| !group.is_counted) {
            group.left = group.left.saturating_add(members);
        }
    }

    /// A group had died with so many members, and its death was not written, as a snapshot says.
    pub fn recall_dead_group(&mut self, db: usize, name: &Name, epoch: u64, counted: Counted) {
        let groups = self.groups();
        let named = groups.dbs[db].named(name).filter(|(_, group)| group.span.epoch == epoch).map(|(id, _)| id);
        let id = groups.dbs[db].untold_ids.get(&(name.clone(), epoch)).copied().or(named);
        let id = id.unwrap_or_else(|| {
            let named = groups.dbs[db].named.remove(name);
            let id = groups.create(db, name, epoch);
            groups.dbs[db].groups[id].is_named = false;
            let of_db = &mut groups.dbs[db];
            match named {
                Some(other) => of_db.named.insert(name.clone(), other),
                None => of_db.named.remove(name),
            };
            id
        });
        groups.set_stream(db, id, Some(counted.to));
        let group = &mut groups.dbs[db].groups[id];
        (group.is_counted, group.left) = (true, group.left.saturating_add(counted.members));
        let span = Span { epoch, deadline_ms: Some(counted.deadline_ms), ..group.span };
        groups.set_span(db, id, span);
    }

    /// Groups that have died and whose deaths are not written: what a snapshot says of them.
    pub fn each_dead_group(&self, now: Now, mut of_group: impl FnMut(usize, &[u8], u64, Counted)) {
        for (db, of_db) in self.effects.groups.iter().flat_map(|groups| groups.dbs.iter().enumerate()) {
            for (deadline_ms, id) in of_db.untold.iter().take_while(|(at_ms, _)| *at_ms < now.ms) {
                let group = &of_db.groups[*id];
                let Some(to) = group.to.clone() else { continue };
                let counted = Counted { to, deadline_ms: *deadline_ms, members: of_db.count_of(group) };
                of_group(db, &group.name, group.span.epoch, counted);
            }
        }
    }

    /// At most so many groups without deadlines that have streams, and have lost their last members here.
    pub fn take_emptied_groups(&mut self, most: usize) -> Vec<(usize, Name)> {
        let Some(groups) = &mut self.effects.groups else { return Vec::new() };
        let count = groups.emptied.len().min(most);
        let taken: Vec<(usize, Name)> = groups.emptied.drain(..count).collect();
        for (db, name) in &taken {
            let of_db = &mut groups.dbs[*db];
            if let Some(group) = of_db.named.get(name).and_then(|id| of_db.groups.get_mut(*id)) {
                group.is_looked_at = false;
            }
        }
        taken
    }

    /// Whether a group has no members here and no deadline.
    pub fn is_empty_group(&self, db: usize, name: &[u8]) -> bool {
        let group = self.effects.groups.as_ref().and_then(|groups| groups.dbs[db].named(name));
        group.is_none_or(|(_, group)| group.members.is_empty() && group.span.deadline_ms.is_none())
    }
}
