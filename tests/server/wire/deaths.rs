//! Many keys under policies: foresight agrees with what a client counts, and the stream has every death once.
//!
//! - `EMBERDB_DEATHS_KEYS`: how many keys there are (default [`KEYS`])
//! - `EMBERDB_DEATHS_RUNS`: how many runs with different seeds (default 1)
//! - `EMBERDB_DEATHS_SEED`: to run one of them again

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::common::{Client, Kind, Server, Value, int, setting, wait_until};

const KEYS: usize = 20_000;
const BUCKETS: usize = 10;
const TOGETHER: usize = 1000;

fn keys() -> usize {
    setting("EMBERDB_DEATHS_KEYS").map_or(KEYS, |keys| keys as usize)
}

type Args = Vec<String>;

fn words(line: String) -> Args {
    line.split(' ').map(str::to_owned).collect()
}

/// Remaining lives that lie this far from where a bucket of the histogram ends are counted in the same one, however long
/// counting takes.
const MARGIN_MS: i64 = 300_000;

/// The histogram's buckets from the longest on that this test has keys in: an hour, six, half a day, a day.
const BOUNDS_MS: [(&str, i64); 4] = [("1h", 3_600_000), ("6h", 21_600_000), ("12h", 43_200_000), ("1d", 86_400_000)];

#[test]
fn foresight_agrees_with_a_count() {
    let server = Server::start(Kind::Ember { shards: 3 }, &[]);
    let mut client = server.client();
    for bucket in 0..BUCKETS {
        // From 1.5 hours to 15, and up to a fifth less.
        let minutes = 90 * (bucket + 1);
        let set = format!("EXPIRY POLICY SET b{bucket}: {minutes}m JITTER 20");
        assert_eq!(client.call(&set), Value::ok());
    }
    let commands: Vec<Args> = (0..keys()).map(|n| words(format!("SET b{}:{n} value:{n}", n % BUCKETS))).collect();
    for chunk in commands.chunks(TOGETHER) {
        assert!(client.pipeline(chunk).iter().all(|reply| *reply == Value::ok()));
    }
    let mut lives: HashMap<usize, Vec<i64>> = HashMap::new();
    let time = client.call("TIME");
    let now_ms = time.items()[0].text().parse::<i64>().unwrap() * 1000;
    for chunk in (0..keys()).collect::<Vec<_>>().chunks(TOGETHER) {
        let asked: Vec<Args> = chunk.iter().map(|n| words(format!("PEXPIRETIME b{}:{n}", n % BUCKETS))).collect();
        for (n, reply) in chunk.iter().zip(client.pipeline(&asked)) {
            let at_ms = reply.number();
            lives.entry(n % BUCKETS).or_default().push(at_ms);
        }
    }
    let prefixes = std::iter::once(None).chain((0..BUCKETS).map(Some));
    for prefix in prefixes {
        let of_prefix: Vec<i64> = match prefix {
            None => lives.values().flatten().copied().collect(),
            Some(bucket) => lives[&bucket].clone(),
        };
        let behind = prefix.map_or(String::new(), |bucket| format!(" PREFIX b{bucket}:"));
        let histogram = client.call(&format!("EXPIRY HISTOGRAM{behind}"));
        assert_eq!(histogram.field("keys_with_deadline"), Some(int(of_prefix.len() as i64)));
        assert_eq!(histogram.field("keys_without_deadline"), Some(int(0)));
        let remaining = histogram.field("remaining").unwrap();
        let mut below_ms = 0;
        for (name, bound_ms) in BOUNDS_MS {
            let within = |margin_ms: i64| {
                let bounds = now_ms + below_ms + margin_ms..=now_ms + bound_ms + margin_ms;
                of_prefix.iter().filter(|at_ms| bounds.contains(at_ms)).count() as i64
            };
            let found = remaining.field(name).unwrap().number();
            // Time goes on while this counts: a life that ends near a bound may be on either side of it by now.
            let near = [below_ms, bound_ms].map(|at_ms| {
                let near = now_ms + at_ms - MARGIN_MS..=now_ms + at_ms + MARGIN_MS;
                of_prefix.iter().filter(|at_ms| near.contains(at_ms)).count() as i64
            });
            assert!((found - within(0)).abs() <= near[0] + near[1], "{name}: {found}");
            if near == [0, 0] {
                assert_eq!(found, within(0), "{name}{behind}");
            }
            below_ms = bound_ms;
        }
        // To the millisecond: before and after a moment in which no key dies.
        for hours in [2, 5, 9, 14] {
            let asked = format!("EXPIRY FORECAST {hours}h{behind}");
            let before_ms = unix_ms(&mut client);
            let found = client.call(&asked).field("keys").unwrap().number();
            let after_ms = unix_ms(&mut client);
            let dying = |at_ms: i64| of_prefix.iter().filter(|of| **of <= at_ms + hours * 3_600_000).count() as i64;
            assert!((dying(before_ms)..=dying(after_ms)).contains(&found), "{asked}: {found}");
        }
    }
}

fn unix_ms(client: &mut Client) -> i64 {
    let time = client.call("TIME");
    let part = |index: usize| time.items()[index].text().parse::<i64>().unwrap();
    part(0) * 1000 + part(1) / 1000
}

