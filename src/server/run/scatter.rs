//! Commands in parts that know nothing of each other. Where one shard has all the keys they run there as a whole; else
//! they are transactions, with a part for each shard.

use super::single;
use super::split::{self, Route, Sent, StepPart, Steps};
use super::turn::{Progress, Turn};
use crate::clock::Now;
use crate::command::{Handler, Merge};
use crate::keyspace::{Lookup, PREFETCHED};
use crate::resp::{Error, Reply, Request};
use crate::server::client::Source;
use crate::server::client::replies::Gather;
use crate::shard::{At, Part, Shard, Space, Ticket};

/// Each shard gets its own keys.
pub fn spread(turn: &mut Turn, how: (Handler, Merge), at: At, request: Request, routes: &[Route]) -> Progress {
    let keys = turn.server.shard.spec(at.command).keys;
    match split::common_target(routes) {
        Some(target) => whole(turn, target, how, at, request, routes),
        None if turn.client.source == Source::Log => {
            apart(turn, |parts| split::spread(parts, how, at, true, (request, keys), routes))
        }
        None => send(turn, |parts, muted| split::spread(parts, how, at, muted, (request, keys), routes)),
    }
}

/// Every shard gets the whole request.
pub fn everywhere(turn: &mut Turn, how: (Handler, Merge), at: At, request: Request, routes: &[Route]) -> Progress {
    let (id, count, is_busy) = (turn.server.shard.id, turn.server.shard.count, turn.server.shard.is_busy());
    if count == 1 && !is_busy {
        whole(turn, id, how, at, request, routes)
    } else if turn.client.source == Source::Log {
        apart(turn, |parts| split::everywhere(parts, how, at, true, request, count))
    } else {
        send(turn, |parts, muted| split::everywhere(parts, how, at, muted, request, count))
    }
}

/// Sends a transaction whose parts know nothing of each other.
fn send(turn: &mut Turn, write: impl FnOnce(&mut Sent, bool) -> Gather) -> Progress {
    if !turn.may_start(true) {
        return Progress::NotYet;
    }
    if turn.server.shard.is_congested() {
        return turn.wait_for_room();
    }
    let muted = turn.take_muted();
    let transaction = turn.server.shard.transaction();
    let mut parts = Sent { transaction, client: turn.client.id, reply: turn.replies.next_reply(), count: 0 };
    let gather = write(&mut parts, muted);
    let bytes = parts.transaction.bytes();
    drop(parts);
    turn.replies.expect_parts(gather, bytes);
    Progress::Taken
}

/// Nobody sees what is between the parts of a log's command: each shard does its own when its turn comes, as it does other
/// commands, and nothing waits for that.
#[cold]
fn apart(turn: &mut Turn, write: impl FnOnce(&mut Steps) -> Gather) -> Progress {
    let shard = &turn.server.shard;
    if !turn.may_start(false) {
        return Progress::NotYet;
    }
    if shard.is_congested() {
        return turn.wait_for_room();
    }
    let mut parts = Steps::default();
    write(&mut parts);
    // What may have to wait comes first, while nothing is done.
    parts.0.sort_by_key(|part| part.target != shard.id);
    for StepPart { target, handler, at, request } in &parts.0 {
        let request = request.as_request();
        if *target != shard.id {
            single::send(turn, *handler, *target, *at, request);
        } else if single::run(turn, *handler, *target, *at, request) == Progress::NotYet {
            return Progress::NotYet;
        }
    }
    Progress::Taken
}

/// A command in parts whose only part is on one shard.
fn whole(
    turn: &mut Turn,
    target: usize,
    (handler, merge): (Handler, Merge),
    at: At,
    request: Request,
    routes: &[Route],
) -> Progress {
    let shard = &turn.server.shard;
    if target == shard.id && shard.must_wait(&at, request, turn.client.id) {
        return send(turn, |parts, muted| {
            split::together(parts, (handler, Some(merge)), at, muted, request, target, routes)
        });
    }
    if !turn.may_start(false) || turn.strict_order_forbids(target) {
        return Progress::NotYet;
    }
    if target != shard.id && shard.is_congested() {
        return turn.wait_for_room();
    }
    if target == shard.id {
        match shard.space_for(&at, request) {
            Space::Enough => {}
            Space::Soon => return turn.wait_for_room(),
            Space::None => return turn.fail(at.command, Error::OutOfMemory),
        }
    }
    let muted = turn.take_muted();
    if target != shard.id {
        turn.flow.last_target = target;
        let positions = vec![(0..routes.len() as u32).collect()];
        let gather = Gather::new(Some(merge), at, muted, routes.len(), positions);
        let reply = turn.replies.expect_whole(gather, target, request.bytes());
        let ticket = Ticket { client: turn.client.id, reply, part: 0 };
        shard.send_part(target, request, Part::new(handler, at, ticket));
        return Progress::Taken;
    }
    shard.meter.begin();
    turn.replies.write(|out| {
        let start = out.len();
        run_whole(shard, (handler, merge), at, request, routes, shard.clock.now(), out);
        shard.meter.answered(at.command, &out[start..]);
        if muted {
            out.truncate(start);
        }
    });
    turn.ran(at.command, request, shard.meter.end());
    shard.serve_waiters();
    Progress::Taken
}

/// Runs a command in parts as one, here.
pub fn run_whole(
    shard: &Shard,
    (handler, merge): (Handler, Merge),
    at: At,
    request: Request,
    routes: &[Route],
    now: Now,
    out: &mut Vec<u8>,
) {
    let mut ends = Vec::new();
    for routes in routes.chunks(PREFETCHED) {
        shard.keyspace.borrow().prefetch(routes.iter().map(|(hash, _)| Lookup::key(at.db, *hash)));
    }
    match merge {
        Merge::Sum | Merge::Most | Merge::Ok => shard.execute(handler, request, at, now, out, &mut ends),
        Merge::Items => {
            let start = out.len();
            Reply::new(out, at.proto).array(routes.len());
            let items = out.len();
            shard.execute(handler, request, at, now, out, &mut ends);
            if out.get(items) == Some(&b'-') {
                out.drain(start..items);
            }
        }
        Merge::Concat => {
            let mut items = Vec::new();
            shard.execute(handler, request, at, now, &mut items, &mut ends);
            if items.first() != Some(&b'-') {
                Reply::new(out, at.proto).array(ends.len());
            }
            out.extend_from_slice(&items);
        }
    }
}
