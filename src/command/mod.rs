//! The commands on data: one `const` table a family, one row a command, handlers and tests beside it.
//!
//! | file | family |
//! |---|---|
//! | `increx.rs` | INCREX: counters with bounds and a deadline |
//! | `fresh.rs` | GETFRESH: strings that one reader computes anew in time |
//! | `leases.rs` | LEASE: leases with fencing tokens |
//! | `pins.rs` | BLESS: keys that are never evicted |
//! | `groups/` | EXPIRY GROUP: keys that die together |
//! | `bitmaps.rs` | SETBIT, BITCOUNT, BITOP, BITFIELD: strings as bits |
//! | `hyperloglog.rs` | PFADD, PFCOUNT, PFMERGE: strings that count different elements |
//! | `throttle.rs` | CL.THROTTLE: rate limits |
//! | `multi.rs` | MSET, MGET, MSETNX, LCS: strings under several keys |
//! | `geo/` | points on the globe, in sorted sets |
//! | `lists/` | lists |
//! | `sets/` | sets |
//! | `sort/` | SORT: lists, sets and sorted sets in another order |
//! | `strings.rs` | SET, GET and all that work on one string |
//! | `keys.rs` | DEL, EXISTS, TYPE, RENAME, COPY, OBJECT: keys of any type |
//! | `memory.rs` | MEMORY USAGE |
//! | `walk.rs` | SCAN, KEYS, DBSIZE, RANDOMKEY, FLUSHALL: whole databases |
//! | `foresight.rs` | EXPIRY SCAN: keys by their deadlines |
//! | `hashes/` | HSET, HGET, ...; deadlines of fields |
//! | `table.rs` | the table: from a name to a command, and its number |
//! | `compare.rs` | what has to hold of a value before it is replaced or deleted |
//! | `governed.rs` | what expiry policies make of the keys that a command changes or uses |
//! | `deaths.rs` | deaths as entries of streams |
//! | `undo.rs` | keys as they were, to be put back |
//! | `propagate.rs`, `pieces.rs` | what the journal is told of a command; large values as commands |
//! | `grouped.rs` | what is said of groups of keys and of their members |
//! | `dump/` | DUMP and RESTORE: keys of any type, to bytes and back |
//! | `zsets/` | sorted sets |
//! | `streams/` | XADD, XREAD, XGROUP: streams and the groups that read them |
//! | `members.rs` | SEXPIRE, ZEXPIRE and their kin: what they have in common |
//! | `elements.rs` | deadlines of fields and members |
//! | `deadlines.rs` | EXPIRE, TTL and their kin |
//! | `scanning.rs` | what SCAN and its kin have in common |
//! | `blocking.rs` | what a row says of a command that waits |
//! | `hop.rs` | work on other shards, for commands of several keys |
//! | `describe.rs` | COMMAND INFO, DOCS, GETKEYS and HELP, from the rows |
//! | `spec.rs`, `syntax.rs` | the table's row type; the notation of arguments |
//!
//! A handler sees one shard ([`Ctx`]) and is synchronous. How its keys are brought together is said by its row's
//! [`Run`]; the rooms above do it. A handler writes its reply last: what returns an error has changed nothing.

pub mod bitmaps;
pub mod blocking;
mod compare;
pub mod deadlines;
pub mod deaths;
pub mod describe;
pub mod dump;
mod elements;
#[cfg(test)]
mod elements_test;
pub mod foresight;
mod fresh;
mod geo;
pub mod governed;
pub mod grouped;
pub mod groups;
mod hashes;
mod hop;
pub mod hyperloglog;
mod increx;
pub mod keys;
pub mod leases;
pub mod lists;
mod members;
pub mod memory;
pub mod multi;
mod pieces;
pub mod pins;
mod propagate;
mod scanning;
pub mod sets;
mod sort;
pub mod spec;
mod streams;
pub mod strings;
pub mod syntax;
pub mod table;
pub mod throttle;
#[cfg(test)]
mod trial;
mod undo;
pub mod walk;
mod zsets;

pub use hop::{Across, AcrossFn, Hop, Job, JobFuture, OwnedRequest, TokenFuture, each_once, without_repeats};

pub use fresh::gives_lease;
pub use undo::{Saved, other_database};

pub use table::{Command, CommandId, Found, Table};

use crate::clock::{Clock, Now};
use crate::config::Limits;
use crate::keyspace::{Change, Event, Hasher, Key, Keyspace, Touch};
use crate::resp::{Error, Proto, Reply, Request, Result};
use crate::value::pack::Element;
use spec::Row;

