//! What is printed and what is kept: a line for each round, the medians, and whether each promise held.
//!
//! An experiment fills one table. Its rounds go to `<experiment>.csv`, medians and verdicts to `<experiment>.md`;
//! `summary.md` joins the latter, so experiments may be run one at a time.

use crate::options::Options;
use crate::server::Kind;
use crate::{EXPERIMENTS, Result, results};
use emberdb::measure::report::{Metric, Table, median_of};
use std::fs::{self, File};
use std::io::{BufWriter, Write};

/// Metrics and the most each may be, all at once.
pub struct Promise {
    pub text: &'static str,
    pub limits: &'static [(&'static str, f64)],
    pub holds: Holds,
}

pub enum Holds {
    InTheMedian,
    InRounds(f64),
}

pub struct Experiment {
    pub name: &'static str,
    /// What was done, for the reader of the summary.
    pub setting: &'static str,
    pub metrics: &'static [Metric],
    pub promises: &'static [Promise],
}

pub struct Report<'a> {
    experiment: &'static Experiment,
    options: &'a Options,
    rows: Vec<Row>,
    plots: Vec<String>,
}

struct Row {
    server: Kind,
    variant: &'static str,
    values: Vec<f64>,
}

impl<'a> Report<'a> {
    pub fn new(options: &'a Options, experiment: &'static Experiment) -> Result<Report<'a>> {
        fs::create_dir_all(&options.out)?;
        println!("\n{}: {}", experiment.name, experiment.setting);
        let names: String = experiment.metrics.iter().map(|metric| format!("{:>WIDTH$}", metric.name)).collect();
        println!("{:<13}{:<7}{:>7}{names}", "server", "", "round");
        Ok(Report { experiment, options, rows: Vec::new(), plots: Vec::new() })
    }

    /// Adds one round; `variant` may be empty, `values` follow the experiment's metrics.
    pub fn round(&mut self, server: Kind, variant: &'static str, values: Vec<f64>) {
        assert_eq!(values.len(), self.experiment.metrics.len(), "a value for each metric");
        let round = self.group(server, variant).count() + 1;
        self.print_line(server, variant, &round.to_string(), &values);
        self.rows.push(Row { server, variant, values });
    }

    /// A CSV file for raw data beside the table, its heading written.
    pub fn raw(&self, name: &str, heading: &str) -> Result<BufWriter<File>> {
        let mut file = BufWriter::new(File::create(self.options.out.join(name))?);
        writeln!(file, "{heading}")?;
        Ok(file)
    }

    pub fn plot(&mut self, name: &str, svg: &str) -> Result<()> {
        fs::write(self.options.out.join(name), svg)?;
        self.plots.push(name.to_owned());
        Ok(())
    }

    /// Prints medians and verdicts and writes the experiment's files.
    pub fn finish(self) -> Result<()> {
        let experiment = self.experiment;
        let mut groups: Vec<(Kind, &'static str)> = Vec::new();
        for row in &self.rows {
            if !groups.contains(&(row.server, row.variant)) {
                groups.push((row.server, row.variant));
            }
        }
        groups.sort_by_key(|&(server, variant)| {
            (self.rows.iter().position(|row| row.variant == variant), server != Kind::Ember)
        });

        let mut medians = Table::new(&["server", "variant"], experiment.columns("rounds"));
        let mut verdicts = String::new();
        for &(server, variant) in &groups {
            let values = self.medians(server, variant);
            self.print_line(server, variant, "median", &values);
            let rounds = self.group(server, variant).count().to_string();
            medians.push(experiment.row(server, variant, rounds, &values));
            for promise in experiment.promises {
                let (held, measured) = self.judge(promise, server, variant);
                let verdict = if held { "PASS" } else { "MISS" };
                verdicts += &format!("- {verdict} {} {variant}: {} ({measured})\n", server.name(), promise.text);
            }
        }
        print!("{verdicts}");

        let plots: String = self.plots.iter().map(|name| format!("\n![{name}]({name})\n")).collect();
        let scale = self.options.scale;
        let scaled = if scale == 1.0 { String::new() } else { format!(" **Numbers of keys times {scale}.**") };
        let page = format!(
            "## {}\n\n{}{scaled}\n\n{}\n{verdicts}{plots}",
            experiment.name,
            experiment.setting,
            medians.markdown()
        );
        fs::write(self.options.out.join(format!("{}.md", experiment.name)), page)?;
        fs::write(self.options.out.join(format!("{}.csv", experiment.name)), self.csv())?;
        Ok(())
    }

    fn group(&self, server: Kind, variant: &'static str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.server == server && row.variant == variant)
    }

    fn medians(&self, server: Kind, variant: &'static str) -> Vec<f64> {
        let rounds: Vec<Vec<f64>> = self.group(server, variant).map(|row| row.values.clone()).collect();
        (0..self.experiment.metrics.len()).map(|metric| median_of(&rounds, metric)).collect()
    }

    /// Whether the promise held, and what was measured.
    fn judge(&self, promise: &Promise, server: Kind, variant: &'static str) -> (bool, String) {
        let within = |values: &[f64]| {
            promise.limits.iter().all(|&(name, most)| {
                let value = values[self.column(name)];
                value <= most
            })
        };
        match promise.holds {
            Holds::InTheMedian => {
                let medians = self.medians(server, variant);
                let measured: Vec<String> = promise.limits.iter().map(|(name, _)| self.cell(&medians, name)).collect();
                (within(&medians), format!("median {}", measured.join(", ")))
            }
            Holds::InRounds(share) => {
                let rounds = self.group(server, variant).count();
                let good = self.group(server, variant).filter(|row| within(&row.values)).count();
                (good as f64 >= share * rounds as f64, format!("{good} of {rounds} rounds"))
            }
        }
    }

    fn column(&self, name: &str) -> usize {
        let metrics = self.experiment.metrics;
        metrics.iter().position(|metric| metric.name == name).expect("a promise names one of its table's metrics")
    }

    fn cell(&self, values: &[f64], name: &str) -> String {
        let column = self.column(name);
        self.experiment.metrics[column].show(values[column])
    }

    fn print_line(&self, server: Kind, variant: &str, round: &str, values: &[f64]) {
        let metrics = self.experiment.metrics.iter().zip(values);
        let cells: String = metrics.map(|(metric, &value)| format!("{:>WIDTH$}", metric.show(value))).collect();
        println!("{:<13}{variant:<7}{round:>7}{cells}", server.name());
    }

    fn csv(&self) -> String {
        let mut table = Table::new(&["server", "variant"], self.experiment.columns("round"));
        for (at, row) in self.rows.iter().enumerate() {
            let before = &self.rows[..at];
            let same = |other: &&Row| other.server == row.server && other.variant == row.variant;
            let round = before.iter().filter(same).count() + 1;
            table.push(self.experiment.row(row.server, row.variant, round.to_string(), &row.values));
        }
        table.csv()
    }
}

