//! TLS: who may connect, the handshake, and what a connection's bytes are under it.
//!
//! ```text
//!  Tls (files, directives) ──► server_config ──► handshakes (threads beside the shards)
//!                                                     │ Layer: its keys, what has come already
//!                                                     v
//!  Transport ── ciphertext ── TlsLine ── plaintext ── Line (the server's connection)
//! ```
//!
//! A handshake costs as much as a thousand commands, so no shard does one. Shards decrypt and encrypt what follows, and
//! neither the transports nor the server's connections know of it.
//!
//! | file | what |
//! |---|---|
//! | `outgoing.rs` | connections to other servers |
//! | `handshakes.rs` | threads that take connections as far as their first byte of data |
//! | `line.rs` | a connection under TLS, between a transport and the server |
//! | `layer.rs` | the state of TLS of one connection: ciphertext in, plaintext out, and the other way |
//! | `context.rs` | what new connections are served with, and how that changes while the server runs |
//! | `sessions.rs` | sessions that clients take up again |
//! | `files.rs` | certificates and keys as they are read from files |

mod context;
mod files;
mod handshakes;
mod layer;
mod line;
mod outgoing;
mod sessions;

pub use context::{Loaded, Tls, reload};
pub use files::TlsError;
pub use handshakes::{HANDSHAKES, Handshakes, Shaken};
pub use layer::{Failure, Layer};
pub use line::{Held, TlsLine};
pub use outgoing::{Outgoing, client_config};
