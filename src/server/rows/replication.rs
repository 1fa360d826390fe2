//! SYNC, PSYNC, REPLCONF, WAIT, ROLE, FAILOVER and REPLICAOF.

use super::server_spec;
use crate::clock::realtime_us;
use crate::command::spec::flag::{ADMIN, ALLOW_BUSY, FAST, LOADING, NO_ASYNC_LOADING, NO_MULTI, NO_SCRIPT, STALE};
use crate::command::spec::{Group, Row, Spec, tip};
use crate::config::Primary;
use crate::resp::{Error, Request, Result, printable};
use crate::server::client::replica::Stage;
use crate::server::client::session::Contents;
use crate::server::facts::online_replicas;
use crate::server::replication::{failover, following, psync, waiting};
use crate::server::state::{Run, SessionCtx, TaskCtx};
use crate::server::wire::journal;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            summary: "Sends a snapshot as of this moment, and every change behind it.",
            ..server_spec(
                "sync",
                1,
                ADMIN | NO_ASYNC_LOADING | NO_SCRIPT | NO_MULTI,
                "1.0.0",
                "O(n) in the bytes of all keys",
            )
        },
        Run::Task(|ctx| Box::pin(psync::sync(ctx))),
    ),
    Row::new(
        Spec {
            summary: "Sends every change from an offset on, or a snapshot first where these are not kept.",
            syntax: "replicationid:string offset:integer",
            ..server_spec(
                "psync",
                -3,
                ADMIN | NO_ASYNC_LOADING | NO_SCRIPT | NO_MULTI,
                "2.8.0",
                "O(n) in the bytes of all keys",
            )
        },
        Run::Task(|ctx| Box::pin(psync::psync(ctx))),
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
            summary: "Waits until so many replicas have what was written so far.",
            syntax: "numreplicas:integer timeout:integer",
            group: Group::Generic,
            ..server_spec("wait", 3, NO_SCRIPT, "3.0.0", "O(1)")
        },
        Run::Task(|ctx| Box::pin(waiting::wait(ctx))),
    )
    .tips(&[tip::ASK_ALL_SHARDS, tip::AGG_MIN]),
    Row::new(
        Spec {
            summary: "Returns the role of the server: a primary, with its replicas.",
            ..server_spec("role", 1, NO_SCRIPT | LOADING | STALE | FAST, "2.8.12", "O(1)")
        },
        Run::Session(role),
    ),
    Row::new(
        Spec {
            summary: "Hands over to a replica that has everything, and follows it.",
            syntax: "[TO target:(host port:integer [FORCE])] [ABORT] [TIMEOUT milliseconds:integer]",
            ..server_spec("failover", -1, ADMIN | NO_SCRIPT | STALE, "6.2.0", "O(1)")
        },
        Run::Task(|ctx| Box::pin(failover::failover(ctx))),
    ),
    Row::new(
        Spec {
            summary: "Makes this server a replica of another one, or, with NO ONE, a primary.",
            syntax: "host:string port:integer",
            ..server_spec("replicaof", 3, ADMIN | NO_ASYNC_LOADING | NO_SCRIPT | STALE, "5.0.0", "O(1)")
        },
        Run::Task(|ctx| Box::pin(replicaof(ctx))),
    ),
    Row::new(
        Spec {
            summary: "Is REPLICAOF, by its old name.",
            syntax: "host:string port:integer",
            ..server_spec("slaveof", 3, ADMIN | NO_ASYNC_LOADING | NO_SCRIPT | STALE, "1.0.0", "O(1)")
        },
        Run::Task(|ctx| Box::pin(replicaof(ctx))),
    )
    .deprecated("5.0.0", "`REPLICAOF`"),
];

fn role(ctx: &mut SessionCtx, _: Request) -> Result {
    let global = &ctx.server.global;
    let position = global.feed.position() as i64;
    if let Some(link) = global.following.facts() {
        ctx.reply.array(5);
        ctx.reply.bulk(b"slave");
        ctx.reply.bulk(link.primary.host.as_bytes());
        ctx.reply.int(i64::from(link.primary.port));
        ctx.reply.bulk(link.stage.word().as_bytes());
        ctx.reply.int(if link.is_up { position } else { -1 });
        return Ok(());
    }
    ctx.reply.array(3);
    ctx.reply.bulk(b"master");
    ctx.reply.int(position);
    let replicas = online_replicas(&global.replication);
    ctx.reply.array(replicas.len());
    for replica in replicas {
        ctx.reply.array(replica.len());
        replica.iter().for_each(|field| ctx.reply.bulk(field.as_bytes()));
    }
    Ok(())
}

