//! The properties of `tests/fuzz/properties` on inputs made from a seed: those of the corpus, mutated. It runs with
//! every test run and on any compiler; `scripts/fuzz` runs the same properties with coverage to guide it.
//!
//! `EMBERDB_FUZZ_SECONDS` goes on for so long, each time from another seed.

#[path = "fuzz/properties/mod.rs"]
mod properties;

use std::fs;
use std::panic::{RefUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Inputs do not grow beyond this; the few in the corpus that are longer from the start take their time and are rare.
const INPUT_BYTES_MAX: usize = 4096;
const MUTATIONS_MAX: usize = 6;
const SEED: u64 = 11;
/// Of an input that fails.
const SHOWN_BYTES: usize = 1000;

#[test]
fn requests_are_parsed_the_same_however_they_arrive() {
    drive("parse", 40_000, properties::parse::check);
}

#[test]
fn configuration_files_are_valid_or_refused_with_their_line() {
    drive("config", 10_000, properties::config::check);
}

#[test]
fn rules_are_users_or_errors() {
    drive("acl", 10_000, properties::acl::check);
}

#[test]
fn numbers_are_read_as_they_are_written() {
    drive("number", 50_000, properties::number::check);
}

#[test]
fn values_in_rdb_form_are_read_or_refused() {
    drive("rdb", 50_000, properties::rdb::check);
}

#[test]
fn files_of_snapshots_are_read_or_refused() {
    drive("snapshot", 15_000, properties::snapshot::check);
}

#[test]
fn logs_are_read_up_to_where_they_are_whole() {
    drive("log", 10_000, properties::log::check);
}

#[test]
fn scripts_end_and_leave_their_machine_whole() {
    drive("script", 4_000, properties::script::check);
}

/// Checks every input of the corpus, then as many mutated ones.
fn drive(name: &str, cases: usize, check: impl Fn(&[u8]) + RefUnwindSafe) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name);
    let mut paths: Vec<_> =
        fs::read_dir(&folder).expect("a corpus").map(|entry| entry.expect("a corpus").path()).collect();
    paths.sort();
    let corpus: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).expect("an input")).collect();
    assert!(corpus.len() > 1, "the corpus is found");
    let run = |input: &[u8]| {
        if let Err(panic) = catch_unwind(|| check(input)) {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
            fs::write(&path, input).expect("a file for the input");
            let shown = &input[..input.len().min(SHOWN_BYTES)];
            eprintln!("the input is in {} and begins b\"{}\"", path.display(), shown.escape_ascii());
            resume_unwind(panic);
        }
    };
    corpus.iter().for_each(|input| run(input));

    let words = words_of(&corpus);
    let seconds = std::env::var("EMBERDB_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let seed = if end.is_some() { fastrand::u64(..) } else { SEED };
    eprintln!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for case in 0.. {
        let over = end.map_or(case >= cases, |end| Instant::now() >= end);
        if over {
            break;
        }
        run(&mutated(&corpus, &words, &mut rng));
    }
}

/// Runs of letters, of digits, and single other bytes: what mutations put in.
fn words_of(corpus: &[Vec<u8>]) -> Vec<&[u8]> {
    let class = |byte: &u8| match byte {
        byte if byte.is_ascii_alphabetic() || *byte == b'-' => 1,
        byte if byte.is_ascii_digit() => 2,
        _ => 0,
    };
    let mut words: Vec<&[u8]> = corpus
        .iter()
        .flat_map(|input| input.chunk_by(move |a, b| class(a) == class(b) && class(a) > 0))
        .filter(|word| word.len() <= 64)
        .chain([&b"\r\n"[..], b"-1", b"18446744073709551616", b"2147483647", b"\0", b"\xff", b"1e4933", b"inf"])
        .collect();
    words.sort_unstable();
    words.dedup();
    words
}

fn mutated(corpus: &[Vec<u8>], words: &[&[u8]], rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = pick(corpus, rng).clone();
    while input.len() > INPUT_BYTES_MAX && rng.u8(..) > 0 {
        input.clone_from(pick(corpus, rng));
    }
    let len_max = INPUT_BYTES_MAX.max(input.len());
    for _ in 0..rng.usize(1..=MUTATIONS_MAX) {
        let start = rng.usize(..=input.len());
        let len = if rng.bool() { rng.usize(..=4) } else { rng.usize(..=input.len()) };
        let range = start..(start + len).min(input.len());
        match rng.u8(..8) {
            0 => drop(input.drain(range)),
            1 => drop(input.splice(range, pick(words, rng).iter().copied())),
            2 => drop(input.splice(start..start, pick(words, rng).iter().copied())),
            3 => {
                let copy = input[range].to_vec();
                drop(input.splice(start..start, copy));
            }
            4 => {
                let other = pick(corpus, rng);
                input.truncate(start);
                input.extend_from_slice(&other[rng.usize(..=other.len())..]);
            }
            5 => drop(input.splice(start..start, std::iter::repeat_n(rng.u8(..), rng.usize(..80)))),
            6 => input.truncate(start),
            _ => {
                if let Some(byte) = input.get_mut(start) {
                    *byte = if rng.bool() { rng.u8(..) } else { *byte ^ 1 << rng.u32(..8) };
                }
            }
        }
    }
    input.truncate(len_max);
    input
}

fn pick<'a, T>(of: &'a [T], rng: &mut fastrand::Rng) -> &'a T {
    &of[rng.usize(..of.len())]
}
