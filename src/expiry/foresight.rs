//! Foresight: how many keys and bytes die within a time, and how long keys have to live.
//!
//! Both come from a walk over the live keys of a database in slices of a fraction of a millisecond, between which the
//! shard serves. All of them look from one moment: a remaining life is counted from there. What has died when the walk
//! comes to it is not counted. While nothing is written the numbers are exactly what a client counts.

use crate::clock::Now;
use crate::keyspace::{Keyspace, NEVER_MS, Seen};

/// What is found out on a walk.
pub trait Gather: Default + Send + 'static {
    /// A live key; `from` is the moment that all of them are looked at from.
    fn add(&mut self, seen: &Seen, from: Now);
    /// What another shard has found.
    fn merge(&mut self, other: &Self);
}

/// What is looked at.
#[derive(Clone)]
pub struct View {
    pub db: usize,
    pub prefix: Box<[u8]>,
    /// The moment from which it is looked at.
    pub from: Now,
    /// Only keys that have died after this time; `None`: all keys.
    pub within_ms: Option<u64>,
}

/// A walk over the keys of one shard.
pub struct Walk<G> {
    view: View,
    /// `None` at the end.
    position: Option<u64>,
    found: G,
}

impl<G: Gather> Walk<G> {
    pub fn new(view: View) -> Walk<G> {
        Walk { view, position: Some(0), found: G::default() }
    }

    /// Looks at one block after the other, at least one, as long as `goes_on` says so. Returns what was found where the
    /// walk is at its end.
    pub fn slice(&mut self, keyspace: &Keyspace, now: Now, goes_on: impl Fn() -> bool) -> Option<&G> {
        let View { db, prefix, from, within_ms } = &self.view;
        let until_ms = within_ms.map_or(NEVER_MS, |within_ms| from.ms.saturating_add(within_ms));
        let found = &mut self.found;
        while let Some(position) = self.position {
            self.position = keyspace.walk(*db, position, until_ms, now.max(*from), |seen| {
                if prefix.is_empty() || seen.key().starts_with(prefix) {
                    found.add(seen, *from);
                }
            });
            if !goes_on() {
                break;
            }
        }
        if self.position.is_none() { Some(&self.found) } else { None }
    }

    pub fn into_found(self) -> G {
        self.found
    }
}

/// Keys that die within a time, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    pub keys: u64,
    pub bytes: u64,
}

impl Gather for Forecast {
    fn add(&mut self, seen: &Seen, _: Now) {
        self.keys += 1;
        self.bytes += seen.bytes() as u64;
    }

    fn merge(&mut self, other: &Forecast) {
        self.keys += other.keys;
        self.bytes += other.bytes;
    }
}

/// Steps of an [`Outlook`], and how long each is: ten minutes.
pub const OUTLOOK_STEPS: usize = 120;
pub const OUTLOOK_STEP_MS: u64 = 5 * SECOND_MS;
/// Times that an [`Outlook`] counts as a whole. It looks as far ahead as the last.
pub const HORIZONS_MS: [u64; 3] = [MINUTE_MS, 10 * MINUTE_MS, HOUR_MS];

/// How many keys die in each of the next steps; and how many, with how many bytes, within longer times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    pub keys: [u64; OUTLOOK_STEPS],
    pub within: [Forecast; HORIZONS_MS.len()],
}

impl Default for Outlook {
    fn default() -> Outlook {
        Outlook { keys: [0; OUTLOOK_STEPS], within: Default::default() }
    }
}

impl Gather for Outlook {
    fn add(&mut self, seen: &Seen, from: Now) {
        let Some(deadline_ms) = seen.deadline_ms else { return };
        let left_ms = deadline_ms.saturating_sub(from.ms);
        // What dies with the end of a step dies within it.
        let step = usize::try_from(left_ms.saturating_sub(1) / OUTLOOK_STEP_MS);
        if let Some(keys) = step.ok().and_then(|step| self.keys.get_mut(step)) {
            *keys += 1;
        }
        for (horizon_ms, forecast) in HORIZONS_MS.iter().zip(&mut self.within) {
            if left_ms <= *horizon_ms {
                forecast.add(seen, from);
            }
        }
    }

    fn merge(&mut self, other: &Outlook) {
        self.keys.iter_mut().zip(other.keys).for_each(|(own, others)| *own += others);
        self.within.iter_mut().zip(&other.within).for_each(|(own, others)| own.merge(others));
    }
}

