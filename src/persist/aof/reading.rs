//! Reading a log: what is whole, in its order, and where that ends.
//!
//! A log that this server has written consists of batches, each of which vouches for itself ([`super::batch`]). What
//! redis-server has written does not: there it is known that a command is cut short, and no more. Both may stand in one
//! file.

use super::batch::{self, Head};
use super::behind::{Search, Start};
use super::pieces::{Wrong, comment, is_time, next_batch, pass_times};
use crate::journal::KnownAs;
use crate::journal::aside::ASIDE;
use crate::persist::Progress;
use crate::persist::window::Window;
use crate::resp::{Limits, Parsed, Parser, Request};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use thiserror::Error;

/// What a log says.
#[derive(Debug, PartialEq, Eq)]
pub enum Item {
    /// What follows stands in the next file, this one.
    File(usize),
    /// Whole commands, as clients send them; every transaction in them is whole.
    Commands(Vec<u8>),
    /// See [`super::batch::Head::note`].
    Note(Vec<u8>),
    /// A line that stood between commands, without its end; see [`crate::journal::aside`].
    Aside(Vec<u8>),
}

#[derive(Debug, Error)]
pub enum LogError {
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// What was on the disk is not any more.
    #[error(
        "the append only file {file} is damaged at byte {at}: {what}. What stands behind it is whole, so this was no \
         crash. Bring back a copy of the file, or, to lose the {lost_bytes} bytes that were written since, \
         start once with 'aof-load-corrupt-tail-max-size' {lost_bytes}"
    )]
    Damaged { file: String, at: u64, what: Wrong, lost_bytes: u64 },
    #[error(
        "Bad file format reading the append only file {file} at byte {at}: {what}. You can: 1) Make a backup of your AOF \
         file, then use redis-check-aof --fix. 2) To lose the {lost_bytes} bytes from there on, start once with \
         'aof-load-corrupt-tail-max-size' {lost_bytes}"
    )]
    Format { file: String, at: u64, what: Wrong, lost_bytes: u64 },
    #[error(
        "Unexpected end of file reading the append only file {file} at byte {at}. You can: 1) Make a backup of your AOF \
         file, then use redis-check-aof --fix. 2) Alternatively you can set the 'aof-load-truncated' configuration option \
         to yes and restart the server"
    )]
    Truncated { file: String, at: u64 },
    /// Whoever gets the commands does not want more.
    #[error("{0}")]
    Refused(String),
}

/// What was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Where the log goes on.
    pub position: u64,
    /// What stands last was not written by this server.
    pub is_foreign: bool,
    /// Whether anything was changed, and what there is behind the last change, where that says so.
    pub has_changes: bool,
    pub known_as: Option<KnownAs>,
    pub cut: Option<Cut>,
}

/// The end of a log that a crash has torn.
#[derive(Debug, PartialEq, Eq)]
pub struct Cut {
    /// Which of the files, and where in it the whole part ends.
    pub index: usize,
    pub at: u64,
    /// Bytes behind that, in all files.
    pub lost_bytes: u64,
    /// Nothing was ever written there: room was made for it.
    pub is_empty: bool,
    /// What is wrong there, where no crash has done that.
    pub damage: Option<Wrong>,
}

/// What may be wrong with the end of a log that is read all the same, without that end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tolerance {
    /// A crash may have torn it.
    pub torn: bool,
    /// It may be damaged, where it has no more bytes than this.
    pub damaged_bytes: u64,
}

/// Commands of other servers are handed on in pieces of about this size.
const PIECE_BYTES: usize = 256 << 10;

struct Broken {
    at: u64,
    what: Wrong,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It may be that a batch is there whose end is missing.
    Batch,
    /// A command of another server is cut short.
    Command,
    /// It is no log at this place.
    Stranger,
}

struct Reader<'a> {
    limits: Limits,
    send: &'a mut dyn FnMut(Item) -> Result<(), String>,
    progress: &'a Progress,
    /// Where in the log it is, as soon as a batch has said so.
    position: Option<u64>,
    /// Commands of batches that are not handed on yet.
    gathered: Vec<u8>,
    /// What was read last is no batch.
    is_foreign: bool,
    /// The base has everything up to there: what stands before is not handed on.
    based: u64,
    /// See [`Read`].
    has_changes: bool,
    known_as: Option<KnownAs>,
}

