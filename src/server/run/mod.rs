//! The ways in which a request runs. Each file has one, as functions over a [`Turn`] that say whether the request was
//! taken; none knows how it got there.
//!
//! [`Turn`]: super::turn::Turn

pub mod atomic;
pub mod coordinate;
pub mod exec;
pub mod exec_steps;
pub mod here;
pub mod scatter;
pub mod single;
pub mod task;
pub mod wait;
