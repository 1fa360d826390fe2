//! What is said under TLS is what is said without.

use super::{TlsServer, on_all};
use crate::common::tls::Options;
use crate::common::{Client, Value, bulk, encode, int, simple, wait_until, words};
use std::io::{Read, Write};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_millis(100);

#[test]
fn commands_are_answered_in_both_versions() {
    on_all(&[], |server| {
        for options in
            [Options { only_tls12: true, ..Options::default() }, Options { only_tls13: true, ..Options::default() }]
        {
            let mut client = server.client_with(options);
            assert_eq!(client.call("SET k v"), Value::ok());
            assert_eq!(client.call("GET k"), bulk("v"));
            assert_eq!(client.call("MSET a 1 b 2 c 3 d 4"), Value::ok());
            assert_eq!(client.call("DBSIZE"), int(5));
            assert!(!client.call("HELLO 3").is_error());
            assert_eq!(client.call("FLUSHALL"), Value::ok());
            client.assert_in_step();
        }
        // Both listeners serve the same data.
        assert_eq!(server.server.client().call("SET plain 1"), Value::ok());
        assert_eq!(server.client().call("GET plain"), bulk("1"));
    });
}

/// Nobody waits for the first reply before everything is sent.
#[test]
fn pipelines_that_nobody_waits_for_are_answered() {
    const COMMANDS: usize = 50_000;
    on_all(&[], |server| {
        let mut client = server.client();
        let commands: Vec<_> = (0..COMMANDS).map(|i| words(&format!("SET key:{i} value:{i}"))).collect();
        let replies = client.pipeline(&commands);
        assert!(replies.iter().all(|reply| *reply == Value::ok()));
        let commands: Vec<_> = (0..COMMANDS).map(|i| words(&format!("GET key:{i}"))).collect();
        let replies = client.pipeline(&commands);
        assert!(replies.iter().enumerate().all(|(i, reply)| *reply == bulk(format!("value:{i}"))));
        client.assert_in_step();
    });
}

#[test]
fn values_of_fifty_megabytes_go_both_ways() {
    const BYTES: usize = 50 << 20;
    on_all(&[], |server| {
        let value: Vec<u8> = (0..BYTES).map(|at| (at * 31 / 8) as u8).collect();
        let mut client = server.client();
        assert_eq!(client.command(&[b"SET".as_slice(), b"big", &value]), Value::ok());
        for _ in 0..2 {
            assert!(client.command(&["GET", "big"]) == Value::Bulk(value.clone()), "the value is another");
        }
        assert_eq!(client.call("STRLEN big"), int(BYTES as i64));
        client.assert_in_step();
    });
}

/// Lengths around those of records.
#[test]
fn values_of_every_length_around_a_record_come_back() {
    on_all(&[], |server| {
        let mut client = server.client();
        for len in (16_250..16_500).chain(32_700..32_800).chain([262_100, 262_144, 262_200, 524_288]) {
            let value: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let set = encode(&[b"SET".as_slice(), b"k", &value]);
            client.send_raw(&[set, encode(&["GET", "k"])].concat());
            assert_eq!(client.read(), Value::ok());
            assert!(client.read() == Value::Bulk(value), "{len}");
        }
        client.assert_in_step();
    });
}

#[test]
fn messages_events_and_commands_of_others_are_told() {
    on_all(&["--notify-keyspace-events", "KEA"], |server| {
        let (mut listener, mut monitor, mut other) = (server.client(), server.client(), server.client());
        assert!(!listener.call("HELLO 3").is_error());
        listener.call("SUBSCRIBE news __keyevent@0__:expired");
        listener.read();
        assert_eq!(monitor.call("MONITOR"), Value::ok());
        for number in 0..1_000 {
            assert_eq!(other.call(&format!("PUBLISH news {number}")), int(1));
        }
        for number in 0..1_000 {
            let Value::Push(message) = listener.read() else { panic!("no push") };
            assert_eq!(message[2], bulk(number.to_string()));
            let Value::Simple(line) = monitor.read() else { panic!("no line") };
            let line = String::from_utf8(line).expect("text");
            assert!(line.ends_with(&format!("\"PUBLISH\" \"news\" \"{number}\"")), "{line}");
        }
        other.call("SET k v PX 30");
        let Value::Push(message) = listener.read() else { panic!("no push") };
        assert_eq!(message[2], bulk("k"));
    });
}

