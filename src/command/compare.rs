//! What may be asked of a key's present value before it is replaced or deleted: SET and DELEX with NX, IFEQ, IFDNE and
//! their kin.

use crate::keyspace::{Live, Value};
use crate::resp::{Error, Request, Result};
use crate::value::number::{I64_TEXT_BYTES_MAX, format_i64};
use xxhash_rust::xxh3::xxh3_64;

/// What has to hold of the value that is there; arguments by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Absent,
    Present,
    Equal(usize),
    /// Holds where nothing is there, too.
    NotEqual(usize),
    /// The argument is the digest of the value.
    DigestEqual(usize),
    /// Holds where nothing is there, too.
    DigestNotEqual(usize),
}

/// Whether the word, in lower case, begins a comparison with the argument behind it.
pub fn is_comparison(word: &[u8]) -> bool {
    Condition::comparing(word, 0).is_some()
}

impl Condition {
    /// The comparison that a word in lower case stands for, with the argument at this index.
    pub fn comparing(word: &[u8], index: usize) -> Option<Condition> {
        Some(match word {
            b"ifeq" => Condition::Equal(index),
            b"ifne" => Condition::NotEqual(index),
            b"ifdeq" => Condition::DigestEqual(index),
            b"ifdne" => Condition::DigestNotEqual(index),
            _ => return None,
        })
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// Where a value of another type would have to be compared, or the digest to compare with is none.
    pub fn holds(self, found: Option<&Live>, request: Request) -> Result<bool> {
        Ok(match (self, found) {
            (Condition::Absent, found) => found.is_none(),
            (Condition::Present, found) => found.is_some(),
            (Condition::Equal(_) | Condition::DigestEqual(_), None) => false,
            (Condition::NotEqual(_) | Condition::DigestNotEqual(_), None) => true,
            (Condition::Equal(index), Some(live)) => is_text(string(live)?, request.arg(index)),
            (Condition::NotEqual(index), Some(live)) => !is_text(string(live)?, request.arg(index)),
            (Condition::DigestEqual(index), Some(live)) => has_digest(string(live)?, request.arg(index))?,
            (Condition::DigestNotEqual(index), Some(live)) => !has_digest(string(live)?, request.arg(index))?,
        })
    }
}

fn string<'l>(live: &'l Live) -> Result<Value<'l>> {
    live.string().ok_or(Error::WrongType)
}

/// Whether the value reads like this.
fn is_text(value: Value, text: &[u8]) -> bool {
    match value {
        Value::Int(n) => format_i64(n, &mut [0; I64_TEXT_BYTES_MAX]) == text,
        Value::Bytes(bytes) => bytes == text,
    }
}

const DIGEST_DIGITS: usize = 16;

/// The XXH3 hash of 64 bits of a string, as DIGEST shows it.
pub fn digest(value: Value) -> [u8; DIGEST_DIGITS] {
    let hash = match value {
        Value::Int(n) => xxh3_64(format_i64(n, &mut [0; I64_TEXT_BYTES_MAX])),
        Value::Bytes(bytes) => xxh3_64(bytes),
    };
    let mut digits = [0; DIGEST_DIGITS];
    for (digit, place) in digits.iter_mut().zip((0..DIGEST_DIGITS).rev()) {
        *digit = b"0123456789abcdef"[(hash >> (4 * place)) as usize & 0xf];
    }
    digits
}

/// As in Redis, only the length of a digest is checked: what is no number is no value's digest.
fn has_digest(value: Value, wanted: &[u8]) -> Result<bool> {
    if wanted.len() != DIGEST_DIGITS {
        return Err(Error::text("ERR must be exactly 16 hexadecimal characters"));
    }
    Ok(digest(value).eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digests are those that Redis 8.4 documents, and its clients test.
    #[test]
    fn digests_are_those_of_redis() {
        let digests: &[(&[u8], &[u8])] = &[
            (b"Hello world", b"b6acb9d84a38ff74"),
            (b"hello", b"9555e8555c62dcfd"),
            (b"", b"2d06800538d394c2"),
            (b"123", b"404a763b3f4c8c9a"),
            (b"v8", b"0cc76dbb41381419"),
        ];
        for (text, expected) in digests {
            assert_eq!(digest(Value::of(text)), **expected, "{}", text.escape_ascii());
        }
        assert_eq!(has_digest(Value::Int(123), b"404A763B3F4C8C9A"), Ok(true));
        assert_eq!(has_digest(Value::Int(123), b"zzzzzzzzzzzzzzzz"), Ok(false));
        assert!(has_digest(Value::Int(123), b"404a763b3f4c8c9").is_err());
    }
}
