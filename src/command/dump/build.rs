//! Values built from what the codec says they hold, in the forms that commands would have given them.

use super::{Wall, streams};
use crate::command::streams::chunk_limits;
use crate::command::zsets::Items;
use crate::config::Limits;
use crate::keyspace::{Kind, NEVER_MS, Owned};
use crate::rdb::stream;
use crate::rdb::{EntryTexts, Error, Reader, Result, Sink, decode};
use crate::value::hash::{self, Field};
use crate::value::list::{End, Limit, packed as packed_list};
use crate::value::number::I64_TEXT_BYTES_MAX;
use crate::value::pack::{COUNT_MAX, Element, has_room};
use crate::value::set::{self, Set};
use crate::value::stream::{Id, RunTexts};
use std::collections::HashSet;

/// What was in a payload, or in a file.
pub struct Built {
    /// None where all that is in it is dead.
    pub value: Option<Owned>,
    /// Elements were left out, since they are dead.
    pub is_thinned: bool,
}

/// The value in a payload, or of a file.
pub fn build(value: &[u8], limits: &Limits, wall: Wall) -> Result<Built> {
    let mut builder = Builder { limits, wall, gathered: None };
    decode(&mut Reader::new(value, limits.string_bytes), &mut builder)?;
    let has_dead = |deadlines: &[u64]| deadlines.iter().any(|deadline_ms| *deadline_ms < wall.now_ms());
    let (value, is_thinned) = match builder.gathered {
        None => (None, false),
        Some(Gathered::String(value)) => (Some(value), false),
        Some(Gathered::List(elements)) => (Some(list(&elements, limits)), false),
        Some(Gathered::Set(members)) => (set(&members, limits, wall)?, has_dead(&members.deadlines)),
        Some(Gathered::Zset(scored)) => {
            let has_dead = has_dead(&scored.deadlines);
            (zset(scored, limits, wall)?, has_dead)
        }
        Some(Gathered::Hash(fields)) => (hash(&fields, limits, wall)?, has_dead(&fields.deadlines)),
        Some(Gathered::Stream(streams)) => (Some(streams.into_value()?), false),
    };
    Ok(Built { value, is_thinned })
}

/// Gathers what a value holds. A collection's form depends on all of its elements, so that it is chosen at the end.
struct Builder<'a> {
    limits: &'a Limits,
    wall: Wall,
    gathered: Option<Gathered>,
}

enum Gathered {
    String(Owned),
    List(Texts),
    Set(Members),
    Zset(Scored),
    Hash(Fields),
    Stream(streams::Gathered),
}

/// Texts in one run of bytes.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

#[derive(Default)]
struct Members {
    texts: Texts,
    /// Of each member, in store time.
    deadlines: Vec<u64>,
}

#[derive(Default)]
struct Scored {
    items: Items,
    /// Of each member, in store time.
    deadlines: Vec<u64>,
}

/// Names and values alternate.
#[derive(Default)]
struct Fields {
    texts: Texts,
    /// Of each field, in store time.
    deadlines: Vec<u64>,
}

impl Texts {
    fn push(&mut self, element: Element) {
        self.bytes.extend_from_slice(element.text(&mut [0; I64_TEXT_BYTES_MAX]));
        self.ends.push(self.bytes.len());
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator + Clone {
        (0..self.ends.len()).map(|index| self.get(index))
    }
}

/// The macro's arms differ in the variant alone: the collection of this kind, a new one at first.
macro_rules! gathered {
    ($builder:ident, $kind:ident) => {
        match $builder.gathered.get_or_insert_with(|| Gathered::$kind(Default::default())) {
            Gathered::$kind(gathered) => gathered,
            _ => unreachable!("a value is of one kind"),
        }
    };
}

impl Sink for Builder<'_> {
    fn string(&mut self, value: Element) {
        self.gathered = Some(Gathered::String(match value {
            Element::Int(n) => Owned::Int(n),
            Element::Bytes(bytes) => Owned::Bytes { bytes: bytes.to_vec(), raw: false },
        }));
    }

    fn element(&mut self, element: Element) {
        gathered!(self, List).push(element);
    }

    fn member(&mut self, member: Element, deadline_ms: Option<u64>) {
        let members = gathered!(self, Set);
        members.texts.push(member);
        members.deadlines.push(deadline_ms.map_or(NEVER_MS, |wall_ms| self.wall.to_store_ms(wall_ms)));
    }

    fn scored(&mut self, member: Element, score: f64, deadline_ms: Option<u64>) {
        let scored = gathered!(self, Zset);
        scored.items.push_element(member, score);
        scored.deadlines.push(deadline_ms.map_or(NEVER_MS, |wall_ms| self.wall.to_store_ms(wall_ms)));
    }

    fn field(&mut self, field: Element, value: Element, deadline_ms: Option<u64>) {
        let fields = gathered!(self, Hash);
        fields.texts.push(field);
        fields.texts.push(value);
        fields.deadlines.push(deadline_ms.map_or(NEVER_MS, |wall_ms| self.wall.to_store_ms(wall_ms)));
    }

