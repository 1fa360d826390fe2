//! What the journal is told of the changes on a shard: commands that make them again, in the order in which they were made.
//!
//! Deaths say what they are where they happen. What a command says is known when it has run: itself, or what it said
//! instead while it ran ([`Said::say`]).

use crate::journal::Command;
use crate::resp::Request;
use crate::table::Kind;
use indexmap::IndexSet;

/// A database and a key.
pub type KeyName = (usize, Box<[u8]>);

#[derive(Default)]
pub struct Said {
    commands: Vec<Command>,
    /// A command that has said itself before anything else was said, as a client sends it, and its database: mostly that is all,
    /// and is copied from here.
    itself: Vec<u8>,
    itself_db: usize,
    /// Keys that have died one behind the other, and their database: one command takes them all away.
    dead: Vec<Box<[u8]>>,
    dead_db: usize,
    /// Whether the command that runs has to say which keys it changes: it cannot be repeated as it is.
    names_keys: bool,
    running: Running,
    /// What policies have made of the keys that the running command has changed, to be said behind what it says itself.
    behind: Vec<Command>,
}

/// What the command that runs has done.
#[derive(Default)]
struct Running {
    has_changed: bool,
    is_rewritten: bool,
    keys: IndexSet<KeyName, ahash::RandomState>,
}

/// What a command has done.
pub struct Ran {
    pub has_changed: bool,
    /// It has said what it is to be called instead.
    pub is_rewritten: bool,
    /// What it has changed, where that matters.
    pub keys: Vec<KeyName>,
}

/// For so many keys of a command room is kept.
const KEYS_KEPT: usize = 64;
/// Room for a longer command is not kept.
const ITSELF_BYTES_KEPT: usize = 4096;
/// One command takes away no more dead keys than this.
const DEAD_TOGETHER: usize = 64;

impl Said {
    /// A command begins to run.
    pub fn begin(&mut self, names_keys: bool) {
        self.names_keys = names_keys;
    }

    /// It has run; what it did.
    pub fn end(&mut self) -> Ran {
        let Running { has_changed, is_rewritten, keys } = &mut self.running;
        let ran = Ran {
            has_changed: std::mem::take(has_changed),
            is_rewritten: std::mem::take(is_rewritten),
            keys: keys.drain(..).collect(),
        };
        keys.shrink_to(KEYS_KEPT);
        ran
    }

    /// Whether the command that has run is to be called what it was called, with nothing beside it, and nothing was said before.
    #[inline]
    pub fn is_plain(&self) -> bool {
        let Running { has_changed, is_rewritten, keys } = &self.running;
        let is_itself = *has_changed && !is_rewritten && keys.is_empty() && self.behind.is_empty();
        is_itself && self.commands.is_empty() && self.dead.is_empty() && self.itself.is_empty()
    }

    /// Whether the command that has run has nothing to say.
    #[inline]
    pub fn is_silent(&self) -> bool {
        let Running { has_changed, is_rewritten, .. } = self.running;
        !has_changed && !is_rewritten && self.behind.is_empty()
    }

    /// Where [`Said::is_plain`]: it has said this.
    #[inline]
    pub fn say_itself(&mut self, db: usize, request: Request) {
        debug_assert!(self.is_plain());
        self.running.has_changed = false;
        self.itself_db = db;
        Command::write_request(request, &mut self.itself);
    }

    /// What has said itself, if that is all.
    #[inline]
    pub fn give_itself(&mut self, to: impl FnOnce(usize, &[u8])) -> bool {
        debug_assert!(self.itself.is_empty() || self.commands.is_empty());
        let is_all = !self.itself.is_empty() && self.dead.is_empty();
        if is_all {
            to(self.itself_db, &self.itself);
            self.forget_itself();
        }
        is_all
    }

    fn forget_itself(&mut self) {
        self.itself.clear();
        self.itself.shrink_to(ITSELF_BYTES_KEPT);
    }

    /// It has changed a key.
    pub fn changed(&mut self, db: usize, key: &[u8]) {
        self.running.has_changed = true;
        if self.names_keys {
            self.running.keys.insert((db, key.into()));
        }
    }

    /// It is to be called this instead of what it was called, or this beside what it has said already.
    pub fn say(&mut self, command: Command) {
        self.running.is_rewritten = true;
        self.push(command);
    }

    /// It says nothing but what it says itself.
    pub fn rewrite(&mut self) {
        self.running.is_rewritten = true;
    }

    /// This is to be said behind what the running command says.
    pub fn say_behind(&mut self, command: Command) {
        self.behind.push(command);
    }

    /// See [`Said::say_behind`].
    pub fn end_behind(&mut self) {
        for command in std::mem::take(&mut self.behind) {
            self.push(command);
        }
    }

    /// A key has died.
    pub fn died(&mut self, db: usize, key: &[u8]) {
        if self.dead_db != db || self.dead.len() == DEAD_TOGETHER {
            self.bury();
        }
        self.dead_db = db;
        self.dead.push(key.into());
    }

    /// Fields of a hash, or members of a set or a sorted set, have died.
    pub fn fields_died(&mut self, db: usize, key: &[u8], kind: Kind, fields: &[Vec<u8>]) {
        let verb = match kind {
            Kind::Set => b"SREM",
            Kind::Zset => b"ZREM",
            _ => b"HDEL",
        };
        let args: Vec<&[u8]> = [verb, key].into_iter().chain(fields.iter().map(Vec::as_slice)).collect();
        self.push(Command { is_death: true, ..Command::new(db, args.into_iter()) });
    }

    fn push(&mut self, command: Command) {
        self.bury();
        self.commands.push(command);
    }

    /// What has said itself is a command among others.
    fn settle(&mut self) {
        if !self.itself.is_empty() {
            self.commands.push(Command::of_bytes(self.itself_db, self.itself.as_slice().into()));
            self.forget_itself();
        }
    }

    fn bury(&mut self) {
        self.settle();
        if !self.dead.is_empty() {
            let dead = std::mem::take(&mut self.dead);
            let args: Vec<&[u8]> = std::iter::once(&b"DEL"[..]).chain(dead.iter().map(|key| &**key)).collect();
            self.commands.push(Command { is_death: true, ..Command::new(self.dead_db, args.into_iter()) });
        }
    }

    /// Gives what was said so far.
    pub fn give(&mut self, to: impl FnOnce(&[Command])) {
        self.bury();
        if !self.commands.is_empty() {
            to(&self.commands);
            self.commands.clear();
        }
    }

    /// What was said so far.
    pub fn take(&mut self) -> Vec<Command> {
        self.bury();
        std::mem::take(&mut self.commands)
    }
}
