//! Users as the configuration (`user` lines) and the ACL file have them.

use super::rule::{RuleError, is_name, join_selectors};
use super::user::User;
use super::users::{DEFAULT, Users};
use super::vocabulary::Vocabulary;
use std::collections::BTreeSet;
use std::fmt;

/// Why the `user` lines of a configuration are not followed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    #[error("A 'user' line has no name")]
    NoName,
    #[error("Usernames can't contain spaces or null characters")]
    Name,
    #[error("Duplicate user found. A user can only be defined once in config files: '{0}'")]
    Duplicate(String),
    #[error("Error in the declaration of user '{user}': {error}")]
    Rules { user: String, error: String },
}

/// What is wrong with an ACL file, in the words of Redis.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FileErrors(Vec<u8>);

impl FileErrors {
    pub fn text(&self) -> &[u8] {
        &self.0
    }

    /// The file is not there, or cannot be read.
    pub fn unreadable(path: &str, reason: &str) -> FileErrors {
        FileErrors(format!("Error loading ACLs, opening file '{path}': {reason}").into_bytes())
    }

    fn add(&mut self, parts: &[&[u8]]) {
        self.0.extend(parts.concat());
    }
}

impl fmt::Display for FileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl Users {
    /// The users that a configuration declares, each by its name and its rules. The password is the default user's, where
    /// no line is about it.
    pub fn declared(
        vocabulary: &Vocabulary,
        lines: &[Vec<Vec<u8>>],
        requirepass: &[u8],
        all_channels: bool,
    ) -> Result<Users, LineError> {
        let mut users = Users::new(vocabulary);
        users.require(requirepass);
        let mut declared = BTreeSet::new();
        for words in lines {
            let (name, rules) = words.split_first().ok_or(LineError::NoName)?;
            if !is_name(name) {
                return Err(LineError::Name);
            }
            let shown = || String::from_utf8_lossy(name).into_owned();
            if !declared.insert(name) {
                return Err(LineError::Duplicate(shown()));
            }
            let mut user = new_or_default(vocabulary, &users, name, all_channels);
            let rules: Vec<&[u8]> = rules.iter().map(Vec::as_slice).collect();
            user.modify(vocabulary, &rules, all_channels)
                .map_err(|error| LineError::Rules { user: shown(), error: error.for_log() })?;
            users.put(user);
        }
        Ok(users)
    }

    /// The users of an ACL file. Those that are there already under the same name keep their numbers, so that their
    /// connections stay.
    pub fn from_file(
        vocabulary: &Vocabulary,
        (path, text): (&str, &[u8]),
        before: &Users,
        all_channels: bool,
    ) -> Result<Users, FileErrors> {
        let mut users = Users { next_id: before.next_id, ..Users::new(vocabulary) };
        let mut declared = BTreeSet::new();
        let mut errors = FileErrors::default();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = trim(line, b" \t\r");
            if line.is_empty() {
                continue;
            }
            let place = format!("{path}:{}", index + 1);
            let place = place.as_bytes();
            let mut words = line.split(|byte| *byte == b' ');
            let (user, name) = (words.next(), words.next());
            let (Some(b"user"), Some(name)) = (user, name) else {
                errors.add(&[place, b" should start with user keyword followed by the username. "]);
                continue;
            };
            if !is_name(name) {
                errors.add(&[b"'", place, b": username '", name, b"' contains invalid characters. "]);
                continue;
            }
            if !declared.insert(name) {
                let line = (index + 1).to_string();
                errors.add(&[b"WARNING: Duplicate user '", name, b"' found on line ", line.as_bytes(), b". "]);
                continue;
            }
            let mut made = new_or_default(vocabulary, &users, name, all_channels);
            if let Some(known) = before.get(name) {
                made.id = known.id;
            }
            let rules: Vec<&[u8]> = words.map(|word| trim(word, b"\t\r\n")).collect();
            read_rules(vocabulary, &mut made, &rules, all_channels, place, &mut errors);
            users.put(made);
        }
        if errors.0.is_empty() {
            return Ok(users);
        }
        errors.add(&[b"WARNING: ACL errors detected, no change to the previously active ACL rules was performed"]);
        Err(errors)
    }

    /// The text of an ACL file with these users.
    pub fn file(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for user in self.iter() {
            text.extend(user.line());
            text.push(b'\n');
        }
        text
    }

    /// What a configuration has to say of them, each user by its name and its rules. The default user is left out where it
    /// is what it would be with this password anyway.
    pub fn declarations(&self, vocabulary: &Vocabulary, requirepass: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let mut plain = Users::new(vocabulary);
        plain.require(requirepass);
        let is_told = |user: &&std::sync::Arc<User>| *user.name != *DEFAULT || *user != plain.default_user();
        let of_user = |user: &std::sync::Arc<User>| {
            std::iter::once(user.name.to_vec()).chain(user.words()).collect::<Vec<Vec<u8>>>()
        };
        self.iter().filter(is_told).map(of_user).collect()
    }
}

/// The default user that a line is about has nothing any more of what it had.
fn new_or_default(vocabulary: &Vocabulary, users: &Users, name: &[u8], all_channels: bool) -> User {
    let id = if name == DEFAULT { users.default_user().id } else { users.next_id };
    User::new(vocabulary, id, name, all_channels)
}

/// Of the unknown names all are told; of other mistakes the first, since it makes others.
fn read_rules(
    vocabulary: &Vocabulary,
    user: &mut User,
    words: &[&[u8]],
    all_channels: bool,
    place: &[u8],
    errors: &mut FileErrors,
) {
    let Ok(rules) = join_selectors(words) else {
        errors.add(&[place, b": Unmatched parenthesis in selector definition."]);
        return;
    };
    let mut has_failed = false;
    for rule in rules {
        match user.apply(vocabulary, &rule, all_channels) {
            Ok(()) => {}
            Err(error @ RuleError::UnknownName) => {
                let text = error.to_string();
                errors.add(&[place, b": Error in applying operation '", &rule, b"': ", text.as_bytes(), b". "]);
            }
            Err(_) if has_failed => {}
            Err(error) => {
                has_failed = true;
                errors.add(&[place, b": ", error.to_string().as_bytes(), b". "]);
            }
        }
    }
    user.settle();
}

fn trim<'a>(mut bytes: &'a [u8], blanks: &[u8]) -> &'a [u8] {
    while let [first, rest @ ..] = bytes
        && blanks.contains(first)
    {
        bytes = rest;
    }
    while let [rest @ .., last] = bytes
        && blanks.contains(last)
    {
        bytes = rest;
    }
    bytes
}
