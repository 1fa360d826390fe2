//! `maxmemory-clients`: connections that hold too much in all are ended, the largest first.

use crate::common::{Client, Server, Value, encode, int, on_embers, on_every_server, simple, wait_until, words};
use socket2::SockRef;
use std::io::Read;
use std::thread::{self, JoinHandle};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

fn evicted(server: &Server) -> u64 {
    server.info("evicted_clients").and_then(|count| count.parse().ok()).expect("a number")
}

fn is_there(server: &Server, name: &str) -> bool {
    server.client().call("CLIENT LIST").text().contains(&format!(" name={name} "))
}

fn named(server: &Server, name: &str) -> Client {
    let mut client = server.client();
    assert_eq!(client.call(&format!("CLIENT SETNAME {name}")), Value::ok());
    client
}

/// Reads what a connection is sent until it ends.
fn drain(client: &Client) -> JoinHandle<()> {
    let mut stream = client.stream().try_clone().expect("a second handle");
    thread::spawn(move || {
        let mut buffer = [0; 65536];
        while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
    })
}

/// Sends a request whose end does not come, and waits until the server has it.
fn hold_input(server: &Server, client: &mut Client, name: &str, bytes: usize) {
    let mut part = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", bytes + 1).into_bytes();
    part.resize(part.len() + bytes, b'x');
    client.send_raw(&part);
    let mut control = server.client();
    assert!(wait_until(PATIENCE, || {
        let list = control.call("CLIENT LIST").text();
        let line = list.lines().find(|line| line.contains(&format!(" name={name} ")));
        line.and_then(|line| field(line, " qbuf=")).is_some_and(|held| held >= bytes)
    }));
}

fn holder(server: &Server, name: &str, bytes: usize) -> Client {
    let mut client = named(server, name);
    hold_input(server, &mut client, name, bytes);
    client
}

fn field(line: &str, name: &str) -> Option<usize> {
    line.split_once(name)?.1.split(' ').next()?.parse().ok()
}

/// (Redis shares the names of channels and keys with whoever knows them, too, and does not count them.)
#[test]
fn whatever_a_connection_holds_counts() {
    on_embers(&["--maxmemory-clients", "4mb"], |server| {
        let mut quiet = named(server, "quiet");
        let name = "n".repeat(2_000);
        let many = |command: &str, count: usize| -> Vec<u8> {
            (0..count).flat_map(|i| encode(&words(&format!("{command}{i}{name}")))).collect()
        };
        let holds: [(&str, Vec<u8>); 6] = [
            ("input", [format!("*2\r\n$4\r\nECHO\r\n${}\r\n", 9 << 20).into_bytes(), vec![b'x'; 8 << 20]].concat()),
            ("queued", [encode(&words("MULTI")), many("GET ", 5_000)].concat()),
            ("watched", many("WATCH ", 5_000)),
            ("heard", many("SUBSCRIBE ", 5_000)),
            ("patterns", many("PSUBSCRIBE ", 5_000)),
            ("tracked", many("CLIENT TRACKING ON BCAST PREFIX ", 5_000)),
        ];
        for (number, (name, bytes)) in holds.into_iter().enumerate() {
            let mut client = named(server, name);
            let reader = drain(&client);
            // Its end may come before all is sent.
            let _ = client.try_send_raw(&bytes);
            assert!(wait_until(PATIENCE, || evicted(server) == number as u64 + 1), "{name}");
            assert!(!is_there(server, name), "{name}");
            reader.join().expect("the reader does not panic");
        }
        assert_eq!(quiet.call("PING"), simple("PONG"));
    });
}

#[test]
fn replies_that_nobody_reads_count() {
    on_every_server(&["--maxmemory-clients", "6mb"], |server| {
        let mut quiet = named(server, "quiet");
        let value = "v".repeat(1 << 20);
        assert_eq!(quiet.command(&[b"SET".as_slice(), b"big", value.as_bytes()]), Value::ok());
        let mut slow = named(server, "slow");
        slow.send_raw(&encode(&words("SUBSCRIBE channel")));
        let publish = [b"PUBLISH".as_slice(), b"channel", value.as_bytes()];
        assert!(wait_until(PATIENCE, || {
            quiet.command(&publish);
            evicted(server) == 1
        }));
        assert!(!is_there(server, "slow"));
        assert_eq!(quiet.call("PING"), simple("PONG"));
    });
}

#[test]
fn the_largest_go_first_and_only_until_it_is_enough() {
    on_every_server(&[], |server| {
        let mut control = named(server, "control");
        // Each is twice as large as the one before, since Redis does not tell those apart that are nearer.
        let names = ["of1", "of2", "of4", "of8", "of16"];
        let _held: Vec<Client> = (0..names.len()).map(|i| holder(server, names[i], 1 << (20 + i))).collect();
        let mut spared = named(server, "spared");
        assert_eq!(spared.call("CLIENT NO-EVICT ON"), Value::ok());
        hold_input(server, &mut spared, "spared", 2 << 20);
        assert_eq!(evicted(server), 0);
        // (What small connections hold changes with each reply.)
        let limit = held_by_all(&mut control) - (1 << 20);
        assert_eq!(control.call(&format!("CONFIG SET maxmemory-clients {limit}")), Value::ok());
        assert!(wait_until(PATIENCE, || evicted(server) == 1));
        assert!(!is_there(server, "of16"));
        // Half of what is left, as a part of a ceiling.
        let half = held_by_all(&mut control) / 2;
        let ceiling = half * 100;
        assert_eq!(control.call(&format!("CONFIG SET maxmemory {ceiling} maxmemory-clients 1%")), Value::ok());
        assert_eq!(control.call("CONFIG GET maxmemory-clients").items()[1].text(), "1%");
        assert!(wait_until(PATIENCE, || held_by_all(&mut control) <= half));
        assert!(!is_there(server, "of8"));
        assert!(is_there(server, "spared") && is_there(server, "control") && is_there(server, "of1"));
        assert_eq!(control.call("CONFIG SET maxmemory 0"), Value::ok());
        let before = evicted(server);
        let _more = holder(server, "more", 20 << 20);
        assert_eq!(evicted(server), before, "a part of no ceiling is no limit");
    });
}

