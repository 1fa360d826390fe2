//! What connections are told beside the replies to their requests, and what leaves them.
//!
//! | file | what |
//! |---|---|
//! | `pubsub.rs` | messages, and the events of keys |
//! | `tracking.rs` | that what a connection has read has changed |
//! | `live.rs` | the results of live queries |
//! | `monitor.rs` | the commands of others |
//! | `users.rs` | that users have changed |
//! | `output.rs` | the output of a connection, and its limits |

pub mod live;
pub mod monitor;
pub mod output;
pub mod pubsub;
pub mod tracking;
pub mod users;
