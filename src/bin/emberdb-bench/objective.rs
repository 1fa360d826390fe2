//! What a search has to keep: a limit of one figure of latency.

use hdrhistogram::Histogram;
use std::fmt;
use std::str::FromStr;

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

    fn from_str(text: &str) -> Result<Objective, String> {
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
    /// What is limited, in the words of the command line.
    pub fn measured(&self) -> &str {
        self.text.split('<').next().unwrap_or_default()
    }

    pub fn of_us(&self, latency_ns: &Histogram<u64>) -> f64 {
        let ns = match self.measure {
            Measure::Mean => latency_ns.mean(),
            Measure::Quantile(quantile) => latency_ns.value_at_quantile(quantile) as f64,
            Measure::Max => latency_ns.max() as f64,
        };
        ns / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives() {
        let objective: Objective = "p99<=1ms".parse().unwrap();
        assert_eq!((objective.measure, objective.limit_us), (Measure::Quantile(0.99), 1000.0));
        assert_eq!(objective.measured(), "p99");
        let objective: Objective = "p99.9 <= 250us".parse().unwrap();
        assert_eq!(objective.limit_us, 250.0);
        assert_eq!("max<=0.5s".parse::<Objective>().unwrap().limit_us, 500_000.0);
        assert_eq!("mean<1ms".parse::<Objective>().unwrap().measure, Measure::Mean);
        for text in ["p99", "p99<=1", "p100<=1ms", "q<=1ms", "p99<=-1ms", "p99<=xms"] {
            assert!(text.parse::<Objective>().is_err(), "{text}");
        }
    }
}
