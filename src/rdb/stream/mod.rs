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

pub use super::sink::{Consumer, Group, Pending, Stream};
pub(super) use decode::{Version, decode};
pub use encode::{StreamWriter, foot, head, node};

/// Flags of an entry.
const DELETED: i64 = 1;
/// Its fields are those of the node and not said again.
const SAME_FIELDS: i64 = 2;
/// A group does not know how many entries it has read.
const UNKNOWN: u64 = u64::MAX;
