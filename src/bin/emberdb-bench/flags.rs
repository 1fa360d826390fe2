//! The flags. One struct makes parser, help and the names of what is nearest to a mistyped one.

use crate::encode::{KeyForm, Ttl};
use crate::objective::Objective;
use crate::template::Template;
use crate::workload::{Kind, Recipe, Steps};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use emberdb::measure::client::Login;
use emberdb::measure::generated::Generated;
use emberdb::measure::target::Target;
use emberdb::measure::tls;
use rustls::ClientConfig;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    Uniform,
    Zipf,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    PerSecond(f64),
    /// Of what the first target reaches in closed loop.
    Share(f64),
}

/// Loads RESP servers and tells how long they really take.
///
/// Without --rate each connection sends its next requests when all replies are here (closed loop): that finds the
/// greatest rate. With --rate requests are planned at fixed moments and latency counts from there, whatever the server
/// does (open loop): that finds the latency clients would see. Several targets take turns, so that what disturbs the
/// machine disturbs all of them.
#[derive(Clone, Debug, Parser)]
#[command(name = "emberdb-bench", max_term_width = 110)]
pub struct Flags {
    /// Server to measure, can be repeated: name=host:port or name=unix:/path, with ,pid=N behind it to name the
    /// process whose CPU time counts (otherwise INFO tells, where the server is local)
    #[arg(long = "target", value_name = "TARGET", default_value = "server=127.0.0.1:6379")]
    pub targets: Vec<Target>,
    /// What to ask for
    #[arg(long, value_enum, default_value = "get")]
    pub workload: Kind,
    /// Requests a second, of all connections together: open loop. 60% = of what the first target does in closed loop
    #[arg(long, value_parser = rate)]
    pub rate: Option<Rate>,
    /// Find the greatest rate that keeps this: p99<=1ms, p99.9<=500us, mean<=200us, max<=1s
    #[arg(long, value_name = "OBJECTIVE", conflicts_with_all = ["rate", "requests"])]
    pub search: Option<Objective>,
    /// Connections, of all threads together
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub connections: u64,
    /// Connections beside those, which say nothing (0; idle: 10000)
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub idle: Option<u64>,
    /// Requests in flight on each connection, at most
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub pipeline: u64,
    /// Generator threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub threads: u64,
    /// Cores to pin the threads to, in turn: 1 or 2,3
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(0..1024))]
    pub cores: Vec<u16>,
    /// Measured time of each round (5; mass-expiry: of each phase)
    #[arg(long, value_parser = positive, conflicts_with = "requests")]
    pub seconds: Option<f64>,
    /// End a round after so many requests instead
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Seconds before each round that are not counted
    #[arg(long, default_value_t = 1.0, value_parser = not_negative)]
    pub warmup: f64,
    /// Rounds of each target (1; 5 where there are several targets)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub rounds: Option<u64>,
    /// Keys, or users of sessions (100000; lcs: 1000 pairs; transaction: 20000 tags; lag, mass-expiry: keys that live on)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=4_000_000_000))]
    pub keys: Option<u64>,
    /// Keys of a request (mget, mset: 10), or commands between MULTI and EXEC (transaction: 5)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub batch: Option<u64>,
    /// What transactions do
    #[arg(long, value_enum, default_value = "set-get")]
    pub steps: Steps,
    /// What the workloads command (in turn, where repeated) and stall (each once) send: words, of which KEY stands for
    /// a key, NUMBER for its number (NUMBER+9 for one that is greater by 9), RANDOM for a number below --keys, VALUE for
    /// the value; each has one reply
    #[arg(long = "command", value_name = "COMMAND")]
    pub commands: Vec<Template>,
    /// What loads each of --keys (SET); words stand for the same
    #[arg(long, value_name = "COMMAND", conflicts_with = "no_load")]
    pub load_command: Option<Template>,
    /// Keys that die (lag: 1000; mass-expiry: 1000000)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=4_000_000_000))]
    pub dying: Option<u64>,
    /// How keys are chosen
    #[arg(long, value_enum, default_value = "uniform")]
    pub distribution: Distribution,
    /// The smaller, the more even
    #[arg(long, default_value_t = 0.99, value_parser = positive)]
    pub zipf_exponent: f64,
    /// Bytes of a key; more if prefix and number do not fit (lcs, transaction: of what is in braces)
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub key_size: u64,
    /// What keys begin with (key: ; session, cache, ratelimit, lcs, transfer, lag, mass-expiry: that name; transaction:
    /// tx: ; lcs, transaction: behind the brace)
    #[arg(long)]
    pub key_prefix: Option<String>,
    /// Bytes of a value (3; lcs: 4096)
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=536_870_912))]
    pub value_size: Option<u64>,
    /// Share of GETs in the mixed workload
    #[arg(long, default_value_t = 0.9, value_parser = share)]
    pub reads: f64,
    /// TTL of what is set, seconds: 60 or 60..3600 (session 1800, cache 60..3600, ratelimit 60, others none)
    #[arg(long, value_parser = ttl)]
    pub ttl: Option<Ttl>,
    /// Load the keys first (get, mget, mixed, session, lcs, transaction, transfer, foreign-key, memory, stall and whatever
    /// has --load-command do so anyway)
    #[arg(long, conflicts_with = "no_load")]
    pub load: bool,
    /// Keys are there already
    #[arg(long)]
    pub no_load: bool,
    /// Longest wait for what is due to be gone (lag, mass-expiry), seconds
    #[arg(long, default_value_t = 20.0, value_parser = positive)]
    pub wait: f64,
    /// Protocol
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=3))]
    pub resp: u8,
    /// Name for AUTH
    #[arg(long, requires = "password")]
    pub user: Option<String>,
    /// Password for AUTH
    #[arg(long)]
    pub password: Option<String>,
    /// Connect by TLS
    #[arg(long)]
    pub tls: bool,
    /// File with the authority that has to stand behind the servers' certificates, PEM
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub cacert: Option<PathBuf>,
    /// Take any certificate for the server's
    #[arg(long, requires = "tls", conflicts_with = "cacert")]
    pub insecure: bool,
    /// File with a client's certificate, PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key"])]
    pub cert: Option<PathBuf>,
    /// File with its key, PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls", "cert"])]
    pub key: Option<PathBuf>,
    /// What these five say.
    #[arg(skip)]
    tls_config: Option<Arc<ClientConfig>>,
    /// Where random numbers begin
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Folder for result.json, one .hgrm a target and latency.svg
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// A line each second on standard error even if that is no terminal
    #[arg(long)]
    pub progress: bool,
    /// Measure nothing: write summary.md from the result.json files below a folder
    #[arg(long, value_name = "FOLDER", exclusive = true)]
    pub summary: Option<PathBuf>,
    /// Measure nothing: print the man page, or what a shell completes, for packages
    #[arg(long, value_enum, exclusive = true, hide = true)]
    pub generate: Option<Generated>,
}

