//! Programs that people already have work unchanged: client packages of three languages, redis-cli and redis-benchmark.

#[path = "clients/families.rs"]
mod families;
#[path = "clients/packages.rs"]
mod packages;
#[path = "clients/scripting.rs"]
mod scripting;
#[path = "clients/waiting.rs"]
mod waiting;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use crate::common::{Kind, Server, encode, fed, have_tool, int, succeeded, wait_until, words};
use redis::{Commands, Connection, ExpireOption, Expiry, SetExpiry, SetOptions};

fn three_shards() -> Server {
    Server::start(Kind::Ember { shards: 3 }, &[])
}

/// Runs `test` against redis-server, to see that it asks for what Redis does, and against EmberDB.
fn on_servers(test: impl Fn(&Server)) {
    if have_tool("redis-server") {
        test(&Server::start(Kind::Redis, &[]));
    }
    test(&three_shards());
}

/// The same with a connection in each protocol, to an empty server.
fn with_redis(test: impl Fn(&mut Connection)) {
    on_servers(|server| {
        for protocol in ["resp2", "resp3"] {
            let mut redis = connect(server, protocol);
            test(&mut redis);
            let () = redis::cmd("FLUSHALL").query(&mut redis).expect("FLUSHALL");
        }
    });
}

fn connect(server: &Server, protocol: &str) -> Connection {
    let url = format!("redis://127.0.0.1:{}/?protocol={protocol}", server.port());
    let client = redis::Client::open(url).expect("a valid address");
    client.get_connection().expect("a connection")
}

#[test]
fn the_redis_crate_stores_and_reads() {
    let server = three_shards();
    for protocol in ["resp2", "resp3"] {
        let mut redis = connect(&server, protocol);
        let () = redis.set("k", "v").expect("SET");
        assert_eq!(redis.get("k"), Ok(Some("v".to_string())));
        assert_eq!(redis.get("nothing"), Ok(None::<String>));
        let () = redis.mset(&[("a", 1), ("b", 2), ("c", 3)]).expect("MSET");
        let values: Vec<Option<i64>> = redis.mget(&["a", "b", "nothing", "c"]).expect("MGET");
        assert_eq!(values, [Some(1), Some(2), None, Some(3)]);
        assert_eq!(redis.incr("a", 41), Ok(42));
        assert_eq!(redis.append("k", "w"), Ok(2));
        assert_eq!(redis.del(&["a", "b", "c", "nothing"]), Ok(3));
        assert_eq!(redis.exists("a"), Ok(false));
        let error = redis.incr::<_, _, i64>("k", 1).expect_err("no number");
        assert_eq!(error.code(), Some("ERR"));
        let () = redis::cmd("FLUSHALL").query(&mut redis).expect("FLUSHALL");
    }
}

#[test]
fn the_redis_crate_sets_and_reads_deadlines() {
    let server = three_shards();
    let mut redis = connect(&server, "resp3");
    let options = SetOptions::default().with_expiration(SetExpiry::EX(100));
    let () = redis.set_options("k", "v", options).expect("SET EX");
    let ttl_s: i64 = redis.ttl("k").expect("TTL");
    assert!((98..=100).contains(&ttl_s), "{ttl_s}");
    let () = redis.set_ex("s", "v", 200).expect("SETEX");
    let ttl_ms: i64 = redis.pttl("s").expect("PTTL");
    assert!((198_000..=200_000).contains(&ttl_ms), "{ttl_ms}");
    assert_eq!(redis.expire("k", 300), Ok(true));
    assert_eq!(redis.persist("k"), Ok(true));
    assert_eq!(redis.ttl("k"), Ok(-1));
    assert_eq!(redis.ttl("nothing"), Ok(-2));
    assert_eq!(redis.expire_at("k", 4_102_444_800), Ok(true));
    assert_eq!(redis.expire_time("k"), Ok(4_102_444_800_i64));
    assert_eq!(redis.get_ex("k", Expiry::PERSIST), Ok("v".to_string()));
    let greater = redis::cmd("EXPIRE").arg("k").arg(100).arg(ExpireOption::GT).query::<bool>(&mut redis);
    assert_eq!(greater, Ok(false), "no deadline is later than any");
    let () = redis.pset_ex("soon", "v", 20).expect("PSETEX");
    let gone = || redis.get("soon") == Ok(None::<String>);
    assert!(wait_until(Duration::from_secs(10), gone));
}

