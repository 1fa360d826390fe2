//! Live queries: a connection is told a result, and again whenever that has changed.
//!
//! ```text
//!  every shard     its keyspace keeps the views (`keyspace/views.rs`) ── that some have changed ──┐
//!  the first one   every `live-interval-ms` at the most: one moment on all shards, what has <─────┘
//!                  changed is added up ── to the shards whose connections ask for it
//!  these shards    a connection that reads is told; for one that does not, only the newest result waits
//! ```
//!
//! The one moment is a transaction that holds everything, for as long as it takes to ask: so no result shows a part of a
//! transaction, and results come in the order of the changes. It lets go of each shard that has answered, and gives up where
//! somebody holds keys for long: nobody else may wait behind it. Scripts that last are waited for before.

use super::{on_shard, output};
use crate::clock::{Now, store_us};
use crate::executor;
use crate::keyspace::{Pass, ViewNews};
use crate::net::{note_woken, sleep, step_back};
use crate::resp::{Error, Proto, Reply, Result};
use crate::server::client::ClientRef;
use crate::server::client::live::{Answer, LiveQuery, Question};
use crate::server::client::session::Session;
use crate::server::state::Server;
use crate::shard::{Shard, Transaction};
use futures_lite::future::or;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The shard that adds up.
const FIRST: usize = 0;
/// A pass gives way to others when a slice has lasted so long.
const SLICE_US: u64 = 200;
/// A pass that only looks for names begins no sooner than this after the last one, nor sooner than so many times what that
/// one took.
const NAMES_REST: Duration = Duration::from_secs(1);
const NAMES_REST_TIMES: u32 = 4;
/// For so long the moment is waited for on all shards: others wait behind it.
const PATIENCE: Duration = Duration::from_millis(10);
/// The longest pause after the moment did not come, unless results have a longer interval: where the moment never comes
/// others wait for it a tenth of the time.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Results that have changed are shown no sooner than so many times later than it took to show the last ones: nobody else is
/// answered meanwhile, and there may be many long names.
const SHOWING_REST_TIMES: u32 = 9;
/// How long it takes at the least from one first answer to the next.
const FIRST_ANSWERS: Duration = Duration::from_millis(1);
/// A connection for which more than this waits is told later.
const UNREAD_BYTES: usize = 64 << 10;

const TOO_MANY: &str = "ERR too many live queries";

/// A connection asks; returns the number of its query and the first result.
pub async fn start(server: &Rc<Server>, client: &ClientRef, question: Question) -> Result<(u64, Vec<u8>)> {
    let gone = || Error::text("ERR the connection is gone");
    if client.closed.get() {
        return Err(gone());
    }
    let view = question.view();
    let query = client.state.borrow_mut().session.live.add(client.id, question).ok_or(Error::text(TOO_MANY))?;
    let (here, id, asks) = (server.shard.id, query.id, client.id);
    on_shard(server, FIRST, move |first| {
        let joined = first.live.views.borrow_mut().join(view.clone(), here, first.shard.count);
        if let Some((view_id, true)) = joined {
            (0..first.shard.count).for_each(|target| {
                let view = view.clone();
                on_shard(first, target, move |server| {
                    server.shard.keyspace.borrow_mut().keep_view(view_id, view);
                    server.shard.after_commands();
                });
            });
        }
        first.live.changed_alarm.notify();
        on_shard(first, here, move |server| has_joined(server, (asks, id), joined.map(|(view, _)| view)));
    });
    // Whoever ends the connection meanwhile ends the query.
    while !query.has_answer() && !query.is_over.get() {
        query.alarm.wait().await;
    }
    match query.newest() {
        Some(answer) if !query.is_over.get() => {
            let proto = client.state.borrow().session.proto;
            let result = answer.result(&query.question, proto);
            query.told.set(Some(hash(server, &result)));
            Ok((query.id, result))
        }
        _ if client.closed.get() => Err(gone()),
        _ => Err(Error::text(TOO_MANY)),
    }
}

/// The view is known that answers a query; none where there are too many.
fn has_joined(server: &Rc<Server>, (client, id): (u64, u64), view: Option<u64>) {
    let asks = server.client(client);
    let query = asks.as_ref().and_then(|client| client.state.borrow().session.live.get(id).cloned());
    match (query, view) {
        (Some(query), Some(view)) => {
            query.view.set(Some(view));
            server.live.add(view, query);
        }
        (None, Some(view)) => leave(server, vec![view]),
        (Some(query), None) => {
            asks.into_iter().for_each(|client| drop(client.state.borrow_mut().session.live.remove(id)));
            query.is_over.set(true);
            query.alarm.notify();
        }
        (None, None) => {}
    }
}

