//! Intersections, unions and differences of sets.
//!
//! Where the sets are on several shards, members travel: those of the smallest set (intersection), of the first one
//! (difference) or of all (union), and each shard keeps those of them that its own sets let pass.

use super::{find, owned, view};
use crate::clock::Now;
use crate::command::hop::{check_gathered, without_repeats};
use crate::command::{Across, Ctx, OwnedRequest, reply_element};
use crate::config::Limits;
use crate::keyspace::{Event, Key, Keyspace};
use crate::resp::{Reply, Request, Result};
use crate::value::number::I64_TEXT_BYTES_MAX;
use crate::value::pack::Element;
use crate::value::set::{Form, View};
use ahash::RandomState;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Inter,
    Union,
    Diff,
}

pub(super) type Members = Vec<Vec<u8>>;

impl Operation {
    /// The event of storing its result.
    fn event(self) -> Event {
        match self {
            Operation::Inter => Event::SInterStore,
            Operation::Union => Event::SUnionStore,
            Operation::Diff => Event::SDiffStore,
        }
    }

    /// Which of several keys have to be read for it: a set that is named several times is so once, unless it is taken
    /// from itself.
    pub(super) fn keys_read(self, request: Request, keys: Range<usize>) -> Vec<usize> {
        match self {
            Operation::Inter | Operation::Union => without_repeats(request, keys),
            Operation::Diff => {
                let others = without_repeats(request, keys.start + 1..keys.end);
                std::iter::once(keys.start).chain(others).collect()
            }
        }
    }

    /// The members of the result, each once; at most `limit` of them.
    pub(super) fn apply<'s>(self, sets: &[View<'s>], limit: usize) -> Vec<Element<'s>> {
        match self {
            Operation::Inter => intersection(sets, limit),
            Operation::Union => union(sets, limit),
            Operation::Diff => difference(sets, limit),
        }
    }
}

fn intersection<'s>(sets: &[View<'s>], limit: usize) -> Vec<Element<'s>> {
    let mut sets = sets.to_vec();
    sets.sort_by_key(|set| set.len());
    let Some((smallest, others)) = sets.split_first() else { return Vec::new() };
    smallest.iter().filter(|member| others.iter().all(|other| other.has(*member))).take(limit).collect()
}

fn union<'s>(sets: &[View<'s>], limit: usize) -> Vec<Element<'s>> {
    if let [set] = sets {
        return set.iter().take(limit).collect();
    }
    let mut seen = HashSet::with_hasher(RandomState::new());
    let members = sets.iter().flat_map(|set| set.iter()).map(canonical);
    members.filter(|member| seen.insert(*member)).take(limit).collect()
}

/// The same member always in the same form.
fn canonical(member: Element) -> Element {
    match member {
        Element::Bytes(text) => Element::of(text),
        int => int,
    }
}

fn difference<'s>(sets: &[View<'s>], limit: usize) -> Vec<Element<'s>> {
    let Some((first, others)) = sets.split_first() else { return Vec::new() };
    let lookups = first.len() * others.len();
    if others.iter().map(|other| other.len()).sum::<usize>() >= lookups {
        let remains = |member: &Element| !others.iter().any(|other| other.has(*member));
        return first.iter().filter(remains).take(limit).collect();
    }
    // Many others that are small: they become one.
    let mut excluded = HashSet::with_hasher(RandomState::new());
    excluded.extend(others.iter().flat_map(|other| other.iter()).map(canonical));
    first.iter().filter(|member| !excluded.contains(&canonical(*member))).take(limit).collect()
}

/// Looks up every key, as commands do that use it; another type than a set is an error. Returns the sets' sizes.
pub(super) fn look<'k>(ctx: &mut Ctx, keys: impl Iterator<Item = &'k [u8]>) -> Result<Vec<usize>> {
    keys.map(|bytes| Ok(find(ctx, ctx.other_key(bytes))?.map_or(0, |live| view(&live).len()))).collect()
}

/// The sets under keys that were looked up, empty ones where there is none.
pub(super) fn sets<'s>(keyspace: &'s Keyspace, db: usize, now: Now, request: Request, keys: &[usize]) -> Vec<View<'s>> {
    let set = |index: &usize| keyspace.peek(db, keyspace.hasher().key(request.arg(*index)), now);
    keys.iter().map(|index| set(index).map_or(View::EMPTY, |content| View::of(content, now.ms))).collect()
}

fn reply_members(reply: &mut Reply, members: &[Element]) {
    reply.set(members.len());
    members.iter().for_each(|member| reply_element(reply, *member));
}

pub(super) fn here(ctx: &mut Ctx, request: Request, operation: Operation) -> Result {
    look(ctx, request.from(1))?;
    let keys = operation.keys_read(request, 1..request.len());
    let sets = sets(ctx.keyspace, ctx.db, ctx.now, request, &keys);
    reply_members(&mut ctx.reply, &operation.apply(&sets, usize::MAX));
    Ok(())
}

