//! LMOVEM and BLMOVEM: several elements from one list to another.
//!
//! All elements are chosen before any is moved, also where both lists are the same. What the destination gets has its
//! final order from the start: that in which the elements stood (BULK), or that which moving them one by one would leave
//! (OBO).

use super::ends::{drop_from, popped, propagate_pop, push_texts, pushed};
use super::moves::parse_end;
use super::{find, limit, view};
use crate::command::blocking::{self, Wait};
use crate::command::hop::check_gathered;
use crate::command::{Across, Ctx};
use crate::keyspace::{Change, Key, Live};
use crate::resp::{Error, Reply, Request, Result};
use crate::value::list::{Direction, End};
use crate::value::number::parse_i64;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// What a move is asked for.
#[derive(Clone, Copy)]
struct Asked {
    from: End,
    to: End,
    /// No more elements are moved.
    count: usize,
    /// Nothing is moved where there are fewer.
    needed: usize,
    keeps_order: bool,
}

fn is_blocking(request: Request) -> bool {
    request.is(0, "blmovem")
}

fn parse(request: Request) -> Result<Asked> {
    let (from, to) = (parse_end(request.arg(3))?, parse_end(request.arg(4))?);
    // BLMOVEM has its timeout before them.
    let options = if is_blocking(request) { 6 } else { 5 };
    match request.len().saturating_sub(options) {
        0 => return Ok(Asked { from, to, count: 1, needed: 1, keeps_order: true }),
        3 => {}
        _ => return Err(Error::Syntax),
    }
    let one_of = |index, [yes, no]: [&str; 2]| match () {
        () if request.is(index, yes) => Ok(true),
        () if request.is(index, no) => Ok(false),
        () => Err(Error::Syntax),
    };
    let is_exact = one_of(options, ["exactly", "count"])?;
    let keeps_order = one_of(options + 2, ["bulk", "obo"])?;
    let count = parse_i64(request.arg(options + 1)).filter(|count| *count >= 1);
    let count = count.ok_or(Error::text("ERR count should be greater than 0"))?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(Asked { from, to, count, needed: if is_exact { count } else { 1 }, keeps_order })
}

/// Elements that are going to be moved, in the order in which they will stand.
struct Chosen {
    texts: Vec<Vec<u8>>,
    /// There are no others in the list.
    are_all: bool,
}

impl Chosen {
    /// The elements in the order in which they are to be pushed to an end.
    fn pushes(&self, to: End) -> Vec<&[u8]> {
        let mut texts: Vec<&[u8]> = self.texts.iter().map(Vec::as_slice).collect();
        if to == End::Front {
            texts.reverse();
        }
        texts
    }

    fn reply(&self, reply: &mut Reply) {
        reply.array(self.texts.len());
        self.texts.iter().for_each(|text| reply.bulk(text));
    }
}

/// Looks what there is to be moved; `None` where there is too little.
fn choose(ctx: &mut Ctx, source: Key, asked: Asked) -> Result<Option<Chosen>> {
    let limits = ctx.limits;
    let Some(live) = find(ctx, source)? else { return Ok(None) };
    let view = view(&live);
    if view.len() < asked.needed {
        return Ok(None);
    }
    let count = asked.count.min(view.len());
    let (first, direction) = match asked.from {
        End::Front => (0, Direction::Forward),
        End::Back => (view.len() - 1, Direction::Backward),
    };
    let (mut texts, mut bytes): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
    view.some(first, direction, count, |element| {
        bytes += element.text_len() + size_of::<Vec<u8>>();
        if bytes <= limits.string_bytes {
            texts.push(element.to_vec());
        }
    });
    // The reply names all of them.
    check_gathered(bytes, limits)?;
    let is_reversed = if asked.keeps_order { asked.from == End::Back } else { asked.to == End::Front };
    if is_reversed {
        texts.reverse();
    }
    Ok(Some(Chosen { are_all: count == view.len(), texts }))
}

/// Pushes the elements, without saying so to anybody but the journal.
fn push(ctx: &mut Ctx, key: Key, chosen: &Chosen, to: End) -> Result {
    /// The journal gets no more of them at once.
    const PIECE: usize = 1_000;
    let texts = chosen.pushes(to);
    push_texts(ctx, key, texts.iter().copied(), to, false)?;
    if ctx.is_journaled() {
        let name: &[u8] = if to == End::Front { b"LPUSH" } else { b"RPUSH" };
        texts.chunks(PIECE).for_each(|piece| ctx.propagate(&[&[name, key.bytes], piece].concat()));
    }
    Ok(())
}

