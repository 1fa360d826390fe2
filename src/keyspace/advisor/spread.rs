//! How durations are spread, in fixed memory: four buckets for each doubling, so that a quantile is right within an eighth.

/// Buckets of a doubling.
const STEPS: u64 = 4;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = 252;

/// Weights by duration, milliseconds.
#[derive(Clone)]
pub struct Spread {
    weights: [f64; BUCKETS],
    total: f64,
}

impl Default for Spread {
    fn default() -> Spread {
        Spread { weights: [0.0; BUCKETS], total: 0.0 }
    }
}

fn bucket(ms: u64) -> usize {
    if ms < STEPS {
        return ms as usize;
    }
    let doublings = ms.ilog2() - STEP_BITS;
    (u64::from(doublings + 1) * STEPS + (ms >> doublings) - STEPS) as usize
}

/// The middle of a bucket.
fn middle_ms(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let doublings = bucket / STEPS - 1;
    let from = (STEPS + bucket % STEPS) << doublings;
    from + (1 << doublings) / 2
}

impl Spread {
    pub fn add(&mut self, ms: u64, weight: f64) {
        self.weights[bucket(ms)] += weight;
        self.total += weight;
    }

    pub fn merge(&mut self, other: &Spread) {
        self.weights.iter_mut().zip(other.weights).for_each(|(own, others)| *own += others);
        self.total += other.total;
    }

    /// The duration below which so great a share of the weight is; `None` where nothing was added.
    pub fn quantile_ms(&self, share: f64) -> Option<u64> {
        let mut below = 0.0;
        let found = self.weights.iter().position(|weight| {
            below += weight;
            *weight > 0.0 && below >= share * self.total
        });
        // What rounding has left beyond the last.
        let found = found.or_else(|| self.weights.iter().rposition(|weight| *weight > 0.0));
        found.map(middle_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_has_its_bucket_whose_middle_is_within_an_eighth() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let ms = rng.u64(..) >> rng.u32(..64);
            let middle = middle_ms(bucket(ms));
            assert!(middle.abs_diff(ms) as f64 <= ms as f64 / 8.0, "{ms} {middle}");
        }
        assert!((0..1_000_000_u64).map(bucket).is_sorted());
    }

    #[test]
    fn quantiles_are_by_weight() {
        let mut spread = Spread::default();
        assert_eq!(spread.quantile_ms(0.5), None);
        spread.add(1, 1.0);
        spread.add(1_000, 2.0);
        let mut other = Spread::default();
        other.add(1_000_000, 1.0);
        spread.merge(&other);
        assert_eq!(spread.quantile_ms(0.2), Some(1));
        assert!(spread.quantile_ms(0.5).is_some_and(|ms| ms.abs_diff(1_000) < 125));
        assert!(spread.quantile_ms(1.0).is_some_and(|ms| ms.abs_diff(1_000_000) < 125_000));
    }
}
