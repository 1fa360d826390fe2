//! Groups of keys that die together (`EXPIRY GROUP`).
//!
//! Of a member the table has the effective deadline: the earlier one of its own and those of its groups. So whatever is true of
//! deadlines is true of groups: all shards hide the members of one that is dead at the same moment, and nobody has to say so.
//! What is kept here beside the tables is what the deadline of a member follows from: its own one, and its groups.
//!
//! - A group with a deadline is known on all shards, since a transaction over all of them has set it. A group without one is known
//!   where it has members, and is gone with the last of them.
//! - A member leaves when its key goes, for whatever reason (`Effects::departs`), and with it goes what is known of it.
//! - A group may have a stream in which its death is written. One that has is known on all shards, too, and stays until it dies. It
//!   is there still when it has died, until its entry is written: after a crash it dies again.
//! - A group that has died may come again under its name. Its epoch tells the two apart where this is told to another server, whose
//!   clock says something else: it is drawn when a group gets its first deadline, or its stream, and zero while there is neither.
//!
//! | file | what |
//! |---|---|
//! | `saving.rs` | what a snapshot says of groups and of members |
//! | `index.rs` | which keys are in which groups, and how each group lives |
//! | `moment.rs` | groups that have changed since the moment of a snapshot, as they were |

mod index;
mod moment;
mod saving;

use super::change::{Change, Event};
use super::{Key, Keyspace, swapped};
use crate::clock::Now;
use crate::config::DeathStream;
pub use index::Groups;
use index::{Group, OfDb};
use std::sync::Arc;

/// A key is in no more groups than this.
pub const GROUPS_A_KEY_MAX: usize = 64;
/// The life of a sliding group is renewed by use no more often than this while it lasts: each time all members change.
const RENEWALS_A_LIFE: u64 = 20;
/// About the work for a member, while which nobody else is answered; where there are many members the next renewal waits for so
/// many times what the last one took, but for no larger part of the life than this.
const MEMBER_WORK_NS: u64 = 3_000;
const WORK_REST_TIMES: u64 = 20;
const RENEWALS_A_LIFE_MIN: u64 = 4;
/// About what a member, its place in one group, and a group take beside their names.
const MEMBER_BYTES: usize = 96;
const PLACE_BYTES: usize = 32;
const GROUP_BYTES: usize = 256;

pub type Name = Arc<[u8]>;

/// How long a group lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Tells this group from others that had its name before; zero while it has neither a deadline nor a stream.
    pub epoch: u64,
    /// Store milliseconds.
    pub deadline_ms: Option<u64>,
    /// For how long it is renewed.
    pub life_ms: u64,
    /// The use of a member renews it.
    pub is_sliding: bool,
    /// Its death is written there.
    pub to: Option<Arc<DeathStream>>,
    /// It was killed, and its deadline is when that was.
    pub is_killed: bool,
}

/// A death of a group whose entry is to be written.
#[derive(Clone, Debug)]
pub struct OwedDeath {
    pub db: usize,
    pub name: Name,
    pub epoch: u64,
}

impl Span {
    /// Whether the group is there although it has no members: then all shards know of it.
    fn stays(&self) -> bool {
        self.deadline_ms.is_some() || self.to.is_some()
    }

    /// Its death is going to be written, or is to be written now.
    fn owed_ms(&self) -> Option<u64> {
        self.deadline_ms.filter(|_| self.to.is_some())
    }

    fn is_dead(&self, now: Now) -> bool {
        self.deadline_ms.is_some_and(|deadline_ms| deadline_ms < now.ms)
    }

    fn renewed(&self, now: Now) -> Span {
        Span { deadline_ms: Some(now.ms.saturating_add(self.life_ms)), ..self.clone() }
    }

    /// Whether its life may be renewed: what would be won is more than a little.
    fn is_due(&self, now: Now) -> bool {
        self.would_win_ms(now).is_some_and(|won_ms| won_ms > self.life_ms / RENEWALS_A_LIFE)
    }

