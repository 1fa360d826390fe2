//! Ranges of a sorted set: by rank, by score and by name. Read, counted, stored and removed.

use super::read::{announce, reply_item};
use super::{Items, of_kind, store, take_ranks, view};
use crate::command::spec::flag::{COUNTED, DENY_OOM, FAST, READ, WRITE};
use crate::command::spec::{Group, Keys, Row, Spec};
use crate::command::{Across, Ctx, Run};
use crate::keyspace::{Change, Event, Key};
use crate::resp::{Error, Request, Result};
use crate::value::number::strtod;
use crate::value::zset::{AtMember, AtScore, Border, View};
use std::ops::{ControlFlow, Range};

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            summary: "Returns a range of a sorted set: by rank, by score or by name, from either end.",
            ..reading(
                "zrange",
                -4,
                "1.2.0",
                "key start:string stop:string [sortby:(BYSCORE|BYLEX)] [REV] [LIMIT limit:(offset:integer \
                 count:integer)] [WITHSCORES]",
            )
        },
        Run::Key(|ctx, request| read(ctx, request, Form::FREE)),
    ),
    Row::new(
        Spec {
            summary: "Returns members by their ranks, those with the highest scores first.",
            ..reading("zrevrange", -4, "1.2.0", "key start:integer stop:integer [WITHSCORES]")
        },
        Run::Key(|ctx, request| read(ctx, request, Form::of(By::Rank, true))),
    )
    .deprecated("6.2.0", "`ZRANGE` with the `REV` argument"),
    Row::new(
        Spec {
            summary: "Returns members whose scores are in a range.",
            ..reading(
                "zrangebyscore",
                -4,
                "1.0.5",
                "key min:double max:double [WITHSCORES] [LIMIT limit:(offset:integer count:integer)]",
            )
        },
        Run::Key(|ctx, request| read(ctx, request, Form::of(By::Score, false))),
    )
    .deprecated("6.2.0", "`ZRANGE` with the `BYSCORE` argument"),
    Row::new(
        Spec {
            summary: "Returns members whose scores are in a range, those with the highest scores first.",
            ..reading(
                "zrevrangebyscore",
                -4,
                "2.2.0",
                "key max:double min:double [WITHSCORES] [LIMIT limit:(offset:integer count:integer)]",
            )
        },
        Run::Key(|ctx, request| read(ctx, request, Form::of(By::Score, true))),
    )
    .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments"),
    Row::new(
        Spec {
            summary: "Returns members whose names are in a range, where all scores are equal.",
            ..reading("zrangebylex", -4, "2.8.9", "key min max [LIMIT limit:(offset:integer count:integer)]")
        },
        Run::Key(|ctx, request| read(ctx, request, Form::of(By::Name, false))),
    )
    .deprecated("6.2.0", "`ZRANGE` with the `BYLEX` argument"),
    Row::new(
        Spec {
            summary: "Returns members whose names are in a range, the last one first, where all scores are equal.",
            ..reading("zrevrangebylex", -4, "2.8.9", "key max min [LIMIT limit:(offset:integer count:integer)]")
        },
        Run::Key(|ctx, request| read(ctx, request, Form::of(By::Name, true))),
    )
    .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments"),
    Row::new(
        Spec {
            flags: WRITE | COUNTED | DENY_OOM,
            keys: Keys::TWO,
            complexity: "O(log n + m log m) with m members stored",
            summary: "Stores a range of a sorted set as another one.",
            ..reading(
                "zrangestore",
                -5,
                "6.2.0",
                "dst:key src:key min:string max:string [sortby:(BYSCORE|BYLEX)] [REV] [LIMIT limit:(offset:integer \
                 count:integer)]",
            )
        },
        Run::Atomic(zrangestore_here, |across| Box::pin(zrangestore_across(across))),
    ),
    Row::new(
        Spec {
            flags: READ | FAST,
            complexity: "O(log n)",
            summary: "Counts the members whose scores are in a range.",
            ..reading("zcount", 4, "2.0.0", "key min:double max:double")
        },
        Run::Key(|ctx, request| count(ctx, request, By::Score)),
    ),
    Row::new(
        Spec {
            flags: READ | FAST,
            complexity: "O(log n)",
            summary: "Counts the members whose names are in a range, where all scores are equal.",
            ..reading("zlexcount", 4, "2.8.9", "key min max")
        },
        Run::Key(|ctx, request| count(ctx, request, By::Name)),
    ),
    Row::new(
        Spec {
            summary: "Removes members by their ranks.",
            ..removing("zremrangebyrank", "2.0.0", "key start:integer stop:integer")
        },
        Run::Key(|ctx, request| remove(ctx, request, By::Rank, Event::ZRemRangeByRank)),
    ),
    Row::new(
        Spec {
            summary: "Removes members whose scores are in a range.",
            ..removing("zremrangebyscore", "1.2.0", "key min:double max:double")
        },
        Run::Key(|ctx, request| remove(ctx, request, By::Score, Event::ZRemRangeByScore)),
    ),
    Row::new(
        Spec {
            summary: "Removes members whose names are in a range, where all scores are equal.",
            ..removing("zremrangebylex", "2.8.9", "key min max")
        },
        Run::Key(|ctx, request| remove(ctx, request, By::Name, Event::ZRemRangeByLex)),
    ),
];

