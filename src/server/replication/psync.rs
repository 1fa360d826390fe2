//! A replica comes, and is given what it lacks of the stream, or a snapshot and what comes behind that.

use super::following;
use super::payload;
use super::sending::{check, is_gone, keep_alive, send_all, tell};
use super::{minding, tools};
use crate::observe::log;
use crate::resp::{Error, Request, Result};
use crate::server::client::replica::{Replica, Stage};
use crate::server::client::session::Asked;
use crate::server::state::TaskCtx;
use crate::server::state::follower::Shows;
use crate::server::state::replication::random_id;
use crate::server::state::syncs::{Held, Payload};
use crate::server::told::output::{close_now, most_bytes_of_replica};
use crate::server::wire::journal;
use futures_lite::future::or;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const GONE: Error = Error::text("ERR the connection is gone");
const NO_LINK: Error = Error::text("NOMASTERLINK Can't SYNC while not connected with my master");
const PENDING: Error = Error::text("ERR SYNC and PSYNC are invalid with pending output");

pub async fn sync(ctx: TaskCtx) -> Result<Vec<u8>> {
    let asked = ctx.client.state.borrow().session.asked.clone();
    if asked.rdb_only {
        return tools::send(&ctx, b"").await;
    }
    let replica = come(&ctx, &asked)?;
    full(&ctx, &asked, replica, false).await
}

pub async fn psync(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    let offset = request.int(2)?;
    let asked = ctx.client.state.borrow().session.asked.clone();
    if asked.rdb_only {
        // Nothing goes on from any offset.
        let first = format!("+FULLRESYNC {} 0\r\n", ctx.server.global.replication.ids().id);
        return tools::send(&ctx, first.as_bytes()).await;
    }
    if request.len() > 3 && request.is(3, "failover") {
        take_over(&ctx, request).await?;
    }
    let replica = come(&ctx, &asked)?;
    match go_on(&ctx, request, offset, &replica) {
        Some(stream) => {
            begin_stream(&ctx, &asked, &replica, stream);
            Ok(Vec::new())
        }
        None => full(&ctx, &asked, replica, true).await,
    }
}

/// The server that is followed hands over to this one.
async fn take_over(ctx: &TaskCtx, request: Request<'_>) -> Result {
    let global = &ctx.server.global;
    if !global.following.is_replica() {
        return Err(Error::text("ERR PSYNC FAILOVER can't be sent to a master."));
    }
    if request.arg(1) != global.replication.ids().id.as_bytes() {
        return Err(Error::text("ERR PSYNC FAILOVER replid must match my replid."));
    }
    if global.log.refuses_writes() || global.snapshots.stops_writes(&ctx.server.shard.config()) {
        return Err(Error::text("MISCONF a primary has to take writes, and this server's disk takes none"));
    }
    log::notice(format_args!("Failover request received: this server becomes the primary"));
    following::stand_alone(&ctx.server, false).await;
    Ok(())
}

/// A connection is a replica from now on.
fn come(ctx: &TaskCtx, asked: &Asked) -> Result<Arc<Replica>> {
    let (server, client) = (&ctx.server, &ctx.client);
    check(client)?;
    if is_gone(client) {
        return Err(GONE);
    }
    if server.global.following.target().is_some_and(|target| !target.is_up) {
        return Err(NO_LINK);
    }
    let mut state = client.state.borrow_mut();
    if state.unsent() > 0 {
        return Err(PENDING);
    }
    let session = &mut state.session;
    if session.replica.is_some() {
        // As in Redis, which takes no notice of one that has come already.
        return Err(Error::text("ERR this connection is a replica already"));
    }
    let address = match asked.address.is_empty() {
        true => {
            session.peer.addr.rsplit_once(':').map_or("", |(address, _)| address).trim_matches(['[', ']']).to_owned()
        }
        false => asked.address.clone(),
    };
    let replica = Arc::new(Replica::new(client.id, server.shard.id, address, asked.port, asked.knows_fields));
    session.replica = Some(replica.clone());
    server.global.replication.add(replica.clone());
    if server.global.replication.has_old(&server.shard.config()) {
        server.global.feed.set_old(true);
        if server.global.replication.replicas().iter().any(|replica| replica.knows_fields) {
            log::warning(format_args!(
                "There are replicas which know of deadlines of fields and members, groups of keys and pins, and replicas which do \
                 not. There is one stream for all: nobody is told of these until the latter are gone"
            ));
        }
    }
    Ok(replica)
}

