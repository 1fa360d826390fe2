//! How a log is written: in batches, each with a head that says what it is.
//!
//! ```text
//! #EMBERDB <checksum> <bytes> <position> <synced>[ <note>]\r\n
//! commands, as clients send them
//! ```
//!
//! Such a line is a comment to redis-server and redis-check-aof, which read the commands. The checksum is CRC-32C of the
//! rest of the line and of the commands. `position` is where the batch begins in the log, over all its files: one that was
//! put elsewhere is noticed. `synced` is how much of the log was on the disk for certain when the batch was written. So it
//! can be told from what stands behind a batch that is broken whether it was lost in a crash or damaged later: where a
//! whole batch says that the broken one was on the disk already, it was damaged.

use crate::config::join_words;
use crate::journal::{KnownAs, aside};
use std::fmt::Write;

/// What every head begins with.
pub const MARK: &[u8] = b"#EMBERDB ";
/// The first word of the note with which a base of commands ends: behind it stands where in the log the next file begins.
pub const BASE: &str = "BASE";
/// The first word of the note with which a file begins whose first batches stand before the base: behind it stands where in
/// the log the base stands. The line itself takes no place in the log.
const BEFORE_BASE: &str = "BEFOREBASE";
/// The first word of the note that says what there is behind a batch: the name of the stream, a position in it, and the database
/// that was chosen there. It stands in the head of the changes that make it so: both are there, or neither.
const STREAM: &str = "STREAM";
/// The stream is for servers, too, that know of no deadlines of fields.
const OLD: &str = "old";
/// redis-server reads comments up to this length.
const HEAD_BYTES_MAX: usize = 1_000;
const CHECKSUM_DIGITS: usize = 8;

/// What a head says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    checksum: u32,
    /// Of the commands.
    pub bytes: u64,
    pub position: u64,
    pub synced: u64,
    /// What only this server understands: words, see [`join_words`]. Percent signs and what ends a line are
    /// written as in addresses of the web.
    pub note: Option<Vec<u8>>,
    /// From the mark to the end of the line.
    pub head_bytes: usize,
    signed: Vec<u8>,
}

impl Head {
    /// Where the next batch begins.
    pub fn end(&self) -> u64 {
        if self.stands_before().is_some() {
            return self.position;
        }
        self.ends_base().unwrap_or(self.position + self.head_bytes as u64 + self.bytes)
    }

    /// Where in the log the base stands that has what follows, where this says that there is one.
    pub fn stands_before(&self) -> Option<u64> {
        self.number_behind(BEFORE_BASE)
    }

    /// Where in the log the next file begins, where this is the end of a base of commands.
    pub fn ends_base(&self) -> Option<u64> {
        self.number_behind(BASE)
    }

    /// What there is behind this batch, as replicas know it.
    pub fn known_as(&self) -> Option<KnownAs> {
        let mut words = std::str::from_utf8(self.note.as_deref()?).ok()?.split('\0');
        let (STREAM, id) = (words.next()?, words.next()?) else { return None };
        let (position, db) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(KnownAs { id: id.to_owned(), position, db, is_old: words.next() == Some(OLD) })
    }

    fn number_behind(&self, word: &str) -> Option<u64> {
        let words = std::str::from_utf8(self.note.as_deref()?).ok()?;
        words.strip_prefix(word)?.strip_prefix('\0')?.parse().ok()
    }

    /// Whether these are its commands, unchanged.
    pub fn vouches_for(&self, commands: &[u8]) -> bool {
        commands.len() as u64 == self.bytes && checksum(&self.signed, commands) == self.checksum
    }
}

fn checksum(signed: &[u8], commands: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(signed), commands)
}

/// The head for these commands.
pub fn head(commands: &[u8], position: u64, synced: u64) -> Vec<u8> {
    head_of(commands, position, synced, None)
}

/// The same, with what there is behind them.
pub fn head_of(commands: &[u8], position: u64, synced: u64, known_as: Option<&KnownAs>) -> Vec<u8> {
    let mut signed = format!("{} {position} {synced}", commands.len());
    if let Some(KnownAs { id, position, db, is_old }) = known_as {
        let (position, db) = (position.to_string(), db.to_string());
        let words = [STREAM, id, &position, &db, OLD];
        put_words(&mut signed, &words[..if *is_old { 5 } else { 4 }]);
    }
    write(signed.as_bytes(), commands)
}

/// The line that says that what follows stands before a base, at this position of the log, which has it, too.
pub fn before_base(base: u64, position: u64, synced: u64) -> Vec<u8> {
    note(&[BEFORE_BASE, &base.to_string()], position, synced).unwrap_or_default()
}

/// A batch without commands, whose head says something; none where that is too long.
pub fn note(words: &[&str], position: u64, synced: u64) -> Option<Vec<u8>> {
    let mut signed = format!("0 {position} {synced}");
    put_words(&mut signed, words);
    (signed.len() < HEAD_BYTES_MAX).then(|| write(signed.as_bytes(), b""))
}

fn put_words(signed: &mut String, words: &[&str]) {
    signed.push(' ');
    for byte in join_words(words) {
        match byte {
            b'%' | b'\r' | b'\n' | 0 => write!(signed, "%{byte:02x}").expect("writing to memory"),
            _ if byte.is_ascii() => signed.push(char::from(byte)),
            _ => write!(signed, "%{byte:02x}").expect("writing to memory"),
        }
    }
}

