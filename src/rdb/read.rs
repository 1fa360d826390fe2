//! Reading what values are made of: lengths, strings, floats, times.

use super::{Error, Result};
use crate::value::lzf;
use crate::value::number::{I64_TEXT_BYTES_MAX, format_i64, parse_f64};
use crate::value::pack::Element;
use std::borrow::Cow;

/// Bytes that are not read yet.
pub struct Reader<'a> {
    rest: &'a [u8],
    text_bytes_max: usize,
}

/// A length, or the number of an encoding of strings.
enum Length {
    Plain(u64),
    Encoding(u8),
}

/// A string as it was written.
pub enum Text<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    Expanded(Vec<u8>),
}

pub(super) const TRUNCATED: Error = Error::Corrupt("the end is missing");

impl<'a> Reader<'a> {
    /// Strings of more than `text_bytes_max` are refused.
    pub fn new(bytes: &'a [u8], text_bytes_max: usize) -> Reader<'a> {
        Reader { rest: bytes, text_bytes_max }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What is not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub fn byte(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Milliseconds since 1970, in 8 bytes.
    pub fn time_ms(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn len(&mut self) -> Result<u64> {
        match self.length()? {
            Length::Plain(len) => Ok(len),
            Length::Encoding(_) => Err(Error::Corrupt("a length")),
        }
    }

    fn len_bytes(&mut self) -> Result<usize> {
        self.len().and_then(|len| self.checked_len(len))
    }

    fn checked_len(&self, len: u64) -> Result<usize> {
        let len = usize::try_from(len).ok().filter(|len| *len <= self.text_bytes_max);
        len.ok_or(Error::Corrupt("a string that is too long"))
    }

    fn length(&mut self) -> Result<Length> {
        let first = self.byte()?;
        let low = first & 0x3f;
        Ok(match (first >> 6, first) {
            (0, _) => Length::Plain(u64::from(low)),
            (1, _) => Length::Plain(u64::from(low) << 8 | u64::from(self.byte()?)),
            (3, _) => Length::Encoding(low),
            (_, 0x80) => Length::Plain(u64::from(u32::from_be_bytes(self.array()?))),
            (_, 0x81) => Length::Plain(u64::from_be_bytes(self.array()?)),
            _ => return Err(Error::Corrupt("a length")),
        })
    }

    /// A string that stands there as it is.
    pub(super) fn plain(&mut self) -> Result<&'a [u8]> {
        let len = self.len_bytes()?;
        self.take(len)
    }

    pub fn text(&mut self) -> Result<Text<'a>> {
        Ok(match self.length()? {
            Length::Plain(len) => Text::Bytes(self.take(self.checked_len(len)?)?),
            Length::Encoding(0) => Text::Int(i64::from(i8::from_le_bytes(self.array()?))),
            Length::Encoding(1) => Text::Int(i64::from(i16::from_le_bytes(self.array()?))),
            Length::Encoding(2) => Text::Int(i64::from(i32::from_le_bytes(self.array()?))),
            Length::Encoding(3) => {
                let (compressed, len) = (self.len_bytes()?, self.len_bytes()?);
                let expanded = lzf::expand(self.take(compressed)?, len);
                Text::Expanded(expanded.map_err(|_| Error::Corrupt("a compressed string"))?)
            }
            Length::Encoding(_) => return Err(Error::Corrupt("an encoding of strings")),
        })
    }

    /// Passes over a string, whatever it is.
    pub fn pass_text(&mut self) -> Result {
        let len = match self.length()? {
            Length::Plain(len) => self.checked_len(len)?,
            Length::Encoding(bits @ 0..=2) => 1 << bits,
            Length::Encoding(3) => {
                let compressed = self.len_bytes()?;
                self.len_bytes()?;
                compressed
            }
            Length::Encoding(_) => return Err(Error::Corrupt("an encoding of strings")),
        };
        self.take(len).map(drop)
    }

    /// A string that is no text but the bytes of something.
    pub fn blob(&mut self) -> Result<Cow<'a, [u8]>> {
        self.text().map(Text::into_bytes)
    }

    pub fn f64(&mut self) -> Result<f64> {
        self.array().map(f64::from_le_bytes)
    }

    /// A float as it was written before RDB 8.
    pub fn f64_in_decimal(&mut self) -> Result<f64> {
        match self.byte()? {
            253 => Ok(f64::NAN),
            254 => Ok(f64::INFINITY),
            255 => Ok(f64::NEG_INFINITY),
            len => parse_f64(self.take(usize::from(len))?).ok_or(Error::Corrupt("a float")),
        }
    }
}

impl<'a> Text<'a> {
    pub fn element(&self) -> Element<'_> {
        match self {
            Text::Int(n) => Element::Int(*n),
            Text::Bytes(bytes) => Element::of(bytes),
            Text::Expanded(bytes) => Element::of(bytes),
        }
    }

    fn into_bytes(self) -> Cow<'a, [u8]> {
        match self {
            Text::Int(n) => Cow::Owned(format_i64(n, &mut [0; I64_TEXT_BYTES_MAX]).to_vec()),
            Text::Bytes(bytes) => Cow::Borrowed(bytes),
            Text::Expanded(bytes) => Cow::Owned(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn len(bytes: &[u8]) -> Result<u64> {
        Reader::new(bytes, usize::MAX).len()
    }

    #[test]
    fn lengths_are_of_one_two_five_or_nine_bytes() {
        assert_eq!(len(b"\x3f"), Ok(63));
        assert_eq!(len(b"\x7f\xff"), Ok(0x3fff));
        assert_eq!(len(b"\x80\x01\x02\x03\x04"), Ok(0x0102_0304));
        assert_eq!(len(b"\x81\xff\x02\x03\x04\x05\x06\x07\x08"), Ok(0xff02_0304_0506_0708));
        assert_eq!(len(b"\x80\x01\x02\x03"), Err(TRUNCATED));
        assert!(len(b"\x82\x01\x02\x03\x04\x05\x06\x07\x08").is_err());
        assert!(len(b"\xc0\x01").is_err());
        assert_eq!(len(b""), Err(TRUNCATED));
    }

    #[test]
    fn a_string_longer_than_what_is_there_is_refused() {
        for bytes in
            [&b"\x05abcd"[..], b"\x81\xff\xff\xff\xff\xff\xff\xff\xffabcd", b"\xc3\x05\x81\xff", b"\xc4", b"\xc1\x01"]
        {
            assert!(Reader::new(bytes, usize::MAX).text().is_err(), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn strings_have_a_longest_length_compressed_or_not() {
        for (max, taken) in [(4, false), (5, true)] {
            assert_eq!(Reader::new(b"\x05abcde", max).text().is_ok(), taken);
            assert!(Reader::new(b"\xc3\x05\x05\x00a\x40\x00\x00", max).text().is_err());
            assert_eq!(Reader::new(b"\xc3\x04\x05\x00a\x40\x00", max).text().is_ok(), taken);
        }
    }

    #[test]
    fn floats_in_decimal_have_three_that_are_not_numbers() {
        let read = |bytes: &[u8]| Reader::new(bytes, usize::MAX).f64_in_decimal();
        assert_eq!(read(b"\x043.25"), Ok(3.25));
        assert_eq!(read(b"\xfe"), Ok(f64::INFINITY));
        assert_eq!(read(b"\xff"), Ok(f64::NEG_INFINITY));
        assert!(read(b"\xfd").is_ok_and(f64::is_nan));
        assert!(read(b"\x00").is_err());
        assert!(read(b"\x03abc").is_err());
    }
}
