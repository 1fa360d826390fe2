//! Materialized views of this shard's keys, which live queries (LIVE) show: how many keys begin alike, their bytes, their
//! names, and which of them die next.
//!
//! A view is made by one pass over the database, in slices, in the order of positions, which no split or merge changes.
//! Every change of a key begins with [`Effects::save_first`] or one of its kin, before anything is changed. There the key's
//! share is taken off, unless the pass has yet to come to the key, and the key's name is noted. When the views are asked
//! ([`Keyspace::take_views`]), before the pass goes on, and where many names were noted, each is looked up again and gets
//! its share of what is there now. So it does not matter how often, nor by what, a key was changed in between; and what
//! came and went in between was never there. (Where no view shows more than numbers and names of keys, they hear of keys that come or
//! go, and add up at once.)
//!
//! What is dead counts until it is deleted. Names of keys that are dead are not shown.
//!
//! Nothing here grows without a bound: a view keeps a few names, and past [`TOUCHED_MAX`] noted names the views of the
//! database begin anew instead.

mod sums;

use super::Keyspace;
use crate::clock::Now;
use crate::table::block::NEVER_MS;
use crate::table::hash::{Key, spread};
use ahash::RandomState;
use indexmap::IndexMap;
use std::collections::{BTreeMap, HashMap};
use sums::{Share, Sums};

/// Past so many noted names it is cheaper to begin anew, and they would take too much memory.
const TOUCHED_MAX: usize = 100_000;
/// From so many noted names on they are looked up without anybody having asked.
const TOUCHED_FEW: usize = 1_000;
/// Room for so many is kept.
const TOUCHED_KEPT: usize = 4 * TOUCHED_FEW;

/// What a view shows of the keys that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Aspect {
    Count,
    /// As MEMORY USAGE counts them.
    Bytes,
    /// The names of so many of them, whichever.
    Names(usize),
    /// So many of those that die next.
    Next(usize),
}

impl Aspect {
    /// Whether it is all the same to it what becomes of a key that stays.
    fn only_counts(self) -> bool {
        matches!(self, Aspect::Count | Aspect::Names(_))
    }

    /// How many names are shown at the most.
    pub fn names(self) -> usize {
        match self {
            Aspect::Count | Aspect::Bytes => 0,
            Aspect::Names(names) | Aspect::Next(names) => names,
        }
    }
}

/// What a view is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ViewOf {
    pub db: usize,
    pub prefix: Box<[u8]>,
    pub aspect: Aspect,
}

/// What a view shows of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The first pass is over. Before that nothing else means anything.
    pub is_ready: bool,
    pub keys: u64,
    pub bytes: u64,
    pub names: Vec<Box<[u8]>>,
    /// Names with their deadlines, store milliseconds, the earliest first.
    pub next: Vec<(u64, Box<[u8]>)>,
}

struct View {
    id: u64,
    aspect: Aspect,
    /// None before the first pass is over.
    now: Option<Sums>,
    /// What the pass that is under way has found so far.
    pass: Option<Sums>,
    /// It is among the changed ones.
    is_changed: bool,
    /// When it was looked at, it had a name that it did not show, since that key is dead and not deleted: it may live again, as
    /// with a replica that hears late that its primary has given it more time.
    hides: bool,
}

impl View {
    fn new(id: u64, aspect: Aspect) -> View {
        View { id, aspect, now: None, pass: None, is_changed: false, hides: false }
    }

    /// Whether it matters to it what becomes of a key that stays.
    fn is_beyond_counts(&self) -> bool {
        !self.aspect.only_counts() || self.hides
    }

    /// Whoever keeps a share of a key that is seen so far.
    fn sums(&mut self, is_passed: bool) -> impl Iterator<Item = &mut Sums> {
        self.now.iter_mut().chain(self.pass.iter_mut().filter(move |_| is_passed))
    }

    /// Whether it has names to look for, since those that it knew are gone.
    fn lacks_names(&self) -> bool {
        self.pass.is_none() && self.now.as_ref().is_some_and(Sums::lacks_names)
    }
}

