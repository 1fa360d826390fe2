//! Requests as bytes: inline and RESP, whole and in pieces, malformed, past every limit. A bad request costs its own
//! connection and nothing else.

use std::thread;
use std::time::Duration;

use crate::common::{
    Client, Server, Value, bulk, encode, error, int, on_embers, on_every_server, simple, wait_until, words,
};

/// What a client's number alone, with nothing sent behind it, may cost.
const MEMORY_FOR_NOTHING_BYTES: u64 = 32 << 20;

/// Sends `request` on a connection of its own, expects this error and then the end of the connection, and looks whether
/// another client noticed.
#[track_caller]
fn assert_refused(server: &Server, request: &[u8], text: &str) {
    let mut bystander = server.client();
    let mut client = server.client();
    // The server may close while we still send; its reply has to arrive all the same.
    let _ = client.try_send_raw(request);
    assert_eq!(client.read(), error(text));
    assert!(client.is_closed_by_server(), "open after {text}");
    bystander.call("PING");
}

#[test]
fn inline_commands_are_split_as_a_shell_splits_them() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let mut inline = |line: &[u8]| {
            client.send_raw(line);
            client.read()
        };
        assert_eq!(inline(b"PING\r\n"), simple("PONG"));
        assert_eq!(inline(b"ping\n"), simple("PONG"));
        assert_eq!(inline(b"  SET   key  value \r\n"), Value::ok());
        assert_eq!(inline(b"ECHO 'it\\'s one'\r\n"), bulk("it's one"));
        assert_eq!(inline(b"ECHO \"a\\x41\\r\\n\\t\\\"\"\r\n"), bulk("aA\r\n\t\""));
        assert_eq!(inline(b"ECHO \"\"\r\n"), bulk(""));
        assert_eq!(inline(b"GET key\r\n"), bulk("value"));
        assert_eq!(inline(b"GET\r\n"), error("ERR wrong number of arguments for 'get' command"));
        assert_eq!(inline(b"\r\n  \r\n\nPING\r\n"), simple("PONG"));
        client.assert_in_step();
    });
}

#[test]
fn inline_and_resp_requests_mix_in_one_pipeline() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        client.send_raw(b"SET a 1\r\n*2\r\n$4\r\nINCR\r\n$1\r\na\r\nGET a\r\n");
        assert_eq!(client.read(), Value::ok());
        assert_eq!(client.read(), int(2));
        assert_eq!(client.read(), bulk("2"));
        client.assert_in_step();
    });
}

#[test]
fn unbalanced_quotes_end_the_connection() {
    on_every_server(&[], |server| {
        let text = "ERR Protocol error: unbalanced quotes in request";
        assert_refused(server, b"ECHO \"half\r\n", text);
        assert_refused(server, b"ECHO 'half\r\n", text);
        assert_refused(server, b"ECHO \"a\"b\r\n", text);
    });
}

#[test]
fn empty_requests_get_no_reply() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        client.send_raw(b"*0\r\n*-1\r\n\r\n*-7\r\n");
        client.assert_in_step();
    });
}

#[test]
fn a_pipeline_may_be_cut_at_any_byte() {
    on_every_server(&[], |server| {
        let pipeline = [
            encode(&words("DEL list a b")),
            encode(&words("SET a 1")),
            encode(&[&b"SET"[..], b"b", b"\r\n$3\r\n\0\xff"]),
            b"INCR a\r\n".to_vec(),
            encode(&words("MGET a b nothing")),
            encode(&words("NOSUCH command")),
            encode(&words("GET b")),
        ]
        .concat();
        let mut client = server.client();
        let mut other = server.client();
        for cut in 1..pipeline.len() {
            client.send_raw(&pipeline[..cut]);
            // A round trip of another client, so that the server sees the first piece alone.
            assert_eq!(other.call("PING"), simple("PONG"));
            client.send_raw(&pipeline[cut..]);
            assert!(matches!(client.read(), Value::Int(_)), "cut at {cut}");
            assert_eq!(client.read(), Value::ok());
            assert_eq!(client.read(), Value::ok());
            assert_eq!(client.read(), int(2));
            let b = bulk(b"\r\n$3\r\n\0\xff");
            assert_eq!(client.read(), Value::Array(vec![bulk("2"), b.clone(), Value::NullBulk]));
            assert!(client.read().is_error());
            assert_eq!(client.read(), b, "cut at {cut}");
        }
        client.assert_in_step();
    });
}

