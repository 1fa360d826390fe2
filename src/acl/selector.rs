//! A selector: which commands may be used on which keys and channels. A user has one of its own, the root, and others.

use super::pattern::Pattern;
use super::question::{Denied, Question};
use super::rule::{RuleError, is_name};
use super::vocabulary::Vocabulary;
use crate::command::describe::Access;

/// What may be done with the keys that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    pattern: Pattern,
    access: Access,
}

/// What follows `+` or `-`: a command, a subcommand, a first argument, a category. Which of them mean what is decided when
/// they are said; they are kept to be written as they were said.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandRule {
    allows: bool,
    what: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// A bit for each command.
    allowed: Box<[u64]>,
    /// All commands are allowed, and no rule says more.
    all_commands: bool,
    /// What the rules start from: all commands, or none.
    starts_with_all: bool,
    rules: Vec<CommandRule>,
    /// First arguments with which a command is allowed that is not: the command's number, and the argument.
    first_args: Vec<(usize, Box<[u8]>)>,
    all_keys: bool,
    patterns: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Pattern>,
}

const WORD_BITS: usize = u64::BITS as usize;

impl Selector {
    /// One that allows nothing, channels perhaps excepted.
    pub fn new(vocabulary: &Vocabulary, all_channels: bool) -> Selector {
        Selector {
            allowed: vec![0; vocabulary.count().div_ceil(WORD_BITS)].into(),
            all_commands: false,
            starts_with_all: false,
            rules: Vec::new(),
            first_args: Vec::new(),
            all_keys: false,
            patterns: Vec::new(),
            all_channels,
            channels: Vec::new(),
        }
    }

    /// Whether a command is allowed, whatever its first argument is.
    pub fn has_command(&self, index: usize) -> bool {
        self.has_bit(index)
    }

    /// Whether nothing is asked of it.
    pub fn allows_everything(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels
    }

    /// How many there are to look at.
    pub fn rules(&self) -> usize {
        self.rules.len() + self.first_args.len() + self.patterns.len() + self.channels.len()
    }

