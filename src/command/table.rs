//! All commands in one table, whichever room they come from, and their numbers.

use super::describe::help_row;
use super::spec::{Group, Row, Spec, flag};
use crate::keyspace::Touch;
use crate::resp::Request;
use std::collections::HashMap;
use std::sync::Arc;

/// A command's number in the table, the same on all shards. Subcommands have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(u16);

impl CommandId {
    /// The number of a command that is no subcommand, by what is said of all commands in the order of their numbers.
    pub fn named(specs: &[Spec], name: &str, group: Group) -> Option<CommandId> {
        let index = specs.iter().position(|spec| spec.name == name && spec.group == group)?;
        u16::try_from(index).ok().map(CommandId)
    }

    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Names longer than this are not commands.
const NAME_BYTES: usize = 24;

/// A name in lower case, filled up with zeros.
type Name = [u8; NAME_BYTES];

pub struct Command<R: 'static> {
    pub id: CommandId,
    pub spec: Spec,
    /// `object|encoding` for a subcommand.
    pub full_name: &'static str,
    pub run: R,
    /// Whether it may change data.
    pub writes: bool,
    /// A request of it with so many words at most takes about as long as reading the clock, whatever it is about, unless its
    /// reply is long.
    quick_words: usize,
    /// What its look-ups leave behind, for a client as such and for one with NO-TOUCH.
    touches: [Touch; 2],
    subcommands: HashMap<Name, CommandId, ahash::RandomState>,
    /// Whether the names of some of them are two words of a request.
    has_two_words: bool,
    /// With the rows of the subcommands, for COMMAND.
    pub row: Row<R>,
    /// What HELP tells of: the row of its container; the same row for all others.
    pub told: Row<R>,
}

/// `R` is the kind of what runs a command, as the room that has the table knows it.
pub struct Table<R: 'static> {
    short: ShortNames,
    names: HashMap<Name, usize, ahash::RandomState>,
    commands: Vec<Command<R>>,
    /// Indexes of the commands that are not subcommands.
    top: Vec<usize>,
}