#[test]
fn a_request_may_come_byte_by_byte() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        for byte in encode(&words("SET slow down")) {
            client.send_raw(&[byte]);
        }
        assert_eq!(client.read(), Value::ok());
        assert_eq!(client.call("GET slow"), bulk("down"));
    });
}

#[test]
fn ten_thousand_pipelined_commands_get_their_replies_in_order() {
    on_every_server(&[], |server| {
        let commands: Vec<_> = (0..10_000).map(|i| words(&format!("ECHO {i}"))).collect();
        let replies = server.client().pipeline(&commands);
        for (i, reply) in replies.iter().enumerate() {
            assert_eq!(*reply, bulk(i.to_string()));
        }
    });
}

#[test]
fn pipelined_commands_on_one_key_take_effect_in_order() {
    on_every_server(&[], |server| {
        // Many keys, so that with several shards each turn carries commands for all of them.
        let commands: Vec<_> = (0..3_000).map(|i| words(&format!("APPEND key:{} x", i % 30))).collect();
        for (i, reply) in server.client().pipeline(&commands).iter().enumerate() {
            assert_eq!(*reply, int(i as i64 / 30 + 1));
        }
    });
}

#[test]
fn strict_pipeline_order_holds_across_shards() {
    on_embers(&["--pipeline-order", "strict"], |server| {
        const ROUNDS: i64 = 500;
        let mut writer = server.client();
        let commands: Vec<_> =
            (1..=ROUNDS).flat_map(|i| (0..6).map(move |key| words(&format!("SET key:{key} {i}")))).collect();
        let writing = thread::spawn(move || writer.pipeline(&commands).len());
        // Read in the opposite order of writing: what was written first can only be newer.
        let mut reader = server.client();
        let mut newest = 0;
        while newest < ROUNDS {
            let mut written_later = 0;
            for key in (0..6).rev() {
                let reply = reader.call(&format!("GET key:{key}"));
                let value = match reply.is_null() {
                    true => 0,
                    false => reply.text().parse().expect("a number"),
                };
                assert!(value >= written_later, "key:{key} is {value}, the next {written_later}");
                written_later = value;
            }
            newest = written_later;
        }
        assert_eq!(writing.join().expect("the writer does not fail"), 6 * ROUNDS as usize);
    });
}

#[test]
fn values_of_any_bytes_and_of_megabytes_come_back_unchanged() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        let every_byte: Vec<u8> = (0..=255).collect();
        let long: Vec<u8> = every_byte.iter().copied().cycle().take(5 << 20).collect();
        for value in [&every_byte[..], &long, b"", b"\r\n", b"$-1\r\n"] {
            for key in [&every_byte[..], b"", b"\r\n"] {
                assert_eq!(client.command(&[b"SET", key, value]), Value::ok());
                assert_eq!(client.command(&[b"STRLEN", key]), int(value.len() as i64));
                assert!(client.command(&[b"GET", key]) == bulk(value));
            }
        }
    });
}

#[test]
fn malformed_requests_are_refused_with_their_reason() {
    on_every_server(&[], |server| {
        let multibulk = "ERR Protocol error: invalid multibulk length";
        let blob = "ERR Protocol error: invalid bulk length";
        assert_refused(server, b"*abc\r\n", multibulk);
        assert_refused(server, b"*\r\n", multibulk);
        assert_refused(server, b"*1x\r\n", multibulk);
        assert_refused(server, b"* 1\r\n", multibulk);
        assert_refused(server, b"*2147483648\r\n", multibulk);
        assert_refused(server, b"*99999999999999999999\r\n", multibulk);
        assert_refused(server, b"*1\r\n$-5\r\n", blob);
        assert_refused(server, b"*1\r\n$-1\r\n", blob);
        assert_refused(server, b"*1\r\n$abc\r\n", blob);
        assert_refused(server, b"*1\r\n$\r\n", blob);
        assert_refused(server, b"*1\r\n$99999999999999999999\r\n", blob);
        assert_refused(server, b"*3\r\n:1\r\n", "ERR Protocol error: expected '$', got ':'");
        assert_refused(server, b"*1\r\nPING\r\n", "ERR Protocol error: expected '$', got 'P'");
        assert_refused(server, b"*2\r\n$4\r\nECHO\r\n*1\r\n", "ERR Protocol error: expected '$', got '*'");
    });
}

