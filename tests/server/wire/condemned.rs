//! Who is about to be ended is served nothing: what was pushed stays where it is.

use crate::common::{Client, Server, Value, encode, int, on_embers, on_every_server, wait_until, words};
use std::net::Shutdown;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const HELD_BYTES: usize = 400_000;

/// A command that waits, what would serve it, and what is there while it has not been served.
const WAITS: [(&str, &str, &str, i64); 7] = [
    ("BLPOP list 0", "RPUSH list x", "LLEN list", 1),
    ("BLMPOP 0 1 mlist LEFT", "RPUSH mlist x", "LLEN mlist", 1),
    ("BRPOPLPUSH {t}from {t}to 0", "RPUSH {t}from x", "LLEN {t}from", 1),
    ("BLMOVE from1 to2 LEFT LEFT 0", "RPUSH from1 x", "LLEN from1", 1),
    ("BZPOPMIN zset 0", "ZADD zset 1 x", "ZCARD zset", 1),
    ("BZMPOP 0 1 mzset MIN", "ZADD mzset 1 x", "ZCARD mzset", 1),
    ("XREADGROUP GROUP g c BLOCK 0 STREAMS stream >", "XADD stream * f v", "EVAL #pending 0", 0),
];

fn blocked(server: &Server, count: usize) {
    assert!(wait_until(PATIENCE, || server.info("blocked_clients") == Some(count.to_string())));
}

fn waiters(server: &Server) -> Vec<Client> {
    assert_eq!(server.client().call("XGROUP CREATE stream g $ MKSTREAM"), Value::ok());
    let waiters = WAITS.iter().map(|(wait, ..)| {
        let mut client = server.client();
        client.send(wait);
        client
    });
    let waiters = waiters.collect();
    blocked(server, WAITS.len());
    waiters
}

/// Sends what would serve all of them behind a command in one piece.
fn push_behind(control: &mut Client, first: &[&str]) {
    let lines = first.iter().copied().chain(WAITS.iter().map(|(_, push, ..)| *push));
    let lines: Vec<&str> = lines.collect();
    control.send_raw(&lines.iter().flat_map(|line| encode(&words(line))).collect::<Vec<u8>>());
    for line in lines {
        assert!(!control.read().is_error(), "{line}");
    }
}

#[track_caller]
fn assert_nothing_is_lost(control: &mut Client) {
    for (wait, _, look, count) in WAITS {
        match look {
            "EVAL #pending 0" => assert_eq!(control.call("XPENDING stream g").items()[0], int(count), "{wait}"),
            _ => assert_eq!(control.call(look), int(count), "{wait}"),
        }
    }
}

#[test]
fn who_holds_too_much_is_ended_and_served_nothing() {
    on_every_server(&[], |server| {
        let mut control = server.client();
        let mut waiters = waiters(server);
        for waiter in &mut waiters {
            waiter.send_raw(&b"PING\r\n".repeat(HELD_BYTES / 6));
        }
        let all_hold = |list: String| {
            let held = |line: &str| line.split(" qbuf=").nth(1)?.split(' ').next()?.parse::<usize>().ok();
            list.lines().filter(|line| held(line).is_some_and(|held| held > HELD_BYTES / 2)).count() == WAITS.len()
        };
        assert!(wait_until(PATIENCE, || all_hold(control.call("CLIENT LIST").text())));
        push_behind(&mut control, &["CONFIG SET maxmemory-clients 300kb"]);
        assert!(waiters.iter_mut().all(Client::is_closed_by_server));
        assert_nothing_is_lost(&mut control);
    });
}

/// Those who hold little wait on, and are served.
#[test]
fn who_is_spared_is_served() {
    on_every_server(&[], |server| {
        let mut control = server.client();
        let (mut large, mut small) = (server.client(), server.client());
        for (waiter, key) in [(&mut large, "a"), (&mut small, "b")] {
            waiter.send(&format!("BLPOP {key} 0"));
        }
        blocked(server, 2);
        large.send_raw(&b"PING\r\n".repeat(HELD_BYTES / 6));
        let holds = |list: String| {
            let held = |line: &str| line.split(" qbuf=").nth(1)?.split(' ').next()?.parse::<usize>().ok();
            list.lines().any(|line| held(line).is_some_and(|held| held > HELD_BYTES / 2))
        };
        assert!(wait_until(PATIENCE, || holds(control.call("CLIENT LIST").text())));
        let lines = ["CONFIG SET maxmemory-clients 300kb", "RPUSH a x", "RPUSH b y", "RPUSH a z"];
        control.send_raw(&lines.iter().flat_map(|line| encode(&words(line))).collect::<Vec<u8>>());
        assert!(large.is_closed_by_server());
        assert_eq!(small.read(), Value::bulks(&["b", "y"]));
        assert_eq!(
            [control.read(), control.read(), control.read(), control.read()],
            [Value::ok(), int(1), int(1), int(2)]
        );
        assert_eq!(control.call("LRANGE a 0 -1"), Value::bulks(&["x", "z"]));
        // Where nobody may be ended nobody is kept waiting for that.
        assert_eq!(control.call("CLIENT NO-EVICT ON"), Value::ok());
        assert_eq!(small.call("CLIENT NO-EVICT ON"), Value::ok());
        assert_eq!(control.call("CONFIG SET maxmemory-clients 1"), Value::ok());
        small.send("BLPOP c 0");
        blocked_by_list(&mut control);
        assert_eq!(control.call("RPUSH c z"), int(1));
        assert_eq!(small.read(), Value::bulks(&["c", "z"]));
    });
}

