//! SORT: the elements of a list, a set or a sorted set in another order, or values whose keys they name.
//!
//! ```text
//!  elements of the key ──> weights (the elements, or BY) ──> order, LIMIT ──> output (the elements, or GET) ──> STORE
//! ```
//!
//! Keys that BY and GET name may be anywhere, and nobody knows them before the elements are read: such a command locks
//! everything ([`Keys::name_others`]), and a coordinator goes from step to step.

mod order;

use super::hop::check_gathered;
use super::spec::flag::{COUNTED, DENY_OOM, MOVABLE_KEYS, READ, WRITE};
use super::spec::{Group, Keys, Row, Spec};
use super::strings::to_bytes;
use super::{Across, Ctx, Run};
use crate::keyspace::{Event, Kind, Owned};
use crate::resp::{Error, Reply, Request, Result};
use crate::value::list::packed::Form;
use crate::value::list::{self, Direction, End};
use crate::value::number::I64_TEXT_BYTES_MAX;
use crate::value::pack::Element;
use crate::value::{set, zset};
use order::{Pattern, Texts, Weights, shown};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

pub const ROWS: &[Row<Run>] = &[
    Row::new(
        Spec {
            name: "sort",
            arity: -2,
            flags: WRITE | COUNTED | DENY_OOM | MOVABLE_KEYS,
            keys: Keys::SORT,
            group: Group::Generic,
            since: "1.0.0",
            complexity: "O(n + m log m) in the numbers of elements and of those returned",
            summary: "Returns or stores the elements of a list, a set or a sorted set in order.",
            syntax: "key [BY pattern:pattern] [LIMIT offset_count:(offset:integer count:integer)] \
                     [GET pattern:pattern]... [order:(ASC|DESC)] [ALPHA sorting:pure-token] [STORE destination:key]",
        },
        Run::Atomic(|ctx, request| sort_here(ctx, request, false), |across| Box::pin(sort_across(across, false))),
    ),
    Row::new(
        Spec {
            name: "sort_ro",
            arity: -2,
            flags: READ | MOVABLE_KEYS,
            keys: Keys::SORT,
            group: Group::Generic,
            since: "7.0.0",
            complexity: "O(n + m log m) in the numbers of elements and of those returned",
            summary: "Returns the elements of a list, a set or a sorted set in order.",
            syntax: "key [BY pattern:pattern] [LIMIT offset_count:(offset:integer count:integer)] \
                     [GET pattern:pattern]... [order:(ASC|DESC)] [ALPHA sorting:pure-token]",
        },
        Run::Atomic(|ctx, request| sort_here(ctx, request, true), |across| Box::pin(sort_across(across, true))),
    ),
];

/// What SORT is asked for.
struct Sort<'r> {
    descending: bool,
    alpha: bool,
    limit: Option<(i64, i64)>,
    by: Option<Pattern<'r>>,
    gets: Vec<Pattern<'r>>,
    store: Option<&'r [u8]>,
    /// A script asks.
    in_script: bool,
}

impl<'r> Sort<'r> {
    fn parse(request: Request<'r>, (read_only, in_script): (bool, bool)) -> Result<Sort<'r>> {
        let (gets, store) = (Vec::new(), None);
        let mut sort = Sort { descending: false, alpha: false, limit: None, by: None, gets, store, in_script };
        let mut index = 2;
        while index < request.len() {
            let more = request.len() - index - 1;
            match &request.arg(index).to_ascii_lowercase()[..] {
                b"asc" => sort.descending = false,
                b"desc" => sort.descending = true,
                b"alpha" => sort.alpha = true,
                b"limit" if more >= 2 => {
                    sort.limit = Some((request.int(index + 1)?, request.int(index + 2)?));
                    index += 2;
                }
                b"store" if more >= 1 && !read_only => {
                    sort.store = Some(request.arg(index + 1));
                    index += 1;
                }
                b"by" if more >= 1 => {
                    // A pattern without a star turns sorting off for good, as in Redis.
                    if sort.by != Some(Pattern::Constant) {
                        sort.by = Some(Pattern::of(request.arg(index + 1)));
                    }
                    index += 1;
                }
                b"get" if more >= 1 => {
                    sort.gets.push(Pattern::of(request.arg(index + 1)));
                    index += 1;
                }
                _ => return Err(Error::Syntax),
            }
            index += 1;
        }
        Ok(sort)
    }

    /// How the elements of this type are put in order. A set has no order of its own to store, nor for a script to go by.
    fn order_of(&self, kind: Kind) -> By<'r> {
        match self.by {
            None => By::Elements { alpha: self.alpha },
            Some(pattern) if pattern.names_keys() => By::Keys(pattern),
            Some(_) if kind == Kind::Set && (self.store.is_some() || self.in_script) => By::Elements { alpha: true },
            Some(_) => By::Nothing,
        }
    }
}