async fn replicaof(ctx: TaskCtx) -> Result<Vec<u8>> {
    let (server, request) = (&ctx.server, ctx.request.as_request());
    if server.global.replication.failover.is_under_way() {
        return Err(Error::text("ERR REPLICAOF not allowed while failing over."));
    }
    if request.is(1, "no") && request.is(2, "one") {
        following::stand_alone(server, ctx.in_exec).await;
        return Ok(ctx.reply(|reply| reply.ok()));
    }
    if ctx.client.state.borrow().session.replica.is_some() {
        return Err(Error::text("ERR Command is not valid when client is a replica."));
    }
    let port = request.int(2).ok().and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or(Error::text("ERR Invalid master port"))?;
    let host = String::from_utf8_lossy(request.arg(1)).into_owned();
    let primary = Primary { host, port };
    if server.global.following.target().is_some_and(|target| target.primary == primary) {
        return Ok(ctx.reply(|reply| reply.simple("OK Already connected to specified master")));
    }
    following::follow(server, primary, false).await;
    Ok(ctx.reply(|reply| reply.ok()))
}

/// What a server of this kind says that it can do: it takes deadlines of fields, and of members, groups of keys, and pins. (Who
/// says less is told of none of them.)
const KNOWS_PINS: &[u8] = b"key-pins";
/// It remembers how far this server's tokens of leases reach, and is told.
const KNOWS_TOKENS: &[u8] = b"lease-tokens";
/// The longest address that Redis takes.
const ADDRESS_BYTES_MAX: usize = 255;

fn replconf(ctx: &mut SessionCtx, request: Request) -> Result {
    if request.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    let (mut asked, mut asks_tokens) = (ctx.session.asked.clone(), false);
    for index in (1..request.len()).step_by(2) {
        let value = request.arg(index + 1);
        if request.is(index, "listening-port") {
            asked.port = request.int(index + 1)? as u16;
        } else if request.is(index, "ip-address") {
            if value.len() > ADDRESS_BYTES_MAX {
                let bytes = value.len();
                return Err(Error::err(format_args!(
                    "REPLCONF ip-address provided by replica instance is too long: {bytes} bytes"
                )));
            }
            asked.address = String::from_utf8_lossy(value).into_owned();
        } else if request.is(index, "capa") {
            // (What is not known is not used, as in Redis.)
            asked.takes_eof |= value.eq_ignore_ascii_case(b"eof");
            asked.takes_new_ids |= value.eq_ignore_ascii_case(b"psync2");
            asked.knows_fields |= value.eq_ignore_ascii_case(KNOWS_PINS);
            asks_tokens |= value.eq_ignore_ascii_case(KNOWS_TOKENS);
        } else if request.is(index, "ack") {
            // It has no reply.
            acknowledge(ctx, request, index);
            return Ok(());
        } else if request.is(index, "getack") {
            // What a primary asks, and not what it is asked. It has no reply.
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
        ctx.session.asked = asked.clone();
    }
    if asks_tokens {
        let horizon = ctx.server.global.tokens.horizon(realtime_us() / 1_000);
        ctx.reply.simple(&format!("OK {horizon}"));
        return Ok(());
    }
    ctx.reply.ok();
    Ok(())
}

/// A replica says how far it is, and how far that is on its disk (`REPLCONF ACK offset [FACK offset]`).
fn acknowledge(ctx: &mut SessionCtx, request: Request, index: usize) {
    let Some(replica) = &ctx.session.replica else { return };
    let offset_at = |index: usize| request.int(index).ok().and_then(|offset| u64::try_from(offset).ok());
    let Some(acked) = offset_at(index + 1) else { return };
    let synced = if request.len() > index + 3 && request.is(index + 2, "fack") { offset_at(index + 3) } else { None };
    // (What a replica says that it has and was never said to it counts for nothing.)
    let most = ctx.server.global.feed.position();
    replica.ack(acked.min(most), synced.map(|synced| synced.min(most)));
    let (server, client) = (ctx.server.clone(), replica.client);
    if server.following.begin(client) {
        replica.set_stage(Stage::Online);
        server.global.replication.count_near(&server.shard.config());
        // (Not within this connection's turn.)
        server.shard.defer({
            let server = server.clone();
            move || journal::show(&server)
        });
    }
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
