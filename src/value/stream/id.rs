//! The ids of entries, and the texts in which clients name them.

use crate::value::number::{I64_TEXT_BYTES_MAX, format_u64, parse_i64};
use std::fmt;
use thiserror::Error;

/// Bytes of the longest id as text: two numbers and the dash.
pub const ID_TEXT_BYTES_MAX: usize = 2 * I64_TEXT_BYTES_MAX + 1;

/// Bytes of the longest text that is looked at, as in Redis.
const TEXT_BYTES_MAX: usize = 127;

/// What an entry is known by; ids only grow along a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Unix time in milliseconds, where the server chose it.
    pub ms: u64,
    /// Tells entries of the same millisecond apart.
    pub seq: u64,
}

/// A text names no id, or no interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum IdError {
    #[error("Invalid stream ID specified as stream command argument")]
    Invalid,
    #[error("invalid start ID for the interval")]
    Start,
    #[error("invalid end ID for the interval")]
    End,
}

/// The id that XADD asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewId {
    /// `*`: the present moment, or what follows the last id.
    Auto,
    /// `ms-*`: the next id of this millisecond.
    AutoSeq(u64),
    Exact(Id),
}

impl Id {
    pub const MIN: Id = Id { ms: 0, seq: 0 };
    pub const MAX: Id = Id { ms: u64::MAX, seq: u64::MAX };

    pub const fn new(ms: u64, seq: u64) -> Id {
        Id { ms, seq }
    }

    /// The one after it; none after the largest.
    pub fn next(self) -> Option<Id> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The one before it; none before the smallest.
    pub fn prev(self) -> Option<Id> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Reads `ms-seq` or `ms`, which stands for `ms-0`.
    pub fn parse(text: &[u8]) -> Result<Id, IdError> {
        Id::parse_with(text, 0)
    }

    /// Reads an id or one of the ends, `-` and `+`.
    pub fn parse_or_end(text: &[u8]) -> Result<Id, IdError> {
        Id::end(text).map_or_else(|| Id::parse(text), Ok)
    }

    /// Reads where an interval starts, inclusive: an id, an end, or what follows the id after `(`.
    pub fn parse_start(text: &[u8]) -> Result<Id, IdError> {
        match text {
            [b'(', exclusive @ ..] if !exclusive.is_empty() => Id::parse(exclusive)?.next().ok_or(IdError::Start),
            _ => Id::parse_or_end(text),
        }
    }

    /// Reads where an interval ends, inclusive; a missing sequence stands for the last of its millisecond.
    pub fn parse_end(text: &[u8]) -> Result<Id, IdError> {
        match text {
            [b'(', exclusive @ ..] if !exclusive.is_empty() => {
                Id::parse_with(exclusive, u64::MAX)?.prev().ok_or(IdError::End)
            }
            _ => Id::end(text).map_or_else(|| Id::parse_with(text, u64::MAX), Ok),
        }
    }

    /// Writes it as text at the end of the buffer.
    #[inline]
    pub fn format(self, buffer: &mut [u8; ID_TEXT_BYTES_MAX]) -> &[u8] {
        let mut part = [0; I64_TEXT_BYTES_MAX];
        let mut begin = buffer.len();
        let mut put = |bytes: &[u8]| {
            begin -= bytes.len();
            buffer[begin..begin + bytes.len()].copy_from_slice(bytes);
        };
        put(format_u64(self.seq, &mut part));
        put(b"-");
        put(format_u64(self.ms, &mut part));
        &buffer[begin..]
    }

    fn end(text: &[u8]) -> Option<Id> {
        match until_nul(text) {
            b"-" => Some(Id::MIN),
            b"+" => Some(Id::MAX),
            _ => None,
        }
    }

