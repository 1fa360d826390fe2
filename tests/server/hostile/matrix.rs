//! Every command within a transaction and within a script, beside each command that holds everything: each is answered.
//!
//! A *cell* is a command of the table, with arguments that make sense, and one that holds; they meet on a few connections
//! at once, in several ways. All cells come, in an order that a seed says, as far as there is time.
//!
//! - `EMBERDB_TEST_MATRIX_SECONDS`: how long each test goes on (default [`DEFAULT_SECONDS`])
//! - `EMBERDB_FUZZ_SEED`: the seed, which a failure prints

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use super::check::{Checks, DATABASES};
use super::draw::Draw;
use super::requests::{Args, Requests, joined};
use super::table::{self, Command};
use super::{payloads, setting};
use crate::common::seccomp::is_refused;
use crate::common::{Client, Kind, Server, Value, encode, wait_until, words};

const DEFAULT_SECONDS: u64 = 10;
/// A connection that is not answered for so long never is, however busy the machine.
const HANGS: Duration = Duration::from_secs(40);
/// Cells until somebody looks whether all is well.
const CELLS_A_CHECK: usize = 40;

const FLAGS: &[&str] = &[
    "--appendonly",
    "yes",
    "--enable-debug-command",
    "yes",
    "--busy-reply-threshold",
    "1000",
    "--proto-max-bulk-len",
    "4mb",
    "--client-output-buffer-limit",
    "normal 64mb 0 0 pubsub 32mb 0 0",
];

/// What holds everything, or waits for what does.
const HOLDING: &[&str] = &[
    "DBSIZE",
    "KEYS *",
    "RANDOMKEY",
    "SCAN 0",
    "FLUSHALL",
    "FLUSHDB ASYNC",
    "SWAPDB 0 1",
    "MSET string:0 1 string:1 2 string:2 3 other:0 4 other:1 5",
    "SAVE",
    "BGSAVE",
    "BGREWRITEAOF",
    "CONFIG SET appendonly yes",
    "CONFIG SET appendonly no",
    "CONFIG SET appendfsync always",
    "CONFIG SET appendfsync everysec",
    "CONFIG SET appendfsync no",
    "CONFIG SET maxmemory 100mb",
    "CONFIG RESETSTAT",
    "DEBUG LOADAOF",
    "DEBUG RELOAD",
    "DEBUG DIGEST",
    "EXPIRY PURGE",
    "FUNCTION FLUSH",
    "SCRIPT FLUSH",
    "REPLICAOF NO ONE",
    "FAILOVER",
    "CLIENT PAUSE 10 ALL",
    "CLIENT PAUSE 10 WRITE",
    "EVAL return(redis.call('DBSIZE')) 0",
    "EVAL for(i)=1,1e5(do)end(return)redis.call('SET','un'..'declared',1) 0",
];

/// Commands whose arguments are not drawn, and what is asked of them.
const GIVEN: &[(&str, &[&str])] = &[
    // Ends the server, as it should.
    ("SHUTDOWN", &["SHUTDOWN ABORT"]),
    ("DEBUG", &["DEBUG SLEEP 0", "DEBUG DIGEST", "DEBUG RELOAD", "DEBUG LOADAOF", "DEBUG OBJECT string:0"]),
    // The connection would say nothing more.
    ("CLIENT REPLY", &["CLIENT REPLY ON"]),
    ("CLIENT PAUSE", &["CLIENT PAUSE 10 ALL", "CLIENT PAUSE 10 WRITE"]),
    (
        "CONFIG SET",
        &[
            "CONFIG SET appendonly yes",
            "CONFIG SET appendonly no",
            "CONFIG SET appendfsync always",
            "CONFIG SET appendfsync everysec",
            "CONFIG SET appendfsync no",
            "CONFIG SET maxmemory 100mb maxmemory-policy allkeys-lru",
            "CONFIG SET hz 10",
            "CONFIG SET save 1",
        ],
    ),
    ("REPLICAOF", &["REPLICAOF NO ONE", "REPLICAOF 127.0.0.1 1"]),
    ("SLAVEOF", &["SLAVEOF NO ONE"]),
    ("FAILOVER", &["FAILOVER", "FAILOVER ABORT", "FAILOVER TO 127.0.0.1 1 FORCE TIMEOUT 10"]),
    ("MIGRATE", &["MIGRATE 127.0.0.1 1 string:0 0 10"]),
    // Nobody else could do anything.
    ("ACL SETUSER", &["ACL SETUSER somebody on nopass +@all ~*"]),
    ("ACL DELUSER", &["ACL DELUSER somebody"]),
    ("FCALL", &["FCALL stray 1 string:0", "FCALL late 1 string:0"]),
    ("EVAL", &["EVAL return(redis.call('SET','un'..'declared',1)) 1 string:0"]),
    ("EXPIRY POLICY SET", &["EXPIRY POLICY SET none: 50ms EVENTS ended"]),
];

