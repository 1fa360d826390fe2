//! This server follows another one: a task of the first shard takes what comes on the link (`replicate/link.rs`), and does it.
//!
//! A snapshot takes the place of all there is. The stream is done part by part, each as one transaction over all shards, so
//! that whoever reads here sees what the primary had at some moment. Nothing dies here by itself, and nothing is evicted:
//! what is dead is hidden until the primary says that it is gone.

use super::minding;
use super::synced::Synced;
use crate::clock::{realtime_us, store_us};
use crate::config::{Config, DisklessLoad, Follows, Primary};
use crate::executor;
use crate::journal::KnownAs;
use crate::net::{next_from_outside, sleep};
use crate::observe::{log, machine};
use crate::persist::reading::Origin;
use crate::replicate::Batch;
use crate::replicate::link::{self, Comes, Event, Goal, Shared, Stage};
use crate::resp::{Proto, Reply};
use crate::server::client::relay::Relay;
use crate::server::client::session::{Close, ReplyMode};
use crate::server::client::{Client, ClientRef};
use crate::server::kept::loading::{Keys, Loaded, read_keys};
use crate::server::kept::saving::{self, hold_everything};
use crate::server::kept::{policies, rewriting};
use crate::server::run::in_the_way::{self, let_all_pass};
use crate::server::run::wait::unblock_all;
use crate::server::state::Server;
use crate::server::state::following::{Change, Hold};
use crate::server::state::replication::Ids;
use crate::server::wire::connection::advance;
use crate::shard::Shard;
use crate::shard::snapshot::TakeIn;
use futures_lite::future::or;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// How long until a link that has ended is made anew.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// The same at most, where what the primary sends cannot be followed: each time it is twice as long.
const TRY_AGAIN_WITHIN: Duration = Duration::from_secs(64);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// So much of a transaction of the primary's is kept in any case.
const KEPT_BYTES: usize = 1 << 20;
const MACHINE_PART: u64 = 4;
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
            let server = Server::of(shard);
            executor::spawn(async move { run(&server, number).await });
        })
        .await;
}

/// REPLICAOF NO ONE: this server's data are its own from now on; whether they were not. `in_exec`: who asks may hold keys that
/// the stream waits for, so that it is done when those are free.
pub async fn stand_alone(server: &Rc<Server>, in_exec: bool) -> bool {
    if !server.global.following.leave() {
        return false;
    }
    remember(server, None).await;
    if in_exec {
        let server = server.clone();
        executor::spawn(async move { become_primary(&server).await });
    } else {
        become_primary(server).await;
    }
    true
}

/// The data become this server's own, unless another server is followed by then: first the stream, then what dies, and then
/// clients may write.
async fn become_primary(server: &Rc<Server>) {
    let (global, shard) = (&server.global, &server.shard);
    let _change = change_role(server).await;
    // A snapshot that is being loaded is loaded to its end.
    while global.snapshots.is_taking_in() {
        sleep(LOOK_EVERY).await;
    }
    let hold = wait_until_idle(server).await;
    if global.following.target().is_some() || !global.following.is_replica() {
        return;
    }
    // What the last part of the stream has changed is in the stream already.
    shard.call_all(|shard| shard.hand_over_records()).await;
    global.feed.set_relayed(false);
    global.replication.promote(global.feed.position());
    // Replicas learn the new name when they come again.
    minding::drop_replicas(server).await;
    // (What is overdue dies in the next moment, and policies say where that is written.)
    policies::suspend(server, false).await;
    shard.call_all(|shard| shard.set_following(false)).await;
    drop(hold);
    global.tokens.begin_anew(realtime_us() / 1_000);
    global.following.end(&shard.config());
    log::notice(format_args!("MASTER MODE enabled: the data are this server's own from now on"));
}

