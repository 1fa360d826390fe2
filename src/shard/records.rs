//! What this shard has changed, on its way to whoever keeps the journal. A record is one command's, or one transaction's;
//! a death that no command has found is one of its own.

use super::Shard;
use crate::clock::Now;
use crate::journal::{Command, Record, Transaction};
use crate::keyspace::Effects;
use std::cell::{Cell, RefCell};

#[derive(Default)]
pub(super) struct Records {
    /// Those that have not left.
    ready: RefCell<Vec<Record>>,
    /// What runs now makes one record.
    in_unit: Cell<bool>,
}

impl Records {
    /// A command is done.
    pub fn end_command(&self, effects: &mut Effects, now: Now) {
        if !self.in_unit.get() {
            self.push(None, now, effects.said.take());
        }
    }

    fn push(&self, part_of: Option<Transaction>, now: Now, commands: Vec<Command>) {
        if part_of.is_some() || !commands.is_empty() {
            self.ready.borrow_mut().push(Record { part_of, now_ms: now.ms, commands });
        }
    }

    /// As [`Records::end_deaths`], where a journal is kept.
    pub fn end_outside(&self, effects: &mut Effects, now: Now) {
        if effects.is_journaled() {
            self.end_deaths(effects, now);
        }
    }

    /// What was said outside of commands stands for itself.
    fn end_deaths(&self, effects: &mut Effects, now: Now) {
        effects.said.take().into_iter().for_each(|command| self.push(None, now, vec![command]));
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
            self.records.ready.take();
        }
    }

    /// What this turn has changed is handed over before anything of it can be seen. To be called when nothing else is going
    /// to run in it.
    pub fn hand_over_records(&self) {
        if self.is_journaled() {
            let records = self.take_records();
            if !records.is_empty() {
                self.front().journaled(records);
            }
            self.front().leaves();
        }
    }

    /// Something that is not about data.
    pub fn record_command(&self, command: Command) {
        if self.is_journaled() {
            self.records.push(None, self.clock.now(), vec![command]);
        }
    }

    /// Runs several commands whose changes are one record.
    pub fn as_unit<R>(&self, work: impl FnOnce() -> R) -> R {
        self.begin_unit();
        let result = work();
        self.record(None, self.clock.now(), self.end_unit());
        result
    }

    /// What runs from now on belongs together.
    #[inline]
    pub(super) fn begin_unit(&self) {
        let mut keyspace = self.keyspace.borrow_mut();
        if keyspace.effects.is_journaled() {
            self.records.end_deaths(&mut keyspace.effects, self.clock.now());
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
    pub(super) fn record(&self, part_of: Option<Transaction>, now: Now, commands: Vec<Command>) {
        if self.is_journaled() {
            self.records.push(part_of.filter(|of| of.shards.len() > 1 && of.shards.contains(self.id)), now, commands);
        }
    }

    /// What is to be taken down now.
    pub(super) fn take_records(&self) -> Vec<Record> {
        let mut keyspace = self.keyspace.borrow_mut();
        if keyspace.effects.is_journaled() {
            self.records.end_deaths(&mut keyspace.effects, self.clock.now());
        }
        self.records.ready.take()
    }
}
