//! Hash tables whose elements may have deadlines: what databases are made of, and large hashes, sets and sorted sets.
//!
//! ```text
//!  Table --- directory --- Block --- groups of slots (fingerprints, places, deadlines)
//!    |                       |
//!  minima                   heap --- Entry (header, key, value), or a stub --- Whole
//!
//!  Dict: a few whole entries, or a Table
//! ```
//!
//! A block owns its entries: they lie packed in the chunks of its heap, two bytes of a slot say where. That takes 10 bytes a
//! key beside its entry, whose header takes 6. What an entry leaves behind is a hole, which its chunk is packed without
//! when that pays; blocks that are mostly holes, or have few keys, are built anew or merged, so that the memory of what
//! has died comes back. Entries larger than a seventh of a chunk are whole, in allocations of their own, with a stub in the
//! heap; so are all entries of tables whose owner keeps their addresses (sorted sets).
//!
//! Invariants, which `model_test.rs` checks against a map, and `Table::check` after every few steps:
//! - every write may move every entry of its block, and its block: slots and entries are good until then, which the
//!   borrows of [`Entry`] say;
//! - each byte of a chunk below its fill belongs to one entry or to a hole, and the counts of both are exact;
//! - a block has no more bytes than fit its chunks whatever order they come in, so that it can always be built anew;
//! - a slot's deadline is in its column, but for one out of its reach, which is in the entry.
//!
//! - [`entry`]: a key and its value as bytes; `whole`: those with an allocation of their own; `large`:
//!   strings that move without being copied
//! - [`block`]: slots and their columns, and the heap of their entries
//! - [`table`]: search, writes; [`ahead`]: what searches will read is asked for; `reshape`: how blocks come and go; `sweep`: what is dead goes; [`minima`]: which block has
//!   to be looked at first; [`scan`]: cursors; `walk`: slices; `draw`: keys at random; `clocks`, `former`: what
//!   access clocks mean; `thin`: what goes where memory is short
//! - [`dict`]: the elements of one collection; `saving`: what it had at a moment; [`changed`](Changed): what a walk has to know
//!   of changes meanwhile

pub mod ahead;
pub mod block;
mod changed;
mod clocks;
pub mod dict;
mod draw;
pub mod entry;
mod former;
pub mod hash;
mod large;
mod minima;
#[cfg(test)]
mod model_test;
mod reshape;
mod saving;
pub mod scan;
mod sweep;
#[allow(clippy::module_inception)]
mod table;
mod thin;
mod walk;
mod whole;

pub use block::NEVER_MS;
pub use changed::{Changed, Lots};
pub use dict::{Dict, element_hash};
pub use entry::{Entry, Kind, Stored, Value};
pub use hash::{Hasher, Key};
pub use large::Large;
pub use scan::Cursor;
pub use sweep::{FieldsSwept, Next, Swept, Undertaker};
pub use table::{Shape, Slot, Table, Upkeep};
pub use thin::{KEYS_AT_ONCE, Near};
pub use whole::Whole;
