//! When snapshots are written by themselves.

use super::values::{Kind, Setting, ValueError, quote};

/// After so many seconds, where there were so many changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavePoint {
    pub seconds: u64,
    pub changes: u64,
}

/// Any of them is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavePoints(pub Vec<SavePoint>);

impl SavePoints {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Setting for SavePoints {
    /// More of them, since a file may have a line for each; none, where there is nothing but an empty word.
    fn read(&mut self, _: &Kind, args: &[&str]) -> Result<(), ValueError> {
        if matches!(args, [] | [""]) {
            self.0.clear();
            return Ok(());
        }
        if !args.len().is_multiple_of(2) {
            return Err(ValueError::SavePoint);
        }
        let number = |text: &str| text.parse::<i32>().ok().and_then(|number| u64::try_from(number).ok());
        for pair in args.chunks_exact(2) {
            let seconds = number(pair[0]).filter(|seconds| *seconds > 0).ok_or(ValueError::SavePoint)?;
            let changes = number(pair[1]).ok_or(ValueError::SavePoint)?;
            self.0.push(SavePoint { seconds, changes });
        }
        Ok(())
    }

    fn show(&self) -> String {
        let points = self.0.iter().map(|point| format!("{} {}", point.seconds, point.changes));
        points.collect::<Vec<_>>().join(" ")
    }

    fn line(&self, _: &Kind) -> String {
        if self.is_empty() { quote("") } else { self.show() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up_and_an_empty_one_clears() {
        let mut points = SavePoints::default();
        let mut read = |args: &[&str]| points.read(&Kind::SavePoints, args).map(|()| points.show());
        assert_eq!(read(&["3600", "1"]), Ok("3600 1".into()));
        assert_eq!(read(&["300", "100", "60", "10000"]), Ok("3600 1 300 100 60 10000".into()));
        for wrong in [&["60"][..], &["0", "1"], &["-1", "1"], &["60", "-1"], &["x", "1"], &["60", "1", "5"]] {
            assert_eq!(read(wrong), Err(ValueError::SavePoint), "{wrong:?}");
        }
        assert_eq!(read(&[""]), Ok(String::new()));
        assert_eq!(points.line(&Kind::SavePoints), "\"\"");
    }
}