    /// Whether that is worth the work, where so many members have to be given another deadline.
    fn is_worth_it(&self, members: usize, now: Now) -> bool {
        let work_ms = (members as u64).saturating_mul(MEMBER_WORK_NS) / 1_000_000;
        let rest_ms = (WORK_REST_TIMES * work_ms).min(self.life_ms / RENEWALS_A_LIFE_MIN);
        self.is_due(now) && self.would_win_ms(now).is_some_and(|won_ms| won_ms > rest_ms)
    }

    fn would_win_ms(&self, now: Now) -> Option<u64> {
        let deadline_ms = self.deadline_ms.filter(|_| self.is_sliding)?;
        Some(now.ms.saturating_add(self.life_ms).saturating_sub(deadline_ms))
    }
}

/// What a key's deadline follows from, beside the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The deadline that the key would have without its groups.
    pub own_ms: Option<u64>,
    /// With the epoch of each.
    pub groups: Vec<(Name, u64)>,
}

/// A member has this deadline now.
#[derive(Debug, PartialEq, Eq)]
pub struct Redated {
    pub key: Name,
    pub deadline_ms: Option<u64>,
}

impl Keyspace {
    /// Whether there is a group.
    #[inline]
    pub fn has_groups(&self) -> bool {
        self.effects.groups.as_ref().is_some_and(|groups| groups.bytes > 0)
    }

    fn groups(&mut self) -> &mut Groups {
        let databases = self.dbs.len();
        let new = || Box::new(Groups { dbs: (0..databases).map(|_| OfDb::default()).collect(), ..Groups::default() });
        self.effects.groups_to_keep(new)
    }

    /// Bytes of what is known of groups, about.
    pub(super) fn group_bytes(&self) -> usize {
        let of_moment = |groups: &Groups| groups.moment.as_ref().map_or(0, |moment| moment.bytes());
        self.effects.groups.as_deref().map_or(0, |groups| groups.bytes + of_moment(groups))
    }

    /// Whether lives of groups are renewed by use.
    pub(super) fn has_sliding_groups(&self) -> bool {
        self.effects.groups.as_ref().is_some_and(|groups| groups.sliding > 0)
    }

    /// Groups that are over and have no members are gone, those that somebody still sees excepted.
    pub fn end_groups(&mut self, db: usize, now: Now) {
        let before = now.min(self.seen_from);
        if let Some(groups) = &mut self.effects.groups {
            groups.end_before(db, before);
        }
        self.look_for_sliding();
    }

    pub(super) fn flush_groups(&mut self, db: usize) {
        if let Some(groups) = &mut self.effects.groups {
            groups.flush(db);
        }
        self.look_for_sliding();
    }

    pub(super) fn swap_groups(&mut self, a: usize, b: usize) {
        let Some(groups) = &mut self.effects.groups else { return };
        groups.dbs.swap(a, b);
        let other = swapped(a, b);
        groups.wanted.iter_mut().for_each(|(db, _)| *db = other(*db));
        groups.owed = groups.owed.iter().map(|(at_ms, db, id)| (*at_ms, other(*db), *id)).collect();
    }

    /// How long a group lives, if it is alive and known here.
    pub fn group_span(&self, db: usize, name: &[u8], now: Now) -> Option<Span> {
        let (_, group) = self.effects.groups.as_ref()?.dbs[db].alive(name, now)?;
        self.is_there(db, group, now).then(|| group.span.clone())
    }

    /// Whether a group has a deadline to come, or a stream, or a member that is alive.
    fn is_there(&self, db: usize, group: &Group, now: Now) -> bool {
        let lives = |key: &Name| self.peek(db, self.hasher.key(key), now).is_some();
        !group.span.is_dead(now) && (group.span.stays() || group.members.iter().any(lives))
    }

    /// The members of a group that are alive, here.
    pub fn group_members(&self, db: usize, name: &[u8], now: Now) -> Vec<Name> {
        let Some(groups) = &self.effects.groups else { return Vec::new() };
        let Some((_, group)) = groups.dbs[db].alive(name, now) else { return Vec::new() };
        let lives = |key: &&Name| self.peek(db, self.hasher.key(key), now).is_some();
        group.members.iter().filter(lives).cloned().collect()
    }

