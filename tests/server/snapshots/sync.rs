//! SYNC and PSYNC, as tools use them that want a snapshot: redis-cli --rdb.

use super::{DEBUG, FILE, PATIENCE, digest, fill, start_with};
use crate::common::{
    Client, Kind, Server, Value, bulk, encode, error, have_tool, int, on_every_server, wait_until, words,
};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Whoever asks for a snapshot, after these commands.
fn ask(server: &Server, before: &[&str], command: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    for line in before {
        let args: Vec<&str> = line.split(' ').map(|word| word.trim_matches('\'')).collect();
        stream.write_all(&encode(&args)).expect("it is read");
        assert_eq!(line_of(&mut reader), "+OK");
    }
    stream.write_all(&encode(&words(command))).expect("it is read");
    reader
}

/// The next line that says something.
fn line_of(reader: &mut BufReader<TcpStream>) -> String {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        assert!(!line.is_empty(), "the connection has ended");
        if line != "\n" {
            return line.trim_end().to_owned();
        }
    }
}

/// A snapshot that is sent, to its end and to that of the connection.
fn snapshot_of(reader: &mut BufReader<TcpStream>) -> Vec<u8> {
    let header = line_of(reader);
    let len: usize = header.strip_prefix('$').and_then(|len| len.parse().ok()).unwrap_or_else(|| panic!("{header}"));
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("a snapshot");
    assert_eq!(bytes.len(), len);
    bytes
}

fn digest_of(bytes: &[u8]) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(FILE);
    fs::write(&path, bytes).expect("a file");
    digest(&start_with(Kind::Ember { shards: 2 }, &path, &[]))
}

fn temporary_files(server: &Server) -> Vec<PathBuf> {
    let files = fs::read_dir(server.folder()).expect("a folder").flatten().map(|file| file.path());
    files.filter(|path| path.to_string_lossy().contains("temp-")).collect()
}

fn is_tidy(server: &Server) -> bool {
    let is_saving = server.info("rdb_bgsave_in_progress").as_deref() != Some("0");
    !is_saving && temporary_files(server).is_empty() && open_snapshots(server) == 0
}

/// Files that are open and have no name any more.
fn open_snapshots(server: &Server) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("/proc").flatten();
    let links = open.filter_map(|file| fs::read_link(file.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("temp-sync")).count()
}

fn cli(server: &Server, flag: &str, path: &std::path::Path) -> String {
    let run = Command::new("redis-cli").args(["-p", &server.port().to_string(), flag]).arg(path).output();
    let run = run.expect("redis-cli");
    let output = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
    assert!(run.status.success(), "{output}");
    output
}

#[test]
fn redis_cli_fetches_a_snapshot() {
    if !have_tool("redis-cli") {
        return;
    }
    for shards in [1, 3] {
        let server = Server::start(Kind::Ember { shards }, &DEBUG);
        let mut client = server.client();
        fill(&mut client);
        let library = "#!lua name=lib\nredis.register_function('answer', function() return 42 end)";
        assert_eq!(client.command(&["FUNCTION", "LOAD", library]), bulk("lib"));
        let expected = digest(&server);
        let folder = tempfile::tempdir().expect("a folder");
        let (whole, functions) = (folder.path().join("whole.rdb"), folder.path().join("functions.rdb"));
        assert!(cli(&server, "--rdb", &whole).contains("Transfer finished with success"));
        assert!(cli(&server, "--functions-rdb", &functions).contains("Transfer finished with success"));
        let mut kinds = vec![Kind::Ember { shards: 2 }];
        kinds.extend(have_tool("redis-server").then_some(Kind::Redis));
        for kind in kinds {
            let again = start_with(kind, &whole, &[]);
            assert_eq!(digest(&again), expected, "{kind:?}");
            assert_eq!(again.client().call("FCALL answer 0"), int(42));
            let again = start_with(kind, &functions, &[]);
            assert_eq!(again.client().call("DBSIZE"), int(0));
            assert_eq!(again.client().call("FCALL answer 0"), int(42));
        }
        assert!(wait_until(PATIENCE, || is_tidy(&server)), "{:?}", temporary_files(&server));
    }
}

