//! What is counted and measured: histograms of lag, calls of commands, rates, memory, the log, the machine. Read by INFO. And what
//! whoever has started the process is told of it.

mod lag;
pub mod log;
pub mod machine;
pub mod memory;
mod rates;
mod slack;
mod spikes;
mod statistics;
pub mod supervisor;

pub use lag::Lag;
pub use rates::Rates;
pub use slack::GiveBack;
pub use spikes::{Event, SAMPLES, Sample, Series, Spikes};
pub use statistics::{Calls, Statistics};
