//! The commands as rules name them: their numbers, categories, subcommands, and what is done with their keys and channels.

use crate::command::describe::{self, CATEGORIES, KeyAccess};
use crate::command::spec::{Channels, Spec, flag};
use crate::command::{CommandId, Table};
use std::collections::HashMap;

/// A command as rules and questions look at it.
pub struct Known {
    pub full_name: &'static str,
    pub spec: Spec,
    /// A bit for each of [`CATEGORIES`].
    categories: u32,
    /// The numbers of what it groups.
    pub subcommands: Vec<usize>,
    pub is_subcommand: bool,
    /// Everybody may run it, whatever the rules say: AUTH.
    pub is_open: bool,
    pub keys: KeyAccess,
    pub channels: Channels,
}

pub struct Vocabulary {
    commands: Vec<Known>,
    names: HashMap<&'static str, usize, ahash::RandomState>,
}

impl Vocabulary {
    pub fn of<R: Copy>(table: &Table<R>) -> Vocabulary {
        let count = table.specs().len();
        let commands: Vec<Known> = (0..count).map(|index| Known::of(table, index)).collect();
        let names = commands.iter().enumerate().map(|(index, known)| (known.full_name, index)).collect();
        Vocabulary { commands, names }
    }

    /// How many commands there are, subcommands included.
    pub fn count(&self) -> usize {
        self.commands.len()
    }

    pub fn get(&self, index: usize) -> &Known {
        &self.commands[index]
    }

    pub fn known(&self, id: CommandId) -> &Known {
        self.get(id.index())
    }

    /// The number of `command` or `command|subcommand`, in any case.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.names.get(&name[..]).copied()
    }

    /// The numbers of the commands of a category, which is named without its `@`.
    pub fn of_category(&self, name: &[u8]) -> Option<impl Iterator<Item = usize>> {
        let bit = CATEGORIES.iter().position(|category| category.as_bytes()[1..].eq_ignore_ascii_case(name))?;
        Some((0..self.count()).filter(move |index| self.commands[*index].categories & 1 << bit != 0))
    }
}

impl Known {
    fn of<R: Copy>(table: &Table<R>, index: usize) -> Known {
        let command = table.at(index);
        let container = command.full_name.split_once('|').map(|(container, _)| container);
        let of_command = describe::acl_categories(&command.spec, container);
        let bit = |category: &&str| CATEGORIES.iter().position(|known| known == category).map_or(0, |at| 1 << at);
        Known {
            full_name: command.full_name,
            spec: command.spec,
            categories: of_command.iter().map(bit).sum(),
            subcommands: command.subcommands().map(CommandId::index).collect(),
            is_subcommand: container.is_some(),
            is_open: command.spec.has(flag::NO_AUTH),
            keys: KeyAccess::of(&command.spec, command.full_name, container),
            channels: command.row.channels,
        }
    }
}
