//! CVE-2016-10517: a web page can have its reader's browser send HTTP to this port, and each line of the body was a
//! command. What begins so is ended before anything of the body runs.

use crate::common::{Client, Server, Value, bulk, encode, int, on_every_server, wait_until, words};
use std::time::Duration;

const BODY: &[u8] = b"\r\nSET pwned 1\r\nSET pwned 2\r\n";

/// What somebody may begin with.
fn heads() -> Vec<Vec<u8>> {
    let mut heads: Vec<Vec<u8>> =
        ["POST / HTTP/1.1\r\nConnection: close\r\n", "post\r\n", "PoSt a b c d\r\n", "Host: x\r\n", "HOST:\r\n"]
            .iter()
            .map(|head| head.as_bytes().to_vec())
            .collect();
    for method in ["PUT", "GET", "OPTIONS", "DELETE", "PATCH", "HEAD", "QUERY", "CONNECT"] {
        let head = format!("{method} /?a=b HTTP/1.1\r\nHost: 127.0.0.1:6379\r\nOrigin: http://example.com\r\n");
        heads.push(head.into_bytes());
    }
    heads.push(encode(&words("POST / HTTP/1.1")));
    heads.push(encode(&words("host: 127.0.0.1")));
    heads
}

/// Sends bytes, at once or one by one, and waits for the end of the connection.
#[track_caller]
fn assert_ended(server: &Server, before: &[&str], bytes: &[u8], in_pieces: bool) {
    let mut client = server.client();
    for line in before {
        client.call(line);
    }
    let mut send = |bytes: &[u8]| drop(client.try_send_raw(bytes));
    if in_pieces {
        bytes.chunks(7).for_each(&mut send);
    } else {
        send(bytes);
    }
    assert!(client.is_closed_by_server(), "open after {}", bytes.escape_ascii());
}

#[test]
fn browsers_are_not_listened_to() {
    on_every_server(&[], |server| {
        let mut control = server.client();
        for head in heads() {
            let bytes = [&head, BODY].concat();
            for in_pieces in [false, true] {
                assert_ended(server, &[], &bytes, in_pieces);
            }
            assert_ended(server, &["MULTI", "SET pwned 3"], &[&bytes, &b"EXEC\r\n"[..]].concat(), false);
        }
        assert_eq!(control.call("EXISTS pwned"), int(0));
        let warnings = || server.output().matches("Possible SECURITY ATTACK detected").count();
        assert!(wait_until(Duration::from_secs(10), || warnings() > 0));
        assert_eq!(warnings(), 1, "told once a minute");
    });
}

#[test]
fn browsers_are_not_listened_to_before_a_password_nor_in_a_pause() {
    on_every_server(&["--requirepass", "secret"], |server| {
        let mut control = server.client();
        assert_eq!(control.call("AUTH secret"), Value::ok());
        for head in heads() {
            assert_ended(server, &[], &[&head, &b"AUTH secret\r\n"[..], BODY].concat(), false);
        }
        assert_eq!(control.call("CLIENT PAUSE 300 ALL"), Value::ok());
        for head in ["POST / HTTP/1.1\r\n", "Host: x\r\n"] {
            let mut client = server.client();
            let _ = client.try_send_raw(&[head.as_bytes(), b"AUTH secret\r\n", BODY].concat());
            assert!(client.is_closed_by_server());
        }
        assert_eq!(control.call("EXISTS pwned"), int(0));
    });
}

/// What was asked before it has run, as anything does before a connection ends; and these are words like others where they
/// are no commands.
#[test]
fn post_and_host_are_words_like_others() {
    on_every_server(&[], |server| {
        let mut control = server.client();
        let mut client: Client = server.client();
        let _ = client.try_send_raw(b"SET before 1\r\nPOST / HTTP/1.1\r\nSET behind 1\r\n");
        assert!(client.is_closed_by_server());
        let is_there = |control: &mut Client, key: &str| control.call(&format!("EXISTS {key}")) == int(1);
        assert!(wait_until(Duration::from_secs(10), || is_there(&mut control, "before")), "lost");
        assert!(!is_there(&mut control, "behind"));
        assert_eq!(control.call("SET post host:"), Value::ok());
        assert_eq!(control.call("GET post"), bulk("host:"));
        assert!(control.call("EVAL return(redis.call('post')) 0").is_error());
        assert!(control.call("POSTS / HTTP/1.1").is_error());
        control.assert_in_step();
    });
}