const fn reading(name: &'static str, arity: i32, since: &'static str, syntax: &'static str) -> Spec {
    Spec {
        name,
        arity,
        flags: READ,
        keys: Keys::ONE,
        group: Group::SortedSet,
        since,
        complexity: "O(log n + m) with m members returned",
        summary: "",
        syntax,
    }
}

const fn removing(name: &'static str, since: &'static str, syntax: &'static str) -> Spec {
    let complexity = "O(log n + m log n) with m members removed";
    Spec { flags: WRITE, complexity, ..reading(name, 4, since, syntax) }
}

/// What the ends of a range are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Name,
}

/// What a command's name says already of the range.
#[derive(Clone, Copy)]
struct Form {
    by: Option<By>,
    reverse: Option<bool>,
    /// Index of the key; the ends of the range are behind it.
    key: usize,
    stores: bool,
}

impl Form {
    const FREE: Form = Form { by: None, reverse: None, key: 1, stores: false };
    const STORE: Form = Form { key: 2, stores: true, ..Form::FREE };

    const fn of(by: By, reverse: bool) -> Form {
        Form { by: Some(by), reverse: Some(reverse), ..Form::FREE }
    }
}

/// A range as a request says it.
struct Asked<'r> {
    ends: Ends<'r>,
    reverse: bool,
    with_scores: bool,
    offset: i64,
    /// All of them where negative.
    limit: i64,
}

#[derive(Clone, Copy)]
enum Ends<'r> {
    /// First and last, counted from the end where negative.
    Ranks(i64, i64),
    Borders(Border<'r>, Border<'r>),
}

