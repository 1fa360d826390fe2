//! What a change must tell the rooms above: an ordered queue that commands fill and the shard empties after each
//! command, so that `expired` comes before the `set` that found the dead key.
//!
//! Whatever changes a key opens it ([`Effects::open`]), and it stays open until somebody says what has changed
//! ([`Effects::close`], then [`Effects::record`]): a command at whose end a key is open has changed it and told nobody.

use super::advisor::Advisor;
use super::change::{Cause, Change, Event};
use super::groups::Groups;
use super::nodes::Was;
use super::open::Open;
use super::pins::Pins;
use super::said::{KeyName, Said};
use super::snapshot::{KeptBeside, Saving};
use super::tracking::{Invalidated, Tracker, Tracking};
use super::views::Views;
use super::watch::Watched;
use crate::config::NotifyFlags;
use crate::observe::GiveBack;
use crate::table::{Entry, Hasher, Key, Kind};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ptr::NonNull;

/// One keyspace notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub db: usize,
    pub event: Event,
    pub key: Box<[u8]>,
    /// The elements of the key that it is about, where somebody asks for them.
    pub elements: Names,
}

/// Names of fields or members.
pub type Names = Box<[Box<[u8]>]>;

impl Notice {
    /// Nobody has done it: time has.
    pub fn is_death(&self) -> bool {
        self.event == Event::Expired || self.event.is_death_of_elements()
    }
}

/// A key of a database for which clients wait.
struct Waited {
    db: usize,
    clients: usize,
    /// It stands among the ready ones.
    is_ready: bool,
}

/// Who wants to know of changes. Nothing is built that nobody asked for.
#[derive(Clone, Copy, Default)]
struct Sinks(u8);

impl Sinks {
    /// Somebody watches a key.
    const WATCHED: u8 = 1;
    /// Somebody waits for a key.
    const WAITED: u8 = 2;
    /// Some class of events is told.
    const EVENTS: u8 = 4;
    /// A journal is kept.
    const JOURNAL: u8 = 8;
    /// Somebody is remembered who has read a key, or wants to hear of all with a prefix.
    const TRACKED: u8 = 16;
    /// An advisor follows keys.
    const ADVISED: u8 = 32;

    fn set(&mut self, sink: u8, wants: bool) {
        self.0 = if wants { self.0 | sink } else { self.0 & !sink };
    }

    #[inline]
    fn has(self, sink: u8) -> bool {
        self.0 & sink != 0
    }
}

#[derive(Default)]
pub struct Effects {
    sinks: Sinks,
    /// The classes somebody asked for (`notify-keyspace-events`).
    pub(super) wanted: NotifyFlags,
    notices: Vec<Notice>,
    /// The elements that the events of the next change are about.
    named: Vec<(Event, Names)>,
    /// Keys whose changes a transaction wants to know of.
    watched: Watched,
    /// Keys for which clients wait, by database.
    waited: HashMap<Box<[u8]>, SmallVec<[Waited; 1]>>,
    /// Those among them that have changed, in the order in which they first did.
    ready: Vec<(usize, Box<[u8]>)>,
    /// Changes since the start, expiry included.
    pub dirty: u64,
    /// Dead fields and members that commands came upon, since the last CONFIG RESETSTAT.
    pub fields_expired: u64,
    /// Keys that were changed and of which nothing was recorded yet. (A release keeps none where no journal is kept.)
    open: Open,
    /// What the journal is told.
    pub said: Said,
    /// Who is told that what it has read has changed.
    tracking: Tracking,
    /// A snapshot that is made, which has to have what changes before it does.
    saving: Option<Box<Saving>>,
    /// Views that are kept of keys that begin alike.
    views: Option<Box<Views>>,
    /// A snapshot or a view is there that is told before anything changes. (Views that only count hear of what comes and goes.)
    is_asked_first: bool,
    /// Who follows keys, to say what other lifetimes would change.
    advisor: Option<Box<Advisor>>,
    /// There is one of the next two: something is kept of keys beside the tables.
    keeps_beside: bool,
    /// Groups of keys, which these leave when they go. None before the first.
    pub(super) groups: Option<Box<Groups>>,
    /// Keys that are never evicted. None before the first.
    pub(super) pins: Option<Box<Pins>>,
    /// Whose command runs, if it is one that tracks what it reads.
    pub writer: Option<Tracker>,
}

