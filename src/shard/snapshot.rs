//! A shard's part of a snapshot: what it writes, a slice at a time, and what it takes in.

use super::Shard;
use super::groups::{GROUP, Note};
use crate::clock::{Now, store_us};
use crate::command::dump::{self, Commands, Wall};
use crate::command::grouped::{date_command, own_command};
use crate::command::pins::pin_command;
use crate::config::Limits;
use crate::journal::aside;
use crate::keyspace::snapshot::{Fill, Frame, Keeper, Kept, Part, Saved};
use crate::keyspace::{Clocking, Key, Keyspace, Lookup, PREFETCHED, Span};
use crate::net::{next_from_outside, sleep, step_back};
use crate::persist::reading::{Batch, LoadedKey};
use crate::persist::writing::{Offered, Pieces};
use crate::persist::{PAUSE, pause_of};
use crate::rdb::{self, Piece, file};
use crate::value::Portion;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Others have their turn after so long: what is written down at a time, beside what they ask for.
const SAVING_SLICE_US: u64 = 150;
/// And what is taken in, while few ask for anything.
const LOADING_SLICE_US: u64 = 500;
/// Of what is taken in without a look at the clock.
const TOGETHER_BYTES: usize = 16 << 10;
/// A piece of a file is about so long.
const PIECE_BYTES: usize = 256 << 10;
/// The field in which a death stands that waits to be written to its stream.
pub const DEATH: &str = "emberdb-death";
/// How long to wait for the disk.
const FULL: Duration = Duration::from_millis(1);

/// How much there is.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// Keys of each database, and how many of them have deadlines.
    pub databases: Vec<(u64, u64)>,
    pub has_field_deadlines: bool,
    /// Changes so far.
    pub changes: u64,
}

/// What was taken in.
#[derive(Clone, Copy, Debug, Default)]
pub struct TakenIn {
    pub keys: u64,
    /// Those that had died by then: left out, or hidden until the cycle finds them.
    pub dead: u64,
    /// Keys of which elements were left out, since they had died.
    pub thinned: u64,
}

/// How keys are taken in.
#[derive(Clone, Copy, Debug)]
pub struct TakeIn {
    /// A key that is there already is replaced: else it is a defect of the file.
    pub replace: bool,
    /// What has died is left out.
    pub drop_dead: bool,
    /// They arrive beside the databases that are there ([`Shard::begin_arriving`]).
    pub beside: bool,
}

/// What has become of a shard's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    All,
    /// The disk does not take it.
    NoRoom,
    /// A database was emptied, or has changed places with another: there is no such moment any more.
    Nothing,
}

/// What is written down and did not leave yet.
#[derive(Default)]
pub(super) struct Written {
    /// Keys with their values, as much as goes together. One vector for all of them would stop the shard whenever it
    /// grows, where many keys change and the disk is slow.
    pieces: VecDeque<Piece>,
    /// What came last.
    piece: Piece,
    /// Whose keys they are that it ends with. Another shard's piece may come next, so each says so anew.
    db: Option<usize>,
    /// A value that comes in parts.
    part: Piece,
    /// What has become of it.
    parts: Parts,
    /// How many keys were written since somebody asked.
    keys: u64,
}

/// A value that comes in parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Parts {
    #[default]
    None,
    /// Parts of it are to come, and none has left.
    Begun,
    /// Some have left.
    Leaving,
    /// The same, and the last one is there.
    Ending,
}

/// Of what is written, what leaves next.
enum Next {
    Piece,
    Part,
    LastPart,
}

/// What leaves.
struct Leaving {
    piece: Piece,
    /// It ends within a value: no other shard's piece may come before the rest of that.
    goes_on: bool,
}

impl Written {
    /// Whether something is to leave before more is written.
    fn is_full(&self) -> bool {
        self.next().is_some()
    }

    /// What leaves next, where there is enough of it.
    fn next(&self) -> Option<Next> {
        match self.parts {
            Parts::None | Parts::Begun if !self.pieces.is_empty() => Some(Next::Piece),
            Parts::Begun | Parts::Leaving if self.part.len() >= PIECE_BYTES => Some(Next::Part),
            // The next value is none of this one's parts.
            Parts::Ending => Some(Next::LastPart),
            _ => None,
        }
    }

