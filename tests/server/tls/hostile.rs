//! Clients that mean harm, or do not know better: nothing that is sent to the port of TLS stops, stalls or swells the server.

use super::{TlsServer, on_all};
use crate::common::tls::{Options, client_config, wrap};
use crate::common::{Client, Value, bulk, encode, simple, wait_until, words};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(10);

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// What comes until the server ends the connection, which it has to.
#[track_caller]
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the connection is still there"),
        _ => bytes,
    }
}

#[track_caller]
fn serves(server: &TlsServer) {
    assert_eq!(server.client().call("PING"), simple("PONG"));
    assert_eq!(server.server.client().call("PING"), simple("PONG"));
}

#[test]
fn plaintext_on_the_port_of_tls_is_refused() {
    on_all(&[], |server| {
        for text in
            [&b"PING\r\n"[..], b"*1\r\n$4\r\nPING\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0\0\0\0\0", &[0xff; 5000]]
        {
            let mut stream = connect(server.port());
            stream.write_all(text).expect("sent");
            let answer = rest(stream);
            // An alert at most.
            assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
        }
        serves(server);
    });
}

#[test]
fn tls_on_the_plain_port_is_refused() {
    on_all(&[], |server| {
        let mut tls = wrap(connect(server.server.port()), client_config(Options::default()));
        let result = tls.write_all(b"PING\r\n").and_then(|()| tls.read(&mut [0; 10]));
        assert!(result.is_err(), "{result:?}");
        serves(server);
    });
}

/// Both sides of the handshake, and what follows, in the smallest pieces.
#[test]
fn one_byte_at_a_time_is_enough() {
    on_all(&[], |server| {
        for options in [Options::default(), Options { only_tls12: true, ..Options::default() }] {
            let mut socket = connect(server.port());
            socket.set_nodelay(true).expect("set");
            let mut tls = wrap(socket.try_clone().expect("a handle"), client_config(options)).conn;
            let mut answer = Vec::new();
            tls.writer().write_all(b"*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\n").expect("taken");
            let begin = Instant::now();
            while !answer.ends_with(b"hello\r\n") {
                let mut out = Vec::new();
                while tls.wants_write() {
                    tls.write_tls(&mut out).expect("taken");
                }
                for byte in out {
                    socket.write_all(&[byte]).expect("sent");
                }
                if tls.wants_read() {
                    let mut byte = [0];
                    assert_eq!(socket.read(&mut byte).expect("something comes"), 1);
                    tls.read_tls(&mut &byte[..]).expect("taken");
                    tls.process_new_packets().expect("valid");
                    let _ = tls.reader().read_to_end(&mut answer);
                }
                assert!(begin.elapsed() < LIMIT);
            }
            assert_eq!(answer, b"$5\r\nhello\r\n");
        }
    });
}

/// Some say nothing, some half of what they should: they are sent away in the end, and until then in nobody's way.
#[test]
fn stalled_handshakes_are_bounded_in_number_and_time() {
    const STALLED: usize = 800;
    let server = TlsServer::start(2, &[]);
    let mut first = client_hello();
    first.truncate(100);
    let begin = Instant::now();
    let stalled: Vec<TcpStream> = (0..STALLED)
        .map(|number| {
            let mut stream = connect(server.port());
            if number % 2 == 0 {
                let _ = stream.write_all(&first);
            }
            stream
        })
        .collect();
    let took = Instant::now();
    serves(&server);
    assert!(took.elapsed() < Duration::from_secs(5), "others wait for {:?}", took.elapsed());
    // They are no clients, and no more of them have files open than may.
    let clients = server.server.info("connected_clients").expect("a number");
    assert!(clients.parse::<usize>().expect("a number") < 10, "{clients}");
    let files = || std::fs::read_dir(format!("/proc/{}/fd", server.server.pid())).expect("it runs").count();
    assert!(wait_until(PATIENCE, || files() < 512 + 200), "{} files", files());
    // The last of them go when their time is over.
    assert!(wait_until(LIMIT, || files() < 150), "{} files", files());
    assert!(begin.elapsed() < Duration::from_secs(40));
    for stream in stalled {
        rest(stream);
    }
    serves(&server);
}

/// The first message of a handshake.
fn client_hello() -> Vec<u8> {
    let mut tls = wrap_nothing();
    let mut hello = Vec::new();
    tls.write_tls(&mut hello).expect("taken");
    hello
}

fn wrap_nothing() -> rustls::ClientConnection {
    let name = rustls::pki_types::ServerName::try_from("localhost").expect("a name");
    rustls::ClientConnection::new(client_config(Options::default()), name).expect("a connection")
}

#[test]
fn an_end_without_a_word_is_an_end() {
    on_all(&[], |server| {
        let mut client = server.client();
        client.call("SET k v");
        client.send_raw(b"GET k\r\nSET half");
        client.stream().shutdown(Shutdown::Write).expect("shut");
        // What was asked is answered, what was not whole is not run.
        assert_eq!(client.read(), bulk("v"));
        assert!(client.is_closed_by_server());
        assert_eq!(server.client().call("EXISTS half"), Value::Int(0));
    });
}