/// What a handler works with: one shard's keyspace, the moment, and the reply.
pub struct Ctx<'a> {
    pub keyspace: &'a mut Keyspace,
    pub db: usize,
    pub now: Now,
    pub clock: &'a Clock,
    pub rng: &'a mut fastrand::Rng,
    pub reply: Reply<'a>,
    /// The hash of the request's first key.
    pub hash: u64,
    pub limits: &'a Limits,
    /// What looking a key up leaves behind, as [`spec::Spec::touch`] says.
    pub touch: Touch,
    /// Where each item of a partial reply ends ([`Merge::Items`]).
    pub ends: &'a mut Vec<usize>,
    /// Number of shards, for cursors.
    pub shards: usize,
    /// Whether a script says the command.
    pub in_script: bool,
}

impl Ctx<'_> {
    /// The moment that relative times count from. (To a log that is replayed it is moment zero, so that no key is dead
    /// before the log says so. Its relative times, which this server writes none of, count from now, as in Redis.)
    pub fn present(&self) -> Now {
        if self.now.ms == 0 { self.clock.now() } else { self.now }
    }
}

pub type Handler = fn(&mut Ctx, Request) -> Result;

/// How a command's keys are brought together.
#[derive(Clone, Copy)]
pub enum Run {
    /// One key: the handler runs where it lives.
    Key(Handler),
    /// Several keys that are independent of each other: each shard gets a request with its own keys, in one transaction,
    /// and the partial replies are merged.
    Spread(Handler, Merge),
    /// Every shard gets the whole request, in one transaction that nothing else runs beside.
    Everywhere(Handler, Merge),
    /// The cursor says which shard goes on: the handler shows a page of that shard alone, the coordinator goes on with
    /// the next where the page is not full.
    Cursor(Handler, AcrossFn),
    /// Several keys that depend on each other: the handler where they live together, else the coordinator, which holds
    /// them.
    Atomic(Handler, AcrossFn),
    /// No key in particular: any shard can start it.
    Coordinated(AcrossFn),
    /// Waits for a key where there is nothing for it.
    Blocking(blocking::Blocking),
    /// Only groups subcommands.
    Container,
}

/// How partial replies become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Each part is an integer: their sum.
    Sum,
    /// Each part is an integer: the greatest.
    Most,
    /// Each part is OK.
    Ok,
    /// Each part is one item a key, whose ends are in [`Ctx::ends`]: an array in the order of the keys.
    Items,
    /// Each part is any number of items, likewise: an array of all.
    Concat,
}

/// All rows of this room.
pub fn rows() -> impl Iterator<Item = &'static Row<Run>> {
    let families = [
        strings::ROWS,
        increx::ROWS,
        fresh::ROWS,
        leases::ROWS,
        pins::ROWS,
        bitmaps::ROWS,
        hyperloglog::ROWS,
        throttle::ROWS,
        multi::ROWS,
        lists::ROWS,
        sets::ROWS,
        sets::DEADLINE_ROWS,
        keys::ROWS,
        dump::ROWS,
        walk::ROWS,
        deadlines::ROWS,
        hashes::ROWS,
        hashes::DEADLINE_ROWS,
        geo::ROWS,
        streams::ROWS,
        sort::ROWS,
    ];
    families.into_iter().chain(zsets::ROWS).flatten()
}

