//! What is counted of the keys with a prefix, and what that says of other lifetimes.
//!
//! Reads and hits are counted exactly, all else on the sample, where an event stands for as many as the sample leaves out.
//! What is estimated of a lifetime are its misses, so that a key that is read very often, and is in the sample or is not,
//! makes little difference (SHARDS corrects its histograms to the same end, as SHARDS-adj). How far the sample is off is known
//! of the misses that there were, and misses under other lifetimes are off alike: they are corrected by it (a regression
//! estimator: Cochran, Sampling Techniques, chapter 7), by as many under a shorter lifetime, and in proportion under a
//! longer one.

use super::Lifetimes;
use super::sample::{Mark, POINTS_MAX};
use super::spread::Spread;

/// What has happened on one shard since counting began.
#[derive(Clone, Default)]
pub struct Counts {
    pub since_ms: u64,
    pub reads: u64,
    pub hits: u64,
    /// Reads of which nothing is known under other lifetimes, since nobody saw their keys being written.
    pub unknown_reads: f64,
    /// Misses by why the key was not there.
    pub expired_misses: f64,
    pub removed_misses: f64,
    pub cold_misses: f64,
    pub deaths: f64,
    /// Of keys that nobody had read since they were written.
    pub unread_deaths: f64,
    /// How old values were when they were read, and which lifetimes keys were given.
    pub ages: Spread,
    pub lives: Spread,
    /// Under each lifetime.
    pub misses_at: [f64; POINTS_MAX],
    /// Bytes times milliseconds, as it was and under each lifetime.
    pub byte_ms: f64,
    pub byte_ms_at: [f64; POINTS_MAX],
}

impl Counts {
    pub fn since(now_ms: u64) -> Counts {
        Counts { since_ms: now_ms, ..Counts::default() }
    }

    /// Those of the sample, with their weights.
    fn misses_by_cause(&self) -> [f64; 3] {
        [self.expired_misses, self.removed_misses, self.cold_misses]
    }

    /// Counts the bytes that a key has taken up to now.
    pub fn settle(&mut self, mark: &mut Mark, now_ms: u64, weight: f64) {
        let from_ms = mark.settled_ms;
        if now_ms <= from_ms {
            return;
        }
        let bytes = f64::from(mark.bytes) * weight;
        let lived = |until_ms: u64| until_ms.min(now_ms).saturating_sub(from_ms) as f64 * bytes;
        self.byte_ms += if mark.lives(from_ms) { lived(mark.deadline_ms) } else { 0.0 };
        self.byte_ms_at.iter_mut().zip(mark.until_ms).for_each(|(sum, until_ms)| *sum += lived(until_ms));
        mark.settled_ms = now_ms;
    }
}

/// What one shard, or all of them, can say of a prefix.
#[derive(Clone, Default)]
pub struct Advice {
    pub lifetimes: Lifetimes,
    counts: Counts,
    /// For how long it was counted.
    pub counted_ms: u64,
    /// Bytes of the keys on the average, as it was and under each lifetime.
    bytes: f64,
    bytes_at: [f64; POINTS_MAX],
    pub sampled_keys: usize,
    /// The share of keys that are in the sample; of several shards the smallest.
    pub sampled_share: f64,
    /// What the advisor takes itself.
    pub own_bytes: usize,
}

/// What would be under another lifetime.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// How many times as long as the lifetime that a key is given, where that is what it depends on.
    pub factor: Option<f64>,
    /// `None` where it depends on lifetimes of which none was given yet.
    pub life_ms: Option<u64>,
    /// Of all reads.
    pub hit_share: f64,
    /// Of the misses that there were, those that would have been hits; below zero where there would have been more misses.
    pub saved_share: f64,
    pub bytes: u64,
    /// More than as it was, or less.
    pub more_bytes: i64,
}

