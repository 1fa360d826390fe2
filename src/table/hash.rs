//! Hashing of keys: one seed for the whole process, so that every shard agrees on who owns a key.
//!
//! From one 64-bit hash come the owning shard (low half), the position in the directory (high bits,
//! see [`spread`]), the fingerprint and the home group in a block (lowest 16 bits).

use ahash::RandomState;

/// The seed of the process and the number of shards: where a key lives.
#[derive(Clone)]
pub struct Hasher {
    seed: u64,
    state: RandomState,
    shards: u64,
}

/// A key with its hash, computed once a command.
#[derive(Clone, Copy)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: u64,
}

impl Hasher {
    /// `seed` makes runs repeatable in tests; a server draws it at random, or takes that of the log that it is about to
    /// load, so that nobody can choose keys that fall into one block.
    pub fn new(seed: u64, shards: usize) -> Hasher {
        let mut rng = fastrand::Rng::with_seed(seed);
        let state = RandomState::with_seeds(rng.u64(..), rng.u64(..), rng.u64(..), rng.u64(..));
        Hasher { seed, state, shards: shards as u64 }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: self.hash(bytes) }
    }

    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        self.state.hash_one(bytes)
    }

    /// The shard that owns the key: chosen by the hash of the key, or of its `{tag}` where it has one, so that
    /// keys with one tag live together.
    #[inline]
    pub fn shard_of(&self, key: Key) -> usize {
        if self.shards == 1 {
            return 0;
        }
        let hash = match tag(key.bytes) {
            Some(tag) => self.hash(tag),
            None => key.hash,
        };
        (((hash & 0xffff_ffff) * self.shards) >> 32) as usize
    }
}

/// The part between the first `{` and the first `}` after it, if there is one and it is not empty.
fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = memchr::memchr(b'{', key)? + 1;
    let len = memchr::memchr(b'}', &key[open..])?;
    (len > 0).then(|| &key[open..open + len])
}

/// Places a hash on the directory's line with a density that falls by half from one end to the other, in sixteen
/// straight pieces (the idea of spiral storage, Martin 1979: x = 2^u - 1 for a uniform u).
///
/// With a uniform density all blocks reach their limit and split in the same season, and the share of slots in use
/// swings between 0.5 and 0.9 with every doubling of the keys. Here the blocks at the dense end split first and the
/// front moves along, so that the fill, and with it the bytes a key, stays the same at any number of keys.
#[inline]
pub fn spread(hash: u64) -> u64 {
    let piece = (hash >> 60) as usize;
    let within = (hash << 4) as u128;
    PIECES[piece].0 + ((within * PIECES[piece].1 as u128) >> 64) as u64
}

/// Start and width of each piece: 2^64 (2^(i/16) - 1) and the distance to the next, computed as exact integers from
/// the sixteenth root of two in 62-bit fixed point.
const PIECES: [(u64, u64); 16] = pieces();

const fn pieces() -> [(u64, u64); 16] {
    // 2^(1/16) - 1 in units of 2^-62.
    const ROOT: u128 = 204_176_783_403_400_586 + (1 << 62);
    let mut starts = [0u64; 17];
    let mut power: u128 = 1 << 62;
    let mut i = 1;
    while i < 16 {
        power = (power * ROOT) >> 62;
        starts[i] = ((power - (1 << 62)) << 2) as u64;
        i += 1;
    }
    let mut out = [(0, 0); 16];
    let mut i = 0;
    while i < 15 {
        out[i] = (starts[i], starts[i + 1] - starts[i]);
        i += 1;
    }
    // The last piece ends at 2^64, which has no u64: its width is what is left, less one.
    out[15] = (starts[15], u64::MAX - starts[15]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_keep_keys_together() {
        assert_eq!(tag(b"{user1}.name"), Some(&b"user1"[..]));
        assert_eq!(tag(b"a{b}{c}"), Some(&b"b"[..]));
        assert_eq!(tag(b"a{}b"), None);
        assert_eq!(tag(b"a{b"), None);
        let hasher = Hasher::new(7, 5);
        for i in 0..100 {
            let key = format!("x{i}{{tag}}");
            assert_eq!(hasher.shard_of(hasher.key(key.as_bytes())), hasher.shard_of(hasher.key(b"{tag}")));
        }
    }

    #[test]
    fn spread_rises_and_covers_the_line() {
        let mut last = 0;
        for i in 0..1u64 << 12 {
            let position = spread(i << 52);
            assert!(i == 0 || position > last, "{i}");
            last = position;
        }
        assert_eq!(spread(0), 0);
        assert!(spread(u64::MAX) > u64::MAX - (1 << 8));
    }

    #[test]
    fn density_falls_by_half() {
        // A sixteenth of the hashes at the dense end lies on 2^(1/16) - 1 of the line, at the thin end on twice that.
        let first = PIECES[0].1 as f64 / 2f64.powi(64);
        let last = PIECES[15].1 as f64 / 2f64.powi(64);
        assert!((first - (2f64.powf(1.0 / 16.0) - 1.0)).abs() < 1e-12, "{first}");
        assert!((last - (2.0 - 2f64.powf(15.0 / 16.0))).abs() < 1e-9, "{last}");
    }
}
