//! SAVE, BGSAVE, LASTSAVE.

use super::server_spec;
use crate::command::spec::flag::{ADMIN, FAST, LOADING, NO_MULTI, NO_SCRIPT, STALE};
use crate::command::spec::{Row, Spec};
use crate::resp::{Error, Result};
use crate::server::saving;
use crate::server::server::{Run, TaskCtx};
use std::sync::atomic::Ordering;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            summary: "Writes everything to disk, as of this moment, while others wait.",
            ..server_spec("save", 1, ADMIN | NO_SCRIPT | NO_MULTI, "1.0.0", "O(n) in the bytes of all keys")
        },
        Run::Task(|ctx| Box::pin(save(ctx))),
    ),
    Row::new(
        Spec {
            summary: "Begins to write everything to disk, as of this moment, while others are served.",
            syntax: "[schedule:SCHEDULE]",
            ..server_spec("bgsave", -1, ADMIN | NO_SCRIPT, "1.0.0", "O(1)")
        },
        Run::Task(|ctx| Box::pin(bgsave(ctx))),
    ),
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
    ),
];

/// (There is no rewriting of a log that SCHEDULE would have to wait for.)
async fn bgsave(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    if request.len() > 2 || request.len() == 2 && !request.is(1, "schedule") {
        return Err(Error::Syntax);
    }
    match ctx.in_exec {
        true => saving::save_later(&ctx.server)?,
        false => saving::save_beside(&ctx.server).await?,
    }
    Ok(ctx.reply(|reply| reply.simple("Background saving started")))
}

async fn save(ctx: TaskCtx) -> Result<Vec<u8>> {
    saving::save(&ctx.server).await?;
    Ok(ctx.reply(|reply| reply.ok()))
}
