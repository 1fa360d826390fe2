//! Streams: entries in listpacks, each under the ID of its first entry; behind them what else is known, and the
//! groups of consumers.
//!
//! ```text
//! node:   id (16, big-endian)  listpack: entries  deleted  fields  field ...  0  entry ...
//! entry:  flags  ms - the node's  seq - the node's  [fields]  [field] value ...  elements of this entry
//! stream: nodes  node ...  entries  last id  [first id  greatest deleted id  entries ever added]
//!         groups  (name  last id  [entries read]  pending  (id  time  deliveries) ...
//!                  consumers  (name  seen  [active]  pending  id ...) ...) ...
//! ```

mod decode;
mod encode;

pub(super) use decode::{Version, decode};
pub use encode::StreamWriter;

use crate::value::stream::Id;

/// Flags of an entry.
const DELETED: i64 = 1;
/// Its fields are those of the node and not said again.
const SAME_FIELDS: i64 = 2;
/// A group does not know how many entries it has read.
const UNKNOWN: u64 = u64::MAX;

/// A stream without its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    pub last_id: Id,
    pub max_deleted_id: Id,
    pub entries_added: u64,
    pub groups: Vec<Group>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub name: Vec<u8>,
    pub last_id: Id,
    /// None: not known.
    pub entries_read: Option<u64>,
    pub consumers: Vec<Consumer>,
    /// What was delivered and is not acknowledged, by ID.
    pub pending: Vec<Pending>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumer {
    pub name: Vec<u8>,
    /// Milliseconds since 1970.
    pub seen_ms: u64,
    /// None: never.
    pub active_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub id: Id,
    pub delivered_ms: u64,
    pub deliveries: u64,
    /// Index of the consumer.
    pub owner: usize,
}
