//! What is told of changes is enough to make the same data again: random commands of every family run on EmberDB, several
//! connections at a time; what DEBUG JOURNAL shows of them is fed to redis-server and to a second EmberDB. Afterwards all
//! hold the same, deadlines included, no fed command was answered by an error, and no change had to be told as a whole key
//! because nobody had said what it was.
//!
//! Those that are fed believe that it is a year earlier (`propagation/behind.c`). So nothing dies there but by what it is
//! told: what is not told shows.
//!
//! - `EMBERDB_PROPAGATION_STEPS`: how many commands each test sends (default [`STEPS`])
//! - `EMBERDB_PROPAGATION_SEED`: the seed of the commands. (What runs between what else is up to the machine.)

#[path = "propagation/extras.rs"]
pub mod extras;
#[path = "propagation/feed.rs"]
mod feed;
#[path = "propagation/same.rs"]
pub mod same;
#[path = "propagation/told.rs"]
mod told;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Client, Kind, Server, encode, have_tool, setting, wait_until};
use crate::differential::generate::families::{Family, may_block};
use crate::differential::generate::{Args, Generator, Step};
use extras::Extras;
use feed::Feed;

const STEPS: usize = 10_000;
/// Generators that run at the same time, beside a connection that waits for keys.
const GENERATORS: usize = 2;
/// For everything to be the same, once nobody writes.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);

macro_rules! families {
    ($($module:ident: $family:ident, $extras:ident;)*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn one_shard_tells_all() {
                propagate(1, Family::$family, Extras::$extras);
            }

            #[test]
            fn three_shards_tell_all() {
                propagate(3, Family::$family, Extras::$extras);
            }
        }
    )*};
}

families! {
    strings: Strings, Strings;
    lists: Lists, Lists;
    sets: Sets, Keys;
    hashes: Hashes, Keys;
    fields_with_deadlines: Hashes, Fields;
    members_with_deadlines: Sets, Members;
    scored_members_with_deadlines: SortedSets, ScoredMembers;
    sorted_sets: SortedSets, SortedSets;
    streams: Streams, Streams;
    bits: Bits, Keys;
    hyperloglogs: HyperLogLogs, Keys;
    geo: Geo, Keys;
    sort: Sort, Keys;
    dump: Dump, Keys;
    everything: Everything, Everything;
    policies: Everything, Policies;
}

fn propagate(shards: usize, family: Family, extras: Extras) {
    if !have_tool("redis-server") || !have_tool("cc") {
        return;
    }
    let seed = setting("EMBERDB_PROPAGATION_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("EMBERDB_PROPAGATION_SEED={seed}");
    let steps = setting("EMBERDB_PROPAGATION_STEPS").map_or(STEPS, |steps| steps as usize);
    let debug = ["--enable-debug-command", "yes"];
    // Whoever reads the feed may fall behind, and is not to be cut off for it.
    let patient = ["--client-output-buffer-limit", "pubsub 0 0 0"];
    // Every key gets a deadline, is renewed by use, and its death is written down.
    let policy =
        ["--expiry-policy", "", "1h", "JITTER", "50", "MAX", "20h", "SLIDING", "EVENTS", "deaths", "WITHVALUE"];
    let policies = if extras == Extras::Policies { &policy[..] } else { &[] };
    let source = Server::start(Kind::Ember { shards }, &[&debug[..], &patient, policies].concat());
    let library = behind(source.folder());
    let mut targets = vec![Server::start_under(&library, Kind::Ember { shards: 4 - shards }, &debug)];
    // What it does not know, deadlines of fields and members, is fed to an EmberDB only.
    if !matches!(extras, Extras::Fields | Extras::Members | Extras::ScoredMembers) {
        targets.push(Server::start_under(&library, Kind::Redis, &debug));
    }
    let mut feed = Feed::start(&source, &targets);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait_for_keys(&source, extras, seed, &is_over));
        let generators: Vec<_> = (0..GENERATORS as u64)
            .map(|nth| (seed.wrapping_add(nth), &source))
            .map(|(seed, source)| scope.spawn(move || play(source, family, extras, seed, steps / GENERATORS)))
            .collect();
        let played: Vec<_> = generators.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        waiting.join().expect("the connection that waits");
        played.into_iter().for_each(|result| result.expect("a generator"));
    });
    let mut differences = Vec::new();
    // Until what dies soon is dead, and has been told.
    let settled = wait_until(SETTLE_LIMIT, || {
        feed.catch_up();
        differences = targets.iter().flat_map(|target| same::differences(&source, target)).collect();
        differences.is_empty()
    });
    assert!(settled, "EMBERDB_PROPAGATION_SEED={seed}\n{}\n{}", differences.join("\n"), feed.tail(&differences));
    assert_eq!(source.info("unreported_changes").as_deref(), Some("0"));
    let told = feed.end();
    eprintln!("{told} commands were told");
    assert!(told > 0, "nothing was told");
}

