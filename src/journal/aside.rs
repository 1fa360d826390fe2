//! Lines that only this server understands, which stand between commands: to redis-server they are comments.
//!
//! ```text
//! #EMBER DEATH <lines that follow> <piece>    what is to be written to a stream, with its number
//! #EMBER TOLD <number>                        it was, or is not to be written any more
//! ```
//!
//! They stand in a log only: who follows the journal over a connection would take them for commands.

use super::{Command, StandsIn};
use std::fmt::Write;

/// What every line begins with.
pub const ASIDE: &[u8] = b"#EMBER ";
/// redis-server reads comments up to 1,024 bytes.
const PIECE_BYTES: usize = 900;

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub enum Aside {
    /// A piece of a death that waits to be written; how many pieces follow.
    Death(usize, Vec<u8>),
    /// The death of this number does not wait any more.
    Told(u64),
}

/// A death waits to be written.
pub fn death(note: &[u8]) -> Command {
    let mut escaped = String::new();
    for byte in note {
        match byte {
            b'%' => escaped.push_str("%25"),
            byte if byte.is_ascii_graphic() => escaped.push(char::from(*byte)),
            byte => write!(escaped, "%{byte:02x}").expect("writing to memory"),
        }
    }
    let pieces = escaped.len().div_ceil(PIECE_BYTES);
    let mut bytes = Vec::new();
    for (index, piece) in escaped.as_bytes().chunks(PIECE_BYTES).enumerate() {
        bytes.extend_from_slice(ASIDE);
        bytes.extend_from_slice(format!("DEATH {} ", pieces - 1 - index).as_bytes());
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
    }
    aside(bytes)
}

/// It does not any more.
pub fn told(number: u64) -> Command {
    aside([ASIDE, format!("TOLD {number}\r\n").as_bytes()].concat())
}

/// (It is about what has died, and holds although what found the dead is undone.)
fn aside(bytes: Vec<u8>) -> Command {
    Command { db: 0, is_whole: false, is_death: true, run_ends_in: None, stands_in: StandsIn::Log, bytes: bytes.into() }
}

impl Aside {
    /// Reads a line without its end.
    pub fn parse(line: &[u8]) -> Option<Aside> {
        let text = std::str::from_utf8(line.strip_prefix(ASIDE)?).ok()?;
        let (word, rest) = text.split_once(' ')?;
        match word {
            "TOLD" => Some(Aside::Told(rest.parse().ok()?)),
            "DEATH" => {
                let (left, piece) = rest.split_once(' ')?;
                Some(Aside::Death(left.parse().ok()?, piece.into()))
            }
            _ => None,
        }
    }
}

/// What the pieces of a death, or another text whose bytes were written as `%25`, say together.
pub fn unescape(pieces: &[u8]) -> Option<Vec<u8>> {
    let mut parts = std::str::from_utf8(pieces).ok()?.split('%');
    let mut out = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        out.push(u8::from_str_radix(digits, 16).ok()?);
        out.extend_from_slice(rest.as_bytes());
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_said_is_read(note in prop::collection::vec(any::<u8>(), 1..5_000), number: u64) {
            let command = death(&note);
            let (mut pieces, mut expected) = (Vec::new(), None);
            for line in command.bytes.split_inclusive(|byte| *byte == b'\n') {
                prop_assert!(line.len() < 1_000);
                let Some(Aside::Death(left, piece)) = Aside::parse(line.trim_ascii_end()) else { panic!("a line") };
                prop_assert_eq!(left, expected.unwrap_or(left));
                expected = left.checked_sub(1);
                pieces.extend_from_slice(&piece);
            }
            prop_assert_eq!((expected, unescape(&pieces)), (None, Some(note)));
            prop_assert_eq!(Aside::parse(told(number).bytes.trim_ascii_end()), Some(Aside::Told(number)));
        }

        #[test]
        fn anything_else_is_refused_without_a_panic(line: Vec<u8>) {
            let _ = Aside::parse(&[ASIDE, &line].concat());
            let _ = Aside::parse(&[ASIDE, b"DEATH ", &line].concat());
            let _ = unescape(&line);
        }
    }
}
