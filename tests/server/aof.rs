//! The append-only log: what is there again after a restart, and after a process was killed at any moment.

#[path = "aof/apart.rs"]
mod apart;
#[path = "aof/clock.rs"]
mod clock;
#[path = "aof/crash.rs"]
mod crash;
#[path = "aof/deaths.rs"]
mod deaths;
#[path = "aof/disk.rs"]
pub mod disk;
#[path = "aof/files.rs"]
mod files;
#[path = "aof/kills.rs"]
mod kills;
#[path = "aof/leases.rs"]
mod leases;
#[path = "aof/loading.rs"]
mod loading;
#[path = "aof/modes.rs"]
mod modes;
#[path = "aof/order.rs"]
mod order;
#[path = "aof/slow.rs"]
mod slow;
#[path = "aof/storm.rs"]
mod storm;