    /// The names of the groups that are alive and known here.
    pub fn group_names(&self, db: usize, now: Now) -> Vec<Name> {
        let Some(groups) = &self.effects.groups else { return Vec::new() };
        let of_db = &groups.dbs[db];
        let ids = of_db.named.values().filter_map(|id| of_db.groups.get(*id));
        ids.filter(|group| self.is_there(db, group, now)).map(|group| group.name.clone()).collect()
    }

    /// What a key's deadline follows from, where that is more than its own.
    pub fn membership(&self, db: usize, key: &[u8]) -> Option<Membership> {
        self.effects.groups.as_ref()?.membership(db, key)
    }

    /// Whether a key may join a group.
    pub fn may_join(&self, db: usize, key: &[u8], name: &[u8]) -> bool {
        let Some(groups) = &self.effects.groups else { return true };
        let of_db = &groups.dbs[db];
        let Some(member) = of_db.members.get(key) else { return true };
        let id = of_db.named.get(name);
        member.groups.len() < GROUPS_A_KEY_MAX || id.is_some_and(|id| member.groups.contains(id))
    }

    /// A key is about to join groups, or to leave some: a snapshot that is made has it as a member of those it is in.
    fn save_member_first(&mut self, db: usize, key: Key) {
        let Some(slot) = self.dbs[db].find(key) else { return };
        let (table, nodes) = (&self.dbs[db], &self.nodes);
        let was = || Some(nodes.was(table.entry(slot), table.deadline_ms(slot)));
        self.effects.save_first(db, key.hash, || key.bytes, was);
    }

    /// A key that is alive joins a group, which need not be there before. Nothing where it was a member; else its new
    /// deadline, if that is another one.
    pub fn join_group(&mut self, db: usize, key: Key, name: &[u8], now: Now) -> Option<Option<Redated>> {
        let own_ms = self.dbs[db].find(key).map(|slot| self.dbs[db].deadline_ms(slot))?;
        self.save_member_first(db, key);
        let groups = self.groups();
        let id = groups.id_of(db, name, now);
        let has_joined = groups.join(db, key.bytes, id, own_ms);
        groups.drop_empty(db, id);
        has_joined.then(|| self.redate(db, key, now))
    }

    /// The same the other way round.
    pub fn leave_group(&mut self, db: usize, key: Key, name: &[u8], now: Now) -> Option<Option<Redated>> {
        self.save_member_first(db, key);
        let groups = self.effects.groups.as_mut()?;
        let (id, _) = groups.dbs[db].alive(name, now)?;
        let own_ms = groups.dbs[db].members.get(key.bytes)?.own_ms;
        if !groups.part(db, key.bytes, id) {
            return None;
        }
        let is_member = groups.dbs[db].members.contains_key(key.bytes);
        self.look_for_sliding();
        Some(match is_member {
            true => self.redate(db, key, now),
            false => self.set_member_deadline(db, key, own_ms, now),
        })
    }

    /// A key is a member of these groups, and of no others, and had this deadline without them: as another server says, or
    /// this one did before.
    pub fn recall_membership(&mut self, db: usize, key: Key, said: &Membership, now: Now) -> Option<Redated> {
        self.save_member_first(db, key);
        let groups = self.groups();
        groups.leave(db, key.bytes);
        for (name, epoch) in said.groups.iter().take(GROUPS_A_KEY_MAX) {
            let id = groups.id_of_epoch(db, name, *epoch);
            groups.join(db, key.bytes, id, said.own_ms);
        }
        self.look_for_sliding();
        match said.groups.is_empty() {
            true => self.set_member_deadline(db, key, said.own_ms, now),
            false => self.redate(db, key, now),
        }
    }

