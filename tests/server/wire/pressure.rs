//! What connections hold and what becomes of it: replies that nobody reads, requests behind a wait, and those whose
//! other end is gone.

use socket2::SockRef;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{
    Client, Kind, Server, Value, bulk, encode, error, int, on_embers, on_every_server, simple, wait_until, words,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Memory that the process may grow by while clients read nothing, whatever they asked for.
const GROWTH_BYTES_MAX: u64 = 200 << 20;

/// What keeps a shard at work for a few milliseconds.
const SLOW: &str = "LCS {slow}a {slow}b LEN";

/// Two values that are as long as LCS takes them.
fn set_slow_values(client: &mut Client) {
    const BYTES: usize = 11_000;
    let mut rng = fastrand::Rng::with_seed(1);
    for key in ["{slow}a", "{slow}b"] {
        let value: Vec<u8> = (0..BYTES).map(|_| rng.u8(b'a'..b'e')).collect();
        assert_eq!(client.command(&[b"SET", key.as_bytes(), &value]), Value::ok());
    }
}

fn connected_clients(server: &Server) -> Option<String> {
    server.info("connected_clients")
}

/// Four clients ask for much and read nothing; then one of them reads all of it.
fn ask_and_read_nothing(flags: &[&str], requests: usize, request: impl Fn(usize) -> String) {
    const VALUE_BYTES: usize = 256 * 1024;
    let server = Server::start(Kind::Ember { shards: 2 }, flags);
    let mut setter = server.client();
    set_slow_values(&mut setter);
    for key in 0..8 {
        let value = vec![b'0' + key; VALUE_BYTES];
        assert_eq!(setter.command(&[b"SET", format!("big:{key}").as_bytes(), &value]), Value::ok());
    }
    let before = server.resident_bytes();
    let mut flood = encode(&words("STRLEN {slow}a"));
    (0..requests).for_each(|step| flood.extend(encode(&words(&request(step)))));
    let mut busy = server.client();
    busy.send_raw(&encode(&words(SLOW)).repeat(200));
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for client in &mut clients {
        client.stream().set_write_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        client.send_raw(&flood);
    }
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(2) {
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes wait for those who read nothing");
        thread::sleep(Duration::from_millis(5));
    }
    // Nobody else notices.
    for key in 0..8 {
        assert_eq!(setter.call(&format!("STRLEN big:{key}")), int(VALUE_BYTES as i64));
    }
    let mut reader = clients.remove(0);
    drop(clients);
    assert!(matches!(reader.read(), Value::Int(_)));
    for step in 0..requests {
        let of_key = |value: &Value, key: usize| {
            let Value::Bulk(bytes) = value else { panic!("{value:?}") };
            assert!(bytes.len() == VALUE_BYTES && bytes[0] == b'0' + key as u8, "reply {step}");
        };
        match reader.read() {
            Value::Array(items) => items.iter().enumerate().for_each(|(key, item)| of_key(item, key)),
            item => of_key(&item, step % 8),
        }
    }
    reader.assert_in_step();
    drop((reader, busy));
    assert!(wait_until(PATIENCE, || connected_clients(&server).as_deref() == Some("2")));
}

/// Replies that waited for an earlier one counted nowhere, and were kept until all of them had left: this took more than
/// a gigabyte.
#[test]
fn replies_that_nobody_reads_wait_for_few_of_their_kind() {
    ask_and_read_nothing(&[], 1_000, |step| format!("GET big:{}", step % 8));
}

#[test]
fn so_do_replies_that_are_made_of_parts() {
    ask_and_read_nothing(&[], 100, |_| "MGET big:0 big:1 big:2 big:3 big:4 big:5 big:6 big:7".to_owned());
}

/// (Where the connection is on the shard of what is slow, and is read first, its replies may leave one by one.)
#[test]
fn held_replies_count_for_the_limits_of_output() {
    assert!(
        (0..5).any(|_| held_replies_end_a_connection()),
        "held replies show, and eight of 300 KB pass the limit of 512 KB"
    );
}

fn held_replies_end_a_connection() -> bool {
    let flags = ["--client-output-buffer-limit", "normal 512kb 0 0"];
    let server = Server::start(Kind::Ember { shards: 2 }, &flags);
    let mut setter = server.client();
    set_slow_values(&mut setter);
    for key in 0..8 {
        setter.command(&[b"SET", format!("big:{key}").as_bytes(), &[b'v'; 300 * 1024]]);
    }
    let mut client = server.client();
    let mut busy = server.client();
    busy.send_raw(&encode(&words(SLOW)).repeat(300));
    // In one go: the connection may end as soon as the server has seen a part of it. Slow ones of its own, since the shard
    // may read these before those of the busy client.
    let mut requests = encode(&words(SLOW)).repeat(20);
    (0..8).for_each(|key| requests.extend(encode(&words(&format!("GET big:{key}")))));
    client.send_raw(&requests);
    let mut other = server.client();
    // While nothing of it can be sent, it is seen all the same.
    let seen = wait_until(PATIENCE, || {
        let list = other.call("CLIENT LIST").text();
        let output = |line: &str| line.split(' ').find_map(|field| field.strip_prefix("omem=")?.parse::<u64>().ok());
        let gone = list.lines().count() == 3;
        gone || list.lines().filter_map(output).any(|bytes| bytes > 0)
    });
    // (On a machine that is busy with something else the slow requests may be over before anybody has looked.)
    seen && client.is_closed_by_server()
}

/// What the kernel does not take was counted, and ended the connection, but CLIENT LIST said that nothing waits.
#[test]
fn who_does_not_read_is_seen_in_the_list_of_clients() {
    on_every_server(&["--client-output-buffer-limit", "pubsub 2mb 0 0"], |server| {
        let (mut silent, mut publisher) = (server.client(), server.client());
        silent.call("CLIENT SETNAME silent");
        silent.call("SUBSCRIBE news");
        let message = vec![b'm'; 20_000];
        let waits = wait_until(PATIENCE, || {
            publisher.command(&[&b"PUBLISH"[..], b"news", &message]);
            let list = publisher.call("CLIENT LIST").text();
            let line = list.lines().find(|line| line.contains("name=silent")).expect("it is not ended before that");
            let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name)?.parse::<u64>().ok());
            field("omem=").expect("omem") > 200_000
        });
        assert!(waits, "{:?}", publisher.call("CLIENT LIST"));
        let gone = wait_until(PATIENCE, || {
            publisher.command(&[&b"PUBLISH"[..], b"news", &message]);
            !publisher.call("CLIENT LIST").text().contains("name=silent")
        });
        assert!(gone, "2 MB is its limit");
        if server.kind().is_ember() {
            assert_eq!(server.info("client_output_buffer_limit_disconnections").as_deref(), Some("1"));
        }
    });
}

