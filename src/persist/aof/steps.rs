//! Steps of the wall clock. A file of the log says deadlines in the time of the wall clock as it was when the file was
//! begun. Should somebody set the clock, then the manifest says so, in lines that are comments to Redis, and whoever
//! reads the file adds the steps:
//!
//! ```text
//! #EMBER CLOCK <by how many milliseconds the clock was set since> <name of the file>
//! ```
//!
//! A base that is a snapshot says when it was begun. A wall clock that is behind that moment at a start is not set yet, as on
//! a machine without a battery, or was set back meanwhile. Then the log's time goes on from that moment, until the wall
//! clock has passed it: lifetimes go on as if the server had not been away, and nothing of 1970 gets into the log.

use super::manifest::{Entry, Manifest};
use crate::config::{quote, split_arguments};
use std::collections::BTreeMap;
use std::fmt::Write;

const CLOCK: &str = "#EMBER CLOCK ";
/// What is less may be the error of two readings of the clocks.
const STEP_MS: u64 = 10;

#[derive(Clone)]
pub struct Steps {
    /// How far the times that a file says are ahead of store time.
    of_files: BTreeMap<String, i64>,
    /// The same for the log's time now, which is that of the wall clock with the last step ...
    offset_ms: i64,
    /// ... or this, as long as that is more.
    least_ms: Option<i64>,
}

impl Steps {
    /// Of no files, while the wall clock is so far ahead of store time.
    pub fn new(offset_ms: i64) -> Steps {
        Steps { of_files: BTreeMap::new(), offset_ms, least_ms: None }
    }

    /// What the text of a manifest says. `begun_ms`: when its base was begun, less store time now.
    pub fn parse(text: &str, manifest: &Manifest, wall_offset_ms: i64, begun_ms: Option<i64>) -> Steps {
        let clock = |line: &str| {
            let (by_ms, name) = line.strip_prefix(CLOCK)?.split_once(' ')?;
            let name = String::from_utf8(split_arguments(name.as_bytes())?.into_iter().next()?).ok()?;
            Some((name, by_ms.parse::<i64>().ok()?))
        };
        let said: BTreeMap<String, i64> = text.lines().filter_map(clock).collect();
        let by_ms = |entry: &Entry| said.get(&entry.name).copied().unwrap_or(0);
        let since_ms = manifest.base.as_ref().map_or(0, by_ms);
        let least_ms = begun_ms.map(|ms| ms.saturating_add(since_ms)).filter(|ms| *ms > wall_offset_ms);
        let offset_ms = least_ms.unwrap_or(wall_offset_ms);
        let of_file = |entry: &Entry| (entry.name.clone(), offset_ms.saturating_sub(by_ms(entry)));
        Steps { of_files: manifest.files().map(of_file).collect(), offset_ms, least_ms }
    }

    /// The lines about the files of a manifest.
    pub fn text(&self, manifest: &Manifest) -> String {
        let mut text = String::new();
        for entry in manifest.files() {
            let by_ms = self.offset_ms.saturating_sub(self.offset_of(&entry.name));
            if by_ms != 0 {
                writeln!(text, "{CLOCK}{by_ms} {}", quote(&entry.name)).expect("writing to memory");
            }
        }
        text
    }

    /// A file is begun in which times are so far ahead of store time.
    pub fn begin(&mut self, name: String, offset_ms: i64) {
        self.of_files.insert(name, offset_ms);
    }

    /// How far the times that a file says are ahead of store time.
    pub fn offset_of(&self, name: &str) -> i64 {
        self.of_files.get(name).copied().unwrap_or(self.offset_ms)
    }

    /// How far the log's time is ahead of store time since the wall clock was looked at last.
    pub fn offset_ms(&self) -> i64 {
        self.offset_ms
    }

    /// Whether the wall clock was set since it was looked at last.
    pub fn is_new(&self, wall_offset_ms: i64) -> bool {
        self.log_offset_ms(wall_offset_ms).abs_diff(self.offset_ms) >= STEP_MS
    }

    fn log_offset_ms(&self, wall_offset_ms: i64) -> i64 {
        self.least_ms.map_or(wall_offset_ms, |least_ms| wall_offset_ms.max(least_ms))
    }

