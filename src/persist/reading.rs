//! Reading a file: the bytes that are there decide how much memory it takes, not the numbers in them.

use super::Progress;
use super::window::Window;
use crate::net::Nameless;
use crate::rdb::dialect::Dialect;
use crate::rdb::file::{self, Checksum, Item, NoItem};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum LoadError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("Wrong signature trying to load DB from file")]
    Signature,
    #[error("Can't handle RDB format version {0}")]
    Version(String),
    #[error("Unexpected EOF reading RDB file. Internal error in RDB reading offset {0}: it ends in the middle")]
    Short(u64),
    #[error("RDB CRC error: Wrong RDB checksum expected: ({expected:x}) but got ({found:x})")]
    Checksum { expected: u64, found: u64 },
    #[error("at byte {at}: {what}")]
    Corrupt { at: u64, what: String },
    /// Whoever gets the keys does not want more.
    #[error("{0}")]
    Refused(String),
}

/// A batch is sent when it has so many bytes.
const BATCH_BYTES: usize = 256 << 10;
/// The field that only this server's snapshots have.
pub const OWN_VERSION: &str = "emberdb-ver";
/// What says something of the file itself is not longer.
const FIELD_BYTES: usize = 1 << 16;
/// The first version with a checksum.
const VERSION_OF_CHECKSUMS: u16 = 5;

/// Keys of one shard, in the order of the file.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    pub keys: Vec<LoadedKey>,
}

pub struct LoadedKey {
    pub db: usize,
    /// Milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    pub idle_s: Option<u64>,
    pub frequency: Option<u8>,
    pub is_pinned: bool,
    key: Range<usize>,
    value: Range<usize>,
}

impl Batch {
    pub fn key(&self, of: &LoadedKey) -> &[u8] {
        &self.bytes[of.key.clone()]
    }

    /// The value with its type in front.
    pub fn value(&self, of: &LoadedKey) -> &[u8] {
        &self.bytes[of.value.clone()]
    }

    fn add(&mut self, db: usize, item: &file::KeyItem) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&item.key);
        let key = start..self.bytes.len();
        self.bytes.push(item.kind);
        self.bytes.extend_from_slice(item.value);
        let value = key.end..self.bytes.len();
        let file::KeyItem { deadline_ms, idle_s, frequency, is_pinned, .. } = *item;
        self.keys.push(LoadedKey { db, deadline_ms, idle_s, frequency, is_pinned, key, value });
    }
}

