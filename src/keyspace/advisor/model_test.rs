//! The curve beside an exact simulation of a cache under each lifetime, on traces.

use super::*;
use crate::keyspace::{Event, Hasher, Value};

const READS: Touch = Touch::TEST_READ;
const LIFE_MS: u64 = 60_000;
/// No share of hits is further from the simulated one than this, nor are bytes further, as a share of them.
const HITS_WITHIN: f64 = 0.03;
const BYTES_WITHIN: f64 = 0.1;

/// One cache of a simulation: until when each key lives.
struct Simulated {
    life_ms: u64,
    until_ms: Vec<u64>,
    hits: u64,
    byte_ms: f64,
}

impl Simulated {
    fn read(&mut self, key: usize, now_ms: u64, end_ms: u64, bytes: f64) {
        if self.until_ms[key] >= now_ms {
            self.hits += 1;
            return;
        }
        let until_ms = now_ms + self.life_ms;
        self.until_ms[key] = until_ms;
        self.byte_ms += bytes * (until_ms.min(end_ms) - now_ms) as f64;
    }
}

/// Draws keys so that key n is read with a probability in proportion to 1/n^s.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: usize, s: f64) -> Zipf {
        let mut sum = 0.0;
        Zipf((1..=keys).map(|key| (sum += (key as f64).powf(-s), sum).1).collect())
    }

    fn draw(&self, rng: &mut fastrand::Rng) -> usize {
        let at = rng.f64() * self.0[self.0.len() - 1];
        self.0.partition_point(|sum| *sum < at).min(self.0.len() - 1)
    }
}

/// Some trace: which key is read at which moment, milliseconds from its beginning.
struct Trace {
    name: String,
    keys: usize,
    lasts_ms: u64,
    reads: Vec<(u64, usize)>,
}

/// Keys of a zipf distribution, read at random moments.
fn zipf(seed: u64, keys: usize, s: f64, reads: usize, lasts_ms: u64) -> Trace {
    let (mut rng, zipf) = (fastrand::Rng::with_seed(seed), Zipf::new(keys, s));
    let mut reads: Vec<(u64, usize)> = (0..reads).map(|_| (rng.u64(..lasts_ms), zipf.draw(&mut rng))).collect();
    reads.sort_unstable();
    Trace { name: format!("zipf {s} of {keys} keys, seed {seed}"), keys, lasts_ms, reads }
}

/// All keys are read one after the other, again and again.
fn scan(keys: usize, rounds: u64, lasts_ms: u64) -> Trace {
    let count = keys as u64 * rounds;
    let reads = (0..count).map(|read| (read * lasts_ms / count, (read % keys as u64) as usize)).collect();
    Trace { name: format!("{rounds} scans of {keys} keys"), keys, lasts_ms, reads }
}

/// Both: a scan of cold keys now and then beside what is read often.
fn both(seed: u64) -> Trace {
    let hot = zipf(seed, 50_000, 0.9, 250_000, 1_800_000);
    let cold = scan(60_000, 3, 1_800_000);
    let beyond = cold.reads.into_iter().map(|(at_ms, key)| (at_ms, key + hot.keys));
    let mut reads: Vec<_> = hot.reads.into_iter().chain(beyond).collect();
    reads.sort_unstable();
    Trace { name: format!("both, seed {seed}"), keys: hot.keys + cold.keys, lasts_ms: hot.lasts_ms, reads }
}