impl Ctx<'_> {
    /// The request's first key, whose hash is known already.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        debug_assert_eq!(self.hash, self.keyspace.hasher().hash(bytes));
        Key { bytes, hash: self.hash }
    }

    /// Any other key of the request.
    pub fn other_key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.keyspace.hasher().key(bytes)
    }

    /// What looking up a key leaves behind that is read, whatever the command does in general.
    pub fn reading(&self) -> Touch {
        self.touch.counted()
    }

    /// The same for a key that is written only.
    pub fn writing(&self) -> Touch {
        self.touch.uncounted()
    }

    /// Runs something whose reply is not this one's.
    pub fn written(&mut self, proto: Proto, work: impl FnOnce(&mut Self) -> Result) -> Result<Vec<u8>> {
        let (start, before) = (self.reply.len(), std::mem::replace(&mut self.reply.proto, proto));
        let result = work(self);
        self.reply.proto = before;
        let bytes = self.reply.take_from(start);
        match result {
            Ok(()) if bytes.len() > self.limits.reply_bytes => Err(Error::OutputTooLong),
            result => result.map(|()| bytes),
        }
    }

    /// Marks the end of an item of a partial reply.
    pub fn end_item(&mut self) {
        self.ends.push(self.reply.len());
    }

    /// The change that is committed next is, in this event, about these elements of its key. Where there are any, it has to be
    /// committed.
    #[inline]
    pub fn name_elements<T: AsRef<[u8]>>(&mut self, event: Event, names: impl IntoIterator<Item = T>) {
        self.keyspace.effects.name_elements(event, names);
    }

    /// Whether somebody asks which elements such an event is about.
    #[inline]
    pub fn wants_elements(&self, event: Event) -> bool {
        self.keyspace.effects.wants_elements(event)
    }

    /// Says what this command has changed of a key: the end of every edit.
    #[inline]
    pub fn commit(&mut self, key: Key, change: impl Into<Change>) {
        self.commit_in(self.db, key, change.into());
    }

    /// The same of a key in any database.
    #[inline]
    pub fn commit_in(&mut self, db: usize, key: Key, change: Change) {
        self.keyspace.commit(db, key, change, self.now);
        if self.keyspace.may_be_governed(key.bytes) {
            self.govern(db, key);
        }
    }

    /// The same, where it is known which deadline the key has now: most policies have nothing to say of it, and the key
    /// need not be looked up once more.
    #[inline]
    pub fn commit_dated(&mut self, key: Key, change: impl Into<Change>, deadline_ms: Option<u64>) {
        self.keyspace.commit(self.db, key, change.into(), self.now);
        if self.keyspace.may_be_governed(key.bytes) {
            self.govern_dated(key, deadline_ms);
        }
    }

    /// The same, where the edit may have changed nothing.
    #[inline]
    pub fn commit_if(&mut self, has_changed: bool, key: Key, change: impl Into<Change>) {
        if has_changed {
            self.commit(key, change);
        } else {
            self.unchanged(key);
        }
    }

    /// Ends an edit that has changed nothing.
    #[inline]
    pub fn unchanged(&mut self, key: Key) {
        self.keyspace.effects.close(self.db, key.hash);
    }
}

/// An element of a collection as a reply.
pub fn reply_element(reply: &mut Reply, element: Element) {
    match element {
        Element::Int(n) => reply.bulk_int(n),
        Element::Bytes(bytes) => reply.bulk(bytes),
    }
}

/// Writes so many items, each of them drawn anew. Their number is a client's, and nothing else would bound the reply: one
/// that is going to be too long is refused before it is begun.
pub fn reply_drawn(reply: &mut Reply, count: u64, limit: usize, mut each: impl FnMut(&mut Reply)) -> Result {
    const ITEM_BYTES_MIN: u64 = "$0\r\n\r\n".len() as u64;
    let begin = reply.len();
    if count > limit as u64 / ITEM_BYTES_MIN {
        return Err(Error::ReplyTooLong);
    }
    for _ in 0..count {
        each(reply);
        if reply.len() - begin > limit {
            return Err(Error::ReplyTooLong);
        }
    }
    Ok(())
}

/// Whether a reply of whole values is too long: one value may be named a million times. A short reply is written as it comes; when
/// it has become long, the lengths of all that is left are added up before any of that is copied.
pub struct ReplyLength {
    begin: usize,
    limit: usize,
    /// Where the reply ends when there is something to add up.
    add_up_at: usize,
    is_too_long: bool,
}

impl ReplyLength {
    /// Up to so many bytes nobody adds up anything.
    const SHORT_BYTES: usize = 1 << 20;

    pub fn new(reply: &Reply, limits: &Limits) -> ReplyLength {
        let begin = reply.len();
        ReplyLength { begin, limit: limits.reply_bytes, add_up_at: begin + Self::SHORT_BYTES, is_too_long: false }
    }

    /// Whether the lengths of what is left are to be added up now.
    #[inline]
    pub fn is_unclear(&self, reply: &Reply) -> bool {
        reply.len() > self.add_up_at
    }

    #[cold]
    pub fn add_up(&mut self, reply: &Reply, lens: impl Iterator<Item = usize>) {
        self.add_up_at = usize::MAX;
        self.is_too_long = lens.fold(reply.len() - self.begin, usize::saturating_add) > self.limit;
    }

    /// Nothing more is to be written.
    #[inline]
    pub fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// What is answered where the values were too long to be written. Everything else that the command does has been done.
    pub fn check(&self) -> Result {
        if self.is_too_long { Err(Error::OutputTooLong) } else { Ok(()) }
    }
}

/// The shard of a key.
pub fn shard_of(hasher: &Hasher, key: &[u8]) -> usize {
    hasher.shard_of(hasher.key(key))
}