/// Reads files from the first to the last, each from the given byte on. `position` is where in the log the first begins,
/// where that is known.
pub fn read(
    files: &[(PathBuf, u64)],
    position: Option<u64>,
    limits: Limits,
    tolerance: Tolerance,
    progress: &Progress,
    send: &mut dyn FnMut(Item) -> Result<(), String>,
) -> Result<Read, LogError> {
    let mut reader = Reader {
        limits,
        send,
        progress,
        position,
        gathered: Vec::new(),
        is_foreign: false,
        based: 0,
        has_changes: false,
        known_as: None,
    };
    let paths: Vec<PathBuf> = files.iter().map(|(path, _)| path.clone()).collect();
    for (index, (path, from)) in files.iter().enumerate() {
        if index > 0 {
            reader.send(Item::File(index))?;
        }
        if *from == 0 {
            reader.begin_before(path)?;
        }
        let broken = reader.read_file(path, *from)?;
        reader.hand_on()?;
        let next = match paths.get(index + 1) {
            Some(next) => begin_of(next)?,
            None => None,
        };
        let here = reader.place();
        let broken = match broken {
            None if here.zip(next).is_some_and(|(here, next)| next > here) => {
                Broken { at: length(path)?, what: Wrong::NoEnd, kind: Kind::Batch }
            }
            None => continue,
            // What could not be written to the end of this file, nor be cut off, stands in the next.
            Some(broken) if broken.kind == Kind::Batch && here.is_some() && here == next => continue,
            Some(broken) => broken,
        };
        return reader.end_at(&paths, index, broken, tolerance);
    }
    Ok(reader.end(None))
}

fn length(path: &Path) -> Result<u64, LogError> {
    Ok(std::fs::metadata(path).map_err(|error| LogError::Io(name(path), error))?.len())
}

/// Where in the log a file begins, as its first batch says.
fn begin_of(path: &Path) -> Result<Option<u64>, LogError> {
    let first = first_of(path)?;
    Ok(first.and_then(|(times, head)| head.position.checked_sub(times)))
}