/// A query is not asked any more; whether it was.
pub fn stop(server: &Rc<Server>, session: &mut Session, id: u64) -> bool {
    let query = session.live.remove(id);
    let was_asked = query.is_some();
    end_all(server, query.into_iter().collect());
    was_asked
}

/// A connection asks nothing any more.
pub fn end(server: &Server, session: &mut Session) {
    let queries = session.live.take_all();
    if !queries.is_empty()
        && let Some(server) = server.me()
    {
        end_all(&server, queries);
    }
}

fn end_all(server: &Rc<Server>, queries: Vec<Rc<LiveQuery>>) {
    let mut views = Vec::new();
    for query in queries {
        query.is_over.set(true);
        query.alarm.notify();
        // Where the view is not known yet, whoever says which it is finds that nobody asks.
        if let Some(view) = query.view.get() {
            server.live.remove(view, &query);
            views.push(view);
        }
    }
    if !views.is_empty() {
        leave(server, views);
    }
}

/// So many queries less are answered by these views.
fn leave(server: &Rc<Server>, views: Vec<u64>) {
    let here = server.shard.id;
    on_shard(server, FIRST, move |first| {
        let mut registry = first.live.views.borrow_mut();
        let unneeded: Vec<u64> = views.into_iter().filter(|view| registry.leave(*view, here)).collect();
        drop(registry);
        if unneeded.is_empty() {
            return;
        }
        let unneeded: Arc<[u64]> = unneeded.into();
        (0..first.shard.count).for_each(|target| {
            let unneeded = unneeded.clone();
            on_shard(first, target, move |server| {
                let mut keyspace = server.shard.keyspace.borrow_mut();
                unneeded.iter().for_each(|view| keyspace.drop_view(*view));
            });
        });
    });
}

/// Something is to be done about this shard's views.
#[cold]
pub fn look_after(server: &Rc<Server>, news: ViewNews) {
    if news.have_changed {
        on_shard(server, FIRST, |first| first.live.changed_alarm.notify());
    }
    if !news.want_pass {
        return;
    }
    if server.live.makes_passes.replace(true) {
        server.live.pass_alarm.notify();
        return;
    }
    note_woken();
    executor::spawn(make_passes(server.clone()));
}

/// Makes passes until no view of this shard wants one.
async fn make_passes(server: Rc<Server>) {
    let (live, shard) = (&server.live, &server.shard);
    let mut rests_until_us = 0;
    loop {
        step_back().await;
        let wanted = shard.keyspace.borrow().wanted_pass();
        let rest_us = u64::saturating_sub(rests_until_us, store_us());
        match wanted {
            None => break,
            Some(Pass::ForNames) if rest_us > 0 => {
                or(live.pass_alarm.wait(), sleep(Duration::from_micros(rest_us))).await;
                continue;
            }
            Some(_) => {}
        }
        let began_us = store_us();
        let Some(db) = shard.keyspace.borrow_mut().begin_pass() else { break };
        loop {
            let end_us = store_us() + SLICE_US;
            let is_more = shard.keyspace.borrow_mut().go_on_with_pass(db, || store_us() < end_us);
            if !is_more {
                break;
            }
            step_back().await;
        }
        let took = Duration::from_micros(store_us().saturating_sub(began_us));
        rests_until_us = store_us() + NAMES_REST.max(took * NAMES_REST_TIMES).as_micros() as u64;
        shard.after_commands();
        // Somebody may wait for a first answer, though others have said already that something has changed.
        on_shard(&server, FIRST, |first| first.live.changed_alarm.notify());
    }
    live.makes_passes.set(false);
    // What was wanted since has found this task still there.
    if shard.keyspace.borrow().wanted_pass().is_some() {
        look_after(&server, ViewNews { want_pass: true, ..ViewNews::default() });
    }
}

/// Of which views it is asked what they show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Of those that have changed.
    Changed,
    /// Of those with queries that have no answer yet, between two times: nobody else is told.
    Unanswered,
}

/// On the first shard: adds up what has changed, as long as the server runs.
pub async fn add_up(server: Rc<Server>) {
    let (alarm, mut is_due, mut next_us, mut pause) = (&server.live.changed_alarm, false, 0, Duration::ZERO);
    loop {
        let rest = Duration::from_micros(u64::saturating_sub(next_us, store_us()));
        if is_due && rest.is_zero() {
            let interval = Duration::from_millis(server.shard.config().live_interval_ms);
            let (is_told, took) = tell_changes(&server, Asked::Changed).await;
            is_due = !is_told;
            pause = if is_due { (2 * pause).clamp(interval, PAUSE_MAX.max(interval)) } else { interval };
            next_us = store_us() + pause.max(SHOWING_REST_TIMES * took).as_micros() as u64;
            continue;
        }
        if is_due {
            or(alarm.wait(), sleep(rest)).await;
        } else {
            alarm.wait().await;
            is_due = true;
        }
        if store_us() < next_us && server.live.views.borrow().has_unanswered() {
            tell_changes(&server, Asked::Unanswered).await;
            sleep(FIRST_ANSWERS).await;
        }
    }
}