impl<'r> Ends<'r> {
    /// From the arguments at an index and behind it, of which the higher end may be the first.
    fn parse(request: Request<'r>, index: usize, by: By, high_first: bool) -> Result<Ends<'r>> {
        let (low, high) = (request.arg(index), request.arg(index + 1));
        let (low, high) = if high_first && by != By::Rank { (high, low) } else { (low, high) };
        match by {
            By::Rank => Ok(Ends::Ranks(request.int(index)?, request.int(index + 1)?)),
            By::Score => score_border(low, false)
                .zip(score_border(high, true))
                .map(|(low, high)| Ends::Borders(low, high))
                .ok_or(Error::text("ERR min or max is not a float")),
            By::Name => name_border(low, false)
                .zip(name_border(high, true))
                .map(|(low, high)| Ends::Borders(low, high))
                .ok_or(Error::text("ERR min or max not valid string range item")),
        }
    }

    /// Whether members are sought by name whose scores differ: what is found then is not said anywhere, and depends on how a server
    /// keeps them.
    fn are_vague(self, view: View) -> bool {
        let score_at = |rank: usize| view.at(rank).map(|(_, score)| score);
        let by_name = |border: Border| matches!(border, Border::Member(_));
        let has_names = matches!(self, Ends::Borders(low, high) if by_name(low) || by_name(high));
        has_names && score_at(0) != score_at(view.len().saturating_sub(1))
    }

    /// The ranks in a set; those by rank are counted from its other end when the order is reversed.
    fn ranks(self, view: View, reverse: bool) -> Range<usize> {
        match self {
            Ends::Borders(low, high) => view.ranks(low, high),
            Ends::Ranks(start, stop) => {
                let len = view.len() as i64;
                let from_end = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
                let (start, stop) = (from_end(start).max(0), from_end(stop).min(len - 1));
                if start > stop {
                    return 0..0;
                }
                let (start, end) = (start as usize, stop as usize + 1);
                if reverse { view.len() - end..view.len() - start } else { start..end }
            }
        }
    }
}

/// `(` before a score excludes it.
fn score_border(text: &[u8], high: bool) -> Option<Border<'static>> {
    let (text, excluded) = text.strip_prefix(b"(").map_or((text, false), |rest| (rest, true));
    Some(Border::Score(AtScore { score: strtod(text)?, behind: high != excluded }))
}

/// `[` before a name includes it, `(` excludes it; `-` is before all names, `+` behind them.
fn name_border(text: &[u8], high: bool) -> Option<Border<'_>> {
    match text {
        [b'-'] | [b'-', 0, ..] => Some(Border::Start),
        [b'+'] | [b'+', 0, ..] => Some(Border::End),
        [b'[', member @ ..] => Some(Border::Member(AtMember { member, behind: high })),
        [b'(', member @ ..] => Some(Border::Member(AtMember { member, behind: !high })),
        _ => None,
    }
}

