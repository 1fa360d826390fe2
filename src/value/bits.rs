//! Strings as arrays of bits: what SETBIT, BITCOUNT, BITPOS, BITOP and BITFIELD do to bytes.
//!
//! Bit 0 is the most significant bit of byte 0. Behind the end of a string all bits are zero.

use std::ops::Range;

/// The bit at an offset.
pub fn get(bytes: &[u8], offset: u64) -> bool {
    bytes.get((offset / 8) as usize).is_some_and(|byte| byte & mask(offset) != 0)
}

/// Changes the bit at an offset, which lies inside; returns what it was.
pub fn set(bytes: &mut [u8], offset: u64, bit: bool) -> bool {
    let byte = &mut bytes[(offset / 8) as usize];
    let old = *byte & mask(offset) != 0;
    if bit {
        *byte |= mask(offset);
    } else {
        *byte &= !mask(offset);
    }
    old
}

fn mask(offset: u64) -> u8 {
    0x80 >> (offset % 8)
}

/// How many bits of a range, which lies inside, are set.
pub fn count(bytes: &[u8], range: Range<u64>) -> u64 {
    if range.is_empty() {
        return 0;
    }
    let (first, last) = ((range.start / 8) as usize, ((range.end - 1) / 8) as usize);
    let before = bytes[first] & !(0xff >> (range.start % 8));
    let behind = bytes[last] & (0x7f >> ((range.end - 1) % 8));
    count_all(&bytes[first..=last]) - u64::from(before.count_ones()) - u64::from(behind.count_ones())
}

fn count_all(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let words: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// The first bit like this one in a range, which lies inside.
pub fn find(bytes: &[u8], bit: bool, range: Range<u64>) -> Option<u64> {
    let whole = range.start.div_ceil(8)..range.end / 8;
    if whole.is_empty() {
        return range.into_iter().find(|at| get(bytes, *at) == bit);
    }
    let mut head = range.start..whole.start * 8;
    let mut tail = whole.end * 8..range.end;
    let in_whole = || {
        let bytes = &bytes[whole.start as usize..whole.end as usize];
        find_in_all(bytes, bit).map(|at| whole.start * 8 + at)
    };
    head.find(|at| get(bytes, *at) == bit).or_else(in_whole).or_else(|| tail.find(|at| get(bytes, *at) == bit))
}

fn find_in_all(bytes: &[u8], bit: bool) -> Option<u64> {
    const STRIDE_BYTES: usize = 32;
    let without = if bit { 0x00 } else { 0xff };
    let (strides, _) = bytes.as_chunks::<STRIDE_BYTES>();
    // A stride is looked at as a whole, so that the loop has one branch for many bytes.
    let has = |stride: &&[u8; STRIDE_BYTES]| stride.iter().fold(0, |any, byte| any | (byte ^ without)) != 0;
    let skipped = strides.iter().take_while(|stride| !has(stride)).count() * STRIDE_BYTES;
    let at = skipped + bytes[skipped..].iter().position(|byte| *byte != without)?;
    let within = if bit { bytes[at].leading_zeros() } else { bytes[at].leading_ones() };
    Some(at as u64 * 8 + u64::from(within))
}

/// What BITOP does with its sources, the first of which is called X and the others Y.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    And,
    Or,
    Xor,
    Not,
    /// In X and in no Y.
    Diff,
    /// In some Y and not in X.
    Diff1,
    /// In X and in some Y.
    AndOr,
    /// In one source exactly.
    One,
}

/// The result of BITOP so far, as long as the longest source.
pub struct Combined {
    op: Op,
    sources: usize,
    bytes: Vec<u8>,
    /// What was in some Y; for [`Op::One`], what was in more than one source.
    others: Vec<u8>,
}

impl Combined {
    pub fn new(op: Op) -> Combined {
        Combined { op, sources: 0, bytes: Vec::new(), others: Vec::new() }
    }

    /// Adds the next source.
    pub fn add(&mut self, source: &[u8]) {
        self.sources += 1;
        match self.op {
            Op::Not => self.bytes = source.iter().map(|byte| !byte).collect(),
            _ if self.sources == 1 => self.bytes = source.to_vec(),
            Op::And => {
                combine(&mut self.bytes, source, |byte, other| byte & other);
                self.bytes[source.len()..].fill(0);
            }
            Op::Or => combine(&mut self.bytes, source, |byte, other| byte | other),
            Op::Xor => combine(&mut self.bytes, source, |byte, other| byte ^ other),
            Op::One => {
                self.others.resize(self.bytes.len(), 0);
                let twice = self.others.iter_mut().zip(self.bytes.iter().zip(source));
                twice.for_each(|(twice, (once, byte))| *twice |= once & byte);
                combine(&mut self.bytes, source, |byte, other| byte | other);
            }
            Op::Diff | Op::Diff1 | Op::AndOr => combine(&mut self.others, source, |byte, other| byte | other),
        }
    }