#[test]
fn names_of_changed_keys_are_told() {
    on_all(&[], |server| {
        let (mut tracking, mut other) = (server.client(), server.client());
        assert!(!tracking.call("HELLO 3").is_error());
        assert_eq!(tracking.call("CLIENT TRACKING ON"), Value::ok());
        tracking.call("GET k");
        other.call("SET k v");
        let Value::Push(message) = tracking.read() else { panic!("no push") };
        assert_eq!(message, [bulk("invalidate"), Value::Array(vec![bulk("k")])]);
    });
}

#[test]
fn those_who_wait_for_a_key_are_served() {
    on_all(&[], |server| {
        let (mut waiting, mut other) = (server.client(), server.client());
        for round in 0..50 {
            waiting.send("BLPOP list 0");
            let blocked = || server.server.info("blocked_clients").as_deref() == Some("1");
            assert!(wait_until(LIMIT, blocked));
            other.call(&format!("RPUSH list {round}"));
            assert_eq!(waiting.read(), Value::Array(vec![bulk("list"), bulk(round.to_string())]));
        }
        // Who has gone waits no more, with a word or without.
        waiting.send("BLPOP list 0");
        waiting.tls().conn.send_close_notify();
        waiting.tls().flush().expect("sent");
        let free = || server.server.info("blocked_clients").as_deref() == Some("0");
        assert!(wait_until(LIMIT, free));
        let mut waiting = server.client();
        waiting.send("BLPOP list 0");
        drop(waiting);
        assert!(wait_until(LIMIT, free));
        assert_eq!(other.call("RPUSH list x"), int(1));
    });
}

#[test]
fn transactions_and_scripts_run() {
    on_all(&[], |server| {
        let mut client = server.client();
        client.send_raw(b"MULTI\r\nSET a 1\r\nINCR a\r\nEXEC\r\n");
        let replies: Vec<Value> = (0..4).map(|_| client.read()).collect();
        assert_eq!(replies[3], Value::Array(vec![Value::ok(), int(2)]));
        let script = ["EVAL", "return redis.call('INCRBY', KEYS[1], ARGV[1])", "1", "a", "40"];
        assert_eq!(client.command(&script), int(42));
    });
}

/// The end is said, as TLS wants it: else a client must take what it has for a torn answer.
fn ends_well(client: &mut Client) -> bool {
    let mut rest = Vec::new();
    client.tls().read_to_end(&mut rest).is_ok()
}

#[test]
fn quit_is_answered_and_the_end_is_said() {
    on_all(&[], |server| {
        for options in [Options::default(), Options { only_tls12: true, ..Options::default() }] {
            let mut client = server.client_with(options);
            assert_eq!(client.call("QUIT"), Value::ok());
            assert!(ends_well(&mut client));
        }
    });
}

#[test]
fn clients_are_killed() {
    on_all(&[], |server| {
        let (mut victim, mut killer) = (server.client(), server.client());
        let id = victim.call("CLIENT ID").number();
        assert_eq!(killer.call(&format!("CLIENT KILL ID {id}")), int(1));
        assert!(victim.is_closed_by_server());
        // Itself, and another from the same turn.
        let victims: Vec<Client> = (0..20).map(|_| server.client()).collect();
        let ids: Vec<i64> = victims.into_iter().map(|mut victim| victim.call("CLIENT ID").number()).collect();
        let kill: Vec<u8> = ids.iter().flat_map(|id| encode(&words(&format!("CLIENT KILL ID {id}")))).collect();
        killer.send_raw(&kill);
        ids.iter().for_each(|_| drop(killer.read()));
        let own = killer.call("CLIENT ID").number();
        killer.send(&format!("CLIENT KILL ID {own} SKIPME no"));
        assert_eq!(killer.read(), int(1));
        assert!(killer.is_closed_by_server());
        assert_eq!(server.client().call("PING"), simple("PONG"));
    });
}

