//! Files of snapshots: a head, then what it holds, then an end with the checksum of all before it.
//!
//! ```text
//! REDIS0010   (opcode ...)*   EOF   CRC-64
//! ```
//!
//! An opcode selects the database of what follows, says when the next key dies and how it was used, or is something
//! beside the keys: a field about the file, a library of functions. Any other byte is the type of a value, behind which
//! stand its key and the value.

use super::dialect::Dialect;
use super::read::{Reader, TRUNCATED};
use super::{Error, Result, kind, skip, write};
use crc::{CRC_64_REDIS, Crc, Digest, Table};
use std::borrow::Cow;

/// What Redis 7.0 reads.
pub const VERSION: u16 = 10;
/// The first in which fields of hashes have deadlines.
pub const VERSION_OF_FIELD_DEADLINES: u16 = 12;
/// The field in front of a pinned key.
const PINNED: &str = "emberdb-pinned";
pub const HEAD_BYTES: usize = 9;
pub const CHECKSUM_BYTES: usize = 8;

mod opcode {
    pub const SLOT_INFO: u8 = 244;
    pub const FUNCTION: u8 = 245;
    pub const FUNCTION_BEFORE_7: u8 = 246;
    pub const MODULE_AUX: u8 = 247;
    pub const IDLE: u8 = 248;
    pub const FREQ: u8 = 249;
    pub const AUX: u8 = 250;
    pub const RESIZE_DB: u8 = 251;
    pub const EXPIRES_AT_MS: u8 = 252;
    pub const EXPIRES_AT: u8 = 253;
    pub const SELECT_DB: u8 = 254;
    pub const END: u8 = 255;
}

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The checksum of what has passed so far.
pub struct Checksum(Digest<'static, u64, Table<16>>);

impl Default for Checksum {
    fn default() -> Checksum {
        Checksum(CRC.digest())
    }
}

impl Checksum {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn get(&self) -> u64 {
        self.0.clone().finalize()
    }
}

pub fn write_head(out: &mut Vec<u8>, version: u16) {
    out.extend_from_slice(format!("REDIS{version:04}").as_bytes());
}

/// The version and whose it is; none where it is too new, or no such file.
pub fn read_head(head: &[u8; HEAD_BYTES]) -> Result<(u16, Dialect)> {
    let signatures = [(&b"REDIS"[..], Dialect::Redis), (b"VALKEY", Dialect::Valkey)];
    let found = signatures.into_iter().find_map(|(signature, dialect)| Some((head.strip_prefix(signature)?, dialect)));
    let (digits, dialect) = found.ok_or(Error::Corrupt("no signature of RDB"))?;
    let version = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    let known = version.filter(|version| *version > 0 && Dialect::of_version(*version) == Some(dialect));
    known.map(|version| (version, dialect)).ok_or(Error::Corrupt("a version of RDB"))
}

pub fn write_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.push(opcode::AUX);
    write::blob(out, name.as_bytes());
    write::blob(out, value);
}

/// The next key is never evicted. (A field: who knows nothing of it passes over it.)
pub fn write_pin(out: &mut Vec<u8>) {
    write_field(out, PINNED, b"1");
}

pub fn write_library(out: &mut Vec<u8>, code: &[u8]) {
    out.push(opcode::FUNCTION);
    write::blob(out, code);
}

pub fn write_db(out: &mut Vec<u8>, db: usize) {
    out.push(opcode::SELECT_DB);
    write::len(out, db as u64);
}

/// How many keys of the database there will be, and how many of them with deadlines.
pub fn write_sizes(out: &mut Vec<u8>, keys: u64, with_deadline: u64) {
    out.push(opcode::RESIZE_DB);
    write::len(out, keys);
    write::len(out, with_deadline);
}

