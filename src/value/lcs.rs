//! Longest common subsequence, with the results of the LCS command of Redis 7.0.15, ties included.
//!
//! Redis fills a table of `(a + 1) x (b + 1)` u32 lengths and walks it back from the last cell.
//! Two neighbours in a row differ by 0 or 1, so one bit holds what a cell adds to its left
//! neighbour, and a whole row falls out of one long addition (M. Crochemore, C. Iliopoulos, Y.
//! Pinzon, J. Reid, "A fast and practical bit-vector algorithm for the longest common subsequence
//! problem", IPL 80, 2001):
//!
//! ```text
//!   LCS(i,j)     b = a b c b
//!
//!            0   0 0 0 0           row 0: 1 1 1 1
//!   a = a    0   1 1 1 1           row 1: 0 1 1 1     a 0: one more than the cell on its left
//!       b    0   1 2 2 2           row 2: 0 0 1 1     the zeros of the last row are the length
//!
//!   next row = (row + (row & mask)) | (row & !mask)   mask: where b holds the byte of that row
//! ```
//!
//! The walk needs no more than these bits. Where the bytes differ, Redis steps up if `LCS(i-1,j) >
//! LCS(i,j-1)` and left otherwise. The cell is the larger of the two, so a cell that adds to its
//! left neighbour has its value from above (step up), and one that does not equals its left
//! neighbour (step left, also on a tie).
//!
//! That is 64 cells in a handful of instructions, and for long strings a 32nd of the memory of
//! Redis's table (for a `b` of one byte, as much). The limit is still counted in the bytes of the
//! table Redis would allocate, so that the same request is refused by both.

/// One run of bytes that both strings share, as LCS IDX reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LcsMatch {
    /// Offset of the first byte in `a`.
    pub a_start: usize,
    /// Offset of the first byte in `b`.
    pub b_start: usize,
    /// Length in bytes, never 0.
    pub len: usize,
}

impl LcsMatch {
    /// Offset of the last byte in `a`, inclusive as in the reply.
    pub fn a_end(&self) -> usize {
        self.a_start + self.len - 1
    }

    /// Offset of the last byte in `b`, inclusive as in the reply.
    pub fn b_end(&self) -> usize {
        self.b_start + self.len - 1
    }
}

/// The longest common subsequence of two strings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lcs {
    /// The bytes of the subsequence; their number is the length LCS reports.
    pub text: Vec<u8>,
    /// The runs it is made of, the last one first. MINMATCHLEN is a filter on these and does not
    /// change `text`.
    pub matches: Vec<LcsMatch>,
}

/// Why a longest common subsequence was not computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LcsError {
    /// One string has more bytes than the table's u32 lengths can count.
    #[error("String too long for LCS")]
    TooLong,
    /// The table of Redis would take more bytes than the limit.
    #[error("Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")]
    OverLimit,
    /// The allocator refused.
    #[error("Insufficient memory, failed allocating transient memory for LCS")]
    OutOfMemory,
}

/// The longest common subsequence of `a` and `b` with its matched runs. Time O(a x b / 64), memory
/// about a x b / 8 bytes.
///
/// `limit_bytes` bounds `4 x (a + 1) x (b + 1)`, the table Redis allocates; Redis passes
/// `proto-max-bulk-len`. Nothing is allocated before the limit is checked.
pub fn lcs(a: &[u8], b: &[u8], limit_bytes: u64) -> Result<Lcs, LcsError> {
    check_limit(a.len(), b.len(), limit_bytes)?;
    if a.is_empty() || b.is_empty() {
        return Ok(Lcs::default());
    }
    let masks = MatchMasks::new(a, b)?;
    let words = masks.words;
    // One row of bits for each byte of `a`, row 0 (all ones) left out.
    let mut rows = reserved(a.len().checked_mul(words).ok_or(LcsError::OutOfMemory)?)?;
    let mut row = first_row(words)?;
    for &byte in a {
        if let Some(mask) = masks.of(byte) {
            advance(&mut row, mask);
        }
        rows.extend_from_slice(&row);
    }
    Ok(walk_back(a, b, &rows, words, count_zeros(&row)))
}