#[test]
fn a_snapshot_comes_behind_what_was_asked_before_and_ends_the_connection() {
    let server = Server::start(Kind::Ember { shards: 2 }, &DEBUG);
    fill(&mut server.client());
    let expected = digest(&server);
    let mut plain = ask(&server, &["REPLCONF rdb-only 1"], "SYNC");
    assert_eq!(digest_of(&snapshot_of(&mut plain)), expected);
    let before = ["REPLCONF listening-port 7 ip-address x capa eof capa psync2", "REPLCONF rdb-only 1"];
    let mut named = ask(&server, &before, "PSYNC ? -1");
    let line = line_of(&mut named);
    let id = server.info("master_replid").expect("an id");
    assert_eq!(line, format!("+FULLRESYNC {id} 0"));
    assert_eq!(digest_of(&snapshot_of(&mut named)), expected);
    let mut empty = ask(&server, &["REPLCONF rdb-only 1 rdb-filter-only ''"], "SYNC");
    assert!(snapshot_of(&mut empty).len() < 200);
    let mut client = server.client();
    assert_eq!(client.call("REPLCONF rdb-only 1"), Value::ok());
    assert_eq!(client.call("PSYNC ? x"), error("ERR value is not an integer or out of range"));
    assert_eq!(client.call("MULTI"), Value::ok());
    assert_eq!(client.call("SYNC"), error("ERR Command not allowed inside a transaction"));
    assert!(client.call("EXEC").text().starts_with("EXECABORT"));
    for told in ["SUBSCRIBE channel", "CLIENT TRACKING ON", "MONITOR"] {
        let mut client = server.client3();
        assert!(!client.call(told).is_error());
        client.send("REPLCONF rdb-only 1");
        client.send("SYNC");
        let refused = |reply: Value| reply.is_error() && reply.text().contains("would be mixed");
        assert!(wait_until(PATIENCE, || refused(client.read())), "{told}");
    }
}

#[test]
fn several_at_once_and_bgsave_each_get_theirs() {
    let server = Server::start(Kind::Ember { shards: 2 }, &DEBUG);
    let mut client = server.client();
    assert_eq!(client.call("DEBUG POPULATE 200000 key 100"), Value::ok());
    let expected = digest(&server);
    assert!(!client.call("BGSAVE").is_error());
    let mut all: Vec<_> = (0..4).map(|_| ask(&server, &["REPLCONF rdb-only 1"], "SYNC")).collect();
    assert_eq!(client.call("SET last 1"), Value::ok());
    assert_eq!(client.call("DEL last"), int(1));
    for reader in &mut all {
        assert_eq!(digest_of(&snapshot_of(reader)), expected);
    }
    assert!(wait_until(PATIENCE, || is_tidy(&server)));
    assert_eq!(server.info("rdb_last_bgsave_status").as_deref(), Some("ok"));
    // Nothing of this was a snapshot for the disk.
    assert_eq!(server.info("rdb_saves").as_deref(), Some("1"));
}

/// Nothing swells meanwhile, nobody waits, and nothing is left.
#[test]
fn who_does_not_read_or_hangs_up_costs_nothing() {
    let server = Server::start(Kind::Ember { shards: 2 }, &["--enable-debug-command", "yes", "--repl-timeout", "1"]);
    let mut client = server.client();
    assert_eq!(client.call("DEBUG POPULATE 100000 key 1000"), Value::ok());
    assert_eq!(client.call("CONFIG SET rdbcompression no"), Value::ok());
    let before = server.resident_bytes();
    let silent: Vec<_> = (0..3).map(|_| ask(&server, &["REPLCONF rdb-only 1"], "SYNC")).collect();
    let mut hasty = ask(&server, &["REPLCONF rdb-only 1"], "SYNC");
    let mut some = vec![0; 1 << 20];
    hasty.read_exact(&mut some).expect("a begin");
    drop(hasty);
    let given_up = |server: &Server| server.output().matches("its snapshot was not sent").count();
    assert!(wait_until(PATIENCE, || given_up(&server) == 4), "{}", server.output());
    assert_eq!(server.output().matches("nothing was read for 1 seconds").count(), 3);
    assert!(wait_until(PATIENCE, || is_tidy(&server)));
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes more");
    drop(silent);
    assert_eq!(client.call("PING"), Value::Simple("PONG".into()));
}