/// Reads a trace through keyspaces as a cache is used, and compares what is advised with what is simulated.
fn compare(trace: &Trace, shards: usize, lifetimes: Lifetimes, seed: u64) {
    let begin_ms = 1_000_000;
    let end_ms = begin_ms + trace.lasts_ms;
    let hasher = Hasher::new(seed, 1);
    let mut keyspaces: Vec<_> = (0..shards).map(|_| Keyspace::new(1, hasher.clone())).collect();
    let asked = [Arc::new(Advised { id: 7, db: 0, prefix: b"key:"[..].into(), lifetimes: lifetimes.clone() })];
    for keyspace in &mut keyspaces {
        keyspace.advise(&asked, shards, Now::from_ms(begin_ms));
        assert!(keyspace.advised().1 <= PREFIX_BYTES / shards);
    }
    let lives_ms = (0..lifetimes.len()).map(|point| lifetimes.life_ms(point, Some(LIFE_MS)).expect("a lifetime"));
    let simulated = |life_ms| Simulated { life_ms, until_ms: vec![0; trace.keys], hits: 0, byte_ms: 0.0 };
    let mut simulated: Vec<Simulated> = lives_ms.map(simulated).collect();
    let (mut hits, mut key_bytes) = (0, 0.0);
    for &(at_ms, number) in &trace.reads {
        let now = Now::from_ms(begin_ms + at_ms);
        let name = format!("key:{number:08}");
        let key = hasher.key(name.as_bytes());
        let keyspace = &mut keyspaces[(key.hash >> 7) as usize % shards];
        if keyspace.find(0, key, now, READS).is_some() {
            hits += 1;
        } else {
            keyspace.insert(0, key, Value::Bytes(&[b'v'; 100]), Some(now.ms + LIFE_MS), now);
            keyspace.commit(0, key, Event::Set.into(), now);
            key_bytes = keyspace.find(0, key, now, Touch::NOTHING).expect("it is there").bytes() as f64;
        }
        simulated.iter_mut().for_each(|cache| cache.read(number, now.ms, end_ms, key_bytes));
    }
    let mut advised = keyspaces.iter_mut().map(|keyspace| keyspace.advice(7, Now::from_ms(end_ms)).expect("advised"));
    let mut advice = advised.next().expect("a shard");
    advised.for_each(|other| advice.merge(&other));
    assert!(advice.own_bytes <= PREFIX_BYTES);
    assert_eq!((advice.reads(), advice.hits()), (trace.reads.len() as u64, hits));
    let sampled = (advice.sampled_keys, advice.sampled_share);
    for (point, cache) in advice.curve().zip(&simulated) {
        let (hits, bytes) = (cache.hits as f64 / trace.reads.len() as f64, cache.byte_ms / trace.lasts_ms as f64);
        let told = format!(
            "{}, {shards} shards, {} ms: {point:?}, simulated {hits} {bytes}, {sampled:?}",
            trace.name, cache.life_ms
        );
        println!("{told}");
        assert!((point.hit_share - hits).abs() <= HITS_WITHIN, "{told}");
        assert!((point.bytes as f64 - bytes).abs() <= bytes * BYTES_WITHIN, "{told}");
    }
}

#[test]
fn it_is_near_a_simulation_where_few_keys_are_read_often() {
    for (seed, s) in [(1, 0.7), (2, 0.99), (3, 1.2)] {
        compare(&zipf(seed, 100_000, s, 400_000, 1_800_000), 1, Lifetimes::Relative, seed);
        compare(&zipf(seed, 100_000, s, 400_000, 1_800_000), 3, Lifetimes::Relative, seed + 10);
    }
}

#[test]
fn it_is_near_a_simulation_where_keys_are_scanned() {
    compare(&scan(50_000, 8, 3_000_000), 1, Lifetimes::Relative, 4);
    compare(&both(5), 1, Lifetimes::Relative, 5);
    compare(&both(6), 3, Lifetimes::Relative, 6);
}

#[test]
fn it_is_near_a_simulation_under_lifetimes_of_ones_own() {
    let lives_ms = [5_000, 20_000, 45_000, 60_000, 400_000, 10_000_000].into();
    compare(&zipf(8, 100_000, 0.99, 300_000, 1_800_000), 1, Lifetimes::Of(lives_ms), 8);
}

/// All keys find room: nothing is left to the sample.
#[test]
fn it_is_exact_where_keys_are_few() {
    let (trace, hasher) = (zipf(9, 3_000, 0.9, 100_000, 600_000), Hasher::new(9, 1));
    let mut keyspace = Keyspace::new(1, hasher.clone());
    let asked = [Arc::new(Advised { id: 1, db: 0, prefix: Box::default(), lifetimes: Lifetimes::Relative })];
    keyspace.advise(&asked, 1, Now::from_ms(1));
    let factor = |point| Lifetimes::Relative.life_ms(point, Some(LIFE_MS)).expect("a lifetime");
    let simulated = |point| Simulated { life_ms: factor(point), until_ms: vec![0; 3_000], hits: 0, byte_ms: 0.0 };
    let mut simulated: Vec<Simulated> = (0..FACTORS.len()).map(simulated).collect();
    for &(at_ms, number) in &trace.reads {
        let (now, name) = (Now::from_ms(at_ms + 1), number.to_string());
        let key = hasher.key(name.as_bytes());
        if keyspace.find(0, key, now, READS).is_none() {
            keyspace.insert(0, key, Value::Int(1), Some(now.ms + LIFE_MS), now);
            keyspace.commit(0, key, Event::Set.into(), now);
        }
        simulated.iter_mut().for_each(|cache| cache.read(number, now.ms, u64::MAX, 0.0));
    }
    let advice = keyspace.advice(1, Now::from_ms(600_001)).expect("advised");
    assert_eq!(advice.sampled_share, 1.0);
    for (point, cache) in advice.curve().zip(&simulated) {
        assert!((point.hit_share - cache.hits as f64 / 100_000.0).abs() < 1e-9, "{point:?} {}", cache.hits);
    }
    let [expired, removed, cold] = advice.misses_by_cause();
    assert_eq!((expired + removed + cold, removed), (advice.misses(), 0));
    let read: std::collections::BTreeSet<usize> = trace.reads.iter().map(|(_, number)| *number).collect();
    assert_eq!(cold, read.len() as u64, "the first read of each");
}