/// The length of the longest common subsequence of `a` and `b` in bytes. Time O(a x b / 64), memory
/// O(a + b); the limit is that of [`lcs`].
pub fn lcs_len(a: &[u8], b: &[u8], limit_bytes: u64) -> Result<usize, LcsError> {
    check_limit(a.len(), b.len(), limit_bytes)?;
    if a.is_empty() || b.is_empty() {
        return Ok(0);
    }
    // The longer string lies along the bits, so that fewest of them are wasted in the last word.
    let (a, b) = if a.len() > b.len() { (b, a) } else { (a, b) };
    let masks = MatchMasks::new(a, b)?;
    let mut row = first_row(masks.words)?;
    for &byte in a {
        if let Some(mask) = masks.of(byte) {
            advance(&mut row, mask);
        }
    }
    Ok(count_zeros(&row))
}

/// Whether strings of these lengths are within the limit of [`lcs`].
pub fn check_limit(a_len: usize, b_len: usize, limit_bytes: u64) -> Result<(), LcsError> {
    const CELL_BYTES: u128 = size_of::<u32>() as u128;
    let longest = a_len.max(b_len) as u64;
    if longest >= u64::from(u32::MAX) - 1 {
        return Err(LcsError::TooLong);
    }
    let table_bytes = (a_len as u128 + 1) * (b_len as u128 + 1) * CELL_BYTES;
    if table_bytes > u128::from(limit_bytes) {
        return Err(LcsError::OverLimit);
    }
    Ok(())
}

/// For every byte both strings hold, the bits of the positions at which `b` holds it.
struct MatchMasks {
    /// Words in a mask and in a row.
    words: usize,
    /// Which mask belongs to a byte.
    slots: [Option<u8>; 256],
    masks: Vec<u64>,
}

impl MatchMasks {
    fn new(a: &[u8], b: &[u8]) -> Result<Self, LcsError> {
        let words = b.len().div_ceil(u64::BITS as usize);
        let mut in_b = [false; 256];
        for &byte in b {
            in_b[usize::from(byte)] = true;
        }
        let mut slots = [None; 256];
        let mut used = 0;
        for &byte in a {
            let slot = &mut slots[usize::from(byte)];
            if slot.is_none() && in_b[usize::from(byte)] {
                // At most 256 bytes are new, so a slot fits a byte.
                *slot = Some(used as u8);
                used += 1;
            }
        }
        let mut masks = reserved(words * used)?;
        masks.resize(words * used, 0);
        for (word, bytes) in b.chunks(u64::BITS as usize).enumerate() {
            for (bit, &byte) in bytes.iter().enumerate() {
                if let Some(slot) = slots[usize::from(byte)] {
                    masks[usize::from(slot) * words + word] |= 1 << bit;
                }
            }
        }
        Ok(MatchMasks { words, slots, masks })
    }

    /// The mask of a byte; `None` when the strings do not share it.
    fn of(&self, byte: u8) -> Option<&[u64]> {
        let begin = usize::from(self.slots[usize::from(byte)]?) * self.words;
        self.masks.get(begin..begin + self.words)
    }
}

/// The row before any byte of `a`.
fn first_row(words: usize) -> Result<Vec<u64>, LcsError> {
    let mut row = reserved(words)?;
    row.resize(words, u64::MAX);
    Ok(row)
}

/// Turns a row into the next one, `(row + (row & mask)) | (row & !mask)`, as one addition as long
/// as the row.
fn advance(row: &mut [u64], mask: &[u64]) {
    let mut carry = 0;
    for (word, &mask) in row.iter_mut().zip(mask) {
        let sum = u128::from(*word) + u128::from(*word & mask) + carry;
        *word = sum as u64 | (*word & !mask);
        carry = sum >> u64::BITS;
    }
}

/// The bits behind the end of `b` are one from the first row on, as no mask names them.
fn count_zeros(row: &[u64]) -> usize {
    row.iter().map(|word| word.count_zeros() as usize).sum()
}

/// Walks from the last cell to the first edge as Redis does and collects the bytes and runs on the
/// way.
fn walk_back(a: &[u8], b: &[u8], rows: &[u64], words: usize, len: usize) -> Lcs {
    let mut text = Vec::with_capacity(len);
    let mut matches = Vec::new();
    let mut run_len = 0;
    let (mut i, mut j) = (a.len(), b.len());
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            text.push(a[i - 1]);
            run_len += 1;
            i -= 1;
            j -= 1;
            continue;
        }
        push_run(&mut matches, i, j, &mut run_len);
        let word = rows[(i - 1) * words + (j - 1) / u64::BITS as usize];
        let adds_to_its_left = word >> ((j - 1) % u64::BITS as usize) & 1 == 0;
        if adds_to_its_left {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    push_run(&mut matches, i, j, &mut run_len);
    text.reverse();
    Lcs { text, matches }
}

