//! Adding members, changing scores, removing members.

use super::{bury, of_kind, settle, take_out, view};
use crate::command::spec::flag::{DENY_OOM, FAST, WRITE};
use crate::command::spec::{Group, Keys, Row, Spec};
use crate::command::{Ctx, Run};
use crate::config::PackLimits;
use crate::keyspace::{Change, Event, Key, KeyEdit, Kind, Owned, Stored};
use crate::resp::{Error, Request, Result};
use crate::value::number::parse_f64;
use crate::value::zset::{EMPTY, Edit, Packed, View, Zset};
use smallvec::SmallVec;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            name: "zadd",
            arity: -4,
            flags: WRITE | DENY_OOM | FAST,
            keys: Keys::ONE,
            group: Group::SortedSet,
            since: "1.2.0",
            complexity: "O(log n) for each member",
            summary: "Adds members to a sorted set, which is made if there is none, or changes their scores.",
            syntax: "key [condition:(NX|XX)] [comparison:(GT|LT)] [CH change:pure-token] [INCR increment:pure-token] \
                     data:(score:double member)...",
        },
        Run::Key(|ctx, request| zadd(ctx, request, false)),
    ),
    Row::new(
        Spec {
            name: "zincrby",
            arity: 4,
            flags: WRITE | DENY_OOM | FAST,
            keys: Keys::ONE,
            group: Group::SortedSet,
            since: "1.2.0",
            complexity: "O(log n)",
            summary: "Adds to the score of a member, which is 0 where there is no such member.",
            syntax: "key increment:integer member",
        },
        Run::Key(|ctx, request| zadd(ctx, request, true)),
    ),
    Row::new(
        Spec {
            name: "zrem",
            arity: -3,
            flags: WRITE | FAST,
            keys: Keys::ONE,
            group: Group::SortedSet,
            since: "1.2.0",
            complexity: "O(log n) for each member",
            summary: "Removes members from a sorted set.",
            syntax: "key member...",
        },
        Run::Key(zrem),
    ),
];

/// How members are added.
#[derive(Clone, Copy, Default)]
pub struct AddOptions {
    /// Only members that are not there.
    pub nx: bool,
    /// Only members that are there.
    pub xx: bool,
    /// Only where the score grows.
    gt: bool,
    /// Only where the score becomes smaller.
    lt: bool,
    /// Count members whose score changes, too.
    pub ch: bool,
    /// The score is added to the one that is there.
    incr: bool,
}

/// What adding did.
#[derive(Default)]
struct Added {
    added: usize,
    updated: usize,
    /// The score of the last member that was not left out.
    score: Option<f64>,
    /// Pairs that are done.
    pairs: usize,
    /// Those of them that changed something, where somebody has to hear of them.
    named: Option<Vec<usize>>,
}

type Pair<'r> = (f64, &'r [u8]);

/// The options, and the index of the first score.
fn parse(request: Request, incr: bool) -> Result<(AddOptions, usize)> {
    let mut options = AddOptions { incr, ..AddOptions::default() };
    let mut index = 2;
    // Hardly any score begins with a letter.
    while let Some(word) = request.get(index).filter(|word| word.first().is_some_and(u8::is_ascii_alphabetic)) {
        match word.to_ascii_lowercase().as_slice() {
            b"nx" => options.nx = true,
            b"xx" => options.xx = true,
            b"gt" => options.gt = true,
            b"lt" => options.lt = true,
            b"ch" => options.ch = true,
            b"incr" => options.incr = true,
            _ => break,
        }
        index += 1;
    }
    let pairs = request.len() - index;
    if !pairs.is_multiple_of(2) || pairs == 0 {
        return Err(Error::Syntax);
    }
    if options.nx && options.xx {
        return Err(Error::text("ERR XX and NX options at the same time are not compatible"));
    }
    if options.nx && (options.gt || options.lt) || options.gt && options.lt {
        return Err(Error::text("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if options.incr && pairs > 2 {
        return Err(Error::text("ERR INCR option supports a single increment-element pair"));
    }
    Ok((options, index))
}

fn zadd(ctx: &mut Ctx, request: Request, incr: bool) -> Result {
    let (options, first) = parse(request, incr)?;
    let mut pairs: SmallVec<[Pair; 4]> = SmallVec::with_capacity((request.len() - first) / 2);
    for index in (first..request.len()).step_by(2) {
        pairs.push((parse_f64(request.arg(index)).ok_or(Error::NotAFloat)?, request.arg(index + 1)));
    }
    add(ctx, ctx.key(request.arg(1)), &pairs, options)
}

/// Adds members, at least one, and replies.
pub fn add(ctx: &mut Ctx, key: Key, pairs: &[Pair], options: AddOptions) -> Result {
    let event = if options.incr { Event::ZIncr } else { Event::ZAdd };
    let named = ctx.wants_elements(event).then(Vec::new);
    let added = add_to(ctx, key, pairs, options, Added { named, ..Added::default() })?;
    if let Some(named) = &added.named {
        ctx.name_elements(event, named.iter().map(|index| pairs[*index].1));
    }
    ctx.commit_if(added.added + added.updated > 0, key, event);
    match added.score {
        Some(score) if options.incr => ctx.reply.double(score),
        None if options.incr => ctx.reply.nil(),
        _ => ctx.reply.int((added.added + if options.ch { added.updated } else { 0 }) as i64),
    }
    Ok(())
}

fn add_to(ctx: &mut Ctx, key: Key, pairs: &[Pair], options: AddOptions, added: Added) -> Result<Added> {
    match of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))? {
        Some(live) => add_to_live(live.edit(), ctx.limits.zset, pairs, options, added),
        None if options.xx => Ok(added),
        None => {
            let (value, added) = new_set(ctx.limits.zset, pairs, options, added)?;
            match value {
                Owned::Packed { bytes, .. } => {
                    let value = Stored::Packed(Kind::Zset, false, &bytes);
                    ctx.keyspace.insert_new(ctx.db, key, value, None, ctx.now);
                }
                node => ctx.keyspace.insert_owned(ctx.db, key, node, None, ctx.now),
            }
            Ok(added)
        }
    }
}

