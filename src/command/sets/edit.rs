//! Adding, removing and moving members.

use super::{find, owned, view};
use crate::command::elements::ElementEdit;
use crate::command::{Across, Ctx};
use crate::config::Limits;
use crate::keyspace::{Change, Event, Key, KeyEdit, Live, NEVER_MS};
use crate::resp::{Request, Result};
use crate::value::set::{self, Added, Form, Set};

pub(super) fn sadd(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let added = add_members(ctx, key, (2..request.len()).map(|index| request.arg(index)))?;
    ctx.commit_if(added > 0, key, Event::SAdd);
    ctx.reply.int(added as i64);
    Ok(())
}

/// Adds members to a set, which is made if there is none; returns how many are new. Those that are there keep their
/// deadlines. What is committed next is about those that are new.
pub(super) fn add_members<'m>(
    ctx: &mut Ctx,
    key: Key,
    members: impl ExactSizeIterator<Item = &'m [u8]> + Clone,
) -> Result<usize> {
    let (limits, wants_names) = (ctx.limits, ctx.wants_elements(Event::SAdd));
    let mut new = Vec::new();
    let mut count = |member: &'m [u8], is_new: bool| {
        new.extend((is_new && wants_names).then_some(member));
        is_new
    };
    if let Some(mut live) = find(ctx, key)?.map(Live::edit) {
        if let Some(form) = set::widened(view(&live), members.len(), limits) {
            change_form(&mut live, form);
        }
        let added = members.filter(|member| count(member, add(&mut live, member, limits))).count();
        ctx.name_elements(Event::SAdd, new);
        return Ok(added);
    }
    let Some(first) = members.clone().next() else { return Ok(0) };
    let mut form = Form::for_members(first, members.len(), limits);
    let added = members.filter(|member| count(member, form.insert(member, limits))).count();
    match form {
        Form::Packed { bytes, marked } => {
            ctx.keyspace.insert_new(ctx.db, key, Form::stored(&bytes, marked), None, ctx.now);
        }
        form => ctx.keyspace.insert_owned(ctx.db, key, owned(form), None, ctx.now),
    }
    ctx.name_elements(Event::SAdd, new);
    Ok(added)
}

/// Adds a member; whether it is new.
fn add(live: &mut KeyEdit, member: &[u8], limits: &Limits) -> bool {
    if has_dead(live, member) {
        live.tell_dead_field(member);
        let now_ms = live.now_ms();
        live.change_node(|set: &mut Set| set.members.set_deadline(member, None, now_ms));
        return true;
    }
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

/// Whether a member stands there that is dead.
#[inline]
fn has_dead(live: &KeyEdit, member: &[u8]) -> bool {
    live.has_fields_deadline() && live.node().is_some_and(|set: &Set| set.has_dead(member, live.now_ms()))
}

fn change_form(live: &mut KeyEdit, form: Form) {
    match form {
        Form::Packed { bytes, marked } => live.repack(&bytes, marked),
        Form::Node(set) => live.promote(set),
    }
}

/// Removes a member; whether it was there and alive. The set may be empty afterwards.
fn remove(live: &mut KeyEdit, member: &[u8]) -> bool {
    let is_dead = has_dead(live, member);
    if is_dead {
        live.tell_dead_field(member);
    }
    let marked = live.is_marked();
    let was_there = match live.change_node(|set: &mut Set| set.members.remove(member)) {
        Some(was_there) => was_there,
        None => set::remove(live, marked, member),
    };
    was_there && !is_dead
}

pub(super) fn srem(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let count = remove_members(ctx, key, request.from(2), Event::SRem)?;
    ctx.reply.int(count as i64);
    Ok(())
}

/// Removes members, and the set with the last of them that lives; tells of it. Returns how many were there.
pub(super) fn remove_members<'m>(
    ctx: &mut Ctx,
    key: Key,
    members: impl Iterator<Item = &'m [u8]>,
    event: Event,
) -> Result<usize> {
    let wants_names = ctx.wants_elements(event);
    let Some(mut live) = find(ctx, key)?.map(Live::edit) else { return Ok(0) };
    let (mut count, mut is_gone, mut gone) = (0, false, Vec::new());
    for member in members {
        let was_there = remove(&mut live, member);
        count += usize::from(was_there);
        gone.extend((was_there && wants_names).then_some(member));
        is_gone = is_bare(&live);
        if is_gone {
            break;
        }
    }
    is_gone = is_gone || !live.any_field_lives();
    if is_gone {
        live.remove();
    }
    ctx.name_elements(event, gone);
    ctx.commit_if(count > 0, key, Change::removal(event, is_gone));
    Ok(count)
}

/// Whether nothing stands in a set, dead or alive.
fn is_bare(live: &KeyEdit) -> bool {
    live.node().map_or_else(|| view(live).is_empty(), |set: &Set| set.members.is_empty())
}

