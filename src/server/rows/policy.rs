//! EXPIRY POLICY and EXPIRY STATS of a prefix.
//!
//! The policies stand in the configuration, which all shards share; each shard has an index of its own, on which its
//! commands act. A change is made in the one and then taken over by the others, each of which looks there what holds
//! now: where several connections change the same prefix, all shards end with the last change.

use super::SLICE_US;
use crate::acl::Selector;
use crate::clock::store_us;
use crate::config::{Policies, Policy};
use crate::keyspace::{PrefixCounts, Tally};
use crate::net::{sleep, step_back_in_turn};
use crate::persist::aof::batch;
use crate::resp::{Error, Reply, Result};
use crate::server::admit::READ_ONLY;
use crate::server::kept::policies::Change;
use crate::server::run::rights::may_reach;
use crate::server::state::{Server, TaskCtx, crowd};
use crate::shard::{At, HELD_FOR, Lock, Shard};
use std::collections::BTreeMap;
use std::rc::Rc;

pub async fn policy(ctx: TaskCtx) -> Result<Vec<u8>> {
    let request = ctx.request.as_request();
    match (request.arg(2).to_ascii_lowercase().as_slice(), request.len()) {
        (b"set", 5..) => set(ctx).await,
        (b"get", 4) => get(&ctx).await,
        (b"list", 3) => Ok(list(&ctx).await),
        (b"del", 4) => delete(ctx).await,
        (b"set" | b"get" | b"list" | b"del", _) => Err(Error::WrongArity("expiry|policy".to_owned())),
        _ => Err(Error::text("ERR unknown action of EXPIRY POLICY: it is SET, GET, LIST or DEL")),
    }
}

fn text(word: &[u8]) -> Result<&str> {
    std::str::from_utf8(word).map_err(|_| Error::text("ERR prefixes and policies are text in UTF-8"))
}

async fn set(ctx: TaskCtx) -> Result<Vec<u8>> {
    let words: Vec<&str> = ctx.request.as_request().from(3).map(text).collect::<Result<_>>()?;
    let (prefix, policy, applies) = Policies::parse(words.into_iter()).map_err(Error::err)?;
    if let Some(events) = &policy.events {
        let may_write = |selector: &Selector| selector.writes(events.key.as_bytes());
        // (Where both are refused, ACL LOG names the stream.)
        may_reach(&ctx, events.key.as_bytes(), may_write)?;
        // The stream tells of every key with the prefix.
        let may_read = |selector: &Selector| selector.reads_prefix(prefix.as_bytes());
        may_reach(&ctx, prefix.as_bytes(), |selector| may_write(selector) && may_read(selector))?;
    }
    if applies && ctx.in_exec {
        // The transaction may hold keys that this would have to wait for.
        return Err(Error::text("ERR APPLY isn't allowed within EXEC"));
    }
    if applies && ctx.client.replays() {
        // (Deadlines stand still until the log is read.)
        return Err(Error::text("ERR APPLY isn't allowed in an append only file"));
    }
    if applies && ctx.server.shard.is_following() {
        return Err(READ_ONLY);
    }
    let change = Change::new(prefix, Some(policy));
    if !batch::can_note(&change.in_log()) {
        return Err(Error::text("ERR the policy is too long to be kept in an append only file"));
    }
    make(&ctx, change).await?;
    take_over(&ctx.server, prefix).await;
    if applies && !apply(&ctx, prefix).await {
        return Err(READ_ONLY);
    }
    Ok(ctx.reply(|reply| reply.ok()))
}

async fn delete(ctx: TaskCtx) -> Result<Vec<u8>> {
    let prefix = text(ctx.request.as_request().arg(3))?;
    let was_there = make(&ctx, Change::new(prefix, None)).await?;
    take_over(&ctx.server, prefix).await;
    Ok(ctx.reply(|reply| reply.int(i64::from(was_there))))
}

/// Makes a change as a write is made: not on a replica, whose policies are those of its primary, and not in a pause, the end of
/// which is waited for. Whether the prefix had a policy before.
async fn make(ctx: &TaskCtx, change: Change) -> Result<bool> {
    let is_replayed = ctx.client.replays();
    if !is_replayed && !ctx.in_exec && !ctx.server.global.following.is_read_only() {
        crowd::admit_change(&ctx.server.global.log).await?;
        if ctx.client.closed.get() {
            return Err(Error::text("ERR the connection has ended"));
        }
    }
    loop {
        let change = change.clone();
        let make = move |server: &Server, policies: &mut BTreeMap<Box<str>, Policy>| {
            let global = &server.global;
            if !is_replayed && global.following.is_read_only() {
                return Some(Err(READ_ONLY));
            }
            if !is_replayed && global.pauses.until_us() > store_us() {
                return None;
            }
            let was_there = change.make(policies);
            say(server, &change);
            Some(Ok(was_there))
        };
        if let Some(made) = on_keeper(ctx, make).await {
            return made;
        }
        if ctx.client.closed.get() {
            return Err(Error::text("ERR the connection has ended"));
        }
        sleep(HELD_FOR).await;
    }
}

