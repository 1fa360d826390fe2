//! XINFO: what is to be known of a stream, its groups and their consumers.

use super::super::Ctx;
use super::{at_most, find, no_group_of_key, now_ms, reply_entries, reply_entry, reply_id};
use crate::resp::{Error, Reply, Request, Result};
use crate::value::stream::{Consumer, Group, Id, Log, Pending, Stream};

/// Entries and pending entries that FULL shows where nothing else is said.
const FULL_COUNT: i64 = 10;

/// The most entries that `[FULL [COUNT count]]` wants to see; none without FULL.
fn parse_full(request: Request) -> Result<Option<usize>> {
    match request.len() {
        3 => Ok(None),
        4 if request.is(3, "full") => Ok(Some(FULL_COUNT as usize)),
        6 if request.is(3, "full") && request.is(4, "count") => {
            let count = request.int(5)?;
            Ok(Some(at_most(if count < 0 { FULL_COUNT } else { count })))
        }
        _ => Err(Error::bad_subcommand("XINFO", request.arg(1))),
    }
}

pub fn stream(ctx: &mut Ctx, request: Request) -> Result {
    let wall_offset_ms = ctx.clock.wall_offset_ms();
    let key = ctx.key(request.arg(2));
    let live = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?.ok_or(Error::NoSuchKey)?;
    let full = parse_full(request)?;
    let reply = &mut ctx.reply;
    let Some(Stream { log, groups }) = live.node() else { return Err(Error::WrongType) };
    reply.map(if full.is_some() { 9 } else { 10 });
    reply_log(reply, log);
    let Some(count) = full else {
        pair_int(reply, "groups", groups.len() as i64);
        for (name, entry) in [
            ("first-entry", log.range(Id::MIN, Id::MAX).next()),
            ("last-entry", log.range_back(Id::MIN, Id::MAX).next()),
        ] {
            reply.bulk(name.as_bytes());
            match entry {
                Some(entry) => reply_entry(reply, entry),
                None => reply.nil(),
            }
        }
        return Ok(());
    };
    reply.bulk(b"entries");
    reply_entries(reply, log.range(Id::MIN, Id::MAX).take(count));
    reply.bulk(b"groups");
    reply.array(groups.len());
    for (name, group) in groups.iter() {
        reply.map(7);
        reply.bulk(b"name");
        reply.bulk(name);
        reply_progress(reply, group, log);
        reply_full_group(reply, group, count, wall_offset_ms);
    }
    Ok(())
}

fn reply_log(reply: &mut Reply, log: &Log) {
    let chunks = log.chunk_count() as i64;
    pair_int(reply, "length", log.len() as i64);
    pair_int(reply, "radix-tree-keys", chunks);
    // There is no radix tree: one node for each chunk and the root.
    pair_int(reply, "radix-tree-nodes", chunks + 1);
    pair_id(reply, "last-generated-id", log.last_id());
    pair_id(reply, "max-deleted-entry-id", log.max_deleted_id());
    pair_int(reply, "entries-added", log.entries_added());
    pair_id(reply, "recorded-first-entry-id", log.first_id());
}

fn reply_progress(reply: &mut Reply, group: &Group, log: &Log) {
    pair_id(reply, "last-delivered-id", group.last_delivered());
    for (name, n) in [("entries-read", group.entries_read()), ("lag", group.lag(log))] {
        reply.bulk(name.as_bytes());
        match n {
            Some(n) => reply.int(n),
            None => reply.nil(),
        }
    }
}

/// What is pending, and the consumers with what is pending with each of them.
fn reply_full_group(reply: &mut Reply, group: &Group, count: usize, wall_offset_ms: i64) {
    pair_int(reply, "pel-count", group.pending_count() as i64);
    reply.bulk(b"pending");
    let pending = group.pending_from(Id::MIN).take(count);
    reply.array(pending.clone().count());
    for (id, pending) in pending {
        reply.array(4);
        reply_id(reply, id);
        reply.bulk(group.consumer(pending.consumer).name());
        reply_delivery(reply, pending, wall_offset_ms);
    }
    reply.bulk(b"consumers");
    reply.array(group.consumer_count());
    for (key, consumer) in group.consumers() {
        reply.map(5);
        reply.bulk(b"name");
        reply.bulk(consumer.name());
        pair_int(reply, "seen-time", consumer.seen_ms.saturating_add(wall_offset_ms));
        pair_int(reply, "active-time", consumer.active_ms.map_or(-1, |ms| ms.saturating_add(wall_offset_ms)));
        pair_int(reply, "pel-count", consumer.pending_count() as i64);
        reply.bulk(b"pending");
        let pending = group.pending_with(key, Id::MIN).take(count);
        reply.array(pending.clone().count());
        for (id, pending) in pending {
            reply.array(3);
            reply_id(reply, id);
            reply_delivery(reply, pending, wall_offset_ms);
        }
    }
}

fn reply_delivery(reply: &mut Reply, pending: Pending, wall_offset_ms: i64) {
    reply.int(pending.delivered_ms.saturating_add(wall_offset_ms));
    reply.int(pending.deliveries as i64);
}

pub fn groups(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(2));
    let live = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?.ok_or(Error::NoSuchKey)?;
    let Some(Stream { log, groups }) = live.node() else { return Err(Error::WrongType) };
    let reply = &mut ctx.reply;
    reply.array(groups.len());
    for (name, group) in groups.iter() {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(name);
        pair_int(reply, "consumers", group.consumer_count() as i64);
        pair_int(reply, "pending", group.pending_count() as i64);
        reply_progress(reply, group, log);
    }
    Ok(())
}

pub fn consumers(ctx: &mut Ctx, request: Request) -> Result {
    let now_ms = now_ms(ctx.now);
    let key = ctx.key(request.arg(2));
    let live = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?.ok_or(Error::NoSuchKey)?;
    let group = live.node::<Stream>().and_then(|stream| stream.groups.get(request.arg(3)));
    let group = group.ok_or_else(|| no_group_of_key(key.bytes, request.arg(3)))?;
    let reply = &mut ctx.reply;
    reply.array(group.consumer_count());
    for (_, consumer) in group.consumers() {
        reply_consumer(reply, consumer, now_ms);
    }
    Ok(())
}

fn reply_consumer(reply: &mut Reply, consumer: &Consumer, now_ms: i64) {
    let since = |ms: i64| now_ms.saturating_sub(ms).max(0);
    reply.map(4);
    reply.bulk(b"name");
    reply.bulk(consumer.name());
    pair_int(reply, "pending", consumer.pending_count() as i64);
    pair_int(reply, "idle", since(consumer.seen_ms));
    pair_int(reply, "inactive", consumer.active_ms.map_or(-1, since));
}

fn pair_int(reply: &mut Reply, name: &str, n: i64) {
    reply.bulk(name.as_bytes());
    reply.int(n);
}

fn pair_id(reply: &mut Reply, name: &str, id: Id) {
    reply.bulk(name.as_bytes());
    reply_id(reply, id);
}