/// The head of the first batch of a file, and how many bytes stand before it.
fn first_of(path: &Path) -> Result<Option<(u64, Head)>, LogError> {
    let io = |error| LogError::Io(name(path), error);
    let mut window = Window::open(path).map_err(io)?;
    let of_bytes = length(path)?;
    let times = pass_times(&mut window).map_err(io)?;
    if !window.has(batch::MARK.len()).map_err(io)? || !window.rest().starts_with(batch::MARK) {
        return Ok(None);
    }
    let head = next_batch(&mut window, of_bytes, None).map_err(io)?.ok();
    Ok(head.map(|head| (times, head)))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Reader<'_> {
    /// Where in the log it is, with what the base has.
    fn place(&self) -> Option<u64> {
        self.position.map(|position| position.max(self.based))
    }

    /// Behind a base, the file may begin with what could not be written before the base was made: the base has that.
    fn begin_before(&mut self, path: &Path) -> Result<(), LogError> {
        if let Some(base) = self.place()
            && let Some((_, head)) = first_of(path)?
            && head.stands_before() == Some(base)
            && head.position < base
        {
            self.position = Some(head.position);
            self.based = base;
        }
        Ok(())
    }

    /// The batch that comes next, see [`next_batch`]. A crash may have left only a part of what the base has.
    fn next_batch(&self, window: &mut Window, of_bytes: u64) -> io::Result<Result<Head, Wrong>> {
        let next = next_batch(window, of_bytes, self.position)?;
        match next {
            Err(Wrong::Elsewhere) if self.place() != self.position => next_batch(window, of_bytes, self.place()),
            next => Ok(next),
        }
    }

    /// Reads a file as far as it is whole.
    fn read_file(&mut self, path: &Path, from: u64) -> Result<Option<Broken>, LogError> {
        let io = |error| LogError::Io(name(path), error);
        let before_bytes = self.progress.bytes.load(Ordering::Relaxed);
        let mut window = Window::open(path).map_err(io)?;
        window.pass_to(from).map_err(io)?;
        let of_bytes = length(path)?;
        let mut foreign = Foreign::default();
        loop {
            if !window.has(1).map_err(io)? {
                break;
            }
            let is_batch = batch::MARK.starts_with(&window.rest()[..window.rest().len().min(batch::MARK.len())]);
            self.progress.bytes.store(before_bytes + window.passed(), Ordering::Relaxed);
            let first = window.rest()[0];
            let len = match first {
                b'#' if is_batch => match self.next_batch(&mut window, of_bytes).map_err(io)? {
                    Ok(head) => {
                        foreign.end(self)?;
                        self.take_batch(&window, &head)?;
                        self.position = Some(head.end());
                        self.is_foreign = false;
                        window.pass(head.head_bytes + head.bytes as usize);
                        continue;
                    }
                    // What stands before it is no part of it.
                    Err(what) if self.position.is_none() => {
                        return foreign.end_before(window.passed(), what, Kind::Batch, self).map(Some);
                    }
                    Err(what) => {
                        let mut broken = foreign.give_up(window.passed(), what, self);
                        if what == Wrong::Elsewhere {
                            broken.kind = Kind::Stranger;
                        }
                        return Ok(Some(broken));
                    }
                },
                // Where batches are, redis-server puts no other comments than the time.
                b'#' if self.position.is_some() && !is_time(&mut window).map_err(io)? => Err(Wrong::Head),
                b'#' => comment(&mut window).map_err(io)?,
                b'*' => {
                    self.is_foreign = true;
                    (self.has_changes, self.known_as) = (true, None);
                    foreign.command(&mut window, self.limits).map_err(io)?
                }
                _ => Err(Wrong::Unknown),
            };
            match len {
                Ok(len) => {
                    if let Some(position) = &mut self.position {
                        *position += len as u64;
                    }
                    window.pass(len);
                    foreign.flush(self)?;
                }
                Err(Wrong::Short) => return foreign.cut_short(window.passed(), self).map(Some),
                // Behind a batch it may be what a crash has left of the next.
                Err(what) if self.position.is_some() => {
                    return Ok(Some(foreign.give_up(window.passed(), what, self)));
                }
                Err(what) => return foreign.end_before(window.passed(), what, Kind::Stranger, self).map(Some),
            }
        }
        match foreign.transaction {
            Some(_) => foreign.cut_short(window.passed(), self).map(Some),
            None => foreign.end(self).map(|()| None),
        }
    }

    /// Hands on something, behind what was gathered before it.
    fn send(&mut self, item: Item) -> Result<(), LogError> {
        self.hand_on()?;
        (self.send)(item).map_err(LogError::Refused)
    }

    /// Hands on what was gathered.
    fn hand_on(&mut self) -> Result<(), LogError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        (self.send)(Item::Commands(std::mem::take(&mut self.gathered))).map_err(LogError::Refused)
    }

    /// Batches may be as small as a command; whoever takes them has work with each.
    fn gather(&mut self, commands: &[u8]) -> Result<(), LogError> {
        self.gathered.extend_from_slice(commands);
        if self.gathered.len() >= PIECE_BYTES { self.hand_on() } else { Ok(()) }
    }

    fn take_batch(&mut self, window: &Window, head: &Head) -> Result<(), LogError> {
        if head.stands_before().is_some() || head.position < self.based {
            return Ok(());
        }
        let known_as = head.known_as();
        if head.bytes > 0 || known_as.is_some() {
            (self.has_changes, self.known_as) = (true, known_as);
        } else if let Some(note) = &head.note {
            self.send(Item::Note(note.clone()))?;
        }
        if head.bytes > 0 {
            let commands = &window.rest()[head.head_bytes..][..head.bytes as usize];
            if memchr::memmem::find(commands, ASIDE).is_some() {
                return self.take_with_asides(commands);
            }
            return self.gather(commands);
        }
        Ok(())
    }

    /// Takes commands, and what may stand between them.
    fn take_with_asides(&mut self, mut bytes: &[u8]) -> Result<(), LogError> {
        let mut parser = Parser::default();
        while !bytes.is_empty() {
            let line = memchr::memchr(b'\n', bytes).filter(|_| bytes.starts_with(ASIDE));
            let len = match (line, parser.parse(bytes, self.limits)) {
                (Some(end), _) => {
                    self.send(Item::Aside(bytes[..end].trim_ascii_end().to_vec()))?;
                    end + 1
                }
                (None, Ok(Parsed::Request(len))) => {
                    self.gather(&bytes[..len])?;
                    len
                }
                // (The connection that runs it says what is wrong with it.)
                (None, _) => {
                    self.gather(bytes)?;
                    bytes.len()
                }
            };
            bytes = &bytes[len..];
        }
        Ok(())
    }

    /// The log is whole up to there. Whether that is because of a crash: one leaves a file that ends too early, or blocks
    /// that were never written, and so are zeros, whatever stands behind them; unless somebody says that they were on the
    /// disk. Where anything else is wrong, and what stands behind it is whole, that was no crash.
    fn end_at(&self, files: &[PathBuf], index: usize, broken: Broken, tolerance: Tolerance) -> Result<Read, LogError> {
        let Broken { at, mut what, kind } = broken;
        let file = name(&files[index]);
        let position = self.position.unwrap_or(0);
        let mut lost_bytes = 0;
        for (number, path) in files.iter().enumerate().skip(index) {
            lost_bytes += length(path)? - if number == index { at } else { 0 };
        }
        let mut search = Search::behind(position, lost_bytes);
        let (mut is_empty, mut was_synced, mut has_batches, mut is_torn) = (true, false, false, false);
        for (number, path) in files.iter().enumerate().skip(index) {
            let start = if number == index { Start::Broken(at) } else { Start::File };
            let behind = search.look(path, start).map_err(|error| LogError::Io(name(path), error))?;
            is_empty &= behind.is_zero;
            was_synced |= behind.synced > position;
            has_batches |= behind.has_batches;
            if number == index {
                let ends = !behind.has_batches && what.is_short();
                is_torn = ends || behind.has_hole;
            }
        }
        if kind == Kind::Command && has_batches {
            what = Wrong::ShortInMiddle;
        }
        let is_damaged = match kind {
            Kind::Batch => was_synced || has_batches && !is_torn,
            Kind::Command => has_batches,
            // Zeros are room that was made for what was not written then.
            Kind::Stranger => !is_empty,
        };
        if is_damaged {
            return match (lost_bytes <= tolerance.damaged_bytes, kind) {
                (true, _) => Ok(self.end(Some(Cut { index, at, lost_bytes, is_empty, damage: Some(what) }))),
                (false, Kind::Batch) => Err(LogError::Damaged { file, at, what, lost_bytes }),
                (false, _) => Err(LogError::Format { file, at, what, lost_bytes }),
            };
        }
        // What redis-server has written may end too early in the last of its files only.
        let is_last = files[index + 1..].iter().all(|path| length(path).is_ok_and(|bytes| bytes == 0));
        if kind != Kind::Batch && !is_last || !is_empty && !tolerance.torn {
            return Err(LogError::Truncated { file, at });
        }
        Ok(self.end(Some(Cut { index, at, lost_bytes, is_empty, damage: None })))
    }

    fn end(&self, cut: Option<Cut>) -> Read {
        let Reader { is_foreign, has_changes, .. } = *self;
        Read { position: self.place().unwrap_or(0), is_foreign, has_changes, known_as: self.known_as.clone(), cut }
    }
}

