//! Writing what values are made of.

use super::read::Reader;
use crate::value::lzf;
use crate::value::number::{I64_TEXT_BYTES_MAX, format_i64, parse_i64};
use crate::value::pack::Element;
use std::cell::RefCell;

/// Redis looks for an integer in texts up to this long, and compresses longer ones.
const INT_BYTES_MAX: usize = 11;
const UNCOMPRESSED_BYTES_MAX: usize = 20;
/// Compressing has to save this much.
const SAVED_BYTES_MIN: usize = 4;

thread_local! {
    /// Where long strings begin in what is written, while they are to be compressed later. None: they are at once.
    static STRINGS: RefCell<Option<Vec<usize>>> = const { RefCell::new(None) };
}

/// Runs `write`, which writes to one buffer and compresses nothing; where in it long strings begin is added to `strings`.
pub(super) fn without_compressing<R>(strings: &mut Vec<usize>, write: impl FnOnce() -> R) -> R {
    let before = STRINGS.replace(Some(std::mem::take(strings)));
    let result = write();
    *strings = STRINGS.replace(before).unwrap_or_default();
    result
}

/// Compresses the strings that begin at these places, where that is shorter.
pub(super) fn compress_at(bytes: &[u8], strings: &mut [usize]) -> Vec<u8> {
    strings.sort_unstable();
    let (mut out, mut copied) = (Vec::with_capacity(bytes.len()), 0);
    for &at in &*strings {
        let mut reader = Reader::new(&bytes[at..], usize::MAX);
        if let Ok(string) = reader.plain() {
            out.extend_from_slice(&bytes[copied..at]);
            blob(&mut out, string);
            copied = bytes.len() - reader.rest().len();
        }
    }
    out.extend_from_slice(&bytes[copied..]);
    out
}

pub fn len(out: &mut Vec<u8>, len: u64) {
    if len < 1 << 6 {
        out.push(len as u8);
    } else if len < 1 << 14 {
        out.extend_from_slice(&(len as u16 | 1 << 14).to_be_bytes());
    } else if let Ok(len) = u32::try_from(len) {
        out.push(0x80);
        out.extend_from_slice(&len.to_be_bytes());
    } else {
        out.push(0x81);
        out.extend_from_slice(&len.to_be_bytes());
    }
}

/// Puts a length in front of what follows from there.
pub fn len_at(out: &mut Vec<u8>, at: usize, n: u64) {
    insert(out, at, |written| len(written, n));
}

/// Puts what `write` writes in front of what follows from there.
pub fn insert(out: &mut Vec<u8>, at: usize, write: impl FnOnce(&mut Vec<u8>)) {
    let known = with_strings(|strings| strings.len()).unwrap_or(0);
    let mut written = Vec::new();
    write(&mut written);
    with_strings(|strings| {
        let (behind, inserted) = strings.split_at_mut(known);
        behind.iter_mut().rev().take_while(|string| **string >= at).for_each(|string| *string += written.len());
        inserted.iter_mut().for_each(|string| *string += at);
    });
    out.splice(at..at, written);
}

fn with_strings<R>(work: impl FnOnce(&mut Vec<usize>) -> R) -> Option<R> {
    STRINGS.with_borrow_mut(|strings| strings.as_mut().map(work))
}

/// A string, as an integer if that is shorter.
pub fn element(out: &mut Vec<u8>, element: Element) {
    match element {
        Element::Int(n) if small_int(out, n) => {}
        Element::Int(n) => plain(out, format_i64(n, &mut [0; I64_TEXT_BYTES_MAX])),
        Element::Bytes(bytes) => {
            let n = if bytes.len() <= INT_BYTES_MAX { parse_i64(bytes) } else { None };
            if !n.is_some_and(|n| small_int(out, n)) {
                blob(out, bytes);
            }
        }
    }
}

fn small_int(out: &mut Vec<u8>, n: i64) -> bool {
    if let Ok(n) = i8::try_from(n) {
        out.push(0xc0);
        out.extend_from_slice(&n.to_le_bytes());
    } else if let Ok(n) = i16::try_from(n) {
        out.push(0xc1);
        out.extend_from_slice(&n.to_le_bytes());
    } else if let Ok(n) = i32::try_from(n) {
        out.push(0xc2);
        out.extend_from_slice(&n.to_le_bytes());
    } else {
        return false;
    }
    true
}

/// Bytes that are no text, compressed if that is shorter.
pub fn blob(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.len() <= UNCOMPRESSED_BYTES_MAX || with_strings(|strings| strings.push(out.len())).is_some() {
        return plain(out, bytes);
    }
    match lzf::compress(bytes, bytes.len() - SAVED_BYTES_MIN) {
        None => plain(out, bytes),
        Some(compressed) => {
            out.push(0xc3);
            len(out, compressed.len() as u64);
            len(out, bytes.len() as u64);
            out.extend_from_slice(&compressed);
        }
    }
}

fn plain(out: &mut Vec<u8>, bytes: &[u8]) {
    len(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::super::read::Reader;
    use super::*;

    #[test]
    fn lengths_are_read_again() {
        for n in [0, 63, 64, 16383, 16384, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX] {
            let mut out = Vec::new();
            len(&mut out, n);
            assert_eq!(Reader::new(&out, usize::MAX).len(), Ok(n));
        }
    }

    #[test]
    fn strings_are_read_again() {
        let mut texts: Vec<Vec<u8>> =
            [-129, -128, 127, 128, 32767, 32768, -32769, 2147483647, 2147483648, -2147483648, -2147483649, i64::MIN]
                .iter()
                .map(|n: &i64| n.to_string().into_bytes())
                .collect();
        texts.extend([b"".to_vec(), b"012".to_vec(), b"-0".to_vec(), b"+1".to_vec(), vec![b'a'; 20], vec![b'a'; 21]]);
        for text in texts {
            let mut out = Vec::new();
            element(&mut out, Element::Bytes(&text));
            assert_eq!(Reader::new(&out, usize::MAX).blob().as_deref(), Ok(&text[..]));
            if let Some(n) = parse_i64(&text) {
                let mut again = Vec::new();
                element(&mut again, Element::Int(n));
                assert_eq!(again, out);
            }
        }
    }
}
