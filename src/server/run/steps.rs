//! A command on data as one of several that run one after the other within a transaction.

use super::coordinate::across_of;
use super::plan::{are_apart, split_command};
use super::split::{Routes, Steps};
use crate::clock::Now;
use crate::command::{self, Across, OwnedRequest};
use crate::resp::Result;
use crate::server::client::long::Long;
use crate::server::state::Run;
use crate::shard::{At, Shard, ShardHop, Transaction};
use std::cell::Cell;
use std::rc::Rc;

/// A command, and the transaction that holds its keys.
pub struct Step<'t> {
    pub shard: &'t Rc<Shard>,
    pub at: At,
    pub request: OwnedRequest,
    pub routes: Routes,
    pub transaction: Option<&'t Rc<Transaction>>,
}

impl Step<'_> {
    /// Runs it; its time is added up in `ns`.
    pub async fn run(self, run: command::Run, out: &mut Vec<u8>, ns: Rc<Cell<u64>>) -> Result {
        let coordinator = match run {
            command::Run::Coordinated(coordinator) => Some(coordinator),
            command::Run::Atomic(_, coordinator) if are_apart(&self.routes) => Some(coordinator),
            _ => None,
        };
        let Some(coordinator) = coordinator else {
            ns.set(self.in_parts(run, out).await);
            return Ok(());
        };
        let Step { shard, at, request, transaction, .. } = self;
        if let Some(transaction) = transaction {
            transaction.remember(at, request.as_request()).await;
        }
        let hop = Rc::new(ShardHop::new(shard.clone(), transaction.cloned(), at, ns));
        let context = across_of(shard, request, at);
        out.extend_from_slice(&coordinator(Across { hop, ..context }).await?);
        Ok(())
    }

    /// Returns how long the parts took, in nanoseconds.
    async fn in_parts(self, run: command::Run, out: &mut Vec<u8>) -> u64 {
        let Step { shard, at, request, routes, transaction } = self;
        if let command::Run::Atomic(handler, _) | command::Run::Key(handler) = run
            && routes.is_empty()
        {
            // Without keys it answers an error, for which any shard does.
            let now = shard.catch_up();
            let run = || shard.execute(handler, request.as_request(), at, now, out, &mut Vec::new());
            return shard.measured(run).1;
        }
        let mut parts = Steps::default();
        let keys = shard.spec(at.command).keys;
        let request = (request.as_request(), keys);
        let mut gather = split_command(Run::Data(run), &routes, &mut parts, at, request, shard.count);
        let (mut results, mut ns) = (Vec::new(), 0);
        for part in parts.0 {
            let run = move |shard: &Shard, now: Now| {
                let (mut out, mut ends) = (Vec::new(), Vec::new());
                let request = part.request.as_request();
                let ((), ns) =
                    shard.measured(|| shard.execute(part.handler, request, part.at, now, &mut out, &mut ends));
                (out, ends, ns)
            };
            let transaction = transaction.expect("commands on data have locks");
            results.push(transaction.on(part.target, run));
        }
        for (part, result) in results.into_iter().enumerate() {
            let (bytes, ends, part_ns) = result.await;
            ns += part_ns;
            gather.add(part, (&Long::all(bytes), part_ns), ends.into_iter());
        }
        gather.write(out);
        ns
    }
}
