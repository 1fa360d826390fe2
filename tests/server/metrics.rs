//! The metrics' listener: what it tells equals INFO, Debian's promtool and redis_exporter agree, and nobody on it is in the way
//! of anybody else.

use crate::common::server::Port;
use crate::common::{Kind, Server, Value, have_tool, on_embers, wait_until};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(30);

/// A server with some of everything, and the port of its metrics.
pub fn start(shards: usize, flags: &[&str]) -> (Server, Port) {
    let port = Port::claim();
    let number = port.number().to_string();
    let flags = [&["--metrics-port", &number], flags].concat();
    (Server::start(Kind::Ember { shards }, &flags), port)
}

pub fn connect(port: &Port) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port.number())).expect("the listener is there");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// What is answered to these bytes.
pub fn ask(port: &Port, request: &str) -> String {
    let mut stream = connect(port);
    stream.write_all(request.as_bytes()).expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The status and the body of a page.
pub fn get(port: &Port, path: &str, headers: &str) -> (u16, String) {
    let answer = ask(port, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"));
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    (status, body.to_owned())
}

fn metrics_of(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let metric = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{line}")))
    };
    lines.map(metric).collect()
}

/// Of the second in which it was asked; what one scrape was answered others are, too, for less than a second.
pub fn scrape(port: &Port) -> BTreeMap<String, f64> {
    let (status, text) = get(port, "/metrics", "");
    assert_eq!(status, 200, "{text}");
    metrics_of(&text)
}

fn use_it(server: &Server) {
    let mut client = server.client();
    for n in 0..100 {
        client.call(&format!("SET key{n} value EX 1000"));
        client.call(&format!("GET key{n}"));
    }
    client.call("SELECT 2");
    for line in ["SET short-lived x PX 1", "GET nothing", "NOSUCH", "INCR key0", "SADD s a b c", "SET forever x"] {
        client.call(line);
    }
    assert!(wait_until(PATIENCE, || server.info("expired_keys").as_deref() == Some("1")));
}

#[test]
fn metrics_equal_info() {
    for shards in [1, 3] {
        let (server, port) = start(shards, &["--maxmemory", "500mb"]);
        use_it(&server);
        let quiet = [
            ("redis_expired_keys_total", "expired_keys"),
            ("redis_keyspace_hits_total", "keyspace_hits"),
            ("redis_keyspace_misses_total", "keyspace_misses"),
            ("redis_memory_max_bytes", "maxmemory"),
            ("redis_aof_last_write_status", "aof_last_write_status"),
            ("emberdb_shards", "shards"),
        ];
        let told = scrape(&port);
        for (metric, field) in quiet {
            let expected = match server.info(field).as_deref() {
                Some("ok") => 1.0,
                Some(number) => number.parse().expect("a number"),
                None => panic!("{field}"),
            };
            assert_eq!(told[metric], expected, "{metric}");
        }
        let exact = [
            ("redis_up", 1.0),
            (r#"redis_db_keys{db="db0"}"#, 100.0),
            (r#"redis_db_keys_expiring{db="db0"}"#, 100.0),
            (r#"redis_db_keys{db="db2"}"#, 3.0),
            (r#"redis_db_keys{db="db1"}"#, 0.0),
            (r#"redis_commands_total{cmd="set"}"#, 102.0),
            (r#"redis_commands_failed_calls_total{cmd="incr"}"#, 0.0),
            (r#"redis_errors_total{err="ERR"}"#, 1.0),
            (r#"emberdb_command_duration_seconds_bucket{cmd="get",le="+Inf"}"#, 101.0),
        ];
        for (metric, expected) in exact {
            assert_eq!(told.get(metric), Some(&expected), "{metric}");
        }
        let network = server.info("network").expect("a network");
        assert_eq!(told.get(&format!("emberdb_network_info{{network=\"{network}\"}}")), Some(&1.0));
        let of_shards: f64 = (0..shards).map(|shard| told[&format!("emberdb_shard_keys{{shard=\"{shard}\"}}")]).sum();
        assert_eq!(of_shards, 103.0);
        // Buckets grow.
        let buckets = |le: &str| told[&format!("emberdb_command_duration_seconds_bucket{{cmd=\"set\",le=\"{le}\"}}")];
        assert!(buckets("0.00001") <= buckets("0.001") && buckets("0.001") <= buckets("1"));
    }
}

#[test]
fn promtool_has_no_complaint() {
    if !have_tool("promtool") {
        return;
    }
    let (server, port) = start(2, &[]);
    use_it(&server);
    let (_, text) = get(&port, "/metrics", "");
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("promtool runs");
    promtool.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it is taken");
    let output = promtool.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// What has to do with when they were asked, or with the exporter's own connection.
const FLEETING: [&str; 20] = [
    "redis_commands_",
    "redis_connected_clients",
    "redis_connections_received_total",
    "redis_cpu_",
    "redis_errors_total",
    "redis_mem_clients_normal",
    "redis_mem_fragmentation_",
    "redis_memory_used_bytes",
    "redis_memory_used_overhead_bytes",
    "redis_memory_used_peak_bytes",
    "redis_memory_used_rss_bytes",
    "redis_net_",
    "redis_uptime_in_seconds",
    "redis_start_time_seconds",
    "redis_db_avg_ttl_seconds",
    "redis_instance_info",
    "redis_exporter_",
    "redis_rdb_changes_since_last_save",
    "redis_lazyfree_pending_objects",
    "redis_keyspace_",
];

#[test]
fn redis_exporter_tells_the_same() {
    const EXPORTER: &str = "prometheus-redis-exporter";
    if !have_tool(EXPORTER) {
        return;
    }
    let (server, port) = start(2, &[]);
    use_it(&server);
    let of_exporter = Port::claim();
    let mut exporter = Command::new(EXPORTER)
        .args(["-redis.addr", &format!("redis://127.0.0.1:{}", server.port())])
        .args(["-web.listen-address", &format!("127.0.0.1:{}", of_exporter.number())])
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let is_there = || TcpStream::connect(("127.0.0.1", of_exporter.number())).is_ok();
    assert!(wait_until(PATIENCE, is_there));
    // As HTTP/1.0, so that the answer is in one piece.
    let answer = ask(&of_exporter, "GET /metrics HTTP/1.0\r\n\r\n");
    let _ = exporter.kill();
    let _ = exporter.wait();
    let theirs = metrics_of(answer.split_once("\r\n\r\n").expect("a head").1);
    let ours = scrape(&port);
    let compared = theirs.iter().filter(|(name, _)| !FLEETING.iter().any(|fleeting| name.starts_with(fleeting)));
    let both: Vec<_> = compared.filter_map(|(name, value)| Some((name, *value, *ours.get(name)?))).collect();
    assert!(both.len() > 60, "{}", both.len());
    for (name, theirs, ours) in both {
        assert_eq!(theirs, ours, "{name}");
    }
}

#[test]
fn the_password_is_asked_for() {
    let (server, port) = start(2, &["--requirepass", "se:cret"]);
    let status = |headers: &str| get(&port, "/metrics", headers).0;
    // base64 of user:se:cret, of :se:cret, of user:secret, of secret.
    let right = ["Bearer se:cret", "bearer  se:cret", "Basic dXNlcjpzZTpjcmV0", "basic OnNlOmNyZXQ="];
    let wrong =
        ["Bearer secret", "Basic dXNlcjpzZWNyZXQ=", "Basic c2VjcmV0", "Basic !", "Bearer", "Digest se:cret", ""];
    for credentials in right {
        assert_eq!(status(&format!("Authorization: {credentials}\r\n")), 200, "{credentials}");
    }
    for credentials in wrong {
        assert_eq!(status(&format!("Authorization: {credentials}\r\n")), 401, "{credentials}");
    }
    assert_eq!(status(""), 401);
    assert_eq!((get(&port, "/healthz", "").0, get(&port, "/readyz", "").0), (200, 200));
    drop(server);
}

/// Once passwords could be guessed here as fast as the pages are served, and nobody was told.
#[test]
fn wrong_passwords_count_as_those_of_auth() {
    let (server, port) = start(2, &["--requirepass", "secret", "--auth-slowdown", "yes"]);
    let status = |headers: &str| get(&port, "/metrics", headers).0;
    // The right one is not even looked at when there were too many wrong ones. (One is forgiven each second.)
    let mut wrong = 0;
    let is_slowed = || {
        // base64 of anna:wrong.
        let is_refused = status("Authorization: Basic YW5uYTp3cm9uZw==\r\n") == 429;
        wrong += i64::from(!is_refused);
        is_refused && status("Authorization: Bearer secret\r\n") == 429
    };
    assert!(wait_until(PATIENCE, is_slowed) && wrong >= 20, "{wrong}");
    assert_eq!((status(""), get(&port, "/healthz", "").0), (401, 200));
    let mut client = server.client();
    assert_eq!(client.call("AUTH secret"), Value::ok(), "AUTH waits for its turn");
    let log = client.call("ACL LOG");
    let fact = |name: &str| log.items()[0].field(name).map(|fact| fact.text());
    assert_eq!(log.items()[0].field("count").map(|count| count.number()), Some(wrong), "{log:?}");
    assert_eq!((fact("reason").as_deref(), fact("object").as_deref()), (Some("auth"), Some("http")), "{log:?}");
    assert_eq!((fact("username").as_deref(), fact("client-info").as_deref()), (Some("anna"), Some("addr=127.0.0.1")));
    assert!(client.call("INFO stats").text().contains(&format!("acl_access_denied_auth:{wrong}\r\n")));
    assert_eq!(client.call("CONFIG SET auth-slowdown no"), Value::ok());
    assert_eq!(status("Authorization: Bearer secret\r\n"), 200);
}

/// Once the pages showed the slow log to every machine that reached them, where RESP let in nobody.
#[test]
fn protected_mode_holds_for_pages() {
    let outside = UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect("192.0.2.1:9").map(|()| socket));
    let Ok(address) = outside.and_then(|socket| socket.local_addr()) else {
        eprintln!("this machine has no address that others reach");
        return;
    };
    let (server, port) = start(1, &["--bind", "*", "--metrics-bind", "*"]);
    let status = |path: &str| {
        let mut stream = TcpStream::connect((address.ip(), port.number())).expect("the listener is there");
        stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).expect("it is taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.split(' ').nth(1).map(str::to_owned)
    };
    for path in ["/", "/metrics", "/status.json"] {
        assert_eq!((status(path).as_deref(), get(&port, path, "").0), (Some("403"), 200), "{path}");
    }
    assert_eq!(status("/healthz").as_deref(), Some("200"));
    assert_eq!(server.client().call("CONFIG SET protected-mode no"), Value::ok());
    assert_eq!(status("/metrics").as_deref(), Some("200"));
}

#[test]
fn what_is_no_request_for_a_page_is_refused() {
    let (_server, port) = start(1, &[]);
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(10_000));
    for (request, status) in [
        ("GET /nothing HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405"),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
        ("*1\r\n$4\r\nPING\r\n\r\n", "400"),
        (&long, "431"),
    ] {
        let answer = ask(&port, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:.30}: {answer}");
    }
}

/// Connections that say nothing, hardly anything, or do not read.
#[test]
fn nobody_keeps_others_from_their_pages() {
    let (server, port) = start(1, &[]);
    use_it(&server);
    let mut silent: Vec<TcpStream> = (0..300).map(|_| connect(&port)).collect();
    for (n, stream) in silent.iter_mut().enumerate() {
        let said: &[u8] = if n % 3 == 0 { b"GET /met" } else { b"GET /metrics HTTP/1.1\r\n\r\n" };
        // (The oldest are closed by now.)
        let _ = stream.write_all(if n % 3 == 1 { b"" } else { said });
    }
    // And one that never stops talking.
    let mut endless = connect(&port);
    let talks = std::thread::spawn(move || {
        let _ = endless.write_all(b"GET / HTTP/1.1\r\n\r\n");
        while endless.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let began = Instant::now();
    for _ in 0..50 {
        assert_eq!(get(&port, "/healthz", "").0, 200);
        assert!(scrape(&port)["redis_up"] == 1.0);
    }
    assert!(began.elapsed() < PATIENCE);
    talks.join().expect("it is closed in the end");
    assert_eq!(server.client().call("PING"), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn without_a_port_there_is_no_listener() {
    on_embers(&[], |server| {
        let config = server.client().call("CONFIG GET metrics-*");
        assert_eq!(config, Value::bulks(&["metrics-port", "0", "metrics-bind", "127.0.0.1", "metrics-tls", "no"]));
    });
}
