//! Sets.
//!
//! | file | what |
//! |---|---|
//! | `random.rs` | members chosen at random |
//! | `deadlines.rs` | members that die: SEXPIRE and its kin |
//! | `edit.rs` | adding, removing and moving members |
//! | `cardinality.rs` | how many members they have |
//! | `algebra.rs` | intersections, unions and differences |

mod algebra;
mod cardinality;
mod deadlines;
mod edit;
#[cfg(test)]
mod model_test;
mod random;
#[cfg(test)]
mod tests;

pub use deadlines::ROWS as DEADLINE_ROWS;

use super::scanning::{self, Own, ScanOptions, reply_page};
use super::spec::flag::{COUNTED, DENY_OOM, FAST, MOVABLE_KEYS, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec, tip};
use super::{Ctx, Run, reply_element};
use crate::keyspace::{Key, Kind, Live, Owned};
use crate::resp::{Error, Request, Result};
use crate::value::number::I64_TEXT_BYTES_MAX;
use crate::value::set::{Form, View};
use algebra::Operation;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            name: "sadd",
            arity: -3,
            flags: WRITE | DENY_OOM | FAST,
            keys: Keys::ONE,
            group: Group::Set,
            since: "1.0.0",
            complexity: "O(1) for each member",
            summary: "Adds members to a set, which is made if there is none.",
            syntax: "key member...",
        },
        Run::Key(edit::sadd),
    ),
    Row::new(
        Spec {
            name: "srem",
            arity: -3,
            flags: WRITE | FAST,
            keys: Keys::ONE,
            group: Group::Set,
            since: "1.0.0",
            complexity: "O(1) for each member",
            summary: "Removes members from a set.",
            syntax: "key member...",
        },
        Run::Key(edit::srem),
    ),
    Row::new(
        Spec {
            name: "smove",
            arity: 4,
            flags: WRITE | FAST,
            keys: Keys::TWO,
            group: Group::Set,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Moves a member from one set to another.",
            syntax: "source:key destination:key member",
        },
        Run::Atomic(edit::smove_here, |across| Box::pin(edit::smove_across(across))),
    ),
    Row::new(
        Spec {
            name: "spop",
            arity: -2,
            flags: WRITE | FAST,
            keys: Keys::ONE,
            group: Group::Set,
            since: "1.0.0",
            complexity: "O(1), or O(n) in the number of members taken, in the size of the set where these are many",
            summary: "Takes members chosen at random from a set and returns them.",
            syntax: "key [count:integer]",
        },
        Run::Key(random::spop),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        Spec {
            name: "srandmember",
            arity: -2,
            flags: READ,
            keys: Keys::ONE,
            group: Group::Set,
            since: "1.0.0",
            complexity: "O(1), or O(n) in the number of members returned, in the size of the set where these are many",
            summary: "Returns members chosen at random; different ones, unless the count is negative.",
            syntax: "key [count:integer]",
        },
        Run::Key(random::srandmember),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        Spec {
            name: "sismember",
            arity: 3,
            flags: READ | FAST,
            keys: Keys::ONE,
            group: Group::Set,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Tells whether a set has a member.",
            syntax: "key member",
        },
        Run::Key(sismember),
    ),
    Row::new(
        Spec {
            name: "smismember",
            arity: -3,
            flags: READ | FAST,
            keys: Keys::ONE,
            group: Group::Set,
            since: "6.2.0",
            complexity: "O(1) for each member",
            summary: "Tells of several members whether a set has them.",
            syntax: "key member...",
        },
        Run::Key(smismember),
    ),
    Row::new(
        Spec {
            name: "scard",
            arity: 2,
            flags: READ | FAST,
            keys: Keys::ONE,
            group: Group::Set,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "Returns the number of members of a set.",
            syntax: "key",
        },
        Run::Key(scard),
    ),
    Row::new(
        Spec {
            name: "smembers",
            arity: 2,
            flags: READ,
            keys: Keys::ONE,
            group: Group::Set,
            since: "1.0.0",
            complexity: "O(n) in the size of the set",
            summary: "Returns all members of a set.",
            syntax: "key",
        },
        Run::Key(smembers),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT_ORDER]),
    Row::new(
        Spec {
            name: "sscan",
            arity: -3,
            flags: READ,
            keys: Keys::ONE,
            group: Group::Set,
            since: "2.8.0",
            complexity: "O(1) a call, O(n) for a whole walk",
            summary: "Walks the members of a set: every one that is there throughout is returned.",
            syntax: "key cursor:integer [MATCH pattern:pattern] [COUNT count:integer]",
        },
        Run::Key(sscan),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        Spec {
            name: "sinter",
            arity: -2,
            flags: READ,
            keys: Keys::ALL,
            group: Group::Set,
            since: "1.0.0",
            complexity: "O(n m) in the size of the smallest set and the number of sets",
            summary: "Returns the members that are in all of several sets.",
            syntax: "key...",
        },
        Run::Atomic(
            |ctx, request| algebra::here(ctx, request, Operation::Inter),
            |across| Box::pin(algebra::across(across, Operation::Inter)),
        ),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT_ORDER]),
    Row::new(
        Spec {
            name: "sinterstore",
            arity: -3,
            flags: WRITE | COUNTED | DENY_OOM,
            keys: Keys::ALL,
            group: Group::Set,
            since: "1.0.0",
            complexity: "O(n m) in the size of the smallest set and the number of sets",
            summary: "Stores the members that are in all of several sets under a key, whatever was there.",
            syntax: "destination:key key...",
        },
        Run::Atomic(
            |ctx, request| algebra::store_here(ctx, request, Operation::Inter),
            |across| Box::pin(algebra::store_across(across, Operation::Inter)),
        ),
    ),
    Row::new(
        Spec {
            name: "sunion",
            arity: -2,
            flags: READ,
            keys: Keys::ALL,
            group: Group::Set,
            since: "1.0.0",
            complexity: "O(n) in the number of members of all sets",
            summary: "Returns the members that are in any of several sets.",
            syntax: "key...",
        },
        Run::Atomic(
            |ctx, request| algebra::here(ctx, request, Operation::Union),
            |across| Box::pin(algebra::across(across, Operation::Union)),
        ),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT_ORDER]),
    Row::new(
        Spec {
            name: "sunionstore",
            arity: -3,
            flags: WRITE | COUNTED | DENY_OOM,
            keys: Keys::ALL,
            group: Group::Set,
            since: "1.0.0",
            complexity: "O(n) in the number of members of all sets",
            summary: "Stores the members that are in any of several sets under a key, whatever was there.",
            syntax: "destination:key key...",
        },
        Run::Atomic(
            |ctx, request| algebra::store_here(ctx, request, Operation::Union),
            |across| Box::pin(algebra::store_across(across, Operation::Union)),
        ),
    ),
    Row::new(
        Spec {
            name: "sdiff",
            arity: -2,
            flags: READ,
            keys: Keys::ALL,
            group: Group::Set,
            since: "1.0.0",
            complexity: "O(n) in the number of members of all sets",
            summary: "Returns the members of a set that are in none of the others.",
            syntax: "key...",
        },
        Run::Atomic(
            |ctx, request| algebra::here(ctx, request, Operation::Diff),
            |across| Box::pin(algebra::across(across, Operation::Diff)),
        ),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT_ORDER]),
    Row::new(
        Spec {
            name: "sdiffstore",
            arity: -3,
            flags: WRITE | COUNTED | DENY_OOM,
            keys: Keys::ALL,
            group: Group::Set,
            since: "1.0.0",
            complexity: "O(n) in the number of members of all sets",
            summary: "Stores the members of a set that are in none of the others under a key, whatever was there.",
            syntax: "destination:key key...",
        },
        Run::Atomic(
            |ctx, request| algebra::store_here(ctx, request, Operation::Diff),
            |across| Box::pin(algebra::store_across(across, Operation::Diff)),
        ),
    ),
    Row::new(
        Spec {
            complexity: "O(n m) in the size of the smallest set and the number of sets",
            summary: "Counts the members that are in all of several sets, up to a limit.",
            syntax: "numkeys:integer key... [LIMIT limit:integer]",
            ..counting("sintercard", "7.0.0")
        },
        Run::Atomic(
            |ctx, request| cardinality::here(ctx, request, Operation::Inter),
            |across| Box::pin(cardinality::across(across, Operation::Inter)),
        ),
    ),
    Row::new(
        Spec {
            complexity: "O(n) in the number of members of all sets",
            summary: "Counts the members that are in any of several sets, up to a limit, or estimates their number.",
            syntax: "numkeys:integer key... [APPROX] [LIMIT limit:integer]",
            ..counting("sunioncard", "8.10.0")
        },
        Run::Atomic(
            |ctx, request| cardinality::here(ctx, request, Operation::Union),
            |across| Box::pin(cardinality::across(across, Operation::Union)),
        ),
    ),
    Row::new(
        Spec {
            complexity: "O(n) in the number of members of all sets",
            summary: "Counts the members of a set that are in none of the others, up to a limit.",
            syntax: "numkeys:integer key... [LIMIT limit:integer]",
            ..counting("sdiffcard", "8.10.0")
        },
        Run::Atomic(
            |ctx, request| cardinality::here(ctx, request, Operation::Diff),
            |across| Box::pin(cardinality::across(across, Operation::Diff)),
        ),
    ),
];

