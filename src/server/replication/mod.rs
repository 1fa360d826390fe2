//! Servers that follow this one, and the one that this one follows.
//!
//! ```text
//!  PSYNC id offset ── psync ──┬── what is missing is kept: +CONTINUE, then the stream from there (wire/journal.rs)
//!                             └── payload: +FULLRESYNC, a snapshot, then the stream from its moment on
//! ```
//!
//! | file | what |
//! |---|---|
//! | `psync.rs` | a replica comes |
//! | `failover.rs` | this server hands over to a replica |
//! | `payload.rs` | one snapshot for all who wait for one |
//! | `following.rs`, `synced.rs` | this server follows another one; how much of that is on its disk |
//! | `tools.rs` | a snapshot for tools, and nothing behind it |
//! | `sending.rs` | a snapshot on its way |
//! | `minding.rs` | what is done from time to time |
//! | `waiting.rs` | WAIT, WAITAOF: how far replicas are |
//! | `migrate.rs`, `target.rs` | single keys that move to another server; the connections to such |

pub mod failover;
pub mod following;
pub mod migrate;
pub mod minding;
mod payload;
pub mod psync;
mod sending;
mod synced;
pub mod target;
pub mod tools;
pub mod waiting;