/// What is longer than an argument may be is told in pieces.
#[test]
fn large_values_go_from_shard_to_shard() {
    if !have_tool("redis-server") || !have_tool("cc") {
        return;
    }
    let debug = ["--enable-debug-command", "yes", "--proto-max-bulk-len", "1mb"];
    let source = Server::start(Kind::Ember { shards: 3 }, &debug);
    let library = behind(source.folder());
    let targets = [Kind::Ember { shards: 1 }, Kind::Redis].map(|kind| Server::start_under(&library, kind, &debug));
    let (mut feed, mut client) = (Feed::start(&source, &targets), source.client());
    let element = |n: usize| format!("{n}:{}", "x".repeat(500)).into_bytes();
    for command in ["RPUSH", "SADD", "ZADD", "HSET"] {
        for piece in 0..30 {
            let mut args = vec![command.as_bytes().to_vec(), format!("{command}:0").into_bytes()];
            for n in piece * 100..piece * 100 + 100 {
                match command {
                    "ZADD" => args.extend([format!("{n}.5").into_bytes(), element(n)]),
                    "HSET" => args.extend([element(n), n.to_string().into_bytes()]),
                    _ => args.push(element(n)),
                }
            }
            assert!(!client.command(&args).is_error());
        }
        client.call(&format!("EXPIRE {command}:0 100000"));
        // To other shards, and back.
        for n in 0..8 {
            assert_eq!(client.call(&format!("RENAME {command}:{n} {command}:{}", n + 1)), crate::common::Value::ok());
        }
    }
    let mut differences = Vec::new();
    // (What other shards have done may be told behind the marker.)
    wait_until(SETTLE_LIMIT, || {
        feed.catch_up();
        differences = targets.iter().flat_map(|target| same::differences(&source, target)).collect();
        differences.is_empty()
    });
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    feed.end();
}

/// The library under which it is a year earlier.
fn behind(folder: &Path) -> PathBuf {
    let library = folder.join("behind.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/propagation/behind.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    assert!(compiled.expect("cc runs").success());
    library
}

/// Commands of a family, on two connections, pipelined.
pub fn play(server: &Server, family: Family, extras: Extras, seed: u64, steps: usize) {
    let (mut first, mut second) = (server.client(), server.client());
    let mut generator = Generator::new(seed, family);
    let mut rng = fastrand::Rng::with_seed(seed ^ 1);
    let is_told = |args: &Args| server.kind().is_ember() || !is_kept_from_replicas(args);
    let (mut chunk, mut in_multi): (Vec<Args>, bool) = (Vec::new(), false);
    for _ in 0..steps {
        match generator.next_step() {
            Step::Command(args, _)
            | Step::Random(args, _)
            | Step::Pop(args)
            | Step::Trim(args, _)
            | Step::ReadGroup(args)
            | Step::SetId(args) => {
                match &args[0].to_ascii_uppercase()[..] {
                    b"MULTI" => in_multi = true,
                    b"EXEC" | b"DISCARD" => in_multi = false,
                    _ => {}
                }
                // Somebody else may have taken what it would get: it would wait for ever.
                if (in_multi || !may_block(&args)) && is_told(&args) {
                    chunk.push(args);
                }
            }
            Step::Elsewhere(args, _) if !may_block(&args) && is_told(&args) => drop(second.command(&args)),
            Step::Exchange { from, to, options, .. } => {
                if let Some(payload) = second.command(&[b"DUMP".to_vec(), from]).bytes() {
                    let restore = [b"RESTORE".to_vec(), to, b"0".to_vec(), payload.to_vec()];
                    chunk.push(restore.into_iter().chain(options).collect());
                }
            }
            Step::Elsewhere(..) | Step::Scan(..) | Step::RandomKey => {}
        }
        if rng.u32(..4) == 0 {
            let args = extras.draw(&mut rng);
            if args[0] == b"DUMPRESTORE" {
                // What is in it may be dead by then.
                send(&mut first, &mut chunk);
                if let Some(payload) = second.command(&[b"DUMP".as_slice(), &args[1]]).bytes() {
                    chunk.push(
                        [b"RESTORE".as_slice(), &args[2], b"0", payload, b"REPLACE"].map(<[u8]>::to_vec).to_vec(),
                    );
                }
            } else {
                chunk.push(args);
            }
        }
        if chunk.len() >= 20 {
            send(&mut first, &mut chunk);
        }
    }
    send(&mut first, &mut chunk);
}

/// A BITFIELD that writes nothing because of OVERFLOW FAIL makes its string longer all the same, or makes one; redis-server
/// tells its replicas nothing of that, as its own replicas show.
fn is_kept_from_replicas(args: &Args) -> bool {
    let is = |arg: &Vec<u8>, word: &[u8]| arg.eq_ignore_ascii_case(word);
    is(&args[0], b"bitfield") && args.iter().any(|arg| is(arg, b"fail"))
}

fn send(client: &mut Client, chunk: &mut Vec<Args>) {
    client.send_raw(&chunk.iter().flat_map(|args| encode(args)).collect::<Vec<u8>>());
    chunk.drain(..).for_each(|_| drop(client.read()));
}

/// One that waits for keys, again and again.
pub fn wait_for_keys(server: &Server, extras: Extras, seed: u64, is_over: &AtomicBool) {
    let (mut client, mut rng) = (server.client(), fastrand::Rng::with_seed(seed ^ 2));
    while !is_over.load(Ordering::Relaxed) {
        match extras.draw_blocking(&mut rng) {
            Some(args) => drop(client.command(&args)),
            None => break,
        }
    }
}
