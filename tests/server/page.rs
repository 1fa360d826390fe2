//! The live page: what a real browser shows equals INFO, nobody sees more than his commands would tell him, and whoever watches
//! costs the shards hardly anything.
//!
//! `EMBERDB_TEST_PICTURES=docs/images` takes the pictures that the documentation shows.

use crate::common::server::Port;
use crate::common::{Server, Value, have_tool, succeeded, wait_until};
use crate::metrics::{PATIENCE, ask, connect, get, scrape, start};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Debian's, without windows and with them.
const BROWSERS: [&str; 2] = ["chromium-headless-shell", "chromium"];

fn browser() -> Option<&'static str> {
    let is_there = |browser: &&&str| Command::new(browser).arg("--version").output().is_ok();
    let found = BROWSERS.iter().find(is_there).copied();
    (found.is_some() || have_tool(BROWSERS[0])).then(|| found.unwrap_or(BROWSERS[0]))
}

/// What the browser saw, see `browse.mjs`.
fn browse(browser: &str, port: &Port, options: &[&str]) -> Json {
    let mut node = Command::new("node");
    node.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/page/browse.mjs"));
    node.arg(browser).arg(format!("http://127.0.0.1:{}/", port.number())).args(options);
    let told = succeeded(node.output().expect("node starts"));
    serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"))
}

/// Keys of three kinds, a third of which die at once and a third within ten minutes; policies; misses; a slow command with a
/// secret; names that would harm a page that takes them for its own.
pub fn use_it(server: &Server) {
    let mut client = server.client();
    let commands: Vec<Vec<String>> = (0..3_000)
        .map(|n| match n % 3 {
            0 => format!("SET session:{n} value EX {}", 200 + n % 380),
            1 => format!("SET short:{n} value PX 1"),
            _ => format!("HSET user:{n} name value"),
        })
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect();
    client.pipeline(&commands);
    let lines = [
        "EXPIRY POLICY SET session: 30m MAX 1h JITTER 10",
        "EXPIRY POLICY SET <b>cart: 2h SLIDING",
        "GET nothing",
        "CONFIG SET slowlog-log-slower-than 0",
        "CONFIG SET masterauth top-secret",
        "CONFIG SET slowlog-log-slower-than -1",
    ];
    for line in lines {
        client.call(line);
    }
    client.command(&["SET", "<script>alert(1)</script>", "\u{202e}\u{0}\n\"", "EX", "900"]);
    let died = || server.info("expired_keys").and_then(|keys| keys.parse().ok()).unwrap_or(0);
    assert!(wait_until(PATIENCE, || died() >= 1_000));
}

fn number(of: &Json) -> f64 {
    of.as_str().and_then(|text| text.replace(',', "").parse().ok()).unwrap_or_else(|| panic!("{of}"))
}

