//! This server follows another one: a task of the first shard takes what comes on the link (`replicate/link.rs`), and does it.
//!
//! A snapshot takes the place of all there is. The stream is done part by part, each as one transaction over all shards, so
//! that whoever reads here sees what the primary had at some moment. Nothing dies here by itself, and nothing is evicted:
//! what is dead is hidden until the primary says that it is gone.

use crate::clock::store_us;
use crate::config::{Config, Follows, Primary};
use crate::executor;
use crate::net::{next_from_outside, sleep, step_back};
use crate::observe::log;
use crate::replicate::Batch;
use crate::replicate::link::{self, Event, Goal, Shared, Stage};
use crate::script::Catalog;
use crate::server::client::session::{Close, ReplyMode};
use crate::server::client::{Client, ClientRef};
use crate::server::kept::loading::load_file;
use crate::server::kept::replay::suspend_policies;
use crate::server::kept::rewriting;
use crate::server::kept::saving::{self, hold_everything};
use crate::server::run::in_the_way::let_all_pass;
use crate::server::run::wait::unblock_all;
use crate::server::state::Server;
use crate::server::state::following::Hold;
use crate::server::state::replication::{Ids, KnownAs};
use crate::server::wire::connection::advance;
use crate::shard::Shard;
use crate::shard::snapshot::TakeIn;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// How long until a link that has ended is made anew.
const TRY_EVERY: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How often somebody looks whether a part is done before there is a pause between the looks.
const QUICK_LOOKS: u32 = 100;
/// Of a file that is fetched.
const FETCHED: &str = "temp-replica";

/// REPLICAOF host port: whom this server follows from now on.
pub async fn follow(server: &Rc<Server>, primary: Primary, takes_over: bool) {
    remember(server, Some(primary.clone())).await;
    let number = server.global.following.begin(primary, takes_over, &server.shard.config());
    unblock_all(server).await;
    server
        .shard
        .call(0, move |shard| {
            let server = Server::of(&shard);
            executor::spawn(async move { run(&server, number).await });
        })
        .await;
}

/// REPLICAOF NO ONE: this server's data are its own from now on; whether they were not.
pub async fn stand_alone(server: &Rc<Server>) -> bool {
    let global = &server.global;
    if global.following.end(&server.shard.config()).is_none() {
        return false;
    }
    // A snapshot that is being loaded is loaded to its end.
    while global.snapshots.is_loading() {
        sleep(LOOK_EVERY).await;
    }
    let hold = wait_until_idle(server).await;
    // Replicas go on with what this server has, under its new name. What dies from now on stands behind that.
    global.feed.set_relayed(false);
    global.replication.promote(global.feed.position());
    drop(hold);
    suspend_policies(server, false).await;
    server.shard.call_all(|shard| shard.set_following(false)).await;
    remember(server, None).await;
    log::notice(format_args!("MASTER MODE enabled (user request)"));
    true
}

/// The configuration says whom this server follows.
async fn remember(server: &Rc<Server>, primary: Option<Primary>) {
    server.global.config().follows = Follows(primary);
    server.shard.call_all(|shard| shard.configure(Arc::new(Server::of(shard).global.config().clone()))).await;
}

/// No part of the stream is being done, and none is begun.
pub async fn wait_until_idle(server: &Server) -> Hold {
    let hold = server.global.following.hold();
    while !hold.is_idle() {
        sleep(LOOK_EVERY).await;
    }
    hold
}

/// Follows until that is over.
async fn run(server: &Rc<Server>, number: u64) {
    let following = &server.global.following;
    if !enter(server, number).await {
        return;
    }
    let mut tells = true;
    while following.is_current(number) {
        let reason = match begin_link(server, number) {
            Ok(Some((shared, events))) => follow_link(server, number, &shared, &events).await,
            Ok(None) => return,
            Err(error) => error.to_string(),
        };
        let was_up = following.target().is_some_and(|target| target.number == number && target.is_up);
        following.note(number, |target| {
            if std::mem::take(&mut target.is_up) {
                target.down_since_us = Some(store_us());
            }
            target.link.take().inspect(|link| following.count(link));
        });
        following.follow_config(&server.shard.config());
        if !following.is_current(number) {
            return;
        }
        // (The same reason, again and again, is told once.)
        if was_up || tells {
            log::warning(format_args!("The link to the primary has ended: {reason}"));
        }
        tells = was_up;
        sleep(TRY_EVERY).await;
    }
}

/// From now on the data are another server's: nobody has anything under way, and nothing dies. Whether that is still wanted.
async fn enter(server: &Rc<Server>, number: u64) -> bool {
    let (global, shard) = (&server.global, &server.shard);
    while global.snapshots.is_loading() {
        sleep(TRY_EVERY / 100).await;
    }
    let_all_pass(server).await;
    // What was admitted before has been sent to its shard after one round, and is there after the second.
    for _ in 0..2 {
        shard.call_all(|_| ()).await;
    }
    let transaction = hold_everything(shard).await;
    if !global.following.is_current(number) {
        return false;
    }
    shard.call_all(|shard| shard.set_following(true)).await;
    shard.call_all(|shard| shard.hand_over_records()).await;
    global.feed.set_relayed(true);
    drop(transaction);
    suspend_policies(server, true).await;
    true
}

