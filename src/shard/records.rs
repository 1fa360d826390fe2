//! What this shard has changed, on its way to whoever keeps the journal. A record is one command's, or one transaction's;
//! a death that no command has found is one of its own.

use super::Shard;
use crate::journal::{Command, Record, Run, StandsIn, Transaction};
use crate::keyspace::Effects;
use std::cell::{Cell, RefCell};

#[derive(Default)]
pub(super) struct Records {
    /// Those that have not left, and commands behind them that stand alone, already as one.
    ready: RefCell<Vec<Record>>,
    run: RefCell<Run>,
    /// Bytes of those that have not left, but for the run.
    ready_bytes: Cell<usize>,
    /// What runs now makes one record.
    in_unit: Cell<bool>,
}

impl Records {
    /// A command is done.
    pub fn end_command(&self, effects: &mut Effects) {
        if !self.in_unit.get() && !effects.said.give_itself(|db, bytes| self.run.borrow_mut().push_one(db, bytes)) {
            effects.said.give(|commands| self.push_alone(commands));
        }
    }

    fn push(&self, part_of: Option<Transaction>, commands: Vec<Command>) {
        if part_of.is_some() {
            self.end_run();
            self.push_record(Record { part_of, commands });
        } else {
            self.push_alone(&commands);
        }
    }

    /// What is no part of a transaction over several shards.
    fn push_alone(&self, commands: &[Command]) {
        // (What does not stand in the log, or only there, is not for everybody.)
        if commands.iter().all(|command| command.stands_in == StandsIn::Both) {
            self.run.borrow_mut().push(commands);
        } else {
            self.end_run();
            self.push_record(Record { part_of: None, commands: commands.to_vec() });
        }
    }

    fn end_run(&self) {
        if let Some(run) = self.run.borrow_mut().take() {
            self.push_record(Record { part_of: None, commands: vec![run] });
        }
    }

    fn push_record(&self, record: Record) {
        self.ready_bytes.set(self.ready_bytes.get() + record.bytes());
        self.ready.borrow_mut().push(record);
    }

    /// As [`Records::end_deaths`], where a journal is kept.
    pub fn end_outside(&self, effects: &mut Effects) {
        if effects.is_journaled() {
            self.end_deaths(effects);
        }
    }

    /// What was said outside of commands stands for itself.
    fn end_deaths(&self, effects: &mut Effects) {
        effects.said.give(|commands| commands.chunks(1).for_each(|command| self.push_alone(command)));
    }

    fn is_empty(&self) -> bool {
        self.ready.borrow().is_empty() && self.run.borrow().is_empty()
    }

    fn take(&self) -> Vec<Record> {
        self.end_run();
        self.ready_bytes.set(0);
        self.ready.take()
    }
}

impl Shard {
    pub fn is_journaled(&self) -> bool {
        self.keyspace.borrow().effects.is_journaled()
    }

    /// Begins to keep a journal, or ends it. To be called where all shards do so in one moment.
    pub fn set_journaled(&self, wants: bool) {
        if wants != self.is_journaled() {
            let mut keyspace = self.keyspace.borrow_mut();
            keyspace.effects.set_journaled(wants);
            if !wants {
                keyspace.deaths.end_telling();
            }
            drop(keyspace);
            self.records.take();
        }
    }

    /// Whether something was changed that was not handed over.
    pub(super) fn has_records(&self) -> bool {
        let mut keyspace = self.keyspace.borrow_mut();
        self.records.end_outside(&mut keyspace.effects);
        !self.records.is_empty()
    }

    /// What this turn has changed is handed over before anything of it can be seen. To be called when nothing else is going
    /// to run in it.
    pub fn hand_over_records(&self) {
        if self.is_journaled() {
            self.front().leaves(self.take_records());
        }
    }

    /// Bytes of what this turn has changed and has not handed over.
    pub fn unsaid_bytes(&self) -> usize {
        self.records.ready_bytes.get() + self.records.run.borrow().bytes()
    }

    /// Something that is not about data.
    pub fn record_command(&self, command: Command) {
        if self.is_journaled() {
            self.records.push_alone(&[command]);
        }
    }

    /// Runs several commands whose changes are one record.
    pub fn as_unit<R>(&self, work: impl FnOnce() -> R) -> R {
        self.begin_unit();
        let result = work();
        self.record(None, self.end_unit());
        result
    }

    /// What runs from now on belongs together.
    #[inline]
    pub(super) fn begin_unit(&self) {
        let mut keyspace = self.keyspace.borrow_mut();
        if keyspace.effects.is_journaled() {
            self.records.end_deaths(&mut keyspace.effects);
            self.records.in_unit.set(true);
        }
    }

    /// What has run since then has said this.
    #[inline]
    pub(super) fn end_unit(&self) -> Vec<Command> {
        if self.records.in_unit.take() { self.keyspace.borrow_mut().effects.said.take() } else { Vec::new() }
    }

    /// Takes down what one command, or one part of a transaction, has said.
    #[inline]
    pub(super) fn record(&self, part_of: Option<Transaction>, commands: Vec<Command>) {
        if self.is_journaled() {
            self.records.push(part_of.filter(|of| of.shards.len() > 1 && of.shards.contains(self.id)), commands);
        }
    }

    /// What is to be taken down now.
    fn take_records(&self) -> Vec<Record> {
        self.records.end_outside(&mut self.keyspace.borrow_mut().effects);
        self.records.take()
    }
}
