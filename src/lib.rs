//! EmberDB: a Redis-compatible, multi-threaded, shared-nothing in-memory store whose heart is expiry.
//!
//! One process; one executor a core, pinned. Each executor is a *shard*: it owns a part of the keyspace
//! outright and serves connections. Nothing is locked; shards talk by messages.
//!
//! ```text
//!  main        configuration, executors, signals
//!  server      connections, the ways a request runs, what connections are told; snapshots and the log; rows about the server
//!  shard       mail, batches, calls; where handlers run; transactions over shards; the tasks of the cycle
//!  acl         users: which commands, keys and channels each may use, what was refused
//!  command     the table's rows and the handlers on data
//!  expiry      the cycle and its budget; foresight
//!  persist     snapshots and the log on the disk: files read and written beside the shards
//!  keyspace    the only door to data; nothing dead ever passes it
//!  rdb         the codec of values, as DUMP and RESTORE have them
//!  replicate   the link to a primary
//!  journal     what the shards have changed, as commands, brought into one order for whoever reads it
//!  script      Lua scripts and functions: kept, called, what they ask for
//!  net         sockets: a ring of our own, glommio's, or epoll; TLS
//!  resp        parse in place, reply (RESP2/3), the vocabulary of errors
//!  lua         the machine that scripts run on, and its libraries
//!  value       the types: packs and nodes of hashes, ...; numbers, globs: what they have in common
//!  table       hash tables with deadlines, for databases and large collections: block, directory, entry
//!  observe     histograms of lag, calls of commands, counting allocator, log
//!  clock (and the sequence of transactions), config; executor: what runs a shard's tasks
//!
//!  measure     apart from these: a client, tables and plots for programs that measure servers
//! ```
//!
//! `src/bin/emberdb-bench/` is the load generator, a program of its own that uses none of these rooms but `measure`: it
//! talks to any RESP server. So is `src/bin/emberdb-top/`, the view of a server on a terminal. Each `main.rs` has its map.
//!
//! # Import law
//! A room imports only from rooms further down in this drawing; rooms on one line do not import each other. Within a
//! room, the files and folders of a folder do not import each other in circles; its `mod.rs` is their map and what they
//! have in common. `tests/architecture.rs` reads the imports and fails on any other arrow. Where a lower room must reach
//! a higher one it declares what it needs: [`shard::Front`] (replies and events), [`command::Hop`] (work on other shards).
//!
//! # Where does it belong?
//! - a new command on data: a row and a handler in its family's file in `command/`
//! - a new command about connections or the server: likewise in `server/rows/`
//! - a new directive: a row in `config/directives.rs`, or in one of the files of rows beside it, and a field in `Config`
//! - a change to what is deleted when: `expiry/cycle.rs`; to when it runs: `shard/expire.rs`
//! - what is one moment on several shards: `shard/transactions/`, with its argument and its locks; which commands are:
//!   their row's [`command::Run`]; MULTI and EXEC: `server/run/exec.rs`
//! - what rules of users mean: `acl/`; where they are asked: `server/admit/user.rs`; who changes them: `server/rows/acl.rs`
//! - whether a command may run now: a condition is a file of `server/admit/`; how it runs: a file of `server/run/`
//! - what the server tells of itself, by INFO and as metrics: `server/facts/`
//! - what the journal is told of a command: the command itself; where that would do something else elsewhere or later,
//!   its handler says what (`command/propagate.rs`)
//! - who reads all changes, in one order: a reader of `journal/feed.rs`; what becomes of them on the disk: `persist/aof/log.rs`
//! - where connections' bytes come from: `net/`, a transport; what runs tasks: `executor/`
//! - who may connect under TLS, and with what: `net/tls/`; what is said of it: `config/tls.rs`
//! - how keys are kept: `table/block/` (slots and their heap), `table.rs` (directory), `entry.rs` (bytes of one key)
//! - how a collection is kept: its file in `value/`, packed in its key's entry while it is small
//!
//! # Reading order
//! `table/mod.rs`, `keyspace/mod.rs`, `expiry/cycle.rs`, `command/mod.rs`, `shard/mod.rs`, `server/mod.rs`,
//! `server/run/dispatch.rs`.

pub mod acl;
pub mod clock;
pub mod command;
pub mod config;
pub mod executor;
pub mod expiry;
pub mod journal;
pub mod keyspace;
pub mod lua;
pub mod measure;
pub mod net;
pub mod observe;
pub mod persist;
pub mod rdb;
pub mod replicate;
pub mod resp;
pub mod script;
pub mod server;
pub mod shard;
mod table;
pub mod value;