/// Asks all shards as of one moment, and tells who wants to know; whether all have answered, and how long that took.
async fn tell_changes(server: &Rc<Server>, asked: Asked) -> (bool, Duration) {
    if server.live.views.borrow().is_empty() {
        return (true, Duration::ZERO);
    }
    if server.global.lasting_scripts.any() {
        return (false, Duration::ZERO);
    }
    let shard = &server.shard;
    let transaction = shard.hold_patiently(shard.everything()).await;
    let began_us = store_us();
    let is_told = tell_as_of(server, asked, transaction).await;
    (is_told, Duration::from_micros(store_us().saturating_sub(began_us)))
}

/// The same in a moment that holds everything.
async fn tell_as_of(server: &Rc<Server>, asked: Asked, transaction: Transaction) -> bool {
    let shard = &server.shard;
    let these: Arc<[u64]> = match asked {
        Asked::Changed => server.live.views.borrow_mut().take_wanted().into(),
        Asked::Unanswered => server.live.views.borrow().unanswered().into(),
    };
    let look = move |shard: &Shard, now: Now| {
        let mut keyspace = shard.keyspace.borrow_mut();
        match asked {
            Asked::Changed => keyspace.take_views(&these, now),
            Asked::Unanswered => keyspace.look_at_views(&these, now),
        }
    };
    let order = transaction.shards.clone();
    let answers = transaction.look(PATIENCE, look).await;
    let is_whole = answers.iter().all(Option::is_some);
    let mut registry = server.live.views.borrow_mut();
    let mut changed = BTreeSet::new();
    for (from, shown) in order.into_iter().zip(answers) {
        for (view, shown) in shown.unwrap_or_default() {
            changed.insert(view);
            registry.set_shown(view, from, shown);
        }
    }
    if !is_whole {
        // Whoever was not heard may have forgotten by now what has changed there.
        registry.want_all();
        return false;
    }
    let mut by_shard: BTreeMap<usize, Vec<(u64, Arc<Answer>)>> = BTreeMap::new();
    for view in changed {
        let Some((answer, asking)) = registry.answer(view, |at_ms| shard.clock.to_wall_ms(at_ms)) else { continue };
        let answer = Arc::new(answer);
        asking.into_iter().for_each(|target| by_shard.entry(target).or_default().push((view, answer.clone())));
    }
    drop(registry);
    for (target, answers) in by_shard {
        on_shard(server, target, move |server| take_answers(server, asked, answers));
    }
    true
}

fn take_answers(server: &Rc<Server>, asked: Asked, answers: Vec<(u64, Arc<Answer>)>) {
    for (view, answer) in answers {
        for query in server.live.of_view(view) {
            let is_answered = query.told.get().is_some();
            if is_answered && asked == Asked::Unanswered {
                continue;
            }
            query.set_newest(answer.clone());
            match is_answered {
                true => tell(server, &query),
                false => query.alarm.notify(),
            }
        }
    }
    output::send_pushed(server);
}

/// Tells a query's connection the newest result, unless it knows that; later, if it does not read.
fn tell(server: &Rc<Server>, query: &Rc<LiveQuery>) {
    let Some(client) = server.client(query.client).filter(|_| !query.is_over.get()) else { return };
    let (proto, has_room) = {
        let state = client.state.borrow();
        (state.session.proto, state.unsent() < UNREAD_BYTES)
    };
    if !has_room {
        server.live.tell_later(query);
        return;
    }
    let Some(answer) = query.newest() else { return };
    let result = answer.result(&query.question, proto);
    let hash = hash(server, &result);
    if query.told.replace(Some(hash)) != Some(hash) {
        output::push_behind(server, &client, &message(query.id, &result, proto));
    }
}

fn message(id: u64, result: &[u8], proto: Proto) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + result.len());
    let mut reply = Reply::new(&mut out, proto);
    reply.push(3);
    reply.bulk(b"live");
    reply.int(id as i64);
    reply.raw(result);
    out
}

fn hash(server: &Server, result: &[u8]) -> u64 {
    server.shard.hasher.hash(result)
}

/// Tells connections that did not read what is the newest by then, as long as the server runs.
pub async fn tell_late(server: Rc<Server>) {
    loop {
        server.live.late_alarm.wait().await;
        while server.live.has_late() {
            sleep(Duration::from_millis(server.shard.config().live_interval_ms)).await;
            server.live.take_late().iter().for_each(|query| tell(&server, query));
            output::send_pushed(&server);
        }
    }
}
