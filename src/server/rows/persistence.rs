//! SAVE, LASTSAVE.

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
            summary: "Is to write everything to disk while others are served, and is not available yet.",
            syntax: "[schedule:SCHEDULE]",
            ..server_spec("bgsave", -1, ADMIN | NO_SCRIPT, "1.0.0", "O(1)")
        },
        Run::Session(|_, _| {
            Err(Error::text("ERR BGSAVE is not available yet: SAVE writes a snapshot while others wait"))
        }),
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

async fn save(ctx: TaskCtx) -> Result<Vec<u8>> {
    saving::save(&ctx.server).await?;
    Ok(ctx.reply(|reply| reply.ok()))
}
