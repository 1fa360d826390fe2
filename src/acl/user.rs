//! One user: its rules, its passwords, what it may do.

use super::password::Hash;
use super::question::{Denied, Question};
use super::rule::{ModifierError, RULES_MAX, RuleError, join_selectors, write_within_brackets};
use super::selector::Selector;
use super::vocabulary::Vocabulary;
use crate::command::CommandId;
use crate::command::spec::SortPattern;
use crate::config::split_arguments;
use crate::resp::Request;

/// Whether RESTORE's values are looked through; here they always are, so that this is only told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sanitizing {
    #[default]
    Unsaid,
    On,
    Off,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Others of the same name, before or after, have other numbers.
    pub id: u64,
    pub name: Box<[u8]>,
    is_on: bool,
    /// Any password will do.
    no_password: bool,
    sanitizing: Sanitizing,
    passwords: Vec<Hash>,
    root: Selector,
    selectors: Vec<Selector>,
    /// Nothing is asked of it: some selector allows everything.
    is_unrestricted: bool,
}

/// What becomes of somebody who says a name and a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    Welcome,
    Refused,
}

/// The option of SORT for which a user would have to read all keys.
pub type PatternOption = SortPattern;

impl User {
    /// A new user may do nothing, channels perhaps excepted (`acl-pubsub-default`).
    pub fn new(vocabulary: &Vocabulary, id: u64, name: &[u8], all_channels: bool) -> User {
        User {
            id,
            name: name.into(),
            is_on: false,
            no_password: false,
            sanitizing: Sanitizing::Unsaid,
            passwords: Vec::new(),
            root: Selector::new(vocabulary, all_channels),
            selectors: Vec::new(),
            is_unrestricted: false,
        }
    }

    /// The default user as it is before anybody has said otherwise.
    pub fn everything(vocabulary: &Vocabulary, id: u64, name: &[u8]) -> User {
        let mut user = User::new(vocabulary, id, name, true);
        user.is_on = true;
        user.no_password = true;
        for rule in [&b"+@all"[..], b"~*"] {
            user.root.apply(vocabulary, rule).expect("these are rules");
        }
        user.settle();
        user
    }

    /// To be called when all rules are applied.
    pub(super) fn settle(&mut self) {
        let is_unrestricted = self.every_selector().any(Selector::allows_everything);
        self.is_unrestricted = is_unrestricted;
    }

    fn every_selector(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Applies rules, all or none of them.
    pub fn modify(&mut self, vocabulary: &Vocabulary, args: &[&[u8]], all_channels: bool) -> Result<(), ModifierError> {
        let rules = join_selectors(args)?;
        let mut changed = self.clone();
        for rule in rules {
            if let Err(error) = changed.apply(vocabulary, &rule, all_channels) {
                return Err(ModifierError::Rule { rule, error });
            }
        }
        changed.settle();
        *self = changed;
        Ok(())
    }

    /// Applies one rule. One that is refused has no effect, but for the one that is too many.
    pub(super) fn apply(&mut self, vocabulary: &Vocabulary, rule: &[u8], all_channels: bool) -> Result<(), RuleError> {
        self.apply_unbounded(vocabulary, rule, all_channels)?;
        let rules = self.passwords.len() + self.every_selector().map(|selector| selector.rules() + 1).sum::<usize>();
        if rules > RULES_MAX { Err(RuleError::TooMany) } else { Ok(()) }
    }

    fn apply_unbounded(&mut self, vocabulary: &Vocabulary, rule: &[u8], all_channels: bool) -> Result<(), RuleError> {
        match (rule.to_ascii_lowercase().as_slice(), rule) {
            (b"", _) => {}
            (b"on", _) => self.is_on = true,
            (b"off", _) => self.is_on = false,
            (b"nopass", _) => {
                self.no_password = true;
                self.passwords.clear();
            }
            (b"resetpass", _) => {
                self.no_password = false;
                self.passwords.clear();
            }
            (b"skip-sanitize-payload", _) => self.sanitizing = Sanitizing::Off,
            (b"sanitize-payload", _) => self.sanitizing = Sanitizing::On,
            (b"clearselectors", _) => self.selectors.clear(),
            (b"reset", _) => {
                let fresh = User::new(vocabulary, self.id, &self.name, all_channels);
                *self = User { sanitizing: Sanitizing::On, ..fresh };
            }
            (_, [b'>', password @ ..]) => self.add_password(Hash::of(password)),
            (_, [b'#', digits @ ..]) => self.add_password(Hash::parse(digits).ok_or(RuleError::BadHash)?),
            (_, [b'<', password @ ..]) => return self.remove_password(Hash::of(password)),
            (_, [b'!', digits @ ..]) => {
                return self.remove_password(Hash::parse(digits).ok_or(RuleError::BadHash)?);
            }
            (_, [b'(', within @ .., b')']) => {
                let mut selector = Selector::new(vocabulary, all_channels);
                let words = split_arguments(within).ok_or(RuleError::Syntax)?;
                if words.len() > RULES_MAX {
                    return Err(RuleError::TooMany);
                }
                words.iter().try_for_each(|word| selector.apply(vocabulary, word))?;
                self.selectors.push(selector);
            }
            _ => return self.root.apply(vocabulary, rule),
        }
        Ok(())
    }

    fn add_password(&mut self, hash: Hash) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.no_password = false;
    }