pub(super) fn smove_here(ctx: &mut Ctx, request: Request) -> Result {
    let (source, destination) = (ctx.key(request.arg(1)), ctx.other_key(request.arg(2)));
    let member = request.arg(3);
    let found = find(ctx, source)?.map(|live| view(&live).deadline_ms(member));
    let fits = find(ctx, destination).map(drop);
    // The destination's type matters only where there is a source.
    if found.is_some() {
        fits?;
    }
    let moves = found.flatten();
    if let Some(deadline_ms) = moves.filter(|_| source.bytes != destination.bytes) {
        ctx.check_kept_deadline(destination)?;
        remove_members(ctx, source, std::iter::once(member), Event::SRem)?;
        receive(ctx, destination, member, deadline_ms)?;
    }
    ctx.reply.int(i64::from(moves.is_some()));
    Ok(())
}

/// Adds a member that comes with its deadline; whether it is new there. One that is there already stays as it is.
fn receive(ctx: &mut Ctx, key: Key, member: &[u8], deadline_ms: u64) -> Result<bool> {
    let is_new = add_members(ctx, key, std::iter::once(member))? > 0;
    if is_new
        && deadline_ms < NEVER_MS
        && let Some(mut edit) = Edit::open(ctx, key)?
    {
        edit.set_deadline(member, Some(deadline_ms));
        edit.close();
    }
    ctx.commit_if(is_new, key, Event::SAdd);
    Ok(is_new)
}

fn propagate_received(ctx: &mut Ctx, key: Key, member: &[u8], deadline_ms: u64, is_new: bool) {
    if is_new && deadline_ms == NEVER_MS {
        ctx.propagate(&[b"SADD", key.bytes, member]);
    } else if is_new && ctx.is_journaled() {
        let at_ms = ctx.clock.to_log_ms(deadline_ms).to_string();
        ctx.propagate(&[b"SADDEX", key.bytes, b"PXAT", at_ms.as_bytes(), b"MEMBERS", b"1", member]);
    }
}

/// Both keys are held, so that nobody sees the moment between the steps.
pub(super) async fn smove_across(across: Across) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let [source, destination, member] = [1, 2, 3].map(|index| request.arg(index).to_vec());
    let (source_shard, destination_shard) = (across.shard_of(&source), across.shard_of(&destination));
    let look = {
        let (source, member) = (source.clone(), member.clone());
        move |ctx: &mut Ctx| Ok(find(ctx, ctx.other_key(&source))?.map(|live| view(&live).deadline_ms(&member)))
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
    let moves = found.flatten();
    if found.is_some() {
        let may_receive = fits?;
        if moves.is_some() {
            may_receive?;
        }
    }
    if let Some(deadline_ms) = moves {
        let (taken, received) = (member.clone(), member);
        let take = move |ctx: &mut Ctx| {
            let key = ctx.other_key(&source);
            remove_members(ctx, key, std::iter::once(taken.as_slice()), Event::SRem)?;
            ctx.propagate(&[b"SREM", &source, &taken]);
            Ok(())
        };
        let put = move |ctx: &mut Ctx| {
            let key = ctx.other_key(&destination);
            let is_new = receive(ctx, key, &received, deadline_ms)?;
            propagate_received(ctx, key, &received, deadline_ms, is_new);
            Ok(())
        };
        across.on(source_shard, take).await?;
        across.on(destination_shard, put).await?;
    }
    Ok(across.reply(|reply| reply.int(i64::from(moves.is_some()))))
}

/// A set whose members' deadlines are changed.
pub(super) struct Edit<'c>(KeyEdit<'c>);

impl<'c> Edit<'c> {
    /// The set under a key, if there is one.
    pub fn open(ctx: &'c mut Ctx, key: Key) -> Result<Option<Edit<'c>>> {
        Ok(find(ctx, key)?.map(|live| Edit(live.edit())))
    }
}

impl ElementEdit for Edit<'_> {
    fn deadline_ms(&self, name: &[u8]) -> Option<u64> {
        view(&self.0).deadline_ms(name)
    }

    fn set_deadline(&mut self, name: &[u8], deadline_ms: Option<u64>) {
        if self.0.packed().is_some() {
            if deadline_ms.is_none() {
                return;
            }
            let set = Set::of(view(&self.0));
            self.0.promote(set);
        }
        let now_ms = self.0.now_ms();
        self.0.change_node(|set: &mut Set| set.members.set_deadline(name, deadline_ms, now_ms));
    }

    fn remove(&mut self, name: &[u8]) -> bool {
        remove(&mut self.0, name)
    }

    fn close(mut self) -> bool {
        if is_bare(&self.0) || !self.0.any_field_lives() {
            self.0.remove();
            return false;
        }
        self.0.renew_fields_deadline();
        true
    }
}
