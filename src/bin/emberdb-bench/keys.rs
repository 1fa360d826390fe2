//! Which key a request is about.

/// Chooses keys 0 to n - 1.
#[derive(Clone, Debug)]
pub enum Choice {
    Uniform(u64),
    Zipf(Zipf, Scatter),
}

impl Choice {
    pub fn uniform(keys: u64) -> Choice {
        Choice::Uniform(keys)
    }

    /// The rank-th popular key is chosen in proportion to 1 / rank^exponent. Popular keys lie anywhere, not side by
    /// side.
    pub fn zipf(keys: u64, exponent: f64) -> Choice {
        Choice::Zipf(Zipf::new(keys, exponent), Scatter::new(keys))
    }

    #[inline]
    pub fn next(&self, rng: &mut fastrand::Rng) -> u64 {
        match self {
            Choice::Uniform(keys) => rng.u64(..keys),
            Choice::Zipf(zipf, scatter) => scatter.of(zipf.rank(rng) - 1),
        }
    }
}

/// Ranks 1 to n with the probability of rank r in proportion to r^-s, for any s > 0, in constant time and memory.
///
/// Source: W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
/// distributions", ACM Transactions on Modeling and Computer Simulation 6 (1996); numerically as in Apache Commons
/// RNG's `RejectionInversionZipfSampler`.
#[derive(Clone, Debug)]
pub struct Zipf {
    exponent: f64,
    ranks: f64,
    integral_first: f64,
    integral_last: f64,
    /// Distances from the rounded rank up to which nothing needs to be rejected.
    sure: f64,
}

impl Zipf {
    pub fn new(ranks: u64, exponent: f64) -> Zipf {
        assert!(ranks > 0 && exponent > 0.0, "checked by the flags");
        let mut zipf = Zipf { exponent, ranks: ranks as f64, integral_first: 0.0, integral_last: 0.0, sure: 0.0 };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(zipf.ranks + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    pub fn rank(&self, rng: &mut fastrand::Rng) -> u64 {
        loop {
            let u = self.integral_last + rng.f64() * (self.integral_first - self.integral_last);
            let x = self.inverse(u);
            let rank = x.round().clamp(1.0, self.ranks);
            if rank - x <= self.sure || u >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// An antiderivative of the density; continuous at exponent 1, where it is the logarithm.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        exp_less_one_by((1.0 - self.exponent) * log) * log
    }

    fn inverse(&self, x: f64) -> f64 {
        let t = (x * (1.0 - self.exponent)).max(-1.0);
        (log_one_more_by(t) * x).exp()
    }
}

/// (e^x - 1) / x
fn exp_less_one_by(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 * (1.0 + x / 3.0) }
}

/// ln(1 + x) / x
fn log_one_more_by(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x * (0.5 - x / 3.0) }
}

/// A permutation of 0 to n - 1 that puts neighbours far apart: multiplication by a number near n / golden ratio that
/// has no factor in common with n.
#[derive(Clone, Debug)]
pub struct Scatter {
    keys: u64,
    factor: u64,
}

impl Scatter {
    pub fn new(keys: u64) -> Scatter {
        let golden = (1.0 + 5f64.sqrt()) / 2.0;
        let mut factor = (keys as f64 / golden) as u64 | 1;
        while common_factor(factor, keys) != 1 {
            factor += 2;
        }
        Scatter { keys, factor }
    }

    #[inline]
    pub fn of(&self, rank: u64) -> u64 {
        (u128::from(rank) * u128::from(self.factor) % u128::from(self.keys)) as u64
    }
}

fn common_factor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_factor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares of the first ranks against the exact ones, for exponents below, at and above 1.
    #[test]
    fn zipf_has_its_shape() {
        for exponent in [0.5, 0.99, 1.0, 1.5] {
            let ranks = 1000u64;
            let zipf = Zipf::new(ranks, exponent);
            let mut rng = fastrand::Rng::with_seed(7);
            let draws = 400_000;
            let mut seen = vec![0u32; ranks as usize + 1];
            for _ in 0..draws {
                seen[zipf.rank(&mut rng) as usize] += 1;
            }
            let sum: f64 = (1..=ranks).map(|rank| (rank as f64).powf(-exponent)).sum();
            for rank in [1usize, 2, 3, 10, 100] {
                let expected = f64::from(draws) * (rank as f64).powf(-exponent) / sum;
                let off = (f64::from(seen[rank]) - expected).abs();
                assert!(off < 5.0 * expected.sqrt(), "rank {rank} at {exponent}: {} for {expected}", seen[rank]);
            }
            let tail: u32 = seen[501..].iter().sum();
            let expected: f64 = (501..=ranks).map(|rank| (rank as f64).powf(-exponent)).sum::<f64>() / sum;
            assert!((f64::from(tail) / f64::from(draws) - expected).abs() < 0.005, "tail at {exponent}");
        }
    }

    #[test]
    fn one_key_is_always_that_key() {
        let mut rng = fastrand::Rng::with_seed(1);
        let choice = Choice::zipf(1, 0.99);
        assert!((0..100).all(|_| choice.next(&mut rng) == 0));
        assert!((0..100).all(|_| Choice::uniform(1).next(&mut rng) == 0));
    }

    #[test]
    fn scattering_is_a_permutation() {
        for keys in [1, 2, 3, 10, 12, 997, 1000, 100_000] {
            let scatter = Scatter::new(keys);
            let mut seen = vec![false; keys as usize];
            (0..keys).for_each(|rank| seen[scatter.of(rank) as usize] = true);
            assert!(seen.iter().all(|&seen| seen), "{keys}");
        }
        let scatter = Scatter::new(100_000);
        assert!(scatter.of(0).abs_diff(scatter.of(1)) > 10_000);
    }
}
