//! Live queries, as one shard's server knows them, and the views of all shards that answer them, which the first shard
//! knows.

use crate::keyspace::{Shown, ViewOf};
use crate::net::Notify;
use crate::server::client::live::{Answer, LiveQuery};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// All connections together ask for no more different views than this.
const VIEWS_MAX: usize = 100_000;

/// What a shard knows.
#[derive(Default)]
pub struct Live {
    /// Queries of this shard's connections, by the view that answers them.
    queries: RefCell<HashMap<u64, Vec<Rc<LiveQuery>>, ahash::RandomState>>,
    /// Those whose connections did not read.
    late: RefCell<Vec<Rc<LiveQuery>>>,
    pub late_alarm: Notify,
    /// A task makes passes here, and there is news for it.
    pub makes_passes: Cell<bool>,
    pub pass_alarm: Notify,
    /// On the first shard: all views, and that some have changed.
    pub views: RefCell<Registry>,
    pub changed_alarm: Notify,
}

impl Live {
    pub fn add(&self, view: u64, query: Rc<LiveQuery>) {
        self.queries.borrow_mut().entry(view).or_default().push(query);
    }

    pub fn remove(&self, view: u64, query: &LiveQuery) {
        let mut queries = self.queries.borrow_mut();
        let Some(of_view) = queries.get_mut(&view) else { return };
        of_view.retain(|of| (of.client, of.id) != (query.client, query.id));
        if of_view.is_empty() {
            queries.remove(&view);
        }
    }

    pub fn of_view(&self, view: u64) -> Vec<Rc<LiveQuery>> {
        self.queries.borrow().get(&view).cloned().unwrap_or_default()
    }

    /// A query is to be told later what is the newest then.
    pub fn tell_later(&self, query: &Rc<LiveQuery>) {
        if !query.is_late.replace(true) {
            self.late.borrow_mut().push(query.clone());
            self.late_alarm.notify();
        }
    }

    pub fn has_late(&self) -> bool {
        !self.late.borrow().is_empty()
    }

    pub fn take_late(&self) -> Vec<Rc<LiveQuery>> {
        let late = self.late.take();
        late.iter().for_each(|query| query.is_late.set(false));
        late
    }
}

/// All views.
#[derive(Default)]
pub struct Registry {
    last: u64,
    ids: HashMap<ViewOf, u64, ahash::RandomState>,
    views: HashMap<u64, View, ahash::RandomState>,
    /// Those with queries that have no answer yet.
    unanswered: BTreeSet<u64>,
    /// Some shard may have said that views have changed, and was not heard.
    is_lost: bool,
}

struct View {
    of: ViewOf,
    /// What it shows of each shard, as far as that is known.
    shown: Vec<Option<Shown>>,
    /// How many queries of each shard's connections it answers.
    queries: Vec<usize>,
}

impl Registry {
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// One more query of a shard's connections: its view, and whether that is a new one. None where there are too many.
    pub fn join(&mut self, of: ViewOf, shard: usize, shards: usize) -> Option<(u64, bool)> {
        let known = self.ids.get(&of).copied();
        if known.is_none() && self.views.len() >= VIEWS_MAX {
            return None;
        }
        let id = known.unwrap_or(self.last + 1);
        if known.is_none() {
            self.last = id;
            self.ids.insert(of.clone(), id);
            self.views.insert(id, View { of, shown: vec![None; shards], queries: vec![0; shards] });
        }
        if let Some(view) = self.views.get_mut(&id) {
            view.queries[shard] += 1;
        }
        self.unanswered.insert(id);
        Some((id, known.is_none()))
    }

    /// One fewer; whether nobody needs the view any more.
    pub fn leave(&mut self, id: u64, shard: usize) -> bool {
        let Some(view) = self.views.get_mut(&id) else { return false };
        view.queries[shard] -= 1;
        if view.queries.iter().any(|queries| *queries > 0) {
            return false;
        }
        if let Some(view) = self.views.remove(&id) {
            self.ids.remove(&view.of);
        }
        self.unanswered.remove(&id);
        true
    }

    pub fn has_unanswered(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Those with queries that have no answer yet.
    pub fn unanswered(&self) -> Vec<u64> {
        self.unanswered.iter().copied().collect()
    }

    /// Those that are to be asked, besides those that have changed.
    pub fn take_wanted(&mut self) -> Vec<u64> {
        match std::mem::take(&mut self.is_lost) {
            true => self.views.keys().copied().collect(),
            false => self.unanswered(),
        }
    }

    /// All views are to be asked: what some of them have said was not heard.
    pub fn want_all(&mut self) {
        self.is_lost = true;
    }

    /// What a view shows of a shard.
    pub fn set_shown(&mut self, id: u64, shard: usize, shown: Shown) {
        if let Some(view) = self.views.get_mut(&id) {
            view.shown[shard] = Some(shown);
        }
    }

    /// What a view shows, where all shards are ready, and the shards whose connections ask for it.
    pub fn answer(&mut self, id: u64, to_wall_ms: impl Fn(u64) -> i64) -> Option<(Answer, Vec<usize>)> {
        let View { of, shown, queries } = self.views.get(&id)?;
        let mut answer = Answer::default();
        let mut next = Vec::new();
        for shown in shown {
            let shown = shown.as_ref().filter(|shown| shown.is_ready)?;
            answer.keys += shown.keys;
            answer.bytes += shown.bytes;
            answer.names.extend(shown.names.iter().cloned());
            next.extend(shown.next.iter());
        }
        answer.names.sort_unstable();
        next.sort_unstable();
        let most = of.aspect.names();
        answer.names.truncate(most);
        let dated = next.into_iter().take(most);
        answer.next = dated.map(|(deadline_ms, name)| (to_wall_ms(*deadline_ms), name.clone())).collect();
        self.unanswered.remove(&id);
        let asking = queries.iter().enumerate().filter(|(_, queries)| **queries > 0);
        Some((answer, asking.map(|(shard, _)| shard).collect()))
    }
}
