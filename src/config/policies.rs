//! All expiry policies, by their prefixes.

use super::policy::{PREFIX_BYTES_MAX, Policy, PolicyError};
use super::values::{Kind, Setting, ValueError, quote};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The policies by their prefixes: one set for all copies of a configuration, since EXPIRY POLICY changes it while the
/// server runs. Shards keep an index of their own.
#[derive(Clone, Debug, Default)]
pub struct Policies(Arc<Mutex<BTreeMap<Box<str>, Policy>>>);

impl Policies {
    pub fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Policy>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a prefix and its policy; whether it is to be applied, see [`Policy::parse`].
    pub fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<(&'a str, Policy, bool), PolicyError> {
        let prefix = words.next().ok_or(PolicyError::Syntax)?;
        if prefix.len() > PREFIX_BYTES_MAX {
            return Err(PolicyError::Prefix);
        }
        let (policy, applies) = Policy::parse(words)?;
        Ok((prefix, policy, applies))
    }

    /// Each as one line of a configuration file, without the directive's name.
    fn lines(&self) -> impl Iterator<Item = String> {
        let lines: Vec<String> = self.lock().iter().map(|(prefix, policy)| line(prefix, policy)).collect();
        lines.into_iter()
    }
}

fn line(prefix: &str, policy: &Policy) -> String {
    let words = std::iter::once(prefix.to_owned()).chain(policy.words());
    words.map(|word| if is_plain(&word) { word } else { quote(&word) }).collect::<Vec<_>>().join(" ")
}

fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'\\#".contains(&byte))
}

impl Setting for Policies {
    /// One more, or, where there is nothing but an empty word, none.
    fn read(&mut self, _: &Kind, args: &[&str]) -> Result<(), ValueError> {
        if matches!(args, [] | [""]) {
            self.lock().clear();
            return Ok(());
        }
        match Policies::parse(args.iter().copied()) {
            Ok((prefix, policy, false)) => {
                self.lock().insert(prefix.into(), policy);
                Ok(())
            }
            Ok((_, _, true)) => Err(ValueError::Policy(PolicyError::Apply)),
            Err(error) => Err(ValueError::Policy(error)),
        }
    }

    fn show(&self) -> String {
        self.lines().collect::<Vec<_>>().join("; ")
    }

    /// A line for each, the first of them without the directive's name.
    fn line(&self, _: &Kind) -> String {
        let lines: Vec<String> = self.lines().collect();
        if lines.is_empty() { "\"\"".to_owned() } else { lines.join("\nexpiry-policy ") }
    }
}