#[test]
fn the_redis_crate_pipelines_over_all_shards() {
    let server = three_shards();
    let mut redis = connect(&server, "resp2");
    let mut pipeline = redis::pipe();
    for i in 0..1_000 {
        pipeline.set(format!("key:{i}"), i).ignore();
        pipeline.get(format!("key:{i}"));
    }
    let values: Vec<usize> = pipeline.query(&mut redis).expect("a pipeline");
    assert_eq!(values, (0..1_000).collect::<Vec<_>>());
}

#[test]
fn the_redis_crate_iterates_with_scan() {
    let server = three_shards();
    let mut redis = connect(&server, "resp3");
    let mut pipeline = redis::pipe();
    for i in 0..500 {
        pipeline.set(format!("user:{i}"), i).ignore();
        pipeline.set(format!("other:{i}"), i).ignore();
    }
    let () = pipeline.query(&mut redis).expect("a pipeline");
    let keys: Vec<String> = redis.scan_match("user:*").expect("SCAN").collect::<Result<_, _>>().expect("every step");
    let expected: BTreeSet<String> = (0..500).map(|i| format!("user:{i}")).collect();
    assert_eq!(keys.len(), 500, "each once");
    assert_eq!(BTreeSet::from_iter(keys), expected);
}

#[test]
fn the_redis_crate_runs_transactions() {
    let server = three_shards();
    for protocol in ["resp2", "resp3"] {
        let mut redis = connect(&server, protocol);
        let mut pipeline = redis::pipe();
        pipeline.atomic().set("a", 1).ignore().mset(&[("b", 2), ("c", 3)]).ignore().incr("a", 41);
        pipeline.mget(&["a", "b", "c", "nothing"]);
        let (sum, values): (i64, Vec<Option<i64>>) = pipeline.query(&mut redis).expect("MULTI and EXEC");
        assert_eq!((sum, values), (42, vec![Some(42), Some(2), Some(3), None]));
        pipeline.clear();
        pipeline.atomic().set("text", "word").ignore().incr("text", 1).set("d", 4).ignore();
        let error = pipeline.query::<(i64,)>(&mut redis).expect_err("no number");
        assert!(error.to_string().contains("not an integer"), "{error}");
        assert_eq!(redis.get("d"), Ok(4), "what came behind the error was run");
        let () = redis::cmd("FLUSHALL").query(&mut redis).expect("FLUSHALL");
    }
}

#[test]
fn the_redis_crate_begins_again_when_a_watched_key_has_changed() {
    const WORKERS: i64 = 4;
    const ROUNDS: i64 = 50;
    let server = three_shards();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let mut redis = connect(&server, "resp3");
                for _ in 0..ROUNDS {
                    let keys = ["from", "to"];
                    let done: Result<(), _> = redis::transaction(&mut redis, &keys, |redis, pipeline| {
                        let (from, to): (Option<i64>, Option<i64>) = redis.mget(&keys)?;
                        let (from, to) = (from.unwrap_or(0) - 1, to.unwrap_or(0) + 1);
                        pipeline.set("from", from).ignore().set("to", to).ignore().query(redis)
                    });
                    done.expect("a transaction");
                }
            });
        }
    });
    let mut redis = connect(&server, "resp2");
    assert_eq!(redis.mget(&["from", "to"]), Ok((-WORKERS * ROUNDS, WORKERS * ROUNDS)));
}

#[test]
fn the_redis_crate_subscribes() {
    let server = three_shards();
    let mut publisher = connect(&server, "resp2");
    let mut connection = connect(&server, "resp2");
    let mut pubsub = connection.as_pubsub();
    pubsub.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    pubsub.subscribe("news").expect("SUBSCRIBE");
    pubsub.psubscribe("w*").expect("PSUBSCRIBE");
    assert_eq!(publisher.publish("news", "first"), Ok(1));
    assert_eq!(publisher.publish("weather", "second"), Ok(1));
    let message = pubsub.get_message().expect("a message");
    assert_eq!(message.get_channel_name(), "news");
    assert_eq!(message.get_payload(), Ok("first".to_string()));
    let message = pubsub.get_message().expect("a message");
    assert_eq!(message.get_pattern(), Ok("w*".to_string()));
    assert_eq!(message.get_payload(), Ok("second".to_string()));
    drop(pubsub);
    // The connection is usable again once it has unsubscribed.
    assert_eq!(connection.get("nothing"), Ok(None::<String>));
}