/// Many clients write a whole pipeline before they read any reply. Such a one was not read on while a megabyte waited for it, and
/// so it waited for ever.
#[test]
fn who_writes_all_of_a_pipeline_before_reading_is_served() {
    const VALUE_BYTES: usize = 64 * 1024;
    const PAIRS: usize = 600;
    on_embers(&[], |server| {
        let mut client = server.client();
        client.stream().set_write_timeout(Some(PATIENCE)).expect("a timeout");
        let mut pipeline = Vec::new();
        for pair in 0..PAIRS {
            let (key, value) = (format!("k:{}", pair % 7), vec![b'a' + (pair % 26) as u8; VALUE_BYTES]);
            pipeline.extend(encode(&[b"SET", key.as_bytes(), &value]));
            pipeline.extend(encode(&[b"GET", key.as_bytes()]));
        }
        client.send_raw(&pipeline);
        // What waits is not run, and is said to wait.
        let list = server.client().call("CLIENT LIST").text();
        let waits = |line: &str| line.split(' ').find_map(|field| field.strip_prefix("qbuf=")?.parse::<usize>().ok());
        assert!(list.lines().filter_map(waits).any(|bytes| bytes > 1 << 20), "{list}");
        for pair in 0..PAIRS {
            assert_eq!(client.read(), Value::ok());
            let Value::Bulk(value) = client.read() else { panic!("{pair}") };
            assert!(value.len() == VALUE_BYTES && value.iter().all(|byte| *byte == b'a' + (pair % 26) as u8), "{pair}");
        }
        client.assert_in_step();
        // Short replies are as many until they are as much.
        client.send_raw(&encode(&words("GET none")).repeat(3_000_000));
        (0..3_000_000).for_each(|_| assert_eq!(client.read(), Value::NullBulk));
        client.assert_in_step();
    });
}

