//! `emberdb-bench` against real servers: every workload runs, and what it writes can be read. How fast anything is is
//! not asked here.

use crate::common::{Client, Kind, Server, Value as Reply, have_tool, int, wait_until};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_emberdb-bench")).args(arguments).output().expect("emberdb-bench starts")
}

/// A short run against both servers; `None` where redis-server is not installed. Words of one argument are joined by `_`.
fn against_both(arguments: &str) -> Option<(Value, tempfile::TempDir)> {
    if !have_tool("redis-server") {
        return None;
    }
    let servers = [Server::start(Kind::Redis, &[]), Server::start(Kind::Ember { shards: 2 }, &[])];
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("results");
    let targets = ["redis", "ember"].iter().zip(&servers);
    let mut line: Vec<String> = targets
        .flat_map(|(name, server)| ["--target".to_owned(), format!("{name}=127.0.0.1:{}", server.port())])
        .collect();
    line.extend(arguments.split_whitespace().map(|word| word.replace('_', " ")));
    line.extend(["--out".to_owned(), out.display().to_string()]);
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let output = bench(&line);
    assert!(output.status.success(), "{line:?}: {output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("redis"), "a table is printed: {output:?}");
    assert!(output.stderr.is_empty(), "no progress without a terminal: {output:?}");
    Some((read(&out), folder))
}

fn read(out: &Path) -> Value {
    let text = std::fs::read_to_string(out.join("result.json")).expect("result.json");
    serde_json::from_str(&text).expect("result.json is JSON")
}

/// A load of all sorts: each target answered without errors, and its distribution was written.
#[track_caller]
fn assert_load(arguments: &str) {
    let Some((result, folder)) = against_both(arguments) else {
        return;
    };
    let rounds = result["parameters"]["rounds"].as_u64().expect("rounds");
    for target in result["targets"].as_array().expect("targets") {
        assert_eq!(target["rounds"].as_array().expect("rounds").len() as u64, rounds, "{target}");
        assert!(target["median"]["rate"].as_f64().expect("a rate") > 0.0, "{target}");
        assert!(target["median"]["p99_us"].as_f64().expect("a latency") > 0.0, "{target}");
        assert!(target["median"]["server_cpu_us"].as_f64().is_some(), "INFO tells the process: {target}");
        assert_eq!(target["median"]["errors"], 0.0, "{target}");
        let name = target["name"].as_str().expect("a name");
        let hgrm = std::fs::read_to_string(folder.path().join(format!("results/{name}.hgrm"))).expect("a .hgrm");
        assert!(hgrm.trim_start().starts_with("Value"), "{hgrm}");
    }
    let plot = std::fs::read_to_string(folder.path().join("results/latency.svg")).expect("a plot");
    assert!(plot.starts_with("<svg"));
}

const SHORT: &str = "--seconds 0.2 --warmup 0.05 --rounds 2 --keys 500 --connections 5";

#[test]
fn get() {
    assert_load(&format!("--workload get {SHORT} --pipeline 8"));
}

#[test]
fn set_with_ttl_over_resp3() {
    assert_load(&format!("--workload set {SHORT} --ttl 60..90 --resp 3 --value-size 600"));
}

#[test]
fn mixed_with_several_threads() {
    assert_load(&format!("--workload mixed {SHORT} --threads 2 --reads 0.5 --distribution zipf --pipeline 4"));
}

#[test]
fn session() {
    assert_load(&format!("--workload session {SHORT}"));
}

#[test]
fn cache() {
    assert_load(&format!("--workload cache {SHORT} --distribution zipf"));
}

#[test]
fn rate_limit_in_open_loop() {
    assert_load(&format!("--workload ratelimit {SHORT} --rate 2000"));
}

#[test]
fn several_keys_over_several_threads() {
    assert_load(&format!("--workload mset {SHORT} --batch 7 --pipeline 4 --threads 2"));
    assert_load(&format!("--workload mget {SHORT} --distribution zipf --pipeline 4 --threads 2"));
}

#[test]
fn transactions() {
    assert_load(&format!("--workload transaction {SHORT} --pipeline 4 --resp 3"));
    assert_load(&format!("--workload transaction {SHORT} --steps incr --batch 3 --rate 1000"));
}

/// All transactions are counted, each as one request, and each happened as a whole.
#[test]
fn transfers() {
    let server = Server::start(Kind::Ember { shards: 2 }, &[]);
    let mut client = server.client();
    let target = format!("ember=127.0.0.1:{}", server.port());
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("a path of letters");
    let line = "--workload transfer --keys 3 --key-size 1 --key-prefix k --requests 1000 --warmup 0 --connections 8 \
                --pipeline 5 --threads 2";
    let mut line: Vec<&str> = line.split_whitespace().collect();
    line.extend(["--target", &target, "--out", out]);
    assert!(bench(&line).status.success());
    let result = read(folder.path());
    let round = &result["targets"][0]["rounds"][0];
    assert_eq!((&round["replies"], &round["errors"]), (&1000.into(), &0.0.into()), "{round}");
    let Reply::Array(values) = client.call("MGET k0 k1 k2") else {
        panic!("MGET answers an array");
    };
    let number = |value: &Reply| match value {
        Reply::Bulk(text) => String::from_utf8_lossy(text).parse::<i64>().expect("a number"),
        other => panic!("{other:?}"),
    };
    assert_eq!(values.iter().map(number).sum::<i64>(), 0, "{values:?}");

    // Both commands of each transaction fail, which makes one error.
    client.call("MSET k0 a k1 b k2 c");
    line.push("--no-load");
    assert!(bench(&line).status.success());
    let target = &read(folder.path())["targets"][0];
    assert_eq!((&target["rounds"][0]["replies"], &target["rounds"][0]["errors"]), (&1000.into(), &1000.0.into()));
    assert!(target["first_error"].as_str().is_some_and(|error| error.contains("not an integer")), "{target}");
}

#[test]
fn given_commands() {
    assert_load(&format!("--workload command --command GET_KEY --load-command SET_KEY_NUMBER {SHORT} --pipeline 4"));
    let commands = "--command HSET_hash_KEY_VALUE --command HDEL_hash_KEY";
    let Some((result, _folder)) = against_both(&format!("--workload command {commands} {SHORT} --resp 3")) else {
        return;
    };
    assert_eq!(result["parameters"]["commands"][1], "HDEL hash KEY");
    for target in result["targets"].as_array().expect("targets") {
        assert_eq!(target["median"]["errors"], 0.0, "{target}");
    }
}

#[test]
fn memory() {
    let arguments = "--workload memory --keys 20000 --value-size 50 --load-command HSET_KEY_field_VALUE --warmup 0";
    let Some((result, _folder)) = against_both(arguments) else {
        return;
    };
    for target in result["targets"].as_array().expect("targets") {
        let bytes = target["median"]["used_bytes_a_key"].as_f64().expect("bytes");
        assert!((70.0..400.0).contains(&bytes), "{target}");
    }
}

#[test]
fn stall() {
    let arguments = "--workload stall --keys 2000 --load-command HSET_huge_KEY_VALUE --command DEL_huge --rounds 2 \
                     --seconds 0.3 --warmup 0.1 --connections 4 --rate 1000";
    let Some((result, folder)) = against_both(arguments) else {
        return;
    };
    for target in result["targets"].as_array().expect("targets") {
        let median = |metric: &str| target["median"][metric].as_f64().unwrap_or_else(|| panic!("{metric}: {target}"));
        assert!(median("command_ms") > 0.0 && median("after_max_us") > 0.0 && median("errors") == 0.0, "{target}");
        assert!(target["rounds"][1]["memory"].as_array().is_some_and(|samples| !samples.is_empty()), "{target}");
    }
    assert!(folder.path().join("results/redis-after.hgrm").exists());
}

#[test]
fn lcs() {
    let Some((result, _folder)) = against_both(
        "--workload lcs --seconds 0.3 --warmup 0.05 --rounds 1 --keys 20 --connections 5 --value-size 2000",
    ) else {
        return;
    };
    for target in result["targets"].as_array().expect("targets") {
        let median = |metric: &str| target["median"][metric].as_f64().unwrap_or_else(|| panic!("{metric}: {target}"));
        assert!(median("rate") > 0.0 && median("errors") == 0.0, "{target}");
        // Strings that were not loaded are compared in no time.
        assert!(median("server_cpu_us") > median("generator_cpu_us"), "{target}");
        assert!((0.0..100.0).contains(&median("generator_cpu_percent")), "{target}");
    }
}

#[test]
fn a_number_of_requests() {
    let Some((result, _folder)) = against_both(
        "--workload set --keys 100 --connections 3 --threads 2 --pipeline 7 --requests 1000 --warmup 0 --rounds 1",
    ) else {
        return;
    };
    for target in result["targets"].as_array().expect("targets") {
        assert_eq!(target["rounds"][0]["replies"], 1000, "{target}");
    }
}

#[test]
fn lag() {
    let Some((result, _folder)) = against_both("--workload lag --keys 300 --dying 20 --rounds 1 --wait 10") else {
        return;
    };
    for target in result["targets"].as_array().expect("targets") {
        assert_eq!(target["rounds"][0]["events"], 20.0, "{target}");
        assert!(target["median"]["lag_p99_ms"].as_f64().expect("all came") >= 0.0, "{target}");
    }
}

#[test]
fn idle() {
    let Some((result, _folder)) = against_both("--workload idle --idle 200 --rounds 2 --seconds 0.3 --warmup 0.1")
    else {
        return;
    };
    for target in result["targets"].as_array().expect("targets") {
        assert_eq!(target["median"]["idle_connections"], 200.0, "{target}");
        assert!((0.0..100.0).contains(&target["median"]["server_cpu_percent"].as_f64().expect("a share")), "{target}");
        assert!(target["median"]["bytes_a_connection"].as_f64().expect("bytes") > 0.0, "{target}");
    }
}

#[test]
fn keys_of_another_shard() {
    let server = Server::start(Kind::Ember { shards: 3 }, &[]);
    let target = format!("ember=127.0.0.1:{}", server.port());
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("a path of letters");
    let short =
        ["--workload", "foreign-key", "--connections", "2", "--keys", "50", "--seconds", "0.1", "--warmup", "0"];
    let output = bench(&[&short[..], &["--rounds", "3", "--target", &target, "--out", out]].concat());
    assert!(output.status.success(), "{output:?}");
    let result = read(folder.path());
    for (at, name) in ["local", "foreign"].iter().enumerate() {
        let target = &result["targets"][at];
        assert_eq!(target["name"], *name);
        assert!(target["median"]["rate"].as_f64().expect("a rate") > 0.0, "{target}");
        assert_eq!((&target["median"]["errors"], &target["median"]["nils"]), (&0.0.into(), &0.0.into()), "{target}");
        for (home, round) in target["rounds"].as_array().expect("rounds").iter().enumerate() {
            assert_eq!(round["connections_on_shard"], home, "{target}");
            assert_eq!(round["keys_on_shard"], (home + at) % 3, "{target}");
        }
    }
    // Where there is one shard, no key is foreign.
    let server = Server::start(Kind::Ember { shards: 1 }, &[]);
    let output = bench(&[&short[..], &["--target", &format!("ember=127.0.0.1:{}", server.port())]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("two shards"), "{output:?}");
}

/// Whoever listened to keyspace events before still does when a run ended early.
#[test]
fn the_server_gets_its_setting_back() {
    // Nothing dies by itself, so the run waits for events that do not come.
    let server = Server::start(Kind::Ember { shards: 1 }, &["--active-expire-interval-ms", "0"]);
    let mut client = server.client();
    client.call("CONFIG SET notify-keyspace-events Kg");
    let before = client.call("CONFIG GET notify-keyspace-events");
    let target = format!("ember=127.0.0.1:{}", server.port());
    let fail = |_: u32, client: &mut Client| assert_eq!(client.call("CLIENT KILL TYPE pubsub"), int(1));
    let end = |run: u32, _: &mut Client| {
        let status = Command::new("kill").arg(run.to_string()).status();
        assert!(status.expect("kill").success());
    };
    for stop in [&fail as &dyn Fn(u32, &mut Client), &end] {
        let run = Command::new(env!("CARGO_BIN_EXE_emberdb-bench"))
            .args(["--workload", "lag", "--keys", "10", "--dying", "10", "--wait", "60", "--target", &target])
            .stderr(std::process::Stdio::null())
            .spawn();
        let mut run = run.expect("emberdb-bench starts");
        assert!(wait_until(Duration::from_secs(20), || client.call("PUBSUB NUMPAT") == int(1)), "it subscribes");
        assert_ne!(client.call("CONFIG GET notify-keyspace-events"), before);
        stop(run.id(), &mut client);
        assert!(!run.wait().expect("an end").success());
        assert_eq!(client.call("CONFIG GET notify-keyspace-events"), before);
    }
}

#[test]
fn mass_expiry() {
    let arguments = "--workload mass-expiry --keys 300 --dying 2000 --rounds 1 --seconds 0.3 --warmup 0.1 \
                     --connections 4 --rate 1000 --wait 5";
    let Some((result, folder)) = against_both(arguments) else {
        return;
    };
    for target in result["targets"].as_array().expect("targets") {
        assert_eq!(target["rounds"][0]["events"], 2000.0, "{target}");
        assert_eq!(target["median"]["errors"], 0.0, "{target}");
        assert!(target["rounds"][0]["memory"].as_array().is_some_and(|samples| !samples.is_empty()), "{target}");
    }
    assert!(folder.path().join("results/redis-during.hgrm").exists());
}

#[test]
fn search() {
    let arguments = "--workload set --keys 100 --connections 2 --seconds 0.05 --warmup 0 --search p50<=1s";
    let Some((result, _folder)) = against_both(arguments) else {
        return;
    };
    for target in result["targets"].as_array().expect("targets") {
        assert!(!target["rounds"][0]["probes"].as_array().expect("probes").is_empty(), "{target}");
    }
}

#[test]
fn unix_sockets_and_passwords() {
    if !have_tool("redis-server") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("socket");
    let socket = socket.to_str().expect("a path of letters");
    let server = Server::start(Kind::Redis, &["--unixsocket", socket, "--requirepass", "open sesame"]);
    let target = format!("redis=unix:{socket}");
    let short = ["--workload", "set", "--requests", "200", "--warmup", "0", "--keys", "10", "--target", &target];
    for resp in ["2", "3"] {
        let more = ["--resp", resp, "--password", "open sesame"];
        let output = bench(&[&short[..], &more[..]].concat());
        assert!(output.status.success(), "{output:?}");
    }
    let output = bench(&short);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("NOAUTH"), "{output:?}");
    drop(server);
}

#[test]
fn error_replies_are_counted_and_the_first_is_shown() {
    if !have_tool("redis-server") {
        return;
    }
    let server = Server::start(Kind::Redis, &["--maxmemory", "1"]);
    let target = format!("full=127.0.0.1:{}", server.port());
    let output = bench(&["--workload", "set", "--requests", "100", "--warmup", "0", "--target", &target]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("first error: OOM"), "{output:?}");
}

#[test]
fn a_lost_connection_ends_the_run() {
    let mut server = Some(Server::start(Kind::Ember { shards: 1 }, &[]));
    let target = format!("ember=127.0.0.1:{}", server.as_ref().expect("started").port());
    let run = Command::new(env!("CARGO_BIN_EXE_emberdb-bench"))
        .args(["--workload", "set", "--seconds", "60", "--progress", "--target", &target])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn();
    let mut run = run.expect("emberdb-bench starts");
    let mut shown = std::io::BufReader::new(run.stderr.take().expect("piped"));
    let mut lines = String::new();
    // The first line of progress but one says that the load runs.
    for _ in 0..2 {
        std::io::BufRead::read_line(&mut shown, &mut lines).expect("progress");
    }
    drop(server.take());
    std::io::Read::read_to_string(&mut shown, &mut lines).expect("a message");
    assert_eq!(run.wait().expect("an end").code(), Some(1), "{lines}");
    assert!(lines.contains("connection to ember (127.0.0.1:"), "{lines}");
    assert!(lines.contains("lost"), "{lines}");
}

#[test]
fn bad_flags_name_what_was_meant() {
    let output = bench(&["--pipelin", "3"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--pipeline"), "{output:?}");
    let output = bench(&["--workload", "sesion"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("session"), "{output:?}");
    assert!(bench(&["--help"]).status.success());
}

#[test]
fn what_is_not_there_is_said() {
    let output = bench(&["--cores", "1000"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("core 1000"), "{output:?}");
    let output = bench(&["--target", "nobody=127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(shown.contains("cannot connect to nobody (127.0.0.1:1)"), "{output:?}");
}
