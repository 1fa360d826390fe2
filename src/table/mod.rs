//! Hash tables whose elements may have deadlines: what databases are made of, and large hashes, sets and sorted sets.
//!
//! ```text
//!  Table --- directory --- Block --- Entry (header, key, value)        Dict: a small table, or a Table
//!    |
//!  minima (when each block has to be looked at)
//! ```
//!
//! - [`entry`]: a key and its value, or a member of a collection, in one allocation
//! - [`block`], [`table`]: extendible hashing; [`minima`]: which block has to be looked at first; [`scan`]: cursors; `walk`: slices
//! - [`dict`]: the elements of one collection

pub mod block;
pub mod dict;
pub mod entry;
pub mod hash;
mod minima;
pub mod scan;
#[allow(clippy::module_inception)]
mod table;
mod walk;

pub use block::NEVER_MS;
pub use dict::{Dict, element_hash};
pub use entry::{Entry, Kind, Stored, Value};
pub use hash::{Hasher, Key};
pub use scan::Cursor;
pub use table::{FieldsSwept, Next, Shape, Slot, Swept, Table, Undertaker};