/// Whether these words are short enough for a note.
pub fn can_note(words: &[String]) -> bool {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    note(&words, u64::MAX, u64::MAX).is_some()
}

fn write(signed: &[u8], commands: &[u8]) -> Vec<u8> {
    let mut out = MARK.to_vec();
    out.extend_from_slice(format!("{:0CHECKSUM_DIGITS$x} ", checksum(signed, commands)).as_bytes());
    out.extend_from_slice(signed);
    out.extend_from_slice(b"\r\n");
    out
}

/// What stands in place of a head.
#[derive(Debug, PartialEq, Eq)]
pub enum NoHead {
    /// The bytes end too early to tell.
    Incomplete,
    /// It is none.
    Malformed,
}

/// Reads the head with which `bytes` begin.
pub fn read(bytes: &[u8]) -> Result<Head, NoHead> {
    let within = &bytes[..bytes.len().min(HEAD_BYTES_MAX + MARK.len() + CHECKSUM_DIGITS + 4)];
    if !MARK.starts_with(&within[..within.len().min(MARK.len())]) {
        return Err(NoHead::Malformed);
    }
    let Some(end) = memchr::memchr(b'\n', within) else {
        return Err(if within.len() < bytes.len() { NoHead::Malformed } else { NoHead::Incomplete });
    };
    let line = within[..end].strip_suffix(b"\r").and_then(|line| line.strip_prefix(MARK)).ok_or(NoHead::Malformed)?;
    parse(line, end + 1).ok_or(NoHead::Malformed)
}

fn parse(line: &[u8], head_bytes: usize) -> Option<Head> {
    let (digits, signed) = line.split_at_checked(CHECKSUM_DIGITS)?;
    let checksum = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    let signed = signed.strip_prefix(b" ")?;
    let mut words = std::str::from_utf8(signed).ok()?.splitn(4, ' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (bytes, position, synced) = (number()?, number()?, number()?);
    let note = match words.next() {
        Some(text) => Some(aside::unescape(text.as_bytes())?),
        None => None,
    };
    // No sum of these passes what a number can hold.
    let is_sane = bytes < 1 << 60 && position < 1 << 60;
    is_sane.then(|| Head { checksum, bytes, position, synced, note, head_bytes, signed: signed.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read() {
        let commands = b"*1\r\n$4\r\nPING\r\n";
        let written = head(commands, 70, 30);
        let read = read(&written).expect("a head");
        assert_eq!((read.bytes, read.position, read.synced, &read.note), (14, 70, 30, &None));
        assert_eq!(read.end(), 70 + written.len() as u64 + 14);
        assert!(read.vouches_for(commands));
        assert!(!read.vouches_for(b"*1\r\n$4\r\nPONG\r\n"));
        assert!(!read.vouches_for(b""));
    }

    #[test]
    fn what_there_is_behind_it_is_read() {
        for (commands, is_old) in [(&b""[..], false), (b"*1\r\n$4\r\nPING\r\n", true)] {
            let known_as = KnownAs { id: "a".repeat(40), position: u64::MAX, db: 15, is_old };
            let read = read(&head_of(commands, 70, 30, Some(&known_as))).expect("a head");
            assert!(read.vouches_for(commands) && read.stands_before().is_none() && read.ends_base().is_none());
            assert_eq!((read.bytes, read.known_as()), (commands.len() as u64, Some(known_as.clone())));
        }
        for words in [&["STREAM"][..], &["STREAM", "a", "x", "1"], &["POLICY", "a", "1", "2"], &["STREAM", "a", "1"]] {
            assert_eq!(read(&note(words, 0, 0).expect("short")).expect("a head").known_as(), None);
        }
    }

    #[test]
    fn notes_are_one_line() {
        let words = ["a b", "100%\r\n", "\u{e9}", ""];
        let written = note(&words, 7, 7).expect("short enough");
        assert_eq!(written.iter().filter(|byte| **byte == b'\n').count(), 1);
        let read = read(&written).expect("a head");
        assert!(read.vouches_for(b""));
        assert_eq!(read.note.expect("a note"), words.join("\0").as_bytes());
        assert_eq!(note(&["x".repeat(2_000).as_str()], 0, 0), None);
    }

    #[test]
    fn what_is_cut_is_incomplete() {
        let written = head(b"*1\r\n", 70, 30);
        for end in 0..written.len() {
            assert_eq!(read(&written[..end]), Err(NoHead::Incomplete), "{end}");
        }
    }

    proptest! {
        #[test]
        fn nothing_else_is_a_head(bytes in any::<Vec<u8>>(), behind_mark in any::<bool>()) {
            let bytes = if behind_mark { [MARK, &bytes].concat() } else { bytes };
            if let Ok(head) = read(&bytes) {
                prop_assert!(!head.vouches_for(b"") || head.bytes == 0);
            }
        }

        #[test]
        fn a_flipped_bit_is_seen(at in 0_usize..40, bit in 0_u8..8) {
            let commands = b"*1\r\n$4\r\nPING\r\n";
            let mut written = [head(commands, 70, 30), commands.to_vec()].concat();
            let at = at % written.len();
            written[at] ^= 1 << bit;
            let is_whole = read(&written).is_ok_and(|head| {
                let rest = &written[head.head_bytes..];
                head.vouches_for(&rest[..rest.len().min(head.bytes as usize)])
            });
            // Digits of the checksum may be written in two cases.
            prop_assert!(!is_whole || bit == 5 && at < MARK.len() + CHECKSUM_DIGITS);
        }
    }
}
