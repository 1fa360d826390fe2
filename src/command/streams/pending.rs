//! What is pending: acknowledged, shown, and claimed by another consumer.

use super::super::Ctx;
use super::handed::Handed;
use super::{find, no_group, now_ms, parse_id, parse_ids, parse_interval, reply_entry, reply_id};
use crate::keyspace::{Change, Event, Touch};
use crate::resp::{Error, Reply, Request, Result, printable};
use crate::value::number::parse_i64;
use crate::value::stream::{ConsumerKey, Group, Id, Log, Pending, Stream};

pub fn xack(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let found = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?;
    let has_group = |stream: &Stream| stream.groups.get(request.arg(2)).is_some();
    let Some(live) = found.filter(|live| live.node().is_some_and(has_group)) else {
        ctx.reply.int(0);
        return Ok(());
    };
    let ids = parse_ids(request.from(3))?;
    let acknowledge = |group: &mut Group| ids.iter().filter(|id| group.acknowledge(**id)).count();
    let acknowledged = live.edit().change_node(|stream: &mut Stream| stream.groups.change(request.arg(2), acknowledge));
    let acknowledged = acknowledged.flatten().unwrap_or(0);
    ctx.commit_if(acknowledged > 0, key, Change::untold().times(acknowledged as u64).unseen());
    ctx.reply.int(acknowledged as i64);
    Ok(())
}

/// What XPENDING shows one by one.
struct Shown<'r> {
    min_idle_ms: i64,
    start: Id,
    end: Id,
    count: usize,
    consumer: Option<&'r [u8]>,
}

impl<'r> Shown<'r> {
    /// Of `[[IDLE min-idle-time] start end count [consumer]]`; none where there are no arguments. One argument more is
    /// passed over, as in Redis.
    fn parse(request: Request<'r>) -> Result<Option<Shown<'r>>> {
        if request.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&request.len()) {
            return Err(Error::Syntax);
        }
        let (mut at, mut min_idle_ms) = (3, 0);
        if request.is(3, "idle") {
            min_idle_ms = request.int(4)?;
            if request.len() < 8 {
                return Err(Error::Syntax);
            }
            at = 5;
        }
        let count = usize::try_from(request.int(at + 2)?).unwrap_or(0);
        let (start, end) = parse_interval(request.arg(at), request.arg(at + 1))?;
        Ok(Some(Shown { min_idle_ms, start, end, count, consumer: request.get(at + 3) }))
    }

    fn reply(&self, reply: &mut Reply, group: &Group, now_ms: i64) {
        match self.consumer {
            None => self.reply_all(reply, group, now_ms, group.pending_from(self.start)),
            Some(name) => match group.find_consumer(name) {
                None => reply.array(0),
                Some(key) => self.reply_all(reply, group, now_ms, group.pending_with(key, self.start)),
            },
        }
    }

    fn reply_all(
        &self,
        reply: &mut Reply,
        group: &Group,
        now_ms: i64,
        pending: impl Iterator<Item = (Id, Pending)> + Clone,
    ) {
        let idle_ms = |pending: &Pending| now_ms.saturating_sub(pending.delivered_ms);
        let shown = pending
            .take_while(|(id, _)| *id <= self.end)
            .filter(|(_, pending)| self.min_idle_ms == 0 || idle_ms(pending) >= self.min_idle_ms)
            .take(self.count);
        reply.array(shown.clone().count());
        for (id, pending) in shown {
            reply.array(4);
            reply_id(reply, id);
            reply.bulk(group.consumer(pending.consumer).name());
            reply.int(idle_ms(&pending).max(0));
            reply.int(pending.deliveries as i64);
        }
    }
}