#[test]
fn commands_before_a_malformed_request_are_answered_first() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        client.send_raw(b"SET before 1\r\nGET before\r\n*x\r\nSET after 1\r\n");
        assert_eq!(client.read(), Value::ok());
        assert_eq!(client.read(), bulk("1"));
        assert_eq!(client.read(), error("ERR Protocol error: invalid multibulk length"));
        assert!(client.is_closed_by_server());
        assert_eq!(server.client().call("EXISTS before after"), int(1));
    });
}

#[test]
fn a_bulk_past_proto_max_bulk_len_is_refused_before_it_is_sent() {
    on_every_server(&[], |server| {
        let text = "ERR Protocol error: invalid bulk length";
        let request = |len: u64| format!("*2\r\n$3\r\nGET\r\n${len}\r\n").into_bytes();
        assert_refused(server, &request((512 << 20) + 1), text);
        let mut client = server.client();
        assert_eq!(client.call("CONFIG SET proto-max-bulk-len 1mb"), Value::ok());
        assert_refused(server, &request((1 << 20) + 1), text);
        let value = vec![b'v'; 1 << 20];
        assert_eq!(client.command(&[b"SET", &b"k"[..], &value]), Value::ok());
        assert_eq!(client.call("APPEND k v"), error("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    });
}

#[test]
fn input_past_client_query_buffer_limit_ends_the_connection() {
    on_every_server(&["--client-query-buffer-limit", "1mb"], |server| {
        let mut bystander = server.client();
        let mut client = server.client();
        let value = vec![b'v'; 3 << 20];
        // The server may close while we still send.
        let _ = client.try_send_raw(&encode(&[b"SET", &b"k"[..], &value]));
        assert!(client.is_closed_by_server());
        assert_eq!(bystander.call("EXISTS k"), int(0));
        let value = vec![b'v'; 512 << 10];
        assert_eq!(bystander.command(&[b"SET", &b"k"[..], &value]), Value::ok());
    });
}

#[test]
fn a_count_with_nothing_behind_it_costs_no_memory() {
    on_every_server(&[], |server| {
        let before = server.resident_bytes();
        let mut clients: Vec<Client> = (0..16).map(|_| server.client()).collect();
        for client in &mut clients {
            client.send_raw(b"*2147483647\r\n");
        }
        assert_eq!(server.client().call("PING"), simple("PONG"));
        for client in &mut clients {
            client.send_raw(b"$3\r\nSET\r\n$1\r\nk\r\n");
        }
        assert_eq!(server.client().call("PING"), simple("PONG"));
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < MEMORY_FOR_NOTHING_BYTES, "{grown} bytes");
        let nothing = Duration::from_millis(50);
        assert_eq!(clients[0].read_within(nothing), None, "still waits for more");
    });
}

#[test]
fn a_length_with_nothing_behind_it_costs_no_memory() {
    on_every_server(&[], |server| {
        let before = server.resident_bytes();
        let mut clients: Vec<Client> = (0..16).map(|_| server.client()).collect();
        for client in &mut clients {
            client.send_raw(b"*2\r\n$3\r\nGET\r\n$536870912\r\nabc");
        }
        assert_eq!(server.client().call("PING"), simple("PONG"));
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < MEMORY_FOR_NOTHING_BYTES, "{grown} bytes");
    });
}

#[test]
fn a_line_without_end_is_refused_past_64_kib() {
    on_every_server(&[], |server| {
        let endless = |start: &str| {
            let mut request = start.as_bytes().to_vec();
            request.resize((64 << 10) + 32, b'1');
            request
        };
        assert_refused(server, &endless("ECHO "), "ERR Protocol error: too big inline request");
        assert_refused(server, &endless("*"), "ERR Protocol error: too big mbulk count string");
        assert_refused(server, &endless("*1\r\n$"), "ERR Protocol error: too big bulk count string");
    });
}

#[test]
fn strangers_get_smaller_limits_until_they_authenticate() {
    on_every_server(&["--requirepass", "secret"], |server| {
        assert_refused(server, b"*11\r\n", "ERR Protocol error: unauthenticated multibulk length");
        assert_refused(server, b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "ERR Protocol error: unauthenticated bulk length");
        let mut client = server.client();
        let long = vec![b'x'; 16_384];
        assert_eq!(
            client.command(&[b"AUTH", &long[..]]),
            error("WRONGPASS invalid username-password pair or user is disabled.")
        );
        assert_eq!(client.call("AUTH secret"), Value::ok());
        assert_eq!(client.call("DEL 1 2 3 4 5 6 7 8 9 10 11 12"), int(0), "no limit once authenticated");
    });
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_command_harms_nobody() {
    on_every_server(&[], |server| {
        let mut bystander = server.client();
        let request = encode(&words("SET key:left half"));
        for cut in 1..request.len() {
            server.client().send_raw(&request[..cut]);
            assert_eq!(bystander.call("EXISTS key:left"), int(0), "cut at {cut}");
        }
        // Gone with commands still to be answered, on all shards.
        for _ in 0..20 {
            let gets: Vec<u8> = (0..500).flat_map(|i| encode(&words(&format!("GET key:{i}")))).collect();
            server.client().send_raw(&gets);
        }
        let alone = |client: &mut Client| {
            let list = client.call("CLIENT LIST").text();
            list.lines().count() == 1
        };
        assert!(wait_until(Duration::from_secs(10), || alone(&mut bystander)), "connections stay behind");
    });
}

#[test]
fn a_client_that_never_reads_holds_up_nobody_and_is_bounded() {
    on_every_server(&[], |server| {
        const VALUE_BYTES: usize = 100_000;
        const ASKED_FOR: usize = 4_000; // 400 MB of replies
        const KEPT_BYTES_MAX: u64 = 160 << 20;
        let mut bystander = server.client();
        let limit = ["CONFIG", "SET", "client-output-buffer-limit", "normal 16mb 0 0"];
        assert_eq!(bystander.command(&limit), Value::ok());
        let value = vec![b'v'; VALUE_BYTES];
        for i in 0..10 {
            let key = format!("big:{i}");
            assert_eq!(bystander.command(&[b"SET", key.as_bytes(), &value]), Value::ok());
        }
        let before = server.resident_bytes();
        let mut deaf = server.client();
        let gets: Vec<u8> = (0..ASKED_FOR).flat_map(|i| encode(&words(&format!("GET big:{}", i % 10)))).collect();
        let _ = deaf.try_send_raw(&gets);
        for i in 0..2_000 {
            let key = format!("key:{i}");
            assert_eq!(bystander.command(&["SET", &key, "x"]), Value::ok());
            assert_eq!(bystander.command(&["GET", &key]), bulk("x"));
            assert_eq!(bystander.command(&["STRLEN", "big:0"]), int(VALUE_BYTES as i64));
        }
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < KEPT_BYTES_MAX, "{grown} bytes wait for a deaf client");
        drop(deaf);
        assert_eq!(bystander.call("PING"), simple("PONG"));
    });
}

#[test]
fn many_clients_at_once_are_all_served() {
    on_every_server(&[], |server| {
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                let mut clients: Vec<Client> = (0..25).map(|_| server.client()).collect();
                thread::spawn(move || {
                    for round in 0..20 {
                        for (i, client) in clients.iter_mut().enumerate() {
                            let key = format!("{worker}:{i}");
                            assert_eq!(client.command(&["INCR", &key]), int(round + 1));
                            assert!(client.call("INCR shared").number() > 0);
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("no worker fails");
        }
        assert_eq!(server.client().call("GET shared"), bulk("4000"));
    });
}

/// A byte that a client sends urgently, past the others, is none of its commands; what comes behind it is read all the same.
#[test]
fn urgent_bytes_hold_up_nothing() {
    on_every_server(&[], |server| {
        let mut client = server.client();
        for _ in 0..50 {
            client.send_raw(b"*2\r\n$4\r\nEC");
            socket2::SockRef::from(client.stream()).send_out_of_band(b"!").expect("sent");
            client.send_raw(b"HO\r\n$2\r\nhi\r\n");
            assert_eq!(client.read(), bulk("hi"));
        }
    });
}
