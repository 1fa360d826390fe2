//! MONITOR.

use super::server_spec;
use crate::command::spec::flag::{ADMIN, LOADING, NO_SCRIPT, STALE};
use crate::command::spec::{Row, Spec};
use crate::resp::{Error, Request, Result};
use crate::server::state::{Run, SessionCtx};
use crate::server::told::monitor as monitors;

pub const ROWS: &[Row<Run>] = &[Row::new(
    Spec {
        summary: "Shows every command that the server runs, until RESET or the end of the connection.",
        ..server_spec("monitor", 1, ADMIN | NO_SCRIPT | LOADING | STALE, "1.0.0", "O(1)")
    },
    Run::Session(monitor),
)];

fn monitor(ctx: &mut SessionCtx, _: Request) -> Result {
    if ctx.in_exec {
        return Err(Error::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    // Who monitors already is not answered, as in Redis: what comes is a line of what was done.
    if !ctx.session.monitors {
        monitors::begin(ctx.server, ctx.session);
        ctx.reply.ok();
    }
    Ok(())
}
