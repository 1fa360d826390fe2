//! XREAD and XREADGROUP: what is new in several streams, or what is pending with a consumer.
//!
//! ```text
//!  parse ──> resolve, stream by stream ──> serve, stream by stream ──> those that have something
//!            type, group, id; errors        entries; groups advance
//! ```
//! All streams are resolved before the first is served, so that an error leaves everything as it was. Across shards
//! each shard does both for its own streams, in one transaction.
//!
//! Who waits does so for one stream at a time, with a request of its own for each, which names the id that was resolved
//! when the wait began. Whoever reads in a group waits neither for a key that is gone nor for a group that is.

use super::super::blocking::{Blocking, Nil, Wait, any_is_enough, milliseconds};
use super::super::spec::Keys;
use super::super::{Across, Ctx, OwnedRequest};
use super::handed::Handed;
use super::{at_most, find, no_group, now_ms, parse_id, reply_entries, reply_entry, reply_id};
use crate::command::blocking::both_once;
use crate::command::hop::each_once;
use crate::keyspace::{Change, Event, Kind};
use crate::resp::{Error, Proto, Reply, Request, Result};
use crate::value::number::{I64_TEXT_BYTES_MAX, format_i64};
use crate::value::stream::{Group, ID_TEXT_BYTES_MAX, Id, Log, Pending, Stream};
use std::pin::Pin;
use std::sync::Arc;

/// The most entries that who has waited gets, where nothing else is said.
const COUNT_AFTER_WAIT: usize = 1000;

pub const XREAD: Blocking = Blocking {
    wait: |request| Ok(Read::parse(request, false)?.wait),
    attempt: (xread, xread_across),
    once: both_once!(XREAD.wait, xread, xread_across, XREAD.nil),
    nil: Nil::Array,
    keys: Keys::STREAMS,
    kind: Kind::Stream,
    narrow: |ctx, request, index| narrow(ctx, request, index, false),
    is_enough: any_is_enough,
    ends_with_key: false,
};

pub const XREADGROUP: Blocking = Blocking {
    wait: |request| Ok(Read::parse(request, true)?.wait),
    attempt: (xreadgroup, xreadgroup_across),
    once: both_once!(XREADGROUP.wait, xreadgroup, xreadgroup_across, XREADGROUP.nil),
    keys: Keys::GROUP_STREAMS,
    narrow: |ctx, request, index| narrow(ctx, request, index, true),
    is_enough: any_is_enough,
    ends_with_key: true,
    ..XREAD
};

fn xread(ctx: &mut Ctx, request: Request) -> Result {
    attempt(ctx, request, false)
}

fn xread_across(across: Across) -> Pin<Box<dyn Future<Output = Result<Vec<u8>>>>> {
    Box::pin(attempt_across(across, false))
}

fn xreadgroup(ctx: &mut Ctx, request: Request) -> Result {
    attempt(ctx, request, true)
}

fn xreadgroup_across(across: Across) -> Pin<Box<dyn Future<Output = Result<Vec<u8>>>>> {
    Box::pin(attempt_across(across, true))
}

/// The arguments; names are indexes into the request.
#[derive(Clone, Copy)]
struct Read {
    wait: Wait,
    /// The most entries of one stream.
    count: usize,
    group: Option<usize>,
    no_ack: bool,
    /// Index of the first key.
    keys: usize,
    /// Number of streams; their ids are behind their keys.
    streams: usize,
}

/// Where reading a stream begins.
#[derive(Clone, Copy)]
enum From {
    /// Behind this id.
    After(Id),
    /// Behind what the group was delivered last.
    New,
    /// Behind this id, of what is pending with the consumer.
    Pending(Id),
}