/// What a request's name leads to.
#[derive(Clone, Copy)]
pub enum Found<'t, R: 'static> {
    Command(&'t Command<R>),
    Unknown,
    /// The container knows no such subcommand.
    UnknownSubcommand(&'t Command<R>),
}

impl<R> Command<R> {
    /// The numbers of what a container groups.
    pub fn subcommands(&self) -> impl Iterator<Item = CommandId> {
        self.subcommands.values().copied()
    }

    /// What its look-ups leave behind.
    #[inline]
    pub fn touch(&self, no_touch: bool) -> Touch {
        self.touches[usize::from(no_touch)]
    }

    /// Whether subcommands begin with this word and have a second one.
    pub fn has_second_words(&self, word: &[u8]) -> bool {
        let begins =
            |name: &str| name.as_bytes().get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        let mut two_words = self.row.subcommands.iter().filter(|sub| sub.is_two_words);
        two_words.any(|sub| begins(sub.spec.name) && sub.spec.name.as_bytes().get(word.len()) == Some(&b'-'))
    }

    /// Whether a request of it, with so many words, takes about as long as reading the clock.
    #[inline]
    pub fn is_quick(&self, words: usize) -> bool {
        words <= self.quick_words
    }
}

/// What is quick for each element is quick for this many words: one or two elements, or an entry of a stream with one field.
const FEW_WORDS: usize = 5;

fn quick_words(spec: &Spec) -> usize {
    let starts = |cost: &&str| spec.complexity.starts_with(*cost);
    let is_quick_for_each = || ["O(1)", "O(log n)"].iter().any(starts) && !spec.complexity.contains("O(n)");
    match spec.complexity {
        "O(1)" => usize::MAX,
        _ if spec.has(flag::FAST) && is_quick_for_each() => FEW_WORDS,
        _ => 0,
    }
}

impl<R: Copy> Table<R> {
    pub fn new(rows: impl IntoIterator<Item = Row<R>>) -> Table<R> {
        let mut table =
            Table { short: ShortNames::default(), names: HashMap::default(), commands: Vec::new(), top: Vec::new() };
        rows.into_iter().for_each(|row| table.add(&row));
        table
    }

    fn add(&mut self, row: &Row<R>) {
        let mut subcommands = HashMap::default();
        let help = help_row(row);
        for sub in row.subcommands.iter().chain(&help) {
            let full_name = format!("{}|{}", row.spec.name, sub.spec.name).leak();
            let index = self.push(sub, full_name, HashMap::default());
            self.commands[index].told = if sub.spec.name == "help" { *row } else { *sub };
            subcommands.insert(name(sub.spec.name.as_bytes()).expect("names are short"), self.commands[index].id);
        }
        let index = self.push(row, row.spec.name, subcommands);
        self.short.insert(row.spec.name.as_bytes(), index);
        let name = name(row.spec.name.as_bytes()).expect("names are short");
        assert!(self.names.insert(name, index).is_none(), "{} is declared once", row.spec.name);
        self.top.push(index);
    }

    fn push(
        &mut self,
        row: &Row<R>,
        full_name: &'static str,
        subcommands: HashMap<Name, CommandId, ahash::RandomState>,
    ) -> usize {
        assert!(!row.spec.has(flag::NOTHING), "{full_name} is asked about");
        let index = self.commands.len();
        self.commands.push(Command {
            id: CommandId(u16::try_from(index).expect("some hundred commands")),
            spec: row.spec,
            full_name,
            run: row.run,
            writes: row.spec.has(flag::WRITE),
            quick_words: quick_words(&row.spec),
            touches: [row.spec.touch(false), row.spec.touch(true)],
            has_two_words: row.subcommands.iter().any(|sub| sub.is_two_words),
            subcommands,
            row: *row,
            told: *row,
        });
        index
    }

    #[inline]
    pub fn find(&self, request: Request) -> Found<'_, R> {
        let Some(command) = self.index(request.arg(0)) else { return Found::Unknown };
        let command = &self.commands[command];
        if command.subcommands.is_empty() || request.len() < 2 {
            return Found::Command(command);
        }
        match name(request.arg(1)).and_then(|name| command.subcommands.get(&name)).map(|sub| self.get(*sub)) {
            Some(sub) if !sub.row.is_two_words => Found::Command(sub),
            _ if command.has_two_words && request.len() > 2 => self.find_two_words(command, request),
            _ => Found::UnknownSubcommand(command),
        }
    }

    #[cold]
    fn find_two_words<'t>(&'t self, container: &'t Command<R>, request: Request) -> Found<'t, R> {
        let words = [request.arg(1), b"-", request.arg(2)];
        if words.iter().map(|word| word.len()).sum::<usize>() > NAME_BYTES || request.arg(1).contains(&b'-') {
            return Found::UnknownSubcommand(container);
        }
        let found = name(&words.concat()).and_then(|name| container.subcommands.get(&name)).map(|sub| self.get(*sub));
        found.filter(|sub| sub.row.is_two_words).map_or(Found::UnknownSubcommand(container), Found::Command)
    }

    #[inline]
    pub fn get(&self, id: CommandId) -> &Command<R> {
        &self.commands[id.index()]
    }

    /// The command with this number.
    pub fn at(&self, index: usize) -> &Command<R> {
        &self.commands[index]
    }

    /// What is said of each command, by its number: for rooms that do not know how all of them run.
    pub fn specs(&self) -> Arc<[Spec]> {
        self.commands.iter().map(|command| command.spec).collect()
    }

    #[inline]
    fn index(&self, bytes: &[u8]) -> Option<usize> {
        match self.short.get(bytes) {
            Some(index) => Some(index),
            None => name(bytes).and_then(|name| self.names.get(&name)).copied(),
        }
    }

    /// The commands that are not subcommands.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = &Command<R>> {
        self.top.iter().map(|index| &self.commands[*index])
    }

    /// The command called `name` or `container|name`.
    pub fn by_full_name(&self, full_name: &[u8]) -> Option<(&Command<R>, Option<&'static str>)> {
        let mut parts = full_name.splitn(2, |byte| *byte == b'|');
        let container = &self.commands[self.index(parts.next()?)?];
        match parts.next() {
            None => Some((container, None)),
            Some(sub) => {
                let sub = *container.subcommands.get(&name(sub)?)?;
                Some((self.get(sub), Some(container.spec.name)))
            }
        }
    }
}

