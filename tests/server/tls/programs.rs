//! Debian's redis-cli and redis-benchmark, OpenSSL's own client, and client packages in four languages.

use super::TlsServer;
use crate::common::server::{Port, networks};
use crate::common::tls::{certificate, client_config, flags};
use crate::common::{Kind, Server, fed, have_tool, javascript, python, succeeded};
use redis::Commands;
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn tls_args(server: &TlsServer) -> Vec<String> {
    let args = ["-h", "localhost", "-p", &server.port().to_string(), "--tls", "--cacert", certificate("ca.crt")];
    args.map(str::to_owned).to_vec()
}

#[track_caller]
fn redis_cli(server: &TlsServer, args: &[&str], input: &[u8]) -> Output {
    fed(Command::new("redis-cli").args(tls_args(server)).args(args), input).1
}

#[test]
fn redis_cli_works() {
    if !have_tool("redis-cli") {
        return;
    }
    for network in networks() {
        let server = TlsServer::start(3, &["--network", &network]);
        let cli = |args: &[&str]| succeeded(redis_cli(&server, args, b"")).trim_end().to_owned();
        assert_eq!(cli(&["SET", "k", "two words"]), "OK");
        assert_eq!(cli(&["-3", "GET", "k"]), "two words");
        let commands: Vec<u8> = (0..5_000).flat_map(|i| format!("SET key:{i} {i}\r\n").into_bytes()).collect();
        let report = succeeded(redis_cli(&server, &["--pipe"], &commands));
        assert!(report.contains("errors: 0, replies: 5000"), "{report}");
        assert_eq!(cli(&["DBSIZE"]), "5001");
        assert_eq!(cli(&["--scan", "--pattern", "key:12??"]).lines().count(), 100);
        let snapshot = server.server.folder().join("sent.rdb");
        succeeded(redis_cli(&server, &["--rdb", &snapshot.display().to_string()], b""));
        assert!(std::fs::metadata(snapshot).expect("a snapshot").len() > 10_000);
        // The authority that it trusts is another.
        let strange = Command::new("redis-cli")
            .args([
                "-h",
                "localhost",
                "-p",
                &server.port().to_string(),
                "--tls",
                "--cacert",
                certificate("other-ca.crt"),
            ])
            .arg("PING")
            .output()
            .expect("redis-cli");
        assert!(!strange.status.success());
    }
}

#[test]
fn redis_cli_shows_its_certificate() {
    if !have_tool("redis-cli") {
        return;
    }
    let ca = certificate("ca.crt");
    let server = TlsServer::start(1, &["--tls-ca-cert-file", ca, "--tls-auth-clients", "yes"]);
    let (cert, key) = (certificate("client.crt"), certificate("client.key"));
    assert_eq!(succeeded(redis_cli(&server, &["--cert", cert, "--key", key, "PING"], b"")), "PONG\n");
    assert!(!redis_cli(&server, &["PING"], b"").status.success());
}

#[test]
fn redis_benchmark_works() {
    if !have_tool("redis-benchmark") {
        return;
    }
    for network in networks() {
        let server = TlsServer::start(2, &["--network", &network]);
        for more in [&["-P", "16", "-c", "20", "-n", "20000"][..], &["-c", "50", "-n", "5000", "-d", "20000"]] {
            let mut run = Command::new("redis-benchmark");
            run.args(tls_args(&server)).args(["-q", "-t", "set,get,incr"]).args(more);
            let report = succeeded(run.output().expect("redis-benchmark"));
            assert!(!report.contains("rror"), "{report}");
        }
        assert_eq!(server.client().call("GET counter:__rand_int__").text(), "25000");
    }
}