    fn remove_password(&mut self, hash: Hash) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| *known == hash).ok_or(RuleError::NoSuchPassword)?;
        self.passwords.remove(at);
        Ok(())
    }

    /// The only password is this one from now on; none where it is empty (`requirepass`).
    pub fn require(&mut self, password: &[u8]) {
        self.passwords.clear();
        self.no_password = password.is_empty();
        if !password.is_empty() {
            self.passwords.push(Hash::of(password));
        }
    }

    /// In the words of nobody: two who may do the same are equal then.
    #[cfg(test)]
    fn without_words(mut self) -> User {
        self.root = self.root.without_words();
        self.selectors = self.selectors.into_iter().map(Selector::without_words).collect();
        self
    }

    pub fn is_on(&self) -> bool {
        self.is_on
    }

    pub fn has_no_password(&self) -> bool {
        self.no_password
    }

    /// Whether everybody is this user without a word, where it is the default one.
    pub fn is_for_everybody(&self) -> bool {
        self.is_on && self.no_password
    }

    /// Nothing is asked of it.
    pub fn is_unrestricted(&self) -> bool {
        self.is_unrestricted
    }

    /// Whether this is its password. All of its passwords are looked at, however soon one is the right one.
    pub fn log_in(&self, password: &[u8]) -> Login {
        if !self.is_on {
            return Login::Refused;
        }
        let given = Hash::of(password);
        let found = self.passwords.iter().fold(false, |found, known| found | known.is(given));
        if self.no_password || found { Login::Welcome } else { Login::Refused }
    }

    /// Whether there are requests to a command that the user may make.
    pub fn may_run(&self, vocabulary: &Vocabulary, name: &[u8]) -> bool {
        vocabulary.find(name).is_some_and(|index| self.every_selector().any(|selector| selector.has_command(index)))
    }

    /// Whether it may run a request: that one selector allows all of it.
    pub fn check(&self, vocabulary: &Vocabulary, command: CommandId, request: Request) -> Result<(), Denied> {
        if self.is_unrestricted {
            return Ok(());
        }
        let question = Question::new(command.index(), vocabulary.known(command), request);
        let mut worst = Denied::Command;
        for selector in self.every_selector() {
            match selector.check(&question) {
                Ok(()) => return Ok(()),
                Err(denied) => worst = worst.max(denied),
            }
        }
        Err(worst)
    }

    /// Which option of SORT names keys that nobody knows beforehand, where no selector that allows the request may read all
    /// keys. (That the request as such is allowed was asked before.)
    pub fn check_patterns(
        &self,
        vocabulary: &Vocabulary,
        command: CommandId,
        request: Request,
    ) -> Result<(), PatternOption> {
        let Some(option) = vocabulary.known(command).spec.keys.sort_pattern(request) else { return Ok(()) };
        if self.reaches(vocabulary, command, request, Selector::reads_all_keys) { Ok(()) } else { Err(option) }
    }

    /// Whether one selector allows a request, and with it what the request does to keys that it does not name as such.
    pub fn reaches(
        &self,
        vocabulary: &Vocabulary,
        command: CommandId,
        request: Request,
        allows: impl Fn(&Selector) -> bool,
    ) -> bool {
        let question = Question::new(command.index(), vocabulary.known(command), request);
        let allows_all = |selector: &Selector| allows(selector) && selector.check(&question).is_ok();
        self.is_unrestricted || self.every_selector().any(allows_all)
    }

    /// Whether one selector allows a command, and to read all keys that begin so: the user goes on being told of them.
    pub fn is_told_of(&self, vocabulary: &Vocabulary, command: &[u8], prefix: &[u8]) -> bool {
        let index = vocabulary.find(command);
        let has_command = |selector: &Selector| index.is_some_and(|index| selector.has_command(index));
        let tells = |selector: &Selector| has_command(selector) && selector.reads_prefix(prefix);
        self.is_unrestricted || self.every_selector().any(tells)
    }

    /// Whether it may listen to a channel, or to a pattern of channels, by some selector.
    pub fn hears(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.every_selector().any(|selector| selector.allows_channel(channel, is_pattern))
    }

    /// Whether it may listen to everything.
    pub fn hears_everything(&self) -> bool {
        self.every_selector().any(Selector::has_all_channels)
    }

    /// What GETUSER calls its flags.
    pub fn flags(&self) -> Vec<&'static str> {
        let sanitizing = match self.sanitizing {
            Sanitizing::Unsaid => None,
            Sanitizing::On => Some("sanitize-payload"),
            Sanitizing::Off => Some("skip-sanitize-payload"),
        };
        let all = [Some(if self.is_on { "on" } else { "off" }), self.no_password.then_some("nopass"), sanitizing];
        all.into_iter().flatten().collect()
    }

    /// The hashes of its passwords, in hexadecimal digits.
    pub fn passwords(&self) -> impl ExactSizeIterator<Item = String> {
        self.passwords.iter().map(Hash::to_string)
    }

    /// The selector that is its own.
    pub fn root(&self) -> &Selector {
        &self.root
    }

    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// All its rules, each one word, or a selector's words in brackets.
    pub fn words(&self) -> Vec<Vec<u8>> {
        let mut words: Vec<Vec<u8>> = self.flags().iter().map(|flag| flag.as_bytes().to_vec()).collect();
        words.extend(self.passwords().map(|hash| format!("#{hash}").into_bytes()));
        words.extend(self.root.words());
        words.extend(self.selectors.iter().map(|selector| {
            let mut text = b"(".to_vec();
            for (nth, word) in selector.words().iter().enumerate() {
                if nth > 0 {
                    text.push(b' ');
                }
                write_within_brackets(word, &mut text);
            }
            text.push(b')');
            text
        }));
        words
    }

    /// The line of ACL LIST and of an ACL file.
    pub fn line(&self) -> Vec<u8> {
        let head = [b"user ", &self.name[..]].concat();
        std::iter::once(head).chain(self.words()).collect::<Vec<_>>().join(&b' ')
    }
}

#[cfg(test)]
mod tests;