pub(super) fn store_here(ctx: &mut Ctx, request: Request, operation: Operation) -> Result {
    look(ctx, request.from(2))?;
    request.from(2).for_each(|key| ctx.keyspace.take_dead_elements(ctx.db, ctx.other_key(key), ctx.now));
    let keys = operation.keys_read(request, 2..request.len());
    let sets = sets(ctx.keyspace, ctx.db, ctx.now, request, &keys);
    let members = operation.apply(&sets, usize::MAX);
    let mut form = Form::default();
    let mut text = [0; I64_TEXT_BYTES_MAX];
    for member in members {
        form.insert(member.text(&mut text), ctx.limits);
    }
    let stored = put(ctx, ctx.key(request.arg(1)), form, operation)?;
    ctx.reply.int(stored as i64);
    Ok(())
}

/// Stores a result, which deletes what was there where it is empty; returns the number of members.
fn put(ctx: &mut Ctx, key: Key, form: Form, operation: Operation) -> Result<usize> {
    let len = form.view().len();
    if len > 0 {
        ctx.check_deadline(key.bytes, false)?;
        ctx.keyspace.insert_owned(ctx.db, key, owned(form), None, ctx.now);
        ctx.commit(key, operation.event());
    } else if ctx.keyspace.remove(ctx.db, key, ctx.now) {
        ctx.commit(key, Event::Del);
    }
    Ok(len)
}

pub(super) async fn across(across: Across, operation: Operation) -> Result<Vec<u8>> {
    let members = Gathering::new(&across, 1..across.request.arg_count(), operation).result().await?;
    Ok(across.reply(|reply| {
        reply.set(members.len());
        members.iter().for_each(|member| reply.bulk(member));
    }))
}

pub(super) async fn store_across(across: Across, operation: Operation) -> Result<Vec<u8>> {
    let members = Gathering::new(&across, 2..across.request.arg_count(), operation).result().await?;
    let destination = across.request.as_request().arg(1).to_vec();
    let shard = across.shard_of(&destination);
    let store = move |ctx: &mut Ctx| {
        let mut form = Form::default();
        for member in &members {
            form.insert(member, ctx.limits);
        }
        put(ctx, ctx.other_key(&destination), form, operation)
    };
    let stored = across.on(shard, store).await?;
    Ok(across.reply(|reply| reply.int(stored as i64)))
}

/// Sets on several shards. All keys are held, so that the steps see the same sets.
pub(super) struct Gathering<'a> {
    pub across: &'a Across,
    pub operation: Operation,
    pub part: Part,
    pub shards: Vec<usize>,
    /// The index of the first key.
    pub first: usize,
}

/// Where a job finds its own ones of the keys: by shard, as indexes in the request.
#[derive(Clone)]
pub(super) struct Part {
    request: Arc<OwnedRequest>,
    named: Arc<Vec<Vec<usize>>>,
    read: Arc<Vec<Vec<usize>>>,
}

impl Part {
    /// The sets that have to be read on a shard, in the order of their keys.
    pub(super) fn sets<'s>(&self, ctx: &'s Ctx, shard: usize) -> Vec<View<'s>> {
        sets(ctx.keyspace, ctx.db, ctx.now, self.request.as_request(), &self.read[shard])
    }
}

/// Members on their way from shard to shard, and their bytes.
fn gathered<'m>(members: impl Iterator<Item = Element<'m>>, limits: &Limits) -> Result<(Members, usize)> {
    let (mut texts, mut bytes) = (Members::new(), 0);
    for member in members {
        texts.push(member.to_vec());
        bytes += member.text_len() + size_of::<Vec<u8>>();
        check_gathered(bytes, limits)?;
    }
    Ok((texts, bytes))
}