/// What was asked before the client said that it says no more is answered.
#[test]
fn what_was_asked_before_the_end_is_answered() {
    on_all(&[], |server| {
        let mut client = server.client();
        let commands: Vec<u8> = (0..1_000).flat_map(|number| encode(&words(&format!("INCRBY n {number}")))).collect();
        client.send_raw(&commands);
        client.tls().conn.send_close_notify();
        client.tls().flush().expect("sent");
        let mut sum = 0;
        for number in 0..1_000 {
            sum += number;
            assert_eq!(client.read(), int(sum));
        }
        assert!(ends_well(&mut client));
    });
}

/// A client that turns its keys over while it speaks.
#[test]
fn keys_may_change_under_way() {
    on_all(&[], |server| {
        let mut client = server.client_with(Options { only_tls13: true, ..Options::default() });
        for round in 0..100 {
            client.tls().conn.refresh_traffic_keys().expect("TLS 1.3 has that");
            assert_eq!(client.call(&format!("SET k {round}")), Value::ok());
            assert_eq!(client.call("GET k"), bulk(round.to_string()));
        }
    });
}

#[test]
fn clients_are_listed_as_others_are() {
    let server = TlsServer::start(1, &[]);
    let mut client = server.client();
    client.call("CLIENT SETNAME encrypted");
    let list = client.call("CLIENT LIST").text();
    let line = list.lines().find(|line| line.contains("name=encrypted")).expect("it is listed");
    let own = client.stream().local_addr().expect("an address");
    assert!(line.contains(&format!("addr={own} laddr=127.0.0.1:{} ", server.port())), "{line}");
    assert!(line.contains("flags=N"), "{line}");
    // What TLS keeps for it counts.
    let memory = |line: &str| -> usize {
        let rest = line.split("tot-mem=").nth(1).expect("memory");
        rest.split(' ').next().and_then(|bytes| bytes.parse().ok()).expect("a number")
    };
    let mut plain = server.server.client();
    plain.call("CLIENT SETNAME plain");
    let list = plain.call("CLIENT LIST").text();
    let of = |name: &str| memory(list.lines().find(|line| line.contains(name)).expect("it is listed"));
    assert!(of("name=encrypted") > of("name=plain") + 1_000, "{list}");
}

#[test]
fn tls_may_be_all_there_is() {
    let server = TlsServer::start(1, &[]);
    assert_eq!(server.server.info("tcp_port"), Some(server.server.port().to_string()));
    let mut client = server.client();
    assert_eq!(client.call("CONFIG GET tls-port").items()[1], bulk(server.port().to_string()));
    drop(server);
    let port = crate::common::server::Port::claim();
    let flags = [&crate::common::tls::flags(port.number())[..], &["--port", "0"]].concat();
    let folder = tempfile::tempdir().expect("a folder");
    let kind = crate::common::Kind::Ember { shards: 1 };
    let _server = crate::common::Server::start_without_waiting(kind, &flags, folder);
    let connected = || Client::connect_tls(port.number(), Options::default()).is_ok();
    assert!(wait_until(LIMIT, connected));
    let mut client = Client::connect_tls(port.number(), Options::default()).expect("a connection");
    let info = client.call("INFO server").text();
    assert!(info.contains(&format!("tcp_port:{}\r\n", port.number())), "{info}");
    assert!(client.drain(SILENCE).is_empty());
}
