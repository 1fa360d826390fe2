//! A primary whose stream cannot be followed.

use super::{PATIENCE, QUICK, replica_of, settle, wait_for_link};
use crate::common::{Kind, Server, Value, bulk, encode, have_tool, int, wait_until};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A primary that has nothing, up to the snapshot; what it was asked for.
fn serve(link: &mut TcpStream) -> String {
    link.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let asked = loop {
        let mut bytes = [0; 1000];
        let count = link.read(&mut bytes).expect("a question");
        match String::from_utf8_lossy(&bytes[..count]) {
            asked if asked.contains("PSYNC") => break asked.into_owned(),
            asked if asked.contains("PING") => link.write_all(b"+PONG\r\n").expect("it reads"),
            _ => link.write_all(b"+OK\r\n").expect("it reads"),
        }
    };
    let snapshot = b"REDIS0010\xff\0\0\0\0\0\0\0\0";
    let head = format!("+FULLRESYNC {} 0\r\n${}\r\n", "a".repeat(40), snapshot.len());
    link.write_all(&[head.as_bytes(), snapshot].concat()).expect("it reads");
    asked
}

/// What stood behind a database that is not there was done in the one before it.
#[test]
fn nothing_is_done_in_another_database_than_the_primary_means() {
    for kind in [Kind::Redis, Kind::Ember { shards: 2 }] {
        if kind == Kind::Redis && !have_tool("redis-server") {
            continue;
        }
        let primary = Server::start(kind, &[&["--databases", "40"], QUICK].concat());
        let mut client = primary.client();
        let replica = replica_of(&primary, Kind::Ember { shards: 2 }, &[]);
        wait_for_link(&replica);
        let told =
            ["SELECT 3", "SET mine of-3", "SELECT 30", "SET mine of-30", "SET second 1", "SELECT 3", "SET third 1"];
        told.iter().for_each(|line| assert_eq!(client.call(line), Value::ok()));
        let said = "the primary has more databases than this server, which has 16: raise 'databases'";
        assert!(wait_until(PATIENCE, || replica.output().contains(said)), "{}", replica.output());
        let mut reader = replica.client();
        assert_eq!(reader.call("SELECT 3"), Value::ok());
        assert_ne!(reader.call("GET mine"), bulk("of-30"));
        assert_eq!(reader.call("EXISTS second"), int(0));
        let replica = replica.restart(&["--databases", "40", "--replicaof", "127.0.0.1", &primary.port().to_string()]);
        assert!(wait_until(PATIENCE, || {
            let mut reader = replica.client();
            reader.call("SELECT 3");
            reader.call("GET third") == bulk("1")
        }));
        settle(&primary, &replica);
    }
}

/// What came behind a MULTI was kept until there was no memory left.
#[test]
fn a_transaction_without_an_end_is_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let replica = Server::start(Kind::Ember { shards: 2 }, &["--client-query-buffer-limit", "8mb"]);
    replica.client().call(&format!("REPLICAOF 127.0.0.1 {port}"));
    let before_bytes = replica.resident_bytes();
    let piece = encode(&["SET", "a", &"x".repeat(10_000)]);
    let mut began = Vec::new();
    for _ in 0..3 {
        let (mut link, _) = listener.accept().expect("it comes");
        began.push(Instant::now());
        // What it has heard is of no use, or it would hear the same again.
        let asked = serve(&mut link);
        assert!(asked.contains("$1\r\n?\r\n"), "{asked}");
        wait_for_link(&replica);
        let mut sent = 0;
        let mut ends = link.write_all(&encode(&["MULTI"])).is_err();
        while !ends && sent < 200 << 20 {
            ends = link.write_all(&piece).is_err();
            sent += piece.len();
        }
        // (What the system keeps for the connection comes on top.)
        assert!(ends && sent < 64 << 20, "{sent}");
    }
    assert!(began[2] - began[1] > began[1] - began[0] + Duration::from_secs(1), "the pauses grow");
    let said = "The link to the primary has ended: a transaction of its takes more than the 8388608 bytes";
    assert!(wait_until(PATIENCE, || replica.output().matches(said).count() >= 3), "{}", replica.output());
    assert!(replica.peak_bytes() < before_bytes + (100 << 20), "{}", replica.peak_bytes());
    assert_eq!(replica.client().call("PING").text(), "PONG");
}
