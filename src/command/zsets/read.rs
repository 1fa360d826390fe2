//! Asking a sorted set for scores and ranks, random members, ZSCAN.

use super::{of_kind, view};
use crate::command::scanning::{self, Own, ScanOptions};
use crate::command::spec::flag::{FAST, READ};
use crate::command::spec::{Group, Keys, Row, Spec, tip};
use crate::command::{Ctx, Run, reply_drawn, reply_element};
use crate::resp::{Error, Proto, Reply, Request, Result};
use crate::value::number::{write_f64, write_i64};
use crate::value::pack::Element;
use crate::value::zset::View;
use ahash::RandomState;
use std::collections::HashSet;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec { summary: "Counts the members of a sorted set.", ..of_key("zcard", 2, "1.2.0", "O(1)", "key") },
        Run::Key(zcard),
    ),
    Row::new(
        Spec { summary: "Returns the score of a member.", ..of_key("zscore", 3, "1.2.0", "O(1)", "key member") },
        Run::Key(zscore),
    ),
    Row::new(
        Spec {
            summary: "Returns the scores of members.",
            ..of_key("zmscore", -3, "6.2.0", "O(n) in the number of members asked for", "key member...")
        },
        Run::Key(zmscore),
    ),
    Row::new(
        Spec {
            summary: "Returns the rank of a member, 0 for the one with the lowest score.",
            ..of_key("zrank", -3, "2.0.0", "O(log n)", "key member [WITHSCORE]")
        },
        Run::Key(|ctx, request| zrank(ctx, request, false)),
    ),
    Row::new(
        Spec {
            summary: "Returns the rank of a member, 0 for the one with the highest score.",
            ..of_key("zrevrank", -3, "2.0.0", "O(log n)", "key member [WITHSCORE]")
        },
        Run::Key(|ctx, request| zrank(ctx, request, true)),
    ),
    Row::new(
        Spec {
            flags: READ,
            summary: "Returns random members of a sorted set.",
            ..of_key(
                "zrandmember",
                -2,
                "6.2.0",
                "O(n) in the number of members returned",
                "key [options:(count:integer [WITHSCORES])]",
            )
        },
        Run::Key(zrandmember),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
    Row::new(
        Spec {
            flags: READ,
            summary: "Walks the members of a sorted set: one that is there throughout is returned exactly once.",
            ..of_key(
                "zscan",
                -3,
                "2.8.0",
                "O(1) a call, O(n) for a whole walk",
                "key cursor:integer [MATCH pattern:pattern] [COUNT count:integer] [NOSCORES]",
            )
        },
        Run::Key(zscan),
    )
    .tips(&[tip::NONDETERMINISTIC_OUTPUT]),
];

const fn of_key(
    name: &'static str,
    arity: i32,
    since: &'static str,
    complexity: &'static str,
    syntax: &'static str,
) -> Spec {
    Spec {
        name,
        arity,
        flags: READ | FAST,
        keys: Keys::ONE,
        group: Group::SortedSet,
        since,
        complexity,
        summary: "",
        syntax,
    }
}

fn zcard(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let live = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
    ctx.reply.int(live.map_or(0, |live| view(&live).len()) as i64);
    Ok(())
}

fn zscore(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let live = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
    reply_score(&mut ctx.reply, live.and_then(|live| view(&live).score(request.arg(2))));
    Ok(())
}

fn zmscore(ctx: &mut Ctx, request: Request) -> Result {
    let key = ctx.key(request.arg(1));
    let live = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
    let view = live.as_ref().map_or(View::EMPTY, view);
    ctx.reply.array(request.len() - 2);
    request.from(2).for_each(|member| reply_score(&mut ctx.reply, view.score(member)));
    Ok(())
}

fn reply_score(reply: &mut Reply, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.nil(),
    }
}

fn zrank(ctx: &mut Ctx, request: Request, reverse: bool) -> Result {
    if request.len() > 4 {
        return Err(Error::WrongArity(if reverse { "zrevrank" } else { "zrank" }.into()));
    }
    let with_score = request.len() == 4;
    if with_score && !request.is(3, "withscore") {
        return Err(Error::Syntax);
    }
    let key = ctx.key(request.arg(1));
    ctx.keyspace.thin_out_dead_elements(ctx.db, key, ctx.now);
    let live = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
    let view = live.as_ref().map_or(View::EMPTY, view);
    match view.rank(request.arg(2)) {
        None if with_score => ctx.reply.nil_array(),
        None => ctx.reply.nil(),
        Some((rank, score)) => {
            if with_score {
                ctx.reply.array(2);
            }
            ctx.reply.int(if reverse { view.len() - 1 - rank } else { rank } as i64);
            if with_score {
                ctx.reply.double(score);
            }
        }
    }
    Ok(())
}

