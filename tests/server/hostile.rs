//! A fuzzer of commands: any command of the server's table with hostile arguments, in pipelines and transactions, over
//! several connections that hang up where they like. After every batch the process lives, answers, has not taken more
//! memory than it may, has as many keys as SCAN shows, and has forgotten everybody who is gone.
//!
//! `hostile/table.rs` asks the server what its commands take, `hostile/requests.rs` writes and mutates requests,
//! `hostile/scripts.rs` says what connections do with them, `hostile/play.rs` does it, `hostile/check.rs` looks.
//! `hostile/matrix.rs` lets each command meet each of those that hold everything, `hostile/together/` everything odd at once.
//!
//! A round begins with an empty server and has a seed, which says everything that is sent; what happens in which order
//! is not in its power.
//!
//! - `EMBERDB_FUZZ_SECONDS`: how long each test goes on (default [`DEFAULT_SECONDS`])
//! - `EMBERDB_FUZZ_SEED`: the seed of the first round; a failure prints that of its own, and leaves what was sent in a file

#[path = "hostile/check.rs"]
mod check;
#[path = "hostile/draw.rs"]
mod draw;
#[path = "hostile/matrix.rs"]
mod matrix;
#[path = "hostile/play.rs"]
mod play;
#[path = "hostile/requests.rs"]
mod requests;
#[path = "hostile/scripts.rs"]
mod scripts;
#[path = "hostile/table.rs"]
pub mod table;
#[path = "hostile/together/mod.rs"]
mod together;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::seccomp::is_refused;
use crate::common::{Kind, Server, Value, setting, words};
use check::{Checks, DATABASES};
use draw::Draw;
use play::Tally;
use requests::{HARMLESS_DIRECTIVES, Requests};
use scripts::{Act, Script};
use table::Command;

const DEFAULT_SECONDS: u64 = 15;
/// Of each test that has everything odd together.
const TOGETHER_SECONDS: u64 = 5;
const BATCHES_A_ROUND: usize = 20;

/// Bounds what honest commands may build: no value is longer, and no client has more to read.
const FLAGS: &[&str] = &[
    "--proto-max-bulk-len",
    "4mb",
    "--client-output-buffer-limit",
    "normal 64mb 0 0 pubsub 32mb 0 0",
    "--client-query-buffer-limit",
    "32mb",
    "--enable-debug-command",
    "yes",
];

macro_rules! cases {
    ($($name:ident: $shards:literal $network:literal,)*) => {$(
        #[test]
        fn $name() {
            survives(stringify!($name), $shards, $network);
        }
    )*};
}

cases! {
    one_shard_survives: 1 "auto",
    two_shards_survive: 2 "auto",
    three_shards_survive: 3 "auto",
    four_shards_survive: 4 "auto",
    one_shard_survives_over_glommio: 1 "glommio",
    two_shards_survive_over_glommio: 2 "glommio",
    three_shards_survive_over_glommio: 3 "glommio",
    four_shards_survive_over_glommio: 4 "glommio",
}