/// What a file holds beside keys.
#[derive(Default)]
pub struct Beside {
    /// Where the snapshot ends in its file.
    pub end: u64,
    pub libraries: Vec<Vec<u8>>,
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What may be in a file, and what is checked.
#[derive(Clone, Copy)]
pub struct Limits {
    pub text_bytes: usize,
    pub databases: usize,
    /// The checksum at its end is looked at.
    pub checksum: bool,
    pub shards: usize,
}

/// Where a snapshot is read from.
pub enum Origin {
    File(PathBuf),
    /// A file that is open already.
    Open(Nameless),
    /// As it comes.
    Stream(Box<dyn Read + Send>),
}

/// Reads a snapshot from its head to its end. Its keys go where `route` says, in batches, until `send` refuses one.
pub fn read(
    origin: Origin,
    limits: Limits,
    progress: &Progress,
    route: impl Fn(&[u8]) -> usize,
    mut send: impl FnMut(usize, Batch) -> Result<(), String>,
) -> Result<Beside, LoadError> {
    let mut window = match origin {
        Origin::File(path) => Window::open(&path)?,
        Origin::Open(file) => Window::of_file(Box::new(file)),
        Origin::Stream(stream) => Window::of_stream(stream),
    };
    let (version, dialect) = read_head(&mut window)?;
    let mut checksum = Checksum::default();
    checksum.update(&window.rest()[..file::HEAD_BYTES]);
    window.pass(file::HEAD_BYTES);
    let (mut beside, mut db) = (Beside::default(), 0);
    let mut batches: Vec<Batch> = (0..limits.shards).map(|_| Batch::default()).collect();
    loop {
        let (item, len) = match file::read_item(window.rest(), dialect, limits.text_bytes) {
            Ok(found) => found,
            Err(NoItem::Incomplete) => {
                more(&mut window)?;
                continue;
            }
            Err(NoItem::Error(what)) => return Err(LoadError::Corrupt { at: window.passed(), what }),
        };
        let is_end = item == Item::End;
        match item {
            Item::Key(item) => {
                let target = route(&item.key);
                let batch = &mut batches[target];
                batch.add(db, &item);
                progress.pause();
                if batch.bytes.len() >= BATCH_BYTES {
                    send(target, std::mem::take(batch)).map_err(LoadError::Refused)?;
                    progress.bytes.store(window.passed(), Ordering::Relaxed);
                }
            }
            Item::Db(number) => {
                db = usize::try_from(number).ok().filter(|db| *db < limits.databases).ok_or(LoadError::Corrupt {
                    at: window.passed(),
                    what: format!("database {number} of a server that has more than {} databases", limits.databases),
                })?;
            }
            Item::Library(code) => beside.libraries.push(code.into_owned()),
            Item::Field(name, value) => beside.fields.push((name.into_owned(), value.into_owned())),
            Item::Nothing | Item::End => {}
        }
        checksum.update(&window.rest()[..len]);
        window.pass(len);
        if is_end {
            break;
        }
    }
    if version >= VERSION_OF_CHECKSUMS {
        while window.rest().len() < file::CHECKSUM_BYTES {
            more(&mut window)?;
        }
        let expected = window.rest().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        // Zero: it was written without.
        if limits.checksum && expected != 0 && expected != checksum.get() {
            return Err(LoadError::Checksum { expected, found: checksum.get() });
        }
    }
    beside.end = window.passed() + if version >= VERSION_OF_CHECKSUMS { file::CHECKSUM_BYTES as u64 } else { 0 };
    for (target, batch) in batches.into_iter().enumerate().filter(|(_, batch)| !batch.keys.is_empty()) {
        send(target, batch).map_err(LoadError::Refused)?;
    }
    progress.bytes.store(window.passed(), Ordering::Relaxed);
    Ok(beside)
}

/// When a snapshot was begun, by its own word: seconds since 1970. None where another server has written it, since nobody
/// says then how its clock was set behind that.
pub fn begun_s(path: &Path) -> Option<i64> {
    let mut window = Window::open(path).ok()?;
    let (_, dialect) = read_head(&mut window).ok()?;
    window.pass(file::HEAD_BYTES);
    let mut begun_s = None;
    loop {
        match file::read_item(window.rest(), dialect, FIELD_BYTES) {
            Ok((Item::Field(name, _), _)) if *name == *OWN_VERSION.as_bytes() => return begun_s,
            Ok((Item::Field(name, value), len)) => {
                if *name == *b"ctime" {
                    begun_s = std::str::from_utf8(&value).ok()?.parse().ok();
                }
                window.pass(len);
            }
            Err(NoItem::Incomplete) => more(&mut window).ok()?,
            // The fields are over.
            Ok(_) | Err(NoItem::Error(_)) => return None,
        }
    }
}

fn read_head(window: &mut Window) -> Result<(u16, Dialect), LoadError> {
    while window.rest().len() < file::HEAD_BYTES {
        more(window)?;
    }
    let Some(head) = window.rest().first_chunk() else { return Err(LoadError::Short(0)) };
    file::read_head(head).map_err(|_| match head.starts_with(b"REDIS") || head.starts_with(b"VALKEY") {
        true => LoadError::Version(head.escape_ascii().to_string()),
        false => LoadError::Signature,
    })
}

fn more(window: &mut Window) -> Result<(), LoadError> {
    if window.read_more()? { Ok(()) } else { Err(LoadError::Short(window.passed() + window.rest().len() as u64)) }
}
