//! Adding, removing and moving members.

use super::{find, owned, view};
use crate::command::{Across, Ctx};
use crate::config::Limits;
use crate::keyspace::{Change, Event, Key, KeyEdit, Live};
use crate::resp::{Request, Result};
use crate::value::set::{self, Added, Form, Set};

pub(super) fn sadd(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let added = add_members(ctx, key, (2..request.len()).map(|index| request.arg(index)))?;
    ctx.commit_if(added > 0, key, Event::SAdd);
    ctx.reply.int(added as i64);
    Ok(())
}

/// Adds members to a set, which is made if there is none; returns how many are new.
fn add_members<'m>(ctx: &mut Ctx, key: Key, members: impl ExactSizeIterator<Item = &'m [u8]> + Clone) -> Result<usize> {
    let limits = ctx.limits;
    if let Some(mut live) = find(ctx, key)?.map(Live::edit) {
        if let Some(form) = set::widened(view(&live), members.len(), limits) {
            change_form(&mut live, form);
        }
        return Ok(members.filter(|member| add(&mut live, member, limits)).count());
    }
    let Some(first) = members.clone().next() else { return Ok(0) };
    let mut form = Form::for_members(first, members.len(), limits);
    let added = members.filter(|member| form.insert(member, limits)).count();
    match form {
        Form::Packed { bytes, marked } => {
            ctx.keyspace.insert_new(ctx.db, key, Form::stored(&bytes, marked), None, ctx.now);
        }
        form => ctx.keyspace.insert_owned(ctx.db, key, owned(form), None, ctx.now),
    }
    Ok(added)
}

/// Adds a member; whether it is new.
fn add(live: &mut KeyEdit, member: &[u8], limits: &Limits) -> bool {
    if let Some(is_new) = live.change_node(|set: &mut Set| set.insert(member)) {
        return is_new;
    }
    let marked = live.is_marked();
    match set::add(live, marked, member, limits) {
        Added::New => true,
        Added::Present => false,
        Added::Changed(form) => {
            change_form(live, form);
            true
        }
    }
}

fn change_form(live: &mut KeyEdit, form: Form) {
    match form {
        Form::Packed { bytes, marked } => live.repack(&bytes, marked),
        Form::Node(set) => live.promote(set),
    }
}

/// Removes a member; whether it was there. The set may be empty afterwards.
fn remove(live: &mut KeyEdit, member: &[u8]) -> bool {
    let marked = live.is_marked();
    match live.change_node(|set: &mut Set| set.members.remove(member)) {
        Some(was_there) => was_there,
        None => set::remove(live, marked, member),
    }
}

pub(super) fn srem(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let removed = remove_members(ctx, key, request.from(2), Event::SRem)?;
    ctx.reply.int(removed as i64);
    Ok(())
}

/// Removes members, and the set with the last of them; tells of it, and returns how many were there.
pub(super) fn remove_members<'m>(
    ctx: &mut Ctx,
    key: Key,
    members: impl Iterator<Item = &'m [u8]>,
    event: Event,
) -> Result<usize> {
    let Some(mut live) = find(ctx, key)?.map(Live::edit) else { return Ok(0) };
    let (mut removed, mut is_gone) = (0, false);
    for member in members {
        removed += usize::from(remove(&mut live, member));
        is_gone = view(&live).is_empty();
        if is_gone {
            live.remove();
            break;
        }
    }
    ctx.commit_if(removed > 0, key, Change::removal(event, is_gone));
    Ok(removed)
}

pub(super) fn smove_here(ctx: &mut Ctx, request: Request) -> Result {
    let (source, destination) = (ctx.key(request.arg(1)), ctx.other_key(request.arg(2)));
    let member = request.arg(3);
    let found = find(ctx, source)?.map(|live| view(&live).contains(member));
    let fits = find(ctx, destination).map(drop);
    // The destination's type matters only where there is a source.
    if found.is_some() {
        fits?;
    }
    let moves = found == Some(true);
    if moves && source.bytes != destination.bytes {
        ctx.check_kept_deadline(destination)?;
        remove_members(ctx, source, std::iter::once(member), Event::SRem)?;
        receive(ctx, destination, member)?;
    }
    ctx.reply.int(i64::from(moves));
    Ok(())
}

/// Whether the member is new there.
fn receive(ctx: &mut Ctx, key: Key, member: &[u8]) -> Result<bool> {
    let is_new = add_members(ctx, key, std::iter::once(member))? > 0;
    ctx.commit_if(is_new, key, Event::SAdd);
    Ok(is_new)
}

/// Both keys are held, so that nobody sees the moment between the steps.
pub(super) async fn smove_across(across: Across) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let [source, destination, member] = [1, 2, 3].map(|index| request.arg(index).to_vec());
    let (source_shard, destination_shard) = (across.shard_of(&source), across.shard_of(&destination));
    let look = {
        let (source, member) = (source.clone(), member.clone());
        move |ctx: &mut Ctx| Ok(find(ctx, ctx.other_key(&source))?.map(|live| view(&live).contains(&member)))
    };
    let found = across.on(source_shard, look).await?;
    let fits = {
        let destination = destination.clone();
        let look = move |ctx: &mut Ctx| {
            let key = ctx.other_key(&destination);
            find(ctx, key).map(drop)?;
            Ok(ctx.check_kept_deadline(key))
        };
        across.on(destination_shard, look).await
    };
    let moves = found == Some(true);
    if found.is_some() {
        let may_receive = fits?;
        if moves {
            may_receive?;
        }
    }
    if moves {
        let (taken, received) = (member.clone(), member);
        let take = move |ctx: &mut Ctx| {
            remove_members(ctx, ctx.other_key(&source), std::iter::once(taken.as_slice()), Event::SRem)?;
            ctx.propagate(&[b"SREM", &source, &taken]);
            Ok(())
        };
        let put = move |ctx: &mut Ctx| {
            if receive(ctx, ctx.other_key(&destination), &received)? {
                ctx.propagate(&[b"SADD", &destination, &received]);
            }
            Ok(())
        };
        across.on(source_shard, take).await?;
        across.on(destination_shard, put).await?;
    }
    Ok(across.reply(|reply| reply.int(i64::from(moves))))
}
