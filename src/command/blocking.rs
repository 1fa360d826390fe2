//! Commands that wait for a key: what a row says of one. The shard room keeps those who wait (`shard/waiters.rs`), the
//! server room the connection (`server/state/waits.rs`, `server/run/wait.rs`).

use super::hop::each_once;
use super::spec::Keys;
use super::{Across, AcrossFn, Ctx, Handler, OwnedRequest};
use crate::clock::realtime_us;
use crate::keyspace::{Kind, Live, Touch};
use crate::resp::{Error, Request, Result};
use crate::value::number::{LongDouble, parse_f64, parse_i64};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The two forms for who cannot wait, from those of an attempt.
macro_rules! both_once {
    ($wait:expr, $attempt:expr, $across:expr, $nil:expr) => {
        (
            |ctx, request| $crate::command::blocking::once(ctx, request, $wait, $attempt, $nil),
            |across| Box::pin($crate::command::blocking::once_across(across, $wait, $across, $nil)),
        )
    };
}

pub(crate) use both_once;

/// A command that waits where there is nothing for it.
#[derive(Clone, Copy)]
pub struct Blocking {
    /// Whether it waits, and how long. Checked before anything else.
    pub wait: WaitFn,
    /// Looks for something, for keys that live together and for others; writes nothing where there is nothing.
    pub attempt: (Handler, AcrossFn),
    /// The same for who cannot wait: nil where there is nothing.
    pub once: (Handler, AcrossFn),
    /// What it answers when its time is over.
    pub nil: Nil,
    /// The keys it waits for.
    pub keys: Keys,
    /// The type that these may get.
    pub kind: Kind,
    /// The request that goes on when the key at an index may have got something; made when the wait begins, on the key's
    /// shard.
    pub narrow: fn(&mut Ctx, Request, usize) -> OwnedRequest,
    /// Whether what has come under a key may be what it waits for: looked at before keys of other shards are brought
    /// together to try.
    pub is_enough: fn(Request, &Live) -> bool,
    /// It does not wait for a key that is deleted, or whose consumer group is.
    pub ends_with_key: bool,
}

pub type WaitFn = fn(Request) -> Result<Wait>;

/// How long a command waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Never,
    /// Microseconds; `None`: as long as it takes.
    For(Option<u64>),
}

/// The reply where there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nil {
    Bulk,
    Array,
}

impl Nil {
    pub fn write(self, reply: &mut crate::resp::Reply) {
        match self {
            Nil::Bulk => reply.nil(),
            Nil::Array => reply.nil_array(),
        }
    }
}

/// Of commands for which one element is enough.
pub fn any_is_enough(_: Request, _: &Live) -> bool {
    true
}

/// Of commands that do not wait but are those that do in all else.
pub fn never(_: Request) -> Result<Wait> {
    Ok(Wait::Never)
}

/// A timeout in seconds, perhaps with a fraction.
pub fn seconds(text: &[u8]) -> Result<Wait> {
    // What is too large for us is not for a long double, which Redis uses.
    let large = || LongDouble::parse(text).map(|_| f64::INFINITY);
    let seconds = parse_f64(text).or_else(large).filter(|seconds| !seconds.is_nan());
    let seconds = seconds.ok_or(Error::text("ERR timeout is not a float or out of range"))?;
    // Redis rounds up to milliseconds and keeps them in 64 bits, where what does not fit is negative.
    let ms = (seconds * 1000.0).ceil();
    let ms = if ms < i64::MAX as f64 { ms as i64 } else { i64::MIN };
    // Redis adds the time of day, and looks whether that fits where the timeout is in seconds only.
    if ms > i64::MAX - (realtime_us() / 1000) as i64 {
        return Err(Error::text("ERR timeout is out of range"));
    }
    from_ms(ms)
}

/// A timeout in milliseconds.
pub fn milliseconds(text: &[u8]) -> Result<Wait> {
    let ms = parse_i64(text).ok_or(Error::text("ERR timeout is not an integer or out of range"))?;
    from_ms(ms)
}

fn from_ms(ms: i64) -> Result<Wait> {
    let ms = u64::try_from(ms).map_err(|_| Error::text("ERR timeout is negative"))?;
    Ok(Wait::For((ms > 0).then(|| ms.saturating_mul(1000))))
}

/// Runs an attempt for who cannot wait.
pub fn once(ctx: &mut Ctx, request: Request, wait: WaitFn, attempt: Handler, nil: Nil) -> Result {
    wait(request)?;
    let before = ctx.reply.len();
    attempt(ctx, request)?;
    if ctx.reply.len() == before {
        nil.write(&mut ctx.reply);
    }
    Ok(())
}

/// The same for keys on several shards.
pub async fn once_across(across: Across, wait: WaitFn, attempt: AcrossFn, nil: Nil) -> Result<Vec<u8>> {
    wait(across.request.as_request())?;
    let proto = across.proto;
    let mut bytes = attempt(across).await?;
    if bytes.is_empty() {
        nil.write(&mut crate::resp::Reply::new(&mut bytes, proto));
    }
    Ok(bytes)
}

/// An attempt on keys of several shards, one key after the other: the first that has something answers. Each shard says
/// at once which of its keys are there; only these are tried.
pub fn first_of(
    across: Across,
    keys: Keys,
    narrow: fn(&mut Ctx, Request, usize) -> OwnedRequest,
    attempt: Handler,
) -> Pin<Box<dyn Future<Output = Result<Vec<u8>>>>> {
    Box::pin(async move {
        let request = Arc::new(across.request.clone());
        let own: Vec<(usize, usize)> = keys
            .indexes(request.as_request())
            .map(|index| (index, across.shard_of(request.as_request().arg(index))))
            .collect();
        let shards = each_once(own.iter().map(|(_, shard)| *shard));
        let look = {
            let (request, own) = (request.clone(), Arc::new(own));
            move |ctx: &mut Ctx, shard: usize| {
                let mut is_there = |index: usize| {
                    let key = ctx.other_key(request.as_request().arg(index));
                    ctx.keyspace.find(ctx.db, key, ctx.now, Touch::NOTHING).is_some()
                };
                let own = own.iter().filter(|(index, owner)| *owner == shard && is_there(*index));
                own.copied().collect::<Vec<_>>()
            }
        };
        let mut there: Vec<(usize, usize)> = across.on_all(&shards, look).await.into_iter().flatten().collect();
        there.sort_unstable();
        for (index, shard) in there {
            let (request, proto) = (request.clone(), across.proto);
            let found = across.on(shard, move |ctx| {
                let narrowed = narrow(ctx, request.as_request(), index);
                ctx.written(proto, |ctx| attempt(ctx, narrowed.as_request()))
            });
            let bytes = found.await?;
            if !bytes.is_empty() {
                return Ok(bytes);
            }
        }
        Ok(Vec::new())
    })
}
