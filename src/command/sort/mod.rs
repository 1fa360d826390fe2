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
use super::{Across, Ctx, Run};
use crate::config::Limits;
use crate::keyspace::{Event, Kind, Owned};
use crate::resp::{Error, Reply, Request, Result};
use crate::value::list::packed::Form;
use crate::value::list::{self, Direction, End};
use crate::value::number::I64_TEXT_BYTES_MAX;
use crate::value::pack::Element;
use crate::value::{set, zset};
use order::{Found, Pattern, Texts, Weights, bytes_to_give, bytes_to_look_up, shown};
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
        (Kind::String, None) => Some(live.value().to_vec()),
        (Kind::Hash, Some(name)) => {
            let field = super::hashes::view(&live).get(name)?;
            (!field.is_dead(ctx.now.ms)).then(|| field.value.to_vec())
        }
        _ => None,
    }
}

/// Reads values that elements name, row by row, and counts what that brings together.
struct Reading<'a> {
    /// Those that name keys.
    patterns: Vec<Pattern<'a>>,
    elements: &'a Texts,
    /// Bytes of places and values so far.
    bytes: usize,
}

/// GETs look up no more than so many bytes of keys and places, whatever is there: all others wait meanwhile.
const LOOKED_UP_BYTES_MAX: usize = 1 << 30;

impl<'a> Reading<'a> {
    /// Of weights of all elements, which are held together.
    fn weights(pattern: Pattern<'a>, elements: &'a Texts, limits: &Limits) -> Result<Reading<'a>> {
        let patterns = vec![pattern];
        check_gathered(bytes_to_look_up(&patterns, elements.len(), elements.bytes()), limits)?;
        Ok(Reading { bytes: elements.len() * size_of::<Found>(), patterns, elements })
    }

    /// Of what the GETs name for these elements, row by row.
    fn gets(sort: &Sort<'a>, elements: &'a Texts, order: &[usize], limits: &Limits) -> Result<Reading<'a>> {
        let patterns: Vec<Pattern> = sort.gets.iter().copied().filter(|pattern| pattern.names_keys()).collect();
        let looked_up_bytes = bytes_to_look_up(&patterns, order.len(), elements.bytes_of(order));
        if looked_up_bytes > LOOKED_UP_BYTES_MAX {
            check_gathered(looked_up_bytes, limits)?;
        }
        Ok(Reading { patterns, elements, bytes: 0 })
    }

    /// The values of some rows, where the keys are here: they are handed over row by row.
    fn here(
        mut self,
        ctx: &mut Ctx,
        rows: impl Iterator<Item = usize>,
        mut take: impl FnMut(&mut Ctx, usize, &mut Vec<Found>) -> Result,
    ) -> Result {
        let mut row = Vec::with_capacity(self.patterns.len());
        for index in rows {
            row.clear();
            for pattern in &self.patterns {
                let element = self.elements.get(index);
                let value = pattern.key_of(element).and_then(|(key, field)| value_of(ctx, &key, field));
                self.bytes += value.as_ref().map_or(0, Vec::len);
                check_gathered(self.bytes, ctx.limits)?;
                row.push(value);
            }
            take(ctx, index, &mut row)?;
        }
        Ok(())
    }

    /// The same where the keys are on any shard. Each shard is asked once for a portion of rows, so that keys and values
    /// do not wait here for all others, and neither do the other clients of this shard.
    async fn across(
        mut self,
        across: &Across,
        rows: &[usize],
        mut take: impl FnMut(usize, &mut Vec<Found>) -> Result,
    ) -> Result {
        let fields = self.patterns.iter().map(|pattern| match pattern {
            Pattern::Key { field, .. } => field.map(<[u8]>::to_vec),
            Pattern::Element | Pattern::Constant => None,
        });
        let fields: Arc<Vec<Option<Vec<u8>>>> = Arc::new(fields.collect());
        let width = self.patterns.len();
        let portion = if width == 0 { rows.len() } else { PORTION_CELLS.div_ceil(width) };
        for rows in rows.chunks(portion.max(1)) {
            let mut cells = self.portion(across, rows, &fields).await?.into_iter();
            let mut row = Vec::with_capacity(width);
            for index in rows {
                row.clear();
                row.extend(cells.by_ref().take(width));
                take(*index, &mut row)?;
            }
        }
        Ok(())
    }

    /// The values of a portion of rows, row by row.
    async fn portion(
        &mut self,
        across: &Across,
        rows: &[usize],
        fields: &Arc<Vec<Option<Vec<u8>>>>,
    ) -> Result<Vec<Found>> {
        let width = self.patterns.len();
        let mut wanted: Vec<Vec<Cell>> = vec![Vec::new(); across.hop.shards()];
        for (row, index) in rows.iter().enumerate() {
            for (column, pattern) in self.patterns.iter().enumerate() {
                if let Some((key, _)) = pattern.key_of(self.elements.get(*index)) {
                    wanted[across.shard_of(&key)].push((row * width + column, key));
                }
            }
        }
        let shards: Vec<usize> = (0..wanted.len()).filter(|shard| !wanted[*shard].is_empty()).collect();
        let (wanted, fields, bytes_before) = (Arc::new(wanted), fields.clone(), self.bytes);
        let read = move |ctx: &mut Ctx, shard: usize| -> Result<Vec<Cell>> {
            let (mut values, mut bytes) = (Vec::new(), bytes_before);
            for (cell, key) in &wanted[shard] {
                let Some(value) = value_of(ctx, key, fields[cell % width].as_deref()) else { continue };
                bytes += value.len();
                check_gathered(bytes, ctx.limits)?;
                values.push((*cell, value));
            }
            Ok(values)
        };
        let mut cells = vec![None; rows.len() * width];
        for found in across.on_all(&shards, read).await {
            for (cell, value) in found? {
                self.bytes += value.len();
                check_gathered(self.bytes, &across.limits)?;
                cells[cell] = Some(value);
            }
        }
        Ok(cells)
    }
}

