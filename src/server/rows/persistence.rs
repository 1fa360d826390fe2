//! SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF, WAITAOF.

use super::server_spec;
use crate::command::spec::flag::{ADMIN, BLOCKING, FAST, LOADING, NO_ASYNC_LOADING, NO_MULTI, NO_SCRIPT, STALE};
use crate::command::spec::{Row, Spec, tip};
use crate::resp::{Error, Result};
use crate::server::kept::rewriting;
use crate::server::kept::saving;
use crate::server::replication::waiting;
use crate::server::state::{Run, TaskCtx};
use std::sync::atomic::Ordering;

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
        Run::Task(|ctx| Box::pin(waiting::waitaof(ctx))),
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

async fn save(ctx: TaskCtx) -> Result<Vec<u8>> {
    saving::save(&ctx.server).await?;
    Ok(ctx.reply(|reply| reply.ok()))
}
