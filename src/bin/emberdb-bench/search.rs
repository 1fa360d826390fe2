//! The greatest rate at which latency keeps an objective, found by halving with open-loop probes.

use crate::failure::Result;
use crate::recorder::Outcome;
use crate::round::{CLOSED, Plan, Round};
use crate::target::Target;
use hdrhistogram::Histogram;
use serde_json::json;
use std::fmt;
use std::str::FromStr;

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

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    Mean,
    Quantile(f64),
    Max,
}

/// `p99<=1ms`
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    pub measure: Measure,
    pub limit_us: f64,
    text: String,
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Objective, String> {
        let form = "write it like p99<=1ms: p50 to p99.999, mean or max; us, ms or s";
        let (measure, limit) = text.split_once("<=").or_else(|| text.split_once('<')).ok_or(form)?;
        let measure = match measure.trim() {
            "mean" => Measure::Mean,
            "max" => Measure::Max,
            quantile => {
                let percent = quantile.strip_prefix('p').and_then(|percent| percent.parse::<f64>().ok());
                Measure::Quantile(percent.filter(|percent| (0.0..100.0).contains(percent)).ok_or(form)? / 100.0)
            }
        };
        let limit = limit.trim();
        let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
        let limit_us = units.iter().find_map(|(unit, us)| Some(limit.strip_suffix(unit)?.parse::<f64>().ok()? * us));
        let limit_us = limit_us.filter(|limit_us| *limit_us > 0.0 && limit_us.is_finite()).ok_or(form)?;
        Ok(Objective { measure, limit_us, text: text.to_owned() })
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Objective {
    fn of_us(&self, latency_ns: &Histogram<u64>) -> f64 {
        let ns = match self.measure {
            Measure::Mean => latency_ns.mean(),
            Measure::Quantile(quantile) => latency_ns.value_at_quantile(quantile) as f64,
            Measure::Max => latency_ns.max() as f64,
        };
        ns / 1e3
    }
}

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
    println!("{}: {closed_rate:.0} requests/s in closed loop; looking for {objective}", target.name);
    let (mut probes, mut best) = (Vec::new(), None);
    let rate = bisect(closed_rate * ABOVE_CLOSED, |rate| {
        let open = Plan { rate: Some(rate), ..plan.clone() };
        for _ in 0..ATTEMPTS {
            let round = open.run(target)?;
            let probe = judge(objective, rate, &round);
            let (holds, excused) = (probe.holds, !probe.holds && probe.late_us > objective.limit_us * LATE_SHARE);
            println!(
                "{}: {:>10.0}/s  {} {:>9.3} ms  answered {:>10.0}/s  generator late {:.3} ms  {}",
                target.name,
                probe.rate,
                objective.text.split('<').next().unwrap_or_default(),
                probe.measured_us / 1e3,
                probe.answered,
                probe.late_us / 1e3,
                match (holds, excused) {
                    (true, _) => "holds",
                    (false, true) => "misses, but the generator was late",
                    (false, false) => "misses",
                }
            );
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
    fn objectives() {
        let objective: Objective = "p99<=1ms".parse().unwrap();
        assert_eq!((objective.measure, objective.limit_us), (Measure::Quantile(0.99), 1000.0));
        let objective: Objective = "p99.9 <= 250us".parse().unwrap();
        assert_eq!(objective.limit_us, 250.0);
        assert_eq!("max<=0.5s".parse::<Objective>().unwrap().limit_us, 500_000.0);
        assert_eq!("mean<1ms".parse::<Objective>().unwrap().measure, Measure::Mean);
        for text in ["p99", "p99<=1", "p100<=1ms", "q<=1ms", "p99<=-1ms", "p99<=xms"] {
            assert!(text.parse::<Objective>().is_err(), "{text}");
        }
    }

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
