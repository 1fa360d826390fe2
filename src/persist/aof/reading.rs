//! Reading a log: what is whole, in its order, and where that ends.
//!
//! A log that this server has written consists of batches, each of which vouches for itself ([`super::batch`]). What
//! redis-server has written does not: there it is known that a command is cut short, and no more. Both may stand in one
//! file.

use super::batch::{self, Head};
use super::behind::{Search, Start};
use super::pieces::{Wrong, comment, is_time, next_batch, pass_times};
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
    let mut reader = Reader { limits, send, progress, position, gathered: Vec::new(), is_foreign: false, based: 0 };
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
    Ok(Read { position: reader.place().unwrap_or(0), is_foreign: reader.is_foreign, cut: None })
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
        if let Some(note) = &head.note {
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
                (true, _) => Ok(self.until(Cut { index, at, lost_bytes, is_empty, damage: Some(what) })),
                (false, Kind::Batch) => Err(LogError::Damaged { file, at, what, lost_bytes }),
                (false, _) => Err(LogError::Format { file, at, what, lost_bytes }),
            };
        }
        // What redis-server has written may end too early in the last of its files only.
        let is_last = files[index + 1..].iter().all(|path| length(path).is_ok_and(|bytes| bytes == 0));
        if kind != Kind::Batch && !is_last || !is_empty && !tolerance.torn {
            return Err(LogError::Truncated { file, at });
        }
        Ok(self.until(Cut { index, at, lost_bytes, is_empty, damage: None }))
    }

    fn until(&self, cut: Cut) -> Read {
        Read { position: self.place().unwrap_or(0), is_foreign: self.is_foreign, cut: Some(cut) }
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    const LIMITS: Limits = Limits { bulk_bytes: 1 << 20, authenticated: true };

    fn command(number: usize) -> Vec<u8> {
        let value = format!("value{number}");
        format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{value}\r\n", value.len()).into_bytes()
    }

    /// Where a batch stands: its file, its start in the file, its position in the log, and what it says was synced.
    type Place = (usize, usize, u64, u64);

    /// A log of batches in so many files, and the place of each.
    fn write(batches: usize, files: usize, synced_by: usize) -> (Vec<Vec<u8>>, Vec<Place>) {
        let (mut all, mut places, mut position) = (vec![Vec::new(); files], Vec::new(), 0);
        for number in 0..batches {
            let file = number * files / batches;
            let commands = command(number);
            let synced = number
                .checked_sub(synced_by)
                .map_or(0, |earlier: usize| places.get(earlier).map_or(0, |(_, _, position, _)| *position));
            places.push((file, all[file].len(), position, synced));
            let head = batch::head(&commands, position, synced);
            position += (head.len() + commands.len()) as u64;
            all[file].extend_from_slice(&head);
            all[file].extend_from_slice(&commands);
        }
        (all, places)
    }

    fn read_all(files: &[Vec<u8>], position: Option<u64>, torn: bool) -> (Vec<u8>, Result<Read, LogError>) {
        read_with(files, position, Tolerance { torn, damaged_bytes: 0 })
    }

    fn read_with(files: &[Vec<u8>], position: Option<u64>, tolerance: Tolerance) -> (Vec<u8>, Result<Read, LogError>) {
        let folder = tempfile::tempdir().expect("a folder");
        let paths: Vec<(PathBuf, u64)> =
            (0..files.len()).map(|file| (folder.path().join(file.to_string()), 0)).collect();
        files.iter().zip(&paths).for_each(|(bytes, (path, _))| fs::write(path, bytes).expect("a file"));
        let mut all = Vec::new();
        let mut send = |item| {
            if let Item::Commands(bytes) = item {
                all.extend_from_slice(&bytes);
            }
            Ok(())
        };
        let read = read(&paths, position, LIMITS, tolerance, &Progress::default(), &mut send);
        (all, read)
    }

    fn commands(count: usize) -> Vec<u8> {
        (0..count).flat_map(command).collect()
    }

    #[derive(Clone, Debug)]
    enum Damage {
        Cut,
        Flip(u8),
        Zeros(usize),
        Lost(usize),
        Twice(usize),
    }

    fn damage() -> impl Strategy<Value = Damage> {
        prop_oneof![
            Just(Damage::Cut),
            (0_u8..8).prop_map(Damage::Flip),
            (1_usize..200).prop_map(Damage::Zeros),
            (1_usize..200).prop_map(Damage::Lost),
            // (A whole command might have been added by redis-server.)
            (1_usize..25).prop_map(Damage::Twice),
        ]
    }

    proptest! {
        /// What is read is a whole number of batches from the start, and nothing that was on the disk is skipped in silence.
        #[test]
        fn damage_is_noticed(
            batches in 1_usize..30, files in 1_usize..4, synced_by in 1_usize..5,
            at in any::<prop::sample::Index>(), how in damage(),
        ) {
            let files = files.min(batches);
            let (mut all, places) = write(batches, files, synced_by);
            let file = at.index(files);
            let at = at.index(all[file].len());
            let len = all[file].len();
            let before = all[file].clone();
            match how {
                Damage::Cut => all[file].truncate(at),
                Damage::Flip(bit) => all[file][at] ^= 1 << bit,
                Damage::Zeros(count) => all[file][at..(at + count).min(len)].fill(0),
                Damage::Lost(count) => drop(all[file].drain(at..(at + count).min(len))),
                Damage::Twice(count) => {
                    let again = all[file][at..(at + count).min(len)].to_vec();
                    all[file].splice(at..at, again);
                }
            }
            let (found, read) = read_all(&all, Some(0), true);
            prop_assert!(commands(batches).starts_with(&found));
            let whole = (0..=batches).find(|count| commands(*count) == found);
            let whole = whole.expect("whole batches");
            match read {
                Ok(Read { position, cut, .. }) => {
                    // Nobody behind it has said that it was on the disk.
                    if let Some((_, _, lost, _)) = places.get(whole) {
                        prop_assert!(cut.is_some() || before == all[file] || matches!(how, Damage::Cut | Damage::Lost(_)));
                        prop_assert_eq!(position, *lost);
                        let is_whole = |(of, start, _, _): &Place| {
                            *of != file || start + 200 < at && !matches!(how, Damage::Lost(_))
                        };
                        let vouched = places[whole..].iter().filter(|place| is_whole(place)).any(|(_, _, _, synced)| synced > lost);
                        prop_assert!(!vouched, "{:?}", places);
                    } else {
                        prop_assert!(cut.is_none() || matches!(how, Damage::Twice(_) | Damage::Flip(_)));
                    }
                }
                Err(LogError::Damaged { .. } | LogError::Format { .. } | LogError::Truncated { .. }) => {}
                Err(other) => prop_assert!(false, "{other}"),
            }
        }

        #[test]
        fn anything_is_read_without_a_panic(bytes in any::<Vec<u8>>(), marks in 0_usize..3) {
            let bytes = [&batch::MARK.repeat(marks)[..], &bytes].concat();
            let _ = read_all(&[bytes], None, true);
        }

        #[test]
        fn what_redis_writes_may_end_anywhere(count in 1_usize..10, end in any::<prop::sample::Index>()) {
            let all = [&b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"[..], &commands(count)].concat();
            let end = end.index(all.len() + 1);
            let (found, read) = read_all(&[all[..end].to_vec()], None, true);
            prop_assert!(all.starts_with(&found));
            let cut = read.expect("no damage").cut;
            prop_assert_eq!(cut.map_or(end as u64, |cut| cut.at), found.len() as u64);
        }
    }

    /// Each was handed on alone, and whoever replays them had as much work with that as with what they say.
    #[test]
    fn small_batches_are_handed_on_together_and_in_their_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let (files, _) = write(1_000, 1, 1);
        let mut log = files[0].clone();
        log.extend_from_slice(&batch::note(&["POLICY", "p:", "1s"], log.len() as u64, 0).expect("a note"));
        let rest = command(1_000);
        log.extend_from_slice(&batch::head(&rest, log.len() as u64, 0));
        log.extend_from_slice(&rest);
        fs::write(&path, &log).expect("a file");
        let mut items = Vec::new();
        let mut send = |item| {
            items.push(item);
            Ok(())
        };
        let files = [(path, 0)];
        read(&files, Some(0), LIMITS, Tolerance::default(), &Progress::default(), &mut send).expect("a log");
        let note = Item::Note(b"POLICY\0p:\x001s".to_vec());
        assert_eq!(items, [Item::Commands(commands(1_000)), note, Item::Commands(rest)]);
    }

    #[test]
    fn a_transaction_without_an_end_is_cut() {
        let set = String::from_utf8(command(1)).expect("text");
        let text = format!("{set}*1\r\n$5\r\nMULTI\r\n{set}");
        let (found, read) = read_all(&[text.clone().into_bytes()], None, true);
        assert_eq!(found, set.as_bytes());
        assert_eq!(read.expect("no damage").cut.map(|cut| cut.at), Some(set.len() as u64));
        let (_, read) = read_all(&[text.into_bytes()], None, false);
        assert!(matches!(read, Err(LogError::Truncated { .. })));
    }

    #[test]
    fn what_redis_would_refuse_is_refused() {
        for text in ["PING\r\n", "*1\r\n+4\r\n", "*x\r\n", "*1\r\n$4\r\nPING\r\nrubbish", "\x00\x00x"] {
            let (_, read) = read_all(&[text.as_bytes().to_vec()], None, true);
            assert!(matches!(read, Err(LogError::Format { .. })), "{text:?}: {read:?}");
        }
    }

    /// A log of which nobody says that any of it was on the disk, as under `no`, with something wrong in the middle.
    fn middle(change: impl FnOnce(&mut Vec<u8>, &[usize])) -> Result<Read, LogError> {
        let (mut all, places) = write(40, 1, usize::MAX);
        let starts: Vec<usize> = places.iter().map(|place| place.1).collect();
        change(&mut all[0], &starts);
        read_all(&all, Some(0), true).1
    }

    #[test]
    fn damage_in_the_middle_is_no_torn_end() {
        for at in [0, 12, 60, 75] {
            let read = middle(|bytes, starts| bytes[starts[10] + at] ^= 1);
            assert!(matches!(read, Err(LogError::Damaged { .. })), "a bit at {at}: {read:?}");
            let read = middle(|bytes, starts| drop(bytes.drain(starts[10] + at..starts[10] + at + 7)));
            assert!(read.is_err(), "less at {at}: {read:?}");
            let read = middle(|bytes, starts| drop(bytes.splice(starts[10] + at..starts[10] + at, [b'x'; 7])));
            assert!(read.is_err(), "more at {at}: {read:?}");
        }
        // Blocks that were never written are what a crash leaves, and so is a file that is too short.
        for read in [
            middle(|bytes, starts| drop(bytes.splice(starts[10] + 9..starts[10] + 9, [0; 2_000]))),
            middle(|bytes, starts| bytes.truncate(starts[10] + 30)),
            middle(|bytes, starts| bytes[starts[39] + 45] ^= 1),
        ] {
            assert!(read.as_ref().is_ok_and(|read| read.cut.is_some()), "{read:?}");
        }
    }

    /// A value may hold anything, pieces of a log among it: those do not stand behind the batch that they are in.
    #[test]
    fn what_a_value_holds_is_no_batch() {
        let (mut all, places) = write(10, 1, usize::MAX);
        let position = places[9].2;
        let inner = [batch::head(b"", position + 100, 0), batch::head(b"", position + 10_000, 0)].concat();
        let commands = [&inner[..], &[b'x'; 300]].concat();
        let torn = [batch::head(&commands, position, 0), commands].concat();
        all[0].truncate(places[9].1);
        all[0].extend_from_slice(&torn[..torn.len() - 1]);
        let (_, read) = read_all(&all, Some(0), true);
        assert_eq!(read.expect("a torn end").cut.map(|cut| cut.at), Some(places[9].1 as u64));
    }

    /// Marks that claim to be long are not summed up again and again.
    #[test]
    fn looking_on_takes_no_longer_than_what_is_looked_through() {
        let mut bytes = batch::head(&[b'x'; 10], 0, 0);
        for number in 0..40_000 {
            bytes.extend(format!("#EMBERDB 00000000 1000000 {} 0\r\n", 1_000 + number).bytes());
        }
        let began = std::time::Instant::now();
        let (_, read) = read_all(&[bytes], Some(0), true);
        assert!(read.expect("a torn end").cut.is_some());
        // (It would be 40 GB to sum up.)
        assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
    }

    /// What could not be cut off the end of a file is not in the way of the next, which says the same place.
    #[test]
    fn the_next_file_goes_on_where_this_one_is_whole() {
        let (mut all, places) = write(10, 2, usize::MAX);
        let part = all[1][..40].to_vec();
        all[0].extend_from_slice(&part);
        let (found, read) = read_all(&all, Some(0), true);
        assert_eq!((found, read.expect("no damage").cut), (commands(10), None));
        assert_eq!(places[5].0, 1);
    }

    /// A server was killed behind a log that redis-server wrote: while it made room, and while it wrote its first batch.
    #[test]
    fn what_stands_behind_a_log_of_redis_may_be_torn() {
        let foreign = commands(5);
        let batch = [batch::head(&command(6), 0, 0), command(6)].concat();
        for (behind, what) in
            [(vec![0; 700], "room"), (batch[..10].to_vec(), "a head"), (batch[..45].to_vec(), "a batch")]
        {
            let (found, read) = read_all(&[[&foreign[..], &behind].concat()], None, true);
            let read = read.expect(what);
            assert_eq!((found, read.cut.map(|cut| cut.at)), (foreign.clone(), Some(foreign.len() as u64)), "{what}");
            assert!(read.is_foreign);
            let (found, read) = read_all(&[foreign.clone(), behind], None, true);
            let read = read.expect(what);
            assert_eq!((found, read.cut.map(|cut| (cut.index, cut.at))), (foreign.clone(), Some((1, 0))), "{what}");
        }
    }

    /// So many bytes may be lost, and no more.
    #[test]
    fn a_damaged_end_is_cut_where_it_is_short_enough() {
        let (mut all, places) = write(10, 2, 1);
        let (file, start, position, _) = places[4];
        all[file][start + 60] ^= 1;
        let lost_bytes = (all[0].len() - start + all[1].len()) as u64;
        let (found, read) = read_with(&all, Some(0), Tolerance { torn: true, damaged_bytes: lost_bytes - 1 });
        assert_eq!((file, found), (0, commands(4)));
        let text = read.expect_err("it is longer").to_string();
        assert!(text.contains(&format!("'aof-load-corrupt-tail-max-size' {lost_bytes}")), "{text}");
        let (found, read) = read_with(&all, Some(0), Tolerance { torn: false, damaged_bytes: lost_bytes });
        let Read { position: end, cut: Some(cut), .. } = read.expect("it is not longer") else { panic!("it is cut") };
        assert_eq!(
            (found, end, cut.index, cut.at, cut.lost_bytes),
            (commands(4), position, 0, start as u64, lost_bytes)
        );
        assert!(cut.damage.is_some());
        // What redis-server has written: a transaction goes as a whole.
        let text = format!("{}*1\r\n$5\r\nMULTI\r\n{}rubbish", "*1\r\n$4\r\nPING\r\n", "*1\r\n$4\r\nPING\r\n");
        let (found, read) = read_with(&[text.into()], None, Tolerance { torn: false, damaged_bytes: 100 });
        let cut = read.expect("it is short").cut.expect("it is cut");
        assert_eq!((&found[..], cut.at, cut.lost_bytes), (&b"*1\r\n$4\r\nPING\r\n"[..], 14, 36));
    }

    /// Behind a base of commands, too, whose last line says where in the log it stands.
    #[test]
    fn what_the_base_has_is_passed_over() {
        let (first, second) = (command(1), command(2));
        let base = [&command(0)[..], &batch::note(&[batch::BASE, "500"], 0, 0).expect("a note")].concat();
        let head = batch::head(&first, 400, 0);
        let before = [batch::before_base(500, 400, 0), head, first].concat();
        let counted = before.len() as u64 - batch::before_base(500, 400, 0).len() as u64;
        let behind = |at: u64| [batch::head(&second, at, 0), second.clone()].concat();
        // All of it is there, and only a part is.
        let position = 400 + counted;
        let base = String::from_utf8(base).expect("text").replace("500", &position.to_string());
        let base_line = batch::note(&[batch::BASE, &position.to_string()], 0, 0).expect("a note");
        let base = [&base.as_bytes()[..command(0).len()], &base_line].concat();
        let mark = batch::before_base(position, 400, 0);
        let rest = before[batch::before_base(500, 400, 0).len()..].to_vec();
        for (increment, found) in [
            (
                [&mark[..], &rest, &behind(position)].concat(),
                commands(1).into_iter().chain(command(2)).collect::<Vec<u8>>(),
            ),
            ([&mark[..], &behind(position)].concat(), [command(0), command(2)].concat()),
            ([&mark[..], &rest].concat(), command(0)),
            (mark.clone(), command(0)),
        ] {
            let (text, read) = read_all(&[base.clone(), increment.clone()], None, true);
            let read = read.expect("no damage");
            assert_eq!(text, found);
            assert!(read.cut.is_none() && read.position >= position, "{read:?}");
            // (The base of a snapshot says where it stands in another way.)
            let (text, _) = read_all(&[increment], Some(position), true);
            assert_eq!([command(0), text].concat(), found);
        }
    }
}
