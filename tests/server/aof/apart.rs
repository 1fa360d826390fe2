//! Transactions over several shards, and a server that is killed beside them: what was acknowledged is there, with all of
//! its parts, however replies wait for the disk. What a shard changes behind its part of a transaction stands behind that in
//! the log, and waits with it.

use super::files::killed;
use crate::common::{Client, Kind, Server, Value, encode, words};
use std::thread;
use std::time::Duration;

const CLIENTS: usize = 6;
const ROUNDS: u64 = 4;

const BOTH: &str = "redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[2])";

/// What one client sends for its number `n`; each leaves `n` under its keys `a` and `b`.
fn requests(kind: usize, client: usize, n: u64) -> Vec<Vec<Vec<u8>>> {
    let (a, b) = (format!("a:{client}"), format!("b:{client}"));
    match kind {
        0 => vec![["EVAL", BOTH, "2", &a, &b].iter().map(|word| word.as_bytes().to_vec()).collect()],
        1 => ["MULTI".to_owned(), format!("INCR {a}"), format!("INCR {b}"), "EXEC".to_owned()]
            .iter()
            .map(|line| words(line))
            .collect(),
        2 => vec![words(&format!("MSET {a} {n} {b} {n}"))],
        // Alone, behind somebody's part of a transaction perhaps.
        3 => vec![words(&format!("SET {a} {n}")), words(&format!("SET {b} {n}"))],
        _ => [format!("SET t:{client} {n}"), format!("RENAME t:{client} {a}"), format!("COPY {a} {b} REPLACE")]
            .iter()
            .map(|line| words(line))
            .collect(),
    }
}

/// Goes on until the server is gone; what was acknowledged last.
fn load(port: u16, client: usize, kind: usize) -> u64 {
    let mut connection = Client::connect(port).expect("it runs");
    for n in 1.. {
        for request in requests(kind, client, n) {
            match connection.try_send_raw(&encode(&request)).and_then(|()| connection.try_read()) {
                Ok(reply) => assert!(!reply.is_error(), "{reply:?}"),
                Err(_) => return n - 1,
            }
        }
    }
    0
}

#[test]
fn what_was_acknowledged_has_all_its_parts() {
    let mut rng = fastrand::Rng::with_seed(84);
    for (fsync, shards) in [("everysec", 2), ("everysec", 3), ("no", 2), ("always", 2)] {
        for round in 0..ROUNDS {
            let flags = ["--appendonly", "yes", "--appendfsync", fsync];
            let server = Server::start(Kind::Ember { shards }, &flags);
            let port = server.port();
            let loads: Vec<_> =
                (0..CLIENTS).map(|client| thread::spawn(move || load(port, client, client % 5))).collect();
            thread::sleep(Duration::from_millis(rng.u64(60..200)));
            server.signal("KILL");
            let acknowledged: Vec<u64> = loads.into_iter().map(|load| load.join().expect("no error")).collect();
            let server = killed(server);
            let mut client = server.client();
            for (number, acknowledged) in acknowledged.into_iter().enumerate() {
                let kept = |key: &str, client: &mut Client| match client.call(&format!("GET {key}:{number}")) {
                    Value::Bulk(bytes) => String::from_utf8_lossy(&bytes).parse().expect("a number"),
                    _ => 0,
                };
                let (a, b): (u64, u64) = (kept("a", &mut client), kept("b", &mut client));
                let what =
                    format!("{fsync}, {shards} shards, round {round}, client {number}: {acknowledged}, {a}, {b}");
                assert!(b >= acknowledged && a >= acknowledged, "lost: {what}");
                assert!(a == b || number % 5 > 2, "torn: {what}");
            }
        }
    }
}