/// What CLIENT LIST says that all connections hold.
fn held_by_all(control: &mut Client) -> usize {
    let list = control.call("CLIENT LIST").text();
    list.lines().filter_map(|line| field(line, "tot-mem=")).sum()
}

#[test]
fn nobody_is_too_large_for_himself_where_there_is_room() {
    on_every_server(&["--maxmemory-clients", "64mb"], |server| {
        let mut client = server.client();
        for i in 0..50 {
            let value = vec![b'x'; 1 << 20];
            let key = format!("key{i}");
            assert_eq!(client.command(&[b"SET".as_slice(), key.as_bytes(), &value]), Value::ok());
            assert_eq!(client.call(&format!("STRLEN {key}")), int(1 << 20));
        }
        assert_eq!(evicted(server), 0);
    });
}

/// Hundreds of connections that ask for much and read nothing: as much is held as may be and not much more, others are
/// answered, and it all comes back.
#[test]
fn a_crowd_that_never_reads_is_held_to_the_limit() {
    const LIMIT: u64 = 20 << 20;
    on_embers(&["--maxmemory-clients", &LIMIT.to_string()], |server| {
        let mut quiet = named(server, "quiet");
        assert_eq!(quiet.command(&[b"SET".as_slice(), b"big", &[b'x'; 10_240]]), Value::ok());
        let before = server.resident_bytes();
        let asks = encode(&words("GET big")).repeat(500);
        let crowd: Vec<Client> = (0..600)
            .map(|_| {
                let mut client = server.client();
                SockRef::from(client.stream()).set_recv_buffer_size(4096).expect("a smaller buffer");
                // It may have been ended before all is sent.
                let _ = client.try_send_raw(&asks);
                assert_eq!(quiet.call("PING"), simple("PONG"));
                client
            })
            .collect();
        assert!(wait_until(PATIENCE, || evicted(server) > 0));
        assert!(wait_until(PATIENCE, || (held_by_all(&mut quiet) as u64) <= LIMIT));
        // What each of a few shards was about to write when the limit was reached, and what the allocator adds.
        let grown = server.peak_bytes().saturating_sub(before);
        // (They would hold more than 600 MB.)
        assert!(grown < 15 * LIMIT, "{grown} bytes for {LIMIT}");
        drop(crowd);
        assert!(wait_until(PATIENCE, || server.info("connected_clients").is_some_and(|count| count == "2")));
        let used = || server.info("used_memory").and_then(|bytes| bytes.parse::<u64>().ok()).expect("a number");
        assert!(wait_until(PATIENCE, || used() < 10 << 20), "{} bytes are used", used());
        assert_eq!(quiet.call("PING"), simple("PONG"));
    });
}

/// What other shards answered counted nowhere until it came, so that all of these made theirs at the same time: 20 GB, and the
/// server was ended for it.
#[test]
fn replies_of_other_shards_are_not_made_all_at_once() {
    const VALUE: usize = 4 << 20;
    const CROWD: usize = 80;
    for flags in [["--maxmemory-clients", "16mb"], ["--client-output-buffer-limit", "normal 16mb 0 0"]] {
        on_embers(&flags, |server| {
            let mut quiet = named(server, "quiet");
            quiet.call("CLIENT NO-EVICT ON");
            let (keys, value) = (["{a}", "{b}", "{c}"], vec![b'x'; VALUE]);
            keys.iter().for_each(|key| drop(quiet.command(&[b"SET", key.as_bytes(), &value])));
            let before = server.resident_bytes();
            let get = |key: &str| encode(&words(&format!("GET {key}"))).repeat(2);
            let exec = |gets: Vec<u8>| [encode(&words("MULTI")), gets, encode(&words("EXEC"))].concat();
            for asks in [exec(get("{a}").repeat(3)), exec(keys.map(get).concat())] {
                let asked = || {
                    let mut client = server.client();
                    // It may have been ended before all is sent.
                    let _ = client.try_send_raw(&asks);
                    client
                };
                let crowd: Vec<Client> = (0..CROWD).map(|_| asked()).collect();
                // (One connection may hold less than all may.)
                let few = |most: usize| {
                    let count = server.info("connected_clients").and_then(|count| count.parse::<usize>().ok());
                    count.is_some_and(|count| count <= most)
                };
                assert!(wait_until(3 * PATIENCE, || few(3)));
                drop(crowd);
                assert!(wait_until(PATIENCE, || few(2)));
            }
            let grown = server.peak_bytes().saturating_sub(before);
            // (They would hold 1.9 GB.) What is under way from each shard, and what the allocator adds.
            assert!(grown < 1 << 30, "{grown} bytes");
        });
    }
}
