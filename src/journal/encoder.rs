//! Units as one stream of commands: the database is chosen where it changes, and what belongs together is a transaction.

use super::{Command, Unit};

#[derive(Debug, Default)]
pub struct Encoder {
    /// The database that was chosen last, where that is known.
    db: Option<usize>,
    /// What is made is a log, which has lines beside the commands.
    has_asides: bool,
}

impl Encoder {
    /// Makes a log of this server's.
    pub fn of_log() -> Encoder {
        Encoder { db: None, has_asides: true }
    }

    pub fn unit(&mut self, Unit { commands, .. }: &Unit, out: &mut Vec<u8>) {
        self.commands(commands, out);
    }

    /// Commands that belong together. (A run stands within no transaction, as it may be made of some.)
    pub fn commands(&mut self, commands: &[Command], out: &mut Vec<u8>) {
        let mut real = commands.iter().filter(|command| !command.is_aside);
        let first = real.next();
        let is_transaction = real.next().is_some() && !commands.iter().any(|command| command.is_run);
        if let Some(first) = first.filter(|_| is_transaction) {
            self.select(first.db, out);
            say(&[b"MULTI"], out);
        }
        for command in commands {
            if command.is_aside {
                if self.has_asides {
                    out.extend_from_slice(&command.bytes);
                }
                continue;
            }
            if command.is_run {
                self.db = None;
            } else {
                self.select(command.db, out);
            }
            out.extend_from_slice(&command.bytes);
        }
        if is_transaction {
            say(&[b"EXEC"], out);
        }
    }

    /// The stream goes on somewhere else, where another database may be chosen.
    pub fn forget(&mut self) {
        self.db = None;
    }

    fn select(&mut self, db: usize, out: &mut Vec<u8>) {
        if self.db.replace(db) != Some(db) {
            say(&[b"SELECT", db.to_string().as_bytes()], out);
        }
    }
}

/// A command of the stream's own.
fn say(args: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(&Command::new(0, args.iter().copied()).bytes);
}
