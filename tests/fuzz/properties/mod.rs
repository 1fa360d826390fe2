//! What holds for any bytes that strangers send: one function `check` a parser, which panics where it does not hold.
//!
//! Two programs use these files: `tests/fuzz.rs`, which drives them from a seed with every test run, and the targets
//! beside this folder, which cargo-fuzz drives for as long as one likes (`scripts/fuzz`).

// The targets use one property each.
#![allow(dead_code)]

pub mod acl;
pub mod config;
pub mod log;
pub mod meter;
pub mod number;
pub mod parse;
pub mod program;
pub mod rdb;
pub mod script;
pub mod snapshot;