/// The live set under a key; another type is an error.
fn find<'c>(ctx: &'c mut Ctx, key: Key) -> Result<Option<Live<'c>>> {
    of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))
}

fn of_kind(found: Option<Live>) -> Result<Option<Live>> {
    match found {
        Some(live) if live.kind() != Kind::Set => Err(Error::WrongType),
        found => Ok(found),
    }
}

/// What is asked of the set under the request's key; an empty one where there is none.
fn of_set<R>(ctx: &mut Ctx, request: Request, ask: impl FnOnce(View) -> R) -> Result<R> {
    let key = ctx.key(request.arg(1));
    Ok(match find(ctx, key)? {
        Some(live) => ask(view(&live)),
        None => ask(View::EMPTY),
    })
}

fn view<'l>(live: &'l Live) -> View<'l> {
    View::of(live.content(), live.now_ms())
}

/// A set on its way to a key.
fn owned(form: Form) -> Owned {
    match form {
        Form::Packed { bytes, marked } => Owned::Packed { kind: Kind::Set, marked, bytes: bytes.into_vec() },
        Form::Node(set) => Owned::node(set),
    }
}

fn sismember(ctx: &mut Ctx, request: Request) -> Result {
    let found = of_set(ctx, request, |view| view.contains(request.arg(2)))?;
    ctx.reply.int(i64::from(found));
    Ok(())
}

