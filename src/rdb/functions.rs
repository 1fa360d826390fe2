//! The libraries of functions, as FUNCTION DUMP has them: the code of each behind a byte that says what it is.

use super::payload::{self, NotAPayload};
use super::read::Reader;
use super::write;
use thiserror::Error;

const LIBRARY: u8 = 245;
/// As a release candidate of Redis 7.0 wrote them.
const LIBRARY_BEFORE_7: u8 = 246;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    #[error(transparent)]
    Frame(#[from] NotAPayload),
    #[error("Pre-GA function format not supported")]
    TooOld,
    #[error("given type is not a function")]
    NoLibrary,
    #[error("Failed loading library code")]
    Corrupt,
}

/// A payload with the code of these libraries.
pub fn encode<'a>(codes: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for code in codes {
        out.push(LIBRARY);
        write::blob(&mut out, code);
    }
    payload::seal(&mut out);
    out
}

/// The code of each library in a payload.
pub fn decode(payload: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let value = payload::open(payload)?;
    // What a library's code expands to must not be out of all proportion to the payload.
    let mut reader = Reader::new(&value, CODE_BYTES_MAX);
    let mut codes = Vec::new();
    while !reader.is_empty() {
        match reader.byte() {
            Ok(LIBRARY) => {}
            Ok(LIBRARY_BEFORE_7) => return Err(Error::TooOld),
            _ => return Err(Error::NoLibrary),
        }
        codes.push(reader.blob().map_err(|_| Error::Corrupt)?.into_owned());
    }
    Ok(codes)
}

const CODE_BYTES_MAX: usize = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// FUNCTION DUMP by redis-server 7.0.15 without libraries.
    const EMPTY: &[u8] = b"\n\x00]\x9b\\@\x0f\x7f\xa2\xda";

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(encode(std::iter::empty()), EMPTY);
        assert_eq!(decode(EMPTY), Ok(vec![]));
        let codes = [b"short".to_vec(), b"many of the same ".repeat(100)];
        assert_eq!(decode(&encode(codes.iter().map(Vec::as_slice))), Ok(codes.to_vec()));
    }

    #[test]
    fn what_is_no_library_is_refused() {
        let sealed = |bytes: &[u8]| {
            let mut payload = bytes.to_vec();
            payload::seal(&mut payload);
            decode(&payload)
        };
        assert_eq!(sealed(b"\x00\x01a"), Err(Error::NoLibrary));
        assert_eq!(sealed(&[LIBRARY_BEFORE_7]), Err(Error::TooOld));
        assert_eq!(sealed(&[LIBRARY, 5, b'a']), Err(Error::Corrupt));
        assert_eq!(decode(b"x"), Err(Error::Frame(NotAPayload)));
    }
}
