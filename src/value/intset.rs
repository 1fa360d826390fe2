//! Small sets of integers: sorted, all in the width that the widest one needed.
//!
//! ```text
//!  count: u16 le | integers, ascending, of 2, 4 or 8 bytes each, little-endian
//! ```
//!
//! The width follows from count and length, so an empty set has none. It never shrinks, as in Redis.

use super::pack::{self, Buffer, COUNT_BYTES, COUNT_MAX, raw};

/// Members.
#[inline]
pub fn len(bytes: &[u8]) -> usize {
    pack::count(bytes)
}

/// Bytes of each member.
#[inline]
fn width(bytes: &[u8]) -> usize {
    (bytes.len() - COUNT_BYTES).checked_div(len(bytes)).unwrap_or(2)
}

#[inline]
fn width_of(n: i64) -> usize {
    match n {
        -0x8000..=0x7fff => 2,
        -0x8000_0000..=0x7fff_ffff => 4,
        _ => 8,
    }
}

#[inline]
fn read(bytes: &[u8], width: usize, index: usize) -> i64 {
    let at = COUNT_BYTES + index * width;
    match width {
        2 => i64::from(i16::from_le_bytes(raw(bytes, at))),
        4 => i64::from(i32::from_le_bytes(raw(bytes, at))),
        _ => i64::from_le_bytes(raw(bytes, at)),
    }
}

/// The member at an index, which is smaller than the number of members.
#[inline]
pub fn get(bytes: &[u8], index: usize) -> i64 {
    read(bytes, width(bytes), index)
}

/// Members in ascending order.
pub fn iter(bytes: &[u8]) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + Clone {
    let width = width(bytes);
    (0..len(bytes)).map(move |index| read(bytes, width, index))
}

/// The index of a member, or where it would be.
pub fn search(bytes: &[u8], n: i64) -> Result<usize, usize> {
    let width = width(bytes);
    let (mut low, mut high) = (0, len(bytes));
    // The next one larger than all others is what is looked for often, when sets are filled.
    if high > 0 && read(bytes, width, high - 1) < n {
        return Err(high);
    }
    while low < high {
        let middle = (low + high) / 2;
        let found = read(bytes, width, middle);
        if found == n {
            return Ok(middle);
        }
        if found < n {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Err(low)
}

pub fn contains(bytes: &[u8], n: i64) -> bool {
    search(bytes, n).is_ok()
}

/// Adds a member to a set of fewer than [`COUNT_MAX`]; whether it is new.
pub fn insert(buffer: &mut impl Buffer, n: i64) -> bool {
    let Err(index) = search(buffer.bytes(), n) else { return false };
    let (len, width) = (len(buffer.bytes()), width(buffer.bytes()));
    debug_assert!(len < COUNT_MAX);
    if width_of(n) > width {
        widen(buffer, width_of(n));
    }
    // An empty set has whatever width its first member needs.
    let width = if len == 0 { width_of(n) } else { width.max(width_of(n)) };
    let at = COUNT_BYTES + index * width;
    buffer.splice(at..at, &n.to_le_bytes()[..width]);
    pack::add_count(buffer, 1);
    true
}

/// Removes a member; whether it was there.
pub fn remove(buffer: &mut impl Buffer, n: i64) -> bool {
    let found = search(buffer.bytes(), n);
    if let Ok(index) = found {
        let width = width(buffer.bytes());
        let at = COUNT_BYTES + index * width;
        buffer.splice(at..at + width, &[]);
        pack::add_count(buffer, -1);
    }
    found.is_ok()
}

fn widen(buffer: &mut impl Buffer, width: usize) {
    let bytes = buffer.bytes();
    let mut wide = Vec::with_capacity(len(bytes) * width);
    iter(bytes).for_each(|n| wide.extend_from_slice(&n.to_le_bytes()[..width]));
    let end = bytes.len();
    buffer.splice(COUNT_BYTES..end, &wide);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn random_int(rng: &mut fastrand::Rng, bits: u32) -> i64 {
        match rng.u8(..8) {
            0 => [i64::MIN >> (64 - bits), !(i64::MIN >> (64 - bits))][rng.usize(..2)],
            _ => rng.i64(..) >> (64 - bits.min(rng.u32(4..=64))),
        }
    }

    #[test]
    fn edits_are_those_of_a_model() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut bytes = vec![0; COUNT_BYTES];
            let mut model = BTreeSet::new();
            for bits in [16, 32, 64] {
                for _ in 0..rng.usize(..60) {
                    let n = random_int(&mut rng, bits);
                    if rng.u8(..3) > 0 {
                        assert_eq!(insert(&mut bytes, n), model.insert(n));
                    } else {
                        let n = model.iter().next().copied().filter(|_| rng.bool()).unwrap_or(n);
                        assert_eq!(remove(&mut bytes, n), model.remove(&n));
                    }
                    assert_eq!(len(&bytes), model.len());
                    assert!(iter(&bytes).eq(model.iter().copied()));
                    let n = random_int(&mut rng, bits);
                    assert_eq!(contains(&bytes, n), model.contains(&n));
                    assert_eq!(search(&bytes, n).unwrap_or_else(|index| index), model.range(..n).count());
                }
            }
        }
    }

    #[test]
    fn members_are_as_wide_as_the_widest() {
        let mut bytes = vec![0; COUNT_BYTES];
        for (n, expected) in [(1, 4), (32767, 6), (-32769, 14), (7, 18), (i64::MAX, 42)] {
            assert!(insert(&mut bytes, n));
            assert_eq!(bytes.len(), expected, "{n}");
        }
        assert!(remove(&mut bytes, i64::MAX));
        assert_eq!(bytes.len(), 34);
        assert_eq!((0..4).map(|index| get(&bytes, index)).collect::<Vec<_>>(), [-32769, 1, 7, 32767]);
    }
}
