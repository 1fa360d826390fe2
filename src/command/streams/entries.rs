//! Entries: appended, trimmed, deleted, counted and read by range.

use super::super::Ctx;
use super::{find, of_group, parse_id, parse_ids, parse_interval, reply_entries, reply_id};
use crate::config::Limits;
use crate::keyspace::{Change, Event, Key, Owned};
use crate::resp::{Error, Request, Result};
use crate::value::stream::{
    AppendError, ChunkLimits, Id, Log, NewId, References, Released, Stream, Trim, TrimTo, Trimmed,
};

/// Entries that an approximate trim takes at the most, where nothing else is said: so many chunks full, within limits.
const TRIMMED_CHUNKS: usize = 100;
const TRIMMED_MAX: usize = 1_000_000;
const TRIMMED_WITHOUT_CHUNK_LIMIT: usize = 10_000;

/// One command of the journal names no more ids than this.
const IDS_SAID_AT_ONCE: usize = 1 << 15;

/// What XADD and XTRIM say before the fields.
struct Options {
    trim: Option<Trim>,
    references: Option<References>,
    no_create: bool,
    id: Option<NewId>,
    /// Index of what follows.
    end: usize,
}

impl Options {
    /// `is_told`: a log or a primary says so. Redis says there exactly how far it has trimmed, and leaves the LIMIT standing that
    /// it had kept to.
    fn parse(request: Request, adds: bool, limits: &Limits, is_told: bool) -> Result<Options> {
        let (mut to, mut approximate, mut limit) = (None, false, None);
        let mut options = Options { trim: None, references: None, no_create: false, id: None, end: 2 };
        while options.end < request.len() && options.id.is_none() {
            let at = options.end;
            let more = request.len() - 1 - at;
            if adds && request.arg(at) == b"*" {
                options.id = Some(NewId::Auto);
            } else if (request.is(at, "maxlen") || request.is(at, "minid")) && more > 0 {
                if to.is_some() {
                    return Err(Error::text(
                        "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                    ));
                }
                let operator = more > 1 && matches!(request.arg(at + 1), b"~" | b"=");
                approximate = operator && request.arg(at + 1) == b"~";
                let threshold = at + 1 + usize::from(operator);
                to = Some(parse_threshold(request, at, threshold)?);
                options.end = threshold;
            } else if request.is(at, "limit") && more > 0 {
                let most = request.int(at + 1)?;
                limit = Some(u64::try_from(most).map_err(|_| Error::text("ERR The LIMIT argument must be >= 0."))?);
                options.end += 1;
            } else if let Some(references) = parse_references(request, at).filter(|_| options.references.is_none()) {
                options.references = Some(references);
            } else if adds && request.is(at, "nomkstream") {
                options.no_create = true;
            } else if adds {
                options.id = Some(NewId::parse(request.arg(at)).map_err(Error::err)?);
            } else {
                return Err(Error::Syntax);
            }
            options.end += 1;
        }
        if to.is_none() && limit.is_some_and(|limit| limit > 0) {
            return Err(Error::text("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"));
        }
        if to.is_none() && !adds {
            return Err(Error::text("ERR syntax error, XTRIM must be called with a trimming strategy"));
        }
        if limit.is_some() && !approximate && !is_told {
            return Err(Error::text("ERR syntax error, LIMIT cannot be used without the special ~ option"));
        }
        let limit = if approximate { limit.unwrap_or_else(|| default_limit(limits)) } else { 0 };
        options.trim = to.map(|to| Trim { to, approximate, limit });
        Ok(options)
    }
}

/// The word that says what becomes of references to entries that are deleted.
pub fn parse_references(request: Request, at: usize) -> Option<References> {
    let words = [("keepref", References::Keep), ("delref", References::Delete), ("acked", References::Acknowledged)];
    words.into_iter().find(|(word, _)| request.is(at, word)).map(|(_, references)| references)
}

/// Appends what trims a stream exactly as it was trimmed, whatever its chunks are then, where that can be said so.
fn say_trim(args: &mut Vec<Vec<u8>>, trimmed: &Trimmed, len: u64) {
    if trimmed.count > 0 && trimmed.apart.is_empty() {
        args.extend([b"MAXLEN", &b"="[..], len.to_string().as_bytes()].map(<[u8]>::to_vec));
    }
}

/// Says which entries went one by one, and which ones are pending no more, as every server knows it.
pub(super) fn propagate_gone(ctx: &mut Ctx, key: Key, deleted: &[Id], released: &Released) {
    let mut say = |head: &[&[u8]], ids: &[Id]| {
        for ids in ids.chunks(IDS_SAID_AT_ONCE) {
            let ids: Vec<String> = ids.iter().map(Id::to_string).collect();
            let args: Vec<&[u8]> = head.iter().copied().chain(ids.iter().map(String::as_bytes)).collect();
            ctx.propagate(&args);
        }
    };
    say(&[b"XDEL", key.bytes], deleted);
    released.iter().for_each(|(group, ids)| say(&[b"XACK", key.bytes, group], ids));
}

fn parse_threshold(request: Request, option: usize, threshold: usize) -> Result<TrimTo> {
    if request.is(option, "minid") {
        return Ok(TrimTo::Id(parse_id(request.arg(threshold))?));
    }
    let len = request.int(threshold)?;
    Ok(TrimTo::Len(u64::try_from(len).map_err(|_| Error::text("ERR The MAXLEN argument must be >= 0."))?))
}

/// How large the chunks of a stream become.
pub fn chunk_limits(limits: &Limits) -> ChunkLimits {
    ChunkLimits { bytes: limits.stream_node_bytes, entries: limits.stream_node_entries }
}

fn default_limit(limits: &Limits) -> u64 {
    match limits.stream_node_entries {
        0 => TRIMMED_WITHOUT_CHUNK_LIMIT as u64,
        entries => entries.saturating_mul(TRIMMED_CHUNKS).min(TRIMMED_MAX) as u64,
    }
}

pub fn xadd(ctx: &mut Ctx, request: Request) -> Result {
    let options = Options::parse(request, true, ctx.limits, ctx.now.ms == 0)?;
    let pairs = request.from(options.end);
    let Some(wanted) = options.id.filter(|_| pairs.len() >= 2 && pairs.len().is_multiple_of(2)) else {
        return Err(Error::WrongArity("xadd".to_owned()));
    };
    if wanted == NewId::Exact(Id::MIN) {
        return Err(Error::err(AppendError::Zero));
    }
    let wall_ms = if wanted == NewId::Auto { ctx.clock.to_wall_ms(ctx.present().ms).max(0) as u64 } else { 0 };
    let limits = chunk_limits(ctx.limits);
    let references = options.references.unwrap_or(References::Keep);
    let append = |stream: &mut Stream| {
        let id = stream.log.next_id(wanted, wall_ms)?;
        let text_bytes = Log::check_size(pairs.clone())?;
        stream.log.append(id, pairs.clone(), text_bytes, limits);
        let trimmed = options.trim.map_or(Trimmed::default(), |trim| stream.trim(trim, references));
        Ok::<_, AppendError>((id, trimmed, stream.log.len()))
    };
    let key = ctx.key(request.arg(1));
    let appended = match find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)? {
        Some(live) => live.edit().change_node(append),
        None if options.no_create => None,
        None => {
            let mut stream = Stream::default();
            let appended = append(&mut stream);
            if appended.is_ok() {
                ctx.keyspace.insert_owned(ctx.db, key, Owned::node(stream), None, ctx.now);
            }
            Some(appended)
        }
    };
    let Some((id, trimmed, len)) = appended.transpose().map_err(Error::err)? else {
        ctx.reply.nil();
        return Ok(());
    };
    ctx.commit(key, Change::of(Event::XAdd).and_if(trimmed.count > 0, Event::XTrim));
    if ctx.is_journaled() {
        let mut head = vec![b"XADD".to_vec(), key.bytes.to_vec()];
        say_trim(&mut head, &trimmed, len);
        head.push(id.to_string().into_bytes());
        let mut args: Vec<&[u8]> = head.iter().map(Vec::as_slice).collect();
        pairs.for_each(|text| args.push(text));
        ctx.propagate(&args);
        propagate_gone(ctx, key, &trimmed.apart, &trimmed.released);
    }
    reply_id(&mut ctx.reply, id);
    Ok(())
}

pub fn xtrim(ctx: &mut Ctx, request: Request) -> Result {
    let options = Options::parse(request, false, ctx.limits, ctx.now.ms == 0)?;
    let key = ctx.key(request.arg(1));
    let references = options.references.unwrap_or(References::Keep);
    let trim = |stream: &mut Stream| {
        let trimmed = options.trim.map_or(Trimmed::default(), |trim| stream.trim(trim, references));
        (trimmed, stream.log.len())
    };
    let found = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?;
    let (trimmed, len) = found.and_then(|live| live.edit().change_node(trim)).unwrap_or_default();
    ctx.commit_if(trimmed.count > 0, key, Change::of(Event::XTrim).times(trimmed.count));
    if trimmed.count > 0 && ctx.is_journaled() {
        let mut args = vec![b"XTRIM".to_vec(), key.bytes.to_vec()];
        say_trim(&mut args, &trimmed, len);
        if trimmed.apart.is_empty() {
            ctx.propagate(&args.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        propagate_gone(ctx, key, &trimmed.apart, &trimmed.released);
    }
    ctx.reply.int(trimmed.count as i64);
    Ok(())
}

pub fn xdel(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let Some(live) = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)? else {
        ctx.reply.int(0);
        return Ok(());
    };
    let ids = parse_ids(request.from(2))?;
    let delete = |stream: &mut Stream| ids.iter().filter(|id| stream.log.delete(**id)).count();
    let deleted = live.edit().change_node(delete).unwrap_or(0);
    ctx.commit_if(deleted > 0, key, Change::of(Event::XDel).times(deleted as u64));
    ctx.reply.int(deleted as i64);
    Ok(())
}

pub fn xsetid(ctx: &mut Ctx, request: Request) -> Result {
    let id = parse_id(request.arg(2))?;
    let (mut entries_added, mut max_deleted_id) = (None, Id::MIN);
    let mut index = 3;
    while index < request.len() {
        let more = index + 1 < request.len();
        if request.is(index, "entriesadded") && more {
            let added = request.int(index + 1)?;
            if added < 0 {
                return Err(Error::text("ERR entries_added must be positive"));
            }
            entries_added = Some(added);
        } else if request.is(index, "maxdeletedid") && more {
            max_deleted_id = parse_id(request.arg(index + 1))?;
            if id < max_deleted_id {
                return Err(Error::text(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
        } else {
            return Err(Error::Syntax);
        }
        index += 2;
    }
    let key = ctx.key(request.arg(1));
    let live = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?.ok_or(Error::NoSuchKey)?;
    let is_told = ctx.now.ms == 0;
    let set = |stream: &mut Stream| match is_told {
        true => stream.log.set_id_as_told(id, entries_added, max_deleted_id),
        false => stream.log.set_id(id, entries_added, max_deleted_id),
    };
    live.edit().change_node(set).transpose().map_err(Error::err)?;
    ctx.commit(key, of_group(Event::XSetId));
    ctx.reply.ok();
    Ok(())
}

pub fn xlen(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let found = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?;
    let len = found.and_then(|live| live.node::<Stream>().map(|stream| stream.log.len())).unwrap_or(0);
    ctx.reply.int(len as i64);
    Ok(())
}

/// XRANGE, and XREVRANGE, which takes the ends the other way round.
pub fn xrange(ctx: &mut Ctx, request: Request, back: bool) -> Result {
    let (start, end) = if back { (3, 2) } else { (2, 3) };
    let (start, end) = parse_interval(request.arg(start), request.arg(end))?;
    let mut count = None;
    let mut index = 4;
    while index < request.len() {
        if !request.is(index, "count") || index + 1 == request.len() {
            return Err(Error::Syntax);
        }
        count = Some(request.int(index + 1)?);
        index += 2;
    }
    let key = ctx.key(request.arg(1));
    let found = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?;
    let Some(stream) = found.as_ref().and_then(|live| live.node::<Stream>()) else {
        ctx.reply.array(0);
        return Ok(());
    };
    let most = count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(0));
    if most == 0 {
        ctx.reply.nil_array();
    } else if back {
        reply_entries(&mut ctx.reply, stream.log.range_back(start, end).take(most));
    } else {
        reply_entries(&mut ctx.reply, stream.log.range(start, end).take(most));
    }
    Ok(())
}
