//! Growth without pauses: the CPU time of every batch while millions of keys with deadlines go into one keyspace.
//!
//! A batch is 16 inserts, prefetched level by level as the server does it. Its time by CLOCK_THREAD_CPUTIME_ID, divided
//! by its commands, is one observation; reading the clock (some 0.2 us a batch) is part of it. The promise: p99.999 at
//! most 1 ms. For each batch the program also notes what grew: blocks that split, a directory that doubled, pages that
//! the kernel had to find (minor faults), so that the longest ones can be told by cause.
//!
//! Beside it, in the same run, hashbrown's `HashMap` (with a boxed value, so that a rehash moves 24 bytes a key), which
//! grows by moving everything at once.
//!
//! `cargo bench --bench growth -- [--keys N] [--quick] [--small-pages] [--out FOLDER]`
//!
//! `--small-pages` forbids the kernel to answer a page fault with a huge page, which it has to clear first.

#[path = "shared/results.rs"]
mod results;

use emberdb::clock::{Now, thread_cpu_ns};
use emberdb::keyspace::{Hasher, Keyspace, Lookup, Value};
use hdrhistogram::Histogram;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::{error, fs, io, mem};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const BATCH: usize = 16;
const KEY_BYTES: usize = 16;
const VALUE: [u8; 32] = [b'v'; 32];
const LIFETIME_MS: u64 = 600_000;
const LONGEST: usize = 20;
const HIGHEST_NS: u64 = 60_000_000_000;
const PROMISE_NS: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn error::Error>> {
    let mut keys = 10_000_000;
    let mut out = results::folder("growth");
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--keys" => keys = arguments.next().ok_or("--keys needs a number")?.parse()?,
            "--small-pages" => forbid_huge_pages()?,
            "--quick" => keys = 1_000_000,
            "--out" => out = PathBuf::from(arguments.next().ok_or("--out needs a folder")?),
            _ => return Err(format!("unknown argument {argument}").into()),
        }
    }
    fs::create_dir_all(&out)?;
    let runs = [run("keyspace", keys, into_keyspace), run("hashbrown", keys, into_hashbrown)];
    let page = summary(keys, &runs);
    print!("{page}");
    fs::write(out.join("summary.md"), &page)?;
    for run in &runs {
        run.write(&out)?;
    }
    println!("results: {}", out.display());
    Ok(())
}

/// What a batch did beside storing its keys.
#[derive(Clone, Copy, Default)]
struct Batch {
    at_key: usize,
    cpu_ns: u64,
    faults: u64,
    splits: usize,
    /// The size of the new directory, or of the new table.
    doubled_to: Option<usize>,
}

impl Batch {
    fn ns_a_command(&self) -> u64 {
        self.cpu_ns / BATCH as u64
    }

    fn cause(&self) -> String {
        let mut causes = Vec::new();
        if let Some(size) = self.doubled_to {
            causes.push(format!("doubling to {size}"));
        }
        if self.splits > 0 {
            causes.push(format!("{} split(s)", self.splits));
        }
        if self.faults > 0 {
            causes.push(format!("{} page fault(s)", self.faults));
        }
        if causes.is_empty() { "nothing grew: interrupts, cache".to_owned() } else { causes.join(", ") }
    }
}

struct Run {
    name: &'static str,
    a_command_ns: Histogram<u64>,
    longest: Vec<Batch>,
    /// Longest batch in which nothing grew, a block split, the directory or table doubled.
    by_cause: [Batch; 3],
    total_ns: u64,
}

fn run(name: &'static str, keys: usize, fill: fn(usize, &mut dyn FnMut(Batch))) -> Run {
    let mut run = Run {
        name,
        a_command_ns: Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("constant bounds are valid"),
        longest: Vec::new(),
        by_cause: [Batch::default(); 3],
        total_ns: 0,
    };
    fill(keys, &mut |batch| run.add(batch));
    run.longest.sort_by_key(|batch| std::cmp::Reverse(batch.cpu_ns));
    run.longest.truncate(LONGEST);
    run
}

impl Run {
    fn add(&mut self, batch: Batch) {
        self.a_command_ns.saturating_record(batch.ns_a_command());
        self.total_ns += batch.cpu_ns;
        let class = if batch.doubled_to.is_some() { 2 } else { usize::from(batch.splits > 0) };
        if batch.cpu_ns > self.by_cause[class].cpu_ns {
            self.by_cause[class] = batch;
        }
        self.longest.push(batch);
        if self.longest.len() == 64 * LONGEST {
            self.longest.sort_by_key(|batch| std::cmp::Reverse(batch.cpu_ns));
            self.longest.truncate(LONGEST);
        }
    }

    /// The whole histogram and the longest batches as CSV.
    fn write(&self, out: &std::path::Path) -> io::Result<()> {
        let mut file = fs::File::create(out.join(format!("{}-histogram.csv", self.name)))?;
        writeln!(file, "ns_a_command_up_to,batches")?;
        for step in self.a_command_ns.iter_recorded() {
            writeln!(file, "{},{}", step.value_iterated_to(), step.count_at_value())?;
        }
        let mut file = fs::File::create(out.join(format!("{}-longest.csv", self.name)))?;
        writeln!(file, "at_key,cpu_ns,ns_a_command,minor_faults,splits,doubled_to")?;
        for batch in &self.longest {
            let doubled_to = batch.doubled_to.map(|size| size.to_string()).unwrap_or_default();
            let Batch { at_key, cpu_ns, faults, splits, .. } = batch;
            writeln!(file, "{at_key},{cpu_ns},{},{faults},{splits},{doubled_to}", batch.ns_a_command())?;
        }
        Ok(())
    }
}

