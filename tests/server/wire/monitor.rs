//! MONITOR: every command once, in the order of each connection, without its secrets.

use std::time::Duration;

use crate::common::{
    Client, Kind, Server, Value, encode, error, on_embers, on_every_server, simple, wait_until, words,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A line of MONITOR: database, address, and what was called, in quotes.
#[derive(Debug)]
struct Line {
    db: String,
    addr: String,
    call: String,
}

impl Line {
    fn of(value: &Value) -> Line {
        let Value::Simple(text) = value else { panic!("{value:?} is no line") };
        let text = String::from_utf8_lossy(text).into_owned();
        let (time, rest) = text.split_once(" [").expect("a time and an address");
        let (seconds, us) = time.split_once('.').expect("seconds and microseconds");
        assert!(seconds.len() == 10 && us.len() == 6, "{time}");
        let (from, call) = rest.split_once("] ").expect("an address and a call");
        let (db, addr) = from.split_once(' ').expect("a database and an address");
        Line { db: db.to_owned(), addr: addr.to_owned(), call: call.to_owned() }
    }
}

fn monitor(server: &Server) -> Client {
    let mut client = server.client();
    assert_eq!(client.call("MONITOR"), Value::ok());
    client
}

fn next(monitor: &mut Client) -> Line {
    Line::of(&monitor.read_within(PATIENCE).expect("a line"))
}

fn address(client: &Client) -> String {
    client.stream().local_addr().expect("connected").to_string()
}

fn quoted(line: &str) -> String {
    let words: Vec<String> = line.split(' ').map(|word| format!("\"{word}\"")).collect();
    words.join(" ")
}

#[test]
fn every_command_is_shown_once_and_in_the_order_of_its_connection() {
    on_embers(&[], |server| {
        let mut monitors: Vec<Client> = (0..4).map(|_| monitor(server)).collect();
        let mut rng = fastrand::Rng::with_seed(3);
        let mut clients: Vec<(Client, Vec<String>)> = (0..5).map(|_| (server.client(), Vec::new())).collect();
        for round in 0..300 {
            let (client, shown) = &mut clients[round % 5];
            let mut key = || format!("key:{}", rng.u8(..40));
            let (a, b, c) = (key(), key(), key());
            // What is sent in one go, and the calls that are to be seen of it.
            let (sent, seen): (Vec<String>, Vec<String>) = match round % 7 {
                0 => {
                    let sent: Vec<String> = (0..20).map(|n| format!("SET {a}{n} {b}")).collect();
                    (sent.clone(), sent)
                }
                1 => {
                    let queued = [format!("SET {a} 1"), format!("MGET {a} {b} {c}"), format!("RENAME {a} {b}")];
                    let multi = ["MULTI".to_owned()].into_iter().chain(queued).chain(["EXEC".to_owned()]);
                    (multi.clone().collect(), multi.filter(|call| call != "MULTI").collect())
                }
                2 => {
                    (vec!["GET".to_owned(), format!("MSET {a} 1 {b} 2 {c} 3")], vec![format!("MSET {a} 1 {b} 2 {c} 3")])
                }
                3 => {
                    let sent =
                        vec![format!("SUNIONSTORE set {a}x {b}x"), format!("BLPOP {a}l 0.001"), "DBSIZE".to_owned()];
                    (sent.clone(), sent)
                }
                4 => (vec!["CONFIG GET port".to_owned(), "PING".to_owned()], vec!["PING".to_owned()]),
                5 => {
                    let multi = ["MULTI".to_owned(), format!("GET {a}"), "DISCARD".to_owned()];
                    (multi.to_vec(), vec!["MULTI".to_owned(), "DISCARD".to_owned()])
                }
                _ => {
                    let multi = ["MULTI".to_owned(), "NOSUCH".to_owned(), "EXEC".to_owned(), format!("GET {a}")];
                    (multi.to_vec(), ["MULTI", "EXEC", &format!("GET {a}")].map(str::to_owned).to_vec())
                }
            };
            if round % 7 == 1 {
                // MULTI is taken at once.
                shown.push("MULTI".to_owned());
            }
            shown.extend(seen);
            let requests: Vec<Vec<Vec<u8>>> = sent.iter().map(|line| words(line)).collect();
            client.pipeline(&requests);
        }
        for (client, shown) in &mut clients {
            client.call("ECHO end");
            shown.push("ECHO end".to_owned());
        }
        for monitor in &mut monitors {
            let mut lines: Vec<Line> = Vec::new();
            let mut ends = 0;
            while ends < clients.len() {
                let line = next(monitor);
                ends += usize::from(line.call == quoted("ECHO end"));
                lines.push(line);
            }
            for (client, shown) in &clients {
                let of_client = lines.iter().filter(|line| line.addr == address(client)).map(|line| &line.call);
                let expected: Vec<String> = shown.iter().map(|call| quoted(call)).collect();
                assert_eq!(of_client.cloned().collect::<Vec<_>>(), expected);
            }
        }
    });
}

#[test]
fn secrets_and_administration_are_not_shown_and_the_rest_is_quoted() {
    on_every_server(&[], |server| {
        let mut monitor = monitor(server);
        let mut client = server.client();
        for (request, shown) in [
            (&[&b"AUTH"[..], b"secret"][..], Some(r#"0 "AUTH" "(redacted)""#)),
            (&[b"auth", b"user", b"secret"], Some(r#"0 "auth" "(redacted)" "(redacted)""#)),
            (&[b"HELLO", b"2", b"AUTH", b"u", b"p"], Some(r#"0 "HELLO" "2" "AUTH" "(redacted)" "(redacted)""#)),
            (&[b"CONFIG", b"GET", b"port"], None),
            (&[b"SLOWLOG", b"LEN"], None),
            (&[b"GET"], None),
            (&[b"NOSUCH", b"x"], None),
            (&[b"SELECT", b"3"], Some(r#"3 "SELECT" "3""#)),
            (&[b"SET", b"q", b"a\x01\n\"\\\xff\x07\x08"], Some(r#"3 "SET" "q" "a\x01\n\"\\\xff\a\b""#)),
            (&[b"OBJECT", b"HELP"], Some(r#"3 "OBJECT" "HELP""#)),
            (&[b"CLIENT", b"SETNAME", b"x"], Some(r#"3 "CLIENT" "SETNAME" "x""#)),
            (&[b"SUBSCRIBE", b"x"], Some(r#"3 "SUBSCRIBE" "x""#)),
            (&[b"RESET"], Some(r#"0 "RESET""#)),
            (&[b"MULTI"], Some(r#"0 "MULTI""#)),
            (&[b"SELECT", b"2"], None),
            (&[b"EXEC"], Some(r#"2 "SELECT" "2""#)),
            (&[b"PING"], Some(r#"2 "EXEC""#)),
            (&[b"PING"], Some(r#"2 "PING""#)),
        ] {
            client.command(request);
            if let Some(shown) = shown {
                let line = next(&mut monitor);
                assert_eq!(format!("{} {}", line.db, line.call), shown);
                assert_eq!(line.addr, address(&client));
            }
        }
    });
}

#[test]
fn who_monitors_leaves_the_data_alone_until_reset() {
    on_every_server(&[], |server| {
        let mut monitor = monitor(server);
        let own = |client: &mut Client, line: &str, reply: Value| {
            assert_eq!(client.call(line), reply, "{line}");
            assert_eq!(next(client).call, quoted(line));
        };
        own(&mut monitor, "PING", simple("PONG"));
        for line in ["GET a", "SET a 1", "PUBLISH a b", "FLUSHALL", "PFCOUNT a"] {
            assert_eq!(monitor.call(line), error("ERR Replica can't interact with the keyspace"), "{line}");
        }
        // Asked again it answers nothing.
        monitor.send("MONITOR");
        own(&mut monitor, "ECHO x", Value::Bulk(b"x".to_vec()));
        let mut other = server.client();
        let list = other.call("CLIENT LIST").text();
        let of_monitor = list.lines().find(|line| line.contains(&address(&monitor))).expect("a connection").to_owned();
        assert!(of_monitor.contains(" flags=O "), "{of_monitor}");
        assert_eq!(monitor.call("RESET"), simple("RESET"));
        assert_eq!(other.call("SET a 1"), Value::ok());
        assert_eq!(monitor.call("GET a"), Value::Bulk(b"1".to_vec()));
        other.call("MULTI");
        other.call("MONITOR");
        let refused = error("ERR MONITOR isn't allowed for DENY BLOCKING client");
        assert_eq!(other.call("EXEC"), Value::Array(vec![refused]));
        assert_eq!(other.call("GET a"), Value::Bulk(b"1".to_vec()));
    });
}

#[test]
fn a_monitor_that_does_not_read_is_ended() {
    const VALUE_BYTES: usize = 1 << 20;
    let server = Server::start(Kind::Ember { shards: 2 }, &["--client-output-buffer-limit", "pubsub 8mb 0 0"]);
    let mut client = server.client();
    let request = encode(&[&b"SET"[..], b"key", &vec![0xff; VALUE_BYTES]]);
    client.send_raw(&request);
    assert_eq!(client.read(), Value::ok());
    let before = server.resident_bytes();
    let mut monitors: Vec<Client> = (0..4).map(|_| monitor(&server)).collect();
    let mut reader = monitor(&server);
    let mut seen = 0;
    for _ in 0..40 {
        client.send_raw(&request);
        assert_eq!(client.read(), Value::ok());
        // One that reads is not.
        let line = reader.read_within(PATIENCE).expect("a line");
        seen += line.text().len();
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < 200 << 20, "{grown} bytes wait for monitors that do not read");
    }
    assert!(seen >= 40 * 4 * VALUE_BYTES);
    assert!(wait_until(PATIENCE, || server.info("connected_clients").as_deref() == Some("3")));
    for monitor in &mut monitors {
        assert!(wait_until(PATIENCE, || monitor.is_closed_by_server()));
    }
}

#[test]
fn a_script_is_shown_and_then_what_it_does() {
    on_every_server(&[], |server| {
        let mut watching = monitor(server);
        let mut client = server.client();
        let script = "redis.call('SET', KEYS[1], '1') redis.call('SELECT', 2) return redis.call('GET', KEYS[1])";
        client.command(&["EVAL", script, "1", "k"]);
        client.call("MULTI");
        client.command(&["EVAL", "return redis.call('DEL', KEYS[1])", "1", "k"]);
        client.call("EXEC");
        // With a coordinator EXEC is shown when it begins.
        let lines: Vec<Line> = (0..8).map(|_| next(&mut watching)).collect();
        assert!(lines.iter().any(|line| line.call == "\"EXEC\""));
        let is_call = |line: &&Line| line.call.starts_with("\"EVAL\"") && line.addr == address(&client);
        assert_eq!(lines.iter().filter(is_call).count(), 2, "{lines:?}");
        let inner: Vec<(&str, &str)> =
            lines.iter().filter(|line| line.addr == "lua").map(|line| (&line.db[..], &line.call[..])).collect();
        let expected =
            [("0", "\"SET\" \"k\" \"1\""), ("2", "\"SELECT\" \"2\""), ("2", "\"GET\" \"k\""), ("0", "\"DEL\" \"k\"")];
        assert_eq!(inner, expected);
    });
}
