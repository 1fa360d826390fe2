//! XDELEX and XACKDEL: entries deleted with a say of the groups that refer to them, each with an answer of its own.

use super::super::Ctx;
use super::entries::{parse_references, propagate_gone};
use super::{find, parse_ids};
use crate::keyspace::{Change, Event};
use crate::resp::{Error, Request, Result};
use crate::value::stream::{Id, References, Released, Stream};
use std::ops::Range;

const NOT_FOUND: i64 = -1;
const DELETED: i64 = 1;
/// A group still has to be delivered the entry, or to acknowledge it.
const REFERRED_TO: i64 = 2;

/// What is said behind the key and the group.
struct Options {
    references: References,
    /// Indexes of the ids.
    ids: Range<usize>,
}

impl Options {
    fn parse(request: Request, first: usize) -> Result<Options> {
        let (mut references, mut ids, mut index) = (None, None, first);
        while index < request.len() {
            if let Some(said) = parse_references(request, index).filter(|_| references.is_none()) {
                references = Some(said);
                index += 1;
            } else if request.is(index, "ids") && index + 1 < request.len() {
                let begin = index + 2;
                let count = request.int(index + 1).ok().and_then(|count| usize::try_from(count).ok());
                let count = count.filter(|count| *count > 0);
                let count = count.ok_or(Error::text("ERR Number of IDs must be a positive integer"))?;
                if count > request.len() - begin {
                    return Err(Error::text("ERR The `numids` parameter must match the number of arguments"));
                }
                index = begin + count;
                ids = Some(begin..index);
            } else {
                return Err(Error::Syntax);
            }
        }
        let ids = ids.ok_or(Error::text("ERR IDS option is required"))?;
        Ok(Options { references: references.unwrap_or(References::Keep), ids })
    }

    fn ids(&self, request: Request) -> Result<Vec<Id>> {
        parse_ids(self.ids.clone().map(|index| request.arg(index)))
    }

    /// Where there is no stream, or no group, there is no entry.
    fn find_nothing(&self, ctx: &mut Ctx) {
        ctx.reply.array(self.ids.len());
        self.ids.clone().for_each(|_| ctx.reply.int(NOT_FOUND));
    }
}

/// What a command has done, and its answers.
#[derive(Default)]
struct Outcome {
    answers: Vec<i64>,
    deleted: Vec<Id>,
    /// Entries that are pending in fewer groups than before: how many, and in which not.
    released: u64,
    groups: Released,
}

impl Outcome {
    /// Takes an entry out of a stream, as far as `references` lets it; whether nothing held it.
    fn delete(&mut self, stream: &mut Stream, id: Id, references: References) -> Option<bool> {
        match references {
            References::Acknowledged if stream.groups.refer_to(id) => return None,
            References::Delete => self.released += u64::from(stream.groups.forget(id, &mut self.groups)),
            _ => {}
        }
        let was_there = stream.log.delete(id);
        if was_there {
            self.deleted.push(id);
        }
        Some(was_there)
    }

    /// Ends the edit of a stream, whose groups alone may have changed, and replies.
    fn commit(self, ctx: &mut Ctx, request: Request, count: u64) {
        let key = ctx.key(request.arg(1));
        if !self.deleted.is_empty() {
            ctx.commit(key, Change::of(Event::XDel).times(count));
        } else {
            ctx.commit_if(count > 0, key, Change::untold().times(count).unseen());
        }
        if ctx.is_journaled() {
            ctx.propagate_nothing();
            propagate_gone(ctx, key, &self.deleted, &self.groups);
        }
        ctx.reply.array(self.answers.len());
        self.answers.iter().for_each(|answer| ctx.reply.int(*answer));
    }
}

pub fn xdelex(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    // Its type is looked at first, as in Redis.
    find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?;
    let options = Options::parse(request, 2)?;
    let Some(live) = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch.uncounted())? else {
        options.find_nothing(ctx);
        return Ok(());
    };
    let ids = options.ids(request)?;
    let delete = |stream: &mut Stream| {
        let mut outcome = Outcome::default();
        for id in ids {
            let answer = match outcome.delete(stream, id, options.references) {
                None => REFERRED_TO,
                Some(true) => DELETED,
                Some(false) => NOT_FOUND,
            };
            outcome.answers.push(answer);
        }
        outcome
    };
    let outcome = live.edit().change_node(delete).unwrap_or_default();
    let count = if outcome.deleted.is_empty() { outcome.released } else { outcome.deleted.len() as u64 };
    outcome.commit(ctx, request, count);
    Ok(())
}

pub fn xackdel(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch)?;
    let options = Options::parse(request, 3)?;
    let has_group = |stream: &Stream| stream.groups.get(request.arg(2)).is_some();
    let found = find(ctx.keyspace, ctx.db, key, ctx.now, ctx.touch.uncounted())?;
    let Some(live) = found.filter(|live| live.node().is_some_and(has_group)) else {
        options.find_nothing(ctx);
        return Ok(());
    };
    let ids = options.ids(request)?;
    let acknowledge = |stream: &mut Stream| {
        let mut outcome = Outcome::default();
        for id in ids {
            let was_pending = stream.groups.change(request.arg(2), |group| group.acknowledge(id)) == Some(true);
            if was_pending {
                outcome.released += 1;
                outcome.groups.add(request.arg(2), id);
            }
            let answer = match was_pending {
                false => NOT_FOUND,
                // An entry that was gone already counts as deleted.
                true => outcome.delete(stream, id, options.references).map_or(REFERRED_TO, |_| DELETED),
            };
            outcome.answers.push(answer);
        }
        outcome
    };
    let outcome = live.edit().change_node(acknowledge).unwrap_or_default();
    let count = outcome.answers.iter().filter(|answer| **answer != NOT_FOUND).count();
    outcome.commit(ctx, request, count as u64);
    Ok(())
}