const LIBRARY: &str = "#!lua name=matrix
redis.register_function('stray', function() return redis.call('SET', 'un' .. 'declared', 1) end)
redis.register_function('late', function(keys)
  redis.call('SET', keys[1], 1) for i = 1, 1e5 do end return redis.call('DBSIZE')
end)";

/// In whose reach a command is called by a script: nothing, or a key that has nothing to do with it.
const CALL: &str = "return redis.pcall(unpack(ARGV))";
const CALL_BEHIND_A_WRITE: &str = "redis.call('SET', KEYS[1], 1) return redis.pcall(unpack(ARGV))";
const CALL_LATE: &str =
    "redis.call('SET', KEYS[1], 1) for i = 1, 1e5 do end local said = redis.pcall(unpack(ARGV)) return said";

macro_rules! cases {
    ($($name:ident: $shards:literal $network:literal $sync:literal,)*) => {$(
        #[test]
        fn $name() {
            none_hangs($shards, $network, $sync);
        }
    )*};
}

cases! {
    nothing_hangs_on_one_shard: 1 "auto" "everysec",
    nothing_hangs_on_two_shards: 2 "auto" "always",
    nothing_hangs_over_glommio: 2 "glommio" "everysec",
    nothing_hangs_over_epoll: 1 "epoll" "always",
}

fn none_hangs(shards: usize, network: &str, sync: &str) {
    if is_refused(network) {
        return;
    }
    let databases = DATABASES.to_string();
    let flags = [FLAGS, &["--network", network, "--databases", &databases, "--appendfsync", sync]].concat();
    let server = Server::start(Kind::Ember { shards }, &flags);
    let table = table::read(&mut server.client());
    let seed = setting("EMBERDB_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    eprintln!("EMBERDB_FUZZ_SEED={seed}");
    let mut requests = Requests::new(&table, Draw::new(seed, payloads(&server)));
    let mut checks = Checks::new(server);

    // (What ends a transaction says nothing within one.)
    let commands = table.iter().filter(|command| !["EXEC", "DISCARD"].contains(&joined(command).as_str()));
    let mut cells: Vec<(&Command, &str)> =
        commands.flat_map(|command| HOLDING.iter().map(move |&holding| (command, holding))).collect();
    requests.draw.rng.shuffle(&mut cells);
    let seconds = setting("EMBERDB_TEST_MATRIX_SECONDS").unwrap_or(DEFAULT_SECONDS);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut done, mut slowest) = (0, (Duration::ZERO, String::new()));
    for (command, holding) in cells.iter().cycle() {
        if Instant::now() >= end {
            break;
        }
        if done % CELLS_A_CHECK == 0 {
            checks.after_batch();
            let mut client = checks.server.client();
            let loaded = client.command(&["FUNCTION", "LOAD", "REPLACE", LIBRARY]);
            assert!(!loaded.is_error(), "before cell {done}: {loaded:?}");
        }
        let told = format!("{} beside {holding}, cell {done}", joined(command));
        let began = Instant::now();
        cell(&mut checks.server, &mut requests, command, holding, &told);
        slowest = slowest.max((began.elapsed(), told));
        done += 1;
    }
    checks.after_batch();
    eprintln!("{done} of {} cells; the slowest took {:?}: {}", cells.len(), slowest.0, slowest.1);
}

