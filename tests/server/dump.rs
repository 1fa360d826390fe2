//! Values go from EmberDB to redis-server and back, by DUMP and RESTORE, and are the same there: of every type, made
//! by commands of a seed, small and large, with texts that compress and that do not.
//!
//! `EMBERDB_TEST_DUMPS` says how many; the seed of a failure is shown.

use crate::common::{Client, Kind, Server, Value, have_tool, int};

const DUMPS: usize = 400;
const SEED: u64 = 4;

/// How a value is made, and how it is read: in an order of its own, or to be sorted.
struct Made {
    commands: Vec<Vec<Vec<u8>>>,
    /// One or several commands.
    read: &'static [&'static str],
    sorted: bool,
    /// The payload is byte for byte that of redis-server: it does not depend on the order of a hash table.
    same_bytes: bool,
}

fn text(rng: &mut fastrand::Rng) -> Vec<u8> {
    match rng.u8(..20) {
        0..5 => (rng.i64(..) >> rng.u32(..64)).to_string().into_bytes(),
        5..12 => (0..rng.usize(1..8)).map(|_| rng.lowercase() as u8).collect(),
        12..17 => format!("member:{}", rng.u32(..1000)).into_bytes(),
        17 => vec![rng.u8(..); rng.usize(..300)],
        18 => (0..rng.usize(..9000) >> rng.u32(..13)).map(|_| rng.u8(..)).collect(),
        _ => b"compressible ".repeat(rng.usize(1..2000) >> rng.u32(..10)),
    }
}

/// Of one command.
const ELEMENTS: usize = 50;

/// `head` with as many elements as there are, in as many commands as it takes.
fn add(head: &[&str], elements: &[Vec<Vec<u8>>]) -> Vec<Vec<Vec<u8>>> {
    let command = |chunk: &[Vec<Vec<u8>>]| {
        let mut args: Vec<Vec<u8>> = head.iter().map(|word| word.as_bytes().to_vec()).collect();
        args.extend(chunk.iter().flatten().cloned());
        args
    };
    elements.chunks(ELEMENTS).map(command).collect()
}

fn made(rng: &mut fastrand::Rng) -> Made {
    let len = 1 + (rng.usize(..4000) >> rng.u32(..12));
    let one = |rng: &mut fastrand::Rng| vec![text(rng)];
    let kind = rng.u8(..9);
    let mut several =
        |each: fn(&mut fastrand::Rng) -> Vec<Vec<u8>>| -> Vec<Vec<Vec<u8>>> { (0..len).map(|_| each(rng)).collect() };
    match kind {
        0 => {
            let value = several(one).swap_remove(0).swap_remove(0);
            let commands = vec![vec![b"SET".to_vec(), b"k".to_vec(), value]];
            Made { commands, read: &["GET k"], sorted: false, same_bytes: true }
        }
        1 => {
            let commands = add(&["RPUSH", "k"], &several(one));
            Made { commands, read: &["LRANGE k 0 -1"], sorted: false, same_bytes: true }
        }
        2 => {
            let commands = add(&["SADD", "k"], &several(one));
            Made { commands, read: &["SMEMBERS k"], sorted: true, same_bytes: false }
        }
        3 => {
            let int = |rng: &mut fastrand::Rng| vec![(rng.i64(..) >> rng.u32(..64)).to_string().into_bytes()];
            let commands = add(&["SADD", "k"], &several(int));
            Made { commands, read: &["SMEMBERS k"], sorted: true, same_bytes: len <= 512 }
        }
        4 => {
            let item = |rng: &mut fastrand::Rng| {
                let score = match rng.u8(..4) {
                    0 => "-inf".to_owned(),
                    1 => (rng.i64(..) >> rng.u32(..64)).to_string(),
                    _ => (f64::from(rng.i32(-1000..1000)) / 7.0).to_string(),
                };
                vec![score.into_bytes(), text(rng)]
            };
            let commands = add(&["ZADD", "k"], &several(item));
            Made { commands, read: &["ZRANGE k 0 -1 WITHSCORES"], sorted: false, same_bytes: true }
        }
        5 => stream(rng, len, false),
        6 => stream(rng, len, true),
        _ => {
            let pair = |rng: &mut fastrand::Rng| vec![text(rng), text(rng)];
            let commands = add(&["HSET", "k"], &several(pair));
            Made { commands, read: &["HGETALL k"], sorted: true, same_bytes: false }
        }
    }
}

