//! Clients that do not wait for a reply before they send the next request: replies come in the order of the requests,
//! whatever of them waits for the disk.

use crate::common::{Client, Kind, Server, Value, bulk, encode, int, simple, wait_until, words};
use std::io::Write;
use std::thread;
use std::time::Duration;

const REQUESTS: i64 = 4_000;

/// Sends the requests a packet each, while the replies are read.
fn each_alone(client: &mut Client, requests: Vec<Vec<u8>>, replies: usize) -> Vec<Value> {
    let mut stream = client.stream().try_clone().expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    thread::scope(|scope| {
        scope.spawn(move || requests.iter().for_each(|request| stream.write_all(request).expect("it is read")));
        (0..replies).map(|_| client.read()).collect()
    })
}

fn request(line: &str) -> Vec<u8> {
    encode(&words(line))
}

#[test]
fn replies_that_wait_for_the_disk_stay_in_order() {
    for shards in [1, 2] {
        let flags = ["--appendonly", "yes", "--appendfsync", "always"];
        let server = Server::start(Kind::Ember { shards }, &flags);
        let mut client = server.client();

        let requests = (0..REQUESTS).map(|_| request("INCR n")).collect();
        let replies = each_alone(&mut client, requests, REQUESTS as usize);
        assert_eq!(replies, (1..=REQUESTS).map(int).collect::<Vec<_>>());

        // What waits for the disk and what does not, on one shard and on another, alone and in transactions.
        let mut requests = Vec::new();
        let mut expected = Vec::new();
        for count in 1..=REQUESTS / 8 {
            for key in ["{a}n", "{b}n", "{c}n"] {
                requests.push(request(&format!("INCR {key}")));
                expected.push(int(count));
            }
            requests.push(request(&format!("ECHO {count}")));
            expected.push(bulk(count.to_string()));
            for line in ["MULTI", "INCR {a}t", "INCR {d}t", "EXEC"] {
                requests.push(request(line));
            }
            let queued = simple("QUEUED");
            expected.extend([Value::ok(), queued.clone(), queued, Value::Array(vec![int(count), int(count)])]);
        }
        let count = expected.len();
        assert_eq!(each_alone(&mut client, requests, count), expected);
    }
}

/// Changes of libraries and policies stood in the log in another order than they took effect where several shards made them.
#[test]
fn what_took_effect_last_stands_last_in_the_log() {
    const ROUNDS: usize = 60;
    let flags = ["--appendonly", "yes", "--appendfsync", "always"];
    let server = Server::start(Kind::Ember { shards: 3 }, &flags);
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let mut value = 1_000;
    for round in 0..ROUNDS {
        for client in &mut clients {
            value += 1;
            let name = format!("lib{round}");
            let code = format!("#!lua name={name}\nredis.register_function('{name}f', function() return {value} end)");
            client.send_raw(&encode(&["FUNCTION", "LOAD", "REPLACE", &code]));
            client.send(&format!("EXPIRY POLICY SET p{round}: {value}s"));
        }
        for client in &mut clients {
            assert_eq!(client.read(), bulk(format!("lib{round}")));
            assert_eq!(client.read(), Value::ok());
        }
    }
    let state = |client: &mut Client| -> Vec<Value> {
        let lines = (0..ROUNDS).map(|round| [format!("FCALL lib{round}f 0"), format!("EXPIRY POLICY GET p{round}:")]);
        lines.flatten().map(|line| client.call(&line)).collect()
    };
    let before = state(&mut server.client());
    server.signal("KILL");
    let server = server.restart(&flags);
    let mut client = server.client();
    assert!(wait_until(Duration::from_secs(20), || !client.call("DBSIZE").is_error()));
    assert_eq!(state(&mut client), before);
}

/// What one shard had done behind its part of a transaction was acknowledged after 200 ms, although the other shard, which was busy,
/// had not come to its part: it stood in no file, and was lost with the process.
#[test]
fn what_is_acknowledged_beside_a_busy_shard_survives_a_crash() {
    const WRITERS: usize = 16;
    const ROUNDS: usize = 6;
    let flags = ["--appendonly", "yes", "--appendfsync", "everysec", "--enable-debug-command", "yes"];
    let mut server = Server::start(Kind::Ember { shards: 2 }, &flags);
    let keys: String = (0..12).map(|key| format!(" key:{key} v")).collect();
    for round in 0..ROUNDS {
        assert_eq!(server.client().call(&format!("DEBUG SHARD-DELAY {} 1000000", round % 2)), Value::ok());
        let mut writers: Vec<Client> = (0..WRITERS).map(|_| server.client()).collect();
        let mut other = server.client();
        other.send(&format!("MSET{keys}"));
        thread::sleep(Duration::from_millis(30));
        for (number, writer) in writers.iter_mut().enumerate() {
            let requests: Vec<u8> = (0..100).flat_map(|_| request(&format!("INCR round:{round}:{number}"))).collect();
            writer.send_raw(&requests);
        }
        thread::sleep(Duration::from_millis(350));
        server.signal("KILL");
        let acknowledged: Vec<i64> = writers
            .iter_mut()
            .map(|writer| std::iter::from_fn(|| writer.try_read().ok()).last().map_or(0, |reply| reply.number()))
            .collect();
        server = server.restart(&flags);
        let mut client = server.client();
        assert!(wait_until(Duration::from_secs(20), || !client.call("DBSIZE").is_error()));
        for (number, acknowledged) in acknowledged.into_iter().enumerate() {
            let there = client.call(&format!("INCRBY round:{round}:{number} 0")).number();
            assert!(there >= acknowledged, "round {round}: {there} of {acknowledged}");
        }
    }
}

