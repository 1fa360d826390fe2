//! Passwords. Only their SHA-256 is kept, and a comparison takes as long wherever two of them differ.

use sha2::{Digest as _, Sha256};
use std::fmt;
use std::hint::black_box;

const HASH_BYTES: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; HASH_BYTES]);

impl Hash {
    pub fn of(password: &[u8]) -> Hash {
        Hash(Sha256::digest(password).into())
    }

    /// Of 64 digits, in lower case as Redis wants them.
    pub fn parse(digits: &[u8]) -> Option<Hash> {
        let mut bytes = [0; HASH_BYTES];
        if digits.len() != 2 * HASH_BYTES {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Hash(bytes))
    }

    /// Whether two are the same, in a time that does not depend on where they differ.
    pub fn is(self, other: Hash) -> bool {
        let differing = self.0.iter().zip(other.0).fold(0, |differing, (a, b)| differing | black_box(a ^ b));
        differing == 0
    }
}

fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Not even its hash goes to a log by accident.
impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_written_as_they_are_read() {
        let hash = Hash::of(b"secret");
        let text = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        assert_eq!(hash.to_string(), text);
        assert_eq!(Hash::parse(text.as_bytes()), Some(hash));
        assert!(hash.is(Hash::of(b"secret")) && !hash.is(Hash::of(b"secreT")));
        for wrong in [&text.to_uppercase()[..], &text[1..], &format!("{text}0"), "", &text.replace('2', "g")] {
            assert_eq!(Hash::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(!format!("{hash:?}").contains("2bb8"));
    }
}