fn request(requests: &mut Requests, command: &Command) -> Args {
    let name = joined(command);
    if name == "FUNCTION LOAD" {
        return ["FUNCTION", "LOAD", "REPLACE", LIBRARY].map(|word| word.as_bytes().to_vec()).into();
    }
    match GIVEN.iter().find(|(given, _)| *given == name) {
        Some((_, lines)) => words(requests.draw.pick::<&str>(lines)),
        None => requests.plausible(command),
    }
}

/// What one cell sends, a pipeline for each connection.
fn cell(server: &mut Server, requests: &mut Requests, command: &Command, holding: &str, told: &str) {
    let holding = words(holding);
    let key = requests.draw.key("string");
    let set: Args = vec![b"SET".to_vec(), key.clone(), b"1".to_vec()];
    let one = request(requests, command);
    let other = request(requests, command);
    let script = |source: &str, keys: &[&Vec<u8>], what: &Args| {
        let head = [b"EVAL".to_vec(), source.as_bytes().to_vec(), keys.len().to_string().into_bytes()];
        head.into_iter().chain(keys.iter().map(|key| key.to_vec())).chain(what.iter().cloned()).collect::<Args>()
    };
    let transaction = |commands: &[&Args]| -> Vec<Args> {
        let commands = commands.iter().map(|&command| command.clone());
        [words("MULTI")].into_iter().chain(commands).chain([words("EXEC")]).collect()
    };
    let mut pipelines = vec![
        vec![holding.clone()],
        transaction(&[&set, &one]),
        vec![script(CALL, &[], &one)],
        vec![script(requests.draw.pick::<&str>(&[CALL_BEHIND_A_WRITE, CALL_LATE]), &[&key], &other)],
        match requests.draw.rng.u32(..4) {
            0 => transaction(&[&holding, &other]),
            1 => transaction(&[&one, &holding, &script(CALL_LATE, &[&key], &other)]),
            2 => vec![script(CALL_LATE, &[&key], &holding)],
            _ => transaction(&[&set, &script(CALL, &[], &holding)]),
        },
    ];
    requests.draw.rng.shuffle(&mut pipelines);
    let mut clients: Vec<Client> = pipelines.iter().map(|_| server.client()).collect();
    for (client, pipeline) in clients.iter_mut().zip(&pipelines) {
        let mut bytes: Vec<u8> = pipeline.iter().flat_map(|args| encode(args)).collect();
        // (It is answered while data are loaded, and to who listens.)
        bytes.extend(encode(&["SUBSCRIBE", MARKER]));
        // Whoever kills clients may have killed this one.
        let _ = client.try_send_raw(&bytes);
    }
    let end = Instant::now() + HANGS;
    for (client, pipeline) in clients.iter_mut().zip(&pipelines) {
        loop {
            match client.try_read_within(end.saturating_duration_since(Instant::now())) {
                Ok(reply) if is_marker(&reply) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::TimedOut => panic!("{told} hangs: {}", shown(pipeline)),
                Err(_) => break,
            }
        }
    }
    assert!(!server.has_ended(), "{told}: the process has ended");
    for line in ["REPLICAOF NO ONE", "CLIENT UNPAUSE"] {
        let is_done = || {
            // (What a connection has asked that was killed itself is done whole: CLIENT KILL may end this one.)
            let mut client = server.client();
            client
                .try_send_raw(&encode(&words(line)))
                .and_then(|()| client.try_read())
                .is_ok_and(|reply| reply == Value::ok())
        };
        // (Data may still be loaded where whoever asked for that has gone.)
        assert!(wait_until(HANGS, is_done), "{told}: {line}");
    }
}

const MARKER: &str = "that-was-all";

fn is_marker(reply: &Value) -> bool {
    match reply {
        Value::Array(items) | Value::Push(items) => {
            items.get(1).is_some_and(|channel| channel.bytes() == Some(MARKER.as_bytes()))
        }
        _ => false,
    }
}

fn shown(pipeline: &[Args]) -> String {
    let shown = |args: &Args| args.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
    let mut text = pipeline.iter().map(shown).collect::<Vec<_>>().join("; ");
    text.truncate(2_000);
    text
}