/// Nobody else makes this server a replica or a primary while this is there.
async fn change_role(server: &Server) -> Change {
    loop {
        if let Some(change) = server.global.following.change() {
            return change;
        }
        sleep(LOOK_EVERY).await;
    }
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
    let (mut told, mut pause, mut is_unfit) = (String::new(), TRY_EVERY, false);
    while following.is_current(number) {
        let reason = match begin_link(server, number, is_unfit).await {
            Ok(Some(link)) => {
                let reason = follow_link(server, number, &link).await;
                if link.shared.is_unfit() {
                    (is_unfit, pause) = (true, (2 * pause).min(TRY_AGAIN_WITHIN));
                } else if following.target().is_some_and(|target| target.number == number && target.is_up) {
                    (is_unfit, pause) = (false, TRY_EVERY);
                }
                reason
            }
            Ok(None) => return,
            Err(error) => error.to_string(),
        };
        let was_up = following.target().is_some_and(|target| target.number == number && target.is_up);
        following.note(number, |target| {
            if std::mem::take(&mut target.is_up) {
                target.down_since_us = Some(store_us());
            }
            target.link.take().inspect(|link| {
                following.count(link);
                target.has_refused |= target.takes_over && link.was_refused();
            });
        });
        following.follow_config(&server.shard.config());
        if !following.is_current(number) {
            return;
        }
        // (The same reason, again and again, is told once.)
        if was_up || reason != told {
            log::warning(format_args!("The link to the primary has ended: {reason}"));
            told = reason;
        }
        sleep(pause).await;
    }
}

/// From now on the data are another server's: nobody has anything under way, and nothing dies. Whether that is still wanted.
async fn enter(server: &Rc<Server>, number: u64) -> bool {
    let (global, shard) = (&server.global, &server.shard);
    let _change = change_role(server).await;
    while global.snapshots.is_taking_in() {
        sleep(TRY_EVERY / 100).await;
    }
    let_all_pass(server).await;
    shard.let_admitted_arrive().await;
    // (A part of another primary's stream is counted by now.)
    let hold = wait_until_idle(server).await;
    let transaction = in_the_way::hold_everything_at_last(server).await;
    if !global.following.is_current(number) {
        return false;
    }
    let follow = |shard: &Rc<Shard>| {
        shard.set_following(true);
        shard.leave_deaths();
        shard.hand_over_records();
    };
    shard.call_all(follow).await;
    global.feed.set_relayed(true);
    drop(transaction);
    drop(hold);
    policies::suspend(server, true).await;
    true
}

/// `is_unfit`: what the primary has sent cannot be followed, so that this server goes on with a snapshot, which has what is
/// behind that, too.
async fn begin_link(server: &Server, number: u64, is_unfit: bool) -> io::Result<Option<Link>> {
    let (global, config) = (&server.global, server.shard.config());
    let Some(target) = global.following.target().filter(|target| target.number == number) else { return Ok(None) };
    log::notice(format_args!("Connecting to MASTER {}:{}", target.primary.host, target.primary.port));
    // What was done under another link may be on its way to its place. (Nobody goes on before what he has.)
    while global.feed.position() < global.following.applied() {
        sleep(LOOK_EVERY).await;
    }
    // (What has no stream yet is known to nobody.)
    let position = global.feed.position();
    let is_known = global.feed.kept().is_some() || position > 0;
    let has = (is_known && !is_unfit).then(|| (global.replication.ids().id, position));
    let way = match config.repl_diskless_load {
        DisklessLoad::OnEmptyDb if is_empty(server).await => Way::AsItComes,
        DisklessLoad::Disabled | DisklessLoad::OnEmptyDb => Way::ByFile,
        DisklessLoad::SwapDb => Way::Beside,
    };
    let goal = Goal {
        host: target.primary.host,
        port: target.primary.port,
        user: config.masteruser.clone(),
        password: config.masterauth.clone(),
        own_port: own_port(&config),
        own_address: config.replica_announce_ip.clone(),
        source: config.bind_source_addr.clone(),
        timeout: Duration::from_secs(config.repl_timeout_s),
        tls: config.tls.replication.then(|| config.tls.clone()),
        delays: config.repl_disable_tcp_nodelay,
        path: (way == Way::ByFile).then(|| fetched(&config, number)),
        has,
        kept_bytes: kept_bytes(&config),
        takes_over: target.takes_over,
    };
    let (shared, events) = link::begin(goal, global.bells.clone(), server.shard.id)?;
    let of_target = shared.clone();
    if !global.following.note(number, |target| target.link = Some(of_target)) {
        shared.end();
        return Ok(None);
    }
    Ok(Some(Link { shared, synced: Synced::default(), events, way }))
}