impl Flags {
    /// Parses and checks what concerns several flags; ends the process with 2 if something is wrong.
    pub fn from_command_line() -> Flags {
        Flags::parse().checked().unwrap_or_else(|message| {
            Flags::command().error(ErrorKind::ArgumentConflict, message).exit();
        })
    }

    fn checked(mut self) -> Result<Flags, String> {
        let mut names: Vec<&str> = self.targets.iter().map(|target| target.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two targets are called {}: names have to differ", pair[0]));
        }
        if self.connections < self.threads {
            return Err(format!("{} threads need as many connections at least", self.threads));
        }
        if !self.is_load() && (self.search.is_some() || self.requests.is_some()) {
            let others = "lag, mass-expiry, idle, foreign-key, memory and stall";
            return Err(format!("{others} take neither --search nor --requests"));
        }
        let sends = matches!(self.workload, Kind::Command | Kind::Stall);
        if sends == self.commands.is_empty() {
            return Err("the workloads command and stall, and no others, take --command".to_owned());
        }
        if self.load_command.is_some() && matches!(self.workload, Kind::Lag | Kind::MassExpiry | Kind::Idle) {
            return Err("lag, mass-expiry and idle take no --load-command".to_owned());
        }
        if self.workload == Kind::Memory && (self.no_load || self.rounds() > 1) {
            return Err("memory takes neither --no-load nor more than one of --rounds".to_owned());
        }
        if self.workload == Kind::ForeignKey && self.targets.len() > 1 {
            return Err("foreign-key takes one --target".to_owned());
        }
        if self.workload == Kind::Idle && self.idle() == 0 {
            return Err("idle takes one --idle connection at least".to_owned());
        }
        if self.workload == Kind::Transfer && self.keys() < 2 {
            return Err("transfer takes two --keys at least".to_owned());
        }
        if self.requests.is_some_and(|requests| requests < self.threads) {
            return Err("at least one request for each thread".to_owned());
        }
        if self.tls {
            if self.cacert.is_none() && !self.insecure {
                return Err("--tls takes --cacert or --insecure".to_owned());
            }
            let pair = self.cert.as_deref().zip(self.key.as_deref());
            self.tls_config = Some(tls::config(self.cacert.as_deref(), pair)?);
        }
        Ok(self)
    }

