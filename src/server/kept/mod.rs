//! What outlives the process: snapshots and the log, written beside the work of others and read at the start.
//!
//! | file | what |
//! |---|---|
//! | `acl_file.rs` | users: read at the start and again, written |
//! | `rewriting.rs` | the log: taken up, begun, made anew |
//! | `loading.rs` | snapshots and logs of the disk become data |
//! | `replay.rs` | what a log says is done |
//! | `saving.rs` | snapshots, written to the disk |
//! | `policies.rs` | expiry policies in all of these, and on replicas |
//! | `tokens.rs` | the tokens of leases, and their file |

pub mod acl_file;
pub mod loading;
pub mod policies;
pub mod replay;
pub mod rewriting;
pub mod saving;
pub mod tokens;