pub fn xpending(ctx: &mut Ctx, request: Request) -> Result {
    let shown = Shown::parse(request)?;
    let key = ctx.key(request.arg(1));
    let found = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?;
    let stream = found.as_ref().and_then(|live| live.node::<Stream>());
    let group = stream.and_then(|stream| stream.groups.get(request.arg(2)));
    let group = group.ok_or_else(|| no_group(key.bytes, request.arg(2), ""))?;
    match shown {
        Some(shown) => shown.reply(&mut ctx.reply, group, now_ms(ctx.now)),
        None => reply_summary(&mut ctx.reply, group),
    }
    Ok(())
}

/// How much is pending, the first and the last of it, and how much with whom.
fn reply_summary(reply: &mut Reply, group: &Group) {
    reply.array(4);
    reply.int(group.pending_count() as i64);
    let Some((first, last)) = group.pending_ends() else {
        reply.nil();
        reply.nil();
        return reply.nil_array();
    };
    reply_id(reply, first);
    reply_id(reply, last);
    let busy = group.consumers().map(|(_, consumer)| consumer).filter(|consumer| consumer.pending_count() > 0);
    reply.array(busy.clone().count());
    for consumer in busy {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk_int(consumer.pending_count() as i64);
    }
}

/// What XCLAIM does with each entry.
struct Claim {
    min_idle_ms: i64,
    /// Store time of the delivery that is pretended.
    delivered_ms: i64,
    deliveries: Option<u64>,
    /// Entries that are not pending are claimed, too.
    force: bool,
    just_id: bool,
    last_id: Id,
    /// Index behind the ids.
    ids_end: usize,
}

/// Where the ids of XCLAIM begin.
const IDS: usize = 5;

impl Claim {
    fn parse(ctx: &Ctx, request: Request) -> Result<Claim> {
        let int = |index, error| parse_i64(request.arg(index)).ok_or(Error::text(error));
        let min_idle_ms = int(4, "ERR Invalid min-idle-time argument for XCLAIM")?.max(0);
        let ids = request.from(IDS).take_while(|text| Id::parse(text).is_ok()).count();
        let now_wall_ms = ctx.clock.to_wall_ms(ctx.present().ms);
        let mut delivered_wall_ms = -1;
        let mut claim = Claim {
            min_idle_ms,
            delivered_ms: now_ms(ctx.present()),
            deliveries: None,
            force: false,
            just_id: false,
            last_id: Id::MIN,
            ids_end: IDS + ids,
        };
        let mut index = claim.ids_end;
        while index < request.len() {
            let more = index + 1 < request.len();
            if request.is(index, "force") {
                claim.force = true;
            } else if request.is(index, "justid") {
                claim.just_id = true;
            } else if request.is(index, "idle") && more {
                index += 1;
                let idle_ms = int(index, "ERR Invalid IDLE option argument for XCLAIM")?;
                delivered_wall_ms = now_wall_ms.wrapping_sub(idle_ms);
            } else if request.is(index, "time") && more {
                index += 1;
                delivered_wall_ms = int(index, "ERR Invalid TIME option argument for XCLAIM")?;
            } else if request.is(index, "retrycount") && more {
                index += 1;
                let deliveries = int(index, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                claim.deliveries = u64::try_from(deliveries).ok();
            } else if request.is(index, "lastid") && more {
                index += 1;
                claim.last_id = parse_id(request.arg(index))?;
            } else {
                let option = printable(request.arg(index), usize::MAX);
                return Err(Error::quoting(&[b"ERR Unrecognized XCLAIM option '", option, b"'"]));
            }
            index += 1;
        }
        // A time that makes no sense is now: clients compute it from clocks of their own.
        if (0..=now_wall_ms).contains(&delivered_wall_ms) {
            claim.delivered_ms = delivered_wall_ms.saturating_sub(ctx.clock.wall_offset_ms());
        }
        Ok(claim)
    }
}

/// Entries on their way to the consumer that claims them.
struct Claimant<'c> {
    log: &'c Log,
    group: &'c mut Group,
    name: &'c [u8],
    now_ms: i64,
    /// Known as soon as something is claimed.
    key: Option<ConsumerKey>,
    handed: &'c mut Handed,
    /// Changes so far.
    dirty: u64,
}

