//! When requests are to be sent in an open loop: at fixed moments, whatever the server does.
//!
//! ```text
//!  planned   |    |    |    |    |    |    |        latency of request 3, whose server stood still:
//!  sent      |    |    ................|||||        from its planned moment, not from when there was room to send it
//! ```
//!
//! A generator that waits for a slow reply before it plans the next request measures only the one request that met
//! the stall and omits all that should have met it (Tene, "How NOT to Measure Latency"). Here nothing is left out:
//! what was due and not sent, or sent and not answered, counts with the time it has waited when the run ends.

/// Moments in nanoseconds since the start of the run.
#[derive(Clone, Debug)]
pub struct Schedule {
    first_ns: f64,
    period_ns: f64,
    taken: u64,
    end_ns: u64,
}

impl Schedule {
    /// `rate` requests a second in all, of which this is thread `thread` of `threads`, up to `end_ns`.
    pub fn new(rate: f64, thread: usize, threads: usize, end_ns: u64) -> Schedule {
        let between_ns = 1e9 / rate;
        Schedule { first_ns: between_ns * thread as f64, period_ns: between_ns * threads as f64, taken: 0, end_ns }
    }

    /// The moment of the next request; `None` once the end is reached.
    #[inline]
    pub fn next_ns(&self) -> Option<u64> {
        let moment = (self.first_ns + self.taken as f64 * self.period_ns) as u64;
        (moment < self.end_ns).then_some(moment)
    }

    /// Takes the next request if its moment has come.
    #[inline]
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        let moment = self.next_ns().filter(|&moment| moment <= now_ns)?;
        self.taken += 1;
        Some(moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_even_and_end() {
        let mut schedule = Schedule::new(1000.0, 0, 1, 5_000_000);
        assert_eq!(schedule.take(0), Some(0));
        assert_eq!(schedule.take(999_999), None);
        assert_eq!(schedule.take(2_500_000), Some(1_000_000));
        assert_eq!(schedule.take(2_500_000), Some(2_000_000));
        assert_eq!(schedule.take(2_500_000), None);
        assert_eq!(schedule.take(9_000_000), Some(3_000_000));
        assert_eq!(schedule.take(9_000_000), Some(4_000_000));
        assert_eq!(schedule.take(9_000_000), None);
        assert_eq!(schedule.next_ns(), None);
    }

    #[test]
    fn threads_share_the_rate_and_take_turns() {
        let mut moments = Vec::new();
        for thread in 0..3 {
            let mut schedule = Schedule::new(3000.0, thread, 3, 1_000_000_000);
            while let Some(moment) = schedule.take(u64::MAX) {
                moments.push(moment);
            }
        }
        moments.sort_unstable();
        assert_eq!(moments.len(), 3000);
        assert!(moments.windows(2).all(|pair| (333_332..=333_334).contains(&(pair[1] - pair[0]))));
    }

    /// A server that answers at once, stands still for a second, and then answers at once again: the latencies of
    /// those due meanwhile run from a second down to nothing, though one request only was in flight.
    #[test]
    fn a_stall_is_charged_to_all_who_were_due() {
        const MS: u64 = 1_000_000;
        let mut schedule = Schedule::new(100.0, 0, 1, 3_000 * MS);
        let stall = 1_000 * MS..2_000 * MS;
        let mut latencies_ms = Vec::new();
        let mut now = 0;
        while schedule.next_ns().is_some() {
            while let Some(planned) = schedule.take(now) {
                if stall.contains(&now) {
                    now = stall.end;
                }
                latencies_ms.push((now - planned) / MS);
            }
            now += MS;
        }
        assert_eq!(latencies_ms.len(), 300);
        let mut late: Vec<u64> = latencies_ms.into_iter().filter(|&latency| latency > 0).collect();
        late.sort_unstable();
        assert_eq!(late, (1..=100).map(|tens| tens * 10).collect::<Vec<u64>>());
    }
}
