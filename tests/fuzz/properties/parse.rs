//! Requests (`src/resp/parse.rs`): the same commands and the same error however the bytes arrive in pieces; an error
//! stays; memory follows what was sent and not what was announced.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use emberdb::resp::{Limits, Parsed, Parser, ProtocolError};

use super::meter::measured;

/// Small enough that an input can pass it.
const BULK_BYTES: usize = 1000;
/// Inputs up to here also arrive byte by byte.
const BYTE_BY_BYTE_BYTES: usize = 512;
const RANDOM_SPLITS: usize = 3;
/// A line without end is searched again with every piece.
const PIECES_OF_A_LONG_STREAM: usize = 256;
/// Of the parser's own memory: for each byte received, and besides. An inline argument is a byte and a space, its span
/// 8 bytes, which doubling twice over leaves at no more than this.
const MEMORY_A_BYTE: usize = 16;
const MEMORY_BYTES: usize = 256;

/// What was found in a stream.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// The arguments of each request; none: an empty one.
    requests: Vec<Vec<Vec<u8>>>,
    /// Bytes of these requests.
    used: usize,
    error: Option<ProtocolError>,
}

pub fn check(stream: &[u8]) {
    for authenticated in [true, false] {
        let limits = Limits { bulk_bytes: BULK_BYTES, authenticated };
        let whole = receive(stream, limits, |left| left);
        assert!(whole.used <= stream.len());
        if stream.len() <= BYTE_BY_BYTE_BYTES {
            assert_eq!(receive(stream, limits, |_| 1), whole, "byte by byte");
        }
        let mut hasher = DefaultHasher::new();
        stream.hash(&mut hasher);
        let mut rng = fastrand::Rng::with_seed(hasher.finish());
        for _ in 0..RANDOM_SPLITS {
            let piece_max = (1 << rng.u32(1..12)).max(stream.len() / PIECES_OF_A_LONG_STREAM);
            let split = receive(stream, limits, |left| rng.usize(1..=left.min(piece_max)));
            assert_eq!(split, whole, "in random pieces");
        }
        if authenticated {
            check_written_again(&whole.requests, limits);
        }
    }
}

/// What the parser finds in a stream of which `piece` (given the bytes left, one at least) says how much comes next.
fn receive(stream: &[u8], limits: Limits, mut piece: impl FnMut(usize) -> usize) -> Outcome {
    let mut parser = Parser::default();
    let mut outcome = Outcome { requests: Vec::new(), used: 0, error: None };
    let mut received = 0;
    while received < stream.len() {
        received += piece(stream.len() - received);
        if let Some(error) = &outcome.error {
            let rest = &stream[outcome.used..received];
            let again = parser.parse(rest, limits);
            assert_eq!(again.err().as_ref(), Some(error), "an error stays");
            continue;
        }
        loop {
            let rest = &stream[outcome.used..received];
            let (parsed, bytes) = measured(|| parser.parse(rest, limits));
            assert!(bytes <= MEMORY_BYTES + MEMORY_A_BYTE * rest.len(), "{bytes} bytes for {}", rest.len());
            match parsed {
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Request(len)) => {
                    assert!(len > 0 && len <= rest.len(), "{len} of {}", rest.len());
                    let request = parser.request(rest);
                    let args: Vec<Vec<u8>> = request.from(0).map(<[u8]>::to_vec).collect();
                    assert_eq!(args.len(), request.len());
                    assert!(args.iter().map(Vec::len).sum::<usize>() <= len, "arguments are among the bytes");
                    outcome.requests.push(args);
                    outcome.used += len;
                }
                Err(error) => {
                    assert!(error.to_string().starts_with("Protocol error: "));
                    outcome.error = Some(error);
                    break;
                }
            }
        }
    }
    outcome
}

/// Requests written as arrays of bulk strings are the same requests, unless an inline one was longer than a bulk
/// string may be.
fn check_written_again(requests: &[Vec<Vec<u8>>], limits: Limits) {
    let mut stream = Vec::new();
    for args in requests {
        stream.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
        for arg in args {
            if arg.len() > limits.bulk_bytes {
                return;
            }
            stream.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            stream.extend_from_slice(arg);
            stream.extend_from_slice(b"\r\n");
        }
    }
    let again = receive(&stream, limits, |left| left);
    assert_eq!(again.error, None);
    assert_eq!(again.requests, requests, "written again");
    assert_eq!(again.used, stream.len());
}
