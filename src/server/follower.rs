//! Who follows the journal, as one shard's server knows it.

use super::client::ClientRef;
use crate::journal::{Command, Merger, Record, Unit};
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
    /// The database that was chosen last.
    db: Option<usize>,
}

impl Follower {
    pub fn new(client: ClientRef, shards: usize) -> Follower {
        Follower { client, merger: Merger::new(shards), db: None }
    }

    /// Takes in what has come from a shard; what can be shown now.
    pub fn take_in(&mut self, shard: usize, records: Vec<Record>) -> Vec<u8> {
        records.into_iter().for_each(|record| self.merger.push(shard, record));
        let mut out = Vec::new();
        while let Some(unit) = self.merger.pop() {
            self.show(&unit, &mut out);
        }
        out
    }

    fn show(&mut self, Unit { commands, .. }: &Unit, out: &mut Vec<u8>) {
        if commands.len() > 1 {
            self.select(commands[0].db, out);
            say(&[b"MULTI"], out);
        }
        for command in commands {
            self.select(command.db, out);
            out.extend_from_slice(&command.bytes);
        }
        if commands.len() > 1 {
            say(&[b"EXEC"], out);
        }
    }

    fn select(&mut self, db: usize, out: &mut Vec<u8>) {
        if self.db.replace(db) != Some(db) {
            say(&[b"SELECT", db.to_string().as_bytes()], out);
        }
    }
}

/// Shows a command of the stream's own.
fn say(args: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(&Command::new(0, args.iter().copied()).bytes);
}
