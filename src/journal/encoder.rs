//! Units as one stream of commands: the database is chosen where it changes, and what belongs together is a transaction.

use super::{Command, StandsIn, Unit, compat};

#[derive(Debug, Default)]
pub struct Encoder {
    /// The database that was chosen last, where that is known.
    db: Option<usize>,
    /// What is made is a log.
    is_log: bool,
    /// What is said is all there is in the stream: the rest is another server's.
    is_relayed: bool,
    /// Some who read it know of no deadlines of fields; how many commands they were told with less.
    is_old: bool,
    degraded: u64,
}

/// Commands of one shard that stand alone, encoded beside whoever encodes those of all shards.
#[derive(Debug, Default)]
pub struct Run {
    begins_in: usize,
    encoder: Encoder,
    bytes: Vec<u8>,
    /// How long the last run was: the next is likely to be as long.
    expected: usize,
}

impl Run {
    /// A run is expected to be as long as the one before, and no longer than this: room for more is made when it is needed.
    const EXPECTED_BYTES_MAX: usize = 64 << 10;

    /// Commands that belong together, behind what has come before.
    pub fn push(&mut self, commands: &[Command]) {
        if let Some(first) = commands.first() {
            self.begin(first.db);
            self.encoder.commands(commands, &mut self.bytes);
        }
    }

    /// One command, as a client sends it.
    #[inline]
    pub fn push_one(&mut self, db: usize, bytes: &[u8]) {
        self.begin(db);
        self.encoder.select(db, &mut self.bytes);
        self.bytes.extend_from_slice(bytes);
    }

    #[inline]
    fn begin(&mut self, db: usize) {
        if self.bytes.is_empty() {
            // Whoever takes the run chooses the database that it begins in.
            (self.begins_in, self.encoder.db) = (db, Some(db));
            self.bytes.reserve(self.expected);
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What has come, as one command.
    pub fn take(&mut self) -> Option<Command> {
        if self.bytes.is_empty() {
            return None;
        }
        self.expected = self.bytes.len().min(Run::EXPECTED_BYTES_MAX);
        Some(Command {
            db: self.begins_in,
            is_whole: false,
            is_death: false,
            run_ends_in: self.encoder.db,
            stands_in: StandsIn::Both,
            bytes: std::mem::take(&mut self.bytes).into(),
        })
    }
}

impl Encoder {
    /// Makes a log of this server's.
    pub fn of_log() -> Encoder {
        Encoder { is_log: true, ..Encoder::default() }
    }

    pub fn unit(&mut self, Unit { commands, .. }: &Unit, out: &mut Vec<u8>) {
        self.commands(commands, out);
    }

    /// Commands that belong together. (What a run has of transactions becomes a part of theirs.)
    pub fn commands(&mut self, commands: &[Command], out: &mut Vec<u8>) {
        let mut real = commands.iter().filter(|command| self.has(command) && command.stands_in != StandsIn::Log);
        let first = real.next();
        // (What another server has said is passed on as it is, also where several parts of that leave together.)
        let is_transaction = !self.is_relayed && real.next().is_some();
        if let Some(first) = first.filter(|_| is_transaction) {
            self.select(first.db, out);
            say(&[b"MULTI"], out);
        }
        for command in commands {
            if !self.has(command) {
                continue;
            }
            // What changes nothing is about no database.
            if command.stands_in == StandsIn::Both {
                self.select(command.db, out);
            }
            let start = out.len();
            if self.is_old && !self.is_relayed && compat::concerns(&command.bytes) {
                self.degraded += compat::degrade(&command.bytes, out);
            } else {
                out.extend_from_slice(&command.bytes);
            }
            if command.run_ends_in.is_some() {
                self.db = command.run_ends_in;
                if is_transaction {
                    drop_brackets(out, start);
                }
            }
        }
        if is_transaction {
            say(&[b"EXEC"], out);
        }
    }

    fn has(&self, command: &Command) -> bool {
        match command.stands_in {
            StandsIn::Both => !self.is_relayed,
            StandsIn::Log => self.is_log,
            StandsIn::Stream => !self.is_log,
        }
    }

    /// The database that was chosen last, where that is known.
    pub fn db(&self) -> Option<usize> {
        self.db
    }

    pub fn is_relayed(&self) -> bool {
        self.is_relayed
    }

    pub fn set_relayed(&mut self, wants: bool) {
        self.is_relayed = wants;
        self.forget();
    }

    /// From now on it is for servers that know of no deadlines of fields, or it is not any more.
    pub fn set_old(&mut self, wants: bool) {
        self.is_old = wants;
    }

    /// How many commands were told with less than they have done.
    pub fn degraded(&self) -> u64 {
        self.degraded
    }

    /// The stream goes on somewhere else, where another database may be chosen.
    pub fn forget(&mut self) {
        self.db = None;
    }

    #[inline]
    fn select(&mut self, db: usize, out: &mut Vec<u8>) {
        if self.db.replace(db) != Some(db) {
            say_select(db, out);
        }
    }
}

#[cold]
fn say_select(db: usize, out: &mut Vec<u8>) {
    say(&[b"SELECT", db.to_string().as_bytes()], out);
}

/// A command of the stream's own.
fn say(args: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(&Command::new(0, args.iter().copied()).bytes);
}

/// Takes the bounds of transactions out of what stands behind `start`.
#[cold]
fn drop_brackets(out: &mut Vec<u8>, start: usize) {
    let run = out.split_off(start);
    let inside = compat::commands(&run).filter(|(args, _)| !matches!(args[..], [b"MULTI" | b"EXEC"]));
    inside.for_each(|(_, command)| out.extend_from_slice(command));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(db: usize, words: &[&str]) -> Command {
        Command::new(db, words.iter().map(|word| word.as_bytes()))
    }

    fn said(commands: &[Command]) -> Vec<String> {
        let (mut encoder, mut out) = (Encoder::default(), Vec::new());
        encoder.unit(&Unit { commands: commands.to_vec(), bytes: 0, transactions: 1 }, &mut out);
        compat::commands(&out).map(|(args, _)| String::from_utf8_lossy(&args.join(&b' ')).into_owned()).collect()
    }

    /// A run between the parts of a transaction once took the bounds of the transaction away.
    #[test]
    fn what_leaves_together_is_one_transaction_whatever_is_in_it() {
        let mut run = Run::default();
        run.push(&[command(0, &["SET", "a", "1"])]);
        run.push(&[command(0, &["SET", "b", "1"]), command(1, &["SET", "MULTI", "EXEC"])]);
        let run = run.take().expect("something");
        let alone = ["SELECT 0", "SET a 1", "MULTI", "SET b 1", "SELECT 1", "SET MULTI EXEC", "EXEC"];
        assert_eq!(said(std::slice::from_ref(&run)), alone);
        let together = said(&[command(0, &["DEL", "c"]), run, command(1, &["DEL", "d"])]);
        let expected =
            ["SELECT 0", "MULTI", "DEL c", "SET a 1", "SET b 1", "SELECT 1", "SET MULTI EXEC", "DEL d", "EXEC"];
        assert_eq!(together, expected);
    }
}