impl Gathering<'_> {
    pub(super) fn new(across: &Across, keys: Range<usize>, operation: Operation) -> Gathering<'_> {
        let request = Arc::new(across.request.clone());
        let by_shard = |indexes: Vec<usize>| {
            let mut by_shard = vec![Vec::new(); across.hop.shards()];
            indexes
                .into_iter()
                .for_each(|index| by_shard[across.shard_of(request.as_request().arg(index))].push(index));
            Arc::new(by_shard)
        };
        let first = keys.start;
        let read = by_shard(operation.keys_read(request.as_request(), keys.clone()));
        let named = by_shard(keys.collect());
        let shards = (0..named.len()).filter(|shard| !named[*shard].is_empty()).collect();
        Gathering { across, operation, part: Part { request, named, read }, shards, first }
    }

    pub(super) fn shard_of(&self, index: usize) -> usize {
        self.across.shard_of(self.part.request.as_request().arg(index))
    }

    /// The members of the result.
    async fn result(&self) -> Result<Members> {
        let smallest = self.look().await?;
        match self.operation {
            Operation::Union => Ok(self.union(usize::MAX).await?.into_iter().collect()),
            Operation::Inter => self.filtered(smallest).await,
            Operation::Diff => self.filtered(self.first).await,
        }
    }

    /// Looks all keys up; returns the index of the one with the smallest set.
    pub(super) async fn look(&self) -> Result<usize> {
        let part = self.part.clone();
        let looked = move |ctx: &mut Ctx, shard: usize| {
            let indexes = &part.named[shard];
            let lens = look(ctx, indexes.iter().map(|index| part.request.as_request().arg(*index)))?;
            Ok(lens.into_iter().zip(indexes.iter().copied()).min())
        };
        let mut smallest = None;
        for found in self.across.on_all(&self.shards, looked).await {
            smallest = smallest.into_iter().chain(found?).min();
        }
        Ok(smallest.map_or(self.first, |(_, index)| index))
    }

    /// The operation on a shard's own sets; at most so many members.
    fn apply(&self, limit: usize) -> impl FnOnce(&mut Ctx, usize) -> Result<(Members, usize)> + Clone + Send + 'static {
        let (part, operation) = (self.part.clone(), self.operation);
        move |ctx, shard| {
            let sets = part.sets(ctx, shard);
            gathered(operation.apply(&sets, limit).into_iter(), ctx.limits)
        }
    }

    /// The members that are in any of the sets; where there are `limit` or more, at least so many.
    pub(super) async fn union(&self, limit: usize) -> Result<HashSet<Vec<u8>, RandomState>> {
        let (mut seen, mut all_bytes) = (HashSet::with_hasher(RandomState::new()), 0);
        for found in self.across.on_all(&self.shards, self.apply(limit)).await {
            let (members, bytes) = found?;
            all_bytes += bytes;
            check_gathered(all_bytes, &self.across.limits)?;
            seen.extend(members);
        }
        Ok(seen)
    }

    /// The members of the result on the shard of one key, less those that the other shards' sets keep out.
    async fn filtered(&self, index: usize) -> Result<Members> {
        let first = self.shard_of(index);
        let apply = self.apply(usize::MAX);
        let (members, _) = self.across.on(first, move |ctx| apply(ctx, first)).await?;
        Ok(self.kept_elsewhere(first, members).await)
    }

    /// Those of some members that the sets of all shards but one let pass.
    pub(super) async fn kept_elsewhere(&self, but: usize, mut members: Members) -> Members {
        for shard in self.shards.iter().copied().filter(|shard| *shard != but) {
            if members.is_empty() {
                break;
            }
            let (part, operation) = (self.part.clone(), self.operation);
            let filter = move |ctx: &mut Ctx| {
                let sets = part.sets(ctx, shard);
                members.retain(|member| match operation {
                    Operation::Diff => !sets.iter().any(|set| set.contains(member)),
                    _ => sets.iter().all(|set| set.contains(member)),
                });
                members
            };
            members = self.across.on(shard, filter).await;
        }
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Limits, PackLimits};
    use std::collections::BTreeSet;

    fn random_set(rng: &mut fastrand::Rng) -> (Form, BTreeSet<Vec<u8>>) {
        let limits = Limits {
            intset_entries: rng.usize(..30),
            set: PackLimits { entries: rng.usize(..30), value_bytes: 10 },
            ..Limits::default()
        };
        let (mut form, mut model) = (Form::default(), BTreeSet::new());
        let ints = rng.bool();
        for _ in 0..rng.usize(..40) {
            let member = if ints { rng.i8(-20..20).to_string() } else { format!("0{}", rng.u8(..20)) };
            let member = member.trim_start_matches("00").as_bytes().to_vec();
            assert_eq!(form.insert(&member, &limits), model.insert(member));
        }
        (form, model)
    }

    #[test]
    fn results_are_those_of_ordered_sets() {
        for seed in 0..500 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let sets: Vec<_> = (0..rng.usize(1..6)).map(|_| random_set(&mut rng)).collect();
            let views: Vec<View> = sets.iter().map(|(form, _)| form.view()).collect();
            let models = || sets.iter().map(|(_, model)| model.clone());
            for (operation, expected) in [
                (Operation::Inter, models().reduce(|a, b| &a & &b)),
                (Operation::Union, models().reduce(|a, b| &a | &b)),
                (Operation::Diff, models().reduce(|a, b| &a - &b)),
            ] {
                let members = operation.apply(&views, usize::MAX);
                let found: BTreeSet<Vec<u8>> = members.iter().map(|member| member.to_vec()).collect();
                assert_eq!(found.len(), members.len(), "{operation:?}");
                assert_eq!(Some(found), expected, "{operation:?} of seed {seed}");
            }
        }
    }
}
