//! SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF, WAITAOF.

use super::server_spec;
use crate::clock::store_us;
use crate::command::spec::flag::{ADMIN, BLOCKING, FAST, LOADING, NO_ASYNC_LOADING, NO_MULTI, NO_SCRIPT, STALE};
use crate::command::spec::{Row, Spec, tip};
use crate::net::sleep;
use crate::resp::{Error, Result};
use crate::server::client::session::Close;
use crate::server::kept::rewriting;
use crate::server::kept::saving;
use crate::server::state::waits::{Blocked, End, NEW_ROLE, UNBLOCKED};
use crate::server::state::{Run, TaskCtx};
use crate::server::told::output::{close_now, settle};
use futures_lite::future::or;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            summary: "Writes everything to disk, as of this moment, while others wait.",
            ..server_spec(
                "save",
                1,
                ADMIN | NO_ASYNC_LOADING | NO_SCRIPT | NO_MULTI,
                "1.0.0",
                "O(n) in the bytes of all keys",
            )
        },
        Run::Task(|ctx| Box::pin(save(ctx))),
    ),
    Row::new(
        Spec {
            summary: "Begins to write everything to disk, as of this moment, while others are served.",
            syntax: "[schedule:SCHEDULE]",
            ..server_spec("bgsave", -1, ADMIN | NO_ASYNC_LOADING | NO_SCRIPT, "1.0.0", "O(1)")
        },
        Run::Task(|ctx| Box::pin(bgsave(ctx))),
    ),
    Row::new(
        Spec {
            summary: "Begins to write the append-only log anew, from what there is, while others are served.",
            ..server_spec("bgrewriteaof", 1, ADMIN | NO_ASYNC_LOADING | NO_SCRIPT, "1.0.0", "O(1)")
        },
        Run::Task(|ctx| Box::pin(bgrewriteaof(ctx))),
    ),
    Row::new(
        Spec {
            summary: "Waits until the log is on the disk with everything that was written so far.",
            syntax: "numlocal:integer numreplicas:integer timeout:integer",
            ..server_spec("waitaof", 4, NO_SCRIPT | BLOCKING, "7.2.0", "O(1)")
        },
        Run::Task(|ctx| Box::pin(waitaof(ctx))),
    )
    .tips(&[tip::ASK_ALL_SHARDS, tip::AGG_MIN]),
    Row::new(
        Spec {
            summary: "Returns when everything was written to disk last, in seconds since 1970; first the start.",
            ..server_spec("lastsave", 1, LOADING | STALE | FAST, "1.0.0", "O(1)")
        },
        Run::Session(|ctx, _| {
            let last_save_s = &ctx.server.global.snapshots.last_save_s;
            ctx.reply.int(last_save_s.load(Ordering::Relaxed) as i64);
            Ok(())
        }),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
];

async fn bgsave(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    if request.len() > 2 || request.len() == 2 && !request.is(1, "schedule") {
        return Err(Error::Syntax);
    }
    let global = &ctx.server.global;
    if global.appending.is_rewriting.load(Ordering::Relaxed) {
        if request.len() == 1 {
            return Err(Error::text(
                "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to \
                 schedule a BGSAVE whenever possible.",
            ));
        }
        global.snapshots.is_scheduled.store(true, Ordering::Relaxed);
        return Ok(ctx.reply(|reply| reply.simple("Background saving scheduled")));
    }
    let text = match ctx.in_exec {
        true => saving::save_later(&ctx.server).map(|()| "scheduled"),
        false => saving::save_beside(&ctx.server).await.map(|()| "started"),
    }?;
    Ok(ctx.reply(|reply| reply.simple(&format!("Background saving {text}"))))
}

async fn bgrewriteaof(ctx: TaskCtx) -> Result<Vec<u8>> {
    let has_begun = rewriting::rewrite_beside(&ctx.server)?;
    // Within a transaction it begins when that is over.
    let text = if has_begun && !ctx.in_exec { "started" } else { "scheduled" };
    Ok(ctx.reply(|reply| reply.simple(&format!("Background append only file rewriting {text}"))))
}

/// The longest time without a look: the log may be turned off.
const LOOK_EVERY: Duration = Duration::from_secs(1);

async fn waitaof(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    let local = request.int(1)?;
    if !(0..=1).contains(&local) {
        return Err(Error::text("ERR value is out of range, must be between 0 and 1"));
    }
    let replicas = request.int(2)?;
    if replicas < 0 {
        return Err(Error::text("ERR value is out of range, must be positive"));
    }
    let timeout = request.int(3).map_err(|_| Error::text("ERR timeout is not an integer or out of range"))?;
    let timeout = u64::try_from(timeout).map_err(|_| Error::text("ERR timeout is negative"))?;
    let is_off = || local == 1 && !ctx.server.global.log.is_on();
    if is_off() {
        return Err(NO_LOG);
    }
    ctx.server.shard.call_all(|shard| shard.hand_over_records()).await;
    let log = &ctx.server.global.log;
    let pushed: Vec<u64> = (0..ctx.server.shard.count).map(|shard| log.pushed(shard)).collect();
    let is_synced = || log.is_on() && pushed.iter().enumerate().all(|(shard, pushed)| log.synced(shard) >= *pushed);
    // There are no replicas.
    let is_done = || replicas == 0 && (local == 0 || is_synced());
    if !is_done() && !ctx.in_exec {
        let until_us = if timeout == 0 { u64::MAX } else { store_us().saturating_add(timeout.saturating_mul(1_000)) };
        wait_until(&ctx, until_us, || is_done() || is_off()).await?;
    }
    if is_off() {
        return Err(NO_LOG);
    }
    let synced = i64::from(is_synced());
    Ok(ctx.reply(|reply| {
        reply.array(2);
        reply.int(synced);
        reply.int(0);
    }))
}

const NO_LOG: Error = Error::text("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");

/// Waits until the disk has what is wanted, as a command that waits for a key does: CLIENT UNBLOCK and the end of the
/// connection end it.
async fn wait_until(ctx: &TaskCtx, until_us: u64, is_done: impl Fn() -> bool) -> Result {
    let (server, client) = (&ctx.server, &ctx.client);
    let blocked = Rc::<Blocked>::default();
    server.waits.add(client.id, blocked.clone());
    server.logging.add_alarm(client.id, blocked.clone());
    client.state.borrow_mut().flow.blocked = true;
    if client.state.borrow().flow.finished {
        close_now(server, client);
    }
    // It is read on from now, however much it has said: nothing else would tell that it has hung up.
    settle(server, client);
    loop {
        server.logging.await_disk();
        if is_done() || blocked.end.get().is_some() || store_us() >= until_us {
            break;
        }
        let left = Duration::from_micros(until_us.saturating_sub(store_us()));
        or(blocked.alarm.wait(), sleep(left.min(LOOK_EVERY))).await;
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

async fn save(ctx: TaskCtx) -> Result<Vec<u8>> {
    saving::save(&ctx.server).await?;
    Ok(ctx.reply(|reply| reply.ok()))
}
