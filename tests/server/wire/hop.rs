//! Commands on their way between shards, one of which is kept busy: replies stay in order, memory stays bounded, and
//! whoever leaves in the middle takes nothing with him.

use std::thread;
use std::time::Duration;

use crate::common::{Client, Kind, Server, Value, bulk, encode, simple, wait_until, words};

const PATIENCE: Duration = Duration::from_secs(20);
const SHARDS: Kind = Kind::Ember { shards: 3 };

/// Keeps the shard of the tag `slow` at work for some milliseconds.
const SLOW: &str = "LCS {slow}a {slow}b LEN";
const SLOW_BYTES: usize = 2_000;

fn server_with_a_slow_shard() -> Server {
    let server = Server::start(SHARDS, &[]);
    let mut client = server.client();
    let mut rng = fastrand::Rng::with_seed(1);
    for key in ["{slow}a", "{slow}b"] {
        let value: Vec<u8> = (0..SLOW_BYTES).map(|_| rng.u8(b'a'..b'e')).collect();
        assert_eq!(client.command(&[b"SET", key.as_bytes(), &value]), Value::ok());
    }
    server
}

#[test]
fn replies_keep_their_order_while_a_shard_is_slow() {
    let server = server_with_a_slow_shard();
    let lcs = server.client().call(SLOW);
    thread::scope(|scope| {
        for worker in 0..6 {
            let (mut client, lcs) = (server.client(), lcs.clone());
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(worker);
                for round in 0..10 {
                    let mut commands = Vec::new();
                    let mut expected = Vec::new();
                    for step in 0..120 {
                        let value = format!("{worker}-{round}-{step}");
                        match rng.u8(..32) {
                            0 => {
                                commands.push(words(SLOW));
                                expected.push(lcs.clone());
                            }
                            1..6 => {
                                commands.push(words(&format!("ECHO {value}")));
                                expected.push(bulk(&value));
                            }
                            _ => {
                                let key = match rng.bool() {
                                    true => format!("{{slow}}{worker}:{}", rng.u8(..20)),
                                    false => format!("key:{worker}:{}", rng.u8(..50)),
                                };
                                commands.push(words(&format!("SET {key} {value}")));
                                commands.push(words(&format!("GET {key}")));
                                expected.extend([Value::ok(), bulk(&value)]);
                            }
                        }
                    }
                    assert_eq!(client.pipeline(&commands), expected);
                }
            });
        }
    });
}

#[test]
fn what_waits_for_a_slow_shard_is_bounded() {
    const VALUE_BYTES: usize = 32 * 1024;
    const KEPT_BYTES_MAX: u64 = 128 << 20;
    let server = server_with_a_slow_shard();
    let before = server.resident_bytes();
    let flood: Vec<u8> = encode(&words(SLOW)).repeat(1_000);
    let set = encode(&[b"SET".to_vec(), b"{slow}big".to_vec(), vec![b'v'; VALUE_BYTES]]);
    let mut senders: Vec<Client> = (0..3).map(|_| server.client()).collect();
    thread::scope(|scope| {
        let sending: Vec<_> = senders
            .iter_mut()
            .map(|client| {
                let (flood, set) = (&flood, &set);
                // The server stops reading: most of it is not taken before the time is up.
                scope.spawn(move || {
                    client.stream().set_write_timeout(Some(Duration::from_secs(1))).expect("a timeout");
                    let _ = client.try_send_raw(flood).and_then(|()| client.try_send_raw(&set.repeat(8_000)));
                })
            })
            .collect();
        while sending.iter().any(|sender| !sender.is_finished()) {
            let grown = server.resident_bytes().saturating_sub(before);
            assert!(grown < KEPT_BYTES_MAX, "{grown} bytes wait for a slow shard");
            thread::yield_now();
        }
    });
    drop(senders);
    let mut bystander = server.client();
    assert!(wait_until(PATIENCE, || bystander.call("SET {slow}x 1") == Value::ok()));
}

#[test]
fn connections_that_leave_in_the_middle_take_nothing_with_them() {
    let server = server_with_a_slow_shard();
    let mut bystander = server.client();
    let mut rng = fastrand::Rng::with_seed(3);
    for round in 0..150 {
        let mut client = server.client();
        let mut bytes = encode(&words(SLOW));
        for step in 0..rng.usize(1..60) {
            bytes.extend(encode(&words(&format!("SET key:{round}:{step} v"))));
            bytes.extend(encode(&words(&format!("MGET key:{round}:{step} key:{step} {{slow}}{step}"))));
        }
        bytes.truncate(rng.usize(bytes.len() / 2..=bytes.len()));
        client.send_raw(&bytes);
        if rng.bool() {
            let _ = client.try_read();
        }
        drop(client);
        assert_eq!(bystander.call(&format!("SET mine:{round} {round}")), Value::ok());
        assert_eq!(bystander.call(&format!("GET mine:{round}")), bulk(round.to_string()));
    }
    assert_eq!(bystander.call("PING"), simple("PONG"));
    let alone = || server.info("connected_clients").as_deref() == Some("2");
    assert!(wait_until(PATIENCE, alone), "{:?} connections are left", server.info("connected_clients"));
}
