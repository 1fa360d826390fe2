//! Writing what values are made of.

use super::lzf;
use crate::value::number::{I64_TEXT_BYTES_MAX, format_i64, parse_i64};
use crate::value::pack::Element;

/// Redis looks for an integer in texts up to this long, and compresses longer ones.
const INT_BYTES_MAX: usize = 11;
const UNCOMPRESSED_BYTES_MAX: usize = 20;
/// Compressing has to save this much.
const SAVED_BYTES_MIN: usize = 4;

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
    let mut written = Vec::new();
    len(&mut written, n);
    out.splice(at..at, written);
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
    let limit = bytes.len().saturating_sub(SAVED_BYTES_MIN);
    let compressed = if bytes.len() > UNCOMPRESSED_BYTES_MAX { lzf::compress(bytes, limit) } else { None };
    match compressed {
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