impl Read {
    fn parse(request: Request, of_group: bool) -> Result<Read> {
        let mut read = Read { wait: Wait::Never, count: usize::MAX, group: None, no_ack: false, keys: 0, streams: 0 };
        let mut index = 1;
        while index < request.len() && read.keys == 0 {
            let more = request.len() - 1 - index;
            if request.is(index, "block") && more > 0 {
                index += 1;
                read.wait = milliseconds(request.arg(index))?;
            } else if request.is(index, "count") && more > 0 {
                index += 1;
                read.count = at_most(request.int(index)?);
            } else if request.is(index, "streams") && more > 0 {
                read.keys = index + 1;
                read.streams = more / 2;
                if !more.is_multiple_of(2) {
                    return Err(Error::text(
                        "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
                    ));
                }
            } else if request.is(index, "group") && more > 1 {
                if !of_group {
                    return Err(only_for_groups("GROUP"));
                }
                read.group = Some(index + 1);
                index += 2;
            } else if request.is(index, "noack") {
                if !of_group {
                    return Err(only_for_groups("NOACK"));
                }
                read.no_ack = true;
            } else {
                return Err(Error::Syntax);
            }
            index += 1;
        }
        if read.keys == 0 {
            return Err(Error::Syntax);
        }
        if of_group && read.group.is_none() {
            return Err(Error::text("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(read)
    }

    fn key<'r>(&self, request: Request<'r>, nth: usize) -> &'r [u8] {
        request.arg(self.keys + nth)
    }

    /// Finds out where a stream is read from; all errors come from here.
    fn resolve(&self, ctx: &mut Ctx, request: Request, nth: usize) -> Result<From> {
        let (bytes, text) = (self.key(request, nth), request.arg(self.keys + self.streams + nth));
        let key = ctx.other_key(bytes);
        let found = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?;
        let stream = found.as_ref().and_then(|live| live.node::<Stream>());
        let log = stream.map(|stream| &stream.log);
        if let Some(group) = self.group {
            let name = request.arg(group);
            if stream.is_none_or(|stream| stream.groups.get(name).is_none()) {
                return Err(no_group(bytes, name, " in XREADGROUP with GROUP option"));
            }
        }
        match (text, self.group) {
            (b"$", Some(_)) => Err(Error::text(
                "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                 consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return \
                 an empty result set.",
            )),
            (b"$", None) => Ok(From::After(log.map_or(Id::MIN, Log::last_id))),
            (b"+", None) => Ok(From::After(log.map_or(Id::MIN, before_last_entry))),
            (b">", Some(_)) => Ok(From::New),
            (b">", None) => Err(Error::text(
                "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
            )),
            (_, group) => match (parse_id(text)?, group) {
                (id, None) => Ok(From::After(id)),
                // This is how Redis keeps `>` in mind.
                (Id::MAX, Some(_)) => Ok(From::New),
                (id, Some(_)) => Ok(From::Pending(id)),
            },
        }
    }

    /// Serves some of the streams, each where there is something for it; no further where that is too much already.
    fn serve_all(
        &self,
        ctx: &mut Ctx,
        (request, proto): (Request, Proto),
        streams: impl Iterator<Item = (usize, From)>,
    ) -> Vec<(usize, Vec<u8>)> {
        let (mut parts, mut bytes) = (Vec::new(), 0);
        for (nth, from) in streams {
            let mut part = Vec::new();
            if bytes <= ctx.limits.reply_bytes && self.serve(ctx, request, nth, from, &mut Reply::new(&mut part, proto))
            {
                bytes += part.len();
                parts.push((nth, part));
            }
        }
        parts
    }

    /// Writes a stream's part of the reply; whether there is one.
    fn serve(&self, ctx: &mut Ctx, request: Request, nth: usize, from: From, reply: &mut Reply) -> bool {
        let bytes = self.key(request, nth);
        let key = ctx.other_key(bytes);
        let mut handed = Handed::of(ctx.is_journaled());
        // As in Redis, for which this is a second hit or miss.
        let present = ctx.present();
        let found = ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch);
        let Some(live) = found else { return false };
        let begin = |reply: &mut Reply| {
            if reply.proto == Proto::Resp2 {
                reply.array(2);
            }
            reply.bulk(bytes);
        };
        let Some(group) = self.group else {
            let (From::After(id), Some(stream)) = (from, live.node::<Stream>()) else { return false };
            let entries = stream.log.range(id.next().unwrap_or(id), Id::MAX).take(self.count);
            let something = id < Id::MAX && entries.clone().next().is_some();
            if something {
                begin(reply);
                reply_entries(reply, entries);
            }
            return something;
        };
        let (group, consumer) = (request.arg(group), request.arg(group + 1));
        let now_ms = now_ms(present);
        let served = live.edit().change_node(|stream: &mut Stream| {
            let Stream { log, groups } = stream;
            groups.change(group, |group| {
                let delivery = Delivery { log, group, consumer, now_ms, count: self.count, handed: &mut handed };
                match from {
                    From::Pending(id) => {
                        begin(reply);
                        delivery.again(id, reply);
                        true
                    }
                    _ => delivery.new_entries(self.no_ack, reply, begin),
                }
            })
        });
        let served = served.flatten() == Some(true);
        let created = handed.created;
        let count = u64::from(served) + u64::from(created);
        let change = Change::untold().and_if(created, Event::XGroupCreateConsumer).times(count);
        ctx.commit_if(count > 0, key, change.unseen());
        if count > 0 {
            handed.propagate(ctx, key, group, consumer);
        }
        served
    }
}