impl Advice {
    pub(super) fn new(
        (lifetimes, counts): (Lifetimes, Counts),
        now_ms: u64,
        (sampled_keys, sampled_share): (usize, f64),
        own_bytes: usize,
    ) -> Advice {
        let counted_ms = now_ms.saturating_sub(counts.since_ms);
        let average = |byte_ms: f64| byte_ms / counted_ms.max(1) as f64;
        let (bytes, bytes_at) = (average(counts.byte_ms), counts.byte_ms_at.map(average));
        Advice { lifetimes, counts, counted_ms, bytes, bytes_at, sampled_keys, sampled_share, own_bytes }
    }

    pub fn merge(&mut self, other: &Advice) {
        let (own, others) = (&mut self.counts, &other.counts);
        own.reads += others.reads;
        own.hits += others.hits;
        own.unknown_reads += others.unknown_reads;
        own.expired_misses += others.expired_misses;
        own.removed_misses += others.removed_misses;
        own.cold_misses += others.cold_misses;
        own.deaths += others.deaths;
        own.unread_deaths += others.unread_deaths;
        own.ages.merge(&others.ages);
        own.lives.merge(&others.lives);
        own.misses_at.iter_mut().zip(others.misses_at).for_each(|(own, others)| *own += others);
        self.counted_ms = self.counted_ms.max(other.counted_ms);
        self.bytes += other.bytes;
        self.bytes_at.iter_mut().zip(other.bytes_at).for_each(|(own, others)| *own += others);
        self.sampled_keys += other.sampled_keys;
        self.sampled_share = self.sampled_share.min(other.sampled_share);
        self.own_bytes += other.own_bytes;
    }

    pub fn reads(&self) -> u64 {
        self.counts.reads
    }

    pub fn hits(&self) -> u64 {
        self.counts.hits
    }

    pub fn misses(&self) -> u64 {
        self.counts.reads - self.counts.hits
    }

    /// The share of reads that were hits; zero where there were none.
    pub fn hit_share(&self) -> f64 {
        share(self.counts.hits as f64, self.counts.reads as f64)
    }

    /// Misses of keys whose deadline had passed, that were deleted, and of which nothing was known.
    pub fn misses_by_cause(&self) -> [u64; 3] {
        let by_cause = self.counts.misses_by_cause();
        let seen: f64 = by_cause.iter().sum();
        by_cause.map(|misses| whole(share(misses, seen) * self.misses() as f64))
    }

    /// Keys whose deadline has passed, and those of them that nobody had read.
    pub fn deaths(&self) -> [u64; 2] {
        [self.counts.deaths, self.counts.unread_deaths].map(whole)
    }

    /// The age of values when they were read.
    pub fn age_ms(&self, quantile: f64) -> Option<u64> {
        self.counts.ages.quantile_ms(quantile)
    }

    /// The lifetime that half of the writes that gave one did not go beyond.
    pub fn median_life_ms(&self) -> Option<u64> {
        self.counts.lives.quantile_ms(0.5)
    }

    /// Bytes of the keys, on the average of the time.
    pub fn bytes(&self) -> u64 {
        whole(self.bytes)
    }

    pub fn curve(&self) -> impl Iterator<Item = Point> {
        let known_reads = self.counts.reads as f64 - self.counts.unknown_reads;
        let (now, misses) = (self.hit_share(), share(self.misses() as f64, self.counts.reads as f64));
        let seen: f64 = self.counts.misses_by_cause().iter().sum();
        let unseen = self.misses() as f64 - seen;
        (0..self.lifetimes.len()).map(move |point| {
            let would_miss = self.counts.misses_at[point];
            let corrected = would_miss + share(would_miss, seen).min(1.0) * unseen;
            let missed = if known_reads > 0.0 { corrected / known_reads } else { 1.0 - now };
            let hit_share = (1.0 - missed).clamp(0.0, 1.0);
            Point {
                factor: self.lifetimes.factor(point),
                life_ms: self.lifetimes.life_ms(point, self.median_life_ms()),
                hit_share,
                saved_share: share(hit_share - now, misses),
                bytes: whole(self.bytes_at[point]),
                more_bytes: (self.bytes_at[point] - self.bytes).round() as i64,
            }
        })
    }
}

fn share(part: f64, all: f64) -> f64 {
    if all > 0.0 { part / all } else { 0.0 }
}

fn whole(number: f64) -> u64 {
    number.max(0.0).round() as u64
}