impl Effects {
    /// What a change of one key is, for everybody who wants to know.
    #[inline]
    pub fn record(&mut self, db: usize, key: &[u8], change: Change) {
        self.dirty += change.count;
        if self.has_sinks() {
            self.deliver_apart(db, key, change);
        }
    }

    #[inline(never)]
    fn deliver_apart(&mut self, db: usize, key: &[u8], change: Change) {
        self.deliver(db, key, change);
    }

    /// Whether anybody wants to know of any change.
    #[inline]
    pub(super) fn has_sinks(&self) -> bool {
        self.sinks.0 != 0
    }

    /// The part of [`Effects::record`] that is for those who want to know.
    #[inline]
    pub(super) fn deliver(&mut self, db: usize, key: &[u8], change: Change) {
        if change.is_seen && self.sinks.has(Sinks::TRACKED) {
            let writer = self.writer.filter(|_| change.cause == Cause::Command);
            self.tracking.changed(key, writer);
            if !self.tracking.is_wanted() {
                self.sinks.set(Sinks::TRACKED, false);
            }
        }
        // What commands do is shown to it by the keyspace, with what is there now.
        if self.sinks.has(Sinks::ADVISED)
            && change.cause != Cause::Command
            && let Some(advisor) = &mut self.advisor
        {
            advisor.gone(db, key, change);
        }
        if self.sinks.has(!(Sinks::TRACKED | Sinks::ADVISED)) {
            self.deliver_to_others(db, key, change);
        }
    }

    #[cold]
    #[inline(never)]
    fn deliver_to_others(&mut self, db: usize, key: &[u8], change: Change) {
        if change.is_seen {
            if self.sinks.has(Sinks::WATCHED) && change.cause != Cause::Expired {
                self.watched.changed(db, key);
            }
            if self.sinks.has(Sinks::WAITED) {
                self.ready(db, key);
            }
        }
        if self.sinks.has(Sinks::JOURNAL) && change.is_said {
            match change.cause {
                Cause::Command => self.said.changed(db, key),
                // Whoever takes dead elements out knows their names, and says them.
                Cause::Expired if change.events().all(Event::is_death_of_elements) => {}
                Cause::Expired | Cause::Evicted => self.said.died(db, key),
            }
        }
        if self.sinks.has(Sinks::EVENTS) {
            change.events().for_each(|event| self.tell(event, db, key));
            self.named.clear();
        }
    }

    /// Whether a journal is kept of all changes.
    #[inline]
    pub fn is_journaled(&self) -> bool {
        self.sinks.has(Sinks::JOURNAL)
    }

    /// A connection has read a key: see [`Tracking::remember`].
    pub fn remember(&mut self, key: &[u8], by: Tracker, max_keys: usize, rng: &mut fastrand::Rng) {
        self.sinks.set(Sinks::TRACKED, true);
        self.tracking.remember(key, by, max_keys, rng);
    }

    /// A connection wants to hear of all keys that begin so.
    pub fn listen(&mut self, prefix: &[u8], by: Tracker) {
        self.sinks.set(Sinks::TRACKED, true);
        self.tracking.listen(prefix, by);
    }

    pub fn stop_listening(&mut self, prefix: &[u8], client: u64) {
        self.tracking.stop_listening(prefix, client);
        self.sinks.set(Sinks::TRACKED, self.tracking.is_wanted());
    }

    /// A database was emptied, or has another place.
    pub(super) fn flushed(&mut self) {
        self.void_saving();
        self.tracking.flushed();
        self.sinks.set(Sinks::TRACKED, self.tracking.is_wanted());
    }

    #[inline]
    pub fn has_invalidated(&self) -> bool {
        self.tracking.has_news()
    }