/// The views of one database.
#[derive(Default)]
struct OfDb {
    prefixes: IndexMap<Box<[u8]>, Vec<View>, RandomState>,
    /// How many prefixes have a length: those of a key are looked up by it.
    lengths: BTreeMap<usize, usize>,
    /// Keys that were changed and have no share at the moment, with their hashes.
    touched: HashMap<Box<[u8]>, u64, RandomState>,
    /// The position to which the pass has come that is under way.
    pass: Option<u64>,
    /// More was changed than could be noted: all views begin anew.
    is_lost: bool,
}

impl OfDb {
    /// The views of the prefixes of a key.
    fn of_key(&mut self, key: &[u8], mut each: impl FnMut(&mut View)) {
        let OfDb { prefixes, lengths, .. } = self;
        for len in lengths.range(..=key.len()).map(|(len, _)| *len) {
            if let Some(views) = prefixes.get_mut(&key[..len]) {
                views.iter_mut().for_each(&mut each);
            }
        }
    }

    fn has_prefix_of(&self, key: &[u8]) -> bool {
        self.lengths.range(..=key.len()).any(|(len, _)| self.prefixes.contains_key(&key[..*len]))
    }

    fn views_mut(&mut self) -> impl Iterator<Item = &mut View> {
        self.prefixes.values_mut().flatten()
    }

    fn is_passed(&self, hash: u64) -> bool {
        self.pass.is_some_and(|position| spread(hash) < position)
    }

    /// All views are to be made again; what they have shown means nothing.
    fn begin_anew(&mut self) {
        self.touched = HashMap::default();
        self.pass = None;
        self.views_mut().for_each(|view| (view.now, view.pass) = (None, None));
    }
}

/// How many prefixes begin with each byte, and how many are empty. Most keys are no view's, and this tells it of most of them.
struct FirstBytes {
    counts: [u32; 256],
    empty: u32,
}

impl Default for FirstBytes {
    fn default() -> FirstBytes {
        FirstBytes { counts: [0; 256], empty: 0 }
    }
}

impl FirstBytes {
    fn of(&mut self, prefix: &[u8]) -> &mut u32 {
        match prefix.first() {
            Some(first) => &mut self.counts[usize::from(*first)],
            None => &mut self.empty,
        }
    }

    #[inline]
    fn may_begin(&self, key: &[u8]) -> bool {
        self.empty > 0 || key.first().is_some_and(|first| self.counts[usize::from(*first)] > 0)
    }
}

/// All views of a shard.
#[derive(Default)]
pub struct Views {
    dbs: BTreeMap<usize, OfDb>,
    first_bytes: FirstBytes,
    /// Where each view is.
    places: HashMap<u64, (usize, Box<[u8]>), RandomState>,
    changed: Vec<u64>,
    /// Something is different since the views were asked last, and whether somebody was told to ask.
    has_news: bool,
    is_told: bool,
    /// Some view has to be made anew, or looks for names.
    wants_pass: bool,
    /// Some database has noted many names.
    has_many: bool,
    /// To how many views it matters what becomes of a key that stays.
    beyond_counts: usize,
}

impl Views {
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether it is all the same to them what becomes of a key that stays.
    pub(super) fn only_count(&self) -> bool {
        self.beyond_counts == 0
    }

    fn keep(&mut self, id: u64, ViewOf { db, prefix, aspect }: ViewOf) {
        let of = self.dbs.entry(db).or_default();
        if !of.prefixes.contains_key(&prefix) {
            *of.lengths.entry(prefix.len()).or_default() += 1;
            *self.first_bytes.of(&prefix) += 1;
        }
        of.prefixes.entry(prefix.clone()).or_default().push(View::new(id, aspect));
        self.places.insert(id, (db, prefix));
        self.beyond_counts += usize::from(!aspect.only_counts());
        self.wants_pass = true;
    }

    fn drop(&mut self, id: u64) {
        let Some((db, prefix)) = self.places.remove(&id) else { return };
        let Some(of) = self.dbs.get_mut(&db) else { return };
        let Some(of_prefix) = of.prefixes.get_mut(&prefix) else { return };
        let beyond_counts = |views: &[View]| views.iter().filter(|view| view.is_beyond_counts()).count();
        let before = beyond_counts(of_prefix);
        of_prefix.retain(|view| view.id != id);
        self.beyond_counts -= before - beyond_counts(of_prefix);
        if of_prefix.is_empty() {
            of.prefixes.swap_remove(&prefix);
            *self.first_bytes.of(&prefix) -= 1;
            if let Some(count) = of.lengths.get_mut(&prefix.len()) {
                *count -= 1;
                if *count == 0 {
                    of.lengths.remove(&prefix.len());
                }
            }
        }
        if of.prefixes.is_empty() {
            self.dbs.remove(&db);
        }
    }