fn into_keyspace(keys: usize, each: &mut dyn FnMut(Batch)) {
    let mut keyspace = Keyspace::new(1, Hasher::new(1, 1));
    let hasher = keyspace.hasher().clone();
    let now = Now::from_ms(1_000_000);
    for at_key in (0..keys).step_by(BATCH) {
        let names: [[u8; KEY_BYTES]; BATCH] = std::array::from_fn(|offset| name(at_key + offset));
        let (shape, faults) = (keyspace.shape(0), minor_faults());
        let start_ns = thread_cpu_ns();
        let batch: [_; BATCH] = std::array::from_fn(|at| hasher.key(&names[at]));
        keyspace.prefetch(batch.iter().map(|key| Lookup::key(0, key.hash)));
        for key in batch {
            keyspace.insert(0, key, Value::Bytes(&VALUE), Some(now.ms + key.hash % LIFETIME_MS), now);
        }
        let cpu_ns = thread_cpu_ns() - start_ns;
        let grown = keyspace.shape(0);
        each(Batch {
            at_key,
            cpu_ns,
            faults: minor_faults() - faults,
            splits: grown.blocks - shape.blocks,
            doubled_to: (grown.directory > shape.directory).then_some(grown.directory),
        });
    }
    // Ten million frees are nobody's interest.
    mem::forget(keyspace);
}

fn into_hashbrown(keys: usize, each: &mut dyn FnMut(Batch)) {
    let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
    let mut map: hashbrown::HashMap<[u8; KEY_BYTES], Box<([u8; 32], u64)>, _> = hashbrown::HashMap::with_hasher(hasher);
    for at_key in (0..keys).step_by(BATCH) {
        let names: [[u8; KEY_BYTES]; BATCH] = std::array::from_fn(|offset| name(at_key + offset));
        let (capacity, faults) = (map.capacity(), minor_faults());
        let start_ns = thread_cpu_ns();
        for name in names {
            map.insert(name, Box::new((VALUE, at_key as u64 % LIFETIME_MS)));
        }
        let cpu_ns = thread_cpu_ns() - start_ns;
        each(Batch {
            at_key,
            cpu_ns,
            faults: minor_faults() - faults,
            splits: 0,
            doubled_to: (map.capacity() > capacity).then_some(map.capacity()),
        });
    }
    mem::forget(map);
}

fn name(n: usize) -> [u8; KEY_BYTES] {
    let mut name = *b"key:000000000000";
    let mut rest = n;
    for digit in name[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}

fn minor_faults() -> u64 {
    // SAFETY: all-zero bytes are a valid rusage, which the call fills.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: a valid place to write to.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    usage.ru_minflt as u64
}

fn forbid_huge_pages() -> io::Result<()> {
    // SAFETY: changes a flag of this process.
    match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn summary(keys: usize, runs: &[Run; 2]) -> String {
    let mut page = format!(
        "# Growth: {keys} keys in batches of {BATCH}\n\nCPU time of a batch divided by its commands, microseconds. \
         {KEY_BYTES}-byte keys, {}-byte values, deadlines; mimalloc; {}.\n\n",
        VALUE.len(),
        results::machine()
    );
    page += "| | mean | p50 | p99 | p99.99 | p99.999 | max |\n|---|---|---|---|---|---|---|\n";
    let us = |ns: u64| format!("{:.3}", ns as f64 / 1000.0);
    let quantiles = [0.5, 0.99, 0.9999, 0.99999, 1.0];
    for run in runs {
        let cells: Vec<String> = quantiles.iter().map(|&q| us(run.a_command_ns.value_at_quantile(q))).collect();
        let _ = writeln!(page, "| {} | {} | {} |", run.name, us(run.total_ns / keys as u64), cells.join(" | "));
    }
    let [keyspace, hashbrown] = runs;
    let ratio = |q| {
        let of = |run: &Run| run.a_command_ns.value_at_quantile(q) as f64;
        format!("{:.2}", of(hashbrown) / of(keyspace))
    };
    let ratios: Vec<String> = quantiles.iter().map(|&q| ratio(q)).collect();
    let mean = hashbrown.total_ns as f64 / keyspace.total_ns as f64;
    let _ = writeln!(page, "| hashbrown / keyspace | {mean:.2} | {} |\n", ratios.join(" | "));

    let p99999_ns = keyspace.a_command_ns.value_at_quantile(0.99999);
    let verdict = if p99999_ns <= PROMISE_NS { "PASS" } else { "MISS" };
    let _ =
        writeln!(page, "{verdict}: keyspace p99.999 {} us, promised at most {} us\n", us(p99999_ns), us(PROMISE_NS));
    for run in runs {
        let _ = writeln!(page, "## {}: the longest batches\n", run.name);
        for (class, batch) in ["nothing grew", "split", "doubling"].iter().zip(&run.by_cause) {
            if batch.cpu_ns > 0 {
                let _ = writeln!(page, "- longest with {class}: {} us the batch ({})", us(batch.cpu_ns), batch.cause());
            }
        }
        page += "\n| at key | batch us | us a command | cause |\n|---|---|---|---|\n";
        for batch in &run.longest {
            let (cpu, each) = (us(batch.cpu_ns), us(batch.ns_a_command()));
            let _ = writeln!(page, "| {} | {cpu} | {each} | {} |", batch.at_key, batch.cause());
        }
        page += "\n";
    }
    page
}