fn push_run(matches: &mut Vec<LcsMatch>, a_start: usize, b_start: usize, run_len: &mut usize) {
    if *run_len > 0 {
        matches.push(LcsMatch { a_start, b_start, len: *run_len });
        *run_len = 0;
    }
}

/// An empty vector with room for `len` words, or the error when the allocator refuses.
fn reserved(len: usize) -> Result<Vec<u64>, LcsError> {
    let mut words = Vec::new();
    words.try_reserve_exact(len).map_err(|_| LcsError::OutOfMemory)?;
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_BYTES: u64 = 512 * 1024 * 1024;

    /// The textbook table and the walk with the tie rule of Redis.
    fn by_table(a: &[u8], b: &[u8]) -> Lcs {
        let mut table = vec![vec![0u32; b.len() + 1]; a.len() + 1];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                table[i][j] =
                    if a[i - 1] == b[j - 1] { table[i - 1][j - 1] + 1 } else { table[i - 1][j].max(table[i][j - 1]) };
            }
        }
        let (mut i, mut j) = (a.len(), b.len());
        let mut found = Lcs::default();
        let mut in_run = false;
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                i -= 1;
                j -= 1;
                found.text.insert(0, a[i]);
                match found.matches.last_mut() {
                    Some(run) if in_run => *run = LcsMatch { a_start: i, b_start: j, len: run.len + 1 },
                    _ => found.matches.push(LcsMatch { a_start: i, b_start: j, len: 1 }),
                }
                in_run = true;
            } else {
                in_run = false;
                if table[i - 1][j] > table[i][j - 1] { i -= 1 } else { j -= 1 }
            }
        }
        assert_eq!(found.text.len(), table[a.len()][b.len()] as usize);
        found
    }

    /// Two strings, their LCS, and its runs as first and last offset in `a`, the same in `b`, and
    /// length.
    type Case = (&'static str, &'static str, &'static str, &'static [(usize, usize, usize, usize, usize)]);

    // Each line is what Redis 7.0.15 replied to LCS and LCS IDX WITHMATCHLEN.
    #[test]
    fn subsequences_and_runs_are_those_of_redis() {
        let cases: &[Case] = &[
            ("", "", "", &[]),
            ("a", "", "", &[]),
            ("", "a", "", &[]),
            ("a", "a", "a", &[(0, 0, 0, 0, 1)]),
            ("a", "b", "", &[]),
            ("ab", "ba", "b", &[(1, 1, 0, 0, 1)]),
            ("ba", "ab", "a", &[(1, 1, 0, 0, 1)]),
            ("abc", "acb", "ac", &[(2, 2, 1, 1, 1), (0, 0, 0, 0, 1)]),
            ("abcbdab", "bdcaba", "bdab", &[(5, 6, 3, 4, 2), (3, 4, 0, 1, 2)]),
            ("bdcaba", "abcbdab", "bcba", &[(5, 5, 5, 5, 1), (4, 4, 3, 3, 1), (2, 2, 2, 2, 1), (0, 0, 1, 1, 1)]),
            ("ohmytext", "mynewtext", "mytext", &[(4, 7, 5, 8, 4), (2, 3, 0, 1, 2)]),
            ("mynewtext", "ohmytext", "mytext", &[(5, 8, 4, 7, 4), (0, 1, 2, 3, 2)]),
            ("aab", "aba", "ab", &[(1, 2, 0, 1, 2)]),
            ("aba", "aab", "aa", &[(2, 2, 1, 1, 1), (0, 0, 0, 0, 1)]),
            ("aaaa", "aa", "aa", &[(2, 3, 0, 1, 2)]),
            ("aa", "aaaa", "aa", &[(0, 1, 2, 3, 2)]),
            ("abab", "baba", "bab", &[(1, 3, 0, 2, 3)]),
            ("baba", "abab", "aba", &[(1, 3, 0, 2, 3)]),
            ("xaxbxc", "abc", "abc", &[(5, 5, 2, 2, 1), (3, 3, 1, 1, 1), (1, 1, 0, 0, 1)]),
            ("abc", "xaxbxc", "abc", &[(2, 2, 5, 5, 1), (1, 1, 3, 3, 1), (0, 0, 1, 1, 1)]),
            ("abcabc", "cabcab", "abcab", &[(0, 4, 1, 5, 5)]),
            ("aabbcc", "abcabc", "abcc", &[(5, 5, 5, 5, 1), (3, 4, 1, 2, 2), (1, 1, 0, 0, 1)]),
            ("agcat", "gac", "ga", &[(3, 3, 1, 1, 1), (1, 1, 0, 0, 1)]),
            ("gac", "agcat", "ac", &[(2, 2, 2, 2, 1), (1, 1, 0, 0, 1)]),
            ("abcdef", "fedcba", "f", &[(5, 5, 0, 0, 1)]),
            ("xmjyauz", "mzjawxu", "mjau", &[(5, 5, 6, 6, 1), (4, 4, 3, 3, 1), (2, 2, 2, 2, 1), (1, 1, 0, 0, 1)]),
        ];
        for &(a, b, text, runs) in cases {
            let found = lcs(a.as_bytes(), b.as_bytes(), LIMIT_BYTES).unwrap();
            let found_runs: Vec<_> =
                found.matches.iter().map(|run| (run.a_start, run.a_end(), run.b_start, run.b_end(), run.len)).collect();
            assert_eq!((&found.text[..], &found_runs[..]), (text.as_bytes(), runs), "{a} {b}");
            assert_eq!(lcs_len(a.as_bytes(), b.as_bytes(), LIMIT_BYTES), Ok(text.len()));
        }
    }

    #[test]
    fn bits_equal_the_table() {
        let mut rng = fastrand::Rng::with_seed(3);
        for round in 0..3_000 {
            let letters = rng.u8(1..6);
            let longest = if round % 10 == 0 { 300 } else { 24 };
            let mut string = || -> Vec<u8> { (0..rng.usize(..longest)).map(|_| b'a' + rng.u8(..letters)).collect() };
            let (a, b) = (string(), string());
            let expected = by_table(&a, &b);
            assert_eq!(lcs_len(&a, &b, LIMIT_BYTES), Ok(expected.text.len()));
            assert_eq!(lcs(&a, &b, LIMIT_BYTES), Ok(expected));
        }
    }

    #[test]
    fn every_byte_value_has_its_mask() {
        let all: Vec<u8> = (0..=255).collect();
        let backwards: Vec<u8> = (0..=255).rev().collect();
        assert_eq!(lcs(&all, &all, LIMIT_BYTES).unwrap().text, all);
        assert_eq!(lcs_len(&all, &backwards, LIMIT_BYTES), Ok(1));
        assert_eq!(lcs(&all, &backwards, LIMIT_BYTES), Ok(by_table(&all, &backwards)));
    }

    #[test]
    fn strings_that_end_on_a_word_edge() {
        for len in [63, 64, 65, 127, 128, 129] {
            let a = b"x".repeat(len);
            assert_eq!(lcs_len(&a, &a, LIMIT_BYTES), Ok(len));
            let whole = LcsMatch { a_start: 0, b_start: 0, len };
            assert_eq!(lcs(&a, &a, LIMIT_BYTES).unwrap().matches, [whole]);
        }
    }

    #[test]
    fn the_limit_counts_the_table_of_redis() {
        let (a, b) = (vec![b'x'; 99], vec![b'y'; 49]);
        let table_bytes = 100 * 50 * 4;
        assert_eq!(lcs(&a, &b, table_bytes), Ok(Lcs::default()));
        assert_eq!(lcs_len(&a, &b, table_bytes), Ok(0));
        assert_eq!(lcs(&a, &b, table_bytes - 1), Err(LcsError::OverLimit));
        assert_eq!(lcs_len(&a, &b, table_bytes - 1), Err(LcsError::OverLimit));
        assert_eq!(lcs(b"", b"", 4), Ok(Lcs::default()));
        assert_eq!(lcs(b"", b"", 3), Err(LcsError::OverLimit));
    }
}