#[test]
fn a_browser_shows_what_info_says() {
    let Some(browser) = browser().filter(|_| have_tool("node")) else { return };
    let (server, port) = start(3, &["--maxmemory", "500mb", "--maxmemory-policy", "allkeys-lru"]);
    use_it(&server);
    let seen = browse(browser, &port, &[]);
    let (page, info) = (&seen["page"], |field: &str| server.info(field).unwrap_or_else(|| panic!("{field}")));
    assert_eq!(seen["wrong"], serde_json::json!([]), "what the console said");
    for url in seen["loaded"].as_array().expect("a list") {
        let url = url.as_str().expect("a text");
        assert!(url.starts_with(&format!("http://127.0.0.1:{}/", port.number())) || url.starts_with("data:"), "{url}");
    }

    let text = |name: &str| &page["numbers"][name]["text"];
    for field in ["expired_keys", "evicted_keys", "keyspace_misses", "blocked_clients", "pubsub_clients"] {
        assert_eq!(number(text(field)), info(field).parse::<f64>().expect("a number"), "{field}");
    }
    assert_eq!(text("maxmemory_policy"), "allkeys-lru");
    // Nobody but the browser was there, and that is no client.
    assert_eq!(text("connected_clients"), "0");
    let memory =
        number(&page["numbers"]["used_memory"]["value"]) / info("used_memory").parse::<f64>().expect("a number");
    assert!((0.8..1.2).contains(&memory), "{memory}");
    assert!(info("db0").starts_with("keys=2001,expires=1001,"), "{}", info("db0"));
    assert_eq!((number(text("keys")), number(text("mortal"))), (2001.0, 1001.0));
    let shards = page["tables"]["shard-rows"].as_array().expect("rows");
    let of_shards: f64 = shards.iter().map(|row| number(&row[1])).sum();
    assert_eq!((shards.len(), of_shards), (3, 2001.0));
    for (shard, row) in shards.iter().enumerate() {
        let line = info(&format!("shard{shard}"));
        let fact = |name: &str| line.split(',').find_map(|part| part.strip_prefix(name)).expect("a fact").to_owned();
        for (column, name) in [(1, "keys="), (7, "lag_p99_us="), (8, "lag_max_us=")] {
            assert_eq!(row[column], fact(name), "{name} {line}");
        }
    }

    let tables = &page["tables"];
    assert_eq!(tables["policy-rows"][0][0], "<b>cart:");
    assert_eq!(tables["policy-rows"][1], serde_json::json!(["session:", "30m MAX 1h JITTER 10"]));
    let slow = tables["slow-rows"].to_string();
    assert!(slow.contains("CONFIG SET masterauth (redacted)") && !slow.contains("top-secret"), "{slow}");
    assert_eq!(tables["memory-rows"].as_array().map(Vec::len), Some(9));
    let dying: f64 = tables["next-rows"].as_array().expect("rows").iter().map(|row| number(&row[1])).sum();
    assert_eq!(dying, 1_000.0);

    for width in ["320", "360", "768", "1280"] {
        assert_eq!(seen["overflow"][width], 0, "at {width}");
    }
    assert_eq!(seen["nameless"], serde_json::json!([]), "for screen readers");
    let landmarks: BTreeSet<&str> = seen["landmarks"].as_array().unwrap().iter().filter_map(Json::as_str).collect();
    assert_eq!(landmarks, BTreeSet::from(["banner", "main", "contentinfo", "status"]));
    assert_eq!(seen["keyboard"], serde_json::json!(["skip", "pause", "Paused"]));
    let headings = page["headings"].as_array().expect("headings");
    assert!(headings[0] == "H1 EmberDB" && headings.len() == 13, "{headings:?}");
    for picture in page["pictures"].as_array().expect("pictures") {
        assert!(picture[1].as_u64() > Some(0) || picture[0] == "lag-picture", "{picture} is empty");
    }
}

#[test]
fn a_browser_asks_for_the_password() {
    let Some(browser) = browser().filter(|_| have_tool("node")) else { return };
    let (server, port) = start(1, &["--requirepass", "se:cret"]);
    let mut admin = server.client();
    admin.call("AUTH se:cret");
    admin.call("ACL SETUSER watcher on >watch +info");
    admin.call("EXPIRY POLICY SET hidden: 1h");
    let seen = browse(browser, &port, &["--login", "watcher:watch"]);
    assert!(seen["asked"].as_u64() >= Some(1), "{}", seen["asked"]);
    let page = &seen["page"];
    assert_eq!(page["texts"]["state"], "Live");
    assert_eq!(page["tables"]["policy-rows"], serde_json::json!([]));
    assert!(page["texts"]["slow-text"].as_str().is_some_and(|text| text.contains("may not run SLOWLOG GET")));
}