    /// A group lives so long from now on; `new_epoch` is its epoch where it had no deadline, or is not there. The members
    /// that have other deadlines by that, and how it lives.
    pub fn date_group(&mut self, db: usize, name: &[u8], span: Span, now: Now) -> (Span, Vec<Redated>) {
        let groups = self.groups();
        let id = groups.id_of(db, name, now);
        let before = &groups.dbs[db].groups[id].span;
        let (epoch, to) = (before.epoch, before.to.clone());
        let epoch = if epoch == 0 { groups.unused_epoch(db, name, span.epoch) } else { epoch };
        let span = Span { epoch, to, ..span };
        (span.clone(), self.redate_group(db, id, span, now))
    }

    /// A group has this stream from now on, or none; see [`Keyspace::date_group`]. How it lives, as it is told; none where there is
    /// no such group, and no stream.
    pub fn set_group_stream(
        &mut self,
        db: usize,
        name: &[u8],
        to: Option<Arc<DeathStream>>,
        new_epoch: u64,
        now: Now,
    ) -> Option<Span> {
        let groups = self.groups();
        if to.is_none() && groups.dbs[db].alive(name, now).is_none_or(|(_, group)| group.span.to.is_none()) {
            return None;
        }
        let id = groups.id_of(db, name, now);
        let before = groups.dbs[db].groups[id].span.clone();
        let epoch = if before.epoch == 0 { groups.unused_epoch(db, name, new_epoch) } else { before.epoch };
        let span = Span { epoch, to, ..before };
        self.live_group(db, id, span.clone(), now);
        Some(span)
    }

    /// A group has no deadline any more: how it lives, as it is told, and the members that have other deadlines by that. None where
    /// it had none.
    pub fn persist_group(&mut self, db: usize, name: &[u8], now: Now) -> Option<(Span, Vec<Redated>)> {
        let (id, group) = self.effects.groups.as_ref()?.dbs[db].alive(name, now)?;
        group.span.deadline_ms?;
        let span = Span { epoch: group.span.epoch, to: group.span.to.clone(), ..Span::default() };
        let redated = self.live_group(db, id, span.clone(), now);
        Some((span, redated))
    }

    /// A group whose members were just deleted, so many here, is dead, and its death is going to be written: how it is told.
    pub fn kill_group(&mut self, db: usize, name: &[u8], killed: u64, now: Now) -> Option<Span> {
        let groups = self.effects.groups.as_mut()?;
        let id = groups.dbs[db].named(name)?.0;
        let group = &mut groups.dbs[db].groups[id];
        group.died = killed;
        let (epoch, to) = (group.span.epoch, group.span.to.clone());
        let span = Span { epoch, deadline_ms: Some(now.ms), to, is_killed: true, ..Span::default() };
        groups.set_span(db, id, span.clone());
        groups.detach(db, name);
        self.look_for_sliding();
        Some(span)
    }

    /// A group lives like this; where that is no longer than its members do, it is gone with the last of them.
    fn live_group(&mut self, db: usize, id: usize, span: Span, now: Now) -> Vec<Redated> {
        let span = if span.stays() { span } else { Span::default() };
        let redated = self.redate_group(db, id, span, now);
        self.groups().drop_empty(db, id);
        self.look_for_sliding();
        redated
    }

    /// When the next death of a group is to be written, if that is known here: to be asked again in the millisecond behind.
    #[inline]
    pub fn next_owed_ms(&self) -> u64 {
        let owed = |groups: &Groups| groups.owed.first().map(|(at_ms, ..)| *at_ms);
        self.effects.groups.as_deref().and_then(owed).unwrap_or(u64::MAX)
    }

    /// At most so many groups that have died and whose entries are to be written.
    pub fn owed_deaths(&self, most: usize, now: Now) -> Vec<OwedDeath> {
        let Some(groups) = &self.effects.groups else { return Vec::new() };
        let dead = groups.owed.iter().take_while(|(at_ms, ..)| *at_ms < now.ms).take(most);
        let groups = dead.filter_map(|(_, db, id)| Some((*db, groups.dbs[*db].groups.get(*id)?)));
        groups.map(|(db, group)| OwedDeath { db, name: group.name.clone(), epoch: group.span.epoch }).collect()
    }

