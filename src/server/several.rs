//! Commands on several keys, or on every shard. Where one shard has all they need they run there like any other; else
//! they are transactions.

use super::dispatch::{Call, Dispatch, Step, Turn};
use super::replies::Gather;
use super::split::{self, Routes, Sent};
use crate::command::{Across, AcrossFn, Handler, Merge, OwnedRequest, Run};
use crate::keyspace::Lookup;
use crate::resp::{Reply, Request};
use crate::shard::{At, EVERYTHING, Lock, Part, Shard, ShardHop, Ticket};
use std::rc::Rc;

impl Dispatch<'_> {
    pub(super) fn several(&self, run: Run, at: At, turn: &mut Turn, request: Request) -> Step {
        let shard = &self.server.shard;
        let keys = shard.spec(at.command).keys;
        let routes = split::routes(&shard.hasher, keys, request);
        let at = At { hash: routes.first().map_or(0, |(hash, _)| *hash), ..at };
        match run {
            Run::Key(_) | Run::Blocking(_) | Run::Container => {
                unreachable!("taken care of by `start`")
            }
            Run::Spread(handler, merge) => match split::common_target(&routes) {
                Some(target) => self.whole(target, (handler, merge), at, turn, request, &routes),
                None => self.send(turn, |parts, muted| {
                    split::spread(parts, (handler, merge), at, muted, (request, keys), &routes)
                }),
            },
            Run::Everywhere(handler, merge) if shard.count == 1 && !shard.is_busy() => {
                self.whole(shard.id, (handler, merge), at, turn, request, &routes)
            }
            Run::Everywhere(handler, merge) => self
                .send(turn, |parts, muted| split::everywhere(parts, (handler, merge), at, muted, request, shard.count)),
            // How many keys there are may be an argument.
            Run::Atomic(handler, _) if routes.is_empty() => self.one(handler, shard.id, at, turn, request),
            Run::Atomic(_, across) if keys.name_others(request) && (shard.count > 1 || shard.is_busy()) => {
                let everything = (0..shard.count).map(|target| (EVERYTHING, target)).collect();
                self.coordinate(across, At { write: true, ..at }, turn, request, everything)
            }
            Run::Atomic(handler, across) => match split::common_target(&routes) {
                Some(target) => self.one(handler, target, at, turn, request),
                None => self.coordinate(across, at, turn, request, routes),
            },
            Run::Coordinated(across) | Run::Cursor(_, across) => self.coordinate(across, at, turn, request, routes),
        }
    }

    /// Sends a transaction whose parts know nothing of each other.
    pub(super) fn send(&self, turn: &mut Turn, write: impl FnOnce(&mut Sent, bool) -> Gather) -> Step {
        if !turn.may_start(true) {
            return Step::NotYet;
        }
        if self.server.shard.is_congested() {
            return self.wait_for_room();
        }
        let muted = turn.take_muted();
        let transaction = self.server.shard.transaction();
        let mut parts = Sent { transaction, client: self.client.id, sequence: turn.replies.next_sequence(), count: 0 };
        let gather = write(&mut parts, muted);
        let bytes = parts.transaction.bytes();
        drop(parts);
        turn.replies.expect_parts(gather, bytes);
        Step::Taken
    }

    /// A command in parts whose only part is on one shard.
    fn whole(
        &self,
        target: usize,
        (handler, merge): (Handler, Merge),
        at: At,
        turn: &mut Turn,
        request: Request,
        routes: &Routes,
    ) -> Step {
        let shard = &self.server.shard;
        if target == shard.id && shard.must_wait(&at, request, self.client.id) {
            return self.send(turn, |parts, muted| {
                split::together(parts, (handler, Some(merge)), at, muted, request, target, routes)
            });
        }
        if !turn.may_start(false) || self.strict_order_forbids(turn, target) {
            return Step::NotYet;
        }
        if target != shard.id && shard.is_congested() {
            return self.wait_for_room();
        }
        let muted = turn.take_muted();
        if target != shard.id {
            turn.flow.last_target = target;
            let positions = vec![(0..routes.len() as u32).collect()];
            let gather = Gather::new(Some(merge), at, muted, routes.len(), positions);
            let sequence = turn.replies.expect_whole(gather, target, request.bytes());
            let ticket = Ticket { client: self.client.id, sequence, part: 0 };
            shard.send_part(target, request, Part::new(handler, at, ticket));
            return Step::Taken;
        }
        shard.meter.begin();
        turn.replies.write(|out| {
            let start = out.len();
            self.run_whole((handler, merge), at, request, routes, out);
            shard.meter.answered(at.command, &out[start..]);
            if muted {
                out.truncate(start);
            }
        });
        self.ran(turn.session, at.command, request, shard.meter.end());
        shard.serve_waiters();
        Step::Taken
    }

    /// Runs a command in parts as one, here.
    pub(super) fn run_whole(
        &self,
        (handler, merge): (Handler, Merge),
        at: At,
        request: Request,
        routes: &Routes,
        out: &mut Vec<u8>,
    ) {
        let shard = &self.server.shard;
        let mut ends = Vec::new();
        let now = shard.clock.now();
        for routes in routes.chunks(crate::keyspace::PREFETCHED) {
            shard.keyspace.borrow().prefetch(routes.iter().map(|(hash, _)| Lookup::key(at.db, *hash)));
        }
        match merge {
            Merge::Sum | Merge::Ok => shard.execute(handler, request, at, now, out, &mut ends),
            Merge::Items => {
                Reply::new(out, at.proto).array(routes.len());
                shard.execute(handler, request, at, now, out, &mut ends);
            }
            Merge::Concat => {
                let mut items = Vec::new();
                shard.execute(handler, request, at, now, &mut items, &mut ends);
                Reply::new(out, at.proto).array(ends.len());
                out.extend_from_slice(&items);
            }
        }
    }

    /// A command that looks at one shard before it knows what to do on the next.
    fn coordinate(&self, across: AcrossFn, at: At, turn: &mut Turn, request: Request, routes: Routes) -> Step {
        if !turn.replies.is_idle() {
            return Step::NotYet;
        }
        let muted = turn.take_muted();
        let shard = self.server.shard.clone();
        let (call, ns) = Call::in_steps(self.server, at.command, Some(request));
        let context = across_of(&shard, OwnedRequest::of(request), at);
        let future = async move {
            let locks = routes.into_iter().map(|(hash, target)| (target, Lock { hash, write: at.write }));
            let transaction = if locks.len() > 0 { Some(Rc::new(shard.hold(locks).await)) } else { None };
            across(Across { hop: Rc::new(ShardHop::new(shard, transaction, at.touch, ns)), ..context }).await
        };
        self.spawn(Box::pin(future), call, turn, muted);
        Step::Taken
    }
}

/// What a coordinator works with, outside of a transaction so far.
pub(super) fn across_of(shard: &Rc<Shard>, request: OwnedRequest, at: At) -> Across {
    let config = shard.config();
    Across {
        hop: Rc::new(ShardHop::new(shard.clone(), None, at.touch, Rc::default())),
        request,
        keys: shard.spec(at.command).keys,
        db: at.db,
        databases: config.databases,
        proto: at.proto,
        rng: fastrand::Rng::with_seed(shard.rng.borrow_mut().u64(..)),
        limits: config.limits.feasible(),
    }
}
