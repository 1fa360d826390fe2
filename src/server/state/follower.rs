//! Who follows the journal, as one shard's server knows it.

use crate::journal::{Encoder, Merger, Record};
use crate::server::client::ClientRef;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

#[derive(Default)]
pub struct Following {
    /// The shard and the connection that this shard's records are sent to.
    pub target: Cell<Option<(usize, u64)>>,
    /// Bytes that are on their way there.
    pub on_their_way: Arc<AtomicUsize>,
    /// The connection, where it is one of this shard's.
    pub follower: RefCell<Option<Follower>>,
}

/// A connection that is shown the journal.
pub struct Follower {
    pub client: ClientRef,
    merger: Merger,
    encoder: Encoder,
}

impl Follower {
    pub fn new(client: ClientRef, shards: usize) -> Follower {
        Follower { client, merger: Merger::new(shards), encoder: Encoder::default() }
    }

    /// Takes in what has come from a shard; what can be shown now.
    pub fn take_in(&mut self, shard: usize, records: Vec<Record>) -> Vec<u8> {
        records.into_iter().for_each(|record| self.merger.push(shard, record));
        let mut out = Vec::new();
        while let Some(unit) = self.merger.pop() {
            self.encoder.unit(&unit, &mut out);
        }
        out
    }
}
