//! Values built from what the codec says they hold, in the forms that commands would have given them.

use super::Wall;
use crate::config::{Limits, PackLimits};
use crate::keyspace::{Kind, NEVER_MS, Owned};
use crate::rdb::stream::Stream;
use crate::rdb::{Error, Reader, Result, Sink, StreamId, decode};
use crate::value::hash::{self, Field};
use crate::value::pack::{self, COUNT_MAX, Element};
use std::collections::HashSet;

/// Gathers what a value holds. A collection's form depends on all of its elements, so that it is chosen at the end.
pub struct Builder<'a> {
    limits: &'a Limits,
    wall: Wall<'a>,
    gathered: Option<Gathered>,
}

enum Gathered {
    String(Owned),
    Hash(Elements<2>),
}

/// Elements in groups of N, and what else belongs to each group.
#[derive(Default)]
struct Elements<const N: usize> {
    /// As a pack has them.
    bytes: Vec<u8>,
    more: Vec<u64>,
    longest: usize,
}

/// The value in a payload; none where all that is in it is dead.
pub fn build(value: &[u8], limits: &Limits, wall: Wall) -> Result<Option<Owned>> {
    let mut builder = Builder { limits, wall, gathered: None };
    decode(&mut Reader::new(value, limits.string_bytes), &mut builder)?;
    match builder.gathered {
        None => Ok(None),
        Some(Gathered::String(value)) => Ok(Some(value)),
        Some(Gathered::Hash(fields)) => hash(&fields, limits, wall),
    }
}

impl<const N: usize> Elements<N> {
    fn push(&mut self, group: [Element; N], more: u64) {
        for element in group {
            element.encode(&mut self.bytes);
            self.longest = self.longest.max(element.text_len());
        }
        self.more.push(more);
    }

    fn len(&self) -> usize {
        self.more.len()
    }

    fn iter(&self) -> impl Iterator<Item = ([Element<'_>; N], u64)> + Clone {
        let mut at = 0;
        self.more.iter().map(move |more| {
            let group = std::array::from_fn(|_| {
                let (element, next) = pack::read(&self.bytes, at);
                at = next;
                element
            });
            (group, *more)
        })
    }

    fn fits(&self, limits: PackLimits) -> bool {
        self.len() <= limits.entries.min(COUNT_MAX) && self.longest <= limits.value_bytes
    }

    /// No two groups begin with the same element.
    fn check_different(&self) -> Result {
        let mut seen = HashSet::with_capacity(self.len());
        let mut at = 0;
        let are_different = self.more.iter().all(|_| {
            let next = pack::skip(&self.bytes, at, 1);
            let first = &self.bytes[at..next];
            at = pack::skip(&self.bytes, next, N - 1);
            seen.insert(first)
        });
        if are_different { Ok(()) } else { Err(Error::Corrupt("something is there twice")) }
    }
}

fn hash(fields: &Elements<2>, limits: &Limits, wall: Wall) -> Result<Option<Owned>> {
    let all = fields.iter().map(|([name, value], deadline_ms)| Field { name, value, deadline_ms });
    let alive = all.filter(|field| !field.is_dead(wall.now.ms));
    fields.check_different()?;
    if alive.clone().next().is_none() {
        return Ok(None);
    }
    Ok(Some(if fields.fits(limits.hash) {
        let (bytes, marked) = hash::packed(alive);
        Owned::Packed { kind: Kind::Hash, marked, bytes: bytes.to_vec() }
    } else {
        Owned::node(hash::unpacked(alive, wall.now.ms))
    }))
}

impl Sink for Builder<'_> {
    fn string(&mut self, value: Element) {
        self.gathered = Some(Gathered::String(match value {
            Element::Int(n) => Owned::Int(n),
            Element::Bytes(bytes) => Owned::Bytes { bytes: bytes.to_vec(), raw: false },
        }));
    }

    fn element(&mut self, _: Element) {}

    fn member(&mut self, _: Element) {}

    fn scored(&mut self, _: Element, _: f64) {}

    fn field(&mut self, field: Element, value: Element, deadline_ms: Option<u64>) {
        let deadline_ms = deadline_ms.map_or(NEVER_MS, |wall_ms| self.wall.to_store_ms(wall_ms));
        if let Gathered::Hash(fields) = self.gathered.get_or_insert_with(|| Gathered::Hash(Elements::default())) {
            fields.push([field, value], deadline_ms);
        }
    }

    fn entry(&mut self, _: StreamId, _: &[Element]) {}

    fn stream(&mut self, _: Stream) {}
}
