//! Unions, intersections and differences of sorted sets. Sets may be among them, their members' scores are 1.
//!
//! Redis goes through them from the smallest to the largest, and sums of floats depend on that; so does everybody here.
//! Where they are on several shards, the members of the smallest one (intersection) or of the first one (difference)
//! travel to the others, which return the scores they know for each of them; for a union all of them travel.

use super::read::{announce, reply_item};
use super::{Items, store};
use crate::clock::Now;
use crate::command::hop::check_gathered;
use crate::command::spec::flag::{COUNTED, DENY_OOM, MOVABLE_KEYS, READ, WRITE};
use crate::command::spec::{Group, Keys, Row, Spec};
use crate::command::{Across, Ctx, OwnedRequest, Run};
use crate::config::Limits;
use crate::keyspace::{Event, Keyspace, Kind, Stored};
use crate::resp::{Error, Reply, Request, Result};
use crate::value::number::{I64_TEXT_BYTES_MAX, parse_f64, parse_i64};
use crate::value::pack::Element;
use crate::value::set;
use crate::value::zset::View;
use ahash::RandomState;
use hashbrown::HashTable;
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            complexity: UNION_COST,
            summary: "Returns the members of several sorted sets, with their scores added up.",
            ..returning("zunion", "6.2.0", WEIGHTED)
        },
        Run::Atomic(|ctx, request| here(ctx, request, UNION), |across| Box::pin(self::across(across, UNION))),
    ),
    Row::new(
        Spec {
            complexity: INTER_COST,
            summary: "Returns the members that are in all of several sorted sets, with their scores added up.",
            ..returning("zinter", "6.2.0", WEIGHTED)
        },
        Run::Atomic(|ctx, request| here(ctx, request, INTER), |across| Box::pin(self::across(across, INTER))),
    ),
    Row::new(
        Spec {
            complexity: DIFF_COST,
            summary: "Returns the members of a sorted set that are in none of the others.",
            ..returning("zdiff", "6.2.0", "numkeys:integer key... [WITHSCORES]")
        },
        Run::Atomic(|ctx, request| here(ctx, request, DIFF), |across| Box::pin(self::across(across, DIFF))),
    ),
    Row::new(
        Spec {
            complexity: INTER_COST,
            summary: "Counts the members that are in all of several sorted sets.",
            ..returning("zintercard", "7.0.0", "numkeys:integer key... [LIMIT limit:integer]")
        },
        Run::Atomic(|ctx, request| here(ctx, request, INTERCARD), |across| Box::pin(self::across(across, INTERCARD))),
    ),
    Row::new(
        Spec {
            complexity: UNION_COST,
            summary: "Stores the members of several sorted sets, with their scores added up.",
            ..storing("zunionstore", "2.0.0", STORE_WEIGHTED)
        },
        Run::Atomic(|ctx, request| here(ctx, request, UNIONSTORE), |across| Box::pin(self::across(across, UNIONSTORE))),
    ),
    Row::new(
        Spec {
            complexity: INTER_COST,
            summary: "Stores the members that are in all of several sorted sets, with their scores added up.",
            ..storing("zinterstore", "2.0.0", STORE_WEIGHTED)
        },
        Run::Atomic(|ctx, request| here(ctx, request, INTERSTORE), |across| Box::pin(self::across(across, INTERSTORE))),
    ),
    Row::new(
        Spec {
            complexity: DIFF_COST,
            summary: "Stores the members of a sorted set that are in none of the others.",
            ..storing("zdiffstore", "6.2.0", "destination:key numkeys:integer key...")
        },
        Run::Atomic(|ctx, request| here(ctx, request, DIFFSTORE), |across| Box::pin(self::across(across, DIFFSTORE))),
    ),
];

const UNION_COST: &str = "O(n + m log m) with n members in all sets and m in the result";
const INTER_COST: &str = "O(n k + m log m) with n members in the smallest of k sets and m in the result";
const DIFF_COST: &str = "O(n k + m log m) with n members in the first of k sets and m in the result";
const WEIGHTED: &str =
    "numkeys:integer key... [WEIGHTS weight:integer...] [AGGREGATE aggregate:(SUM|MIN|MAX)] [WITHSCORES]";