    /// What was written into the last piece may be enough.
    fn wrote(&mut self) {
        if self.piece.len() >= PIECE_BYTES {
            self.close_piece();
        }
    }

    fn close_piece(&mut self) {
        if !self.piece.is_empty() {
            self.pieces.push_back(std::mem::take(&mut self.piece));
            self.db = None;
        }
    }

    fn take(&mut self, all: bool) -> Option<Leaving> {
        if self.parts == Parts::None && all {
            self.close_piece();
        }
        match self.next()? {
            Next::Piece => self.pieces.pop_front().map(|piece| Leaving { piece, goes_on: false }),
            Next::Part => Some(self.leave_part(Parts::Leaving)),
            Next::LastPart => Some(self.leave_part(Parts::None)),
        }
    }

    fn leave_part(&mut self, then: Parts) -> Leaving {
        self.parts = then;
        Leaving { piece: std::mem::take(&mut self.part), goes_on: then == Parts::Leaving }
    }
}

/// What a file consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    #[default]
    Snapshot,
    /// Commands, as the base of a log.
    Commands,
}

/// Writes keys down in the form of the file.
struct Writer {
    written: Rc<RefCell<Written>>,
    wall: Wall,
    form: Form,
}

impl Writer {
    fn select(&self, out: &mut Vec<u8>, db: usize) {
        match self.form {
            Form::Snapshot => file::write_db(out, db),
            Form::Commands => dump::select(out, db),
        }
    }
}

impl Writer {
    /// A note in the form of the file: a field beside the keys, or the command.
    fn note(&self, out: &mut Vec<u8>, note: &Note) {
        match self.form {
            Form::Snapshot => file::write_field(out, GROUP, &note.to_field()),
            Form::Commands => out.extend_from_slice(&note.bytes),
        }
    }

    /// What is said of the groups that a key is in, if it is in some.
    fn membership(&self, db: usize, kept: &Kept) -> Option<Note> {
        let said = kept.membership.as_ref()?;
        Some(Note { db, bytes: own_command(db, kept.key, said, |ms| self.wall.of_store_ms(ms) as i64).bytes })
    }
}

impl Keeper for Writer {
    fn group(&mut self, db: usize, name: &[u8], span: &Span) {
        let written = &mut *self.written.borrow_mut();
        let note = Note { db, bytes: date_command(db, name, span, |ms| self.wall.of_store_ms(ms) as i64).bytes };
        let is_new_db = self.form == Form::Commands && written.db.replace(db) != Some(db);
        written.piece.write(|out| {
            if is_new_db {
                self.select(out, db);
            }
            self.note(out, &note);
        });
        written.wrote();
    }

    fn key(&mut self, db: usize, kept: Kept) {
        let membership = self.membership(db, &kept);
        let written = &mut *self.written.borrow_mut();
        written.keys += 1;
        let is_new_db = written.db.replace(db) != Some(db);
        written.piece.write(|out| {
            if is_new_db {
                self.select(out, db);
            }
            if self.form == Form::Commands {
                dump::write_commands(out, kept.key, kept.content, kept.deadline_ms, self.wall);
                if kept.is_pinned {
                    out.extend_from_slice(&pin_command(db, kept.key, true).bytes);
                }
                membership.iter().for_each(|note| self.note(out, note));
                return;
            }
            membership.iter().for_each(|note| self.note(out, note));
            if kept.is_pinned {
                file::write_pin(out);
            }
            let deadline_ms = kept.deadline_ms.map(|ms| self.wall.of_store_ms(ms));
            file::write_key(out, kept.key, deadline_ms, |out| dump::write(out, kept.content, self.wall));
        });
        written.wrote();
    }

    fn parts_strings(&self) -> bool {
        self.form == Form::Snapshot
    }

    fn frame(&self, db: usize, kept: &Kept) -> Frame {
        let membership = self.membership(db, kept);
        if self.form == Form::Commands {
            let mut frame = dump::frame_of_commands(kept.key, kept.content, kept.deadline_ms, self.wall);
            if kept.is_pinned {
                frame.foot.extend_from_slice(&pin_command(0, kept.key, true).bytes);
            }
            membership.iter().for_each(|note| self.note(&mut frame.foot, note));
            return frame;
        }
        let (mut head, mut frame) = (Vec::new(), Frame::default());
        membership.iter().for_each(|note| self.note(&mut head, note));
        if kept.is_pinned {
            file::write_pin(&mut head);
        }
        let deadline_ms = kept.deadline_ms.map(|ms| self.wall.of_store_ms(ms));
        file::write_key(&mut head, kept.key, deadline_ms, |out| frame = dump::frame(kept.content, self.wall, out));
        Frame { head, ..frame }
    }

