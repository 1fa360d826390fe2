//! The ways in which a request runs. Each file has one, as functions over a [`Turn`] that say whether the request was
//! taken; none knows how it got there.
//!
//! [`Turn`]: super::turn::Turn

pub mod atomic;
pub mod callee;
mod caller;
pub mod coordinate;
pub mod exec;
pub mod exec_steps;
pub mod here;
pub mod in_the_way;
pub mod scatter;
pub mod script;
pub mod single;
pub mod steps;
pub mod task;
pub mod wait;