fn smismember(ctx: &mut Ctx, request: Request) -> Result {
    let found: Vec<bool> = of_set(ctx, request, |view| request.from(2).map(|member| view.contains(member)).collect())?;
    ctx.reply.array(found.len());
    found.into_iter().for_each(|found| ctx.reply.int(i64::from(found)));
    Ok(())
}

fn scard(ctx: &mut Ctx, request: Request) -> Result {
    let len = of_set(ctx, request, |view| view.len())?;
    ctx.reply.int(len as i64);
    Ok(())
}

fn smembers(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let live = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
    let view = live.as_ref().map_or(View::EMPTY, view);
    ctx.reply.set(view.len());
    view.iter().for_each(|member| reply_element(&mut ctx.reply, member));
    Ok(())
}

fn sscan(ctx: &mut Ctx, request: Request) -> Result {
    let cursor = scanning::cursor(request, 2)?;
    let key = ctx.key(request.arg(1));
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut next = 0;
    if let Some(live) = find(ctx, key)? {
        let options = ScanOptions::parse(request, 3, Own::None)?;
        next = view(&live).scan(cursor, options.count, |member| {
            let mut text = [0; I64_TEXT_BYTES_MAX];
            let text = member.text(&mut text);
            if options.matches(text) {
                found.push(text.to_vec());
            }
        });
    }
    reply_page(&mut ctx.reply, next, &found);
    Ok(())
}

/// A command that counts the members of what several sets make. The rest is said of each.
const fn counting(name: &'static str, since: &'static str) -> Spec {
    Spec {
        name,
        arity: -3,
        flags: READ | MOVABLE_KEYS,
        keys: Keys::COUNTED,
        group: Group::Set,
        since,
        complexity: "",
        summary: "",
        syntax: "",
    }
}