/// Entries of one stream on their way to a consumer.
struct Delivery<'d> {
    log: &'d Log,
    group: &'d mut Group,
    consumer: &'d [u8],
    now_ms: i64,
    count: usize,
    handed: &'d mut Handed,
}

impl Delivery<'_> {
    /// What the group was not delivered yet; whether there is any.
    fn new_entries(self, no_ack: bool, reply: &mut Reply, begin: impl FnOnce(&mut Reply)) -> bool {
        let Delivery { log, group, consumer, now_ms, count, handed } = self;
        // Who asks is there from now on, also where there is nothing for it, as from Redis 7.2 on.
        let (key, created) = group.find_or_create_consumer(consumer, now_ms);
        handed.created = created;
        let Some(start) = group.last_delivered().next() else { return false };
        let entries = log.range(start, Id::MAX).take(count);
        if entries.clone().next().is_none() {
            return false;
        }
        begin(reply);
        reply.array(entries.clone().count());
        for entry in entries {
            group.advance(log, entry.id);
            if !no_ack {
                let pending = Pending { consumer: key, delivered_ms: now_ms, deliveries: 1 };
                group.assign(entry.id, pending);
                handed.give(entry.id, pending);
                group.consumer_mut(key).active_ms = Some(now_ms);
            }
            reply_entry(reply, entry);
        }
        handed.has_moved(group);
        true
    }

    /// What is pending with the consumer behind an id, once more; of entries that were deleted there is only the id.
    fn again(self, after: Id, reply: &mut Reply) {
        let Delivery { log, group, consumer, now_ms, count, handed } = self;
        let (key, created) = group.find_or_create_consumer(consumer, now_ms);
        handed.created = created;
        let pending = || group.pending_with(key, after.next().unwrap_or(after)).take(count);
        reply.array(pending().count());
        let mut found = Vec::new();
        for (id, pending) in pending() {
            match log.get(id) {
                Some(entry) => {
                    reply_entry(reply, entry);
                    found.push((id, pending.deliveries.wrapping_add(1)));
                }
                None => {
                    reply.array(2);
                    reply_id(reply, id);
                    reply.nil_array();
                }
            }
        }
        for (id, deliveries) in found {
            let pending = Pending { consumer: key, delivered_ms: now_ms, deliveries };
            group.assign(id, pending);
            handed.give(id, pending);
        }
    }
}