    pub fn take_invalidated(&mut self) -> Invalidated {
        self.tracking.take()
    }

    /// See [`Tracking::count_transient`].
    pub fn count_transient(&mut self) {
        self.tracking.count_transient();
    }

    /// See [`Tracking::counts`].
    pub fn tracking_counts(&self) -> [usize; 3] {
        self.tracking.counts()
    }

    /// To be called between commands.
    pub fn set_journaled(&mut self, wants: bool) {
        self.sinks.set(Sinks::JOURNAL, wants);
        self.said = Said::default();
    }

    /// An event that is no change: a key was missing, or is new.
    #[inline]
    pub fn tell(&mut self, event: Event, db: usize, key: &[u8]) {
        if self.wanted.contains(event.class()) {
            let named = self.named.iter().position(|(of, _)| *of == event);
            let elements = named.map_or_else(Box::default, |index| self.named.swap_remove(index).1);
            self.notices.push(Notice { db, event, key: key.into(), elements });
        }
    }

    /// Whether somebody asks which elements such an event is about.
    #[inline]
    pub fn wants_elements(&self, event: Event) -> bool {
        self.wanted.has_any_of(NotifyFlags::SUBKEYS) && self.wanted.contains(event.class())
    }

    /// The change that is recorded next is, in this event, about these elements. Where there are any, there is a change.
    #[inline]
    pub fn name_elements<T: AsRef<[u8]>>(&mut self, event: Event, names: impl IntoIterator<Item = T>) {
        if self.wants_elements(event) {
            let names: Names = names.into_iter().map(|name| name.as_ref().into()).collect();
            if !names.is_empty() {
                self.named.push((event, names));
            }
        }
    }

    /// Whether anybody asks for what [`Effects::overwritten`] tells.
    #[inline]
    pub(super) fn tells_overwritten(&self) -> bool {
        self.wanted.has_any_of(NotifyFlags::OVERWRITTEN | NotifyFlags::TYPE_CHANGED)
    }

    /// A value of one type is about to be put in the place of one of the other: told before the command says what it is.
    #[cold]
    pub fn overwritten(&mut self, db: usize, key: &[u8], old: Kind, new: Kind) {
        self.tell(Event::Overwritten, db, key);
        if old != new {
            self.tell(Event::TypeChanged, db, key);
        }
    }

    /// Sets the classes of events that are told from now on.
    pub fn set_wanted(&mut self, wanted: NotifyFlags) {
        self.wanted = wanted;
        self.sinks.set(Sinks::EVENTS, !wanted.is_empty());
    }