impl Claimant<'_> {
    fn take(&mut self, id: Id, delivered_ms: i64, deliveries: u64) {
        let key = *self.key.get_or_insert_with(|| {
            let (key, created) = self.group.find_or_create_consumer(self.name, self.now_ms);
            self.handed.created = created;
            self.group.consumer_mut(key).active_ms = Some(self.now_ms);
            key
        });
        let pending = Pending { consumer: key, delivered_ms, deliveries };
        self.group.assign(id, pending);
        self.handed.give(id, pending);
        self.dirty += 1;
    }

    /// An entry that is gone is pending no more; whether it was.
    fn forget(&mut self, id: Id) -> bool {
        let was_pending = self.group.acknowledge(id);
        if was_pending {
            self.handed.forget(id);
            self.dirty += 1;
        }
        was_pending
    }

    fn is_idle(&self, pending: Pending, min_idle_ms: i64) -> bool {
        min_idle_ms == 0 || self.now_ms.saturating_sub(pending.delivered_ms) >= min_idle_ms
    }
}

/// What came of a claim.
struct Claimed<R> {
    reply: R,
    dirty: u64,
}

/// Runs a claim by the consumer that is argument 3, in the group that is argument 2.
fn claim_in_group<R>(ctx: &mut Ctx, request: Request, claim: impl FnOnce(&mut Claimant) -> R) -> Result<R> {
    let key = ctx.key(request.arg(1));
    let (now_ms, mut handed) = (now_ms(ctx.present()), Handed::of(ctx.is_journaled()));
    let found = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?;
    let claimed = found.and_then(|live| {
        live.edit().change_node(|stream: &mut Stream| {
            let Stream { log, groups } = stream;
            groups.change(request.arg(2), |group| {
                let (name, handed) = (request.arg(3), &mut handed);
                let mut claimant = Claimant { log, group, name, now_ms, key: None, handed, dirty: 0 };
                let reply = claim(&mut claimant);
                Claimed { reply, dirty: claimant.dirty }
            })
        })
    });
    let claimed = claimed.flatten().ok_or_else(|| no_group(key.bytes, request.arg(2), ""))?;
    let (count, created) = (claimed.dirty + u64::from(handed.created), handed.created);
    let change = Change::untold().and_if(created, Event::XGroupCreateConsumer).times(count).unseen();
    ctx.commit_if(count > 0, key, change);
    if count > 0 {
        handed.propagate(ctx, key, request.arg(2), request.arg(3));
    }
    Ok(claimed.reply)
}

pub fn xclaim(ctx: &mut Ctx, request: Request) -> Result {
    check_group(ctx, request)?;
    ctx.touch = Touch::NOTHING;
    let claim = Claim::parse(ctx, request)?;
    let proto = ctx.reply.proto;
    let (claimed, items) = claim_in_group(ctx, request, |claimant| {
        if claim.last_id > claimant.group.last_delivered() {
            claimant.group.raise_last_delivered(claim.last_id);
            claimant.handed.has_moved(claimant.group);
            claimant.dirty += 1;
        }
        let (mut claimed, mut items) = (0, Vec::new());
        for text in request.from(IDS).take(claim.ids_end - IDS) {
            let taken =
                Id::parse(text).is_ok_and(|id| claim_one(claimant, &claim, id, &mut Reply::new(&mut items, proto)));
            claimed += usize::from(taken);
        }
        (claimed, items)
    })?;
    ctx.reply.array(claimed);
    ctx.reply.raw(&items);
    Ok(())
}

