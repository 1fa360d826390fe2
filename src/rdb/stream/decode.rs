//! Reading streams.

use super::super::listpack::{Elements, int};
use super::super::read::Reader;
use super::super::{EntryTexts, Error, Result, Sink};
use super::{Consumer, DELETED, Group, Pending, SAME_FIELDS, Stream, UNKNOWN};
use crate::value::pack::Element;
use crate::value::stream::Id;
use std::collections::HashSet;

/// The three types that streams had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::rdb) enum Version {
    One,
    /// Knows first, deleted and added entries.
    Two,
    /// Knows when consumers were active.
    Three,
}

const CORRUPT: Error = Error::Corrupt("a stream");

pub(in crate::rdb) fn decode(reader: &mut Reader, version: Version, sink: &mut impl Sink) -> Result {
    let mut entries = Entries::default();
    for _ in 0..reader.len()? {
        let id = id_of(&reader.blob()?)?;
        entries.node(id, &reader.blob()?, sink)?;
    }
    let (length, last_id) = (reader.len()?, id_in_lengths(reader)?);
    if length != entries.count || entries.last.is_some_and(|last| last > last_id) {
        return Err(CORRUPT);
    }
    let mut stream = Stream { last_id, entries_added: length, ..Stream::default() };
    if version >= Version::Two {
        // The first entry's, which is known.
        id_in_lengths(reader)?;
        stream.max_deleted_id = id_in_lengths(reader)?;
        stream.entries_added = reader.len()?;
    }
    for _ in 0..reader.len()? {
        stream.groups.push(group(reader, version, |read| entries.read_up_to(read, last_id))?);
    }
    different(stream.groups.iter().map(|group| &group.name))?;
    sink.stream(stream);
    Ok(())
}

fn different<'a>(mut names: impl Iterator<Item = &'a Vec<u8>>) -> Result {
    let mut seen = HashSet::new();
    if names.all(|name| seen.insert(name)) { Ok(()) } else { Err(CORRUPT) }
}

fn id_of(bytes: &[u8]) -> Result<Id> {
    let (ms, seq) = bytes.split_first_chunk().ok_or(CORRUPT)?;
    let seq = seq.try_into().map_err(|_| CORRUPT)?;
    Ok(Id { ms: u64::from_be_bytes(*ms), seq: u64::from_be_bytes(seq) })
}

fn id_in_lengths(reader: &mut Reader) -> Result<Id> {
    Ok(Id { ms: reader.len()?, seq: reader.len()? })
}

/// The entries up to here.
#[derive(Default)]
struct Entries {
    count: u64,
    first: Option<Id>,
    /// Of those that live.
    last: Option<Id>,
}

impl Entries {
    fn node(&mut self, master: Id, listpack: &[u8], sink: &mut impl Sink) -> Result {
        let mut elements = Elements::of(listpack)?;
        let (live, deleted) = (count(&mut elements)?, count(&mut elements)?);
        let names = (0..count(&mut elements)?).map(|_| elements.expect()).collect::<Result<Vec<_>>>()?;
        if elements.expect_int()? != 0 {
            return Err(CORRUPT);
        }
        sink.run(&names);
        let mut texts = Vec::new();
        let (mut live_seen, mut deleted_seen) = (0, 0);
        while let Some(flags) = elements.next() {
            let flags = int(flags?)?;
            texts.clear();
            let id = entry(&mut elements, flags, master, names.len(), &mut texts)?;
            if id < master {
                return Err(CORRUPT);
            }
            if flags & DELETED != 0 {
                // After XSETID smaller ids may follow.
                deleted_seen += 1;
            } else {
                if self.last.replace(id).is_some_and(|last| last >= id) {
                    return Err(CORRUPT);
                }
                live_seen += 1;
                self.first.get_or_insert(id);
                let shares = flags & SAME_FIELDS != 0;
                sink.entry(id, if shares { EntryTexts::Values(&texts) } else { EntryTexts::Pairs(&texts) });
            }
        }
        self.count += live_seen;
        if (live, deleted) == (live_seen, deleted_seen) { Ok(()) } else { Err(CORRUPT) }
    }