fn new_set(limits: PackLimits, pairs: &[Pair], options: AddOptions, mut added: Added) -> Result<(Owned, Added)> {
    let mut bytes = EMPTY.to_vec();
    add_pairs(&mut Packed::new(&mut bytes, limits), pairs, options, &mut added)?;
    if added.pairs == pairs.len() {
        return Ok((Owned::Packed { kind: Kind::Zset, marked: false, bytes }, added));
    }
    let mut zset = Zset::of(View::Packed(&bytes));
    add_pairs(&mut zset, pairs, options, &mut added)?;
    Ok((Owned::node(zset), added))
}

fn add_to_live(
    mut live: KeyEdit,
    limits: PackLimits,
    pairs: &[Pair],
    options: AddOptions,
    mut added: Added,
) -> Result<Added> {
    bury(&mut live, pairs.iter().map(|(_, member)| *member));
    match live.packed() {
        None => {
            let add = |zset: &mut Zset| add_pairs(zset, pairs, options, &mut added);
            live.change_node(add).expect("a sorted set that is not packed is a node")?;
        }
        Some(_) if pairs.len() == 1 => add_pairs(&mut Packed::new(&mut live, limits), pairs, options, &mut added)?,
        // Elsewhere, since each of them would move the entry.
        Some(packed) => {
            let mut bytes = packed.to_vec();
            add_pairs(&mut Packed::new(&mut bytes, limits), pairs, options, &mut added)?;
            live.repack(&bytes, false);
        }
    }
    if added.pairs < pairs.len() {
        let mut zset = Zset::of(view(&live));
        add_pairs(&mut zset, pairs, options, &mut added)?;
        live.promote(zset);
    }
    Ok(added)
}

/// Adds the pairs that are not done yet, up to one for which there is no room.
fn add_pairs(set: &mut impl Edit, pairs: &[Pair], options: AddOptions, added: &mut Added) -> Result {
    for (score, member) in &pairs[added.pairs..] {
        let before = added.added + added.updated;
        match set.find(member) {
            None if options.xx => {}
            None => {
                if !set.insert(member, *score) {
                    break;
                }
                added.added += 1;
                added.score = Some(*score);
            }
            Some(_) if options.nx => {}
            Some((place, old)) => {
                let new = if options.incr { old + *score } else { *score };
                if new.is_nan() {
                    return Err(Error::text("ERR resulting score is not a number (NaN)"));
                }
                if !(options.lt && new >= old || options.gt && new <= old) {
                    added.score = Some(new);
                    if new != old {
                        set.change(place, member, new);
                        added.updated += 1;
                    }
                }
            }
        }
        if let Some(named) = added.named.as_mut().filter(|_| added.added + added.updated > before) {
            named.push(added.pairs);
        }
        added.pairs += 1;
    }
    Ok(())
}

fn zrem(ctx: &mut Ctx, request: Request) -> Result {
    let (key, wants_names) = (ctx.key(request.arg(1)), ctx.wants_elements(Event::ZRem));
    let Some(live) = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))? else {
        ctx.reply.int(0);
        return Ok(());
    };
    let mut edit = live.edit();
    bury(&mut edit, request.from(2));
    let mut gone: Vec<&[u8]> = Vec::new();
    let mut name = |member| gone.extend(wants_names.then_some(member));
    let count = if edit.packed().is_some() {
        remove_members(&mut Packed::new(&mut edit, ctx.limits.zset), request.from(2), &mut name)
    } else {
        edit.change_node(|zset: &mut Zset| remove_members(zset, request.from(2), &mut name)).unwrap_or(0)
    };
    let is_gone = settle(edit);
    ctx.name_elements(Event::ZRem, gone);
    ctx.commit_if(count > 0, key, Change::removal(Event::ZRem, is_gone));
    ctx.reply.int(count);
    Ok(())
}

fn remove_members<'r>(
    set: &mut impl Edit,
    members: impl Iterator<Item = &'r [u8]>,
    mut removed: impl FnMut(&'r [u8]),
) -> i64 {
    members.filter(|member| take_out(set, member)).inspect(|member| removed(member)).count() as i64
}