/// Writes of another client are answered beside an endless script, which is ended then.
fn is_served_beside(other: &mut Client, caller: &mut Client, writes: usize, round: usize) {
    for number in 0..writes {
        let reply = other.call(&format!("SET other:{number} {round}"));
        assert_eq!(reply, Value::ok(), "round {round}");
    }
    assert!(wait_until(Duration::from_secs(10), || other.call("SCRIPT KILL") == Value::ok()));
    assert!(caller.read().text().contains("Script killed"));
}

/// A script that holds one key keeps a command of several shards waiting that was sent as the script began. The log of the other
/// shards must not wait for that: else nobody there was ever answered under `always`.
#[test]
fn an_endless_script_does_not_hold_up_the_log_of_other_shards() {
    let flags = ["--appendonly", "yes", "--appendfsync", "always", "--busy-reply-threshold", "100"];
    let server = Server::start(Kind::Ember { shards: 3 }, &flags);
    let many = |value: usize| (0..12).map(|key| format!(" key:{key} {value}")).collect::<String>();
    for round in 0..20 {
        // A script that may touch nothing else keeps no copies, and has nothing to be undone here.
        let undeclared = if round % 2 == 0 { "allow" } else { "deny" };
        assert_eq!(server.client().call(&format!("CONFIG SET script-undeclared-keys {undeclared}")), Value::ok());
        let (mut writer, mut caller, mut other) = (server.client(), server.client(), server.client());
        thread::scope(|scope| {
            scope.spawn(|| {
                let requests: Vec<u8> =
                    (0..200).flat_map(|value| request(&format!("MSET{}", many(round * 200 + value)))).collect();
                writer.stream().write_all(&requests).expect("it is read");
            });
            let script = "redis.call('GET', KEYS[1]) while true do end";
            caller.stream().write_all(&encode(&["EVAL", script, "1", "key:0"])).expect("it is read");
        });
        thread::sleep(Duration::from_millis(20));
        is_served_beside(&mut other, &mut caller, 12, round);
        for _ in 0..200 {
            let reply = writer.read();
            assert!(reply == Value::ok() || reply.text().starts_with("BUSY"), "{reply:?}");
        }
        let values = other.call(&format!("MGET{}", (0..12).map(|key| format!(" key:{key}")).collect::<String>()));
        assert!(values.items().windows(2).all(|pair| pair[0] == pair[1]), "{values:?}");
    }
}

/// A client that waited for a list was called, and waited then for the list that its element was to go to, which a script had. What
/// changed the one list and keys on further shards waited behind the client, and the log of those shards waited for that.
#[test]
fn who_waits_for_a_script_elsewhere_does_not_hold_up_the_log() {
    let flags = ["--appendonly", "yes", "--appendfsync", "always", "--busy-reply-threshold", "100"];
    let server = Server::start(Kind::Ember { shards: 3 }, &flags);
    let many: String = (0..12).map(|key| format!(" key:{key} v")).collect();
    for round in 0..9 {
        let (mut mover, mut caller) = (server.client(), server.client());
        let (mut writer, mut other) = (server.client(), server.client());
        mover.send(&format!("BLMOVE list:{round} held:{round} LEFT LEFT 0"));
        assert!(wait_until(Duration::from_secs(20), || server.info("blocked_clients").as_deref() == Some("1")));
        let script = "redis.call('TYPE', KEYS[1]) while true do end";
        caller.send_raw(&encode(&["EVAL", script, "1", &format!("held:{round}")]));
        assert!(wait_until(Duration::from_secs(20), || other.call(&format!("GET held:{round}")).is_error()));
        assert_eq!(other.call(&format!("RPUSH list:{round} v")), int(1));
        for line in ["MULTI", &format!("RPUSH list:{round} w"), &format!("MSET{many}"), "EXEC"] {
            writer.send(line);
        }
        for number in 0..12 {
            assert_eq!(other.call(&format!("SET other:{number} {round}")), Value::ok(), "round {round}");
        }
        let done: Vec<Value> = (0..4).map(|_| writer.read()).collect();
        assert_eq!(done[3].items()[1], Value::ok());
        assert_eq!(other.call("SCRIPT KILL"), Value::ok());
        assert!(caller.read().text().contains("Script killed"));
        assert_eq!(mover.read(), bulk("v"));
    }
}

/// A snapshot wants everything for a moment, and waited behind a script that had begun just before and could not be undone: so
/// did everybody behind the snapshot.
#[test]
fn a_snapshot_waits_for_a_script_beside_all_others() {
    let flags = ["--save", "", "--script-undeclared-keys", "deny", "--busy-reply-threshold", "100"];
    let server = Server::start(Kind::Ember { shards: 3 }, &[&flags[..], &["--enable-debug-command", "yes"]].concat());
    // Where the script is on another shard than its connection nobody knows of it when the snapshot is asked for.
    server.delay_shards(10_000);
    let script = "redis.call('PUBLISH', 'said', KEYS[1]) while true do end";
    for round in 0..8 {
        let (mut caller, mut saver, mut other) = (server.client(), server.client(), server.client());
        caller.send_raw(&encode(&["EVAL", script, "1", &format!("key:{round}")]));
        thread::sleep(Duration::from_millis(3));
        saver.send("BGSAVE");
        thread::sleep(Duration::from_millis(20));
        is_served_beside(&mut other, &mut caller, 6, round);
        assert!(wait_until(Duration::from_secs(20), || server.info("rdb_bgsave_in_progress").as_deref() == Some("0")));
    }
}
