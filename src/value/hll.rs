//! HyperLogLog: how many different elements were added, in 12 KB at most, with a standard error of 0.81 %.
//!
//! A string in the representation of Redis, byte for byte:
//!
//! ```text
//!  "HYLL" | encoding (0 dense, 1 sparse) | 3 bytes unused | count, 8 bytes, little endian; top bit: it is stale
//!  dense    16,384 registers of 6 bits, the first in the lowest bits of the first byte
//!  sparse   runs of equal registers
//!             00xxxxxx            zeros, x + 1 of them
//!             01xxxxxx yyyyyyyy   zeros, 256 x + y + 1 of them
//!             1vvvvvxx            v + 1, in x + 1 registers
//! ```
//!
//! A register holds the highest rank of the elements that belong to it: an element's hash says which register, in its
//! lowest 14 bits, and which rank, the position of the lowest bit set above them. A sparse string that would have to
//! hold a rank above 32 or to grow past a limit becomes dense.
//!
//! Elements are hashed by MurmurHash64A (Austin Appleby, public domain). The count is by Otmar Ertl, "New cardinality
//! estimation algorithms for HyperLogLog sketches", arXiv:1702.01284, algorithm 6.

use thiserror::Error;

pub const REGISTERS: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 14;
/// Hash bits that make the rank.
const RANK_BITS: u32 = 64 - INDEX_BITS;
const REGISTER_BITS: usize = 6;
const HEADER_BYTES: usize = 16;
pub const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;

const MAGIC: &[u8] = b"HYLL";
const ENCODING_AT: usize = 4;
const COUNT_AT: usize = 8;
const STALE: u8 = 0x80;

const LONG_ZEROS: u8 = 0x40;
const VALUE: u8 = 0x80;
const SHORT_ZEROS_MAX: usize = 64;
const SPARSE_RANK_MAX: u8 = 32;
const VALUE_RUN_MAX: usize = 4;
/// Runs that are looked at after a change, whether they can be joined.
const JOINED_RUNS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HllError {
    #[error("WRONGTYPE Key is not a valid HyperLogLog string value.")]
    NotHll,
    #[error("INVALIDOBJ Corrupted HLL object detected")]
    Corrupted,
}

type Result<T = ()> = std::result::Result<T, HllError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Dense = 0,
    Sparse = 1,
}

impl Encoding {
    /// That of a string; whether its runs are sound is not looked at.
    pub fn of(bytes: &[u8]) -> Result<Encoding> {
        if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) {
            return Err(HllError::NotHll);
        }
        match bytes[ENCODING_AT] {
            0 if bytes.len() == DENSE_BYTES => Ok(Encoding::Dense),
            1 => Ok(Encoding::Sparse),
            _ => Err(HllError::NotHll),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Encoding::Dense => "dense",
            Encoding::Sparse => "sparse",
        }
    }
}

/// The register and the rank of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    index: usize,
    rank: u8,
}

impl Mark {
    pub fn of(element: &[u8]) -> Mark {
        let hash = murmur_hash(element);
        let rank_bits = hash >> INDEX_BITS | 1 << RANK_BITS;
        Mark { index: hash as usize % REGISTERS, rank: rank_bits.trailing_zeros() as u8 + 1 }
    }
}