#[derive(Clone, Copy)]
enum By<'r> {
    Nothing,
    Elements { alpha: bool },
    Keys(Pattern<'r>),
}

/// What was read of the key.
struct Elements {
    kind: Kind,
    texts: Texts,
    /// Which of them, once they are in order.
    shown: Range<usize>,
}

impl Elements {
    fn push(&mut self, element: Element) {
        self.texts.push(element.text(&mut [0; I64_TEXT_BYTES_MAX]));
    }
}

/// Reads the elements of the first key. Of a list or a sorted set that stays in its own order, only those that are shown,
/// from its end where the order is descending.
fn read_elements(ctx: &mut Ctx, request: Request, sort: &Sort) -> Result<Elements> {
    let key = ctx.other_key(request.arg(1));
    let mut read = Elements { kind: Kind::List, texts: Texts::default(), shown: 0..0 };
    let Some(live) = ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch) else { return Ok(read) };
    read.kind = live.kind();
    let keeps_order = matches!(sort.order_of(read.kind), By::Nothing);
    match read.kind {
        Kind::List => {
            let view = list::View::of(live.content());
            let (first, direction, count) = match shown(view.len(), sort.limit) {
                _ if !keeps_order => (0, Direction::Forward, view.len()),
                shown if sort.descending => {
                    (view.len().saturating_sub(1 + shown.start), Direction::Backward, shown.len())
                }
                shown => (shown.start, Direction::Forward, shown.len()),
            };
            view.some(first, direction, count, |element| read.push(element));
        }
        Kind::Set => set::View::of(live.content(), live.now_ms()).iter().for_each(|element| read.push(element)),
        Kind::Zset => {
            let view = zset::View::of(live.content(), live.now_ms());
            let ranks = match shown(view.len(), sort.limit) {
                _ if !keeps_order => 0..view.len(),
                shown if sort.descending => view.len() - shown.end..view.len() - shown.start,
                shown => shown,
            };
            view.walk(ranks, keeps_order && sort.descending, |element, _| {
                read.push(element);
                ControlFlow::Continue(())
            });
        }
        _ => return Err(Error::WrongType),
    }
    let is_cut = keeps_order && read.kind != Kind::Set;
    read.shown = shown(read.texts.len(), sort.limit.filter(|_| !is_cut));
    Ok(read)
}

/// The value of a key, or of a field of it, as text.
fn value_of(ctx: &mut Ctx, bytes: &[u8], field: Option<&[u8]>) -> Option<Vec<u8>> {
    let key = ctx.other_key(bytes);
    let live = ctx.keyspace.find(ctx.db, key, ctx.now, ctx.touch)?;
    match (live.kind(), field) {
        (Kind::String, None) => Some(to_bytes(live.value())),
        (Kind::Hash, Some(name)) => {
            let field = super::hashes::view(&live).get(name)?;
            (!field.is_dead(ctx.now.ms)).then(|| field.value.to_vec())
        }
        _ => None,
    }
}

/// A column of values: one for each element, in some order.
type Column = Vec<Option<Vec<u8>>>;

