//! Units as one stream of commands: the database is chosen where it changes, and what belongs together is a transaction.

use super::{Command, Unit};

#[derive(Debug, Default)]
pub struct Encoder {
    /// The database that was chosen last, where that is known.
    db: Option<usize>,
    /// What is made is a log, which has lines beside the commands.
    has_asides: bool,
}

/// Commands of one shard that stand alone, encoded beside whoever encodes those of all shards.
#[derive(Debug, Default)]
pub struct Run {
    begins_in: usize,
    encoder: Encoder,
    bytes: Vec<u8>,
}

impl Run {
    /// Commands that belong together, behind what has come before.
    pub fn push(&mut self, commands: &[Command]) {
        if self.bytes.is_empty()
            && let Some(first) = commands.first()
        {
            // Whoever takes the run chooses the database that it begins in.
            self.begins_in = first.db;
            self.encoder.db = Some(first.db);
        }
        self.encoder.commands(commands, &mut self.bytes);
    }

    /// What has come, as one command.
    pub fn take(&mut self) -> Option<Command> {
        if self.bytes.is_empty() {
            return None;
        }
        Some(Command {
            db: self.begins_in,
            is_whole: false,
            is_death: false,
            run_ends_in: self.encoder.db,
            is_aside: false,
            bytes: std::mem::take(&mut self.bytes).into(),
        })
    }
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
        let is_transaction = real.next().is_some() && !commands.iter().any(|command| command.run_ends_in.is_some());
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
            self.select(command.db, out);
            out.extend_from_slice(&command.bytes);
            if command.run_ends_in.is_some() {
                self.db = command.run_ends_in;
            }
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