    /// The death of a group is written: how it lived, and how many members it had here. None where it is not known.
    pub fn settle_death(&mut self, db: usize, name: &[u8], epoch: u64) -> Option<(Span, u64)> {
        let settled = self.effects.groups.as_mut()?.settle(db, name, epoch);
        self.look_for_sliding();
        settled
    }

    /// The same as another server says, or this one did before.
    pub fn recall_group(&mut self, db: usize, name: &[u8], span: Span, now: Now) -> Vec<Redated> {
        if span.epoch == 0 {
            self.forget_group(db, name);
            return Vec::new();
        }
        // What each shard of another server has said of one that is dead stands in a snapshot as often as it has shards.
        if self.groups().dbs[db].unnamed.contains_key(&(Name::from(name), span.epoch)) {
            return Vec::new();
        }
        let id = self.groups().id_of_epoch(db, name, span.epoch);
        let is_killed = span.is_killed;
        let redated = self.live_group(db, id, span, now);
        if is_killed {
            self.groups().detach(db, name);
            self.look_for_sliding();
        }
        redated
    }

    /// There is no such group any more.
    pub fn forget_group(&mut self, db: usize, name: &[u8]) {
        if let Some(groups) = &mut self.effects.groups {
            groups.forget(db, name);
        }
        self.look_for_sliding();
    }

    /// The life of a group that is alive and has a deadline begins anew; where `only_due`, if it is sliding, and that wins
    /// more than a little.
    pub fn renew_group(&mut self, db: usize, name: &[u8], only_due: bool, now: Now) -> Option<(Span, Vec<Redated>)> {
        let groups = self.effects.groups.as_mut()?;
        let (id, group) = groups.dbs[db].alive(name, now)?;
        let span = group.span.clone();
        groups.dbs[db].groups[id].wants_renewal = false;
        if span.deadline_ms.is_none() || only_due && !span.is_due(now) {
            return None;
        }
        let span = span.renewed(now);
        Some((span.clone(), self.redate_group(db, id, span, now)))
    }

    fn redate_group(&mut self, db: usize, id: usize, span: Span, now: Now) -> Vec<Redated> {
        let members: Vec<Name> = match &self.effects.groups {
            Some(groups) => groups.dbs[db].groups[id].members.iter().cloned().collect(),
            None => Vec::new(),
        };
        // What was not said of a member's own deadline is found before its group has another one.
        for key in &members {
            self.see_own_deadline(db, self.hasher.key(key));
        }
        self.groups().set_span(db, id, span);
        self.look_for_sliding();
        members.iter().filter_map(|key| self.redate(db, self.hasher.key(key), now)).collect()
    }

    /// A key was changed. Where it has another deadline than its own and its groups have given it, that is its own one now;
    /// and no later one than its groups have is left to it. That is a use of it. Returns the deadline that was set.
    pub fn bound_by_groups(&mut self, db: usize, key: Key, now: Now) -> Option<Redated> {
        if self.has_sliding_groups() {
            self.note_group_use(db, key.bytes, now);
        }
        if self.see_own_deadline(db, key) { self.redate(db, key, now) } else { None }
    }

    /// Whether a key has no deadline but that of its groups.
    pub fn is_dated_by_groups(&self, db: usize, key: Key) -> bool {
        let Some(groups) = &self.effects.groups else { return false };
        let of_db = &groups.dbs[db];
        let Some(member) = of_db.members.get(key.bytes).filter(|member| member.own_ms.is_none()) else { return false };
        let given_ms = of_db.effective_ms(member);
        self.dbs[db].find(key).is_some_and(|slot| self.dbs[db].is_dated(slot, given_ms))
    }