/// So is who ends the connection in the middle, or says what is no request: what follows is let go, but read.
#[test]
fn who_writes_on_behind_the_end_is_told_what_came_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ember.sock");
    on_embers(&["--unixsocket", path.to_str().expect("a path in UTF-8")], |server| {
        let mut setter = server.client();
        assert_eq!(setter.command(&[b"SET", &b"big"[..], &[b'v'; 700_000]]), Value::ok());
        for end in ["QUIT\r\n", "*1\r\n$abc\r\n"] {
            let mut client = UnixStream::connect(&path).expect("a connection");
            client.set_write_timeout(Some(PATIENCE)).expect("a timeout");
            client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let pipeline = [encode(&words("GET big")), end.into(), encode(&words("GET big")).repeat(500_000)].concat();
            client.write_all(&pipeline).expect("all of it is taken");
            let mut told = Vec::new();
            client.read_to_end(&mut told).expect("an end");
            assert!(told.starts_with(b"$700000\r\nvvv"), "{end}");
            let rest = String::from_utf8_lossy(&told[700_000 + 11..]).into_owned();
            assert!(rest == "+OK\r\n" || rest == "-ERR Protocol error: invalid bulk length\r\n", "{rest}");
        }
    });
}

/// More than may wait had come before its turn; it is not ended for that, since it is read no further.
#[test]
fn who_reads_is_not_ended_for_a_long_pipeline() {
    on_embers(&["--client-query-buffer-limit", "1mb"], |server| {
        let mut client = server.client();
        for _ in 0..3_000 {
            client.send("RPUSH l a");
        }
        (0..3_000).for_each(|_| drop(client.read()));
        let request = encode(&words("LPOS l none"));
        let count = (4 << 20) / request.len();
        let mut writer = client.stream().try_clone().expect("a stream");
        thread::scope(|scope| {
            scope.spawn(move || {
                // Ended below once enough has been seen.
                let _ = writer.write_all(&request.repeat(count));
            });
            (0..20_000.min(count)).for_each(|_| assert_eq!(client.read(), Value::NullBulk));
            client.stream().shutdown(Shutdown::Both).expect("open until then");
        });
    });
}

/// What is kept of what somebody sends who reads nothing has a bound, and the connection is not ended for it.
#[test]
fn what_is_kept_for_who_does_not_read_is_bounded() {
    on_embers(&["--client-query-buffer-limit", "8mb"], |server| {
        let mut setter = server.client();
        assert_eq!(setter.command(&[b"SET", &b"big"[..], &[b'v'; 1 << 20]]), Value::ok());
        let before = server.resident_bytes();
        let mut client = server.client();
        client.stream().set_nonblocking(true).expect("a socket");
        let request = encode(&words("GET big"));
        let flood = request.repeat((40 << 20) / request.len());
        let (mut sent, mut last) = (0, Instant::now());
        while last.elapsed() < Duration::from_secs(1) && sent < flood.len() {
            match client.stream().write(&flood[sent..]) {
                Ok(len) => (sent, last) = (sent + len, Instant::now()),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
        assert!(sent > 8 << 20 && sent < flood.len(), "{sent} bytes were taken");
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < 40 << 20, "{grown} bytes are kept for who does not read");
        client.stream().set_nonblocking(false).expect("a socket");
        for _ in 0..100 {
            assert!(matches!(client.read(), Value::Bulk(value) if value.len() == 1 << 20));
        }
        drop(client);
        assert!(wait_until(PATIENCE, || connected_clients(server).as_deref() == Some("2")));
    });
}

/// One that waited for a key was not read past 64 KiB, and so nobody saw that it had hung up.
#[test]
fn who_hangs_up_is_seen_whatever_was_sent_before() {
    on_embers(&[], |server| {
        let mut other = server.client();
        for wait in ["BLPOP nk 0", "BLMOVE nk other:1 LEFT LEFT 0", "XREAD BLOCK 0 STREAMS nk $"] {
            let mut waiter = server.client();
            waiter.send(wait);
            waiter.stream().set_write_timeout(Some(Duration::from_millis(300))).expect("a timeout");
            let _ = waiter.try_send_raw(&b"PING\r\n".repeat(100_000));
            assert!(wait_until(PATIENCE, || server.info("blocked_clients").as_deref() == Some("1")));
            drop(waiter);
            let gone = || connected_clients(server).as_deref() == Some("2");
            assert!(wait_until(PATIENCE, gone), "{wait}: {:?}", connected_clients(server));
        }
        assert_eq!(other.call("RPUSH nk v"), int(1));
        assert_eq!(other.call("LLEN nk"), int(1), "nobody was there to take it");
    });
}

/// The kernel gives out what was sent, and may not say that the connection was reset behind it.
#[test]
fn who_resets_behind_much_that_was_sent_is_seen() {
    on_embers(&[], |server| {
        let part = [b"$200000\r\n".to_vec(), vec![b'x'; 200_000], b"\r\n".to_vec()].concat();
        let flood = [b"*100\r\n".to_vec(), part.repeat(20)].concat();
        for _ in 0..10 {
            thread::scope(|scope| {
                for _ in 0..12 {
                    scope.spawn(|| {
                        let client = server.client();
                        client.stream().set_nonblocking(true).expect("a socket");
                        let mut rest = &flood[..];
                        while !rest.is_empty() {
                            match client.stream().write(rest) {
                                Ok(len) => rest = &rest[len..],
                                Err(_) => thread::sleep(Duration::from_micros(200)),
                            }
                        }
                        SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).expect("a socket");
                    });
                }
            });
        }
        let gone = || connected_clients(server).as_deref() == Some("1");
        assert!(wait_until(PATIENCE, gone), "{:?}", connected_clients(server));
    });
}