const STORE_WEIGHTED: &str =
    "destination:key numkeys:integer key... [WEIGHTS weight:integer...] [AGGREGATE aggregate:(SUM|MIN|MAX)]";

const fn returning(name: &'static str, since: &'static str, syntax: &'static str) -> Spec {
    Spec {
        name,
        arity: -3,
        flags: READ | MOVABLE_KEYS,
        keys: Keys::COUNTED,
        group: Group::SortedSet,
        since,
        complexity: "",
        summary: "",
        syntax,
    }
}

const fn storing(name: &'static str, since: &'static str, syntax: &'static str) -> Spec {
    Spec {
        arity: -4,
        flags: WRITE | COUNTED | DENY_OOM | MOVABLE_KEYS,
        keys: Keys::DESTINATION_AND_COUNTED,
        ..returning(name, since, syntax)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

impl Operation {
    /// The event of storing.
    fn stored(self) -> Event {
        match self {
            Operation::Union => Event::ZUnionStore,
            Operation::Inter => Event::ZInterStore,
            Operation::Diff => Event::ZDiffStore,
        }
    }
}

/// What is done with a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Return,
    Count,
    Store,
}

#[derive(Clone, Copy)]
struct Command {
    name: &'static str,
    operation: Operation,
    purpose: Use,
}

const UNION: Command = Command { name: "zunion", operation: Operation::Union, purpose: Use::Return };
const INTER: Command = Command { name: "zinter", operation: Operation::Inter, purpose: Use::Return };
const DIFF: Command = Command { name: "zdiff", operation: Operation::Diff, purpose: Use::Return };
const INTERCARD: Command = Command { name: "zintercard", operation: Operation::Inter, purpose: Use::Count };
const UNIONSTORE: Command = Command { name: "zunionstore", operation: Operation::Union, purpose: Use::Store };
const INTERSTORE: Command = Command { name: "zinterstore", operation: Operation::Inter, purpose: Use::Store };
const DIFFSTORE: Command = Command { name: "zdiffstore", operation: Operation::Diff, purpose: Use::Store };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

struct Options {
    /// One for each key.
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    /// Of an intersection that is counted.
    limit: usize,
}

impl Command {
    /// The keys by their indexes in the request.
    fn keys(self, request: Request) -> Result<Range<usize>> {
        let index = if self.purpose == Use::Store { 2 } else { 1 };
        let count = request.int(index)?;
        if count < 1 {
            return Err(Error::err(format_args!("at least 1 input key is needed for '{}' command", self.name)));
        }
        let end = usize::try_from(count).ok().and_then(|count| count.checked_add(index + 1));
        Ok(index + 1..end.filter(|end| *end <= request.len()).ok_or(Error::Syntax)?)
    }

    /// What stands behind the keys.
    fn options(self, request: Request, keys: &Range<usize>) -> Result<Options> {
        let mut options = Options {
            weights: vec![1.0; keys.len()],
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: usize::MAX,
        };
        let is_weighted = self.operation != Operation::Diff && self.purpose != Use::Count;
        let mut index = keys.end;
        while index < request.len() {
            let behind = request.len() - index - 1;
            if is_weighted && behind >= keys.len() && request.is(index, "weights") {
                for (weight, text) in options.weights.iter_mut().zip(request.from(index + 1)) {
                    *weight = parse_f64(text).ok_or(Error::text("ERR weight value is not a float"))?;
                }
                index += keys.len();
            } else if is_weighted && behind >= 1 && request.is(index, "aggregate") {
                index += 1;
                options.aggregate = match request.arg(index).to_ascii_lowercase().as_slice() {
                    b"sum" => Aggregate::Sum,
                    b"min" => Aggregate::Min,
                    b"max" => Aggregate::Max,
                    _ => return Err(Error::Syntax),
                };
            } else if self.purpose == Use::Return && request.is(index, "withscores") {
                options.with_scores = true;
            } else if self.purpose == Use::Count && behind >= 1 && request.is(index, "limit") {
                index += 1;
                let limit = parse_i64(request.arg(index)).and_then(|limit| usize::try_from(limit).ok());
                let limit = limit.ok_or(Error::text("ERR LIMIT can't be negative"))?;
                options.limit = if limit == 0 { usize::MAX } else { limit };
            } else {
                return Err(Error::Syntax);
            }
            index += 1;
        }
        Ok(options)
    }

    fn reply(self, reply: &mut Reply, items: &Items, options: &Options) {
        if self.purpose == Use::Count {
            reply.int(items.len() as i64);
            return;
        }
        announce(reply, items.len(), options.with_scores);
        for (member, score) in items.sorted() {
            reply_item(reply, (Element::Bytes(member), score), options.with_scores);
        }
    }
}

impl Aggregate {
    fn of(self, score: f64, other: f64) -> f64 {
        match self {
            // Of infinities of both signs there is no sum.
            Aggregate::Sum => number_or_zero(score + other),
            Aggregate::Min => {
                if other < score {
                    other
                } else {
                    score
                }
            }
            Aggregate::Max => {
                if other > score {
                    other
                } else {
                    score
                }
            }
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// One of the sets.
#[derive(Clone, Copy)]
enum Source<'a> {
    Zset(View<'a>),
    Set(set::View<'a>),
    Items(&'a Items),
}

impl<'a> Source<'a> {
    const EMPTY: Source<'static> = Source::Zset(View::EMPTY);

    fn of(content: Stored<'a>, now_ms: u64) -> Source<'a> {
        match content {
            Stored::Packed(Kind::Set, ..) | Stored::Node(Kind::Set, _) => Source::Set(set::View::of(content, now_ms)),
            _ => Source::Zset(View::of(content, now_ms)),
        }
    }

    fn len(self) -> usize {
        match self {
            Source::Zset(view) => view.len(),
            Source::Set(view) => view.len(),
            Source::Items(items) => items.len(),
        }
    }

    /// Not of items on their way.
    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Source::Zset(view) => view.score(member),
            Source::Set(view) => view.contains(member).then_some(1.0),
            Source::Items(_) => None,
        }
    }

    /// Shows its members and their scores, until `each` breaks off.
    fn walk(self, mut each: impl FnMut(&[u8], f64) -> ControlFlow<()>) {
        let mut text = [0; I64_TEXT_BYTES_MAX];
        match self {
            Source::Zset(view) => view.walk(0..view.len(), false, |member, score| each(member.text(&mut text), score)),
            Source::Set(view) => drop(view.iter().try_for_each(|member| each(member.text(&mut text), 1.0))),
            Source::Items(items) => drop(items.iter().try_for_each(|(member, score)| each(member, score))),
        }
    }

    fn for_each(self, mut each: impl FnMut(&[u8], f64)) {
        self.walk(|member, score| {
            each(member, score);
            ControlFlow::Continue(())
        });
    }

    /// One call of a scan; not of items on their way.
    fn scan(self, cursor: u64, count: usize, mut each: impl FnMut(&[u8])) -> u64 {
        let mut text = [0; I64_TEXT_BYTES_MAX];
        match self {
            Source::Zset(view) => view.scan(cursor, count, |member, _| each(member.text(&mut text))),
            Source::Set(view) => view.scan(cursor, count, |member| each(member.text(&mut text))),
            Source::Items(_) => 0,
        }
    }

    fn to_items(self, limits: &Limits) -> Result<Items> {
        let (mut items, mut checked) = (Items::default(), Ok(()));
        self.walk(|member, score| {
            items.push(member, score);
            checked = check_gathered(items.bytes(), limits);
            if checked.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        checked.map(|()| items)
    }
}

/// The indexes of sets of these sizes, from the smallest to the largest.
fn by_size(lens: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lens.len()).collect();
    order.sort_by_key(|index| lens[*index]);
    order
}

/// The members of all sets; `order` and `places` as for [`intersection`].
fn union(sources: &[Source], (order, places): (&[usize], &[usize]), options: &Options) -> Items {
    let mut items = Items::default();
    let mut known: HashTable<usize> = HashTable::new();
    let hasher = RandomState::new();
    for index in order {
        let weight = options.weights[*index];
        sources[places[*index]].for_each(|member, score| {
            let score = number_or_zero(weight * score);
            let hash = hasher.hash_one(member);
            match known.find(hash, |place| items.get(*place).0 == member) {
                Some(place) => items.set_score(*place, options.aggregate.of(items.get(*place).1, score)),
                None => {
                    known.insert_unique(hash, items.len(), |place| hasher.hash_one(items.get(*place).0));
                    items.push(member, score);
                }
            }
        });
    }
    items
}

/// The members of the smallest set for which all others have a score. `order` are the indexes of sets as they were named,
/// and `places` which set each of them is, since one may be named several times. `score` is asked for that of a member in
/// the set of a place, and told its index among those of the smallest.
fn intersection(
    smallest: Source,
    (order, places): (&[usize], &[usize]),
    options: &Options,
    score: impl Fn(usize, usize, &[u8]) -> Option<f64>,
) -> Items {
    let mut items = Items::default();
    let Some((first, others)) = order.split_first() else { return items };
    let mut known = vec![None; places.len()];
    let mut nth = 0;
    smallest.walk(|member, own| {
        known.fill(None);
        known[places[*first]] = Some(own);
        let aggregated = others.iter().try_fold(number_or_zero(options.weights[*first] * own), |sum, index| {
            let place = places[*index];
            let other = known[place].or_else(|| score(place, nth, member))?;
            known[place] = Some(other);
            Some(options.aggregate.of(sum, other * options.weights[*index]))
        });
        if let Some(score) = aggregated {
            items.push(member, score);
        }
        nth += 1;
        if items.len() >= options.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    items
}

/// The members of the first set for which no other has a score, asked for as by [`intersection`].
fn difference(first: Source, others: &[usize], score: impl Fn(usize, usize, &[u8]) -> Option<f64>) -> Items {
    let mut items = Items::default();
    let mut nth = 0;
    first.for_each(|member, own| {
        if others.iter().all(|place| score(*place, nth, member).is_none()) {
            items.push(member, own);
        }
        nth += 1;
    });
    items
}

/// The sets that a command names, each once.
struct Named {
    /// Indexes in the request.
    keys: Vec<usize>,
    /// For each key of the command, which of them it is.
    places: Vec<usize>,
}

impl Named {
    fn of(request: Request, keys: Range<usize>) -> Named {
        let mut known = HashMap::with_hasher(RandomState::new());
        let mut named = Named { keys: Vec::new(), places: Vec::with_capacity(keys.len()) };
        for index in keys {
            let place = *known.entry(request.arg(index)).or_insert(named.keys.len());
            if place == named.keys.len() {
                named.keys.push(index);
            }
            named.places.push(place);
        }
        named
    }

    /// The first key of each set, in the same order: where sets are only counted they are not asked again.
    fn first_of_each(&self, mut order: Vec<usize>) -> Vec<usize> {
        let mut seen = vec![false; self.keys.len()];
        order.retain(|index| !std::mem::replace(&mut seen[self.places[*index]], true));
        order
    }

    /// Those that are taken from the first, perhaps itself.
    fn others(&self) -> Vec<usize> {
        let mut others = self.places[1..].to_vec();
        others.sort_unstable();
        others.dedup();
        others
    }
}

/// Looks up every key, as commands do that use it; another type is an error. Returns the sets' sizes.
fn look<'k>(ctx: &mut Ctx, keys: impl Iterator<Item = &'k [u8]>) -> Result<Vec<usize>> {
    keys.map(|bytes| {
        let key = ctx.other_key(bytes);
        match ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) {
            None => Ok(0),
            Some(live) if !matches!(live.kind(), Kind::Zset | Kind::Set) => Err(Error::WrongType),
            Some(live) => Ok(Source::of(live.content(), live.now_ms()).len()),
        }
    })
    .collect()
}

/// The set under a key that was looked up, an empty one where there is none.
fn source<'s>(keyspace: &'s Keyspace, db: usize, now: Now, key: &[u8]) -> Source<'s> {
    let found = keyspace.peek(db, keyspace.hasher().key(key), now);
    found.map_or(Source::EMPTY, |content| Source::of(content, now.ms))
}

fn here(ctx: &mut Ctx, request: Request, command: Command) -> Result {
    let keys = command.keys(request)?;
    let lens = look(ctx, keys.clone().map(|index| request.arg(index)))?;
    if command.purpose == Use::Store {
        let keys = keys.clone().map(|index| request.arg(index));
        keys.for_each(|key| ctx.keyspace.take_dead_elements(ctx.db, ctx.other_key(key), ctx.now));
    }
    let options = command.options(request, &keys)?;
    let named = Named::of(request, keys);
    let of_key = |index: &usize| source(ctx.keyspace, ctx.db, ctx.now, request.arg(*index));
    let sources: Vec<Source> = named.keys.iter().map(of_key).collect();
    let order = match by_size(&lens) {
        order if command.purpose == Use::Count => named.first_of_each(order),
        order => order,
    };
    let score = |place: usize, _: usize, member: &[u8]| sources[place].score(member);
    let items = match command.operation {
        Operation::Union => union(&sources, (&order, &named.places), &options),
        Operation::Inter => intersection(sources[named.places[order[0]]], (&order, &named.places), &options, score),
        Operation::Diff => difference(sources[0], &named.others(), score),
    };
    if command.purpose == Use::Store {
        let stored = store(ctx, ctx.other_key(request.arg(1)), items, command.operation.stored())?;
        ctx.reply.int(stored as i64);
    } else {
        command.reply(&mut ctx.reply, &items, &options);
    }
    Ok(())
}

async fn across(across: Across, command: Command) -> Result<Vec<u8>> {
    let request = across.request.as_request();
    let keys = command.keys(request)?;
    let gathering = Gathering::new(&across, keys.clone());
    let lens = gathering.look(keys.clone()).await?;
    let options = command.options(request, &keys)?;
    let order = by_size(&lens);
    let places = &gathering.named.places;
    let items = match command.operation {
        Operation::Inter if command.purpose == Use::Count => {
            let count = gathering.count(places[order[0]], options.limit).await;
            return Ok(across.reply(|reply| reply.int(count as i64)));
        }
        Operation::Union => {
            let sets = gathering.all().await?;
            let sources: Vec<Source> = sets.iter().map(Source::Items).collect();
            union(&sources, (&order, places), &options)
        }
        Operation::Inter => {
            let (smallest, scores) = gathering.scores_of(places[order[0]]).await?;
            intersection(Source::Items(&smallest), (&order, places), &options, |place, nth, _| scores.get(place, nth))
        }
        Operation::Diff => {
            let (first, scores) = gathering.scores_of(0).await?;
            difference(Source::Items(&first), &gathering.named.others(), |place, nth, _| scores.get(place, nth))
        }
    };
    if command.purpose != Use::Store {
        return Ok(across.reply(|reply| command.reply(reply, &items, &options)));
    }
    let destination = request.arg(1).to_vec();
    let put = move |ctx: &mut Ctx| store(ctx, ctx.other_key(&destination), items, command.operation.stored());
    let stored = across.on(across.shard_of(request.arg(1)), put).await?;
    Ok(across.reply(|reply| reply.int(stored as i64)))
}

/// Sets on several shards. All keys are held, so that the steps see the same sets.
struct Gathering<'a> {
    across: &'a Across,
    request: Arc<OwnedRequest>,
    named: Named,
    shards: Vec<usize>,
}

/// The scores that sets know for the members of another one, by the place of the set.
struct Scores {
    columns: Vec<Column>,
    /// The place of the set that has the members, and these.
    own: usize,
    items: Arc<Items>,
}

/// For each member a score, not a number where the set does not have it.
type Column = Vec<f64>;

impl Scores {
    fn get(&self, place: usize, nth: usize) -> Option<f64> {
        if place == self.own {
            return Some(self.items.get(nth).1);
        }
        Some(self.columns[place][nth]).filter(|score| !score.is_nan())
    }
}

/// Members of an intersection that is counted are looked at in pieces, the first of which is small.
const FIRST_PIECE: usize = 1_000;
const PIECE_MAX: usize = 64_000;

impl Gathering<'_> {
    fn new(across: &Across, keys: Range<usize>) -> Gathering<'_> {
        let request = Arc::new(across.request.clone());
        let named = Named::of(request.as_request(), keys);
        let shards = across.shards_of(named.keys.iter().map(|index| request.as_request().arg(*index)));
        Gathering { across, request, named, shards }
    }

    fn shard_of(&self, place: usize) -> usize {
        self.across.shard_of(self.request.as_request().arg(self.named.keys[place]))
    }

    /// Does something with each of some keys on its shard; the results, of which `bytes` says how large one is, in the
    /// order of the keys.
    async fn each<R: Send + 'static>(
        &self,
        keys: Vec<usize>,
        bytes: fn(&R) -> usize,
        work: impl Fn(&mut Ctx, usize, &[u8]) -> Result<R> + Clone + Send + 'static,
    ) -> Result<Vec<R>> {
        let mut all: Vec<Option<R>> = keys.iter().map(|_| None).collect();
        let request = self.request.clone();
        let of_shard = move |ctx: &mut Ctx, shard: usize| {
            let (mut found, mut all_bytes) = (Vec::new(), 0);
            for (nth, index) in keys.into_iter().enumerate() {
                let key = request.as_request().arg(index);
                if ctx.keyspace.hasher().shard_of(ctx.other_key(key)) == shard {
                    let result = work(ctx, nth, key)?;
                    all_bytes += bytes(&result);
                    check_gathered(all_bytes, ctx.limits)?;
                    found.push((nth, result));
                }
            }
            Ok((found, all_bytes))
        };
        let mut all_bytes = 0;
        for found in self.across.on_all(&self.shards, of_shard).await {
            let (found, bytes) = found?;
            all_bytes += bytes;
            check_gathered(all_bytes, &self.across.limits)?;
            found.into_iter().for_each(|(nth, result)| all[nth] = Some(result));
        }
        Ok(all.into_iter().flatten().collect())
    }

    /// Looks all keys up; returns the sizes of the sets.
    async fn look(&self, keys: Range<usize>) -> Result<Vec<usize>> {
        let look = |ctx: &mut Ctx, _: usize, key: &[u8]| look(ctx, std::iter::once(key)).map(|lens| lens[0]);
        self.each(keys.collect(), |_| 0, look).await
    }

    async fn all(&self) -> Result<Vec<Items>> {
        let fetch =
            |ctx: &mut Ctx, _: usize, key: &[u8]| source(ctx.keyspace, ctx.db, ctx.now, key).to_items(ctx.limits);
        self.each(self.named.keys.clone(), Items::bytes, fetch).await
    }

    /// The members of one set, and the scores that the others know for them.
    async fn scores_of(&self, of: usize) -> Result<(Arc<Items>, Scores)> {
        let key = self.request.as_request().arg(self.named.keys[of]).to_vec();
        let fetch = move |ctx: &mut Ctx| source(ctx.keyspace, ctx.db, ctx.now, &key).to_items(ctx.limits);
        let items = Arc::new(self.across.on(self.shard_of(of), fetch).await?);
        let wanted = items.clone();
        let column = move |ctx: &mut Ctx, place: usize, key: &[u8]| {
            let source = source(ctx.keyspace, ctx.db, ctx.now, key);
            let score = |(member, _): (&[u8], f64)| source.score(member).unwrap_or(f64::NAN);
            Ok(if place == of { Column::new() } else { wanted.iter().map(score).collect() })
        };
        let columns = self.each(self.named.keys.clone(), |column: &Column| size_of_val(&column[..]), column).await?;
        Ok((items.clone(), Scores { columns, own: of, items }))
    }

    /// How many members of the smallest set are in all others; no more are looked for than `limit`.
    async fn count(&self, smallest: usize, limit: usize) -> usize {
        let first = self.shard_of(smallest);
        let smallest = self.named.keys[smallest];
        let (mut count, mut cursor, mut piece) = (0, 0, FIRST_PIECE);
        loop {
            let request = self.request.clone();
            let go_on = move |ctx: &mut Ctx| {
                let source = source(ctx.keyspace, ctx.db, ctx.now, request.as_request().arg(smallest));
                let mut members: Vec<Vec<u8>> = Vec::new();
                let next = source.scan(cursor, piece, |member| members.push(member.to_vec()));
                (members, next)
            };
            let (mut members, next) = self.across.on(first, go_on).await;
            for shard in self.shards.iter().copied() {
                if members.is_empty() {
                    break;
                }
                let (request, keys) = (self.request.clone(), self.named.keys.clone());
                let filter = move |ctx: &mut Ctx| {
                    let request = request.as_request();
                    let hasher = ctx.keyspace.hasher();
                    let others = keys
                        .iter()
                        .map(|index| request.arg(*index))
                        .filter(|key| *key != request.arg(smallest) && hasher.shard_of(hasher.key(key)) == shard);
                    let others: Vec<Source> = others.map(|key| source(ctx.keyspace, ctx.db, ctx.now, key)).collect();
                    members.retain(|member| others.iter().all(|other| other.score(member).is_some()));
                    members
                };
                members = self.across.on(shard, filter).await;
            }
            count += members.len();
            if next == 0 || count >= limit {
                return count.min(limit);
            }
            (cursor, piece) = (next, (piece * 2).min(PIECE_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<Vec<u8>, f64>;

    fn random_items(rng: &mut fastrand::Rng) -> Items {
        let mut items = Items::default();
        for n in 0..30 {
            if rng.bool() {
                items.push(format!("m{n}").as_bytes(), f64::from(rng.i8(..)));
            }
        }
        items
    }

    fn model(items: &Items) -> Model {
        items.iter().map(|(member, score)| (member.to_vec(), score)).collect()
    }

    /// Small whole numbers, whose sums are exact in any order.
    fn random_options(rng: &mut fastrand::Rng, sets: usize) -> Options {
        let aggregate = [Aggregate::Sum, Aggregate::Min, Aggregate::Max][rng.usize(..3)];
        let weights = (0..sets).map(|_| f64::from(rng.i8(-3..3))).collect();
        Options { weights, aggregate, with_scores: true, limit: usize::MAX }
    }

    #[test]
    fn results_are_those_of_maps() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let sets: Vec<Items> = (0..rng.usize(1..5)).map(|_| random_items(&mut rng)).collect();
            let models: Vec<Model> = sets.iter().map(model).collect();
            let options = random_options(&mut rng, sets.len());
            let order = by_size(&sets.iter().map(Items::len).collect::<Vec<_>>());
            let score = |place: usize, _: usize, member: &[u8]| models[place].get(member).copied();
            let sources: Vec<Source> = sets.iter().map(Source::Items).collect();
            let places: Vec<usize> = (0..sets.len()).collect();
            let others = &places[1..];
            let in_order = (&order[..], &places[..]);
            let mut all = Model::new();
            for (model, weight) in models.iter().zip(&options.weights) {
                for (member, score) in model {
                    let score = score * weight;
                    let sum = all.get(member).map_or(score, |sum| options.aggregate.of(*sum, score));
                    all.insert(member.clone(), sum);
                }
            }
            assert_eq!(model(&union(&sources, in_order, &options)), all, "seed {seed}");
            let in_all = |member: &Vec<u8>| models.iter().all(|model| model.contains_key(member));
            let common: Model = all.iter().filter(|(member, _)| in_all(member)).map(|(m, s)| (m.clone(), *s)).collect();
            assert_eq!(model(&intersection(sources[order[0]], in_order, &options, score)), common, "seed {seed}");
            let limited = Options { limit: 3, ..options };
            assert_eq!(intersection(sources[order[0]], in_order, &limited, score).len(), common.len().min(3));
            let mut rest = models[0].clone();
            rest.retain(|member, _| !models[1..].iter().any(|model| model.contains_key(member)));
            assert_eq!(model(&difference(sources[0], others, score)), rest, "seed {seed}");
        }
    }

    #[test]
    fn what_is_not_a_number_is_zero() {
        let mut items = Items::default();
        items.push(b"a", f64::INFINITY);
        let mut others = Items::default();
        others.push(b"a", f64::NEG_INFINITY);
        let sources = [Source::Items(&items), Source::Items(&others)];
        let options = |weights: [f64; 2]| {
            let weights = weights.to_vec();
            Options { weights, aggregate: Aggregate::Sum, with_scores: true, limit: usize::MAX }
        };
        assert_eq!(union(&sources, (&[0, 1], &[0, 1]), &options([1.0, 1.0])).get(0), (&b"a"[..], 0.0));
        assert_eq!(union(&sources, (&[0, 1], &[0, 1]), &options([0.0, 1.0])).get(0), (&b"a"[..], f64::NEG_INFINITY));
    }
}