/// A link, and what is done with a snapshot.
struct Link {
    shared: Arc<Shared>,
    synced: Synced,
    events: Receiver<Event>,
    way: Way,
}

/// How a snapshot is loaded (`repl-diskless-load`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// When all of it is in a file.
    ByFile,
    /// As it comes.
    AsItComes,
    /// As it comes, beside the data that are there, which stay where that fails.
    Beside,
}

async fn is_empty(server: &Server) -> bool {
    let sizes = server.shard.call_all(|shard| shard.sizes()).await;
    sizes.iter().flat_map(|sizes| &sizes.databases).all(|(keys, _)| *keys == 0)
}

fn own_port(config: &Config) -> u16 {
    match config.replica_announce_port {
        0 if config.tls.replication && config.tls.port > 0 => config.tls.port,
        0 => config.port,
        announced => announced,
    }
}

/// What is kept of a transaction until it is whole: not more than of a client's, nor than of data, nor a large part of the machine.
fn kept_bytes(config: &Config) -> usize {
    let machine_bytes = machine::memory_bytes();
    let of_data = match config.maxmemory.of(machine_bytes) {
        0 => machine_bytes / MACHINE_PART,
        bytes => bytes,
    };
    let of_data = usize::try_from(of_data).unwrap_or(usize::MAX);
    config.client_query_buffer_limit_bytes.min(of_data.max(KEPT_BYTES))
}

/// Where a snapshot is fetched to. (The file has that name for a moment only.)
fn fetched(config: &Config, number: u64) -> PathBuf {
    PathBuf::from(&config.dir).join(format!("{FETCHED}-{}-{number}.rdb", std::process::id()))
}

/// Does what comes on a link; why it has ended.
async fn follow_link(server: &Rc<Server>, number: u64, link: &Link) -> String {
    let client = Rc::new(Client::of_primary(server.global.next_client_id()));
    client.state.borrow_mut().session.reply_mode = ReplyMode::Off;
    server.add_client(client.clone());
    let reason = or(take_events(server, number, link, &client), link.synced.follow(server, &link.shared)).await;
    server.remove_client(client.id);
    link.shared.end();
    reason
}

async fn take_events(server: &Rc<Server>, number: u64, link: &Link, client: &ClientRef) -> String {
    let (global, shared) = (&server.global, &link.shared);
    while let Some(event) = next_from_outside(&link.events).await {
        if !global.following.is_current(number) {
            return "another server is followed".to_owned();
        }
        match event {
            Event::Ended(reason) => return reason,
            Event::Tokens(horizon) => {
                global.tokens.learn(horizon);
                continue;
            }
            Event::Accepted => {
                global.following.note(number, |target| target.takes_over = false);
            }
            Event::Snapshot { id, position, comes } => {
                log::notice(format_args!("Full resync from master: {}:{position}", id.escape_debug()));
                let origin = match comes {
                    Comes::InFile(file) => Origin::Open(file),
                    Comes::Now(pipe) => Origin::Stream(Box::new(pipe)),
                };
                let taken = take_snapshot(server, number, link, origin, (id, position)).await;
                if let Err(reason) = taken {
                    let from = if link.way == Way::ByFile { "disk" } else { "socket" };
                    return format!("Failed trying to load the MASTER synchronization DB from {from}: {reason}");
                }
                come_up(server, number, client, shared);
                log::notice(format_args!("MASTER <-> REPLICA sync: Finished with success"));
                if let Err(error) = begin_log(server).await {
                    log::warning(format_args!("The append only file does not go on: {error}"));
                }
            }
            Event::GoesOn { id } => {
                if let Err(error) = go_on(server, id).await {
                    return error.to_string();
                }
                come_up(server, number, client, shared);
                log::notice(format_args!("Successful partial resynchronization with master."));
                log::notice(format_args!("MASTER <-> REPLICA sync: Master accepted a Partial Resynchronization."));
            }
            Event::Part(batch) => {
                if let Err(reason) = apply(server, number, client, batch, shared).await {
                    return reason;
                }
            }
        }
        link.synced.note_progress(server, shared);
    }
    "it was broken off".to_owned()
}

