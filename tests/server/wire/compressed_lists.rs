//! Lists whose inner nodes are compressed (`list-compress-depth`): they are what others are, and take less.

use crate::common::{Client, Server, Value, bulk, error, int, on_embers, on_every_server, wait_until, words};
use std::time::Duration;

const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];
const PATIENCE: Duration = Duration::from_secs(20);
const ELEMENTS: usize = 20_000;

fn number(server: &Server, field: &str) -> i64 {
    server.info(field).and_then(|value| value.parse().ok()).expect("a number")
}

/// Makes a list of elements that are much alike.
fn fill(client: &mut Client, key: &str) {
    for first in (0..ELEMENTS).step_by(100) {
        let commands: Vec<_> = (first..first + 100)
            .map(|n| {
                words(&format!(
                    "RPUSH {key} {{\"number\":{n},\"state\":\"waiting\",\"queue\":\"of-letters-to-be-sent\"}}"
                ))
            })
            .collect();
        assert!(client.pipeline(&commands).iter().all(|reply| !reply.is_error()));
    }
}

fn set_depth(client: &mut Client, depth: &str) -> Value {
    client.call(&format!("CONFIG SET list-compress-depth {depth}"))
}

/// Bytes that a list takes, by the allocator and not by the books.
fn cost(server: &Server, client: &mut Client, key: &str) -> i64 {
    let before = number(server, "used_memory");
    fill(client, key);
    number(server, "used_memory") - before
}

fn same(client: &mut Client, commands: &[&str]) {
    for command in commands {
        let [plain, compressed] = ["{k}plain", "{k}compressed"].map(|key| client.call(&command.replace("KEY", key)));
        assert!(plain == compressed, "{command}");
        assert!(!plain.is_error(), "{command}: {plain:?}");
    }
}

#[test]
fn the_depth_is_a_number_that_can_be_changed() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let shown = |client: &mut Client| client.call("CONFIG GET list-compress-depth");
        assert_eq!(shown(&mut client), Value::bulks(&["list-compress-depth", "0"]));
        for depth in ["3", "2147483647", "0"] {
            assert_eq!(set_depth(&mut client, depth), Value::ok());
            assert_eq!(shown(&mut client), Value::bulks(&["list-compress-depth", depth]));
        }
        for (depth, reason) in [
            ("-1", "argument must be between 0 and 2147483647 inclusive"),
            ("2147483648", "argument must be between 0 and 2147483647 inclusive"),
            ("few", "argument couldn't be parsed into an integer"),
        ] {
            let expected =
                format!("ERR CONFIG SET failed (possibly related to argument 'list-compress-depth') - {reason}");
            assert_eq!(set_depth(&mut client, depth), error(&expected));
        }
    });
    on_every_server(&["--list-compress-depth", "2"], |server| {
        let shown = server.client().call("CONFIG GET list-compress-depth");
        assert_eq!(shown, Value::bulks(&["list-compress-depth", "2"]));
    });
}