    /// One more rule.
    pub fn apply(&mut self, vocabulary: &Vocabulary, rule: &[u8]) -> Result<(), RuleError> {
        let is = |words: &[&str]| words.iter().any(|word| rule.eq_ignore_ascii_case(word.as_bytes()));
        match rule {
            _ if is(&["allkeys", "~*"]) => self.set_keys(true),
            _ if is(&["resetkeys"]) => self.set_keys(false),
            _ if is(&["allchannels", "&*"]) => self.set_channels(true),
            _ if is(&["resetchannels"]) => self.set_channels(false),
            _ if is(&["allcommands", "+@all"]) => self.set_commands(true),
            _ if is(&["nocommands", "-@all"]) => self.set_commands(false),
            [b'~', pattern @ ..] => return self.add_pattern(pattern, Access { read: true, write: true }),
            [b'%', rest @ ..] => {
                if self.all_keys {
                    return Err(RuleError::KeysAfterAll);
                }
                let (access, pattern) = parse_access(rest)?;
                return self.add_pattern(pattern, access);
            }
            [b'&', pattern @ ..] => return self.add_channel(pattern),
            [sign @ (b'+' | b'-'), b'@', category @ ..] => {
                let allows = *sign == b'+';
                let commands = vocabulary.of_category(category).ok_or(RuleError::UnknownName)?;
                commands.for_each(|index| self.set_command(vocabulary, index, allows));
                self.note(vocabulary, allows, rule[1..].to_ascii_lowercase());
            }
            [b'+', name @ ..] => return self.allow(vocabulary, name),
            [b'-', name @ ..] => {
                let index = vocabulary.find(name).ok_or(RuleError::UnknownName)?;
                self.set_command(vocabulary, index, false);
                self.note(vocabulary, false, name.to_ascii_lowercase());
            }
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn set_keys(&mut self, all: bool) {
        self.all_keys = all;
        self.patterns.clear();
    }

    fn set_channels(&mut self, all: bool) {
        self.all_channels = all;
        self.channels.clear();
    }

    fn set_commands(&mut self, all: bool) {
        self.allowed.fill(if all { u64::MAX } else { 0 });
        (self.all_commands, self.starts_with_all) = (all, all);
        self.rules.clear();
        self.first_args.clear();
    }

    /// Allows or forbids a command, all that it groups, and whatever its first argument is.
    fn set_command(&mut self, vocabulary: &Vocabulary, index: usize, allows: bool) {
        self.set_bit(index, allows);
        self.first_args.retain(|(command, _)| *command != index);
        vocabulary.get(index).subcommands.iter().for_each(|subcommand| self.set_bit(*subcommand, allows));
    }

    /// In the words of nobody: two that allow the same are equal then.
    #[cfg(test)]
    pub fn without_words(mut self) -> Selector {
        self.rules.clear();
        self.starts_with_all = false;
        let mut first_args = std::mem::take(&mut self.first_args);
        first_args.retain(|(command, _)| !self.has_bit(*command));
        first_args.sort();
        Selector { first_args, ..self }
    }

    fn set_bit(&mut self, index: usize, allows: bool) {
        let bit = 1 << (index % WORD_BITS);
        if allows {
            self.allowed[index / WORD_BITS] |= bit;
        } else {
            self.allowed[index / WORD_BITS] &= !bit;
        }
    }

    fn has_bit(&self, index: usize) -> bool {
        self.allowed[index / WORD_BITS] & 1 << (index % WORD_BITS) != 0
    }

    fn allow(&mut self, vocabulary: &Vocabulary, name: &[u8]) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            let index = vocabulary.find(name).ok_or(RuleError::UnknownName)?;
            self.set_command(vocabulary, index, true);
            self.note(vocabulary, true, name.to_ascii_lowercase());
            return Ok(());
        };
        let (command, behind) = (&name[..bar], &name[bar + 1..]);
        let index = vocabulary.find(command).ok_or(RuleError::UnknownName)?;
        let known = vocabulary.get(index);
        if known.is_subcommand {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        if behind.is_empty() || !is_name(behind) {
            return Err(RuleError::Syntax);
        }
        if known.subcommands.is_empty() {
            let behind: Box<[u8]> = behind.to_ascii_lowercase().into();
            self.first_args.retain(|(of, arg)| *of != index || *arg != behind);
            self.first_args.push((index, behind));
        } else {
            let subcommand = vocabulary.find(name).ok_or(RuleError::UnknownName)?;
            self.set_command(vocabulary, subcommand, true);
        }
        self.note(vocabulary, true, name.to_ascii_lowercase());
        Ok(())
    }

    /// Keeps a rule to be written. What it says anew is dropped: the same, and of a command what it groups; and all rules
    /// where they come to what was so before the first of them.
    fn note(&mut self, vocabulary: &Vocabulary, allows: bool, what: Vec<u8>) {
        self.rules.retain(|rule| {
            let rest = rule.what.strip_prefix(&what[..]);
            !rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'|')))
        });
        self.rules.push(CommandRule { allows, what: what.into() });
        self.all_commands = false;
        let is_as_before = (0..vocabulary.count()).all(|index| self.has_bit(index) == self.starts_with_all);
        if is_as_before && (self.starts_with_all || self.first_args.is_empty()) {
            self.set_commands(self.starts_with_all);
        }
    }

    fn add_pattern(&mut self, pattern: &[u8], access: Access) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::KeysAfterAll);
        }
        if !is_name(pattern) {
            return Err(RuleError::Syntax);
        }
        match self.patterns.iter_mut().find(|known| known.pattern.text() == pattern) {
            Some(known) => known.access = known.access.and(access),
            None => self.patterns.push(KeyPattern { pattern: Pattern::new(pattern), access }),
        }
        Ok(())
    }

    fn add_channel(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::ChannelsAfterAll);
        }
        if !is_name(pattern) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| known.text() == pattern) {
            self.channels.push(Pattern::new(pattern));
        }
        Ok(())
    }

    /// Whether a request may run by this selector alone.
    pub fn check(&self, question: &Question) -> Result<(), Denied> {
        if !self.allows_command(question) {
            return Err(Denied::Command);
        }
        if !self.all_keys {
            let lacks = |&(index, access): &(usize, Access)| !self.allows_key(question.request.arg(index), access);
            let denied = match question.only_key() {
                Some(only) => Some(only).filter(lacks),
                None => question.keys().iter().copied().find(lacks),
            };
            if let Some((index, _)) = denied {
                return Err(Denied::Key(index));
            }
        }
        if !self.all_channels {
            let literal = question.names_patterns();
            let mut channels = question.channels();
            if let Some(index) = channels.find(|index| !self.allows_channel(question.request.arg(*index), literal)) {
                return Err(Denied::Channel(index));
            }
        }
        Ok(())
    }

    fn allows_command(&self, question: &Question) -> bool {
        if self.all_commands || question.known.is_open || self.has_bit(question.id) {
            return true;
        }
        let Some(argument) = question.first_argument() else { return false };
        self.first_args.iter().any(|(index, arg)| *index == question.id && arg.eq_ignore_ascii_case(argument))
    }

    /// What is only looked at (its type, its deadline) needs some pattern, with whatever letters.
    fn allows_key(&self, key: &[u8], access: Access) -> bool {
        let has = |known: &&KeyPattern| known.access.covers(access);
        self.patterns.iter().filter(has).any(|known| known.pattern.matches(key))
    }

    pub fn writes(&self, key: &[u8]) -> bool {
        self.all_keys || self.allows_key(key, Access { read: false, write: true })
    }

    /// Whether a channel may be used; of a pattern of channels, whether it was allowed as such.
    pub fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let allows = |known: &Pattern| if is_pattern { known.text() == channel } else { known.matches(channel) };
        self.all_channels || self.channels.iter().any(allows)
    }

    pub fn has_all_channels(&self) -> bool {
        self.all_channels
    }

    /// Whether it may read all keys.
    pub fn reads_all_keys(&self) -> bool {
        self.all_keys || self.patterns.iter().any(|known| known.access.read && known.pattern.text() == b"*")
    }

    /// Whether it may read all keys that begin so.
    pub fn reads_prefix(&self, prefix: &[u8]) -> bool {
        self.reads_all_keys()
            || self
                .patterns
                .iter()
                .filter(|known| known.access.read)
                .any(|known| known.pattern.prefix().is_some_and(|head| prefix.starts_with(head)))
    }

    /// Its rules about commands, as GETUSER shows them.
    pub fn commands(&self) -> Vec<u8> {
        let mut text = if self.starts_with_all { b"+@all".to_vec() } else { b"-@all".to_vec() };
        for rule in &self.rules {
            text.extend_from_slice(if rule.allows { b" +" } else { b" -" });
            text.extend_from_slice(&rule.what);
        }
        text
    }

    /// Its rules about keys, each a word.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        if self.all_keys {
            return vec![b"~*".to_vec()];
        }
        let word = |known: &KeyPattern| {
            let letters: &[u8] = match known.access {
                Access { read: true, write: false } => b"%R~",
                Access { read: false, write: true } => b"%W~",
                // (Behind `~*`, which Redis writes here, it would take no other pattern when it reads that again.)
                _ if known.pattern.text() == b"*" => b"%RW~",
                _ => b"~",
            };
            [letters, known.pattern.text()].concat()
        };
        self.patterns.iter().map(word).collect()
    }

    /// Its rules about channels, each a word.
    pub fn channels(&self) -> Vec<Vec<u8>> {
        if self.all_channels {
            return vec![b"&*".to_vec()];
        }
        self.channels.iter().map(|pattern| [b"&", pattern.text()].concat()).collect()
    }

    /// All its rules, each a word, such that they make the same selector of a new one.
    pub fn words(&self) -> Vec<Vec<u8>> {
        let mut words = self.keys();
        if !self.all_channels {
            words.push(b"resetchannels".to_vec());
        }
        words.extend(self.channels());
        words.extend(self.commands().split(|byte| *byte == b' ').map(<[u8]>::to_vec));
        words
    }
}

/// The letters between `%` and `~`, and the pattern.
fn parse_access(rest: &[u8]) -> Result<(Access, &[u8]), RuleError> {
    let mut access = Access::default();
    for (at, letter) in rest.iter().enumerate() {
        match letter {
            b'R' | b'r' if !access.read => access.read = true,
            b'W' | b'w' if !access.write => access.write = true,
            // (A pattern without letters would allow nothing, and is what brought servers down: CVE-2024-31227.)
            b'~' if access != Access::default() => return Ok((access, &rest[at + 1..])),
            _ => return Err(RuleError::Syntax),
        }
    }
    // (That letters without a pattern stand for the empty one Redis takes, too.)
    if access == Access::default() { Err(RuleError::Syntax) } else { Ok((access, b"")) }
}
