//! How far replicas are, and who waits for that.

use crate::clock::store_us;
use crate::command::blocking::{Wait, milliseconds};
use crate::net::sleep;
use crate::observe::log;
use crate::resp::{Error, Request, Result};
use crate::server::client::session::Close;
use crate::server::state::pauses::{self, By};
use crate::server::state::waits::{Blocked, End, NEW_ROLE, UNBLOCKED};
use crate::server::state::{Server, TaskCtx};
use crate::server::told::output::{close_now, settle};
use futures_lite::future::or;
use std::rc::Rc;
use std::time::Duration;

/// How often somebody who waits looks, at first; at most where only the log is waited for, which rings; and at most where
/// replicas are.
pub const FIRST_LOOK: Duration = Duration::from_millis(1);
const LOOK_AT_LOG: Duration = Duration::from_secs(1);
pub const LOOK_AT_REPLICAS: Duration = Duration::from_millis(10);

const GETACK: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";
const NO_LOG: Error = Error::text("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
const ON_REPLICA: Error = Error::text("ERR WAIT cannot be used with replica instances.");
const AOF_ON_REPLICA: Error = Error::text(
    "ERR WAITAOF cannot be used with replica instances. Please also note that writes \
     to replicas are just local and are not propagated.",
);

/// Where in the stream everything stands that was acknowledged by now; none where that has no place before somebody gives up.
pub async fn position_of_all(server: &Rc<Server>, gives_up: impl Fn() -> bool) -> Option<u64> {
    let (feed, log) = (&server.global.feed, &server.global.log);
    server.shard.call_all(|shard| shard.hand_over_records()).await;
    let pushed: Vec<u64> = (0..server.shard.count).map(|shard| feed.pushed(shard)).collect();
    while feed.drain().placed().iter().zip(&pushed).any(|(placed, pushed)| placed < pushed) {
        // Parts of transactions are late.
        if gives_up() {
            return None;
        }
        log.look();
        sleep(FIRST_LOOK).await;
    }
    Some(feed.position())
}

/// Asks replicas how far they are, where nobody has since they could have come so far.
pub fn ask(server: &Server, position: u64) {
    if server.global.replication.has_replicas() && server.global.replication.is_to_ask(position) {
        server.global.log.say(server.shard.id, GETACK.into());
        drop(server.global.feed.drain());
    }
}

/// Until when a request waits, store microseconds; none where there is no end.
fn until_us(request: Request, index: usize) -> Result<Option<u64>> {
    Ok(match milliseconds(request.arg(index))? {
        Wait::For(Some(us)) => Some(store_us().saturating_add(us)),
        Wait::For(None) | Wait::Never => None,
    })
}

/// The same while there is a stream, for who waits until then.
async fn position_of_stream(server: &Rc<Server>, until_us: Option<u64>) -> Option<u64> {
    match server.global.feed.is_streamed() {
        true => position_of_all(server, || until_us.is_some_and(|until_us| store_us() >= until_us)).await,
        false => Some(0),
    }
}

/// WAIT: how many replicas have what was written so far.
pub async fn wait(ctx: TaskCtx) -> Result<Vec<u8>> {
    let (server, request) = (&ctx.server, ctx.request.as_request());
    if server.global.following.is_replica() {
        return Err(ON_REPLICA);
    }
    let replicas = request.int(1)?;
    let until_us = until_us(request, 2)?;
    let position = position_of_stream(server, until_us).await;
    let count = || position.map_or(0, |position| server.global.replication.acked_by(position) as i64);
    if let Some(position) = position
        && count() < replicas
        && !ctx.in_exec
    {
        ask(server, position);
        wait_until(&ctx, until_us, LOOK_AT_REPLICAS, || count() >= replicas).await?;
    }
    let count = count();
    Ok(ctx.reply(|reply| reply.int(count)))
}

/// WAITAOF: whether this server's disk, and those of how many replicas, have what was written so far.
pub async fn waitaof(ctx: TaskCtx) -> Result<Vec<u8>> {
    let (server, request) = (&ctx.server, ctx.request.as_request());
    let local = request.int(1)?;
    if !(0..=1).contains(&local) {
        return Err(Error::text("ERR value is out of range, must be between 0 and 1"));
    }
    let replicas = request.int(2)?;
    if replicas < 0 {
        return Err(Error::text("ERR value is out of range, must be positive"));
    }
    let until_us = until_us(request, 3)?;
    if server.global.following.is_replica() {
        return Err(AOF_ON_REPLICA);
    }
    let is_off = || local == 1 && !server.global.log.is_on();
    if is_off() {
        return Err(NO_LOG);
    }
    server.shard.call_all(|shard| shard.hand_over_records()).await;
    let log = &server.global.log;
    let pushed: Vec<u64> = (0..server.shard.count).map(|shard| log.pushed(shard)).collect();
    let is_synced = || log.is_on() && pushed.iter().enumerate().all(|(shard, pushed)| log.synced(shard) >= *pushed);
    let position = position_of_stream(server, until_us).await;
    let count = || position.map_or(0, |position| server.global.replication.synced_by(position) as i64);
    let is_done = || count() >= replicas && (local == 0 || is_synced());
    if !is_done() && !ctx.in_exec {
        let longest = if replicas == 0 { LOOK_AT_LOG } else { LOOK_AT_REPLICAS };
        if let Some(position) = position.filter(|_| replicas > 0) {
            ask(server, position);
        }
        wait_until(&ctx, until_us, longest, || is_done() || is_off()).await?;
    }
    if is_off() {
        return Err(NO_LOG);
    }
    let (synced, count) = (i64::from(is_synced()), count());
    Ok(ctx.reply(|reply| {
        reply.array(2);
        reply.int(synced);
        reply.int(count);
    }))
}

/// Waits until there is what is wanted, as a command that waits for a key does: CLIENT UNBLOCK and the end of the connection
/// end it.
async fn wait_until(ctx: &TaskCtx, until_us: Option<u64>, longest: Duration, is_done: impl Fn() -> bool) -> Result {
    let (server, client) = (&ctx.server, &ctx.client);
    let blocked = Rc::new(Blocked { has_timeout: until_us.is_some(), ..Blocked::default() });
    let until_us = until_us.unwrap_or(u64::MAX);
    server.waits.add(client.id, blocked.clone());
    server.logging.add_alarm(client.id, blocked.clone());
    client.state.borrow_mut().flow.blocked = true;
    // Whoever ends all waits when this server becomes a replica may have looked before this wait began.
    if server.global.following.is_replica() {
        blocked.end.set(Some(End::NewRole));
    }
    if client.state.borrow().flow.finished {
        close_now(server, client);
    }
    // It is read on from now, however much it has said: nothing else would tell that it has hung up.
    settle(server, client);
    let mut look = FIRST_LOOK.min(longest);
    loop {
        server.logging.await_disk();
        if is_done() || blocked.end.get().is_some() || store_us() >= until_us {
            break;
        }
        let left = Duration::from_micros(until_us.saturating_sub(store_us()));
        or(blocked.alarm.wait(), sleep(left.min(look))).await;
        look = (2 * look).min(longest);
    }
    server.logging.remove_alarm(client.id);
    server.waits.remove(client.id);
    client.state.borrow_mut().flow.blocked = false;
    match blocked.end.get() {
        Some(End::Error) => Err(UNBLOCKED),
        Some(End::NewRole) => {
            client.state.borrow_mut().session.close = Close::AfterReplies;
            Err(NEW_ROLE)
        }
        _ => Ok(()),
    }
}

/// The server does not end: writes go on.
pub async fn go_on(server: &Rc<Server>) {
    server.global.pauses.set(By::Shutdown, 0);
    server.shard.call_all(pauses::follow).await;
}

/// Before the server ends: writes wait until all replicas have everything, for as long as `shutdown-timeout` says. An error
/// where SHUTDOWN ABORT has come meanwhile.
pub async fn let_catch_up(server: &Rc<Server>) -> Result {
    let (global, config) = (&server.global, server.shard.config());
    let has_everything = |position: u64| global.replication.replicas().iter().all(|replica| replica.has(position));
    if config.shutdown_timeout_s == 0 || !global.replication.has_replicas() || global.feed.is_relayed() {
        return Ok(());
    }
    global.pauses.set(By::Shutdown, u64::MAX);
    server.shard.call_all(pauses::follow).await;
    let until_us = store_us().saturating_add(config.shutdown_timeout_s.saturating_mul(1_000_000));
    let position = position_of_all(server, || store_us() >= until_us).await.unwrap_or(u64::MAX);
    let mut is_aborted = false;
    if !has_everything(position) {
        log::notice(format_args!("Waiting for replicas before shutting down."));
        global.replication.ends.begin(until_us);
        ask(server, position);
        let mut look = FIRST_LOOK;
        while !has_everything(position) && store_us() < until_us && !global.replication.ends.is_aborted() {
            sleep(look).await;
            look = (2 * look).min(LOOK_AT_REPLICAS);
        }
        is_aborted = global.replication.ends.is_aborted();
        global.replication.ends.end();
    }
    if is_aborted {
        go_on(server).await;
        log::warning(format_args!("Shutdown manually aborted."));
        return Err(Error::text("ERR Errors trying to SHUTDOWN. Check logs."));
    }
    tell_who_lags(server, position);
    Ok(())
}

/// For whoever reads afterwards what was lost.
fn tell_who_lags(server: &Server, position: u64) {
    let replicas = server.global.replication.replicas();
    for replica in replicas.iter().filter(|replica| !replica.has(position)) {
        let (address, port, behind) =
            (&replica.address, replica.port, server.global.feed.position().saturating_sub(replica.acked()));
        let (lag_s, state) = (replica.lag_s(), replica.stage().word());
        log::warning(format_args!(
            "Lagging replica {address}:{port} reported offset {behind} behind master, lag={lag_s}, state={state}."
        ));
    }
    let (all, near) = (replicas.len(), replicas.iter().filter(|replica| replica.has(position)).count());
    log::notice(format_args!("{near} of {all} replicas are in sync when shutting down."));
}
