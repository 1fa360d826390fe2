//! What a value is: the vocabulary the value types share.
//!
//! - [`number`] reads and writes integers and floats exactly as Redis 7.0.15 does, so that a reply
//!   can be compared byte for byte.
//! - [`glob`] matches the patterns of KEYS, SCAN, PSUBSCRIBE and CONFIG GET.
//! - [`lcs`] is the longest common subsequence behind the LCS command.
//!
//! Everything here is a pure function of its arguments: no clock, no keyspace, no I/O. Every input
//! comes from strangers, so nothing here panics, and whatever can grow is bounded by the length of
//! its input or by a limit the caller passes.

pub mod glob;
pub mod lcs;
pub mod number;
