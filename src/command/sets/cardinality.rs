//! How many members an intersection, a union or a difference has, up to a limit: SINTERCARD, SUNIONCARD, SDIFFCARD.
//!
//! An estimate (APPROX) is that of a HyperLogLog to which all members are added: no shard sends more than its registers,
//! however many members there are.

use super::algebra::{Gathering, Members, Operation, look, sets};
use crate::command::{Across, Ctx};
use crate::resp::{Error, Request, Result};
use crate::value::hll::{Mark, Registers};
use crate::value::number::{I64_TEXT_BYTES_MAX, parse_i64};
use crate::value::set::View;
use std::ops::Range;

/// What is asked for.
struct Asked {
    /// Indexes of the keys.
    keys: Range<usize>,
    limit: usize,
    is_estimate: bool,
}

fn parse(request: Request, operation: Operation) -> Result<Asked> {
    let keys = parse_i64(request.arg(1)).filter(|keys| *keys >= 1);
    let keys = keys.ok_or(Error::text("ERR numkeys should be greater than 0"))?;
    let end = usize::try_from(keys).ok().and_then(|keys| keys.checked_add(2)).filter(|end| *end <= request.len());
    let end = end.ok_or(Error::text("ERR Number of keys can't be greater than number of args"))?;
    let (mut limit, mut is_estimate, mut index) = (0, false, end);
    while index < request.len() {
        if operation == Operation::Union && request.is(index, "approx") {
            is_estimate = true;
            index += 1;
            continue;
        }
        let value = request.get(index + 1).filter(|_| request.is(index, "limit")).ok_or(Error::Syntax)?;
        let value = parse_i64(value).and_then(|limit| usize::try_from(limit).ok());
        limit = value.ok_or(Error::text("ERR LIMIT can't be negative"))?;
        index += 2;
    }
    Ok(Asked { keys: 2..end, limit: if limit == 0 { usize::MAX } else { limit }, is_estimate })
}

pub(super) fn here(ctx: &mut Ctx, request: Request, operation: Operation) -> Result {
    let Asked { keys, limit, is_estimate } = parse(request, operation)?;
    look(ctx, keys.clone().map(|index| request.arg(index)))?;
    let sets = sets(ctx.keyspace, ctx.db, ctx.now, request, &operation.keys_read(request, keys));
    let count = match &sets[..] {
        [set] => set.len().min(limit),
        sets if is_estimate => estimate(&registers(sets), limit),
        sets => operation.apply(sets, limit).len(),
    };
    ctx.reply.int(count as i64);
    Ok(())
}

pub(super) async fn across(across: Across, operation: Operation) -> Result<Vec<u8>> {
    let Asked { keys, limit, is_estimate } = parse(across.request.as_request(), operation)?;
    let gathering = Gathering::new(&across, keys, operation);
    let smallest = gathering.look().await?;
    let count = match operation {
        Operation::Union if is_estimate => gathering.estimated(limit).await,
        Operation::Union => gathering.union(limit).await?.len().min(limit),
        Operation::Inter => gathering.counted(smallest, limit).await,
        Operation::Diff => gathering.counted(gathering.first, limit).await,
    };
    Ok(across.reply(|reply| reply.int(count as i64)))
}

/// The registers of a HyperLogLog to which all members of these sets were added.
fn registers(sets: &[View]) -> Registers {
    let mut registers = Registers::new();
    let mut text = [0; I64_TEXT_BYTES_MAX];
    for member in sets.iter().flat_map(|set| set.iter()) {
        registers.raise(Mark::of(member.text(&mut text)));
    }
    registers
}

fn estimate(registers: &Registers, limit: usize) -> usize {
    usize::try_from(registers.count()).unwrap_or(usize::MAX).min(limit)
}

/// Members are looked at in pieces, the first of which is small.
const FIRST_PIECE: usize = 1_000;
const PIECE_MAX: usize = 64_000;

impl Gathering<'_> {
    /// About how many members a union has, at most `limit`.
    async fn estimated(&self, limit: usize) -> usize {
        let part = self.part.clone();
        let read = move |ctx: &mut Ctx, shard: usize| registers(&part.sets(ctx, shard));
        let mut all = Registers::new();
        for registers in self.across.on_all(&self.shards, read).await {
            all.add_all(&registers);
        }
        estimate(&all, limit)
    }

    /// How many members of one set, the smallest of an intersection or the first of a difference, all others let pass; no
    /// more are looked for than `limit`.
    async fn counted(&self, index: usize, limit: usize) -> usize {
        let first = self.shard_of(index);
        let (mut count, mut cursor, mut piece) = (0, 0, FIRST_PIECE);
        loop {
            let (part, operation) = (self.part.clone(), self.operation);
            let go_on = move |ctx: &mut Ctx| {
                let mut sets = part.sets(ctx, first);
                if operation == Operation::Inter {
                    sets.sort_by_key(|set| set.len());
                }
                let Some((walked, others)) = sets.split_first() else { return (Members::new(), 0) };
                let mut members = Members::new();
                let next = walked.scan(cursor, piece, |member| {
                    let passes = match operation {
                        Operation::Diff => !others.iter().any(|other| other.has(member)),
                        _ => others.iter().all(|other| other.has(member)),
                    };
                    if passes {
                        members.push(member.to_vec());
                    }
                });
                (members, next)
            };
            let (members, next) = self.across.on(first, go_on).await;
            count += self.kept_elsewhere(first, members).await.len();
            if next == 0 || count >= limit {
                return count.min(limit);
            }
            (cursor, piece) = (next, (piece * 2).min(PIECE_MAX));
        }
    }
}
