//! The cycle's share of CPU time: what it spent in the last second, in steps of ten milliseconds.

const STEP_US: u64 = 10_000;
/// One step more than a second, so that no window of a second, wherever it starts, holds more than the share.
const STEPS: usize = 101;

pub struct Budget {
    spent_ns: [u64; STEPS],
    /// Sum over the steps.
    total_ns: u64,
    /// Number of the newest step since the start of store time.
    newest: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { spent_ns: [0; STEPS], total_ns: 0, newest: 0 }
    }
}

impl Budget {
    /// What may still be spent now, in nanoseconds, when `percent` of each second is the share.
    pub fn left_ns(&mut self, now_us: u64, percent: u32) -> u64 {
        self.move_to(now_us);
        (u64::from(percent) * 10_000_000).saturating_sub(self.total_ns)
    }

    pub fn spend(&mut self, now_us: u64, ns: u64) {
        self.move_to(now_us);
        self.spent_ns[self.newest as usize % STEPS] += ns;
        self.total_ns += ns;
    }

    /// When the oldest spending leaves the window and something is left again.
    pub fn refilled_us(&self) -> u64 {
        let oldest = self.newest.saturating_sub(STEPS as u64 - 1);
        let first = (oldest..=self.newest).find(|step| self.spent_ns[*step as usize % STEPS] > 0);
        first.map_or(0, |step| (step + STEPS as u64) * STEP_US)
    }

    fn move_to(&mut self, now_us: u64) {
        let step = now_us / STEP_US;
        let passed = step.saturating_sub(self.newest).min(STEPS as u64);
        for index in 0..passed {
            let slot = &mut self.spent_ns[(step - index) as usize % STEPS];
            self.total_ns -= std::mem::take(slot);
        }
        self.newest = self.newest.max(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_window_of_a_second_holds_more_than_the_share() {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut budget = Budget::default();
        let mut now_us = 1_000_000_000;
        let mut history: Vec<(u64, u64)> = Vec::new();
        for _ in 0..20_000 {
            now_us += rng.u64(0..4_000);
            let spend_ns = budget.left_ns(now_us, 5).min(rng.u64(0..300_000));
            budget.spend(now_us, spend_ns);
            history.push((now_us, spend_ns));
            let window: u64 =
                history.iter().rev().take_while(|(at_us, _)| at_us + 1_000_000 > now_us).map(|(_, ns)| ns).sum();
            assert!(window <= 50_000_000, "{window}");
        }
        let total: u64 = history.iter().map(|(_, ns)| ns).sum();
        let seconds = (now_us - 1_000_000_000) as f64 / 1e6;
        assert!(total as f64 / seconds > 45_000_000.0, "the share is used where there is work");
    }

    #[test]
    fn an_empty_budget_says_when_it_is_refilled() {
        let mut budget = Budget::default();
        budget.spend(5_000_000, 50_000_000);
        assert_eq!(budget.left_ns(5_900_000, 5), 0);
        let refilled_us = budget.refilled_us();
        assert!((6_000_000..=6_020_000).contains(&refilled_us), "{refilled_us}");
        assert_eq!(budget.left_ns(refilled_us, 5), 50_000_000);
    }
}