    fn encode(&self, frame: &Frame, portion: Portion, out: &mut Vec<u8>) {
        if self.form == Form::Commands {
            let mut commands = Commands::new(out, &frame.key, self.wall);
            commands.add(portion);
            return commands.end();
        }
        let mut piece = Piece::default();
        piece.write(|out| dump::write_part(out, frame, portion, self.wall));
        out.append(&mut piece.into_bytes());
    }

    fn part(&mut self, db: usize, frame: &Frame, fill: &mut Fill) -> bool {
        let written = &mut *self.written.borrow_mut();
        let (mut has_more, is_first) = (false, written.parts == Parts::None);
        written.keys += u64::from(is_first);
        written.part.write(|out| {
            if is_first {
                self.select(out, db);
            }
            has_more = match self.form {
                Form::Snapshot => fill(&mut |part| match part {
                    Part::Bytes(bytes) => out.extend_from_slice(bytes),
                    Part::Portion(portion) => dump::write_part(out, frame, portion, self.wall),
                }),
                Form::Commands => {
                    let mut commands = Commands::new(out, &frame.key, self.wall);
                    let has_more = fill(&mut |part| match part {
                        Part::Bytes(bytes) => commands.as_they_are(bytes),
                        Part::Portion(portion) => commands.add(portion),
                    });
                    commands.end();
                    has_more
                }
            };
        });
        written.parts = match written.parts {
            Parts::None | Parts::Begun if has_more => Parts::Begun,
            Parts::Leaving | Parts::Ending if has_more => Parts::Leaving,
            Parts::Leaving | Parts::Ending => Parts::Ending,
            // It is short enough to go with others.
            Parts::None | Parts::Begun => {
                written.piece.append(std::mem::take(&mut written.part));
                written.db = Some(db);
                written.wrote();
                Parts::None
            }
        };
        has_more
    }
}

impl Shard {
    pub fn sizes(&self) -> Sizes {
        let keyspace = self.keyspace.borrow();
        let of_db = |db: usize| (keyspace.len(db) as u64, keyspace.with_deadline(db) as u64);
        Sizes {
            databases: (0..keyspace.databases()).map(of_db).collect(),
            has_field_deadlines: keyspace.has_field_deadlines(),
            changes: keyspace.effects.dirty,
        }
    }

    /// What there is at this moment is going to be written down, whatever becomes of it. To be called while somebody holds
    /// everything. `offset_ms`: how far ahead of store time the times in it are.
    /// `leaves_fields`: for who knows of no deadlines of fields.
    pub fn begin_saving(&self, form: Form, offset_ms: i64, leaves_fields: bool) {
        let (written, now) = (Rc::new(RefCell::new(Written::default())), self.clock.now());
        for note in self.note_deaths() {
            let written = &mut *written.borrow_mut();
            written.piece.write(|out| match form {
                Form::Snapshot => file::write_field(out, DEATH, &note),
                Form::Commands => out.extend_from_slice(&aside::death(&note).bytes),
            });
            written.wrote();
        }
        // Whoever reads dead elements with their deadlines sees that they have died, until the log or the stream says so. Commands
        // that stand there before may have found them still.
        let dead_before = if leaves_fields { now } else { Now::from_ms(0) };
        let wall = Wall::ahead(dead_before, offset_ms).leaving_fields(leaves_fields);
        let writer = Writer { written: written.clone(), wall, form };
        self.keyspace.borrow_mut().begin_saving(now, dead_before, Box::new(writer));
        *self.written.borrow_mut() = Some(written);
    }

    /// Writes it down, a slice at a time.
    pub async fn write_down(self: Rc<Shard>, pieces: Pieces) -> Wrote {
        let wrote = self.write_all_down(&pieces).await;
        if wrote != Wrote::All {
            // Another shard may wait for the rest of a value of this one.
            pieces.give_up();
        }
        wrote
    }