#[test]
fn who_hangs_up_during_a_pause_is_not_kept() {
    on_embers(&[], |server| {
        let mut other = server.client();
        assert_eq!(other.call("CLIENT PAUSE 1000000 WRITE"), Value::ok());
        let mut paused = server.client();
        paused.stream().set_write_timeout(Some(Duration::from_millis(300))).expect("a timeout");
        let _ = paused.try_send_raw(&b"SET k v\r\n".repeat(100_000));
        drop(paused);
        assert!(wait_until(PATIENCE, || connected_clients(server).as_deref() == Some("2")));
        assert_eq!(other.call("CLIENT UNPAUSE"), Value::ok());
        assert_eq!(other.call("EXISTS k"), int(0), "what was not run when it left is not run");
    });
}

/// What ran by itself, a script here, has its turn after the others: nothing runs by then, and much is kept.
#[test]
fn who_stops_sending_behind_scripts_gets_all_replies() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.command(&[b"SET".to_vec(), b"big".to_vec(), vec![b'v'; 100_000]]);
        let script = b"redis.call('SET', 'a', 1) redis.call('SET', 'b', 1) return redis.call('GET', 'big')";
        let round =
            [encode(&[&b"EVAL"[..], script, b"0"]), encode(&words("GET big")), b"PING\r\n".repeat(1_000)].concat();
        client.send_raw(&round.repeat(100));
        client.stream().shutdown(Shutdown::Write).expect("a half-closed connection");
        for _ in 0..100 {
            assert_eq!((client.read(), client.read()), (bulk("v".repeat(100_000)), bulk("v".repeat(100_000))));
            (0..1_000).for_each(|_| assert_eq!(client.read(), simple("PONG")));
        }
        assert!(client.is_closed_by_server());
    });
}

#[test]
fn who_only_stops_sending_gets_all_replies() {
    on_embers(&[], |server| {
        let mut client = server.client();
        client.command(&[b"SET".to_vec(), b"big".to_vec(), vec![b'v'; 100_000]]);
        for _ in 0..300 {
            client.send("GET big");
            client.send("PING");
        }
        client.stream().shutdown(Shutdown::Write).expect("a half-closed connection");
        // The server does not read while so much waits to be sent: it has seen the end all the same.
        thread::sleep(Duration::from_millis(300));
        for _ in 0..300 {
            assert_eq!(client.read(), bulk("v".repeat(100_000)));
            assert_eq!(client.read(), simple("PONG"));
        }
        assert!(client.is_closed_by_server());
    });
}