    fn run(&mut self, fields: &[Element]) {
        gathered!(self, Stream).run(fields);
    }

    fn entry(&mut self, id: Id, texts: EntryTexts) {
        let limits = chunk_limits(self.limits);
        let own = |elements: &[Element]| {
            let mut texts = Texts::default();
            elements.iter().for_each(|element| texts.push(*element));
            texts
        };
        let stream = gathered!(self, Stream);
        match texts {
            EntryTexts::Values(values) => stream.entry(id, RunTexts::Values(own(values).iter()), limits),
            EntryTexts::Pairs(pairs) => stream.entry(id, RunTexts::Pairs(own(pairs).iter()), limits),
        }
    }

    fn stream(&mut self, stream: stream::Stream) {
        let wall = self.wall;
        gathered!(self, Stream).finish(stream, wall);
    }
}

const TWICE: Error = Error::Corrupt("something is there twice");

fn check_different<'a>(texts: impl ExactSizeIterator<Item = &'a [u8]>) -> Result {
    let mut seen = HashSet::with_capacity(texts.len());
    let mut texts = texts;
    if texts.all(|text| seen.insert(text)) { Ok(()) } else { Err(TWICE) }
}

fn list(elements: &Texts, limits: &Limits) -> Owned {
    let limit = Limit::configured(limits);
    match packed_list::Form::of(elements.iter(), End::Back, limit) {
        packed_list::Form::Packed(bytes) => Owned::Packed { kind: Kind::List, marked: false, bytes: bytes.into_vec() },
        packed_list::Form::Node(list) => Owned::node(list),
    }
}

fn set(members: &Members, limits: &Limits, wall: Wall) -> Result<Option<Owned>> {
    let Members { texts, deadlines } = members;
    if deadlines.iter().any(|deadline_ms| *deadline_ms < NEVER_MS) {
        return set_with_deadlines(members, wall);
    }
    let mut form = set::Form::for_members(texts.get(0), texts.ends.len(), limits);
    if !texts.iter().all(|member| form.insert(member, limits)) {
        return Err(TWICE);
    }
    Ok(Some(match form {
        set::Form::Packed { bytes, marked } => Owned::Packed { kind: Kind::Set, marked, bytes: bytes.into_vec() },
        set::Form::Node(set) => Owned::node(set),
    }))
}

fn set_with_deadlines(members: &Members, wall: Wall) -> Result<Option<Owned>> {
    check_different(members.texts.iter())?;
    let mut set = Set::default();
    for (member, deadline_ms) in members.texts.iter().zip(&members.deadlines) {
        if *deadline_ms >= wall.now_ms() {
            set.insert(member);
            if *deadline_ms < NEVER_MS {
                set.members.set_deadline(member, Some(*deadline_ms), wall.now_ms());
            }
        }
    }
    Ok((!set.members.is_empty()).then(|| Owned::node(set)))
}

fn zset(scored: Scored, limits: &Limits, wall: Wall) -> Result<Option<Owned>> {
    let Scored { items, deadlines } = scored;
    check_different(items.iter().map(|(member, _)| member))?;
    if deadlines.iter().all(|deadline_ms| *deadline_ms == NEVER_MS) {
        return Ok(Some(items.into_value(limits.zset)));
    }
    let (mut alive, mut dated) = (Items::default(), Vec::new());
    for ((member, score), deadline_ms) in items.iter().zip(deadlines) {
        if deadline_ms >= wall.now_ms() {
            alive.push(member, score);
            dated.extend((deadline_ms < NEVER_MS).then_some((member, deadline_ms)));
        }
    }
    if alive.is_empty() {
        return Ok(None);
    }
    let mut zset = alive.into_zset();
    dated.into_iter().for_each(|(member, at_ms)| zset.set_deadline(member, Some(at_ms), wall.now_ms()));
    Ok(Some(Owned::node(zset)))
}

fn hash(fields: &Fields, limits: &Limits, wall: Wall) -> Result<Option<Owned>> {
    let texts = &fields.texts;
    check_different(texts.iter().step_by(2))?;
    let all = fields.deadlines.iter().enumerate().map(|(index, deadline_ms)| Field {
        name: Element::of(texts.get(2 * index)),
        value: Element::of(texts.get(2 * index + 1)),
        deadline_ms: *deadline_ms,
    });
    let alive = all.filter(|field| !field.is_dead(wall.now_ms()));
    let count = alive.clone().count();
    if count == 0 {
        return Ok(None);
    }
    let longest = texts.iter().map(<[u8]>::len).max().unwrap_or(0);
    let is_short = count <= limits.hash.entries.min(COUNT_MAX) && longest <= limits.hash.value_bytes;
    Ok(Some(if is_short && has_room(texts.bytes.len(), 0) {
        let (bytes, marked) = hash::packed(alive);
        Owned::Packed { kind: Kind::Hash, marked, bytes: bytes.into_vec() }
    } else {
        Owned::node(hash::unpacked(alive, wall.now_ms()))
    }))
}