fn claim_one(claimant: &mut Claimant, claim: &Claim, id: Id, reply: &mut Reply) -> bool {
    let Some(entry) = claimant.log.get(id) else {
        claimant.forget(id);
        return false;
    };
    let deliveries = match claimant.group.pending(id) {
        Some(pending) if claimant.is_idle(pending, claim.min_idle_ms) => pending.deliveries,
        None if claim.force => 1,
        _ => return false,
    };
    let once_more = deliveries.wrapping_add(u64::from(!claim.just_id));
    claimant.take(id, claim.delivered_ms, claim.deliveries.unwrap_or(once_more));
    if claim.just_id {
        reply_id(reply, id);
    } else {
        reply_entry(reply, entry);
    }
    true
}

/// The most that XAUTOCLAIM may be asked for.
const AUTO_COUNT_MAX: i64 = i64::MAX / 16;
/// Pending entries it looks at for each that it may claim.
const LOOKED_AT_FOR_EACH: usize = 10;

/// XAUTOCLAIM's arguments.
struct AutoClaim {
    min_idle_ms: i64,
    start: Id,
    count: usize,
    just_id: bool,
}

impl AutoClaim {
    fn parse(request: Request) -> Result<AutoClaim> {
        let min_idle_ms = parse_i64(request.arg(4));
        let min_idle_ms = min_idle_ms.ok_or(Error::text("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?.max(0);
        let start = Id::parse_start(request.arg(5)).map_err(Error::err)?;
        let mut auto = AutoClaim { min_idle_ms, start, count: 100, just_id: false };
        let mut index = 6;
        while index < request.len() {
            if request.is(index, "count") && index + 1 < request.len() {
                index += 1;
                let count = parse_i64(request.arg(index)).filter(|count| (1..=AUTO_COUNT_MAX).contains(count));
                auto.count = count.ok_or(Error::text("ERR COUNT must be > 0"))? as usize;
            } else if request.is(index, "justid") {
                auto.just_id = true;
            } else {
                return Err(Error::Syntax);
            }
            index += 1;
        }
        Ok(auto)
    }
}

pub fn xautoclaim(ctx: &mut Ctx, request: Request) -> Result {
    let auto = AutoClaim::parse(request)?;
    let proto = ctx.reply.proto;
    let (mut items, mut claimed, mut deleted) = (Vec::new(), 0, Vec::new());
    let next = claim_in_group(ctx, request, |claimant| {
        let mut reply = Reply::new(&mut items, proto);
        let mut looked_at = auto.count.saturating_mul(LOOKED_AT_FOR_EACH);
        let mut next = claimant.group.pending_from(auto.start).next();
        while let Some((id, pending)) = next
            && looked_at > 0
            && claimed + deleted.len() < auto.count
        {
            looked_at -= 1;
            if claimant.log.get(id).is_none() {
                claimant.forget(id);
                deleted.push(id);
            } else if claimant.is_idle(pending, auto.min_idle_ms) {
                let deliveries = pending.deliveries.wrapping_add(u64::from(!auto.just_id));
                claimant.take(id, claimant.now_ms, deliveries);
                match claimant.log.get(id) {
                    Some(entry) if !auto.just_id => reply_entry(&mut reply, entry),
                    _ => reply_id(&mut reply, id),
                }
                claimed += 1;
            }
            next = id.next().and_then(|from| claimant.group.pending_from(from).next());
        }
        next.map_or(Id::MIN, |(id, _)| id)
    })?;
    ctx.reply.array(3);
    reply_id(&mut ctx.reply, next);
    ctx.reply.array(claimed);
    ctx.reply.raw(&items);
    ctx.reply.array(deleted.len());
    deleted.into_iter().for_each(|id| reply_id(&mut ctx.reply, id));
    Ok(())
}

/// XCLAIM looks for the group before it looks at its arguments.
fn check_group(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let found = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?;
    let stream = found.as_ref().and_then(|live| live.node::<Stream>());
    match stream.and_then(|stream| stream.groups.get(request.arg(2))) {
        Some(_) => Ok(()),
        None => Err(no_group(key.bytes, request.arg(2), "")),
    }
}