/// The link is up, and the primary hears how far this server is. From here on CLIENT LIST shows the link.
fn come_up(server: &Server, number: u64, client: &ClientRef, shared: &Shared) {
    let position = server.global.feed.position();
    server.global.following.set_applied(position);
    shared.set_position(position);
    shared.set_stage(Stage::Connected);
    shared.acknowledge();
    if let Some((peer, own)) = shared.ends() {
        let session = &mut client.state.borrow_mut().session;
        session.peer.addr = peer.to_string();
        session.peer.laddr = own.to_string();
    }
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
        feed.keep(Some(server.shard.config().repl_backlog()));
        server.shard.call_all(Server::follow_log).await;
    }
    if let Some(id) = id.filter(|id| *id != replication.ids().id) {
        replication.set_ids(replication.ids().renamed(feed.position(), id));
        minding::drop_replicas(server).await;
    }
    Ok(())
}

/// What a snapshot has takes the place of all there is. Others are answered LOADING meanwhile, unless it arrives beside data that
/// are the same primary's, if older.
async fn take_snapshot(
    server: &Rc<Server>,
    number: u64,
    link: &Link,
    origin: Origin,
    (id, position): (String, u64),
) -> Result<(), String> {
    let (global, shard) = (&server.global, &server.shard);
    let (snapshots, is_current) = (&global.snapshots, || global.following.is_current(number));
    while saving::begin(server).is_err() {
        if !is_current() {
            return Err("another server is followed".to_owned());
        }
        // One that is being written is of no use any more.
        shard.call_all(|shard| shard.give_up_saving()).await;
        sleep(LOOK_EVERY).await;
    }
    log::notice(format_args!("MASTER <-> REPLICA sync: Loading DB in memory"));
    let is_beside = link.way == Way::Beside;
    let of_bytes = link.shared.snapshot_bytes.load(Ordering::Relaxed);
    let mut content = Content::Coming(origin, of_bytes);
    let mut loaded = Ok(());
    if is_beside && global.feed.kept().is_some() && global.replication.ids().id == id {
        snapshots.arriving.store(true, Ordering::Relaxed);
        loaded = arrive(server, &mut content).await;
    }
    if loaded.is_ok() {
        stop_serving(server).await;
        let transaction = hold_everything(shard).await;
        if is_beside {
            loaded = arrive(server, &mut content).await;
        }
        if loaded.is_ok() {
            loaded = match is_current() {
                true => load(server, content, id, position, is_current).await,
                false => Err("another server is followed".to_owned()),
            };
        }
        drop(transaction);
    }
    // Where all is well nothing arrives any more.
    shard.call_all(|shard| shard.end_arriving(false)).await;
    snapshots.is_saving.store(false, Ordering::Relaxed);
    snapshots.arriving.store(false, Ordering::Relaxed);
    snapshots.loading.store(false, Ordering::Relaxed);
    loaded
}