#[test]
fn floods_of_new_keys_end_the_connection() {
    on_all(&[], |server| {
        let mut client = server.client_with(Options { only_tls13: true, ..Options::default() });
        let tls = client.tls();
        let mut failed = false;
        for _ in 0..10_000 {
            tls.conn.refresh_traffic_keys().expect("TLS 1.3 has that");
            if tls.flush().is_err() {
                failed = true;
                break;
            }
        }
        assert!(failed || client.try_send_raw(b"PING\r\n").is_err() || client.try_read().is_err());
        serves(server);
    });
}

#[test]
fn records_that_are_too_long_end_the_connection() {
    on_all(&[], |server| {
        for len in [16 * 1024 + 256 + 1, 16 * 1024 + 2048 + 1, 0xffff] {
            let mut client = server.client();
            let mut record = vec![23, 3, 3, (len >> 8) as u8, len as u8];
            record.resize(5 + len, 0x55);
            let _ = client.tls().sock.write_all(&record);
            assert!(client.is_closed_by_server(), "{len}");
        }
        // And those that are not what they say.
        for kind in 0..=255 {
            let mut client = server.client();
            let _ =
                client.tls().sock.write_all(&[kind, 3, 3, 0, 20]).and_then(|()| client.tls().sock.write_all(&[7; 20]));
            assert!(client.is_closed_by_server(), "{kind}");
        }
        serves(server);
    });
}

/// Bytes that are changed on their way, anywhere in what a client sends.
#[test]
fn handshakes_that_are_changed_on_the_way_fail() {
    let server = TlsServer::start(1, &[]);
    let hello = client_hello();
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..1_000 {
        let mut changed = hello.clone();
        match rng.u8(..4) {
            0 => changed.truncate(rng.usize(..hello.len())),
            1 => changed.extend((0..rng.usize(1..2_000)).map(|_| rng.u8(..))),
            _ => (0..rng.usize(1..20)).for_each(|_| changed[rng.usize(..hello.len())] = rng.u8(..)),
        }
        let mut stream = connect(server.port());
        let _ = stream.write_all(&changed);
        let _ = stream.shutdown(Shutdown::Write);
        rest(stream);
    }
    serves(&server);
}

/// Garbage from many at once, while others are served in time.
#[test]
fn garbage_from_many_is_in_nobodys_way() {
    const ENEMIES: u64 = 4;
    on_all(&[], |server| {
        let mut client = server.client();
        let end = Instant::now() + Duration::from_secs(3);
        let (mut longest, mut calls) = (Duration::ZERO, 0u64);
        let connections: u64 = std::thread::scope(|scope| {
            let enemy = |seed: u64| {
                let port = server.port();
                move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    let mut connections = 0;
                    while Instant::now() < end {
                        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                        let garbage: Vec<u8> = (0..rng.usize(..500)).map(|_| rng.u8(..)).collect();
                        let _ = stream.write_all(&garbage);
                        connections += 1;
                    }
                    connections
                }
            };
            let enemies: Vec<_> = (0..ENEMIES).map(|seed| scope.spawn(enemy(seed))).collect();
            while Instant::now() < end {
                let begin = Instant::now();
                assert_eq!(client.call("SET k v"), Value::ok());
                longest = longest.max(begin.elapsed());
                calls += 1;
            }
            enemies.into_iter().map(|enemy| enemy.join().expect("it ends")).sum()
        });
        eprintln!("{connections} connections, {calls} calls, the longest took {longest:?}");
        assert!(connections > 500 && calls > 100);
        assert!(longest < Duration::from_secs(2), "{longest:?}");
        serves(server);
        // The log has a few lines of it, not one for each.
        let lines = server.server.output().matches("Error accepting a client connection").count();
        assert!(lines < 50, "{lines} lines");
    });
}

#[test]
fn who_never_reads_is_sent_away_and_swells_nothing() {
    on_all(&["--client-output-buffer-limit", "normal 8mb 0 0"], |server| {
        let mut client = server.client();
        assert_eq!(client.command(&[b"SET".as_slice(), b"big", &vec![b'x'; 1 << 20]]), Value::ok());
        let before = server.server.resident_bytes();
        let get = encode(&words("GET big"));
        let mut asked = 0;
        // Until its requests are not taken any more, or it is ended.
        client.stream().set_write_timeout(Some(Duration::from_millis(300))).expect("a timeout");
        while asked < 2_000 && client.try_send_raw(&get).is_ok() {
            asked += 1;
        }
        let grown = server.server.peak_bytes().saturating_sub(before);
        assert!(grown < 60 << 20, "{} MB after {asked} requests", grown >> 20);
        serves(server);
    });
}

