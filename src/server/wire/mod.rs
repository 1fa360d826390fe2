//! Connections: where they come from, the bytes that arrive on them, and which of them have to go.
//!
//! | file | what |
//! |---|---|
//! | `listen.rs` | listening sockets; connections are dealt out to the shards |
//! | `connection.rs` | the bytes of one connection, taken apart into requests |
//! | `client_eviction.rs` | who goes where connections hold too much in all |
//! | `journal.rs` | connections that follow the journal |

pub mod client_eviction;
pub mod connection;
pub mod journal;
pub mod listen;
