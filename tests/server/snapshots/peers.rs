//! Snapshots that go to newer servers and come back: Valkey 9 and Redis 8, which `scripts/test` installs as Python packages
//! that hold their binaries.

use super::{DEBUG, FILE, digest, fill, saved_by, start_with};
use crate::common::packages::{REDIS_8, VALKEY, peer};
use crate::common::{Client, Kind, Server, Value, have_tool, int, words};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What only newer servers know: deadlines of fields, of small and of large hashes.
fn fill_newer(client: &mut Client) {
    let mut commands: Vec<Vec<Vec<u8>>> = Vec::new();
    for i in 0..600 {
        commands.push(words(&format!("HSET fields-large f{i} v{i}")));
        commands.push(words(&format!("HSET fields-small:{} f{i} some-longer-value-{i}-{i}-{i}", i % 60)));
    }
    for i in (0..600).step_by(3) {
        let at_ms = 4_000_000_000_000u64 + i * 1_000;
        commands.push(words(&format!("HPEXPIREAT fields-large {at_ms} FIELDS 1 f{i}")));
        commands.push(words(&format!("HPEXPIREAT fields-small:{} {} FIELDS 1 f{i}", i % 60, at_ms + 1)));
    }
    commands.push(words("PEXPIREAT fields-large 4100000000000"));
    let replies = client.pipeline(&commands);
    assert!(replies.iter().all(|reply| !reply.is_error()), "{replies:?}");
}

/// What is there of fields, their values and deadlines.
fn fields(client: &mut Client) -> Vec<Value> {
    let mut all = Vec::new();
    for i in 0..600 {
        for key in ["fields-large".to_owned(), format!("fields-small:{}", i % 60)] {
            all.push(client.call(&format!("HGET {key} f{i}")));
            all.push(client.call(&format!("HPEXPIRETIME {key} FIELDS 1 f{i}")));
        }
    }
    all.push(client.call("PEXPIRETIME fields-large"));
    all
}

/// What the streams' groups are, which no digest shows.
fn groups(client: &mut Client) -> Vec<Value> {
    vec![client.call("XPENDING stream group"), client.call("XLEN stream"), client.call("XRANGE stream 1-0 30-0")]
}

fn fetched_by_cli(server: &Server, folder: &Path) -> PathBuf {
    let path = folder.join(FILE);
    let run = Command::new("redis-cli").args(["-p", &server.port().to_string(), "--rdb"]).arg(&path).output();
    let run = run.expect("redis-cli");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    path
}

const LIBRARY: &str = "#!lua name=lib\nredis.register_function('answer', function() return 42 end)";

/// A server with all of it, and its digest but for what only newer servers know.
fn filled(kind: Kind, flags: &[&str]) -> (Server, Value) {
    let server = Server::start(kind, &[&DEBUG[..], flags].concat());
    let mut client = server.client();
    fill(&mut client);
    assert!(!client.command(&["FUNCTION", "LOAD", LIBRARY]).is_error());
    let digest = digest(&server);
    (server, digest)
}

/// Both ways of getting a snapshot.
fn snapshots_of(server: &Server, folder: &Path, by_cli: bool) -> Vec<PathBuf> {
    let mut files = vec![saved_by(server)];
    files.extend((by_cli && have_tool("redis-cli")).then(|| fetched_by_cli(server, folder)));
    files
}

/// What is there is all that `filled` has; the fields of hashes are these. The digest is that of EmberDB: others' are their own.
fn has_all(server: &Server, expected: &(Vec<Value>, Vec<Value>), digest_without_fields: &Value) {
    let mut client = server.client();
    assert_eq!(fields(&mut client), expected.0, "{:?}", server.kind());
    assert_eq!(groups(&mut client), expected.1, "{:?}", server.kind());
    assert_eq!(client.call("FCALL answer 0"), int(42));
    if server.kind().is_ember() {
        let names: Vec<String> = (0..60).map(|i| format!("fields-small:{i}")).collect();
        assert_eq!(client.call(&format!("DEL fields-large {}", names.join(" "))), int(61));
        assert_eq!(digest(server), *digest_without_fields);
    }
}

/// From here to another server and back. Where that cannot read deadlines of fields as they are written here, they are given
/// there.
fn go_there_and_back(kind: Kind, reads_fields: bool) {
    for (shards, flags) in [(1, &[][..]), (3, &["--rdbcompression", "no", "--hash-max-listpack-entries", "5"])] {
        let (first, digest) = filled(Kind::Ember { shards }, flags);
        let (there_folder, back_folder) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        if reads_fields {
            fill_newer(&mut first.client());
        }
        for file in snapshots_of(&first, there_folder.path(), true) {
            let there = start_with(kind, &file, flags);
            let source = if reads_fields { &first } else { &there };
            if !reads_fields {
                fill_newer(&mut there.client());
            }
            let expected = (fields(&mut source.client()), groups(&mut first.client()));
            has_all(&there, &expected, &digest);
            for back in snapshots_of(&there, back_folder.path(), reads_fields) {
                has_all(&start_with(Kind::Ember { shards: 2 }, &back, &[]), &expected, &digest);
            }
        }
    }
}

/// Valkey reads no file of Redis that has deadlines of fields, and sends none to Debian's redis-cli, which it takes for an old
/// server.
#[test]
fn files_go_to_valkey_and_back() {
    if let Some(binary) = peer(VALKEY) {
        go_there_and_back(Kind::Peer(binary), false);
    }
}

#[test]
fn files_go_to_redis_8_and_back() {
    if let Some(binary) = peer(REDIS_8) {
        go_there_and_back(Kind::Peer(binary), true);
    }
}

/// What the peers make themselves, in every form they have, is read.
#[test]
fn files_of_newer_servers_are_read() {
    let (_here, digest) = filled(Kind::Ember { shards: 1 }, &[]);
    for binary in [VALKEY, REDIS_8].into_iter().filter_map(peer) {
        for flags in [&[][..], &["--hash-max-listpack-entries", "5", "--set-max-listpack-entries", "3"]] {
            let (there, _) = filled(Kind::Peer(binary), flags);
            let mut client = there.client();
            fill_newer(&mut client);
            let expected = (fields(&mut client), groups(&mut client));
            has_all(&start_with(Kind::Ember { shards: 2 }, &saved_by(&there), &[]), &expected, &digest);
        }
    }
}
