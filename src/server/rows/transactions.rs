//! MULTI, EXEC, DISCARD, GUARD, WATCH, UNWATCH.

use crate::command::spec::flag::{
    ALLOW_BUSY, BY_CALLEE, ENDS_MULTI, FAST, LOADING, MOVABLE_KEYS, NO_SCRIPT, SKIP_SLOWLOG, STALE,
};
use crate::command::spec::{Group, Keys, Row, Secrets, Spec};
use crate::resp::{Request, Result};
use crate::server::client::multi::Verb;
use crate::server::run::watch::{unwatch, watch};
use crate::server::state::{Run, SessionCtx};

const ALWAYS: u32 = NO_SCRIPT | LOADING | STALE | ALLOW_BUSY;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            summary: "Begins a transaction: commands are queued until EXEC.",
            ..spec("multi", ALWAYS | FAST, "O(1)", "1.2.0")
        },
        Run::Multi(Verb::Multi),
    ),
    Row::new(
        Spec {
            summary: "Runs the queued commands in one moment, unless a watched key has changed.",
            ..spec("exec", NO_SCRIPT | LOADING | STALE | SKIP_SLOWLOG | ENDS_MULTI, "Depends on the commands", "1.2.0")
        },
        Run::Multi(Verb::Exec),
    ),
    Row::new(
        Spec {
            summary: "Forgets the queued commands and the watched keys.",
            ..spec("discard", ALWAYS | FAST | ENDS_MULTI, "O(n) in the number of queued commands", "2.0.0")
        },
        Run::Multi(Verb::Discard),
    ),
    Row::new(
        Spec {
            arity: -4,
            keys: Keys::ONE,
            summary: "Runs a command, EXEC or a script in the same moment in which a lease is alive and has this token.",
            syntax: "key token:integer command [argument...]",
            ..spec("guard", NO_SCRIPT | MOVABLE_KEYS | SKIP_SLOWLOG | BY_CALLEE, "That of the command", "0.1.0")
        },
        Run::Multi(Verb::Guard),
    )
    .hiding(Secrets::Inner(3)),
    Row::new(
        Spec {
            arity: -2,
            keys: Keys::ALL,
            summary: "Watches keys: EXEC fails when one of them has changed.",
            syntax: "key...",
            ..spec("watch", ALWAYS | FAST, "O(1) for each key", "2.2.0")
        },
        Run::Task(|ctx| Box::pin(watch(ctx))),
    ),
    Row::new(
        Spec {
            summary: "Forgets the watched keys.",
            ..spec("unwatch", ALWAYS | FAST, "O(n) in the number of watched keys", "2.2.0")
        },
        Run::Session(forget),
    ),
];

const fn spec(name: &'static str, flags: u32, complexity: &'static str, since: &'static str) -> Spec {
    Spec {
        name,
        arity: 1,
        flags,
        keys: Keys::NONE,
        group: Group::Transactions,
        since,
        complexity,
        summary: "",
        syntax: "",
    }
}

fn forget(ctx: &mut SessionCtx, _: Request) -> Result {
    unwatch(&ctx.server.shard, ctx.session.watched.take());
    ctx.reply.ok();
    Ok(())
}
