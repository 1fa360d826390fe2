//! What is to come, on all shards: walks in slices, between which the shards serve.

use crate::clock::{realtime_us, store_us};
use crate::executor;
use crate::expiry::foresight::{Gather, HORIZONS_MS, Outlook, View, Walk};
use crate::net::step_back_in_turn;
use crate::server::state::Server;
use crate::shard::Shard;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// For how long a walk goes on before the shard has its turn.
const SLICE_US: u64 = 200;
/// Between two looks ahead, and how many times as long as a look the time to the next one is at least: whoever watches costs
/// the shards no greater part of their time, however many keys they have.
const LOOKS_EVERY_US: u64 = 900_000;
const RESTS: u64 = 100;

/// What all shards find from one moment on, in the database of this view.
pub async fn look<G: Gather>(shard: &Rc<Shard>, view: View) -> G {
    together(shard.call_all_later(move |shard| walk_shard::<G>(shard, view)).await)
}

/// What was to come when somebody looked last.
#[derive(Default)]
pub struct Foresight {
    /// And the moment from which it was looked at.
    latest: RefCell<Option<(u64, Rc<Outlook>)>>,
    looks: Cell<bool>,
    next_us: Cell<u64>,
}

impl Foresight {
    /// What was seen last, if anything was, and since when it has been so, in milliseconds of the wall clock. Where it is time
    /// for that another look begins, for which nobody waits.
    pub fn latest(self: &Rc<Self>, server: &Rc<Server>) -> Option<(u64, Rc<Outlook>)> {
        let is_due = !self.looks.get() && store_us() >= self.next_us.get();
        if is_due && !server.global.snapshots.is_loading() {
            self.looks.set(true);
            executor::spawn(self.clone().look(server.clone()));
        }
        self.latest.borrow().clone()
    }

    async fn look(self: Rc<Self>, server: Rc<Server>) {
        let (began_us, from_ms) = (store_us(), realtime_us() / 1000);
        let outlook = look_everywhere(&server.shard, HORIZONS_MS[HORIZONS_MS.len() - 1]).await;
        self.latest.replace(Some((from_ms, Rc::new(outlook))));
        let ended_us = store_us();
        let rest_us = ended_us.saturating_sub(began_us) * RESTS;
        self.next_us.set(ended_us + rest_us.max(LOOKS_EVERY_US));
        self.looks.set(false);
    }
}

/// What all shards find from now on, in all databases.
async fn look_everywhere<G: Gather>(shard: &Rc<Shard>, within_ms: u64) -> G {
    let from = shard.clock.refresh();
    let walk_databases = move |shard: Rc<Shard>| async move {
        let mut all = G::default();
        for db in 0..shard.config().databases {
            let view = View { db, prefix: Box::default(), from, within_ms: Some(within_ms) };
            all.merge(&walk_shard::<G>(shard.clone(), view).await);
        }
        all
    };
    together(shard.call_all_later(walk_databases).await)
}

fn together<G: Gather>(found: Vec<G>) -> G {
    let mut all = G::default();
    found.iter().for_each(|found| all.merge(found));
    all
}

async fn walk_shard<G: Gather>(shard: Rc<Shard>, view: View) -> G {
    let mut walk = Walk::<G>::new(view);
    loop {
        // Before the clock is read: where several walk, the others' slices are not part of this one.
        step_back_in_turn().await;
        let (now, end_us) = (shard.clock.refresh(), store_us() + SLICE_US);
        if walk.slice(&shard.keyspace.borrow(), now, || store_us() < end_us).is_some() {
            return walk.into_found();
        }
    }
}
