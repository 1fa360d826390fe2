//! Which files make the log, in the form of Redis 7: at most one base, then increments in the order of their numbers.

use crate::config::{quote, split_arguments};
use std::fmt::Write;
use std::ops::RangeInclusive;

/// What a file is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Base,
    Increment,
    /// Not needed any more, and to be deleted.
    History,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub number: u64,
    pub role: Role,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    pub base: Option<Entry>,
    pub increments: Vec<Entry>,
    pub history: Vec<Entry>,
}

/// Numbers that files may have: as in Redis, and so that there is always a next one.
const NUMBERS: RangeInclusive<u64> = 1..=i64::MAX as u64;
/// Redis reads lines up to this length.
const LINE_BYTES_MAX: usize = 1_024;

impl Manifest {
    /// The name of the file itself.
    pub fn name(stem: &str) -> String {
        format!("{stem}.manifest")
    }

    /// Reads a file's text; what is wrong with it.
    pub fn parse(text: &str) -> Result<Manifest, String> {
        let mut manifest = Manifest::default();
        for line in text.lines() {
            if line.starts_with('#') {
                continue;
            }
            if line.trim().is_empty() {
                return Err("Invalid AOF manifest file format: there is an empty line".to_owned());
            }
            if line.len() > LINE_BYTES_MAX {
                return Err("The AOF manifest file contains too long line".to_owned());
            }
            manifest.take(entry(line).ok_or_else(|| format!("Invalid AOF manifest file format: {line}"))?)?;
        }
        if manifest.base.is_none() && manifest.increments.is_empty() && manifest.history.is_empty() {
            return Err("Found an empty AOF manifest".to_owned());
        }
        // What is needed is not to be deleted, whatever else is said of it.
        let needed: Vec<String> = manifest.files().map(|entry| entry.name.clone()).collect();
        manifest.history.retain(|entry| !needed.contains(&entry.name));
        Ok(manifest)
    }

    fn take(&mut self, entry: Entry) -> Result<(), String> {
        match entry.role {
            Role::Base if self.base.is_some() => return Err("Found duplicate base file information".to_owned()),
            Role::Base => self.base = Some(entry),
            Role::History => self.history.push(entry),
            Role::Increment => {
                if self.increments.last().is_some_and(|last| last.number >= entry.number) {
                    return Err("Found a non-monotonic sequence number".to_owned());
                }
                self.increments.push(entry);
            }
        }
        Ok(())
    }

    /// As the file has it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for entry in self.base.iter().chain(&self.history).chain(&self.increments) {
            let role = match entry.role {
                Role::Base => 'b',
                Role::History => 'h',
                Role::Increment => 'i',
            };
            writeln!(text, "file {} seq {} type {role}", quoted(&entry.name), entry.number).expect("writing to memory");
        }
        text
    }

    /// A number that no file has which is named here, as increment, base or history: files that are still to be deleted keep
    /// their names until then.
    fn next_number<'a>(&'a self, of: impl Iterator<Item = &'a Entry>) -> u64 {
        of.chain(&self.history).map(|entry| entry.number).max().unwrap_or(0) + 1
    }

    /// Adds an increment; its name.
    pub fn add_increment(&mut self, stem: &str) -> String {
        let number = self.next_number(self.increments.iter());
        let name = format!("{stem}.{number}.incr.aof");
        self.increments.push(Entry { name: name.clone(), number, role: Role::Increment });
        name
    }

    /// What a new base would be called, and its number.
    pub fn next_base(&self, stem: &str, is_snapshot: bool) -> (String, u64) {
        let number = self.next_number(self.base.iter());
        (format!("{stem}.{number}.base.{}", if is_snapshot { "rdb" } else { "aof" }), number)
    }

    /// The same log where this base stands for everything before the last `kept` increments. What it replaces is history.
    pub fn rebased(&self, name: String, number: u64, kept: usize) -> Manifest {
        let mut next = self.clone();
        let gone = next.increments.len().saturating_sub(kept);
        let old: Vec<Entry> = next.base.take().into_iter().chain(next.increments.drain(..gone)).collect();
        next.history.extend(old.into_iter().map(|entry| Entry { role: Role::History, ..entry }));
        next.base = Some(Entry { name, number, role: Role::Base });
        next
    }

    /// Whether this is all that the upgrade of an old single file of this name writes down.
    pub fn is_of_old_file(&self, name: &str) -> bool {
        self.increments.is_empty() && self.base.as_ref().is_some_and(|base| base.name == name)
    }

    /// The files with data, in their order.
    pub fn files(&self) -> impl Iterator<Item = &Entry> {
        self.base.iter().chain(&self.increments)
    }
}