/// A coordinator that had been called to serve a wait had its claim while it waited for keys that the transaction held,
/// and the transaction waited for the claim.
#[test]
fn a_wait_can_be_ended_within_a_transaction_that_has_its_keys() {
    let server = Server::start(Kind::Ember { shards: 3 }, &[]);
    let (mut waiter, mut pusher, mut ender) = (server.client(), server.client(), server.client());
    let id = waiter.call("CLIENT ID").number();
    for round in 0..300 {
        let (from, to) = (format!("from:{}", round % 11), format!("to:{}", round % 7));
        waiter.send(&format!("BLMOVE {from} {to} LEFT RIGHT 0"));
        assert!(wait_until(PATIENCE, || server.info("blocked_clients").as_deref() == Some("1")));
        let mut transaction = encode(&words("MULTI"));
        for command in [format!("LLEN {to}"), format!("CLIENT UNBLOCK {id}"), format!("LLEN {from}")] {
            transaction.extend(encode(&words(&command)));
        }
        transaction.extend(encode(&words("EXEC")));
        pusher.send(&format!("RPUSH {from} {round}"));
        ender.send_raw(&transaction);
        assert_eq!(pusher.read(), int(1));
        (0..4).for_each(|_| drop(ender.read()));
        let exec = ender.read();
        let reply = waiter.read();
        if exec.items()[1] == int(1) {
            assert_eq!(reply, Value::NullArray);
            assert_eq!(pusher.call(&format!("LPOP {from}")), bulk(round.to_string()));
        } else {
            assert_eq!(reply, bulk(round.to_string()));
        }
    }
}

/// Those that a transaction keeps waiting do not keep others waiting that came at the same time.
#[test]
fn a_transaction_that_is_done_does_not_wait_for_strangers() {
    let server = Server::start(Kind::Ember { shards: 3 }, &[]);
    let mut client = server.client();
    set_slow_values(&mut client);
    let mut holder = server.client();
    let mut others: Vec<Client> = (0..30).map(|_| server.client()).collect();
    // A transaction of steps holds its keys until it is done.
    const STEPS: usize = 300;
    let mut transaction = encode(&words("MULTI"));
    transaction.extend(encode(&words("SET held 1")));
    transaction.extend(encode(&words("PING")));
    transaction.extend(encode(&words(SLOW)).repeat(STEPS));
    transaction.extend(encode(&words("EXEC")));
    holder.send_raw(&transaction);
    (0..STEPS + 3).for_each(|_| drop(holder.read()));
    for (index, other) in others.iter_mut().enumerate() {
        let key = if index % 2 == 0 { "held" } else { "{held}free" };
        other.send(&format!("MSET {key} {index} {{other}}{index} v {{another}}{index} v"));
    }
    for (index, other) in others.iter_mut().enumerate().filter(|(index, _)| index % 2 == 1) {
        while other.read_within(Duration::from_millis(10)).is_none() {
            assert!(holder.read_within(Duration::ZERO).is_none(), "{index} waited for the transaction");
        }
    }
    let exec = holder.read();
    assert_eq!(exec.items().len(), STEPS + 2);
    others.iter_mut().step_by(2).for_each(|other| assert_eq!(other.read(), Value::ok()));
}

#[test]
fn clients_that_there_are_no_files_for_are_told() {
    for shards in [1, 3] {
        let server = Server::start_with_open_files(Kind::Ember { shards }, &[], 200);
        let mut first = server.client();
        // The connection with which the start was awaited may take a moment to be gone.
        assert!(wait_until(PATIENCE, || first.call("CLIENT LIST").text().lines().count() == 1));
        let maxclients = first.call("CONFIG GET maxclients").items()[1].text().parse::<usize>().expect("a number");
        assert!((50..200).contains(&maxclients), "{maxclients}");
        let mut clients: Vec<Client> = (1..maxclients).map(|_| server.client()).collect();
        for client in &mut clients {
            assert_eq!(client.call("PING"), simple("PONG"));
        }
        for _ in 0..20 {
            assert_eq!(server.client().read(), error("ERR max number of clients reached"));
        }
        drop(clients);
        assert!(wait_until(PATIENCE, || server.client().call("PING") == simple("PONG")));
    }
}