    /// A view was looked at, and has hidden a name or not.
    fn note_hiding(&mut self, id: u64, hides: bool) {
        let Some((db, prefix)) = self.places.get(&id) else { return };
        let of_prefix = self.dbs.get_mut(db).and_then(|of| of.prefixes.get_mut(prefix));
        let Some(view) = of_prefix.into_iter().flatten().find(|view| view.id == id) else { return };
        let before = view.is_beyond_counts();
        view.hides = hides;
        self.beyond_counts = self.beyond_counts + usize::from(view.is_beyond_counts()) - usize::from(before);
    }

    /// Whether a key with this name is some view's.
    #[inline]
    pub(super) fn concern(&self, db: usize, key: &[u8]) -> bool {
        self.first_bytes.may_begin(key) && self.have_prefix_of(db, key)
    }

    #[inline(never)]
    fn have_prefix_of(&self, db: usize, key: &[u8]) -> bool {
        self.dbs.get(&db).is_some_and(|of| of.has_prefix_of(key))
    }

    /// A key that concerns views is about to change, to come or to go; `was_bytes` is what it takes, if it is there. One that does not `stay`
    /// goes for certain, before anybody asks.
    pub(super) fn before(&mut self, db: usize, hash: u64, key: &[u8], was_bytes: Option<usize>, stays: bool) {
        let Some(of) = self.dbs.get_mut(&db) else { return };
        if of.is_lost || of.touched.contains_key(key) {
            return;
        }
        self.has_news = true;
        if stays && of.touched.len() == TOUCHED_MAX {
            of.begin_anew();
            of.is_lost = true;
            self.wants_pass = true;
            return;
        }
        if let Some(bytes) = was_bytes {
            let (is_passed, changed) = (of.is_passed(hash), &mut self.changed);
            of.of_key(key, |view| {
                view.sums(is_passed).for_each(|sums| sums.take_off(key, bytes as u64));
                note_changed(changed, view);
            });
        }
        if stays {
            of.touched.insert(key.into(), hash);
            self.has_many |= of.touched.len() >= TOUCHED_FEW;
        }
    }

    /// A key that concerns views has come. Those for which that is all need not look it up again.
    pub(super) fn comes(&mut self, db: usize, key: Key) {
        if !self.only_count() {
            return self.before(db, key.hash, key.bytes, None, true);
        }
        if self.dbs.get(&db).is_some_and(|of| !of.is_lost && !of.touched.contains_key(key.bytes)) {
            self.has_news = true;
            self.add(db, key.hash, Share { key: key.bytes, bytes: 0, deadline_ms: None });
        }
    }

    fn add(&mut self, db: usize, hash: u64, share: Share) {
        let Some(of) = self.dbs.get_mut(&db) else { return };
        let (is_passed, changed) = (of.is_passed(hash), &mut self.changed);
        of.of_key(share.key, |view| {
            view.sums(is_passed).for_each(|sums| sums.add(&share));
            note_changed(changed, view);
        });
    }

    /// A database was emptied: there is nothing that a pass would find.
    pub(super) fn flushed(&mut self, db: usize) {
        let Some(of) = self.dbs.get_mut(&db) else { return };
        of.begin_anew();
        of.is_lost = false;
        let changed = &mut self.changed;
        of.views_mut().for_each(|view| {
            view.now = Some(Sums::new(view.aspect));
            note_changed(changed, view);
        });
        self.has_news = true;
    }

    /// A database has other keys now.
    pub(super) fn swapped(&mut self, db: usize) {
        let Some(of) = self.dbs.get_mut(&db) else { return };
        of.begin_anew();
        of.is_lost = false;
        let changed = &mut self.changed;
        of.views_mut().for_each(|view| note_changed(changed, view));
        (self.has_news, self.wants_pass) = (true, true);
    }
}

