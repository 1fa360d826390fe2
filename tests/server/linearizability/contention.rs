//! Many clients in transactions over the same two keys: everybody gets their turn.
//!
//! How long a client waits is a figure, which depends on the machine; it is printed. That everybody finishes the same
//! number of transactions is what is asserted.

use std::thread;
use std::time::{Duration, Instant};

use super::keys::Keys;
use super::start;
use crate::common::{Client, Kind, Server, Value, bulk, have_tool, int, words};

const CLIENTS: usize = 16;
const TRANSACTIONS: usize = 400;
/// Generous: a tenth of it is much for a slow machine.
const LIMIT: Duration = Duration::from_secs(60);
const DELAY_US: u64 = 50;

#[test]
fn everybody_gets_a_turn_on_two_shards() {
    contend(&start(Kind::Ember { shards: 2 }));
}

#[test]
fn everybody_gets_a_turn_while_shards_are_delayed() {
    let server = start(Kind::Ember { shards: 4 });
    server.delay_shards(DELAY_US);
    contend(&server);
}

/// The test's own test.
#[test]
fn everybody_gets_a_turn_in_redis() {
    if have_tool("redis-server") {
        contend(&start(Kind::Redis));
    }
}

fn contend(server: &Server) {
    let keys = Keys::on_every_shard(server, 2);
    let (first, last) = (keys.on_the_wire(0), keys.on_the_wire(keys.len() - 1));
    let begin = Instant::now();
    let mut waits: Vec<Duration> = thread::scope(|scope| {
        let take_turns = |number: usize| {
            // Half of them name the keys the other way round: whoever locks in the order of arrival locks up.
            let (one, other) = if number.is_multiple_of(2) { (first, last) } else { (last, first) };
            let client = server.client();
            scope.spawn(move || turns(client, one, other, begin))
        };
        let clients: Vec<_> = (0..CLIENTS).map(take_turns).collect();
        clients.into_iter().flat_map(|client| client.join().expect("every client finishes")).collect()
    });
    waits.sort_unstable();
    let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    eprintln!(
        "{:?}: {} transactions in {:.1?}; median {median:.0?}, longest {longest:.0?}, {:.1} times the median",
        server.kind(),
        waits.len(),
        begin.elapsed(),
        longest.as_secs_f64() / median.as_secs_f64()
    );
    assert_eq!(waits.len(), CLIENTS * TRANSACTIONS);
    for key in [first, last] {
        assert_eq!(server.client().call(&format!("GET {key}")), bulk((CLIENTS * TRANSACTIONS).to_string()));
    }
}

/// How long each transaction took from its first byte to its reply.
fn turns(mut client: Client, one: &str, other: &str, begin: Instant) -> Vec<Duration> {
    let commands = ["MULTI".to_string(), format!("INCR {one}"), format!("INCR {other}"), "EXEC".to_string()];
    let commands = commands.map(|command| words(&command));
    let turn = |turn| {
        assert!(begin.elapsed() < LIMIT, "after {turn} of {TRANSACTIONS} transactions the time is up");
        let sent = Instant::now();
        let reply = client.pipeline(&commands).pop().expect("a reply to EXEC");
        let waited = sent.elapsed();
        // Nothing else changes the keys, so they are always equal.
        let Value::Array(counts) = &reply else {
            panic!("EXEC answers {reply:?}");
        };
        assert_eq!(counts[..], [int(counts[0].number()), int(counts[0].number())]);
        waited
    };
    (0..TRANSACTIONS).map(turn).collect()
}
