//! One request: may it run, which way does it run, and the ways. Each file of a way has functions over a [`Turn`] that say
//! whether the request was taken; none knows how it got there.
//!
//! | file | what |
//! |---|---|
//! | `dispatch.rs`, `received.rs` | one request, queued or sent on its way; the requests of one receive, looked up together |
//! | `http.rs` | the end of connections that speak HTTP |
//! | `guard.rs` | GUARD: what runs only while a lease is held |
//! | `exec.rs`, `exec_steps.rs`, `exec_slice.rs`, `watch.rs` | MULTI and EXEC; WATCH |
//! | `script.rs`, `lasting.rs`, `caller.rs` | scripts and functions: how they begin, go on in slices, and what they call |
//! | `single.rs`, `scatter.rs`, `atomic.rs`, `coordinate.rs`, `stepping.rs`, `steps.rs`, `wait.rs`, `here.rs`, `task.rs` | the ways of one command |
//! | `in_the_way.rs` | scripts that last, and what waits for them |
//! | `callee.rs` | what a call of a script or function names |
//! | `plan.rs`, `split.rs` | where the commands of a MULTI go; a command taken apart by shards |
//! | `lease.rs` | what is asked of a lease |
//! | `replayed.rs` | what a log says that is not as a client says it |
//! | `guess.rs` | passwords where too many were wrong |
//! | `turn.rs` | what a request works with and may change |
//! | `rights.rs` | what a connection's user may do |
//!
//! [`Turn`]: turn::Turn

pub mod atomic;
pub mod callee;
mod caller;
pub mod coordinate;
pub mod dispatch;
pub mod exec;
mod exec_slice;
mod exec_steps;
mod guard;
pub mod guess;
pub mod here;
mod http;
pub mod in_the_way;
mod lasting;
mod lease;
mod plan;
pub mod received;
pub mod replayed;
pub mod rights;
mod scatter;
pub mod script;
mod single;
pub mod split;
mod stepping;
mod steps;
pub mod task;
pub mod turn;
pub mod wait;
pub mod watch;
