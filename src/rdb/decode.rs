//! Reading values.

use super::read::Reader;
use super::sink::Sink;
use super::stream;
use super::{Error, Result, container, intset, kind, listpack, ziplist, zipmap};
use crate::value::number::parse_f64;
use crate::value::pack::Element;

/// The latest deadline of a field that Redis 7.4 takes.
const DEADLINE_MS_MAX: u64 = (1 << 48) - 2;

/// Reads one value, its type first.
pub fn decode(reader: &mut Reader, sink: &mut impl Sink) -> Result {
    match reader.byte()? {
        kind::STRING => reader.text().map(|text| sink.string(text.element())),
        kind::LIST => each(reader, |reader| reader.text().map(|text| sink.element(text.element()))),
        kind::SET => each(reader, |reader| reader.text().map(|text| sink.member(text.element(), None))),
        kind::ZSET => each(reader, |reader| scored(sink, reader.text()?.element(), reader.f64_in_decimal()?, None)),
        kind::ZSET_2 => each(reader, |reader| scored(sink, reader.text()?.element(), reader.f64()?, None)),
        kind::HASH => each(reader, |reader| {
            sink.field(reader.text()?.element(), reader.text()?.element(), None);
            Ok(())
        }),
        kind::HASH_ZIPMAP => zipmap(&reader.blob()?, sink),
        kind::LIST_ZIPLIST => elements(ziplist::Elements::of(&reader.blob()?)?, sink).and_then(not_empty),
        kind::LIST_QUICKLIST => quicklist(reader, false, sink),
        kind::LIST_QUICKLIST_2 => quicklist(reader, true, sink),
        kind::SET_METADATA => {
            let earliest_ms = reader.time_ms()?;
            each(reader, |reader| {
                let deadline_ms = deadline(reader, Some(earliest_ms))?;
                sink.member(reader.text()?.element(), deadline_ms);
                Ok(())
            })
        }
        kind::ZSET_METADATA => {
            let earliest_ms = reader.time_ms()?;
            each(reader, |reader| {
                let deadline_ms = deadline(reader, Some(earliest_ms))?;
                scored(sink, reader.text()?.element(), reader.f64()?, deadline_ms)
            })
        }
        kind::SET_INTSET => members(intset::integers(&reader.blob()?)?.map(|n| n.map(Element::Int)), sink),
        kind::SET_LISTPACK => members(listpack::Elements::of(&reader.blob()?)?, sink),
        kind::ZSET_ZIPLIST => scores(ziplist::Elements::of(&reader.blob()?)?, sink),
        kind::ZSET_LISTPACK => scores(listpack::Elements::of(&reader.blob()?)?, sink),
        kind::HASH_ZIPLIST => fields(ziplist::Elements::of(&reader.blob()?)?, sink),
        kind::HASH_LISTPACK => fields(listpack::Elements::of(&reader.blob()?)?, sink),
        kind::HASH_METADATA_PRE_GA => each(reader, |reader| field_with_deadline(reader, None, sink)),
        kind::HASH_METADATA => {
            let earliest_ms = reader.time_ms()?;
            each(reader, |reader| field_with_deadline(reader, Some(earliest_ms), sink))
        }
        kind::HASH_OF_VALKEY => each(reader, |reader| {
            let (field, value) = (reader.text()?, reader.text()?);
            let deadline_ms = match i64::from_le_bytes(reader.array()?) {
                -1 => None,
                deadline => Some(u64::try_from(deadline).ok().filter(|ms| *ms <= DEADLINE_MS_MAX).ok_or(LATE)?),
            };
            sink.field(field.element(), value.element(), deadline_ms);
            Ok(())
        }),
        kind::HASH_LISTPACK_EX_PRE_GA => fields_by_deadline(&reader.blob()?, sink),
        kind::HASH_LISTPACK_EX => {
            // The earliest deadline, which is among the fields, too.
            reader.time_ms()?;
            fields_by_deadline(&reader.blob()?, sink)
        }
        kind::STREAM_LISTPACKS => stream::decode(reader, stream::Version::One, sink),
        kind::STREAM_LISTPACKS_2 => stream::decode(reader, stream::Version::Two, sink),
        kind::STREAM_LISTPACKS_3 => stream::decode(reader, stream::Version::Three, sink),
        _ => Err(Error::Corrupt("a type of values")),
    }
}

/// As many times as the number that comes first says, once at least.
fn each<'a>(reader: &mut Reader<'a>, mut read: impl FnMut(&mut Reader<'a>) -> Result) -> Result {
    let count = reader.len()?;
    (0..count).try_for_each(|_| read(reader)).and_then(|()| not_empty(count))
}

fn not_empty(count: u64) -> Result {
    if count == 0 { Err(Error::Empty) } else { Ok(()) }
}

