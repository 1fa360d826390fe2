//! Huge values: the CPU time of every step while a collection of ten million elements grows, and while it is freed
//! after its key was deleted, overwritten or expired.
//!
//! Growth is measured in batches of 16 elements, as `growth` does for keys, and freeing in the slices that a shard gives
//! back between two turns of serving. Times are by CLOCK_THREAD_CPUTIME_ID. The promise: no slice takes more than 1 ms.
//! What the command itself takes (unlinking the value) is in the table, too. A virtual machine counts what its host takes
//! away: the control, a loop that touches no memory, tells how often that makes a slice long.
//!
//! `cargo bench --bench huge -- [--elements N] [--quick] [--out FOLDER]`

#[path = "shared/results.rs"]
mod results;

use emberdb::clock::{Now, thread_cpu_ns};
use emberdb::keyspace::{Hasher, Key, Keyspace, Owned, Touch, Value};
use emberdb::shard::GARBAGE_A_SLICE;
use emberdb::value::NodeType;
use emberdb::value::hash::Hash;
use emberdb::value::list::{End, Limit, List};
use emberdb::value::pack::Element;
use emberdb::value::set::Set;
use emberdb::value::stream::{ChunkLimits, Id, Log, Stream};
use emberdb::value::zset::{Edit, Zset};
use hdrhistogram::Histogram;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{error, fs};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// As the server has it, so that the same threads give pages back.
#[allow(non_upper_case_globals)]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static malloc_conf: &[u8] = b"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0\0";

const BATCH: usize = 16;
const PROMISE_NS: u64 = 1_000_000;
const HIGHEST_NS: u64 = 60_000_000_000;
const KEY: &[u8] = b"huge";
const VALUE: &[u8] = b"a value of 24 bytes, all";
const BEGIN_MS: u64 = 1_000_000;
const LIFETIME_MS: u64 = 60_000;

#[derive(Clone, Copy, Debug)]
enum Way {
    Delete,
    Overwrite,
    Expire,
}

fn main() -> Result<(), Box<dyn error::Error>> {
    let mut elements = 10_000_000;
    let mut out = results::folder("huge");
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--elements" => elements = arguments.next().ok_or("--elements needs a number")?.parse()?,
            "--quick" => elements = 1_000_000,
            "--out" => out = PathBuf::from(arguments.next().ok_or("--out needs a folder")?),
            _ => return Err(format!("unknown argument {argument}").into()),
        }
    }
    // As the server refuses huge pages.
    // SAFETY: changes a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    fs::create_dir_all(&out)?;
    let mut page = format!(
        "# Huge values: {elements} elements\n\nCPU time in microseconds: of {BATCH} elements while it grows, of the \
         command that ends it, of the slices in which it is freed. {}.\n\n\
         | type | growth p50 | p99.999 | max | way | command | slices | mean | p99.9 | max | over 1 ms |\n\
         |---|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|\n",
        results::machine()
    );
    for way in [Way::Delete, Way::Overwrite, Way::Expire] {
        let limit = Limit::of(-2, 0);
        report("list", elements, way, &mut page, List::new(limit), |list, _| {
            list.push(End::Back, Element::Bytes(VALUE), limit);
        });
        report("set", elements, way, &mut page, Set::default(), |set, n| assert!(set.insert(&name(n))));
        report("hash", elements, way, &mut page, Hash::default(), |hash, n| {
            hash.fields.set(&name(n), Value::Bytes(VALUE));
        });
        let mut rng = fastrand::Rng::with_seed(1);
        report("zset", elements, way, &mut page, Zset::default(), |zset, n| {
            assert!(zset.insert(&name(n), rng.f64()));
        });
        let limits = ChunkLimits { bytes: 4096, entries: 100 };
        report("stream", elements, way, &mut page, Stream::default(), |stream, n| {
            let pairs = [&b"field"[..], VALUE];
            let bytes = Log::check_size(pairs.into_iter()).expect("it is small");
            stream.log.append(Id { ms: 1 + n as u64, seq: 0 }, pairs.into_iter(), bytes, limits);
        });
    }
    control(&mut page);
    print!("{page}");
    fs::write(out.join("summary.md"), &page)?;
    println!("results: {}", out.display());
    Ok(())
}

/// A row of the table: the value grows, ends in this way, and is freed.
fn report<T: NodeType>(
    kind: &str,
    elements: usize,
    way: Way,
    page: &mut String,
    mut node: T,
    mut add: impl FnMut(&mut T, usize),
) {
    let mut growth = histogram();
    for at in (0..elements).step_by(BATCH) {
        growth.saturating_record(cpu_ns(|| (at..at + BATCH).for_each(|n| add(&mut node, n))).0);
    }
    let mut keyspace = Keyspace::new(1, Hasher::new(1, 1));
    let hasher = keyspace.hasher().clone();
    let (key, now) = (hasher.key(KEY), Now::from_ms(BEGIN_MS));
    keyspace.insert_owned(0, key, Owned::node(node), Some(BEGIN_MS + LIFETIME_MS), now);
    let command_ns = cpu_ns(|| end(&mut keyspace, key, way, now)).0;
    let mut slices = histogram();
    loop {
        let (ns, more) = cpu_ns(|| keyspace.collect_garbage(GARBAGE_A_SLICE));
        slices.saturating_record(ns);
        if !more {
            break;
        }
    }
    let growth = [growth.value_at_quantile(0.5), growth.value_at_quantile(0.99999), growth.max()].map(us);
    let command = us(command_ns);
    let _ = writeln!(page, "| {kind} | {} | {way:?} | {command} | {} |", growth.join(" | "), of_slices(&slices));
}

/// Spins for as long as a long slice takes, as often as there are slices of a sorted set.
fn control(page: &mut String) {
    const SPINS: u64 = 100_000;
    const SLICES: usize = 64_000;
    let mut slices = histogram();
    for seed in 0..SLICES as u64 {
        let spin = || (0..SPINS).fold(seed, |mixed, n| std::hint::black_box(mixed.wrapping_mul(31).wrapping_add(n)));
        slices.saturating_record(cpu_ns(spin).0);
    }
    let _ = writeln!(page, "| control | | | | | | {} |", of_slices(&slices));
}

fn of_slices(slices: &Histogram<u64>) -> String {
    let mean = format!("{:.1}", slices.mean() / 1000.0);
    let over = slices.len() - slices.count_between(0, PROMISE_NS);
    format!("{} | {mean} | {} | {} | {over}", slices.len(), us(slices.value_at_quantile(0.999)), us(slices.max()))
}

fn us(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1000.0)
}

fn end(keyspace: &mut Keyspace, key: Key, way: Way, now: Now) {
    match way {
        Way::Delete => keyspace.edit(0, key, now, Touch::NOTHING).expect("it is there").remove(),
        Way::Overwrite => {
            keyspace.edit(0, key, now, Touch::NOTHING).expect("it is there").replace(Value::Bytes(b"small"), None);
        }
        Way::Expire => {
            let later = Now::from_ms(BEGIN_MS + LIFETIME_MS + 1);
            assert_eq!(keyspace.sweep_earliest(0, later.ms, later, 1).deleted, 1);
        }
    }
}

fn cpu_ns<R>(work: impl FnOnce() -> R) -> (u64, R) {
    let start_ns = thread_cpu_ns();
    let result = work();
    (thread_cpu_ns() - start_ns, result)
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("constant bounds are valid")
}

fn name(n: usize) -> [u8; 16] {
    let mut name = *b"elem:00000000000";
    let mut rest = n;
    for digit in name[5..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}