/// Of each version it takes up its session again.
#[test]
fn openssl_takes_its_session_up_again() {
    if Command::new("openssl").arg("version").output().is_err() {
        return;
    }
    let server = TlsServer::start(1, &[]);
    let session = server.server.folder().join("session").display().to_string();
    let connect = |version: &str, flags: [&str; 2]| {
        let address = format!("localhost:{}", server.port());
        let mut command = Command::new("openssl");
        command.args([
            "s_client",
            "-connect",
            &address,
            "-CAfile",
            certificate("ca.crt"),
            "-verify_return_error",
            "-ign_eof",
            version,
        ]);
        let mut child = command
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl");
        child.stdin.take().expect("a pipe").write_all(b"PING\r\nQUIT\r\n").expect("written");
        succeeded(child.wait_with_output().expect("it ends"))
    };
    for version in ["-tls1_2", "-tls1_3"] {
        let first = connect(version, ["-sess_out", &session]);
        assert!(first.contains("+PONG") && first.contains("New, TLSv1"), "{first}");
        let second = connect(version, ["-sess_in", &session]);
        assert!(second.contains("Reused, TLSv1"), "{second}");
    }
}

#[test]
fn the_redis_crate_works() {
    let server = TlsServer::start(3, &[]);
    let root_cert = Some(std::fs::read(certificate("ca.crt")).expect("a certificate"));
    let certificates = redis::TlsCertificates { client_tls: None, root_cert };
    for protocol in ["resp2", "resp3"] {
        let url = format!("rediss://localhost:{}/?protocol={protocol}", server.port());
        let client = redis::Client::build_with_tls(url, certificates.clone()).expect("a client");
        let mut redis = client.get_connection().expect("a connection");
        let mut pipeline = redis::pipe();
        for i in 0..1_000 {
            pipeline.set(format!("key:{i}"), i).ignore().get(format!("key:{i}"));
        }
        let values: Vec<usize> = pipeline.query(&mut redis).expect("a pipeline");
        assert_eq!(values, (0..1_000).collect::<Vec<_>>());
        let big = "x".repeat(5 << 20);
        let () = redis.set("big", &big).expect("SET");
        assert_eq!(redis.get("big"), Ok(big));
        let mut listener = client.get_connection().expect("a connection");
        let mut pubsub = listener.as_pubsub();
        pubsub.subscribe("news").expect("SUBSCRIBE");
        assert_eq!(redis.publish("news", "first"), Ok(1));
        assert_eq!(pubsub.get_message().expect("a message").get_payload(), Ok("first".to_owned()));
    }
}

#[track_caller]
fn check(server: &TlsServer, mut program: Command) {
    program.arg(server.port().to_string()).arg("--newer").env("CHECK_CA", certificate("ca.crt"));
    succeeded(program.output().expect("the program starts"));
}

#[test]
fn redis_py_works() {
    let Some(program) = python("tests/server/clients/python/check.py") else { return };
    check(&TlsServer::start(3, &[]), program());
}

#[test]
fn ioredis_and_node_redis_work() {
    let Some(program) = javascript("tests/server/clients/javascript/check.mjs") else { return };
    check(&TlsServer::start(3, &[]), program());
}

