//! What a value is: the vocabulary the value types share.
//!
//! - [`number`] reads and writes integers and floats exactly as Redis 7.0.15 does, so that a reply
//!   can be compared byte for byte.
//! - [`glob`] matches the patterns of KEYS, SCAN, PSUBSCRIBE and CONFIG GET.
//! - [`bits`] are strings as arrays of bits and of integers of any width.
//! - [`hll`] counts different elements approximately, in the representation of Redis.
//! - [`lcs`] is the longest common subsequence behind the LCS command.
//! - [`lzf`] is the compression of RDB's strings and of lists.
//! - [`elements`] are those parts of collections that die by themselves.
//! - [`pack`] is how sequences of small elements are kept in plain bytes.
//!
//! Everything here is a pure function of its arguments: no clock, no keyspace, no I/O. Every input
//! comes from strangers, so nothing here panics, and whatever can grow is bounded by the length of
//! its input or by a limit the caller passes.

pub mod bits;
pub mod elements;
pub mod geohash;
pub mod glob;
pub mod hash;
pub mod hll;
pub mod intset;
pub mod lcs;
pub mod list;
pub mod lzf;
pub mod number;
pub mod order;
pub mod pack;
pub mod set;
pub mod stream;
pub mod zset;

use crate::table::{Dict, Kind, Value};
use number::parse_i64;
use std::sync::atomic::{AtomicU32, Ordering};

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
    /// What it holds now is shown from now on, by [`Node::save_some`], whatever becomes of it. Whether it is: a small one
    /// can be shown at once.
    fn begin_saving(&mut self) -> bool;
    /// Shows a little of that: nothing comes twice, and the elements of a list and the entries of a stream come in their
    /// order. Whether there may be more.
    fn save_some(&mut self, to: &mut dyn FnMut(Portion)) -> bool;
    /// The rest is not wanted.
    fn stop_saving(&mut self);
    /// Whether it is being shown.
    fn is_saved(&self) -> bool;
}

/// A portion of a collection.
#[derive(Clone, Copy)]
pub enum Portion<'a> {
    /// A member of a set and its deadline in store milliseconds.
    Member(&'a [u8], Option<u64>),
    /// A member of a sorted set, its score and its deadline in store milliseconds.
    Scored(&'a [u8], f64, Option<u64>),
    /// A field of a hash, its value and its deadline in store milliseconds.
    Field(&'a [u8], Value<'a>, Option<u64>),
    /// Elements of a list that are kept together, one at the least.
    Elements(list::Together<'a>),
    /// Entries of a stream that are kept together.
    Entries(&'a stream::Chunk),
}

/// Numbers the occasions on which collections are shown piece by piece, so that a chunk can say on which it was settled.
/// None is 0.
fn next_era() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1)
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
