//! The command line. One table of flags drives the parser and the help.

use crate::Result;
use crate::server::Kind;
use crate::{EXPERIMENTS, Experiment, results};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub struct Options {
    pub experiments: Vec<&'static Experiment>,
    pub kinds: Vec<Kind>,
    pub emberdb_arguments: Vec<String>,
    pub redis_benchmark: PathBuf,
    pub out: PathBuf,
    /// Which of `lag`'s variants to run; all where empty.
    pub variants: Vec<String>,
    /// Multiplies numbers of keys; only at 1 do the promises speak of the measured thing.
    pub scale: f64,
    /// How long to wait for what may never come: events, memory.
    pub wait: Duration,
    /// Time in which a million keys that are to die at one moment can be written before it.
    pub load_allowance_per_million: Duration,
    pub server_core: usize,
    pub generator_core: usize,
    emberdb: PathBuf,
    redis: PathBuf,
    rounds: Option<usize>,
    seconds: Option<u64>,
}

struct Flag {
    name: &'static str,
    value: &'static str,
    help: &'static str,
    set: fn(&mut Options, &str) -> Result<()>,
}

const FLAGS: &[Flag] = &[
    Flag {
        name: "--only",
        value: "ember|redis|both",
        help: "which servers to measure (both)",
        set: |options, value| {
            options.kinds = match value {
                "ember" => vec![Kind::Ember],
                "redis" => vec![Kind::Redis],
                "both" => vec![Kind::Ember, Kind::Redis],
                _ => return Err("ember, redis or both".into()),
            };
            Ok(())
        },
    },
    Flag {
        name: "--rounds",
        value: "N",
        help: "rounds of each experiment (5; lag 10)",
        set: |options, value| {
            options.rounds = Some(value.parse().ok().filter(|&rounds| rounds > 0).ok_or("a number from 1")?);
            Ok(())
        },
    },
    Flag {
        name: "--scale",
        value: "F",
        help: "multiply the numbers of keys by F, for a quick look (1)",
        set: |options, value| {
            options.scale = value.parse().ok().filter(|&scale| scale > 0.0).ok_or("a number above 0")?;
            Ok(())
        },
    },
    Flag {
        name: "--seconds",
        value: "N",
        help: "length of idle's rounds (10) and of stale's measurement, all rounds together (60)",
        set: |options, value| {
            options.seconds = Some(value.parse().ok().filter(|&seconds| seconds > 0).ok_or("a number from 1")?);
            Ok(())
        },
    },
    Flag {
        name: "--wait",
        value: "SECONDS",
        help: "longest wait for late events, and for memory to come back (20)",
        set: |options, value| {
            options.wait = Duration::from_secs(value.parse()?);
            Ok(())
        },
    },
    Flag {
        name: "--variants",
        value: "LIST",
        help: "variants of lag, by commas (quiet,scan,load,fields,fields-load)",
        set: |options, value| {
            options.variants = value.split(',').map(str::to_owned).collect();
            Ok(())
        },
    },
    Flag {
        name: "--load-allowance",
        value: "SECONDS",
        help: "first guess of the time in which a million keys can be written before they die (5)",
        set: |options, value| {
            options.load_allowance_per_million = Duration::try_from_secs_f64(value.parse()?)?;
            Ok(())
        },
    },
    Flag {
        name: "--emberdb",
        value: "PATH",
        help: "EmberDB's binary (the one built with this bench, or target/release/emberdb)",
        set: |options, value| {
            options.emberdb = absolute(value)?;
            Ok(())
        },
    },
    Flag {
        name: "--emberdb-args",
        value: "TEXT",
        help: "more arguments for EmberDB, separated by spaces",
        set: |options, value| {
            options.emberdb_arguments = value.split_whitespace().map(str::to_owned).collect();
            Ok(())
        },
    },
    Flag {
        name: "--redis",
        value: "PATH",
        help: "redis-server's binary (/usr/bin/redis-server)",
        set: |options, value| {
            options.redis = absolute(value)?;
            Ok(())
        },
    },
    Flag {
        name: "--redis-benchmark",
        value: "PATH",
        help: "the load of lag's third variant (/usr/bin/redis-benchmark)",
        set: |options, value| {
            options.redis_benchmark = absolute(value)?;
            Ok(())
        },
    },
    Flag {
        name: "--server-core",
        value: "N",
        help: "core of the server (0)",
        set: |options, value| {
            options.server_core = value.parse()?;
            Ok(())
        },
    },
    Flag {
        name: "--generator-core",
        value: "N",
        help: "core of this program (1)",
        set: |options, value| {
            options.generator_core = value.parse()?;
            Ok(())
        },
    },
    Flag {
        name: "--out",
        value: "FOLDER",
        help: "where results go (bench-results/<date>-<machine>/promises)",
        set: |options, value| {
            options.out = PathBuf::from(value);
            Ok(())
        },
    },
];