/// What a run does, and what its replies say of how many keys of a name are to die.
struct Run {
    rng: fastrand::Rng,
    /// Keys that have come to a name and have not been taken from it by a command.
    expected: BTreeMap<String, i64>,
}

/// What a reply says.
enum Said {
    Nothing,
    /// The key was created, if the reply is nil.
    CreatedIfNil(String),
    Created(String),
    /// It was deleted, if the reply is 1.
    Deleted(String),
    /// It has another name from now on, if the reply is 1.
    Renamed(String, String),
}

impl Run {
    fn key(&mut self, keys: usize) -> String {
        format!("b{}:{}", self.rng.usize(..BUCKETS), self.rng.usize(..keys))
    }

    fn step(&mut self, n: usize, keys: usize) -> (Args, Said) {
        let key = self.key(keys);
        let life_ms = self.rng.u32(1..300);
        match self.rng.u8(..12) {
            0..=3 => (words(format!("SET {key} v{n} GET")), Said::CreatedIfNil(key)),
            4..=6 => (words(format!("SET {key} v{n} PX {life_ms} GET")), Said::CreatedIfNil(key)),
            // Fields die in it, but for the last.
            7 => {
                let key = format!("b{}:h{n}", n % BUCKETS);
                (words(format!("HSET {key} a 1 b 2 c 3")), Said::Created(key))
            }
            8 => (words(format!("HPEXPIRE b{}:h{} 5 FIELDS 2 a b", (n + 9) % BUCKETS, n - n.min(1))), Said::Nothing),
            9 => (words(format!("DEL {key}")), Said::Deleted(key)),
            10 => {
                let to = self.key(keys);
                (words(format!("RENAMENX {key} {to}")), Said::Renamed(key, to))
            }
            _ => (words(format!("PEXPIRE {key} {life_ms}")), Said::Nothing),
        }
    }

    fn hear(&mut self, said: Said, reply: &Value) {
        let mut change = |key: String, by: i64| *self.expected.entry(key).or_default() += by;
        match said {
            Said::CreatedIfNil(key) if reply.is_null() => change(key, 1),
            Said::Created(key) => {
                assert_eq!(*reply, int(3));
                change(key, 1);
            }
            Said::Deleted(key) if *reply == int(1) => change(key, -1),
            Said::Renamed(from, to) if *reply == int(1) => {
                change(from, -1);
                change(to, 1);
            }
            _ => {}
        }
    }
}

#[test]
fn the_stream_has_every_death_once() {
    let runs = setting("EMBERDB_DEATHS_RUNS").unwrap_or(1);
    for run in 0..runs {
        let seed = setting("EMBERDB_DEATHS_SEED").unwrap_or_else(|| fastrand::u64(..).wrapping_add(run));
        eprintln!("EMBERDB_DEATHS_SEED={seed}");
        one_run(seed, keys());
    }
}

fn one_run(seed: u64, steps: usize) {
    let server = Server::start(Kind::Ember { shards: 3 }, &[]);
    let mut client = server.client();
    for bucket in 0..BUCKETS {
        let set = format!("EXPIRY POLICY SET b{bucket}: {}ms JITTER 50 EVENTS deaths", 500 + 100 * bucket);
        assert_eq!(client.call(&set), Value::ok());
    }
    let mut run = Run { rng: fastrand::Rng::with_seed(seed), expected: BTreeMap::new() };
    let names = (steps / 50).max(10);
    for first in (0..steps).step_by(TOGETHER) {
        let (commands, said): (Vec<Args>, Vec<Said>) =
            (first..steps.min(first + TOGETHER)).map(|n| run.step(n, names)).unzip();
        let replies = client.pipeline(&commands);
        said.into_iter().zip(&replies).for_each(|(said, reply)| run.hear(said, reply));
    }
    run.expected.retain(|_, count| *count != 0);
    let total: i64 = run.expected.values().sum();
    // All die in the end.
    let waiting = |field: &str| server.info(field).and_then(|text| text.parse::<i64>().ok());
    wait_until(Duration::from_secs(120), || {
        client.call("DBSIZE") == int(1)
            && client.call("XLEN deaths") == int(total)
            && waiting("expiry_events_waiting") == Some(0)
    });
    let mut found: BTreeMap<String, i64> = BTreeMap::new();
    let mut from = "-".to_owned();
    loop {
        let page = client.call(&format!("XRANGE deaths {from} + COUNT 10000"));
        let Some(last) = page.items().last() else { break };
        from = format!("({}", last.items()[0].text());
        for entry in page.items() {
            *found.entry(entry.items()[1].items()[1].text()).or_default() += 1;
        }
    }
    let differs = |key: &&String| run.expected.get(*key) != found.get(*key);
    let wrong: Vec<&String> = run.expected.keys().chain(found.keys()).filter(differs).take(10).collect();
    let show = |key: &&String| format!("{key}: expected {:?}, found {:?}", run.expected.get(*key), found.get(*key));
    assert!(wrong.is_empty(), "EMBERDB_DEATHS_SEED={seed}\n{}", wrong.iter().map(show).collect::<Vec<_>>().join("\n"));
    assert_eq!(waiting("expiry_events_lost"), Some(0));
    eprintln!("{total} deaths of {} keys", found.len());
}