/// A key, its deadline in milliseconds since 1970, and its value, which `value` appends with the type in front.
pub fn write_key(out: &mut Vec<u8>, key: &[u8], deadline_ms: Option<u64>, value: impl FnOnce(&mut Vec<u8>)) {
    if let Some(deadline_ms) = deadline_ms {
        out.push(opcode::EXPIRES_AT_MS);
        out.extend_from_slice(&deadline_ms.to_le_bytes());
    }
    let start = out.len();
    value(out);
    // The key stands between the type and the rest.
    write::insert(out, start + 1, |name| write::blob(name, key));
}

pub fn write_end(out: &mut Vec<u8>) {
    out.push(opcode::END);
}

/// What a file holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    Field(Cow<'a, [u8]>, Cow<'a, [u8]>),
    Library(Cow<'a, [u8]>),
    Db(u64),
    /// A hint, or what has to do with clusters.
    Nothing,
    Key(KeyItem<'a>),
    /// The checksum follows, from version 5 on.
    End,
}

#[derive(Debug, PartialEq, Eq)]
pub struct KeyItem<'a> {
    pub key: Cow<'a, [u8]>,
    /// Milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    pub idle_s: Option<u64>,
    pub frequency: Option<u8>,
    /// It is never evicted.
    pub is_pinned: bool,
    pub kind: u8,
    /// Behind type and key.
    pub value: &'a [u8],
}

/// Why the next item is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoItem {
    /// It goes on behind what is there.
    Incomplete,
    Error(String),
}

impl From<Error> for NoItem {
    fn from(error: Error) -> NoItem {
        if error == TRUNCATED { NoItem::Incomplete } else { NoItem::Error(error.to_string()) }
    }
}

/// The item that `bytes` begin with, and how long it is. Texts have no more than `text_bytes_max`.
pub fn read_item(
    bytes: &[u8],
    dialect: Dialect,
    text_bytes_max: usize,
) -> std::result::Result<(Item<'_>, usize), NoItem> {
    let mut reader = Reader::new(bytes, text_bytes_max);
    let (mut deadline_ms, mut idle_s, mut frequency, mut is_pinned) = (None, None, None, false);
    let item = loop {
        break match reader.byte()? {
            opcode::EXPIRES_AT_MS => {
                deadline_ms = Some(reader.time_ms()?);
                continue;
            }
            opcode::EXPIRES_AT => {
                deadline_ms = Some(u64::from(u32::from_le_bytes(reader.array()?)) * 1_000);
                continue;
            }
            opcode::IDLE => {
                idle_s = Some(reader.len()?);
                continue;
            }
            opcode::FREQ => {
                frequency = Some(reader.byte()?);
                continue;
            }
            opcode::AUX => {
                let (name, value) = (reader.blob()?, reader.blob()?);
                if *name == *PINNED.as_bytes() {
                    is_pinned = true;
                    continue;
                }
                Item::Field(name, value)
            }
            opcode::FUNCTION => Item::Library(reader.blob()?),
            opcode::FUNCTION_BEFORE_7 => return Err(NoItem::Error("Pre-GA function format not supported".to_owned())),
            opcode::MODULE_AUX => return Err(no_modules(reader.len()?)),
            opcode::SELECT_DB => Item::Db(reader.len()?),
            opcode::RESIZE_DB => {
                skip::pass_lens::<2>(&mut reader)?;
                Item::Nothing
            }
            opcode::SLOT_INFO => {
                skip::pass_lens::<3>(&mut reader)?;
                Item::Nothing
            }
            opcode::END => Item::End,
            kind::MODULE => return Err(no_modules(no_module_id(&mut reader)?)),
            kind::MODULE_2 => return Err(no_modules(no_module_id(&mut reader)?)),
            of => {
                let kind = dialect.kind(of);
                let key = reader.blob()?;
                let before = reader.rest();
                skip::value(&mut reader, kind).map_err(|error| match error {
                    TRUNCATED => NoItem::Incomplete,
                    error => NoItem::Error(format!("{error} ({of}) of key '{}'", key.escape_ascii())),
                })?;
                let value = &before[..before.len() - reader.rest().len()];
                Item::Key(KeyItem { key, deadline_ms, idle_s, frequency, is_pinned, kind, value })
            }
        };
    };
    Ok((item, bytes.len() - reader.rest().len()))
}

