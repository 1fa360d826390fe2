//! What a run leaves behind: a table on standard output, and a folder with result.json, .hgrm files and a plot.

use crate::failure::{Failure, Result};
use crate::flags::{Flags, Rate};
use crate::hgrm;
use crate::recorder::histogram;
use crate::said::say;
use crate::workload::Kind;
use clap::ValueEnum;
use emberdb::measure::plot::{self, Axis, Line, Scale};
use emberdb::measure::report::{Metric, Table, median_of, ratio_of, show_ratio};
use emberdb::measure::target::Target;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// Beyond 1 - 10^-this there is nothing to see.
const NINES_MAX: f64 = 6.0;

/// All rounds of one target.
pub struct Rounds {
    pub target: Target,
    /// Figures of each round, in the order of the report's metrics.
    pub figures: Vec<Vec<f64>>,
    /// What else is worth keeping of each round.
    pub details: Vec<Value>,
    /// Over all rounds; one for each label (phase), in nanoseconds.
    pub latency_ns: Vec<(&'static str, Histogram<u64>)>,
    pub first_error: Option<String>,
}

pub struct Report<'a> {
    pub flags: &'a Flags,
    pub title: String,
    pub metrics: &'static [Metric],
    pub targets: Vec<Rounds>,
    /// What has to be known to read the figures.
    pub remarks: Vec<String>,
}

impl Rounds {
    pub fn new(target: &Target) -> Rounds {
        Rounds {
            target: target.clone(),
            figures: Vec::new(),
            details: Vec::new(),
            latency_ns: Vec::new(),
            first_error: None,
        }
    }

    pub fn add_latency(&mut self, label: &'static str, latency_ns: &Histogram<u64>) {
        let at = self.latency_ns.iter().position(|(known, _)| *known == label).unwrap_or_else(|| {
            self.latency_ns.push((label, histogram()));
            self.latency_ns.len() - 1
        });
        self.latency_ns[at].1.add(latency_ns).expect("equal bounds");
    }

    fn median(&self, metric: usize) -> f64 {
        median_of(&self.figures, metric)
    }

    fn ratio(&self, first: &Rounds, metric: usize) -> f64 {
        ratio_of(&self.figures, &first.figures, metric)
    }
}

impl Report<'_> {
    /// Prints the table and writes the folder, if one is wanted.
    pub fn finish(&self) -> Result<()> {
        say(self.text());
        if let Some(folder) = &self.flags.out {
            self.write(folder)?;
            say(format_args!("written to {}", folder.display()));
        }
        Ok(())
    }

    fn text(&self) -> String {
        let shown: Vec<usize> = (0..self.metrics.len()).filter(|&metric| self.is_known(metric)).collect();
        let mut table = Table::new(&["target"], shown.iter().map(|&metric| self.metrics[metric].header));
        for rounds in &self.targets {
            let cells = shown.iter().map(|&metric| self.metrics[metric].show(rounds.median(metric)));
            table.push(std::iter::once(rounds.target.name.clone()).chain(cells));
        }
        let first = &self.targets[0];
        for rounds in &self.targets[1..] {
            let cells = shown.iter().map(|&metric| match self.metrics[metric].compared {
                true => show_ratio(rounds.ratio(first, metric)),
                false => String::new(),
            });
            let name = format!("{} / {}", rounds.target.name, first.target.name);
            table.push(std::iter::once(name).chain(cells));
        }
        let mut text = format!("{}\n\n{}", self.title, table.text());
        for rounds in &self.targets {
            if let Some(error) = &rounds.first_error {
                text += &format!("{}: first error: {error}\n", rounds.target.name);
            }
        }
        if self.targets.len() > 1 {
            text += "Ratios are medians of the ratios of each round.\n";
        }
        self.remarks.iter().for_each(|remark| text += &format!("{remark}\n"));
        text
    }

    fn is_known(&self, metric: usize) -> bool {
        self.targets.iter().any(|rounds| !rounds.median(metric).is_nan())
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| Failure::Write { path, error }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        let mut curves = Vec::new();
        for rounds in &self.targets {
            for (label, latency_ns) in &rounds.latency_ns {
                let name = match *label {
                    "" => rounds.target.name.clone(),
                    label => format!("{}-{label}", rounds.target.name),
                };
                let path = folder.join(format!("{name}.hgrm"));
                fs::write(&path, hgrm::format(latency_ns)).map_err(failed(&path))?;
                curves.push(Line { label: name, points: by_nines(latency_ns) });
            }
        }
        if !curves.is_empty() {
            let x = Axis { label: "percentile", scale: Scale::Nines };
            let y = Axis { label: "latency, ms", scale: Scale::Logarithmic };
            let path = folder.join("latency.svg");
            fs::write(&path, plot::lines(&self.title, &x, &y, &curves)).map_err(failed(&path))?;
        }
        let path = folder.join("result.json");
        let text = serde_json::to_string_pretty(&self.json()).expect("maps with names");
        fs::write(&path, text + "\n").map_err(failed(&path))
    }

    fn json(&self) -> Value {
        let named = |figures: &mut dyn FnMut(usize) -> f64| {
            let fields = self.metrics.iter().enumerate();
            Value::Object(fields.map(|(at, metric)| (metric.name.to_owned(), number(figures(at)))).collect())
        };
        let targets: Vec<Value> = self
            .targets
            .iter()
            .map(|rounds| {
                let all = rounds.figures.iter().zip(&rounds.details).map(|(figures, details)| {
                    let mut round = named(&mut |metric| figures[metric]);
                    let fields = round.as_object_mut().expect("made as one");
                    fields.extend(details.as_object().cloned().unwrap_or_default());
                    round
                });
                let mut one = Map::new();
                one.insert("name".into(), json!(rounds.target.name));
                one.insert("address".into(), json!(rounds.target.address.to_string()));
                one.insert("rounds".into(), all.collect());
                one.insert("median".into(), named(&mut |metric| rounds.median(metric)));
                one.insert("ratio".into(), named(&mut |metric| rounds.ratio(&self.targets[0], metric)));
                one.insert("first_error".into(), json!(rounds.first_error));
                Value::Object(one)
            })
            .collect();
        json!({
            "emberdb_bench": env!("CARGO_PKG_VERSION"),
            "title": self.title,
            "parameters": parameters(self.flags),
            "metrics": self.metrics.iter().map(|metric| metric.name).collect::<Vec<_>>(),
            "remarks": self.remarks,
            "targets": targets,
        })
    }
}

