//! What the server counts: calls, errors and latencies of each command, and the slow log.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Client, Kind, Server, Value, error, int, on_embers, simple, wait_until, words};

/// How often each command was asked for, and what became of it.
#[derive(Default)]
struct Expected {
    calls: BTreeMap<&'static str, u64>,
    failed: BTreeMap<&'static str, u64>,
    rejected: BTreeMap<&'static str, u64>,
    errors: BTreeMap<String, u64>,
}

impl Expected {
    fn ran(&mut self, command: &'static str, reply: &Value) {
        *self.calls.entry(command).or_default() += 1;
        if let Value::Error(text) = reply {
            *self.failed.entry(command).or_default() += 1;
            self.error(text);
        }
    }

    fn refused(&mut self, command: Option<&'static str>, reply: &Value) {
        let Value::Error(text) = reply else { panic!("{command:?} is refused, not answered with {reply:?}") };
        if let Some(command) = command {
            *self.rejected.entry(command).or_default() += 1;
        }
        self.error(text);
    }

    fn error(&mut self, text: &str) {
        let word = text.split(' ').next().unwrap_or_default();
        *self.errors.entry(word.to_owned()).or_default() += 1;
    }
}

/// The lines of a section of INFO that begin with `prefix`, as a map from what follows to the fields.
fn section(client: &mut Client, section: &str, prefix: &str) -> BTreeMap<String, BTreeMap<String, f64>> {
    let text = client.call(&format!("INFO {section}")).text();
    let lines = text.lines().filter_map(|line| line.strip_prefix(prefix)?.split_once(':'));
    let fields = |fields: &str| {
        let pairs = fields.split(',').filter_map(|field| field.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
    };
    lines.map(|(name, rest)| (name.to_owned(), fields(rest))).collect()
}

fn load(server: &Server, expected: &mut Expected) {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for round in 0..400 {
        let client = &mut clients[round % 4];
        let mut key = || format!("key:{}", rng.u8(..40));
        let (a, b, c) = (key(), key(), key());
        let commands: [(&'static str, String); 17] = [
            ("get", format!("GET {a}")),
            ("set", format!("SET {a} 1")),
            ("incr", format!("INCR {b}")),
            ("lpush", format!("LPUSH {b} x")),
            ("mget", format!("MGET {a} {b} {c}")),
            ("mset", format!("MSET {a} 1 {b} 2 {c} 3")),
            ("del", format!("DEL {a} {c}")),
            ("exists", format!("EXISTS {a} {b} {c}")),
            ("rename", format!("RENAME {a} {b}")),
            ("sunionstore", format!("SUNIONSTORE {a} {b} {c}")),
            ("msetnx", format!("MSETNX {a} 1 {b} 2 {c} 3")),
            ("dbsize", "DBSIZE".to_owned()),
            ("scan", "SCAN 0".to_owned()),
            ("object|encoding", format!("OBJECT ENCODING {a}")),
            ("client|id", "CLIENT ID".to_owned()),
            ("config|get", "CONFIG GET hz".to_owned()),
            ("ping", "PING".to_owned()),
        ];
        let chosen: Vec<_> = (0..rng.usize(1..40)).map(|_| &commands[rng.usize(..commands.len())]).collect();
        if round % 3 == 0 {
            client.send("MULTI");
            chosen.iter().for_each(|(_, line)| client.send(line));
            client.send("EXEC");
            expected.ran("multi", &client.read());
            chosen.iter().for_each(|_| assert_eq!(client.read(), simple("QUEUED")));
            let replies = client.read();
            expected.ran("exec", &replies);
            chosen.iter().zip(replies.items()).for_each(|((name, _), reply)| expected.ran(name, reply));
        } else {
            chosen.iter().for_each(|(_, line)| client.send(line));
            chosen.iter().for_each(|(name, _)| expected.ran(name, &client.read()));
        }
        if round % 10 == 0 {
            expected.refused(Some("get"), &client.call("GET"));
            expected.refused(None, &client.call("NOSUCH x"));
            expected.ran("discard", &client.call("DISCARD"));
            expected.ran("blpop", &client.call("BLPOP nobody 0.001"));
            expected.ran("blpop", &client.call("BLPOP nobody notanumber"));
        }
    }
    let mut waiter = server.client();
    waiter.send("BLPOP waited:1 waited:2 0");
    assert!(crate::common::wait_until(std::time::Duration::from_secs(10), || {
        server.info("blocked_clients").as_deref() == Some("1")
    }));
    expected.ran("rpush", &clients[0].call("RPUSH waited:2 v"));
    expected.ran("blpop", &waiter.read());
}

/// Whichever way a command runs, here or elsewhere, at once, in a transaction or later, it is counted once.
#[test]
fn every_call_and_every_error_is_counted_once() {
    on_embers(&[], |server| {
        let mut client = server.client();
        assert_eq!(client.call("CONFIG RESETSTAT"), Value::ok());
        let mut expected = Expected::default();
        load(server, &mut expected);
        let stats = section(&mut client, "commandstats", "cmdstat_");
        let field = |name: &str, field: &str| stats.get(name).map_or(0, |fields| fields[field] as u64);
        for (name, calls) in &expected.calls {
            let failed = expected.failed.get(name).copied().unwrap_or(0);
            let rejected = expected.rejected.get(name).copied().unwrap_or(0);
            let counted = (field(name, "calls"), field(name, "failed_calls"), field(name, "rejected_calls"));
            assert_eq!(counted, (*calls, failed, rejected), "{name}");
            let histogram = client.call(&format!("LATENCY HISTOGRAM {name}"));
            assert_eq!(histogram.items()[1].items()[1], int(*calls as i64), "{name}: {histogram:?}");
        }
        let errors = section(&mut client, "errorstats", "errorstat_");
        let errors: BTreeMap<String, u64> =
            errors.into_iter().map(|(word, fields)| (word, fields["count"] as u64)).collect();
        assert_eq!(errors, expected.errors);
        let total: u64 = expected.errors.values().sum();
        assert_eq!(server.info("total_error_replies"), Some(total.to_string()));
        let latencies = section(&mut client, "latencystats", "latency_percentiles_usec_");
        assert!(latencies["get"]["p50"] <= latencies["get"]["p99.9"]);
    });
}

#[test]
fn latencies_are_kept_where_that_is_wanted() {
    on_embers(&["--latency-tracking", "no"], |server| {
        let mut client = server.client();
        client.call("SET k v");
        assert_eq!(client.call("LATENCY HISTOGRAM").items().len(), 0);
        let settings = ["CONFIG", "SET", "latency-tracking", "yes", "latency-tracking-info-percentiles", "50 100"];
        assert_eq!(client.command(&settings), Value::ok());
        client.call("SET k v");
        assert_eq!(client.call("LATENCY HISTOGRAM set nosuch").items().len(), 2);
        let shown = section(&mut client, "latencystats", "latency_percentiles_usec_");
        assert_eq!(shown["set"].keys().collect::<Vec<_>>(), ["p100", "p50"]);
        let refused = client.command(&["CONFIG", "SET", "latency-tracking-info-percentiles", "50 101"]);
        assert!(refused.text().ends_with("parameters should sit between [0.0,100.0]"), "{refused:?}");
        assert_eq!(client.command(&["CONFIG", "SET", "latency-tracking-info-percentiles", ""]), Value::ok());
        assert!(section(&mut client, "latencystats", "latency_percentiles_usec_").is_empty());
    });
}

/// Keys of all shards: wherever a command runs, it is in the log of its client.
#[test]
fn slow_commands_are_logged_with_their_clients_wherever_they_ran() {
    on_embers(&["--slowlog-log-slower-than", "0", "--slowlog-max-len", "5"], |server| {
        let mut client = server.client();
        client.call("CLIENT SETNAME someone");
        client.call("SLOWLOG RESET");
        let addr = client.stream().local_addr().expect("a socket").to_string();
        for key in 0..20 {
            assert_eq!(client.call(&format!("SET key:{key} {key}")), Value::ok());
        }
        let entries = client.call("SLOWLOG GET -1");
        assert_eq!(entries.items().len(), 5);
        let mut last_id = i64::MAX;
        for (index, entry) in entries.items().iter().enumerate() {
            let fields = entry.items();
            assert!(fields[0].number() < last_id, "the newest is first");
            last_id = fields[0].number();
            let args: Vec<String> = fields[3].items().iter().map(Value::text).collect();
            let key = 19 - index;
            assert_eq!(args, ["SET".to_owned(), format!("key:{key}"), key.to_string()]);
            assert_eq!((fields[4].text(), fields[5].text()), (addr.clone(), "someone".to_owned()));
        }
        assert_eq!(client.call("SLOWLOG LEN"), int(5));
        assert_eq!(client.call("SLOWLOG GET 2").items().len(), 2);
        assert_eq!(client.call("SLOWLOG GET -2"), error("ERR count should be greater than or equal to -1"));
        assert_eq!(client.call("CONFIG SET slowlog-log-slower-than -1"), Value::ok());
        assert_eq!(client.call("SLOWLOG RESET"), Value::ok());
        client.call("GET key:1");
        assert_eq!(client.call("SLOWLOG LEN"), int(0));
    });
}

/// Ten times the limit of one entry in arguments, and a length that nobody has memory for.
#[test]
fn the_slow_log_does_not_grow_past_its_limits() {
    on_embers(&["--slowlog-log-slower-than", "0", "--slowlog-max-len", "9223372036854775807"], |server| {
        let mut client = server.client();
        let large = vec![b'x'; 1 << 20];
        for _ in 0..50 {
            client.command(&[&b"SET"[..], b"k", &large]);
        }
        let many: Vec<String> =
            std::iter::once("DEL".to_owned()).chain((0..1000).map(|key| format!("{{k}}{key}"))).collect();
        client.command(&many);
        let entries = client.call("SLOWLOG GET 3");
        let args = |entry: usize| entries.items()[entry].items()[3].items();
        assert_eq!(args(0).len(), 32);
        assert_eq!(args(0)[31].text(), "... (970 more arguments)");
        assert_eq!(args(1)[2].text(), format!("{}... (1048448 more bytes)", "x".repeat(128)));
        assert_eq!(client.call("CONFIG SET slowlog-max-len 1"), Value::ok());
        assert_eq!(client.call("SLOWLOG LEN"), int(1));
    });
}

#[test]
fn what_takes_long_is_counted_by_kind_of_event() {
    /// Longer than anything else takes here, however slow the machine.
    const SLEPT_MS: i64 = 1_500;
    on_embers(&["--latency-monitor-threshold", "100", "--enable-debug-command", "yes"], |server| {
        let mut client = server.client();
        let slept = |client: &mut Client| {
            let history = client.call("LATENCY HISTORY command");
            history.items().iter().filter(|sample| sample.items()[1].number() >= SLEPT_MS).count()
        };
        assert_eq!(client.call("LATENCY HISTORY nosuch"), Value::Array(vec![]));
        assert_eq!(client.call("LATENCY GRAPH nosuch"), error("ERR No samples available for event 'nosuch'"));
        assert_eq!(slept(&mut client), 0);
        assert_eq!(client.call("DEBUG SLEEP 1.5"), Value::ok());
        assert_eq!(slept(&mut client), 1);
        let latest = client.call("LATENCY LATEST");
        let of_command = latest.items().iter().find(|event| event.items()[0].text() == "command");
        let of_command = of_command.expect("DEBUG is no fast command").items();
        assert!(of_command.len() == 4 && of_command[3].number() >= SLEPT_MS, "{latest:?}");
        let graph = client.call("LATENCY GRAPH command").text();
        assert!(graph.starts_with("command - high "), "{graph}");
        assert!(client.call("LATENCY DOCTOR").text().contains("command: "));
        assert_eq!(client.call("LATENCY RESET nosuch"), int(0));
        assert_eq!(client.call("LATENCY RESET command nosuch"), int(1));
        assert_eq!(slept(&mut client), 0);
        assert_eq!(client.call("CONFIG SET latency-monitor-threshold 0"), Value::ok());
        client.call("LATENCY RESET");
        assert_eq!(client.call("DEBUG SLEEP 0.2"), Value::ok());
        assert_eq!(client.call("LATENCY LATEST"), Value::Array(vec![]));
        assert!(client.call("LATENCY DOCTOR").text().starts_with("Latency is not monitored"));
    });
}

/// What INFO tells of the last seconds: commands, and kilobytes received and sent, a second.
fn rates(client: &mut Client) -> [f64; 3] {
    let text = client.call("INFO stats").text();
    ["ops_per_sec", "input_kbps", "output_kbps"].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("instantaneous_{name}:")));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
    })
}

#[test]
fn rates_are_those_of_the_last_seconds() {
    /// INFO is a command, too: who asks more often is seen in what it says.
    const ASKED_EVERY: Duration = Duration::from_secs(5);
    const PATIENCE: Duration = Duration::from_secs(60);
    let server = Server::start(Kind::Ember { shards: 3 }, &[]);
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    let burst = vec![words("SET k 0123456789"); 100];
    let is_seen = |client: &mut Client| rates(client).iter().all(|rate| *rate > 0.0);
    assert!(wait_until(PATIENCE, || {
        clients.iter_mut().for_each(|client| drop(client.pipeline(&burst)));
        is_seen(&mut clients[0])
    }));
    for name in ["input_repl", "output_repl"] {
        assert_eq!(server.info(&format!("instantaneous_{name}_kbps")).as_deref(), Some("0.00"));
    }
    for name in ["total_reads_processed", "total_writes_processed"] {
        assert!(server.info(name).is_some_and(|count| count.parse::<u64>().is_ok_and(|count| count > 3)), "{name}");
    }
    let mut asking = clients.pop().expect("a client");
    assert!(wait_until(PATIENCE, || {
        std::thread::sleep(ASKED_EVERY);
        rates(&mut asking) == [0.0; 3]
    }));
}