fn begin_link(server: &Server, number: u64) -> io::Result<Option<(Arc<Shared>, Receiver<Event>)>> {
    let (global, config) = (&server.global, server.shard.config());
    let Some(target) = global.following.target().filter(|target| target.number == number) else { return Ok(None) };
    log::notice(format_args!("Connecting to MASTER {}:{}", target.primary.host, target.primary.port));
    // (What has no stream yet is known to nobody.)
    let position = global.feed.position();
    let has = (global.feed.kept().is_some() || position > 0)
        .then(|| (global.replication.ids().id, position, global.following.db()));
    let goal = Goal {
        host: target.primary.host,
        port: target.primary.port,
        user: config.masteruser.clone(),
        password: config.masterauth.clone(),
        own_port: own_port(&config),
        own_address: config.replica_announce_ip.clone(),
        source: config.bind_source_addr.clone(),
        timeout: Duration::from_secs(config.repl_timeout_s),
        delays: config.repl_disable_tcp_nodelay,
        path: fetched(&config),
        has,
        takes_over: target.takes_over,
    };
    let (shared, events) = link::begin(goal, global.bells.clone(), server.shard.id)?;
    let of_target = shared.clone();
    if !global.following.note(number, |target| target.link = Some(of_target)) {
        shared.end();
        return Ok(None);
    }
    Ok(Some((shared, events)))
}

fn own_port(config: &Config) -> u16 {
    if config.replica_announce_port > 0 { config.replica_announce_port } else { config.port }
}

fn fetched(config: &Config) -> PathBuf {
    PathBuf::from(&config.dir).join(format!("{FETCHED}-{}.rdb", std::process::id()))
}

/// Does what comes on a link; why it has ended.
async fn follow_link(server: &Rc<Server>, number: u64, shared: &Arc<Shared>, events: &Receiver<Event>) -> String {
    let client = Rc::new(Client::of_primary(server.global.next_client_id()));
    client.state.borrow_mut().session.reply_mode = ReplyMode::Off;
    server.add_client(client.clone());
    let reason = take_events(server, number, shared, events, &client).await;
    server.remove_client(client.id);
    shared.end();
    let _ = std::fs::remove_file(fetched(&server.shard.config()));
    reason
}

async fn take_events(
    server: &Rc<Server>,
    number: u64,
    shared: &Arc<Shared>,
    events: &Receiver<Event>,
    client: &ClientRef,
) -> String {
    let global = &server.global;
    while let Some(event) = next_from_outside(events).await {
        if !global.following.is_current(number) {
            return "another server is followed".to_owned();
        }
        match event {
            Event::Ended(reason) => return reason,
            Event::Snapshot { id, position } => {
                log::notice(format_args!("Full resync from master: {id}:{position}"));
                if let Err(reason) = take_snapshot(server, number, id, position).await {
                    return format!("Failed trying to load the MASTER synchronization DB from disk: {reason}");
                }
                come_up(server, number, shared);
                log::notice(format_args!("MASTER <-> REPLICA sync: Finished with success"));
                if let Err(error) = begin_log(server).await {
                    log::warning(format_args!("The append only file does not go on: {error}"));
                }
            }
            Event::GoesOn { id } => {
                if let Err(error) = go_on(server, id).await {
                    return error.to_string();
                }
                come_up(server, number, shared);
                log::notice(format_args!("MASTER <-> REPLICA sync: Master accepted a Partial Resynchronization."));
            }
            Event::Part(batch) => {
                if let Err(reason) = apply(server, number, client, batch, shared).await {
                    return reason;
                }
            }
        }
    }
    "it was broken off".to_owned()
}

/// The link is up, and the primary hears how far this server is.
fn come_up(server: &Server, number: u64, shared: &Shared) {
    shared.set_position(server.global.feed.position());
    shared.set_stage(Stage::Connected);
    shared.acknowledge();
    server.global.following.note(number, |target| {
        target.is_up = true;
        target.down_since_us = None;
        target.takes_over = false;
    });
    server.global.following.follow_config(&server.shard.config());
}

/// The primary goes on where this server is; it may call the data otherwise, which replicas of this one have to hear.
async fn go_on(server: &Rc<Server>, id: Option<String>) -> io::Result<()> {
    let (replication, feed) = (&server.global.replication, &server.global.feed);
    if feed.kept().is_none() {
        // This server was started with a snapshot: from here on it has a stream for replicas of its own.
        server.global.log.start()?;
        let bytes = server.shard.config().repl_backlog_bytes;
        feed.keep(Some(usize::try_from(bytes).unwrap_or(usize::MAX)));
        server.shard.call_all(Server::follow_log).await;
    }
    if let Some(id) = id.filter(|id| *id != replication.ids().id) {
        replication.set_ids(replication.ids().renamed(feed.position(), id));
        replication.drop_replicas();
    }
    Ok(())
}