const SECOND_MS: u64 = 1000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// The longest remaining life that counts in each bucket of a [`Histogram`]; one more has what lives longer.
pub const BOUNDS_MS: [u64; 14] = [
    100,
    SECOND_MS,
    10 * SECOND_MS,
    30 * SECOND_MS,
    MINUTE_MS,
    5 * MINUTE_MS,
    10 * MINUTE_MS,
    30 * MINUTE_MS,
    HOUR_MS,
    6 * HOUR_MS,
    12 * HOUR_MS,
    DAY_MS,
    7 * DAY_MS,
    30 * DAY_MS,
];

/// How long keys have to live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Keys without a deadline.
    pub immortal: u64,
    /// Keys by their remaining life; the last bucket is for those past all bounds.
    pub buckets: [u64; BOUNDS_MS.len() + 1],
    sum_ms: u128,
    extremes_ms: Option<(u64, u64)>,
}

impl Histogram {
    /// Keys with a deadline.
    pub fn mortal(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The shortest and the longest remaining life.
    pub fn extremes_ms(&self) -> Option<(u64, u64)> {
        self.extremes_ms
    }

    pub fn average_ms(&self) -> Option<u64> {
        let average_ms = self.sum_ms.checked_div(self.mortal().into())?;
        Some(average_ms.try_into().unwrap_or(u64::MAX))
    }

    fn extend(&mut self, (shortest_ms, longest_ms): (u64, u64)) {
        let (least_ms, most_ms) = self.extremes_ms.unwrap_or((shortest_ms, longest_ms));
        self.extremes_ms = Some((least_ms.min(shortest_ms), most_ms.max(longest_ms)));
    }
}

impl Gather for Histogram {
    fn add(&mut self, seen: &Seen, from: Now) {
        let Some(deadline_ms) = seen.deadline_ms else {
            self.immortal += 1;
            return;
        };
        let left_ms = deadline_ms.saturating_sub(from.ms);
        self.buckets[BOUNDS_MS.partition_point(|bound_ms| *bound_ms < left_ms)] += 1;
        self.sum_ms += u128::from(left_ms);
        self.extend((left_ms, left_ms));
    }