/// A sorted set is gone through once where more than one member in so many is wanted; where fewer, each is drawn.
const DRAWN_OF: usize = 4;

fn parse_count(request: Request) -> Result<(i64, bool)> {
    let count = request.negatable(2)?;
    let with_scores = request.len() == 4 && request.is(3, "withscores");
    if request.len() > 3 && !with_scores {
        return Err(Error::Syntax);
    }
    if with_scores && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
        return Err(Error::text("ERR value is out of range"));
    }
    Ok((count, with_scores))
}

fn zrandmember(ctx: &mut Ctx, request: Request) -> Result {
    let asked = if request.len() > 2 { Some(parse_count(request)?) } else { None };
    let key = ctx.key(request.arg(1));
    ctx.keyspace.thin_out_dead_elements(ctx.db, key, ctx.now);
    let live = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
    let view = live.as_ref().map_or(View::EMPTY, view);
    let Some((count, with_scores)) = asked else {
        match view.random(ctx.rng) {
            Some((member, _)) => reply_element(&mut ctx.reply, member),
            None => ctx.reply.nil(),
        }
        return Ok(());
    };
    if view.is_empty() {
        ctx.reply.array(0);
    } else if count < 0 {
        let count = count.unsigned_abs();
        announce(&mut ctx.reply, usize::try_from(count).unwrap_or(usize::MAX), with_scores);
        reply_drawn(&mut ctx.reply, count, ctx.limits.string_bytes, |reply| {
            view.random(ctx.rng).into_iter().for_each(|item| reply_item(reply, item, with_scores));
        })?;
    } else {
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(view.len());
        announce(&mut ctx.reply, count, with_scores);
        different(view, count, ctx.rng, |item| reply_item(&mut ctx.reply, item, with_scores));
    }
    Ok(())
}

/// Shows `count` different items, of which there are as many or more, in no order that could be relied on.
fn different<'a>(view: View<'a>, count: usize, rng: &mut fastrand::Rng, mut each: impl FnMut((Element<'a>, f64))) {
    if count.saturating_mul(DRAWN_OF) > view.len() || view.may_have_dead() {
        // Each is taken with the chance that is left to it, so that all choices are equally likely (D. Knuth, TAOCP
        // 3.4.2, algorithm S).
        let (mut wanted, mut left) = (count, view.len());
        view.for_each(|member, score| {
            if rng.usize(..left) < wanted {
                each((member, score));
                wanted -= 1;
            }
            left -= 1;
        });
        return;
    }
    let mut drawn = HashSet::with_capacity_and_hasher(count, RandomState::new());
    while drawn.len() < count {
        let rank = rng.usize(..view.len());
        if drawn.insert(rank) {
            view.at(rank).into_iter().for_each(&mut each);
        }
    }
}

/// Announces items, with their scores side by side where the protocol has no better.
pub fn announce(reply: &mut Reply, count: usize, with_scores: bool) {
    let is_flat = with_scores && reply.proto == Proto::Resp2;
    reply.array(if is_flat { count.saturating_mul(2) } else { count });
}

/// An item that was announced.
pub fn reply_item(reply: &mut Reply, (member, score): (Element, f64), with_scores: bool) {
    if with_scores && reply.proto == Proto::Resp3 {
        reply.array(2);
    }
    reply_element(reply, member);
    if with_scores {
        reply.double(score);
    }
}

fn zscan(ctx: &mut Ctx, request: Request) -> Result {
    let cursor = scanning::cursor(request, 2)?;
    let key = ctx.key(request.arg(1));
    let (mut shown, mut next) = (Vec::new(), 0);
    if let Some(live) = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))? {
        let options = ScanOptions::parse(request, 3, Own::NoScores)?;
        let view = view(&live);
        let is_packed = matches!(view, View::Packed(_));
        next = view.scan(cursor, options.count, |member, score| {
            let member = member.to_vec();
            if options.matches(&member) {
                shown.push(member);
                if !options.is_bare {
                    shown.push(scanned_score(score, is_packed));
                }
            }
        });
    }
    scanning::reply_page(&mut ctx.reply, next, &shown);
    Ok(())
}

/// As text in either protocol. Packed whole scores are shown as Redis' listpack keeps them: with all digits.
fn scanned_score(score: f64, is_packed: bool) -> Vec<u8> {
    const WHOLE_MAX: f64 = (i64::MAX / 2) as f64;
    let mut text = Vec::new();
    if is_packed && score.trunc() == score && score.abs() <= WHOLE_MAX {
        write_i64(&mut text, score as i64);
    } else {
        write_f64(&mut text, score);
    }
    text
}