/// What a snapshot has takes the place of all there is. Others are answered LOADING meanwhile.
async fn take_snapshot(server: &Rc<Server>, number: u64, id: String, position: u64) -> Result<(), String> {
    let (global, shard) = (&server.global, &server.shard);
    while saving::begin(server).is_err() {
        // One that is being written is of no use any more.
        shard.call_all(|shard| shard.give_up_saving()).await;
        sleep(LOOK_EVERY).await;
    }
    global.snapshots.loading.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        shard.call_all(|_| ()).await;
    }
    let transaction = hold_everything(shard).await;
    let loaded = match global.following.is_current(number) {
        true => load(server, id, position).await,
        false => Err("another server is followed".to_owned()),
    };
    drop(transaction);
    global.snapshots.is_saving.store(false, Ordering::Relaxed);
    global.snapshots.loading.store(false, Ordering::Relaxed);
    loaded
}

/// The same for somebody who holds everything.
async fn load(server: &Rc<Server>, id: String, position: u64) -> Result<(), String> {
    let (global, shard) = (&server.global, &server.shard);
    let config = shard.config();
    if global.log.is_on() {
        shard.call_all(|shard| shard.hand_over_records()).await;
        let log = global.log.clone();
        let ended = server.transport.beside(move || log.bring_to_disk().map(|()| log.set_on(false)));
        if let Err(error) = ended.await.and_then(|ended| ended) {
            return Err(format!("the append only file cannot be written: {error}"));
        }
    }
    global.log.start().map_err(|error| error.to_string())?;
    // From here on nobody can go on with what there was.
    global.replication.set_ids(Ids::new());
    global.replication.drop_replicas();
    shard.call_all(Shard::empty).await;
    drop(global.libraries.change(|_| Ok(Catalog::default())));
    let how = TakeIn { replace: false, drop_dead: false };
    let loaded = load_file(server, how, &fetched(&config).to_string_lossy()).await;
    if let Err(reason) = loaded {
        shard.call_all(Shard::empty).await;
        return Err(reason);
    }
    suspend_policies(server, true).await;
    global.replication.set_ids(Ids { id, second: None });
    global.feed.set_position(position);
    global.feed.keep(Some(usize::try_from(config.repl_backlog_bytes).unwrap_or(usize::MAX)));
    global.following.set_db(0);
    shard.call_all(Server::follow_log).await;
    Ok(())
}

/// The log begins anew with what was loaded.
async fn begin_log(server: &Rc<Server>) -> Result<(), String> {
    if !server.shard.config().appendonly || server.global.log.is_on() {
        return Ok(());
    }
    let begun = rewriting::take_over(server, false).await;
    begun.map_err(|error| String::from_utf8_lossy(&error.to_bytes()).into_owned())
}

/// Does a part of the stream.
async fn apply(
    server: &Rc<Server>,
    number: u64,
    client: &ClientRef,
    batch: Batch,
    shared: &Shared,
) -> Result<(), String> {
    let global = &server.global;
    while !global.following.may_apply() {
        sleep(LOOK_EVERY).await;
    }
    let applied = match global.following.is_current(number) {
        true => apply_now(server, client, &batch).await,
        false => Err("another server is followed".to_owned()),
    };
    if applied.is_ok() {
        global.following.set_db(batch.db);
        let position = shared.position() + batch.raw.len() as u64;
        global.log.say(server.shard.id, batch.raw.into());
        shared.set_position(position);
        if batch.wants_ack {
            shared.acknowledge();
        }
    }
    global.following.has_applied();
    applied
}

async fn apply_now(server: &Rc<Server>, client: &ClientRef, batch: &Batch) -> Result<(), String> {
    if batch.commands.is_empty() {
        return Ok(());
    }
    advance(server, client, &batch.commands);
    let mut looks = 0;
    loop {
        {
            let state = &mut *client.state.borrow_mut();
            if state.flow.close != Close::No {
                return Err("a command of the primary's ends its connection".to_owned());
            }
            let is_read = state.input.len() == state.at;
            if is_read && state.replies.is_idle() && !state.flow.barrier && !state.flow.waiting {
                return Ok(());
            }
        }
        looks += 1;
        match looks < QUICK_LOOKS {
            true => step_back().await,
            false => sleep(LOOK_EVERY).await,
        }
    }
}

/// Whoever is followed at the start. (Nobody is served before that is known.)
pub async fn follow_at_start(server: &Rc<Server>) {
    let config = server.shard.config();
    let Some(primary) = config.follows.0.clone() else { return };
    if let Some(KnownAs { id, position, db }) = server.global.replication.restored().clone() {
        // What was loaded is that server's as of then.
        server.global.replication.set_ids(Ids { id, second: None });
        server.global.feed.set_position(position);
        server.global.following.set_db(db);
    }
    follow(server, primary, false).await;
}