/// So many values are asked for at once of other shards.
const PORTION_CELLS: usize = 16 * 1024;

/// A value that is wanted, or found: its place in the portion, and its key, or the value.
type Cell = (usize, Vec<u8>);

/// The elements' indexes in order, those that are shown; `weights` are the values that BY names.
fn ordered(sort: &Sort, elements: &Elements, by: By, weights: Vec<Found>) -> Result<Vec<usize>> {
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

impl Sort<'_> {
    /// How many items are returned or stored for so many elements.
    fn items(&self, rows: usize) -> usize {
        rows * self.gets.len().max(1)
    }

    /// Refuses what is going to be too long whatever the keys hold: nothing but the request bounds how often an element,
    /// or nothing at all, is asked for.
    fn check_output(&self, texts: &Texts, order: &[usize], limits: &Limits) -> Result {
        if self.gets.is_empty() {
            return Ok(());
        }
        let given_bytes = |item_bytes| bytes_to_give(&self.gets, order.len(), texts.bytes_of(order), item_bytes);
        match self.store {
            Some(_) => check_gathered(given_bytes(Texts::ITEM_BYTES), limits),
            None => check_reply(given_bytes(NIL_BYTES_MIN), limits),
        }
    }

    /// Hands over what SORT gives for an element: the element, or what each GET names, of which those that name keys have
    /// been `found`.
    fn give(&self, element: &[u8], found: &[Found], mut give: impl FnMut(Option<&[u8]>)) {
        if self.gets.is_empty() {
            return give(Some(element));
        }
        let mut found = found.iter();
        for get in &self.gets {
            give(match get {
                Pattern::Element => Some(element),
                Pattern::Constant => None,
                Pattern::Key { .. } => found.next().and_then(Option::as_deref),
            });
        }
    }

    fn reply_row(&self, reply: &mut Reply, element: &[u8], found: &[Found]) {
        self.give(element, found, |text| match text {
            Some(text) => reply.bulk(text),
            None => reply.nil(),
        });
    }

    /// As STORE keeps it: what is missing is empty.
    fn store_row(&self, texts: &mut Texts, element: &[u8], found: &[Found]) {
        self.give(element, found, |text| texts.push(text.unwrap_or_default()));
    }
}

/// What nothing takes in a reply, at least: RESP3 says it in so few bytes.
const NIL_BYTES_MIN: usize = "_\r\n".len();

/// A reply that has become too long is not written to its end.
fn check_reply(bytes: usize, limits: &Limits) -> Result {
    if bytes > limits.reply_bytes { Err(Error::OutputTooLong) } else { Ok(()) }
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
    let mut weights = Vec::new();
    if let By::Keys(pattern) = by {
        let reading = Reading::weights(pattern, &elements.texts, ctx.limits)?;
        reading.here(ctx, 0..elements.texts.len(), |_, _, row| {
            weights.append(row);
            Ok(())
        })?;
    }
    let order = ordered(&sort, &elements, by, weights)?;
    let texts = &elements.texts;
    sort.check_output(texts, &order, ctx.limits)?;
    let reading = Reading::gets(&sort, texts, &order, ctx.limits)?;
    let rows = order.iter().copied();
    let Some(target) = sort.store else {
        let begin = ctx.reply.len();
        ctx.reply.array(sort.items(order.len()));
        return reading.here(ctx, rows, |ctx, index, row| {
            sort.reply_row(&mut ctx.reply, texts.get(index), row);
            check_reply(ctx.reply.len() - begin, ctx.limits)
        });
    };
    let mut stored = Texts::default();
    reading.here(ctx, rows, |_, index, row| {
        sort.store_row(&mut stored, texts.get(index), row);
        Ok(())
    })?;
    let len = store(ctx, target, &stored)?;
    ctx.reply.int(len);
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
    let mut weights = Vec::new();
    if let By::Keys(pattern) = by {
        let all: Vec<usize> = (0..elements.texts.len()).collect();
        let reading = Reading::weights(pattern, &elements.texts, &across.limits)?;
        let keep = |_, row: &mut Vec<Found>| {
            weights.append(row);
            Ok(())
        };
        reading.across(&across, &all, keep).await?;
    }
    let order = ordered(&sort, &elements, by, weights)?;
    let texts = &elements.texts;
    sort.check_output(texts, &order, &across.limits)?;
    let reading = Reading::gets(&sort, texts, &order, &across.limits)?;
    let Some(target) = sort.store.map(<[u8]>::to_vec) else {
        let mut out = across.reply(|reply| reply.array(sort.items(order.len())));
        let reply_row = |index, row: &mut Vec<Found>| {
            sort.reply_row(&mut Reply::new(&mut out, across.proto), texts.get(index), row);
            check_reply(out.len(), &across.limits)
        };
        reading.across(&across, &order, reply_row).await?;
        return Ok(out);
    };
    let mut stored = Texts::default();
    let store_row = |index, row: &mut Vec<Found>| {
        sort.store_row(&mut stored, texts.get(index), row);
        Ok(())
    };
    reading.across(&across, &order, store_row).await?;
    let shard = across.shard_of(&target);
    let len = across.on(shard, move |ctx| store(ctx, &target, &stored)).await?;
    Ok(across.reply(|reply| reply.int(len)))
}