fn note_changed(changed: &mut Vec<u64>, view: &mut View) {
    if !view.is_changed {
        view.is_changed = true;
        changed.push(view.id);
    }
}

/// What is to be done about views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewNews {
    /// They are different, and whoever shows them should ask.
    pub have_changed: bool,
    /// A pass is to be made.
    pub want_pass: bool,
}

/// Which passes there are to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Somebody waits for it.
    Urgent,
    /// It only looks for names to show.
    ForNames,
}

impl Keyspace {
    /// Keeps a view from now on, which has to have its pass ([`Keyspace::begin_pass`]).
    pub fn keep_view(&mut self, id: u64, of: ViewOf) {
        self.effects.change_views(|views| views.keep(id, of));
    }

    pub fn drop_view(&mut self, id: u64) {
        self.effects.change_views(|views| views.drop(id));
    }

    /// How many views there are.
    pub fn views(&self) -> usize {
        self.effects.views().map_or(0, |views| views.places.len())
    }

    /// What is to be done about views. To be asked between commands; that they have changed is said once, until they are
    /// asked.
    pub fn take_view_news(&mut self) -> ViewNews {
        self.look_up_touched(TOUCHED_FEW);
        let Some(views) = self.effects.views_mut() else { return ViewNews::default() };
        let have_changed = views.has_news && !std::mem::replace(&mut views.is_told, views.has_news);
        ViewNews { have_changed, want_pass: std::mem::take(&mut views.wants_pass) }
    }

    /// Looks noted names up, of databases that have so many.
    fn look_up_touched(&mut self, count_min: usize) {
        let Keyspace { dbs, nodes, effects, .. } = self;
        let Some(views) = effects.views_mut() else { return };
        if count_min > 0 && !std::mem::take(&mut views.has_many) {
            return;
        }
        let many = views.dbs.iter_mut().filter(|(_, of)| !of.touched.is_empty() && of.touched.len() >= count_min);
        let touched: Vec<_> = many.map(|(db, of)| (*db, std::mem::take(&mut of.touched))).collect();
        for (db, mut touched) in touched {
            for (key, hash) in touched.drain() {
                let table = &dbs[db];
                if let Some(slot) = table.find(Key { bytes: &key, hash }) {
                    let entry = table.entry(slot);
                    let (bytes, deadline_ms) = (nodes.bytes_of_key(entry) as u64, table.deadline_ms(slot));
                    views.add(db, hash, Share { key: &key, bytes, deadline_ms });
                }
            }
            // The next names find the room that these had, if that is not much.
            if touched.capacity() <= TOUCHED_KEPT
                && let Some(of) = views.dbs.get_mut(&db)
            {
                of.touched = touched;
            }
        }
    }

    /// Which passes there are to be made.
    pub fn wanted_pass(&self) -> Option<Pass> {
        let views = self.effects.views()?;
        let all = || views.dbs.values().flat_map(|of| of.prefixes.values()).flatten();
        if all().any(|view| view.now.is_none()) {
            return Some(Pass::Urgent);
        }
        all().any(View::lacks_names).then_some(Pass::ForNames)
    }

    /// Begins a pass over a database for all its views that want one; [`Keyspace::go_on_with_pass`] follows. Returns the
    /// database, if there is any.
    pub fn begin_pass(&mut self) -> Option<usize> {
        let views = self.effects.views_mut()?;
        let wants = |view: &View| view.now.is_none() || view.lacks_names();
        let (db, of) = views.dbs.iter_mut().find(|(_, of)| of.prefixes.values().flatten().any(wants))?;
        of.is_lost = false;
        of.pass = Some(0);
        of.views_mut().filter(|view| wants(view)).for_each(|view| view.pass = Some(Sums::new(view.aspect)));
        Some(*db)
    }