fn column_here(
    ctx: &mut Ctx,
    pattern: Pattern,
    elements: &Texts,
    order: impl ExactSizeIterator<Item = usize>,
) -> Result<Column> {
    let (mut column, mut bytes) = (Column::with_capacity(order.len()), 0);
    for index in order {
        let value = pattern.key_of(elements.get(index)).and_then(|(key, field)| value_of(ctx, &key, field));
        bytes += value.as_ref().map_or(0, Vec::len);
        check_gathered(bytes, ctx.limits)?;
        column.push(value);
    }
    Ok(column)
}

/// A value that is wanted, or found: its column, its row, and its key, or the value.
type Wanted = (usize, usize, Vec<u8>);

/// The same for several patterns, where the keys are: each shard is asked once.
async fn columns_across(
    across: &Across,
    patterns: &[Pattern<'_>],
    elements: &Texts,
    order: &[usize],
) -> Result<Vec<Column>> {
    let mut wanted: Vec<Vec<Wanted>> = vec![Vec::new(); across.hop.shards()];
    let mut fields: Vec<Option<Vec<u8>>> = Vec::with_capacity(patterns.len());
    for (column, pattern) in patterns.iter().enumerate() {
        for (row, index) in order.iter().enumerate() {
            if let Some((key, _)) = pattern.key_of(elements.get(*index)) {
                wanted[across.shard_of(&key)].push((column, row, key));
            }
        }
        fields.push(match pattern {
            Pattern::Key { field, .. } => field.map(<[u8]>::to_vec),
            Pattern::Element | Pattern::Constant => None,
        });
    }
    let shards: Vec<usize> = (0..wanted.len()).filter(|shard| !wanted[*shard].is_empty()).collect();
    let wanted = Arc::new((wanted, fields));
    let read = move |ctx: &mut Ctx, shard: usize| -> Result<Vec<Wanted>> {
        let (wanted, fields) = &*wanted;
        let (mut values, mut bytes) = (Vec::new(), 0);
        for (column, row, key) in &wanted[shard] {
            let Some(value) = value_of(ctx, key, fields[*column].as_deref()) else { continue };
            bytes += value.len();
            check_gathered(bytes, ctx.limits)?;
            values.push((*column, *row, value));
        }
        Ok(values)
    };
    let mut columns = vec![vec![None; order.len()]; patterns.len()];
    let mut bytes = 0;
    for found in across.on_all(&shards, read).await {
        for (column, row, value) in found? {
            bytes += value.len();
            check_gathered(bytes, &across.limits)?;
            columns[column][row] = Some(value);
        }
    }
    Ok(columns)
}

/// The elements' indexes in order, those that are shown; `weights` are the values that BY names.
fn ordered(sort: &Sort, elements: &Elements, by: By, weights: Column) -> Result<Vec<usize>> {
    let texts = &elements.texts;
    let weights = match by {
        By::Nothing => return Ok(elements.shown.clone().collect()),
        By::Elements { alpha: true } => Ok(Weights::Elements),
        By::Elements { alpha: false } => Weights::numbers(texts.iter().map(Some)),
        By::Keys(_) if sort.alpha => Ok(Weights::Texts(weights)),
        By::Keys(_) => Weights::numbers(weights.iter().map(Option::as_deref)),
    };
    let weights = weights.map_err(|_| Error::text("ERR One or more scores can't be converted into double"))?;
    let mut order = weights.order(texts, sort.descending);
    order.truncate(elements.shown.end);
    order.drain(..elements.shown.start);
    Ok(order)
}

/// What SORT gives: the elements, or a row for each with what GET names.
struct Output<'r> {
    sort: Sort<'r>,
    texts: Texts,
    order: Vec<usize>,
    /// The values of each GET that names keys, in order.
    columns: Vec<Column>,
}