fn murmur_hash(bytes: &[u8]) -> u64 {
    const SEED: u64 = 0xadc8_3b19;
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |word: u64| word ^ word >> 47;
    let (words, rest) = bytes.as_chunks();
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    for word in words {
        let word = mix(u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    mix(mix(hash).wrapping_mul(MULTIPLIER))
}

/// The count that was kept when it was last made, if nothing has changed since.
pub fn kept_count(bytes: &[u8]) -> Option<u64> {
    let count: [u8; 8] = bytes[COUNT_AT..HEADER_BYTES].try_into().expect("eight bytes of the header");
    (count[7] & STALE == 0).then(|| u64::from_le_bytes(count))
}

pub fn keep_count(bytes: &mut [u8], count: u64) {
    bytes[COUNT_AT..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
}

/// Says that the count which is kept is not that of the registers any more.
fn forget_count(bytes: &mut [u8]) {
    bytes[HEADER_BYTES - 1] |= STALE;
}

/// Counts the elements of a string.
pub fn count(bytes: &[u8]) -> Result<u64> {
    let mut histogram = Histogram::default();
    match Encoding::of(bytes)? {
        Encoding::Dense => histogram = Histogram::of(dense_fours(bytes)),
        Encoding::Sparse => {
            let mut registers = 0;
            for run in runs(bytes) {
                registers += run.len;
                histogram.add(run.rank, run.len);
            }
            if registers != REGISTERS {
                return Err(HllError::Corrupted);
            }
        }
    }
    Ok(histogram.count())
}

/// All registers of a dense string.
fn dense_ranks(bytes: &[u8]) -> impl Iterator<Item = u8> {
    dense_fours(bytes).flatten()
}

/// The same, as they stand in three bytes each.
fn dense_fours(bytes: &[u8]) -> impl Iterator<Item = [u8; 4]> {
    bytes[HEADER_BYTES..].as_chunks::<3>().0.iter().map(|[a, b, c]| {
        let four = u32::from_le_bytes([*a, *b, *c, 0]);
        [four, four >> 6, four >> 12, four >> 18].map(|bits| (bits & 63) as u8)
    })
}

/// Raises a register of a dense string to a rank; whether it was lower.
pub fn raise_dense(bytes: &mut [u8], mark: Mark) -> bool {
    let is_raised = raise_register(bytes, mark);
    if is_raised {
        forget_count(bytes);
    }
    is_raised
}

fn raise_register(bytes: &mut [u8], mark: Mark) -> bool {
    let bit = mark.index * REGISTER_BITS;
    let (at, shift) = (HEADER_BYTES + bit / 8, bit % 8);
    // The last register ends with its byte.
    let next = bytes.get(at + 1).copied().unwrap_or(0);
    let pair = u16::from_le_bytes([bytes[at], next]);
    if (pair >> shift & 63) as u8 >= mark.rank {
        return false;
    }
    let [low, high] = (pair & !(63 << shift) | u16::from(mark.rank) << shift).to_le_bytes();
    bytes[at] = low;
    if let Some(next) = bytes.get_mut(at + 1) {
        *next = high;
    }
    true
}

/// Equal registers of a sparse string, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    rank: u8,
    len: usize,
    bytes: usize,
}

impl Run {
    /// The run at the start of these bytes, if there are any. The second byte of a run that is cut off counts as zero.
    fn first_of(bytes: &[u8]) -> Option<Run> {
        let first = *bytes.first()?;
        let low = usize::from(first & 0x3f);
        Some(if first & VALUE != 0 {
            Run { rank: (first >> 2 & 0x1f) + 1, len: low % VALUE_RUN_MAX + 1, bytes: 1 }
        } else if first & LONG_ZEROS != 0 {
            let second = usize::from(bytes.get(1).copied().unwrap_or(0));
            Run { rank: 0, len: (low << 8 | second) + 1, bytes: bytes.len().min(2) }
        } else {
            Run { rank: 0, len: low + 1, bytes: 1 }
        })
    }
}

/// Appends a run of at most four registers of a rank, or of any number of zeros.
fn push_run(bytes: &mut Vec<u8>, rank: u8, len: usize) {
    let less_one = len - 1;
    if rank > 0 {
        bytes.push(value_run(rank, len));
    } else if len > SHORT_ZEROS_MAX {
        bytes.extend([LONG_ZEROS | (less_one >> 8) as u8, less_one as u8]);
    } else {
        bytes.push(less_one as u8);
    }
}

fn value_run(rank: u8, len: usize) -> u8 {
    VALUE | (rank - 1) << 2 | (len - 1) as u8
}

/// The runs of a sparse string.
fn runs(bytes: &[u8]) -> impl Iterator<Item = Run> {
    let mut rest = &bytes[HEADER_BYTES..];
    std::iter::from_fn(move || {
        let run = Run::first_of(rest)?;
        rest = &rest[run.bytes..];
        Some(run)
    })
}

/// Shows the registers of a sparse string that are not zero.
fn each_sparse(bytes: &[u8], mut each: impl FnMut(Mark)) -> Result {
    let mut index = 0;
    for run in runs(bytes) {
        if index + run.len > REGISTERS {
            return Err(HllError::Corrupted);
        }
        if run.rank > 0 {
            (index..index + run.len).for_each(|index| each(Mark { index, rank: run.rank }));
        }
        index += run.len;
    }
    if index == REGISTERS { Ok(()) } else { Err(HllError::Corrupted) }
}

/// The runs of a sparse string in words, as PFDEBUG DECODE shows them; of another, nothing.
pub fn describe(bytes: &[u8]) -> Result<Option<String>> {
    if Encoding::of(bytes)? == Encoding::Dense {
        return Ok(None);
    }
    let words = runs(bytes).map(|run| match run {
        Run { rank: 0, len, bytes: 1 } => format!("z:{len}"),
        Run { rank: 0, len, .. } => format!("Z:{len}"),
        Run { rank, len, .. } => format!("v:{rank},{len}"),
    });
    Ok(Some(words.collect::<Vec<_>>().join(" ")))
}

/// A string that is changed, and may become dense meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hll {
    bytes: Vec<u8>,
    encoding: Encoding,
    /// Bytes from which on a sparse string becomes dense.
    sparse_max_bytes: usize,
}

/// Where a search for a run of a sparse string may begin, and the first register there.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    first: usize,
}

