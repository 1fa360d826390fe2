//! What a replica says and is answered, byte by byte.

use super::{PATIENCE, PRIMARY, field};
use crate::common::{Kind, Server, encode, wait_until, words};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A replica that does what the test says.
struct Link {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Link {
    fn to(server: &Server) -> Link {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let reader = BufReader::new(stream.try_clone().expect("a second handle"));
        Link { stream, reader }
    }

    fn say(&mut self, line: &str) {
        self.stream.write_all(&encode(&words(line))).expect("it is read");
    }

    /// The next line that is not empty.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).expect("a line");
            assert!(!line.is_empty(), "the connection has ended");
            if line != "\n" {
                return line.trim_end().to_owned();
            }
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.line()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.reader.read_exact(&mut bytes).expect("so many bytes");
        bytes
    }

    /// Its snapshot, by whatever says where it ends.
    fn snapshot(&mut self) -> Vec<u8> {
        let head = self.line();
        if let Some(mark) = head.strip_prefix("$EOF:") {
            assert_eq!(mark.len(), 40);
            let mut bytes = Vec::new();
            while !bytes.ends_with(mark.as_bytes()) {
                bytes.extend(self.bytes(1));
            }
            bytes.truncate(bytes.len() - mark.len());
            return bytes;
        }
        let len = head.strip_prefix('$').and_then(|len| len.parse().ok()).unwrap_or_else(|| panic!("{head}"));
        self.bytes(len)
    }

    /// Whether nothing comes for a moment.
    fn is_quiet(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        let read = self.reader.fill_buf().map(<[u8]>::len);
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        read.is_err()
    }

    fn has_ended(&mut self) -> bool {
        let mut rest = Vec::new();
        self.reader.read_to_end(&mut rest).is_ok()
    }
}

/// A full resynchronisation: the name of the data, and the offset.
fn full(link: &mut Link, psync: &str) -> (String, u64, Vec<u8>) {
    let answer = link.ask(psync);
    let [word, id, offset] = answer.split(' ').collect::<Vec<_>>()[..] else { panic!("{answer}") };
    assert_eq!((word, id.len()), ("+FULLRESYNC", 40));
    let (id, offset) = (id.to_owned(), offset.parse().expect("a number"));
    (id, offset, link.snapshot())
}

const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n";
const SELECT: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";

#[test]
fn a_snapshot_of_unknown_length_and_then_nothing_before_the_replica_says_so() {
    let server = Server::start(Kind::Ember { shards: 2 }, PRIMARY);
    server.client().call("SET before 1");
    let mut link = Link::to(&server);
    assert_eq!(link.ask("PING"), "+PONG");
    assert_eq!(link.ask("REPLCONF listening-port 7777"), "+OK");
    assert_eq!(link.ask("REPLCONF ip-address 10.1.2.3"), "+OK");
    assert_eq!(link.ask("REPLCONF capa eof capa psync2 capa unheard-of"), "+OK");
    link.say("PSYNC ? -1");
    let head = link.line();
    assert!(head.starts_with("+FULLRESYNC "), "{head}");
    let snapshot = link.snapshot();
    assert!(snapshot.starts_with(b"REDIS00"), "{:?}", &snapshot[..10]);
    server.client().call("SET a 1");
    assert!(link.is_quiet());
    assert!(field(&server, "slave0").starts_with("ip=10.1.2.3,port=7777,state=send_bulk"));
    let offset = head.rsplit(' ').next().expect("an offset").to_owned();
    link.say(&format!("REPLCONF ACK {offset}"));
    assert_eq!(link.bytes(SELECT.len() + SET.len()), [SELECT, SET].concat());
    assert!(field(&server, "slave0").contains("state=online"));
    // It may not touch the data.
    for command in ["GET a", "SET a 2", "PUBLISH a b"] {
        assert_eq!(link.ask(command), "-ERR Replica can't interact with the keyspace");
    }
    assert_eq!(link.ask("PING"), "+PONG");
}

#[test]
fn a_snapshot_whose_length_is_known_and_the_stream_behind_it() {
    let server = Server::start(Kind::Ember { shards: 2 }, PRIMARY);
    server.client().call("SET before 1");
    let mut link = Link::to(&server);
    let (_, offset, _) = full(&mut link, "PSYNC ? -1");
    server.client().call("SET a 1");
    assert_eq!(link.bytes(SELECT.len() + SET.len()), [SELECT, SET].concat());
    let end = offset + (SELECT.len() + SET.len()) as u64;
    assert_eq!(field(&server, "master_repl_offset"), end.to_string());
    // SYNC, of old, has no first line.
    let mut old = Link::to(&server);
    old.say("SYNC");
    assert!(old.snapshot().starts_with(b"REDIS00"));
    server.client().call("SET a 1");
    assert_eq!(old.bytes(SELECT.len() + SET.len()), [SELECT, SET].concat());
}