/// From here on others are answered LOADING, and nobody has anything under way.
async fn stop_serving(server: &Rc<Server>) {
    let (global, shard) = (&server.global, &server.shard);
    // (A script that lasts is waited for while it can still be ended.)
    loop {
        let_all_pass(server).await;
        global.snapshots.loading.store(true, Ordering::Relaxed);
        shard.let_admitted_arrive().await;
        if !global.lasting_scripts.any() {
            return;
        }
        global.snapshots.loading.store(false, Ordering::Relaxed);
    }
}

/// What a snapshot has.
enum Content {
    /// It comes, and is as long as is known (0: it is not).
    Coming(Origin, u64),
    /// It is here, beside the data.
    Arrived(Keys),
}

/// Lets a snapshot arrive beside the data, unless it has.
async fn arrive(server: &Rc<Server>, content: &mut Content) -> Result<(), String> {
    let Content::Coming(origin, of_bytes) = content else { return Ok(()) };
    let origin = std::mem::replace(origin, Origin::Stream(Box::new(io::empty())));
    server.shard.call_all(Shard::begin_arriving).await;
    *content = Content::Arrived(read_keys(server, BESIDE, origin, *of_bytes).await?);
    Ok(())
}

const IN_PLACE: TakeIn = TakeIn { replace: false, drop_dead: false, beside: false };
const BESIDE: TakeIn = TakeIn { beside: true, ..IN_PLACE };

/// Takes a snapshot's content for the data, for somebody who holds everything.
async fn load(
    server: &Rc<Server>,
    content: Content,
    id: String,
    position: u64,
    is_current: impl Fn() -> bool,
) -> Result<(), String> {
    let (global, shard) = (&server.global, &server.shard);
    let config = shard.config();
    if global.log.is_on() {
        let ended = rewriting::end_held(server).await;
        ended.map_err(|error| format!("the append only file cannot be written: {error}"))?;
    }
    global.log.start().map_err(|error| error.to_string())?;
    // (What was done of another stream has its place before the stream is this one.)
    shard.call_all(|shard| shard.hand_over_records()).await;
    // From here on nobody can go on with what there was.
    global.replication.set_ids(Ids::new());
    minding::drop_replicas(server).await;
    let loaded = match content {
        Content::Arrived(keys) => {
            shard.call_all(|shard| shard.end_arriving(true)).await;
            take_rest(server, keys, BESIDE).await
        }
        Content::Coming(origin, of_bytes) => {
            rewriting::empty_held(server).await;
            match read_keys(server, IN_PLACE, origin, of_bytes).await {
                Ok(keys) => take_rest(server, keys, IN_PLACE).await,
                Err(reason) => Err(reason),
            }
        }
    };
    let known_as = match loaded {
        Ok(loaded) => loaded.known_as,
        Err(reason) => {
            shard.call_all(Shard::empty).await;
            return Err(reason);
        }
    };
    policies::suspend(server, true).await;
    if !is_current() {
        return Err("another server is followed".to_owned());
    }
    global.replication.set_ids(Ids { id, second: None });
    // (A primary that is a replica itself does not choose the database anew.)
    let db = known_as.map_or(0, |known_as| known_as.db);
    global.feed.set_position(position, db);
    global.feed.keep(Some(config.repl_backlog()));
    global.following.set_db(db);
    shard.call_all(Server::follow_log).await;
    Ok(())
}

/// Takes what a snapshot has beside keys. Policies of this server's own give way to those of an EmberDB.
async fn take_rest(server: &Rc<Server>, keys: Keys, how: TakeIn) -> Result<Loaded, String> {
    let given_up = keys.are_embers().then(|| policies::give_up(server));
    let loaded = keys.take_rest(server, how).await;
    if let Some(given_up) = given_up {
        given_up.report(server);
    }
    loaded
}

/// The log begins anew with what was loaded.
async fn begin_log(server: &Rc<Server>) -> Result<(), String> {
    if !server.shard.config().appendonly || server.global.log.is_on() {
        return Ok(());
    }
    let begun = rewriting::take_over(server, false).await;
    begun.map_err(|error| String::from_utf8_lossy(&error.to_bytes()).into_owned())
}

