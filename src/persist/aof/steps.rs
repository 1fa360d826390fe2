//! Steps of the wall clock. A file of the log says deadlines in the time of the wall clock as it was when the file was
//! begun. Should somebody set the clock, then the manifest says so, in lines that are comments to Redis, and whoever
//! reads the file adds the steps:
//!
//! ```text
//! #EMBER CLOCK <by how many milliseconds the clock was set since> <name of the file>
//! ```

use super::manifest::Manifest;
use crate::config::{quote, split_arguments};
use std::collections::BTreeMap;
use std::fmt::Write;

const LINE: &str = "#EMBER CLOCK ";
/// What is less may be the error of two readings of the clocks.
const STEP_MS: u64 = 10;

#[derive(Clone)]
pub struct Steps {
    /// All steps since a file was begun, added up; files without any are left out.
    of_files: BTreeMap<String, i64>,
    /// Wall time minus store time, with the last step.
    offset_ms: i64,
}

impl Steps {
    /// Of no files, while the clock is so far ahead of store time.
    pub fn new(offset_ms: i64) -> Steps {
        Steps { of_files: BTreeMap::new(), offset_ms }
    }

    /// What a manifest's text says.
    pub fn parse(text: &str, offset_ms: i64) -> Steps {
        let line = |line: &str| {
            let (by_ms, name) = line.strip_prefix(LINE)?.split_once(' ')?;
            let name = String::from_utf8(split_arguments(name.as_bytes())?.into_iter().next()?).ok()?;
            Some((name, by_ms.parse().ok()?))
        };
        Steps { of_files: text.lines().filter_map(line).collect(), offset_ms }
    }

    /// The lines about the files of a manifest.
    pub fn text(&self, manifest: &Manifest) -> String {
        let mut text = String::new();
        for entry in manifest.files() {
            if let Some(by_ms) = self.of_files.get(&entry.name) {
                writeln!(text, "{LINE}{by_ms} {}", quote(&entry.name)).expect("writing to memory");
            }
        }
        text
    }

    /// By how much the clock was set since a file was begun.
    pub fn since(&self, name: &str) -> i64 {
        self.of_files.get(name).copied().unwrap_or(0)
    }

    /// How far the clock is ahead of store time in the eyes of who writes to a file.
    pub fn offset_of(&self, name: &str) -> i64 {
        self.offset_ms - self.since(name)
    }

    /// Whether the clock was set since it was looked at last.
    pub fn is_new(&self, offset_ms: i64) -> bool {
        offset_ms.abs_diff(self.offset_ms) >= STEP_MS
    }

    /// Takes note of how far the clock is ahead of store time; by how much it was set, if it was.
    pub fn take(&mut self, offset_ms: i64, manifest: &Manifest) -> Option<i64> {
        if !self.is_new(offset_ms) {
            return None;
        }
        let by_ms = offset_ms.saturating_sub(self.offset_ms);
        self.offset_ms = offset_ms;
        for entry in manifest.files() {
            *self.of_files.entry(entry.name.clone()).or_default() += by_ms;
        }
        self.of_files.retain(|name, by_ms| *by_ms != 0 && manifest.files().any(|entry| entry.name == *name));
        Some(by_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up_for_the_files_that_are_there() {
        let mut manifest = Manifest::default();
        let first = manifest.add_increment("a b.aof");
        let mut steps = Steps::new(1_000);
        assert_eq!(steps.take(1_009, &manifest), None);
        assert_eq!(steps.take(3_601_000, &manifest), Some(3_600_000));
        let second = manifest.add_increment("a b.aof");
        assert_eq!((steps.since(&first), steps.since(&second)), (3_600_000, 0));
        assert_eq!((steps.offset_of(&first), steps.offset_of(&second)), (1_000, 3_601_000));
        assert_eq!(steps.take(3_600_000, &manifest), Some(-1_000));
        let text = format!("{}{}", manifest.text(), steps.text(&manifest));
        assert!(
            text.ends_with("#EMBER CLOCK 3599000 \"a b.aof.1.incr.aof\"\n#EMBER CLOCK -1000 \"a b.aof.2.incr.aof\"\n"),
            "{text}"
        );
        assert_eq!(Manifest::parse(&text).as_ref(), Ok(&manifest));
        let read = Steps::parse(&text, 5);
        assert_eq!(
            (read.since(&first), read.since(&second), read.offset_of(&first)),
            (3_599_000, -1_000, 5 - 3_599_000)
        );
        assert_eq!(steps.take(1_000, &manifest), Some(-3_599_000));
        assert_eq!((steps.since(&first), steps.text(&Manifest::default())), (0, String::new()));
        for text in ["#EMBER CLOCK x a\n", "#EMBER CLOCK 1\n", "#EMBER CLOCK 1 \n", "#EMBER CLOCK 1 \"\n"] {
            assert!(Steps::parse(text, 0).of_files.is_empty(), "{text}");
        }
    }
}