/// All flags as they were in force; never the password.
fn parameters(flags: &Flags) -> Value {
    let recipe = flags.recipe();
    let name = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| value().map(|it| it.get_name().to_owned());
    json!({
        "workload": name(&|| flags.workload.to_possible_value()),
        "rate": match flags.rate {
            None => json!(null),
            Some(Rate::PerSecond(rate)) => json!(rate),
            Some(Rate::Share(share)) => json!(format!("{}%", share * 100.0)),
        },
        "search": flags.search.as_ref().map(ToString::to_string),
        "connections": flags.connections,
        "idle_connections": flags.idle(),
        "pipeline": flags.pipeline,
        "threads": flags.threads,
        "cores": flags.cores,
        "seconds": flags.requests.is_none().then(|| flags.seconds()),
        "requests": flags.requests,
        "warmup": flags.warmup,
        "rounds": flags.rounds(),
        "keys": flags.keys(),
        "batch": recipe.is_batched().then_some(recipe.batch),
        "steps": (flags.workload == Kind::Transaction).then(|| name(&|| flags.steps.to_possible_value())),
        "commands": flags.commands.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "load_command": flags.load_command.as_ref().map(ToString::to_string),
        "dying": matches!(flags.workload, Kind::Lag | Kind::MassExpiry).then(|| flags.dying()),
        "distribution": name(&|| flags.distribution.to_possible_value()),
        "zipf_exponent": recipe.zipf_exponent,
        "key_size": recipe.form.size(),
        "key_prefix": recipe.form.prefix,
        "value_size": flags.value_size(),
        "reads": flags.reads,
        "ttl": recipe.ttl.map(|ttl| json!({ "from": ttl.from, "to": ttl.to })),
        "load": flags.loads(),
        "wait": flags.wait,
        "resp": flags.resp,
        "user": flags.user,
        "seed": flags.seed,
    })
}

/// JSON has neither NaN (not known) nor infinity (did not happen).
fn number(value: f64) -> Value {
    match value.is_infinite() {
        true => json!("never"),
        false => json!(value),
    }
}

/// Milliseconds by percentile.
fn by_nines(latency_ns: &Histogram<u64>) -> Vec<(f64, f64)> {
    let steps = latency_ns.iter_quantiles(20).filter(|step| step.quantile_iterated_to() < 1.0);
    steps
        .map(|step| (-(1.0 - step.quantile_iterated_to()).log10(), step.value_iterated_to() as f64 / 1e6))
        .filter(|(nines, _)| *nines <= NINES_MAX)
        .collect()
}
