//! What a primary has said, on its way into the stream for this server's own replicas, and its place into the log. It is said as a
//! part of the transaction that does it. So who has the one has the other, and a log that was torn anywhere says how far the
//! stream is that its data have.

use crate::command::{Ctx, OwnedRequest};
use crate::journal::Command;
use crate::resp::{Request, Result};
use crate::shard::{At, Lock, Shard};
use crate::value::number::parse_u64;

/// A part of a primary's stream.
pub struct Relay {
    /// The database that is chosen behind it.
    pub db: usize,
    pub bytes: Box<[u8]>,
}

impl Relay {
    /// It is always this shard that says it, which keeps the order. (The lock is one that nobody wants.)
    pub const LOCK: Lock = Lock { hash: 1, write: true };

    /// Says what nothing was done of.
    pub fn say(self, shard: &Shard) {
        shard.record_command(Command::relayed(self.db, self.bytes));
        shard.hand_over_records();
    }

    /// The request of [`say`].
    pub fn request(&self) -> OwnedRequest {
        let db = self.db.to_string();
        OwnedRequest::from_args([db.as_bytes(), &self.bytes].into_iter())
    }

    /// In which place [`say`] runs, for a command that runs at this one.
    pub fn at(at: At) -> At {
        At { write: true, hash: 0, ..at }
    }
}

/// Says what the transaction does that runs: the database that is chosen behind it, and its bytes.
pub fn say(ctx: &mut Ctx, request: Request) -> Result {
    let db = parse_u64(request.arg(0)).expect("written by ourselves");
    if ctx.is_journaled() {
        ctx.keyspace.effects.said.say(Command::relayed(db as usize, request.arg(1).into()));
    }
    Ok(())
}