/// Does a part of the stream. A pause is one of the stream, too, of whichever kind.
async fn apply(
    server: &Rc<Server>,
    number: u64,
    client: &ClientRef,
    mut batch: Batch,
    shared: &Shared,
) -> Result<(), String> {
    let (global, bytes) = (&server.global, batch.raw.len() as u64);
    shared.set_read(shared.position() + bytes);
    // What stands behind a SELECT that fails would be done in another database: nothing of the part is done.
    let databases = server.shard.config().databases;
    let chosen = if batch.goes_on { global.following.db() } else { 0 };
    if batch.most_db.max(chosen) >= databases {
        return Err(format!(
            "the primary has more databases than this server, which has {databases}: raise 'databases'"
        ));
    }
    while global.pauses.until_us() > store_us() && global.following.is_current(number) {
        sleep(LOOK_EVERY).await;
    }
    // (Nothing of the stream is refused: it waits for the disk for however long that takes.)
    while global.log.is_crowded() && global.following.is_current(number) {
        global.log.look();
        sleep(LOOK_EVERY).await;
    }
    while !global.following.may_apply() {
        sleep(LOOK_EVERY).await;
    }
    let applied = match global.following.is_current(number) {
        true => apply_now(server, client, &mut batch).await,
        false => Err("another server is followed".to_owned()),
    };
    if applied.is_ok() {
        if let Some(db) = batch.db {
            global.following.set_db(db);
        }
        let position = shared.position() + bytes;
        global.following.set_applied(position);
        shared.set_position(position);
        if batch.wants_ack {
            shared.acknowledge();
        }
    }
    global.following.has_applied();
    applied
}

async fn apply_now(server: &Rc<Server>, client: &ClientRef, batch: &mut Batch) -> Result<(), String> {
    let db = batch.db.unwrap_or_else(|| server.global.following.db());
    let relay = Relay { db, bytes: std::mem::take(&mut batch.raw).into() };
    if batch.commands.is_empty() {
        relay.say(&server.shard);
        return Ok(());
    }
    client.state.borrow_mut().flow.relay = Some(relay);
    let mut commands = Vec::with_capacity(batch.commands.len() + 32);
    if batch.goes_on {
        let db = server.global.following.db().to_string();
        let mut reply = Reply::new(&mut commands, Proto::Resp2);
        reply.array(2);
        [&b"SELECT"[..], db.as_bytes()].into_iter().for_each(|word| reply.bulk(word));
    }
    commands.extend_from_slice(&batch.commands);
    advance(server, client, &commands);
    loop {
        {
            let state = &mut *client.state.borrow_mut();
            if state.flow.close != Close::No {
                return Err("a command of the primary's ends its connection".to_owned());
            }
            let is_read = state.input.len() == state.at;
            if is_read && state.replies.is_idle() && !state.flow.barrier && !state.flow.waiting {
                // (Where nothing could be done of it it is still said.)
                if let Some(relay) = state.flow.relay.take() {
                    relay.say(&server.shard);
                }
                return Ok(());
            }
        }
        // (It is told when something was answered: a task that looked again and again would take the time of the shards for which
        // it waits, where there are few cores.)
        or(server.replayed.wait(), sleep(LOOK_EVERY)).await;
    }
}

/// Whoever is followed at the start. (Somebody may have been served before, and have said REPLICAOF.)
pub async fn follow_at_start(server: &Rc<Server>) {
    let Some(number) = server.global.followed_at_start.filter(|number| server.global.following.is_current(*number))
    else {
        return;
    };
    if let Some(KnownAs { id, position, db, .. }) = server.global.replication.restored().clone() {
        // What was loaded is that server's as of then.
        server.global.replication.set_ids(Ids { id, second: None });
        server.global.feed.set_position(position, db);
        server.global.following.set_db(db);
    }
    let server = server.clone();
    executor::spawn(async move { run(&server, number).await });
}