    async fn write_all_down(&self, pieces: &Pieces) -> Wrote {
        let Some(written) = self.written.borrow().clone() else { return Wrote::Nothing };
        loop {
            let (began_us, is_slowed) = (store_us(), self.config().rdb_key_save_delay_us != 0);
            let saved = self
                .keyspace
                .borrow_mut()
                .save_some(|| !is_slowed && !written.borrow().is_full() && store_us() - began_us < SAVING_SLICE_US);
            if saved == Saved::Void {
                return Wrote::Nothing;
            }
            while let Some(leaving) = { written.borrow_mut().take(saved == Saved::All) } {
                if !send(pieces, self.id, leaving).await {
                    return Wrote::NoRoom;
                }
            }
            if saved == Saved::All {
                return Wrote::All;
            }
            step_back().await;
            let keys = std::mem::take(&mut written.borrow_mut().keys);
            self.pause_behind(keys).await;
        }
    }

    /// As `rdb-key-save-delay` says, for as long as it does and somebody wants the rest.
    async fn pause_behind(&self, keys: u64) {
        let began_us = store_us();
        loop {
            let pause = pause_of(self.config().rdb_key_save_delay_us, keys);
            let elapsed = Duration::from_micros(store_us() - began_us);
            let Some(rest) = pause.checked_sub(elapsed).filter(|rest| !rest.is_zero()) else { return };
            if !self.keyspace.borrow().is_saving() {
                return;
            }
            sleep(rest.min(PAUSE)).await;
        }
    }

    /// It is not to be completed.
    pub fn give_up_saving(&self) {
        self.keyspace.borrow_mut().give_up_saving();
    }

    /// Changes so far.
    pub fn changes(&self) -> u64 {
        self.keyspace.borrow().effects.dirty
    }

    /// It is written, or nobody wants it.
    pub fn stop_saving(&self) {
        self.keyspace.borrow_mut().stop_saving();
        *self.written.borrow_mut() = None;
    }

    /// Takes in what comes until nothing more does, while somebody sees to it that no one else changes anything. What is
    /// wrong with it ends that: the receiver is gone then.
    pub async fn load_from(self: Rc<Shard>, batches: Receiver<Batch>, how: TakeIn) -> Result<TakenIn, String> {
        let mut taken = TakenIn::default();
        while let Some(batch) = next_from_outside(&batches).await {
            let mut rest = batch.keys.iter();
            while !rest.as_slice().is_empty() {
                self.load_some(&batch, &mut rest, how, &mut taken)?;
                step_back().await;
            }
        }
        Ok(taken)
    }

    /// All is there: what has died until now is told from now on, and does not count as found late. Returns the changes so
    /// far.
    pub fn end_loading(&self) -> u64 {
        let changes = {
            let mut keyspace = self.keyspace.borrow_mut();
            keyspace.lag.count_from(self.clock.refresh());
            keyspace.effects.dirty
        };
        self.after_commands();
        changes
    }

    /// The same where nobody asks for the changes.
    pub fn end_loading_of(shard: &std::rc::Rc<Shard>) {
        shard.end_loading();
    }

    /// What is loaded arrives beside what is there, for as long as it is not all there.
    pub fn begin_arriving(shard: &std::rc::Rc<Shard>) {
        shard.keyspace.borrow_mut().begin_arriving();
    }

    /// What has arrived takes the place of what was there, or is given up.
    pub fn end_arriving(&self, takes_place: bool) {
        self.keyspace.borrow_mut().end_arriving(takes_place, self.clock.now());
        self.after_commands();
    }

    /// Empties all databases, for what is loaded in their place.
    pub fn empty(shard: &std::rc::Rc<Shard>) {
        let (mut keyspace, now) = (shard.keyspace.borrow_mut(), shard.clock.now());
        (0..keyspace.databases()).for_each(|db| keyspace.flush(db, now));
    }

    fn load_some(
        &self,
        batch: &Batch,
        rest: &mut std::slice::Iter<LoadedKey>,
        how: TakeIn,
        taken: &mut TakenIn,
    ) -> Result<(), String> {
        let mut keyspace = self.keyspace.borrow_mut();
        match how.beside {
            true => keyspace.with_arriving(|keyspace| self.load_into(keyspace, batch, rest, how, taken)),
            false => self.load_into(&mut keyspace, batch, rest, how, taken),
        }
    }

