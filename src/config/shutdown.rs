//! What is done before the end that a signal asks for.

use super::values::{Kind, Setting, ValueError};

/// What SHUTDOWN can be asked for, and the directives of signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownFlags {
    /// Save where there are no save points, too.
    pub save: bool,
    /// Do not save where there are.
    pub no_save: bool,
    /// Do not wait for replicas.
    pub now: bool,
    /// End even where saving fails.
    pub force: bool,
}

impl ShutdownFlags {
    /// In the order in which they are shown.
    pub const WORDS: &[&str] = &["default", "save", "nosave", "now", "force"];

    /// The flag that this word stands for, in any case of letters.
    pub fn named(&mut self, word: &str) -> Option<&mut bool> {
        let at = Self::WORDS.iter().position(|name| name.eq_ignore_ascii_case(word))?;
        [None, Some(&mut self.save), Some(&mut self.no_save), Some(&mut self.now), Some(&mut self.force)]
            .into_iter()
            .nth(at)?
    }

    pub fn saves(&self, has_save_points: bool) -> bool {
        self.save || has_save_points && !self.no_save
    }
}

impl Setting for ShutdownFlags {
    fn read(&mut self, _: &Kind, args: &[&str]) -> Result<(), ValueError> {
        let mut flags = ShutdownFlags::default();
        for word in args {
            if !word.eq_ignore_ascii_case(Self::WORDS[0]) {
                *flags.named(word).ok_or(ValueError::NotAChoice(Self::WORDS))? = true;
            }
        }
        if args.is_empty() {
            return Err(ValueError::NotAChoice(Self::WORDS));
        }
        if flags.save && flags.no_save {
            return Err(ValueError::SaveAndNoSave);
        }
        *self = flags;
        Ok(())
    }

    fn show(&self) -> String {
        let set = [*self == ShutdownFlags::default(), self.save, self.no_save, self.now, self.force];
        let words = Self::WORDS.iter().zip(set).filter(|(_, is_set)| *is_set).map(|(word, _)| *word);
        words.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As redis-server 7.0.15 shows them.
    #[test]
    fn words_are_shown_in_one_order_and_exclude_each_other() {
        let shown = |words: &[&str]| {
            let mut flags = ShutdownFlags { force: true, ..ShutdownFlags::default() };
            flags.read(&Kind::Words(ShutdownFlags::WORDS), words).map(|()| flags.show())
        };
        assert_eq!(shown(&["default"]), Ok("default".into()));
        assert_eq!(shown(&["Force", "now", "NOSAVE"]), Ok("nosave now force".into()));
        assert_eq!(shown(&["default", "save"]), Ok("save".into()));
        assert_eq!(shown(&["nosave", "save"]), Err(ValueError::SaveAndNoSave));
        for wrong in [&["", "now"][..], &["now", "abort"], &[]] {
            assert_eq!(shown(wrong), Err(ValueError::NotAChoice(ShutdownFlags::WORDS)));
        }
    }

    #[test]
    fn save_points_save_unless_told_otherwise() {
        let flags = |word: &str| {
            let mut flags = ShutdownFlags::default();
            if let Some(flag) = flags.named(word) {
                *flag = true;
            }
            flags
        };
        for (word, without, with) in [("default", false, true), ("save", true, true), ("nosave", false, false)] {
            assert_eq!((flags(word).saves(false), flags(word).saves(true)), (without, with), "{word}");
        }
    }
}
