//! DEBUG DIGEST: a signature of all data that does not depend on the order of keys nor on the shard they are on, the
//! same that redis-server computes for the same data (`debug.c`).
//!
//! ```text
//!  value  = mix(type), then what follows, and with a deadline  xor SHA1("!!expire!!")
//!           string: mix(string)   list: mix(element) for each   set: xor SHA1(member) for each
//!           stream: mix("ms.seq") for each entry, and mix(field) mix(value) for each of its pairs
//!           zset, hash: xor SHA1(mix(member) mix(score), or mix(field) mix(value)) for each
//!  key    = mix(key), then the value as above
//!  all    = for each database with keys: mix(number), then  xor SHA1(key)  for each key
//!  mix(x): digest = SHA1(digest xor SHA1(x))
//! ```

use crate::keyspace::{Kind, Stored, Value};
use crate::value::list;
use crate::value::number::{I64_TEXT_BYTES_MAX, format_i64, write_f64};
use crate::value::stream::{Id, Stream};
use crate::value::{hash, set, zset};
use sha1::{Digest as _, Sha1};
use std::fmt;

const BYTES: usize = 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest([u8; BYTES]);

impl Digest {
    fn xor(&mut self, bytes: &[u8]) {
        self.xor_hash(&Sha1::digest(bytes).into());
    }

    fn xor_hash(&mut self, hash: &[u8; BYTES]) {
        self.0.iter_mut().zip(hash).for_each(|(own, other)| *own ^= other);
    }

    fn mix(&mut self, bytes: &[u8]) {
        self.xor(bytes);
        self.0 = Sha1::digest(self.0).into();
    }

    /// Two texts that belong together, among others in any order.
    fn xor_pair(&mut self, first: &[u8], second: &[u8]) {
        let mut pair = Digest::default();
        pair.mix(first);
        pair.mix(second);
        self.xor(&pair.0);
    }

    fn mix_value(&mut self, value: Stored, has_deadline: bool, now_ms: u64) {
        let mut text = [0; I64_TEXT_BYTES_MAX];
        let kind = value.kind();
        self.mix(&type_number(kind).to_be_bytes());
        match (kind, value) {
            (_, Stored::String(Value::Bytes(bytes))) => self.mix(bytes),
            (_, Stored::String(Value::Int(n))) => self.mix(format_i64(n, &mut text)),
            (Kind::List, list) => {
                list::View::of(list).for_each(|element| self.mix(element.text(&mut text)));
            }
            (Kind::Set, set) => set::View::of(set, now_ms).iter().for_each(|member| self.xor(member.text(&mut text))),
            (Kind::Zset, zset) => zset::View::of(zset, now_ms).for_each(|member, score| {
                let mut score_text = Vec::new();
                write_f64(&mut score_text, score);
                self.xor_pair(member.text(&mut text), &score_text);
            }),
            (Kind::Hash, hash) => {
                hash::View::of(hash).iter().filter(|field| !field.is_dead(now_ms)).for_each(|field| {
                    self.xor_pair(field.name.text(&mut text), &field.value.to_vec());
                })
            }
            (Kind::Stream, stream) => Stream::of(stream).log.range(Id::MIN, Id::MAX).for_each(|entry| {
                self.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
                for (field, value) in entry.pairs() {
                    self.mix(field.text(&mut text));
                    self.mix(value.text(&mut text));
                }
            }),
            (Kind::String, Stored::Packed(..) | Stored::Node(..)) => unreachable!("strings are no collections"),
        }
        if has_deadline {
            self.xor(b"!!expire!!");
        }
    }
}

/// The number of a type in Redis.
fn type_number(kind: Kind) -> u32 {
    match kind {
        Kind::String => 0,
        Kind::List => 1,
        Kind::Set => 2,
        Kind::Zset => 3,
        Kind::Hash => 4,
        Kind::Stream => 6,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The digest of a value without its key (DEBUG DIGEST-VALUE).
pub fn value_digest(value: Stored, has_deadline: bool, now_ms: u64) -> Digest {
    let mut digest = Digest::default();
    digest.mix_value(value, has_deadline, now_ms);
    digest
}

/// One database's part on one shard.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    digest: Digest,
    has_keys: bool,
}

impl Sum {
    pub fn add(&mut self, key: &[u8], value: Stored, has_deadline: bool, now_ms: u64) {
        let mut digest = Digest::default();
        digest.mix(key);
        digest.mix_value(value, has_deadline, now_ms);
        self.digest.xor(&digest.0);
        self.has_keys = true;
    }
}

/// The digest of everything; for each shard the sums of its databases.
pub fn dataset_digest(shards: &[Vec<Sum>]) -> Digest {
    let mut digest = Digest::default();
    let databases = shards.iter().map(Vec::len).max().unwrap_or(0);
    for db in 0..databases {
        let sums = || shards.iter().filter_map(|sums| sums.get(db));
        if sums().any(|sum| sum.has_keys) {
            digest.mix(&(db as u32).to_be_bytes());
            sums().for_each(|sum| digest.xor_hash(&sum.digest.0));
        }
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digests are those of redis-server 7.0.15 for `SET k 12`, then `EXPIRE k 100`.
    #[test]
    fn digests_are_those_of_redis() {
        let digest_of = |has_deadline| {
            let mut sum = Sum::default();
            sum.add(b"k", Value::Int(12).into(), has_deadline, 0);
            dataset_digest(&[vec![sum]]).to_string()
        };
        assert_eq!(
            value_digest(Value::Int(12).into(), false, 0).to_string(),
            "655ac46b180ad2f61a3cee25f0b1780fa2ec879a"
        );
        assert_eq!(
            value_digest(Value::Bytes(b"12").into(), true, 0).to_string(),
            "83df3a94c43338a2db2a05ddb5dbb794b842c619"
        );
        assert_eq!(digest_of(false), "eb708d7f0cec62a02e3eb7f1eae92e506c8433f1");
        assert_eq!(digest_of(true), "632cc2e7daf2af4dfc157b64cb8b0140e7e38dd2");
    }

    #[test]
    fn nothing_has_the_digest_of_zeros() {
        assert_eq!(dataset_digest(&[vec![Sum::default(); 16], vec![Sum::default(); 16]]), Digest::default());
        assert_eq!(Digest::default().to_string(), "0".repeat(40));
    }

    #[test]
    fn it_does_not_matter_where_a_key_lives() {
        let sum = |keys: &[&str]| {
            let mut sum = Sum::default();
            keys.iter().for_each(|key| sum.add(key.as_bytes(), Value::Int(1).into(), false, 0));
            sum
        };
        let none = Sum::default();
        let one = dataset_digest(&[vec![sum(&["a", "b", "c"]), none, sum(&["d"])]]);
        let three = dataset_digest(&[
            vec![sum(&["c"]), none, none],
            vec![none, none, sum(&["d"])],
            vec![sum(&["b", "a"]), none, none],
        ]);
        assert_eq!(one, three);
        assert_ne!(one, dataset_digest(&[vec![sum(&["a", "b", "c"]), sum(&["d"]), none]]));
    }
}