const START: Place = Place { at: HEADER_BYTES, first: 0 };

impl Hll {
    /// The empty one; its count is not known yet, as in Redis.
    pub fn new(sparse_max_bytes: usize) -> Hll {
        let mut bytes = MAGIC.to_vec();
        bytes.push(Encoding::Sparse as u8);
        bytes.resize(HEADER_BYTES, 0);
        push_run(&mut bytes, 0, REGISTERS);
        forget_count(&mut bytes);
        Hll { bytes, encoding: Encoding::Sparse, sparse_max_bytes }
    }

    pub fn of(bytes: &[u8], sparse_max_bytes: usize) -> Result<Hll> {
        Ok(Hll { encoding: Encoding::of(bytes)?, bytes: bytes.to_vec(), sparse_max_bytes })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Raises a register to a rank; whether it was lower.
    pub fn raise(&mut self, mark: Mark) -> Result<bool> {
        self.raise_from(&mut { START }, mark)
    }

    /// Raises all registers to those of others; the count is stale from now on.
    pub fn merge(&mut self, others: &Registers) -> Result {
        if others.was_dense {
            self.make_dense()?;
        }
        let mut from = START;
        for (index, &rank) in others.ranks.iter().enumerate().filter(|(_, rank)| **rank > 0) {
            self.raise_from(&mut from, Mark { index, rank })?;
        }
        forget_count(&mut self.bytes);
        Ok(())
    }

    /// Makes it dense; whether it was sparse.
    pub fn make_dense(&mut self) -> Result<bool> {
        if self.encoding == Encoding::Dense {
            return Ok(false);
        }
        let mut dense = self.bytes[..HEADER_BYTES].to_vec();
        dense[ENCODING_AT] = Encoding::Dense as u8;
        dense.resize(DENSE_BYTES, 0);
        each_sparse(&self.bytes, |mark| {
            raise_register(&mut dense, mark);
        })?;
        (self.bytes, self.encoding) = (dense, Encoding::Dense);
        Ok(true)
    }

    /// As [`Hll::raise`]; the search begins at `from`, which is moved to where one for a later register may begin.
    fn raise_from(&mut self, from: &mut Place, mark: Mark) -> Result<bool> {
        if self.encoding == Encoding::Dense {
            return Ok(raise_dense(&mut self.bytes, mark));
        }
        if mark.rank > SPARSE_RANK_MAX {
            return self.raise_as_dense(mark);
        }
        let (mut place, mut previous) = (*from, *from);
        let run = loop {
            let run = Run::first_of(&self.bytes[place.at..]).ok_or(HllError::Corrupted)?;
            if mark.index < place.first + run.len {
                break run;
            }
            // A run of ranks has four registers at most, however others join it: none further on will be in this one.
            if place.first + VALUE_RUN_MAX <= mark.index {
                *from = place;
            }
            previous = place;
            place = Place { at: place.at + run.bytes, first: place.first + run.len };
        };
        if run.rank >= mark.rank {
            return Ok(false);
        }
        if run.len == 1 && run.bytes == 1 {
            self.bytes[place.at] = value_run(mark.rank, 1);
        } else {
            let (before, behind) = (mark.index - place.first, place.first + run.len - 1 - mark.index);
            let mut parts = Vec::with_capacity(5);
            if before > 0 {
                push_run(&mut parts, run.rank, before);
            }
            push_run(&mut parts, mark.rank, 1);
            if behind > 0 {
                push_run(&mut parts, run.rank, behind);
            }
            if parts.len() > run.bytes && self.bytes.len() + parts.len() - run.bytes > self.sparse_max_bytes {
                return self.raise_as_dense(mark);
            }
            self.bytes.splice(place.at..place.at + run.bytes, parts);
        }
        self.join_runs(previous.at);
        forget_count(&mut self.bytes);
        Ok(true)
    }

    /// Joins neighbours of the same rank, as far as Redis looks for them.
    fn join_runs(&mut self, mut at: usize) {
        for _ in 0..JOINED_RUNS {
            let Some(run) = Run::first_of(&self.bytes[at..]) else { return };
            let next = Run::first_of(&self.bytes[at + run.bytes..]);
            match next.filter(|next| run.rank > 0 && next.rank == run.rank && run.len + next.len <= VALUE_RUN_MAX) {
                Some(next) => {
                    self.bytes[at] = value_run(run.rank, run.len + next.len);
                    self.bytes.remove(at + 1);
                }
                None => at += run.bytes,
            }
        }
    }

    fn raise_as_dense(&mut self, mark: Mark) -> Result<bool> {
        self.make_dense()?;
        Ok(raise_dense(&mut self.bytes, mark))
    }
}

/// The highest ranks of several strings together.
#[derive(Clone)]
pub struct Registers {
    ranks: Box<[u8]>,
    /// One of the strings was dense.
    was_dense: bool,
}

impl Registers {
    pub fn new() -> Registers {
        Registers { ranks: vec![0; REGISTERS].into(), was_dense: false }
    }