fn survives(name: &'static str, shards: usize, network: &str) {
    if is_refused(network) {
        return;
    }
    let databases = DATABASES.to_string();
    let flags = [FLAGS, &["--network", network, "--databases", &databases]].concat();
    let server = Server::start(Kind::Ember { shards }, &flags);
    let table = table::read(&mut server.client());
    let payloads = payloads(&server);
    let settings = server.client().command(&[&["CONFIG", "GET"], HARMLESS_DIRECTIVES].concat());
    let mut checks = Checks::new(server);

    let end = Instant::now() + Duration::from_secs(setting("EMBERDB_FUZZ_SECONDS").unwrap_or(DEFAULT_SECONDS));
    let mut seed = setting("EMBERDB_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    let (mut rounds, mut tally) = (0, Tally::default());
    while Instant::now() < end {
        round(name, seed, end, &mut checks, &table, &payloads, &mut tally);
        restore(&checks.server, &settings);
        seed = seed.wrapping_add(1);
        rounds += 1;
    }
    eprintln!(
        "{rounds} rounds; {} replies were read, {} of them errors; at most {} MB, and {:?} until {} was answered",
        tally.replies,
        tally.errors,
        checks.peak_bytes >> 20,
        checks.slowest.0,
        checks.slowest.1
    );
}

macro_rules! together {
    ($($name:ident: $shards:literal $network:literal,)*) => {$(
        #[test]
        fn $name() {
            everything_odd_at_once(stringify!($name), $shards, $network);
        }
    )*};
}

together! {
    one_shard_keeps_elements: 1 "auto",
    two_shards_keep_elements: 2 "auto",
    three_shards_keep_elements: 3 "auto",
    four_shards_keep_elements: 4 "auto",
    one_shard_keeps_elements_over_glommio: 1 "glommio",
    two_shards_keep_elements_over_glommio: 2 "glommio",
    three_shards_keep_elements_over_glommio: 3 "glommio",
    four_shards_keep_elements_over_glommio: 4 "glommio",
    one_shard_keeps_elements_over_epoll: 1 "epoll",
    two_shards_keep_elements_over_epoll: 2 "epoll",
    three_shards_keep_elements_over_epoll: 3 "epoll",
    four_shards_keep_elements_over_epoll: 4 "epoll",
}

fn everything_odd_at_once(name: &str, shards: usize, network: &str) {
    if is_refused(network) {
        return;
    }
    let databases = DATABASES.to_string();
    let flags = [together::FLAGS, &["--network", network, "--databases", &databases]].concat();
    let mut checks = Checks::new(Server::start(Kind::Ember { shards }, &flags));
    let end = Instant::now() + Duration::from_secs(setting("EMBERDB_FUZZ_SECONDS").unwrap_or(TOGETHER_SECONDS));
    let mut seed = setting("EMBERDB_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    let mut totals = together::Totals::default();
    while Instant::now() < end {
        together::round(name, seed, &mut checks, &mut totals);
        seed = seed.wrapping_add(1);
    }
    eprintln!(
        "{} rounds; {} requests, {} elements pushed, {} of them popped, {} in replies to connections that had ended; drawn {} times",
        totals.rounds, totals.asked, totals.pushed, totals.popped, totals.unexplained, totals.drawn
    );
    assert!(totals.drawn > 0, "nobody could ask who waits for whom");
}

fn round(
    name: &'static str,
    seed: u64,
    end: Instant,
    checks: &mut Checks,
    table: &[Command],
    payloads: &[Vec<u8>],
    tally: &mut Tally,
) {
    let mut requests = Requests::new(table, Draw::new(seed, payloads.to_vec()));
    let mut story = Story { name, seed, batches: Vec::new() };
    for batch in 0..BATCHES_A_ROUND {
        if batch > 0 && Instant::now() >= end {
            break;
        }
        story.batches.push(requests.batch());
        play::play(checks.server.port(), story.batches.last().expect("pushed"), tally);
        checks.after_batch();
    }
    checks.after_round();
    story.batches.clear();
}

/// Values of all types, in the form of DUMP.
fn payloads(server: &Server) -> Vec<Vec<u8>> {
    let mut client = server.client();
    let values = [
        "SET 0 some-text",
        "SET 1 123456",
        "RPUSH 2 a 1 b 22 c",
        "SADD 3 1 2 3",
        "SADD 4 a b c",
        "HSET 5 a 1 b 2",
        "HSETEX 6 EX 1000 FIELDS 2 a 1 b 2",
        "ZADD 7 1 a 2 b 3.5 c",
        "XADD 8 1-1 a 1 b 2",
        "PFADD 9 a b c d",
    ];
    for value in values {
        assert!(!client.call(value).is_error(), "{value}");
    }
    for line in [
        "XADD 8 2-1 a 1 b 2",
        "XADD 8 3-1 other 1",
        "XGROUP CREATE 8 group:1 0",
        "XREADGROUP GROUP group:1 consumer:1 COUNT 1 STREAMS 8 >",
    ] {
        assert!(!client.call(line).is_error(), "{line}");
    }
    let dump = |nth: usize| match client.command(&[words("DUMP"), vec![nth.to_string().into_bytes()]].concat()) {
        Value::Bulk(bytes) => bytes,
        other => panic!("DUMP {nth}: {other:?}"),
    };
    let payloads = (0..values.len()).map(dump).collect();
    assert_eq!(server.client().call("FLUSHALL"), Value::ok());
    payloads
}

/// Each round begins with the same configuration.
fn restore(server: &Server, settings: &Value) {
    let set = [&[crate::common::bulk("CONFIG"), crate::common::bulk("SET")], settings.items()].concat();
    let args: Vec<_> = set.iter().filter_map(Value::bytes).collect();
    assert_eq!(server.client().command(&args), Value::ok());
}

/// What was sent in this round, told where it fails.
struct Story {
    name: &'static str,
    seed: u64,
    batches: Vec<Vec<Script>>,
}

impl Drop for Story {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let path = self.write();
            eprintln!(
                "in batch {} of the round; again: EMBERDB_FUZZ_SEED={}; what was sent is in {}",
                self.batches.len(),
                self.seed,
                path.display()
            );
        }
    }
}

impl Story {
    fn write(&self) -> PathBuf {
        let mut text = String::new();
        for (nth, batch) in self.batches.iter().enumerate() {
            for script in batch {
                text += &format!("--- batch {}, reads: {}, end: {:?}\n", nth + 1, script.reads, script.end);
                for act in &script.acts {
                    match act {
                        Act::Send(bytes) => text += &format!("send {}\n", bytes.escape_ascii()),
                        Act::Wait(time) => text += &format!("wait {time:?}\n"),
                    }
                }
            }
        }
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hostile-{}", self.name));
        let _ = fs::write(&path, text);
        path
    }
}