    pub fn finish(mut self) -> Vec<u8> {
        match self.op {
            Op::And | Op::Or | Op::Xor | Op::Not => {}
            Op::One | Op::Diff => combine(&mut self.bytes, &self.others, |byte, other| byte & !other),
            Op::Diff1 => combine(&mut self.bytes, &self.others, |byte, other| !byte & other),
            Op::AndOr => combine(&mut self.bytes, &self.others, |byte, other| byte & other),
        }
        if self.op == Op::AndOr || self.op == Op::Diff1 {
            let shorter = self.others.len();
            self.bytes[shorter..].fill(0);
        }
        self.bytes
    }
}

/// Makes `bytes` as long as `source` at least and combines what both have.
fn combine(bytes: &mut Vec<u8>, source: &[u8], op: impl Fn(u8, u8) -> u8) {
    if bytes.len() < source.len() {
        bytes.resize(source.len(), 0);
    }
    bytes.iter_mut().zip(source).for_each(|(byte, other)| *byte = op(*byte, *other));
}

/// An integer of BITFIELD: signed of 1 to 64 bits, unsigned of 1 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub signed: bool,
    pub bits: u32,
}

/// What becomes of a value that does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The lowest bits stay.
    Wrap,
    /// The nearest value that fits.
    Saturate,
    /// It is not stored.
    Fail,
}

/// A field with the bytes around it: nine bytes hold 64 bits wherever they begin.
const WINDOW_BYTES: usize = 9;
const WINDOW_BITS: u32 = WINDOW_BYTES as u32 * 8;

