//! The append-only log: every change, as commands that make it again, in the multi-part form of Redis 7.
//!
//! - [`log`]: what is written, when, and when it is on the disk
//! - [`reading`]: a log from its first file to its last, as far as it is whole
//! - [`manifest`]: which files make it
//! - [`batch`]: how it is protected against damage

pub mod batch;
pub mod log;
pub mod manifest;
pub mod reading;

/// Why something on the disk has failed, without the number that Rust adds.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(reason, _)| reason).to_owned()
}
