//! The codec of values: RDB, as Redis 7.0.15 to 7.4 write it, for DUMP, RESTORE and snapshots.
//!
//! ```text
//! DUMP:  type (1 byte)  value  version (2 bytes)  CRC-64 of all before it (8 bytes)       little-endian
//! ```
//!
//! - [`payload`] is that frame, [`dialect`] whose version it has; [`decode`] tells a [`Sink`] what a value holds; [`encode`] writes one.
//! - [`read`], [`write`]: lengths, strings, floats.
//! - [`listpack`], [`intset`], and, only read, [`ziplist`] and [`zipmap`]: collections in one string.
//! - [`file`]: snapshots: a head, keys with their deadlines and values, an end; [`skip`] finds the ends of values in them.
//! - [`piece`]: a part of a file, whose strings are compressed later
//! - [`functions`]: the libraries of functions, for FUNCTION DUMP and RESTORE.
//! - [`stream`]: streams, whose entries are in listpacks and whose groups are beside them.
//!
//! What is read comes from strangers. Nothing here panics, memory follows the bytes that are there and not the numbers
//! in them, and all is checked that Redis checks with `sanitize-dump-payload yes`.
//!
//! What is written is what 7.0.15 can RESTORE, and byte for byte its DUMP where that does not depend on the order of a
//! hash table or on how a value came about. Only hashes whose fields have deadlines need 7.4.

pub mod decode;
pub mod dialect;
pub mod encode;
pub mod file;
pub mod functions;
mod intset;
mod listpack;
pub mod payload;
mod piece;
mod read;
mod sink;
mod skip;
pub mod stream;
mod write;
mod ziplist;
mod zipmap;

#[cfg(test)]
mod fuzz_test;
#[cfg(test)]
mod model_test;

pub use decode::decode;
pub use piece::Piece;
pub use read::Reader;
pub use sink::{EntryTexts, Sink};

use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// A collection without elements: a file's loader passes over it.
    #[error("an empty collection")]
    Empty,
    #[error("not valid: {0}")]
    Corrupt(&'static str),
}

pub type Result<T = ()> = std::result::Result<T, Error>;

/// The first byte of a value.
mod kind {
    pub const STRING: u8 = 0;
    pub const LIST: u8 = 1;
    pub const SET: u8 = 2;
    pub const ZSET: u8 = 3;
    pub const HASH: u8 = 4;
    pub const ZSET_2: u8 = 5;
    pub const MODULE: u8 = 6;
    pub const MODULE_2: u8 = 7;
    pub const HASH_ZIPMAP: u8 = 9;
    pub const LIST_ZIPLIST: u8 = 10;
    pub const SET_INTSET: u8 = 11;
    pub const ZSET_ZIPLIST: u8 = 12;
    pub const HASH_ZIPLIST: u8 = 13;
    pub const LIST_QUICKLIST: u8 = 14;
    pub const STREAM_LISTPACKS: u8 = 15;
    pub const HASH_LISTPACK: u8 = 16;
    pub const ZSET_LISTPACK: u8 = 17;
    pub const LIST_QUICKLIST_2: u8 = 18;
    pub const STREAM_LISTPACKS_2: u8 = 19;
    pub const SET_LISTPACK: u8 = 20;
    pub const STREAM_LISTPACKS_3: u8 = 21;
    pub const HASH_METADATA_PRE_GA: u8 = 22;
    pub const HASH_LISTPACK_EX_PRE_GA: u8 = 23;
    pub const HASH_METADATA: u8 = 24;
    pub const HASH_LISTPACK_EX: u8 = 25;
    /// What Valkey 9 gives the number of [`HASH_METADATA_PRE_GA`]: a deadline behind each value, or -1. It has this number
    /// here alone.
    pub const HASH_OF_VALKEY: u8 = 200;
    /// A set some of whose members have deadlines, written as [`HASH_METADATA`] is, without values. No Redis writes it.
    pub const SET_METADATA: u8 = 201;
    /// The same of a sorted set: a deadline, a member and its score as [`ZSET_2`] has it. No Redis writes it.
    pub const ZSET_METADATA: u8 = 202;
}

/// How a node of a list is kept.
mod container {
    /// One element as it is.
    pub const PLAIN: u64 = 1;
    /// A listpack.
    pub const PACKED: u64 = 2;
}