    fn parse_with(text: &[u8], missing_seq: u64) -> Result<Id, IdError> {
        let (ms, seq) = split(text)?;
        let seq = seq.map_or(Some(missing_seq), parse_part).ok_or(IdError::Invalid)?;
        Ok(Id { ms, seq })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl NewId {
    /// Reads `*`, `ms-*`, `ms-seq` or `ms`.
    pub fn parse(text: &[u8]) -> Result<NewId, IdError> {
        if until_nul(text) == b"*" {
            return Ok(NewId::Auto);
        }
        match split(text)? {
            (ms, Some(b"*")) => Ok(NewId::AutoSeq(ms)),
            _ => Ok(NewId::Exact(Id::parse(text)?)),
        }
    }
}

/// The milliseconds, and the text of the sequence where there is one.
fn split(text: &[u8]) -> Result<(u64, Option<&[u8]>), IdError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(IdError::Invalid);
    }
    let text = until_nul(text);
    let dash = text.iter().position(|byte| *byte == b'-');
    let (ms, seq) = match dash {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    Ok((parse_part(ms).ok_or(IdError::Invalid)?, seq))
}

/// Redis reads ids as C strings.
fn until_nul(text: &[u8]) -> &[u8] {
    &text[..text.iter().position(|byte| *byte == 0).unwrap_or(text.len())]
}

/// Reads one number of an id as Redis' `string2ull` does: digits, and, by way of `strtoull`, spaces in front, a plus,
/// and a minus that wraps around. A negative number written plainly is refused all the same.
fn parse_part(text: &[u8]) -> Option<u64> {
    if let Some(n) = parse_digits(text) {
        return Some(n);
    }
    if parse_i64(text).is_some() {
        return None;
    }
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t'..=b'\r'))?;
    parse_signed(&text[start..])
}

fn parse_signed(text: &[u8]) -> Option<u64> {
    match text {
        [b'+', digits @ ..] => parse_digits(digits),
        [b'-', digits @ ..] => parse_digits(digits).map(u64::wrapping_neg),
        _ => parse_digits(text),
    }
}

#[inline]
fn parse_digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |n, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { n.checked_mul(10)?.checked_add(digit.into()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVALID: Result<Id, IdError> = Err(IdError::Invalid);

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        for (text, ms, seq) in [
            ("5-3", 5, 3),
            ("5", 5, 0),
            ("0-0", 0, 0),
            ("007-08", 7, 8),
            ("18446744073709551615-18446744073709551615", u64::MAX, u64::MAX),
            (" 5-\t3", 5, 3),
            ("\x0b \x0c5-3", 5, 3),
            ("+5-+3", 5, 3),
            ("5--0", 5, 0),
            ("5--03", 5, u64::MAX - 2),
            ("5--9223372036854775809", 5, (1 << 63) - 1),
            ("5\0abc-3", 5, 0),
            ("5-3\0abc", 5, 3),
        ] {
            assert_eq!(Id::parse(text.as_bytes()), Ok(Id { ms, seq }), "{text:?}");
        }
        let long = [b'0'; 128];
        for text in
            ["", "-", "+", "*", "abc", "5-", "-5", "5--3", "5-3-1", "5-3 ", "5 -3", "0x5", "5-x", " ", "5-+", "\0"]
        {
            assert_eq!(Id::parse(text.as_bytes()), INVALID, "{text:?}");
        }
        assert_eq!(Id::parse(b"18446744073709551616"), INVALID);
        assert_eq!(Id::parse(&long), INVALID);
        assert_eq!(Id::parse(&long[1..]), Ok(Id::MIN));
    }

    #[test]
    fn ends_and_intervals() {
        assert_eq!(Id::parse_or_end(b"-"), Ok(Id::MIN));
        assert_eq!(Id::parse_or_end(b"+"), Ok(Id::MAX));
        assert_eq!(Id::parse_or_end(b"7"), Ok(Id::new(7, 0)));
        assert_eq!(Id::parse_start(b"7"), Ok(Id::new(7, 0)));
        assert_eq!(Id::parse_end(b"7"), Ok(Id::new(7, u64::MAX)));
        assert_eq!(Id::parse_start(b"(7"), Ok(Id::new(7, 1)));
        assert_eq!(Id::parse_end(b"(7"), Ok(Id::new(7, u64::MAX - 1)));
        assert_eq!(Id::parse_end(b"(7-0"), Ok(Id::new(6, u64::MAX)));
        assert_eq!(Id::parse_start(b"(6-18446744073709551615"), Ok(Id::new(7, 0)));
        assert_eq!(Id::parse_start(b"(18446744073709551615-18446744073709551615"), Err(IdError::Start));
        assert_eq!(Id::parse_end(b"(0-0"), Err(IdError::End));
        for text in ["(-", "(+", "("] {
            assert_eq!(Id::parse_start(text.as_bytes()), INVALID);
            assert_eq!(Id::parse_end(text.as_bytes()), INVALID);
        }
    }

    #[test]
    fn new_ids() {
        assert_eq!(NewId::parse(b"*"), Ok(NewId::Auto));
        assert_eq!(NewId::parse(b"5-*"), Ok(NewId::AutoSeq(5)));
        assert_eq!(NewId::parse(b"5-1"), Ok(NewId::Exact(Id::new(5, 1))));
        assert_eq!(NewId::parse(b"5"), Ok(NewId::Exact(Id::new(5, 0))));
        for text in ["**", "*-1", "*-*", "5-**", "-", "+", ""] {
            assert_eq!(NewId::parse(text.as_bytes()), Err(IdError::Invalid), "{text:?}");
        }
    }

    #[test]
    fn neighbours_and_text() {
        assert_eq!(Id::MAX.next(), None);
        assert_eq!(Id::MIN.prev(), None);
        assert_eq!(Id::new(3, u64::MAX).next(), Some(Id::new(4, 0)));
        assert_eq!(Id::new(4, 0).prev(), Some(Id::new(3, u64::MAX)));
        for id in [Id::MIN, Id::MAX, Id::new(1, 2), Id::new(1_700_000_000_000, 10)] {
            let mut buffer = [0; ID_TEXT_BYTES_MAX];
            assert_eq!(id.format(&mut buffer), id.to_string().as_bytes());
            assert_eq!(Id::parse(id.format(&mut buffer)), Ok(id));
        }
    }
}