/// The number of the module behind a key of it.
fn no_module_id(reader: &mut Reader) -> Result<u64> {
    reader.pass_text()?;
    reader.len()
}

/// Nine letters of six bits, and ten bits of a version.
fn no_modules(id: u64) -> NoItem {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letter = |at: u32| char::from(LETTERS[(id >> (10 + 6 * at) & 0x3f) as usize]);
    let name: String = (0..9).rev().map(letter).collect();
    NoItem::Error(format!("it has data of the module '{name}', and there are no modules here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> std::result::Result<(Item<'_>, usize), NoItem> {
        read_item(bytes, Dialect::Redis, 1 << 20)
    }

    #[test]
    fn heads_are_of_known_versions() {
        for (head, expected) in [
            (b"REDIS0006", Some((6, Dialect::Redis))),
            (b"REDIS0012", Some((12, Dialect::Redis))),
            (b"VALKEY080", Some((80, Dialect::Valkey))),
            (b"REDIS0000", None),
            (b"REDIS0099", None),
            (b"VALKEY011", None),
            (b"REDIS00x1", None),
            (b"SOMETHING", None),
        ] {
            assert_eq!(read_head(head).ok(), expected);
        }
        let mut out = Vec::new();
        write_head(&mut out, VERSION);
        assert_eq!(out, b"REDIS0010");
    }

    #[test]
    fn what_was_written_is_read() {
        let mut out = Vec::new();
        write_field(&mut out, "name", b"value");
        write_db(&mut out, 300);
        write_sizes(&mut out, 5, 2);
        write_library(&mut out, b"#!lua name=l");
        write_key(&mut out, b"k", Some(1_700_000_000_123), |out| out.extend_from_slice(b"\x00\x05hello"));
        write_pin(&mut out);
        write_key(&mut out, b"l", None, |out| out.extend_from_slice(b"\x00\xc0\x01"));
        write_end(&mut out);
        let mut items = Vec::new();
        let mut at = 0;
        while at < out.len() {
            for end in at..out.len() {
                if let Ok((_, used)) = read(&out[at..end]) {
                    assert!(at + used <= end);
                }
            }
            let (item, used) = read(&out[at..]).expect("an item");
            items.push(format!("{item:?}"));
            at += used;
        }
        assert_eq!(items.len(), 7);
        assert!(items[4].contains("deadline_ms: Some(1700000000123)") && items[4].contains("kind: 0"));
        assert!(items[4].contains("is_pinned: false") && items[5].contains("is_pinned: true"));
        assert!(items[3].starts_with("Library") && items[6] == "End");
    }

    #[test]
    fn what_is_missing_may_come() {
        for bytes in [&b""[..], b"\xfa", b"\xfa\x05na", b"\xfc\x01\x02", b"\x00", b"\x00\x01k", b"\x00\x01k\x05hel"] {
            assert_eq!(read(bytes), Err(NoItem::Incomplete), "{}", bytes.escape_ascii());
        }
        for bytes in [&b"\xfe\xc0"[..], b"\x63\x01k\x01", b"\xf6"] {
            assert!(matches!(read(bytes), Err(NoItem::Error(_))), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn modules_are_named() {
        // As redis-server 7.0.15 would number "hellotype".
        let id = b"hellotype".iter().fold(0u64, |id, letter| {
            let at =
                b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".iter().position(|of| of == letter);
            id << 6 | at.expect("a letter") as u64
        }) << 10;
        let mut bytes = vec![kind::MODULE_2, 1, b'k'];
        write::len(&mut bytes, id);
        let Err(NoItem::Error(text)) = read(&bytes) else { panic!("a module") };
        assert!(text.contains("'hellotype'"), "{text}");
    }
}