fn status(port: &Port, headers: &str) -> Json {
    let (status, body) = get(port, "/status.json", headers);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

/// base64 of what is said as basic authentication.
fn basic(pair: &str) -> String {
    use base64::Engine;
    format!("Authorization: Basic {}\r\n", base64::prelude::BASE64_STANDARD.encode(pair))
}

#[test]
fn everybody_sees_what_his_commands_would_tell_him() {
    let (server, port) = start(2, &["--requirepass", "secret"]);
    let mut admin = server.client();
    for line in [
        "AUTH secret",
        "EXPIRY POLICY SET hidden: 1h",
        "ACL SETUSER facts on >p +info",
        "ACL SETUSER slow on >p +info +slowlog|get",
        "ACL SETUSER lists on >p +info +client|list +expiry|policy",
        "ACL SETUSER nothing on >p +@all -info",
        "ACL SETUSER off >p +@all",
    ] {
        assert!(!matches!(admin.call(line), Value::Error(_)), "{line}");
    }
    let sees = |headers: &str| {
        let told = status(&port, headers);
        assert!(told["status"]["facts"]["redis_version"].is_string());
        ["policies", "slow", "clients"].map(|part| !told[part].is_null())
    };
    assert_eq!(sees("Authorization: Bearer secret\r\n"), [true, true, true]);
    assert_eq!(sees(&basic(":secret")), [true, true, true]);
    assert_eq!(sees(&basic("facts:p")), [false, false, false]);
    assert_eq!(sees(&basic("slow:p")), [false, true, false]);
    assert_eq!(sees(&basic("lists:p")), [true, false, true]);
    for wrong in [
        "",
        "Authorization: Bearer p\r\n",
        &basic("nothing:p"),
        &basic("off:p"),
        &basic("facts:secret"),
        &basic("facts"),
    ] {
        for path in ["/", "/status.json", "/metrics"] {
            let (status, body) = get(&port, path, wrong);
            assert!(status == 401 && !body.contains("hidden"), "{path} {wrong} {status}");
        }
    }
    // Where the default user needs no password it may still be one who may do little.
    admin.call("ACL SETUSER default nopass -slowlog -client -expiry");
    assert_eq!(sees(""), [false, false, false]);
    assert_eq!(sees(&basic("slow:p")), [false, true, false], "whoever says who he is sees more");
}

#[test]
fn the_page_comes_alone() {
    let (_server, port) = start(1, &[]);
    let head = |request: &str| ask(&port, request).split("\r\n\r\n").next().expect("a head").to_owned();
    let page = head("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for said in [
        "200 OK",
        "Content-Type: text/html; charset=utf-8",
        "default-src 'none'",
        "script-src 'sha256-",
        "style-src 'sha256-",
        "frame-ancestors 'none'",
        "X-Content-Type-Options: nosniff",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    assert!(!page.contains("unsafe"), "{page}");
    let (_, body) = get(&port, "/", "");
    assert!(!body.contains("http://") || body.matches("http://").all(|_| body.contains("http://www.w3.org/2000/svg")));
    assert!(!body.contains("https://") && !body.contains("//cdn"));

    let asked = ask(&port, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(asked.starts_with("HTTP/1.1 200 ") && asked.ends_with("\r\n\r\n"), "{asked}");
    assert!(asked.contains(&format!("Content-Length: {}\r\n", body.len())), "{asked}");
    for (request, status) in [
        ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        ("PUT /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
        ("GET /status.json HTTP/1.1\r\nHost: evil.example:9121\r\n\r\n", "403"),
        ("GET /live/page.html HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ("GET /../status.json HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
    ] {
        assert!(head(request).starts_with(&format!("HTTP/1.1 {status} ")), "{request}");
    }
}

#[test]
fn the_heaviest_connections_are_shown() {
    let (server, port) = start(2, &[]);
    let mut clients: Vec<_> = (0..40).map(|_| server.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.call(&format!("CLIENT SETNAME client-{n}"));
    }
    clients[7].send_raw(b"*2\r\n$3\r\nGET\r\n$200000\r\n");
    clients[7].send_raw(&[b'x'; 150_000]);
    let is_shown = || {
        let told = &status(&port, "")["clients"];
        let first = told["first"].as_array().expect("a list");
        told["all"] == 40 && first.len() == 20 && first[0]["name"] == "client-7" && first[0]["cmd"] == "client|setname"
    };
    assert!(wait_until(PATIENCE, is_shown), "{}", status(&port, "")["clients"]);
    // Who leaves is not shown any more.
    drop(clients);
    let is_empty = || status(&port, "")["clients"] == serde_json::json!({ "all": 0, "first": [] });
    assert!(wait_until(PATIENCE, is_empty), "{}", status(&port, "")["clients"]);
}

/// What one poll was told others are, too, for most of a second.
#[test]
fn a_thousand_polls_ask_the_shards_a_few_times() {
    let (server, port) = start(2, &[]);
    use_it(&server);
    // Who does not read what it has asked for is in nobody's way.
    let mut deaf = connect(&port);
    deaf.write_all(b"GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is taken");
    let began = Instant::now();
    let moments: BTreeSet<u64> =
        (0..1_000).map(|_| status(&port, "")["status"]["at_ms"].as_u64().expect("a moment")).collect();
    let most = began.elapsed().as_millis() / 900 + 2;
    assert!(moments.len() as u128 <= most, "{} in {:?}", moments.len(), began.elapsed());
    let mut answer = String::new();
    // (Unless it took so long that it was given up.)
    let _ = deaf.read_to_string(&mut answer);
}

/// Deaths to come are looked for beside the polls, and equal what EXPIRY FORECAST counts.
#[test]
fn deaths_to_come_are_those_of_the_forecast() {
    for shards in [1, 3] {
        let (server, port) = start(shards, &["--databases", "4"]);
        let mut client = server.client();
        for (db, keys) in [(0, 300), (3, 50)] {
            client.call(&format!("SELECT {db}"));
            for n in 0..keys {
                client.call(&format!("SET key{n} value PX {}", 100_000 + n * 1_000));
                client.call(&format!("SET later{n} value PX {}", 700_000 + n));
                client.call(&format!("SET tomorrow{n} value PX {}", 80_000_000 + n));
                client.call(&format!("SET never{n} value"));
            }
        }
        let mut curve = Vec::new();
        assert!(wait_until(PATIENCE, || {
            let told = status(&port, "");
            let keys = told["status"]["forecast"]["keys"].as_array().cloned().unwrap_or_default();
            curve = keys.iter().filter_map(Json::as_u64).collect();
            curve.iter().sum::<u64>() == 350
        }));
        assert_eq!(curve.len(), 120);
        assert_eq!(curve[..15].iter().sum::<u64>(), 0, "{curve:?}");
        let horizons = [("1m", 0.0), ("10m", 350.0), ("1h", 700.0)];
        assert!(wait_until(PATIENCE, || {
            let told = scrape(&port);
            let keys = |within: &str| told.get(&format!("emberdb_forecast_keys{{within=\"{within}\"}}")).copied();
            horizons.iter().all(|(within, expected)| keys(within) == Some(*expected))
        }));
        assert!(scrape(&port)["emberdb_forecast_bytes{within=\"1h\"}"] > 700.0 * 10.0);
        // FLUSHALL is seen, too.
        client.call("FLUSHALL");
        assert!(wait_until(PATIENCE, || {
            let told = status(&port, "");
            told["status"]["forecast"]["keys"].as_array().is_some_and(|keys| keys.iter().all(|keys| keys == 0))
        }));
    }
}

/// Takes the pictures of the documentation, where they are wanted, of a server that has something to do.
#[test]
fn pictures_are_taken_where_they_are_wanted() {
    let Ok(folder) = std::env::var("EMBERDB_TEST_PICTURES") else { return };
    let Some(browser) = browser() else { return };
    let (server, port) = start(2, &["--maxmemory", "512mb"]);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| busy(&server, &ends));
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).display().to_string();
        let seen = browse(browser, &port, &["--pictures", &folder, "--after", "125"]);
        ends.store(true, Ordering::Relaxed);
        assert_eq!(seen["wrong"], serde_json::json!([]));
    });
}

fn busy(server: &Server, ends: &AtomicBool) {
    let mut clients = ["web-1", "web-2", "jobs"].map(|name| {
        let mut client = server.client();
        client.call(&format!("CLIENT SETNAME {name}"));
        client
    });
    let client = &mut clients[0];
    for line in [
        "EXPIRY POLICY SET session: 30m MAX 24h SLIDING",
        "EXPIRY POLICY SET cart: 2h JITTER 10",
        "EXPIRY POLICY SET otp: 5m MAX 10m REQUIRE",
        "CONFIG SET slowlog-log-slower-than 2000",
    ] {
        client.call(line);
    }
    let (mut rng, began) = (fastrand::Rng::with_seed(7), Instant::now());
    while !ends.load(Ordering::Relaxed) {
        let s = began.elapsed().as_secs_f64();
        let wave = 1.0 + 0.4 * (s / 17.0).sin();
        for client in &mut clients {
            let mut commands = Vec::new();
            for _ in 0..(30.0 * wave) as usize {
                let n = rng.u32(..200_000);
                let life_s = 20 + (rng.f64() * rng.f64() * 900.0) as u32;
                commands.push(format!("SET session:{n} {} EX {life_s}", "x".repeat(100)));
                commands.push(format!("GET session:{}", rng.u32(..200_000)));
                commands.push(format!("INCR visits:{}", n % 5_000));
                if n % 4 == 0 {
                    commands.push(format!("SET otp:{n} 123456 PX {}", 5_000 + rng.u32(..240_000)));
                }
            }
            let commands: Vec<Vec<String>> =
                commands.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect();
            client.pipeline(&commands);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