#[test]
fn a_compressed_list_takes_less_and_is_the_same() {
    on_every_server(&DEBUG, |server| {
        let mut client = server.client();
        // What the first list on a shard makes room for: buffers, the table of the compressor. All are on one shard.
        assert_eq!(set_depth(&mut client, "1"), Value::ok());
        fill(&mut client, "{k}first");
        client.call("DEL {k}first");
        assert!(wait_until(PATIENCE, || number(server, "lazyfree_pending_objects") == 0));

        let compressed = cost(server, &mut client, "{k}compressed");
        assert_eq!(set_depth(&mut client, "0"), Value::ok());
        let plain = cost(server, &mut client, "{k}plain");
        assert!(compressed * 2 < plain, "{compressed} bytes instead of {plain}");
        let usage = client.call("MEMORY USAGE {k}compressed").number();
        if server.kind().is_ember() {
            assert!((usage - compressed).abs() < 300_000, "{usage} bytes, {compressed} by the allocator");
        }

        same(
            &mut client,
            &[
                "OBJECT ENCODING KEY",
                "LLEN KEY",
                "LRANGE KEY 0 -1",
                "LRANGE KEY 7000 7010",
                "LINDEX KEY 10000",
                "LINDEX KEY -5000",
                "LSET KEY 9000 another",
                "LSET KEY -1 another",
                "LPOS KEY another RANK -1 COUNT 0",
                "LINSERT KEY BEFORE another one-more",
                "LINSERT KEY AFTER another 12345",
                "LRANGE KEY 8990 9010",
                "LREM KEY -1 another",
                "LREM KEY 1 another",
                "LPUSH KEY a b c",
                "LPOP KEY 1000",
                "RPOP KEY 1000",
                "LMOVE KEY KEY LEFT RIGHT",
                "SORT KEY ALPHA LIMIT 100 5",
                "SORT KEY BY nothing DESC LIMIT 3000 5",
                "LTRIM KEY 500 -500",
                "DEBUG DIGEST-VALUE KEY",
                "LRANGE KEY 0 -1",
            ],
        );
        if server.kind().is_ember() {
            assert!(client.call("MEMORY USAGE {k}compressed").number() < usage);
            same(&mut client, &["DUMP KEY"]);
        }
        let digest = client.call("DEBUG DIGEST-VALUE {k}compressed");
        assert_eq!(client.call("COPY {k}compressed {k}copied"), int(1));
        assert_eq!(client.call("DEBUG DIGEST-VALUE {k}copied"), digest);
        let payload = client.call("DUMP {k}compressed").bytes().expect("a payload").to_vec();
        assert_eq!(set_depth(&mut client, "3"), Value::ok());
        assert_eq!(client.command(&[&b"RESTORE"[..], b"{k}restored", b"0", &payload]), Value::ok());
        assert_eq!(client.call("DEBUG DIGEST-VALUE {k}restored"), digest);
        let bytes = |client: &mut Client, key: &str| client.call(&format!("MEMORY USAGE {key}")).number();
        if server.kind().is_ember() {
            assert!(bytes(&mut client, "{k}restored") * 2 < bytes(&mut client, "{k}plain"));
            assert!(bytes(&mut client, "{k}copied") * 2 < bytes(&mut client, "{k}plain"));
        }

        let all = client.call("DEBUG DIGEST");
        let before = number(server, "used_memory");
        assert_eq!(client.call("DEBUG RELOAD"), Value::ok());
        assert_eq!(client.call("DEBUG DIGEST"), all);
        assert!(wait_until(PATIENCE, || number(server, "used_memory") < before), "the plain one is compressed, too");
        assert_eq!(client.call("DEBUG DIGEST-VALUE {k}compressed"), digest);
    });
}

#[test]
fn a_list_keeps_the_depth_it_was_made_with() {
    on_embers(&[], |server| {
        let mut client = server.client();
        fill(&mut client, "plain");
        let plain = client.call("MEMORY USAGE plain").number();
        assert_eq!(set_depth(&mut client, "1"), Value::ok());
        fill(&mut client, "plain");
        assert!(client.call("MEMORY USAGE plain").number() > plain * 19 / 10);
        fill(&mut client, "compressed");
        let compressed = client.call("MEMORY USAGE compressed").number();
        assert_eq!(set_depth(&mut client, "0"), Value::ok());
        fill(&mut client, "compressed");
        assert!(client.call("MEMORY USAGE compressed").number() < compressed * 21 / 10);
    });
}

/// A queue: what is pushed at one end is compressed on its way to the other, where it is as it was.
#[test]
fn a_queue_gives_back_what_was_put_into_it() {
    on_every_server(&["--list-compress-depth", "1"], |server| {
        let mut client = server.client();
        fill(&mut client, "queue");
        for n in 0..ELEMENTS {
            let expected = format!("{{\"number\":{n},\"state\":\"waiting\",\"queue\":\"of-letters-to-be-sent\"}}");
            assert_eq!(client.call("LPOP queue"), bulk(expected));
        }
        assert_eq!(client.call("EXISTS queue"), int(0));
    });
}

/// An element that is longer than what is compressed in one go, between others that are.
#[test]
fn huge_elements_stay_as_they_are() {
    on_every_server(&["--list-compress-depth", "1"], |server| {
        let mut client = server.client();
        let huge = "x".repeat(3_000_000);
        for text in ["first", &huge, &huge[..100_000], "last"] {
            assert!(!client.command(&["RPUSH", "k", text]).is_error());
            assert!(!client.command(&["RPUSH", "k", &huge[..9_000]]).is_error());
        }
        assert_eq!(client.call("LINDEX k 2"), bulk(&huge));
        assert_eq!(client.call("LINDEX k 4"), bulk(&huge[..100_000]));
        assert_eq!(client.command(&["LPOS", "k", &huge]), int(2));
        assert_eq!(client.command(&["LSET", "k", "3", &huge]), Value::ok());
        assert_eq!(client.command(&["LREM", "k", "0", &huge]), int(2));
        assert_eq!(client.call("LLEN k"), int(6));
        assert_eq!(client.call("LINDEX k -1"), bulk(&huge[..9_000]));
    });
}