/// What is missing, where that is kept.
fn go_on(ctx: &TaskCtx, request: Request, offset: i64, replica: &Replica) -> Option<Held> {
    let (server, id) = (&ctx.server, request.arg(1));
    let replication = &server.global.replication;
    // (The offset is that of the first byte that is missing, and the first of all has the offset 1.)
    let position = u64::try_from(offset).ok().and_then(|offset| offset.checked_sub(1));
    let ids = replication.ids();
    let config = server.shard.config();
    let old_since = server.global.feed.old_since();
    // (What was said before is not for everybody.)
    let is_told_old = |position: u64| old_since.is_some_and(|since| since <= position);
    let known = position.filter(|position| {
        ids.covers(id, *position) && (!replication.takes_for_old(replica, &config) || is_told_old(*position))
    });
    let limit = most_bytes_of_replica(&config);
    let reader = known.and_then(|position| server.global.feed.read_from(position, server.shard.id, limit));
    match reader {
        Some(reader) => {
            replication.partial_syncs.fetch_add(1, Ordering::Relaxed);
            log::notice(format_args!("Partial resynchronization request from client id={} accepted.", ctx.client.id));
            Some(Held::new(server.global.feed.clone(), reader))
        }
        None => {
            if id != b"?" {
                replication.refused_partial_syncs.fetch_add(1, Ordering::Relaxed);
                log::notice(format_args!(
                    "Unable to partial resync with client id={}: what it lacks is not kept, or it has other data.",
                    ctx.client.id
                ));
            }
            None
        }
    }
}

fn begin_stream(ctx: &TaskCtx, asked: &Asked, replica: &Arc<Replica>, stream: Held) {
    match asked.takes_new_ids {
        true => tell(ctx, format!("+CONTINUE {}\r\n", ctx.server.global.replication.ids().id).as_bytes()),
        false => tell(ctx, b"+CONTINUE\r\n"),
    }
    replica.ack(stream.position(), None);
    show(ctx, replica, stream, Shows::Replica);
}

/// The stream is shown from now on.
fn show(ctx: &TaskCtx, replica: &Arc<Replica>, stream: Held, shows: Shows) {
    let (server, client) = (&ctx.server, &ctx.client);
    if is_gone(client) {
        return;
    }
    if let Some(reader) = stream.release() {
        server.following.add(client.clone(), reader, shows);
    }
    if shows == Shows::Replica {
        replica.set_stage(Stage::Online);
        server.global.replication.count_near(&server.shard.config());
    }
    minding::watch(server, client, replica);
    journal::show(server);
}

/// A snapshot, and what comes behind it.
async fn full(ctx: &TaskCtx, asked: &Asked, replica: Arc<Replica>, is_named: bool) -> Result<Vec<u8>> {
    let (server, client) = (&ctx.server, &ctx.client);
    server.global.replication.full_syncs.fetch_add(1, Ordering::Relaxed);
    log::notice(format_args!("Full resync requested by replica {}:{}", replica.address, replica.port));
    let takes_eof = asked.takes_eof && is_named;
    let payload = match or(payload::get(server, client, &replica, takes_eof), keep_alive(ctx)).await {
        Some(Ok(payload)) => payload,
        Some(Err(reason)) => {
            log::warning(format_args!("Client id={} closed: there is no snapshot for it: {reason}", client.id));
            close_now(server, client);
            return Ok(Vec::new());
        }
        None => {
            close_now(server, client);
            return Ok(Vec::new());
        }
    };
    replica.set_stage(Stage::Loads);
    let Payload { source, len, stream, id } = payload;
    if is_named {
        tell(ctx, format!("+FULLRESYNC {id} {}\r\n", stream.position()).as_bytes());
    }
    let mark = random_id(&mut fastrand::Rng::new());
    tell(ctx, len.map_or_else(|| format!("$EOF:{mark}\r\n"), |len| format!("${len}\r\n")).as_bytes());
    if let Err(reason) = send_all(ctx, source).await {
        log::warning(format_args!("Client id={} closed: its snapshot was not sent: {reason}", client.id));
        close_now(server, client);
        return Ok(Vec::new());
    }
    if len.is_none() {
        tell(ctx, mark.as_bytes());
    }
    // Behind a snapshot whose end is a mark nothing may come before the replica has seen that end.
    show(ctx, &replica, stream, if len.is_some() { Shows::Replica } else { Shows::ReplicaLater });
    Ok(Vec::new())
}
