//! Streams: entries under ids that grow, and the groups that share the work of reading them.
//!
//! | file | commands |
//! |---|---|
//! | `rows.rs` | the rows |
//! | `read.rs` | XREAD, XREADGROUP, from several streams |
//! | `groups.rs` | XGROUP |
//! | `references.rs` | XDELEX, XACKDEL: entries deleted as their groups allow |
//! | `entries.rs` | XADD, XTRIM, XDEL, XSETID, XLEN, XRANGE, XREVRANGE |
//! | `pending.rs` | XACK, XPENDING, XCLAIM, XAUTOCLAIM |
//! | `info.rs` | XINFO |
//! | `handed.rs` | what the journal is told of entries that a consumer was handed |
//!
//! As in Redis, a transaction that watches a key is aborted by what happens to entries, not by what happens to groups.

mod entries;
mod groups;
mod handed;
mod info;
mod pending;
mod read;
mod references;
mod rows;

pub use entries::{chunk_limits, xadd};
pub use rows::ROWS;

use crate::clock::Now;
use crate::keyspace::{Change, Event, Key, Keyspace, Kind, Live, Touch};
use crate::resp::{Error, Reply, Result, printable};
use crate::value::number::I64_TEXT_BYTES_MAX;
use crate::value::pack::Element;
use crate::value::stream::{Entry, ID_TEXT_BYTES_MAX, Id};

/// An id, as errors go in this room.
fn parse_id(text: &[u8]) -> Result<Id> {
    Id::parse(text).map_err(Error::err)
}

fn parse_ids<'i>(texts: impl Iterator<Item = &'i [u8]>) -> Result<Vec<Id>> {
    texts.map(parse_id).collect()
}

/// The ends of an interval, both inclusive.
fn parse_interval(start: &[u8], end: &[u8]) -> Result<(Id, Id)> {
    Ok((Id::parse_start(start).map_err(Error::err)?, Id::parse_end(end).map_err(Error::err)?))
}

/// A key that holds a stream, or none; an error, where it holds something else.
#[inline]
fn find<'k>(keyspace: &'k mut Keyspace, db: usize, key: Key, now: Now, touch: Touch) -> Result<Option<Live<'k>>> {
    match keyspace.find(db, key, now, touch) {
        Some(live) if live.kind() != Kind::Stream => Err(Error::WrongType),
        found => Ok(found),
    }
}

/// What happens to groups is counted and told, but is no change to those who watch the key.
fn of_group(event: Event) -> Change {
    Change::of(event).unseen()
}

/// Store time as groups keep it.
fn now_ms(now: Now) -> i64 {
    now.ms as i64
}

fn no_group(key: &[u8], group: &[u8], context: &str) -> Error {
    let (key, group) = (printable(key, usize::MAX), printable(group, usize::MAX));
    let text = [b"NOGROUP No such key '", key, b"' or consumer group '", group, b"'", context.as_bytes()];
    Error::quoting(&text)
}

fn no_group_of_key(key: &[u8], group: &[u8]) -> Error {
    let (key, group) = (printable(key, usize::MAX), printable(group, usize::MAX));
    Error::quoting(&[b"NOGROUP No such consumer group '", group, b"' for key name '", key, b"'"])
}

#[inline]
fn reply_id(reply: &mut Reply, id: Id) {
    reply.bulk(id.format(&mut [0; ID_TEXT_BYTES_MAX]));
}

/// An entry: its id, and its fields, each followed by its value.
fn reply_entry(reply: &mut Reply, entry: Entry) {
    let pairs = entry.pairs();
    reply.array(2);
    reply_id(reply, entry.id);
    reply.array(pairs.len() * 2);
    for (field, value) in pairs {
        reply_element(reply, field);
        reply_element(reply, value);
    }
}

#[inline]
fn reply_element(reply: &mut Reply, element: Element) {
    reply.bulk(element.text(&mut [0; I64_TEXT_BYTES_MAX]));
}

fn reply_entries<'e>(reply: &mut Reply, entries: impl Iterator<Item = Entry<'e>> + Clone) {
    // Passing over entries is cheap.
    reply.array(entries.clone().count());
    entries.for_each(|entry| reply_entry(reply, entry));
}

/// COUNT, where 0 and less stand for all there are.
fn at_most(count: i64) -> usize {
    usize::try_from(count).ok().filter(|count| *count > 0).unwrap_or(usize::MAX)
}
