//! What a value is: the vocabulary the value types share.
//!
//! - [`number`] reads and writes integers and floats exactly as Redis 7.0.15 does, so that a reply
//!   can be compared byte for byte.
//! - [`glob`] matches the patterns of KEYS, SCAN, PSUBSCRIBE and CONFIG GET.
//! - [`bits`] are strings as arrays of bits and of integers of any width.
//! - [`hll`] counts different elements approximately, in the representation of Redis.
//! - [`lcs`] is the longest common subsequence behind the LCS command.
//! - [`pack`] is how sequences of small elements are kept in plain bytes.
//!
//! Everything here is a pure function of its arguments: no clock, no keyspace, no I/O. Every input
//! comes from strangers, so nothing here panics, and whatever can grow is bounded by the length of
//! its input or by a limit the caller passes.

pub mod bits;
pub mod geohash;
pub mod glob;
pub mod hash;
pub mod hll;
pub mod intset;
pub mod lcs;
pub mod list;
pub mod number;
pub mod order;
pub mod pack;
pub mod set;
pub mod stream;
pub mod zset;

use crate::table::{Dict, Kind, Value};
use number::parse_i64;

/// A collection that does not stand in its key's entry: it is kept behind a pointer there.
pub trait Node: Send {
    fn kind(&self) -> Kind;
    /// All memory it holds, itself included; cheap.
    fn bytes(&self) -> usize;
    /// Gives back about `budget` elements of a collection that is not used any more; whether nothing is left.
    fn free_some(&mut self, budget: usize) -> bool;
    fn boxed_clone(&self) -> Box<dyn Node>;
    /// Its elements, where they are in a dictionary.
    fn dict(&self) -> Option<&Dict> {
        None
    }
}

/// A type of node.
pub trait NodeType: Node + Sized + 'static {
    const KIND: Kind;
}

impl Value<'_> {
    /// The form in which a string's bytes are kept: integers as such.
    #[inline]
    pub fn of(bytes: &[u8]) -> Value<'_> {
        match bytes.first() {
            Some(b'0'..=b'9' | b'-') if bytes.len() <= 20 => match parse_i64(bytes) {
                Some(n) => Value::Int(n),
                None => Value::Bytes(bytes),
            },
            _ => Value::Bytes(bytes),
        }
    }
}