/// Some entries have other fields than those before them, some are deleted, and two consumers have not acknowledged all
/// that they were given.
fn stream(rng: &mut fastrand::Rng, len: usize, with_groups: bool) -> Made {
    let arg = |text: &str| text.as_bytes().to_vec();
    let mut commands = Vec::new();
    let mut ms = rng.u64(..1 << 42);
    let mut ids = Vec::new();
    for number in 0..len.min(600) {
        ms += rng.u64(..3) * 1000;
        ids.push(format!("{ms}-{number}"));
        let mut command = vec![arg("XADD"), arg("k"), arg(&ids[number])];
        for field in 0..if rng.u8(..8) == 0 { rng.usize(1..5) } else { 2 } {
            command.extend([format!("field{field}").into_bytes(), text(rng)]);
        }
        commands.push(command);
    }
    if with_groups {
        for line in [
            "XGROUP CREATE k g 0",
            "XGROUP CREATE k idle $",
            "XGROUP CREATECONSUMER k idle nobody",
            "XGROUP CREATE k h 0",
        ] {
            commands.push(crate::common::words(line));
        }
        for (consumer, count) in [("one", rng.usize(1..20)), ("two", rng.usize(1..20))] {
            // Redis 7.0 makes no consumer where there is nothing for it.
            for line in [
                format!("XGROUP CREATECONSUMER k g {consumer}"),
                format!("XREADGROUP GROUP g {consumer} COUNT {count} STREAMS k >"),
            ] {
                commands.push(crate::common::words(&line));
            }
        }
        let mut some = |command: &[&str]| {
            let mut command: Vec<Vec<u8>> = command.iter().map(|word| arg(word)).collect();
            command.extend((0..3).map(|_| arg(&ids[rng.usize(..ids.len())])));
            command
        };
        commands.push(some(&["XACK", "k", "g"]));
        commands.push(some(&["XDEL", "k"]));
    }
    let read: &[&str] = if with_groups {
        &["XRANGE k - +", "XPENDING k g", "XPENDING k idle", "XINFO GROUPS k"]
    } else {
        &["XRANGE k - +", "XINFO STREAM k"]
    };
    Made { commands, read, sorted: false, same_bytes: !with_groups }
}

/// The value as a client sees it.
fn read(client: &mut Client, made: &Made) -> Vec<Value> {
    let read = |line: &&str| match client.call(line) {
        Value::Array(items) if made.sorted => {
            let pairs = if line.starts_with("HGETALL") { 2 } else { 1 };
            let mut groups: Vec<Vec<Value>> = items.chunks(pairs).map(<[Value]>::to_vec).collect();
            groups.sort_by_key(|group| group[0].bytes().map(<[u8]>::to_vec));
            Value::Array(groups.concat())
        }
        Value::Array(items) if *line == "XINFO STREAM k" => {
            // How it is kept is each server's own.
            let kept = |pair: &&[Value]| !pair[0].text().starts_with("radix-tree");
            Value::Array(items.chunks(2).filter(kept).flatten().cloned().collect())
        }
        value => value,
    };
    made.read.iter().map(read).collect()
}

fn dump(client: &mut Client) -> Vec<u8> {
    client.call("DUMP k").bytes().expect("a payload").to_vec()
}

fn restore(client: &mut Client, payload: &[u8]) {
    let reply = client.command(&[&b"RESTORE"[..], b"k", b"0", payload, b"REPLACE"]);
    assert_eq!(reply, Value::ok(), "{}", payload.escape_ascii());
}

#[test]
fn values_are_the_same_in_redis_and_back() {
    if !have_tool("redis-server") {
        return;
    }
    let dumps = std::env::var("EMBERDB_TEST_DUMPS").ok().and_then(|dumps| dumps.parse().ok());
    let first_seed = if dumps.is_some() { fastrand::u64(..1 << 32) } else { SEED };
    let ember = Server::start(Kind::Ember { shards: 2 }, &[]);
    let redis = Server::start(Kind::Redis, &["--sanitize-dump-payload", "yes"]);
    let (mut ember, mut redis) = (ember.client(), redis.client());
    for seed in first_seed..first_seed + dumps.unwrap_or(DUMPS) as u64 {
        let made = made(&mut fastrand::Rng::with_seed(seed));
        for client in [&mut ember, &mut redis] {
            client.call("DEL k");
            for command in &made.commands {
                assert!(!client.command(command).is_error(), "seed {seed}");
            }
        }
        let expected = read(&mut redis, &made);
        assert_eq!(read(&mut ember, &made), expected, "seed {seed}");
        let (ours, theirs) = (dump(&mut ember), dump(&mut redis));
        if made.same_bytes {
            assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string(), "seed {seed}");
        }
        restore(&mut redis, &ours);
        assert_eq!(read(&mut redis, &made), expected, "seed {seed}, there");
        restore(&mut ember, &theirs);
        assert_eq!(read(&mut ember, &made), expected, "seed {seed}, here");
        // Once more from what was restored, which is kept as if commands had made it.
        restore(&mut ember, &dump(&mut redis));
        assert_eq!(read(&mut ember, &made), expected, "seed {seed}, back");
        assert_eq!(ember.call("OBJECT ENCODING k"), redis.call("OBJECT ENCODING k"), "seed {seed}");
        assert_eq!(ember.call("TYPE k"), redis.call("TYPE k"));
    }
    assert_eq!(redis.call("DBSIZE"), int(1));
}