    /// Whether a member has another deadline than it was given here. It is its own.
    fn see_own_deadline(&mut self, db: usize, key: Key) -> bool {
        let Some(groups) = &mut self.effects.groups else { return false };
        let of_db = &mut groups.dbs[db];
        let Some(given_ms) = of_db.members.get(key.bytes).map(|member| of_db.effective_ms(member)) else {
            return false;
        };
        let Some(slot) = self.dbs[db].find(key).filter(|slot| !self.dbs[db].is_dated(*slot, given_ms)) else {
            return false;
        };
        if let Some(member) = of_db.members.get_mut(key.bytes) {
            member.own_ms = self.dbs[db].deadline_ms(slot);
            return true;
        }
        false
    }

    /// A member gets the deadline that follows from its own and those of its groups, if it has another one.
    fn redate(&mut self, db: usize, key: Key, now: Now) -> Option<Redated> {
        let of_db = &self.effects.groups.as_ref()?.dbs[db];
        let deadline_ms = of_db.effective_ms(of_db.members.get(key.bytes)?);
        self.set_member_deadline(db, key, deadline_ms, now)
    }

    fn set_member_deadline(&mut self, db: usize, key: Key, deadline_ms: Option<u64>, now: Now) -> Option<Redated> {
        let slot = self.dbs[db].find(key)?;
        if self.dbs[db].is_dated(slot, deadline_ms) {
            return None;
        }
        self.live(db, slot, now, key.hash).edit().set_deadline(deadline_ms);
        self.effects.close(db, key.hash);
        let event = if deadline_ms.is_some() { Event::Expire } else { Event::Persist };
        // The value is what it was: those who watch the key or keep a copy of it have seen no change.
        self.record(db, key, Change::of(event).uncounted().unseen(), now);
        Some(Redated { key: key.bytes.into(), deadline_ms })
    }

    /// A member of groups is used: those that are sliding want to be renewed.
    pub(super) fn note_group_use(&mut self, db: usize, key: &[u8], now: Now) {
        let Some(groups) = &mut self.effects.groups else { return };
        let of_db = &mut groups.dbs[db];
        let Some(member) = of_db.members.get(key) else { return };
        for id in &member.groups {
            let due = |group: &&mut Group| {
                !group.wants_renewal && group.span.is_worth_it(group.members.len(), now) && !group.span.is_dead(now)
            };
            if let Some(group) = of_db.groups.get_mut(*id).filter(due) {
                group.wants_renewal = true;
                groups.wanted.push((db, group.name.clone()));
            }
        }
    }

    /// Whether lives of groups are to be renewed.
    #[inline]
    pub fn wants_renewals(&self) -> bool {
        self.effects.groups.as_ref().is_some_and(|groups| !groups.wanted.is_empty())
    }

    /// At most so many groups whose lives are to be renewed, with their databases.
    pub fn take_renewals(&mut self, most: usize) -> Vec<(usize, Name)> {
        let Some(groups) = &mut self.effects.groups else { return Vec::new() };
        let count = groups.wanted.len().min(most);
        groups.wanted.drain(..count).collect()
    }

    /// Nothing is renewed now, whatever was used.
    pub fn forget_renewals(&mut self) {
        for (db, name) in self.take_renewals(usize::MAX) {
            let Some(groups) = &mut self.effects.groups else { return };
            let of_db = &mut groups.dbs[db];
            if let Some(group) = of_db.named.get(&name).and_then(|id| of_db.groups.get_mut(*id)) {
                group.wants_renewal = false;
            }
        }
    }