#[test]
fn those_who_hang_up_in_the_middle_are_forgotten() {
    on_all(&[], |server| {
        let value = vec![b'x'; 1 << 20];
        server.client().command(&[b"SET".as_slice(), b"big", &value]);
        for round in 0..100 {
            let mut client = server.client();
            match round % 4 {
                0 => client.send_raw(b"*2\r\n$3\r\nGET\r\n$3\r\nbi"),
                1 => client.send("GET big"),
                2 => client.send("SUBSCRIBE news"),
                _ => client.send("BLPOP list 0"),
            }
            if round % 3 == 0 {
                // With a reset.
                socket2::SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).expect("set");
            }
        }
        let alone = || server.server.info("connected_clients").as_deref() == Some("1");
        assert!(wait_until(LIMIT, alone), "{:?} are left", server.server.info("connected_clients"));
        assert_eq!(server.client().call("PUBLISH news x"), Value::Int(0));
    });
}

#[test]
fn a_thousand_reconnects_leave_nothing() {
    on_all(&[], |server| {
        let config = client_config(Options::default());
        let connect = |number: usize| {
            let mut client = Client::connect_with(server.port(), config.clone()).expect("a connection");
            assert_eq!(client.call(&format!("INCRBY n {number}")), Value::Int((0..=number as i64).sum()));
        };
        (0..200).for_each(connect);
        let files = || std::fs::read_dir(format!("/proc/{}/fd", server.server.pid())).expect("it runs").count();
        let alone = || server.server.info("connected_clients").as_deref() == Some("1");
        assert!(wait_until(LIMIT, alone));
        let before = (files(), server.server.resident_bytes());
        (200..1_000).for_each(connect);
        assert!(wait_until(LIMIT, alone));
        assert!(wait_until(LIMIT, || files() <= before.0 + 2), "{} files were open, {} are", before.0, files());
        let grown = server.server.resident_bytes().saturating_sub(before.1);
        assert!(grown < 16 << 20, "{} KB", grown >> 10);
    });
}

#[test]
fn those_who_are_too_many_are_told_so() {
    let server = TlsServer::start(1, &["--maxclients", "3"]);
    let clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    assert!(wait_until(LIMIT, || {
        let Ok(mut client) = Client::connect_tls(server.port(), Options::default()) else { return false };
        client.try_read().is_ok_and(|reply| reply == Value::Error("ERR max number of clients reached".into()))
    }));
    drop(clients);
    assert!(wait_until(LIMIT, || {
        let Ok(mut client) = Client::connect_tls(server.port(), Options::default()) else { return false };
        client.try_send_raw(b"PING\r\n").is_ok() && client.try_read().is_ok_and(|reply| reply == simple("PONG"))
    }));
}

/// What connections hold under TLS counts against the limit of all connections.
#[test]
fn buffers_count_for_the_memory_of_clients() {
    on_all(&["--maxmemory-clients", "4mb"], |server| {
        let mut client = server.client();
        assert_eq!(client.command(&[b"SET".as_slice(), b"big", &vec![b'x'; 1 << 20]]), Value::ok());
        // More than their sockets take.
        let mut greedy: Vec<Client> = (0..20).map(|_| server.client()).collect();
        for client in &mut greedy {
            let _ = client.try_send_raw(&encode(&words("GET big")).repeat(20));
        }
        assert!(wait_until(LIMIT, || server.server.info("evicted_clients").is_some_and(|count| count != "0")));
        serves(server);
    });
}

/// Whole sessions, torn at any place, or with bytes that are another's.
#[test]
fn sessions_that_are_changed_on_the_way_end() {
    on_all(&[], |server| {
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..300 {
            let mut client = server.client();
            let tls = client.tls();
            tls.conn.writer().write_all(b"SET k v\r\n").expect("taken");
            let mut record = Vec::new();
            tls.conn.write_tls(&mut record).expect("taken");
            // (The version in a record's head is to be ignored, and what kind it is is said once more within.)
            let at = rng.usize(3..record.len());
            record[at] ^= 1 << rng.u8(..8);
            let _ = tls.sock.write_all(&record);
            let _ = tls.sock.shutdown(Shutdown::Write);
            assert!(client.is_closed_by_server());
        }
        assert_eq!(server.client().call("EXISTS k"), Value::Int(0));
    });
}

/// Clients that begin a handshake each, faster than the server can sign for them, and never go on. They keep nobody out.
#[test]
fn a_storm_of_first_words_keeps_nobody_out() {
    on_all(&[], |server| {
        let (port, is_over) = (server.port(), AtomicBool::new(false));
        let storm = || {
            let name = ServerName::try_from("localhost").expect("a name");
            let mut connection = ClientConnection::new(client_config(Options::default()), name).expect("a connection");
            let mut hello = Vec::new();
            connection.write_tls(&mut hello).expect("taken");
            let mut open = VecDeque::new();
            while !is_over.load(Ordering::Relaxed) {
                let begun = TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
                    stream.write_all(&hello)?;
                    Ok(stream)
                });
                open.extend(begun);
                if open.len() > 300 {
                    open.pop_front();
                }
            }
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(storm)));
            let began = Instant::now();
            let served = std::panic::catch_unwind(|| (0..5).for_each(|_| serves(server)));
            is_over.store(true, Ordering::Relaxed);
            assert!(served.is_ok(), "nobody is let in");
            assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
        });
        serves(server);
    });
}