/// redis-cli with these arguments, given `input`; must end well.
fn redis_cli(server: &Server, args: &[&str], input: &[u8]) -> String {
    let mut cli = Command::new("redis-cli");
    let (taken, output) = fed(cli.args(["-p", &server.port().to_string()]).args(args), input);
    taken.expect("redis-cli reads its input");
    succeeded(output)
}

#[test]
fn redis_cli_sets_and_gets() {
    if !have_tool("redis-cli") {
        return;
    }
    let server = three_shards();
    let cli = |args: &[&str]| redis_cli(&server, args, b"").trim_end().to_string();
    assert_eq!(cli(&["SET", "k", "two words", "EX", "100"]), "OK");
    assert_eq!(cli(&["GET", "k"]), "two words");
    assert_eq!(cli(&["-3", "GET", "nothing"]), "");
    assert_eq!(cli(&["--no-raw", "TTL", "nothing"]), "(integer) -2");
    assert!(["99", "100"].contains(&cli(&["TTL", "k"]).as_str()));
    assert_eq!(cli(&["GET"]), "ERR wrong number of arguments for 'get' command");
    let session = redis_cli(&server, &[], b"SET a 1\nINCR a\nMGET a nothing k\n");
    assert_eq!(session, "OK\n2\n2\n\ntwo words\n");
    let session = redis_cli(&server, &[], b"WATCH a k\nMULTI\nINCR a\nMGET a nothing k\nEXEC\n");
    assert_eq!(session, "OK\nOK\nQUEUED\nQUEUED\n3\n3\n\ntwo words\n");
}

#[test]
fn redis_cli_scans_and_feeds() {
    if !have_tool("redis-cli") {
        return;
    }
    const KEYS: usize = 5_000;
    let server = three_shards();
    let commands: Vec<u8> = (0..KEYS).flat_map(|i| encode(&words(&format!("SET key:{i} {i} EX 1000")))).collect();
    let report = redis_cli(&server, &["--pipe"], &commands);
    assert!(report.contains(&format!("errors: 0, replies: {KEYS}")), "{report}");
    assert_eq!(server.client().call("DBSIZE"), int(KEYS as i64));
    let keys = redis_cli(&server, &["--scan"], b"");
    let keys: Vec<&str> = keys.lines().collect();
    assert_eq!(keys.len(), KEYS);
    assert_eq!(BTreeSet::from_iter(keys).len(), KEYS);
    let some = redis_cli(&server, &["--scan", "--pattern", "key:12??"], b"");
    assert_eq!(some.lines().count(), 100);
    let info = redis_cli(&server, &["INFO", "keyspace"], b"");
    assert!(info.contains(&format!("keys={KEYS},expires={KEYS}")), "{info}");
}

/// redis-benchmark with these arguments: each line of its report as test and requests per second.
fn redis_benchmark(server: &Server, args: &[&str]) -> Vec<(String, f64)> {
    let output = Command::new("redis-benchmark")
        .args(["-p", &server.port().to_string(), "-q"])
        .args(args)
        .output()
        .expect("redis-benchmark");
    let report = succeeded(output);
    assert!(!report.contains("Error"), "{report}");
    // Progress is written over itself with carriage returns; the last piece is the result.
    let results = report.lines().filter_map(|line| line.rsplit('\r').next());
    results
        .filter_map(|line| line.split_once(": "))
        .filter_map(|(test, rest)| {
            let rate = rest.split(" requests per second").next()?;
            Some((test.to_string(), rate.trim().parse().ok()?))
        })
        .collect()
}

#[test]
fn redis_benchmark_runs_its_tests() {
    if !have_tool("redis-benchmark") {
        return;
    }
    let server = three_shards();
    let pipelined = ["-t", "set,get,incr,mset", "-n", "20000", "-P", "16"];
    let spread = ["-t", "set,get", "-n", "20000", "-r", "1000", "-c", "20", "-d", "100"];
    let runs: [(&[&str], usize); 3] = [(&pipelined, 4), (&spread, 2), (&["-n", "2000", "ping"], 1)];
    for (args, tests) in runs {
        let results = redis_benchmark(&server, args);
        assert_eq!(results.len(), tests, "{results:?}");
        assert!(results.iter().all(|(_, rate)| *rate > 0.0), "{results:?}");
    }
    let counter = server.client().call("GET counter:__rand_int__").text();
    assert_eq!(counter, "20000", "every INCR took effect once");
}
