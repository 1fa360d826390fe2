//! The deadline column of the keyspace against the classic ways to keep deadlines.
//!
//! ```text
//!                       keys and values       deadlines
//!   column              Keyspace              the Keyspace's own column and minima        (column.rs)
//!   sampling            Keyspace, none there  hash table, 20 at random, the 25 % rule     (sampling.rs, table.rs)
//!   heap                Keyspace, none there  binary heap, stale items left until popped  (heap.rs)
//!   wheel               Keyspace, none there  hierarchical timing wheel                   (wheel.rs)
//!   full scan           Keyspace, none there  the same hash table, walked in laps         (scan.rs, table.rs)
//!   none                Keyspace, none there  nothing: what an operation costs without
//! ```
//!
//! All keep keys and values in the same place, a `Keyspace` with 16-byte keys and 32-byte values in which the first
//! word of a value serves heap and wheel as the key's own (its deadline, its timer), so that an operation's cost
//! differs only by the deadlines. All work in batches of 16 that are prefetched, deletions by the cycle included. The
//! baselines carry an 8-byte number where a server would keep a pointer to the key. The blocks' column stays empty
//! under the baselines and is not counted as theirs.
//!
//! Each measurement runs in a process of its own (this program again), so that none inherits the memory of another.
//!
//! `costs.rs` times insert, refresh, remove, find and delete, and adds up bytes; `stale.rs` runs the steady state under
//! a manual clock with the same CPU for each. Both measure CPU time of the thread.
//!
//! `cargo bench --bench deadlines -- [--keys N]... [--quick] [--out FOLDER]`; results go to
//! `bench-results/<date>-<machine>/deadlines/`: `summary.md`, raw data as CSV, plots as SVG.

mod column;
mod contest;
mod costs;
mod heap;
mod plot;
mod report;
#[path = "../shared/results.rs"]
mod results;
mod sampling;
mod scan;
mod stale;
mod table;
mod wheel;

use contest::Contestant;
use report::Report;
use std::path::PathBuf;
use std::process::{Command, Stdio};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// One way to keep deadlines, and where it takes part.
pub struct Entry {
    pub name: &'static str,
    pub new: fn() -> Box<dyn Contestant>,
    pub in_costs: bool,
    pub in_stale: bool,
}

/// The first one is what the others are compared with.
const ENTRIES: &[Entry] = &[
    Entry { name: "column", new: column::Column::boxed, in_costs: true, in_stale: true },
    Entry { name: "sampling, 25 % rule", new: sampling::Sampling::classic, in_costs: true, in_stale: true },
    Entry { name: "sampling, no rule", new: sampling::Sampling::without_rule, in_costs: false, in_stale: true },
    Entry { name: "heap", new: heap::Heap::pushing, in_costs: true, in_stale: true },
    Entry { name: "heap, postponing", new: heap::Heap::postponing, in_costs: true, in_stale: false },
    Entry { name: "wheel", new: wheel::Wheel::boxed, in_costs: true, in_stale: true },
    Entry { name: "full scan", new: scan::Scan::boxed, in_costs: true, in_stale: true },
    Entry { name: "none", new: contest::None::boxed, in_costs: true, in_stale: false },
];

/// Up to here there is time for the median of several rounds.
const MANY_KEYS: u64 = 2_000_000;
const ROUNDS: usize = 3;

struct Options {
    sizes: Vec<u64>,
    quick: bool,
    out: PathBuf,
    /// In a child: what to measure, of whom.
    one: Option<(Kind, &'static Entry)>,
}

#[derive(Clone, Copy)]
enum Kind {
    Costs,
    Stale,
}

fn main() -> Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    if let Some((kind, entry)) = options.one {
        let numbers = match kind {
            Kind::Costs => costs::measure(entry, options.sizes[0]),
            Kind::Stale => stale::measure(entry, options.sizes[0], stale::Phases::new(options.quick)),
        };
        println!("{}", numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(" "));
        return Ok(());
    }
    let mut report = Report::new(&options.out)?;
    for &keys in &options.sizes {
        let rounds = if keys <= MANY_KEYS { ROUNDS } else { 1 };
        let entries: Vec<&Entry> = ENTRIES.iter().filter(|entry| entry.in_costs).collect();
        let mut numbers = vec![Vec::new(); entries.len()];
        // One for nothing: the first process to use so much memory pays for what later ones find at hand.
        in_a_process("costs", entries[0], keys, options.quick)?;
        // Round by round, so that what disturbs the machine for a while disturbs all.
        for _ in 0..rounds {
            for (entry, rounds) in entries.iter().zip(&mut numbers) {
                rounds.push(in_a_process("costs", entry, keys, options.quick)?);
            }
        }
        for (entry, rounds) in entries.iter().zip(&numbers) {
            report.add_cost(costs::median(entry, keys, rounds));
        }
        for entry in ENTRIES.iter().filter(|entry| entry.in_stale) {
            let numbers = in_a_process("stale", entry, keys, options.quick)?;
            report.add_stale(stale::Stale::of(entry, keys, &numbers));
        }
    }
    report.finish()
}

/// Runs one measurement in a child and reads its numbers.
fn in_a_process(kind: &str, entry: &Entry, keys: u64, quick: bool) -> Result<Vec<f64>> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args(["--one", kind, entry.name, "--keys", &keys.to_string()]);
    if quick {
        child.arg("--quick");
    }
    let output = child.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{kind} of {}: {}", entry.name, output.status).into());
    }
    let numbers = String::from_utf8(output.stdout)?;
    Ok(numbers.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?)
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Options> {
        let mut options = Options { sizes: Vec::new(), quick: false, out: results::folder("deadlines"), one: None };
        // cargo bench adds `--bench`.
        let mut arguments = arguments.filter(|argument| argument != "--bench");
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--keys" => options.sizes.push(value()?.parse()?),
                "--out" => options.out = PathBuf::from(value()?),
                "--quick" => options.quick = true,
                "--one" => {
                    let kind = if value()? == "costs" { Kind::Costs } else { Kind::Stale };
                    let name = value()?;
                    let entry = ENTRIES.iter().find(|entry| entry.name == name).ok_or("nobody of that name")?;
                    options.one = Some((kind, entry));
                }
                _ => return Err(format!("unknown argument {argument}: --keys N, --quick, --out FOLDER").into()),
            }
        }
        if options.sizes.is_empty() {
            options.sizes = if options.quick { vec![200_000] } else { vec![1_000_000, 10_000_000] };
        }
        Ok(options)
    }
}