fn parse(request: Request<'_>, form: Form) -> Result<Asked<'_>> {
    let (mut by, mut reverse) = (form.by, form.reverse);
    let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
    let mut index = form.key + 3;
    while index < request.len() {
        if !form.stores && request.is(index, "withscores") {
            with_scores = true;
        } else if request.is(index, "limit") && index + 2 < request.len() {
            (offset, limit) = (request.int(index + 1)?, request.int(index + 2)?);
            index += 2;
        } else if reverse.is_none() && request.is(index, "rev") {
            reverse = Some(true);
        } else if by.is_none() && request.is(index, "bylex") {
            by = Some(By::Name);
        } else if by.is_none() && request.is(index, "byscore") {
            by = Some(By::Score);
        } else {
            return Err(Error::Syntax);
        }
        index += 1;
    }
    let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
    if limit != -1 && by == By::Rank {
        let text = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
        return Err(Error::text(text));
    }
    if with_scores && by == By::Name {
        return Err(Error::text("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
    }
    let ends = Ends::parse(request, form.key + 1, by, reverse)?;
    if by == By::Rank {
        offset = 0;
    }
    Ok(Asked { ends, reverse, with_scores, offset, limit })
}

impl Asked<'_> {
    fn ranks(&self, view: View) -> Range<usize> {
        let mut ranks = self.ends.ranks(view, self.reverse);
        let skipped = usize::try_from(self.offset).unwrap_or(usize::MAX).min(ranks.len());
        let wanted = usize::try_from(self.limit).unwrap_or(usize::MAX).min(ranks.len() - skipped);
        if self.reverse {
            ranks.end -= skipped;
            ranks.start = ranks.end - wanted;
        } else {
            ranks.start += skipped;
            ranks.end = ranks.start + wanted;
        }
        ranks
    }
}

fn read(ctx: &mut Ctx, request: Request, form: Form) -> Result {
    let asked = parse(request, form)?;
    let key = ctx.key(request.arg(form.key));
    ctx.keyspace.thin_out_dead_elements(ctx.db, key, ctx.now);
    let live = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
    let view = live.as_ref().map_or(View::EMPTY, view);
    let (ranks, reply) = (asked.ranks(view), &mut ctx.reply);
    announce(reply, ranks.len(), asked.with_scores);
    view.walk(ranks, asked.reverse, |member, score| {
        reply_item(reply, (member, score), asked.with_scores);
        ControlFlow::Continue(())
    });
    Ok(())
}

/// The items that ZRANGESTORE stores, and whether another server might store others.
fn select(ctx: &mut Ctx, request: Request) -> Result<(Items, bool)> {
    let asked = parse(request, Form::STORE)?;
    let key = ctx.other_key(request.arg(Form::STORE.key));
    ctx.keyspace.thin_out_dead_elements(ctx.db, key, ctx.now);
    let live = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
    let view = live.as_ref().map_or(View::EMPTY, view);
    let mut items = Items::default();
    view.walk(asked.ranks(view), asked.reverse, |member, score| {
        items.push_element(member, score);
        ControlFlow::Continue(())
    });
    Ok((items, asked.ends.are_vague(view)))
}

/// Stores them, and says what they are where that is not the same everywhere.
fn store_selected(ctx: &mut Ctx, key: Key, (items, are_vague): (Items, bool)) -> Result<usize> {
    let before = ctx.keyspace.effects.dirty;
    let stored = store(ctx, key, items, Event::ZRangeStore)?;
    if are_vague && ctx.keyspace.effects.dirty > before {
        ctx.propagate_state(key);
    }
    Ok(stored)
}

fn zrangestore_here(ctx: &mut Ctx, request: Request) -> Result {
    ctx.keyspace.take_dead_elements(ctx.db, ctx.other_key(request.arg(Form::STORE.key)), ctx.now);
    let selected = select(ctx, request)?;
    let stored = store_selected(ctx, ctx.other_key(request.arg(1)), selected)?;
    ctx.reply.int(stored as i64);
    Ok(())
}

/// Both keys are held, so that nobody sees the moment between the steps.
async fn zrangestore_across(across: Across) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let source = across.shard_of(request.arg(Form::STORE.key));
    let destination = request.arg(1).to_vec();
    let shard = across.shard_of(&destination);
    let selecting = across.request.clone();
    let selected = across.on(source, move |ctx| select(ctx, selecting.as_request())).await?;
    let stored = across.on(shard, move |ctx| store_selected(ctx, ctx.other_key(&destination), selected)).await?;
    Ok(across.reply(|reply| reply.int(stored as i64)))
}

fn count(ctx: &mut Ctx, request: Request, by: By) -> Result {
    let ends = Ends::parse(request, 2, by, false)?;
    let key = ctx.key(request.arg(1));
    ctx.keyspace.thin_out_dead_elements(ctx.db, key, ctx.now);
    let live = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))?;
    ctx.reply.int(live.map_or(0, |live| ends.ranks(view(&live), false).len()) as i64);
    Ok(())
}

