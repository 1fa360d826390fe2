//! The `user` lines: words of any bytes, whose meaning another room knows ([`crate::acl`]).

use super::values::escape;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A user's name and its rules.
pub type UserLine = Vec<Vec<u8>>;

/// The users as the file has them, and, once the server runs, as CONFIG REWRITE has to write them: one set for all copies
/// of a configuration, since ACL SETUSER changes it.
#[derive(Clone, Debug, Default)]
pub struct UserLines(Arc<Mutex<Vec<UserLine>>>);

impl UserLines {
    fn lock(&self) -> MutexGuard<'_, Vec<UserLine>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self) -> Vec<UserLine> {
        self.lock().clone()
    }

    pub fn replace(&self, lines: Vec<UserLine>) {
        *self.lock() = lines;
    }

    pub(super) fn push(&self, line: UserLine) {
        self.lock().push(line);
    }

    /// Those that say what would not be so without them.
    pub(super) fn told(&self) -> Vec<UserLine> {
        let mut lines = self.get();
        lines.retain(|line| !is_plain_default(line));
        lines
    }
}

/// Whether a line says of the default user what is so anyway: CONFIG REWRITE of Redis leaves such a line in every file.
fn is_plain_default(line: &UserLine) -> bool {
    const RULES: &[&[&str]] = &[
        &["on"],
        &["nopass"],
        &["~*", "allkeys"],
        &["&*", "allchannels"],
        &["+@all", "allcommands"],
        &["sanitize-payload", "skip-sanitize-payload"],
    ];
    let says = |words: &[&str], rule: &Vec<u8>| words.iter().any(|word| rule.eq_ignore_ascii_case(word.as_bytes()));
    let Some((name, rules)) = line.split_first() else { return false };
    name == b"default"
        && rules.iter().all(|rule| RULES.iter().any(|words| says(words, rule)))
        && RULES[..RULES.len() - 1].iter().all(|words| rules.iter().any(|rule| says(words, rule)))
}

/// A line of a file.
pub(super) fn line(words: &UserLine) -> Vec<u8> {
    let mut text = b"user".to_vec();
    for word in words {
        text.push(b' ');
        let is_selector = word.starts_with(b"(");
        let is_plain = |byte: &u8| {
            (byte.is_ascii_graphic() || *byte == b' ' && is_selector) && !matches!(byte, b'"' | b'\'' | b'\\')
        };
        if !word.is_empty() && word.iter().all(is_plain) {
            text.extend_from_slice(word);
        } else {
            text.push(b'"');
            word.iter().for_each(|byte| escape(*byte, &mut text));
            text.push(b'"');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::split_arguments;

    fn words(text: &[&[u8]]) -> UserLine {
        text.iter().map(|word| word.to_vec()).collect()
    }

    #[test]
    fn lines_are_read_as_they_are_written() {
        for line_words in [
            words(&[b"anna", b"on", b"~a", b"+get"]),
            words(&[b"", b"on"]),
            words(&[b"\xff\"'\\", b"~\x01", b"&\xc3\xa9"]),
            words(&[b"anna", b"(~\"a\\\"b\" +get)"]),
        ] {
            let text = line(&line_words);
            let again = split_arguments(&text).unwrap();
            assert_eq!(again[1..], line_words[..], "{}", String::from_utf8_lossy(&text));
        }
        let text = line(&words(&[b"anna", b"(~a +get)"]));
        assert_eq!(text, b"user anna (~a +get)", "as Redis writes it");
    }

    #[test]
    fn a_line_about_what_is_so_anyway_is_known() {
        let is_plain = |text: &str| is_plain_default(&text.split(' ').map(|word| word.as_bytes().to_vec()).collect());
        assert!(is_plain("default on nopass ~* &* +@all"));
        assert!(is_plain("default on nopass sanitize-payload allkeys allchannels allcommands"));
        for other in [
            "default on",
            "default on nopass ~* &*",
            "default on nopass ~* &* +@all -get",
            "anna on nopass ~* &* +@all",
        ] {
            assert!(!is_plain(other), "{other}");
        }
    }
}
