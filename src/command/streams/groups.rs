//! XGROUP: groups and their consumers, made and taken away.

use super::super::Ctx;
use super::{find, no_group_of_key, now_ms, of_group};
use crate::keyspace::{Event, Live, Owned};
use crate::resp::{Error, Request, Result};
use crate::value::stream::{Group, Id, IdError, Stream};

const NO_SUCH_STREAM: Error = Error::text(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option \
     to create an empty stream automatically.",
);

/// What may follow the id.
#[derive(Default)]
struct Options {
    make_stream: bool,
    entries_read: Option<i64>,
}

fn parse_options(request: Request, creates: bool) -> Result<Options> {
    let mut options = Options::default();
    let mut index = 5;
    while index < request.len() {
        if creates && request.is(index, "mkstream") {
            options.make_stream = true;
        } else if request.is(index, "entriesread") && index + 1 < request.len() {
            index += 1;
            let read = request.int(index)?;
            if read < -1 {
                return Err(Error::text("ERR value for ENTRIESREAD must be positive or -1"));
            }
            options.entries_read = (read >= 0).then_some(read);
        } else {
            return Err(Error::bad_subcommand("XGROUP", request.arg(1)));
        }
        index += 1;
    }
    Ok(options)
}

pub fn create(ctx: &mut Ctx, request: Request) -> Result {
    let options = parse_options(request, true)?;
    let key = ctx.key(request.arg(2));
    let found = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?;
    if found.is_none() && !options.make_stream {
        return Err(NO_SUCH_STREAM);
    }
    // More arguments than options can have meant something.
    if request.len() > 8 {
        return Err(Error::bad_subcommand("XGROUP", request.arg(1)));
    }
    let create = |stream: &mut Stream| {
        let id = parse_position(request, stream, Id::parse)?;
        if stream.groups.create(request.arg(3), id, options.entries_read) {
            Ok(())
        } else {
            Err(Error::text("BUSYGROUP Consumer Group name already exists"))
        }
    };
    match found {
        Some(live) => live.edit().change_node(create).transpose()?.unwrap_or_default(),
        None => {
            let mut stream = Stream::default();
            create(&mut stream)?;
            ctx.check_deadline(key.bytes, false)?;
            ctx.keyspace.insert_owned(ctx.db, key, Owned::node(stream), None, ctx.now);
            ctx.commit(key, Event::XGroupCreate);
            ctx.reply.ok();
            return Ok(());
        }
    }
    ctx.commit(key, of_group(Event::XGroupCreate));
    ctx.reply.ok();
    Ok(())
}

/// An id, or `$` for the last one of the stream.
fn parse_position(
    request: Request,
    stream: &Stream,
    parse: fn(&[u8]) -> std::result::Result<Id, IdError>,
) -> Result<Id> {
    match request.arg(4) {
        b"$" => Ok(stream.log.last_id()),
        text => parse(text).map_err(Error::err),
    }
}

pub fn setid(ctx: &mut Ctx, request: Request) -> Result {
    let options = parse_options(request, false)?;
    let live = find_group(ctx, request)?;
    if request.len() > 7 {
        return Err(Error::bad_subcommand("XGROUP", request.arg(1)));
    }
    let set = |stream: &mut Stream| {
        let id = parse_position(request, stream, Id::parse_or_end)?;
        stream.groups.change(request.arg(3), |group| group.set_position(id, options.entries_read));
        Ok::<_, Error>(())
    };
    live.edit().change_node(set).transpose()?;
    ctx.commit(ctx.key(request.arg(2)), of_group(Event::XGroupSetId));
    ctx.reply.ok();
    Ok(())
}

pub fn destroy(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(2));
    let live = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?.ok_or(NO_SUCH_STREAM)?;
    let destroyed = live.edit().change_node(|stream: &mut Stream| stream.groups.destroy(request.arg(3))) == Some(true);
    ctx.commit_if(destroyed, key, of_group(Event::XGroupDestroy));
    if destroyed {
        // Nobody can wait for entries in it any longer.
        ctx.keyspace.effects.ready(ctx.db, key.bytes);
    }
    ctx.reply.int(i64::from(destroyed));
    Ok(())
}

pub fn createconsumer(ctx: &mut Ctx, request: Request) -> Result {
    let now_ms = now_ms(ctx.present());
    let created = change(ctx, request, |group| group.create_consumer(request.arg(4), now_ms))?.is_some();
    ctx.commit_if(created, ctx.key(request.arg(2)), of_group(Event::XGroupCreateConsumer));
    ctx.reply.int(i64::from(created));
    Ok(())
}

pub fn delconsumer(ctx: &mut Ctx, request: Request) -> Result {
    let deleted = change(ctx, request, |group| group.delete_consumer(request.arg(4)))?;
    ctx.commit_if(deleted.is_some(), ctx.key(request.arg(2)), of_group(Event::XGroupDelConsumer));
    ctx.reply.int(deleted.unwrap_or(0) as i64);
    Ok(())
}

/// A stream that has the group.
fn find_group<'k>(ctx: &'k mut Ctx, request: Request) -> Result<Live<'k>> {
    let key = ctx.key(request.arg(2));
    let live = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?.ok_or(NO_SUCH_STREAM)?;
    if live.node::<Stream>().is_none_or(|stream| stream.groups.get(request.arg(3)).is_none()) {
        return Err(no_group_of_key(key.bytes, request.arg(3)));
    }
    Ok(live)
}

/// Changes the group that is named.
fn change<R>(ctx: &mut Ctx, request: Request, change: impl FnOnce(&mut Group) -> Option<R>) -> Result<Option<R>> {
    let live = find_group(ctx, request)?;
    let changed = live.edit().change_node(|stream: &mut Stream| stream.groups.change(request.arg(3), change));
    Ok(changed.flatten().flatten())
}
