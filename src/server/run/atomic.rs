//! A command on several keys that depend on each other: on the shard that has them all, or through a coordinator.

use super::split::{self, Routes};
use super::turn::{Progress, Turn};
use super::{coordinate, single, stepping};
use crate::command::{AcrossFn, Handler};
use crate::resp::Request;
use crate::server::client::Source;
use crate::server::client::stepping::Stepping;
use crate::shard::{At, EVERYTHING};

pub fn run(turn: &mut Turn, (handler, across): (Handler, AcrossFn), at: At, request: Request) -> Progress {
    let shard = &turn.server.shard;
    let (id, count) = (shard.id, shard.count);
    let keys = shard.spec(at.command).keys;
    let routes = split::routes(&shard.hasher, keys, request);
    let at = At { hash: split::first_hash(&routes), ..at };
    // How many keys there are may be an argument.
    if routes.is_empty() {
        return single::run(turn, handler, id, at, request);
    }
    if keys.name_others(request) && (count > 1 || shard.is_busy()) {
        let everything: Routes = (0..count).map(|target| (EVERYTHING, target)).collect();
        return coordinate::run(turn, across, At { write: true, ..at }, request, everything);
    }
    match split::common_target(&routes) {
        Some(target) => single::run(turn, handler, target, at, request),
        None if turn.client.source == Source::Log && !shard.is_busy() && Stepping::is_for(routes.iter()) => {
            stepping::in_steps(turn, across, at, request, routes)
        }
        None => coordinate::run(turn, across, at, request, routes),
    }
}