    fn load_into(
        &self,
        keyspace: &mut Keyspace,
        batch: &Batch,
        rest: &mut std::slice::Iter<LoadedKey>,
        how: TakeIn,
        taken: &mut TakenIn,
    ) -> Result<(), String> {
        let (began_us, now, limits) = (store_us(), self.clock.refresh(), &*self.limits.borrow());
        // Elements that have died by now may have been given more time since, by what stands in the log or the stream behind the
        // snapshot. Who does not drop dead keys keeps dead elements, too, until the cycle finds them.
        let dead_before = if how.drop_dead { now } else { Now::from_ms(0) };
        let (wall, counts) = (Wall::at(dead_before, &self.clock), keyspace.clocking().counts());
        let loading = Loading { batch, how, now, wall, limits, counts };
        loop {
            let next = together(batch, rest.as_slice());
            if next == 0 || store_us() - began_us > LOADING_SLICE_US {
                break;
            }
            let some = &rest.as_slice()[..next];
            let keys: SmallVec<[Key; PREFETCHED]> = some.iter().map(|of| self.hasher.key(batch.key(of))).collect();
            let lookup = |(of, key): (&LoadedKey, &Key)| Lookup { writes: true, ..Lookup::key(of.db, key.hash) };
            keyspace.prefetch(some.iter().zip(&keys).map(lookup));
            for (loaded, key) in rest.by_ref().take(next).zip(keys) {
                loading.take(keyspace, key, loaded, taken)?;
            }
        }
        keyspace.end_putting_back();
        Ok(())
    }
}

/// How many of these keys are looked for together, and taken in without a look at the clock.
fn together(batch: &Batch, keys: &[LoadedKey]) -> usize {
    let mut bytes = 0;
    let fits = |loaded: &&LoadedKey| {
        let fits = bytes < TOGETHER_BYTES;
        bytes += batch.value(loaded).len();
        fits
    };
    keys.iter().take(PREFETCHED).take_while(fits).count()
}

/// What is so for all keys of a slice.
struct Loading<'a> {
    batch: &'a Batch,
    how: TakeIn,
    now: Now,
    wall: Wall,
    limits: &'a Limits,
    /// Frequencies are kept of keys.
    counts: bool,
}

impl Loading<'_> {
    fn take(&self, keyspace: &mut Keyspace, key: Key, loaded: &LoadedKey, taken: &mut TakenIn) -> Result<(), String> {
        let broken = |what: &str| format!("{what} of key '{}' in DB {}", key.bytes.escape_ascii(), loaded.db);
        if !self.how.replace && keyspace.has_entry(loaded.db, key) {
            return Err(broken("a second value"));
        }
        let deadline_ms = loaded.deadline_ms.map(|wall_ms| self.wall.to_store_ms(wall_ms));
        let is_dead = deadline_ms.is_some_and(|deadline_ms| deadline_ms < self.now.ms);
        taken.dead += u64::from(is_dead);
        if is_dead && self.how.drop_dead {
            return Ok(());
        }
        let value = match dump::build(self.batch.value(loaded), self.limits, self.wall) {
            Ok(built) => {
                taken.thinned += u64::from(built.is_thinned);
                built.value
            }
            Err(rdb::Error::Empty) => None,
            Err(error) => return Err(broken(&format!("{error} in the value"))),
        };
        // (All of its elements have died, or there were never any: Redis passes over these, too.)
        let Some(value) = value else { return Ok(()) };
        let clock = match (loaded.idle_s, loaded.frequency) {
            (Some(idle_s), _) if !self.counts => Some(Clocking::of_idle_s(idle_s, self.now)),
            (_, Some(frequency)) if self.counts => Some(Clocking::of_frequency(frequency.into(), self.now)),
            _ => None,
        };
        keyspace.put_back(loaded.db, key, value, deadline_ms, clock, self.now);
        if loaded.is_pinned {
            keyspace.set_pinned(loaded.db, key, true);
        }
        taken.keys += u64::from(!is_dead);
        Ok(())
    }
}

async fn send(pieces: &Pieces, from: usize, leaving: Leaving) -> bool {
    let (mut piece, goes_on) = (leaving.piece, leaving.goes_on);
    loop {
        match pieces.offer(from, piece, goes_on) {
            Offered::Taken => return true,
            Offered::Over => return false,
            Offered::Full(again) => {
                piece = again;
                sleep(FULL).await;
            }
        }
    }
}