    /// What a group has read whose last ID is this, where that is certain: nothing was deleted as far as is known, and
    /// as many were added as are there.
    fn read_up_to(&self, last_read: Id, last_id: Id) -> Option<u64> {
        match self.first {
            None => Some(0),
            Some(_) if last_read == last_id => Some(self.count),
            Some(first) if last_read < first => Some(0),
            Some(first) if last_read == first => Some(1),
            Some(_) => None,
        }
    }
}

fn count(elements: &mut Elements) -> Result<u64> {
    elements.expect_int()?.try_into().map_err(|_| CORRUPT)
}

/// Reads an entry behind its flags; its values, with its fields where they are its own, go to `texts`.
fn entry<'a>(
    elements: &mut Elements<'a>,
    flags: i64,
    master: Id,
    names: usize,
    texts: &mut Vec<Element<'a>>,
) -> Result<Id> {
    let (ms, seq) = (elements.expect_int()?, elements.expect_int()?);
    let id = Id { ms: master.ms.wrapping_add_signed(ms), seq: master.seq.wrapping_add_signed(seq) };
    let mut own_elements = 3;
    if flags & SAME_FIELDS != 0 {
        for _ in 0..names {
            texts.push(elements.expect()?);
        }
        own_elements += names as u64;
    } else {
        for _ in 0..count(elements)? {
            texts.extend([elements.expect()?, elements.expect()?]);
        }
        own_elements += 1 + texts.len() as u64;
    }
    if texts.is_empty() || count(elements)? != own_elements {
        return Err(CORRUPT);
    }
    Ok(id)
}

fn group(reader: &mut Reader, version: Version, read_up_to: impl FnOnce(Id) -> Option<u64>) -> Result<Group> {
    let (name, last_id) = (reader.blob()?.into_owned(), id_in_lengths(reader)?);
    let entries_read = match version {
        Version::One => read_up_to(last_id),
        _ => Some(reader.len()?).filter(|read| *read != UNKNOWN),
    };
    let mut group = Group { name, last_id, entries_read, ..Group::default() };
    for _ in 0..reader.len()? {
        let id = id_of(reader.take(16)?)?;
        let (delivered_ms, deliveries) = (reader.time_ms()?, reader.len()?);
        group.pending.push(Pending { id, delivered_ms, deliveries, owner: NOBODY });
    }
    group.pending.sort_by_key(|pending| pending.id);
    for _ in 0..reader.len()? {
        consumer(reader, version, &mut group)?;
    }
    different(group.consumers.iter().map(|consumer| &consumer.name))?;
    // An entry that is there twice has been given to one owner at most.
    if group.pending.iter().any(|pending| pending.owner == NOBODY) { Err(CORRUPT) } else { Ok(group) }
}

/// When a consumer was active that never was.
const NEVER: u64 = u64::MAX;
/// Owner of a pending entry whose consumer was not read yet.
const NOBODY: usize = usize::MAX;

fn consumer(reader: &mut Reader, version: Version, group: &mut Group) -> Result {
    let (name, seen_ms) = (reader.blob()?.into_owned(), reader.time_ms()?);
    let active_ms =
        if version >= Version::Three { Some(reader.time_ms()?).filter(|ms| *ms != NEVER) } else { Some(seen_ms) };
    for _ in 0..reader.len()? {
        let id = id_of(reader.take(16)?)?;
        let index = group.pending.binary_search_by_key(&id, |pending| pending.id).map_err(|_| CORRUPT)?;
        let owner = &mut group.pending[index].owner;
        if std::mem::replace(owner, group.consumers.len()) != NOBODY {
            return Err(CORRUPT);
        }
    }
    group.consumers.push(Consumer { name, seen_ms, active_ms });
    Ok(())
}
