//! What happens to deadlines: the cycle that deletes what is due, its budget, and what it learns on the way.
//!
//! Passive expiry is the door's ([`crate::keyspace`]): no access ever sees a dead key. This room sees to it that the
//! memory of dead keys comes back, and their events are sent, within a bound that does not depend on how many keys
//! live:
//!
//! ```text
//!  lag <  2 ms + due keys x cost of a key                          where a cycle has time for them
//!  lag <= 2 ms + interval + (due keys x cost of a key) / budget    where they wait for others
//! ```
//!
//! The first of the two milliseconds is the deadline itself, to whose end a key lives; within the second the cycle wakes
//! up, as soon as the shard has its turn.

mod budget;
mod cycle;
pub mod foresight;

pub use cycle::{Cycle, Form, KEYS_A_SLICE, Outcome, Settings, purge_slice};
