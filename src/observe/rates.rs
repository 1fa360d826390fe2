//! How much there was of something a second, lately.

use std::collections::VecDeque;

/// With a sample a second this is an average over the last three seconds.
const SAMPLES: usize = 4;

/// Counters that only grow, as they were at moments about a second apart.
#[derive(Default)]
pub struct Rates<const N: usize> {
    samples: VecDeque<Sample<N>>,
}

#[derive(Clone, Copy)]
struct Sample<const N: usize> {
    at_us: u64,
    counts: [u64; N],
}

impl<const N: usize> Rates<N> {
    /// The counters as they are now. A sample that comes late makes its second longer, not the rate higher.
    pub fn sample(&mut self, at_us: u64, counts: [u64; N]) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { at_us, counts });
    }

    /// By how much each counter grew a second between the oldest sample and the newest.
    pub fn per_second(&self) -> [f64; N] {
        let (Some(oldest), Some(newest)) = (self.samples.front(), self.samples.back()) else { return [0.0; N] };
        let lasted_us = newest.at_us.saturating_sub(oldest.at_us);
        if lasted_us == 0 {
            return [0.0; N];
        }
        std::array::from_fn(|index| {
            let grown = newest.counts[index].saturating_sub(oldest.counts[index]);
            grown as f64 * 1e6 / lasted_us as f64
        })
    }

    /// The counters begin anew.
    pub fn reset(&mut self) {
        self.samples.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    #[test]
    fn the_last_seconds_count() {
        let mut rates = Rates::default();
        assert_eq!(rates.per_second(), [0.0, 0.0], "nothing is known yet");
        rates.sample(0, [0, 0]);
        assert_eq!(rates.per_second(), [0.0, 0.0]);
        rates.sample(SECOND_US, [300, 0]);
        assert_eq!(rates.per_second(), [300.0, 0.0]);
        rates.sample(2 * SECOND_US, [300, 50]);
        assert_eq!(rates.per_second(), [150.0, 25.0]);
        rates.sample(3 * SECOND_US, [300, 50]);
        assert_eq!(rates.per_second(), [100.0, 50.0 / 3.0]);
        rates.sample(4 * SECOND_US, [300, 50]);
        assert_eq!(rates.per_second(), [0.0, 50.0 / 3.0], "the burst was before the first second that is known");
    }

    #[test]
    fn a_late_sample_makes_no_burst() {
        let mut rates = Rates::default();
        rates.sample(0, [0]);
        rates.sample(10 * SECOND_US, [1000]);
        assert_eq!(rates.per_second(), [100.0]);
    }

    #[test]
    fn counters_may_begin_anew() {
        let mut rates = Rates::default();
        rates.sample(0, [500]);
        rates.sample(SECOND_US, [900]);
        rates.reset();
        assert_eq!(rates.per_second(), [0.0]);
        rates.sample(2 * SECOND_US, [10]);
        rates.sample(3 * SECOND_US, [30]);
        assert_eq!(rates.per_second(), [20.0]);
    }
}
