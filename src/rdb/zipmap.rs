//! Zipmaps: small hashes of Redis before 2.6. Only read.
//!
//! ```text
//! pairs (1, 254: not counted)  (length  field  length  spare (1)  value  spare bytes) ...  ff
//! length: 1 byte, or fe and 4 bytes                                                               little-endian
//! ```

use super::{Error, Result};

const END: u8 = 0xff;
const LONG: u8 = 0xfe;
const UNCOUNTED: u8 = 0xfe;

const CORRUPT: Error = Error::Corrupt("a zipmap");

/// The fields of a zipmap with their values. What is wrong with it comes out where it stands.
pub struct Pairs<'a> {
    rest: &'a [u8],
    count: Option<u8>,
    seen: usize,
}

impl<'a> Pairs<'a> {
    pub fn of(zipmap: &'a [u8]) -> Result<Pairs<'a>> {
        let (&count, rest) = zipmap.split_first().ok_or(CORRUPT)?;
        Ok(Pairs { rest, count: (count != UNCOUNTED).then_some(count), seen: 0 })
    }

    fn end(&self) -> Result {
        let counted = self.count.is_none_or(|count| usize::from(count) == self.seen);
        if counted && self.seen > 0 && self.rest.len() == 1 { Ok(()) } else { Err(CORRUPT) }
    }

    fn pair(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let (len, rest) = length(self.rest)?;
        let (field, rest) = rest.split_at_checked(len)?;
        let (len, rest) = length(rest)?;
        let (&spare, rest) = rest.split_first()?;
        let (value, rest) = rest.split_at_checked(len)?;
        self.rest = rest.get(usize::from(spare)..)?;
        self.seen += 1;
        Some((field, value))
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<(&'a [u8], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.first() == Some(&END) {
            return self.end().err().map(Err);
        }
        Some(self.pair().ok_or(CORRUPT))
    }
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [LONG, rest @ ..] => rest.split_first_chunk().map(|(len, rest)| (u32::from_le_bytes(*len) as usize, rest)),
        [len @ ..LONG, rest @ ..] => Some((usize::from(*len), rest)),
        _ => None,
    }
}
