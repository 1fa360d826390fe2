//! The cycle's share of CPU time, as a bucket (a token bucket with debt): time drips in evenly, and a little may be
//! saved up, so that a few due keys never wait. Drip and store together are the share of one second: no window of a
//! second or longer holds more than the share, plus the one slice that overdraws the bucket.

/// The least store, as milliseconds of the share.
const STORE_MS: u64 = 50;
/// Out of budget, the cycle comes back when this much of the drip has come together.
const REFILL_MS: u64 = 5;

/// What the configuration grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub percent: u32,
    /// Time until a cycle goes on that ran out: what drips in meanwhile has to fit into the store.
    pub interval_ms: u64,
}

impl Share {
    fn store_ms(self) -> u64 {
        (self.interval_ms * 2).clamp(STORE_MS, 500)
    }

    /// Nanoseconds that drip in during 100 us.
    fn drip_ns(self) -> u64 {
        u64::from(self.percent) * (1000 - self.store_ms())
    }

    fn capacity_ns(self) -> u64 {
        u64::from(self.percent) * 10_000 * self.store_ms()
    }
}

#[derive(Default)]
pub struct Budget {
    /// Below zero where a slice took more than there was.
    level_ns: i64,
    dripped_us: u64,
}

impl Budget {
    /// What may be spent now, in nanoseconds.
    pub fn left_ns(&mut self, now_us: u64, share: Share) -> u64 {
        // Ten seconds fill any bucket and pay off any debt that a slice can make.
        let elapsed_us = now_us.saturating_sub(self.dripped_us).min(10_000_000);
        self.dripped_us = self.dripped_us.max(now_us);
        let dripped_ns = (elapsed_us * share.drip_ns() / 100) as i64;
        self.level_ns = (self.level_ns + dripped_ns).min(share.capacity_ns() as i64);
        self.level_ns.max(0) as u64
    }

    /// Whether little was left when it was last asked for.
    pub fn is_low(&self, share: Share) -> bool {
        self.level_ns < share.capacity_ns() as i64 / 2
    }

    pub fn spend(&mut self, ns: u64) {
        self.level_ns -= ns as i64;
    }

    /// When it is worth coming back to an empty bucket.
    pub fn refilled_us(&self, share: Share) -> u64 {
        let wanted_ns = (share.drip_ns() * REFILL_MS * 10) as i64 - self.level_ns;
        self.dripped_us + (wanted_ns.max(0) as u64 * 100).div_ceil(share.drip_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: Share = Share { percent: 5, interval_ms: 10 };

    #[test]
    fn no_second_and_no_longer_time_holds_more_than_the_share() {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut budget = Budget::default();
        let mut now_us = 1_000_000_000;
        let mut history: Vec<(u64, u64)> = Vec::new();
        for _ in 0..20_000 {
            // Now and then it saves up what it can.
            now_us += if rng.u8(..) == 0 { 300_000 } else { rng.u64(0..4_000) };
            let spend_ns = budget.left_ns(now_us, SHARE).min(rng.u64(0..300_000));
            budget.spend(spend_ns);
            history.push((now_us, spend_ns));
            for window_us in [1_000_000, 1_050_000, 1_700_000] {
                let recent = history.iter().rev().take_while(|(at_us, _)| at_us + window_us > now_us);
                let spent_ns: u64 = recent.map(|(_, ns)| ns).sum();
                assert!(spent_ns <= 50 * window_us, "{spent_ns} in {window_us}");
            }
        }
    }

    #[test]
    fn the_share_is_used_where_there_is_work() {
        for interval_ms in [1, 10, 100] {
            let share = Share { interval_ms, ..SHARE };
            let mut budget = Budget::default();
            let mut spent_ns = 0;
            for now_us in (0..10_000_000).step_by(interval_ms as usize * 1000) {
                let left_ns = budget.left_ns(now_us, share);
                budget.spend(left_ns);
                spent_ns += left_ns;
            }
            assert!(spent_ns >= 10 * 50_000_000 * 79 / 100, "{spent_ns} ns with an interval of {interval_ms} ms");
        }
    }

    #[test]
    fn an_overdraft_is_paid_back() {
        let mut budget = Budget::default();
        assert_eq!(budget.left_ns(5_000_000, SHARE), 2_500_000, "the store is full");
        budget.spend(2_500_000 + 4_750_000);
        assert_eq!(budget.left_ns(5_050_000, SHARE), 0);
        let refilled_us = budget.refilled_us(SHARE);
        assert!((5_100_000..=5_106_000).contains(&refilled_us), "{refilled_us}");
        assert_eq!(budget.left_ns(5_100_000, SHARE), 0);
        assert!(budget.left_ns(refilled_us, SHARE) > 200_000);
    }
}