    /// Adds an element.
    pub fn raise(&mut self, mark: Mark) {
        self.ranks[mark.index] = self.ranks[mark.index].max(mark.rank);
    }

    /// Adds those of a string.
    pub fn add(&mut self, bytes: &[u8]) -> Result {
        let raise = |old: &mut u8, rank: u8| *old = rank.max(*old);
        match Encoding::of(bytes)? {
            Encoding::Dense => {
                self.was_dense = true;
                let fours = self.ranks.as_chunks_mut::<4>().0.iter_mut().zip(dense_fours(bytes));
                fours.for_each(|(old, ranks)| old.iter_mut().zip(ranks).for_each(|(old, rank)| raise(old, rank)));
                Ok(())
            }
            Encoding::Sparse => each_sparse(bytes, |mark| raise(&mut self.ranks[mark.index], mark.rank)),
        }
    }

    pub fn add_all(&mut self, other: &Registers) {
        self.was_dense |= other.was_dense;
        self.ranks.iter_mut().zip(&other.ranks).for_each(|(old, rank)| *old = (*rank).max(*old));
    }

    pub fn ranks(&self) -> &[u8] {
        &self.ranks
    }

    /// Counts the elements of all strings together.
    pub fn count(&self) -> u64 {
        Histogram::of(self.ranks.as_chunks().0.iter().copied()).count()
    }
}

impl Default for Registers {
    fn default() -> Registers {
        Registers::new()
    }
}

/// How many registers have each rank.
struct Histogram([u32; 1 << REGISTER_BITS]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram([0; 1 << REGISTER_BITS])
    }
}

impl Histogram {
    fn of(fours: impl Iterator<Item = [u8; 4]>) -> Histogram {
        // Neighbours are often equal: four counters do not wait for each other.
        let mut four = [(); 4].map(|()| Histogram::default());
        for ranks in fours {
            four.iter_mut().zip(ranks).for_each(|(histogram, rank)| histogram.0[usize::from(rank)] += 1);
        }
        let [mut sum, rest @ ..] = four;
        rest.iter().for_each(|other| sum.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more));
        sum
    }

    fn add(&mut self, rank: u8, registers: usize) {
        let sum = &mut self.0[usize::from(rank)];
        *sum = sum.saturating_add(registers as u32);
    }

    fn count(&self) -> u64 {
        /// 1 / (2 ln 2)
        const ALPHA: f64 = 0.721_347_520_444_481_7;
        const M: f64 = REGISTERS as f64;
        let of = |rank: u32| f64::from(self.0[rank as usize]);
        let mut z = M * tau((M - of(RANK_BITS + 1)) / M);
        for rank in (1..=RANK_BITS).rev() {
            z = (z + of(rank)) * 0.5;
        }
        z += M * sigma(of(0) / M);
        let count = (ALPHA * M * M / z).round();
        // What no honest element makes has the answer that the conversion gives Redis.
        if count < i64::MAX as f64 { count as u64 } else { i64::MIN as u64 }
    }
}

