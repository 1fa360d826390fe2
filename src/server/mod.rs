//! The server: connections and their sessions, publish/subscribe, and the commands about the server itself.
//!
//! ```text
//!  socket ── connection.rs ── dispatch.rs ──┬── run/single.rs: handler here ─────────┐
//!              (bytes)       (one request)  ├── run/scatter.rs: parts to shards ─────┼── replies.rs ── output.rs ── socket
//!                                           └── run/task.rs and kin: a task ─────────┘   (in order)
//! ```
//!
//! A file imports only files below it in this table.
//!
//! | file | what |
//! |---|---|
//! | `start.rs` | the table of commands, the shard's upcalls, the tasks |
//! | `rows/` | the commands of this room, a file a family |
//! | `listen.rs`, `stop.rs` | listening sockets, dealing connections out to the shards; the end |
//! | `rewriting.rs` | the log: taken up, begun, made anew |
//! | `sync.rs` | snapshots that are sent to tools |
//! | `replay.rs`, `replayed.rs`, `loading.rs`, `saving.rs` | what a log says is done; snapshots: from the disk, and to it |
//! | `connection.rs`, `received.rs` | one connection's bytes; the requests of one receive, looked up together |
//! | `dispatch.rs` | one request: may it run, is it queued, which way does it run |
//! | `http.rs` | the end of connections that speak HTTP |
//! | `run/` | the ways: `single`, `scatter`, `atomic`, `coordinate`, `steps`, `exec`, `exec_steps`, `wait`, `script`, `here`, `task` |
//! | `plan.rs`, `split.rs` | where the commands of a MULTI go; a command taken apart by shards |
//! | `watch.rs` | WATCH, and what EXEC asks about it |
//! | `turn.rs` | what a request works with and may change |
//! | `monitor.rs`, `pubsub.rs`, `journal.rs`, `tracking.rs` | who is told of commands, of messages and events, of changes, of what it has read |
//! | `client_eviction.rs` | who goes where connections hold too much in all |
//! | `output.rs` | what leaves a connection, and its limits |
//! | `tidying.rs` | what scripts have left is collected |
//! | `server.rs` | the state of one shard's server, of which the rest are parts: |
//! | `monitors.rs`, `subscriptions.rs`, `follower.rs`, `waits.rs`, `scripting.rs` | who monitors, listens, follows the journal, waits for a key; scripts that run |
//! | `client_memory.rs`, `logging.rs` | what the connections of a shard hold; what it has changed, on its way to the log |
//! | `client.rs`, `session.rs`, `multi.rs`, `watched.rs`, `tracks.rs`, `replies.rs`, `for_disk.rs` | a connection: its flow, what its commands know, its replies in order, those that wait for the disk |
//! | `slowlog.rs`, `shown.rs` | slow commands, and how commands are shown |
//! | `gate.rs`, `busy.rs`, `held_up.rs` | may a command run: words of flags; scripts that last; who waits beside these |
//! | `global.rs`, `snapshots.rs`, `appending.rs`, `files.rs` | the little that shards share; how many clients there may be |

mod appending;
mod busy;
mod client;
mod client_eviction;
mod client_memory;
mod connection;
mod dispatch;
mod files;
mod follower;
mod for_disk;
mod gate;
mod global;
mod held_up;
mod http;
mod journal;
pub mod listen;
mod loading;
mod logging;
mod monitor;
mod monitors;
mod multi;
mod output;
mod plan;
mod pubsub;
mod received;
mod replay;
mod replayed;
mod replies;
mod rewriting;
mod rows;
mod run;
mod saving;
mod scripting;
#[expect(clippy::module_inception, reason = "the state of the server, among the files about it")]
mod server;
mod session;
mod shown;
mod slowlog;
mod snapshots;
mod split;
mod start;
mod stop;
mod subscriptions;
mod sync;
mod tidying;
mod tracking;
mod tracks;
mod turn;
mod waits;
mod watch;
mod watched;

pub use files::make_room_for;
pub use global::Global;
pub use rewriting::load_at_start;
pub use server::Server;
pub use start::{make, start, table};
pub use stop::watch_signals;
