//! Work on other shards: what a coordinator of several keys may ask for.

use super::spec::Keys;
use super::{Ctx, shard_of};
use crate::config::{Limits, Tls};
use crate::keyspace::Hasher;
use crate::resp::{Error, Proto, Reply, Request, Result, Span};
use ahash::RandomState;
use std::any::Any;
use std::collections::HashSet;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;

/// Something to be done on another shard; its result travels back.
pub type Job = Box<dyn FnOnce(&mut Ctx) -> Box<dyn Any + Send> + Send>;
pub type JobFuture = Pin<Box<dyn Future<Output = Box<dyn Any + Send>>>>;
/// A fencing token, when it may be given.
pub type TokenFuture = Pin<Box<dyn Future<Output = Result<u64>>>>;

/// The way to the other shards; the shard room implements it.
pub trait Hop {
    fn hasher(&self) -> &Hasher;
    fn shards(&self) -> usize;
    /// What connections to other servers are made with, where those are under TLS.
    fn tls_to_others(&self) -> Option<Tls>;
    /// A fencing token greater than all before.
    fn token(&self) -> TokenFuture;
    /// Runs the job in the given database on its shard, in the order in which jobs to one shard are sent.
    fn run(&self, shard: usize, db: usize, job: Job) -> JobFuture;
}

/// Coordinates a command whose keys live on several shards; returns the reply's bytes.
pub type AcrossFn = fn(Across) -> Pin<Box<dyn Future<Output = Result<Vec<u8>>>>>;

/// A request that outlives its receive buffer.
#[derive(Default, Clone)]
pub struct OwnedRequest {
    buffer: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedRequest {
    pub fn of(request: Request) -> OwnedRequest {
        OwnedRequest::from_args(request.from(0))
    }

    pub fn from_args<'a>(args: impl Iterator<Item = &'a [u8]>) -> OwnedRequest {
        let mut owned = OwnedRequest::default();
        args.for_each(|arg| owned.push(arg));
        owned
    }

    pub fn push(&mut self, arg: &[u8]) {
        let start = self.buffer.len() as u32;
        self.buffer.extend_from_slice(arg);
        self.spans.push((start, self.buffer.len() as u32));
    }

    /// The same in as little memory as it takes.
    pub fn fitted(mut self) -> OwnedRequest {
        self.buffer.shrink_to_fit();
        self.spans.shrink_to_fit();
        self
    }

    /// Bytes of all arguments.
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Arguments so far.
    pub fn arg_count(&self) -> usize {
        self.spans.len()
    }

    /// Some of the arguments, where several requests are kept in one.
    pub fn part(&self, args: Range<usize>) -> Request<'_> {
        Request::new(&self.buffer, &self.spans[args])
    }

    pub fn as_request(&self) -> Request<'_> {
        Request::new(&self.buffer, &self.spans)
    }
}

/// What a coordinator works with.
pub struct Across {
    pub hop: Rc<dyn Hop>,
    pub request: OwnedRequest,
    pub keys: Keys,
    pub db: usize,
    pub databases: usize,
    pub proto: Proto,
    /// As [`Ctx::in_script`].
    pub in_script: bool,
    pub rng: fastrand::Rng,
    pub limits: Limits,
}

/// Shards, each once.
pub fn each_once(shards: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut shards: Vec<usize> = shards.collect();
    shards.sort_unstable();
    shards.dedup();
    shards
}

/// The indexes of some keys of a request, without those of keys that were there before.
pub fn without_repeats(request: Request, keys: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut seen = HashSet::with_capacity_and_hasher(keys.size_hint().0, RandomState::new());
    keys.filter(|index| seen.insert(request.arg(*index))).collect()
}

/// What a coordinator brings together is bounded as a reply is.
pub fn check_gathered(bytes: usize, limits: &Limits) -> Result {
    if bytes > limits.string_bytes { Err(Error::ReplyTooLong) } else { Ok(()) }
}

impl Across {
    pub fn shard_of(&self, key: &[u8]) -> usize {
        shard_of(self.hop.hasher(), key)
    }

    /// The shards of several keys, each once.
    pub fn shards_of<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Vec<usize> {
        each_once(keys.map(|key| self.shard_of(key)))
    }

    /// Runs `work` on a shard, in this command's database, and waits for what it returns.
    pub async fn on<R: Send + 'static>(&self, shard: usize, work: impl FnOnce(&mut Ctx) -> R + Send + 'static) -> R {
        self.on_db(shard, self.db, work).await
    }

    /// The same in another database.
    pub async fn on_db<R: Send + 'static>(
        &self,
        shard: usize,
        db: usize,
        work: impl FnOnce(&mut Ctx) -> R + Send + 'static,
    ) -> R {
        let result = self.hop.run(shard, db, Box::new(move |ctx| Box::new(work(ctx)) as Box<dyn Any + Send>)).await;
        *result.downcast().expect("a job returns what it was made to return")
    }

    /// Runs `work` on several shards at the same time; it is told on which. The results in the order of the shards.
    pub async fn on_all<R: Send + 'static>(
        &self,
        shards: &[usize],
        work: impl FnOnce(&mut Ctx, usize) -> R + Clone + Send + 'static,
    ) -> Vec<R> {
        let start = |shard: &usize| {
            let (work, shard) = (work.clone(), *shard);
            self.hop.run(shard, self.db, Box::new(move |ctx| Box::new(work(ctx, shard)) as Box<dyn Any + Send>))
        };
        let started: Vec<JobFuture> = shards.iter().map(start).collect();
        let mut results = Vec::with_capacity(started.len());
        for future in started {
            results.push(*future.await.downcast().expect("a job returns what it was made to return"));
        }
        results
    }

    /// Writes the final reply.
    pub fn reply(&self, write: impl FnOnce(&mut Reply)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut Reply::new(&mut out, self.proto));
        out
    }
}