fn quoted(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\'));
    if is_plain { name.to_owned() } else { quote(name) }
}

fn entry(line: &str) -> Option<Entry> {
    let words: Vec<String> =
        split_arguments(line.as_bytes())?.into_iter().map(String::from_utf8).collect::<Result<_, _>>().ok()?;
    if words.len() < 6 || !words.len().is_multiple_of(2) {
        return None;
    }
    let (mut name, mut number, mut role) = (None, None, None);
    for pair in words.chunks_exact(2) {
        match pair[0].to_ascii_lowercase().as_str() {
            // A file of this folder and no other.
            "file" if !pair[1].contains('/') && !matches!(pair[1].as_str(), "" | "." | "..") => {
                name = Some(pair[1].clone());
            }
            "file" => return None,
            "seq" => number = Some(pair[1].parse().ok().filter(|number| NUMBERS.contains(number))?),
            "type" => {
                role = Some(match pair[1].as_str() {
                    "b" => Role::Base,
                    "h" => Role::History,
                    "i" => Role::Increment,
                    _ => return None,
                });
            }
            _ => {}
        }
    }
    Some(Entry { name: name?, number: number?, role: role? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_redis_writes_is_read_and_written_again() {
        let text = "file appendonly.aof.2.base.rdb seq 2 type b\n\
                    file appendonly.aof.1.base.rdb seq 1 type h\n\
                    file \"a b.incr.aof\" seq 3 type i\n\
                    file appendonly.aof.4.incr.aof seq 4 type i\n";
        let manifest = Manifest::parse(&format!("# a comment\n{text}")).expect("well formed");
        assert_eq!(manifest.text(), text);
        assert_eq!(manifest.files().count(), 3);
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for text in [
            "",
            "# nothing\n",
            "\n",
            "file a seq 1\n",
            "file a seq 1 type x\n",
            "file a seq x type b\n",
            "file a seq 0 type b\n",
            "file a seq 18446744073709551615 type b\n",
            "file ../a seq 1 type b\n",
            "file a seq 1 type b extra\n",
            "file a seq 1 type b\nfile b seq 2 type b\n",
            "file a seq 2 type i\nfile b seq 2 type i\n",
        ] {
            assert!(Manifest::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_new_base_replaces_what_was_before() {
        let mut manifest = Manifest::default();
        assert_eq!(manifest.add_increment("a.aof"), "a.aof.1.incr.aof");
        let (name, number) = manifest.next_base("a.aof", true);
        assert_eq!(name, "a.aof.1.base.rdb");
        manifest.add_increment("a.aof");
        let manifest = manifest.rebased(name, number, 1);
        assert_eq!(
            manifest.text(),
            "file a.aof.1.base.rdb seq 1 type b\nfile a.aof.1.incr.aof seq 1 type h\nfile a.aof.2.incr.aof seq 2 type i\n"
        );
        assert_eq!(manifest.next_base("a.aof", false).0, "a.aof.2.base.aof");
    }

    /// A server was killed before it had deleted what its manifest calls history: the next increment took the name of one of
    /// those files, and was deleted with them.
    #[test]
    fn no_file_gets_the_name_of_one_that_is_to_be_deleted() {
        let text = "file a.aof.2.base.rdb seq 2 type b\nfile a.aof.1.base.rdb seq 1 type h\nfile a.aof.3.incr.aof seq 3 type h\n";
        let mut manifest = Manifest::parse(text).expect("well formed");
        assert_eq!(manifest.next_base("a.aof", true), ("a.aof.4.base.rdb".to_owned(), 4));
        assert_eq!(manifest.add_increment("a.aof"), "a.aof.4.incr.aof");
        // A server that did so has left such a manifest.
        let text = "file a.aof.2.base.rdb seq 2 type b\nfile a.aof.1.incr.aof seq 1 type h\nfile a.aof.1.incr.aof seq 1 type i\n";
        let manifest = Manifest::parse(text).expect("well formed");
        assert_eq!((manifest.history, manifest.increments.len()), (Vec::new(), 1));
    }
}