/// Nothing bounds such a reply but its request: a key named a thousand times is sent a thousand times.
#[test]
fn a_long_value_that_is_named_often_does_not_swell_the_server() {
    const TIMES: usize = 1_000;
    // A few times the limit on each of three shards; what is asked for is more than a gigabyte each.
    const PEAK_BYTES_MAX: u64 = 500 << 20;
    on_embers(&["--client-output-buffer-limit", "normal 8mb 0 0 pubsub 8mb 0 0"], |server| {
        let mut setter = server.client();
        let value = vec![b'v'; 1 << 20];
        let keys =
            ["SET long", "SET other:long", "HSET {long}hash field", "XADD {long}stream 1-1 field", "XADD s 1-1 f"];
        for line in keys.into_iter().chain(["RPUSH list"; 20]) {
            assert!(!setter.command(&[words(line), vec![value.clone()]].concat()).is_error(), "{line}");
        }
        let times = |words: &str| words.repeat(TIMES);
        let requests = [
            format!("MGET{}", times(" long")),
            format!("MGET{}", times(" long other:long")),
            format!("HMGET {{long}}hash{}", times(" field")),
            format!("HGETEX {{long}}hash EX 1000 FIELDS {TIMES}{}", times(" field")),
            format!("XREAD STREAMS{}{}", times(" {long}stream"), times(" 0")),
            format!("XREAD STREAMS{}{}", times(" {long}stream s"), times(" 0 0")),
            "LMPOP 3 none other:none list LEFT COUNT 100".to_owned(),
        ];
        let too_long = "ERR the reply is longer than a client may have to read (client-output-buffer-limit); the command \
                        was run";
        for request in requests {
            let mut client = server.client();
            assert_eq!(client.call(&request), error(too_long), "{}", &request[..40]);
            client.assert_in_step();
        }
        let transactions =
            ["GET long\r\n", "GET long\r\nGET other:long\r\n", "MGET long other:long\r\nBLPOP none 1\r\n"];
        for commands in transactions {
            let mut client = server.client();
            client.send_raw(format!("MULTI\r\n{}EXEC\r\n", times(commands)).as_bytes());
            // It may be closed for what it has to read, or be told which of the commands have no reply.
            let replies = std::iter::from_fn(|| client.try_read().ok()).find(|reply| matches!(reply, Value::Array(_)));
            if let Some(Value::Array(replies)) = replies {
                assert!(replies.contains(&error(too_long)), "{commands}");
                client.assert_in_step();
            }
        }
        let peak_bytes = server.peak_bytes();
        assert!(peak_bytes < PEAK_BYTES_MAX, "{} MB", peak_bytes >> 20);
    });
}

/// Without limits of clients a reply may have a gigabyte, which is not written to find out that it is longer.
#[test]
fn a_reply_that_is_going_to_be_too_long_is_not_begun() {
    const VALUE_BYTES: usize = 64 << 20;
    const TIMES: usize = 300;
    const PEAK_BYTES_MAX: u64 = 500 << 20;
    on_embers(&[], |server| {
        let mut client = server.client();
        client.call(&format!("SETRANGE long {} x", VALUE_BYTES - 1));
        assert!(!client.command(&[words("HSET hash field"), vec![vec![b'v'; VALUE_BYTES]]].concat()).is_error());
        let times = |words: &str| words.repeat(TIMES);
        for request in [
            format!("MGET none{}", times(" long")),
            format!("MGET{}", times(" long none other:none hash")),
            format!("HMGET hash none{}", times(" field")),
            format!("HGETEX hash EX 1000 FIELDS {TIMES}{}", times(" field")),
        ] {
            let too_long = "ERR the reply is longer than a client may have to read (client-output-buffer-limit); the \
                            command was run";
            assert_eq!(client.call(&request), error(too_long), "{}", &request[..40]);
            client.assert_in_step();
        }
        assert!(client.call("HTTL hash FIELDS 1 field").items()[0].number() > 900, "the command was run");
        let peak_bytes = server.peak_bytes();
        assert!(peak_bytes < PEAK_BYTES_MAX, "{} MB", peak_bytes >> 20);
        // What is long, but not too long, is told.
        let value = vec![b'v'; 2 << 20];
        for line in ["SET longer", "HSET other:hash field"] {
            assert!(!client.command(&[words(line), vec![value.clone()]].concat()).is_error(), "{line}");
        }
        for request in ["MGET none longer none hash longer", "HMGET other:hash none field none none field"] {
            let reply = client.call(request);
            let lens: Vec<usize> = reply.items().iter().map(|item| item.bytes().map_or(0, <[u8]>::len)).collect();
            assert_eq!(lens, [0, value.len(), 0, 0, value.len()], "{request}");
        }
    });
}