/// Looks at the policies, or changes them, on the shard that tells the log of their changes: these stand there in the order in
/// which they took effect, and what shows them waits for the disk like that (`appendfsync always`).
async fn on_keeper<R: Send + 'static>(
    ctx: &TaskCtx,
    work: impl FnOnce(&Server, &mut BTreeMap<Box<str>, Policy>) -> R + Send + 'static,
) -> R {
    let work = |shard: &Rc<Shard>| {
        let config = shard.config();
        work(&Server::of(shard), &mut config.expiry_policies.lock())
    };
    ctx.server.shard.call(0, work).await
}

/// Tells the log and replicas of a change, behind what has changed here before. (Replies wait for pushes by their numbers: what
/// this turn has changed so far is in the push before this one.)
fn say(server: &Server, change: &Change) {
    let shard = &server.shard;
    shard.hand_over_records();
    if let Some(push) = server.logging.note(change.in_log(), shard.durable.is_kept()) {
        shard.durable.pushed(push);
    }
    change.tell(server);
}

/// Every shard looks what holds for a prefix now.
async fn take_over(server: &Server, prefix: &str) {
    let prefix = prefix.to_owned();
    server.shard.call_all(move |shard| shard.take_over_policy(&prefix)).await;
}

async fn get(ctx: &TaskCtx) -> Result<Vec<u8>> {
    let prefix = text(ctx.request.as_request().arg(3))?.to_owned();
    let policy = on_keeper(ctx, move |_, policies| policies.get(&*prefix).cloned()).await;
    Ok(ctx.reply(|reply| match policy {
        None => reply.nil(),
        Some(policy) => {
            reply.map(SETTINGS);
            reply_settings(reply, &policy);
        }
    }))
}

const SETTINGS: usize = 12;

fn reply_settings(reply: &mut Reply, policy: &Policy) {
    let mut fact = |name: &str, write: &dyn Fn(&mut Reply)| {
        reply.bulk(name.as_bytes());
        write(reply);
    };
    let ms = |ms: Option<u64>| move |reply: &mut Reply| reply.int(ms.map_or(-1, |ms| ms as i64));
    let events = policy.events.as_ref();
    fact("policy", &|reply| reply.bulk(policy.words().join(" ").as_bytes()));
    fact("default_ms", &ms(policy.default_ms));
    fact("max_ms", &ms(policy.max_ms));
    fact("jitter_percent", &|reply| reply.double(f64::from(policy.jitter) / 100.0));
    fact("sliding", &|reply| reply.int(policy.is_sliding().into()));
    fact("sliding_last_percent", &|reply| reply.double(f64::from(policy.sliding.unwrap_or(0)) / 100.0));
    fact("require", &|reply| reply.int(policy.requires.into()));
    fact("noevict", &|reply| reply.int(policy.no_evict.into()));
    fact("stale_ms", &ms(policy.stale_ms));
    fact("events", &|reply| match events {
        None => reply.nil(),
        Some(events) => reply.bulk(events.key.as_bytes()),
    });
    fact("with_value", &|reply| reply.int(events.is_some_and(|events| events.with_value).into()));
    fact("max_len", &|reply| {
        reply.int(events.and_then(|events| events.max_len).map_or(-1, |len| len.try_into().unwrap_or(i64::MAX)));
    });
}

async fn list(ctx: &TaskCtx) -> Vec<u8> {
    let all = |_: &Server, policies: &mut BTreeMap<Box<str>, Policy>| {
        policies.iter().map(|(prefix, policy)| (prefix.clone(), policy.words().join(" "))).collect()
    };
    let policies: Vec<(Box<str>, String)> = on_keeper(ctx, all).await;
    ctx.reply(|reply| {
        reply.map(policies.len());
        for (prefix, words) in &policies {
            reply.bulk(prefix.as_bytes());
            reply.bulk(words.as_bytes());
        }
    })
}

