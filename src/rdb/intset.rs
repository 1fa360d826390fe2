//! Intsets: integers in ascending order, all of one width.
//!
//! ```text
//! width in bytes (4: 2, 4 or 8)  integers (4)  integer ...                                        little-endian
//! ```

use super::{Error, Result};

const CORRUPT: Error = Error::Corrupt("an intset");

/// The integers, strictly ascending.
pub fn integers(intset: &[u8]) -> Result<impl Iterator<Item = Result<i64>>> {
    let (width, rest) = intset.split_first_chunk().ok_or(CORRUPT)?;
    let (count, rest) = rest.split_first_chunk().ok_or(CORRUPT)?;
    let (width, count) = (u32::from_le_bytes(*width) as usize, u32::from_le_bytes(*count) as usize);
    if !matches!(width, 2 | 4 | 8) || count == 0 || count.checked_mul(width) != Some(rest.len()) {
        return Err(CORRUPT);
    }
    let mut before = None;
    Ok(rest.chunks_exact(width).map(move |bytes| {
        let n = signed(bytes);
        if before.replace(n).is_some_and(|before| before >= n) { Err(CORRUPT) } else { Ok(n) }
    }))
}

fn signed(bytes: &[u8]) -> i64 {
    let mut wide = [0; 8];
    wide[8 - bytes.len()..].copy_from_slice(bytes);
    i64::from_le_bytes(wide) >> (64 - 8 * bytes.len())
}

/// An intset of these integers, which ascend, in the least width that holds all.
pub fn of(integers: &[i64]) -> Vec<u8> {
    let fits = |bits: u32| integers.iter().all(|n| *n == *n << (64 - bits) >> (64 - bits));
    let width = if fits(16) {
        2
    } else if fits(32) {
        4
    } else {
        8
    };
    let mut out = Vec::with_capacity(8 + width * integers.len());
    out.extend_from_slice(&(width as u32).to_le_bytes());
    out.extend_from_slice(&(integers.len() as u32).to_le_bytes());
    integers.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()[..width]));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(intset: &[u8]) -> Result<Vec<i64>> {
        integers(intset)?.collect()
    }

    #[test]
    fn the_width_is_the_least() {
        for (list, width) in [
            (vec![-32768, 0, 32767], 2),
            (vec![32768], 4),
            (vec![-32769], 4),
            (vec![i64::from(i32::MIN), i64::from(i32::MAX)], 4),
            (vec![i64::from(i32::MAX) + 1], 8),
            (vec![i64::MIN, -1, i64::MAX], 8),
        ] {
            let bytes = of(&list);
            assert_eq!(bytes.len(), 8 + width * list.len());
            assert_eq!(read(&bytes), Ok(list));
        }
    }

    #[test]
    fn order_width_and_count_are_checked() {
        assert_eq!(read(&of(&[1, 1])), Err(CORRUPT));
        assert_eq!(read(&of(&[2, 1])), Err(CORRUPT));
        assert_eq!(read(&of(&[])), Err(CORRUPT));
        let bytes = of(&[1, 2, 3]);
        for at in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(read(&changed), Err(CORRUPT), "{at}");
        }
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut]), Err(CORRUPT));
        }
    }
}
