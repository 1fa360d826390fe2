//! A replica loads a snapshot as it comes (`repl-diskless-load`), and its link as others see it.

use super::{PATIENCE, PRIMARY, field, replica_of, settle, wait_for, wait_for_link};
use crate::common::{Client, Kind, Server, Value, bulk, error, int, wait_until};

const SHARDS: [usize; 2] = [1, 3];
const BESIDE: &[&str] = &["--repl-diskless-load", "swapdb", "--enable-debug-command", "yes"];

fn library(answer: &str) -> String {
    format!(
        "#!lua name=l\nredis.register_function{{function_name='f', callback=function() return '{answer}' end, flags={{'no-writes'}}}}"
    )
}

fn load_library(server: &Server, answer: &str) {
    let reply = server.client().command(&["FUNCTION", "LOAD", "REPLACE", &library(answer)]);
    assert_eq!(reply.text(), "l");
}

/// A primary whose snapshot takes its time, behind so many keys.
fn slow_primary(shards: usize, delay_us: &str) -> Server {
    let flags = [PRIMARY, &["--rdbcompression", "no", "--rdb-key-save-delay", delay_us]].concat();
    let primary = Server::start(Kind::Ember { shards }, &flags);
    primary.client().call("DEBUG POPULATE 1000 of-primary 10000");
    load_library(&primary, "new");
    primary
}

fn follow(replica: &mut Client, primary: &Server) {
    assert_eq!(replica.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port())), Value::ok());
}

/// Who has another primary's data answers LOADING meanwhile, and has the old data where the snapshot does not come to its end.
#[test]
fn old_data_are_there_again_where_a_snapshot_breaks_off() {
    for shards in SHARDS {
        let primary = slow_primary(2, "5000");
        let replica = Server::start(Kind::Ember { shards }, BESIDE);
        let mut client = replica.client();
        client.call("MSET mine 1 other 2");
        client.call("SET dies 1 EX 100000");
        load_library(&replica, "old");
        follow(&mut client, &primary);
        wait_for(&replica, "loading", "1");
        assert_eq!(field(&replica, "async_loading"), "0");
        assert!(client.call("GET mine").text().starts_with("LOADING"));
        // (No other comes for a while.)
        assert_eq!(primary.client().call("CONFIG SET repl-diskless-sync-delay 1000"), Value::ok());
        assert_eq!(primary.client().call("CLIENT KILL TYPE replica"), int(1));
        wait_for(&replica, "loading", "0");
        assert_eq!((client.call("GET mine"), client.call("DBSIZE")), (bulk("1"), int(3)));
        assert_eq!(client.call("FCALL_RO f 0").text(), "old");
        assert!(client.call("TTL dies").number() > 0);
        // And when all of it comes, it takes their place.
        let mut of_primary = primary.client();
        of_primary.call("CONFIG SET repl-diskless-sync-delay 0 rdb-key-save-delay 0");
        wait_for_link(&replica);
        settle(&primary, &replica);
        assert_eq!((client.call("GET mine"), client.call("DBSIZE")), (Value::NullBulk, int(1000)));
        assert_eq!(client.call("FCALL_RO f 0").text(), "new");
    }
}

/// Who has older data of the same primary goes on showing them.
#[test]
fn older_data_are_served_while_newer_arrive() {
    for shards in SHARDS {
        let primary = slow_primary(2, "0");
        let replica = replica_of(&primary, Kind::Ember { shards }, &[BESIDE, &["--replica-read-only", "no"]].concat());
        wait_for_link(&replica);
        let (mut client, mut of_primary) = (replica.client(), primary.client());
        client.call("SET mine 1");
        let mut watching = replica.client();
        watching.call("WATCH mine");
        let mut waiting = replica.client();
        waiting.send("XREAD BLOCK 0 STREAMS stream 0");
        // Nothing is kept of what comes now, and the next snapshot is a slow one.
        of_primary.call("CONFIG SET repl-backlog-size 16384 rdb-key-save-delay 3000");
        let number = |name: &str| field(&primary, name).parse::<u64>().expect("a number");
        let had = number("master_repl_offset");
        of_primary.send("MULTI");
        of_primary.send("CLIENT KILL TYPE replica");
        (0..10).for_each(|number| of_primary.send(&format!("SET large:{number} {}", "x".repeat(1 << 20))));
        of_primary.send("XADD stream 1-1 field value");
        of_primary.send("EXEC");
        (0..14).for_each(|_| drop(of_primary.read()));
        // (What was done as one is kept as one.)
        assert!(wait_until(PATIENCE, || {
            of_primary.call(&format!("SET behind {}", "x".repeat(16384)));
            number("repl_backlog_first_byte_offset") > had + 1
        }));
        load_library(&primary, "newer");
        wait_for(&replica, "async_loading", "1");
        assert_eq!(field(&replica, "loading"), "0");
        assert_eq!((client.call("GET mine"), client.call("DBSIZE")), (bulk("1"), int(1001)));
        assert_eq!(client.call("FCALL_RO f 0").text(), "new");
        for refused in ["REPLICAOF NO ONE", "SAVE", "BGREWRITEAOF", "CONFIG SET appendonly yes"] {
            let reply = client.call(refused);
            assert!(reply.text().starts_with("LOADING"), "{refused}: {reply:?}");
        }
        // What is written meanwhile is lost with the rest.
        client.call("SET meanwhile 1");
        assert_eq!(field(&replica, "async_loading"), "1", "the snapshot was too quick for this test");
        of_primary.call("CONFIG SET rdb-key-save-delay 0");
        wait_for_link(&replica);
        settle(&primary, &replica);
        assert_eq!(client.call("EXISTS mine meanwhile"), int(0));
        assert_eq!(client.call("DBSIZE"), int(1012));
        assert_eq!(client.call("FCALL_RO f 0").text(), "newer");
        watching.call("MULTI");
        watching.call("GET mine");
        assert_eq!(watching.call("EXEC"), Value::NullArray, "it saw the key go");
        assert_eq!(waiting.read().items()[0].items()[0], bulk("stream"));
        assert_eq!(field(&replica, "async_loading"), "0");
    }
}

