//! Commands of a long EXEC that run in one slice of time: those that follow each other and that each shard can do alone.
//!
//! ```text
//!  queued   GET a   SET b   INCR c   MGET a d  |  RENAME a b  |  GET e ...
//!  shard 0  GET a           INCR c             |  (alone)     |
//!  shard 1          SET b            MGET a d  |              |
//! ```
//!
//! Commands on different shards have no key in common, so it does not matter which of them runs first. The requests are not
//! copied: the shards read what the connection has queued.

use super::plan::Planned;
use super::scatter::run_whole;
use super::split::{FewRoutes, common_target, first_hash};
use crate::clock::{Now, store_us};
use crate::command::{self, Handler, Merge};
use crate::keyspace::{Lookup, PREFETCHED};
use crate::net::step_back_in_turn;
use crate::resp::Request;
use crate::server::client::multi::{Multi, Queued};
use crate::server::state::Run;
use crate::shard::{At, Pace, Shard, Transaction};
use std::sync::Arc;

pub struct Slice {
    multi: Arc<Multi>,
    first: usize,
    /// The shard of each of its commands.
    targets: Vec<usize>,
    /// By shard.
    items: Vec<Vec<Item>>,
    bytes: usize,
}

/// One command, where it runs.
struct Item {
    queued: Queued,
    handler: Handler,
    /// Of a command that could have been in parts.
    merge: Option<Merge>,
    at: At,
    routes: FewRoutes,
}

/// So many commands, or so many bytes of them, are one slice.
const COMMANDS_MAX: usize = 512;
const BYTES_MAX: usize = 256 * 1024;

/// The replies of one shard so far: where each ends, and how long it took.
#[derive(Default)]
struct Ran {
    out: Vec<u8>,
    ends: Vec<(usize, u64)>,
}

/// Those of all shards.
pub struct SliceReplies {
    targets: Vec<usize>,
    by_shard: Vec<Ran>,
}

impl Slice {
    pub fn new(multi: Arc<Multi>, first: usize, shards: usize) -> Slice {
        Slice { multi, first, targets: Vec::new(), items: (0..shards).map(|_| Vec::new()).collect(), bytes: 0 }
    }

    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Which of the transaction's commands is its first.
    pub fn first(&self) -> usize {
        self.first
    }

    /// One more, if there is room, and one shard can do it alone.
    pub fn add(&mut self, planned: Planned, at: At, request: Request) -> bool {
        let (handler, merge) = match planned.run {
            Run::Data(command::Run::Key(handler) | command::Run::Atomic(handler, _)) => (handler, None),
            Run::Data(command::Run::Spread(handler, merge)) => (handler, Some(merge)),
            _ => return false,
        };
        let Some(target) = common_target(&planned.routes) else { return false };
        if self.len() == COMMANDS_MAX || self.bytes > BYTES_MAX {
            return false;
        }
        self.bytes += request.bytes();
        self.targets.push(target);
        let at = At { hash: first_hash(&planned.routes), ..at };
        self.items[target].push(Item { queued: planned.queued, handler, merge, at, routes: planned.routes });
        true
    }

    /// Runs all of it, on all shards at the same time.
    pub async fn run(self, transaction: &Transaction) -> SliceReplies {
        let items: Vec<Arc<Vec<Item>>> = self.items.into_iter().map(Arc::new).collect();
        let mut by_shard: Vec<Ran> = items.iter().map(|_| Ran::default()).collect();
        loop {
            let is_left = |target: &usize| by_shard[*target].ends.len() < items[*target].len();
            let left: Vec<usize> = (0..items.len()).filter(is_left).collect();
            if left.is_empty() {
                return SliceReplies { targets: self.targets, by_shard };
            }
            let mut running = Vec::with_capacity(left.len());
            for target in left {
                let (multi, items) = (self.multi.clone(), items[target].clone());
                let ran = std::mem::take(&mut by_shard[target]);
                let work = move |shard: &Shard, now: Now| run_some(shard, now, &multi, &items, ran);
                running.push((target, transaction.on(target, work)));
            }
            for (target, ran) in running {
                by_shard[target] = ran.await;
            }
            // (What this shard does itself is done by then, without a pause.)
            step_back_in_turn().await;
        }
    }
}

/// Runs commands until others should have their turn.
fn run_some(shard: &Shard, now: Now, multi: &Multi, items: &[Item], mut ran: Ran) -> Ran {
    let mut pace = Pace::new(store_us());
    for some in items[ran.ends.len()..].chunks(PREFETCHED) {
        let lookups =
            some.iter().filter_map(|item| item.routes.first().map(|(hash, _)| Lookup::key(item.at.db, *hash)));
        shard.keyspace.borrow().prefetch(lookups);
        for item in some {
            let request = multi.request(item.queued);
            let ((), ns) = shard.measured(|| match item.merge {
                None => shard.execute(item.handler, request, item.at, now, &mut ran.out, &mut Vec::new()),
                Some(merge) => {
                    run_whole(shard, (item.handler, merge), item.at, request, &item.routes, now, &mut ran.out);
                }
            });
            ran.ends.push((ran.out.len(), ns));
            if pace.is_long() {
                return ran;
            }
        }
    }
    ran
}

impl SliceReplies {
    /// Each reply and how long it took, in the order of the commands.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let mut next: Vec<usize> = vec![0; self.by_shard.len()];
        self.targets.iter().map(move |&target| {
            let ran = &self.by_shard[target];
            let index = next[target];
            next[target] += 1;
            let start = index.checked_sub(1).map_or(0, |before| ran.ends[before].0);
            let (end, ns) = ran.ends[index];
            (&ran.out[start..end], ns)
        })
    }
}
