//! SYNC, PSYNC, REPLCONF, ROLE, as far as tools need them that want a snapshot, and FAILOVER and REPLICAOF. There are no
//! replicas.

use super::server_spec;
use crate::command::spec::flag::{ADMIN, ALLOW_BUSY, FAST, LOADING, NO_ASYNC_LOADING, NO_MULTI, NO_SCRIPT, STALE};
use crate::command::spec::{Row, Spec};
use crate::resp::{Error, Request, Result, printable};
use crate::server::client::session::Contents;
use crate::server::kept::sync;
use crate::server::state::{Run, SessionCtx, TaskCtx};

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            summary: "Sends a snapshot as of this moment to who has said REPLCONF rdb-only 1.",
            ..server_spec(
                "sync",
                1,
                ADMIN | NO_ASYNC_LOADING | NO_SCRIPT | NO_MULTI,
                "1.0.0",
                "O(n) in the bytes of all keys",
            )
        },
        Run::Task(|ctx| Box::pin(sync(ctx))),
    ),
    Row::new(
        Spec {
            summary: "Sends a snapshot, as SYNC does, behind a line that names it.",
            syntax: "replicationid:string offset:integer",
            ..server_spec(
                "psync",
                -3,
                ADMIN | NO_ASYNC_LOADING | NO_SCRIPT | NO_MULTI,
                "2.8.0",
                "O(n) in the bytes of all keys",
            )
        },
        Run::Task(|ctx| Box::pin(psync(ctx))),
    ),
    Row::new(
        Spec {
            summary: "Says what the connection wants of SYNC.",
            ..server_spec("replconf", -1, ADMIN | NO_SCRIPT | LOADING | STALE | ALLOW_BUSY, "3.0.0", "O(1)")
        },
        Run::Session(replconf),
    )
    .for_the_system(),
    Row::new(
        Spec {
            summary: "Returns the role of the server: a primary, without replicas.",
            ..server_spec("role", 1, NO_SCRIPT | LOADING | STALE | FAST, "2.8.12", "O(1)")
        },
        Run::Session(|ctx, _| {
            ctx.reply.array(3);
            ctx.reply.bulk(b"master");
            ctx.reply.int(0);
            ctx.reply.array(0);
            Ok(())
        }),
    ),
    Row::new(
        Spec {
            summary: "Is refused: there is no replica to take over.",
            syntax: "[TO target:(host port:integer [FORCE])] [ABORT] [TIMEOUT milliseconds:integer]",
            ..server_spec("failover", -1, ADMIN | NO_SCRIPT | STALE, "6.2.0", "O(1)")
        },
        Run::Session(failover),
    ),
    Row::new(
        Spec {
            summary: "Is refused, but for NO ONE, which the server follows already.",
            syntax: "host:string port:integer",
            ..server_spec("replicaof", 3, ADMIN | NO_ASYNC_LOADING | NO_SCRIPT | STALE, "5.0.0", "O(1)")
        },
        Run::Session(replicaof),
    ),
    Row::new(
        Spec {
            summary: "Is REPLICAOF, by its old name.",
            syntax: "host:string port:integer",
            ..server_spec("slaveof", 3, ADMIN | NO_ASYNC_LOADING | NO_SCRIPT | STALE, "1.0.0", "O(1)")
        },
        Run::Session(replicaof),
    )
    .deprecated("5.0.0", "`REPLICAOF`"),
];

fn replicaof(ctx: &mut SessionCtx, request: Request) -> Result {
    if request.is(1, "no") && request.is(2, "one") {
        ctx.reply.ok();
        return Ok(());
    }
    match request.int(2) {
        Ok(0..=65_535) => Err(Error::text("ERR replication is not supported: this server follows no other one")),
        _ => Err(Error::text("ERR Invalid master port")),
    }
}

/// Mistakes are found before it is said that there are no replicas, as in Redis.
fn failover(_: &mut SessionCtx, request: Request) -> Result {
    if request.len() == 2 && request.is(1, "abort") {
        return Err(Error::text("ERR No failover in progress."));
    }
    let (mut has_target, mut has_timeout, mut is_forced) = (false, false, false);
    let mut at = 1;
    while at < request.len() {
        let more = request.len() - at - 1;
        if request.is(at, "timeout") && more >= 1 && !has_timeout {
            if request.int(at + 1)? <= 0 {
                return Err(Error::text("ERR FAILOVER timeout must be greater than 0"));
            }
            has_timeout = true;
            at += 2;
        } else if request.is(at, "to") && more >= 2 && !has_target {
            request.int(at + 2)?;
            has_target = true;
            at += 3;
        } else if request.is(at, "force") && !is_forced {
            is_forced = true;
            at += 1;
        } else {
            return Err(Error::Syntax);
        }
    }
    Err(Error::text("ERR FAILOVER requires connected replicas."))
}

async fn sync(ctx: TaskCtx) -> Result<Vec<u8>> {
    sync::send(&ctx, b"").await
}

async fn psync(ctx: TaskCtx) -> Result<Vec<u8>> {
    // Nothing goes on from any offset; but it has to be one.
    ctx.request.as_request().int(2)?;
    let first = format!("+FULLRESYNC {} 0\r\n", ctx.server.global.replication.ids().id);
    sync::send(&ctx, first.as_bytes()).await
}

/// The longest address that Redis takes.
const ADDRESS_BYTES_MAX: usize = 255;

fn replconf(ctx: &mut SessionCtx, request: Request) -> Result {
    if request.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    let mut asked = ctx.session.asked;
    for index in (1..request.len()).step_by(2) {
        let value = request.arg(index + 1);
        if request.is(index, "listening-port") {
            // Nobody connects to a replica here.
            request.int(index + 1)?;
        } else if request.is(index, "ip-address") {
            if value.len() > ADDRESS_BYTES_MAX {
                let bytes = value.len();
                return Err(Error::err(format_args!(
                    "REPLCONF ip-address provided by replica instance is too long: {bytes} bytes"
                )));
            }
        } else if request.is(index, "capa") {
            // A snapshot comes with its length, which everybody understands.
        } else if request.is(index, "ack") || request.is(index, "getack") {
            // These have no reply.
            return Ok(());
        } else if request.is(index, "rdb-only") {
            asked.rdb_only = match request.int(index + 1)? {
                0 => false,
                1 => true,
                _ => return Err(Error::text("ERR value is out of range, value must between 0 and 1")),
            };
        } else if request.is(index, "rdb-filter-only") {
            asked.contents = filtered(value)?;
        } else {
            let name = printable(request.arg(index), 128);
            return Err(Error::quoting(&[b"ERR Unrecognized REPLCONF option: ", name]));
        }
        ctx.session.asked = asked;
    }
    ctx.reply.ok();
    Ok(())
}

/// What is wanted of a snapshot: these words, and nothing else.
fn filtered(words: &[u8]) -> Result<Contents> {
    let mut contents = Contents::Nothing;
    for word in words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        if !word.eq_ignore_ascii_case(b"functions") {
            return Err(Error::quoting(&[b"ERR Unsupported rdb-filter-only option: ", printable(word, 128)]));
        }
        contents = Contents::Functions;
    }
    Ok(contents)
}
