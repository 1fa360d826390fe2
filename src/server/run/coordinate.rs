//! A command that looks at one shard before it knows what to do on the next: a coordinator holds its keys, and goes from
//! step to step.

use super::in_the_way::{self, Holder};
use super::split::Routes;
use super::task::{Call, spawn};
use super::turn::{Progress, Turn};
use crate::command::{Across, AcrossFn, OwnedRequest};
use crate::resp::Request;
use crate::shard::{At, Lock, Shard, ShardHop};
use std::rc::Rc;

pub fn run(turn: &mut Turn, across: AcrossFn, at: At, request: Request, routes: Routes) -> Progress {
    if !turn.replies.is_idle() {
        return Progress::NotYet;
    }
    let muted = turn.take_muted();
    let (server, shard) = (turn.server.clone(), turn.server.shard.clone());
    let (call, ns) = Call::in_steps(turn.server, at.command, Some(request));
    let replays = turn.client.replays();
    let context = across_of(&shard, OwnedRequest::of(request), at);
    let future = async move {
        let locks = routes.into_iter().map(|(hash, target)| (target, Lock { hash, write: at.write }));
        let holder = Holder { command: at.command, request: context.request.as_request(), replays, own: None };
        let transaction =
            if locks.len() > 0 { Some(Rc::new(in_the_way::hold(&server, locks, holder).await?)) } else { None };
        if let Some(transaction) = &transaction {
            transaction.remember(at, context.request.as_request()).await;
        }
        across(Across { hop: Rc::new(ShardHop::new(shard, transaction, at, ns)), ..context }).await
    };
    spawn(turn, Box::pin(future), call, muted);
    Progress::Taken
}

/// What a coordinator works with, outside of a transaction so far.
pub fn across_of(shard: &Rc<Shard>, request: OwnedRequest, at: At) -> Across {
    let config = shard.config();
    Across {
        hop: Rc::new(ShardHop::new(shard.clone(), None, at, Rc::default())),
        request,
        keys: shard.spec(at.command).keys,
        db: at.db,
        databases: config.databases,
        proto: at.proto,
        in_script: at.in_script,
        rng: fastrand::Rng::with_seed(shard.rng.borrow_mut().u64(..)),
        limits: config.feasible_limits(),
    }
}
