//! Commands of a log that go from shard to shard. Nobody sees what is between their steps, so that they hold no keys, and what has
//! other keys goes on beside them.

use super::coordinate::across_of;
use super::split::{self, Routes};
use super::task::{Call, spawn};
use super::turn::{Progress, Turn};
use crate::command::{self, Across, AcrossFn, OwnedRequest, each_once};
use crate::resp::Request;
use crate::server::admit::Gate;
use crate::server::client::multi::Verb;
use crate::server::client::stepping::Stepping;
use crate::server::state::{Command, Run};
use crate::shard::{At, ShardHop};
use std::rc::Rc;

/// Whether a command of a log has to wait for one that is under way in steps: one of its keys is such a command's, or its keys are
/// not known.
#[cold]
pub fn must_wait(turn: &Turn, command: &Command, request: Request) -> bool {
    let stepping = &turn.flow.stepping;
    if stepping.is_empty() {
        return false;
    }
    // (To look at very many keys again whenever such a command has arrived would take longer than to wait for all of them.)
    let has_few_keys = Stepping::is_for(command.spec.keys.indexes(request));
    let is_plain = has_few_keys && !command.full_name.contains('|') && !command.spec.keys.name_others(request);
    match command.run {
        Run::Data(command::Run::Key(_) | command::Run::Spread(..) | command::Run::Atomic(..)) if is_plain => {
            let routes = split::routes(&turn.server.shard.hasher, command.spec.keys, request);
            routes.is_empty() || stepping.has_one_of(hashes_of(&routes))
        }
        Run::Multi(Verb::Multi | Verb::Exec) => false,
        Run::Session(_) => command.full_name != "select",
        _ => true,
    }
}

/// A command in steps on several shards, without a hold: its first step waits until what is before it in the log has run on its
/// shards, and what stands behind it waits for it where it has one of its keys.
pub fn in_steps(turn: &mut Turn, across: AcrossFn, at: At, request: Request, routes: Routes) -> Progress {
    let shard = turn.server.shard.clone();
    if !turn.may_start(false) || turn.flow.stepping.is_full() {
        return Progress::NotYet;
    }
    if shard.is_congested() {
        return turn.wait_for_room();
    }
    let muted = turn.take_muted();
    let (call, ns) = Call::in_steps(turn.server, at.command, None);
    let context = across_of(&shard, OwnedRequest::of(request), at);
    turn.flow.stepping.begin(hashes_of(&routes));
    turn.session.gate = Gate::closed();
    let client = turn.client.clone();
    let others = each_once(routes.iter().map(|(_, target)| *target).filter(|target| *target != shard.id));
    let future = async move {
        let (origin, id) = (shard.id, client.id);
        let let_run = |target| shard.call_later(target, move |shard| async move { shard.let_run(origin, id).await });
        for has_run in others.into_iter().map(let_run).collect::<Vec<_>>() {
            has_run.await;
        }
        let hop = Rc::new(ShardHop::new(shard, None, at, ns));
        let result = across(Across { hop, ..context }).await;
        client.state.borrow_mut().flow.stepping.end(hashes_of(&routes));
        result
    };
    spawn(turn, Box::pin(future), call, muted);
    turn.flow.barrier = false;
    Progress::Taken
}

fn hashes_of(routes: &Routes) -> impl Iterator<Item = u64> {
    routes.iter().map(|(hash, _)| *hash)
}