/// By a connection that may not be ended: one more would be.
fn blocked_by_list(control: &mut Client) {
    assert!(wait_until(PATIENCE, || control.call("CLIENT LIST").text().contains(" cmd=blpop")
        && control.call("INFO clients").text().contains("blocked_clients:1")));
}

#[test]
fn who_is_killed_is_served_nothing() {
    for in_exec in [false, true] {
        on_every_server(&[], |server| {
            let mut control = server.client();
            let mut waiters = waiters(server);
            // Connections that have looked have ended.
            let all = WAITS.len() + 1;
            assert!(wait_until(PATIENCE, || control.call("CLIENT LIST").text().lines().count() == all));
            if in_exec {
                assert_eq!(control.call("MULTI"), Value::ok());
            }
            push_behind(&mut control, &["CLIENT KILL TYPE normal"]);
            if in_exec {
                assert_eq!(control.call("EXEC").items()[0], int(WAITS.len() as i64));
            }
            assert!(waiters.iter_mut().all(Client::is_closed_by_server));
            assert_nothing_is_lost(&mut control);
        });
    }
}

#[test]
fn who_says_too_much_is_served_nothing() {
    on_every_server(&["--client-query-buffer-limit", "1mb"], |server| {
        let mut control = server.client();
        let mut waiters = waiters(server);
        for waiter in &mut waiters {
            // The end may come before all is sent.
            let _ = waiter.try_send_raw(&b"PING\r\n".repeat(200_000));
        }
        blocked(server, 0);
        push_behind(&mut control, &["PING"]);
        assert!(waiters.iter_mut().all(Client::is_closed_by_server));
        assert_nothing_is_lost(&mut control);
    });
}

/// Redis serves it, and what it takes is lost.
#[test]
fn who_is_told_more_than_its_limit_is_served_nothing() {
    on_embers(&["--client-output-buffer-limit", "pubsub 100kb 0 0"], |server| {
        for _ in 0..4 {
            let mut control = server.client();
            let mut waiter = server.client3();
            waiter.call("SUBSCRIBE news");
            waiter.send("BLPOP list 0");
            blocked(server, 1);
            let text = "x".repeat(300_000);
            let lines = [&["MULTI"][..], &["PUBLISH", "news", &text], &["RPUSH", "list", "x"], &["EXEC"]];
            control.send_raw(&lines.iter().flat_map(|line| encode(line)).collect::<Vec<u8>>());
            (0..3).for_each(|_| drop(control.read()));
            assert_eq!(control.read(), Value::Array(vec![int(1), int(1)]));
            assert!(waiter.is_closed_by_server());
            assert_eq!(control.call("LPOP list"), crate::common::bulk("x"));
        }
    });
}

#[test]
fn who_has_hung_up_is_served_nothing() {
    on_every_server(&[], |server| {
        let mut control = server.client();
        let mut waiters = waiters(server);
        for waiter in &waiters {
            waiter.stream().shutdown(Shutdown::Write).expect("a socket");
        }
        assert!(waiters.iter_mut().all(Client::is_closed_by_server));
        push_behind(&mut control, &["PING"]);
        assert_nothing_is_lost(&mut control);
        for (_, _, look, _) in WAITS {
            control.call(&format!("DEL {}", look.split(' ').nth(1).expect("a key")));
        }
        // Before it began to wait; for keys of all shards.
        for _ in 0..20 {
            let client = server.client();
            let mut stream = client.stream();
            std::io::Write::write_all(&mut stream, &encode(&words("BLPOP a b c d e f 0"))).expect("a socket");
            stream.shutdown(Shutdown::Write).expect("a socket");
            assert!({ client }.is_closed_by_server());
            assert_eq!(control.call("RPUSH d x"), int(1));
            assert_eq!(control.call("LPOP d"), crate::common::bulk("x"));
        }
    });
}
