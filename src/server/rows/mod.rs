//! The commands about connections and the server, a file a family.

mod admin;
mod client;
mod config;
mod connection;
mod debug;
mod info;
mod latency;
mod pubsub;
mod slowlog;
mod transactions;

pub use debug::is_allowed as debug_is_allowed;

use super::Run;
use crate::command::spec::Row;

/// The version of Redis whose behaviour clients may expect.
pub const REDIS_VERSION: &str = "7.0.15";

pub fn all() -> impl Iterator<Item = &'static Row<Run>> {
    let of_all = [
        connection::ROWS,
        client::ROWS,
        transactions::ROWS,
        config::ROWS,
        pubsub::ROWS,
        info::ROWS,
        debug::ROWS,
        admin::ROWS,
        latency::ROWS,
        slowlog::ROWS,
    ];
    of_all.into_iter().flatten()
}