/// Takes as many elements from an end, likewise; whether the key is gone with them.
fn take(ctx: &mut Ctx, key: Key, count: usize, from: End) -> Result<bool> {
    let limit = limit(ctx);
    let Some(live) = find(ctx, key)?.map(Live::edit) else { return Ok(false) };
    let is_gone = drop_from(live, from, count, limit);
    propagate_pop(ctx, key, from, Some(count).filter(|count| *count > 1));
    Ok(is_gone)
}

fn put(ctx: &mut Ctx, destination: Key, chosen: &Chosen, to: End) -> Result {
    ctx.check_kept_deadline(destination)?;
    push(ctx, destination, chosen, to)?;
    ctx.commit(destination, pushed(to));
    Ok(())
}

fn take_away(ctx: &mut Ctx, source: Key, chosen: &Chosen, from: End) -> Result {
    let is_gone = take(ctx, source, chosen.texts.len(), from)?;
    ctx.commit(source, Change::removal(popped(from), is_gone));
    Ok(())
}

/// Within one list, which is never empty meanwhile: it stays the same key.
fn turn(ctx: &mut Ctx, key: Key, chosen: &Chosen, Asked { from, to, .. }: Asked) -> Result {
    ctx.check_kept_deadline(key)?;
    let count = chosen.texts.len();
    if chosen.are_all {
        push(ctx, key, chosen, End::Back)?;
        take(ctx, key, count, End::Front)?;
    } else {
        take(ctx, key, count, from)?;
        push(ctx, key, chosen, to)?;
    }
    ctx.commit(key, Change::of(popped(from)).and(pushed(to)).times(2));
    Ok(())
}

/// The timeout of BLMOVEM; what it is asked for comes first.
pub(super) fn wait(request: Request) -> Result<Wait> {
    parse(request)?;
    blocking::seconds(request.arg(5))
}

/// Whether the source has what BLMOVEM needs.
pub(super) fn is_enough(request: Request, live: &Live) -> bool {
    parse(request).is_ok_and(|asked| asked.needed <= view(live).len())
}

pub(super) fn attempt(ctx: &mut Ctx, request: Request) -> Result {
    let asked = parse(request)?;
    let (source, destination) = (ctx.other_key(request.arg(1)), ctx.other_key(request.arg(2)));
    let Some(chosen) = choose(ctx, source, asked)? else { return Ok(()) };
    if source.bytes == destination.bytes {
        turn(ctx, source, &chosen, asked)?;
    } else {
        put(ctx, destination, &chosen, asked.to)?;
        take_away(ctx, source, &chosen, asked.from)?;
    }
    chosen.reply(&mut ctx.reply);
    Ok(())
}

pub(super) fn attempt_across(across: Across) -> Pin<Box<dyn Future<Output = Result<Vec<u8>>>>> {
    Box::pin(move_across(across))
}

/// Both keys are held, so that nobody sees the moment between the steps.
async fn move_across(across: Across) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let asked = parse(request)?;
    let (source, destination) = (request.arg(1).to_vec(), request.arg(2).to_vec());
    let (source_shard, destination_shard) = (across.shard_of(&source), across.shard_of(&destination));
    if source_shard == destination_shard {
        let (request, proto) = (across.request.clone(), across.proto);
        let all = move |ctx: &mut Ctx| ctx.written(proto, |ctx| attempt(ctx, request.as_request()));
        return across.on(source_shard, all).await;
    }
    let name = source.clone();
    let look = move |ctx: &mut Ctx| choose(ctx, ctx.other_key(&name), asked);
    let Some(chosen) = across.on(source_shard, look).await? else { return Ok(Vec::new()) };
    let chosen = Arc::new(chosen);
    let to_put = chosen.clone();
    across.on(destination_shard, move |ctx| put(ctx, ctx.other_key(&destination), &to_put, asked.to)).await?;
    let to_take = chosen.clone();
    across.on(source_shard, move |ctx| take_away(ctx, ctx.other_key(&source), &to_take, asked.from)).await?;
    Ok(across.reply(|reply| chosen.reply(reply)))
}