    /// Whether this is rounds of a plain load.
    fn is_load(&self) -> bool {
        use Kind::{ForeignKey, Idle, Lag, MassExpiry, Memory, Stall};
        !matches!(self.workload, Lag | MassExpiry | Idle | ForeignKey | Memory | Stall)
    }

    /// Rounds of each target; a search is long as it is, and what is loaded takes its memory once.
    pub fn rounds(&self) -> u64 {
        let once = self.targets.len() == 1 || self.search.is_some() || self.workload == Kind::Memory;
        self.rounds.unwrap_or(if once { 1 } else { 5 })
    }

    pub fn idle(&self) -> u64 {
        self.idle.unwrap_or(if self.workload == Kind::Idle { 10_000 } else { 0 })
    }

    pub fn keys(&self) -> u64 {
        self.keys.unwrap_or(match self.workload {
            Kind::Lcs => 1_000,
            Kind::Transaction => 20_000,
            _ => 100_000,
        })
    }

    pub fn batch(&self) -> u64 {
        self.batch.unwrap_or(if self.workload == Kind::Transaction { 5 } else { 10 })
    }

    pub fn value_size(&self) -> u64 {
        self.value_size.unwrap_or(if self.workload == Kind::Lcs { 4_096 } else { 3 })
    }

    /// Keys that die.
    pub fn dying(&self) -> u64 {
        self.dying.unwrap_or(if self.workload == Kind::Lag { 1_000 } else { 1_000_000 })
    }

