//! The link to a primary: what this server says to it, and what comes back, on threads beside the shards.
//!
//! ```text
//!  link ── handshake ──┬── payload: a snapshot, into a file ──┐
//!                      └──────────────────────────────────────┴── batches: the stream, in whole transactions ──> the server
//! ```
//!
//! | file | what |
//! |---|---|
//! | `link.rs` | the connection, from the first word to its end |
//! | `payload.rs` | the snapshot that a primary sends |
//! | `batches.rs` | the stream in parts that are done at once |

mod batches;
pub mod link;
mod payload;

pub use batches::Batch;
