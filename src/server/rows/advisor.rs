//! EXPIRY ADVISE, and EXPIRY ADVISOR, which says what is followed.

use crate::keyspace::{ADVISED_LIFETIMES_MAX, Advice, AdvicePoint, Advised, Lifetimes};
use crate::resp::{Error, Reply, Request, Result};
use crate::server::run::rights::may_reach;
use crate::server::state::TaskCtx;
use crate::server::state::advised::PREFIXES_MAX;
use crate::shard::Shard;
use std::rc::Rc;
use std::sync::Arc;

/// Every read of a key is compared with the prefixes.
const PREFIX_BYTES_MAX: usize = 1024;

pub async fn advisor(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    match (request.arg(2).to_ascii_lowercase().as_slice(), request.len()) {
        (b"on", 4..) => on(ctx).await,
        (b"off", 4) => Ok(off(&ctx).await),
        (b"list", 3) => Ok(list(&ctx).await),
        (b"on" | b"off" | b"list", _) => Err(Error::WrongArity("expiry|advisor".to_owned())),
        _ => Err(Error::text("ERR unknown action of EXPIRY ADVISOR: it is ON, OFF or LIST")),
    }
}

async fn on(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    let (prefix, lifetimes) = (request.arg(3), lifetimes(request)?);
    if prefix.len() > PREFIX_BYTES_MAX {
        return Err(Error::err(format_args!("a prefix has no more than {PREFIX_BYTES_MAX} bytes")));
    }
    reads(&ctx, prefix)?;
    if !ctx.server.global.advised.add(ctx.db, prefix, lifetimes) {
        return Err(Error::err(format_args!("advisors are on for {PREFIXES_MAX} prefixes, and for no more")));
    }
    take_over(&ctx).await;
    Ok(ctx.reply(|reply| reply.ok()))
}

/// Who asks learns that keys with the prefix are there, and when they are read.
fn reads(ctx: &TaskCtx, prefix: &[u8]) -> Result {
    may_reach(ctx, prefix, |selector| selector.reads_prefix(prefix))
}

fn lifetimes(request: Request) -> Result<Lifetimes> {
    let count = match request.len() {
        4 => return Ok(Lifetimes::Relative),
        len if len > 5 && request.is(4, "lifetimes") => len - 5,
        _ => return Err(Error::Syntax),
    };
    if count > ADVISED_LIFETIMES_MAX {
        return Err(Error::err(format_args!(
            "an advisor follows keys under {ADVISED_LIFETIMES_MAX} lifetimes at most"
        )));
    }
    let lives_ms: Result<Vec<u64>> = (5..5 + count).map(|index| request.duration(index)).collect();
    Ok(Lifetimes::Of(lives_ms?.into()))
}

async fn off(ctx: &TaskCtx) -> Vec<u8> {
    let was_on = ctx.server.global.advised.remove(ctx.db, ctx.request.as_request().arg(3));
    take_over(ctx).await;
    ctx.reply(|reply| reply.int(i64::from(was_on)))
}

/// Every shard looks what is followed now.
async fn take_over(ctx: &TaskCtx) {
    let global = ctx.server.global.clone();
    let look = move |shard: &Rc<Shard>| {
        let now = shard.clock.refresh();
        shard.keyspace.borrow_mut().advise(&global.advised.all(), shard.count, now);
    };
    ctx.server.shard.call_all(look).await;
}

async fn list(ctx: &TaskCtx) -> Vec<u8> {
    let all = ctx.server.global.advised.all();
    ctx.reply(|reply| {
        reply.array(all.len());
        for advised in &all {
            reply.map(3);
            reply.bulk(b"db");
            reply.int(advised.db as i64);
            reply.bulk(b"prefix");
            reply.bulk(&advised.prefix);
            reply.bulk(b"lifetimes_ms");
            match &advised.lifetimes {
                Lifetimes::Relative => reply.array(0),
                Lifetimes::Of(lives_ms) => {
                    reply.array(lives_ms.len());
                    lives_ms.iter().for_each(|life_ms| reply.int(*life_ms as i64));
                }
            }
        }
    })
}