    pub fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(5.0)
    }

    pub fn login(&self) -> Login {
        let (user, password, tls) = (self.user.clone(), self.password.clone(), self.tls_config.clone());
        Login { resp3: self.resp == 3, user, password, tls }
    }

    /// Whether keys are loaded before the first round.
    pub fn loads(&self) -> bool {
        let single = [Kind::Get, Kind::Mget, Kind::Mixed, Kind::Session, Kind::ForeignKey].contains(&self.workload);
        let several =
            [Kind::Lcs, Kind::Transaction, Kind::Transfer, Kind::Memory, Kind::Stall].contains(&self.workload);
        self.load || (!self.no_load && (single || several || self.load_command.is_some()))
    }

    pub fn recipe(&self) -> Recipe {
        let default_ttl = match self.workload {
            Kind::Session => Some(Ttl { from: 1800, to: 1800 }),
            Kind::Cache => Some(Ttl { from: 60, to: 3600 }),
            Kind::Ratelimit => Some(Ttl { from: 60, to: 60 }),
            _ => None,
        };
        let name = match self.workload {
            Kind::Get | Kind::Set | Kind::Mget | Kind::Mset | Kind::Mixed | Kind::ForeignKey => "key".to_owned(),
            Kind::Command | Kind::Memory | Kind::Stall => "key".to_owned(),
            Kind::Transaction => "tx".to_owned(),
            other => other.to_possible_value().expect("none is hidden").get_name().to_owned(),
        };
        let prefix = self.key_prefix.clone().unwrap_or(format!("{name}:"));
        let mut rng = fastrand::Rng::with_seed(self.seed);
        // Every connection of the session workload has a user at least.
        let numbers = self.keys().max(self.connections);
        Recipe {
            kind: self.workload,
            keys: self.keys(),
            zipf_exponent: (self.distribution == Distribution::Zipf).then_some(self.zipf_exponent),
            form: KeyForm::new(&prefix, self.key_size as usize, numbers),
            value: (0..self.value_size()).map(|_| rng.alphanumeric() as u8).collect(),
            batch: self.batch() as usize,
            steps: self.steps,
            commands: self.commands.clone(),
            load_command: self.load_command.clone(),
            ttl: self.ttl.or(default_ttl),
            reads: self.reads,
            loaded: self.loads(),
            seed: self.seed,
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    number(text, |number| number > 0.0, "more than 0")
}

fn rate(text: &str) -> Result<Rate, String> {
    match text.strip_suffix('%') {
        Some(percent) => Ok(Rate::Share(positive(percent)? / 100.0)),
        None => Ok(Rate::PerSecond(positive(text)?)),
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    number(text, |number| number >= 0.0, "0 or more")
}

fn share(text: &str) -> Result<f64, String> {
    number(text, |number| (0.0..=1.0).contains(&number), "between 0 and 1")
}

fn number(text: &str, fits: impl Fn(f64) -> bool, wanted: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number < 1e12 && fits(*number));
    number.ok_or_else(|| format!("a number {wanted} is wanted"))
}

/// `60` or `60..3600`.
fn ttl(text: &str) -> Result<Ttl, String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let bound = |text: &str| text.parse::<u64>().ok().filter(|&seconds| (1..1 << 40).contains(&seconds));
    match (bound(from), bound(to)) {
        (Some(from), Some(to)) if from <= to => Ok(Ttl { from, to }),
        _ => Err("seconds are wanted, as 60 or as 60..3600".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, String> {
        let words = std::iter::once("emberdb-bench").chain(line.split_whitespace());
        Flags::try_parse_from(words).map_err(|error| error.to_string())?.checked()
    }

    #[test]
    fn the_table_is_sound() {
        Flags::command().debug_assert();
    }

    #[test]
    fn defaults() {
        let flags = parse("").unwrap();
        assert_eq!(flags.targets[0].to_string(), "server (127.0.0.1:6379)");
        assert_eq!((flags.connections, flags.pipeline, flags.keys(), flags.value_size()), (50, 1, 100_000, 3));
        assert_eq!((flags.rounds(), flags.seconds(), flags.rate), (1, 5.0, None));
        assert!(flags.loads());
        assert_eq!(flags.recipe().form.size(), 16);
        assert_eq!(parse("--target a=h:1 --target b=h:2").unwrap().rounds(), 5);
        assert!(!parse("--workload set").unwrap().loads());
        assert!(parse("--workload set --load").unwrap().loads());
        let lcs = parse("--workload lcs").unwrap();
        assert_eq!((lcs.keys(), lcs.value_size(), lcs.loads()), (1_000, 4_096, true));
        assert_eq!(parse("--workload lcs --value-size 8192").unwrap().recipe().value.len(), 8192);
        let transaction = parse("--workload transaction").unwrap();
        assert_eq!((transaction.keys(), transaction.batch(), transaction.loads()), (20_000, 5, true));
        assert_eq!(transaction.recipe().form.prefix, "tx:");
        assert_eq!(parse("--workload mget").unwrap().recipe().batch, 10);
        assert!(!parse("--no-load").unwrap().loads());
        let command = parse("--workload command --command PING").unwrap();
        assert_eq!((command.loads(), command.recipe().form.prefix.as_str()), (false, "key:"));
        assert!(parse("--workload command --command PING --load-command INCR").unwrap().loads());
        assert_eq!(parse("--workload memory --target a=h:1 --target b=h:2").unwrap().rounds(), 1);
        assert_eq!(parse("--workload session").unwrap().recipe().ttl, Some(Ttl { from: 1800, to: 1800 }));
    }

    #[test]
    fn values() {
        let flags = parse("--cores 1,2 --ttl 60..3600 --rate 1e5 --distribution zipf --workload mass-expiry").unwrap();
        assert_eq!(flags.cores, [1, 2]);
        assert_eq!(flags.ttl, Some(Ttl { from: 60, to: 3600 }));
        assert_eq!(flags.rate, Some(Rate::PerSecond(100_000.0)));
        assert_eq!(parse("--rate 60%").unwrap().rate, Some(Rate::Share(0.6)));
        assert_eq!(flags.recipe().zipf_exponent, Some(0.99));
        assert_eq!(flags.recipe().form.prefix, "mass-expiry:");
        assert_eq!(parse("--ttl 5").unwrap().ttl, Some(Ttl { from: 5, to: 5 }));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |line: &str| parse(line).expect_err(line);
        assert!(wrong("--pipelin 3").contains("--pipeline"));
        assert!(wrong("--workload sessio").contains("session"));
        assert!(wrong("--target a=h:1 --target a=h:2").contains("two targets are called a"));
        assert!(wrong("--ttl 9..3").contains("60..3600"));
        assert!(wrong("--threads 9 --connections 3").contains("9 threads"));
        for line in ["--rate 0", "--rate -1", "--rate nan", "--reads 1.1", "--resp 4", "--keys 0", "--user x"] {
            wrong(line);
        }
        wrong("--rate 5 --search p99<=1ms");
        wrong("--load --no-load");
        wrong("--workload lag --search p99<=1ms");
        wrong("--workload idle --requests 5");
        wrong("--workload idle --idle 0");
        wrong("--workload transfer --keys 1");
        wrong("--batch 0");
        wrong("--workload command");
        wrong("--workload stall");
        wrong("--command PING");
        wrong("--workload command --command NUMBER+x");
        wrong("--workload lag --load-command PING");
        wrong("--workload memory --rounds 2");
        wrong("--workload memory --requests 2");
        wrong("--workload foreign-key --target a=h:1 --target b=h:2");
    }
}
