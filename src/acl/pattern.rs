//! A pattern of keys or channels. Nearly all are names, or names' beginnings with a star behind them: for these no pattern is walked.

use crate::value::glob::glob_match;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<[u8]>,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Name,
    /// With a star as the last byte, and something before it.
    Prefix,
    Other,
}

impl Pattern {
    pub fn new(text: &[u8]) -> Pattern {
        let special = text.iter().position(|byte| b"*?[\\".contains(byte));
        let form = match special {
            None => Form::Name,
            Some(at) if at > 0 && text[at..] == *b"*" => Form::Prefix,
            Some(_) => Form::Other,
        };
        Pattern { text: text.into(), form }
    }

    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The beginning of all names that match, where all that begin so do.
    pub fn prefix(&self) -> Option<&[u8]> {
        if self.form == Form::Prefix { self.text.strip_suffix(b"*") } else { None }
    }

    #[inline]
    pub fn matches(&self, name: &[u8]) -> bool {
        match self.form {
            Form::Name => name == &*self.text,
            Form::Prefix => name.first() == self.text.first() && name.starts_with(&self.text[..self.text.len() - 1]),
            Form::Other => glob_match(&self.text, name, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_matches_is_what_the_pattern_says(pattern in "[ab*?\\\\\\[\\]]{0,4}[*]?", name in "[ab*?]{0,5}") {
            let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(Pattern::new(pattern).matches(name), glob_match(pattern, name, false));
        }
    }
}
