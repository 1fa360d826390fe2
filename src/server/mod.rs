//! The server: connections and their sessions, publish/subscribe, and the commands about the server itself.
//!
//! ```text
//!  socket ── wire/connection ── run/dispatch ──┬── run/single: handler here ─────────┐
//!              (bytes)         (one request)   ├── run/scatter: parts to shards ─────┼── client/replies ── told/output ── socket
//!                                              └── run/task and kin: a task ─────────┘     (in order)
//! ```
//!
//! A folder imports only from those below it in this table.
//!
//! | folder | what |
//! |---|---|
//! | `start.rs` | the table of commands, what the shard calls, the tasks |
//! | `rows/` | the commands of this room, a file a family |
//! | `stop.rs` | the end |
//! | `pages/` | metrics, a live page, and whether the server is well, over HTTP |
//! | `facts/` | what the server tells of itself, as data |
//! | `replication/` | servers that follow this one |
//! | `kept/` | snapshots and the log: written, made anew, read at the start |
//! | `wire/` | listening sockets, connections and their bytes |
//! | `run/` | one request: may it run, which way does it run, and the ways |
//! | `told/` | messages, events, commands of others: what a connection is told; what leaves it |
//! | `state/` | what a shard's server knows, and what all of them share |
//! | `client/` | a connection as data: its session, its replies in order |
//! | `admit/` | may a request run: the conditions, a file each |

mod admit;
mod client;
mod facts;
mod kept;
pub mod pages;
mod replication;
mod rows;
mod run;
mod start;
mod state;
mod stop;
mod told;
mod wire;

pub use kept::acl_file::read_at_start as users_at_start;
pub use kept::rewriting::load_at_start;
pub use replication::following::follow_at_start;
pub use start::{make, start, table};
pub use state::files::make_room_for;
pub use state::global::Global;
pub use state::users::KnownUsers;
pub use state::{Server, Table};
pub use stop::watch_signals;
pub use wire::listen;