/// Brings the keys that are there under the policy, on all shards at the same time; whether that was done to the end.
async fn apply(ctx: &TaskCtx, prefix: &str) -> bool {
    let at = At { write: true, ..At::unseen(ctx.command, 0, ctx.proto) };
    let prefix = prefix.to_owned();
    let applied = ctx.server.shard.call_all_later(move |shard| apply_on(shard, at, prefix)).await;
    applied.into_iter().all(|applied| applied)
}

/// The walk waits for the end of a pause. Where the server has become a replica the walk ends at once.
async fn apply_on(shard: Rc<Shard>, at: At, prefix: String) -> bool {
    let databases = shard.keyspace.borrow().databases();
    for db in 0..databases {
        let at = At { db, ..at };
        let (mut position, mut keys) = (Some(0), Vec::new());
        while position.is_some() || !keys.is_empty() {
            step_back_in_turn().await;
            let (now, end_us) = (shard.catch_up(), store_us() + SLICE_US);
            if shard.is_following() {
                return false;
            }
            if shard.stands_still(now) {
                sleep(HELD_FOR).await;
                continue;
            }
            while let Some(next) = position.filter(|_| keys.is_empty()) {
                position = shard.keyspace.borrow().walk_ungoverned(db, next, prefix.as_bytes(), now, &mut keys);
                if store_us() >= end_us {
                    break;
                }
            }
            // A key that a transaction holds has its turn when that is over.
            let waiting = keys.len();
            keys.retain(|key| {
                let hash = shard.hasher.hash(key);
                let is_later = store_us() >= end_us || shard.is_locked(Lock { hash, write: true });
                if !is_later {
                    shard.step_of(At { hash, ..at }, now, |ctx| ctx.apply_policy(ctx.key(key)));
                }
                is_later
            });
            shard.after_commands();
            if waiting > 0 && keys.len() == waiting {
                sleep(HELD_FOR).await;
            }
        }
    }
    true
}

/// What a shard has to say of the keys with a prefix.
async fn stats_on(shard: Rc<Shard>, prefix: Box<[u8]>) -> (PrefixCounts, Tally) {
    let mut counts = PrefixCounts::default();
    let databases = shard.keyspace.borrow().databases();
    for db in 0..databases {
        let mut position = Some(0);
        while position.is_some() {
            step_back_in_turn().await;
            let (now, end_us) = (shard.clock.refresh(), store_us() + SLICE_US);
            while let Some(next) = position {
                position = shard.keyspace.borrow().count_prefix(db, next, &prefix, now, &mut counts);
                if store_us() >= end_us {
                    break;
                }
            }
        }
    }
    let tally = shard.keyspace.borrow().tally_of(&prefix).cloned().unwrap_or_default();
    (counts, tally)
}

pub async fn stats(ctx: TaskCtx) -> Vec<u8> {
    let (shard, prefix) = (&ctx.server.shard, ctx.request.as_request().arg(2));
    let (mut counts, mut tally) = (PrefixCounts::default(), Tally::default());
    let owned: Box<[u8]> = prefix.into();
    for (more, of_shard) in shard.call_all_later(move |shard| stats_on(shard, owned)).await {
        counts.add(&more);
        tally.add(&of_shard);
    }
    let policy =
        std::str::from_utf8(prefix).ok().and_then(|prefix| shard.config().expiry_policies.lock().get(prefix).cloned());
    let lag_us = |share| tally.lag.as_ref().map_or(0, |lag| lag.quantile_us(share));
    let facts = [
        ("keys", counts.keys),
        ("keys_with_deadline", counts.with_deadline),
        ("expired_by_access", tally.expired_by_access),
        ("expired_by_cycle", tally.expired_by_cycle),
        ("expired_bytes", tally.expired_bytes),
        ("stale_keys", counts.stale),
        ("average_ttl_ms", counts.average_ms()),
        ("lag_p50_us", lag_us(0.5)),
        ("lag_p99_us", lag_us(0.99)),
        ("lag_max_us", tally.lag.as_ref().map_or(0, |lag| lag.max_us())),
    ];
    ctx.reply(|reply| {
        reply.map(1 + policy.as_ref().map_or(0, |_| SETTINGS) + facts.len());
        reply.bulk(b"has_policy");
        reply.int(policy.is_some().into());
        if let Some(policy) = &policy {
            reply_settings(reply, policy);
        }
        for (name, number) in facts {
            reply.bulk(name.as_bytes());
            reply.int(number as i64);
        }
    })
}
