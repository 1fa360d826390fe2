//! FAILOVER: this server hands over to one of its replicas, and follows it. Writes wait until that replica has everything, so that
//! nothing is lost.

use super::following;
use super::waiting::{FIRST_LOOK, LOOK_AT_REPLICAS, position_of_all};
use crate::clock::store_us;
use crate::config::Primary;
use crate::executor;
use crate::net::sleep;
use crate::observe::log;
use crate::resp::{Error, Request, Result};
use crate::server::client::replica::{Replica, Stage};
use crate::server::state::pauses::{self, By};
use crate::server::state::replication::Failover;
use crate::server::state::{Server, TaskCtx};
use std::rc::Rc;
use std::sync::Arc;

/// What is asked for.
#[derive(Default)]
struct Asked {
    target: Option<Primary>,
    timeout_ms: Option<u64>,
    is_forced: bool,
}

impl Asked {
    fn parse(request: Request) -> Result<Asked> {
        let mut asked = Asked::default();
        let mut at = 1;
        while at < request.len() {
            let more = request.len() - at - 1;
            if request.is(at, "timeout") && more >= 1 && asked.timeout_ms.is_none() {
                let timeout_ms = u64::try_from(request.int(at + 1)?).ok().filter(|ms| *ms > 0);
                let timeout_ms = timeout_ms.ok_or(Error::text("ERR FAILOVER timeout must be greater than 0"))?;
                asked.timeout_ms = Some(timeout_ms);
                at += 2;
            } else if request.is(at, "to") && more >= 2 && asked.target.is_none() {
                let host = String::from_utf8_lossy(request.arg(at + 1)).into_owned();
                let port = u16::try_from(request.int(at + 2)?).unwrap_or(0);
                asked.target = Some(Primary { host, port });
                at += 3;
            } else if request.is(at, "force") && !asked.is_forced {
                asked.is_forced = true;
                at += 1;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(asked)
    }
}

pub async fn failover(ctx: TaskCtx) -> Result<Vec<u8>> {
    let (server, request) = (&ctx.server, ctx.request.as_request());
    let replication = &server.global.replication;
    if request.len() == 2 && request.is(1, "abort") {
        if !replication.failover.abort() {
            return Err(Error::text("ERR No failover in progress."));
        }
        while replication.failover.is_under_way() {
            sleep(FIRST_LOOK).await;
        }
        return Ok(ctx.reply(|reply| reply.ok()));
    }
    let asked = Asked::parse(request)?;
    if replication.failover.is_under_way() {
        return Err(Error::text("ERR FAILOVER already in progress."));
    }
    if server.global.following.is_replica() {
        return Err(Error::text("ERR FAILOVER is not valid when server is a replica."));
    }
    if !replication.has_replicas() {
        return Err(Error::text("ERR FAILOVER requires connected replicas."));
    }
    if asked.is_forced && (asked.timeout_ms.is_none() || asked.target.is_none()) {
        return Err(Error::text("ERR FAILOVER with force option requires both a timeout and target HOST and IP."));
    }
    if let Some(target) = &asked.target {
        let found = replication.replicas().into_iter().find(|replica| is_at(replica, target));
        let found = found.ok_or(Error::text("ERR FAILOVER target HOST and PORT is not a replica."))?;
        if found.stage() != Stage::Online {
            return Err(Error::text("ERR FAILOVER target replica is not online."));
        }
    }
    if !replication.failover.begin() {
        return Err(Error::text("ERR FAILOVER already in progress."));
    }
    log::notice(format_args!("FAILOVER requested."));
    let server = server.clone();
    executor::spawn(async move { hand_over(&server, asked).await });
    Ok(ctx.reply(|reply| reply.ok()))
}

fn is_at(replica: &Arc<Replica>, target: &Primary) -> bool {
    replica.address == target.host && replica.port == target.port
}

async fn hand_over(server: &Rc<Server>, asked: Asked) {
    let global = &server.global;
    global.pauses.set(By::Failover, u64::MAX);
    server.shard.call_all(pauses::follow).await;
    match wait_for_one(server, &asked).await {
        Ok(target) => follow(server, target).await,
        Err(reason) => log::warning(format_args!("Failover aborted: {reason}")),
    }
    global.replication.failover.end();
    global.pauses.set(By::Failover, 0);
    server.shard.call_all(pauses::follow).await;
}

/// What was under way when the pause began ends, and the deaths that wait are written, so that the replica has all of that.
/// Whether there was time for it.
async fn finish(server: &Rc<Server>, gives_up: impl Fn() -> bool) -> bool {
    let shard = &server.shard;
    shard.let_admitted_arrive().await;
    let all: Vec<_> = shard.everything().collect();
    if shard.hold_in_turn(&all, || gives_up().then_some(())).await.is_err() {
        return false;
    }
    shard.call_all(|shard| shard.write_deaths_in_pause(true)).await;
    let is_done = loop {
        if gives_up() {
            break false;
        }
        if !shard.call_all(|shard| shard.has_deaths()).await.contains(&true) {
            break true;
        }
        sleep(FIRST_LOOK).await;
    };
    shard.call_all(|shard| shard.write_deaths_in_pause(false)).await;
    is_done
}

/// The replica that has everything, or that is to take over all the same.
async fn wait_for_one(server: &Rc<Server>, asked: &Asked) -> std::result::Result<Primary, &'static str> {
    let replication = &server.global.replication;
    let until_us = asked.timeout_ms.map(|ms| store_us().saturating_add(ms.saturating_mul(1_000)));
    let is_late = || until_us.is_some_and(|until_us| store_us() >= until_us);
    let gives_up = || is_late() || replication.failover.is_aborted();
    let has_finished = finish(server, gives_up).await;
    // (Nobody is asked how far it is, since that is a part of the stream itself: replicas say it each second.)
    let position = position_of_all(server, gives_up).await;
    let position = position.unwrap_or(u64::MAX);
    let mut look = FIRST_LOOK;
    loop {
        if replication.failover.is_aborted() {
            return Err("FAILOVER ABORT was called");
        }
        let is_wanted = |replica: &Arc<Replica>| asked.target.as_ref().is_none_or(|target| is_at(replica, target));
        let has_all = |replica: &Arc<Replica>| replica.has(position);
        let found = replication.replicas().into_iter().find(|replica| is_wanted(replica) && has_all(replica));
        // (What has not ended would write behind what the replica has.)
        if let Some(replica) = found.filter(|_| has_finished) {
            return Ok(Primary { host: replica.address.clone(), port: replica.port });
        }
        if is_late() {
            return match &asked.target {
                Some(target) if asked.is_forced => {
                    log::notice(format_args!(
                        "Failover target {}:{} time out exceeded, failing over.",
                        target.host, target.port
                    ));
                    Ok(target.clone())
                }
                _ => Err("Replica never caught up before timeout"),
            };
        }
        sleep(look).await;
        look = (2 * look).min(LOOK_AT_REPLICAS);
    }
}

/// Follows the replica, which becomes the primary when it is told so. Where the replica refuses, all is as before. As long as
/// it does not answer nobody knows whether it has become the primary, and so this server does not become one again: unless
/// somebody says so (FAILOVER ABORT).
async fn follow(server: &Rc<Server>, target: Primary) {
    let global = &server.global;
    log::notice(format_args!("Failover target is {}:{}", target.host, target.port));
    global.replication.failover.set(Failover::HANDS_OVER);
    following::follow(server, target, true).await;
    while let Some(target) = global.following.target() {
        if !target.takes_over {
            return;
        }
        let reason = match target.has_refused {
            true => "Failover target rejected psync request",
            false if global.replication.failover.is_aborted() => "FAILOVER ABORT was called",
            false => {
                sleep(LOOK_AT_REPLICAS).await;
                continue;
            }
        };
        log::warning(format_args!("Failover aborted: {reason}"));
        following::stand_alone(server, false).await;
        return;
    }
}
