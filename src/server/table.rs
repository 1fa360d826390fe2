//! All commands, whichever room they come from, in one table.

use super::Run;
use crate::command::spec::{Row, Spec};
use crate::command::{self};
use crate::resp::Request;
use std::collections::HashMap;

/// Names longer than this are not commands.
const NAME_BYTES: usize = 24;

/// A name in lower case, filled up with zeros.
type Name = [u8; NAME_BYTES];

pub struct Command {
    pub spec: Spec,
    /// `object|encoding` for a subcommand.
    pub full_name: &'static str,
    pub run: Run,
    subcommands: HashMap<Name, usize, ahash::RandomState>,
    /// The rows of the subcommands, for COMMAND.
    pub row: Row<Run>,
}

pub struct Table {
    names: HashMap<Name, usize, ahash::RandomState>,
    commands: Vec<Command>,
    /// Indexes of the commands that are not subcommands.
    top: Vec<usize>,
}

/// What a request's name leads to.
pub enum Found<'t> {
    Command(&'t Command),
    Unknown,
    /// The container knows no such subcommand.
    UnknownSubcommand(&'t Command),
}

impl Default for Table {
    fn default() -> Table {
        Table::new()
    }
}

impl Table {
    pub fn new() -> Table {
        let mut table = Table { names: HashMap::default(), commands: Vec::new(), top: Vec::new() };
        for row in command::rows() {
            table.add(&convert(row));
        }
        for row in super::rows::all() {
            table.add(row);
        }
        table
    }

    fn add(&mut self, row: &Row<Run>) {
        let mut subcommands = HashMap::default();
        for sub in row.subcommands {
            let full_name = format!("{}|{}", row.spec.name, sub.spec.name).leak();
            let index = self.push(sub, full_name, HashMap::default());
            subcommands.insert(name(sub.spec.name.as_bytes()).expect("names are short"), index);
        }
        let index = self.push(row, row.spec.name, subcommands);
        let name = name(row.spec.name.as_bytes()).expect("names are short");
        assert!(self.names.insert(name, index).is_none(), "{} is declared once", row.spec.name);
        self.top.push(index);
    }

    fn push(
        &mut self,
        row: &Row<Run>,
        full_name: &'static str,
        subcommands: HashMap<Name, usize, ahash::RandomState>,
    ) -> usize {
        self.commands.push(Command { spec: row.spec, full_name, run: row.run, subcommands, row: *row });
        self.commands.len() - 1
    }

    #[inline]
    pub fn find(&self, request: Request) -> Found<'_> {
        let Some(command) = name(request.arg(0)).and_then(|name| self.names.get(&name)) else {
            return Found::Unknown;
        };
        let command = &self.commands[*command];
        if command.subcommands.is_empty() || request.len() < 2 {
            return Found::Command(command);
        }
        match name(request.arg(1)).and_then(|name| command.subcommands.get(&name)) {
            Some(sub) => Found::Command(&self.commands[*sub]),
            None if request.is(1, "help") => Found::Command(command),
            None => Found::UnknownSubcommand(command),
        }
    }

    /// The commands that are not subcommands.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = &Command> {
        self.top.iter().map(|index| &self.commands[*index])
    }

    /// The command called `name` or `container|name`.
    pub fn by_full_name(&self, full_name: &[u8]) -> Option<(&Command, Option<&'static str>)> {
        let mut parts = full_name.splitn(2, |byte| *byte == b'|');
        let container = &self.commands[*self.names.get(&name(parts.next()?)?)?];
        match parts.next() {
            None => Some((container, None)),
            Some(sub) => {
                let sub = *container.subcommands.get(&name(sub)?)?;
                Some((&self.commands[sub], Some(container.spec.name)))
            }
        }
    }
}

#[inline]
fn name(bytes: &[u8]) -> Option<Name> {
    if bytes.len() > NAME_BYTES {
        return None;
    }
    let mut name = [0; NAME_BYTES];
    for (to, from) in name.iter_mut().zip(bytes) {
        *to = from.to_ascii_lowercase();
    }
    Some(name)
}

/// A row of the command room among those of this one. Made once for the life of the process.
fn convert(row: &'static Row<command::Run>) -> Row<Run> {
    let subcommands: Vec<Row<Run>> = row.subcommands.iter().map(convert).collect();
    Row { spec: row.spec, run: Run::Data(row.run), subcommands: Box::leak(subcommands.into_boxed_slice()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_complete() {
        let table = Table::new();
        for command in &table.commands {
            let spec = &command.spec;
            assert!(
                spec.name.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'-' | b'.')),
                "{}",
                spec.name
            );
            assert!(spec.summary.ends_with('.'), "{}: a summary is a sentence", command.full_name);
            assert!(!spec.complexity.is_empty() && !spec.since.is_empty(), "{}", command.full_name);
            assert!(spec.arity != 0);
        }
    }
}