pub async fn advise(ctx: TaskCtx) -> Result<Vec<u8>> {
    let prefix = ctx.request.as_request().arg(2);
    reads(&ctx, prefix)?;
    let none = Error::text("ERR no advisor is on for this prefix in this database: EXPIRY ADVISOR ON begins");
    let Some(advised) = ctx.server.global.advised.get(ctx.db, prefix) else { return Err(none) };
    let advice = gather(&ctx, &advised).await.ok_or(none)?;
    Ok(ctx.reply(|reply| tell(reply, &advice)))
}

/// What all shards say; `None` where the advisor was switched off meanwhile, or is being switched on.
async fn gather(ctx: &TaskCtx, advised: &Arc<Advised>) -> Option<Advice> {
    let id = advised.id;
    let of_shards = ctx.server.shard.call_all(move |shard| {
        let now = shard.clock.refresh();
        shard.keyspace.borrow_mut().advice(id, now)
    });
    let of_shards: Vec<Advice> = of_shards.await.into_iter().collect::<Option<_>>()?;
    of_shards.into_iter().reduce(|mut all, other| {
        all.merge(&other);
        all
    })
}

fn tell(reply: &mut Reply, advice: &Advice) {
    let or_none = |ms: Option<u64>| ms.map_or(-1, as_int);
    let ([expired, removed, cold], [deaths, unread]) = (advice.misses_by_cause(), advice.deaths());
    reply.map(FACTS);
    let mut int = |name: &str, number: i64| {
        reply.bulk(name.as_bytes());
        reply.int(number);
    };
    int("counted_ms", as_int(advice.counted_ms));
    int("reads", as_int(advice.reads()));
    int("hits", as_int(advice.hits()));
    int("misses", as_int(advice.misses()));
    int("expired_misses", as_int(expired));
    int("removed_misses", as_int(removed));
    int("cold_misses", as_int(cold));
    int("deaths", as_int(deaths));
    int("unread_deaths", as_int(unread));
    int("median_lifetime_ms", or_none(advice.median_life_ms()));
    int("age_p50_ms", or_none(advice.age_ms(0.5)));
    int("age_p90_ms", or_none(advice.age_ms(0.9)));
    int("age_p99_ms", or_none(advice.age_ms(0.99)));
    int("bytes", as_int(advice.bytes()));
    int("sampled_keys", advice.sampled_keys as i64);
    int("advisor_bytes", advice.own_bytes as i64);
    reply.bulk(b"sampled_percent");
    reply.double(percent(advice.sampled_share));
    reply.bulk(b"hit_percent");
    reply.double(percent(advice.hit_share()));
    reply.bulk(b"curve");
    reply.array(advice.lifetimes.len());
    advice.curve().for_each(|point| tell_point(reply, &point));
}

const FACTS: usize = 19;

fn tell_point(reply: &mut Reply, point: &AdvicePoint) {
    reply.map(5 + usize::from(point.factor.is_some()));
    if let Some(factor) = point.factor {
        reply.bulk(b"times");
        reply.double(factor);
    }
    reply.bulk(b"lifetime_ms");
    reply.int(point.life_ms.map_or(-1, as_int));
    reply.bulk(b"hit_percent");
    reply.double(percent(point.hit_share));
    reply.bulk(b"saved_percent");
    reply.double(percent(point.saved_share));
    reply.bulk(b"bytes");
    reply.int(as_int(point.bytes));
    reply.bulk(b"more_bytes");
    reply.int(point.more_bytes);
}

fn as_int(number: u64) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// With two digits behind the point.
fn percent(share: f64) -> f64 {
    (share * 10_000.0).round() / 100.0
}