/// Names of at most seven bytes, as one number each: nearly all requests have one.
#[derive(Default)]
struct ShortNames {
    /// Open addressing; zero is empty.
    slots: Vec<(u64, usize)>,
}

const SHORT_SLOTS: usize = 1024;

impl ShortNames {
    /// The length of the name and the name in lower case, as a number; zero where the name is too long.
    #[inline]
    fn pack(bytes: &[u8]) -> u64 {
        let len = bytes.len();
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |chunk| u64::from(u32::from_le_bytes(*chunk)));
        let letters = match len {
            // Two words that lie over one another say the same where they do.
            4..8 => word(0) | word(len - 4) << (8 * (len - 4)),
            0..4 => bytes.iter().rev().fold(0, |letters, byte| letters << 8 | u64::from(*byte)),
            _ => return 0,
        };
        (len as u64) << 56 | lower_case(letters)
    }

    #[inline]
    fn home(packed: u64) -> usize {
        // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
        (packed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize
    }

    fn insert(&mut self, bytes: &[u8], index: usize) {
        self.slots.resize(SHORT_SLOTS, (0, 0));
        let packed = ShortNames::pack(bytes);
        if packed != 0 {
            let mut at = ShortNames::home(packed);
            while self.slots[at].0 != 0 {
                at = (at + 1) % SHORT_SLOTS;
            }
            self.slots[at] = (packed, index);
        }
    }

    #[inline]
    fn get(&self, bytes: &[u8]) -> Option<usize> {
        let packed = ShortNames::pack(bytes);
        if packed == 0 {
            return None;
        }
        let mut at = ShortNames::home(packed);
        loop {
            match self.slots[at] {
                (found, index) if found == packed => return Some(index),
                (0, _) => return None,
                _ => at = (at + 1) % SHORT_SLOTS,
            }
        }
    }
}

/// Eight bytes at once, the capitals among them as small letters.
#[inline]
fn lower_case(bytes: u64) -> u64 {
    const ALL: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ALL;
    let low = bytes & !HIGH;
    // The highest bit of each byte says whether the byte is at least A, and more than Z.
    let (from_a, past_z) = (low + (0x80 - u64::from(b'A')) * ALL, low + (0x7f - u64::from(b'Z')) * ALL);
    let is_capital = (from_a ^ past_z) & !bytes & HIGH;
    bytes | is_capital >> 2
}

#[inline]
fn name(bytes: &[u8]) -> Option<Name> {
    if bytes.len() > NAME_BYTES || bytes.contains(&0) {
        return None;
    }
    let mut name = [0; NAME_BYTES];
    for (to, from) in name.iter_mut().zip(bytes) {
        *to = from.to_ascii_lowercase();
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bytes_become_small_letters_as_one_does() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..100_000 {
            let bytes: [u8; 8] = std::array::from_fn(|_| rng.u8(..));
            assert_eq!(
                lower_case(u64::from_le_bytes(bytes)).to_le_bytes(),
                bytes.map(|byte| byte.to_ascii_lowercase())
            );
        }
    }

    #[test]
    fn short_names_are_found_in_any_case_and_others_are_not() {
        let table = Table::new(super::super::rows().copied());
        for command in table.commands() {
            let name = command.spec.name;
            let index = table.index(name.to_uppercase().as_bytes()).expect("declared");
            assert_eq!(table.commands[index].spec.name, name);
            assert_eq!(
                table.index(format!("{name}x").as_bytes()),
                table.names.get(&super::name(format!("{name}x").as_bytes()).unwrap()).copied()
            );
        }
        for unknown in [&b""[..], b"\0", b"ge", b"get\0", b"\x07et", b"getgetgetgetgetgetgetgetget"] {
            assert_eq!(table.index(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn every_row_is_complete() {
        let table = Table::new(super::super::rows().copied());
        for command in &table.commands {
            let spec = &command.spec;
            assert!(
                spec.name.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'-' | b'.' | b'_')),
                "{}",
                spec.name
            );
            assert!(spec.summary.ends_with('.'), "{}: a summary is a sentence", command.full_name);
            assert!(!spec.complexity.is_empty() && !spec.since.is_empty(), "{}", command.full_name);
            assert!(spec.arity != 0);
        }
    }
}