impl Output<'_> {
    fn len(&self) -> usize {
        self.order.len() * self.sort.gets.len().max(1)
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = Option<&[u8]>> + Clone {
        let width = self.sort.gets.len().max(1);
        (0..self.len()).map(move |at| {
            let (row, column) = (at / width, at % width);
            match self.sort.gets.get(column) {
                None | Some(Pattern::Element) => Some(self.texts.get(self.order[row])),
                Some(_) => self.columns[column][row].as_deref(),
            }
        })
    }

    fn reply(&self, reply: &mut Reply) {
        reply.array(self.len());
        for text in self.iter() {
            match text {
                Some(text) => reply.bulk(text),
                None => reply.nil(),
            }
        }
    }

    /// As STORE keeps it: what is missing is empty.
    fn texts(&self) -> Texts {
        let mut texts = Texts::default();
        self.iter().for_each(|text| texts.push(text.unwrap_or_default()));
        texts
    }
}

/// Puts a result where it belongs; returns its length.
fn store(ctx: &mut Ctx, bytes: &[u8], texts: &Texts) -> Result<i64> {
    let key = ctx.other_key(bytes);
    if texts.len() == 0 {
        if ctx.keyspace.remove(ctx.db, key, ctx.now) {
            ctx.commit_deletion(key);
        }
        return Ok(0);
    }
    ctx.check_deadline(bytes, false)?;
    let limit = list::Limit::configured(ctx.limits);
    let value = match Form::of(texts.iter(), End::Back, limit) {
        Form::Packed(packed) => Owned::Packed { kind: Kind::List, marked: false, bytes: packed.into_vec() },
        Form::Node(list) => Owned::node(list),
    };
    ctx.keyspace.insert_owned(ctx.db, key, value, None, ctx.now);
    ctx.commit(key, Event::SortStore);
    // Equal elements, and those of a set, are in an order that nothing says.
    ctx.propagate_state(key);
    Ok(texts.len() as i64)
}

fn sort_here(ctx: &mut Ctx, request: Request, read_only: bool) -> Result {
    let sort = Sort::parse(request, (read_only, ctx.in_script))?;
    if sort.store.is_some() {
        ctx.keyspace.take_dead_elements(ctx.db, ctx.other_key(request.arg(1)), ctx.now);
    }
    let elements = read_elements(ctx, request, &sort)?;
    let by = sort.order_of(elements.kind);
    let weights = match by {
        By::Keys(pattern) => column_here(ctx, pattern, &elements.texts, 0..elements.texts.len())?,
        _ => Column::new(),
    };
    let order = ordered(&sort, &elements, by, weights)?;
    let mut column = |pattern: &Pattern| column_here(ctx, *pattern, &elements.texts, order.iter().copied());
    let columns = sort.gets.iter().map(&mut column).collect::<Result<_>>()?;
    let output = Output { sort, texts: elements.texts, order, columns };
    match output.sort.store {
        None => output.reply(&mut ctx.reply),
        Some(target) => {
            let len = store(ctx, target, &output.texts())?;
            ctx.reply.int(len);
        }
    }
    Ok(())
}

async fn sort_across(across: Across, read_only: bool) -> Result<Vec<u8>> {
    let request = Arc::new(across.request.clone());
    let how = (read_only, across.in_script);
    let sort = Sort::parse(request.as_request(), how)?;
    let read = {
        let request = request.clone();
        move |ctx: &mut Ctx| {
            let request = request.as_request();
            read_elements(ctx, request, &Sort::parse(request, how)?)
        }
    };
    let elements = across.on(across.shard_of(request.as_request().arg(1)), read).await?;
    let by = sort.order_of(elements.kind);
    let weights = match by {
        By::Keys(pattern) => {
            let all: Vec<usize> = (0..elements.texts.len()).collect();
            columns_across(&across, &[pattern], &elements.texts, &all).await?.swap_remove(0)
        }
        _ => Column::new(),
    };
    let order = ordered(&sort, &elements, by, weights)?;
    let columns = columns_across(&across, &sort.gets, &elements.texts, &order).await?;
    let output = Output { sort, texts: elements.texts, order, columns };
    let Some(target) = output.sort.store.map(<[u8]>::to_vec) else {
        return Ok(across.reply(|reply| output.reply(reply)));
    };
    let (texts, shard) = (output.texts(), across.shard_of(&target));
    let len = across.on(shard, move |ctx| store(ctx, &target, &texts)).await?;
    Ok(across.reply(|reply| reply.int(len)))
}
