//! Directives as the generated texts show them.

use crate::config::directive::Directive;
use crate::config::directives::DIRECTIVES;

/// The directives by chapter, in the order of the table.
pub(super) fn chapters() -> impl Iterator<Item = &'static [Directive]> {
    DIRECTIVES.chunk_by(|a, b| a.group == b.group)
}

/// Those chapters whose directives have an effect.
pub(super) fn effective_chapters() -> impl Iterator<Item = &'static [Directive]> {
    chapters().filter(|rows| rows[0].group.absence().is_none())
}

/// Text in lines of at most `width` letters, broken at blanks.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_blanks() {
        assert_eq!(wrapped("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(wrapped("a-word-that-is-long x", 5), ["a-word-that-is-long", "x"]);
        assert_eq!(wrapped("  ", 5), Vec::<String>::new());
    }

    #[test]
    fn a_chapter_comes_once() {
        let titles: Vec<&str> = chapters().map(|rows| rows[0].group.title()).collect();
        let once: std::collections::BTreeSet<&str> = titles.iter().copied().collect();
        assert_eq!(titles.len(), once.len(), "{titles:?}");
    }
}
