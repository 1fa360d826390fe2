//! Pieces of a file: whoever writes one compresses nothing, since he is in a hurry. Others do that later, on another thread.

use super::write;

/// A piece, and where in it strings are that may be compressed.
#[derive(Default)]
pub struct Piece {
    bytes: Vec<u8>,
    strings: Vec<usize>,
}

impl Piece {
    /// Writes behind what is there.
    pub fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write::without_compressing(&mut self.strings, || write(&mut self.bytes));
    }

    /// Puts another piece behind what is there.
    pub fn append(&mut self, mut other: Piece) {
        let start = self.bytes.len();
        self.strings.extend(other.strings.iter().map(|at| start + at));
        self.bytes.append(&mut other.bytes);
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The piece as it is.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The same with strings compressed where that makes them shorter.
    pub fn into_compressed(mut self) -> Vec<u8> {
        write::compress_at(&self.bytes, &mut self.strings)
    }
}

impl From<Vec<u8>> for Piece {
    /// Nothing in it is compressed.
    fn from(bytes: Vec<u8>) -> Piece {
        Piece { bytes, strings: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::dialect::Dialect;
    use super::super::file::{self, Item};
    use super::super::model_test::{any_value, for_each_way};
    use super::*;

    /// Keys and values, long and short, of all types, compressed later, are byte for byte those that are compressed at
    /// once.
    #[test]
    fn what_is_compressed_later_is_what_is_compressed_at_once() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..if cfg!(miri) { 5 } else { 300 } {
            let (mut piece, mut again, mut at_once) = (Piece::default(), Piece::default(), Vec::new());
            let mut parts = Vec::new();
            for _ in 0..rng.usize(1..20) {
                let value = any_value(&mut rng);
                let key = [b"key".repeat(rng.usize(..20)), rng.u32(..).to_string().into_bytes()].concat();
                let deadline_ms = rng.bool().then(|| rng.u64(..1 << 40));
                for_each_way(&value, &mut |write| {
                    file::write_key(&mut at_once, &key, deadline_ms, write);
                    piece.write(|out| file::write_key(out, &key, deadline_ms, write));
                    again.write(|out| file::write_key(out, &key, deadline_ms, write));
                    let mut part = Piece::default();
                    part.write(|out| file::write_key(out, &key, deadline_ms, write));
                    parts.push(part);
                });
            }
            let plain = again.into_bytes();
            assert!(plain.len() >= at_once.len());
            assert_eq!(piece.into_compressed(), at_once);
            let mut together = Piece::default();
            parts.into_iter().for_each(|part| together.append(part));
            assert_eq!(together.into_compressed(), at_once);
            for bytes in [&plain, &at_once] {
                let mut at = 0;
                while at < bytes.len() {
                    let (item, len) = file::read_item(&bytes[at..], Dialect::Redis, usize::MAX).expect("an item");
                    assert!(matches!(item, Item::Key(_)));
                    at += len;
                }
            }
        }
    }
}