    /// Takes note of how far the wall clock is ahead of store time; by how much the log's time was set, if it was.
    pub fn take(&mut self, wall_offset_ms: i64) -> Option<i64> {
        if !self.is_new(wall_offset_ms) {
            return None;
        }
        let offset_ms = self.log_offset_ms(wall_offset_ms);
        let before_ms = std::mem::replace(&mut self.offset_ms, offset_ms);
        self.least_ms = self.least_ms.filter(|least_ms| wall_offset_ms < *least_ms);
        Some(self.offset_ms.saturating_sub(before_ms))
    }

    /// Forgets the files that a manifest does not have any more; those that are new to the steps say times as of now.
    pub fn follow(&mut self, manifest: &Manifest) {
        let of_file = |entry: &Entry| (entry.name.clone(), self.offset_of(&entry.name));
        self.of_files = manifest.files().map(of_file).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up_for_the_files_that_are_there() {
        let mut manifest = Manifest::default();
        let mut steps = Steps::new(1_000);
        let first = manifest.add_increment("a b.aof");
        steps.begin(first.clone(), 1_000);
        assert_eq!(steps.take(1_009), None);
        assert_eq!(steps.take(3_601_000), Some(3_600_000));
        let second = manifest.add_increment("a b.aof");
        steps.begin(second.clone(), steps.offset_ms());
        assert_eq!((steps.offset_of(&first), steps.offset_of(&second)), (1_000, 3_601_000));
        assert_eq!(steps.take(3_600_000), Some(-1_000));
        let text = format!("{}{}", manifest.text(), steps.text(&manifest));
        let lines = "#EMBER CLOCK 3599000 \"a b.aof.1.incr.aof\"\n#EMBER CLOCK -1000 \"a b.aof.2.incr.aof\"\n";
        assert!(text.ends_with(lines), "{text}");
        assert_eq!(Manifest::parse(&text).as_ref(), Ok(&manifest));
        let read = Steps::parse(&text, &manifest, 3_700_000, None);
        assert_eq!((read.offset_of(&first), read.offset_of(&second)), (101_000, 3_701_000));
        assert_eq!(steps.take(1_000), Some(-3_599_000));
        assert_eq!(steps.text(&Manifest::default()), "");
        let third = manifest.add_increment("a b.aof");
        steps.follow(&manifest);
        steps.take(5_000);
        assert_eq!((steps.offset_of(&first), steps.offset_of(&third)), (1_000, 1_000));
        steps.follow(&Manifest::default());
        assert!(steps.of_files.is_empty());
        for text in ["#EMBER CLOCK x a\n", "#EMBER CLOCK 1\n", "#EMBER CLOCK 1 \n", "#EMBER CLOCK 1 \"\n"] {
            let read = Steps::parse(text, &manifest, 9, None);
            assert_eq!((read.offset_of(&first), read.offset_of(&second)), (9, 9), "{text}");
        }
    }

    /// It is known by its name only when it is complete.
    #[test]
    fn a_base_gets_the_steps_since_it_was_begun() {
        let mut manifest = Manifest::default();
        let mut steps = Steps::new(1_000);
        let begun_ms = steps.offset_ms();
        steps.take(9_000);
        let name = manifest.add_increment("a");
        steps.begin(name, begun_ms);
        assert!(steps.text(&manifest).contains("CLOCK 8000 "));
    }

    #[test]
    fn the_logs_time_goes_on_where_the_wall_clock_is_behind() {
        let manifest = Manifest::default().rebased("base".to_owned(), 1, 0);
        let mut steps = Steps::new(1_000_000);
        steps.begin("base".to_owned(), 999_500);
        let text = steps.text(&manifest);
        // It was begun at 999,540, and the clock was set by 500 since. Now the clock says 5.
        let mut read = Steps::parse(&text, &manifest, 3, Some(999_540 - 2));
        assert_eq!((read.offset_ms(), read.offset_of("base")), (1_000_038, 999_538));
        assert_eq!((read.take(3), read.take(900_000)), (None, None));
        assert_eq!(read.take(1_000_138), Some(100));
        assert!(read.text(&manifest).starts_with("#EMBER CLOCK 600 "));
        // Once it was right a step is a step.
        assert_eq!(read.take(3), Some(-1_000_135));
        // Neither is one behind that was set back while the server ran.
        let set_back = "#EMBER CLOCK -5000 base\n";
        assert_eq!(Steps::parse(set_back, &manifest, 996_000, Some(1_000_000)).offset_ms(), 996_000);
    }
}