#[test]
fn who_comes_back_goes_on_at_any_byte_that_is_kept() {
    let server = Server::start(Kind::Ember { shards: 2 }, PRIMARY);
    let mut first = Link::to(&server);
    let (id, offset, _) = full(&mut first, "PSYNC ? -1");
    server.client().call("SET a 1");
    let stream = [SELECT, SET].concat();
    assert_eq!(first.bytes(stream.len()), stream);
    for from in 0..=stream.len() {
        let mut link = Link::to(&server);
        assert_eq!(link.ask("REPLCONF capa eof capa psync2"), "+OK");
        assert_eq!(link.ask(&format!("PSYNC {id} {}", offset + from as u64 + 1)), format!("+CONTINUE {id}"));
        assert_eq!(link.bytes(stream.len() - from), stream[from..]);
        assert!(from % 10 > 0 || link.is_quiet());
    }
    // One that does not know of other names is not told any.
    let mut link = Link::to(&server);
    assert_eq!(link.ask(&format!("PSYNC {id} {}", offset + 1)), "+CONTINUE");
    for (name, from) in [
        (id.as_str(), offset + stream.len() as u64 + 2),
        (&id, 0),
        (&id[..39], offset + 1),
        (&format!("{id}0"), offset + 1),
        (&"0".repeat(40), offset + 1),
        ("?", offset + 1),
    ] {
        let mut link = Link::to(&server);
        assert_eq!(full(&mut link, &format!("PSYNC {name} {from}")).0, id, "{name} {from}");
    }
    let mut link = Link::to(&server);
    full(&mut link, &format!("PSYNC {id} -2"));
    assert_eq!(Link::to(&server).ask(&format!("PSYNC {id} x")), "-ERR value is not an integer or out of range");
}

#[test]
fn names_change_and_replicas_know() {
    let server = Server::start(Kind::Ember { shards: 1 }, PRIMARY);
    let (id, offset, _) = full(&mut Link::to(&server), "PSYNC ? -1");
    server.client().call("DEBUG CHANGE-REPL-ID");
    let other = full(&mut Link::to(&server), &format!("PSYNC {id} {}", offset + 1)).0;
    assert_ne!(other, id);
}

#[test]
fn a_replica_that_says_nothing_is_given_up() {
    let server = Server::start(Kind::Ember { shards: 2 }, &[PRIMARY, &["--repl-timeout", "1"]].concat());
    let mut link = Link::to(&server);
    full(&mut link, "PSYNC ? -1");
    assert!(link.has_ended());
    assert!(wait_until(PATIENCE, || field(&server, "connected_slaves") == "0"));
}

#[test]
fn replicas_hear_that_the_primary_is_there() {
    let server = Server::start(Kind::Ember { shards: 2 }, &[PRIMARY, &["--repl-ping-replica-period", "1"]].concat());
    let mut link = Link::to(&server);
    full(&mut link, "PSYNC ? -1");
    assert_eq!(link.bytes(14), b"*1\r\n$4\r\nPING\r\n");
}