    /// Goes on with the pass over a database, as long as `goes_on` says, a block at the least; whether there is more of it.
    pub fn go_on_with_pass(&mut self, db: usize, mut goes_on: impl FnMut() -> bool) -> bool {
        self.look_up_touched(0);
        let Some(mut views) = self.effects.take_views() else { return false };
        let mut is_more = false;
        if let Some(of) = views.dbs.get_mut(&db) {
            while let Some(position) = of.pass {
                let table = &self.dbs[db];
                let next = table.walk(position, NEVER_MS, |block, slot| {
                    let entry = block.entry(slot);
                    let key = entry.key();
                    if of.has_prefix_of(key) {
                        let bytes = self.nodes.bytes_of_key(entry) as u64;
                        let share = Share { key, bytes, deadline_ms: block.deadline_ms(slot) };
                        of.of_key(key, |view| view.pass.iter_mut().for_each(|sums| sums.add(&share)));
                    }
                });
                of.pass = next;
                is_more = next.is_some();
                if is_more && !goes_on() {
                    break;
                }
            }
            if !is_more {
                let changed = &mut views.changed;
                for view in of.views_mut().filter(|view| view.pass.is_some()) {
                    view.now = view.pass.take();
                    note_changed(changed, view);
                }
                views.has_news = true;
            }
        }
        self.effects.put_views_back(views);
        is_more
    }

    /// What these views show. That they have changed is still to be asked.
    pub fn look_at_views(&mut self, these: &[u64], now: Now) -> Vec<(u64, Shown)> {
        self.look_up_touched(0);
        let Some(views) = self.effects.views() else { return Vec::new() };
        let shown = |id: &u64| {
            let (db, prefix) = views.places.get(id)?;
            let view = views.dbs.get(db)?.prefixes.get(prefix)?.iter().find(|view| view.id == *id)?;
            Some((*id, self.shown(view, *db, now)))
        };
        let all: Vec<(u64, (Shown, bool))> = these.iter().filter_map(shown).collect();
        self.note_hiding(&all);
        all.into_iter().map(|(id, (shown, _))| (id, shown)).collect()
    }

    fn note_hiding(&mut self, all: &[(u64, (Shown, bool))]) {
        if !all.is_empty() {
            self.effects.change_views(|views| all.iter().for_each(|(id, (_, hides))| views.note_hiding(*id, *hides)));
        }
    }

    /// What those views show that have changed since this was asked, and these, whether they have or not.
    pub fn take_views(&mut self, these: &[u64], now: Now) -> Vec<(u64, Shown)> {
        self.look_up_touched(0);
        let Some(mut views) = self.effects.take_views() else { return Vec::new() };
        let mut ids = std::mem::take(&mut views.changed);
        ids.extend(these);
        ids.sort_unstable();
        ids.dedup();
        let mut all = Vec::with_capacity(ids.len());
        for id in ids {
            let Some((db, prefix)) = views.places.get(&id) else { continue };
            let of = views.dbs.get_mut(db).and_then(|of| of.prefixes.get_mut(prefix));
            let Some(view) = of.into_iter().flatten().find(|view| view.id == id) else { continue };
            view.is_changed = false;
            views.wants_pass |= view.lacks_names();
            all.push((id, self.shown(view, *db, now)));
        }
        (views.has_news, views.is_told) = (false, false);
        self.effects.put_views_back(views);
        self.note_hiding(&all);
        all.into_iter().map(|(id, (shown, _))| (id, shown)).collect()
    }

    /// What a view shows, and whether it hides a name.
    fn shown(&self, view: &View, db: usize, now: Now) -> (Shown, bool) {
        let Some(sums) = &view.now else { return (Shown::default(), view.hides) };
        let table = &self.dbs[db];
        let lives = |key: &[u8]| {
            let slot = table.find(self.hasher.key(key));
            slot.is_some_and(|slot| !table.is_dead(slot, now.ms))
        };
        let mut hides = false;
        let mut shown = Shown { is_ready: true, keys: sums.keys, bytes: sums.bytes, ..Shown::default() };
        match view.aspect {
            Aspect::Count | Aspect::Bytes => {}
            Aspect::Names(most) => {
                let shows = |key: &&[u8]| {
                    let lives = lives(key);
                    hides |= !lives;
                    lives
                };
                shown.names = sums.names().filter(shows).take(most).map(Box::from).collect();
            }
            Aspect::Next(most) => {
                let next = sums.next().filter(|(_, key)| lives(key)).take(most);
                shown.next = next.map(|(deadline_ms, key)| (deadline_ms, key.into())).collect();
            }
        }
        (shown, hides)
    }
}

#[cfg(test)]
mod tests;
