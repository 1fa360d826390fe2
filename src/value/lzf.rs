//! LZF, the compression of long strings in RDB and of the inner chunks of lists: Marc Lehmann's format, and the choices of
//! the compressor that Redis uses, so that what is written here is byte for byte what Redis writes.
//!
//! ```text
//! 000lllll                      l + 1 literal bytes follow                            1 to 32
//! lllooooo oooooooo             l + 2 bytes as they stand o + 1 bytes back            3 to 8
//! 111ooooo llllllll oooooooo    l + 9 bytes as they stand o + 1 bytes back            9 to 264
//! ```

use std::cell::RefCell;
use thiserror::Error;

const HASH_BITS: u32 = 16;
const LITERALS_MAX: usize = 32;
const OFFSET_MAX: usize = 1 << 13;
const COPY_MAX: usize = (1 << 8) + (1 << 3);
/// Three bytes that stand for the longest copy: nothing expands more.
const EXPANSION_MAX: usize = COPY_MAX / 3;
/// Of what is left to match, Redis compares this much before it minds the end.
const UNROLLED: usize = 16;

/// What was to be expanded is not what [`compress`] gives for a text of that length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not valid: a compressed string")]
pub struct Corrupt;

/// Where each hash of three bytes was seen last, as `base` + position: what is below `base` is from an earlier text,
/// so that no text pays for clearing the table.
struct Seen {
    slots: Vec<u32>,
    base: u32,
}

thread_local! {
    static SEEN: RefCell<Seen> = const { RefCell::new(Seen { slots: Vec::new(), base: 0 }) };
}

impl Seen {
    /// Ready for a text of so many bytes.
    fn prepare(&mut self, len: u32) {
        if self.slots.is_empty() || self.base.checked_add(len).is_none() {
            self.slots.clear();
            self.slots.resize(1 << HASH_BITS, 0);
            self.base = 0;
        }
    }

    /// Position at which these three bytes were seen last, if ever; `at` from now on.
    fn replace(&mut self, three: &[u8], at: usize) -> Option<usize> {
        let value = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        let index = (value >> (24 - HASH_BITS)).wrapping_sub(value.wrapping_mul(5)) & ((1 << HASH_BITS) - 1);
        let slot = &mut self.slots[index as usize];
        let before = std::mem::replace(slot, self.base + at as u32);
        before.checked_sub(self.base).map(|position| position as usize)
    }
}

/// Compresses, unless that takes more than `limit` bytes.
pub fn compress(input: &[u8], limit: usize) -> Option<Vec<u8>> {
    let len = u32::try_from(input.len()).ok()?;
    SEEN.with_borrow_mut(|seen| {
        seen.prepare(len);
        let compressed = Run { out: vec![0], literals: 0, limit }.compress(input, seen);
        seen.base += len;
        compressed
    })
}

/// The output, which ends in a run of literals whose length stands in front of them.
struct Run {
    out: Vec<u8>,
    literals: usize,
    limit: usize,
}

impl Run {
    fn compress(mut self, input: &[u8], seen: &mut Seen) -> Option<Vec<u8>> {
        let mut at = 0;
        while at + 2 < input.len() {
            let found = seen.replace(&input[at..at + 3], at);
            match found.filter(|from| is_match(input, *from, at)) {
                None => {
                    if self.out.len() >= self.limit {
                        return None;
                    }
                    self.literal(input[at]);
                    at += 1;
                }
                Some(from) => {
                    let len = match_len(input, from, at);
                    self.copy(at - from - 1, len)?;
                    at += len;
                    if at + 2 >= input.len() {
                        break;
                    }
                    for position in [at - 2, at - 1] {
                        seen.replace(&input[position..position + 3], position);
                    }
                }
            }
        }
        if self.out.len() + 3 > self.limit {
            return None;
        }
        for byte in &input[at..] {
            self.literal(*byte);
        }
        self.end();
        Some(self.out)
    }

    fn literal(&mut self, byte: u8) {
        self.out.push(byte);
        self.literals += 1;
        if self.literals == LITERALS_MAX {
            self.end();
            self.out.push(0);
        }
    }

    /// Ends the run of literals; an empty one leaves nothing.
    fn end(&mut self) {
        let header = self.out.len() - self.literals - 1;
        match self.literals {
            0 => self.out.truncate(header),
            literals => self.out[header] = (literals - 1) as u8,
        }
        self.literals = 0;
    }

    fn copy(&mut self, offset: usize, len: usize) -> Option<()> {
        if self.out.len() - usize::from(self.literals == 0) + 4 >= self.limit {
            return None;
        }
        self.end();
        let (high, low) = ((offset >> 8) as u8, offset as u8);
        match len - 2 {
            short @ ..7 => self.out.extend_from_slice(&[high | (short as u8) << 5, low]),
            long => self.out.extend_from_slice(&[high | 7 << 5, (long - 7) as u8, low]),
        }
        self.out.push(0);
        Some(())
    }
}