/// Checks registers and counts with random ones; what is wrong, if anything is.
pub fn self_test(rng: &mut fastrand::Rng) -> std::result::Result<(), String> {
    const ELEMENTS: u64 = 200_000;
    /// Standard errors that a count may be off.
    const TOLERANCE: f64 = 6.0;
    let mut hll = Hll::new(0);
    hll.make_dense().map_err(|error| error.to_string())?;
    let mut ranks: Vec<u8> = (0..REGISTERS).map(|_| rng.u8(0..1 << REGISTER_BITS)).collect();
    for _ in 0..2 {
        for (index, rank) in ranks.iter_mut().enumerate() {
            *rank = rng.u8(*rank..1 << REGISTER_BITS);
            raise_register(&mut hll.bytes, Mark { index, rank: *rank });
        }
        if let Some(index) = dense_ranks(&hll.bytes).zip(&ranks).position(|(is, should)| is != *should) {
            return Err(format!("TESTFAILED Register {index} does not hold {}", ranks[index]));
        }
    }
    let seed = rng.u64(..);
    let mut hll = Hll::new(3000);
    let mut checkpoint = 1;
    for n in 1..=ELEMENTS {
        hll.raise(Mark::of(&(seed ^ n).to_le_bytes())).map_err(|error| error.to_string())?;
        if n == checkpoint {
            checkpoint *= 10;
            let counted = count(&hll.bytes).map_err(|error| error.to_string())?;
            let error_max = n as f64 * TOLERANCE * 1.04 / (REGISTERS as f64).sqrt();
            if counted.abs_diff(n) as f64 > error_max.ceil() {
                return Err(format!("TESTFAILED Too big error: {n} elements were counted as {counted}"));
            }
        }
    }
    Ok(())
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_BYTES: usize = 3000;

    fn added<'e>(elements: impl IntoIterator<Item = &'e str>) -> Hll {
        let mut hll = Hll::new(MAX_BYTES);
        elements.into_iter().for_each(|element| assert!(hll.raise(Mark::of(element.as_bytes())).is_ok()));
        hll
    }

    fn ranks_of(hll: &Hll) -> Vec<u8> {
        let mut registers = Registers::new();
        registers.add(hll.bytes()).unwrap();
        registers.ranks.into()
    }

    /// Registers that are often neighbours, and ranks that are often equal.
    fn random_mark(rng: &mut fastrand::Rng, spread: usize) -> Mark {
        let rank = if rng.u32(..3000) == 0 { rng.u8(33..52) } else { rng.u8(1..4).max(rng.u8(1..33) / 8) };
        Mark { index: rng.usize(..spread), rank }
    }

    #[test]
    fn hashes_are_those_of_the_published_function() {
        // What redis-server shows of these elements.
        for (element, index, rank) in
            [(&b""[..], 5938, 2), (b"a", 12711, 2), (b"12345678", 10579, 3), (b"hello world, this is longer", 9459, 1)]
        {
            assert_eq!(Mark::of(element), Mark { index, rank });
        }
    }

    /// A sparse string, a dense one and a plain array agree, whatever is added; runs stay sound and below the limit.
    #[test]
    fn representations_agree_with_an_array() {
        let mut rng = fastrand::Rng::with_seed(8);
        for round in 0..60 {
            let max_bytes = [0, 18, 40, 300, 3000, usize::MAX][round % 6];
            let spread = [10, 100, 3000, REGISTERS][rng.usize(..4)];
            let (mut sparse, mut dense) = (Hll::new(max_bytes), Hll::new(0));
            assert_eq!((dense.make_dense(), dense.make_dense()), (Ok(true), Ok(false)));
            let mut array = vec![0; REGISTERS];
            for _ in 0..rng.usize(..4000) {
                let mark = random_mark(&mut rng, spread);
                let raised = array[mark.index] < mark.rank;
                array[mark.index] = mark.rank.max(array[mark.index]);
                assert_eq!((sparse.raise(mark), dense.raise(mark)), (Ok(raised), Ok(raised)));
                assert_eq!(Encoding::of(sparse.bytes()), Ok(sparse.encoding));
                assert!(sparse.encoding == Encoding::Dense || sparse.bytes().len() <= max_bytes.max(18));
            }
            assert_eq!(ranks_of(&sparse), array);
            assert_eq!(ranks_of(&dense), array);
            assert_eq!(count(sparse.bytes()), count(dense.bytes()));
            let was_sparse = sparse.encoding == Encoding::Sparse;
            assert_eq!(sparse.make_dense(), Ok(was_sparse));
            assert_eq!(sparse.bytes()[HEADER_BYTES..], dense.bytes()[HEADER_BYTES..]);
        }
    }

    /// A merge goes on where it was instead of searching from the start: the runs must not show it.
    #[test]
    fn merging_makes_the_same_runs_as_raising_one_by_one() {
        let mut rng = fastrand::Rng::with_seed(9);
        for round in 0..300 {
            let spread = [12, 60, 400, REGISTERS][round % 4];
            let random = |rng: &mut fastrand::Rng, marks| {
                let mut hll = Hll::new(MAX_BYTES);
                (0..marks).for_each(|_| assert!(hll.raise(random_mark(rng, spread)).is_ok()));
                hll
            };
            let marks = rng.usize(..500);
            let mut merged = random(&mut rng, marks);
            let mut one_by_one = merged.clone();
            let mut registers = Registers::new();
            for _ in 0..rng.usize(1..4) {
                let marks = rng.usize(..500);
                registers.add(random(&mut rng, marks).bytes()).unwrap();
            }
            merged.merge(&registers).unwrap();
            if registers.was_dense {
                one_by_one.make_dense().unwrap();
            }
            for (index, &rank) in registers.ranks.iter().enumerate().filter(|(_, rank)| **rank > 0) {
                one_by_one.raise(Mark { index, rank }).unwrap();
            }
            forget_count(&mut one_by_one.bytes);
            assert_eq!(merged, one_by_one, "round {round}");
        }
    }

    #[test]
    fn the_test_of_itself_passes() {
        (0..20).for_each(|seed| assert_eq!(self_test(&mut fastrand::Rng::with_seed(seed)), Ok(())));
    }

    #[test]
    fn counts_are_near_the_truth() {
        let mut hll = Hll::new(MAX_BYTES);
        let mut checkpoint = 1;
        for n in 1..=300_000_u64 {
            hll.raise(Mark::of(&n.to_le_bytes())).unwrap();
            if n == checkpoint {
                let counted = count(&hll.bytes).unwrap();
                assert!((counted as f64 - n as f64).abs() <= (n as f64 * 0.0081 * 4.0).ceil(), "{counted} of {n}");
                checkpoint = checkpoint * 3 / 2 + 1;
            }
        }
        assert_eq!(hll.encoding, Encoding::Dense);
        assert_eq!(count(Hll::new(MAX_BYTES).bytes()), Ok(0));
    }

    #[test]
    fn a_count_is_kept_until_it_is_stale() {
        let mut hll = added(["a"]);
        assert_eq!(kept_count(hll.bytes()), None);
        keep_count(&mut hll.bytes, 1);
        assert_eq!(kept_count(hll.bytes()), Some(1));
        assert_eq!(hll.raise(Mark::of(b"a")), Ok(false));
        assert_eq!(kept_count(hll.bytes()), Some(1));
        assert_eq!(hll.raise(Mark::of(b"b")), Ok(true));
        assert_eq!(kept_count(hll.bytes()), None);
    }

    #[test]
    fn runs_in_words() {
        let mut hll = Hll::new(MAX_BYTES);
        assert_eq!(describe(hll.bytes()), Ok(Some("Z:16384".to_owned())));
        for (index, rank) in [(3, 2), (4, 2), (6, 2), (5, 2), (70, 32)] {
            hll.raise(Mark { index, rank }).unwrap();
        }
        assert_eq!(describe(hll.bytes()), Ok(Some("z:3 v:2,4 z:63 v:32,1 Z:16313".to_owned())));
        hll.make_dense().unwrap();
        assert_eq!(describe(hll.bytes()), Ok(None));
    }

    #[test]
    fn strings_that_are_none() {
        let empty = Hll::new(MAX_BYTES);
        let with = |at: usize, byte| {
            let mut bytes = empty.bytes().to_vec();
            bytes[at] = byte;
            bytes
        };
        for bytes in
            [&b""[..], b"HYLL", &empty.bytes()[..15], &with(0, b'h'), &with(4, 0), &with(4, 2), &[0; DENSE_BYTES]]
        {
            assert_eq!(Encoding::of(bytes), Err(HllError::NotHll));
            assert_eq!(count(bytes), Err(HllError::NotHll));
            assert_eq!(Registers::new().add(bytes), Err(HllError::NotHll));
            assert_eq!(Hll::of(bytes, MAX_BYTES), Err(HllError::NotHll));
        }
        for bytes in [&empty.bytes()[..16], &empty.bytes()[..17], &with(17, 0xfe), &with(16, 0x7e)] {
            assert_eq!(count(bytes), Err(HllError::Corrupted));
            assert_eq!(Registers::new().add(bytes), Err(HllError::Corrupted));
            assert_eq!(Hll::of(bytes, MAX_BYTES).unwrap().make_dense(), Err(HllError::Corrupted));
        }
    }

    /// Strings from strangers, most of them a few changes away from a sound one.
    #[test]
    fn nothing_in_a_string_breaks_anything() {
        let mut rng = fastrand::Rng::with_seed(10);
        let mut corrupted = 0;
        for round in 0..30_000 {
            let marks = rng.usize(..50);
            let mut hll = Hll::new(MAX_BYTES);
            (0..marks).for_each(|_| assert!(hll.raise(random_mark(&mut rng, REGISTERS)).is_ok()));
            let mut bytes = hll.bytes;
            if hll.encoding == Encoding::Sparse {
                match round % 3 {
                    0 => bytes.extend((0..rng.usize(..100)).map(|_| rng.u8(..))),
                    1 => bytes.truncate(rng.usize(..=bytes.len())),
                    _ => {}
                }
            }
            for _ in 0..rng.usize(..4) {
                let at = rng.usize(..=bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = rng.u8(..);
                }
            }
            let Ok(mut hll) = Hll::of(&bytes, [0, 60, MAX_BYTES][rng.usize(..3)]) else { continue };
            let counted = count(&bytes);
            corrupted += u32::from(counted.is_err());
            kept_count(&bytes);
            describe(&bytes).unwrap();
            let mut registers = Registers::new();
            if registers.add(&bytes).is_ok() {
                registers.count();
                assert!(Hll::new(MAX_BYTES).merge(&registers).is_ok());
            }
            let _ = hll.merge(&Registers::new());
            for _ in 0..20 {
                let index = [REGISTERS - 1, rng.usize(..REGISTERS)][rng.usize(..2)];
                let _ = hll.raise(Mark { index, rank: rng.u8(1..52) });
            }
        }
        assert!(corrupted > 1000, "{corrupted}");
    }

    #[test]
    fn registers_that_no_element_can_set_are_counted_somehow() {
        for rank in [50, 51, 52, 63] {
            let mut hll = Hll::new(0);
            hll.make_dense().unwrap();
            (0..REGISTERS).for_each(|index| assert_eq!(hll.raise(Mark { index, rank }), Ok(true)));
            assert_eq!(count(hll.bytes()), Ok(i64::MIN as u64), "rank {rank}");
        }
    }

    /// A run behind the last register, which the readers of runs would have passed over.
    #[test]
    fn runs_past_the_last_register_are_corrupt() {
        let long_zeros = [LONG_ZEROS | 0x3f, 0xff];
        for more in [vec![value_run(1, 1)], vec![0], long_zeros.to_vec(), vec![value_run(32, 4), 0x3f]] {
            let mut bytes = Hll::new(3000).into_bytes();
            bytes.extend(more);
            assert_eq!(count(&bytes), Err(HllError::Corrupted));
            assert_eq!(Hll::of(&bytes, 3000).unwrap().make_dense(), Err(HllError::Corrupted));
            assert_eq!(Registers::new().add(&bytes), Err(HllError::Corrupted));
        }
    }
}