impl Field {
    /// The field as `i8` or `u63` names it.
    pub fn parse(text: &[u8]) -> Option<Field> {
        let (kind, digits) = text.split_first()?;
        let signed = match kind {
            b'i' => true,
            b'u' => false,
            _ => return None,
        };
        let bits = super::number::parse_i64(digits)?;
        let bits_max = if signed { 64 } else { 63 };
        (1..=bits_max).contains(&bits).then_some(Field { signed, bits: bits as u32 })
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    fn max(self) -> i64 {
        (self.mask() >> u32::from(self.signed)) as i64
    }

    fn min(self) -> i64 {
        if self.signed { -self.max() - 1 } else { 0 }
    }

    /// The value at an offset.
    pub fn get(self, bytes: &[u8], offset: u64) -> i64 {
        let (_, window) = window(bytes, offset);
        self.of_lowest((window >> self.shift(offset)) as u64)
    }

    /// Writes the lowest bits of a value at an offset; all of the field lies inside.
    pub fn set(self, bytes: &mut [u8], offset: u64, value: i64) {
        let (at, window) = window(bytes, offset);
        let shift = self.shift(offset);
        let (mask, value) = (u128::from(self.mask()) << shift, u128::from(value as u64 & self.mask()) << shift);
        let new = (window & !mask | value).to_be_bytes();
        let target = &mut bytes[at..];
        let inside = target.len().min(WINDOW_BYTES);
        target[..inside].copy_from_slice(&new[16 - WINDOW_BYTES..][..inside]);
    }

    /// How far from the end of its window the field ends.
    fn shift(self, offset: u64) -> u32 {
        WINDOW_BITS - (offset % 8) as u32 - self.bits
    }

    /// The sum of a value of this field and any other, made to fit; `None` where it does not and must.
    pub fn add(self, value: i64, increment: i64, overflow: Overflow) -> Option<i64> {
        let sum = i128::from(value) + i128::from(increment);
        self.made_to_fit(sum, sum < i128::from(self.min()), overflow)
    }

    /// The value as this field can hold it. One far below zero is too large for an unsigned field, as for Redis, which
    /// reads it without its sign, and for a signed one where Redis' distance to the greatest value overflows.
    pub fn fit(self, value: i64, overflow: Overflow) -> Option<i64> {
        let is_low = self.signed && value < self.min() && self.max().checked_sub(value).is_some();
        self.made_to_fit(i128::from(value), is_low, overflow)
    }

    fn made_to_fit(self, value: i128, is_low: bool, overflow: Overflow) -> Option<i64> {
        match overflow {
            _ if (i128::from(self.min())..=i128::from(self.max())).contains(&value) => Some(value as i64),
            Overflow::Fail => None,
            Overflow::Saturate => Some(if is_low { self.min() } else { self.max() }),
            Overflow::Wrap => Some(self.of_lowest(value as u64)),
        }
    }

    /// The value whose lowest bits these are.
    fn of_lowest(self, bits: u64) -> i64 {
        let unused = 64 - self.bits;
        if self.signed { ((bits << unused) as i64) >> unused } else { (bits & self.mask()) as i64 }
    }
}

/// The bytes around a field and where they begin; zero where there are none.
fn window(bytes: &[u8], offset: u64) -> (usize, u128) {
    let at = usize::try_from(offset / 8).map_or(bytes.len(), |at| at.min(bytes.len()));
    let inside = (bytes.len() - at).min(WINDOW_BYTES);
    let mut window = [0; 16];
    window[16 - WINDOW_BYTES..][..inside].copy_from_slice(&bytes[at..at + inside]);
    (at, u128::from_be_bytes(window))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same as bits one by one.
    fn bits_of(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> (7 - bit) & 1 == 1)).collect()
    }

    fn bytes_of(bits: &[bool]) -> Vec<u8> {
        bits.chunks(8).map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit))).collect()
    }

    /// Bytes that are often all zeros or all ones for a while.
    fn random_bytes(rng: &mut fastrand::Rng, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for byte in &mut bytes {
            *byte = [0, 0xff, rng.u8(..)][rng.usize(..3)];
        }
        let (start, end) = (rng.usize(..=len), rng.usize(..=len));
        if start < end {
            bytes[start..end].fill([0, 0xff][rng.usize(..2)]);
        }
        bytes
    }

    #[test]
    fn counting_and_finding_in_any_range_is_what_bits_one_by_one_say() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let len = [rng.usize(..4), rng.usize(..300)][rng.usize(..2)];
            let bytes = random_bytes(&mut rng, len);
            let bits = bits_of(&bytes);
            let end = rng.u64(..=bits.len() as u64);
            let range = rng.u64(..=end)..end;
            let part = &bits[range.start as usize..range.end as usize];
            assert_eq!(count(&bytes, range.clone()), part.iter().filter(|bit| **bit).count() as u64);
            for bit in [false, true] {
                let expected = part.iter().position(|one| *one == bit).map(|at| at as u64 + range.start);
                assert_eq!(find(&bytes, bit, range.clone()), expected);
            }
        }
    }

    #[test]
    fn single_bits_are_read_and_written() {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut bytes = random_bytes(&mut rng, 20);
        let mut bits = bits_of(&bytes);
        for _ in 0..1000 {
            let (at, bit) = (rng.usize(..160), rng.bool());
            assert_eq!(get(&bytes, at as u64), bits[at]);
            assert_eq!(set(&mut bytes, at as u64, bit), bits[at]);
            bits[at] = bit;
        }
        assert_eq!(bits_of(&bytes), bits);
        assert!(!get(&bytes, 160) && !get(&bytes, u64::MAX) && !get(b"", 0));
    }

    #[test]
    fn operations_are_what_bits_one_by_one_say() {
        let mut rng = fastrand::Rng::with_seed(5);
        for round in 0..4000 {
            let count = if round % 8 == 3 { 1 } else { rng.usize(1..5) };
            let sources: Vec<Vec<u8>> = (0..count)
                .map(|_| {
                    let len = rng.usize(..20);
                    random_bytes(&mut rng, len)
                })
                .collect();
            let op = [Op::And, Op::Or, Op::Xor, Op::Not, Op::Diff, Op::Diff1, Op::AndOr, Op::One][round % 8];
            let longest = sources.iter().map(Vec::len).max().unwrap() as u64 * 8;
            let expected: Vec<bool> = (0..longest)
                .map(|at| {
                    let x = get(&sources[0], at);
                    let ys = sources[1..].iter().filter(|source| get(source, at)).count();
                    match op {
                        Op::And => x && ys == count - 1,
                        Op::Or => x || ys > 0,
                        Op::Xor => x ^ (ys % 2 == 1),
                        Op::Not => !x,
                        Op::Diff => x && ys == 0,
                        Op::Diff1 => !x && ys > 0,
                        Op::AndOr => x && ys > 0,
                        Op::One => usize::from(x) + ys == 1,
                    }
                })
                .collect();
            let mut combined = Combined::new(op);
            sources.iter().for_each(|source| combined.add(source));
            assert_eq!(combined.finish(), bytes_of(&expected), "{op:?} {sources:?}");
        }
    }

    #[test]
    fn names_of_fields() {
        let field = |signed, bits| Some(Field { signed, bits });
        assert_eq!(Field::parse(b"i1"), field(true, 1));
        assert_eq!(Field::parse(b"i64"), field(true, 64));
        assert_eq!(Field::parse(b"u63"), field(false, 63));
        for wrong in ["", "i", "u", "i0", "u0", "u64", "i65", "I8", "x8", "8", "i+8", "i08", "i-1", "i8 "] {
            assert_eq!(Field::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn fields_anywhere_hold_what_is_written_and_nothing_else_changes() {
        let mut rng = fastrand::Rng::with_seed(6);
        for _ in 0..20_000 {
            let len = rng.usize(8..20);
            let mut bytes = random_bytes(&mut rng, len);
            let signed = rng.bool();
            let field = Field { signed, bits: rng.u32(1..if signed { 65 } else { 64 }) };
            let offset = rng.u64(..=bytes.len() as u64 * 8 - u64::from(field.bits));
            let value = rng.i64(field.min()..=field.max());
            let mut bits = bits_of(&bytes);
            field.set(&mut bytes, offset, value);
            assert_eq!(field.get(&bytes, offset), value, "{field:?} at {offset}");
            for at in 0..field.bits {
                bits[offset as usize + at as usize] = value as u64 >> (field.bits - 1 - at) & 1 == 1;
            }
            assert_eq!(bits_of(&bytes), bits);
        }
    }

    #[test]
    fn behind_the_end_there_are_zeros() {
        let field = |signed, bits| Field { signed, bits };
        assert_eq!(field(false, 16).get(b"\xff", 0), 0xff00);
        assert_eq!(field(true, 16).get(b"\xff", 0), -256);
        assert_eq!(field(true, 64).get(b"\xff", 7), i64::MIN);
        assert_eq!(field(true, 64).get(b"", 1 << 40), 0);
        assert_eq!(field(false, 8).get(b"abc", u64::MAX - 7), 0);
    }

    #[test]
    fn sums_that_do_not_fit() {
        let u8s = Field { signed: false, bits: 8 };
        let i8s = Field { signed: true, bits: 8 };
        let i64s = Field { signed: true, bits: 64 };
        let all = |field: Field, value, increment| {
            [Overflow::Wrap, Overflow::Saturate, Overflow::Fail].map(|how| field.add(value, increment, how))
        };
        assert_eq!(all(u8s, 250, 5), [Some(255); 3]);
        assert_eq!(all(u8s, 250, 6), [Some(0), Some(255), None]);
        assert_eq!(all(u8s, 0, -1), [Some(255), Some(0), None]);
        assert_eq!(all(i8s, 127, 1), [Some(-128), Some(127), None]);
        assert_eq!(all(i8s, -128, -1), [Some(127), Some(-128), None]);
        assert_eq!(all(i64s, i64::MAX, 1), [Some(i64::MIN), Some(i64::MAX), None]);
        assert_eq!(all(i64s, i64::MIN, -1), [Some(i64::MAX), Some(i64::MIN), None]);
        assert_eq!(all(i64s, i64::MIN, i64::MIN), [Some(0), Some(i64::MIN), None]);
        assert_eq!(i8s.fit(200, Overflow::Wrap), Some(-56));
        assert_eq!(u8s.fit(-1, Overflow::Saturate), Some(255));
        assert_eq!(i8s.fit(-200, Overflow::Saturate), Some(-128));
        assert_eq!(i8s.fit(i64::MIN, Overflow::Saturate), Some(127));
        assert_eq!(i64s.fit(i64::MIN, Overflow::Saturate), Some(i64::MIN));
        assert_eq!(Field { signed: true, bits: 1 }.fit(1, Overflow::Wrap), Some(-1));
        let u63s = Field { signed: false, bits: 63 };
        assert_eq!(all(u63s, i64::MAX, i64::MAX), [Some(i64::MAX - 1), Some(i64::MAX), None]);
    }
}
