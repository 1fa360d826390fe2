//! The seed of the hash that says which shard owns a key, as the log's manifest keeps it, in a line that is a comment to Redis:
//!
//! ```text
//! #EMBER HASH <seed, hexadecimal>
//! ```
//!
//! A command that ran on one shard is logged as the client sent it. Where a start draws another seed, the command's keys may lie
//! on several shards, and whoever loads the log waits for one shard and then for the next (RENAME of a thousand keys: a thousand
//! times). With the same seed, and as many shards, each command of the log finds its keys on one shard again. Nothing depends on
//! the line but the time that loading takes.

use super::manifest::Manifest;
use std::path::Path;

const HASH: &str = "#EMBER HASH ";

/// The line of a manifest.
pub fn line(seed: u64) -> String {
    format!("{HASH}{seed:016x}\n")
}

/// What the log in this folder was written with, where its manifest says so.
pub fn of_log(folder: &Path, stem: &str) -> Option<u64> {
    read(&std::fs::read_to_string(folder.join(Manifest::name(stem))).ok()?)
}

fn read(text: &str) -> Option<u64> {
    text.lines().find_map(|line| u64::from_str_radix(line.strip_prefix(HASH)?, 16).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_says_its_seed_and_stays_one() {
        let text = format!("file a.1.incr.aof seq 1 type i\n{}", line(0xfeed));
        assert_eq!(read(&text), Some(0xfeed));
        assert_eq!(Manifest::parse(&text).expect("a manifest").increments.len(), 1);
    }

    #[test]
    fn what_is_no_seed_is_none() {
        for text in ["", "#EMBER HASH \n", "#EMBER HASH x\n", "#EMBER HASH 12345678901234567\n", " #EMBER HASH 1\n"] {
            assert_eq!(read(text), None, "{text:?}");
        }
        assert_eq!(of_log(Path::new("/nowhere"), "appendonly.aof"), None);
    }
}
