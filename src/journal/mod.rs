//! The journal: what every shard has changed, as commands that make the same changes again, in one order.
//!
//! ```text
//!  shard 0:  record  record  part of 7  record ...  ─┐
//!  shard 1:  record  part of 7  part of 9 ...       ─┼─ merge ──> unit  unit  unit ...
//!  shard 2:  part of 9  record ...                  ─┘
//! ```
//!
//! A [`Record`] is what one command, or one shard's part of a transaction, has changed. What one shard records is in the
//! order in which it happened there. Records of different shards have no order, as they touch different keys, but for the
//! parts of a transaction over several shards: [`Merger`] brings those together, so that whoever follows sees all of them
//! or none.

mod merge;

pub use merge::{Merger, Unit};

use std::sync::Arc;

/// What one command, or one part of a transaction, has changed on one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is a part of, where that is more than one shard's.
    pub part_of: Option<Transaction>,
    pub commands: Vec<Command>,
}

/// A transaction over several shards, each of which records a part of it, even where nothing has changed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub number: u64,
    /// The shards that take part, each once.
    pub shards: Arc<[usize]>,
    /// Each of its parts is the same command for the whole data set (FLUSHALL): one of them is enough.
    pub is_whole: bool,
}

/// A command that makes the same change again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub db: usize,
    pub args: Vec<Box<[u8]>>,
}