#[test]
fn an_empty_replica_needs_no_disk() {
    for shards in SHARDS {
        let primary = slow_primary(2, "300");
        let replica = replica_of(&primary, Kind::Ember { shards }, &["--repl-diskless-load", "on-empty-db"]);
        wait_for(&replica, "loading", "1");
        let files = || std::fs::read_dir(replica.folder()).expect("a folder").flatten().map(|file| file.file_name());
        assert!(files().all(|name| !name.to_string_lossy().contains("temp-")), "{:?}", files().collect::<Vec<_>>());
        wait_for_link(&replica);
        settle(&primary, &replica);
    }
}

/// CLIENT LIST shows the link, and CLIENT KILL breaks it.
#[test]
fn the_link_is_a_connection_like_others() {
    let primary = Server::start(Kind::Ember { shards: 2 }, PRIMARY);
    let replica = replica_of(&primary, Kind::Ember { shards: 2 }, &[]);
    wait_for_link(&replica);
    let (mut client, address) = (replica.client(), format!("127.0.0.1:{}", primary.port()));
    let listed = client.call("CLIENT LIST TYPE master").text();
    assert!(listed.contains(&format!(" addr={address} ")) && listed.contains(" flags=M "), "{listed}");
    for (number, kill) in
        ["CLIENT KILL TYPE master".to_owned(), format!("CLIENT KILL ADDR {address}"), format!("CLIENT KILL {address}")]
            .into_iter()
            .enumerate()
    {
        let reply = client.call(&kill);
        assert!(reply == int(1) || reply == Value::ok(), "{kill}: {reply:?}");
        assert!(wait_until(PATIENCE, || field(&primary, "sync_partial_ok") == (number + 1).to_string()), "{kill}");
        wait_for_link(&replica);
    }
    assert_eq!(field(&primary, "sync_full"), "1");
}

/// While the primary waits for more replicas, and where it says nothing any more.
#[test]
fn a_primary_that_lets_wait_is_waited_for_and_a_silent_one_is_not() {
    let primary = Server::start(
        Kind::Ember { shards: 1 },
        &["--repl-diskless-sync-delay", "1000", "--enable-debug-command", "yes"],
    );
    let replica = replica_of(&primary, Kind::Ember { shards: 1 }, &["--repl-timeout", "2"]);
    let handshake = || replica.client().call("ROLE").items()[3].text() == "handshake";
    assert!(wait_until(PATIENCE, handshake));
    let mut sleeper = primary.client();
    sleeper.send("DEBUG SLEEP 4");
    assert!(wait_until(PATIENCE, || replica.output().contains("Timeout connecting to the MASTER")));
}

/// A replica that does not take over leaves all as it was, at once.
#[test]
fn a_replica_that_refuses_to_take_over_ends_a_failover() {
    let primary = Server::start(Kind::Ember { shards: 2 }, PRIMARY);
    let replica = replica_of(&primary, Kind::Ember { shards: 1 }, &[]);
    wait_for_link(&replica);
    assert_eq!(replica.client().call("ACL SETUSER default -psync"), Value::ok());
    let mut client = primary.client();
    client.call("SET a 1");
    assert_eq!(client.call("FAILOVER"), Value::ok());
    // Held until it is over.
    let mut writer = primary.client();
    writer.send("SET b 2");
    assert!(wait_until(PATIENCE, || primary.output().contains("Failover target rejected psync request")));
    wait_for(&primary, "master_failover_state", "no-failover");
    assert_eq!(writer.read(), Value::ok());
    assert_eq!(field(&primary, "role"), "master");
    replica.client().call("ACL SETUSER default +psync");
    wait_for_link(&replica);
    settle(&primary, &replica);
    assert_eq!(client.call("FAILOVER ABORT"), error("ERR No failover in progress."));
}

/// A server took over at its start whom it was told to follow before that: it followed over two links.
#[test]
fn who_is_followed_from_the_first_moment_is_followed_once() {
    const STARTS: usize = 20;
    let primary = Server::start(Kind::Ember { shards: 1 }, PRIMARY);
    for _ in 0..STARTS {
        let folder = tempfile::tempdir().expect("a folder");
        let replica = Server::start_without_waiting(Kind::Ember { shards: 4 }, &["--save", ""], folder);
        let mut client = None;
        while client.is_none() {
            client = Client::connect(replica.port()).ok();
        }
        let request = format!("REPLICAOF 127.0.0.1 {}", primary.port());
        let mut client = client.expect("connected");
        assert!(wait_until(PATIENCE, || client.call(&request) == Value::ok()));
        wait_for_link(&replica);
        assert_eq!(replica.output().matches("Connecting to MASTER").count(), 1);
    }
}