/// Redis never looks at the first position: 0 is an empty slot there.
fn is_match(input: &[u8], from: usize, at: usize) -> bool {
    from > 0 && at - from <= OFFSET_MAX && input[from..from + 3] == input[at..at + 3]
}

/// Length of a match of three bytes at least, bounded as in Redis.
fn match_len(input: &[u8], from: usize, at: usize) -> usize {
    let len_max = (input.len() - at - 2).min(COPY_MAX);
    let same = |len: usize| input[from + len] == input[at + len];
    let mut len = 2;
    if len_max > UNROLLED {
        for _ in 0..UNROLLED {
            len += 1;
            if !same(len) {
                return len;
            }
        }
    }
    loop {
        len += 1;
        if len >= len_max || !same(len) {
            return len;
        }
    }
}

/// Expands to exactly `len` bytes. Memory follows what the input can expand to, not what was announced.
pub fn expand(input: &[u8], len: usize) -> Result<Vec<u8>, Corrupt> {
    let mut out = Vec::new();
    expand_to(input, len, &mut out).map(|()| out)
}

/// The same in a buffer that is there already; what is in it goes.
pub fn expand_to(input: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), Corrupt> {
    out.clear();
    if len > input.len().saturating_mul(EXPANSION_MAX) {
        return Err(Corrupt);
    }
    out.reserve_exact(len);
    let mut rest = input;
    while let Some((&control, after)) = rest.split_first() {
        if usize::from(control) < LITERALS_MAX {
            let (literals, after) = after.split_at_checked(usize::from(control) + 1).ok_or(Corrupt)?;
            out.extend_from_slice(literals);
            rest = after;
        } else {
            let (long, after) = match control >> 5 {
                7 => after.split_first().map(|(more, after)| (7 + usize::from(*more), after)).ok_or(Corrupt)?,
                short => (usize::from(short), after),
            };
            let (low, after) = after.split_first().ok_or(Corrupt)?;
            let back = (usize::from(control & 0x1f) << 8 | usize::from(*low)) + 1;
            let from = out.len().checked_sub(back).ok_or(Corrupt)?;
            copy_within(out, from, long + 2);
            rest = after;
        }
        if out.len() > len {
            return Err(Corrupt);
        }
    }
    if out.len() == len { Ok(()) } else { Err(Corrupt) }
}

/// Appends bytes from within, which may be among those appended.
fn copy_within(out: &mut Vec<u8>, from: usize, len: usize) {
    let mut left = len;
    while left > 0 {
        let step = left.min(out.len() - from);
        out.extend_from_within(from..from + step);
        left -= step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_is_expanded_again() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..3000 {
            let letters = 1 << rng.u32(0..8);
            let len_max = if rng.u8(..) == 0 { 40_000 } else { 600 };
            let len = rng.usize(..len_max);
            let mut text: Vec<u8> = (0..len).map(|_| rng.u8(0..=(letters - 1) as u8)).collect();
            if rng.bool() && !text.is_empty() {
                let from = rng.usize(..text.len());
                text.extend_from_within(from..);
            }
            match compress(&text, text.len()) {
                Some(compressed) => {
                    assert!(compressed.len() <= text.len());
                    assert_eq!(expand(&compressed, text.len()), Ok(text.clone()));
                    assert!(expand(&compressed, text.len() + 1).is_err());
                    assert!(text.is_empty() || expand(&compressed, text.len() - 1).is_err());
                }
                None => assert!(letters > 4 || text.len() < 100, "{letters} letters, {} bytes", text.len()),
            }
        }
    }

    #[test]
    fn a_text_does_not_depend_on_those_before_it() {
        let text: Vec<u8> = b"abcdefabcdefabcdefghiabcdefghi".repeat(5);
        let first = compress(&text, text.len());
        SEEN.with_borrow_mut(|seen| seen.base = u32::MAX - 10);
        assert_eq!(compress(&text, text.len()), first);
        assert_eq!(compress(&text, text.len()), first);
    }

    #[test]
    fn nothing_expands_beyond_what_was_announced_or_possible() {
        let announced = 1 << 40;
        assert!(expand(b"\x00a", announced).is_err());
        assert!(expand(b"\xe0\xff\x00", 264).is_err(), "nothing to copy from");
        assert_eq!(expand(b"\x00a\xe0\xff\x00", 265), Ok(vec![b'a'; 265]));
        for cut in 1..5 {
            assert!(expand(&b"\x00a\xe0\xff\x00"[..cut], 265).is_err());
        }
    }
}