/// The request for one stream alone, with the id from which it is waited for.
fn narrow(ctx: &mut Ctx, request: Request, index: usize, of_group: bool) -> OwnedRequest {
    let Ok(read) = Read::parse(request, of_group) else { return OwnedRequest::default() };
    let mut narrowed = OwnedRequest::from_args(request.from(0).take(1));
    if let Some(group) = read.group {
        [b"GROUP", request.arg(group), request.arg(group + 1)].into_iter().for_each(|arg| narrowed.push(arg));
        if read.no_ack {
            narrowed.push(b"NOACK");
        }
    }
    narrowed.push(b"COUNT");
    let count = if read.count == usize::MAX { COUNT_AFTER_WAIT } else { read.count };
    narrowed.push(format_i64(count as i64, &mut [0; I64_TEXT_BYTES_MAX]));
    narrowed.push(b"STREAMS");
    narrowed.push(request.arg(index));
    match read.resolve(ctx, request, index - read.keys) {
        Ok(From::After(id)) => narrowed.push(id.format(&mut [0; ID_TEXT_BYTES_MAX])),
        // What is pending is never waited for.
        _ => narrowed.push(b">"),
    }
    narrowed
}

/// What makes the last entry the first that is read; in an empty stream, what comes next.
fn before_last_entry(log: &Log) -> Id {
    log.last_live_id().map_or(log.last_id(), |id| id.prev().unwrap_or(id))
}

fn only_for_groups(option: &str) -> Error {
    Error::err(format_args!("The {option} option is only supported by XREADGROUP. You called XREAD instead."))
}

/// Nothing where there are no parts.
fn reply_parts<'p>(reply: &mut Reply, parts: impl ExactSizeIterator<Item = &'p [u8]>) {
    match (parts.len(), reply.proto) {
        (0, _) => {}
        (len, Proto::Resp2) => reply.array(len),
        (len, Proto::Resp3) => reply.map(len),
    }
    parts.for_each(|part| reply.raw(part));
}

fn attempt(ctx: &mut Ctx, request: Request, of_group: bool) -> Result {
    let read = Read::parse(request, of_group)?;
    let from = (0..read.streams).map(|nth| read.resolve(ctx, request, nth)).collect::<Result<Vec<From>>>()?;
    let parts = read.serve_all(ctx, (request, ctx.reply.proto), from.into_iter().enumerate());
    reply_parts(&mut ctx.reply, parts.iter().map(|(_, part)| part.as_slice()));
    Ok(())
}

async fn attempt_across(across: Across, of_group: bool) -> Result<Vec<u8>> {
    let request = Arc::new(across.request.clone());
    let read = Read::parse(request.as_request(), of_group)?;
    let owners: Arc<[usize]> =
        (0..read.streams).map(|nth| across.shard_of(read.key(request.as_request(), nth))).collect();
    let shards = each_once(owners.iter().copied());
    let resolve = {
        let (request, owners) = (request.clone(), owners.clone());
        move |ctx: &mut Ctx, shard: usize| {
            let own = (0..read.streams).filter(|nth| owners[*nth] == shard);
            own.map(|nth| (nth, read.resolve(ctx, request.as_request(), nth))).collect::<Vec<_>>()
        }
    };
    let mut resolved: Vec<(usize, Result<From>)> =
        across.on_all(&shards, resolve).await.into_iter().flatten().collect();
    resolved.sort_unstable_by_key(|(nth, _)| *nth);
    let from = resolved.into_iter().map(|(_, from)| from).collect::<Result<Vec<From>>>()?;
    let proto = across.proto;
    let serve = move |ctx: &mut Ctx, shard: usize| {
        let own = (0..read.streams).filter(|nth| owners[*nth] == shard);
        read.serve_all(ctx, (request.as_request(), proto), own.map(|nth| (nth, from[nth])))
    };
    let mut parts: Vec<(usize, Vec<u8>)> = across.on_all(&shards, serve).await.into_iter().flatten().collect();
    if parts.iter().map(|(_, part)| part.len()).sum::<usize>() > across.limits.reply_bytes {
        return Err(Error::OutputTooLong);
    }
    parts.sort_unstable_by_key(|(nth, _)| *nth);
    Ok(across.reply(|reply| reply_parts(reply, parts.iter().map(|(_, part)| part.as_slice()))))
}