/// Commands that stand for themselves, as redis-server writes them.
#[derive(Default)]
struct Foreign {
    parser: Parser,
    /// What was read and not handed on, and where that begins in the file.
    piece: Vec<u8>,
    piece_at: u64,
    /// Where a transaction has begun that has not ended, in the file and in the piece.
    transaction: Option<(u64, usize)>,
}

impl Foreign {
    /// Takes the command that comes next; its length.
    fn command(&mut self, window: &mut Window, limits: Limits) -> io::Result<Result<usize, Wrong>> {
        loop {
            match self.parser.parse(window.rest(), limits) {
                Ok(Parsed::Request(len)) => {
                    let request = self.parser.request(window.rest());
                    let is = |word: &str| !request.is_empty() && Request::is(request, 0, word);
                    if request.is_empty() {
                        return Ok(Err(Wrong::Nameless));
                    }
                    if is("multi") {
                        self.transaction.get_or_insert((window.passed(), self.piece.len()));
                    } else if is("exec") {
                        self.transaction = None;
                    }
                    if self.piece.is_empty() {
                        self.piece_at = window.passed();
                    }
                    self.piece.extend_from_slice(&window.rest()[..len]);
                    return Ok(Ok(len));
                }
                Ok(Parsed::Incomplete) => {
                    if !window.read_more()? {
                        return Ok(Err(Wrong::Short));
                    }
                }
                Err(_) => return Ok(Err(Wrong::Malformed)),
            }
        }
    }

    /// Hands on what there is, where it is much.
    fn flush(&mut self, reader: &mut Reader) -> Result<(), LogError> {
        if self.piece.len() >= PIECE_BYTES && self.transaction.is_none() {
            reader.send(Item::Commands(std::mem::take(&mut self.piece)))?;
        }
        Ok(())
    }

    /// What stands behind what was read last is broken. Where batches stand before it, that may be a part of it.
    fn give_up(&mut self, passed: u64, what: Wrong, reader: &mut Reader) -> Broken {
        let at = if self.piece.is_empty() { passed } else { self.piece_at };
        self.piece.clear();
        if let Some(position) = &mut reader.position {
            *position -= passed - at;
        }
        Broken { at, what, kind: Kind::Batch }
    }

    /// The file ends in the middle of a command or of a transaction: what stands before that is handed on.
    fn cut_short(&mut self, passed: u64, reader: &mut Reader) -> Result<Broken, LogError> {
        let kind = if reader.position.is_some() { Kind::Batch } else { Kind::Command };
        self.end_before(passed, Wrong::Short, kind, reader)
    }

    /// What stands before the command, or the transaction, that something is wrong with is handed on.
    fn end_before(&mut self, passed: u64, what: Wrong, kind: Kind, reader: &mut Reader) -> Result<Broken, LogError> {
        let (at, len) = self.transaction.take().unwrap_or((passed, self.piece.len()));
        self.piece.truncate(len);
        self.end(reader)?;
        if let Some(position) = &mut reader.position {
            *position -= passed - at;
        }
        Ok(Broken { at, what, kind })
    }

    /// Hands on what there is.
    fn end(&mut self, reader: &mut Reader) -> Result<(), LogError> {
        if !self.piece.is_empty() {
            reader.send(Item::Commands(std::mem::take(&mut self.piece)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