fn remove(ctx: &mut Ctx, request: Request, by: By, event: Event) -> Result {
    let ends = Ends::parse(request, 2, by, false)?;
    let (key, wants_names, is_journaled) = (ctx.key(request.arg(1)), ctx.wants_elements(event), ctx.is_journaled());
    ctx.keyspace.thin_out_dead_elements(ctx.db, key, ctx.now);
    let Some(live) = of_kind(ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch))? else {
        ctx.reply.int(0);
        return Ok(());
    };
    let (ranks, are_vague) = (ends.ranks(view(&live), false), ends.are_vague(view(&live)));
    let count = ranks.len();
    if count > 0 {
        let are_said = are_vague && is_journaled;
        let mut rest = take_ranks(live.edit(), ctx.limits.zset, ranks, wants_names || are_said);
        rest.says_names |= are_said;
        ctx.name_elements(event, &rest.names);
        ctx.commit(key, Change::removal(event, rest.is_gone));
        rest.propagate(ctx, key);
    }
    ctx.reply.int(count as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::OwnedRequest;
    use crate::value::zset::packed;

    /// Six members `a` to `f` with their scores.
    fn pack(scores: [f64; 6]) -> Vec<u8> {
        packed([&b"a"[..], b"b", b"c", b"d", b"e", b"f"].into_iter().zip(scores))
    }

    fn found(line: &str, form: Form, scores: [f64; 6]) -> Result<String> {
        let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
        let asked = parse(request.as_request(), form)?;
        let (bytes, mut names) = (pack(scores), String::new());
        let view = View::Packed(&bytes);
        view.walk(asked.ranks(view), asked.reverse, |member, _| {
            names += std::str::from_utf8(&member.to_vec()).unwrap();
            ControlFlow::Continue(())
        });
        Ok(names)
    }

    #[test]
    fn ranges_by_rank_score_and_name() {
        let by_rank = |line: &str| found(line, Form::FREE, [1.0, 2.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(by_rank("zrange k 0 -1"), "abcdef");
        assert_eq!(by_rank("zrange k -3 -2"), "de");
        assert_eq!(by_rank("zrange k -100 0"), "a");
        assert_eq!(by_rank("zrange k 4 100 rev"), "ba");
        assert_eq!(by_rank("zrange k 3 2"), "");
        assert_eq!(by_rank("zrange k 6 7"), "");
        assert_eq!(by_rank("zrange k -9223372036854775808 9223372036854775807"), "abcdef");
        assert_eq!(by_rank("zrange k 1 2 limit 1 -1"), "bc", "as Redis, which does not look at this limit");
        assert_eq!(by_rank("zrange k 2 4 byscore"), "bcde");
        assert_eq!(by_rank("zrange k (2 (4 byscore"), "d");
        assert_eq!(by_rank("zrange k -inf +inf byscore limit 1 2"), "bc");
        assert_eq!(by_rank("zrange k +inf (2 byscore rev limit 1 5"), "ed");
        assert_eq!(by_rank("zrange k 0 9 byscore limit -1 5"), "");
        assert_eq!(by_rank("zrange k 9 0 byscore"), "");
        let by_name = |line: &str| found(line, Form::FREE, [0.0; 6]).unwrap();
        assert_eq!(by_name("zrange k [b (d bylex"), "bc");
        assert_eq!(by_name("zrange k - + bylex"), "abcdef");
        assert_eq!(by_name("zrange k + [c bylex rev limit 0 2"), "fe");
        assert_eq!(by_name("zrange k + - bylex"), "");
        let reverse = |line: &str| found(line, Form::of(By::Score, true), [1.0, 2.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(reverse("zrevrangebyscore k 4 (2"), "ed");
    }

    #[test]
    fn what_is_wrong_is_said_in_the_order_of_redis() {
        let error = |line: &str, form| found(line, form, [0.0; 6]).unwrap_err().to_string();
        assert_eq!(error("zrange k x 1", Form::FREE), Error::NotAnInteger.to_string());
        assert_eq!(error("zrange k x y byscore", Form::FREE), "ERR min or max is not a float");
        assert_eq!(error("zrange k a b bylex", Form::FREE), "ERR min or max not valid string range item");
        assert_eq!(error("zrange k x y byscore bylex", Form::FREE), Error::Syntax.to_string());
        assert_eq!(error("zrangebyscore k 1 2 rev", Form::of(By::Score, false)), Error::Syntax.to_string());
        assert_eq!(error("zrangestore d k 1 2 withscores", Form::STORE), Error::Syntax.to_string());
        assert_eq!(error("zrange k x y limit 1", Form::FREE), Error::Syntax.to_string());
        assert_eq!(error("zrange k x y limit a 1", Form::FREE), Error::NotAnInteger.to_string());
        assert!(error("zrange k x y limit 1 1", Form::FREE).contains("LIMIT is only supported"));
        assert!(error("zrange k x y bylex withscores", Form::FREE).contains("WITHSCORES not supported"));
    }
}