#[test]
fn who_hangs_up_before_it_is_made_leaves_nothing() {
    let server = Server::start(Kind::Ember { shards: 1 }, &DEBUG);
    let mut client = server.client();
    assert_eq!(client.call("DEBUG POPULATE 300000 key 200"), Value::ok());
    for _ in 0..5 {
        drop(ask(&server, &["REPLCONF rdb-only 1"], "SYNC"));
    }
    assert_eq!(client.call("PING"), Value::Simple("PONG".into()));
    assert!(wait_until(Duration::from_secs(60), || is_tidy(&server)));
    assert!(wait_until(PATIENCE, || server.info("connected_clients").as_deref() == Some("2")));
}

/// A server that ends does not wait for who is sent a snapshot, and leaves none behind.
#[test]
fn the_end_does_not_wait_for_a_reader() {
    for save in ["900 1", ""] {
        let mut server = Server::start(Kind::Ember { shards: 2 }, &["--enable-debug-command", "yes", "--save", save]);
        let mut client = server.client();
        assert_eq!(client.call("DEBUG POPULATE 100000 key 300"), Value::ok());
        let silent: Vec<_> = (0..3).map(|_| ask(&server, &["REPLCONF rdb-only 1"], "SYNC")).collect();
        server.signal("TERM");
        assert!(server.wait_for_end(PATIENCE).is_some_and(|(status, _)| status.success()), "{}", server.output());
        assert!(temporary_files(&server).is_empty(), "{:?}", temporary_files(&server));
        assert_eq!(server.folder().join(FILE).exists(), !save.is_empty());
        drop(silent);
    }
}

#[test]
fn replconf_and_role_are_those_of_redis() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        for line in [
            "REPLCONF",
            "REPLCONF capa",
            "REPLCONF nonsense 1",
            "REPLCONF listening-port 7000 ip-address 10.0.0.1 capa eof capa psync2 capa else",
            "REPLCONF listening-port x",
            "REPLCONF rdb-only 1",
            "REPLCONF rdb-only 2",
            "REPLCONF rdb-only x",
            "REPLCONF rdb-filter-only functions",
            "REPLCONF rdb-filter-only keys",
        ] {
            let expected = match line.split_once(' ').map_or("", |(_, rest)| rest) {
                "capa" => error("ERR syntax error"),
                "nonsense 1" => error("ERR Unrecognized REPLCONF option: nonsense"),
                "listening-port x" | "rdb-only x" => error("ERR value is not an integer or out of range"),
                "rdb-only 2" => error("ERR value is out of range, value must between 0 and 1"),
                "rdb-filter-only keys" => error("ERR Unsupported rdb-filter-only option: keys"),
                _ => Value::ok(),
            };
            assert_eq!(client.call(line), expected, "{line}");
        }
        let long = "x".repeat(300);
        let too_long =
            format!("ERR REPLCONF ip-address provided by replica instance is too long: {} bytes", long.len());
        assert_eq!(client.command(&["REPLCONF", "ip-address", &long]), error(&too_long));
        // Not answered at all.
        client.send("REPLCONF ack 7");
        client.send("REPLCONF getack *");
        assert_eq!(client.call("PING"), Value::Simple("PONG".into()));
        assert_eq!(client.call("ROLE").items(), [bulk("master"), int(0), Value::Array(vec![])]);
        assert!(!client.call("RESET").is_error());
        let mut other: Client = server.client();
        assert_eq!(other.call("MULTI"), Value::ok());
        assert_eq!(other.call("PSYNC ? -1"), error("ERR Command not allowed inside a transaction"));
    });
}