    /// A key was changed, and it has to be said what the change was.
    #[inline(always)]
    pub(super) fn open<'k>(&mut self, db: usize, hash: u64, key: impl FnOnce() -> &'k [u8]) {
        if self.knows_open() {
            self.open.add(db, hash, key());
        }
    }

    #[inline]
    fn knows_open(&self) -> bool {
        cfg!(debug_assertions) || self.is_journaled()
    }

    /// A key is about to go that is dead by this deadline: groups that die with it count it.
    #[inline]
    pub(super) fn dies_in_groups(&mut self, db: usize, key: &[u8], deadline_ms: u64) {
        if let Some(groups) = &mut self.groups {
            groups.count_death(db, key, deadline_ms);
        }
    }

    /// A key is about to go: it is in no group any more, and not pinned.
    #[inline]
    pub(super) fn departs(&mut self, db: usize, key: &[u8]) {
        if self.keeps_beside {
            self.forget(db, key);
        }
    }

    #[inline(never)]
    fn forget(&mut self, db: usize, key: &[u8]) {
        if let Some(groups) = &mut self.groups {
            groups.leave(db, key);
        }
        if let Some(pins) = &mut self.pins {
            pins.leave(db, key);
        }
    }

    /// The groups, of which there are going to be some.
    pub(super) fn groups_to_keep(&mut self, new: impl FnOnce() -> Box<Groups>) -> &mut Groups {
        self.keeps_beside = true;
        self.groups.get_or_insert_with(new)
    }

    /// The pins, likewise.
    pub(super) fn pins_to_keep(&mut self, databases: usize) -> &mut Pins {
        self.keeps_beside = true;
        self.pins.get_or_insert_with(|| Box::new(Pins::new(databases)))
    }

    /// A key is about to change, or to come: a snapshot that is made has it as it is, and views take it off.
    #[inline(always)]
    pub(super) fn save_first<'k>(
        &mut self,
        db: usize,
        hash: u64,
        key: impl FnOnce() -> &'k [u8],
        was: impl FnOnce() -> Option<Was<'k>>,
    ) {
        if self.is_asked_first {
            let key = key();
            let is_viewed = self.has_view_of(db, key);
            if is_viewed || self.saving.is_some() {
                self.before_change(db, hash, key, was(), is_viewed);
            }
        }
    }

    /// A key has come: it is no part of a snapshot that is made, and counts from now on.
    #[inline(always)]
    pub(super) fn comes_first(&mut self, db: usize, key: Key) {
        if self.is_asked_first || self.views.is_some() {
            self.comes_before(db, key);
        }
    }

    #[cold]
    #[inline(never)]
    fn comes_before(&mut self, db: usize, key: Key) {
        if let Some(views) = &mut self.views
            && views.concern(db, key.bytes)
        {
            views.comes(db, key);
        }
        if let Some(saving) = &mut self.saving {
            let beside = KeptBeside { pins: self.pins.as_deref(), groups: self.groups.as_deref() };
            saving.before_change(db, key.hash, key.bytes, None, beside);
        }
    }

    /// A key is about to be taken out, which was said to [`Effects::save_first`] already.
    #[inline(always)]
    pub(super) fn goes_first<'k>(&mut self, db: usize, key: impl FnOnce() -> Key<'k>) {
        if self.views.is_some() {
            self.goes_from_views(db, key());
        }
    }

    #[cold]
    #[inline(never)]
    fn goes_from_views(&mut self, db: usize, key: Key) {
        if let Some(views) = &mut self.views
            && views.concern(db, key.bytes)
        {
            // (Views of more than counts have it noted as changed already.)
            views.before(db, key.hash, key.bytes, Some(0), false);
        }
    }

    /// Whether a view is kept that a key with this name belongs to.
    #[inline]
    fn has_view_of(&self, db: usize, key: &[u8]) -> bool {
        self.views.as_ref().is_some_and(|views| views.concern(db, key))
    }

    #[cold]
    #[inline(never)]
    fn before_change(&mut self, db: usize, hash: u64, key: &[u8], was: Option<Was>, is_viewed: bool) {
        if is_viewed && let Some(views) = &mut self.views {
            views.before(db, hash, key, was.as_ref().map(|was| was.bytes), true);
        }
        if let Some(saving) = &mut self.saving {
            let beside = KeptBeside { pins: self.pins.as_deref(), groups: self.groups.as_deref() };
            saving.before_change(db, hash, key, was.map(|was| (was.content, was.deadline_ms)), beside);
        }
    }

    /// A key is about to be taken out since it is dead. A snapshot has it all the same: what the log and replicas hear behind
    /// the snapshot's moment may have read the key.
    #[inline]
    pub(super) fn dies(
        &mut self,
        db: usize,
        (entry, deadline_ms): (Entry, Option<u64>),
        hasher: &Hasher,
        bytes: impl FnOnce() -> usize,
    ) {
        if self.is_asked_first || self.views.is_some() {
            let was = Was { content: entry.content(), deadline_ms, bytes: bytes() };
            self.before_death(db, entry.key(), hasher, was, false);
        }
    }

    /// Dead elements of a key are about to be taken out, which a snapshot has likewise.
    #[inline]
    pub(super) fn shrinks(&mut self, db: usize, entry: Entry, hasher: &Hasher, bytes: impl FnOnce() -> usize) {
        if self.is_asked_first {
            let was = Was { content: entry.content(), deadline_ms: entry.far_deadline_ms(), bytes: bytes() };
            self.before_death(db, entry.key(), hasher, was, true);
        }
    }

    #[cold]
    fn before_death(&mut self, db: usize, key: &[u8], hasher: &Hasher, was: Was, stays: bool) {
        let hash = hasher.hash(key);
        if let Some(views) = &mut self.views
            && views.concern(db, key)
        {
            views.before(db, hash, key, Some(was.bytes), stays);
        }
        if let Some(saving) = &mut self.saving {
            let pins = self.pins.as_deref().filter(|_| stays);
            let beside = KeptBeside { pins, groups: self.groups.as_deref() };
            saving.before_change(db, hash, key, Some((was.content, was.deadline_ms)), beside);
        }
    }

    /// A policy is about to give a key a deadline, which is nothing to snapshots.
    #[inline]
    pub(super) fn is_dated(&mut self, db: usize, entry: Entry, hasher: &Hasher, bytes: impl FnOnce() -> usize) {
        if self.is_asked_first
            && let Some(views) = &mut self.views
            && views.concern(db, entry.key())
        {
            views.before(db, hasher.hash(entry.key()), entry.key(), Some(bytes()), true);
        }
    }

    /// Begins a snapshot, or goes on with one that was taken out.
    pub(super) fn set_saving(&mut self, saving: Box<Saving>) {
        self.saving = Some(saving);
        self.renew_asked_first();
    }

    pub(super) fn saving(&self) -> Option<&Saving> {
        self.saving.as_deref()
    }

    pub(super) fn take_saving(&mut self) -> Option<Box<Saving>> {
        let saving = self.saving.take();
        self.renew_asked_first();
        saving
    }

    pub(super) fn void_saving(&mut self) {
        self.saving.iter_mut().for_each(|saving| saving.void());
        self.end_moment();
    }

    /// Groups are what they are again, and not what they were at the moment of a snapshot.
    pub(super) fn end_moment(&mut self) {
        self.groups.iter_mut().for_each(|groups| groups.end_saving());
    }

    pub(super) fn views(&self) -> Option<&Views> {
        self.views.as_deref()
    }

    pub(super) fn views_mut(&mut self) -> Option<&mut Views> {
        self.views.as_deref_mut()
    }

    /// The views, of which there are going to be some. What they are of is different behind `change`.
    pub(super) fn change_views(&mut self, change: impl FnOnce(&mut Views)) {
        change(self.views.get_or_insert_default());
        self.views = self.views.take().filter(|views| !views.is_empty());
        self.renew_asked_first();
    }

    fn renew_asked_first(&mut self) {
        self.is_asked_first = self.saving.is_some() || self.views.as_ref().is_some_and(|views| !views.only_count());
    }

    /// For as long as nothing changes.
    pub(super) fn take_views(&mut self) -> Option<Box<Views>> {
        self.views.take()
    }

    pub(super) fn put_views_back(&mut self, views: Box<Views>) {
        self.views = Some(views);
    }

    /// Whether views are kept, which may have changed.
    #[inline]
    pub fn has_views(&self) -> bool {
        self.views.is_some()
    }

    #[inline]
    pub(super) fn is_advised(&self) -> bool {
        self.sinks.has(Sinks::ADVISED)
    }

    pub(super) fn advisor(&self) -> Option<&Advisor> {
        self.advisor.as_deref()
    }

    pub(super) fn advisor_mut(&mut self) -> Option<&mut Advisor> {
        self.advisor.as_deref_mut()
    }

    pub(super) fn put_advisor(&mut self, advisor: Box<Advisor>) {
        self.advisor = Some(advisor);
        self.sinks.set(Sinks::ADVISED, true);
    }

    pub(super) fn take_advisor(&mut self) -> Option<Box<Advisor>> {
        self.sinks.set(Sinks::ADVISED, false);
        self.advisor.take()
    }

    /// A collection is about to be taken elsewhere, where nobody can show it to a snapshot.
    pub(super) fn leaves(&mut self, node: NonNull<u8>) {
        if let Some(saving) = &mut self.saving {
            saving.before_leaving(node);
        }
    }

    /// It is going to be said now, or what was done to the key changed nothing.
    #[inline(always)]
    pub fn close(&mut self, db: usize, hash: u64) {
        if self.knows_open() {
            self.open.remove(db, hash);
        }
    }

    /// A command has failed. Those that fail have changed nothing that anybody can see, though an edit may have begun.
    #[inline]
    pub fn close_all(&mut self) {
        self.named.clear();
        if self.knows_open() {
            self.open.clear();
        }
    }

    /// Whether of every change something was said.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.open.is_empty()
    }

    /// Keys that were changed and of which nothing was said, which is a defect.
    #[cold]
    pub fn take_open(&mut self) -> Vec<KeyName> {
        self.open.take()
    }

    /// One more watches a key; returns the number of its last change.
    pub(super) fn watch(&mut self, db: usize, key: &[u8]) -> u64 {
        self.sinks.set(Sinks::WATCHED, true);
        self.watched.add(db, key)
    }

    pub(super) fn unwatch(&mut self, db: usize, key: &[u8]) {
        self.watched.remove(db, key);
        self.sinks.set(Sinks::WATCHED, !self.watched.is_empty());
    }

    /// How many keys are watched.
    pub fn watched_keys(&self) -> usize {
        self.watched.len()
    }

    /// The number of a watched key's last change.
    pub(super) fn version(&self, db: usize, key: &[u8]) -> Option<u64> {
        self.watched.version(db, key)
    }

    /// There may be something for those who wait for a key.
    #[cold]
    pub fn ready(&mut self, db: usize, key: &[u8]) {
        let found = self.waited.get_mut(key).and_then(|of_key| of_key.iter_mut().find(|waited| waited.db == db));
        if let Some(waited) = found.filter(|waited| !waited.is_ready) {
            waited.is_ready = true;
            self.ready.push((db, key.into()));
        }
    }

    /// One more client waits for a key.
    pub fn wait_for(&mut self, db: usize, key: &[u8]) {
        self.sinks.set(Sinks::WAITED, true);
        let of_key = self.waited.entry(key.into()).or_default();
        match of_key.iter_mut().find(|waited| waited.db == db) {
            Some(waited) => waited.clients += 1,
            None => of_key.push(Waited { db, clients: 1, is_ready: false }),
        }
    }

    pub fn wait_no_more(&mut self, db: usize, key: &[u8]) {
        let Some(of_key) = self.waited.get_mut(key) else { return };
        of_key.iter_mut().filter(|waited| waited.db == db).for_each(|waited| waited.clients -= 1);
        of_key.retain(|waited| waited.clients > 0);
        if of_key.is_empty() {
            self.waited.remove(key);
            self.waited.give_back();
            self.sinks.set(Sinks::WAITED, !self.waited.is_empty());
        }
    }

    pub fn take_ready(&mut self) -> Vec<(usize, Box<[u8]>)> {
        for (db, key) in &self.ready {
            let of_key = self.waited.get_mut(key).into_iter().flatten();
            of_key.filter(|waited| waited.db == *db).for_each(|waited| waited.is_ready = false);
        }
        std::mem::take(&mut self.ready)
    }

    /// The keys of a database that somebody watches or waits for.
    pub(super) fn awaited_in(&self, db: usize) -> Vec<Box<[u8]>> {
        let waited = self.waited.iter().filter(|(_, of_key)| of_key.iter().any(|waited| waited.db == db));
        self.watched.of_db(db).into_iter().chain(waited.map(|(key, _)| key.clone())).collect()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.notices.is_empty()
    }

    pub fn take(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Notices so far: what follows can be told later, or never.
    pub fn mark(&self) -> usize {
        self.notices.len()
    }

    pub fn take_from(&mut self, mark: usize) -> Vec<Notice> {
        self.notices.split_off(mark.min(self.notices.len()))
    }

    /// Notices that were kept are told now.
    pub fn tell_kept(&mut self, mut notices: Vec<Notice>) {
        self.notices.append(&mut notices);
    }
}