    fn merge(&mut self, other: &Histogram) {
        self.immortal += other.immortal;
        self.buckets.iter_mut().zip(other.buckets).for_each(|(own, others)| *own += others);
        self.sum_ms += other.sum_ms;
        if let Some(extremes_ms) = other.extremes_ms {
            self.extend(extremes_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::{Hasher, Touch, Value};

    fn view(from: Now, prefix: &str, within_ms: Option<u64>) -> View {
        View { db: 1, prefix: prefix.as_bytes().into(), from, within_ms }
    }

    /// What a walk finds, and in how many slices of two blocks.
    fn look<G: Gather>(keyspace: &Keyspace, now: Now, view: View) -> (G, usize) {
        let (mut walk, mut slices) = (Walk::<G>::new(view), 0);
        loop {
            slices += 1;
            let blocks = std::cell::Cell::new(0);
            let goes_on = || blocks.replace(blocks.get() + 1) < 1;
            if walk.slice(keyspace, now, goes_on).is_some() {
                return (walk.into_found(), slices);
            }
        }
    }

    /// Deadlines near, far and past, none, and keys of other databases: all as counted by hand.
    #[test]
    fn walks_agree_with_a_count_by_hand() {
        let from = Now::from_ms(100 * DAY_MS);
        for seed in 0..if cfg!(miri) { 1 } else { 20 } {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut keyspace = Keyspace::new(3, Hasher::new(seed, 1));
            let hasher = keyspace.hasher().clone();
            let mut model: Vec<(String, Option<u64>)> = Vec::new();
            for n in 0..rng.usize(..6000) {
                let name = format!("{}:{n}", ["a", "b", "ab"][rng.usize(..3)]);
                let deadline_ms = match rng.u32(..8) {
                    0 => None,
                    1 => Some(from.ms + rng.u64(..400 * DAY_MS)),
                    2 => Some(from.ms - 1 - rng.u64(..1000)),
                    3 => Some(from.ms + rng.u64(..3)),
                    _ => Some(from.ms + rng.u64(..2 * DAY_MS)),
                };
                let value = Value::Bytes(&[b'x'; 300][..rng.usize(..300)]);
                let then = Now::from_ms(99 * DAY_MS);
                keyspace.insert(1, hasher.key(name.as_bytes()), value, deadline_ms, then);
                keyspace.insert(0, hasher.key(name.as_bytes()), value, deadline_ms, then);
                model.push((name, deadline_ms));
            }
            keyspace.effects.close_all();
            model.retain(|(_, deadline_ms)| deadline_ms.is_none_or(|deadline_ms| deadline_ms >= from.ms));
            for prefix in ["", "a", "ab:", "none"] {
                let named = || model.iter().filter(|(name, _)| name.starts_with(prefix));
                for within_ms in [1, 1000, HOUR_MS, DAY_MS, 30 * DAY_MS, 1000 * DAY_MS] {
                    let until_ms = from.ms + within_ms;
                    let dying: Vec<_> =
                        named().filter(|(_, deadline_ms)| deadline_ms.is_some_and(|at_ms| at_ms <= until_ms)).collect();
                    let (forecast, _) = look::<Forecast>(&keyspace, from, view(from, prefix, Some(within_ms)));
                    let mut bytes = 0;
                    for (name, _) in &dying {
                        let live = keyspace.find(1, hasher.key(name.as_bytes()), from, Touch::NOTHING);
                        bytes += live.expect("it is there").bytes() as u64;
                    }
                    assert_eq!(forecast, Forecast { keys: dying.len() as u64, bytes }, "{prefix} {within_ms}");
                }
                let (outlook, _) = look::<Outlook>(&keyspace, from, view(from, prefix, Some(HOUR_MS)));
                for (horizon_ms, within) in HORIZONS_MS.into_iter().zip(outlook.within) {
                    let (forecast, _) = look::<Forecast>(&keyspace, from, view(from, prefix, Some(horizon_ms)));
                    assert_eq!(within, forecast, "{prefix} {horizon_ms}");
                }
                assert_eq!(outlook.keys.iter().sum::<u64>(), outlook.within[1].keys);
                assert_eq!(outlook.keys[..12].iter().sum::<u64>(), outlook.within[0].keys);
                let (histogram, slices) = look::<Histogram>(&keyspace, from, view(from, prefix, None));
                assert_eq!(slices, keyspace.shape(1).blocks.div_ceil(2));
                let lives: Vec<u64> =
                    named().filter_map(|(_, deadline_ms)| deadline_ms.map(|at_ms| at_ms - from.ms)).collect();
                assert_eq!(histogram.mortal(), lives.len() as u64);
                assert_eq!(histogram.immortal, (named().count() - lives.len()) as u64);
                let extremes = lives.iter().min().copied().zip(lives.iter().max().copied());
                assert_eq!(histogram.extremes_ms(), extremes);
                assert_eq!(histogram.average_ms(), lives.iter().sum::<u64>().checked_div(lives.len() as u64));
                let mut over_ms = None;
                for (index, count) in histogram.buckets.iter().enumerate() {
                    let up_to_ms = BOUNDS_MS.get(index).copied().unwrap_or(u64::MAX);
                    let is_in = |left_ms: &&u64| **left_ms <= up_to_ms && over_ms.is_none_or(|over| **left_ms > over);
                    assert_eq!(*count, lives.iter().filter(is_in).count() as u64, "bucket {index}");
                    over_ms = Some(up_to_ms);
                }
            }
        }
    }

    #[test]
    fn shards_add_up() {
        let histogram = |lives_ms: &[u64]| {
            let mut histogram = Histogram { immortal: 1, ..Histogram::default() };
            for left_ms in lives_ms {
                histogram.buckets[BOUNDS_MS.partition_point(|bound_ms| bound_ms < left_ms)] += 1;
                histogram.sum_ms += u128::from(*left_ms);
                histogram.extend((*left_ms, *left_ms));
            }
            histogram
        };
        let mut total = histogram(&[5, 100]);
        total.merge(&histogram(&[]));
        total.merge(&histogram(&[101, 40 * DAY_MS]));
        assert_eq!((total.immortal, total.mortal(), total.extremes_ms()), (3, 4, Some((5, 40 * DAY_MS))));
        assert_eq!((total.buckets[0], total.buckets[1], total.buckets[BOUNDS_MS.len()]), (2, 1, 1));
        assert_eq!(histogram(&[]).average_ms(), None);
    }
}
