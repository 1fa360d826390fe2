//! What is counted and measured: histograms of lag, memory, the log. Read by INFO.

mod lag;
pub mod log;
pub mod memory;

pub use lag::Lag;