impl Experiment {
    /// What stands above the figures of a row, whose first says which round or how many.
    fn columns(&self, first: &'static str) -> impl Iterator<Item = &'static str> {
        std::iter::once(first).chain(self.metrics.iter().map(|metric| metric.name))
    }

    fn row(&self, server: Kind, variant: &str, first: String, values: &[f64]) -> Vec<String> {
        let names = [server.name().to_owned(), variant.to_owned(), first];
        let cells = self.metrics.iter().zip(values).map(|(metric, &value)| metric.show(value));
        names.into_iter().chain(cells).collect()
    }
}

/// Joins what the experiments have left in the folder into `summary.md`.
pub fn write_summary(options: &Options) -> Result<()> {
    let cpu = fs::read_to_string("/proc/cpuinfo")?;
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let kernel: String = kernel.chars().take_while(|&c| c.is_ascii_digit() || c == '.').collect();
    let mut text = format!(
        "# The promises about expiry\n\n{}. CPU: {}; Linux {kernel}; server on core {}, generator on core {}.\n",
        results::today(),
        cpu.trim_start_matches(['\t', ' ', ':']),
        options.server_core,
        options.generator_core,
    );
    for &kind in &options.kinds {
        text += &format!("{}: {}.\n", kind.name(), kind.version(options));
    }
    text += "\nEach figure is the median over rounds; every round is in the CSV file of its experiment. `never`\n\
             marks what had not come when the wait ended, `-` what the server does not publish. Made by `scripts/promises`.\n";
    for experiment in EXPERIMENTS {
        if let Ok(section) = fs::read_to_string(options.out.join(format!("{}.md", experiment.name))) {
            text += &format!("\n{section}");
        }
    }
    fs::write(options.out.join("summary.md"), text)?;
    Ok(())
}

/// Of a column on the terminal; two more than the longest name.
const WIDTH: usize = 17;
