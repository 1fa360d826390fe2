//! Who waits for whom on this shard, as DEBUG WAITS draws it: edges of one graph over all shards, in which no circle may last.
//!
//! Only those stand in it who wait in the table of locks, or for the `stopper`. Whoever has all locks and waits for the
//! watermark waits for turns of shards, and no shard's turn waits for anybody.

use super::parked::{Parked, What};
use crate::shard::Shard;

/// So many edges of a shard are drawn.
const EDGES_MAX: usize = 1_000;

impl Shard {
    /// Lines of `waiter -> holder`. What is one transaction has one name on all shards.
    pub fn waits(&self) -> Vec<String> {
        let waiting = &*self.transactions.waiting.borrow();
        let line = |(waiter, holder)| Some(format!("{} -> {}", waiting.name(waiter)?, waiting.name(holder)?));
        waiting.edges().into_iter().take(EDGES_MAX).filter_map(line).collect()
    }
}

impl Parked {
    fn edges(&self) -> Vec<(usize, usize)> {
        let mut edges = Vec::new();
        for (id, pending) in self.pending.iter().filter(|(_, pending)| pending.missing > 0) {
            for lock in &pending.locks {
                edges.extend(self.locks.right_before(pending.place, *lock).into_iter().map(|holder| (id, holder)));
            }
            if edges.len() > EDGES_MAX {
                break;
            }
        }
        if let Some(stopper) = self.stopper {
            edges.extend(self.stopped.iter().map(|id| (*id, stopper)));
            let goes_on = |id: &usize| *id != stopper && self.has_started(*id);
            edges.extend(self.holds.values().copied().filter(goes_on).map(|id| (stopper, id)));
        }
        edges
    }

    fn has_started(&self, id: usize) -> bool {
        matches!(&self.pending[id].what, What::Hold(hold) if hold.started)
    }

    /// None for who is gone.
    fn name(&self, id: usize) -> Option<String> {
        let pending = self.pending.get(id)?;
        Some(match &pending.what {
            What::Hold(hold) => format!("hold:{}:{}", hold.origin, hold.number),
            What::Parts { .. } => format!("transaction:{}", pending.place.sequence),
            What::Command(Some(deferred)) => format!("command:{}:{}", deferred.ticket.client, deferred.ticket.reply),
            What::Command(None) => "command:running".to_owned(),
        })
    }
}
