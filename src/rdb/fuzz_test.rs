//! Values changed at random: what is still taken for a value is one that can be written and read again.
//! `tests/fuzz.rs` goes on with all types, also those that are only read.

use super::model_test::{Collected, any_value, read, written};
use super::*;

const ROUNDS: usize = 20_000;
/// Of longer values a change is mostly one of a text.
const BYTES_MAX: usize = 600;
/// Bytes that mean something somewhere.
const MARKS: &[u8] = &[0, 1, 2, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xc0, 0xc3, 0xdf, 0xef, 0xf0, 0xf4, 0xf5, 0xfe, 0xff];

fn change(bytes: &mut Vec<u8>, rng: &mut fastrand::Rng) {
    let at = rng.usize(..bytes.len());
    let end = (at + rng.usize(..6)).min(bytes.len());
    match rng.u8(..7) {
        0 => drop(bytes.drain(at..end)),
        1 => bytes.extend_from_within(at..end),
        2 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
        3 => bytes.truncate(at + 1),
        4 => bytes[at] = MARKS[rng.usize(..MARKS.len())],
        5 => bytes[at] = bytes[at].wrapping_add(if rng.bool() { 1 } else { 255 }),
        _ => bytes[at] ^= 1 << rng.u8(..8),
    }
}

#[test]
fn what_is_taken_for_a_value_is_one() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut taken = 0;
    for _ in 0..ROUNDS {
        let mut ways = written(&any_value(&mut rng));
        let mut bytes = ways.swap_remove(rng.usize(..ways.len()));
        if bytes.len() > BYTES_MAX {
            continue;
        }
        change(&mut bytes, &mut rng);
        let mut collected = Collected::default();
        if decode(&mut Reader::new(&bytes, usize::MAX), &mut collected).is_ok() && !collected.twice {
            taken += 1;
            let value = collected.value.expect("a value");
            for again in written(&value) {
                assert_eq!(read(&again), Ok(value.clone()), "{}", bytes.escape_ascii());
            }
        }
    }
    assert!(taken > ROUNDS / 20, "only {taken} were values");
}
