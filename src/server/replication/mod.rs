//! Servers that follow this one, and the one that this one follows.
//!
//! ```text
//!  PSYNC id offset ── psync ──┬── what is missing is kept: +CONTINUE, then the stream from there (wire/journal.rs)
//!                             └── payload: +FULLRESYNC, a snapshot, then the stream from its moment on
//! ```
//!
//! | file | what |
//! |---|---|
//! | `tools.rs` | a snapshot for tools, and nothing behind it |
//! | `psync.rs` | a replica comes |
//! | `payload.rs` | one snapshot for all who wait for one |
//! | `sending.rs` | a snapshot on its way |
//! | `minding.rs` | what is done from time to time |
//! | `migrate.rs`, `target.rs` | single keys that move to another server; the connections to such |
//! | `failover.rs` | it hands over to a replica |
//! | `following.rs` | this server follows another one |
//! | `waiting.rs` | WAIT, WAITAOF: how far replicas are |

pub mod failover;
pub mod following;
pub mod migrate;
pub mod minding;
mod payload;
pub mod psync;
mod sending;
pub mod target;
pub mod tools;
pub mod waiting;