/// Connections that come and go at every step leave nothing behind.
#[test]
fn replicas_may_hang_up_at_every_step() {
    for diskless in ["yes", "no"] {
        let flags = [PRIMARY, &["--repl-diskless-sync", diskless, "--repl-timeout", "2"]].concat();
        let server = Server::start(Kind::Ember { shards: 2 }, &flags);
        let mut client = server.client();
        client.call("DEBUG POPULATE 100000 key 100");
        for round in 0..30 {
            let mut link = Link::to(&server);
            if round % 2 == 0 {
                link.ask("REPLCONF capa eof");
            }
            link.say("PSYNC ? -1");
            match round % 5 {
                0 => {}
                1 => drop(link.line()),
                2 => {
                    link.line();
                    link.line();
                    link.bytes(1000);
                }
                3 => {
                    link.line();
                    link.snapshot();
                }
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
            client.call(&format!("SET round {round}"));
        }
        assert!(wait_until(PATIENCE, || field(&server, "connected_slaves") == "0"), "{}", field(&server, "slave0"));
        assert!(wait_until(PATIENCE, || field(&server, "rdb_bgsave_in_progress") == "0"));
        let left = std::fs::read_dir(server.folder()).expect("a folder").flatten();
        assert!(left.filter(|file| file.file_name().to_string_lossy().contains("temp-")).count() == 0);
        full(&mut Link::to(&server), "PSYNC ? -1");
    }
}

#[test]
fn who_listens_or_waits_cannot_be_a_replica() {
    let server = Server::start(Kind::Ember { shards: 2 }, PRIMARY);
    let mut link = Link::to(&server);
    link.say("MONITOR");
    assert_eq!(link.line(), "+OK");
    assert!(link.ask("PSYNC ? -1").starts_with("-ERR"));
    assert_eq!(field(&server, "connected_slaves"), "0");
}

/// Redis 7.0 knows of no deadlines of fields: it is told of the fields alone, and of their deaths. Who says that it knows
/// more is told all of it, while nobody is there who does not.
#[test]
fn deadlines_of_fields_are_for_who_knows_them() {
    let server = Server::start(Kind::Ember { shards: 2 }, PRIMARY);
    let mut client = server.client();
    client.call("HSET h a 1 b 2");
    client.call("HPEXPIRE h 100000 FIELDS 1 a");
    let knowing = |server: &Server| {
        let mut link = Link::to(server);
        assert_eq!(
            link.ask("REPLCONF capa psync2 capa field-deadlines capa member-deadlines capa key-groups capa key-pins"),
            "+OK"
        );
        link
    };
    let mut new = knowing(&server);
    assert!(full(&mut new, "PSYNC ? -1").2.starts_with(b"REDIS0012"));
    client.call("HPERSIST h FIELDS 1 a");
    let persist = encode(&words("HPERSIST h FIELDS 1 a"));
    assert_eq!(new.bytes(SELECT.len() + persist.len()), [SELECT, &persist].concat());
    let mut old = Link::to(&server);
    client.call("HPEXPIRE h 100000 FIELDS 1 a");
    let (id, offset, snapshot) = full(&mut old, "PSYNC ? -1");
    assert!(snapshot.starts_with(b"REDIS0010"));
    client.call("HSETEX h EX 100 FIELDS 1 c 3");
    client.call("HEXPIRE h 100 FIELDS 1 b");
    client.call("HPEXPIRE h 1 FIELDS 1 b");
    let said = |lines: &[&str]| lines.iter().map(|line| encode(&words(line))).collect::<Vec<_>>().concat();
    let of_hash = said(&["HSET h c 3", "HDEL h b"]);
    assert_eq!(old.bytes(SELECT.len() + of_hash.len()), [SELECT, &of_hash].concat());
    client.call("SADDEX s EX 100 MEMBERS 2 a b");
    client.call("SEXPIRE s 100 MEMBERS 1 a");
    client.call("SPERSIST s MEMBERS 1 a");
    client.call("ZADD {s}z 1 a 2 b");
    client.call("ZPEXPIREAT {s}z 4102444800000 MEMBERS 2 a b");
    client.call("ZPERSIST {s}z MEMBERS 1 b");
    client.call("ZREM {s}z b");
    client.call("SPEXPIRE s 1 MEMBERS 1 b");
    let of_members = said(&["SADD s a b", "ZADD {s}z 1 a 2 b", "ZREM {s}z b", "SREM s b"]);
    assert_eq!(old.bytes(of_members.len()), of_members);
    // What it was told before is not for a server that has come when nobody needed less.
    drop(old);
    assert!(wait_until(PATIENCE, || field(&server, "connected_slaves") == "1"));
    // The other one begins anew, since it was told less.
    assert!(new.has_ended());
    let mut new = knowing(&server);
    let answer = new.ask(&format!("PSYNC {id} {}", offset + 1));
    assert!(answer.starts_with("+FULLRESYNC"), "{answer}");
    assert!(new.snapshot().starts_with(b"REDIS0012"));
    let (now_id, now) = (field(&server, "master_replid"), field(&server, "master_repl_offset"));
    let mut old = Link::to(&server);
    let next = now.parse::<u64>().expect("a number") + 1;
    client.call("HPEXPIRE h 100000 FIELDS 1 c");
    assert!(old.ask(&format!("PSYNC {now_id} {next}")).starts_with("+FULLRESYNC"));
}
