//! Memory: bytes of RSS a key with a deadline costs, at several fills, because a table's cost swings as it grows.

use crate::Result;
use crate::load::{Deadline, VALUE, key, pipeline, push_set};
use crate::options::Options;
use crate::report::{Experiment, Holds, Promise, Report};
use crate::server::{Kind, Server, Settings, alternating};
use emberdb::measure::plot::{self, Axis, Line, Scale};
use emberdb::measure::report::Metric;

const SIZES: [u64; 6] = [700_000, 850_000, 1_000_000, 1_100_000, 1_250_000, 1_400_000];
const DAY_MS: i64 = 86_400_000;

static EXPERIMENT: Experiment = Experiment {
    name: "memory",
    setting: "16-byte keys, 32-byte values, SET k v PX; growth of RSS over the empty server divided by the keys.",
    metrics: &[
        Metric::plain("B at 0.7 M", 1),
        Metric::plain("B at 0.85 M", 1),
        Metric::plain("B at 1 M", 1),
        Metric::plain("B at 1.1 M", 1),
        Metric::plain("B at 1.25 M", 1),
        Metric::plain("B at 1.4 M", 1),
        Metric::plain("worst B", 1),
    ],
    promises: &[Promise {
        text: "at most 95 bytes a key at the worst fill",
        limits: &[("worst B", 95.0)],
        holds: Holds::InTheMedian,
    }],
};

pub fn run(options: &Options) -> Result<()> {
    let mut report = Report::new(options, &EXPERIMENT)?;
    let mut curves = Vec::new();
    let rounds = options.rounds(5);
    for round in 1..=rounds {
        for &kind in alternating(&options.kinds, round) {
            let mut bytes_a_key = series(options, kind)?;
            if round == rounds {
                let points = SIZES.iter().zip(&bytes_a_key).map(|(&keys, &bytes)| (keys as f64 / 1e6, bytes));
                curves.push(Line { label: kind.name().to_owned(), points: points.collect() });
            }
            bytes_a_key.push(bytes_a_key.iter().copied().fold(0.0, f64::max));
            report.round(kind, "", bytes_a_key);
        }
    }
    let x = Axis { label: "million keys", scale: Scale::Linear };
    let y = Axis { label: "bytes a key", scale: Scale::Linear };
    report.plot("memory.svg", &plot::lines("growth of RSS a key, last round", &x, &y, &curves))?;
    report.finish()
}

/// Bytes a key at each of the sizes, in one fresh server.
fn series(options: &Options, kind: Kind) -> Result<Vec<f64>> {
    let server = Server::start(options, kind, Settings::default())?;
    let empty_bytes = server.settled_rss_bytes()?;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut written = 0;
    let mut bytes_a_key = Vec::new();
    for size in SIZES.map(|size| options.scaled(size)) {
        pipeline(&server, written..size, |number, out| {
            let ttl_ms = rng.i64(DAY_MS / 12..DAY_MS);
            push_set(out, &key(b"mem", number), VALUE, Deadline::AfterMs(ttl_ms));
        })?;
        written = size;
        let growth_bytes = server.settled_rss_bytes()?.saturating_sub(empty_bytes);
        bytes_a_key.push(growth_bytes as f64 / size as f64);
    }
    Ok(bytes_a_key)
}