/// A browser, or whoever asks for pages here, is told nothing and keeps nobody waiting.
#[test]
fn a_client_that_speaks_http_under_tls_is_sent_away() {
    let server = TlsServer::start(1, &[]);
    let mut client =
        crate::common::Client::connect_with(server.port(), client_config(Default::default())).expect("TLS");
    client.send_raw(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(client.is_closed_by_server());
}

/// What docs/operations.md says makes certificates that work.
#[test]
fn the_session_of_the_documents_works() {
    if Command::new("openssl").arg("version").output().is_err() || !have_tool("redis-cli") {
        return;
    }
    let page = include_str!("../../../docs/operations.md");
    let chapter = page.split("\n## TLS\n").nth(1).expect("a chapter");
    let mut blocks = chapter.split("```sh\n").skip(1).map(|rest| rest.split("```").next().expect("its end"));
    let (makes, starts) = (blocks.next().expect("commands"), blocks.next().expect("a command"));
    let folder = tempfile::tempdir().expect("a folder");
    succeeded(Command::new("sh").args(["-e", "-c", makes]).current_dir(folder.path()).output().expect("sh"));
    let path = |word: &str| folder.path().join(word).display().to_string();
    let port = Port::claim();
    let words = starts.trim().strip_prefix("emberdb --port 0 --tls-port 6380 ").expect("it begins so").split(' ');
    let words = words.map(|word| if word.starts_with("--") { word.to_owned() } else { path(word) });
    let flags: Vec<String> = ["--tls-port".to_owned(), port.number().to_string()].into_iter().chain(words).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let _server = Server::start(Kind::Ember { shards: 1 }, &flags);
    let session = chapter.split("```console\n").nth(1).expect("a session").split("```").next().expect("its end");
    let (command, answer) = session.split_once('\n').expect("two lines");
    let command = command.strip_prefix("$ ").expect("a prompt").replace("6380", &port.number().to_string());
    let said = Command::new("sh").args(["-c", &command]).current_dir(folder.path()).output().expect("sh");
    assert_eq!(succeeded(said), answer);
}

#[test]
fn the_terminal_view_works() {
    let server = TlsServer::start(2, &[]);
    let top = |args: &[&str]| {
        let mut top = Command::new(env!("CARGO_BIN_EXE_emberdb-top"));
        top.args(["-h", "localhost", "-p", &server.port().to_string(), "--once", "-i", "0.1"]);
        top.args(args).output().expect("emberdb-top")
    };
    assert!(succeeded(top(&["--tls", "--cacert", certificate("ca.crt")])).contains("Shards"));
    succeeded(top(&["--tls", "--insecure"]));
    for refused in [&["--tls", "--cacert", certificate("other-ca.crt")][..], &["--tls"], &["--insecure"], &[]] {
        let run = top(refused);
        assert!(matches!(run.status.code(), Some(1 | 2)) && !run.stderr.is_empty(), "{refused:?}: {run:?}");
    }
}

/// redis-server beside EmberDB, both under TLS.
#[test]
fn the_load_generator_works() {
    if !have_tool("redis-server") {
        return;
    }
    let ember = TlsServer::start(2, &[]);
    let port = Port::claim();
    let redis = Server::start(Kind::Redis, &flags(port.number()));
    let out = ember.server.folder().join("results");
    let bench = |more: &[&str]| {
        let mut bench = Command::new(env!("CARGO_BIN_EXE_emberdb-bench"));
        bench.args(["--target", &format!("ember=localhost:{}", ember.port()), "--seconds", "0.3", "--warmup", "0.1"]);
        bench.args(["--out", &out.display().to_string(), "--rounds", "1", "--keys", "500", "--connections", "10"]);
        bench.args(more).output().expect("emberdb-bench")
    };
    let ca = certificate("ca.crt");
    let both = format!("redis=localhost:{}", port.number());
    for workload in
        ["get --pipeline 16", "set --value-size 100000 --pipeline 4", "set --threads 2", "mixed --rate 1000"]
    {
        let workload: Vec<&str> = workload.split(' ').collect();
        let args = [&["--tls", "--cacert", ca, "--target", &both, "--workload"], &workload[..]].concat();
        let report = succeeded(bench(&args));
        assert!(report.contains("redis"), "{report}");
        let result = std::fs::read_to_string(out.join("result.json")).expect("it is written");
        let result: serde_json::Value = serde_json::from_str(&result).expect("JSON");
        for target in result["targets"].as_array().expect("targets") {
            assert!(target["median"]["rate"].as_f64().expect("a rate") > 0.0, "{target}");
            assert_eq!(target["median"]["errors"], 0.0, "{target}");
        }
    }
    drop(redis);
    succeeded(bench(&["--tls", "--insecure", "--workload", "get"]));
    for refused in [
        &["--tls", "--cacert", certificate("other-ca.crt")][..],
        &["--tls"],
        &["--tls", "--cacert", "/no/such/file"],
        &["--insecure"],
        &["--tls", "--insecure", "--cert", certificate("client.crt")],
        &[],
    ] {
        let run = bench(&[refused, &["--workload", "get"]].concat());
        assert!(!run.status.success() && !run.stderr.is_empty(), "{refused:?}: {run:?}");
    }
}
