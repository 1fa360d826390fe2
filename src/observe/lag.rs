//! Lag: how long after its deadline a key was deleted, for every key that died, one HDR histogram a shard.

use crate::clock::Now;
use hdrhistogram::Histogram;

/// Microseconds, two significant digits, up to ten days; what is later counts as ten days.
const HIGHEST_US: u64 = 10 * 24 * 3600 * 1_000_000;

#[derive(Clone)]
pub struct Lag {
    histogram: Histogram<u64>,
    from_us: u64,
}

impl Default for Lag {
    fn default() -> Lag {
        Lag::new()
    }
}

impl Lag {
    pub fn new() -> Lag {
        let histogram = Histogram::new_with_bounds(1, HIGHEST_US, 2).expect("constant bounds are valid");
        Lag { histogram, from_us: 0 }
    }

    #[inline]
    pub fn record(&mut self, now: Now, deadline_ms: u64) {
        let due_us = deadline_ms.saturating_mul(1000).max(self.from_us);
        self.histogram.saturating_record(now.us.saturating_sub(due_us).max(1));
    }

    /// What was due before this moment could not be deleted earlier.
    pub fn count_from(&mut self, now: Now) {
        self.from_us = now.us;
    }

    pub fn add(&mut self, other: &Lag) {
        self.histogram.add(&other.histogram).expect("all lag histograms have the same bounds");
    }

    /// What was recorded since an earlier moment; all of it where that has been reset since.
    pub fn since(&self, earlier: &Lag) -> Lag {
        let mut later = self.clone();
        match later.histogram.subtract(&earlier.histogram) {
            Ok(()) => later,
            Err(_) => self.clone(),
        }
    }

    pub fn reset(&mut self) {
        self.histogram.reset();
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The lag that this share of the deaths (0 to 1) did not exceed; zero where nothing died.
    pub fn quantile_us(&self, share: f64) -> u64 {
        if self.histogram.is_empty() { 0 } else { self.histogram.value_at_quantile(share) }
    }

    pub fn max_us(&self) -> u64 {
        if self.histogram.is_empty() { 0 } else { self.histogram.max() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_since_is_told_apart() {
        let mut lag = Lag::new();
        let record = |lag: &mut Lag, late_ms: u64| lag.record(Now::from_ms(1_000_000 + late_ms), 1_000_000);
        (0..10).for_each(|_| record(&mut lag, 500));
        let earlier = lag.clone();
        assert_eq!((lag.since(&earlier).count(), lag.since(&earlier).max_us()), (0, 0));
        (0..5).for_each(|_| record(&mut lag, 3));
        let later = lag.since(&earlier);
        assert_eq!(later.count(), 5);
        assert!((2_900..3_100).contains(&later.max_us()), "{}", later.max_us());
        lag.reset();
        record(&mut lag, 7);
        assert_eq!(lag.since(&earlier).count(), 1, "after a reset all is new");
    }
}
