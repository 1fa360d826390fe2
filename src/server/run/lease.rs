//! What GUARD asks of a lease: whether it is alive and has the token, in the moment in which what it guards is done. The
//! lease's key is locked for that, to be read, wherever it is.

use crate::clock::Now;
use crate::command::leases::{self, LOST};
use crate::command::{Ctx, OwnedRequest, shard_of};
use crate::resp::{Request, Result};
use crate::server::client::session::Session;
use crate::shard::{At, Lock, Shard, Transaction};
use crate::value::number::parse_u64;
use std::rc::Rc;

/// A lease, and the token that it has to have.
#[derive(Clone)]
pub struct Lease {
    /// The connection's database.
    pub db: usize,
    pub shard: usize,
    key: Box<[u8]>,
    hash: u64,
    token: u64,
}

impl Lease {
    /// That of a request `GUARD key token ...`.
    ///
    /// # Errors
    /// Where the token is no number.
    pub fn of(shard: &Shard, session: &Session, request: Request) -> Result<Lease> {
        let (key, token) = (request.arg(1), leases::token(request, 2)?);
        let hash = shard.hasher.hash(key);
        Ok(Lease { db: session.db, shard: shard_of(&shard.hasher, key), key: key.into(), hash, token })
    }

    pub fn lock(&self) -> Lock {
        Lock { hash: self.hash, write: false }
    }

    /// On its shard, where nobody else has its key.
    pub fn is_held(&self, shard: &Shard, now: Now) -> bool {
        let keyspace = shard.keyspace.borrow();
        leases::is_held(&keyspace, self.db, keyspace.hasher().key(&self.key), self.token, now)
    }

    /// The same within a transaction that has its key.
    ///
    /// # Errors
    /// Where it is not held.
    pub async fn check_in(&self, transaction: &Rc<Transaction>) -> Result {
        let lease = self.clone();
        let is_held = transaction.on(self.shard, move |shard, now| lease.is_held(shard, now)).await;
        if is_held { Ok(()) } else { Err(LOST) }
    }

    /// The place of [`check`], and what it is asked.
    pub fn part(&self, at: At) -> (At, OwnedRequest) {
        let token = self.token.to_string();
        let args = [&*self.key, token.as_bytes()];
        (At { db: self.db, hash: self.hash, ..at }, OwnedRequest::from_args(args.into_iter()))
    }
}

/// The guard of a transaction, on the shard of the lease: its key, and the token.
pub fn check(ctx: &mut Ctx, request: Request) -> Result {
    let token = parse_u64(request.arg(1)).expect("written by ourselves");
    let key = ctx.key(request.arg(0));
    if leases::is_held(ctx.keyspace, ctx.db, key, token, ctx.now) { Ok(()) } else { Err(LOST) }
}