impl Options {
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
        let mut options = Options::default();
        while let Some(argument) = arguments.next() {
            if argument == "--bench" {
                // cargo bench adds it.
                continue;
            }
            if argument == "--help" {
                // Without experiments the usage is printed.
                options.experiments.clear();
                return Ok(options);
            }
            if argument == "all" {
                options.experiments = EXPERIMENTS.iter().collect();
            } else if let Some(experiment) = EXPERIMENTS.iter().find(|known| known.name == argument) {
                options.experiments.push(experiment);
            } else if let Some(flag) = FLAGS.iter().find(|known| known.name == argument) {
                let value = arguments.next().ok_or_else(|| format!("{argument} needs a value: {}", flag.value))?;
                (flag.set)(&mut options, &value).map_err(|error| format!("{argument} {value}: {error}"))?;
            } else {
                return Err(format!("unknown argument {argument}").into());
            }
        }
        Ok(options)
    }

    pub fn binary(&self, kind: Kind) -> &Path {
        match kind {
            Kind::Ember => &self.emberdb,
            Kind::Redis => &self.redis,
        }
    }

    pub fn rounds(&self, default: usize) -> usize {
        self.rounds.unwrap_or(default)
    }

    pub fn seconds(&self, default: u64) -> u64 {
        self.seconds.unwrap_or(default)
    }

    pub fn scaled(&self, keys: u64) -> u64 {
        ((keys as f64 * self.scale) as u64).max(1)
    }
}

impl Default for Options {
    fn default() -> Options {
        let built_beside = option_env!("CARGO_BIN_EXE_emberdb").map(PathBuf::from);
        Options {
            experiments: Vec::new(),
            kinds: vec![Kind::Ember, Kind::Redis],
            emberdb_arguments: Vec::new(),
            redis_benchmark: PathBuf::from("/usr/bin/redis-benchmark"),
            out: results::folder("promises"),
            variants: Vec::new(),
            scale: 1.0,
            wait: Duration::from_secs(20),
            load_allowance_per_million: Duration::from_secs(5),
            server_core: 0,
            generator_core: 1,
            emberdb: built_beside.unwrap_or_else(|| PathBuf::from("target/release/emberdb")),
            redis: PathBuf::from("/usr/bin/redis-server"),
            rounds: None,
            seconds: None,
        }
    }
}

pub fn usage() -> String {
    let mut text = String::from("usage: promises EXPERIMENT... [FLAG VALUE]...\n\nexperiments:\n");
    for experiment in EXPERIMENTS {
        text += &format!("  {:<14} {}\n", experiment.name, experiment.about);
    }
    text += "  all            every one of them\n\nflags (defaults in brackets):\n";
    for flag in FLAGS {
        text += &format!("  {:<34} {}\n", format!("{} {}", flag.name, flag.value), flag.help);
    }
    text
}

/// Servers run in folders of their own, so a relative path must be resolved before.
fn absolute(path: &str) -> Result<PathBuf> {
    Ok(fs::canonicalize(path)?)
}
