//! The greatest rate at which latency keeps an objective, found by halving with open-loop probes.

use crate::failure::Result;
use crate::objective::Objective;
use crate::recorder::Outcome;
use crate::round::{CLOSED, Plan, Round};
use crate::said::say;
use emberdb::measure::target::Target;
use serde_json::json;

/// Halving ends when the bounds are this near to each other.
const NEAR: f64 = 1.03;
const PROBES_MAX: usize = 14;
/// A server that answers fewer of the requests planned does not keep up, whatever its latency so far.
const KEPT_UP: f64 = 0.99;
/// A miss says nothing about the server if the generator itself was later than this share of the limit; then the
/// probe is repeated, up to so many attempts.
const LATE_SHARE: f64 = 0.5;
const ATTEMPTS: usize = 3;
/// The first probe, over what the closed loop reached.
const ABOVE_CLOSED: f64 = 1.1;

/// One open-loop run of the search.
#[derive(Clone, Debug)]
pub struct Probe {
    pub rate: f64,
    pub answered: f64,
    pub measured_us: f64,
    /// How late the generator was, p99.9.
    pub late_us: f64,
    pub holds: bool,
}

impl Probe {
    pub fn json(&self) -> serde_json::Value {
        json!({
            "rate": self.rate,
            "answered_rate": self.answered,
            "measured_us": self.measured_us,
            "generator_late_p99.9_us": self.late_us,
            "holds": self.holds,
        })
    }
}

pub struct Found {
    /// The greatest rate that held; `None` if none did.
    pub rate: Option<f64>,
    /// The round at that rate.
    pub round: Option<Round>,
    pub probes: Vec<Probe>,
    pub closed_rate: f64,
}

pub fn search(plan: &Plan, target: &Target, objective: &Objective) -> Result<Found> {
    let closed = Plan { phases: vec![CLOSED.min(plan.phases[0])], progress: false, ..plan.clone() };
    let closed_rate = closed.run(target)?.rate();
    say(format_args!("{}: {closed_rate:.0} requests/s in closed loop; looking for {objective}", target.name));
    let (mut probes, mut best) = (Vec::new(), None);
    let rate = bisect(closed_rate * ABOVE_CLOSED, |rate| {
        let open = Plan { rate: Some(rate), ..plan.clone() };
        for _ in 0..ATTEMPTS {
            let round = open.run(target)?;
            let probe = judge(objective, rate, &round);
            let (holds, excused) = (probe.holds, !probe.holds && probe.late_us > objective.limit_us * LATE_SHARE);
            say(format_args!(
                "{}: {:>10.0}/s  {} {:>9.3} ms  answered {:>10.0}/s  generator late {:.3} ms  {}",
                target.name,
                probe.rate,
                objective.measured(),
                probe.measured_us / 1e3,
                probe.answered,
                probe.late_us / 1e3,
                match (holds, excused) {
                    (true, _) => "holds",
                    (false, true) => "misses, but the generator was late",
                    (false, false) => "misses",
                }
            ));
            probes.push(probe);
            if holds {
                best = Some(round);
            }
            if !excused {
                return Ok(holds);
            }
        }
        Ok(false)
    })?;
    Ok(Found { rate, round: best, probes, closed_rate })
}

fn judge(objective: &Objective, rate: f64, round: &Round) -> Probe {
    let Outcome { late_ns, unanswered, errors, .. } = &round.outcome;
    let measured_us = objective.of_us(&round.latency_ns());
    let kept_up = round.rate() >= rate * KEPT_UP && *unanswered == 0;
    Probe {
        rate,
        answered: round.rate(),
        measured_us,
        late_us: late_ns.value_at_quantile(0.999) as f64 / 1e3,
        holds: measured_us <= objective.limit_us && kept_up && *errors == 0,
    }
}

/// The greatest rate for which `holds` is true, if it is true below some rate and false above: doubles `first` while
/// it holds, then halves what lies between.
fn bisect(first: f64, mut holds: impl FnMut(f64) -> Result<bool>) -> Result<Option<f64>> {
    let (mut low, mut high, mut probes) = (None, None, 0);
    let mut rate = first;
    while probes < PROBES_MAX {
        match holds(rate)? {
            true => low = Some(rate),
            false => high = Some(rate),
        }
        probes += 1;
        rate = match (low, high) {
            (Some(low), None) => low * 2.0,
            (None, Some(high)) => high / 2.0,
            (Some(low), Some(high)) if high / low > NEAR => (low + high) / 2.0,
            _ => break,
        };
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_finds_the_bound_from_either_side() {
        for bound in [900.0, 5_000.0, 123_456.0] {
            for first in [1_000.0, 100_000.0] {
                let found = bisect(first, |rate| Ok(rate <= bound)).unwrap().unwrap();
                assert!(found <= bound && found * 1.05 > bound, "{found} for {bound} from {first}");
            }
        }
        assert_eq!(bisect(1_000.0, |_| Ok(false)).unwrap(), None);
    }
}