    /// Checks what is known of groups against itself and the tables.
    #[cfg(test)]
    pub(super) fn check_groups(&self) {
        use std::collections::BTreeSet;
        let Some(groups) = &self.effects.groups else { return };
        let (mut bytes, mut sliding, mut owed) = (0, 0, BTreeSet::new());
        for (db, of_db) in groups.dbs.iter().enumerate() {
            for (id, group) in &of_db.groups {
                bytes += GROUP_BYTES + group.name.len();
                sliding += usize::from(group.span.is_sliding);
                assert_eq!(group.is_named, of_db.named.get(&group.name) == Some(&id));
                assert!(group.members.iter().all(|key| of_db.members[key].groups.contains(&id)));
                let stays = group.is_named && group.span.stays() && !group.is_over;
                assert!(!group.members.is_empty() || stays || group.span.owed_ms().is_some());
                assert!(!group.is_named || (group.span.epoch == 0) != group.span.stays());
                owed.extend(group.span.owed_ms().map(|at_ms| (at_ms, db, id)));
                let is_unnamed = of_db.unnamed.get(&(group.name.clone(), group.span.epoch)) == Some(&id);
                assert_eq!(is_unnamed, !group.is_named && group.span.owed_ms().is_some());
                let is_due = group.span.deadline_ms.is_some_and(|at_ms| of_db.due.contains(&(at_ms, id)));
                assert_eq!(is_due, group.span.deadline_ms.is_some() && !group.is_over);
            }
            for (key, member) in &of_db.members {
                bytes += MEMBER_BYTES + key.len() + PLACE_BYTES * member.groups.len();
                assert!(!member.groups.is_empty() && member.groups.len() <= GROUPS_A_KEY_MAX);
                assert!(member.groups.iter().all(|id| of_db.groups[*id].members.contains(key)));
                let slot = self.dbs[db].find(self.hasher.key(key)).expect("a member is there");
                assert_eq!(self.dbs[db].deadline_ms(slot), of_db.effective_ms(member));
            }
        }
        assert_eq!((groups.bytes, groups.sliding, &groups.owed), (bytes, sliding, &owed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::{Hasher, Value};

    /// What is loaded may have died long ago, and be given more time by what the log says behind it: its block says no more of such
    /// a deadline than that it is long past.
    #[test]
    fn a_member_whose_group_was_long_dead_follows_it_when_it_is_renewed() {
        let mut keyspace = Keyspace::new(1, Hasher::new(7, 1));
        let (hasher, now, of_log) = (keyspace.hasher().clone(), Now::from_ms(1_000_000), Now::from_ms(0));
        keyspace.insert(0, hasher.key(b"other"), Value::Int(1), Some(2_000_000), now);
        let member = hasher.key(b"member");
        keyspace.insert(0, member, Value::Int(1), None, now);
        let span = |deadline_ms| Span { epoch: 1, deadline_ms: Some(deadline_ms), ..Span::default() };
        keyspace.join_group(0, member, b"group", now);
        let deadline_ms = |keyspace: &Keyspace| {
            let slot = keyspace.dbs[0].find(member).expect("a member");
            keyspace.dbs[0].deadline_ms(slot)
        };
        keyspace.date_group(0, b"group", span(100_000), of_log);
        assert!(deadline_ms(&keyspace).is_some_and(|at_ms| (100_001..now.ms).contains(&at_ms)), "its block's base");
        keyspace.bound_by_groups(0, member, of_log);
        assert!(keyspace.is_dated_by_groups(0, member));
        for renewed_ms in [3_000_000, 4_000_000] {
            keyspace.date_group(0, b"group", span(renewed_ms), of_log);
            keyspace.bound_by_groups(0, member, of_log);
            assert_eq!(deadline_ms(&keyspace), Some(renewed_ms));
        }
        keyspace.effects.close_all();
    }

    /// Reads of one member of a large group had all members given another deadline each twentieth of the life, whatever that took.
    #[test]
    fn groups_of_many_members_are_renewed_less_often() {
        let span = Span { epoch: 1, deadline_ms: Some(100_000), life_ms: 100_000, is_sliding: true, ..Span::default() };
        // How long after the last renewal the next one is made.
        let rest_ms = |members| (0..100_000).find(|ms| span.is_worth_it(members, Now::from_ms(*ms)));
        assert_eq!([10, 10_000].map(rest_ms), [Some(5_001); 2], "a twentieth");
        assert_eq!(rest_ms(200_000), Some(12_001));
        assert_eq!(rest_ms(10_000_000), Some(25_001), "a quarter");
        // (Whether a shard renews it then is the same on all shards, whatever their members.)
        assert!(span.is_due(Now::from_ms(5_001)));
    }
}