fn scored(sink: &mut impl Sink, member: Element, score: f64, deadline_ms: Option<u64>) -> Result {
    if score.is_nan() {
        return Err(Error::Corrupt("a score is not a number"));
    }
    sink.scored(member, score, deadline_ms);
    Ok(())
}

/// Returns how many there were.
fn elements<'a>(elements: impl Iterator<Item = Result<Element<'a>>>, sink: &mut impl Sink) -> Result<u64> {
    let mut count = 0;
    for element in elements {
        sink.element(element?);
        count += 1;
    }
    Ok(count)
}

fn quicklist(reader: &mut Reader, with_containers: bool, sink: &mut impl Sink) -> Result {
    let mut count = 0;
    each(reader, |reader| {
        let container = if with_containers { reader.len()? } else { container::PACKED };
        let node = reader.blob()?;
        count += match container {
            container::PLAIN if node.is_empty() => return Err(Error::Corrupt("a node of a list")),
            container::PLAIN => {
                sink.element(Element::of(&node));
                1
            }
            container::PACKED if with_containers => elements(listpack::Elements::of(&node)?, sink)?,
            container::PACKED => elements(ziplist::Elements::of(&node)?, sink)?,
            _ => return Err(Error::Corrupt("a node of a list")),
        };
        Ok(())
    })?;
    not_empty(count)
}

fn members<'a>(mut members: impl Iterator<Item = Result<Element<'a>>>, sink: &mut impl Sink) -> Result {
    let mut count = 0;
    members.try_for_each(|member| {
        count += 1;
        sink.member(member?, None);
        Ok(())
    })?;
    not_empty(count)
}

fn zipmap(zipmap: &[u8], sink: &mut impl Sink) -> Result {
    zipmap::Pairs::of(zipmap)?.try_for_each(|pair| {
        let (field, value) = pair?;
        sink.field(Element::of(field), Element::of(value), None);
        Ok(())
    })
}

/// Takes elements in groups of N.
fn groups<'a, const N: usize>(
    mut elements: impl Iterator<Item = Result<Element<'a>>>,
    mut take: impl FnMut([Element<'a>; N]) -> Result,
) -> Result {
    let mut count = 0;
    while let Some(first) = elements.next() {
        let mut group = [first?; N];
        for item in &mut group[1..] {
            *item = elements.next().ok_or(Error::Corrupt("an element is missing"))??;
        }
        take(group)?;
        count += 1;
    }
    not_empty(count)
}

fn scores<'a>(elements: impl Iterator<Item = Result<Element<'a>>>, sink: &mut impl Sink) -> Result {
    groups(elements, |[member, score]| {
        let score = match score {
            Element::Int(n) => n as f64,
            Element::Bytes(text) => parse_f64(text).ok_or(Error::Corrupt("a score"))?,
        };
        scored(sink, member, score, None)
    })
}

fn fields<'a>(elements: impl Iterator<Item = Result<Element<'a>>>, sink: &mut impl Sink) -> Result {
    groups(elements, |[field, value]| {
        sink.field(field, value, None);
        Ok(())
    })
}

/// A deadline that stands before what has it: 0 for none, else absolute, or relative to the earliest and one more.
fn deadline(reader: &mut Reader, earliest_ms: Option<u64>) -> Result<Option<u64>> {
    let deadline_ms = match (reader.len()?, earliest_ms) {
        (0, _) => None,
        (absolute, None) => Some(absolute),
        (relative, Some(earliest)) => Some(earliest.checked_add(relative - 1).ok_or(LATE)?),
    };
    if deadline_ms.is_some_and(|deadline| deadline > DEADLINE_MS_MAX) {
        return Err(LATE);
    }
    Ok(deadline_ms.filter(|deadline| *deadline > 0))
}

/// A field and its value behind its deadline.
fn field_with_deadline(reader: &mut Reader, earliest_ms: Option<u64>, sink: &mut impl Sink) -> Result {
    let deadline_ms = deadline(reader, earliest_ms)?;
    sink.field(reader.text()?.element(), reader.text()?.element(), deadline_ms);
    Ok(())
}

const LATE: Error = Error::Corrupt("a deadline");

/// Fields, values and deadlines, those without (0) behind all others, which are in order.
fn fields_by_deadline(listpack: &[u8], sink: &mut impl Sink) -> Result {
    let mut before = Some(0);
    groups(listpack::Elements::of(listpack)?, |[field, value, deadline]| {
        let deadline_ms = match u64::try_from(listpack::int(deadline)?) {
            Ok(0) => None,
            Ok(deadline) if deadline <= DEADLINE_MS_MAX => Some(deadline),
            _ => return Err(LATE),
        };
        if deadline_ms.is_some() && before.is_none_or(|before| Some(before) > deadline_ms) {
            return Err(LATE);
        }
        before = deadline_ms;
        sink.field(field, value, deadline_ms);
        Ok(())
    })
}
