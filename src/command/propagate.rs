//! What commands say to the journal: themselves, or others in their place that make the same change again.
//!
//! A command repeats itself where nothing in it depends on time, chance or keys of other shards. Else its handler says
//! what it did ([`Ctx::propagate`]); times are said as moments, and what was drawn is named. A step of a coordinator that
//! says nothing says what its keys are now.

use super::Ctx;
use super::dump::{self, Wall};
use super::grouped::own_command;
use super::pieces::{has_pieces, pieces};
use crate::journal::Command;
use crate::keyspace::{Event, Key, KeyName, Touch};
use crate::rdb::payload;
use crate::resp::Request;
use crate::value::number::{I64_TEXT_BYTES_MAX, format_i64};

impl Ctx<'_> {
    /// Whether somebody keeps a journal: what is said is said to nobody else.
    #[inline]
    pub fn is_journaled(&self) -> bool {
        self.keyspace.effects.is_journaled()
    }

    /// Says this instead of the command that runs, or beside what was said instead of it already.
    #[inline]
    pub fn propagate(&mut self, args: &[&[u8]]) {
        if self.is_journaled() {
            self.say(self.db, args);
        }
    }

    /// The same with a number, or a moment of the wall clock, behind the last argument.
    #[inline]
    pub fn propagate_with(&mut self, args: &[&[u8]], number: i64) {
        if self.is_journaled() {
            let mut text = [0; I64_TEXT_BYTES_MAX];
            self.say(self.db, &[args, &[format_i64(number, &mut text)]].concat());
        }
    }

    /// Says of a deadline, in store milliseconds, when it is.
    #[inline]
    pub fn propagate_at(&mut self, args: &[&[u8]], deadline_ms: u64) {
        if self.is_journaled() {
            self.propagate_with(args, self.clock.to_log_ms(deadline_ms));
        }
    }

    /// What the command that runs is called is not said.
    #[inline]
    pub fn propagate_nothing(&mut self) {
        self.keyspace.effects.said.rewrite();
    }

    /// The command has taken a key away, whatever it is called.
    #[inline]
    pub fn commit_deletion(&mut self, key: Key) {
        self.commit(key, Event::Del);
        self.propagate(&[b"DEL", key.bytes]);
    }

    /// Says what a key is now.
    #[inline]
    pub fn propagate_state(&mut self, key: Key) {
        if self.is_journaled() {
            self.say_state(self.db, key);
        }
    }

    /// Says that a value of this form was put under a key, whatever was there.
    #[inline]
    pub fn propagate_restored(&mut self, key: Key, payload: &[u8], deadline_ms: Option<u64>) {
        if self.is_journaled() {
            self.say_restored(self.db, key, payload, deadline_ms);
        }
    }

    /// Says something about the data of all shards, as each of them does.
    pub fn propagate_whole(&mut self, request: Request) {
        if self.is_journaled() {
            let command = Command { is_whole: true, ..Command::new(self.db, request.from(0)) };
            self.keyspace.effects.said.say(command);
        }
    }

    #[cold]
    fn say(&mut self, db: usize, args: &[&[u8]]) {
        self.keyspace.effects.said.say(Command::new(db, args.iter().copied()));
    }

    #[cold]
    fn say_state(&mut self, db: usize, key: Key) {
        let wall = Wall::of_log(self);
        let Some(live) = self.keyspace.find(db, key, self.now, Touch::NOTHING) else {
            return self.say(db, &[b"DEL", key.bytes]);
        };
        let (mut value, deadline_ms) = (Vec::new(), live.deadline_ms());
        // (No form of RDB in which elements have deadlines is known to replicas that know of none: commands can be said
        // without what these do not know.)
        if live.has_fields_deadline() || live.bytes() > self.limits.string_bytes / 2 && has_pieces(live.kind()) {
            let pieces = pieces(db, key.bytes, live.content(), self.now.ms, |ms| self.clock.to_log_ms(ms));
            self.say_pieces(db, key, pieces, deadline_ms);
            return self.say_beside(db, key);
        }
        dump::write(&mut value, live.content(), wall);
        payload::seal(&mut value);
        self.say_restored(db, key, &value, deadline_ms);
        self.say_beside(db, key);
    }

    /// Whoever was told what a key is has taken it for another one, which is in no group, and is pinned where the one that was
    /// there was.
    fn say_beside(&mut self, db: usize, key: Key) {
        self.say_pin(db, key);
        if let Some(said) = self.keyspace.membership(db, key.bytes) {
            let command = own_command(db, key.bytes, &said, |ms| self.clock.to_log_ms(ms));
            self.keyspace.effects.said.say(command);
        }
    }

    #[cold]
    fn say_restored(&mut self, db: usize, key: Key, payload: &[u8], deadline_ms: Option<u64>) {
        let (mut text, at_ms) = ([0; I64_TEXT_BYTES_MAX], deadline_ms.map(|ms| self.clock.to_log_ms(ms)));
        let ttl = format_i64(at_ms.unwrap_or(0), &mut text);
        let args: [&[u8]; 6] = [b"RESTORE", key.bytes, ttl, payload, b"REPLACE", b"ABSTTL"];
        self.say(db, &args[..if at_ms.is_some() { 6 } else { 5 }]);
    }

    fn say_pieces(&mut self, db: usize, key: Key, pieces: Vec<Command>, deadline_ms: Option<u64>) {
        self.say(db, &[b"DEL", key.bytes]);
        pieces.into_iter().for_each(|piece| self.keyspace.effects.said.say(piece));
        if let Some(deadline_ms) = deadline_ms {
            let at_ms = self.clock.to_log_ms(deadline_ms).to_string();
            self.say(db, &[b"PEXPIREAT", key.bytes, at_ms.as_bytes()]);
        }
    }

    /// A command begins, or, where there is no request, a step of one.
    #[inline]
    pub fn begin_to_say(&mut self, request: Option<Request>) {
        self.keyspace.effects.said.begin(request.is_none());
    }

    /// It is over: what it did and has not said is said.
    #[inline]
    pub fn end_saying(&mut self, request: Option<Request>) {
        if self.keyspace.effects.is_closed() && !self.keyspace.deaths.has_news() {
            let said = &mut self.keyspace.effects.said;
            if said.is_silent() {
                return;
            }
            if let Some(request) = request.filter(|_| said.is_plain()) {
                return said.say_itself(self.db, request);
            }
        }
        self.end_saying_more(request);
    }

    #[cold]
    fn end_saying_more(&mut self, request: Option<Request>) {
        let running = self.keyspace.effects.said.end();
        match request {
            _ if running.is_rewritten || !running.has_changed => {}
            Some(request) => self.keyspace.effects.said.say(Command::new(self.db, request.from(0))),
            None => self.say_states(running.keys),
        }
        if self.keyspace.deaths.has_news() {
            self.say_of_deaths();
        }
        self.keyspace.effects.said.end_behind();
        let unreported = self.keyspace.effects.take_open();
        self.keyspace.counters.unreported += unreported.len() as u64;
        self.say_states(unreported);
        self.keyspace.effects.said.end();
    }

    fn say_states(&mut self, keys: impl IntoIterator<Item = KeyName>) {
        for (db, name) in keys {
            self.say_state(db, self.keyspace.hasher().clone().key(&name));
        }
    }
}
